"""Sampled counts: scores over partners that coins choose, for the core filters of `fcstream.cores.sampled_filters`.

Coins are drawn when a point is counted, never depend on data, and serve one release of one window. Therefore sampled
counters keep tumbling windows only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, CounterBroken
from ..noise.samplers import MAX_BLOCKS, SMALLEST_RATE, Noise
from ..stream.lattice import MAX_RADIUS_SQUARED
from .tiles import LANES, StagedPoints, aligned
from .views import MAX_POINTS, WindowView

_WORK = 1_000_000_000  # coordinates to compare for one batch of staged points
_MIN_STAGED, _MAX_STAGED = 256, 65536
_FIRST_TILES, _MAX_TILES = 4, 4096
_GAP = 8
_WORDS = 2**16  # gaps drawn at once


class SampledCounts(ABC):
    """Counter of tumbling windows that counts each point's friends among its sampled partners only."""

    kind = ""

    def __init__(self, dimension: int, radius_squared: int, rate: Fraction, noise: Noise) -> None:
        if dimension < 1:
            raise ConfigError("must be at least 1", "dimension", got=dimension)
        if not 1 <= radius_squared <= MAX_RADIUS_SQUARED:
            raise ConfigError("must be in [1, 2**53)", "radius_squared", got=radius_squared)
        if not isinstance(rate, Fraction) or not SMALLEST_RATE <= rate <= 1:
            raise ConfigError("must be a Fraction in [2**-40, 1]", "rate", got=rate)
        self.dimension = dimension
        self.rate = rate
        self._radius_squared = float(radius_squared)
        self._noise = noise
        self._panes: dict[int, _SampledPane] = {}
        self._broken = False

    @property
    def panes(self) -> list[int]:
        """Panes that hold points, ascending."""
        return sorted(self._panes)

    def size(self, pane: int) -> int:
        """Return the number of points in one pane."""
        held = self._panes.get(pane)
        return held.size + held.stage.size if held else 0

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Add copies of lattice points (m, d) to a pane; they are counted at once or together with later points."""
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise ConfigError(f"must have shape (m, {self.dimension})", "points", got=points.shape)
        if self._broken:
            raise CounterBroken
        if len(points) == 0:
            return
        held = self._panes.get(pane)
        if held is None:
            held = self._panes[pane] = self._new_pane()
        if held.seen is not None:
            raise ConfigError("its window was read: coins serve one release", "pane")
        if held.size + held.stage.size + len(points) > MAX_POINTS:
            raise ConfigError("holds too many points: at most 2**31 - 1 can be counted together", "pane")
        self._broken = True  # until all points are counted: an error may leave some pairs with coins, others without
        start = 0
        while start < len(points):
            start += held.stage.take(points[start:])
            if held.stage.size == held.stage.limit:
                self._flush(held)
        self._broken = False

    def view(self, panes: Iterable[int]) -> WindowView:
        """Return the view of a window of one pane, for one release, with `scores` in place of counts.

        From then on `add` refuses points for this pane, because its coins serve one release.
        """
        if self._broken:
            raise CounterBroken
        wanted = [self._panes[pane] for pane in panes if pane in self._panes]
        if len(wanted) > 1:
            raise ConfigError("must be one pane: sampled counts are for tumbling windows", "panes")
        empty = np.empty(0, np.int64)
        if not wanted:
            return WindowView((), (), empty, (), self.dimension, empty, (self.kind, self.rate))
        held = wanted[0]
        if held.seen is None:
            self._broken = True
            self._flush(held)
            held.seen = held.view((self.kind, self.rate))
            self._broken = False
        return held.seen

    def drop(self, pane: int) -> None:
        """Forget a pane, its points and its coins."""
        self._panes.pop(pane, None)

    def _flush(self, held: _SampledPane) -> None:
        stage = held.stage
        if stage.size:
            held.count(stage.points[: stage.size], self._radius_squared, self._noise)
            stage.size = 0
        partners = max(1.0, float(self.rate) * held.size)
        stage.limit = int(max(_MIN_STAGED, min(_MAX_STAGED, _WORK / (partners * self.dimension))))

    @abstractmethod
    def _new_pane(self) -> _SampledPane: ...


class _SampledPane(ABC):
    """Points of one window, with their scores."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.size = 0
        self.stage = StagedPoints(dimension, _MIN_STAGED)
        self.seen: WindowView | None = None

    @abstractmethod
    def count(self, points: NDArray[np.float64], radius_squared: float, noise: Noise) -> None: ...

    @abstractmethod
    def view(self, sampling: tuple[str, Fraction]) -> WindowView: ...


