"""Ledger tables of one stream in a SQLite file: rows are checked when read, and marked when written; see `hash_chain`.

This module does not decide about budgets; the SQLite ledger does. The caller must hold the connection alone during
every call.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...accounting.losses import PrivacyLoss
from ...errors import LedgerDamaged
from ...noise.samplers import SystemEntropy
from .. import hash_chain
from .. import user_budgets as users
from ..base import TOTAL_BLOCK, EpochState, Row, Terms, WindowKey, max_loss
from ..files import LedgerFile
from ..hash_chain import MASK, mark, state_mark
from ..rollback_guard import RollbackGuard
from ..terms_check import check_caps, tightened

_TABLES = """
CREATE TABLE meta{n} (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE journal{n} (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, open_ms INTEGER NOT NULL, close_ms INTEGER NOT NULL,
    rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, body BLOB NOT NULL, chain BLOB NOT NULL);
CREATE TABLE windows{n} (
    open_ms INTEGER NOT NULL, close_ms INTEGER NOT NULL, state TEXT NOT NULL, draws INTEGER NOT NULL,
    rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, sealed_seq INTEGER, mark INTEGER NOT NULL,
    PRIMARY KEY (open_ms, close_ms)) WITHOUT ROWID;
CREATE INDEX unacknowledged{n} ON windows{n} (sealed_seq) WHERE state = 'sealed';
CREATE TABLE blocks{n} (
    block TEXT PRIMARY KEY, rho INTEGER NOT NULL, delta INTEGER NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE users{n} (bucket INTEGER PRIMARY KEY, body BLOB NOT NULL, mark BLOB NOT NULL);
CREATE TABLE settings{n} (key TEXT PRIMARY KEY, value TEXT NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID;
"""
_STATES = """
CREATE TABLE states{n} (
    answer TEXT NOT NULL, epoch_ms INTEGER NOT NULL, open_ms INTEGER NOT NULL, body BLOB NOT NULL,
    mark INTEGER NOT NULL, PRIMARY KEY (answer, epoch_ms, open_ms)) WITHOUT ROWID;
"""
_FEW_WINDOWS = 1024  # that memory holds of one stream
_FEW = 64  # buckets that are read one by one
_WINDOW = "SELECT open_ms, close_ms, state, draws, rho, delta, blocks, sealed_seq, mark FROM windows{n}"
_BLOCK = "SELECT block, rho, delta, mark FROM blocks{n}"
_ROW = "SELECT seq, kind, open_ms, close_ms, rho, delta, blocks, body, chain FROM journal{n}"
_SETTING = "SELECT key, value, mark FROM settings{n}"


class WindowRow(NamedTuple):
    """Window state, as one row of the table `windows` holds it."""

    open_ms: int
    close_ms: int
    state: str
    draws: int
    rho: int
    delta: int
    blocks: str
    sealed_seq: int | None

    @property
    def loss(self) -> PrivacyLoss:
        """Return the loss charged to the window, less refunds."""
        return PrivacyLoss(self.rho, self.delta)

    @property
    def state_of(self) -> hash_chain.State:
        """Return all columns except the two that identify the window."""
        return self.state, self.draws, self.rho, self.delta, self.blocks, self.sealed_seq


class LedgerHead(NamedTuple):
    """Summary of a stream's tables: the journal's last row and its link, the sum of all marks, the digest of the users'
    budgets, and the journal row that holds the terms."""

    seq: int
    chain: bytes
    digest: int
    users: bytes
    terms_seq: int

    def __str__(self) -> str:
        return f"{self.seq}:{self.chain.hex()}:{self.digest}:{self.users.hex()}:{self.terms_seq}"


class StreamTables:
    """Ledger tables of one stream, whose names end in the stream's number, and their head.

    Parameters
    ----------
    file : LedgerFile
    path : str
        Path that messages show.
    number : int
        Number of the stream in the table `streams`, from 1 on.

    Attributes
    ----------
    number : int
    head : LedgerHead
    terms : Terms
    salt : bytes
    name : str
        Name under which the stream is listed in the table `streams`.
    is_retired : bool
    """

    def __init__(self, file: LedgerFile, path: str, number: int) -> None:
        self.path, self.number = path, number
        self._file = file
        self._n = ending(number)
        self._texts: dict[str, str] = {}  # statements, with the names of this stream's tables
        self._open_windows: dict[tuple[int, int], tuple[WindowRow, int]] = {}  # what was written, with its mark
        self._blocks: dict[str, tuple[PrivacyLoss | None, int]] = {}  # as read or written, with the mark; 0 if absent
        self._absent: set[tuple[int, int]] = set()  # windows that have no row
        self._buckets: set[int] = set()  # that there are: one that SQLite does not find would be a fresh budget

    # -- making, opening ---------------------------------------------------------------------------------------------

    def create(self, terms: Terms, salt: bytes | None = None) -> None:
        """Create the tables and write journal row 0, which holds the terms; a group's streams share one salt."""
        for statement in _TABLES.split(";"):
            self.do(statement)
        self.salt = salt or SystemEntropy().words(4).tobytes()
        self.head = LedgerHead(-1, hash_chain.origin(self.salt), 0, users.NO_USERS, 0)
        self.do("INSERT INTO meta{n} VALUES ('salt', ?), ('head', '')", (self.salt.hex(),))
        self._adopt(terms)
        self.save()

    def open(self) -> None:
        """Read the head and the terms.

        Raises
        ------
        LedgerDamaged
        """
        meta = dict(self.do("SELECT key, value FROM meta{n}"))
        self.salt = bytes.fromhex(meta["salt"] if "salt" in meta else self.meta("salt"))
        self._read_head(meta["head"] if "head" in meta else self.meta("head"))
        first, start = self.head.terms_seq, self.head.seq - 1
        query = f"{_ROW} WHERE seq IN (?, ?) OR seq >= ? ORDER BY seq"
        rows = {row[0]: (Row(*row[:-1]), row[-1]) for row in self.do(query, (first - 1, first, start))}
        row, _ = self._follow(rows, first)
        self.terms = hash_chain.terms_of(self.path, row.body if row.kind == "terms" else b"")
        newest = max(rows)
        newest = newest if newest > start else self.do("SELECT max(seq) FROM journal{n}").fetchone()[0]
        last, link = self._follow(rows, newest)
        if (last.seq, link) != self.head[:2] or str(self.head) != meta["head"]:
            raise LedgerDamaged(f"{self.path} is damaged: its head disagrees with the journal's last row, {last.seq}")
        self.name, self.is_retired = hash_chain.listed_as(self.terms, last), last.kind == "retire"

    def read_head(self) -> None:
        """Read the head from the file."""
        self._read_head(self.meta("head"))

    def _read_head(self, text: str) -> None:
        seq, chain, digest, digest_of_users, terms_seq = text.split(":")
        self.head = LedgerHead(
            int(seq), bytes.fromhex(chain), int(digest), bytes.fromhex(digest_of_users), int(terms_seq)
        )

    def reread(self) -> None:
        """Forget what memory holds of a transaction that was rolled back."""
        self._open_windows.clear()
        self._blocks.clear()
        self._absent.clear()
        self.read_head()
        self._buckets &= {name for (name,) in self.do("SELECT bucket FROM users{n}")}

    def rollback_guard(self) -> RollbackGuard:
        """Return the rollback guard, which remembers how far this stream's journal came."""
        return RollbackGuard(f"{self._file.path}-witness{self._n}")

    def check(self) -> None:
        """Check every row of the summary tables and the newest journal rows against the head.

        Raises
        ------
        LedgerDamaged
        """
        total = 0
        for row in self._ascending(f"{_BLOCK} ORDER BY block", 1, "b", "block"):
            total += row[-1]
        waiting = list[int]()
        for row in self._ascending(f"{_WINDOW} ORDER BY open_ms, close_ms", 2, "w", "window"):
            total += row[-1]
            if row[2] == "sealed":
                waiting.append(row[7])
        total += sum(mark("s", *row) for row in self.settings().items())
        if total & MASK != self.head.digest:
            raise LedgerDamaged(f"{self.path} is damaged: its tables disagree with the head at row {self.head.seq}")
        held = self.do("SELECT bucket, body, mark FROM users{n}").fetchall()
        if users.total_of(self.path, held) != self.head.users:
            raise LedgerDamaged(f"{self.path} is damaged: the users' budgets disagree with the head")
        self._buckets = {name for name, _, _ in held}
        # SQLite reads the sealed windows through a separate index, which may be damaged while the table is not.
        indexed = self.do("SELECT sealed_seq FROM windows{n} WHERE state = 'sealed' ORDER BY sealed_seq").fetchall()
        if [seq for (seq,) in indexed] != sorted(waiting):
            raise LedgerDamaged(f"{self.path} is damaged: its index of windows to be delivered is wrong")
        start = max(0, self.head.seq - hash_chain.TAIL)
        if start:
            self._linked(0)
        for _ in self.journal(start):
            pass

    def tighten(self, wanted: Terms) -> None:
        """Adopt stricter caps and record them in the hash chain."""
        self.check()
        check_caps(self.path, tightened(self.terms, wanted), self.most_spent(), self.block(TOTAL_BLOCK))
        self.adopt(tightened(self.terms, wanted))

    def most_spent(self) -> PrivacyLoss:
        """Return a bound of what any block or user has spent: for users the cost of all windows together."""
        if self.terms.unit == "user":
            return sum((window.loss for window in self.windows()), PrivacyLoss())
        return self.max_spent_of_all()

    def adopt(self, terms: Terms) -> None:
        """Record new terms in the hash chain."""
        self._adopt(terms)
        self.save()

    def _adopt(self, terms: Terms) -> None:
        self.terms = terms
        seq = self.append("terms", WindowKey(0, 0), PrivacyLoss(), "", hash_chain.terms_body(terms))
        self.head = self.head._replace(terms_seq=seq)

    # -- the journal -------------------------------------------------------------------------------------------------

    def append(self, kind: str, window: WindowKey, loss: PrivacyLoss, blocks: str, body: bytes) -> int:
        """Add a row to the journal and return its number."""
        seq = self.head.seq + 1
        row = Row(seq, kind, window.open_ms, window.close_ms, loss.rho_nano, loss.delta_femto, blocks, body)
        _, before, digest, held, terms_seq = self.head
        chain = hash_chain.link(before, row)
        self.head = LedgerHead(seq, chain, digest, held, terms_seq)
        self._add("INSERT INTO journal{n} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row[:8], chain))
        return seq

    def journal(self, start: int = 0) -> Iterator[tuple[Row, bytes]]:
        """Yield the journal rows from number `start` on with their links, checking that each follows from the last."""
        before = self.link_at(start - 1)
        for *columns, chain in self.do(f"{_ROW} WHERE seq >= ? ORDER BY seq", (start,)):
            row = Row(*columns)
            before = hash_chain.link(before, row)
            if row.seq != start or before != chain:
                raise LedgerDamaged(f"{self.path}: journal row {start} does not follow from the rows before it")
            start += 1
            yield row, chain
        if start != self.head.seq + 1:
            raise LedgerDamaged(f"{self.path}: journal row {start} is missing")

    def plain_journal(self) -> Iterator[tuple[Row, bytes]]:
        """Yield all journal rows with their links, without checking them."""
        for *columns, chain in self.do(f"{_ROW} ORDER BY seq"):
            yield Row(*columns), chain

    def body(self, seq: int) -> bytes:
        """Return the final bytes that a journal row of kind ``seal`` holds."""
        row, _ = self._linked(seq)
        if row.kind != "seal":
            raise LedgerDamaged(f"{self.path}: journal row {seq} ({row.kind}) is no seal")
        return bytes(row.body)

    def link_at(self, seq: int) -> bytes:
        """Return the link that is stored beside a journal row; before row 0, the origin of the hash chain."""
        if seq < 0:
            return hash_chain.origin(self.salt)
        row = self.do("SELECT chain FROM journal{n} WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            raise LedgerDamaged(f"{self.path}: journal row {seq} is missing")
        return bytes(row[0])

    def _follow(self, rows: Mapping[int, tuple[Row, bytes]], seq: int) -> tuple[Row, bytes]:
        """Return a journal row and its link from rows that were read, if they show that it follows; see `_linked`."""
        if seq in rows and (seq == 0 or seq - 1 in rows):
            row, link = rows[seq]
            before = rows[seq - 1][1] if seq else hash_chain.origin(self.salt)
            if hash_chain.link(before, row) == link:
                return row, link
        return self._linked(seq)

    def _linked(self, seq: int) -> tuple[Row, bytes]:
        """Return a journal row and its link, after checking that it follows from the row before it."""
        found = self.do(f"{_ROW} WHERE seq = ?", (seq,)).fetchone()
        if found is None or hash_chain.link(self.link_at(seq - 1), Row(*found[:-1])) != found[-1]:
            raise LedgerDamaged(f"{self.path}: journal row {seq} does not follow from the rows before it")
        return Row(*found[:-1]), found[-1]

    # -- summary tables ----------------------------------------------------------------------------------------------

    def window(self, key: WindowKey) -> WindowRow | None:
        """Return a window's row; of windows that are not acknowledged yet, as this process has written it."""
        kept = self._open_windows.get((key.open_ms, key.close_ms))
        if kept is not None or (key.open_ms, key.close_ms) in self._absent:
            return kept and kept[0]
        found = self.windows("WHERE open_ms = ? AND close_ms = ?", (key.open_ms, key.close_ms))
        return next(iter(found), None)

    def read_ahead(self, windows: Sequence[WindowKey], blocks: Sequence[str]) -> None:
        """Read what the charges of several windows will ask for, so that no charge waits for the rows of another."""
        named: dict[str, tuple[PrivacyLoss | None, int]] = dict.fromkeys(blocks, (None, 0))
        if self.terms.group is not None or max(len(windows), len(named)) > _FEW_WINDOWS:
            return
        first, last = min(key.open_ms for key in windows), max(key.open_ms for key in windows)
        held = {(row.open_ms, row.close_ms) for row in self.windows("WHERE open_ms BETWEEN ? AND ?", (first, last))}
        self._absent = {(key.open_ms, key.close_ms) for key in windows} - held
        for block, *spent in list(self.blocks(f"WHERE block IN ({','.join('?' * len(named))})", list(named))):
            named[block] = PrivacyLoss(*spent), mark("b", block, *spent)
        self._blocks = named

    def windows(self, where: str = "ORDER BY open_ms, close_ms", values: Sequence[object] = ()) -> Iterator[WindowRow]:
        for *columns, stored in self.do(f"{_WINDOW} {where}", values):
            self._check_row(stored, "w", columns, f"window {columns[0]}")
            yield WindowRow(*columns)

    def last_charged(self) -> WindowKey:
        """Return the window that was charged last; the journal must hold a charge."""
        query = "SELECT open_ms, close_ms FROM journal{n} WHERE kind = 'charge' ORDER BY seq DESC LIMIT 1"
        return WindowKey(*self.do(query).fetchone())

    def last_blocks(self) -> list[str] | None:
        """Return the blocks of the window that was charged last; None if none was charged."""
        row = self.do("SELECT blocks FROM journal{n} WHERE kind = 'charge' ORDER BY seq DESC LIMIT 1").fetchone()
        return None if row is None else str(row[0]).split(",")

    def put_window(self, old: WindowRow | None, new: WindowRow) -> None:
        marked, key = mark("w", *new), new[:2]
        _, before = self._open_windows.pop(key, (None, None))
        if new.state != "acknowledged" and len(self._open_windows) < _FEW_WINDOWS:
            self._open_windows[key] = new, marked
        if old is None:
            self._absent.discard(key)
            self._turn(0, marked)
            self._add("INSERT INTO windows{n} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*new, marked))
            return
        self._turn(mark("w", *old) if before is None else before, marked)
        query = "UPDATE windows{n} SET state = ?, draws = ?, rho = ?, delta = ?, blocks = ?, sealed_seq = ?, mark = ?"
        self._add(f"{query} WHERE open_ms = ? AND close_ms = ?", (*new[2:], marked, *key))

    def block(self, block: str) -> PrivacyLoss:
        """Return the loss that a block has spent; zero for a block that was never charged."""
        return self.block_if_any(block) or PrivacyLoss()

    def block_if_any(self, block: str) -> PrivacyLoss | None:
        """Return the loss that a block has spent, or None for a block that was never charged."""
        known = self._blocks.get(block)
        if known is not None:
            return known[0]
        found = next(self.blocks("WHERE block = ?", (block,)), None)
        return PrivacyLoss(found[1], found[2]) if found else None

    def blocks(self, where: str = "ORDER BY block", values: Sequence[object] = ()) -> Iterator[tuple[str, int, int]]:
        for *columns, stored in self.do(f"{_BLOCK} {where}", values):
            self._check_row(stored, "b", columns, f"block {columns[0]}")
            yield columns[0], columns[1], columns[2]

    def put_block(self, block: str, old: PrivacyLoss | None, new: PrivacyLoss) -> None:
        marked = mark("b", block, *new.parts)
        _, before = self._blocks.get(block, (None, 0))
        self._turn(before or (0 if old is None else mark("b", block, *old.parts)), marked)
        if self.terms.group is None:  # else other streams' ledgers write it too
            if len(self._blocks) > 2 * _FEW_WINDOWS:
                self._blocks.clear()
            self._blocks[block] = new, marked
        self._add("INSERT OR REPLACE INTO blocks{n} VALUES (?, ?, ?, ?)", (block, *new.parts, marked))

    def max_spent(self, blocks: Sequence[str]) -> PrivacyLoss:
        """Return the largest loss spent by any of these blocks, the block of the total excluded."""
        return max_loss([self.block(block) for block in blocks if block != TOTAL_BLOCK])

    def max_spent_of_all(self) -> PrivacyLoss:
        """Return the largest loss spent by any block, the block of the total excluded."""
        query = "SELECT coalesce(max(rho), 0), coalesce(max(delta), 0) FROM blocks{n} WHERE block != ?"
        return PrivacyLoss(*self.do(query, (TOTAL_BLOCK,)).fetchone())

    def settings(self) -> dict[str, str]:
        found = {}
        for key, value, stored in self.do(_SETTING):
            self._check_row(stored, "s", (key, value), f"setting {key}")
            found[key] = value
        return found

    def put_setting(self, key: str, value: str) -> None:
        marked = mark("s", key, value)
        self._turn(0, marked)
        self.do("INSERT INTO settings{n} VALUES (?, ?, ?)", (key, value, marked))
        self.append("setting", WindowKey(0, 0), PrivacyLoss(), key, value.encode())

    # -- what windows leave for later ones; no part of journal and head ----------------------------------------------

    def states(self, answer: str, epoch_ms: int) -> list[tuple[int, bytes]]:
        """See `StateLedger.epoch_states`."""
        if not self._has_states():
            return []
        query = "SELECT open_ms, body, mark FROM states{n} WHERE answer = ? AND epoch_ms = ? ORDER BY open_ms"
        found = self.do(query, (answer, epoch_ms))
        return [
            (open_ms, body)
            for open_ms, body, stored in found
            if state_mark(EpochState(answer, epoch_ms, open_ms, body)) == stored
        ]

    def put_state(self, state: EpochState) -> None:
        """Store what a window leaves, and delete what earlier epochs left; the table is made at its first use."""
        if not self._has_states():
            self.do(_STATES)
        self.forget_states(state.answer, state.epoch_ms)
        self.do("INSERT INTO states{n} VALUES (?, ?, ?, ?, ?)", (*state, state_mark(state)))

    def forget_states(self, answer: str, before_ms: int) -> None:
        """See `StateLedger.forget_states`."""
        if self._has_states():
            self.do("PRAGMA secure_delete = ON")  # what is deleted is overwritten
            self.do("DELETE FROM states{n} WHERE answer = ? AND epoch_ms < ?", (answer, before_ms))

    def drop_states(self) -> None:
        """Delete all that windows left."""
        if self._has_states():
            self.do("PRAGMA secure_delete = ON")
            self.do("DELETE FROM states{n}")

    def _has_states(self) -> bool:
        query = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?)"
        return bool(self.do(query, (f"states{self._n}",)).fetchone()[0])

    def buckets(self, names: list[int] | None) -> users.CheckedBuckets:
        """Return the named buckets of users' budgets, checked; None returns all buckets."""
        query, values = "SELECT bucket, body, mark FROM users{n}", list[int]()
        if names is not None and len(names) <= _FEW:
            query, values = f"{query} WHERE bucket IN ({','.join('?' * len(names))})", names
        wanted = None if names is None else set(names)
        held = users.checked(self.path, (row for row in self.do(query, values) if wanted is None or row[0] in wanted))
        # Another ledger of this process may have added some since `check`; none is ever dropped.
        if (self._buckets if wanted is None else self._buckets & wanted) - held.keys():
            raise LedgerDamaged(f"{self.path} is damaged: a bucket of users is not found")
        return held

    def put_buckets(self, held: users.CheckedBuckets, changed: dict[int, bytes]) -> None:
        marks = {name: users.mark(name, body) for name, body in changed.items()}
        self._buckets |= marks.keys()
        rows = ((name, body, marks[name]) for name, body in changed.items())
        self._file.db.executemany(f"INSERT OR REPLACE INTO users{self._n} VALUES (?, ?, ?)", rows)
        self.head = self.head._replace(users=users.redigest(self.head.users, held, marks))

    def _ascending(self, query: str, width: int, table: str, what: str) -> Iterator[tuple[Any, ...]]:
        """Yield all rows of a table, checking their marks and that their keys (`width` columns) ascend.

        SQLite searches a table by the order of its keys, so a row out of order would not be found.
        """
        before: tuple[Any, ...] | None = None
        for row in self.do(query):
            if mark(table, *row[:-1]) != row[-1]:
                raise LedgerDamaged(f"{self.path} is damaged: {what} {row[0]} disagrees with the mark beside it")
            key = row[:width]
            if before is not None and key <= before:
                raise LedgerDamaged(f"{self.path} is damaged: rows are out of order at {what} {row[0]}")
            before = key
            yield row

    def _turn(self, old: int, new: int) -> None:
        """Replace the mark of an old row by that of the new row in the head's sum of marks."""
        seq, chain, digest, held, terms_seq = self.head
        self.head = LedgerHead(seq, chain, (digest - old + new) & MASK, held, terms_seq)

    def _check_row(self, stored: object, table: str, columns: Sequence[object], what: str) -> None:
        if stored != mark(table, *columns):
            raise LedgerDamaged(f"{self.path} is damaged: {what} disagrees with the mark beside it")

    # -- statements --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the head to the file."""
        self.do("UPDATE meta{n} SET value = ? WHERE key = 'head'", (str(self.head),))

    def meta(self, key: str) -> str:
        row = self.do("SELECT value FROM meta{n} WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise LedgerDamaged(f"{self.path} is damaged: meta row {key!r} is missing")
        return str(row[0])

    def do(self, query: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run a statement on the tables of this stream."""
        self._file.write()
        return self._file.db.execute(self._texts.get(query) or self._named(query), values)

    def _add(self, query: str, row: Sequence[object]) -> None:
        """Write a row to the tables of this stream, at the latest with the head."""
        self._file.add(self._texts.get(query) or self._named(query), row)

    def _named(self, query: str) -> str:
        text = self._texts[query] = query.replace("{n}", self._n)
        return text


def ending(number: int) -> str:
    """Return the suffix of the names of a stream's tables."""
    return "" if number == 1 else f"_{number}"


def stream_numbers(file: LedgerFile) -> list[tuple[int, str, int]]:
    """Return the number, the name and the retired flag of every stream in a file."""
    return file.db.execute("SELECT number, stream, retired FROM streams ORDER BY number").fetchall()


def check_listed(file: LedgerFile, path: str) -> dict[int, StreamTables]:
    """Check that the list of streams names every stream's tables, and that no stream is older than its rollback guard.

    A stream whose tables were lost would otherwise start again with a fresh budget. Returns the tables that were read,
    by number; none if the list was checked before.

    Raises
    ------
    LedgerDamaged
    """
    if file.is_listed:
        return {}
    listed, found = stream_numbers(file), dict[int, StreamTables]()
    named = file.db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name GLOB 'journal*'")
    if [number for number, _, _ in listed] != list(range(1, named.fetchone()[0] + 1)):
        raise LedgerDamaged(f"{path} is damaged: its list of streams disagrees with its tables")
    for number, name, retired in listed:
        tables = found[number] = StreamTables(file, path, number)
        tables.open()
        check_stream_name(path, tables, name, retired)
        tables.rollback_guard().check(tables.head.seq, tables.head.chain, tables.link_at)
    file.is_listed = True
    return found


def check_stream_name(path: str, tables: StreamTables, name: str, retired: int) -> None:
    """Check that a stream is listed under its own name, or under the name that it got when it was retired."""
    if name != tables.name or bool(retired) != tables.is_retired:
        raise LedgerDamaged(f"{path} is damaged: stream {tables.name!r} is listed as {name!r}")


def rows_of(found: Iterable[tuple[Row, bytes]]) -> list[Row]:
    """Return journal rows without their links and without row 0."""
    return [row for row, _ in found if row.seq > 0]
