"""Reads lines of untrusted files with a bound on their length, so that a small compressed file cannot fill memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import IO, Any

from ..errors import SourceError

LONGEST_LINE = 16 * 2**20
"""Largest number of bytes of a line; fcstream writes no line that long."""


def read_lines(path: str, max_bytes: int | None = None) -> Iterator[bytes]:
    """Read the lines of a file, unpacked if its name ends in ``.gz``.

    Parameters
    ----------
    path : str
    max_bytes : int, optional
        Largest number of lines.

    Raises
    ------
    SourceError
        The file cannot be read, is damaged, or is too long.
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
    """Read the lines of an open file, see `read_lines`."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise SourceError(
                f"line {number} of {name} is longer than {LONGEST_LINE:,} bytes: fcstream writes no such line, so give "
                "a file that it wrote"
            )
        if max_bytes is not None and number > max_bytes:
            raise SourceError(f"{name} is longer than {max_bytes:,} lines", remedy="give a part of it")
        yield line
