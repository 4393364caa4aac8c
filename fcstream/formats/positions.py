"""The positions of records that were seen before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SeenPositions:
    """The set of source positions that were seen, stored as runs: consecutive positions take no further memory."""

    def __init__(self) -> None:
        self._starts = np.empty(0, np.int64)
        self._ends = np.empty(0, np.int64)  # inclusive

    def fresh(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which positions are new: not seen before, and the first among equal ones."""
        order = np.argsort(positions, kind="stable")
        ordered = positions[order]
        new = np.ones(len(ordered), np.bool_)
        new[1:] = ordered[1:] != ordered[:-1]
        run = np.searchsorted(self._starts, ordered, "right") - 1
        if len(self._starts):
            new &= (run < 0) | (ordered > self._ends[run])
        fresh = np.empty(len(ordered), np.bool_)
        fresh[order] = new
        return fresh

    def add(self, positions: NDArray[np.int64]) -> None:
        """Count these positions as seen from now on."""
        points = np.unique(positions[self.fresh(positions)])
        starts = np.concatenate([self._starts, points])
        ends = np.concatenate([self._ends, points])
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        if len(starts) == 0:
            return
        begins = np.ones(len(starts), np.bool_)
        begins[1:] = starts[1:] > ends[:-1] + 1
        self._starts = starts[begins]
        self._ends = ends[np.append(np.flatnonzero(begins)[1:] - 1, len(ends) - 1)]
