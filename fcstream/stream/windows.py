"""Half-open windows ``[open, close)`` on a public schedule, their panes, and which windows a record may still enter.

All times are integer milliseconds. Everything is a function of public facts and of one record's own timestamps: no
record can make another one late, or open or close a window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, Shown


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a schedule: ``[open_ms, close_ms)``."""

    index: int
    open_ms: int
    close_ms: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows ``[start + k * slide, start + k * slide + length)`` for k = 0, 1, 2, ... (specification 8.3).

    Parameters
    ----------
    start_ms : int
        Opening of the first window, Unix milliseconds.
    length_ms, slide_ms : int
        ``1 <= slide_ms <= length_ms``; equal for tumbling windows.
    lateness_ms : int
        How long after its close a window waits for records.
    end_ms : int, optional
        The last window closes at or before it.

    Raises
    ------
    ConfigError
        A length out of range, or a schedule without a window.
    """

    start_ms: int
    length_ms: int
    slide_ms: int
    lateness_ms: int = 0
    end_ms: int | None = None
    pane_ms: int = field(init=False, repr=False, compare=False)
    """Width of a pane: the greatest common divisor of length and slide."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pane_ms", math.gcd(self.length_ms, self.slide_ms))
        if self.length_ms < 1:
            raise ConfigError("must be at least 1 ms", "window.length", got=self.length_ms)
        if not 1 <= self.slide_ms <= self.length_ms:
            raise ConfigError(
                f"must be in [1 ms, window.length = {self.length_ms} ms], got {self.slide_ms} ms: windows would leave "
                "gaps",
                "window.slide",
            )
        if self.lateness_ms < 0:
            raise ConfigError("must not be negative", "window.lateness", got=Shown(f"{self.lateness_ms} ms"))
        if self.end_ms is not None and self.end_ms - self.start_ms < self.length_ms:
            raise ConfigError("must leave room for at least one window after `start`", "window.end")
        if self.reach > 10_000:
            raise ConfigError(
                f"must share a larger divisor with window.length: a window would have {self.reach} panes",
                "window.slide",
            )

    @property
    def reach(self) -> int:
        """Number of panes in a window."""
        return self.length_ms // self.pane_ms

    @property
    def overlap(self) -> int:
        """Largest number of windows that one record can be in."""
        return -(-self.length_ms // self.slide_ms)

    @property
    def count(self) -> int | None:
        """Number of windows; None if the schedule has no end."""
        if self.end_ms is None:
            return None
        return (self.end_ms - self.start_ms - self.length_ms) // self.slide_ms + 1

    def window(self, index: int) -> Window:
        opens = self.start_ms + index * self.slide_ms
        return Window(index, opens, opens + self.length_ms)

    def panes(self, window: Window) -> range:
        """Return the panes of a window, numbered from the schedule's start."""
        first = (window.open_ms - self.start_ms) // self.pane_ms
        return range(first, first + self.reach)

    def pane_open_ms(self, pane: int) -> int:
        return self.start_ms + pane * self.pane_ms

    def index_after(self, open_ms: int) -> int:
        """Return the index of the first window that opens after `open_ms`."""
        return (open_ms - self.start_ms) // self.slide_ms + 1

    def due(self, now_ms: int) -> int:
        """Return how many windows are due at the public time `now_ms`: their close + lateness is before it."""
        over = -(-(now_ms - self.start_ms - self.length_ms - self.lateness_ms) // self.slide_ms)
        over = max(over, 0)
        return over if self.count is None else min(over, self.count)

    def first_open(self, now_ms: int) -> int:
        """Return the index of the first window that closes after `now_ms` (the number of windows if none does)."""
        index = max(0, (now_ms - self.start_ms - self.length_ms) // self.slide_ms + 1)
        return index if self.count is None else min(index, self.count)

    def last_window_of_pane(self, pane: int) -> int:
        """Return the index of the last window that covers a pane; the schedule may end before it."""
        return pane * self.pane_ms // self.slide_ms

    def locate(self, times_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return pane, first and last window index of each event time; first > last if no window contains it."""
        pane_ms, slide = self.pane_ms, self.slide_ms
        panes = (times_ms - self.start_ms) // pane_ms
        last = panes * pane_ms // slide
        first = -((self.length_ms - (panes + 1) * pane_ms) // slide)
        first = np.maximum(first, 0)
        if self.count is not None:
            last = np.minimum(last, self.count - 1)
        return panes, first, last

    def first_not_late(self, arrivals_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first window index for which each arrival is not late: arrival <= close + lateness."""
        return -((self.start_ms + self.length_ms + self.lateness_ms - arrivals_ms) // self.slide_ms)


def group_by_pane(panes: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64] | slice]]:
    """Group rows by pane, in arrival order; a group is a slice if its rows are adjacent."""
    if len(panes) == 0:
        return []
    cuts = np.flatnonzero(panes[1:] != panes[:-1]) + 1
    starts = [0, *cuts.tolist()]
    ends = [*cuts.tolist(), len(panes)]
    names = panes[starts].tolist()
    if len(set(names)) == len(names):
        return [(name, slice(a, b)) for name, a, b in zip(names, starts, ends, strict=True)]
    order = np.argsort(panes, kind="stable")
    ordered = panes[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return [(int(panes[rows[0]]), rows) for rows in np.split(order, cuts)]
