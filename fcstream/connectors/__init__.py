"""One file per outside system, found by URL scheme. The engine never imports this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..records import Schema
    from ..sinks import Sink
    from ..sources import Source
    from .files import DeadLetters


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
    """A sink by URL: ``jsonl:PATH``; ``-`` is standard output.

    Raises
    ------
    ConfigError, SinkError
    """
    from . import files

    scheme, _, place = url.partition(":")
    if scheme == "jsonl" and place:
        return files.StandardOutput() if place == "-" else files.JsonlSink(place)
    raise ConfigError(f"must be 'jsonl:PATH' (or 'jsonl:-' for standard output), got {url!r}", "sink.url")


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
