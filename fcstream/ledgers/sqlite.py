"""The embedded ledger: one SQLite file, one connection, write-ahead log, synchronous=FULL.

The journal is append-only and chained by hashes; `windows` and `blocks` are its running summary, written in the same
transactions and compared with the journal's head when the ledger is opened. One process at a time: the file is in
exclusive locking mode, which also keeps clear of the WAL-reset fault of SQLite before 3.51.3 (two connections).

While a ledger is open, its newest charges live in PATH-wal. A mark in the main file says so: if the ledger is opened
after a crash without its PATH-wal, charges are missing, and it is refused.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import BudgetExhausted, LedgerDamaged, LedgerError, LedgerMismatch
from ..noise import SystemEntropy
from ..zcdp import PrivacyLoss
from . import journal, users
from .base import (
    TOTAL_BLOCK,
    USER_BLOCK,
    Answer,
    Request,
    Row,
    Terms,
    Verdict,
    WindowKey,
    grant,
    must_agree,
    public_blocks,
    worst,
)
from .files import connect, in_our_words, refuse_lost_log
from .witness import Witness

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA_VERSION = 2
_APPLICATION_ID = 0x66635374  # "fcSt"
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, open_ms INTEGER NOT NULL, close_ms INTEGER NOT NULL,
    rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, body BLOB NOT NULL, chain BLOB NOT NULL);
CREATE TABLE windows (
    open_ms INTEGER NOT NULL, close_ms INTEGER NOT NULL, state TEXT NOT NULL, draws INTEGER NOT NULL,
    rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, sealed_seq INTEGER,
    PRIMARY KEY (open_ms, close_ms)) WITHOUT ROWID;
CREATE INDEX unacknowledged ON windows (sealed_seq) WHERE state = 'sealed';
CREATE TABLE blocks (block TEXT PRIMARY KEY, rho INTEGER NOT NULL, delta INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE users (bucket INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""
_MIGRATIONS = {"1": ("2", "CREATE TABLE users (bucket INTEGER PRIMARY KEY, body BLOB NOT NULL)")}
"""From each older schema version: the next one, and what it takes."""
_LOG_LIMIT = 2**22  # bytes that the write-ahead log keeps between charges
_FEW = 64  # buckets that are read one by one
_OPEN: weakref.WeakSet[SQLiteLedger] = weakref.WeakSet()


def _disown(ledger: SQLiteLedger) -> None:
    """Never close this connection: closing it would make SQLite merge and delete the write-ahead log."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(ledger._db))


def _disown_all() -> None:
    for ledger in _OPEN:
        _disown(ledger)


def _close_all() -> None:
    for ledger in list(_OPEN):
        ledger.close()


os.register_at_fork(after_in_child=_disown_all)  # a child must not touch its parent's log
atexit.register(_close_all)


