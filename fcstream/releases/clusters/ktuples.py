"""Centers of balls on which a small number of tuples agree: algorithms of Cohen et al. 2021, with proved constants.

Two parts of the paper are left out on purpose. Its average by a Johnson-Lindenstrauss projection (4.3.2) needs, in
these dimensions and with these numbers of tuples, more tuples than the plain average in every coordinate, and the step
over all records that follows removes that noise anyway. The constants of its separation theorem (5.4) are worst-case
figures for mixtures that no data set here comes near; the planner predicts the separation from n, k and d instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import DELTA_UNIT, PrivacyLoss
from ...cores.replacement import tail_quantile
from ...errors import ConfigError
from ...noise.samplers import MAX_VARIANCE, Noise
from ...stream.lattice import MAX_COORDINATE, sqrt_up
from ...stream.totals import column_totals
from ..averages import Estimate, Start, _noisy_average, check_average, check_noise, gaussian_variance
from .agreement import Balls, GaussianTest, Geometry, partitioned_pairs
from .tuples import MatchCheck, noisy_mode

ANSWERS = ("centers", "averages", "nearest")
_LOG_BITS = 24


def noisy_centers(balls: Balls, radius_squared: int, rho_nano: int, noise: Noise) -> Estimate:
    """Add noise to the balls' centers: PrivatekNoisyCenters with one public radius.

    Privacy
    -------
    rho-zCDP with delta = 0 between two neighbors' balls that partition a common tuple. Each center moves by at most 2
    r, so the sensitivity of all together is 2 r sqrt(k). The centers are a set, and must be sorted before release.

    Source
    ------
    Specification 6.10; proof 7.7; Cohen et al. 2021, PrivatekNoisyCenters. Ours: the public radius, which needs no
    noisy distance and no delta.
    """
    k, d = balls.centers.shape
    variance = gaussian_variance(4 * k * radius_squared, rho_nano)
    value = balls.centers + noise.discrete_gaussian(variance, k * d).reshape(k, d)
    return Estimate(value, np.full((k, d), math.sqrt(variance)), 0)


def spread_of_logs(parted: int) -> float:
    """Return kappa, by how much the logarithm of a ball's isolation differs between neighbors at most, rounded up.

    Privacy
    -------
    Bounds the sensitivity of the first step of `own_centers`.

    Source
    ------
    Specification 6.10; proof 7.7; ours; ln((Delta + 2) / (Delta - 2)).
    """
    return math.log((parted + 2) / (parted - 2)) * (1 + 1e-9)


def log_steps(parted: int) -> int:
    """Return kappa in steps of the grid of 2**-24 that logarithms are rounded to, the rounding included.

    Privacy
    -------
    Bounds by how much one logarithm moves on the grid.

    Source
    ------
    Specification 6.10; proof 7.7; ours.
    """
    return math.ceil(spread_of_logs(parted) * (1 << _LOG_BITS)) + 1


def _of_logs(k: int, parted: int, loss: PrivacyLoss) -> tuple[int, int]:
    """Return the squared sensitivity of k logarithms, in steps of their grid, and the rho (nano) of their noise.

    The later stage conditions on the noisy distances, which costs a factor 1 - delta of their rho, as in every first
    stage.
    """
    return log_steps(parted) ** 2 * k, loss.rho_nano // 2 * (DELTA_UNIT - loss.delta_femto) // DELTA_UNIT


def own_centers(balls: Balls, parted: int, loss: PrivacyLoss, noise: Noise) -> Estimate | None:
    """Add noise to the balls' centers in proportion to noisy distances: PrivatekNoisyCenters with each tuple's own
    radii.

    The result is None if a noisy distance asks for more noise than can be drawn, which is a rule on released values.

    Privacy
    -------
    (rho, delta)-zCDP between two neighbors' balls that partition a common tuple, with half of rho for each step. The
    logarithm of a distance moves by at most kappa. The noise has e^u times 1.3 times the scale that a known distance
    would need, with u the quantile of delta / k, so it is useful only for Delta of several hundred.

    Source
    ------
    Specification 6.10; proof 7.7; erratum 4.3; Cohen et al. 2021, PrivatekNoisyCenters. Ours: noise on the logarithm,
    on a grid of 2**-24.
    """
    variance = gaussian_variance(*_of_logs(len(balls.centers), parted, loss))
    u = math.sqrt(variance) * tail_quantile(loss.delta / len(balls.centers))
    drawn = noise.discrete_gaussian(variance, len(balls.centers))
    return centers_at(balls, parted, drawn, u, loss.rho_nano - loss.rho_nano // 2, noise)


def centers_at(
    balls: Balls, parted: int, drawn: NDArray[np.int64], quantile: float, rho_nano: int, noise: Noise
) -> Estimate | None:
    """Add noise to the balls' centers in proportion to their noisy distances: the second step with own radii.

    The result is None if a noisy distance asks for more noise than can be drawn, which is a rule on released values.

    Parameters
    ----------
    balls : Balls
    parted : int
        Delta.
    drawn : int64 (k,)
        Noise of the first step, which goes on the logarithms of the distances, in steps of `log_steps`.
    quantile : float
        What that noise exceeds in one coordinate with probability at most delta / k, in the same steps.
    rho_nano : int
        Of this step.
    noise : Noise

    Privacy
    -------
    Unless the first step's noise goes below minus its `quantile` somewhere, a center moves by no more than the reach
    that the noisy distance stands for, so this step is rho-zCDP between two neighbors' balls that partition a common
    tuple.

    Source
    ------
    Specification 6.10; proof 7.7; Cohen et al. 2021, PrivatekNoisyCenters.
    """
    from ..._kernels import clusters

    k, d = balls.centers.shape
    alone = np.empty((1, k))
    clusters.isolations(np.ascontiguousarray(balls.centers[None]), alone)
    grid = 2.0**-_LOG_BITS
    # A tuple with equal points, whose distance is 0, comes here only if the test erred; it must get a result as well.
    logs = np.rint(np.array([math.log(max(x, 1.0)) for x in alone[0]]) / 2 / grid).astype(np.int64)
    u = (quantile + 2) * grid  # a discrete tail is that of one step less, and a logarithm is rounded
    with np.errstate(over="ignore"):
        reach = np.exp((logs + drawn) * grid + u) * (1 + math.exp(spread_of_logs(parted))) / parted * (1 + 1e-9)
    value, sigma = np.empty((k, d)), np.empty((k, d))
    if not np.isfinite(reach).all():
        return None
    squares = [Fraction(max(1.0, x)) ** 2 * k for x in reach.tolist()]
    variances = [gaussian_variance(square, rho_nano) for square in squares]
    if max(variances) > MAX_VARIANCE:
        return None
    for i, own in enumerate(variances):
        value[i] = balls.centers[i] + noise.discrete_gaussian(own, d)
        sigma[i] = math.sqrt(own)
    return Estimate(value, sigma, 0)


def averages(
    balls: Balls, tuples: NDArray[np.float64], radius_squared: int, outlier_tuples: int, rho_nano: int, noise: Noise
) -> Estimate:
    """Average the points in each ball over the tuples that the balls partition: PrivatekAverages on ordered tuples.

    Parameters
    ----------
    balls : Balls
        Balls of one public radius, 7 radii apart.
    tuples : float64 (q, k, d)
        Tuples that the test compared.
    radius_squared : int
    outlier_tuples : int
        Number l of these tuples that the balls may leave out.
    rho_nano : int
    noise : Noise

    Privacy
    -------
    rho-zCDP with delta = 0 between neighbors' balls that both leave out at most l of q >= 2 l + 2 tuples. Both order
    common tuples alike, and a mean moves by at most 4 r (l + 1) / (q - l), plus the rounding to its grid.

    Source
    ------
    Specification 6.10; proof 7.7; Cohen et al. 2021, PrivatekAverages. Ours: ordered tuples and a public radius, so the
    group is l + 1 and not 2 k (l + 1); better than `noisy_centers` from q > 3 l + 2 on.
    """
    from ..._kernels import clusters

    k, d = balls.centers.shape
    q = len(tuples)
    width = 4 * sqrt_up(radius_squared, 40) * (outlier_tuples + 1) / max(1, q - outlier_tuples)
    inside = np.ascontiguousarray(tuples[balls.members])
    if len(inside) == 0:  # only where the test erred: it must answer all the same
        inside = np.ascontiguousarray(balls.centers[None])
    ordered = np.empty_like(inside)
    clusters.number(balls.centers, inside, ordered)
    totals = column_totals(ordered.astype(np.int64).reshape(-1, k * d), MAX_COORDINATE)
    found = _noisy_average(totals, len(ordered), width * sqrt_up(k, 40), rho_nano, 0, noise)
    return Estimate(found.value.reshape(k, d), found.sigma.reshape(k, d), 0)


def nearest_averages(
    balls: Balls,
    tuples: NDArray[np.float64],
    origin: NDArray[np.float64],
    ball_squared: int,
    outlier_tuples: int,
    rho_nano: int,
    noise: Noise,
) -> Estimate:
    """Average all points by their nearest center: PrivatekAverages as printed.

    This serves as a reference only, because it needs about 10**6 tuples.

    Privacy
    -------
    As `averages`, for tuples whose points lie in the public ball. Sensitivity of the sums k R (sqrt(2) l + 2), of the
    counts sqrt(2) k (l + 1): every tuple that neighbors' balls do not both partition may be cut another way.

    Source
    ------
    Specification 6.10; proof 7.7; Cohen et al. 2021, PrivatekAverages (4.3); joint sensitivities ours.
    """
    from ..._kernels import clusters

    k, d = balls.centers.shape
    labels = np.empty(tuples.shape[:2], np.int64)
    clusters.cut(np.ascontiguousarray(tuples), balls.centers, labels)
    offsets = (tuples - origin).astype(np.int64)
    reach = sqrt_up(ball_squared, 40) * k * (sqrt_up(2, 40) * outlier_tuples + 2)
    counts_rho = max(1, rho_nano // 10)
    sums_variance = gaussian_variance(reach**2, rho_nano - counts_rho)
    counts_variance = gaussian_variance(2 * (k * (outlier_tuples + 1)) ** 2, counts_rho)
    value, sigma = np.empty((k, d)), np.empty((k, d))
    noisy_counts = noise.discrete_gaussian(counts_variance, k).tolist()
    for j in range(k):
        chosen = labels == j
        count = max(1, int(np.count_nonzero(chosen)) + noisy_counts[j])
        drawn = noise.discrete_gaussian(sums_variance, d).tolist()
        total = [a + b for a, b in zip(column_totals(offsets[chosen], 2 * MAX_COORDINATE), drawn, strict=True)]
        value[j], sigma[j] = origin + np.array([x / count for x in total]), math.sqrt(sums_variance) / count
    return Estimate(value, sigma, 0)


def as_set(found: Estimate) -> Estimate:
    """Sort noisy centers, which are in the order of one tuple's points.

    Privacy
    -------
    The order tells something of that tuple, and a later step could depend on it if two centers tie.

    Source
    ------
    Specification 6.10; proof 7.7; ours.
    """
    order = np.lexsort((*found.sigma.T, *found.value.T[::-1]))
    return Estimate(found.value[order], found.sigma[order], found.count)


@dataclass(frozen=True)
class BallCenters:
    """Mechanism that tests tuples with a G form, then releases noisy centers or averages of the balls that passed.

    Parameters
    ----------
    loss : PrivacyLoss
        (rho, delta) of all stages together.
    test : GaussianTest
    k, dimension : int
    radius_nano : int
        rho (nano) for finding the radius; 0 with a public radius or with each ball's own radius.
    radii_squared : tuple of int
        Squared separations in lattice steps, ascending; or the one public squared radius; or empty if each ball has
        its own radius.
    parted : int
        Delta, at least 7: distance of the balls in radii. The noise is proportional to the radius.
    answer : str
        Last stage: ``centers``, ``averages``, or ``nearest`` (for reference).
    origin : tuple of int
        Center of the public ball; for ``nearest``.
    ball_squared : int
        Squared radius of the public ball; for ``nearest``.
    check_nano : int
        rho (nano) of the check that the balls of nearly all tuples partition each other, without which the test is not
        started; 0 leaves it out.

    Privacy
    -------
    Protects one of t tuples that is REPLACED by another, with (rho, delta)-zCDP. The radius costs rho_r (see
    `noisy_mode`), the check its rho (see `MatchCheck`), the test its loss, and the answer the rest; only own radii need
    a delta. The answer is not started,
    and not paid for, if the test fails.

    Complexity
    ----------
    m t comparisons, and t**2 for the check.

    Source
    ------
    Specification 6.8, 6.10, 6.12, 6.19; proofs 7.5, 7.7, 7.11; erratum 4.3; Cohen et al. 2021, PrivateTestPartition,
    PrivatekNoisyCenters, PrivatekAverages; see the module for what differs.
    """

    loss: PrivacyLoss
    test: GaussianTest
    k: int
    dimension: int
    radius_nano: int
    radii_squared: tuple[int, ...]
    parted: int = 7
    answer: str = "centers"
    origin: tuple[int, ...] = ()
    ball_squared: int = 1
    check_nano: int = 0

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise ConfigError(f"must be one of {', '.join(ANSWERS)}", "answer", got=self.answer)
        if (self.radius_nano > 0) != (len(self.radii_squared) > 1):
            raise ConfigError("must leave rho for finding the radius on a grid, and none otherwise", "shares")
        if not self.radii_squared and (self.answer != "centers" or self.last.delta_femto < 1):
            raise ConfigError(
                "must be a grid of radii or a public radius, but for 'centers' with delta of their own", "radius"
            )
        if not self.radii_squared and self.k < 2:
            raise ConfigError("must be a public radius for k = 1: one point has no distance to another", "radius")
        if self.last.rho_nano < 2:
            raise ConfigError("must leave rho for the answer", "shares")
        _ = self.check  # refuses what cannot be checked, now
        if len(self.radii_squared) == 1:
            _ = Geometry(self.radii_squared[0], self.parted)
        self._check_noise()

    def _check_noise(self) -> None:
        """Refuse a rho with which the noise of the largest radius could not be drawn."""
        rho = self.last.rho_nano
        if not self.radii_squared:
            return check_noise(*_of_logs(self.k, self.parted, self.last))
        largest = self.radii_squared[0] if len(self.radii_squared) == 1 else self.radii_squared[-1] // self.parted**2
        if self.answer == "centers":
            return check_noise(4 * self.k * largest, rho)
        if self.answer == "averages":  # one that leaves out l of q >= 2 l + 2 tuples moves by less than 4 r
            return check_average(4 * sqrt_up(largest, 40) * sqrt_up(self.k, 40), rho)
        reach = sqrt_up(self.ball_squared, 40) * self.k * (sqrt_up(2, 40) * self.test.max_outlier_tuples + 2)
        return check_noise(reach**2, rho - max(1, rho // 10))

    @property
    def tuples(self) -> int:
        return self.test.tuples

    @cached_property
    def last(self) -> PrivacyLoss:
        """Return the loss of the last stage, which is not spent if the tuples do not agree."""
        return self.loss - self.test.loss - PrivacyLoss(self.radius_nano + self.check_nano)

    @cached_property
    def check(self) -> MatchCheck | None:
        return MatchCheck(self.check_nano, self.tuples, self.test.pair_tolerance) if self.check_nano else None

    @property
    def refusal(self) -> PrivacyLoss:
        """Return what tuples cost that the check does not let pass."""
        return PrivacyLoss(self.radius_nano + self.check_nano) if self.check else self.loss - self.last

    def release(self, tuples: NDArray[np.float64], noise: Noise, start: Start) -> tuple[str | None, Estimate | None]:
        """Return a reason to refuse, or the estimate with value and sigma (k, d).

        `start` is called before every stage.
        """
        radius_squared: int | None = None
        if self.radii_squared:
            radius_squared = self._radius(tuples, noise, start)
            if radius_squared is None:
                return "no_radius", None
        geometry = Geometry(radius_squared, self.parted)
        if self.check and not self.check.passes(partitioned_pairs(geometry, tuples), noise, start):
            return "no_match", None
        balls = self.test.release(tuples, geometry, noise, start)
        if balls is None:
            return "no_match", None
        start(self.last)
        found = self._answer(balls, tuples, radius_squared, noise)
        if found is None:
            return "no_radius", None
        return None, as_set(found)

    def _answer(
        self, balls: Balls, tuples: NDArray[np.float64], radius_squared: int | None, noise: Noise
    ) -> Estimate | None:
        """Run the last stage."""
        rho = self.last.rho_nano
        if radius_squared is None:
            return own_centers(balls, self.parted, self.last, noise)
        if self.answer == "centers":
            return noisy_centers(balls, radius_squared, rho, noise)
        compared, outlier_tuples = tuples[self.test.positions :], self.test.max_outlier_tuples
        if self.answer == "averages":
            return averages(balls, compared, radius_squared, outlier_tuples, rho, noise)
        origin = np.array(self.origin, np.float64)
        return nearest_averages(balls, compared, origin, self.ball_squared, outlier_tuples, rho, noise)

    def _radius(self, tuples: NDArray[np.float64], noise: Noise, start: Start) -> int | None:
        """Return the public squared radius, or find it as 1 / `parted` of a separation that nearly all tuples have."""
        if len(self.radii_squared) == 1:
            return self.radii_squared[0]
        start(PrivacyLoss(self.radius_nano))
        b = noisy_mode(tuples, self.radii_squared, self.radius_nano, noise)
        found = None if b is None else self.radii_squared[max(0, b - 2)] // self.parted**2
        return found or None
