"""What outlives a session of a live stream: counters, health, and the events that end a session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ..connectors.quarantine import Quarantine
from ..engine.engine import Engine
from ..engine.keyed import KeyedEngine
from ..formats.decoders import LineDecoder
from ..releases.base import Release
from ..runtime.compile_cache import compiled
from ..runtime.wall_clock import WallClock
from .gaps import IncompleteWindows
from .health import Health


@dataclass(slots=True)
class Counters:
    """What a service has done since it started.

    Numbers of messages and records, and the size of the spool, are exact, so not private; how often the alarm of late
    records went off is noisy. `due_ms` is when the next window is due, and `excused_ms` when it last
    had to wait as it is meant to: for kernels, a clock or messages of a pause.
    """

    messages: int = 0
    records: int = 0
    seen: int = 0
    duplicates: int = 0
    answers: dict[tuple[str | None, str | None], int] = field(default_factory=dict)
    """Number of releases by the answer's name and the reason of a refusal; None for no name, and for a value."""
    windows: int = 0
    """Number of windows with releases, of every key by itself; each may have several answers."""
    restarts: int = 0
    newest: dict[tuple[str, str | None], Release] = field(default_factory=dict)
    """The release about the latest window, by stream and answer."""
    last_close_ms: int | None = None
    due_ms: int | None = None
    excused_ms: int = 0
    spool_bytes: int | None = None
    late_alarms: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    bodies_refused: dict[str, int] = field(default_factory=dict)
    """Number of bodies that a receiver refused, by reason; exact, so not private."""
    listeners: list[Callable[[list[Release]], object]] = field(default_factory=list)
    """Called with the releases that the sink has, on the thread of the stream."""

    @property
    def released(self) -> int:
        """Number of releases with a value."""
        return sum(number for (_, reason), number in self.answers.items() if reason is None)

    @property
    def refused(self) -> dict[str, int]:
        """Number of refusals by reason."""
        found: dict[str, int] = {}
        for (_, reason), number in self.answers.items():
            if reason is not None:
                found[reason] = found.get(reason, 0) + number
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers for programs."""
        left_out = ("answers", "newest", "listeners", "excused_ms")
        numbers = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in left_out}
        return numbers | {"released": self.released, "refused": self.refused}

    def add(self, releases: list[Release]) -> None:
        for release in releases:
            found = release.name, release.reason
            self.answers[found] = self.answers.get(found, 0) + 1
            self.windows += not release.place  # the first answer, or the only one
            self.newest[release.stream, release.name] = release
            self.last_close_ms = max(self.last_close_ms or 0, release.window_close_ms)
        for listener in self.listeners:
            listener(releases)

    def update_from(self, engine: Engine | KeyedEngine) -> None:
        """Read from the ledger which windows have a release."""
        schedule = engine.job.schedule
        following = schedule.index_after(engine.next_open_ms) - 1
        is_over = schedule.count is not None and following >= schedule.count
        self.due_ms = None if is_over else schedule.window(following).close_ms + schedule.lateness_ms
        self.last_close_ms = schedule.window(following - 1).close_ms if following > 0 else None


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What outlives a session.

    Attributes
    ----------
    decoder : LineDecoder
    clock : callable
        Public time in Unix milliseconds.
    partition_of : callable or None
        For streams whose keys several processes share: (key, number of partitions) -> the partition of the key.
    counters : Counters
    stopping : threading.Event
    ending : threading.Event
        Set when the session is to end, because the service stops or another session is to begin.
    health : Health
    gaps : IncompleteWindows
    quarantine : Quarantine
    wall : WallClock or None
        Behind `clock`, where this machine's clock closes windows.
    """

    decoder: LineDecoder
    clock: Callable[[], int]
    partition_of: Callable[[str, int], int] | None = None
    counters: Counters = field(default_factory=Counters)
    stopping: threading.Event = field(default_factory=threading.Event)
    ending: threading.Event = field(default_factory=threading.Event)
    health: Health = field(default_factory=Health)
    gaps: IncompleteWindows = field(default_factory=IncompleteWindows)
    quarantine: Quarantine = field(default_factory=Quarantine)
    wall: WallClock | None = None

    @property
    def waits_for(self) -> str | None:
        """Why nothing is read and no window closed, and what to do; None if both may be done."""
        if not compiled.is_set():
            return "what windows need is compiled: none is closed before that is done, and what comes is kept"
        return None if self.wall is None else self.wall.hold

    @property
    def is_waiting(self) -> bool:
        """Whether nothing may be read and no window closed."""
        return self.waits_for is not None
