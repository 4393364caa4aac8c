"""Quantiles of one feature by the exponential mechanism on the public lattice range; no bound is taken from data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid, exact
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..core_stage import normal_above
from ..floors import gaussian_tail, min_gaussian
from ..options import BuildContext, Options
from .columns import Column, ColumnValues

MAX_QUANTILES = 100
COUNT_SHARE = 20
"""One part in this many of rho is spent on the number of records."""


class QuantilesOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "quantiles"``: the values below which given shares of records lie.

    Released
    --------
    value
        For each level the value below which that part of the records lies.
    parts.feature, parts.quantiles
        Name of the feature, and the levels.
    parts.rank_sigma
        For each level how many records its rank is off; there is no `sigma`.

    Cost
    ----
    rho, in equal parts for the levels; a window with too few records a small part of it.

    Privacy
    -------
    `Quantiles` states the guarantee.

    Source
    ------
    Specification 5.10, 12.1; proof 6.3.
    """

    kind: str = "quantiles"
    feature: str | None = None
    """Feature that the answer is about; may be left out if there is one only."""
    quantiles: list[float]
    """Levels, ascending, such as ``[0.1, 0.5, 0.9]``."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""

    needs_no_delta: ClassVar[bool] = True
    takes_learned_scales: ClassVar[bool] = True

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        return features if self.feature is None else (self.feature,)

    def build(self, setting: BuildContext) -> Quantiles:
        levels, key = [round(level, 12) for level in self.quantiles], "release.quantiles"  # 3 * 0.1 is 0.3
        if not 1 <= len(levels) <= MAX_QUANTILES:
            raise ConfigError(f"must hold 1 to {MAX_QUANTILES} numbers", key, got=len(levels))
        if not all(0 < level < 1 for level in levels) or any(exact(x).denominator > 10**6 for x in levels):
            raise ConfigError("must lie in (0, 1), with at most six decimals", key)
        if sorted(set(levels)) != levels:
            raise ConfigError("must ascend", key)
        loss, column = self.pure_loss(), Column.of(setting.grid, self.feature)
        if loss.rho_nano < 1000 * len(levels):
            raise ConfigError(f"must be at least {1e-6 * len(levels):g} for {len(levels)} quantiles", "release.rho")
        return Quantiles(loss, column, tuple(levels))


@dataclass(frozen=True)
class Quantiles(Mechanism):
    """Mechanism for quantiles: it draws a noisy number of records, then each quantile with an equal share of the rest.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    column : Column
    levels : tuple of float
        Levels of the quantiles, ascending.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0. The count has sensitivity 1. For each level q
    the exponential mechanism runs over all lattice values v of the public range, with cost max(0, q n - (n - above(v)),
    below(v) - q n): how many ranks v misses. One record moves the cost by at most max(q, 1 - q) either way, so with the
    exponent eps / (2 max(q, 1 - q)) the draw has eps-bounded range and costs eps**2 / 8. It is drawn exactly. Sorting
    the values afterwards is post-processing. A noisy count below `min_count` gives ``too_few``, and the shares of the
    values are refunded.

    Source
    ------
    Specification 5.10; proof 6.3; exponential mechanism for quantiles (Smith 2011); zCDP of bounded range: Cesar and
    Rogers 2021. Chosen by measured error (``bench/quantiles.py``): its ranks are nearer than those of noisy trees over
    the same range, with branching 2 to 16 and made consistent, by factors of 3 and more for one quantile, 2 to 10 for
    three, and 1.3 to 2.4 for nine: a tree pays for the logarithm of the range on every level. Recursion on halves
    (Kaplan, Schnapp, Stemmer 2022) was no better at three, and goes astray where many records share one value.
    """

    loss: PrivacyLoss
    column: Column
    levels: tuple[float, ...]
    kind: str = "quantiles"

    @cached_property
    def shares(self) -> tuple[PrivacyLoss, list[PrivacyLoss]]:
        """Loss of the count, and the loss of each level."""
        count = PrivacyLoss(self.loss.rho_nano // COUNT_SHARE)
        return count, (PrivacyLoss(self.loss.rho_nano) - count).split(len(self.levels))

    @cached_property
    def variance(self) -> Fraction:
        """Variance of the count's noise."""
        return Fraction(RHO_UNIT, 2 * self.shares[0].rho_nano)

    @cached_property
    def rates(self) -> list[Fraction]:
        """Rate of each level: by how much the logarithm of the odds falls per unit of the costs of `missing_ranks`."""
        return [
            exponential_rate([2 * largest_move(exact(q))], share)
            for q, share in zip(self.levels, self.shares[1], strict=True)
        ]

    def _falls(self) -> list[float]:
        """Return how much the logarithm of the odds falls for each record by which a value is off."""
        return [float(rate) * exact(level).denominator for rate, level in zip(self.rates, self.levels, strict=True)]

    @cached_property
    def min_count(self) -> int:
        """Least count: values are released from this noisy count on.

        A value does not show whether there are data near it. From this count on, every quantile is near the data with a
        probability of at least one half, even if the data are as close together as possible; data that are spread more
        widely are found more often.
        """
        span = self.column.highest - self.column.lowest + 1
        needed = [math.log(span) / (f * min(q, 1 - q)) for f, q in zip(self._falls(), self.levels, strict=True)]
        return max(min_gaussian(self.variance), math.ceil(max(needed)))

    @property
    def false_release(self) -> float:
        return gaussian_tail(self.variance, self.min_count)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return ColumnValues(self.column.index)

    def release(self, view: NDArray[np.int64], charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        first, shares = self.shares
        charge.start(first)
        count = len(view) + noise.one_gaussian(self.variance)
        if count < self.min_count:
            return Outcome("too_few", count=count)
        lowest, highest = self.column.lowest, self.column.highest
        inside = np.clip(view, lowest, highest)  # whatever admitted them: one beyond would be a candidate by itself
        starts, sizes, below, above = intervals(inside, lowest, highest)
        found = []
        for level, share, rate in zip(self.levels, shares, self.rates, strict=True):
            charge.start(share)
            chosen = noise.exponential_choice(sizes, missing_ranks(below, above, len(view), exact(level)), rate)
            found.append(int(starts[chosen]) + noise.uniform_below(int(sizes[chosen])))
        return Outcome(value=np.array(sorted(found), np.float64), count=count, core_count=count)

    def forecast(self, size: int) -> Forecast:
        """Forecast a window whose data are as close together as possible, on adjacent lattice values.

        The sigma is one of ranks, in records.
        """
        spread, span = math.sqrt(self.variance), self.column.highest - self.column.lowest + 1
        chance = normal_above((self.min_count - 0.5 - size) / spread)
        for fall, level in zip(self._falls(), self.levels, strict=True):
            odds = math.exp(min(700.0, math.log(span) - fall * min(level, 1 - level) * size))
            chance *= 1 / (1 + odds)
        return Forecast(chance, max(self.rank_sigmas))

    @cached_property
    def rank_sigmas(self) -> list[float]:
        """Return the standard deviation of each value's rank, in records, if nearby records are evenly spaced."""
        return [math.sqrt(2) / fall for fall in self._falls()]

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        feature = self.column.feature
        parts = {"feature": feature.name, "quantiles": list(self.levels), "rank_sigma": self.rank_sigmas}
        value = None
        if outcome.value is not None:
            value = grid.column(feature, outcome.value).tolist()
        names, transforms = [feature.name] * len(self.levels), [feature.transform] * len(self.levels)
        return ReleaseValues(value, None, names, transforms, parts)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        """Return the least values that at least such shares of the records do not exceed, and all values in order."""
        if not len(points):
            return None
        ordered = grid.column(self.column.feature, np.sort(points[:, self.column.index])).tolist()
        at = [max(0, -int(-Fraction(str(level)) * len(ordered) // 1) - 1) for level in self.levels]
        return {"value": [ordered[i] for i in at], "ordered": ordered}

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        named = zip(self.levels, self.rank_sigmas, strict=True)
        return {f"level {level:g}": sigma / max(size, 1) for level, sigma in named}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        warnings: tuple[str, ...] = ()
        if size is not None and max(self.rank_sigmas) > size / 10:
            warnings = ("ranks are off by more than a tenth of the records: raise `release.rho`",)
        lines = (
            f"{len(self.levels)} quantiles of {self.column.feature.name!r}; their levels are off by what stands above",
        )
        return PlanNotes(lines, warnings, stopped=self.shares[0], case=" with values as close together as can be")


def intervals(
    values: NDArray[np.int64], lowest: int, highest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut the public range into intervals of values with the same rank.

    Returns, for each interval, its first value, its number of values, and the numbers of records strictly below and
    strictly above it.

    Parameters
    ----------
    values : int64 (n,)
        Ascending, in [lowest, highest].
    lowest, highest : int

    Privacy
    -------
    Not private: `Noise.exponential_choice` draws from these intervals.

    Source
    ------
    Specification 5.10; proof 6.3; Smith 2011.
    """
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], np.ones(len(values[:1]), np.bool_))) + 1
    distinct, passed = values[ends - 1], np.concatenate([[0], ends])
    edges = np.concatenate([[lowest - 1], distinct, [highest + 1]])
    starts = np.empty(2 * len(distinct) + 1, np.int64)
    sizes, below = np.ones_like(starts), np.empty_like(starts)
    above = np.empty_like(starts)
    starts[0::2], starts[1::2] = edges[:-1] + 1, distinct
    sizes[0::2] = np.diff(edges) - 1
    below[0::2], below[1::2] = passed, passed[:-1]
    above[0::2], above[1::2] = len(values) - passed, len(values) - passed[1:]
    return starts, sizes, below, above


def exponential_rate(reaches: Sequence[int], share: PrivacyLoss) -> Fraction:
    """Return the rate of exponential mechanisms, in integer costs, all of which together a share of rho pays for.

    `reaches` are, for each draw, the lengths of the intervals in which all changes lie that one record makes to its
    costs: 2 * `largest_move` for a quantile.

    Privacy
    -------
    A draw with the rate r has (r * reach)-bounded range, which costs (r * reach)**2 / 8; the sum is at most rho.

    Source
    ------
    Specification 5.10; proofs 1.7, 6.3; Cesar and Rogers 2021.
    """
    squares = sum(reach * reach for reach in reaches)
    return Fraction(math.isqrt(8 * share.rho_nano * RHO_UNIT * squares), RHO_UNIT * squares)


def largest_move(level: Fraction) -> int:
    """Return by how much one record moves a cost of `missing_ranks` at most, either way.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.10; proof 6.3.
    """
    return max(level.numerator, level.denominator - level.numerator)


def missing_ranks(below: NDArray[np.int64], above: NDArray[np.int64], size: int, level: Fraction) -> NDArray[np.int64]:
    """Return how many ranks values miss a quantile by, times the level's denominator; 0 for a value that has the rank.

    `below` and `above` are the numbers of the `size` records strictly below and above each value. A value that many
    records share has all their ranks.

    Privacy
    -------
    One record more below, above or at a value moves its cost by at most max(numerator, denominator - numerator).

    Source
    ------
    Specification 5.10; proof 6.3; ours, after Smith 2011.
    """
    a, b = level.numerator, level.denominator
    found: NDArray[np.int64] = np.maximum(0, np.maximum(a * size - b * (size - above), b * below - a * size))
    return found
