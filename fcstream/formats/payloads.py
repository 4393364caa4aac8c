"""Decodes the bodies of messages: one record each (JSON, MessagePack) or many (packed floats, Arrow).

A record's position is the index of its message, so a message that arrives twice counts once. The rows of one message
are separate records: a fault in one row rejects that row alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, SchemasUnreachable
from .arrow import ArrowBlocks
from .batch import MAX_TIME_MS, Batch, Rejection, Schema, merge
from .bounds import LONGEST_MESSAGE, max_rows
from .cells import read
from .decoders import LineDecoder
from .envelopes import Envelope
from .nested import objects_decoder
from .registry import find, make_decoder
from .rejections import moved, rejected_at, tallied, tell_packed

LOG = logging.getLogger("fcstream.formats")


def decoder_for(format: str, schema: Schema, options: Mapping[str, Any] | None = None) -> LineDecoder:
    """Make the decoder of a declared format.

    Parameters
    ----------
    format : str
        One of `fcstream.formats.registry.FORMATS`. ``json`` or ``msgpack``: one object per message. ``floats``: rows of
        one little-endian int64 (event time, in milliseconds) and d float64 (features in the configuration's order),
        back to back. ``arrow``: an Arrow IPC stream with columns named as in the configuration, plain (no dictionaries)
        and not compressed. Of a message in these two formats at most `max_rows` rows are read.
    schema : Schema
    options : mapping, optional
        Keys of `[source]` that belong to the format, those at their defaults left out.

    Raises
    ------
    ConfigError
    """
    decoder = make_decoder(format, schema, options or {})
    return decoder if find(format).holds_rows else _LengthLimited(decoder)


def json_messages(schema: Schema) -> LineDecoder:
    """Make the decoder of messages that hold a JSON value each."""
    return objects_decoder(schema, "json", are_messages=True)


def msgpack_messages(schema: Schema) -> LineDecoder:
    """Make the decoder of messages that hold a MessagePack value each."""
    return objects_decoder(schema, "msgpack", are_messages=True)


def float_messages(schema: Schema) -> LineDecoder:
    """Make the decoder of messages of packed rows; see `decoder_for`."""
    if schema.labels or schema.time_unit != "ms":
        raise ConfigError(
            "'floats' hold times in ms and numbers, no users, keys or texts", "source.format", remedy="use 'arrow'"
        )
    schema.refuse_envelopes("messages in the format 'floats'")
    schema.refuse_elements("messages in the format 'floats'")
    return FloatBlocks(schema)


def arrow_messages(schema: Schema) -> LineDecoder:
    """Make the decoder of messages that are Arrow IPC streams; see `decoder_for`."""
    return ArrowBlocks(schema, max_rows(len(schema.features)))


def read_messages(
    decoder: LineDecoder,
    offsets: NDArray[np.int64],
    timestamps_ms: NDArray[np.int64],
    bodies: list[bytes],
    envelopes: Sequence[Envelope] = (),
) -> tuple[Batch, NDArray[np.int64], NDArray[np.int64]]:
    """Decode messages; returns their records, when each arrived (n,), and in which message each came (n,).

    Envelopes, if the schema asks for any, are parallel to the bodies, without times of arrival, which are added here.

    Positions are offsets. A message at which the decoder itself fails is rejected: otherwise it would be delivered and
    fail for ever.

    Raises
    ------
    SchemasUnreachable
    """
    if envelopes:
        pairs = zip(envelopes, timestamps_ms.tolist(), strict=True)
        envelopes = [Envelope(*each[:3], arrived) for each, arrived in pairs]
    batch = _decode(decoder, bodies, envelopes)
    messages = batch.positions
    batch.positions = offsets[messages]
    batch.rejections = moved(tell_packed(batch.rejections, bodies), offsets)
    return batch, timestamps_ms[messages], messages


def _decode(decoder: LineDecoder, bodies: list[bytes], envelopes: Sequence[Envelope]) -> Batch:
    try:
        return decoder.decode(bodies, 0, envelopes)
    except SchemasUnreachable:
        raise
    except Exception as error:
        LOG.error("the decoder fails (%s): messages that it fails at are rejected", type(error).__name__)
    whole = decoder.decode([], 0)
    for i, body in enumerate(bodies):
        try:
            part = decoder.decode([body], i, envelopes[i : i + 1])
        except SchemasUnreachable:
            raise
        except Exception:
            part = decoder.decode([], i)
            part.rejections.append(Rejection("broken_record", i))
        whole = merge(whole, part)
    return whole


class _LengthLimited:
    """Rejects messages that are too long before they are decoded."""

    def __init__(self, decoder: LineDecoder) -> None:
        self.decoder = decoder

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        if max(map(len, lines), default=0) <= LONGEST_MESSAGE:
            return self.decoder.decode(lines, first_position, envelopes)
        kept = [i for i, line in enumerate(lines) if len(line) <= LONGEST_MESSAGE]
        batch = self.decoder.decode([lines[i] for i in kept], 0, [envelopes[i] for i in kept] if envelopes else ())
        origin = first_position + np.array(kept, np.int64)
        batch.positions = origin[batch.positions]
        long = set(range(len(lines))).difference(kept)
        found = [Rejection("broken_record", first_position + i) for i in long]
        batch.rejections = tallied(moved(batch.rejections, origin) + found)
        return batch


class FloatBlocks:
    """Decoder of packed rows ``<i8, d x <f8``."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        kinds = schema.roles(places=True)
        self._codes = {k: kinds[name] for k, name in enumerate(schema.features) if name in schema.levels}
        self._dimension = len(schema.features)
        self._row = np.dtype([("time", "<i8"), ("values", "<f8", (self._dimension,))])
        self._max_rows = max_rows(self._dimension)

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Read every whole row as a record; bytes that remain after the last whole row are rejected."""
        width = self._row.itemsize
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        odd = dict.fromkeys(np.flatnonzero((lengths == 0) | (lengths % width > 0)).tolist(), "broken_record")
        odd |= dict.fromkeys(np.flatnonzero(lengths // width > self._max_rows).tolist(), "too_long")
        rejections = [Rejection(reason, first_position + i) for i, reason in odd.items()]
        counts = np.minimum(lengths // width, self._max_rows)
        times = np.empty(int(counts.sum()), np.int64)
        values = np.empty((len(times), self._dimension))
        stop = 0
        for line, count in zip(lines, counts.tolist(), strict=True):  # copied once, straight to where they stay
            if count:
                rows, start, stop = np.frombuffer(line, self._row, count), stop, stop + count
                times[start:stop] = rows["time"]
                values[start:stop] = rows["values"]
        positions = first_position + np.repeat(np.arange(len(lines)), counts)
        wrong: dict[int, Rejection] = {}
        for k, role in reversed(self._codes.items()):
            values[:, k], odd = read(values[:, k], role)
            wrong |= {i: Rejection(reason, int(positions[i]), self._schema.features[k]) for i, reason in odd.items()}
        good = (times >= -MAX_TIME_MS) & (times <= MAX_TIME_MS)
        rejections += rejected_at("bad_time", positions[~good])
        rejections += [each for i, each in wrong.items() if good[i]]
        good[list(wrong)] = False
        if not rejections:
            return Batch(times, values, positions)
        return Batch(times[good], values[good], positions[good], tallied(rejections))
