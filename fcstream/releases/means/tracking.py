"""Mean of a stream that moves slowly: each window starts from the mean that the window before released."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ...stream.totals import tile_totals
from ..averages import BallAverage, ball_squared, norm_quantile, to_center
from ..base import Counter, Forecast, Mechanism, Outcome, PlanNotes, PointMechanism, Spread, Track
from ..options import BuildContext
from ..reasons import LEFT_OUT
from ..trees.growing import box_of
from .mean import MeanOptions, RecentredMean
from .zooming import ZoomingMean

ROOM = 1.25
"""By how much the ball is wider than the points were: what they may move between two windows."""
FALL = 0.8
"""Part of its first value that the share of points in the ball must keep, or the next window starts cold."""
MIN_SHARE = 0.5
OF_A_CORE = {
    "spread": "histogram",
    "center": None,
    "pairs": "exact",
    "outliers": None,
    "radius_min": None,
    "radius_max": None,
}
"""Keys of a mean that a mean without a core does not have, and their defaults."""


class TrackingOptions(MeanOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of ``kind = "mean"`` with ``method = "tracking"``: each mean starts from the window before.

    Without a ``radius`` the first window starts from the public ranges, and later ones come nearer: no core, no δ, and
    a few dozen records are enough. With one, a window that starts cold finds a core, as ``recentered`` does.

    Released
    --------
    value, sigma
        As of other means; points outside of the ball around the last release are left out. Without a ``radius`` those
        within twice the ball's radius are moved to its border, and those farther away are left out.
    track
        Where the next window starts, in lattice steps: `center`, `sigma`, `reach`, `across`, `share`, `drift`. Without
        a ``radius``, `reach` and `across` are the radius of the next window's ball.
    parts.tail_share
        The noisy share of records outside of the ball.
    parts.scale, parts.scale_source
        Of features with ``scale = "learned"``: their scales, and where these come from: this ``window``, an ``earlier``
        release, or the ``public`` range, if windows hold too few records.

    Cost
    ----
    rho alone. With a ``radius`` the first window and cold starts also delta, of which a tenth may be for
    `window.max_records`; without, a delta only pays for `window.max_records`.

    Privacy
    -------
    `TrackingMean` and, without a ``radius``, `ZoomingMean` state the guarantees.

    Source
    ------
    Specification 5.5, 5.16, 12.1; proofs 5.5, 5.10.
    """

    method: str = "tracking"

    takes_learned_scales: ClassVar[bool] = True
    rescales: ClassVar[bool] = True

    @property
    def spares_delta(self) -> bool:
        return self.radius is None

    def build(self, setting: BuildContext) -> Mechanism:
        if self.radius is None:
            self._check_without_radius()
            return ZoomingMean(self.pure_loss(), box_of(setting.grid))
        cold = super().build(setting)
        assert isinstance(cold, RecentredMean)
        return TrackingMean(cold)

    def _check_without_radius(self) -> None:
        for key in keys_of_a_core(self):
            raise ConfigError("needs {radius}: without it no core is found", f"release.{key}", radius="release.radius")


def keys_of_a_core(options: MeanOptions) -> list[str]:
    """Return the given keys that a mean without a core does not have; it leaves records out, too.

    Privacy
    -------
    A function of the configuration alone.

    Source
    ------
    Specification 5.16; ours.
    """
    given = [key for key, default in OF_A_CORE.items() if getattr(options, key) != default]
    return [key for key in given if getattr(options, key) != "leave_out"]


