"""Rows of an array as lattice points, which are made some at a time and never kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..stream.lattice import Grid

_LANES = 32
_TILES = 16  # at a time: they stay in the processor's caches


def rows_inside(rows: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    """Return the rows (n, d) whose lattice numbers are within the public ranges; the array itself if all are.

    The grid has no transforms and no factors.

    Privacy
    -------
    Each row is judged by itself.

    Source
    ------
    Specification 2.1.
    """
    from .._kernels import rows as kernels

    rows = np.require(grid.all_doubles(rows), np.float64, ("C", "W"))  # compiled code has a version for each kind
    inside = np.empty(len(rows), np.bool_)
    marked = kernels.mark_rows_inside(rows, *_shifts(grid), grid.lattice.step, grid.lowest, grid.highest, inside)
    return rows if marked == len(rows) else rows[inside]


def points_inside(rows: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    """Return the lattice points (m, d) of the rows (n, d) that are within the public ranges.

    Privacy
    -------
    Each row is judged by itself.

    Source
    ------
    Specification 2.1.
    """
    from .._kernels import rows as kernels

    with np.errstate(over="ignore", invalid="ignore"):
        points = grid.points(grid.all_doubles(rows))
    inside = np.empty(len(points), np.bool_)
    marked = kernels.mark_inside(points, grid.lowest, grid.highest, inside)
    return points if marked == len(points) else points[inside]


def _shifts(grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the origins and the scales (d,) of all features."""
    origins = np.array([feature.origin for feature in grid.features], np.float64)
    return origins, np.array([feature.scale for feature in grid.features], np.float64)


class RowsView:
    """A window of all rows of an array, for mechanisms that read points some at a time.

    Parameters
    ----------
    rows : float64 (n, d)
        What `rows_inside` returned.
    grid : Grid
        Without transforms and factors.

    Privacy
    -------
    NOT private: what a mechanism reads. Points are those of `Grid.points`.

    Source
    ------
    Specification 2.1.
    """

    def __init__(self, rows: NDArray[np.float64], grid: Grid) -> None:
        self._rows = rows
        self._grid = grid

    @property
    def size(self) -> int:
        return len(self._rows)

    @property
    def dimension(self) -> int:
        return self._grid.dimension

    def in_tiles(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Yield tiles (t, d, LANES), in memory that the next step uses again, and their lanes that hold points."""
        from .._kernels import rows as kernels

        origins, scales = _shifts(self._grid)
        tiles, lanes = np.empty((_TILES, self.dimension, _LANES)), np.arange(_TILES * _LANES)
        for first in range(0, len(self._rows), _TILES * _LANES):
            part = self._rows[first : first + _TILES * _LANES]
            some = tiles[: -(-len(part) // _LANES)]
            kernels.encode(part, origins, scales, self._grid.lattice.step, some)
            yield some, lanes[: len(part)]

    def points_at(self, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        """Copy the points (m, d) of some rows, by their numbers (m,)."""
        return self._grid.points(self._rows[wanted])
