"""Decoder of JSON and MessagePack whose records are not flat: fields lie inside others, or come with a message.

A message that breaks off or is too long is rejected whole. Anything else that is wrong in an element of
``[source] records`` rejects that element alone: a number beyond a double, text that is no Unicode, or what is no JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batch import Batch, Rejection, Schema, merge
from .bounds import READ_AT_ONCE, BeyondBounds, max_rows
from .decoders import SHORT, LineDecoder, Objects, apart
from .envelopes import Envelope
from .fields import RecordReader
from .json_parts import is_deep, parse_elements, parse_json, slices
from .parsing import BROKEN, decoded, msgpack_slices, parse_msgpack
from .typed import MessageType, Untyped, shape_of

_MAX_SHAPES = 8
"""Most types that are made; messages of further shapes are read one by one."""


def objects_decoder(schema: Schema, codec: str = "json", *, are_messages: bool = False) -> LineDecoder:
    """Make the decoder of objects, one in each line or message: a faster one where all fields are plain."""
    if schema.is_flat:
        with suppress(ValueError):  # names with characters that the other one's types cannot have
            return Objects(schema, codec, are_messages=are_messages)
    return NestedObjects(schema, codec, are_messages=are_messages)


class NestedObjects:
    """Decoder of one message of nested objects a line or body; see `RecordReader` for what its fields may be.

    Source
    ------
    Specification 8.10.
    """

    def __init__(self, schema: Schema, codec: str = "json", *, are_messages: bool = False) -> None:
        self._schema, self._codec = schema, codec
        self._reader = RecordReader(schema)
        self._types: dict[frozenset[str], MessageType | None] = {}
        self._shape: frozenset[str] | None = frozenset() if schema.records is None else None
        self._parse: Callable[[bytes], Any] = parse_json if codec == "json" else parse_msgpack
        self._skips_blank = not are_messages
        self._most = max_rows(len(schema.features))

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Lines without their ends, or messages with their envelopes, the first of which has `first_position`."""
        positions = np.arange(first_position, first_position + len(lines))
        if self._skips_blank and not all(line.strip() for line in lines):
            kept = [i for i, line in enumerate(lines) if line.strip()]
            lines, positions = [lines[i] for i in kept], positions[kept]
            envelopes = [envelopes[i] for i in kept] if envelopes else ()
        if max(map(len, lines), default=0) > READ_AT_ONCE:
            return apart(lines, positions, envelopes, self._short, self._sliced)
        return self._short(lines, positions, envelopes)

    def _short(self, lines: list[bytes], positions: NDArray[np.int64], envelopes: Sequence[Envelope]) -> Batch:
        if self._shape is None and lines:
            self._guess(lines[0])
        return self._typed(lines, positions, envelopes)

    def _sliced(
        self, line: bytes, position: int, envelopes: Sequence[Envelope], rejections: list[Rejection]
    ) -> Iterator[Batch]:
        """Read a long message in slices of its records."""
        path = self._schema.records
        if path is None or not self._reader.is_sliceable:
            raise BeyondBounds
        rows = 0
        for part in (slices if self._codec == "json" else msgpack_slices)(line, path):
            if len(part) > 3 * READ_AT_ONCE:  # what is around the records, and one that is too long
                rejections.append(Rejection("too_long", position))
                continue
            yield (batch := self._short([part], np.array([position]), envelopes))
            rows += batch.seen
            if rows > self._most:
                raise BeyondBounds

    def _guess(self, line: bytes) -> None:
        """Take the shape of one message for the shape of those that follow; only speed depends on it."""
        with suppress(*BROKEN, Untyped):
            self._shape = shape_of(self._schema, self._parse(line))

    def _type(self) -> MessageType | None:
        """Return the type of the messages' present shape, if there is one."""
        shape = self._shape
        if shape is None:
            return None
        if shape not in self._types and len(self._types) < _MAX_SHAPES:
            with suppress(Untyped, ValueError):  # the second of names with characters that no type can have
                self._types[shape] = MessageType(self._schema, self._codec, shape)
        return self._types.get(shape)

    def _typed(self, lines: list[bytes], positions: NDArray[np.int64], envelopes: Sequence[Envelope]) -> Batch:
        """Read messages of the present shape into its type, and all others one by one."""
        kind = self._type()
        if kind is None:
            return self._careful(lines, positions.tolist(), envelopes)
        shallow = lines
        if self._codec == "json" and any(map(is_deep, lines)):
            shallow = [b"" if is_deep(line) else line for line in lines]  # a text without a value
        messages, fit = decoded(partial(map, kind.decode), shallow)
        try:
            cells = kind.cells(messages)
        except Untyped:  # some list is too short, or too long
            good = [i for i, message in enumerate(messages) if _has_cells(kind, message)]
            messages, fit = [messages[i] for i in good], fit[good]
            cells = kind.cells(messages)
        some = [envelopes[i] for i in fit.tolist()] if envelopes and len(fit) < len(lines) else envelopes
        found, odd = self._reader.from_cells(*cells, positions[fit], some)
        if len(fit) == len(lines) and not odd:
            return found
        again = np.setdiff1d(np.arange(len(lines)), np.delete(fit, odd)).tolist()
        others = [envelopes[i] for i in again] if envelopes else ()
        most = len(again) > len(lines) // 2
        return merge(found, self._careful([lines[i] for i in again], positions[again].tolist(), others, guesses=most))

    def _careful(
        self,
        lines: Sequence[bytes],
        positions: Sequence[int],
        envelopes: Sequence[Envelope],
        *,
        guesses: bool = False,
    ) -> Batch:
        """Read messages one by one; with `guesses` the first one's shape is taken for that of those that follow."""
        messages: list[Any] = []
        known: set[bytes] = set()  # short ones that are broken
        for line, position in zip(lines, positions, strict=True):
            if line not in known:
                try:
                    messages.append(self._message(line))
                    continue
                except BROKEN:
                    if len(line) <= SHORT:
                        known.add(line)
            messages.append(Rejection("broken_record", position))
        if guesses and not isinstance(messages[0], Rejection):
            with suppress(Untyped):
                self._shape = shape_of(self._schema, messages[0])
        return self._reader.read(messages, positions, envelopes)

    def _message(self, line: bytes) -> Any:
        """Read one message; of JSON, all elements of ``[source] records`` that are JSON."""
        try:
            return self._parse(line)
        except BROKEN:
            if self._codec != "json" or self._schema.records is None:
                raise
            return parse_elements(line, self._schema.records, self._most)


def _has_cells(kind: MessageType, message: Any) -> bool:
    try:
        kind.cells([message])
    except Untyped:
        return False
    return True
