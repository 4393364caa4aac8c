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
import ipaddress
import logging
import math
import os
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import AddressTaken, ConfigError, SourceError, needs_package

LOG = logging.getLogger("fcstream.runtime")
_LOOK_EVERY_S = 0.2
_GRACE_S = 5
_AT_ONCE = 32  # accepted in one round of the loop, before any of them can be counted
_IN_LINE = 512  # wait in the kernel, which holds no descriptor of the process
_HEAD, _BODY, _ANSWER, _LEAVING, _IDLE, _EVENTS = range(6)
EVENTS = b"text/event-stream"
"""Media type of an answer without an end."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """Limits on what the peers of a server can occupy.

    Parameters
    ----------
    connections : int
        Most connections at one time; a few more descriptors are open for an instant while one is rejected.
    per_peer : int
        Most connections from one address (IPv6: from one network of 64 bits).
    head_bytes, body_bytes : int
        Largest size of a request's headers and body; a longer body is thrown away and answered by 413.
    held_bytes : int
        Most memory for the bodies of unanswered requests and for answers that are not read yet, together.
    head_s : float
        Time from the connection, or from the previous answer, to the end of the headers.
    body_s : float
        Time from the end of the headers to the end of the body.
    answer_s : float
        Time from the end of the body until the last byte of the answer is sent; of events, until each part is.
    requests : int
        Most requests on one connection, which is then closed.
    idle_s : float, optional
        Time from an answer to the next request's first byte; `head_s` by default.
    """

    connections: int = 64
    per_peer: int = 32
    head_bytes: int = 2**14
    body_bytes: int = 0
    held_bytes: int = 2**24
    head_s: float = 10.0
    body_s: float = 20.0
    answer_s: float = 30.0
    requests: int = 100
    idle_s: float | None = None


class Screen:
    """Decides by a request's head whether its body is read at all, and words the answers of the server itself; a
    subclass may be given to `Server`.
    """

    def refuse(self, scope: Message) -> int:
        """Return the status that refuses a request before its body was read; 0 admits it."""
        return 0

    def answer(self, scope: Message, status: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Return the body and the headers of an answer by the server: to what `refuse` refused, to a body that is too
        long (413) or that there is no memory for (503), and after a failure (500).
        """
        text = {413: b"too long\n", 503: b"too much at once\n"}.get(status, b"failed\n")
        return text, [(b"content-type", b"text/plain; charset=utf-8")]


class _GuardedConnection(asyncio.Protocol):
    """Wraps uvicorn's protocol: passes on only what was admitted, and keeps track of what the connection waits for."""

    def __init__(self, crowd: _ConnectionPool, inner: asyncio.Protocol, tls: ssl.SSLContext | None) -> None:
        self._crowd, self._inner, self._tls = crowd, inner, tls
        self.transport: asyncio.Transport
        self.peer = ""
        self.client: tuple[str, int] = ("", 0)
        self.phase, self.since = _HEAD, time.monotonic()
        self.emptied = self.since  # when its peer had last read all of its events, as far as was looked
        self.held = self.requests = 0
        self.has_begun = False  # a part of a head came
        self._is_open = False  # the inner protocol has the connection
        self._early: list[bytes] = []
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        name = transport.get_extra_info("peername") or ("", 0)
        self.client, self.peer = (str(name[0]), int(name[1])), _network(str(name[0]))
        if not self._crowd.admit(self):
            if self._tls is None:
                transport.write(_FULL)
            transport.close()
        elif self._tls is None:
            self._open()
        else:
            self._handshake = asyncio.get_running_loop().create_task(self._encrypt(self._tls))

    async def _encrypt(self, tls: ssl.SSLContext) -> None:
        """Shake hands as a connection that is counted already, so that nobody holds descriptors by not doing it."""
        loop, seconds = asyncio.get_running_loop(), self._crowd.handshake_s
        try:
            found = await loop.start_tls(self.transport, self, tls, server_side=True, ssl_handshake_timeout=seconds)
        except (OSError, EOFError):  # certificates that are refused are an OSError too
            found = None
        if found is None:
            self._crowd.dropped["handshake"] += 1
            self.drop()
        else:
            self.transport = found
            self._open()

    def _open(self) -> None:
        self._is_open = True
        self._inner.connection_made(self.transport)
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._early.append(data)  # came with the end of the handshake
            return
        if self.phase == _IDLE:
            self.go_to(_HEAD)
        self.has_begun = True
        try:
            self._inner.data_received(data)
        except Exception:  # no parser's error may reach the event loop, which would log it
            self.drop()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._is_open else None

    def pause_writing(self) -> None:
        if self._is_open:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self.emptied = time.monotonic()
        if self._is_open:
            self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._crowd.leave(self)
        if self._is_open:
            self._inner.connection_lost(error)

    def go_to(self, phase: int) -> None:
        if phase != _LEAVING:  # an answer has one deadline for being made and for being read
            self.since = time.monotonic()
        self.phase = phase
        if phase == _IDLE:
            self.has_begun = False

    def begin_events(self) -> None:
        """Send events from now on; writing pauses until the peer has read each part."""
        self.go_to(_EVENTS)
        self.emptied = self.since
        self.transport.set_write_buffer_limits(high=0)

    def end_events(self) -> None:
        self.since = time.monotonic()
        self.transport.set_write_buffer_limits()

    @property
    def sends(self) -> bool:
        """Whether a part of a request came, and its end did not."""
        return self.phase == _BODY or (self.phase == _HEAD and self.has_begun)

    def drop(self) -> None:
        self._crowd.leave(self)
        self.transport.abort()


