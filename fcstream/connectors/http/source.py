"""Receiver of records over HTTP: a queue in whose place of a broker stands this process's own server.

A request is answered by 2xx once the spool has its body on disk. Requests that wait at the same time are stored with
one fsync. Whatever is not stored is answered by another status, so that its sender knows; how often, and why, is in
`HttpReceiver.refused`. See `bodies` for what is taken at each path.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

from ...errors import ConfigError, SourceError
from ...formats.batch import Schema
from ...formats.bounds import LONGEST_MESSAGE
from ...formats.decoders import LineDecoder
from ...formats.envelopes import Envelope, OfferedFields
from ...runtime.http_server import Limits, Message, Receive, Screen, Send, Server
from ..base import PushQueue, ReceivedMessage
from ..urls import Address, UrlOption
from .access import ACCESS, Access
from .answers import RefusedRequest, of_status
from .bodies import Bodies, Kind
from .content import CODINGS, decompressed, media_type

LOG = logging.getLogger("fcstream.connectors.http")
MAX_BYTES = UrlOption("max_bytes", "Most bytes of a body, packed or unpacked, 16 MiB at most.", 4 << 20)
CONNECTIONS = UrlOption("connections", "Most connections at one time.", 256)
BODY_S = UrlOption("body_s", "Seconds for sending the head of a request, and as many for its body.", 20)
_HELD_BYTES = 1 << 26  # of bodies that wait for the disk, and of those that are being read
_IDLE_S = 90.0  # longer than collectors pause between two requests
_REQUESTS = 100_000
_LONGEST_KEY = 256
_LOOKS = ("GET", "HEAD", "OPTIONS")  # methods by which nothing is sent
PORT = 4318  # OTLP's own


class _Request(NamedTuple):
    """A request that waits for the disk: where its answer goes, and the key by which it is known again."""

    answer: asyncio.Future[RefusedRequest | None]
    key: bytes


class HttpReceiver(PushQueue):
    """Takes bodies over HTTP.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``https`` for TLS.
    name : str
        Not used: senders do not know the consumer.

    Raises
    ------
    ConfigError
        The address cannot be used, others could reach it without a token or a certificate, or uvicorn is missing.

    Attributes
    ----------
    access : Access
    port : int

    Notes
    -----
    Nothing is answered before `start`. The server has a thread of its own; `receive`, `acknowledge` and `refuse` are
    called by another one.
    """

    offered: ClassVar = OfferedFields(headers="headers of the request")
    url: ClassVar = "http://host[:port]"
    url_options: ClassVar = (*ACCESS, MAX_BYTES, CONNECTIONS, BODY_S)

    def __init__(self, address: Address, name: str) -> None:
        self._max_bytes = int(address.take_number(MAX_BYTES))
        connections, seconds = int(address.take_number(CONNECTIONS)), address.take_number(BODY_S)
        self.access = Access(address)
        if len(address.hosts) != 1 or address.path or address.user is not None:
            raise ConfigError(
                f"must be {address.scheme}://HOST:PORT where to listen, without path and login, got {address.masked}: "
                "senders choose the path",
                address.key,
            )
        if not 1 <= self._max_bytes < LONGEST_MESSAGE:
            raise ConfigError(f"must have `max_bytes` below {LONGEST_MESSAGE}", address.key, got=self._max_bytes)
        address.finish()
        self._asked = address.asked
        self._bodies: Bodies | None = None
        self._news = threading.Condition()
        self._waiting: deque[ReceivedMessage] = deque()
        self._held = 0  # bytes that wait for the disk
        self._is_closed = False
        self._refused: Counter[str] = Counter()
        limits = Limits(
            connections=connections,
            per_peer=connections,  # collectors share addresses with each other
            body_bytes=self._max_bytes,
            held_bytes=max(_HELD_BYTES, 2 * self._max_bytes),
            head_s=seconds,
            body_s=seconds,
            answer_s=60,
            requests=_REQUESTS,
            idle_s=_IDLE_S,
        )
        host, given = address.hosts[0]
        port = PORT if given is None else given  # 0 takes any
        host = "127.0.0.1" if host.lower() == "localhost" else host
        self._server = Server(
            self._answer, host, port, limits, setting=address.key, extra="http", tls=self.access.tls, screen=_Door(self)
        )
        self.port = self._server.port
        if self.access.is_plain:
            LOG.warning("%s is not encrypted: tokens and records can be read on their way", address.masked)

    @property
    def refused(self) -> Mapping[str, int]:
        """Return how many requests were refused so far, by reason; see `REASONS`."""
        return dict(self._refused + self._server.dropped)

    @staticmethod
    def make_decoder(format: str, schema: Schema, options: Mapping[str, Any]) -> Bodies:
        return Bodies(format, schema, options)

    def expect(self, decoder: LineDecoder) -> None:
        assert isinstance(decoder, Bodies)
        self._bodies = decoder

    def start(self) -> None:
        self._server.start()

    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._is_closed, timeout_s)
            taken = [self._waiting.popleft() for _ in range(min(max_messages, len(self._waiting)))]
        if not taken and not self._is_closed and not self._server.is_alive:
            raise SourceError("the HTTP server has ended: the log says why; it is started again")
        return taken

    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        self._settle(received, None)

    def refuse(self, received: Sequence[ReceivedMessage], reason: str) -> None:
        self._settle(received, RefusedRequest(reason))

    def pending(self) -> bool:
        return bool(self._waiting)

    def delivery_id(self, received: ReceivedMessage) -> bytes | None:
        """Return what a request and its repetition have in common: path, key, body, and headers that are read.

        The body is a part of it, so that a key which is used again hides no other records.
        """
        request: _Request = received.token
        if not request.key:
            return None
        content = hashlib.blake2b(received.body, digest_size=32)
        if received.envelope is not None:
            content.update(received.envelope.packed())
        return b"%d " % len(request.key) + request.key + content.digest()

    def close(self) -> None:
        self._server.close()
        with self._news:
            self._is_closed = True
            self._news.notify_all()

    def _settle(self, received: Sequence[ReceivedMessage], refusal: RefusedRequest | None) -> None:
        """Answer requests from another thread."""
        if not received:
            return
        size = sum(len(each.body) for each in received)
        with self._news:
            self._held -= size
        with suppress(RuntimeError):  # the server has ended, and nobody waits for an answer
            received[0].token.answer.get_loop().call_soon_threadsafe(_resolve, received, refusal)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Take one request, whose body has come whole; an ASGI application.

        It has a handful of paths, one method and no middleware, so no framework stands between it and the server.
        """
        body: bytes = (await receive())["body"]
        request: _Head = scope["fcstream"]
        try:
            body = decompressed(body, request.coding, self._max_bytes)
            taken = request.kind.look(body, request.envelope)
            refusal = await self._stored(taken.tag + body, request)
            if refusal is not None:
                raise refusal
        except RefusedRequest as refused:
            text, headers = self.refusal(scope, refused)
            headers.append((b"content-length", str(len(text)).encode()))
            await _send(send, refused.status, text, headers)
        else:
            found = [(b"content-type", taken.media.encode()), (b"content-length", str(len(taken.answer)).encode())]
            await _send(send, taken.status, taken.answer, found if taken.media else [])

    def refusal(self, scope: Message, refused: RefusedRequest) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Return the body and the headers of an answer that refuses, and count it, unless somebody only looked."""
        if scope["method"] not in _LOOKS:
            self._refused[refused.reason] += 1
        media = media_type(dict(scope["headers"]).get(b"content-type", b""))
        shown, text = "application/json", refused.json()
        if self._bodies is not None:
            shown, text = self._bodies.refusal(scope["path"], media, refused)
        return text, [(b"content-type", shown.encode()), *refused.headers()]

    async def _stored(self, body: bytes, request: _Head) -> RefusedRequest | None:
        """Wait until the spool has a body on disk, or does not take it."""
        answer: asyncio.Future[RefusedRequest | None] = asyncio.get_running_loop().create_future()
        with self._news:
            if self._held + len(body) > _HELD_BYTES:
                return RefusedRequest("busy")
            self._held += len(body)
            self._waiting.append(ReceivedMessage(body, _Request(answer, request.key), envelope=request.envelope))
            self._news.notify()
        return await answer

    def look_at(self, scope: Message) -> _Head:
        """Read the head of a request.

        Raises
        ------
        RefusedRequest
        """
        if scope["method"] != "POST":
            raise RefusedRequest("method")
        headers = dict(scope["headers"])
        self.access.check(scope, headers)
        if self._bodies is None:
            raise RefusedRequest("failed")
        path: str = scope["path"]
        kind = self._bodies.kind(path, scope["query_string"], media_type(headers.get(b"content-type", b"")))
        coding = headers.get(b"content-encoding", b"").strip().lower().decode("latin-1")
        if coding not in ("", "identity", *CODINGS):
            raise RefusedRequest("encoding")
        key = headers.get(b"idempotency-key", b"")
        if len(key) > _LONGEST_KEY:
            raise RefusedRequest("broken", f"the Idempotency-Key has more than {_LONGEST_KEY} characters")
        if self._held > _HELD_BYTES:
            raise RefusedRequest("busy")
        return _Head(kind, coding, path.encode() + b" " + key if key else b"", self._envelope(headers))

    def _envelope(self, headers: Mapping[bytes, bytes]) -> Envelope | None:
        """Keep the headers that were asked for; their names have no case."""
        if not self._asked.from_source:
            return None
        found = [(name, headers.get(name.lower().encode())) for name in self._asked.headers]
        return self._asked.envelope(headers=[(name, value) for name, value in found if value is not None])


class _Head(NamedTuple):
    """What matters of a request's head: the kind of its body, the content coding, the key of repetitions, and the
    headers that are read as fields.
    """

    kind: Kind
    coding: str
    key: bytes
    envelope: Envelope | None


class _Door(Screen):
    """Refuses requests by their head, before their body is kept."""

    def __init__(self, receiver: HttpReceiver) -> None:
        self._receiver = receiver

    def refuse(self, scope: Message) -> int:
        try:
            scope["fcstream"] = self._receiver.look_at(scope)
        except RefusedRequest as refused:
            scope["fcstream"] = refused
            return refused.status
        return 0

    def answer(self, scope: Message, status: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        found: Any = scope.get("fcstream")  # absent where the server refuses before it looks
        return self._receiver.refusal(scope, found if isinstance(found, RefusedRequest) else of_status(status))


def _resolve(received: Sequence[ReceivedMessage], refusal: RefusedRequest | None) -> None:
    for each in received:
        if not each.token.answer.done():  # the server may have cancelled it
            each.token.answer.set_result(refusal)


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
