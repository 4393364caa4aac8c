"""The record gate: refuses, by a noisy number, windows of more than ``window.max_records`` records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import DELTA_UNIT, RHO_UNIT, PrivacyLoss
from ..counting.exact import PointCounts
from ..counting.views import MAX_POINTS
from ..errors import ConfigError
from ..ledgers.base import Charge
from ..noise.samplers import Noise, normal_tail
from ..stream.lattice import Grid
from .base import Counter, Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues, Track
from .core_stage import ChargeShare, normal_above
from .options import BuildContext, Options
from .shape import ResultShape

TIMES_HINT = 16
"""By default a window may hold this many times the size hint."""
SHARE = 100
"""The gate costs one part in this many of rho."""
DELTA_SHARE = 10
"""The gate costs one part in this many of delta, if the kind itself needs a delta."""
_BITS = 64  # of square roots, rounded down


@dataclass(frozen=True)
class RecordGate:
    """Refuses windows of too many records, by their noisy number.

    Parameters
    ----------
    loss : PrivacyLoss
        rho_g and delta_g.
    max_records : int
        ``max_records``: windows whose noisy number is larger are refused.

    Privacy
    -------
    Protects one record (one user, where users are counted), added or removed, with (rho_g, delta_g)-zCDP. This includes
    that of a window of more than H = `max_held` records nothing is kept except that there were more.

    With n records and noise N of variance 1 / (2 rho_g) a window is refused if and only if n + N > `max_records` or n >
    H; the refusal reveals nothing else, in particular not n + N. What follows runs only if the window is not refused.

    H is one number of the configuration, and depends on no data, load or offered loss. Dropping records changes no
    release but this refusal, so a release is never computed from a part of its records. In sliding windows n is each
    window's own; a pane is dropped only if it alone holds more than H, and so every window that covers it does too. For
    users, n is the number of those whom the ledger admits to the window: all of them pay, also in a refused window.

    Source
    ------
    Specification 10.1; proof 2.7; ours; the tail of the discrete Gaussian: Canonne, Kamath, Steinke 2020, Proposition
    25.
    """

    loss: PrivacyLoss
    max_records: int

    def __post_init__(self) -> None:
        if self.loss.rho_nano < 1 or self.loss.delta_femto < 1:
            raise ConfigError(f"must be larger: {self.loss} is too little to bound a window's records by", "release")
        if not 1 <= self.max_records <= MAX_POINTS - self.margin:
            raise ConfigError(f"must be in [1, {MAX_POINTS - self.margin}]", "window.max_records", got=self.max_records)

    @cached_property
    def variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self.loss.rho_nano)

    @cached_property
    def margin(self) -> int:
        """How far H lies above `max_records`: the (1 - delta_g)-quantile of the noise, rounded up, plus 1."""
        return tail_margin(self.variance, self.loss.delta_femto)

    @property
    def max_held(self) -> int:
        """H: windows of more records are always refused, so their records need not be kept."""
        return self.max_records + self.margin

    def refuses(self, size: int, noise: Noise) -> bool:
        """Draw whether a window of `size` records is refused; all sizes above `max_held` are treated alike."""
        noisy = size + noise.one_gaussian(self.variance)
        return noisy > self.max_records or size > self.max_held

    def chance(self, size: int) -> float:
        """Return the chance that a window of `size` records is not refused."""
        if size > self.max_held:
            return 0.0
        return normal_above((size - self.max_records - 0.5) / math.sqrt(self.variance))


@lru_cache(maxsize=64)
def tail_margin(variance: Fraction, delta_femto: int) -> int:
    """Return the least m >= 1 that a discrete Gaussian provably reaches with probability at most delta.

    Privacy
    -------
    Rounded to the safe side: Pr[N >= m] <= Pr[continuous normal >= m - 1] (Proposition 25), whose square root is
    rounded down and whose tail is evaluated to 60 digits. At most 1 more than the exact quantile plus 1 where the
    noise is wide.

    Source
    ------
    Specification 10.1; proofs 1.5, 2.7; Canonne, Kamath, Steinke 2020, Proposition 25.
    """
    wanted = Fraction(delta_femto, DELTA_UNIT)
    low, high = 0, 1

    def suffices(m: int) -> bool:
        square = Fraction((m - 1) ** 2) / variance
        root = Fraction(math.isqrt(square.numerator * 4**_BITS // square.denominator), 2**_BITS)
        return root >= 13 or Fraction(normal_tail(root)) <= wanted  # the tail at 13 is below 1e-37

    while not suffices(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class GatedView:
    """A view of a closing window: its number of records, and the counter's view of them, None if there are too many.

    Privacy
    -------
    NOT private: only mechanisms may read it.

    Source
    ------
    Specification 10.2; proof 2.7.
    """

    size: int
    view: Any

    def __repr__(self) -> str:
        return "<GatedView of a window>"  # without its private content


class GatedCounter:
    """A counter that drops the records of a pane once the pane holds more than any released window can.

    Parameters
    ----------
    inner : Counter
        Keeps the points.
    held : int
        H of `RecordGate`, the most records that are kept.

    Privacy
    -------
    The records that it drops belong only to windows that are refused in any case.

    Source
    ------
    Specification 10.2; proof 2.7.
    """

    def __init__(self, inner: Counter, held: int) -> None:
        self.inner = inner
        self._max_size = held
        self._sizes: dict[int, int] = {}

    @property
    def panes(self) -> list[int]:
        return sorted(self._sizes)

    def size(self, pane: int) -> int:
        """Return the number of records of one pane; not exact once there are too many."""
        return self._sizes.get(pane, 0)

    def add(self, pane: int, points: NDArray[Any]) -> None:
        """Add points; once the pane holds too many, neither these nor the points from before are kept."""
        before = self._sizes.get(pane, 0)
        if len(points) == 0 or before > self._max_size:
            return
        self._sizes[pane] = before + len(points)
        if self._sizes[pane] <= self._max_size:
            self.inner.add(pane, points)
            return
        self.inner.drop(pane)
        if isinstance(self.inner, PointCounts):
            self.inner.free_spare()

    def drop(self, pane: int) -> None:
        if self._sizes.pop(pane, 0):
            self.inner.drop(pane)

    def view(self, panes: Iterable[int]) -> GatedView:
        wanted = list(panes)
        size = sum(self._sizes.get(pane, 0) for pane in wanted)
        return GatedView(size, None if size > self._max_size else self.inner.view(wanted))


@dataclass(frozen=True)
class GatedMechanism(Mechanism):
    """A mechanism behind a `RecordGate`.

    Parameters
    ----------
    gate : RecordGate
        The first stage, which costs the same for every offer.
    inner : Mechanism
        The mechanism at the loss that the gate leaves. It is not started for a window that the gate refuses.
    points : str
        What the gate counts: ``records`` or ``users``.
    is_default : bool
        Whether `gate.max_records` was derived from the size hint.

    Privacy
    -------
    Protects the same unit and relation as gate and mechanism, and their losses add up. In a window that the gate
    refuses, which is a released fact, the mechanism is not started, so its loss is refunded.

    Source
    ------
    Specification 10.1; proof 2.7.
    """

    gate: RecordGate
    inner: Mechanism
    points: str = "records"
    is_default: bool = False

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def shape(self) -> ResultShape:
        return self.inner.shape

    @cached_property
    def loss(self) -> PrivacyLoss:
        return self.gate.loss + self.inner.loss

    @property
    def tracks(self) -> bool:
        return self.inner.tracks

    @property
    def false_release(self) -> float | None:
        return self.inner.false_release

    def counter(self, dimension: int, reach: int, noise: Noise) -> GatedCounter:
        return GatedCounter(self.inner.counter(dimension, reach, noise), self.gate.max_held)

    def release(self, view: GatedView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        charge.start(self.gate.loss)
        if self.gate.refuses(view.size, noise):
            return Outcome("too_many")
        return self.inner.release(view.view, cast("Charge", ChargeShare(charge, self.inner.loss)), noise)

    def forecast(self, size: int) -> Forecast:
        found = self.inner.forecast(size)
        return replace(found, probability=found.probability * self.gate.chance(size))

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        return self.inner.to_user_units(outcome, grid)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        return self.inner.truth(points, grid)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return self.inner.predicted_sigmas(size, grid)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        notes, gate = self.inner.notes(size, grid), self.gate
        line = (
            f"windows of more than {gate.max_records} {self.points} are refused (too_many), by a noisy number that "
            f"costs {gate.loss}; at most {gate.max_held} are held"
        )
        return replace(
            notes,
            lines=(*notes.lines, line),
            facts={**notes.facts, "max_records": gate.max_records, "most_held": gate.max_held},
            stopped=None if notes.stopped is None else gate.loss + notes.stopped,
        )

    def with_loss(self, loss: PrivacyLoss) -> GatedMechanism:
        """Return the same mechanism for another rho; the gate's loss stays, since H may not depend on an offer."""
        rest = PrivacyLoss(loss.rho_nano - self.gate.loss.rho_nano, loss.delta_femto)
        return replace(self, inner=self.inner.with_loss(rest))

    def hint(self, reason: str) -> str:
        return self.inner.hint(reason)

    def after(self, track: Track | None) -> GatedMechanism:
        return replace(self, inner=self.inner.after(track))

    def with_size_hint(self, size_hint: int) -> GatedMechanism:
        gate = (
            replace(self.gate, max_records=default_limit(size_hint, self.gate.loss)) if self.is_default else self.gate
        )
        return replace(self, gate=gate, inner=self.inner.with_size_hint(size_hint))


