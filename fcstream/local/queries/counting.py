"""How many devices are inside a box."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import ConfigError
from ..functions import FINENESS, Box, Function, turned
from ..spaces import Euclidean
from .base import METHODS, Plan, Query, _step_width, error_width
from .elimination import Judge, Rounds, Transcript, Triple, non_interactive

THRESHOLDS = ("balanced", "paper", "none")
_MAX_DIMENSIONS = 16
_NODES = 48


@dataclass(frozen=True)
class RangeCount(Query):
    """The number of devices inside a box.

    Parameters
    ----------
    component : str
    space : Space
    box : Box
        In lattice steps; `around` makes one from coordinates.
    threshold : str
        Below which noisy distance (BM1, PM1) a device counts as inside. ``balanced``: if devices lie evenly around the
        box, as many from outside as from inside are expected to be misplaced. ``paper``: the printed formula, in the
        plane. ``none``: 0.

    Privacy
    -------
    Costs what the devices are charged; everything else is post-processing.

    Source
    ------
    Specification 11.6; proofs 10.3, 10.6; erratum 3.8; Liang and Yi 2025, Algorithm 6 and appendix B. Ours: boxes in
    every dimension, turned ones; the balanced threshold (the printed one is off by up to 47% near a deviation of half
    the side).
    """

    box: Box
    threshold: str = "balanced"

    def __post_init__(self) -> None:
        if self.threshold not in THRESHOLDS:
            raise ConfigError(f"must be one of {list(THRESHOLDS)}", "threshold", got=self.threshold)
        self.space.check(self.box)

    @classmethod
    def around(
        cls,
        component: str,
        space: Euclidean,
        center: Sequence[float],
        sides: Sequence[float],
        *,
        turn: NDArray[np.float64] | None = None,
        threshold: str = "balanced",
        parts: int = FINENESS,
    ) -> RangeCount:
        """A box by its center and sides in the space's coordinates, turned by a rotation matrix if one is given."""
        center2 = tuple(round(2 * float(c) / space.step) for c in center)
        half2 = tuple(round(float(s) / space.step) for s in sides)
        box = Box(center2, half2, parts=parts)
        if turn is not None:
            rows, bits = turned(np.asarray(turn, np.float64))
            box = replace(box, turn=rows, turn_bits=bits)
        return cls(component, space, box, threshold)

    @property
    def phi(self) -> Function:
        return self.box

    @property
    def judge(self) -> Judge:
        return non_interactive(0.0, 0.0)

    def exact(self, points: NDArray[np.int64]) -> int:
        """The true count of lattice points (not private)."""
        return int((self.box.evaluate_all(points)[:, 0] < 0).sum())

    @staticmethod
    def error(value: float, truth: float) -> float:
        """Relative error of the count."""
        return abs(value - truth) / truth if truth else float(abs(value) > 0)

    def finish(self, found: Transcript, triple: Triple, rounds: Rounds) -> tuple[Any, float | None]:
        """The count. The bound is a distance: devices farther from the boundary (or cut) are counted right."""
        left = found.heard()
        phi = found.estimates(triple, left)
        cut = np.zeros(len(left)) if triple.points else self.cuts(triple.sigma(found.known[left]))
        value = len(found.rows(Transcript.INSIDE)) + int((phi < cut).sum())
        return float(value), error_width(found, triple, rounds) * _step_width(self.space)

    def cuts(self, sigma: NDArray[np.float64]) -> NDArray[np.float64]:
        """The cut for noisy distances of each standard deviation, all in lattice steps; at most 0."""
        if self.threshold == "none":
            return np.zeros(len(sigma))
        sides = np.array(self.box.half2, np.float64)
        if self.threshold == "paper":
            return paper_cut(sides, sigma)
        values, back = np.unique(sigma, return_inverse=True)
        if len(values) > _NODES:
            nodes = np.geomspace(values[0], values[-1], _NODES)
            ratio = np.interp(np.log(values), np.log(nodes), balanced_cut(sides, nodes) / nodes)
            return np.asarray((ratio * values)[back])
        return np.asarray(balanced_cut(sides, values)[back])

    def plan(self, n: int, rho: float, method: str = "PM1", rounds: Rounds | None = None) -> Plan:
        """What to expect from n devices with a budget of rho each."""
        rounds = rounds or Rounds()
        found = self.forecast(n, rho, method, rounds)
        if not METHODS[method][0]:
            step = _step_width(self.space)
            cut = float(self.cuts(np.array([found.sigma / step]))[0]) * step
            found.notes.append(f"distances are cut at {cut:.4g} ({self.threshold})")
        narrow = min(self.box.half2) * _step_width(self.space)
        if found.sigma > narrow / 2:
            found.notes.append("the noise is wider than half the box: the count says little")
        return found


