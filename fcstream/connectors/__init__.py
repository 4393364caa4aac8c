"""Where records come from and where releases go: files, brokers, databases and web servers, found by URL scheme.

Here belongs everything that talks to an outside system: one folder for each, with its source, sink and connection,
and what they share (URLs, TLS, retries, the spool, dead letters). What is inside a message is not read here but in
`fcstream.formats`; when to read and when to stop is decided in `fcstream.service`, and the engine never imports this.

Files: `sources`, `sinks` (what every source and sink promises), `base` (what live sources promise besides), `registry`
(which class serves a scheme), `probes` (what ``fcstream doctor`` asks), `urls`, `tls`, `retry`, `broker_connection` and
`client_loop` (what connections share), `spool` (messages kept on disk), `spooled` (sources that read through it),
`partitioners`, `dead_letters`, `files`, `csv_tables`, `libraries`, and a folder for each broker or database.

A connector of another package is found by its scheme through the entry points ``fcstream.sources``,
``fcstream.queues`` (brokers that forget what was acknowledged), ``fcstream.sinks`` and ``fcstream.probes``. The first
three name a class that is made with an address, and for sources also with the consumer's name; the last one names a
`probes.Probe` for ``fcstream doctor``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..runtime.interpolation import is_url
from ..runtime.undo import on_error
from .base import AckSource, LiveSource, MessageSender, ReplayableSource, check_queue
from .registry import FILE_SINKS, FILE_SOURCES, TABLE_SINKS, find, is_known, known
from .urls import mask, parse, scheme_of

if TYPE_CHECKING:
    from ..formats.batch import Schema
    from .dead_letters import QueuedDeadLetters
    from .files import DeadLetters
    from .sinks import Sink
    from .sources import Source


def is_file(url: str) -> bool:
    """Return whether a source URL names files, which end."""
    return url.partition(":")[0] in FILE_SOURCES


def is_live(url: str) -> bool:
    """Return whether a source URL names a broker, which never ends."""
    return not is_file(url) and is_known(url.partition(":")[0], "source", "queue")


def is_queue(url: str) -> bool:
    """Return whether a source URL names a broker that forgets what was acknowledged, so that a spool is needed."""
    return is_known(url.partition(":")[0], "queue")


def open_live(url: str, name: str) -> LiveSource | AckSource:
    """Open a live source by URL; the broker knows this consumer as `name`. An `AckSource` needs a spool in front of it.

    Raises
    ------
    ConfigError, SourceError
        Unknown scheme, missing client library (the message names the extra), broker that cannot be reached, queue of
        another package that lacks something.
    """
    scheme = url.partition(":")[0]
    source = find(scheme, "source")
    found = source or find(scheme, "queue")
    if not found:
        names = ", ".join(known("source", "queue"))
        raise ConfigError(f"must begin with one of {names}, got {scheme_of(url)!r}", "source.url")
    opened = found(parse(url, "source.url"), name)
    if not source:
        with on_error(opened.close):
            check_queue(opened)
    return opened  # type: ignore[no-any-return]


def open_ranges(url: str, name: str) -> ReplayableSource:
    """Open a live source by URL, for a caller that keeps the positions itself.

    Raises
    ------
    ConfigError, SourceError
        As `open_live`; also for a queue, and for a source that cannot seek.
    """
    scheme = url.partition(":")[0]
    if is_queue(url):
        raise ConfigError(
            "must be a broker that replays (Kafka, Redis Streams, JetStream, RabbitMQ streams), got "
            f"{scheme_of(url)!r}, which forgets what was acknowledged: bridge it into one of those, or run it with the "
            "local runner, whose spool keeps its records",
            "source.url",
        )
    found = find(scheme, "ranges") or find(scheme, "source")
    if not found:
        raise ConfigError(f"must begin with one of {', '.join(known('source'))}, got {scheme_of(url)!r}", "source.url")
    if not _can(found, ReplayableSource):
        raise ConfigError(
            f"must be a source that can be read from any offset on, {scheme_of(url)!r} is not", "source.url"
        )
    return found(parse(url, "source.url"), name)  # type: ignore[no-any-return]


def open_source(url: str, schema: Schema) -> Source:
    """Open a source by URL: ``jsonl:PATH`` or ``csv:PATH``, also ``.gz``; ``-`` is standard input.

    Raises
    ------
    ConfigError, SourceError
    """
    from . import files

    scheme, path = check_file(url)
    return files.LineSource.jsonl(path, schema) if scheme == "jsonl" else files.LineSource.csv(path, schema)


def check_file(url: str) -> tuple[str, str]:
    """Return the format and the path of a source that ends.

    Raises
    ------
    ConfigError
        The scheme is another one, or the path is a URL.
    """
    scheme, _, path = url.partition(":")
    if scheme not in FILE_SOURCES or not path or is_url(path):
        names = ", ".join(known("source", "queue"))
        raise ConfigError(
            "must be 'jsonl:PATH' or 'csv:PATH' (or '-' for standard input), or of a live stream begin with one of "
            f"{names}, got {mask(url)!r}",
            "source.url",
        )
    return scheme, path


def open_sink(url: str) -> Sink:
    """Open a sink by URL: a file, a folder of tables, a broker, a database or a web server.

    Files are ``jsonl:PATH``, where ``-`` is standard output. Folders, for synthetic rows, are ``csv-tables:FOLDER``,
    ``jsonl-tables:FOLDER`` and ``parquet-tables:FOLDER``.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    found = check_sink(url)
    scheme, _, path = url.partition(":")
    if found:
        return found(parse(url, "sink.url"))  # type: ignore[no-any-return]
    if scheme == "jsonl":
        return files.StandardOutput() if path == "-" else files.JsonlSink(path)
    from .csv_tables import TableFolder

    return TableFolder(path, scheme.partition("-")[0])


