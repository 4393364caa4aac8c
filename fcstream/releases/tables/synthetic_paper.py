"""Synthetic rows by the paper's algorithm as printed, with private directions and damped microaggregation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...ledgers.base import Charge
from ...noise.samplers import Noise, sampleable
from ...stream.lattice import Grid
from ...stream.totals import WIDE
from ...synthetic.bingham import proj
from ...synthetic.cells import FINE, covering, rounded
from ...synthetic.codes import Codes
from ...synthetic.counts import TableView
from ...synthetic.mixtures import TableMixture, consistent, to_simplex_l1
from ..base import Forecast, Outcome, PlanNotes
from .documents import NANO, TableMechanism, epsilon_nano

_GRAIN = 64
"""Damped means are rounded to so many times finer than one record moves them."""
PARTS = 6
"""Of epsilon for each axis: changing it needs both corrections at once (errata 5.1, 5.2)."""


@dataclass(frozen=True)
class PaperSynthetic(TableMechanism):
    """Mechanism of damped microaggregation as printed.

    It is useless below some ten million records and serves for comparison only.

    Parameters
    ----------
    loss : PrivacyLoss
        Loss that is charged for epsilon.
    codes : Codes
    size_hint : int
        The paper's n, a public number. The number of records is never used.
    kappa : float
        Fineness of the cells, in (0, 1).
    rows : int or None

    Privacy
    -------
    Protects one record that is replaced by another, as printed, and also one that is added or removed, because n is the
    public `size_hint` whatever the window holds, and one record moves less then. It is epsilon-DP in three equal parts,
    charged as rho-zCDP. PROJ(n epsilon / (6 t) S) is as printed: two slips of the paper cancel (errata 5.1, 5.2), and
    correcting one of them alone breaks it. Weights get Lap(6 / (n epsilon)). Damped means are rounded to a grid so fine
    that the printed 12 sqrt(p) / (b epsilon), twice what the cube needs, covers the rounding. The floating-point limits
    of PROJ are stated in `fcstream.synthetic.bingham`.

    Source
    ------
    Specification 9.3; proof 9.3; errata 5.1, 5.2, 5.4, 5.5; Boedihardjo et al. 2022, Algorithm 4 and Theorem 5.15.
    """

    loss: PrivacyLoss
    codes: Codes
    size_hint: int
    kappa: float = 0.5
    rows: int | None = None
    kind: str = "synthetic"

    @cached_property
    def epsilon(self) -> Fraction:
        return Fraction(epsilon_nano(self.loss), NANO)

    @cached_property
    def alpha(self) -> float:
        return float(math.log(max(self.size_hint, 3)) ** -0.25)

    @cached_property
    def axes(self) -> int:
        """Number t of directions; 0 makes one cell."""
        t = math.floor(self.kappa * math.log(max(self.size_hint, 3)) / math.log(7 / self.alpha))
        return min(t, self.codes.bits - 1)

    @cached_property
    def damping(self) -> int:
        """Damping b, rounded up to whole records."""
        return math.ceil(math.sqrt(self.codes.bits * self.size_hint ** (1 - self.kappa) / float(self.epsilon)))

    @cached_property
    def scales(self) -> tuple[Fraction, Fraction]:
        """Noise scales: of the weights, and of the damped means in steps of 1 / (64 b)."""
        return sampleable(6 / self.epsilon), sampleable(12 * self.codes.bits * _GRAIN / self.epsilon)

    def __post_init__(self) -> None:
        _ = self.scales  # refuses noise that cannot be drawn, now

    def release(self, view: TableView, charge: Charge, noise: Noise) -> Outcome:
        charge.use(self.loss)
        codes, n, b = self.codes, self.size_hint, self.damping
        p = codes.bits
        directions: list[tuple[int, ...]] = []
        if self.axes:
            step = float(self.epsilon / (PARTS * self.axes * p))  # n epsilon / (6 t) S for x / sqrt(p)
            directions = [rounded(one) for one in proj(view.moments().astype(np.float64) * step, self.axes, noise)]
        cover = covering(self.axes, self.alpha)
        bits = view.bits()
        cell = nearest(bits, directions, cover, self.alpha)
        exact = np.bincount(cell, minlength=len(cover))
        ones = np.zeros((len(cover), p), np.int64)
        np.add.at(ones, cell, bits)
        grain = _GRAIN * self.damping
        damped = _parts(ones, np.maximum(exact, b)[:, None], grain)
        weights = exact + noise.discrete_laplace(self.scales[0], len(cover))
        damped += noise.discrete_laplace(self.scales[1], damped.size).reshape(damped.shape)
        points = consistent(codes, np.clip(damped / grain, 0.0, 1.0))
        kept = to_simplex_l1(weights / n)
        return self.published(TableMixture(kept[kept > 0], points[kept > 0]), weights, n, noise, None)

    def forecast(self, size: int) -> Forecast:
        """Forecast a window; sigma is the noise of one coordinate of a damped mean, before clipping to [0, 1]."""
        return Forecast(1.0, math.sqrt(2) * 12 * self.codes.bits / (self.damping * float(self.epsilon)))

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {"a damped mean": self.forecast(size).sigma}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        sigma = self.forecast(self.size_hint).sigma
        lines = (f"the paper's algorithm, pure epsilon {float(self.epsilon):.4g}, with a public n = {self.size_hint}",)
        worse = (f"its noise is {sigma:.2g} times the cube: use another variant",) if sigma > 0.25 else ()
        return PlanNotes(lines, worse, {"epsilon": float(self.epsilon), "axes": self.axes, "damping": self.damping})


def _parts(ones: NDArray[np.int64], sizes: NDArray[np.int64], grain: int) -> NDArray[np.int64]:
    """Return ones / sizes, at most 1, in steps of 1 / grain, rounded down."""
    if int(sizes.max()) <= WIDE // grain:
        return np.asarray(ones * grain // sizes)
    return np.asarray(ones.astype(object) * grain // sizes, np.int64)


def nearest(
    bits: NDArray[np.int64], directions: list[tuple[int, ...]], cover: NDArray[np.int64], alpha: float
) -> NDArray[np.int64]:
    """Find the point of the covering that is nearest to each record (n, p) / sqrt(p), the first of equally near points.

    Privacy
    -------
    An integer function of each record and of released directions: ties depend on the record alone.

    Source
    ------
    Specification 9.3; proof 9.3; Boedihardjo et al. 2022, Algorithm 4, step 7.
    """
    if not directions:
        return np.zeros(len(bits), np.int64)
    along_ = np.array(directions, np.int64).T
    step = round(alpha / math.sqrt(len(directions)) * math.sqrt(bits.shape[1]) * FINE)
    grid, found = cover * step, np.empty(len(bits), np.int64)
    norms = (grid * grid).sum(axis=1)
    for first in range(0, len(bits), 4096):
        places = bits[first : first + 4096] @ along_
        found[first : first + 4096] = np.argmin(norms[None, :] - 2 * (places @ grid.T), axis=1)
    return found
