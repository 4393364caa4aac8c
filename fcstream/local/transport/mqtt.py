"""Asking devices over MQTT 5: questions on ``PREFIX/ask/GATEWAY``, replies on ``PREFIX/reply/ANALYST``.

The broker need not store messages: a lost one is sent again under the same id. URLs are
``mqtt://[user:password@]host[:port]/prefix``, ``mqtts`` for TLS with the options ``ca``, ``cert`` and ``key``.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ...connectors.mqtt.connection import detach
from ...connectors.tls import tls_context, tls_failure
from ...connectors.urls import Address, parse
from ...errors import ConfigError, Shown, SourceError, needs_package
from .gateway import LARGEST, LARGEST_REPLY, Gateway

LOG = logging.getLogger("fcstream.local")
_PATIENCE_S = 10.0
_WAITING = 2**24  # bytes of messages that a gateway keeps in memory; more stay with the broker
_AT_ONCE = 3  # messages answered with the same two durable writes; with more, each would take longer


class _MqttClient:
    """A client that subscribes anew after each reconnect; the broker sends it no message above `max_bytes`."""

    def __init__(self, address: Address, topic: str, max_bytes: int, on_message: Callable[[Any], None]) -> None:
        with needs_package("paho-mqtt", "mqtt", address.key):
            from paho.mqtt import client as paho
            from paho.mqtt.packettypes import PacketTypes
            from paho.mqtt.properties import Properties
        self._topic, self._ready, self._refused = topic, threading.Event(), ""
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, f"fcstream-{uuid.uuid4()}", protocol=paho.MQTTv5)
        self.client.max_inflight_messages_set(1000)
        self.client.reconnect_delay_set(1, 5)
        if address.user is not None:
            self.client.username_pw_set(address.user, address.password)
        if address.scheme == "mqtts":
            self.client.tls_set_context(tls_context(address))
        address.finish()
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = lambda *_: self._ready.set()
        self.client.on_message = lambda _client, _data, message: on_message(message)
        host, port = address.host(8883 if address.scheme == "mqtts" else 1883)
        properties = Properties(PacketTypes.CONNECT)
        properties.MaximumPacketSize = (
            max_bytes + 2**16
        )  # the topic, and properties of a length that a broker may choose
        try:
            self.client.connect(host, port, 30, properties=properties)
        except OSError as error:
            reason = tls_failure(error) or error.strerror or type(error).__name__
            raise SourceError(f"{address.masked} cannot be reached: {reason}") from None
        self.client.loop_start()
        if not self._ready.wait(_PATIENCE_S) or self._refused:
            self.close()
            raise SourceError(f"{address.masked} refuses: {self._refused or 'no answer'}")

    def _on_connect(self, client: Any, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        if code.is_failure:
            self._refused = str(code)
            self._ready.set()
        else:
            client.subscribe(self._topic, qos=1)

    def publish(self, topic: str, body: bytes, batch: bytes | None, reply_to: str = "") -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)
        if batch is not None:
            properties.CorrelationData = batch
        if reply_to:
            properties.ResponseTopic = reply_to
        self.client.publish(topic, body, qos=1, properties=properties)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
        detach(self.client)


def _address(url: str, key: str) -> tuple[Address, str]:
    address = parse(url, key)
    if address.scheme not in ("mqtt", "mqtts") or not address.path or set(address.path) & set("+#"):
        raise ConfigError("must be mqtt://HOST/PREFIX without wildcards", key, got=Shown(address.masked))
    return address, address.path


class _MessageQueue(queue.Queue[Any]):
    """A queue of messages, limited by their bytes; None ends it."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self._bytes = 0

    def _qsize(self) -> int:
        return self._bytes

    def _put(self, item: Any) -> None:
        super()._put(item)
        self._bytes += _size(item)

    def _get(self) -> Any:
        item = super()._get()
        self._bytes -= _size(item)
        return item


def _size(message: Any) -> int:
    return 1 if message is None else len(message.payload) + 1000


class MqttGateway:
    """Answers for a gateway's devices over MQTT.

    Parameters
    ----------
    url : str
    name : str
        The name by which analysts address the gateway.
    gateway : Gateway

    Raises
    ------
    ConfigError, SourceError
    """

    def __init__(self, url: str, name: str, gateway: Gateway) -> None:
        address, self._prefix = _address(url, "listen.url")
        self._gateway = gateway
        self._queue = _MessageQueue(_WAITING)
        self.failed: Exception | None = None
        self._link = _MqttClient(address, f"{self._prefix}/ask/{name}", LARGEST, self._queue.put)
        self._thread = threading.Thread(target=self._work, name="fcstream-gateway", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        messages: list[Any] = []
        while None not in messages:
            messages = [self._queue.get()]
            with suppress(queue.Empty):
                while len(messages) < _AT_ONCE and messages[-1] is not None:
                    messages.append(self._queue.get_nowait())
            if self.failed is None:  # else only empty the queue, so that the client's thread, which fills it, can end
                try:
                    self._answer([message for message in messages if message is not None])
                except Exception as error:
                    self.failed = error
                    LOG.error("the gateway stops: %s", type(error).__name__)

    def _answer(self, messages: list[Any]) -> None:
        asked = [message for message in messages if self._is_ours(message)]
        replies = self._gateway.answer_many([message.payload for message in asked])
        for message, reply in zip(asked, replies, strict=True):
            batch = getattr(message.properties, "CorrelationData", None)
            self._link.publish(message.properties.ResponseTopic, reply, batch)

    def _is_ours(self, message: Any) -> bool:
        """Whether the reply goes to a reply topic: a question must not make a device publish elsewhere."""
        topic = getattr(message.properties, "ResponseTopic", "")
        return topic.startswith(f"{self._prefix}/reply/") and not set(topic) & set("+#")

    def wait(self, stop: threading.Event) -> None:
        """Serve until `stop` is set.

        Raises
        ------
        LedgerError
            The journal could not be written: devices do not answer any more.
        """
        while not stop.wait(0.2):
            if self.failed is not None:
                raise self.failed

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(_PATIENCE_S)
        self._link.close()


class MqttTransport:
    """The analyst's side over MQTT; gateways are addressed by name.

    Parameters
    ----------
    url : str

    Raises
    ------
    ConfigError, SourceError
    """

    def __init__(self, url: str) -> None:
        address, self._prefix = _address(url, "analyst.url")
        self._replies = f"{self._prefix}/reply/{uuid.uuid4()}"
        self._changed = threading.Condition()
        self._came: dict[str, bytes] = {}
        self._wanted: set[str] = set()
        self._link = _MqttClient(address, self._replies, LARGEST_REPLY, self._take)

    def _take(self, message: Any) -> None:
        batch = getattr(message.properties, "CorrelationData", b"").decode(errors="replace")
        with self._changed:
            if batch in self._wanted:
                self._came[batch] = message.payload
                self._changed.notify_all()

    def exchange(self, messages: Mapping[str, tuple[str, bytes]], timeout_s: float) -> dict[str, bytes]:
        with self._changed:
            self._wanted, self._came = set(messages), {}
        until = time.monotonic() + timeout_s
        for batch, (gateway, body) in messages.items():
            self._link.publish(f"{self._prefix}/ask/{gateway}", body, batch.encode(), self._replies)
        with self._changed:
            self._changed.wait_for(lambda: len(self._came) == len(messages), max(0.0, until - time.monotonic()))
            self._wanted = set()
            return self._came

    def close(self) -> None:
        self._link.close()
