"""Texts of records: how they are normalized, and which are rejected."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

MAX_BYTES = 256
"""Most bytes of a text in UTF-8, unless the configuration says otherwise."""
MOST_JOINED = 2**24
"""Most characters of a column that are joined to one text, to look at all of them at once."""
_MOST_COMPOSED = 16  # code points of a text that the normal form makes one of: really 4 at most


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


def parse_text(value: Any, max_bytes: int = MAX_BYTES) -> str:
    """Read one text in Unicode's normal form C; a whole number becomes its decimal text.

    Raises
    ------
    UnusableRecord
        ``missing``, ``not_a_text``, or ``too_long``: more than `max_bytes` of UTF-8.
    """
    if isinstance(value, bytes):
        if len(value) > 4 * _MOST_COMPOSED * max_bytes:
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
    if len(value) > _MOST_COMPOSED * max_bytes:  # unread, since many records may share it
        raise UnusableRecord("too_long")
    value = composed(value)
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise UnusableRecord("not_a_text") from None  # half of a surrogate pair
    if size > max_bytes:
        raise UnusableRecord("too_long")
    return str(value)


def plain_texts(values: Iterable[Any], max_bytes: int) -> list[str | None]:
    """Read many texts; None for those that `parse_text` refuses."""
    cells = list(values)
    try:  # a column of ASCII texts is its own normal form
        whole = "".join(cells) if sum(map(len, cells)) <= MOST_JOINED else "\ufffd"
    except TypeError:
        whole = "\ufffd"
    if whole.isascii() and all(map(len, cells)) and max(map(len, cells), default=0) <= max_bytes:
        return cells
    return [_text_or_none(cell, max_bytes) for cell in cells]


def _text_or_none(value: Any, max_bytes: int) -> str | None:
    try:
        return parse_text(value, max_bytes)
    except UnusableRecord:
        return None
