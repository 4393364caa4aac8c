"""Writes a table in the library that another table came from: pandas, polars or Arrow, none of which is needed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

from ..errors import ConfigError, Shown
from .frames import columns_of

LIBRARIES = ("pandas", "polars", "pyarrow")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def library_of(table: Any) -> str | None:
    """Return the library that a table is from: ``pandas``, ``polars`` or ``pyarrow``; None for anything else."""
    if columns_of(table) is None:
        return None
    roots = (cls.__module__.partition(".")[0] for cls in type(table).__mro__)
    return next((root for root in roots if root in LIBRARIES), None)


def table_like(table: Any, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> Any:
    """Make a table like another one: a data frame of pandas or polars, or a table or record batch of Arrow.

    Parameters
    ----------
    table
        Its columns are not looked at.
    columns : mapping
        By name what a column holds (``time`` in Unix milliseconds, ``text``, ``number`` or ``flag``) and its cells, of
        which None is a missing one. Times become moments in UTC.

    Raises
    ------
    ConfigError
    """
    name = library_of(table)
    if name is None:
        raise ConfigError(
            "must be a data frame of pandas or polars, or a table of Arrow", "frame", got=Shown(type(table).__name__)
        )
    batch = name == "pyarrow" and isinstance(table, import_module(name).RecordBatch)
    return table_of(name, columns, is_batch=batch)


def table_of(name: str | None, columns: Mapping[str, tuple[str, Sequence[Any]]], *, is_batch: bool = False) -> Any:
    """Make a table in a library as `library_of` names it, see `table_like`; without one a dict of lists.

    Raises
    ------
    ConfigError
        The library is not installed, or it is none of these.
    """
    if name is None:
        return {
            title: [None if cell is None else _EPOCH + timedelta(milliseconds=cell) for cell in cells]
            if kind == "time"
            else list(cells)
            for title, (kind, cells) in columns.items()
        }
    if name not in LIBRARIES:
        raise ConfigError(f"must be {', '.join(map(repr, LIBRARIES[:-1]))} or {LIBRARIES[-1]!r}", "library", got=name)
    try:
        library = import_module(name)
    except ImportError:
        raise ConfigError(
            f"must be a library that is installed, {name} is not", "library", remedy="leave it out, or install it"
        ) from None
    if name == "pandas":
        kinds = {"time": "datetime64[ms, UTC]", "text": object, "number": "float64", "flag": "boolean"}
        return library.DataFrame(
            {
                title: library.Series(library.to_datetime(cells, unit="ms", utc=True) if kind == "time" else cells)
                .astype(kinds[kind])
                .rename(title)
                for title, (kind, cells) in columns.items()
            }
        )
    if name == "polars":
        types = {"time": library.Int64, "text": library.String, "number": library.Float64, "flag": library.Boolean}
        made = library.DataFrame(
            [library.Series(title, cells, types[kind]) for title, (kind, cells) in columns.items()]
        )
        moment = library.Datetime("ms", "UTC")
        return made.with_columns(
            library.col(title).cast(moment) for title, (kind, _) in columns.items() if kind == "time"
        )
    types = {"time": library.timestamp("ms", "UTC"), "text": library.string(), "number": library.float64()}
    types |= {"flag": library.bool_()}
    schema = library.schema([(title, types[kind]) for title, (kind, _) in columns.items()])
    made = library.RecordBatch if is_batch else library.Table
    return made.from_pydict({title: cells for title, (_, cells) in columns.items()}, schema=schema)
