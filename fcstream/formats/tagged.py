"""Messages of several formats in one stream: a first byte names the format of each.

Bodies that hold many records (JSON lines, arrays) are split into records before they are decoded, so a broken record
rejects itself alone. All records of a body have its position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from .batch import Batch, Rejection, concatenated, merge
from .bounds import READ_AT_ONCE, BeyondBounds
from .decoders import LineDecoder, Objects
from .envelopes import Envelope
from .json_parts import slices, split_list
from .parsing import pieces, raw_elements
from .paths import FieldPath
from .rejections import moved, tallied, tell_packed


def split_lines(body: bytes) -> Iterator[Sequence[Any]]:
    """Yield the lines of a body that are not blank."""
    for some in pieces(body):
        yield [line for line in some.split(b"\n") if line and not line.isspace()]


class SplitMessages:
    """Decoder of messages that hold many records.

    Parameters
    ----------
    inner : LineDecoder
        Decodes one record each.
    split : callable
        Yields the records of a message, some together; raises `ValueError` for one that cannot be split.
    """

    def __init__(self, inner: LineDecoder, split: Callable[[bytes], Iterator[Sequence[Any]]]) -> None:
        self._inner, self._split = inner, split
        within = getattr(inner, "decoder", inner)  # of what only looks at lengths, too
        self._objects = within if isinstance(within, Objects) else None

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        batches: list[Batch] = []
        broken: list[Rejection] = []
        records: list[bytes] = []
        owners: list[int] = []

        def read() -> None:
            given = [envelopes[i] for i in owners] if envelopes else ()
            batches.append(_moved(self._inner.decode(records, 0, given), first_position + np.array(owners, np.int64)))
            records.clear()
            owners.clear()

        for i, line in enumerate(lines):
            try:
                for some in self._split(line):
                    for start in range(0, len(some), _TOGETHER):
                        found = list(map(bytes, some[start : start + _TOGETHER]))
                        found = self._long_enough(found, first_position + i, broken)
                        records += found
                        owners += [i] * len(found)
                        if len(records) >= _TOGETHER:
                            read()
            except BeyondBounds:
                broken.append(Rejection("too_long", first_position + i))
            except (ValueError, RecursionError):
                broken.append(Rejection("broken_record", first_position + i))
        if records or not batches:
            read()
        batch = concatenated(batches)
        batch.rejections = tallied(batch.rejections + broken)
        return batch

    def _long_enough(self, records: list[bytes], position: int, rejections: list[Rejection]) -> list[bytes]:
        """Reject the records that are too short to be any, if they are many; equal ones are looked at once."""
        if self._objects is None or sum(map(len, records)) > 2 * self._objects.least * len(records):
            return records
        least = self._objects.least
        for short, count in Counter(record for record in records if len(record) < least).items():
            found = self._objects.refusal(short)
            rejections.append(Rejection(found.reason, position, found.field, count))
        return [record for record in records if len(record) >= least]


_TOGETHER = 2**13
"""Records of messages that are decoded together, so that what is wrong in many of them takes little memory."""
_JSON_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


def split_json_array(body: bytes) -> Iterator[Sequence[Any]]:
    """Yield the elements of an array in JSON, also where some are no JSON."""
    for some in [body] if len(body) <= READ_AT_ONCE else slices(body, FieldPath(())):
        try:
            yield _JSON_ARRAY.decode(some)
        except (msgspec.DecodeError, RecursionError):
            yield split_list(some)


def split_msgpack_array(body: bytes) -> Iterator[Sequence[Any]]:
    """Yield the elements of an array in MessagePack."""
    yield raw_elements(body)


class TaggedMessages:
    """Decoder of messages that begin with a byte which names their decoder.

    Parameters
    ----------
    decoders : mapping of int to LineDecoder
        By that byte. A message with another one is rejected as ``broken_record``.
    """

    def __init__(self, decoders: Mapping[int, LineDecoder]) -> None:
        self._decoders = decoders

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        by_tag: dict[int, list[int]] = {}
        for i, line in enumerate(lines):
            by_tag.setdefault(line[0] if line else -1, []).append(i)
        whole = next(iter(self._decoders.values())).decode([], first_position)
        for tag, rows in by_tag.items():
            decoder = self._decoders.get(tag)
            if decoder is None:
                whole.rejections += [Rejection("broken_record", first_position + i) for i in rows]
                continue
            bodies = [lines[i][1:] for i in rows]
            part = decoder.decode(bodies, 0, [envelopes[i] for i in rows] if envelopes else ())
            part.rejections = tell_packed(part.rejections, bodies)
            whole = merge(whole, _moved(part, np.array(rows, np.int64) + first_position))
        return whole


def _moved(batch: Batch, positions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Batch:
    """Give records that were numbered from 0 the positions of their messages."""
    batch.positions = positions[batch.positions]
    batch.rejections = moved(batch.rejections, positions)
    return batch
