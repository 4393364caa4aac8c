"""Opens files of SQLite ledgers safely and once in a process, and translates SQLite's errors."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import sqlite3
import threading
import urllib.parse
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch, Shown
from ..runtime.undo import on_error
from .base import WRONG_CONTENT
from .fence import Fence
from .rollback_guard import GuardFile, RollbackGuard

APPLICATION_ID = 0x66635374  # "fcSt"
_LOG_LIMIT = 2**22  # bytes that the write-ahead log keeps between charges
_LAST_CHARGE_S = 5.0
_CACHE_KB = 65_536  # pages of the streams of some 2,000 keys
_FILES: list[LedgerFile] = []
_FILES_LOCK = threading.RLock()


class LedgerFile:
    """A SQLite file that is open in this process, shared by the ledgers of its streams.

    Attributes
    ----------
    db : sqlite3.Connection
    lock : threading.RLock
        Held by the thread that uses the connection.
    path : str
        Path of the file itself, with links resolved.
    agreed : dict
        Terms that sibling streams were found to agree on, by stream: no other process can change them while the file
        is open here.
    members : dict
        Tables of the streams of each group, retired ones included, once they were checked: by group and number.
    is_listed : bool
        Whether all streams of the file were found in its list of streams.
    guards : GuardFile
        Of all its streams.
    fence : Fence
        Keeps other processes out, and finds out if one came in all the same.
    sums, most : dict or None
        What the windows and blocks of each stream add up to, and its largest loss of a block; None after a change. See
        `fcstream.ledgers.sqlite.sums`.
    """

    def __init__(self, path: str, *, create: bool, name: str = "") -> None:
        name = name or path
        real = os.path.realpath(path)  # the working directory may change; logs lie beside the file, not beside a link
        if create and not any(map(os.path.exists, (real, f"{real}-wal"))):
            RollbackGuard(f"{real}-witness").check_absence()
        self.path = real
        self.guards = GuardFile(f"{real}-witness", f"{name if name != path else real}-witness")
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.agreed: dict[str, object] = {}
        self.members: dict[str, dict[int, Any]] = {}
        self.is_listed = False
        self.sums: dict[int, Any] | None = None
        self.most: dict[int, Any] | None = None
        # Whoever shares the file: an interrupt may keep it from letting go, and its end does so then.
        self._streams = weakref.WeakValueDictionary[str, object]()
        self._guests = weakref.WeakSet[object]()
        self._unfinished: Callable[[], object] | None = None
        self._forget_unwritten()
        self._flushes = False
        self.is_left = False  # to whoever took the file away
        find_file(path, create=create)
        self.fence = Fence(real)
        self.fence.take()
        with on_error(self.fence.release):
            refuse_lost_log(path, name)
            self.db = connect(path, name)
            self._inode = _inode(path)
            self.fence.watch()
            _FILES.append(self)  # whatever interrupts: a connection must not be left to the garbage collector
        try:
            with translated_errors(name):
                self._prepare(name)
        except LedgerInUse:
            self.db.close()  # this connection never had the log open, so closing it merges nothing
            self.fence.release()
            raise
        except BaseException:
            self._close()
            raise

    @property
    def is_open(self) -> bool:
        with contextlib.suppress(sqlite3.ProgrammingError):
            return self.db.in_transaction in (True, False) and not self.is_left
        return False

    @classmethod
    def share(cls, path: str, guest: object, *, create: bool, name: str = "") -> LedgerFile:
        """Return the file, opened if this process has not opened it yet, for a guest that must `leave` it later.

        Errors name the path, or another `name`.

        Raises
        ------
        LedgerInUse, LedgerMismatch, LedgerDamaged, LedgerError
        """
        with _FILES_LOCK:
            found = opened_here(path)
            for file in _FILES:  # those of which an interrupt kept the last guest from letting go
                if file is not found and file.pid == os.getpid() and file.is_open and not file._guests:
                    file._close()
            _FILES[:] = [file for file in _FILES if file.is_open]
            Fence.release_all_but([file.fence for file in _FILES])
            if found is not None and not found._guests:  # its last ledger let go of it, but it could not be closed
                if found.fence.is_held and found._inode == _inode(path):
                    with translated_errors(path):
                        found._prepare(path)
                else:
                    _FILES.remove(found)
                    found = None
            if found is None:
                found = cls(path, create=create, name=name)
            found.add_guest(guest)
            return found

    def add_guest(self, guest: object) -> None:
        """Count one more guest of this file, beside one that shares it."""
        with _FILES_LOCK:
            self._guests.add(guest)

    def enter(self, stream: str, guest: object, path: str) -> None:
        """Register the one ledger that a stream may have in this process.

        Raises
        ------
        LedgerInUse
        """
        if stream in self._streams:
            raise LedgerInUse(f"{path} is in use: one engine at a time", remedy="stop the other, or use another ledger")
        self._streams[stream] = guest

    def holds(self, stream: str) -> bool:
        """Whether a ledger of this process has this stream open."""
        return stream in self._streams

    def leave(self, guest: object) -> None:
        """Let go of a guest and its streams; the last one to do so closes the file. It may be called again.

        If closing fails, the file stays open and locked for the next ledger of this process.
        """
        with _FILES_LOCK:
            for stream in [name for name, each in self._streams.items() if each is guest]:
                del self._streams[stream]
            self._guests.discard(guest)
            if not self._guests and self in _FILES and self.is_open:
                self._close()

    def mark(self, log: str) -> None:
        """Note in the file whether the newest charges may be in the write-ahead log."""
        self.fence.check()
        self._flush(True)
        self.db.execute("UPDATE file SET value = ? WHERE key = 'log'", (log,))

    @property
    def is_empty(self) -> bool:
        return not self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    @contextmanager
    def changing(self, kind: str, reread: Callable[[], object] | None = None, *, flush: bool = True) -> Iterator[None]:
        """Open a transaction that is committed at the end of the block, and rolled back if the block raises.

        After an error `reread` is called before the next use of the file, to forget what memory holds of the block.
        Without `flush` a power loss may undo the transaction, as long as no later one was flushed; the end of the
        process does not.
        """
        self.finish()
        self._flush(flush)
        self._unfinished = reread or (lambda: None)
        with on_error(self._roll_back):
            self.db.execute(f"BEGIN {kind}")
            yield
            self.write()
            self.fence.check()
            self.db.execute("COMMIT")
            self.fence.check()  # nothing is published that whoever opened the ledger meanwhile may not have seen
        self._unfinished = None

    def write_later(self, statement: str, key: tuple[Any, ...], row: tuple[Any, ...]) -> None:
        """Keep a row of the transaction until `write`; it takes the place of one with the same statement and key.

        A key begins with the number of the row's stream.
        """
        self._unwritten[statement][key] = row
        self._waiting.add(key[0])

    def unwritten(self, statement: str, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the row that waits to be written with a statement and a key, if there is one."""
        rows = self._unwritten.get(statement)
        return None if rows is None else rows.get(key)

    def write(self, number: int | None = None) -> None:
        """Write the rows that wait: of all streams, in the order of their statements. With a number, if that stream has
        any.
        """
        if number is None or number in self._waiting:
            for statement, rows in self._unwritten.items():
                self.db.executemany(statement, rows.values())
            self._forget_unwritten()

    def _forget_unwritten(self) -> None:
        self._unwritten = defaultdict[str, dict[tuple[Any, ...], tuple[Any, ...]]](dict)
        self._waiting = set[int]()

    def _flush(self, flush: bool) -> None:
        """Let transactions wait for the disk or not. An interrupt at any line leaves a later flush to be asked for."""
        if flush and not self._flushes:
            self.db.execute("PRAGMA synchronous = FULL")
            self._flushes = True
        elif not flush and self._flushes:
            self._flushes = False
            self.db.execute("PRAGMA synchronous = NORMAL")

    def forget(self) -> None:
        """Forget what streams were found to agree on."""
        self.agreed.clear()
        self.members.clear()
        self.is_listed = False
        self.sums = self.most = None

    def finish(self) -> None:
        """Clear up after a transaction that did not end: Ctrl-C can hit any line, also the one before a rollback."""
        if self._unfinished is not None:
            self._roll_back()
            self._unfinished()
            self._unfinished = None

    def _roll_back(self) -> None:
        self._forget_unwritten()
        self.sums = self.most = None
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def disown(self) -> None:
        """Prevent that this connection is ever closed: SQLite would then merge and delete the write-ahead log."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.db))

    def _prepare(self, path: str) -> None:
        db = self.db
        self.forget()
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA fullfsync = ON")  # where the system's fsync stops short of the disk
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA secure_delete = ON")  # what windows left is overwritten when it is deleted
        if not self.is_empty and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            if RollbackGuard(f"{self.path}-witness").seen()[0]:
                raise LedgerDamaged(
                    f"{path} is damaged: it was a ledger, but its first page is not a ledger's", remedy="restore a copy"
                )
            raise LedgerMismatch(f"{path} is a database of another program", remedy="choose another `ledger.url`")
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise LedgerError(
                f"{path} must allow a write-ahead log", got=Shown(f"journal mode {mode!r}"), remedy="use a local disk"
            )
        self._flushes = False
        self._flush(True)
        db.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KB}")

    def _close(self) -> None:
        """Close the connection, if that is possible and allowed."""
        if self.fence.is_lost:  # the file, or its log, is somebody else's now
            self.disown()
            self._let_go()
            self.is_left = True
            return
        try:
            self._roll_back()  # the mark must not be part of a transaction that an interrupt left open
            # A clean close merges the log into the file and deletes it, so the file must be marked as closed before.
            if self.db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'file'").fetchone()[0]:
                self.mark("closed")
        except sqlite3.OperationalError:
            self.disown()  # another process holds the file, or the disk is full: leave the log where it is
            return
        except (sqlite3.Error, ValueError):
            pass  # not a ledger, or a damaged one
        # Those that an interrupt's traceback keeps would keep the lock. No line of Python holds what else refers to it.
        for cursor in list(filter(sqlite3.Cursor.__instancecheck__, gc.get_referrers(self.db))):
            cursor.close()
        self.db.close()
        self._let_go()

    def _let_go(self) -> None:
        self.guards.close()
        self.fence.release()


def opened_here(path: str) -> LedgerFile | None:
    """Return the open file if this process has it open, else None."""
    with _FILES_LOCK:
        for file in _FILES:
            if file.pid == os.getpid() and file.is_open:
                with contextlib.suppress(OSError):
                    if os.path.samefile(file.path, path):
                        return file
    return None


def _inode(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _disown_all() -> None:
    for file in _FILES:
        file.disown()


def _close_all() -> None:
    with _FILES_LOCK:
        _disown_all()  # Ctrl-C below must not leave a connection to the interpreter, which would close it
        for file in list(_FILES):
            if file.pid == os.getpid():
                _FILES.remove(file)
                # A daemon thread may be in the middle of a charge: it can end that one, and cannot begin another.
                if file.is_open and file.lock.acquire(timeout=_LAST_CHARGE_S):
                    file._close()


def _after_fork() -> None:
    global _FILES_LOCK
    _FILES_LOCK = threading.RLock()  # another thread of the parent may have held it
    _disown_all()  # a child must not touch its parent's log


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)


def refuse_lost_log(path: str, shown: str) -> None:
    """Refuse a file, which errors call `shown`, whose newest charges are in a write-ahead log that is missing.

    Must be called before SQLite can make a new log. Without a log no process has the ledger open, so the file can be
    read safely.
    """
    real = os.path.realpath(path)
    if not os.path.isfile(real) or os.path.exists(f"{real}-wal"):
        return
    name = urllib.parse.quote(real)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{name}?immutable=1", uri=True)) as db:
            row = db.execute("SELECT value FROM file WHERE key = 'log'").fetchone()
    except (sqlite3.Error, ValueError):
        return  # not our ledger, or a damaged one: opening it will tell
    if row == ("open",):
        raise LedgerDamaged(
            f"{shown} was not closed and its {real if shown == path else shown}-wal is missing: charges are lost",
            remedy="restore both files together, or end this stream and start one under a new name and budget",
        )


def find_file(path: str, *, create: bool) -> None:
    """Make the file if it is absent and may be made.

    Raises
    ------
    LedgerDamaged, LedgerError
    """
    real = os.path.realpath(path)
    if os.path.isdir(path):
        raise LedgerError(f"{path} must be a file, it is a directory", remedy="change `ledger.url`")
    if not create and not os.path.exists(path):
        raise LedgerError(f"{path} does not exist: there is no ledger to look at")
    if not os.path.exists(path):
        if os.path.exists(f"{real}-wal"):
            raise LedgerDamaged(
                f"{path} is missing, its log {real}-wal is there: charges are lost", remedy="restore both files"
            )
        # Never open and close a file that may be a ledger in use: closing any descriptor of a file drops all locks that
        # this process has on it.
        try:
            os.close(os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise LedgerError(f"{path} cannot be opened for writing: {error.strerror}") from None


def connect(path: str, name: str = "") -> sqlite3.Connection:
    with translated_errors(name or path):
        return sqlite3.connect(os.path.realpath(path), timeout=0.5, isolation_level=None, check_same_thread=False)


_DAMAGE = (  # primary codes of SQLite's errors
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # no such table or column
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_CONSTRAINT,
)


_REMEDIES = {
    sqlite3.SQLITE_READONLY: "this user must be able to read and write it: run as its owner, or change its mode",
    sqlite3.SQLITE_CANTOPEN: "this user must be able to read and write it and what lies beside it: run as its owner, "
    "or change the modes",
    sqlite3.SQLITE_IOERR: "the disk is faulty or away, or a quota or the limit of a file's size (`ulimit -f`) is "
    "reached: mend that and run again; nothing was released under an unwritten charge",
}
_OTHERWISE = "run again; if it stays so, look whether its disk and its folder can be written"


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    """Translate SQLite's errors into ours; content that cannot be read counts as damage."""
    try:
        yield
    except LedgerError:
        raise
    except sqlite3.Error as error:
        raise _ledger_error(path, error) from None
    except WRONG_CONTENT:
        raise LedgerDamaged(
            f"{path} is damaged: it holds a value that this version does not write", remedy="restore a copy"
        ) from None


def _ledger_error(path: str, error: sqlite3.Error) -> LedgerError:
    text, code = str(error), getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerInUse(f"{path} is in use: one engine at a time", remedy="stop the other, or use another ledger")
    if primary == sqlite3.SQLITE_FULL:
        return LedgerError(f"{path} cannot grow: the disk is full; nothing was released under an unwritten charge")
    if primary == sqlite3.SQLITE_NOTADB:
        return LedgerDamaged(f"{path} is damaged, or was never a ledger: {text}")
    # An error without a code comes from Python's module: a text that is not UTF-8, or a value that is too large.
    if primary is None or primary in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return LedgerDamaged(f"{path} is damaged: {text if primary is not None else 'a value cannot be read'}")
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):  # which some systems call a fault of the disk
        primary = sqlite3.SQLITE_READONLY
    return LedgerError(f"{path} cannot be used: {text}", remedy=_REMEDIES.get(primary, _OTHERWISE))
