"""What every live source promises, whatever broker stands behind it.

Two families. *Replayable* sources (Kafka, Redis Streams, JetStream, RabbitMQ streams) number their messages and give
them again from any number on. *Ack-only* sources (MQTT, AMQP queues) forget a message once it is acknowledged: they are
read through a durable local spool, which is replayable (see `spool`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages of one partition, in order.

    Attributes
    ----------
    partition : str
        Of the source; offsets are compared within it only.
    offsets : int64 (n,)
        The identity of each message in its partition: a message that is delivered again has the same one. Ascending.
        Of Python's integers where a broker's ids do not fit.
    timestamps_ms : int64 (n,)
        When each message arrived, Unix milliseconds, by the broker's clock (of a spool: its durable receipt time). The
        same for every delivery.
    bodies : list of bytes
    receipts_ms : int64 (n,), optional
        Where a message arrived at some time between its timestamp and this: it may have waited while nobody read.
    """

    partition: str
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    bodies: list[bytes]
    receipts_ms: NDArray[np.int64] | None = None

    @property
    def latest_ms(self) -> NDArray[np.int64]:
        """No message arrived later."""
        return self.timestamps_ms if self.receipts_ms is None else self.receipts_ms


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """What a consumer group has given this consumer.

    Attributes
    ----------
    total : int
        How many partitions there are.
    mine : dict of int to str
        Ours: their numbers, and their names in `Chunk.partition`.
    topics : int
        Over how many topics they are spread; numbers say a key's partition in a single one only.
    """

    total: int
    mine: Mapping[int, str]
    topics: int = 1


