"""Means with an unknown radius: a private search among several radii, then a mean at the radius that it found."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...counting.multi_radius import (
    MultiRadiusCounts,
    MultiRadiusView,
    SampledMultiRadiusCounts,
    SampledMultiRadiusView,
)
from ...counting.views import WindowView
from ...errors import ConfigError, Shown
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid, Lattice
from ..base import Forecast, Mechanism, Outcome, PlanNotes, PointMechanism, percent
from ..core_stage import noise_warnings
from ..diameter_search import DiameterSearch
from ..options import BuildContext
from ..reasons import too_scattered
from .mean import FriendlyMean, MeanOptions, RecentredMean, check_outliers

BASE = 1.5
"""Ratio of neighboring radii, the paper's."""
BETA = 0.05
"""Chance that a search passes over a radius within which all points lie."""
_FEW_OUTLIERS = 0.05  # least share of outliers for which a search allows
_SURE = 3.0  # noise deviations of a check
_ROOM = Fraction(11, 200)  # that are this share of the points
_MAX_WIDER = 4  # steps of the grid of radii
_ROUGH = 0.6
_MIN_SEARCH, _MAX_SEARCH = 100, 10  # parts of rho: a hundredth, a tenth
_FEWEST = 8192  # records of a sample: the share of their pairs within a radius is known to about 1%
_BARS = 200  # of `friendly`: a sample of this many bars leaves out at most 1% of the pairs


def search_radii(lattice: Lattice, smallest: float, largest: float) -> tuple[int, ...]:
    """Return the squared radii, in lattice steps, of the grid from `smallest` to `largest`; `largest` is the last one.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.6; proof 5.6; Tsfadia et al. 2022, FindDiam, step 1. Where the ratio of the ends is no power of
    `BASE`, the last step is shorter.
    """
    low = lattice.radius_squared(smallest, "release.radius_min")
    high = lattice.radius_squared(largest, "release.radius_max")
    if not low < high:
        raise ConfigError(f"must lie above `radius_min`={smallest:g}", "release.radius_max", got=Shown(f"{largest:g}"))
    steps = math.ceil(math.log(largest / smallest) / math.log(BASE) - 1e-9)
    between = {lattice.radius_squared(smallest * BASE**k) for k in range(1, steps)}
    return tuple(sorted({low, high} | {radius for radius in between if low < radius < high}))


