"""Connections of an HTTP server: what each waits for, which is dropped at a limit, and in what pieces they are parsed.

A parser's work is in the number of lines and not of bytes. So what has many lines, such as a body in chunks of one
byte, is parsed `_LINES` at a time, in turn with the other connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
_LOOK_EVERY_S = 0.2
_LINES = 128
"""Lines that are parsed at a time of what comes in lines: heads and chunks."""
_TAIL = 1024
_LAST_CHUNK = re.compile(rb"\r\n0+(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n\Z")
HEAD, BODY, ANSWER, LEAVING, IDLE, STREAM = range(6)


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


class GuardedConnection(asyncio.Protocol):
    """Wraps uvicorn's protocol: passes on only what was admitted, and keeps track of what the connection waits for."""

    def __init__(self, crowd: ConnectionPool, inner: asyncio.Protocol, tls: ssl.SSLContext | None) -> None:
        self._crowd, self._tls = crowd, tls
        self._inner: Any = inner  # uvicorn's own, which has more than a protocol
        self.transport: asyncio.Transport
        self.peer = ""
        self.client: tuple[str, int] = ("", 0)
        self.phase, self.since = HEAD, time.monotonic()
        self.emptied = self.since  # when its peer had last read all of its events, as far as was looked
        self.held = self.requests = 0
        self.has_begun = False  # a part of a head came
        self._is_open = False  # the inner protocol has the connection
        self._early: list[bytes] = []
        self.waiting = bytearray()  # came, and is not parsed yet
        self.is_chunked = False
        self.received = 0  # bytes of this request that were parsed, of a body in chunks those of the chunks' sizes too
        self._tail = b""  # what came last
        self._thrown: asyncio.Future[None] | None = None
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
        self._inner.connection_made(_PacedTransport(self))
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._early.append(data)  # came with the end of the handshake
            return
        if self.phase == IDLE:
            self.go_to(HEAD)
        self.has_begun = True
        if self._thrown is not None:
            self._throw(data)
        elif self.phase == BODY and not self.is_chunked:
            self._parse(data)
        else:
            self.waiting += data
            if not self._crowd.is_queued(self):
                self.parse_some()
            if self.waiting:
                self.transport.pause_reading()
                self._crowd.queue(self)

    def parse_some(self) -> None:
        """Parse some lines of what has come, and no more of a head than it may have bytes."""
        most = len(self.waiting)
        if self.phase != BODY:  # a longer one comes to its limit before its end is seen
            most = min(most, max(1, self._crowd.head_bytes + 1 - self.received))
        end = at = 0
        while at < _LINES and end < most:
            found = self.waiting.find(b"\r\n", end, most)
            end, at = most if found < 0 else found + 2, at + 1
        some = bytes(self.waiting[:end])
        del self.waiting[:end]
        self._parse(some)
        if not self.waiting and not self._inner.flow.read_paused:
            self.transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        self.received += len(data)
        if self.phase != BODY or self.is_chunked:
            self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]
        try:
            self._inner.data_received(data)
        except Exception:  # no parser's error may reach the event loop, which would log it
            self.drop()

    def throw_away(self) -> asyncio.Future[None]:
        """Look at nothing from now on but for the end of a body in chunks; returns what is done when it has come."""
        self._thrown = asyncio.get_running_loop().create_future()
        data = bytes(self.waiting)
        self.waiting.clear()
        if self._inner.cycle.more_body:
            self._throw(data)
        else:  # it was parsed with the head
            self._thrown.set_result(None)
        self.transport.resume_reading()
        return self._thrown

    def _throw(self, data: bytes) -> None:
        assert self._thrown is not None
        self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]
        if _LAST_CHUNK.search(self._tail) and not self._thrown.done():
            self._thrown.set_result(None)

    def eof_received(self) -> bool | None:
        if self._thrown is not None and not self._thrown.done():
            self._thrown.cancel()
        return bool(self._inner.eof_received()) if self._is_open else None

    def pause_writing(self) -> None:
        if self._is_open:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self.emptied = time.monotonic()
        if self._is_open:
            self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._crowd.leave(self)
        self.waiting.clear()
        if self._thrown is not None:
            self._thrown.cancel()
        if self._is_open:
            self._inner.connection_lost(error)

    def go_to(self, phase: int) -> None:
        if phase != LEAVING:  # an answer has one deadline for being made and for being read
            self.since = time.monotonic()
        self.phase = phase
        if phase in (ANSWER, LEAVING, IDLE):
            self.received = 0
        if phase == IDLE:
            self.has_begun = False

    def begin_events(self) -> None:
        """Send events from now on; writing pauses until the peer has read each part."""
        self.go_to(STREAM)
        self.emptied = self.since
        self.transport.set_write_buffer_limits(high=0)

    def end_events(self) -> None:
        self.since = time.monotonic()
        self.transport.set_write_buffer_limits()

    @property
    def sends(self) -> bool:
        """Whether a part of a request came, and its end did not."""
        return self.phase == BODY or (self.phase == HEAD and self.has_begun)

    def drop(self) -> None:
        self._crowd.leave(self)
        self.transport.abort()


