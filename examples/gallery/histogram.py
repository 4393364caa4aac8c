"""
A histogram of noisy counts
===========================

All bins together cost as much as one of them, since a record lies in one bin only.
"""

# %%
# Waiting times of five thousand callers, in seconds. The bins are public and declared, empty ones too.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import private_histogram

waits = np.random.default_rng(2).gamma(2.0, 60.0, 5000)
edges = list(range(0, 620, 20))

# %%
# The same histogram for three budgets. The noise of a bin has the standard deviation 1/√(2ρ), however many bins there
# are and however large they are: small bins drown first.

figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True, layout="constrained")
exact, _ = np.histogram(waits, edges)
for axes, rho in zip(panels, (0.5, 0.01, 0.0005), strict=True):
    release = private_histogram(waits, edges=edges, rho=rho, step=0.1, bounds=(0, 600))
    axes.stairs(release.value, edges, fill=True, alpha=0.6, label="private counts")
    axes.stairs(exact, edges, color="black", linewidth=1.0, label="exact counts")
    axes.set(title=f"rho {rho:g}, noise of a bin: {release.sigma[0]:.1f}", xlabel="seconds")
    print(f"rho {rho:g}: the first bins hold {release.value[:4]}, really {exact[:4].tolist()}")
panels[0].set_ylabel("callers")
panels[0].legend()
plt.show()
