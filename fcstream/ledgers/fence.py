"""Keeps a ledger's file to one process, also where locks get lost or are granted to everybody.

SQLite's own lock ends when its process closes any descriptor of the file, as a copy or a checksum of it does. Therefore
a second lock, one of an open file and not of a process, is held on a file beside the ledger for as long as that is
open. It holds the mark of the process that opened the ledger last, for file systems on which every lock succeeds: who
opens the ledger writes its mark before it reads anything, and who changes it looks for its own mark before and after
each commit. What is published was thus committed before anybody else began to read, or it is not published.
"""

from __future__ import annotations

import contextlib
import os
import uuid
import weakref
from collections.abc import Sequence
from io import FileIO

from ..errors import LedgerError, LedgerInUse, LedgerTaken
from ..runtime.disk import lock_file, write_all
from ..runtime.undo import on_error

_REMEDY = "nothing more is published; find out who did it, let one process use the ledger, and start again"
_HELD: weakref.WeakSet[Fence] = weakref.WeakSet()


class Fence:
    """The lock of one ledger, held from `take` to `release`; a child after a fork holds none.

    Parameters
    ----------
    path : str
        Path of the ledger's file, with links resolved. The lock is PATH-lock, of mode 0600, and stays when it is
        released.
    """

    def __init__(self, path: str) -> None:
        self.path = f"{path}-lock"
        self._ledger = path
        self._mark = uuid.uuid4().hex.encode()
        self._opened: FileIO | None = None
        self._places: tuple[tuple[int, int], ...] = ()
        self._lost = ""

    def take(self) -> None:
        """Lock the file, and write the mark into it; the ledger's file must be there.

        Raises
        ------
        LedgerInUse
        LedgerError
            The lock cannot be made; or the ledger has a second name, by which another process would find another lock.
        """
        try:
            names = os.stat(self._ledger).st_nlink
            if names > 1:
                raise LedgerError(
                    f"{self._ledger} has {names} names (hard links), and each would have a lock of its own",
                    remedy="keep one",
                )
            while True:
                self._opened = FileIO(self.path, "r+", opener=_opener)
                with on_error(self.release):
                    _HELD.add(self)
                    lock_file(self._file)
                    if _same(os.fstat(self._file), self.path):
                        write_all(self._file, self._mark)
                        os.ftruncate(self._file, len(self._mark))
                        return
                self.release()  # somebody removed it meanwhile
        except BlockingIOError:
            raise LedgerInUse(
                f"{self._ledger} is in use: one engine at a time", remedy="stop the other, or use another ledger"
            ) from None
        except OSError as error:
            raise LedgerError(
                f"{self._ledger} cannot be locked: {self.path}: {error.strerror}",
                remedy="use a local disk, and make this a file that this user may write, or delete it",
            ) from None

    def watch(self) -> None:
        """Remember which file the ledger is, once it is open."""
        self._places = _place(os.stat(self._ledger)), _place(os.fstat(self._file))

    def check(self) -> None:
        """Refuse to go on if another process has opened the ledger, or if its file or lock is another one.

        Raises
        ------
        LedgerTaken, LedgerError
        """
        if not self._lost:
            try:
                places: tuple[tuple[int, int], ...] = _place(os.stat(self._ledger)), _place(os.stat(self.path))
                is_mine = os.pread(self._file, len(self._mark) + 1, 0) == self._mark
            except FileNotFoundError:
                places, is_mine = (), True
            except OSError as error:
                raise LedgerError(f"{self._ledger} cannot be looked at: {error.strerror}") from None
            if not is_mine:
                self._lost = "was opened by another process, whose locks do not exclude this one's (a network's disk?)"
            elif places != self._places:
                self._lost = f"or {self.path} was removed or replaced while this process had it open"
        if self._lost:
            raise LedgerTaken(f"{self._ledger} {self._lost}", remedy=_REMEDY)

    @property
    def is_lost(self) -> bool:
        """Whether the ledger's file must not be touched any more."""
        with contextlib.suppress(LedgerError):
            self.check()
        return bool(self._lost)

    def lose(self, why: str) -> LedgerTaken:
        """Return the error for what was found elsewhere, after which all is refused; `check` may know it better."""
        self.check()
        self._lost = self._lost or why
        return LedgerTaken(f"{self._ledger} {self._lost}", remedy=_REMEDY)

    def release(self) -> None:
        """Let go of the lock. May be called more than once, also where an interrupt ended the first call."""
        if self._opened is not None:
            self._opened.close()
        _HELD.discard(self)

    @staticmethod
    def release_all_but(kept: Sequence[Fence]) -> None:
        """Let go of the locks of this process that an interrupt left behind."""
        for fence in [each for each in _HELD if each not in kept]:
            fence.release()

    @property
    def is_held(self) -> bool:
        return self._file >= 0

    @property
    def _file(self) -> int:
        return -1 if self._opened is None or self._opened.closed else self._opened.fileno()


def _place(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _opener(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _same(found: os.stat_result, path: str) -> bool:
    try:
        return _place(found) == _place(os.stat(path))
    except FileNotFoundError:
        return False


def _after_fork() -> None:
    for fence in list(_HELD):
        fence.release()  # the parent's descriptor still holds the lock


os.register_at_fork(after_in_child=_after_fork)
