"""Readers of a JetStream stream: with a consumer that serves as a cursor, or message by message."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from typing import Any

from ...formats.envelopes import NO_FIELDS, NOTHING, AskedFields, Envelope
from ..retry import BrokerLost
from .connection import REQUEST_S, NatsConnection

Row = tuple[int, int, bytes, Envelope]  # sequence, timestamp in milliseconds, body, what was asked for besides
POLL_BYTES = 1 << 24
"""Largest size of the messages that are requested at once; as much again may be ready for the next poll."""
_ASK_S = 30.0  # the server drops a request after that
_IDLE_S = 120.0  # and a consumer after that
_LINGER_S = 0.1  # to wait for messages that follow the first
_CLOSE_S = 1.0
_NO_CURSOR = (10084, *range(10098, 10102))  # error codes: a work-queue stream demands acknowledgments


class NatsReader:
    """Cursor over a stream on one connection; unusable after a gap, or after anything that it does not understand.

    One request for many messages is open at a time. The next one is sent when the last messages are handed out, so that
    messages arrive while the caller works.
    """

    def __init__(
        self, wire: NatsConnection, stream: str, consumer: str, start: int, asked: AskedFields = NO_FIELDS
    ) -> None:
        self.client = wire.client
        self._asked_fields = asked
        self.position = start  # position after what was handed out
        self.rows: deque[Row] = deque()
        self.is_broken = False
        self._js = wire.js
        self._stream, self._consumer = stream, consumer
        self._request = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = wire.client.new_inbox()
        self._bytes = max(POLL_BYTES, 2 * wire.client.max_payload)
        self._news = asyncio.Event()
        self._subscription: Any = None
        self._requests = 0
        self._count = 0  # messages that the last request asked for
        self._asked = 0  # those of them that did not come yet
        self._forget_at = 0.0
        self._delivered = 0
        self._waiting = 0  # messages behind the last one, as the server saw it

    @classmethod
    async def open(
        cls, wire: NatsConnection, stream: str, subject: str, start: int, asked: AskedFields = NO_FIELDS
    ) -> NatsReader:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            filter_subject=None if subject == ">" else subject,
            inactive_threshold=_IDLE_S,
            mem_storage=True,
        )
        info = await wire.js.add_consumer(stream, config)
        reader = cls(wire, stream, info.name, start, asked)
        inbox = f"{reader._inbox}.*"
        reader._subscription = await reader.client.subscribe(inbox, cb=reader._arrived, pending_bytes_limit=0)
        return reader

    def is_good(self, client: Any, position: int) -> bool:
        """Return whether the reader can continue from a position: what it handed out last may not have reached the
        caller.
        """
        return not self.is_broken and self.client is client and self.position == position

    async def take(self, room: int, timeout_s: float) -> list[Row]:
        """Return up to `room` messages; waits for the first one."""
        now = asyncio.get_running_loop().time
        until = now() + timeout_s
        while len(self.rows) < room and not self.is_broken:
            self._news.clear()
            if self.rows and (not (self._asked and self._waiting) or now() > until + _LINGER_S):
                break  # the server may count messages as waiting that were purged
            if not self._asked:
                await self._ask(room)
            left = _LINGER_S if self.rows else min(until - now(), REQUEST_S)
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, left))
            except TimeoutError:
                self.is_broken = self.is_broken or now() > self._forget_at
                if self.rows or now() >= until:
                    break
        if self.is_broken and not self.rows:
            raise BrokerLost("the consumer was lost")
        taken = [self.rows.popleft() for _ in range(min(room, len(self.rows)))]
        if taken:
            self.position = taken[-1][0] + 1
        if not self.rows and not self._asked and not self.is_broken:
            await self._ask(room)
        return taken

    async def close(self) -> None:
        """End the subscription without delay; the server drops a consumer by itself."""
        self.rows.clear()
        if not self.client.is_closed:
            with suppress(Exception):
                await asyncio.wait_for(self._forget(), _CLOSE_S)

    async def _forget(self) -> None:
        await self._subscription.unsubscribe()
        await self._js.delete_consumer(self._stream, self._consumer)

    async def _ask(self, count: int) -> None:
        self._requests += 1
        self._count, self._asked, self._waiting = count, count, 1
        self._forget_at = asyncio.get_running_loop().time() + _ASK_S + REQUEST_S
        request = {"batch": count, "max_bytes": self._bytes, "expires": int(_ASK_S * 1e9)}
        await self.client.publish(self._request, json.dumps(request).encode(), f"{self._inbox}.{self._requests}")

    async def _arrived(self, message: Any) -> None:
        self._news.set()
        if not message.reply:  # the outcome of a request
            header = message.headers or {}
            status, why = header.get("Status"), header.get("Description", "")
            if message.subject == f"{self._inbox}.{self._requests}":
                if "MaxBytes" in why and self._asked == self._count:
                    self._bytes *= 2  # the next message is longer than that: the server once permitted longer ones
                self._asked = 0
                self.is_broken = self.is_broken or not (status in ("404", "408") or "MaxBytes" in why or "Batch" in why)
            return
        # $JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.delivered.nanoseconds.waiting[.random]
        tokens = message.reply.split(".")
        sequence, delivered, timestamp, waiting = tokens[5:9] if len(tokens) < 11 else tokens[7:11]
        self.is_broken = self.is_broken or int(delivered) != self._delivered + 1
        if not self.is_broken:
            self._delivered += 1
            self._asked = max(0, self._asked - 1)
            self._waiting = int(waiting)
            envelope = NOTHING
            if self._asked_fields.from_source:
                envelope = self._asked_fields.envelope(message.subject, headers=(message.headers or {}).items())
            self.rows.append((int(sequence), int(timestamp) // 1_000_000, message.data, envelope))


class SingleMessageReader:
    """Reads like a `NatsReader`, but requests each message alone: slow, but works where a consumer would remove
    messages.
    """

    def __init__(
        self, wire: NatsConnection, stream: str, subject: str, start: int, asked: AskedFields = NO_FIELDS
    ) -> None:
        self._wire, self._stream, self._subject, self._position = wire, stream, subject, start
        self._asked = asked

    async def take(self, _room: int, _timeout_s: float) -> list[Row]:
        """Return the next message, if there is one."""
        found = await self._wire.message(self._stream, seq=self._position, next_by_subj=self._subject)
        if found is None:
            return []
        self._position = found.sequence + 1
        envelope = NOTHING
        if self._asked.from_source:
            envelope = self._asked.envelope(found.subject, headers=_headers(found.header))
        return [(found.sequence, found.timestamp_ms, found.body, envelope)]

    async def close(self) -> None:
        pass


def _headers(data: bytes) -> list[tuple[str, bytes]]:
    """Read the headers of a stored message, ``NATS/1.0`` and lines of names and values, which the library parses in
    messages that it delivers only. Lines that are none are left out."""
    pairs = (line.partition(b":") for line in data.split(b"\r\n")[1:])
    return [(name.decode("utf-8", "surrogateescape"), value.strip()) for name, colon, value in pairs if colon]


async def open_reader(wire: NatsConnection, stream: str, subject: str, start: int) -> NatsReader | SingleMessageReader:
    """Open a reader of a stream of any retention policy, which removes no messages."""
    from nats.js.errors import APIError

    try:
        return await NatsReader.open(wire, stream, subject, start)
    except APIError as error:
        if error.err_code not in _NO_CURSOR:
            raise
        return SingleMessageReader(wire, stream, subject, start)
