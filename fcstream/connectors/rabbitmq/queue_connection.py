"""Connection to AMQP queues: pika's own event loop runs while a response or a message is waited for.

pika's blocking connection waits for responses without a limit. Here every wait ends after a given time, and a
connection that was silent for so long is shut down and dropped.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar

from ...errors import FcstreamError, needs_package
from ...runtime.undo import on_error
from ..broker_connection import BrokerConnection
from ..retry import BrokerLost, close_quietly
from ..tls import tls_context, tls_failure
from ..urls import Address

T = TypeVar("T")
_HEARTBEAT_S = 60
_SOCKET_S = 10.0
_ANSWER_S = 10.0
_CUT_S = 1.0  # time for the client to notice that its socket was shut down
_SILENCE = "no answer"


class AmqpChannel:
    """A new connection with one channel. It is used until an error, and then dropped.

    A method raises pika's error when the connection or a channel is lost, and `BrokerLost` when an answer does not come
    in time.

    Attributes
    ----------
    client
        pika's channel.
    """

    def __init__(self, parameters: Any) -> None:
        import pika

        pika.spec.props[pika.BasicProperties.INDEX] = _forgiving()
        self.client: Any = None
        self._limit_s, self._until = 0.0, 0.0
        self._failure: BaseException | None = None
        self._is_woken = False
        self._published = 0
        self._confirmed: dict[int, bool] = {}  # by number of a published message, whether a queue has it
        self._loop = _loop()
        self._connection: Any = pika.SelectConnection(
            parameters,
            on_open_callback=lambda _: self.wake(),
            on_open_error_callback=lambda _, error: self._fail(error),
            on_close_callback=lambda _, error: self._fail(error),
            custom_ioloop=self._loop,
        )
        with on_error(self.close):
            self.limit(2 * parameters.stack_timeout)
            self._wait(lambda: bool(self._connection.is_open))
            self.client = self.new_channel()

    @property
    def is_rabbitmq(self) -> bool:
        return (self._connection.server_properties or {}).get("product") == "RabbitMQ"

    def limit(self, seconds: float) -> None:
        """Set how long all following responses together may take."""
        self._limit_s, self._until = seconds, time.monotonic() + seconds

    def new_channel(self) -> Any:
        """Open a further channel of pika's."""
        opened: list[Any] = []

        def on_open(channel: Any) -> None:
            channel.add_on_close_callback(lambda _, error: self._fail(error))
            opened.append(channel)
            self.wake()

        self._connection.channel(on_open_callback=on_open)
        self._wait(lambda: bool(opened))
        return opened[0]

    def forgive(self) -> None:
        """Continue after an error of a channel other than `client`."""
        self._failure = None

    def ask(self, request: Callable[..., object], *arguments: Any, **options: Any) -> Any:
        """Call a method of pika's channel that takes a `callback`, and return the broker's response."""
        answers: list[Any] = []

        def on_answer(frame: Any) -> None:
            answers.append(frame.method)
            self.wake()

        request(*arguments, **options, callback=on_answer)
        self._wait(lambda: bool(answers))
        return answers[0]

    def confirm_publishing(self) -> None:
        """Have the broker confirm what is published from now on."""

        def on_confirm(frame: Any) -> None:
            self._confirmed.setdefault(frame.method.delivery_tag, frame.method.NAME == "Basic.Ack")
            self.wake()

        def on_return(*_: object) -> None:  # comes before the confirmation
            self._confirmed[self._published] = False

        self.client.add_on_return_callback(on_return)
        self.ask(self.client.confirm_delivery, on_confirm)

    def publish(self, exchange: str, key: str, body: bytes, properties: Any) -> bool:
        """Publish a message; returns whether a queue accepted it."""
        self._published += 1
        number = self._published
        self.client.basic_publish(exchange, key, body, properties, mandatory=True)
        self._wait(lambda: number in self._confirmed)
        return self._confirmed.pop(number)

    def serve(self, seconds: float) -> None:
        """Write and read what there is; waits until `wake` is called, at most so many seconds."""
        self._run(lambda: True, seconds)
        if self._failure is not None:
            raise self._failure

    def wake(self) -> None:
        """End a wait; callbacks call it when what is waited for has come."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.stop()

    def close(self) -> None:
        """Close the connection properly if the broker responds, and in any case its socket."""

        def is_closed() -> bool:
            return bool(self._connection.is_closed)

        if self._connection.is_open:
            close_quietly(self._connection.close, lambda: self._run(is_closed, _ANSWER_S))
        if not is_closed():
            for descriptor in self._loop.descriptors:
                with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:
                    twin.shutdown(socket.SHUT_RDWR)
            close_quietly(lambda: self._run(is_closed, _CUT_S))
        close_quietly(self._loop.close)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        self._run(lambda: is_done() or self._failure is not None, self._until - time.monotonic())
        if self._failure is not None:
            raise self._failure
        if not is_done():
            raise BrokerLost(f"{_SILENCE} within {self._limit_s:g} seconds")

    def _run(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Run the client's loop, at least once, until a condition holds or the time is over."""
        is_over: list[bool] = []

        def end() -> None:
            is_over.append(True)
            self.wake()

        timer = self._loop.call_later(max(0.0, seconds), end)
        try:
            while True:
                self._is_woken = False
                self._loop.start()  # ended by `wake`
                if is_over or is_done():
                    return
        finally:
            self._loop.remove_timeout(timer)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.wake()


