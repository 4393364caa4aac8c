"""The default mean: that of all records, those far out moved to the border of a ball that is found privately."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...counting.views import Selection, WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..averages import BallAverage, Estimate, ball_squared, check_noise, norm_quantile, to_center
from ..base import Forecast, Outcome, PlanNotes, PointMechanism, Spread
from ..core_stage import noise_warnings, normal_above
from ..floors import gaussian_tail, min_gaussian
from ..intervals import TWO_SIDED
from ..trees.growing import PublicBox
from .box_average import OFFSET_BITS, box_middle, box_offsets, box_sigmas
from .spread_histogram import best_reach, clipping_noise, clipping_radii, supposed_bins, supposed_deviation

COUNT, WHOLE, BINS, NEARER = (Fraction(share, 100) for share in (20, 30, 10, 8))
"""Shares of rho: of the number of records, of the mean of all in the public ranges, of the histogram, of a step nearer;
the last sum has the rest."""
STEPS = 4
"""At most so many steps lead from the public ranges to the records."""
NEAR = 0.25
"""A center is near if it is at most this part of the diameter off."""
WORTH = 2.0
"""Nobody is moved where that makes the noise at most so many times as large."""
FAR = 5.0
"""Deviations of the mean of all by which the mean of moved records may differ from it; it is not taken beyond them."""
_MIN_NANO = 1000


class _Ball(NamedTuple):
    """A ball around a released center that records are moved into; an infinite reach stands for the public ranges."""

    center: NDArray[np.float64]
    squared: int
    reach: float = math.inf


@dataclass(frozen=True)
class ClippedMean(PointMechanism):
    """Mechanism for the mean of all points, those outside of a ball moved to its border.

    It takes a mean of all points in the public ranges, finds by a noisy histogram how far they lie from there, and
    averages them again in a ball of that radius. The first mean has more noise, and no other error: so it tells an
    interval that holds the mean of all points, whatever they are.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    box : PublicBox
        The public ranges.
    radius_squared : int
        Public guess of the diameter of the data, squared, in lattice steps. Only the accuracy depends on it.
    size_hint : int
        Public guess of the number of points.
    spread : float or None
        Public typical distance of a point from its center, in lattice steps; None finds it with a private histogram.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, whatever the points are: the shares of its
    stages add up. The number of points has sensitivity 1, sums in the public ranges are `box_offsets`, a sum of offsets
    in a ball has its radius as sensitivity, and a point lies in one bin of the histogram. Centers and radii come from
    public and released numbers only.

    Source
    ------
    Specification 5.18; proof 5.11; ours. Steps nearer as in CoinPress (Biswas et al. 2020).
    """

    loss: PrivacyLoss
    box: PublicBox
    radius_squared: int
    size_hint: int
    spread: float | None = None
    kind: str = "mean"

    def __post_init__(self) -> None:
        if min(self._nano(COUNT), self.final.sum_nano, self.whole_nano, self._nano(NEARER)) < _MIN_NANO:
            raise ConfigError(f"must be at least 2e-5, got {self.loss.rho:g}: too little to divide", "release.rho")
        # The last sum may be in the box too, by the histogram, and no share is smaller than that of a step nearer.
        check_noise(self.dimension * 4**OFFSET_BITS, self._nano(NEARER))

    @property
    def dimension(self) -> int:
        return self.box.dimension

    def _nano(self, share: Fraction) -> int:
        return int(self.loss.rho_nano * share)

    @property
    def count_variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self._nano(COUNT))

    @cached_property
    def smallest(self) -> int:
        """Least noisy number of records that a value is released for."""
        return min_gaussian(self.count_variance)

    @property
    def false_release(self) -> float:
        return gaussian_tail(self.count_variance, self.smallest)

    @property
    def whole_nano(self) -> int:
        return self._nano(WHOLE)

    @cached_property
    def bins_nano(self) -> int:
        return self._nano(BINS) if self.spread is None else 0

    @cached_property
    def nearer(self) -> BallAverage:
        return BallAverage(self._nano(NEARER), 1)

    @cached_property
    def final(self) -> BallAverage:
        spent = self._nano(COUNT) + self.whole_nano + self.bins_nano + len(self.steps) * self._nano(NEARER)
        return BallAverage(self.loss.rho_nano - spent, 1)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Squared radii of the balls that lead from the public ranges to the records, from public numbers.

        Each holds the points' diameter and the predicted error of the center before it.
        """
        radius, size = math.sqrt(self.radius_squared), max(1, self.size_hint)
        error = self._error_of_all(size)
        steps: list[int] = []
        while error > NEAR * radius and len(steps) < STEPS:
            ball = ball_squared(radius + error)
            following = self._length(self.nearer.sigma(ball, size))
            if following > error / 2:
                break
            steps.append(ball)
            error = following
        return tuple(steps)

    def _error_of_all(self, size: float) -> float:
        """Predict how far the mean of all points in the public ranges is off by noise."""
        return self._length(_root(box_sigmas(self.box, self.whole_nano, size)))

    def _length(self, sigma: float) -> float:
        """Return the length that noise of this deviation per coordinate hardly ever exceeds."""
        return sigma * norm_quantile(self.dimension, 0.05)

    @cached_property
    def _radii(self) -> NDArray[np.float64]:
        return clipping_radii(self.radius_squared, self.dimension)

    def in_box(self, box: PublicBox) -> ClippedMean:
        return replace(self, box=box)

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        charge.start(PrivacyLoss(self._nano(COUNT)))
        count = view.size + noise.one_gaussian(self.count_variance)
        if count < self.smallest:
            return Outcome("too_few", count=count, core_count=count)
        points, everyone = view.points(), view.select(np.ones(view.size, np.bool_))
        charge.start(PrivacyLoss(self.whole_nano))
        offsets = box_offsets(points, self.box, count, self.whole_nano, noise)
        whole = self._estimate(offsets, self.whole_nano, count)
        center, error = self._inside(whole.value), self._error_of_all(count)
        for squared in self.steps:
            charge.start(PrivacyLoss(self._nano(NEARER)))
            near = self._in_ball(self.nearer, everyone, _Ball(center, squared), count, noise)
            center, error = self._inside(near.value), self._length(self.nearer.sigma(squared, count))
        bins = None
        if self.spread is None:
            charge.start(PrivacyLoss(self.bins_nano))
            bins = self._histogram(everyone, center, noise)
        ball = self._choose(bins, center, error, count)
        charge.start(PrivacyLoss(self.final.sum_nano))
        if math.isinf(ball.reach):
            again = box_offsets(points, self.box, count, self.final.sum_nano, noise)
            nanos = self.whole_nano, self.final.sum_nano
            both = self._estimate((nanos[0] * offsets + nanos[1] * again) / sum(nanos), sum(nanos), count)
            return self._outcome(both, count, bins, math.inf)
        found = self._in_ball(self.final, everyone, ball, count, noise)
        if (np.abs(found.value - whole.value) > FAR * whole.sigma).any():
            return self._outcome(whole, count, bins, math.inf)
        # In a feature whose range is narrow beside the ball the mean of all is the nearer one.
        better = found.sigma < whole.sigma
        taken = Estimate(np.where(better, found.value, whole.value), np.where(better, found.sigma, whole.sigma), count)
        low = np.minimum(whole.value - TWO_SIDED * whole.sigma, taken.value)
        high = np.maximum(whole.value + TWO_SIDED * whole.sigma, taken.value)
        return replace(self._outcome(taken, count, bins, ball.reach), interval=np.stack((low, high), axis=1))

    def _estimate(self, offsets: NDArray[np.float64], nano: int, count: int) -> Estimate:
        """Return the mean by its noisy offset from the middle; the noise of the count moves it along that."""
        sigma = np.hypot(box_sigmas(self.box, nano, count), offsets * (math.sqrt(self.count_variance) / count))
        return Estimate(box_middle(self.box) + offsets, sigma, count)

    def _in_ball(self, average: BallAverage, points: Selection, ball: _Ball, count: int, noise: Noise) -> Estimate:
        total, _ = average.clipped_total(points, ball.center, ball.squared)
        return average.quotient(total, count, self.count_variance, ball.center, ball.squared, noise)

    def _inside(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(to_center(value), self.box.low, self.box.high).astype(np.float64)

    def _histogram(self, points: Selection, center: NDArray[np.float64], noise: Noise) -> NDArray[np.int64]:
        """Draw noisy numbers of points by their distance from a released center."""
        from ..._kernels import sums

        bins = np.zeros(len(self._radii) + 1, np.int64)
        for tiles, inside in points.parts:
            sums.masked_histogram(tiles, len(inside), inside, center, self._radii, bins)
        return bins + noise.discrete_gaussian(Fraction(RHO_UNIT, 2 * self.bins_nano), len(bins))

    def _choose(self, bins: NDArray[np.int64] | None, center: NDArray[np.float64], error: float, count: float) -> _Ball:
        """Choose the ball of the last average, whose `center` may be off by `error`."""
        if bins is None:
            assert self.spread is not None
            reach = Spread.public(self.spread, self.dimension).radius(error)
        else:
            unit_noise = math.sqrt(self.dimension) * self.final.sigma(1, count)
            variance = RHO_UNIT / (2 * self.bins_nano)
            found, _ = best_reach(bins, np.sqrt(self._radii), variance, unit_noise, clips=True)
            reach = max(found, error)
        low, high = np.array(self.box.low, np.float64), np.array(self.box.high, np.float64)
        if self.dimension == 1:  # a smaller ball holds all of this one that lies in the public range
            low, high = np.maximum(low, center - reach), np.minimum(high, center + reach)
            middle = np.floor((low + high) / 2)
            ball = _Ball(middle, ball_squared(float((high - middle)[0])), reach)
        else:
            ball = _Ball(center, ball_squared(reach), reach)
        everything = _root(box_sigmas(self.box, self.whole_nano + self.final.sum_nano, count))
        if everything <= WORTH * self.final.sigma(ball.squared, count):
            return _Ball(center, 0)
        return ball

    def _outcome(self, found: Estimate, count: int, bins: NDArray[np.int64] | None, reach: float) -> Outcome:
        parts = None
        if bins is not None:
            beyond = int(np.searchsorted(np.sqrt(self._radii), reach * (1 - 1e-9))) + 1
            parts = {"tail_share": min(1.0, max(0.0, int(bins[beyond:].sum()) / count))}
        return Outcome(None, found.value, found.sigma, count, count, parts=parts)

    # -- from public numbers -------------------------------------------------------------------------------------------

    def forecast(self, size: int) -> Forecast:
        chance = normal_above((self.smallest - 0.5 - size) / math.sqrt(self.count_variance))
        return Forecast(chance, math.sqrt(np.mean([np.mean(sigma**2) for sigma, _ in self.supposed(size)])))

    def supposed(self, size: int) -> list[tuple[NDArray[np.float64], float]]:
        """Return noise per coordinate (d,), in lattice steps, and the radius, for histograms of normal points.

        The radius is infinite where nobody is moved.
        """
        d, count = self.dimension, max(2.0, float(size))
        deviation, error = supposed_deviation(math.sqrt(self.radius_squared), d), self._error_of_all(count)
        for squared in self.steps:
            error = self._length(self.nearer.sigma(squared, count))
        center, found = box_middle(self.box).astype(np.float64), []
        if self.spread is not None:
            histograms: list[NDArray[np.int64] | None] = [None]
        else:
            off = math.hypot(deviation, error / norm_quantile(d, 0.05))
            histograms = [*supposed_bins(self._radii, off, d, int(count), RHO_UNIT / (2 * self.bins_nano))]
        for bins in histograms:
            ball = self._choose(bins, center, error, count)
            if math.isinf(ball.reach):
                found.append((box_sigmas(self.box, self.whole_nano + self.final.sum_nano, count), math.inf))
            else:
                own = np.minimum(self.final.sigma(ball.squared, count), box_sigmas(self.box, self.whole_nano, count))
                found.append((own, ball.reach))
        return found

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Predict the noise of normal points; where their spread is found privately, of those that plans suppose."""
        found, step = self.supposed(size), grid.lattice.step
        deviation = supposed_deviation(math.sqrt(self.radius_squared), self.dimension)
        balls = np.array([radius for _, radius in found]) / deviation
        moved = deviation * clipping_noise(balls, self.dimension, size) if len(found) > 1 else 0.0
        sigmas = np.hypot(np.sqrt(np.mean([sigma**2 for sigma, _ in found], axis=0)), moved)
        return {f.name: f.scale * step * float(own) for f, own in zip(grid.features, sigmas, strict=True)}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        count = size or self.size_hint
        step, own = grid.lattice.step, TWO_SIDED * box_sigmas(self.box, self.whole_nano, count)
        widths = {f.name: f.scale * step * float(half) for f, half in zip(grid.features, own, strict=True)}
        said = ", ".join(f"{name} {half:.3g}" for name, half in widths.items())
        line = (
            "the mean is that of all records, and `interval` holds it whatever they are: about as wide as +- "
            f"{said}, in proportion to the public ranges"
        )
        return PlanNotes(
            (line,),
            noise_warnings(self.forecast(count).sigma, self.radius_squared),
            {"interval_half_widths": widths},
            PrivacyLoss(self._nano(COUNT)),
        )


def _root(sigmas: NDArray[np.float64]) -> float:
    """Return the root mean square."""
    return math.sqrt(float(np.mean(sigmas**2)))
