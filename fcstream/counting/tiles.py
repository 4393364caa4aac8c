"""Tiles of 32 lanes, in which points are stored for counting, with bounds that decide many pairs at once.

Points that are near each other share a tile. Pivots, scales and buckets are chosen from data for speed alone, and no
count depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .prefixes import MANY, MIN_WORDS, first_words

LANES = 32
"""Number of points per tile."""
SCREEN_FROM = 12
"""Smallest dimension from which screening with 8-bit codes pays."""
_MAX_SCREENED = 2**14  # largest dimension for which sums of products stay below 2**31
_GAP = 8  # neutral rows behind each class: rows that are no point's friends
_NEVER = 2**31 - 1
_FIRST_TILES, _MAX_TILES = 4, 2048
_MAX_BUCKETS = 128
_POINTS_PER_BUCKET, _COMING_PER_BUCKET = 256, 16
_SAMPLE, _MIN_SAMPLED = 512, 32
_DISTINCT = 7 / 8  # a sample with a smaller share of distinct distances is taken anew, without the equal points
_BETTER = _SAMPLE // _MIN_SAMPLED  # a frame of so many times fewer points than come is not used for them
_KNOWN = 16  # a frame of which so great a part, one in 16, lies near the pivot has buckets enough there
_GROWTH = 1.5  # a pane grows by this factor before it gets a further frame
_ASKED = 64  # points, and tiles, of which about so many are looked at to see what distances decide
_MORE = 1.5  # a segment grows by this factor before its frame chooses again how many words are looked at first
_SLACK = 1e-9


def aligned(shape: tuple[int, ...], dtype: type) -> NDArray[np.generic]:
    """Allocate an uninitialized array that begins on a cache line.

    A vector that lies across two cache lines loads at half speed.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(dtype).reshape(shape)


