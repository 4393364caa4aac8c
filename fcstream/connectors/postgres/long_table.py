"""Releases in long form as rows of a table, beside the table that holds their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...releases.base import Release
from ...releases.long_form import LongRow, long_form

if TYPE_CHECKING:
    import psycopg

_TOGETHER = 5000  # rows of one statement
_READ = 1000  # releases of one read
_COLUMNS = "time, stream, key, answer, kind, name, value, sigma, low, high, status"
_CREATE = """
CREATE TABLE {numbers} (
    time timestamptz NOT NULL,
    stream text NOT NULL,
    key text,
    answer text NOT NULL,
    kind text NOT NULL,
    name text,
    value double precision,
    sigma double precision,
    low double precision,
    high double precision,
    status text NOT NULL
)
"""
_INDEX = "CREATE INDEX ON {numbers} (stream, time)"
_INSERT = f"""
INSERT INTO {{numbers}} ({_COLUMNS})
SELECT 'epoch'::timestamptz + ms * interval '1 millisecond', stream, key, answer, kind, name, value, sigma, low,
       high, status
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::float8[], %s::float8[],
            %s::float8[], %s::float8[], %s::text[])
AS given (ms, stream, key, answer, kind, name, value, sigma, low, high, status)
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
