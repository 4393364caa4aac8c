"""Files of SQLite ledgers: opening them safely, and SQLite's errors in our words."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import FcstreamError, LedgerDamaged, LedgerError, LedgerInUse


def refuse_lost_log(path: str) -> None:
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


def connect(path: str, *, create: bool) -> sqlite3.Connection:
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
    with in_our_words(path):
        return sqlite3.connect(path, timeout=0.5, isolation_level=None, check_same_thread=False)


@contextmanager
def in_our_words(path: str) -> Iterator[None]:
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
