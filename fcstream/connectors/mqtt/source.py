"""MQTT 5 topics: messages that a broker forgets once acknowledged, so they are read through a spool.

While a client is disconnected, the broker keeps messages for it in its session: as many, and as long, as the broker is
configured to (Mosquitto: ``max_queued_messages``, 1000 by default; further ones are dropped). While it is connected, a
broker keeps as many besides those that it has sent ahead (``inflight``). So a thread does nothing but receive, store
and acknowledge (`fcstream.connectors.received`), and much is sent ahead. Publishers must use QoS 1 or 2: messages of
QoS 0 are read, but may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from ...errors import ConfigError, SourceError
from ...formats.envelopes import OfferedFields
from ..base import ImpatientQueue, ReceivedMessage
from ..retry import close_quietly
from ..tls import TLS
from ..urls import PATIENCE, Address, UrlOption
from .connection import MqttConnection, MqttSession, topic_of

CLIENT_ID = UrlOption("client_id", "Name of the client; every process needs one of its own.", otherwise="`source.name`")
SESSION = UrlOption("session", "Seconds for which the broker keeps the session.", 604800)
INFLIGHT = UrlOption("inflight", "Messages that the broker sends ahead, 65535 at most.", 65535)
DELIVERY_ID = UrlOption(
    "delivery_id",
    "Name of a user property in which those who publish give every message a value of its own, by which a message that "
    "is delivered again is known.",
    "",
)
ARRIVAL = UrlOption(
    "arrival",
    "Name of a user property with the time of sending (Unix milliseconds), by which a message that waited is not late.",
    "",
)


class MqttTopic(ImpatientQueue):
    """Subscribes with a session that the broker keeps, and acknowledges messages once the spool has them.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``mqtts`` for TLS. ``+`` and ``%23`` (for ``#``) are wildcards,
        ``$share/GROUP/filter`` shares the topic with other processes.
    name : str
        The consumer's name.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        Opening makes one attempt only, so that a wrong address is reported at once.

    Notes
    -----
    Retained messages are not read, because they would come again with every connection. Messages of a topic that an
    earlier configuration subscribed to are dropped.
    """

    url: ClassVar = "mqtt://[user:password@]host[:port][,host...]/topic/filter"
    url_options: ClassVar = (CLIENT_ID, SESSION, INFLIGHT, DELIVERY_ID, ARRIVAL, PATIENCE, *TLS)
    offered: ClassVar = OfferedFields(topic="/", headers="user properties")

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        topic = topic_of(address)
        self._asked = address.asked
        self._inflight = int(address.take_number(INFLIGHT))
        if self._inflight > 65535:
            raise ConfigError("must have `inflight` in [1, 65535]", address.key, got=self._inflight)
        self._identity, self._arrival = address.take(DELIVERY_ID), address.take(ARRIVAL)
        self.gives_arrivals, self.connections = bool(self._arrival), 0
        self._alive_ms: int | None = None  # when messages could be received last
        self._forgotten = 0
        self.redelivers = self._inflight if self._identity else 0
        client_id = address.take(CLIENT_ID, name)
        expiry_s = int(address.take_number(SESSION))
        session = {"ReceiveMaximum": self._inflight, "SessionExpiryInterval": expiry_s}
        self._filter = topic
        self._link = MqttSession(address, patience_s, SourceError, self._subscribe, client_id, session)
        assert self._link.connection is not None
        self.was_known = self._link.connection.is_resumed

    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        until = time.monotonic() + timeout_s
        # so that more messages are on their way while these are put on disk
        limit = min(max_messages, max(1, self._inflight // 4))
        found = self._link.run(lambda connection: connection.take(limit, until))
        if self._link.forgotten != self._forgotten:
            self._forgotten = self._link.forgotten
            self.note_gap("the broker had forgotten the session, and what it kept in it", self._alive_ms)
        self._alive_ms = time.time_ns() // 1_000_000
        return found

    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        if (link := self._link.connection) is not None:
            link.acknowledge([one.token for one in received if one.token[0] is link])

    def pending(self) -> bool:
        return self._link.run(lambda connection: connection.has_messages())

    def waiting(self) -> int | None:
        return self._link.run(lambda connection: connection.remaining())

    def delivery_id(self, received: ReceivedMessage) -> bytes | None:
        found: bytes | None = received.token[3]
        return found

    def is_current(self, received: ReceivedMessage) -> bool:
        connection: MqttConnection = received.token[0]
        return connection is self._link.connection and connection.lost is None

    def close(self) -> None:
        if self._link.connection is not None:
            close_quietly(self._link.connection.settle)  # so that the broker has seen the acknowledgements
        self._link.close()

    def _subscribe(self, connection: MqttConnection, host: str, port: int) -> None:
        # Messages come as soon as there is a connection, and cannot be taken before the subscription is confirmed.
        self.connections += 1
        connection.collect(self._filter, self._identity, self._arrival, self._asked)
        connection.open(host, port)
        connection.subscribe(self._filter, retained=False)