@dataclass(frozen=True)
class SearchedMean(PointMechanism):
    """Mechanism for a mean whose radius is found privately from the data.

    Parameters
    ----------
    loss : PrivacyLoss
    radii_squared : tuple of int
        Radii to search, in squared lattice steps, ascending: see `search_radii`.
    dimension, size_hint : int
        Public numbers.
    method : str
        ``recentered`` searches with tolerance for outliers, then runs `RecentredMean` at a radius `wider` than the one
        found, because the pairs that the search leaves out hold the tail of a skewed distribution.
        ``friendly`` is FC_Avg_UnknownDiam, whose search tolerates no outliers: 3% of gross outliers make 6% of the
        pairs, and the radius found may then be the distance of these outliers.
    outliers : float
        See `RecentredMean`.
    sampling : str
        Which pairs the core is found from: ``exact``, ``blocks`` or ``hidden``. If not ``exact``, the search compares
        the records of a random sample only, and the core's pairs are counted when the window closes, at the radius
        found.

    Privacy
    -------
    Protects one record, added or removed, with (rho, delta)-zCDP: `DiameterSearch` on exact counts of all pairs (no
    coins), then a mean with the rest at a radius that counts as released. With ``friendly`` the search costs 0.1 rho;
    the shares of ``recentered`` come from public numbers.

    A sample has one independent coin for each record, with a public chance, and serves all checks. For every outcome of
    the coins the neighbors' samples are equal or differ in that one record, so the search costs as much as on all
    records. That the record may not be in the sample is not counted in its favor. The core's coins are fresh ones,
    drawn after the radius was found.

    Source
    ------
    Specification 5.6, 5.14; proofs 3.7, 5.6, 5.8; Tsfadia et al. 2022, FC_Avg_UnknownDiam; ``recentered`` and the
    sample are ours.
    """

    loss: PrivacyLoss
    radii_squared: tuple[int, ...]
    dimension: int
    size_hint: int
    method: str = "recentered"
    outliers: float = 0.0
    kind: str = "mean"
    sampling: str = "exact"
    false_release: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.method not in ("recentered", "friendly"):
            raise ConfigError("must be 'recentered' or 'friendly'", "release.method", got=self.method)
        if any(b <= a for a, b in itertools.pairwise(self.radii_squared)):
            raise ConfigError("must be strictly ascending", "radii_squared")
        if not 0 <= self.outliers < 0.5:
            raise ConfigError("must be in [0, 1/2)", "release.outliers", got=self.outliers)
        _ = self.search, self.mean_at(len(self.radii_squared) - 1)  # refuse what cannot be divided, now

    @property
    def radius_squared(self) -> int:
        """Square of the largest radius, in lattice steps."""
        return self.radii_squared[-1]

    @cached_property
    def search(self) -> DiameterSearch:
        radii = len(self.radii_squared)
        if self.method == "friendly":
            return DiameterSearch(self.loss.rho_nano // 10, BETA / 2, radii)
        expected = Fraction(max(self.outliers, _FEW_OUTLIERS)).limit_denominator(1000)
        tolerance = min(2 * expected * (1 - expected) + _ROOM, Fraction(1, 2))
        share = _search_share(self.loss.rho_nano, radii, self.sample_hint)
        return DiameterSearch(share, 1.0, radii, tolerance)

    @cached_property
    def sample_hint(self) -> int:
        """Number of records that the search compares with each other, if there are `size_hint` records.

        A sample holds 8,192 of them, and more where the rho is so small that the search would cost more than a
        hundredth of it (``friendly``: that it would leave out more than a hundredth of the pairs).
        """
        if self.sampling == "exact":
            return self.size_hint
        radii = len(self.radii_squared)
        if self.method == "friendly":
            needed = _BARS * DiameterSearch(self.loss.rho_nano // 10, BETA / 2, radii).check.bar
        else:
            needed = math.sqrt(_search_rho(radii, 1) / max(1, self.loss.rho_nano // _MIN_SEARCH))
        return min(self.size_hint, max(_FEWEST, math.ceil(needed)))

    @property
    def sample_rate(self) -> Fraction:
        """Chance of a record to be in the sample; public."""
        return Fraction(self.sample_hint, self.size_hint)

    @cached_property
    def wider(self) -> int:
        """Number of steps between the radius that the search found and the radius that the mean uses.

        As many steps are used as keep the rough center's error, predicted from public numbers, at or below 0.6 of a
        typical point's distance from its center.
        """
        if self.method == "friendly":
            return 0
        found, steps = 10.0**6, 0
        while steps < _MAX_WIDER:
            radius_squared = int((found * BASE ** (steps + 1)) ** 2)
            mean = _recentred(self, radius_squared)
            size = max(1.0, (1 - self.outliers) * self.size_hint - mean.center.offset)
            error = math.sqrt(self.dimension) * mean.center.sigma(size, self.dimension)
            if error > _ROUGH * found / math.sqrt(2):
                break
            steps += 1
        return steps

    @property
    def _rest(self) -> PrivacyLoss:
        """Return the part of the loss that the search leaves to the mean."""
        return self.loss - PrivacyLoss(self.search.rho_nano)

    @property
    def middle(self) -> RecentredMean | FriendlyMean:
        """Mean after a search that found the radius in the middle: the one that forecasts speak of."""
        return self.mean_at((len(self.radii_squared) - 1) // 2)

    def mean_at(self, found: int) -> RecentredMean | FriendlyMean:
        """Return the mechanism of the mean after a search that found this radius."""
        return _mean_at(self, found)

    def counter(self, dimension: int, reach: int, noise: Noise) -> MultiRadiusCounts | SampledMultiRadiusCounts:
        """Return the counter, which keeps exact friend counts for every radius: of all records, or of a sample."""
        if self.sampling == "exact":
            return MultiRadiusCounts(dimension, self.radii_squared, reach)
        if reach > 1:
            raise ConfigError("must be 'exact' for sliding windows: coins serve one release", "release.pairs")
        return SampledMultiRadiusCounts(dimension, self.radii_squared, self.sample_rate, noise)

    def release(self, view: MultiRadiusView | SampledMultiRadiusView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        sample = view.sample if isinstance(view, SampledMultiRadiusView) else view
        found = self.search.find(sample.pairs.tolist().__getitem__, sample.size, noise, charge.start)
        mean = self.mean_at(found)
        return mean.stages(self._at(mean, view, noise), charge, noise)

    def _at(
        self, mean: RecentredMean | FriendlyMean, view: MultiRadiusView | SampledMultiRadiusView, noise: Noise
    ) -> WindowView:
        """Return the window's view at the radius of the mean; of a sampled window the core's pairs are counted now."""
        if isinstance(view, MultiRadiusView):
            return view.at(self.radii_squared.index(mean.radius_squared))
        counter = mean.counter(self.dimension, 1, noise)
        counter.add(0, view.everyone.points())
        found: WindowView = counter.view([0])
        return found

    def hint(self, reason: str) -> str:
        return too_scattered("radius_max") if reason == "no_core" else super().hint(reason)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        radii, step = self.radii_squared, grid.lattice.step
        low, high = (step * math.sqrt(radius) for radius in (radii[0], radii[-1]))
        line = (
            f"the radius is searched for among {len(radii)} from {low:g} to {high:g}, for "
            f"{self.search.rho_nano / RHO_UNIT:.3g} of rho: expected errors are those at a radius in the middle, "
            "and in proportion to the one found"
        )
        lines, facts = [line], {"radii": len(radii)}
        if self.method == "recentered":
            lines.append(
                "of a long tail the outer records are left out; a mean with `outliers` = 'clip' is that of all"
            )
        if self.sampling != "exact":
            pairs = self.mean_at(0).pairs
            lines.append(
                f"the search compares a random sample of about {self.sample_hint} records; when a window closes, "
                f"friends are counted among {percent(float(pairs.rate))} of all pairs ({pairs.kind})"
            )
            facts["search_sample"] = self.sample_hint
        return PlanNotes(tuple(lines), noise_warnings(self.forecast(size or 1000).sigma, self.radius_squared), facts)

    def forecast(self, size: int) -> Forecast:
        """Forecast a window whose diameter lies in the middle of the radii.

        The noise is proportional to the diameter; the probability of a release hardly depends on it.
        """
        return self.middle.forecast(size)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Predict the noise at the radius in the middle."""
        return self.middle.predicted_sigmas(size, grid)


class SearchOptions(MeanOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of ``kind = "mean"`` with a known radius, or with ``radius = "search"`` between two public ends.

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
    parts.scale, parts.scale_source
        Of features with ``scale = "learned"``: their scales, and where these come from: this ``window``, an ``earlier``
        release, or the ``public`` range, if windows hold too few records.

    Cost
    ----
    rho; where records are left out also delta. A window with too few records a fifth of rho, and a few percent where
    records are left out. A search takes 1 to 10% of it, learning scales 10%.

    Privacy
    -------
    `ClippedMean`, `SearchedMean`, `RecentredMean`, `FriendlyMean` and `LearnedScales` state the guarantees.

    Source
    ------
    Specification 5.3, 5.4, 5.6, 5.15, 5.18, 12.1; proofs 5.4, 5.6, 5.9, 5.11.
    """

    takes_learned_scales: ClassVar[bool] = True
    rescales: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> Mechanism:
        if self.radius != "search" or self.method not in ("recentered", "friendly"):
            return super().build(setting)
        if self.radius_min is None or self.radius_max is None:
            missing = "radius_min" if self.radius_min is None else "radius_max"
            raise ConfigError("is required with radius 'search'", f"release.{missing}")
        if self.pairs != "exact" and setting.reach > 1:
            raise ConfigError("must be 'exact' for sliding windows: coins serve one release", "release.pairs")
        for key, allowed in (("spread", "histogram"), ("center", None)):
            if getattr(self, key) != allowed:
                raise ConfigError("must be left out when the radius is searched for", f"release.{key}")
        if self.method == "friendly" and self.outliers not in (None, "leave_out"):
            raise ConfigError("must be 'leave_out' with method 'friendly'", "release.outliers")
        radii = search_radii(setting.grid.lattice, self.radius_min, self.radius_max)
        if self.clips:
            return self.clipped_mean(self.radius_max, setting)
        loss, size_hint = self.approximate_loss(self.delta), self.checked_size_hint()
        mean = SearchedMean(
            loss,
            radii,
            setting.dimension,
            size_hint,
            self.method,
            self.share,
            sampling=self.pairs,
        )
        check_outliers(mean, self.share, size_hint)
        return mean


@lru_cache(maxsize=1024)
def _mean_at(mechanism: SearchedMean, found: int) -> RecentredMean | FriendlyMean:
    rest, radii = mechanism._rest, mechanism.radii_squared
    wider = radii[min(found + mechanism.wider, len(radii) - 1)]
    if mechanism.method == "friendly":
        return FriendlyMean(rest, wider, mechanism.dimension, mechanism.size_hint, mechanism.sampling)
    return _recentred(mechanism, wider)


def _recentred(mechanism: SearchedMean, radius_squared: int) -> RecentredMean:
    """Return the recentred mean at a radius, with what the search leaves."""
    return RecentredMean(
        mechanism._rest,
        radius_squared,
        mechanism.dimension,
        mechanism.size_hint,
        sampling=mechanism.sampling,
        outliers=mechanism.outliers,
    )


def _search_share(rho_nano: int, radii: int, size: int) -> int:
    """Return the rho (nano) with which noise hardly ever decides a check of the search, within limits.

    It is a function of public numbers.
    """
    return max(rho_nano // _MIN_SEARCH, min(rho_nano // _MAX_SEARCH, math.ceil(_search_rho(radii, size))))


def _search_rho(radii: int, size: int) -> float:
    """Return the rho (nano) with which noise hardly ever decides a check on `size` records."""
    return max(1, (radii - 1).bit_length()) * 2 * (_SURE / (float(_ROOM) * size)) ** 2 * RHO_UNIT