class Frame:
    """Reference for measuring points: a pivot, a scale for 8-bit codes, and distances that divide points into buckets.

    Parameters
    ----------
    rows : float64 (m, d)
        A sample of the points.
    radius_squared : float
    screened : bool
        Whether points get 8-bit codes.
    """

    def __init__(self, rows: NDArray[np.float64], radius_squared: float, screened: bool) -> None:
        from .._kernels import tiles

        few, distances = self._center(rows)
        in_order = np.sort(distances)
        if np.count_nonzero(in_order[1:] > in_order[:-1]) < _DISTINCT * (len(few) - 1):
            # Equal points would drag the pivot to themselves, and leave few buckets to all others.
            distances = np.empty(len(rows))
            tiles.distances_from(rows, self.pivot, distances)
            few, distances = self._center(rows[np.sort(np.unique(distances, return_index=True)[1])])
            in_order = np.sort(distances)
        self.radius = math.sqrt(radius_squared)
        self.sampled = len(few)
        self.scale = 0.0
        if screened:
            near = few[distances <= max(self.radius, 1.5 * float(in_order[len(few) // 2]))]
            self.scale = max(1.0, 1.25 * float(np.abs(near - self.pivot).max()) / 127)
        self._quantiles = in_order[(len(few) - 1) * np.arange(1, _MAX_BUCKETS) // _MAX_BUCKETS]
        self._typical = float(self._quantiles[_MAX_BUCKETS // 2])
        self._close = float(self._quantiles[_MAX_BUCKETS // _KNOWN - 1])
        self._far = float(self._quantiles[_MAX_BUCKETS * 7 // 8])
        self._max_error = 0.0
        self._words = -(-rows.shape[1] // 4)
        self._chosen_from = len(rows)
        self.first_words = first_words(rows, self.pivot, self.radius, self.scale) if screened else 0

    def _center(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Take a sample of rows, make its middle the pivot, and return it with its distances from there."""
        from .._kernels import tiles

        most = max(2 * _MIN_SAMPLED, 32 * _SAMPLE // max(32, rows.shape[1]))
        few = np.ascontiguousarray(rows[:: max(1, len(rows) // most)][: 2 * _SAMPLE])
        self.pivot: NDArray[np.float64] = np.partition(few, len(few) // 2, axis=0)[len(few) // 2]
        distances = np.empty(len(few))
        tiles.distances_from(few, self.pivot, distances)
        return few, distances

    def encode(self, rows: NDArray[np.float64]) -> SortedRows:
        """Measure rows by distance from the pivot, sort them by it, and give them codes."""
        from .._kernels import tiles

        m, d = rows.shape
        batch = SortedRows(m, d, self.scale > 0)
        distances, wide = np.empty(m), np.zeros(m, np.bool_)
        if self.scale:
            codes, errors = np.zeros((m, -(-d // 4) * 4), np.int8), np.empty(m)
            tiles.encode(rows, self.pivot, self.scale, distances, codes, errors, wide)
            self._max_error = max(self._max_error, float(errors.max(where=~wide, initial=0.0)))
        else:
            tiles.distances_from(rows, self.pivot, distances)
        batch.sort(distances, wide, self.radius)
        tiles.arrange(rows, distances, batch.order, batch.positions, batch.rows, batch.distances)
        if self.scale:
            narrow = int(batch.classes[0, 1])
            tiles.arrange_codes(
                codes, batch.order, batch.positions, narrow, 4 * self.first_words, *self._code_bars(d),
                batch.codes.view(np.uint8), batch.bars, batch.starts,
            )  # fmt: skip
        return batch

    def measure(self, rows: NDArray[np.float64]) -> SortedRows:
        """Measure rows by distance from the pivot, and sort them by it, without codes."""
        from .._kernels import tiles

        m, d = rows.shape
        batch, distances = SortedRows(m, d), np.empty(m)
        tiles.distances_from(rows, self.pivot, distances)
        batch.sort(distances, np.zeros(m, np.bool_), self.radius)
        tiles.arrange(rows, distances, batch.order, batch.positions, batch.rows, batch.distances)
        return batch

    def may_choose(self, size: int, is_good: bool) -> bool:
        """Return whether to choose again how many words are looked at first, now that a segment has `size` points.

        That is so if there are half as many more since the last choice, which was to look at all words, as is right for
        points that lie close together and for too few of them, or has not proved good since.
        """
        is_open = self.scale > 0 and self._words >= MIN_WORDS and not (is_good and self.first_words < self._words)
        return is_open and size >= max(MANY, _MORE * self._chosen_from)

    def choose(self, rows: NDArray[np.float64], size: int) -> bool:
        """Choose again how many words are looked at first, and return whether that differs from before.

        `rows` are a sample of the `size` points that there are. All stored points that belong to this frame need
        `TileSegment.restart` then.
        """
        before, self._chosen_from = self.first_words, size
        self.first_words = first_words(rows, self.pivot, self.radius, self.scale)
        return self.first_words != before

    def suits(self, rows: NDArray[np.float64]) -> bool:
        """Return whether `rows` lie about as far from the pivot as the points that the frame was made from.

        A frame of far fewer points than `rows` does not suit them either: its pivot is a poor middle.
        """
        from .._kernels import tiles

        if min(len(rows), _SAMPLE) > _BETTER * self.sampled:
            return False
        few = np.ascontiguousarray(rows[:: max(1, len(rows) // 32)])
        distances = np.empty(len(few))
        tiles.distances_from(few, self.pivot, distances)
        found, room = sorted(distances.tolist())[len(few) // 2], self.radius / 4
        return found <= 2 * self._far + room and self._typical <= 2 * found + room

    def inner(self, rows: NDArray[np.float64], least: int) -> NDArray[np.bool_] | None:
        """Mark the rows (m,) that lie so near the pivot that the frame's codes and buckets are too coarse for them.

        None if they are fewer than `least`, or all.
        """
        from .._kernels import tiles

        if self._typical <= 2 * self.radius:
            return None
        distances = np.empty(len(rows))
        tiles.distances_from(rows, self.pivot, distances)
        near: NDArray[np.bool_] = 2 * distances < self._typical - self.radius / 4
        found = int(np.count_nonzero(near))
        known = self.scale == 0 and 2 * self._close < self._typical - self.radius / 4
        return None if known or not least <= found < len(rows) else near

    def edges(self, buckets: int) -> NDArray[np.float64]:
        """Return the distances that divide the points into `buckets` buckets, a power of two."""
        # Contiguous: kernels are compiled once more for an array that is not.
        return np.ascontiguousarray(self._quantiles[_MAX_BUCKETS // buckets - 1 :: _MAX_BUCKETS // buckets])

    def _code_bars(self, dimension: int) -> tuple[int, int]:
        """Return two bounds on the squared distance of two codes.

        Points whose codes are at most the first bound apart are certainly friends. Points whose codes are farther apart
        than the second are certainly not.
        """
        most = 4 * 127 * 127 * dimension + 4  # no two codes are farther apart; keeps the bars in 32 bits
        low = (self.radius * (1 - _SLACK) - 2 * self._max_error) / self.scale
        high = (self.radius * (1 + _SLACK) + 2 * self._max_error) / self.scale
        friend = -1 if low < 0 else math.floor(min(low * low * (1 - 1e-12), most))
        return friend, math.ceil(min(high * high * (1 + 1e-12), most))


class SortedRows:
    """Rows of a batch in two classes, each sorted by distance from a pivot: rows with codes, then rows without.

    Neutral rows, which are no point's friends, follow each class.

    Attributes
    ----------
    coded : bool
        Whether rows have 8-bit codes.
    order : int64 (m,)
        The index of each sorted row among the rows as given.
    positions : int64 (m,)
        The index of each sorted row in the arrays below.
    classes : int64 (2, 2)
        Where each class begins and ends.
    ranks : int64 (2, cells + 1)
    rows : float64 (m + 2 * gap, d)
    distances : float64, codes : int32 (.., words), bars : int32 (4, ..), starts : int32 (3, ..)
        See the kernels.
    slots : int64 (m + 2 * gap,)
        The lanes in which the rows are stored, -1 for neutral rows.
    came : int32 (m,)
        The arrival numbers of the rows as given, once they have lanes.
    """

    def __init__(self, size: int, dimension: int, coded: bool = False) -> None:
        self.size = size
        self.coded = coded
        self.room = size + 2 * _GAP
        room = self.room if coded else 0
        self.codes = np.zeros((room, -(-dimension // 4)), np.int32)
        self.bars = np.full((4, room), _NEVER, np.int32)
        self.starts = np.zeros((3, room), np.int32)
        self.rows = np.empty((self.room, dimension))
        self.distances = np.zeros(self.room)
        self.slots = np.full(self.room, -1, np.int64)
        self.order = np.arange(size)
        self.positions = self.order
        self.classes = np.array([[0, size], [size + _GAP, size + _GAP]], np.int64)
        self.ranks: NDArray[np.int64] = np.empty((2, 0), np.int64)
        self.came = np.empty(0, np.int32)

    def sort(self, distances: NDArray[np.float64], wide: NDArray[np.bool_], radius: float) -> None:
        """Sort the rows into classes, and by distance within each class."""
        from .._kernels import pairs

        self.ranks = np.empty((2, pairs.CELLS + 1), np.int64)
        self.order, self.positions = np.empty(self.size, np.int64), np.empty(self.size, np.int64)
        pairs.sort_rows(distances, wide, radius, _GAP, self.order, self.positions, self.ranks, self.classes)
        for c in range(2):
            self.rows[self.classes[c, 1] : self.classes[c, 1] + _GAP] = np.inf

    def take_slots(self, other: SortedRows) -> None:
        """Copy the lanes of the same rows from a batch that holds them in another order."""
        by_row = np.empty(self.size, np.int64)
        by_row[other.order] = other.slots[other.positions]
        self.slots[self.positions] = by_row[self.order]


@dataclass(slots=True)
class TileBlock:
    """Block of consecutive tiles with a fixed capacity, which begins at tile `first` of its pane."""

    first: int
    tiles: NDArray[np.float64]  # (t, d, LANES)
    codes: NDArray[np.int32]  # (t, words, LANES); no tiles if points have no codes
    starts: NDArray[np.int32]  # (t, 3, LANES)


@dataclass(slots=True)
class _TileColumns:
    """Columns with one entry per tile: used lanes and class, distances, rows of the current batch, arrival numbers.

    They always grow together.
    """

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
        for name, new in grown:  # all at once: kernels use one index for all of them, without a bounds check
            setattr(self, name, new)


class TileSegment:
    """Tiles that hold points of one pane that share a frame, with the points' counts for every pane in reach.

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
        self._summed: set[int] = set()
        self._sums = np.empty(0, np.int64)
        self._lanes: list[NDArray[np.int64]] = []
        self._listed = 0
        self._dimension = dimension
        self._screened = frame is not None and frame.scale > 0
        self._open = np.full((2, 1), -1, np.int64)

    def counts_with(self, pane: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the counts with one pane, per lane and per tile; they are allocated at first use."""
        tiles = len(self.columns.shape)
        for table, length in ((self.counts, tiles * self.width * LANES), (self.certain_counts, tiles)):
            found = table.get(pane)
            if found is None or len(found) < length:
                table[pane] = np.zeros(length, np.int32)
                if found is not None:
                    table[pane][: len(found)] = found
        return self.counts[pane], self.certain_counts[pane]

    def insert(self, batch: SortedRows, came: NDArray[np.int32]) -> None:
        """Give a batch's rows, which have arrival numbers (m,) in their pane, lanes, and note these in the batch.

        `store` puts them there, `note` the arrival numbers. Until `forget_batch`, `self_rows` says which tiles hold
        the batch's rows.
        """
        from .._kernels import tiles

        buckets = self._open.shape[1]
        self._make_room(self.tiles + -(-batch.size // LANES) + 2 * buckets)
        columns = self.columns
        edges = self.frame.edges(buckets) if self.frame else np.empty(0)
        self.tiles = tiles.assign_slots(
            batch.distances, batch.classes, edges, self._open, self.tiles, columns.shape, columns.spans,
            columns.self_rows, batch.slots,
        )  # fmt: skip
        batch.came = came
        self.size += batch.size

    def note(self, batch: SortedRows) -> None:
        """Note the arrival numbers of an inserted batch."""
        from .._kernels import tiles

        arrivals = self.columns.arrivals.reshape(-1)
        tiles.note_arrivals(batch.order, batch.positions, batch.slots, batch.came, arrivals)

    def store(self, batch: SortedRows, parts: Iterable[tuple[TileBlock, slice]] | None = None) -> None:
        """Put the rows of an inserted batch into their lanes: into those of all tiles, or of some parts of them."""
        from .._kernels import tiles

        for chunk, here in self.parts() if parts is None else parts:
            inside = slice(here.start - chunk.first, here.stop - chunk.first)
            part = batch.slots, self.columns.shape[here], self.columns.self_rows[here], here.start
            tiles.store(batch.rows, *part, chunk.tiles[inside])
            if self._screened:
                tiles.store_codes(batch.codes, batch.starts, *part, chunk.codes[inside], chunk.starts[inside])

    def sample(self, most: int) -> NDArray[np.float64]:
        """Copy about `most` of the points, from all tiles."""
        from .._kernels import tiles as kernels

        found, every = [], max(1, self.size // most)
        for (chunk, _), lanes in zip(self.parts(), self.lanes(), strict=True):
            some = np.ascontiguousarray(lanes[::every])
            found.append(np.empty((len(some), self._dimension)))
            kernels.load(chunk.tiles, some, found[-1])
        return np.concatenate(found) if found else np.empty((0, self._dimension))

    def undecided(self, points: NDArray[np.float64]) -> float | None:
        """Estimate with how many stored points distances from the pivot leave one of these undecided, on average.

        None if they show that no point is a friend of any that is stored here.
        """
        from .._kernels import pairs, tiles

        frame, spans, shape = self.frame, self.columns.spans[: self.tiles], self.columns.shape[: self.tiles]
        assert frame is not None
        every = len(points) // _ASKED + 1, self.tiles // _ASKED + 1
        left = float(pairs.undecided(points, every[0], frame.pivot, spans, shape, every[1], frame.radius))
        if left > 0:
            return left
        distances = np.empty(len(points))
        tiles.distances_from(points, frame.pivot, distances)
        return None if pairs.apart(distances, spans, frame.radius) else left

    def restart(self) -> None:
        """Compute the sums with which products of stored points begin, after the frame chose other first words."""
        from .._kernels import tiles

        assert self.frame is not None
        for chunk, here in self.parts():
            inside = slice(here.start - chunk.first, here.stop - chunk.first)
            tiles.restart(chunk.codes[inside], self.columns.shape[here], self.frame.first_words, chunk.starts[inside])

    def append(self, rows: NDArray[np.float64], came: NDArray[np.int32]) -> None:
        """Store rows in the order of their arrival, without a frame."""
        batch = SortedRows(len(rows), self._dimension)
        batch.rows[: len(rows)] = rows
        self.insert(batch, came)
        self.store(batch)
        self.note(batch)
        self.forget_batch()

    def forget_batch(self) -> None:
        """Forget which tiles hold the current batch, once it is counted."""
        self.columns.self_rows[: self.tiles] = -1

    def split_buckets(self, coming: int) -> None:
        """Double the number of buckets if there are enough points.

        With enough stored and coming points per bucket, the half-filled tiles at the buckets' ends do not matter.
        """
        buckets = self._open.shape[1]
        enough = self.size >= 2 * buckets * _POINTS_PER_BUCKET and coming >= 2 * buckets * _COMING_PER_BUCKET
        if self.frame and buckets < _MAX_BUCKETS and enough:
            self._open = np.stack([self._open, np.full_like(self._open, -1)], axis=2).reshape(2, -1)

    def parts(self) -> Iterator[tuple[TileBlock, slice]]:
        """Yield each chunk in use, with the range of the pane's tiles that it holds."""
        for chunk in self.chunks:
            last = min(self.tiles, chunk.first + len(chunk.tiles))
            if last > chunk.first:
                yield chunk, slice(chunk.first, last)

    def pieces(self, count: int) -> list[list[tuple[TileBlock, slice]]]:
        """Cut the tiles in use into about `count` equal pieces, each made of parts as of `parts`.

        The last tiles, where most new points are, come first.
        """
        size = max(1, -(-self.tiles // count))
        pieces: list[list[tuple[TileBlock, slice]]] = [[] for _ in range(-(-self.tiles // size))]
        for chunk, here in self.parts():
            for i in range(here.start // size, (here.stop - 1) // size + 1):
                pieces[i].append((chunk, slice(max(here.start, i * size), min(here.stop, (i + 1) * size))))
        return pieces[::-1]

    def lanes(self) -> list[NDArray[np.int64]]:
        """Return for each of `parts` the lanes that hold points, counted from the first lane of its first tile."""
        from .._kernels import tiles as kernels

        if self._listed != self.size:
            self._lanes = []
            for _, here in self.parts():
                shape = self.columns.shape[here]
                lanes = np.empty(len(shape) * LANES, np.int64)
                self._lanes.append(lanes[: kernels.used_lanes(shape, lanes)])
            self._listed = self.size
        return self._lanes

    def counts_over(self, panes: set[int]) -> NDArray[np.int64]:
        """Return the counts of the points (n,) with all points of `panes`, in the lanes' order; not to be changed.

        The sums are kept, so that a window which slides on pays for the panes by which it differs from the last one.
        """
        if len(self._sums) != self.size:
            self._sums, self._summed = np.zeros(self.size, np.int64), set()
        wanted = self.counts.keys() & panes
        for pane in self._summed - wanted:
            self.forget_sums(pane)
        for pane in wanted - self._summed:
            self._sum(pane, 1)
            self._summed.add(pane)
        return self._sums

    def forget_sums(self, pane: int) -> None:
        """Take the counts with a pane out of the kept sums, before they change."""
        if pane in self._summed:
            if len(self._sums) == self.size:
                self._sum(pane, -1)
            self._summed.remove(pane)

    def forget(self, pane: int) -> None:
        """Forget the counts with a pane."""
        self.forget_sums(pane)
        self.counts.pop(pane, None)
        self.certain_counts.pop(pane, None)

    def _sum(self, pane: int, sign: int) -> None:
        from .._kernels import tiles as kernels

        shape = self.columns.shape[: self.tiles]
        kernels.totals(shape, self.counts[pane], self.certain_counts[pane], sign, self._sums)

    def _make_room(self, tiles: int) -> None:
        if tiles > len(self.columns.shape):
            self.columns.grow(max(tiles, 4 * len(self.columns.shape), _FIRST_TILES))
        held = self.chunks[-1].first + len(self.chunks[-1].tiles) if self.chunks else 0
        if tiles > held:
            # Chunks grow in size, so there are few of them; tiles not yet used are not touched and cost no memory.
            more = max(tiles - held, min(max(_FIRST_TILES, 3 * held), _MAX_TILES))
            self.chunks.append(self._chunk(held, 1 << (more - 1).bit_length()))

    def _chunk(self, first: int, tiles: int) -> TileBlock:
        """Return a spare chunk of a dropped pane, or a new one."""
        for i, spare in enumerate(self._spare):
            if len(spare.tiles) == tiles and (len(spare.codes) > 0) == self._screened:
                self._spare.pop(i)
                return TileBlock(first, spare.tiles, spare.codes, spare.starts)
        coded = tiles if self._screened else 0
        return TileBlock(
            first,
            aligned((tiles, self._dimension, LANES), np.float64),  # type: ignore[arg-type]
            aligned((coded, -(-self._dimension // 4), LANES), np.int32),  # type: ignore[arg-type]
            aligned((coded, 3, LANES), np.int32),  # type: ignore[arg-type]
        )


class TilePane:
    """Points of one pane, in segments: those that lie unlike the first ones have a frame of their own.

    What comes first does not decide how fast the rest is counted.

    Attributes
    ----------
    segments : list of TileSegment
    size : int
        The number of points in all of them.
    """

    def __init__(self) -> None:
        self.segments: list[TileSegment] = []
        self.size = 0
        self._last_began = 0

    def may_begin(self, coming: int) -> bool:
        """Whether the pane has grown enough for a further segment."""
        return not self.segments or self.size + coming >= _GROWTH * self._last_began

    def begin(self, segment: TileSegment) -> TileSegment:
        """Begin a segment, which takes the points that come next."""
        self._last_began = self.size
        self.segments.append(segment)
        return segment

    def rows(self) -> NDArray[np.float64]:
        """Copy the points (n, d) in the order of their arrival."""
        from .._kernels import tiles as kernels

        found: list[NDArray[np.float64]] = []
        came: list[NDArray[np.int32]] = []
        for segment in self.segments:
            for (chunk, here), lanes in zip(segment.parts(), segment.lanes(), strict=True):
                found.append(np.empty((len(lanes), chunk.tiles.shape[1])))
                kernels.load(chunk.tiles, lanes, found[-1])
                came.append(segment.columns.arrivals[here].reshape(-1)[lanes])
        rows = np.empty((self.size, found[0].shape[1]))
        rows[np.concatenate(came)] = np.concatenate(found)
        return rows


def may_screen(dimension: int) -> bool:
    """Return whether points of this dimension get 8-bit codes on this processor."""
    from .._kernels import blocks

    return blocks.SCREENS and SCREEN_FROM <= dimension <= _MAX_SCREENED


class StagedPoints:
    """Points that wait to be counted together."""

    __slots__ = ("limit", "points", "size")

    def __init__(self, dimension: int, limit: int) -> None:
        self.points = np.empty((min(64, limit), dimension))
        self.size = 0
        self.limit = limit

    def take(self, points: NDArray[np.float64]) -> int:
        """Copy as many points as there is room for, and return how many were copied."""

        taken = min(len(points), self.limit - self.size)
        end = self.size + taken
        if end > len(self.points):
            grown = np.empty((max(end, min(self.limit, 2 * len(self.points))), self.points.shape[1]))
            grown[: self.size] = self.points[: self.size]
            self.points = grown
        self.points[self.size : end] = points[:taken]
        self.size = end
        return taken
