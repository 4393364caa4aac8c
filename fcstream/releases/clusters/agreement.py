"""Do few tuples agree? Tests that pick balls around one tuple which nearly all tuples have one point each in.

The tests of Cohen et al. 2021, rebuilt with constants that are proved. They need far fewer tuples than a core, and what
follows them has far more noise: t times that of an average.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...accounting.losses import DELTA_UNIT, EPSILON_UNIT, RHO_UNIT, DPLoss, PrivacyLoss
from ...cores.filters import BIT_DELTA, ROUND_UP
from ...cores.replacement import tail_quantile
from ...errors import ConfigError
from ..floors import laplace_tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...noise.samplers import Noise
    from ..averages import Start

PARTED = 7
"""Delta: distance of a ball's center from the others, in radii; common partitions need more than 6."""
BETA = 0.05
"""Chance that tuples which all agree are refused."""
_FINE = 64  # lattice of the Laplace noise
_POSITIONS = sorted({*range(1, 41), *(round(40 * 1.03**i) for i in range(100))})


@dataclass(frozen=True, slots=True)
class Balls:
    """Balls around the k points of one tuple: private, for what follows a test only.

    Attributes
    ----------
    centers : float64 (k, d)
    radii_squared : float64 (k,)
        In lattice steps.
    members : bool (q,)
        Which of the compared tuples they partition: one point in each ball.

    Privacy
    -------
    None of its own.

    Source
    ------
    Specification 6.7; proof 7.5; Cohen et al. 2021, section 4.1.
    """

    centers: NDArray[np.float64]
    radii_squared: NDArray[np.float64]
    members: NDArray[np.bool_]


