"""Records become batches of columns; whatever is no record becomes a rejection with reason, position and field.

Nothing here, and nothing that leaves here, quotes a record's content.
"""

from __future__ import annotations

import csv
import json
import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .errors import ConfigError, SourceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIME_UNITS = ("ms", "s", "iso8601")
REASONS = (
    "broken_record",  # no JSON object on the line, or a wrong number of cells
    "missing",  # a field is absent, null or empty
    "not_a_number",  # text, a Boolean, a list where a number must stand
    "not_finite",  # NaN, infinity, or beyond a double
    "out_of_range",  # outside the feature's public range
    "bad_time",  # an event time that cannot be read
    "time_out_of_range",  # outside the public schedule, or too far ahead of its own arrival
    "late",  # arrived after close + lateness of every window it belongs to
    "window_closed",  # all its windows were answered already
    "duplicate",  # this source position was taken before
    "bad_user",  # a user's id that is neither text nor a whole number, or longer than `LONGEST_LABEL`
    "unknown_level",  # a Boolean or a category that is none of its declared levels
    "unknown_key",  # a key that is not among the declared ones, or has no place in the partition it came by
)
MAX_TIME_MS = 2**53
LONGEST_LABEL = 1024
"""Characters (bytes, if it comes as such): ids are kept until their window closes."""
_LONGEST_DIAGNOSIS = 2**16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one record was left out: one of `REASONS`, its position in the source, and the field, never its content."""

    reason: str
    position: int
    field: str | None = None


@dataclass(slots=True)
class Batch:
    """Columns of the readable records of one poll, and the rejections of the others.

    Attributes
    ----------
    times_ms : int64 (n,)
    values : float64 (n, d)
        Raw fields in their own units; not yet checked for range.
    positions : int64 (n,)
        Where each record stands in the source: its identity.
    rejections : list of Rejection
    users : array of str (n,), or None
        Whose record it is; None if the stream has no users.
    keys : array of str (n,), or None
        Which part of the stream it belongs to, not yet compared with the declared ones; None if there are no parts.
    """

    times_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    positions: NDArray[np.int64]
    rejections: list[Rejection] = field(default_factory=list)
    users: NDArray[np.object_] | None = None
    keys: NDArray[np.object_] | None = None

    def pick(self, rows: NDArray[Any], rejections: list[Rejection] | None = None) -> Batch:
        """Some of the rows, by mask or index, with other rejections."""
        return Batch(
            self.times_ms[rows],
            self.values[rows],
            self.positions[rows],
            rejections or [],
            None if self.users is None else self.users[rows],
            None if self.keys is None else self.keys[rows],
        )


class SeenPositions:
    """Which source positions were taken, as runs: consecutive positions cost nothing, however many there are."""

    def __init__(self) -> None:
        self._starts = np.empty(0, np.int64)
        self._ends = np.empty(0, np.int64)  # inclusive

    def fresh(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for every position not seen before, and for the first of equal ones."""
        order = np.argsort(positions, kind="stable")
        ordered = positions[order]
        new = np.ones(len(ordered), np.bool_)
        new[1:] = ordered[1:] != ordered[:-1]
        run = np.searchsorted(self._starts, ordered, "right") - 1
        if len(self._starts):
            new &= (run < 0) | (ordered > self._ends[run])
        fresh = np.empty(len(ordered), np.bool_)
        fresh[order] = new
        return fresh

    def add(self, positions: NDArray[np.int64]) -> None:
        """From now on they count as seen."""
        points = np.unique(positions[self.fresh(positions)])
        starts = np.concatenate([self._starts, points])
        ends = np.concatenate([self._ends, points])
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        if len(starts) == 0:
            return
        begins = np.ones(len(starts), np.bool_)
        begins[1:] = starts[1:] > ends[:-1] + 1
        self._starts = starts[begins]
        self._ends = ends[np.append(np.flatnonzero(begins)[1:] - 1, len(ends) - 1)]


