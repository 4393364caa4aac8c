"""Finds a radius within which nearly all pairs lie: a private check, and a binary search that uses it.

Works for points and for tuples, since it reads from the data only how many ordered pairs are friends at a radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ..accounting.losses import RHO_UNIT, PrivacyLoss
from ..errors import ConfigError
from ..noise.samplers import Noise
from .averages import Start, _no_stages, gaussian_variance

_ONE = 2**10  # the statistic of a check is rounded to multiples of 2**-10


def far_per_point(pairs: int, n: int, tolerance: Fraction | int = 0) -> int:
    """Return how many ordered pairs of n items are not among `pairs`, divided by n, less tolerance times n.

    The unit is 2**-10, rounded; the result is 0 for n = 0.

    Privacy
    -------
    The result is private. Its sensitivity is 2 + 2**-10 when a point is added, removed or replaced, for a tolerance in
    [0, 1/2]: a point with u strangers among n, of B ordered pairs in all, moves it by (2 u n - B) / (n (n - 1)) -
    tolerance, which lies between -1 - tolerance and 2 - tolerance.

    Source
    ------
    Specification 5.6; proof 5.6; erratum 1.8; Tsfadia et al. 2022, CheckDiam: minus what it adds noise to, at tolerance
    0. The tolerance is ours.
    """
    if n == 0:
        return 0
    a, b = tolerance.numerator, tolerance.denominator
    return (2 * ((n * n - pairs) * b - a * n * n) * _ONE + n * b) // (2 * n * b)


@dataclass(frozen=True)
class DiameterCheck:
    """CheckDiam: do nearly all pairs of points lie within a radius?

    Parameters
    ----------
    rho_nano : int
    beta : float
        In (0, 1]: chance of a no although all pairs do, at tolerance 0.
    tolerance : Fraction
        In [0, 1/2]: share of the pairs that may lie beyond. Outliers, a share o of the points, take 2 o (1 - o).

    Privacy
    -------
    Protects one item (a point or a tuple), added, removed or replaced, with rho-zCDP, for every symmetric, reflexive
    predicate that grows with the radius. The sensitivity is that of `far_per_point`.

    Source
    ------
    Specification 5.6; proof 5.6; erratum 1.8; Tsfadia et al. 2022, CheckDiam. A tolerance above 0 is ours.
    """

    rho_nano: int
    beta: float
    tolerance: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.rho_nano < 1:
            raise ConfigError("must leave at least 1e-9 of rho for a check", "release.rho")
        if not 0 < self.beta <= 1:
            raise ConfigError("must be in (0, 1]", "beta", got=self.beta)
        if not 0 <= self.tolerance <= Fraction(1, 2):
            raise ConfigError("must be in [0, 1/2]", "tolerance", got=self.tolerance)

    @cached_property
    def bar(self) -> float:
        """How many strangers per point, beyond the tolerated ones, pass the check if the noise is 0."""
        return math.sqrt(4 * math.log(1 / self.beta) * RHO_UNIT / self.rho_nano)

    @property
    def sigma(self) -> float:
        """Noise deviation, in strangers per point."""
        return math.sqrt(2 * RHO_UNIT / self.rho_nano)

    def passes(self, pairs: int, n: int, noise: Noise) -> bool:
        """Draw the answer for n points of which `pairs` ordered pairs lie within a radius, a point and itself too."""
        drawn = noise.one_gaussian(gaussian_variance((2 * _ONE + 1) ** 2, self.rho_nano))
        return drawn - far_per_point(pairs, n, self.tolerance) >= -self.bar * _ONE


@dataclass(frozen=True)
class DiameterSearch:
    """FindDiam: a binary search for the smallest of several radii that `DiameterCheck` lets pass.

    Parameters
    ----------
    rho_nano : int
        Of all checks together.
    beta : float
        Chance that the search skips a radius that holds all pairs.
    radii : int
        How many radii; the largest radius is taken when no other passes.
    tolerance : Fraction
        See `DiameterCheck`.

    Privacy
    -------
    Protects one item, added, removed or replaced, with rho-zCDP: at most ceil(log2(radii)) checks, each with its share.
    The radius counts as released. Checks that are not needed are not started.

    Complexity
    ----------
    One draw and one count of pairs a check.

    Source
    ------
    Specification 5.6; proof 5.6; erratum 1.7; Tsfadia et al. 2022, FindDiam.
    """

    rho_nano: int
    beta: float
    radii: int
    tolerance: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.radii < 1:
            raise ConfigError("must be at least 1", "radii", got=self.radii)
        _ = self.check  # refuses what cannot be divided

    @property
    def steps(self) -> int:
        return max(1, (self.radii - 1).bit_length())

    @cached_property
    def check(self) -> DiameterCheck:
        return DiameterCheck(
            self.rho_nano // self.steps, self.beta / self.steps if self.beta < 1 else 1.0, self.tolerance
        )

    def find(self, pairs: Callable[[int], int], n: int, noise: Noise, start: Start = _no_stages) -> int:
        """Search for a radius and return its index. Calls `start` before the draw of every check.

        Parameters
        ----------
        pairs : callable
            Counts the ordered pairs of friends at the radius of an index, an item and itself included.
        n : int
            Number of items; private.
        """
        low, high = 0, self.radii - 1
        while low < high:
            middle = (low + high) // 2
            start(PrivacyLoss(self.check.rho_nano))
            passed = self.check.passes(pairs(middle), n, noise)
            low, high = (low, middle) if passed else (middle + 1, high)
        return low
