"""Reads the arrays that a caller pushes, as columns of cells, each row independently of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, Shown
from .batch import Batch, Rejection, Schema, batch_from_cells
from .cells import EXACT, Role, plain, read
from .frames import FloatTypes, batch_of_frame, columns_of, feature_columns
from .plain_columns import as_column, as_objects, cells_of
from .rejections import moved, rejected_at, tallied
from .texts import is_whole

_ROW = (list, tuple, np.ndarray)
_SPANS = "must hold Unix milliseconds or moments, got time spans: convert them first"
_MAX = 2**62


def read_push(
    schema: Schema, times_ms: Any, points: Any, ids: Any, keys: Any, types: FloatTypes | None = None
) -> tuple[Batch, int]:
    """Make a batch of rows in arrays, with rejections of the unusable ones; also returns the number of rows.

    Positions are numbers of rows, and times are in milliseconds. `types`: see `fcstream.formats.frames.read_table`.

    Raises
    ------
    ConfigError
        Wrong shapes.
    """
    columns = {schema.time: _times(times_ms, "times_ms")}
    n = len(columns[schema.time])
    for name, given, key in ((schema.user, ids, "ids"), (schema.key, keys, "keys")):
        if given is not None:
            assert name is not None
            columns[name] = _labels(given, n, key)
    schema = replace(
        schema,
        time_unit="ms",
        user=None if ids is None else schema.user,
        key=None if keys is None else schema.key,
    )
    if columns_of(points) is not None:
        types = {} if types is None else types
        return batch_of_frame(schema, columns | feature_columns(schema, points, types), types), n
    cells, fit = _split(points, n, schema)
    columns |= cells
    if fit.all():
        return batch_from_cells(schema, columns, roles=schema.roles(places=True)), n
    rows = np.flatnonzero(fit)
    columns = {name: column if name in cells else column[rows] for name, column in columns.items()}
    batch = batch_from_cells(schema, columns, rows, schema.roles(places=True))
    batch.rejections = tallied(batch.rejections + rejected_at("broken_record", np.flatnonzero(~fit)))
    return batch, n


def _times(values: Any, key: str) -> NDArray[Any]:
    if getattr(values, "ndim", 1) > 1:
        raise ConfigError("must have shape (n,)", key, got=values.shape)
    column = as_column(values)
    if column.dtype.kind == "m":
        raise ConfigError(_SPANS, key)
    return column


def _labels(values: Any, n: int, key: str) -> NDArray[Any]:
    column = as_column(values)
    if len(column) != n:
        raise ConfigError(f"must have {n} entries", key, got=len(column))
    return column


def _split(points: Any, n: int, schema: Schema) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Return the column of each feature, and which of n rows are in it: those that have as many cells as there are.

    Of a stream of one text the points may be its column.
    """
    names, whole = schema.columns, np.ones(n, np.bool_)
    if points is None and not names:
        return {}, whole
    is_text = len(names) == 1 and bool(schema.texts)
    is_array = isinstance(points, np.ndarray)
    if is_array and points.ndim == 2 and points.shape == (n, len(names)):
        return dict(zip(names, points.T, strict=True)), whole
    rows = _listed(points, n, is_text, f"must have {n} rows of {len(names)} values")
    if n == 1 and len(rows) == len(names) and not any(isinstance(row, _ROW) for row in rows):
        rows = [rows]
    elif is_text and not any(isinstance(row, _ROW) for row in rows):
        rows = [(row,) for row in rows]
    if len(rows) != n:
        raise ConfigError(f"must have {n} rows", "points", got=len(rows))
    shaped = [isinstance(row, _ROW) and getattr(row, "ndim", 1) == 1 and len(row) == len(names) for row in rows]
    if n and not any(shaped):  # one row of another shape is rejected; if all are, the caller made a mistake
        raise ConfigError(f"must have rows of {len(names)} values each", "points", got=Shown("none"))
    cells = list(zip(*(row for row, fits in zip(rows, shaped, strict=True) if fits), strict=True)) or [()] * len(names)
    return dict(zip(names, map(as_objects, cells), strict=True)), np.array(shaped, np.bool_)


