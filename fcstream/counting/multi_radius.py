"""Friend counts for many radii at once, kept up to date while points arrive.

A private search for a diameter reads them when a window closes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, Shown
from ..noise.samplers import Noise
from ..stream.lattice import MAX_RADIUS_SQUARED
from .exact import FriendCounts, PointCounts
from .tiles import LANES, SortedRows, TileSegment
from .views import Selection, WindowView, numbered

MAX_RADII = 256
_WORK = 20_000_000  # pairs to compare for one batch of staged points: about ten milliseconds
_MAX_STAGED, _MIN_STAGED = 2048, 32


@dataclass(frozen=True, slots=True)
class MultiRadiusView:
    """View of a window with its friend counts for each of several radii (specification 3.2); private.

    Valid until the next `add` or `drop`.

    Attributes
    ----------
    parts : tuple of (float64 (t, d, LANES), int64 (n_i,), tuple of int32 (t, radii, LANES))
        Tiles; which of their lanes hold points; and for each pane of the window and each radius, how many points lie
        within that radius of a lane's point but not within the next smaller radius.
    radii, dimension : int
    arrivals : tuple of int32 or int64 (t * LANES,)
        See `WindowView`.
    """

    parts: tuple[tuple[NDArray[np.float64], NDArray[np.int64], tuple[NDArray[np.int32], ...]], ...]
    radii: int
    dimension: int
    arrivals: tuple[NDArray[np.int32] | NDArray[np.int64], ...] = ()

    def __repr__(self) -> str:
        return f"<MultiRadiusView of {self.radii} radii>"  # points and counts are private

    @property
    def size(self) -> int:
        return sum(len(lanes) for _, lanes, _ in self.parts)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Friend count of every point for each radius, in the order of `points`: int64 (radii, n)."""
        return np.stack([self._counts(index) for index in range(self.radii)])

    @property
    def points(self) -> NDArray[np.float64]:
        """The window's lattice points as rows (n, d), copied."""
        return self.at(0).points()

    @property
    def pairs(self) -> NDArray[np.object_]:
        """Number of ordered pairs within each radius, each point's pair with itself included: Python integers (radii,).

        The 32-bit counts cannot overflow: one pane holds fewer than 2**31 points, so one point has fewer than 2**31
        pairs with it, and each of `parts` holds fewer than 2**31 points.
        """
        from .._kernels import sums

        totals = [0] * self.radii
        for _, _, by_radius in self.parts:
            for some in by_radius:
                found = np.zeros(self.radii, np.int64)
                sums.radius_totals(some, found)
                totals = [a + b for a, b in zip(totals, found.tolist(), strict=True)]
        return np.array(list(itertools.accumulate(totals)), object)

    def select(self, mask: NDArray[np.bool_]) -> Selection:
        """Select the points whose entry is true in a mask (n,), which is in the order of `points`."""
        return self.at(0).select(mask)

    def at(self, index: int) -> WindowView:
        """Return the window's view for one radius, equal to that of a counter for this radius alone."""
        tiles, lanes = (tuple(part[i] for part in self.parts) for i in (0, 1))
        return WindowView(tiles, lanes, self._counts(index), self.arrivals, self.dimension)  # type: ignore[arg-type]

    def _counts(self, index: int) -> NDArray[np.int64]:
        from .._kernels import sums

        counts, start = np.zeros(self.size, np.int64), 0
        for _, lanes, by_radius in self.parts:
            here = counts[start : start + len(lanes)]
            for some in by_radius:
                sums.counts_within(some, index, lanes, here)
            start += len(lanes)
        return counts


