"""Decoders of lines and messages that hold one record each.

They hand over columns of cells, which `fcstream.formats.cells` reads; a line that is no record is looked at alone.
"""

from __future__ import annotations

import csv
import difflib
import json
import operator
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .batch import Batch, Rejection, Schema, UnusableRecord, batch_from_cells, concatenated, merge
from .bounds import READ_AT_ONCE, BeyondBounds
from .cells import parse_number, read_cell
from .csv_dialect import BOM, COMMAS, CsvDialect
from .envelopes import Envelope
from .parsing import BROKEN, decoded, parse_msgpack
from .rejections import rejected_at, tallied

_LONGEST_DIAGNOSIS = 2**16
SHORT = 64
"""Most bytes of a line of which it is remembered why it cannot be used."""
_LIKE_A_VALUE = re.compile(r"^\s*$|^\s*[-+.\d]|\d\d")


class LineDecoder(Protocol):
    """Turns blocks of complete lines into batches. Every line is one record whatever it contains, so that no line can
    merge with or split another."""

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Decode lines, or messages with one envelope each, if the schema asks for fields of envelopes."""


def apart(
    lines: Sequence[bytes],
    positions: NDArray[np.int64],
    envelopes: Sequence[Envelope],
    read: Callable[[list[bytes], NDArray[np.int64], Sequence[Envelope]], Batch],
    read_long: Callable[[bytes, int, Sequence[Envelope], list[Rejection]], Iterator[Batch]] | None = None,
) -> Batch:
    """Read those of some messages that are longer than `READ_AT_ONCE` apart, or reject them as ``too_long``.

    Parameters
    ----------
    read : callable
        Reads messages at some positions, with envelopes.
    read_long : callable, optional
        Yields the records of one message, in parts, and may append rejections; raises `BeyondBounds`, or what else
        `BROKEN` names, where it ends before its time.
    """
    batches: list[Batch] = []
    rejections: list[Rejection] = []
    short = [i for i, line in enumerate(lines) if len(line) <= READ_AT_ONCE]
    given = [envelopes[i] for i in short] if envelopes else ()
    batches.append(read([lines[i] for i in short], positions[short], given))
    for i in sorted(set(range(len(lines))).difference(short)):
        try:
            if read_long is None:
                raise BeyondBounds
            batches.extend(read_long(lines[i], int(positions[i]), envelopes[i : i + 1], rejections))
        except BeyondBounds:
            rejections.append(Rejection("too_long", int(positions[i])))
        except BROKEN:
            rejections.append(Rejection("broken_record", int(positions[i])))
    batch = concatenated(batches)
    return batch.pick(np.argsort(batch.positions, kind="stable"), tallied(batch.rejections + rejections))


class Objects:
    """Decoder of one object (JSON, or MessagePack) per record.

    A type that is generated for the schema decides what is a record; a second look only finds the reason of a
    rejection. A blank line is skipped; a blank message is rejected.

    Attributes
    ----------
    least : int
        Bytes that a record has at least.
    """

    def __init__(self, schema: Schema, codec: str = "json", *, are_messages: bool = False) -> None:
        import msgspec

        self._schema = schema
        self._skips_blank = not are_messages
        self._parse: Callable[[bytes], Any] = json.loads if codec == "json" else parse_msgpack
        self._is_object = re.compile(rb"\s*\{" if codec == "json" else rb"[\x80-\x8f\xde\xdf]").match
        names = (schema.time, *schema.features, *schema.labels)
        self.least = 1 + sum(2 + len(name.encode()) for name in names if name not in schema.optional)
        decoder: Any = msgspec.json.Decoder if codec == "json" else msgspec.msgpack.Decoder
        time_type: Any = {"iso8601": str, "us": int | float, "ns": int | float}.get(schema.time_unit, float)
        self._names = ["time", *(f"f{k}" for k in range(len(schema.features)))]
        self._fields: tuple[str, ...] = (schema.time, *schema.features)
        types: list[tuple[str, Any]] = [
            (name, self._kind_of(field)) for name, field in zip(self._names[1:], schema.features, strict=True)
        ]
        kinds = zip(self._fields, (time_type, *(kind for _, kind in types)), strict=True)
        self._floats = {name for name, kind in kinds if kind is float}
        for k, name in enumerate(schema.labels):
            self._names.append(f"label{k}")
            self._fields += (name,)
            types.append((f"label{k}", bool | int | float | str))
        rename = dict(zip(self._names, self._fields, strict=True))
        whole = msgspec.defstruct("Whole", [("time", time_type), *types], rename=rename, gc=False)
        record = msgspec.defstruct(
            "Record",
            [("time", time_type | None, None), *((name, kind | None, None) for name, kind in types)],
            rename=rename,
            gc=False,
        )
        # Whatever the first decoder accepts the second one accepts too, with the same values, a little slower.
        self._decode_whole = decoder(whole).decode
        self._decode = decoder(record).decode
        self._as_tuple = msgspec.structs.astuple
        is_numbers = not (schema.labels or schema.levels or schema.missing)
        self._is_plain = is_numbers and schema.time_unit in ("ms", "s")
        self._pack = struct.Struct(f"{len(self._names)}d").pack
        self._errors = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
        self._roles = schema.message_roles()
        self._getters = [operator.attrgetter(name) for name in self._names]

    def _kind_of(self, field: str) -> Any:
        """Return the types that a feature's field may have; other types are rejected without further checks."""
        if field in self._schema.levels:
            return bool | int | float | str
        return float | str if field in self._schema.missing else float

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Lines without their ends, the first of which has `first_position`."""
        positions = np.arange(first_position, first_position + len(lines))
        if max(map(len, lines), default=0) > READ_AT_ONCE:
            return apart(lines, positions, envelopes, self._read)
        return self._read(lines, positions)

    def _read(self, lines: list[bytes], positions: NDArray[np.int64], _envelopes: Sequence[Envelope] = ()) -> Batch:
        whole, fit = self._typed(self._decode_whole, lines, positions)
        if len(fit) == len(lines):
            return whole
        again = np.delete(np.arange(len(lines)), fit)
        partial, fit = self._typed(self._decode, [lines[i] for i in again.tolist()], positions[again])
        rest = np.delete(again, fit).tolist()
        partial.rejections += self._refused([lines[i] for i in rest], positions[rest].tolist())
        return merge(whole, partial)

    def _typed(
        self, decode: Callable[[bytes], Any], lines: list[bytes], positions: NDArray[np.int64]
    ) -> tuple[Batch, NDArray[np.int64]]:
        """Read the lines that are of a decoder's type; returns their batch, and which these are."""
        columns: Mapping[str, Any]
        if self._is_plain and decode is self._decode_whole:
            packed, fit = decoded(lambda left: starmap(self._pack, map(self._as_tuple, map(decode, left))), lines)
            table = np.frombuffer(b"".join(packed)).reshape(-1, len(self._names))
            columns = dict(zip(self._fields, table.T.copy(), strict=True))
        else:
            records, fit = decoded(partial(map, decode), lines)
            columns = {
                name: np.fromiter(map(get, records), np.float64, len(records))
                if name in self._floats and decode is self._decode_whole
                else list(map(get, records))
                for name, get in zip(self._fields, self._getters, strict=True)
            }
        return batch_from_cells(self._schema, columns, positions[fit], self._roles), fit

    def _refused(self, lines: Sequence[bytes], positions: Sequence[int]) -> list[Rejection]:
        """Find out why the typed decoder refuses some lines, of short ones that are equal once."""
        known: dict[bytes, Rejection] = {}
        rejections: list[Rejection] = []
        for line, position in zip(lines, positions, strict=True):
            found = known.get(line)
            if found is None:
                if self._skips_blank and (not line or line.isspace()):
                    continue
                found = self._diagnose(line, position)
                if len(line) <= SHORT:
                    known[line] = found
            rejections.append(Rejection(found.reason, position, found.field))
        return rejections

    def refusal(self, line: bytes) -> Rejection:
        """Return why a line of fewer than `least` bytes is no record."""
        return self._diagnose(line, 0)

    def _diagnose(self, line: bytes, position: int) -> Rejection:
        """Find out why the typed decoder refuses a line; what is no object or very long is not examined."""
        if len(line) > _LONGEST_DIAGNOSIS or not self._is_object(line):
            return Rejection("broken_record", position)
        try:
            row = self._parse(line)
        except (*self._errors, ValueError, TypeError):  # the last of a key that cannot be one, in older clients
            return Rejection("broken_record", position)
        if isinstance(row, dict):
            for name in self._fields:
                try:
                    read_cell(row.get(name), self._roles[name])
                except UnusableRecord as refused:
                    return Rejection(refused.reason, position, name)
        return Rejection("broken_record", position)


