"""Base classes of live sources: what each promises to the engine's runner, whichever broker it reads.

There are two families. A `Source` (Kafka, Redis Streams, JetStream, RabbitMQ streams) numbers its messages and delivers
them again from any number on. A `Queue` (MQTT, AMQP queues) forgets a message once it is acknowledged, so it is read
through a durable local spool, which is a `Source` (see `spooled`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..errors import ConfigError
from ..formats.envelopes import Envelope, OfferedFields
from ..formats.payloads import decoder_for

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
        What each message has besides its body, if that was asked for (`Input.offered`).
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


def shortened(name: str, max_bytes: int) -> str:
    """Return a name, or a hash of it if it has more bytes than a protocol can carry; `max_bytes` is at least 64."""
    return name if len(name.encode()) <= max_bytes else hashlib.blake2b(name.encode(), digest_size=32).hexdigest()


class Input(ABC):
    """What sources and queues have in common: a class is made with an `Address` and the consumer's name.

    A subclass says what its system can do besides: every attribute and method that is not abstract has a default, which
    says that it cannot. Nothing that a method raises or logs holds a message's content or a secret.

    Attributes
    ----------
    offered : OfferedFields
        What messages have besides bodies; of the class, so that a configuration is checked before anything is opened.
        Each message gets an envelope with what `Address.asked` asks for, and none if nothing is asked for.
    is_grouped : bool
        Whether a group divides the partitions among its members; from other sources every consumer gets everything.
    """

    offered: ClassVar[OfferedFields] = OfferedFields()
    is_grouped: ClassVar[bool] = False
    _gaps: deque[Gap] | None = None

    @staticmethod
    def make_decoder(format: str, schema: Schema, options: Mapping[str, Any]) -> LineDecoder:
        """Make the decoder of messages, see `fcstream.formats.payloads.decoder_for`; one for all, where they may have
        several formats.

        Raises
        ------
        ConfigError
        """
        return decoder_for(format, schema, options)

    @property
    def has_ended(self) -> bool:
        """Return whether no further message will come, and all that came is where a restart finds it."""
        return False

    def gaps(self) -> list[Gap]:
        """Return the gaps that were noticed since the last call.

        The source continues with the messages that are left; messages that were polled before remain valid. The
        partition of a stream that was made anew has another name, because its offsets start again.
        """
        found = self._gaps or deque()
        return [found.popleft() for _ in range(len(found))]

    def note_gap(self, what: str, since_ms: int | None = None) -> None:
        """Keep a gap for the next call of `gaps`, which another thread may make meanwhile."""
        if self._gaps is None:
            self._gaps = deque()
        self._gaps.append(Gap(what, since_ms))

    @abstractmethod
    def close(self) -> None:
        """Close it, without committing or acknowledging anything; may be called again."""


class Source(Input):
    """Messages of a broker, each at least once, in the order of their offsets within a partition.

    A method that meets a lost connection reconnects by itself, with jittered back-off, for at most `patience_s`
    seconds, and raises `SourceError` then; calling it again tries again.

    Attributes
    ----------
    receipt_is_durable : bool
        Whether `Chunk.timestamps_ms` are receipt times that survive a restart (a spool), as clock ``wall`` needs.
    duplicates : int
        Messages that were dropped, as they had come before.
    """

    receipt_is_durable: ClassVar[bool] = False
    duplicates: int = 0

    @abstractmethod
    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        """Return the next messages, about `max_messages` at most, with at most one chunk for each partition.

        Waits for the first of them for at most `timeout_s`, and returns an empty list if none came.
        """

    @abstractmethod
    def ends(self) -> dict[str, int]:
        """Ask the broker for the present end of every partition that is read: the offset after its last message."""

    @abstractmethod
    def behind(self, ends: Mapping[str, int]) -> bool:
        """Return whether messages before some `ends` were not polled yet. Messages that the broker dropped do not
        count.
        """

    @abstractmethod
    def commit(self, positions: Mapping[str, int]) -> None:
        """Note durably, where the broker keeps positions, that a restart reads from these offsets on.

        Partitions that are not named keep their positions. A position never goes back.
        """

    @property
    def generation(self) -> int:
        """A number that grows when partitions were taken away or given (a rebalance).

        Whatever was read of them must be forgotten then, and is delivered again from the committed positions. A `poll`
        in which the number grows returns nothing.
        """
        return 0

    @property
    def share(self) -> PartitionAssignment | None:
        """Return the partitions that the group gave to this consumer; None until it has done so."""
        return None

    @classmethod
    def is_replayable(cls) -> bool:
        """Return whether callers may keep the positions themselves: whether the class has a `seek` of its own."""
        return cls.seek is not Source.seek

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read only these partitions from now on, from these offsets on; 0 stands before the first message that is
        left. What was committed does not matter, and `ends` asks for all partitions until this is called.
        """
        raise NotImplementedError

    def reach(self, partition: str, start: int, count: int) -> int:
        """Return an offset such that at most `count` messages, and at least one if there are any, lie from `start` to
        before it; by default, offsets count messages.

        The offset may lie behind the end.
        """
        return start + count

    def clock(self) -> BrokerTime | None:
        """Ask the broker for its time; None if it reports none, as an old server or one that does not permit the
        question.
        """
        return None

    @property
    def timestamps_are_brokers(self) -> bool:
        """Return whether the broker, by a clock that cannot be asked, and no publisher chose the timestamps."""
        return False

    def take_refused(self) -> Mapping[str, int]:
        """Return how many bodies of those that others pushed were refused since the last call, by reason."""
        return {}

    def prefetch(self, timeout_s: float) -> bool:
        """Receive for about `timeout_s` seconds into a store of its own, without handing out anything.

        So messages are saved, while the ledger or the sink is unreachable, that the broker might not keep for long.

        Returns
        -------
        bool
            False, at once, if there is no such store.
        """
        return False

    def rewind(self) -> bool:
        """Hand out everything from the committed position on once more; False if it must be opened again for that."""
        return False

    @property
    def torn(self) -> str | None:
        """Return what was cut off of the store when it was opened, in a sentence; None if it was whole."""
        return None

    @property
    def stored_bytes(self) -> int | None:
        """Return how many bytes of the disk the store takes; None if there is none."""
        return None

    @property
    def is_catching_up(self) -> bool:
        """Return whether windows are to wait, after a pause, for messages that the broker held meanwhile."""
        return False