class MultiRadiusCounts(PointCounts):
    """Exact friend counts for several radii at once, kept pane by pane while points arrive (specification 3.2).

    Parameters
    ----------
    dimension : int
        Number of coordinates, >= 1.
    radii_squared : sequence of int
        Squared radii in lattice steps, strictly ascending, in [1, 2**53); at most 256.
    reach : int
        Panes whose numbers differ by less than `reach` may share a window, so their points are compared; 1 for
        tumbling windows.

    Notes
    -----
    Every pair is compared once for all radii. A block of pairs is compared only with the radii that lie between its
    smallest and its largest distance. Counts do not depend on order or batches. They must not be replaced by counts of
    sampled pairs whose coins a core filter uses: a radius chosen from such counts would depend on the coins.

    Complexity
    ----------
    `add` of m points costs m * n * d, and some m * n more for each radius near the typical distance; `view` is O(n).
    Its `pairs` take O(n * radii) additions: some 2 ms for 100,000 points and 24 radii.
    Memory per point: 8 * d bytes and 4 per radius and pane in reach.
    """

    def __init__(self, dimension: int, radii_squared: Sequence[int], reach: int = 1) -> None:
        radii = [int(radius) for radius in radii_squared]
        if not 1 <= len(radii) <= MAX_RADII:
            raise ConfigError(f"must hold 1 to {MAX_RADII} squared radii", "radii_squared", got=len(radii))
        if any(b <= a for a, b in itertools.pairwise(radii)):
            raise ConfigError("must be strictly ascending", "radii_squared")
        if radii[0] < 1 or radii[-1] > MAX_RADIUS_SQUARED:
            raise ConfigError("must be in [1, 2**53)", "radii_squared", got=Shown(f"{radii[0]} to {radii[-1]}"))
        super().__init__(dimension, radii[-1], reach, width=len(radii))
        self._radii = np.array(radii, np.float64)

    def view(self, panes: Iterable[int]) -> MultiRadiusView:
        """Return the view of the window made of `panes`, with counts summed over them; absent panes are empty."""
        wanted = self._counted(panes)
        parts, arrivals, before = [], [], 0
        for pane in wanted:
            size = self._panes[pane].size
            for held in self._panes[pane].segments:
                for (chunk, here), lanes in zip(held.parts(), held.lanes(), strict=True):
                    by_radius = tuple(
                        self._by_radius(held.counts[other])[here] for other in wanted if other in held.counts
                    )
                    parts.append((chunk.tiles[: here.stop - here.start], lanes, by_radius))
                    arrivals.append(numbered(held.columns.arrivals[here].reshape(-1), before, size))
            before += size
        return MultiRadiusView(tuple(parts), len(self._radii), self.dimension, tuple(arrivals))

    def _by_radius(self, counts: NDArray[np.int32]) -> NDArray[np.int32]:
        """Reshape counts to (tile, radius, lane): pairs within a radius but not within the next smaller one."""

        return counts.reshape(-1, len(self._radii), LANES)

    def _max_staged(self, pane: int) -> int:
        held = sum(self._panes[other].size for other in self._neighbors(pane))
        return int(max(_MIN_STAGED, min(_MAX_STAGED, _WORK / max(held, 1))))

    def _compare(self, pane: int, held: TileSegment, other: int, neighbor: TileSegment, batch: SortedRows) -> None:
        from .._kernels import pairs

        mine = self._by_radius(held.counts_with(other)[0])
        theirs = self._by_radius(neighbor.counts_with(pane)[0])
        found = np.zeros((batch.room, len(self._radii)), np.int32)
        columns = neighbor.columns
        for chunk, here in neighbor.parts():
            tiles = chunk.tiles[: here.stop - here.start]
            pairs.sweep_radii(
                batch.rows,
                batch.size,
                tiles,
                columns.shape[here],
                columns.self_rows[here],
                self._radii,
                found,
                theirs[here],
            )
        slots = batch.slots[: batch.size]
        mine[slots // LANES, :, slots % LANES] += found[: batch.size]


@dataclass(frozen=True, slots=True)
class SampledMultiRadiusView:
    """View of a window whose records were sampled for a search (specification 3.6); private.

    Attributes
    ----------
    sample : MultiRadiusView
        The records whose coins said so, with their pairs among each other.
    everyone : WindowView
        All records, without counts.
    """

    sample: MultiRadiusView
    everyone: WindowView

    def __repr__(self) -> str:
        return "<SampledMultiRadiusView of a window>"  # points and counts are private

    @property
    def size(self) -> int:
        return self.everyone.size

    def select(self, mask: NDArray[np.bool_]) -> Selection:
        """Select the points whose entry is true in a mask (n,), which is in the order of `everyone.points`."""
        return self.everyone.select(mask)


class SampledMultiRadiusCounts:
    """Keeps all records, and compares a random part of them with each other at several radii (specification 3.6).

    Parameters
    ----------
    dimension : int
    radii_squared : sequence of int
        As for `MultiRadiusCounts`.
    rate : Fraction
        In (0, 1]: the chance of each record to be in the sample, fixed from public facts before the first record.
    noise : Noise
        The source of the coins: one for each record, independent of everything, drawn when it is added.

    Notes
    -----
    One sample serves all radii. The pairs inside it are counted exactly, and the others not at all.

    Complexity
    ----------
    rate**2 of the work of `MultiRadiusCounts`. Memory: 8 * d bytes per record, besides what the sample takes.

    Source
    ------
    Specification 3.6; proof 5.8; ours.
    """

    def __init__(self, dimension: int, radii_squared: Sequence[int], rate: Fraction, noise: Noise) -> None:
        if not isinstance(rate, Fraction) or not 0 < rate <= 1:
            raise ConfigError("must be a Fraction in (0, 1]", "rate", got=rate)
        self.rate = rate
        self._everyone = FriendCounts(dimension, None)
        self._sample = MultiRadiusCounts(dimension, radii_squared)
        self._noise = noise

    @property
    def panes(self) -> list[int]:
        """Panes that hold points, ascending."""
        return self._everyone.panes

    def size(self, pane: int) -> int:
        """Return the number of points in one pane."""
        return self._everyone.size(pane)

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Add lattice points (m, d) to a pane, each to the sample too if its coin says so."""
        chances = np.full(len(points), self.rate.numerator, np.int64)
        chosen = self._noise.bernoulli(chances, self.rate.denominator)
        self._everyone.add(pane, points)
        self._sample.add(pane, points[chosen])

    def drop(self, pane: int) -> None:
        """Forget a pane, its points and its coins."""
        for counter in (self._everyone, self._sample):
            counter.drop(pane)
            counter.free_spare()

    def view(self, panes: Iterable[int]) -> SampledMultiRadiusView:
        """Return the view of the window made of `panes`; absent panes are empty."""
        wanted = list(panes)
        return SampledMultiRadiusView(self._sample.view(wanted), self._everyone.view(wanted))