def default_limit(size_hint: int, loss: PrivacyLoss) -> int:
    """Return the ``max_records`` of a configuration that does not give it.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 10.1; proof 2.7.
    """
    room = MAX_POINTS - tail_margin(Fraction(RHO_UNIT, 2 * loss.rho_nano), loss.delta_femto)
    return max(1, min(TIMES_HINT * size_hint, room))


def _build(options: Options, setting: BuildContext) -> Mechanism:
    return options.build(setting)


def build_gated(
    options: Options,
    setting: BuildContext,
    max_records: int | None = None,
    build: Callable[[Options, BuildContext], Mechanism] = _build,
) -> Mechanism:
    """Make the mechanism of some options, behind a record gate if the kind holds records and has a delta to pay for it.

    Parameters
    ----------
    options : Options
    setting : BuildContext
    max_records : int, optional
        ``window.max_records``; by default a multiple of the size hint. Without either there is no gate.
    build : callable, optional
        What makes the mechanism behind the gate, see `fcstream.releases.statistics.learned.build_mechanism`.

    Raises
    ------
    ConfigError

    Privacy
    -------
    The gate takes a hundredth of ``release.rho`` and a tenth of ``delta``, rounded down, at least 1 unit of each; for a
    kind that needs no delta itself the whole delta is the gate's. The rest is the mechanism's.

    Source
    ------
    Specification 10.1; proof 2.7.
    """
    key = "window.max_records"
    is_needed = options.needs_record_gate(setting.unit)
    if max_records is not None and not is_needed:
        raise ConfigError(
            f"belongs to kinds that hold a window's records, but {options.kind!r} takes any number of them",
            key,
            remedy="leave it out",
        )
    if max_records is not None and not options.delta_or_zero:
        raise ConfigError("needs {delta}, which pays for refusing more, such as 1e-9", key, delta="release.delta")
    if (
        not options.needs_record_gate(setting.unit)
        or not options.delta_or_zero
        or (max_records is None and options.size_hint is None)
    ):
        return build(options, setting)
    whole = options.approximate_loss(options.delta_or_zero)
    rho = max(1, whole.rho_nano // SHARE)
    if options.spares_delta:
        loss, changes = PrivacyLoss(rho, whole.delta_femto), {}
    else:
        loss = PrivacyLoss(rho, max(1, whole.delta_femto // DELTA_SHARE))
        changes = {"delta": (whole - loss).delta}
    gate = RecordGate(loss, default_limit(options.checked_size_hint(), loss) if max_records is None else max_records)
    inner = build(msgspec.structs.replace(options, rho=(whole - PrivacyLoss(rho)).rho, **changes), setting)
    return GatedMechanism(gate, inner, "users" if setting.unit == "user" else "records", max_records is None)
