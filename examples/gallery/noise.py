"""
How much noise for how much privacy
===================================

What ``fcstream plan`` says, as a picture: the noise of a mean by the size of a window and by its cost.
"""

# %%
# No data are needed for it: the forecast follows from the configuration.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Config, UnusablePlan
from fcstream.planning.plan import plan


def sigma(size, rho):
    """The standard deviation of the noise; nan where windows are too small for that budget."""
    config = {
        "stream": {"name": "rooms"},
        "lattice": {"step": 0.001},
        "features": [{"name": "temp_c", "min": -40.0, "max": 85.0}],
        "window": {"length": "10m", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
        "release": {"kind": "mean", "radius": 3.0, "rho": rho, "delta": 1e-9, "size_hint": size},
        "budget": {"rho": rho, "delta": 1e-6},
    }
    try:
        return plan(Config.from_mapping(config)).sigma["temp_c"]
    except UnusablePlan:
        return np.nan


# %%
# Ten times the records make a tenth of the noise; ten times the budget makes a third of it. A line begins at the
# smallest window that its budget suffices for.

sizes = [round(10 ** (k / 8)) for k in range(12, 41, 3)]
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
for rho in (1.0, 0.1, 0.01, 0.001):
    axes.loglog(sizes, [sigma(size, rho) for size in sizes], "o-", markersize=3, label=f"rho {rho:g} a window")
axes.set(xlabel="records in a window", ylabel="noise of the mean, °C")
axes.legend()
plt.show()
