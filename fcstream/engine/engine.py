"""The engine: read, count, close, charge, release, seal, publish."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..accounting.losses import PrivacyLoss
from ..config import Config, Job
from ..errors import ConfigError, EngineClosed
from ..formats.batch import Batch, SeenPositions
from ..formats.rows import read_moment
from ..ledgers import ChargeResult, Ledger, SealedRelease, WindowKey, open_ledger
from ..ledgers.base import STREAM_BLOCK, TOTAL_BLOCK, USER_BLOCK
from ..noise.samplers import Noise
from ..releases.base import Counter, Mechanism, Outcome, Release
from ..stream.contributions import UserPoints
from ..stream.late_records import LateRecords
from ..stream.windows import Window, group_by_pane
from .admission import admit, reject
from .closing import Cost, as_release, request
from .exhaustion import Participation
from .first_window import FirstWindow
from .intake import OnRejection, Rejections, clock_ms, read_pushed

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LOG = logging.getLogger("fcstream.engine")
_DAY_MS = 86_400_000
MAX_WINDOWS_AT_ONCE = 1000
"""Windows from which on one call of `Engine.advance` or `push` leaves the others to the next one."""
_NOTHING = PrivacyLoss()
ChargedUsers = tuple["NDArray[np.bytes_]", "NDArray[np.float64] | None"]
"""Keys of a window's users and one point for each, if the window was not flooded."""
CounterFactory = Callable[[Job, Mechanism, Noise], tuple[Counter, "UserPoints | None"]]
"""Makes what holds the records of a job's open windows, for the mechanism of the next one: all of them, and of the unit
``user`` one point a user."""


def default_counters(job: Job, mechanism: Mechanism, noise: Noise) -> tuple[Counter, UserPoints | None]:
    """Those of an engine that counts by itself."""
    users = UserPoints(job.grid.dimension, job.per_user) if job.terms.unit == "user" else None
    return mechanism.counter(job.grid.dimension, job.schedule.reach, noise), users


