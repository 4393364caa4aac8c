"""Where records come from and where releases go: files, brokers, databases and web servers, found by URL scheme.

Here belongs everything that talks to an outside system: one folder for each, with its source, sink and connection, and
what they share (URLs, TLS, retries, the spool, dead letters). What is inside a message is not read here but in
`fcstream.formats`; when to read and when to stop is decided in `fcstream.service`, and the engine never imports this.

Files: `sources`, `sinks` (what every source and sink promises), `base` (what live sources promise besides), `registry`
(which class serves a scheme), `probes` (what ``fcstream doctor`` asks), `urls`, `tls`, `retry`, `broker_connection` and
`client_loop` (what connections share), `spool` (messages kept on disk), `spooled`, `received` and `pushed` (sources
that read through it, from a broker, from one that drops what nobody receives, or from senders who wait),
`partitioners`, `dead_letters`, `files` (lines), `table_files` (columns), `csv_tables`, `parquet_parts`,
`line_protocol`, `libraries`, and a folder for each broker, database or protocol.

A connector of another package is found by its scheme through the entry points ``fcstream.sources``, ``fcstream.queues``
(sources whose broker forgets what was acknowledged), ``fcstream.sinks`` and ``fcstream.probes``. The first three name a
class that is made with an address, in the first two also with the consumer's name; the last one names a `probes.Probe`
for ``fcstream doctor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..formats.decoders import LineDecoder
from ..formats.envelopes import NO_FIELDS, AskedFields, EnvelopeField, OfferedFields
from ..formats.payloads import decoder_for
from ..runtime.interpolation import is_url
from ..runtime.undo import on_error
from .base import Queue, Source, check_queue
from .registry import FILE_SINKS, FILE_SOURCES, FOLDER_SINKS, STANDARD_OUTPUT, find, is_known, known
from .urls import mask, parse, scheme_of

if TYPE_CHECKING:
    from ..formats.batch import Schema
    from ..formats.csv_dialect import CsvDialect
    from .dead_letters import QueuedDeadLetters
    from .files import DeadLetters
    from .sinks import Sink
    from .sources import FileSource


def is_file(url: str) -> bool:
    """Return whether a source URL names files, which end."""
    return url.partition(":")[0] in FILE_SOURCES


def is_live(url: str) -> bool:
    """Return whether a source URL names a broker, which never ends."""
    return not is_file(url) and is_known(url.partition(":")[0], "source", "queue")


def is_queue(url: str) -> bool:
    """Return whether a source URL names a broker that forgets what was acknowledged, so that a spool is needed."""
    return is_known(url.partition(":")[0], "queue")


def is_pipe(url: str) -> bool:
    """Return whether a source URL names standard input of a live stream, whose messages are lines."""
    return url.partition(":")[0] == "stdin"


def check_asked(url: str, schema: Schema) -> Schema:
    """Check that a source's messages have what a schema reads of them besides their bodies.

    Returns
    -------
    Schema
        With what separates the levels of topics there.

    Raises
    ------
    ConfigError
        The error names what such messages have.
    """
    if not schema.asked:
        return schema
    if is_file(url):
        schema.refuse_envelopes("files")
    scheme = url.partition(":")[0]
    found = find(scheme, "source") or find(scheme, "queue")
    offered = OfferedFields() if found is None else found.offered
    for name, place in schema.paths.items():
        if isinstance(place, EnvelopeField) and not offered.has(place.part):
            raise ConfigError(
                f"must be a field of the message, or one of {offered.words()} for this source, got {place.text!r}, "
                "which its messages do not have",
                schema.key_of(name),
            )
    return replace(schema, topic_separator=offered.topic)


def open_live(url: str, name: str, asked: AskedFields = NO_FIELDS) -> Source | Queue:
    """Open a live source by URL; the broker knows this consumer as `name`. A `Queue` needs a spool in front of it.

    Messages get envelopes with what is `asked` for, see `check_asked`.

    Raises
    ------
    ConfigError, SourceError
        Unknown scheme, missing client library (the message names the extra), broker that cannot be reached, connector
        of another package that lacks something.
    """
    scheme = url.partition(":")[0]
    found = find(scheme, "source") or find(scheme, "queue")
    if not found:
        names = ", ".join(known("source", "queue"))
        raise ConfigError(f"must begin with one of {names}", "source.url", got=scheme_of(url))
    opened: Source | Queue = found(replace(parse(url, "source.url"), asked=asked), name)
    if isinstance(opened, Queue):
        with on_error(opened.close):
            check_queue(opened)
    return opened


def message_decoder(url: str, format: str, schema: Schema, options: Mapping[str, Any]) -> LineDecoder:
    """Make the decoder of a live source's messages; one for all, where they may have several formats.

    Raises
    ------
    ConfigError
    """
    found = find(url.partition(":")[0], "queue")
    return (open_decoder if found is None else found.make_decoder)(format, schema, options)


def check_registry(url: str) -> str:
    """Ask a registry of schemas whether it is there; returns what a person should read.

    Raises
    ------
    ConfigError, SchemasUnreachable
    """
    from .schema_registry import SchemaRegistry

    return SchemaRegistry(parse(url, "source.registry")).check()


def open_decoder(format: str, schema: Schema, options: Mapping[str, Any]) -> LineDecoder:
    """Make the decoder of messages of one format; a registry of schemas is asked when the first message needs it.

    Raises
    ------
    ConfigError
    """
    if "registry" in options:
        from .schema_registry import SchemaRegistry

        options = {**options, "registry": SchemaRegistry(parse(options["registry"], "source.registry"))}
    return decoder_for(format, schema, options)


def open_ranges(url: str, name: str) -> Source:
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
            f"{scheme_of(url)!r}, which forgets what was acknowledged",
            "source.url",
            remedy="bridge it into one of those, or run it with the local runner, whose spool keeps its records",
        )
    found = find(scheme, "ranges") or find(scheme, "source")
    if not found:
        raise ConfigError(f"must begin with one of {', '.join(known('source'))}", "source.url", got=scheme_of(url))
    if not found.is_replayable():
        raise ConfigError(
            f"must be a source that can be read from any offset on, {scheme_of(url)!r} is not", "source.url"
        )
    return found(parse(url, "source.url"), name)  # type: ignore[no-any-return]


def open_source(url: str, schema: Schema, dialect: CsvDialect | None = None) -> FileSource:
    """Open a source by URL: ``jsonl:PATH`` or ``csv:PATH``, also ``.gz``, ``arrow:PATH`` or ``parquet:PATH``; ``-`` is
    standard input, except of Parquet. A CSV file is written as its dialect says.

    Raises
    ------
    ConfigError, SourceError
    """
    from . import files

    scheme, path = check_file(url)
    schema.refuse_envelopes("files")
    if scheme in ("arrow", "parquet"):
        from .table_files import TableFile

        return TableFile(path, scheme, schema)
    if scheme == "jsonl":
        return files.LineSource.jsonl(path, schema)
    return files.LineSource.csv(path, schema, dialect)


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
        either = " or ".join(f"'{each}:PATH'" for each in FILE_SOURCES)
        raise ConfigError(
            f"must be {either} (or '-' for standard input), or of a live stream begin with one of {names}",
            "source.url",
            got=mask(url),
        )
    return scheme, path


def open_sink(url: str) -> Sink:
    """Open a sink by URL: a file, a folder of tables, a broker, a database or a web server.

    Files are ``jsonl:PATH``; ``jsonl:-`` and ``influx:-`` (line protocol) are standard output. Folders are
    ``parquet:FOLDER``, and for synthetic rows ``csv-tables:FOLDER``, ``jsonl-tables:FOLDER`` and
    ``parquet-tables:FOLDER``.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    found = check_sink(url)
    scheme, _, path = url.partition(":")
    if found:
        return found(parse(url, "sink.url"))  # type: ignore[no-any-return]
    if path == "-" and scheme in STANDARD_OUTPUT:
        from .pipes.sink import StandardOutput

        return StandardOutput.of(scheme)
    if scheme == "jsonl":
        return files.JsonlSink(path)
    if scheme == "parquet":
        from .parquet_parts import ParquetParts

        return ParquetParts(path)
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
    if path == "-" and scheme in STANDARD_OUTPUT:
        return None
    if scheme in (*FILE_SINKS, *FOLDER_SINKS):
        if path and not is_url(path):
            return None
        raise ConfigError(f"must be '{scheme}:PATH'", "sink.url", got=mask(url))
    found = find(scheme, "sink")
    if found:
        return found
    names = ", ".join(known("sink"))
    raise ConfigError(
        f"must be 'jsonl:PATH' (or 'jsonl:-' or 'influx:-' for standard output), or begin with one of {names}",
        "sink.url",
        got=scheme_of(url),
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
        return files.DeadLetters(path, files.DEAD_LETTER_BYTES if max_bytes is None else max_bytes)
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
        raise ConfigError("must be 'jsonl:PATH'", "dead_letter.url", got=mask(url))
    if scheme == "jsonl" and path and path != "-":
        return None
    found = find(scheme, "sink")
    if found is not None and found.sends_messages():
        return found
    names = ", ".join(each for each in known("sink") if find(each, "sink").sends_messages())
    raise ConfigError(f"must be 'jsonl:PATH', or begin with one of {names}", "dead_letter.url", got=scheme_of(url))
