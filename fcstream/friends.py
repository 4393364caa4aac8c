"""Friend counts, kept while points arrive: add a micro-batch, read a window's counts, drop a pane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .errors import ConfigError
from .lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 64
"""Points per tile: the kernels' vector length."""
_FIRST_TILES, _MOST_TILES = 4, 1024


class _Chunk:
    """A run of tiles with fixed capacity: coordinates (tiles, d, LANES) and, per pane, friend counts."""

    __slots__ = ("counts", "size", "tiles")

    def __init__(self, tiles: int, dimension: int) -> None:
        self.tiles = np.empty((tiles, dimension, LANES), np.float64)
        self.size = 0
        self.counts: dict[int, NDArray[np.int32]] = {}

    @property
    def capacity(self) -> int:
        return int(self.tiles.shape[0]) * LANES

    def counts_with(self, pane: int) -> NDArray[np.int32]:
        """Friend counts of this chunk's points within one pane; made when first asked for."""
        found = self.counts.get(pane)
        if found is None:
            found = self.counts[pane] = np.zeros(self.capacity, np.int32)
        return found


@dataclass(frozen=True, slots=True)
class WindowView:
    """What a closing window shows to its release: read only, valid until the next `add` or `drop`.

    Attributes
    ----------
    chunks : tuple of (float64 (tiles, d, LANES), int)
        Tiles and how many of their lanes are used; integer coordinates, unused lanes +inf.
    counts : int64 (n,)
        Friends of every point within the window, itself included, in the order of the chunks; empty if no radius.
    dimension : int
    """

    chunks: tuple[tuple[NDArray[np.float64], int], ...]
    counts: NDArray[np.int64]
    dimension: int

    @property
    def size(self) -> int:
        return sum(used for _, used in self.chunks)

    def points(self) -> NDArray[np.float64]:
        """The window's lattice points as rows (n, d), copied."""
        from ._kernels import pairs

        rows = np.empty((self.size, self.dimension))
        start = 0
        for tiles, used in self.chunks:
            pairs.load_rows(tiles, used, rows[start : start + used])
            start += used
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
    Each unordered pair of points is decided once, whatever the batches and however many windows hold both. The pair's
    bit is the exact integer predicate sum((x-y)**2) <= radius_squared, so counts do not depend on order or batching.

    Complexity
    ----------
    `add` of m points costs m * n * d on the panes in reach, in kernels that release the GIL; `view` is O(n * reach);
    `drop` is O(n). Memory: 8 * d bytes a point and 4 bytes per pane in reach.
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
        self._panes: dict[int, list[_Chunk]] = {}

    @property
    def panes(self) -> list[int]:
        """Panes that hold points, ascending."""
        return sorted(self._panes)

    def size(self, pane: int) -> int:
        """Points in one pane."""
        return sum(chunk.size for chunk in self._panes.get(pane, ()))

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
        points = np.ascontiguousarray(points, np.float64)
        chunks = self._panes.setdefault(pane, [])
        start = 0
        while start < len(points):
            if not chunks or chunks[-1].size == chunks[-1].capacity:
                chunks.append(self._new_chunk(chunks, len(points) - start))
            chunk = chunks[-1]
            part = points[start : start + chunk.capacity - chunk.size]
            self._add_part(pane, chunk, part)
            start += len(part)

    def view(self, panes: Iterable[int]) -> WindowView:
        """The window made of `panes` (present or not), with counts summed over them."""
        wanted = [pane for pane in panes if pane in self._panes]
        chunks = [chunk for pane in wanted for chunk in self._panes[pane]]
        counts: list[NDArray[np.int64]] = []
        if self._radius_squared is not None:
            for chunk in chunks:
                total = np.zeros(chunk.size, np.int64)
                for pane in wanted:
                    if pane in chunk.counts:
                        total += chunk.counts[pane][: chunk.size]
                counts.append(total)
        return WindowView(
            tuple((chunk.tiles, chunk.size) for chunk in chunks),
            np.concatenate(counts) if counts else np.empty(0, np.int64),
            self.dimension,
        )

    def drop(self, pane: int) -> None:
        """Forget a pane: its points, and what other panes counted in it. Dropping an absent pane does nothing."""
        if self._panes.pop(pane, None) is None:
            return
        for other in range(pane - self._reach + 1, pane + self._reach):
            for chunk in self._panes.get(other, ()):
                chunk.counts.pop(pane, None)

    def _new_chunk(self, chunks: Sequence[_Chunk], coming: int) -> _Chunk:
        """Chunks double, so there are few; unused tiles are never touched and cost no memory."""
        held = sum(chunk.capacity for chunk in chunks) // LANES
        tiles = min(max(_FIRST_TILES, held, -(-coming // LANES)), _MOST_TILES)
        return _Chunk(tiles, self.dimension)

    def _add_part(self, pane: int, chunk: _Chunk, rows: NDArray[np.float64]) -> None:
        from ._kernels import pairs

        first, last = chunk.size, chunk.size + len(rows)
        chunk.tiles[-(-first // LANES) : -(-last // LANES)] = np.inf  # lanes not used yet are nobody's friends
        pairs.store_rows(rows, chunk.tiles, first)
        chunk.size = last
        if self._radius_squared is None:
            return
        own = chunk.counts_with(pane)
        pairs.count_within(rows, chunk.tiles, first, self._radius_squared, own)
        for other in range(pane - self._reach + 1, pane + self._reach):
            for neighbor in self._panes.get(other, ()):
                if neighbor is not chunk:
                    pairs.count_across(
                        rows,
                        neighbor.tiles,
                        neighbor.size,
                        self._radius_squared,
                        chunk.counts_with(other)[first:last],
                        neighbor.counts_with(pane),
                    )


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
