"""What windows leave for later ones, in a table of its own that is made at its first use; no part of the journal."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import EpochState
from ..hash_chain import state_mark
from .connection import Connection

_TABLE = """
CREATE TABLE IF NOT EXISTS {schema}.states (
    stream text COLLATE "C" NOT NULL,
    answer text COLLATE "C" NOT NULL,
    epoch_ms bigint NOT NULL,
    open_ms bigint NOT NULL,
    body bytea NOT NULL,
    mark bigint NOT NULL,
    PRIMARY KEY (stream, answer, epoch_ms, open_ms)
)
"""
_READ = """
SELECT open_ms, body, mark FROM {schema}.states WHERE stream = %s AND answer = %s AND epoch_ms = %s ORDER BY open_ms
"""


class PostgresStates:
    """The states of epochs in one schema. The caller's transaction contains every call.

    Parameters
    ----------
    db : Connection
    schema : str
        Quoted name of the ledger's schema.
    """

    def __init__(self, db: Connection, schema: str) -> None:
        self._db, self._schema = db, schema

    def make(self) -> None:
        """Create the table unless it is there; several processes may call this at once."""
        if not self._is_there():
            self._db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"fcstream {self._schema}",))
            self._db.execute(self._sql(_TABLE))

    def read(self, stream: str, answer: str, epoch_ms: int) -> list[tuple[int, bytes]]:
        """See `StateLedger.epoch_states`."""
        if not self._is_there():
            return []
        found = self._db.execute(self._sql(_READ), (stream, answer, epoch_ms), binary=True)
        return [
            (open_ms, bytes(body))
            for open_ms, body, stored in found
            if state_mark(EpochState(answer, epoch_ms, open_ms, bytes(body))) == stored
        ]

    def put(self, stream: str, states: Sequence[EpochState]) -> None:
        """Store what windows leave, and delete what past epochs left. A call that is repeated changes nothing."""
        query = self._sql("INSERT INTO {schema}.states VALUES (%s, %s, %s, %s, %b, %s) ON CONFLICT DO NOTHING")
        for state in states:
            self.forget(stream, state.answer, state.forgets_before_ms)
            if state.body:
                self._db.execute(query, (stream, *state, state_mark(state)))

    def forget(self, stream: str, answer: str, before_ms: int) -> None:
        """See `StateLedger.forget_states`."""
        if self._is_there():
            query = self._sql("DELETE FROM {schema}.states WHERE stream = %s AND answer = %s AND epoch_ms < %s")
            self._db.execute(query, (stream, answer, before_ms))

    def drop(self, stream: str) -> None:
        """Delete all that windows of a stream left."""
        if self._is_there():
            self._db.execute(self._sql("DELETE FROM {schema}.states WHERE stream = %s"), (stream,))

    def _is_there(self) -> bool:
        row = self._db.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{self._schema}.states",)).fetchone()
        return row is not None and bool(row[0])

    def _sql(self, text: str) -> bytes:
        return text.replace("{schema}", self._schema).encode()
