"""A look at what a source or sink connects to, for ``fcstream doctor``: nothing is consumed, committed or written.

What can be found out without leaving a trace differs from system to system; a probe says what it did not try.
"""

from __future__ import annotations

import datetime
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import SinkError, SourceError
from .retry import close_quietly
from .urls import Address, parse

PATIENCE_S = 4.0
_SETTINGS_S = 2.0
_MINUTE_MS = 60_000
_AHEAD_S = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    check : str
        What was looked at, for instance ``source``.
    level : str
        ``ok``, ``warning`` or ``problem``.
    what, remedy : str
        No secrets. The remedy of what is ok is empty.
    """

    check: str
    level: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.check}: {self.what}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Another machine's clock: how far it is ahead of ours, and by how much that may be wrong."""

    whose: str
    ahead_ms: float
    doubt_ms: float

    @classmethod
    def read(cls, whose: str, ask: Callable[[], float]) -> ClockOffset:
        """`ask` returns Unix milliseconds; the shorter it takes, the less doubt."""
        before = time.time_ns() / 1e6
        theirs = ask()
        after = time.time_ns() / 1e6
        return cls(whose, theirs - (before + after) / 2, (after - before) / 2)


@dataclass(slots=True)
class Checkup:
    """What is found, in order.

    Attributes
    ----------
    need_ms : int
        For how long a source must keep a message: a window and its lateness.
    """

    need_ms: int
    findings: list[Finding] = field(default_factory=list)
    clocks: list[ClockOffset] = field(default_factory=list)

    def ok(self, check: str, what: str) -> None:
        self.findings.append(Finding(check, "ok", what))

    def warn(self, check: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(check, "warning", what, remedy))

    def problem(self, check: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(check, "problem", what, remedy))

    def retention(self, keeps_ms: float) -> None:
        """Of a source that forgets by time."""
        keeps = f"the broker keeps messages for {keeps_ms / _MINUTE_MS:.3g} minutes"
        wants = f"a window and its lateness take {self.need_ms / _MINUTE_MS:.3g}"
        if keeps_ms < self.need_ms:
            self.problem("source", f"{keeps}, {wants}", "let it keep them longer: a restart could not read them again")
        elif keeps_ms < 2 * self.need_ms:
            self.warn("source", f"{keeps}, {wants}", "let it keep them for the longest pause you want to survive too")
        else:
            self.ok("source", keeps)


def probe_source(checkup: Checkup, url: str, name: str) -> None:
    """Look at a live source.

    Raises
    ------
    FcstreamError
        It cannot be used; what was found before stands in `checkup`.
    """
    address = _address(url, "source.url")
    probes = {"redis": _redis_source, "rediss": _redis_source, "kafka": _kafka_source, "nats": _nats_source}
    probes |= {"mqtt": _mqtt_source, "mqtts": _mqtt_source, "amqp": _amqp_source, "amqps": _amqp_source}
    probes |= {"rabbitmq-stream": _rabbit_stream_source, "rabbitmq-stream+tls": _rabbit_stream_source}
    if address.scheme in probes:
        probes[address.scheme](checkup, address, name)
    else:
        _reach(checkup, "source", address)


def probe_sink(checkup: Checkup, url: str) -> None:
    """Look at a sink; see `probe_source`."""
    scheme, _, place = url.partition(":")
    if scheme == "jsonl":
        if place != "-":
            probe_file(checkup, "sink", place)
        return
    if scheme in ("csv-tables", "jsonl-tables", "parquet-tables"):
        probe_folder(checkup, "sink", place)
        return
    _probe_sink(checkup, _address(url, "sink.url"))


def probe_dead_letters(checkup: Checkup, url: str) -> None:
    """Look at a broker that gets dead letters; see `probe_source`."""
    address = _address(url, "dead_letter.url")
    inner = Checkup(checkup.need_ms)
    _probe_sink(inner, address)
    checkup.findings += [replace(finding, check="dead letters") for finding in inner.findings]


