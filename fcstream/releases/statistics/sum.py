"""Sums: how much a window's records hold of every feature, with noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...stream.lattice import MAX_COORDINATE, exact
from ...stream.totals import Totals
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues, pairs_of
from ..intervals import lattice_half_width
from ..options import BuildContext, Options
from .columns import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...ledgers.base import Charge
    from ...noise.samplers import Noise
    from ...stream.lattice import Grid

LARGEST_VARIANCE = 2**79
"""Sums are made coarser until their noise has at most this variance, which the samplers can draw."""
_EXACT_ROWS = 2**53 // MAX_COORDINATE  # so many coordinates add up exactly in float64, in any order


class SumOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "sum"``: the sum of every feature over a window's records.

    Noise is in proportion to the features' public ranges, since a record may lie anywhere in them: declare them narrow.
    Values are rounded to the lattice before they are added up, so a sum can be off by half a step for each record,
    which `sigma` does not contain: let `lattice.step` divide the values, or be far below ``sigma`` divided by their
    number.

    Released
    --------
    value
        One sum per feature, in its own (transformed) units.
    sigma
        The standard deviation of each sum's noise.

    Cost
    ----
    rho for all features together.

    Privacy
    -------
    `NoisySum` states the guarantee.

    Source
    ------
    Specification 5.11, 12.1; proof 6.4.
    """

    kind: str = "sum"

    @property
    def holds_records(self) -> bool:
        return False

    def build(self, setting: BuildContext) -> NoisySum:
        return NoisySum.of(self.pure_loss(), setting.grid)


class Range(NamedTuple):
    """The public range of a feature in lattice steps, and where the feature's own zero lies among them.

    Attributes
    ----------
    lowest, highest : int
        Both included.
    zero : Fraction
        A record at lattice coordinate x adds x - zero steps to the sum.

    Privacy
    -------
    Public: a function of the configuration alone.

    Source
    ------
    Specification 5.11; proof 6.4.
    """

    lowest: int
    highest: int
    zero: Fraction

    @property
    def middle(self) -> int:
        return (self.lowest + self.highest) // 2

    @property
    def half_width(self) -> int:
        """How far a record lies from `middle` at most."""
        return self.highest - self.middle

    @property
    def largest(self) -> int:
        """How much a record adds at most, rounded up."""
        return math.ceil(max(self.highest - self.zero, self.zero - self.lowest))


class WindowSums(NamedTuple):
    """The number of records of a window and the sums of their lattice coordinates.

    Privacy
    -------
    NOT private: a mechanism adds noise to these numbers.

    Source
    ------
    Specification 5.11; ours.
    """

    size: int
    sums: list[int]


class SumCounter:
    """Adds up the lattice points of each pane, in exact integers; no record is kept.

    Privacy
    -------
    NOT private: a mechanism adds noise to these sums.

    Source
    ------
    Specification 2.3, 5.11; ours.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._held: dict[int, tuple[int, Totals]] = {}

    @property
    def panes(self) -> list[int]:
        """Panes that hold records, ascending."""
        return sorted(self._held)

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Add lattice points (m, d)."""
        size, sums = self._held.get(pane) or (0, Totals(self._dimension, MAX_COORDINATE))
        for first in range(0, len(points), _EXACT_ROWS):
            rows = points[first : first + _EXACT_ROWS]
            sums.make_room(len(rows))
            sums.part += np.einsum("ij->j", rows).astype(np.int64)  # several times faster than `sum(axis=0)`
        self._held[pane] = size + len(points), sums

    def drop(self, pane: int) -> None:
        """Drop a pane; does nothing if it is absent."""
        self._held.pop(pane, None)

    def view(self, panes: Iterable[int]) -> WindowSums:
        """Return the view of the window that these panes make up."""
        held = [self._held[pane] for pane in panes if pane in self._held]
        sums = [0] * self._dimension
        for _, totals in held:
            sums = [a + int(b) for a, b in zip(sums, totals.read().tolist(), strict=True)]
        return WindowSums(sum(size for size, _ in held), sums)


