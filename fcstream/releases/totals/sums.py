"""What a running total adds up: counts, sums of features, or histograms, as integers and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...stream.lattice import Grid
from ..base import Mechanism, Outcome
from ..intervals import lattice_half_width
from ..statistics.count import NoisyCount, WindowSize
from ..statistics.histogram import Histogram
from ..statistics.sum import LARGEST_VARIANCE, NoisySum, WindowSums


class Sums(Protocol):
    """What is added up, as a vector of integers for each window. Public, immutable and hashable.

    Privacy
    -------
    One record moves the integers of its window by a vector whose squared length is at most `sensitivity_squared`.

    Source
    ------
    Specification 5.13; proof 6.5.
    """

    @property
    def inner(self) -> Mechanism:
        """The kind whose values are added up; names and units are its."""

    @property
    def size(self) -> int:
        """Number of integers."""

    @property
    def sensitivity_squared(self) -> int:
        """Squared length, at most, of what one record adds to the integers of its window."""

    def integers(self, view: Any) -> list[int]:
        """Return the exact integers of a window; private."""

    def outcome(self, noisy: Sequence[Fraction], sigma: float) -> Outcome:
        """Convert noisy integers, each with this deviation, to values in lattice steps."""


@dataclass(frozen=True)
class Counts:
    """The number of records.

    Privacy
    -------
    One record moves the integers of its window by 1 in one place.

    Source
    ------
    Specification 5.13; proof 6.5.
    """

    inner: NoisyCount
    size: int = 1
    sensitivity_squared: int = 1

    def integers(self, view: WindowSize) -> list[int]:
        return [view.size]

    def outcome(self, noisy: Sequence[Fraction], sigma: float) -> Outcome:
        return _counted(noisy, sigma)


@dataclass(frozen=True)
class BinSums:
    """The number of records in each bin of a histogram.

    Privacy
    -------
    One record moves the integers of its window by 1 in one place.

    Source
    ------
    Specification 5.13; proof 6.5.
    """

    inner: Histogram
    sensitivity_squared: int = 1

    @property
    def size(self) -> int:
        return self.inner.bins

    def integers(self, view: NDArray[np.int64]) -> list[int]:
        found: list[int] = view.tolist()
        return found

    def outcome(self, noisy: Sequence[Fraction], sigma: float) -> Outcome:
        return _counted(noisy, sigma)


@dataclass(frozen=True)
class FeatureSums:
    """The sum of every feature, rounded to multiples of 2**shift lattice steps at each window's end.

    Rounding is to the nearest multiple, so that over many windows it adds up to nothing.

    Privacy
    -------
    One record moves a sum that is rounded to multiples of m by at most its own largest value divided by m, rounded up.

    Source
    ------
    Specification 5.13; proof 6.5; as `NoisySum`.
    """

    inner: NoisySum

    @classmethod
    def of(cls, loss: PrivacyLoss, grid: Grid, variance: Callable[[int], Fraction]) -> FeatureSums:
        """Choose way and shift; `variance` tells that of the noise at a squared sensitivity."""
        drawable = [cls._drawable(way, variance) for way in NoisySum.ways(loss, grid)]
        return min(drawable, key=lambda each: each._total_variance(variance(each.sensitivity_squared)))

    @classmethod
    def _drawable(cls, way: NoisySum, variance: Callable[[int], Fraction]) -> FeatureSums:
        made = (cls(way.coarser(shift)) for shift in itertools.count())
        return next(each for each in made if variance(each.sensitivity_squared) <= LARGEST_VARIANCE)

    @property
    def size(self) -> int:
        return len(self.inner.ranges) + (self.inner.weight > 0)

    @property
    def sensitivity_squared(self) -> int:
        return self.inner.sensitivity_squared

    def integers(self, view: WindowSums) -> list[int]:
        inner = self.inner
        half = (1 << inner.shift) // 2
        sums = [(x + half) >> inner.shift for x in inner.offsets(view)]
        return [*sums, inner.weight * view.size] if inner.weight else sums

    def outcome(self, noisy: Sequence[Fraction], sigma: float) -> Outcome:
        sums = [x * (1 << self.inner.shift) for x in noisy[: len(self.inner.ranges)]]
        if not self.inner.weight:
            return self.inner.outcome(sums, None, sigma * sigma)
        return self.inner.outcome(sums, noisy[-1] / self.inner.weight, sigma * sigma)

    def _total_variance(self, variance: Fraction) -> float:
        return math.fsum(sigma * sigma for sigma in self.inner.deviations(variance))


def _counted(noisy: Sequence[Fraction], sigma: float) -> Outcome:
    count = round(sum(noisy, Fraction(0)))
    value, half = np.array([float(x) for x in noisy]), lattice_half_width(sigma)
    interval = np.stack([value - half, value + half], axis=1)
    return Outcome(value=value, sigma=np.full(len(noisy), sigma), count=count, core_count=count, interval=interval)
