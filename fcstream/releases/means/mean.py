"""Means of a window: their options, FC_Avg, BallAvg around a public center, and the recentred average of a core."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...cores.sampled_filters import PairSampling
from ...counting.views import Selection, WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..averages import BallAverage, Estimate, FriendlyAverage, ball_squared, norm_quantile, to_center
from ..base import Forecast, Mechanism, Outcome, PointMechanism, Spread, percent
from ..core_stage import (
    CoreFilter,
    CoreStage,
    core_law,
    core_share,
    find_core,
    mean_size,
    release_probability,
)
from ..options import BuildContext, Options
from ..reasons import LEFT_OUT
from ..trees.growing import box_of
from .ball import BallMean, ball_center
from .clipped_mean import ClippedMean
from .predictions import friendly_noise, recentred_noise
from .shares import (
    RhoShares,
    bin_noise,
    divide_for_exact_core,
    divide_rho,
    friendly_core_rho,
    predicted_noise,
)
from .spread_histogram import (
    best_reach,
    fine_bins,
    histogram_radii,
    min_distance,
    supposed_bins,
    supposed_deviation,
)

_DOWN = 1 - 1e-9  # a radius at the end of a bin may be computed a little above it
LIKELY = 0.5
"""A mean that is told its share of outliers must release at least with this probability."""


class MeanOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "mean"``, the mean of a window.

    Released
    --------
    value
        One number per feature: the mean of all records; where outliers are left out, of the core.
    sigma
        One number per feature: the deviation of the added noise. `interval` holds the mean of all records in range,
        whatever they are, so it may be much wider; where records are left out it is null.
    count, core_count
        Noisy numbers of records in the window and behind the value.
    parts.tail_share
        Where the spread is found privately: the noisy share of records that were left out, or moved to the border of
        the ball.

    Cost
    ----
    rho; where records are left out also delta. A window with too few records a fifth of rho, and a few percent where
    records are left out.

    Privacy
    -------
    `ClippedMean`, `RecentredMean`, `FriendlyMean` and `BallMean` state the guarantees.

    Source
    ------
    Specification 5.2, 5.3, 5.4, 5.18, 12.1; proofs 5.3, 5.4, 5.11.
    """

    method: str = "recentered"
    """How the mean is found: in two steps (``recentered``), from the release before (``tracking``), as one of these
    two, whichever the settings predict nearer (``auto``), as FC_Avg of the paper (``friendly``), in a public ball
    (``ball``), or as FriendlyCore in (ε, δ) (``basic``, with keys of its own)."""
    radius: float | Literal["search"] | None = None
    """Distance within which nearly all pairs of normal records of a window lie, in scaled units; for ``ball`` the
    radius of the ball. ``search`` finds it privately between ``radius_min`` and ``radius_max``, for 1 to 10% of the
    budget. ``tracking`` may do without: then the first window starts from the public ranges."""
    spread: float | Literal["histogram"] = "histogram"
    """How far records typically lie from the center, in scaled units: found privately (``histogram``), or a public
    distance."""
    center: list[float] | None = None
    """For ``ball``: its center, in the features' own (transformed) units."""
    delta: float = 0.0
    """What one window costs at most, as a δ. Needed where a core is found, which leaves records out; by ``tracking``
    for windows that start cold with a ``radius``."""
    pairs: Literal["exact", "blocks", "hidden"] = "exact"
    """Which pairs of records a core is found from: all (``exact``), each record with random blocks of others
    (``blocks``), or each ordered pair by a secret coin (``hidden``). Samples are for windows of several hundred
    thousand records."""
    outliers: float | Literal["clip", "leave_out"] | None = None
    """What becomes of records that lie far out. ``clip``, the default of ``recentered``: the value is the mean of all,
    and what lies out of a ball that is found privately is moved to its border. ``leave_out``: the value is the mean of
    the others, a core, as always with ``friendly`` and ``tracking``. A number leaves out too, and is the share of
    records that are expected to be outliers, where they are many."""
    radius_min: float | None = None
    """Lower public end of the search, with ``radius = "search"``."""
    radius_max: float | None = None
    """Upper public end of the search, any number of powers of ten away."""

    @property
    def holds_records(self) -> bool:
        return self.method != "ball"

    def build(self, setting: BuildContext) -> Mechanism:
        is_ball = self.method == "ball"
        if self.pairs != "exact" and is_ball:
            raise ConfigError("belongs to the methods that find a core, not to 'ball'", "release.pairs")
        if self.pairs != "exact" and setting.reach > 1:
            raise ConfigError("must be 'exact' for sliding windows: coins serve one release", "release.pairs")
        if self.radius is None:
            raise ConfigError(
                "is required: the known diameter of the data (method 'ball': of the ball)", "release.radius"
            )
        if self.radius == "search":
            raise ConfigError(
                f"must be a number for method {self.method!r}: 'recentered' and 'friendly' search", "release.radius"
            )
        for key in ("radius_min", "radius_max"):
            if getattr(self, key) is not None:
                raise ConfigError(
                    f"belongs to radius 'search' of 'recentered' and 'friendly', not to method {self.method!r}",
                    f"release.{key}",
                )
        if self.outliers == "clip" and self.method != "recentered":
            raise ConfigError(
                "must be 'leave_out' or a share: 'clip' belongs to the method 'recentered'", "release.outliers"
            )
        if self.share and self.method not in ("recentered", "tracking"):
            raise ConfigError("must be no share but with the methods 'recentered' and 'tracking'", "release.outliers")
        if is_ball:
            if self.center is None or len(self.center) != setting.dimension:
                raise ConfigError(f"must list {setting.dimension} numbers for method 'ball'", "release.center")
            center = ball_center(self.center, setting.grid)
            squared = setting.grid.lattice.radius_squared(self.radius, "release.radius")
            return BallMean(self.pure_loss(), center, squared, box=box_of(setting.grid))
        if self.center is not None:
            raise ConfigError("belongs to method 'ball' only: the other methods find the center", "release.center")
        return self.clipped_mean(self.radius, setting) if self.clips else self.core_mean(self.radius, setting)

    @property
    def clips(self) -> bool:
        """Whether records that lie far out are moved to the border of a ball."""
        return self.method == "recentered" and self.outliers in (None, "clip")

    @property
    def spares_delta(self) -> bool:
        return self.clips

    @property
    def share(self) -> float:
        """Expected share of outliers."""
        return 0.0 if self.outliers is None or isinstance(self.outliers, str) else self.outliers

    def clipped_mean(self, radius: float, setting: BuildContext) -> ClippedMean:
        """Make the mechanism of the mean of all records; `radius` is the largest that is searched for."""
        if self.pairs != "exact":
            raise ConfigError("belongs to means that leave records out (`outliers` = 'leave_out')", "release.pairs")
        radius_squared = setting.grid.lattice.radius_squared(radius, "release.radius")
        size_hint, steps = self.checked_size_hint(), self._spread_steps(radius, setting)
        return ClippedMean(self.pure_loss(), box_of(setting.grid), radius_squared, size_hint, steps)

    def _spread_steps(self, radius: float, setting: BuildContext) -> float | None:
        if self.spread == "histogram":
            return None
        if isinstance(self.spread, str) or not (math.isfinite(self.spread) and 0 < self.spread <= radius):
            raise ConfigError(
                f"must be 'histogram' or a number in (0, radius = {radius:g}]", "release.spread", got=self.spread
            )
        return float(self.spread) / setting.grid.lattice.step

    def core_mean(self, radius: float, setting: BuildContext) -> FriendlyMean | RecentredMean:
        """Make the mechanism of a mean whose center is unknown."""
        loss, lattice = self.approximate_loss(self.delta), setting.grid.lattice
        size_hint = self.checked_size_hint()
        radius_squared = lattice.radius_squared(radius, "release.radius")
        if self.method == "friendly":
            return FriendlyMean(loss, radius_squared, setting.dimension, size_hint, self.pairs)
        steps = self._spread_steps(radius, setting)
        mean = RecentredMean(loss, radius_squared, setting.dimension, size_hint, steps, self.pairs, self.share)
        if self.method == "recentered":
            check_outliers(mean, self.share, size_hint)
        return mean


