"""One life of a live stream: read a broker, close windows on time, publish, commit, until something breaks.

Everything that must not be lost is in the broker (records, until their windows are sealed), the ledger (charges and
sealed releases) or the spool. What is here may be dropped at any moment and is built again by reading.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from .connectors.base import Chunk, KeepingSource
from .connectors.retry import pauses
from .engine import Engine
from .errors import ConfigError, FcstreamError, SinkError, SourceError
from .keyed import KeyedEngine
from .payloads import read_messages
from .runner import refuse_strange_sink

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .connectors.base import LiveSource
    from .decoders import LineDecoder
    from .records import Batch
    from .releases.base import Release
    from .sinks import Sink

LOG = logging.getLogger("fcstream.live")
WINDOWS = logging.getLogger("fcstream.windows")
POLL_MESSAGES = 4096
LONGEST_WAIT_S = 0.25
_COMMIT_EVERY_S = 1.0


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
        """Which messages were not seen before, and are from now on: sources give a partition in order, so one number
        tells."""
        found = offsets >= self._next
        if len(offsets):
            self._next = max(self._next, int(offsets[-1]) + 1)
        return found

    def took(self, offsets: NDArray[np.int64], last_window: int) -> None:
        """Messages were counted; none of their records lies in a window after `last_window`."""
        if not self._waiting or last_window > self._waiting[-1][1]:
            self._waiting.append((int(offsets[0]), last_window))

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
    """Brings releases to the sink: what an earlier life has left over, then one group after the other.

    Parameters
    ----------
    engine : Engine or KeyedEngine
    sink : Sink
    setting : Setting
    source : LiveSource, optional
        May take what its broker might not hold for long, while the sink refuses.
    """

    def __init__(
        self, engine: Engine | KeyedEngine, sink: Sink, setting: Setting, source: LiveSource | None = None
    ) -> None:
        self._engine, self._sink, self._setting, self._source = engine, sink, setting, source

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
                if wait(self._source, next(waits), self._setting.ending):
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
        self._publisher = Publisher(engine, sink, setting, source)
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
        chunks = [self._fresh(chunk) for chunk in self._source.poll(POLL_MESSAGES, wait_s)]
        self._must_be_ours()
        chunks = [chunk for chunk in chunks if len(chunk.offsets)]
        if self._places is None and chunks:
            self._take(chunks)
        else:  # which keys may come depends on the partition
            for chunk in chunks:
                self._take([chunk])

    def _must_be_ours(self) -> None:
        if self._source.generation != self._generation:
            raise Rebalanced

    def _fresh(self, chunk: Chunk) -> Chunk:
        """The messages of a chunk that were not counted before."""
        fresh = self._progress.setdefault(chunk.partition, _Progress()).fresh(chunk.offsets)
        self._counters.messages += len(fresh)
        if fresh.all():
            return chunk
        self._counters.duplicates += int(np.count_nonzero(~fresh))
        bodies = [body for body, new in zip(chunk.bodies, fresh.tolist(), strict=True) if new]
        return Chunk(chunk.partition, chunk.offsets[fresh], chunk.stamps_ms[fresh], bodies)

    def _take(self, chunks: list[Chunk]) -> None:
        """Count messages, of many partitions at once: there may be dozens, with few messages each."""
        offsets = np.concatenate([chunk.offsets for chunk in chunks])
        stamps = np.concatenate([chunk.stamps_ms for chunk in chunks])
        origin = np.repeat(np.arange(len(chunks)), [len(chunk.offsets) for chunk in chunks])
        bodies = list(chain.from_iterable(chunk.bodies for chunk in chunks))
        batch, arrivals, messages = read_messages(self._decoder, offsets, stamps, bodies)
        lasts = self._last_windows(batch, arrivals, origin[messages], len(chunks))
        self._counters.records += len(batch.times_ms)
        if isinstance(self.engine, KeyedEngine) and self._places is not None:
            self.engine.take(batch, arrivals, places=self._places.get(chunks[0].partition, ()))
        else:
            self.engine.take(batch, arrivals)
        for chunk, last in zip(chunks, lasts, strict=True):
            self._progress[chunk.partition].took(chunk.offsets, last)

    def _last_windows(
        self, batch: Batch, arrivals: NDArray[np.int64], origin: NDArray[np.int64], count: int
    ) -> list[int]:
        """The last window that any record of each chunk may lie in, -1 for none (records ahead of their arrival are
        rejected, so do not count)."""
        job, lasts = self.engine.job, np.full(count, -1)
        fine = batch.times_ms <= arrivals + job.ahead_ms
        if fine.any():
            np.maximum.at(lasts, origin[fine], job.schedule.locate(batch.times_ms[fine])[2])
        return [int(last) for last in lasts]

    def _close(self) -> None:
        """Read up to where the broker stands now, then answer every window that was over before it was asked."""
        now = self._clock()
        ends = self._source.ends()
        self._must_be_ours()
        while self._source.behind(ends):
            if self._setting.ending.is_set():
                return  # a backlog may take hours; nothing is charged yet
            self._read(LONGEST_WAIT_S)
            self._setting.health.beat = time.monotonic()
        self._publisher.close_due(now)


class Rebalanced(FcstreamError):
    """Partitions were taken away or given: what was counted of them is counted anew."""

    def __init__(self) -> None:
        super().__init__("partitions were reassigned")


def wait(source: LiveSource | None, seconds: float, ending: threading.Event) -> bool:
    """Let time pass until an event, and say whether it came. A source that can take what its broker might not hold for
    long does so meanwhile."""
    until = time.monotonic() + seconds
    with suppress(SourceError):  # whoever polls it next hears it again
        while isinstance(source, KeepingSource) and not ending.is_set() and (left := until - time.monotonic()) > 0:
            source.keep(min(left, LONGEST_WAIT_S))
    return ending.wait(max(0.0, until - time.monotonic()))