class LiveSource(Protocol):
    """Messages of a broker, at least once each, in the order of their offsets within a partition.

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
        """Grows when partitions were taken away or given (a rebalance): what was read of them must be forgotten, and is
        read again from the committed positions. A `poll` in which it grows returns nothing."""

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        """The next messages, about `max_messages` at most, at most one chunk per partition; waits for the first of them
        for `timeout_s` at most, an empty list then."""

    def ends(self) -> dict[str, int]:
        """Ask the broker for the end of every partition that is read: the offset after its last message, now."""

    def behind(self, ends: Mapping[str, int]) -> bool:
        """Whether messages before some `ends` were not polled yet (messages that the broker has dropped do not
        count)."""

    def commit(self, positions: Mapping[str, int]) -> None:
        """Note durably, where the broker keeps such things, that a restart reads from these offsets on; partitions that
        are not named keep theirs. Never goes back by itself."""

    def close(self) -> None:
        """Let go. Idempotent; commits nothing."""


@runtime_checkable
class GroupedSource(LiveSource, Protocol):
    """What a `LiveSource` can do besides whose partitions a group divides among its members. Without it, every consumer
    gets everything."""

    @property
    def share(self) -> PartitionAssignment | None:
        """What the group gave to this consumer; None while it has not said."""


@runtime_checkable
class ReplayableSource(Protocol):
    """What a source can do besides for somebody who keeps the positions himself and reads ranges of messages.

    Nothing is committed, and what others have committed does not matter.
    """

    def seek(self, positions: Mapping[str, int]) -> None:
        """From now on read these partitions alone, from these offsets on; 0 is before the first message there is."""

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        """See `LiveSource`."""

    def ends(self) -> dict[str, int]:
        """See `LiveSource`; of all partitions, if none were sought."""

    def behind(self, ends: Mapping[str, int]) -> bool:
        """See `LiveSource`."""

    def close(self) -> None:
        """See `LiveSource`."""


@runtime_checkable
class SparseSource(Protocol):
    """What a `ReplayableSource` can do besides whose offsets do not count messages."""

    def reach(self, partition: str, start: int, count: int) -> int:
        """An offset before which lie at most `count` messages from `start` on, and some if there are any; it may lie
        behind the end."""


class BrokerTime(NamedTuple):
    """What a broker says of time.

    Attributes
    ----------
    now_ms : int
        Its clock, by which it stamps messages.
    newest_ms : int
        The highest timestamp that it has given, 0 if it does not tell. Ahead of `now_ms` only if somebody else chose
        it.
    """

    now_ms: int
    newest_ms: int = 0


@runtime_checkable
class ClockedSource(Protocol):
    """What a `LiveSource` can do besides whose broker says what time it is."""

    def clock(self) -> BrokerTime | None:
        """Ask it, now; None if it does not tell after all (an old server, a login that may not ask)."""


@runtime_checkable
class TimestampedSource(Protocol):
    """What a `LiveSource` can tell besides whose broker stamps messages by a clock that cannot be asked."""

    @property
    def timestamps_are_brokers(self) -> bool:
        """Whether no publisher chose the timestamps of what was polled."""


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
    """What a `LiveSource` can do besides that notices when messages were dropped unread, or a stream was made anew.

    It goes on with what there is: what was polled before stays with whoever polled it. The partition of a stream that
    was made anew has another name, because its offsets begin anew.
    """

    def gaps(self) -> list[Gap]:
        """Those that were noticed since the last call."""


@runtime_checkable
class PrefetchingSource(Protocol):
    """What a `LiveSource` with a store of its own (a spool) can do besides, while the ledger or the sink is away: take
    what its broker might not hold for long.

    Attributes
    ----------
    duplicates : int
        Messages that were dropped, as they had come before.
    """

    duplicates: int

    @property
    def stored_bytes(self) -> int:
        """What the store takes of the disk."""

    @property
    def is_catching_up(self) -> bool:
        """Whether windows are to wait, after a pause, for what the broker held meanwhile."""

    def prefetch(self, timeout_s: float) -> None:
        """Receive for about `timeout_s`, and hand out nothing; `poll` does that later."""

    def rewind(self) -> None:
        """Hand out everything from the committed position on once more."""


def shortened(name: str, max_bytes: int) -> str:
    """A name, or a hash of it if it has more than `max_bytes` bytes (64 at least), which a protocol cannot carry."""
    return name if len(name.encode()) <= max_bytes else hashlib.blake2b(name.encode(), digest_size=32).hexdigest()


class ReceivedMessage(NamedTuple):
    """A message of an ack-only source, what it is acknowledged by, and when it arrived, if it says so (Unix
    milliseconds)."""

    body: bytes
    token: Any
    arrival_ms: int | None = None


@runtime_checkable
class MessageSender(Protocol):
    """What a broker's sink can do besides: send messages that are no releases."""

    def send(self, bodies: Sequence[bytes]) -> None:
        """The broker has them all, in order, when it returns; or raise `SinkError`. Some may be there twice then."""

    def close(self) -> None:
        """Let go. Idempotent."""


@runtime_checkable
class AckSource(Protocol):
    """Messages that the broker holds until they are acknowledged, and then forgets."""

    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        """The next messages, waiting for the first of them for `timeout_s` at most. Unacknowledged ones come again
        after a reconnection."""

    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        """The broker may forget them. Tokens of a connection that was lost since are ignored: the broker sends those
        messages again."""

    def pending(self) -> bool:
        """Whether the broker is known to hold more messages now (False if it cannot tell)."""

    def close(self) -> None:
        """Let go. Idempotent."""


@runtime_checkable
class IdentifyingQueue(Protocol):
    """What an `AckSource` can do besides whose messages keep an identity when they are delivered again."""

    def delivery_id(self, received: ReceivedMessage) -> bytes | None:
        """It; None if a message has none."""


@runtime_checkable
class ReconnectingQueue(Protocol):
    """What an `AckSource` can tell besides of the connections that it makes by itself.

    Attributes
    ----------
    connections : int
        How many it made so far.
    """

    connections: int

    def is_current(self, received: ReceivedMessage) -> bool:
        """False if the connection that a message came by was lost: it comes again."""


@runtime_checkable
class DatedQueue(Protocol):
    """What an `AckSource` can do besides whose messages may say when they arrived (`ReceivedMessage.arrival_ms`).

    Attributes
    ----------
    gives_arrivals : bool
        Whether they do.
    """

    gives_arrivals: bool

    def waiting(self) -> int | None:
        """How many messages are still to be received of those that the broker has now; None if it has more than can be
        seen."""
