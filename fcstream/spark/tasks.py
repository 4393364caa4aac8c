"""Functions that run in tasks: messages become blocks of records, and blocks of a closing window what its release
reads.

All of them are functions of their input, except for the coins of sampled pairs, so a task that is tried again, or twice
at once, does no harm. Nothing here draws noise or touches a ledger.
"""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..config import Job
from ..connectors import open_decoder
from ..counting.threads import one_thread
from ..errors import ConfigError, FcstreamError, Shown
from ..formats.batch import Batch, Rejection
from ..formats.csv_dialect import CsvDialect
from ..formats.decoders import CsvRows, LineDecoder
from ..formats.envelopes import NOTHING
from ..formats.nested import objects_decoder
from ..formats.payloads import read_messages
from ..formats.rejections import tallied, total
from ..noise.samplers import Noise
from ..releases.answers import AnswerCounters, groups_of
from ..releases.record_gate import GatedView
from ..stream.admission import Admitted, admit, part_codes
from ..stream.selection import with_codes
from ..stream.user_groups import UserGroups
from ..stream.windows import group_by_pane
from .blocks import WindowRecords, cut, gather

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
CLOCK, NOTES = -1, -2
"""Used in place of a window: for the public time up to which all was read, and for reports of messages."""
MESSAGES = "partition STRING, position LONG, stamp LONG, body BINARY, clock TIMESTAMP"
BLOCKS = "key STRING, window LONG, clock TIMESTAMP, block BINARY"
COUNTED = "key STRING, window LONG, piece INT, pieces INT, body BINARY"
PIECE_BYTES = 1 << 25
"""Largest number of bytes of a body in one row."""
_LONGEST_LINE = 1 << 20


class TaskReport(msgspec.Struct, array_like=True, frozen=True):
    """What became of some messages: for the operator only."""

    messages: int
    records: int
    unread: int
    replayed: int
    rejections: list[tuple[str, int, str | None, int]]

    def rejected(self) -> list[Rejection]:
        return [Rejection(*each) for each in self.rejections]


class TaskFailed(FcstreamError):
    """A task failed with an error whose text may quote a record: only the kind of the error is kept."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"a task failed ({kind})")


def guarded(function: Callable[..., Iterator[T]]) -> Callable[..., Iterator[T]]:
    """Replace the errors of a generator in a task, because Spark logs their text, which could quote a record."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except (FcstreamError, GeneratorExit):
            raise
        except Exception as error:
            raise TaskFailed(type(error).__name__) from None

    return run


def admitted(job: Job, batch: Batch, arrivals: NDArray[np.int64] | None) -> Admitted:
    """Decide about the records of a batch; lattice points have the codes of texts that conditions ask for."""
    found = admit(job, batch, arrivals)
    return replace(found, points=with_codes(found.points, job.text_codes, batch.texts))


@dataclass(frozen=True)
class Admission:
    """Turns messages into blocks of admitted records and reports: for `DataFrame.mapInArrow`.

    Attributes
    ----------
    job : Job
        Job of the whole stream.
    answered : dict of str to int
        The first window without a release, by key ("" for a stream without keys).
    decode : callable
        Makes the reader of (partition, offsets, timestamps, bodies).
    """

    job: Job
    answered: Mapping[str, int]
    decode: Callable[[Job], Reader]

    @guarded
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        reader = self.decode(self.job)
        for batch in batches:
            partitions, offsets, timestamps, bodies, clocks = (batch.column(i) for i in range(5))
            rows: list[tuple[str, int, bytes]] = []
            names = np.asarray(partitions.to_numpy(zero_copy_only=False), np.object_)
            for here in _runs(names):
                name = str(names[here.start])
                if name == "":  # the clock, whose timestamp is a public time
                    rows += [("", CLOCK, b"")] * (here.stop - here.start)
                    continue
                place = offsets.to_numpy(zero_copy_only=False)[here], timestamps.to_numpy(zero_copy_only=False)[here]
                rows += self._blocks(name, *reader(name, *place, bodies[here.start : here.stop].to_pylist()))
            if rows:
                keys, windows, packed = zip(*rows, strict=True)
                yield pyarrow.RecordBatch.from_arrays(
                    [
                        pyarrow.array(keys, pyarrow.string()),
                        pyarrow.array(windows, pyarrow.int64()),
                        # All rows of a micro-batch have the same clock.
                        pyarrow.array([clocks[0].as_py()] * len(rows), pyarrow.timestamp("us", "UTC")),
                        pyarrow.array(packed, pyarrow.binary()),
                    ],
                    ["key", "window", "clock", "block"],
                )

    def _blocks(
        self, partition: str, batch: Batch, arrivals: NDArray[np.int64] | None, messages: int
    ) -> list[tuple[str, int, bytes]]:
        job, rejections = self.job, list(batch.rejections)
        records, unread = len(batch.times_ms), total(batch.rejections)
        names = job.keys or ("",)
        if job.keys:
            codes = part_codes(batch, {key: i for i, key in enumerate(names)}, job.schema.key, rejections)
            batch, arrivals = batch.pick(codes >= 0), None if arrivals is None else arrivals[codes >= 0]
            codes = codes[codes >= 0]
        else:
            batch.rejections = []
            codes = np.zeros(len(batch.times_ms), np.int64)
        found = admitted(job, batch, arrivals)
        rejections += found.rejections
        answered = [self.answered[name] for name in names]
        replayed = int(np.count_nonzero(found.fine & (found.last < np.array(answered, np.int64)[codes])))
        blocks = cut(partition, batch, found, codes, answered, job.texts)
        rows = [(names[code], window, packed) for code, window, packed in blocks]
        rejected = [(each.reason, each.position, each.field, each.count) for each in tallied(rejections)]
        note = TaskReport(messages, records, unread, replayed, rejected)
        return [*rows, (partition, NOTES, msgspec.msgpack.encode(note))]


