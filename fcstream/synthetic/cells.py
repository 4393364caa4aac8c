"""Public cells of a table's space: boxes of one public width along a few integer directions.

Cells are computed from public or released numbers alone. A record's cell is an integer function of these numbers and of
that record, so no other record can change it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .codes import Codes

_MAX_COVER = 50_000
FINE = 2**20
"""A direction of length 1 is rounded to integers, multiples of 1 / FINE."""
MAX_AXES = 4
WIDTHS = (2.0, 2.1, 2.2, 2.3, 2.4, 2.5)
"""Cell widths that are tried, in units of u; `along` multiplies them for tables whose u has a large norm."""
MAX_CELLS = 256
MAX_WORK = 2**24
"""Upper bound of the number of cells times the squared number of bits, which is the work of fitting a mixture."""


@dataclass(frozen=True)
class Cells:
    """Boxes of equal width along integer directions (specification 9.2).

    Parameters
    ----------
    codes : Codes
    directions : tuple of tuples of int
        One integer vector (p,) for each axis.
    center : tuple of int
        For each axis, the position of a boundary between two cells, or of a cell's middle if `odd`.
    width : int
    odd : bool
        Whether `center` is the middle of a cell.
    """

    codes: Codes
    directions: tuple[tuple[int, ...], ...]
    center: tuple[int, ...]
    width: int
    odd: bool = False

    @cached_property
    def _along(self) -> NDArray[np.int64]:
        """Directions as columns (p, axes)."""
        return np.array(self.directions, np.int64).T.reshape(self.codes.bits, len(self.directions))

    @cached_property
    def _base(self) -> NDArray[np.int64]:
        """Position (axes,), along the axes, of a record none of whose bits is set."""
        shift = self.width // 2 if self.odd else 0
        return -(self.codes.shifts @ self._along) - np.array(self.center, np.int64) + shift

    @cached_property
    def _ranges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Smallest and largest position of any record along each axis."""
        low, high = self._support(np.eye(len(self.directions), dtype=np.int64))
        return low, high

    def _support(self, probes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the smallest and largest product of probes (k, axes) with the position of any possible record."""
        weights = 2 * (self._along @ probes.T)  # (p, k)
        base = probes @ self._base
        booleans = weights[: self.codes.booleans]
        low, high = base + np.minimum(booleans, 0).sum(axis=0), base + np.maximum(booleans, 0).sum(axis=0)
        for block in self.codes.blocks[self.codes.booleans :]:
            low += weights[block].min(axis=0)
            high += weights[block].max(axis=0)
        return low, high

    @cached_property
    def lowest(self) -> NDArray[np.int64]:
        """Number of the first cell along each axis (axes,)."""
        return self._ranges[0] // self.width

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return tuple((self._ranges[1] // self.width - self.lowest + 1).tolist())

    @cached_property
    def boxes(self) -> int:
        """Upper bound of the number of cells that is quick to compute."""
        return math.prod(self._shape)

    @cached_property
    def _reachable(self) -> NDArray[np.bool_]:
        """Mask of the boxes in which a record might lie: those that no probe separates from all possible records."""
        corners = np.stack(np.meshgrid(*(np.arange(k) for k in self._shape), indexing="ij"), axis=-1)
        corners = (corners.reshape(-1, len(self._shape)) + self.lowest) * self.width
        probes = np.array(list(itertools.product(*([range(-2, 3)] * len(self._shape)))), np.int64)
        probes = probes[np.abs(probes).sum(axis=1) > 1]
        found = np.ones(len(corners), np.bool_)
        if len(probes):
            _, high = self._support(probes)
            nearest = corners @ probes.T + (self.width - 1) * np.minimum(probes, 0).sum(axis=1)
            found = (nearest <= high).all(axis=1)
        return found

    @cached_property
    def number(self) -> int:
        """Number of cells s. All of them are released, empty ones too."""
        return int(self._reachable.sum())

    @cached_property
    def arrays(self) -> tuple[NDArray[np.int64], ...]:
        """Arrays for the counting kernel."""
        booleans = self.codes.booleans
        axes, bytes_ = len(self.directions), -(-booleans // 8)
        twice = 2 * self._along
        bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
        padded = np.zeros((8 * bytes_, axes), np.int64)
        padded[:booleans] = twice[:booleans]
        bytewise = np.einsum("vb,kbt->kvt", bits, padded.reshape(bytes_, 8, axes)).astype(np.int64)
        lookup = np.cumsum(self._reachable) - 1  # a box that is no cell holds no record, so its entry does not matter
        strides = np.cumprod((*self._shape[1:], 1)[::-1])[::-1].astype(np.int64).copy()
        return (
            np.ascontiguousarray(bytewise),
            np.ascontiguousarray(twice),
            self._base,
            np.int64(self.width),
            self.lowest,
            np.maximum(lookup, 0).astype(np.int64),
            strides,
        )  # type: ignore[return-value]


def rounded(direction: NDArray[np.float64]) -> tuple[int, ...]:
    """Round a direction of length 1 to integers, with the sign for which the first entry other than 0 is positive."""
    whole = np.rint(direction * FINE).astype(np.int64)
    first = whole[np.flatnonzero(whole)[:1]]
    return tuple((whole * (-1 if len(first) and first[0] < 0 else 1)).tolist())


def along(
    codes: Codes,
    directions: NDArray[np.float64],
    center: NDArray[np.float64] | None,
    noise: float,
    limit: float,
) -> Cells:
    """Find the largest number of cells along the leading directions for which the noise stays within a limit.

    If no choice of directions and width stays within it, the result has the fewest cells of those that were tried.

    Parameters
    ----------
    codes : Codes
    directions : float64 (axes, p)
        Of length 1, the leading one first.
    center : float64 (p,) or None
        The mean of u, released; None puts the middle of a cell at 0.
    noise : float
        Noise of a cell's sum of a bit, in parts of all records.
    limit : float
        For the root of the number of cells times that noise.
    """
    most = max(16, min(MAX_CELLS, MAX_WORK // codes.bits**2))
    whole = [rounded(direction) for direction in directions[:MAX_AXES]]
    best: Cells | None = None
    for t in range(len(whole), 0, -1):
        middle = (0,) * t if center is None else tuple(round(float(np.dot(d, center))) for d in whole[:t])
        spans = math.sqrt(codes.norm_squared)
        factors = (1.0,) if t > 1 else (1.0, 1.5, 2.0, 3.0, 4.0, 2 * spans)
        for factor in factors:
            for width in WIDTHS:
                found = Cells(codes, tuple(whole[:t]), middle, int(width * factor * FINE), center is None)
                if found.boxes > 8 * most:
                    continue
                if found.number <= most and math.sqrt(found.number) * noise <= limit:
                    return found
                if best is None or found.number < best.number:
                    best = found
    assert best is not None
    return best


def by_number(codes: Codes, noise: float, limit: float) -> Cells:
    """Divide tables of Booleans alone by how many bits are set, which is a public direction."""
    direction = ((1,) * codes.bits,)
    center = (codes.bits % 2,)  # the sum of u is even if and only if p is
    for step in range(1, codes.bits + 2):
        found = Cells(codes, direction, center, 2 * step)
        if math.sqrt(found.number) * noise <= limit:
            return found
    return Cells(codes, direction, center, 4 * codes.bits, True)


def covering(axes: int, alpha: float) -> NDArray[np.int64]:
    """List the points (s, t) of the lattice (alpha / sqrt(t)) Z^t in the unit ball, which cover it to within alpha.

    They are given in steps of the lattice.

    Privacy
    -------
    Computed from public numbers only.

    Source
    ------
    Specification 9.3, 9.7; Boedihardjo et al. 2022, Algorithm 1, step 4, and Algorithm 4, step 6.
    """
    if axes == 0:
        return np.zeros((1, 0), np.int64)
    most = math.floor(math.sqrt(axes) / alpha)
    limit = axes / alpha**2
    points = [k for k in itertools.product(range(-most, most + 1), repeat=axes) if sum(x * x for x in k) <= limit]
    return np.array(points[:_MAX_COVER], np.int64)
