"""A stream that never ends: read a broker, close windows on time, publish, commit; start over when something breaks.

Everything that must not be lost is in the broker (records, until their windows are sealed), the ledger (charges and
sealed releases) or the spool. What is here may be dropped at any moment and is built again by reading.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .connectors.retry import close_quietly, pauses
from .engine import Engine
from .errors import (
    BudgetExhausted,
    ConfigError,
    EngineClosed,
    FcstreamError,
    LedgerDamaged,
    LedgerMismatch,
    SinkError,
)
from .keyed import KeyedEngine
from .payloads import read_messages
from .runner import refuse_strange_sink

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .connectors.base import Chunk, LiveSource, Share
    from .records import Batch, LineDecoder
    from .releases.base import Release
    from .sinks import Sink

LOG = logging.getLogger("fcstream.live")
WINDOWS = logging.getLogger("fcstream.windows")
POLL_MESSAGES = 4096
_LONGEST_WAIT_S = 0.25
_COMMIT_EVERY_S = 1.0
_STAND_BY_S = 0.5
FATAL = (BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch)
"""Errors that trying again does not mend."""


@dataclass(slots=True)
class Counters:
    """What a service has done since it started. Numbers of messages and records are exact, so not private."""

    messages: int = 0
    records: int = 0
    duplicates: int = 0
    released: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    last_close_ms: int = 0
    rejected: dict[str, int] = field(default_factory=dict)

    def add(self, releases: list[Release]) -> None:
        for release in releases:
            if release.reason is None:
                self.released += 1
            else:
                self.refused[release.reason] = self.refused.get(release.reason, 0) + 1
            self.last_close_ms = max(self.last_close_ms, release.window_close_ms)


class _Progress:
    """Up to where one partition may be committed: before the first message that holds a record of an open window."""

    def __init__(self) -> None:
        # (First offset of a chunk, last window it has records of), both ascending: a chunk of no later window than an
        # earlier chunk's holds up nothing that the earlier one does not, so only as many wait as windows are open.
        self._waiting: deque[tuple[int, int]] = deque()
        self._next = -1

    def fresh(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which messages were not counted before: sources give a partition in order, so one number tells."""
        return offsets >= self._next

    def took(self, offsets: NDArray[np.int64], last_window: int) -> None:
        """Messages were counted; none of their records lies in a window after `last_window`."""
        if not self._waiting or last_window > self._waiting[-1][1]:
            self._waiting.append((int(offsets[0]), last_window))
        self._next = max(self._next, int(offsets[-1]) + 1)

    def safe(self, open_window: int) -> int | None:
        """The offset to commit when all windows before `open_window` are sealed; None: nothing was read yet."""
        while self._waiting and self._waiting[0][1] < open_window:
            self._waiting.popleft()
        if self._waiting:
            return self._waiting[0][0]
        return self._next if self._next >= 0 else None


@dataclass(slots=True)
class Health:
    """Whether a service is served now, and when it last went round (`time.monotonic`)."""

    trouble: str | None = "starting"
    beat: float = field(default_factory=time.monotonic)

    def good(self) -> None:
        self.trouble, self.beat = None, time.monotonic()

    def bad(self, trouble: str) -> None:
        self.trouble, self.beat = trouble, time.monotonic()


@dataclass(frozen=True, slots=True)
class Setting:
    """What outlives a session.

    Attributes
    ----------
    decoder : LineDecoder
    clock : callable
        Public time in Unix milliseconds.
    place : callable or None
        Of streams whose parts several processes share: (key, number of partitions) -> the partition that it comes by.
    counters : Counters
    stopping : threading.Event
    ending : threading.Event
        The session under way is to end: the service stops, or another session is to begin.
    health : Health
    """

    decoder: LineDecoder
    clock: Callable[[], int]
    place: Callable[[str, int], int] | None = None
    counters: Counters = field(default_factory=Counters)
    stopping: threading.Event = field(default_factory=threading.Event)
    ending: threading.Event = field(default_factory=threading.Event)
    health: Health = field(default_factory=Health)


