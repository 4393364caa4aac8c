"""Records that are late for an open window and in time for a later one that shares their pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LateRecords:
    """They wait until the windows they are late for are answered.

    Parameters
    ----------
    dimension : int
    max_size : int, optional
        See `fcstream.releases.record_gate.RecordGate`: of more records than this of one pane for one window nothing
        is kept but how many there are, as every window that could use them is refused.
    """

    def __init__(self, dimension: int, max_size: int | None = None) -> None:
        self._dimension, self._max_size = dimension, max_size
        self._points: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
        self._sizes: dict[tuple[int, int], int] = {}

    def add(self, first: NDArray[np.int64], panes: NDArray[np.int64], points: NDArray[np.float64]) -> None:
        """Keep records: the first window of each (m,), its pane (m,) and its lattice point (m, d)."""
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
        """The panes and points (m, d) that are in time for a window, in order; they are kept no longer.

        Of a pane with too many only the number of points is right.
        """
        due = []
        for window_pane in sorted(window_pane for window_pane in self._sizes if window_pane[0] <= index):
            size, points = self._sizes.pop(window_pane), self._points.pop(window_pane, None)
            due.append(
                (window_pane[1], np.broadcast_to(0.0, (size, self._dimension)) if points is None else np.stack(points))
            )
        return due
