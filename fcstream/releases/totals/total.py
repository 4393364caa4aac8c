"""Running totals: what an epoch's windows hold together so far, with an error that hardly grows with their number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid, exact
from ..base import Counter, EpochMechanism, EpochWindow, Forecast, Outcome, PlanNotes, ReleaseValues
from ..options import BuildContext, Options
from ..shape import SHAPES, ResultShape
from ..statistics.count import CountOptions
from ..statistics.histogram import HistogramOptions
from .factor import MAX_WINDOWS, Factor, factor
from .memory import EpochMemory
from .sums import BinSums, Counts, FeatureSums, Sums

MAX_CELLS = 2**28
"""Largest number of windows of an epoch times numbers of a window: 1 GiB of memory."""
_MILLIS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class TotalOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "total"``: at every window's end, the total since its epoch began.

    Each record costs rho for all totals of its epoch together. Adding up released windows instead makes an error that
    grows with the square root of their number; here it hardly grows: at rho = 0.5 the count of a day of 1,440 minutes
    is known up to 2.9, where adding up is up to 38.

    The exact totals and the noise in them are kept in the ledger until the epoch is over. They are private: whoever can
    read the ledger's file can read exact totals there.

    Released
    --------
    value, sigma
        The total since the epoch began: one number for a count, one per feature for a sum, one per bin for a histogram.
    parts.window
        ``value``, ``sigma`` and ``interval`` of this window alone, in the same shape.
    parts.of, parts.theta
        As configured.
    parts.epoch_open_ms, parts.epoch_windows
        When the epoch began, and how many windows it has.
    parts.windows
        How many windows the total holds. It and the number in another release of the epoch tell the sigma of what came
        in between: see `fcstream.releases.totals.ranges.between`.
    parts.skipped
        Windows of the epoch before this one that the total lacks, as pairs of opening and close: they were refused, or
        lie before the stream's first window.
    parts.feature, parts.edges, parts.categories
        Of a histogram, as there.

    Cost
    ----
    rho for all totals of an epoch, for each record. Somebody with a record in every window pays much more than rho for
    each of them, which `fcstream plan` shows.

    Privacy
    -------
    `Total` states the guarantee.

    Source
    ------
    Specification 5.13, 12.1; proof 6.5.
    """

    kind: str = "total"
    of: Literal["count", "sum", "histogram"] = "count"
    """What is added up: as the kinds of these names release it."""
    epoch: str | int
    """How long a total runs until the next one begins at 0: a duration such as ``1d``, or a number of windows. Epochs
    are whole windows, counted from ``window.start``."""
    theta: float = 0.8
    """Whether totals are to be good, or single windows, above 0 and up to 1: 1 is best for totals, 0.6 good for
    windows."""
    feature: str | None = None
    """Of a histogram: feature that it is about; may be left out if there is one only."""
    edges: list[float] | None = None
    """Of a histogram: where the public range is cut, as with ``kind = "histogram"``."""
    categories: list[float] | None = None
    """Of a histogram: numbers with a bin each, as with ``kind = "histogram"``."""

    holds_records = False
    keeps_totals = True

    @property
    def takes_categories(self) -> bool:  # type: ignore[override]
        return self.of == "count"

    @property
    def needs_features(self) -> bool:  # type: ignore[override]
        return self.of != "count"

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        if self.of == "count":
            return ()
        return features if self.feature is None else (self.feature,)

    def build(self, setting: BuildContext) -> Total:
        loss = self.pure_loss()
        if setting.unit != "event":
            raise ConfigError(
                f"must be 'event' for running totals, got {setting.unit!r}: somebody may have records in all windows "
                "of an epoch, and each of them is in all later totals",
                "stream.unit",
            )
        if setting.reach > 1:
            raise ConfigError(
                "must be left out for running totals: a record that lies in several windows would be added up as often",
                "window.slide",
            )
        if not 0 < self.theta <= 1:
            raise ConfigError("must be above 0 and at most 1", "release.theta", got=self.theta)
        for name in ("feature", "edges", "categories"):
            if self.of != "histogram" and getattr(self, name) is not None:
                raise ConfigError(
                    f"belongs to of = 'histogram', not to {self.of!r}", f"release.{name}", remedy="leave it out"
                )
        found = factor(self._windows(setting.window_ms), exact(self.theta))
        sums = self._sums(setting, loss, found)
        if found.windows * sums.size > MAX_CELLS:
            raise ConfigError(
                f"must have at most {MAX_CELLS // sums.size} windows of {sums.size} numbers",
                "release.epoch",
                got=found.windows,
                remedy="use a shorter epoch or fewer bins",
            )
        return Total(loss, self.of, sums, found)

    def _windows(self, window_ms: int) -> int:
        """Return how many windows an epoch has."""
        key, windows = "release.epoch", self.epoch
        if isinstance(windows, str):
            number, unit = windows.strip()[:-1], windows.strip()[-1:]
            if unit not in _MILLIS or not number.isdecimal():
                raise ConfigError(
                    "must be a whole number of windows, or a duration such as '1d', '12h' or '30m'", key, got=windows
                )
            length = int(number) * _MILLIS[unit]
            if window_ms < 1 or length % window_ms:
                raise ConfigError(
                    f"must be a multiple of `window.length`, {window_ms} ms, got {windows!r}: epochs are whole windows",
                    key,
                )
            windows = length // window_ms
        if not 1 <= windows <= MAX_WINDOWS:
            raise ConfigError(f"must be 1 to {MAX_WINDOWS} windows", key, got=windows)
        return windows

    def _sums(self, setting: BuildContext, loss: PrivacyLoss, found: Factor) -> Sums:
        if self.of == "count":
            return Counts(CountOptions(kind="count", rho=self.rho).build(setting))
        if self.of == "sum":
            return FeatureSums.of(loss, setting.grid, lambda squared: found.variance(squared, loss.rho_nano))
        bins = HistogramOptions(
            kind="histogram", rho=self.rho, feature=self.feature, edges=self.edges, categories=self.categories
        )
        return BinSums(bins.build(setting))


