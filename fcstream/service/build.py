"""Builds the supervisor of a configuration, and opens the ledger, source, sink and dead letters that it names."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..config import Config, DeadLetterSection, SourceSection
from ..config.durations import duration_ms
from ..connectors import check_asked, is_queue, message_decoder, open_dead_letter, open_live, open_sink
from ..connectors.base import (
    ImpatientQueue,
    PushQueue,
    Queue,
    Source,
    shortened,
)
from ..connectors.dead_letters import QueuedDeadLetters
from ..connectors.files import DeadLetters
from ..connectors.partitioners import partition_of
from ..connectors.quarantine import Quarantine
from ..connectors.retry import close_quietly
from ..connectors.sinks import Sink
from ..engine.engine import Engine
from ..engine.keyed import KeyedEngine
from ..engine.opening import open_engine
from ..errors import ConfigError
from ..formats.batch import Rejection
from ..formats.envelopes import NO_FIELDS, AskedFields
from ..runtime.undo import on_error
from ..runtime.wall_clock import ClockNotes, WallClock
from .checking import check_pipe
from .context import SessionContext
from .leases import Lease, SessionLeases
from .reload import ActiveConfig
from .supervisor import Supervisor, now_ms


def build(config: Config, active: ActiveConfig | None = None) -> Supervisor:
    """Build the supervisor of a live stream. Of all that the configuration names, only the dead letters are opened yet.

    Parameters
    ----------
    config : Config
    active : ActiveConfig, optional
        Holds the configuration that each new session uses; by default always `config`.

    Raises
    ------
    ConfigError
        The configuration is not one of a live stream.
    """
    active = active or ActiveConfig(config)
    openers = StreamOpeners(config, active)
    partitioner = openers.partitioner
    supervisor = Supervisor(
        openers.engine,
        openers.source,
        openers.sink,
        SessionContext(
            openers.decoder,
            now_ms if openers.wall is None else openers.wall.now_ms,
            None if partitioner is None else partial(partition_of, partitioner),
            quarantine=Quarantine(quarantine_prefix(config)),
            wall=openers.wall,
        ),
        config.job.keys,
        openers.lease,
    )
    supervisor.lost_dead_letters = lambda: openers.dead_letters.lost
    supervisor.confirm, supervisor.undo = active.confirm, active.undo
    return supervisor


class StreamOpeners:
    """Opens what a session of one stream works with, by the configuration that is active then.

    Parameters
    ----------
    config : Config
        The first one.
    active : ActiveConfig

    Attributes
    ----------
    dead_letters : DeadLetterWriter
    decoder : LineDecoder
        Reads the source's messages.
    schema : Schema
        What is read of them.
    partitioner : str or None
        Finds the partition of a key, where several processes share the keys of the stream.
    wall : WallClock or None
        Tells the time, where this machine's clock does.
    lease : callable or None
        Opens the lease that a process must hold, where several could answer the whole stream.

    Raises
    ------
    ConfigError
        The configuration is not one of a live stream.
    """

    def __init__(self, config: Config, active: ActiveConfig) -> None:
        if config.source is None or config.sink is None or config.ledger is None:
            missing = next(name for name in ("source", "sink", "ledger") if getattr(config, name) is None)
            raise ConfigError("is required for a live stream", f"{missing}.url")
        _downtime_ms(config.source)
        check_pipe(config.source)
        self.schema = check_asked(config.source.url, config.job.schema)
        self._active = active
        self._name = config.stream.name
        source = config.source
        self.decoder = message_decoder(source.url, source.format, self.schema, source.format_options())
        self.partitioner = source.partitioner
        self.dead_letters = DeadLetterWriter()
        self.dead_letters.follow(config)
        self._leases = SessionLeases(config.ledger.url, config.stream.name)
        if self.partitioner is not None and not self._leases.is_shared:
            raise ConfigError(
                "must be left out with this ledger: several processes share one in PostgreSQL only",
                "source.partitioner",
            )
        self.wall = wall_clock(config)
        is_alone = not self._leases.is_shared or self.partitioner is not None
        self.lease: Callable[[], Lease] | None = None if is_alone else self._leases.open

    def engine(self, keys: Collection[str] | None) -> Engine | KeyedEngine:
        """Open the engine of the stream, or of some of its keys."""
        return self._active.engine(partial(self._open_engine, keys=keys))

    def source(self) -> Source:
        """Open the source."""
        return self._active.open(self._open_source, "source")

    def sink(self) -> Sink:
        """Open the sink."""
        return self._active.open(_open_sink, "sink")

    def _open_engine(self, config: Config, keys: Collection[str] | None) -> Engine | KeyedEngine:
        self.dead_letters.follow(config)
        on_rejection = self.dead_letters.write if config.dead_letter else None
        return open_engine(self._leases.bind(config), keys=keys, on_rejection=on_rejection, clock=self.wall)

    def _open_source(self, config: Config) -> Source:
        source = config.source
        assert source is not None
        found = open_live(source.url, source.name or f"fcstream-{self._name}", self.schema.asked)
        if self.partitioner is not None and not found.is_grouped:
            close_quietly(found.close)
            raise ConfigError(
                "must be left out for this source: its consumers do not divide partitions among them",
                "source.partitioner",
            )
        if isinstance(found, Source):
            return found
        found.expect(self.decoder)
        return _spooled(found, source, self.schema.asked, self.wall)


def _open_sink(config: Config) -> Sink:
    assert config.sink is not None
    return open_sink(config.sink.url)


def quarantine_prefix(config: Config) -> str | None:
    """Return how the paths of a stream's `Quarantine` begin; None if nothing names a place for them."""
    source, ledger = config.source, config.ledger
    assert source is not None
    assert ledger is not None
    if is_queue(source.url) and source.spool is not None:
        return os.path.join(source.spool, "")
    scheme, _, location = ledger.url.partition(":")
    name = shortened(quote(config.stream.name, safe=""), 64)
    if source.quarantine is not None:
        return os.path.join(source.quarantine, f"{name}-")
    return f"{os.path.realpath(location)}-{name}-" if scheme == "sqlite" else None


