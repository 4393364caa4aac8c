"""Why records cannot be used: equal reasons of one message are one entry with a count, however many they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

_PACKED = (
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ\0",
    b"\x04\x22\x4d\x18",
    b"x\x01",
    b"x\x5e",
    b"x\x9c",
    b"x\xda",
)


def is_packed(body: bytes) -> bool:
    """Tell whether bytes begin as those of gzip, zstd, xz, lz4 or zlib (deflate) do."""
    return body.startswith(_PACKED)


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """Why records at one position of a source cannot be used; never their content.

    Attributes
    ----------
    reason : str
        One of `fcstream.formats.batch.REASONS`.
    position : int
        Where they stand in the source: records of one message share its position.
    field : str or None
        The name that the configuration has for the field; never one that a sender has chosen.
    count : int
        How many records.
    """

    reason: str
    position: int
    field: str | None = None
    count: int = 1


def tallied(rejections: Iterable[Rejection]) -> list[Rejection]:
    """Return rejections in the order of their positions, equal ones as one."""
    found = list(rejections)
    if len({each.position for each in found}) == len(found):
        return sorted(found, key=lambda each: each.position)
    return _entries((each.position, each) for each in found)


def rejected_at(reason: str, positions: NDArray[np.int64], field: str | None = None) -> list[Rejection]:
    """Reject a record at each of these positions, which need not differ, for one reason."""
    at, counts = np.unique(positions, return_counts=True)
    return [Rejection(reason, each, field, n) for each, n in zip(at.tolist(), counts.tolist(), strict=True)]


def moved(rejections: Iterable[Rejection], positions: NDArray[np.int64]) -> list[Rejection]:
    """Return rejections of records that were numbered from 0 with the positions of their messages."""
    places = positions.tolist()
    return _entries((places[each.position], each) for each in rejections)


_UNREAD = ("broken_record", "too_long")


def tell_packed(rejections: list[Rejection], bodies: Sequence[bytes]) -> list[Rejection]:
    """Name messages that cannot be read because they are compressed; positions are the numbers of bodies."""
    packed = {i for i in {each.position for each in rejections if each.reason in _UNREAD} if is_packed(bodies[i])}
    if not packed:
        return rejections
    kept = [each for each in rejections if each.position not in packed or each.reason not in _UNREAD]
    return tallied(kept + [Rejection("compressed", i) for i in packed])


def _entries(found: Iterable[tuple[int, Rejection]]) -> list[Rejection]:
    counts: dict[tuple[int, str, str | None], int] = {}
    for position, each in found:
        key = position, each.reason, each.field
        counts[key] = counts.get(key, 0) + each.count
    entries = [Rejection(reason, position, field, n) for (position, reason, field), n in counts.items()]
    return sorted(entries, key=lambda each: each.position)


def total(rejections: Sequence[Rejection]) -> int:
    """Return how many records are rejected."""
    return sum(each.count for each in rejections)
