"""Writes bytes and names of files so that they are on disk before the caller continues."""

from __future__ import annotations

import os


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
