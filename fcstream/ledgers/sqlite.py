"""The embedded ledger: one SQLite file, one connection, write-ahead log, synchronous=FULL.

The journal is append-only and chained by hashes; `windows` and `blocks` are its running summary, written in the same
transactions and compared with the journal's head when the ledger is opened. One process at a time: the file is in
exclusive locking mode, which also keeps clear of the WAL-reset fault of SQLite before 3.51.3 (two connections).

A file may hold several streams. Each has tables of its own, those of the second one with names that end in ``_2``, and
so on, and nothing but the file and its lock in common with the others; ledgers of one process share the connection.

While a ledger is open, its newest charges live in PATH-wal. A mark in the main file says so: if the ledger is opened
after a crash without its PATH-wal, charges are missing, and it is refused.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
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
from .files import APPLICATION_ID, LedgerFile, in_our_words
from .witness import Witness

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOG = logging.getLogger("fcstream.ledgers")
SCHEMA_VERSION = 3
_TABLES = """
CREATE TABLE meta{n} (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE journal{n} (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, open_ms INTEGER NOT NULL, close_ms INTEGER NOT NULL,
    rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, body BLOB NOT NULL, chain BLOB NOT NULL);
CREATE TABLE windows{n} (
    open_ms INTEGER NOT NULL, close_ms INTEGER NOT NULL, state TEXT NOT NULL, draws INTEGER NOT NULL,
    rho INTEGER NOT NULL, delta INTEGER NOT NULL, blocks TEXT NOT NULL, sealed_seq INTEGER,
    PRIMARY KEY (open_ms, close_ms)) WITHOUT ROWID;
CREATE INDEX unacknowledged{n} ON windows{n} (sealed_seq) WHERE state = 'sealed';
CREATE TABLE blocks{n} (block TEXT PRIMARY KEY, rho INTEGER NOT NULL, delta INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE users{n} (bucket INTEGER PRIMARY KEY, body BLOB NOT NULL);
"""
_STREAMS = "CREATE TABLE streams (number INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE)"
_MIGRATIONS = {
    "1": ("2", "CREATE TABLE users (bucket INTEGER PRIMARY KEY, body BLOB NOT NULL)"),
    "2": ("3", f"{_STREAMS}; INSERT INTO streams SELECT 1, value FROM meta WHERE key = 'stream'"),
}
"""From each older schema version: the next one, and what it takes."""
_FEW = 64  # buckets that are read one by one


class SQLiteLedger:
    """See `Ledger` for the contract.

    Parameters
    ----------
    path : str
        Made with mode 0600 if absent.
    terms : Terms, optional
        What the ledger must be about; a stream that is absent is added. None opens what is there, to look at it.
    stream : str, optional
        To look at: by default the only one; the first one if empty.

    Raises
    ------
    LedgerInUse, LedgerMismatch, LedgerDamaged, LedgerError
    """

    def __init__(self, path: str, terms: Terms | None = None, stream: str | None = None) -> None:
        self.path = path
        self._pid = os.getpid()
        self._closed = False
        self._stream = ""  # once it is ours
        self._n = ""  # what the names of its tables end in
        self._witness = Witness(f"{path}-witness")
        self._file = LedgerFile.share(path, create=terms is not None)
        try:
            with self._file.lock, in_our_words(path):
                self._prepare(terms, stream)
        except BaseException:
            self.close()
            raise

    @property
    def streams(self) -> list[str]:
        """Names of all streams in the file."""
        with self._looking():
            return [name for _, name in self._numbers()]

    def kin(self) -> list[str]:
        """See `Ledger`."""
        with self._looking():
            return [name for number, name in self._numbers() if self._is_kin(number)]

    # -- the contract ------------------------------------------------------------------------------------------------

    def charge(self, requests: Sequence[Request]) -> list[Verdict]:
        with self._transaction():
            return [self._charge(request) for request in requests]

    def seal(self, answers: Sequence[Answer]) -> None:
        with self._transaction():
            for window, body, refund in answers:
                key = (window.open_ms, window.close_ms)
                found = self._do(
                    "SELECT state, draws, rho, delta, blocks FROM windows{n} WHERE open_ms = ? AND close_ms = ?", key
                ).fetchone()
                if found is not None and found[0] != "charged":
                    raise LedgerError(f"window {window.open_ms} is sealed in {self.path}: its answer is final")
                root = self._refund(window, refund, found) if refund != PrivacyLoss() else ""
                seq = self._append("seal", window, refund, root, body)
                self._sealed += 1
                if found is None:  # a refusal: nothing was charged
                    self._windows += 1
                    self._do("INSERT INTO windows{n} VALUES (?, ?, 'sealed', 0, 0, 0, '', ?)", (*key, seq))
                else:
                    self._do(
                        "UPDATE windows{n} SET state = 'sealed', sealed_seq = ?, rho = rho - ?, delta = delta - ? "
                        "WHERE open_ms = ? AND close_ms = ?",
                        (seq, refund.rho_nano, refund.delta_femto, *key),
                    )

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        with self._transaction():
            for window in windows:
                done = self._do(
                    "UPDATE windows{n} SET state = 'acknowledged' "
                    "WHERE open_ms = ? AND close_ms = ? AND state = 'sealed'",
                    (window.open_ms, window.close_ms),
                )
                if done.rowcount == 1:
                    self._append("acknowledge", window, PrivacyLoss(), "", b"")

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        with self._looking():
            rows = self._do(
                "SELECT w.open_ms, w.close_ms, j.body FROM windows{n} w JOIN journal{n} j ON j.seq = w.sealed_seq "
                "WHERE w.state = 'sealed' ORDER BY w.sealed_seq"
            ).fetchall()
        return [(WindowKey(opens, closes), bytes(body)) for opens, closes, body in rows]

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        with self._looking():
            row = self._do(
                "SELECT w.open_ms, w.close_ms, j.body FROM windows{n} w JOIN journal{n} j ON j.seq = w.sealed_seq "
                "WHERE w.state != 'charged' ORDER BY w.open_ms DESC LIMIT 1"
            ).fetchone()
        return (WindowKey(row[0], row[1]), bytes(row[2])) if row else None

    def spent(self, block: str | None = None) -> PrivacyLoss:
        with self._looking():
            row = self._do(
                "SELECT coalesce(max(rho), 0), coalesce(max(delta), 0) FROM blocks{n} "
                + ("WHERE block != ?" if block is None else "WHERE block = ?"),
                (block or TOTAL_BLOCK,),
            ).fetchone()
        return PrivacyLoss(*row)

    def close(self) -> None:
        if self._pid != os.getpid() or self._closed:
            return
        self._closed = True
        self._witness.close()
        self._file.leave(self._stream)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()

    # -- for those who look ------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, int]:
        """See `Books`."""
        with self._looking():
            states = dict(self._do("SELECT state, count(*) FROM windows{n} GROUP BY state").fetchall())
            states["blocks"] = self._do("SELECT count(*) FROM blocks{n}").fetchone()[0]
            states["users"] = sum(users.count(body) for (body,) in self._do("SELECT body FROM users{n}"))
        return states

    def charges(self) -> list[tuple[WindowKey, PrivacyLoss]]:
        """See `Books`."""
        with self._looking():
            found = self._do(
                "SELECT open_ms, close_ms, rho, delta FROM windows{n} WHERE draws > 0 ORDER BY open_ms"
            ).fetchall()
        return [(WindowKey(opens, closes), PrivacyLoss(rho, delta)) for opens, closes, rho, delta in found]

    def releases(self) -> list[bytes]:
        """See `Books`."""
        with self._looking():
            rows = self._do("SELECT body FROM journal{n} WHERE kind = 'seal' ORDER BY seq").fetchall()
        return [bytes(body) for (body,) in rows]

    def rows(self) -> list[Row]:
        """See `Books`."""
        with self._looking():
            return [row for row, _ in self._journal()]

    def verify(self) -> int:
        """Check the whole ledger against itself; returns how many journal rows it has.

        Raises
        ------
        LedgerDamaged
            Naming the first bad row.
        """
        with self._looking():
            for (message,) in self._do("PRAGMA integrity_check"):
                if message != "ok":
                    raise LedgerDamaged(f"{self.path} is damaged: {message}")
            replay = journal.Replay(self.path, self.terms)
            for row, chain in self._journal():
                replay.follow(row, chain)
            root = None
            if self.terms.unit == "user":
                held = self._do("SELECT bucket, body FROM users{n} ORDER BY bucket")
                root = users.audit(self.path, held, self.terms.capacity)
            replay.compare(
                (
                    (opens, closes, tuple(state))
                    for opens, closes, *state in self._do(
                        "SELECT open_ms, close_ms, state, draws, rho, delta, blocks, sealed_seq FROM windows{n} "
                        "ORDER BY open_ms"
                    )
                ),
                self._do("SELECT block, rho, delta FROM blocks{n} ORDER BY block"),
                root,
            )
            return replay.count

    # -- inside ------------------------------------------------------------------------------------------------------

    def _prepare(self, terms: Terms | None, stream: str | None) -> None:
        file = self._file
        if file.is_empty and terms is None:
            raise LedgerMismatch(f"{self.path} is not a ledger: it is empty")
        with file.changing("EXCLUSIVE"):
            if file.is_empty and terms is not None:
                self._do(_STREAMS)
                self._create(terms, 1)
                self._do(f"PRAGMA application_id = {APPLICATION_ID}")
            self._migrate()
            self._choose(terms, stream)
        self.terms = self._read_terms()
        if terms is not None:
            must_agree(self.path, self.terms, terms)
        file.enter(self.terms.stream, self.path)
        self._stream = self.terms.stream
        self.salt = bytes.fromhex(self._meta("salt"))
        row = self._do("SELECT seq, chain FROM journal{n} ORDER BY seq DESC LIMIT 1").fetchone()
        self._seq: int = row[0] if row else 0
        self._chain: bytes = row[1] if row else journal.start(self.terms)
        self._windows, self._charged = self._do("SELECT count(*), coalesce(sum(rho), 0) FROM windows{n}").fetchone()
        sealed = self._do("SELECT count(*) FROM windows{n} WHERE state IN ('sealed', 'acknowledged')")
        self._sealed = sealed.fetchone()[0]
        self._spent = self._do("SELECT coalesce(sum(rho), 0) FROM blocks{n}").fetchone()[0]
        self._users = bytes.fromhex(self._meta("users"))
        if self._meta("head") != self._head():
            raise LedgerDamaged(
                f"{self.path} is damaged: its tables disagree with the journal's head at row {self._seq}"
            )
        self._witness.check(self._seq, self._chain, self._chain_at)
        file.mark("open")
        self._do("PRAGMA wal_checkpoint(TRUNCATE)")

    def _choose(self, terms: Terms | None, stream: str | None) -> None:
        """Find the tables of our stream, or add them."""
        numbers = {name: number for number, name in self._numbers()}
        name = stream if terms is None else terms.stream
        if name == "":  # none is called so
            name = next(iter(numbers))
        if name is None and len(numbers) > 1:
            raise LedgerMismatch(f"{self.path} holds {len(numbers)} streams: name one of {_some(numbers)}")
        if name is None:
            name = next(iter(numbers))
        number = numbers.get(name, len(numbers) + 1)
        if number > 1:
            self._n = f"_{number}"
            self._witness = Witness(f"{self.path}-witness{self._n}")
        if name not in numbers:
            if terms is None:
                raise LedgerMismatch(f"{self.path} has no stream {name!r}, only {_some(numbers)}")
            self._witness.check_absence()
            self._create(terms, number)
            if not any(_root(other) == _root(name) for other in numbers):
                LOG.warning(
                    "%s holds %s; stream %r is new there, with a budget of its own: if it was renamed, what it has "
                    "spent counts under its old name only",
                    self.path,
                    _some(map(repr, numbers)),
                    name,
                )

    def _numbers(self) -> list[tuple[int, str]]:
        return self._do("SELECT number, stream FROM streams ORDER BY number").fetchall()

    def _is_kin(self, number: int) -> bool:
        n = "" if number == 1 else f"_{number}"
        query = f"SELECT 1 FROM meta{n} WHERE key = 'specification' AND value = ? AND EXISTS (SELECT 1 FROM journal{n})"
        return self._do(query, (self.terms.specification,)).fetchone() is not None

    def _chain_at(self, seq: int) -> bytes:
        """The link stored beside a journal row."""
        row = self._do("SELECT chain FROM journal{n} WHERE seq = ?", (seq,)).fetchone()
        return bytes(row[0]) if row else journal.start(self.terms)

    def _head(self) -> str:
        """What the summary tables and the journal's last row must agree with."""
        return f"{self._seq}:{self._chain.hex()}:{self._windows}:{self._sealed}:{self._charged}:{self._spent}"

    def _create(self, terms: Terms, number: int) -> None:
        self._do("INSERT INTO streams VALUES (?, ?)", (number, terms.stream))
        for statement in _TABLES.split(";"):
            self._do(statement)
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
        self._do_many("INSERT INTO meta{n} VALUES (?, ?)", values.items())

    def _migrate(self) -> None:
        """Bring a ledger of an older version up to this one's schema, inside the transaction that opens it."""
        version = self._meta("schema")  # the first stream's speaks for the file
        while version in _MIGRATIONS:
            version, statements = _MIGRATIONS[version]
            for statement in statements.split(";"):
                self._do(statement)
            if version == "2":
                values = {"salt": SystemEntropy().words(4).tobytes().hex(), "users": users.NO_USERS.hex()}
                self._do_many("INSERT INTO meta{n} VALUES (?, ?)", values.items())
            self._do("UPDATE meta{n} SET value = ? WHERE key = 'schema'", (version,))
        if version != str(SCHEMA_VERSION):
            raise LedgerMismatch(
                f"{self.path} has schema version {version}, this version reads up to {SCHEMA_VERSION}: "
                "use the version that made it"
            )

    def _meta(self, key: str) -> str:
        row = self._do("SELECT value FROM meta{n} WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise LedgerDamaged(f"{self.path} is damaged: meta row {key!r} is missing")
        return str(row[0])

    def _read_terms(self) -> Terms:
        try:
            capacity = PrivacyLoss(int(self._meta("capacity_rho")), int(self._meta("capacity_delta")))
            total = None
            if self._do("SELECT 1 FROM meta{n} WHERE key = 'total_rho'").fetchone():
                total = PrivacyLoss(int(self._meta("total_rho")), int(self._meta("total_delta")))
        except ValueError:
            raise LedgerDamaged(f"{self.path} is damaged: its capacity is not a number") from None
        return Terms(self._meta("stream"), self._meta("unit"), capacity, self._meta("specification"), total)

    def _charge(self, request: Request) -> Verdict:
        window = request.window
        found = self._do(
            "SELECT state, draws, rho, delta, blocks FROM windows{n} WHERE open_ms = ? AND close_ms = ?",
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
        self._do(
            "INSERT INTO windows{n} VALUES (?, ?, 'charged', 1, ?, ?, ?, NULL)",
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
        self._do("INSERT OR IGNORE INTO blocks{n} VALUES (?, 0, 0)", (block,))
        done = self._do(
            "UPDATE blocks{n} SET rho = rho + ?, delta = delta + ? WHERE block = ? AND rho + ? <= ? AND delta + ? <= ?",
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
        self._do(
            "UPDATE windows{n} SET draws = draws + 1 WHERE open_ms = ? AND close_ms = ?",
            (window.open_ms, window.close_ms),
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
            self._do(
                "UPDATE blocks{n} SET rho = rho - ?, delta = delta - ? WHERE block = ?",
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
            query = f"SELECT bucket, body FROM users{{n}} WHERE bucket IN ({','.join('?' * len(names))})"
            return dict(self._do(query, names).fetchall())
        held = self._do("SELECT bucket, body FROM users{n}")
        if names is None:
            return dict(held.fetchall())
        wanted = set(names)
        return {name: body for name, body in held if name in wanted}

    def _store_users(self, held: dict[int, bytes], changed: dict[int, bytes]) -> None:
        self._do_many("INSERT OR REPLACE INTO users{n} VALUES (?, ?)", changed.items())
        self._users = users.redigest(self._users, held, changed)
        self._do("UPDATE meta{n} SET value = ? WHERE key = 'users'", (self._users.hex(),))

    def _journal(self) -> Iterator[tuple[Row, bytes]]:
        rows = self._do(
            "SELECT seq, kind, open_ms, close_ms, rho, delta, blocks, body, chain FROM journal{n} ORDER BY seq"
        )
        for *row, chain in rows:
            yield Row(*row), chain

    def _block(self, block: str) -> PrivacyLoss:
        row = self._do("SELECT rho, delta FROM blocks{n} WHERE block = ?", (block,)).fetchone()
        return PrivacyLoss(*row) if row else PrivacyLoss()

    def _worst(self, blocks: Sequence[str]) -> PrivacyLoss:
        """Of the most charged of some blocks, the total left out."""
        return worst([self._block(block) for block in blocks if block != TOTAL_BLOCK])

    def _append(self, kind: str, window: WindowKey, loss: PrivacyLoss, blocks: str, body: bytes) -> int:
        self._seq += 1
        row = Row(self._seq, kind, window.open_ms, window.close_ms, loss.rho_nano, loss.delta_femto, blocks, body)
        self._chain = journal.link(self._chain, row)
        self._do("INSERT INTO journal{n} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row[:8], self._chain))
        return self._seq

    def _do(self, query: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run a statement on our stream's tables."""
        return self._file.db.execute(query.replace("{n}", self._n), values)

    def _do_many(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        self._file.db.executemany(query.replace("{n}", self._n), rows)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Alone with the connection."""
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path} was opened before a fork: open the engine in the process that uses it")
        with self._file.lock, in_our_words(self.path):
            if self._closed:  # others may have the file open still, and this stream too
                raise LedgerError(f"{self.path} is closed: open it again to go on")
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._looking():
            before = self._seq, self._chain, self._windows, self._sealed, self._charged, self._spent, self._users
            try:
                with self._file.changing("IMMEDIATE"):
                    yield
                    self._do("UPDATE meta{n} SET value = ? WHERE key = 'head'", (self._head(),))
            except BaseException:
                self._seq, self._chain, self._windows, self._sealed, self._charged, self._spent, self._users = before
                raise
            self._witness.note(self._seq, self._chain)


def _root(stream: str) -> str:
    """Of one key's part: the whole stream."""
    return stream.partition("/")[0]


def _some(names: Iterable[str]) -> str:
    held = sorted(names)
    return ", ".join(held[:20]) + (", ..." if len(held) > 20 else "")
