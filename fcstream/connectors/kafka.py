"""Kafka: topics as a replayable source, a topic as a sink.

``kafka://[user:password@]host:9092[,host2:9092]/TOPIC[,TOPIC2][?option=value&...]``

====================  ========================================================================================
``patience``          seconds that brokers may be away (60)
``security``          ``plaintext``, ``ssl``, ``sasl_ssl`` or ``sasl_plaintext``; by default ``sasl_ssl`` with a user,
                      else ``ssl`` with a `ca`, else ``plaintext``
``sasl``              ``PLAIN`` (default), ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``
``ca``                file with the certificates to trust, instead of the system's
``cert``, ``key``     files of the client's own certificate, if the brokers ask for one
``group``             of a source: its consumer group; the consumer's name by default
``instance``          of a source: a name of this process within the group that outlives it: restarted within
                      `session_s` it gets its partitions back and disturbs no other member (static membership)
``session_s``         of a source: seconds without a sign of life after which another member gets its partitions (45)
``max_poll_s``        of a source: seconds between two polls after which the group takes its partitions away (300)
====================  ========================================================================================

A message's identity is its offset; its arrival is the timestamp that Kafka gives. Set the topic's
``message.timestamp.type`` to ``LogAppendTime``: with ``CreateTime`` the producer chooses when its message arrived, so
it can make it late, or not. Messages of open transactions arrive when they are appended and are seen when they are
committed: let ``lateness`` be longer than producers' transactions.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from ..errors import ConfigError, FcstreamError, SinkError, SourceError
from ..releases.base import Release
from .base import Chunk
from .retry import with_patience
from .urls import Address, need

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
    from numpy.typing import NDArray

T = TypeVar("T")
LOG = logging.getLogger("fcstream.connectors.kafka")
_SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ASK_S = 3.0  # for one answer of a broker
_TAIL = 1000  # messages of each partition that are read back; releases that are under way together
_FINAL = {
    *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
    *("CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "INVALID_GROUP_ID"),
    *("_FATAL", "FENCED_INSTANCE_ID", "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "INCONSISTENT_GROUP_PROTOCOL"),
}
"""Errors that waiting does not mend."""
_REMEDY = "correct the login, or what it is allowed to do"
_REBALANCED = {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST"}


class _Lost(Exception):
    """The brokers did not answer, or not with what was asked for."""


class _Cluster:
    """Where the brokers are and how to log in; what their clients complained about, and since when.

    Takes the connection's options of an address; `error` is the type that it raises.
    """

    def __init__(self, address: Address, name: str, patience_s: float, error: type[FcstreamError]) -> None:
        try:
            import confluent_kafka
            import confluent_kafka.admin
        except ImportError:
            raise need("confluent-kafka", "kafka", address.place) from None
        self.kafka: Any = confluent_kafka
        self.place = address.masked
        self.patience_s = address.take_number("patience", patience_s)
        self.down_since: float | None = None
        self._error, self._key, self._password = error, address.place, address.password
        self._why = self._final = ""
        self.topics = tuple(dict.fromkeys(address.path.split(",")))
        if not all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) for topic in self.topics):
            raise ConfigError(f"must name a topic after the host, got {self.place}", self._key)
        self.settings = {
            "bootstrap.servers": address.listing(9092),
            "client.id": name,
            "socket.timeout.ms": int(1000 * max(2.0, min(self.patience_s, 20.0))),
            "log_level": 0,  # what matters comes through `hear`
            **_login(address),
        }
        # Asked for ends on a connection of its own: on the consumer's, every question waits behind its long polls.
        self._specs: Any = vars(confluent_kafka.admin)["OffsetSpec"]
        self.admin = self.make(confluent_kafka.admin.AdminClient, {"error_cb": partial(self.hear, is_idle=True)})

    def make(self, client: Callable[[dict[str, Any]], T], extra: Mapping[str, Any]) -> T:
        """A client with these settings."""
        try:
            return client({**self.settings, "error_cb": self.hear, **extra})
        except self.kafka.KafkaException as error:
            raise ConfigError(f"cannot be used: {self.say(error.args[0])}, got {self.place}", self._key) from None

    def say(self, error: KafkaError) -> str:
        """What a client says, on one line, without our secrets."""
        text = " ".join(error.str().split())[:300] or error.name()
        return text.replace(self._password, "***") if self._password else text

    def hear(self, error: KafkaError, is_idle: bool = False) -> None:
        """Called by a client, within our own calls, for what happens in its background."""
        if error.name() in _FINAL or error.fatal():
            self._final = self.say(error)
        elif error.name() != "_ALL_BROKERS_DOWN":
            self._why = self.say(error)
        elif not is_idle:  # one that idles loses its connections rightly
            self.is_down("")

    def is_down(self, why: str) -> None:
        self._why = why or self._why
        if self.down_since is None:
            self.down_since = time.monotonic()
            LOG.warning("%s does not answer; trying again", self.place)

    def is_up(self) -> None:
        if self.down_since is not None:
            self.down_since = None
            LOG.warning("%s answers again", self.place)

    def check(self) -> None:
        """Raise what waiting does not mend, once."""
        final, self._final = self._final, ""
        if final:
            raise self._error(f"{self.place} refuses: {final}; {_REMEDY}")

    def gone(self, last: BaseException) -> FcstreamError:
        """The error when patience has ended."""
        why = self._why or str(last) or "no answer"
        long = f"{self.place} did not answer for {self.patience_s:g} s"
        return self._error(f"{long}: {why}; check that the brokers run and can be reached")

    def patiently(self, action: Callable[[], T]) -> T:
        """Ask until an answer comes; `action` raises `_Lost` or the client's errors."""

        def act() -> T:
            try:
                return action()
            except self.kafka.KafkaException as error:
                raise self.sorted(error.args[0]) from None
            except TimeoutError:
                raise _Lost from None
            finally:
                self.admin.poll(0)

        return with_patience(act, self.check, (_Lost,), self.patience_s, self.gone)

    def sorted(self, error: KafkaError) -> Exception:
        """An error of the client as one to be waited out, or one to raise."""
        if error.name() in _FINAL or error.fatal():
            return self._error(f"{self.place} refuses: {self.say(error)}; {_REMEDY}")
        return _Lost(self.say(error))

    def meet(self, client: Any) -> dict[str, list[int]]:
        """Each topic's partitions, once the brokers answer; a producer makes topics by asking, if it may."""
        until = time.monotonic() + min(5.0, self.patience_s / 2)  # one that was made just now
        waits = iter((0.5, 1.0, 2.0))  # short at first: what refuses a login leaves us waiting

        def ask() -> dict[str, list[int]]:
            found = self.partitions(client, next(waits, _ASK_S))
            if not all(found.values()):
                if time.monotonic() > until:
                    raise self._error(f"{self.place} has no such topic: create it, or correct `{self._key}`")
                raise _Lost
            return found

        return self.patiently(ask)

    def partitions(self, client: Any, seconds: float) -> dict[str, list[int]]:
        """Empty for an unknown topic."""
        found = {}
        for topic in self.topics:
            data = client.list_topics(topic, timeout=min(seconds, self.patience_s)).topics[topic]
            if data.error is not None and "UNKNOWN_TOPIC" not in data.error.name():
                raise self.sorted(data.error)
            found[topic] = sorted(data.partitions)
        if all(found.values()):
            self.is_up()
        return found

    def spans(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """First offset that each partition still has, and the one after its last that is committed."""
        if not partitions:
            return {}
        seconds, level = min(_ASK_S, self.patience_s), self.kafka.IsolationLevel.READ_COMMITTED
        asked = [self.kafka.TopicPartition(*partition) for partition in partitions]
        answers = [
            self.admin.list_offsets(dict.fromkeys(asked, kind()), isolation_level=level, request_timeout=seconds)
            for kind in (self._specs.earliest, self._specs.latest)
        ]
        lows, highs = (
            {(each.topic, each.partition): int(found.result(seconds + 1).offset) for each, found in answer.items()}
            for answer in answers
        )
        self.is_up()
        return {partition: (lows[partition], highs[partition]) for partition in partitions}


def _login(address: Address) -> dict[str, Any]:
    """The client's settings for how to connect."""
    user, password, ca = address.user, address.password, address.take("ca", "")
    security = address.take("security", "sasl_ssl" if user else "ssl" if ca else "plaintext").lower()
    sasl = address.take("sasl", "PLAIN").upper()
    files = {"ca": ca, "certificate": address.take("cert", ""), "key": address.take("key", "")}
    for name, value, known in (("security", security, _SECURITY), ("sasl", sasl, _SASL)):
        if value not in known:
            raise ConfigError(f"must have one of {', '.join(known)} as `{name}`, got {value!r}", address.place)
    settings: dict[str, Any] = {"security.protocol": security}
    if security.startswith("sasl") != (user is not None) or (user is None) != (password is None):
        wrong = "must have a user and a password with security 'sasl_...', and only then"
        raise ConfigError(f"{wrong}, got {address.masked}", address.place)
    if any(files.values()) and not security.endswith("ssl"):
        raise ConfigError(f"must have security 'ssl' or 'sasl_ssl' with certificates, got {security!r}", address.place)
    if user is not None:
        settings |= {"sasl.mechanism": sasl, "sasl.username": user, "sasl.password": password}
    return settings | {f"ssl.{name}.location": path for name, path in files.items() if path}


class KafkaSource:
    """Messages of topics, read as a member of a consumer group. See `LiveSource` for the contract.

    Parameters
    ----------
    address : Address
        See the module.
    name : str
        The consumer group, unless the address names one.
    patience_s : float
        How long brokers may be away. Ones that hang, rather than refuse, are noticed after up to 20 s more.

    Attributes
    ----------
    stamp_kind : str or None
        Whose clock the last messages arrived by: ``LogAppendTime`` (the brokers'), ``CreateTime`` (the producers'),
        ``mixed`` or ``none`` (stamps are -1 then: a format before Kafka 0.10); None before the first.

    Raises
    ------
    ConfigError, SourceError

    Notes
    -----
    A rebalance takes all partitions of a member away and gives it new ones (the eager protocol): everything is read
    again from the committed positions. A transaction's messages come when it is committed; aborted ones never.
    """

    receipt_is_durable = False

    def __init__(self, address: Address, name: str, patience_s: float = 60.0) -> None:
        session_ms = int(1000 * address.take_number("session_s", 45.0))
        settings: dict[str, Any] = {
            "group.id": address.take("group", name),
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": min(3000, session_ms // 3),
            "max.poll.interval.ms": max(session_ms, int(1000 * address.take_number("max_poll_s", 300.0))),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range,roundrobin",
            "fetch.queue.backoff.ms": 10,  # 1000 by default: a reader that is quick would wait for nothing
            "on_commit": self._on_commit,
        }
        if instance := address.take("instance", ""):
            settings["group.instance.id"] = instance
        self._cluster = _Cluster(address, name, patience_s, SourceError)
        address.finish()
        self.stamp_kind: str | None = None
        self._generation = -1  # until the first assignment
        self._names: dict[tuple[str, int], str] = {}  # partitions that are ours
        self._is_assigned = False
        self._held: list[Message] = []  # received while something else was waited for
        self._next: dict[str, int] = {}  # where each partition was polled up to, in this generation
        self._committed: dict[str, int] = {}
        self._unanswered = 0
        self._commit_error: KafkaError | None = None
        self._message: Any = self._cluster.kafka.Message
        self._ranks = {topic: rank for rank, topic in enumerate(self._cluster.topics)}
        self._consumer: Consumer | None = self._cluster.make(self._cluster.kafka.Consumer, settings)
        self._cluster.meet(self._consumer)
        self._consumer.subscribe(
            list(self._cluster.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    @property
    def generation(self) -> int:
        return max(0, self._generation)

    def poll(self, max_messages: int, timeout_s: float) -> list[Chunk]:
        until, limit = time.monotonic() + timeout_s, min(max_messages, 1_000_000)
        self._cluster.check()
        got, self._held = self._held[:limit], self._held[limit:]
        got = self._receive(got, limit - len(got), 0)
        while not got and (left := until - time.monotonic()) > 0:
            got = self._receive(got, 1, min(left, 0.5))
            if got:
                got = self._receive(got, limit - 1, 0)
        if got:
            self._cluster.is_up()
            return self._chunks(got)
        self._mind_trouble()
        return []

    def ends(self) -> dict[str, int]:
        self._wait(lambda: self._is_assigned, "the group gives no partitions yet")
        known, ends = self._known(), {}
        for partition, (low, high) in self._cluster.patiently(lambda: self._cluster.spans(list(self._names))).items():
            name = self._names[partition]
            if name not in self._next and low <= known.get(name, -1) <= high:
                self._next[name] = known[name]
            self._reached(name, low)  # what the brokers have dropped cannot be read any more
            ends[name] = high
        return ends

    def behind(self, ends: Mapping[str, int]) -> bool:
        if not self._is_assigned:
            return True
        held = ((f"{message.topic()}:{message.partition()}", message.offset() or 0) for message in self._held)
        polled = ((name, self._next.get(name, 0)) for name in self._names.values())
        return any(offset < ends.get(name, 0) for name, offset in chain(held, polled))

    def commit(self, positions: Mapping[str, int]) -> None:
        if not positions:
            return
        known = self._known()
        ahead = [
            self._cluster.kafka.TopicPartition(*partition, positions[name])
            for partition, name in self._names.items()
            if positions.get(name, -1) > known.get(name, -1)
        ]
        if ahead:
            generation = self._generation
            self._cluster.patiently(lambda: self._commit(ahead, generation))

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None and not self._unanswered and self._cluster.down_since is None:
            consumer.close()
        # Else the group is left without a word: leaving would wait for an answer, perhaps for ever.

    @property
    def _open(self) -> Consumer:
        if self._consumer is None:
            raise SourceError(f"{self._cluster.place} is closed: open it again to go on")
        return self._consumer

    def _receive(self, got: list[Message], limit: int, timeout_s: float) -> list[Message]:
        """Add the next messages to `got`; drop all if the partitions were exchanged meanwhile; note ends, errors."""
        generation = self._generation
        messages: list[Message] = self._open.consume(limit, timeout_s)
        if self._generation != generation:
            if messages and self._is_assigned:
                # Some may be of the time before and some after: all of them come again.
                self._open.assign([self._cluster.kafka.TopicPartition(*partition) for partition in self._names])
            return []
        if any(map(self._message.error, messages)):
            messages = [message for message in messages if self._is_proper(message)]
        got += messages
        return got

    def _is_proper(self, message: Message) -> bool:
        """Else it is an event, and is noted."""
        error = message.error()
        if error is None:
            return True
        if error.name() == "_PARTITION_EOF":
            # Transactions' marks and compaction leave offsets without messages at the end.
            self._reached(f"{message.topic()}:{message.partition()}", message.offset() or 0)
        elif error.name() in _FINAL or error.fatal():
            self._cluster.hear(error)
        elif error.name() != "_MAX_POLL_EXCEEDED":  # a rebalance follows
            self._cluster.is_down(self._cluster.say(error))
        return False

    def _reached(self, name: str, offset: int) -> None:
        self._next[name] = max(self._next.get(name, 0), offset)

    def _chunks(self, messages: list[Message]) -> list[Chunk]:
        """Messages by partition. This is the path that must be quick: one call into C per message and attribute."""
        n, kind = len(messages), self._message
        keys = np.fromiter(map(kind.partition, messages), np.int64, n)
        if len(self._ranks) > 1:
            topics = map(self._ranks.__getitem__, map(kind.topic, messages))
            keys += np.fromiter(topics, np.int64, n) << 32
        offsets = np.fromiter(map(kind.offset, messages), np.int64, n)
        stamps = np.fromiter(chain.from_iterable(map(kind.timestamp, messages)), np.int64, 2 * n).reshape(n, 2)
        self._tell_kind(stamps[:, 0])
        bodies = list(map(kind.value, messages))
        if None in bodies:  # a tombstone
            bodies = [body or b"" for body in bodies]
        if keys[0] != keys[-1] or (keys != keys[0]).any():
            order = np.argsort(keys, kind="stable")
            keys, offsets, stamps = keys[order], offsets[order], stamps[order]
            bodies = [bodies[row] for row in order.tolist()]
        cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), n]
        chunks = []
        for first, last in pairwise(cuts):
            key = int(keys[first])
            name = self._names[self._cluster.topics[key >> 32], key & 0xFFFFFFFF]
            self._reached(name, int(offsets[last - 1]) + 1)
            chunks.append(Chunk(name, offsets[first:last], stamps[first:last, 1].copy(), bodies[first:last]))
        return chunks

    def _tell_kind(self, kinds: NDArray[np.int64]) -> None:
        first, last = int(kinds.min()), int(kinds.max())
        kind = ("none", "CreateTime", "LogAppendTime")[first] if first == last else "mixed"
        if kind not in ("LogAppendTime", self.stamp_kind):
            LOG.warning("%s: producers choose the arrival times: see message.timestamp.type", self._cluster.place)
        self.stamp_kind = kind

    def _mind_trouble(self) -> None:
        """Nothing came: because the brokers are away? Raise once patience has ended."""
        cluster, since = self._cluster, self._cluster.down_since
        if since is not None:
            with suppress(_Lost, cluster.kafka.KafkaException):
                cluster.partitions(self._open, 1.0)
        cluster.check()
        if since is not None and cluster.down_since is not None and time.monotonic() - since > cluster.patience_s:
            cluster.down_since = time.monotonic()  # the next call tries again
            raise cluster.gone(_Lost())

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._on_revoke(consumer, partitions)
        self._is_assigned = True
        self._names = {(each.topic, each.partition): f"{each.topic}:{each.partition}" for each in partitions}

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._generation += 1
        self._is_assigned, self._held = False, []
        self._names, self._next, self._committed = {}, {}, {}

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._unanswered -= 1
        self._commit_error = error or next((each.error for each in partitions if each.error is not None), None)

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        """Serve the client until something is done; messages that come meanwhile are held."""
        until = time.monotonic() + self._cluster.patience_s
        while not is_done():
            if time.monotonic() > until:
                raise self._cluster.gone(_Lost(what))
            self._held = self._receive(self._held, 1, 0.02)
            self._cluster.check()

    def _known(self) -> dict[str, int]:
        """The positions that the group has committed for our partitions; -1 for none."""
        if not self._committed and self._names:
            asked = [self._cluster.kafka.TopicPartition(*partition) for partition in self._names]
            found = self._cluster.patiently(lambda: self._open.committed(asked, timeout=_ASK_S))
            self._committed = {self._names[each.topic, each.partition]: max(-1, each.offset) for each in found}
        return self._committed

    def _commit(self, ahead: list[TopicPartition], generation: int) -> None:
        if self._generation == generation:
            # Not the client's synchronous commit: that waits for brokers for ever.
            self._open.commit(offsets=ahead, asynchronous=True)
            self._unanswered += 1
        self._wait(lambda: not self._unanswered or self._generation != generation, "no answer to a commit")
        error, self._commit_error = self._commit_error, None
        if self._generation != generation or (error is not None and error.name() in _REBALANCED):
            return  # the next polls tell: everything is read again from what was committed before
        if error is not None:
            raise self._cluster.sorted(error)
        self._committed |= {self._names[each.topic, each.partition]: each.offset for each in ahead}


class KafkaSink:
    """Releases as messages of a topic: key is the stream, header ``window`` is ``open_ms/close_ms``, body is JSON.

    At least once: after a crash the last ones may come again, with the same bytes. All of a stream lie in one partition
    and in order. The topic's ``cleanup.policy`` must be ``delete``: compaction would keep the last release only.

    Parameters
    ----------
    address : Address
        See the module; one topic.
    patience_s : float
        How long brokers may be away.

    Raises
    ------
    ConfigError, SinkError
    """

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._cluster = _Cluster(address, "fcstream", patience_s, SinkError)
        address.finish()
        if len(self._cluster.topics) != 1:
            raise ConfigError(f"must name one topic, got {address.masked}", address.place)
        self._topic = self._cluster.topics[0]
        self._producer: Producer | None = None
        self._is_closed = False
        found = self._cluster.meet(self._cluster.admin)[self._topic]
        self._partitions = [(self._topic, number) for number in found]

    def write(self, releases: Sequence[Release]) -> None:
        if self._is_closed:
            raise SinkError(f"{self._cluster.place} is closed: open it again to go on")
        for first in range(0, len(releases), _TAIL):
            try:
                self._write(releases[first : first + _TAIL])
            except BaseException:
                self._give_up()
                raise

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        """Those that are not among the topic's last 1,000 messages per partition; all, if reading is not allowed."""
        if not releases:
            return []
        held = {body for _, body in self._tail()}
        return [release for release in releases if release.to_bytes() not in held]

    def last(self, stream: str | None = None) -> Release | None:
        """The last release, of some stream, among the topic's last 1,000 messages per partition."""
        found: list[tuple[int, Release]] = []
        for stamp, body in self._tail():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # somebody else's
                release = Release.from_bytes(body)
                if stream in (None, release.stream):
                    found.append((stamp, release))
        return max(found, key=lambda pair: (pair[0], pair[1].window_open_ms))[1] if found else None

    def close(self) -> None:
        self._is_closed = True
        self._give_up()

    def _write(self, releases: Sequence[Release]) -> None:
        cluster = self._cluster
        if self._producer is None:
            settings = {"delivery.timeout.ms": int(1000 * cluster.patience_s), "linger.ms": 0}
            self._producer = cluster.make(cluster.kafka.Producer, {**settings, "enable.idempotence": True})
        failed: list[KafkaError] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)

        for release in releases:
            window: dict[str, str | bytes | None] = {"window": f"{release.window_open_ms}/{release.window_close_ms}"}
            body, key = release.to_bytes(), release.stream.encode()
            try:
                self._producer.produce(self._topic, body, key, headers=window, on_delivery=told)
            except cluster.kafka.KafkaException as error:
                failed.append(error.args[0])
        until = time.monotonic() + cluster.patience_s + 2
        while self._producer.flush(0.1):
            cluster.check()
            if time.monotonic() > until:
                raise cluster.gone(_Lost())
        if failed and failed[0].name() == "_MSG_TIMED_OUT":
            raise cluster.gone(_Lost())
        if failed:
            told_us = f"{cluster.place} did not take all releases: {cluster.say(failed[0])}"
            raise SinkError(f"{told_us}; what was sealed is in the ledger and is written again")
        cluster.is_up()

    def _give_up(self) -> None:
        """Nothing of what is under way is sent later, behind our back."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0)

    def _tail(self) -> list[tuple[int, bytes]]:
        """(stamp, body) of the last messages, oldest first within a partition; none if we may not read."""
        cluster, found = self._cluster, list[tuple[int, bytes]]()
        spans = cluster.patiently(lambda: cluster.spans(self._partitions))
        at = {each: max(low, high - _TAIL) for each, (low, high) in spans.items() if low < high}
        settings = {"group.id": "fcstream", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        ending = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}  # nothing is waited for but the end
        reader = cluster.make(cluster.kafka.Consumer, settings | ending)
        until = time.monotonic() + cluster.patience_s
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
                if at and time.monotonic() > until:
                    raise cluster.gone(_Lost())
        finally:
            reader.close()
        return found
