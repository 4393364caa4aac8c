"""Intake of pushed records: arrays or a table become a batch, and rejected records are counted and reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import Job
from ..errors import ConfigError
from ..formats.batch import Batch, Rejection
from ..formats.frames import FloatTypes as FloatTypes
from ..formats.frames import columns_of, read_rows_by_name, read_table, rows_of
from ..formats.rejections import tallied
from ..formats.rows import identified, read_moment, read_push
from ..runtime.wall_clock import WallClock

LOG = logging.getLogger("fcstream.engine")
_DAY_MS = 86_400_000
OnRejection = Callable[[Sequence[Rejection]], object]


def clock_of(job: Job, given: WallClock | None) -> WallClock | None:
    """Return the clock of an engine: the one that it was given, or this machine's with clock ``wall``, else None.

    Raises
    ------
    ConfigError
    """
    if job.clock != "wall":
        return None
    return given or WallClock(job.terms.stream, job.schedule.lateness_ms)


def compared(clock: WallClock, job: Job, engines: Sequence[Any], slack_ms: int = 0) -> int:
    """Compare a clock with the newest window that lies behind any of some engines, and return its time.

    The clock may be `slack_ms` further ahead than else, see `WallClock.compare`.
    """
    past = [(each.job.schedule, each.next_index - 1) for each in engines if each.next_index]
    closes = [schedule.window(index).close_ms for schedule, index in past]
    clock.compare(max(closes, default=None), job.backlog_ms + slack_ms)
    return clock.now_ms()


def closing_time(clock: WallClock | None) -> int | None:
    """Return the time up to which a clock closes windows; None without one, and while it has jumped."""
    return None if clock is None or clock.hold is not None else clock.now_ms()


def closing_moment(job: Job, clock: WallClock | None, now_ms: Any = None) -> int | None:
    """Return the time up to which windows are to be closed: the one given, or with clock ``wall`` that of the clock.

    None with the clock ``eof``, and while the clock holds windows open because it has jumped.

    Raises
    ------
    ConfigError
        It is no time, is missing with another clock, or lies a day ahead of this machine's clock with clock ``wall``.
    """
    if now_ms is None:
        if clock is None:
            raise ConfigError(
                f"must be given with clock = {job.clock!r}: this machine's clock closes windows with 'wall' only",
                "now_ms",
            )
        return closing_time(clock)
    now = read_moment(now_ms, "now_ms")
    if clock is None:
        return None if job.clock == "eof" else now
    if clock.hold is not None:
        return None
    if now > clock.now_ms() + _DAY_MS:
        raise ConfigError("must not lie a day ahead of this machine's clock with clock = 'wall'", "now_ms")
    return now


def read_pushed(
    job: Job,
    times_ms: Any,
    points: Any,
    arrival_ms: Any,
    positions: Any,
    ids: Any,
    keys: Any = None,
    types: FloatTypes | None = None,
    clock: WallClock | None = None,
) -> tuple[Batch, NDArray[np.int64] | None]:
    """Split a push into rows that can be read, rejections, and arrivals; see `Engine.push`.

    `types` has the floats of the first data frame's columns, and is filled by it. After a jump of the `clock` a record
    counts as arrived when it was measured, if it may be that time now.

    Raises
    ------
    ConfigError
        The shapes are wrong, or an argument is missing or must be left out.
    """
    bounds = None
    if job.clock == "eof":
        arrival_ms = None
    elif arrival_ms is None and clock is None:
        raise ConfigError("must be given with clock = 'broker'", "arrival_ms")
    elif arrival_ms is None and clock is not None:
        bounds = clock.bounds_ms()
        arrival_ms = bounds[1]
    schema = job.schema if job.key is None else replace(job.schema, key=None)  # all of one key's part
    if (rows := rows_of(times_ms)) is not None:
        _refuse_others(points, ids, keys)
        batch, n = read_rows_by_name(schema, rows), len(rows)
    elif columns_of(times_ms) is None:
        unit = job.terms.unit
        if (ids is None) == (unit == "user"):
            raise ConfigError(f"{'must be given' if ids is None else 'must be left out'} with unit {unit!r}", "ids")
        if (keys is None) != (schema.key is None):
            raise ConfigError("must be given with `stream.key`, and only then", "keys")
        batch, n = read_push(schema, times_ms, points, ids, keys, types)
    else:
        _refuse_others(points, ids, keys)
        batch, n = read_table(schema, times_ms, types)
    batch, arrivals = identified(batch, n, positions, arrival_ms)
    if bounds is not None and bounds[0] != bounds[1]:
        arrivals = np.clip(batch.times_ms, *bounds)
    return batch, arrivals


def _refuse_others(points: Any, ids: Any, keys: Any) -> None:
    for name, given in (("points", points), ("ids", ids), ("keys", keys)):
        if given is not None:
            raise ConfigError("must be left out with a table, which has columns for them", name)


class Rejections:
    """Counts rejected records by reason and passes them to a callback; without one, it warns once for each reason.

    Parameters
    ----------
    stream : str
    takes : callable or None
    """

    def __init__(self, stream: str, takes: OnRejection | None) -> None:
        self._stream = stream
        self._takes = takes
        self._fields: dict[str, str | None] = {}
        self._warned: set[str] = set()
        self.counts: dict[str, int] = {}

    def add(self, rejections: list[Rejection]) -> None:
        """Count rejections and pass them on, in the order of their positions."""
        for rejection in rejections:
            self.counts[rejection.reason] = self.counts.get(rejection.reason, 0) + rejection.count
            self._fields.setdefault(rejection.reason, rejection.field)
        if rejections and self._takes is not None:
            self._takes(tallied(rejections))

    def count(self, reason: str, records: int) -> None:
        """Count records that were taken and then turn out to be of no use."""
        if records:
            self.counts[reason] = self.counts.get(reason, 0) + records
            self._fields.setdefault(reason, None)

    def drain(self) -> dict[str, int]:
        """Return the counts, and set them back to nothing."""
        counts, self.counts = self.counts, {}
        return counts

    def warn(self) -> None:
        """Log a warning about reasons that are new, if there is no callback."""
        new = [reason for reason in self._fields if reason not in self._warned]
        if self._takes is None and new:
            self._warned.update(new)
            fields = [f"{reason} ({self._fields[reason]})" if self._fields[reason] else reason for reason in new]
            LOG.warning(
                "stream %r rejects records that were pushed: %s; `Engine.rejected` has the counts, and `on_rejection` "
                "gets every rejected record",
                self._stream,
                ", ".join(fields),
            )
