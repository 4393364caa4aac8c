"""NATS JetStream: messages are read by stream sequence, which is their identity, so a stream can be read from any
position.

A consumer here is only a cursor: it acknowledges nothing, lives in the server's memory, and is made again from the next
sequence after anything unexpected. The position from which a restart reads is kept apart, in a key-value bucket.

The client library is asynchronous: it runs in a thread of its own, and the code here waits for it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from ...errors import ConfigError, SourceError
from ...formats.envelopes import OfferedFields
from ..base import BrokerTime, Chunk, Source
from ..urls import Address, UrlOption
from .connection import CONNECTION, LONGEST, NatsConnection, checked_name, stream_of
from .reader import POLL_BYTES, NatsReader, Row, SingleMessageReader

LOG = logging.getLogger("fcstream.connectors.nats")
_UNSURE = 100  # messages
_LONGEST_BUCKET = 252  # the stream behind a bucket has three bytes more in its name
SUBJECT = UrlOption("subject", "Filter of subjects, with wildcards.", ">")
GROUP = UrlOption("group", "Consumer under whose name positions are kept.", otherwise="`source.name`")
BUCKET = UrlOption("bucket", "Bucket of positions, made with one replica if it is missing.", "fcstream_positions")


class NatsSource(Source):
    """Reads a stream, or one subject of it, with the stream as its one partition.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`.
    name : str
        The consumer's name. Its position is kept under ``STREAM.NAME`` in the bucket, which is made with one replica if
        it is missing; to have more replicas, make it before.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        Opening makes one attempt only, so that a wrong address is reported at once. The stream must exist, with
        retention policy ``limits``.

    Notes
    -----
    Timestamps are the times at which the server stored the messages. If messages were dropped before they were read,
    reading continues with the oldest that is left, and a warning is logged. A stream that was deleted and made anew has
    sequences of its own: it is read from its beginning, as another partition. It may be absent for `patience_s`.
    """

    url: ClassVar = "nats://[user:password@]host[:port][,host...]/STREAM"
    url_options: ClassVar = (SUBJECT, GROUP, BUCKET, *CONNECTION)
    offered: ClassVar = OfferedFields(topic=".", headers="NATS' headers")

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._asked = address.asked
        self._stream = stream_of(address)
        self._subject = checked_name(address.take(SUBJECT), "a `subject`", LONGEST, address)
        self._bucket = checked_name(address.take(BUCKET), "a `bucket`", _LONGEST_BUCKET, address)
        if not re.fullmatch(r"[-A-Za-z0-9_]+", self._bucket):
            raise ConfigError("must name a `bucket` of letters, digits, - and _", address.key)
        # An equals sign in a stream's name is not escaped, because existing positions are kept under such keys.
        whole = f"{_escaped(self._stream, b'=')}.{_escaped(address.take(GROUP, name))}"
        self._key = checked_name(whole, "the key of stream and `group`", LONGEST, address)
        self._reader: NatsReader | None = None
        self._next, self._created, self._warned = 0, "", 0
        self._reported = 0  # it was reported that messages before this sequence were dropped
        self._partition, self._times_made = self._stream, 1
        self._timestamp: int | None = None  # of the last message
        self._unsure = 0  # how many of the next messages may be unreadable to the client
        self._looked: tuple[int, int | None] = 0, None  # position and timestamp when the stream's extent was last read
        self._ranges = False
        self._wire = NatsConnection(address, patience_s, SourceError)
        self._wire.first(self._start)
        self._wire.is_awaited = True
        self._committed = self._next

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        if not (rows := self._wire.run(partial(self._take, max_messages, timeout_s))):
            return []
        sequences, timestamps, bodies, envelopes = zip(*rows, strict=True)
        self._find_gaps(sequences, timestamps)
        self._next, self._timestamp = sequences[-1] + 1, timestamps[-1]
        return [
            Chunk(
                *(self._partition, np.array(sequences, np.int64), np.array(timestamps, np.int64), list(bodies)),
                envelopes=list(envelopes) if self._asked.from_source else None,
            )
        ]

    def ends(self) -> dict[str, int]:
        end = self._wire.run(self._end)
        return {self._partition: end}

    def clock(self) -> BrokerTime | None:
        found = self._wire.run(partial(self._wire.clock, self._stream))
        return None if found is None else BrokerTime(*found)

    def behind(self, ends: Mapping[str, int]) -> bool:
        end = ends.get(self._partition, 0)
        if self._next >= end:
            return False

        async def ask() -> int | None:
            if self._reader is not None and self._reader.rows and self._reader.position == self._next:
                return self._reader.rows[0][0]
            first = await self._wire.message(self._stream, seq=self._next, next_by_subj=self._subject)
            return None if first is None else first.sequence

        found = self._wire.run(ask)
        return found is not None and found < end

    def seek(self, positions: Mapping[str, int]) -> None:
        self._next, self._ranges = max(1, positions[self._stream]), True

    def commit(self, positions: Mapping[str, int]) -> None:
        position = positions.get(self._partition, 0)
        if position > self._committed:
            value = json.dumps({"position": position, "created": self._created}).encode()
            self._wire.run(partial(self._put, value))
            self._committed = position

    def close(self) -> None:
        reader, self._reader = self._reader, None
        self._wire.close(None if reader is None else reader.close)

    def _find_gaps(self, sequences: Sequence[int], timestamps: Sequence[int]) -> None:
        """Report skipped sequences: their messages were purged or deleted, or are of other subjects."""
        if self._subject != ">" or self._ranges:
            return
        expected, before = self._next if self._next != self._warned else sequences[0], self._timestamp
        for sequence, timestamp in zip(sequences, timestamps, strict=True):
            if sequence != expected and sequence > self._reported:
                LOG.warning("stream %s: messages %d to %d were dropped unread", self._stream, expected, sequence - 1)
                self.note_gap(f"messages of stream {self._stream} were dropped unread", before)
            expected, before = sequence + 1, timestamp

    async def _start(self) -> None:
        """Find the sequence from which to continue."""
        import nats.js.errors

        self._created, self._next, end = await self._wire.extent(self._stream)
        try:
            kept = await (await self._wire.js.key_value(self._bucket)).get(self._key)
        except nats.js.errors.BucketNotFoundError:
            await self._wire.js.create_key_value(bucket=self._bucket, history=1)
            return
        except nats.js.errors.KeyNotFoundError:
            return
        try:
            value = json.loads(kept.value)
            position, created = int(value["position"]), str(value["created"])
            if position < 1:
                raise ValueError(position)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise SourceError(
                f"bucket {self._bucket} must hold a position as {self._key}", remedy="delete that key"
            ) from None
        if created != self._created or position > end:
            LOG.warning("stream %s was made anew: it is read from its beginning", self._stream)
            self.note_gap(f"stream {self._stream} was made anew")
        else:
            self._next = position
            await self._end()

    async def _end(self) -> int:
        """Return the sequence after the last one; also checks that it is still the same stream, without messages
        missing.
        """
        created, first, end = await self._wire.extent(self._stream)
        stream, position = self._stream, self._next
        if created != self._created or end < position:
            if self._ranges:
                raise SourceError(
                    f"stream {stream} was made anew", remedy="open the source again to read it from its beginning"
                )
            self._reset_partition(created, first)
        elif first > position > self._warned and first > self._reported:
            self._warned, self._reported = position, first
            LOG.warning("stream %s begins at %d: messages from %d on were dropped unread", stream, first, position)
            self.note_gap(f"messages of stream {stream} were dropped unread", self._timestamp)
        elif self._subject != ">" and first > self._looked[0] > 0:
            # The stream was purged since, and then got messages: whether all earlier ones were read cannot be known.
            self.note_gap(f"messages of stream {stream} may have been dropped unread", self._looked[1])
        self._looked = self._next, self._timestamp
        return end

    def _reset_partition(self, created: str, first: int) -> None:
        """Give the partition another name, because sequences start again; what was handed out before stays valid."""
        LOG.warning("stream %s was made anew: it is read from its beginning", self._stream)
        self.note_gap(f"stream {self._stream} was made anew", self._timestamp)
        self._created, self._next, self._warned, self._reported, self._committed = created, first, 0, 0, 0
        self._times_made += 1
        self._partition = f"{self._stream} ({self._times_made})"

    async def _put(self, value: bytes) -> None:
        bucket = await self._wire.js.key_value(self._bucket)
        await bucket.put(self._key, value)

    async def _take(self, room: int, timeout_s: float) -> list[Row]:
        """Return the next messages, after a broken connection one by one without subject and headers.

        The client stops reading at a message whose subject or headers it cannot parse, and any publisher could write
        one.
        """
        reader = self._reader
        if reader is None or not reader.is_good(self._wire.client, self._next):
            if reader is not None:
                await reader.close()
                self._reader = None
                self._unsure = _UNSURE if reader.is_broken or reader.client is not self._wire.client else 0
            await self._end()
            if rows := await self._take_singly(room):
                return rows
            reader = self._reader = await NatsReader.open(
                self._wire, self._stream, self._subject, self._next, self._asked
            )
        if not (rows := await reader.take(room, timeout_s)):
            await self._wire.check_reading(self._stream)
        return rows

    async def _take_singly(self, room: int) -> list[Row]:
        """Return the next messages one by one, as long as that is necessary."""
        reader = SingleMessageReader(self._wire, self._stream, self._subject, self._next, self._asked)
        rows: list[Row] = []
        size = 0
        while len(rows) < min(room, self._unsure) and size < POLL_BYTES and (found := await reader.take(1, 0.0)):
            rows += found
            size += len(found[0][2])
        self._unsure = self._unsure - len(rows) if rows else 0
        return rows


def _escaped(name: str, kept: bytes = b"") -> str:
    """Escape a name for use as a part of a key, which may hold few characters."""
    return re.sub(rb"[^-A-Za-z0-9_" + kept + rb"]", lambda odd: b"=%02X" % ord(odd[0]), name.encode()).decode()
