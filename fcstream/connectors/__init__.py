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
    from .base import AckSource, LiveSource
    from .files import DeadLetters


_SOURCES = {
    "kafka": ("kafka", "KafkaSource"),
    "redis": ("redis_streams", "RedisSource"),
    "rediss": ("redis_streams", "RedisSource"),
    "nats": ("jetstream", "NatsSource"),
}
_QUEUES = {
    "mqtt": ("mqtt", "MqttTopic"),
    "mqtts": ("mqtt", "MqttTopic"),
}
_SINKS = {
    "kafka": ("kafka", "KafkaSink"),
    "redis": ("redis_streams", "RedisSink"),
    "rediss": ("redis_streams", "RedisSink"),
    "nats": ("jetstream", "NatsSink"),
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
    """A sink by URL: ``jsonl:PATH``; ``-`` is standard output; or a broker's, a database's or a web server's.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    scheme, _, place = url.partition(":")
    if scheme == "jsonl" and place:
        return files.StandardOutput() if place == "-" else files.JsonlSink(place)
    found = _find(scheme, _SINKS, "sinks")
    if found:
        from .urls import parse

        return found(parse(url, "sink.url"))  # type: ignore[no-any-return]
    known = ", ".join(sorted(_SINKS))
    raise ConfigError(
        f"must be 'jsonl:PATH' (or 'jsonl:-' for standard output), or begin with one of {known}, got {scheme!r}",
        "sink.url",
    )


def open_dead_letter(url: str) -> DeadLetters:
    """Where rejections go, by URL: ``jsonl:PATH``.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    scheme, _, place = url.partition(":")
    if scheme == "jsonl" and place and place != "-":
        return files.DeadLetters(place)
    raise ConfigError(f"must be 'jsonl:PATH', got {url!r}", "dead_letter.url")
