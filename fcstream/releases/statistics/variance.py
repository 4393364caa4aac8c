"""Variance of each coordinate around a private mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...counting.multi_radius import MultiRadiusView, SampledMultiRadiusView
from ...counting.views import WindowView
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ...stream.totals import tile_totals
from ..averages import ball_squared, gaussian_variance, norm_quantile, to_center
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues, Spread, pairs_of
from ..core_stage import ChargeShare, normal_above
from ..intervals import TWO_SIDED
from ..means.mean import RecentredMean
from ..means.searched import SearchedMean, SearchOptions
from ..means.spread_histogram import supposed_deviation
from ..options import BuildContext, Options
from .tails import USELESS, WIDE, Tail, offsets_of_ranges, useful

ROOM = 1.5
"""By how much the ball is wider, at least, than what was found to hold nearly all points: a cut tail takes from a
variance."""
_FOUND = 2.4  # deviations of normal points, of one feature, that what is found reaches at least nearly always
_FAR_BINS = 16  # of a histogram: so many may lie between the ball of the mean and the last one with records
_TAKEN = 0.3  # part of its noise that a cut tail may take from a variance
COUNT_SHARE = 20
BITS = 25
"""Of the largest squared distance: finer squares would add nothing to a sum with noise of that size."""
_SHARES = (3, 4, 5, 6, 7)  # tenths of rho for the mean
Inner = RecentredMean | SearchedMean


class VarianceOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "variance"``: a ``recentered`` mean and each feature's variance.

    Released
    --------
    value, sigma
        The variance of every feature around a private mean.
    parts.mean, parts.mean_sigma, parts.mean_interval
        That mean, and the deviation of its noise.
    parts.tail_share
        Which share of the records, with noise, lay too far out and was left out.
    parts.scale, parts.scale_source
        Of features with ``scale = "learned"``: their scales, and where these come from: this ``window``, an ``earlier``
        release, or the ``public`` range, if windows hold too few records.

    Cost
    ----
    rho and delta, for mean and squares together; a window with too few records a few percent.

    Privacy
    -------
    `Variance` states the guarantee.

    Source
    ------
    Specification 5.8, 12.1; proof 5.7.
    """

    kind: str = "variance"
    radius: float | Literal["search"]
    """Distance within which nearly all pairs of normal records of a window lie, in scaled units. ``search`` finds it
    privately between ``radius_min`` and ``radius_max``, for 1 to 10% of the mean's part of the budget."""
    reach: float | Literal["histogram"] = "histogram"
    """Distance from the mean beyond which records are left out: found privately (``histogram``), or public."""
    delta: float
    """What one window costs at most, as a δ."""
    pairs: Literal["exact", "blocks", "hidden"] = "exact"
    """Which pairs of records a core is found from: all (``exact``), each record with random blocks of others
    (``blocks``), or each ordered pair by a secret coin (``hidden``). Samples are for windows of several hundred
    thousand records."""
    radius_min: float | None = None
    """Lower public end of the search, with ``radius = "search"``."""
    radius_max: float | None = None
    """Upper public end of the search, any number of powers of ten away."""

    takes_learned_scales: ClassVar[bool] = True
    rescales: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> Variance:
        size_hint, loss = self.checked_size_hint(), self.approximate_loss(self.delta)
        reach = None
        if self.reach != "histogram":
            reach = math.isqrt(setting.grid.lattice.radius_squared(float(self.reach), "release.reach"))
        best: Variance | None = None
        for tenths in _SHARES:
            share = loss.rho_nano * tenths // 10
            options = SearchOptions(
                size_hint=size_hint,
                rho=share / RHO_UNIT,
                delta=self.delta,
                radius=self.radius,
                pairs=self.pairs,
                outliers="leave_out",
                radius_min=self.radius_min,
                radius_max=self.radius_max,
            )
            try:
                mean = options.build(setting)
            except ConfigError as error:
                if error.key not in ("release", "release.rho"):
                    raise
                continue
            found = Variance(loss, cast("Inner", mean), size_hint, reach)
            if best is None or found.merit > best.merit:
                best = found
        if best is None:
            raise ConfigError("must be larger for a mean and a variance", "release.rho", got=Shown(f"{self.rho:g}"))
        return best


