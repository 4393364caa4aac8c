"""Checks the first lines of a source before anything is spent: can a configuration use any of them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..config import Config, Job, SourceSection
from ..connectors import is_live, is_pipe, open_source
from ..connectors.sources import MeasuredSource, Source
from ..errors import ConfigError
from ..formats.batch import Batch
from ..formats.registry import FORMATS
from ..stream.admission import admit, part_codes
from .batch import NO_RECORDS, REMEDIES

LINES = 1000
_MAX_REASONS = 5
_OUTSIDE = "outside the schedule (`window.start`, `window.end`)"


def check_pipe(source: SourceSection) -> None:
    """Refuse a format whose messages do not fit on lines, where the source is a pipe.

    Raises
    ------
    ConfigError
    """
    if is_pipe(source.url) and not FORMATS[source.format].is_line:
        known = ", ".join(repr(name) for name, each in FORMATS.items() if each.is_line)
        raise ConfigError(
            f"must be one of {known} for this source, whose messages are lines, got {source.format!r}", "source.format"
        )


@dataclass(slots=True)
class InputCheck:
    """What became of the first lines. Counts are exact: for the operator, not for publication.

    Attributes
    ----------
    lines, usable : int
        A record with a valid time outside the schedule counts as usable, unless another unit would bring it inside: a
        sorted file may begin before the schedule.
    outside : int
        Number of usable records that lie outside the schedule.
    reasons : Counter
        Number of other records by reason and field (None: the whole line).
    units : Counter
        ``stream.time_unit`` that would bring records into the schedule.
    settings : dict
        Where the configuration names each field.
    """

    lines: int = 0
    usable: int = 0
    outside: int = 0
    reasons: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    settings: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        reasons = [{"reason": name, "field": where, "lines": n} for (name, where), n in self.reasons.most_common()]
        counts = {"lines": self.lines, "usable": self.usable, "outside": self.outside}
        return counts | {"rejected": reasons, "time_units": dict(self.units)}

    def text(self) -> list[str]:
        """Format the result for people."""
        if not self.lines:
            return ["the source holds no records"]
        text = [f"{self.usable} of the first {self.lines} lines can be used"]
        if self.outside:
            text.append(f"{self.outside} of them lie {_OUTSIDE}")
        text += [f"{n}: {_named(name, where)}" for (name, where), n in self.reasons.most_common()]
        most_unusable = 2 * self.usable < self.lines  # of some bad records among good ones no setting is to blame
        return text + ([f"check {self._remedy()}"] if most_unusable else [])

    def warnings(self) -> list[str]:
        """List what should be checked before anything is charged, though it stops no run."""
        if not self.lines:
            return [NO_RECORDS]
        if self.usable and self.outside == self.usable:
            return [f"all {self.usable} usable lines of the first {self.lines} lines lie {_OUTSIDE}"]
        return []

    def check_usable(self) -> None:
        """Raise an error, before anything is charged, if no line can be used.

        Raises
        ------
        ConfigError
            There are lines, and none of them can be used.
        """
        if self.lines and not self.usable:
            most = ", ".join(f"{n} {_named(*which)}" for which, n in self.reasons.most_common(_MAX_REASONS))
            raise ConfigError(
                f"must hold records that can be used, none of the first {self.lines} lines can ({most}): check "
                f"{self._remedy()}; nothing was charged",
                "source.url",
            )

    def _remedy(self) -> str:
        (reason, where), _ = self.reasons.most_common(1)[0]
        if reason == "time_out_of_range":
            return f"`stream.time_unit`: {self.units.most_common(1)[0][0]!r} would bring times into the schedule"
        if reason == "missing" and where in self.settings:
            return f"{self.settings[where]} (field {where!r})"
        return f"{REMEDIES.get(reason, 'that record')}{f' (field {where!r})' if where else ''}"


def check_lines(config: Config, lines: int = LINES) -> InputCheck:
    """Check the first lines of a configuration's file; nothing is charged, released or written.

    Raises
    ------
    ConfigError
        The source is missing, or not a file.
    SourceError
    """
    if config.source is None:
        raise ConfigError("is required, in the file or as --source", "source.url")
    if is_live(config.source.url):
        raise ConfigError(
            "must be a file's: a live stream says by itself (/ready, log) what it cannot use", "source.url"
        )
    opened = open_source(config.source.url, config.job.schema, config.source.csv_dialect())
    with closing(SampledSource(opened)) as source:
        return source.sample(config.job, lines)


class SampledSource:
    """A source whose first lines are checked before it is read; a `Source`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._waiting: list[Batch] = []

    def sample(self, job: Job, lines: int = LINES) -> InputCheck:
        """Check the first lines; they are polled again afterwards."""
        found = InputCheck(settings=_settings(job))
        while found.lines < lines and (batch := self._source.poll(lines - found.lines)) is not None:
            self._waiting.append(batch)
            count_usable(job, batch, found)
        return found

    def poll(self, max_records: int) -> Batch | None:
        return self._waiting.pop(0) if self._waiting else self._source.poll(max_records)

    def part_read(self) -> float | None:
        """See `MeasuredSource`."""
        return self._source.part_read() if isinstance(self._source, MeasuredSource) else None

    def close(self) -> None:
        self._source.close()


def count_usable(job: Job, batch: Batch, found: InputCheck) -> None:
    """Count what becomes of a batch of a source that ends, in `found`."""
    rejections = list(batch.rejections)
    found.lines += batch.seen
    rows = np.ones(len(batch.times_ms), np.bool_)
    if job.keys:
        rows = part_codes(batch, {key: i for i, key in enumerate(job.keys)}, job.schema.key, rejections) >= 0
    rest = batch.pick(rows)
    rest.positions = np.arange(len(rest.times_ms))  # those of records that share a message are the same
    admitted = admit(job, rest, None)
    outside = {each.position for each in admitted.rejections if each.reason == "time_out_of_range"}
    rejections += [each for each in admitted.rejections if each.position not in outside]
    found.usable += int(np.count_nonzero(admitted.fine))
    times = rest.times_ms[np.isin(rest.positions, np.fromiter(outside, np.int64, len(outside)))]
    meant = _meant(job, times)
    found.outside += len(times) - sum(meant.values())
    found.usable += len(times) - sum(meant.values())
    found.units.update(meant)
    for each in rejections:
        found.reasons[each.reason, each.field] += each.count
    if meant:
        found.reasons[_out_of_range(job)] += sum(meant.values())


def _settings(job: Job) -> dict[str, str]:
    schema = job.schema
    names = dict.fromkeys(schema.features, "the names of `[[features]]`")
    named = {schema.time: "`stream.time`", schema.user: "`stream.user`", schema.key: "`stream.key`"}
    return names | {name: setting for name, setting in named.items() if name is not None}


def _out_of_range(job: Job) -> tuple[str, str | None]:
    return "time_out_of_range", job.schema.time


def _meant(job: Job, times_ms: np.ndarray[Any, np.dtype[np.int64]]) -> Mapping[str, int]:
    """Find the unit that would bring times into the schedule, and how many: milliseconds read as seconds, or the
    reverse.
    """
    unit = job.schema.time_unit
    others = {"ms": ("s", times_ms * 1000), "s": ("ms", times_ms // 1000)}
    if unit not in others or not len(times_ms):
        return {}
    name, moved = others[unit]
    _, first, last = job.schedule.locate(moved)
    inside = int(np.count_nonzero(first <= last))
    return {name: inside} if inside else {}


def _named(reason: str, where: str | None) -> str:
    return reason if where is None else f"{reason} {where!r}"
