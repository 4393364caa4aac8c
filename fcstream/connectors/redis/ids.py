"""Ids of stream entries as numbers: in full, and as offsets that fit an int64 wherever they can."""

from __future__ import annotations

from ...errors import SourceError

SEQ_BITS = 20
MS_LIMIT = 1 << (63 - SEQ_BITS)
COUNTERS, LOW_COUNTERS = (1 << 64) - 1, (1 << SEQ_BITS) - 1
HIGH_COUNTERS = COUNTERS ^ LOW_COUNTERS
MARKED = 1 << 128


def parse_id(entry_id: bytes) -> int:
    """Convert an entry id to one number, in the order of ids: ``ms << 64 | seq``.

    Raises
    ------
    SourceError
        It is not an entry id.
    """
    ms, _, seq = entry_id.partition(b"-")
    try:
        time_ms, count = int(ms), int(seq)
        if time_ms >> 64 or count >> 64:
            raise ValueError(entry_id)
    except ValueError:
        raise SourceError(
            "entry ids must be MILLISECONDS-COUNTER",
            got=entry_id[:40],
            remedy="if it is a stored position, correct or delete it (hash fcstream:NAME:positions)",
        ) from None
    return time_ms << 64 | count


def write_id(number: int) -> str:
    """Convert a number back to an entry id, the inverse of `parse_id`."""
    return f"{number >> 64}-{number & COUNTERS}"


def to_offset(number: int) -> int:
    """Convert a parsed id to an offset ``ms << 20 | seq``, which fits an int64.

    An id that does not fit (a time after 2248, or more than a million entries in a millisecond, which only a chosen id
    can have) becomes the number itself with a mark on it.
    """
    if number >> 64 < MS_LIMIT and not number & HIGH_COUNTERS:
        return number >> 44 | number & LOW_COUNTERS
    return number | MARKED


def of_offset(offset: int) -> int:
    """Convert an offset back to a parsed id, the inverse of `to_offset`."""
    if offset & MARKED:
        return offset ^ MARKED
    return offset >> SEQ_BITS << 64 | offset & LOW_COUNTERS
