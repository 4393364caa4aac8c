"""Ledger tables of one stream in a SQLite file: rows are checked when read, and marked when written; see `hash_chain`.

This module does not decide about budgets; the SQLite ledger does. The caller must hold the connection alone during
every call.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from ...accounting.losses import PrivacyLoss
from ...errors import LedgerDamaged
from ...noise.samplers import SystemEntropy
from .. import hash_chain
from ..base import TOTAL_BLOCK, EpochState, Row, Terms, WindowKey, max_loss
from ..files import LedgerFile
from ..hash_chain import MASK, mark, state_mark
from ..rollback_guard import RollbackGuard
from ..terms_check import check_caps, tightened
from .sums import StreamSums, WindowRow, max_spent_of, pane_of, stream_sums

TABLES = """
CREATE TABLE streams (
    number INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE, retired INTEGER NOT NULL, salt TEXT NOT NULL,
    head TEXT NOT NULL);
CREATE TABLE journal (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, open_ms INTEGER NOT NULL,
    close_ms INTEGER NOT NULL, rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, body BLOB NOT NULL,
    chain BLOB NOT NULL, PRIMARY KEY (seq, stream));
CREATE TABLE windows (
    stream INTEGER NOT NULL, open_ms INTEGER NOT NULL, close_ms INTEGER NOT NULL, state TEXT NOT NULL,
    draws INTEGER NOT NULL, rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, sealed_seq INTEGER,
    mark INTEGER NOT NULL, PRIMARY KEY (open_ms, close_ms, stream)) WITHOUT ROWID;
CREATE INDEX unacknowledged ON windows (stream, sealed_seq) WHERE state = 'sealed';
CREATE TABLE blocks (
    stream INTEGER NOT NULL, block TEXT NOT NULL, rho INTEGER NOT NULL, delta INTEGER NOT NULL, mark INTEGER NOT NULL,
    PRIMARY KEY (block, stream)) WITHOUT ROWID;
CREATE TABLE settings (
    stream INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, mark INTEGER NOT NULL,
    PRIMARY KEY (stream, key)) WITHOUT ROWID;
CREATE TABLE states (
    stream INTEGER NOT NULL, answer TEXT NOT NULL, epoch_ms INTEGER NOT NULL, open_ms INTEGER NOT NULL,
    body BLOB NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (stream, answer, epoch_ms, open_ms)) WITHOUT ROWID;
