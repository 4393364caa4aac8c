"""Centers of balls in the k-tuple paper's own forms: secret proposers, Laplace noise, and a radius for each ball.

The constants are proved ones: where the paper's statements do not hold (errata 4.1, 4.3, 4.6), what is built here is
what does. These forms are there to compare with. `GaussianTest` needs fewer tuples, and one public radius far less
noise.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import DELTA_UNIT, EPSILON_UNIT, RHO_UNIT, DPLoss, PrivacyLoss
from ...cores.filters import ROUND_UP
from ...errors import ConfigError
from ...noise.samplers import Noise, sampleable
from ..averages import Estimate, Start
from ..floors import laplace_tail
from ..means.approximate_dp import gaussian_rho, paid_by
from .agreement import BETA, PARTED, Balls, Geometry, _bisect, _first, outlier_tolerance, partitioned_pairs
from .ktuples import as_set, centers_at, log_steps, spread_of_logs
from .tuples import MatchCheck

_FINE = 64  # lattice of the Laplace noise of a test
_SHARES = (0.55, 0.6, 0.65, 0.7, 0.75, 0.8)  # of a test's epsilon for its counts
_MAX_POSITIONS = 40


@dataclass(frozen=True)
class LaplaceTest:
    """PrivateTestPartition: proposing tuples at secret positions, all tuples compared, Laplace noise.

    Parameters
    ----------
    tuples : int
        Number t of tuples, public.
    positions : int
        Number m of proposing tuples, whose positions are drawn without replacement and never told.
    count_epsilon, sum_epsilon : float
        epsilon1 and epsilon2: of the counts, and of their sum given the positions.
    beta : float
        Probability that tuples which all agree are refused, about.

    Privacy
    -------
    Protects one of t tuples that is REPLACED by another. The status, yes or no, is epsilon_t-DP with epsilon_t =
    epsilon1 + ln(1 + (m / t)(e^epsilon2 - 1)), by the tight lemma of sampling without replacement and a chain through
    the data with one of the tuple's two roles changed. Its counts and their sum have sensitivity 1 each. Balls that
    leave out more than `max_outlier_tuples` tuples, or no balls where the status is yes, have joint probability at
    most `slip`. With A (epsilon_A, delta_A)-indistinguishable for all other balls the whole is (epsilon_t + epsilon_A,
    delta_A + (1 + e^epsilon_t) slip)-DP.

    Complexity
    ----------
    m t comparisons of tuples.

    Source
    ------
    Specification 6.9; proof 7.6; errata 4.1, 4.6; Cohen et al. 2021, PrivateTestCloseTuples and PrivateTestPartition.
    Ours: the lemma, the joint bound, and discrete noise on a lattice of 1/64 with its exact tails.
    """

    tuples: int
    positions: int
    count_epsilon: float
    sum_epsilon: float
    beta: float = BETA

    def __post_init__(self) -> None:
        if not 1 <= self.positions <= self.tuples:
            raise ConfigError(f"must be in [1, {self.tuples}]", "positions", got=self.positions)
        if not (1e-6 <= self.count_epsilon <= 100 and 1e-6 <= self.sum_epsilon <= 100):
            raise ConfigError("must be in [1e-6, 100]", "epsilon")
        if self.tuples < 4:
            raise ConfigError("must be at least 4", "tuples", got=self.tuples)
        _ = self.scales  # refuses noise that cannot be drawn, now

    @property
    def max_outlier_tuples(self) -> int:
        """Number l of tuples that the balls which pass leave out at most, except with probability `slip`."""
        return (self.tuples - 2) // 2

    @cached_property
    def scales(self) -> tuple[Fraction, Fraction]:
        """Scales of the noise of counts and sum, in parts of 1/64; epsilons are rounded down, so these up."""
        one, two = (max(1, int(e * EPSILON_UNIT)) for e in (self.count_epsilon, self.sum_epsilon))
        return (
            sampleable(Fraction(_FINE * self.positions * EPSILON_UNIT, one)),
            sampleable(Fraction(_FINE * EPSILON_UNIT, two)),
        )

    @property
    def threshold(self) -> float:
        """Threshold theta: a proposal passes with up to this many outlier tuples, apart from noise."""
        return self.positions / self.count_epsilon * math.log(self.positions / self.beta)

    @property
    def level(self) -> float:
        """Level nu: the status is yes if at least this many proposals pass, apart from noise."""
        return self.positions - math.log(1 / self.beta) / self.sum_epsilon

    @cached_property
    def status_epsilon(self) -> float:
        """epsilon_t, rounded up."""
        sampled = math.log1p(self.positions / self.tuples * math.expm1(self.sum_epsilon))
        return (self.count_epsilon + sampled) * ROUND_UP

    @cached_property
    def slip(self) -> float:
        """Joint probability of a yes with balls that are not good, or with none, rounded up."""
        none = laplace_tail(self.scales[1], math.ceil(_FINE * self.level * (1 - 1e-12)))
        gap = math.ceil(_FINE * (self.max_outlier_tuples + 1 - self.threshold) * (1 - 1e-12))
        return min(1.0, none + self.positions * laplace_tail(self.scales[0], gap))

    def total(self, epsilon: float, delta: float) -> DPLoss:
        """Return what the test and an A of (epsilon, delta) cost, rounded up."""
        slip = (1 + math.exp(self.status_epsilon)) * self.slip
        return DPLoss.charge(self.status_epsilon + epsilon, min(1.0, (delta + slip) * ROUND_UP))

    def release(self, tuples: NDArray[np.float64], geometry: Geometry, noise: Noise) -> Balls | None:
        """Run the test, and return balls that nearly all of tuples (t, k, d) have one point each in.

        The result is None if the test failed.
        """
        if len(tuples) != self.tuples:
            raise ConfigError(f"must be {self.tuples}", "tuples", got=len(tuples))
        order = np.arange(self.tuples)
        for i in range(self.positions):
            j = i + noise.uniform_below(self.tuples - i)
            order[i], order[j] = order[j], order[i]
        chosen = tuples[order[: self.positions]]
        radii, inside = geometry.members(chosen, tuples)
        outlier_tuples = _FINE * (self.tuples - inside.sum(axis=1).astype(np.int64))
        passed = outlier_tuples + noise.discrete_laplace(self.scales[0], self.positions) <= _FINE * self.threshold
        total = _FINE * int(np.count_nonzero(passed)) + noise.one_laplace(self.scales[1])
        return _first(passed, total >= _FINE * self.level, chosen, radii, inside)


@functools.lru_cache(maxsize=4096)
def plan_laplace(tuples: int, epsilon: float, delta: float, beta: float = BETA) -> LaplaceTest | None:
    """Plan a Laplace test that costs at most (epsilon, delta) as the test's part; None if t is too small.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.9; proof 7.6; ours: m and the shares by trying.
    """
    slip = delta / (1 + math.exp(epsilon))
    for m in range(2, min(_MAX_POSITIONS, tuples)):
        for share in _SHARES:
            second = math.log1p(tuples / m * math.expm1(epsilon * (1 - share))) * (1 - 1e-9)
            try:
                test = LaplaceTest(tuples, m, epsilon * share * (1 - 1e-9), second, beta)
            except ConfigError:
                continue
            if test.level > 0 and test.slip * ROUND_UP <= slip:
                return test
    return None


def fewest_laplace(epsilon: float, delta: float, beta: float = BETA) -> int:
    """Find the smallest number of tuples with which a Laplace test works.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.9, 6.13; proof 7.6; ours.
    """
    return _bisect(lambda t: plan_laplace(t, epsilon, delta, beta) is not None)


@dataclass(frozen=True)
class PaperCenters:
    """Mechanism of `LaplaceTest` and then PrivatekNoisyCenters with each ball's own radius: ``variant = "paper"``.

    Parameters
    ----------
    loss : PrivacyLoss
        Loss that is charged, all of it at once besides the check's.
    test : LaplaceTest
    k, dimension : int
    parted : int
        Delta, at least 7: distance of the balls in radii.
    epsilons_nano : (int, int)
        epsilon (nano) of the noise on the logarithms of the distances, and of the noise on the centers.
    check_nano : int
        rho (nano) of the check that the balls of nearly all tuples partition each other, without which the test is not
        started; 0 leaves it out.

    Privacy
    -------
    Protects one of t tuples that is REPLACED by another, with (epsilon, delta)-DP, where `total` is that of the test
    and of two steps. Logarithms of k distances move by kappa each: discrete Laplace noise for their l1 sensitivity,
    and a fourth of delta for the event that one is too low by more than a quantile. Centers: a discrete Gaussian in
    proportion to the noisy distances, for the other epsilon and a fourth of delta. The test's `slip` has the other
    half. It is charged as zCDP with epsilon tanh(epsilon / 2) (see `zcdp_of_dp`), in one stage: nothing of it is
    refunded once it is started. The check (`MatchCheck`) comes before it, as a stage of its own.

    Source
    ------
    Specification 6.9, 6.10, 6.19; proofs 1.6, 7.6, 7.7, 7.11; errata 4.1, 4.2, 4.3, 4.6; Cohen et al. 2021,
    PrivateTestPartition, PrivatekNoisyCenters. Ours: the check, noise on the logarithms, since noise of a scale that
    depends on the data is no Laplace mechanism, and all constants.
    """

    loss: PrivacyLoss
    test: LaplaceTest
    k: int
    dimension: int
    parted: int
    epsilons_nano: tuple[int, int]
    check_nano: int = 0

    def __post_init__(self) -> None:
        if self.k < 2:
            raise ConfigError("must be at least 2: one point has no distance to another, so no radius of its own", "k")
        _ = Geometry(None, self.parted)
        if min(self.epsilons_nano) < 1 or self._share_femto < 1 or self.rho_nano < 1:
            raise ConfigError("must leave an epsilon and a delta for each step", "rho", got=self.loss)
        _ = self.log_noise  # refuses noise that cannot be drawn, now
        _ = self.check  # refuses what cannot be checked, now
        if not self.total.fits(paid_by(self._at_once)):
            raise ConfigError(f"must hold its parts: {self.total}, of {self._at_once}", "shares")

    @property
    def tuples(self) -> int:
        return self.test.tuples

    @property
    def last(self) -> PrivacyLoss:
        """Return what is not spent if the test fails: nothing, since test and centers are paid at once."""
        return PrivacyLoss()

    @property
    def _at_once(self) -> PrivacyLoss:
        """Loss of test and centers."""
        return self.loss - PrivacyLoss(self.check_nano)

    @cached_property
    def check(self) -> MatchCheck | None:
        tolerance = outlier_tolerance(self.test.threshold / self.tuples)
        return MatchCheck(self.check_nano, self.tuples, tolerance) if self.check_nano else None

    @property
    def refusal(self) -> PrivacyLoss:
        """Return what tuples cost that the check does not let pass."""
        return self.check.loss if self.check else self.loss

    @property
    def _share_femto(self) -> int:
        """delta (femto) of each of the two steps."""
        return self.loss.delta_femto // 4

    @cached_property
    def total(self) -> DPLoss:
        """The (epsilon, delta) of test and steps together, rounded up."""
        return self.test.total(sum(self.epsilons_nano) / EPSILON_UNIT, 2 * self._share_femto / DELTA_UNIT)

    @cached_property
    def log_noise(self) -> tuple[Fraction, int]:
        """Scale of the noise on the logarithms, and what it exceeds in one of them with probability delta / (4 k)."""
        scale = sampleable(Fraction(self.k * log_steps(self.parted) * EPSILON_UNIT, self.epsilons_nano[0]))
        wanted = self._share_femto / DELTA_UNIT / self.k
        least = max(1, math.ceil(float(scale) * math.log(1 / wanted) * ROUND_UP))
        return scale, least

    @cached_property
    def rho_nano(self) -> int:
        """rho (nano) whose discrete Gaussian costs the centers' epsilon and a fourth of delta."""
        return gaussian_rho(self.epsilons_nano[1], self._share_femto)

    def release(self, tuples: NDArray[np.float64], noise: Noise, start: Start) -> tuple[str | None, Estimate | None]:
        """Return a reason to refuse, or the estimate with value and sigma (k, d).

        `start` is called for the check, and once for all the rest.
        """
        geometry = Geometry(None, self.parted)
        if self.check and not self.check.passes(partitioned_pairs(geometry, tuples), noise, start):
            return "no_match", None
        start(self._at_once)
        balls = self.test.release(tuples, geometry, noise)
        if balls is None:
            return "no_match", None
        found = self.answer(balls, noise)
        return ("no_radius", None) if found is None else (None, as_set(found))

    def answer(self, balls: Balls, noise: Noise) -> Estimate | None:
        """Add noise to the balls' centers; None if a noisy distance asks for more noise than can be drawn."""
        scale, quantile = self.log_noise
        drawn = noise.discrete_laplace(scale, self.k)
        return centers_at(balls, self.parted, drawn, quantile, self.rho_nano, noise)

    def noise_share(self) -> float:
        """Return the noise of a center, in parts of its distance from the others, if no noise was on its logarithm."""
        u = self.log_noise[1] / log_steps(self.parted) * spread_of_logs(self.parted)
        reach = math.exp(min(u, 100.0)) * (1 + math.exp(spread_of_logs(self.parted))) / self.parted
        return reach * math.sqrt(self.k * RHO_UNIT / (2 * self.rho_nano))


def plan_centers(loss: PrivacyLoss, test: LaplaceTest, k: int, dimension: int, fineness: float) -> PaperCenters | None:
    """Divide what a test leaves of a loss so that balls may lie as close together as possible; None if nothing works.

    Parameters
    ----------
    loss : PrivacyLoss
        Of test and centers together.
    test : LaplaceTest
    k, dimension : int
    fineness : float
        The noise of a center must be at most one in this many parts of its distance from the others.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """
    rest = paid_by(loss).epsilon_nano - math.ceil(test.status_epsilon * EPSILON_UNIT) - 2
    best: PaperCenters | None = None
    for share in (0.4, 0.5, 0.6):
        epsilons = int(rest * share), rest - int(rest * share)
        low, high = PARTED - 1, 10**4 if best is None else best.parted
        try:
            while high - low > 1:
                middle = (low + high) // 2
                works = PaperCenters(loss, test, k, dimension, middle, epsilons).noise_share() * fineness <= 1
                low, high = (low, middle) if works else (middle, high)
            found = PaperCenters(loss, test, k, dimension, high, epsilons)
        except ConfigError:
            continue
        if found.noise_share() * fineness <= 1 and (best is None or found.parted < best.parted):
            best = found
    return best