class SQLiteLedger:
    """See `Ledger` for the contract.

    Parameters
    ----------
    path : str
        Made with mode 0600 if absent.
    terms : Terms, optional
        What the ledger must be about; None opens whatever is there (to look at it).

    Raises
    ------
    LedgerInUse, LedgerMismatch, LedgerDamaged, LedgerError
    """

    def __init__(self, path: str, terms: Terms | None = None) -> None:
        self.path = path
        self._pid = os.getpid()
        self._closed = False
        refuse_lost_log(path)
        self._witness = Witness(f"{path}-witness")
        if terms is not None and not any(map(os.path.exists, (path, f"{path}-wal"))):
            self._witness.check_absence()
        self._db = connect(path, create=terms is not None)
        _OPEN.add(self)
        try:
            with in_our_words(path):
                self._prepare(terms)
        except BaseException:
            self.close()
            raise

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[Verdict]:
        with self._transaction():
            return [self._charge(request) for request in requests]

    def seal(self, answers: Sequence[Answer]) -> None:
        with self._transaction() as db:
            for window, body, refund in answers:
                key = (window.open_ms, window.close_ms)
                found = db.execute(
                    "SELECT state, draws, rho, delta, blocks FROM windows WHERE open_ms = ? AND close_ms = ?", key
                ).fetchone()
                if found is not None and found[0] != "charged":
                    raise LedgerError(f"window {window.open_ms} is sealed in {self.path}: its answer is final")
                root = self._refund(window, refund, found) if refund != PrivacyLoss() else ""
                seq = self._append("seal", window, refund, root, body)
                self._sealed += 1
                if found is None:  # a refusal: nothing was charged
                    self._windows += 1
                    db.execute("INSERT INTO windows VALUES (?, ?, 'sealed', 0, 0, 0, '', ?)", (*key, seq))
                else:
                    db.execute(
                        "UPDATE windows SET state = 'sealed', sealed_seq = ?, rho = rho - ?, delta = delta - ? "
                        "WHERE open_ms = ? AND close_ms = ?",
                        (seq, refund.rho_nano, refund.delta_femto, *key),
                    )

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        with self._transaction() as db:
            for window in windows:
                done = db.execute(
                    "UPDATE windows SET state = 'acknowledged' WHERE open_ms = ? AND close_ms = ? AND state = 'sealed'",
                    (window.open_ms, window.close_ms),
                )
                if done.rowcount == 1:
                    self._append("acknowledge", window, PrivacyLoss(), "", b"")

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        with in_our_words(self.path):
            rows = self._db.execute(
                "SELECT w.open_ms, w.close_ms, j.body FROM windows w JOIN journal j ON j.seq = w.sealed_seq "
                "WHERE w.state = 'sealed' ORDER BY w.sealed_seq"
            ).fetchall()
        return [(WindowKey(opens, closes), bytes(body)) for opens, closes, body in rows]

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        with in_our_words(self.path):
            row = self._db.execute(
                "SELECT w.open_ms, w.close_ms, j.body FROM windows w JOIN journal j ON j.seq = w.sealed_seq "
                "WHERE w.state != 'charged' ORDER BY w.open_ms DESC LIMIT 1"
            ).fetchone()
        return (WindowKey(row[0], row[1]), bytes(row[2])) if row else None

    def spent(self, block: str | None = None) -> PrivacyLoss:
        with in_our_words(self.path):
            row = self._db.execute(
                "SELECT coalesce(max(rho), 0), coalesce(max(delta), 0) FROM blocks "
                + ("WHERE block != ?" if block is None else "WHERE block = ?"),
                (block or TOTAL_BLOCK,),
            ).fetchone()
        return PrivacyLoss(*row)

    def close(self) -> None:
        if self._pid != os.getpid() or self._closed:
            return
        self._closed = True
        _OPEN.discard(self)
        self._witness.close()
        try:
            # A clean close merges the log into the file and deletes it: the mark must say so first.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]:
                self._mark("closed")
        except sqlite3.OperationalError:
            _disown(self)  # held by another process, or no room for the mark: leave the log where it is
        except sqlite3.DatabaseError:
            self._db.close()  # no ledger at all
        else:
            self._db.close()

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self.close()

    # -- for those who look ------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, int]:
        """See `Books`."""
        with in_our_words(self.path):
            states = dict(self._db.execute("SELECT state, count(*) FROM windows GROUP BY state").fetchall())
            states["blocks"] = self._db.execute("SELECT count(*) FROM blocks").fetchone()[0]
            states["users"] = sum(users.count(body) for (body,) in self._db.execute("SELECT body FROM users"))
        return states

    def charges(self) -> list[tuple[WindowKey, PrivacyLoss]]:
        """See `Books`."""
        with in_our_words(self.path):
            found = self._db.execute(
                "SELECT open_ms, close_ms, rho, delta FROM windows WHERE draws > 0 ORDER BY open_ms"
            ).fetchall()
        return [(WindowKey(opens, closes), PrivacyLoss(rho, delta)) for opens, closes, rho, delta in found]

    def releases(self) -> list[bytes]:
        """See `Books`."""
        with in_our_words(self.path):
            rows = self._db.execute("SELECT body FROM journal WHERE kind = 'seal' ORDER BY seq").fetchall()
        return [bytes(body) for (body,) in rows]

    def rows(self) -> list[Row]:
        """See `Books`."""
        with in_our_words(self.path):
            return [row for row, _ in self._journal()]

    def verify(self) -> int:
        """Check the whole ledger against itself; returns how many journal rows it has.

        Raises
        ------
        LedgerDamaged
            Naming the first bad row.
        """
        with in_our_words(self.path):
            for (message,) in self._db.execute("PRAGMA integrity_check"):
                if message != "ok":
                    raise LedgerDamaged(f"{self.path} is damaged: {message}")
            replay = journal.Replay(self.path, self.terms)
            for row, chain in self._journal():
                replay.follow(row, chain)
            root = None
            if self.terms.unit == "user":
                held = self._db.execute("SELECT bucket, body FROM users ORDER BY bucket")
                root = users.audit(self.path, held, self.terms.capacity)
            replay.compare(
                (
                    (opens, closes, tuple(state))
                    for opens, closes, *state in self._db.execute(
                        "SELECT open_ms, close_ms, state, draws, rho, delta, blocks, sealed_seq FROM windows "
                        "ORDER BY open_ms"
                    )
                ),
                self._db.execute("SELECT block, rho, delta FROM blocks ORDER BY block"),
                root,
            )
            return replay.count

    # -- inside ------------------------------------------------------------------------------------------------------

    def _prepare(self, terms: Terms | None) -> None:
        db = self._db
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA fullfsync = ON")  # where the system's fsync stops short of the disk
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = db.execute("PRAGMA application_id").fetchone()[0]
        if tables and application != _APPLICATION_ID:
            raise LedgerMismatch(f"{self.path} is a database of another program: choose another `ledger.url`")
        if not tables and terms is None:
            raise LedgerMismatch(f"{self.path} is not a ledger: it is empty")
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise LedgerError(f"{self.path} must allow a write-ahead log, got journal mode {mode!r}: use a local disk")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
        db.execute("BEGIN EXCLUSIVE")
        if not tables and terms is not None:
            self._create(terms)
        self._migrate()
        db.execute("COMMIT")
        self.terms = self._read_terms()
        if terms is not None:
            must_agree(self.path, self.terms, terms)
        self.salt = bytes.fromhex(self._meta("salt"))
        row = db.execute("SELECT seq, chain FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
        self._seq: int = row[0] if row else 0
        self._chain: bytes = row[1] if row else journal.start(self.terms)
        self._windows, self._charged = db.execute("SELECT count(*), coalesce(sum(rho), 0) FROM windows").fetchone()
        self._sealed = db.execute("SELECT count(*) FROM windows WHERE state IN ('sealed', 'acknowledged')").fetchone()[
            0
        ]
        self._spent = db.execute("SELECT coalesce(sum(rho), 0) FROM blocks").fetchone()[0]
        self._users = bytes.fromhex(self._meta("users"))
        if self._meta("head") != self._head():
            raise LedgerDamaged(
                f"{self.path} is damaged: its tables disagree with the journal's head at row {self._seq}"
            )
        self._witness.check(self._seq, self._chain, self._chain_at)
        self._mark("open")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _chain_at(self, seq: int) -> bytes:
        """The link stored beside a journal row."""
        row = self._db.execute("SELECT chain FROM journal WHERE seq = ?", (seq,)).fetchone()
        return bytes(row[0]) if row else journal.start(self.terms)

    def _head(self) -> str:
        """What the summary tables and the journal's last row must agree with."""
        return f"{self._seq}:{self._chain.hex()}:{self._windows}:{self._sealed}:{self._charged}:{self._spent}"

    def _mark(self, log: str) -> None:
        self._db.execute("UPDATE meta SET value = ? WHERE key = 'log'", (log,))

    def _create(self, terms: Terms) -> None:
        for statement in _TABLES.split(";"):
            self._db.execute(statement)
        values = {
            "schema": str(SCHEMA_VERSION),
            "stream": terms.stream,
            "unit": terms.unit,
            "capacity_rho": str(terms.capacity.rho_nano),
            "capacity_delta": str(terms.capacity.delta_femto),
            "specification": terms.specification,
            "head": f"0:{journal.start(terms).hex()}:0:0:0:0",
            "log": "closed",
            "salt": SystemEntropy().words(4).tobytes().hex(),
            "users": users.NO_USERS.hex(),
        }
        if terms.total is not None:
            values["total_rho"] = str(terms.total.rho_nano)
            values["total_delta"] = str(terms.total.delta_femto)
        self._db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
        self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")

    def _migrate(self) -> None:
        """Bring a ledger of an older version up to this one's schema, inside the transaction that opens it."""
        version = self._meta("schema")
        while version in _MIGRATIONS:
            version, statements = _MIGRATIONS[version]
            for statement in statements.split(";"):
                self._db.execute(statement)
            if version == "2":
                values = {"salt": SystemEntropy().words(4).tobytes().hex(), "users": users.NO_USERS.hex()}
                self._db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (version,))
        if version != str(SCHEMA_VERSION):
            raise LedgerMismatch(
                f"{self.path} has schema version {version}, this version reads up to {SCHEMA_VERSION}: "
                "use the version that made it"
            )

    def _meta(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise LedgerDamaged(f"{self.path} is damaged: meta row {key!r} is missing")
        return str(row[0])

    def _read_terms(self) -> Terms:
        try:
            capacity = PrivacyLoss(int(self._meta("capacity_rho")), int(self._meta("capacity_delta")))
            total = None
            if self._db.execute("SELECT 1 FROM meta WHERE key = 'total_rho'").fetchone():
                total = PrivacyLoss(int(self._meta("total_rho")), int(self._meta("total_delta")))
        except ValueError:
            raise LedgerDamaged(f"{self.path} is damaged: its capacity is not a number") from None
        return Terms(self._meta("stream"), self._meta("unit"), capacity, self._meta("specification"), total)

    def _charge(self, request: Request) -> Verdict:
        db, window = self._db, request.window
        found = db.execute(
            "SELECT state, draws, rho, delta, blocks FROM windows WHERE open_ms = ? AND close_ms = ?",
            (window.open_ms, window.close_ms),
        ).fetchone()
        if found is not None and found[0] != "charged":
            return Verdict(window, self._worst(public_blocks(request)))
        if found is not None:
            return self._charge_again(request, found[1], PrivacyLoss(found[2], found[3]), found[4])
        blocks = request.blocks if self.terms.total is None else (*request.blocks, TOTAL_BLOCK)
        for block in blocks:
            capacity, spent = self.terms.cap(block), self._block(block)
            if not (spent + request.loss).fits(capacity):
                refusal = BudgetExhausted(request.loss, capacity - spent, capacity, block, window)
                return Verdict(window, self._worst(public_blocks(request)), refusal=refusal)
        admitted = None
        if request.users is not None:
            if (self._block(USER_BLOCK) + request.loss).fits(self.terms.capacity):  # somebody who is always there
                blocks = (*blocks, USER_BLOCK)
            admitted = self._charge_users(request, request.users)
        for block in blocks:
            self._charge_block(block, request.loss)
        names = ",".join(blocks)
        rho, delta = request.loss.rho_nano, request.loss.delta_femto
        db.execute(
            "INSERT INTO windows VALUES (?, ?, 'charged', 1, ?, ?, ?, NULL)",
            (window.open_ms, window.close_ms, rho, delta, names),
        )
        self._windows += 1
        self._charged += rho
        self._spent += rho * len(blocks)
        self._append("charge", window, request.loss, names, b"" if admitted is None else self._users)
        return grant(window, request.loss, self._worst(public_blocks(request)), admitted)

    def _charge_block(self, block: str, loss: PrivacyLoss) -> None:
        """The cap stands in the condition of the UPDATE itself."""
        capacity = self.terms.cap(block)
        self._db.execute("INSERT OR IGNORE INTO blocks VALUES (?, 0, 0)", (block,))
        done = self._db.execute(
            "UPDATE blocks SET rho = rho + ?, delta = delta + ? WHERE block = ? AND rho + ? <= ? AND delta + ? <= ?",
            (
                *(loss.rho_nano, loss.delta_femto, block),
                *(loss.rho_nano, capacity.rho_nano, loss.delta_femto, capacity.delta_femto),
            ),
        )
        if done.rowcount != 1:
            raise LedgerDamaged(f"{self.path}: block {block} changed inside a transaction")

    def _charge_again(self, request: Request, draws: int, loss: PrivacyLoss, names: str) -> Verdict:
        """A window charged before a crash: once more under the same charge, then never again."""
        window, spent = request.window, self._worst(public_blocks(request))
        if draws >= 2:
            return Verdict(window, spent, interrupted=loss)
        self._db.execute(
            "UPDATE windows SET draws = draws + 1 WHERE open_ms = ? AND close_ms = ?", (window.open_ms, window.close_ms)
        )
        self._append("again", window, PrivacyLoss(), names, b"")
        admitted = None
        if request.users is not None:
            admitted = users.charged(
                self._buckets(users.buckets_of(request.users)), request.users, request.window.open_ms
            )
        return grant(window, loss, spent, admitted, again=True)

    def _refund(self, window: WindowKey, refund: PrivacyLoss, found: tuple[str, int, int, int, str] | None) -> str:
        """Give back to every block and user that was charged; returns the users' new digest, in hex, if any changed."""
        charged = PrivacyLoss(found[2], found[3]) if found is not None and found[1] == 1 else PrivacyLoss()
        if found is None or not refund.fits(charged):
            raise LedgerError(f"window {window.open_ms} was charged {charged}: {refund} cannot be refunded")
        blocks = found[4].split(",")
        for block in filter(None, blocks):
            self._db.execute(
                "UPDATE blocks SET rho = rho - ?, delta = delta - ? WHERE block = ?",
                (refund.rho_nano, refund.delta_femto, block),
            )
            self._spent -= refund.rho_nano
        self._charged -= refund.rho_nano
        if self.terms.unit != "user":
            return ""
        held = self._buckets(None)
        self._store_users(held, users.refund(held, refund, window.open_ms))
        return self._users.hex()

    def _charge_users(self, request: Request, keys: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        held = self._buckets(users.buckets_of(keys))
        changed, admitted = users.charge(held, keys, request.loss, self.terms.capacity, request.window.open_ms)
        self._store_users(held, changed)
        return admitted

    def _buckets(self, names: list[int] | None) -> dict[int, bytes]:
        """Buckets of users by name; None: all."""
        if names is not None and len(names) <= _FEW:
            query = f"SELECT bucket, body FROM users WHERE bucket IN ({','.join('?' * len(names))})"
            return dict(self._db.execute(query, names).fetchall())
        held = self._db.execute("SELECT bucket, body FROM users")
        if names is None:
            return dict(held.fetchall())
        wanted = set(names)
        return {name: body for name, body in held if name in wanted}

    def _store_users(self, held: dict[int, bytes], changed: dict[int, bytes]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO users VALUES (?, ?)", changed.items())
        self._users = users.redigest(self._users, held, changed)
        self._db.execute("UPDATE meta SET value = ? WHERE key = 'users'", (self._users.hex(),))

    def _journal(self) -> Iterator[tuple[Row, bytes]]:
        rows = self._db.execute(
            "SELECT seq, kind, open_ms, close_ms, rho, delta, blocks, body, chain FROM journal ORDER BY seq"
        )
        for *row, chain in rows:
            yield Row(*row), chain

    def _block(self, block: str) -> PrivacyLoss:
        row = self._db.execute("SELECT rho, delta FROM blocks WHERE block = ?", (block,)).fetchone()
        return PrivacyLoss(*row) if row else PrivacyLoss()

    def _worst(self, blocks: Sequence[str]) -> PrivacyLoss:
        """Of the most charged of some blocks, the total left out."""
        return worst([self._block(block) for block in blocks if block != TOTAL_BLOCK])

    def _append(self, kind: str, window: WindowKey, loss: PrivacyLoss, blocks: str, body: bytes) -> int:
        self._seq += 1
        row = Row(self._seq, kind, window.open_ms, window.close_ms, loss.rho_nano, loss.delta_femto, blocks, body)
        self._chain = journal.link(self._chain, row)
        self._db.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, self._chain))
        return self._seq

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path} was opened before a fork: open the engine in the process that uses it")
        before = self._seq, self._chain, self._windows, self._sealed, self._charged, self._spent, self._users
        try:
            with in_our_words(self.path):
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("UPDATE meta SET value = ? WHERE key = 'head'", (self._head(),))
                self._db.execute("COMMIT")
        except BaseException:
            self._seq, self._chain, self._windows, self._sealed, self._charged, self._spent, self._users = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._witness.note(self._seq, self._chain)
