"""Answers: everything that is released about one window, on one charge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..counting.exact import FriendCounts
from ..ledgers.base import Charge
from ..noise.samplers import Noise
from ..stream.lattice import Grid
from ..stream.selection import EVERYTHING, RecordSelection, Rows, overlaps
from .base import Counter, EpochMechanism, Mechanism, Outcome, Track
from .core_stage import ChargeShare
from .record_gate import GatedCounter, GatedMechanism, GatedView

_UNBOUNDED = 2**62
NO_TEXTS: Mapping[str, NDArray[np.object_]] = {}
_NOTHING = PrivacyLoss()
Tracks = tuple["Track | None", ...]
"""Where each answer's points lie, for the next window."""


@dataclass(frozen=True)
class WindowAnswer:
    """One answer of a window.

    Attributes
    ----------
    name : str or None
        ``release.name``; None only where there is one answer without a name.
    mechanism : Mechanism
    grid : Grid
        The features that it reads.
    selection : RecordSelection
    why : str
        For plans: why its method was taken, where the configuration leaves the choice.
    """

    name: str | None
    mechanism: Mechanism
    grid: Grid
    selection: RecordSelection = EVERYTHING
    why: str = ""

    @property
    def max_held(self) -> int | None:
        """H of its record gate: of larger windows nothing is kept; None without a gate."""
        return self.mechanism.gate.max_held if isinstance(self.mechanism, GatedMechanism) else None


class AnswerOutcome(NamedTuple):
    """What an answer's mechanism returned, and what that cost."""

    answer: WindowAnswer
    outcome: Outcome
    loss: PrivacyLoss


class _Store(NamedTuple):
    """The counter of all answers that read the same points."""

    selection: RecordSelection
    group: int
    counter: GatedCounter


class AnswerCounters:
    """Counts the records of every answer; answers that compare the same points at one radius share their counts.

    Parameters
    ----------
    answers : sequence of WindowAnswer
    reach : int
        Panes less than `reach` apart may share a window.
    noise : Noise

    Privacy
    -------
    Counts are not released, so who reads them changes nothing. Records are dropped only where no answer that reads them
    could release anything.

    Source
    ------
    Specification 8.8; proof 2.13.
    """

    def __init__(self, answers: Sequence[WindowAnswer], reach: int, noise: Noise) -> None:
        self.rows = groups_of(answers)
        keys: list[object] = []
        inner: list[tuple[RecordSelection, Counter, int]] = []
        self._read: list[tuple[int, int | None]] = []  # by answer, the index of its counter, and its H
        for answer in answers:
            selection, held = answer.selection, answer.max_held
            counter = answer.mechanism.counter(answer.grid.dimension, reach, noise)
            counter = counter.inner if isinstance(counter, GatedCounter) else counter
            shares = type(counter) is FriendCounts
            key = (selection, cast("FriendCounts", counter).radius_squared) if shares else object()
            most = _UNBOUNDED if held is None else held
            if key in keys:
                at = keys.index(key)
                inner[at] = (selection, inner[at][1], max(inner[at][2], most))
            else:
                at = len(keys)
                keys.append(key)
                inner.append((selection, counter, most))
            self._read.append((at, held))
        self._stores = [
            _Store(selection, self.rows.index(selection.rows), GatedCounter(counter, most))
            for selection, counter, most in inner
        ]

    @property
    def panes(self) -> list[int]:
        return sorted({pane for store in self._stores for pane in store.counter.panes})

    def add(self, pane: int, points: NDArray[np.float64], texts: Mapping[str, NDArray[np.object_]] = NO_TEXTS) -> None:
        """Add lattice points (m, d) of all features, and texts (m,) by feature, each to the answers that its record
        belongs to.
        """
        for group, rows in enumerate(self.rows):
            marks = rows.mark(points)
            mine = points if rows.text is None else texts[rows.text.feature]
            self.add_to(group, pane, mine if marks is None else mine.compress(marks, axis=0))

    def add_to(self, group: int, pane: int, points: NDArray[Any]) -> None:
        """Add lattice points (m, d) of all features, or texts (m,), to the answers of one group."""
        for store in self._stores:
            if store.group == group and len(points):
                store.counter.add(pane, store.selection.points(points))

    def drop(self, pane: int) -> None:
        for store in self._stores:
            store.counter.drop(pane)

    def view(self, panes: Iterable[int]) -> tuple[Any, ...]:
        """Return what each answer's mechanism reads of a window."""
        wanted = list(panes)
        views = [store.counter.view(wanted) for store in self._stores]
        return tuple(
            views[at].view
            if held is None
            else GatedView(views[at].size, None if views[at].size > held else views[at].view)
            for at, held in self._read
        )