@dataclass(frozen=True)
class _Place:
    """Where a mechanism stands in its epoch; `memory` is None if it was lost, and `known` how many windows it had."""

    memory: EpochMemory | None
    known: int
    window: EpochWindow


@dataclass(frozen=True)
class Total(EpochMechanism):
    """Mechanism for running totals.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    of : str
        See `TotalOptions`.
    sums : Sums
        What is added up.
    factor : Factor
        How noise is spread over the windows of an epoch.
    place : optional
        The window that is released next, see `within`; by default the first one of an epoch.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0, for all releases of its epoch together: adding a
    record moves the noisy numbers behind them by a fixed multiple of its vector. Covers the unit ``event`` with windows
    that do not overlap. What the ledger keeps for the epoch's later windows is not protected. Records of a window that
    is refused are never added.

    Source
    ------
    Specification 5.13; proof 6.5; square root: Fichtenberger, Henzinger, Upadhyay 2023; Canonne, Kamath, Steinke 2020,
    Theorem 14.
    """

    loss: PrivacyLoss
    of: str
    sums: Sums
    factor: Factor
    place: _Place | None = None
    kind: str = "total"

    @property
    def shape(self) -> ResultShape:
        return SHAPES[f"{self.kind}/{self.of}"]

    @property
    def variance(self) -> Fraction:
        """Variance of every number that is drawn."""
        return self.factor.variance(self.sums.sensitivity_squared, self.loss.rho_nano)

    @property
    def epoch_windows(self) -> int:
        return self.factor.windows

    @property
    def repeated(self) -> float:
        return self.factor.repeated / self.factor.windows

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return self.sums.inner.counter(dimension, reach, noise)

    def recall(self, rows: Sequence[tuple[int, bytes]]) -> EpochMemory:
        return EpochMemory.recall(self.factor, self.sums.size, self.variance, rows)

    def within(self, memory: EpochMemory | None, known: int, window: EpochWindow) -> Total:
        return replace(self, place=_Place(memory, known, window))

    def release(self, view: Any, charge: Charge, noise: Noise) -> Outcome:
        place = self.place or _Place(self.recall([]), 0, EpochWindow(0, 0, 0))
        memory = place.memory
        if memory is None:
            return self.refusal("state_lost")
        charge.use(self.loss)
        drawn = noise.discrete_gaussian(self.variance, self.sums.size)
        estimates, state = memory.next(self.sums.integers(view), drawn)
        total = self.sums.outcome(estimates.total, estimates.total_noise)
        window = self.sums.outcome(estimates.window, estimates.window_noise)
        parts = self._parts(place, len(memory) + 1) | {"window": window}
        return Outcome(
            value=total.value,
            sigma=total.sigma,
            interval=total.interval,
            count=window.count,
            core_count=window.core_count,
            parts=parts,
            state=state,
        )

    def refusal(self, reason: str) -> Outcome:
        return Outcome(reason, parts=None if self.place is None else self._parts(self.place, self.place.known))

    def _parts(self, place: _Place, windows: int) -> dict[str, Any]:
        return {
            "of": self.of,
            "theta": float(self.factor.theta),
            "epoch_open_ms": place.window.epoch_ms,
            "epoch_windows": self.factor.windows,
            "windows": windows,
            "skipped": [] if place.memory is None else _skipped(place.memory.opens, place.window),
        }

    def forecast(self, size: int) -> Forecast:
        return Forecast(1.0, self._deviation(self.factor.noise_of_total(self.factor.windows)))

    def _deviation(self, noise: float) -> float:
        return math.sqrt(self.variance) * noise

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        inner = self.sums.inner
        total = inner.to_user_units(replace(outcome, parts=None), grid)
        if outcome.parts is None:
            return total
        parts = {**(total.parts or {}), **outcome.parts}
        if "window" in parts:
            window = inner.to_user_units(parts["window"], grid)
            parts["window"] = {"value": window.value, "sigma": window.sigma, "interval": window.interval}
        return replace(total, parts=parts)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        """The last total of an epoch, the worst one, and the worst single window; of sums, for each feature."""
        found = self.factor
        cases = {
            "last total": found.noise_of_total(found.windows),
            "worst total": found.largest_noise_of_total,
            "worst window": found.largest_noise_of_window,
        }
        named: dict[str, float] = {}
        for name, noise in cases.items():
            values = self._in_user_units(self._deviation(noise), grid)
            several = [feature.name for feature in grid.features] if self.of == "sum" and len(values) > 1 else [""]
            named |= {f"{name} of {each}" if each else name: v for each, v in zip(several, values, strict=False)}
        return named

    def _in_user_units(self, sigma: float, grid: Grid) -> list[float]:
        outcome = self.sums.outcome([Fraction(0)] * self.sums.size, sigma)
        return self.sums.inner.to_user_units(outcome, grid).sigma or []

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        windows, rho = self.factor.windows, self.loss.rho_nano / RHO_UNIT
        everyone = rho * self.factor.repeated
        lines = (
            f"totals of {self.of} over epochs of {windows} windows; the ledger keeps exact totals till each is over",
            f"somebody with a record in every window of an epoch loses rho = {everyone:.3g} in it, not {windows} times "
            f"{rho:g} = {windows * rho:.3g}, because every record is in all later totals",
        )
        facts = {"epoch_windows": windows, "epoch_rho_of_all_windows": everyone}
        return PlanNotes(lines, facts=facts)


def _skipped(opens: Sequence[int], window: EpochWindow) -> list[list[int]]:
    """Return the stretches of the epoch before a window in which no window was answered."""
    length = window.close_ms - window.open_ms
    ends = [window.epoch_ms, *(open_ms + length for open_ms in opens)]
    pairs = zip(ends, [*opens, window.open_ms], strict=True)
    return [[end, begin] for end, begin in pairs if begin > end]
