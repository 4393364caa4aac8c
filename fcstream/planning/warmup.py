"""Warm-up: compiles beforehand what windows need."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.clusters import private_centers, private_mixture
from ..arrays.statistics import private_mean, private_synthetic, private_variance
from ..counting.exact import FriendCounts
from ..counting.multi_radius import LadderCounts
from ..noise.samplers import Noise, SeededEntropy
from ..releases.totals.memory import compile_mixing
from .speeds import measured_costs

_WITHOUT_FRIENDS = {"count", "sum", "histogram", "quantiles", "frequent", "total"}
_TWO = np.array([[-0.5, 0.0], [0.5, 0.0]])


def warm_up(*kinds: str) -> None:
    """Compile what windows need, or read it from the cache: half a minute once, then about a second.

    Without it the first window pays. Covered: noise, means, variances, centers, mixtures, synthetic tables, friends
    within one or many radii, sampled pairs. Left to their first use: covariances, predicates, and functions of your
    own.

    Parameters
    ----------
    *kinds : str
        Kinds of releases that are wanted; all if none is given. Counts, sums, histograms, quantiles, frequent values
        and totals take a second once; centers and mixtures a third of the time.
    """
    wanted, seeded = set(kinds), Noise(SeededEntropy(0))
    seeded.discrete_gaussian(Fraction(1), 1)
    if not wanted or "total" in wanted:
        compile_mixing()
    if not wanted or wanted - _WITHOUT_FRIENDS:
        _warm_friends(seeded)
    if not wanted or "synthetic" in wanted:
        private_synthetic(np.zeros((300, 3)), rho=100, levels=[2, 2, 3], noise=seeded)
    if not wanted or {"centers", "mixtures"} & wanted:
        _warm_centers(seeded)


def _warm_friends(noise: Noise) -> None:
    points = np.zeros((300, 12))
    for method, center in (("recentered", None), ("friendly", None), ("ball", [0.0] * 12)):
        private_mean(
            points, radius=1, rho=10, delta=0.0 if center else 1e-6, size_hint=300, step=1e-3, bounds=(-1, 1),
            method=method, center=center, noise=noise,
        )  # fmt: skip
    private_variance(
        points, radius=1, rho=10, delta=1e-6, size_hint=300, step=1e-3, bounds=(-1, 1), reach=1, noise=noise
    )
    many = FriendCounts(12, 100)  # the windows before were too small for what large ones need
    many.add(0, np.zeros((1000, 12)))
    many.view([0])
    several = LadderCounts(2, [1, 4])
    several.add(0, np.zeros((2, 2)))
    _ = several.view([0]).pairs, several.view([0]).at(0)
    measured_costs(2)


def _warm_centers(noise: Noise) -> None:
    rows = np.repeat(_TWO, 1000, axis=0)
    known: Any = {"rho": 4, "delta": 1e-6, "size_hint": 2000, "step": 1e-4, "ball": 1, "oracle": _same, "noise": noise}
    for method, radius in (("friendly", "histogram"), ("friendly", "search"), ("ktuples", "histogram")):
        private_centers(rows, 2, method=method, radius=radius, **known)
    private_mixture(rows, 2, spread=0.1, **known)
    private_centers(rows, 2, method="tree", rho=4, step=1e-4, ball=1, noise=noise)


def _same(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """An oracle that needs no library and takes no time."""
    return _TWO
