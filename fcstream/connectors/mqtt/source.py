"""MQTT 5 topics: messages that a broker forgets once acknowledged, so they are read through a spool.

A broker keeps messages for a client that is away, in its session: as many, and as long, as it is configured to
(Mosquitto: ``max_queued_messages``, 1000 by default; the rest is dropped). Publishers must use QoS 1 or 2: messages of
QoS 0 are taken, but may be lost.
"""

from __future__ import annotations

import functools
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...errors import ConfigError, FcstreamError, SinkError, SourceError
from ...releases.base import Release
from ..base import ReceivedMessage
from ..retry import PendingMessages, close_quietly, with_patience
from ..spool import MEMORY
from ..tls import tls_context, tls_failure
from ..urls import missing_library

if TYPE_CHECKING:
    from ..urls import Address

T = TypeVar("T")
LOG = logging.getLogger("fcstream.connectors.mqtt")
_ANSWER_S = 10.0
_KEEPALIVE_S, _PATIENT_S = 60, 240  # the second where the connection is served between other work only
_TAKEN_OVER = 0x8E
_NOTHING = "fcstream/nothing"  # a topic to ask about, for the sake of the answer
_FIGHT, _FIGHT_S = 10, 10.0
_MAX = 1_000_000  # messages that are kept while an answer is waited for; no broker sends as many unasked
_MAX_BYTES = 1 << 24  # of messages that wait here: beyond, nothing is read, and the broker has to wait


