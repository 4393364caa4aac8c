"""Reads data frames of pandas and polars and tables of Arrow, without importing these libraries.

A column is found by its name, like a field of a record, and every row is read independently of the others.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .batch import (
    PER_MILLISECOND,
    Batch,
    Schema,
    UnusableRecord,
    as_objects,
    batch_from_columns,
    batch_from_rows,
    merge,
    parse_time,
    plain_labels,
)
from .columns import timestamps_of
from .levels import doubles_of
from .rows import are_texts, as_array, datetime_to_ms, datetimes_to_ms, unmasked, whole_cells


def columns_of(table: Any) -> list[str] | None:
    """Return the names of a table's columns; None for any other object."""
    if isinstance(table, np.ndarray) or not hasattr(table, "__getitem__"):
        return None
    names = getattr(table, "column_names", None)  # Arrow, whose `columns` are arrays
    names = getattr(table, "columns", None) if names is None else names
    return None if names is None or callable(names) else [str(name) for name in names]


FloatTypes = dict[str, "np.dtype[Any]"]
"""By feature whether its column holds float32, float16, or anything else (float64).

It is that of a run's first frame for all of them: libraries choose a type by the values, and then one record of a later
frame would decide which others are in range.
"""
_NARROW = dict.fromkeys(("float32", "float[pyarrow]", "float"), "float32")
_NARROW |= dict.fromkeys(("float16", "halffloat[pyarrow]", "halffloat"), "float16")


def _float_types(schema: Schema, table: Any, types: FloatTypes | None) -> FloatTypes:
    """Return the types of the columns that were noted, or note those of this table."""
    types = {} if types is None else types
    if not types:
        for name in schema.features:
            column = table[schema.column(name)]
            kind = column.dtype if hasattr(column, "dtype") else getattr(column, "type", "")
            types[name] = np.dtype(_NARROW.get(str(kind).lower(), "float64"))
    return types


def read_table(schema: Schema, table: Any, types: FloatTypes | None = None) -> tuple[Batch, int]:
    """Make a batch of a table's rows, with rejections of the unusable ones; also returns the number of rows.

    Positions are numbers of rows. Times are numbers or texts in the schema's unit, or date-times, whose type states
    their unit; a date-time without a zone is in UTC. `types` are those of the run's first frame, which fills it.

    Raises
    ------
    ConfigError
        A column is missing, or occurs twice.
    """
    schema.refuse_envelopes("tables")
    schema.refuse_elements("tables")
    names, wanted = columns_of(table) or [], [schema.time, *schema.features, *schema.labels]
    for name in map(schema.column, wanted):
        if names.count(name) != 1:
            found = "it has several" if name in names else f"it has {len(names)} others"
            raise ConfigError(f"must have a column {name!r} (named by `stream` and `features`), {found}", "table")
    types = _float_types(schema, table, types)
    schema, times = _times(schema, table[schema.column(schema.time)])
    features = [
        (whole_cells if name in schema.levels else as_array)(table[schema.column(name)]) for name in schema.features
    ]
    labels = [whole_cells(table[schema.column(name)]) for name in schema.labels]
    n = len(times)
    numbers = [_numbers(column, name, schema) for name, column in zip(schema.features, features, strict=True)]
    texts = [
        plain_labels(
            column.tolist() if name in schema.texts or are_texts(column) else list(map(_text, column)), name, schema
        )
        for column, name in zip(labels, schema.labels, strict=True)
    ]
    batch, odd = batch_from_columns(_timestamps(times, schema), numbers, np.arange(n), schema, texts)
    if len(odd):
        cells = [times, *features, *labels]
        rows = [{name: _cell(column[i]) for name, column in zip(wanted, cells, strict=True)} for i in odd.tolist()]
        batch = merge(batch, batch_from_rows(rows, odd.tolist(), schema))
    for k, name in enumerate(schema.features):
        batch.values[:, k] = doubles_of(schema, name, batch.values[:, k], types[name])
    return batch, n


