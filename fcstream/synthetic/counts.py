"""What a window of public levels is kept as: exact second moments, packed records, cells, contingency tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .cells import Cells
    from .codes import Codes

_WORD = 64


@dataclass(slots=True)
class _Pane:
    """Records of one pane. `cells` were counted of the first `counted` parts, for the cells of that name."""

    moments: NDArray[np.int64]
    size: int = 0
    parts: list[tuple[NDArray[np.uint64], NDArray[np.uint16]]] = field(default_factory=list)
    cells: Cells | None = None
    counted: int = 0
    counts: NDArray[np.int64] | None = None
    ones: NDArray[np.int64] | None = None


class TableCounts:
    """Counts and second moments per pane as records come, and the records in some bits each.

    Parameters
    ----------
    codes : Codes
    cells : Cells, optional
        Public cells that are counted as records come; no records are kept then.

    Notes
    -----
    `prepare` names cells to count as records come, because a later release is likely to ask for them. That changes how
    fast an answer is there, never the answer.
    """

    def __init__(self, codes: Codes, cells: Cells | None = None) -> None:
        self.codes = codes
        self._public = cells
        self._ahead = cells
        self._held: dict[int, _Pane] = {}
        offsets = codes.offsets[codes.booleans :]
        self._offsets = np.array(offsets, np.int64)

    @property
    def panes(self) -> list[int]:
        return sorted(self._held)

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        codes, m = self.codes, len(points)
        from .._kernels import synthetic as kernels

        if pane not in self._held:
            self._held[pane] = _Pane(np.zeros((codes.bits, codes.bits), np.int64))
        held = self._held[pane]
        words = np.zeros((m, -(-codes.booleans // _WORD)), np.uint64)
        levels = np.empty((m, len(codes.attributes) - codes.booleans), np.uint16)
        kernels.pack(points, *codes.tables, codes.booleans, words, levels)
        kernels.add_pairs(words, levels, self._offsets, codes.booleans, held.moments)
        held.size += m
        held.parts.append((words, levels))
        if self._ahead is not None:
            self._count(held, self._ahead)
            if self._public is not None:
                held.parts, held.counted = [], 0  # counted, and not needed again

    def drop(self, pane: int) -> None:
        self._held.pop(pane, None)

    def view(self, panes: Iterable[int]) -> TableView:
        return TableView(self, [self._held[pane] for pane in panes if pane in self._held])

    def prepare(self, cells: Cells) -> None:
        """From now on count these cells too as records come."""
        self._ahead = cells

    def _count(self, held: _Pane, cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Counts of a pane's cells, up to date."""
        from .._kernels import synthetic as kernels

        if held.cells != cells or held.counts is None or held.ones is None:
            held.cells, held.counted = cells, 0
            held.counts = np.zeros(cells.number, np.int64)
            held.ones = np.zeros((cells.number, self.codes.bits), np.int64)
        rest: Any = (self._offsets, self.codes.booleans, *cells.arrays, held.counts, held.ones)
        for part in held.parts[held.counted :]:
            kernels.add_cells(*part, *rest)
        held.counted = len(held.parts)
        return held.counts, held.ones


class TableView:
    """A window: private, all of it."""

    def __init__(self, counter: TableCounts, panes: Sequence[_Pane]) -> None:
        self._counter = counter
        self._panes = panes

    @property
    def size(self) -> int:
        """Number of records."""
        return sum(pane.size for pane in self._panes)

    def moments(self) -> NDArray[np.int64]:
        """In how many records both of two bits are set: (p, p), symmetric."""
        total = np.zeros((self._counter.codes.bits,) * 2, np.int64)
        for pane in self._panes:
            total += pane.moments
        upper = np.triu(total, 1)
        return upper + upper.T + np.diag(np.diag(total))

    def cells(self, cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Records in each cell (s,), and in how many of them each bit is set (s, p)."""
        counts, ones = np.zeros(cells.number, np.int64), np.zeros((cells.number, self._counter.codes.bits), np.int64)
        for pane in self._panes:
            more, set_ = self._counter._count(pane, cells)
            counts += more
            ones += set_
        return counts, ones

    def bits(self) -> NDArray[np.int64]:
        """All records as bits (n, p): a pass over the window."""
        from .._kernels import synthetic as kernels

        codes = self._counter.codes
        found = [np.empty((0, codes.bits), np.int64)]
        for words, levels in (part for pane in self._panes for part in pane.parts):
            rows = np.empty((len(words), len(codes.attributes)), np.int64)
            kernels.unpack(words, levels, codes.booleans, rows)
            found.append(codes.encoded(rows))
        return np.concatenate(found)

    def prepare(self, cells: Cells) -> None:
        """See `TableCounts`."""
        self._counter.prepare(cells)


@dataclass(frozen=True)
class Tables:
    """Contingency tables of all sets of `order` attributes, laid end to end.

    Privacy: a record is counted once in every table, so l2 sensitivity is the root of their number.
    """

    sizes: tuple[int, ...]
    order: int

    @property
    def sets(self) -> list[tuple[int, ...]]:
        return list(itertools.combinations(range(len(self.sizes)), self.order))

    @property
    def cells(self) -> int:
        return sum(int(np.prod([self.sizes[a] for a in one], dtype=np.int64)) for one in self.sets)

    def layout(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Members, strides and starts, for the counting kernel."""
        members = np.array(self.sets, np.int64).reshape(-1, self.order)
        sizes = np.array(self.sizes, np.int64)[members]
        after = np.concatenate([sizes[:, 1:], np.ones((len(members), 1), np.int64)], axis=1)
        strides = np.cumprod(after[:, ::-1], axis=1)[:, ::-1].copy()
        starts = np.concatenate([[0], np.cumsum(np.prod(sizes, axis=1))[:-1]]).astype(np.int64)
        return members, strides, starts


class TablePanes:
    """Contingency tables per pane; no record is kept."""

    def __init__(self, codes: Codes, tables: Tables) -> None:
        self._codes, self._tables = codes, tables
        self._layout = tables.layout()
        self._cells = tables.cells
        self._held: dict[int, NDArray[np.int64]] = {}

    @property
    def panes(self) -> list[int]:
        return sorted(self._held)

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

    def drop(self, pane: int) -> None:
        self._held.pop(pane, None)

    def view(self, panes: Iterable[int]) -> NDArray[np.int64]:
        """All tables: private."""
        total = np.zeros(self._cells, np.int64)
        for pane in panes:
            if pane in self._held:
                total += self._held[pane]
        return total
