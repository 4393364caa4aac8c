"""Mean of a stream that starts from the public ranges and comes nearer with every release; it needs no core."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...counting.views import Selection, WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ...stream.totals import column_totals, tile_totals
from ..averages import BallAverage, Start, check_noise, chi_quantile, gaussian_variance, to_center
from ..base import Forecast, Outcome, PlanNotes, PointMechanism, Track
from ..core_stage import normal_above
from ..floors import FALSE_RELEASE
from ..reasons import LEFT_OUT
from ..trees.growing import PublicBox
from .spread_histogram import clipping_error, supposed_bins

FIRST, BINS = Fraction(7, 20), Fraction(3, 20)
"""Shares of a cold start's rho: of the mean clipped to the public ranges, and of the distances from it."""
TRIMMED = 0.1
"""Share of the farthest points that a radius need not fit."""
PULL = 0.7
"""How much of the pull of clipped points counts; all of it if they lie on one side."""
MIN_SHARE = 0.5
"""Share of the points that must lie near the last release, or the window starts cold."""
MAX_RADIUS = math.isqrt((2**53 - 1) // 4)
"""Largest radius, in lattice steps: squared distances up to twice as far are exact."""
WIDEST = 2**27
"""Largest distance from the middle of the public ranges to their corner, in lattice steps."""
_STARTS, _WINDOWS = 8, 12  # of a forecast of later windows
_OFFSET_BITS = 26
_NEAR = 5  # bins within twice the radius; one more holds what lies beyond
_MIN_NANO = 1000
_UP = 1 + 1e-9


class _NearCounts(NamedTuple):
    """Noisy numbers of points by their distance from a center; released."""

    bins: list[int]
    inside: int
    everybody: int

    @property
    def parts(self) -> dict[str, float]:
        """What a release tells of them: the share of points outside of the ball."""
        outside = max(0, self.bins[-2] + max(0, self.bins[-1]))
        return {"tail_share": min(1.0, outside / max(1, self.everybody))}


class _Looked(NamedTuple):
    """What a look into one ball found; released. Without a value, either too few or other points are there."""

    counts: _NearCounts
    value: NDArray[np.float64] | None = None
    sigma: NDArray[np.float64] | None = None
    track: Track | None = None


@dataclass(frozen=True)
class _Look:
    """One look at the points around a released center: how far they lie, and the mean of those that lie near.

    Parameters
    ----------
    rho_nano : int
        rho (nano) of the look.
    dimension : int

    Privacy
    -------
    Protects one point, added or removed, with rho-zCDP and delta = 0, for a center and a radius R that are public or
    released. One histogram: a point is in one bin (sensitivity 1). One sum over the points within 2 R, each clipped to
    the ball of radius R and checked in integers (sensitivity R; a point farther away adds nothing). Whether there is
    a sum, and what it is divided by, follows from the released bins.

    Source
    ------
    Specification 5.16; proof 5.10; ours.
    """

    rho_nano: int
    dimension: int

    @cached_property
    def average(self) -> BallAverage:
        return BallAverage.split(self.rho_nano, self.dimension)

    @property
    def variance(self) -> Fraction:
        """Variance of the number of points in a bin."""
        return self.average.count_variance

    @cached_property
    def min_inside(self) -> int:
        """Least noisy number of points within twice the radius for which there is a value."""
        return min_sum(self.variance, _NEAR)

    @cached_property
    def min_everybody(self) -> int:
        """Least noisy number of all points from which it is believed that they lie elsewhere."""
        return min_sum(self.variance, _NEAR + 1)

    def unit_noise(self, count: float) -> float:
        """Length of the noise of a mean of so many points in a ball of radius 1."""
        return math.sqrt(self.dimension) * self.average.sigma(1, max(1.0, count))

    def count(
        self, points: Selection, center: NDArray[np.float64], radius: int, noise: Noise, start: Start
    ) -> _NearCounts:
        start(PrivacyLoss(self.average.count_nano))
        square = radius * radius
        bounds = [square // 64, square // 4, square // 2, square, 4 * square]
        bins = histogram(points, center, bounds, self.variance, noise)
        inside = sum(bins[:-1])
        return _NearCounts(bins, inside, inside + max(0, bins[-1]))

    def mean(
        self,
        points: Selection,
        center: NDArray[np.float64],
        radius: int,
        counts: _NearCounts,
        box: PublicBox,
        noise: Noise,
        start: Start,
    ) -> _Looked:
        """Average the points near the center, if `counts` told of enough, and choose the next radius."""
        if counts.inside < self.min_inside:
            return _Looked(counts)
        from ..._kernels import sums

        start(PrivacyLoss(self.average.sum_nano))
        square = radius * radius

        def add(tiles: NDArray[np.float64], mask: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
            near = np.zeros(len(mask), np.bool_)
            sums.mark_within(tiles, len(mask), mask, center, float(4 * square), near)
            return int(sums.clipped_sum(tiles, len(near), near, center, float(square), out))

        total, _ = tile_totals(points.parts, self.dimension, radius + 1, add)
        variance = _NEAR * self.variance
        estimate = self.average.quotient(total, counts.inside, variance, center, square, noise)
        sigma = float(estimate.sigma.max())
        fitting = fitting_radius(counts.bins[:-1], _near_edges(radius), self.unit_noise(counts.inside))
        following = _whole(max(fitting, sigma * math.sqrt(self.dimension)))
        place = np.clip(to_center(estimate.value), box.low, box.high)
        share = counts.inside / max(1, counts.everybody)
        track = Track([int(x) for x in place], sigma, float(following), float(following), share)
        return _Looked(counts, estimate.value, estimate.sigma, track)

    def is_elsewhere(self, counts: _NearCounts) -> bool:
        """Return whether most points surely lie farther than twice the radius from the center."""
        if counts.everybody < self.min_everybody:
            return False
        doubt = math.sqrt(1.5 * self.variance)
        return counts.inside + doubt < MIN_SHARE * counts.everybody


@dataclass(frozen=True)
class ColdStart:
    """Finds a window's points from the public ranges: a clipped mean, distances from it, and a look into a ball.

    Parameters
    ----------
    rho_nano : int
        rho (nano) of all stages together.
    box : PublicBox

    Privacy
    -------
    Protects one point, added or removed, with rho-zCDP and delta = 0: the shares of four stages add up. The number of
    points has sensitivity 1. Offsets from the box's middle, after clamping to it, move feature j's sum by h_j at most,
    with the variance h_j sum(h) / (2 rho). In the histogram of distances a point is in one bin, whose edges follow from
    released numbers. The look is `_Look`.

    Source
    ------
    Specification 5.16; proof 5.10; ours.
    """

    rho_nano: int
    box: PublicBox

    def __post_init__(self) -> None:
        if min(self.first.sum_nano, self.first.count_nano, self.bins_nano) < _MIN_NANO:
            raise ConfigError("must be larger: too little is left for a cold start", "release.rho")
        check_noise(self.box.dimension * 4**_OFFSET_BITS, self.first.sum_nano)
        _ = self.look.average

    @cached_property
    def first(self) -> BallAverage:
        """Shares of the mean clipped to the public ranges."""
        return BallAverage.split(int(self.rho_nano * FIRST), self.box.dimension)

    @cached_property
    def bins_nano(self) -> int:
        return int(self.rho_nano * BINS)

    @cached_property
    def look(self) -> _Look:
        spent = self.first.sum_nano + self.first.count_nano + self.bins_nano
        return _Look(self.rho_nano - spent, self.box.dimension)

    def chance(self, size: int) -> float:
        """Return the probability that a window of `size` points that lie together has a value."""
        found = normal_above((self.first.smallest - 0.5 - size) / math.sqrt(self.first.count_variance))
        return found * normal_above((self.look.min_inside - 0.5 - size) / math.sqrt(_NEAR * self.look.variance))

    def find(self, view: WindowView, noise: Noise, start: Start) -> Outcome:
        """Find the mean of a window's points; calls `start` before each stage."""
        start(PrivacyLoss(self.first.count_nano))
        count = view.size + noise.one_gaussian(self.first.count_variance)
        if count < self.first.smallest:
            return Outcome("too_few", count=count)
        start(PrivacyLoss(self.first.sum_nano))
        center, error = self._rough(view.points(), count, noise)
        start(PrivacyLoss(self.bins_nano))
        points = view.select(np.ones(view.size, np.bool_))
        edges = self._edges(error)
        bins = histogram(
            points, center, [int(edge * edge) for edge in edges], Fraction(RHO_UNIT, 2 * self.bins_nano), noise
        )
        radius = _whole(fitting_radius(bins[:-1], edges, self.look.unit_noise(count)))
        counts = self.look.count(points, center, radius, noise, start)
        found = self.look.mean(points, center, radius, counts, self.box, noise, start)
        reason = None if found.value is not None else "too_few"
        parts = None if reason else counts.parts
        return Outcome(
            reason,
            found.value,
            found.sigma,
            counts.everybody,
            counts.inside,
            track=found.track,
            parts=parts,
            no_interval=None if reason else LEFT_OUT,
        )

    def _rough(self, points: NDArray[np.float64], count: int, noise: Noise) -> tuple[NDArray[np.float64], float]:
        """Return the mean of the points, each clamped to the box, within the box, and the length of its noise."""
        low, high = np.array(self.box.low, np.int64), np.array(self.box.high, np.int64)
        middle = (low + high) // 2
        reach = (high - middle).tolist()
        shift = max(0, max(reach).bit_length() - _OFFSET_BITS)
        units = [side >> shift for side in reach]
        offsets = np.clip(points.astype(np.int64), low, high) - middle
        total = column_totals(np.sign(offsets) * (np.abs(offsets) >> shift), max(1, *units))
        found, squares = [], 0.0
        for exact, side in zip(total, units, strict=True):
            drawn = 0
            if side:
                variance = gaussian_variance(side * sum(units), self.first.sum_nano)
                drawn, squares = noise.one_gaussian(variance), squares + float(variance)
            found.append((exact + drawn) / count * 2.0**shift)
        center = np.clip(to_center(middle + np.array(found)), low, high).astype(np.float64)
        return center, math.sqrt(squares) * 2.0**shift / count

    def _edges(self, error: float) -> list[float]:
        """Return distances from half the center's noise to the length of the box, each twice the one before."""
        longest = math.ceil(math.sqrt(sum((b - a) ** 2 for a, b in zip(self.box.low, self.box.high, strict=True))))
        edges = [float(max(1, longest))]
        while edges[-1] > max(1.0, error / 2):
            edges.append(edges[-1] / 2)
        return edges[::-1]


@dataclass(frozen=True)
class ZoomingMean(PointMechanism):
    """Mechanism for the mean of points that nothing but the public ranges is known of when the stream starts.

    The first window starts cold. Each later one looks around the last release, at the radius that its counts told, so
    that the ball shrinks onto the points within a few windows. A window most of whose points have left starts cold
    with what the look has not spent.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    box : PublicBox
    track : Track or None
        Center and radius left by the window before; None starts cold.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, whatever the window holds. `ColdStart` or
    `_Look`: center and radius come from public numbers and earlier releases alone. A window that starts cold after a
    look has paid for the look's histogram, and pays with the share of the sum, which was not started.

    Source
    ------
    Specification 5.16; proof 5.10; ours, on `BallAverage`.
    """

    tracks = True
    loss: PrivacyLoss
    box: PublicBox
    track: Track | None = None
    kind: str = "mean"

    def __post_init__(self) -> None:
        corner = math.sqrt(sum((b - a) ** 2 for a, b in zip(self.box.low, self.box.high, strict=True))) / 2
        if corner > WIDEST:
            raise ConfigError(
                f"must be larger: the corner of the public ranges is {corner:.3g} steps from their middle, and without "
                f"{{radius}} it may be at most {WIDEST}",
                "lattice.step",
                radius="release.radius",
            )
        _ = self.start, self.again  # refuse a budget that is too small to split, now

    @cached_property
    def start(self) -> ColdStart:
        return _built(self.loss.rho_nano, self.box)

    @cached_property
    def look(self) -> _Look:
        return _Look(self.loss.rho_nano, self.box.dimension)

    @cached_property
    def again(self) -> ColdStart:
        """The cold start of a window whose points have left."""
        return _built(self.look.average.sum_nano, self.box)

    @property
    def false_release(self) -> float:
        look, once = self.look, self.again.first.false_release
        warm = tail_of_sum(look.variance, _NEAR, look.min_inside)
        warm += once * tail_of_sum(look.variance, _NEAR + 1, look.min_everybody)
        return max(self.start.first.false_release, warm)

    def after(self, track: Track | None) -> ZoomingMean:
        return replace(self, track=track)

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        if self.track is None:
            return self.start.find(view, noise, charge.start)
        center, radius = np.array(self.track.center, np.float64), _whole(self.track.reach)
        points = view.select(np.ones(view.size, np.bool_))
        counts = self.look.count(points, center, radius, noise, charge.start)
        if self.look.is_elsewhere(counts):
            return self.again.find(view, noise, charge.start)
        found = self.look.mean(points, center, radius, counts, self.box, noise, charge.start)
        if found.value is None:  # nobody says that they have moved
            return Outcome("too_few", count=counts.everybody, core_count=counts.inside, track=self.track)
        return Outcome(
            None,
            found.value,
            found.sigma,
            counts.everybody,
            counts.inside,
            track=found.track,
            parts=counts.parts,
            no_interval=LEFT_OUT,
        )

    def forecast(self, size: int) -> Forecast:
        """Forecast a window that starts cold; how far its records lie from each other, only the data tell."""
        return Forecast(self.start.chance(size), math.nan)

    def settled(self, size: int) -> tuple[float, float]:
        """Predict a feature's noise from about the tenth window on, and what clipping adds to its error.

        Both are standard deviations, for normal records of deviation 1.
        """
        radius, d = _settled_radius(self.look, size), self.box.dimension
        return radius * self.look.unit_noise(size) / math.sqrt(d), clipping_error(radius, d, size)

    def error_of_reach(self, size: int) -> float:
        """Predict the error as a part of the distance within which nine of ten records lie."""
        return math.hypot(*self.settled(size)) / chi_quantile(self.box.dimension, 0.9)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        stopped = PrivacyLoss(self.start.first.count_nano)
        if size is None:
            return PlanNotes(stopped=stopped)
        share = self.settled(size)[0] / chi_quantile(self.box.dimension, 0.9)
        lines = (
            "the first window starts from the public ranges, each later one from the release before; after about ten "
            f"windows the noise per feature is {share:.3g} of the distance within which nine of ten records lie",
        )
        warnings: tuple[str, ...] = ()
        if self.look.unit_noise(size) > MIN_SHARE:
            warnings = (
                "the noise of a mean is as wide as the records lie: no window comes nearer to them than the one "
                "before; use longer windows or raise `release.rho`",
            )
        return PlanNotes(lines, warnings, facts={"noise_of_reach": share}, stopped=stopped)


def _near_edges(radius: float) -> list[float]:
    """Return the distances that bound a look's bins, ascending."""
    return [radius / 8, radius / 2, radius / math.sqrt(2), radius, 2 * radius]


@lru_cache(maxsize=64)
def _settled_radius(look: _Look, size: int) -> float:
    """Go through some windows of `size` normal points of deviation 1 and return the radius that balls then have.

    It is the root mean square over balls that were up to twice as wide as each other at the start.
    """
    d, found = look.dimension, 0.0
    for k in range(_STARTS):
        radius = 4 * math.sqrt(d) * 2 ** (k / _STARTS)
        for _ in range(_WINDOWS):
            edges, error = _near_edges(radius), look.unit_noise(size) * radius
            histograms = supposed_bins(
                np.square(edges), math.hypot(1, error / math.sqrt(d)), d, size, float(look.variance)
            )
            bins = next(islice(histograms, k, None)).tolist()
            radius = max(fitting_radius(bins[:-1], edges, look.unit_noise(sum(bins[:-1]))), error)
        found += radius**2 / _STARTS
    return math.sqrt(found)


@lru_cache(maxsize=64)
def _built(rho_nano: int, box: PublicBox) -> ColdStart:
    return ColdStart(rho_nano, box)


def _whole(radius: float) -> int:
    return int(min(max(1, math.ceil(radius)), MAX_RADIUS))


def histogram(
    points: Selection, center: NDArray[np.float64], bounds: Sequence[int], variance: Fraction, noise: Noise
) -> list[int]:
    """Return noisy numbers of points by their squared distance from a center, up to each bound and beyond the last.

    Privacy
    -------
    A point is in one bin: sensitivity 1, whatever the number of bins.

    Source
    ------
    Specification 5.16; proofs 5.10, 6.1.
    """
    from ..._kernels import sums

    edges, bins = np.array(bounds, np.float64), np.zeros(len(bounds) + 1, np.int64)
    for tiles, mask in points.parts:
        sums.masked_histogram(tiles, len(mask), mask, center, edges, bins)
    found: list[int] = (bins + noise.discrete_gaussian(variance, len(bins))).tolist()
    return found


def fitting_radius(bins: Sequence[int], edges: Sequence[float], unit_noise: float) -> float:
    """Choose the edge at which noise, which grows with it, and the pull of clipped points together are smallest.

    Parameters
    ----------
    bins : sequence of int
        Noisy numbers of points up to each edge.
    edges : sequence of float
        Distances, ascending.
    unit_noise : float
        Length of the noise of a mean in a ball of radius 1.

    Privacy
    -------
    Post-processing of a released histogram.

    Source
    ------
    Specification 5.16; ours.
    """
    counts = [float(max(0, number)) for number in bins]
    left = TRIMMED * sum(counts)
    for k in range(len(counts) - 1, -1, -1):
        taken = min(left, counts[k])
        counts[k] -= taken
        left -= taken
    everybody = max(1.0, sum(counts))
    best, chosen = math.inf, edges[-1]
    for k, edge in enumerate(edges):
        beyond = zip(counts[k + 1 :], edges[k + 1 :], strict=True)
        pull = PULL * sum(number * max(0.0, far * 2**-0.25 - edge) for number, far in beyond) / everybody
        cost = math.hypot(unit_noise * edge, pull)
        if cost < best:
            best, chosen = cost, edge
    return chosen


def tail_of_sum(variance: Fraction, terms: int, least: int) -> float:
    """Bound the chance that some discrete Gaussians of this variance add up to at least `least`, >= 1.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.16; proof 5.10; Chernoff, as a discrete Gaussian is sub-Gaussian (Canonne, Kamath, Steinke 2020).
    """
    return max(math.exp(-(least**2) / (2 * terms * float(variance))) * _UP, 1e-300)


def min_sum(variance: Fraction, terms: int) -> int:
    """Smallest number >= 1 that such a sum reaches with at most nearly the chance `FALSE_RELEASE`.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 1.5, 5.16; proof 5.10.
    """
    # What is left of the chance is for a cold start after a look.
    return math.ceil(math.sqrt(2 * terms * float(variance) * math.log(1.001 / FALSE_RELEASE)) * _UP)
