"""Compiles beforehand what windows need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .arrays import private_mean, private_variance
from .clustering import private_centers, private_mixture
from .ladders import LadderCounts
from .noise import Noise, SeededEntropy
from .speeds import measured_costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TWO = np.array([[-0.5, 0.0], [0.5, 0.0]])


def warm_up() -> None:
    """Compile what windows need, or read it from the cache: some seconds once, then a fraction of one.

    Without it the first window pays. Covered: means, variances and centers, friends within one or many radii, sampled
    pairs. Left to their first use: covariances, synthetic tables, predicates, and functions of your own.
    """
    seeded = Noise(SeededEntropy(0))
    points = np.zeros((300, 12))
    for method, center in (("recentered", None), ("friendly", None), ("ball", [0.0] * 12)):
        private_mean(
            points, radius=1, rho=10, delta=0.0 if center else 1e-6, size_hint=300, step=1e-3, bounds=(-1, 1),
            method=method, center=center, noise=seeded,
        )  # fmt: skip
    private_variance(
        points, radius=1, rho=10, delta=1e-6, size_hint=300, step=1e-3, bounds=(-1, 1), reach=1, noise=seeded
    )
    ladder = LadderCounts(2, [1, 4])
    ladder.add(0, np.zeros((2, 2)))
    _ = ladder.view([0]).pairs, ladder.view([0]).at(0)
    measured_costs(2)
    rows = np.repeat(_TWO, 1000, axis=0)
    for method in ("friendly", "ktuples"):
        private_centers(
            rows, 2, ball=1, rho=4, delta=1e-6, size_hint=2000, step=1e-4, oracle=_same, method=method, noise=seeded
        )
    private_mixture(
        rows, 2, ball=1, spread=0.1, rho=4, delta=1e-6, size_hint=2000, step=1e-4, oracle=_same, noise=seeded
    )


def _same(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """An oracle that needs no library and takes no time."""
    return _TWO
