"""
When a budget is used up
========================

With the unit ``user`` one budget lasts for ever. It pays for ten counts, one an hour, and not for the eleventh.
"""

# %%
# Five hundred users are always there. Three hundred more come in hour 14.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Engine

START, HOUR = 1767225600000, 3_600_000  # 2026-01-01T00:00:00Z
hours = np.concatenate([np.repeat(np.arange(24), 500), np.repeat(np.arange(14, 24), 300)])
users = np.concatenate([np.tile(np.arange(500), 24), 500 + np.tile(np.arange(300), 10)])

# %%
# Each hour costs 0.02 of 0.2, so there is room for ten. After that hours are refused, for newcomers too: a count
# without those who were there before would look like a number, and be wrong.

config = {
    "stream": {"name": "visits", "unit": "user", "user": "name"},
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "count", "rho": 0.02},
    "budget": {"rho": 0.2, "delta": 0.0, "exhausted": "refuse"},
    "ledger": {"url": "memory:"},
}
with Engine(config) as engine:
    engine.push(START + hours * HOUR, ids=users)
    releases = engine.close()
print([(release.status, release.reason) for release in releases[8:12]])

# %%
# The number of those who were really there is known to the owner of the data only.

released = [release for release in releases if release.value is not None]
count, width = np.array([release.count for release in released]), 2 * released[0].sigma[0]
middle = np.arange(len(released)) + 0.5
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.stairs(np.bincount(hours), color="black", linestyle=":", label="really there", baseline=None)
axes.fill_between(middle, count - width, count + width, alpha=0.3)
axes.plot(middle, count, "C0o-", markersize=4, label="private count")
axes.axvspan(len(released), 24, color="C1", alpha=0.15, label="refused: budget_exhausted")
axes.set(xlabel="hour", ylabel="users", ylim=(0, None))
axes.legend(loc="lower left")
plt.show()
