"""
A mean beside exact values
==========================

Hourly means of a fleet in which three sensors of a hundred are stuck far away: outliers are left out.
"""

# %%
# A day of readings. They follow the sun, and 3% of them say 85, as a sensor of this kind does when it has lost its
# power.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Engine

START, HOUR = 1767225600000, 3_600_000  # 2026-01-01T00:00:00Z
rng = np.random.default_rng(1)
hours = rng.integers(0, 24, 48_000)
times = START + hours * HOUR + rng.integers(0, HOUR, hours.size)
normal = 20 + 3 * np.sin((hours - 9) * np.pi / 12) + rng.normal(0, 0.5, hours.size)
stuck = rng.random(hours.size) < 0.03
readings = np.where(stuck, 85.0, normal)

# %%
# Nothing in the configuration says where readings lie, only how far apart two normal ones of an hour are
# (``radius``), and between which ends any reading is. Readings of stuck sensors shall not count (``outliers``).

config = {
    "stream": {"name": "means"},
    "lattice": {"step": 0.001},
    "features": [{"name": "temp_c", "min": -40.0, "max": 120.0}],
    "window": {"length": "1h", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z", "max_records": 10_000},
    "release": {"kind": "mean", "outliers": "leave_out", "radius": 4.0, "rho": 0.1, "delta": 1e-9, "size_hint": 2000},
    "budget": {"rho": 0.1, "delta": 1e-6},
    "ledger": {"url": "memory:"},
}
with Engine(config) as engine:
    engine.push(times, readings[:, None])
    releases = engine.close()
print(releases[0].value, "+-", releases[0].sigma, "from about", releases[0].count, "readings")

# %%
# The band is two standard deviations of the noise. The plain mean is off by two degrees, whatever noise is added to
# it.

value = np.array([release.value[0] for release in releases])
width = 2 * np.array([release.sigma[0] for release in releases])
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.plot([readings[hours == h].mean() for h in range(24)], "C1--", label="exact mean of all readings")
axes.plot([normal[(hours == h) & ~stuck].mean() for h in range(24)], "k:", label="exact mean of normal readings")
axes.fill_between(range(24), value - width, value + width, color="C0", alpha=0.3)
axes.plot(value, "C0o-", markersize=4, label="private mean")
axes.set(xlabel="hour", ylabel="°C")
axes.legend()
plt.show()
