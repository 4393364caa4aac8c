"""Decodes messages of many records in Arrow's IPC format: every row is one record, read independently of the others."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import needs_package
from .batch import (
    Batch,
    Rejection,
    Schema,
    UnusableRecord,
    as_objects,
    bad_label,
    parse_feature,
    parse_label_of,
    parse_time,
    plain_labels,
    ticks_to_ms,
)

_DICTIONARY, _BATCH = 2, 3  # kinds of Arrow messages
_TICKS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""Milliseconds per tick of a timestamp, as a fraction."""
MAX_BATCHES = 2**12
"""How many batches of one message are read at most: even empty batches take memory."""
_NO_TEXT = object()
"""Stands for bytes that are not UTF-8."""


class ArrowBlocks:
    """Decoder of Arrow IPC streams (pyarrow).

    Parameters
    ----------
    schema : Schema
    most_rows : int
        How many rows of one message are read at most.
    """

    def __init__(self, schema: Schema, most_rows: int) -> None:
        with needs_package("pyarrow", "arrow", "source.format"):
            import pyarrow
        self._arrow = pyarrow
        self._schema = schema
        self._most_rows = most_rows

    def decode(self, lines: list[bytes], first_position: int) -> Batch:
        """Decode messages that are whole Arrow streams; columns may be in any order, others are ignored."""
        return _join([self._message(line, first_position + i) for i, line in enumerate(lines)] or [self._nothing([])])

    def _message(self, line: bytes, position: int) -> Batch:
        broken = self._nothing([Rejection("broken_record", position)])
        try:
            found = self._arrow.ipc.open_stream(line).schema
            odd = self._odd_column(found, position)
            if odd is not None:
                return self._nothing([odd])
            if self._is_compressed(line):
                return broken
            wanted = self._arrow.ipc.IpcReadOptions(included_fields=[found.names.index(name) for name in self._names])
            with self._arrow.ipc.open_stream(line, options=wanted) as reader:
                table = self._first_rows(reader)
            self._validate(table)
            return self._rows(table, position)
        # For bytes that are no stream the library raises errors of many types: any of them rejects the message.
        except Exception:
            return broken

    @property
    def _names(self) -> list[str]:
        return [self._schema.time, *self._schema.features, *self._schema.labels]

    def _odd_column(self, found: Any, position: int) -> Rejection | None:
        """Tell what an Arrow stream's schema lacks. It is checked before any column is read, so that a small message
        cannot expand to a large one; all rows of a message share it."""
        for name in self._names:
            if found.names.count(name) != 1:
                return Rejection("missing", position, name)
            if not self._is_flat(name, found.field(name).type):
                reason = "bad_time" if name == self._schema.time else "not_a_number"
                return Rejection(
                    bad_label(self._schema, name) if name in self._schema.labels else reason, position, name
                )
        return None

    def _first_rows(self, reader: Any) -> Any:
        """Read the rows of a message, at most one more than the limit; stops early if there are too many batches."""
        batches, rows = [], 0
        for batch in reader:
            batches.append(batch)
            rows += batch.num_rows
            if rows > self._most_rows or len(batches) > MAX_BATCHES:
                break
        return self._arrow.Table.from_batches(batches, reader.schema)

    def _validate(self, table: Any) -> None:
        """Refuse columns whose buffers are inconsistent. Whether text is UTF-8 is checked row by row."""
        types = self._arrow.types
        if not any(types.is_string(kind) or types.is_large_string(kind) for kind in table.schema.types):
            table.validate(full=True)
            return
        table.validate()
        for column in table.columns:
            for chunk in column.chunks:
                self._as_bytes(chunk).validate(full=True)

    def _as_bytes(self, column: Any) -> Any:
        """Convert a text column to bytes; return any other column unchanged."""
        types = self._arrow.types
        if types.is_string(column.type):
            return column.view(self._arrow.binary())
        return column.view(self._arrow.large_binary()) if types.is_large_string(column.type) else column

    def _rows(self, table: Any, position: int) -> Batch:
        """Read the records of a valid table that has the wanted columns."""
        schema, n = self._schema, min(table.num_rows, self._most_rows)
        rejections: dict[int, Rejection] = {}
        if len(table.columns[0].chunks) > MAX_BATCHES:
            n = min(n, table.num_rows - len(table.columns[0].chunks[-1]))
        if table.num_rows > n or len(table.columns[0].chunks) > MAX_BATCHES:
            rejections[n] = Rejection("too_long", position)
            table = table.slice(0, n)
        values = np.empty((n, len(schema.features)))
        for k, name in enumerate(schema.features):
            values[:, k] = self._feature(table.column(name), name, position, rejections)
        times = self._times(table.column(schema.time), position, rejections)
        labels = [self._label(table.column(name), name, position, rejections) for name in schema.labels]
        good = np.ones(n + 1, np.bool_)
        good[list(rejections)] = False
        good = good[:n]
        batch = Batch(
            times[good],
            values[good],
            np.full(int(good.sum()), position),
            [rejections[i] for i in sorted(rejections)],
        )
        return schema.labeled(batch, [label[good] for label in labels])

    def _feature(
        self, column: Any, name: str, position: int, rejections: dict[int, Rejection]
    ) -> NDArray[np.float64] | list[float]:
        """Read numbers or codes, NaN if an optional one is missing; a row without a required value is rejected."""
        types = self._arrow.types
        if name in self._schema.levels or not (types.is_integer(column.type) or types.is_floating(column.type)):
            return self._parsed(column, name, position, rejections)
        values: NDArray[np.float64] = column.to_numpy().astype(np.float64)
        absent = self._nulls(column)
        bad = np.isinf(values) if name in self._schema.optional else ~np.isfinite(values)
        for i in np.flatnonzero(bad).tolist():
            rejections.setdefault(i, Rejection("missing" if absent[i] else "not_finite", position, name))
        return values

    def _parsed(self, column: Any, name: str, position: int, rejections: dict[int, Rejection]) -> list[float]:
        """Read the values of a column that does not hold numbers, one by one."""
        found = []
        for i, value in enumerate(self._python(column)):
            try:
                found.append(parse_feature(value, name, self._schema))
            except UnusableRecord as refused:
                found.append(0.0)
                rejections.setdefault(i, Rejection(refused.reason, position, name))
        return found

    def _label(self, column: Any, name: str, position: int, rejections: dict[int, Rejection]) -> NDArray[np.object_]:
        """Read users' ids, keys or texts, empty for a row without one."""
        cells, texts = self._python(column), as_objects([""] * len(column))
        todo = list(range(len(cells)))
        if name in self._schema.texts:
            texts = plain_labels(cells, name, self._schema)
            todo = [i for i, text in enumerate(texts) if text is None]
        for i in todo:
            try:
                texts[i] = parse_label_of(cells[i], name, self._schema)
            except UnusableRecord as refused:
                rejections.setdefault(i, Rejection(refused.reason, position, name))
        return texts

    def _times(self, column: Any, position: int, rejections: dict[int, Rejection]) -> NDArray[np.int64]:
        """Read event times in milliseconds, 0 for a row without one."""
        name, unit, types = self._schema.time, self._schema.time_unit, self._arrow.types
        if types.is_timestamp(column.type):  # the type of such a column states its unit
            per_tick, column, unit = _TICKS[column.type.unit], column.cast(self._arrow.int64()), "ms"
        else:
            per_tick = (1, 1)
        times = np.zeros(len(column), np.int64)
        if types.is_integer(column.type) and unit == "ms":
            ticks, absent = (column.fill_null(0) if column.null_count else column).to_numpy(), self._nulls(column)
            times, good = ticks_to_ms(ticks, *per_tick)
            for i in np.flatnonzero(absent | ~good).tolist():
                rejections[i] = Rejection("missing" if absent[i] else "bad_time", position, name)
            return times
        for i, value in enumerate(self._python(column)):
            try:
                times[i] = parse_time(value, unit)
            except UnusableRecord as refused:
                rejections[i] = Rejection(refused.reason, position, name)
        return times

    @staticmethod
    def _nulls(column: Any) -> NDArray[np.bool_]:
        return column.is_null().to_numpy() if column.null_count else np.zeros(len(column), np.bool_)

    def _python(self, column: Any) -> list[Any]:
        """Convert a column to Python values; text that is not UTF-8 becomes a value that every check rejects."""
        try:
            return list(column.to_pylist())
        except UnicodeDecodeError:
            chunks = [self._as_bytes(chunk) for chunk in column.chunks]
            return [None if raw is None else _as_text(raw) for chunk in chunks for raw in chunk.to_pylist()]

    def _is_flat(self, name: str, kind: Any) -> bool:
        """Tell whether a column has a usable type and stores every value: in an encoded column one stored value could
        stand for millions. A column of nulls only has no type of its own, and no more rows than the column of times."""
        types = self._arrow.types
        is_text = types.is_string(kind) or types.is_large_string(kind)
        is_number = types.is_integer(kind) or types.is_floating(kind)
        if name == self._schema.time:
            return bool(is_number or is_text or types.is_timestamp(kind))
        if types.is_null(kind):
            return True
        if name in self._schema.labels:
            return bool(is_text or types.is_integer(kind) or types.is_binary(kind) or types.is_large_binary(kind))
        takes_text = name in self._schema.levels or name in self._schema.missing
        return bool(is_number or (takes_text and (is_text or types.is_boolean(kind))))

    def _is_compressed(self, line: bytes) -> bool:
        """Tell whether any part of the stream that will be read is compressed, or has too many dictionaries."""
        batches = others = 0
        for metadata in self._metadata(line):
            if _is_compressed(metadata) or others > MAX_BATCHES:
                return True
            if _kind(metadata) == _BATCH:
                batches += 1
            else:
                others += 1
            if batches > MAX_BATCHES:
                break
        return False

    def _metadata(self, line: bytes) -> Iterator[bytes]:
        """Of every message of a stream."""
        reader = self._arrow.ipc.MessageReader.open_stream(line)
        with suppress(StopIteration):
            while True:
                yield reader.read_next_message().metadata.to_pybytes()

    def _nothing(self, rejections: list[Rejection]) -> Batch:
        nothing, features = np.empty(0, np.int64), np.empty((0, len(self._schema.features)))
        labels = [as_objects([]) for _ in self._schema.labels]
        return self._schema.labeled(Batch(nothing, features, nothing, rejections), labels)


