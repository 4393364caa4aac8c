"""Covariance matrices from thousands of records: second moments of records that are clipped to a learned ball."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import MAX_VARIANCE, Noise
from ...stream.lattice import Grid
from ...stream.totals import Totals
from ..averages import Start, _no_stages, chi_quantile, gaussian_variance, norm_quantile
from ..base import Forecast, MechanismBase, Outcome, PlanNotes, ReleaseValues
from ..core_stage import normal_above
from ..floors import gaussian_tail, least_gaussian
from ..options import BuildContext, Options
from .columns import Column
from .correlations import correlations, nearest_covariance, principal_components, regression, with_nulls
from .scales import UNITS, FeatureScales, ScaleLearner, exponential_rate, least_records, missing_ranks

SHARES = {"count": 3, "radius": 4, "outside": 1, "sums": 9}
"""Hundredths of rho of the stages besides scales and moments; found by measuring (``bench/moments.py``)."""
SCALES = ((8, Fraction(1, 10)), (8, Fraction(1, 4)), (16, Fraction(1, 4)), (30, Fraction(1, 4)))
"""Hundredths of rho for scales, and their lower quantile: the first is taken for which there are records enough."""
MAX_DIMENSION = 1000
MAX_RADIUS_BITS = 19
"""A clipped record is shorter than 2**19 units: its products add up exactly in doubles, 2**15 rows at a time."""
_ROWS = 2**15
_STEPS = 8  # of the ladder of squared radii, for each factor of two: radii 2**(1/16) apart
_MIDDLE = Fraction(1, 2)


class ClippedCovarianceOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "covariance"``: how features vary, and vary together.

    Released
    --------
    value, sigma
        The covariance matrix of the features, and the deviation of the noise of every entry. It has no negative
        eigenvalue.
    parts.correlations, parts.correlation_sigma
        The correlations; null where a variance is not clear of its noise.
    parts.mean, parts.mean_sigma
        The mean of the clipped records.
    parts.scale, parts.radius, parts.tail_share
        The learned scale of each feature (null with ``scale = "declared"``); the radius of the ball, in scales; and
        which share of the records lay outside of it, so that they were moved to its border.
    parts.components, parts.explained
        With `components`: directions of largest variance, and their shares of it. They are of features divided by
        their deviations, or with ``scale = "declared"`` by their declared scales.
    parts.coefficients, parts.coefficient_sigma, parts.intercept
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
            raise ConfigError(f"must be at most {MAX_DIMENSION} for covariances, got {d}", "features")
        if self.components is not None and not 1 <= self.components <= d:
            raise ConfigError(f"must be in [1, {d}], got {self.components}", "release.components")
        if self.target is not None and (self.target not in names or d < 2):
            raise ConfigError(f"must name one of two features or more, got {self.target!r}", "release.target")
        if loss.rho_nano < 10_000 * d:
            raise ConfigError(f"must be at least {1e-5 * d:g} for {d} features, got {self.rho:g}", "release.rho")
        columns = tuple(Column.of(setting.grid, name) for name in names)
        target = None if self.target is None else names.index(self.target)
        made = ClippedCovariance(loss, columns, size_hint, SCALES[0][0], _MIDDLE, self.components, target)
        return made if self.scale == "declared" else made.learning()


@dataclass(frozen=True)
class ClippedCovariance(MechanismBase):
    """Mechanism for the second moments of records that are clipped to a ball which is found privately.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    columns : tuple of Column
    size_hint : int
        Public guess of the number of records: it chooses the quantile that the radius is.
    percent : int
        Hundredths of rho for scales.
    level : Fraction
        Lower one of the two quantiles whose difference is a feature's scale; one half for no scales.
    components : int or None
        How many principal components are told.
    target : int or None
        Number of the feature that is regressed on the others.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, whatever the records hold. The stages are a
    noisy count (sensitivity 1), below `least_count` of which nothing else is started; middles and scales
    (`ScaleLearner`); a radius, by an exponential mechanism over a public ladder; the number of records outside of that
    ball (sensitivity 1); the sum of the clipped records (sensitivity R); and the sum of their products. In the last one
    the diagonal gets noise of variance v and the rest v / 2, so that a record x costs |x|**4 / (2 v) <= R**4 / (2 v). A
    clipped record is an integer vector that is checked to lie in the ball. All else is post-processing.

    Source
    ------
    Specification 7.4; proof 8.3; ours; noise: Canonne, Kamath, Steinke 2020, Theorem 14.
    """

    loss: PrivacyLoss
    columns: tuple[Column, ...]
    size_hint: int
    percent: int
    level: Fraction
    components: int | None = None
    target: int | None = None
    kind: str = "covariance"

    @cached_property
    def shares(self) -> dict[str, PrivacyLoss]:
        """Loss of each stage."""
        percents = SHARES | {"scales": self.percent}
        found = {name: PrivacyLoss(self.loss.rho_nano * share // 100) for name, share in percents.items()}
        found["moments"] = PrivacyLoss(self.loss.rho_nano - sum(loss.rho_nano for loss in found.values()))
        return found

    def learning(self) -> ClippedCovariance:
        """Return the same mechanism with learned scales: of deciles where records suffice for them, else quartiles."""
        found = [replace(self, percent=percent, level=level) for percent, level in SCALES]
        enough = (each for each in found if each.learner.needed * (2 if each is found[0] else 1.2) <= self.size_hint)
        return next(enough, found[-1])

    @cached_property
    def learner(self) -> ScaleLearner:
        return ScaleLearner(self.shares["scales"], self.columns, self.level)

    @property
    def has_scales(self) -> bool:
        """Whether scales are learned."""
        return self.level != _MIDDLE

    @cached_property
    def ladder(self) -> tuple[int, ...]:
        """Squared radii, ascending, in squared units: the last one holds every record of the public ranges."""
        spans = [column.highest - column.lowest for column in self.columns]
        if self.has_scales:
            first, last = (
                16.0,
                81 + math.log2(len(spans)),
            )  # a quarter of a scale; 2**30 scales of 2**10 units, and room
        else:
            first, last = 0.0, math.log2(sum(span * span for span in spans)) + 0.1
        rungs = {math.floor(2.0 ** (first + k / _STEPS)) for k in range(math.ceil((last - first) * _STEPS) + 1)}
        return tuple(sorted(rungs))

    @cached_property
    def radius_level(self) -> Fraction:
        """Which quantile of the distances the radius is.

        The more noise there is, the more records are clipped: four times the deviation of a correlation of normal
        records; and not fewer than the draw of the quantile needs.
        """
        slope = math.sqrt(8 * self.shares["radius"].rho) / 2
        missing = 3 * math.log(len(self.ladder)) / (slope * self.size_hint)
        wanted = 4 * self._sigma_within(norm_quantile(len(self.columns), 0.02), self.size_hint)
        return 1 - Fraction(round(2000 * min(0.25, max(0.002, missing, wanted))), 2000)

    @cached_property
    def radius_rate(self) -> Fraction:
        return exponential_rate(self.radius_level, self.shares["radius"])

    @cached_property
    def count_variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self.shares["count"].rho_nano)

    @cached_property
    def least_count(self) -> int:
        """Least noisy count: below, quantiles may lie anywhere."""
        radius = least_records(len(self.ladder), self.radius_level, self.radius_rate)
        return max(least_gaussian(self.count_variance), self.learner.needed, radius)

    @property
    def false_release(self) -> float:
        return gaussian_tail(self.count_variance, self.least_count)

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        from ..._kernels import moments

        charge.open(self.loss)
        charge.start(self.shares["count"])
        size = view.size + int(noise.discrete_gaussian(self.count_variance, 1)[0])
        if size < self.least_count:
            return Outcome("too_few", count=size)
        rows = view.points()
        charge.start(self.shares["scales"])
        scales = self.learner.learn(rows, size, noise)
        charge.start(self.shares["radius"])
        norms = np.empty(len(rows))
        moments.scale_rows(rows, np.array(scales.middles, np.float64), scales.factors, norms)
        radius_squared = self._radius(norms, noise)
        sums, products, limit, beyond = self.noisy_moments(rows, norms, radius_squared, noise, charge.start)
        charge.start(self.shares["outside"])
        variance = Fraction(RHO_UNIT, 2 * self.shares["outside"].rho_nano)
        outside = beyond + int(noise.discrete_gaussian(variance, 1)[0])
        return self._outcome(size, outside, sums, products, radius_squared, limit, scales)

    def noisy_moments(
        self,
        rows: NDArray[np.float64],
        norms: NDArray[np.float64],
        radius_squared: int,
        noise: Noise,
        start: Start = _no_stages,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int, int]:
        """Clip integer rows (n, d), in place, and release their sums (d,) and sums of products (d, d).

        `norms` (n,) are their squared norms. Returns also the squared radius in the units of these sums, and, which is
        private, how many rows lay beyond it. Calls `start` before the draws of each stage.
        """
        from ..._kernels import moments

        shift = self.shift(radius_squared)
        limit = radius_squared >> (2 * shift)
        beyond = int(moments.clip_rows(rows, norms, float(radius_squared), float(1 << shift), float(limit)))
        sums, products = clipped_moments(rows, limit)
        start(self.shares["sums"])
        variance = gaussian_variance(limit, self.shares["sums"].rho_nano)
        noisy_sums = _noisy(sums, noise.discrete_gaussian(variance, len(sums)))
        start(self.shares["moments"])
        return noisy_sums, self._noisy_products(products, limit, noise), limit, beyond

    def _radius(self, norms: NDArray[np.float64], noise: Noise) -> int:
        """Draw a rung of the ladder near the quantile of the squared norms (n,)."""
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
        chosen = noise.exponential_choice(np.ones(len(rungs), np.int64), paid, self.radius_rate)
        return int(self.ladder[chosen])

    def shift(self, radius_squared: int) -> int:
        """Return the s of the units 2**s in which a clipped record is short enough, and noise can be drawn."""
        shift = 0
        while True:
            limit = radius_squared >> (2 * shift)
            if limit < 4**MAX_RADIUS_BITS and self.variance(limit) <= MAX_VARIANCE:
                return shift
            shift += 1

    def variance(self, limit: int) -> Fraction:
        """Return the variance of the noise of a sum of squares, for records of squared norm up to `limit`."""
        return gaussian_variance(limit * limit, self.shares["moments"].rho_nano)

    def _noisy_products(self, products: NDArray[Any], limit: int, noise: Noise) -> NDArray[np.float64]:
        """Add noise to the diagonal and the lower triangle of the sums of products (d, d); symmetric."""
        d, variance = len(products), self.variance(limit)
        diagonal = _noisy(np.diag(products), noise.discrete_gaussian(variance, d))
        rows, columns = np.tril_indices(d, -1)
        below = _noisy(products[rows, columns], noise.discrete_gaussian(variance / 2, len(rows)))
        found = np.diag(diagonal)
        found[rows, columns] = found[columns, rows] = below
        return found

    def _outcome(
        self,
        size: int,
        outside: int,
        sums: NDArray[np.float64],
        products: NDArray[np.float64],
        radius_squared: int,
        limit: int,
        scales: FeatureScales,
    ) -> Outcome:
        """Divide released sums by the released number; lattice steps."""
        mean, shift = sums / size, self.shift(radius_squared)
        mean_variance = float(gaussian_variance(limit, self.shares["sums"].rho_nano)) / size**2
        entry = math.sqrt(self.variance(limit) / 2) / size
        matrix = products / size - np.outer(mean, mean) + mean_variance * np.eye(len(mean))
        squares = mean_variance * (mean[:, None] ** 2 + mean[None, :] ** 2)
        squares += entry**2 + float(self.count_variance) / size**2 * (matrix - np.outer(mean, mean)) ** 2
        squares[np.diag_indices(len(mean))] += entry**2 + 2 * mean_variance * mean**2
        units = (1 << shift) / scales.factors
        both = np.outer(units, units)
        sizes = scales.sizes
        parts = {
            "units": units,
            "entry": entry,
            "mean": np.array(scales.middles) + units * mean,
            "mean_sigma": units * math.sqrt(mean_variance),
            "scale": None if sizes is None else np.array(sizes) / UNITS,
            "radius": math.sqrt(limit) * (1 << shift) / (UNITS if sizes else 1),
            "tail_share": min(1.0, max(0.0, outside / size)),
        }
        value = nearest_covariance(matrix) * both
        return Outcome(None, value, np.sqrt(squares) * both, size, max(0, size - outside), parts=parts)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        """Convert the matrix to products of the features' units, and add what follows from it."""
        names, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        if outcome.value is None or outcome.sigma is None or outcome.parts is None:
            return ReleaseValues(None, None, names, transforms)
        step, own = grid.lattice.step, outcome.parts
        widths = np.array([feature.scale * step for feature in grid.features])
        both = np.outer(widths, widths)
        found, deviations = correlations(outcome.value, outcome.sigma)
        scale = None if own["scale"] is None else (own["scale"] * widths).tolist()
        parts = {
            "correlations": with_nulls(found),
            "correlation_sigma": with_nulls(deviations),
            "mean": grid.values(own["mean"]),
            "mean_sigma": grid.widths(own["mean_sigma"]),
            "scale": scale,
            "radius": own["radius"] * (1 if scale else step),
            "tail_share": own["tail_share"],
        }
        if self.components is not None:
            parts |= self._components(outcome.value if scale is None else found)
        if self.target is not None:
            parts |= self._regression(outcome, own, widths, names, parts["mean"])
        return ReleaseValues((outcome.value * both).tolist(), (outcome.sigma * both).tolist(), names, transforms, parts)

    def _components(self, matrix: NDArray[np.float64]) -> dict[str, Any]:
        assert self.components is not None
        if np.isnan(matrix).any():
            return {"components": None, "explained": None}
        directions, shares = principal_components(matrix, self.components)
        return {"components": directions.tolist(), "explained": shares.tolist()}

    def _regression(
        self, outcome: Outcome, own: dict[str, Any], widths: NDArray[np.float64], names: list[str], mean: list[float]
    ) -> dict[str, Any]:
        assert self.target is not None
        assert outcome.value is not None
        assert outcome.count is not None
        units, target = own["units"], self.target
        made = regression(outcome.value / np.outer(units, units), own["entry"], outcome.count, target)
        if made is None:
            return {"coefficients": None, "coefficient_sigma": None, "intercept": None}
        others = [k for k in range(len(names)) if k != target]
        change = (units * widths)[target] / (units * widths)[others]
        slopes, deviations = made[0] * change, made[1] * change
        intercept = mean[target] - sum(slope * mean[k] for slope, k in zip(slopes.tolist(), others, strict=True))
        return {
            "coefficients": {names[k]: slope for k, slope in zip(others, slopes.tolist(), strict=True)},
            "coefficient_sigma": {names[k]: sigma for k, sigma in zip(others, deviations.tolist(), strict=True)},
            "intercept": intercept,
        }

    def correlation_sigma(self, size: int) -> float:
        """Return the deviation of the noise of a correlation of `size` normal records with equal scales."""
        return self._sigma_within(chi_quantile(len(self.columns), float(self.radius_level)), size)

    def _sigma_within(self, reach: float, size: int) -> float:
        """Return that deviation for a ball of so many deviations of a feature."""
        return reach**2 / (2 * math.sqrt(self.shares["moments"].rho) * max(size, 1))

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of that many records. No sigma is forecast, because the noise depends on their spread."""
        spread = math.sqrt(self.count_variance)
        return Forecast(normal_above((self.least_count - 0.5 - size) / spread), math.nan)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Return the noise deviation of a correlation of normal records."""
        return {"correlation": self.correlation_sigma(size)}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        ranks = "deciles" if self.level == SCALES[0][1] else "quartiles"
        how = f"scales are differences of {ranks}" if self.has_scales else "scales are those declared"
        lines = (
            f"{how}; records beyond the {100 * float(self.radius_level):g}% nearest are moved to the border of a ball, "
            "which takes from the covariances of skewed data (`tail_share` tells how many)",
            f"windows need about {self.least_count} records",
        )
        warnings: tuple[str, ...] = ()
        if size is not None and self.correlation_sigma(size) > 0.1:
            warnings = ("noise hides most correlations: use longer windows, or raise `release.rho`",)
        facts = {"records_needed": self.least_count}
        return PlanNotes(lines, warnings, facts, self.shares["count"], case=" with features of equal scale")


def clipped_moments(rows: NDArray[np.float64], limit: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the exact sums (d,) and sums of products (d, d) of integer rows (n, d) of squared norm at most `limit`.

    Privacy
    -------
    NOT private: a mechanism adds noise to these sums. Every product is at most `limit` < 2**38, so 2**15 of them add up
    exactly in doubles, in any order.

    Source
    ------
    Specification 7.4; ours.
    """
    from ..._kernels import moments

    d = rows.shape[1]
    sums, products = Totals(d, max(1, limit)), Totals((d, d), max(1, limit))
    for first in range(0, len(rows), _ROWS):
        part, added = rows[first : first + _ROWS], np.zeros(d)
        sums.make_room(len(part))
        products.make_room(len(part))
        moments.add_rows(part, added)
        sums.part += added.astype(np.int64)
        products.part += (part.T @ part).astype(np.int64)
    return sums.read(), products.read()


def _noisy(exact: Sequence[Any] | NDArray[Any], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Add integers exactly, then round to doubles."""
    return np.array([float(int(a) + b) for a, b in zip(exact, drawn.tolist(), strict=True)])
