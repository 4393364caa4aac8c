"""Points with weights, in a public convex set, that represent a window's records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ...synthetic.cells import MAX_AXES
from ...synthetic.convex import REACH, BallCells, ConvexSet, RegionCounts, RegionView, ball_cells
from ...synthetic.mixtures import to_simplex
from ..averages import BallAverage, check_noise, gaussian_variance, noisy_products
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..core_stage import normal_above
from ..floors import gaussian_tail, min_gaussian
from ..options import BuildContext, Options

SHARES = (Fraction(1, 10), Fraction(2, 10))
"""Of rho for the mean (with the number of records) and for second moments; the rest is for the cells."""
LIMIT = 0.02
"""For the noise of all cells together, in parts of the radius."""
SPREAD = 0.02
"""Squared distance of a cell from the mean, in parts of the squared radius: noisier cells are drawn to the mean."""
USELESS = 0.1


class PointsOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "points"``: weighted points in a public box, ball or simplex.

    Released
    --------
    value
        Points of the set which stand for the records.
    parts.set
        `box`, `ball` or `simplex`.
    parts.weights, parts.counts
        Weight of each point; noisy numbers of records in the cells that they come from.

    Cost
    ----
    rho; a window with too few records a tenth of it.

    Privacy
    -------
    `Points` states the guarantee.

    Source
    ------
    Specification 9.6, 12.1; proof 9.2.
    """

    kind: str = "points"
    method: str = "cells"
    """How points are found: as noisy means of cells along the leading directions (``cells``), or as rows that are drawn
    from a tree (``tree``)."""
    set: Literal["box", "ball", "simplex"] = "box"
    """Public set in which points lie: the features' ranges (``box``), a ``ball``, or the ``simplex`` of vectors
    without negative parts and with a given sum."""
    center: list[float] | None = None
    """For ``ball``: its center, in the features' own (transformed) units."""
    radius: float | None = None
    """For ``ball``: its radius, in scaled units."""
    total: float | None = None
    """For ``simplex``: the sum."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""

    needs_no_delta: ClassVar[bool] = True
    makes_rows: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> Points:
        for name, owner in (("center", "ball"), ("radius", "ball"), ("total", "simplex")):
            if (getattr(self, name) is None) != (self.set != owner):
                raise ConfigError(f"must be given for set = {owner!r}, and for no other", f"release.{name}")
        loss = self.pure_loss()
        if loss.rho_nano < 10_000:
            raise ConfigError("must be at least 1e-5", "release.rho", got=Shown(f"{self.rho:g}"))
        return Points(loss, getattr(self, f"_{self.set}")(setting.grid))

    def _box(self, grid: Grid) -> ConvexSet:
        bounds = list(zip(grid.lowest.tolist(), grid.highest.tolist(), strict=True))
        center = tuple(round((low + high) / 2) for low, high in bounds)
        squared = sum(max(high - c, c - low) ** 2 for (low, high), c in zip(bounds, center, strict=True))
        low, high = zip(*bounds, strict=True)
        return ConvexSet("box", center, math.ceil(math.sqrt(squared)) + 1, low, high)

    def _ball(self, grid: Grid) -> ConvexSet:
        if len(self.center or ()) != grid.dimension:
            raise ConfigError(f"must hold {grid.dimension} numbers, one per feature", "release.center")
        radius = math.isqrt(grid.lattice.radius_squared(float(self.radius or 0), "release.radius"))
        values = [(x - f.origin) / f.scale for x, f in zip(self.center or (), grid.features, strict=True)]
        return ConvexSet("ball", tuple(int(x) for x in grid.lattice.coordinates(values)), radius)

    def _simplex(self, grid: Grid) -> ConvexSet:
        if any(feature.origin or feature.transform != "none" for feature in grid.features) or grid.dimension < 2:
            raise ConfigError(
                "must be at least two features without `origin` and `transform` for a simplex", "features"
            )
        if not (math.isfinite(self.total or 0) and (self.total or 0) > 0):
            raise ConfigError("must be a positive number", "release.total", got=self.total)
        total = (self.total or 0) / grid.lattice.step
        middle = round(total / grid.dimension)
        return ConvexSet("simplex", (middle,) * grid.dimension, math.ceil(total) + 1, total=total)


@dataclass(frozen=True)
class Points(Mechanism):
    """Mechanism that releases weighted points: it adds noise to moments, then to a count and a sum in every cell.

    The cells divide the public ball along the leading directions of the noisy moments.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    region : ConvexSet

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, whatever the window holds. A record becomes
    integers of norm at most R around the public center. Discrete Gaussian noise is added to (R count, sum), of squared
    sensitivity 2 R**2; to the second moments (`noisy_products`); and in every cell, empty ones too, to the count (1)
    and the sum (R**2). A record lies in one cell, which is an integer function of it and of released numbers.
    Everything is then projected onto the set, which is post-processing.

    Source
    ------
    Specification 9.6; proof 9.2; Boedihardjo et al. 2022, Theorems 5.13 and 5.14; with noise on integer moments, counts
    and sums as in `fcstream.releases.tables.synthetic.Synthetic`.
    """

    loss: PrivacyLoss
    region: ConvexSet
    kind: str = "points"

    @property
    def dimension(self) -> int:
        return len(self.region.center)

    @cached_property
    def shares(self) -> tuple[int, int, int]:
        """Shares of rho (nano): of the mean, of the second moments and of the cells."""
        mean, pairs = (int(self.loss.rho_nano * share) for share in SHARES)
        return mean, pairs, self.loss.rho_nano - mean - pairs

    @cached_property
    def average(self) -> BallAverage:
        return BallAverage.split(self.shares[2], self.dimension)

    @cached_property
    def variances(self) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """Noise variances: of the mean's sum, of squares of coordinates, and of the counts and the sums of cells."""
        return (
            gaussian_variance(2 * REACH**2, self.shares[0]),
            gaussian_variance(REACH**4, self.shares[1]),
            self.average.count_variance,
            gaussian_variance(REACH**2, self.average.sum_nano),
        )

    @cached_property
    def min_count(self) -> int:
        """Least count: with a smaller noisy size a window is refused, as two cells would be off by `USELESS` of the
        radius."""
        gate = math.ceil(Fraction(min_gaussian(self.variances[0]), REACH) + Fraction(1, 2))
        return max(gate, math.ceil(math.sqrt(2 * self.variances[3]) / REACH / USELESS))

    @property
    def false_release(self) -> float:
        return gaussian_tail(self.variances[0], REACH * self.min_count - REACH // 2)  # the number is rounded

    def __post_init__(self) -> None:
        check_noise(REACH**4, min(self.shares[0], self.shares[1], self.average.sum_nano))

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return RegionCounts(self.region)

    def release(self, view: RegionView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        d = self.dimension
        charge.start(PrivacyLoss(self.shares[0]))
        exact = np.append(REACH * len(view.rows), view.rows.sum(axis=0))
        total = exact + noise.discrete_gaussian(self.variances[0], d + 1)
        count = round(int(total[0]) / REACH)
        if count < self.min_count:
            return Outcome("too_few", count=count)
        mean = total[1:] / count
        charge.start(PrivacyLoss(self.shares[1]))
        noisy = noisy_products(view.moments, self.variances[1], noise)
        directions = np.linalg.eigh(noisy / count - np.outer(mean, mean))[1][:, ::-1].T
        spread = math.sqrt(self.variances[3]) / REACH / count
        cells = ball_cells(directions, np.clip(mean, -REACH, REACH), spread, LIMIT, min(d, MAX_AXES))
        charge.start(PrivacyLoss(self.shares[2]))
        points, weights, counts = self._averages(view, cells, mean, noise)
        parts = {"weights": weights.tolist(), "counts": counts.tolist()}
        return Outcome(None, points, None, count, count, parts=parts)

    def _averages(
        self, view: RegionView, cells: BallCells, mean: NDArray[np.float64], noise: Noise
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Return points in the set, in lattice steps, their weights, and the noisy counts of all cells."""
        counts, sums = cells.sums(view.rows)
        counts = counts + noise.discrete_gaussian(self.variances[2], len(counts))
        sums = sums + noise.discrete_gaussian(self.variances[3], sums.size).reshape(sums.shape)
        weights = to_simplex(counts / max(float(counts.sum()), 1.0))
        held = np.maximum(counts, 1)[:, None]
        trust = SPREAD / (SPREAD + self.dimension * float(self.variances[3]) / REACH**2 / held**2)
        places = self.region.center + self.region.unit * (mean + trust * (sums / held - mean))
        kept = weights > 0
        return self.region.nearest(places)[kept], weights[kept] / weights[kept].sum(), counts

    def forecast(self, size: int) -> Forecast:
        """Forecast a window; sigma is the noise of the mean of all records, in lattice steps."""
        spread = math.sqrt(self.variances[0]) / REACH
        sigma = math.sqrt(self.variances[3]) / max(size, 1) * self.region.unit
        return Forecast(normal_above((self.min_count - 0.5 - size) / spread), sigma)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        names, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        parts: dict[str, Any] = {"set": self.region.kind} | (outcome.parts or {})
        value = None if outcome.value is None else grid.values(outcome.value)
        return ReleaseValues(value, None, names, transforms, parts)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        steps, step = self.forecast(size).sigma, grid.lattice.step
        return {f"a cell's share of {f.name}": f.scale * step * steps for f in grid.features}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        lines = (f"weighted points in a {self.region.kind} of {self.dimension} dimensions",)
        return PlanNotes(lines, stopped=PrivacyLoss(self.shares[0]))
