"""Friend counts that are kept up to date while points arrive: add a batch, read a window's counts, drop a pane."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, CounterBroken
from ..stream.lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED
from . import threads
from .tiles import LANES, Frame, SortedRows, StagedPoints, TileBlock, TilePane, may_screen

STAGED = 6144
"""Largest number of points of one pane that wait to be counted together."""
MAX_POINTS = 2**31 - 1
"""Largest number of points of one pane, because the counts of one pane with another are 32-bit integers."""
_MIN_STAGED = 16
_QUICK = 16  # up to this dimension fewer points wait, so that closing a window takes less than a millisecond
_QUICK_VALUES = 3 * 2**14
_WORK = 800_000_000  # coordinates to compare for one batch of staged points: about 2 ms with 8-bit products
_SLOW_WORK = 200_000_000  # the same without 8-bit products
_ALONE = 100_000_000  # with fewer coordinates to compare than this, another thread does not pay
_WORTH = 0.9  # if distances leave at least this share of pairs undecided, buckets do not pay for half-filled tiles
_FEW = 128  # a batch of fewer points gets a frame without 8-bit codes


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
    """

    tiles: tuple[NDArray[np.float64], ...]
    lanes: tuple[NDArray[np.int64], ...]
    counts: NDArray[np.int64]
    arrivals: tuple[NDArray[np.int32] | NDArray[np.int64], ...]
    dimension: int
    scores: NDArray[np.int64] | None = None
    sampling: tuple[str, Fraction] | None = None

    def __repr__(self) -> str:
        return f"<WindowView of points with {self.dimension} coordinates>"  # points and counts are private

    @property
    def size(self) -> int:
        return sum(map(len, self.lanes))

    def select(self, mask: NDArray[np.bool_]) -> Selection:
        """Select the points whose entry is true in a mask (n,), which is in the order of `counts`."""
        parts, start = [], 0
        for tiles, lanes in zip(self.tiles, self.lanes, strict=True):
            inside = np.zeros(len(tiles) * LANES, np.bool_)
            inside[lanes] = mask[start : start + len(lanes)]
            start += len(lanes)
            parts.append((tiles, inside))
        return Selection(tuple(parts), int(np.count_nonzero(mask)), self.dimension)

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