@dataclass(frozen=True)
class TrackingMean(PointMechanism):
    """Mechanism for the mean of the points in a ball around the last release, whose radius was released with it.

    A window that continues from the last release is called warm. A window is called cold if there is no release to
    continue from: at the start, or when the ball has lost the points.

    Parameters
    ----------
    cold : RecentredMean
        Mechanism of a cold window; every window, cold or warm, costs its rho.
    track : Track or None
        Center and radius left by the window before; None starts cold.

    Privacy
    -------
    Protects one record, added or removed. A cold window has the guarantee of `RecentredMean`. A warm window costs
    rho-zCDP with delta = 0, whatever it holds: center and radius come from earlier releases, and it releases one
    histogram of two bins (inside the ball and outside, sensitivity 1) and one sum of the offsets of the points inside
    (sensitivity: the radius). Whether the next window starts cold, and so costs a delta of its own, is a function of
    this window's released counts.

    Source
    ------
    Specification 5.5; proof 5.5; ours, on `BallAverage`. Points outside are left out instead of clipped, so that
    outliers do not pull.
    """

    tracks = True
    cold: RecentredMean
    track: Track | None = None
    kind: str = "mean"

    def __post_init__(self) -> None:
        _ = self.average  # refuses a budget that is too small to split, now

    @property
    def is_warm(self) -> bool:
        return self.track is not None and not self.track.drift

    @property
    def loss(self) -> PrivacyLoss:
        return PrivacyLoss(self.cold.loss.rho_nano) if self.is_warm else self.cold.loss

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return self.cold.counter(dimension, reach, noise)

    @cached_property
    def average(self) -> BallAverage:
        return BallAverage.split(self.cold.loss.rho_nano, self.cold.dimension)

    @property
    def false_release(self) -> float:
        """Bound of the probability that a warm window without records gets a value; a cold one never does."""
        return self.average.false_release

    def after(self, track: Track | None) -> TrackingMean:
        return replace(self, track=track)

    def with_size_hint(self, size_hint: int) -> Mechanism:
        """Return the mechanism of a cold window for another size hint, because a stream starts cold."""
        return self.cold.with_size_hint(size_hint)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        notes = self.cold.notes(size, grid)
        if size is None:
            return notes
        steps, step = self.forecast_warm(size), grid.lattice.step
        warm = {feature.name: feature.scale * step * steps for feature in grid.features}
        noise = ", ".join(f"{name} {value:.3g}" for name, value in warm.items())
        line = f"a window that goes on from the last one: noise {noise}, and no delta of its own"
        return replace(notes, lines=(*notes.lines, line), facts={**notes.facts, "warm_sigma": warm})

    def with_loss(self, loss: PrivacyLoss) -> TrackingMean:
        return replace(self, cold=cast("RecentredMean", self.cold.with_loss(loss)))

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        if self.track is None or self.track.drift:
            outcome = self.cold.release(view, charge, noise)
            return replace(outcome, track=_begin(outcome))
        return self._follow(self.track, view, charge, noise)

    def forecast(self, size: int) -> Forecast:
        """Forecast a cold window."""
        return self.cold.forecast(size)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Predict the noise of a cold window."""
        return self.cold.predicted_sigmas(size, grid)

    def forecast_warm(self, size: int) -> float:
        """Predict the noise deviation per coordinate, in lattice steps, of a warm window that follows a cold window.

        The points are assumed to have the public spread, or else that which plans suppose.
        """
        public = self.cold.spread
        if public is None:
            found = self.cold.supposed(size)
        else:
            found = [(self.cold.forecast(size).sigma, Spread.public(public, self.cold.dimension))]
        balls = [self._ball(Track([], sigma, spread.reach, spread.across)) for sigma, spread in found]
        return self.average.sigma(float(np.mean(balls)), max(size, 1))

    def _ball(self, track: Track) -> int:
        """Return the squared radius of the ball around the last center."""
        error = track.sigma * norm_quantile(self.cold.dimension, 0.01)
        return ball_squared(Spread(ROOM * track.reach, ROOM * track.across).radius(error))

    def _follow(self, track: Track, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        from ..._kernels import sums

        charge.open(self.loss)
        center, ball = np.array(track.center, np.float64), self._ball(track)

        def add(tiles: NDArray[np.float64], mask: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
            return int(sums.inside_sum(tiles, len(mask), mask, center, float(ball), out))

        everyone = view.select(np.ones(view.size, np.bool_))
        total, inside = tile_totals(everyone.parts, self.cold.dimension, math.isqrt(ball) + 1, add)
        estimate, count = self.average.divide(total, inside, center, ball, noise, charge.start)
        # This counts the points outside. A record is in one of the two bins, so `divide` has paid for both counts.
        outside = view.size - inside + noise.one_gaussian(self.average.count_variance)
        everybody = count + max(0, outside)
        if estimate is None:
            return Outcome(
                self.cold.refusal_reason(everybody), count=everybody, core_count=count, track=replace(track, drift=True)
            )
        share = count / max(1, everybody)
        # Possible error of the share because of the noise in both bins.
        doubt = 3 * math.sqrt(self.average.count_variance) / max(1, everybody)
        first = share if track.share is None else track.share
        lost = share + doubt < max(FALL * first, MIN_SHARE)
        moved = Track(
            [int(value) for value in to_center(estimate.value)],
            float(estimate.sigma.max()),
            track.reach,
            track.across,
            first,
            lost,
        )
        parts = {"tail_share": max(0, outside) / max(1, everybody)}
        return Outcome(
            None, estimate.value, estimate.sigma, everybody, count, track=moved, parts=parts, no_interval=LEFT_OUT
        )


def _begin(outcome: Outcome) -> Track | None:
    """Return the track that a cold window leaves to the next window, or None if the window has no value."""
    if outcome.value is None or outcome.sigma is None or outcome.spread is None:
        return None
    center = [int(value) for value in to_center(outcome.value)]
    return Track(center, float(outcome.sigma.max()), outcome.spread.reach, outcome.spread.across)
