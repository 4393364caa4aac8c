"""CBOR: messages of one data item each, by RFC 8949."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cbor2
import numpy as np
from numpy.typing import NDArray

from .batch import Batch, Rejection, Schema
from .bounds import CBOR_TAGS, PACKED_ELEMENTS, READ_AT_ONCE, BeyondBounds
from .decoders import LineDecoder, apart
from .envelopes import Envelope
from .fields import RecordReader
from .paths import FieldPath

# A message is read as the first of two items, of which the second one is this: then bytes that are left over, and an
# end that comes too early, are found without a file for each message.
_PAIR, _END = b"\x82", b"fcstream"
_TAIL = cbor2.dumps(_END)


class CborMessages:
    """Decoder of messages of one data item each.

    Keys of maps must be texts or bytes: numbers could be chosen so that a map of them takes hours. Times may be tagged
    (0 and 1), numbers may be big or decimal (2 to 5); a message with another tag is rejected.

    Parameters
    ----------
    schema : Schema
    """

    def __init__(self, schema: Schema) -> None:
        self._fields = RecordReader(schema)
        self._records = schema.records

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Read messages; one that is not exactly one data item is rejected."""
        positions = np.arange(first_position, first_position + len(lines))
        if max(map(len, lines), default=0) > READ_AT_ONCE:
            return apart(lines, positions, envelopes, self._read, self._sliced)
        return self._read(lines, positions, envelopes)

    def _read(self, lines: Sequence[bytes], positions: NDArray[np.int64], envelopes: Sequence[Envelope]) -> Batch:
        read, found = cbor2.loads, list[Any]()
        for line in lines:
            try:
                message, end = read(_PAIR + line + _TAIL, strict_hashable_types=True, semantic_decoders=CBOR_TAGS)
                whole = type(end) is bytes and end == _END
            except Exception:  # what tags stand for is made by many libraries, whose errors are of many types
                whole = False
            found.append(message if whole else Rejection("broken_record", int(positions[len(found)])))
        return self._fields.read(found, positions, envelopes)

    def _sliced(
        self, line: bytes, position: int, envelopes: Sequence[Envelope], _rejections: list[Rejection]
    ) -> Iterator[Batch]:
        """Read a long message in slices of its records."""
        if self._records is None or not self._fields.is_sliceable:
            raise BeyondBounds
        for part in cbor_slices(line, self._records):
            yield self._read([part], np.array([position]), envelopes)


class _Items:
    """Goes through the data items of a message without making anything of them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def head(self) -> tuple[int, int | None]:
        """Read the head of an item; returns its major type and its number, None for an indefinite length."""
        if self.at >= len(self._data):
            raise ValueError
        first = self._data[self.at]
        major, info = first >> 5, first & 31
        self.at += 1
        if info < 24:
            return major, info
        if info == 31 and major in (2, 3, 4, 5):
            return major, None
        if info > 27:
            raise ValueError
        size = 1 << (info - 24)
        number = int.from_bytes(self._data[self.at : self.at + size])
        self.at += size
        return major, number

    def skip(self) -> None:
        """Go behind an item of `READ_AT_ONCE` bytes at most.

        Raises
        ------
        BeyondBounds
        ValueError
        """
        left: list[int | None] = [1]  # of the items around this one; None where an end stands behind them
        until = self.at + READ_AT_ONCE
        while left:
            if self.at > until:
                raise BeyondBounds
            if left[-1] == 0 or (left[-1] is None and self.at_end()):
                left.pop()
                continue
            if left[-1] is not None:
                left[-1] -= 1
            major, number = self.head()
            if major in (2, 3) and number is not None:
                self.at += number
            elif major == 6:
                left.append(1)
            elif number is None or major in (4, 5):
                left.append(None if number is None else number * (major - 3))

    def at_end(self) -> bool:
        """Go behind the end of an indefinite length, if it is here."""
        if self._data[self.at : self.at + 1] != b"\xff":
            return False
        self.at += 1
        return True

    def leads(self, step: str | int, k: int) -> bool:
        """Return whether part `k` of a list or a map, which is next, is the one that a step of a path leads to; then
        its value is next, and else what is behind it."""
        if isinstance(step, int):
            is_it = k == step
        else:
            start = self.at
            self.skip()
            is_it = self._is_text(self._data[start : self.at], step)
        if not is_it:
            self.skip()
        return is_it

    @staticmethod
    def _is_text(item: bytes, text: str) -> bool:
        """Return whether an item is a text, in whichever of many ways it is written."""
        if item[0] >> 5 not in (3, 6):
            return False
        try:
            return bool(cbor2.loads(item, semantic_decoders=CBOR_TAGS) == text)
        except Exception:  # see `CborMessages`
            return False

    def parts(self, number: int | None) -> Iterator[int]:
        """Yield the number of each part of a list or a map that has been begun; behind each the caller goes on.

        Raises
        ------
        BeyondBounds
        """
        k = 0
        while k != number and not (number is None and self.at_end()):
            if k == PACKED_ELEMENTS:
                raise BeyondBounds
            yield k
            k += 1


def cbor_slices(line: bytes, path: FieldPath) -> Iterator[bytes]:
    """Yield a message with a list at a path as several, which hold a part of the list each, and all around it.

    Raises
    ------
    BeyondBounds
        Too much is around the list, an element is too long, or they are too many.
    ValueError
        There is no list at that path, or there are two, of which a reader may take either.
    """
    items = _Items(line)
    around = []
    for step in path.steps:
        major, number = items.head()
        if major != (4 if isinstance(step, int) else 5):
            raise ValueError
        parts = items.parts(number)
        if not any(items.leads(step, k) for k in parts):
            raise ValueError
        around.append((parts, step))
    start = items.at
    major, number = items.head()
    if major != 4:
        raise ValueError
    begin, ends = items.at, []
    for _ in items.parts(number):
        items.skip()
        ends.append(items.at)
    head, tail = line[:start], line[items.at :]
    if len(head) + len(tail) > READ_AT_ONCE:
        raise BeyondBounds
    for parts, step in reversed(around):
        if any(items.leads(step, k) for k in parts):
            raise ValueError
    if items.at != len(line):
        raise ValueError
    some = 0
    for k, end in enumerate(ends):
        some += 1
        if end - begin >= READ_AT_ONCE or k == len(ends) - 1:
            yield b"".join([head, b"\x9a", some.to_bytes(4), line[begin:end], tail])
            begin, some = end, 0


def messages(schema: Schema) -> LineDecoder:
    """Make the decoder of ``format = "cbor"``."""
    return CborMessages(schema)
