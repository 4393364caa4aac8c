"""Avro: messages of one record each, whose schema is in a registry or a file.

With a registry each message names its schema (see `fcstream.formats.schemas`); each schema is fetched once. Without one
a file holds the schema that all messages were written with. Messages are resolved to a reader's schema with only the
fields that the configuration reads, where that is faster and safe.

Values with a logical type are read as the numbers and texts they are stored as, except decimals, and times in
another unit than the configuration's, which are converted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

from ..errors import ConfigError
from .batch import Batch, Rejection, Schema
from .bounds import (
    NUMBER_BYTES,
    OBJECT_BYTES,
    SCHEMA_DEPTH,
    SCHEMA_TYPES,
    VALUES_BESIDE,
    VALUES_PER_BYTE,
    BeyondBounds,
    decimal_number,
)
from .decoders import LineDecoder
from .envelopes import Envelope
from .fields import RecordReader, top_fields
from .paths import FieldPath
from .schemas import FoundSchema, SchemaLookup, marks, schema_name

_MAX_SCHEMAS = 2**10
"""Schemas that are kept; then all are forgotten, and fetched again."""
_WORTH_SKIPPING = 6
"""From how many values on that nobody reads skipping them is faster than reading them."""
_BOUNDED = "fcstream-decimal"
_STORED_UNITS = {"ms": "millis", "us": "micros", "ns": "nanos"}


class WriterSchema(NamedTuple):
    """What a message was written with, and the reader's schema that it is resolved to, if it is.

    Attributes
    ----------
    writer, reader : parsed schemas of fastavro
    longest : int
        Most bytes of a message.
    """

    writer: Any
    reader: Any
    longest: int


class AvroMessages:
    """Decoder of messages of one Avro record each.

    Parameters
    ----------
    schema : Schema
    schemas : SchemaLookup or str
        Finds the schema that a message names; or the schema of all messages as JSON text, which then begin with the
        record.

    Raises
    ------
    ConfigError
        The text is no Avro schema.
    """

    def __init__(self, schema: Schema, schemas: SchemaLookup | str) -> None:
        self._fields = RecordReader(schema)
        self._tops = top_fields(schema, (schema.time, *schema.features, *schema.labels))
        if schema.records is not None:
            self._tops |= {str(step) for step in schema.records.steps[:1]}
        self._reads_whole = FieldPath(()) in schema.paths.values()
        self._time = top_fields(schema, [schema.time])
        self._unit = _STORED_UNITS.get(schema.time_unit, "")
        self._lookup = None if isinstance(schemas, str) else schemas
        self._known: dict[bytes, WriterSchema] = {}
        if isinstance(schemas, str):
            try:
                self._known[b""] = self._resolved(schemas, ())
            except Exception as error:  # fastavro raises errors of many types
                raise ConfigError(
                    f"must be a file with an Avro schema that does not hold itself ({type(error).__name__})",
                    "source.schema_file",
                    remedy="check it",
                ) from None

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Read messages; one whose schema nobody knows is rejected as ``unknown_schema``.

        Raises
        ------
        SchemasUnreachable
        """
        named = [(b"", line, False) for line in lines] if self._lookup is None else marks(lines, envelopes)
        schemas = self._schemas({mark for mark, _, _ in named})
        read = fastavro.schemaless_reader
        messages: list[Any] = []
        for line, (mark, rest, in_header) in zip(lines, named, strict=True):
            found = schemas[mark]
            if isinstance(found, str):
                messages.append(Rejection(found, first_position + len(messages)))
                continue
            size = len(line) if in_header else len(rest)
            if size > found.longest:
                messages.append(Rejection("too_long", first_position + len(messages)))
                continue
            file = BytesIO(line if in_header else rest)
            try:
                message = read(file, found.writer, found.reader)
                whole = file.tell() == size and not (in_header and rest)
            except Exception:  # for bytes that are no record fastavro raises errors of many types
                whole = False
            messages.append(message if whole else Rejection("broken_record", first_position + len(messages)))
        return self._fields.read(messages, range(first_position, first_position + len(messages)), envelopes)

    def _schemas(self, found: set[bytes]) -> dict[bytes, WriterSchema | str]:
        """Return the schema of each mark, or why its messages cannot be read."""
        answers: dict[bytes, WriterSchema | str] = {}
        wanted: dict[bytes, str] = {}
        for mark in found:
            if mark in self._known:
                answers[mark] = self._known[mark]
            elif name := schema_name(mark):
                wanted[mark] = name
            else:
                answers[mark] = "broken_record"
        if wanted and self._lookup is not None:
            schemas = self._lookup.find(list(wanted.values()))
            if len(self._known) + len(wanted) > _MAX_SCHEMAS:
                self._known.clear()
            for mark, name in wanted.items():
                made = self._made(schemas[name])
                answers[mark] = made or "unknown_schema"
                if made is not None:
                    self._known[mark] = made
        return answers

    def _made(self, found: FoundSchema | None) -> WriterSchema | None:
        if found is None or found.kind != "AVRO":
            return None
        try:
            return self._resolved(found.text, found.references)
        except Exception:  # fastavro raises errors of many types
            return None

    def _resolved(self, text: str, references: Sequence[str]) -> WriterSchema:
        named: dict[str, Any] = {}
        for each in references:
            fastavro.parse_schema(self._stored(json.loads(each), False), named)
        writer = fastavro.parse_schema(self._stored(json.loads(text), False), named)
        check_types(writer, named)
        size = _memory(writer, named)
        longest = int((OBJECT_BYTES - size.least) / max(1, size.each))
        return WriterSchema(writer, None if self._reads_whole else _only(writer, named, self._tops), longest)

    def _stored(self, schema: Any, is_time: bool) -> Any:
        """Take the logical types from a schema that would make other objects of stored numbers and texts."""
        if isinstance(schema, list):
            return [self._stored(each, is_time) for each in schema]
        if not isinstance(schema, dict):
            return schema
        logical = str(schema.get("logicalType", ""))
        kept = dict(schema)
        is_moment = is_time and "timestamp-" in logical and not logical.endswith(f"-{self._unit}")
        if logical == "decimal":
            kept["logicalType"] = _BOUNDED  # the library's own would turn any number of digits from base 2 into base 10
        elif not is_moment:
            kept.pop("logicalType", None)
        for key in ("type", "items", "values"):
            if isinstance(kept.get(key), (dict, list)):
                kept[key] = self._stored(kept[key], is_time)
        if isinstance(kept.get("fields"), list):
            kept["fields"] = [
                {**each, "type": self._stored(each["type"], is_time or each.get("name") in self._time)}
                for each in kept["fields"]
            ]
        return kept


