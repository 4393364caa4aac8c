"""What sigma covers and what it does not: 40 means without outliers each, without and with a heavy tail."""

import matplotlib.pyplot as plt
import numpy as np

from fcstream import Noise, SeededEntropy, private_mean

rng = np.random.default_rng(5)
CASES = {
    "symmetric": lambda: rng.normal(20.0, 0.5, size=(600, 1)),
    "skewed": lambda: 19.5 + 0.4 * rng.lognormal(0.0, 1.0, size=(600, 1)),
}

_, panels = plt.subplots(1, 2, figsize=(8.0, 3.2))
for axes, (title, draw) in zip(panels, CASES.items(), strict=True):
    missed = 0
    for window in range(40):
        rows = draw()
        answer = private_mean(
            rows,
            radius=3.0,
            rho=0.25,
            delta=1e-9,
            size_hint=600,
            step=0.001,
            bounds=(-40.0, 80.0),
            outliers="leave_out",
            noise=Noise(SeededEntropy(window)),
        )
        error, half = answer.value[0] - rows.mean(), 2 * answer.sigma[0]
        holds = abs(error) <= half
        missed += not holds
        axes.plot([window, window], [error - half, error + half], color="C0" if holds else "C1", linewidth=1.4)
        axes.plot(window, error, "o", color="C0" if holds else "C1", markersize=3)
    axes.axhline(0, color="0.5", linewidth=1)
    axes.set_title(f"{title}: {40 - missed} of 40 hold the mean", fontsize="medium", loc="left")
    axes.set_xlabel("window")
panels[0].set_ylabel("value ± 2 sigma, less the\nmean of all records (°C)")
