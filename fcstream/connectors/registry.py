"""Registry of the classes that serve each URL scheme: the table below, and the entry points of other packages."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, NamedTuple

from ..errors import ConfigError

FILE_SOURCES = ("jsonl", "csv", "arrow", "parquet")
FILE_SINKS = ("jsonl",)
FOLDER_SINKS = ("parquet", "csv-tables", "jsonl-tables", "parquet-tables")
STANDARD_OUTPUT = ("jsonl", "influx")
"""Schemes that write to standard output as ``SCHEME:-``."""

Role = Literal["source", "ranges", "queue", "sink", "reader", "probe"]
_GROUPS = {
    "source": "fcstream.sources",
    "queue": "fcstream.queues",
    "sink": "fcstream.sinks",
    "probe": "fcstream.probes",
}
_BASES = {"source": "base:Source", "queue": "base:Queue", "sink": "sinks:Sink", "probe": "probes:Probe"}


class Connector(NamedTuple):
    """The classes of one system, as ``module:Class`` of this package; empty for a role that it does not have.

    Attributes
    ----------
    source : str
        A `Source`.
    ranges : str
        A `Source` that can `seek`, where that is another class.
    queue : str
        A `Queue`, which forgets what is acknowledged.
    sink : str
        A `Sink`.
    reader : str
        Reads releases back that the sink wrote: made with an address, with `lines` and `close`.
    probe : str
        A subclass of `Probe`.
    """

    source: str = ""
    ranges: str = ""
    queue: str = ""
    sink: str = ""
    reader: str = ""
    probe: str = ""


_KAFKA = Connector(
    source="kafka.source:KafkaSource",
    ranges="kafka.ranges:KafkaRanges",
    sink="kafka.sink:KafkaSink",
    probe="kafka.probe:KafkaProbe",
)
_REDIS = Connector("redis.source:RedisSource", sink="redis.sink:RedisSink", probe="redis.probe:RedisProbe")
_NATS = Connector("nats.source:NatsSource", sink="nats.sink:NatsSink", probe="nats.probe:NatsProbe")
_STREAMS = Connector(
    source="rabbitmq.stream_source:RabbitStreamSource",
    sink="rabbitmq.stream_sink:RabbitStreamSink",
    probe="rabbitmq.probe:StreamProbe",
)
_QUEUES = Connector(
    queue="rabbitmq.queue_source:AmqpQueue", sink="rabbitmq.queue_sink:AmqpSink", probe="rabbitmq.probe:QueueProbe"
)
_MQTT = Connector(queue="mqtt.source:MqttTopic", sink="mqtt.sink:MqttSink", probe="mqtt.probe:MqttProbe")
_POSTGRES = Connector(
    sink="postgres.sink:PostgresSink", reader="postgres.reader:PostgresReader", probe="postgres.probe:PostgresProbe"
)
_PIPE = Connector(queue="pipes.source:StandardInput", probe="pipes.probe:PipeProbe")
_INFLUX = Connector(sink="influx.sink:InfluxSink", probe="influx.probe:InfluxProbe")
_OTLP = Connector(sink="otlp.sink:OtlpSink", probe="otlp.probe:OtlpProbe")
_HTTP = Connector(queue="http.source:HttpReceiver", sink="http.sink:WebhookSink", probe="http.probe:HttpProbe")

CONNECTORS = {
    "kafka": _KAFKA,
    "redis": _REDIS,
    "rediss": _REDIS,
    "nats": _NATS,
    "rabbitmq-stream": _STREAMS,
    "rabbitmq-stream+tls": _STREAMS,
    "amqp": _QUEUES,
    "amqps": _QUEUES,
    "mqtt": _MQTT,
    "mqtts": _MQTT,
    "stdin": _PIPE,
    "postgresql": _POSTGRES,
    "influx": _INFLUX,
    "influxs": _INFLUX,
    "otlp": _OTLP,
    "otlps": _OTLP,
    "http": _HTTP,
    "https": _HTTP,
}


def known(*roles: Role) -> list[str]:
    """List the schemes of this package that have a class of one of these roles."""
    return sorted(scheme for scheme, each in CONNECTORS.items() if any(getattr(each, role) for role in roles))


def find(scheme: str, role: Role) -> Any:
    """Load the class of a scheme in a role; None if there is none.

    Raises
    ------
    ConfigError
        What another package names is not a whole subclass of the role's base class.
    """
    ours = getattr(CONNECTORS.get(scheme, Connector()), role)
    if ours:
        module, name = ours.split(":")
        return getattr(import_module(f"{__package__}.{module}"), name)
    for entry in _entries(scheme, role):
        return _checked(entry.load(), role)
    return None


def is_known(scheme: str, *roles: Role) -> bool:
    """Return whether `find` would find a class in one of these roles; none is loaded."""
    return scheme in known(*roles) or any(len(_entries(scheme, role)) for role in roles)


def speaks(url: str, scheme: str) -> bool:
    """Whether a URL names a system of the same kind as another scheme of this package, encrypted or not."""
    return CONNECTORS.get(url.partition("://")[0]) is CONNECTORS[scheme]


def _entries(scheme: str, role: Role) -> Any:
    return entry_points(group=_GROUPS[role], name=scheme) if role in _GROUPS else ()


def _checked(found: Any, role: Role) -> Any:
    module, name = _BASES[role].split(":")
    base = getattr(import_module(f"{__package__}.{module}"), name)
    lacks = ", ".join(f"`{each}`" for each in sorted(getattr(found, "__abstractmethods__", ())))
    if isinstance(found, type) and issubclass(found, base) and not lacks:
        return found
    where = "sink.url" if role == "sink" else "source.url"
    raise ConfigError(
        f"must name a connector that is a subclass of `{base.__module__}.{name}`, "
        f"`{getattr(found, '__qualname__', found)}` {f'has no {lacks}' if lacks else 'is none'}",
        where,
    )
