"""Tests whether tuples agree: a test picks balls around one tuple such that nearly all tuples have a point in each.

These are the tests of Cohen et al. 2021, rebuilt with proved constants. They need far fewer tuples than a core, but the
steps after them add far more noise: t times the noise of an average.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import DELTA_UNIT, RHO_UNIT, PrivacyLoss
from ...cores.filters import BIT_DELTA, ROUND_UP
from ...cores.replacement import tail_quantile
from ...errors import ConfigError, Shown
from ...noise.samplers import Noise
from ..averages import Start
from .tuples import TOLERANCE

PARTED = 7
"""Delta: distance of a ball's center from the others, in radii; common partitions need more than 6."""
BETA = 0.05
"""Chance that tuples which all agree are refused."""
_CHUNK = 256  # tuples whose balls are compared with all others at once
_POSITIONS = sorted({*range(1, 41), *(round(40 * 1.03**i) for i in range(100))})


@dataclass(frozen=True, slots=True)
class Balls:
    """Balls around the k points of one tuple; they are private, and only the step after a test may use them.

    Attributes
    ----------
    centers : float64 (k, d)
    radii_squared : float64 (k,)
        Squared radii in lattice steps.
    members : bool (q,)
        Which of the compared tuples the balls partition: such a tuple has one point in each ball.

    Privacy
    -------
    Not private by itself.

    Source
    ------
    Specification 6.7; proof 7.5; Cohen et al. 2021, section 4.1.
    """

    centers: NDArray[np.float64]
    radii_squared: NDArray[np.float64]
    members: NDArray[np.bool_]


