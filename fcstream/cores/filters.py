"""Core filters: select, from friend counts, the points that may be averaged.

`BasicFilter` and `ZCDPFilter` hold parameters only; `select_core` applies a filter to a window's counts. A core itself
is never released: it may only be passed to an algorithm that is friendly (private for data in which every two points
share a friend).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..accounting.arguments import nonnegative
from ..accounting.losses import DELTA_UNIT, EPSILON_UNIT, RHO_UNIT, DPLoss, PrivacyLoss
from ..errors import ConfigError, Shown
from ..noise.samplers import Noise

BIT_DELTA = PrivacyLoss(0, 1)
"""Cost of the finite precision of all keep bits of one core: 1e-15 of delta."""
_MAX_EXPONENT = 600.0
"""Beyond it every delta of 1e-15 and more has grown to 1: no need to tell more, and doubles end soon after."""
ROUND_UP = 1 + 1e-12
"""Factor that makes a float computed in a few steps an upper bound of the real number it stands for."""


@dataclass(frozen=True, slots=True)
class Core:
    """A selected core.

    Attributes
    ----------
    mask : bool (n,) or None
        Which points are in the core; private. None if the noisy size alone decided that no core is searched.
    count : int or None
        The filter's noisy size n-hat less its public offset; it is released, so it may be published and reused. None if
        the filter releases no size.
    """

    mask: NDArray[np.bool_] | None
    count: int | None


class FriendCountView(Protocol):
    """The part of a window's view that core filters read: exact counts, or scores of sampled partners."""

    @property
    def counts(self) -> NDArray[np.int64]: ...

    @property
    def scores(self) -> NDArray[np.int64] | None: ...

    @property
    def sampling(self) -> tuple[str, Fraction] | None: ...


@dataclass(frozen=True)
class BasicFilter:
    """Keep each point with a probability that grows with its friends; the core is friendly with certainty.

    Parameters
    ----------
    alpha : Fraction or float
        In [0, 1/2): a point with (1 - alpha) n friends is always kept.

    Privacy
    -------
    Protects one point, added or removed. If an f-friendly (epsilon, delta)-DP algorithm runs on the core, both together
    are (gamma (e^epsilon - 1), gamma delta e^(epsilon + gamma (e^epsilon - 1)))-DP, with gamma = 1/(1 - 2 alpha) + 1 +
    alpha. The core itself is not private. Friend counts must come from a symmetric, reflexive predicate. Run time is
    not covered.

    Source
    ------
    Specification 4.6; proof 4.2; erratum 1.4; Tsfadia et al. 2022, Algorithm 4.1 and Theorem 4.2, with a gamma that
    holds for alpha above 0.
    """

    alpha: Fraction | float = 0

    def __post_init__(self) -> None:
        if nonnegative(self.alpha, "alpha") >= 0.5:
            raise ConfigError("must be in [0, 1/2)", "alpha", got=self.alpha)
        if Fraction(str(self.alpha)).denominator > 2**20:  # so that the coins' integers stay below 2**62 for n < 2**40
            raise ConfigError("must be a fraction with a denominator of at most 2**20", "alpha", got=self.alpha)

    @property
    def gamma(self) -> float:
        """Stability factor of the paradigm."""
        alpha = float(self.alpha)
        return 1 / (1 - 2 * alpha) + 1 + alpha

    def total(self, epsilon: float, delta: float) -> tuple[float, float]:
        """Return the (epsilon, delta) of the core with a friendly (`epsilon`, `delta`)-DP algorithm, rounded up."""
        return _group_total(self.gamma, epsilon, delta)

    def within(self, total: DPLoss) -> DPLoss:
        """Return the largest loss of a friendly algorithm so that the whole costs at most `total`, rounded down."""
        return _group_part(self.gamma, total)

    def select_core(self, counts: NDArray[np.int64], noise: Noise) -> Core:
        """Draw a core from the friend counts of all n points (itself included); exact rational coins."""
        n = len(counts)
        if n == 0:
            return Core(np.empty(0, np.bool_), None)
        alpha = Fraction(str(self.alpha))
        # (count - n/2) / ((1/2 - alpha) n), as a ratio of integers
        numerators = (2 * counts - n) * alpha.denominator
        denominator = (alpha.denominator - 2 * alpha.numerator) * n
        return Core(noise.bernoulli(numerators, denominator), None)


