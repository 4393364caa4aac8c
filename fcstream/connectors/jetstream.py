"""NATS JetStream: messages are read by stream sequence, which is their identity, so a stream replays from anywhere.

A consumer here is nothing but a cursor: it acknowledges nothing, lives in the server's memory, and is made again from
the next sequence whenever anything is odd. What a restart reads from is kept apart, in a key-value bucket.

The client library is asynchronous: it runs in a thread of its own, and what is here waits for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from ..errors import ConfigError, FcstreamError, SinkError, SourceError
from ..releases.base import Release
from .base import Chunk
from .retry import close_quietly, with_patience
from .tls import distrust, tls_context
from .urls import need

if TYPE_CHECKING:
    from .urls import Address

T = TypeVar("T")
Row = tuple[int, int, bytes]  # sequence, stamp in milliseconds, body
LOG = logging.getLogger("fcstream.connectors.nats")
POLL_BYTES = 1 << 24
"""Of the messages that are asked for at once; as much again may lie ready for the next poll."""
_REQUEST_S = 5.0
_CONNECT_S = 10.0
_ASK_S = 30.0  # the server forgets what was asked of it then
_IDLE_S = 120.0  # and the consumer then
_LINGER_S = 0.1  # for messages on their way behind the first
_REFUSALS = ("permissions", "authorization", "authentication", "maxpayload", "badsubject")
_STREAM_REFUSES = 10077  # an error code: the stream is full
_LOOK_BACK = 10_000  # messages before the last one among which releases are looked for


class NatsSource:
    """Reads a stream, or one subject of it; a `LiveSource` with the stream as its one partition.

    Parameters
    ----------
    address : Address
        ``nats://[user:password@]host[:port][,host...]/STREAM``. Options: ``subject`` (a filter, with wildcards),
        ``group`` (the consumer's name), ``bucket`` (for positions; ``fcstream_positions``), ``patience`` (seconds);
        ``token`` or ``creds`` (a file); ``tls=yes``, ``ca``, ``cert``, ``key`` (files in PEM).
    name : str
        The consumer's: its position is the key ``STREAM.NAME`` of the bucket. The bucket is made if it is missing, with
        one replica: make it before to have more.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        The server is asked at once, and not twice. The stream must exist.

    Notes
    -----
    Stamps are the times at which the server stored the messages. If messages were dropped before they were read,
    reading goes on from the oldest there is, and a warning is logged. A stream that was deleted and made anew has
    sequences of its own: `ends` raises then, and a source that is opened later reads it from its beginning.
    """

    receipt_is_durable = False
    generation = 0

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._stream = _stream_of(address)
        self._subject = address.take("subject", ">")
        self._bucket = address.take("bucket", "fcstream_positions")
        consumer = re.sub(rb"[^-A-Za-z0-9_]", lambda odd: b"=%02X" % ord(odd[0]), address.take("group", name).encode())
        self._key = f"{self._stream}.{consumer.decode()}"
        self._reader: _Reader | None = None
        self._next, self._created, self._warned = 0, "", 0
        self._wire = _Wire(address, patience_s, SourceError)
        self._wire.first(self._start)
        self._committed = self._next

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        if not (rows := self._wire.do(partial(self._take, max_messages, timeout_s))):
            return []
        sequences, stamps, bodies = zip(*rows, strict=True)
        self._next = sequences[-1] + 1
        return [Chunk(self._stream, np.array(sequences, np.int64), np.array(stamps, np.int64), list(bodies))]

    def ends(self) -> dict[str, int]:
        return {self._stream: self._wire.do(self._end)}

    def behind(self, ends: Mapping[str, int]) -> bool:
        end = ends.get(self._stream, 0)
        if self._next >= end:
            return False

        async def ask() -> int | None:
            if self._reader is not None and self._reader.rows and self._reader.position == self._next:
                return self._reader.rows[0][0]
            return await self._wire.sequence_from(self._stream, self._subject, self._next)

        found = self._wire.do(ask)
        return found is not None and found < end

    def seek(self, positions: Mapping[str, int]) -> None:
        self._next = max(1, positions[self._stream])

    def commit(self, positions: Mapping[str, int]) -> None:
        position = positions.get(self._stream, 0)
        if position > self._committed:
            value = json.dumps({"position": position, "created": self._created}).encode()
            self._wire.do(partial(self._put, value))
            self._committed = position

    def close(self) -> None:
        if self._reader is not None:
            close_quietly(partial(self._wire.once, self._reader.close))
            self._reader = None
        self._wire.close()

    async def _start(self) -> None:
        """Where to go on from."""
        import nats.js.errors

        self._created, self._next, end = await self._wire.extent(self._stream)
        try:
            kept = await (await self._wire.js.key_value(self._bucket)).get(self._key)
        except nats.js.errors.BucketNotFoundError:
            await self._wire.js.create_key_value(bucket=self._bucket, history=1)
            return
        except nats.js.errors.KeyNotFoundError:
            return
        try:
            value = json.loads(kept.value)
            position, created = int(value["position"]), str(value["created"])
        except (ValueError, TypeError, KeyError):
            raise SourceError(f"bucket {self._bucket} must hold a position as {self._key}: delete that key") from None
        if created != self._created or position > end:
            LOG.warning("stream %s was made anew: it is read from its beginning", self._stream)
        else:
            self._next = position
            await self._end()

    async def _end(self) -> int:
        """The sequence after the last one; looks whether it is still the same stream, and whole."""
        created, first, end = await self._wire.extent(self._stream)
        stream, position = self._stream, self._next
        if created != self._created or end < position:
            raise SourceError(f"stream {stream} was made anew: open the source again to read it from its beginning")
        if first > position > self._warned:
            self._warned = position
            LOG.warning("stream %s begins at %d: messages from %d on were dropped unread", stream, first, position)
        return end

    async def _put(self, value: bytes) -> None:
        bucket = await self._wire.js.key_value(self._bucket)
        await bucket.put(self._key, value)

    async def _take(self, room: int, timeout_s: float) -> list[Row]:
        reader = self._reader
        if reader is None or not reader.is_good(self._wire.client, self._next):
            if reader is not None and reader.client is self._wire.client:
                await reader.close()
            await self._end()
            reader = self._reader = await _Reader.open(self._wire, self._stream, self._subject, self._next)
        return await reader.take(room, timeout_s)


class NatsSink:
    """Publishes releases on a subject of a stream, each with an id by which the server drops repetitions; a `Sink`.

    The id is ``STREAM:OPEN``, of the fcstream stream and the window's opening in milliseconds. The server remembers ids
    for as long as the stream's ``duplicate_window`` says; after a longer pause `missing` looks among the last messages.

    Parameters
    ----------
    address : Address
        As for `NatsSource`, with ``subject`` required and without ``group`` and ``bucket``.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
        The stream must exist and take the subject.
    """

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._stream = _stream_of(address)
        self._subject = address.take("subject")
        if re.search(r"[*>\s]", self._subject):
            raise ConfigError(f"must name a `subject` without wildcards, got {address.masked}", address.place)
        self._wire = _Wire(address, patience_s, SinkError)
        self._wire.first(self._start)

    def write(self, releases: Sequence[Release]) -> None:
        for release in releases:
            self._wire.do(partial(self._publish, release))

    def send(self, bodies: Sequence[bytes]) -> None:
        async def publish(body: bytes) -> None:
            await self._wire.js.publish(self._subject, body, stream=self._stream)

        for body in bodies:
            self._wire.do(partial(publish, body))

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        held = self._wire.do(self._tail) if releases else set()
        return [release for release in releases if release.to_bytes() not in held]

    def last(self) -> Release | None:
        message = self._wire.do(self._last)
        if message is None:
            return None
        try:
            return Release.from_bytes(message.data or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SinkError(f"{self._subject} holds something else than releases: choose another subject") from None

    def close(self) -> None:
        self._wire.close()

    async def _start(self) -> None:
        if await self._wire.js.find_stream_name_by_subject(self._subject) != self._stream:
            raise SinkError(f"stream {self._stream} must take subject {self._subject}: add it to the stream")

    async def _publish(self, release: Release) -> None:
        headers, body = {"Nats-Msg-Id": f"{release.stream}:{release.window_open_ms}"}, release.to_bytes()
        ack = await self._wire.js.publish(self._subject, body, stream=self._stream, headers=headers)
        if ack.duplicate:
            held = await self._wire.js.get_msg(self._stream, ack.seq)
            if held.data != body:
                raise SinkError(f"{self._subject} holds another release of window {release.window_open_ms}: purge it")

    async def _last(self) -> Any:
        import nats.js.errors

        try:
            return await self._wire.js.get_last_msg(self._stream, self._subject)
        except nats.js.errors.NotFoundError:
            return None

    async def _tail(self) -> set[bytes]:
        """The last messages of the subject."""
        last, held = await self._last(), set()
        if last is not None:
            reader = await _Reader.open(self._wire, self._stream, self._subject, max(1, last.seq - _LOOK_BACK))
            sequence = 0
            while sequence < last.seq and (rows := await reader.take(1000, _REQUEST_S)):
                held |= {body for *_, body in rows}
                sequence = rows[-1][0]
            await reader.close()
        return held


class _Reader:
    """A cursor over a stream, on one connection. Broken for good by a gap, or by anything that is not understood.

    One request for many messages is open at a time; the next one is sent when the last messages were handed out, so
    that they come while the caller works.
    """

    def __init__(self, wire: _Wire, stream: str, consumer: str, start: int) -> None:
        self.client = wire.client
        self.position = start  # what was handed out lies before it
        self.rows: deque[Row] = deque()
        self.is_broken = False
        self._js = wire.js
        self._stream, self._consumer = stream, consumer
        self._request = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = wire.client.new_inbox()
        self._bytes = max(POLL_BYTES, 2 * wire.client.max_payload)
        self._news = asyncio.Event()
        self._requests = 0
        self._asked = 0  # messages of the last request that did not come yet
        self._forget_at = 0.0
        self._delivered = 0
        self._waiting = 0  # messages behind the last one, as the server saw it

    @classmethod
    async def open(cls, wire: _Wire, stream: str, subject: str, start: int) -> _Reader:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            filter_subject=None if subject == ">" else subject,
            inactive_threshold=_IDLE_S,
            mem_storage=True,
        )
        info = await wire.js.add_consumer(stream, config)
        reader = cls(wire, stream, info.name, start)
        await reader.client.subscribe(f"{reader._inbox}.*", cb=reader._arrived, pending_bytes_limit=0)
        return reader

    def is_good(self, client: Any, position: int) -> bool:
        """Whether it goes on from there: somebody may not have got what it handed out last."""
        return not self.is_broken and self.client is client and self.position == position

    async def take(self, room: int, timeout_s: float) -> list[Row]:
        """Up to `room` messages; waits for the first one."""
        now = asyncio.get_running_loop().time
        until = now() + timeout_s
        while len(self.rows) < room and not self.is_broken:
            self._news.clear()
            if self.rows and not (self._asked and self._waiting):
                break
            if not self._asked:
                await self._ask(room)
            left = _LINGER_S if self.rows else min(until - now(), _REQUEST_S)
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, left))
            except TimeoutError:
                self.is_broken = now() > self._forget_at
                if self.rows or now() >= until:
                    break
        if self.is_broken and not self.rows:
            raise _Lost("the consumer was lost")
        taken = [self.rows.popleft() for _ in range(min(room, len(self.rows)))]
        if taken:
            self.position = taken[-1][0] + 1
        if not self.rows and not self._asked and not self.is_broken:
            await self._ask(room)
        return taken

    async def close(self) -> None:
        with suppress(Exception):
            await self._js.delete_consumer(self._stream, self._consumer)

    async def _ask(self, count: int) -> None:
        self._requests += 1
        self._asked, self._waiting = count, 1
        self._forget_at = asyncio.get_running_loop().time() + _ASK_S + _REQUEST_S
        request = {"batch": count, "max_bytes": self._bytes, "expires": int(_ASK_S * 1e9)}
        await self.client.publish(self._request, json.dumps(request).encode(), f"{self._inbox}.{self._requests}")

    async def _arrived(self, message: Any) -> None:
        self._news.set()
        if not message.reply:  # what became of a request
            header = message.headers or {}
            status, why = header.get("Status"), header.get("Description", "")
            if message.subject == f"{self._inbox}.{self._requests}":
                self._asked = 0
                self.is_broken = self.is_broken or not (status in ("404", "408") or "MaxBytes" in why or "Batch" in why)
            return
        # $JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.delivered.nanoseconds.waiting[.random]
        tokens = message.reply.split(".")
        sequence, delivered, stamp, waiting = tokens[5:9] if len(tokens) < 11 else tokens[7:11]
        self.is_broken = self.is_broken or int(delivered) != self._delivered + 1
        if not self.is_broken:
            self._delivered += 1
            self._asked = max(0, self._asked - 1)
            self._waiting = int(waiting)
            self.rows.append((int(sequence), int(stamp) // 1_000_000, message.data))


class _Wire:
    """A connection in a thread of its own, which is made again when it was lost, and whose errors tell no secrets."""

    def __init__(self, address: Address, patience_s: float, error: type[FcstreamError]) -> None:
        try:
            import nats.aio.client  # noqa: F401
        except ImportError:
            raise need("nats-py", "nats", address.place) from None
        self._error = error
        self._where = address.masked
        self._patience_s = address.take_number("patience", patience_s)
        self._wants_tls, self._options = _options(address)
        address.finish()
        self.client: Any = None
        self.js: Any = None
        self._trouble: BaseException | None = None
        self._closed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fcstream-nats", daemon=True)
        self._thread.start()

    def first(self, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The first thing to do: one try, so that a wrong address is told at once; closes if it fails."""
        try:
            return self.do(action, 0.0)
        except BaseException:
            self.close()
            raise

    def do(self, action: Callable[[], Coroutine[Any, Any, T]], patience_s: float | None = None) -> T:
        """Do something that is safe to repeat when the connection is lost: for so long, or as the address says."""
        if self._loop.is_closed():
            raise self._error(f"{self._where} was closed: open it again")

        def lost(error: BaseException) -> FcstreamError:
            return self._error(f"{self._where} cannot be reached: {error}; start the server, or correct the address")

        patience_s = self._patience_s if patience_s is None else patience_s
        return with_patience(lambda: self.once(action), lambda: None, (_Lost,), patience_s, lost)

    def once(self, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        future = asyncio.run_coroutine_threadsafe(self._guarded(action), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if self._loop.is_closed():
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(2 * _REQUEST_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        await self._disconnect()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def extent(self, stream: str) -> tuple[str, int, int]:
        """When a stream was made, its first sequence, and the one after its last."""
        info = await self._api(f"STREAM.INFO.{stream}")
        return info["created"], max(1, info["state"]["first_seq"]), info["state"]["last_seq"] + 1

    async def sequence_from(self, stream: str, subject: str, start: int) -> int | None:
        """Of the first message at or after `start`, None if there is none."""
        from nats.js.errors import NotFoundError

        try:
            found = await self._api(f"STREAM.MSG.GET.{stream}", seq=start, next_by_subj=subject)
        except NotFoundError:
            return None
        return int(found["message"]["seq"])

    async def _api(self, what: str, **request: Any) -> Any:
        """An answer of the server's, as it is: the library knows parts of it only."""
        from nats.js.errors import APIError

        body = json.dumps(request).encode() if request else b""
        answer = await self.client.request(f"$JS.API.{what}", body, timeout=_REQUEST_S)
        found = json.loads(answer.data)
        if "error" in found:
            APIError.from_error(found["error"])
        return found

    async def _guarded(self, action: Callable[[], Awaitable[T]]) -> T:
        """Connect if need be, and act; what goes wrong is either `_Lost` or an error of ours."""
        import nats.errors
        import nats.js.errors

        try:
            if self.client is None or self.client.is_closed:
                await self._connect()
            return await self._unless_closed(action)
        except (FcstreamError, _Lost):
            raise
        except nats.js.errors.APIError as error:
            if error.code == 503 and error.err_code != _STREAM_REFUSES:
                raise _Lost("JetStream is not available") from None
            raise self._refused(error.description or type(error).__name__) from None
        except (nats.errors.Error, OSError) as error:
            trouble, self._trouble = self._trouble, None
            said = f"{error!r} {trouble}".lower()
            if why := next((word for word in _REFUSALS if word in said), None):
                raise self._refused(why) from None
            if isinstance(error, nats.errors.TimeoutError):
                await self._disconnect()  # whatever it is, a new connection may help
            raise _Lost(
                _kind(trouble if trouble and isinstance(error, nats.errors.NoServersError) else error)
            ) from None

    async def _unless_closed(self, action: Callable[[], Awaitable[T]]) -> T:
        """Act, but no longer than the connection lives."""
        acting = asyncio.ensure_future(action())
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((acting, closed), return_when=asyncio.FIRST_COMPLETED)
            if acting.done():
                return acting.result()
            raise _Lost("the connection was closed")
        finally:
            for task in (acting, closed):
                task.cancel()

    async def _connect(self) -> None:
        closed = self._closed = asyncio.Event()
        self._trouble = None

        async def on_close() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            self._trouble = error

        await self._disconnect()
        client = _sturdy_client(self._wants_tls, self._refused("the file of credentials cannot be used"))
        try:
            await asyncio.wait_for(client.connect(closed_cb=on_close, error_cb=on_error, **self._options), _CONNECT_S)
        except BaseException:
            await _close(client)
            raise
        self.client = client
        self.js = client.jetstream(timeout=_REQUEST_S)

    async def _disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await _close(client)

    def _refused(self, why: str) -> FcstreamError:
        return self._error(f"{self._where} refuses: {why}; correct the address, or the server's rules")


class _Lost(Exception):
    """The connection, the consumer, or a server that is about to come back."""


async def _close(client: Any) -> None:
    """Let go; the library waits for ever for a connection whose handshake failed."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), 1.0)


def _sturdy_client(wants_tls: bool, useless: FcstreamError) -> Any:
    """The library's client, mended in two places; raises `useless` where credentials are."""
    from nats.aio.client import Client
    from nats.errors import SecureConnRequiredError

    class Sturdy(Client):
        async def _process_msg(self, sid: Any, subject: Any, reply: Any, data: Any, headers: Any) -> None:
            # A subject or headers that it cannot parse end its reading for good: any publisher could do that.
            try:
                await super()._process_msg(sid, subject, reply, data, headers)
            except Exception:
                await super()._process_msg(sid, b"unreadable", reply, data, b"")

        def _connect_command(self) -> Any:
            # It encrypts when the server asks for it; who stands between could leave that out and get the password.
            if wants_tls and not self._server_info.get("tls_required"):
                raise SecureConnRequiredError
            try:
                return super()._connect_command()
            except Exception:  # of any kind: it looks into the file of credentials now
                raise useless from None

    return Sturdy()


def _kind(error: BaseException) -> str:
    """What is safe to tell: the system's words, or the class."""
    if why := distrust(error):
        return why
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error)[:200].removeprefix("nats: ") if type(error).__name__ == "Error" else type(error).__name__


def _stream_of(address: Address) -> str:
    if address.user and not address.password:  # a token, perhaps: not to be shown
        raise ConfigError("must have a password after the user; a token goes into ?token=...", address.place)
    if not re.fullmatch(r"[^\s.*>/\\]+", address.path):
        raise ConfigError(f"must be nats://host/STREAM, got {address.masked}", address.place)
    return address.path


def _options(address: Address) -> tuple[bool, dict[str, Any]]:
    """Whether the connection must be encrypted, and the options of the client."""
    options: dict[str, Any] = {"name": "fcstream", "connect_timeout": _REQUEST_S, "ping_interval": 10}
    # It would be patient for ever; patience is ours.
    options |= {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
    options["servers"] = [
        f"nats://{f'[{name}]' if ':' in name else name}:{port or 4222}" for name, port in address.hosts
    ]
    options |= {"user": address.user, "password": address.password, "token": address.take("token", "") or None}
    if creds := address.take("creds", ""):
        try:
            import nkeys  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
        except ImportError:
            raise need("nkeys", "nats", address.place) from None
        if not os.access(creds, os.R_OK):
            raise ConfigError(f"names the file {creds}, which cannot be read", address.place)
        options["user_credentials"] = creds
    wants_tls = address.take("tls", "no") == "yes" or not {"ca", "cert", "key"}.isdisjoint(address.options)
    if wants_tls:
        options["tls"] = tls_context(address)
    return wants_tls, options