@dataclass(frozen=True, slots=True)
class Schema:
    """Which fields make a record: the event time, its unit, the features in order, whose it is (None: nobody's), to
    which part of the stream it belongs (None: there is but one), and the codes of features that are no numbers."""

    time: str
    time_unit: str
    features: tuple[str, ...]
    user: str | None = None
    key: str | None = None
    levels: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """The fields that hold text or whole numbers: user, key."""
        return tuple(name for name in (self.user, self.key) if name is not None)

    def labeled(self, batch: Batch, columns: Sequence[NDArray[np.object_]]) -> Batch:
        """Give a batch the columns of its labels."""
        found = dict(zip(self.labels, columns, strict=True))
        batch.users = None if self.user is None else found[self.user]
        batch.keys = None if self.key is None else found[self.key]
        return batch

    def __post_init__(self) -> None:
        if self.time_unit not in TIME_UNITS:
            raise ConfigError(f"must be one of {list(TIME_UNITS)}, got {self.time_unit!r}", "stream.time_unit")


class Refused(Exception):
    """A cell or record that cannot be used (internal to decoding)."""

    def __init__(self, reason: str, name: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.name = name


def parse_iso8601(text: str) -> int:
    """ISO 8601 text -> Unix milliseconds (rounded down); no zone means UTC, a blank may stand for the T."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def parse_time(value: Any, unit: str) -> int:
    """One event time in `unit` -> Unix milliseconds, rounded down.

    Raises
    ------
    Refused
        ``missing`` or ``bad_time``.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise Refused("missing")
    try:
        if unit == "iso8601":
            return parse_iso8601(value)
        number = parse_number(value)
        # Microseconds are rounded first, so that 1.001 s is 1001 ms.
        millis = number if unit == "ms" else math.floor(round(number * 1e6) / 1e3)
    except (ValueError, TypeError, AttributeError, OverflowError, Refused):
        raise Refused("bad_time") from None
    if abs(millis) > MAX_TIME_MS:
        raise Refused("bad_time")
    return math.floor(millis)


def parse_number(value: Any) -> float:
    """One feature value: an int, a float or, from text sources, the text of one.

    Raises
    ------
    Refused
        ``missing``, ``not_a_number`` or ``not_finite``.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise Refused("missing")
    if isinstance(value, str):
        if "_" in value:
            raise Refused("not_a_number")
    elif isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise Refused("not_a_number")
    try:
        number = float(value)
    except ValueError:
        raise Refused("not_a_number") from None
    except OverflowError:
        raise Refused("not_finite") from None
    if not math.isfinite(number):
        raise Refused("not_finite")
    return number


def parse_level(value: Any, codes: Mapping[Any, int]) -> float:
    """The code of a Boolean or of a category's level.

    Raises
    ------
    Refused
        ``missing`` or ``unknown_level``.
    """
    code = None if isinstance(value, (list, dict)) else codes.get(value)
    if code is None:
        raise Refused("missing" if value is None or value == "" else "unknown_level")
    return float(code)


def parse_label(value: Any, reason: str = "bad_user") -> str:
    """A user's id or a key: text of some length, or a whole number, which is as good as its decimal text.

    Raises
    ------
    Refused
        ``missing``, or `reason`.
    """
    if value is None or value == "" or value == b"":
        raise Refused("missing")
    if isinstance(value, (str, bytes)) and len(value) > LONGEST_LABEL:
        raise Refused(reason)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise Refused(reason)
    try:
        return str(int(value))
    except ValueError:  # more digits than Python writes
        raise Refused(reason) from None


def batch_from_rows(
    rows: Iterable[Mapping[str, Any] | Rejection], positions: Iterable[int], schema: Schema, *, texts: bool = False
) -> Batch:
    """The careful path: one record at a time, every reason told apart. `texts`: numbers come as text.

    It accepts exactly what `batch_from_columns` accepts, or one record's presence would depend on its neighbors.
    """
    times: list[int] = []
    values: list[list[float]] = []
    labels: list[list[str]] = []
    kept: list[int] = []
    rejections: list[Rejection] = []
    for position, row in zip(positions, rows, strict=True):
        if isinstance(row, Rejection):
            rejections.append(row)
            continue
        name = schema.time
        try:
            time = parse_time(row.get(name), schema.time_unit)
            numbers = []
            for name in schema.features:
                value = row.get(name)
                if name in schema.levels:
                    numbers.append(parse_level(value, schema.levels[name]))
                    continue
                if isinstance(value, str) and not texts:
                    raise Refused("not_a_number")
                numbers.append(parse_number(value))
            texts_of = []
            for name in schema.labels:
                texts_of.append(parse_label(row.get(name), _bad_label(schema, name)))
        except Refused as refused:
            rejections.append(Rejection(refused.reason, position, name))
            continue
        times.append(time)
        values.append(numbers)
        labels.append(texts_of)
        kept.append(position)
    batch = Batch(
        np.array(times, np.int64),
        np.array(values, np.float64).reshape(len(values), len(schema.features)),
        np.array(kept, np.int64),
        rejections,
    )
    return schema.labeled(batch, [as_objects([row[k] for row in labels]) for k in range(len(schema.labels))])


def _bad_label(schema: Schema, name: str) -> str:
    return "bad_user" if name == schema.user else "unknown_key"


def as_objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """A column of Python objects, whatever they are."""
    column = np.empty(len(values), np.object_)
    column[:] = values
    return column


def batch_from_columns(
    stamps: NDArray[np.float64],
    columns: Sequence[NDArray[np.float64]],
    positions: NDArray[np.int64],
    schema: Schema,
    labels: Sequence[NDArray[np.object_]],
) -> tuple[Batch, NDArray[np.int64]]:
    """The fast path: whole columns of numbers (times in ms), NaN for what is missing or odd; labels as text, None or
    empty likewise.

    Returns the batch of complete rows and the indices of the rows that need the careful path.
    """
    values = np.empty((len(positions), len(columns)))
    for k, column in enumerate(columns):
        values[:, k] = column
    with np.errstate(invalid="ignore"):
        good = np.isfinite(values).all(axis=1) & (np.abs(stamps) <= MAX_TIME_MS)
    for label in labels:
        good &= np.fromiter(
            (text is not None and 0 < len(text) <= LONGEST_LABEL for text in label), np.bool_, len(label)
        )
    if good.all():
        batch = Batch(np.floor(stamps).astype(np.int64), values, positions)
        return schema.labeled(batch, labels), np.empty(0, np.int64)
    batch = Batch(np.floor(stamps[good]).astype(np.int64), values[good], positions[good])
    return schema.labeled(batch, [label[good] for label in labels]), np.flatnonzero(~good)


def merge(first: Batch, second: Batch) -> Batch:
    """Two batches of one poll, in order of position."""
    positions = np.concatenate([first.positions, second.positions])
    order = np.argsort(positions, kind="stable")
    return Batch(
        np.concatenate([first.times_ms, second.times_ms])[order],
        np.concatenate([first.values, second.values])[order],
        positions[order],
        sorted(first.rejections + second.rejections, key=lambda rejection: rejection.position),
        None if first.users is None or second.users is None else np.concatenate([first.users, second.users])[order],
        None if first.keys is None or second.keys is None else np.concatenate([first.keys, second.keys])[order],
    )


class LineDecoder(Protocol):
    """Turns blocks of complete lines into batches. One line is one record, whatever it holds, so that no line can
    swallow or split another."""

    def decode(self, lines: list[bytes], first_position: int) -> Batch: ...


class Objects:
    """Decoder of one object (JSON, or MessagePack) per record.

    A type made for the schema decides what is a record; only the reason of a refusal is looked up in another way. A
    blank line is no record, and no fault either; a blank message is one.
    """

    def __init__(self, schema: Schema, codec: str = "json", *, are_messages: bool = False) -> None:
        import msgspec

        self._schema = schema
        self._skips_blank = not are_messages
        self._parse: Callable[[bytes], Any] = json.loads if codec == "json" else msgspec.msgpack.Decoder().decode
        decoder: Any = msgspec.json.Decoder if codec == "json" else msgspec.msgpack.Decoder
        time_type: Any = str if schema.time_unit == "iso8601" else float
        self._names = ["time", *(f"f{k}" for k in range(len(schema.features)))]
        self._fields: tuple[str, ...] = (schema.time, *schema.features)
        types: list[tuple[str, Any]] = [
            (name, bool | int | float | str if field in schema.levels else float)
            for name, field in zip(self._names[1:], schema.features, strict=True)
        ]
        for k, name in enumerate(schema.labels):
            self._names.append(f"label{k}")
            self._fields += (name,)
            types.append((f"label{k}", str | int))
        rename = dict(zip(self._names, self._fields, strict=True))
        whole = msgspec.defstruct("Whole", [("time", time_type), *types], rename=rename, gc=False)
        record = msgspec.defstruct(
            "Record",
            [("time", time_type | None, None), *((name, kind | None, None) for name, kind in types)],
            rename=rename,
            gc=False,
        )
        # What the first takes the second takes as well, with the same values, a little slower.
        self._decode_whole = decoder(whole).decode
        self._decode = decoder(record).decode
        self._as_tuple = msgspec.structs.astuple
        self._is_plain = not (schema.labels or schema.levels) and schema.time_unit != "iso8601"  # all of it numbers
        self._pack = struct.Struct(f"{len(self._names)}d").pack
        self._errors = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
        self._getters = [operator.attrgetter(name) for name in self._names]

    def decode(self, lines: list[bytes], first_position: int) -> Batch:
        """Lines without their ends, the first of which has `first_position`."""
        positions = np.arange(first_position, first_position + len(lines))
        try:
            if self._is_plain:
                table = self._table(lines)
                return self._batch(table[0], list(table[1:]), [], lines, positions)
            records: list[Any] = list(map(self._decode_whole, lines))
        except self._errors:
            try:
                records = list(map(self._decode, lines))
            except self._errors:
                return self._careful(lines, positions.tolist())
        times, columns = self._columns(records)
        labels = [
            as_objects([str(name) if type(name) is int else name for name in map(get, records)])
            for get in self._getters[1 + len(columns) :]
        ]
        return self._batch(times, columns, labels, lines, positions)

    def _batch(
        self,
        times: Iterable[Any],
        columns: Sequence[NDArray[np.float64]],
        labels: Sequence[NDArray[np.object_]],
        lines: list[bytes],
        positions: NDArray[np.int64],
    ) -> Batch:
        stamps = _stamps(times, len(lines), self._schema)
        batch, odd = batch_from_columns(stamps, columns, positions, self._schema, labels)
        if len(odd) == 0:
            return batch
        return merge(batch, self._careful([lines[i] for i in odd], positions[odd].tolist()))

    def _table(self, lines: list[bytes]) -> NDArray[np.float64]:
        """Times and features of whole records, (1 + d, n); each is gone before the next one is made, which is quick."""
        rows = map(self._as_tuple, map(self._decode_whole, lines))
        return np.frombuffer(b"".join(starmap(self._pack, rows))).reshape(len(lines), len(self._names)).T

    def _columns(self, records: list[Any]) -> tuple[Iterable[Any], Sequence[NDArray[np.float64]]]:
        """Times and features."""
        n, width = len(records), 1 + len(self._schema.features)
        schema = self._schema
        if self._is_plain:
            table = np.fromiter(chain.from_iterable(map(self._as_tuple, records)), np.float64, n * width)
            times, *columns = table.reshape(n, width).T
            return times, columns
        pairs = zip(self._getters[1:width], schema.features, strict=True)
        columns = [_coded(map(get, records), n, schema.levels.get(name)) for get, name in pairs]
        return map(self._getters[0], records), columns

    def _careful(self, lines: Sequence[bytes], positions: Sequence[int]) -> Batch:
        rows: list[Mapping[str, Any] | Rejection] = []
        kept: list[int] = []
        for line, position in zip(lines, positions, strict=True):
            if self._skips_blank and not line.strip():
                continue
            kept.append(position)
            try:
                record = self._decode(line)
            except self._errors:
                rows.append(self._diagnose(line, position))
            else:
                rows.append({f: get(record) for f, get in zip(self._fields, self._getters, strict=True)})
        return batch_from_rows(rows, kept, self._schema)

    def _diagnose(self, line: bytes, position: int) -> Rejection:
        """Why a line that the typed decoder refuses is no record; long ones are not worth the while."""
        if len(line) > _LONGEST_DIAGNOSIS:
            return Rejection("broken_record", position)
        try:
            row = self._parse(line)
        except (*self._errors, ValueError):
            return Rejection("broken_record", position)
        if isinstance(row, dict):
            for name in self._fields:
                is_time = name == self._schema.time
                value = row.get(name)
                try:
                    if is_time:
                        parse_time(value, self._schema.time_unit)
                    elif name in self._schema.labels:
                        parse_label(value, _bad_label(self._schema, name))
                    elif name in self._schema.levels:
                        parse_level(value, self._schema.levels[name])
                    elif isinstance(value, str):
                        raise Refused("not_a_number")
                    else:
                        parse_number(value)
                except Refused as refused:
                    return Rejection(refused.reason, position, name)
                if is_time and isinstance(value, str) != (self._schema.time_unit == "iso8601"):
                    return Rejection("bad_time", position, name)
        return Rejection("broken_record", position)


class JsonLines(Objects):
    """Decoder of JSON lines."""


class CsvRows:
    """Decoder of CSV lines under one header. A quoted cell may hold commas and doubled quotes, not a line break."""

    def __init__(self, schema: Schema, header: bytes) -> None:
        self._schema = schema
        columns = self._cells(header.removeprefix(b"\xef\xbb\xbf"))
        self._width = len(columns)
        self._names = [schema.time, *schema.features, *schema.labels]
        for name in self._names:
            if name not in columns:
                raise SourceError(
                    f"the first line must name the column {name!r} (it has {len(columns)} cells): check the header, "
                    "`stream` and `features`"
                )
        self._columns = [columns.index(name) for name in self._names]

    def decode(self, lines: list[bytes], first_position: int) -> Batch:
        """Lines without their ends, the first of which has `first_position`."""
        positions = np.arange(first_position, first_position + len(lines))
        rows = list(map(self._cells, lines))
        widths = set(map(len, rows))
        if widths != {self._width}:
            return self._careful(rows, positions.tolist())
        columns = list(zip(*rows, strict=True))
        picked = [columns[k] for k in self._columns]
        times = picked[0] if self._schema.time_unit == "iso8601" else _numbers(picked[0])
        numbers = picked[1 : 1 + len(self._schema.features)]
        batch, odd = batch_from_columns(
            _stamps(times, len(rows), self._schema),
            [
                _coded(column, len(rows), self._schema.levels[name])
                if name in self._schema.levels
                else _numbers(column)
                for name, column in zip(self._schema.features, numbers, strict=True)
            ],
            positions,
            self._schema,
            [as_objects(column) for column in picked[1 + len(numbers) :]],
        )
        if len(odd) == 0:
            return batch
        return merge(batch, self._careful([rows[i] for i in odd], positions[odd].tolist()))

    @staticmethod
    def _cells(line: bytes) -> list[str]:
        text = line.decode("utf-8", "surrogateescape")
        if '"' not in text:
            return text.rstrip("\r").split(",")
        try:
            return next(csv.reader([text], strict=True), [])
        except csv.Error:
            return []

    def _careful(self, rows: Sequence[Sequence[str]], positions: Sequence[int]) -> Batch:
        names = self._names
        mapped: list[Mapping[str, Any] | Rejection] = []
        kept: list[int] = []
        for row, position in zip(rows, positions, strict=True):
            if len(row) == 1 and not row[0].strip():  # a blank line
                continue
            kept.append(position)
            if len(row) != self._width:
                mapped.append(Rejection("broken_record", position))
            else:
                mapped.append({name: row[k] for name, k in zip(names, self._columns, strict=True)})
        return batch_from_rows(mapped, kept, self._schema, texts=True)


def _stamps(times: Iterable[Any], count: int, schema: Schema) -> NDArray[np.float64]:
    """Event times in milliseconds as float64, NaN for whatever the careful path must look at."""
    if schema.time_unit == "iso8601":
        return np.fromiter(map(_iso_or_nan, times), np.float64, count)
    stamps = times if isinstance(times, np.ndarray) else np.fromiter(times, np.float64, count)
    if schema.time_unit == "ms":
        return stamps
    with np.errstate(over="ignore", invalid="ignore"):
        return np.floor(np.round(stamps * 1e6) / 1e3)


def _iso_or_nan(text: str | None) -> float:
    try:
        return float(parse_iso8601(text)) if text else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _coded(values: Iterable[Any], count: int, codes: Mapping[Any, int] | None) -> NDArray[np.float64]:
    """Codes of a column of levels, NaN for what has none; numbers as they are."""
    if codes is None:
        return np.fromiter(values, np.float64, count)
    return np.fromiter((codes.get(value, math.nan) for value in values), np.float64, count)


def _numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    """Numbers of a column of texts; NaN for whatever the careful path must look at."""
    if "_" not in "".join(texts):
        try:
            return np.array(list(map(float, texts)), np.float64)
        except ValueError:
            pass
    return np.fromiter(map(_number_or_nan, texts), np.float64, len(texts))


def _number_or_nan(text: str) -> float:
    try:
        return parse_number(text)
    except Refused:
        return math.nan