@dataclass(frozen=True)
class Variance(Mechanism):
    """Mechanism for the variance of each coordinate.

    It sums the squared offsets from a private mean over the points in a ball around that mean, and divides the noisy
    sum by the noisy count of these points.

    Parameters
    ----------
    loss : PrivacyLoss
    mean : RecentredMean or SearchedMean
        Mechanism of the mean, with its share of the loss; the second finds its radius first.
    size_hint : int
    reach : int or None
        Public radius of the ball, in lattice steps; None takes it from what the mean found.

    Privacy
    -------
    Protects one record, added or removed, with (rho, delta)-zCDP. First comes the mean; then, with its released center
    and radius R, the numbers of points in the ball and outside (a point is in one of them: sensitivity 1) and the sum
    of the squared offsets of those inside, in units of
    2**shift squared steps and rounded down in integers. The l2 norm of the squares of a vector is at most its squared
    norm, so the sensitivity is R**2 / 2**shift. Points outside are left out. What the center's own noise adds to the
    squares is released and subtracted.

    Source
    ------
    Specification 5.8; proof 5.7; ours, on `RecentredMean` and `SearchedMean`.
    """

    loss: PrivacyLoss
    mean: Inner
    size_hint: int
    reach: int | None = None
    kind: str = "variance"
    false_release: ClassVar[float] = 0.0

    @cached_property
    def _rest(self) -> tuple[int, int]:
        """Return the rho (nano) of the squares and of the count."""
        rest = self.loss.rho_nano - self.mean.loss.rho_nano
        count = max(1, rest // COUNT_SHARE)
        return rest - count, count

    @cached_property
    def count_variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self._rest[1])

    @cached_property
    def smallest(self) -> int:
        """Least count, ten noise deviations of the count; a smaller noisy count gets no variance."""
        return max(2, math.ceil(10 * math.sqrt(self.count_variance)))

    @cached_property
    def _known(self) -> RecentredMean:
        """Mean at a known radius; of a search, at the radius in the middle, which forecasts speak of."""
        return cast("RecentredMean", self.mean.middle) if isinstance(self.mean, SearchedMean) else self.mean

    @property
    def merit(self) -> tuple[bool, float]:
        """Score of a division of the loss: first whether windows of the size hint release, then how small noise is."""
        found = self.forecast(self.size_hint)
        return found.probability >= 0.99, -found.sigma

    def with_loss(self, loss: PrivacyLoss) -> Variance:
        share = self.mean.loss.rho_nano * loss.rho_nano // self.loss.rho_nano
        mean = self.mean.with_loss(PrivacyLoss(share, self.mean.loss.delta_femto))
        whole = PrivacyLoss(loss.rho_nano, self.loss.delta_femto)
        return Variance(whole, cast("Inner", mean), self.size_hint, self.reach)

    def with_size_hint(self, size_hint: int) -> Variance:
        mean = cast("Inner", self.mean.with_size_hint(size_hint))
        return Variance(self.loss, mean, size_hint, self.reach)

    def hint(self, reason: str) -> str:
        if reason == "no_core":
            return f"{self.mean.hint(reason)}; a public `reach` may also be too small"
        return self.mean.hint(reason)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return self.mean.counter(dimension, reach, noise)

    def release(
        self, view: WindowView | MultiRadiusView | SampledMultiRadiusView, charge: Charge, noise: Noise
    ) -> Outcome:
        from ..._kernels import sums

        charge.open(self.loss)
        share = cast("Charge", ChargeShare(charge, self.mean.loss))
        mean = self.mean.release(view, share, noise)  # type: ignore[arg-type]
        if mean.value is None or mean.sigma is None or mean.spread is None:
            return mean
        center = to_center(mean.value)
        ball = self._ball(mean.spread, float(mean.sigma.max()), mean.count or self.size_hint)
        shift = max(0, ball.bit_length() - BITS)

        def add(tiles: NDArray[np.float64], mask: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
            return int(sums.inside_squares(tiles, len(mask), mask, center, float(ball), shift, out))

        everyone = view.select(np.ones(view.size, np.bool_))
        total, inside = tile_totals(everyone.parts, len(center), (ball >> shift) + 1, add)
        squares, first = self._rest
        charge.start(PrivacyLoss(first))
        count = inside + noise.one_gaussian(self.count_variance)
        # A record is inside or outside, so that the share for the one number pays for both.
        outside = view.size - inside + noise.one_gaussian(self.count_variance)
        if count < self.smallest:
            return Outcome(self._known.refusal_reason(mean.count), count=mean.count, core_count=count)
        charge.start(PrivacyLoss(squares))
        variance = gaussian_variance(Fraction(ball, 2**shift) ** 2, squares)
        drawn = noise.discrete_gaussian(variance, len(center)).tolist()
        noisy = np.array([exact + one for exact, one in zip(total, drawn, strict=True)], np.float64)
        unit = 2.0**shift
        value = noisy * (unit / count) + (unit - 1) / 2 - mean.sigma**2  # squares were rounded down
        sigma = np.hypot(math.sqrt(variance) * unit, value * math.sqrt(self.count_variance)) / count
        tail = max(0, outside) / max(1, count + max(0, outside))
        parts = {"mean": mean.value, "mean_sigma": mean.sigma, "tail_share": tail, "ball": math.sqrt(ball)}
        # So many records are in neither sum, and so many in that of the mean alone.
        parts |= {"outside": Tail.of(outside, self.count_variance, count), "moved": self._moved(mean)}
        return Outcome(None, np.maximum(value, 0.0), sigma, mean.count, count, parts=parts)

    def _moved(self, mean: Outcome) -> Tail:
        """Return the share of the records that the mean left out, or moved to the border of its ball."""
        size = mean.count or self.size_hint
        share = (mean.parts or {}).get("tail_share", 1.0)
        known = self._known
        bins = RHO_UNIT / (2 * max(1, known._shares.histogram))
        return Tail.of(share * size, _FAR_BINS * bins + 2 * float(known.final.count_variance), size)

    def _ball(self, spread: Spread, center_sigma: float, size: int) -> int:
        """Return the squared radius of the ball, in lattice steps."""
        if self.reach is not None:
            return self.reach**2
        unit_noise = math.sqrt(RHO_UNIT / (2 * self._rest[0])) / max(size, 1)
        room = max(ROOM, uncut_reach(unit_noise) / _FOUND)
        error = center_sigma * norm_quantile(self.mean.dimension, 0.01)
        return ball_squared(Spread(room * spread.reach, room * spread.across).radius(error))

    def forecast(self, size: int) -> Forecast:
        """Forecast a window whose points are spread over half the diameter; sigma is in squared lattice steps."""
        mean = self.mean.forecast(size)
        typical = math.sqrt(self._known.radius_squared) / 2
        ball = self._ball(Spread.public(typical, self.mean.dimension), mean.sigma, size)
        chance = normal_above((self.smallest - 0.5 - size) / math.sqrt(self.count_variance))
        sigma = ball * math.sqrt(RHO_UNIT / (2 * self._rest[0])) / max(size, 1)
        return Forecast(mean.probability * chance, sigma)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        names, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        if outcome.value is None or outcome.sigma is None or outcome.parts is None:
            return ReleaseValues(None, None, names, transforms)
        squared = np.array([(f.scale * grid.lattice.step) ** 2 for f in grid.features])
        interval, of_mean = self._intervals(outcome.value, outcome.sigma, outcome.parts, grid)
        told, is_wide = useful(interval, USELESS * outcome.value, squared)
        parts = {
            "mean": grid.values(outcome.parts["mean"]),
            "mean_sigma": grid.widths(outcome.parts["mean_sigma"]),
            "mean_interval": pairs_of(*map(grid.values, of_mean.T)),
            "tail_share": outcome.parts["tail_share"],
        }
        return ReleaseValues(
            (outcome.value * squared).tolist(),
            (outcome.sigma * squared).tolist(),
            names,
            transforms,
            parts,
            told,
            {"value": WIDE} if is_wide else None,
        )

    def _intervals(
        self, value: NDArray[np.float64], sigma: NDArray[np.float64], parts: dict[str, Any], grid: Grid
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the intervals (d, 2) of the variances and of the means of all records, in lattice steps.

        With p the share outside of the ball, V the variance within it, and c the center, the variance of all is at
        least (1 - p) V, and at most (1 - p) W + p D**2 with W the squares about c within the ball and D how far the
        public range reaches from c. V is W less the square of how far the mean within the ball is from c: by noise, by
        rounding c, and by the records in the ball that the mean left out or moved, a share q of them, which is at most
        q times the radius, and by Cauchy's inequality at most sqrt(q W).
        """
        outside, moved, center = parts["outside"], parts["moved"].most, parts["mean"]
        low, high = offsets_of_ranges(grid, center)
        own = parts["mean_sigma"]
        about = value + own**2
        bias = np.minimum(moved * parts["ball"], np.sqrt(moved * about))
        found = outside.ends(value, sigma, -value, np.maximum(low**2, high**2) - value)
        found[:, 0] -= np.maximum(0.0, (TWO_SIDED * own + 0.5 + bias) ** 2 - own**2)
        found[:, 1] += own**2
        of_mean = outside.ends(center, own, low, high)
        return np.maximum(found, 0.0), of_mean + np.stack((-bias, bias), axis=1)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        """Return the mean squared distance of all records from their mean, for every feature."""
        squared = np.array([(f.scale * grid.lattice.step) ** 2 for f in grid.features])
        return {"value": (points.var(axis=0) * squared).tolist()} if len(points) else None

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Predict the noise of normal points, spread as plans suppose for the diameter."""
        balls = [self._ball(spread, sigma, size) for sigma, spread in self._known.supposed(size)]
        squares = math.sqrt(np.mean(np.square(balls, dtype=np.float64))) * math.sqrt(RHO_UNIT / (2 * self._rest[0]))
        own = supposed_deviation(math.sqrt(self._known.radius_squared), self.mean.dimension) ** 2
        sigma = math.hypot(squares, own * math.sqrt(self.count_variance)) / max(size, 1)
        return {f"variance of {f.name}": (f.scale * grid.lattice.step) ** 2 * sigma for f in grid.features}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        own = self.mean.notes(size, grid)
        radius = "`radius`" if self.mean is self._known else "that radius"
        lines = (*own.lines, f"that noise is for data half of {radius} across; it falls with their squared spread")
        return replace(own, lines=lines)


def uncut_reach(unit_noise: float) -> float:
    """Return the radius from which on leaving out what lies beyond takes little from a variance, beside its noise.

    Parameters
    ----------
    unit_noise : float
        Noise of the variance for a ball of radius 1.

    Returns
    -------
    float
        In deviations of the points, which are taken to be normal and to differ in one feature alone.

    Privacy
    -------
    Computed from public or released numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.8; ours.
    """
    low, high = 0.0, 9.0  # beyond 9 deviations nothing is left that a double could show
    while high - low > 1e-3:
        t = (low + high) / 2
        beyond = 2 * t * math.exp(-t * t / 2) / math.sqrt(2 * math.pi) + math.erfc(t / math.sqrt(2))
        low, high = (t, high) if beyond > _TAKEN * unit_noise * t * t else (low, t)
    return high