def read_points(
    schema: Schema, table: Any, types: FloatTypes | None = None
) -> NDArray[np.float64] | list[tuple[Any, ...]]:
    """Read a table of features only, in the configuration's order: (n, d) numbers, with NaN for missing ones.

    If a column holds anything but numbers, the result is rows of cells, which are then checked row by row.

    Raises
    ------
    ConfigError
        A column is missing, or occurs twice.
    """
    names, columns = columns_of(table) or [], {}
    for name in schema.columns:
        column = schema.column(name)
        if names.count(column) != 1:
            raise ConfigError(f"must have one column {column!r} of numbers", "points")
        columns[name] = as_array(table[column])
    types = _float_types(schema, table, types)
    if not schema.texts and all(column.dtype.kind in "iuf" for column in columns.values()):
        numbers = np.column_stack(
            [doubles_of(schema, name, unmasked(column), types[name]) for name, column in columns.items()]
        )
        if not any(np.isnan(numbers[:, k]).any() for k, name in enumerate(columns) if name in schema.levels):
            return numbers
    cells = []
    for name, column in columns.items():
        if name in schema.levels or name in schema.texts:
            cells.append(list(map(_cell, whole_cells(table[schema.column(name)]))))
        else:
            own = doubles_of(schema, name, column, types[name]) if column.dtype.kind == "f" else column
            cells.append([math.nan if (found := _cell(value)) is None else found for value in own])
    return list(zip(*cells, strict=True))


def _times(schema: Schema, column: Any) -> tuple[Schema, NDArray[Any]]:
    """Convert times to a schema's unit; date-times become milliseconds, or infinity if these are out of range.

    In a column of objects each cell may be a date-time or not; all other cells have the unit of the stream.
    """
    times: NDArray[Any] = as_array(column)
    if times.dtype.kind == "M":
        timestamps, good = datetimes_to_ms(times)
        return replace(schema, time_unit="ms"), np.where(
            np.isnat(times), math.nan, np.where(good, timestamps.astype(np.float64), math.inf)
        )
    if times.dtype.kind == "O" and any(isinstance(value, (datetime, np.datetime64)) for value in times):
        return replace(schema, time_unit="ms"), as_objects([_timestamp(value, schema) for value in times])
    return schema, times


def _timestamp(value: Any, schema: Schema) -> float | None:
    """Return one cell's time in milliseconds; None if there is none, infinity if it cannot be read."""
    if isinstance(value, np.datetime64):
        (timestamp,), (is_good,) = datetimes_to_ms(np.array([value]))
        return None if np.isnat(value) else int(timestamp) if is_good else math.inf
    if isinstance(value, datetime):
        return datetime_to_ms(value) if value == value else None
    try:
        return parse_time(_cell(value), schema.time_unit, dates=schema.dates)
    except UnusableRecord as refused:
        return None if refused.reason == "missing" else math.inf


def _timestamps(times: NDArray[Any], schema: Schema) -> NDArray[np.float64]:
    """Convert times to milliseconds; NaN for rows that need the slow path."""
    if schema.time_unit == "iso8601":
        return timestamps_of((value if type(value) is str else None for value in times), len(times), schema)
    if times.dtype.kind in "iu" and schema.time_unit in PER_MILLISECOND:
        whole = timestamps_of(np.ma.getdata(times), len(times), schema)
        return np.where(np.ma.getmaskarray(times), math.nan, whole)
    if schema.time_unit in PER_MILLISECOND:
        return timestamps_of(times, len(times), schema)
    if times.dtype.kind in "iuf":
        return timestamps_of(unmasked(times), len(times), schema)
    numbers = [float(value) if type(value) in (int, float) and abs(value) < 1e300 else math.nan for value in times]
    return timestamps_of(np.array(numbers, np.float64), len(times), schema)


def _numbers(column: NDArray[Any], name: str, schema: Schema) -> NDArray[np.float64]:
    """Read a feature's numbers or codes; NaN for rows that need the slow path."""
    if name not in schema.levels:
        if column.dtype.kind in "iuf":
            return unmasked(column)
        return np.full(len(column), math.nan)
    codes, cells = schema.levels[name], map(_cell, column)
    plain = (str, bool, int, float)
    return np.array([codes.get(cell, math.nan) if isinstance(cell, plain) else math.nan for cell in cells], np.float64)


def _text(value: Any) -> str | None:
    """Read users' ids or keys as text; None for rows that need the slow path."""
    if type(value) is int and abs(value) < 10**1000:
        return str(value)
    return value if type(value) is str else None


def _cell(value: Any) -> Any:
    """Convert one cell to a Python value; None if it is empty."""
    if value is np.ma.masked:
        return None
    if isinstance(value, (np.datetime64, np.timedelta64)):  # as Python's own they may be integers
        return None if np.isnat(value) else value
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