@cache
def _forgiving() -> Any:
    """Return what the client shall make of messages' properties: of those that it cannot read, none. It would give the
    connection up, and the broker sends the message again for ever.
    """
    import pika

    class Properties(pika.BasicProperties):  # type: ignore[misc]
        def decode(self, encoded: bytes, offset: int = 0) -> Any:
            try:
                return super().decode(encoded, offset)
            except Exception:  # of many types, by what was wrong: times, texts, too many levels
                self.__init__()  # type: ignore[misc]
                return self

    return Properties


def _loop() -> Any:
    """Make the client's loop, which knows its connection's socket, so that a silent broker's connection can be shut
    down.
    """
    from pika.adapters.select_connection import IOLoop

    class Loop(IOLoop):  # type: ignore[misc]
        def __init__(self) -> None:
            self.descriptors = set[int]()
            super().__init__()

        def add_handler(self, fd: int, handler: Any, events: int) -> None:
            self.descriptors.add(fd)
            super().add_handler(fd, handler, events)

        def remove_handler(self, fd: int) -> None:
            self.descriptors.discard(fd)
            super().remove_handler(fd)

    return Loop()


class AmqpConnection(BrokerConnection):
    """A connection with one channel that is made again after it was lost, and whose errors hold no secrets."""

    remedy = "start the broker, make the queue"

    def __init__(
        self,
        address: Address,
        name: str,
        patience_s: float,
        error: type[FcstreamError],
        prepare: Callable[[AmqpChannel], None],
    ) -> None:
        with needs_package("pika", "rabbitmq", address.key):
            import pika
            import pika.adapters.utils.connection_workflow
        self.channel: AmqpChannel | None = None
        """The open channel; None if the connection was lost."""
        super().__init__(address, patience_s, error)
        self._prepare = prepare
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # its errors are reported by this class
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
        """Make the first connection, in one attempt."""
        try:
            self.reconnect()
        except BrokerLost as lost:
            raise self.unreachable(lost) from None

    def run(self, action: Callable[[AmqpChannel], T], seconds: float = 0.0) -> T:
        """Do something with the channel that is safe to repeat, and may take some seconds."""
        return self.repeat(partial(self._once, action, seconds))

    def attempt(self, action: Callable[[AmqpChannel], object]) -> None:
        """Do something if the connection is there; if it is lost meanwhile, the next use notices it."""
        try:
            self._once(action)
        except BrokerLost:
            pass

    def close(self) -> None:
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()

    def _once(self, action: Callable[[AmqpChannel], T], seconds: float = 0.0) -> T:
        if self.channel is None:
            raise BrokerLost("not connected")
        self.channel.limit(_ANSWER_S + seconds)
        try:
            return action(self.channel)
        except BrokerLost:
            self.close()
            raise
        except self._errors as error:
            self.close()
            raise BrokerLost(_error_text(error)) from None

    def reconnect(self) -> None:
        self.close()
        for parameters in chain.from_iterable(map(_by_address, self._parameters)):
            try:
                with on_error(self.close):
                    self.channel = AmqpChannel(parameters)
                    self._once(self._prepare)
                return
            except BrokerLost as error:
                lost = error
            except self._errors as error:
                lost = BrokerLost(_error_text(error))
        raise lost


def _by_address(parameters: Any) -> list[Any]:
    """The parameters for each address of their host, all of which share the time that two may take."""
    try:
        found = socket.getaddrinfo(parameters.host, parameters.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return [parameters]  # the client says why
    hosts = dict.fromkeys(address[0] for *_, address in found)
    each = []
    for host in hosts:
        each.append(copy(parameters))
        each[-1].host = host
        each[-1].socket_timeout = each[-1].stack_timeout = min(_SOCKET_S, 2 * _SOCKET_S / len(hosts))
    return each


def _error_text(error: BaseException) -> str:
    """Return what is safe to show: the broker's own words, the system's, or the error's class."""
    if why := tls_failure(error):
        return why
    words = getattr(error, "reply_text", None) or getattr(error, "strerror", None)
    for inner in (getattr(error, "exception", None), *getattr(error, "exceptions", ())[-1:], *error.args):
        if isinstance(inner, BaseException):
            words = words or _error_text(inner)
        elif isinstance(inner, str) and inner.startswith(("ConnectionClosedByBroker", _SILENCE)):
            words = words or inner
    kind = type(error).__name__
    if kind.endswith("Timeout") or kind == "ConnectionOpenAborted":  # how the client names a silent server
        words = words or "the server did not answer in time"
    return str(words or kind)
