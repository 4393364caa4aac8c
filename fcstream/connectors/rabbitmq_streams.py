"""RabbitMQ streams: logs that are read by offset, so a stream replays from anywhere.

A message's stamp is that of its chunk: the clock of the broker that leads the stream, when it wrote the chunk. It is
stored there, so it is the same at every delivery. Brokers write streams without waiting for the disk: what a single one
had not written yet is lost with its machine, and its offsets are given again; use replicas.

Most clients wrap what they send in AMQP 1.0; the body of such a message is its data, of any other the message itself.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from ..errors import FcstreamError, SinkError, SourceError
from ..releases.base import Release
from .base import Chunk
from .retry import close_quietly, with_patience
from .tls import distrust, tls_context
from .urls import need

if TYPE_CHECKING:
    from .urls import Address

T = TypeVar("T")
LOG = logging.getLogger("fcstream.connectors.rabbitmq")
POLL_BYTES = 1 << 26
"""A poll stops gathering here; it exceeds it by one chunk at most."""
_REQUEST_S = 15.0
_QUIET_S = 30.0
_FRAME_BYTES = 1 << 20
_HOUR_MS = 3_600_000
_FAREWELL_S = 5.0
_LAST_REQUEST = 0x7FFFFFFF  # a number that no other request gets
_LINGERS = 10  # hundredths of a second that a chunk may come after the answer that should follow it


class RabbitStreamSource:
    """Reads one stream, from the broker that leads it; a `LiveSource`.

    Parameters
    ----------
    address : Address
        ``rabbitmq-stream://[user:password@]host[:port][,host...]/[vhost]?stream=NAME``. Options: ``group`` (the
        consumer's name), ``credit`` (chunks that the broker sends ahead; 10), ``patience`` (seconds).
        ``rabbitmq-stream+tls`` for TLS, with ``ca``, ``cert``, ``key`` (files in PEM).
    name : str
        The consumer's: its position is kept in the stream, as the offset of the last message that is not needed again.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
        The broker is asked at once, and not twice.

    Notes
    -----
    The broker that leads the stream is connected to by the name that it advertises (``stream.advertised_host``). A
    super stream's partitions are streams: each is a source of its own.

    If messages were dropped by the stream's retention before they were read, reading goes on from the oldest there is.
    A warning is logged if that is noticed; after a restart it is not, since positions are dropped with what they point
    to. A stream that ends before what was read of it was made anew: every call raises then, and a source that is opened
    later reads it from its beginning.
    """

    receipt_is_durable = False
    generation = 0

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._stream = address.take("stream")
        self._name = address.take("group", name)
        self._credit = int(address.take_number("credit", 10))
        self._next = -1
        self._committed = 0
        self._frames: deque[Any] = deque()
        self._opened: tuple[int, int, list[bytes]] = (0, 0, [])  # of the first frame: offset, stamp, messages
        self._heard, self._number = 0.0, 0
        self._link = _Link(address, self._name, patience_s, SourceError, self._stream, self._begin)
        self._link.open()

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        until = time.monotonic() + timeout_s
        self._link.repeat(lambda: self._wait(until))
        pieces: list[tuple[int, int, list[bytes]]] = []
        room, size = max_messages, 0
        while room > 0 and size < POLL_BYTES and (rest := self._rest()) is not None:
            first, stamp, messages = rest
            pieces.append((first, stamp, [body_of(message) for message in messages[:room]]))
            count = len(pieces[-1][2])
            self._next, room, size = first + count, room - count, size + sum(map(len, pieces[-1][2]))
        if not pieces:
            return []
        counts = [len(bodies) for *_, bodies in pieces]
        offsets = np.concatenate([np.arange(first, first + len(bodies)) for first, _, bodies in pieces])
        stamps = np.repeat(np.array([stamp for _, stamp, _ in pieces]), counts)
        return [Chunk(self._stream, offsets, stamps, [body for *_, bodies in pieces for body in bodies])]

    def ends(self) -> dict[str, int]:
        return {self._stream: self._link.do(self._end)}

    def behind(self, ends: Mapping[str, int]) -> bool:
        return self._next < ends.get(self._stream, 0)

    def seek(self, positions: Mapping[str, int]) -> None:
        async def begin_again(client: Any) -> None:
            await self._link.unsubscribe(client, self._number)
            await self._begin(client)

        self._next = positions[self._stream]
        self._link.do(begin_again)

    def commit(self, positions: Mapping[str, int]) -> None:
        position = positions.get(self._stream, 0)
        if position > self._committed:
            self._link.do(lambda client: self._store(client, position))
            self._committed = position

    def close(self) -> None:
        self._link.close()

    async def _begin(self, client: Any) -> None:
        """After every connection: go on with what was not polled."""
        from rstream import OffsetNotFound, OffsetType

        if self._next < 0:
            try:
                self._next = self._committed = await client.query_offset(self._stream, self._name) + 1
            except OffsetNotFound:
                self._next = 0
        first = await self._link.edge(client, OffsetType.FIRST) if self._next else None
        if first is not None and self._next < first.chunk_first_offset:
            LOG.warning("stream %s begins at %d: messages were dropped unread", self._stream, first.chunk_first_offset)
        await self._end(client)
        self._frames.clear()
        self._opened = (0, 0, [])
        self._number = await self._link.subscribe(client, OffsetType.OFFSET, self._next, self._credit, self._keep)

    def _keep(self, frame: Any) -> None:
        with self._link.changed:
            self._frames.append(frame)
            self._link.changed.notify_all()
        self._heard = time.monotonic()

    async def _end(self, client: Any) -> int:
        """The offset after the last message."""
        last = await self._link.last(client)
        end = self._next if last is None else last.chunk_first_offset + last.num_records
        if end < self._next:
            raise SourceError(
                f"stream {self._stream} must go on after offset {self._next - 1}, it ends at {end - 1}: it was made "
                "anew; open the source again to read it from its beginning"
            )
        self._heard = time.monotonic()
        return int(end)

    async def _store(self, client: Any, position: int) -> None:
        # No answer tells that an offset was stored: what is asked next, is answered after it.
        await client.store_offset(self._stream, self._name, position - 1)
        if await client.query_offset(self._stream, self._name) != position - 1:
            raise _Lost("the offset was not stored")

    def _wait(self, until: float) -> None:
        """Wait for messages."""
        first, _, messages = self._opened
        if first + len(messages) > self._next:
            return
        with self._link.changed:
            self._link.changed.wait_for(lambda: self._frames or self._link.lost, max(0.0, until - time.monotonic()))
            found = bool(self._frames)
        if not found and (self._link.lost or time.monotonic() > self._heard + _QUIET_S):
            self._link.once(self._end)  # raises, or the connection lives

    def _rest(self) -> tuple[int, int, list[bytes]] | None:
        """Offset, stamp and messages of what is left of the first chunk."""
        while True:
            first, stamp, messages = self._opened
            if first + len(messages) > self._next:
                return max(first, self._next), stamp, messages[max(0, self._next - first) :]
            if not self._frames:
                return None
            frame = self._frames.popleft()
            self._opened = (frame.chunk_first_offset, frame.timestamp, frame.get_messages())
            self._link.grant(self._number)


class RabbitStreamSink:
    """Publishes releases to a stream, once each; a `Sink`.

    The publisher is ``fcstream:STREAM``, the publishing id of a release the end of its window in milliseconds: the
    broker takes ids in ascending order only, so what is written again is not there twice. Messages are wrapped in AMQP
    1.0, as other clients expect it.

    Parameters
    ----------
    address : Address
        ``rabbitmq-stream://[user:password@]host[:port][,host...]/[vhost]?stream=NAME``, ``rabbitmq-stream+tls`` for
        TLS. Options: ``patience`` and those of TLS.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
        Also (from `write`) for a window before the last one that the broker has of this publisher, which it would drop.
    """

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._stream = address.take("stream")
        self._publishers: dict[str, int] = {}
        self._confirmed: set[tuple[int, int]] = set()  # publisher and publishing id
        self._refused: list[int] = []  # the broker's codes
        self._tried: set[bytes] = set()
        self._numbers = itertools.count(1)
        self._link = _Link(address, "fcstream", patience_s, SinkError, self._stream, self._begin)
        self._link.open()

    def write(self, releases: Sequence[Release]) -> None:
        in_order = sorted(releases, key=lambda release: release.window_close_ms)

        async def publish(client: Any) -> None:
            for name in dict.fromkeys(release.stream for release in releases):
                await self._publish(client, name, [release for release in in_order if release.stream == name])

        self._link.do(publish)

    def send(self, bodies: Sequence[bytes]) -> None:
        async def publish(client: Any) -> None:
            publisher = await self._declare(client, "")  # one without a name: nothing is dropped
            numbered = [(next(self._numbers), body) for body in bodies]
            await self._hand_over(client, publisher, numbered)

        self._link.do(publish)

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        held = self._link.do(lambda client: self._held(client, releases))
        return [release for release in releases if release.to_bytes() not in held]

    def last(self) -> Release | None:
        frame = self._link.do(self._link.last)
        try:
            return None if frame is None else Release.from_bytes(body_of(frame.get_messages()[-1]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SinkError(f"stream {self._stream} holds something else than releases: choose another") from None

    def close(self) -> None:
        self._link.close()

    async def _begin(self, client: Any) -> None:
        from rstream import schema

        self._publishers.clear()
        # Made anew: what a connection that was given up still answers is not counted.
        confirmed, refused = self._confirmed, self._refused = set[tuple[int, int]](), list[int]()

        def on_confirm(frame: Any) -> None:
            confirmed.update((frame.publisher_id, number) for number in frame.publishing_ids)

        def on_error(frame: Any) -> None:
            refused.extend(error.response_code for error in frame.errors)

        client.add_handler(schema.PublishConfirm, on_confirm, name="confirm")
        client.add_handler(schema.PublishError, on_error, name="error")

    async def _publish(self, client: Any, name: str, releases: list[Release]) -> None:
        reference = f"fcstream:{name}"
        publisher = await self._declare(client, reference)
        sequence = await client.query_publisher_sequence(self._stream, reference)
        await self._check(client, [release for release in releases if release.window_close_ms <= sequence])
        self._tried |= {release.to_bytes() for release in releases}
        await self._hand_over(client, publisher, [(each.window_close_ms, each.to_bytes()) for each in releases])
        self._tried -= {release.to_bytes() for release in releases}

    async def _declare(self, client: Any, reference: str) -> int:
        """The number of a publisher."""
        if reference not in self._publishers:
            self._publishers[reference] = len(self._publishers)
            await client.declare_publisher(self._stream, reference, self._publishers[reference])
        return self._publishers[reference]

    async def _hand_over(self, client: Any, publisher: int, messages: list[tuple[int, bytes]]) -> None:
        """Publish, under ascending ids, and wait until the broker has them."""
        from rstream import schema

        for number, body in messages:
            if len(body) > _FRAME_BYTES // 2 or number <= 0:
                raise SinkError(
                    f"stream {self._stream} takes releases below {_FRAME_BYTES // 2} bytes, of windows after 1970: "
                    "choose another sink"
                )
            await client.publish([schema.Message(number, None, _wrapped(body))], publisher)
        wanted = {(publisher, number) for number, _ in messages}
        while not wanted <= self._confirmed:
            if self._refused:
                raise _Lost(f"the broker answers {self._refused[0]}")
            await asyncio.sleep(0.001)
        self._confirmed -= wanted

    async def _check(self, client: Any, releases: list[Release]) -> None:
        """What the broker would drop must be there already."""
        unknown = [release for release in releases if release.to_bytes() not in self._tried]
        held = await self._held(client, unknown)
        for release in unknown:
            if release.to_bytes() not in held:
                raise SinkError(
                    f"stream {self._stream} has later releases of {release.stream!r} than of the window closing at "
                    f"{release.window_close_ms}, but not this one: give every run with a new ledger another stream"
                )

    async def _held(self, client: Any, releases: Sequence[Release]) -> set[bytes]:
        """Which of them the stream holds, since the first of their windows closed, by the brokers' clocks."""
        from rstream import OffsetType

        last = await self._link.last(client) if releases else None
        wanted = {release.to_bytes() for release in releases}
        since = min((release.window_close_ms for release in releases), default=0) - _HOUR_MS
        if last is None or last.timestamp < since:
            return set()
        frames: asyncio.Queue[Any] = asyncio.Queue()
        held: set[bytes] = set()
        number = await self._link.subscribe(client, OffsetType.TIMESTAMP, max(0, since), 2, frames.put_nowait)
        while True:
            frame = await frames.get()
            held |= wanted.intersection(map(body_of, frame.get_messages()))
            if frame.chunk_first_offset >= last.chunk_first_offset:
                break
            await client.credit(number, 1)
        await self._link.unsubscribe(client, number)
        return held


