"""One job from source to sink: reads, feeds the engine, publishes, reports to a human."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from .collector import set_aside
from .engine import Engine
from .errors import ConfigError, LedgerMismatch

if TYPE_CHECKING:
    from .keyed import KeyedEngine
    from .releases.base import Release
    from .sinks import Sink
    from .sources import Source

POLL_RECORDS = 8192
_REMEDIES = {
    "broken_record": "that `source.url` names the format (jsonl, csv) and that the file is UTF-8",
    "missing": "`stream.time` and the names of `[[features]]`",
    "not_a_number": "`[[features]]`",
    "out_of_range": "`min` and `max` of `[[features]]`, and their units",
    "bad_time": "`stream.time_unit`",
    "time_out_of_range": "`stream.time_unit`, and `start` and `end` of `[window]`",
    "bad_user": "`stream.user`",
    "unknown_level": "`levels` of `[[features]]`",
    "unknown_key": "`stream.key` and `stream.keys`",
}
"""What to look at where most records were rejected for a reason of `records.REASONS`."""


@dataclass(slots=True)
class Summary:
    """What one run did. Exact counts of records: for the operator, not for publication."""

    records: int = 0
    released: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    republished: int = 0
    already_answered: int = 0
    replayed: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    spent: str = ""
    guarantee: str = ""

    def add(self, releases: Sequence[Release]) -> None:
        for release in releases:
            if release.reason is None:
                self.released += 1
            else:
                self.refused[release.reason] = self.refused.get(release.reason, 0) + 1

    def lines(self) -> list[str]:
        refused, rejected = sum(self.refused.values()), sum(self.rejected.values())
        text = [
            f"{_many(self.released + refused, 'window')}: {self.released} released, {refused} refused"
            + _reasons(self.refused),
            f"{_many(self.records, 'record')} read, {rejected} rejected{_reasons(self.rejected)}",
            f"most charged block: {self.spent} of {self.guarantee}; {self.seconds:.1f} s",
        ]
        if self.republished:
            text.append(f"{self.republished} releases sealed by an earlier run were published again, unchanged")
        if self.already_answered:
            text.append(f"{self.already_answered} windows were answered by an earlier run and stay as they are")
        if self.replayed:
            text.append(f"{self.replayed} records lie in those windows and changed nothing")
        if self.records == 0:
            text.append("warning: the source held no records; its windows are answered all the same, for ever")
        elif rejected == self.records:
            text.append("warning: every record was rejected; the windows are answered all the same, for ever")
        elif 2 * rejected > self.records:
            text.append("warning: most records were rejected")
        if 2 * rejected > self.records:
            most = max(self.rejected, key=self.rejected.__getitem__)
            if most in _REMEDIES:
                text[-1] += f"; check {_REMEDIES[most]} ({most})"
        return text


class Progress:
    """A line that moves on a terminal, a plain line now and then elsewhere; silent in short runs."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._pause = 0.5 if self._live else 15.0
        self._last = time.monotonic()
        self._shown = False

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last < self._pause:
            return
        self._last = now
        self._shown = self._shown or self._live
        self._out.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        self._out.flush()

    def clear(self) -> None:
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()


@set_aside()
def run(engine: Engine | KeyedEngine, source: Source, sink: Sink, *, progress: Progress | None = None) -> Summary:
    """Run one job to the end of its source.

    Parameters
    ----------
    engine : Engine or KeyedEngine
        Open: a run that cannot charge reads nothing. Its ledger is let go of at the end.
    source, sink
        Open; the caller closes them.

    Raises
    ------
    FcstreamError
    """
    progress = progress or Progress()
    started = time.perf_counter()
    summary = Summary()
    try:
        if engine.job.clock != "eof":
            raise ConfigError(
                f"must be 'eof' for files and pipes, got {engine.job.clock!r}: live clocks work through `Engine.push`",
                "window.clock",
            )
        refuse_strange_sink(engine, sink)
        publish_left_over(engine, sink, summary)
        summary.already_answered = engine.answered
        while (batch := source.poll(POLL_RECORDS)) is not None:
            summary.records += len(batch.times_ms) + len(batch.rejections)
            engine.take(batch)
            progress.show(f"{summary.records:,} records read")
        for group in engine.closing():
            sink.write(group)
            engine.acknowledge()
            summary.add(group)
            progress.show(f"{_many(summary.released + sum(summary.refused.values()), 'window')} answered")
        summary.rejected, summary.replayed = engine.rejected, engine.replayed
        summary.spent, summary.guarantee = str(engine.spent), str(engine.guarantee)
    finally:
        progress.clear()
        engine.abort()
    summary.seconds = time.perf_counter() - started
    return summary


def refuse_strange_sink(engine: Engine | KeyedEngine, sink: Sink) -> None:
    """A sink that holds windows the ledger has not sealed shows that the ledger was lost or exchanged: answering them
    again would spend their budget twice.

    Raises
    ------
    LedgerMismatch
    """
    last = sink.last()
    ours = {} if last is None else {part.job.terms.stream: part for part in engine.parts}
    if last is not None and last.stream in ours and not ours[last.stream].has_sealed(last.window_open_ms):
        raise LedgerMismatch(
            f"the sink holds the release of window {last.window_open_ms} of {last.stream!r}, the ledger does not know "
            "it: the ledger was lost or exchanged; restore it, or start a stream under a new name"
        )


def publish_left_over(engine: Engine | KeyedEngine, sink: Sink, summary: Summary) -> None:
    """Releases that an earlier run sealed and did not know to be published."""
    sealed = engine.unpublished()
    missing = sink.missing(sealed)
    if missing:
        sink.write(missing)
    engine.acknowledge()
    summary.republished = len(missing)


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _reasons(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{name} {n}' for name, n in sorted(counts.items()))})" if counts else ""
