"""Friend counts under any predicate, kept up to date while items arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, Shown

Arrays = tuple[NDArray[Any], ...]
LANES = 64
"""Number of items per tile: a kernel compares one item with one tile and returns a word of bits."""
BATCH = 256
"""Number of items that are compared at once."""
_FIRST_TILES, _MAX_TILES = 4, 1024
_EVERY_LANE = 2**62
_PIVOT_AT, _PIVOT_AFTER = 64, 8


class Predicate(ABC):
    """Predicate of two items, the rows of arrays: a pure and symmetric function that says if they are friends."""

    __slots__ = ()

    @abstractmethod
    def _family(self) -> Family:
        """Make the object that stores and compares items under this predicate, one for each counter."""

    def __call__(self, x: object, y: object) -> bool:
        """Decide whether two items are friends, by the same kernel that counts.

        Raises
        ------
        ConfigError
            The items have another shape or type than the predicate takes.
        """
        first, second = np.asarray(x), np.asarray(y)
        if first.shape != second.shape:
            raise ConfigError("must have the same shape", "items", got=Shown(f"{first.shape} and {second.shape}"))
        counter = PredicateCounts(self)
        counter.add(0, np.stack([first, second]))
        return int(counter.counts([0])[0]) == 2


class Family(ABC):
    """Storage of one kind of items in lanes, and their comparison. Internal."""

    led = False  # whether counting gets faster after `set_pivot` with a typical item

    @abstractmethod
    def check(self, items: object) -> NDArray[Any]:
        """Convert items (n, ...) to the form that this family stores, or raise a ConfigError that shows no item."""

    def rows(self, items: NDArray[Any]) -> Arrays:
        """Prepare new items for comparison and storage: arrays of equal length."""
        return (items,)

    @abstractmethod
    def allocate(self, tiles: int) -> Arrays:
        """Allocate arrays for that many tiles."""

    def store(self, rows: Arrays, first: int, arrays: Arrays) -> None:
        """Copy rows into the lanes first, first + 1, ..., those that exist in the arrays."""
        from .._kernels import lane_counts

        for row, array in zip(rows, arrays, strict=False):  # what else belongs to rows is not kept
            lane_counts.store(row, first, array)

    @abstractmethod
    def compare(self, rows: Arrays, arrays: Arrays, used: int, first: int, masks: NDArray[np.uint64]) -> None:
        """Fill masks (tiles, rows) so that bit j of masks[t, i] says if row i and lane t * LANES + j are friends.

        Only lanes below min(used, first + i) matter.
        """

    def items(self, arrays: Arrays, used: int) -> NDArray[Any]:
        """Return the first `used` items, if the family is led."""
        raise NotImplementedError

    def set_pivot(self, item: NDArray[Any]) -> None:
        """Take a typical item as the pivot; rows that were made before must be made and stored again."""
        raise NotImplementedError


class _LaneBlock:
    """Block of consecutive tiles with a fixed capacity, which begins at lane `first` of its pane."""

    __slots__ = ("arrays", "first", "lanes")

    def __init__(self, first: int, tiles: int, family: Family) -> None:
        self.first = first
        self.lanes = tiles * LANES
        self.arrays = family.allocate(tiles)


class _ItemPane:
    """Items of one pane in order of arrival, and their counts with every pane in reach."""

    def __init__(self) -> None:
        self.chunks: list[_LaneBlock] = []
        self.size = 0
        self.lanes = 0
        self.counts: dict[int, NDArray[np.int32]] = {}
        self.pivot_at = _PIVOT_AT

    def counts_with(self, pane: int) -> NDArray[np.int32]:
        """Return the counts with one pane, one number per lane; they are allocated at first use."""
        found = self.counts.get(pane)
        if found is None or len(found) < self.lanes:
            grown = np.zeros(self.lanes, np.int32)
            if found is not None:
                grown[: len(found)] = found
            found = self.counts[pane] = grown
        return found

    def insert(self, rows: Arrays, family: Family) -> int:
        """Store rows after the stored ones, and return the lane of the first of them."""
        first = self.size
        while self.lanes < first + len(rows[0]):
            # Chunks double in size, so there are few of them; lanes not yet used are not touched and cost no memory.
            tiles = min(max(_FIRST_TILES, self.lanes // LANES), _MAX_TILES)
            self.chunks.append(_LaneBlock(self.lanes, tiles, family))
            self.lanes += tiles * LANES
        self.size += len(rows[0])
        self.refill(rows, first, family)
        return first

    def refill(self, rows: Arrays, first: int, family: Family) -> None:
        """Store rows in lanes, from `first` on, that are assigned to them already."""
        for chunk in self.chunks:
            if chunk.first + chunk.lanes > first:
                family.store(rows, first - chunk.first, chunk.arrays)


class PredicateCounts:
    """Exact friend counts under a predicate, kept pane by pane while items arrive (specification 3.5).

    Parameters
    ----------
    predicate : Predicate
    reach : int
        Panes whose numbers differ by less than `reach` may share a window, so their items are compared; 1 for tumbling
        windows.

    Raises
    ------
    ConfigError
        `predicate` is not a predicate, or `reach` is below 1.

    Notes
    -----
    A pair of items is compared once, even if it arrives in two batches or many windows hold both items. Whether the two
    are friends depends on these two items alone, so counts do not depend on order or batches. An item always counts as
    its own friend, even if the predicate does not hold for it and an equal item. The counts are exact and NOT private;
    the time that counting takes depends on the items.

    A counter may be used by one thread at a time. Different threads may use different counters at once, since the
    kernels release the GIL.

    Complexity
    ----------
    `add` of m items costs at most m * n comparisons with the panes in reach; `counts` is O(n * reach); `drop` O(n).
    Memory: the items, 4 bytes for each item and pane in reach, and up to 2 MiB of working space.
    """

    def __init__(self, predicate: Predicate, reach: int = 1) -> None:
        if not isinstance(predicate, Predicate):
            raise ConfigError(
                "must be a predicate of fcstream.predicates", "predicate", got=Shown(type(predicate).__name__)
            )
        if reach < 1:
            raise ConfigError("must be at least 1", "reach", got=reach)
        self.predicate = predicate
        self._family = predicate._family()
        self._reach = reach
        self._panes: dict[int, _ItemPane] = {}
        self._masks = np.empty(0, np.uint64)
        self._is_broken = False

    @property
    def panes(self) -> list[int]:
        """Panes that hold items, ascending."""
        return sorted(self._panes)

    def size(self, pane: int) -> int:
        """Return the number of items in one pane."""
        return self._panes[pane].size if pane in self._panes else 0

    def add(self, pane: int, items: object) -> None:
        """Add items to a pane and count their friends.

        Parameters
        ----------
        pane : int
        items : array (m, ...)
            Items of the shape and type that the predicate names; copied, not changed.

        Raises
        ------
        ConfigError
            The predicate does not take such items, and nothing has changed. Or an earlier error in the middle of an
            `add` has broken the counter.
        """
        self._whole()
        checked = self._family.check(items)
        start = 0
        while start < len(checked):
            held = self._panes.setdefault(pane, _ItemPane())
            if self._family.led and held.size >= held.pivot_at:
                self._set_pivot(pane, held)
            stop = start + (LANES if self._family.led and held.size < _PIVOT_AT else BATCH)
            self._is_broken = True
            self._add_batch(pane, held, self._family.rows(checked[start:stop]))
            self._is_broken = False
            start = stop

    def counts(self, panes: Iterable[int]) -> NDArray[np.int64]:
        """Return the friend count of every item of a window.

        Parameters
        ----------
        panes : iterable of int
            The window's panes, present or not, less than `reach` apart.

        Returns
        -------
        int64 (n,)
            The counts in order of arrival, with panes ascending.

        Raises
        ------
        ConfigError
            The panes are so far apart that they were not compared.
        """
        self._whole()
        asked = sorted(set(panes))
        if asked and asked[-1] - asked[0] >= self._reach:
            raise ConfigError(
                f"must be less than reach={self._reach} apart", "panes", got=Shown(f"{asked[0]} to {asked[-1]}")
            )
        wanted = [pane for pane in asked if pane in self._panes]
        parts = []
        for pane in wanted:
            held = self._panes[pane]
            total = np.zeros(held.size, np.int64)
            for other in wanted:
                if other in held.counts:
                    some = held.counts[other][: held.size]
                    total[: len(some)] += some
            parts.append(total)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def drop(self, pane: int) -> None:
        """Forget a pane: its items, and other panes' counts with it. Dropping an absent pane does nothing."""
        if self._panes.pop(pane, None) is None:
            return
        for other in self._in_reach(pane):
            self._panes[other].counts.pop(pane, None)

    def _in_reach(self, pane: int) -> list[int]:
        return [other for other in range(pane - self._reach + 1, pane + self._reach) if other in self._panes]

    def _whole(self) -> None:
        if self._is_broken:
            raise ConfigError(
                "must not be used after an error in the middle of `add`", "counter", remedy="make a new one"
            )

    def _add_batch(self, pane: int, held: _ItemPane, rows: Arrays) -> None:
        from .._kernels import lane_counts as kernels

        m = len(rows[0])
        start = held.insert(rows, self._family)
        for other in self._in_reach(pane):
            neighbor = self._panes[other]
            row_counts, lane_counts = np.zeros(m, np.int32), neighbor.counts_with(pane)
            for chunk in neighbor.chunks:
                used = min(chunk.lanes, neighbor.size - chunk.first)
                first = start - chunk.first if neighbor is held else _EVERY_LANE
                tiles = -(-used // LANES)
                masks = self._room(tiles, m)
                self._family.compare(rows, chunk.arrays, used, first, masks)
                kernels.add_bits(
                    masks, tiles, first, used, row_counts, lane_counts[chunk.first : chunk.first + chunk.lanes]
                )
            held.counts_with(other)[start : start + m] += row_counts
        held.counts_with(pane)[start : start + m] += 1

    def _room(self, tiles: int, m: int) -> NDArray[np.uint64]:
        if tiles * m > self._masks.size:
            self._masks = np.empty(tiles * m, np.uint64)
        return self._masks[: tiles * m].reshape(tiles, m)

    def _set_pivot(self, pane: int, held: _ItemPane) -> None:
        """Take the item with the most friends so far as the pivot, and store all items again."""

        held.pivot_at = _PIVOT_AFTER * held.size
        best = int(np.argmax(held.counts_with(pane)[: held.size]))
        chunk = next(chunk for chunk in reversed(held.chunks) if chunk.first <= best)
        self._family.set_pivot(self._family.items(chunk.arrays, best - chunk.first + 1)[-1])
        for other in self._panes.values():
            for chunk in other.chunks:
                used = min(chunk.lanes, other.size - chunk.first)
                if used > 0:
                    self._family.store(self._family.rows(self._family.items(chunk.arrays, used)), 0, chunk.arrays)
