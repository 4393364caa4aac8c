"""Finds the streams of a SQLite file that ledgers are opened for, or adds them, all in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from ...accounting.losses import PrivacyLoss
from ...errors import LedgerDamaged, LedgerInUse, LedgerMismatch
from ..base import TOTAL_BLOCK, Terms, part_name
from ..files import APPLICATION_ID, LedgerFile
from ..groups import Standing, check_group, has_caps, sum_of, tightened_in_group
from ..rollback_guard import RollbackGuard
from ..terms_check import (
    check_caps,
    check_keys_named,
    check_terms,
    folded_name,
    log_tightened,
    some,
    tell_of_a_new_stream,
    tightened,
)
from .listing import check_listed, stream_numbers
from .tables import TABLES, StreamTables

SCHEMA_VERSION = 4
_FILE = "CREATE TABLE file (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"


class FoundStream(NamedTuple):
    """A stream of a file, the name that the file lists it under, and whether it was added just now."""

    tables: StreamTables
    name: str
    is_retired: bool
    is_new: bool


class Opening:
    """The streams of a file as they are read once, for all ledgers that are opened together.

    The caller holds the file in a transaction from here to the last call.

    Parameters
    ----------
    file : LedgerFile
        Made if it is empty.
    path : str
        Path that messages show.

    Raises
    ------
    LedgerMismatch, LedgerDamaged
    """

    def __init__(self, file: LedgerFile, path: str) -> None:
        self._file, self._path = file, path
        if file.is_empty:
            for statement in (_FILE, *TABLES.split(";")):
                file.db.execute(statement)
            file.db.execute("INSERT INTO file VALUES ('schema', ?), ('log', 'closed')", (str(SCHEMA_VERSION),))
            file.db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            file.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._check_version()
        self._tables = check_listed(file, path)
        self._listed = {name: (number, retired) for number, name, retired in stream_numbers(file)}
        self._siblings: dict[str, dict[int, str]] = {}
        self._named: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {}
        self._groups: set[tuple[str | None, str, PrivacyLoss, PrivacyLoss | None]] = set()

    def find(self, stream: str | None) -> FoundStream:
        """Return the stream of a name: with None the only one of the file, if empty the first one.

        Raises
        ------
        LedgerMismatch, LedgerDamaged
        """
        if not self._listed:
            raise LedgerDamaged(f"{self._path} is damaged: it lists no stream")
        if stream is None and len(self._listed) > 1:
            raise LedgerMismatch(
                f"{self._path} holds {len(self._listed)} streams", remedy=f"name one of {some(self._listed)}"
            )
        name = stream or next(iter(self._listed))
        if name not in self._listed:
            raise LedgerMismatch(f"{self._path} has no stream {name!r}, only {some(self._listed)}")
        number, retired = self._listed[name]
        return FoundStream(self._tables_of(number), name, bool(retired), is_new=False)

    def join(self, terms: Terms) -> FoundStream:
        """Check that a stream and all its siblings agree with the terms; the stream is added if it is absent.

        Raises
        ------
        LedgerMismatch, LedgerInUse, LedgerDamaged
        """
        number, retired = self._listed.get(terms.stream, (len(self._listed) + 1, 0))
        if retired:
            raise LedgerMismatch(
                f"stream {terms.stream!r} was retired", remedy="choose another `stream.name`", where=self._path
            )
        siblings, about = self._siblings_of(terms), replace(terms, stream=terms.root)
        unchecked = [] if self._file.agreed.get(folded_name(terms.root)) == about else siblings
        for number_of_one in unchecked:
            check_terms(self._path, self._tables_of(number_of_one).terms, terms)
        self._check_keys(siblings, terms)
        self._join_group(terms)  # before each stream is looked at alone: filters are those of all together
        self._tighten(map(self._tables_of, unchecked), terms)
        self._file.agreed[folded_name(terms.root)] = about
        if terms.stream in self._listed:
            return FoundStream(self._tables_of(number), terms.stream, False, is_new=False)
        RollbackGuard(self._file.guards, number).check_absence()
        made = self._tables[number] = StreamTables(self._file, self._path, number)
        made.create(terms)
        if terms.group is not None:
            self._file.members[terms.group][number] = self._read(number)  # spends from now on
        if not siblings:
            others = [
                Standing(self._tables_of(other).terms, is_retired=bool(gone)) for other, gone in self._listed.values()
            ]
            tell_of_a_new_stream(self._path, terms, others)
        self._listed[terms.stream] = number, 0
        siblings[number] = terms.stream
        return FoundStream(made, terms.stream, False, is_new=True)

    def _check_version(self) -> None:
        """Refuse a file whose schema is another one."""
        found = dict(self._file.db.execute("SELECT key, value FROM file").fetchall())
        version = str(self._file.db.execute("PRAGMA user_version").fetchone()[0])
        if found.keys() != {"schema", "log"} or found["log"] not in ("open", "closed") or found["schema"] != version:
            raise LedgerDamaged(f"{self._path} is damaged: what its schema is, and its log, cannot be read")
        if int(version) in range(1, SCHEMA_VERSION):
            raise LedgerMismatch(
                f"{self._path} is of an earlier version, which kept budgets of single users",
                remedy="take another ledger; what both cost somebody adds up",
            )
        if int(version) != SCHEMA_VERSION:
            raise LedgerMismatch(
                f"{self._path} has schema version {version}, this version reads none after {SCHEMA_VERSION}",
                remedy="use the version that made it",
            )

    def _siblings_of(self, terms: Terms) -> dict[int, str]:
        """Return the live streams of the same name without a key, by number; those added later are put in."""
        if not self._siblings:
            for name, (number, retired) in self._listed.items():
                if not retired:
                    self._siblings.setdefault(folded_name(name), {})[number] = name
        return self._siblings.setdefault(folded_name(terms.root), {})

    def _check_keys(self, siblings: dict[int, str], terms: Terms) -> None:
        """Check once for all streams of one configuration which keys there are; see `check_keys_named`."""
        keys = terms.shared_keys
        if keys is None:
            return
        known = self._named.get(terms.root)
        if known is None or known[0] is not keys:
            check_keys_named(self._path, siblings.values(), terms)
            self._named[terms.root] = keys, frozenset(part_name(terms.root, key) for key in keys)
        if terms.stream not in self._named[terms.root][1]:
            del self._named[terms.root]

    def _tighten(self, parts: Iterable[StreamTables], terms: Terms) -> None:
        """Give this stream and its siblings stricter caps, together."""
        looser = [tables for tables in parts if tables.terms != tightened(tables.terms, terms)]
        for tables in looser:
            self._check_unused(tables)
        before = [tables.terms for tables in looser]
        for tables in looser:
            tables.tighten(terms)
        if looser:
            log_tightened(self._path, before[0], terms)

    def _check_unused(self, tables: StreamTables) -> None:
        if self._file.holds(tables.terms.stream):
            raise LedgerInUse(
                f"stream {tables.terms.stream!r} is in use with a larger cap", remedy="close it", where=self._path
            )

    def _join_group(self, terms: Terms) -> None:
        """Check that the streams of a group agree, and give all of them the stricter caps."""
        about = terms.group, terms.unit, terms.capacity, terms.total
        if terms.group is None or about in self._groups:
            return
        self._groups.add(about)
        known = self._file.members.setdefault(terms.group, {})
        for number, _ in self._listed.values():
            if number not in known:
                tables = self._read(number)
                if tables.terms.group is not None:
                    check_group(self._path, tables.terms, terms)
                if tables.terms.group == terms.group:
                    tables.check()
                    known[number] = tables
        live = [known[number] for number, retired in self._listed.values() if number in known and not retired]
        for tables in live:
            tables.open()
            check_group(self._path, tables.terms, terms)
        looser = [tables for tables in live if not has_caps(tables.terms, terms)]
        if looser:
            total = sum_of(tables.block(TOTAL_BLOCK) for tables in known.values())
            spent = sum_of(tables.largest_spent() for tables in known.values())
            check_caps(self._path, terms, spent, total)
        for tables in looser:
            self._check_unused(tables)
            log_tightened(self._path, tables.terms, terms)
            tables.adopt(tightened_in_group(tables.terms, terms))
            self._tables.pop(tables.number, None)

    def _tables_of(self, number: int) -> StreamTables:
        """Return the tables of a stream, which are read once."""
        if number not in self._tables:
            self._tables[number] = self._read(number)
        return self._tables[number]

    def _read(self, number: int) -> StreamTables:
        tables = StreamTables(self._file, self._path, number)
        tables.open()
        return tables
