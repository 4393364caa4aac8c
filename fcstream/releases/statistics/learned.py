"""Means and variances of features whose scales nobody declared: each window learns them, or takes an earlier one's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import MAX_COORDINATE, Feature, Grid, Lattice, exact
from ..base import Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues, Track
from ..core_stage import ChargeShare
from ..means.clipped_mean import ClippedMean
from ..options import BuildContext, Options
from ..trees.growing import PublicBox
from .columns import Column
from .scales import UNITS, MedianLearner, SpreadLearner, ascending, sampled_rows

SHARE = 10
"""A window that learns its scales spends this part of rho on them."""
MEDIANS = 15
"""Hundredths of that for the medians: quartiles are found by their distances from them, so they may be rough."""
LEVEL = Fraction(3, 4)
"""So many records lie on either side of a quartile: a scale is the difference of both."""
RUNGS = 64
"""Distances for each factor of two."""
FINEST = (30, 25, 20)
"""A learned scale is at least the range / 2**f, for the first f for which there are records enough."""
MAX_NOISE = 1.1
"""A plan advises against more noise than this, relative to known scales: real data had up to 0.05 more than predicted,
and 0.11 where quartiles lay at gaps."""
REFRESH = 16
"""So many windows use the scales of one window."""
FALL = 0.8
"""Part of its first value that the core's share of the records must keep, or the next window learns anew."""
WIDE = 10.0
"""Plans suppose ranges that reach so many scales to either side."""
PUBLIC_PART = 10
"""Where scales cannot be learned, this part of the public range counts as 1."""
_FINER = 3  # the least scale is 2**3 steps of draws, so that their rounding takes little from it
_SAMPLE = 2**14  # records from which medians and quartiles are taken, at least
_ENOUGH = 1.2  # times the number of records with which a quantile is near the data with a chance of one half
_FINE = 1.5  # times it, for a finer lattice than the last
_NORMAL_SLOPE = 0.4287  # of the share of normal records below a quartile, by the difference of both
_MAX_RATIO = 1.28  # by the logarithm of d: what is the worst of d sums of two draws, of which 1 is a draw's scale


