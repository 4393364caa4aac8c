"""Reads the columns of Arrow tables: every row is one record, read independently of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import needs_package
from .batch import (
    LONGEST_LABEL,
    PER_MILLISECOND,
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
from .levels import doubles_of
from .rejections import tallied

_TICKS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""Milliseconds per tick of a timestamp, as a fraction."""
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
                reason = "bad_time" if name == self._schema.time else "not_a_number"
                return (bad_label(self._schema, name) if name in self._schema.labels else reason), name
        return None

    def plain_schema(self, found: Any) -> Any:
        """Return the columns of `plain`."""
        fields = [self._arrow.field(each.name, self._plain_type(each.type)) for each in found]
        return self._arrow.schema(fields)

    def plain(self, table: Any) -> Any:
        """Decode dictionaries and decimals, which are not taken from messages; see `odd_column`."""
        found = self.plain_schema(table.schema)
        return table if found.equals(table.schema) else table.cast(found)

    def _plain_type(self, kind: Any) -> Any:
        types = self._arrow.types
        if types.is_dictionary(kind):
            return self._plain_type(kind.value_type)
        if types.is_decimal(kind):
            return self._arrow.float64()
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
        schema, n = self._schema, table.num_rows
        rejections: dict[int, Rejection] = {}
        values = np.empty((n, len(schema.features)))
        for k, name in enumerate(schema.features):
            values[:, k] = self._feature(table.column(self._columns[name]), name, positions, rejections)
        times = self._times(table.column(self._columns[schema.time]), positions, rejections)
        labels = [self._label(table.column(self._columns[name]), name, positions, rejections) for name in schema.labels]
        if not rejections:
            return schema.labeled(Batch(times, values, positions), labels)
        good = np.ones(n, np.bool_)
        good[list(rejections)] = False
        batch = Batch(times[good], values[good], positions[good], tallied(rejections[i] for i in sorted(rejections)))
        return schema.labeled(batch, [label[good] for label in labels])

    def _feature(
        self, column: Any, name: str, at: NDArray[np.int64], rejections: dict[int, Rejection]
    ) -> NDArray[np.float64] | list[float]:
        """Read numbers or codes, NaN if an optional one is missing; a row without a required value is rejected."""
        types = self._arrow.types
        if name in self._schema.levels or not (types.is_integer(column.type) or types.is_floating(column.type)):
            return self._parsed(column, name, at, rejections)
        values = doubles_of(self._schema, name, column.to_numpy(), column.type.to_pandas_dtype())
        finite = np.isfinite(values)
        if finite.all():
            return values
        absent = self._nulls(column)
        bad = np.isinf(values) if name in self._schema.optional else ~finite
        for i in np.flatnonzero(bad).tolist():
            rejections.setdefault(i, Rejection("missing" if absent[i] else "not_finite", int(at[i]), name))
        return values

    def _parsed(self, column: Any, name: str, at: NDArray[np.int64], rejections: dict[int, Rejection]) -> list[float]:
        """Read the values of a column that does not hold numbers, one by one."""
        found = []
        for i, value in enumerate(self._python(column)):
            try:
                found.append(parse_feature(value, name, self._schema))
            except UnusableRecord as refused:
                found.append(0.0)
                rejections.setdefault(i, Rejection(refused.reason, int(at[i]), name))
        return found

    def _label(
        self, column: Any, name: str, at: NDArray[np.int64], rejections: dict[int, Rejection]
    ) -> NDArray[np.object_]:
        """Read users' ids, keys or texts, empty for a row without one."""
        if name not in self._schema.texts and (usual := self._usual_labels(column)) is not None:
            return usual
        cells, texts = self._python(column), as_objects([""] * len(column))
        todo = list(range(len(cells)))
        if name in self._schema.texts:
            texts = plain_labels(cells, name, self._schema)
            todo = [i for i, text in enumerate(texts) if text is None]
        for i in todo:
            try:
                texts[i] = parse_label_of(cells[i], name, self._schema)
            except UnusableRecord as refused:
                rejections.setdefault(i, Rejection(refused.reason, int(at[i]), name))
        return texts

    def _usual_labels(self, column: Any) -> NDArray[np.object_] | None:
        """Read users' ids or keys, if all are there, and texts of a usual length or whole numbers; None otherwise."""
        if column.null_count or not len(column):
            return None
        if self._arrow.types.is_integer(column.type):
            return as_objects(list(map(str, column.to_numpy().tolist())))
        if not self._is_text(column):
            return None
        from pyarrow import compute

        sizes = compute.min_max(compute.binary_length(column)).as_py()
        if sizes["min"] == 0 or sizes["max"] > LONGEST_LABEL:
            return None
        try:
            found: NDArray[np.object_] = column.to_numpy()
        except self._arrow.ArrowException:  # no Unicode
            return None
        return found

    def _is_text(self, column: Any) -> bool:
        types = self._arrow.types
        return bool(types.is_string(column.type) or types.is_large_string(column.type))

    def _times(self, column: Any, at: NDArray[np.int64], rejections: dict[int, Rejection]) -> NDArray[np.int64]:
        """Read event times in milliseconds, 0 for a row without one."""
        name, unit, types = self._schema.time, self._schema.time_unit, self._arrow.types
        if types.is_timestamp(column.type):  # the type of such a column states its unit
            unit, column, is_whole = column.type.unit, column.cast(self._arrow.int64()), True
        else:
            is_whole = types.is_integer(column.type) and unit in ("ms", *PER_MILLISECOND)
        if is_whole:
            ticks = (column.fill_null(0) if column.null_count else column).to_numpy()
            times, good = ticks_to_ms(ticks, *_TICKS[unit])
            if not column.null_count and good.all():
                return times
            absent = self._nulls(column)
            for i in np.flatnonzero(absent | ~good).tolist():
                rejections[i] = Rejection("missing" if absent[i] else "bad_time", int(at[i]), name)
            return times
        times = np.zeros(len(column), np.int64)
        for i, value in enumerate(self._python(column)):
            try:
                times[i] = parse_time(value, unit, dates=self._schema.dates)
            except UnusableRecord as refused:
                rejections[i] = Rejection(refused.reason, int(at[i]), name)
        return times

    @staticmethod
    def _nulls(column: Any) -> NDArray[np.bool_]:
        return column.is_null().to_numpy() if column.null_count else np.zeros(len(column), np.bool_)

    def _python(self, column: Any) -> list[Any]:
        """Convert a column to Python values; text that is not UTF-8 becomes a value that every check rejects."""
        try:  # of texts older versions of `to_pylist` take ten times as long
            return list(column.to_numpy().tolist() if self._is_text(column) else column.to_pylist())
        except (UnicodeDecodeError, self._arrow.ArrowException):
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
        takes_text = name in self._schema.levels or name in self._schema.missing or name in self._schema.quoted
        return bool(is_number or (takes_text and (is_text or types.is_boolean(kind))))

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
