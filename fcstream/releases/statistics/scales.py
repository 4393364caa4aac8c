"""Middle and scale of every feature, learned from a window's records by private quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...noise.samplers import Noise
from .columns import Column
from .quantiles import intervals

UNITS = 2**10
"""A learned scale is this many units, to which offsets are rounded."""
FINEST = 2**30
"""A learned scale is at least this part of the feature's public range."""
_SAMPLE = 4096  # records from which the quantiles are taken, at least
RUNGS = 4
"""Steps of the ladder of scales, for each factor of two."""


def exponential_rate(level: Fraction, share: PrivacyLoss) -> Fraction:
    """Return the rate of the exponential mechanism for one quantile, in integer costs, that a share of rho pays for.

    Privacy
    -------
    One record moves the costs by at most max(a, b - a) either way, where level = a / b; so a draw with this rate has
    eps-bounded range with eps**2 / 8 <= rho.

    Source
    ------
    Specification 5.10; proof 6.3; Cesar and Rogers 2021.
    """
    epsilon = Fraction(math.isqrt(8 * share.rho_nano * RHO_UNIT), RHO_UNIT)
    return epsilon / (2 * max(level.numerator, level.denominator - level.numerator))


def missing_ranks(below: NDArray[np.int64], above: NDArray[np.int64], size: int, level: Fraction) -> NDArray[np.int64]:
    """Return how many ranks values miss a quantile by, times the level's denominator; 0 for a value that has the rank.

    `below` and `above` are the numbers of the `size` records strictly below and above each value. Unlike the costs of
    `Quantiles` these do not grow with the number of records that have the value itself, as many have one radius.

    Privacy
    -------
    One record more below, above or at a value moves its cost by at most max(numerator, denominator - numerator).

    Source
    ------
    Specification 5.15; proof 5.9; ours, after Smith 2011.
    """
    a, b = level.numerator, level.denominator
    found: NDArray[np.int64] = np.maximum(0, np.maximum(a * size - b * (size - above), b * below - a * size))
    return found


def least_records(span: float, level: Fraction, rate: Fraction) -> int:
    """Return with how many records a quantile is near the data with a chance of one half, however close these lie.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.10; proof 6.3.
    """
    each = float(rate) * level.denominator * min(level, 1 - level)
    return math.ceil(math.log(max(span, 2)) / each) if each > 0 else 2**62


@dataclass(frozen=True, slots=True)
class FeatureScales:
    """Where the records of a window lie, feature by feature; released, so everything computed from it is free.

    Attributes
    ----------
    middles : list of int
        Lattice coordinates: between the two quantiles, or the median.
    sizes : list of int or None
        2**-10 of them are one lattice step; a unit is sizes / 2**20 steps. None for units of one step.

    Privacy
    -------
    Made of private quantiles (see `ScaleLearner`).

    Source
    ------
    Specification 5.15; proof 5.9; ours.
    """

    middles: list[int]
    sizes: list[int] | None

    @property
    def factors(self) -> NDArray[np.float64]:
        """Units of one lattice step (d,): doubles, which are functions of released numbers."""
        if self.sizes is None:
            return np.ones(len(self.middles))
        return float(UNITS**2) / np.array(self.sizes, np.float64)