"""
_FEW_WINDOWS = 1024  # that memory holds of one stream; and blocks
_MIN_TAIL = 20  # rows of the journal that are checked at least when one of many streams is opened
_WINDOW = "SELECT open_ms, close_ms, state, draws, rho, delta, blocks, sealed_seq, mark FROM windows WHERE stream = ?"
_BLOCK = "SELECT block, rho, delta, mark FROM blocks WHERE stream = ?"
_COLUMNS = "SELECT seq, kind, open_ms, close_ms, rho, delta, blocks, body, chain FROM"
_ROW = f"{_COLUMNS} journal WHERE stream = ?1"
# A stream's rows are found one by one, by their numbers: between two of them lie those of other streams.
_UP = "WITH RECURSIVE rows (n) AS (VALUES (?2) UNION ALL SELECT n + 1 FROM rows WHERE n < ?3) "
_ROWS = f"{_UP}{_COLUMNS} rows CROSS JOIN journal ON seq = n AND stream = ?1"
_NEW_STREAM = "INSERT INTO streams VALUES (?, ?, 0, ?, ?)"
_NEW_ROW = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NEW_WINDOW = "INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CHANGED_WINDOW = (
    "UPDATE windows SET state = ?4, draws = ?5, rho = ?6, delta = ?7, blocks = ?8, sealed_seq = ?9, mark = ?10 "
    "WHERE stream = ?1 AND open_ms = ?2 AND close_ms = ?3"
)
_SET_BLOCK = "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)"
_SET_HEAD = "UPDATE streams SET head = ?2 WHERE number = ?1"
_NEW_SETTING = "INSERT INTO settings VALUES (?, ?, ?, ?)"
_NEW_STATE = "INSERT INTO states VALUES (?, ?, ?, ?, ?, ?)"
_OLD_STATES = "DELETE FROM states WHERE stream = ? AND answer = ? AND epoch_ms < ?"


@dataclass(slots=True)
class LedgerHead:
    """Summary of a stream's tables: the journal's last row and its link, the sum of all marks, and the journal row that
    holds the terms."""

    seq: int
    chain: bytes
    digest: int
    terms_seq: int

    def __str__(self) -> str:
        return f"{self.seq}:{self.chain.hex()}:{self.digest}:{self.terms_seq}"


class StreamTables:
    """The rows of one stream in the tables of a file, and their head.

    What is written waits in memory until the end of the transaction, or until the stream's rows are read, so that the
    rows of many streams are written together.

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
    guard : RollbackGuard
        Remembers how far the stream's journal came.
    """

    def __init__(self, file: LedgerFile, path: str, number: int) -> None:
        self.path, self.number = path, number
        self._file = file
        self.guard = RollbackGuard(file.guards, number)
        self._open_windows: dict[tuple[int, int], tuple[WindowRow, int]] = {}  # what was written, with its mark
        self._newest: tuple[float, float] = (inf, inf)  # no window opens later
        self._sealed: tuple[WindowRow | None] | None = None  # the newest window with a release; None if nobody knows
        # Of blocks of panes, and of windows that have no release yet: what was written, with its mark.
        self._open_blocks: dict[str, tuple[PrivacyLoss, int]] = {}
        self._newest_pane: float = inf  # no pane opens later that was charged
        self._most: PrivacyLoss | None = None  # of all blocks but these and the total; None if nobody knows
        self._counted: set[str] = set()  # those of these blocks whose loss of before is in it

    # -- making, opening ---------------------------------------------------------------------------------------------

    def create(self, terms: Terms) -> None:
        """List the stream and write journal row 0, which holds the terms."""
        self.salt = SystemEntropy().words(4).tobytes()
        self.head = LedgerHead(-1, hash_chain.origin(self.salt), 0, 0)
        self._adopt_sums(StreamSums())
        self._file.write_later(_NEW_STREAM, (self.number,), (self.number, terms.stream, self.salt.hex(), ""))
        self._adopt(terms)
        self.save()

    def open(self) -> None:
        """Read the head and the terms.

        Raises
        ------
        LedgerDamaged
        """
        salt, head = self._listed()
        self.salt = bytes.fromhex(salt)
        self._read_head(head)
        first, end = self.head.terms_seq, self.head.seq
        wanted = first - 1, first, end - 1, end, end + 1
        rows = {row[0]: (Row(*row[:-1]), row[-1]) for row in self.do(f"{_ROW} AND seq IN (?2, ?3, ?4, ?5, ?6)", wanted)}
        row, _ = self._follow(rows, first)
        self.terms = hash_chain.terms_of(self.path, row.body if row.kind == "terms" else b"")
        newest = max(rows)
        last, link = self._follow(rows, newest)
        if (last.seq, link) != (self.head.seq, self.head.chain) or str(self.head) != head:
            raise LedgerDamaged(f"{self.path} is damaged: its head disagrees with the journal's last row, {last.seq}")
        self.name, self.is_retired = hash_chain.listed_as(self.terms, last), last.kind == "retire"

    def read_head(self) -> None:
        """Read the head from the file."""
        self._read_head(self._listed()[1])

    def _read_head(self, text: str) -> None:
        seq, chain, digest, terms_seq = text.split(":")
        self.head = LedgerHead(int(seq), bytes.fromhex(chain), int(digest), int(terms_seq))

    def reread(self) -> None:
        """Forget what memory holds of a transaction that was rolled back."""
        self._open_windows.clear()
        self._open_blocks.clear()
        self._sealed = self._most = None
        self.read_head()

    def check(self) -> None:
        """Check every row of the summary tables and the newest journal rows against the head.

        Of one stream a thousand journal rows are read, of each of many a few; `verify` reads all.

        Raises
        ------
        LedgerDamaged
        """
        sums = self._sums()
        if sums.damage:
            raise LedgerDamaged(f"{self.path} is damaged: {sums.damage}")
        self._adopt_sums(sums)
        total = sums.marks + sum(mark("s", *row) for row in self.settings().items())
        if total & MASK != self.head.digest:
            raise LedgerDamaged(f"{self.path} is damaged: its tables disagree with the head at row {self.head.seq}")
        # SQLite reads the sealed windows through a separate index, which may be damaged while the table is not.
        query = "SELECT sealed_seq FROM windows WHERE stream = ? AND state = 'sealed' ORDER BY sealed_seq"
        indexed = self.do(query).fetchall()
        if [seq for (seq,) in indexed] != sorted(sums.waiting):
            raise LedgerDamaged(f"{self.path} is damaged: its index of windows to be delivered is wrong")
        streams = self._file.db.execute("SELECT count(*) FROM streams").fetchone()[0]
        start = max(0, self.head.seq - max(_MIN_TAIL, hash_chain.TAIL // streams))
        if start:
            self._linked(0)
        for _ in self.journal(start):
            pass

    def check_count(self) -> None:
        """Check that the journal holds no row beyond its head.

        Raises
        ------
        LedgerDamaged
        """
        (rows,) = self.do("SELECT count(*) FROM journal WHERE stream = ?").fetchone()
        if rows != self.head.seq + 1:
            raise LedgerDamaged(
                f"{self.path} is damaged: the journal has {rows} rows, its head knows of {self.head.seq + 1}"
            )

    def _adopt_sums(self, sums: StreamSums) -> None:
        """Keep in memory what the rows add up to."""
        self._newest, self._newest_pane, self._sealed = sums.newest, sums.newest_pane, (sums.sealed,)
        self._most = PrivacyLoss(sums.max_rho, sums.max_delta)
        self._counted = set(self._open_blocks)

    def tighten(self, wanted: Terms) -> None:
        """Adopt stricter caps and record them in the hash chain."""
        self.check()
        check_caps(self.path, tightened(self.terms, wanted), self.largest_spent(), self.block(TOTAL_BLOCK))
        self.adopt(tightened(self.terms, wanted))

    def largest_spent(self) -> PrivacyLoss:
        """Return what the most charged block has spent."""
        sums = self._sums()
        return PrivacyLoss(sums.max_rho, sums.max_delta)

    def _sums(self) -> StreamSums:
        return stream_sums(self._file, self.path, self.number)

    def adopt(self, terms: Terms) -> None:
        """Record new terms in the hash chain."""
        self._adopt(terms)
        self.save()

    def _adopt(self, terms: Terms) -> None:
        self.terms = terms
        seq = self.append("terms", WindowKey(0, 0), PrivacyLoss(), "", hash_chain.terms_body(terms))
        self.head.terms_seq = seq

    # -- the journal -------------------------------------------------------------------------------------------------

    def append(self, kind: str, window: WindowKey, loss: PrivacyLoss, blocks: str, body: bytes) -> int:
        """Add a row to the journal and return its number."""
        head = self.head
        seq = head.seq + 1
        row = Row(seq, kind, window.open_ms, window.close_ms, loss.rho_nano, loss.delta_femto, blocks, body)
        head.seq, head.chain = seq, hash_chain.link(head.chain, row)
        self._file.write_later(_NEW_ROW, (self.number, seq), (self.number, *row[:8], head.chain))
        return seq

    def journal(self, start: int = 0) -> Iterator[tuple[Row, bytes]]:
        """Yield the journal rows from number `start` on with their links, checking that each follows from the last."""
        before = self.link_at(start - 1)
        for *columns, chain in self.do(_ROWS, (start, self.head.seq)):
            row = Row(*columns)
            before = hash_chain.link(before, row)
            if row.seq != start or before != chain:
                raise LedgerDamaged(f"journal row {start} does not follow from the rows before it", where=self.path)
            start += 1
            yield row, chain
        if start != self.head.seq + 1:
            raise LedgerDamaged(f"journal row {start} is missing", where=self.path)

    def plain_journal(self) -> Iterator[tuple[Row, bytes]]:
        """Yield all journal rows with their links, without checking them."""
        for *columns, chain in self.do(_ROWS, (0, self.head.seq)):
            yield Row(*columns), chain

    def body(self, seq: int) -> bytes:
        """Return the final bytes that a journal row of kind ``seal`` holds."""
        row, _ = self._linked(seq)
        if row.kind != "seal":
            raise LedgerDamaged(f"journal row {seq} ({row.kind}) is no seal", where=self.path)
        return bytes(row.body)

    def lag(self, seen: int) -> int:
        """Return how many rows a rollback guard that has seen `seen` rows lacks; 0 if a crash explains it.

        A process that is killed leaves one flushed transaction that was not noted, and acknowledgments before it. Such
        a transaction charges windows, or seals them, or keeps settings.
        """
        if seen >= self.head.seq:
            return 0
        query = f"{_UP}SELECT DISTINCT kind FROM rows CROSS JOIN journal ON seq = n AND stream = ?1"
        kinds = {"charge" if kind == "again" else kind for (kind,) in self.do(query, (seen + 1, self.head.seq))}
        return 0 if len(kinds - {"acknowledge", "terms"}) <= 1 else self.head.seq - seen

    def link_at(self, seq: int) -> bytes:
        """Return the link that is stored beside a journal row; before row 0, the origin of the hash chain."""
        if seq < 0:
            return hash_chain.origin(self.salt)
        row = self.do("SELECT chain FROM journal WHERE stream = ? AND seq = ?", (seq,)).fetchone()
        if row is None:
            raise LedgerDamaged(f"journal row {seq} is missing", where=self.path)
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
        found = self.do(f"{_ROW} AND seq = ?2", (seq,)).fetchone()
        if found is None or hash_chain.link(self.link_at(seq - 1), Row(*found[:-1])) != found[-1]:
            raise LedgerDamaged(f"journal row {seq} does not follow from the rows before it", where=self.path)
        return Row(*found[:-1]), found[-1]

    # -- summary tables ----------------------------------------------------------------------------------------------

    def window(self, key: WindowKey) -> WindowRow | None:
        """Return a window's row; of windows that are not acknowledged yet, as this process has written it."""
        kept = self._open_windows.get((key.open_ms, key.close_ms))
        if kept is not None:
            return kept[0]
        if (key.open_ms, key.close_ms) > self._newest:
            return None
        return next(self.windows("AND open_ms = ? AND close_ms = ?", (key.open_ms, key.close_ms)), None)

    def windows(self, which: str = "ORDER BY open_ms, close_ms", values: Sequence[object] = ()) -> Iterator[WindowRow]:
        for row in self._marked("w", self.do(f"{_WINDOW} {which}", values), "window"):
            yield WindowRow(*row[:-1])

    def last_sealed(self) -> WindowRow | None:
        """Return the row of the newest window that has a release."""
        if self._sealed is None:
            self._sealed = (next(iter(self.latest_sealed(1)), None),)
        return self._sealed[0]

    def latest_sealed(self, count: int) -> list[WindowRow]:
        """Return the rows of the newest windows that have a release, at most so many, the newest first."""
        which = "AND state != 'charged' ORDER BY open_ms DESC, close_ms DESC LIMIT ?"
        return list(self.windows(which, (count,)))

    def put_window(self, old: WindowRow | None, new: WindowRow) -> None:
        marked, key = mark("w", *new), new[:2]
        self._file.sums = None
        _, before = self._open_windows.pop(key, (None, None))
        if new.state != "acknowledged" and len(self._open_windows) < _FEW_WINDOWS:
            self._open_windows[key] = new, marked
        if new.state == "sealed":
            for block in new.blocks.split(","):
                self._settle(block)
        if new.state != "charged" and self._sealed is not None:
            newest = self._sealed[0]
            if newest is None or newest[:2] <= key:
                self._sealed = (new,)
        place, row = (self.number, *key), (self.number, *new, marked)
        if old is None:
            self._newest = max(self._newest, key)
        is_new = old is None or self._file.unwritten(_NEW_WINDOW, place) is not None
        self._file.write_later(_NEW_WINDOW if is_new else _CHANGED_WINDOW, place, row)
        if old is not None and before is None:
            before = mark("w", *old)
        self._turn(before or 0, marked)

    def block(self, block: str) -> PrivacyLoss:
        """Return the loss that a block has spent; zero for a block that was never charged."""
        return self.block_if_any(block) or PrivacyLoss()

    def block_if_any(self, block: str) -> PrivacyLoss | None:
        """Return the loss that a block has spent, or None for a block that was never charged; of a pane whose windows
        have no release yet, as this process has written it.
        """
        kept = self._open_blocks.get(block)
        if kept is not None:
            return kept[0]
        if pane_of(block) > self._newest_pane:
            return None
        waiting = self._file.unwritten(_SET_BLOCK, (self.number, block))
        if waiting is not None:
            return PrivacyLoss(*waiting[2:4])
        rows = self._file.db.execute(f"{_BLOCK} AND block = ?", (self.number, block))
        found = next(self._marked("b", rows, "block"), None)
        return PrivacyLoss(found[1], found[2]) if found else None

    def blocks(self) -> Iterator[tuple[str, int, int]]:
        for row in self._marked("b", self.do(f"{_BLOCK} ORDER BY block"), "block"):
            yield row[0], row[1], row[2]

    def put_block(self, block: str, old: PrivacyLoss | None, new: PrivacyLoss) -> None:
        marked, pane = mark("b", block, *new.parts), pane_of(block)
        self._file.sums = self._file.most = None
        _, before = self._open_blocks.pop(block, (None, None))
        if old is None:
            self._newest_pane = max(self._newest_pane, pane)
        elif before is None:
            before = mark("b", block, *old.parts)
            self._counted.add(block)
        if block in self._counted and old is not None and not old.fits(new):
            self._most = None  # it may have been this block's
        # Those of other units may be read by several ledgers of this process, where streams share filters.
        self._open_blocks[block] = new, marked
        if pane == -inf or len(self._open_blocks) > _FEW_WINDOWS:
            self._settle(block)
        self._turn(before or 0, marked)
        self._file.write_later(_SET_BLOCK, (self.number, block), (self.number, block, *new.parts, marked))

    def _settle(self, block: str) -> None:
        """No longer hold a block's loss in memory by itself."""
        spent, _ = self._open_blocks.pop(block, (None, None))
        self._counted.discard(block)
        if spent is not None and self._most is not None and block != TOTAL_BLOCK:
            self._most = max_loss([self._most, spent])

    def max_spent(self, blocks: Sequence[str]) -> PrivacyLoss:
        """Return the largest loss spent by any of these blocks, the block of the total excluded."""
        return max_loss([self.block(block) for block in blocks if block != TOTAL_BLOCK])

    def max_spent_of_all(self) -> PrivacyLoss:
        """Return the largest loss spent by any block, the block of the total excluded."""
        if self._most is None:
            self._most, self._counted = max_spent_of(self._file, self.number), set(self._open_blocks)
        return max_loss([self._most, *(spent for spent, _ in self._open_blocks.values())])

    def settings(self) -> dict[str, str]:
        query = "SELECT key, value, mark FROM settings WHERE stream = ?"
        return {key: value for key, value, _ in self._marked("s", self.do(query), "setting")}

    def put_setting(self, key: str, value: str) -> None:
        marked = mark("s", key, value)
        self._turn(0, marked)
        self._file.write_later(_NEW_SETTING, (self.number, key), (self.number, key, value, marked))
        self.append("setting", WindowKey(0, 0), PrivacyLoss(), key, value.encode())

    # -- what windows leave for later ones; no part of journal and head ----------------------------------------------

    def states(self, answer: str, epoch_ms: int) -> list[tuple[int, bytes]]:
        """See `StateLedger.epoch_states`."""
        query = (
            "SELECT open_ms, body, mark FROM states WHERE stream = ? AND answer = ? AND epoch_ms = ? ORDER BY open_ms"
        )
        found = self.do(query, (answer, epoch_ms))
        return [
            (open_ms, body)
            for open_ms, body, stored in found
            if state_mark(EpochState(answer, epoch_ms, open_ms, body)) == stored
        ]

    def put_state(self, state: EpochState) -> None:
        """Store what a window leaves, and delete what past epochs left."""
        if state.body:
            row = (self.number, *state, state_mark(state))
            self._file.write_later(_NEW_STATE, row[:4], row)
            self.forget_states(state.answer, state.forgets_before_ms)
        else:  # now, since what waits may be written in another order
            self.do(_OLD_STATES, (state.answer, state.forgets_before_ms))

    def forget_states(self, answer: str, before_ms: int) -> None:
        """See `StateLedger.forget_states`."""
        row = self.number, answer, before_ms
        self._file.write_later(_OLD_STATES, row, row)

    def drop_states(self) -> None:
        """Delete all that windows left."""
        self.do("DELETE FROM states WHERE stream = ?")

    def _marked(self, table: str, rows: sqlite3.Cursor, what: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows whose last column is their mark, after checking it; `what` a row is called by its first column."""
        for row in rows:
            if mark(table, *row[:-1]) != row[-1]:
                rows.close()  # the error's frames would keep it, and with it the file open
                raise LedgerDamaged(f"{self.path} is damaged: {what} {row[0]} disagrees with the mark beside it")
            yield row

    def _turn(self, old: int, new: int) -> None:
        """Replace the mark of an old row by that of the new row in the head's sum of marks."""
        self.head.digest = (self.head.digest - old + new) & MASK

    # -- statements --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the head to the file."""
        waiting = self._file.unwritten(_NEW_STREAM, (self.number,))
        if waiting is not None:
            self._file.write_later(_NEW_STREAM, (self.number,), (*waiting[:3], str(self.head)))
        else:
            self._file.write_later(_SET_HEAD, (self.number,), (self.number, str(self.head)))

    def _listed(self) -> tuple[str, str]:
        """Read the salt and the head."""
        salt, head = self.do("SELECT salt, head FROM streams WHERE number = ?").fetchone()
        return salt, head

    def do(self, query: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run a statement whose first value is the number of this stream, after all that waits was written."""
        self._file.write(self.number)
        return self._file.db.execute(query, (self.number, *values))


def rows_of(found: Iterable[tuple[Row, bytes]]) -> list[Row]:
    """Return journal rows without their links and without row 0."""
    return [row for row, _ in found if row.seq > 0]
