"""Bodies of messages become batches: one record a message (JSON, MessagePack) or many (packed floats, Arrow).

A record's position is the index of its message, so a message counts whole or not at all.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from .decoders import LineDecoder, Objects
from .errors import ConfigError
from .records import (
    MAX_TIME_MS,
    Batch,
    Refused,
    Rejection,
    Schema,
    as_objects,
    merge,
    parse_label,
    parse_level,
    parse_time,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOG = logging.getLogger("fcstream.payloads")
FORMATS = ("json", "msgpack", "floats", "arrow")
LONGEST_MESSAGE = 2**24
"""Bytes; longer ones are rejected unread."""
_DICTIONARY, _BATCH = 2, 3  # kinds of Arrow messages


def decoder_for(format: str, schema: Schema) -> LineDecoder:
    """What turns bodies of a declared format into batches.

    Parameters
    ----------
    format : str
        ``json`` or ``msgpack``: one object per message. ``floats``: rows of one little-endian int64 (event time, in
        milliseconds) and d float64 (features in the configuration's order), back to back. ``arrow``: an Arrow IPC
        stream with columns named as in the configuration, plain (no dictionaries) and not compressed.
    schema : Schema

    Raises
    ------
    ConfigError
    """
    if format in ("json", "msgpack"):
        return _Bounded(Objects(schema, format, are_messages=True))
    if format == "floats":
        if schema.labels or schema.time_unit != "ms":
            raise ConfigError("'floats' hold times in ms and features, no users or keys: use 'arrow'", "source.format")
        return _Bounded(FloatBlocks(schema))
    if format == "arrow":
        return _Bounded(ArrowBlocks(schema))
    raise ConfigError(f"must be one of {list(FORMATS)}, got {format!r}", "source.format")


def read_messages(
    decoder: LineDecoder, offsets: NDArray[np.int64], stamps_ms: NDArray[np.int64], bodies: list[bytes]
) -> tuple[Batch, NDArray[np.int64], NDArray[np.int64]]:
    """The records of some messages, when each arrived (n,), and in which message each came (n,).

    Positions are offsets then. A message that the decoder fails at is no record: it would come again, and fail again,
    for ever.
    """
    batch = _decode(decoder, bodies)
    messages = batch.positions
    batch.positions = offsets[messages]
    for i, rejection in enumerate(batch.rejections):
        batch.rejections[i] = Rejection(rejection.reason, int(offsets[rejection.position]), rejection.field)
    return batch, stamps_ms[messages], messages


def _decode(decoder: LineDecoder, bodies: list[bytes]) -> Batch:
    try:
        return decoder.decode(bodies, 0)
    except Exception as error:
        LOG.error("the decoder fails (%s): messages that it fails at are rejected", type(error).__name__)
    whole = decoder.decode([], 0)
    for i, body in enumerate(bodies):
        try:
            part = decoder.decode([body], i)
        except Exception:
            part = decoder.decode([], i)
            part.rejections.append(Rejection("broken_record", i))
        whole = merge(whole, part)
    return whole


class _Bounded:
    """Rejects messages of unreasonable length before anybody looks into them."""

    def __init__(self, decoder: LineDecoder) -> None:
        self._decoder = decoder

    def decode(self, lines: list[bytes], first_position: int) -> Batch:
        if max(map(len, lines), default=0) > LONGEST_MESSAGE:
            lines = [line if len(line) <= LONGEST_MESSAGE else b"\xc1" for line in lines]
        return self._decoder.decode(lines, first_position)


class FloatBlocks:
    """Decoder of packed rows ``<i8, d x <f8``."""

    def __init__(self, schema: Schema) -> None:
        self._dimension = len(schema.features)
        self._row = np.dtype([("time", "<i8"), ("values", "<f8", (self._dimension,))])

    def decode(self, lines: list[bytes], first_position: int) -> Batch:
        """Messages of whole rows; another length is no message."""
        width = self._row.itemsize
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        whole = (lengths > 0) & (lengths % width == 0)
        rejections = [Rejection("broken_record", first_position + i) for i in np.flatnonzero(~whole).tolist()]
        counts = np.where(whole, lengths // width, 0)
        times = np.empty(int(counts.sum()), np.int64)
        values = np.empty((len(times), self._dimension))
        stop = 0
        for line, count in zip(lines, counts.tolist(), strict=True):  # copied once, straight to where they stay
            if count:
                rows, start, stop = np.frombuffer(line, self._row), stop, stop + count
                times[start:stop] = rows["time"]
                values[start:stop] = rows["values"]
        positions = first_position + np.repeat(np.arange(len(lines)), counts)
        good = (times >= -MAX_TIME_MS) & (times <= MAX_TIME_MS)
        if good.all():
            return Batch(times, values, positions, rejections)
        rejections += [Rejection("bad_time", position) for position in positions[~good].tolist()]
        return Batch(times[good], values[good], positions[good], _sorted(rejections))


class ArrowBlocks:
    """Decoder of Arrow IPC streams (pyarrow)."""

    def __init__(self, schema: Schema) -> None:
        try:
            import pyarrow
        except ImportError:
            raise ConfigError("needs the package pyarrow: pip install 'fcstream[arrow]'", "source.format") from None
        self._arrow = pyarrow
        self._schema = schema

    def decode(self, lines: list[bytes], first_position: int) -> Batch:
        """Messages of whole streams; columns may be in any order, and there may be others."""
        return _join([self._message(line, first_position + i) for i, line in enumerate(lines)] or [self._nothing([])])

    def _message(self, line: bytes, position: int) -> Batch:
        schema = self._schema
        names = [schema.time, *schema.features, *schema.labels]
        try:
            found = self._arrow.ipc.open_stream(line).schema
            for name in names:  # before any column is looked into, so that small messages cannot become large ones
                if found.names.count(name) != 1:
                    return self._nothing([Rejection("missing", position, name)])
                if not self._is_flat(name, found.field(name).type):
                    kinds = {schema.time: "bad_time", schema.user: "bad_user", schema.key: "unknown_key"}
                    reason = kinds.get(name, "not_a_number")
                    return self._nothing([Rejection(reason, position, name)])
            if any(map(_is_compressed, self._metadata(line))):
                return self._nothing([Rejection("broken_record", position)])
            wanted = self._arrow.ipc.IpcReadOptions(included_fields=[found.names.index(name) for name in names])
            with self._arrow.ipc.open_stream(line, options=wanted) as reader:
                table = reader.read_all()
            table.validate(full=True)
        except (self._arrow.ArrowException, OSError, ValueError, EOFError, MemoryError, IndexError, struct.error):
            return self._nothing([Rejection("broken_record", position)])
        n = table.num_rows
        rejections: dict[int, Rejection] = {}
        values = np.empty((n, len(schema.features)))
        for k, name in enumerate(schema.features):
            column = table.column(name)
            if name in schema.levels:
                values[:, k] = self._levels(column, name, position, rejections)
                continue
            values[:, k] = column.to_numpy().astype(np.float64)
            absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
            for i in np.flatnonzero(absent | ~np.isfinite(values[:, k])).tolist():
                rejections.setdefault(i, Rejection("missing" if absent[i] else "not_finite", position, name))
        times = self._times(table.column(schema.time), position, rejections)
        labels = [self._label(table.column(name), name, position, rejections) for name in schema.labels]
        good = np.ones(n, np.bool_)
        good[list(rejections)] = False
        batch = Batch(
            times[good],
            values[good],
            np.full(int(good.sum()), position),
            [rejections[i] for i in sorted(rejections)],
        )
        return schema.labeled(batch, [label[good] for label in labels])

    def _levels(self, column: Any, name: str, position: int, rejections: dict[int, Rejection]) -> list[float]:
        """Codes, 0 where there is none."""
        found = []
        for i, value in enumerate(column.to_pylist()):
            try:
                found.append(parse_level(value, self._schema.levels[name]))
            except Refused as refused:
                found.append(0.0)
                rejections.setdefault(i, Rejection(refused.reason, position, name))
        return found

    def _label(self, column: Any, name: str, position: int, rejections: dict[int, Rejection]) -> NDArray[np.object_]:
        """Users' ids or keys as text, empty where there is none."""
        reason = "bad_user" if name == self._schema.user else "unknown_key"
        texts = [""] * len(column)
        for i, value in enumerate(column.to_pylist()):
            try:
                texts[i] = parse_label(value, reason)
            except Refused as refused:
                rejections.setdefault(i, Rejection(refused.reason, position, name))
        return as_objects(texts)

    def _times(self, column: Any, position: int, rejections: dict[int, Rejection]) -> NDArray[np.int64]:
        """Event times in milliseconds, 0 where there is none."""
        name, unit, types = self._schema.time, self._schema.time_unit, self._arrow.types
        if types.is_timestamp(column.type) and unit == "ms":
            column = column.cast(self._arrow.timestamp("ms"), safe=False).cast(self._arrow.int64())
        if types.is_integer(column.type) and unit == "ms" and column.null_count == 0:
            stamps = column.to_numpy().astype(np.int64)
            if len(stamps) == 0 or np.abs(stamps).max() <= MAX_TIME_MS:
                return np.asarray(stamps)
        times = np.zeros(len(column), np.int64)
        for i, value in enumerate(column.to_pylist()):
            try:
                times[i] = parse_time(value, unit)
            except Refused as refused:
                rejections[i] = Rejection(refused.reason, position, name)
        return times

    def _is_flat(self, name: str, kind: Any) -> bool:
        """Whether a column has what it must, in full: a value that stands for many could stand for millions."""
        types = self._arrow.types
        is_text = types.is_string(kind) or types.is_large_string(kind)
        is_number = types.is_integer(kind) or types.is_floating(kind)
        if name == self._schema.time:
            return bool(is_number or is_text or types.is_timestamp(kind))
        if name in self._schema.labels:
            return bool(is_text or types.is_integer(kind) or types.is_binary(kind) or types.is_large_binary(kind))
        return bool(is_number or (name in self._schema.levels and (is_text or types.is_boolean(kind))))

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


def _is_compressed(metadata: bytes) -> bool:
    """Whether an Arrow message (a FlatBuffer) says that its buffers are compressed, which the library does not tell.

    Compressed, 15 kB can hold a gigabyte.
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


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a FlatBuffer's table stands; 0 if it is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    if 6 + 2 * number > size:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _join(parts: Sequence[Batch]) -> Batch:
    """Batches of messages in order, as one."""
    users = [part.users for part in parts if part.users is not None]
    keys = [part.keys for part in parts if part.keys is not None]
    return Batch(
        np.concatenate([part.times_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.positions for part in parts]),
        [rejection for part in parts for rejection in part.rejections],
        np.concatenate(users) if users else None,
        np.concatenate(keys) if keys else None,
    )


def _sorted(rejections: list[Rejection]) -> list[Rejection]:
    return sorted(rejections, key=lambda rejection: rejection.position)
