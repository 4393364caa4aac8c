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
    stamps_ms : int64 (n,)
        When each message arrived, Unix milliseconds, by the broker's clock (of a spool: its durable receipt time). The
        same for every delivery.
    bodies : list of bytes
    """

    partition: str
    offsets: NDArray[np.int64]
    stamps_ms: NDArray[np.int64]
    bodies: list[bytes]


@dataclass(frozen=True, slots=True)
class Share:
    """What a consumer group has given this consumer.

    Attributes
    ----------
    total : int
        How many partitions there are.
    mine : dict of int to str
        Ours: their numbers, and their names in `Chunk.partition`.
    topics : int
        Over how many topics they are spread; numbers say a key's place in a single one only.
    """

    total: int
    mine: Mapping[int, str]
    topics: int = 1


class LiveSource(Protocol):
    """Messages of a broker, at least once each, in the order of their offsets within a partition.

    A source whose partitions a group divides among its members has a property ``share`` too: a `Share`, None while the
    group has not said; other sources give everything to everybody.

    A method that meets a lost connection reconnects by itself, with jittered back-off, for at most `patience_s`
    seconds, and raises `SourceError` then; calling it again tries again. Nothing that it raises or logs holds a
    message's content or a secret.
    """

    receipt_is_durable: bool
    """Whether `Chunk.stamps_ms` are receipt times that survive a restart (a spool), as clock ``wall`` needs."""

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


class ReplayableSource(Protocol):
    """What a source can do besides for somebody who keeps the positions himself and reads ranges of messages.

    Nothing is committed, and what others have committed does not matter. A source whose offsets are no numbers of
    messages has a method ``reach(partition, start, count)`` too: an offset before which lie at most `count` messages
    from `start` on, and some if there are any; it may lie behind the end.
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
class KeepingSource(Protocol):
    """What a `LiveSource` with a store of its own (a spool) can do besides, while the ledger or the sink is away: take
    what its broker might not hold for long."""

    def keep(self, timeout_s: float) -> None:
        """Receive for about `timeout_s`, and hand out nothing; `poll` does that later."""

    def rewind(self) -> None:
        """Hand out everything from the committed position on once more."""


def shortened(name: str, most: int) -> str:
    """A name, or a hash of it if it has more than `most` bytes (64 at least), which a protocol cannot carry."""
    return name if len(name.encode()) <= most else hashlib.blake2b(name.encode(), digest_size=32).hexdigest()


class Received(NamedTuple):
    """A message of an ack-only source, and what it is acknowledged by."""

    body: bytes
    token: Any


class Messenger(Protocol):
    """What a broker's sink can do besides: send messages that are no releases."""

    def send(self, bodies: Sequence[bytes]) -> None:
        """The broker has them all, in order, when it returns; or raise `SinkError`. Some may be there twice then."""

    def close(self) -> None:
        """Let go. Idempotent."""


class AckSource(Protocol):
    """Messages that the broker holds until they are acknowledged, and then forgets."""

    def receive(self, max_messages: int, timeout_s: float) -> list[Received]:
        """The next messages, waiting for the first of them for `timeout_s` at most. Unacknowledged ones come again
        after a reconnection."""

    def acknowledge(self, received: Sequence[Received]) -> None:
        """The broker may forget them. Tokens of a connection that was lost since are ignored: the broker sends those
        messages again."""

    def pending(self) -> bool:
        """Whether the broker is known to hold more messages now (False if it cannot tell)."""

    def close(self) -> None:
        """Let go. Idempotent."""
