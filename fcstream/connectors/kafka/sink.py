"""Kafka sink: releases as messages of a topic. Addresses as in `source`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from ...errors import ConfigError, Shown, SinkError
from ...releases.base import Release
from ...runtime.undo import on_error
from ..retry import BrokerLost, PendingMessages
from ..sinks import Sink
from ..urls import Address
from .connection import CONNECTION, KafkaConnection

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_TAIL = 1000  # messages of each partition that are read back, and releases that are sent together
_LARGEST = 1 << 24  # bytes of a release; topics may take more than the client's default of a million


class KafkaSink(Sink):
    """Writes releases as messages: the key is the stream, the header ``window`` is ``open_ms/close_ms``, the body is
    JSON.

    At least once: after a crash the last ones may come again, with the same bytes. All releases of a stream are in one
    partition and in order. The topic's ``cleanup.policy`` must be ``delete``: compaction would keep only the last
    release.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; one topic.
    patience_s : float
        Seconds that brokers may be unreachable.

    Raises
    ------
    ConfigError, SinkError
    """

    url: ClassVar = "kafka://[user:password@]host[:port][,host...]/TOPIC"
    url_options: ClassVar = CONNECTION

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._cluster = KafkaConnection(address, "fcstream", patience_s, SinkError)
        address.finish()
        if len(self._cluster.topics) != 1:
            raise ConfigError("must name one topic", address.key, got=Shown(address.masked))
        self._topic = self._cluster.topics[0]
        self._producer: Producer | None = None
        self._is_closed = False
        self._remainder: PendingMessages[tuple[bytes, bytes, dict[str, str]]] = PendingMessages()
        found = self._cluster.partitions_of_topics(self._cluster.admin)[self._topic]
        self._partitions = [(self._topic, number) for number in found]

    def write(self, releases: Sequence[Release]) -> None:
        keyed = ((each, {"window": f"{each.window_open_ms}/{each.window_close_ms}"}) for each in releases)
        self._post([(each.to_bytes(), each.stream.encode(), window) for each, window in keyed])

    def send(self, bodies: Sequence[bytes]) -> None:
        self._post([(body, b"fcstream", {}) for body in bodies])

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        """Return those that are not among the topic's last 1,000 messages per partition; all, if reading is not
        permitted.
        """
        if not releases:
            return []
        held = {body for _, body in self._tail()}
        return [release for release in releases if release.to_bytes() not in held]

    def last(self, stream: str | None = None) -> Release | None:
        """Return the last release, of a stream if one is named, among the topic's last 1,000 messages per partition."""
        found: list[tuple[int, Release]] = []
        for timestamp, body in self._tail():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # a message of another program
                release = Release.from_bytes(body)
                if stream in (None, release.stream):
                    found.append((timestamp, release))
        return max(found, key=lambda pair: (pair[0], pair[1].window_open_ms))[1] if found else None

    def close(self) -> None:
        self._is_closed = True
        self._give_up()

    def _post(self, messages: list[tuple[bytes, bytes, dict[str, str]]]) -> None:
        if self._is_closed:
            raise SinkError(f"{self._cluster.location} is closed", remedy="open it again to go on")
        waiting = self._remainder.of(messages)
        while waiting:
            some, taken = list(islice(waiting, _TAIL)), set[int]()
            try:
                with on_error(self._give_up):
                    self._write(some, taken)
            finally:
                for _ in some:
                    waiting.popleft()
                waiting.extendleft(reversed([each for i, each in enumerate(some) if i not in taken]))

    def _write(self, messages: list[tuple[bytes, bytes, dict[str, str]]], taken: set[int]) -> None:
        """Send messages in order, up to the first that is refused, and record which ones the brokers have."""
        cluster = self._cluster
        if self._producer is None:
            settings: dict[str, Any] = {"delivery.timeout.ms": int(1000 * cluster.patience_s), "linger.ms": 0}
            settings |= {"enable.idempotence": True, "message.max.bytes": _LARGEST}
            self._producer = cluster.make(cluster.kafka.Producer, settings)
        failed: list[KafkaError] = []

        def on_delivery(number: int, error: KafkaError | None, message: Message) -> None:
            if error is None:
                taken.add(number)
            else:
                failed.append(error)

        for i, (body, key, headers) in enumerate(messages):
            try:
                self._producer.produce(self._topic, body, key, headers={**headers}, on_delivery=partial(on_delivery, i))
            except cluster.kafka.KafkaException as error:
                failed.append(error.args[0])
                break
            except BufferError:  # the client's queue is full; the rest follows once some are sent
                break
        expired = cluster.expiry(2)
        while self._producer.flush(0.1):
            cluster.check()
            if expired():
                raise cluster.unreachable(BrokerLost())
        if failed and failed[0].name() == "_MSG_TIMED_OUT":
            raise cluster.unreachable(BrokerLost())
        if failed:
            problem = f"{cluster.location} did not take all releases: {cluster.error_text(failed[0])}"
            raise SinkError(f"{problem}; what was sealed is in the ledger and is written again")
        cluster.is_up()

    def _give_up(self) -> None:
        """Discard the messages that are not sent yet, so that the client does not send them later by itself."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0)

    def _tail(self) -> list[tuple[int, bytes]]:
        """Read (timestamp, body) of the last messages, oldest first within a partition; none if reading is not
        permitted.
        """
        cluster, found = self._cluster, list[tuple[int, bytes]]()
        spans = cluster.retry(lambda: cluster.spans(self._partitions))
        at = {each: max(low, high - _TAIL) for each, (low, high) in spans.items() if low < high}
        settings = {"group.id": "fcstream", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        ending = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}  # wait for the end only
        reader = cluster.make(cluster.kafka.Consumer, settings | ending)
        expired = cluster.expiry()
        try:
            reader.assign([cluster.kafka.TopicPartition(*each, offset) for each, offset in at.items()])
            while at:
                for message in reader.consume(_TAIL, 0.1):
                    error = message.error()
                    if error is None:
                        found.append((message.timestamp()[1], message.value() or b""))
                    elif error.name() == "TOPIC_AUTHORIZATION_FAILED":
                        return []
                    elif error.name() == "_PARTITION_EOF":
                        at.pop((message.topic(), message.partition()), None)
                if at and expired():
                    raise cluster.unreachable(BrokerLost())
        finally:
            reader.close()
        return found