class Publisher:
    """Brings releases to the sink: what an earlier life has left over, then one group after the other."""

    def __init__(self, engine: Engine | KeyedEngine, sink: Sink, setting: Setting) -> None:
        self._engine, self._sink, self._setting = engine, sink, setting

    def left_over(self) -> None:
        """Publish what was sealed and may not have been published."""
        refuse_strange_sink(self._engine, self._sink)
        sealed = self._engine.unpublished()
        self._write(self._sink.missing(sealed))
        self._written(sealed)

    def close_due(self, now_ms: int) -> None:
        """Answer and publish every window that is over; stops between two groups when the session is to end."""
        for group in self._engine.closing(now_ms):
            self._write(group)
            self._written(group)
            self._setting.health.beat = time.monotonic()
            if self._setting.ending.is_set():
                return

    def _written(self, releases: list[Release]) -> None:
        """The sink has them."""
        self._engine.acknowledge()
        self._setting.counters.add(releases)
        for release in releases:
            about = {"window": release.window_open_ms, "status": release.status, "reason": release.reason}
            WINDOWS.info("window answered", extra=about)

    def _write(self, releases: list[Release]) -> None:
        """Write until the sink has them; nothing is read meanwhile, so memory stays bounded."""
        if not releases:
            return
        waits, told = pauses(), False
        while True:
            try:
                self._sink.write(releases)
                return
            except SinkError as error:
                if not told:
                    LOG.warning("the sink refuses: %s", error, extra={"window": releases[0].window_open_ms})
                    told = True
                self._setting.health.bad(str(error))
                if self._setting.ending.wait(next(waits)):
                    raise


