"""Supervisor of a live stream: opens a `Session`, steps it, and starts a new one after an error."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from ..connectors.base import PartitionAssignment, Source
from ..connectors.retry import close_quietly, pauses
from ..connectors.sinks import Sink
from ..engine.engine import Engine
from ..engine.keyed import KeyedEngine
from ..errors import (
    BudgetExhausted,
    ConfigError,
    EngineClosed,
    FcstreamError,
    LedgerDamaged,
    LedgerError,
    LedgerMismatch,
    OutputClosed,
    SourceError,
)
from ..ledgers.history import utc
from ..runtime.compile_cache import compiled
from ..runtime.garbage import without_garbage_collection
from ..runtime.waiting import ExternalCalls, calling
from .alarms import LateWatch, RefusalWatch, UnusableWatch
from .context import SessionContext
from .gaps import IncompleteWindows
from .leases import LeaderSink, Lease
from .publisher import LONGEST_WAIT_S, wait
from .session import POLL_MESSAGES, Rebalanced, Session

LOG = logging.getLogger("fcstream.service")
_STAND_BY_S = 0.5
OVERDUE_S = 60.0
"""Seconds for which a window may be due, besides waits that are meant, before a stream is not ready."""
REASONS = ("clock", "clock_gap", "compiling", "overdue", "too_late", "too_late_hour")
"""Why a stream may be not ready although its steps are done."""
STATES = ("starting", "serving", "standby", "trouble")
FATAL = (BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch, OutputClosed)
"""Errors that a new try does not remove."""


OpenEngine = Callable[["Collection[str] | None"], "Engine | KeyedEngine"]
"""Opens the engine of the stream, or of some of its keys."""


class Supervisor:
    """Keeps a live stream running for months: opens a `Session`, steps it, and opens another one after an error.

    Parameters
    ----------
    open_engine, open_source, open_sink : callable
        Each makes a new one; see `OpenEngine` for the first. The engine is opened first, because nothing may be read
        that could not be charged.
    context : SessionContext
    keys : sequence of str, optional
        The keys of a stream that several processes share (``context.partition_of``).
    open_lease : callable, optional
        For a stream that several processes could serve, but only one at a time.

    Notes
    -----
    `stop` may be called from a signal handler or another thread: the present step is finished and committed.

    A source whose group gives other partitions stays open; only the engine is opened anew, for the keys that these
    partitions carry. A stream without such keys is released only by a process that has all partitions.

    Raises
    ------
    BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch, OutputClosed
        An error that a new try does not remove; every other error is waited out, with jittered pauses.
    """

    def __init__(
        self,
        open_engine: OpenEngine,
        open_source: Callable[[], Source],
        open_sink: Callable[[], Sink],
        context: SessionContext,
        keys: Sequence[str] = (),
        open_lease: Callable[[], Lease] | None = None,
    ) -> None:
        self._openers = (open_engine, open_source, open_sink)
        self._open_lease = open_lease
        self._context = context
        self._keys = keys
        # a source that stays open, and continues to spool, while the ledger or the sink is unreachable
        self._kept: Any = None
        self.counters = context.counters
        self.stopping = context.stopping
        self._ending = context.ending
        self.has_ended = False
        self.lost_dead_letters: Callable[[], int] = lambda: 0
        self.confirm: Callable[[], object] = lambda: None
        self.undo: Callable[[FcstreamError], bool] = lambda _: False
        self._health = context.health
        self._external_calls = ExternalCalls(context.ending)
        self._late = LateWatch(context.health.warn)
        self._refusals = RefusalWatch(context.health.warn)
        self._unusable = tuple(
            UnusableWatch(context.health.warn, period_s, name, fault=context.health.fault)
            for period_s, name in ((60.0, "unusable"), (3600.0, "unusable_hour"))
        )

    @property
    def trouble(self) -> str | None:
        """Why the service is not ready now; None if it is."""
        trouble = self._health.trouble
        if trouble in (None, "starting"):
            trouble = self._external_calls.trouble or trouble
        if trouble is not None or self._health.standby is not None:
            return trouble
        return next((text for _, text in self._reasons()), None)

    def _reasons(self) -> Iterator[tuple[str, str]]:
        """Yield why the stream is not ready although its steps are done, by kind, the causes first."""
        waits_for = self._context.waits_for
        if waits_for is not None:
            yield "clock" if compiled.is_set() else "compiling", waits_for
        if self._health.hold is not None:
            yield "clock_gap", self._health.hold
        yield from sorted(self._health.faults.items())
        due_ms, late_s = self.counters.due_ms, self.lag_s
        if (
            due_ms is not None
            and late_s is not None
            and min(late_s, (self._now_ms() - self.counters.excused_ms) / 1000) > OVERDUE_S
        ):
            yield (
                "overdue",
                f"windows are overdue: one should have been released at {utc(due_ms)}, {late_s:.0f} s ago: a "
                "backlog is read first, or this machine is too slow for what comes (use longer windows), or "
                "the log says what it waits for",
            )

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why it is not ready although its steps are done, by kind (`REASONS`)."""
        return {} if self._health.standby is not None else dict(self._reasons())

    @property
    def lag_s(self) -> float | None:
        """For how long the next window has been due, in seconds, by the clock that closes windows; 0 if it is not."""
        due_ms = self.counters.due_ms
        return None if due_ms is None else max(0.0, (self._now_ms() - due_ms) / 1000)

    def _now_ms(self) -> int:
        return self._context.clock() - (self._health.clock_gap_ms or 0)

    @property
    def clock_jump_ms(self) -> int | None:
        """By how much this machine's clock has jumped; 0 if it has not, None where it closes no windows."""
        return None if self._context.wall is None else self._context.wall.jump_ms

    @property
    def must_beat(self) -> bool:
        """Whether steps are expected, because the service is not waiting out an error."""
        return self._health.trouble is None

    @property
    def external_calls(self) -> ExternalCalls:
        """The external calls for which the service waits."""
        return self._external_calls

    @property
    def state(self) -> str:
        """One of `STATES`."""
        if self.is_starting:
            return "starting"
        if self.trouble is not None:
            return "trouble"
        return "serving" if self._health.standby is None else "standby"

    @property
    def standby(self) -> str | None:
        """Why another process serves the stream; None if none does."""
        return self._health.standby

    @property
    def is_starting(self) -> bool:
        """Whether the first attempt to open everything has not ended."""
        return self._health.trouble == "starting"

    @property
    def warnings(self) -> Mapping[str, str]:
        """What is wrong although the stream works, by kind."""
        return dict(self._health.warnings)

    @property
    def quarantined(self) -> int:
        """Number of messages in quarantine; exact, not private."""
        return self._context.quarantine.found

    @property
    def gaps(self) -> IncompleteWindows:
        """The messages that the broker dropped before they were read."""
        return self._context.gaps

    @property
    def clock_gap_ms(self) -> int | None:
        """How far this machine's clock is ahead of the broker's, where that is known."""
        return self._health.clock_gap_ms

    @property
    def beat(self) -> float:
        """When it last completed a step; the time stands still if the service hangs."""
        return self._health.beat

    def stop(self) -> None:
        """Finish the present step, commit, and return from `run`."""
        self.stopping.set()
        self._context.ending.set()

    def fail(self, error: BaseException) -> None:
        """Note why it ended by itself, for those who watch."""
        self._health.bad(f"ended: {_error_text(error)}")
        LOG.error("ended: %s", _error_text(error))
        if isinstance(error, FcstreamError):
            error.is_logged = True

    def renew(self) -> None:
        """Finish the present step, commit, and continue in a new session with what `open_...` make then."""
        self._context.ending.set()

    @without_garbage_collection()
    def run(self, on_step: Callable[[Supervisor], object] | None = None) -> None:
        """Run until `stop`, until the input ends, or until a schedule with an end has all its releases."""
        try:
            with self._external_calls.watched():
                try:
                    self._serve(on_step)
                finally:
                    self._close_kept()
                    self._context.quarantine.close()
        finally:
            self.has_ended = True

    def _serve(self, on_step: Callable[[Supervisor], object] | None) -> None:
        waits: Iterator[float] | None = None
        while not self.stopping.is_set():
            if self.counters.restarts:
                gc.collect()  # clients and their callbacks refer to each other, and hold threads and sockets
            try:
                for session in self._sessions():
                    if session is None:
                        self._health.beat = time.monotonic()
                    else:
                        waits = None
                        self._health.good()
                        self.confirm()
                    if on_step is not None:
                        on_step(self)
                    if session is not None and session.is_over:
                        return
                    if session is not None and session.input_has_ended:
                        LOG.info("the input has ended: the next start continues with the windows that are open")
                        self.stop()
            except FATAL as error:
                if not self.undo(error):
                    raise
            except (FcstreamError, OSError) as error:
                if self.stopping.is_set():
                    return
                self.counters.restarts += 1
                part = "ledger" if isinstance(error, LedgerError) else self._external_calls.part_of(error)
                self._health.bad(f"{part}: {_error_text(error)}" if part else _error_text(error))
                LOG.warning("starting over: %s", self.trouble)
                waits = waits or pauses()
                wait(self._kept, next(waits), self._ending)

    def _clear_ending(self) -> None:
        """Let a new session begin, unless the service stops.

        `stop` sets `stopping` before `ending`, so that a stop between these lines is noticed.
        """
        self._context.ending.clear()
        if self.stopping.is_set():
            self._context.ending.set()

    def _sessions(self) -> Iterator[Session | None]:
        """Yield the session after each of its steps, or None while there is nothing to do."""
        open_engine, open_source, open_sink = self._openers
        self._clear_ending()
        with ExitStack() as stack:
            lease = None if self._open_lease is None else self._open_lease()
            if lease is not None:
                stack.callback(close_quietly, lease.close)
                if not (yield from self._await_lease(lease)):
                    return
            engines = _SessionEngine(open_engine)
            stack.callback(close_quietly, engines.abort)
            # The engine is opened before the source, unless the group must first assign the keys.
            if self._context.partition_of is None:
                engines.open(None)
            with calling("sink"):
                sink = open_sink()
            stack.callback(self._close, "sink", sink)
            if lease is not None:
                sink = LeaderSink(sink, lease)
            with calling("source"):
                source, self._kept = self._kept or open_source(), None
            stack.push(partial(self._release_source, source))
            yield from self._assigned_sessions(engines, source, sink, lease)

    def _await_lease(self, lease: Lease) -> Generator[None, None, bool]:
        """Stand by until this process holds the lease; returns False if the stream is to end before."""
        while not self._takes_lease(lease):
            self._close_kept()
            self._stand_by("another process serves this stream")
            yield None
            if self._ending.is_set():
                return False
        if self._health.standby is not None:
            LOG.info("this process serves the stream now")
        return True

    def _assigned_sessions(
        self, engines: _SessionEngine, source: Source, sink: Sink, lease: Lease | None
    ) -> Iterator[Session | None]:
        """Yield a session for each assignment of partitions, until the stream is to end."""
        while True:
            share = yield from self._await_share(source)
            if self._ending.is_set():
                return
            assigned = None if share is None or self._context.partition_of is None else self._assigned_keys(share)
            engine = engines.open(None if assigned is None else [key for names in assigned.values() for key in names])
            try:
                yield from self._steps(Session(engine, source, sink, self._context, assigned), lease)
            except Rebalanced:
                LOG.info("partitions were reassigned: reading them again")
                self.counters.restarts += 1
                engines.abort()
            else:
                return

    def _takes_lease(self, lease: Lease) -> bool:
        with calling("ledger"):
            return lease.acquire()

    def _release_source(self, source: Source, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Close a source, unless it can continue to spool while something else is unreachable."""
        is_fine = isinstance(error, FcstreamError) and not isinstance(error, (*FATAL, SourceError))
        if is_fine and not self.stopping.is_set() and source.rewind():
            self._kept = source
        else:
            self._close("source", source)

    def _close(self, part: str, it: Any) -> None:
        with calling(part):
            close_quietly(it.close)

    def _close_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._close("source", kept)

    def _steps(self, session: Session, lease: Lease | None) -> Iterator[Session]:
        """Step one session until its end, which commits."""
        session.start()
        while not self._ending.is_set():
            if lease is not None:
                lease.check()
            seen = self.counters.seen
            session.step(LONGEST_WAIT_S)
            rejected = session.engine.drain_rejected()
            for watch in self._unusable:
                watch.note(self.counters.seen - seen, rejected)
            self.counters.rejected = added(self.counters.rejected, rejected)
            self._late.note(rejected)
            refused = session.drain_refused()
            self.counters.bodies_refused = added(self.counters.bodies_refused, refused)
            self._refusals.note(refused)
            self.counters.late_alarms = self._late.alarms
            yield session
        session.commit()
        session.engine.acknowledge()

    def _await_share(self, source: Source) -> Generator[None, None, PartitionAssignment | None]:
        """Wait until the group, if the source has one, has assigned partitions that this process can serve.

        Messages that are polled meanwhile come again with the next assignment.
        """
        while source.is_grouped and not self._ending.is_set():
            share = source.share
            why = None if share is None else self._why_unusable(share)
            if share is None:
                self._ending.wait(0.02)
            elif why is None:
                return share
            else:
                self._stand_by(why)
            yield None
            with calling("source"):
                # One call is enough: it never returns messages of an assignment that is new to it.
                source.poll(POLL_MESSAGES, 0)
        return None

    def _why_unusable(self, share: PartitionAssignment) -> str | None:
        """Return why this process cannot serve the stream with the partitions that it was assigned; None if it can."""
        if self._context.partition_of is not None:
            has_keys = any(self._assigned_keys(share).values())
            return None if has_keys else "no key comes by the partitions that the group gave"
        if len(share.mine) == share.total:
            return None
        return (
            "other members of the group have partitions of this stream (to share it, give `stream.keys` and "
            "`source.partitioner`)"
        )

    def _assigned_keys(self, share: PartitionAssignment) -> dict[str, list[str]]:
        partition_of = self._context.partition_of
        assert partition_of is not None
        if share.topics > 1:
            raise ConfigError(
                "must be left out with several topics: a key has its partition in one", "source.partitioner"
            )
        found: dict[str, list[str]] = {name: [] for name in share.mine.values()}
        for key in self._keys:
            name = share.mine.get(partition_of(key, share.total))
            if name is not None:
                found[name].append(key)
        return found

    def _stand_by(self, why: str) -> None:
        self._health.stand_by(why)
        self.counters.last_close_ms = self.counters.due_ms = None  # these are reported by the other process
        self._ending.wait(_STAND_BY_S)


class _SessionEngine:
    """The engine of a session, which is replaced when the group assigns other partitions."""

    def __init__(self, open_engine: OpenEngine) -> None:
        self._open = open_engine
        self._engine: Engine | KeyedEngine | None = None

    def open(self, keys: Collection[str] | None) -> Engine | KeyedEngine:
        """Return the engine; opens it for some keys (None: for the whole stream) if none is open."""
        if self._engine is None:
            self._engine = self._open(keys)
        return self._engine

    def abort(self) -> None:
        """Close the engine, if one is open."""
        if self._engine is not None:
            self._engine.abort()
            self._engine = None


def now_ms() -> int:
    """Return the system clock's time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def _error_text(error: BaseException) -> str:
    """Return an error's text for a log: errors of this package hold no record's content; of others only the class is
    shown.
    """
    if isinstance(error, EngineClosed):
        return "the engine was closed by an earlier error"
    return (
        str(error) if isinstance(error, FcstreamError) else f"{type(error).__name__}: {getattr(error, 'strerror', '')}"
    )


def added(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    """Add counts by name."""
    return {name: one.get(name, 0) + two.get(name, 0) for name in one.keys() | two.keys()}
