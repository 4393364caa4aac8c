"""The driver's part of a micro-batch: notes rejections, gives counted windows to the engine, and releases what is due.

The engine charges, draws, seals and publishes as it does in one process. If a micro-batch comes again after an error,
its windows are sealed already: they are not counted again, and what was not acknowledged is published unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..formats.batch import Rejection
from .stores import PartWindow, WindowFeed
from .tasks import CLOCK, NOTES, TaskReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def take_rows(
    frame: DataFrame, feed: WindowFeed, keys: Sequence[str], on_note: Callable[[TaskReport], object]
) -> tuple[int, int, int] | None:
    """Give the engine's feed what a persisted frame of counted windows holds.

    Returns the public time up to which everything was read (None if the frame does not hold it), the lateness with
    which windows were opened, and how many windows of the schedule earlier micro-batches handed over.

    Returns the public time up to which all was read, if it is told, the lateness that windows were opened with, and how
    many windows of the schedule micro-batches before this one handed over.

    Parameters
    ----------
    frame : DataFrame
        Columns as in `tasks.COUNTED`.
    feed : WindowFeed
    keys : sequence of str
        All keys ("" for a stream without keys).
    on_note : callable
    """
    from pyspark.sql import functions as f

    sizes: dict[PartWindow, int] = {}
    clock: tuple[int, int, int] | None = None
    small = f.when(f.col("window") < 0, f.col("body"))
    for key, window, size, body in frame.select("key", "window", f.length("body"), small).collect():
        if window == CLOCK:
            now, lateness, handed_over = map(int, bytes(body).split())
            clock = now, lateness, handed_over
        elif window == NOTES:
            on_note(msgspec.msgpack.decode(bytes(body), type=TaskReport))
        else:
            sizes[key, window] = sizes.get((key, window), 0) + size

    def fetch(part_windows: list[PartWindow]) -> Mapping[PartWindow, bytes]:
        wanted = frame.where(f.col("window") >= 0)
        if len(part_windows) < len(sizes):
            names = sorted({window for _, window in part_windows})
            wanted = wanted.where(f.col("window").isin(names))
        found: dict[PartWindow, dict[int, bytes]] = {part_window: {} for part_window in part_windows}
        columns = wanted.select("key", "window", "piece", "body").toArrow().columns
        for key, window, piece, body in zip(*columns, strict=True):
            if (part_window := (key.as_py(), window.as_py())) in found:
                found[part_window][piece.as_py()] = body.as_py()
        return {part_window: b"".join(held[i] for i in range(len(held))) for part_window, held in found.items()}

    feed.offer(sizes, keys, fetch)
    return clock


class TaskReports:
    """Adds up what tasks report of messages, and writes rejections to the dead letters."""

    def __init__(self, write: Callable[[Sequence[Rejection]], object] | None = None) -> None:
        self._write = write
        self.messages = self.records = self.unread = self.replayed = 0
        self.rejected: dict[str, int] = {}

    def __call__(self, note: TaskReport) -> None:
        self.messages += note.messages
        self.records += note.records
        self.unread += note.unread
        self.replayed += note.replayed
        rejections = note.rejected()
        for rejection in rejections:
            self.rejected[rejection.reason] = self.rejected.get(rejection.reason, 0) + rejection.count
        if rejections and self._write is not None:
            self._write(sorted(rejections, key=lambda rejection: rejection.position))
