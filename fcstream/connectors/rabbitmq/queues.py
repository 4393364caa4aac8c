"""AMQP 0-9-1 queues (RabbitMQ): messages that are forgotten once acknowledged, so they are read through a spool."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ConfigError, FcstreamError, SinkError, SourceError
from ...releases.base import Release
from ..base import ReceivedMessage, shortened
from ..retry import PendingMessages, close_quietly, with_patience
from ..spool import MEMORY
from ..tls import tls_context, tls_failure
from ..urls import missing_library

if TYPE_CHECKING:
    from ..urls import Address

T = TypeVar("T")
_HEARTBEAT_S = 60
_SOCKET_S = 10.0
_ANSWER_S = 10.0
_WAIT_S = 1.0  # a consumer that is cancelled does not end a wait
_MAX_BYTES = 1 << 24  # of messages that wait here: beyond, no more is read than keeps the connection
_LONGEST_ID = 255  # bytes that AMQP has for it
_PRECONDITION_FAILED = 406
_SILENCE = "no answer"
_PARSING = "ValueError|OverflowError|InvalidFieldTypeException|UnicodeDecodeError|IndexError|error"
_UNREADABLE = re.compile(rf"Stream connection lost: ({_PARSING})\(")  # told as text only


class AmqpQueue:
    """Consumes a queue that exists, and acknowledges what the spool has; an `AckSource`.

    Parameters
    ----------
    address : Address
        ``amqp://[user:password@]host[:port][,host...]/[vhost]?queue=NAME``, ``amqps`` for TLS. Options: ``prefetch``
        (messages that the broker sends ahead, all of which memory must hold; 1000), ``delivery_id=message_id`` if those
        who publish give every message a ``message_id`` of its own, which tells a message that is delivered again;
        ``arrival=timestamp`` if messages have that property (of publishers, or of RabbitMQ's
        ``message_interceptors.incoming.set_header_timestamp``), by which a message that waited is not late;
        ``patience`` (seconds), and with TLS ``ca``, ``cert``, ``key`` (files in PEM).
    name : str
        Of the connection, as the broker lists it.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        The broker is asked at once, and not twice. A queue of the type ``stream`` is refused: it would be read from its
        end.

    Notes
    -----
    Not for several threads. The broker closes a connection that is not used for some minutes; the next call opens it
    again, and what was not acknowledged comes again. A quorum queue with a ``x-delivery-limit`` (20 by default from
    RabbitMQ 4 on) takes that for failed tries and drops such messages in the end: set it to -1. `close` waits until the
    broker has seen the acknowledgements. The client library ends the connection at headers that it cannot read (a date
    beyond the year 9999, for instance): who may publish such a message can hold the stream up until it is removed.
    """

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._queue = address.take("queue")
        self._prefetch = int(address.take_number("prefetch", 1000))
        identity = address.take("delivery_id", "none")
        if identity not in ("none", "message_id") or not 1 <= self._prefetch <= 65535:
            raise ConfigError(
                "must have `prefetch` in [1, 65535] and `delivery_id` = none or message_id, got "
                f"{self._prefetch} and {identity!r}",
                address.key,
            )
        self._by_message_id = identity == "message_id"
        if self._by_message_id and self._prefetch > MEMORY:
            raise ConfigError(
                f"must have `prefetch` of {MEMORY} at most with a `delivery_id`: so many are remembered", address.key
            )
        self._is_stream = ConfigError(
            f"must not name a stream, {address.masked} does: use rabbitmq-stream://", address.key
        )
        arrival = address.take("arrival", "receipt")
        if arrival not in ("receipt", "timestamp"):
            raise ConfigError(f"must have `arrival` = receipt or timestamp, got {arrival!r}", address.key)
        self.gives_arrivals = arrival == "timestamp"
        self.connections = 0
        self._is_cancelled = False
        self._ready: deque[ReceivedMessage] = deque()
        self._bytes = 0  # of these messages
        self._given: deque[int] = deque()  # tags that wait to be acknowledged, ascending
        self._link = _AmqpConnection(address, name, patience_s, SourceError, self._consume)
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
        for tag in tags[-1:] if together else tags:
            self._link.attempt(partial(_acknowledge, tag=tag, multiple=together))
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
        """What a message keeps when it is delivered again; None if it has nothing."""
        identity: str | bytes | None = received.token[2]  # bytes if they are not UTF-8
        if not (self._by_message_id and identity):
            return None
        return identity.encode() if isinstance(identity, str) else identity

    def is_current(self, received: ReceivedMessage) -> bool:
        """Whether the connection that it came by is still the one."""
        return received.token[0] is self._link.channel

    def close(self) -> None:
        self._link.attempt(
            lambda channel: channel.queue_declare(self._queue, passive=True)
        )  # acknowledgements are seen
        self._link.close()

    def _consume(self, channel: Any) -> None:
        """After every connection: what was not acknowledged comes again."""
        self.connections += 1
        self._ready.clear()
        self._bytes = 0
        self._given.clear()
        self._is_cancelled = False

        def take(_channel: object, method: Any, properties: Any, body: bytes) -> None:
            token = channel, method.delivery_tag, properties.message_id
            self._ready.append(ReceivedMessage(body, token, _arrival(properties) if self.gives_arrivals else None))
            self._bytes += len(body)

        def cancel(_frame: object) -> None:
            self._is_cancelled = True

        if self._names_stream(channel.connection):
            raise self._is_stream
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.basic_consume(self._queue, take)
        channel.add_on_cancel_callback(cancel)  # the queue was deleted, or moved

    def _names_stream(self, connection: Any) -> bool:
        """Only a stream takes a consumer that says where to begin; to others it is wrong, and nothing is delivered."""
        import pika

        if (connection._impl.server_properties or {}).get("product") != "RabbitMQ":  # others may overlook what is wrong
            return False
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        try:
            channel.basic_consume(self._queue, lambda *_: None, arguments={"x-stream-offset": "next"})
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code == _PRECONDITION_FAILED:
                return False
            raise
        channel.close()
        return True

    def _gather(self, channel: Any, max_messages: int, until: float) -> None:
        """Wait for the first message; then take what is there."""
        before = -1
        while before < len(self._ready) < max_messages and self._bytes <= _MAX_BYTES:
            before = len(self._ready)
            channel.connection.process_data_events(0 if before else max(0.0, min(until - time.monotonic(), _WAIT_S)))
            self._check(channel)
            if not self._ready and time.monotonic() < until:
                before = -1

    def _count(self, channel: Any, is_asked: bool = False) -> int:
        """Messages that the broker could still give. Asked twice: the second answer follows what it was sending."""
        waiting = 0
        for _ in range(2 if is_asked or not self._ready else 0):
            waiting = int(channel.queue_declare(self._queue, passive=True).method.message_count)
        channel.connection.process_data_events(0)
        self._check(channel)
        return len(self._ready) + waiting

    def _check(self, channel: Any) -> None:
        if channel.is_closed:
            raise _AmqpLost("the broker closed the channel")
        if self._is_cancelled and not self._ready:  # a queue that was deleted gives nothing again
            raise _AmqpLost("the queue cancelled its consumer")


class AmqpSink:
    """Publishes releases as persistent messages, each confirmed by the broker; a `Sink`.

    At least once: after a crash or a lost connection the last ones may come again, with the same ``message_id``, which
    is ``STREAM:OPEN:CLOSE`` of the window (milliseconds; a hash of that if it has more than 255 bytes). A broker that
    takes nothing for a while (an alarm of memory or disk) gets one copy for every `patience_s`.

    Parameters
    ----------
    address : Address
        ``amqp://[user:password@]host[:port][,host...]/[vhost]?queue=NAME``, or ``?exchange=NAME&routing_key=KEY``;
        ``amqps`` for TLS. Options: ``patience``, and those of TLS.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
        Also (from `write`) if no queue would get the message.
    """

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._exchange = address.take("exchange", "")
        self._key = address.take("routing_key", "") if self._exchange else address.take("queue")
        self._where = address.masked
        self._remainder: PendingMessages[tuple[bytes, str | None]] = PendingMessages()
        self._link = _AmqpConnection(address, "fcstream", patience_s, SinkError, self._prepare)
        self._link.open()

    def write(self, releases: Sequence[Release]) -> None:
        self._post([(release.to_bytes(), _id_of(release)) for release in releases])

    def send(self, bodies: Sequence[bytes]) -> None:
        self._post([(body, None) for body in bodies])

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        return list(releases)

    def last(self) -> Release | None:
        return None

    def close(self) -> None:
        self._link.close()

    def _prepare(self, channel: Any) -> None:
        if self._exchange:
            channel.exchange_declare(self._exchange, passive=True)
        else:
            channel.queue_declare(self._key, passive=True)
        channel.confirm_delivery()

    def _post(self, messages: list[tuple[bytes, str | None]]) -> None:
        waiting = self._remainder.of(messages)
        while waiting:
            self._link.run(lambda channel: self._publish(channel, *waiting[0]), self._link.patience_s)
            waiting.popleft()

    def _publish(self, channel: Any, body: bytes, message_id: str | None) -> None:
        import pika

        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2, message_id=message_id)
        try:
            channel.basic_publish(self._exchange, self._key, body, properties, mandatory=True)
        except (pika.exceptions.UnroutableError, pika.exceptions.NackError):
            raise SinkError(
                f"{self._where} must reach a queue that takes messages: bind one to the exchange, or make room in it"
            ) from None


def _id_of(release: Release) -> str:
    return shortened(f"{release.stream}:{release.window_open_ms}:{release.window_close_ms}", _LONGEST_ID)


def _arrival(properties: Any) -> int | None:
    """When a message says that it came: to the millisecond in the header that RabbitMQ's own stamping writes, else to
    the second."""
    for value, unit in (((properties.headers or {}).get("timestamp_in_ms"), 1), (properties.timestamp, 1000)):
        if isinstance(value, int) and value > 0:
            return value * unit
    return None


def _acknowledge(channel: Any, tag: int, multiple: bool) -> None:
    channel.basic_ack(tag, multiple=multiple)


class _AmqpLost(Exception):
    """The connection, or what it needs of the broker."""


class _AmqpConnection:
    """A connection with one channel that comes back after it was lost, and whose errors tell no secrets."""

    def __init__(
        self,
        address: Address,
        name: str,
        patience_s: float,
        error: type[FcstreamError],
        prepare: Callable[[Any], None],
    ) -> None:
        try:
            import pika
            import pika.adapters.utils.connection_workflow
        except ImportError:
            raise missing_library("pika", "rabbitmq", address.key) from None
        self.channel: Any = None
        """None if the connection was lost."""
        self._where, self._error, self._prepare = address.masked, error, prepare
        self.patience_s = address.take_number("patience", patience_s)
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # what it calls errors, we tell ourselves
        context = tls_context(address) if address.scheme == "amqps" else None
        address.finish()
        stages = pika.adapters.utils.connection_workflow.AMQPConnectorException  # some of these get out
        self._errors = (pika.exceptions.AMQPError, stages, OSError)
        port = 5672 if context is None else 5671
        self._parameters = [
            pika.ConnectionParameters(
                host=host,
                port=given or port,
                virtual_host=address.path or "/",
                credentials=pika.PlainCredentials(address.user or "guest", address.password or "guest"),
                ssl_options=None if context is None else pika.SSLOptions(context, host),
                heartbeat=_HEARTBEAT_S,
                blocked_connection_timeout=max(_SOCKET_S, self.patience_s),
                socket_timeout=_SOCKET_S,
                stack_timeout=_SOCKET_S,
                client_properties={"connection_name": name},
            )
            for host, given in address.hosts
        ]

    def open(self) -> None:
        """The first connection: one try."""
        try:
            self._connect()
        except _AmqpLost as lost:
            raise self._unreachable(lost) from None

    def run(self, action: Callable[[Any], T], seconds: float = 0.0) -> T:
        """Do something with the channel that is safe to repeat, and may take some seconds."""
        once = partial(self._once, action, seconds)
        return with_patience(once, self._connect, (_AmqpLost,), self.patience_s, self._unreachable)

    def attempt(self, action: Callable[[Any], object]) -> None:
        """Do something if the connection is there; if it is lost meanwhile, that is noticed later."""
        try:
            self._once(action)
        except _AmqpLost:
            pass

    def drop(self) -> None:
        """Take the connection as lost."""
        channel, self.channel = self.channel, None
        if channel is not None:
            _close_connection(channel.connection)

    def close(self) -> None:
        self.drop()

    def _once(self, action: Callable[[Any], T], seconds: float = 0.0) -> T:
        if self.channel is None:
            raise _AmqpLost("not connected")
        try:
            with _limited(self.channel.connection, _ANSWER_S + seconds):
                return action(self.channel)
        except self._errors as error:
            self.drop()
            raise _AmqpLost(_error_text(error)) from None

    def _connect(self) -> None:
        import pika

        self.drop()
        for parameters in self._parameters:
            connection = None
            try:
                connection = pika.BlockingConnection(parameters)
                with _limited(connection, _ANSWER_S):
                    channel = connection.channel()
                    self._prepare(channel)
            except self._errors as error:
                lost = _AmqpLost(_error_text(error))
                if connection is not None:
                    _close_connection(connection)
            except BaseException:
                if connection is not None:
                    _close_connection(connection)
                raise
            else:
                self.channel = channel
                return
        raise lost

    def _unreachable(self, error: BaseException) -> FcstreamError:
        return self._error(
            f"{self._where} cannot be used: {error}; start the broker, make the queue, or correct the address"
        )


@contextmanager
def _limited(connection: Any, seconds: float) -> Iterator[None]:
    """Take the connection as lost if what is done with it takes longer: the client library waits for answers for ever,
    or until two heartbeats are missed."""
    import pika

    below = connection._impl  # its public timers rest while an answer is waited for
    late = pika.exceptions.AMQPHeartbeatTimeout(f"{_SILENCE} within {seconds:g} seconds")
    timer = below._adapter_call_later(seconds, lambda: below._terminate_stream(late))
    try:
        yield
    finally:
        close_quietly(lambda: below._adapter_remove_timeout(timer))


def _close_connection(connection: Any) -> None:
    try:
        with _limited(connection, _ANSWER_S):
            connection.close()
    except Exception:  # one that was lost refuses, and keeps the sockets of its selector
        close_quietly(lambda: connection._cleanup())


def _error_text(error: BaseException) -> str:
    """What is safe to tell: the broker's own words, the system's, or the class."""
    if why := tls_failure(error):
        return why
    words = getattr(error, "reply_text", None) or getattr(error, "strerror", None)
    if found := _UNREADABLE.match(str(error)):
        words = f"a message's headers cannot be read ({found[1]}): remove it from the queue"
    for inner in (getattr(error, "exception", None), *error.args):
        if isinstance(inner, BaseException):
            words = words or _error_text(inner)
        elif isinstance(inner, str) and inner.startswith(("ConnectionClosedByBroker", _SILENCE)):
            words = words or inner
    return str(words or type(error).__name__)
