"""AMQP sink: releases as persistent messages of a queue or an exchange, each confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...errors import SinkError
from ...releases.base import Release
from ..base import shortened
from ..retry import PendingMessages
from ..sinks import Sink
from ..tls import TLS
from ..urls import PATIENCE, Address, UrlOption
from .queue_connection import AmqpChannel, AmqpConnection

_LONGEST_ID = 255  # largest number of bytes in AMQP
_QUEUE = UrlOption("queue", "Queue that gets the releases; required without an `exchange`.", otherwise="none")
_EXCHANGE = UrlOption("exchange", "Exchange that gets them, in place of a queue.", "")
_ROUTING_KEY = UrlOption("routing_key", "Routing key, with an `exchange`.", "")


class AmqpSink(Sink):
    """Publishes releases as persistent messages, each confirmed by the broker.

    At least once: after a crash or a lost connection the last ones may come again, with the same ``message_id``, which
    is ``STREAM:OPEN:CLOSE`` of the window (milliseconds; a hash of that if it has more than 255 bytes). A broker that
    takes nothing for a while (an alarm of memory or disk) gets one copy for every `patience_s`.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``amqps`` for TLS.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
        Also (from `write`) if no queue would get the message.
    """

    url: ClassVar = "amqp://[user:password@]host[:port][,host...]/[vhost]?queue=NAME"
    url_options: ClassVar = (_QUEUE, _EXCHANGE, _ROUTING_KEY, PATIENCE, *TLS)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._exchange = address.take(_EXCHANGE)
        self._key = address.take(_ROUTING_KEY) if self._exchange else address.take(_QUEUE)
        self._where = address.masked
        self._remainder: PendingMessages[tuple[bytes, str | None]] = PendingMessages()
        self._link = AmqpConnection(address, "fcstream", patience_s, SinkError, self._prepare)
        self._link.open()

    def write(self, releases: Sequence[Release]) -> None:
        self._post([(release.to_bytes(), _id_of(release)) for release in releases])

    def send(self, bodies: Sequence[bytes]) -> None:
        self._post([(body, None) for body in bodies])

    def close(self) -> None:
        self._link.close()

    def _prepare(self, channel: AmqpChannel) -> None:
        if self._exchange:
            channel.ask(channel.client.exchange_declare, self._exchange, passive=True)
        else:
            channel.ask(channel.client.queue_declare, self._key, passive=True)
        channel.confirm_publishing()

    def _post(self, messages: list[tuple[bytes, str | None]]) -> None:
        def post(message: tuple[bytes, str | None]) -> None:
            self._link.run(lambda channel: self._publish(channel, *message), self._link.patience_s)

        self._remainder.send(messages, post)

    def _publish(self, channel: AmqpChannel, body: bytes, message_id: str | None) -> None:
        import pika

        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2, message_id=message_id)
        if not channel.publish(self._exchange, self._key, body, properties):
            raise SinkError(
                f"{self._where} must reach a queue that takes messages",
                remedy="bind one to the exchange, or make room in it",
            )


def _id_of(release: Release) -> str:
    return shortened(f"{release.series}:{release.window_open_ms}:{release.window_close_ms}", _LONGEST_ID)