def _probe_sink(checkup: Checkup, address: Address) -> None:
    probes = {"redis": _redis_sink, "rediss": _redis_sink, "kafka": _kafka_sink, "nats": _nats_sink}
    probes |= {"mqtt": _mqtt_sink, "mqtts": _mqtt_sink, "http": _webhook, "https": _webhook}
    probes |= {"amqp": _amqp_sink, "amqps": _amqp_sink, "postgresql": _postgres_sink}
    probes |= {"rabbitmq-stream": _rabbit_stream_sink, "rabbitmq-stream+tls": _rabbit_stream_sink}
    if address.scheme in probes:
        probes[address.scheme](checkup, address)
    else:
        _reach(checkup, "sink", address)


def probe_file(checkup: Checkup, check: str, target: str) -> None:
    """A file that is appended to."""
    path = Path(target)
    folder = path.absolute().parent
    if not folder.is_dir():
        checkup.problem(check, f"the folder of {target} does not exist", f"make {folder}")
    elif not os.access(folder, os.W_OK | os.X_OK):
        checkup.problem(check, f"{folder} may not be written by this user", "change its owner or mode")
    elif path.exists() and not (path.is_file() and os.access(path, os.R_OK | os.W_OK)):
        checkup.problem(check, f"{target} cannot be read and written", "change its owner or mode, or name another file")
    else:
        checkup.ok(check, f"{target} can be {'appended to' if path.exists() else 'made'}; no line was written")


def probe_folder(checkup: Checkup, check: str, target: str) -> None:
    """A folder that files are put into."""
    folder = Path(target)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        checkup.problem(check, f"{folder} may not be written by this user", "change its owner or mode")
    else:
        checkup.ok(check, f"tables can be put into {target}; none was written")


def _address(url: str, key: str) -> Address:
    address = parse(url, key)
    option = "fcstream.patience" if address.scheme.startswith("http") else "patience"
    address.options[option] = str(PATIENCE_S)
    return address


def _reach(checkup: Checkup, check: str, address: Address) -> None:
    """What has no probe of its own: whether something listens there."""
    host, port = address.host(0)
    try:
        socket.create_connection((host, port), PATIENCE_S).close()
    except OSError as error:
        why = error.strerror or type(error).__name__
        checkup.problem(check, f"{address.masked} cannot be reached: {why}", "start the server, or correct the address")
        return
    checkup.ok(check, f"something listens at {host}:{port}; not tried: login, permission, existence")


# -- Redis -------------------------------------------------------------------------------------------------------------


def _redis_source(checkup: Checkup, address: Address, name: str) -> None:
    from .redis.source import RedisSource

    with closing(RedisSource(address, name)) as source:
        link = source._link
        checkup.clocks.append(ClockOffset.read("Redis", lambda: link.run(_redis_time)))
        told = source.clock()
        ahead_s = 0 if told is None else (told.newest_ms - told.now_ms) / 1000
        if ahead_s > _AHEAD_S:
            checkup.problem(
                "clock",
                f"the broker's stamps run {ahead_s:.0f} s ahead of its clock: somebody chose an "
                "id, all later ones follow it, and nobody can tell when they came",
                "let the server choose ids (XADD KEY *), and make the stream anew",
            )
        for key in source.ends():
            if link.run(partial(_redis_type, key=key)) == "none":
                checkup.warn("source", f"stream {key} does not exist yet", "check its name, or start what writes to it")
                continue
            checkup.ok("source", f"stream {key} can be read up to id {link.run(partial(_last_id, key=key))}")
            _redis_trimming(checkup, link.run(partial(_redis_info, key=key)), key)
        # Taking a field away that is not there changes nothing, and is refused to those who may not write.
        link.run(lambda client: client.hdel(source._positions_key, "fcstream doctor"))
        checkup.ok("source", f"the consumer is {name!r}; its positions can be written")
        _redis_durability(checkup, link, "source")


def _last_id(client: Any, key: str) -> str:
    last = client.xrevrange(key, count=1)
    return str(last[0][0].decode()) if last else "0-0 (it is empty)"


def _redis_type(client: Any, key: str) -> str:
    return str(client.type(key).decode())


def _redis_info(client: Any, key: str) -> dict[str, Any]:
    return dict(client.xinfo_stream(key))


def _redis_time(client: Any) -> float:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) / 1000


