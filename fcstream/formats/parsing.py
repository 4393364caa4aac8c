"""Parses messages one after the other, whatever is wrong with some of them; MessagePack part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .bounds import MAP_FIELDS, MIXED_KEYS_BYTES, PACKED_ELEMENTS, PARTS_DEPTH, READ_AT_ONCE, BeyondBounds
from .paths import FieldPath

BROKEN = (ValueError, RecursionError, msgspec.DecodeError, TypeError)  # the last of a map as a key, in older clients
"""What decoders raise for a message that is none, or none of their type."""
_ANYTHING = msgspec.msgpack.Decoder()
_MAPS = msgspec.msgpack.Decoder(dict[str | int, msgspec.Raw])
_LISTS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_MAP_STARTS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
_CONTAINERS = _MAP_STARTS | {*range(0x90, 0xA0), 0xDC, 0xDD}  # first bytes of maps and lists


def decoded(
    reads: Callable[[Iterator[bytes]], Iterable[Any]], lines: Sequence[bytes]
) -> tuple[list[Any], NDArray[np.int64]]:
    """Return what lines are read as, and the numbers of the lines that can be read.

    `reads` makes an iterator of what an iterator of lines holds, such as ``partial(map, decode)``; where it raises one
    of `BROKEN` for a line, reading goes on behind it.
    """
    messages: list[Any] = []
    others: list[int] = []
    left = iter(lines)
    while True:
        try:
            messages.extend(reads(left))  # keeps what came before an error, and goes on behind it
        except BROKEN:
            others.append(len(messages) + len(others))
        else:
            break
    return messages, np.delete(np.arange(len(lines)), others)


def pieces(body: bytes) -> Iterator[bytes]:
    """Yield the lines of a text, some together: `READ_AT_ONCE` bytes of them at most, or one line that is longer."""
    start = 0
    while len(body) - start > READ_AT_ONCE:
        end = body.rfind(b"\n", start, start + READ_AT_ONCE)
        end = end if end >= 0 else body.find(b"\n", start)
        if end < 0:
            break
        yield body[start:end]
        start = end + 1
    yield body[start:]


def parse_msgpack(body: bytes) -> Any:
    """Read a MessagePack message; parts of it that cannot be read become None.

    Maps of more than `MIXED_KEYS_BYTES` have texts or whole numbers as keys, or cannot be read.

    Raises
    ------
    ValueError
        The message as a whole cannot be read.
    """
    found = _parts(body, PARTS_DEPTH)
    if found is None and body != b"\xc0":
        raise ValueError
    return found


def _size(body: bytes | msgspec.Raw, fixed: int, wide: int) -> int:
    """Return the length that a map or a list states, whose first byte is `fixed` for none, and `wide` before 16 bits;
    -1 of anything else."""
    head = bytes(memoryview(body)[:5])
    if head and head[0] & 0xF0 == fixed:
        return head[0] & 0x0F
    return int.from_bytes(head[1 : 3 if head[0] == wide else 5]) if head and head[0] - wide in (0, 1) else -1


def raw_elements(body: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of a list as they are written.

    Raises
    ------
    BeyondBounds
        They are more than `PACKED_ELEMENTS`.
    msgspec.DecodeError
    """
    if _size(body, 0x90, 0xDC) > PACKED_ELEMENTS:
        raise BeyondBounds
    return _LISTS.decode(body)


def msgpack_slices(body: bytes, path: FieldPath) -> Iterator[bytes]:
    """Return a message with a list at a path as several, which hold a part of the list each, and all around it.

    Raises
    ------
    BeyondBounds
        Too much is around the list, or a map or list on the way is too long.
    ValueError, msgspec.DecodeError
        There is no list at that path.
    """
    around: list[tuple[Any, str | int]] = []
    inner: Any = body
    for step in path.steps:
        if isinstance(step, int):
            parts: Any = raw_elements(inner)
            is_there = step < len(parts)
        else:
            if _size(inner, 0x80, 0xDE) > MAP_FIELDS:
                raise BeyondBounds
            parts = _MAPS.decode(inner)
            is_there = step in parts
        if not is_there:
            raise ValueError
        around.append((parts, step))
        inner = parts[step]
    elements = raw_elements(inner)
    if len(body) - memoryview(inner).nbytes > READ_AT_ONCE:
        raise BeyondBounds
    return _msgpack_slices(elements, around)


def _msgpack_slices(elements: list[msgspec.Raw], around: list[tuple[Any, str | int]]) -> Iterator[bytes]:
    some: list[msgspec.Raw] = []
    size = 0
    for element in elements:
        some.append(element)
        size += memoryview(element).nbytes
        if size >= READ_AT_ONCE:
            yield _around(some, around)
            some, size = [], 0
    if some or not elements:
        yield _around(some, around)


def _around(some: Any, around: list[tuple[Any, str | int]]) -> bytes:
    for parts, step in reversed(around):
        parts[step] = some
        some = parts
    return msgspec.msgpack.encode(some)


def _parts(body: bytes | msgspec.Raw, depth: int) -> Any:
    """Read a part, maps and lists among it part by part if it is long; None for what cannot be read."""
    view = memoryview(body)
    if depth == 0 or not view.nbytes:
        return None
    first = view[0]
    with suppress(*BROKEN):
        if view.nbytes <= MIXED_KEYS_BYTES or first not in _CONTAINERS:
            return _ANYTHING.decode(body)
    with suppress(*BROKEN):
        if first in _MAP_STARTS:
            return {name: _parts(part, depth - 1) for name, part in _MAPS.decode(body).items()}
        if first in _CONTAINERS:
            return _elements(_LISTS.decode(body), depth - 1)
    return None


def _elements(parts: list[msgspec.Raw], depth: int) -> list[Any]:
    """Read the elements of a list, as many short ones together as may be."""
    sizes = [memoryview(part).nbytes for part in parts]
    together = MIXED_KEYS_BYTES // max(sizes, default=1)
    if together < 2:
        return [_parts(part, depth) for part in parts]
    found: list[Any] = []
    broken: set[bytes] = set()  # equal ones are looked at once
    for start in range(0, len(parts), together):
        some = parts[start : start + together]
        try:
            found += _ANYTHING.decode(b"".join([b"\xdd", len(some).to_bytes(4), *some]))
        except BROKEN:
            for part in map(bytes, some):
                value = None if part in broken else _parts(part, depth)
                if value is None:
                    broken.add(part)
                found.append(value)
    return found
