"""Adds up integers without overflow, however many there are.

An int64 that wraps around changes its sign, so one more record could move a released value across its whole range.
All terms (coordinates, offsets in a ball, small integers) have a public bound. So it is public how many of them an
int64 can hold; after that many terms a sum is continued in Python integers. Plain counts of records do not need this,
since no window has 2**62 records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDE = 2**62
"""Upper bound of a partial sum in an int64, which leaves one bit to spare."""


def rows_within(largest: int) -> int:
    """Return how many integers of absolute value at most `largest` add up to at most `WIDE`."""
    return WIDE // largest


class Totals:
    """Sums of many rows of integers: int64 while no overflow is possible, then Python integers (specification 2.3).

    Parameters
    ----------
    shape : int or tuple of int
        Shape of one sum.
    largest : int
        Public bound of the absolute value of every term.

    Attributes
    ----------
    part : int64 of that shape
        The array to which the caller adds rows in place, after a call of `make_room` for them.
    """

    def __init__(self, shape: int | tuple[int, ...], largest: int) -> None:
        self.part = np.zeros(shape, np.int64)
        self.max_rows = rows_within(largest)
        self._held = 0
        self._wide: NDArray[np.object_] | None = None

    def make_room(self, rows: int) -> None:
        """Prepare `part` for the addition of some rows, at most `max_rows` at a time."""
        if rows > self.max_rows:
            raise OverflowError(f"at most {self.max_rows} rows can be added at a time")
        if self._held + rows > self.max_rows:
            self._flush()
        self._held += rows

    def absorb(self, other: Totals) -> None:
        """Add the sums of another instance with the same shape and bound."""
        self.make_room(other._held)
        self.part += other.part
        if other._wide is not None:
            self._widen(other._wide)

    def read(self) -> NDArray[Any]:
        """Return a copy of the sums: int64, or Python integers if there were too many rows."""
        return self.part.copy() if self._wide is None else self._wide + self.part.astype(object)

    def _flush(self) -> None:
        self._widen(self.part.astype(object))
        self.part[...] = 0
        self._held = 0

    def _widen(self, more: NDArray[np.object_]) -> None:
        self._wide = more if self._wide is None else self._wide + more


Part = tuple["NDArray[np.float64]", "NDArray[np.bool_]"]


def tile_totals(
    parts: Iterable[Part],
    dimension: int,
    largest: int,
    add: Callable[[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]], int | None],
) -> tuple[list[int], int]:
    """Add up tiles (t, d, lanes) with a kernel; returns the sums and the number of points added (specification 2.3).

    Parameters
    ----------
    parts : (float64 (t, d, lanes), bool (t * lanes,))
        Tiles and which of their lanes count; see `fcstream.counting.views.Selection`. A part may be a whole window.
    dimension : int
    largest : int
        Public: no term is larger in size.
    add : callable
        ``add(tiles, mask, out)`` adds the terms of some tiles to out (d,) int64.
    """
    totals, count = Totals(dimension, largest), 0
    for tiles, inside in parts:
        lanes = tiles.shape[2]
        step = totals.max_rows // lanes
        for first in range(0, len(tiles), step):
            some, mask = tiles[first : first + step], inside[first * lanes : (first + step) * lanes]
            totals.make_room(len(mask))
            count += add(some, mask, totals.part) or 0
    return totals.read().tolist(), count


def column_totals(rows: NDArray[np.int64], largest: int) -> list[int]:
    """Add up the columns of rows (n, d) (specification 2.3)."""
    totals = Totals(rows.shape[1], largest)
    for first in range(0, len(rows), totals.max_rows):
        some = rows[first : first + totals.max_rows]
        totals.make_room(len(some))
        totals.part += some.sum(axis=0)
    found: list[int] = totals.read().tolist()
    return found


def gram_totals(rows: NDArray[np.int64], largest: int) -> NDArray[Any]:
    """Add up, over rows (n, d), the products of any two columns: (d, d)."""
    totals = Totals((rows.shape[1],) * 2, largest)
    for first in range(0, len(rows), totals.max_rows):
        some = rows[first : first + totals.max_rows]
        totals.make_room(len(some))
        totals.part += some.T @ some
    return totals.read()