def _redis_trimming(checkup: Checkup, info: dict[str, Any], key: str) -> None:
    """Trimming is decided by those who add; its traces can be seen."""
    first, added = info.get("first-entry"), info.get("entries-added")
    if added is None or not first or added <= info["length"]:
        return
    kept_ms = time.time_ns() // 1_000_000 - int(first[0].partition(b"-")[0])
    if kept_ms < checkup.need_ms:
        checkup.warn(
            "source",
            f"entries of stream {key} were removed, and the oldest left is {kept_ms / 1000:.0f} s old, while a window "
            f"and its lateness take {checkup.need_ms / 1000:.0f} s",
            "trim it later (MAXLEN, MINID): a restart could not read the open window again",
        )


def _redis_durability(checkup: Checkup, link: Any, check: str) -> None:
    try:
        info = link.run(lambda client: client.info("persistence"))
    except (SourceError, SinkError):
        return  # this login may not ask
    if not info.get("aof_enabled"):
        checkup.warn(
            check, "the server writes nothing to disk at once (appendonly no)", "switch it on, or lose what came last"
        )


def _redis_sink(checkup: Checkup, address: Address) -> None:
    from .redis.connection import error_text
    from .redis.sink import RedisSink

    where = address.masked

    def add(client: Any) -> str:
        # An id that cannot be: refused for that reason alone by a server that would take another one.
        try:
            client.execute_command("XADD", sink._key, "0-0", "data", "")
        except Exception as error:
            return "" if "greater than 0-0" in str(error) else error_text(error)
        return "it takes what it should not"

    with closing(RedisSink(address)) as sink:
        checkup.clocks.append(ClockOffset.read("the sink's Redis", lambda: sink._link.run(_redis_time)))
        refusal = sink._link.run(add)
        kind = sink._link.run(partial(_redis_type, key=sink._key))
        if refusal and kind in ("none", "stream"):
            checkup.problem(
                "sink",
                f"{where} does not take entries: {refusal}",
                "correct the login's rights, or the server's memory and replication",
            )
        elif kind not in ("none", "stream"):
            checkup.problem("sink", f"{where}: its key holds a {kind}", "name another key as `stream`")
        else:
            if address.key == "sink.url":
                sink.last()
            checkup.ok("sink", f"{where} takes entries; none was added")


# -- Kafka -------------------------------------------------------------------------------------------------------------


def _kafka_source(checkup: Checkup, address: Address, name: str) -> None:
    from .kafka.connection import KafkaConnection

    for option, default in (("session_s", 45.0), ("max_poll_s", 300.0)):
        address.take_number(option, default)
    group = address.take("group", name)
    address.take("instance", "")
    cluster = KafkaConnection(address, name, PATIENCE_S, SourceError)
    address.finish()
    kafka = cluster.kafka
    # Never subscribed, so no member of the group, and nobody is disturbed; a producer could make topics by asking.
    consumer = cluster.make(kafka.Consumer, {"group.id": group, "allow.auto.create.topics": False})
    try:
        topics = cluster.partitions_of_topics(consumer)
        partitions = [(topic, number) for topic, numbers in topics.items() for number in numbers]
        cluster.retry(lambda: cluster.spans(partitions))
        asked = [kafka.TopicPartition(*partition) for partition in partitions]
        cluster.retry(lambda: consumer.committed(asked, timeout=PATIENCE_S))
    finally:
        close_quietly(consumer.close)
    for topic, numbers in topics.items():
        checkup.ok("source", f"topic {topic} has {len(numbers)} partitions, and their ends can be asked for")
        _kafka_settings(checkup, cluster, topic)
    checkup.ok(
        "source", f"the group is {group!r}, and its positions can be read; not tried: reading, writing positions"
    )


def _kafka_settings(checkup: Checkup, cluster: Any, topic: str) -> None:
    resource = cluster.kafka.admin.ConfigResource(cluster.kafka.admin.ConfigResource.Type.TOPIC, topic)
    try:
        answer = cluster.admin.describe_configs([resource], request_timeout=_SETTINGS_S)[resource].result(
            _SETTINGS_S + 1
        )
        values = {name: entry.value for name, entry in answer.items()}
        keeps, timestamps = float(values["retention.ms"]), values["message.timestamp.type"]
    except Exception as error:
        checkup.warn(
            "source",
            f"topic {topic} does not tell its settings ({type(error).__name__})",
            "see yourself that retention.ms is long enough, and message.timestamp.type is LogAppendTime",
        )
        return
    if keeps >= 0:
        checkup.retention(keeps)
    if timestamps == "LogAppendTime":
        checkup.ok("source", f"topic {topic} stamps messages by the brokers' clock")
    else:
        checkup.warn(
            "source",
            f"topic {topic} has message.timestamp.type = {timestamps}: producers choose when their messages arrived",
            "set it to LogAppendTime",
        )


