"""InfluxDB line protocol: what Telegraf, InfluxDB's clients and many collectors send; each line is a record.

The fields of a record are the tags and the fields of its point, under their own names (a field goes before a tag of the
same name), ``time``, the timestamp as an integer, whatever a tag or a field of that name says, and ``_measurement``. A
point without timestamp has no ``time``: InfluxDB takes the time of arrival then, and so does ``time = "@broker"``.

A line's end always ends its point, also inside quotes, so that no line can merge with or split another.

Source
------
https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/ and the package ``line-protocol-parser``, which
reads one line in C. It gets text and never bytes: its version 2.0.1 crashes for bytes that are no UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from line_protocol_parser import LineFormatError, parse_line

from .batch import Batch, Rejection, Schema, concatenated
from .bounds import LINE_CELLS, LONGEST_MESSAGE, READ_AT_ONCE, has_many_cells, max_rows
from .envelopes import Envelope
from .fields import RecordReader
from .parsing import pieces
from .rejections import tallied

_TOGETHER = 512
"""About how many records are read into columns together: so many stay in the processor's cache."""
TIME, MEASUREMENT = "time", "_measurement"


def line_messages(schema: Schema, *, measurement: str = "") -> PointLines:
    """Make the decoder of messages of lines; see `PointLines`."""
    return PointLines(schema, measurement=measurement)


class PointLines:
    """Decoder of messages that hold lines of InfluxDB's line protocol, one record each.

    Blank lines and comments are skipped. A line that cannot be read is rejected by itself. Of a message at most
    `max_rows` lines are read, and none if it is longer than `LONGEST_MESSAGE`.

    Parameters
    ----------
    schema : Schema
    measurement : str, optional
        The one whose points are records; points of others are skipped. All by default.
    ticks : int, optional
        What timestamps are multiplied by to have the schema's unit.
    """

    def __init__(self, schema: Schema, *, measurement: str = "", ticks: int = 1) -> None:
        schema.refuse_elements("InfluxDB's lines")
        self._reader = RecordReader(schema)
        self._keys = self._reader.plain_fields
        self._measurement = measurement
        self._ticks = ticks
        self._most = max_rows(len(schema.features))

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Decode messages, the first of which has `first_position`; all records of a message share its position."""
        batches: list[Batch] = []
        found: list[str] = []
        owners: list[int] = []
        too_long: list[Rejection] = []
        for i, body in enumerate(lines):
            if len(body) > LONGEST_MESSAGE:
                too_long.append(Rejection("too_long", first_position + i))
                continue
            room = self._most
            for piece in pieces(body):
                parts = self._lines_of(piece, room, first_position + i, too_long)
                room -= len(parts)
                found += parts
                owners += [i] * len(parts)
                if len(found) >= _TOGETHER:
                    for start in range(0, len(found), _TOGETHER):
                        some = slice(start, start + _TOGETHER)
                        batches.append(self._read(found[some], owners[some], first_position, envelopes))
                    found, owners = [], []
        batches.append(self._read(found, owners, first_position, envelopes))
        batch = concatenated(batches)
        if too_long:
            batch.rejections = tallied(batch.rejections + too_long)
        return batch

    def _lines_of(self, piece: bytes, room: int, position: int, too_long: list[Rejection]) -> list[str]:
        """Return the lines of a part of a message that are read."""
        if len(piece) > READ_AT_ONCE:
            too_long.append(Rejection("too_long", position))
            return []
        parts = _lines(piece)
        if len(parts) > room:
            if room:
                too_long.append(Rejection("too_long", position))
            del parts[room:]
        if max(map(len, parts), default=0) > 3 * LINE_CELLS and (wide := list(filter(has_many_cells, parts))):
            too_long.append(Rejection("too_long", position, None, len(wide)))
            parts = [part for part in parts if not has_many_cells(part)]
        return parts

    def _read(self, lines: list[str], owners: list[int], first_position: int, envelopes: Sequence[Envelope]) -> Batch:
        """Read lines, each with the number of its message."""
        points: list[Any] = []
        left = iter(lines)
        while len(points) < len(lines):
            try:
                points.extend(map(parse_line, left))  # keeps what came before an error, and goes on behind it
            except LineFormatError:
                points.append(None if lines[len(points)].isspace() else {})  # a blank line, or none that can be read
        rejections: list[Rejection] = []
        if self._measurement or not all(points):
            kept: list[int] = []
            for i, point in enumerate(points):
                if point and (not self._measurement or point["measurement"] == self._measurement):
                    kept.append(i)
                elif point is not None and not point:
                    rejections.append(Rejection("broken_record", first_position + owners[i]))
            points, owners = [points[i] for i in kept], [owners[i] for i in kept]
        positions = first_position + np.array(owners, np.int64)
        if self._keys is not None:
            batch = self._reader.read_cells(self._cells(points), positions)
        else:
            records = list(map(self._record, points))
            batch = self._reader.read(records, positions, [envelopes[owner] for owner in owners] if envelopes else ())
        if rejections:
            batch.rejections = tallied(batch.rejections + rejections)
        return batch

    def _cells(self, points: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """Return what each field of the schema is in some points."""
        assert self._keys is not None
        fields, tags = [point["fields"] for point in points], [point["tags"] for point in points]
        cells: dict[str, list[Any]] = {}
        for name, key in self._keys.items():
            if key == TIME:
                cells[name] = self._times(points)
            elif key == MEASUREMENT:
                cells[name] = [point["measurement"] for point in points]
            else:
                cells[name] = _column(key, fields, tags)
        return cells

    def _record(self, point: dict[str, Any]) -> dict[str, Any]:
        """Return the record of a point, as an object."""
        record: dict[str, Any] = point["tags"] | point["fields"]
        return record | {TIME: self._times([point])[0], MEASUREMENT: point["measurement"]}

    def _times(self, points: list[dict[str, Any]]) -> list[int | None]:
        times = [point["time"] for point in points]
        return times if self._ticks == 1 else [None if time is None else time * self._ticks for time in times]


def _column(key: str, fields: list[dict[str, Any]], tags: list[dict[str, Any]]) -> list[Any]:
    """Return one field or tag of some points, None where there is neither."""
    try:
        return [each[key] for each in fields]
    except KeyError:
        pass
    if all(key in each for each in tags) and not any(key in each for each in fields):
        return [each[key] for each in tags]
    return [own[key] if key in own else shared.get(key) for own, shared in zip(fields, tags, strict=True)]


def _lines(body: bytes) -> list[str]:
    """Split a message into lines, leaving out empty ones; bytes that are no text become a line that cannot be read."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return [_text(line) for line in body.split(b"\n") if line]
    if "\n" in text:
        return [line for line in text.split("\n") if line]
    return [text] if text else []


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return "\0"
