"""Writes a table in the library that another table came from: pandas, polars or Arrow, none of which is needed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from ..errors import ConfigError
from .frames import columns_of

_LIBRARIES = ("pandas", "polars", "pyarrow")


def library_of(table: Any) -> str | None:
    """Return the library that a table is from: ``pandas``, ``polars`` or ``pyarrow``; None for anything else."""
    if columns_of(table) is None:
        return None
    roots = (cls.__module__.partition(".")[0] for cls in type(table).__mro__)
    return next((root for root in roots if root in _LIBRARIES), None)


def table_like(table: Any, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> Any:
    """Make a table like another one: a data frame of pandas or polars, or a table or record batch of Arrow.

    Parameters
    ----------
    table
        Its columns are not looked at.
    columns : mapping
        By name what a column holds (``time`` in Unix milliseconds, ``text`` or ``number``) and its cells, of which None
        is a missing one. Times become moments in UTC.

    Raises
    ------
    ConfigError
    """
    name = library_of(table)
    if name is None:
        raise ConfigError(
            f"must be a data frame of pandas or polars, or a table of Arrow, got {type(table).__name__}", "frame"
        )
    library = import_module(name)
    if name == "pandas":
        kinds = {"time": "datetime64[ms, UTC]", "text": object, "number": "float64"}
        return library.DataFrame(
            {
                title: library.Series(library.to_datetime(cells, unit="ms", utc=True) if kind == "time" else cells)
                .astype(kinds[kind])
                .rename(title)
                for title, (kind, cells) in columns.items()
            }
        )
    if name == "polars":
        types = {"time": library.Int64, "text": library.String, "number": library.Float64}
        made = library.DataFrame(
            [library.Series(title, cells, types[kind]) for title, (kind, cells) in columns.items()]
        )
        moment = library.Datetime("ms", "UTC")
        return made.with_columns(
            library.col(title).cast(moment) for title, (kind, _) in columns.items() if kind == "time"
        )
    types = {"time": library.timestamp("ms", "UTC"), "text": library.string(), "number": library.float64()}
    schema = library.schema([(title, types[kind]) for title, (kind, _) in columns.items()])
    made = type(table) if isinstance(table, library.RecordBatch) else library.Table
    return made.from_pydict({title: cells for title, (_, cells) in columns.items()}, schema=schema)