def _network(host: str) -> str:
    """Return the peer of a connection: its address, or for IPv6 its network of 64 bits, which one peer owns whole."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or int(address) >> 64)


class _ConnectionPool:
    """All connections of a server; chooses which of them to drop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_client: dict[tuple[str, int], _GuardedConnection] = {}
        self._held = 0
        idle_s = limits.head_s if limits.idle_s is None else limits.idle_s
        self._seconds = {_HEAD: limits.head_s, _BODY: limits.body_s, _IDLE: idle_s}
        self.dropped: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_client)

    @property
    def handshake_s(self) -> float:
        return self._limits.head_s

    def of(self, client: tuple[str, int]) -> _GuardedConnection | None:
        return self._by_client.get(client)

    def admit(self, new: _GuardedConnection) -> bool:
        """Decide whether a connection may stay; at a limit, the longest-waiting one of its or the busiest peer is
        dropped."""
        sizes = Counter(each.peer for each in self._by_client.values())
        crowded = None
        if sizes[new.peer] >= self._limits.per_peer:
            crowded = new.peer
        elif len(self) >= self._limits.connections:
            crowded = sizes.most_common(1)[0][0]
        if crowded is not None and not self._drop_longest(lambda each: each.peer == crowded):
            self.dropped["crowded"] += 1
            return False
        self._by_client[new.client] = new
        return True

    def leave(self, gone: _GuardedConnection) -> None:
        if self._by_client.get(gone.client) is gone:
            del self._by_client[gone.client]
        self.release(gone)

    def hold(self, connection: _GuardedConnection, size: int) -> bool:
        """Decide whether there is memory for more bytes; at the limit, the longest-waiting connection is dropped."""
        while self._held + size > self._limits.held_bytes:
            if not self._drop_longest(lambda each: each is not connection and each.held > 0):
                return False
        connection.held += size
        self._held += size
        return True

    def hold_answer(self, connection: _GuardedConnection) -> None:
        """Count from now on only the bytes that the peer has not read yet, and no body."""
        self.release(connection)
        connection.go_to(_LEAVING)
        if self.of(connection.client) is connection:
            left = connection.transport.get_write_buffer_size()
            if left and not self.hold(connection, left):
                connection.drop()

    def release(self, connection: _GuardedConnection) -> None:
        self._held -= connection.held
        connection.held = 0

    def _drop_longest(self, may_go: Callable[[_GuardedConnection], bool]) -> bool:
        waiting = [each for each in self._by_client.values() if each.phase != _ANSWER and may_go(each)]
        if waiting:
            longest = min(waiting, key=lambda each: each.since)
            self.dropped["crowded"] += longest.phase != _IDLE
            longest.drop()
        return bool(waiting)

    async def watch(self) -> None:
        """Drop connections that are past their deadline, until the server ends."""
        while True:
            now = time.monotonic()
            for each in list(self._by_client.values()):
                if each.phase in (_LEAVING, _EVENTS) and not each.transport.get_write_buffer_size():
                    self.release(each)
                    if each.phase == _EVENTS:
                        each.emptied = now
                    else:
                        each.go_to(_IDLE)
                since = each.emptied if each.phase == _EVENTS else each.since
                if now - since > self._seconds.get(each.phase, self._limits.answer_s):
                    self.dropped["slow"] += each.sends
                    each.drop()
            await asyncio.sleep(_LOOK_EVERY_S)

    def drop(self, keep_answering: bool) -> None:
        for each in list(self._by_client.values()):
            if not (keep_answering and each.phase in (_ANSWER, _LEAVING)):
                each.drop()


class _BoundedApp:
    """An application that is called with whole bodies within their limits."""

    def __init__(self, app: App, crowd: _ConnectionPool, limits: Limits, screen: Screen) -> None:
        self._app, self._crowd, self._limits, self._screen = app, crowd, limits, screen

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        connection = self._crowd.of(tuple(scope["client"] or ("", 0)))
        if connection is None:
            return  # the connection was dropped meanwhile
        connection.go_to(_BODY)
        connection.requests += 1
        is_last = connection.requests >= self._limits.requests
        answer = _Responder(send, is_last, connection, self._crowd)
        try:
            found = await self._body(connection, receive, self._screen.refuse(scope))
            connection.go_to(_ANSWER)
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

    async def _body(self, connection: _GuardedConnection, receive: Receive, refusal: int) -> bytes | int:
        """Read the body; returns it or the status that refuses it, 0 if the peer is gone.

        A refused body is read to its end and thrown away, since a peer does not read an answer while it sends.
        """
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return 0
            part = message.get("body", b"")
            if not refusal and len(body) + len(part) > self._limits.body_bytes:
                refusal = 413
            if not refusal and part and not self._crowd.hold(connection, len(part)):
                refusal = 503
            if refusal:
                body.clear()
                self._crowd.release(connection)
            else:
                body += part
            if not message.get("more_body", False):
                return refusal or bytes(body)


class _Responder:
    """Sends an answer; the last one on a connection says so."""

    def __init__(self, send: Send, is_last: bool, connection: _GuardedConnection, crowd: _ConnectionPool) -> None:
        self._send, self._is_last, self._connection, self._crowd = send, is_last, connection, crowd
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
            if self._is_last:
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
        self._crowd = _ConnectionPool(limits)
        self.dropped = self._crowd.dropped
        self._socket = _listen(host, port, setting)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            _BoundedApp(app, self._crowd, limits, screen or Screen()),
            http=lambda **options: _GuardedConnection(self._crowd, H11Protocol(**options), tls),
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
            raise SourceError("the HTTP server has ended: the log says why; start again")
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
