"""RabbitMQ stream sink: releases under ascending publishing ids, by which the broker drops repetitions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

from ...errors import SinkError
from ...releases.base import Release
from ..base import shortened
from ..retry import BrokerLost
from ..sinks import Sink, read_release
from ..tls import TLS
from ..urls import PATIENCE, Address
from .chunks import bodies_of
from .stream_connection import FRAME_BYTES, LONGEST_NAME, STREAM, STREAM_URL, RabbitConnection, checked_name

_HOUR_MS = 3_600_000
_MAX_PUBLISHERS = 200


class RabbitStreamSink(Sink):
    """Publishes releases to a stream, each exactly once.

    The publisher is ``fcstream:STREAM``, or ``fcstream:STREAM/NAME`` for an answer with a name, and the publishing id
    of a release is the end of its window in milliseconds. The broker accepts only ascending ids, so a release that is
    written again is not stored twice. Messages are wrapped in AMQP 1.0, as other clients expect.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``rabbitmq-stream+tls`` for TLS.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
        Also (from `write`) for a window before the last one that the broker has of this publisher, which it would drop.
    """

    url: ClassVar = STREAM_URL
    url_options: ClassVar = (STREAM, PATIENCE, *TLS)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._stream = checked_name(address, "stream", address.take(STREAM))
        self._publishers: dict[str, int] = {}  # by reference; the one used last is at the end
        self._confirmed: set[tuple[int, int]] = set()  # publisher and publishing id
        self._refused: list[int] = []  # the broker's codes
        self._tried: set[bytes] = set()
        self._numbers = itertools.count(1)
        self._link = RabbitConnection(address, "fcstream", patience_s, SinkError, self._stream, self._begin)
        self._link.open()

    def write(self, releases: Sequence[Release]) -> None:
        streams = list(dict.fromkeys(release.stream for release in releases))
        in_order = sorted(releases, key=lambda r: (streams.index(r.stream), r.window_close_ms, r.place or 0))

        async def publish(client: Any) -> None:
            for series, some in itertools.groupby(in_order, key=lambda release: release.series):
                await self._publish(client, series, list(some))

        self._link.run(publish)

    def send(self, bodies: Sequence[bytes]) -> None:
        async def publish(client: Any) -> None:
            publisher = await self._declare(client, "")  # a publisher without a name, for which nothing is dropped
            numbered = [(next(self._numbers), body) for body in bodies]
            await self._hand_over(client, publisher, numbered)

        self._link.run(publish)

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        held = self._link.run(lambda client: self._held(client, releases))
        return [release for release in releases if release.to_bytes() not in held]

    def last(self) -> Release | None:
        frame = self._link.run(self._link.last)
        if frame is None:
            return None
        wrong = f"stream {self._stream} holds something else than releases: choose another"
        return read_release((bodies_of(frame) or [b""])[-1], wrong)

    def close(self) -> None:
        self._link.close()

    async def _begin(self, client: Any) -> None:
        from rstream import schema

        self._publishers.clear()
        # Made anew, so that responses of a dropped connection are not counted.
        confirmed, refused = self._confirmed, self._refused = set[tuple[int, int]](), list[int]()

        def on_confirm(frame: Any) -> None:
            confirmed.update((frame.publisher_id, number) for number in frame.publishing_ids)

        def on_error(frame: Any) -> None:
            refused.extend(error.response_code for error in frame.errors)

        client.add_handler(schema.PublishConfirm, on_confirm, name="confirm")
        client.add_handler(schema.PublishError, on_error, name="error")

    async def _publish(self, client: Any, series: str, releases: list[Release]) -> None:
        reference = shortened(f"fcstream:{series}", LONGEST_NAME)
        publisher = await self._declare(client, reference)
        sequence = await client.query_publisher_sequence(self._stream, reference)
        bodies = {release.to_bytes() for release in releases}
        # Brokers forget the ids of publishers when there are very many, so the stream is searched for what it may hold.
        held = await self._held(client, [release for release in releases if release.to_bytes() in self._tried])
        await self._check(client, [release for release in releases if release.window_close_ms <= sequence])
        self._tried |= bodies
        left = [each for each in releases if each.to_bytes() not in held]
        await self._hand_over(client, publisher, [(each.window_close_ms, each.to_bytes()) for each in left])
        self._tried -= bodies

    async def _declare(self, client: Any, reference: str) -> int:
        """Declare a publisher and return its number."""
        number = self._publishers.pop(reference, None)
        if number is None:
            number = len(self._publishers)
            if number == _MAX_PUBLISHERS:  # a connection numbers them with one byte
                number = self._publishers.pop(next(iter(self._publishers)))
                await client.delete_publisher(number)
            await client.declare_publisher(self._stream, reference, number)
        self._publishers[reference] = number
        return number

    async def _hand_over(self, client: Any, publisher: int, messages: list[tuple[int, bytes]]) -> None:
        """Publish under ascending ids, and wait until the broker has the messages."""
        from rstream import schema

        for number, body in messages:
            if len(body) > FRAME_BYTES // 2 or number <= 0:
                raise SinkError(
                    f"stream {self._stream} takes releases below {FRAME_BYTES // 2} bytes, of windows after 1970",
                    remedy="choose another sink",
                )
            await client.publish([schema.Message(number, None, _wrapped(body))], publisher)
        wanted = {(publisher, number) for number, _ in messages}
        while not wanted <= self._confirmed:
            if self._refused:
                raise BrokerLost(f"the broker answers {self._refused[0]}")
            await asyncio.sleep(0.001)
        self._confirmed -= wanted

    async def _check(self, client: Any, releases: list[Release]) -> None:
        """Check that what the broker would drop is in the stream already."""
        unknown = [release for release in releases if release.to_bytes() not in self._tried]
        held = await self._held(client, unknown)
        for release in unknown:
            if release.to_bytes() not in held:
                raise SinkError(
                    f"stream {self._stream} has later releases of {release.series!r} than of the "
                    f"window closing at {release.window_close_ms}, but not this one",
                    remedy="give every run with a new ledger another stream",
                )

    async def _held(self, client: Any, releases: Sequence[Release]) -> set[bytes]:
        """Find which releases the stream holds since the first of their windows closed, by the brokers' clocks."""
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
            held |= wanted.intersection(bodies_of(frame))
            if frame.chunk_first_offset >= last.chunk_first_offset:
                break
            await client.credit(number, 1)
        await self._link.unsubscribe(client, number)
        return held


def _wrapped(body: bytes) -> bytes:
    size = b"\xa0" + len(body).to_bytes(1) if len(body) < 256 else b"\xb0" + len(body).to_bytes(4)
    return b"\0Su" + size + body
