"""Reads data frames of pandas and polars and tables of Arrow, without importing these libraries.

A column is found by its name, like a field of a record, and every row is read independently of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .batch import Batch, Schema, batch_from_cells
from .paths import FieldPath
from .plain_columns import as_column, as_objects


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


def _float_types(schema: Schema, table: Any) -> FloatTypes:
    """Note the types of the columns of this table."""
    types = {}
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
    types = {} if types is None else types
    columns = _columns(schema, table, (schema.time, *schema.features, *schema.labels), types, "table")
    return batch_of_frame(schema, columns, types), len(columns[schema.time])


def feature_columns(schema: Schema, table: Any, types: FloatTypes) -> dict[str, NDArray[Any]]:
    """Return the columns of a table of features only, see `read_table`."""
    return _columns(schema, table, schema.columns, types, "points")


def _columns(
    schema: Schema, table: Any, wanted: Iterable[str], types: FloatTypes, argument: str
) -> dict[str, NDArray[Any]]:
    names, columns = columns_of(table) or [], {}
    for name in wanted:
        column = schema.column(name)
        if names.count(column) != 1:
            found = "it has several" if column in names else f"it has {len(names)} others"
            raise ConfigError(f"must have a column {column!r} (named by `stream` and `features`), {found}", argument)
        columns[name] = as_column(table[column])
    if not types:
        types |= _float_types(schema, table)
    return columns


def batch_of_frame(schema: Schema, columns: Mapping[str, NDArray[Any]], types: FloatTypes) -> Batch:
    """Make a batch of plain columns of data frames, whose floats are of noted types; positions are numbers of rows."""
    batch = batch_from_cells(
        schema, columns, roles={name: role._replace(doubles=None) for name, role in schema.roles().items()}
    )
    if schema.converts is not None:
        for k, name in enumerate(schema.features):
            batch.values[:, k] = schema.converts(k, batch.values[:, k], types[name])
    return batch


def rows_of(records: Any) -> Sequence[Any] | None:
    """Return the records of a list of mappings, or the only one; None for any other object."""
    if isinstance(records, Mapping):
        return [records]
    is_list = isinstance(records, (list, tuple)) and len(records) > 0
    return records if is_list and all(isinstance(record, Mapping) for record in records) else None


def read_rows_by_name(schema: Schema, rows: Sequence[Any]) -> Batch:
    """Make a batch of mappings, whose fields stand where the schema says; positions are numbers of rows."""
    schema.refuse_envelopes("records that are pushed")
    schema.refuse_elements("records that are pushed")
    columns = {}
    for name in (schema.time, *schema.features, *schema.labels):
        place = schema.place(name)
        assert isinstance(place, FieldPath)
        columns[name] = as_objects([place.find(row) for row in rows])
    return batch_from_cells(schema, columns)