def messages(schema: Schema, *, registry: SchemaLookup | None = None, schema_file: str | None = None) -> LineDecoder:
    """Make the decoder of ``format = "avro"``.

    Raises
    ------
    ConfigError
    """
    if (registry is None) == (schema_file is None):
        raise ConfigError(
            "or else `source.schema_file` must be given with format = 'avro': where the schemas are", "source.registry"
        )
    if registry is not None:
        return AvroMessages(schema, registry)
    try:
        return AvroMessages(schema, Path(schema_file or "").read_text())
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no text"
        raise ConfigError(f"cannot be read: {why}", "source.schema_file") from None


def _only(writer: Any, named: Any, tops: Container[str]) -> Any:
    """Return a reader's schema with some of the fields of a record, None if all are to be read.

    fastavro skips without noticing the end of a message. So lists and maps, whose length a message states, are never
    skipped, which could take for ever; nor is the last field, which tells whether a message is whole.
    """
    if not isinstance(writer, dict) or writer.get("type") != "record" or not writer["fields"]:
        return None
    last = writer["fields"][-1]["name"]
    kept = [each for each in writer["fields"] if each["name"] in tops or each["name"] == last]
    skipped = [each["type"] for each in writer["fields"] if each not in kept]
    if sum(_values(each, named) for each in skipped) < _WORTH_SKIPPING:
        return None
    fields: list[Any] = []
    defined = {writer["name"]}
    for each in writer["fields"]:
        if each in kept or _has_length(each["type"], named):
            fields.append({**each, "type": _inlined(each["type"], named, defined)})
    return fastavro.parse_schema({"type": "record", "name": writer["name"], "fields": fields})


def _values(schema: Any, named: Any) -> int:
    """Return how many values a type holds, each of several types as one, and nothing for what is not skipped."""
    if _has_length(schema, named):
        return 0
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    return sum(_values(each["type"], named) for each in schema["fields"]) if "fields" in schema else 1


def _has_length(schema: Any, named: Any) -> bool:
    """Return whether a list or a map is in a type, which does not hold itself."""
    if isinstance(schema, list):
        return any(_has_length(each, named) for each in schema)
    if isinstance(schema, str):
        return schema in named and _has_length(named[schema], named)
    return schema["type"] in ("array", "map") or any(
        _has_length(each["type"], named) for each in schema.get("fields", ())
    )


def _inlined(schema: Any, named: Any, defined: set[str]) -> Any:
    """Return a type with the definition of each named type where it is first used."""
    if isinstance(schema, list):
        return [_inlined(each, named, defined) for each in schema]
    if isinstance(schema, str):
        if schema in named and schema not in defined:
            return _inlined(named[schema], named, defined)
        return schema
    if "name" in schema:
        defined.add(schema["name"])
    kept = {key: value for key, value in schema.items() if not key.startswith("__")}
    for key in ("type", "items", "values"):
        if isinstance(kept.get(key), (dict, list)) or (key in kept and kept[key] in named):
            kept[key] = _inlined(kept[key], named, defined)
    if "fields" in kept:
        kept["fields"] = [{**each, "type": _inlined(each["type"], named, defined)} for each in kept["fields"]]
    return kept


