"""The embedded ledger: one SQLite file, one connection, write-ahead log, synchronous=FULL.

The journal is append-only and chained by hashes; `windows` and `blocks` are its running summary, written in the same
transactions and compared with the journal's head when the ledger is opened. One process at a time: the file is in
exclusive locking mode, which also keeps clear of the WAL-reset fault of SQLite before 3.51.3 (two connections).

While a ledger is open, its newest charges live in PATH-wal. A mark in the main file says so: if the ledger is opened
after a crash without its PATH-wal, charges are missing, and it is refused.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import os
import sqlite3
import urllib.parse
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import BudgetExhausted, FcstreamError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from ..zcdp import PrivacyLoss
from .base import Request, Terms, Verdict, WindowKey, grant

SCHEMA_VERSION = 1
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
"""
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
        _refuse_lost_log(path)
        self._db = _connect(path, create=terms is not None)
        _OPEN.add(self)
        try:
            with _errors(path):
                self._prepare(terms)
        except BaseException:
            self.close()
            raise

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[Verdict]:
        with self._transaction():
            return [self._charge(request) for request in requests]

    def seal(self, answers: Sequence[tuple[WindowKey, bytes]]) -> None:
        with self._transaction() as db:
            for window, body in answers:
                key = (window.open_ms, window.close_ms)
                found = db.execute("SELECT state FROM windows WHERE open_ms = ? AND close_ms = ?", key).fetchone()
                if found is not None and found[0] != "charged":
                    raise LedgerError(f"window {window.open_ms} is sealed in {self.path}: its answer is final")
                seq = self._append("seal", window, PrivacyLoss(), "", body)
                self._sealed += 1
                if found is None:  # a refusal: nothing was charged
                    self._windows += 1
                    db.execute("INSERT INTO windows VALUES (?, ?, 'sealed', 0, 0, 0, '', ?)", (*key, seq))
                else:
                    db.execute(
                        "UPDATE windows SET state = 'sealed', sealed_seq = ? WHERE open_ms = ? AND close_ms = ?",
                        (seq, *key),
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
        with _errors(self.path):
            rows = self._db.execute(
                "SELECT w.open_ms, w.close_ms, j.body FROM windows w JOIN journal j ON j.seq = w.sealed_seq "
                "WHERE w.state = 'sealed' ORDER BY w.sealed_seq"
            ).fetchall()
        return [(WindowKey(opens, closes), bytes(body)) for opens, closes, body in rows]

    def last_sealed(self) -> WindowKey | None:
        with _errors(self.path):
            row = self._db.execute(
                "SELECT open_ms, close_ms FROM windows WHERE state != 'charged' ORDER BY open_ms DESC LIMIT 1"
            ).fetchone()
        return WindowKey(*row) if row else None

    def spent(self) -> PrivacyLoss:
        with _errors(self.path):
            row = self._db.execute("SELECT coalesce(max(rho), 0), coalesce(max(delta), 0) FROM blocks").fetchone()
        return PrivacyLoss(*row)

    def close(self) -> None:
        if self._pid != os.getpid() or self._closed:
            return
        self._closed = True
        _OPEN.discard(self)
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
        """How many windows stand in each state, and how many blocks were ever charged."""
        with _errors(self.path):
            states = dict(self._db.execute("SELECT state, count(*) FROM windows GROUP BY state").fetchall())
            states["blocks"] = self._db.execute("SELECT count(*) FROM blocks").fetchone()[0]
        return states

    def releases(self) -> list[bytes]:
        """All sealed releases, in order of sealing: the exact bytes that were published."""
        with _errors(self.path):
            rows = self._db.execute("SELECT body FROM journal WHERE kind = 'seal' ORDER BY seq").fetchall()
        return [bytes(body) for (body,) in rows]

    def verify(self) -> int:
        """Check the whole ledger against itself; returns how many journal rows it has.

        Raises
        ------
        LedgerDamaged
            Naming the first bad row.
        """
        with _errors(self.path):
            for (message,) in self._db.execute("PRAGMA integrity_check"):
                if message != "ok":
                    raise LedgerDamaged(f"{self.path} is damaged: {message}")
            return self._verify_journal()

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
        db.execute("BEGIN EXCLUSIVE")
        if not tables and terms is not None:
            self._create(terms)
        db.execute("COMMIT")
        self.terms = self._read_terms()
        if terms is not None:
            _must_agree(self.path, self.terms, terms)
        row = db.execute("SELECT seq, chain FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
        self._seq: int = row[0] if row else 0
        self._chain: bytes = row[1] if row else _start(self.terms)
        self._windows, self._charged = db.execute("SELECT count(*), coalesce(sum(rho), 0) FROM windows").fetchone()
        self._sealed = db.execute("SELECT count(*) FROM windows WHERE state IN ('sealed', 'acknowledged')").fetchone()[
            0
        ]
        self._spent = db.execute("SELECT coalesce(sum(rho), 0) FROM blocks").fetchone()[0]
        if self._meta("head") != self._head():
            raise LedgerDamaged(
                f"{self.path} is damaged: its tables disagree with the journal's head at row {self._seq}"
            )
        self._mark("open")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

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
            "head": f"0:{_start(terms).hex()}:0:0:0:0",
            "log": "closed",
        }
        self._db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
        self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")

    def _meta(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise LedgerDamaged(f"{self.path} is damaged: meta row {key!r} is missing")
        return str(row[0])

    def _read_terms(self) -> Terms:
        if self._meta("schema") != str(SCHEMA_VERSION):
            raise LedgerMismatch(
                f"{self.path} has schema version {self._meta('schema')}, this version reads {SCHEMA_VERSION}: "
                "use the version that made it"
            )
        try:
            capacity = PrivacyLoss(int(self._meta("capacity_rho")), int(self._meta("capacity_delta")))
        except ValueError:
            raise LedgerDamaged(f"{self.path} is damaged: its capacity is not a number") from None
        return Terms(self._meta("stream"), self._meta("unit"), capacity, self._meta("specification"))

    def _charge(self, request: Request) -> Verdict:
        db, window = self._db, request.window
        found = db.execute(
            "SELECT state, draws, rho, delta, blocks FROM windows WHERE open_ms = ? AND close_ms = ?",
            (window.open_ms, window.close_ms),
        ).fetchone()
        if found is not None and found[0] != "charged":
            return Verdict(window, self._worst(request.blocks))
        if found is not None:
            return self._charge_again(window, found[1], PrivacyLoss(found[2], found[3]), found[4])
        capacity = self.terms.capacity
        for block in request.blocks:
            spent = self._block(block)
            if not (spent + request.loss).fits(capacity):
                refusal = BudgetExhausted(request.loss, capacity - spent, capacity, block)
                return Verdict(window, self._worst(request.blocks), refusal=refusal)
        names = ",".join(request.blocks)
        rho, delta = request.loss.rho_nano, request.loss.delta_femto
        for block in request.blocks:
            db.execute("INSERT OR IGNORE INTO blocks VALUES (?, 0, 0)", (block,))
            done = db.execute(
                "UPDATE blocks SET rho = rho + ?, delta = delta + ? "
                "WHERE block = ? AND rho + ? <= ? AND delta + ? <= ?",
                (rho, delta, block, rho, capacity.rho_nano, delta, capacity.delta_femto),
            )
            if done.rowcount != 1:
                raise LedgerDamaged(f"{self.path}: block {block} changed inside a transaction")
        db.execute(
            "INSERT INTO windows VALUES (?, ?, 'charged', 1, ?, ?, ?, NULL)",
            (window.open_ms, window.close_ms, rho, delta, names),
        )
        self._windows += 1
        self._charged += rho
        self._spent += rho * len(request.blocks)
        self._append("charge", window, request.loss, names, b"")
        return grant(window, request.loss, self._worst(request.blocks))

    def _charge_again(self, window: WindowKey, draws: int, loss: PrivacyLoss, names: str) -> Verdict:
        """A window charged before a crash: once more under the same charge, then never again."""
        spent = self._worst(names.split(","))
        if draws >= 2:
            return Verdict(window, spent, interrupted=loss)
        self._db.execute(
            "UPDATE windows SET draws = draws + 1 WHERE open_ms = ? AND close_ms = ?", (window.open_ms, window.close_ms)
        )
        self._append("again", window, PrivacyLoss(), names, b"")
        return grant(window, loss, spent)

    def _block(self, block: str) -> PrivacyLoss:
        row = self._db.execute("SELECT rho, delta FROM blocks WHERE block = ?", (block,)).fetchone()
        return PrivacyLoss(*row) if row else PrivacyLoss()

    def _worst(self, blocks: Sequence[str]) -> PrivacyLoss:
        spent = [self._block(block) for block in blocks]
        return PrivacyLoss(max(loss.rho_nano for loss in spent), max(loss.delta_femto for loss in spent))

    def _append(self, kind: str, window: WindowKey, loss: PrivacyLoss, blocks: str, body: bytes) -> int:
        self._seq += 1
        row = (self._seq, kind, window.open_ms, window.close_ms, loss.rho_nano, loss.delta_femto, blocks, body)
        self._chain = _link(self._chain, row)
        self._db.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, self._chain))
        return self._seq

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path} was opened before a fork: open the engine in the process that uses it")
        before = self._seq, self._chain, self._windows, self._sealed, self._charged, self._spent
        try:
            with _errors(self.path):
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("UPDATE meta SET value = ? WHERE key = 'head'", (self._head(),))
                self._db.execute("COMMIT")
        except BaseException:
            self._seq, self._chain, self._windows, self._sealed, self._charged, self._spent = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _verify_journal(self) -> int:
        chain, count = _start(self.terms), 0
        windows: dict[tuple[int, int], list[Any]] = {}
        blocks: dict[str, list[int]] = {}
        rows = self._db.execute(
            "SELECT seq, kind, open_ms, close_ms, rho, delta, blocks, body, chain FROM journal ORDER BY seq"
        )
        for *row, stored in rows:
            count += 1
            chain = _link(chain, tuple(row))
            seq, kind, opens, closes, rho, delta, names, _body = row
            if seq != count or chain != stored:
                raise LedgerDamaged(f"{self.path}: journal row {seq} does not follow from the rows before it")
            entry = windows.setdefault((opens, closes), ["", 0, 0, 0, "", None])
            if not _step(entry, kind, seq, rho, delta, names):
                raise LedgerDamaged(f"{self.path}: journal row {seq} ({kind}) is out of order for window {opens}")
            if kind == "charge":
                for block in names.split(","):
                    total = blocks.setdefault(block, [0, 0])
                    total[0] += rho
                    total[1] += delta
                    if not PrivacyLoss(*total).fits(self.terms.capacity):
                        raise LedgerDamaged(f"{self.path}: journal row {seq} takes block {block} past its capacity")
        for block, rho, delta in self._db.execute("SELECT block, rho, delta FROM blocks ORDER BY block"):
            if [rho, delta] != blocks.pop(block, None):
                raise LedgerDamaged(f"{self.path}: block {block} disagrees with the journal")
        for opens, closes, *entry in self._db.execute(
            "SELECT open_ms, close_ms, state, draws, rho, delta, blocks, sealed_seq FROM windows ORDER BY open_ms"
        ):
            if entry != windows.pop((opens, closes), None):
                raise LedgerDamaged(f"{self.path}: window {opens} disagrees with the journal")
        if blocks or windows:
            raise LedgerDamaged(f"{self.path}: blocks or windows of the journal are missing from their tables")
        return count


