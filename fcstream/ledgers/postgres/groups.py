"""Streams of one PostgreSQL schema that share filters; `fcstream.ledgers.groups` explains the rules.

A charge of a group first takes the group's lock, which is held until the transaction ends, and then reads what the
other streams have spent. So processes charge one after the other, whatever their streams, and the cap holds for the
sum.
"""

from __future__ import annotations

from typing import Any

from ...accounting.losses import PrivacyLoss
from ..base import Terms, WindowKey
from ..groups import NOWHERE, SHARED_BLOCKS, Elsewhere, check_sums
from .connection import Connection


class GroupTables:
    """The tables of a stream's group, used through one connection, inside the caller's transaction.

    Parameters
    ----------
    db : Connection
    schema : str
        Quoted name of the schema.
    location : str
        Location of the ledger that messages show.
    terms : Terms
        Terms of the stream.
    """

    def __init__(self, db: Connection, schema: str, location: str, terms: Terms[Any]) -> None:
        self._db, self._schema, self._location, self._terms = db, schema, location, terms

    def lock(self) -> None:
        """Wait until no other charge of the group is under way, and keep others waiting until the transaction ends."""
        name = f"fcstream group {self._schema} {self._terms.group}"
        self._do("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # what is read below is newer than the lock
        self._do("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", name)

    def members(self) -> list[str]:
        """List the names of all streams of the group, retired ones included."""
        return [str(name) for (name,) in self._do("SELECT {schema}.group_members(%s::text)", self._terms.group)]

    def elsewhere(self, stream: str) -> Elsewhere:
        """Read what the streams of the group but one have spent."""
        if self._terms.group is None:
            return NOWHERE
        query = "SELECT * FROM {schema}.spent_elsewhere(%s::text, %s::text)"
        rows = self._do(query, stream, self._terms.group)
        return Elsewhere({block: PrivacyLoss(rho, delta) for block, rho, delta in rows})

    def has_window(self, window: WindowKey) -> bool:
        """Tell whether this stream's window was charged or sealed."""
        query = "SELECT FROM {schema}.windows WHERE stream = %s AND open_ms = %s AND close_ms = %s"
        return self._do(query, self._terms.stream, window.open_ms, window.close_ms).fetchone() is not None

    def blocks(self, stream: str) -> dict[str, PrivacyLoss]:
        """Read what one stream has spent of the blocks that the group shares."""
        query = "SELECT block, rho, delta FROM {schema}.blocks WHERE stream = %s AND block = ANY (%s)"
        rows = self._do(query, stream, list(SHARED_BLOCKS))
        return {block: PrivacyLoss(rho, delta) for block, rho, delta in rows}

    def write(self, charge: tuple[object, ...]) -> tuple[int, bytes]:
        """Write a charge that was found to fit; returns the last row of the stream's journal and its link."""
        query = (
            "SELECT last_seq, last_chain FROM {schema}.charge_in_group(%s::text, %s::bigint, %b::bytea, %b::bytea, "
            "%s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::text[])"
        )
        seq, chain = self._do(query, *charge).fetchone()
        return int(seq), bytes(chain)

    def check(self) -> None:
        """Check the sums over all streams of the group against its caps.

        Raises
        ------
        LedgerDamaged
        """
        if self._terms.group is None:
            return
        check_sums(self._location, self._terms, map(self.blocks, self.members()))

    def _do(self, query: str, *values: object) -> Any:
        return self._db.execute(query.replace("{schema}", self._schema).encode(), values, binary=True)
