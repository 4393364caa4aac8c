"""Reads the columns of Arrow tables: every row is one record, read independently of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import needs_package
from .batch import Batch, Rejection, Schema, batch_from_cells
from .cells import LONGEST_LABEL, composed_labels
from .plain_columns import as_array, as_objects
from .texts import are_overloaded

_NO_TEXT = object()
"""Stands for bytes that are not UTF-8."""


class ArrowRows:
    """Reader of tables (pyarrow) whose columns are named as in the configuration.

    Parameters
    ----------
    schema : Schema
    key : str
        Setting that asked for it, named if pyarrow is missing.
    """

    def __init__(self, schema: Schema, key: str = "source.format") -> None:
        with needs_package("pyarrow", "arrow", key):
            import pyarrow
        self._arrow = pyarrow
        schema.refuse_envelopes("tables")
        schema.refuse_elements("tables")
        self._schema = schema
        self._columns = {name: schema.column(name) for name in (schema.time, *schema.features, *schema.labels)}

        self._roles = schema.roles()

    @property
    def columns(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys(self._columns.values()))

    def column(self, name: str) -> str:
        """Return the column that holds a field."""
        return self._columns[name]

    def odd_column(self, found: Any) -> tuple[str, str] | None:
        """Return reason and name of the first column that a ``pyarrow.Schema`` lacks, or has with a type of which no
        row could be used; None if there is none. No column is read for it."""
        for name, column in self._columns.items():
            if found.names.count(column) != 1:
                return "missing", name
            if not self._is_flat(name, found.field(column).type):
                return self._schema.role(name).wrong, name
        return None

    def plain_schema(self, found: Any) -> Any:
        """Return the columns of `plain`."""
        fields = [self._arrow.field(each.name, self._plain_type(each.type)) for each in found]
        return self._arrow.schema(fields)

    def plain(self, table: Any) -> Any:
        """Decode dictionaries, which are not taken from messages; see `odd_column`."""
        found = self.plain_schema(table.schema)
        return table if found.equals(table.schema) else table.cast(found)

    def _plain_type(self, kind: Any) -> Any:
        types = self._arrow.types
        if types.is_dictionary(kind):
            return self._plain_type(kind.value_type)
        return self._arrow.string() if str(kind) == "string_view" else kind

    def validate(self, table: Any) -> None:
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

    def read(self, table: Any, positions: NDArray[np.int64]) -> Batch:
        """Read the records of a valid table without odd columns.

        Parameters
        ----------
        table : pyarrow.Table (n rows)
        positions : int64 (n,)
            Position of each row in its source.
        """
        columns = {name: table.column(column) for name, column in self._columns.items()}
        ids = (name for name in (self._schema.user, self._schema.key) if name is not None)
        labels = {name: found for name in ids if (found := self._usual_labels(columns[name])) is not None}
        cells = labels | {name: self._cells(column) for name, column in columns.items() if name not in labels}
        return batch_from_cells(self._schema, cells, positions, self._roles, labels)

    def _usual_labels(self, column: Any) -> NDArray[np.object_] | None:
        """Read users' ids or keys, if all are there, and texts of a usual length; None otherwise."""
        if column.null_count or not len(column) or not self._is_text(column):
            return None
        from pyarrow import compute

        sizes = compute.min_max(compute.binary_length(column)).as_py()
        if sizes["min"] == 0 or sizes["max"] > LONGEST_LABEL:
            return None
        try:
            found: NDArray[np.object_] = column.to_numpy()
        except self._arrow.ArrowException:  # no Unicode
            return None
        return None if are_overloaded(found) else composed_labels(found)

    def _cells(self, column: Any) -> NDArray[Any]:
        """Return a column as a plain one; text that is not UTF-8 becomes a value that every check rejects."""
        if self._arrow.types.is_timestamp(column.type):
            ticks = column.cast(self._arrow.int64())
            moments = (ticks.fill_null(0) if column.null_count else ticks).to_numpy()
            moments = np.maximum(moments, -(2**63) + 1).view(f"datetime64[{column.type.unit}]")  # the least is NaT
            return np.ma.array(moments, mask=column.is_null().to_numpy()) if column.null_count else moments
        if column.null_count == 0 and self._arrow.types.is_primitive(column.type):
            return np.asarray(column.to_numpy())
        if not self._is_text(column):
            return np.asanyarray(as_array(column))
        try:
            return np.asarray(column.to_numpy())
        except (UnicodeDecodeError, self._arrow.ArrowException):
            chunks = [self._as_bytes(chunk) for chunk in column.chunks]
            return as_objects([None if raw is None else _as_text(raw) for chunk in chunks for raw in chunk.to_pylist()])

    def _is_text(self, column: Any) -> bool:
        types = self._arrow.types
        return bool(types.is_string(column.type) or types.is_large_string(column.type))

    def _is_flat(self, name: str, kind: Any) -> bool:
        """Tell whether a column has a usable type and stores every value: in an encoded column one stored value could
        stand for millions. A column of nulls only has no type of its own, and no more rows than the column of times."""
        types = self._arrow.types
        if types.is_null(kind):
            return name != self._schema.time
        if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
            return True
        is_text = types.is_string(kind) or types.is_large_string(kind)
        is_date = types.is_timestamp(kind) or types.is_date(kind)
        if name == self._schema.time:
            return bool(is_text or is_date)
        if name in self._schema.labels or name in self._schema.levels:
            is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
            return bool(is_text or is_bytes or is_date or types.is_boolean(kind) or types.is_time(kind))
        return bool(is_text and (name in self._schema.missing or name in self._schema.quoted))

    def nothing(self, rejections: list[Rejection]) -> Batch:
        """Return a batch of no records."""
        nothing, features = np.empty(0, np.int64), np.empty((0, len(self._schema.features)))
        labels = [as_objects([]) for _ in self._schema.labels]
        return self._schema.labeled(Batch(nothing, features, nothing, rejections), labels)


def _as_text(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _NO_TEXT
