"""Protobuf: messages of one type, which a file of descriptors describes.

Fields are named as in the ``.proto`` file. Enums are read as the names of their values, ``Timestamp`` as a time,
``Duration`` as seconds, wrappers and ``Struct`` as what they hold, bytes as bytes. A field that does not tell whether
it was set (proto3 without ``optional``) reads as 0 or empty where it was not; others are missing then.

Confluent's serializer puts the schema's id before the message (or into a header, see `fcstream.formats.schemas`), and
then which message of its file it is. The id is not looked up, since a file describes the type; the other is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from ..errors import ConfigError
from .batch import Batch, Rejection, Schema, concatenated
from .bounds import OBJECT_BYTES, BeyondBounds
from .decoders import LineDecoder
from .envelopes import Envelope
from .fields import RecordReader, top_fields
from .rejections import tallied
from .schemas import marks, schema_name
from .wire import WireType, check_wire, wire_slices, wire_type

_WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDY = "make it with `protoc --include_imports --descriptor_set_out=FILE`"
_SHOWN = 5  # names in an error
_MAX_INDEXES = 32
_OBJECT, _CELL = 168, 48  # bytes of memory of a plain object, and of each of its fields

Reader = Callable[[Any], Any]


class ProtobufType(NamedTuple):
    """A type of messages.

    Attributes
    ----------
    descriptor : Descriptor
    indexes : tuple of int
        Which message of its file it is, and inside of others which one there.
    """

    descriptor: Any
    indexes: tuple[int, ...]


class ProtobufMessages:
    """Decoder of messages of one type.

    Parameters
    ----------
    schema : Schema
    kind : ProtobufType
    is_framed : bool
        Whether Confluent's bytes stand before each message, or in a header.

    Raises
    ------
    ConfigError
        The type lacks a field that the configuration names.
    """

    def __init__(self, schema: Schema, kind: ProtobufType, is_framed: bool) -> None:
        self._reader = RecordReader(schema)
        self._parse = message_factory.GetMessageClass(kind.descriptor).FromString
        self._indexes = kind.indexes if is_framed else None
        self._holds_rows = schema.records is not None
        tops = top_fields(schema, (schema.time, *schema.features, *schema.labels))
        if schema.records is not None:
            tops |= {str(step) for step in schema.records.steps[:1]}
        fields = kind.descriptor.fields_by_name
        absent = sorted(top for top in tops if top not in fields)
        if absent and not self._holds_rows:
            names = ", ".join(list(fields)[:_SHOWN]) + (", ..." if len(fields) > _SHOWN else "")
            raise ConfigError(
                f"must have the field {absent[0]!r}: {kind.descriptor.full_name} has {names}", "source.message"
            )
        self._columns = {top: _column(fields[top]) for top in sorted(tops) if top in fields}
        self._wire = wire_type(kind.descriptor, lambda inner: _OBJECT + _CELL * len(inner.fields))
        self._longest = 2 * OBJECT_BYTES // max(_OBJECT, *(_costs(self._wire, set())))
        steps = schema.records.steps if schema.records is not None and self._reader.is_sliceable else ()
        field = fields[str(steps[0])] if len(steps) == 1 and steps[0] in fields else None
        self._number = 0
        if field is not None and field.is_repeated and field.message_type is not None:
            self._number = 0 if field.message_type.GetOptions().map_entry else field.number

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Read messages. An empty one is rejected, although as a message it holds zeros."""
        bodies = lines if self._indexes is None else list(self._unframed(lines, envelopes))
        long = {i for i, body in enumerate(bodies) if isinstance(body, bytes) and len(body) > self._longest}
        if not long:
            return self._read(bodies, first_position, envelopes)
        given, bodies = bodies, [b"" if i in long else body for i, body in enumerate(bodies)]
        parts, rejections = [self._read(bodies, first_position, envelopes)], list[Rejection]()
        parts[0].rejections = [each for each in parts[0].rejections if each.position - first_position not in long]
        for i in sorted(long):
            whole = given[i]
            assert isinstance(whole, bytes)
            try:
                for part in wire_slices(whole, self._number) if self._number else [whole]:
                    check_wire(part, self._wire)
                    parts.append(self._read([part], first_position + i, envelopes[i : i + 1]))
            except BeyondBounds:
                rejections.append(Rejection("too_long", first_position + i))
            except ValueError:
                rejections.append(Rejection("broken_record", first_position + i))
        batch = concatenated(parts)
        return batch.pick(np.argsort(batch.positions, kind="stable"), tallied(batch.rejections + rejections))

    def _read(self, bodies: Sequence[bytes | str], first_position: int, envelopes: Sequence[Envelope]) -> Batch:
        found, owners, rejections = self._parsed(bodies, first_position)
        columns = {top: column(found) for top, column in self._columns.items()}
        if not self._holds_rows:
            return self._reader.read_columns(columns, owners, first_position, envelopes, rejections)
        rows: list[Any] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        given = [envelopes[i] for i in owners] if envelopes else ()
        batch = self._reader.read(rows, [first_position + i for i in owners], given)
        batch.rejections = tallied(batch.rejections + rejections)
        return batch

    def _parsed(
        self, bodies: Sequence[bytes | str], first_position: int
    ) -> tuple[list[Any], Sequence[int], list[Rejection]]:
        """Return messages, the number of each, and rejections; texts are why there is no message."""
        if set(map(type, bodies)) == {bytes} and all(bodies):
            with suppress(DecodeError):
                return list(map(self._parse, bodies)), range(len(bodies)), []
        found: list[Any] = []
        owners: list[int] = []
        rejections: list[Rejection] = []
        for i, body in enumerate(bodies):
            try:
                if not isinstance(body, bytes) or not body:
                    raise DecodeError
                found.append(self._parse(body))
                owners.append(i)
            except DecodeError:
                reason = body if isinstance(body, str) else "broken_record"
                rejections.append(Rejection(reason, first_position + i))
        return found, owners, rejections

    def _unframed(self, lines: Sequence[bytes], envelopes: Sequence[Envelope]) -> Iterator[bytes | str]:
        """Yield what stands behind Confluent's bytes, or why a message is rejected."""
        for body, (mark, rest, in_header) in zip(lines, marks(lines, envelopes), strict=True):
            found = _read_indexes(rest)
            if schema_name(mark) is None or found is None or (in_header and found[1]):
                yield "broken_record"
            elif found[0] != self._indexes:
                yield "unknown_schema"
            else:
                yield body if in_header else found[1]


