"""An HTTP server for untrusted peers: Starlette on uvicorn, in its own thread, with limits on all a peer can occupy.

No peer can keep a connection by sending slowly, by reading slowly or by waiting: each part of a request has a deadline
that no further byte extends. If a limit of connections or of memory is reached, the connection that has waited longest
for its peer's next byte is dropped. So a request that is sent at once is answered even while thousands of others send
byte by byte.

An answer of events (`EVENTS`) may last for ever. Then each of its parts has the deadline of an answer, it counts as
waiting for its peer's next byte, so that it is dropped before a request is turned away, and no part is held for a peer
before it has read the one before.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ..errors import AddressTaken, ConfigError, SourceError, needs_package
from .http_connections import ANSWER, BODY, ConnectionPool, GuardedConnection
from .http_connections import Limits as Limits

LOG = logging.getLogger("fcstream.runtime")
_GRACE_S = 5
_AT_ONCE = 32  # accepted in one round of the loop, before any of them can be counted
_IN_LINE = 512  # wait in the kernel, which holds no descriptor of the process
_CHUNKS = 2**14
"""Bytes about the chunks of a body that may come beside as many as there are in them."""
EVENTS = b"text/event-stream"
"""Media type of an answer without an end."""
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Screen:
    """Decides by a request's head whether its body is read at all, and words the answers of the server itself; a
    subclass may be given to `Server`.
    """

    def refuse(self, scope: Message) -> int:
        """Return the status that refuses a request before its body was read; 0 admits it."""
        return 0

    def answer(self, scope: Message, status: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Return the body and the headers of an answer by the server: to what `refuse` refused, to a body in chunks
        that are too short or with a length beside them (400), to one that is too long (413) or that there is no memory
        for (503), and after a failure (500).
        """
        text = {400: b"wrong chunks\n", 413: b"too long\n", 503: b"too much at once\n"}.get(status, b"failed\n")
        return text, [(b"content-type", b"text/plain; charset=utf-8")]


class _BoundedApp:
    """An application that is called with whole bodies within their limits."""

    def __init__(self, app: App, crowd: ConnectionPool, limits: Limits, screen: Screen) -> None:
        self._app, self._crowd, self._limits, self._screen = app, crowd, limits, screen

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        connection = self._crowd.of(tuple(scope["client"] or ("", 0)))
        if connection is None:
            return  # the connection was dropped meanwhile
        headers = dict(scope["headers"])
        connection.is_chunked = b"transfer-encoding" in headers
        connection.go_to(BODY)
        connection.requests += 1
        is_odd = connection.is_chunked and b"content-length" in headers  # two servers could take it for two requests
        refusal = 400 if is_odd else self._screen.refuse(scope)
        is_last = connection.requests >= self._limits.requests or is_odd
        answer = _Responder(send, is_last, connection, self._crowd)
        try:
            if refusal and connection.is_chunked:
                found: bytes | int = await self._thrown_away(connection, answer, refusal, b"expect" in headers)
            else:
                found = await self._body(connection, receive, answer, refusal)
            connection.go_to(ANSWER)
            if isinstance(found, bytes):
                await self._app(scope, _replayed(found, receive), answer)
            elif found:
                await answer.plain(found, self._screen.answer(scope, found))
        except Exception as error:  # its text could quote a record, so only its type is logged
            LOG.error("a request could not be answered (%s)", type(error).__name__)
            if not answer.is_started:
                await answer.plain(500, self._screen.answer(scope, 500))
        finally:
            self._crowd.hold_answer(connection)

    @staticmethod
    async def _thrown_away(connection: GuardedConnection, answer: _Responder, refusal: int, asks_first: bool) -> int:
        """Let a body in chunks pass unread, and close the connection behind the answer that refuses it."""
        answer.is_last = True
        try:
            if not asks_first:
                await connection.throw_away()
        except asyncio.CancelledError:
            return 0
        return refusal

    async def _body(
        self, connection: GuardedConnection, receive: Receive, answer: _Responder, refusal: int
    ) -> bytes | int:
        """Read the body; returns it or the status that refuses it, 0 if the peer is gone.

        A refused body is read to its end and thrown away, since a peer does not read an answer while it sends.
        """
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return 0
            part = message.get("body", b"")
            size = len(body) + len(part)
            if size > self._limits.body_bytes:
                refusal = refusal or 413
            if connection.is_chunked and connection.received > 2 * size + self._limits.head_bytes + _CHUNKS:
                refusal = refusal or 400  # more bytes about chunks than in them
            if not refusal and part and not self._crowd.hold(connection, len(part)):
                refusal = 503
            if refusal:
                body.clear()
                self._crowd.release(connection)
                if connection.is_chunked and message.get("more_body", False):
                    return await self._thrown_away(connection, answer, refusal, False)
            else:
                body += part
            if not message.get("more_body", False):
                return refusal or bytes(body)