class ReceivedMessage(NamedTuple):
    """A message of a queue, the token that acknowledges it, its arrival in Unix milliseconds, if it has one, and its
    envelope, if one was asked for.
    """

    body: bytes
    token: Any
    arrival_ms: int | None = None
    envelope: Envelope | None = None


class Queue(Input):
    """Messages that the broker holds until they are acknowledged, and then forgets; a spool stands before it.

    Attributes
    ----------
    connections : int
        How many connections it made so far; of one that reconnects by itself, which then has `is_current` too.
    gives_arrivals : bool
        Whether messages hold the time of their arrival (`ReceivedMessage.arrival_ms`); it needs `waiting`.
    comes_once : bool
        Whether what nobody has read when the process ends is lost, so that a spool takes it when it is closed; a queue
        with `has_ended` says it.
    """

    connections: int = 0
    gives_arrivals: bool = False
    comes_once: ClassVar[bool] = False

    @abstractmethod
    def receive(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        """Return the next messages, waiting for the first of them for at most `timeout_s`.

        Unacknowledged messages come again after a reconnection.
        """

    @abstractmethod
    def acknowledge(self, received: Sequence[ReceivedMessage]) -> None:
        """Let the broker forget messages. Tokens of a connection that was lost since are ignored: these messages come
        again.
        """

    @abstractmethod
    def pending(self) -> bool:
        """Return whether the broker is known to hold more messages now; False if that is not known."""

    def waiting(self) -> int | None:
        """Count the messages still to be received of those that the broker has now; None if it may have more than it
        shows.
        """
        return None

    def delivery_id(self, received: ReceivedMessage) -> bytes | None:
        """Return the identity that a message keeps when it is delivered again; None if it has none."""
        return None

    def is_current(self, received: ReceivedMessage) -> bool:
        """Return False if the connection that delivered a message was lost: the message comes again."""
        return True

    def expect(self, decoder: LineDecoder) -> None:
        """Take from now on what a decoder that `make_decoder` made can read; called before anything is received."""


class ImpatientQueue(Queue):
    """A queue whose broker drops what nobody receives soon, so that a thread does nothing but receive.

    Its methods are called by that thread and by others, one at a time; `gaps` at any time.

    Attributes
    ----------
    was_known : bool
        Whether the broker had kept messages for this consumer when the queue was opened.
    redelivers : int
        How many messages it may deliver again after a lost connection and that must be known then; 0 if they have no
        identity.
    """

    was_known: bool
    redelivers: int = 0


class PushQueue(Queue):
    """A queue whose messages others push to this process, and whose senders wait for the acknowledgement."""

    @property
    @abstractmethod
    def refused(self) -> Mapping[str, int]:
        """Return how many bodies it refused so far, by reason."""

    @abstractmethod
    def start(self) -> None:
        """Begin to receive; nothing is taken before."""

    @abstractmethod
    def refuse(self, received: Sequence[ReceivedMessage], reason: str) -> None:
        """Answer that messages were not stored (``full``, ``failed``) and may be sent again later, or (``too_large``)
        need not be.
        """


_TOGETHER = {
    "connections": "is_current",
    "is_current": "connections",
    "gives_arrivals": "waiting",
    "has_ended": "comes_once",
    "make_decoder": "expect",
}


def check_queue(queue: Queue) -> None:
    """Refuse a queue that says a part only of what it can do: that would be ignored in silence, or lose messages.

    Raises
    ------
    ConfigError
    """
    own = {name for each in type(queue).__mro__ if each not in Queue.__mro__ for name in vars(each)} | set(vars(queue))
    for name, other in _TOGETHER.items():
        if name in own and other not in own:
            raise ConfigError(
                f"must name a queue whose connector has `{other}` beside `{name}`, `{type(queue).__name__}` has not",
                "source.url",
                remedy="see `fcstream.connectors.base.Queue`",
            )
