"""Session of a live stream: reads a broker, closes windows on time, publishes and commits, until something breaks.

Everything that must not be lost is in the broker (records, until their windows are sealed), the ledger (charges and
sealed releases) or the spool. What a session holds may be dropped at any moment and is built again by reading.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from ..connectors.base import Chunk, Source
from ..connectors.sinks import Sink
from ..engine.engine import Engine
from ..engine.intake import compared
from ..engine.keyed import KeyedEngine
from ..errors import ConfigError, FcstreamError, Shown
from ..formats.batch import Batch, Rejection
from ..formats.envelopes import NOTHING, Envelope
from ..formats.payloads import read_messages
from ..runtime.waiting import calling
from .clocks import SLACK_MS, StreamClock
from .context import SessionContext
from .publisher import LONGEST_WAIT_S, Publisher

LOG = logging.getLogger("fcstream.service")
POLL_MESSAGES = 4096
_COMMIT_EVERY_S = 1.0
_SLICE_BYTES = 1 << 20
"""Most bytes of messages that are decoded together."""
_POSITION = (1 << 63) - 1
_SILENCE_S = 1.0
_IN_QUARANTINE = (
    "a message at which the process died twice is rejected (broken_record): the log and a dead letter tell it"
)


class _PartitionProgress:
    """Tracks the offset up to which one partition may be committed: that of the first message with a record of an open
    window.
    """

    def __init__(self) -> None:
        # (First offset of a chunk, last window it has records of), both ascending. A chunk whose window is not later
        # than
        # that of an earlier chunk delays no commit that the earlier one does not, so there are at most as many as open
        # windows.
        self._waiting: deque[tuple[int, int]] = deque()
        self._next = -1

    def unseen(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which messages are new, and count them as seen.

        Sources deliver a partition in order, so one number is enough.
        """
        found = offsets >= self._next
        if len(offsets):
            self._next = max(self._next, int(offsets[-1]) + 1)
        return found

    def counted(self, offsets: NDArray[np.int64], last_window: int) -> None:
        """Note that messages were counted; none of their records lies in a window after `last_window`."""
        if not self._waiting or last_window > self._waiting[-1][1]:
            self._waiting.append((int(offsets[0]), last_window))

    def safe_offset(self, open_window: int) -> int | None:
        """Return the offset to commit when all windows before `open_window` are sealed; None if nothing was read."""
        while self._waiting and self._waiting[0][1] < open_window:
            self._waiting.popleft()
        if self._waiting:
            return self._waiting[0][0]
        return self._next if self._next >= 0 else None