Reader = Callable[
    [str, "NDArray[np.int64]", "NDArray[np.int64]", list[bytes]], tuple[Batch, "NDArray[np.int64] | None", int]
]
"""Turns partition, offsets, timestamps and bodies into records, their arrivals, and the number of messages."""


@dataclass(frozen=True)
class MessageReader:
    """Reads a broker's messages of a declared format."""

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, job: Job) -> Reader:
        decoder = open_decoder(self.format, job.schema, self.options)

        def read(
            _name: str, offsets: NDArray[np.int64], timestamps: NDArray[np.int64], bodies: list[bytes]
        ) -> tuple[Batch, NDArray[np.int64], int]:
            envelopes = [NOTHING] * len(bodies) if job.schema.asked else ()
            batch, arrivals, _ = read_messages(decoder, offsets, timestamps, bodies, envelopes)
            return batch, arrivals, len(bodies)

        return read


@dataclass(frozen=True)
class LineReader:
    """Reads lines of files: JSON, or CSV (with a dialect), under one header, which every file must have if the dialect
    has none. Lines are counted here."""

    header: bytes | None = None
    dialect: CsvDialect | None = None

    def __call__(self, job: Job) -> Reader:
        job.schema.refuse_envelopes("files")
        decoder: LineDecoder = objects_decoder(job.schema)
        if self.dialect is not None:
            decoder = CsvRows(job.schema, self.header or b"", self.dialect)
        seen: dict[str, int] = {}

        def read(
            name: str, offsets: NDArray[np.int64], _: NDArray[np.int64], lines: list[bytes]
        ) -> tuple[Batch, None, int]:
            first = seen.get(name, 0)
            seen[name] = first + len(lines)
            if self.header is not None and first == 0 and int(name.rpartition(" ")[2]) == 0:
                if lines[0].rstrip(b"\r") != self.header.rstrip(b"\r"):
                    raise ConfigError(
                        "must name files that all start with the same header line",
                        "source.url",
                        got=Shown(f"another one in {name.rpartition(' ')[0]}"),
                        remedy="name them apart, or give them one header",
                    )
                first, lines = 1, lines[1:]
            fit = [line if len(line) <= _LONGEST_LINE else b"\0" for line in lines]
            return decoder.decode(fit, first), None, len(lines)

        return read


def _runs(names: NDArray[np.object_]) -> list[slice]:
    cuts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    return [slice(a, b) for a, b in itertools.pairwise(cuts) if b > a]


# -- closing -------------------------------------------------------------------------------------------------------


def count_window(job: Job, packed: Sequence[bytes], window: int, splits: bool = False) -> bytes:
    """Compute what a closing window's release reads, from the blocks of its records.

    Parameters
    ----------
    job : Job
    packed : sequence of bytes
        Blocks in any order, repeated ones too.
    window : int
        Index of the window.
    splits : bool
        Leave the pairs of points for many tasks to compare; the result is then the points, in order.
    """
    rows = gather(packed, job.width)
    if job.terms.unit == "user":
        users = UserGroups(job.width, groups_of(job.answers))
        users.keep_texts(None)  # the driver chooses among them, since its ledger's secret stays there
        users.add(window, rows.users, rows.times_ms, rows.points, rows.texts)
        return pickle.dumps(("users", users.give(window)), 5)
    if job.gate is not None and len(rows.points) > job.gate.max_held:
        return too_many(len(rows.points))
    if splits:
        return pickle.dumps(("points", rows.points[np.argsort(rows.panes, kind="stable")]), 5)
    with one_thread():  # a task has one core
        return pickle.dumps(("view", _count(job, rows, window)), 5)


def too_many(size: int) -> bytes:
    """Return what the release reads of a window that holds more records than any that is not refused."""
    return pickle.dumps(("view", GatedView(size, None)), 5)


def _count(job: Job, rows: WindowRecords, window: int) -> Any:
    counter = job.answers.counter(job.grid.dimension, job.schedule.reach, Noise())
    for pane, part in group_by_pane(rows.panes):
        if rows.texts:
            texts = {name: column[part] for name, column in rows.texts.items()}
            cast("AnswerCounters", counter).add(pane, rows.points[part], texts)
        else:
            counter.add(pane, rows.points[part])
    return counter.view(job.schedule.panes(job.schedule.window(window)))


def pieces(body: bytes) -> list[tuple[int, int, bytes]]:
    """Divide a body into rows of bearable size: (number, how many there are, bytes)."""
    starts = range(0, max(1, len(body)), PIECE_BYTES)
    return [(i, len(starts), body[start : start + PIECE_BYTES]) for i, start in enumerate(starts)]
