"""Core filters that read sampled pairs: they select a core like `ZCDPFilter`, but far fewer pairs are compared.

Each record is compared with a random part of the other records, and a higher threshold pays for the sampling.
`SparseZCDPFilter` allows that the sampled pairs become known (pair coins or blocks). `HiddenCoinFilter` needs secret
coins, and far fewer pairs. `smallest_rate` and `choose` plan with public numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..errors import ConfigError
from ..noise.samplers import MAX_BLOCKS, Noise
from .filters import ROUND_UP, Core, FriendCountView, ThresholdFilter, ZCDPFilter

Kind = Literal["exact", "blocks", "hidden"]

RATE_PARTS = 2**32
"""Planned rates are multiples of one part: a coin is 32 random bits."""
WORTHWHILE = 2.0
"""Factor by which a sampled filter must be faster than exact counts, since points pass its threshold less easily."""
_POINTS_PER_BLOCK = 32


@dataclass(frozen=True)
class _Sampled(ThresholdFilter, ABC):
    """Base of both filters: a noisy size comes first, then keep bits from noisy sums over sampled partners."""

    loss: PrivacyLoss
    rate: Fraction
    first_share: int = 10
    sampled_by: ClassVar[str] = ""
    tails: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if not isinstance(self.rate, Fraction) or not 0 < self.rate <= 1:
            raise ConfigError("must be a Fraction in (0, 1]", "rate", got=self.rate)
        _ = self.size  # refuses a loss that cannot be split

    @cached_property
    def _rate(self) -> float:
        return float(self.rate)

    @cached_property
    def _coin_variance(self) -> float:
        # computed from the exact rate: for a rounded rate near 1, the error of 1 - rate would exceed ROUND_UP
        return float(self.rate * (1 - self.rate))

    @abstractmethod
    def bar(self, n_hat: float) -> tuple[float, float]:
        """Return the threshold on z and the noise deviation at a released size: rounded up, deviation at least 1."""

    def margin(self, n: int) -> float:
        """Return by how many deviations a point that is a friend of all n passes the threshold, at the typical n-hat.

        The deviation is that of the noise and of the number of sampled partners together.
        """
        threshold, sigma = self.bar(n + self.offset)
        mean, variance = self.friend_of_all(n)
        return (mean - threshold) / math.sqrt(sigma**2 + variance)

    def friend_of_all(self, n: int) -> tuple[float, float]:
        """Return the mean and the variance of z for a point that is a friend of all n points, itself included."""
        others = max(n - 1, 0)
        return (1 + others * self._rate) / 2, others * self._coin_variance / 4

    def read(self, view: FriendCountView) -> NDArray[np.int64]:
        """Read a window's scores, which must have been sampled with this filter's rate."""
        wanted = (self.sampled_by, self.rate)
        if view.scores is None or view.sampling != wanted:
            raise ConfigError(f"must hold scores sampled by {wanted}", "view", got=view.sampling)
        return view.scores

    def keep(self, counts: NDArray[np.int64], n_hat: int, noise: Noise) -> Core:
        """Draw the keep bit of every point.

        Parameters
        ----------
        counts : int64 (n,)
            2 z = 1 + 2 * (sampled partners that are friends) - (sampled partners) of every point. A point is not its
            own partner, so the values are in [2 - n, n].
        n_hat : int
        noise : Noise
        """
        n = len(counts)
        if n_hat <= 0:
            return Core(np.zeros(n, np.bool_), n_hat - self.offset)
        threshold, sigma = self.bar(n_hat)
        # The kernel takes counts in [0, size] less size / 2: n + 2z with size 2n is 2z. Doubling floats is exact.
        bits = noise.threshold_bits(counts + n, 2 * n, 2 * threshold, 2 * sigma)
        return Core(bits, n_hat - self.offset)

    def _plain_sigma(self, n_hat: float) -> float:
        """Compute sqrt(K / (8 rho2)), where K bounds how many bits one record's pairs reach; rounded up, at least 1."""
        log, variance = math.log(4 / self.delta), n_hat * self._coin_variance
        most = min(n_hat, n_hat * self._rate + log / 3 + math.sqrt(log * log / 9 + 2 * log * variance))
        return max(math.sqrt(most / (8 * self.size.rho2)) * ROUND_UP, 1.0)

    def _log_tail(self, n_hat: float) -> float:
        """Compute L2, where a bad point may pass with probability exp(-L2) = delta / (2 n-hat)."""
        return math.log(2 * n_hat / self.delta)

    def _tight_threshold(self, n_hat: float, sigma: float) -> float:
        """Compute 1/2 + [sigma**2 lambda**2 / 2 + v (cosh(lambda/2) - 1) + L2] / lambda, rounded up.

        Any lambda > 0 is valid, so the best one is searched. The search starts at the minimum of the approximation for
        small lambda, which is too large because cosh grows faster than its parabola, and takes a few Newton steps down.
        """
        variance, log = n_hat * self._coin_variance, self._log_tail(n_hat)

        def exponent(x: float) -> float:
            # 2 sinh(x/4)**2 equals cosh(x/2) - 1, which would lose digits by cancellation
            return sigma**2 * x * x / 2 + 2 * variance * math.sinh(x / 4) ** 2

        x = math.sqrt(2 * log / (sigma**2 + variance / 4))
        for _ in range(4):
            slope = sigma**2 * x + variance * math.sinh(x / 2) / 2
            curvature = sigma**2 + variance * math.cosh(x / 2) / 4
            x -= (x * slope - exponent(x) - log) / (x * curvature)
        return (0.5 + (exponent(x) + log) / x) * ROUND_UP


