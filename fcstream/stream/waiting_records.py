"""Keeps records that are late for an open window but in time for a later one that shares their pane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class LateRecords:
    """Holds such records until the windows that they are late for are released.

    Parameters
    ----------
    dimension : int
    max_size : int, optional
        H of `fcstream.releases.record_gate.RecordGate`: if more records than this wait in one pane for one window, only
        their number is kept, since every window that could use them will be refused.
    """

    def __init__(self, dimension: int, max_size: int | None = None) -> None:
        self._dimension, self._max_size = dimension, max_size
        self._points: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
        self._sizes: dict[tuple[int, int], int] = {}

    def add(self, first: NDArray[np.int64], panes: NDArray[np.int64], points: NDArray[np.float64]) -> None:
        """Add records: the first window that each may enter (m,), its pane (m,) and its lattice point (m, d)."""
        for i, window_pane in enumerate(zip(first.tolist(), panes.tolist(), strict=True)):
            size = self._sizes[window_pane] = self._sizes.get(window_pane, 0) + 1
            if self._max_size is not None and size > self._max_size:
                self._points.pop(window_pane, None)
            else:
                self._points.setdefault(window_pane, []).append(points[i].copy())

    @property
    def is_empty(self) -> bool:
        """Whether no record waits."""
        return not self._sizes

    def take(self, index: int) -> list[tuple[int, NDArray[np.float64]]]:
        """Remove and return the records that are in time for a window: panes and their points (m, d), in order.

        If a pane had too many records, only the number of its points is meaningful, not their coordinates.
        """
        due = []
        for window_pane in sorted(window_pane for window_pane in self._sizes if window_pane[0] <= index):
            size, points = self._sizes.pop(window_pane), self._points.pop(window_pane, None)
            due.append(
                (window_pane[1], np.broadcast_to(0.0, (size, self._dimension)) if points is None else np.stack(points))
            )
        return due
