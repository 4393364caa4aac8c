"""
The shape of clusters
=====================

A mixture: the weight, the mean and the covariance matrix of each cluster.
"""

# %%
# Three groups of machines by load and temperature. One half of the records finds the clusters, the other half is
# measured, so a record pays once.

import matplotlib.pyplot as plt
import numpy as np

from fcstream import private_mixture

rng = np.random.default_rng(5)
means = np.array([[0.5, 0.5], [-0.5, 0.1], [0.2, -0.6]])
shapes = np.array([[[3, 2], [2, 3]], [[4, 0], [0, 1]], [[1, -0.8], [-0.8, 2]]]) * 4e-4
which = rng.choice(3, 120_000, p=[0.5, 0.3, 0.2])
machines = means[which] + np.einsum("nij,nj->ni", np.linalg.cholesky(shapes)[which], rng.normal(size=(120_000, 2)))

found = private_mixture(
    machines, 3, ball=1, spread=0.2, rho=2, delta=1e-8, size_hint=120_000, step=1e-5, oracle="scipy"
)
print(found.status, "weights", np.round(found.parts["weights"], 3), "at rho", found.rho)

# %%
# Ellipses hold 95% of a normal cluster.


def ellipse(mean, covariance):
    turn = np.linspace(0, 2 * np.pi, 100)
    values, vectors = np.linalg.eigh(covariance)
    circle = np.stack([np.cos(turn), np.sin(turn)]) * np.sqrt(5.99 * np.maximum(values, 0))[:, None]
    return mean[:, None] + vectors @ circle


figure, axes = plt.subplots(figsize=(6, 5.4), layout="constrained")
axes.plot(*machines[::40].T, ".", markersize=1.5, color="0.6")
for number in range(3):
    private = axes.plot(*ellipse(np.array(found.value[number]), found.parts["covariances"][number]), "C0")
    exact = axes.plot(*ellipse(means[number], shapes[number]), "k:")
axes.legend([private[0], exact[0]], ["private", "exact"])
axes.set(xlabel="load", ylabel="temperature", aspect="equal")
plt.show()