def check_sink(url: str) -> Any:
    """Find a sink's connector by its scheme, without opening anything; None for files and folders.

    Raises
    ------
    ConfigError
        There is no such connector, or the path of a file is a URL.
    """
    scheme, _, path = url.partition(":")
    if scheme in (*FILE_SINKS, *TABLE_SINKS):
        if path and not is_url(path):
            return None
        raise ConfigError(f"must be '{scheme}:PATH', got {mask(url)!r}", "sink.url")
    found = find(scheme, "sink")
    if found:
        return found
    names = ", ".join(known("sink"))
    raise ConfigError(
        f"must be 'jsonl:PATH' (or 'jsonl:-' for standard output), or begin with one of {names}, "
        f"got {scheme_of(url)!r}",
        "sink.url",
    )


def open_dead_letter(url: str, max_bytes: int | None = None) -> DeadLetters | QueuedDeadLetters:
    """Open a sink for rejections by URL: ``jsonl:PATH`` (at most `max_bytes` with ``PATH.1``), or a broker's as for
    sinks.

    It must not be used for anything else.

    It must be one of its own.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    found = check_dead_letter(url)
    if found is None:
        path = url.partition(":")[2]
        return files.DeadLetters(path, files.LETTER_BYTES if max_bytes is None else max_bytes)
    from .dead_letters import QueuedDeadLetters

    return QueuedDeadLetters(lambda: found(parse(url, "dead_letter.url")))


def check_dead_letter(url: str) -> Any:
    """Find a connector for dead letters by its scheme, without opening anything; None for a file.

    Raises
    ------
    ConfigError
        There is no such connector, or the path of the file is a URL.
    """
    scheme, _, path = url.partition(":")
    if scheme == "jsonl" and is_url(path):
        raise ConfigError(f"must be 'jsonl:PATH', got {mask(url)!r}", "dead_letter.url")
    if scheme == "jsonl" and path and path != "-":
        return None
    found = find(scheme, "sink")
    if _can(found, MessageSender):
        return found
    names = ", ".join(each for each in known("sink") if _can(find(each, "sink"), MessageSender))
    raise ConfigError(f"must be 'jsonl:PATH', or begin with one of {names}, got {scheme_of(url)!r}", "dead_letter.url")


def _can(connector: Any, capability: Any) -> bool:
    """Return whether a connector is a class with the methods of a protocol."""
    return isinstance(connector, type) and issubclass(connector, capability)
