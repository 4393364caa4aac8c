"""Reads the rows that a caller pushes, each independently of the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .batch import (
    LONGEST_LABEL,
    MAX_TIME_MS,
    Batch,
    Rejection,
    Schema,
    UnusableRecord,
    as_objects,
    parse_feature,
    parse_label,
    parse_label_of,
    parse_number,
    plain_labels,
    ticks_to_ms,
)
from .levels import code_of, doubles_of, read_as_texts, read_codes
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
    times, good_times = read_column(times_ms, "times_ms")
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
    values: Any, name: str, size: int | None = None, limit: int = MAX_TIME_MS, *, moments: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read whole numbers below `limit` in absolute value, or `moments` in ms; also tells which rows hold one.

    For floats and pandas' own types the limit is 2**53. An array of numbers is read at once, anything else value by
    value.

    Raises
    ------
    ConfigError
        There is not exactly one value a row, or the column holds time spans, or moments where there may be none.
    """
    limit = min(limit, MAX_TIME_MS) if _may_turn_float(values) else limit
    values = as_array(values)
    kind = values.dtype.kind if isinstance(values, np.ndarray) else ""
    if kind == "m" or (kind == "M" and not moments):
        wanted = "Unix milliseconds or moments" if moments else "whole numbers"
        held = "time spans" if kind == "m" else "moments, of which several may lie in one millisecond"
        raise ConfigError(f"must hold {wanted}, got {held}: convert them first", name)
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        column, good = datetimes_to_ms(np.atleast_1d(np.ma.filled(values, np.datetime64("NaT"))))
    elif isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        array, present = np.atleast_1d(np.ma.getdata(values)), ~np.atleast_1d(np.ma.getmaskarray(values))
        if array.dtype.kind == "f":
            array, limit = array.astype(np.float64), min(limit, MAX_TIME_MS)
        with np.errstate(invalid="ignore"):
            good = present & (array > -limit) & (array < limit) & (array == np.floor(array))
        column = np.where(good, array, 0).astype(np.int64)
    else:
        scalar = isinstance(values, (str, bytes)) or not isinstance(values, Iterable)
        whole = [_whole(value, limit, moments) for value in ([values] if scalar else values)]
        good = np.array([value is not None for value in whole], np.bool_)
        column = np.array([value or 0 for value in whole], np.int64)
    if column.ndim != 1 or (size is not None and len(column) != size):
        raise ConfigError(f"must have shape ({'n' if size is None else size},), got {column.shape}", name)
    return column, good


def _whole(value: Any, limit: int, moments: bool) -> int | None:
    if is_whole(value):
        return int(value) if abs(int(value)) < limit else None
    if not moments and isinstance(value, (datetime, np.datetime64)):
        return None
    if isinstance(value, datetime):
        return datetime_to_ms(value) if value == value else None  # NaT of pandas is unequal to itself
    if isinstance(value, np.datetime64):
        (timestamp,), (is_good,) = datetimes_to_ms(np.array([value]))
        return int(timestamp) if is_good else None
    try:
        number = parse_number(None if isinstance(value, str) else value)
    except UnusableRecord:
        return None
    return int(number) if number == math.floor(number) and abs(number) < min(limit, MAX_TIME_MS) else None


