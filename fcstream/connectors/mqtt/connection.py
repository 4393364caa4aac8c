"""Connection to an MQTT broker, which is made again after it was lost and is served while something is waited for."""

from __future__ import annotations

import functools
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from ...errors import ConfigError, FcstreamError, Shown, needs_package
from ...formats.envelopes import NO_FIELDS, AskedFields
from ...runtime.undo import on_error
from ..base import ReceivedMessage
from ..broker_connection import BrokerConnection
from ..retry import BrokerLost, close_quietly
from ..tls import tls_context, tls_failure
from ..urls import Address

T = TypeVar("T")
_CALLBACKS = ("connect", "disconnect", "message", "publish", "socket_register_write", "subscribe", "unsubscribe")
LOG = logging.getLogger("fcstream.connectors.mqtt")
_ANSWER_S = 10.0
_KEEPALIVE_S, _PATIENT_S = 60, 240  # the second one for connections that are served between other work only
_TAKEN_OVER = 0x8E
_NOTHING = "fcstream/nothing"  # a topic that is asked for because the response proves that earlier packets arrived
_FIGHT, _FIGHT_S = 10, 10.0
_MAX_PROPERTIES = 2**16 + 2**10
"""Most bytes of the properties of a message, which is read without them if there are more: the client library takes
time in the square of their number."""
_MAX = 1_000_000  # messages that are kept while a response is waited for; no broker sends as many unasked
_MAX_BYTES = 1 << 24  # of messages that wait here: beyond, nothing is read, and the broker has to wait


def detach(client: Any) -> None:
    """Take its callbacks from a client that is done: they hold it in a circle of references, which would keep its
    sockets open until the garbage is collected.
    """
    for name in _CALLBACKS:
        setattr(client, f"on_{name}", None)


class BrokerRefused(Exception):
    """The broker refuses something, and would refuse it again."""


class MqttSession(BrokerConnection):
    """A sequence of connections, each made after the one before was lost; errors hold no secrets."""

    def __init__(
        self,
        address: Address,
        patience_s: float,
        error: type[FcstreamError],
        prepare: Callable[[Any, str, int], None],
        client_id: str = "",
        session: Mapping[str, int] = MappingProxyType({}),
        kind: type[MqttConnection] | None = None,
    ) -> None:
        with needs_package("paho-mqtt", "mqtt", address.key):
            import paho.mqtt.client  # noqa: F401
        self.connection: MqttConnection | None = None
        self._kind = kind or MqttConnection
        self._address, self._prepare = address, prepare
        self._client_id, self._session = client_id, session
        self._times: deque[float] = deque(maxlen=_FIGHT)  # when connections were made
        self._is_known = False  # whether the broker had a session of this client
        self.forgotten = 0  # how often it had none any more
        super().__init__(address, patience_s, error)
        self._tls = tls_context(address) if address.scheme == "mqtts" else None
        address.finish()
        try:
            self.reconnect()
        except (BrokerLost, BrokerRefused) as failed:
            raise self.unreachable(failed) from None

    def run(self, action: Callable[[MqttConnection], T]) -> T:
        """Do something with the connection that is safe to repeat."""
        try:
            return self.repeat(lambda: self._once(action))
        except BrokerRefused as refused:
            raise self.unreachable(refused) from None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _once(self, action: Callable[[MqttConnection], T]) -> T:
        if self.connection is None:
            raise BrokerLost("not connected")
        return action(self.connection)

    def reconnect(self) -> None:
        known = self._session
        self.close()
        if known and len(self._times) == _FIGHT and time.monotonic() < self._times[0] + _FIGHT_S:
            self._times.clear()
            raise BrokerRefused("connections are lost again and again; does another process have the same `client_id`?")
        lost = BrokerLost("no host")
        for host, given in self._address.hosts:
            port = given or (1883 if self._tls is None else 8883)
            connection = self._kind(self._client(), known)
            try:
                with on_error(connection.close):
                    self._prepare(connection, host, port)
            except BrokerLost as error:
                lost = error
            else:
                if self._is_known and known and not connection.is_resumed:
                    LOG.warning("%s has forgotten the session: messages may have been lost", self.location)
                    self.forgotten += 1
                self._times.append(time.monotonic())
                self.connection, self._is_known = connection, True
                return
        raise lost

    def _client(self) -> Any:
        from paho.mqtt import client, enums

        _take_all_texts()
        made = client.Client(
            enums.CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=client.MQTTv5,
            manual_ack=True,
            # a new connection is a new client, so that no acknowledgement of an old one gets into it
            reconnect_on_failure=False,
        )
        made.connect_timeout = _ANSWER_S
        if self._address.user is not None:
            made.username_pw_set(self._address.user, self._address.password)
        if self._tls is not None:
            made.tls_set_context(self._tls)
        return made


