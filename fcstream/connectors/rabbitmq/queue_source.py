"""AMQP 0-9-1 queues (RabbitMQ): messages that are forgotten once acknowledged, so they are read through a spool."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from ...errors import ConfigError, Shown, SourceError
from ...formats.envelopes import OfferedFields
from ..base import Queue, ReceivedMessage
from ..retry import BrokerLost
from ..spool import MEMORY
from ..tls import TLS
from ..urls import PATIENCE, Address, UrlOption
from .queue_connection import AmqpChannel, AmqpConnection

_WAIT_S = 1.0  # a cancelled consumer does not end a wait
_MAX_BYTES = 1 << 24  # of messages that wait here; above it only so much is read as keeps the connection alive
_PRECONDITION_FAILED = 406
_QUEUE = UrlOption("queue", "Name of the queue, which must exist.")
_PREFETCH = UrlOption("prefetch", "Messages that the broker sends ahead, 65535 at most; memory must hold them.", 1000)
_DELIVERY_ID = UrlOption(
    "delivery_id",
    "`message_id`: those who publish give every message a `message_id` of its own, by which a message that is "
    "delivered again is known.",
    "none",
)
_ARRIVAL = UrlOption(
    "arrival",
    "`timestamp`: messages have that property (of publishers, or of RabbitMQ's "
    "`message_interceptors.incoming.set_header_timestamp`), by which a message that waited is not late.",
    "receipt",
)


class AmqpQueue(Queue):
    """Consumes a queue that exists, and acknowledges messages once the spool has them.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``amqps`` for TLS.
    name : str
        Name of the connection, as the broker lists it.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        Opening makes one attempt only, so that a wrong address is reported at once. A queue of the type ``stream`` is
        refused, because it would be read from its end.

    Notes
    -----
    Not for several threads. The broker closes a connection that is not used for some minutes; the next call opens it
    again, and unacknowledged messages come again. A quorum queue with an ``x-delivery-limit`` (20 by default since
    RabbitMQ 4) counts that as failed deliveries and drops such messages in the end: set it to -1. `close` waits until
    the broker has seen the acknowledgements. The client library ends the connection at headers that it cannot read (a
    date beyond the year 9999, for instance): whoever may publish such a message can stop the stream until the message
    is removed.
    """

    url: ClassVar = "amqp://[user:password@]host[:port][,host...]/[vhost]?queue=NAME"
    url_options: ClassVar = (_QUEUE, _PREFETCH, _DELIVERY_ID, _ARRIVAL, PATIENCE, *TLS)
    offered: ClassVar = OfferedFields(topic=".", headers="AMQP's headers")

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._asked = address.asked
        self._queue = address.take(_QUEUE)
        self._prefetch = int(address.take_number(_PREFETCH))
        identity = address.take(_DELIVERY_ID)
        if identity not in ("none", "message_id") or not 1 <= self._prefetch <= 65535:
            raise ConfigError(
                "must have `prefetch` in [1, 65535] and `delivery_id` = none or message_id",
                address.key,
                got=Shown(f"{self._prefetch} and {identity!r}"),
            )
        self._by_message_id = identity == "message_id"
        if self._by_message_id and self._prefetch > MEMORY:
            raise ConfigError(
                f"must have `prefetch` of {MEMORY} at most with a `delivery_id`: so many are remembered", address.key
            )
        self._is_stream = ConfigError(
            f"must not name a stream, {address.masked} does", address.key, remedy="use rabbitmq-stream://"
        )
        arrival = address.take(_ARRIVAL)
        if arrival not in ("receipt", "timestamp"):
            raise ConfigError("must have `arrival` = receipt or timestamp", address.key, got=arrival)
        self.gives_arrivals = arrival == "timestamp"
        self.connections = 0
        self._is_cancelled = False
        self._ready: deque[ReceivedMessage] = deque()
        self._bytes = 0  # of these messages
        self._given: deque[int] = deque()  # tags of messages that are not acknowledged yet, ascending
        self._link = AmqpConnection(address, name, patience_s, SourceError, self._consume)
        self._link.open()

    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        until = time.monotonic() + timeout_s
        self._link.run(lambda channel: self._gather(channel, max_messages, until), timeout_s)
        found = [self._ready.popleft() for _ in range(min(max_messages, len(self._ready)))]
        self._bytes -= sum(len(received.body) for received in found)
        self._given.extend(received.token[1] for received in found)
        return found

    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        tags = [one.token[1] for one in received if self.is_current(one)]
        together = tags == [self._given[i] for i in range(min(len(tags), len(self._given)))]
        if tags:
            self._link.attempt(partial(_acknowledge, tags=tags[-1:] if together else tags, multiple=together))
        if together:
            for _ in tags:
                self._given.popleft()
        else:
            self._given = deque(tag for tag in self._given if tag not in set(tags))

    def pending(self) -> bool:
        return self._link.run(self._count) > 0

    def waiting(self) -> int:
        return self._link.run(partial(self._count, is_asked=True))

    def delivery_id(self, received: ReceivedMessage) -> bytes | None:
        identity: str | bytes | None = received.token[2]  # bytes if they are not UTF-8
        if not (self._by_message_id and identity):
            return None
        return identity.encode() if isinstance(identity, str) else identity

    def is_current(self, received: ReceivedMessage) -> bool:
        return received.token[0] is self._link.channel

    def close(self) -> None:
        self._link.attempt(self._declared)  # the response comes after the acknowledgements were seen
        self._link.close()

    def _consume(self, channel: AmqpChannel) -> None:
        """Start consuming after every connection; what was not acknowledged comes again."""
        self.connections += 1
        self._ready.clear()
        self._bytes = 0
        self._given.clear()
        self._is_cancelled = False

        def take(_channel: object, method: Any, properties: Any, body: bytes) -> None:
            token = channel, method.delivery_tag, properties.message_id
            arrival = _arrival(properties) if self.gives_arrivals else None
            envelope = None
            if self._asked.from_source:
                headers = (properties.headers or {}).items()
                envelope = self._asked.envelope(_text(method.routing_key), headers=[(_text(k), v) for k, v in headers])
            self._ready.append(ReceivedMessage(body, token, arrival, envelope))
            self._bytes += len(body)
            channel.wake()

        def cancel(_frame: object) -> None:
            self._is_cancelled = True
            channel.wake()

        if self._names_stream(channel):
            raise self._is_stream
        channel.ask(channel.client.basic_qos, prefetch_count=self._prefetch)
        channel.client.add_on_cancel_callback(cancel)  # the queue was deleted, or moved
        channel.ask(channel.client.basic_consume, self._queue, take)

    def _names_stream(self, channel: AmqpChannel) -> bool:
        """Return whether the queue is a stream.

        Only a stream accepts a consumer that says where to begin; other queues report an error and deliver nothing.
        """
        import pika

        if not channel.is_rabbitmq:  # other brokers may not report the error
            return False
        other = channel.new_channel()
        try:
            channel.ask(other.basic_qos, prefetch_count=1)
            channel.ask(other.basic_consume, self._queue, lambda *_: None, arguments={"x-stream-offset": "next"})
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code != _PRECONDITION_FAILED:
                raise
            channel.forgive()
            return False
        return True

    def _declared(self, channel: AmqpChannel) -> Any:
        """Ask the broker for the queue's state."""
        return channel.ask(channel.client.queue_declare, self._queue, passive=True)

    def _gather(self, channel: AmqpChannel, max_messages: int, until: float) -> None:
        """Wait for the first message, then take those that are there."""
        before = -1
        while before < len(self._ready) < max_messages and self._bytes <= _MAX_BYTES:
            before = len(self._ready)
            channel.serve(0 if before else max(0.0, min(until - time.monotonic(), _WAIT_S)))
            self._check()
            if not self._ready and time.monotonic() < until:
                before = -1

    def _count(self, channel: AmqpChannel, is_asked: bool = False) -> int:
        """Count the messages that the broker could still deliver.

        It is asked twice, because the second response follows what the broker was sending at the first.
        """
        waiting = 0
        for _ in range(2 if is_asked or not self._ready else 0):
            waiting = int(self._declared(channel).message_count)
        channel.serve(0)
        self._check()
        return len(self._ready) + waiting

    def _check(self) -> None:
        if self._is_cancelled and not self._ready:  # a deleted queue delivers nothing again
            raise BrokerLost("the queue cancelled its consumer")


def _arrival(properties: Any) -> int | None:
    """Read when a message arrived: in milliseconds from the header that RabbitMQ's own stamping writes, else in
    seconds.
    """
    for value, unit in (((properties.headers or {}).get("timestamp_in_ms"), 1), (properties.timestamp, 1000)):
        if isinstance(value, int) and value > 0:
            return value * unit
    return None


def _text(name: str | bytes) -> str:
    """Return a name, which the client library leaves as bytes if it is no UTF-8."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name)


def _acknowledge(channel: AmqpChannel, tags: Sequence[int], multiple: bool) -> None:
    for tag in tags:
        channel.client.basic_ack(tag, multiple=multiple)
    channel.serve(0)  # sends them