def build_mechanism(options: Options, setting: BuildContext) -> Mechanism:
    """Make the mechanism of some options, with learned scales if a feature that it reads has ``scale = "learned"``.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.15; ours.
    """
    grid = setting.grid
    learned = [feature.name for feature in grid.features if feature.learned]
    if not learned:
        return options.build(setting)
    if not options.takes_learned_scales or getattr(options, "method", "") == "ball":
        raise ConfigError(
            f"must be a number for a release of kind {options.kind!r} by this method: means and variances with a core "
            "learn scales",
            f"features.{learned[0]}.scale",
        )
    if not options.rescales:
        return options.build(setting)
    if getattr(options, "radius", None) is None:
        raise ConfigError("is required where scales are learned: a distance in these scales", "release.radius")
    whole, known = options.pure_loss(), replace(setting, grid=_in_scales(grid))
    rest = PrivacyLoss(whole.rho_nano - whole.rho_nano // SHARE)
    return LearnedScales(
        msgspec.structs.replace(options, rho=rest.rho).build(known),
        options.build(known),
        tuple(Column.of(grid, feature.name) for feature in grid.features),
        grid.lattice,
        options.checked_size_hint(),
    )


def _in_scales(grid: Grid) -> Grid:
    """Return the grid of plans, on which a learned scale is 1."""
    return Grid(
        grid.lattice,
        tuple(Feature(f"{f.name} in scales", -WIDE, WIDE) if f.learned else f for f in grid.features),
    )


def rescaled(points: NDArray[np.float64], ratios: Sequence[Fraction | None]) -> NDArray[np.float64]:
    """Multiply lattice coordinates (n, d) by rational numbers, feature by feature, exactly rounded (half to even).

    None leaves a feature as it is. For each ratio N / D and coordinate x, |x| N and D must be below 2**63.

    Privacy
    -------
    A function of one record and of released numbers: every record becomes one record.

    Source
    ------
    Specification 5.15; proof 5.9; ours.
    """
    found = np.array(points, np.float64)
    for k, ratio in enumerate(ratios):
        if ratio is not None:
            low, left = np.divmod(points[:, k].astype(np.int64) * ratio.numerator, ratio.denominator)
            other = ratio.denominator - left  # without doubling, which could leave int64
            found[:, k] = low + ((left > other) | ((left == other) & (low % 2 == 1)))
    return found


@dataclass(frozen=True)
class LearnedScales(Mechanism):
    """Mechanism that divides features by scales of their own records, then runs a mechanism for points of equal scales.

    Parameters
    ----------
    learning, given : Mechanism
        Of points of known scales: with the rho that learning leaves, and with all of it, for windows whose scales are
        those of an earlier release.
    columns : tuple of Column
        All features.
    lattice : Lattice
    size_hint : int
        Public guess of the number of records.
    track : Track or None
        What the window before released: its scales, and how long they were used.

    Privacy
    -------
    Protects one record, added or removed, with the sum of the losses of its two stages: `MedianLearner` and
    `SpreadLearner` (a tenth of rho), and the mechanism `learning` on records that are rescaled one by one with what was
    released. A window with scales of an earlier release has the second stage alone, `given`. Which of the two it is
    depends on released numbers, and is settled before the window is charged. Friends are counted when a window closes,
    so all its pairs are compared on one set of scales.

    Source
    ------
    Specification 5.15; proof 5.9; ours.
    """

    learning: Mechanism
    given: Mechanism
    columns: tuple[Column, ...]
    lattice: Lattice
    size_hint: int
    track: Track | None = None

    def __post_init__(self) -> None:
        if 2 * self.stage.rho_nano < PUBLIC_PART:
            raise ConfigError("must be larger where scales are learned", "release.rho")
        step, (bits, most) = exact(self.lattice.step), self.lattice.learned_bits()
        for column in self._learned:  # sums of a user's records may reach farther than the feature's range
            farthest, span = max(abs(column.lowest), abs(column.highest)), column.highest - column.lowest
            is_exact = farthest * UNITS * step.denominator < 2**63 and 2 * span * UNITS * step.numerator < 2**63
            if not is_exact or farthest * step.denominator > MAX_COORDINATE * 2 ** (bits - most) * step.numerator:
                raise ConfigError(
                    "must lie within the feature's range where its scale is learned", "release.user_bounds"
                )

    @property
    def kind(self) -> str:
        return self.given.kind

    @property
    def tracks(self) -> bool:
        return self.is_on or self.given.tracks

    @property
    def loss(self) -> PrivacyLoss:
        return self._now.loss + (self.stage if self.learns else PrivacyLoss())

    @property
    def stage(self) -> PrivacyLoss:
        """Loss of learning the scales."""
        return PrivacyLoss(self.given.loss.rho_nano // SHARE)

    @property
    def false_release(self) -> float | None:
        return self._now.false_release

    @property
    def is_on(self) -> bool:
        """Whether a normal window holds enough records to learn scales."""
        return self.needed <= self.size_hint

    @property
    def inherits(self) -> bool:
        """Whether this window's scales are those of an earlier release."""
        track = self.track
        return (
            self.is_on
            and track is not None
            and track.scales is not None
            and len(track.scales) == len(self.columns)
            and not track.drift
            and (track.age or 0) < REFRESH
        )

    @property
    def learns(self) -> bool:
        """Whether this window learns its scales."""
        return self.is_on and not self.inherits

    @cached_property
    def _finest(self) -> int:
        """The f of the least scale, the range / 2**f: the finest one that records suffice for."""
        most = self.lattice.learned_bits()[1]
        finest = [min(each, most) for each in FINEST]
        enough = (each for each in finest if _FINE * self._medians(each).needed <= self.size_hint)
        return next(enough, finest[-1])

    def _shift(self, finest: int) -> int:
        """Return by how many bits coordinates are coarser in draws, which see 2**_FINER steps of the least scale."""
        return max(0, self.lattice.learned_bits()[0] - finest - _FINER)

    @property
    def _learned(self) -> list[Column]:
        return [column for column in self.columns if column.feature.learned]

    @cached_property
    def needed(self) -> int:
        """Number of records in a normal window from which on scales are learned."""
        return math.ceil(_ENOUGH * max(self.medians.needed, self.spreads.needed))

    @cached_property
    def medians(self) -> MedianLearner:
        return self._medians(self._finest)

    def _medians(self, finest: int) -> MedianLearner:
        return MedianLearner(self._shares[0], self._wide(self._shift(finest)))

    @cached_property
    def spreads(self) -> SpreadLearner:
        return SpreadLearner(self._shares[1], self._wide(self._shift(self._finest)), LEVEL, RUNGS, has_sides=True)

    @property
    def _shares(self) -> tuple[PrivacyLoss, PrivacyLoss]:
        """Losses of the medians and of the spreads."""
        whole = self.stage.rho_nano
        return PrivacyLoss(whole * MEDIANS // 100), PrivacyLoss(whole - whole * MEDIANS // 100)

    def _wide(self, shift: int) -> tuple[Column, ...]:
        """Return the columns whose scales are learned on a lattice 2**shift times as wide."""
        return tuple(replace(own, lowest=own.lowest >> shift, highest=own.highest >> shift) for own in self._learned)

    @property
    def _place(self) -> Track | None:
        """Where the mechanism within starts; None unless it tracks, or if it must start without."""
        track = self.track
        if not self.given.tracks or track is None or not track.center:
            return None
        return track if not self.is_on or (track.scales is not None and not track.drift) else None

    @property
    def _now(self) -> Mechanism:
        """Mechanism within of this window, as far as it is known before the window closes."""
        return (self.learning if self.learns else self.given).after(self._place)

    def after(self, track: Track | None) -> LearnedScales:
        return replace(self, track=track)

    def with_loss(self, loss: PrivacyLoss) -> LearnedScales:
        rest = PrivacyLoss(loss.rho_nano - loss.rho_nano // SHARE, loss.delta_femto)
        return replace(self, learning=self.learning.with_loss(rest), given=self.given.with_loss(loss))

    def with_size_hint(self, size_hint: int) -> LearnedScales:
        learning, given = self.learning.with_size_hint(size_hint), self.given.with_size_hint(size_hint)
        return replace(self, learning=learning, given=given, size_hint=size_hint)

    def hint(self, reason: str) -> str:
        return self.given.hint(reason)

    def ratios(self, sizes: Sequence[int]) -> list[Fraction | None]:
        """Return by what a coordinate of each feature is multiplied; None for one whose scale was declared."""
        step = exact(self.lattice.step)
        return [Fraction(UNITS * step.denominator, size * step.numerator) if size else None for size in sizes]

    def public_sizes(self) -> list[int]:
        """Return scales that are used where none can be learned, in the form of `Track.scales`."""
        return [
            UNITS * ((own.highest - own.lowest) // PUBLIC_PART) if own.feature.learned else 0 for own in self.columns
        ]

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        rows, inner = _by_arrival(view), self._now
        if self.learns:
            charge.start(self.stage)
            sizes = self._learn(rows, noise)
            if self._place is not None and self.track is not None:
                inner = self.learning.after(self.moved(self.track, sizes))
        else:
            sizes = self.track.scales if self.inherits and self.track and self.track.scales else self.public_sizes()
        if isinstance(inner, ClippedMean):
            inner = inner.in_box(self._box(sizes))
        counter = inner.counter(len(self.columns), 1, noise)
        counter.add(0, rescaled(rows, self.ratios(sizes)))
        share = cast("Charge", ChargeShare(charge, inner.loss))
        outcome = inner.release(counter.view([0]), share, noise)
        source = "window" if self.learns else "earlier" if self.inherits else "public"
        parts = {**(outcome.parts or {}), "scale": sizes, "scale_source": source}
        return replace(outcome, parts=parts, track=self._left(outcome, sizes))

    def _box(self, sizes: Sequence[int]) -> PublicBox:
        """Return the public ranges in these scales, in lattice steps."""
        ends = np.array([[own.lowest for own in self.columns], [own.highest for own in self.columns]], np.float64)
        low, high = rescaled(ends, self.ratios(sizes)).astype(np.int64).tolist()
        return PublicBox(tuple(low), tuple(high))

    def _learn(self, rows: NDArray[np.float64], noise: Noise) -> list[int]:
        """Learn the scales from lattice points (n, d): in 2**-10 of a lattice step, 0 for a declared one."""
        own, shift = [column.index for column in self._learned], self._shift(self._finest)
        chosen, wanted = np.arange(len(rows)), max(_SAMPLE, 4 * self.needed)
        if self.size_hint > 2 * wanted:
            chosen = sampled_rows(len(rows), Fraction(wanted, self.size_hint), noise)
        values = ascending(chosen, lambda some: np.floor(rows[some][:, own] / 2.0**shift), self._wide(shift))
        middles = self.medians.learn_sorted(values, noise)
        found = iter(self.spreads.learn_sorted(values, middles, noise))
        least = 1 << (self.lattice.learned_bits()[0] - self._finest)
        sizes = (UNITS * max(next(found) << shift, least) if column.feature.learned else 0 for column in self.columns)
        return list(sizes)

    def moved(self, track: Track, sizes: Sequence[int]) -> Track:
        """Express a center in other scales; how far points reach stays the same number of scales.

        Privacy
        -------
        A function of released numbers.

        Source
        ------
        Specification 5.15; ours.
        """
        assert track.scales is not None
        pairs = zip(track.center, track.scales, sizes, strict=True)
        changes = [Fraction(old, new) if new else Fraction(1) for _, old, new in pairs]
        center = [round(x * change) for x, change in zip(track.center, changes, strict=True)]
        limited = [max(-MAX_COORDINATE, min(MAX_COORDINATE, x)) for x in center]
        return replace(track, center=limited, sigma=track.sigma * float(max(changes)), scales=list(sizes))

    def _left(self, outcome: Outcome, sizes: list[int]) -> Track | None:
        """Return what is left to the next window: nothing after a refusal, so that it learns anew."""
        if not self.is_on:
            return outcome.track
        if outcome.reason is not None:
            return None
        age = (self.track.age or 0) + 1 if self.inherits and self.track else 1
        if self.given.tracks:
            return None if outcome.track is None else replace(outcome.track, scales=sizes, age=age)
        share = (outcome.core_count or 0) / max(1, outcome.count or 1)
        first = self.track.share if self.inherits and self.track and self.track.share is not None else share
        return Track([], 0.0, 0.0, 0.0, first, share < FALL * first, sizes, age)

    # -- in the user's units, and from public numbers ------------------------------------------------------------------

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        return self.given.truth(points, grid)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        parts = dict(outcome.parts or {})
        sizes, source = parts.pop("scale", None), parts.pop("scale_source", None)
        if sizes is None:  # refused before scales were known
            return self.given.to_user_units(outcome, grid)
        scaled = self._scaled(grid, sizes)
        values = self.given.to_user_units(replace(outcome, parts=parts or None), scaled)
        told = {"scale": [feature.scale for feature in scaled.features], "scale_source": source}
        return replace(values, parts={**(values.parts or {}), **told})

    def _scaled(self, grid: Grid, sizes: Sequence[int]) -> Grid:
        """Return the grid whose lattice points rescaled records are."""
        features = zip(grid.features, sizes, strict=True)
        return Grid(
            grid.lattice,
            tuple(replace(f, scale=f.scale * self.lattice.step * size / UNITS) if size else f for f, size in features),
        )

    def _planned(self, grid: Grid) -> Grid:
        """Return the grid of plans: on it a learned scale is 1, and one that cannot be learned is the public one."""
        return _in_scales(grid) if self.is_on else self._scaled(grid, self.public_sizes())

    def forecast(self, size: int) -> Forecast:
        """Forecast a window that learns its scales, or has public ones where it cannot."""
        return (self.learning if self.is_on else self.given).forecast(size)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """Predict the noise deviations, in learned scales where they are learned."""
        return (self.learning if self.is_on else self.given).predicted_sigmas(size, self._planned(grid))

    def dearer(self, size: int) -> float:
        """Predict the worst feature's noise in a window that learns, relative to one that is told the scales of its
        normal features: from the rho that is left, and from how far the largest of the scales is off.
        """
        told, own = self.given.forecast(size).sigma, self.learning.forecast(size).sigma
        rate = float(min(self.spreads.rates)) * LEVEL.denominator  # of a draw, for each record that it misses by
        missed = _MAX_RATIO * math.log(len(self._learned)) / rate
        return own / told * (1 + missed / size / _NORMAL_SLOPE)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        own = (self.learning if self.is_on else self.given).notes(size, self._planned(grid))
        own = replace(own, core=None)  # no pairs are counted before the window closes
        names = ", ".join(repr(column.feature.name) for column in self._learned)
        facts = {**own.facts, "scales": "learned" if self.is_on else "public", "scale_records": self.needed}
        if not self.is_on:
            line = (
                f"scales of {names} are not learned: their quartiles need {self.needed} records or more, "
                f"`size_hint` is {self.size_hint}; a tenth of each range counts as 1"
            )
            return replace(own, lines=(*own.lines, line), facts=facts, warnings=(*own.warnings, line))
        more = self.dearer(self.size_hint)
        stage = self.stage.rho
        line = (
            f"scales of {names} are learned from quartiles, in a window without scales of an earlier one for "
            f"{stage:.3g} of rho and with {more:.2f} times the noise that known scales would have; {REFRESH} windows "
            f"use them, unless one is refused or loses its core; the least scale is the range / 2**{self._finest}"
        )
        if more > MAX_NOISE:
            own = replace(
                own,
                warnings=(
                    *own.warnings,
                    f"learning the scales of {names} may cost more than 15% in noise: declare those that you know",
                ),
            )
        facts |= {"scale_rho": stage, "scale_noise": more}
        stopped = None if own.stopped is None else own.stopped + self.stage
        when = "friends are counted when a window closes, because all its pairs need one set of scales"
        return replace(own, lines=(*own.lines, line, when), facts=facts, stopped=stopped)


def _by_arrival(view: WindowView) -> NDArray[np.float64]:
    """Return the points (n, d) of a view in the order of their arrival, so that batches do not matter."""
    points, order = view.points(), view.arrival_order()
    if order is None:
        return points
    rows = np.empty_like(points)
    rows[order] = points
    return rows
