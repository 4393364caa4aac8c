"""What a caller pushes, row by row: what one row holds never decides how another is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ConfigError
from .records import MAX_TIME_MS, Batch, Refused, Rejection, Schema, as_objects, parse_label, parse_level, parse_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROW = (list, tuple, np.ndarray)


def read_push(
    schema: Schema, times_ms: Any, points: Any, arrival_ms: Any, positions: Any, ids: Any, keys: Any
) -> tuple[Batch, NDArray[np.int64] | None]:
    """The rows of `Engine.push` that can be read, the others as rejections, and the arrivals, if there are any.

    Raises
    ------
    ConfigError
        Wrong shapes.
    """
    times, good_times = read_column(times_ms, "times_ms")
    n = len(times)
    levels = [schema.levels.get(name) for name in schema.features] if schema.levels else ()
    values, odd = read_rows(points, n, len(schema.features), levels)
    where, named = np.arange(n), np.ones(n, np.bool_)
    if positions is not None:
        where, named = read_column(positions, "positions", n, 2**62)
    arrivals = None
    if isinstance(arrival_ms, (int, float, str, np.generic)):
        arrivals = np.full(n, read_moment(arrival_ms, "arrival_ms"))
    elif arrival_ms is not None:
        arrivals, stamped = read_column(arrival_ms, "arrival_ms", n)
        good_times = good_times & stamped
    users = parts = None
    if ids is not None:
        users, strange = read_labels(ids, n)
        odd |= strange
    if keys is not None:
        parts, strange = read_labels(keys, n, "keys", "unknown_key")
        odd |= strange
    odd |= dict.fromkeys(np.flatnonzero(~good_times).tolist(), "bad_time")
    odd |= dict.fromkeys(np.flatnonzero(~named).tolist(), "broken_record")
    batch = Batch(times, values, where, users=users, keys=parts)
    if not odd:
        return batch, arrivals
    rejections = [Rejection(odd[i], int(where[i])) for i in sorted(odd)]
    rows = np.array([i for i in range(n) if i not in odd], np.int64)
    return batch.pick(rows, rejections), None if arrivals is None else arrivals[rows]


def read_column(
    values: Any, name: str, size: int | None = None, limit: int = MAX_TIME_MS
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole numbers below `limit` in size (floats: below 2**53), and which rows hold one.

    An array of numbers is read at once, anything else value by value.

    Raises
    ------
    ConfigError
        Not one number a row.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        array = np.atleast_1d(_unmasked(values) if values.dtype.kind == "f" or np.ma.isMA(values) else values)
        if array.dtype.kind == "f":
            limit = min(limit, MAX_TIME_MS)
        with np.errstate(invalid="ignore"):
            good = (array > -limit) & (array < limit) & (array == np.floor(array))
        column = np.where(good, array, 0).astype(np.int64)
    else:
        scalar = isinstance(values, (str, bytes)) or not isinstance(values, Iterable)
        whole = [_whole(value, limit) for value in ([values] if scalar else values)]
        good = np.array([value is not None for value in whole], np.bool_)
        column = np.array([value or 0 for value in whole], np.int64)
    if column.ndim != 1 or (size is not None and len(column) != size):
        raise ConfigError(f"must have shape ({'n' if size is None else size},), got {column.shape}", name)
    return column, good


def _whole(value: Any, limit: int) -> int | None:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value) if abs(int(value)) < limit else None
    try:
        number = parse_number(None if isinstance(value, str) else value)
    except Refused:
        return None
    return int(number) if number == math.floor(number) and abs(number) < min(limit, MAX_TIME_MS) else None


def _unmasked(values: NDArray[Any]) -> NDArray[np.float64]:
    """As float64, masked cells as NaN."""
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))


def read_labels(
    ids: Any, n: int, name: str = "ids", reason: str = "bad_user"
) -> tuple[NDArray[np.object_], dict[int, str]]:
    """Users' ids, or keys, as text (n,), and which rows have none that can be used and why.

    Raises
    ------
    ConfigError
        Another number of ids.
    """
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    values = list(ids)
    if len(values) != n:
        raise ConfigError(f"must have {n} entries, got {len(values)}", name)
    names, odd = [], {}
    for i, value in enumerate(values):
        try:
            names.append(parse_label(value, reason))
        except Refused as refused:
            names.append("")
            odd[i] = refused.reason
    return as_objects(names), odd


def read_moment(now_ms: Any, name: str) -> int:
    """A public time given by the caller.

    Raises
    ------
    ConfigError
    """
    column, good = read_column(now_ms, name)
    if len(column) != 1 or not good[0]:
        raise ConfigError("must be Unix milliseconds, a whole number below 2**53 in size", name)
    return int(column[0])


def read_rows(
    points: Any, n: int, dimension: int, levels: Sequence[Mapping[Any, int] | None] = ()
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Raw rows (n, d), and which of them are none and why. In arrays, NaN and infinity are left to the range check.

    `levels` has the codes of each feature that is no number: text and truth values are levels, numbers are codes.

    Raises
    ------
    ConfigError
        Another number of rows, or an array of another shape.
    """
    if isinstance(points, np.ndarray) and points.dtype.kind in "iuf":
        values = _unmasked(points)
        if values.ndim == 1 and n == 1:
            values = values[None, :]
        if values.shape != (n, dimension):
            raise ConfigError(f"must have shape ({n}, {dimension}), got {values.shape}", "points")
        return values, {}
    if isinstance(points, (str, bytes)) or not isinstance(points, Iterable) or getattr(points, "ndim", 1) == 0:
        raise ConfigError(f"must have {n} rows of {dimension} numbers", "points")
    rows = list(points)
    if n == 1 and len(rows) == dimension and not any(isinstance(row, _ROW) for row in rows):
        rows = [rows]
    if len(rows) != n:
        raise ConfigError(f"must have {n} rows, got {len(rows)}", "points")
    values, odd = np.zeros((n, dimension)), {}
    for i, row in enumerate(rows):
        if not isinstance(row, _ROW) or getattr(row, "ndim", 1) != 1 or len(row) != dimension:
            odd[i] = "broken_record"
            continue
        try:
            for k, value in enumerate(row):
                codes = levels[k] if levels else None
                if codes is not None and isinstance(value, (str, bool, np.bool_)):
                    values[i, k] = parse_level(value, codes)
                else:
                    values[i, k] = parse_number(None if isinstance(value, str) else value)
        except Refused as refused:
            odd[i] = "not_a_number" if refused.reason == "missing" else refused.reason
    return values, odd