class BlockCounts(SampledCounts):
    """Sampled counts in which every point draws one of B blocks on a circle and meets only the c blocks around its own.

    Parameters
    ----------
    dimension : int
    radius_squared : int
        In lattice steps, in [1, 2**53).
    blocks : int
        B, a power of two up to 2**24, fixed before the window from public facts; one block for 32 to 63 points works
        well.
    partners : int
        c, the number of blocks that a block is compared with, itself included: odd, or all blocks. The rate is c / B.
    noise : Noise
        The source of the coins.

    Notes
    -----
    For every single point, independent coins of rate c / B choose its sampled partners, as
    `fcstream.cores.sampled_filters.SparseZCDPFilter` needs. Two points of one block share partners. Block sizes are
    private.

    Complexity
    ----------
    n**2 * c / (2 B) pairs in contiguous memory. Memory: 8 * d bytes per point, up to half as much again for tiles that
    are not full, 12 bytes more per point, and 32 bytes per block.

    Source
    ------
    Specification 3.3; proof 3.5; ours.
    """

    kind = "blocks"

    def __init__(self, dimension: int, radius_squared: int, blocks: int, partners: int, noise: Noise) -> None:
        if not 1 <= blocks <= MAX_BLOCKS or blocks & (blocks - 1):
            raise ConfigError("must be a power of two up to 2**24", "blocks", got=blocks)
        if not 1 <= partners <= blocks or (partners % 2 == 0 and partners != blocks):
            raise ConfigError(f"must be odd and at most `blocks`={blocks}, or equal to it", "partners", got=partners)
        super().__init__(dimension, radius_squared, Fraction(partners, blocks), noise)
        self._blocks, self._block_reach = blocks, partners // 2

    def _new_pane(self) -> _SampledPane:
        return _BlockPane(self.dimension, self._blocks, self._block_reach)