@dataclass(frozen=True)
class ReplacementFilter:
    """`BasicFilter` at alpha 0 for a public number of items, of which one is replaced: shards, for instance.

    Privacy
    -------
    Protects one of n items that is replaced by another, while n is public. If an algorithm that is f-friendly (epsilon,
    delta)-DP for items added or removed runs on the core, both together are (3 (e^epsilon - 1), 3 delta e^(epsilon + 3
    (e^epsilon - 1)))-DP. The core itself is not private. Friend counts must come from a symmetric, reflexive predicate.

    Source
    ------
    Specification 4.7; proof 4.3; erratum 1.2; Tsfadia et al. 2022, Algorithm 4.1 and Theorem 4.2, for replacements: 3
    instead of 2.
    """

    gamma: ClassVar[float] = 3.0

    def total(self, epsilon: float, delta: float) -> tuple[float, float]:
        """See `BasicFilter.total`."""
        return _group_total(self.gamma, epsilon, delta)

    def within(self, total: DPLoss) -> DPLoss:
        """See `BasicFilter.within`."""
        return _group_part(self.gamma, total)

    def select_core(self, counts: NDArray[np.int64], noise: Noise) -> Core:
        """Draw a core from the friend counts of all n items (itself included); exact rational coins."""
        n = len(counts)
        if n < 2:  # no item has more than (n + 1) / 2 friends
            return Core(np.zeros(n, np.bool_), None)
        return Core(noise.bernoulli(2 * counts - (n + 1), n - 1), None)


def _group_total(gamma: float, epsilon: float, delta: float) -> tuple[float, float]:
    epsilon, delta = nonnegative(epsilon, "epsilon"), nonnegative(delta, "delta")
    grown = gamma * math.expm1(min(epsilon, _MAX_EXPONENT)) * ROUND_UP
    return grown, gamma * delta * math.exp(min(epsilon + grown, _MAX_EXPONENT)) * ROUND_UP


def _group_part(gamma: float, total: DPLoss) -> DPLoss:
    epsilon = math.floor(math.log1p(total.epsilon / gamma) * EPSILON_UNIT)
    while epsilon > 0 and not DPLoss.charge(_group_total(gamma, epsilon / EPSILON_UNIT, 0)[0]).fits(total):
        epsilon -= 1
    grown = epsilon / EPSILON_UNIT + total.epsilon
    factor = gamma * math.exp(min(grown, _MAX_EXPONENT)) * ROUND_UP
    part = DPLoss(max(0, epsilon), math.floor(total.delta_femto / factor))
    if part.epsilon_nano < 1 or part.delta_femto < 1:
        raise ConfigError("must leave more for what follows on the core", "release", got=total)
    return part


@dataclass(frozen=True)
class NoisySize:
    """First stage of every threshold filter: a released size n-hat that is hardly ever below the true one.

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of the whole filter; delta of at least 2e-15.
    first_share : int
        Percent of rho that goes to n-hat.
    tails : int
        n-hat < n has at most a `tails`-th of delta.

    Privacy
    -------
    Protects one point, added or removed; the sensitivity is 1. The noisy size n-hat costs `first_share` percent of rho
    and counts as released. What is left of the loss is `rho2`, and `delta` less a `tails`-th of it.

    Source
    ------
    Specification 4.1; proof 3.1; erratum 1.5; Tsfadia et al. 2022, zCDPFilter.
    """

    loss: PrivacyLoss
    first_share: int
    tails: int

    def __post_init__(self) -> None:
        if not 1 <= self.first_share <= 99:
            raise ConfigError("must be in [1, 99]", "first_share", got=self.first_share)
        if self.loss.delta_femto < 2 or self.loss.delta_femto >= DELTA_UNIT:
            raise ConfigError("must have delta in [2e-15, 1)", "loss", got=Shown(f"{self.loss.delta:g}"))
        if self._rho1_nano < 1:
            raise ConfigError(
                f"must have rho of at least {2e-09 * 100 / self.first_share:.3g}",
                "loss",
                got=Shown(f"{self.loss.rho:g}"),
            )

    @cached_property
    def delta(self) -> float:
        """What the filter's own tail bounds may use."""
        return (self.loss - BIT_DELTA).delta

    @cached_property
    def rho2(self) -> float:
        """The rho that is left for the keep bits after n-hat."""
        return (self.loss.rho_nano - self.first_nano) / RHO_UNIT

    @property
    def first_nano(self) -> int:
        return self.loss.rho_nano * self.first_share // 100

    @cached_property
    def _rho1_nano(self) -> int:
        """rho of the noisy size, times 1 - delta, rounded down."""
        return self.first_nano * (DELTA_UNIT - self.loss.delta_femto) // DELTA_UNIT

    @cached_property
    def variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self._rho1_nano)

    @cached_property
    def offset(self) -> int:
        """Public shift of n-hat: 1 + sqrt(ln(tails/delta) / rho1), rounded up."""
        return math.ceil((1 + math.sqrt(math.log(self.tails / self.delta) * RHO_UNIT / self._rho1_nano)) * ROUND_UP)

    def draw(self, n: int, noise: Noise) -> int:
        """Draw n-hat for `n` points; its offset is included."""
        return n + self.offset + noise.one_gaussian(self.variance)