def _as_text(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _NO_TEXT


def _is_compressed(metadata: bytes) -> bool:
    """Tell whether an Arrow message (a FlatBuffer) declares compressed buffers, which the library does not report.

    15 kB of compressed data can expand to a gigabyte.
    """
    message = _u32(metadata, 0)
    kind_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
    if not (kind_at and header_at):
        return False
    kind, batch = metadata[kind_at], header_at + _u32(metadata, header_at)
    if kind == _DICTIONARY:
        data_at = _field(metadata, batch, 1)
        if not data_at:
            return False
        kind, batch = _BATCH, data_at + _u32(metadata, data_at)
    return kind == _BATCH and _field(metadata, batch, 3) != 0


def _kind(metadata: bytes) -> int:
    """Return the kind of an Arrow message: a schema, a dictionary or a batch of records."""
    at = _field(metadata, _u32(metadata, 0), 1)
    return metadata[at] if at else 0


def _field(data: bytes, table: int, number: int) -> int:
    """Return the offset of a field of a FlatBuffer's table; 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    if 6 + 2 * number > size:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _join(parts: Sequence[Batch]) -> Batch:
    """Join the batches of messages, in order."""
    users = [part.users for part in parts if part.users is not None]
    keys = [part.keys for part in parts if part.keys is not None]
    return Batch(
        np.concatenate([part.times_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.positions for part in parts]),
        [rejection for part in parts for rejection in part.rejections],
        np.concatenate(users) if users else None,
        np.concatenate(keys) if keys else None,
        {name: np.concatenate([part.texts[name] for part in parts]) for name in parts[0].texts},
    )