class DeadLetterWriter:
    """Writes rejections to the dead letters that the configuration names; opens new ones when it names others."""

    def __init__(self) -> None:
        self._section: DeadLetterSection | None = None
        self._file: DeadLetters | QueuedDeadLetters | None = None
        self._lost = 0

    @property
    def lost(self) -> int:
        """Number of rejections that could not be written anywhere; exact, not private."""
        return self._lost + (0 if self._file is None else self._file.lost)

    def follow(self, config: Config) -> None:
        section = config.dead_letter
        # A file that the URL names may hold another password now.
        if section != self._section or (section is not None and "${file:" in section.url):
            fresh = None if section is None else open_dead_letter(section.url, section.max_bytes)
            if self._file is not None:
                self._file.close()
                self._lost += self._file.lost
            self._section, self._file = section, fresh

    def write(self, rejections: Sequence[Rejection]) -> None:
        if self._file is not None:
            self._file.write(rejections)


def _downtime_ms(source: SourceSection) -> int:
    downtime_ms = duration_ms(source.downtime, "source.downtime")
    if downtime_ms and not is_queue(source.url):
        raise ConfigError("must be left out for this source: its broker stamps messages", "source.downtime")
    return downtime_ms


def wall_clock(config: Config) -> WallClock | None:
    """Return the clock of a stream whose records wait in a spool; those of other sources have times of their broker."""
    source = config.source
    if source is None or source.spool is None or not is_queue(source.url):
        return None
    return WallClock(
        config.stream.name,
        config.job.schedule.lateness_ms,
        "call `fcstream clock accept` with this configuration",
        ClockNotes(Path(source.spool)),
    )


def _spooled(
    queue: Queue, source: SourceSection, asked: AskedFields = NO_FIELDS, wall: WallClock | None = None
) -> Source:
    if source.spool is None:
        queue.close()
        raise ConfigError(
            "is required for this source: its broker or its senders forget what is acknowledged, so records wait in a "
            "local folder until their windows are sealed",
            "source.spool",
        )
    from ..connectors.pushed import PushedSource, SharedSpool
    from ..connectors.received import ReceivedSource
    from ..connectors.spool import Spool
    from ..connectors.spooled import SpooledSource

    with on_error(queue.close):  # it may hold messages that other consumers could get
        clocks: dict[str, Any] = {} if wall is None else {"clock": wall.now_ms, "bounds": wall.bounds_ms}
        if isinstance(queue, (PushQueue, ImpatientQueue)):
            shared = SharedSpool(Path(source.spool), source.spool_bytes, **clocks)
            with on_error(shared.close):
                if isinstance(queue, PushQueue):
                    return PushedSource(queue, shared, _downtime_ms(source), asked)
                return ReceivedSource(queue, shared, _downtime_ms(source), asked)
        spool = Spool(Path(source.spool), source.spool_bytes, **clocks)
        return SpooledSource(queue, spool, _downtime_ms(source), asked)
