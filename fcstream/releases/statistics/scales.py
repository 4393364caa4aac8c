"""Median and spread of every feature, learned from a window's records by private quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...noise.samplers import FAR, Noise
from .columns import Column
from .quantiles import exponential_rate, intervals, largest_move, missing_ranks

UNITS = 2**10
"""A learned scale is this many units, to which offsets are rounded."""
FINEST = 2**30
"""A learned scale is at least this part of the feature's public range."""
SAMPLE = 4096
"""Records from which medians and spreads are taken, at least."""
_MIDDLE = Fraction(1, 2)
_AT_ONCE = 2**10  # records of which coordinates are copied


def min_records(span: float, level: Fraction, rate: Fraction) -> int:
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


@dataclass(frozen=True)
class MedianLearner:
    """Learns the median of every feature.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; every feature gets an equal share of it.
    columns : tuple of Column

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0. Each median is one draw of the exponential
    mechanism with the costs of `missing_ranks`. Given a sample whose coins depend on released numbers alone, one record
    changes it by one record, so a sample costs the same (no amplification is claimed).

    Source
    ------
    Specification 5.15; proof 5.9; ours, on the exponential mechanism for quantiles (Smith 2011).
    """

    loss: PrivacyLoss
    columns: tuple[Column, ...]

    @cached_property
    def rates(self) -> list[Fraction]:
        """Rates of the draws, by feature."""
        return _rates(self.loss, len(self.columns), [2 * largest_move(_MIDDLE)])

    @cached_property
    def needed(self) -> int:
        """Number of records with which every median is near the data (see `min_records`)."""
        spans = [column.highest - column.lowest + 1 for column in self.columns]
        return max(min_records(span, _MIDDLE, rate) for span, rate in {*zip(spans, self.rates, strict=True)})

    def learn_sorted(self, values: NDArray[Any], noise: Noise) -> list[int]:
        """Learn lattice coordinates from what `ascending` returned."""
        found = []
        for own, column, rate in zip(values, self.columns, self.rates, strict=True):
            start, length = drawn_quantile(own, column.highest - column.lowest + 1, _MIDDLE, rate, noise)
            found.append(column.lowest + start + noise.uniform_below(length))
        return found


@dataclass(frozen=True)
class SpreadLearner:
    """Learns within what distance of its median a part of the records lies, for every feature.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; every feature gets an equal share of it.
    columns : tuple of Column
    level : Fraction
        That part of the records.
    rungs : int
        How many distances there are for each factor of two.
    has_sides : bool
        Whether each side has a distance of its own, within which that part lies or on the other side; what is learned
        is their sum.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, given the medians. Each distance is one draw of
    the exponential mechanism with the costs of `missing_ranks`, over a public ladder. Where each side has a distance, a
    record lies on one of them; in the draw of the other it is within every rung, and moves costs by at most 1 - level.

    Source
    ------
    Specification 5.15; proof 5.9; ours, on the exponential mechanism for quantiles (Smith 2011).
    """

    loss: PrivacyLoss
    columns: tuple[Column, ...]
    level: Fraction
    rungs: int
    has_sides: bool = False

    @cached_property
    def rates(self) -> list[Fraction]:
        """Rates of the draws, by feature."""
        own, other = 2 * largest_move(self.level), 2 * (self.level.denominator - self.level.numerator)
        return _rates(self.loss, len(self.columns), [own, other] if self.has_sides else [own])

    @cached_property
    def needed(self) -> int:
        """Number of records with which every distance is near the data (see `min_records`)."""
        most = max(len(spread_rungs(column, self.rungs)) for column in self.columns)
        return min_records(most, self.level, min(self.rates))

    def learn_sorted(self, values: NDArray[Any], middles: list[int], noise: Noise) -> list[int]:
        """Learn distances, in lattice steps, about middles, from what `ascending` returned."""
        found = []
        for own, column, middle, rate in zip(values, self.columns, middles, self.rates, strict=True):
            ladder, place = spread_rungs(column, self.rungs), middle - column.lowest
            ends = np.clip([place - ladder, place + ladder], 0, column.highest - column.lowest).astype(own.dtype)
            low, high = np.searchsorted(own, ends[0]), np.searchsorted(own, ends[1], side="right")
            # Of each rung, how many records lie within it: of the last one all do.
            within = (len(own) - low, high) if self.has_sides else (high - low,)
            chosen = [self._draw(counts, len(own), rate, noise) for counts in within]
            found.append(sum(int(ladder[rung]) for rung in chosen))
        return found

    def _draw(self, within: NDArray[np.int64], size: int, rate: Fraction, noise: Noise) -> int:
        costs = missing_ranks(np.append(0, within[:-1]), size - within, size, self.level)
        return noise.exponential_choice(np.ones(len(within), np.int64), costs, rate)