def balanced_cut(sides: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """The cut at which evenly spread devices are expected to be misplaced equally often on both sides.

    Parameters
    ----------
    sides : float (d,)
        Of the box.
    sigma : float (m,)
        Positive, in the same unit.

    Source
    ------
    Specification 11.6; erratum 3.8; ours, in place of the printed threshold: the root of an integral equation. Outside,
    the surface at distance s is the derivative of the volume of the box and all within s of it (Steiner's formula);
    inside, that of the smaller box.
    """
    lengths = np.asarray(sides, np.float64)
    if len(lengths) > _MAX_DIMENSIONS:
        raise ConfigError(
            f"must have at most {_MAX_DIMENSIONS} dimensions for distances", "box", remedy="ask for points"
        )
    gamma = np.atleast_1d(np.asarray(sigma, np.float64))
    from scipy.special import ndtr

    x, w = _nodes()
    far = 12 * gamma
    outer = far[:, None] * x
    outside = _outer_surface(lengths, outer)
    low, high = -13 * gamma - lengths.min() / 2, np.zeros(len(gamma))
    for _ in range(60):
        cut = (low + high) / 2
        depth = np.minimum(lengths.min() / 2, far - cut)[:, None]
        inner = depth * x
        wrong_out = far * ((outside * ndtr((cut[:, None] - outer) / gamma[:, None])) @ w)
        wrong_in = depth[:, 0] * ((_inner_surface(lengths, inner) * ndtr(-(cut[:, None] + inner) / gamma[:, None])) @ w)
        is_high = wrong_out > wrong_in
        low, high = np.where(is_high, low, cut), np.where(is_high, cut, high)
    return np.asarray((low + high) / 2)


@functools.cache
def _nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(160)
    return (x + 1) / 2, w / 2


def _outer_surface(sides: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Surface of all points at distance s outside a box."""
    d = len(sides)
    products = np.poly(-sides)  # elementary symmetric polynomials of the sides
    ball = [math.pi ** (k / 2) / math.gamma(k / 2 + 1) for k in range(d + 1)]
    return np.asarray(sum(k * products[d - k] * ball[k] * s ** (k - 1) for k in range(1, d + 1)))


def _inner_surface(sides: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Surface of the box whose faces have moved in by s."""
    shrunk = [np.maximum(length - 2 * s, 0.0) for length in sides]
    total = np.zeros_like(s)
    for i in range(len(sides)):
        total += 2 * np.prod([side for j, side in enumerate(shrunk) if j != i], axis=0, initial=1.0)
    return total


def paper_cut(sides: ArrayLike, sigma: ArrayLike) -> NDArray[np.float64]:
    """The threshold as printed, in the plane only, for comparison.

    Source
    ------
    Specification 11.6; erratum 3.8; Liang and Yi 2025, appendix B, with its printed condition.
    """
    lengths, gamma = np.asarray(sides, np.float64), np.asarray(sigma, np.float64)
    if len(lengths) != 2:
        raise ConfigError("must have 2 dimensions for the paper's threshold", "box", got=len(lengths))
    total, area = float(lengths.sum()), float(lengths.prod())
    near = -(total - np.sqrt(np.maximum(total**2 - 16 * gamma**2, 0.0))) / 4
    far = -gamma + (math.sqrt(total**2 + 4 * area) - total) / 4
    return np.where(2 * gamma < lengths.min(), near, far)
