"""
Quantiles as a fan
==================

The middle, and the best and worst tenth, of waiting times whose range is known only roughly.
"""

# %%
# A day of waiting times, longer in the evening. Nothing is known of them but that they lie between 0 and an hour.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Engine

START, HOUR, LEVELS = 1767225600000, 3_600_000, [0.1, 0.25, 0.5, 0.75, 0.9]
rng = np.random.default_rng(3)
hours = rng.integers(0, 24, 48_000)
times = START + hours * HOUR + rng.integers(0, HOUR, hours.size)
waits = np.minimum(rng.gamma(3.0, 20 + 15 * np.exp(-((hours - 18) ** 2) / 8)), 3600)

# %%
# Quantiles know their error in ranks, not in seconds: ``rank_sigma`` records more or less lie below.

config = {
    "stream": {"name": "waits"},
    "lattice": {"step": 0.1},
    "features": [{"name": "seconds", "min": 0.0, "max": 3600.0}],
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "release": {"kind": "quantiles", "feature": "seconds", "quantiles": LEVELS, "rho": 0.1, "size_hint": 2000},
    "budget": {"rho": 0.1, "delta": 0.0},
    "ledger": {"url": "memory:"},
}
with Engine(config) as engine:
    engine.push(times, waits[:, None])
    releases = engine.close()
print(releases[0].parts)

# %%
# Dots are the exact quantiles.

fan = np.array([release.value for release in releases])
exact = np.array([np.quantile(waits[hours == h], LEVELS) for h in range(24)])
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.fill_between(range(24), fan[:, 0], fan[:, 4], color="C0", alpha=0.2, label="0.1 to 0.9")
axes.fill_between(range(24), fan[:, 1], fan[:, 3], color="C0", alpha=0.35, label="0.25 to 0.75")
axes.plot(fan[:, 2], color="C0", label="0.5")
axes.plot(exact, "k.", markersize=3)
axes.set(xlabel="hour", ylabel="seconds", ylim=(0, None))
axes.legend()
plt.show()
