"""Kafka: topics as a replayable source, a topic as a sink.

A message's identity is its offset; its arrival is the timestamp that Kafka gives. Set the topic's
``message.timestamp.type`` to ``LogAppendTime``: with ``CreateTime`` the producer chooses when its message arrived, and
so whether it is late. Messages of open transactions arrive when they are appended and can be read when they are
committed, so ``lateness`` must be longer than producers' transactions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import ConfigError, Shown, SourceError
from ...formats.envelopes import Envelope, OfferedFields
from ..base import Chunk, PartitionAssignment, Source
from ..retry import BrokerLost
from ..urls import Address, UrlOption
from .connection import ASK_S, CONNECTION, KafkaConnection

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

LOG = logging.getLogger("fcstream.connectors.kafka")
_MAX_HELD, _WEIGHT = 1 << 26, 300  # bytes of messages that may be held in a wait; bytes of each besides its body
_LONGEST_NAME = 255  # bytes; brokers fail at very long ones
_COMMIT_S = 1.0  # longest wait for the response to a commit
_FROM_THE_START = -2
_COMMITTED = -3  # a jump from the committed position
_REBALANCED = {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST"}
GROUP = UrlOption("group", "Consumer group.", otherwise="`source.name`")
INSTANCE = UrlOption(
    "instance",
    "Name of this process in the group that outlives it: restarted within `session_s` it gets its partitions back and "
    "disturbs no other member.",
    "",
)
SESSION = UrlOption("session_s", "Seconds without a sign of life after which another member gets its partitions.", 10)
MAX_POLL = UrlOption("max_poll_s", "Seconds between two polls after which the group takes its partitions away.", 300)
GROUP_OPTIONS = (GROUP, INSTANCE, SESSION, MAX_POLL)


class KafkaSource(Source):
    """Reads topics as a member of a consumer group. See `Source` for the contract.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`.
    name : str
        The consumer group, unless the address names one.
    patience_s : float
        Seconds that brokers may be unreachable. Brokers that hang are noticed up to 20 s later than ones that refuse.

    Attributes
    ----------
    timestamp_kind : str or None
        Whose clock timestamped the last messages: ``LogAppendTime`` (the brokers'), ``CreateTime`` (the producers'),
        ``mixed`` or ``none`` (timestamps are -1 then: a format before Kafka 0.10); None before the first.

    Raises
    ------
    ConfigError, SourceError

    Notes
    -----
    In a rebalance a member keeps the partitions that remain its own, and continues to read them while the group waits
    for members that are dead (the cooperative protocol). If some are given or taken away, all its partitions are read
    again from the committed positions. A transaction's messages come when it is committed; aborted ones never.

    `ends` notices when the brokers dropped messages that were not read, and when a topic was made anew with fewer
    messages than the group had committed; `poll` notices offsets that go back while it reads. A topic that was made
    anew while nobody read it, and has more messages by then, is not recognized.
    """

    url: ClassVar = "kafka://[user:password@]host[:port][,host...]/TOPIC[,TOPIC...]"
    url_options: ClassVar = (*GROUP_OPTIONS, *CONNECTION)
    offered: ClassVar = OfferedFields(topic=".", key=True, headers="Kafka's headers")
    is_grouped = True

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        self._asked = address.asked
        session_ms = int(1000 * address.take_number(SESSION))
        group, instance = address.take(GROUP, "") or name, address.take(INSTANCE)
        if max(len(group.encode()), len(instance.encode())) > _LONGEST_NAME:
            raise ConfigError(
                f"must have a `group` and an `instance` of {_LONGEST_NAME} bytes at most",
                address.key,
                got=Shown(address.masked),
            )
        settings: dict[str, Any] = {
            "group.id": group,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": min(3000, session_ms // 3),
            "max.poll.interval.ms": max(session_ms, int(1000 * address.take_number(MAX_POLL))),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "enable.auto.offset.store": False,  # commits name their positions
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "cooperative-sticky",
            "fetch.queue.backoff.ms": 10,  # by default 1000, for which a fast reader would wait in vain
            "on_commit": self._on_commit,
        }
        if instance:
            settings["group.instance.id"] = instance
        self._cluster = KafkaConnection(address, name, patience_s, SourceError)
        address.finish()
        self.timestamp_kind: str | None = None
        self._generation = -1  # until the first assignment
        self._names: dict[tuple[str, int], str] = {}  # partitions of this consumer
        self._is_assigned = False
        self._must_rewind = False  # partitions were exchanged, and those that stayed are not where they were committed
        self._total: int | None = None  # number of partitions, of all consumers
        self._held: list[Message] = []  # received while something else was waited for
        self._next: dict[str, int] = {}  # where each partition was polled up to, in this generation
        self._jumps: dict[str, int] = {}  # from which position on offsets were skipped, since the last `ends`
        self._committed: dict[str, int] = {}
        self._unanswered = 0
        self._commit_error: KafkaError | None = None
        self._wanted: dict[str, int] = {}  # positions to be committed
        self._asked_at = 0.0
        self._message: Any = self._cluster.kafka.Message
        self._ranks = {topic: rank for rank, topic in enumerate(self._cluster.topics)}
        self._consumer: Consumer | None = self._cluster.make(self._cluster.kafka.Consumer, settings)
        self._cluster.partitions_of_topics(self._consumer)
        self._consumer.subscribe(
            list(self._cluster.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    @property
    def generation(self) -> int:
        return max(0, self._generation)

    @property
    def timestamps_are_brokers(self) -> bool:
        """Return whether the last messages had the brokers' timestamps."""
        return self.timestamp_kind == "LogAppendTime"

    @property
    def share(self) -> PartitionAssignment | None:
        if not self._is_assigned:
            return None
        if self._total is None:  # topics may have got more partitions, and a rebalance because of it
            found = self._cluster.retry(lambda: self._cluster.partitions(self._open, ASK_S))
            self._total = sum(map(len, found.values()))
        firsts = {topic: rank << 32 for topic, rank in self._ranks.items()}
        mine = {firsts[topic] + number: name for (topic, number), name in self._names.items()}
        return PartitionAssignment(self._total, mine, len(self._ranks))

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        until, limit = time.monotonic() + timeout_s, min(max_messages, 1_000_000)
        generation = self._generation
        self._cluster.check()
        if self._wanted and not self._unanswered and self._committed.keys() >= self._wanted.keys():
            self._ask_to_commit()
        got, self._held = self._held[:limit], self._held[limit:]
        got += self._consume(limit - len(got), 0)
        while self._generation == generation:  # otherwise what was held is from before the rebalance
            if got and (chunks := self._chunks(got)):
                self._cluster.is_up()
                return chunks
            if (left := until - time.monotonic()) <= 0:
                self._cluster.check_brokers(self._open)
                break
            got = self._consume(1, min(left, 0.5))
            if got:
                got += self._consume(limit - 1, 0)
        return []

    def ends(self) -> dict[str, int]:
        self._wait(lambda: self._is_assigned, "the group gives no partitions yet")
        known, ends = self._committed_positions(), {}
        for partition, (low, high) in self._cluster.retry(lambda: self._cluster.spans(list(self._names))).items():
            name = self._names[partition]
            self._note_gap(name, known.get(name, -1), low, high)
            if name not in self._next and low <= known.get(name, -1) <= high:
                self._next[name] = known[name]
            self._reached(name, low)  # the brokers have dropped what came before
            ends[name] = high
        return ends

    def _note_gap(self, name: str, committed: int, low: int, high: int) -> None:
        """Compare the position up to which a partition was read without a jump with what the brokers still have."""
        position = self._jumps.pop(name, None)
        if position is None:
            position = self._next.get(name, committed)
        if position == _COMMITTED:
            position = committed
        if 0 <= position < low:
            self.note_gap(f"messages of partition {name} were dropped unread")
        elif committed > high:
            self.note_gap(f"partition {name} was made anew")
            self._committed[name] = -1  # the old position says nothing about the new partition

    def behind(self, ends: Mapping[str, int]) -> bool:
        if not self._is_assigned:
            return True
        held = ((f"{message.topic()}:{message.partition()}", message.offset() or 0) for message in self._held)
        polled = ((name, self._next.get(name, 0)) for name in self._names.values())
        return any(offset < ends.get(name, 0) for name, offset in chain(held, polled))

    def commit(self, positions: Mapping[str, int]) -> None:
        ours = set(self._names.values())
        self._wanted |= {name: offset for name, offset in positions.items() if name in ours}
        if self._wanted:
            self._cluster.retry(self._commit)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None and not self._unanswered and self._cluster.down_since is None:
            consumer.close()
        # Otherwise the group is left without notice: leaving would wait for a response, perhaps for ever.

    @property
    def _open(self) -> Consumer:
        if self._consumer is None:
            raise SourceError(f"{self._cluster.location} is closed", remedy="open it again to go on")
        return self._consumer

    def _consume(self, limit: int, timeout_s: float) -> list[Message]:
        """Return the next messages, with events among them; none if partitions were exchanged meanwhile."""
        if self._must_rewind and not self._rewind():
            return []
        generation, had_some = self._generation, bool(self._names)
        messages: list[Message] = self._open.consume(limit, timeout_s)
        if self._generation == generation:
            return messages
        if self._generation == generation + 1 and not had_some:
            self._held = messages  # nothing was assigned before, so they are of this assignment
        else:  # some may be from before the rebalance: all of them come again
            self._must_rewind = True
            self._rewind()
        return []

    def _rewind(self) -> bool:
        """Read all partitions from the committed positions on; False if the client is not ready for that."""
        # The committed positions of partitions that stayed are known; asking would wait until the whole group has
        # joined.
        known = {name: offset if offset >= 0 else _FROM_THE_START for name, offset in self._committed.items()}
        ours = [
            self._cluster.kafka.TopicPartition(*partition, *([known[name]] if name in known else []))
            for partition, name in self._names.items()
        ]
        try:
            if ours:
                self._open.incremental_unassign(ours)
                self._open.incremental_assign(ours)
        except self._cluster.kafka.KafkaException as error:
            LOG.info(
                "%s: partitions are not read again yet: %s",
                self._cluster.location,
                self._cluster.error_text(error.args[0]),
            )
            return False
        self._must_rewind = False
        return True

    def _receive(self, got: list[Message], limit: int, timeout_s: float) -> list[Message]:
        """Add the next messages to `got`, and note ends and errors. If partitions were exchanged, return what is held
        instead.
        """
        generation = self._generation
        messages = self._consume(limit, timeout_s)
        if self._generation != generation:
            return self._held
        got.extend(filter(self._is_message, messages))
        return got

    def _is_message(self, message: Message) -> bool:
        """Return whether it is a message; an event is noted."""
        error = message.error()
        if error is None:
            return True
        if error.name() == "_PARTITION_EOF":
            # Transaction markers and compaction can leave offsets without messages at the end.
            self._reached(f"{message.topic()}:{message.partition()}", message.offset() or 0)
        elif error.name() != "_MAX_POLL_EXCEEDED":  # a rebalance follows
            self._cluster.on_read_error(error)
        return False

    def _reached(self, name: str, offset: int) -> None:
        self._next[name] = max(self._next.get(name, 0), offset)

    def _chunks(self, messages: list[Message]) -> list[Chunk]:
        """Group messages by partition, and note events. This code must be fast: one call into C per message and
        attribute.
        """
        kind = self._message
        stamped = list(map(kind.timestamp, messages))
        if 0 in map(itemgetter(0), stamped):  # neither events nor messages of an old format have a timestamp
            messages = list(filter(self._is_message, messages))
            if not messages:
                return []
            stamped = list(map(kind.timestamp, messages))
        self._set_timestamp_kind(set(map(itemgetter(0), stamped)))
        n = len(messages)
        timestamps = np.fromiter(map(itemgetter(1), stamped), np.int64, n)
        keys = np.fromiter(map(kind.partition, messages), np.int64, n)
        if len(self._ranks) > 1:
            topics = map(self._ranks.__getitem__, map(kind.topic, messages))
            keys += np.fromiter(topics, np.int64, n) << 32
        offsets = np.fromiter(map(kind.offset, messages), np.int64, n)
        envelopes = list(map(self._envelope, messages)) if self._asked.from_source else None
        bodies = list(map(kind.value, messages))
        if None in bodies:  # a tombstone
            bodies = [body or b"" for body in bodies]
        cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), n]
        if len(cuts) - 1 > len(np.unique(keys[cuts[:-1]])):  # otherwise each partition's messages came in one run
            order = np.argsort(keys, kind="stable")
            keys, offsets, timestamps = keys[order], offsets[order], timestamps[order]
            bodies = [bodies[row] for row in order.tolist()]
            envelopes = None if envelopes is None else [envelopes[row] for row in order.tolist()]
            cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), n]
        chunks = []
        for first, last in pairwise(cuts):
            key = int(keys[first])
            name = self._names[self._cluster.topics[key >> 32], key & 0xFFFFFFFF]
            before = self._next.get(name, _COMMITTED)
            # In one assignment they never go back, and what is read again begins where the group has committed.
            if int(offsets[first]) < min(before, self._committed.get(name, -1)):
                self.note_gap(f"partition {name} was made anew")
                self._committed[name] = before = -1  # the old positions say nothing about the new partition
                del self._next[name]
                self._jumps.pop(name, None)
                self._wanted.pop(name, None)
            if before != int(offsets[first]):  # compacted, a marker of a transaction, or dropped: `ends` tells
                self._jumps.setdefault(name, before)
            self._reached(name, int(offsets[last - 1]) + 1)
            besides = None if envelopes is None else envelopes[first:last]
            chunks.append(
                Chunk(name, offsets[first:last], timestamps[first:last], bodies[first:last], envelopes=besides)
            )
        return chunks

    def _envelope(self, message: Message) -> Envelope:
        found: Any = message.headers() if self._asked.headers else None
        return self._asked.envelope(message.topic(), message.key(), found or ())

    def _set_timestamp_kind(self, kinds: set[int]) -> None:
        kind = ("none", "CreateTime", "LogAppendTime")[min(kinds)] if len(kinds) == 1 else "mixed"
        if kind not in ("LogAppendTime", self.timestamp_kind):
            LOG.warning("%s: producers choose the arrival times: see message.timestamp.type", self._cluster.location)
        self.timestamp_kind = kind

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Note partitions that are given in addition to those that stay."""
        if partitions or not self._is_assigned:
            self._on_exchange()
            fresh = {(each.topic, each.partition): f"{each.topic}:{each.partition}" for each in partitions}
            self._names |= fresh
            self._forget_partitions(fresh.values())
        self._is_assigned, self._total = True, None

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Note that some partitions, or all, are taken away."""
        if partitions or not self._names:
            self._on_exchange()
        self._forget_partitions([self._names.pop((each.topic, each.partition), "") for each in partitions])
        self._is_assigned, self._total = bool(self._names), None

    def _on_exchange(self) -> None:
        self._generation += 1
        self._held, self._next, self._wanted, self._jumps = [], {}, {}, {}

    def _forget_partitions(self, names: Iterable[str]) -> None:
        """Forget the committed positions of partitions for which another member may commit, or has committed."""
        for name in names:
            self._committed.pop(name, None)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._unanswered -= 1
        self._commit_error = error or next((each.error for each in partitions if each.error is not None), None)
        if self._commit_error is None:
            positions = {self._names.get((each.topic, each.partition), ""): each.offset for each in partitions}
            self._committed |= {name: offset for name, offset in positions.items() if name in self._committed}

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        """Serve the client until a condition holds; messages that come meanwhile are held, up to a bound."""
        expired = self._cluster.expiry()
        size = 0
        paused: list[TopicPartition] = []
        try:
            while not is_done():
                if expired():
                    raise self._cluster.unreachable(BrokerLost(what))
                before = len(self._held)
                self._held = self._receive(self._held, 1, 0.02)
                size += sum(_WEIGHT + len(message) for message in self._held[before:])
                if size > _MAX_HELD and not paused:
                    paused = [self._cluster.kafka.TopicPartition(*partition) for partition in self._names]
                    self._open.pause(paused)
                self._cluster.check()
        finally:
            if paused:
                with suppress(self._cluster.kafka.KafkaException):  # partitions that were taken away meanwhile
                    self._open.resume(paused)

    def _committed_positions(self) -> dict[str, int]:
        """Return the positions that the group has committed for this consumer's partitions; -1 for none."""
        asked = [
            self._cluster.kafka.TopicPartition(*partition)
            for partition, name in self._names.items()
            if name not in self._committed
        ]
        if asked:
            found = self._cluster.retry(lambda: self._read_positions(self._open.committed(asked, timeout=ASK_S)))
            positions = {self._names.get((each.topic, each.partition), ""): max(-1, each.offset) for each in found}
            self._committed |= {name: offset for name, offset in positions.items() if name}
        return self._committed

    def _read_positions(self, found: list[TopicPartition]) -> list[TopicPartition]:
        """Return positions, if the response has all of them."""
        if (error := next((each.error for each in found if each.error is not None), None)) is not None:
            raise self._cluster.classify(error)
        return found

    def _commit(self) -> None:
        """Commit the positions that are wanted.

        While the group waits for members there is no response. That is not an error, and these positions are committed
        later.
        """
        generation = self._generation
        if not self._unanswered:
            self._ask_to_commit()
        until = self._asked_at + _COMMIT_S
        self._wait(
            lambda: not self._unanswered or self._generation != generation or time.monotonic() > until,
            "no answer to a commit",
        )
        error, self._commit_error = self._commit_error, None
        if self._generation != generation or (error is not None and error.name() in _REBALANCED):
            return  # the next polls notice it, and read everything again from the positions committed before
        if error is not None:
            raise self._cluster.classify(error)
        if self._unanswered and time.monotonic() > self._asked_at + self._cluster.patience_s:
            raise self._cluster.unreachable(BrokerLost("no answer to a commit"))

    def _ask_to_commit(self) -> None:
        known, wanted, self._wanted = self._committed_positions(), self._wanted, {}
        ahead = [
            self._cluster.kafka.TopicPartition(*partition, wanted[name])
            for partition, name in self._names.items()
            if wanted.get(name, -1) > known.get(name, -1)
        ]
        if ahead:
            # The client's synchronous commit is not used, because it waits for brokers for ever.
            self._open.commit(offsets=ahead, asynchronous=True)
            self._unanswered, self._asked_at = self._unanswered + 1, time.monotonic()
