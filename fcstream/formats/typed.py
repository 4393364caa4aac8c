"""Types that msgspec reads messages of one shape into, generated from a schema, and the columns of what it has read.

A type holds the fields that are asked for and no others, so what else a message holds costs little. A message of
another shape than the type's is read again by `fcstream.formats.fields`, with the same result if both can read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from .batch import Schema
from .bounds import max_rows
from .cells import PER_MILLISECOND
from .paths import ABSENT, FieldPath

Steps = tuple[str | int, ...]


class Untyped(Exception):
    """There is no type for a schema, or for one message."""


class MessageType:
    """A type for the messages of a schema, some of whose fields stand in the elements of ``[source] records``.

    Parameters
    ----------
    schema : Schema
    codec : str
        ``json`` or ``msgpack``.
    inner : frozenset of str
        The fields that stand in an element; the others stand in the message around it, and an element that has one of
        them is of another shape.

    Raises
    ------
    Untyped
        A path leads through what another path takes for a value.
    """

    def __init__(self, schema: Schema, codec: str, inner: frozenset[str]) -> None:
        self._schema, self._inner, self._attributes = schema, inner, dict[str, str]()
        self._most = max_rows(len(schema.features))
        paths = {name: schema.place(name) for name in (schema.time, *schema.features, *schema.labels)}
        body = {name: path.steps for name, path in paths.items() if isinstance(path, FieldPath)}
        self.names = tuple(body)
        records = schema.records
        inside = [(body[name], self._kind(name) if name in inner else None) for name in body]
        outside = [(steps, self._kind(name)) for name, steps in body.items() if name not in inner]
        if records is None:
            whole = self._type([(steps, self._kind(name)) for name, steps in body.items()])
        else:
            whole = self._type([*outside, (records.steps, list[self._type(inside)])])  # type: ignore[misc]
            self._lists = self._getters(records.steps)
        decoder: Any = msgspec.json.Decoder if codec == "json" else msgspec.msgpack.Decoder
        self.decode = decoder(whole).decode
        self._reads = {name: self._getters(steps) for name, steps in body.items()}

    def cells(self, messages: Sequence[Any]) -> tuple[dict[str, list[Any]], dict[str, list[Any]], list[int]]:
        """Return what stands in every element (in every message, if these are the records), what stands in every
        message around elements, and the number of elements of every message.

        Raises
        ------
        Untyped
            A list is too short, or holds too many elements.
        """
        try:
            if self._schema.records is None:
                return {name: _through(self._reads[name], messages) for name in self.names}, {}, []
            lists = _through(self._lists, messages)
            if max(map(len, lists), default=0) > self._most:
                raise Untyped
            elements = list(chain.from_iterable(lists))
            inner = {name: _through(self._reads[name], elements) for name in self.names if name in self._inner}
            outer = {name: _through(self._reads[name], messages) for name in self.names if name not in self._inner}
            return inner, outer, list(map(len, lists))
        except IndexError:
            raise Untyped from None

    def _kind(self, name: str) -> Any:
        """Return the types that a field may have; an optional one may be absent."""
        schema = self._schema
        if name == schema.time:
            return (
                str if schema.time_unit == "iso8601" else int | float if schema.time_unit in PER_MILLISECOND else float
            )
        if name in schema.labels:
            return str | int
        kind: Any = bool | int | float | str if name in schema.levels else float
        if name in schema.missing or name in schema.quoted:
            kind |= str
        return kind | None if name in schema.optional else kind

    def _type(self, entries: Sequence[tuple[Steps, Any]]) -> Any:
        """Make the type in which values of some types stand at some paths; None as a type: nothing may stand there."""
        if not entries:
            return dict[str, msgspec.Raw]
        if any(not steps for steps, _ in entries):
            if any(steps or kind != entries[0][1] for steps, kind in entries):
                raise Untyped
            return entries[0][1]
        groups: dict[str | int, list[tuple[Steps, Any]]] = {}
        for steps, kind in entries:
            groups.setdefault(steps[0], []).append((steps[1:], kind))
        if all(isinstance(step, int) for step in groups):
            kinds = [self._type(group) for group in groups.values()]
            if any(kind != kinds[0] or kind is None for kind in kinds):
                raise Untyped
            return list[kinds[0]]  # type: ignore[valid-type]
        if any(isinstance(step, int) for step in groups):
            raise Untyped
        fields: list[Any] = []
        for step, group in groups.items():
            attribute = self._attributes.setdefault(str(step), f"x{len(self._attributes)}")
            if all(kind is None for _, kind in group):
                fields.append((attribute, msgspec.UnsetType, None))  # not null either
            else:
                kind = self._type(group)
                is_optional = any(not steps and _takes_none(each) for steps, each in group)
                fields.append((attribute, kind, None) if is_optional else (attribute, kind))
        rename = {attribute: step for step, attribute in self._attributes.items() if step in groups}
        return msgspec.defstruct("Part", fields, rename=rename, gc=False, kw_only=True)

    def _getters(self, steps: Steps) -> list[Any]:
        """Return functions that lead to a value, one after the other."""
        found: list[Any] = []
        names: list[str] = []
        for step in steps:
            if isinstance(step, str):
                names.append(self._attributes[step])
                continue
            if names:
                found.append(attrgetter(".".join(names)))
                names = []
            found.append(itemgetter(step))
        return [*found, attrgetter(".".join(names))] if names else found


def _takes_none(kind: Any) -> bool:
    return type(None) in getattr(kind, "__args__", ())


def _through(getters: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    column: Any = values
    for get in getters:
        column = map(get, column)
    return list(column)


def shape_of(schema: Schema, message: Any) -> frozenset[str]:
    """Find which fields stand in the elements of a decoded message; guessed from its first element."""
    if schema.records is None:
        return frozenset()
    found = schema.records.find(message)
    if not isinstance(found, list) or not found:
        raise Untyped
    return frozenset(_inside(schema, found[0], message))


def _inside(schema: Schema, element: Any, message: Any) -> Iterator[str]:
    for name in (schema.time, *schema.features, *schema.labels):
        path = schema.place(name)
        if isinstance(path, FieldPath):
            is_there = name not in schema.shared or path.find(element, ABSENT) is not ABSENT
            if is_there or path.find(message) is None:
                yield name
