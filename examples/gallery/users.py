"""
When users have used up their budgets
=====================================

With the unit ``user`` everybody has one budget for ever. A count per hour, and what happens after ten of them.
"""

# %%
# Five hundred users are always there. Three hundred more come in hour 14, with budgets of their own.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Engine

START, HOUR = 1767225600000, 3_600_000  # 2026-01-01T00:00:00Z
hours = np.concatenate([np.repeat(np.arange(24), 500), np.repeat(np.arange(14, 24), 300)])
users = np.concatenate([np.tile(np.arange(500), 24), 500 + np.tile(np.arange(300), 10)])

# %%
# Each hour costs 0.02 of 0.2, so a user takes part in ten hours. Nobody is refused an answer: who has nothing left is
# left out, and from the first hour on in which that can have happened releases say ``exhausted``.

config = {
    "stream": {"name": "visits", "unit": "user", "user": "name"},
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "count", "rho": 0.02},
    "budget": {"rho": 0.2, "delta": 0.0},
    "ledger": {"url": "memory:"},
}
with Engine(config) as engine:
    engine.push(START + hours * HOUR, ids=users)
    releases = engine.close()
print([(release.count, release.participation) for release in releases[8:12]])

# %%
# The number of those who were really there is known to the owner of the data only.

count, width = np.array([release.count for release in releases]), 2 * releases[0].sigma[0]
first = next(hour for hour, release in enumerate(releases) if release.participation == "exhausted")
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.stairs(np.bincount(hours), color="black", linestyle=":", label="really there", baseline=None)
axes.fill_between(np.arange(24) + 0.5, count - width, count + width, alpha=0.3)
axes.plot(np.arange(24) + 0.5, count, "C0o-", markersize=4, label="private count")
axes.axvspan(first, 24, color="C1", alpha=0.15, label="participation: exhausted")
axes.set(xlabel="hour", ylabel="users")
axes.legend(loc="lower left")
plt.show()
