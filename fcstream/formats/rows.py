"""Reads the rows that a caller pushes, each independently of the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .batch import Batch, Rejection, Schema, UnusableRecord
from .cells import EXACT, Role, composed_labels, datetime_to_ms, is_date, parse_number, read, read_cell
from .cells import datetimes_to_ms as datetimes_to_ms
from .levels import code_of, doubles_of, read_as_texts, read_codes
from .plain_columns import as_array, as_objects, cells_of
from .rejections import moved
from .texts import is_whole

_ROW = (list, tuple, np.ndarray)


def read_push(
    schema: Schema, times_ms: Any, points: Any, ids: Any, keys: Any, *, from_table: bool = False
) -> tuple[Batch, int]:
    """Make a batch of rows in arrays, with rejections of the unusable ones; also returns the number of rows.

    Positions are numbers of rows. `from_table`: the points are what `fcstream.formats.frames.read_points` returned.

    Raises
    ------
    ConfigError
        Wrong shapes.
    """
    times, good_times = read_column(times_ms, "times_ms", dates=schema.dates)
    n = len(times)
    as_texts = frozenset(schema.levels) if from_table else read_as_texts(schema)
    values, texts, odd = _read_features(points, n, schema, as_texts)
    users = parts = None
    if ids is not None:
        users, unmatched = read_labels(ids, n)
        odd |= unmatched
    if keys is not None:
        parts, unmatched = read_labels(keys, n, "keys", "unknown_key")
        odd |= unmatched
    odd |= dict.fromkeys(np.flatnonzero(~good_times).tolist(), "bad_time")
    batch = Batch(times, values, np.arange(n), users=users, keys=parts, texts=texts)
    if not odd:
        return batch, n
    rows = np.array([i for i in range(n) if i not in odd], np.int64)
    return batch.pick(rows, [Rejection(odd[i], i) for i in sorted(odd)]), n


def identified(batch: Batch, n: int, positions: Any, arrival_ms: Any) -> tuple[Batch, NDArray[np.int64] | None]:
    """Make a batch of some of n rows, with positions in the source and arrival times if the caller gave them.

    Raises
    ------
    ConfigError
        Wrong shapes.
    """
    arrivals = None
    if isinstance(arrival_ms, (int, float, str, np.generic, datetime)):
        arrivals = np.full(n, read_moment(arrival_ms, "arrival_ms"))
        arrival_ms = None
    if positions is None and arrival_ms is None:
        return batch, None if arrivals is None else arrivals[batch.positions]
    where, named = np.arange(n), np.ones(n, np.bool_)
    if positions is not None:
        where, named = read_column(positions, "positions", n, 2**62, moments=False)
    stamped = np.ones(n, np.bool_)
    if arrival_ms is not None:
        arrivals, stamped = read_column(arrival_ms, "arrival_ms", n)
    rows = batch.positions
    odd = [Rejection("broken_record", int(i)) for i in rows[~named[rows]].tolist()]
    odd += [Rejection("bad_time", int(i)) for i in rows[named[rows] & ~stamped[rows]].tolist()]
    rejections = moved(batch.rejections + odd, where)
    kept = batch.pick(named[rows] & stamped[rows], rejections) if odd else batch
    rows, kept.rejections = kept.positions, rejections
    kept.positions = where[rows]
    return kept, None if arrivals is None else arrivals[rows]


def read_column(
    values: Any,
    name: str,
    size: int | None = None,
    limit: int = EXACT,
    *,
    moments: bool = True,
    dates: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read whole numbers below `limit` in absolute value, or `moments` in ms, with `dates` also those without a time;
    also tells which rows hold one.

    For floats the limit is 2**53. An array of numbers is read at once, anything else value by
    value.

    Raises
    ------
    ConfigError
        There is not exactly one value a row, or the column holds time spans, or moments where there may be none.
    """
    values = as_array(values)
    kind = values.dtype.kind if isinstance(values, np.ndarray) else ""
    if kind == "m" or (kind == "M" and not moments):
        wanted = "Unix milliseconds or moments" if moments else "whole numbers"
        held = "time spans" if kind == "m" else "moments, of which several may lie in one millisecond"
        raise ConfigError(f"must hold {wanted}, got {held}: convert them first", name)
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        column, good = datetimes_to_ms(np.atleast_1d(np.ma.filled(values, np.datetime64("NaT"))))
        good = good & (dates or not is_date(values.dtype))
    elif isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        array, present = np.atleast_1d(np.ma.getdata(values)), ~np.atleast_1d(np.ma.getmaskarray(values))
        if array.dtype.kind == "f":
            array, limit = array.astype(np.float64), min(limit, EXACT)
        with np.errstate(invalid="ignore"):
            good = present & (array > -limit) & (array < limit) & (array == np.floor(array))
        column = np.where(good, array, 0).astype(np.int64)
    else:
        scalar = isinstance(values, (str, bytes)) or not isinstance(values, Iterable)
        whole = [_whole(value, limit, moments, dates) for value in ([values] if scalar else values)]
        good = np.array([value is not None for value in whole], np.bool_)
        column = np.array([value or 0 for value in whole], np.int64)
    if column.ndim != 1 or (size is not None and len(column) != size):
        raise ConfigError(f"must have shape ({'n' if size is None else size},), got {column.shape}", name)
    return column, good


