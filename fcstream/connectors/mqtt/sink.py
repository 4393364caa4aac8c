"""MQTT sink: releases with QoS 1 on a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...errors import ConfigError, Shown, SinkError
from ...releases.base import Release
from ..retry import PendingMessages
from ..sinks import Sink, read_release
from ..tls import TLS
from ..urls import PATIENCE, Address, UrlOption
from .connection import MqttConnection, MqttSession, ThreadedConnection, topic_of

_RETAIN = UrlOption(
    "retain",
    "`true`: the broker keeps the last release for later subscribers, which also shows after a crash what is missing.",
    "false",
)
_CLIENT_ID = UrlOption("client_id", "Name of the client.", otherwise="the broker gives one")


class MqttSink(Sink):
    """Publishes releases with QoS 1, each acknowledged by the broker.

    At least once: after a crash or a lost connection the last ones may come again.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``mqtts`` for TLS.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
    """

    url: ClassVar = "mqtt://[user:password@]host[:port][,host...]/topic"
    url_options: ClassVar = (_RETAIN, _CLIENT_ID, PATIENCE, *TLS)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._topic = topic_of(address)
        retain = address.take(_RETAIN)
        if retain not in ("true", "false") or "+" in self._topic or "#" in self._topic:
            raise ConfigError(
                "must be a topic without wildcards, `retain` true or false", address.key, got=Shown(address.masked)
            )
        self._retain = retain == "true"
        self._where = address.masked
        client_id = address.take(_CLIENT_ID, "")
        self._remainder: PendingMessages[bytes] = PendingMessages()
        self._link = MqttSession(
            address, patience_s, SinkError, ThreadedConnection.open, client_id, kind=ThreadedConnection
        )

    def write(self, releases: Sequence[Release]) -> None:
        self.send([release.to_bytes() for release in releases])

    def send(self, bodies: Sequence[bytes]) -> None:
        waiting = self._remainder.of(bodies)

        def publish(connection: MqttConnection) -> None:
            mids = [connection.publish(self._topic, body, self._retain) for body in waiting]
            for mid in mids:
                connection.expect(mid)
                waiting.popleft()

        self._link.run(publish)

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        last = self.last() if releases else None
        if last is None or last not in releases:
            return list(releases)
        end = max(i for i, release in enumerate(releases) if release == last)
        return [release for i, release in enumerate(releases) if i > end or release.stream != last.stream]

    def last(self) -> Release | None:
        if not self._retain:
            return None
        body = self._link.run(lambda connection: connection.retained(self._topic))
        wrong = f"{self._where} holds something else than a release: choose another topic"
        return read_release(body, wrong) if body else None

    def close(self) -> None:
        self._link.close()
