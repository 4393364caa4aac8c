"""What records that a statistic moved or left out may change in it, by their noisy number and the public ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...stream.lattice import Grid
from ..intervals import TWO_SIDED

USELESS = 100.0
"""An interval so many times as wide as its number says nothing of it."""
NO_CORRELATION = 1.9
"""An interval of a correlation that is so wide says nothing."""
WIDE = "range_too_wide"
"""Why a number has no interval, see `fcstream.releases.reasons.NO_INTERVAL`."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Which share of a window's records a statistic moved or left out.

    Attributes
    ----------
    share : float
        By a noisy number, and at least 0.
    noise : float
        Its deviation.

    Privacy
    -------
    Made of released numbers.

    Source
    ------
    Specification 12.3; ours.
    """

    share: float
    noise: float

    @classmethod
    def of(cls, outside: float, variance: Fraction | float, size: float) -> Tail:
        """Return the share of a noisy number of records, whose noise has this variance, among about `size`."""
        whole = max(1.0, size)
        return cls(min(1.0, max(0.0, outside / whole)), math.sqrt(variance) / whole)

    @property
    def most(self) -> float:
        """The share that is not exceeded with a probability of 97.5%."""
        return min(1.0, self.share + TWO_SIDED * self.noise)

    def ends(self, value: Any, sigma: Any, least: Any, most: Any) -> NDArray[np.float64]:
        """Return intervals (..., 2) of numbers which a tail of all records would change by `least` <= 0 to `most`.

        The change is in proportion to the share, so its noise and that of the number add up as deviations do.
        """
        low = value + self.share * least - TWO_SIDED * np.hypot(sigma, self.noise * least)
        high = value + self.share * most + TWO_SIDED * np.hypot(sigma, self.noise * most)
        found: NDArray[np.float64] = np.stack((low, high), axis=-1)
        return found


def offsets_of_ranges(grid: Grid, center: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far the public ranges reach below and above a center (d,), at most 0 and at least 0; lattice steps.

    Privacy
    -------
    Computed from public and released numbers, so it costs nothing.

    Source
    ------
    Specification 12.3; ours.
    """
    return np.minimum(grid.lowest - center, 0.0), np.maximum(grid.highest - center, 0.0)


def useful(interval: NDArray[np.float64], most: Any, units: Any = 1.0) -> tuple[list[Any], bool]:
    """Return intervals (..., 2) in the user's units as nested lists, and whether any is null because it is useless.

    Parameters
    ----------
    interval : float64 (..., 2)
    most : float64 (...)
        How wide an interval is that says nothing; NaN for a number that is not told.
    units : float64 (...)
        What a unit is in those of the user.

    Privacy
    -------
    A function of released numbers.

    Source
    ------
    Specification 12.3; ours.
    """
    is_told = np.diff(interval, axis=-1)[..., 0] <= most
    told = (interval * np.asarray(units)[..., None]).tolist()
    return _without(told, ~is_told), bool((~is_told & ~np.isnan(most)).any())


def _without(told: list[Any], left_out: NDArray[np.bool_]) -> list[Any]:
    """Put null in the places of nested intervals that are marked."""
    if left_out.ndim == 1:
        return [None if wide else pair for pair, wide in zip(told, left_out.tolist(), strict=True)]
    return [_without(row, wide) for row, wide in zip(told, left_out, strict=True)]
