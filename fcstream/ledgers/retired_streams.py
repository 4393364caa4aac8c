"""Retires a stream on request: its journal is closed for ever, and its name is free for another specification.

The old stream's guarantee still holds for what it released. But a new stream of that name has a budget of its own, so
a participant with records in both can lose both budgets; therefore no stream is ever retired automatically. The last
row of the journal says what was given up, and the old rows stay in the ledger under another name.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..accounting.losses import PrivacyLoss
from ..errors import LedgerMismatch
from . import hash_chain
from .base import WindowKey, is_shared, root_of
from .files import LedgerFile, translated_errors
from .rollback_guard import RollbackGuard
from .sqlite.listing import check_listed, stream_numbers
from .sqlite.tables import StreamTables


def retire(url: str, stream: str) -> list[str]:
    """Close a stream, with the sibling streams of all its keys, in one transaction.

    Parameters
    ----------
    url : str
        ``sqlite:PATH``, a bare path, or ``postgresql:...``.
    stream : str
        Name of the stream, without a key.

    Returns
    -------
    list of str
        New names of the stream and its siblings.

    Raises
    ------
    LedgerMismatch
        There is no such stream.
    LedgerInUse, LedgerDamaged, LedgerError
    """
    if is_shared(url):
        return _retire_on_server(url, stream)
    path = url.removeprefix("sqlite:")
    guest = _Guest()
    file = LedgerFile.share(path, guest, create=False)
    try:
        with file.lock, translated_errors(path):
            return _retire_in_file(file, path, stream)
    finally:
        file.leave(guest)


class _Guest:
    """Shares a ledger's file."""


def _retire_in_file(file: LedgerFile, path: str, stream: str) -> list[str]:
    check_listed(file, path)
    listed = stream_numbers(file)
    parts = [(number, name) for number, name, retired in listed if not retired and root_of(name) == stream]
    later = _later_names(path, stream, [name for _, name in parts], [name for _, name, _ in listed])
    file.mark("open")
    file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    done = []
    with file.changing("EXCLUSIVE"):
        for (number, _), name in zip(parts, later, strict=True):
            tables = StreamTables(file, path, number)
            tables.open()
            tables.check()
            body = hash_chain.retire_body(name, tables.max_spent_of_all(), tables.terms.capacity)
            tables.append("retire", WindowKey(0, 0), PrivacyLoss(), "", body)
            tables.save()
            tables.drop_states()
            file.db.execute("UPDATE streams SET stream = ?, retired = 1 WHERE number = ?", (name, number))
            done.append((tables.guard, tables.head.seq, tables.head.chain))
    RollbackGuard.note_together(done)
    return later


def _retire_on_server(url: str, stream: str) -> list[str]:
    from .postgres.connection import Connection, PostgresConnection, ServerAddress, sql
    from .postgres.connection import translated_errors as in_words
    from .postgres.states import PostgresStates
    from .postgres.tables import PostgresTables, largest_spent, make_schema, stream_names

    address = ServerAddress.of(url)
    session = PostgresConnection(address, address.location(stream), is_reader=False)
    schema = sql.Identifier(address.schema).as_string()

    def work(db: Connection) -> list[str]:
        listed = stream_names(db, address)
        with db.transaction(), in_words(session.location):
            make_schema(db, address)
            tables = PostgresTables(db, schema, session.location)
            parts = [name for name in listed if root_of(name) == stream and not tables.open(name).is_retired]
            later = _later_names(session.location, stream, parts, listed)
            for old, new in zip(parts, later, strict=True):
                tables.check(old)
                found = tables.open(old, lock=True)
                body = hash_chain.retire_body(new, largest_spent(db, schema, old), found.terms.capacity)
                query = f"SELECT {schema}.retire(%s::text, %s::bigint, %b::bytea, %s::text, %b::bytea)"
                db.execute(query.encode(), (old, *found.seen, new, body))
                PostgresStates(db, schema).drop(old)
        return later

    try:
        return session.run(work)
    finally:
        session.close()


def _later_names(location: str, stream: str, parts: list[str], listed: Iterable[str]) -> list[str]:
    """Choose new names for retired sibling streams: all get the same number, which no other retired stream has."""
    if not parts:
        raise LedgerMismatch(
            f"{location} has no stream {stream!r} to retire", remedy="name the whole stream, without a key"
        )
    taken, number = set(listed), 1
    while any(f"{part} (retired {number})" in taken for part in parts):
        number += 1
    return [f"{part} (retired {number})" for part in parts]
