"""Schemas that messages name by an id, and how the messages name them.

Confluent's serializers put a byte 0 and a number of four bytes before the body, or, newer ones, a byte 1 and a GUID of
16 bytes into the header ``__value_schema_id``. Either may stand in either place; a header goes before.

Source
------
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format, and the
package ``confluent-kafka``, whose `SchemaId` and `header_schema_id_serializer` write and read them.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from .envelopes import Envelope

HEADER = "__value_schema_id"
_SIZES = {0: 5, 1: 17}
"""Bytes of a mark by its first byte: a number, or a GUID."""


class FoundSchema(NamedTuple):
    """A schema of a registry.

    Attributes
    ----------
    text : str
    kind : str
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    references : tuple of str
        The schemas that it refers to, each after those that it refers to itself.
    """

    text: str
    kind: str
    references: tuple[str, ...] = ()


class SchemaLookup(Protocol):
    """Finds schemas by ``ids/NUMBER`` or ``guids/UUID``; None for those that nobody knows."""

    def find(self, names: Collection[str]) -> Mapping[str, FoundSchema | None]: ...


def schema_name(mark: bytes) -> str | None:
    """Return the name under which a registry has the schema that these bytes mean, None if they mean none."""
    if len(mark) == 5 and mark[0] == 0 and mark[1] < 128:  # ids are numbers of 31 bits
        return f"ids/{int.from_bytes(mark[1:])}"
    if len(mark) == 17 and mark[0] == 1:
        return f"guids/{uuid.UUID(bytes=mark[1:])}"
    return None


def marks(bodies: Sequence[bytes], envelopes: Sequence[Envelope]) -> list[tuple[bytes, bytes, bool]]:
    """Return of each message the bytes that name its schema, what follows them, and whether they are in a header.

    Without a header what follows are the remaining bytes of the body. What is no mark gives bytes that name nothing.
    """
    found = []
    for i, body in enumerate(bodies):
        header = envelopes[i].headers.get(HEADER) if envelopes else None
        named = body if header is None else header.encode("utf-8", "replace") if isinstance(header, str) else header
        size = _SIZES.get(named[0], 0) if named else 0
        found.append((named[:size], named[size:], header is not None))
    return found
