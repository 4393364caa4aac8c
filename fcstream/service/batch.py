"""Runs one job from source to sink: reads, feeds the engine, publishes, and reports to a person."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from ..accounting.losses import PrivacyLoss
from ..connectors.sinks import Sink
from ..connectors.sources import FileSource
from ..engine.batch_budget import check_opened
from ..engine.engine import Engine
from ..engine.first_records import NO_RECORDS, REMEDIES
from ..engine.keyed import KeyedEngine
from ..errors import BudgetExhausted, ConfigError, LedgerMismatch
from ..ledgers.base import root_of
from ..releases.answers import Answers
from ..releases.base import Release
from ..runtime.garbage import without_garbage_collection
from ..runtime.words import many, were

POLL_RECORDS = 8192
_OF_A_NEW_STREAM = ("too_few", "no_core", "no_match", "no_radius", "too_many", "too_many_values")
"""Refusals that other settings prevent, but only in windows that have no release yet."""


@dataclass(slots=True)
class Summary:
    """What one run did. Counts of records are exact: for the operator, not for publication."""

    records: int = 0
    released: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    republished: int = 0
    already_answered: int = 0
    replayed: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    spent: PrivacyLoss = field(default_factory=PrivacyLoss)
    guarantee: PrivacyLoss = field(default_factory=PrivacyLoss)
    key_share: PrivacyLoss | None = None
    answers: int = 1
    """Number of answers in each window."""
    lost: str | None = None
    """What the sink lacks of what the ledger knows to be published, in a sentence."""
    stopped: BudgetExhausted | None = None
    """Why later windows have no release, with ``budget.exhausted`` = 'stop'."""

    def add(self, releases: Sequence[Release]) -> None:
        for release in releases:
            if release.reason is None:
                self.released += 1
            else:
                self.refused[release.reason] = self.refused.get(release.reason, 0) + 1

    def explain(self, answers: Answers) -> None:
        """Note what the windows' answers are, and what to do about those that were refused."""
        self.answers = len(answers)
        self.hints = {reason: answers.hint(reason) for reason in self.refused}
        for reason in _OF_A_NEW_STREAM:
            if self.hints.get(reason):
                self.hints[reason] += "; for a new stream: these windows stay as they are"

    def as_dict(self) -> dict[str, Any]:
        """Return the summary for programs."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "lost"}  # which is a warning
        stopped = None if self.stopped is None else str(self.stopped)
        share = None if self.key_share is None else self.key_share.as_dict()
        values |= {"spent": self.spent.as_dict(), "guarantee": self.guarantee.as_dict(), "stopped": stopped}
        return values | {"key_share": share}

    @property
    def warnings(self) -> list[str]:
        """List what to check before the releases are used."""
        rejected, text = sum(self.rejected.values()), [] if self.lost is None else [self.lost]
        if self.records == 0:
            text.append(NO_RECORDS)
        elif rejected == self.records:
            text.append("every record was rejected; the windows are released nevertheless, and only once")
        elif 2 * rejected > self.records:
            text.append("most records were rejected")
        if 2 * rejected > self.records:
            most = max(self.rejected, key=self.rejected.__getitem__)
            if most in REMEDIES:
                text[-1] += f"; check {REMEDIES[most]} ({most})"
        return text

    @property
    def _cap(self) -> str:
        """What the most charged block may spend: of a divided budget one key's share."""
        share = self.key_share
        return str(self.guarantee) if share is None else f"{share}, one key's share of {self.guarantee}"

    def lines(self) -> list[str]:
        refused, rejected = sum(self.refused.values()), sum(self.rejected.values())
        done = self.released + refused
        what = many(done // self.answers, "window")
        what = what if self.answers == 1 else f"{many(done, 'answer')} about {what}"
        text = [
            f"{what}: {self.released} released, {refused} refused" + _reasons(self.refused),
            f"{many(self.records, 'record')} read, {rejected} rejected{_reasons(self.rejected)}",
            f"most charged block: {self.spent} of {self._cap}; {self.seconds:.1f} s",
        ]
        text += [f"{reason}: {hint}" for reason, hint in sorted(self.hints.items()) if hint]
        if self.republished:
            again = many(self.republished, "release")
            text.append(f"{again} sealed by an earlier run {were(self.republished)} published again, unchanged")
        if self.already_answered:
            one = self.already_answered == 1
            text.append(
                f"{many(self.already_answered, 'window')} {were(self.already_answered)} answered by an earlier run "
                f"and {'stays as it is' if one else 'stay as they are'}"
            )
        if self.replayed:
            where = "that window" if self.already_answered == 1 else "those windows"
            verb = "lies" if self.replayed == 1 else "lie"
            text.append(f"{many(self.replayed, 'record')} {verb} in {where} and changed nothing")
        return text + [f"warning: {warning}" for warning in self.warnings]


PAUSE_S = 0.5
"""Seconds between two updates of a line on a terminal."""


class ProgressLine:
    """Shows progress: a line that is updated on a terminal, a line now and then elsewhere; nothing in short runs."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._pause = PAUSE_S if self._live else 15.0
        self._last = time.monotonic()
        self._shown = False
        self._compiled = 0

    def show(self, text: str, part: float | None = None) -> None:
        """Show what is going on, at most every `PAUSE_S`; `part` is the share done, None if that is not known."""
        if time.monotonic() - self._last >= self._pause:
            self._write(text, part)

    def saw(self, releases: Sequence[Release]) -> None:
        """Note what was released; a line of text shows nothing of it."""

    def painted(self, text: str, part: float | None) -> str:
        """Return a line as a terminal shows it."""
        return text

    def compiling(self) -> None:
        """Show on a terminal that functions are compiled, because those seconds would be taken for a fault."""
        self._compiled += 1
        if self._live:
            functions = many(self._compiled, "function")
            self._write(f"compiling for the first time, which later runs do without ({functions} so far)")

    def clear(self) -> None:
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def make_room(self) -> None:
        """Clear the line before something is written to standard output, which may be the same terminal."""
        if self._shown and sys.stdout is not None and sys.stdout.isatty():
            self.clear()

    def _write(self, text: str, part: float | None = None) -> None:
        self._last = time.monotonic()
        self._shown = self._shown or self._live
        self._out.write(f"\r\x1b[K{self.painted(text, part)}" if self._live else f"{text}\n")
        self._out.flush()


class Pace:
    """Measures the progress of one part of a run, and estimates how long the rest will take at the same speed."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def text(self, part: float | None) -> str:
        """Format progress and estimate; `part` is the share done, between 0 and 1, or None if that is not known."""
        if part is None:
            return ""
        left = (time.monotonic() - self._started) * (1 - part) / part if part > 0 else math.inf
        return f", {part:.0%}" + (f", about {_time(left)} left" if math.isfinite(left) else "")


@without_garbage_collection()
def run(
    engine: Engine | KeyedEngine, source: FileSource, sink: Sink, *, progress: ProgressLine | None = None
) -> Summary:
    """Run one job to the end of its source, or until its budget stops it, as the summary's `stopped` then says.

    Parameters
    ----------
    engine : Engine or KeyedEngine
        Must be open, because a run that cannot charge reads nothing. Its ledger is closed at the end.
    source, sink
        Must be open; the caller closes them.

    Raises
    ------
    FcstreamError
    """
    progress = progress or ProgressLine()
    started = time.perf_counter()
    summary = Summary()
    try:
        if engine.job.clock != "eof":
            raise ConfigError(
                f"must be 'eof' for files and pipes, got {engine.job.clock!r}: live clocks work through `Engine.push`",
                "window.clock",
            )
        check_opened(engine)
        check_sink_matches_ledger(engine, sink)
        publish_left_over(engine, sink, summary)
        summary.already_answered = engine.answered
        pace = Pace()
        while (batch := source.poll(POLL_RECORDS)) is not None:
            summary.records += batch.seen
            engine.take(batch)
            part = source.part_read()
            progress.show(f"{summary.records:,} records read{pace.text(part)}", part)
        pace, due = Pace(), sum((part.job.schedule.count or 0) - part.answered for part in engine.parts)
        due = due if engine.job.finder is None else 0  # which keys later windows have is not known yet
        for group in closing(engine, summary):
            progress.make_room()
            sink.write(group)
            engine.acknowledge()
            summary.add(group)
            progress.saw(group)
            done = summary.released + sum(summary.refused.values())
            done //= len(engine.job.answers)
            of = f" of {due:,}" if due else ""
            part = done / due if due else None
            progress.show(f"{done:,}{of} windows released{pace.text(part)}", part)
        summary.explain(engine.job.answers)
        summary.rejected, summary.replayed = engine.rejected, engine.replayed
        summary.spent, summary.guarantee, summary.key_share = engine.spent, engine.guarantee, engine.job.terms.key_share
    finally:
        progress.clear()
        engine.abort()
    summary.seconds = time.perf_counter() - started
    return summary


def closing(engine: Engine | KeyedEngine, summary: Summary) -> Iterator[list[Release]]:
    """Yield what `engine.closing` yields, up to where the budget stops it; then the summary notes the reason."""
    try:
        yield from engine.closing()
    except BudgetExhausted as stopped:
        summary.stopped = stopped


def check_sink_matches_ledger(engine: Engine | KeyedEngine, sink: Sink) -> None:
    """Check that the ledger knows the last window of the engine's streams that the sink holds.

    If it does not, the ledger was lost or exchanged, and releasing these windows again would spend their budget twice.

    Raises
    ------
    LedgerMismatch
    """
    last = sink.last_of(own_streams(engine))
    if last is not None and not engine.knows(last):
        raise LedgerMismatch(
            f"the sink holds the release of window {last.window_open_ms} of {last.stream!r}, the "
            "ledger does not know it: the ledger was lost or exchanged; restore it, or start a "
            "stream under a new name",
            remedy="if the stream was retired, name another sink for the one that follows it",
        )


def own_streams(engine: Engine | KeyedEngine) -> Callable[[str], bool]:
    """Return whether a name is that of a stream of this engine; keys that are found may have been others before."""
    terms = engine.job.terms
    if engine.job.finder is not None:
        return lambda stream: root_of(stream) == terms.root
    return frozenset(part.job.terms.stream for part in engine.parts).__contains__


def publish_left_over(engine: Engine | KeyedEngine, sink: Sink, summary: Summary) -> None:
    """Publish releases that an earlier run sealed and that the sink may not have."""
    sealed = engine.unpublished()
    summary.lost = lost_releases(engine, sink, sealed)
    missing = sink.missing(sealed)
    if missing:
        sink.write(missing)
    engine.acknowledge()
    summary.republished = len(missing)


def lost_releases(engine: Engine | KeyedEngine, sink: Sink, unpublished: Sequence[Release]) -> str | None:
    """Return a warning if a sink that can be searched ends before the newest window that the ledger has acknowledged.

    `unpublished` are the releases that the ledger holds unacknowledged: the newest windows of their streams.
    """
    if not sink.finds_streams or engine.job.finder is not None:  # whose keys come and go
        return None
    waiting = Counter(stream for stream, _ in {(release.stream, release.window_open_ms) for release in unpublished})
    newest = max(
        (
            part.job.schedule.window(part.next_index - 1 - waiting[part.job.terms.stream]).open_ms
            for part in engine.parts
            if part.answered > waiting[part.job.terms.stream]
        ),
        default=None,
    )
    if newest is None:
        return None
    last = sink.last_of(own_streams(engine))
    remedy = "`fcstream budget releases` prints all of them, unchanged and for nothing"
    if last is None:
        return f"the sink holds no release of this stream, the ledger knows those of windows up to {newest}: {remedy}"
    ends = last.window_open_ms
    if ends < newest or (ends == newest and (last.place or 0) < len(engine.job.answers) - 1):
        at = f"at window {ends}" if ends < newest else f"in the middle of window {newest}"
        return f"the sink ends {at}, the ledger knows the releases up to window {newest}: {remedy}"
    return None


def _time(seconds: float) -> str:
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.0f} h"


def _reasons(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{name} {n}' for name, n in sorted(counts.items()))})" if counts else ""
