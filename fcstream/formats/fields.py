"""Reads the fields of records out of decoded messages, whatever format they were decoded from.

A decoder hands over plain objects (mappings, lists, texts, numbers); where each field stands in them, which list holds
the records, and what comes with a message says the `Schema`. What one record holds never decides how another is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batch import Batch, Rejection, Schema, batch_from_cells, concatenated
from .bounds import max_rows
from .cells import Role
from .envelopes import Envelope, EnvelopeField
from .json_parts import Broken
from .paths import ABSENT, FieldPath
from .rejections import rejected_at, tallied

_TOGETHER = 2**14
"""Records whose fields are read together, so that they take little memory beside what they were decoded to."""
_LISTS = frozenset((list, tuple))


def top_fields(schema: Schema, names: Iterable[str]) -> frozenset[str]:
    """Return the outermost fields of messages that these fields of a schema stand in, or are."""
    places = [schema.place(name) for name in names]
    return frozenset(str(place.steps[0]) for place in places if isinstance(place, FieldPath) and place.steps)


class RecordReader:
    """Makes batches of decoded messages; every decoder of nested formats ends in one.

    Parameters
    ----------
    schema : Schema
        Says where fields stand (`Schema.place`), which list of a message holds its records (`Schema.records`), the unit
        of times, and which numbers may come as text (`Schema.quoted`).

    Notes
    -----
    What the values of a field may be says `fcstream.formats.cells`. Numbers and times in numbers may be text if the
    feature has ``text = true``, if it comes from an envelope, or if `read` was told that all numbers come as text.

    Time, user and key are looked up in the message around an element of ``[source] records`` that has no such field,
    not where it is None; a feature never is. The fields that a decoder knows by other names (the attributes of OTLP,
    say) it puts into a mapping under the names that configurations shall use.

    Source
    ------
    Specification 8.10.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._names = (schema.time, *schema.features, *schema.labels)
        self._places = {name: schema.place(name) for name in self._names}
        self._most = max_rows(len(schema.features))
        self._roles = {texts: self._roles_of(texts) for texts in (False, True)}
        steps = [place.steps[:1] for place in self._places.values() if isinstance(place, FieldPath)]
        self._takes_values = () in steps
        self._takes_lists = any(isinstance(step, int) for first in steps for step in first)

    def _roles_of(self, texts: bool) -> dict[str, Role]:
        """Return the role of each field: what comes with a message is text, or the time at which it came."""
        roles, envelopes = self._schema.message_roles(as_text=texts), self._schema.message_roles(as_text=True)
        for name, place in self._places.items():
            if isinstance(place, EnvelopeField):
                roles[name] = Role("time") if place.part == "broker" else envelopes[name]
        return roles

    @property
    def is_sliceable(self) -> bool:
        """Return whether records can be read in parts of their list: no field is one of a certain record."""
        records, places = self._schema.records, (self._places.get(name or "") for name in self._schema.shared)
        steps = records.steps if records is not None else ()
        paths = [(*place.steps, "") for place in places if isinstance(place, FieldPath)]
        return not any(path[: len(steps)] == steps and isinstance(path[len(steps)], int) for path in paths)

    def read(
        self,
        messages: Iterable[Any | Rejection],
        positions: Iterable[int],
        envelopes: Sequence[Envelope] = (),
        *,
        texts: bool = False,
    ) -> Batch:
        """Read messages, each of which holds one record, or any number of them with ``[source] records``.

        Parameters
        ----------
        messages : iterable
            Decoded messages: a mapping, or what else the paths of the schema lead through; or a `Rejection`, for one
            that could not be decoded.
        positions : iterable of int
            The position of each message, which all of its records get. Not necessarily different: a decoder may hand
            over each record of a message on its own.
        envelopes : sequence of Envelope
            Parallel to `messages`; needed only if ``schema.asked`` is not empty, and without it fields of envelopes are
            missing.
        texts : bool
            Whether numbers and times come as text, as in CSV.

        Returns
        -------
        Batch
            The usable records, in the order of their messages, and a rejection for every other record and for every
            message whose list of records is missing, is no list, or is longer than `max_rows`. Reasons are those of
            `fcstream.formats.batch.MEANINGS`, fields the names of the schema. Nothing is raised for any content.

        Notes
        -----
        About 0.2 µs a record and field where all records of the batch are usual, 3 µs a record and field for the
        others.
        """
        found, where = list(messages), np.fromiter(positions, np.int64)
        rejections = [message for message in found if type(message) is Rejection]
        if rejections:
            kept = [i for i, message in enumerate(found) if type(message) is not Rejection]
            found, where = [found[i] for i in kept], where[kept]
            envelopes = [envelopes[i] for i in kept] if envelopes else ()
        elements: list[Any] = found
        owners: list[int] | None = None
        if self._schema.records is not None:
            elements, owners = self._elements(found, where, rejections)
        elements, owners = self._shaped(elements, owners, where, rejections)
        parts: list[Batch] = []
        for start in range(0, max(1, len(elements)), _TOGETHER):
            some = slice(start, start + _TOGETHER)
            if owners is None:
                rows, near = None, some
            else:
                rows = owners[some]
                near = slice(rows[0], rows[-1] + 1) if rows else some
                rows = [row - near.start for row in rows]
            given = found[near], rows, envelopes[near]
            cells = {name: self._cells(name, elements[some], *given) for name in self._names}
            places = where[near] if rows is None else where[near][np.array(rows, np.int64)]
            parts.append(self.read_cells(cells, places, texts=texts))
        batch = concatenated(parts)
        if rejections:
            batch.rejections = tallied(batch.rejections + rejections)
        return batch

    def read_columns(
        self,
        columns: Mapping[str, list[Any]],
        owners: Sequence[int],
        first_position: int,
        envelopes: Sequence[Envelope] = (),
        rejections: Sequence[Rejection] = (),
    ) -> Batch:
        """Read records whose outermost fields a decoder hands over as columns.

        Parameters
        ----------
        columns : mapping of str to list
            The values of each of `top_fields`, None where one is missing.
        owners : sequence of int
            The number of the message that each record comes from, which is also the number of its envelope.
        first_position : int
            The position of message 0.
        envelopes, rejections
            See `read`; the decoder's own rejections are added to those found here.
        """
        cells: dict[str, list[Any]] = {}
        for name, place in self._places.items():
            if isinstance(place, EnvelopeField):
                cells[name] = self._cells(name, owners, (), owners, envelopes)
            else:
                first, *rest = place.steps
                column = columns[str(first)]
                cells[name] = _found(FieldPath(tuple(rest)), column) if rest else column
        batch = self.read_cells(cells, first_position + np.fromiter(owners, np.int64, len(owners)))
        if rejections:
            batch.rejections = tallied([*batch.rejections, *rejections])
        return batch

    @property
    def plain_fields(self) -> dict[str, str] | None:
        """The field of a message that each field of the schema is; None if some lie deeper, or beside the message."""
        found = {}
        for name, place in self._places.items():
            step = place.steps[0] if isinstance(place, FieldPath) and len(place.steps) == 1 else None
            if not isinstance(step, str):
                return None
            found[name] = step
        return found

    def read_cells(
        self, cells: Mapping[str, Sequence[Any]], positions: NDArray[np.int64], *, texts: bool = False
    ) -> Batch:
        """Read records of which each field is a column already: by its name n cells, None where it is missing.

        Parameters, returns and notes are those of `read`.
        """
        return batch_from_cells(self._schema, cells, positions, self._roles[texts])

    def from_cells(
        self,
        inner: Mapping[str, list[Any] | NDArray[np.float64]],
        outer: Mapping[str, list[Any]],
        counts: Sequence[int],
        positions: NDArray[np.int64],
        envelopes: Sequence[Envelope],
    ) -> tuple[Batch, list[int]]:
        """Make a batch of columns that a decoder has read; see `fcstream.formats.typed.MessageType.cells`.

        Returns
        -------
        batch : Batch
            The records of messages whose records are all as usual.
        odd : list of int
            The other messages, which `read` must read.
        """
        schema, owners = self._schema, np.arange(len(positions))
        if schema.records is not None:
            owners = np.repeat(owners, counts)
        columns: dict[str, Any] = {}
        for name, place in self._places.items():
            if name in inner:
                columns[name] = inner[name]
                continue
            column = outer.get(name) or [None] * len(positions)
            if isinstance(place, EnvelopeField) and envelopes:
                column = place.column(envelopes, schema.topic_separator)
            columns[name] = column if schema.records is None else [column[owner] for owner in owners.tolist()]
        batch = self.read_cells(columns, np.arange(len(owners)))
        if not batch.rejections:
            batch.positions = positions[owners]
            return batch, []
        good = np.ones(len(owners), np.bool_)
        good[batch.positions] = False
        odd = np.unique(owners[good])
        kept = batch.pick(~np.isin(owners[batch.positions], odd))
        kept.positions = positions[owners[kept.positions]]
        return kept, odd.tolist()

    def _elements(
        self, messages: Sequence[Any], positions: NDArray[np.int64], rejections: list[Rejection]
    ) -> tuple[list[Any], list[int]]:
        """Return the elements of all messages, and the number of the message of each."""
        path = self._schema.records
        assert path is not None
        name = path.column or None
        elements: list[Any] = []
        owners: list[int] = []
        for i, message in enumerate(messages):
            each = path.find(message)
            if type(each) not in _LISTS and not isinstance(each, (list, tuple)):
                rejections.append(Rejection("missing" if each is None else "broken_record", int(positions[i]), name))
                continue
            if len(each) > self._most:
                rejections.append(Rejection("too_long", int(positions[i]), name))
                each = each[: self._most]
            elements += each
            owners += [i] * len(each)
        return elements, owners

    def _shaped(
        self,
        elements: list[Any],
        owners: list[int] | None,
        positions: NDArray[np.int64],
        rejections: list[Rejection],
    ) -> tuple[list[Any], list[int] | None]:
        """Reject what cannot hold a field: a number, say, where objects are the records."""
        found = set(map(type, elements))
        if found <= {dict} or (self._takes_values and Broken not in found):
            return elements, owners
        kinds = object if self._takes_values else (Mapping, list, tuple) if self._takes_lists else Mapping
        fit = [isinstance(element, kinds) and type(element) is not Broken for element in elements]
        rows = range(len(elements)) if owners is None else owners
        odd = np.array([row for row, good in zip(rows, fit, strict=True) if not good], np.int64)
        rejections += rejected_at("broken_record", positions[odd])
        kept = [row for row, good in zip(rows, fit, strict=True) if good]
        return [element for element, good in zip(elements, fit, strict=True) if good], kept

    def _cells(
        self,
        name: str,
        elements: Sequence[Any],
        messages: Sequence[Any],
        owners: Sequence[int] | None,
        envelopes: Sequence[Envelope],
    ) -> list[Any]:
        """Return one field of every record, None where it is missing."""
        place = self._places[name]
        if isinstance(place, EnvelopeField):
            if not envelopes:
                return [None] * len(elements)
            column = place.column(envelopes, self._schema.topic_separator)
            return column if owners is None else [column[owner] for owner in owners]
        if owners is None or self._schema.records is None or name not in self._schema.shared:
            return _found(place, elements)
        column = _found(place, elements, ABSENT)
        if any(value is ABSENT for value in column):
            outer = _found(place, messages)
            around = [outer[owner] for owner in owners]
            column = [other if value is ABSENT else value for value, other in zip(column, around, strict=True)]
        return column


def _found(path: FieldPath, values: Sequence[Any], absent: Any = None) -> list[Any]:
    """Return what stands at a path in each value, see `FieldPath.find`; fast where all have the same shape."""
    steps, column = path.steps, values
    find = partial(path.find, absent=absent)
    for step in steps:
        kinds = set(map(type, column))
        if isinstance(step, int):
            if not kinds <= _LISTS:
                return list(map(find, values))
        elif kinds != {dict}:
            return list(map(find, values))
        try:
            column = list(map(itemgetter(step), column))
        except (KeyError, IndexError):
            is_one = len(steps) == 1 and kinds == {dict}
            return [each.get(step, absent) for each in column] if is_one else list(map(find, values))
    return list(column)
