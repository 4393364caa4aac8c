"""Kafka for callers that keep the positions themselves: ranges of partitions, without a group. Addresses as in
`source`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import SourceError
from ..base import Chunk, Source
from ..urls import Address
from .connection import ASK_S, KafkaConnection
from .source import GROUP_OPTIONS

if TYPE_CHECKING:
    from confluent_kafka import Message


class KafkaRanges(Source):
    """A `Source` of topics without a group, which commits nothing; see `KafkaSource` for whose clock timestamps follow.

    Parameters
    ----------
    address : Address
        Options about consumer groups are ignored.
    name : str
        Name of the client.
    patience_s : float

    Raises
    ------
    ConfigError, SourceError
    """

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        for option in GROUP_OPTIONS:
            address.take(option, "")
        self._cluster = KafkaConnection(address, name, patience_s, SourceError)
        address.finish()
        settings = {
            "group.id": name,  # the client demands a group; it never joins it and commits nothing
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,
        }
        self._consumer: Any = self._cluster.make(self._cluster.kafka.Consumer, settings)
        found = self._cluster.partitions_of_topics(self._consumer)
        self._names = {f"{topic}:{number}": (topic, number) for topic, numbers in found.items() for number in numbers}
        self._next: dict[str, int] = {}
        self._ended = False

    def seek(self, positions: Mapping[str, int]) -> None:
        self._next = dict(positions)
        self._assign()

    def ends(self) -> dict[str, int]:
        """Ask for the present end of every partition, also of partitions that topics have got since."""
        if not self._next:
            found = self._cluster.retry(lambda: self._cluster.partitions(self._consumer, ASK_S))
            self._names = {f"{topic}:{number}": (topic, number) for topic, each in found.items() for number in each}
        asked = [self._names[name] for name in self._next or self._names]
        spans = self._cluster.retry(lambda: self._cluster.spans(asked))
        return {f"{topic}:{number}": high for (topic, number), (_, high) in spans.items()}

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        until = time.monotonic() + timeout_s
        while True:
            self._cluster.check()
            left = until - time.monotonic()
            messages = self._consumer.consume(max_messages, max(0.0, min(left, 0.1)))
            found = [message for message in messages if self._is_message(message)]
            if found:
                self._cluster.is_up()
                return self._chunks(found)
            if left <= 0 or self._moved():
                self._cluster.check_brokers(self._consumer)
                return []

    def behind(self, ends: Mapping[str, int]) -> bool:
        return any(self._next[name] < end for name, end in ends.items())

    def commit(self, positions: Mapping[str, int]) -> None:
        """Do nothing: the caller keeps the positions."""

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None and self._cluster.down_since is None:
            consumer.close()

    def _assign(self) -> None:
        kind = self._cluster.kafka.TopicPartition
        self._consumer.assign([kind(*self._names[name], offset) for name, offset in self._next.items()])

    def _moved(self) -> bool:
        """Return whether a partition's end was reported since the last poll, so that there is nothing to wait for."""
        moved, self._ended = self._ended, False
        return moved

    def _is_message(self, message: Message) -> bool:
        """Return whether it is a message; an event is noted."""
        error = message.error()
        if error is None:
            return True
        if error.name() == "_PARTITION_EOF":
            name = f"{message.topic()}:{message.partition()}"
            # Transaction markers and compaction can leave offsets without messages at the end.
            self._next[name] = max(self._next[name], message.offset() or 0)
            self._ended = True
        else:
            self._cluster.on_read_error(error)
        return False

    def _chunks(self, messages: list[Message]) -> list[Chunk]:
        by_name: dict[str, list[Message]] = {}
        for message in messages:
            by_name.setdefault(f"{message.topic()}:{message.partition()}", []).append(message)
        chunks = []
        for name, rows in by_name.items():
            offsets = np.array([message.offset() for message in rows], np.int64)
            timestamps = np.array([message.timestamp()[1] for message in rows], np.int64)
            self._next[name] = int(offsets[-1]) + 1
            chunks.append(Chunk(name, offsets, timestamps, [message.value() or b"" for message in rows]))
        return chunks
