"""Views of closing windows, as mechanisms read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .tiles import LANES

MAX_POINTS = 2**31 - 1
"""Largest number of points of one pane, because the counts of one pane with another are 32-bit integers."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected points of a window, as kernels read them: read only, valid until the next `add` or `drop`.

    Attributes
    ----------
    parts : tuple of (float64 (t, d, LANES), bool (t * LANES,))
        Tiles, and a mask that says which of their lanes are selected.
    size : int
        The number of selected points; private.
    dimension : int
    """

    parts: tuple[tuple[NDArray[np.float64], NDArray[np.bool_]], ...]
    size: int
    dimension: int


@dataclass(frozen=True, slots=True)
class WindowView:
    """View of a closing window, as a mechanism reads it (specification 3.1).

    Read only, and valid until the next `add` or `drop`.

    Attributes
    ----------
    tiles : tuple of float64 (t, d, LANES)
        Integer coordinates; unused lanes hold +inf.
    lanes : tuple of int64 (n_i,)
        Lanes of each tile array that hold points, ascending.
    counts : int64 (n,)
        Friend count of every point within the window, in the order of the lanes; empty if there is no radius.
    arrivals : tuple of int32 or int64 (t * LANES,)
        The arrival number of each lane's point, counted from 0, pane by pane; () if the order is not known.
    dimension : int
    scores : int64 (n,) or None
        What a sampled counter gives in place of counts: for every point, 1 + the number of friends - the number of
        others among its sampled partners.
    sampling : (str, Fraction) or None
        How partners were sampled (``blocks`` or ``hidden``), and at which rate.
    is_in_order : bool
        Whether lanes, without a gap, are known to be in the order of arrival.
    """

    tiles: tuple[NDArray[np.float64], ...]
    lanes: tuple[NDArray[np.int64], ...]
    counts: NDArray[np.int64]
    arrivals: tuple[NDArray[np.int32] | NDArray[np.int64], ...]
    dimension: int
    scores: NDArray[np.int64] | None = None
    sampling: tuple[str, Fraction] | None = None
    is_in_order: bool = False

    def __repr__(self) -> str:
        return f"<WindowView of points with {self.dimension} coordinates>"  # points and counts are private

    @property
    def size(self) -> int:
        return sum(map(len, self.lanes))

    def select(self, mask: NDArray[np.bool_]) -> Selection:
        """Select the points whose entry is true in a mask (n,), which is in the order of `counts`."""
        size = int(np.count_nonzero(mask))
        if self.is_in_order:
            (tiles,) = self.tiles
            inside = np.zeros(len(tiles) * LANES, np.bool_)
            inside[: len(mask)] = mask
            return Selection(((tiles, inside),), size, self.dimension)
        parts, start = [], 0
        for tiles, lanes in zip(self.tiles, self.lanes, strict=True):
            inside = np.zeros(len(tiles) * LANES, np.bool_)
            inside[lanes] = mask[start : start + len(lanes)]
            start += len(lanes)
            parts.append((tiles, inside))
        return Selection(tuple(parts), size, self.dimension)

    def arrival_order(self) -> NDArray[np.int64] | None:
        """Return the arrival number, from 0, of the point of each count (n,).

        Unlike the order of the lanes it does not depend on how points were batched. None for sampled counts, since two
        counters draw different coins anyway.
        """
        if self.scores is not None or len(self.arrivals) != len(self.tiles):
            return None
        order, start = np.empty(self.size, np.int64), 0
        for arrivals, lanes in zip(self.arrivals, self.lanes, strict=True):
            order[start : start + len(lanes)] = arrivals[lanes]
            start += len(lanes)
        return order

    def in_order(self) -> NDArray[np.int64]:
        """Return the counts in the order in which the points arrived."""
        arrival_order = self.arrival_order()
        if arrival_order is None:
            raise ConfigError("must come from exact counts: sampled ones have no order", "view")
        ordered = np.empty_like(self.counts)
        ordered[arrival_order] = self.counts
        return ordered

    def points(self) -> NDArray[np.float64]:
        """Copy the window's lattice points as rows (n, d)."""
        from .._kernels import tiles as kernels

        rows = np.empty((self.size, self.dimension))
        start = 0
        for tiles, lanes in zip(self.tiles, self.lanes, strict=True):
            kernels.load(tiles, lanes, rows[start : start + len(lanes)])
            start += len(lanes)
        return rows

    def in_tiles(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Yield the tiles (t, d, LANES) of each part, and their lanes that hold points."""
        for tiles, lanes in zip(self.tiles, self.lanes, strict=True):
            if len(lanes):
                yield tiles[: int(lanes[-1]) // LANES + 1], lanes

    def points_at(self, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        """Copy some of the window's lattice points, by their numbers (m,), ascending: rows (m, d) of `points`."""
        from .._kernels import tiles as kernels

        rows, start = np.empty((len(wanted), self.dimension)), 0
        ends = np.searchsorted(wanted, np.cumsum([0, *map(len, self.lanes)]))
        for k, (tiles, lanes) in enumerate(zip(self.tiles, self.lanes, strict=True)):
            kernels.load(tiles, lanes[wanted[ends[k] : ends[k + 1]] - start], rows[ends[k] : ends[k + 1]])
            start += len(lanes)
        return rows


def numbered(came: NDArray[np.int32], before: int, size: int) -> NDArray[np.int32] | NDArray[np.int64]:
    """Number a pane's points by arrival within a window.

    `came` holds their numbers within the pane, `size` is the number of points of the pane, and `before` the number of
    points in the window's earlier panes.
    """
    if before == 0:
        return came
    return came + np.int32(before) if before + size <= MAX_POINTS else came.astype(np.int64) + before


def view_of_few(points: NDArray[np.float64], radius_squared: float | None) -> WindowView:
    """Compare all pairs of few points (n, d), and return them as a window."""
    from .._kernels import few_points

    n, d = points.shape
    tiles = np.empty((-(-n // LANES), d, LANES))
    counts = np.empty(0 if radius_squared is None else n, np.int64)
    scratch = np.zeros((2, (len(tiles) + 1) * LANES), np.int32)
    few_points.count(points, radius_squared or 0.0, tiles, counts, scratch)
    order = np.arange(len(tiles) * LANES)
    return WindowView((tiles,), (order[:n],), counts, (order,), d, is_in_order=True)