def groups_of(answers: Iterable[WindowAnswer]) -> list[Rows]:
    """List the different rows that answers are about, in order."""
    return list(dict.fromkeys(answer.selection.rows for answer in answers))


@dataclass(frozen=True)
class Answers:
    """The answers of every window of a stream.

    Parameters
    ----------
    answers : tuple of WindowAnswer
    unit : str
        ``event``, ``stream`` or ``user``.
    rho_nano : int, optional
        What a window is charged, if that is not exactly what its answers cost.

    Privacy
    -------
    Protects one unit, added or removed, with the sum of the answers' losses, component by component, by adaptive
    composition. With the units ``event`` and ``stream`` one record changes only the answers to which it belongs, and
    their laws given the others do not depend on it; so it costs the largest sum over answers that can share a record.
    A user may have records in several answers, so with the unit ``user`` it is the plain sum. Stages that no answer
    started are refunded by the same formula over what was started.

    Source
    ------
    Specification 8.8; proof 2.13.
    """

    answers: tuple[WindowAnswer, ...]
    unit: str = "event"
    rho_nano: int | None = None

    @classmethod
    def only(cls, mechanism: Mechanism, grid: Grid, unit: str = "event") -> Answers:
        """Make the answers of a stream that has one, about all features of all records."""
        return cls((WindowAnswer(None, mechanism, grid),), unit)

    def __iter__(self) -> Iterator[WindowAnswer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> WindowAnswer:
        return self.answers[index]

    @cached_property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of answers that one unit's records may change together."""
        if self.unit == "user":
            return (tuple(range(len(self.answers))),)
        return overlaps([answer.selection.rows for answer in self.answers])

    def joint(self, losses: Sequence[PrivacyLoss]) -> PrivacyLoss:
        """Return what one unit loses if each answer costs so much."""
        sums = [sum((losses[i] for i in some), _NOTHING) for some in self.together]
        return PrivacyLoss(max(each.rho_nano for each in sums), max(each.delta_femto for each in sums))

    @cached_property
    def loss(self) -> PrivacyLoss:
        """Loss of one window, charged to every block that it covers."""
        joint = self.joint([answer.mechanism.loss for answer in self.answers])
        return joint if self.rho_nano is None else PrivacyLoss(self.rho_nano, joint.delta_femto)

    @cached_property
    def tracks(self) -> bool:
        """Whether a window starts from what was released about the window before it."""
        return any(answer.mechanism.tracks for answer in self.answers)

    @cached_property
    def has_epochs(self) -> bool:
        """Whether a window's releases depend on earlier windows of an epoch."""
        return any(isinstance(answer.mechanism, EpochMechanism) for answer in self.answers)

    @cached_property
    def is_simple(self) -> bool:
        """Whether there is one answer, about all features of all records."""
        return len(self.answers) == 1 and self.answers[0].selection == RecordSelection(
            Rows(per_user=self.answers[0].selection.rows.per_user)
        )

    @property
    def max_waiting(self) -> int | None:
        """Records of one pane of which more are refused by every answer; None if some answer takes any number."""
        held = [answer.max_held for answer in self.answers if not answer.selection.rows.where]
        if len(held) < len(self.answers) or None in held:
            return None
        return max(each for each in held if each is not None)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        """Make the counter for the points of open panes; `reach` as in `Mechanism.counter`."""
        if self.is_simple:
            return self.answers[0].mechanism.counter(dimension, reach, noise)
        return AnswerCounters(self.answers, reach, noise)

    def release(self, view: Any, charge: Charge, noise: Noise) -> list[AnswerOutcome]:
        """Compute the outcomes of one window from its counter's view, in order; uses up the charge."""
        charge.open(self.loss)
        if self.is_simple:  # whose stages are those of the window
            (answer,) = self.answers
            only = ChargeShare(charge, answer.mechanism.loss)
            outcome = answer.mechanism.release(view, cast("Charge", only), noise)
            return [AnswerOutcome(answer, outcome, answer.mechanism.loss if charge.is_redraw else only.started)]
        started = _Started(self, charge)
        found = []
        for i, answer in enumerate(self.answers):
            share = ChargeShare(cast("Charge", started.of(i)), answer.mechanism.loss)
            outcome = answer.mechanism.release(view[i], cast("Charge", share), noise)
            found.append(
                AnswerOutcome(answer, outcome, answer.mechanism.loss if charge.is_redraw else started.losses[i])
            )
        return found

    def refused(self, reason: str, paid: PrivacyLoss) -> list[AnswerOutcome]:
        """Return the outcomes of a window for which nothing is drawn; each gets its part of what was paid."""
        whole, found = self.loss, []
        for answer in self.answers:
            own = answer.mechanism.loss
            part = PrivacyLoss(
                own.rho_nano * paid.rho_nano // whole.rho_nano,
                own.delta_femto * paid.delta_femto // (whole.delta_femto or 1),
            )
            found.append(AnswerOutcome(answer, _refusal(answer.mechanism, reason), part))
        return found

    def with_rho(self, rho_nano: int) -> Answers:
        """Return the same answers for another rho; each gets its part of it, rounded down."""
        whole = self.joint([answer.mechanism.loss for answer in self.answers]).rho_nano
        changed = []
        for answer in self.answers:
            loss = answer.mechanism.loss
            part = PrivacyLoss(loss.rho_nano * rho_nano // whole, loss.delta_femto)
            changed.append(replace(answer, mechanism=answer.mechanism.with_loss(part)))
        return replace(self, answers=tuple(changed), rho_nano=rho_nano)

    def after(self, tracks: Tracks) -> Answers:
        """Return the answers for the window after the one that these tracks are from."""
        if not self.tracks:
            return self
        given = tracks or (None,) * len(self.answers)
        pairs = zip(self.answers, given, strict=True)
        return replace(
            self,
            answers=tuple(replace(answer, mechanism=answer.mechanism.after(track)) for answer, track in pairs),
        )

    def hint(self, reason: str) -> str:
        """Tell what to do about windows that are refused for this reason."""
        return next(filter(None, (answer.mechanism.hint(reason) for answer in self.answers)), "")


def _refusal(mechanism: Mechanism, reason: str) -> Outcome:
    return mechanism.refusal(reason) if isinstance(mechanism, EpochMechanism) else Outcome(reason)


class _Started:
    """Pays on one charge for what all answers have started, as far as it adds up for one unit."""

    def __init__(self, answers: Answers, charge: Charge) -> None:
        self._together, self._charge = answers.together, charge
        self.losses = [_NOTHING] * len(answers)
        self._sums = [[0, 0] for _ in self._together]
        self._paid = (0, 0)

    def of(self, place: int) -> _StartedAnswer:
        """Return the charge as one answer sees it."""
        return _StartedAnswer(self, place)

    def start(self, place: int, stage: PrivacyLoss) -> None:
        self.losses[place] += stage
        rho, delta = self._paid
        for some, total in zip(self._together, self._sums, strict=True):
            if place in some:
                total[0] += stage.rho_nano
                total[1] += stage.delta_femto
                rho, delta = max(rho, total[0]), max(delta, total[1])
        self._charge.start(PrivacyLoss(rho - self._paid[0], delta - self._paid[1]))
        self._paid = rho, delta


@dataclass(frozen=True, slots=True)
class _StartedAnswer:
    started: _Started
    place: int

    def start(self, stage: PrivacyLoss) -> None:
        self.started.start(self.place, stage)
