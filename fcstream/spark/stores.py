"""Counters for an engine whose records tasks have counted."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..config import Job
from ..engine.records import CounterFactory
from ..noise.samplers import Noise
from ..releases.answers import AnswerCounters, Answers, groups_of
from ..releases.base import Counter
from ..releases.record_gate import GatedView
from ..stream.user_groups import UserGroups, WindowUsers

PartWindow = tuple[str, int]
"""Key ("" without keys) and window."""
Fetch = Callable[[list[PartWindow]], Mapping[PartWindow, bytes]]
CHUNK_BYTES = 1 << 28
"""Bytes that are fetched at once."""


class WindowFeed:
    """Counted windows, fetched in the order in which the engine asks for them, some hundred megabytes at a time."""

    def __init__(self) -> None:
        self._sizes: dict[PartWindow, int] = {}
        self._order: list[PartWindow] = []
        self._fetch: Fetch = lambda _: {}
        self._held: dict[PartWindow, bytes] = {}

    def offer(self, sizes: Mapping[PartWindow, int], keys: Iterable[str], fetch: Fetch) -> None:
        """Replace the windows of the former micro-batch by those of the next one.

        Parameters
        ----------
        sizes : mapping of (key, window) to int
            Bytes of each window that has records.
        keys : iterable of str
            Keys in the order in which their windows are released.
        fetch : callable
            Fetches some of the windows.
        """
        rank = {key: i for i, key in enumerate(keys)}
        # some keys may no longer be declared
        self._sizes = {window: size for window, size in sizes.items() if window[0] in rank}
        self._order = sorted(self._sizes, key=lambda window: (rank[window[0]], window[1]))
        self._fetch, self._held = fetch, {}

    @property
    def windows(self) -> list[PartWindow]:
        """The windows it holds, in order."""
        return self._order

    def get(self, window: PartWindow) -> Any:
        """Return what tasks have counted of a window: a pair of its kind and the thing itself; None if it has no
        records.
        """
        if window not in self._sizes:
            return None
        if window not in self._held:
            wanted: list[PartWindow] = []
            size = 0
            for each in self._order[self._order.index(window) :]:
                size += self._sizes[each]
                if wanted and size > CHUNK_BYTES:
                    break
                wanted.append(each)
            self._held = {}  # what was fetched before has been released
            self._held = dict(self._fetch(wanted))
        return pickle.loads(self._held[window])  # made by this stream's own tasks


class TaskCounts:
    """A `Counter` that shows what tasks have counted. Points of users are added here, once it is known who takes part.

    Parameters
    ----------
    job : Job
        Job of one key, or of a stream without keys.
    own : Counter
        Counter for windows without records, and for users.
    feed : WindowFeed
    split : callable, optional
        Counts the friends of points (n, d) that tasks have left alone, in their order.
    """

    def __init__(
        self, job: Job, own: Counter, feed: WindowFeed, split: Callable[[NDArray[np.float64]], Any] | None = None
    ) -> None:
        self._job, self._own, self._feed, self._split = job, own, feed, split

    @property
    def panes(self) -> list[int]:
        return self._own.panes

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        self._own.add(pane, points)

    def add_to(self, group: int, pane: int, points: NDArray[np.float64]) -> None:
        cast("AnswerCounters", self._own).add_to(group, pane, points)

    def drop(self, pane: int) -> None:
        self._own.drop(pane)

    def view(self, panes: Iterable[int]) -> Any:
        wanted = list(panes)
        if self._job.terms.unit == "user":
            return self._own.view(wanted)
        schedule = self._job.schedule
        window = schedule.index_after(schedule.pane_open_ms(wanted[0])) - 1
        found = self._feed.get((self._job.key or "", window))
        if found is None:
            return self._own.view(wanted)
        kind, counted = found
        if kind == "view":
            return counted
        assert self._split is not None
        return gated(self._job, len(counted), self._split(counted))


def gated(job: Job, size: int, view: Any) -> Any:
    """Return what the release of a job reads of so many records."""
    return view if job.gate is None else GatedView(size, view)


class TaskUsers(UserGroups):
    """Users of closing windows, with one point each, as tasks have computed them."""

    def __init__(self, job: Job, feed: WindowFeed) -> None:
        super().__init__(job.width, groups_of(job.answers))
        self._key, self._feed = job.key or "", feed

    def read(self, window: int, secret: bytes) -> WindowUsers:
        found = self._feed.get((self._key, window))
        if found is not None:
            self.enter(window, found[1])
        return super().read(window, secret)


def stores(feed: WindowFeed, split: Callable[[Job, NDArray[np.float64]], Any] | None = None) -> CounterFactory:
    """Make the counters of an engine whose windows are counted by tasks."""

    def make(job: Job, answers: Answers, noise: Noise) -> tuple[Counter, UserGroups | None]:
        own = answers.counter(job.grid.dimension, job.schedule.reach, noise)
        counts = TaskCounts(job, own, feed, None if split is None else lambda points: split(job, points))
        return counts, TaskUsers(job, feed) if job.terms.unit == "user" else None

    return make
