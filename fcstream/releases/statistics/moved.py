"""What records that were moved to the border of a ball change in a covariance matrix and in what follows from it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..intervals import TWO_SIDED
from .correlations import MatrixNoise
from .tails import Tail

_GRID = np.linspace(0.0, 1.0, 9) ** 2  # parts of the largest changes of two variances, of which a correlation is made
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MovedRecords:
    """Bounds, by what was released, of what records outside of the ball change, if they lie in the public ranges.

    With z a moved record's offset from the middles and t z where it was moved to, t in [0, 1], a share p of such
    records changes second moments by p times the mean of (1 - t**2) z z^T, and means by p times that of (1 - t) z.

    Attributes
    ----------
    tail : Tail
        The share that was moved.
    raw, matrix : float64 (d, d)
        The covariances as they were measured, and the nearest matrix without negative eigenvalues, which is released.
    noise : MatrixNoise
    low, high : float64 (d,)
        How far the public ranges reach from the middles, at most 0 and at least 0.
    rounding : float64 (d,)
        By how much a record is rounded at most. Where many records are equal, this does not average out.

    Privacy
    -------
    Made of released and public numbers, so everything computed from it is free.

    Source
    ------
    Specification 7.5; ours.
    """

    tail: Tail
    raw: Matrix
    matrix: Matrix
    noise: MatrixNoise
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    rounding: NDArray[np.float64]

    @property
    def _deviations(self) -> NDArray[np.float64]:
        deviations: NDArray[np.float64] = np.sqrt(np.maximum(np.diag(self.matrix), 1e-100))
        return deviations

    @property
    def _far(self) -> NDArray[np.float64]:
        """How far a record may lie from the middles, in each feature."""
        far: NDArray[np.float64] = np.maximum(-self.low, self.high)
        return far

    @property
    def _lost(self) -> float:
        """1 / (1 - p)."""
        return 1 / max(1e-9, 1 - self.tail.most)

    def _products(self) -> tuple[Matrix, Matrix]:
        """Return the least and the largest product (d, d) of two features' offsets."""
        across = np.outer(self.low, self.high)
        return np.minimum(across, across.T), np.maximum(np.outer(self.low, self.low), np.outer(self.high, self.high))

    def means(self) -> NDArray[np.float64]:
        """Return the intervals (d, 2) of the means of all records, about the middles."""
        found = self.tail.ends(self.noise.mean, np.sqrt(np.diag(self.noise.of_mean)), self.low, self.high)
        return found + np.stack((-self.rounding, self.rounding), axis=1)

    def covariances(self) -> NDArray[np.float64]:
        """Return the intervals (d, d, 2) of the covariances of all records; those of variances are not negative.

        With w = (1 - t) z, a variance changes by p E[(1 - t**2) z**2] - 2 p m E[w] - (p E[w])**2, with the mean m about
        the middles, which is at least p ((1 - p) E[w]**2 - 2 m E[w]), and so at least -p m**2 / (1 - p).
        """
        mean, share = self.noise.mean, self.tail.most
        least, most = self._products()
        with_mean = [-np.outer(mean, ends) for ends in (self.low, self.high)]
        lower, upper = np.minimum(*with_mean), np.maximum(*with_mean)
        down, up = least + lower + lower.T - share * most, most + upper + upper.T - share * least
        np.fill_diagonal(down, -(mean**2) * self._lost)
        np.fill_diagonal(up, self._far**2 + 2 * np.diag(upper))
        found = self.tail.ends(self.raw, self.noise.sigma(self.matrix), down, up)
        rounded = np.outer(self._deviations, self.rounding)
        rounded = rounded + rounded.T + np.outer(self.rounding, self.rounding)
        found += np.stack((-rounded, rounded), axis=-1)
        found[..., 0], found[..., 1] = np.minimum(found[..., 0], self.matrix), np.maximum(found[..., 1], self.matrix)
        on = np.arange(len(mean))
        found[on, on] = np.maximum(found[on, on], 0.0)
        return found

    def correlations(self, found: Matrix, deviations: Matrix) -> NDArray[np.float64]:
        """Return the intervals (d, d, 2) of the correlations of all records, from those of the others; NaN for NaN.

        Variances grow by shares a and b of themselves, and the covariance by at most sqrt(a b) of their roots.
        """
        share, mean, far = self.tail.most, self.noise.mean, self._far
        variances = self._deviations**2
        both = np.sqrt(np.outer(variances, variances))
        largest = share * (far**2 + 2 * np.abs(mean) * far) / variances
        smallest = np.maximum(-share * self._lost * mean**2 / variances, -0.99)
        least, most = (share * each / both for each in self._products())
        beside = share * (np.outer(np.abs(mean), far) + np.outer(far, np.abs(mean)) + share * np.outer(far, far)) / both
        low, high = np.array(found), np.array(found)
        for one, two in itertools.product(_GRID, _GRID):
            a, b = smallest + one * (largest - smallest), smallest + two * (largest - smallest)
            together = np.sqrt(np.outer(np.maximum(a, 0.0), np.maximum(b, 0.0)))
            roots = np.sqrt(np.outer(1 + a, 1 + b))
            low = np.minimum(low, (found + np.maximum(-together, least) - beside) / roots)
            high = np.maximum(high, (found + np.minimum(together, most) + beside) / roots)
        rounded = self.rounding / self._deviations
        half = TWO_SIDED * deviations + (rounded[:, None] + rounded) * (1 + np.abs(found))
        ends: NDArray[np.float64] = np.clip(np.stack((low - half, high + half), axis=-1), -1.0, 1.0)
        ends[np.arange(len(mean)), np.arange(len(mean))] = np.where(np.isnan(np.diag(found)), np.nan, 1.0)[:, None]
        return ends

    def coefficients(self, found: NDArray[np.float64], sigma: NDArray[np.float64], target: int) -> Matrix:
        """Return the intervals (d - 1, 2) of the coefficients of all records; infinite where nothing bounds them.

        With C the covariances of the other features and r(z) what the regression leaves of a record, coefficients move
        by C^-1 v, where v is at most p times the largest r(z) z, before and after the move, in the metric of C.
        """
        mean, share = self.noise.mean, self.tail.most
        others = np.delete(np.arange(len(mean)), target)
        low, high = self.low - mean, self.high - mean
        inverse = np.linalg.inv(self.matrix[np.ix_(others, others)])
        across = float((np.sqrt(np.diag(inverse)) * np.maximum(-low, high)[others]).sum())
        weights = np.insert(-found, target, 1.0)
        ends = np.stack((weights * low, weights * high))
        rest = max(float(ends.max(axis=0).sum()), -float(ends.min(axis=0).sum()))
        kept = 1 - share * self._lost * float(mean[others] @ inverse @ mean[others])
        moved = share * (2 + share) * across * rest / kept if kept > 0 else np.inf
        in_others = float((np.sqrt(np.diag(inverse)) * self.rounding[others]).sum())
        in_rest = float(np.abs(weights) @ self.rounding)
        left = math.sqrt(max(0.0, float(weights @ self.matrix @ weights)))
        rounded = in_rest + in_others * (left + in_rest)
        half = TWO_SIDED * sigma + np.sqrt(np.diag(inverse)) * (moved + rounded)
        ends_of_each: Matrix = np.stack((found - half, found + half), axis=-1)
        return ends_of_each
