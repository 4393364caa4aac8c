"""Averages of tuples that agree: find a radius, find a core, put its tuples in a common order, and average them.

`TupleAverage` is the default, with one core under the fused predicate. `OrderedAverage` and `TwoCores` follow the
paper's algorithms step by step, with correct accounting; they need far more tuples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...cores.replacement import ReplacedFilter, ReplacedSizeFilter
from ...errors import ConfigError, Shown
from ...noise.samplers import Noise
from ...predicates import MatchTuples, MatchWithin, OrderedTuples, PredicateCounts
from ...predicates.base import Predicate
from ...stream.lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED
from ...stream.totals import column_totals
from ..averages import Estimate, FriendlyAverage, Start
from ..core_stage import normal_above
from ..diameter_search import DiameterCheck, DiameterSearch

GAMMA = Fraction(1, 5)
"""Of the fused predicate: see `TupleAverage`."""
PAPER_GAMMA = Fraction(1, 7)
RADIUS_RATIO = 1.25
SEARCH_RATIO = 1.5
SEARCH_BETA = 0.02
MAX_NOISE = 0.4
"""Of the average, per coordinate, in radii: a core that is too small for it is refused by its noisy size."""
TOLERANCE = Fraction(9, 50)
"""Share of the pairs of tuples that may not match, apart from noise, or a window is refused before its core is paid."""
_TWO_DEVIATIONS = math.exp(-2)  # the chance of a check whose bar is then two deviations of its noise


def radius_grid(smallest: float, largest: float, ratio: float) -> tuple[int, ...]:
    """Return squared radii in lattice steps: the smallest, then each radius `ratio` times the one before, until one
    passes the largest.

    Privacy
    -------
    Computed from public numbers alone.

    Source
    ------
    Specification 6.4, 6.5; Tsfadia et al. 2022, FindDiam.
    """
    if not 1 <= smallest <= largest:
        raise ConfigError(
            f"must be at least one lattice step and at most {largest:g}", "radius_min", got=Shown(f"{smallest:g}")
        )
    count = math.ceil(math.log(largest / smallest) / math.log(ratio) - 1e-9) + 1
    squares = (math.floor(min((smallest * ratio**b) ** 2, MAX_RADIUS_SQUARED)) for b in range(count))
    return tuple(sorted(set(squares)))


def friend_counts(predicate: Predicate, tuples: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count the friends of each of the tuples (t, k, d) exactly, itself included. NOT private.

    Privacy
    -------
    NOT private: the counts are only for cores and diameters.

    Source
    ------
    Specification 6.1.
    """
    counter = PredicateCounts(predicate)
    counter.add(0, tuples)
    return counter.counts([0])


def reorder(tuples: NDArray[np.float64], noise: Noise) -> NDArray[np.float64]:
    """Number all tuples like the first one, then apply one random permutation to all of them: FriendlyReorder.

    Parameters
    ----------
    tuples : float64 (m, k, d)
        Tuples of a core under `MatchTuples` or `MatchWithin` with gamma <= 1/5.

    Privacy
    -------
    Costs nothing on a core, whether one tuple is replaced, added or removed: with gamma <= 1/5 all numberings agree
    (see `TupleAverage`), so neighbors' outputs differ by one fixed permutation, which the random one hides.

    Source
    ------
    Specification 6.3; proof 7.2; Tsfadia et al. 2022, FriendlyReorder.
    """
    from ..._kernels import clusters

    if len(tuples) == 0:
        return tuples
    k, numbered = tuples.shape[1], np.empty_like(tuples)
    clusters.number(tuples[0], tuples, numbered)
    order = list(range(k))
    for j in range(k - 1, 0, -1):
        other = noise.uniform_below(j + 1)
        order[j], order[other] = order[other], order[j]
    return np.ascontiguousarray(numbered[:, order])


def _friendly_pairs(predicate: Predicate, tuples: NDArray[np.float64]) -> int:
    return int(friend_counts(predicate, tuples).sum())


