"""Looks at the first records of a source that ends: if none can be used, a setting is wrong, and nothing is charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..config import Job
from ..errors import UnusableRecords
from ..formats.batch import Batch
from ..runtime.undo import on_error
from ..stream.admission import admit, part_codes

LINES = 1000
"""How many records are looked at."""
REMEDIES = {
    "broken_record": "that `source.url` names the format (jsonl, csv) and that the file is UTF-8",
    "missing": "`stream.time`, `stream.user`, `stream.key` and the names of `[[features]]`",
    "not_a_number": "`[[features]]`: `text = true` reads numbers that are texts, with a decimal point and no comma; "
    "texts that mean no value go in `missing`",
    "out_of_range": "`min` and `max` of `[[features]]`, and their units",
    "bad_time": "`stream.time_unit`: 'iso8601' reads text like 2016-03-15T00:00:00Z, the others read numbers; a date "
    "without a time is none unless windows last whole days",
    "time_out_of_range": "`stream.time_unit`, and `start` and `end` of `[window]`",
    "bad_user": "`stream.user`",
    "unknown_level": "`levels` of `[[features]]`",
    "not_a_text": "the names of `[[features]]` with type = 'text'",
    "too_long": "how many rows a message holds, and `max_bytes` of `[[features]]`",
    "unknown_key": "`stream.key` and `stream.keys`",
    "undiscovered_key": "`fcstream plan`: how many records of a period a key needs to be found; the first period has "
    "`stream.keys.first` only",
}
"""What to check if most records were rejected for a reason of `fcstream.formats.batch.REASONS`."""
NO_RECORDS = "the source held no records; its windows are released nevertheless, and only once"
_MAX_REASONS = 5
_OUTSIDE = "outside the schedule (`window.start`, `window.end`)"


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

    def check_usable(self, what: str = "lines", key: str = "source.url") -> None:
        """Raise an error, before anything is charged, if no line can be used. `what` they are says the error, under a
        `key` of the configuration or an argument.

        Raises
        ------
        UnusableRecords
            There are lines, and none of them can be used.
        """
        if self.lines and not self.usable:
            most = ", ".join(f"{n} {_named(*which)}" for which, n in self.reasons.most_common(_MAX_REASONS))
            counts: Counter[str] = Counter()
            for (reason, _), n in self.reasons.items():
                counts[reason] += n
            raise UnusableRecords(
                f"must hold records that can be used, none of the first {self.lines} {what} can ({most})",
                key,
                dict(counts),
                remedy=f"check {self._remedy()}; nothing was charged",
            )

    def _remedy(self) -> str:
        (reason, where), _ = self.reasons.most_common(1)[0]
        if reason == "time_out_of_range":
            return f"`stream.time_unit`: {self.units.most_common(1)[0][0]!r} would bring times into the schedule"
        if reason == "missing" and where in self.settings:
            return f"{self.settings[where]} (field {where!r})"
        return f"{REMEDIES.get(reason, 'that record')}{f' (field {where!r})' if where else ''}"


class FirstRecords:
    """Looks at the first records that an engine takes, `LINES` or a few more, before it charges for anything.

    Parameters
    ----------
    job : Job
        Nothing is looked at unless its clock is ``eof``: live streams have alarms instead.

    Source
    ------
    Specification 13.2.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._found = InputCheck(settings=settings_of(job)) if job.clock == "eof" else None

    def see(self, batch: Batch) -> None:
        """Look at a batch, the whole of it if none of its first records can be used."""
        found = self._found
        if found is None or found.lines >= LINES:
            return
        head = InputCheck()
        count_usable(self._job, batch.pick(np.arange(min(LINES, len(batch.times_ms)))), head)
        if not head.usable:
            count_usable(self._job, batch, found)
        if head.usable or found.usable:
            self._found = None

    def ignore(self) -> None:
        """Look at nothing: the caller knows that the first records may be of no use."""
        self._found = None

    def check(self, undo: Callable[[], object] = lambda: None) -> None:
        """Raise an error, and call `undo`, if there were records, and none of the first can be used.

        Raises
        ------
        UnusableRecords
        """
        if self._found is not None:
            with on_error(undo):
                self._found.check_usable("records", "records")


def count_usable(job: Job, batch: Batch, found: InputCheck) -> None:
    """Count what becomes of a batch of a source that ends, in `found`."""
    rejections = list(batch.rejections)
    found.lines += batch.seen
    rows = np.ones(len(batch.times_ms), np.bool_)
    if job.keys and batch.keys is not None:
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


def settings_of(job: Job) -> dict[str, str]:
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
