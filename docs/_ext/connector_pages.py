"""Connectors and the options of their URLs, as Markdown: what the registry and the classes declare."""

import inspect
import re
from collections.abc import Callable

from fcstream.connectors import registry
from fcstream.connectors.urls import UrlOption

TITLES = {
    "kafka": "Kafka",
    "redis": "Redis Streams",
    "nats": "NATS JetStream",
    "rabbitmq-stream": "RabbitMQ streams",
    "amqp": "AMQP 0-9-1 queues",
    "mqtt": "MQTT 5",
    "stdin": "Pipes",
    "postgresql": "PostgreSQL",
    "influx": "InfluxDB",
    "otlp": "OpenTelemetry",
    "http": "HTTP",
}
ROLES = {"source": "a source that replays", "queue": "a source that is read through a spool", "sink": "a sink"}


def connectors() -> str:
    """One part for each system, with a table of options for each of its classes."""
    schemes: dict[registry.Connector, list[str]] = {}
    for scheme, connector in registry.CONNECTORS.items():
        schemes.setdefault(connector, []).append(scheme)
    return "".join(_system(connector, names) for connector, names in schemes.items())


def _system(connector: registry.Connector, schemes: list[str]) -> str:
    parts = [f"## {TITLES[schemes[0]]}\n\nSchemes: {', '.join(f'`{name}`' for name in schemes)}.\n\n"]
    for role, words in ROLES.items():
        if getattr(connector, role):
            found = registry.find(schemes[0], role)
            parts.append(f"### {TITLES[schemes[0]]} as {words}\n\n`{found.url}`\n\n{_lead(found)}\n\n")
            parts.append("| option | default | meaning |\n| --- | --- | --- |\n")
            parts += [_row(option) for option in found.url_options]
            parts.append("\n")
    return "".join(parts)


def _lead(found: type) -> str:
    """What a docstring says above its sections, without the names of protocols, and its notes."""
    text = inspect.getdoc(found)
    above = text.partition("\n\nParameters\n")[0]
    above = re.sub(
        r"; an? `\w+`( with[^.]*)?(?=\.)|; see the module[^.]*| See `\w+`[^.]*\.", "", " ".join(above.split(" "))
    )
    notes = text.partition("\nNotes\n-----\n")[2].partition("\n\nSource\n")[0]
    return f"{above}\n\n{notes}".replace("patience_s`", "patience`")


def _row(option: UrlOption) -> str:
    if option.otherwise:
        default = option.otherwise
    elif option.default is None:
        default = "required"
    else:
        default = f"`{option.default}`" if option.default != "" else "none"
    return f"| `{option.name}` | {default} | {option.meaning} |\n"


def file_schemes() -> str:
    lists = (
        ("`[source]`", registry.FILE_SOURCES),
        ("`[sink]`", tuple(dict.fromkeys((*registry.FILE_SINKS, *registry.STANDARD_OUTPUT)))),
        ("`[sink]`", registry.FOLDER_SINKS),
    )
    rows = [f"| `{scheme}:` | {section} | {FILES[scheme, section]} |\n" for section, names in lists for scheme in names]
    return "| URL | where | what |\n| --- | --- | --- |\n" + "".join(rows)


FILES = {
    ("jsonl", "`[source]`"): "`jsonl:PATH`: a JSON object on each line; also `.gz`; `-` is standard input",
    ("csv", "`[source]`"): "`csv:PATH`: a table with a head; also `.gz`; `-` is standard input",
    (
        "arrow",
        "`[source]`",
    ): "`arrow:PATH`: an Arrow IPC file or stream (extra `arrow`); `-` is a stream on standard input",
    ("parquet", "`[source]`"): "`parquet:PATH`: a Parquet file (extra `arrow`)",
    (
        "jsonl",
        "`[sink]`",
    ): "`jsonl:PATH`: a release on each line, appended; `-` is standard output. `[dead_letter]` takes it too",
    (
        "influx",
        "`[sink]`",
    ): "`influx:-`: InfluxDB line protocol on standard output, a line for each number (extra `influx`)",
    (
        "csv-tables",
        "`[sink]`",
    ): "`csv-tables:FOLDER`: synthetic rows, a file for each window, and the release beside it",
    ("parquet", "`[sink]`"): "`parquet:FOLDER`: a row for each release of any kind, in Parquet files (extra `arrow`)",
    ("jsonl-tables", "`[sink]`"): "`jsonl-tables:FOLDER`: likewise, a JSON object on each line",
    ("parquet-tables", "`[sink]`"): "`parquet-tables:FOLDER`: likewise, as Parquet (extra `arrow`)",
}
MADE: dict[str, Callable[[], str]] = {"connectors": connectors, "file_schemes": file_schemes}
