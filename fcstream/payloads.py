"""Bodies of messages become batches: one record a message (JSON, MessagePack) or many (packed floats, Arrow).

A record's position is the index of its message, so a message counts whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ConfigError
from .records import (
    MAX_TIME_MS,
    Batch,
    LineDecoder,
    Objects,
    Refused,
    Rejection,
    Schema,
    as_objects,
    parse_time,
    parse_user,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = ("json", "msgpack", "floats", "arrow")
LONGEST_MESSAGE = 2**24
"""Bytes; longer ones are rejected unread."""


def decoder_for(format: str, schema: Schema) -> LineDecoder:
    """What turns bodies of a declared format into batches.

    Parameters
    ----------
    format : str
        ``json`` or ``msgpack``: one object per message. ``floats``: rows of one little-endian int64 (event time, in
        milliseconds) and d float64 (features in the configuration's order), back to back. ``arrow``: an Arrow IPC
        stream with columns named as in the configuration.
    schema : Schema

    Raises
    ------
    ConfigError
    """
    if format in ("json", "msgpack"):
        return _Bounded(Objects(schema, format))
    if format == "floats":
        if schema.user is not None or schema.time_unit != "ms":
            raise ConfigError("'floats' hold times in ms and features, no users: use 'arrow'", "source.format")
        return _Bounded(FloatBlocks(schema))
    if format == "arrow":
        return _Bounded(ArrowBlocks(schema))
    raise ConfigError(f"must be one of {list(FORMATS)}, got {format!r}", "source.format")


class _Bounded:
    """Rejects messages of unreasonable length before anybody looks into them."""

    def __init__(self, decoder: LineDecoder) -> None:
        self._decoder = decoder

    def decode(self, lines: list[bytes], first_position: int) -> Batch:
        return self._decoder.decode(
            [line if 0 < len(line) <= LONGEST_MESSAGE else b"\xc1" for line in lines], first_position
        )


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
        data = b"".join(lines if whole.all() else [lines[i] for i in np.flatnonzero(whole).tolist()])
        rows = np.frombuffer(data, self._row)
        positions = first_position + np.repeat(np.flatnonzero(whole), lengths[whole] // width)
        times, values = rows["time"].astype(np.int64), rows["values"].reshape(len(rows), self._dimension)
        good = (times >= -MAX_TIME_MS) & (times <= MAX_TIME_MS)
        if good.all():
            return Batch(times, values.astype(np.float64), positions, rejections)
        rejections += [Rejection("bad_time", position) for position in positions[~good].tolist()]
        return Batch(times[good], values[good].astype(np.float64), positions[good], _sorted(rejections))


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
        try:
            with self._arrow.ipc.open_stream(line) as reader:
                table = reader.read_all()
            table.validate(full=True)
        except (self._arrow.ArrowException, OSError, ValueError, EOFError):
            return self._nothing([Rejection("broken_record", position)])
        names = [schema.time, *schema.features, *filter(None, [schema.user])]
        for name in names:
            if table.column_names.count(name) != 1:
                return self._nothing([Rejection("missing", position, name)])
        n = table.num_rows
        rejections: dict[int, Rejection] = {}
        values = np.empty((n, len(schema.features)))
        for k, name in enumerate(schema.features):
            column = table.column(name)
            if not _is_number(self._arrow, column.type):
                return self._nothing([Rejection("not_a_number", position, name)])
            values[:, k] = column.to_numpy().astype(np.float64)
            absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
            for i in np.flatnonzero(absent | ~np.isfinite(values[:, k])).tolist():
                rejections.setdefault(i, Rejection("missing" if absent[i] else "not_finite", position, name))
        times = self._times(table.column(schema.time), position, rejections)
        users = None
        if schema.user is not None:
            names_of = [""] * n
            for i, value in enumerate(table.column(schema.user).to_pylist()):
                try:
                    names_of[i] = parse_user(value)
                except Refused as refused:
                    rejections.setdefault(i, Rejection(refused.reason, position, schema.user))
            users = as_objects(names_of)
        good = np.ones(n, np.bool_)
        good[list(rejections)] = False
        return Batch(
            times[good],
            values[good],
            np.full(int(good.sum()), position),
            [rejections[i] for i in sorted(rejections)],
            None if users is None else users[good],
        )

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

    def _nothing(self, rejections: list[Rejection]) -> Batch:
        users = None if self._schema.user is None else as_objects([])
        return Batch(
            np.empty(0, np.int64), np.empty((0, len(self._schema.features))), np.empty(0, np.int64), rejections, users
        )


def _is_number(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_integer(kind) or arrow.types.is_floating(kind))


def _join(parts: Sequence[Batch]) -> Batch:
    """Batches of messages in order, as one."""
    users: NDArray[np.object_] | None = None
    if parts[0].users is not None:
        users = np.concatenate([part.users for part in parts if part.users is not None])
    return Batch(
        np.concatenate([part.times_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.positions for part in parts]),
        [rejection for part in parts for rejection in part.rejections],
        users,
    )


def _sorted(rejections: list[Rejection]) -> list[Rejection]:
    return sorted(rejections, key=lambda rejection: rejection.position)
