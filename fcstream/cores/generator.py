"""The generator of FriendlyCore's first version: a core with a success bit, for a public number of replaced points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..noise.samplers import Noise

_WHOLE = 2**52  # keep probabilities are multiples of 2**-52
_ROUNDING = 2.0**-44  # what rounding a probability may add to the difference of two
_FINE = 2**16  # the statistic of the success bit is rounded to multiples of 2**-16
_SENSITIVITY = _FINE + 4  # of that statistic: 1, its grid, and the rounding of up to 2**27 probabilities
MAX_ITEMS = 2**27
_UP = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Generated:
    """The result of a generator.

    Attributes
    ----------
    success : bool
        Whether the core may be used; released.
    mask : bool (n,)
        Which points are in the core; private.
    """

    success: bool
    mask: NDArray[np.bool_]


@dataclass(frozen=True)
class FriendlyGenerator:
    """Leave each point out with a probability that falls smoothly with its friends; tell whether few were left out.

    Parameters
    ----------
    size : int
        n, public.
    epsilon, delta : float
        Of the success bit: its epsilon, and the chance below which a success does not count. Not used if `growth` is 0.
    beta : float
        Chance of no success although the data are as expected. Not used if `growth` is 0.
    ramp : float
        m, in [1, n/2]: points with n/2 + 1/2 + m friends are never left out.
    outliers : float
        l: expected number of points left out, in all, that still is a success. Not used if `growth` is 0.
    growth : float
        lambda, at least 0. Large (10, 100): high stability for data with few outliers. 0: moderate stability n/m,
        for many outliers; it always succeeds and costs nothing itself.

    Privacy
    -------
    Protects one point that is REPLACED by another, while n is public. The bit is epsilon-DP. If the bit is success and
    an f-friendly (epsilon2, delta2)-DP algorithm (for points added, removed or replaced) runs on the kept points, all
    together cost `total`, because all points that can be kept, in two neighboring data sets together, share a friend.
    Probabilities are rounded to multiples of 2**-52 and the bit's statistic to 2**-16; `stability` and the bit's noise
    include both.

    Source
    ------
    Specification 4.9; proof 4.4; errata 2.1, 2.2; Tsfadia et al. 2022, first version, Algorithm 4.1, Theorems 3.8 and
    3.10.
    """

    size: int
    epsilon: float
    delta: float
    beta: float
    ramp: float
    outliers: float = 0.0
    growth: float = 10.0

    def __post_init__(self) -> None:
        if not 3 <= self.size <= MAX_ITEMS:
            raise ConfigError("must be in [3, 2**27]", "size", got=self.size)
        if not 1 <= self.ramp <= self.size / 2:
            raise ConfigError(f"must be in [1, n/2 = {self.size / 2:g}]", "ramp", got=self.ramp)
        if self.growth and not 1e-3 <= self.growth <= 1e6:
            raise ConfigError("must be 0 or in [0.001, 1e6]", "growth", got=self.growth)
        if self.growth and not (1e-6 <= self.epsilon < 1e6 and 1e-15 <= self.delta < 0.5 and 0 < self.beta < 0.5):
            raise ConfigError(
                "must have epsilon in [1e-6, 1e6), delta in [1e-15, 1/2) and beta in (0, 1/2), got "
                f"{self.epsilon!r}, {self.delta!r}, {self.beta!r}",
                "epsilon, delta, beta",
            )
        if not 0 <= self.outliers <= self.size:
            raise ConfigError(f"must be in [0, n = {self.size}]", "outliers", got=self.outliers)

    @property
    def exponent(self) -> float:
        """c = ln(growth + 1)."""
        return math.log1p(self.growth)

    @cached_property
    def _step(self) -> tuple[float, float]:
        """e^(c/m) - 1, and 1 + n/lambda times it."""
        step = math.expm1(self.exponent / self.ramp)
        return step, 1 + self.size / self.growth * step

    def _omega(self, left_out: float) -> float:
        step, whole = self._step
        return self.ramp / self.exponent * math.log1p(left_out * step / whole)

    @property
    def bar(self) -> float:
        """Upper limit of the noisy statistic for a success: omega0 + ln(1/(2 beta)) / epsilon."""
        return self._omega(self.outliers) + math.log(1 / (2 * self.beta)) / self.epsilon

    @property
    def reach(self) -> float:
        """omega0 + h: above it a success has a chance below delta."""
        return self._omega(self.outliers) + math.log(1 / (2 * self.beta * self.delta)) / self.epsilon

    @cached_property
    def stability(self) -> float:
        """alpha: how much the other points' probabilities may differ in sum between neighbors."""
        slack = self.size * _ROUNDING
        if not self.growth:
            return self.size / self.ramp * _UP + slack
        _, whole = self._step
        return (math.expm1(self.exponent / self.ramp * self.reach) * whole + whole - 1) * _UP + slack

    def total(self, epsilon: float, delta: float) -> tuple[float, float]:
        """(epsilon, delta) of the generator and a friendly (`epsilon`, `delta`)-DP algorithm after it, rounded up."""
        first = self.epsilon if self.growth else 0.0
        grown = first + epsilon + self.stability * math.expm1(epsilon)
        return grown * _UP, max(self.delta_factor(epsilon) * delta, self.delta if self.growth else 0.0)

    def delta_factor(self, epsilon: float) -> float:
        """Return the factor by which the delta of a friendly algorithm of this epsilon grows, rounded up."""
        first = self.epsilon if self.growth else 0.0
        exponent = first + 2 * epsilon + (1 + self.stability) * math.expm1(epsilon)
        return (1 + self.stability) * math.exp(min(exponent, 600.0)) * _UP

    def keeps(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the probability to keep each point, in multiples of 2**-52: a function of its count alone."""
        z = (2 * counts - (self.size + 1)) / 2
        left = np.clip(1 - z / self.ramp, 0.0, 1.0)
        discard = left if not self.growth else np.expm1(self.exponent * left) / self.growth
        kept: NDArray[np.int64] = np.rint((1 - np.minimum(discard, 1.0)) * _WHOLE).astype(np.int64)
        kept[z <= 0] = 0
        return kept

    def draw(self, counts: NDArray[np.int64], noise: Noise) -> Generated:
        """Draw the success bit and a core from the friend counts (n,) of all points, each itself included."""
        if len(counts) != self.size:
            raise ConfigError(f"must be as many as the public size, {self.size}", "counts", got=len(counts))
        kept = self.keeps(counts)
        success = True
        if self.growth:
            left_out = (self.size * _WHOLE - sum(kept.tolist())) / _WHOLE
            statistic = round(self._omega(left_out) * _FINE)
            scale = Fraction(_SENSITIVITY * 10**9, math.floor(self.epsilon * 10**9))
            success = statistic + noise.one_laplace(scale) <= self.bar * _FINE
        return Generated(success, noise.bernoulli(kept, _WHOLE))
