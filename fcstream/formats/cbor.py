"""CBOR: messages of one data item each, by RFC 8949."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cbor2

from .batch import Batch, Rejection, Schema
from .bounds import CBOR_TAGS
from .decoders import LineDecoder
from .envelopes import Envelope
from .fields import RecordReader

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

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Read messages; one that is not exactly one data item is rejected."""
        read, found = cbor2.loads, list[Any]()
        for line in lines:
            try:
                message, end = read(_PAIR + line + _TAIL, strict_hashable_types=True, semantic_decoders=CBOR_TAGS)
                whole = type(end) is bytes and end == _END
            except Exception:  # what tags stand for is made by many libraries, whose errors are of many types
                whole = False
            found.append(message if whole else Rejection("broken_record", first_position + len(found)))
        return self._fields.read(found, range(first_position, first_position + len(found)), envelopes)


def messages(schema: Schema) -> LineDecoder:
    """Make the decoder of ``format = "cbor"``."""
    return CborMessages(schema)
