"""Checks the first lines of a source before anything is spent: can a configuration use any of them?"""

from __future__ import annotations

from contextlib import closing

from ..config import Config, Job, SourceSection
from ..connectors import is_live, is_pipe, open_source
from ..connectors.sources import FileSource
from ..engine.first_records import LINES, InputCheck, count_usable, settings_of
from ..errors import ConfigError
from ..formats.batch import Batch
from ..formats.registry import FORMATS


def check_pipe(source: SourceSection) -> None:
    """Refuse a format whose messages do not fit on lines, where the source is a pipe.

    Raises
    ------
    ConfigError
    """
    if is_pipe(source.url) and not FORMATS[source.format].is_line:
        known = ", ".join(repr(name) for name, each in FORMATS.items() if each.is_line)
        raise ConfigError(
            f"must be one of {known} for this source, whose messages are lines", "source.format", got=source.format
        )


def check_lines(config: Config, lines: int = LINES) -> InputCheck:
    """Check the first lines of a configuration's file; nothing is charged, released or written.

    Raises
    ------
    ConfigError
        The source is missing, or not a file.
    SourceError
    """
    if config.source is None:
        raise ConfigError("is required, in the file or as --source", "source.url")
    if is_live(config.source.url):
        raise ConfigError(
            "must be a file's: a live stream says by itself (/ready, log) what it cannot use", "source.url"
        )
    opened = open_source(config.source.url, config.job.schema, config.source.csv_dialect())
    with closing(SampledSource(opened)) as source:
        return source.sample(config.job, lines)


class SampledSource(FileSource):
    """A source whose first lines are checked before it is read."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._waiting: list[Batch] = []

    def sample(self, job: Job, lines: int = LINES) -> InputCheck:
        """Check the first lines; they are polled again afterwards."""
        found = InputCheck(settings=settings_of(job))
        while found.lines < lines and (batch := self._source.poll(lines - found.lines)) is not None:
            self._waiting.append(batch)
            count_usable(job, batch, found)
        return found

    def poll(self, max_records: int) -> Batch | None:
        return self._waiting.pop(0) if self._waiting else self._source.poll(max_records)

    def part_read(self) -> float | None:
        return self._source.part_read()

    def close(self) -> None:
        self._source.close()
