"""Releases in long form as rows of a table, beside the table that holds their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ...releases.base import Release
from ...releases.long_form import HOLDS, LongRow, long_form

if TYPE_CHECKING:
    import psycopg

_TOGETHER = 5000  # rows of one statement
_READ = 1000  # releases of one read
_GIVEN = {"time": "bigint", "text": "text", "number": "float8"}
_KEPT = _GIVEN | {"time": "timestamptz"}
_READ_AS = {"time": "'epoch'::timestamptz + {} * interval '1 millisecond'"}
_TYPES = get_type_hints(LongRow)
_COLUMNS = ", ".join(HOLDS)
_CREATE = (
    "CREATE TABLE {numbers} ("
    + ", ".join(
        f"{name} {_KEPT[holds]}{'' if type(None) in get_args(_TYPES[name]) else ' NOT NULL'}"
        for name, holds in HOLDS.items()
    )
    + ")"
)
_INDEX = "CREATE INDEX ON {numbers} (stream, window_open)"
_INSERT = f"""
INSERT INTO {{numbers}} ({_COLUMNS})
SELECT {", ".join(_READ_AS.get(holds, "{}").format(name) for name, holds in HOLDS.items())}
FROM unnest({", ".join(f"%s::{_GIVEN[holds]}[]" for holds in HOLDS.values())}) AS given ({_COLUMNS})
"""


class LongTable:
    """A row for each published number, and one for each refusal; see `fcstream.releases.long_form`.

    It has no key of its own: rows are inserted in the transaction that inserts their release, so they are there once.

    Parameters
    ----------
    table : str
        Its name in SQL.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def make(self, db: psycopg.Connection[tuple[Any, ...]], releases: str) -> None:
        """Make the table, inside a transaction, with the rows of all releases that another table holds."""
        db.execute(_CREATE.format(numbers=self._table).encode())
        db.execute(_INDEX.format(numbers=self._table).encode())
        with db.cursor("fcstream_releases") as held:  # on the server: there may be more than fit into memory
            held.execute(f"SELECT body::text FROM {releases} ORDER BY written_at, window_open_ms".encode())
            while rows := held.fetchmany(_READ):
                self.insert(db, [Release.from_bytes(body.encode()) for (body,) in rows])

    def insert(self, db: psycopg.Connection[tuple[Any, ...]], releases: Sequence[Release]) -> None:
        """Insert the rows of releases whose rows are not there yet."""
        rows = list(long_form(releases))
        query = _INSERT.format(numbers=self._table).encode()
        for first in range(0, len(rows), _TOGETHER):
            db.execute(
                query, [list(column) for column in zip(*map(_values, rows[first : first + _TOGETHER]), strict=True)]
            )


def _values(row: LongRow) -> LongRow:
    """Return a row whose numbers are floats, as the columns are."""
    numbers = (row.value, row.sigma, row.low, row.high)
    value, sigma, low, high = (None if number is None else float(number) for number in numbers)
    return row._replace(value=value, sigma=sigma, low=low, high=high)