def _step(entry: list[Any], kind: str, seq: int, rho: int, delta: int, names: str) -> bool:
    """One journal row applied to a window's state; False if it may not come here."""
    state = entry[0]
    if kind == "charge" and state == "":
        entry[:] = ["charged", 1, rho, delta, names, None]
    elif kind == "again" and state == "charged":
        entry[1] += 1
    elif kind == "seal" and state in ("", "charged"):
        entry[0], entry[5] = "sealed", seq
    elif kind == "acknowledge" and state == "sealed":
        entry[0] = "acknowledged"
    else:
        return False
    return True


def _start(terms: Terms) -> bytes:
    """The chain's first link: it binds the journal to what the ledger is about."""
    capacity = terms.capacity
    text = "|".join((terms.stream, terms.unit, str(capacity.rho_nano), str(capacity.delta_femto), terms.specification))
    return hashlib.sha256(text.encode()).digest()


def _link(chain: bytes, row: tuple[Any, ...]) -> bytes:
    head = "|".join(map(str, row[:-1])).encode()
    return hashlib.sha256(chain + hashlib.sha256(head).digest() + hashlib.sha256(row[-1]).digest()).digest()


def _must_agree(path: str, found: Terms, wanted: Terms) -> None:
    if found.stream != wanted.stream:
        raise LedgerMismatch(
            f"{path} belongs to stream {found.stream!r}, not {wanted.stream!r}: give each stream its own `ledger.url`"
        )
    if found.unit != wanted.unit:
        raise LedgerMismatch(f"{path} protects the unit {found.unit!r}, the configuration says {wanted.unit!r}")
    if found.capacity != wanted.capacity:
        raise LedgerMismatch(
            f"{path} guarantees {found.capacity} for ever, the configuration says {wanted.capacity}: a cap that was "
            "promised cannot be changed; restore `budget`"
        )
    if found.specification != wanted.specification:
        raise LedgerMismatch(
            f"{path} was made with another specification of lattice, features, window or release: charged windows "
            "cannot change theirs; restore it, or start a new stream with a new ledger"
        )


