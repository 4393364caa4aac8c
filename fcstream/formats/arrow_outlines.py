"""What Arrow's library would make of the metadata of a stream, found before it does.

The metadata are FlatBuffers, in which many columns or texts may be the same bytes: half a megabyte can stand for a
million columns with names of half a megabyte each, all of which the library makes.

Source
------
https://arrow.apache.org/docs/format/Columnar.html and the schemas ``Message.fbs`` and ``Schema.fbs`` there.
"""

from __future__ import annotations

import struct

from .bounds import ARROW_BATCHES, ARROW_FIELDS, ARROW_TEXTS, BeyondBounds

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of Arrow messages."""
_FIELD_BYTES, _PAIR_BYTES = 16, 16
"""Least bytes of the metadata of a column that is described by itself, and what a pair counts beside its texts."""
_TIMESTAMP = 10
_MARK = 2**32 - 1


def check_stream(line: bytes, known: bytes) -> None:
    """Refuse a stream with more columns than `ARROW_FIELDS`, inner ones too, or with more bytes of names and the like
    than `ARROW_TEXTS`, counted as often as they are used. A schema whose message is `known` is admitted.

    Raises
    ------
    BeyondBounds
    ValueError, struct.error
        It is no stream.
    """
    at = 0
    texts = 0
    for _ in range(2 * ARROW_BATCHES + 4):  # no more are read
        if at + 8 > len(line):
            return
        size = u32(line, at)
        at += 4
        if size == _MARK:
            size = u32(line, at)
            at += 4
        if size == 0:
            return
        metadata = line[at : at + size]
        message = u32(metadata, 0)
        texts += _pairs(metadata, field(metadata, message, 4), ARROW_TEXTS - texts)
        if kind(metadata) == SCHEMA and metadata != known:
            texts += _schema(metadata, _reference(metadata, field(metadata, message, 2)), ARROW_TEXTS - texts)
        body = field(metadata, message, 3)
        length = int(struct.unpack_from("<q", metadata, body)[0]) if body else 0
        if length < 0:
            raise ValueError
        at += size + length


def _schema(data: bytes, schema: int, most: int) -> int:
    """Return the bytes of the texts of a schema."""
    texts = _pairs(data, field(data, schema, 2), most)
    left = min(ARROW_FIELDS, len(data) // _FIELD_BYTES)
    waiting = _parts(data, field(data, schema, 1), left)
    left -= len(waiting)
    while waiting:
        at = waiting.pop()
        texts += _text(data, field(data, at, 0)) + _pairs(data, field(data, at, 6), most)
        type_at = field(data, at, 2)
        if type_at and data[type_at] == _TIMESTAMP:
            texts += _text(data, field(data, _reference(data, field(data, at, 3)), 1))
        inner = _parts(data, field(data, at, 5), left)
        left -= len(inner)
        waiting += inner
        if texts > most:
            raise BeyondBounds
    return texts


def _pairs(data: bytes, at: int, most: int) -> int:
    """Return the bytes of the keys and values of metadata, and some for each pair."""
    texts = 0
    for pair in _parts(data, at, most // _PAIR_BYTES):
        texts += _PAIR_BYTES + _text(data, field(data, pair, 0)) + _text(data, field(data, pair, 1))
        if texts > most:
            raise BeyondBounds
    return texts


def _parts(data: bytes, at: int, most: int) -> list[int]:
    """Return where the tables of a list stand that a field refers to; none if there is no field."""
    if not at:
        return []
    start = _reference(data, at)
    count = u32(data, start)
    if count > most:
        raise BeyondBounds
    places = struct.unpack_from(f"<{count}I", data, start + 4)
    return [start + 4 + 4 * i + place for i, place in enumerate(places)]


def _text(data: bytes, at: int) -> int:
    return u32(data, _reference(data, at)) if at else 0


def _reference(data: bytes, at: int) -> int:
    return at + u32(data, at)


def kind(metadata: bytes) -> int:
    """Return the kind of an Arrow message: a schema, a dictionary or a batch of records."""
    at = field(metadata, u32(metadata, 0), 1)
    return metadata[at] if at else 0


def field(data: bytes, table: int, number: int) -> int:
    """Return the offset of a field of a FlatBuffer's table; 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    if 6 + 2 * number > size:
        return 0
    offset = int(struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0])
    return table + offset if offset else 0


def u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