@dataclass(frozen=True)
class MatchCheck:
    """Check whether nearly all pairs of tuples match, made before the core or the test of them is paid for.

    Parameters
    ----------
    rho_nano : int
    tuples : int
        Number t of tuples, public.
    tolerance : Fraction
        In [0, 1/2]: share of the ordered pairs of different tuples that may not match, apart from the noise.

    Privacy
    -------
    Protects one of t tuples that is REPLACED by another, with rho-zCDP: that tuple is in 2 (t - 1) ordered pairs, so
    their number over t, the statistic of `DiameterCheck`, moves by less than 2. The relation need not be symmetric.
    Whether the check passed is released.

    Source
    ------
    Specification 6.19; proofs 5.6, 7.11; ours, on CheckDiam of Tsfadia et al. 2022.
    """

    rho_nano: int
    tuples: int
    tolerance: Fraction = TOLERANCE

    def __post_init__(self) -> None:
        _ = self._check  # refuses what cannot be checked

    @cached_property
    def _check(self) -> DiameterCheck:
        # A tuple matches itself, so that of all t * t pairs a little less may fail than of those of different tuples.
        return DiameterCheck(self.rho_nano, _TWO_DEVIATIONS, self.tolerance * Fraction(self.tuples - 1, self.tuples))

    @property
    def loss(self) -> PrivacyLoss:
        return PrivacyLoss(self.rho_nano)

    @property
    def sigma(self) -> float:
        """Noise deviation of the share of pairs that do not match."""
        return self._check.sigma / (self.tuples - 1)

    def passes(self, pairs: int, noise: Noise, start: Start) -> bool:
        """Draw the answer for so many ordered pairs that match, a tuple and itself included.

        `start` is called for the one stage.
        """
        start(self.loss)
        return self._check.passes(int(pairs), self.tuples, noise)

    def forecast(self, outlier_tuples: float) -> float:
        """Forecast the probability of passing if a share `outlier_tuples` of the tuples match nothing."""
        good = (1 - outlier_tuples) * self.tuples
        differ = 1 - good * max(0.0, good - 1) / (self.tuples * (self.tuples - 1))
        return normal_above((differ - float(self.tolerance)) / self.sigma - 2)


def noisy_mode(tuples: NDArray[np.float64], radii_squared: tuple[int, ...], rho_nano: int, noise: Noise) -> int | None:
    """Find, by noisy counts, the b >= 1 for which most tuples have a separation from entry b - 1 to below entry b.

    The result is None if that bin holds too few tuples.

    Parameters
    ----------
    tuples : float64 (t, k, d)
        Tuples; the separation of a tuple is the smallest distance between two of its points.
    radii_squared : tuple of int
        Squared distances, ascending; b = len(radii_squared) stands for separations above the last one.
    rho_nano : int
    noise : Noise

    Privacy
    -------
    Protects one tuple that is REPLACED by another, which moves two bins by 1, so noise N(0, 1/rho) in each bin gives
    rho-zCDP. A mode that holds less than a quarter of t by that noisy count is not used.

    Source
    ------
    Specification 6.4; proof 7.3; ours.
    """
    from ..._kernels import clusters

    separations = np.empty(len(tuples))
    clusters.separations(tuples, separations)
    found = np.searchsorted(np.array(radii_squared, np.float64), separations, side="right")
    bins = np.bincount(found, minlength=len(radii_squared) + 1).astype(np.int64)
    bins += noise.discrete_gaussian(Fraction(RHO_UNIT, rho_nano), len(bins))
    best = int(np.argmax(bins[1:])) + 1  # bin 0 lies below the smallest distance: equal points, or next to it
    return best if 4 * int(bins[best]) >= len(tuples) else None