def _rates(loss: PrivacyLoss, features: int, reaches: list[int]) -> list[Fraction]:
    """Return the rates of features with equal shares: few differ, so that little is computed of them."""
    shares = [share.rho_nano for share in PrivacyLoss(loss.rho_nano).split(features)]
    made = {share: exponential_rate(reaches, PrivacyLoss(share)) for share in {*shares}}
    return [made[share] for share in shares]


def spread_rungs(column: Column, rungs: int) -> NDArray[np.int64]:
    """Return the distances, ascending, that a spread may be: whole lattice steps, up to the range of the feature.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.15; ours.
    """
    return _ladder(column.highest - column.lowest, rungs)


@lru_cache(maxsize=256)
def _ladder(span: int, rungs: int) -> NDArray[np.int64]:
    first, last = max(1, -(-span // FINEST)), max(1, span)
    steps = math.ceil(rungs * math.log2(last / first)) + 1
    return np.array(sorted({min(last, math.ceil(first * 2 ** (k / rungs))) for k in range(steps)}), np.int64)


def drawn_quantile(values: NDArray[Any], span: int, level: Fraction, rate: Fraction, noise: Noise) -> tuple[int, int]:
    """Draw equal candidates of a quantile of ascending values (n,) in [0, span): the first, and how many there are.

    Privacy
    -------
    One draw of the exponential mechanism, with the costs of `missing_ranks` and that rate.

    Source
    ------
    Specification 5.15; proof 5.9; ours, after Smith 2011.
    """
    from ..._kernels import quantiles

    most, rank = math.ceil((FAR + math.log(span)) / float(rate)) + 1, (level.numerator, level.denominator)
    most, beyond = min(most, 2**62), math.exp(-FAR)

    def quick(drawn: int, bits: int) -> tuple[int, int] | None:
        start, length = quantiles.near_quantile(values, span, *rank, float(rate), most, beyond, drawn / (1 << bits))
        return None if length < 0 else (start, length)

    starts = lengths = np.empty(0, np.int64)

    def everything() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        nonlocal starts, lengths
        starts, lengths, below, above = intervals(values.astype(np.int64), 0, span - 1)
        return lengths, missing_ranks(below, above, len(values), level)

    return noise.exponential_answer(quick, everything, lambda index: (int(starts[index]), int(lengths[index])), rate)


def ascending(
    chosen: NDArray[np.int64], points_at: Callable[[NDArray[np.int64]], NDArray[np.float64]], columns: Sequence[Column]
) -> NDArray[Any]:
    """Sort the coordinates (d, n) of chosen points (n,), moved into their ranges, as numbers above the lowest ones.

    Privacy
    -------
    NOT private: what a mechanism reads.

    Source
    ------
    Specification 5.15; ours.
    """
    from ..._kernels import quantiles

    ends = np.array([(column.lowest, column.highest) for column in columns], np.float64).T.copy()
    span = max(column.highest - column.lowest for column in columns)
    kind = np.uint16 if span < 2**16 else np.int32 if span < 2**31 else np.int64
    found = np.empty((len(columns), len(chosen)), kind)
    for first in range(0, len(chosen), _AT_ONCE):
        quantiles.columns_within(points_at(chosen[first : first + _AT_ONCE]), *ends, found, first)
    found.sort(axis=1, kind="stable" if kind is np.uint16 else None)  # few digits are sorted one by one
    return found


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