class Session:
    """One life of a live stream: from opening everything to the first thing that breaks.

    Parameters
    ----------
    engine : Engine or KeyedEngine
    source : LiveSource
    sink : Sink
    setting : Setting
    places : mapping of str to collection of str, optional
        Which keys come by each partition; None: any by all.

    Raises
    ------
    ConfigError
        Clock ``wall`` with a source whose receipt times do not survive a restart, or clock ``eof``.
    """

    def __init__(
        self,
        engine: Engine | KeyedEngine,
        source: LiveSource,
        sink: Sink,
        setting: Setting,
        places: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        kind = engine.job.clock
        if kind == "eof":
            raise ConfigError("must be 'broker' (or 'wall', with a spool) for live sources, got 'eof'", "window.clock")
        if kind == "wall" and not source.receipt_is_durable:
            raise ConfigError(
                "must be 'broker' for this source: its receipt times do not survive a restart, and a replay would make "
                "records late",
                "window.clock",
            )
        self.engine = engine
        self._source = source
        self._publisher = Publisher(engine, sink, setting)
        self._decoder = setting.decoder
        self._counters = setting.counters
        self._clock = setting.clock
        self._setting = setting
        self._places = places
        self._progress: dict[str, _Progress] = {}
        self._generation = source.generation
        self._committed: dict[str, int] = {}
        self._commit_at = 0.0

    def start(self) -> None:
        """Publish what an earlier life sealed and may not have published."""
        self._publisher.left_over()

    def step(self, wait_s: float) -> None:
        """Read once, for `wait_s` at most; close and publish what is due; commit."""
        schedule = self.engine.job.schedule
        due = schedule.due(self._clock())
        if due <= self._next_window:
            wait_ms = self.engine.job.schedule.window(self._next_window).close_ms + schedule.lateness_ms - self._clock()
            self._read(min(wait_s, max(0.0, wait_ms / 1000)))
            due = schedule.due(self._clock())
        if due > self._next_window:
            self._close()
        if time.monotonic() >= self._commit_at:
            self.commit()

    @property
    def is_over(self) -> bool:
        """Whether a schedule with an end is answered whole."""
        count = self.engine.job.schedule.count
        return count is not None and self._next_window >= count

    def commit(self) -> None:
        """Tell the source from where a restart must read."""
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        positions = {}
        for partition, progress in self._progress.items():
            safe = progress.safe(self._next_window)
            if safe is not None and safe > self._committed.get(partition, -1):
                positions[partition] = safe
        if positions:
            self._source.commit(positions)
            self._committed |= positions

    @property
    def _next_window(self) -> int:
        schedule = self.engine.job.schedule
        return schedule.index_after(self.engine.next_open_ms) - 1

    def _read(self, wait_s: float) -> None:
        self._must_be_ours()  # a commit may have told: what is polled now would be gone with this session
        for chunk in self._source.poll(POLL_MESSAGES, wait_s):
            self._take(chunk)
        self._must_be_ours()

    def _must_be_ours(self) -> None:
        if self._source.generation != self._generation:
            raise _Rebalanced

    def _take(self, chunk: Chunk) -> None:
        """Count the messages of a chunk that were not counted before."""
        progress = self._progress.setdefault(chunk.partition, _Progress())
        fresh = progress.fresh(chunk.offsets)
        offsets, stamps, bodies = chunk.offsets, chunk.stamps_ms, chunk.bodies
        self._counters.messages += len(offsets)
        if not fresh.all():
            self._counters.duplicates += int(np.count_nonzero(~fresh))
            offsets, stamps = offsets[fresh], stamps[fresh]
            bodies = [body for body, new in zip(bodies, fresh.tolist(), strict=True) if new]
        if len(offsets) == 0:
            return
        batch, arrivals = read_messages(self._decoder, offsets, stamps, bodies)
        last = self._last_window(batch, arrivals)
        self._counters.records += len(batch.times_ms)
        if isinstance(self.engine, KeyedEngine) and self._places is not None:
            self.engine.take(batch, arrivals, places=self._places.get(chunk.partition, ()))
        else:
            self.engine.take(batch, arrivals)
        progress.took(offsets, last)

    def _last_window(self, batch: Batch, arrivals: NDArray[np.int64]) -> int:
        """The last window that any record may lie in (records ahead of their arrival are rejected, so do not count)."""
        job = self.engine.job
        fine = batch.times_ms <= arrivals + job.ahead_ms
        if not fine.any():
            return -1
        return int(job.schedule.locate(batch.times_ms[fine])[2].max())

    def _close(self) -> None:
        """Read up to where the broker stands now, then answer every window that was over before it was asked."""
        now = self._clock()
        ends = self._source.ends()
        self._must_be_ours()
        while self._source.behind(ends):
            if self._setting.ending.is_set():
                return  # a backlog may take hours; nothing is charged yet
            self._read(_LONGEST_WAIT_S)
            self._setting.health.beat = time.monotonic()
        self._publisher.close_due(now)


class _Rebalanced(FcstreamError):
    """Partitions were taken away or given: what was counted of them is counted anew."""

    def __init__(self) -> None:
        super().__init__("partitions were reassigned")


OpenEngine = Callable[["Collection[str] | None"], "Engine | KeyedEngine"]
"""Opens what answers the stream, or some keys of it."""


class Lead(Protocol):
    """One process at a time answers a stream."""

    def take(self) -> bool:
        """Whether it is this one from now on."""

    def check(self) -> None:
        """Raise `LedgerError` if it is not any more; asked often, so it may answer from memory for some seconds."""

    def close(self) -> None:
        """Let another one take it. Idempotent."""


class Service:
    """Keeps a live stream going, for months: opens a `Session`, steps it, and opens another when one breaks.

    Parameters
    ----------
    open_engine, open_source, open_sink : callable
        Make each anew; see `OpenEngine` for the first. Nothing is read that could not be charged.
    setting : Setting
    keys : sequence of str, optional
        Of a stream whose parts several processes share (``setting.place``).
    open_lead : callable, optional
        For a stream that several processes could answer, but must not at once.

    Notes
    -----
    `stop` may be called from a signal handler or another thread: the step under way is finished and committed.

    A source whose group gives other partitions stays open; what counts and charges is made anew for the keys that come
    by them. A stream without such keys is answered only by a process that has all partitions.

    Raises
    ------
    BudgetExhausted, ConfigError, LedgerDamaged, LedgerMismatch
        What trying again does not mend; every other error is waited out, with jittered pauses.
    """

    def __init__(
        self,
        open_engine: OpenEngine,
        open_source: Callable[[], LiveSource],
        open_sink: Callable[[], Sink],
        setting: Setting,
        keys: Sequence[str] = (),
        open_lead: Callable[[], Lead] | None = None,
    ) -> None:
        self._opens = (open_engine, open_source, open_sink)
        self._open_lead = open_lead
        self._setting = setting
        self._keys = keys
        self.counters = setting.counters
        self.stopping = setting.stopping
        self._ending = setting.ending
        self._health = setting.health

    @property
    def trouble(self) -> str | None:
        """Why the service is not ready now; None if it is."""
        return self._health.trouble

    @property
    def beat(self) -> float:
        """When it last went round; a service that hangs falls behind."""
        return self._health.beat

    def stop(self) -> None:
        """Finish the step under way, commit, and return from `run`."""
        self.stopping.set()
        self._setting.ending.set()

    def give_up(self, error: BaseException) -> None:
        """Say why it ended by itself, for those who watch."""
        self._health.bad(f"ended: {_what(error)}")
        LOG.error("ended: %s", _what(error))

    def renew(self) -> None:
        """Finish the step under way, commit, and go on in a new session: with what `open_...` make then."""
        self._setting.ending.set()

    def run(self, on_step: Callable[[Service], object] | None = None) -> None:
        """Serve until `stop`, or until a schedule with an end is answered whole."""
        waits: Iterator[float] | None = None
        while not self.stopping.is_set():
            try:
                for session in self._sessions():
                    if session is None:
                        self._health.beat = time.monotonic()
                    else:
                        waits = None
                        self._health.good()
                    if on_step is not None:
                        on_step(self)
                    if session is not None and session.is_over:
                        return
            except FATAL:
                raise
            except (FcstreamError, OSError) as error:
                if self.stopping.is_set():
                    return
                self.counters.restarts += 1
                self._health.bad(_what(error))
                LOG.warning("starting over: %s", self.trouble)
                waits = waits or pauses()
                self._setting.ending.wait(next(waits))

    def _begin(self) -> None:
        """What was to end has ended. One who stops sets `stopping` first, so nothing is forgotten between the lines."""
        self._setting.ending.clear()
        if self.stopping.is_set():
            self._setting.ending.set()

    def _sessions(self) -> Iterator[Session | None]:
        """The session, again after each of its steps, or None while there is nothing to do."""
        open_engine, open_source, open_sink = self._opens
        self._begin()
        with ExitStack() as stack:
            lead = None if self._open_lead is None else self._open_lead()
            if lead is not None:
                stack.callback(close_quietly, lead.close)
                while not lead.take():
                    self._stand_by("another process answers this stream; standing by")
                    yield None
                    if self._ending.is_set():
                        return
            # What charges before what reads, unless the group must say first what there is to charge for.
            engine = open_engine(None) if self._setting.place is None else None
            stack.callback(lambda: close_quietly(*([] if engine is None else [engine.abort])))
            sink = open_sink()
            stack.callback(close_quietly, sink.close)
            source = open_source()
            stack.callback(close_quietly, source.close)
            while True:
                share = yield from self._await_share(source)
                if self._ending.is_set():
                    return
                places = None if share is None or self._setting.place is None else self._places(share)
                if engine is None:
                    engine = open_engine(None if places is None else [key for keys in places.values() for key in keys])
                try:
                    yield from self._steps(Session(engine, source, sink, self._setting, places), lead)
                except _Rebalanced:
                    LOG.info("partitions were reassigned: reading them again")
                    self.counters.restarts += 1
                    engine.abort()
                    engine = None
                else:
                    return

    def _steps(self, session: Session, lead: Lead | None) -> Iterator[Session]:
        """One session until the end, which it commits."""
        session.start()
        while not self._ending.is_set():
            if lead is not None:
                lead.check()
            session.step(_LONGEST_WAIT_S)
            self.counters.rejected = _sum(self.counters.rejected, session.engine.drain_rejected())
            yield session
        session.commit()
        session.engine.acknowledge()

    def _await_share(self, source: Any) -> Generator[None, None, Share | None]:
        """Until the group has given us what we can work with, if the source has a group; what is polled meanwhile comes
        again with the next assignment."""
        while not self._ending.is_set():
            if not hasattr(source, "share"):
                return None
            share: Share | None = source.share
            if share is None:
                self._ending.wait(0.02)
                yield None
            elif self._setting.place is None:
                if len(share.mine) == share.total:
                    return share
                self._stand_by(
                    "other members of the group have partitions of this stream; standing by (to share it, give "
                    "`stream.keys` and `source.partitioner`)"
                )
                yield None
            else:
                if any(self._places(share).values()):
                    return share
                self._stand_by("no key comes by the partitions that the group gave; standing by")
                yield None
            source.poll(POLL_MESSAGES, 0)  # one call: it never returns messages of an assignment it has just learned of
        return None

    def _places(self, share: Share) -> dict[str, list[str]]:
        place = self._setting.place
        assert place is not None
        if share.topics > 1:
            raise ConfigError("must be left out with several topics: a key has a place in one", "source.partitioner")
        found: dict[str, list[str]] = {name: [] for name in share.mine.values()}
        for key in self._keys:
            name = share.mine.get(place(key, share.total))
            if name is not None:
                found[name].append(key)
        return found

    def _stand_by(self, why: str) -> None:
        if self.trouble != why:
            LOG.info("%s", why)
        self._health.bad(why)
        self._ending.wait(_STAND_BY_S)


def now_ms() -> int:
    """Unix milliseconds by the system's clock."""
    return time.time_ns() // 1_000_000


def _what(error: BaseException) -> str:
    """An error for a log: ours say no record's content; of others only the kind is told."""
    if isinstance(error, EngineClosed):
        return "the engine was closed by an earlier error"
    return (
        str(error) if isinstance(error, FcstreamError) else f"{type(error).__name__}: {getattr(error, 'strerror', '')}"
    )


def _sum(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + two.get(name, 0) for name in one.keys() | two.keys()}
