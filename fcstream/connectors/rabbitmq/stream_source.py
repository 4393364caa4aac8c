"""RabbitMQ streams: logs that are read by offset, so a stream can be read from any position.

A message's timestamp is that of its chunk: the clock of the broker that leads the stream, when it wrote the chunk. It
is stored there, so it is the same at every delivery. Brokers write streams without waiting for the disk: what a single
broker had not written yet is lost with its machine, and these offsets are given again, so use replicas.

Most clients wrap what they send in AMQP 1.0; the body of such a message is its data, of any other the message itself.
Batches may be plain or compressed with gzip. A batch that is compressed in another way, or damaged, is rejected as one
record.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...errors import SourceError
from ...formats.envelopes import Envelope, OfferedFields
from ..base import Chunk, Source
from ..retry import BrokerLost
from ..tls import TLS
from ..urls import PATIENCE, Address, UrlOption
from .chunks import ChunkMessages, body_of, pieces_of, properties_of
from .stream_connection import STREAM, STREAM_URL, RabbitConnection, checked_name

T = TypeVar("T")
LOG = logging.getLogger("fcstream.connectors.rabbitmq")
POLL_BYTES = 1 << 26
"""Size at which a poll stops reading; it exceeds this by one chunk at most."""
_QUIET_S = 30.0
_UNREADABLE = 5  # number of connections that may end at the same chunk
_GROUP = UrlOption("group", "Consumer under whose name its position is kept.", otherwise="`source.name`")
_CREDIT = UrlOption("credit", "Chunks that the broker sends ahead.", 10)


class RabbitStreamSource(Source):
    """Reads one stream, from the broker that leads it.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``rabbitmq-stream+tls`` for TLS.
    name : str
        The consumer's name. The stream keeps its position, as the offset of the last message that is not needed again.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        Opening makes one attempt only, so that a wrong address is reported at once.

    Notes
    -----
    The source connects to the broker that leads the stream by the name that it advertises (``stream.advertised_host``).
    The partitions of a super stream are streams: each is a source of its own.

    If messages were dropped by the stream's retention before they were read, reading continues with the oldest that is
    left. A warning is logged if that is noticed, which is not so after a restart, because positions are dropped with
    the messages they point to. A stream was made anew if it ends before what was read of it, or holds older offsets
    with later timestamps. It is then read from its beginning, as another partition. It may be absent for `patience_s`.
    """

    url: ClassVar = STREAM_URL
    url_options: ClassVar = (STREAM, _GROUP, _CREDIT, PATIENCE, *TLS)
    offered: ClassVar = OfferedFields(headers="application properties of AMQP 1.0")
    timestamps_are_brokers = True

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._asked = address.asked
        self._stream = checked_name(address, "stream", address.take(STREAM))
        self._name = checked_name(address, "group", address.take(_GROUP, name))
        self._credit = int(address.take_number(_CREDIT))
        self._next = -1
        self._committed = 0
        self._partition, self._times_made = self._stream, 1
        self._polled_ms: int | None = None  # the timestamp of the last message that was polled
        self._ranges = False
        self._frames: deque[Any] = deque()
        self._opened: deque[ChunkMessages] = deque()  # messages of the first frame that are not polled yet
        self._timestamp = 0
        self._has_warned = False
        self._heard, self._number = 0.0, 0
        self._link = RabbitConnection(address, self._name, patience_s, SourceError, self._stream, self._begin)
        self._link.open()

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        until = time.monotonic() + timeout_s
        self._link.repeat(lambda: self._wait(until))
        pieces: list[tuple[int, int, list[bytes]]] = []
        envelopes: list[Envelope] | None = [] if self._asked.from_source else None
        room, size = max_messages, 0
        while room > 0 and size < POLL_BYTES and (rest := self._rest()) is not None:
            first, after, messages = rest
            pieces.append((first, self._timestamp, [body_of(message) for message in messages[:room]]))
            if envelopes is not None:
                envelopes += [self._asked.envelope(headers=properties_of(message)) for message in messages[:room]]
            count = len(pieces[-1][2])
            self._next = after if count == len(messages) else first + count
            room, size = room - count, size + sum(map(len, pieces[-1][2]))
        if not pieces:
            return []
        self._polled_ms = pieces[-1][1]
        counts = [len(bodies) for *_, bodies in pieces]
        offsets = np.concatenate([np.arange(first, first + len(bodies)) for first, _, bodies in pieces])
        timestamps = np.repeat(np.array([timestamp for _, timestamp, _ in pieces]), counts)
        found = [body for *_, bodies in pieces for body in bodies]
        return [Chunk(self._partition, offsets, timestamps, found, envelopes=envelopes)]

    def ends(self) -> dict[str, int]:
        end = self._link.run(self._end)
        return {self._partition: end}

    def behind(self, ends: Mapping[str, int]) -> bool:
        return self._next < ends.get(self._partition, 0)

    def seek(self, positions: Mapping[str, int]) -> None:
        async def begin_again(client: Any) -> None:
            await self._link.unsubscribe(client, self._number)
            await self._begin(client)

        self._next, self._ranges = positions[self._stream], True
        self._link.run(begin_again)

    def commit(self, positions: Mapping[str, int]) -> None:
        position = positions.get(self._partition, 0)
        if position > self._committed:
            self._link.run(lambda client: self._store(client, position))
            self._committed = position

    def close(self) -> None:
        self._link.close()

    async def _begin(self, client: Any) -> None:
        """Continue, after every connection, with what was not polled."""
        from rstream import OffsetNotFound, OffsetType

        if self._link.damaged >= _UNREADABLE:
            raise SourceError(
                f"stream {self._stream} cannot be read after offset {self._next - 1}: the broker sends a damaged chunk",
                remedy="restore it from a replica, or begin a new stream",
            )
        if self._next < 0:
            try:
                self._next = self._committed = await client.query_offset(self._stream, self._name) + 1
            except OffsetNotFound:
                self._next = 0
        first = await self._link.end_chunk(client, OffsetType.FIRST) if self._next else None
        oldest, oldest_ms = (self._next, 0) if first is None else (first.chunk_first_offset, first.timestamp)
        if self._next < oldest:
            LOG.warning("stream %s begins at %d: messages were dropped unread", self._stream, oldest)
            self.note_gap(f"messages of stream {self._stream} were dropped unread", self._polled_ms)
        elif self._next > oldest and self._polled_ms is not None and oldest_ms > self._polled_ms:
            self._reset_partition()  # it holds messages before those read that were written after them
        await self._end(client)
        self._frames.clear()
        self._opened.clear()
        self._number = await self._link.subscribe(client, OffsetType.OFFSET, self._next, self._credit, self._keep)

    def _keep(self, frame: Any) -> None:
        self._link.damaged = 0
        with self._link.changed:
            self._frames.append(frame)
            self._link.changed.notify_all()
        self._heard = time.monotonic()

    async def _end(self, client: Any) -> int:
        """Return the offset after the last message."""
        last = await self._link.last(client)
        end = self._next if last is None else last.chunk_first_offset + last.num_records
        if end < self._next:
            self._reset_partition()
            raise BrokerLost("the stream was made anew")  # to subscribe again
        self._heard = time.monotonic()
        return int(end)

    def _reset_partition(self) -> None:
        """Give the partition another name, because offsets start again; what was polled before stays valid."""
        if self._ranges:
            raise SourceError(
                f"stream {self._stream} must go on after offset {self._next - 1}, it does not: it was made anew",
                remedy="open the source again to read it from its beginning",
            )
        LOG.warning("stream %s was made anew: it is read from its beginning", self._stream)
        self.note_gap(f"stream {self._stream} was made anew", self._polled_ms)
        self._next = self._committed = 0
        self._polled_ms = None
        self._times_made += 1
        self._partition = f"{self._stream} ({self._times_made})"

    async def _store(self, client: Any, position: int) -> None:
        # A broker does not confirm that an offset was stored, but it responds to the next request after storing it.
        await client.store_offset(self._stream, self._name, position - 1)
        if await client.query_offset(self._stream, self._name) != position - 1:
            raise BrokerLost("the offset was not stored")

    def _wait(self, until: float) -> None:
        """Wait for messages."""
        if self._left():
            return
        with self._link.changed:
            self._link.changed.wait_for(lambda: self._frames or self._link.lost, max(0.0, until - time.monotonic()))
            found = bool(self._frames)
        if not found and (self._link.lost or time.monotonic() > self._heard + _QUIET_S):
            self._link.once(self._end)  # raises if the connection is lost

    def _left(self) -> bool:
        """Return whether a part of the first chunk is left; drops what was polled of it."""
        while self._opened and self._opened[0].after <= self._next:
            self._opened.popleft()
        return bool(self._opened)

    def _rest(self) -> ChunkMessages | None:
        """Return the next messages of the first chunk that has some."""
        while not self._left():
            if not self._frames:
                return None
            frame = self._frames.popleft()
            pieces, unread = pieces_of(frame)
            self._opened, self._timestamp = deque(pieces), frame.timestamp
            self._link.add_credit(self._number)
            if unread and not self._has_warned:
                self._has_warned = True
                LOG.warning(
                    "stream %s has batches that cannot be read (%s): publish them plain or with gzip",
                    self._stream,
                    unread,
                )
        first, after, messages = self._opened[0]
        skip = max(0, self._next - first)
        return ChunkMessages(first + skip, after, messages[skip:]) if skip else self._opened[0]
