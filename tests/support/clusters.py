"""Points in clusters, tuples of centers, and a quick oracle for them."""

import numpy as np
from hypothesis import strategies as st

from fcstream.accounting.losses import PrivacyLoss
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.clusters.agreement import Balls, Geometry
from fcstream.releases.clusters.plan import ClusterJob

small = st.integers(0, 2**32 - 1)
LOSS = PrivacyLoss.charge(1, 1e-8)
STEP = 1e-4


class Paid:
    """Stages that were started."""

    def __init__(self):
        self.stages = []

    def __call__(self, loss):
        self.stages.append(loss)

    @property
    def total(self):
        return sum(self.stages, PrivacyLoss())


def seeded(seed=0):
    return Noise(SeededEntropy(seed))


def tuples_like(base, t, spread, seed, shuffle=True):
    rng = np.random.default_rng(seed)
    out = np.rint(base + rng.normal(0, spread, size=(t, *base.shape)))
    for i in range(t if shuffle else 0):
        out[i] = out[i][rng.permutation(len(base))]
    return out


BASE = np.array([[0.0, 0.0], [5000.0, 1000.0], [-3000.0, 4000.0]])


def three(seed=0, n=3000, spread=100):
    rng = np.random.default_rng(seed)
    return np.rint(BASE[rng.integers(0, 3, n)] + rng.normal(0, spread, size=(n, 2)))


def quick(points, k, seed):
    """An oracle for tests: means by the nearest true center, without its share of mistakes."""
    labels = ((points[:, None] - BASE * STEP) ** 2).sum(axis=2).argmin(axis=1)
    return np.stack([points[labels == j].mean(axis=0) for j in range(k)])


def job(**changes):
    values = {"k": 3, "center": (0.0, 0.0), "ball": 1.0, "size_hint": 6000, "oracle": quick}
    return ClusterJob(**(values | changes))


def balls_of(tuples, r2=400**2, i=0):
    radii, inside = Geometry(r2).members(tuples[i : i + 1], tuples)
    return Balls(tuples[i], radii[0], inside[0])