def check_outliers(mean: Mechanism, outliers: float, size_hint: int) -> None:
    """Refuse a mean that is told so many outliers that most windows would be refused, and only spend.

    Raises
    ------
    ConfigError
        What would help is in the message: fewer outliers, more records, more rho.

    Privacy
    -------
    Computed from public numbers alone, before any record is read.

    Source
    ------
    Specification 5.4; ours.
    """
    if not outliers or mean.forecast(size_hint).probability >= LIKELY:
        return
    enough, most = 2 * size_hint, 2**40
    while enough < most and mean.with_size_hint(enough).forecast(enough).probability < LIKELY:
        enough *= 2
    more = f"use windows of {enough} records (and set `size_hint` to that), " if enough < most else ""
    raise ConfigError(
        f"must leave a core: with {percent(outliers)} outliers a window of {size_hint} records would release with "
        f"probability {percent(mean.forecast(size_hint).probability)} at {mean.loss}, and spend most of it",
        "release.outliers",
        remedy=f"{more}raise {{rho}}, or expect fewer outliers",
        rho="release.rho",
    )


@dataclass(frozen=True)
class FriendlyMean(CoreStage, PointMechanism):
    """Mechanism FC_Avg: it finds a core with a part of rho, then takes the friendly average of that core.

    Parameters
    ----------
    loss : PrivacyLoss
    radius_squared : int
        Known diameter of the data, squared, in lattice steps.
    dimension, size_hint : int
        Public numbers.
    sampling : str
        Which pairs the core is found from: ``exact``, ``blocks`` or ``hidden`` (see `fcstream.counting.sampled`).
    given_pairs : PairSampling or None
        Pairs that the core is found from. None chooses them for this loss and size.

    Privacy
    -------
    Protects one record, added or removed, with (rho, delta)-zCDP: delta/2 and a part of rho that depends on public
    numbers are for the core, the rest for the average.

    Source
    ------
    Specification 5.3; proof 5.4; Tsfadia et al. 2022, FC_Avg and Theorem 4.1. The paper's core has a tenth of rho:
    too little for small windows, and more than need be for large ones; this share from a public hint is ours.
    """

    loss: PrivacyLoss
    radius_squared: int
    dimension: int
    size_hint: int
    sampling: str = "exact"
    kind: str = "mean"
    given_pairs: PairSampling | None = None

    def __post_init__(self) -> None:
        try:
            _ = self.core, self.average  # refuse budgets that are too small to divide, before any release
        except ConfigError as error:
            if error.key.startswith("release."):
                raise
            raise ConfigError(f"must be larger: {self.loss} cannot be divided", "release.rho") from None

    @cached_property
    def core(self) -> CoreFilter:
        loss = core_share(self.loss)  # of sampled pairs, as in `RecentredMean`
        if self.sampling == "exact":
            core = friendly_core_rho(self.loss, self.radius_squared, self.dimension, self.size_hint)
            loss = PrivacyLoss(core, loss.delta_femto)
        return self.pairs.filter(loss)

    @cached_property
    def average(self) -> FriendlyAverage:
        return FriendlyAverage(self.loss - self.core.loss, self.radius_squared, self.size_hint)

    def stages(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        """What `release` does under a charge that is open."""
        core = find_core(self.core, self.stop, view, charge, noise)
        if core.mask is None:
            return Outcome("too_few", count=core.count)
        estimate = self.average.release(view.select(core.mask), noise, charge.start)
        if estimate is None:
            return Outcome(self.refusal_reason(core.count), count=core.count)
        core_count = estimate.count + self.average.offset
        return Outcome(None, estimate.value, estimate.sigma, core.count, core_count, no_interval=LEFT_OUT)

    def forecast(self, size: int) -> Forecast:
        kept = core_law(self.core, size)
        return Forecast(
            release_probability(kept, [(self.average.offset + 0.5, float(self.average.size_variance))]),
            self.average.sigma(max(1.0, mean_size(kept) - self.average.offset), self.dimension),
        )

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        steps = friendly_noise(self.average, core_law(self.core, size), math.sqrt(self.radius_squared), self.dimension)
        return {f.name: f.scale * grid.lattice.step * steps for f in grid.features}


@dataclass(frozen=True)
class RecentredMean(CoreStage, PointMechanism):
    """Mechanism of the mean without outliers: it finds a core, then averages it around better and better centers.

    Each of the two averages clips the core's points to a ball around the center that the step before has released.

    Parameters
    ----------
    loss : PrivacyLoss
    radius_squared : int
        Known diameter of the data, squared, in lattice steps.
    dimension, size_hint : int
        Public numbers.
    sampling : str
        Which pairs the core is found from: ``exact``, ``blocks`` or ``hidden`` (see `fcstream.counting.sampled`).
    spread : float or None
        Public typical distance of a point from its center, in lattice steps; None finds it with a private histogram.
    outliers : float
        Public guess, in [0, 1/2), of the share of points that are no friends of the other points. The core filter then
        gets the rho that it needs to find a core without them.
    given_pairs : PairSampling or None
        Pairs that the core is found from. None chooses them for this loss and size.

    Privacy
    -------
    Protects one record, added or removed, with (rho, delta)-zCDP. The core costs (rho_core, delta/2). The friendly
    algorithm that runs on it is made of `FriendlyAverage` (the other delta/2), a histogram of the core's distances from
    the resulting center (one bin per record, sensitivity 1), and two `BallAverage`. The core is charged once for all of
    them. Shares and radii come from public numbers and released values only.

    Source
    ------
    Specification 5.4; proof 5.4; ours, on Tsfadia et al. 2022, Theorem 4.1. Within a few percent of the Gaussian
    mechanism with known center.
    """

    loss: PrivacyLoss
    radius_squared: int
    dimension: int
    size_hint: int
    spread: float | None = None
    sampling: str = "exact"
    outliers: float = 0.0
    kind: str = "mean"
    given_pairs: PairSampling | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.outliers < 0.5:
            raise ConfigError("must be in [0, 1/2)", "release.outliers", got=self.outliers)
        _ = self.core, self.center, self.middle, self.final  # refuse budgets that are too small to split, now

    @cached_property
    def core(self) -> CoreFilter:
        return self.pairs.filter(PrivacyLoss(self._shares.core, self.loss.delta_femto // 2))

    @cached_property
    def center(self) -> FriendlyAverage:
        delta = self.loss.delta_femto - self.loss.delta_femto // 2
        return FriendlyAverage(PrivacyLoss(self._shares.center, delta), self.radius_squared, self._core_hint)

    @cached_property
    def middle(self) -> BallAverage:
        return BallAverage.split(self._shares.middle, self.dimension)

    @cached_property
    def final(self) -> BallAverage:
        return BallAverage.split(self._shares.final, self.dimension)

    @cached_property
    def _bin_variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self._shares.histogram)

    @cached_property
    def _edges(self) -> NDArray[np.float64]:
        return np.sqrt(self._histogram_radii)

    @cached_property
    def _histogram_radii(self) -> NDArray[np.float64]:
        return histogram_radii(self.radius_squared, fine_bins(self.dimension))

    def stages(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        """What `release` does under a charge that is open."""
        core = find_core(self.core, self.stop, view, charge, noise)
        if core.mask is None:
            return Outcome("too_few", count=core.count)
        kept = view.select(core.mask)
        rough = self.center.release(kept, noise, charge.start)
        if rough is None:
            return Outcome(self.refusal_reason(core.count), count=core.count)
        charge.start(PrivacyLoss(self._shares.histogram))
        center, (reach, tail) = to_center(rough.value), self._reach(kept, rough, noise)
        spread, ball = self._first_ball(reach, float(rough.sigma[0]))
        better, count = self.middle.release(kept, center, ball, noise, charge.start)
        if better is not None and (sigma := float(better.sigma.max())) < rough.sigma[0]:
            if reach is not None:
                spread = self._seen(reach, min_distance(rough.value - better.value, sigma))
            center, ball = to_center(better.value), self._ball(spread, sigma)
        estimate, count = self.final.release(kept, center, ball, noise, charge.start)
        if estimate is None:
            return Outcome(self.refusal_reason(core.count), count=core.count, core_count=count)
        parts = None if tail is None else {"tail_share": self._tail_share(tail, core.count or 0, count)}
        return Outcome(
            None,
            estimate.value,
            estimate.sigma,
            core.count,
            count,
            spread=spread,
            parts=parts,
            no_interval=LEFT_OUT,
        )

    def _tail_share(self, tail: int, everybody: int, count: int) -> float:
        """Return the share of the points that lie outside, from noisy numbers of those behind the value and far out."""
        return min(1.0, max(0.0, (tail + everybody - count) / max(1, everybody)))

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of `size` points, of which the share `outliers` are outliers."""
        kept = core_law(self.core, size, self.outliers)
        needs = [
            (self.center.offset + 0.5, float(self.center.size_variance)),
            (self.final.smallest - 0.5, float(self.final.count_variance)),
        ]
        return Forecast(
            release_probability(kept, needs),
            predicted_noise(self._shares, self.center, self._guess, self.dimension, mean_size(kept)),
        )

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Predict the noise of normal points; where their spread is found privately, of those that plans suppose."""
        d, law = self.dimension, core_law(self.core, size, self.outliers)
        if self.spread is None:
            sigmas = [sigma for sigma, _ in self.supposed(size)]
            spread = supposed_deviation(math.sqrt(self.radius_squared), d)
        else:
            sigmas, spread = [self.forecast(size).sigma], self.spread / math.sqrt(d)
        steps = recentred_noise(sigmas, spread, self.final, law, d)
        return {feature.name: feature.scale * grid.lattice.step * steps for feature in grid.features}

    def supposed(self, size: int) -> list[tuple[float, Spread]]:
        """Return noise per coordinate, in lattice steps, and the spread found, for histograms of normal points."""
        d, kept = self.dimension, max(2.0, mean_size(core_law(self.core, size, self.outliers)))
        deviation = supposed_deviation(math.sqrt(self.radius_squared), d)
        sigma = self.center.sigma(max(1.0, kept - self.center.offset), d)
        bounds, variance = self._histogram_radii, RHO_UNIT / (2 * max(1, self._shares.histogram))
        found = []
        for bins in supposed_bins(bounds, math.hypot(deviation, sigma), d, int(kept), variance):
            reach, _ = self._read(bins, variance, math.sqrt(d) * self.final.sigma(1, kept))
            spread, ball = self._first_ball(reach, sigma)
            better = self.middle.sigma(ball, kept)
            if better < sigma:
                spread = self._seen(reach, min_distance(np.full(d, math.hypot(sigma, better)), better))
                ball = self._ball(spread, better)
            found.append((self.final.sigma(ball, kept), spread))
        return found

    @property
    def _guess(self) -> Spread:
        """Return the public spread, or half the diameter if the spread will be measured from the data."""
        typical = self.spread if self.spread is not None else math.sqrt(self.radius_squared) / 2
        return Spread.public(typical, self.dimension)

    def _ball(self, spread: Spread, sigma: float) -> int:
        """Return the squared radius of the ball around a center with noise `sigma` per coordinate."""
        return ball_squared(spread.radius(sigma * norm_quantile(self.dimension, 0.01)))

    def _first_ball(self, reach: float | None, sigma: float) -> tuple[Spread, int]:
        """Return the spread, and the squared radius of the ball around the rough center, whose noise is `sigma`."""
        if reach is None:
            return self._guess, self._ball(self._guess, sigma)
        # What was measured around a center needs no room for its error, but where noise hides most of the points.
        return self._seen(reach, 0.0), ball_squared(max(reach, sigma * norm_quantile(self.dimension, 0.01)))

    def _seen(self, reach: float, error: float) -> Spread:
        """Return the spread of points that a histogram around a center, at least `error` off, found within `reach`.

        The measured distances contain the center's error, whose square adds to the square of the distance.
        """
        # A histogram that ends nearer than the true center has not seen where the points lie.
        true = math.sqrt(max(reach**2 - error**2, (reach / 4) ** 2)) if error < reach else reach
        return Spread(true, min(true, 3 * true / math.sqrt(self.dimension)))

    def _reach(self, kept: Selection, rough: Estimate, noise: Noise) -> tuple[float | None, int | None]:
        """Measure how far points lie from the rough center, and how many farther, with a noisy histogram.

        Both are None for a public spread.
        """
        if self.spread is not None:
            return None, None
        from ..._kernels import sums

        center, bounds = to_center(rough.value), self._histogram_radii  # bins between equal bounds stay empty
        bins = np.zeros(len(bounds) + 1, np.int64)
        for tiles, inside in kept.parts:
            sums.masked_histogram(tiles, len(inside), inside, center, bounds, bins)
        variance = RHO_UNIT / (2 * self._shares.histogram)
        bins += noise.discrete_gaussian(self._bin_variance, len(bins))
        # Length of the noise vector that a ball of radius 1 would leave in the final mean.
        unit_noise = math.sqrt(self.dimension) * self.final.sigma(1, rough.count + self.center.offset)
        return self._read(bins, variance, unit_noise)

    def _read(self, bins: NDArray[np.int64], variance: float, unit_noise: float) -> tuple[float, int]:
        """Find the reach in a noisy histogram, and the noisy number of points farther away."""
        reach, top = best_reach(bins, self._edges, variance, unit_noise, clips=False)
        beyond = int(np.searchsorted(self._edges, reach * _DOWN)) + 1
        return reach, int(bins[beyond : top + 1].sum())

    @cached_property
    def _shares(self) -> RhoShares:
        guess, histogram = self._guess, self.spread is None
        aim = bin_noise(self.dimension) if histogram else None
        known = self.radius_squared, self.dimension
        if self.sampling == "exact":
            return divide_for_exact_core(self.loss, self.outliers, *known, self.size_hint, guess, aim)
        # A sampled core gets a tenth of rho, as in the papers: with less rho it would need more pairs, and sampling is
        # meant to save pairs.
        return divide_rho(self.loss, core_share(self.loss).rho_nano, *known, self._core_hint, guess, aim)

    @property
    def _core_hint(self) -> int:
        """Return a public guess of the core's size."""
        return max(1, round((1 - self.outliers) * self.size_hint))
