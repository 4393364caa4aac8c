"""Reads the releases back that a sink wrote into a table of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import SinkError
from ..urls import Address
from .sink import PostgresSink

if TYPE_CHECKING:
    import psycopg

_AT_ONCE = 1000


class PostgresReader(PostgresSink):
    """The table of a `PostgresSink`, opened to read from it: nothing is made or changed, and a standby will do.

    Raises
    ------
    ConfigError, SinkError
    """

    def lines(self) -> Iterator[bytes]:
        """Yield the releases as they were sealed, as one moment has them; there may be more than fit into memory."""
        db = self._run(lambda db: db)
        query = f"SELECT body::text FROM {self._table} ORDER BY stream, window_open_ms, window_close_ms, name"
        try:
            with db.transaction(), db.cursor("fcstream_releases") as held:
                held.execute(query.encode())
                while rows := held.fetchmany(_AT_ONCE):
                    yield from ((body or "").encode() for (body,) in rows)
        except self._client.Error as error:
            raise SinkError(f"{self.location} cannot be read: {self._error_text(error)}") from None

    def _prepare(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        if not self._exists(db):
            raise SinkError(
                f"{self.location} has no table {self._name!r}", remedy="correct `schema` and `table` of the URL"
            )

    def _parse(self, address: Address) -> dict[str, Any]:
        return super()._parse(address) | {"target_session_attrs": "any"}