@dataclass(frozen=True)
class Geometry:
    """Rule that gives a tuple its balls.

    Parameters
    ----------
    radius_squared : int or None
        Squared radius of every ball, in lattice steps, public or released. None gives every ball its own radius, the
        distance to the nearest other point of the tuple, divided by `parted`.
    parted : int
        Delta, at least 7: how many radii apart balls must be.

    Privacy
    -------
    Protects nothing by itself. A tuple's balls, and whether they partition another tuple, are functions of these tuples
    alone, in integers. A tuple with two equal points, or with points nearer than Delta radii, has no balls and is
    partitioned by none.

    Source
    ------
    Specification 6.7; proof 7.5; erratum 4.2; Cohen et al. 2021, definition of far balls. Ours: one public radius; the
    rule for equal points.
    """

    radius_squared: int | None = None
    parted: int = PARTED

    def __post_init__(self) -> None:
        if not PARTED <= self.parted <= 10**4:
            raise ConfigError("must be in [7, 10000]", "parted", got=self.parted)
        if self.radius_squared is not None and not 1 <= self.radius_squared * self.parted**2 < 2**53:
            raise ConfigError(
                f"must be at least 1 and keep {self.parted} radii below 2**26.5 lattice steps",
                "radius",
                got=Shown(f"a square of {self.radius_squared}"),
            )

    def radii_squared(self, tuples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the squared radii (t, k) of the balls of tuples (t, k, d); a tuple without balls gets k zeros."""
        from ..._kernels import clusters

        alone = np.empty(tuples.shape[:2])
        clusters.isolations(np.ascontiguousarray(tuples), alone)
        if self.radius_squared is not None:
            fits = np.asarray((alone >= float(self.radius_squared * self.parted**2)).all(axis=1))
            return np.where(fits[:, None], float(self.radius_squared), 0.0) * np.ones(alone.shape)
        own = np.floor(np.minimum(alone, 2.0**53) / float(self.parted**2))
        return np.where(np.asarray((own >= 1).all(axis=1))[:, None], own, 0.0)

    def members(
        self, chosen: NDArray[np.float64], tuples: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Find which of the tuples (q, k, d) the balls of each chosen tuple (m, k, d) partition.

        Returns the squared radii (m, k) of the balls, and a bool (m, q).
        """
        from ..._kernels import clusters

        radii = self.radii_squared(chosen)
        inside = np.zeros((len(chosen), len(tuples)), np.bool_)
        tuples = np.ascontiguousarray(tuples)
        for i in range(len(chosen)):
            if radii[i, 0] > 0:
                clusters.partitioned(np.ascontiguousarray(chosen[i]), radii[i], tuples, inside[i])
        return radii, inside


def partitioned_pairs(geometry: Geometry, tuples: NDArray[np.float64]) -> int:
    """Count the ordered pairs of tuples (t, k, d) of which the first one's balls partition the second one.

    A tuple and itself count as such a pair, even if the tuple has no balls.

    Privacy
    -------
    NOT private: the number is only for `MatchCheck`. A tuple that is replaced is in 2 (t - 1) pairs with others.

    Source
    ------
    Specification 6.19; proof 7.11; ours.
    """
    found = len(tuples)
    for first in range(0, len(tuples), _CHUNK):
        inside = geometry.members(tuples[first : first + _CHUNK], tuples)[1]
        found += int(inside.sum()) - int(np.trace(inside, offset=first))
    return found


def outlier_tolerance(share: float) -> Fraction:
    """Return the share of pairs that do not match if a test lets so large a share of tuples match nothing.

    It is at least that of a core, and at most 1/2.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.19; ours.
    """
    pairs = 1 - (1 - max(0.0, share)) ** 2
    return max(TOLERANCE, min(Fraction(1, 2), Fraction(pairs).limit_denominator(1000)))


def _first(
    passed: NDArray[np.bool_],
    is_certain: bool,
    chosen: NDArray[np.float64],
    radii: NDArray[np.float64],
    inside: NDArray[np.bool_],
) -> Balls | None:
    """Return the balls of the first tuple that passed; None if no tuple passed or if the test failed."""
    if not is_certain or not passed.any():
        return None
    i = int(np.argmax(passed))
    return Balls(chosen[i], radii[i], inside[i])


@dataclass(frozen=True)
class GaussianTest:
    """Test in the G form: each of tuples 1 to m (public positions) proposes its balls, and the other tuples, Q, agree
    with a proposal or not.

    Parameters
    ----------
    loss : PrivacyLoss
        rho and delta of the test.
    tuples : int
        Number t of tuples, public.
    positions : int
        Number m of tuples that propose their balls.
    beta : float
        Probability that tuples which all agree are refused.
    outlier_tuples : int or None
        Value of l that is smaller than (|Q| - 2) / 2, for `averages`; None takes (|Q| - 2) / 2.

    Privacy
    -------
    Protects one of t tuples that is REPLACED by another. Let A be (rho_A, delta_A)-indistinguishable for all balls that
    partition all but at most `max_outlier_tuples` tuples of two neighbors. Test and A together are
    (max(rho1, rho2) / (1 - delta2) + rho_A, delta1 + delta2 + delta_A)-zCDP with rho1 = rho2 here, delta1 = m Phi'((l -
    theta) sqrt(2 rho1 / m)) and delta2 = Phi'((nu - 1) sqrt(2 rho2)). `loss` is the test's part, and 2e-15 of its delta
    pays for the finite precision of the bits. The sensitivity is 1 for each of m counts, and 1 for the sum. The test is
    paid for even when it fails; A is not started then.

    Complexity
    ----------
    m t comparisons of tuples.

    Source
    ------
    Specification 6.8; proof 7.5; ours, on PrivateTestCloseTuples of Cohen et al. 2021.
    """

    loss: PrivacyLoss
    tuples: int
    positions: int
    beta: float = BETA
    outlier_tuples: int | None = None

    def __post_init__(self) -> None:
        if self.outlier_tuples is not None and not 0 <= self.outlier_tuples <= (self.compared - 2) // 2:
            raise ConfigError(f"must be at most {(self.compared - 2) // 2}", "strange", got=self.outlier_tuples)
        if not 1 <= self.positions < self.tuples:
            raise ConfigError(f"must be in [1, {self.tuples})", "positions", got=self.positions)
        if self.loss.delta_femto < 8 or self._rho_nano < 1 or self.loss.rho > 4:
            raise ConfigError("must have rho in (0, 4] and delta >= 8e-15", "loss", got=self.loss)
        if self.threshold < 0 or self.positions < self.needed:
            raise ConfigError(
                f"must be more: {self.tuples} tuples, {self.positions} of them proposing, cannot pass a test at "
                f"{self.loss}",
                "tuples",
            )

    @cached_property
    def _deltas(self) -> tuple[float, float]:
        """Delta of the two parts of the test: delta1 and delta2."""
        half = (self.loss - BIT_DELTA * 2).delta / 2
        return half, half

    @cached_property
    def _rho_nano(self) -> int:
        """Return rho1 = rho2 (nano), such that rho1 / (1 - delta2) is within the loss."""
        return self.loss.rho_nano * (DELTA_UNIT - self.loss.delta_femto) // DELTA_UNIT

    @property
    def compared(self) -> int:
        """Size of Q, the number of tuples that are compared with each proposal."""
        return self.tuples - self.positions

    @property
    def max_outlier_tuples(self) -> int:
        """Number l of tuples of Q that the balls which pass leave out at most, except with probability delta1."""
        return (self.compared - 2) // 2 if self.outlier_tuples is None else self.outlier_tuples

    @cached_property
    def sigmas(self) -> tuple[float, float]:
        """Noise deviation of the counts, and noise deviation of the sum over passing proposals."""
        rho = self._rho_nano / RHO_UNIT
        return math.sqrt(self.positions / (2 * rho)) * ROUND_UP, math.sqrt(1 / (2 * rho)) * ROUND_UP

    @cached_property
    def threshold(self) -> float:
        """Threshold theta: a proposal passes with up to this many outlier tuples, apart from noise."""
        tail = tail_quantile(self._deltas[0] / self.positions)
        return (self.max_outlier_tuples - self.sigmas[0] * tail) * (1 - 1e-12) if self.max_outlier_tuples > 0 else -1.0

    @property
    def pair_tolerance(self) -> Fraction:
        """Share of pairs of tuples that do not match up to which the test may well pass: see `outlier_tolerance`."""
        return outlier_tolerance(self.threshold / self.compared)

    @cached_property
    def level(self) -> float:
        """Level nu: the test succeeds if at least this many proposals pass, apart from noise."""
        return (1 + self.sigmas[1] * tail_quantile(self._deltas[1])) * ROUND_UP

    @cached_property
    def needed(self) -> float:
        """Number of passing proposals with which the test fails with probability beta / 2 at most."""
        return self.level + self.sigmas[1] * tail_quantile(self.beta / 2)

    @cached_property
    def tolerated(self) -> float:
        """Number of outlier tuples in Q with which any of the m proposals fails with probability beta / 2 at most.

        It is negative if there are too few tuples.
        """
        return self.threshold - self.sigmas[0] * tail_quantile(self.beta / 2 / self.positions)

    def release(self, tuples: NDArray[np.float64], geometry: Geometry, noise: Noise, start: Start) -> Balls | None:
        """Run the test, and return balls that nearly all of tuples (t, k, d) have one point each in.

        The result is None if the test failed.
        """
        if len(tuples) != self.tuples:  # with more, two neighbors' balls need not share a tuple
            raise ConfigError(f"must be {self.tuples}", "tuples", got=len(tuples))
        start(self.loss)
        chosen, others = tuples[: self.positions], tuples[self.positions :]
        radii, inside = geometry.members(chosen, others)
        q, m = self.compared, self.positions
        agreed = inside.sum(axis=1).astype(np.int64)
        # l_X + N <= theta: the noise is symmetric, so q - l_X + N >= q - theta.
        passed = noise.threshold_bits(agreed, q, q / 2 - self.threshold, self.sigmas[0])
        total = np.array([np.count_nonzero(passed)], np.int64)
        is_certain = bool(noise.threshold_bits(total, m, self.level - m / 2, self.sigmas[1])[0])
        return _first(passed, is_certain, chosen, radii, inside)


@functools.lru_cache(maxsize=256)
def plan_gaussian(
    loss: PrivacyLoss, tuples: int, outlier_tuples: float = 0.0, beta: float = BETA
) -> GaussianTest | None:
    """Plan the G form for t tuples of which a share `outlier_tuples` may match nothing; None if t is too small.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.8, 6.13; proof 7.5; ours: the number of proposals that leaves most room.
    """
    best: GaussianTest | None = None
    for m in [m for m in _POSITIONS if m < tuples - 3]:
        try:
            test = GaussianTest(loss, tuples, m, beta)
        except ConfigError:
            continue
        # Allow for three deviations more outlier tuples than their share, both among the proposals and in Q.
        spare = outlier_tuples * m + (3 * math.sqrt(outlier_tuples * m) if outlier_tuples else 0)
        room = (
            test.tolerated
            - outlier_tuples * test.compared
            - (3 * math.sqrt(outlier_tuples * test.compared) if outlier_tuples else 0)
        )
        if m - spare >= test.needed and room >= 0 and (best is None or room > _room(best, outlier_tuples)):
            best = test
    return best


def _room(test: GaussianTest, outlier_tuples: float) -> float:
    return test.tolerated - outlier_tuples * test.compared - 3 * math.sqrt(outlier_tuples * test.compared)


def fewest_gaussian(loss: PrivacyLoss, outlier_tuples: float = 0.0, beta: float = BETA) -> int:
    """Find the smallest number of tuples with which a G form works.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.8, 6.13; proof 7.5; ours.
    """
    return _bisect(lambda t: plan_gaussian(loss, t, outlier_tuples, beta) is not None)


def _bisect(works: Callable[[int], bool]) -> int:
    low, high = 4, 8
    while not works(high):
        low, high = high, 2 * high
        if high > 2**20:
            raise ConfigError("must be larger: no number of tuples below 2**20 passes the test", "rho")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high
