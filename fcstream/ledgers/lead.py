"""One process at a time answers a stream: a lock that its PostgreSQL session holds and that dies with it.

The ledger is sound without it, because only the first seal of a window is taken. But processes that answer the same
windows at once waste work, and windows that three of them charge are given up as interrupted.
"""

from __future__ import annotations

import time

from ..errors import LedgerError
from .sessions import Address, Session

_CHECK_EVERY_S = 2.0


class PostgresLead:
    """The lead of one stream.

    Parameters
    ----------
    url : str
        Of the ledger, see `PostgresLedger`. A pooler in between must keep sessions whole.
    stream : str

    Raises
    ------
    ConfigError, LedgerError
    """

    def __init__(self, url: str, stream: str) -> None:
        address = Address.of(url)
        self._session = Session(address, address.place(stream), is_reader=False)
        self._name = f"fcstream lead {address.schema} {stream}"
        self._backend = 0
        self._checked = 0.0

    def take(self) -> bool:
        """Whether it is this process from now on."""
        query = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0)), pg_backend_pid()"
        row = self._session.run(lambda db: db.execute(query, (self._name,)).fetchone())
        assert row is not None
        self._backend, self._checked = row[1], time.monotonic()
        return bool(row[0])

    def check(self) -> None:
        """Raise if the session that held it is gone."""
        if time.monotonic() - self._checked < _CHECK_EVERY_S:
            return
        row = self._session.run(lambda db: db.execute("SELECT pg_backend_pid()").fetchone())
        self._checked = time.monotonic()
        if row != (self._backend,):
            raise LedgerError(f"{self._session.place} lost the session that held the lead of this stream")

    def close(self) -> None:
        self._session.close()
