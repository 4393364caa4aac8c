"""Brokers as a source of Spark: offsets are positions, and each micro-batch holds the public time to which it has read.

Spark asks for the end of the next micro-batch: the driver's clock is read first, the ends of all partitions then. A
micro-batch that reaches them all has every message that arrived before that time, so the time may close windows; one
that is cut short by the read limit keeps the time of the one before. Both stand in the offset that Spark logs before it
reads anything, so a micro-batch that is run again reads the same messages and has the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from ..connectors import open_ranges
from ..connectors.base import Source
from ..errors import SourceError
from ..service.supervisor import now_ms
from ..stream.windows import Schedule
from .tasks import MESSAGES, guarded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


POLL_MESSAGES = 8192
MARGIN_MS = 1000
"""How far the watermark is behind its largest clock; rows must lie above it, or Spark would drop them."""


class SourceSettings(msgspec.Struct, frozen=True):
    """Settings from which a source is made.

    Attributes
    ----------
    url, name : str
        See `open_ranges`.
    start_ms, length_ms, slide_ms, lateness_ms, end_ms
        Schedule of the windows.
    limit : int
        Largest number of messages of a micro-batch, about; 0 for all there are.
    """

    url: str
    name: str
    start_ms: int
    length_ms: int
    slide_ms: int
    lateness_ms: int
    end_ms: int | None
    limit: int

    @classmethod
    def of(cls, url: str, name: str, schedule: Schedule, limit: int) -> SourceSettings:
        return cls(
            *(url, name, schedule.start_ms, schedule.length_ms, schedule.slide_ms, schedule.lateness_ms),
            schedule.end_ms,
            limit,
        )

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.start_ms, self.length_ms, self.slide_ms, self.lateness_ms, self.end_ms)


class BrokerDataSource(DataSource):
    """Messages of a replayable broker. The option ``secret`` (which Spark redacts) holds a `SourceSettings`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._reading = msgspec.json.decode(options["secret"], type=SourceSettings)

    @classmethod
    def name(cls) -> str:
        return "fcstream"

    def schema(self) -> str:
        return MESSAGES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BrokerReader(self._reading)


class ClockDataSource(DataSource):
    """The public time alone, for streaming frames of Spark's own sources, which must have no read limit.

    It returns the time that it noted when it was asked before. So, whatever the order in which Spark asks its sources,
    all ends of this micro-batch were asked for later than that.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._reading = msgspec.json.decode(options["secret"], type=SourceSettings)

    @classmethod
    def name(cls) -> str:
        return "fcstream-clock"

    def schema(self) -> str:
        return MESSAGES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ClockReader(self._reading)


@dataclass
class OffsetRange(InputPartition):
    """Messages of one partition, or for the partition "" the clock."""

    partition: str
    start: int
    end: int
    clock: int


class BrokerReader(DataSourceStreamReader):
    """Reads a broker; offsets are ``{"ends": {partition: offset}, "clock": public milliseconds}``."""

    def __init__(self, reading: SourceSettings, clock: Callable[[], int] = now_ms) -> None:
        self._reading, self._clock = reading, clock
        self._source: Source | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"ends": dict.fromkeys(self._open().ends(), 0), "clock": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._reading.limit) if self._reading.limit else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        now, schedule = self._clock(), self._reading.schedule
        begins, ends = start["ends"], self._open().ends()
        for name, begin in begins.items():
            if ends.get(name, 0) < begin:
                raise SourceError(
                    f"partition {name} ends before what was read of it: it was made anew",
                    remedy="start with an empty checkpoint folder",
                )
        reached = ends
        if isinstance(limit, ReadMaxRows):
            reached = self._within(begins, ends, limit.max_rows)
        is_new = any(end > begins.get(name, 0) for name, end in reached.items())
        clock = start["clock"]
        if reached == ends and (is_new or clock == 0 or schedule.due(now) > schedule.due(clock)):
            clock = max(now, clock)
        return {"ends": reached, "clock": clock} if is_new or clock != start["clock"] else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        clock, begins = end["clock"], start["ends"]
        found = [
            OffsetRange(name, begins.get(name, 0), last, clock)
            for name, last in end["ends"].items()
            if last > begins.get(name, 0)
        ]
        return [*found, OffsetRange("", start["clock"], clock, clock)] if clock > start["clock"] else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return _read(self._reading, partition)

    def stop(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_reading": self._reading, "_clock": self._clock, "_source": None}

    def _open(self) -> Source:
        if self._source is None:
            self._source = open_ranges(self._reading.url, self._reading.name)
        return self._source

    def _within(self, begins: dict[str, int], ends: dict[str, int], limit: int) -> dict[str, int]:
        """Find where a micro-batch of about so many messages ends; partitions share it evenly."""
        behind = [name for name, end in ends.items() if end > begins.get(name, 0)]
        share = max(1, limit // max(1, len(behind)))
        source = self._open()
        cut = dict[str, int]()
        for name in behind:
            start = begins.get(name, 0)
            end = source.reach(name, start, share)
            cut[name] = min(ends[name], end)
        return {**ends, **cut}


class ClockReader(BrokerReader):
    """Reads the clock; offsets are those of a `BrokerReader` without partitions."""

    _noted: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"ends": {}, "clock": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        noted, self._noted = self._noted, self._clock()
        clock, schedule = start["clock"], self._reading.schedule
        if noted is None or (clock != 0 and schedule.due(noted) <= schedule.due(clock)):
            return start
        return {"ends": {}, "clock": max(noted, clock)}


@guarded
def _read(reading: SourceSettings, range: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Read the messages of a range, some thousands at a time."""
    if range.partition == "":
        yield _rows("", np.array([-1]), np.array([range.end]), [b""], range.clock)
        return
    source = open_ranges(reading.url, f"{reading.name}-task")
    try:
        ends = {range.partition: range.end}
        source.seek({range.partition: range.start})
        while source.behind(ends):
            for chunk in source.poll(POLL_MESSAGES, 1.0):
                inside = int(np.searchsorted(chunk.offsets, range.end))
                if inside:
                    offsets, timestamps = chunk.offsets[:inside], chunk.timestamps_ms[:inside]
                    yield _rows(chunk.partition, offsets, timestamps, chunk.bodies[:inside], range.clock)
    finally:
        source.close()


def _rows(partition: str, offsets: Any, timestamps: Any, bodies: list[bytes], clock: int) -> pa.RecordBatch:
    import pyarrow

    n = len(bodies)
    at = pyarrow.array(np.full(n, clock + MARGIN_MS) * 1000, pyarrow.timestamp("us", "UTC"))
    columns = [
        pyarrow.array([partition] * n, pyarrow.string()),
        pyarrow.array(offsets, pyarrow.int64()),
        pyarrow.array(timestamps, pyarrow.int64()),
        pyarrow.array(bodies, pyarrow.binary()),
        at,
    ]
    return pyarrow.RecordBatch.from_arrays(columns, ["partition", "position", "stamp", "body", "clock"])