class _TypeCost(NamedTuple):
    """How many types a type is with all that it refers to, and the most values that one value of it holds besides
    `VALUES_PER_BYTE` for each of its bytes."""

    types: int
    beside: int


def check_types(schema: Any, named: Any) -> None:
    """Refuse types that are more than `SCHEMA_TYPES` with all that they refer to, or of which a message could hold more
    values than `VALUES_PER_BYTE` and `VALUES_BESIDE` admit; and types that hold themselves, since a message of many
    levels would end the process in fastavro's compiled reader.

    Raises
    ------
    BeyondBounds
    """
    found = _held(schema, named, {}, 0)
    if found.types > SCHEMA_TYPES or found.beside > VALUES_BESIDE:
        raise BeyondBounds


def _held(schema: Any, named: Any, known: dict[str, _TypeCost | None], depth: int) -> _TypeCost:
    """Find what a type holds; `known` has what was found of named types, None for those around this one."""
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    name = schema.get("name") if isinstance(schema, dict) else None
    found = known.get(name) if name is not None else None
    if depth > SCHEMA_DEPTH or (found is None and name in known):
        raise BeyondBounds
    if found is None:
        if name is not None:
            known[name] = None
        found = _held_by(schema, lambda part: _held(part, named, known, depth + 1))
        if name is not None:
            known[name] = found
    return found


def _held_by(schema: Any, held: Callable[[Any], _TypeCost]) -> _TypeCost:
    """Find what a type holds that is no name of another one."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict):  # a type in place of the name of one
        return held(kind)
    if isinstance(kind, list):  # the number of the type takes a byte
        parts = [held(each) for each in kind]
        return _TypeCost(sum(each.types for each in parts), max(each.beside for each in parts) - VALUES_PER_BYTE)
    if kind in ("record", "error"):
        parts = [held(each["type"]) for each in schema["fields"]]
        return _TypeCost(1 + sum(each.types for each in parts), 1 + sum(each.beside for each in parts))
    if kind in ("array", "map"):  # how long they are takes a byte, and so does how long a key is
        part = held(schema["items" if kind == "array" else "values"])
        if part.beside > (0 if kind == "array" else VALUES_PER_BYTE):
            raise BeyondBounds
        return _TypeCost(1 + part.types, 1 - VALUES_PER_BYTE)
    size = 0 if kind == "null" else schema["size"] if kind == "fixed" else 1
    return _TypeCost(1, 1 - size * VALUES_PER_BYTE)


class _Memory(NamedTuple):
    """What the values of a type take in memory: so many bytes if they are written with so few, and so many for each
    further one."""

    least: float
    written: float
    each: float


def _memory(schema: Any, named: Any) -> _Memory:
    """Find what a type takes that `check_types` admits."""
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict):
        return _memory(kind, named)
    if isinstance(kind, list):
        parts = [_memory(each, named) for each in kind]
        written = 1 + min(each.written for each in parts)
        return _Memory(max(each.least for each in parts), written, max(each.each for each in parts))
    if kind in ("record", "error"):
        parts = [_memory(each["type"], named) for each in schema["fields"]]
        least = 168 + 16 * len(parts) + sum(each.least for each in parts)
        return _Memory(least, sum(each.written for each in parts), max([0.0, *(each.each for each in parts)]))
    if kind in ("array", "map"):
        part, key = _memory(schema["items" if kind == "array" else "values"], named), 144 if kind == "map" else 8
        return _Memory(88, 1, max(part.each, (part.least + key) / max(1, part.written + (kind == "map"))))
    if kind == "fixed":
        return _Memory(48 + schema["size"], schema["size"], 0)
    if kind in ("bytes", "string"):
        return _Memory(56, 1, 4)
    size = {"null": 0, "float": 4, "double": 8}.get(kind, 1)
    return _Memory(0 if kind in ("null", "boolean", "enum") else 32, size, 0)


def _bounded_decimal(data: bytes, writer: Any, _reader: Any = None) -> Decimal:
    """Return a number that is written as its digits in base 256, which Avro's type scales.

    Raises
    ------
    BeyondBounds
    """
    if len(data) > NUMBER_BYTES:
        raise BeyondBounds
    return decimal_number(-writer.get("scale", 0), int.from_bytes(data, signed=True))


fastavro.read.LOGICAL_READERS |= {f"{kind}-{_BOUNDED}": _bounded_decimal for kind in ("bytes", "fixed")}
