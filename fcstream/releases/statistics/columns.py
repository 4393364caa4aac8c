"""Counters of one feature's values or bins, for kinds that do not need whole points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...stream.lattice import Feature, Grid
from ...stream.panes import PaneStore


@dataclass(frozen=True, slots=True)
class Column:
    """One feature on the lattice.

    Attributes
    ----------
    index : int
        Its index among the features.
    feature : Feature
    lowest, highest : int
        `Grid.ends` of its public range, both included.
    """

    index: int
    feature: Feature
    lowest: int
    highest: int

    @classmethod
    def of(cls, grid: Grid, name: str | None) -> Column:
        """Find the feature of this name; None means the only one.

        Raises
        ------
        ConfigError
        """
        names = [feature.name for feature in grid.features]
        if name is None and len(names) > 1:
            raise ConfigError(f"must name one of {', '.join(map(repr, names))}", "release.feature")
        if name is not None and name not in names:
            raise ConfigError(f"must be one of {', '.join(map(repr, names))}", "release.feature", got=name)
        index = 0 if name is None else names.index(name)
        return cls(index, grid.features[index], *grid.ends(grid.features[index]))

    @classmethod
    def several(cls, grid: Grid) -> tuple[Column, ...]:
        """Return all features."""
        return tuple(cls.of(grid, feature.name) for feature in grid.features)


class ColumnValues(PaneStore["list[NDArray[np.int64]]"]):
    """The lattice values of one feature, per pane: 8 bytes a record."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        self._held.setdefault(pane, []).append(points[:, self._index].astype(np.int64))

    def view(self, panes: Iterable[int]) -> NDArray[np.int64]:
        """All values, ascending; private."""
        parts = [part for held in self.held(panes) for part in held]
        return _ascending(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _ascending(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort values (n,); those in a range of 16 bits by digits, which is several times faster."""
    if len(values) == 0:
        return values
    least = values.min()
    if int(values.max()) - int(least) >= 2**16:
        return np.sort(values)
    digits = np.sort((values - least).astype(np.uint16), kind="stable")
    found: NDArray[np.int64] = digits + least
    return found


class BinCounts(PaneStore["NDArray[np.int64]"]):
    """How many records fall into each bin of one feature, per pane; no record is kept.

    Parameters
    ----------
    index : int
        The feature's index.
    inner : tuple of int
        Lattice values at which a new bin begins, ascending; one bin more than these.
    values : tuple of int
        Used instead of `inner`: the lattice values that have a bin each, in their order; the last bin holds all others.
    """

    def __init__(self, index: int, inner: tuple[int, ...] = (), values: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._index = index
        self._inner = np.array(inner, np.int64)
        self._order = np.argsort(values, kind="stable")
        self._values = np.array(values, np.int64)[self._order]
        self._bins = len(values or inner) + 1

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        column = points[:, self._index].astype(np.int64)
        if len(self._values):
            index = np.minimum(np.searchsorted(self._values, column), len(self._values) - 1)
            bins = np.where(self._values[index] == column, self._order[index], self._bins - 1)
        else:
            bins = np.searchsorted(self._inner, column, side="right")
        counts = np.bincount(bins, minlength=self._bins)
        self._held[pane] = self._held.get(pane, np.zeros_like(counts)) + counts

    def view(self, panes: Iterable[int]) -> NDArray[np.int64]:
        """Number of records in each bin; private."""
        total = np.zeros(self._bins, np.int64)
        for held in self.held(panes):
            total += held
        return total