class _PacedTransport:
    """A connection's transport for its parser, which does not read on while something waits to be parsed."""

    def __init__(self, connection: GuardedConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.transport, name)

    def resume_reading(self) -> None:
        if not self._connection.waiting:
            self._connection.transport.resume_reading()


def _network(host: str) -> str:
    """Return the peer of a connection: its address, or for IPv6 its network of 64 bits, which one peer owns whole."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or int(address) >> 64)


class ConnectionPool:
    """All connections of a server; chooses which of them to drop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_client: dict[tuple[str, int], GuardedConnection] = {}
        self._held = 0
        idle_s = limits.head_s if limits.idle_s is None else limits.idle_s
        self._seconds = {HEAD: limits.head_s, BODY: limits.body_s, IDLE: idle_s}
        self._turns: dict[GuardedConnection, None] = {}  # in their order
        self.dropped: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_client)

    @property
    def head_bytes(self) -> int:
        return self._limits.head_bytes

    def is_queued(self, connection: GuardedConnection) -> bool:
        """Return whether a connection waits for its turn to be parsed."""
        return connection in self._turns

    def queue(self, connection: GuardedConnection) -> None:
        """Let a connection be parsed in turn with the others, one of them in each round of the loop."""
        if connection not in self._turns:
            self._turns[connection] = None
            if len(self._turns) == 1:
                asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        connection = next(iter(self._turns))
        del self._turns[connection]
        if connection.waiting and self.of(connection.client) is connection:
            connection.parse_some()
        if connection.waiting:
            self._turns[connection] = None
        if self._turns:
            asyncio.get_running_loop().call_soon(self._take_turn)

    @property
    def handshake_s(self) -> float:
        return self._limits.head_s

    def of(self, client: tuple[str, int]) -> GuardedConnection | None:
        return self._by_client.get(client)

    def admit(self, new: GuardedConnection) -> bool:
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

    def leave(self, gone: GuardedConnection) -> None:
        if self._by_client.get(gone.client) is gone:
            del self._by_client[gone.client]
        self.release(gone)

    def hold(self, connection: GuardedConnection, size: int) -> bool:
        """Decide whether there is memory for more bytes; at the limit, the longest-waiting connection is dropped."""
        while self._held + size > self._limits.held_bytes:
            if not self._drop_longest(lambda each: each is not connection and each.held > 0):
                return False
        connection.held += size
        self._held += size
        return True

    def hold_answer(self, connection: GuardedConnection) -> None:
        """Count from now on only the bytes that the peer has not read yet, and no body."""
        self.release(connection)
        connection.go_to(LEAVING)
        if self.of(connection.client) is connection:
            left = connection.transport.get_write_buffer_size()
            if left and not self.hold(connection, left):
                connection.drop()

    def release(self, connection: GuardedConnection) -> None:
        self._held -= connection.held
        connection.held = 0

    def _drop_longest(self, may_go: Callable[[GuardedConnection], bool]) -> bool:
        waiting = [each for each in self._by_client.values() if each.phase != ANSWER and may_go(each)]
        if waiting:
            longest = min(waiting, key=lambda each: each.since)
            self.dropped["crowded"] += longest.phase != IDLE
            longest.drop()
        return bool(waiting)

    async def watch(self) -> None:
        """Drop connections that are past their deadline, until the server ends."""
        while True:
            now = time.monotonic()
            for each in list(self._by_client.values()):
                if each.phase in (LEAVING, STREAM) and not each.transport.get_write_buffer_size():
                    self.release(each)
                    if each.phase == STREAM:
                        each.emptied = now
                    else:
                        each.go_to(IDLE)
                since = each.emptied if each.phase == STREAM else each.since
                if now - since > self._seconds.get(each.phase, self._limits.answer_s):
                    self.dropped["slow"] += each.sends
                    each.drop()
            await asyncio.sleep(_LOOK_EVERY_S)

    def drop(self, keep_answering: bool) -> None:
        for each in list(self._by_client.values()):
            if not (keep_answering and each.phase in (ANSWER, LEAVING)):
                each.drop()
