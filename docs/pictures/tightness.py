"""Noise in proportion to how tightly the data lie: sigma of real releases over the spread of the records."""

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Noise, SeededEntropy, private_mean

RHO, DELTA, RECORDS, RANGE = 0.25, 1e-9, 2000, (-40.0, 80.0)
SPREADS = np.geomspace(0.03, 0.5, 9)


def sigma(rows: np.ndarray, **method: object) -> float:
    """Release the mean of the rows and return the deviation of its noise."""
    options = {"rho": RHO, "delta": DELTA, "size_hint": RECORDS, "step": 0.0001, "bounds": RANGE}
    return private_mean(rows, noise=Noise(SeededEntropy(1)), **options, **method).sigma[0]


rng = np.random.default_rng(1)
data = [rng.normal(20.0, spread, size=(RECORDS, 1)) for spread in SPREADS]
_, axes = plt.subplots(figsize=(6.0, 3.2))
axes.loglog(
    SPREADS,
    [sigma(rows, method="ball", center=[20.0], radius=60.0) for rows in data],
    "s-",
    color="C1",
    markersize=4,
    label="noise for the public range, -40 to 80 °C",
)
axes.loglog(
    SPREADS,
    [sigma(rows, radius=3.0, outliers="leave_out") for rows in data],
    "o-",
    color="C0",
    markersize=4,
    label="noise for the core",
)
axes.loglog(SPREADS, SPREADS / np.sqrt(RECORDS), "--", color="0.5", linewidth=1, label="chance alone: spread / √2000")
axes.set_xlabel("standard deviation of the records (°C)")
axes.set_ylabel("noise of the mean (°C)")
axes.set_ylim(7e-5, 4)
axes.set_xticks([0.03, 0.1, 0.3], ["0.03", "0.1", "0.3"])
axes.set_yticks([0.0001, 0.001, 0.01, 0.1], ["0.0001", "0.001", "0.01", "0.1"])
axes.minorticks_off()
axes.legend(loc="upper left", borderpad=0)