def body_of(message: bytes) -> bytes:
    """The data of a message in AMQP 1.0; anything else as it is."""
    at, data = 0, []
    while message[at : at + 2] == b"\0S" and len(message) > at + 4:
        section, kind = message[at + 2], message[at + 3]
        width = 4 if kind & 0x10 else 1  # of the size; all sections but empty lists have one
        start = at + 4 + width if kind != 0x45 else at + 4
        at = start + (int.from_bytes(message[at + 4 : start]) if kind >= 0xA0 else 0)
        if section in (0x75, 0x77) and kind in (0xA0, 0xA1, 0xB0, 0xB1):
            data.append(message[start:at])
        elif not 0x70 <= section <= 0x78 or (kind < 0xA0 and kind != 0x45):
            return message
    return b"".join(data) if at == len(message) else message


def _wrapped(body: bytes) -> bytes:
    size = b"\xa0" + len(body).to_bytes(1) if len(body) < 256 else b"\xb0" + len(body).to_bytes(4)
    return b"\0Su" + size + body


class _Lost(Exception):
    """The connection, or what it needs of the broker."""


class _Link:
    """A connection to the broker that leads a stream, in a loop and a thread of its own; errors tell no secrets."""

    def __init__(
        self,
        address: Address,
        name: str,
        patience_s: float,
        error: type[FcstreamError],
        stream: str,
        prepare: Callable[[Any], Coroutine[Any, Any, None]],
    ) -> None:
        try:
            import rstream  # noqa: F401
        except ImportError:
            raise need("rstream", "rabbitmq", address.place) from None
        self.lost = True
        self.changed = threading.Condition()
        self._address, self._name, self._error, self._stream, self._prepare = address, name, error, stream, prepare
        self._patience_s = address.take_number("patience", patience_s)
        self._ssl = tls_context(address) if address.scheme.endswith("+tls") else None
        address.finish()
        # Its messages for debugging hold passwords and bodies, and what it calls errors we tell ourselves.
        logging.getLogger("rstream").setLevel(logging.CRITICAL)
        self._client: Any = None
        self._closing: list[asyncio.Task[None]] = []
        self._gone: asyncio.Future[None]
        self._readers: dict[int, Callable[[Any], object]] = {}  # by subscription
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, _context: self._lose())
        self._thread = threading.Thread(target=self._loop.run_forever, name="fcstream-rstream", daemon=True)
        self._thread.start()

    def open(self) -> None:
        """The first connection: one try."""
        try:
            self._run(self._connect())
        except _Lost as lost:
            self.close()
            raise self._unusable(lost) from None
        except BaseException:
            self.close()
            raise

    def do(self, action: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Do something with the client that is safe to repeat."""
        return self.repeat(lambda: self.once(action))

    def repeat(self, action: Callable[[], T]) -> T:
        """Do something that raises `_Lost` when the connection is."""
        return with_patience(action, lambda: self._run(self._connect()), (_Lost,), self._patience_s, self._unusable)

    def once(self, action: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        if self.lost:
            raise _Lost("the connection was lost")
        return self._run(self._guarded(action(self._client)))

    def grant(self, number: int) -> None:
        """Let the broker send one chunk more."""
        if not self.lost:
            asyncio.run_coroutine_threadsafe(self._client.credit(number, 1), self._loop)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        close_quietly(lambda: self._run(self._finish()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def subscribe(
        self, client: Any, kind: Any, value: int | None, credit: int, reader: Callable[[Any], object]
    ) -> int:
        """Have chunks read from somewhere on; the subscription."""
        from rstream import schema

        number = next(number for number in range(200) if number not in self._readers)
        self._readers[number] = reader
        await client.subscribe(self._stream, number, schema.OffsetSpec.from_params(kind, value), credit)
        return number

    async def unsubscribe(self, client: Any, number: int) -> None:
        await client.unsubscribe(number)
        del self._readers[number]

    async def edge(self, client: Any, kind: Any) -> Any:
        """The first or the last chunk of messages; None if there is none that all replicas have."""
        found: list[Any] = []
        number = await self.subscribe(client, kind, None, 1, found.append)
        # A broker sends the chunk before it answers anything else.
        await client.stream_exists(self._stream)
        for _ in range(_LINGERS):
            if found:
                break
            await asyncio.sleep(0.01)
        await self.unsubscribe(client, number)
        return found[0] if found else None

    async def last(self, client: Any) -> Any:
        """The last chunk of messages; None if the stream holds none."""
        from rstream import OffsetType

        while (found := await self.edge(client, OffsetType.LAST)) is None:
            if await self.edge(client, OffsetType.FIRST) is None:
                break
            # There are messages, so replicas wait for the last ones, or they are new: those before must not be missed.
        return found

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something until it is done, the connection is lost, or it takes too long."""
        task = asyncio.ensure_future(work)
        both: set[asyncio.Future[Any]] = {task, self._gone}
        await asyncio.wait(both, timeout=_REQUEST_S, return_when=asyncio.FIRST_COMPLETED)
        try:
            if not task.done():
                task.cancel()
                raise _Lost("the connection was lost" if self.lost else "no answer")
            return task.result()
        except FcstreamError:
            raise
        except _Lost:
            self._lose()
            raise
        except Exception as error:  # of any kind: the library has no common one, and quotes what it got
            self._lose()
            raise _Lost(distrust(error) or getattr(error, "strerror", None) or type(error).__name__) from None

    async def _connect(self) -> None:
        self._disconnect()
        self._closing = [task for task in self._closing if not task.done()]
        for host, given in self._address.hosts:
            self._gone = self._loop.create_future()
            self.lost = False
            try:
                await self._guarded(self._open(host, given or (5552 if self._ssl is None else 5551)))
                return
            except _Lost as error:
                lost = error
                self._disconnect()
            except BaseException:
                self._disconnect()
                raise
        raise lost

    async def _open(self, host: str, port: int) -> None:
        """Connect to the broker that leads the stream: only it knows the end."""
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
            frame_max=_FRAME_BYTES,
            heartbeat=60,
            connection_name=self._name,
            connection_closed_handler=lambda _: self._lose(client),
        )
        self._client = client
        client.add_stream(self._stream)  # without one it does not tell that the connection was closed
        await client.start()
        await client.authenticate(
            self._address.path or "/", self._address.user or "guest", self._address.password or "guest"
        )
        client.add_handler(schema.MetadataUpdate, lambda _: self._lose(client), name="moved")
        client.add_handler(schema.Deliver, lambda _: None, name=0)
        await client.run_queue_listener_task(0, lambda frame: self._deliver(client, frame))

    def _deliver(self, client: Any, frame: Any) -> None:
        # A connection that is given up may still bring chunks. They would be taken for those of the next one.
        reader = self._readers.get(frame.subscription_id) if client is self._client else None
        if reader is not None:
            reader(frame)

    def _lose(self, client: Any = None) -> None:
        """The connection is lost; that of `client`, if one is named."""
        if client not in (None, self._client):
            return
        with self.changed:
            self.lost = True
            self.changed.notify_all()
        if not self._gone.done():
            self._gone.set_result(None)

    async def _finish(self) -> None:
        """What the library's own closing does, without the pause that it makes."""
        from rstream import schema

        client, is_lost = self._client, self.lost
        if client is not None and not is_lost:
            farewell = schema.Close(_LAST_REQUEST, code=1, reason="OK")
            with suppress(Exception):
                await asyncio.wait_for(client.sync_request(farewell, schema.CloseResponse), _FAREWELL_S)
            with suppress(Exception):
                await asyncio.wait_for(client._conn.close(), 1)
            self._client = None
        self._disconnect()
        await asyncio.gather(*self._closing, return_exceptions=True)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _disconnect(self) -> None:
        client, self._client, self.lost = self._client, None, True
        self._readers.clear()
        if client is not None:
            self._closing.append(self._loop.create_task(_close(client)))

    def _unusable(self, error: BaseException) -> FcstreamError:
        return self._error(
            f"{self._address.masked} cannot be used: {error}; start the broker, make the stream, or correct the address"
        )


async def _close(client: Any) -> None:
    """Takes its time, and leaves the socket of a lost connection open, if it is not told."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), 6)
    with suppress(Exception):
        await asyncio.wait_for(client._conn.close(), 1)
