"""Reads a SQLite ledger through a private copy, so that the engine that has it open is neither changed nor blocked.

Opening the ledger itself would take its lock, so that an engine that starts at that moment would fail; it would also
upgrade an older schema and merge the log. Therefore the files are always copied, even if no process has them open.

The copy is one consistent state of the ledger although an engine may be writing: SQLite appends to PATH-wal, moves
pages from there into PATH only while the log still holds them, and writes a header with other salts before it reuses
the log's space. The main file is copied first and the log second. If the log has the same header before and after,
every page of the main file that changed meanwhile is in the copied log, and the copy shows the state after the last
whole transaction of that log. (The check is stricter than that: size, time and inode of the main file must be the same
too, and only the log may have grown.) If there is no log, the main file is compared with its copy byte by byte.

The rollback guard is copied before both. It is written after the ledger, so the copy must contain what the guard has
seen: the check of `RollbackGuard` holds for copies too. A mark ``open`` without a log is refused as it is when an
engine starts.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import LedgerError, LedgerInUse
from ...runtime.undo import on_error
from ..files import opened_here
from .ledger import SQLiteLedger

_TRIES = 20
_LONGEST_WAIT = 0.2  # seconds between two tries
_BY_STREAM = (
    "CREATE INDEX windows_by_stream ON windows (stream, open_ms, close_ms)",
    "CREATE INDEX blocks_by_stream ON blocks (stream, block)",
)
_HEADER = 32  # bytes of a write-ahead log's header, salts and checksum among them


class Snapshot(SQLiteLedger):
    """The `LedgerReader` of a SQLite ledger at one moment: a copy in a directory of mode 0700, removed by `close`.

    A process that is killed (-9) while it reads leaves its copy behind, in TMPDIR as ``fcstream-*``.

    Parameters
    ----------
    path : str
        Path of the ledger. Messages name this path, never the copy's.
    stream : str, optional
        Which stream to read; by default the only one.

    Raises
    ------
    LedgerInUse
        This process itself has the ledger open: closing any descriptor of the file would drop the ledger's lock. Or the
        ledger changed during every attempt to copy it.
    LedgerMismatch, LedgerDamaged, LedgerError
        As when the ledger is opened.
    """

    def __init__(self, path: str, stream: str | None = None) -> None:
        if opened_here(path) is not None:
            raise LedgerInUse(
                f"{path} is in use by this process, and to read the file here would drop its lock",
                remedy="ask the engine, or look from another process",
            )
        if not os.path.exists(path):
            raise LedgerError(f"{path} does not exist: there is no ledger to look at")
        if os.path.isdir(path):
            raise LedgerError(f"{path} is a directory", remedy="name the ledger's file")
        self._folder = ""
        try:
            with on_error(self._remove):
                self._folder = tempfile.mkdtemp(prefix="fcstream-")
                copy = os.path.join(self._folder, "ledger.db")
                _copy(path, copy)
                super().__init__(copy, stream=stream, name=path)
        except OSError as error:
            if isinstance(error, PermissionError) and str(error.filename).startswith(os.path.realpath(path)):
                raise LedgerError(
                    f"{path} cannot be read: {error.strerror}",
                    remedy="run as the user who owns it, or let this user read it and its log",
                ) from None
            raise LedgerError(
                f"{path} cannot be copied to look at it: {error.strerror}; TMPDIR names where copies go"
            ) from None

    @classmethod
    def each(cls, path: str) -> Iterator[SQLiteLedger]:
        """Iterate over all streams of one copy; each is closed when the next one is asked for."""
        first = cls(path, "")
        try:
            yield first
            copy = os.path.join(first._folder, "ledger.db")
            if len(first.streams) > 1:  # rows of one time lie side by side: else each stream would read those of all
                with first._locked():
                    for statement in _BY_STREAM:
                        first._file.db.execute(statement)
            for name in first.streams[1:]:
                with contextlib.closing(SQLiteLedger(copy, stream=name, name=path)) as ledger:
                    yield ledger
        finally:
            first.close()

    def close(self) -> None:
        """Close and remove the copy. May be called more than once."""
        super().close()
        if self._pid == os.getpid():
            self._remove()

    def _remove(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _check_change(self) -> None:
        raise LedgerError(f"{self.path} was opened to look at it: this copy takes no charges")


class _FileState(NamedTuple):
    """The facts about a ledger's files that must not change during a copy: all but the length of the log."""

    main: tuple[int, ...]
    journal: tuple[int, ...]
    log: tuple[int, ...]
    header: bytes

    @classmethod
    def of(cls, path: str) -> _FileState:
        header = b""
        with contextlib.suppress(FileNotFoundError), open(f"{path}-wal", "rb") as file:
            header = file.read(_HEADER)
        return cls(_file_state(path), _file_state(f"{path}-journal"), _file_state(f"{path}-wal")[:2], header)


def _file_state(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _copy(path: str, copy: str) -> None:
    """Copy a ledger's files in one consistent state."""
    real = os.path.realpath(path)  # logs and witnesses lie beside the file itself, not beside a link to it
    for turn in range(_TRIES):
        if turn:
            time.sleep(min(0.005 * 2**turn, _LONGEST_WAIT))
        with contextlib.suppress(IsADirectoryError, PermissionError):  # then the rollback guard can tell nothing
            _copy_file(f"{real}-witness", f"{copy}-witness")
        before = _FileState.of(real)
        for part in ("-journal", "", "-wal"):  # the log last: it holds what changes in the main file
            _copy_file(real + part, copy + part)
        after = _FileState.of(real)
        covered = len(after.header) == _HEADER
        if after == before and after.main and (covered or filecmp.cmp(real, copy, shallow=False)):
            return
    raise LedgerInUse(f"{path} is in use and changed {_TRIES} times while it was copied", remedy="look again later")


def _copy_file(path: str, copy: str) -> None:
    """Copy one file; if it does not exist, it is missing in the copy too."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(copy)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(path, copy)