class Engine:
    """Private releases per window, for use inside another process.

    Parameters
    ----------
    config : Config or mapping
        The same keys as the configuration file; `Engine.from_config` reads one.
    key : str, optional
        Of a configuration with ``stream.keys``: the part of the stream that this engine answers. `KeyedEngine` answers
        all of them.
    ledger : Ledger, optional
        Already open; by default the one of ``[ledger] url``.
    noise : Noise, optional
        Exact noise from the operating system by default.
    on_rejection : callable, optional
        Gets every rejected record as a sequence of `Rejection` (reason, position, field). Without it they are counted
        in `rejected`, and the log has a warning for each new reason.
    stores : callable, optional
        Where the records of open windows are, if others count them; they are not pushed here then. See
        `CounterFactory`.

    Raises
    ------
    ConfigError, LedgerError

    Notes
    -----
    A release that was returned counts as published when the same thread next calls `push`, `advance`, `close` or
    `acknowledge`; what was not acknowledged is kept in the ledger and given again by `unpublished` after a crash.

    A crash, or `close` before a window is over, loses the pushed records of open windows, unless the caller pushes them
    again: give `positions` and replay from `replay_from`. Charges stay. A window that was charged and not sealed is
    drawn once more.

    All methods may be called from several threads; kernels release the GIL. Many engines may live in one process, each
    with its own ledger. Open the engine after a fork, not before. A ``with`` block acknowledges what was returned
    inside it if it ends without an error, and lets go of the ledger; it closes no window by itself.

    Privacy
    -------
    Unit: one record (``event``), all records of one user (``user``), or any set of records with at most one in each
    window (``stream``: the plain sum over windows). Relation: add or remove. Each release costs ``[release] rho,
    delta`` on every block or user it covers, charged durably before any noise is drawn; the ledger's filters keep every
    one within ``[budget]`` for ever. A user whose budget is used up is left out, see `Release.participation`. Not
    covered: run time, memory, counters of rejected records, and, with clock ``wall``, the moment of publication if
    windows are closed by `push`: call `advance` on a timer where that matters.

    Source
    ------
    Specification 8.3, 8.4; proofs 2.3, 2.4, 2.9.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any],
        *,
        key: str | None = None,
        ledger: Ledger | None = None,
        noise: Noise | None = None,
        on_rejection: OnRejection | None = None,
        stores: CounterFactory = default_counters,
    ) -> None:
        self.config = config if isinstance(config, Config) else Config.from_mapping(config)
        job = self.job = self.config.job.for_key(key)
        self._noise = noise or Noise()
        self.rejections = Rejections(job.terms.stream, on_rejection)
        if ledger is None and self.config.ledger is None:
            raise ConfigError(
                "is required: it keeps the guarantee across runs ('memory:' forgets at exit)", "ledger.url"
            )
        self._ledger = ledger or open_ledger(self.config.ledger.url, job.terms)  # type: ignore[union-attr]
        if self._ledger.terms != job.terms:
            raise ConfigError("the ledger given was opened for other terms", "ledger")
        last = self._ledger.last_sealed()
        before = None if last is None else Release.from_bytes(last[1])
        self._track = before.track if before is not None and job.spending.tracks else None
        self._participation = Participation(job, self._ledger, before)
        first = job.mechanism.after(self._track) if job.spending.tracks else job.mechanism
        self._counter, self._users = stores(job, first, self._noise)
        self._first_window = FirstWindow(job, self._ledger, last is not None)
        answered = 0 if last is None else job.schedule.index_after(last[0].open_ms)
        self._first = self._next = max(answered, self._first_window.index or 0)
        self._late_records = LateRecords(job.grid.dimension, None if job.gate is None else job.gate.max_held)
        self._next_user_check: dict[int, int] = {}  # by window: at how many users
        self._seen = SeenPositions()
        self._outbox: list[Release] = []
        self._returned: dict[int, list[WindowKey]] = {}  # by thread: one cannot speak for another
        self._lock = threading.RLock()
        self._closed = False
        self.replayed = 0
        """How many records lay in windows that were answered before this engine started. For the operator only."""
        if job.clock == "wall":
            self.begin(clock_ms())

    @classmethod
    def from_config(cls, path: str | Path, **options: Any) -> Engine:
        """An engine for a configuration file; options as in the class."""
        return cls(Config.load(path), **options)

    @property
    def guarantee(self) -> PrivacyLoss:
        """The cap of every block, for ever."""
        return self.job.terms.capacity

    @property
    def spent(self) -> PrivacyLoss:
        """What the most charged block has spent."""
        with self._lock:
            return self._ledger.spent()

    @property
    def spent_total(self) -> PrivacyLoss:
        """What all windows together have spent of `[budget] total_rho`; nothing if that is not given."""
        with self._lock:
            return self._ledger.spent(TOTAL_BLOCK)

    @property
    def answered(self) -> int:
        """How many windows of the schedule were answered before this engine started."""
        return self._first - (self._first_window.index or 0)

    @property
    def next_open_ms(self) -> int:
        """Opening of the first window that is not answered."""
        return self.job.schedule.window(self._next).open_ms

    def windows_due(self, now_ms: int) -> int:
        """How many windows are over at a public time and have no answer yet."""
        return max(0, self.job.schedule.due(now_ms) - self._next)

    @property
    def parts(self) -> tuple[Engine, ...]:
        """This engine: what `KeyedEngine` has one of for each key."""
        return (self,)

    def has_sealed(self, open_ms: int) -> bool:
        """Whether a window has its answer, which another process may have given since this engine started."""
        if open_ms < self.next_open_ms:
            return not self._first_window.skips(open_ms)
        last = self._ledger.last_sealed()
        return last is not None and last[0].open_ms >= open_ms

    @property
    def replay_from(self) -> int:
        """From which event time on records must be pushed again after a restart, in Unix milliseconds: where the first
        window opens that has no answer. Records before it lie in windows that have theirs; pushing them again changes
        nothing."""
        return self.next_open_ms

    @property
    def rejected(self) -> dict[str, int]:
        """How many records were rejected, by reason. Exact, so not private: for the operator only."""
        return self.rejections.counts

    def drain_rejected(self) -> dict[str, int]:
        """`rejected`, which starts anew."""
        with self._lock:
            return self.rejections.drain()

    # -- in ----------------------------------------------------------------------------------------------------------

    def push(
        self,
        times_ms: Any,
        points: Any = None,
        ids: ArrayLike | None = None,
        arrival_ms: ArrayLike | None = None,
        positions: ArrayLike | None = None,
    ) -> list[Release]:
        """Take records; returns the releases of windows that a wall clock has closed by now.

        Parameters
        ----------
        times_ms : int or datetime64 array (n,), or a table
            Event times, Unix milliseconds, or moments, in UTC if they have no zone. A table (a data frame of pandas or
            polars, a table of Arrow) has everything in columns named as in the configuration, times in
            `stream.time_unit` or as moments; then only `arrival_ms` and `positions` may be given too.
        points : array or data frame (n, d)
            Raw features in the configuration's order and their own units; left out if there are none. NaN says that an
            optional one is missing.
        ids : sequence of str or int (n,), optional
            Whose record each is: required with the unit ``user``, refused with others. From 2**53 on, pandas must hold
            them as ``Int64`` or text.
        arrival_ms : int or int array (n,), optional
            Arrival times: required with clock ``broker``, now by default with ``wall``, ignored with ``eof``.
        positions : int array (n,), optional
            Identity of each record in its source: a position seen before is rejected as a duplicate. Without it every
            pushed row is a record of its own.

        Raises
        ------
        ConfigError
            Wrong shapes. Single bad rows are rejected instead, see `on_rejection`.
        EngineClosed, LedgerError
        """
        with self._lock:
            batch, arrivals = read_pushed(self.job, times_ms, points, arrival_ms, positions, ids)
            self.take(batch, arrivals, identified=positions is not None)
            self.rejections.warn()
            return self.tick()

    def begin(self, now_ms: int) -> None:
        """Let the first run of a live stream begin, and skip the windows before for ever; later calls change nothing.

        The first window that is answered is the one that was open when the engine was made, by this machine's clock, or
        is at the public time `now_ms` where that lies earlier; with ``window.backlog`` the one that was open so long
        before. It is kept in the ledger. With clock ``wall`` the engine does this itself, with ``broker`` the first
        `advance` does. Records of the past are replayed by beginning in the past, or by a backlog: the arrival of a
        record must not decide where answers begin.
        """
        with self._lock:
            self._check_open()
            if self._first_window.begin(read_moment(now_ms, "now_ms")):
                self._first = self._next = self._first_window.index or 0
                self._forget()

    def tick(self) -> list[Release]:
        """Acknowledge what was returned before, and with clock ``wall`` close what is due by now: `push` without
        records."""
        with self._lock:
            self._acknowledge_returned()
            if self.job.clock == "wall":
                self._close_due(clock_ms(), MAX_WINDOWS_AT_ONCE)
            return self._take_outbox()

    def take(self, batch: Batch, arrivals: NDArray[np.int64] | None = None, *, identified: bool = False) -> None:
        """Add one batch of decoded records and report its rejections; for runners and sources.

        Parameters
        ----------
        batch : Batch
        arrivals : int64 (n,), optional
            Arrival time of each row of the batch; None with clock ``eof``.
        identified : bool
            Refuse positions that were seen before. Sources that never repeat a position do without.

        Notes
        -----
        If the rejection callback raises, nothing of the batch was taken. If counting itself fails, the engine closes:
        what of the batch was counted is not known, and counting a record twice would break the guarantee.
        """
        with self._lock:
            self._check_open()
            if (batch.users is None) == (self._users is not None):
                raise ConfigError(f"does not suit the unit {self.job.terms.unit!r}: it has no users, or some", "batch")
            is_duplicate = ~self._seen.fresh(batch.positions) if identified else None
            found = admit(self.job, batch, arrivals, is_duplicate)
            first, last, fine, rejections = found.first, found.last, found.fine, found.rejections
            skipped = fine & (last < (self._first_window.index or 0))
            reject(rejections, skipped, batch, "time_out_of_range")
            fine = fine & ~skipped
            answered = fine & (last < self._next)
            # What was answered before this engine started is a replay, not a fault.
            self.replayed += int(np.count_nonzero(answered & (last < self._first)))
            reject(rejections, answered & (last >= self._first), batch, "window_closed")
            fine = fine & ~answered
            # Late for an open window, in time for a later one that shares its pane.
            held = fine & (first > np.maximum(found.covering, self._next))
            self.rejections.add(rejections)
            try:
                if identified:
                    self._seen.add(batch.positions)
                self._late_records.add(first[held], found.panes[held], found.points[held])
                self._count(fine & ~held, found.panes, found.points, batch)
            except BaseException:
                self.abort()
                raise

    # -- out ---------------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> list[Release]:
        """Close every window whose close + lateness lies before the public time `now_ms`; returns their releases.

        The caller says with it that no record that arrived before `now_ms` is still to come. The first call of a
        new stream says where it begins, see `begin`. After a pause a call answers about `MAX_WINDOWS_AT_ONCE` windows:
        call again while `windows_due` tells more. With clock ``eof`` time does not close windows, and nothing happens.
        """
        with self._lock:
            now = read_moment(now_ms, "now_ms")
            if self.job.clock == "wall" and now > clock_ms() + _DAY_MS:
                raise ConfigError("must not lie a day ahead of this machine's clock with clock = 'wall'", "now_ms")
            self._acknowledge_returned()
            if self.job.clock != "eof":
                self.begin(now)
                self._close_due(now, MAX_WINDOWS_AT_ONCE)
            return self._take_outbox()

    def closing(self, now_ms: int | None = None) -> Iterator[list[Release]]:
        """Close the windows due at `now_ms` (None: all of a schedule with an end), one group of releases at a time."""
        if now_ms is not None:
            self.begin(now_ms)
        while True:
            with self._lock:
                closed = self._close_next(now_ms)
                group = self._take_outbox()
            if group:
                yield group
            if not closed:
                return

    def unpublished(self) -> list[Release]:
        """What was sealed before a crash and may not have reached anyone: ask at the start, publish it again."""
        with self._lock:
            waiting = self._ledger.unacknowledged()
            self._outbox = []  # it is among them
            self._returned = {threading.get_ident(): [window for window, _ in waiting]}
            return [Release.from_bytes(body) for _, body in waiting]

    def requeue(self, releases: list[Release]) -> None:
        """What this thread was just returned reached nobody: the next call returns it again."""
        with self._lock:
            self._outbox[:0] = releases
            self._returned.pop(threading.get_ident(), None)

    def acknowledge(self) -> None:
        """Say that all releases returned to this thread are published. `push`, `advance` and `close` say it too."""
        with self._lock:
            self._acknowledge_returned()

    def close(self) -> list[Release]:
        """End the stream. With clock ``eof`` this closes every window; returns the last releases.

        They count as published when `acknowledge` is called or the ``with`` block ends without an error. With other
        clocks windows that are not over stay open for the next engine and their records are lost; if there are any,
        the log has a warning, for the operator only.
        """
        with self._lock:
            if not self._closed:
                self._acknowledge_returned()
                if self.job.clock == "eof":
                    self._close_due(None)
                else:
                    self._warn_of_loss()
                self._closed = True
            releases = self._take_outbox()
            if not self._returned:
                self._ledger.close()
            return releases

    def abort(self) -> None:
        """Let go of the ledger without closing a window; open records are forgotten, charges stay."""
        with self._lock:
            self._closed = True
            self._returned.clear()
            self._ledger.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for thread in list(self._returned):
                    self._acknowledge_returned(thread)
        finally:
            self.abort()

    # -- the step ----------------------------------------------------------------------------------------------------

    def _close_next(self, now_ms: int | None) -> bool:
        """Charge durably, then draw, then seal: the order that the guarantee rests on. False if no window is due.

        After an error the windows stay open: another try is charged nothing more and may draw once more.
        """
        self._check_open()
        schedule = self.job.schedule
        due = schedule.count if now_ms is None else schedule.due(now_ms)
        if due is None or self._next >= due:
            return False
        self._enter_late_records(self._next)
        spending = self.job.spending
        # Where records can be held back, windows go one by one: a group that ends before the next of them would tell.
        group = spending.group if self.job.clock == "eof" or schedule.reach == 1 else 1
        windows = [schedule.window(index) for index in range(self._next, min(self._next + group, due))]
        before = _NOTHING
        if self._users or spending.savings:
            before = self._ledger.spent(USER_BLOCK if self._users else STREAM_BLOCK)
        offer = spending.offer(self._next, before, self._track)
        people = [self._users.read(window.index, self._ledger.salt) if self._users else None for window in windows]
        requests = [
            request(self.job, window, offer.loss, None if who is None else who[0])
            for window, who in zip(windows, people, strict=True)
        ]
        verdicts = self._ledger.charge(requests)
        if spending.stops and verdicts[0].refusal:
            raise verdicts[0].refusal
        answers = [
            self._release(window, verdict, who)
            for window, verdict, who in zip(windows, verdicts, people, strict=True)
            if verdict.charge or verdict.refusal or verdict.interrupted
        ]
        self._ledger.seal([SealedRelease(_key(release), release.to_bytes(), refund) for release, refund in answers])
        self._outbox += [release for release, _ in answers]
        if answers:
            self._track = answers[-1][0].track
        self._next = windows[-1].index + 1
        self._forget()
        return True

    def _close_due(self, now_ms: int | None, max_windows: int | None = None) -> None:
        first = self._next
        while self._close_next(now_ms):
            if max_windows is not None and self._next - first >= max_windows:
                break

    def _take_outbox(self) -> list[Release]:
        """What was sealed and not returned yet; from now on it is the caller's, and acknowledged with the next call."""
        releases, self._outbox = self._outbox, []
        if releases:
            self._returned.setdefault(threading.get_ident(), []).extend(map(_key, releases))
        return releases

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("the engine is closed: make a new one to go on")

    def _release(
        self, window: Window, verdict: ChargeResult, people: ChargedUsers | None
    ) -> tuple[Release, PrivacyLoss]:
        """The answer for one window, and what it did not use of its charge."""
        charge, is_paid_by_all = verdict.charge, self._participation.note(verdict)
        if charge is not None and charge.is_redraw and people is not None and self.job.gate is not None:
            # Whether there are too many users was looked at before the draw. Those who came since are not charged, and
            # must not decide it: there is no second draw.
            return self._answer(window, Outcome("interrupted"), charge.loss, verdict.spent), _NOTHING
        if charge is None:
            if verdict.interrupted is not None:
                outcome, loss = Outcome("interrupted"), verdict.interrupted
            else:
                outcome, loss = Outcome("budget_exhausted"), _NOTHING
            return self._answer(window, outcome, loss, verdict.spent), _NOTHING
        panes = self.job.schedule.panes(window)
        try:
            if people is not None and verdict.admitted is not None:
                self._counter.drop(panes[0])  # of an earlier try
                self._counter.add(panes[0], self._points_of(people, verdict.admitted))
            view = self._counter.view(panes)
        except BaseException:
            self.abort()  # what was counted is not known
            raise
        outcome = self.job.spending.mechanism_at(charge.loss.rho_nano, self._track).release(view, charge, self._noise)
        refund, spent = charge.unused, verdict.spent
        if is_paid_by_all:
            spent -= refund
        return self._answer(window, outcome, charge.loss - refund, spent), refund

    def _answer(self, window: Window, outcome: Outcome, loss: PrivacyLoss, spent: PrivacyLoss) -> Release:
        is_private, people = self._noise.private, self._participation.state
        return as_release(self.job, window, outcome, Cost(loss, spent), private=is_private, participation=people)

    def _points_of(self, people: ChargedUsers, admitted: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Points of those who take part. Of a flooded window only their number is right, and it is too large."""
        if people[1] is not None:
            return people[1][admitted]
        assert self.job.gate is not None
        # The ledger has admitted all who were sure to have room; whatever becomes of that, the window is refused.
        size = max(int(np.count_nonzero(admitted)), self.job.gate.max_held + 1)
        return np.broadcast_to(0.0, (size, self.job.grid.dimension))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _acknowledge_returned(self, thread: int | None = None) -> None:
        """Acknowledge what a thread (this one) was given; a closed engine whose last release is settled lets go."""
        returned = self._returned.pop(thread or threading.get_ident(), None)
        if returned:
            self._ledger.acknowledge(returned)
        if self._closed and not self._returned:
            self._ledger.close()

    def _count(
        self,
        rows: NDArray[np.bool_],
        panes: NDArray[np.int64],
        points: NDArray[np.float64],
        batch: Batch,
    ) -> None:
        users, times = batch.users, batch.times_ms
        if not rows.all():
            panes, points, times = panes[rows], points[rows], times[rows]
            users = None if users is None else users[rows]
        for pane, part in group_by_pane(panes):
            if self._users is not None and users is not None:
                self._users.add(pane, users[part], times[part], points[part])
                self._limit_users(pane)
            else:
                self._counter.add(pane, points[part])

    def _limit_users(self, window: int) -> None:
        """Let go of the points of a window that is sure to have too many users when it closes.

        Sure is who has room for all that the ledger can charge until then: what is let go of, and when, changes no
        answer. Who is not sure counts when the window closes, as every user does.
        """
        gate, held = self.job.gate, self._users
        if gate is None or held is None or held.size(window) < self._next_user_check.get(window, gate.max_held + 1):
            return
        keys, _ = held.read(window, self._ledger.salt)
        if self.job.spending.savings is None:
            most = self.job.mechanism.loss * (window - self._next + 1)
            if np.count_nonzero(self._ledger.has_room(keys, most)) > gate.max_held:
                held.flood(window, self._ledger.salt)
        self._next_user_check[window] = 2 * len(keys)

    def _enter_late_records(self, index: int) -> None:
        """Count the held records that are in time for window `index`."""
        try:
            for pane, points in self._late_records.take(index):
                self._counter.add(pane, points)
        except BaseException:
            self.abort()  # which of them were counted is not known
            raise

    def _warn_of_loss(self) -> None:
        """Say whether records of open windows are let go of; not how many, nor when theirs were."""
        if self._counter.panes or not self._late_records.is_empty or not (self._users is None or self._users.is_empty):
            LOG.warning(
                "stream %r: closed before all windows were over: the records of those that are open are lost, unless a "
                "new engine is given them again: push what lies at event time %d (`replay_from`) or later",
                self.job.terms.stream,
                self.replay_from,
            )

    def _forget(self) -> None:
        """Drop panes that no later window covers."""
        schedule = self.job.schedule
        for pane in self._counter.panes:
            if schedule.last_window_of_pane(pane) < self._next:
                self._counter.drop(pane)
        if self._users is not None:
            self._users.forget_before(self._next)
            self._next_user_check = {
                index: size for index, size in self._next_user_check.items() if index >= self._next
            }


def _key(release: Release) -> WindowKey:
    return WindowKey(release.window_open_ms, release.window_close_ms)