class _BlockPane(_SampledPane):
    def __init__(self, dimension: int, blocks: int, reach: int) -> None:
        super().__init__(dimension)
        self._blocks, self._reach = blocks, reach
        self._open = np.full(blocks, -1, np.int64)
        self._sizes = np.zeros(blocks, np.int64)
        self._tiles = 0
        self._used = np.zeros(_FIRST_TILES, np.int32)
        self._tile_blocks = np.zeros(_FIRST_TILES, np.int32)
        self._counts = np.zeros(_FIRST_TILES * LANES, np.int32)
        self._chunks: list[tuple[int, NDArray[np.float64]]] = []

    def count(self, points: NDArray[np.float64], radius_squared: float, noise: Noise) -> None:
        """Compare new points with the stored ones and with each other, then store them."""
        from .._kernels import pairs, samples

        m = len(points)
        row_blocks = noise.uniform_bits(self._blocks.bit_length() - 1, m)
        order, row_starts = np.empty(m, np.int64), np.empty(self._blocks + 1, np.int64)
        samples.sort_by_block(row_blocks, order, row_starts)
        row_blocks = row_blocks[order]
        rows = np.empty((m + _GAP, self.dimension))
        rows[:m], rows[m:] = points[order], np.inf
        row_counts = np.zeros(m + _GAP, np.int32)
        for first, tiles in self._chunks:
            here = slice(first, min(self._tiles, first + len(tiles)))
            if here.start < here.stop:
                pairs.sweep_blocks(
                    rows, row_starts, self._reach, tiles[: here.stop - first], self._tile_blocks[here], radius_squared,
                    row_counts, self._counts[here.start * LANES : here.stop * LANES],
                )  # fmt: skip
        pairs.sweep_fresh(rows, m, row_blocks, row_starts, self._reach, radius_squared, row_counts)
        self._store(rows, row_starts, row_counts[:m])

    def _store(self, rows: NDArray[np.float64], row_starts: NDArray[np.int64], row_counts: NDArray[np.int32]) -> None:
        from .._kernels import samples

        m, before = len(row_counts), self._tiles
        most = before + int(np.minimum(np.diff(row_starts), m).clip(0, 1).sum()) + m // LANES + 1
        self._make_room(most)
        slots = np.empty(m, np.int64)
        self._tiles = samples.assign_slots(row_starts, self._open, before, self._used, self._tile_blocks, slots)
        for first, tiles in self._chunks:
            tiles[max(0, before - first) : max(0, self._tiles - first)] = np.inf  # a free lane is no point's friend
            samples.store(rows, slots, first, tiles)
        self._counts[slots] = row_counts
        self._sizes += np.diff(row_starts)
        self.size += m

    def _make_room(self, tiles: int) -> None:
        if tiles > len(self._used):
            grow = max(tiles, 2 * len(self._used)) - len(self._used)
            self._used = np.append(self._used, np.zeros(grow, np.int32))
            self._tile_blocks = np.append(self._tile_blocks, np.zeros(grow, np.int32))
            self._counts = np.append(self._counts, np.zeros(grow * LANES, np.int32))
        held = self._chunks[-1][0] + len(self._chunks[-1][1]) if self._chunks else 0
        if tiles > held:
            more = max(tiles - held, min(max(_FIRST_TILES, held), _MAX_TILES))
            self._chunks.append((held, aligned((more, self.dimension, LANES), np.float64)))  # type: ignore[arg-type]

    def view(self, sampling: tuple[str, Fraction]) -> WindowView:
        from .._kernels import samples

        partners = np.empty(self._blocks, np.int64)
        samples.sampled_partners(self._sizes, self._reach, partners)
        tiles, lanes, scores = [], [], []
        for first, array in self._chunks:
            here = slice(first, min(self._tiles, first + len(array)))
            if here.start >= here.stop:
                continue
            inside = np.flatnonzero((np.arange(LANES) < self._used[here, None]).ravel())
            tiles.append(array[: here.stop - first])
            lanes.append(inside)
            friends = self._counts[here.start * LANES : here.stop * LANES][inside].astype(np.int64) - 1
            degree = partners[self._tile_blocks[here]][inside // LANES] - 1
            scores.append(1 + 2 * friends - degree)
        return WindowView(
            tuple(tiles), tuple(lanes), np.empty(0, np.int64), (), self.dimension, np.concatenate(scores), sampling
        )


class HiddenCounts(SampledCounts):
    """Sampled counts in which each ordered pair (i uses j) is compared if its own secret coin of rate `rate` says so.

    Parameters
    ----------
    dimension : int
    radius_squared : int
        In lattice steps, in [1, 2**53).
    rate : Fraction
        In (0, 1], fixed before the window from public facts.
    noise : Noise
        The source of the coins, which are exact however small the rate is.

    Complexity
    ----------
    n**2 * rate pairs, each at another address in memory, so some ten to hundred nanoseconds per pair. Memory: 8 * d + 8
    bytes per point, up to twice as much while arrays grow.

    Source
    ------
    Specification 3.4; proof 3.6; ours. Coins are skipped over, not flipped one by one: gaps between heads are exact
    geometric numbers.
    """

    kind = "hidden"

    def _new_pane(self) -> _SampledPane:
        return _HiddenPane(self.dimension, self.rate)


class _HiddenPane(_SampledPane):
    def __init__(self, dimension: int, rate: Fraction) -> None:
        super().__init__(dimension)
        self._rate = rate
        self._points: NDArray[np.float64] = np.empty((_MIN_STAGED, dimension))
        self._scores = np.zeros(_MIN_STAGED, np.int64)

    def count(self, points: NDArray[np.float64], radius_squared: float, noise: Noise) -> None:
        from .._kernels import samples

        start, stop = self.size, self.size + len(points)
        if stop > len(self._points):
            room = max(stop, 2 * len(self._points))
            grown, scores = np.empty((room, self.dimension)), np.zeros(room, np.int64)
            grown[:start], scores[:start] = self._points[:start], self._scores[:start]
            self._points, self._scores = grown, scores
        self._points[start:stop] = points
        row, at = start, 0
        while row < stop:
            left = float(self._rate) * (stop * (stop - 1) - row * (row - 1) - at)
            gaps = noise.failures(self._rate, int(min(_WORDS, 1.1 * left + 64)))
            row, at = samples.use_random_bits(self._points, row, stop, at, gaps, radius_squared, self._scores)
        self.size = stop

    def view(self, sampling: tuple[str, Fraction]) -> WindowView:
        """Return the view, with the points put into tiles for the sums of a release."""

        count = -(-self.size // LANES)
        rows = np.full((count * LANES, self.dimension), np.inf)
        rows[: self.size] = self._points[: self.size]
        tiles = np.ascontiguousarray(rows.reshape(count, LANES, self.dimension).transpose(0, 2, 1))
        return WindowView(
            (tiles,), (np.arange(self.size),), np.empty(0, np.int64), (), self.dimension,
            1 + self._scores[: self.size], sampling,
        )  # fmt: skip
