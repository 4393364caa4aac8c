"""Core filters for items of which one record REPLACES one, as it replaces the tuple of one shard.

The filters of `fcstream.cores.filters` are for items that are added or removed: a friend count less half the size then
moves by 1/2. A replaced item moves it by up to 1, so the true loss of those filters would be four times their rho.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..errors import ConfigError, Shown
from ..noise.samplers import Noise, normal_tail
from .filters import BIT_DELTA, ROUND_UP, Core, ZCDPFilter


@functools.lru_cache(maxsize=4096)
def tail_quantile(probability: float) -> float:
    """Return a number that a standard normal exceeds with at most this probability, in (1e-40, 1/2]; tight to 1e-9.

    Privacy
    -------
    Computed from public numbers alone, with 60 digits, because tail bounds of filters and tests rely on it.

    Source
    ------
    Specification 4.8; bisection on erfc, rounded up.
    """
    if not 1e-40 < probability <= 0.5:
        raise ConfigError("must be in (1e-40, 1/2]", "probability", got=Shown(f"{probability:g}"))
    low, high = 0.0, 14.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 * math.erfc(middle / math.sqrt(2)) > probability else (low, middle)
    while normal_tail(Fraction(high)) > Decimal(probability):
        high *= 1 + 1e-9
    return high


@dataclass(frozen=True)
class ReplacedFilter:
    """Core filter that keeps each of t items, for a public t, whose noisy friend count passes a threshold.

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of the filter; delta of at least 2e-15.
    size : int
        t, public, >= 2; the items of empty shards count too.

    Privacy
    -------
    Protects one item that is REPLACED by another. If an algorithm runs on the core that is friendly (rho', delta')-zCDP
    for replacing and for adding or removing an item, both together cost (rho + rho', delta + delta'). The sensitivity
    is at most 1 for each of t - 1 counts. 1e-15 of delta pays for the finite precision of the keep bits.

    Complexity
    ----------
    O(t).

    Source
    ------
    Specification 4.8; proof 3.8; erratum 1.2; Tsfadia et al. 2022, zCDPFilter. Ours: no noisy size, as t is public; the
    exact normal quantile of delta/t in place of sqrt(2 ln(t/delta)), a bar about 6% lower.
    """

    loss: PrivacyLoss
    size: int

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ConfigError("must be at least 2 items", "tuples", got=self.size)
        if self.loss.rho_nano < 1 or self.loss.delta_femto < 2:
            raise ConfigError("must have rho > 0 and delta >= 2e-15", "loss", got=self.loss)

    @cached_property
    def bar(self) -> tuple[float, float]:
        """Threshold on count - t/2, and standard deviation of the noise; both rounded up, the deviation at least 1."""
        sigma = max(math.sqrt((self.size - 1) / (2 * self.loss.rho)) * ROUND_UP, 1.0)
        tail = (self.loss - BIT_DELTA).delta / self.size
        return (0.5 + sigma * tail_quantile(tail)) * ROUND_UP, sigma

    @property
    def margin(self) -> float:
        """Number of noise deviations by which an item that is a friend of all items passes the threshold."""
        threshold, sigma = self.bar
        return (self.size / 2 - threshold) / sigma

    def select_core(self, counts: NDArray[np.int64], noise: Noise) -> Core:
        """Draw a core from the friend counts of all t items; each item counts as its own friend."""
        if len(counts) != self.size:
            raise ConfigError(f"must be the counts of {self.size} items", "counts", got=len(counts))
        threshold, sigma = self.bar
        return Core(noise.threshold_bits(counts, self.size, threshold, sigma), None)


@dataclass(frozen=True)
class ReplacedSizeFilter(ZCDPFilter):
    """Core filter like `ZCDPFilter` for a private number of items, of which one may be replaced, added or removed.

    It selects a core from a core.

    Parameters
    ----------
    loss : PrivacyLoss
    first_share : int
        Percent of rho that goes to the noisy size.

    Privacy
    -------
    Unit: one item. Relation: replace, add or remove one. As `ZCDPFilter`, with counts that move by up to 1: variance
    n-hat / (2 rho2). What follows must be friendly for all three.

    Source
    ------
    Specification 4.8; proof 3.8; erratum 1.2; Tsfadia et al. 2022, zCDPFilter, for tuples.
    """

    def bar(self, n_hat: float) -> tuple[float, float]:
        """Return the threshold on count - n/2 and the noise deviation, at a released size."""

        sigma = max(math.sqrt(n_hat / (2 * self.size.rho2)) * ROUND_UP, 1.0)
        return (sigma * math.sqrt(2 * math.log(2 * n_hat / self.delta)) + 0.5) * ROUND_UP, sigma