class MqttConnection:
    """One connection: opened once, used, then dropped.

    The network is served by whoever waits for something, because a thread for it would switch with the caller's for
    every message.
    """

    keepalive_s = _PATIENT_S

    def __init__(self, client: Any, session: Mapping[str, int]) -> None:
        self.client = client
        self.lost: str | None = None
        self.is_resumed = False
        self._session = session
        # More than a broker sends ahead, because its responses come after these messages.
        self._room = session.get("ReceiveMaximum", 65535) + 1
        self._answers: dict[int, list[Any]] = {}  # packet -> reason codes; 0 is the connection
        self._messages: deque[ReceivedMessage] = deque()
        self._unacknowledged = 0  # handed out, or waiting here
        self._bytes = 0  # of these messages
        self._subscribing: int | None = None  # the packet whose response comes after messages that must be taken first
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
            raise BrokerLost(tls_failure(error) or error.strerror or type(error).__name__) from None
        self._started()
        self.answer(0)

    def collect(self, topic: str, identity: str, arrival: str, asked: AskedFields = NO_FIELDS) -> None:
        """Keep the messages of a filter for `take`; must be called before `open`.

        `identity` and `arrival` name the user properties that hold a message's identity and its time of arrival, if
        there are such; `asked` says which parts of envelopes are kept.
        """
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
                envelope = None
                if asked.from_source:
                    headers = getattr(message.properties, "UserProperty", [])
                    envelope = asked.envelope(message.topic, headers=headers)
                arrived = _milliseconds(given(message, arrival))
                self._messages.append(ReceivedMessage(message.payload, token, arrived, envelope))
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
            raise BrokerLost("not connected")
        self._sent(mid)
        self._subscribing = mid
        self._serve_until(lambda: mid in self._answers or self._is_laden, _ANSWER_S)
        self._check()
        if self._subscribing is not None and not self._is_laden:
            raise BrokerLost("no answer")

    @property
    def _is_laden(self) -> bool:
        """Return whether so much waits here that it must be taken before anything else is read."""
        return self._bytes > _MAX_BYTES

    def settle(self) -> None:
        """Send a request and wait for its response, so that all that was sent before, either way, has arrived.

        Messages are not kept any more.
        """
        self.client.on_message = None
        self.request(self.client.unsubscribe, _NOTHING)

    def take(self, max_messages: int, until: float) -> list[ReceivedMessage]:
        if self.lost is None:
            self._serve(0.0, max_messages)  # also if messages wait here, to keep the connection alive
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
        """Return whether messages wait here, or the broker had sent some before it responds."""
        if self.lost is None:
            self._serve(0.0, self._room)
        if not self._messages:
            _, mid = self.client.unsubscribe(_NOTHING)
            self._answers.pop(mid, None)  # left of an earlier packet with this number whose response was not awaited
            self._serve_until(lambda: bool(self._messages) or mid in self._answers, _ANSWER_S, self._room)
            self._check()
            if not self._messages and self._answers.pop(mid, None) is None:
                raise BrokerLost("no answer")
        return bool(self._messages)

    def remaining(self) -> int | None:
        """Count the messages that the broker has for us and that were not taken; all of them wait here then.

        None if it may have more, since it sends only as many as may be unacknowledged.
        """

        def has_room() -> bool:
            return self._unacknowledged < self._room - 1 and not self._is_laden

        _, mid = self.client.unsubscribe(_NOTHING)
        self._answers.pop(mid, None)
        self._serve_until(lambda: not has_room() or mid in self._answers, _ANSWER_S, self._room)
        self._check()
        if self._answers.pop(mid, None) is None and has_room():
            raise BrokerLost("no answer")
        return len(self._messages) if has_room() else None

    def retained(self, topic: str) -> bytes:
        """Return the retained message of a topic; empty if there is none."""
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
        """Send a request and wait for its response."""
        _, mid = ask(*args, **options)
        if mid is None:
            raise BrokerLost("not connected")
        self._sent(mid)
        return self.answer(mid)

    def answer(self, mid: int) -> list[Any]:
        """Wait for the reason codes of a packet."""
        self._serve_until(lambda: mid in self._answers, _ANSWER_S)
        if mid not in self._answers:
            self._check()
            raise BrokerLost("no answer")
        return self._answers.pop(mid)

    def expect(self, mid: int) -> None:
        """Wait until the broker has accepted what was published."""
        for code in self.answer(mid):
            if code.is_failure:
                self._lose("a message was refused", False)  # together with the responses to later ones
                raise BrokerRefused(str(code))

    def close(self) -> None:
        self._lose("closed", False)
        close_quietly(self.client.disconnect, self._stop, lambda: detach(self.client))

    def _start(self) -> None:
        self.client.on_socket_register_write = lambda *_: None  # packets wait until `_serve` writes them

    def _started(self) -> None:
        pass

    def _stop(self) -> None:
        self.client.loop_write()
        if (network := self.client.socket()) is not None:
            network.close()

    def _sent(self, mid: int) -> None:
        self._answers.pop(mid, None)  # as in `has_messages`

    def _serve_until(self, is_so: Callable[[], bool], seconds: float, max_messages: int = _MAX) -> None:
        """Serve the network until a condition holds, the connection is lost, or the time is over."""
        until = time.monotonic() + seconds
        while not is_so() and self.lost is None:
            self._serve(max(0.0, until - time.monotonic()), max_messages)
            if time.monotonic() >= until:
                return

    def _serve(self, seconds: float, max_messages: int) -> None:
        """Write what waits to be written, and read up to `max_messages` messages; waits if there is nothing to read."""
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
            raise BrokerRefused("another process has the same `client_id`: give each its own")
        if self._subscribing in self._answers:
            codes, self._subscribing = self._answers.pop(self._subscribing), None
            if [code.value for code in codes] != [1]:
                raise BrokerRefused(f"the subscription gets {codes[0]}, not QoS 1")
        if self.lost is not None:
            raise BrokerLost(self.lost)

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
        self._messages.clear()  # these messages come again
        self._bytes = 0