def _kafka_sink(checkup: Checkup, address: Address) -> None:
    from .kafka.connection import KafkaConnection

    cluster = KafkaConnection(address, "fcstream-doctor", PATIENCE_S, SinkError)
    settings = {"group.id": "fcstream-doctor", "allow.auto.create.topics": False}
    consumer = cluster.make(cluster.kafka.Consumer, settings)
    try:
        topics = cluster.partitions_of_topics(consumer)
    finally:
        close_quietly(consumer.close)
    checkup.ok("sink", f"topic {', '.join(topics)} exists; not tried: writing")


# -- NATS --------------------------------------------------------------------------------------------------------------


def _nats_source(checkup: Checkup, address: Address, name: str) -> None:
    from .nats.connection import NatsConnection, stream_of

    stream, bucket = stream_of(address), address.take("bucket", "fcstream_positions")
    address.take("subject", ">")
    group = address.take("group", name)
    wire = NatsConnection(address, PATIENCE_S, SourceError)

    async def info() -> Any:
        return await wire._api(f"STREAM.INFO.{stream}")

    async def positions() -> bool:
        import nats.js.errors

        try:
            await wire.js.key_value(bucket)
        except nats.js.errors.NotFoundError:
            return False
        return True

    with closing(wire):
        answer = wire.first(info)
        if "ts" in answer:  # servers tell their time since 2.10
            checkup.clocks.append(ClockOffset.read("NATS", lambda: _nats_time(wire.run(info)["ts"])))
        state, config = answer["state"], answer["config"]
        checkup.ok("source", f"stream {stream} holds messages {state['first_seq']} to {state['last_seq']}")
        if config.get("retention", "limits") != "limits":
            checkup.problem(
                "source",
                f"stream {stream} drops messages that are acknowledged or that nobody is interested in",
                "give it the retention policy 'limits': open windows are read again after a restart",
            )
        if config.get("max_age"):
            checkup.retention(config["max_age"] / 1e6)
        where = f"bucket {bucket}" if wire.run(positions) else f"bucket {bucket}, which will be made"
        checkup.ok(
            "source", f"the consumer is {group!r}, its positions are kept in {where}; not tried: reading, writing"
        )


def _nats_time(text: str) -> float:
    """Unix milliseconds of ``2026-01-01T00:00:00.123456789Z``."""
    return datetime.datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp() * 1000


def _nats_sink(checkup: Checkup, address: Address) -> None:
    from .nats.sink import NatsSink

    with closing(NatsSink(address)) as sink:
        if address.key == "sink.url":
            sink.last()
        checkup.ok("sink", f"stream {sink._stream} takes subject {sink._subject}; not tried: publishing")


# -- MQTT --------------------------------------------------------------------------------------------------------------


def _mqtt_source(checkup: Checkup, address: Address, name: str) -> None:
    from .mqtt.connection import MqttConnection, MqttSession, topic_of

    topic, client_id = topic_of(address), address.take("client_id", name)
    for option, default in (("inflight", 1000), ("session", 604800)):
        address.take_number(option, default)
    is_shared = topic.startswith("$share/")

    def prepare(connection: MqttConnection, host: str, port: int) -> None:
        connection.open(host, port)
        if not is_shared:  # a copy goes to each client: nothing is taken from the one that runs
            connection.subscribe(topic, retained=False)

    MqttSession(address, PATIENCE_S, SourceError, prepare).close()
    said = "not tried: subscribing, which would take messages of a shared subscription" if is_shared else "with QoS 1"
    checkup.ok("source", f"{address.masked} answers and may be subscribed to, {said}; the client is {client_id!r}")