@dataclass(frozen=True)
class ScaleLearner:
    """Learns the middle of every feature, and its scale as the difference of two quantiles.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; every quantile gets an equal share of it.
    columns : tuple of Column
    level : Fraction
        The lower quantile, below one half: the upper one is 1 - level. One half learns medians alone.
    rungs : int
        How many scales there are for each factor of two.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0. Each quantile is one draw of the exponential
    mechanism with the costs of `missing_ranks`. From many records it is taken of a sample: every record is in it by its
    own coin, whose probability depends on released numbers alone. Given the coins one record changes the sample by one
    record, so the cost is the same (no amplification is claimed).

    Source
    ------
    Specification 5.15; proof 5.9; ours, on the exponential mechanism for quantiles (Smith 2011).
    """

    loss: PrivacyLoss
    columns: tuple[Column, ...]
    level: Fraction
    rungs: int = RUNGS

    @cached_property
    def levels(self) -> tuple[Fraction, ...]:
        """Levels of the quantiles of each feature."""
        return (self.level,) if 2 * self.level == 1 else (self.level, 1 - self.level)

    @cached_property
    def rates(self) -> list[list[Fraction]]:
        """Rates of the draws, by feature and level."""
        shares = iter(PrivacyLoss(self.loss.rho_nano).split(len(self.columns) * len(self.levels)))
        return [[exponential_rate(level, next(shares)) for level in self.levels] for _ in self.columns]

    @cached_property
    def needed(self) -> int:
        """Number of records with which every quantile is near the data (see `least_records`)."""
        return max(
            least_records(column.highest - column.lowest + 1, level, rate)
            for column, rates in zip(self.columns, self.rates, strict=True)
            for level, rate in zip(self.levels, rates, strict=True)
        )

    def learn(self, rows: NDArray[np.float64], size: int, noise: Noise) -> FeatureScales:
        """Learn from lattice points (n, d), of which there are about `size`, a released number."""
        wanted = max(_SAMPLE, 4 * self.needed)
        if size > 2 * wanted:
            rows = rows[sampled_rows(len(rows), Fraction(wanted, size), noise)]
        by_feature = np.ascontiguousarray(rows.T)
        middles, sizes = [], []
        for k, column in enumerate(self.columns):
            values = _ascending(np.clip(by_feature[k], column.lowest, column.highest), column)
            low, high = self._quantiles(values, column, self.rates[k], noise)
            middles.append((low + high) // 2)
            least = max(1, -(-(column.highest - column.lowest) // FINEST))
            sizes.append(next_size(max(high - low, least), self.rungs))
        return FeatureScales(middles, sizes if len(self.levels) == 2 else None)

    def _quantiles(
        self, values: NDArray[np.int64], column: Column, rates: Sequence[Fraction], noise: Noise
    ) -> tuple[int, int]:
        starts, lengths, below, above = intervals(values, column.lowest, column.highest)
        found = []
        for level, rate in zip(self.levels, rates, strict=True):
            chosen = noise.exponential_choice(lengths, missing_ranks(below, above, len(values), level), rate)
            found.append(int(starts[chosen]) + noise.uniform_below(int(lengths[chosen])))
        return min(found), max(found)


def _ascending(values: NDArray[np.float64], column: Column) -> NDArray[np.int64]:
    """Sort lattice values within a column's range (n,); those of a narrow range by their digits, which is faster."""
    if column.highest - column.lowest >= 2**16:
        return np.sort(values).astype(np.int64)
    return np.sort((values - column.lowest).astype(np.uint16), kind="stable").astype(np.int64) + column.lowest


def next_size(difference: int, rungs: int = RUNGS) -> int:
    """Return the least rung round(2**10 2**(j/rungs)) that is at least 2**10 times a positive difference.

    Privacy
    -------
    A function of a released number.

    Source
    ------
    Specification 5.15; ours.
    """
    wanted = UNITS * difference
    rung = max(0, math.floor(rungs * math.log2(difference)) - 1)
    while round(UNITS * 2 ** (rung / rungs)) < wanted:
        rung += 1
    return round(UNITS * 2 ** (rung / rungs))


def sampled_rows(size: int, rate: Fraction, noise: Noise) -> NDArray[np.int64]:
    """Choose each of `size` rows by an independent coin of probability `rate`; returns their numbers, ascending.

    Privacy
    -------
    The coins do not depend on data; `rate` is public or released.

    Source
    ------
    Specification 5.15; ours; numbers of failures between successes.
    """
    found, at = [np.empty(0, np.int64)], -1
    while at < size:
        skips = np.minimum(noise.failures(rate, math.ceil(float(rate) * size * 1.1) + 16), size)
        found.append(at + np.cumsum(skips + 1))
        at = int(found[-1][-1])
    rows = np.concatenate(found)
    return rows[rows < size]
