"""Decodes messages of many records in Arrow's IPC format: every row is one record, read independently of the others."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from .arrow_outlines import BATCH, DICTIONARY, SCHEMA, check_stream, field, kind, u32
from .arrow_rows import ArrowRows
from .batch import Batch, Rejection, Schema, concatenated
from .bounds import ARROW_BATCHES, BeyondBounds
from .envelopes import Envelope

_ROWS_TOGETHER = 2**15


class ArrowBlocks:
    """Decoder of Arrow IPC streams (pyarrow).

    Parameters
    ----------
    schema : Schema
    max_rows : int
        How many rows of one message are read at most.
    """

    def __init__(self, schema: Schema, max_rows: int) -> None:
        self._rows = ArrowRows(schema)
        import pyarrow

        self._arrow = pyarrow
        self._max_rows = max_rows
        self._described, self._found = b"", None  # a schema without odd columns, as its message and as the library's

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Decode messages that are whole Arrow streams; columns may be in any order, others are ignored."""
        parts: list[Batch] = []
        group: list[Any] = []
        start = rows = 0
        for i, line in enumerate(lines):
            why = self._refusal(line)
            before, table = self._found, None if why else self._plain_table(line)
            if group and (table is None or rows > _ROWS_TOGETHER or self._found is not before):
                parts += self._together(group, lines[start:i], first_position + start)
                group, rows = [], 0
            if table is None:
                at = first_position + i
                parts.append(self._rows.nothing([Rejection(why, at)]) if why else self._message(line, at))
                continue
            start = start if group else i
            group.append(table)
            rows += table.num_rows
        if group:
            parts += self._together(group, lines[start:], first_position + start)
        return concatenated(parts or [self._rows.nothing([])])

    def _refusal(self, line: bytes) -> str | None:
        """Return why a message is not given to the library, if it is not."""
        try:
            check_stream(line, self._described)
        except BeyondBounds:
            return "too_long"
        except (ValueError, IndexError, struct.error):
            return "broken_record"
        return None

    def _plain_table(self, line: bytes) -> Any:
        """Return the wanted columns of a message that needs no word about it; None for any other."""
        ipc = self._arrow.ipc
        try:
            head, *others = islice(self._messages(line), ARROW_BATCHES + 2)
            described = head.metadata.to_pybytes()
            if described != self._described:
                if kind(described) != SCHEMA or not _is_native(described):
                    return None  # another message would end the process when it is read as a schema
                found = ipc.read_schema(head)
                if self._rows.odd_column(found) is not None:
                    return None
                self._described, self._found = described, found
            if len(others) > ARROW_BATCHES or not all(_is_plain(each.metadata.to_pybytes()) for each in others):
                return None
            batches = [ipc.read_record_batch(each, self._found) for each in others]
            table = self._arrow.Table.from_batches(batches, self._found).select(self._rows.columns)
            table.validate()  # columns of equal lengths: together, what one lacks would be taken from the next one
            return table if table.num_rows <= self._max_rows else None
        except Exception:  # see `_message`
            return None

    def _together(self, tables: list[Any], lines: Sequence[bytes], first_position: int) -> list[Batch]:
        """Read tables of one schema as one, or their messages one by one if that cannot be."""
        try:
            table = self._arrow.concat_tables(tables)
            self._rows.validate(table)
            owners = np.repeat(np.arange(len(tables)), [each.num_rows for each in tables])
            return [self._rows.read(table, first_position + owners)]
        except Exception:
            return [self._message(line, first_position + i) for i, line in enumerate(lines)]

    def _message(self, line: bytes, position: int) -> Batch:
        try:
            found = self._arrow.ipc.open_stream(line).schema
            odd = self._rows.odd_column(found)  # before any column is read: a small message may expand to a large one
            if odd is not None:
                return self._rows.nothing([Rejection(odd[0], position, odd[1])])
            if not self._is_compressed(line):
                included = [found.names.index(name) for name in self._rows.columns]
                wanted = self._arrow.ipc.IpcReadOptions(included_fields=included)
                with self._arrow.ipc.open_stream(line, options=wanted) as reader:
                    table = self._first_rows(reader)
                self._rows.validate(table)
                return self._read(table, position)
        # For bytes that are no stream the library raises errors of many types: any of them rejects the message.
        except Exception:
            pass
        return self._rows.nothing([Rejection("broken_record", position)])

    def _first_rows(self, reader: Any) -> Any:
        """Read the rows of a message, at most one more than the limit; stops early if there are too many batches."""
        batches, rows = [], 0
        for batch in reader:
            batches.append(batch)
            rows += batch.num_rows
            if rows > self._max_rows or len(batches) > ARROW_BATCHES:
                break
        return self._arrow.Table.from_batches(batches, reader.schema)

    def _read(self, table: Any, position: int) -> Batch:
        """Read the first rows of a valid table that has the wanted columns; they share a position."""
        n = min(table.num_rows, self._max_rows)
        if len(table.columns[0].chunks) > ARROW_BATCHES:
            n = min(n, table.num_rows - len(table.columns[0].chunks[-1]))
        is_cut = table.num_rows > n or len(table.columns[0].chunks) > ARROW_BATCHES
        batch = self._rows.read(table.slice(0, n) if is_cut else table, np.full(n, position))
        if is_cut:
            batch.rejections.append(Rejection("too_long", position))
        return batch

    def _is_compressed(self, line: bytes) -> bool:
        """Tell whether any part of the stream that will be read is compressed, or has too many dictionaries."""
        batches = others = 0
        for message in self._messages(line):
            metadata = message.metadata.to_pybytes()
            if _is_compressed(metadata) or others > ARROW_BATCHES:
                return True
            if kind(metadata) == BATCH:
                batches += 1
            else:
                others += 1
            if batches > ARROW_BATCHES:
                break
        return False

    def _messages(self, line: bytes) -> Iterator[Any]:
        """Yield the Arrow messages of a stream, of which the first one is its schema."""
        reader = self._arrow.ipc.MessageReader.open_stream(line)
        with suppress(StopIteration):
            while True:
                yield reader.read_next_message()


def _is_native(metadata: bytes) -> bool:
    """Tell whether a schema says that numbers have this machine's order of bytes."""
    header = field(metadata, u32(metadata, 0), 2)
    at = field(metadata, header + u32(metadata, header), 0) if header else 0
    return sys.byteorder == "little" and not (at and any(metadata[at : at + 2]))


def _is_plain(metadata: bytes) -> bool:
    """Tell whether an Arrow message is a batch of records that is not compressed."""
    return kind(metadata) == BATCH and not _is_compressed(metadata)


def _is_compressed(metadata: bytes) -> bool:
    """Tell whether an Arrow message (a FlatBuffer) declares compressed buffers, which the library does not report.

    15 kB of compressed data can expand to a gigabyte.
    """
    message = u32(metadata, 0)
    kind_at, header_at = field(metadata, message, 1), field(metadata, message, 2)
    if not (kind_at and header_at):
        return False
    what, batch = metadata[kind_at], header_at + u32(metadata, header_at)
    if what == DICTIONARY:
        data_at = field(metadata, batch, 1)
        if not data_at:
            return False
        what, batch = BATCH, data_at + u32(metadata, data_at)
    return what == BATCH and field(metadata, batch, 3) != 0