def unmasked(values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert to float64, with masked cells as NaN."""
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))


def read_labels(
    ids: Any, n: int, name: str = "ids", reason: str = "bad_user"
) -> tuple[NDArray[np.object_], dict[int, str]]:
    """Read users' ids, or keys, as text (n,); also tells which rows have no usable one, and why.

    Raises
    ------
    ConfigError
        The number of ids is not the number of rows.
    """
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    values = whole_cells(ids)
    if len(values) != n:
        raise ConfigError(f"must have {n} entries, got {len(values)}", name)
    if are_texts(values):
        sizes = list(map(len, values.tolist()))
        if min(sizes, default=1) > 0 and max(sizes, default=1) <= LONGEST_LABEL:
            return values, {}
    names, odd = [], {}
    for i, value in enumerate(values):
        try:
            names.append(parse_label(value, reason))
        except UnusableRecord as refused:
            names.append("")
            odd[i] = refused.reason
    return as_objects(names), odd


def read_moment(now_ms: Any, name: str) -> int:
    """Check a public time that the caller gave.

    Raises
    ------
    ConfigError
    """
    column, good = read_column(now_ms, name)
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
    rows = list(whole_cells(points) if is_one and getattr(points, "ndim", 1) == 1 else points)
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
        column = texts[name] = plain_labels(columns[name], name, schema)
        for i in np.flatnonzero(column == None).tolist():  # noqa: E711 - of each cell
            try:
                column[i] = parse_label_of(_present(columns[name][i]), name, schema)
            except UnusableRecord as refused:
                odd.setdefault(i, refused.reason)
    return texts, odd


def _present(value: Any) -> Any:
    """Return a cell; None for NaN, which stands for an empty cell in columns of objects."""
    return None if isinstance(value, float) and math.isnan(value) else value


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
    rows = list(points)
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
    """Read one cell of a row of Python objects; as in arrays, NaN means that an optional value is missing."""
    if name in schema.levels:
        return code_of(value, name, schema, name in as_texts)
    if not (isinstance(value, (float, np.floating)) or is_whole(value)):
        return parse_feature(value, name, schema)
    return math.nan if name in schema.optional and value != value else parse_number(value)


def as_array(values: Any) -> Any:
    """Convert a column of pandas, polars or Arrow to an array, with NaN, NaT or None for nulls.

    Integers with nulls become a masked array of integers: as floats, one null would round all other rows. Any other
    object is returned unchanged.
    """
    if isinstance(values, (np.ndarray, datetime, timedelta)) or not hasattr(values, "to_numpy"):
        return values  # pandas' own moments have that method too
    absent = _nulls(values)
    array = _filled(values)
    if not absent.any():
        return array
    if array.dtype.kind in "fO":
        present = _filled(_without_nulls(values))
        if present.dtype.kind in "iu":
            whole = np.zeros(len(absent), present.dtype)
            whole[~absent] = present
            return np.ma.MaskedArray(whole, absent)
    if array.dtype.kind == "f":
        return np.where(absent, math.nan, array.astype(np.float64))
    array = array.copy() if array.dtype.kind in "MO" else array.astype(np.object_)
    array[absent] = "NaT" if array.dtype.kind == "M" else None
    return array


def _filled(values: Any) -> NDArray[Any]:
    """Convert a column to an array by its own library."""
    kind = getattr(values, "dtype", None)
    if getattr(kind, "tz", None) is not None:  # of pandas, which else makes objects of moments with a zone
        return np.asarray(values.to_numpy(dtype=f"datetime64[{getattr(kind, 'unit', 'ns')}]"))
    return np.asarray(values.to_numpy(zero_copy_only=False) if hasattr(values, "to_pylist") else values.to_numpy())


def _without_nulls(values: Any) -> Any:
    """Select the cells of a column of pandas, polars or Arrow that are not null."""
    names = ("dropna", "drop_nulls", "drop_null")
    return next(getattr(values, name) for name in names if hasattr(values, name))()


def _may_turn_float(values: Any) -> bool:
    """Tell whether a column has one of pandas' numpy types, whose integers all become floats if one is null."""
    return not isinstance(values, np.ndarray) and isinstance(getattr(values, "dtype", None), np.dtype)


def whole_cells(values: Any) -> NDArray[np.object_]:
    """A column as Python's values, whole floats below 2**53 as integers; those of a plain list as they are.

    pandas makes floats of a column of integers as soon as one row has none, and objects as soon as one is a text. So
    that this row changes no other, a column of pandas' numpy types (int64, float64, object) holds whole numbers below
    2**53 only, whichever of these it has become: larger ones become infinity, which is no id. To raise an error for
    floats instead would let one row stop all others, and to refuse every float would let it refuse them. `Int64`,
    texts, polars and Arrow hold every whole number. The type of a numpy array is the caller's.
    """
    cells = as_cells(values)
    if not hasattr(values, "dtype") and not hasattr(values, "to_pylist"):
        return cells
    if are_texts(cells):
        return cells
    most = MAX_TIME_MS if _may_turn_float(values) else math.inf
    return as_objects([_as_whole(cell, most) for cell in cells])


def are_texts(cells: NDArray[np.object_]) -> bool:
    """Tell whether a column holds texts alone, which need not be looked at one by one."""
    return set(map(type, cells.tolist())) <= {str}


def _as_whole(cell: Any, limit: float) -> Any:
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return int(cell) if abs(float(cell)) < MAX_TIME_MS else math.inf
    return math.inf if is_whole(cell) and abs(int(cell)) >= limit else cell


def as_cells(values: Any) -> NDArray[np.object_]:
    """Convert a column to Python values, None for nulls; whole numbers stay whole if there are nulls."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM" and values.ndim == 1:
        return as_objects(list(values))  # numpy's lists hold integers where the unit is a nanosecond
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, name):
            cells = as_objects(getattr(values, name)())
            if name != "tolist" or not isinstance(values, np.ndarray):
                cells[_nulls(values)] = None
            return cells
    return as_objects(list(values))


def _nulls(values: Any) -> NDArray[np.bool_]:
    """Tell where a column of pandas (`isna`), polars or Arrow (`is_null`) is null."""
    ask = getattr(values, "isna", None) or getattr(values, "is_null", None)
    return np.zeros(len(values), np.bool_) if ask is None else np.asarray(ask(), np.bool_)


_TICKS = {
    "W": (604_800_000, 1),
    "D": (86_400_000, 1),
    "h": (3_600_000, 1),
    "m": (60_000, 1),
    "s": (1000, 1),
    "ms": (1, 1),
    "us": (1, 10**3),
    "ns": (1, 10**6),
    "ps": (1, 10**9),
    "fs": (1, 10**12),
    "as": (1, 10**15),
}
"""Milliseconds of one tick of numpy's units, as fractions."""


def datetimes_to_ms(moments: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert datetime64 of any unit to Unix milliseconds, rounded down; also tells which rows are in range."""
    unit, count = np.datetime_data(moments.dtype)
    if unit in ("Y", "M"):  # years and months have no fixed length
        far = moments.astype(np.int64)
        moments = np.where((far > -(10**6)) & (far < 10**6), moments, np.datetime64("NaT")).astype("datetime64[D]")
        unit, count = "D", 1
    ticks, good = moments.astype(np.int64), ~np.isnat(moments)
    numerator, denominator = _TICKS.get(unit, (1, 1))
    if count > 1 and denominator > 1:
        good &= (ticks >= -(2**62) // count) & (ticks <= 2**62 // count)
        ticks, count = np.where(good, ticks, 0) * count, 1
    times, held = ticks_to_ms(ticks, numerator * count, denominator)
    return np.where(good, times, 0), good & held


def datetime_to_ms(moment: datetime) -> int:
    """Convert a date-time to Unix milliseconds, rounded down; without a zone it is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
