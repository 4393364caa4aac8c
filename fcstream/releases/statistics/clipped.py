"""Covariance matrices from thousands of records: second moments of records that are clipped to a learned ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import MAX_VARIANCE, Noise
from ...stream.lattice import Grid
from ..averages import Start, _no_stages, chi_quantile, gaussian_variance, noisy_products, noisy_sums
from ..base import Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues, pairs_of, percent
from ..core_stage import normal_above
from ..floors import gaussian_tail, min_gaussian
from ..options import BuildContext, Options
from .clipped_sums import MAX_RADIUS_BITS, ClippedSums, PointsInTiles, PointsOfSample
from .columns import Column
from .correlations import MatrixNoise, correlations, nearest_covariance, principal_components, regression, with_nulls
from .covariance import true_covariances
from .moved import MovedRecords
from .quantiles import exponential_rate, largest_move, missing_ranks
from .scales import (
    SAMPLE,
    MedianLearner,
    SpreadLearner,
    ascending,
    sampled_rows,
    spread_rungs,
)
from .shapes import DEVIATION, LEVEL, RUNGS, Coordinates
from .tails import NO_CORRELATION, USELESS, WIDE, Tail, offsets_of_ranges, useful

SHARES = {"count": 3, "radius": 4, "outside": 1, "sums": 6}
"""Hundredths of rho of some stages; found by measuring (``bench/moments.py``)."""
FIRST, FIRST_SUMS = 10, 15
"""Hundredths of rho for a first release of the moments, and of that for its sums."""
FIRST_BALL = 4
"""Its squared radius in squared deviations, for each feature."""
OUTSIDE = 29
"""So many records lie beyond the radius, divided by the root of the rho of the products."""
MAX_DIMENSION = 1000
MAX_WORK = 2**24
"""Most records times squared features for which coordinates are turned: it takes time where noise hardly matters."""
_STEPS = 8  # of the ladder of squared radii, for each factor of two: radii 2**(1/16) apart
_MIN_SHARE = 200  # medians and spreads cost at least this part of rho each,
_MAX_SHARE = 7  # and at most this one
_SURE = (2.0, 2.5)  # times the records with which medians, and spreads, are near the data with a chance of one half
_ROUGH, _FINE = 0.5, (0.1, 0.01)  # noise of first covariances, relative to variances: at most, and as a sample is taken


class ClippedCovarianceOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "covariance"``: how features vary, and vary together.

    Released
    --------
    value, sigma
        The covariance matrix of the features, and the deviation of the noise of every entry. It has no negative
        eigenvalue.
    parts.correlations, parts.correlation_sigma, parts.correlation_interval
        The correlations; null where a variance is not clear of its noise.
    parts.mean, parts.mean_sigma, parts.mean_interval
        The mean of the clipped records.
    parts.scale, parts.radius, parts.tail_share
        The learned scale of each feature, about one deviation (null with ``scale = "declared"``); the radius of the
        ball, in scales and after features were mixed; and which share of the records lay outside of it, so that they
        were moved to its border.
    parts.components, parts.explained
        With `components`: directions of largest variance, and their shares of it. They are of features divided by
        their deviations, or with ``scale = "declared"`` by their declared scales.
    parts.coefficients, parts.coefficient_sigma, parts.coefficient_interval, parts.intercept
        With `target`: the linear regression of that feature on the others, by name; null where noise hides it.

    Cost
    ----
    rho, whatever of these is asked for; a window with too few records 3% of it.

    Privacy
    -------
    `ClippedCovariance` states the guarantee.

    Source
    ------
    Specification 7.4, 7.5, 12.1; proof 8.3.
    """

    kind: str = "covariance"
    method: str = "clipped"
    """How: ``clipped`` moments, from thousands of records, or ``friendly`` shards, from millions."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""
    scale: Literal["learned", "declared"] = "learned"
    """Whether each feature is divided by a scale that is found privately, or by its declared `scale` alone."""
    components: int | None = None
    """How many principal components are told."""
    target: str | None = None
    """Feature that is regressed on the others."""

    needs_no_delta: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> ClippedCovariance:
        size_hint, loss, d = self.checked_size_hint(), self.pure_loss(), setting.dimension
        names = [feature.name for feature in setting.grid.features]
        if d > MAX_DIMENSION:
            raise ConfigError(f"must be at most {MAX_DIMENSION} for covariances", "features", got=d)
        if self.components is not None and not 1 <= self.components <= d:
            raise ConfigError(f"must be in [1, {d}]", "release.components", got=self.components)
        if self.target is not None and (self.target not in names or d < 2):
            raise ConfigError("must name one of two features or more", "release.target", got=self.target)
        if loss.rho_nano < 10_000 * d:
            raise ConfigError(
                f"must be at least {1e-05 * d:g} for {d} features", "release.rho", got=Shown(f"{self.rho:g}")
            )
        columns = Column.several(setting.grid)
        target = None if self.target is None else names.index(self.target)
        return ClippedCovariance(loss, columns, size_hint, self.scale == "learned", self.components, target)


@dataclass(frozen=True)
class ClippedCovariance(Mechanism):
    """Mechanism for the second moments of records that are clipped to a ball which is found privately.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    columns : tuple of Column
    size_hint : int
        Public guess of the number of records: it chooses the quantile that the radius is.
    learns : bool
        Whether scales are learned.
    components : int or None
        How many principal components are told.
    target : int or None
        Number of the feature that is regressed on the others.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, whatever the records hold. The stages are a
    noisy count (sensitivity 1), below `min_count` of which nothing else is started; medians (`MedianLearner`) and, if
    scales are learned, spreads (`SpreadLearner`) and a first release of sums and products in a public ball, from which
    `Coordinates` are made; a radius, by an exponential mechanism over a public ladder; the sum of the clipped records
    (sensitivity R); the sum of their products; and the number of records outside of that ball (sensitivity 1). Of
    products the diagonal gets noise of variance v and the rest v / 2, so that a record x costs |x|**4 / (2 v) <=
    R**4 / (2 v). A clipped record is an integer vector that is checked to lie in the ball. All else is post-processing.

    Source
    ------
    Specification 7.4; proof 8.3; ours; noise: Canonne, Kamath, Steinke 2020, Theorem 14.
    """

    loss: PrivacyLoss
    columns: tuple[Column, ...]
    size_hint: int
    learns: bool
    components: int | None = None
    target: int | None = None
    kind: str = "covariance"

    @cached_property
    def shares(self) -> dict[str, PrivacyLoss]:
        """Loss of each stage."""
        whole, d = self.loss.rho_nano, len(self.columns)
        found = {name: whole * share // 100 for name, share in SHARES.items()}
        spans = [column.highest - column.lowest + 1 for column in self.columns]
        found["medians"] = self._share(max(spans), 0.5, _SURE[0])
        if self.learns:
            found["spreads"] = self._share(
                max(len(spread_rungs(each, RUNGS)) for each in self.columns), 0.125, _SURE[1]
            )
            first = whole * FIRST // 100
            variance = first * (100 - FIRST_SUMS) // 100 * 2 / RHO_UNIT * self.size_hint**2 / (FIRST_BALL * d) ** 2
            if d > 1 and variance * _ROUGH**2 >= 1:
                found["first"] = first
        found["moments"] = whole - sum(found.values())
        return {name: PrivacyLoss(rho_nano) for name, rho_nano in found.items()}

    def _share(self, candidates: int, slope: float, sure: float) -> int:
        """Return the billionths of rho for one quantile of each feature, among so many candidates.

        That many records pay for `sure` times what `min_records` asks for; `slope` is the cost, for an epsilon of 1
        and one record, of a value beyond all records.
        """
        epsilon = sure * math.log(max(2, candidates)) / (slope * min(self.size_hint, SAMPLE))
        wanted, whole = math.ceil(min(epsilon, 1e3) ** 2 / 8 * len(self.columns) * RHO_UNIT), self.loss.rho_nano
        return max(whole // _MIN_SHARE, min(whole // _MAX_SHARE, wanted))

    @cached_property
    def medians(self) -> MedianLearner:
        return MedianLearner(self.shares["medians"], self.columns)

    @cached_property
    def spreads(self) -> SpreadLearner | None:
        return SpreadLearner(self.shares["spreads"], self.columns, LEVEL, RUNGS) if self.learns else None

    @property
    def turns(self) -> bool:
        """Whether coordinates mix features, where there is a first release."""
        return self.size_hint * len(self.columns) ** 2 <= MAX_WORK

    @cached_property
    def ladder(self) -> tuple[int, ...]:
        """Squared radii, ascending, in squared units.

        Without learned scales the last one holds every record of the public ranges; with them they go from a third of
        a feature's deviation, times the root of the number of features, to 22 deviations.
        """
        spans = [column.highest - column.lowest for column in self.columns]
        first, last = 0.0, math.log2(sum(span * span for span in spans)) + 0.1
        if self.learns:
            middle = math.log2(len(spans) * DEVIATION**2)
            first, last = middle - 3, middle + 9
        rungs = {math.floor(2.0 ** (first + k / _STEPS)) for k in range(math.ceil((last - first) * _STEPS) + 1)}
        return tuple(sorted(rungs))

    @cached_property
    def weights(self) -> NDArray[np.int64]:
        """Public weight of each rung of the ladder, larger for small radii: few records then find no large one."""
        rungs = len(self.ladder)
        return 1 << (np.arange(rungs, dtype=np.int64)[::-1] // math.ceil(rungs / 40))

    @cached_property
    def radius_level(self) -> Fraction:
        """Which quantile of the distances the radius is.

        What clipping takes grows with the records beyond the radius, and noise with the radius: the sum of both is
        least where a number of records lies beyond it that depends on rho alone. It is not smaller than the draw of the
        quantile needs.
        """
        missing = 2 * math.log(len(self.ladder)) / self._radius_slope
        wanted = OUTSIDE / math.sqrt(self.shares["moments"].rho)
        return 1 - Fraction(round(10_000 * min(0.25, max(0.0005, max(missing, wanted) / self.size_hint))), 10_000)

    @property
    def _radius_slope(self) -> float:
        """What one record costs a radius, in the logarithm of its probability."""
        return math.sqrt(8 * self.shares["radius"].rho) / 2

    @cached_property
    def radius_rate(self) -> Fraction:
        return exponential_rate([2 * largest_move(self.radius_level)], self.shares["radius"])

    @cached_property
    def count_variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self.shares["count"].rho_nano)

    @cached_property
    def min_count(self) -> int:
        """Least noisy count: below, quantiles may lie anywhere."""
        radius = math.ceil(math.log(int(self.weights.sum())) / self._radius_slope)
        spreads = 1 if self.spreads is None else self.spreads.needed
        return max(min_gaussian(self.count_variance), self.medians.needed, spreads, radius)

    @property
    def false_release(self) -> float:
        return gaussian_tail(self.count_variance, self.min_count)

    def release(self, view: PointsInTiles, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        charge.start(self.shares["count"])
        size = view.size + noise.one_gaussian(self.count_variance)
        if size < self.min_count:
            return Outcome("too_few", count=size)
        coordinates = self._coordinates(view, size, noise, charge.start)
        charge.start(self.shares["radius"])
        clipped = ClippedSums(view, coordinates)
        radius_squared = self._radius(clipped.norms, noise)
        sums, products, limit, beyond = self.noisy_moments(clipped, radius_squared, noise, charge.start)
        charge.start(self.shares["outside"])
        variance = Fraction(RHO_UNIT, 2 * self.shares["outside"].rho_nano)
        outside = beyond + noise.one_gaussian(variance)
        return self._outcome(size, outside, sums, products, radius_squared, limit, coordinates)

    def _coordinates(self, view: PointsInTiles, size: int, noise: Noise, start: Start) -> Coordinates:
        """Learn in which coordinates records are clipped, from a window of about `size` records."""
        start(self.shares["medians"])
        some, number = view, size
        if size > 2 * self.sample:
            rows = sampled_rows(view.size, Fraction(self.sample, size), noise)
            some, number = PointsOfSample(view.points_at(rows)), self.sample
        values = ascending(np.arange(some.size), some.points_at, self.columns)
        middles = self.medians.learn_sorted(values, noise)
        if self.spreads is None:
            return Coordinates.plain(middles, None)
        start(self.shares["spreads"])
        found = Coordinates.plain(middles, self.spreads.learn_sorted(values, middles, noise))
        if "first" not in self.shares:
            return found
        start(self.shares["first"])
        return self._moved(some, number, found, noise)

    @cached_property
    def sample(self) -> int:
        """Number of records of which coordinates are learned, where a window holds more than twice as many."""
        wanted = [SAMPLE, 4 * self.medians.needed]
        if self.spreads is not None:
            wanted.append(4 * self.spreads.needed)
        if "first" in self.shares:
            wanted.append(math.ceil(self._first_entry / (_FINE[self.turns] * DEVIATION**2)))
        return max(wanted)

    @cached_property
    def first_shares(self) -> tuple[int, int]:
        """Billionths of rho of the sums and of the products of the first release."""
        whole = self.shares["first"].rho_nano
        return whole * FIRST_SUMS // 100, whole - whole * FIRST_SUMS // 100

    @property
    def first_ball(self) -> int:
        """Squared radius of the first release, in squared units."""
        return FIRST_BALL * len(self.columns) * DEVIATION**2

    @property
    def _first_entry(self) -> float:
        """Deviation of the noise of a sum of products of the first release, in squared units."""
        return self.first_ball / (2 * math.sqrt(self.first_shares[1] / RHO_UNIT))

    def _moved(self, view: PointsInTiles, size: int, coordinates: Coordinates, noise: Noise) -> Coordinates:
        """Release moments in the public ball, and return the coordinates that follow from them."""
        clipped, shift = ClippedSums(view, coordinates), self.shift(self.first_ball, self.first_shares[1])
        limit, unit = self.first_ball >> (2 * shift), 1 << shift
        sums, products, _ = clipped.within(self.first_ball, shift)
        variance = gaussian_variance(limit, self.first_shares[0])
        mean = noisy_sums(sums, noise.discrete_gaussian(variance, len(sums))) / size
        found = noisy_products(products, gaussian_variance(limit * limit, self.first_shares[1]), noise) / size
        found += float(variance) / size**2 * np.eye(len(mean)) - np.outer(mean, mean)
        return coordinates.moved(mean * unit, found * unit**2, self._first_entry / size, turns=self.turns)

    def noisy_moments(
        self, clipped: ClippedSums, radius_squared: int, noise: Noise, start: Start = _no_stages
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int, int]:
        """Clip records to a ball, and release their sums (d,) and sums of products (d, d).

        Returns also the squared radius in the units of these sums, and, which is private, how many records lay beyond
        it. Calls `start` before the draws of each stage.
        """
        shift = self.shift(radius_squared, self.shares["moments"].rho_nano)
        limit = radius_squared >> (2 * shift)
        sums, products, beyond = clipped.within(radius_squared, shift)
        start(self.shares["sums"])
        variance = gaussian_variance(limit, self.shares["sums"].rho_nano)
        told_sums = noisy_sums(sums, noise.discrete_gaussian(variance, len(sums)))
        start(self.shares["moments"])
        return told_sums, noisy_products(products, self.variance(limit), noise), limit, beyond

    def _radius(self, norms: NDArray[np.float64], noise: Noise) -> int:
        """Draw a rung of the ladder near the quantile of the squared norms (n,), and return the squared radius."""
        from ..._kernels import moments

        rungs = np.array(self.ladder, np.float64)
        parts = np.arange(math.ceil(8 * (math.log2(self.ladder[-1]) + 1)))  # eight for each factor of two
        ends = np.where(parts > 0, np.ldexp(1 + parts % 8 / 8, parts // 8), 0.0)
        starts = np.minimum(np.searchsorted(rungs, ends), len(rungs) - 1)
        exponents = (norms.view(np.int64) >> 49) - (1023 << 3)
        counts = np.zeros(len(rungs), np.int64)
        moments.count_rungs(norms, exponents, rungs, starts, counts)
        below = np.cumsum(counts) - counts
        above = len(norms) - below - counts
        paid = missing_ranks(below, above, len(norms), self.radius_level)
        chosen = noise.exponential_choice(self.weights, paid, self.radius_rate)
        return min(math.floor(self.ladder[chosen] * self.widening), self.ladder[-1])

    @property
    def widening(self) -> Fraction:
        """The ball's squared radius, divided by the quantile that is drawn.

        A quantile that can be drawn leaves out so many records that variances would be several of their sigmas too
        small, the more so the fewer features share what clipping takes.
        """
        return 1 + Fraction(1, len(self.columns))

    def shift(self, radius_squared: int, rho_nano: int) -> int:
        """Return the s of the units 2**s in which a clipped record is short enough, and noise can be drawn."""
        shift = 0
        while True:
            limit = radius_squared >> (2 * shift)
            if limit < 4**MAX_RADIUS_BITS and gaussian_variance(limit * limit, rho_nano) <= MAX_VARIANCE:
                return shift
            shift += 1

    def variance(self, limit: int) -> Fraction:
        """Return the variance of the noise of a sum of squares, for records of squared norm up to `limit`."""
        return gaussian_variance(limit * limit, self.shares["moments"].rho_nano)

    def _outcome(
        self,
        size: int,
        outside: int,
        sums: NDArray[np.float64],
        products: NDArray[np.float64],
        radius_squared: int,
        limit: int,
        coordinates: Coordinates,
    ) -> Outcome:
        """Divide released sums by the released number; lattice steps."""
        shift = self.shift(radius_squared, self.shares["moments"].rho_nano)
        mean, units = sums / size, (1 << shift) / coordinates.factors
        mean_variance = float(gaussian_variance(limit, self.shares["sums"].rho_nano)) / size**2
        raw = products / size - np.outer(mean, mean) + mean_variance * np.eye(len(mean))
        matrix = nearest_covariance(raw)
        back, entry = coordinates.back, math.sqrt(self.variance(limit) / 2) / size
        spread, offset = back @ back.T, back @ mean
        own = MatrixNoise(entry * spread, offset, mean_variance * spread, float(self.count_variance) / size**2)
        value, both = back @ matrix @ back.T, np.outer(units, units)
        value = (value + value.T) / 2
        raw = back @ raw @ back.T
        parts = {
            "units": units,
            "matrix": value,
            "raw": (raw + raw.T) / 2,
            "noise": own,
            "outside": Tail.of(outside, Fraction(RHO_UNIT, 2 * self.shares["outside"].rho_nano), size),
            "middles": coordinates.middles,
            "rounding": np.abs(back).sum(axis=1) * (1 - (0.5 if self.learns else 1) / (1 << shift)),
            "mean": coordinates.middles + units * offset,
            "mean_sigma": units * np.sqrt(mean_variance * np.diag(spread)),
            "scale": DEVIATION / coordinates.factors if self.learns else None,
            "radius": math.sqrt(limit) * (1 << shift) / (DEVIATION if self.learns else 1),
            "tail_share": min(1.0, max(0.0, outside / size)),
        }
        return Outcome(None, value * both, own.sigma(value) * both, size, max(0, size - outside), parts=parts)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        """Convert the matrix to products of the features' units, and add what follows from it."""
        names, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        if outcome.value is None or outcome.sigma is None or outcome.parts is None:
            return ReleaseValues(None, None, names, transforms)
        step, own = grid.lattice.step, outcome.parts
        widths = np.array([feature.scale * step for feature in grid.features])
        both = np.outer(widths, widths)
        found, deviations = correlations(own["matrix"], own["noise"])
        scale = None if own["scale"] is None else (own["scale"] * widths).tolist()
        low, high = (ends / own["units"] for ends in offsets_of_ranges(grid, own["middles"]))
        moved = MovedRecords(
            own["outside"], own["raw"], own["matrix"], own["noise"], low, high, own["rounding"]
        )  # fmt: skip
        deviation = np.sqrt(np.diag(own["matrix"]))
        most = USELESS * np.outer(deviation, deviation)
        units = own["units"] * widths
        interval, is_wide = useful(moved.covariances(), most, np.outer(units, units))
        words = {"value": WIDE} if is_wide else {}
        most = np.where(np.isnan(found), np.nan, NO_CORRELATION)
        of_correlations, is_wide = useful(moved.correlations(found, deviations), most)
        words |= {"correlations": WIDE} if is_wide else {}
        parts = {
            "correlations": with_nulls(found),
            "correlation_sigma": with_nulls(deviations),
            "correlation_interval": of_correlations,
            "mean": grid.values(own["mean"]),
            "mean_sigma": grid.widths(own["mean_sigma"]),
            "mean_interval": pairs_of(
                *map(grid.values, (own["middles"] + own["units"] * ends for ends in moved.means().T))
            ),
            "scale": scale,
            "radius": own["radius"] * (1 if self.learns else step),
            "tail_share": own["tail_share"],
        }
        if self.components is not None:
            parts |= self._components(outcome.value if scale is None else found)
        if self.target is not None:
            own_parts, is_wide = self._regression(outcome, own, units, names, parts["mean"], moved)
            parts, words = parts | own_parts, words | ({"coefficients": WIDE} if is_wide else {})
        value, sigma = (outcome.value * both).tolist(), (outcome.sigma * both).tolist()
        return ReleaseValues(value, sigma, names, transforms, parts, interval, words)

    def _components(self, matrix: NDArray[np.float64]) -> dict[str, Any]:
        assert self.components is not None
        if np.isnan(matrix).any():
            return {"components": None, "explained": None}
        directions, shares = principal_components(matrix, self.components)
        return {"components": directions.tolist(), "explained": shares.tolist()}

    def _regression(
        self,
        outcome: Outcome,
        own: dict[str, Any],
        units: NDArray[np.float64],
        names: list[str],
        mean: list[float],
        moved: MovedRecords,
    ) -> tuple[dict[str, Any], bool]:
        """Return the parts about a regression, and whether an interval of a coefficient is missing."""
        assert self.target is not None
        assert outcome.count is not None
        target = self.target
        made = regression(own["matrix"], own["noise"].products, outcome.count, target)
        if made is None:
            return {"coefficients": None, "coefficient_sigma": None, "intercept": None}, False
        others = [k for k in range(len(names)) if k != target]
        change = units[target] / units[others]
        deviation = np.sqrt(np.diag(own["matrix"]))
        intervals, is_wide = useful(
            moved.coefficients(*made, target), USELESS * deviation[target] / deviation[others], change
        )
        slopes, deviations = made[0] * change, made[1] * change
        intercept = mean[target] - sum(slope * mean[k] for slope, k in zip(slopes.tolist(), others, strict=True))
        return {
            "coefficients": {names[k]: slope for k, slope in zip(others, slopes.tolist(), strict=True)},
            "coefficient_sigma": {names[k]: sigma for k, sigma in zip(others, deviations.tolist(), strict=True)},
            "coefficient_interval": {names[k]: pair for k, pair in zip(others, intervals, strict=True)},
            "intercept": intercept,
        }, is_wide

    def correlation_sigma(self, size: int) -> float:
        """Return the deviation of the noise of a correlation of `size` normal records with equal scales."""
        return self._sigma_within(self._normal_reach, size)

    @property
    def _normal_reach(self) -> float:
        """Radius of the ball of normal records, in deviations of a feature."""
        return chi_quantile(len(self.columns), float(self.radius_level)) * math.sqrt(self.widening)

    @property
    def clipped_away(self) -> float:
        """Which part of variances and covariances clipping takes from normal records with equal scales."""
        from scipy.special import gammaincc

        half, limit = len(self.columns) / 2, self._normal_reach**2 / 2  # of the squared norm
        return float(gammaincc(half + 1, limit) - limit / half * gammaincc(half, limit))

    def _sigma_within(self, reach: float, size: int) -> float:
        """Return that deviation for a ball of so many deviations of a feature."""
        return reach**2 / (2 * math.sqrt(self.shares["moments"].rho) * max(size, 1))

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of that many records. No sigma is forecast, because the noise depends on their spread."""
        spread = math.sqrt(self.count_variance)
        return Forecast(normal_above((self.min_count - 0.5 - size) / spread), math.nan)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        return true_covariances(points, grid)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Return the noise deviation of a correlation of normal records."""
        return {"correlation": self.correlation_sigma(size)}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        how = "scales are learned" if self.learns else "scales are those declared"
        if "first" in self.shares:
            how = f"{FIRST}% of rho finds how features vary together, so that all directions get their share of noise"
        nearest, taken = f"{100 * float(self.radius_level):g}%", percent(self.clipped_away)
        lines = (
            f"{how}; records far out are moved to the border of a ball that holds a little more than the {nearest} "
            f"nearest, which takes some {taken} from variances and covariances of normal records, "
            "and more with longer tails (`tail_share` tells how many were moved)",
            f"windows need about {self.min_count} records",
        )
        warnings: tuple[str, ...] = ()
        if size is not None and self.correlation_sigma(size) > 0.1:
            warnings = ("noise hides most correlations: use longer windows, or raise `release.rho`",)
        facts = {"records_needed": self.min_count}
        return PlanNotes(lines, warnings, facts, self.shares["count"], case=" with features of equal scale")
