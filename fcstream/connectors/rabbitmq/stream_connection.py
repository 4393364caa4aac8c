"""Connection of RabbitMQ streams, in a loop and a thread of its own, to the broker that leads the stream."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ...errors import ConfigError, FcstreamError, needs_package
from ...runtime.undo import on_error
from ..broker_connection import BrokerConnection
from ..client_loop import ClientLoop, abort
from ..libraries import unsupported_version
from ..retry import BrokerLost
from ..tls import tls_context, tls_failure
from ..urls import Address, UrlOption

T = TypeVar("T")
FRAME_BYTES = 1 << 20
LONGEST_NAME = 255  # largest number of bytes in the protocol
_REQUEST_S = 15.0
_FAREWELL_S = 5.0
_LAST_REQUEST = 0x7FFFFFFF  # a number that no other request has
_LINGERS = 10  # hundredths of a second that a chunk may come after the response that should follow it
STREAM_URL = "rabbitmq-stream://[user:password@]host[:port][,host...]/[vhost]?stream=NAME"
STREAM = UrlOption("stream", "Name of the stream.")


class RabbitConnection(BrokerConnection):
    """Connection to the broker that leads a stream, in a loop and a thread of its own; errors hold no secrets."""

    remedy = "start the broker, make the stream"

    def __init__(
        self,
        address: Address,
        name: str,
        patience_s: float,
        error: type[FcstreamError],
        stream: str,
        prepare: Callable[[Any], Coroutine[Any, Any, None]],
    ) -> None:
        with needs_package("rstream", "rabbitmq", address.key):
            import rstream  # noqa: F401
        if not _has_what_is_used():
            raise unsupported_version("rstream", address.key)
        self.lost = True
        self.changed = threading.Condition()
        super().__init__(address, patience_s, error)
        self._address, self._name, self._stream, self._prepare = address, name, stream, prepare
        self._ssl = tls_context(address) if address.scheme.endswith("+tls") else None
        address.finish()
        # Its debug messages hold passwords and bodies, and its errors are reported by this class.
        logging.getLogger("rstream").setLevel(logging.CRITICAL)
        self._client: Any = None
        self._closing: list[asyncio.Task[None]] = []
        self._gone: asyncio.Future[None]
        self._readers: dict[int, Callable[[Any], object]] = {}  # by subscription
        self.damaged = 0  # number of consecutive chunks that the library could not read
        self._loop = ClientLoop("fcstream-rstream")
        self._loop.loop.set_exception_handler(self._failed)

    def open(self) -> None:
        """Make the first connection, in one attempt."""
        try:
            with on_error(self.close):
                self.reconnect()
        except BrokerLost as lost:
            raise self.unreachable(lost) from None

    def run(self, action: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Do something with the client that is safe to repeat."""
        return self.repeat(lambda: self.once(action))

    def reconnect(self) -> None:
        self._loop.run(self._connect())

    def once(self, action: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        if self.lost:
            raise BrokerLost("the connection was lost")
        return self._loop.run(self._guarded(action(self._client)))

    def add_credit(self, number: int) -> None:
        """Let the broker send one more chunk."""
        if not self.lost:
            asyncio.run_coroutine_threadsafe(self._client.credit(number, 1), self._loop.loop)

    def close(self) -> None:
        self._loop.close(self._say_farewell())

    async def subscribe(
        self, client: Any, kind: Any, value: int | None, credit: int, reader: Callable[[Any], object]
    ) -> int:
        """Have chunks delivered from some position on; returns the subscription."""
        from rstream import schema

        number = next(number for number in range(200) if number not in self._readers)
        self._readers[number] = reader
        await client.subscribe(self._stream, number, schema.OffsetSpec.from_params(kind, value), credit)
        return number

    async def unsubscribe(self, client: Any, number: int) -> None:
        await client.unsubscribe(number)
        del self._readers[number]

    async def end_chunk(self, client: Any, kind: Any) -> Any:
        """Return the first or the last chunk of messages; None if there is none that all replicas have."""
        found: list[Any] = []
        number = await self.subscribe(client, kind, None, 1, found.append)
        # A broker sends the chunk before any other response.
        await client.stream_exists(self._stream)
        for _ in range(_LINGERS):
            if found:
                break
            await asyncio.sleep(0.01)
        await self.unsubscribe(client, number)
        return found[0] if found else None

    async def last(self, client: Any) -> Any:
        """Return the last chunk of messages; None if the stream holds none."""
        from rstream import OffsetType

        while (found := await self.end_chunk(client, OffsetType.LAST)) is None:
            if await self.end_chunk(client, OffsetType.FIRST) is None:
                break
            # There are messages, so either replicas wait for the last ones, or these are new; earlier ones must not be
            # missed.
        return found

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something until it is done, the connection is lost, or it takes too long."""
        task = asyncio.ensure_future(work)
        both: set[asyncio.Future[Any]] = {task, self._gone}
        await asyncio.wait(both, timeout=_REQUEST_S, return_when=asyncio.FIRST_COMPLETED)
        try:
            if not task.done():
                task.cancel()
                raise BrokerLost("the connection was lost" if self.lost else "no answer")
            return task.result()
        except FcstreamError:
            raise
        except BrokerLost:
            self._lose()
            raise
        except Exception as error:  # the library has no common class of errors, and quotes what it received
            self._lose()
            raise BrokerLost(tls_failure(error) or getattr(error, "strerror", None) or type(error).__name__) from None

    async def _connect(self) -> None:
        self._disconnect()
        self._closing = [task for task in self._closing if not task.done()]
        for host, given in self._address.hosts:
            self._gone = self._loop.loop.create_future()
            self.lost = False
            try:
                with on_error(self._disconnect):
                    await self._guarded(self._open(host, given or (5552 if self._ssl is None else 5551)))
                return
            except BrokerLost as error:
                lost = error
        raise lost

    async def _open(self, host: str, port: int) -> None:
        """Connect to the broker that leads the stream, because only it knows the end."""
        await self._authenticate(host, port)
        leader, _ = await self._client.query_leader_and_replicas(self._stream)
        known = self._client.server_properties
        if (leader.host, str(leader.port)) != (known.get("advertised_host"), known.get("advertised_port")):
            self._disconnect()
            self.lost = False
            await self._authenticate(leader.host, leader.port)
        await self._prepare(self._client)

    async def _authenticate(self, host: str, port: int) -> None:
        from rstream import schema
        from rstream.client import Client

        client: Any = Client(
            host,
            port,
            ssl_context=self._ssl,
            frame_max=FRAME_BYTES,
            heartbeat=60,
            connection_name=self._name,
            connection_closed_handler=lambda _: self._lose(client),
        )
        self._client = client
        client.add_stream(self._stream)  # without a stream it does not report that the connection was closed
        await client.start()
        await client.authenticate(
            self._address.path or "/", self._address.user or "guest", self._address.password or "guest"
        )
        client.add_handler(schema.MetadataUpdate, lambda _: self._lose(client), name="moved")
        client.add_handler(schema.Deliver, lambda _: None, name=0)
        await client.run_queue_listener_task(0, lambda frame: self._deliver(client, frame))

    def _failed(self, _loop: object, context: dict[str, Any]) -> None:
        self.damaged += isinstance(context.get("exception"), ValueError)  # a wrong checksum
        self._lose()

    def _deliver(self, client: Any, frame: Any) -> None:
        # A dropped connection may still deliver chunks, which would be taken for those of the next one.
        reader = self._readers.get(frame.subscription_id) if client is self._client else None
        if reader is not None:
            reader(frame)

    def _lose(self, client: Any = None) -> None:
        """Drop the connection; only if it is that of `client`, if one is named."""
        if client not in (None, self._client):
            return
        with self.changed:
            self.lost = True
            self.changed.notify_all()
        if not self._gone.done():
            self._gone.set_result(None)

    async def _say_farewell(self) -> None:
        """Close the connection as the client does, without its pause."""
        from rstream import schema

        if self._client is not None and not self.lost:
            farewell = schema.Close(_LAST_REQUEST, code=1, reason="OK")
            with suppress(Exception):
                await asyncio.wait_for(self._client.sync_request(farewell, schema.CloseResponse), _FAREWELL_S)
            self._client = None
        self._disconnect()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _disconnect(self) -> None:
        client, self._client, self.lost = self._client, None, True
        self._readers.clear()
        transports = self._loop.take_transports()
        if client is None:
            abort(transports)
        else:
            self._closing.append(self._loop.loop.create_task(_close(client, transports)))


def _has_what_is_used() -> bool:
    """Return whether the client has the parts on which this class is built, as its own consumers and producers are."""
    try:
        from rstream import schema
        from rstream.client import Client

        client: Any = Client("127.0.0.1", 1, frame_max=FRAME_BYTES, heartbeat=60)
        inspect.signature(client.add_handler).bind(schema.Deliver, print, name="x")
        inspect.signature(client.subscribe).bind("stream", 0, schema.OffsetSpec.from_params, 1)
        inspect.signature(client.run_queue_listener_task).bind(0, print)
        inspect.signature(client.sync_request).bind(schema.Close, schema.CloseResponse)
        wanted = ("credit", "unsubscribe", "query_leader_and_replicas", "stream_exists", "authenticate", "add_stream")
        return all(callable(getattr(client, name)) for name in wanted)
    except (AttributeError, ImportError, TypeError):
        return False


async def _close(client: Any, transports: list[Any]) -> None:
    """Close a client and its sockets; the client takes its time, and leaves the socket of a lost connection open."""
    try:
        with suppress(Exception):
            await asyncio.wait_for(client.close(), 6)
    finally:
        abort(transports)


def checked_name(address: Address, option: str, name: str) -> str:
    """Return a name after checking that the protocol can carry it."""
    if len(name.encode()) > LONGEST_NAME:
        raise ConfigError(f"must have a `{option}` of {LONGEST_NAME} bytes at most: {address.masked}", address.key)
    return name