class ThreadedConnection(MqttConnection):
    """A connection whose network runs in a thread of the client's, so that it stays alive while it is not used."""

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
        pass  # the response may be there already

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
    """Read Unix milliseconds from a text of at most 18 digits; None for any other text."""
    return int(text) if text is not None and len(text) <= 18 and text.isascii() and text.isdecimal() else None


def topic_of(address: Address) -> str:
    if "#" in address.masked or not address.path:
        raise ConfigError("must be mqtt://host/topic, with %23 for #", address.key, got=Shown(address.masked))
    if "," in address.masked.partition("?")[0].split("/", 3)[3]:
        raise ConfigError(
            f"must name one topic or filter, got {address.masked}: a comma makes no list here",
            address.key,
            remedy="use a wildcard, a stream for each filter, or %2C for a comma that belongs to the name",
        )
    return address.path


@functools.cache
def _take_all_texts() -> None:
    """Have the client library read texts of properties that MQTT forbids, such as U+FEFF. For one it would give the
    connection up, and the broker sends the message again for ever.
    """
    from paho.mqtt import properties

    strict = properties.readUTF

    def read(buffer: bytes, most: int) -> tuple[str, int]:
        try:
            found: tuple[str, int] = strict(buffer, most)
            return found
        except (properties.MalformedPacket, UnicodeDecodeError):
            size = 2 + int.from_bytes(bytes(buffer[:2]))
            if size > min(most, len(buffer)):
                raise
            return bytes(buffer[2:size]).decode("utf-8", "replace"), size

    unpack, length = properties.Properties.unpack, properties.VariableByteIntegers.decode

    def unpack_few(self: Any, buffer: bytes) -> tuple[Any, int]:
        size = sum(length(buffer[:4]))
        if size > _MAX_PROPERTIES:
            self.clear()
            return self, size
        found: tuple[Any, int] = unpack(self, buffer[:size])  # it copies all that is left at each property
        return found

    properties.readUTF, properties.Properties.unpack = read, unpack_few