class PointCounts:
    """Points of panes, staged and then stored in tiles: the common base of all counters of pairs within a radius."""

    def __init__(self, dimension: int, radius_squared: int | None, reach: int, width: int = 1) -> None:
        if dimension < 1:
            raise ConfigError(f"must be at least 1, got {dimension}", "dimension")
        if radius_squared is not None and not 1 <= radius_squared <= MAX_RADIUS_SQUARED:
            raise ConfigError(f"must be in [1, 2**53), got {radius_squared}", "radius_squared")
        if reach < 1:
            raise ConfigError(f"must be at least 1, got {reach}", "reach")
        self.dimension = dimension
        self._radius_squared = None if radius_squared is None else float(radius_squared)
        self._reach = reach
        self._width = width
        self._panes: dict[int, TilePane] = {}
        self._staged: dict[int, StagedPoints] = {}
        self._spare: list[TileBlock] = []  # blocks of the pane dropped last, whose memory the next pane uses again
        self._broken = False

    @property
    def radius_squared(self) -> int | None:
        """Squared radius in squared lattice steps; None if points are not compared."""
        return None if self._radius_squared is None else int(self._radius_squared)

    @property
    def panes(self) -> list[int]:
        """Panes that hold points, ascending."""
        return sorted(self._panes.keys() | self._staged.keys())

    def size(self, pane: int) -> int:
        """Return the number of points in one pane."""
        held, stage = self._panes.get(pane), self._staged.get(pane)
        return (held.size if held else 0) + (stage.size if stage else 0)

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Add lattice points to a pane and count their friends, at once or together with later points.

        Parameters
        ----------
        pane : int
        points : float64 (m, d)
            Integer coordinates whose absolute values are below 2**40; copied, not changed.

        Raises
        ------
        ConfigError
            The shape is wrong. Coordinates are not checked here but where records become points.
        """
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise ConfigError(f"must have shape (m, {self.dimension}), got {points.shape}", "points")
        if self._broken:
            raise CounterBroken
        if len(points):
            self._broken = True  # not by `_changing`, which would take a tenth of the time of a small batch
            self._take(pane, points)
            self._broken = False

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Mark the counter as broken until the block ends without an error.

        After an error in the middle of a change, nobody knows which pairs were counted.
        """
        if self._broken:
            raise CounterBroken
        self._broken = True
        yield
        self._broken = False

    def _take(self, pane: int, points: NDArray[np.float64]) -> None:
        """Stage points, and count the staged points whenever there are enough of them."""
        stage = self._staged.get(pane)
        if stage is None:
            stage = self._staged[pane] = StagedPoints(self.dimension, self._max_staged(pane))
        end = stage.size + len(points)
        if end < stage.limit and end <= len(stage.points):
            stage.points[stage.size : end] = points
            stage.size = end
            return
        start = 0
        while len(points) - start >= stage.limit - stage.size:
            if stage.size == 0:
                self._count(pane, np.ascontiguousarray(points[start : start + stage.limit], np.float64))
                start += stage.limit
            else:
                start += stage.take(points[start:])
                self._flush(pane)
            stage.limit = self._max_staged(pane)
        stage.take(points[start:])

    def drop(self, pane: int) -> None:
        """Forget a pane: its points, and other panes' counts with it. Dropping an absent pane does nothing."""
        with self._changing():
            self._staged.pop(pane, None)
            dropped = self._panes.pop(pane, None)
            if dropped is None:
                return
            for other in self._neighbors(pane):
                self._panes[other].counts.pop(pane, None)
                self._panes[other].certain_counts.pop(pane, None)
            self._spare[:] = dropped.chunks

    def free_spare(self) -> None:
        """Free the memory that `drop` keeps for the next pane."""
        self._spare.clear()

    def _counted(self, panes: Iterable[int]) -> list[int]:
        """Count all points that wait in the given panes, and return the panes that hold points."""
        wanted = list(panes)
        with self._changing():
            for pane in wanted:
                self._flush(pane)
        return [pane for pane in wanted if pane in self._panes]

    def _neighbors(self, pane: int) -> list[int]:
        """List the panes with counted points that may share a window with `pane`, itself included."""
        return [other for other in range(pane - self._reach + 1, pane + self._reach) if other in self._panes]

    def _max_staged(self, pane: int) -> int:
        """Return how many points of a pane may wait, so that counting them does not take long."""
        raise NotImplementedError

    def _flush(self, pane: int) -> None:
        """Count the points that wait in a pane."""
        stage = self._staged.get(pane)
        if stage is not None and stage.size:
            points, stage.size = stage.points[: stage.size], 0
            self._count(pane, points)

    def _count(self, pane: int, points: NDArray[np.float64]) -> None:
        """Store points and compare them with all points in reach."""
        held = self._panes.get(pane)
        if held is not None and held.size + len(points) > MAX_POINTS:
            raise ConfigError("holds too many points: at most 2**31 - 1 can be counted together", "pane")
        if held is None:
            frame = None if self._radius_squared is None else self._frame(pane, points)
            held = self._panes[pane] = TilePane(self.dimension, frame, self._width, self._spare)
        if held.frame is None:
            held.append(points)
            return
        self._split(held, len(points))
        batch = held.frame.encode(points)
        batches = {id(held.frame): batch}
        held.insert(batch)
        for other in self._neighbors(pane):
            neighbor = self._panes[other]
            assert neighbor.frame is not None
            rows = batches.get(id(neighbor.frame))
            if rows is None:
                rows = batches[id(neighbor.frame)] = neighbor.frame.encode(points)
                rows.take_slots(batch)
            self._compare(pane, held, other, neighbor, rows)
        held.forget_batch()

    def _split(self, held: TilePane, coming: int) -> None:
        """Divide a pane's points into more buckets, if a subclass does so."""

    def _compare(self, pane: int, held: TilePane, other: int, neighbor: TilePane, batch: SortedRows) -> None:
        """Count a batch of one pane against the tiles of another or the same."""
        raise NotImplementedError

    def _screens(self) -> bool:
        return False

    def _frame(self, pane: int, points: NDArray[np.float64]) -> Frame:
        """Return a frame for a new pane: the frame of a pane in reach if it suits the points, else a new one."""
        assert self._radius_squared is not None
        for other in self._neighbors(pane):
            frame = self._panes[other].frame
            if frame is not None and frame.suits(points):
                return frame
        return Frame(points, self._radius_squared, len(points) >= _FEW and self._screens())


