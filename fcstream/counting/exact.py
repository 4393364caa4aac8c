"""Friend counts that are kept up to date while points arrive: add a batch, read a window's counts, drop a pane."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, CounterBroken
from ..stream.lattice import MAX_RADIUS_SQUARED
from . import threads
from .tiles import LANES, Frame, SortedRows, StagedPoints, TileBlock, TilePane, TileSegment, may_screen
from .views import MAX_POINTS, WindowView, numbered, view_of_few

STAGED = 6144
"""Largest number of points of one pane that wait to be counted together."""
_MIN_STAGED = 16
_QUICK = 16  # up to this dimension fewer points wait, so that closing a window takes less than a millisecond
_QUICK_VALUES = 3 * 2**14
_WORK = 800_000_000  # coordinates to compare for one batch of staged points: about 2 ms with 8-bit products
_SLOW_WORK = 200_000_000  # the same without 8-bit products
_ALONE = 250_000  # nanoseconds of work for which another thread does not pay
_PIECES = 3  # pieces of a shared comparison for each thread, which takes the next one when it is free
_MAX_AT_ONCE = 2**14  # of points that come together, at most so many in one batch,
_BATCHES = 1  # at most as many as this part of those that are there,
_CACHED_VALUES = 2**15  # and no more than leave the coordinates to compare with one tile in the processor's cache
_WORTH = 0.9  # if distances leave at least this share of pairs undecided, buckets do not pay for half-filled tiles
_FEW = 128  # a batch of fewer points gets a frame without 8-bit codes
_APART = 16  # fewer points do not get a frame of their own if there is one
_FEW_COORDINATES = 6_000_000  # a window of fewer coordinates to compare is compared as it is, without frames
_PAIR_COORDINATES = 4  # what a pair costs besides its own
# What takes how many nanoseconds: a coordinate of a pair that distances do not decide, with 8-bit products and without;
# a tile and a batch; and of sliding windows, to count one anew, with its points and their coordinates, and to keep the
# counts of one pane with another.
_SCREENED_NS, _EXACT_NS, _TILE_NS = 0.01, 0.05, 100
_CODE_NS = 12  # to make the codes of a point, besides a nanosecond for each coordinate
_SAMPLED = 320  # points of a segment, and as many that come, by which its frame chooses again
_WINDOW_NS, _POINT_NS, _COORDINATE_NS, _PANE_NS = 100_000, 60, 8, 30_000


class PointCounts:
    """Points of panes, staged and then stored in tiles: the common base of all counters of pairs within a radius."""

    def __init__(self, dimension: int, radius_squared: int | None, reach: int, width: int = 1) -> None:
        if dimension < 1:
            raise ConfigError("must be at least 1", "dimension", got=dimension)
        if radius_squared is not None and not 1 <= radius_squared <= MAX_RADIUS_SQUARED:
            raise ConfigError("must be in [1, 2**53)", "radius_squared", got=radius_squared)
        if reach < 1:
            raise ConfigError("must be at least 1", "reach", got=reach)
        self.dimension = dimension
        self._radius_squared = None if radius_squared is None else float(radius_squared)
        self._reach = reach
        self._width = width
        self._panes: dict[int, TilePane] = {}
        self._staged: dict[int, StagedPoints] = {}
        self._spare: list[TileBlock] = []  # blocks of the pane dropped last, whose memory the next pane uses again
        self._broken = False
        self._next: NDArray[np.float64] | None = None  # the points that will be counted after those being counted
        self._ready: tuple[NDArray[np.float64], TileSegment, SortedRows] | None = None  # measured while others counted

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
            raise ConfigError(f"must have shape (m, {self.dimension})", "points", got=points.shape)
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
                start += self._take_many(pane, points[start:])
            else:
                start += stage.take(points[start:])
                self._flush(pane)
            stage.limit = self._max_staged(pane)
        stage.take(points[start:])

    def _take_many(self, pane: int, points: NDArray[np.float64]) -> int:
        """Count points in large batches as long as there are enough of them, and return how many were counted."""

        def cut(start: int) -> NDArray[np.float64]:
            size = max(self._max_staged(pane), self._max_at_once(pane))
            return np.ascontiguousarray(points[start : start + size], np.float64)

        start, batch = 0, cut(0)
        while len(batch) >= self._max_staged(pane):
            start += len(batch)
            following = cut(start)
            self._next = following if len(following) >= self._max_staged(pane) else None
            self._count(pane, batch)
            batch = following
        self._next = self._ready = None
        return start

    def drop(self, pane: int) -> None:
        """Forget a pane: its points, and other panes' counts with it. Dropping an absent pane does nothing."""
        with self._changing():
            self._staged.pop(pane, None)
            dropped = self._panes.pop(pane, None)
            if dropped is None:
                return
            for other in self._neighbors(pane):
                for segment in self._panes[other].segments:
                    segment.forget(pane)
            self._spare[:] = [chunk for segment in dropped.segments for chunk in segment.chunks]

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

    def _max_at_once(self, pane: int) -> int:
        """Return how many points should be counted at once if more than `_max_staged` come together."""
        return 0

    def _flush(self, pane: int) -> None:
        """Count the points that wait in a pane."""
        stage = self._staged.get(pane)
        if stage is not None and stage.size:
            points, stage.size = stage.points[: stage.size], 0
            self._count(pane, points)

    def _count(self, pane: int, points: NDArray[np.float64]) -> None:
        """Store points and compare them with all points in reach."""
        held = self._panes.get(pane)
        if held is None:
            held = self._panes[pane] = TilePane()
        before = held.size
        if before + len(points) > MAX_POINTS:
            raise ConfigError("holds too many points: at most 2**31 - 1 can be counted together", "pane")
        came = np.arange(before, before + len(points), dtype=np.int32)
        ready, self._ready = self._ready, None
        if ready is not None and ready[0] is points:
            self._place(pane, ready[1], points, came, ready[2])
            return
        segment = self._segment(pane, held, points)
        inner = None if segment.frame is None else self._inner(segment.frame, points)
        if inner is None:
            self._place(pane, segment, points, came)
        else:
            self._next = None  # it may belong to a segment that begins now
            self._place(pane, segment, points[~inner], came[~inner])
            self._place(pane, self._segment(pane, held, points[inner], segment), points[inner], came[inner])

    def _prepare(self, pane: int, points: NDArray[np.float64]) -> None:
        """Measure the points that will be counted next, if they belong to a segment that there is."""
        held = self._panes[pane]
        segment = self._fitting(held, points)
        if segment is not None and segment.frame is not None and self._inner(segment.frame, points) is None:
            self._ready = points, segment, segment.frame.encode(points)

    def _place(
        self, pane: int, held: TileSegment, points: NDArray[np.float64], came: NDArray[np.int32],
        batch: SortedRows | None = None,
    ) -> None:  # fmt: skip
        """Store points with arrival numbers (m,) in a segment, and compare them with all points in reach."""
        self._panes[pane].size += len(points)
        if held.frame is None:
            held.append(points, came)
            return
        self._split(held, len(points))
        if self._chooses(held, points) or batch is None:
            batch = held.frame.encode(points)
        batches = {id(held.frame): batch}
        held.insert(batch, came)
        self._store(held, batch)
        for other in self._neighbors(pane):
            self._open(held, other, batch)
            for neighbor in self._panes[other].segments:
                known = batches.get(id(neighbor.frame))
                rows = self._measured(neighbor, points, known)
                if rows is not None:
                    if rows is not known:
                        batches[id(neighbor.frame)] = rows
                        rows.take_slots(batch)
                    neighbor.forget_sums(pane)
                    self._compare(pane, held, other, neighbor, rows)
        held.forget_batch()

    def _segment(
        self, pane: int, held: TilePane, points: NDArray[np.float64], coarse: TileSegment | None = None
    ) -> TileSegment:
        """Return the segment that takes new points: one whose frame suits them, and is not too coarse, or a new one."""
        segment = self._fitting(held, points, coarse)
        if segment is not None:
            return segment
        if not held.may_begin(len(points)):
            return held.segments[-1]
        frame = None if self._radius_squared is None else self._frame(pane, points, _FEW if coarse is None else 1)
        return held.begin(TileSegment(self.dimension, frame, self._width, self._spare))

    def _fitting(
        self, held: TilePane, points: NDArray[np.float64], coarse: TileSegment | None = None
    ) -> TileSegment | None:
        """Return the pane's segment that suits new points, if there is one."""
        for segment in reversed(held.segments):
            if segment.frame is None or (segment is not coarse and self._suits(segment.frame, points)):
                return segment
        return None

    def _suits(self, frame: Frame, points: NDArray[np.float64]) -> bool:
        """Return whether a frame is good enough for further points of its pane."""
        return True

    def _inner(self, frame: Frame, points: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Mark the points (m,) that need a finer frame than the one for most of them; None if there are none."""
        return None

    def _chooses(self, held: TileSegment, points: NDArray[np.float64]) -> bool:
        """Let a segment's frame choose again what the points that come show better; return whether it differs."""
        return False

    def _measured(
        self, neighbor: TileSegment, points: NDArray[np.float64], known: SortedRows | None
    ) -> SortedRows | None:
        """Return points as a segment's frame measures them (before: `known`), or None if none has a friend there."""
        assert neighbor.frame is not None
        return known or neighbor.frame.encode(points)

    def _open(self, held: TileSegment, other: int, batch: SortedRows) -> None:
        """Prepare the counts of a batch's lanes with one pane, before they are compared."""

    def _split(self, held: TileSegment, coming: int) -> None:
        """Divide a segment's points into more buckets, if a subclass does so."""

    def _store(self, held: TileSegment, batch: SortedRows) -> None:
        """Put an inserted batch into its tiles, unless `_compare` does so."""
        held.store(batch)
        held.note(batch)

    def _compare(self, pane: int, held: TileSegment, other: int, neighbor: TileSegment, batch: SortedRows) -> None:
        """Count a batch of one pane against the tiles of a segment of another or the same."""
        raise NotImplementedError

    def _screens(self) -> bool:
        return False

    def _frame(self, pane: int, points: NDArray[np.float64], coded: int) -> Frame:
        """Return a frame for points: that of a pane in reach if it suits them, else a new one.

        A new one has 8-bit codes from `coded` points on.
        """
        assert self._radius_squared is not None
        screened = len(points) >= coded and self._screens()
        for other in self._neighbors(pane):
            for segment in self._panes[other].segments:
                frame = segment.frame
                if other != pane and frame is not None and (frame.scale > 0 or not screened) and frame.suits(points):
                    return frame
        return Frame(points, self._radius_squared, screened)


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
    Two points are friends if the exact integer predicate sum((x-y)**2) <= radius_squared holds, so counts do not
    depend on order, batches, threads or processor. Points wait until there are enough of them to be compared
    together (at most 6,144 points and a few milliseconds of work); `view` counts all that still wait. Many points
    that come in one call make larger batches. A batch is sorted by distance from a pivot: the triangle inequality
    decides whole ranges of pairs without reading their points, 8-bit products decide most other pairs, and the
    exact kernel decides the rest. Points that lie unlike those before them get a pivot of their own. Small windows
    are compared as they are, and small windows that slide are counted anew at each `view`, where that is cheaper
    than to compare each pair once and to keep its bit. The run time depends on the data. The counts are the same
    whichever step decides.

    One counter must not be used by several threads at once; different counters are independent of each other.

    Complexity
    ----------
    `add` of m points costs at most m * n * d with n points in the panes in reach, in kernels that release the GIL.
    Batches with more than half a millisecond of work are shared by `threads.threads()` threads; `view` is O(n *
    reach) and counts the points that wait; `drop` is O(n). Memory per point: 8 * d bytes, d more for codes where d
    >= 9, 4 per pane in reach and about 10.
    """

    def __init__(self, dimension: int, radius_squared: int | None, reach: int = 1) -> None:
        super().__init__(dimension, radius_squared, reach)
        self._screened: bool | None = None
        self._state = np.zeros(6, np.int64)  # see `pairs.sweep`
        self._lent: list[FriendCounts] = []  # counters of the windows that were counted anew since the last `drop`
        self._idle: FriendCounts | None = None
        self._overpaid = 0.0

    def view(self, panes: Iterable[int]) -> WindowView:
        """Return the view of the window made of `panes`, with counts summed over them; absent panes are empty."""
        wanted = list(panes)
        anew = self._anew(wanted)
        if anew is not None:
            return anew
        wanted = self._counted(wanted)
        together = set(wanted)
        tiles, lanes, counts, arrivals = [], [], [], []
        before = 0
        for pane in wanted:
            size = self._panes[pane].size
            for held in self._panes[pane].segments:
                for chunk, here in held.parts():
                    tiles.append(chunk.tiles[: here.stop - here.start])
                    arrivals.append(numbered(held.columns.arrivals[here].reshape(-1), before, size))
                lanes += held.lanes()
                if self._radius_squared is not None:
                    counts.append(held.counts_over(together))
            before += size
        return WindowView(
            tuple(tiles),
            tuple(lanes),
            np.concatenate(counts) if counts else np.empty(0, np.int64),
            tuple(arrivals),
            self.dimension,
        )

    def drop(self, pane: int) -> None:
        super().drop(pane)
        if self._lent:
            self._idle = self._lent[0]
            self._idle.drop(0)
            self._lent.clear()

    def free_spare(self) -> None:
        super().free_spare()
        self._idle = None

    def _max_staged(self, pane: int) -> int:
        if self._radius_squared is None:
            return STAGED
        held = sum(self._panes[other].size for other in self._neighbors(pane)) if self._panes else 0
        fair = (_WORK if self._screens() else _SLOW_WORK) / (max(0.01, self._asked()) * self.dimension)
        most = min(STAGED, _QUICK_VALUES // self.dimension) if self.dimension <= _QUICK else STAGED
        return int(max(_MIN_STAGED, min(most, fair / max(held, 1), fair**0.5)))

    def _max_at_once(self, pane: int) -> int:
        # Each batch looks at all tiles, so few batches are better, as long as the rows for one tile stay in the cache.
        held = sum(self._panes[other].size for other in self._neighbors(pane))
        near = int(_CACHED_VALUES / (max(0.001, self._asked()) * self.dimension))
        return 0 if self._radius_squared is None else min(held // _BATCHES, near, _MAX_AT_ONCE)

    def _screens(self) -> bool:
        if self._screened is None:
            self._screened = may_screen(self.dimension)
        return self._screened

    def _asked(self) -> float:
        """Return the share of pairs, so far, that distances from a pivot left undecided."""
        return float(self._state[2] / self._state[3]) if self._state[3] else 1.0

    def _suits(self, frame: Frame, points: NDArray[np.float64]) -> bool:
        screened = frame.scale > 0 or not self._screens() or len(points) < _FEW
        return screened and (len(points) < _APART or frame.suits(points))

    def _inner(self, frame: Frame, points: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        return None if len(points) < _FEW else frame.inner(points, _APART)

    def _anew(self, panes: list[int]) -> WindowView | None:
        """Return the view of a window that is counted from its points alone, if that is cheaper than to keep counts.

        No point stops waiting for it, so that the points of small panes may never be compared in another way.
        """
        if self._broken:
            raise CounterBroken
        held = [pane for pane in panes if pane in self._panes or pane in self._staged]
        size = sum(map(self.size, held))
        if 0 < size * size * (self.dimension + _PAIR_COORDINATES) <= _FEW_COORDINATES:
            return view_of_few(self._rows(held), self._radius_squared)
        if len(held) < 2 or self._radius_squared is None or not self._anew_pays(held, size):
            return None
        counter = self._idle or FriendCounts(self.dimension, self.radius_squared)
        self._idle = None
        counter._state = self._state
        self._lent.append(counter)
        counter.add(0, self._rows(held))
        return counter.view([0])

    def _anew_pays(self, panes: list[int], size: int) -> bool:
        """Return whether a window of some panes costs less when it is counted anew than when counts are kept.

        To begin with counts costs as much as many slides do; it is put off until as much has been paid too much.
        """
        pair = self._pair_ns()
        point = _POINT_NS + _COORDINATE_NS * self.dimension
        anew = _WINDOW_NS + size * (point + size / 2 * pair)
        kept = len(panes) * _PANE_NS + size / len(panes) * (point + size * pair)
        if anew <= kept:
            self._overpaid = 0.0
            return True
        self._overpaid += anew - kept
        waiting = sum(pane in self._staged and self._staged[pane].size > 0 for pane in panes)
        return self._overpaid < (waiting - 1) * len(panes) / 2 * _PANE_NS

    def _pair_ns(self) -> float:
        """Guess how many nanoseconds a pair takes, from those so far."""
        return self._asked() * self.dimension * (_SCREENED_NS if self._screens() else _EXACT_NS)

    def _rows(self, panes: list[int]) -> NDArray[np.float64]:
        """Return the points (n, d) of some panes, pane by pane in the order of their arrival."""
        parts = []
        for pane in panes:
            if pane in self._panes:
                parts.append(self._panes[pane].rows())
            if pane in self._staged:
                stage = self._staged[pane]
                parts.append(stage.points[: stage.size])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _split(self, held: TileSegment, coming: int) -> None:
        if self._asked() < _WORTH:
            held.split_buckets(coming)

    def _chooses(self, held: TileSegment, points: NDArray[np.float64]) -> bool:
        size, frame = held.size + len(points), held.frame
        if frame is None or not frame.may_choose(size, is_good=bool(2 * self._state[5] >= self._state[4])):
            return False
        coming = points[:: max(1, len(points) // _SAMPLED)]
        if not frame.choose(np.concatenate([held.sample(_SAMPLED), coming]), size):
            return False
        for segment in (each for pane in self._panes.values() for each in pane.segments if each.frame is frame):
            segment.restart()
        return True

    def _measured(
        self, neighbor: TileSegment, points: NDArray[np.float64], known: SortedRows | None
    ) -> SortedRows | None:
        frame = neighbor.frame
        if frame is None or (known is not None and (known.coded or frame.scale == 0)):
            return known
        left = neighbor.undecided(points)
        if left is None or frame.scale == 0:
            return None if left is None else frame.encode(points)
        # Codes only where they decide enough pairs: distances decide nearly all of those of points that lie far away.
        exactly = left * self.dimension * (_EXACT_NS - _SCREENED_NS)
        return frame.encode(points) if exactly > _CODE_NS + self.dimension else known or frame.measure(points)

    def _open(self, held: TileSegment, other: int, batch: SortedRows) -> None:
        from .._kernels import tiles as kernels

        counts, certain_counts = held.counts_with(other)
        kernels.open_lanes(batch.slots, certain_counts, counts)

    def _store(self, held: TileSegment, batch: SortedRows) -> None:
        pass  # `_sweep` stores a batch in the tiles with which it compares it

    def _compare(self, pane: int, held: TileSegment, other: int, neighbor: TileSegment, batch: SortedRows) -> None:
        from .._kernels import tiles as kernels

        row_counts, row_sure = self._sweep(pane, neighbor, batch, neighbor is held)
        kernels.settle(batch.slots, row_counts, row_sure, held.counts[other])

    def _sweep(
        self, pane: int, neighbor: TileSegment, batch: SortedRows, own: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Compare a batch of a pane with all tiles of a segment, and return the counts of the batch's rows.

        A batch is put into its own segment's tiles first. Several threads share long comparisons, and prepare the
        points that come next.
        """
        from .._kernels import pairs

        frame, columns = neighbor.frame, neighbor.columns
        assert frame is not None
        assert self._radius_squared is not None
        limits = np.array([frame.radius, self._radius_squared, frame.scale, frame.first_words])
        limits[2] *= batch.coded  # rows without codes are compared exactly
        lane_counts, certain_counts = neighbor.counts_with(pane)
        rows = batch.rows, batch.codes, batch.bars, batch.classes, batch.ranks
        point = _POINT_NS + _COORDINATE_NS * self.dimension
        guess = neighbor.tiles * _TILE_NS + batch.size * (point * own + neighbor.size * self._pair_ns())
        hands = threads.helpers(guess / _ALONE) + 1
        before, room = self._state.copy(), batch.room
        found = [(np.zeros(room, np.int32), np.zeros(room + 1, np.int32), before.copy()) for _ in range(hands)]

        def sweep(parts: list[tuple[TileBlock, slice]], hand: int) -> None:
            if own:
                neighbor.store(batch, parts)
            for chunk, here in parts:
                inside = slice(here.start - chunk.first, here.stop - chunk.first)
                tiles = chunk.tiles[inside], chunk.codes[inside], chunk.starts[inside]
                shapes = columns.spans[here], columns.shape[here], columns.self_rows[here]
                lanes = lane_counts[here.start * LANES : here.stop * LANES], certain_counts[here]
                row_counts, row_sure, state = found[hand]
                pairs.sweep(rows, (*tiles, *shapes), limits, (row_counts, row_sure, *lanes, state))

        pieces: list[Callable[[int], None]] = [
            functools.partial(sweep, parts) for parts in neighbor.pieces(_PIECES * hands if hands > 1 else 1)
        ]
        if own:
            pieces.append(lambda _: neighbor.note(batch))
        following = self._next if hands > 1 else None
        if following is not None:
            self._next = None
            pieces.insert(0, lambda _: self._prepare(pane, following))
        threads.share(pieces, hands)
        row_counts, row_sure, state = found[0]
        for counts_of_one, sure_of_one, seen in found[1:]:
            row_counts += counts_of_one
            row_sure += sure_of_one
            state += np.maximum(seen - before, 0)  # kernels sometimes halve some numbers
        if state[3] > 1 << 40:
            state[2:4] >>= 1
        self._state[:] = state  # which counters of windows that are counted anew share
        return row_counts, row_sure


class CrossCounts(FriendCounts):
    """Exact counts of pairs whose two points lie in different panes: one share of a larger window's pairs.

    A point is not counted as its own friend here. The counts are exact integers, so the shares of a window may be
    counted by different processes and added in any order.
    """

    def _neighbors(self, pane: int) -> list[int]:
        return [other for other in super()._neighbors(pane) if other != pane]

    def _anew(self, panes: list[int]) -> None:
        return None

    def _store(self, held: TileSegment, batch: SortedRows) -> None:
        PointCounts._store(self, held, batch)  # the points of a batch are not compared with each other