class ThresholdFilter:
    """The base of filters with a noisy size: a loss, divided between that size and the keep bits.

    Privacy
    -------
    `NoisySize` states the cost of the noisy size, and each filter its whole guarantee.

    Source
    ------
    Specification 4.1, 4.2; proof 3.1; Tsfadia et al. 2022, zCDPFilter.
    """

    loss: PrivacyLoss
    first_share: int
    tails: ClassVar[int]

    @cached_property
    def size(self) -> NoisySize:
        return NoisySize(self.loss, self.first_share, self.tails)

    @property
    def delta(self) -> float:
        """What the filter's own tail bounds may use."""
        return self.size.delta

    @property
    def size_variance(self) -> Fraction:
        return self.size.variance

    @property
    def offset(self) -> int:
        """Public shift of n-hat: 1 + sqrt(ln(tails/delta) / rho1), rounded up."""
        return self.size.offset

    @cached_property
    def stages(self) -> tuple[PrivacyLoss, PrivacyLoss]:
        """Losses of the two stages: the noisy size, with the whole delta, and the keep bits."""
        first = PrivacyLoss(self.size.first_nano, self.loss.delta_femto)
        return first, self.loss - first

    def select_core(self, counts: NDArray[np.int64], noise: Noise) -> Core:
        """Draw a core from the numbers that `read` returns for a window: both stages, one after the other."""
        return self.keep(counts, self.size.draw(len(counts), noise), noise)

    def read(self, view: FriendCountView) -> NDArray[np.int64]:
        """Read from a view the numbers that this filter uses: counts or scores."""
        raise NotImplementedError

    def keep(self, counts: NDArray[np.int64], n_hat: int, noise: Noise) -> Core:
        """Run the second stage: draw the keep bits, given the released size."""
        raise NotImplementedError


@dataclass(frozen=True)
class ZCDPFilter(ThresholdFilter):
    """Keep each point whose noisy friend count passes a threshold made of a noisy size.

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of the filter; delta of at least 2e-15.
    first_share : int
        Percent of rho that goes to the noisy size.

    Privacy
    -------
    Protects one point, added or removed. If an f-friendly (rho', delta')-zCDP algorithm runs on the core, both together
    cost (rho + rho', delta + delta'). The sensitivity is 1 for the size, and 1/2 around n/2 for each count. The noisy
    size n-hat counts as released. 1e-15 of delta pays for the finite precision of the keep bits (n < 2**40). Not
    covered: the core itself, run time.

    Complexity
    ----------
    O(n); points far from the threshold need no random bits, the others 16 each.

    Source
    ------
    Specification 4.2; proofs 3.2, 3.9; erratum 1.5; Tsfadia et al. 2022, zCDPFilter and Theorem 4.1.
    """

    loss: PrivacyLoss
    first_share: int = 10

    tails: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _ = self.size  # refuses a loss that cannot be split

    def bar(self, n_hat: float) -> tuple[float, float]:
        """Return the threshold on count - n/2 and the noise deviation at a released size, both rounded up.

        The deviation is at least 1.
        """
        sigma = max(math.sqrt(n_hat / (8 * self.size.rho2)) * ROUND_UP, 1.0)
        return (sigma * math.sqrt(2 * math.log(2 * n_hat / self.delta)) + 0.5) * ROUND_UP, sigma

    def margin(self, n: int, strangers: float = 0.0) -> float:
        """Return by how many noise deviations a point with all but some of n friends passes, at the typical n-hat."""
        threshold, sigma = self.bar(n + self.offset)
        return (n / 2 - strangers - threshold) / sigma

    def friend_of_all(self, n: int) -> tuple[float, float]:
        """Return mean and variance of count - n/2 for a point that is a friend of all n."""
        return n / 2, 0.0

    def read(self, view: FriendCountView) -> NDArray[np.int64]:
        """Return a window's exact counts."""
        if view.scores is not None:
            raise ConfigError("must hold exact counts", "view", got=Shown(f"scores sampled by {view.sampling}"))
        return view.counts

    def keep(self, counts: NDArray[np.int64], n_hat: int, noise: Noise) -> Core:
        """Draw the keep bits from the friend counts of all n points (a point itself included)."""
        n = len(counts)
        if n_hat <= 0:
            return Core(np.zeros(n, np.bool_), n_hat - self.offset)
        threshold, sigma = self.bar(n_hat)
        return Core(noise.threshold_bits(counts, n, threshold, sigma), n_hat - self.offset)


def smallest_rho(size: int, delta: PrivacyLoss, margin: float, max_rho: int, strangers: float = 0.0) -> int:
    """Find the least rho (nano) with which a friend of all `size` points passes by `margin` noise deviations.

    Parameters
    ----------
    size : int
        Public guess of the number of points.
    delta : PrivacyLoss
        Its delta is the filter's.
    margin : float
    max_rho : int
        Returned if even that rho (nano) does not suffice.
    strangers : float
        How many of `size` are expected not to be friends of the point.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 4.2; ours: the fixed 0.1 rho of the paper leaves no core below n of about 500 and wastes budget above.
    """
    low, high = min(100, max_rho), max_rho
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        enough = ZCDPFilter(PrivacyLoss(middle, delta.delta_femto)).margin(size, strangers) >= margin
        low, high = (low, middle) if enough else (middle, high)
    return high