class FriendCounts(PointCounts):
    """Exact friend counts within a radius, kept pane by pane while points arrive (specification 3.1).

    Parameters
    ----------
    dimension : int
        Number of coordinates, >= 1.
    radius_squared : int or None
        Squared radius in lattice steps, in [1, 2**53); with None points are kept but not counted.
    reach : int
        Panes whose numbers differ by less than `reach` may share a window, so their points are compared; 1 for
        tumbling windows.

    Notes
    -----
    A pair of points is compared at most once, even if many windows hold both points. Two points are friends if the
    exact integer predicate sum((x-y)**2) <= radius_squared holds, so counts do not depend on order, batches, threads or
    processor. Points wait until there are enough of them to be compared together (at most 6,144 points and a few
    milliseconds of work); `view` counts all that still wait. A batch is sorted by distance from a pivot: the triangle
    inequality decides whole ranges of pairs without reading their points, 8-bit products decide most other pairs, and
    the exact kernel decides the rest. The run time depends on the data. The counts are the same whichever step decides.

    One counter must not be used by several threads at once; different counters are independent of each other.

    Complexity
    ----------
    `add` of m points costs at most m * n * d with n points in the panes in reach, in kernels that release the GIL and
    share long sweeps with `threads.threads()` threads; `view` is O(n * reach) and counts the points that wait; `drop`
    is O(n). Memory per point: 8 * d bytes, d more for codes where d >= 9, 4 per pane in reach and about 10.
    """

    def __init__(self, dimension: int, radius_squared: int | None, reach: int = 1) -> None:
        super().__init__(dimension, radius_squared, reach)
        self._screened: bool | None = None
        self._state = np.zeros(4, np.int64)  # see `pairs.sweep`

    def view(self, panes: Iterable[int]) -> WindowView:
        """Return the view of the window made of `panes`, with counts summed over them; absent panes are empty."""
        wanted = self._counted(panes)
        tiles, lanes, counts, arrivals = [], [], [], []
        before = 0
        for pane in wanted:
            held = self._panes[pane]
            for chunk, here in held.parts():
                inside = held.lanes(here)
                tiles.append(chunk.tiles[: here.stop - here.start])
                lanes.append(inside)
                arrivals.append(numbered(held.columns.arrivals[here].reshape(-1), before, held.size))
                if self._radius_squared is not None:
                    counts.append(_totals(held, here, len(inside), wanted))
            before += held.size
        return WindowView(
            tuple(tiles),
            tuple(lanes),
            np.concatenate(counts) if counts else np.empty(0, np.int64),
            tuple(arrivals),
            self.dimension,
        )

    def _max_staged(self, pane: int) -> int:
        if self._radius_squared is None:
            return STAGED
        held = sum(self._panes[other].size for other in self._neighbors(pane))
        fair = (_WORK if self._screens() else _SLOW_WORK) / (max(0.01, self._asked()) * self.dimension)
        most = min(STAGED, _QUICK_VALUES // self.dimension) if self.dimension <= _QUICK else STAGED
        return int(max(_MIN_STAGED, min(most, fair / max(held, 1), fair**0.5)))

    def _screens(self) -> bool:
        if self._screened is None:
            self._screened = may_screen(self.dimension)
        return self._screened

    def _asked(self) -> float:
        """Return the share of pairs, so far, that distances from a pivot left undecided."""
        return float(self._state[2] / self._state[3]) if self._state[3] else 1.0

    def _split(self, held: TilePane, coming: int) -> None:
        if self._asked() < _WORTH:
            held.split_buckets(coming)

    def _compare(self, pane: int, held: TilePane, other: int, neighbor: TilePane, batch: SortedRows) -> None:
        from .._kernels import tiles as kernels

        counts, certain_counts = held.counts_with(other)
        kernels.open_lanes(batch.slots, certain_counts, counts)
        row_counts, row_sure = self._sweep(batch, neighbor, *neighbor.counts_with(pane))
        kernels.settle(batch.slots, row_counts, row_sure, counts)

    def _sweep(
        self, batch: SortedRows, neighbor: TilePane, lane_counts: NDArray[np.int32], certain_counts: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Compare a batch with all tiles of a pane, and return the counts of the batch's rows.

        Long comparisons are shared by several threads.
        """
        from .._kernels import pairs

        assert self._radius_squared is not None
        assert neighbor.frame is not None
        limits = np.array([neighbor.frame.radius, self._radius_squared, neighbor.frame.scale])
        columns = neighbor.columns
        rows = batch.rows, batch.codes, batch.bars, batch.classes, batch.ranks
        state = self._state

        def sweep(
            parts: list[tuple[TileBlock, slice]], row_counts: NDArray[np.int32], row_sure: NDArray[np.int32],
            state: NDArray[np.int64],
        ) -> None:  # fmt: skip
            for chunk, here in parts:
                inside = slice(here.start - chunk.first, here.stop - chunk.first)
                tiles = chunk.tiles[inside], chunk.codes[inside], chunk.starts[inside]
                shapes = columns.spans[here], columns.shape[here], columns.self_rows[here]
                lanes = lane_counts[here.start * LANES : here.stop * LANES], certain_counts[here]
                pairs.sweep(rows, (*tiles, *shapes), limits, (row_counts, row_sure, *lanes, state))

        parts = list(neighbor.parts())
        helpers = threads.helpers(batch.size * neighbor.size * self.dimension * self._asked() / _ALONE)
        row_counts, row_sure = np.zeros(batch.room, np.int32), np.zeros(batch.room + 1, np.int32)
        if helpers == 0:
            sweep(parts, row_counts, row_sure, state)
        else:
            found = [(np.zeros_like(row_counts), np.zeros_like(row_sure), state.copy()) for _ in range(helpers + 1)]
            shares = _deal(parts, helpers + 1)
            threads.run(
                [functools.partial(sweep, share, *self_rows) for share, self_rows in zip(shares, found, strict=True)]
            )
            before = state.copy()
            for counts_of_one, sure_of_one, seen in found:
                row_counts += counts_of_one
                row_sure += sure_of_one
                state += np.maximum(seen - before, 0)  # kernels sometimes halve the first two numbers
        if state[3] > 1 << 40:
            state[2:] >>= 1
        return row_counts, row_sure


class CrossCounts(FriendCounts):
    """Exact counts of pairs whose two points lie in different panes: one share of a larger window's pairs.

    A point is not counted as its own friend here. The counts are exact integers, so the shares of a window may be
    counted by different processes and added in any order.
    """

    def _neighbors(self, pane: int) -> list[int]:
        return [other for other in super()._neighbors(pane) if other != pane]


def numbered(came: NDArray[np.int32], before: int, size: int) -> NDArray[np.int32] | NDArray[np.int64]:
    """Number a pane's points by arrival within a window.

    `came` holds their numbers within the pane, `size` is the number of points of the pane, and `before` the number of
    points in the window's earlier panes.
    """
    if before == 0:
        return came
    return came + np.int32(before) if before + size <= MAX_POINTS else came.astype(np.int64) + before


def _totals(held: TilePane, here: slice, size: int, panes: list[int]) -> NDArray[np.int64]:
    """Sum the counts of some tiles' points over panes."""
    from .._kernels import tiles as kernels

    total = np.zeros(size, np.int64)
    for other in panes:
        if other in held.counts:
            lanes = slice(here.start * LANES, here.stop * LANES)
            kernels.totals(held.columns.shape[here], held.counts[other][lanes], held.certain_counts[other][here], total)
    return total


def _deal(parts: list[tuple[TileBlock, slice]], hands: int) -> list[list[tuple[TileBlock, slice]]]:
    """Deal out the tiles of all chunks to `hands` threads: each gets an equal run of every chunk's tiles."""
    dealt: list[list[tuple[TileBlock, slice]]] = [[] for _ in range(hands)]
    for chunk, here in parts:
        cuts = [here.start + (here.stop - here.start) * i // hands for i in range(hands + 1)]
        for hand, first, last in zip(dealt, cuts, cuts[1:], strict=False):
            if last > first:
                hand.append((chunk, slice(first, last)))
    return dealt


def friend_counts(points: NDArray[np.float64], radius: float, *, step: float) -> NDArray[np.int64]:
    """Count how many points lie within `radius` of each point, itself included.

    Parameters
    ----------
    points : array (n, d)
        Finite numbers whose absolute values are below 2**40 steps; rounded to the nearest multiple of `step`, half to
        even.
    radius : float
        Inclusive, in the units of the points; compared as floor((radius / step)**2) in exact integers.
    step : float
        Width of the lattice, > 0.

    Returns
    -------
    int64 (n,)

    Raises
    ------
    ConfigError
        The shape is wrong, a value is not finite or is out of range, or the radius is out of range.

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
    return counter.view([0]).in_order()


def to_points(points: object, step: float):  # type: ignore[no-untyped-def]
    """Check an array of scaled points and round it to the lattice: returns (float64 integers (n, d), Lattice)."""

    from ..stream.lattice import Lattice, as_rows

    lattice = Lattice(step)
    array = as_rows(points, "points")
    if not np.isfinite(array).all():
        raise ConfigError("must be finite: remove rows with NaN or infinity first", "points")
    lattice_points = lattice.coordinates(array)
    if array.size and np.abs(lattice_points).max() > MAX_COORDINATE:
        raise ConfigError("must lie within 2**40 lattice steps of 0: use a coarser `step`", "points")
    return lattice_points, lattice
