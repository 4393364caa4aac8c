"""A stream that never ends: read a broker, close windows on time, publish, commit; start over when something breaks.

Everything that must not be lost is in the broker (records, until their windows are sealed), the ledger (charges and
sealed releases) or the spool. What is here may be dropped at any moment and is built again by reading.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .connectors.retry import close_quietly, pauses
from .engine import Engine
from .errors import ConfigError, EngineClosed, FcstreamError, LedgerDamaged, LedgerMismatch, SinkError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .connectors.base import Chunk, LiveSource
    from .records import Batch, LineDecoder
    from .releases.base import Release
    from .sinks import Sink

LOG = logging.getLogger("fcstream.live")
POLL_MESSAGES = 4096
_LONGEST_WAIT_S = 0.25
_COMMIT_EVERY_S = 1.0
FATAL = (ConfigError, LedgerDamaged, LedgerMismatch)
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
        self._waiting: deque[tuple[int, int]] = deque()  # (first offset of a chunk, last window it has records of)
        self._next = -1

    def fresh(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which messages were not counted before: sources give a partition in order, so one number tells."""
        return offsets >= self._next

    def took(self, offsets: NDArray[np.int64], last_window: int) -> None:
        """Messages were counted; none of their records lies in a window after `last_window`."""
        self._waiting.append((int(offsets[0]), last_window))
        self._next = max(self._next, int(offsets[-1]) + 1)

    def safe(self, open_window: int) -> int | None:
        """The offset to commit when all windows before `open_window` are sealed; None: nothing was read yet."""
        while self._waiting and self._waiting[0][1] < open_window:
            self._waiting.popleft()
        if self._waiting:
            return min(first for first, _ in self._waiting)
        return self._next if self._next >= 0 else None


@dataclass(frozen=True, slots=True)
class Setting:
    """What outlives a session.

    Attributes
    ----------
    decoder : LineDecoder
    clock : callable
        Public time in Unix milliseconds.
    counters : Counters
    stopping : threading.Event
    """

    decoder: LineDecoder
    clock: Callable[[], int]
    counters: Counters = field(default_factory=Counters)
    stopping: threading.Event = field(default_factory=threading.Event)


class Session:
    """One life of a live stream: from opening everything to the first thing that breaks.

    Parameters
    ----------
    engine : Engine
    source : LiveSource
    sink : Sink
    setting : Setting

    Raises
    ------
    ConfigError
        Clock ``wall`` with a source whose receipt times do not survive a restart, or clock ``eof``.
    """

    def __init__(self, engine: Engine, source: LiveSource, sink: Sink, setting: Setting) -> None:
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
        self._sink = sink
        self._decoder = setting.decoder
        self._counters = setting.counters
        self._clock = setting.clock
        self._stopping = setting.stopping
        self._progress: dict[str, _Progress] = {}
        self._generation = source.generation
        self._committed: dict[str, int] = {}
        self._commit_at = 0.0

    def start(self) -> None:
        """Publish what an earlier life sealed and may not have published."""
        missing = self._sink.missing(self.engine.unpublished())
        self._publish(missing)
        self.engine.acknowledge()

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
        for chunk in self._source.poll(POLL_MESSAGES, wait_s):
            self._take(chunk)
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
        batch = self._decoder.decode(bodies, 0)
        arrivals = stamps[batch.positions]
        last = self._last_window(batch, arrivals)
        batch.positions = offsets[batch.positions]
        for i, rejection in enumerate(batch.rejections):
            batch.rejections[i] = type(rejection)(rejection.reason, int(offsets[rejection.position]), rejection.field)
        self._counters.records += len(batch.times_ms)
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
        while self._source.behind(ends):
            self._read(_LONGEST_WAIT_S)
        for group in self.engine.closing(now):
            self._publish(group)
            self.engine.acknowledge()
            self._counters.add(group)

    def _publish(self, releases: list[Release]) -> None:
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
                    LOG.warning("the sink refuses: %s", error)
                    told = True
                if self._stopping.wait(next(waits)):
                    raise


class _Rebalanced(FcstreamError):
    """Partitions were taken away or given: what was counted of them is counted anew."""

    def __init__(self) -> None:
        super().__init__("partitions were reassigned")


class Service:
    """Keeps a live stream going, for months: opens a `Session`, steps it, and opens another when one breaks.

    Parameters
    ----------
    open_engine, open_source, open_sink : callable
        Make each anew; called in this order, so that nothing is read that could not be charged.
    decoder : LineDecoder
    clock : callable, optional
        Public time in Unix milliseconds; the system's by default.

    Notes
    -----
    `stop` may be called from a signal handler or another thread: the step under way is finished and committed.

    Raises
    ------
    ConfigError, LedgerDamaged, LedgerMismatch
        What trying again does not mend; every other error is waited out, with jittered pauses.
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        open_source: Callable[[], LiveSource],
        open_sink: Callable[[], Sink],
        decoder: LineDecoder,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._opens = (open_engine, open_source, open_sink)
        self._setting = Setting(decoder, clock or _now_ms)
        self.counters = self._setting.counters
        self.stopping = self._setting.stopping
        self.trouble: str | None = "starting"
        """Why the service is not ready now; None if it is."""
        self.beat = time.monotonic()
        """When it last went round; a service that hangs falls behind."""

    def stop(self) -> None:
        """Finish the step under way, commit, and return from `run`."""
        self.stopping.set()

    def run(self, on_step: Callable[[Service], object] | None = None) -> None:
        """Serve until `stop`, or until a schedule with an end is answered whole."""
        waits: Iterator[float] | None = None
        while not self.stopping.is_set():
            try:
                for session in self._sessions():
                    waits, self.trouble = None, None
                    self.beat = time.monotonic()
                    if on_step is not None:
                        on_step(self)
                    if session.is_over:
                        return
            except FATAL:
                raise
            except _Rebalanced:
                self.counters.restarts += 1
            except (FcstreamError, OSError) as error:
                if self.stopping.is_set():
                    return
                self.counters.restarts += 1
                self.trouble = _what(error)
                LOG.warning("starting over: %s", self.trouble)
                waits = waits or pauses()
                self.stopping.wait(next(waits))

    def _sessions(self) -> Iterator[Session]:
        """One session, again after each of its steps."""
        open_engine, open_source, open_sink = self._opens
        engine = open_engine()
        closers: list[Callable[[], object]] = [engine.abort]
        try:
            sink = open_sink()
            closers.append(sink.close)
            source = open_source()
            closers.append(source.close)
            session = Session(engine, source, sink, self._setting)
            session.start()
            while not self.stopping.is_set():
                session.step(_LONGEST_WAIT_S)
                self.counters.rejected = _sum(self.counters.rejected, engine.rejected)
                engine.rejected = {}
                yield session
            session.commit()
            engine.acknowledge()
        finally:
            close_quietly(*reversed(closers))


def _now_ms() -> int:
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