@dataclass(frozen=True)
class SparseZCDPFilter(_Sampled):
    """Core filter that keeps each point whose noisy friend sum over sampled partners passes a threshold.

    The threshold is computed from a noisy size.

    Every unordered pair of records is sampled with probability `rate`, so that the sampled partners of any one record
    are independent coins: one coin per pair, or blocks (every record draws one of B blocks by an independent uniform
    coin, and each block is compared with a fixed symmetric set of c blocks, itself included; `rate` = c / B).

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of the filter; delta of at least 2e-15.
    rate : Fraction
        In (0, 1]; one number for all pairs of a window, from public facts and earlier releases only.
    first_share : int
        Percent of rho that goes to the noisy size.
    parameter_sets : int, optional
        Give it if other releases use the same coins: the size of the fixed finite set from which earlier releases
        choose the radius; 1 if nothing is chosen from earlier releases. Only the radius may be chosen so, never who
        takes part. By default coins are fresh and used once.

    Privacy
    -------
    Protects one point, added or removed. If an f-friendly (rho', delta')-zCDP algorithm runs on the core, both together
    cost (rho + rho', delta + delta'), even if all coins become known. The sensitivity is 1 for the size, and 1/2 for
    each sampled partner of the point. The noisy size n-hat counts as released. 1e-15 of delta pays for the finite
    precision of the keep bits (n < 2**40, sigma >= 1). Coins must not depend on data, and a fixed number of partners
    per point is not enough. Without `parameter_sets` the radius must not come from the same coins. Not covered: the
    core itself, block sizes, run time.

    Complexity
    ----------
    O(n) after the counting; points far from the threshold need no random bits, the others 16 each.

    Source
    ------
    Specification 4.3; proofs 3.3, 3.4, 3.5; erratum 1.1; ours, in place of appendix B of Tsfadia et al. 2022.
    """

    parameter_sets: int | None = None
    sampled_by: ClassVar[str] = "blocks"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parameter_sets is not None and self.parameter_sets < 1:
            raise ConfigError("must be at least 1", "parameter_sets", got=self.parameter_sets)

    def bar(self, n_hat: float) -> tuple[float, float]:
        sigma = self._plain_sigma(n_hat)
        if self.parameter_sets is None:
            return self._tight_threshold(n_hat, sigma), sigma
        log = math.log(4 * n_hat / self.delta) + math.log(self.parameter_sets)
        sampling = log / 6 + math.sqrt(log * log / 36 + n_hat * self._coin_variance * log / 2)
        return (0.5 + sampling + sigma * math.sqrt(2 * log)) * ROUND_UP, sigma


