"""Closing of windows: charge the ledger, draw, seal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..config import Job
from ..ledgers import ChargeResult, EpochState, Ledger, Request, WindowKey
from ..ledgers.base import STREAM_BLOCK, USER_BLOCK
from ..noise.samplers import Noise
from ..releases.answers import AnswerOutcome, Answers, Tracks
from ..releases.base import Release, from_lines
from ..releases.intervals import with_intervals
from ..releases.shape import SHAPES
from ..runtime.undo import on_error
from ..stream.user_groups import WindowUsers
from ..stream.windows import Window
from .epochs import Epochs
from .exhaustion import REASON, Exhaustion
from .outbox import Outbox
from .records import OpenRecords

_NOTHING = PrivacyLoss()


class Participants(Protocol):
    """Decides which users of a window take part in it, once the window is charged for all of them."""

    def mask(self, window: WindowKey, keys: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        """Mark the users who take part, of those with these keys (n,), ascending."""


class Everybody:
    """Everybody with a record in a window takes part: its public block is charged as if somebody were in all windows.

    Source
    ------
    Specification 8.3; proof 2.4.
    """

    def mask(self, window: WindowKey, keys: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        return np.ones(len(keys), np.bool_)


def request(job: Job, window: Window, loss: PrivacyLoss) -> Request:
    """Make the request to charge a window."""
    schedule, unit = job.schedule, job.terms.unit
    if unit == "event":
        blocks = tuple(str(schedule.pane_open_ms(pane)) for pane in schedule.panes(window))
    else:
        blocks = (USER_BLOCK,) if unit == "user" else (STREAM_BLOCK,)
    return Request(WindowKey(window.open_ms, window.close_ms), loss, blocks)


def as_releases(
    job: Job,
    window: Window,
    outcomes: Sequence[AnswerOutcome],
    spent: PrivacyLoss,
    *,
    private: bool,
    ledger: str | None = None,
) -> list[Release]:
    """Convert the outcomes of a window to the user's units.

    `spent` is what the window's most charged block has spent, all answers included.
    """
    return [
        _as_release(job, window, outcome, spent, None if len(outcomes) == 1 else place, private, ledger)
        for place, outcome in enumerate(outcomes)
    ]


def _as_release(
    job: Job,
    window: Window,
    found: AnswerOutcome,
    spent: PrivacyLoss,
    place: int | None,
    private: bool,
    ledger: str | None,
) -> Release:
    answer, outcome, loss = found
    shape = answer.mechanism.shape
    values = with_intervals(shape, answer.mechanism.to_user_units(outcome, answer.grid))
    return Release(
        stream=job.terms.stream,
        window_open_ms=window.open_ms,
        window_close_ms=window.close_ms,
        status="refused" if outcome.reason else "released",
        reason=outcome.reason,
        kind=answer.mechanism.kind,
        value=values.value,
        sigma=values.sigma,
        count=outcome.count,
        core_count=outcome.core_count,
        rho=loss.rho,
        delta=loss.delta,
        guarantee=job.terms.guarantee.as_dict(),
        spent=(spent + job.paid_beside).as_dict(),
        private=private,
        features=values.features,
        transform=values.transform,
        track=outcome.track,
        parts=values.parts,
        key=job.key,
        unit="user" if job.terms.unit == "user" else None,
        name=answer.name,
        place=place,
        window_open=_iso_time(window.open_ms) if job.iso_times else None,
        window_close=_iso_time(window.close_ms) if job.iso_times else None,
        interval=values.interval,
        ledger=ledger,
        key_share=None if (share := job.terms.key_share) is None else share.as_dict(),
        shape=None if answer.mechanism.kind in SHAPES else shape,
    )


def _iso_time(time_ms: int) -> str:
    """Return a time in ISO 8601 with milliseconds, in UTC."""
    return str(np.datetime_as_string(np.datetime64(time_ms, "ms"), timezone="UTC"))


class AskedWindows(NamedTuple):
    """The next windows of a stream, and what is asked of the ledger for them.

    Attributes
    ----------
    windows : sequence of Window
    answers : Answers
        At the loss to charge.
    users : list of WindowUsers or None
        Of each window, with the unit ``user``; private.
    requests : list of Request
    """

    windows: Sequence[Window]
    answers: Answers
    users: list[WindowUsers | None]
    requests: list[Request]


class DrawnWindows(NamedTuple):
    """The releases of windows, with what each did not use of its charge, and what they leave for later ones."""

    closed: list[tuple[list[Release], PrivacyLoss]]
    states: list[EpochState]


class WindowCloser:
    """Charges windows durably, then draws, then seals, in the order on which the guarantee rests.

    Parameters
    ----------
    job : Job
    ledger : Ledger
    noise : Noise
    last : list of Release
        The releases of the newest window that the ledger has sealed.
    outbox : Outbox
        Seals the releases and keeps them for the caller.

    Attributes
    ----------
    group : int
        How many windows may be closed together.
    exhaustion : Exhaustion
        Whether the budget is used up.
    """

    def __init__(self, job: Job, ledger: Ledger, noise: Noise, last: list[Release], outbox: Outbox) -> None:
        self._job, self._ledger, self._noise, self._outbox = job, ledger, noise, outbox
        self.exhaustion = Exhaustion(job)
        self.exhaustion.note(last, now=False)
        joint = getattr(ledger, "is_joint", False)
        self._participants: Participants = cast("Participants", ledger) if joint else Everybody()
        self._tracks = self._tracks_after(last)
        self._epochs = Epochs(job, ledger)
        # Where late records wait for a window, windows close one by one, because a group's end must not depend on them.
        self.group = job.spending.group if job.clock == "eof" or job.schedule.reach == 1 else 1
        plain = job.terms.unit != "user" and not (job.spending.savings or self._tracks or job.answers.tracks)
        self._always_asked = job.answers if plain else None

    @property
    def next_answers(self) -> Answers:
        """Return the answers of the next window for the case that it is offered no savings."""
        return self._job.answers.after(self._tracks)

    def ask(self, windows: Sequence[Window], records: OpenRecords) -> AskedWindows:
        """Return what the ledger must grant before the next windows are drawn."""
        answers = self._offer(windows[0].index)
        users = [records.users(window.index) for window in windows]
        requests = [request(self._job, window, answers.loss) for window in windows]
        return AskedWindows(windows, answers, users, requests)

    def asks_as(self, other: AskedWindows) -> bool:
        """Tell whether this stream asks for the same windows what a sibling stream asks for."""
        return other.answers is self._always_asked

    def close(self, asked: AskedWindows, records: OpenRecords, *, acknowledging: bool = False) -> None:
        """Charge, draw and seal the next windows, and keep their releases for the caller; see `Outbox.charge`.

        After an error the windows stay open: another try is not charged again and may draw once more.
        """
        results = self._outbox.charge(asked.requests, acknowledging=acknowledging)
        with on_error(self._epochs.forget):
            drawn = self.draw(asked, results, records)
            self._outbox.seal(drawn.closed, drawn.states)
        self.follow(asked, drawn)

    def draw(self, asked: AskedWindows, results: Sequence[ChargeResult], records: OpenRecords) -> DrawnWindows:
        """Make the releases of windows after the ledger's answer, which must be durable.

        After an error, also of the seal, call `forget`; after the seal, call `follow`.

        Raises
        ------
        BudgetExhausted
        """
        if self._job.spending.stops and results[0].refusal:
            raise results[0].refusal
        states: list[EpochState] = []
        closed = [
            self._release(window, result, asked.answers, records, who, states)
            for window, result, who in zip(asked.windows, results, asked.users, strict=True)
            if result.charge or result.refusal or result.interrupted
        ]
        return DrawnWindows(closed, states)

    def forget(self) -> None:
        """Read memories of epochs anew at the next window."""
        self._epochs.forget()

    def follow(self, asked: AskedWindows, drawn: DrawnWindows) -> None:
        """Take in what was sealed."""
        closed, windows = drawn.closed, asked.windows
        if drawn.states:
            with on_error(self._epochs.forget):
                self._epochs.follow(drawn.states)
        if len(closed) < len(windows):
            self._epochs.forget()
        for releases, _ in closed:
            self.exhaustion.note(releases)
        if closed:
            if self._job.spending.tracks:
                self._tracks = self._tracks_after(closed[-1][0])
        elif sealed := self._ledger.last_sealed():  # by another process, or by a call that was interrupted
            self._tracks = self._tracks_after(from_lines(sealed[1]))

    def _tracks_after(self, last: Sequence[Release]) -> Tracks:
        """Where the window after some releases starts."""
        return tuple(release.track for release in last) if self._job.spending.tracks else ()

    def _offer(self, index: int) -> Answers:
        """Return the answers of a window, at the loss to charge."""
        spent, spending = _NOTHING, self._job.spending
        if self._job.terms.unit == "user" or spending.savings:
            spent = self._ledger.spent(USER_BLOCK if self._job.terms.unit == "user" else STREAM_BLOCK)
        return spending.offer(index, spent, self._tracks)

    def _release(
        self,
        window: Window,
        result: ChargeResult,
        answers: Answers,
        records: OpenRecords,
        users: WindowUsers | None,
        states: list[EpochState],
    ) -> tuple[list[Release], PrivacyLoss]:
        """Make the releases of one window; also returns what it did not use of its charge.

        What it leaves for later windows is added to `states`.
        """
        charge = result.charge
        is_as_asked = charge is None or charge.loss is answers.loss or charge.loss == answers.loss
        if charge is not None and not is_as_asked:  # charged before a crash, when another loss was offered
            answers = self._job.spending.answers_at(charge.loss.rho_nano, self._tracks)
        if answers.has_epochs:
            answers = self._epochs.within(answers, window)
        if charge is None:
            reason = REASON if result.interrupted is None else "interrupted"
            refused = answers.refused(reason, result.interrupted or _NOTHING)
            if answers.has_epochs:
                states += self._epochs.states(window, refused)
            return self._as_releases(window, refused, result.spent), _NOTHING
        mask = None if users is None else self._participants.mask(result.window, users.keys)
        view = records.view(self._job.schedule.panes(window), users, mask)
        outcomes = answers.release(view, charge, self._noise)
        if answers.has_epochs:
            states += self._epochs.states(window, outcomes)
        refund = charge.unused
        spent = result.spent if result.is_joint else result.spent - refund
        return self._as_releases(window, outcomes, spent), refund

    def _as_releases(self, window: Window, outcomes: Sequence[AnswerOutcome], spent: PrivacyLoss) -> list[Release]:
        kept = "memory" if getattr(self._ledger, "forgets", False) else None
        return as_releases(self._job, window, outcomes, spent, private=self._noise.private, ledger=kept)