def _refuse_lost_log(path: str) -> None:
    """If the main file says that its newest charges are in a log, the log must be there.

    Looked at before SQLite can make a new log. Without a log nobody has the ledger open, so reading the file is safe.
    """
    if not os.path.isfile(path) or os.path.exists(f"{path}-wal"):
        return
    name = urllib.parse.quote(os.path.abspath(path))
    try:
        with contextlib.closing(sqlite3.connect(f"file:{name}?immutable=1", uri=True)) as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'log'").fetchone()
    except sqlite3.Error:
        return  # no ledger of ours, or damaged: found out when it is opened
    if row == ("open",):
        raise LedgerDamaged(
            f"{path} was not closed and its {path}-wal is missing: charges are lost; restore both files together, or "
            "end this stream and start one under a new name and budget"
        )


def _connect(path: str, *, create: bool) -> sqlite3.Connection:
    if os.path.isdir(path):
        raise LedgerError(f"{path} must be a file, it is a directory: change `ledger.url`")
    if not create and not os.path.exists(path):
        raise LedgerError(f"{path} does not exist: there is no ledger to look at")
    if not os.path.exists(path):
        if os.path.exists(f"{path}-wal"):
            raise LedgerDamaged(f"{path} is missing, its log {path}-wal is there: charges are lost; restore both files")
        # Never open and close a file that may be a ledger in use: closing any descriptor drops the process's locks.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise LedgerError(f"{path} cannot be opened for writing: {error.strerror}") from None
    with _errors(path):
        return sqlite3.connect(path, timeout=0.5, isolation_level=None, check_same_thread=False)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """SQLite's errors in our words."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            raise LedgerInUse(
                f"{path} is in use: one engine at a time; stop the other, or use another ledger"
            ) from None
        if "full" in text:
            raise LedgerError(
                f"{path} cannot grow: the disk is full; nothing was released under an unwritten charge"
            ) from None
        if "no such" in text or "malformed" in text:
            raise LedgerDamaged(f"{path} is damaged: {text}") from None
        raise LedgerError(f"{path} cannot be used: {text}") from None
    except sqlite3.DatabaseError as error:
        raise LedgerDamaged(f"{path} is damaged: {error}") from None
    except (TypeError, ValueError) as error:  # a column of another type than we write
        if isinstance(error, FcstreamError):
            raise
        raise LedgerDamaged(f"{path} is damaged: a value has the wrong type") from None