@dataclass(frozen=True)
class HiddenCoinFilter(_Sampled):
    """Core filter that keeps each point whose noisy friend sum over secretly sampled partners passes a threshold.

    The threshold is computed from a noisy size. Every ORDERED pair (i uses j) has an independent coin of its own. Only
    the keep bit of i depends on that coin, so amplification by sampling applies in full, and the noise is far smaller
    than in `SparseZCDPFilter`.

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of the filter; delta of at least 2e-15.
    rate : Fraction
        In (0, 1]; one number for all pairs of a window, from public facts and earlier releases only.
    first_share : int
        Percent of rho that goes to the noisy size.

    Privacy
    -------
    Protects one point, added or removed. If an f-friendly (rho', delta')-zCDP algorithm runs on the core, both together
    cost (rho + rho', delta + delta'), provided that the coins stay secret, are never shown or logged, and serve one
    release of one window. Blocks must not be used, since one block decides all coins of a record. The noisy size n-hat
    counts as released. 1e-15 of delta pays for the finite precision of the keep bits (n < 2**40, sigma >= 1). Not
    covered: the core itself, run time.

    Complexity
    ----------
    O(n) after the counting; points far from the threshold need no random bits, the others 16 each.

    Source
    ------
    Specification 4.4; proof 3.6; ours. With the smaller of two valid deviations: the one of `SparseZCDPFilter`, and the
    one that amplification allows.
    """

    sampled_by: ClassVar[str] = "hidden"

    def bar(self, n_hat: float) -> tuple[float, float]:
        sigma = self._amplified_sigma(n_hat, self._plain_sigma(n_hat))
        return self._tight_threshold(n_hat, sigma), sigma

    def _amplified_sigma(self, n_hat: float, max_sigma: float) -> float:
        """Find the smallest sigma in [1, max_sigma] with n-hat q**2 exp(2a(X+a)) / (8 sigma**2) <= rho2, rounded up.

        If there is none, it is `max_sigma`.
        """
        root = math.sqrt(2 * self._log_tail(n_hat))

        def enough(sigma: float) -> bool:
            a = 1 / (2 * sigma)
            rho = n_hat * self._rate**2 * math.exp(2 * a * (root + 2 * a)) / (8 * sigma**2)
            return rho * ROUND_UP <= self.size.rho2

        if enough(1.0):
            return 1.0
        low, high = 1.0, max_sigma
        if not enough(high):
            return high
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high


@dataclass(frozen=True, slots=True)
class PairSampling:
    """Plan of which pairs of a window are compared; a function of public numbers.

    Attributes
    ----------
    kind : str
        ``exact`` (`ZCDPFilter`), ``blocks`` (`SparseZCDPFilter`) or ``hidden`` (`HiddenCoinFilter`).
    rate : Fraction
        Share of pairs that is compared; 1 if exact, `partners` / `blocks` for blocks.
    blocks, partners : int
        The number of blocks, and the number of blocks that each block is compared with, itself included; 0 unless the
        kind is ``blocks``. `partners` is odd, for offsets 0, +-1 .. +-k around a circle, or equal to `blocks`.
    seconds : float
        Expected time to compare the pairs.
    """

    kind: Kind
    rate: Fraction
    blocks: int
    partners: int
    seconds: float

    def filter(self, loss: PrivacyLoss) -> ZCDPFilter | SparseZCDPFilter | HiddenCoinFilter:
        """Make the core filter for this plan."""
        if self.kind == "exact":
            return ZCDPFilter(loss)
        return SparseZCDPFilter(loss, self.rate) if self.kind == "blocks" else HiddenCoinFilter(loss, self.rate)


EXACT = PairSampling("exact", Fraction(1), 0, 0, 0.0)
"""The plan that compares all pairs."""


