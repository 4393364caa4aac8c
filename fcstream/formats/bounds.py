"""Bounds on what one message can make a program do, all in one place; decoders look at them before they call a library.

What a message costs must be in proportion to its length, for whoever may send one could stop the stream otherwise. So a
number has only so many digits, a tree only so many levels, a line only so many parts, and a type of Avro only so many
values for each of its bytes. A message beyond a bound is rejected as `fcstream.formats.batch.MEANINGS` says.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

LONGEST_MESSAGE = 2**24
"""Most bytes per message. A longer message of one record is rejected unread; of many rows only those that fit are
read."""
READ_AT_ONCE = 2**18
"""Most bytes that a library makes objects of at once, which may take 130 bytes for each of them: of a message the
record that it is, or a part of its records and what is around them. A record of JSON, MessagePack or CBOR has no more.
"""
OBJECT_BYTES = 48 * 10**6
"""Most bytes of memory that a message of protobuf, OTLP or Avro may take by what its type says, which is read whole."""
LIST_ELEMENTS = 2**20
"""Most elements of a list in JSON, with the fields around it; more are not looked for."""
PACKED_ELEMENTS = 2**18
"""Most elements of a list of records in MessagePack, CBOR or protobuf."""
MAP_FIELDS = 2**12
"""Most fields of a map in MessagePack that lies around a long list of records."""
NUMBER_BYTES = 128
"""Most bytes of a big number, or of the digits of a decimal one; a double is below 2**1024. Digits are turned from base
2 into base 10, which takes time in the square of their number."""
EXPONENT = 2048
"""Most that a decimal or big number's exponent is away from 0: no double is smaller or larger."""
JSON_DEPTH = 500
"""Levels of a JSON text; a deeper one is rejected. The parsers stop soon after a thousand, each a little elsewhere, and
which of them reads a message may depend on earlier ones."""
PARTS_DEPTH = 32
"""Levels of a MessagePack message in which what cannot be read is looked for part by part."""
MIXED_KEYS_BYTES = 2**12
"""Most bytes of maps in MessagePack whose keys may be of any type. Keys of longer ones are texts or whole numbers, for
lists as keys could be chosen so that a map of them takes hours."""
PACK_BYTES = 2**15
"""Most bytes of a SenML pack in CBOR: its maps have numbers as keys, which could be chosen likewise."""
SENML_BYTES = 2**17
"""Most bytes of a SenML pack in JSON, which is read whole, since what stands before an entry decides what it means."""
LINE_CELLS = 1000
"""Most tags and fields of a line of InfluxDB's protocol; its parser compares each tag with all others."""
VALUES_PER_BYTE = 16
"""Most values of an Avro type that a message holds for each of its bytes: a record of records of no bytes is many
values for nothing. A type that exceeds it is refused when its schema is read."""
VALUES_BESIDE = 1000
"""Most values of an Avro message beside those that `VALUES_PER_BYTE` admits."""
SCHEMA_DEPTH, SCHEMA_TYPES = 64, 10_000
"""Most types of an Avro schema inside of each other, and in all: one that is named counts wherever it is used."""
ARROW_BATCHES = 2**12
"""How many batches of one Arrow message are read at most: even empty batches take memory."""
ARROW_FIELDS, ARROW_TEXTS = 2**12, 2**20
"""Most columns of an Arrow message, inner ones too, and most bytes of their names and of other metadata: the same bytes
may be many of them."""


def max_rows(dimension: int) -> int:
    """Return how many rows of a message are read at most, since each time and each feature takes 8 bytes."""
    return LONGEST_MESSAGE // (8 * (1 + dimension))


class BeyondBounds(ValueError):
    """A part of a message is beyond a bound; internal to decoding."""


def big_number(data: Any, sign: int = 1) -> int:
    """Return the number that these bytes are in base 256; with `sign` -1 what CBOR means by a negative one.

    Raises
    ------
    BeyondBounds
    """
    if type(data) is not bytes or len(data) > NUMBER_BYTES:
        raise BeyondBounds
    number = int.from_bytes(data)
    return number if sign > 0 else -1 - number


def decimal_number(exponent: Any, digits: Any, base: int = 10) -> Decimal:
    """Return `digits` times a power of `base`.

    Raises
    ------
    BeyondBounds
    """
    if type(exponent) is not int or type(digits) is not int:
        raise BeyondBounds
    if abs(exponent) > EXPONENT or digits.bit_length() > 8 * NUMBER_BYTES:
        raise BeyondBounds
    return Decimal(digits).scaleb(exponent) if base == 10 else Decimal(digits) * Decimal(base) ** exponent


class CborTags(dict[int, Callable[[Any, bool], Any]]):
    """What cbor2 makes of the tags of a message: of those that telemetry needs it makes numbers, times (0 and 1, by
    itself) and the message as it is (55799). Any other one rejects the message, since what it stands for may be made by
    a library that nobody has looked at.
    """

    def __missing__(self, tag: int) -> Callable[[Any, bool], Any]:
        if tag in (0, 1, 55799):
            raise KeyError(tag)
        return _refused


def _refused(_value: Any, _immutable: bool) -> Any:
    raise BeyondBounds


def _pair(value: Any, base: int) -> Decimal:
    if type(value) not in (list, tuple) or len(value) != 2:
        raise BeyondBounds
    return decimal_number(value[0], value[1], base)


CBOR_TAGS = CborTags(
    {
        2: lambda value, _: big_number(value),
        3: lambda value, _: big_number(value, -1),
        4: lambda value, _: _pair(value, 10),
        5: lambda value, _: _pair(value, 2),
    }
)
"""To be given to cbor2 as ``semantic_decoders``."""


def has_many_cells(line: str) -> bool:
    """Return whether a line of InfluxDB's protocol may have more than `LINE_CELLS` tags and fields."""
    return len(line) > 3 * LINE_CELLS and min(line.count("="), line.count(",") + 1) > LINE_CELLS
