"""Exact sums of a window's records, and of their products, after each record was scaled and clipped to a ball."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...stream.totals import Totals
from .shapes import Coordinates

MAX_RADIUS_BITS = 19
"""A clipped record is shorter than 2**19 units: its products add up exactly in doubles, 2**15 rows at a time."""
_ROWS = 2**11  # of one product of doubles
_LANES = 32
_CODED = 2**9  # rows of one product of 16-bit codes, where their norms allow as many


class PointsInTiles(Protocol):
    """A window's lattice points, some at a time.

    Privacy
    -------
    NOT private: what a mechanism reads.

    Source
    ------
    Specification 2.1, 3.1.
    """

    @property
    def size(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    def in_tiles(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Yield tiles (t, d, LANES), which may change at the next step, and their lanes (m,) that hold points."""

    def points_at(self, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        """Copy the points (m, d) of some numbers (m,), ascending, which count the lanes of `in_tiles`."""


class PointsOfSample:
    """Some points (m, d), in tiles.

    Privacy
    -------
    NOT private: what a mechanism reads.

    Source
    ------
    Specification 7.4.
    """

    def __init__(self, points: NDArray[np.float64]) -> None:
        self._points = points

    @property
    def size(self) -> int:
        return len(self._points)

    @property
    def dimension(self) -> int:
        return int(self._points.shape[1])

    def in_tiles(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        for first in range(0, self.size, _ROWS):
            part = self._points[first : first + _ROWS]
            rows = np.full((-(-len(part) // _LANES) * _LANES, self.dimension), np.inf)
            rows[: len(part)] = part
            tiles = rows.reshape(-1, _LANES, self.dimension).transpose(0, 2, 1)
            yield np.ascontiguousarray(tiles), np.arange(len(part))

    def points_at(self, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self._points[wanted]
        return found


def _turned(rows: PointsInTiles, coordinates: Coordinates) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Yield a window's tiles in turned coordinates, and their lanes that hold points."""
    from ..._kernels import moments

    assert coordinates.turn is not None
    matrix = coordinates.turn * coordinates.factors
    for tiles, lanes in rows.in_tiles():
        out = np.empty(tiles.shape)
        moments.turn_tiles(tiles, coordinates.middles, matrix, out)
        yield out, lanes


class ClippedSums:
    """Adds up a window's records, each in given coordinates and then clipped to a ball.

    Parameters
    ----------
    rows : PointsInTiles
    coordinates : Coordinates
        A record becomes the integers rint(turn @ ((record - middles) * factors)).

    Privacy
    -------
    NOT private: a mechanism adds noise to these sums. Every record becomes an integer vector that depends on itself and
    on released numbers alone, and is checked in exact integers to lie in the ball; sums are exact, so they depend on no
    order.

    Source
    ------
    Specification 7.4; ours.
    """

    def __init__(self, rows: PointsInTiles, coordinates: Coordinates) -> None:
        from ..._kernels import moments

        self._dimension = rows.dimension
        self._tiles = rows.in_tiles  # where coordinates are turned, these are kept, and not turned again
        self._middles, self._factors = coordinates.middles, coordinates.factors
        if coordinates.turn is not None:
            turned = list(_turned(rows, coordinates))
            self._tiles = lambda: iter(turned)
            self._middles, self._factors = np.zeros(self._dimension), np.ones(self._dimension)
        self._norms: list[NDArray[np.float64]] = []
        used = []
        for tiles, lanes in self._tiles():
            norms = np.empty((len(tiles), _LANES))
            moments.scaled_norms(tiles, self._middles, self._factors, norms)
            self._norms.append(norms)
            used.append(norms.reshape(-1)[lanes])
        self.norms = np.concatenate(used) if used else np.empty(0)
        """Squared norms (n,) of the scaled records."""

    def within(self, radius_squared: int, shift: int) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Return the exact sums (d,), the sums of products (d, d), and how many records lay beyond the ball.

        Their units are 2**shift units of the scaled records; `radius_squared` is in the latter.

        Notes
        -----
        Let L = radius_squared >> (2 shift) < 2**38, which no squared norm of a clipped record exceeds. Then no product
        of two of its entries exceeds L, since |x y| <= (x**2 + y**2) / 2 and x**2 <= L.

        - Codes of 16 bits, if L <= (2**34 - 1) / 32 < 2**29: entries are at most sqrt(L) < 2**14.5. Of m <= (2**34 - 1)
          / L records, m a multiple of 32, eight sums of 32 bits get the products of m / 8 records each: at most m / 8 *
          L < 2**31. These sums are added in 64 bits.
        - Doubles otherwise: sums of at most 2**11 products stay below 2**49, so that each partial sum is an integer
          which a double holds, in any order, with fused operations or without.

        Either is added to `Totals`, which continue in Python integers before an int64 could overflow.
        """
        from ..._kernels import moments

        limit, d = radius_squared >> (2 * shift), self._dimension
        if limit >= 4**MAX_RADIUS_BITS:
            raise OverflowError("clipped records are too long for exact sums")
        padded = -(-d // moments.BLOCK) * moments.BLOCK
        together = min(_CODED, ((2**34 - 1) // max(1, limit)) // _LANES * _LANES)
        coded = together > 0
        codes = np.zeros((padded, together if coded else _ROWS), np.int16 if coded else np.float64)
        sums, products, beyond = Totals(d, max(1, limit)), Totals((padded, padded), max(1, limit)), 0
        step, ball = codes.shape[1] // _LANES, (float(radius_squared), float(1 << shift), float(limit))
        for (tiles, _), norms in zip(self._tiles(), self._norms, strict=True):
            for first in range(0, len(tiles), step):
                some = tiles[first : first + step]
                part = codes if len(some) == step else np.zeros((padded, len(some) * _LANES), codes.dtype)
                own = norms[first : first + step]
                beyond += moments.clip_tiles(some, self._middles, self._factors, own, *ball, part)
                sums.make_room(part.shape[1])
                products.make_room(part.shape[1])
                moments.add_codes(part, sums.part)
                if coded:
                    moments.add_products(part, products.part)
                else:
                    products.part += (part @ part.T).astype(np.int64)
        found = products.read()[:d, :d]
        return sums.read(), np.tril(found) + np.tril(found, -1).T, beyond
