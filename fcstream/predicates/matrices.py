"""Predicate on symmetric positive definite matrices, which are compared by their generalized eigenvalues."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..counting import threads
from ..errors import ConfigError
from ..stream.lattice import as_doubles
from .base import LANES, Arrays, Family, Predicate

_MARGIN = 2.0**-16  # as a part of the limit
_ALONE = 300_000_000  # if d**3 times the number of pairs is smaller than this, another thread does not pay


class _MatrixFamily(Family):
    """Storage of packed lower triangles in lanes; a matrix that is not safely positive definite is stored as NaN."""

    def __init__(self, dimension: int, limit: float) -> None:
        self._d = dimension
        self._ratio = 1.0 + limit * (1.0 - _MARGIN)
        self._least = min_eigenvalue(dimension, limit)

    def check(self, items: object) -> NDArray[np.float64]:
        d = self._d
        matrices = as_doubles(items, "items")
        if matrices.ndim != 3 or matrices.shape[1:] != (d, d):
            raise ConfigError(f"must have shape (n, {d}, {d})", "items", got=matrices.shape)
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


def min_eigenvalue(dimension: int, limit: float) -> float:
    """Return the smallest eigenvalue of a correlation matrix for which `MatrixDistance` is reliable.

    The error of factoring h X - Y is at most d (d + 4) 2**-53 h in units of the diagonals. It must stay below the
    margin limit * 2**-16 in units of X. The result is doubled to cover the rounding of the test itself.
    """
    return dimension * (dimension + 4) * (1.0 + 1.0 / limit) * 2.0**-36


@dataclass(frozen=True, slots=True)
class MatrixDistance(Predicate):
    """Predicate that holds if matrixDist(X, Y) <= limit.

    The distance is the largest max(|l - 1|, |1/l - 1|) over the generalized eigenvalues l of (X, Y). So friends are
    matrices with all l in [1/(1 + limit), 1 + limit]. The distance is infinite unless both matrices are positive
    definite.

    Parameters
    ----------
    dimension : int
        Number of rows of the matrices, >= 1.
    limit : float
        Largest distance of friends, in (0, 2**20].

    Raises
    ------
    ConfigError
        A parameter is out of range, or so extreme that no pair of matrices could be decided (see Notes).

    Notes
    -----
    Items are float64 (n, dimension, dimension), finite, symmetric bit for bit.

    KNOWN LIMIT: the predicate is computed in floating point. Two differences, (1 + t) X - Y and (1 + t) Y - X, are
    factored by one fixed routine that treats X and Y alike, so the result for a pair does not depend on order, batch or
    machine. Here t = limit * (1 - 2**-16). This margin is wider than the routine's rounding error, so friends are
    truly within the limit, while a pair whose distance is between t and the limit may not be friends. This holds for
    matrices whose correlation matrix has all eigenvalues above
    dimension * (dimension + 4) * (1 + 1/limit) * 2**-36 (2e-8 for 10 dimensions and limit 0.1). All other matrices, and
    those with a diagonal element outside [2**-400, 2**400], count as not positive definite: such a matrix is its own
    only friend.

    Complexity
    ----------
    O(dimension**3) per pair: two factorizations without square roots, which mostly stop at the first pivots if the two
    are not friends. Threads share large batches (see `fcstream.counting.threads`).


    Source
    ------
    Specification 7.1; proof 8.1; Tsfadia et al. 2022, Appendix A.
    """

    dimension: int
    limit: float

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise ConfigError("must be at least 1", "dimension", got=self.dimension)
        if not (math.isfinite(self.limit) and 0 < self.limit <= 2.0**20):
            raise ConfigError("must be in (0, 2**20]", "limit", got=self.limit)
        if min_eigenvalue(self.dimension, self.limit) >= 0.5:
            raise ConfigError(
                f"must be far above rounding, got {self.limit!r} at dimension {self.dimension}: no matrix could be "
                "decided",
                "limit",
            )

    def _family(self) -> Family:
        return _MatrixFamily(self.dimension, self.limit)
