"""Symmetric positive definite matrices, compared by their generalized eigenvalues."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..counting import threads
from ..errors import ConfigError
from .base import LANES, Family, Predicate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .base import Arrays

_MARGIN = 2.0**-16  # of the limit
_ALONE = 300_000_000  # multiplications, three times over, below which another thread does not pay


class _MatrixFamily(Family):
    """Packed lower triangles in lanes; matrices that are not safely positive definite hold NaN."""

    def __init__(self, dimension: int, limit: float) -> None:
        self._d = dimension
        self._ratio = 1.0 + limit * (1.0 - _MARGIN)
        self._least = least_eigenvalue(dimension, limit)

    def check(self, items: object) -> NDArray[np.float64]:
        d = self._d
        try:
            matrices = np.asarray(items, np.float64)
        except (TypeError, ValueError):
            raise ConfigError("must be a rectangular array of numbers", "items") from None
        if matrices.ndim != 3 or matrices.shape[1:] != (d, d):
            raise ConfigError(f"must have shape (n, {d}, {d}), got {matrices.shape}", "items")
        if not np.isfinite(matrices).all():
            raise ConfigError("must be finite", "items")
        if not (matrices == matrices.transpose(0, 2, 1)).all():
            raise ConfigError("must be symmetric, bit for bit", "items")
        return matrices[:, *np.tril_indices(d)]

    def rows(self, items: NDArray[np.float64]) -> Arrays:
        from .._kernels import matrices

        rows = np.array(items, order="C")
        matrices.mark_unsound(rows, self._d, self._least)
        return rows, self._ratio * rows

    def allocate(self, tiles: int) -> Arrays:
        return (np.zeros((tiles, self._d * (self._d + 1) // 2, LANES)),)

    def store(self, rows: Arrays, first: int, arrays: Arrays) -> None:
        from .._kernels import lane_counts

        lane_counts.store(rows[0], first, arrays[0])

    def compare(self, rows: Arrays, arrays: Arrays, used: int, first: int, masks: NDArray[np.uint64]) -> None:
        from .._kernels import matrices

        (packed, scaled), (tiles,) = rows, arrays
        count = -(-used // LANES)
        shares = min(count, threads.helpers(len(packed) * used * self._d**3 / _ALONE) + 1)

        def compare_some(start: int) -> None:
            for t in range(start, count, shares):
                here, before = slice(t, t + 1), t * LANES
                left = min(LANES, used - before)
                matrices.compare(packed, scaled, tiles[here], left, first - before, self._d, self._ratio, masks[here])

        threads.run([functools.partial(compare_some, start) for start in range(shares)])


def least_eigenvalue(dimension: int, limit: float) -> float:
    """Smallest eigenvalue of a correlation matrix for which `MatrixDistance` vouches.

    Factoring h X - Y is wrong by at most d (d + 4) 2**-53 h in units of the diagonals, which must stay below the margin
    limit * 2**-16 in units of X; doubled for the rounding of the test itself.
    """
    return dimension * (dimension + 4) * (1.0 + 1.0 / limit) * 2.0**-36


@dataclass(frozen=True, slots=True)
class MatrixDistance(Predicate):
    """matrixDist(X, Y) <= limit: with l the generalized eigenvalues of (X, Y), max(|l - 1|, |1/l - 1|) <= limit.

    Equal to: all l in [1/(1 + limit), 1 + limit]; infinite unless both matrices are positive definite.

    Parameters
    ----------
    dimension : int
        Of the matrices, >= 1.
    limit : float
        In (0, 2**20].

    Raises
    ------
    ConfigError
        A parameter out of range, or one for which no matrix could be decided (see Notes).

    Notes
    -----
    Items are float64 (n, dimension, dimension), finite, symmetric bit for bit.

    KNOWN LIMIT: this is floating point. Two differences, (1 + t) X - Y and (1 + t) Y - X, are factored by one fixed
    routine that treats X and Y alike, so a pair's bit does not depend on order, batch or machine. t = limit *
    (1 - 2**-16): the margin is wider than the routine's rounding, so friends are truly within the limit; pairs between
    t and the limit may be strangers. That holds for matrices whose correlation matrix has all eigenvalues above
    dimension * (dimension + 4) * (1 + 1/limit) * 2**-36 (2e-8 for 10 dimensions and limit 0.1). All others, and
    those whose diagonal leaves [2**-400, 2**400], count as not positive definite: friends of themselves only.

    Complexity
    ----------
    O(dimension**3) a pair, two factorizations without square roots; strangers mostly end at the first pivots. Large
    batches are shared by threads (see `pool`).

    Source
    ------
    Specification 7.1; proof 8.1; Tsfadia et al. 2022, Appendix A.
    """

    dimension: int
    limit: float

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise ConfigError(f"must be at least 1, got {self.dimension}", "dimension")
        if not (math.isfinite(self.limit) and 0 < self.limit <= 2.0**20):
            raise ConfigError(f"must be in (0, 2**20], got {self.limit!r}", "limit")
        if least_eigenvalue(self.dimension, self.limit) >= 0.5:
            raise ConfigError(
                f"must be far above rounding, got {self.limit!r} at dimension {self.dimension}: no matrix could be "
                "decided",
                "limit",
            )

    def _family(self) -> Family:
        return _MatrixFamily(self.dimension, self.limit)
