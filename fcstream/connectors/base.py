"""Protocols of live sources: what each promises to the engine's runner, whichever broker it reads.

There are two families. *Replayable* sources (Kafka, Redis Streams, JetStream, RabbitMQ streams) number their messages
and deliver them again from any number on. *Ack-only* sources (MQTT, AMQP queues) forget a message once it is
acknowledged, so they are read through a durable local spool, which is replayable (see `spool`).
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from ..errors import ConfigError
from ..formats.envelopes import Envelope, OfferedFields

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..formats.batch import Schema
    from ..formats.decoders import LineDecoder


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages of one partition, in order.

    Attributes
    ----------
    partition : str
        A partition of the source; offsets are compared within one only.
    offsets : int64 (n,)
        The identity of each message in its partition, ascending; a message that is delivered again has the same one. An
        array of Python integers where a broker's ids do not fit.
    timestamps_ms : int64 (n,)
        When each message arrived, in Unix milliseconds by the broker's clock, the same at every delivery. From a spool,
        the time of its durable receipt.
    bodies : list of bytes
    receipts_ms : int64 (n,), optional
        For messages that may have waited while nobody read: each arrived between its timestamp and this time.
    envelopes : list of Envelope, optional
        What each message has besides its body, if that was asked for (`DescribedSource`).
    """

    partition: str
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    bodies: list[bytes]
    receipts_ms: NDArray[np.int64] | None = None
    envelopes: list[Envelope] | None = None

    @property
    def latest_ms(self) -> NDArray[np.int64]:
        """Return the latest time at which each message can have arrived."""
        return self.timestamps_ms if self.receipts_ms is None else self.receipts_ms

    def part(self, start: int, stop: int) -> Chunk:
        """Return the messages from `start` to before `stop`, counted from 0."""
        cut = slice(start, stop)
        receipts = None if self.receipts_ms is None else self.receipts_ms[cut]
        envelopes = None if self.envelopes is None else self.envelopes[cut]
        return Chunk(self.partition, self.offsets[cut], self.timestamps_ms[cut], self.bodies[cut], receipts, envelopes)


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The partitions that a consumer group has given to this consumer.

    Attributes
    ----------
    total : int
        How many partitions there are.
    mine : dict of int to str
        The partitions of this consumer: their numbers, and their names in `Chunk.partition`.
    topics : int
        The number of topics they belong to. A key's partition can be computed only if there is one topic.
    """

    total: int
    mine: Mapping[int, str]
    topics: int = 1


class LiveSource(Protocol):
    """Messages of a broker, each at least once, in the order of their offsets within a partition.

    Further capabilities of a source are protocols of their own (`GroupedSource`, `ReplayableSource`, `ClockedSource`,
    ...). A source has a capability if it has the attributes and methods of its protocol.

    What a source can do besides is a protocol of its own (`GroupedSource`, `ReplayableSource`, `ClockedSource`, ...):
    it has what that one names, and is recognized by it.

    A method that meets a lost connection reconnects by itself, with jittered back-off, for at most `patience_s`
    seconds, and raises `SourceError` then; calling it again tries again. Nothing that it raises or logs holds a
    message's content or a secret.
    """

    receipt_is_durable: bool
    """Whether `Chunk.timestamps_ms` are receipt times that survive a restart (a spool), as clock ``wall`` needs."""

    @property
    def generation(self) -> int:
        """A number that grows when partitions were taken away or given (a rebalance).

        Whatever was read of them must be forgotten then, and is delivered again from the committed positions. A `poll`
        in which the number grows returns nothing.
        """

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        """Return the next messages, about `max_messages` at most, with at most one chunk for each partition.

        Waits for the first of them for at most `timeout_s`, and returns an empty list if none came.
        """

    def ends(self) -> dict[str, int]:
        """Ask the broker for the present end of every partition that is read: the offset after its last message."""

    def behind(self, ends: Mapping[str, int]) -> bool:
        """Return whether messages before some `ends` were not polled yet. Messages that the broker dropped do not
        count.
        """

    def commit(self, positions: Mapping[str, int]) -> None:
        """Note durably, where the broker keeps positions, that a restart reads from these offsets on.

        Partitions that are not named keep their positions. A position never goes back.
        """

    def close(self) -> None:
        """Close the source without committing anything; may be called again."""


@runtime_checkable
class GroupedSource(LiveSource, Protocol):
    """A `LiveSource` whose partitions a group divides among its members; from other sources every consumer gets
    everything.
    """

    @property
    def share(self) -> PartitionAssignment | None:
        """Return the partitions that the group gave to this consumer; None until it has done so."""


@runtime_checkable
class ReplayableSource(Protocol):
    """A source for callers that keep the positions themselves and read ranges of messages.

    Nothing is committed, and what others have committed does not matter.
    """

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read only these partitions from now on, from these offsets on; 0 stands before the first message that is
        left.
        """

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        """See `LiveSource`."""

    def ends(self) -> dict[str, int]:
        """See `LiveSource`; of all partitions, if `seek` was not called."""

    def behind(self, ends: Mapping[str, int]) -> bool:
        """See `LiveSource`."""

    def close(self) -> None:
        """See `LiveSource`."""


