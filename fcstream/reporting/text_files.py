"""Lines of files that anybody may have made: bounded in length, so that a small compressed file fills no memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import IO, Any

from ..errors import SourceError

LONGEST_LINE = 16 * 2**20
"""Bytes; no document of ours is as long."""


def read_lines(path: str, max_bytes: int | None = None) -> Iterator[bytes]:
    """Lines of a file, of its unpacked content if its name ends in ``.gz``.

    Parameters
    ----------
    path : str
    max_bytes : int, optional
        How many lines there may be.

    Raises
    ------
    SourceError
        It cannot be read, is damaged, or is longer than it may be.
    """
    try:
        file: Any
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            yield from bounded_lines(file, path, max_bytes)
    except (OSError, EOFError, zlib.error) as error:
        from ..connectors.urls import mask

        why = getattr(error, "strerror", None) or "it is damaged"
        raise SourceError(f"{mask(path)} cannot be read: {why}") from None


def bounded_lines(file: IO[bytes], name: str, max_bytes: int | None = None) -> Iterator[bytes]:
    """Lines of an open file, see `read_lines`."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise SourceError(f"line {number} of {name} is longer than {LONGEST_LINE:,} bytes: no document of ours is")
        if max_bytes is not None and number > max_bytes:
            raise SourceError(f"{name} is longer than {max_bytes:,} lines: give a part of it")
        yield line
