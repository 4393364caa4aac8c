"""Histograms: the noisy number of records in each declared bin."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import Noise, SeededEntropy
from ...stream.lattice import Grid
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..options import BuildContext, Options
from .columns import BinCounts, Column

MAX_BINS = 4096


class HistogramOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "histogram"``: bins cut at `edges`, or one bin for each of `categories`.

    Edges and categories are given in the field's own units (before its transform). The edges cut the public range, and
    a value on an edge lies in the upper bin. All values that are not among the categories share a last bin.

    Released
    --------
    value
        The number of records in every bin, empty ones too.
    sigma
        1/sqrt(2 rho) for each of them.
    parts.feature
        Name of the feature.
    parts.edges, parts.categories
        Where bins are cut, or which numbers have one; the one that was configured.

    Cost
    ----
    rho for all bins together, however many.

    Privacy
    -------
    `Histogram` states the guarantee.

    Source
    ------
    Specification 5.9, 12.1; proof 6.1.
    """

    kind: str = "histogram"
    feature: str | None = None
    """Feature that the answer is about; may be left out if there is one only."""
    edges: list[float] | None = None
    """Where the public range is cut, in the field's own units; a value on an edge lies in the upper bin."""
    categories: list[float] | None = None
    """Numbers with a bin each; all other values share a last bin."""

    holds_records = False

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        return features if self.feature is None else (self.feature,)

    takes_learned_scales: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> Histogram:
        column = Column.of(setting.grid, self.feature)
        if (self.edges is None) == (self.categories is None):
            raise ConfigError("must be given, or `categories`, not both", "release.edges")
        if self.edges is None:
            values = self._on_lattice(self.categories or [], "categories", column, setting.grid)
            if len(set(values)) < len(values):
                raise ConfigError("must lie at least one lattice step apart", "release.categories")
            return Histogram(self.pure_loss(), column, (), values, tuple(self.categories or []))
        self._on_lattice(self.edges, "edges", column, setting.grid)
        ends, cuts = setting.grid.cut(column.feature, self.edges)
        self._check_number(cuts, "edges", column)
        if any(b <= a for a, b in itertools.pairwise(cuts)) or any(b <= a for a, b in itertools.pairwise(self.edges)):
            raise ConfigError("must ascend by at least one lattice step", "release.edges")
        return Histogram(self.pure_loss(), column, cuts, (), ends)

    def _on_lattice(self, numbers: list[float], name: str, column: Column, grid: Grid) -> tuple[int, ...]:
        self._check_number(numbers, name, column)
        found = []
        for number in numbers:
            if (at := grid.number(column.feature, number)) is None:
                raise ConfigError(
                    f"must lie in the range {column.feature.interval} of {column.feature.name!r}",
                    f"release.{name}",
                    got=Shown(f"{number:g}"),
                )
            found.append(at)
        return tuple(found)

    def _check_number(self, numbers: Sequence[float], name: str, column: Column) -> None:
        if not 1 <= len(numbers) <= MAX_BINS:
            raise ConfigError(
                f"must hold 1 to {MAX_BINS} numbers inside the range of {column.feature.name!r}", f"release.{name}"
            )


@dataclass(frozen=True)
class Histogram(Mechanism):
    """Mechanism for histograms: it adds discrete Gaussian noise to the count of every declared bin, empty or not.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    column : Column
    inner, values : tuple of int
        See `BinCounts`; one of the two is empty.
    named : tuple of float
        Names of the bins, published with the counts: the edges of all bins (one more than there are bins), or the
        categories (one less than there are bins).

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0. A record lies in one bin, so the l2 sensitivity
    is 1 whatever the number of bins. Counts may be negative; the number of records is the sum of the noisy counts.

    Source
    ------
    Specification 5.9; proof 6.1; Canonne, Kamath, Steinke 2020, Theorem 14.
    """

    loss: PrivacyLoss
    column: Column
    inner: tuple[int, ...]
    values: tuple[int, ...]
    named: tuple[float, ...]
    kind: str = "histogram"

    @property
    def bins(self) -> int:
        return len(self.inner or self.values) + 1

    @cached_property
    def variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self.loss.rho_nano)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return BinCounts(self.column.index, self.inner, self.values)

    def release(self, view: NDArray[np.int64], charge: Charge, noise: Noise) -> Outcome:
        charge.use(self.loss)
        counts = view + noise.discrete_gaussian(self.variance, self.bins)
        sigma = np.full(self.bins, math.sqrt(self.variance))
        total = int(counts.sum())
        return Outcome(value=counts.astype(np.float64), sigma=sigma, count=total, core_count=total)

    def forecast(self, size: int) -> Forecast:
        return Forecast(1.0, math.sqrt(self.variance))

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        plain = super().to_user_units(outcome, grid)
        what = "edges" if self.inner else "categories"
        parts = {"feature": self.column.feature.name, what: list(self.named)}
        return replace(plain, parts=parts)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        counter = self.counter(grid.dimension, 1, Noise(SeededEntropy(0)))
        if len(points):
            counter.add(0, points)
        counts = np.asarray(counter.view([0]), np.float64)
        return {"value": counts.tolist()}

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {"records in a bin": math.sqrt(self.variance)}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        deviation = math.sqrt(self.variance)
        warnings: tuple[str, ...] = ()
        if size is not None and size / self.bins < 2 * deviation:
            warnings = (
                f"{size} records in {self.bins} bins are fewer in a bin than twice the noise: use fewer bins, longer "
                "windows, or a larger `release.rho`",
            )
        return PlanNotes((f"{self.bins} bins of {self.column.feature.name!r}, empty ones too",), warnings)