def _mqtt_sink(checkup: Checkup, address: Address) -> None:
    from .mqtt.sink import MqttSink

    address.options.pop("client_id", None)  # one that runs would be sent away
    with closing(MqttSink(address)) as sink:
        if address.key == "sink.url":
            sink.last()
    checkup.ok("sink", f"{address.masked} answers; not tried: publishing")


# -- RabbitMQ ----------------------------------------------------------------------------------------------------------


def _amqp_source(checkup: Checkup, address: Address, name: str) -> None:
    from .rabbitmq.queue_source import AmqpQueue

    class Look(AmqpQueue):
        """Connected without consuming."""

        def _consume(self, channel: Any) -> None:
            if self._names_stream(channel.connection):
                raise self._is_stream
            answer = channel.queue_declare(self._queue, passive=True).method
            said = f"{answer.message_count} messages and {answer.consumer_count} consumers"
            checkup.ok("source", f"queue {self._queue} has {said}; not tried: consuming")

    Look(address, name).close()


def _amqp_sink(checkup: Checkup, address: Address) -> None:
    from .rabbitmq.queue_sink import AmqpSink

    AmqpSink(address).close()
    checkup.ok("sink", f"{address.masked}: it exists; not tried: publishing")


def _rabbit_stream_source(checkup: Checkup, address: Address, name: str) -> None:
    from .rabbitmq.stream_source import RabbitStreamSource

    class Look(RabbitStreamSource):
        """Connected without a subscription."""

        async def _begin(self, client: Any) -> None:
            end = await self._end(client)
            where = f"stream {self._stream} ends at offset {max(0, end)}"
            checkup.ok("source", f"{where}; the consumer is {self._name!r}; not tried: reading, writing positions")

    Look(address, name).close()


def _rabbit_stream_sink(checkup: Checkup, address: Address) -> None:
    from .rabbitmq.stream_sink import RabbitStreamSink

    RabbitStreamSink(address).close()
    checkup.ok("sink", f"{address.masked}: it exists; not tried: publishing")


# -- a database, a web server ------------------------------------------------------------------------------------------


def _postgres_sink(checkup: Checkup, address: Address) -> None:
    from .postgres.sink import PostgresSink

    class Look(PostgresSink):
        """Opened without making its table."""

        def _prepare(self, db: Any) -> None:
            def ask(query: str, *values: str) -> Any:
                return (db.execute(query.encode(), values or None).fetchone() or [None])[0]

            clock = "SELECT extract(epoch FROM clock_timestamp())::float8 * 1000"
            checkup.clocks.append(ClockOffset.read("the sink's PostgreSQL", lambda: float(ask(clock))))
            named = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s"
            if ask("SELECT pg_is_in_recovery()"):
                checkup.problem("sink", f"{self._location} is a standby, which takes no rows", "name the primary")
            elif self._schema and ask(named, self._schema) is False:
                checkup.problem("sink", f"this login may not use schema {self._schema}", "grant it USAGE")
            elif self._exists(db):
                super()._prepare(db)
                rights = "SELECT has_table_privilege(%s, 'INSERT') AND has_table_privilege(%s, 'SELECT')"
                if ask(rights, self._table, self._table):
                    checkup.ok("sink", f"{self._location}: table {self._name} takes rows; none was written")
                else:
                    checkup.problem("sink", f"this login may not use table {self._name}", "grant it INSERT and SELECT")
            elif ask(
                "SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = "
                "coalesce(nullif(%s, ''), current_schema())), has_database_privilege(current_database(), 'CREATE'))",
                self._schema,
            ):
                checkup.ok("sink", f"{self._location}: table {self._name} will be made")
            else:
                checkup.problem("sink", f"this login may not make table {self._name}", "make it, or grant CREATE")

    Look(address).close()


def _webhook(checkup: Checkup, address: Address) -> None:
    from .http.sink import WebhookSink, _error_text

    with closing(WebhookSink(address)) as sink:
        try:
            sink._connection.connect()
        except OSError as error:
            checkup.problem(
                "sink", f"{sink._location} cannot be reached: {_error_text(error)}", "start the server, or correct it"
            )
            return
        checkup.ok("sink", f"{sink._location} answers; not tried: a request, because any POST would be a release")
