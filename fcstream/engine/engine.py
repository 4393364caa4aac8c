"""Engine: reads, counts, closes, charges, releases, seals and publishes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..accounting.losses import PrivacyLoss
from ..config import Config
from ..errors import ConfigError, EngineClosed
from ..formats.batch import Batch
from ..formats.rows import read_moment
from ..ledgers import ChargeResult, Ledger, RecentLedger, SealedRelease, WindowKey, open_ledger
from ..ledgers.base import TOTAL_BLOCK
from ..noise.samplers import Noise
from ..releases.base import Release, from_lines
from ..runtime.undo import on_error
from ..runtime.wall_clock import WallClock
from ..stream.admission import admit
from .closing import AskedWindows, DrawnWindows, WindowCloser
from .exhaustion import Exhaustion
from .first_records import FirstRecords
from .intake import FloatTypes, OnRejection, Rejections, clock_of, closing_moment, closing_time, compared, read_pushed
from .outbox import Outbox
from .progress import Progress, warn_of_loss
from .records import CounterFactory, OpenRecords, default_counters

MAX_WINDOWS_AT_ONCE = 1000
"""Number of windows after which one call of `Engine.advance` or `push` leaves the others to the next call."""


class Engine:
    """Private releases per window, for use inside another process.

    Parameters
    ----------
    config : Config or mapping
        The same keys as the configuration file; `Engine.from_config` reads one.
    key : str, optional
        For a configuration with ``stream.keys``: the key whose stream this engine releases. `KeyedEngine` releases
        all of them.
    ledger : Ledger, optional
        An open ledger; by default the one of ``[ledger] url``.
    noise : Noise, optional
        Exact noise from the operating system by default.
    on_rejection : callable, optional
        Gets every rejected record as a sequence of `Rejection` (reason, position, field). Without it they are counted
        in `rejected`, and the log has a warning for each new reason.
    stores : callable, optional
        Makes the counters, if records are counted elsewhere and not pushed here. See
        `CounterFactory`.
    first_window : int, optional
        Index of the first window, where other streams decide it.
    clock : WallClock, optional
        With clock ``wall`` what tells the time; by default this machine's clock, whose jumps `clock.hold` tells.

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
    inside it if it ends without an error, and closes the ledger; it closes no window by itself.

    Privacy
    -------
    Protects one record (unit ``event``), all records of one user (``user``), or any set of records with at most one in
    each window (``stream``, a plain sum over windows), added or removed. Each release costs ``[release] rho, delta`` on
    every block it covers. This is charged durably before any noise is drawn, and the ledger's privacy filters
    keep every block within ``[budget]`` for ever. Not covered: run time, memory, counters of rejected records, and,
    with clock ``wall``, the moment of publication if windows are closed by `push`: `advance` on a timer avoids that.

    Source
    ------
    Specification 8.3, 8.4; proofs 2.3, 2.4, 2.9.
    """

    _begins_with_others = False

    def __init__(
        self,
        config: Config | Mapping[str, Any],
        *,
        key: str | None = None,
        ledger: Ledger | None = None,
        noise: Noise | None = None,
        on_rejection: OnRejection | None = None,
        stores: CounterFactory = default_counters,
        first_window: int | None = None,
        clock: WallClock | None = None,
    ) -> None:
        self.config = config if isinstance(config, Config) else Config.from_mapping(config)
        job = self.job = self.config.job.for_key(key)
        noise = noise or Noise()
        self.rejections = Rejections(job.terms.stream, on_rejection)
        self._types: FloatTypes = {}
        if ledger is None and self.config.ledger is None:
            raise ConfigError(
                "is required: it keeps the guarantee across runs ('memory:' forgets at exit)", "ledger.url"
            )
        if job.keys_chosen is not None and not getattr(ledger, "is_joint", False):
            raise ConfigError("must be 'divided': with 'shared' a `KeyedEngine` answers all keys", "stream.key_budgets")
        self._ledger = ledger or open_ledger(self.config.ledger.url, job.terms)  # type: ignore[union-attr]
        if self._ledger.terms != job.terms:
            raise ConfigError("the ledger given was opened for other terms", "ledger")
        sealed = self._ledger.last_sealed()
        last = [] if sealed is None else from_lines(sealed[1])
        self._progress = Progress(job, self._ledger, None if sealed is None else sealed[0], first_window)
        self._outbox = Outbox(self._ledger)
        self._closer = WindowCloser(job, self._ledger, noise, last, self._outbox)
        counter, users = stores(job, self._closer.next_answers, noise)
        self._records = OpenRecords(job, self._ledger, counter, users, noise)
        self.first_records = FirstRecords(job)
        self._lock = threading.RLock()
        self._closed = False
        self.clock = clock_of(job, clock)
        if self.clock is not None and not self._begins_with_others:
            self.begin(compared(self.clock, job, self.parts))

    @classmethod
    def from_config(cls, path: str | Path, **options: Any) -> Engine:
        """Make an engine for a configuration file; options as in the class."""
        return cls(Config.load(path), **options)

    @property
    def guarantee(self) -> PrivacyLoss:
        """What one unit can lose for ever, under all keys; one may spend `job.terms.key_share` of it, if not None."""
        return self.job.terms.guarantee

    @property
    def spent(self) -> PrivacyLoss:
        """What the most charged block has spent."""
        with self._lock:
            return self._ledger.spent()

    @property
    def spent_total(self) -> PrivacyLoss:
        """What all windows together have spent of `[budget] total_rho`; None if that is not set."""
        with self._lock:
            return self._ledger.spent(TOTAL_BLOCK)

    @property
    def answered(self) -> int:
        """Number of windows that had a release before this engine started."""
        return self._progress.answered_before

    @property
    def next_open_ms(self) -> int:
        """Opening of the first window without a release."""
        return self._progress.next_open_ms

    @property
    def next_index(self) -> int:
        """Index of the first window without a release."""
        return self._progress.next

    def users(self, index: int) -> NDArray[np.bytes_]:
        """Return the hashed names of a window's users, ascending, with the unit ``user``; private."""
        found = self._records.users(index)
        assert found is not None
        return found.keys

    @property
    def replayed(self) -> int:
        """Number of records in windows that had a release before this engine started. For the operator only."""
        return self._progress.replayed

    def windows_due(self, now_ms: int) -> int:
        """Count the windows that are due at a public time and have no release yet."""
        return max(0, self.job.schedule.due(now_ms) - self._progress.next)

    @property
    def parts(self) -> tuple[Engine, ...]:
        """This engine, as the only one; `KeyedEngine` has one for each key."""
        return (self,)

    def knows(self, release: Release) -> bool:
        """Return whether a release is of another stream, or of a window that has one."""
        return release.stream != self.job.terms.stream or self.has_sealed(release.window_open_ms)

    def has_sealed(self, open_ms: int) -> bool:
        """Return whether a window has its release, which another process may have sealed since this engine started."""
        return self._progress.has_sealed(open_ms)

    @property
    def replay_from(self) -> int:
        """The event time, in Unix milliseconds, from which on records must be pushed again after a restart.

        It is the opening of the first window without a release. Earlier records lie in windows that have theirs;
        pushing them again changes nothing.
        """
        return self.next_open_ms

    @property
    def rejected(self) -> dict[str, int]:
        """Number of rejected records by reason. Exact, so not private: for the operator only."""
        return self.rejections.counts

    def drain_rejected(self) -> dict[str, int]:
        """Return `rejected`, and set it back to nothing."""
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
            polars, a table of Arrow) or a list of mappings has everything in columns or fields named as configured,
            times in `stream.time_unit` or as moments; then only `arrival_ms` and `positions` may be given too.
        points : array or data frame (n, d)
            Raw features in the configuration's order and units, if there are any; NaN says that an optional one is
            missing. A whole number is the level of a category with that text; in arrays and lists, if none of the
            levels is a whole number's text, it is the level's place, counted from 0.
        ids : sequence of str or int (n,), optional
            The user of each record: required with the unit ``user``, else refused. From 2**53 on, pandas must hold
            them as integers or text, not as floats.
        arrival_ms : int or int array (n,), optional
            Arrival times: required with clock ``broker``, now by default with ``wall``, ignored with ``eof``.
        positions : int array (n,), optional
            Identity of a record in its source; a second one is a `duplicate`. Left out, each row is its own record.

        Raises
        ------
        ConfigError
            Wrong shapes. Single bad rows are rejected instead, see `on_rejection`.
        EngineClosed, LedgerError
        """
        with self._lock:
            given = times_ms, points, arrival_ms, positions, ids, None, self._types, self.clock
            batch, arrivals = read_pushed(self.job, *given)
            self.take(batch, arrivals, identified=positions is not None)
            self.rejections.warn()
            return self.tick()

    def begin(self, now_ms: int) -> None:
        """Fix the first window of a live stream, and skip the windows before it for ever; later calls change nothing.

        The first window is the one that was open when the engine was made, by this machine's clock, or at the public
        time `now_ms` if that is earlier; with ``window.backlog`` it is the one that was open so long before. It is kept
        in the ledger. With clock ``wall`` the engine calls this itself, with ``broker`` the first `advance` does. To
        replay records of the past, begin in the past or set a backlog: the arrival of a record must not decide where
        releases begin.
        """
        with self._lock:
            proposed = self.propose(read_moment(now_ms, "now_ms"))
            if proposed is not None:
                self.fix(self._ledger.keep_setting(*proposed))

    def tick(self) -> list[Release]:
        """Do what `push` does without records: acknowledge, and with clock ``wall`` close what is due."""
        with self._lock:
            self._acknowledge_and_close(closing_time(self.clock))
            return self._outbox.take()

    def take(self, batch: Batch, arrivals: NDArray[np.int64] | None = None, *, identified: bool = False) -> None:
        """Add one batch of decoded records and report its rejections; for runners and sources.

        Parameters
        ----------
        batch : Batch
        arrivals : int64 (n,), optional
            Arrival time of each row of the batch; None with clock ``eof``.
        identified : bool
            Refuse positions that were seen before. Not needed for sources that never repeat a position.

        Notes
        -----
        If the rejection callback raises, nothing of the batch was taken. If counting itself fails, the engine closes:
        what of the batch was counted is not known, and counting a record twice would break the guarantee.
        """
        with self._lock:
            self._check_open()
            if (batch.users is not None) != (self.job.terms.unit == "user"):
                raise ConfigError(f"does not suit the unit {self.job.terms.unit!r}: it has no users, or some", "batch")
            self.first_records.see(batch)
            found = admit(self.job, batch, arrivals, self._records.duplicates(batch) if identified else None)
            rows = self._progress.open_rows(batch, found)
            self.rejections.add(found.rejections)
            try:
                self._records.add(batch, found, rows, self._progress.next, identified=identified)
            finally:
                self._abort_if_broken()

    def take_counted(self, groups: Sequence[tuple[int, NDArray[np.float64], dict[str, NDArray[np.object_]]]]) -> None:
        """Add records that were found to be fine and in time, see `routing`; for `KeyedEngine`."""
        with self._lock:
            if self._closed or self._records.is_broken:
                self._check_open()
            self._progress.note_counted(groups)
            try:
                self._records.add_counted(groups)
            except BaseException:
                self._abort_if_broken()
                raise

    # -- out ---------------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int | None = None) -> list[Release]:
        """Close every window whose close + lateness lies before the public time `now_ms`; returns their releases.

        With clock ``wall`` this machine's clock by default, and nothing is closed while `clock.hold` says why. By this
        call the caller states that no record that arrived before `now_ms` is still to come. The first call for a new
        stream fixes its first window, see `begin`. After a pause a call closes about `MAX_WINDOWS_AT_ONCE` windows:
        call again while `windows_due` is not 0. With clock ``eof`` nothing happens.
        """
        with self._lock:
            now = closing_moment(self.job, self.clock, now_ms)
            if now is not None and not self._closed:
                self.begin(now)
            self._acknowledge_and_close(now)
            return self._outbox.take()

    def closing(self, now_ms: int | None = None) -> Iterator[list[Release]]:
        """Close what is due at `now_ms` (None: all of a schedule with an end), and yield one group of releases each."""
        if now_ms is not None:
            self.begin(now_ms)
        self.first_records.check()
        while True:
            with self._lock:
                closed = self._close_next(now_ms)
                group = self._outbox.take()
            if group:
                yield group
            if not closed:
                return

    def close_next(self, now_ms: int | None, until: int | None = None) -> bool:
        """Close the next window that is due at `now_ms` (None: of a schedule with an end) and lies before the window
        `until`, and keep its release for `collect`; False if there is none.
        """
        with self._lock:
            return self._close_next(now_ms, until)

    # The steps of `begin` and `close_next`, for engines whose ledger takes calls for several streams at once. The
    # caller holds the lock of each engine from the first step to the last.

    @property
    def lock(self) -> threading.RLock:
        """Held by each method while it runs."""
        return self._lock

    @property
    def exhaustion(self) -> Exhaustion:
        """Whether the budget is used up."""
        return self._closer.exhaustion

    @property
    def ledger(self) -> Ledger:
        """Where it is kept what was charged and released."""
        return self._ledger

    def propose(self, now_ms: int) -> tuple[str, str] | None:
        """Return the setting of the ledger, name and value, that fixes the first window; None if it is fixed."""
        self._check_open()
        return self._progress.propose(now_ms)

    def fix(self, kept: str) -> None:
        """Begin with the window that the ledger keeps as the first one."""
        self.rejections.count("time_out_of_range", self._progress.fix(kept))
        self._records.forget_before(self._progress.next)

    def ask(
        self, now_ms: int | None, until: int | None = None, most: int | None = None, other: AskedWindows | None = None
    ) -> AskedWindows | None:
        """Return the next windows that are due (see `close_next`), `most` at most, and what they ask of the ledger;
        None if there are none. `other` is what the engine of another key has returned to the same question.
        """
        if self._closed or self._records.is_broken:
            self._check_open()
        if other is not None and other.windows[0].index == self._progress.next and self._closer.asks_as(other):
            windows = other.windows
        else:
            other, bounds = None, [self._closer.group]
            bounds += [until - self._progress.next] if until is not None else []
            bounds += [most] if most is not None else []
            windows = self._progress.windows_due(now_ms, min(bounds))
        if not windows:
            return None
        try:
            if self._records.has_late:
                self._records.add_late(windows[0].index)
            return other or self._closer.ask(windows, self._records)
        finally:
            self._abort_if_broken()

    def draw(self, asked: AskedWindows, results: Sequence[ChargeResult]) -> tuple[DrawnWindows, list[SealedRelease]]:
        """Make the releases of windows after the ledger's answer, which must be durable; also returns what to seal."""
        try:
            with on_error(self._closer.forget):
                drawn = self._closer.draw(asked, results, self._records)
                return drawn, self._outbox.prepare(drawn.closed)
        finally:
            self._abort_if_broken()

    def follow(self, asked: AskedWindows, drawn: DrawnWindows) -> None:
        """Leave windows behind whose releases are sealed, and keep these for `collect`."""
        self._outbox.keep()
        self._closer.follow(asked, drawn)
        self._go_on(asked)

    def forget(self) -> None:
        """Try drawn windows again that could not be sealed."""
        self._closer.forget()

    def published(self) -> list[WindowKey]:
        """Return the windows whose releases this thread has published, for the caller to acknowledge and to forget."""
        return self._outbox.published()

    def forget_published(self) -> None:
        """Forget the releases that this thread has published, once they are acknowledged."""
        self._outbox.forget_published()

    def leave_if_settled(self) -> None:
        """Close the ledger of an engine that was closed, once nothing is left to acknowledge."""
        if self._closed and self._outbox.is_settled:
            self._ledger.close()

    def skip_to(self, index: int) -> None:
        """Leave out the windows before this one that have no release: they never have one."""
        with self._lock:
            self._progress.skip_to(index)
            self._records.forget_before(self._progress.next)

    def collect(self) -> list[Release]:
        """Return what was closed and not returned yet."""
        with self._lock:
            return self._outbox.take()

    def unpublished(self) -> list[Release]:
        """Return what was sealed before a crash and may not have been published, to be published at the start."""
        with self._lock:
            return self._outbox.unpublished()

    def recent(self, windows: int) -> list[Release]:
        """Return the releases of the latest windows that are sealed, at most so many, in order of their opening.

        A ledger of another package that cannot tell them has none.
        """
        with self._lock:
            found = self._ledger.latest_sealed(windows) if isinstance(self._ledger, RecentLedger) else []
            return [release for _, body in found for release in from_lines(body)]

    def requeue(self, releases: list[Release]) -> None:
        """Return again, with the next call, what this thread was just returned and could not publish."""
        with self._lock:
            self._outbox.requeue(releases)

    def requeue_returned(self) -> None:
        """Return again, with the next call, all that was returned to this thread and is not acknowledged."""
        with self._lock:
            self._outbox.requeue_returned()

    def acknowledge(self) -> None:
        """Note that all releases returned to this thread are published. `push`, `advance` and `close` do the same."""
        with self._lock:
            self._acknowledge_returned()

    def close(self) -> list[Release]:
        """End the stream. With clock ``eof`` this closes every window; returns the last releases.

        They count as published when `acknowledge` is called or the ``with`` block ends without an error. With other
        clocks windows that are not over stay open for the next engine and their records are lost; if there are any,
        the log has a warning, for the operator only.

        Raises
        ------
        UnusableRecords
            With clock ``eof``, if records were pushed and none of the first 1,000 can be used: no window is closed,
            and nothing is charged.
        """
        with self._lock:
            if not self._closed:
                self._acknowledge_returned()
                if self.job.clock == "eof":
                    self.first_records.check(self.abort)
                    while self._close_next(None):
                        pass
                elif self.has_records:  # it is not told how many are lost, or when they were measured
                    warn_of_loss(self.job.terms.stream, self.replay_from)
            return self.leave()

    def leave(self) -> list[Release]:
        """End this engine without closing a window; returns the last releases, see `close`."""
        with self._lock:
            self._closed = True
            releases = self._outbox.take()
            if self._outbox.is_settled:
                self._ledger.close()
            return releases

    @property
    def is_closed(self) -> bool:
        """Whether no window will be closed any more."""
        return self._closed

    @property
    def is_settled(self) -> bool:
        """Whether all releases were returned and are acknowledged."""
        return self._outbox.is_settled

    @property
    def has_unpublished(self) -> bool:
        """Whether the ledger holds releases that are not acknowledged."""
        with self._lock:
            return bool(self._ledger.unacknowledged())

    @property
    def has_records(self) -> bool:
        """Whether records of open windows are kept; private."""
        return not self._records.is_empty

    def abort(self) -> None:
        """Close the ledger without closing a window; records of open windows are lost, charges stay."""
        with self._lock:
            self._closed = True
            self._outbox.forget()
            self._ledger.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._outbox.acknowledge_all()
        finally:
            self.abort()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _close_next(self, now_ms: int | None, until: int | None = None, *, acknowledging: bool = False) -> bool:
        """Close the next group of windows that are due; False if there are none. See `Outbox.charge`."""
        asked = self.ask(now_ms, until)
        if asked is None:
            return False
        try:
            self._closer.close(asked, self._records, acknowledging=acknowledging)
        finally:
            self._abort_if_broken()
        self._go_on(asked)
        return True

    def _go_on(self, asked: AskedWindows) -> None:
        """Leave closed windows behind."""
        self._progress.next = asked.windows[-1].index + 1
        self._records.forget_before(self._progress.next)

    def _acknowledge_and_close(self, now_ms: int | None) -> None:
        """Acknowledge what was returned to this thread, and close what is due at a time, if one is given."""
        first = self._progress.next
        if now_ms is None or self._closed or not self._close_next(now_ms, acknowledging=True):
            self._acknowledge_returned()
        while now_ms is not None and self._progress.next - first < MAX_WINDOWS_AT_ONCE and self._close_next(now_ms):
            pass

    def _abort_if_broken(self) -> None:
        """Close the engine if counting has failed; after other errors it can go on."""
        if self._records.is_broken:
            self.abort()

    def _check_open(self) -> None:
        self._abort_if_broken()  # an interrupt may have come before it
        if self._closed:
            raise EngineClosed("the engine is closed", remedy="make a new one to go on")

    def _acknowledge_returned(self) -> None:
        """Acknowledge what was returned to this thread; a closed engine then closes its ledger once nothing is left."""
        self._outbox.acknowledge()
        self.leave_if_settled()
