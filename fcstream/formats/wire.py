"""What a message of protobuf would take in memory, found without making anything of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .bounds import OBJECT_BYTES, PACKED_ELEMENTS, READ_AT_ONCE, BeyondBounds

_MESSAGE, _TEXT, _TEXTS, _UNKNOWN, _NUMBER = 40, 8, 64, 24, 65
"""Bytes of memory of a message, a text, one of a list, a field that the type does not have, and a number of a list."""
_LONG_TEXT = 2**16
"""Bytes of a text that are counted, four times: so much may a character take."""
_TOGETHER = 2**13
"""Most records of a slice."""


class WireType(NamedTuple):
    """What is counted of the values of a type.

    Attributes
    ----------
    cost : int
        Bytes of memory that a message takes, besides what it holds.
    fields : dict of int to WireType or int
        By number: the type of messages, or the bytes of memory of a value; 0 for what lies in the message.
    """

    cost: int
    fields: dict[int, WireType | int]


def wire_type(kind: Any, cost: Callable[[Any], int], known: dict[str, WireType] | None = None) -> WireType:
    """Return what is counted of a type, by its descriptor. `cost`: the bytes that a message of a type takes besides
    those of the library."""
    known = {} if known is None else known
    if kind.full_name not in known:
        made = known[kind.full_name] = WireType(_MESSAGE + cost(kind), {})
        for field in kind.fields:
            if field.message_type is not None:
                made.fields[field.number] = wire_type(field.message_type, cost, known)
            else:
                is_text = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
                made.fields[field.number] = (
                    (_TEXTS if is_text else _NUMBER) if field.is_repeated else _TEXT if is_text else 0
                )
    return known[kind.full_name]


def check_wire(data: bytes, kind: WireType) -> None:
    """Refuse a message that would take more than `OBJECT_BYTES`. What is no message of its type is left to the library.

    Raises
    ------
    BeyondBounds
    """
    total, at, end = kind.cost, 0, len(data)
    around: list[tuple[int, dict[int, WireType | int]]] = []
    fields = kind.fields
    while True:
        while at >= end:
            if not around:
                return
            end, fields = around.pop()
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1)
        found, wire = fields.get(tag >> 3, _UNKNOWN), tag & 7
        if wire == 2:
            size = data[at] if at < end else 0
            at += 1
            if size > 127:
                size, at = _varint(data, at - 1)
            if type(found) is int:
                total += found * size if found == _NUMBER else found + (4 * size if size > _LONG_TEXT else 0)
                at += size
            else:
                total += found.cost  # type: ignore[union-attr]
                around.append((end, fields))
                end, fields = min(end, at + size), found.fields  # type: ignore[union-attr]
        else:
            total += found if type(found) is int else _UNKNOWN
            if wire == 0:
                while at < end and data[at] > 127:
                    at += 1
                at += 1
            else:
                at += {1: 8, 5: 4}.get(wire, 0)
        if total > OBJECT_BYTES:
            raise BeyondBounds


def wire_slices(data: bytes, number: int) -> Iterator[bytes]:
    """Yield a message with a list of messages, the field of this number, as several, which hold a part of the list
    each, and all that is around it.

    Raises
    ------
    BeyondBounds
        Too much is around the list, or it has too many elements.
    ValueError
        It is no message.
    """
    around, parts, count, at = bytearray(), [bytearray()], 0, 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 2:
            size, at = _varint(data, at)
            at += size
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError
        if tag == number << 3 | 2:
            if count == _TOGETHER or len(parts[-1]) >= READ_AT_ONCE:
                parts.append(bytearray())
                count = 0
            parts[-1] += data[start:at]
            count += 1
        else:
            around += data[start:at]
    if at > len(data):
        raise ValueError
    is_many = _TOGETHER * (len(parts) - 1) + count > PACKED_ELEMENTS
    if is_many or len(around) * len(parts) > max(READ_AT_ONCE, len(data)):
        raise BeyondBounds
    for part in parts:
        yield bytes(around + part)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number; returns it, and where it ends.

    Raises
    ------
    ValueError
    """
    number = shift = 0
    while at < len(data) and shift < 70:
        number |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return number, at
        shift += 7
    raise ValueError
