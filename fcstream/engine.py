"""The engine: read, count, close, charge, release, seal, publish."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from .admission import admit, reject
from .config import Config, Job
from .errors import ConfigError, EngineClosed
from .ledgers import Answer, Ledger, Request, Verdict, WindowKey, open_ledger
from .ledgers.base import STREAM_BLOCK, TOTAL_BLOCK, USER_BLOCK
from .noise import Noise
from .records import Batch, Rejection, SeenPositions
from .releases.base import Counter, Mechanism, Outcome, Release
from .rows import read_moment, read_push
from .users import UserPoints
from .windows import Window, group_by_pane
from .zcdp import PrivacyLoss

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_DAY_MS = 86_400_000
_NOTHING = PrivacyLoss()
People = tuple["NDArray[np.bytes_]", "NDArray[np.float64]"]
"""Keys of a window's users and one point for each."""
OnRejection = Callable[[Sequence[Rejection]], object]
Stores = Callable[[Job, Mechanism, Noise], tuple[Counter, "UserPoints | None"]]
"""Makes what holds the records of a job's open windows, for the mechanism of the next one: all of them, and of the unit
``user`` one point a user."""


def own_stores(job: Job, mechanism: Mechanism, noise: Noise) -> tuple[Counter, UserPoints | None]:
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
        Gets every rejected record as a sequence of `Rejection` (reason, position, field).
    stores : callable, optional
        Where the records of open windows are, if others count them; they are not pushed here then. See `Stores`.

    Raises
    ------
    ConfigError, LedgerError

    Notes
    -----
    A release that was returned counts as published when the same thread next calls `push`, `advance`, `close` or
    `acknowledge`; what was not acknowledged is kept in the ledger and given again by `unpublished` after a crash.

    A crash loses the pushed records of open windows, unless the caller pushes them again: give `positions` and replay
    from the oldest open window. Charges stay. A window that was charged and not sealed is drawn once more.

    All methods may be called from several threads; kernels release the GIL. Many engines may live in one process, each
    with its own ledger. Open the engine after a fork, not before. A ``with`` block acknowledges what was returned
    inside it if it ends without an error, and lets go of the ledger; it closes no window by itself.

    Privacy
    -------
    Unit: one record (``event``), all records of one user (``user``), or any set of records with at most one in each
    window (``stream``: the plain sum over windows). Relation: add or remove. Each release costs ``[release] rho,
    delta`` on every block or user it covers, charged durably before any noise is drawn; the ledger's filters keep every
    one within ``[budget]`` for ever. A user whose budget is used up is left out silently. Not covered: run time,
    memory, counters of rejected records, and, with clock ``wall``, the moment of publication if windows are closed by
    `push`: call `advance` on a timer where that matters.

    Source
    ------
    Block composition over panes, filters per user; see PRIVACY.md.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any],
        *,
        key: str | None = None,
        ledger: Ledger | None = None,
        noise: Noise | None = None,
        on_rejection: OnRejection | None = None,
        stores: Stores = own_stores,
    ) -> None:
        self.config = config if isinstance(config, Config) else Config.from_mapping(config)
        job = self.job = Job.answering(self.config, key)
        self._noise = noise or Noise()
        self._on_rejection = on_rejection
        if ledger is None and self.config.ledger is None:
            raise ConfigError(
                "is required: it keeps the guarantee across runs ('memory:' forgets at exit)", "ledger.url"
            )
        self._ledger = ledger or open_ledger(self.config.ledger.url, job.terms)  # type: ignore[union-attr]
        if self._ledger.terms != job.terms:
            raise ConfigError("the ledger given was opened for other terms", "ledger")
        last = self._ledger.last_sealed()
        self._track = Release.from_bytes(last[1]).track if last is not None and job.spending.tracks else None
        first = job.mechanism.after(self._track) if job.spending.tracks else job.mechanism
        self._friends, self._users = stores(job, first, self._noise)
        self._first = self._next = 0 if last is None else job.schedule.index_after(last[0].open_ms)
        self._held: list[tuple[int, int, NDArray[np.float64]]] = []
        self._seen = SeenPositions()
        self._outbox: list[Release] = []
        self._returned: dict[int, list[WindowKey]] = {}  # by thread: one cannot speak for another
        self._lock = threading.RLock()
        self._closed = False
        self.rejected: dict[str, int] = {}
        """How many records were rejected, by reason. Exact, so not private: for the operator only."""
        self.replayed = 0
        """How many records lay in windows that were answered before this engine started. For the operator only."""

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
        return self._first

    @property
    def next_open_ms(self) -> int:
        """Opening of the first window that is not answered."""
        return self.job.schedule.window(self._next).open_ms

    @property
    def parts(self) -> tuple[Engine, ...]:
        """This engine: what `KeyedEngine` has one of for each key."""
        return (self,)

    def has_sealed(self, open_ms: int) -> bool:
        """Whether a window has its answer, which another process may have given since this engine started."""
        last = None if open_ms < self.next_open_ms else self._ledger.last_sealed()
        return open_ms < self.next_open_ms or (last is not None and last[0].open_ms >= open_ms)

    def drain_rejected(self) -> dict[str, int]:
        """`rejected`, which starts anew."""
        with self._lock:
            rejected, self.rejected = self.rejected, {}
            return rejected

    # -- in ----------------------------------------------------------------------------------------------------------

    def push(
        self,
        times_ms: ArrayLike,
        points: ArrayLike,
        ids: ArrayLike | None = None,
        arrival_ms: ArrayLike | None = None,
        positions: ArrayLike | None = None,
    ) -> list[Release]:
        """Take records; returns the releases of windows that a wall clock has closed by now.

        Parameters
        ----------
        times_ms : int array (n,)
            Event times, Unix milliseconds.
        points : array (n, d)
            Raw features in the configuration's order and their own units.
        ids : sequence of str or int (n,), optional
            Whose record each is: required with the unit ``user``, refused with others.
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
            batch, arrivals = self.read(times_ms, points, arrival_ms, positions, ids)
            self.take(batch, arrivals, identified=positions is not None)
            return self.tick()

    def tick(self) -> list[Release]:
        """Acknowledge what was returned before, and with clock ``wall`` close what is due by now: `push` without
        records."""
        with self._lock:
            self._settle()
            if self.job.clock == "wall":
                self._close_due(_now_ms())
            return self._hand_out()

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
            self._must_be_open()
            if (batch.users is None) == (self._users is not None):
                raise ConfigError(f"does not suit the unit {self.job.terms.unit!r}: it has no users, or some", "batch")
            again = ~self._seen.fresh(batch.positions) if identified else None
            found = admit(self.job, batch, arrivals, again)
            first, last, fine, rejections = found.first, found.last, found.fine, found.rejections
            answered = fine & (last < self._next)
            # What was answered before this engine started is a replay, not a fault.
            self.replayed += int(np.count_nonzero(answered & (last < self._first)))
            reject(rejections, answered & (last >= self._first), batch, "window_closed")
            fine = fine & ~answered
            # Late for an open window, in time for a later one that shares its pane.
            held = fine & (first > np.maximum(found.covering, self._next))
            self._report(rejections)
            try:
                if identified:
                    self._seen.add(batch.positions)
                self._hold(held, first, found.panes, found.points)
                self._count(fine & ~held, found.panes, found.points, batch)
            except BaseException:
                self.abort()
                raise

    # -- out ---------------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> list[Release]:
        """Close every window whose close + lateness lies before the public time `now_ms`; returns their releases.

        The caller says with it that no record that arrived before `now_ms` is still to come. With clock ``eof`` time
        does not close windows, and nothing happens.
        """
        with self._lock:
            now = read_moment(now_ms, "now_ms")
            if self.job.clock == "wall" and now > _now_ms() + _DAY_MS:
                raise ConfigError("must not lie a day ahead of this machine's clock with clock = 'wall'", "now_ms")
            self._settle()
            if self.job.clock != "eof":
                self._close_due(now)
            return self._hand_out()

    def closing(self, now_ms: int | None = None) -> Iterator[list[Release]]:
        """Close the windows due at `now_ms` (None: all of a schedule with an end), one group of releases at a time."""
        while True:
            with self._lock:
                closed = self._close_next(now_ms)
                group = self._hand_out()
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

    def take_back(self, releases: list[Release]) -> None:
        """What this thread was just returned reached nobody: the next call returns it again."""
        with self._lock:
            self._outbox[:0] = releases
            self._returned.pop(threading.get_ident(), None)

    def acknowledge(self) -> None:
        """Say that all releases returned to this thread are published. `push`, `advance` and `close` say it too."""
        with self._lock:
            self._settle()

    def close(self) -> list[Release]:
        """End the stream. With clock ``eof`` this closes every window; returns the last releases.

        They count as published when `acknowledge` is called or the ``with`` block ends without an error.
        """
        with self._lock:
            if not self._closed:
                self._settle()
                if self.job.clock == "eof":
                    self._close_due(None)
                self._closed = True
            releases = self._hand_out()
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
                    self._settle(thread)
        finally:
            self.abort()

    # -- the step ----------------------------------------------------------------------------------------------------

    def _close_next(self, now_ms: int | None) -> bool:
        """Charge durably, then draw, then seal: the order that the guarantee rests on. False if no window is due.

        After an error the windows stay open: another try is charged nothing more and may draw once more.
        """
        self._must_be_open()
        schedule = self.job.schedule
        due = schedule.count if now_ms is None else schedule.due(now_ms)
        if due is None or self._next >= due:
            return False
        self._enter_held(self._next)
        spending = self.job.spending
        # Where records can be held back, windows go one by one: a group that ends before the next of them would tell.
        group = spending.group if self.job.clock == "eof" or schedule.reach == 1 else 1
        windows = [schedule.window(index) for index in range(self._next, min(self._next + group, due))]
        before = _NOTHING
        if self._users or spending.savings:
            before = self._ledger.spent(USER_BLOCK if self._users else STREAM_BLOCK)
        offer = spending.offer(self._next, before, self._track)
        people = [self._users.read(window.index, self._ledger.salt) if self._users else None for window in windows]
        requests = [self._request(window, offer, who) for window, who in zip(windows, people, strict=True)]
        verdicts = self._ledger.charge(requests)
        if spending.stops and verdicts[0].refusal:
            raise verdicts[0].refusal
        answers = [
            self._release(window, verdict, who, before)
            for window, verdict, who in zip(windows, verdicts, people, strict=True)
            if verdict.charge or verdict.refusal or verdict.interrupted
        ]
        self._ledger.seal([Answer(_key(release), release.to_bytes(), refund) for release, refund in answers])
        self._outbox += [release for release, _ in answers]
        if answers:
            self._track = answers[-1][0].track
        self._next = windows[-1].index + 1
        self._forget()
        return True

    def _close_due(self, now_ms: int | None) -> None:
        while self._close_next(now_ms):
            pass

    def _hand_out(self) -> list[Release]:
        """What was sealed and not returned yet; from now on it is the caller's, and acknowledged with the next call."""
        releases, self._outbox = self._outbox, []
        if releases:
            self._returned.setdefault(threading.get_ident(), []).extend(map(_key, releases))
        return releases

    def _must_be_open(self) -> None:
        if self._closed:
            raise EngineClosed("the engine is closed: make a new one to go on")

    def _request(self, window: Window, offer: Mechanism, people: People | None) -> Request:
        schedule = self.job.schedule
        blocks: tuple[str, ...] = ()
        if self.job.terms.unit == "event":
            blocks = tuple(str(schedule.pane_open_ms(pane)) for pane in schedule.panes(window))
        elif people is None:
            blocks = (STREAM_BLOCK,)
        return Request(
            WindowKey(window.open_ms, window.close_ms), offer.loss, blocks, None if people is None else people[0]
        )

    def _release(
        self, window: Window, verdict: Verdict, people: People | None, before: PrivacyLoss
    ) -> tuple[Release, PrivacyLoss]:
        """The answer for one window, and what it did not use of its charge."""
        charge = verdict.charge
        if charge is None:
            if verdict.interrupted is not None:
                outcome, loss = Outcome("interrupted"), verdict.interrupted
            else:
                outcome, loss = Outcome("budget_exhausted"), _NOTHING
            return self._as_release(window, outcome, loss, verdict.spent), _NOTHING
        panes = self.job.schedule.panes(window)
        try:
            if people is not None and verdict.admitted is not None:
                self._friends.drop(panes[0])  # of an earlier try
                self._friends.add(panes[0], people[1][verdict.admitted])
            view = self._friends.view(panes)
        except BaseException:
            self.abort()  # what was counted is not known
            raise
        outcome = self.job.spending.at(charge.loss.rho_nano, self._track).release(view, charge, self._noise)
        refund, spent = charge.unused, verdict.spent
        if people is None or spent != before:  # somebody with a record in every window may have had no room
            spent -= refund
        return self._as_release(window, outcome, charge.loss - refund, spent), refund

    def _as_release(self, window: Window, outcome: Outcome, loss: PrivacyLoss, spent: PrivacyLoss) -> Release:
        job = self.job
        answer = job.mechanism.answer(outcome, job.grid)
        return Release(
            stream=job.terms.stream,
            window_open_ms=window.open_ms,
            window_close_ms=window.close_ms,
            status="refused" if outcome.reason else "released",
            reason=outcome.reason,
            kind=job.mechanism.kind,
            value=answer.value,
            sigma=answer.sigma,
            count=outcome.count,
            core_count=outcome.core_count,
            rho=loss.rho,
            delta=loss.delta,
            guarantee=job.terms.capacity.as_dict(),
            spent=spent.as_dict(),
            private=self._noise.private,
            features=answer.features,
            transform=answer.transform,
            track=outcome.track,
            parts=answer.parts,
            key=job.key,
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _settle(self, thread: int | None = None) -> None:
        """Acknowledge what a thread (this one) was given; a closed engine whose last release is settled lets go."""
        returned = self._returned.pop(thread or threading.get_ident(), None)
        if returned:
            self._ledger.acknowledge(returned)
        if self._closed and not self._returned:
            self._ledger.close()

    def read(
        self, times_ms: Any, points: Any, arrival_ms: Any, positions: Any, ids: Any, keys: Any = None
    ) -> tuple[Batch, NDArray[np.int64] | None]:
        """The rows of a push that can be read, the others as rejections, and the arrivals. Only wrong shapes raise."""
        if (ids is None) == (self._users is not None):
            unit = self.job.terms.unit
            raise ConfigError(f"{'must be given' if ids is None else 'must be left out'} with unit {unit!r}", "ids")
        now = None
        if self.job.clock == "wall":
            now = _now_ms()
        elif self.job.clock == "eof":
            arrival_ms = None
        elif arrival_ms is None:
            raise ConfigError("must be given with clock = 'broker'", "arrival_ms")
        return read_push(
            self.job.schema, times_ms, points, now if arrival_ms is None else arrival_ms, positions, ids, keys
        )

    def _report(self, rejections: list[Rejection]) -> None:
        for rejection in rejections:
            self.rejected[rejection.reason] = self.rejected.get(rejection.reason, 0) + 1
        if rejections and self._on_rejection is not None:
            self._on_rejection(sorted(rejections, key=lambda rejection: rejection.position))

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
            else:
                self._friends.add(pane, points[part])

    def _hold(
        self, rows: NDArray[np.bool_], first: NDArray[np.int64], panes: NDArray[np.int64], points: NDArray[np.float64]
    ) -> None:
        for i in np.flatnonzero(rows).tolist():
            self._held.append((int(first[i]), int(panes[i]), points[i : i + 1].copy()))

    def _enter_held(self, index: int) -> None:
        """Count the held records that are in time for window `index`."""
        due = [entry for entry in self._held if entry[0] <= index]
        self._held = [entry for entry in self._held if entry[0] > index]
        try:
            for _, pane, point in due:
                self._friends.add(pane, point)
        except BaseException:
            self.abort()  # which of them were counted is not known
            raise

    def _forget(self) -> None:
        """Drop panes that no later window covers."""
        schedule = self.job.schedule
        for pane in self._friends.panes:
            if schedule.last_window_of_pane(pane) < self._next:
                self._friends.drop(pane)
        if self._users is not None:
            self._users.forget_before(self._next)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key(release: Release) -> WindowKey:
    return WindowKey(release.window_open_ms, release.window_close_ms)