@dataclass(frozen=True)
class Geometry:
    """Which balls a tuple has.

    Parameters
    ----------
    radius_squared : int or None
        Of every ball, in lattice steps, public or released; None for own radii, 1/parted of the distance to the
        nearest other point of the tuple.
    parted : int
        Delta, at least 7.

    Privacy
    -------
    Unit: one tuple. A tuple's balls, and whether they partition another tuple, are functions of the two, in integers.
    A tuple with two equal points, or with points nearer than Delta radii, has no balls and fits no tuple.

    Source
    ------
    Specification 6.7; proof 7.5; erratum 4.2; Cohen et al. 2021, definition of far balls. Ours: one public radius; the
    rule for equal points.
    """

    radius_squared: int | None = None
    parted: int = PARTED

    def __post_init__(self) -> None:
        if not PARTED <= self.parted <= 10**4:
            raise ConfigError(f"must be in [7, 10000], got {self.parted}", "parted")
        if self.radius_squared is not None and not 1 <= self.radius_squared * self.parted**2 < 2**53:
            raise ConfigError(
                f"must be at least 1 and keep {self.parted} radii below 2**26.5 lattice steps, got a square of "
                f"{self.radius_squared}",
                "radius",
            )

    def radii_squared(self, tuples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of tuples (t, k, d): (t, k); 0 throughout for one without balls."""
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
        """Radii (m, k) of chosen tuples (m, k, d), and which of tuples (q, k, d) each one's balls partition (m, q)."""
        from ..._kernels import clusters

        radii = self.radii_squared(chosen)
        inside = np.zeros((len(chosen), len(tuples)), np.bool_)
        tuples = np.ascontiguousarray(tuples)
        for i in range(len(chosen)):
            if radii[i, 0] > 0:
                clusters.partitioned(np.ascontiguousarray(chosen[i]), radii[i], tuples, inside[i])
        return radii, inside


def _first(
    passed: NDArray[np.bool_],
    is_certain: bool,
    chosen: NDArray[np.float64],
    radii: NDArray[np.float64],
    inside: NDArray[np.bool_],
) -> Balls | None:
    """Balls of the first passing tuple; None without one, or where the test failed."""
    if not is_certain or not passed.any():
        return None
    i = int(np.argmax(passed))
    return Balls(chosen[i], radii[i], inside[i])


@dataclass(frozen=True)
class GaussianTest:
    """The G form: tuples 1 to m (public positions) each propose their balls, the others say whether they agree.

    Parameters
    ----------
    loss : PrivacyLoss
        rho and delta of the test.
    tuples : int
        t, public.
    positions : int
        m, the proposing tuples.
    beta : float
        Chance that tuples which all agree are refused.
    outlier_tuples : int or None
        A smaller l than (|Q| - 2) / 2, for `averages`.

    Privacy
    -------
    Unit: one tuple, one of t. Relation: REPLACE one. Let A be (rho_A, delta_A)-indistinguishable for all balls that
    partition all but at most `max_outlier_tuples` tuples of two neighbors. Test and A together are
    (max(rho1, rho2) / (1 - delta2) + rho_A, delta1 + delta2 + delta_A)-zCDP with rho1 = rho2 here, delta1 = m Phi'((l -
    theta) sqrt(2 rho1 / m)) and delta2 = Phi'((nu - 1) sqrt(2 rho2)); `loss` is the test's part, and 2e-15 of its delta
    pays for the finite precision of the bits. A tuple has one role, so nothing is secret and nothing is a group. The
    test is paid for even when it fails; A is not started then. Sensitivity: m counts of 1, and one sum of 1.

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
            raise ConfigError(f"must be at most {(self.compared - 2) // 2}, got {self.outlier_tuples}", "strange")
        if not 1 <= self.positions < self.tuples:
            raise ConfigError(f"must be in [1, {self.tuples}), got {self.positions}", "positions")
        if self.loss.delta_femto < 8 or self._rho_nano < 1 or self.loss.rho > 4:
            raise ConfigError(f"must have rho in (0, 4] and delta >= 8e-15, got {self.loss}", "loss")
        if self.threshold < 0 or self.positions < self.needed:
            raise ConfigError(
                f"must be more: {self.tuples} tuples, {self.positions} of them proposing, cannot pass a test at "
                f"{self.loss}",
                "tuples",
            )

    @cached_property
    def _deltas(self) -> tuple[float, float]:
        """delta1, delta2."""
        half = (self.loss - BIT_DELTA * 2).delta / 2
        return half, half

    @cached_property
    def _rho_nano(self) -> int:
        """rho1 = rho2: what loses its factor 1 / (1 - delta2) to the loss."""
        return self.loss.rho_nano * (DELTA_UNIT - self.loss.delta_femto) // DELTA_UNIT

    @property
    def compared(self) -> int:
        """Size of Q."""
        return self.tuples - self.positions

    @property
    def max_outlier_tuples(self) -> int:
        """l: tuples of Q that released balls may leave out, but for delta1."""
        return (self.compared - 2) // 2 if self.outlier_tuples is None else self.outlier_tuples

    @cached_property
    def sigmas(self) -> tuple[float, float]:
        """Noise deviations of the counts and of their sum."""
        rho = self._rho_nano / RHO_UNIT
        return math.sqrt(self.positions / (2 * rho)) * ROUND_UP, math.sqrt(1 / (2 * rho)) * ROUND_UP

    @cached_property
    def threshold(self) -> float:
        """theta: as many strange tuples pass, up to noise."""
        tail = tail_quantile(self._deltas[0] / self.positions)
        return (self.max_outlier_tuples - self.sigmas[0] * tail) * (1 - 1e-12) if self.max_outlier_tuples > 0 else -1.0

    @cached_property
    def level(self) -> float:
        """nu: as many proposals must pass, up to noise."""
        return (1 + self.sigmas[1] * tail_quantile(self._deltas[1])) * ROUND_UP

    @cached_property
    def needed(self) -> float:
        """Proposals that must pass for the sum to do so but for half of beta."""
        return self.level + self.sigmas[1] * tail_quantile(self.beta / 2)

    @cached_property
    def tolerated(self) -> float:
        """Strange tuples of Q at which each proposal still passes but for a share of beta; negative: too few tuples."""
        return self.threshold - self.sigmas[0] * tail_quantile(self.beta / 2 / self.positions)

    def release(self, tuples: NDArray[np.float64], geometry: Geometry, noise: Noise, start: Start) -> Balls | None:
        """Balls that nearly all of tuples (t, k, d) have one point each in, or None: the test failed."""
        if len(tuples) != self.tuples:  # with more, two neighbors' balls need not share a tuple
            raise ConfigError(f"must be {self.tuples}, got {len(tuples)}", "tuples")
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
    """The G form for t tuples of which a share `outlier_tuples` may match nothing; None if t is too few.

    Privacy
    -------
    A function of public numbers; costs nothing.

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
        # Three deviations more than the share of strange tuples among the proposals, and among the others.
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
    """Fewest tuples of a G form.

    Privacy
    -------
    A function of public numbers; costs nothing.

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


@dataclass(frozen=True)
class LaplaceTest:
    """PrivateTestCloseTuples under PrivateTestPartition: m proposing tuples at secret positions, Laplace noise.

    Parameters
    ----------
    tuples : int
        t, public.
    positions : int
        m, drawn without replacement, never told.
    count_epsilon, sum_epsilon : float
        epsilon1 and epsilon2: of the counts, and of their sum given the positions.
    proposers : int or None
        None: positions are drawn from all t tuples, which are compared too (as printed). Else from the first
        `proposers` tuples, and the others are compared (ours).
    beta : float

    Privacy
    -------
    Unit: one tuple, one of t. Relation: REPLACE one. The status is epsilon_t-DP, epsilon_t = epsilon1 + ln(1 + (m/t)
    (e^epsilon2 - 1)), by the tight lemma of sampling without replacement and a chain through the data with one role
    changed; with split roles max(epsilon1, ln(1 + (m/proposers)(e^epsilon2 - 1))). Balls that leave out more than
    `max_outlier_tuples` tuples, or none where the status is yes, have joint probability at most `slip`. With A
    (epsilon_A, delta_A)-indistinguishable for all other balls the whole is (epsilon_t + epsilon_A, delta_A +
    (1 + e^epsilon_t) slip)-DP.

    Source
    ------
    Specification 6.9; proof 7.6; errata 4.1, 4.6; Cohen et al. 2021, PrivateTestCloseTuples and PrivateTestPartition.
    Discrete Laplace noise on a lattice of 1/64, tails included.
    """

    tuples: int
    positions: int
    count_epsilon: float
    sum_epsilon: float
    proposers: int | None = None
    beta: float = BETA

    def __post_init__(self) -> None:
        if not 1 <= self.positions <= (self.proposers or self.tuples) <= self.tuples:
            raise ConfigError(f"must be in [1, {self.proposers or self.tuples}], got {self.positions}", "positions")
        if not (1e-6 <= self.count_epsilon <= 100 and 1e-6 <= self.sum_epsilon <= 100):
            raise ConfigError("must be in [1e-6, 100]", "epsilon")
        if self.compared < 4:
            raise ConfigError(f"must leave at least 4 tuples to compare with, got {self.compared}", "tuples")

    @property
    def compared(self) -> int:
        """Size of Q."""
        return self.tuples - (self.proposers or 0)

    @property
    def max_outlier_tuples(self) -> int:
        """l."""
        return (self.compared - 2) // 2

    @cached_property
    def _scales(self) -> tuple[Fraction, Fraction]:
        """Of the noise in parts of 1/64: epsilon rounded down, so the scale up."""
        one, two = (max(1, int(e * EPSILON_UNIT)) for e in (self.count_epsilon, self.sum_epsilon))
        return Fraction(_FINE * self.positions * EPSILON_UNIT, one), Fraction(_FINE * EPSILON_UNIT, two)

    @property
    def threshold(self) -> float:
        """theta."""
        return self.positions / self.count_epsilon * math.log(self.positions / self.beta)

    @property
    def level(self) -> float:
        """nu."""
        return self.positions - math.log(1 / self.beta) / self.sum_epsilon

    @cached_property
    def status_epsilon(self) -> float:
        """epsilon_t, rounded up."""
        among = self.proposers or self.tuples
        sampled = math.log1p(self.positions / among * math.expm1(self.sum_epsilon))
        total = self.count_epsilon + sampled if self.proposers is None else max(self.count_epsilon, sampled)
        return total * ROUND_UP

    @cached_property
    def slip(self) -> float:
        """Joint probability of a yes with balls that are not good, or with none."""
        none = laplace_tail(self._scales[1], math.ceil(_FINE * self.level * (1 - 1e-12)))
        gap = math.ceil(_FINE * (self.max_outlier_tuples + 1 - self.threshold) * (1 - 1e-12))
        return min(1.0, none + self.positions * laplace_tail(self._scales[0], gap))

    def total(self, epsilon: float, delta: float) -> DPLoss:
        """Test and an A of (epsilon, delta), rounded up."""
        slip = (1 + math.exp(self.status_epsilon)) * self.slip
        return DPLoss.charge(self.status_epsilon + epsilon, min(1.0, (delta + slip) * ROUND_UP))

    def release(self, tuples: NDArray[np.float64], geometry: Geometry, noise: Noise) -> Balls | None:
        """Balls that nearly all of tuples (t, k, d) have one point each in, or None."""
        if len(tuples) != self.tuples:
            raise ConfigError(f"must be {self.tuples}, got {len(tuples)}", "tuples")
        among = self.proposers or self.tuples
        order = np.arange(among)
        for i in range(self.positions):
            j = i + noise.uniform_below(among - i)
            order[i], order[j] = order[j], order[i]
        chosen = tuples[order[: self.positions]]
        others = tuples if self.proposers is None else tuples[self.proposers :]
        radii, inside = geometry.members(chosen, others)
        outlier_tuples = _FINE * (self.compared - inside.sum(axis=1).astype(np.int64))
        passed = outlier_tuples + noise.discrete_laplace(self._scales[0], self.positions) <= _FINE * self.threshold
        total = _FINE * int(np.count_nonzero(passed)) + int(noise.discrete_laplace(self._scales[1], 1)[0])
        return _first(passed, total >= _FINE * self.level, chosen, radii, inside)


def printed_test(tuples: int, epsilon: float, delta: float, beta: float = BETA) -> LaplaceTest | None:
    """PrivateTestPartition with the paper's constants, as far as they can be rebuilt; None where they do not exist.

    Privacy
    -------
    A function of public numbers. What it costs is what `LaplaceTest` says, not what the paper does.

    Source
    ------
    Specification 6.9; erratum 4.1; Cohen et al. 2021, 4.1.2: epsilon1 = epsilon/2, epsilon2 = ln(epsilon t / (2 m) -
    3), m the smallest above (2 ln(1/delta) + ln(1/beta)) / epsilon2; l = (2 m / epsilon) ln(m / (beta delta)) must
    leave t >= 2 l + 2.
    """
    for m in range(1, tuples):
        inner = epsilon * tuples / (2 * m) - 3
        if inner <= 1:
            return None
        second = math.log(inner)
        if m > (2 * math.log(1 / delta) + math.log(1 / beta)) / second:
            outlier_tuples = 2 * m / epsilon * math.log(m / (beta * delta))
            return LaplaceTest(tuples, m, epsilon / 2, second, beta=beta) if tuples >= 2 * outlier_tuples + 2 else None
    return None


def plan_laplace(
    tuples: int, epsilon: float, delta: float, beta: float = BETA, *, split: bool = True
) -> LaplaceTest | None:
    """A Laplace test that costs at most (epsilon, delta) as the test's part; None if t is too few.

    Privacy
    -------
    A function of public numbers; costs nothing.

    Source
    ------
    Specification 6.9; proof 7.6; ours: m and the shares by trying.
    """
    slip = delta / (1 + math.exp(epsilon))
    for m in range(2, 40):
        for share in (0.25, 0.3, 0.35, 0.4, 0.45) if split else (0.55, 0.6, 0.65, 0.7, 0.75, 0.8):
            if split:
                proposers, first, rest = int(tuples * share), epsilon, epsilon
            else:
                proposers, first, rest = None, epsilon * share, epsilon * (1 - share)
            among = proposers or tuples
            if m > among:
                continue
            second = math.log1p(among / m * math.expm1(rest)) * (1 - 1e-9)
            try:
                test = LaplaceTest(tuples, m, first * (1 - 1e-9), second, proposers, beta)
            except ConfigError:
                continue
            if test.level > 0 and test.slip <= slip:
                return test
    return None


def fewest_laplace(epsilon: float, delta: float, beta: float = BETA, *, split: bool = True) -> int:
    """Fewest tuples of a Laplace test.

    Privacy
    -------
    A function of public numbers; costs nothing.

    Source
    ------
    Specification 6.9; proof 7.6; ours.
    """
    return _bisect(lambda t: plan_laplace(t, epsilon, delta, beta, split=split) is not None)
