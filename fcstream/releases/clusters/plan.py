"""Plans for clusters: the number of shards and the shares of rho, chosen from public numbers before any record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError
from ...stream.lattice import MAX_RADIUS_SQUARED, Lattice
from ..averages import MIN_NANO, BallAverage
from ..core_stage import normal_above
from ..means.approximate_dp import paid_by
from .agreement import PARTED, GaussianTest, fewest_gaussian, plan_gaussian
from .ktuples import BallCenters
from .oracles import Oracle, find
from .paper import PaperCenters, fewest_laplace, plan_centers, plan_laplace
from .pipeline import MIN_PER_CENTER, ClusteringAlgorithm, LloydStep
from .shards import Shards
from .tuples import GAMMA, RADIUS_RATIO, SEARCH_RATIO, TupleAverage, radius_grid


@dataclass(frozen=True)
class ClusterPlan:
    """Division of a job's loss and records, chosen from public numbers.

    Attributes
    ----------
    tuples : int
        Number t of tuples.
    radius_nano, check_nano, core_nano, average_nano, lloyd_nano : int
        rho (nano) of the stages.
    outlier_tuples : float
        Share of tuples that may match nothing, so that 95% of windows still release.
    separation : float
        Predicted smallest distance between centers, in standard deviations of a cluster, at which that many tuples
        match.

    Privacy
    -------
    Holds public numbers only, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """

    tuples: int
    radius_nano: int
    check_nano: int
    core_nano: int
    average_nano: int
    lloyd_nano: int
    outlier_tuples: float
    separation: float


_RELEASED = 0.95
_BALL_OUTLIER_TUPLES = 0.05
_BALL_BETA = 0.005
_BALL_FINENESS = 8.0
_MIN_OUTLIER_TUPLES = 0.03  # of the tuples: oracles go wrong now and then
_RADIUS_SHARE = 15  # of 1000 parts of rho, for finding a radius by a histogram
_CHECK_SHARE = 35  # of 1000 parts of rho, for the check that tuples match
_FINENESS = 12.0  # the average's noise is at most this part of the smallest distance between centers


def plan_clusters(
    loss: PrivacyLoss,
    k: int,
    dimension: int,
    size_hint: int,
    make: Callable[[PrivacyLoss, int, int, int], TupleAverage],
    tuples: int | None = None,
    lloyd: bool = True,
) -> ClusterPlan:
    """Choose t and the shares so that clusters may lie as close together as possible.

    Parameters
    ----------
    loss : PrivacyLoss
        Loss of the whole release.
    k, dimension, size_hint : int
        Public numbers.
    make : callable
        ``make(loss, tuples, radius_nano, core_nano)`` returns the tuples' average with these shares.
    tuples : int, optional
        Fixed number t of tuples.
    lloyd : bool
        Whether a Lloyd step over all records follows.

    Raises
    ------
    ConfigError
        No t works: too little rho, or too few records for that many shards.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; erratum 1.12; ours. More tuples stand more that match nothing, fewer have more exact centers:
    the best t is where the predicted separation is smallest. It is told for clusters of equal size and the same
    deviation in every coordinate.
    """
    most = size_hint // (MIN_PER_CENTER * k)
    best: ClusterPlan | None = None
    rho = loss.rho_nano
    share = _lloyd_share(rho, k, dimension, size_hint) if lloyd else 0
    for t in [tuples] if tuples is not None else _sizes(most):
        for part in (0.02, 0.03, 0.05, 0.08, 0.12, 0.18):
            found = _try(loss, k, dimension, size_hint, make, t, int(rho * part), share)
            if found is not None and (best is None or found.separation < best.separation):
                best = found
    if best is None:
        raise ConfigError(
            f"must be larger, or size_hint be: {size_hint} records make at most {max(most, 0)} shards of {k} centers, "
            f"and at rho={loss.rho:g} and delta={loss.delta:g} the core of that many tuples keeps none",
            "rho",
        )
    return best


def _sizes(max_tuples: int) -> list[int]:
    """Return the numbers of tuples to try, in steps of 4%."""
    return [t for t in sorted({round(20 * 1.04**i) for i in range(270)}) if t <= max_tuples]


def _lloyd_share(rho: int, k: int, dimension: int, size_hint: int) -> int:
    """Return the Lloyd step's share of rho: a tenth, or up to three tenths to keep a part's noise small.

    The noise of a part should not be above 1/1000 of the ball's radius.
    """
    for tenths in (0.10, 0.15, 0.2, 0.3):
        share = int(rho * tenths)
        if share > 0 and BallAverage.split(max(share, 2 * MIN_NANO), dimension).sigma(1, size_hint / k) <= 1e-3:
            break
    return share


def _try(
    loss: PrivacyLoss,
    k: int,
    dimension: int,
    size_hint: int,
    make: Callable[[PrivacyLoss, int, int, int], TupleAverage],
    t: int,
    average_nano: int,
    lloyd_nano: int,
) -> ClusterPlan | None:
    """Make the plan for one t and one share of the average, or None if it cannot work."""
    main = loss - PrivacyLoss(lloyd_nano)
    # A bin of the histogram gets a noise of 1/15 of t, or what 1.5% of rho buys.
    radius_nano = min(int(10**9 * (15 / t) ** 2), main.rho_nano * _RADIUS_SHARE // 1000)
    core_nano = main.rho_nano - average_nano - radius_nano - main.rho_nano * _CHECK_SHARE // 1000
    try:
        average = make(main, t, radius_nano, core_nano)
    except ConfigError:
        return None
    radius_nano = average.radius_nano
    step = average.average(average.radii_squared[-1])
    reach = float(average.gamma / (1 - average.gamma)) * 1.25
    usable = 2 * reach * _FINENESS * math.sqrt(k / (2 * step.rho2))
    if average.forecast(0.0, usable)[0] < _RELEASED:
        return None
    low, high = 0.0, 0.5
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if average.forecast(middle, usable)[0] >= _RELEASED else (low, middle)
    if low < _MIN_OUTLIER_TUPLES:
        return None
    # Two clusters at the smallest distance D: each pair of their means must lie within gamma D.
    reach = typical_quantile(dimension, low / 2) * math.sqrt(2 * t * k / size_hint)
    separation, check_nano = reach / float(average.gamma), average.check_nano
    return ClusterPlan(t, radius_nano, check_nano, average.core_nano, average_nano, lloyd_nano, low, separation)


def typical_quantile(dimension: int, beta: float) -> float:
    """Return the length that a standard Gaussian vector exceeds with probability about beta.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; Wilson and Hilferty 1931.
    """
    low, high = -8.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_above(middle) > beta else (low, middle)
    shrink = 2 / (9 * dimension)
    return math.sqrt(dimension) * float(max(0.0, 1 - shrink + high * math.sqrt(shrink)) ** 1.5)


@dataclass(frozen=True)
class BallPlan:
    """Division of a job for a G form test and its noisy centers; fields are those of `ClusterPlan` unless listed here.

    Attributes
    ----------
    tuples, radius_nano, check_nano, lloyd_nano : int
    test : GaussianTest
    parted : int
        Delta: how many radii apart balls must be, so that the centers' noise is small against their distance.
    outlier_tuples, separation : float

    Privacy
    -------
    Holds public numbers only, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """

    tuples: int
    radius_nano: int
    check_nano: int
    lloyd_nano: int
    test: GaussianTest
    parted: int
    outlier_tuples: float
    separation: float


def plan_balls(loss: PrivacyLoss, k: int, dimension: int, size_hint: int, lloyd: bool = True) -> BallPlan | None:
    """Find the best division for a G form, or None if there are too few records for the tuples that its test needs.

    Parameters are those of `plan_clusters`.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; ours, from tests of Cohen et al. 2021: noise of 2 r sqrt(k / (2 rho)) asks for radii that are
    small against the distances, and so for exact tuples.
    """
    best: BallPlan | None = None
    share = _lloyd_share(loss.rho_nano, k, dimension, size_hint) if lloyd else 0
    radius, check = (loss.rho_nano - share) * _RADIUS_SHARE // 1000, (loss.rho_nano - share) * _CHECK_SHARE // 1000
    rest = loss.rho_nano - share - radius - check
    for part in (0.3, 0.5, 0.7):
        budget = PrivacyLoss(int(rest * part), loss.delta_femto)
        try:
            t = fewest_gaussian(budget, _BALL_OUTLIER_TUPLES, _BALL_BETA)
        except ConfigError:
            continue
        test = plan_gaussian(budget, t, _BALL_OUTLIER_TUPLES, _BALL_BETA)
        if test is None or t * MIN_PER_CENTER * k > size_hint:
            continue
        answer = rest - budget.rho_nano
        parted = max(PARTED, math.ceil(2 * _BALL_FINENESS * math.sqrt(k * RHO_UNIT / (2 * answer))))
        if parted > 10**4:
            continue
        # Radii lie between one and two steps below 1 / `parted` of the distance.
        reach = (
            typical_quantile(dimension, _BALL_OUTLIER_TUPLES / 2) * math.sqrt(2 * t * k / size_hint) * RADIUS_RATIO**1.5
        )
        if best is None or parted * reach < best.separation:
            best = BallPlan(t, radius, check, share, test, parted, _BALL_OUTLIER_TUPLES, parted * reach)
    return best


@dataclass(frozen=True)
class PaperPlan:
    """Division of a job for the k-tuple paper's own forms; fields are those of `ClusterPlan` unless listed here.

    Attributes
    ----------
    average : PaperCenters
    lloyd_nano : int
    separation : float

    Privacy
    -------
    Holds public numbers only, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """

    average: PaperCenters
    lloyd_nano: int
    separation: float

    @property
    def tuples(self) -> int:
        return self.average.tuples


def plan_paper(loss: PrivacyLoss, k: int, dimension: int, size_hint: int, lloyd: bool = True) -> PaperPlan:
    """Find the best division for the k-tuple paper's own forms. Parameters are those of `plan_clusters`.

    Raises
    ------
    ConfigError
        Too little rho, or too few records for the tuples that the test needs.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.13; proofs 7.6, 7.7; ours, from tests of Cohen et al. 2021.
    """
    share = _lloyd_share(loss.rho_nano, k, dimension, size_hint) if lloyd else 0
    whole, fewest, best = PrivacyLoss(loss.rho_nano - share, loss.delta_femto), math.inf, None
    check = whole.rho_nano * _CHECK_SHARE // 1000
    main = whole - PrivacyLoss(check)
    for part in (0.3, 0.5, 0.7, 0.8):
        epsilon = paid_by(main).epsilon * part
        try:
            t = fewest_laplace(epsilon, loss.delta / 2, _BALL_BETA)
        except ConfigError:
            continue
        fewest, test = min(fewest, t * MIN_PER_CENTER * k), plan_laplace(t, epsilon, loss.delta / 2, _BALL_BETA)
        if test is None or t * MIN_PER_CENTER * k > size_hint:
            continue
        found = plan_centers(main, test, k, dimension, _BALL_FINENESS)
        if found is not None:
            reach = typical_quantile(dimension, _BALL_OUTLIER_TUPLES / 2) * math.sqrt(2 * t * k / size_hint)
            if best is None or found.parted * reach < best.separation:
                best = PaperPlan(replace(found, loss=whole, check_nano=check), share, found.parted * reach)
    if best is None:
        raise ConfigError(
            f"must be larger, or size_hint be: with variant 'paper' at rho={loss.rho:g} and delta={loss.delta:g} "
            f"{size_hint} records are too few" + (f", {fewest} would do" if size_hint < fewest < math.inf else ""),
            "rho",
        )
    return best


@dataclass(frozen=True)
class PlanChoice:
    """Plan that was chosen for a job, and the reason for the choice.

    Attributes
    ----------
    plan : ClusterPlan, BallPlan or PaperPlan
    why : str
        Reason for the user: one sentence, which contains public numbers only.

    Privacy
    -------
    Holds public numbers only, so it costs nothing.

    Source
    ------
    Specification 6.13; ours.
    """

    plan: ClusterPlan | BallPlan | PaperPlan
    why: str


def _chosen(core: ClusterPlan | None, balls: BallPlan | None) -> PlanChoice:
    """Choose the plan that works for clusters closer together, and give the reason."""

    def describe(plan: ClusterPlan | BallPlan) -> str:
        return f"{plan.tuples} tuples and clusters {plan.separation:.3g} of their deviations apart"

    if core is not None and (balls is None or core.separation <= balls.separation):
        other = f"the G form asks for {describe(balls)}" if balls is not None else "no G form was to be had"
        return PlanChoice(core, f"a core of tuples, which asks for {describe(core)}: {other}")
    assert balls is not None
    other = f"a core asks for {describe(core)}" if core is not None else "no core was to be had of so few records"
    return PlanChoice(balls, f"the G form, which asks for {describe(balls)}: {other}")


@dataclass(frozen=True)
class ClusterJob:
    """Description of clusters that a user gives; all of it is public and in the coordinates' scaled units.

    Attributes
    ----------
    k : int
    center : tuple of float
        Center of the public ball in which records lie.
    ball : float
        Radius of the public ball.
    size_hint : int
        Public guess of the number of records.
    oracle : str or callable
        See `oracles.find`.
    radius : str or float
        ``histogram`` (default; ``search`` for k = 1), ``search``, or a public radius within which matched points lie.
    radius_min : float or None
        Smallest distance between centers to look for; 1/1000 of the ball's radius by default.
    tuples : int or None
        Fixed number of shards.
    spread : float or None
        Public radius of a cluster around its center.
    fallback : str or None
        Algorithm that gets `fallback_share` of rho if the tuples do not match: ``tree``. With None the window is then
        refused.
    fallback_share : float
    gamma : Fraction
    method : str
        ``friendly`` (a core of tuples), ``ktuples`` (a G form), or ``auto``: whichever of the two works for clusters
        closer together.
    lloyd : bool
        Whether a Lloyd step over all records follows, which takes a share of rho.
    variant : str or None
        ``paper``: of ``ktuples`` the paper's own forms, `PaperCenters`.

    Privacy
    -------
    Holds public numbers only, so it costs nothing.

    Source
    ------
    Specification 6.12, 6.13; Tsfadia et al. 2022, FC_Clustering.
    """

    k: int
    center: tuple[float, ...]
    ball: float
    size_hint: int
    oracle: str | Oracle = "auto"
    radius: str | float = "histogram"
    radius_min: float | None = None
    tuples: int | None = None
    spread: float | None = None
    fallback: str | None = None
    fallback_share: float = 0.1
    gamma: Fraction = GAMMA
    method: str = "auto"
    lloyd: bool = True
    variant: str | None = None

    def mechanism(self, loss: PrivacyLoss, lattice: Lattice) -> ClusteringAlgorithm:
        """Make the algorithm for this loss.

        Raises
        ------
        ConfigError
            If a value cannot be used, or if the job could not release at any t.
        """
        fallback = self.fallback_rho(loss)
        main = loss - PrivacyLoss(fallback)
        shards, average = self.parts(main, lattice)
        spread = None if self.spread is None else lattice.radius_squared(self.spread, "spread")
        share = PrivacyLoss((main - average.loss).rho_nano)
        step = LloydStep(share, shards.origin, shards.ball_squared, spread, parts=self.k)
        return ClusteringAlgorithm(loss, shards, average, step, fallback)

    def parts(self, loss: PrivacyLoss, lattice: Lattice) -> tuple[Shards, TupleAverage | BallCenters | PaperCenters]:
        """Make the two stages that turn records into tuples, and tuples into one tuple.

        The part of the loss that they leave goes to the Lloyd step.

        Raises
        ------
        ConfigError
            As `mechanism`.
        """
        ball_squared, origin = self._ball(lattice)
        plan = self.choose(loss, lattice).plan
        oracle = find(self.oracle, self.k, len(self.center))
        shards = Shards(plan.tuples, self.k, oracle, origin, ball_squared, lattice.step)
        if isinstance(plan, PaperPlan):
            return shards, plan.average
        rest = loss - PrivacyLoss(plan.lloyd_nano)
        if isinstance(plan, BallPlan):
            radii_squared = self._radii_squared(lattice, RADIUS_RATIO)
            return shards, BallCenters(
                rest, plan.test, self.k, len(self.center), plan.radius_nano, radii_squared, plan.parted,
                check_nano=plan.check_nano,
            )  # fmt: skip
        return shards, self._average(lattice)(rest, plan.tuples, plan.radius_nano, plan.core_nano)

    def choose(self, loss: PrivacyLoss, lattice: Lattice) -> PlanChoice:
        """Choose how the loss and the records are divided, for a core or for a G form, and give the reason."""
        if self.k < 1:
            raise ConfigError("must be at least 1", "k", got=self.k)
        if self.size_hint < 1:
            raise ConfigError(
                "must be a public guess of the number of records, at least 1", "size_hint", got=self.size_hint
            )
        if self.tuples is not None and self.tuples < 1:
            raise ConfigError("must be at least 1", "tuples", got=self.tuples, remedy="leave it out")
        if self.method not in ("auto", "friendly", "ktuples"):
            raise ConfigError("must be 'auto', 'friendly' or 'ktuples'", "method", got=self.method)
        d, balls, core, refusal = len(self.center), None, None, None
        if self.variant is not None:
            return self._paper(loss)
        if self.method != "friendly" and self.k > 1 and self.tuples is None and self.radius == "histogram":
            balls = plan_balls(loss, self.k, d, self.size_hint, self.lloyd)
        if self.method != "ktuples":
            try:
                make = self._average(lattice)
                core = plan_clusters(loss, self.k, d, self.size_hint, make, self.tuples, self.lloyd)
            except ConfigError as error:
                refusal = error
        if core is None and balls is None:
            raise refusal or ConfigError(
                f"must be 'friendly' or 'auto' here: {self.size_hint} records are too few for a G form, or the radius, "
                "the number of tuples or k = 1 leave it no choice",
                "method",
            )
        return _chosen(core, balls)

    def _paper(self, loss: PrivacyLoss) -> PlanChoice:
        """Choose how the loss is divided for the paper's own forms."""
        if self.variant != "paper":
            raise ConfigError("must be 'paper' or left out", "variant", got=self.variant)
        if self.method != "ktuples":
            raise ConfigError("belongs to method 'ktuples'", "variant")
        for name, is_default in (("radius", self.radius == "histogram"), ("tuples", self.tuples is None)):
            if not is_default:
                raise ConfigError("must be left out with variant 'paper', which has radii and tuples of its own", name)
        if self.k < 2:
            raise ConfigError("must be at least 2 with variant 'paper': one point has no radius of its own", "k")
        plan = plan_paper(loss, self.k, len(self.center), self.size_hint, self.lloyd)
        asked = f"{plan.tuples} tuples and clusters {plan.separation:.3g} of their deviations apart"
        paid = f"{plan.average.total}, at once"
        return PlanChoice(plan, f"the paper's own radii and Laplace noise, which ask for {asked}, and cost {paid}")

    def _ball(self, lattice: Lattice) -> tuple[int, tuple[int, ...]]:
        if not self.center or not all(map(math.isfinite, self.center)):
            raise ConfigError("must list one finite number for each coordinate", "center")
        # The ball is wider by half a step in every coordinate, so that rounding takes no record out of it.
        reach = self.ball + lattice.step * math.sqrt(len(self.center)) / 2
        return lattice.radius_squared(reach, "ball"), tuple(int(x) for x in lattice.coordinates(self.center))

    def fallback_rho(self, loss: PrivacyLoss) -> int:
        """Return the rho (nano) kept for the fallback."""
        if self.fallback is None:
            return 0
        if self.fallback != "tree":
            raise ConfigError("must be 'tree' or absent", "fallback", got=self.fallback)
        if not 0 < self.fallback_share < 1:
            raise ConfigError("must be in (0, 1)", "fallback_share", got=self.fallback_share)
        return max(1, int(loss.rho_nano * self.fallback_share))

    def _radii_squared(self, lattice: Lattice, ratio: float) -> tuple[int, ...]:
        """Return the squared distances from the smallest one to look for to the ball's diameter, `ratio` apart."""
        smallest = max(1.0, (self.radius_min or self.ball / 1000) / lattice.step)
        largest = 2 * math.sqrt(self._ball(lattice)[0])
        return radius_grid(smallest, min(largest, math.sqrt(MAX_RADIUS_SQUARED)), ratio)

    def _average(self, lattice: Lattice) -> Callable[[PrivacyLoss, int, int, int], TupleAverage]:
        """Return the argument ``make`` of `plan_clusters`."""
        d = len(self.center)
        method = "search" if self.radius == "histogram" and self.k == 1 else self.radius
        if not isinstance(method, str):
            public = (lattice.radius_squared(method, "radius"),)
            return lambda loss, t, _, core: TupleAverage(
                loss, t, self.k, d, 0, core, public, "public", self.gamma, loss.rho_nano * _CHECK_SHARE // 1000
            )
        radii_squared = self._radii_squared(lattice, SEARCH_RATIO if method == "search" else RADIUS_RATIO)

        def make(loss: PrivacyLoss, t: int, radius: int, core: int) -> TupleAverage:
            if method == "search":  # a test that lets go a tenth of the pairs, with noise far below that
                tests = max(1, math.ceil(math.log2(len(radii_squared))))
                wanted = int(min(0.3 * loss.rho, tests * 4 * 5.0 * (10 / t) ** 2) * RHO_UNIT)
                core, radius = core + radius - wanted, wanted
            check = loss.rho_nano * _CHECK_SHARE // 1000
            if self.k == 1:  # a check before a search would tell nothing: all points are within the largest radius
                core, check = core + check, 0
            return TupleAverage(loss, t, self.k, d, radius, core, radii_squared, method, self.gamma, check)

        return make
