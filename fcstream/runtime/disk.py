"""Writes bytes and names of files so that they are on disk before the caller continues, and locks files."""

from __future__ import annotations

import fcntl
import os
import time

_LOCK_S, _PAUSE_S = 1.0, 0.01


def write_all(file: int, data: bytes, at: int | None = None) -> None:
    """Write all of some bytes, since one call of the system may write only a part of them.

    Parameters
    ----------
    file : int
        Descriptor.
    data : bytes
    at : int, optional
        Offset in the file; by default the descriptor's current position.
    """
    left = memoryview(data)
    while left:
        done = os.write(file, left) if at is None else os.pwrite(file, left, at + len(data) - len(left))
        left = left[done:]


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Flush a folder to disk after a file in it was made, renamed or removed."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock_file(file: int) -> None:
    """Lock an open file for its descriptor alone, until this is closed.

    A process that another thread is just starting holds a copy of every descriptor until it runs its own program, and
    with it the locks of files that were closed meanwhile. Such a lock is waited for, at most a second.

    Raises
    ------
    BlockingIOError
        Somebody else holds the lock.
    """
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
