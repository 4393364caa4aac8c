"""One file per outside system, found by URL scheme. The engine never imports this.

A connector of somebody else's is found by the same scheme through the entry points ``fcstream.sources``,
``fcstream.queues`` (ack-only) and ``fcstream.sinks``: a class that is made with an `Address` (sources also with the
consumer's name).
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..records import Schema
    from ..sinks import Sink
    from ..sources import Source
    from .base import AckSource, LiveSource, ReplayableSource
    from .files import DeadLetters
    from .letters import QueuedDeadLetters


_SOURCES = {
    "kafka": ("kafka", "KafkaSource"),
    "redis": ("redis_streams", "RedisSource"),
    "rediss": ("redis_streams", "RedisSource"),
    "nats": ("jetstream", "NatsSource"),
    "rabbitmq-stream": ("rabbitmq_streams", "RabbitStreamSource"),
    "rabbitmq-stream+tls": ("rabbitmq_streams", "RabbitStreamSource"),
}
_REPLAYS = {"kafka": ("kafka_ranges", "KafkaRanges")}
"""Where it is another class that reads ranges."""
_QUEUES = {
    "mqtt": ("mqtt", "MqttTopic"),
    "mqtts": ("mqtt", "MqttTopic"),
    "amqp": ("amqp", "AmqpQueue"),
    "amqps": ("amqp", "AmqpQueue"),
}
_SINKS = {
    "kafka": ("kafka", "KafkaSink"),
    "redis": ("redis_streams", "RedisSink"),
    "rediss": ("redis_streams", "RedisSink"),
    "nats": ("jetstream", "NatsSink"),
    "rabbitmq-stream": ("rabbitmq_streams", "RabbitStreamSink"),
    "rabbitmq-stream+tls": ("rabbitmq_streams", "RabbitStreamSink"),
    "amqp": ("amqp", "AmqpSink"),
    "amqps": ("amqp", "AmqpSink"),
    "mqtt": ("mqtt", "MqttSink"),
    "mqtts": ("mqtt", "MqttSink"),
    "postgresql": ("postgres_table", "PostgresSink"),
    "http": ("webhook", "WebhookSink"),
    "https": ("webhook", "WebhookSink"),
}


def is_live(url: str) -> bool:
    """Whether a source URL names a broker, which never ends."""
    scheme = url.partition(":")[0]
    if scheme in ("jsonl", "csv"):
        return False
    return scheme in {**_SOURCES, **_QUEUES} or any(
        len(entry_points(group=f"fcstream.{group}", name=scheme)) for group in ("sources", "queues")
    )


def is_queue(url: str) -> bool:
    """Whether a source URL names a broker that forgets what was acknowledged, so that a spool is needed."""
    scheme = url.partition(":")[0]
    return scheme in _QUEUES or bool(len(entry_points(group="fcstream.queues", name=scheme)))


def open_live(url: str, name: str) -> LiveSource | AckSource:
    """A live source by URL; `name` is how the broker knows this consumer. An `AckSource` needs a spool before it.

    Raises
    ------
    ConfigError, SourceError
        Unknown scheme, missing client library (the message names the extra), broker that cannot be reached.
    """
    from .urls import parse

    scheme = url.partition(":")[0]
    found = _find(scheme, _SOURCES, "sources") or _find(scheme, _QUEUES, "queues")
    if not found:
        known = ", ".join(sorted([*_SOURCES, *_QUEUES]))
        raise ConfigError(f"must begin with one of {known}, got {scheme!r}", "source.url")
    return found(parse(url, "source.url"), name)  # type: ignore[no-any-return]


def open_ranges(url: str, name: str) -> ReplayableSource:
    """A live source by URL, for somebody who keeps the positions himself.

    Raises
    ------
    ConfigError, SourceError
        As `open_live`; also for a queue, and for a source that cannot seek.
    """
    from .urls import parse

    scheme = url.partition(":")[0]
    if is_queue(url):
        raise ConfigError(
            f"must be a broker that replays (Kafka, Redis Streams, JetStream, RabbitMQ streams), got {scheme!r}, which "
            "forgets what was acknowledged: bridge it into one of those, or run it with the local runner, whose spool "
            "keeps its records",
            "source.url",
        )
    found = _find(scheme, _REPLAYS, "ranges") or _find(scheme, _SOURCES, "sources")
    if not found:
        raise ConfigError(f"must begin with one of {', '.join(sorted(_SOURCES))}, got {scheme!r}", "source.url")
    if not hasattr(found, "seek"):
        raise ConfigError(f"must be a source that can be read from any offset on, {scheme!r} is not", "source.url")
    return found(parse(url, "source.url"), name)  # type: ignore[no-any-return]


def _find(scheme: str, known: dict[str, tuple[str, str]], group: str) -> Any:
    """A connector's class, None if there is none."""
    if scheme in known:
        module, name = known[scheme]
        return getattr(import_module(f"{__name__}.{module}"), name)
    for entry in entry_points(group=f"fcstream.{group}", name=scheme):
        return entry.load()
    return None


def open_source(url: str, schema: Schema) -> Source:
    """A source by URL: ``jsonl:PATH`` or ``csv:PATH``, also ``.gz``; ``-`` is standard input.

    Raises
    ------
    ConfigError, SourceError
    """
    from . import files

    scheme, _, place = url.partition(":")
    if scheme == "jsonl" and place:
        return files.LineSource.jsonl(place, schema)
    if scheme == "csv" and place:
        return files.LineSource.csv(place, schema)
    raise ConfigError(f"must be 'jsonl:PATH' or 'csv:PATH' (or '-' for standard input), got {url!r}", "source.url")


def open_sink(url: str) -> Sink:
    """A sink by URL: ``jsonl:PATH``; ``-`` is standard output; ``csv-tables:FOLDER``, ``jsonl-tables:FOLDER`` or
    ``parquet-tables:FOLDER`` for synthetic rows; or a broker's, a database's or a web server's.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    scheme, _, place = url.partition(":")
    if scheme == "jsonl" and place:
        return files.StandardOutput() if place == "-" else files.JsonlSink(place)
    if scheme in ("csv-tables", "jsonl-tables", "parquet-tables") and place:
        from .tables import TableFolder

        return TableFolder(place, scheme.partition("-")[0])
    found = _find(scheme, _SINKS, "sinks")
    if found:
        from .urls import parse

        return found(parse(url, "sink.url"))  # type: ignore[no-any-return]
    known = ", ".join(sorted(_SINKS))
    raise ConfigError(
        f"must be 'jsonl:PATH' (or 'jsonl:-' for standard output), or begin with one of {known}, got {scheme!r}",
        "sink.url",
    )


def open_dead_letter(url: str) -> DeadLetters | QueuedDeadLetters:
    """Where rejections go, by URL: ``jsonl:PATH``, or a broker's as for sinks; one of its own.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    scheme, _, place = url.partition(":")
    if scheme == "jsonl" and place and place != "-":
        return files.DeadLetters(place)
    found = _find(scheme, _SINKS, "sinks")
    if hasattr(found, "send"):
        from .letters import QueuedDeadLetters
        from .urls import parse

        return QueuedDeadLetters(lambda: found(parse(url, "dead_letter.url")))
    known = ", ".join(sorted(set(_SINKS) - {"postgresql", "http", "https"}))
    raise ConfigError(f"must be 'jsonl:PATH', or begin with one of {known}, got {scheme!r}", "dead_letter.url")
