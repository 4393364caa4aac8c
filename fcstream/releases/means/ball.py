"""The mean of all points, each clipped to a public ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...accounting.losses import PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..averages import BallAverage
from ..base import Forecast, Outcome, PlanNotes, PointMechanism
from ..core_stage import noise_warnings, normal_above
from ..trees.growing import PublicBox


def ball_center(center: list[float], grid: Grid) -> tuple[int, ...]:
    """Convert a public center in the features' own (transformed) units to the nearest lattice point.

    Raises
    ------
    ConfigError
        It is not finite, or lies out of the public ranges.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.2; ours.
    """
    point = []
    for value, feature in zip(center, grid.features, strict=True):
        if not math.isfinite(value):
            raise ConfigError("must be finite", "release.center", got=value)
        scaled = (value - feature.origin) / feature.scale
        (low, high), at = grid.ends(feature), float(grid.lattice.coordinates(scaled))
        if not low <= at <= high:
            raise ConfigError(f"must lie in the range of {feature.name!r}", "release.center", got=Shown(f"{value:g}"))
        point.append(int(at))
    return tuple(point)


@dataclass(frozen=True)
class BallMean(PointMechanism):
    """Mechanism for the mean of all points, each clipped to a public ball.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    center : tuple of int
        Center of the ball, a lattice point.
    ball_squared : int
        Squared radius of the ball, in lattice steps.
    box : PublicBox or None
        The public ranges. Where the ball does not hold them, nothing tells how many records are moved how far.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, by `BallAverage`.

    Source
    ------
    Specification 5.2; proof 5.3; ours.
    """

    loss: PrivacyLoss
    center: tuple[int, ...]
    ball_squared: int
    kind: str = "mean"

    box: PublicBox | None = None

    def __post_init__(self) -> None:
        _ = self.average  # refuses a budget that is too small to divide, before any release

    @cached_property
    def average(self) -> BallAverage:
        return BallAverage.split(self.loss.rho_nano, len(self.center))

    @property
    def false_release(self) -> float:
        return self.average.false_release

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        return PlanNotes(warnings=noise_warnings(self.forecast(size or 1000).sigma, None))

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        everyone = view.select(np.ones(view.size, np.bool_))
        center = np.array(self.center, np.float64)
        estimate, count = self.average.release(everyone, center, self.ball_squared, noise, charge.start)
        if estimate is None:
            return Outcome("too_few", count=count, core_count=count)
        moved = None if self._holds_everything else {"value": "clipped"}
        return Outcome(None, estimate.value, estimate.sigma, count, count, no_interval=moved)

    @property
    def _holds_everything(self) -> bool:
        """Whether no record in the public ranges lies out of the ball."""
        if self.box is None:
            return False
        ends = zip(self.center, self.box.low, self.box.high, strict=True)
        return sum(max(x - low, high - x) ** 2 for x, low, high in ends) <= self.ball_squared

    def forecast(self, size: int) -> Forecast:
        average = self.average
        spread = math.sqrt(average.count_variance)
        return Forecast(
            normal_above((average.smallest - 0.5 - size) / spread), average.sigma(self.ball_squared, max(size, 1))
        )