class _Responder:
    """Sends an answer; the last one on a connection says so."""

    def __init__(self, send: Send, is_last: bool, connection: GuardedConnection, crowd: ConnectionPool) -> None:
        self._send, self.is_last, self._connection, self._crowd = send, is_last, connection, crowd
        self.is_started = self._has_events = False

    async def __call__(self, message: Message) -> None:
        if self._has_events:
            await self._tell(message)
            return
        if message["type"] == "http.response.start":
            self.is_started = True
            self._has_events = any(value.startswith(EVENTS) for _, value in message.get("headers", ()))
            if self._has_events:
                self._connection.begin_events()
            if self.is_last:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self._send(message)

    async def _tell(self, message: Message) -> None:
        """Send a part of an answer of events, which counts as held until the peer has read it."""
        self._crowd.release(self._connection)
        if not self._crowd.hold(self._connection, len(message.get("body", b""))):
            self._connection.drop()
            return
        await self._send(message)
        if not message.get("more_body", False):
            self._connection.end_events()

    async def plain(self, status: int, found: tuple[bytes, list[tuple[bytes, bytes]]]) -> None:
        text, headers = found
        headers = [*headers, (b"content-length", str(len(text)).encode())]
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": text})


def _replayed(body: bytes, receive: Receive) -> Receive:
    events = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return events.pop() if events else await receive()

    return replay


def _listen(host: str, port: int, setting: str) -> socket.socket:
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=_IN_LINE, dualstack_ipv6=both)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = "another process listens there; end it, or name another port"
        else:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
        shown = f"[{host}]:{port}" if is_ipv6 else f"{host}:{port}"
        is_passing = error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
        raise (AddressTaken if is_passing else ConfigError)(f"{shown} cannot be used: {why}", setting) from None


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log failures of single connections by their type only, since their text could quote what a peer sent."""
    LOG.warning("a connection failed (%s)", type(context.get("exception")).__name__)


class Server:
    """Listens from construction on; `start` answers requests in a thread of its own, and `close` ends it.

    Signals are left to the caller.

    Parameters
    ----------
    app : ASGI application
        Called with whole bodies; a failure is answered by 500, and logged by its kind.
    host : str
    port : int
        0 takes any free port; the attribute `port` holds it.
    setting, extra : str
        The setting that holds the address, and the extra that installs the server, for error messages.
    limits : Limits
    tls : ssl.SSLContext, optional
        Makes the connections encrypted.
    screen : Screen, optional

    Attributes
    ----------
    dropped : Counter
        Requests that were not read to their end, by reason: ``slow``, ``crowded``; and ``handshake``.

    Raises
    ------
    ConfigError
        The address cannot be used, for instance because another process listens there; or uvicorn is not installed.
    """

    def __init__(
        self,
        app: App,
        host: str,
        port: int,
        limits: Limits,
        *,
        setting: str,
        extra: str,
        tls: ssl.SSLContext | None = None,
        screen: Screen | None = None,
    ) -> None:
        with needs_package("uvicorn", extra, setting):
            import uvicorn
            from uvicorn.protocols.http.h11_impl import H11Protocol
        self._crowd = ConnectionPool(limits)
        self.dropped = self._crowd.dropped
        self._socket = _listen(host, port, setting)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            _BoundedApp(app, self._crowd, limits, screen or Screen()),
            http=lambda **options: GuardedConnection(self._crowd, H11Protocol(**options), tls),
            backlog=_AT_ONCE,
            h11_max_incomplete_event_size=limits.head_bytes,
            timeout_keep_alive=math.ceil(max(limits.head_s, limits.idle_s or 0)),
            timeout_graceful_shutdown=_GRACE_S,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.CRITICAL,  # otherwise peers could fill the log with broken requests
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("Server", "fcstream")],
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runs = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fcstream-http", daemon=True)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._crowd)

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()
        self._runs.wait()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Wait some time for `stop`; returns whether it was set.

        Raises
        ------
        SourceError
            The server has ended by itself.
        """
        if not self._thread.is_alive():
            raise SourceError("the HTTP server has ended: the log says why", remedy="start again")
        return stop.wait(seconds)

    def close(self) -> None:
        """Accept no more connections, and answer complete requests within seconds. May be called more than once."""
        if self._thread.ident is None:
            self._socket.close()
            return
        with suppress(RuntimeError):  # it is closed already
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _end(self) -> None:
        self._server.should_exit = True
        self._crowd.drop(keep_answering=True)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            LOG.error("the HTTP server ends (%s)", type(error).__name__)
        finally:
            self._runs.set()
            self._socket.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_note)
        watch = asyncio.create_task(self._crowd.watch())
        self._runs.set()
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        try:
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            with suppress(OSError):  # ended already
                self._socket.listen(_IN_LINE)  # asyncio has shortened the queue to the size of its rounds
            await serving
        finally:
            watch.cancel()
            self._crowd.drop(keep_answering=False)
            await asyncio.sleep(0)  # dropped connections are closed in the next round of the loop
