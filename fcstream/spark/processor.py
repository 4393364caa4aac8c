"""The operator that holds open windows: blocks of records as list state, and one timer for each window, which closes
it.

The watermark is the public time up to which every partition was read: the source puts it into the rows of a micro-batch
and never takes it from a record (see `source`). So a record is late by its own arrival alone, as tasks decided before
it came here. A record that comes for a window that was handed over has a timestamp of a clock that was set back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from ..config import Job
from .blocks import block_size, gather, gather_positions
from .tasks import CLOCK, NOTES, TaskReport, count_window, guarded, pieces, too_many

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues


@dataclass
class WindowProcessor(StatefulProcessor):
    """Holds and closes windows; rows are grouped by (key, window).

    Attributes
    ----------
    job : Job
        Job of the whole stream.
    splits : bool
        See `count_window`.
    first : int
        The first window that lacks the release of some key.
    """

    job: Job
    splits: bool = False
    first: int = 0

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._blocks = handle.getListState("blocks", "block BINARY")
        self._held = handle.getValueState("held", "records LONG")
        self._tick = handle.getValueState("tick", "at LONG, lateness LONG, handed_over LONG")

    @guarded
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        name, window = key
        now = timerValues.getCurrentWatermarkInMs()
        if window == NOTES:
            for row in rows:
                yield Row(key=name, window=NOTES, piece=0, pieces=1, body=bytes(row.block))
        elif window == CLOCK:
            for _ in rows:
                pass
            tick = self._tick.get()
            if tick is None or tick[0] <= now:  # the schedule may have got a later end
                self._expect(max(self.first, self.job.schedule.due(now)), 0 if tick is None else tick[2])
        elif self.job.schedule.due(now) > window:
            rejected: list[tuple[str, int, str | None, int]] = [
                ("window_closed", at, None, 1) for row in rows for at in gather_positions(bytes(row.block))
            ]
            note = msgspec.msgpack.encode(TaskReport(0, 0, 0, 0, rejected))
            yield Row(key=name, window=NOTES, piece=0, pieces=1, body=note)
        else:
            if self._held.get() is None:
                self._handle.registerTimer(self._over_at(window))
            self._keep([bytes(row.block) for row in rows])

    @guarded
    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        name, window = key
        if window == CLOCK:
            now = timerValues.getCurrentWatermarkInMs()
            before, due = self._tick.get(), self.job.schedule.due(now)
            lateness = self._expect(due, due)
            body = f"{now} {lateness} {0 if before is None else before[2]}".encode()
            yield Row(key="", window=CLOCK, piece=0, pieces=1, body=body)
            return
        blocks = [bytes(block) for (block,) in self._blocks.get()]
        held = self._held.get()
        self._blocks.clear()
        self._held.clear()
        has_too_many = held is not None and self._is_too_many(held[0])
        body = too_many(held[0]) if has_too_many else count_window(self.job, blocks, window, self.splits)
        for piece, number, part in pieces(body):
            yield Row(key=name, window=window, piece=piece, pieces=number, body=part)

    def close(self) -> None:
        pass

    def _keep(self, blocks: list[bytes]) -> None:
        """Keep blocks of a window, or only their number once it holds more records than any window that is not refused.

        A record may come twice, and counts once: duplicates are removed before anything is dropped.
        """
        held = self._held.get()
        size = 0 if held is None else int(held[0])
        if self._is_too_many(size):
            return
        size += sum(map(block_size, blocks))
        if self._is_too_many(size):
            blocks = [*(bytes(block) for (block,) in self._blocks.get()), *blocks]
            size = len(gather(blocks, self.job.width).panes)
            self._blocks.clear()
            if self._is_too_many(size):
                blocks = []
        if blocks:
            self._blocks.appendList([(block,) for block in blocks])
        self._held.update((size,))

    def _is_too_many(self, size: int) -> bool:
        # Only the driver knows which users have budget left, so their records are not bounded here.
        gate = None if self.job.terms.unit == "user" else self.job.gate
        return gate is not None and size > gate.max_held

    def _over_at(self, window: int) -> int:
        """Return the first public time at which a window is due."""
        schedule = self.job.schedule
        return schedule.window(window).close_ms + schedule.lateness_ms + 1

    def _expect(self, window: int, handed_over: int) -> int:
        """Set a timer for when this window is due, because a window without records has a release too.

        `handed_over` is the number of windows that have a release once this micro-batch is committed. Returns the
        lateness with which the first windows of this checkpoint were opened, by which timers are set.
        """
        count, tick = self.job.schedule.count, self._tick.get()
        at = self._over_at(window)
        lateness = self.job.schedule.lateness_ms if tick is None else int(tick[1])
        self._tick.update((at, lateness, handed_over))
        if count is None or window < count:
            self._handle.registerTimer(at)
        return lateness