def _costs(kind: WireType, known: set[int]) -> Iterator[int]:
    """Yield the costs of a type and of all types in it."""
    known.add(id(kind))
    yield kind.cost
    for each in kind.fields.values():
        if isinstance(each, WireType) and id(each) not in known:
            yield from _costs(each, known)


def messages(
    schema: Schema, *, schema_file: str, message: str, framing: Literal["confluent"] | None = None
) -> LineDecoder:
    """Make the decoder of ``format = "protobuf"``.

    Raises
    ------
    ConfigError
    """
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(Path(schema_file).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", "source.schema_file") from None
    except DecodeError:
        raise ConfigError("must be a set of descriptors", "source.schema_file", remedy=_REMEDY) from None
    return ProtobufMessages(schema, message_type(found, message), framing == "confluent")


def message_type(found: Any, name: str) -> ProtobufType:
    """Find a type in a set of descriptors.

    Raises
    ------
    ConfigError
    """
    pool = descriptor_pool.DescriptorPool()
    given = {file.name for file in found.file}
    try:
        for module in _WELL_KNOWN:
            if module.DESCRIPTOR.name not in given:
                pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        for file in found.file:
            pool.Add(file)
    except TypeError:
        raise ConfigError("must hold all that its files import", "source.schema_file", remedy=_REMEDY) from None
    places = {path: indexes for file in found.file for path, indexes in _places(file.message_type, file.package, ())}
    if name not in places:
        names = ", ".join(list(places)[:_SHOWN]) + (", ..." if len(places) > _SHOWN else "")
        raise ConfigError(f"must be a message of `source.schema_file`, got {name!r}: it has {names}", "source.message")
    return ProtobufType(pool.FindMessageTypeByName(name), places[name])


def _places(kinds: Any, above: str, indexes: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the full names of messages, and where each stands in its file."""
    for i, kind in enumerate(kinds):
        name = f"{above}.{kind.name}".removeprefix(".")
        yield name, (*indexes, i)
        yield from _places(kind.nested_type, name, (*indexes, i))


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """Read which message of its file follows, as a list of zigzag varints; a single 0 stands for the first one.

    Returns
    -------
    tuple of int, bytes
        What was read, and what follows; None if it cannot be read.
    """
    found: list[int] = []
    at = value = shift = 0
    while at < len(data) and shift < 35 and len(found) <= _MAX_INDEXES:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            found.append((value >> 1) ^ -(value & 1))
            value = shift = 0
            if len(found) == 1 + found[0]:
                return tuple(found[1:]) or (0,), data[at:]
    return None


def _column(field: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """Return what reads one field of many messages."""
    get, name = attrgetter(field.name), field.name
    is_number = field.message_type is None and field.enum_type is None and not field.is_repeated
    if is_number and not field.has_presence:
        return lambda found: list(map(get, found))
    if is_number:  # only a field that reads as nothing may not have been set
        return lambda found: [get(each) or (get(each) if each.HasField(name) else None) for each in found]
    read = _reader(field)
    return lambda found: list(map(read, found))


def _reader(field: Any) -> Reader:
    """Return what reads one field of a message as a plain object, None where it is missing."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = _plain(field.message_type.fields_by_name["value"])
        return lambda message: {key: value(each) for key, each in getattr(message, name).items()}
    plain = _plain(field)
    if field.is_repeated:
        return lambda message: list(map(plain, getattr(message, name)))
    if field.has_presence:
        return lambda message: plain(getattr(message, name)) if message.HasField(name) else None
    return lambda message: plain(getattr(message, name))


def _plain(field: Any) -> Reader:
    """Return what makes a plain object of a value of a field."""
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    if field.message_type is None:
        return lambda value: value
    kind = field.message_type
    if kind.full_name in _PLAIN:
        return _PLAIN[kind.full_name]
    readers: dict[str, Reader] = {}

    def read(message: Any) -> dict[str, Any]:
        if not readers:  # a type may hold itself
            readers.update({inner.name: _reader(inner) for inner in kind.fields})
        return {name: each(message) for name, each in readers.items()}

    return read


def _moment(value: Any) -> Any:
    try:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError:
        return value.seconds * 10**12  # too far away in every unit


def _of_value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _of_struct(value.struct_value)
    if kind == "list_value":
        return _of_list(value.list_value)
    return getattr(value, kind) if kind not in (None, "null_value") else None


def _of_struct(value: Any) -> dict[str, Any]:
    return {key: _of_value(each) for key, each in value.fields.items()}


def _of_list(value: Any) -> list[Any]:
    return [_of_value(each) for each in value.values]


_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_PLAIN: dict[str, Reader] = {
    "google.protobuf.Timestamp": _moment,
    "google.protobuf.Duration": lambda value: value.seconds + value.nanos / 1e9,
    "google.protobuf.Value": _of_value,
    "google.protobuf.Struct": _of_struct,
    "google.protobuf.ListValue": _of_list,
} | {f"google.protobuf.{name}Value": attrgetter("value") for name in _WRAPPERS}
