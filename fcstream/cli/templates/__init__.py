"""Sample configurations with comments, which ``fcstream init`` puts together from a kind of release and a source.

A file here is the part of one kind: features, ``[release]`` and ``[budget]``. Lines that begin with ``#:`` stand for
what depends on the source, or on the name of the file that is written; `fcstream.cli.tools` fills them in.
"""

from __future__ import annotations

import difflib
from importlib import resources

from ...errors import ConfigError, Shown

_STREAM = """[stream]
name = "rooms"
time = "ts_ms"          # event-time field
time_unit = "ms"        # "ms" | "s" | "iso8601" (no zone: UTC)
unit = "event"          # whom the budget protects: "event" one record, "user", "stream" everything
"""
_PAST = """[window]
length = "{length}"
clock = "eof"           # every window closes at the end of input, so the schedule must be public:
start = "2016-03-15T00:00:00Z"
end = "2016-03-16T00:00:00Z"
"""
_LIVE = """[window]
length = "{length}"
lateness = "30s"        # how long after its end a window waits for records
clock = "{clock}"
start = "now"           # the window that is open at the first start is the first one that is answered
"""
_BROKER = 'broker"        # windows close by the broker\'s clock; "wall": by this machine\'s'
_WALL = "wall\"          # windows close by this machine's clock"
_ADDRESSES = """[source]
{source}
[sink]
url = "jsonl:-"

[ledger]
url = "sqlite:ledger.db"
"""
_SPOOL = 'spool = "spool"         # folder where messages lie until their window is answered\n'
_FILES = {
    "jsonl": 'url = "jsonl:telemetry.jsonl"\n',
    "csv": 'url = "csv:telemetry.csv" # its first line names the columns\n',
    "arrow": "url = \"arrow:telemetry.arrow\" # needs the extra 'arrow'\n",
    "parquet": "url = \"parquet:telemetry.parquet\" # needs the extra 'arrow'\n",
}
_BROKERS = {
    "kafka": "url = \"kafka://127.0.0.1:9092/rooms\" # broker and topic; needs the extra 'kafka'\n",
    "redis": "url = \"redis://127.0.0.1:6379/0?stream=rooms\" # a Redis stream; needs the extra 'redis'\n",
    "nats": "url = \"nats://127.0.0.1:4222/rooms\" # a stream of JetStream; needs the extra 'nats'\n",
    "rabbitmq-stream": 'url = "rabbitmq-stream://guest:${RABBITMQ_PASSWORD}@127.0.0.1:5552/?stream=rooms"\n',
}
_QUEUES = {
    "amqp": 'url = "amqp://guest:${RABBITMQ_PASSWORD}@127.0.0.1:5672/?queue=rooms" # a queue\n' + _SPOOL,
    "mqtt": "url = \"mqtt://127.0.0.1:1883/rooms/+/telemetry\" # a topic filter; needs the extra 'mqtt'\n" + _SPOOL,
}
_RECEIVED = {
    "http": "url = \"http://127.0.0.1:4318\" # records are posted to /ingest there; needs the extra 'http'\n" + _SPOOL,
    "stdin": 'url = "stdin:"          # lines of another program\n' + _SPOOL,
}
_MESSAGE = 'format = "json"         # what a message holds: one record as a JSON object\n'
SOURCES = (*_FILES, *_BROKERS, *_QUEUES, *_RECEIVED)
"""Schemes of sources that a template can be made for."""
_FOLDER = resources.files(__package__)
KINDS = tuple(sorted(file.name[:-5] for file in _FOLDER.iterdir() if file.name.endswith(".toml")))
"""Kinds of releases that a template can be made for: all kinds there are."""


def template(kind: str = "mean", source: str = "jsonl", path: str = "rooms.toml") -> str:
    """Write a commented configuration that runs.

    Parameters
    ----------
    kind : str
        Of `KINDS`.
    source : str
        Of `SOURCES`. A template for ``jsonl`` fits what ``fcstream simulate`` writes.
    path : str
        File that it is written to, which its first lines name.

    Raises
    ------
    ConfigError
        There is no such kind or source.
    """
    _check("--kind", kind, KINDS)
    _check("--source", source, SOURCES)
    parts = {
        "public": "# Everything here is public: nothing is ever inferred from data.\n",
        "try": f"# {_next_steps(source, path)}\n",
        "stream": _STREAM,
        "window": _window(source, "10m"),
        "day": _window(source, "1d"),
        "addresses": _ADDRESSES.format(source=_source(source)),
    }
    lines = (_FOLDER / f"{kind}.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(parts[line[3:].strip()] if line.startswith("#: ") else line for line in lines)


def next_command(source: str, path: str) -> str:
    """Return the command to give after a template was written."""
    if source == "jsonl":
        return f"fcstream simulate --out telemetry.jsonl && fcstream run {path}"
    return f"put in your own address, fields and ranges, then fcstream doctor {path} && fcstream run {path}"


def _next_steps(source: str, path: str) -> str:
    if source == "jsonl":
        return f"Try it:  fcstream plan {path};  fcstream simulate --out telemetry.jsonl;  fcstream run {path}"
    return f"Put in your own address, fields and ranges; then:  fcstream plan {path};  fcstream doctor {path}"


def _window(source: str, length: str) -> str:
    if source in _FILES:
        return _PAST.format(length=length)
    clock = _BROKER if source in _BROKERS else _WALL
    return _LIVE.replace('"{clock}"', '"' + clock).format(length=length)


def _source(source: str) -> str:
    brokers = {**_BROKERS, **_QUEUES}
    return brokers[source] + _MESSAGE if source in brokers else {**_FILES, **_RECEIVED}[source]


def _check(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"must be one of {', '.join(known)}", option, got=Shown(f"{value!r}{meant}"))
