"""
Centers of clusters
===================

Where groups of records lie, found privately; refused where they are not clearly apart.
"""

# %%
# Forty thousand stops of taxis around three stands, and some anywhere.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import private_centers

rng = np.random.default_rng(4)
stands = np.array([[0.5, 0.5], [-0.5, 0.1], [0.2, -0.6]])
stops = stands[rng.integers(0, 3, 40_000)] + rng.normal(0, 0.03, (40_000, 2))

# %%
# Only the public ball that all stops lie in is said, and that there are three clusters. The records are divided into
# shards, each shard is clustered by itself, and the centers of most shards must agree. Then noisy means replace them.

found = private_centers(stops, 3, ball=1, rho=1, delta=1e-8, size_hint=40_000, step=1e-5, oracle="scipy")
print(found.status, np.round(found.value, 3).tolist(), "with", found.parts["counts"], "stops, at rho", found.rho)

# %%
# Clusters that run into each other are refused: the shards do not agree, and an answer would be nobody's.

blurred = rng.normal(0, 0.3, (10_000, 2))
refused = private_centers(blurred, 3, ball=1, rho=1, delta=1e-8, size_hint=10_000, step=1e-5, oracle="scipy")
print(refused.status, refused.reason)

figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), sharex=True, sharey=True, layout="constrained")
for axes, points, title in zip(panels, (stops[::4], blurred), ("released", f"refused: {refused.reason}"), strict=True):
    axes.plot(*points[::3].T, ".", markersize=1, color="0.6")
    axes.add_patch(plt.Circle((0, 0), 1, fill=False, linestyle=":"))
    axes.set(title=title, aspect="equal", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
panels[0].plot(*np.transpose(found.value), "C3X", markersize=10, label="private centers")
panels[0].legend()
plt.show()