class CsvRows:
    """Decoder of CSV lines in UTF-8. A quoted cell may hold delimiters and doubled quotes, not a line break.

    Parameters
    ----------
    schema : Schema
    header : bytes
        The line that names the columns; not used if the dialect has their names.
    dialect : CsvDialect

    Raises
    ------
    ConfigError
        A column that the schema names is not there, or is there more than once.
    """

    def __init__(self, schema: Schema, header: bytes, dialect: CsvDialect = COMMAS) -> None:
        self._schema = schema
        self._delimiter = dialect.delimiter
        self._dialect = dialect
        self._width = -1
        columns = list(dialect.header) or self._cells(header.removeprefix(BOM))
        self._width = len(columns)
        self._names = [schema.time, *schema.features, *schema.labels]
        schema.refuse_envelopes("tables")
        schema.refuse_elements("tables")
        wanted = [schema.column(name) for name in self._names]
        absent = [name for name in wanted if name not in columns]
        if absent:
            raise ConfigError(_lacking(absent, columns, dialect))
        twice = next((name for name in wanted if columns.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"the first line must name the column {twice!r} once", remedy="rename the others, or delete them"
            )
        self._columns = [columns.index(name) for name in wanted]
        self._numbers: frozenset[str] = frozenset()  # what is written with a decimal comma
        if dialect.decimal == ",":
            times = () if schema.time_unit == "iso8601" else (schema.time,)
            self._numbers = frozenset({*times, *schema.features}.difference(schema.levels))
        self._roles = schema.message_roles(as_text=True)

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Lines without their ends, the first of which has `first_position`."""
        positions = np.arange(first_position, first_position + len(lines))
        rows = list(map(self._cells, lines))
        rejections: list[Rejection] = []
        if self._width == 1 or set(map(len, rows)) != {self._width}:
            filled = np.array([len(row) != 1 or bool(row[0].strip()) for row in rows], np.bool_)  # no blank line
            fit = np.array([len(row) == self._width for row in rows], np.bool_) & filled
            rejections = rejected_at("broken_record", positions[~fit & filled])
            rows, positions = [rows[i] for i in np.flatnonzero(fit).tolist()], positions[fit]
        columns = list(zip(*rows, strict=True)) or [()] * self._width
        cells: dict[str, Sequence[str]] = {name: columns[k] for name, k in zip(self._names, self._columns, strict=True)}
        cells |= {name: self._points(name, cells[name]) for name in self._numbers}
        batch = batch_from_cells(self._schema, cells, positions, self._roles)
        if rejections:
            batch.rejections = tallied(batch.rejections + rejections)
        return batch

    def _points(self, name: str, column: Sequence[str]) -> Sequence[str]:
        """Return a column of numbers with decimal points; texts that are no numbers in their stead stay none."""
        if absent := self._schema.missing.get(name):
            return [self._point(cell, absent) for cell in column]
        if any("." in cell for cell in column):
            return list(map(self._dialect.point, column))
        return [cell.replace(",", ".") for cell in column]

    def _point(self, cell: str, absent: frozenset[str]) -> str:
        """Return a number's cell with a decimal point; nothing for what is no number but stands for no value."""
        found = self._dialect.point(cell)
        if cell.strip() in absent:
            try:
                parse_number(found)
            except UnusableRecord:
                return ""
        return found

    def _cells(self, line: bytes) -> list[str]:
        text = line.decode("utf-8", "surrogateescape")
        if '"' not in text:
            return text.rstrip("\r").split(self._delimiter, self._width)  # one cell too many is enough
        try:
            return next(csv.reader([text], delimiter=self._delimiter, strict=True), [])
        except csv.Error:
            return []


def _lacking(absent: list[str], columns: list[str], dialect: CsvDialect) -> str:
    """Describe a header that lacks some columns. Its cells are quoted only if none looks like a number or a time, since
    the line may be a record."""
    names = ("column " if len(absent) == 1 else "columns ") + ", ".join(map(repr, absent))
    if dialect.header:
        return f"`source.header` must name the {names}: check it, `stream` and `features`"
    separated = "commas" if dialect.delimiter == "," else repr(dialect.delimiter)
    only = f"1 cell; cells are separated by {separated}: if this is wrong, set `source.delimiter`"
    width = only if len(columns) == 1 else f"{len(columns)} cells"
    text = f"the first line must name the {names} (it has {width})"
    if not any(map(_LIKE_A_VALUE.search, columns)):
        folded = {cell.strip().casefold(): cell for cell in columns}
        found = {name: difflib.get_close_matches(name.casefold(), folded, n=1) for name in absent}
        near = [f"{folded[cells[0]]!r} for {name!r}" for name, cells in found.items() if cells]
        text += f"; did you mean {', '.join(near)}?" if near else ""
    return f"{text}{'' if text.endswith('?') else ':'} check the header, `stream` and `features`"