class Session:
    """One session of a live stream, from opening everything to the first error.

    Parameters
    ----------
    engine : Engine or KeyedEngine
    source : Source
    sink : Sink
    context : SessionContext
    assigned_keys : mapping of str to collection of str, optional
        The keys that each partition carries; None if every partition may carry any key.

    Raises
    ------
    ConfigError
        Clock ``wall`` with a source whose receipt times do not survive a restart, or clock ``eof``.
    """

    def __init__(
        self,
        engine: Engine | KeyedEngine,
        source: Source,
        sink: Sink,
        context: SessionContext,
        assigned_keys: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        _check_clock(engine.job.clock, source)
        self.engine = engine
        self._source = source
        self._publisher = Publisher(engine, sink, context, source)
        self._decoder = context.decoder
        self._asked = engine.job.schema.asked
        self._counters = context.counters
        self._time = StreamClock(source, context.clock, engine.job.schedule.lateness_ms, context.health)
        self._context = context
        self._assigned_keys = assigned_keys
        self._progress: dict[str, _PartitionProgress] = {}
        self._generation = source.generation
        self._committed: dict[str, int] = {}
        self._commit_at = 0.0
        self._heard = time.monotonic()  # when the source last showed that it is alive
        self._dropped = source.duplicates
        self._quarantine = context.quarantine
        self._left: deque[list[Chunk]] = deque()  # was polled, and is not counted yet
        self._incomplete = -1  # last window that may lack messages

    def start(self) -> None:
        """Publish what an earlier session sealed and may not have published."""
        self._quarantine.open()
        if self._quarantine.found:
            self._context.health.warnings["quarantine"] = _IN_QUARANTINE
        if self._source.torn is not None:
            self._context.health.warnings["spool"] = self._source.torn
        self._publisher.left_over()
        if self._context.wall is not None:
            compared(self._context.wall, self.engine.job, self.engine.parts)
        self.engine.begin(now := self._time.now_ms())
        self._counters.excused_ms = self._counters.excused_ms or now

    def step(self, wait_s: float) -> None:
        """Read once, for at most `wait_s`; close and publish what is due; commit."""
        schedule = self.engine.job.schedule
        now = self._time.now_ms()
        if self._context.is_waiting or (self._context.health.hold is not None and self._time.is_asked):
            self._receive(wait_s)
        elif self._context.health.hold is not None or self._source.is_catching_up:
            self._read(wait_s)
        elif schedule.due(now) <= self._next_window:
            wait_ms = schedule.window(self._next_window).close_ms + schedule.lateness_ms - now
            self._read(min(wait_s, max(0.0, wait_ms / 1000)))
        must_wait = self._context.is_waiting or self._context.health.hold is not None or self._source.is_catching_up
        if must_wait:
            self._counters.excused_ms = now
        elif schedule.due(self._time.now_ms()) > self._next_window:
            self._close()
        if time.monotonic() >= self._commit_at:
            self.commit()

    @property
    def is_over(self) -> bool:
        """Return whether a schedule with an end has all its releases."""
        count = self.engine.job.schedule.count
        return count is not None and self._next_window >= count

    @property
    def input_has_ended(self) -> bool:
        """Return whether the source ended, and a restart finds all that it had. Its windows may still be open."""
        return self._source.has_ended and not self._left

    def drain_refused(self) -> Mapping[str, int]:
        """Return how many bodies a source into which others push refused since the last call, by reason."""
        return self._source.take_refused()

    def commit(self) -> None:
        """Commit the positions from which a restart must read."""
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        needed = self._index(self.engine.replay_from)
        if needed <= self._incomplete:
            return  # a restart must find the missing messages again
        positions = {}
        for partition, progress in self._progress.items():
            safe = progress.safe_offset(needed)
            if safe is not None and safe > self._committed.get(partition, -1):
                positions[partition] = safe
        if positions:
            with calling("source"):
                self._source.commit(positions)
            self._committed |= positions
            self._quarantine.forget(positions)

    @property
    def _next_window(self) -> int:
        return self._index(self.engine.next_open_ms)

    def _index(self, open_ms: int) -> int:
        return self.engine.job.schedule.index_after(open_ms) - 1

    def _receive(self, wait_s: float) -> None:
        """Let messages come into the spool, or stay with the broker, until they may be read."""
        with calling("source"):
            has_waited = self._source.prefetch(wait_s)
        if not has_waited:
            self._context.ending.wait(wait_s)
        self._update_spool_bytes()

    def _read(self, wait_s: float) -> None:
        # a commit may have shown a rebalance, and what is polled now would be lost with this session
        self._check_partitions()
        if not self._left:
            self._poll(wait_s)
        if self._left:
            self._count_some()

    def _poll(self, wait_s: float) -> None:
        with calling("source"):
            polled = self._source.poll(POLL_MESSAGES, wait_s)
        self._check_silence(bool(polled))
        self._update_spool_bytes()
        self._check_partitions()
        self._note_gaps()
        self._time.observe([chunk for chunk in polled if len(chunk.offsets)])
        # the keys that may come depend on the partition
        apart = [polled] if self._assigned_keys is None else [[chunk] for chunk in polled]
        for chunks in apart:
            self._left += chain.from_iterable(map(_slices, self._quarantine.apart(chunks)))

    def _count_some(self) -> None:
        """Count some of the messages that were polled, so few that a service which is to end does so soon."""
        chunks = [self._unseen(chunk) for chunk in self._left.popleft()]
        chunks = [chunk for chunk in chunks if len(chunk.offsets)]
        if not chunks:
            return
        with self._quarantine.decoding(chunks):
            self._count_chunks(chunks)

    def _check_silence(self, is_heard: bool) -> None:
        """Ask a source that brings nothing whether it is alive, because many clients wait without an error."""
        now = time.monotonic()
        if is_heard:
            self._heard = now
        elif now > self._heard + _SILENCE_S:
            with calling("source"):
                self._source.ends()
            self._heard = time.monotonic()

    def _update_spool_bytes(self) -> None:
        dropped = self._source.duplicates
        self._counters.duplicates += dropped - self._dropped
        self._dropped, self._counters.spool_bytes = dropped, self._source.stored_bytes

    def _note_gaps(self) -> None:
        gaps, schedule = self._context.gaps, self.engine.job.schedule
        last = gaps.update(self._source, schedule, self._next_window, self._time.now_ms())
        self._incomplete = max(self._incomplete, last)
        if gaps.text is not None:
            self._context.health.warnings["incomplete"] = gaps.text

    def _check_partitions(self) -> None:
        if self._source.generation != self._generation:
            raise Rebalanced

    def _unseen(self, chunk: Chunk) -> Chunk:
        """Return the messages of a chunk that were not counted before."""
        fresh = self._progress.setdefault(chunk.partition, _PartitionProgress()).unseen(chunk.offsets)
        self._counters.messages += len(fresh)
        if fresh.all():
            return chunk
        self._counters.duplicates += int(np.count_nonzero(~fresh))
        bodies = [body for body, new in zip(chunk.bodies, fresh.tolist(), strict=True) if new]
        receipts = None if chunk.receipts_ms is None else chunk.receipts_ms[fresh]
        envelopes = chunk.envelopes
        if envelopes is not None:
            envelopes = [envelope for envelope, new in zip(envelopes, fresh.tolist(), strict=True) if new]
        return Chunk(chunk.partition, chunk.offsets[fresh], chunk.timestamps_ms[fresh], bodies, receipts, envelopes)

    def _count_chunks(self, chunks: list[Chunk]) -> None:
        """Count messages of many partitions at once, because there may be dozens with few messages each."""
        offsets = np.concatenate([chunk.offsets for chunk in chunks])
        timestamps = np.concatenate([chunk.timestamps_ms for chunk in chunks])
        origin = np.repeat(np.arange(len(chunks)), [len(chunk.offsets) for chunk in chunks])
        bodies = list(chain.from_iterable(chunk.bodies for chunk in chunks))
        if offsets.dtype == object:  # ids that a producer chose; positions in dead letters keep 63 bits of them
            offsets = np.array([int(offset) & _POSITION for offset in offsets], np.int64)
        envelopes: Sequence[Envelope] = ()
        if self._asked:
            envelopes = [one for each in chunks for one in each.envelopes or repeat(NOTHING, len(each.offsets))]
        if self._quarantine.holds(chunks):
            batch, arrivals, messages = read_messages(self._decoder, offsets[:0], timestamps[:0], [])
            batch.rejections.append(Rejection("broken_record", int(offsets[0])))
        else:
            batch, arrivals, messages = read_messages(self._decoder, offsets, timestamps, bodies, envelopes)
        # A record of a message that may have waited counts as arrived when it was measured, as far as that is possible.
        arrivals = np.clip(batch.times_ms, arrivals, np.concatenate([chunk.latest_ms for chunk in chunks])[messages])
        arrivals = self._bounded(arrivals, batch.times_ms)
        lasts = self._last_windows(batch, arrivals, origin[messages], len(chunks))
        self._counters.records += len(batch.times_ms)
        self._counters.seen += batch.seen
        if isinstance(self.engine, KeyedEngine) and self._assigned_keys is not None:
            self.engine.take(batch, arrivals, assigned_keys=self._assigned_keys.get(chunks[0].partition, ()))
        else:
            self.engine.take(batch, arrivals)
        for chunk, last in zip(chunks, lasts, strict=True):
            self._progress[chunk.partition].counted(chunk.offsets, last)

    def _bounded(self, arrivals: NDArray[np.int64], times_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Limit arrivals so that no timestamp lies in the future.

        When a message with such a timestamp came is not known, also not after a restart, so it counts as in time as
        long as its window is open.
        """
        if not self._time.is_asked:  # if this machine's clock is behind, it would reject records that are in time
            return arrivals
        bound = self._time.now_ms() + SLACK_MS
        return np.where(arrivals > bound, np.minimum(times_ms, bound), arrivals)

    def _last_windows(
        self, batch: Batch, arrivals: NDArray[np.int64], origin: NDArray[np.int64], count: int
    ) -> list[int]:
        """Find the last window in which any record of each chunk may lie, -1 for none.

        Records ahead of their arrival are rejected, so they do not count.
        """
        job, lasts = self.engine.job, np.full(count, -1)
        fine = batch.times_ms <= arrivals + job.ahead_ms
        if fine.any():
            np.maximum.at(lasts, origin[fine], job.schedule.locate(batch.times_ms[fine])[2])
        return [int(last) for last in lasts]

    def _close(self) -> None:
        """Read up to the broker's present end, then release every window that was due before the end was asked for."""
        now = self._time.ask()
        is_held = self._context.is_waiting or self._context.health.hold is not None
        if is_held or self.engine.job.schedule.due(now) <= self._next_window:
            return
        with calling("source"):
            ends = self._source.ends()
        self._check_partitions()
        while self._is_behind(ends):
            if self._context.ending.is_set():
                return  # a backlog may take hours, and nothing is charged before it is read
            if self._context.is_waiting:
                return
            self._read(LONGEST_WAIT_S)
            self._context.health.beat = time.monotonic()
        self._note_gaps()  # also what was dropped unread while nothing was left to read
        self._publisher.close_due(now)

    def _is_behind(self, ends: Mapping[str, int]) -> bool:
        if self._left:
            return True
        with calling("source"):
            return self._source.behind(ends)


def _check_clock(kind: str, source: Source) -> None:
    if kind == "eof":
        raise ConfigError(
            "must be 'broker' (or 'wall', with a spool) for live sources", "window.clock", got=Shown("'eof'")
        )
    if kind == "wall" and not source.receipt_is_durable:
        raise ConfigError(
            "must be 'broker' for this source: its receipt times do not survive a restart, and a replay would make "
            "records late",
            "window.clock",
        )


def _slices(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Divide messages into groups of at most `_SLICE_BYTES`, or of one message."""
    if sum(sum(map(len, chunk.bodies)) for chunk in chunks) <= _SLICE_BYTES:
        return [list(chunks)] if chunks else []
    groups: list[list[Chunk]] = [[]]
    size = 0
    for chunk in chunks:
        start = 0
        for i, body in enumerate(chunk.bodies):
            if size + len(body) > _SLICE_BYTES and size:
                groups[-1].append(chunk.part(start, i))
                groups.append([])
                start, size = i, 0
            size += len(body)
        groups[-1].append(chunk.part(start, len(chunk.bodies)))
    return groups


class Rebalanced(FcstreamError):
    """Partitions were taken away or given, so what was read of them must be counted anew."""

    def __init__(self) -> None:
        super().__init__("partitions were reassigned")
