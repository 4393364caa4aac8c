"""JetStream sink: releases on a subject of a stream, each with an id that the server compares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from ...errors import ConfigError, Shown, SinkError
from ...releases.base import Release
from ..retry import BrokerLost, PendingMessages
from ..sinks import Sink, read_release
from ..urls import Address, UrlOption
from .connection import CONNECTION, LONGEST, REQUEST_S, NatsConnection, StoredMessage, checked_name, stream_of
from .reader import NatsReader, SingleMessageReader, open_reader

_LOOK_BACK = 10_000  # releases are searched first among so many sequences before the last one
_EARLY_MS = 86_400_000  # a release may be stored so long before its window closes, because clocks differ
_SUBJECT = UrlOption("subject", "Subject on which releases are published; the stream must take it.")


class NatsSink(Sink):
    """Publishes releases on a subject of a stream, each with an id by which the server drops repetitions.

    The id is ``STREAM:OPEN@SUBJECT``, from the fcstream stream and the window's opening in milliseconds; the server
    compares ids of all subjects of its stream. It remembers them for as long as the stream's ``duplicate_window`` says.
    After a longer pause `missing` searches the messages that were stored since a day before the windows closed.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`.
    patience_s : float

    Raises
    ------
    ConfigError, SinkError
        The stream must exist and take the subject.
    """

    url: ClassVar = "nats://[user:password@]host[:port][,host...]/STREAM?subject=NAME"
    url_options: ClassVar = (_SUBJECT, *CONNECTION)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._stream = stream_of(address)
        self._subject = checked_name(address.take(_SUBJECT), "a `subject`", LONGEST, address)
        if re.search(r"[*>\s]", self._subject):
            raise ConfigError("must name a `subject` without wildcards", address.key, got=Shown(address.masked))
        self._releases: PendingMessages[Release] = PendingMessages()
        self._letters: PendingMessages[bytes] = PendingMessages()
        self._is_unsure = False  # whether to request messages one by one
        self._unanswered = b""  # a release of which it is not known whether the server has it
        self._wire = NatsConnection(address, patience_s, SinkError)
        self._wire.first(self._start)

    def write(self, releases: Sequence[Release]) -> None:
        self._releases.send(releases, lambda release: self._wire.run(partial(self._publish, release)))

    def send(self, bodies: Sequence[bytes]) -> None:
        self._letters.send(bodies, lambda body: self._wire.run(partial(self._post, body)))

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        held = self._wire.run(partial(self._held, releases)) if releases else set()
        return [release for release in releases if release.to_bytes() not in held]

    def last(self) -> Release | None:
        message = self._wire.run(self._last)
        if message is None:
            return None
        wrong = f"{self._subject} holds something else than releases: choose another subject"
        return read_release(message.body, wrong)

    def close(self) -> None:
        self._wire.close()

    async def _start(self) -> None:
        if await self._wire.js.find_stream_name_by_subject(self._subject) != self._stream:
            raise SinkError(f"stream {self._stream} must take subject {self._subject}", remedy="add it to the stream")

    async def _publish(self, release: Release) -> None:
        body = release.to_bytes()
        # If a response was lost long ago, the server may have forgotten the id while it still has the message.
        if self._unanswered != body or not await self._held([release]):
            self._unanswered = body
            ack = await self._post(body, f"{release.series}:{release.window_open_ms}@{self._subject}")
            # If the server knows the id but has no such message, the message was there and was removed.
            held = await self._wire.message(self._stream, seq=ack.seq) if ack.duplicate else None
            if held is not None and held.body != body:
                raise SinkError(
                    f"{self._subject} holds another release of window {release.window_open_ms}", remedy="purge it"
                )
        self._unanswered = b""

    async def _post(self, body: bytes, name: str | None = None) -> Any:
        headers = {"Nats-Msg-Id": name} if name else None
        try:
            ack = await self._wire.js.publish(self._subject, body, stream=self._stream, headers=headers)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise BrokerLost("a subscriber of the subject answers") from None
        if ack.stream != self._stream:
            raise BrokerLost("a subscriber of the subject answers")
        return ack

    async def _last(self) -> StoredMessage | None:
        return await self._wire.message(self._stream, last_by_subj=self._subject)

    async def _held(self, releases: Sequence[Release]) -> set[bytes]:
        """Find the releases that the subject holds, from its end back to where they cannot have been stored yet."""
        last, held = await self._last(), set[bytes]()
        wanted = {release.to_bytes() for release in releases}
        since_ms = min(release.window_close_ms for release in releases) - _EARLY_MS
        end, reach = (1 if last is None else last.sequence + 1), _LOOK_BACK
        while end > 1 and held != wanted:
            start = max(1, end - reach)
            found, oldest_ms = await self._find_between(wanted, start, end)
            held |= found
            if oldest_ms is not None and oldest_ms < since_ms:
                break
            end, reach = start, 2 * reach
        return held

    async def _find_between(self, wanted: set[bytes], start: int, end: int) -> tuple[set[bytes], int | None]:
        """Find those of some releases that lie between two sequences, and when the first message there was stored."""
        found, oldest_ms, sequence = set[bytes](), None, 0
        reader: NatsReader | SingleMessageReader
        if self._is_unsure:
            reader = SingleMessageReader(self._wire, self._stream, self._subject, start)
        else:
            reader = await open_reader(self._wire, self._stream, self._subject, start)
        self._is_unsure = True  # until this succeeds: headers that the client cannot parse end its reading
        try:
            while sequence < end - 1 and found != wanted:
                if not (rows := await reader.take(1000, REQUEST_S)):
                    last = await self._last()
                    if last is not None and last.sequence > sequence:
                        raise BrokerLost("the messages of the stream did not come")
                    break
                oldest_ms = oldest_ms or rows[0][1]
                sequence = rows[-1][0]
                found |= wanted.intersection([body for _, _, body, _ in rows])
        finally:
            await reader.close()
        self._is_unsure = False
        return found, oldest_ms
