"""Friend counts, kept while points arrive: add a micro-batch, read a window's counts, drop a pane."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import ConfigError
from .lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 64
"""Points per tile: the kernels' vector length."""
SORT_AT = 4096
"""Size of a pane from which points are sorted by their distance from a pivot."""
BUCKETS = 64
_FIRST_TILES, _MOST_TILES = 4, 1024
_SAMPLE = 2048
_WORTH = 0.2
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class _Sorting:
    """How points fall into buckets by their distance from a pivot, and what that decides about pairs.

    The triangle inequality decides most pairs of buckets without looking at points: sure strangers, sure friends. What
    it leaves is asked of the kernel. All of it is a matter of speed: the pivot and the edges come from data and no
    count depends on them. Distances are compared with a slack far above their rounding.

    Attributes
    ----------
    pivot : float64 (d,)
    edges : float64 (k - 1,)
        Squared distances: bucket b ends at edges[b], the last one never.
    ask_first, ask_last : int64 (k,)
        Buckets that bucket b must be compared with (none if ask_last < ask_first).
    sure : int64 (k,)
        All buckets below sure[b] are friends of bucket b.
    """

    pivot: NDArray[np.float64]
    edges: NDArray[np.float64]
    ask_first: NDArray[np.int64]
    ask_last: NDArray[np.int64]
    sure: NDArray[np.int64]

    @classmethod
    def none(cls, dimension: int) -> _Sorting:
        """One bucket that is compared with itself."""
        zero = np.zeros(1, np.int64)
        return cls(np.zeros(dimension), np.empty(0), zero, zero, zero)

    @classmethod
    def of(cls, points: NDArray[np.float64], radius_squared: float) -> _Sorting | None:
        """Buckets that hold equally many of some points; None if they would decide too few pairs."""
        pivot = np.rint(np.median(points[:: max(1, len(points) // _SAMPLE)], axis=0))
        norms = np.sort(((points - pivot) ** 2).sum(axis=1))
        edges = np.unique(norms[np.linspace(0, len(norms) - 1, BUCKETS).astype(np.int64)[1:]])
        high = np.append(np.sqrt(edges), np.inf) * (1 + _SLACK)
        low = np.append(0.0, np.sqrt(edges)) * (1 - _SLACK)
        radius = float(np.sqrt(radius_squared))
        strangers = low[None, :] - high[:, None] > radius * (1 + _SLACK)
        strangers |= strangers.T
        friends = (high[:, None] + high[None, :]) <= radius * (1 - _SLACK)
        asked = ~(strangers | friends)
        if len(asked) > 2 and asked[:-1, :-1].mean() > 1 - _WORTH:
            return None
        some = asked.any(axis=1)
        first = np.where(some, asked.argmax(axis=1), 0)
        last = np.where(some, len(asked) - 1 - asked[:, ::-1].argmax(axis=1), -1)
        return cls(pivot, edges, first.astype(np.int64), last.astype(np.int64), friends.sum(axis=1).astype(np.int64))

    @property
    def size(self) -> int:
        return len(self.sure)

    def sure_friends(self, population: NDArray[np.int64]) -> NDArray[np.int64]:
        """Friends that a point of each bucket surely has among points spread over the buckets like this."""
        return np.append(0, np.cumsum(population))[self.sure]


class _Chunk:
    """A run of tiles with fixed capacity: coordinates (tiles, d, LANES), from tile `first` of its pane on."""

    __slots__ = ("first", "tiles")

    def __init__(self, first: int, tiles: int, dimension: int) -> None:
        self.first = first
        self.tiles = np.empty((tiles, dimension, LANES), np.float64)


class _Pane:
    """Points of one pane in tiles of one bucket each, and their counts with every pane in reach."""

    def __init__(self, dimension: int, buckets: int) -> None:
        self._dimension = dimension
        self.chunks: list[_Chunk] = []
        self.tiles = 0
        self.used = np.zeros(_FIRST_TILES, np.int32)  # lanes, per tile
        self.buckets = np.zeros(_FIRST_TILES, np.int32)
        self.open_tile = np.full(buckets, -1, np.int64)
        self.population = np.zeros(buckets, np.int64)
        self.counts: dict[int, NDArray[np.int32]] = {}

    @property
    def size(self) -> int:
        return int(self.population.sum())

    def counts_with(self, pane: int) -> NDArray[np.int32]:
        """Explicit counts with one pane, a number per lane; made when first asked for."""
        lanes = len(self.used) * LANES
        found = self.counts.get(pane)
        if found is None or len(found) < lanes:
            grown = np.zeros(lanes, np.int32)
            if found is not None:
                grown[: len(found)] = found
            found = self.counts[pane] = grown
        return found

    def insert(self, rows: NDArray[np.float64], row_starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Store rows sorted by bucket; returns their lanes."""
        from ._kernels import pairs

        self._make_room(self.tiles + pairs.tiles_needed(row_starts, self.open_tile, self.used))
        slots = np.empty(len(rows), np.int64)
        before = self.tiles
        self.tiles = pairs.place_rows(row_starts, self.open_tile, self.used, self.buckets, before, slots)
        for chunk in self.chunks:
            fresh = slice(max(0, before - chunk.first), max(0, self.tiles - chunk.first))
            chunk.tiles[fresh] = np.inf  # lanes not used yet are nobody's friends
            pairs.store_rows(rows, slots, chunk.first, chunk.tiles)
        self.population += np.diff(row_starts)
        return slots

    def reserve(self, points: int) -> None:
        """Make room for points that are coming, so that they share a tile array."""
        self._make_room(self.tiles + -(-points // LANES))

    def parts(self) -> Iterator[tuple[NDArray[np.float64], int, int]]:
        """Tile arrays in use, with their first and last tile in the pane."""
        for chunk in self.chunks:
            last = min(self.tiles, chunk.first + len(chunk.tiles))
            if last > chunk.first:
                yield chunk.tiles[: last - chunk.first], chunk.first, last

    def lanes(self, first: int, last: int) -> NDArray[np.int64]:
        """Lanes that hold points, counted from tile `first`."""
        inside = np.arange(LANES)[None, :] < self.used[first:last, None]
        return np.flatnonzero(inside.ravel())

    def _make_room(self, tiles: int) -> None:
        if tiles > len(self.used):
            grow = max(tiles, 2 * len(self.used)) - len(self.used)
            self.used = np.append(self.used, np.zeros(grow, np.int32))
            self.buckets = np.append(self.buckets, np.zeros(grow, np.int32))
        held = self.chunks[-1].first + len(self.chunks[-1].tiles) if self.chunks else 0
        if tiles > held:
            # Chunks double, so there are few; tiles that are not used yet are not touched and cost no memory.
            more = min(max(_FIRST_TILES, held, tiles - held), max(_MOST_TILES, tiles - held))
            self.chunks.append(_Chunk(held, more, self._dimension))


@dataclass(frozen=True, slots=True)
class Selection:
    """Some points of a window, for kernels: read only, valid until the next `add` or `drop`.

    Attributes
    ----------
    parts : tuple of (float64 (t, d, LANES), bool (t * LANES,))
        Tiles, and which of their lanes are selected.
    size : int
        How many points; private.
    dimension : int
    """

    parts: tuple[tuple[NDArray[np.float64], NDArray[np.bool_]], ...]
    size: int
    dimension: int


@dataclass(frozen=True, slots=True)
class WindowView:
    """What a closing window shows to its release: read only, valid until the next `add` or `drop`.

    Attributes
    ----------
    tiles : tuple of float64 (t, d, LANES)
        Integer coordinates; unused lanes hold +inf.
    lanes : tuple of int64 (n_i,)
        Lanes of each tile array that hold points, ascending.
    counts : int64 (n,)
        Friends of every point within the window, itself included, in the order of the lanes; empty if no radius.
    dimension : int
    """

    tiles: tuple[NDArray[np.float64], ...]
    lanes: tuple[NDArray[np.int64], ...]
    counts: NDArray[np.int64]
    dimension: int

    @property
    def size(self) -> int:
        return sum(map(len, self.lanes))

    def select(self, mask: NDArray[np.bool_]) -> Selection:
        """Some of the points, by a mask (n,) in the order of `counts`."""
        parts, start = [], 0
        for tiles, lanes in zip(self.tiles, self.lanes, strict=True):
            inside = np.zeros(len(tiles) * LANES, np.bool_)
            inside[lanes] = mask[start : start + len(lanes)]
            start += len(lanes)
            parts.append((tiles, inside))
        return Selection(tuple(parts), int(np.count_nonzero(mask)), self.dimension)

    def points(self) -> NDArray[np.float64]:
        """The window's lattice points as rows (n, d), copied."""
        from ._kernels import pairs

        rows = np.empty((self.size, self.dimension))
        start = 0
        for tiles, lanes in zip(self.tiles, self.lanes, strict=True):
            pairs.load_rows(tiles, lanes, rows[start : start + len(lanes)])
            start += len(lanes)
        return rows


class FriendCounts:
    """Exact counts of points within a radius of each point, per pane, incrementally.

    Parameters
    ----------
    dimension : int
        Number of coordinates, >= 1.
    radius_squared : int or None
        Squared radius in lattice steps, in [1, 2**53); None keeps points without counting.
    reach : int
        Panes at a distance below `reach` share a window and are compared; 1 for tumbling windows.

    Notes
    -----
    A pair of points is compared once, however many windows hold both (a few new ones from either side). The
    pair's bit is the exact integer predicate sum((x-y)**2) <= radius_squared, so counts do not depend on order or
    batching. From 4,096 points in a pane on, points are sorted by distance from a pivot, and whole ranges of pairs
    are decided by the triangle inequality; those are added when a view is made.

    Complexity
    ----------
    `add` of m points costs at most m * n * d on the panes in reach, in kernels that release the GIL; `view` is
    O(n * reach); `drop` is O(n). Memory: 8 * d bytes a point and 4 bytes per pane in reach, and a tile for each bucket.
    """

    def __init__(self, dimension: int, radius_squared: int | None, reach: int = 1) -> None:
        if dimension < 1:
            raise ConfigError(f"must be at least 1, got {dimension}", "dimension")
        if radius_squared is not None and not 1 <= radius_squared <= MAX_RADIUS_SQUARED:
            raise ConfigError(f"must be in [1, 2**53), got {radius_squared}", "radius_squared")
        if reach < 1:
            raise ConfigError(f"must be at least 1, got {reach}", "reach")
        self.dimension = dimension
        self._radius_squared = None if radius_squared is None else float(radius_squared)
        self._reach = reach
        self._panes: dict[int, _Pane] = {}
        self._sorting = _Sorting.none(dimension)
        self._sort_at = SORT_AT

    @property
    def panes(self) -> list[int]:
        """Panes that hold points, ascending."""
        return sorted(self._panes)

    def size(self, pane: int) -> int:
        """Points in one pane."""
        return self._panes[pane].size if pane in self._panes else 0

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Add lattice points to a pane and count their friends.

        Parameters
        ----------
        pane : int
        points : float64 (m, d)
            Integer coordinates below 2**40 in size; copied, not changed.

        Raises
        ------
        ConfigError
            Wrong shape. (Coordinates are checked where they are made.)
        """
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise ConfigError(f"must have shape (m, {self.dimension}), got {points.shape}", "points")
        if len(points) == 0:
            return
        points = np.ascontiguousarray(points, np.float64)
        if pane not in self._panes:
            self._panes[pane] = _Pane(self.dimension, self._sorting.size)
        held = self._panes[pane]
        held.reserve(len(points))
        start = 0
        while start < len(points):
            if self._radius_squared is not None and held.size >= self._sort_at:
                self._sort(held)
                held = self._panes[pane]
            stop = start + self._batch_size(held.size)
            self._add_batch(pane, held, points[start:stop])
            start = stop

    def view(self, panes: Iterable[int]) -> WindowView:
        """The window made of `panes` (present or not), with counts summed over them."""
        wanted = [pane for pane in panes if pane in self._panes]
        tiles, lanes, counts = [], [], []
        population = sum((self._panes[pane].population for pane in wanted), np.zeros(self._sorting.size, np.int64))
        sure = self._sorting.sure_friends(population)
        for pane in wanted:
            held = self._panes[pane]
            for array, first, last in held.parts():
                here = held.lanes(first, last)
                tiles.append(array)
                lanes.append(here)
                if self._radius_squared is not None:
                    total = sure[held.buckets[first:last]][here // LANES]
                    for other in wanted:
                        if other in held.counts:
                            total += held.counts[other][first * LANES : last * LANES][here]
                    counts.append(total)
        return WindowView(
            tuple(tiles), tuple(lanes), np.concatenate(counts) if counts else np.empty(0, np.int64), self.dimension
        )

    def drop(self, pane: int) -> None:
        """Forget a pane: its points, and what other panes counted in it. Dropping an absent pane does nothing."""
        if self._panes.pop(pane, None) is None:
            return
        for other in range(pane - self._reach + 1, pane + self._reach):
            if other in self._panes:
                self._panes[other].counts.pop(pane, None)

    def _batch_size(self, held: int) -> int:
        """Rows swept at once. New points of one sorted batch are compared from both sides, so it is short against what
        is held; and long enough that the calls (about 30 microseconds) cost less than those comparisons."""
        if self._sorting.size == 1:
            return 4096
        fair = math.isqrt(600_000 // self.dimension)
        return max(32, min(fair, 512), min(held // 16, 4096))

    def _add_batch(self, pane: int, held: _Pane, rows: NDArray[np.float64]) -> None:
        from ._kernels import pairs

        sorting = self._sorting
        order, row_starts = np.empty(len(rows), np.int64), np.empty(sorting.size + 1, np.int64)
        pairs.bucket_rows(rows, sorting.pivot, sorting.edges, order, row_starts)
        in_order = sorting.size == 1
        if not in_order:
            rows = rows[order]
        slots = held.insert(rows, row_starts)
        radius_squared = self._radius_squared
        if radius_squared is None:
            return
        for other in range(pane - self._reach + 1, pane + self._reach):
            neighbor = self._panes.get(other)
            if neighbor is None:
                continue
            row_counts = np.zeros(len(rows), np.int32)
            lane_counts = neighbor.counts_with(pane)
            for tiles, first, last in neighbor.parts():
                hits = lane_counts[first * LANES : last * LANES]
                if in_order and neighbor is held:
                    start = int(slots[0]) - first * LANES
                    pairs.sweep_within(rows, start, tiles, last - first, radius_squared, row_counts, hits)
                else:
                    asks = sorting.ask_first, sorting.ask_last
                    buckets = neighbor.buckets[first:last]
                    pairs.sweep(rows, row_starts, *asks, tiles, buckets, radius_squared, row_counts, hits)
            counts = held.counts_with(other)
            if in_order:
                counts[slots] += row_counts
            else:  # within one pane the new lanes have been counted as rows: what they got as lanes is replaced
                counts[slots] = row_counts

    def _sort(self, crowded: _Pane) -> None:
        """Sort all panes by distance from a pivot of the crowded one, if that decides enough."""
        assert self._radius_squared is not None
        self._sort_at = 2**62  # tried once
        sample = self._rows_of(crowded)[0]
        sorting = _Sorting.of(sample, self._radius_squared)
        if sorting is None:
            return
        old, self._panes, self._sorting = self._panes, {}, sorting
        for pane, held in old.items():
            self._panes[pane] = self._sorted(held, sorting)
        # Explicit counts hold all pairs so far; a view adds the sure ones again, so they are taken out here.
        for held in self._panes.values():
            for other, counts in held.counts.items():
                sure = sorting.sure_friends(self._panes[other].population)
                for _, first, last in held.parts():
                    lanes = held.lanes(first, last)
                    counts[first * LANES + lanes] -= sure[held.buckets[first:last]][lanes // LANES].astype(np.int32)

    def _rows_of(self, held: _Pane) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """All points of a pane as rows, and their lanes."""
        from ._kernels import pairs

        rows, slots = np.empty((held.size, self.dimension)), np.empty(held.size, np.int64)
        start = 0
        for tiles, first, last in held.parts():
            lanes = held.lanes(first, last)
            pairs.load_rows(tiles, lanes, rows[start : start + len(lanes)])
            slots[start : start + len(lanes)] = lanes + first * LANES
            start += len(lanes)
        return rows, slots

    def _sorted(self, held: _Pane, sorting: _Sorting) -> _Pane:
        """The same points and explicit counts in tiles of one bucket each."""
        from ._kernels import pairs

        rows, old_slots = self._rows_of(held)
        order, row_starts = np.empty(len(rows), np.int64), np.empty(sorting.size + 1, np.int64)
        pairs.bucket_rows(rows, sorting.pivot, sorting.edges, order, row_starts)
        fresh = _Pane(self.dimension, sorting.size)
        slots = fresh.insert(rows[order], row_starts)
        for other in held.counts:
            fresh.counts_with(other)[slots] = held.counts_with(other)[old_slots[order]]
        return fresh


def friend_counts(points: NDArray[np.float64], radius: float, *, step: float) -> NDArray[np.int64]:
    """How many points lie within `radius` of each point, itself included.

    Parameters
    ----------
    points : array (n, d)
        Finite numbers below 2**40 steps in size; rounded to the nearest multiple of `step`, half to even.
    radius : float
        In the points' units, inclusive; compared as floor((radius / step)**2) in exact integers.
    step : float
        Width of the lattice, > 0.

    Returns
    -------
    int64 (n,)

    Raises
    ------
    ConfigError
        Wrong shape, a value that is not finite or out of range, or a radius out of range.

    Notes
    -----
    The counts are exact and NOT private: publish nothing that is computed from them without noise.

    Examples
    --------
    >>> import fcstream
    >>> fcstream.friend_counts([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0]], 1.0, step=0.001).tolist()
    [2, 2, 1]
    """
    lattice_points, lattice = to_points(points, step)
    counter = FriendCounts(lattice_points.shape[1], lattice.radius_squared(radius))
    counter.add(0, lattice_points)
    return counter.view([0]).counts


def to_points(points: object, step: float):  # type: ignore[no-untyped-def]
    """Check an array of scaled points and put it on the lattice: (float64 integers (n, d), Lattice)."""
    from .lattice import Lattice

    lattice = Lattice(step)
    try:
        array = np.asarray(points, np.float64)
    except (TypeError, ValueError):
        raise ConfigError("must be a rectangular array of numbers", "points") from None
    if array.ndim != 2 or array.shape[1] < 1:
        raise ConfigError(f"must have shape (n, d) with d >= 1, got {array.shape}", "points")
    if not np.isfinite(array).all():
        raise ConfigError("must be finite: remove rows with NaN or infinity first", "points")
    lattice_points = lattice.coordinates(array)
    if array.size and np.abs(lattice_points).max() > MAX_COORDINATE:
        raise ConfigError("must lie within 2**40 lattice steps of 0: use a coarser `step`", "points")
    return lattice_points, lattice