class MqttTopic:
    """Subscribes with a session that the broker keeps, and acknowledges what the spool has; an `AckSource`.

    Parameters
    ----------
    address : Address
        ``mqtt://[user:password@]host[:port][,host...]/topic/filter``, ``mqtts`` for TLS; ``+`` and ``%23`` (for ``#``)
        are wildcards, ``$share/GROUP/filter`` shares the topic with other processes. Options: ``client_id`` (the
        consumer's name; every process needs one of its own), ``session`` (seconds that the broker keeps it; a week),
        ``inflight`` (messages that it sends ahead, its receive maximum; 1000), ``delivery_id=NAME`` if those who
        publish give every message a user property of that name and a value of its own, which tells a message that is
        delivered again; ``arrival=NAME`` if they give each a user property of that name with the time of sending (Unix
        milliseconds), by which a message that waited is not late; ``patience`` (seconds), and with TLS ``ca``,
        ``cert``, ``key`` (files in PEM).
    name : str
        The consumer's.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        The broker is asked at once, and not twice.

    Notes
    -----
    Retained messages are not read: they would come again with every connection. Messages of a topic that an earlier
    configuration subscribed to are dropped. The client library ends the connection at a text that holds U+FEFF, in a
    user property for instance: who may publish such a message can hold the stream up until it expires.
    """

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        topic = _topic(address)
        self._inflight = int(address.take_number("inflight", 1000))
        if self._inflight > 65535:
            raise ConfigError(f"must have `inflight` in [1, 65535], got {self._inflight}", address.key)
        self._identity, self._arrival = address.take("delivery_id", ""), address.take("arrival", "")
        self.gives_arrivals, self.connections = bool(self._arrival), 0
        if self._identity and self._inflight > MEMORY:
            raise ConfigError(
                f"must have `inflight` of {MEMORY} at most with a `delivery_id`: so many are remembered", address.key
            )
        client_id = address.take("client_id", name)
        expiry_s = int(address.take_number("session", 604800))
        session = {"ReceiveMaximum": self._inflight, "SessionExpiryInterval": expiry_s}
        self._filter = topic
        self._link = _MqttSession(address, patience_s, SourceError, self._subscribe, client_id, session)

    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        until = time.monotonic() + timeout_s
        limit = min(max_messages, max(1, self._inflight // 4))  # so that more is under way while these are put on disk
        return self._link.run(lambda connection: connection.take(limit, until))

    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        if (link := self._link.connection) is not None:
            link.acknowledge([one.token for one in received if one.token[0] is link])

    def pending(self) -> bool:
        return self._link.run(lambda connection: connection.has_messages())

    def waiting(self) -> int | None:
        return self._link.run(lambda connection: connection.remaining())

    def delivery_id(self, received: ReceivedMessage) -> bytes | None:
        """What a message keeps when it is delivered again; None if it has nothing."""
        found: bytes | None = received.token[3]
        return found

    def is_current(self, received: ReceivedMessage) -> bool:
        """Whether the connection that it came by is still the one."""
        connection: _MqttConnection = received.token[0]
        return connection is self._link.connection and connection.lost is None

    def close(self) -> None:
        if self._link.connection is not None:
            close_quietly(self._link.connection.settle)  # acknowledgements are seen
        self._link.close()

    def _subscribe(self, connection: _MqttConnection, host: str, port: int) -> None:
        # Messages come with the connection. Until the subscription is confirmed, nobody takes them.
        self.connections += 1
        connection.collect(self._filter, self._identity, self._arrival)
        connection.open(host, port)
        connection.subscribe(self._filter, retained=False)


class MqttSink:
    """Publishes releases with QoS 1, each acknowledged by the broker; a `Sink`.

    At least once: after a crash or a lost connection the last ones may come again.

    Parameters
    ----------
    address : Address
        ``mqtt://[user:password@]host[:port][,host...]/topic``, ``mqtts`` for TLS. Options: ``retain=true`` (the broker
        keeps the last release for those who come later, and tells after a crash what is missing), ``client_id``,
        ``patience``, and those of TLS.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
    """

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._topic = _topic(address)
        retain = address.take("retain", "false")
        if retain not in ("true", "false") or "+" in self._topic or "#" in self._topic:
            raise ConfigError(
                f"must be a topic without wildcards, `retain` true or false, got {address.masked}", address.key
            )
        self._retain = retain == "true"
        self._where = address.masked
        client_id = address.take("client_id", "")
        self._remainder: PendingMessages[bytes] = PendingMessages()
        self._link = _MqttSession(
            address, patience_s, SinkError, _ThreadedConnection.open, client_id, kind=_ThreadedConnection
        )

    def write(self, releases: Sequence[Release]) -> None:
        self.send([release.to_bytes() for release in releases])

    def send(self, bodies: Sequence[bytes]) -> None:
        waiting = self._remainder.of(bodies)

        def publish(connection: _MqttConnection) -> None:
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
        try:
            return Release.from_bytes(body) if body else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SinkError(f"{self._where} holds something else than a release: choose another topic") from None

    def close(self) -> None:
        self._link.close()


class _MqttLost(Exception):
    """The connection."""


class _BrokerRefused(Exception):
    """What the broker will not do, however often it is asked."""


class _MqttSession:
    """Connections, one after the other; errors tell no secrets."""

    def __init__(
        self,
        address: Address,
        patience_s: float,
        error: type[FcstreamError],
        prepare: Callable[[Any, str, int], None],
        client_id: str = "",
        session: Mapping[str, int] = MappingProxyType({}),
        kind: type[_MqttConnection] | None = None,
    ) -> None:
        try:
            import paho.mqtt.client  # noqa: F401
        except ImportError:
            raise missing_library("paho-mqtt", "mqtt", address.key) from None
        self.connection: _MqttConnection | None = None
        self._kind = kind or _MqttConnection
        self._address, self._error, self._prepare = address, error, prepare
        self._client_id, self._session = client_id, session
        self._times: deque[float] = deque(maxlen=_FIGHT)  # of connections that were made
        self._is_known = False  # to the broker: it had a session of ours
        self._patience_s = address.take_number("patience", patience_s)
        self._tls = tls_context(address) if address.scheme == "mqtts" else None
        address.finish()
        try:
            self._connect()
        except (_MqttLost, _BrokerRefused) as failed:
            raise self._unusable(failed) from None

    def run(self, action: Callable[[_MqttConnection], T]) -> T:
        """Do something with the connection that is safe to repeat."""
        try:
            return with_patience(
                lambda: self._once(action), self._connect, (_MqttLost,), self._patience_s, self._unusable
            )
        except _BrokerRefused as refused:
            raise self._unusable(refused) from None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _once(self, action: Callable[[_MqttConnection], T]) -> T:
        if self.connection is None:
            raise _MqttLost("not connected")
        return action(self.connection)

    def _connect(self) -> None:
        known = self._session
        self.close()
        if known and len(self._times) == _FIGHT and time.monotonic() < self._times[0] + _FIGHT_S:
            self._times.clear()
            raise _BrokerRefused(
                "connections are lost again and again; does another process have the same `client_id`?"
            )
        lost = _MqttLost("no host")
        for host, given in self._address.hosts:
            port = given or (1883 if self._tls is None else 8883)
            connection = self._kind(self._client(), known)
            try:
                self._prepare(connection, host, port)
            except _MqttLost as error:
                connection.close()
                lost = error
            except BaseException:
                connection.close()
                raise
            else:
                if self._is_known and known and not connection.is_resumed:
                    LOG.warning("%s has forgotten the session: messages may have been lost", self._address.masked)
                self._times.append(time.monotonic())
                self.connection, self._is_known = connection, True
                return
        raise lost

    def _client(self) -> Any:
        from paho.mqtt import client, enums

        made = client.Client(
            enums.CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=client.MQTTv5,
            manual_ack=True,
            reconnect_on_failure=False,  # a new connection is a new client: no acknowledgement strays into it
        )
        made.connect_timeout = _ANSWER_S
        if self._address.user is not None:
            made.username_pw_set(self._address.user, self._address.password)
        if self._tls is not None:
            made.tls_set_context(self._tls)
        return made

    def _unusable(self, error: BaseException) -> FcstreamError:
        return self._error(f"{self._address.masked} cannot be used: {error}; start the broker, or correct the address")


class _MqttConnection:
    """One connection: opened once, used, thrown away. The network is served while something is waited for, by whoever
    waits: a thread for it would take turns with ours for every message."""

    keepalive_s = _PATIENT_S

    def __init__(self, client: Any, session: Mapping[str, int]) -> None:
        self.client = client
        self.lost: str | None = None
        self.is_resumed = False
        self._session = session
        # More than a broker sends ahead: what it answers lies behind those.
        self._room = session.get("ReceiveMaximum", 65535) + 1
        self._answers: dict[int, list[Any]] = {}  # packet -> reason codes; 0 is the connection
        self._messages: deque[ReceivedMessage] = deque()
        self._unacknowledged = 0  # taken or waiting here
        self._bytes = 0  # of these messages
        self._subscribing: int | None = None  # the packet whose answer lies behind messages that have to be taken first
        self._is_taken_over = False
        client.on_connect = self._on_connect
        client.on_disconnect = lambda _c, _u, _flags, code, _p: self._lose(str(code), code.value == _TAKEN_OVER)
        client.on_subscribe = lambda _c, _u, mid, codes, _p: self._tell(mid, codes)
        client.on_unsubscribe = lambda _c, _u, mid, _codes, _p: self._tell(mid, [])
        client.on_publish = lambda _c, _u, mid, code, _p: self._tell(mid, [code])

    def open(self, host: str, port: int) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)
        for name, value in self._session.items():
            setattr(properties, name, value)
        self._start()
        try:
            self.client.connect(host, port, self.keepalive_s, clean_start=not self._session, properties=properties)
        except OSError as error:
            raise _MqttLost(tls_failure(error) or error.strerror or type(error).__name__) from None
        self._started()
        self.answer(0)

    def collect(self, topic: str, identity: str, arrival: str) -> None:
        """Keep the messages of a filter for `take`, each with the user properties that name it and say when it came,
        if those have names; to be called before `open`."""
        from paho.mqtt.client import topic_matches_sub

        bare = topic.split("/", 2)[2] if topic.startswith("$share/") else topic

        @functools.lru_cache(1000)
        def is_ours(name: str) -> bool:
            return bool(topic_matches_sub(bare, name))

        def given(message: Any, wanted: str) -> str | None:
            found = getattr(message.properties, "UserProperty", []) if wanted else []
            return next((value for name, value in found if name == wanted and value), None)

        def keep(_client: object, _userdata: object, message: Any) -> None:
            mid, qos = message.mid, message.qos
            try:
                known = is_ours(message.topic)
            except UnicodeDecodeError:
                known = False
            if known:
                name = given(message, identity)
                token = self, mid, qos, None if name is None else name.encode()
                self._messages.append(ReceivedMessage(message.payload, token, _milliseconds(given(message, arrival))))
                self._unacknowledged += qos > 0
                self._bytes += len(message.payload)
            else:
                self.client.ack(mid, qos)

        self.client.on_message = keep

    def subscribe(self, topic: str, retained: bool) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        kind = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE if retained else SubscribeOptions.RETAIN_DO_NOT_SEND
        _, mid = self.client.subscribe(topic, options=SubscribeOptions(qos=1, retainHandling=kind))
        if mid is None:
            raise _MqttLost("not connected")
        self._sent(mid)
        self._subscribing = mid
        self._serve_until(lambda: mid in self._answers or self._is_laden, _ANSWER_S)
        self._check()
        if self._subscribing is not None and not self._is_laden:
            raise _MqttLost("no answer")

    @property
    def _is_laden(self) -> bool:
        """Whether so much waits here that it must be taken before anything else is read."""
        return self._bytes > _MAX_BYTES

    def settle(self) -> None:
        """Ask something, so that all that was sent before, either way, has arrived; messages are not kept any more."""
        self.client.on_message = None
        self.request(self.client.unsubscribe, _NOTHING)

    def take(self, max_messages: int, until: float) -> list[ReceivedMessage]:
        if self.lost is None:
            self._serve(0.0, max_messages)  # also if messages wait here: the connection must stay
        self._serve_until(lambda: bool(self._messages), max(0.0, until - time.monotonic()), max_messages)
        self._check()
        taken = [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]
        self._bytes -= sum(len(received.body) for received in taken)
        return taken

    def acknowledge(self, tokens: Sequence[tuple[Any, int, int, bytes | None]]) -> None:
        if self.lost is None:
            for _, mid, qos, _ in tokens:
                self.client.ack(mid, qos)
                self._unacknowledged -= qos > 0
            self.client.loop_write()

    def has_messages(self) -> bool:
        """Whether messages wait here; if not, whether the broker had sent some before it answers."""
        if self.lost is None:
            self._serve(0.0, self._room)
        if not self._messages:
            _, mid = self.client.unsubscribe(_NOTHING)
            self._answers.pop(mid, None)  # of a packet of this number that nobody waited for to the end
            self._serve_until(lambda: bool(self._messages) or mid in self._answers, _ANSWER_S, self._room)
            self._check()
            if not self._messages and self._answers.pop(mid, None) is None:
                raise _MqttLost("no answer")
        return bool(self._messages)

    def remaining(self) -> int | None:
        """How many messages the broker has for us that were not taken, all of which wait here then; None if it might
        have more: it sends as many as it may without an acknowledgment."""

        def has_room() -> bool:
            return self._unacknowledged < self._room - 1 and not self._is_laden

        _, mid = self.client.unsubscribe(_NOTHING)
        self._answers.pop(mid, None)
        self._serve_until(lambda: not has_room() or mid in self._answers, _ANSWER_S, self._room)
        self._check()
        if self._answers.pop(mid, None) is None and has_room():
            raise _MqttLost("no answer")
        return len(self._messages) if has_room() else None

    def retained(self, topic: str) -> bytes:
        """What the broker keeps for a topic; empty if nothing."""
        found: list[bytes] = []

        def keep(_client: object, _userdata: object, message: Any) -> None:
            self.client.ack(message.mid, message.qos)
            if message.retain:
                found.append(message.payload)

        self.client.on_message = keep
        self.subscribe(topic, retained=True)
        self.request(self.client.unsubscribe, topic)
        return found[-1] if found else b""

    def publish(self, topic: str, body: bytes, retain: bool) -> int:
        return int(self.client.publish(topic, body, qos=1, retain=retain).mid)

    def request(self, ask: Callable[..., tuple[Any, int | None]], *args: Any, **options: Any) -> list[Any]:
        """Send something and wait for the answer."""
        _, mid = ask(*args, **options)
        if mid is None:
            raise _MqttLost("not connected")
        self._sent(mid)
        return self.answer(mid)

    def answer(self, mid: int) -> list[Any]:
        """Wait for the reason codes of a packet."""
        self._serve_until(lambda: mid in self._answers, _ANSWER_S)
        if mid not in self._answers:
            self._check()
            raise _MqttLost("no answer")
        return self._answers.pop(mid)

    def expect(self, mid: int) -> None:
        """Wait until the broker has taken what was published."""
        for code in self.answer(mid):
            if code.is_failure:
                self._lose("a message was refused", False)  # with the answers to those after it
                raise _BrokerRefused(str(code))

    def close(self) -> None:
        self._lose("closed", False)
        close_quietly(self.client.disconnect, self._stop)

    def _start(self) -> None:
        self.client.on_socket_register_write = lambda *_: None  # packets wait for us to write them

    def _started(self) -> None:
        pass

    def _stop(self) -> None:
        self.client.loop_write()
        if (network := self.client.socket()) is not None:
            network.close()

    def _sent(self, mid: int) -> None:
        self._answers.pop(mid, None)  # as in `has_messages`

    def _serve_until(self, is_so: Callable[[], bool], seconds: float, max_messages: int = _MAX) -> None:
        """Serve the network until something is so, the connection is lost, or the time is over."""
        until = time.monotonic() + seconds
        while not is_so() and self.lost is None:
            self._serve(max(0.0, until - time.monotonic()), max_messages)
            if time.monotonic() >= until:
                return

    def _serve(self, seconds: float, max_messages: int) -> None:
        """Write what waits to be written, and read what is there, up to `max_messages` messages; wait if nothing is."""
        self.client.loop_write()
        network = self.client.socket()
        if network is None:
            self._lose("the connection was closed", False)
            return
        is_there = bool(getattr(network, "pending", int)())  # TLS has read ahead
        if not is_there:
            poll = select.poll()
            poll.register(network, select.POLLIN | (select.POLLOUT if self.client.want_write() else 0))
            is_there = any(event & ~select.POLLOUT for _, event in poll.poll(1000 * seconds))
        before = -1
        while is_there and before < len(self._messages) < max_messages and not self._is_laden:
            before = len(self._messages)
            self.client.loop_read()
        self.client.loop_misc()
        self.client.loop_write()

    def _check(self) -> None:
        if self._is_taken_over:
            raise _BrokerRefused("another process has the same `client_id`: give each its own")
        if self._subscribing in self._answers:
            codes, self._subscribing = self._answers.pop(self._subscribing), None
            if [code.value for code in codes] != [1]:
                raise _BrokerRefused(f"the subscription gets {codes[0]}, not QoS 1")
        if self.lost is not None:
            raise _MqttLost(self.lost)

    def _on_connect(self, _client: object, _userdata: object, flags: Any, code: Any, _properties: object) -> None:
        self.is_resumed = bool(flags.session_present)
        if code.is_failure:
            self._lose(str(code), False)
        else:
            self._tell(0, [])

    def _tell(self, mid: int, codes: list[Any]) -> None:
        self._answers[mid] = codes

    def _lose(self, why: str, is_taken_over: bool) -> None:
        self.lost = self.lost or why
        self._is_taken_over = self._is_taken_over or is_taken_over
        self._messages.clear()  # they come again
        self._bytes = 0


class _ThreadedConnection(_MqttConnection):
    """The network runs in a thread of the client's, so that the connection stays while nobody uses it."""

    keepalive_s = _KEEPALIVE_S

    def __init__(self, client: Any, session: Mapping[str, int]) -> None:
        self._changed = threading.Condition()
        super().__init__(client, session)

    def _start(self) -> None:
        pass

    def _started(self) -> None:
        self.client.loop_start()

    def _stop(self) -> None:
        self.client.loop_stop()

    def _sent(self, mid: int) -> None:
        pass  # the answer may be there already

    def _serve_until(self, is_so: Callable[[], bool], seconds: float, max_messages: int = _MAX) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_so() or self.lost is not None, seconds)

    def _tell(self, mid: int, codes: list[Any]) -> None:
        with self._changed:
            super()._tell(mid, codes)
            self._changed.notify_all()

    def _lose(self, why: str, is_taken_over: bool) -> None:
        with self._changed:
            super()._lose(why, is_taken_over)
            self._changed.notify_all()


def _milliseconds(text: str | None) -> int | None:
    """Unix milliseconds, if a text is a number of at most 18 digits."""
    return int(text) if text is not None and len(text) <= 18 and text.isascii() and text.isdecimal() else None


def _topic(address: Address) -> str:
    if "#" in address.masked or not address.path:
        raise ConfigError(f"must be mqtt://host/topic, with %23 for #, got {address.masked}", address.key)
    return address.path