@runtime_checkable
class SparseSource(Protocol):
    """A `ReplayableSource` whose offsets do not count messages."""

    def reach(self, partition: str, start: int, count: int) -> int:
        """Return an offset such that at most `count` messages, and at least one if there are any, lie from `start` to
        before it.

        The offset may lie behind the end.
        """


class DescribedSource:
    """Base of sources and queues whose messages have more than bodies.

    They give each message an envelope with what `Address.asked` asks for, and none if nothing is asked for.

    Attributes
    ----------
    offered : OfferedFields
        What messages of such a source have; of the class, so that a configuration is checked before anything is opened.
    """

    offered: ClassVar[OfferedFields]


class BrokerTime(NamedTuple):
    """A broker's clock and its newest timestamp.

    Attributes
    ----------
    now_ms : int
        The time of the clock by which the broker timestamps messages.
    newest_ms : int
        The highest timestamp that it has given, 0 if it does not report one. It is ahead of `now_ms` only if another
        client chose a timestamp.
    """

    now_ms: int
    newest_ms: int = 0


@runtime_checkable
class ClockedSource(Protocol):
    """A `LiveSource` whose broker reports its time."""

    def clock(self) -> BrokerTime | None:
        """Ask the broker for its time; None if it reports none, as an old server or one that does not permit the
        question.
        """


@runtime_checkable
class TimestampedSource(Protocol):
    """A `LiveSource` whose broker timestamps messages by a clock that cannot be asked."""

    @property
    def timestamps_are_brokers(self) -> bool:
        """Return whether the broker, and no publisher, chose the timestamps of the messages that were polled."""


class Gap(NamedTuple):
    """Messages that a broker dropped before they were read.

    Attributes
    ----------
    what : str
        What happened, for a human.
    since_ms : int or None
        No message that was stamped before is among them; None: that is not known.
    """

    what: str
    since_ms: int | None = None


@runtime_checkable
class GappySource(Protocol):
    """A `LiveSource` that notices when messages were dropped unread, or when a stream was deleted and made anew.

    It continues with the messages that are left; messages that were polled before remain valid. The partition of a
    stream that was made anew has another name, because its offsets start again.
    """

    def gaps(self) -> list[Gap]:
        """Return the gaps that were noticed since the last call."""


class GapNotes:
    """What a source has noticed of gaps, until it is asked for them; a base of `GappySource` sources."""

    def __init__(self) -> None:
        self._gaps: list[Gap] = []

    def gaps(self) -> list[Gap]:
        found, self._gaps = self._gaps, []
        return found


@runtime_checkable
class PrefetchingSource(Protocol):
    """A `LiveSource` with a store of its own (a spool), which can receive while the ledger or the sink is unreachable.

    So messages are saved that the broker might not keep for long.

    Attributes
    ----------
    duplicates : int
        Messages that were dropped, as they had come before.
    """

    duplicates: int

    @property
    def torn(self) -> str | None:
        """Return what was cut off when the store was opened, in a sentence; None if it was whole."""

    @property
    def stored_bytes(self) -> int:
        """Return how many bytes of the disk the store takes."""

    @property
    def is_catching_up(self) -> bool:
        """Return whether windows are to wait, after a pause, for messages that the broker held meanwhile."""

    def prefetch(self, timeout_s: float) -> None:
        """Receive for about `timeout_s` seconds without handing out anything; `poll` does that later."""

    def rewind(self) -> None:
        """Hand out everything from the committed position on once more."""


def shortened(name: str, max_bytes: int) -> str:
    """Return a name, or a hash of it if it has more bytes than a protocol can carry; `max_bytes` is at least 64."""
    return name if len(name.encode()) <= max_bytes else hashlib.blake2b(name.encode(), digest_size=32).hexdigest()


class ReceivedMessage(NamedTuple):
    """A message of an ack-only source, the token that acknowledges it, its arrival in Unix milliseconds, if it has
    one, and its envelope, if one was asked for.
    """

    body: bytes
    token: Any
    arrival_ms: int | None = None
    envelope: Envelope | None = None


@runtime_checkable
class MessageSender(Protocol):
    """A broker's sink that can also send messages which are not releases."""

    def send(self, bodies: Sequence[bytes]) -> None:
        """Send messages; when this returns, the broker has them all, in order.

        If it raises `SinkError`, some of them may arrive twice when they are sent again.
        """

    def close(self) -> None:
        """Close the sink; may be called again."""


