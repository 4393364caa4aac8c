"""Counters of table records: exact second moments, packed records, cells, and contingency tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..stream.panes import PaneStore
from .cells import Cells
from .codes import Codes
from .triples import Triples

_WORD = 64
_MIN_BLOCK, _MAX_BLOCK = 64, 65_536


class _Blocks:
    """Packed records in growing blocks, so that a window whose records come one by one is still kept in few blocks."""

    def __init__(self, words: int, levels: int) -> None:
        self._shape = words, levels
        self._blocks: list[tuple[NDArray[np.uint64], NDArray[np.uint16]]] = []
        self._used = 0  # rows used of the last block
        self.size = 0

    def take(self, words: NDArray[np.uint64], levels: NDArray[np.uint16]) -> None:
        done = 0
        while done < len(words):
            if not self._blocks or self._used == len(self._blocks[-1][0]):
                capacity = min(max(self.size, len(words) - done, _MIN_BLOCK), _MAX_BLOCK)
                self._blocks.append(
                    (np.empty((capacity, self._shape[0]), np.uint64), np.empty((capacity, self._shape[1]), np.uint16))
                )
                self._used = 0
            own_words, own_levels = self._blocks[-1]
            more = min(len(words) - done, len(own_words) - self._used)
            own_words[self._used : self._used + more] = words[done : done + more]
            own_levels[self._used : self._used + more] = levels[done : done + more]
            self._used, self.size, done = self._used + more, self.size + more, done + more

    def since(self, first: int) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint16]]]:
        """Yield the records from number `first` on."""
        for k, (words, levels) in enumerate(self._blocks):
            held = self._used if k == len(self._blocks) - 1 else len(words)
            if first < held:
                yield words[first:held], levels[first:held]
            first = max(0, first - held)


@dataclass(slots=True)
class _TablePane:
    """Records of one pane; `counts` and `ones` hold the counts in `cells` of its first `counted` records."""

    moments: NDArray[np.int64]
    records: _Blocks
    triples: NDArray[np.int64]
    size: int = 0
    cells: Cells | None = None
    counted: int = 0
    counts: NDArray[np.int64] | None = None
    ones: NDArray[np.int64] | None = None


class TableCounts(PaneStore[_TablePane]):
    """Counter of table records: second moments of each pane, updated as records come, and the packed records
    themselves.

    Parameters
    ----------
    codes : Codes
    cells : Cells, optional
        Public cells in which records are counted as they come. Records are not kept then.
    keeps : bool
        Whether records are kept if there are no public cells; with False only second moments are.
    triples : Triples, optional
        Public triples in which records are counted as they come, for records that are not kept.

    Notes
    -----
    `prepare` names further cells in which records are counted as they come, because a later release is likely to need
    them. It makes that release faster and changes none of its numbers.
    """

    def __init__(
        self, codes: Codes, cells: Cells | None = None, keeps: bool = True, triples: Triples | None = None
    ) -> None:
        super().__init__()
        self.codes = codes
        self.triples = triples
        self.public = cells
        self._keeps = keeps and cells is None
        self._ahead: Cells | None = None
        offsets = codes.offsets[codes.booleans :]
        self._offsets = np.array(offsets, np.int64)

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        codes, m = self.codes, len(points)
        from .._kernels import synthetic as kernels

        words = np.zeros((m, -(-codes.booleans // _WORD)), np.uint64)
        levels = np.empty((m, len(codes.attributes) - codes.booleans), np.uint16)
        if pane not in self._held:
            moments = np.zeros((codes.bits, codes.bits), np.int64)
            blocks = _Blocks(words.shape[1], levels.shape[1])
            number = 0 if self.triples is None else len(self.triples.bits)
            self._held[pane] = _TablePane(moments, blocks, np.zeros(number, np.int64))
        held = self._held[pane]
        kernels.pack(points, *codes.tables, codes.booleans, words, levels)
        kernels.add_pairs(words, levels, self._offsets, codes.booleans, held.moments)
        held.size += m
        if self.public is not None:
            self._count(held, self.public, ((words, levels),))
        if self.triples is not None:
            self._count_triples(((words, levels),), self.triples, held.triples)
        if self._keeps:
            held.records.take(words, levels)
        if self._ahead is not None:
            self._up_to_date(held, self._ahead)

    def view(self, panes: Iterable[int]) -> TableView:
        return TableView(self, self.held(panes))

    def prepare(self, cells: Cells) -> None:
        """Count later records in these cells too as they come."""
        self._ahead = cells

    def _up_to_date(self, held: _TablePane, cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the counts of all records of a pane in some cells."""
        if self.public is not None:
            return self._count(held, self.public, ())
        if held.cells != cells:
            held.counted = 0
        found = self._count(held, cells, held.records.since(held.counted))
        held.counted = held.size
        return found

    def _count_triples(
        self,
        parts: Iterable[tuple[NDArray[np.uint64], NDArray[np.uint16]]],
        triples: Triples,
        counts: NDArray[np.int64],
    ) -> None:
        """Add to counts (T,) the records in which all three bits of a triple are set."""
        from .._kernels import synthetic as kernels

        for part in parts:
            kernels.add_triples(*part, self._offsets, self.codes.booleans, self.codes.bits, triples.bits, counts)

    def _count(
        self, held: _TablePane, cells: Cells, parts: Iterable[tuple[NDArray[np.uint64], NDArray[np.uint16]]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Add records to the counts of a pane in some cells, and return these counts."""
        from .._kernels import synthetic as kernels

        if held.cells != cells or held.counts is None or held.ones is None:
            held.cells = cells
            held.counts = np.zeros(cells.number, np.int64)
            held.ones = np.zeros((cells.number, self.codes.bits), np.int64)
        rest: Any = (self._offsets, self.codes.booleans, *cells.arrays, held.counts, held.ones)
        for part in parts:
            kernels.add_cells(*part, *rest)
        return held.counts, held.ones


class TableView:
    """View of a window's table records; private."""

    def __init__(self, counter: TableCounts, panes: Sequence[_TablePane]) -> None:
        self._counter = counter
        self._panes = panes

    @property
    def size(self) -> int:
        """Number of records."""
        return sum(pane.size for pane in self._panes)

    @property
    def public(self) -> Cells | None:
        """The cells in which records were counted as they came, if there are any."""
        return self._counter.public

    def moments(self) -> NDArray[np.int64]:
        """Count, for every two bits, the records in which both are set: symmetric (p, p)."""
        total = np.zeros((self._counter.codes.bits,) * 2, np.int64)
        for pane in self._panes:
            total += pane.moments
        upper = np.triu(total, 1)
        return upper + upper.T + np.diag(np.diag(total))

    def cells(self, cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the records in each cell (s,), and how often each bit is set in it (s, p).

        Where the counter has public cells, `cells` must be these.
        """
        counts, ones = np.zeros(cells.number, np.int64), np.zeros((cells.number, self._counter.codes.bits), np.int64)
        for pane in self._panes:
            more, set_ = self._counter._up_to_date(pane, cells)
            counts += more
            ones += set_
        return counts, ones

    @property
    def triples_ahead(self) -> Triples | None:
        """The triples in which records were counted as they came, if there are any."""
        return self._counter.triples

    def triples(self, triples: Triples) -> NDArray[np.int64]:
        """Count for each of some triples of bits the records in which all three are set (T,).

        Where the counter has public triples, `triples` must be these.
        """
        counts = np.zeros(len(triples.bits), np.int64)
        for pane in self._panes:
            if self._counter.triples is not None:
                counts += pane.triples
            else:
                self._counter._count_triples(pane.records.since(0), triples, counts)
        return counts

    def bits(self) -> NDArray[np.int64]:
        """Unpack all records of the window into bits (n, p)."""
        from .._kernels import synthetic as kernels

        codes = self._counter.codes
        found = [np.empty((0, codes.bits), np.int64)]
        for words, levels in (part for pane in self._panes for part in pane.records.since(0)):
            rows = np.empty((len(words), len(codes.attributes)), np.int64)
            kernels.unpack(words, levels, codes.booleans, rows)
            found.append(codes.encoded(rows))
        return np.concatenate(found)

    def prepare(self, cells: Cells) -> None:
        """Count later records in these cells too as they come, see `TableCounts.prepare`."""
        self._counter.prepare(cells)


@dataclass(frozen=True)
class ContingencyTables:
    """Contingency tables of all sets of `order` attributes, one after the other in one array.

    Privacy
    -------
    A record adds one to one cell of every table, so the l2 sensitivity is the root of the number of tables.
    """

    sizes: tuple[int, ...]
    order: int

    @cached_property
    def sets(self) -> list[tuple[int, ...]]:
        return list(itertools.combinations(range(len(self.sizes)), self.order))

    @property
    def number(self) -> int:
        """Number of tables, computed without listing them."""
        return math.comb(len(self.sizes), self.order)

    @property
    def cells(self) -> int:
        """Number of cells of all tables, without listing them: the elementary symmetric polynomial of the sizes."""
        sums = [1] + [0] * self.order
        for size in self.sizes:
            for k in range(self.order, 0, -1):
                sums[k] += size * sums[k - 1]
        return sums[self.order]

    def layout(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return members, strides and starts of the tables, for the counting kernel."""
        members = np.array(self.sets, np.int64).reshape(-1, self.order)
        sizes = np.array(self.sizes, np.int64)[members]
        after = np.concatenate([sizes[:, 1:], np.ones((len(members), 1), np.int64)], axis=1)
        strides = np.cumprod(after[:, ::-1], axis=1)[:, ::-1].copy()
        starts = np.concatenate([[0], np.cumsum(np.prod(sizes, axis=1))[:-1]]).astype(np.int64)
        return members, strides, starts


class PairPanes:
    """Counter of two-way contingency tables, computed from second moments; records are not kept.

    For many columns it is many times faster than `TablePanes`, because it compares 64 Booleans at a time.
    """

    def __init__(self, codes: Codes, tables: ContingencyTables) -> None:
        self._tables = tables
        self._moments = TableCounts(codes, keeps=False)
        self.add, self.drop = self._moments.add, self._moments.drop
        sizes = [one.size for one in codes.attributes]
        offsets = np.repeat(codes.offsets, sizes)
        level = np.concatenate([np.arange(size) for size in sizes])
        is_boolean = np.repeat(sizes, sizes) == 2
        self._bits = 1 + offsets + np.where(is_boolean, 0, level)
        self._absent = is_boolean & (level == 0)
        self._ends = np.cumsum(sizes).tolist()

    @property
    def panes(self) -> list[int]:
        return self._moments.panes

    def view(self, panes: Iterable[int]) -> NDArray[np.int64]:
        """Return all tables of a window; private."""
        window = self._moments.view(panes)
        moments = window.moments()
        ones = np.diag(moments)
        whole = np.block([[np.array([[window.size]]), ones[None, :]], [ones[:, None], moments]])
        both = self._by_level(np.ascontiguousarray(self._by_level(whole).T))
        blocks = [slice(end - size, end) for end, size in zip(self._ends, self._tables.sizes, strict=True)]
        return np.concatenate([both[blocks[a], blocks[b]].ravel() for a, b in self._tables.sets])

    def _by_level(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Turn rows for all records and for each bit (1 + p, k) into rows for each level.

        A Boolean is false for the records that lack its bit.
        """
        found: NDArray[np.int64] = counts[self._bits]
        found[self._absent] = counts[0] - found[self._absent]
        return found


class TablePanes(PaneStore["NDArray[np.int64]"]):
    """Counter of contingency tables of any order; records are not kept."""

    def __init__(self, codes: Codes, tables: ContingencyTables) -> None:
        super().__init__()
        self._codes, self._tables = codes, tables
        self._layout = tables.layout()
        self._cells = tables.cells

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        from .._kernels import synthetic as kernels

        codes, m = self._codes, len(points)
        words = np.zeros((m, -(-codes.booleans // _WORD)), np.uint64)
        levels = np.empty((m, len(codes.attributes) - codes.booleans), np.uint16)
        kernels.pack(points, *codes.tables, codes.booleans, words, levels)
        rows = np.empty((m, len(codes.attributes)), np.int64)
        kernels.unpack(words, levels, codes.booleans, rows)
        held = self._held.setdefault(pane, np.zeros(self._cells, np.int64))
        kernels.add_tables(rows, *self._layout, held)

    def view(self, panes: Iterable[int]) -> NDArray[np.int64]:
        """Return all tables of a window; private."""
        total = np.zeros(self._cells, np.int64)
        for held in self.held(panes):
            total += held
        return total
