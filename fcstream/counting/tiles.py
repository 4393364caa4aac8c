"""How points are held for counting: tiles of 32 lanes, near points together, and what bounds pairs without counting.

Everything here is a matter of speed: pivots, scales and buckets come from data, and no count depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 32
"""Points per tile."""
SCREEN_FROM = 12
"""Fewest coordinates for which screening with 8-bit codes pays."""
_MAX_SCREENED = 2**14  # coordinates: product sums stay below 2**31
_GAP = 8  # neutral rows behind each class
_NEVER = 2**31 - 1
_FIRST_TILES, _MAX_TILES = 4, 2048
_MAX_BUCKETS = 128
_POINTS_PER_BUCKET, _COMING_PER_BUCKET = 256, 16
_SAMPLE = 512
_SLACK = 1e-9


def aligned(shape: tuple[int, ...], dtype: type) -> NDArray[np.generic]:
    """An uninitialized array that begins on a cache line: vectors that straddle two lines load at half speed."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(dtype).reshape(shape)


class Frame:
    """Where points are measured from: a pivot, a scale for 8-bit codes, edges of buckets of distance.

    Parameters
    ----------
    rows : float64 (m, d)
        Some of the points.
    radius_squared : float
    screened : bool
        Whether points get codes.
    """

    def __init__(self, rows: NDArray[np.float64], radius_squared: float, screened: bool) -> None:
        from .._kernels import tiles

        few = rows[:: max(1, len(rows) * max(32, rows.shape[1]) // (32 * _SAMPLE))][: 2 * _SAMPLE]
        self.radius = math.sqrt(radius_squared)
        self.pivot: NDArray[np.float64] = np.partition(few, len(few) // 2, axis=0)[len(few) // 2]
        distances = np.empty(len(few))
        tiles.distances_from(few, self.pivot, distances)
        in_order = np.sort(distances)
        self.scale = 0.0
        if screened:
            near = few[distances <= max(self.radius, 1.5 * float(in_order[len(few) // 2]))]
            self.scale = max(1.0, 1.25 * float(np.abs(near - self.pivot).max()) / 127)
        self._quantiles = in_order[(len(few) - 1) * np.arange(1, _MAX_BUCKETS) // _MAX_BUCKETS]
        self._worst = 0.0

    def encode(self, rows: NDArray[np.float64]) -> SortedRows:
        """Measure and sort some rows."""
        from .._kernels import tiles

        m, d = rows.shape
        batch = SortedRows(m, d, self.scale > 0)
        distances, wide = np.empty(m), np.zeros(m, np.bool_)
        tiles.distances_from(rows, self.pivot, distances)
        if self.scale:
            codes, errors = np.zeros((m, -(-d // 4) * 4), np.int8), np.empty(m)
            tiles.encode(rows, self.pivot, self.scale, codes, errors, wide)
            self._worst = max(self._worst, float(errors.max(where=~wide, initial=0.0)))
        batch.sort(distances, wide, self.radius)
        tiles.arrange(rows, distances, batch.order, batch.positions, batch.rows, batch.distances)
        if self.scale:
            narrow = int(batch.classes[0, 1])
            tiles.arrange_codes(
                codes, batch.order, batch.positions, narrow, *self._code_bars(d), batch.codes.view(np.uint8),
                batch.bars, batch.starts,
            )  # fmt: skip
        return batch

    def suits(self, rows: NDArray[np.float64]) -> bool:
        """Whether other points lie about as far from the pivot as those it was made for."""
        from .._kernels import tiles

        few = rows[:: max(1, len(rows) // 64)]
        distances = np.empty(len(few))
        tiles.distances_from(few, self.pivot, distances)
        typical = float(self._quantiles[_MAX_BUCKETS // 2])
        return float(np.median(distances)) <= 2 * typical + self.radius / 4

    def edges(self, buckets: int) -> NDArray[np.float64]:
        """Distances that cut the points into some buckets, a power of two."""
        return self._quantiles[_MAX_BUCKETS // buckets - 1 :: _MAX_BUCKETS // buckets]

    def _code_bars(self, dimension: int) -> tuple[int, int]:
        """Squared distances of codes: at most the first is surely a friend, above the second surely a stranger."""
        most = 4 * 127 * 127 * dimension + 4  # no two codes are farther apart; keeps the bars in 32 bits
        low = (self.radius * (1 - _SLACK) - 2 * self._worst) / self.scale
        high = (self.radius * (1 + _SLACK) + 2 * self._worst) / self.scale
        friend = -1 if low < 0 else math.floor(min(low * low * (1 - 1e-12), most))
        return friend, math.ceil(min(high * high * (1 + 1e-12), most))


class SortedRows:
    """Rows sorted by distance from a pivot, those with codes first, neutral ones behind either class.

    Attributes
    ----------
    order : int64 (m,)
        Which given row is which.
    positions : int64 (m,)
        Where they stand in the arrays below.
    classes : int64 (2, 2)
        First and last row of each class.
    ranks : int64 (2, cells + 1)
    rows : float64 (m + 2 * gap, d)
    distances : float64, codes : int32 (.., words), bars : int32 (2, ..), starts : int32
        See the kernels.
    slots : int64 (m + 2 * gap,)
        Where the rows are stored, -1 for neutral ones.
    """

    def __init__(self, size: int, dimension: int, coded: bool = False) -> None:
        self.size = size
        self.room = size + 2 * _GAP
        room = self.room if coded else 0
        self.codes = np.zeros((room, -(-dimension // 4)), np.int32)
        self.bars = np.full((2, room), _NEVER, np.int32)
        self.starts = np.zeros(room, np.int32)
        self.rows = np.empty((self.room, dimension))
        self.distances = np.zeros(self.room)
        self.slots = np.full(self.room, -1, np.int64)
        self.order = np.arange(size)
        self.positions = self.order
        self.classes = np.array([[0, size], [size + _GAP, size + _GAP]], np.int64)
        self.ranks: NDArray[np.int64] = np.empty((2, 0), np.int64)

    def sort(self, distances: NDArray[np.float64], wide: NDArray[np.bool_], radius: float) -> None:
        """Put the rows in order."""
        from .._kernels import pairs

        self.ranks = np.empty((2, pairs.CELLS + 1), np.int64)
        self.order, self.positions = np.empty(self.size, np.int64), np.empty(self.size, np.int64)
        pairs.sort_rows(distances, wide, radius, _GAP, self.order, self.positions, self.ranks, self.classes)
        for c in range(2):
            self.rows[self.classes[c, 1] : self.classes[c, 1] + _GAP] = np.inf

    def take_slots(self, other: SortedRows) -> None:
        """The lanes of the same rows, from a batch in another order."""
        by_row = np.empty(self.size, np.int64)
        by_row[other.order] = other.slots[other.positions]
        self.slots[self.positions] = by_row[self.order]


@dataclass(slots=True)
class TileBlock:
    """A run of tiles with fixed capacity, from tile `first` of its pane on."""

    first: int
    tiles: NDArray[np.float64]  # (t, d, LANES)
    codes: NDArray[np.int32]  # (t, words, LANES); no tiles if points have no codes
    starts: NDArray[np.int32]  # (t, LANES)


@dataclass(slots=True)
class _TileColumns:
    """Per tile: used lanes and class, distances, rows of the batch at hand. Grown together."""

    shape: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    spans: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))
    self_rows: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    arrivals: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, LANES), np.int32))

    def grow(self, tiles: int) -> None:
        grown = []
        for name, empty in (("shape", 0), ("spans", 0), ("self_rows", -1), ("arrivals", 0)):
            old = getattr(self, name)
            new = np.full((tiles, *old.shape[1:]), empty, old.dtype)
            new[: len(old)] = old
            grown.append((name, new))
        for name, new in grown:  # together: kernels index them alike, without looking
            setattr(self, name, new)


class TilePane:
    """Points of one pane in tiles, and their counts with every pane in reach.

    Attributes
    ----------
    counts : dict of pane -> int32 (tiles * width * LANES,)
        Friends counted one by one; `width` numbers per lane.
    certain_counts : dict of pane -> int32 (tiles,)
        Friends that all lanes of a tile have.
    """

    def __init__(self, dimension: int, frame: Frame | None, width: int, spare: list[TileBlock]) -> None:
        self.frame = frame
        self._spare = spare
        self.width = width
        self.tiles = 0
        self.size = 0
        self.chunks: list[TileBlock] = []
        self.columns = _TileColumns()
        self.counts: dict[int, NDArray[np.int32]] = {}
        self.certain_counts: dict[int, NDArray[np.int32]] = {}
        self._dimension = dimension
        self._screened = frame is not None and frame.scale > 0
        self._open = np.full((2, 1), -1, np.int64)

    def counts_with(self, pane: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Counts with one pane, numbers per lane and one per tile; made when first asked for."""
        tiles = len(self.columns.shape)
        for table, length in ((self.counts, tiles * self.width * LANES), (self.certain_counts, tiles)):
            found = table.get(pane)
            if found is None or len(found) < length:
                table[pane] = np.zeros(length, np.int32)
                if found is not None:
                    table[pane][: len(found)] = found
        return self.counts[pane], self.certain_counts[pane]

    def insert(self, batch: SortedRows) -> None:
        """Store a batch's rows and note their lanes in it; `self_rows` names them until `forget_batch`."""
        from .._kernels import tiles

        buckets = self._open.shape[1]
        self._make_room(self.tiles + -(-batch.size // LANES) + 2 * buckets)
        columns, before = self.columns, self.tiles
        edges = self.frame.edges(buckets) if self.frame else np.empty(0)
        self.tiles = tiles.assign_slots(
            batch.distances, batch.classes, edges, self._open, before, columns.shape, columns.spans, columns.self_rows,
            batch.slots,
        )  # fmt: skip
        arrivals = columns.arrivals.reshape(-1)
        tiles.note_arrivals(batch.order, batch.positions, batch.slots, self.size, arrivals)
        self.size += batch.size
        for chunk in self.chunks:
            here = slice(chunk.first, min(self.tiles, chunk.first + len(chunk.tiles)))
            part = batch.slots, columns.shape[here], columns.self_rows[here], chunk.first
            tiles.store(batch.rows, *part, chunk.tiles)
            if self._screened:
                tiles.store_codes(batch.codes, batch.starts, *part, chunk.codes, chunk.starts)

    def append(self, rows: NDArray[np.float64]) -> None:
        """Store rows in the order of their arrival, without a frame."""
        batch = SortedRows(len(rows), self._dimension)
        batch.rows[: len(rows)] = rows
        self.insert(batch)
        self.forget_batch()

    def forget_batch(self) -> None:
        """The batch at hand is done."""
        self.columns.self_rows[: self.tiles] = -1

    def split_buckets(self, coming: int) -> None:
        """Twice as many buckets, if there are points enough, held and coming, that half-filled tiles do not matter."""
        buckets = self._open.shape[1]
        enough = self.size >= 2 * buckets * _POINTS_PER_BUCKET and coming >= 2 * buckets * _COMING_PER_BUCKET
        if self.frame and buckets < _MAX_BUCKETS and enough:
            self._open = np.stack([self._open, np.full_like(self._open, -1)], axis=2).reshape(2, -1)

    def parts(self) -> Iterator[tuple[TileBlock, slice]]:
        """Chunks in use, with their tiles of the pane."""
        for chunk in self.chunks:
            last = min(self.tiles, chunk.first + len(chunk.tiles))
            if last > chunk.first:
                yield chunk, slice(chunk.first, last)

    def lanes(self, tiles: slice) -> NDArray[np.int64]:
        """Lanes that hold points, counted from the first of some tiles."""
        from .._kernels import tiles as kernels

        shape = self.columns.shape[tiles]
        lanes = np.empty(len(shape) * LANES, np.int64)
        return lanes[: kernels.used_lanes(shape, lanes)]

    def _make_room(self, tiles: int) -> None:
        if tiles > len(self.columns.shape):
            self.columns.grow(max(tiles, 4 * len(self.columns.shape), _FIRST_TILES))
        held = self.chunks[-1].first + len(self.chunks[-1].tiles) if self.chunks else 0
        if tiles > held:
            # Chunks grow, so there are few; tiles that are not used yet are not touched and cost no memory.
            more = max(tiles - held, min(max(_FIRST_TILES, 3 * held), _MAX_TILES))
            self.chunks.append(self._chunk(held, 1 << (more - 1).bit_length()))

    def _chunk(self, first: int, tiles: int) -> TileBlock:
        """A chunk that another pane left, or a new one."""
        for i, spare in enumerate(self._spare):
            if len(spare.tiles) == tiles and (len(spare.codes) > 0) == self._screened:
                self._spare.pop(i)
                return TileBlock(first, spare.tiles, spare.codes, spare.starts)
        coded = tiles if self._screened else 0
        return TileBlock(
            first,
            aligned((tiles, self._dimension, LANES), np.float64),  # type: ignore[arg-type]
            aligned((coded, -(-self._dimension // 4), LANES), np.int32),  # type: ignore[arg-type]
            aligned((coded, LANES), np.int32),  # type: ignore[arg-type]
        )


def may_screen(dimension: int) -> bool:
    """Whether points of so many coordinates get 8-bit codes on this processor."""
    from .._kernels import pairs

    return pairs.SCREENS and SCREEN_FROM <= dimension <= _MAX_SCREENED


class StagedPoints:
    """Points that wait to be counted together."""

    __slots__ = ("limit", "points", "size")

    def __init__(self, dimension: int, limit: int) -> None:
        self.points = np.empty((min(64, limit), dimension))
        self.size = 0
        self.limit = limit

    def take(self, points: NDArray[np.float64]) -> int:
        """Copy as many as there is room for; returns how many."""
        taken = min(len(points), self.limit - self.size)
        end = self.size + taken
        if end > len(self.points):
            grown = np.empty((max(end, min(self.limit, 2 * len(self.points))), self.points.shape[1]))
            grown[: self.size] = self.points[: self.size]
            self.points = grown
        self.points[self.size : end] = points[:taken]
        self.size = end
        return taken