@runtime_checkable
class AckSource(Protocol):
    """Messages that the broker holds until they are acknowledged, and then forgets."""

    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        """Return the next messages, waiting for the first of them for at most `timeout_s`.

        Unacknowledged messages come again after a reconnection.
        """

    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        """Let the broker forget messages. Tokens of a connection that was lost since are ignored: these messages come
        again.
        """

    def pending(self) -> bool:
        """Return whether the broker is known to hold more messages now; False if that is not known."""

    def close(self) -> None:
        """Close the source; may be called again."""


@runtime_checkable
class IdentifyingQueue(Protocol):
    """An `AckSource` whose messages keep an identity when they are delivered again."""

    def delivery_id(self, received: ReceivedMessage) -> bytes | None:
        """Return the identity of a message; None if it has none."""


@runtime_checkable
class ReconnectingQueue(Protocol):
    """An `AckSource` that reconnects by itself and counts its connections.

    Attributes
    ----------
    connections : int
        How many it made so far.
    """

    connections: int

    def is_current(self, received: ReceivedMessage) -> bool:
        """Return False if the connection that delivered a message was lost: the message comes again."""


@runtime_checkable
class DatedQueue(Protocol):
    """An `AckSource` whose messages may hold the time of their arrival (`ReceivedMessage.arrival_ms`).

    Attributes
    ----------
    gives_arrivals : bool
        Whether they do.
    """

    gives_arrivals: bool

    def waiting(self) -> int | None:
        """Count the messages still to be received of those that the broker has now; None if it may have more than it
        shows.
        """


@runtime_checkable
class OneTimeQueue(Protocol):
    """An `AckSource` whose messages come once and may end: what nobody has read when the process ends is lost.

    So a spool takes what is left of it when it is closed.
    """

    @property
    def has_ended(self) -> bool:
        """Return whether no further message will come."""


@runtime_checkable
class EndingSource(Protocol):
    """A `LiveSource` whose input may end. What was read remains where a restart finds it."""

    @property
    def has_ended(self) -> bool:
        """Return whether no further message will come, and all that came is durable."""


@runtime_checkable
class ImpatientQueue(Protocol):
    """An `AckSource` whose broker drops what nobody receives soon, so that a thread does nothing but receive.

    Its methods are called by that thread and by others, one at a time.

    Attributes
    ----------
    was_known : bool
        Whether the broker had kept messages for this consumer when the queue was opened.
    redelivers : int
        How many messages it may deliver again after a lost connection and that must be known then; 0 if they have no
        identity.
    """

    was_known: bool
    redelivers: int

    def gaps(self) -> list[Gap]:
        """See `GappySource`."""


@runtime_checkable
class PushQueue(AckSource, Protocol):
    """An `AckSource` whose messages others push to this process, and whose senders wait for the acknowledgement.

    Attributes
    ----------
    refused : mapping of str to int
        How many bodies it refused so far, by reason.
    """

    refused: Mapping[str, int]

    def start(self) -> None:
        """Begin to receive; nothing is taken before."""

    def refuse(self, received: Sequence[ReceivedMessage], reason: str) -> None:
        """Answer that messages were not stored (``full``, ``failed``) and may be sent again later, or (``too_large``)
        need not be.
        """


@runtime_checkable
class DecodingQueue(Protocol):
    """A queue whose messages may have several formats: it makes their decoder, and must know it."""

    @staticmethod
    def make_decoder(format: str, schema: Schema, options: Mapping[str, Any]) -> LineDecoder:
        """Make the decoder of its messages, see `fcstream.formats.payloads.decoder_for`.

        Raises
        ------
        ConfigError
        """

    def expect(self, decoder: LineDecoder) -> None:
        """Take from now on what a decoder that `make_decoder` made can read; called before `PushQueue.start`."""


@runtime_checkable
class RefusingSource(Protocol):
    """A `LiveSource` into which others push, and which refuses some of it."""

    def take_refused(self) -> Mapping[str, int]:
        """Return how many bodies were refused since the last call, by reason."""


def check_queue(queue: object) -> None:
    """Refuse a queue's connector that has a part of a protocol only: what it can do would be ignored in silence.

    Raises
    ------
    ConfigError
    """
    queues = (
        AckSource,
        IdentifyingQueue,
        ReconnectingQueue,
        DatedQueue,
        OneTimeQueue,
        ImpatientQueue,
        PushQueue,
        DecodingQueue,
    )
    for protocol in queues:
        names = [name for name in (*inspect.get_annotations(protocol), *vars(protocol)) if not name.startswith("_")]
        missing = [name for name in names if not hasattr(queue, name)]
        if missing and (protocol is AckSource or len(missing) < len(names)):
            has = "".join(f"`{name}` and " for name in names if name not in missing)
            raise ConfigError(
                f"must name a queue whose connector has the whole of `{protocol.__name__}`, `{type(queue).__name__}` "
                f"has {has}no `{'`, `'.join(missing)}`: see `fcstream.connectors.base`",
                "source.url",
            )