@dataclass(frozen=True)
class TupleAverage:
    """Mechanism that finds one core of tuples that match within a radius, orders them alike and averages them.

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of all stages together.
    tuples, k, dimension : int
        Number t of tuples, number of points in a tuple, number of coordinates; public.
    radius_nano, core_nano : int
        rho (nano) for finding the radius (0 with a public radius) and for the core; the average takes the rest.
    radii_squared : tuple of int
        Squared distances in lattice steps among which the radius is found, or the one public squared radius.
    method : str
        How the radius is found: ``histogram`` of every tuple's smallest distance between two points (on a grid of
        ratio 1.25), ``search`` (FindDiam on the largest matched distance, on a grid of ratio 1.5), ``public``.
    gamma : Fraction
        At most 1/5.
    check_nano : int
        rho (nano) of the check that nearly all pairs of tuples match, without which the core is not started; 0 leaves
        it out.

    Privacy
    -------
    Protects one of t tuples that is REPLACED by another, with (rho, delta)-zCDP. The radius costs rho_r: the histogram
    of t tuples moves by one in two bins, with noise N(0, 1/rho_r) in each; for FindDiam see `DiameterSearch`. For the
    check see `MatchCheck`. The core costs (rho_core, delta/2) and the average the rest. The sensitivity of the average
    is 2 r sqrt(k) over a released lower bound of the core's size.

    One core serves both steps, because with gamma of at most 1/5 the numberings of any tuples in it agree.

    Complexity
    ----------
    t**2 / 2 pairs of tuples at most, most of them by a few distances; see `MatchWithin`.

    Source
    ------
    Specification 6.5, 6.19; proofs 7.2, 7.3, 7.11; errata 1.2, 1.10, 1.12; Tsfadia et al. 2022, FC_kTupleClustering
    with one core instead of two. Ours: gamma up to 1/5 (the paper has 1/7), a radius from the histogram, the check.
    """

    loss: PrivacyLoss
    tuples: int
    k: int
    dimension: int
    radius_nano: int
    core_nano: int
    radii_squared: tuple[int, ...]
    method: str = "histogram"
    gamma: Fraction = GAMMA
    check_nano: int = 0

    def __post_init__(self) -> None:
        if self.method not in ("histogram", "search", "public"):
            raise ConfigError("must be 'histogram', 'search' or 'public'", "radius", got=self.method)
        if not 0 < self.gamma <= GAMMA:
            raise ConfigError("must be in (0, 1/5]", "gamma", got=self.gamma)
        if (self.method == "public") != (self.radius_nano == 0) or self.radius_nano < 0:
            raise ConfigError("must leave rho for finding the radius, and none where it is public", "shares")
        if self.method == "histogram" and self.k == 1:
            raise ConfigError("must be 'search' or public for k = 1: one point has no distance to another", "radius")
        if self.method == "public" and len(self.radii_squared) != 1:
            raise ConfigError("must be one public radius", "radius")
        # refuse budgets that are too small to split, now
        _ = self.core, self.check, self.average(self.radii_squared[-1])
        if self.method == "search":
            _ = self._search, self.average(self._above(self.radii_squared[-1]))

    @cached_property
    def _search(self) -> DiameterSearch:
        return DiameterSearch(self.radius_nano, SEARCH_BETA, len(self.radii_squared))

    @cached_property
    def core(self) -> ReplacedFilter:
        return ReplacedFilter(PrivacyLoss(self.core_nano, self.loss.delta_femto // 2), self.tuples)

    @cached_property
    def check(self) -> MatchCheck | None:
        return MatchCheck(self.check_nano, self.tuples) if self.check_nano else None

    @staticmethod
    def _above(radius_squared: int) -> int:
        """Return the square of the radius two steps up."""
        return min(math.floor(radius_squared * SEARCH_RATIO**4), MAX_RADIUS_SQUARED)

    def average(self, radius_squared: int) -> FriendlyAverage:
        """Return the average over the ordered core, whose tuples are points of k d coordinates within sqrt(k) r."""
        rho = self.loss.rho_nano - self.core_nano - self.radius_nano - self.check_nano
        delta = self.loss.delta_femto - self.loss.delta_femto // 2
        return FriendlyAverage(PrivacyLoss(rho, delta), self.k * radius_squared, self.tuples)

    @property
    def last(self) -> PrivacyLoss:
        """Return the loss of the last stage, which is not spent if the tuples do not agree."""
        return self.average(self.radii_squared[-1]).second

    @property
    def refusal(self) -> PrivacyLoss:
        """Return what tuples cost that the check does not let pass."""
        before = 0 if self.method == "search" else self.radius_nano
        return PrivacyLoss(before + self.check_nano) if self.check else self.loss - self.last

    def release(self, tuples: NDArray[np.float64], noise: Noise, start: Start) -> tuple[str | None, Estimate | None]:
        """Return a reason to refuse, or the estimate with value and sigma (k, d).

        `start` is called before every stage.
        """
        is_search = self.method == "search"  # it costs much: what does not even match at the largest radius ends before
        if is_search and self.check and not self.check.passes(self._counts(tuples).sum(), noise, start):
            return "no_match", None
        radius_squared = self._radius(tuples, noise, start)
        if radius_squared is None:
            return "no_radius", None
        counts = self._counts(tuples, radius_squared)
        if not is_search and self.check and not self.check.passes(counts.sum(), noise, start):
            return "no_match", None
        start(self.core.loss)
        mask = self.core.select_core(counts, noise).mask
        assert mask is not None
        average = self.average(radius_squared)
        return _averaged(average, reorder(tuples[mask], noise), noise, start, self.min_count)

    def _counts(self, tuples: NDArray[np.float64], radius_squared: int | None = None) -> NDArray[np.int64]:
        """Count the friends of each tuple exactly, at the largest radius unless one is given."""
        radius = self.radii_squared[-1] if radius_squared is None else radius_squared
        return friend_counts(MatchWithin(self.k, self.dimension, radius, self.gamma), tuples)

    @cached_property
    def min_count(self) -> int:
        """Least count: with an n-hat of the core up to this one, the average is useless.

        Its noise would then be a seventh of the smallest distance, or more.
        """
        rho2 = self.average(self.radii_squared[-1]).rho2
        return math.ceil(2 / MAX_NOISE * math.sqrt(self.k / (2 * rho2)))

    def forecast(self, outlier_tuples: float, usable: float = 0.0) -> tuple[float, float]:
        """Forecast the probability that the check passes and the core's n-hat is above `usable`, and the mean of n-hat.

        A share `outlier_tuples` of the tuples is assumed to match nothing.
        """
        t, good = self.tuples, self.tuples * (1 - outlier_tuples)
        threshold, sigma = self.core.bar
        keep = normal_above((threshold - (good - t / 2)) / sigma)
        step = self.average(self.radii_squared[-1])
        mean, variance = good * keep - step.offset, good * keep * (1 - keep) + float(step.size_variance)
        passes = self.check.forecast(outlier_tuples) if self.check else 1.0
        return passes * normal_above((usable - mean) / math.sqrt(variance)), mean

    def _radius(self, tuples: NDArray[np.float64], noise: Noise, start: Start) -> int | None:
        """Return the squared radius of the predicate, public or released."""
        if self.method == "public":
            return self.radii_squared[0]
        if self.method == "search":
            index = self._search.find(
                lambda b: _friendly_pairs(
                    MatchWithin(self.k, self.dimension, self.radii_squared[b], self.gamma), tuples
                ),
                len(tuples),
                noise,
                start,
            )
            # The radius is two steps up, because FindDiam leaves out a part of the pairs that the core needs.
            return self._above(self.radii_squared[index])
        start(PrivacyLoss(self.radius_nano))
        b = noisy_mode(tuples, self.radii_squared, self.radius_nano, noise)
        if b is None:
            return None
        # Matched points are closer than gamma / (1 - gamma) of the separation; the radius is one step larger for tuples
        # above the mode.
        reach = self.gamma / (1 - self.gamma)
        top = self.radii_squared[min(b + 1, len(self.radii_squared) - 1)]
        return max(1, min(math.floor(reach * reach * top), MAX_RADIUS_SQUARED))


def _averaged(
    average: FriendlyAverage, ordered: NDArray[np.float64], noise: Noise, start: Start, least: int = 0
) -> tuple[str | None, Estimate | None]:
    """Average ordered tuples (m, k, d), and return the estimate as (k, d)."""
    m, k, d = ordered.shape
    found = average.divide(
        lambda: column_totals(ordered.astype(np.int64).reshape(m, k * d), MAX_COORDINATE), m, k * d, noise, start, least
    )
    if found is None:
        return "no_match", None
    return None, Estimate(found.value.reshape(k, d), found.sigma.reshape(k, d), found.count + average.offset)


@dataclass(frozen=True)
class OrderedAverage:
    """Mechanism FC_AvgOrdTup: it finds a radius for every coordinate and a core of ordered tuples, then averages it.

    It is slow and serves as a reference.

    Parameters
    ----------
    loss : PrivacyLoss
    k, dimension : int
    radii_squared : tuple of int
        Squared radii whose roots have the ratio 1.5.

    Privacy
    -------
    Unit: one tuple of a private number of them. Relation: replace, add or remove one. (rho, delta)-zCDP: k FindDiam
    with 0.05 rho / k each, a core with (0.05 rho, delta/2), the average with (0.9 rho, delta/2).

    Source
    ------
    Specification 6.6; proof 7.4; erratum 1.10; Tsfadia et al. 2022, FC_AvgOrdTup.
    """

    loss: PrivacyLoss
    k: int
    dimension: int
    radii_squared: tuple[int, ...]

    def __post_init__(self) -> None:
        _ = (
            self._search,
            self._core,
            FriendlyAverage(self._rest, self.k * self.radii_squared[-1]),
        )  # refuse losses too small

    @property
    def _search(self) -> DiameterSearch:
        return DiameterSearch(self.loss.rho_nano // (20 * self.k), SEARCH_BETA, len(self.radii_squared))

    @property
    def _core(self) -> ReplacedSizeFilter:
        return ReplacedSizeFilter(PrivacyLoss(self.loss.rho_nano // 20, self.loss.delta_femto // 2))

    @property
    def _rest(self) -> PrivacyLoss:
        """Return the loss of the average."""
        return self.loss - self._core.loss - PrivacyLoss(self.k * self._search.rho_nano)

    def release(self, tuples: NDArray[np.float64], noise: Noise, start: Start) -> tuple[str | None, Estimate | None]:
        """Return a reason to refuse, or the estimate, for tuples (m, k, d) in a common order."""
        search, radii = self._search, []
        for j in range(self.k):
            column = np.ascontiguousarray(tuples[:, j : j + 1])

            def pairs(index: int, column: NDArray[np.float64] = column) -> int:
                return _friendly_pairs(OrderedTuples((self.radii_squared[index],), self.dimension), column)

            radii.append(self.radii_squared[search.find(pairs, len(tuples), noise, start)])
        core = self._core
        start(core.loss)
        mask = core.select_core(friend_counts(OrderedTuples(tuple(radii), self.dimension), tuples), noise).mask
        assert mask is not None
        return self._average(self._rest, radii, tuples[mask], noise, start)

    def _average(
        self, loss: PrivacyLoss, radii: list[int], ordered: NDArray[np.float64], noise: Noise, start: Start
    ) -> tuple[str | None, Estimate | None]:
        """Average ordered tuples with FriendlyOrdTupAvg: sigma_j = (2 r_j / n-hat) sqrt(k / (2 rho2)), one n-hat."""
        m, d = len(ordered), self.dimension
        each = [FriendlyAverage(loss, self.k * r2) for r2 in radii]
        n_hat = each[0].find_size(m, noise, start)
        if n_hat is None:
            return "no_match", None
        start(each[0].second)
        sums = column_totals(ordered.astype(np.int64).reshape(m, self.k * d), MAX_COORDINATE)
        found = [one.noisy_mean(sums[j * d : (j + 1) * d], m, n_hat, self.k * d, noise) for j, one in enumerate(each)]
        value, sigma = (np.stack([getattr(x, name) for x in found]) for name in ("value", "sigma"))
        return None, Estimate(value, sigma, n_hat + each[0].offset)


@dataclass(frozen=True)
class TwoCores:
    """Mechanism FC_kTupleClustering: it finds a core of matching tuples and orders them for `OrderedAverage`. For
    reference.

    Parameters
    ----------
    loss : PrivacyLoss
    tuples, k, dimension : int
    radii_squared : tuple of int
        Squared radii, a ladder of ratio 1.5.

    Privacy
    -------
    Unit: one tuple, one of t. Relation: REPLACE one. (rho, delta)-zCDP: core (rho/2, delta/2), the rest half of both.

    Source
    ------
    Specification 6.6; proof 7.4; erratum 1.12; Tsfadia et al. 2022, FC_kTupleClustering; `TupleAverage` is the one to
    use.
    """

    loss: PrivacyLoss
    tuples: int
    k: int
    dimension: int
    radii_squared: tuple[int, ...]

    def __post_init__(self) -> None:
        _ = self._rest

    @property
    def _half(self) -> PrivacyLoss:
        """Return the loss of the core."""
        return PrivacyLoss(self.loss.rho_nano // 2, self.loss.delta_femto // 2)

    @property
    def _rest(self) -> OrderedAverage:
        return OrderedAverage(self.loss - self._half, self.k, self.dimension, self.radii_squared)

    def release(self, tuples: NDArray[np.float64], noise: Noise, start: Start) -> tuple[str | None, Estimate | None]:
        """Return a reason to refuse, or the estimate."""
        half = self._half
        core = ReplacedFilter(half, self.tuples)
        start(half)
        mask = core.select_core(friend_counts(MatchTuples(self.k, self.dimension, PAPER_GAMMA), tuples), noise).mask
        assert mask is not None
        return self._rest.release(reorder(tuples[mask], noise), noise, start)
