"""Parser of a RabbitMQ stream's chunks: entries of one message, and batches, compressed or not.

Publishers decide what is in a batch. Nothing in it makes the parser raise or exceed a bound: what cannot be read
becomes one message without content, which no decoder takes for a record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

LARGEST = 1 << 26
"""Largest number of bytes of a chunk's batches, decompressed."""
_NONE, _GZIP = 0, 1
KINDS = ("none", "gzip", "snappy", "lz4", "zstd")
_BATCH = 10  # bytes of a batch's header after its kind: messages (2), bytes decompressed (4), bytes here (4)
_PROPERTIES = 0x74
_MAPS = {0xC1: 1, 0xD1: 4}
"""Kinds of maps, and the bytes of their number of names and values."""
_TEXTS = frozenset((0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3))
_PLAIN = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_NUMBERS = {0x50: ">B", 0x51: ">b", 0x52: ">B", 0x53: ">B", 0x54: ">b", 0x55: ">b", 0x56: ">?", 0x60: ">H", 0x61: ">h"}
_NUMBERS |= {0x70: ">I", 0x71: ">i", 0x72: ">f", 0x80: ">Q", 0x81: ">q", 0x82: ">d", 0x83: ">q"}


class ChunkMessages(NamedTuple):
    """Messages that follow each other from offset `first` on.

    `after` is the offset behind them, and behind those of their batch that cannot be read.
    """

    first: int
    after: int
    messages: list[bytes]


def pieces_of(frame: Any) -> tuple[list[ChunkMessages], str]:
    """Read the messages of a delivered chunk, and the name of a compression that could not be read (empty if there is
    none).
    """
    data, at, offset, room = frame.data, 0, frame.chunk_first_offset, LARGEST
    plain: list[bytes] = []
    pieces: list[ChunkMessages] = []
    unread = ""
    for _ in range(frame.num_entries):
        if at >= len(data):
            break
        if not data[at] & 0x80:
            size = int.from_bytes(data[at : at + 4])
            plain.append(data[at + 4 : at + 4 + size])
            at += 4 + size
            continue
        if plain:
            pieces.append(ChunkMessages(offset, offset + len(plain), plain))
            offset, plain = offset + len(plain), []
        kind = data[at] >> 4 & 7
        count, large, size = (int.from_bytes(data[at + i : at + j]) for i, j in ((1, 3), (3, 7), (7, 11)))
        at += 1 + _BATCH
        messages = _split(_unpacked(kind, data[at : at + size], large, room), count)
        at, room = at + size, room - large
        if len(messages) < count:
            unread = KINDS[kind] if kind < len(KINDS) else "something else"
            messages = messages or [b""]
        if count:
            pieces.append(ChunkMessages(offset, offset + count, messages))
            offset += count
    if plain:
        pieces.append(ChunkMessages(offset, offset + len(plain), plain))
    return pieces, unread


def _unpacked(kind: int, data: bytes, large: int, room: int) -> bytes:
    """Decompress a batch; returns nothing if it is not what its header says, or too large."""
    if kind == _NONE:
        return data
    if kind != _GZIP or large > room:
        return b""
    try:
        found = zlib.decompressobj(31).decompress(data, large + 1)
    except zlib.error:
        return b""
    return found if len(found) == large else b""


def _split(data: bytes, count: int) -> list[bytes]:
    """Split a batch into its messages, as far as they are complete."""
    messages: list[bytes] = []
    at = 0
    while len(messages) < count and at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4])
        at += 4 + size
        if at > len(data):
            break
        messages.append(data[at - size : at])
    return messages


def body_of(message: bytes) -> bytes:
    """Return the data of a message in AMQP 1.0; any other message as it is."""
    at, data = 0, []
    while message[at : at + 2] == b"\0S" and len(message) > at + 4:
        section, kind = message[at + 2], message[at + 3]
        width = 4 if kind & 0x10 else 1  # width of the size, which all sections but empty lists have
        start = at + 4 + width if kind != 0x45 else at + 4
        at = start + (int.from_bytes(message[at + 4 : start]) if kind >= 0xA0 else 0)
        if section in (0x75, 0x77) and kind in (0xA0, 0xA1, 0xB0, 0xB1):
            data.append(message[start:at])
        elif section in (0x75, 0x76, 0x77) or not 0x70 <= section <= 0x78 or (kind < 0xA0 and kind != 0x45):
            return message  # lists, maps and numbers are not bytes
    return b"".join(data) if at == len(message) else message


def properties_of(message: bytes) -> list[tuple[str, Any]]:
    """Return the application properties of a message in AMQP 1.0; nothing for any other message.

    Lists, maps and the like are passed over as None: a client library takes hours for an array of values of no bytes.
    """
    at = 0
    try:
        while message[at : at + 2] == b"\0S":
            section = message[at + 2]
            start, end = _extent(message, at + 3)
            if section == _PROPERTIES and message[at + 3] in _MAPS:
                return list(_pairs(message[start + _MAPS[message[at + 3]] : end]))
            at = end
    except (ValueError, IndexError, struct.error):
        pass
    return []


def _pairs(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a map."""
    at = 0
    while at < len(data):
        start, behind = _extent(data, at)
        name, kind = data[start:behind].decode("utf-8", "surrogateescape"), data[behind]
        start, at = _extent(data, behind)
        if kind in _PLAIN:
            yield name, _PLAIN[kind]
        elif kind in _NUMBERS:
            yield name, struct.unpack(_NUMBERS[kind], data[start:at])[0]
        else:
            yield name, data[start:at] if kind in _TEXTS else None


def _extent(data: bytes, at: int) -> tuple[int, int]:
    """Return where the bytes of a value begin and end whose kind stands at `at`."""
    kind = data[at]
    start = at + 1
    if kind < 0xA0:
        size = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}.get(kind >> 4, -1)
    else:
        start += 4 if kind & 0x10 else 1
        size = int.from_bytes(data[at + 1 : start])
    if size < 0 or start + size > len(data):
        raise ValueError
    return start, start + size


def bodies_of(frame: Any) -> list[bytes]:
    """Return the data of every message of a delivered chunk."""
    return [body_of(message) for piece in pieces_of(frame)[0] for message in piece.messages]