def _whole(value: Any, limit: int, moments: bool, dates: bool) -> int | None:
    if is_whole(value):
        return int(value) if abs(int(value)) < limit else None
    if not moments and isinstance(value, (datetime, np.datetime64)):
        return None
    if isinstance(value, datetime):
        return datetime_to_ms(value) if value == value else None  # NaT of pandas is unequal to itself
    if isinstance(value, date) and dates and moments:
        return datetime_to_ms(datetime(value.year, value.month, value.day))
    if isinstance(value, np.datetime64):
        if is_date(value.dtype) and not dates:
            return None
        (timestamp,), (is_good,) = datetimes_to_ms(np.array([value]))
        return int(timestamp) if is_good else None
    try:
        number = parse_number(None if isinstance(value, str) else value)
    except UnusableRecord:
        return None
    return int(number) if number == math.floor(number) and abs(number) < min(limit, EXACT) else None


def unmasked(values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert to float64, with masked cells as NaN."""
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))


def read_labels(
    ids: Any, n: int, name: str = "ids", reason: str = "bad_user"
) -> tuple[NDArray[np.object_], dict[int, str]]:
    """Read users' ids, or keys, as text (n,) in normal form C; also tells which rows have no usable one, and why.

    Raises
    ------
    ConfigError
        The number of ids is not the number of rows.
    """
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    column = as_column(ids)
    if len(column) != n:
        raise ConfigError(f"must have {n} entries, got {len(column)}", name)
    labels, odd = read(column, Role("label", reason=reason))
    return composed_labels(labels), odd


def as_column(values: Any) -> NDArray[Any]:
    """Return what a caller gave as one column as an array, and a list as one of its objects, whatever they are."""
    column = as_array(values)
    if isinstance(column, np.ndarray):
        return column if column.ndim == 1 else as_objects(list(column))
    return as_objects(list(values))


def read_moment(now_ms: Any, name: str) -> int:
    """Check a public time that the caller gave.

    Raises
    ------
    ConfigError
    """
    column, good = read_column(now_ms, name, dates=True)
    if len(column) != 1 or not good[0]:
        raise ConfigError("must be Unix milliseconds, a whole number below 2**53 in size, or a moment", name)
    return int(column[0])


def _read_features(
    points: Any, n: int, schema: Schema, as_texts: frozenset[str]
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.object_]], dict[int, str]]:
    """Read raw rows: numbers (n, d), texts by feature, and which rows are unusable, and why. See `read_rows`.

    If all features are one text, its column (n,) does too.

    Raises
    ------
    ConfigError
        The number of rows or their length is wrong.
    """
    if not schema.texts:
        values, odd = read_rows(points, n, schema, as_texts)
        return values, {}, odd
    names, is_one = schema.columns, len(schema.columns) == 1
    if isinstance(points, (str, bytes)) and n == 1 and is_one:
        points = [points]
    if isinstance(points, (str, bytes)) or not isinstance(points, Iterable) or getattr(points, "ndim", 1) == 0:
        raise ConfigError(f"must have {n} rows of {len(names)} values", "points")
    if is_one and getattr(points, "ndim", 1) == 1 and not isinstance(points, (list, tuple)):
        rows = cells_of(as_column(points))
    else:
        rows = list(points)
    if is_one and len(rows) == n and set(map(type, rows)) <= {str}:
        return np.empty((n, 0)), *_read_texts({names[0]: rows}, schema)
    if is_one and not any(isinstance(row, _ROW) for row in rows):
        rows = [(row,) for row in rows]
    elif n == 1 and len(rows) == len(names) and not any(isinstance(row, _ROW) for row in rows):
        rows = [tuple(rows)]
    if len(rows) != n:
        raise ConfigError(f"must have {n} rows, got {len(rows)}", "points")
    shaped = [isinstance(row, _ROW) and getattr(row, "ndim", 1) == 1 and len(row) == len(names) for row in rows]
    if n and not any(shaped):  # one row of another shape is rejected; if all are, the caller made a mistake
        raise ConfigError(f"must have rows of {len(names)} values each, got none", "points")
    nothing = (None,) * len(names)
    cells = [row if fits else nothing for row, fits in zip(rows, shaped, strict=True)]
    columns = dict(zip(names, zip(*cells, strict=True) if cells else [()] * len(names), strict=True))
    odd = {i: "broken_record" for i, fits in enumerate(shaped) if not fits}
    numbers = list(zip(*(columns[name] for name in schema.features), strict=True)) if schema.features else None
    values, wrong = read_rows(numbers, n, schema, as_texts) if n else (np.empty((0, len(schema.features))), {})
    texts, refused_texts = _read_texts(columns, schema)
    return values, texts, refused_texts | wrong | odd


def _read_texts(
    columns: Mapping[str, Sequence[Any]], schema: Schema
) -> tuple[dict[str, NDArray[np.object_]], dict[int, str]]:
    """Read the features that are texts; also tells which rows have an unusable one, and why."""
    texts: dict[str, NDArray[np.object_]] = {}
    odd: dict[int, str] = {}
    for name in schema.texts:
        texts[name], wrong = read(as_objects(list(columns[name])), schema.role(name))
        odd = wrong | odd
    return texts, odd


def read_rows(
    points: Any, n: int, schema: Schema, as_texts: frozenset[str]
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Read raw rows (n, d); also tells which rows are unusable, and why.

    In arrays, NaN and infinity are left to the range check. For a feature that is not a number, texts and Booleans are
    levels; whole numbers are levels too if it is among `as_texts`, and else their places.

    Raises
    ------
    ConfigError
        The number of rows or the shape of the array is wrong.
    """
    dimension = len(schema.features)
    if points is None and dimension == 0:
        return np.empty((n, 0)), {}
    if isinstance(points, np.ndarray) and points.dtype.kind in "iuf":
        values = unmasked(points)
        if values.ndim == 1 and n == 1:
            values = values[None, :]
        if values.shape != (n, dimension):
            raise ConfigError(f"must have shape ({n}, {dimension}), got {values.shape}", "points")
        for k, name in enumerate(schema.features):
            values[:, k] = doubles_of(schema, name, values[:, k], points.dtype)
        return read_codes(values, schema, as_texts)
    if isinstance(points, (str, bytes)) or not isinstance(points, Iterable) or getattr(points, "ndim", 1) == 0:
        raise ConfigError(f"must have {n} rows of {dimension} numbers", "points")
    return _read_listed(list(points), n, schema, as_texts)


def _read_listed(
    rows: list[Any], n: int, schema: Schema, as_texts: frozenset[str]
) -> tuple[NDArray[np.float64], dict[int, str]]:
    dimension = len(schema.features)
    if n == 1 and len(rows) == dimension and not any(isinstance(row, _ROW) for row in rows):
        rows = [rows]
    if len(rows) != n:
        raise ConfigError(f"must have {n} rows, got {len(rows)}", "points")
    values, odd = np.zeros((n, dimension)), {}
    shaped = [isinstance(row, _ROW) and getattr(row, "ndim", 1) == 1 and len(row) == dimension for row in rows]
    if n and not any(shaped):  # one row of another shape is rejected; if all are, the caller made a mistake
        raise ConfigError(f"must have rows of {dimension} numbers each, got none", "points")
    for i, row in enumerate(rows):
        if not shaped[i]:
            odd[i] = "broken_record"
            continue
        try:
            for k, (name, value) in enumerate(zip(schema.features, row, strict=True)):
                values[i, k] = _value(value, name, schema, as_texts)
        except UnusableRecord as refused:
            odd[i] = refused.reason
    return values, odd


def _value(value: Any, name: str, schema: Schema, as_texts: frozenset[str]) -> float:
    """Read one cell of a row of Python objects."""
    if name in schema.levels:
        return code_of(value, name, schema, name in as_texts)
    return float(read_cell(value, schema.role(name)))
