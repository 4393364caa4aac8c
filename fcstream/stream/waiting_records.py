"""Keeps records that are late for an open window but in time for a later one that shares their pane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..formats.plain_columns import as_objects

NO_TEXTS: Mapping[str, NDArray[np.object_]] = {}


class LateInPane(NamedTuple):
    """Records of one pane that are in time for a window: lattice points (m, d), and texts (m,) by feature."""

    pane: int
    points: NDArray[np.float64]
    texts: dict[str, NDArray[np.object_]]


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
        self._rows: dict[tuple[int, int], list[tuple[NDArray[np.float64], tuple[str, ...]]]] = {}
        self._names: tuple[str, ...] = ()
        self._sizes: dict[tuple[int, int], int] = {}

    def add(
        self,
        first: NDArray[np.int64],
        panes: NDArray[np.int64],
        points: NDArray[np.float64],
        texts: Mapping[str, NDArray[np.object_]] = NO_TEXTS,
    ) -> None:
        """Add records: the first window that each may enter (m,), its pane (m,), its lattice point (m, d) and texts."""
        self._names = tuple(texts)
        for i, window_pane in enumerate(zip(first.tolist(), panes.tolist(), strict=True)):
            size = self._sizes[window_pane] = self._sizes.get(window_pane, 0) + 1
            if self._max_size is not None and size > self._max_size:
                self._rows.pop(window_pane, None)
            else:
                row = points[i].copy(), tuple(column[i] for column in texts.values())
                self._rows.setdefault(window_pane, []).append(row)

    @property
    def is_empty(self) -> bool:
        """Whether no record waits."""
        return not self._sizes

    def take(self, index: int) -> list[LateInPane]:
        """Remove and return the records that are in time for a window, in the order of panes.

        If a pane had too many records, only the number of its points is meaningful, not their coordinates.
        """
        due = []
        for window_pane in sorted(window_pane for window_pane in self._sizes if window_pane[0] <= index):
            size, rows = self._sizes.pop(window_pane), self._rows.pop(window_pane, None)
            if rows is None:
                due.append(LateInPane(window_pane[1], np.broadcast_to(0.0, (size, self._dimension)), {}))
                continue
            texts = {name: as_objects([own[k] for _, own in rows]) for k, name in enumerate(self._names)}
            due.append(LateInPane(window_pane[1], np.stack([point for point, _ in rows]), texts))
        return due
