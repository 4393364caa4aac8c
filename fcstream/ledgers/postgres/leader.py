"""Elects the one process that serves a stream: a lease with a deadline, in a row of the PostgreSQL ledger.

The holder renews the lease every two seconds. Another process may take it ten seconds after the last renewal, by the
server's clock, or as soon as the holder's session has ended. So a process that hangs, or whose host has vanished from
the network, is replaced within seconds, and a process that was killed is replaced at once.

Nobody can tell a slow holder from a dead one. Therefore every transaction of the holder's ledger first checks that it
still has the lease (`lock_stream` in `schema.sql`): a process that wakes up after it was replaced writes nothing. The
ledger is correct without leases too, because only the first seal of a window is accepted. But processes that answer the
same windows at once waste work, and a window that three of them charge is given up as interrupted.
"""

from __future__ import annotations

import contextvars
import threading
import time
import urllib.parse

from ...errors import FcstreamError, LedgerError
from ...noise.samplers import SystemEntropy
from .connection import Connection, PostgresConnection, ServerAddress, sql
from .tables import make_schema

LEASE_S = 10.0
"""How long a lease is valid after its last renewal."""
_RENEW_S = 2.0
_ANSWER_S = 3.0


class PostgresLease:
    """The lease of one stream, or of all sibling streams of a keyed stream.

    Parameters
    ----------
    url : str
        URL of the ledger, see `PostgresLedger`. A connection pooler must be in session mode.
    stream : str

    Attributes
    ----------
    claim : str
        Token that the ledger sends with every change, so that the change fails if another process has the lease.

    Raises
    ------
    ConfigError, LedgerError
    """

    def __init__(self, url: str, stream: str) -> None:
        self._address = ServerAddress.of(url)
        self._session = PostgresConnection(self._address, self._address.location(stream), is_reader=False)
        self._session.answer_s = _ANSWER_S
        self._key = stream, SystemEntropy().words(2).tobytes().hex()
        self.claim = f"{self._key[1]} {stream}"
        self._has_tables = False
        self._closing, self._lost = threading.Event(), threading.Event()
        self._until = 0.0
        self._renewer: threading.Thread | None = None

    def acquire(self) -> bool:
        """Try to take the lease; returns whether this process has it from now on."""
        asked = time.monotonic()
        if not self._session.run(self._take):
            return False
        self._until = asked + LEASE_S  # the server's deadline is later
        about = contextvars.copy_context()  # what it waits for is this stream's
        self._renewer = threading.Thread(target=about.run, args=(self._renew,), name="fcstream-lease", daemon=True)
        self._renewer.start()
        return True

    def check(self) -> None:
        """Raise if another process has the lease, or may have it; does not ask the server.

        Raises
        ------
        LedgerError
        """
        if self._lost.is_set():
            raise LedgerError("another process has taken the lease of this stream", where=self._session.location)
        if time.monotonic() > self._until:
            raise LedgerError(
                f"the lease of this stream could not be renewed for {LEASE_S:g} s",
                remedy="check that the server can be reached",
                where=self._session.location,
            )

    def bind(self, url: str) -> str:
        """Return a URL of the ledger with which changes fail once another process has taken the lease."""
        return f"{url}{'&' if '?' in url else '?'}lease={urllib.parse.quote(self.claim)}"

    def close(self) -> None:
        """Give the lease back. May be called more than once."""
        self._closing.set()
        if self._renewer is None:
            self._session.close()
        else:
            self._renewer.join(_ANSWER_S)  # which closes the session

    def _take(self, db: Connection) -> bool:
        if not self._has_tables:
            with db.transaction():
                make_schema(db, self._address)
            self._has_tables = True
        return self._query_lease(db, "SELECT {schema}.take_lease(%s, %s, %s)", *self._key, LEASE_S)

    def _renew(self) -> None:
        """Renew the lease until it is given back or lost."""
        query = "SELECT {schema}.renew_lease(%s, %s, %s)"
        try:
            while not self._closing.wait(_RENEW_S):
                asked = time.monotonic()
                try:
                    is_ours = self._session.run(lambda db: self._query_lease(db, query, *self._key, LEASE_S))
                except FcstreamError:
                    continue  # `check` raises once this has lasted too long
                if not is_ours:
                    self._lost.set()
                    return
                self._until = asked + LEASE_S
            self._give_back()
        finally:
            self._session.close()

    def _give_back(self) -> None:
        query = "UPDATE {schema}.leases SET expires = '-infinity' WHERE name = %s AND holder = %s RETURNING true"
        try:
            self._session.run(lambda db: self._query_lease(db, query, *self._key))
        except FcstreamError:
            return  # the lease expires by itself

    def _query_lease(self, db: Connection, query: str, *values: object) -> bool:
        schema = sql.Identifier(self._address.schema).as_string()
        row = db.execute(query.replace("{schema}", schema).encode(), values).fetchone()
        return row is not None and bool(row[0])
