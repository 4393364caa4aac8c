"""The last windows of each series of a stream, as the live page gets them, kept in memory within a limit."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from ...accounting.losses import DELTA_UNIT, RHO_UNIT, PrivacyLoss
from ...ledgers.history import LATELY
from ...releases.base import Release
from .views import UNREADABLE, details_of, names_of, point_of

MAX_WINDOWS = 5000
"""Windows of a series that are kept at most."""
ALL_WINDOWS = 50_000
"""Windows of all series of a stream that are kept at most, but for `LATELY` of each."""
ALL_BYTES = 2**25
"""Bytes of all windows of a stream that are kept at most, likewise."""
_COSTS = 2 * LATELY
_UNCHARGED = ("budget_exhausted", "state_lost")
SeriesName = tuple[str, str | None]
"""The stream (of a key) and the name of the answer."""


class WindowCost(NamedTuple):
    """What one window cost, each answer by its name, less refunds; public."""

    open_ms: int
    close_ms: int
    losses: dict[str | None, PrivacyLoss]
    is_charged: bool


class FreshWindows(NamedTuple):
    """What a reader of a series has not seen.

    Attributes
    ----------
    cursor : str
        What the reader names the next time.
    is_whole : bool
        Whether everything that is kept follows, because the reader has seen nothing of it.
    points : list of bytes
        Points as JSON, in order.
    newest : bytes or None
        Details of the newest window with a value, as JSON.
    """

    cursor: str
    is_whole: bool
    kind: str
    names: list[str]
    points: list[bytes]
    newest: bytes | None


@dataclass(slots=True)
class _KeptSeries:
    kind: str
    number: int
    """Tells apart what is counted from 0 again."""
    points: deque[tuple[int, bytes]]
    names: list[str] = field(default_factory=list)
    added: int = 0
    size: int = 0
    newest: Release | None = None
    details: bytes | None = None

    def put(self, release: Release) -> None:
        if release.value is not None:
            self.names = self.names or names_of(release)
            self.newest, self.details = release, None
        point = msgspec.json.encode(point_of(release, self.names))
        self.points.append((release.window_open_ms, point))
        self.added += 1
        self.size += len(point)

    def trim(self, windows: int, size: int) -> None:
        """Forget the earliest windows beyond either limit, but for the last `LATELY`."""
        while len(self.points) > windows or (self.size > size and len(self.points) > LATELY):
            self.size -= len(self.points.popleft()[1])


class PageHistory:
    """The last windows of one stream, from its ledger and from what was released since.

    One thread writes, another one reads.

    Parameters
    ----------
    epoch : int
        Tells this process from the one before, so that a reader notices a restart.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch, self._numbers = epoch, itertools.count()
        self._lock = threading.Lock()
        self._series: dict[SeriesName, _KeptSeries] = {}
        self._costs: dict[str, deque[WindowCost]] = {}
        self._streams: tuple[str, ...] = ()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._series, self._costs, self._streams = {}, {}, ()

    def keep(self, streams: Iterable[str]) -> None:
        """Forget what is about other streams than these."""
        with self._lock:
            self._streams = tuple(streams)
            own = {*self._streams, *(name for name, _ in self._series if name.endswith("/"))}  # searches for keys
            self._series = {name: kept for name, kept in self._series.items() if name[0] in own}
            self._costs = {name: kept for name, kept in self._costs.items() if name in own}

    @property
    def limit(self) -> int:
        """Number of windows that are kept of each series."""
        return max(LATELY, min(MAX_WINDOWS, ALL_WINDOWS // max(1, len(self._series), len(self._streams))))

    def load(self, stream: str, releases: Iterable[Release]) -> None:
        """Take what a ledger has of one stream, in order, in place of what is known of it."""
        found = _by_series(releases)
        with self._lock:
            if found:
                self._costs.pop(stream, None)
            for name, own in found.items():
                self._begin(name, own)

    def add(self, releases: Iterable[Release]) -> None:
        """Take what was released now; what is known already changes nothing."""
        for name, found in _by_series(releases).items():
            with self._lock:
                kept = self._series.get(name)
                last = None if kept is None or not kept.points else kept.points[-1][0]
                later = [release for release in found if last is None or release.window_open_ms > last]
                if kept is None:
                    self._begin(name, found)
                    continue
                for release in later:
                    kept.put(release)
                    self._note_cost(release)
                self._trim(kept)

    def _begin(self, name: SeriesName, releases: list[Release]) -> None:
        kept = _KeptSeries(releases[0].kind, next(self._numbers), deque())
        self._series[name] = kept
        for release in releases[-self.limit :]:
            kept.put(release)
        for release in releases[-_COSTS:]:
            self._note_cost(release)
        self._trim(kept)

    def _trim(self, kept: _KeptSeries) -> None:
        kept.trim(self.limit, ALL_BYTES // len(self._series))

    def _note_cost(self, release: Release) -> None:
        """Add what a release cost to its window, whose answers come one after the other."""
        costs = self._costs.setdefault(release.stream, deque(maxlen=_COSTS))
        loss = PrivacyLoss(round(release.rho * RHO_UNIT), round(release.delta * DELTA_UNIT))
        window = release.window_open_ms, release.window_close_ms
        is_charged = release.reason not in _UNCHARGED or any(loss.parts)
        for index, known in enumerate(costs):
            if known[:2] == window:
                losses = known.losses | {release.name: loss}
                costs[index] = WindowCost(*window, losses, known.is_charged or is_charged)
                return
        costs.append(WindowCost(*window, {release.name: loss}, is_charged))

    # -- for readers -------------------------------------------------------------------------------------------------

    def names(self) -> dict[SeriesName, str]:
        """Return the kind of each series."""
        with self._lock:
            return {name: kept.kind for name, kept in sorted(self._series.items(), key=_in_order)}

    def costs(self, stream: str) -> list[WindowCost]:
        """Return what the latest windows of a stream cost, in order of opening."""
        with self._lock:
            return sorted(self._costs.get(stream, ()), key=_opening)[-LATELY - 1 :]

    def read(self, name: SeriesName, cursor: str = "") -> FreshWindows | None:
        """Return what follows a cursor; None if there is nothing new, or no such series."""
        with self._lock:
            kept = self._series.get(name)
            if kept is None:
                return None
            mine = f"{self._epoch}.{kept.number}."
            seen = cursor.removeprefix(mine)
            first = kept.added - len(kept.points)
            is_whole = not cursor.startswith(mine) or not seen.isdecimal() or len(seen) > 18
            is_whole = is_whole or not first <= int(seen) <= kept.added
            start = first if is_whole else int(seen)
            if start == kept.added and not is_whole:
                return None
            points = [point for _, point in itertools.islice(kept.points, start - first, None)]
            if kept.newest is not None and kept.details is None:
                kept.details = _encoded(kept.newest)
            return FreshWindows(f"{mine}{kept.added}", is_whole, kept.kind, kept.names, points, kept.details)


def _by_series(releases: Iterable[Release]) -> dict[SeriesName, list[Release]]:
    found: dict[SeriesName, list[Release]] = {}
    for release in releases:
        found.setdefault((release.stream, release.name), []).append(release)
    return found


def _in_order(item: tuple[SeriesName, Any]) -> tuple[str, str]:
    (stream, answer), _ = item
    return stream, answer or ""


def _opening(cost: WindowCost) -> tuple[int, int]:
    return cost.open_ms, cost.close_ms


def _encoded(release: Release) -> bytes | None:
    """Return the details of a release as JSON; None where a kind of another package has a form of its own."""
    try:
        return msgspec.json.encode(details_of(release))
    except UNREADABLE:
        return None