@dataclass(frozen=True)
class NoisySum(Mechanism):
    """The sum of every feature plus discrete Gaussian noise.

    Two ways are compared by public numbers, and the one with the smaller sum of variances is taken. ``weight = 0``:
    sums are released as they are. Otherwise the sums of offsets from the middle of the ranges are released together
    with `weight` times the number of records, from which the sums follow.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    ranges : tuple of Range
        One for each feature.
    weight : int
    shift : int
        Sums are rounded down to multiples of 2**shift lattice steps: 0, unless ranges are very wide for their step and
        for rho.

    Privacy
    -------
    Unit: one record. Relation: add or remove. Pure rho-zCDP. A record moves the released integers by a vector whose
    squared length is at most `sensitivity_squared`, because values outside the public ranges are rejected.

    Source
    ------
    Specification 5.11; proof 6.4; ours; noise: Canonne, Kamath, Steinke 2020, Theorem 14.
    """

    loss: PrivacyLoss
    ranges: tuple[Range, ...]
    weight: int
    shift: int = 0
    kind: str = "sum"

    @classmethod
    def of(cls, loss: PrivacyLoss, grid: Grid) -> NoisySum:
        """Choose the better way for these features."""
        return min((way._drawable() for way in cls.ways(loss, grid)), key=cls._total_variance)

    @classmethod
    def ways(cls, loss: PrivacyLoss, grid: Grid) -> list[NoisySum]:
        """List the ways that are worth comparing for these features."""
        step = exact(grid.lattice.step)
        ranges = []
        for column in Column.several(grid):
            feature = column.feature
            zero = -exact(feature.origin) / (exact(feature.scale) * step)
            ranges.append(Range(column.lowest, column.highest, zero))
        return [cls(loss, tuple(ranges), weight) for weight in _weights(ranges)]

    def coarser(self, shift: int) -> NoisySum:
        """Return the same way with sums that are multiples of 2**shift steps."""
        return replace(self, weight=self.weight and max(1, self.weight >> shift), shift=shift)

    def _drawable(self) -> NoisySum:
        made = (self.coarser(shift) for shift in itertools.count())
        return next(each for each in made if each.variance <= LARGEST_VARIANCE)

    @property
    def sensitivity_squared(self) -> int:
        """Squared length, at most, of what one record adds to the released integers."""
        unit = 1 << self.shift
        widths = (each.half_width if self.weight else each.largest for each in self.ranges)
        return sum((-(-width // unit)) ** 2 for width in widths) + self.weight**2

    @cached_property
    def variance(self) -> Fraction:
        return Fraction(self.sensitivity_squared * RHO_UNIT, 2 * self.loss.rho_nano)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return SumCounter(dimension)

    def release(self, view: WindowSums, charge: Charge, noise: Noise) -> Outcome:
        charge.use(self.loss)
        exact_sums = self.offsets(view)
        drawn = noise.discrete_gaussian(self.variance, len(exact_sums) + (self.weight > 0)).tolist()
        sums = [Fraction(((x >> self.shift) + z) << self.shift) for x, z in zip(exact_sums, drawn, strict=False)]
        size = Fraction(self.weight * view.size + drawn[-1], self.weight) if self.weight else None
        return self.outcome(sums, size, self.variance)

    def offsets(self, view: WindowSums) -> list[int]:
        """Return the exact sums of a window's offsets from the middles, or from the zeros where there is no weight."""
        origins = [each.middle if self.weight else int(each.zero) for each in self.ranges]
        return [total - at * view.size for total, at in zip(view.sums, origins, strict=True)]

    def outcome(self, sums: list[Fraction], size: Fraction | None, variance: Fraction | float) -> Outcome:
        """Return the outcome of noisy sums of offsets and, with a weight, a noisy number of records.

        `variance` is that of the noise in each released integer.
        """
        if size is not None:
            sums = [x + (each.middle - each.zero) * size for x, each in zip(sums, self.ranges, strict=True)]
        count = None if size is None else round(size)
        value, sigmas = np.array([float(x) for x in sums]), np.array(self.deviations(variance))
        half = lattice_half_width(sigmas, np.array([max(own, float(of_size)) for own, of_size in self._steps]))
        interval = np.stack([value - half, value + half], axis=1)
        return Outcome(value=value, sigma=sigmas, count=count, core_count=count, interval=interval)

    @property
    def _steps(self) -> list[tuple[int, Fraction]]:
        """What a draw of 1 moves each sum by: in its own integer, and in the number of records."""
        of_size = (abs(each.middle - each.zero) / self.weight if self.weight else Fraction(0) for each in self.ranges)
        return [(1 << self.shift, step) for step in of_size]

    def deviations(self, variance: Fraction | float) -> list[float]:
        """Return the deviation of each sum's noise, in lattice steps, if each released integer's has this variance."""
        return [math.sqrt(variance * (own**2 + of_size**2)) for own, of_size in self._steps]

    def _sigmas(self) -> list[float]:
        return self.deviations(self.variance)

    def _total_variance(self) -> float:
        return math.fsum(sigma * sigma for sigma in self._sigmas())

    def forecast(self, size: int) -> Forecast:
        return Forecast(1.0, math.sqrt(self._total_variance() / len(self.ranges)))

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        names, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        if outcome.value is None or outcome.sigma is None:
            return ReleaseValues(None, None, names, transforms)
        assert outcome.interval is not None
        value, sigma, low, high = map(grid.widths, (outcome.value, outcome.sigma, *outcome.interval.T))
        return ReleaseValues(value, sigma, names, transforms, interval=pairs_of(low, high))

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        exact = self.offsets(WindowSums(len(points), [sum(map(int, column)) for column in points.T.tolist()]))
        size = Fraction(len(points)) if self.weight else None
        outcome = self.outcome([Fraction(each) for each in exact], size, Fraction(0))
        return {"value": self.to_user_units(outcome, grid).value}

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        sigmas = grid.widths(np.array(self._sigmas()))
        return {f"sum of {feature.name}": sigma for feature, sigma in zip(grid.features, sigmas, strict=True)}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        line = "what is released are offsets from the middle of the ranges and the number of records; sums follow"
        warnings: tuple[str, ...] = ()
        if size is not None and size / 2 > min(self._sigmas()):
            warnings = (
                f"rounding to the lattice can move a sum of {size} records by up to {size / 2:g} steps, more than its "
                "noise: use a finer `lattice.step`, or one that divides the values",
            )
        return PlanNotes((line,) if self.weight else (), warnings)


def _weights(ranges: list[Range]) -> list[int]:
    """Return the weights worth comparing: 0 where zeros lie on the lattice, and the best one of several features.

    The best weight is the square root of R |c| / sqrt(d): R is the length of the half widths, and c the vector from the
    zeros to the middles.
    """
    wide = math.sqrt(sum(each.half_width**2 for each in ranges))
    far = math.sqrt(sum((each.middle - each.zero) ** 2 for each in ranges))
    best = max(1, round(math.sqrt(wide * far / math.sqrt(len(ranges)))))
    if any(each.zero.denominator != 1 for each in ranges):
        return [best]
    return [0] if len(ranges) == 1 else [0, best]
