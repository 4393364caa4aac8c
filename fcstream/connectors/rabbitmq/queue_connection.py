"""The connection to AMQP queues: one channel, opened again after it was lost."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import FcstreamError
from ..retry import close_quietly, with_patience
from ..tls import tls_context, tls_failure
from ..urls import missing_library

if TYPE_CHECKING:
    from ..urls import Address

T = TypeVar("T")
_HEARTBEAT_S = 60
_SOCKET_S = 10.0
_ANSWER_S = 10.0
_SILENCE = "no answer"
_PARSING = "ValueError|OverflowError|InvalidFieldTypeException|UnicodeDecodeError|IndexError|error"
_UNREADABLE = re.compile(rf"Stream connection lost: ({_PARSING})\(")  # reported as text only


class AmqpLost(Exception):
    """The connection, or what it needs of the broker."""


class AmqpConnection:
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
        except AmqpLost as lost:
            raise self._unreachable(lost) from None

    def run(self, action: Callable[[Any], T], seconds: float = 0.0) -> T:
        """Do something with the channel that is safe to repeat, and may take some seconds."""
        once = partial(self._once, action, seconds)
        return with_patience(once, self._connect, (AmqpLost,), self.patience_s, self._unreachable)

    def attempt(self, action: Callable[[Any], object]) -> None:
        """Do something if the connection is there; if it is lost meanwhile, that is noticed later."""
        try:
            self._once(action)
        except AmqpLost:
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
            raise AmqpLost("not connected")
        try:
            with _limited(self.channel.connection, _ANSWER_S + seconds):
                return action(self.channel)
        except self._errors as error:
            self.drop()
            raise AmqpLost(_error_text(error)) from None

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
                lost = AmqpLost(_error_text(error))
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
