"""Points of a public convex set as small integers: exact moments, public cells of a ball, projection onto the set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..stream.panes import PaneStore
from ..stream.totals import Totals
from .cells import FINE, MAX_CELLS
from .mixtures import to_simplex

REACH = 2**14
"""Radius of the ball around the set, in small integers."""


@dataclass(frozen=True)
class ConvexSet:
    """A box, a ball or a simplex, in lattice steps, and the ball around it (specification 9.6).

    Parameters
    ----------
    kind : str
        ``box``, ``ball`` or ``simplex`` (no coordinate is negative, and their sum is `total`).
    center : tuple of int
    radius : int
        Radius of the ball around `center` that holds the set. Records outside the ball are moved onto it.
    low, high : tuple of float
        Corners of a box.
    total : float
        Sum of the coordinates of a simplex.
    """

    kind: str
    center: tuple[int, ...]
    radius: int
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    total: float = 0.0

    @property
    def unit(self) -> float:
        """Length of one small integer in lattice steps."""
        return self.radius / REACH

    def small(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Round the offsets of points from the center to small integers (n, d) of norm at most `REACH`.

        Each row depends on its own record only. Squares are added column by column, because a sum along rows may be
        taken in another order, and so be rounded differently, with other numbers of records or another layout in
        memory.
        """
        offsets = (points - np.array(self.center, np.float64)) / self.unit
        squares = np.zeros(len(points))
        for column in offsets.T:
            squares += column * column
        offsets *= np.minimum(1.0, REACH / np.maximum(np.sqrt(squares), 1.0))[:, None]
        found = np.trunc(offsets).astype(np.int64)
        # seldom: rounding moved the point out of the ball
        while (outside := (found * found).sum(axis=1) > REACH**2).any():
            found[outside] -= np.sign(found[outside])
        return found

    def nearest(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project points (s, d), in lattice steps, onto the set: each becomes the nearest point of the set."""
        if self.kind == "box":
            return np.clip(points, self.low, self.high)
        if self.kind == "simplex":
            return to_simplex(points, self.total)
        offsets = points - np.array(self.center, np.float64)
        norms = np.linalg.norm(offsets, axis=1, keepdims=True)
        return np.asarray(self.center + offsets * np.minimum(1.0, self.radius / np.maximum(norms, 1e-300)))


@dataclass(slots=True)
class _RegionPane:
    moments: Totals
    parts: list[NDArray[np.int16]] = field(default_factory=list)


class RegionCounts(PaneStore["_RegionPane"]):
    """Records of each pane as small integers, and their exact second moments."""

    def __init__(self, region: ConvexSet) -> None:
        super().__init__()
        self._region = region

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        d = len(self._region.center)
        held = self._held.setdefault(pane, _RegionPane(Totals((d, d), REACH**2)))
        for first in range(0, len(points), 8192):  # so that sums of products are exact in doubles
            small = self._region.small(points[first : first + 8192])
            whole = small.astype(np.float64)
            held.moments.make_room(len(whole))
            held.moments.part += (whole.T @ whole).astype(np.int64)
            held.parts.append(small.astype(np.int16))

    def view(self, panes: Iterable[int]) -> RegionView:
        return RegionView(self.held(panes), len(self._region.center))


class RegionView:
    """View of a window's records and second moments; private."""

    def __init__(self, panes: Sequence[_RegionPane], dimension: int) -> None:
        rows = [np.empty((0, dimension), np.int16), *(part for pane in panes for part in pane.parts)]
        self.rows = np.concatenate(rows).astype(np.int64)
        moments = Totals((dimension, dimension), REACH**2)
        for pane in panes:
            moments.absorb(pane.moments)
        self.moments = moments.read()


@dataclass(frozen=True)
class BallCells:
    """Boxes along integer directions (axes, d) that meet the ball, cut at multiples of `width` from `center`."""

    directions: tuple[tuple[int, ...], ...]
    center: tuple[int, ...]
    width: int

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the box (n, axes) in which each record lies, by integer arithmetic."""
        found: NDArray[np.int64] = (rows @ np.array(self.directions, np.int64).T - np.array(self.center)) // self.width
        return found

    def boxes(self) -> NDArray[np.int64]:
        """List all boxes (s, axes) in which a record may lie."""
        # Rounded directions may be a little longer than 1 and not quite orthogonal.
        reach = math.ceil(REACH * FINE * (1 + len(self.directions[0]) * len(self.directions) / FINE)) + 1
        sides = [range((-reach - c) // self.width, (reach - c) // self.width + 1) for c in self.center]
        every = np.array(list(itertools.product(*sides)), np.int64)
        low = every * self.width + np.array(self.center)
        gap = np.maximum(np.maximum(low, -(low + self.width)), 0).astype(np.float64)
        return np.asarray(every[(gap * gap).sum(axis=1) <= float(reach) ** 2])

    def sums(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute the number of records in each box (s,) and the sum of its records (s, d)."""
        boxes = self.boxes()
        lowest = boxes.min(axis=0)
        shape = tuple((boxes.max(axis=0) - lowest + 1).tolist())
        order = np.full(math.prod(shape), -1, np.int64)
        order[np.ravel_multi_index((boxes - lowest).T, shape)] = np.arange(len(boxes))
        cells = order[np.ravel_multi_index((self.places(rows) - lowest).T, shape)]
        counts, sums = np.bincount(cells, minlength=len(boxes)), np.zeros((len(boxes), rows.shape[1]), np.int64)
        np.add.at(sums, cells, rows)
        return counts, sums


def ball_cells(
    directions: NDArray[np.float64], center: NDArray[np.float64], noise: float, limit: float, axes: int
) -> BallCells:
    """Find the largest number of cells along the leading directions for which the noise stays within a limit.

    `noise` is that of a cell's sum, as a share of the radius times the number of records; `limit` bounds it times the
    root of the number of cells. If no choice stays within it, the result is the last that was tried: one axis, cut
    once.
    """
    found = None
    for t in range(min(axes, len(directions)), 0, -1):
        whole = np.rint(directions[:t] * FINE).astype(np.int64)
        middle = tuple(round(x) for x in (whole @ center).tolist())
        for parts in (8, 6, 5, 4, 3, 2) if t > 1 else (64, 32, 16, 8, 6, 5, 4, 3, 2, 1):
            cells = BallCells(tuple(map(tuple, whole.tolist())), middle, 2 * REACH * FINE // parts)
            number = len(cells.boxes())
            if number <= MAX_CELLS and math.sqrt(number) * noise <= limit:
                return cells
            found = cells
    assert found is not None
    return found
