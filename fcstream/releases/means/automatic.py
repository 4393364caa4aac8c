"""Means with ``method = "auto"``: of a window alone, or from the one before, whichever the settings predict nearer."""

from __future__ import annotations

import math
from typing import cast

import msgspec
import numpy as np

from ...errors import ConfigError
from ..base import Mechanism, percent
from ..options import BuildContext, Options
from .clipped_mean import ClippedMean
from .searched import SearchOptions
from .spread_histogram import clipping_error, supposed_deviation
from .tracking import OF_A_CORE, TrackingOptions
from .zooming import ZoomingMean

SURE = 0.99
"""Probability of a release below which `recentered` is not taken where tracking is likelier to release."""
RARE = 0.001
_SHARED = ("rho", "delta", "size_hint", "name", "features", "where", "per_user", "user_bounds")
_GIVEN = ("release.radius", "release.radius_min", "release.radius_max", "release.delta", "release.size_hint")


class AutoMeanOptions(SearchOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "mean"`` with ``method = "auto"``: the mean as by `recentered`, or by `tracking` without a ``radius``.

    The one with the smaller predicted error is taken; ``fcstream plan`` says which, and why. The choice depends on
    settings alone, never on records. What is predicted is the error to the mean of all records. `tracking` is taken
    where `radius` or `size_hint` is left out, which `recentered` needs, and where windows of `size_hint` records are
    too few for it. Where a key is given that `tracking` does not have (`outliers`, `pairs`, `spread`, `radius_min`,
    `radius_max`), or a scale is learned, `recentered` is taken.

    Released
    --------
    value, sigma, count, core_count, parts.tail_share
        As of the method that is taken.
    track
        As of `tracking`, where that is taken.

    Cost
    ----
    rho, and delta where records are left out by a core or limited.

    Privacy
    -------
    `ClippedMean`, `RecentredMean`, `SearchedMean` or `ZoomingMean` states the guarantee.

    Source
    ------
    Specification 5.17, 5.18, 12.1; proofs 5.4, 5.6, 5.10, 5.11.
    """

    method: str = "auto"
    """``auto``: `recentered` or `tracking`, whichever the settings predict nearer."""

    def chosen(self, setting: BuildContext) -> tuple[Options, str]:
        core = SearchOptions(**{**msgspec.structs.asdict(self), "method": "recentered"})
        given = [key for key, default in OF_A_CORE.items() if getattr(self, key) != default]
        if given:
            return core, f"`auto` takes `recentered`: `tracking` has no `release.{given[0]}`"
        learned = [feature.name for feature in setting.grid.features if feature.learned]
        if learned:
            return core, f"`auto` takes `recentered`: `features.{learned[0]}.scale` is learned"
        tracking = TrackingOptions(**{key: getattr(self, key) for key in _SHARED})
        lacking = [f"`release.{key}`" for key in ("radius", "size_hint") if not getattr(self, key)]
        if lacking:
            return tracking, f"`auto` takes `tracking`: `recentered` needs {' and '.join(lacking)}"
        return self._compared(core, tracking, setting)

    def build(self, setting: BuildContext) -> Mechanism:
        return self.chosen(setting)[0].build(setting)

    def _compared(self, core: SearchOptions, tracking: TrackingOptions, setting: BuildContext) -> tuple[Options, str]:
        """Take what is predicted to be nearer, of two methods that both have what they need."""
        size = self.checked_size_hint()
        try:
            zooming = cast("ZoomingMean", tracking.build(setting))
        except ConfigError as error:
            return core, f"`auto` takes `recentered`: for `tracking` {error.key} {error.message}"
        likely = zooming.forecast(size).probability
        try:
            mean = cast("ClippedMean", core.build(setting))
        except ConfigError as error:
            if error.key in _GIVEN:
                raise
            return tracking, "`auto` takes `tracking`: `recentered` does not work at this `release.rho`"
        chance = mean.forecast(size).probability
        if chance < SURE and likely > chance:
            rarely = "hardly ever" if chance < RARE else f"with probability {percent(chance)}"
            return tracking, (
                f"`auto` takes `tracking`: {size} records release with probability {percent(likely)} by it, and "
                f"{rarely} by `recentered`"
            )
        by_core, by_tracking = predicted_errors(mean, zooming, size)
        taken, other = (core, tracking) if by_core <= by_tracking else (tracking, core)
        share = min(by_core, by_tracking) / max(by_core, by_tracking)
        return taken, (
            f"`auto` takes `{taken.method}`: its error is predicted to be {share:.2f} of that of `{other.method}`, for "
            "records as wide as `release.radius` supposes"
        )


def predicted_errors(mean: ClippedMean, zooming: ZoomingMean, size: int) -> tuple[float, float]:
    """Predict the errors of a mean of all and of one that tracks, per coordinate, for records of deviation 1.

    Parameters
    ----------
    mean
        With a radius that is known, or the largest that is searched for.
    zooming
        Of a window that is about the tenth of a stream, or later.
    size : int
        Public guess of the number of records, which are supposed to be normal.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.17; ours.
    """
    d, deviation = mean.dimension, supposed_deviation(math.sqrt(mean.radius_squared), mean.dimension)
    own = [
        float(np.mean(np.square(sigma))) / deviation**2 + clipping_error(ball / deviation, d, size) ** 2
        for sigma, ball in mean.supposed(size)
    ]
    return math.sqrt(np.mean(own)), math.hypot(*zooming.settled(size))
