"""Texts of records: how they are normalized, and which are rejected."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from functools import lru_cache
from typing import Any
from unicodedata import combining

import numpy as np

MAX_BYTES = 256
"""Most bytes of a text in UTF-8, unless the configuration says otherwise."""
MAX_JOINED = 2**24
"""Most characters of a column that are joined to one text, to look at all of them at once."""
MAX_MARKS = 30
"""Most accents in a row, as in Unicode's safe format: the normal form takes the square of their number."""
_MAX_COMPOSED = 16  # code points of a text that the normal form makes one of: really 4 at most


class UnusableRecord(Exception):
    """A cell or record that cannot be used (internal to decoding)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number: no truth value, and no time span, which is an integer to numpy."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


@lru_cache(maxsize=64)  # all records of a message may share one, and a hostile one takes milliseconds
def composed(text: str) -> str:
    """Return a text in Unicode's normal form C, in which an accent is written in one way only."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def is_overloaded(text: str) -> bool:
    """Tell whether a text has more than `MAX_MARKS` accents in a row."""
    return len(text) > MAX_MARKS and not text.isascii() and _max_marks(text) > MAX_MARKS


@lru_cache(maxsize=64)
def _max_marks(text: str) -> int:
    """Return how many accents of a text there are in a row, at most; 0 for a text that certainly has few."""
    if not any(map(combining, text[MAX_MARKS :: MAX_MARKS + 1])):  # one of more would be among them
        return 0
    return max(map(len, bytes(map(combining, text)).split(b"\0")))


def are_overloaded(texts: Collection[str]) -> bool:
    """Tell whether any of some texts is overloaded."""
    return not all(map(str.isascii, texts)) and any(map(is_overloaded, texts))


def parse_text(value: Any, max_bytes: int = MAX_BYTES) -> str:
    """Read one text in Unicode's normal form C; a whole number becomes its decimal text.

    Raises
    ------
    UnusableRecord
        ``missing``, ``not_a_text`` (also for more than `MAX_MARKS` accents in a row), or ``too_long``: more than
        `max_bytes` of UTF-8.
    """
    if isinstance(value, bytes):
        if len(value) > 4 * _MAX_COMPOSED * max_bytes:
            raise UnusableRecord("too_long")
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise UnusableRecord("not_a_text") from None
    if is_whole(value):
        if abs(int(value)) >= 10**4000:  # Python writes no much longer ones
            raise UnusableRecord("too_long")
        value = str(int(value))
    if value is None or (isinstance(value, str) and not value):
        raise UnusableRecord("missing")
    if not isinstance(value, str):
        raise UnusableRecord("not_a_text")
    if len(value) > _MAX_COMPOSED * max_bytes:  # unread, since many records may share it
        raise UnusableRecord("too_long")
    if is_overloaded(value):
        raise UnusableRecord("not_a_text")
    value = composed(value)
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise UnusableRecord("not_a_text") from None  # half of a surrogate pair
    if size > max_bytes:
        raise UnusableRecord("too_long")
    return str(value)


def is_text(value: str, or_bytes: bool = False) -> bool:
    """Tell whether a text is Unicode, or stands for bytes that are none: one with half of a surrogate pair is not."""
    try:
        value.encode(errors="surrogateescape" if or_bytes else "strict")
    except UnicodeEncodeError:
        return False
    return True
