"""Messages of several formats in one stream: a first byte names the format of each.

Bodies that hold many records (JSON lines, arrays) are split into records before they are decoded, so a broken record
rejects itself alone. All records of a body have its position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np

from .batch import Batch, Rejection, concatenated, merge
from .decoders import LineDecoder, Objects
from .envelopes import Envelope
from .json_parts import split_list
from .rejections import moved, tallied, tell_packed


def split_lines(body: bytes) -> list[bytes]:
    """Return the lines of a body that are not blank."""
    return [line for line in body.split(b"\n") if line and not line.isspace()]


class SplitMessages:
    """Decoder of messages that hold many records.

    Parameters
    ----------
    inner : LineDecoder
        Decodes one record each.
    split : callable
        Returns the records of a message; raises `ValueError` for one that cannot be split.
    """

    def __init__(self, inner: LineDecoder, split: Callable[[bytes], list[bytes]]) -> None:
        self._inner, self._split = inner, split
        within = getattr(inner, "decoder", inner)  # of what only looks at lengths, too
        self._objects = within if isinstance(within, Objects) else None

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        found: list[list[bytes]] = []
        broken: list[Rejection] = []
        for i, line in enumerate(lines):
            try:
                found.append(self._long_enough(self._split(line), len(line), first_position + i, broken))
            except (ValueError, RecursionError):
                found.append([])
                broken.append(Rejection("broken_record", first_position + i))
        counts = list(map(len, found))
        origin = np.repeat(np.arange(first_position, first_position + len(lines)), counts)
        inherited = [each for each, count in zip(envelopes, counts, strict=False) for _ in range(count)]
        records = list(chain.from_iterable(found))
        some = [slice(start, start + _TOGETHER) for start in range(0, max(1, len(records)), _TOGETHER)]
        batch = concatenated(
            [_moved(self._inner.decode(records[each], 0, inherited[each]), origin[each]) for each in some]
        )
        batch.rejections = tallied(batch.rejections + broken)
        return batch

    def _long_enough(self, records: list[bytes], size: int, position: int, rejections: list[Rejection]) -> list[bytes]:
        """Reject the records that are too short to be any, if they are many; equal ones are looked at once."""
        if self._objects is None or size > 2 * self._objects.least * len(records):
            return records
        least = self._objects.least
        for short, count in Counter(record for record in records if len(record) < least).items():
            found = self._objects.refusal(short)
            rejections.append(Rejection(found.reason, position, found.field, count))
        return [record for record in records if len(record) >= least]


_TOGETHER = 2**13
"""Records of messages that are decoded together, so that what is wrong in many of them takes little memory."""
_JSON_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_MSGPACK_ARRAY = msgspec.msgpack.Decoder(list[msgspec.Raw])


def split_json_array(body: bytes) -> list[bytes]:
    """Return the elements of an array in JSON, also where some are no JSON."""
    try:
        return list(map(bytes, _JSON_ARRAY.decode(body)))
    except (msgspec.DecodeError, RecursionError):
        return split_list(body)


def split_msgpack_array(body: bytes) -> list[bytes]:
    """Return the elements of an array in MessagePack."""
    return list(map(bytes, _MSGPACK_ARRAY.decode(body)))


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