def _listed(points: Any, n: int, is_text: bool, wanted: str) -> list[Any]:
    if isinstance(points, (str, bytes)) and n == 1 and is_text:
        return [points]
    if isinstance(points, (str, bytes)) or not isinstance(points, Iterable) or getattr(points, "ndim", 1) == 0:
        raise ConfigError(wanted, "points")
    if isinstance(points, np.ndarray) and points.ndim > 1 and points.dtype.kind in "iuf":
        raise ConfigError(wanted, "points", got=Shown(f"an array of shape {points.shape}"))
    return cells_of(as_column(points)) if getattr(points, "ndim", 1) == 1 else list(points)


def identified(batch: Batch, n: int, positions: Any, arrival_ms: Any) -> tuple[Batch, NDArray[np.int64] | None]:
    """Make a batch of some of n rows, with positions in the source and arrival times if the caller gave them.

    Raises
    ------
    ConfigError
        Wrong shapes.
    """
    arrivals = None
    where, rows = np.arange(n), batch.positions
    odd: list[Rejection] = []
    good = np.ones(len(rows), np.bool_)
    if arrival_ms is not None:
        column = _times(arrival_ms, "arrival_ms")
        if isinstance(arrival_ms, (int, float, str, np.generic, datetime)):
            column = np.full(n, read_moment(arrival_ms, "arrival_ms"))
        arrivals, wrong = read(_labels(column, n, "arrival_ms"), Role("time"))
        good = ~np.isin(rows, list(wrong))
        odd = rejected_at("bad_time", rows[~good])
    if positions is not None:
        where, named = read_positions(positions, n)
        odd = [each for each in odd if named[each.position]] + rejected_at("broken_record", rows[~named[rows]])
        good &= named[rows]
    if positions is not None or odd:
        batch = batch.pick(good, moved(batch.rejections + odd, where))
    rows = batch.positions
    batch.positions = where[rows]
    return batch, None if arrivals is None else arrivals[rows]


def read_positions(values: Any, n: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read n positions, whole numbers below 2**62 (floats: 2**53); also tells which rows have one.

    Raises
    ------
    ConfigError
        There is not one a row, or they are moments or time spans.
    """
    column = _labels(values, n, "positions")
    if column.dtype.kind in "mM":
        held = "time spans" if column.dtype.kind == "m" else "moments, of which several may lie in one millisecond"
        raise ConfigError("must hold whole numbers", "positions", got=Shown(held), remedy="convert them first")
    if column.dtype.kind in "iu" and not np.ma.isMaskedArray(column):
        good = (column < _MAX) & (column > -_MAX) if column.dtype.itemsize == 8 else np.ones(n, np.bool_)
        return np.where(good, column, 0).astype(np.int64), good
    cells = [_whole(cell) for cell in map(plain, cells_of(column))]
    return np.array([cell or 0 for cell in cells], np.int64), np.array([cell is not None for cell in cells], np.bool_)


def _whole(cell: Any) -> int | None:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < EXACT:
        return int(cell)
    return int(cell) if is_whole(cell) and abs(int(cell)) < _MAX else None


def read_labels(ids: Any, n: int) -> tuple[NDArray[np.object_], dict[int, str]]:
    """Read users' ids as text (n,) in normal form C; also tells which rows have no usable one, and why.

    Raises
    ------
    ConfigError
        The number of ids is not the number of rows.
    """
    return read(_labels(ids, n, "ids"), Role("label"))


def read_moment(now_ms: Any, name: str) -> int:
    """Check a public time that the caller gave.

    Raises
    ------
    ConfigError
    """
    column = as_column(now_ms)
    times, odd = read(column, Role("time"))
    if len(times) != 1 or odd:
        raise ConfigError("must be Unix milliseconds, a whole number below 2**53 in size, or a moment", name)
    return int(times[0])