def smallest_rate(kind: Kind, size: int, loss: PrivacyLoss, margin: float = 3.0) -> Fraction | None:
    """Find the smallest rate at which a friend of all `size` points passes the threshold by `margin` deviations.

    Parameters
    ----------
    kind : str
        ``blocks`` or ``hidden``; each coin is used once.
    size : int
        Public guess of the number of points.
    loss : PrivacyLoss
        (rho, delta) of the filter.
    margin : float

    Returns
    -------
    Fraction or None
        A multiple of 2**-32, rounded up; None if even the rate 1 does not suffice.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 4.5; ours. Bisection: the margin grows with the rate.
    """
    if kind not in ("blocks", "hidden"):
        raise ConfigError("must be 'blocks' or 'hidden'", "kind", got=kind)
    if size < 1:
        raise ConfigError("must be at least 1", "size", got=size)
    make = SparseZCDPFilter if kind == "blocks" else HiddenCoinFilter

    def clears(parts: int) -> bool:
        return make(loss, Fraction(parts, RATE_PARTS)).margin(size) >= margin

    if not clears(RATE_PARTS):
        return None
    low, high = 0, RATE_PARTS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if clears(middle) else (middle, high)
    return Fraction(high, RATE_PARTS)


def choose(
    size: int, dimension: int, loss: PrivacyLoss, costs: Mapping[str, float], tumbling: bool = True
) -> PairSampling:
    """Choose the fastest plan of comparing pairs that still finds a core; exact counts are preferred.

    Parameters
    ----------
    size : int
        Public guess of the number of points.
    dimension : int
        Dimension of the points, at which `costs` were measured.
    loss : PrivacyLoss
        (rho, delta) of the filter.
    costs : mapping of str to float
        Seconds per compared pair of ``exact``, ``blocks`` and ``hidden`` (ordered pairs); a sampled kind without a
        cost is not considered. Measured beforehand, never on the window's data.
    tumbling : bool
        False for sliding windows: they take exact counts, as coins must be fresh for every release.

    Returns
    -------
    PairSampling
        A sampled kind only if it is at least twice as fast as exact counts.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 4.5; proof 3.7; ours, by measured speed.
    """
    if dimension < 1:
        raise ConfigError("must be at least 1", "dimension", got=dimension)
    for name in ("exact", *costs):
        if name not in get_args(Kind):
            raise ConfigError("must have keys 'exact', 'blocks' and 'hidden'", "costs", got=name)
        if not 0 < costs.get(name, 0) < math.inf:
            raise ConfigError("must be seconds per pair above 0", f"costs.{name}", got=costs.get(name))
    exact = PairSampling("exact", Fraction(1), 0, 0, size * size / 2 * costs["exact"])
    if not tumbling:
        return exact
    found = [exact]
    for kind in ("blocks", "hidden"):
        design = design_pairs(kind, size, loss) if kind in costs else None
        if design is not None:
            pairs = size * size * float(design.rate) / (2 if kind == "blocks" else 1)
            design = replace(design, seconds=pairs * costs[kind])
            if design.seconds * WORTHWHILE <= exact.seconds:
                found.append(design)
    return min(found, key=lambda choice: choice.seconds)


def design_pairs(kind: Kind, size: int, loss: PrivacyLoss) -> PairSampling | None:
    """Plan how pairs of a kind are sampled, with the smallest rate that finds a core (see `smallest_rate`).

    Parameters
    ----------
    kind : str
        ``blocks`` or ``hidden``.
    size : int
        Public guess of the number of points.
    loss : PrivacyLoss
        (rho, delta) of the filter.

    Returns
    -------
    Choice or None
        The plan, with `seconds` 0; None if no rate suffices. Blocks hold 32 to 63 points on average.


    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 4.5; ours.
    """
    rate = smallest_rate(kind, size, loss)
    if rate is None or kind == "hidden":
        return None if rate is None else PairSampling("hidden", rate, 0, 0, 0.0)
    blocks = min(MAX_BLOCKS, max(2, 1 << max(size // _POINTS_PER_BLOCK, 1).bit_length() - 1))
    partners = min(math.ceil(rate * blocks) | 1, blocks)
    return PairSampling("blocks", Fraction(partners, blocks), blocks, partners, 0.0)
