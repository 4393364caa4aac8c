"""Sums of integers that cannot wrap, however many are added.

An int64 that wraps changes its sign, so one record more could move a released value across its whole range. What is
added has a public bound: coordinates, balls, small integers. So it is public how many of them an int64 holds; after as
many the sum goes on in Python integers. Plain counts of records have no need of this: 2**62 of them come in no window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDE = 2**62
"""What a partial sum may reach: one bit less than an int64 holds."""


def rows_within(largest: int) -> int:
    """How many integers of at most `largest` in size add up to at most `WIDE`."""
    return WIDE // largest


class Totals:
    """Sums of many rows of integers: int64 while these hold them for sure, then Python integers (specification 2.3).

    Parameters
    ----------
    shape : int or tuple of int
        Of one sum.
    largest : int
        Public: no term of a row is larger in size.

    Attributes
    ----------
    part : int64 of that shape
        What the rows are added to, in place, after `make_room` was told of them.
    """

    def __init__(self, shape: int | tuple[int, ...], largest: int) -> None:
        self.part = np.zeros(shape, np.int64)
        self.max_rows = rows_within(largest)
        self._held = 0
        self._wide: NDArray[np.object_] | None = None

    def make_room(self, rows: int) -> None:
        """Before so many rows are added to `part`, at most `max_rows` at a time."""
        if rows > self.max_rows:
            raise OverflowError(f"at most {self.max_rows} rows can be added at a time")
        if self._held + rows > self.max_rows:
            self._flush()
        self._held += rows

    def absorb(self, other: Totals) -> None:
        """Add what another one holds, of the same shape and terms."""
        self.make_room(other._held)
        self.part += other.part
        if other._wide is not None:
            self._widen(other._wide)

    def read(self) -> NDArray[Any]:
        """The sums: int64, or Python integers where there were too many rows; a copy."""
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
    """Sums over tiles (t, d, lanes) by a kernel, and how many points it said it added (specification 2.3).

    Parameters
    ----------
    parts : (float64 (t, d, lanes), bool (t * lanes,))
        Tiles and which of their lanes count; see `fcstream.counting.exact.Selection`. A part may be a whole window.
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
    """Sums of the columns of rows (n, d) (specification 2.3)."""
    totals = Totals(rows.shape[1], largest)
    for first in range(0, len(rows), totals.max_rows):
        some = rows[first : first + totals.max_rows]
        totals.make_room(len(some))
        totals.part += some.sum(axis=0)
    found: list[int] = totals.read().tolist()
    return found


def gram_totals(rows: NDArray[np.int64], largest: int) -> NDArray[Any]:
    """Sums over rows (n, d) of the products of any two of their columns: (d, d)."""
    totals = Totals((rows.shape[1],) * 2, largest)
    for first in range(0, len(rows), totals.max_rows):
        some = rows[first : first + totals.max_rows]
        totals.make_room(len(some))
        totals.part += some.T @ some
    return totals.read()
