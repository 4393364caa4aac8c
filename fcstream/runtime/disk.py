"""Bytes and names of files that must be on disk before a program goes on."""

from __future__ import annotations

import os


def write_all(file: int, data: bytes, at: int | None = None) -> None:
    """Write all of some bytes: a system may take a part of them only.

    Parameters
    ----------
    file : int
        Descriptor.
    data : bytes
    at : int, optional
        Where in the file; by default where the descriptor writes next.
    """
    left = memoryview(data)
    while left:
        done = os.write(file, left) if at is None else os.pwrite(file, left, at + len(data) - len(left))
        left = left[done:]


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Put on disk which files a folder holds, after one was made, renamed or removed."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
