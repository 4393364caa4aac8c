"""What a released covariance matrix tells: correlations, principal components, a regression. All of it is free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLEAR = 4.0
"""By how many deviations of its noise a variance must be above 0 to be divided by, or a direction to be inverted."""
Matrix = NDArray[np.float64]


def nearest_covariance(matrix: Matrix) -> Matrix:
    """Return the nearest symmetric matrix without negative eigenvalues.

    Privacy
    -------
    Post-processing of a released matrix.

    Source
    ------
    Specification 7.5; Higham 1988.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    found: Matrix = (vectors * np.maximum(values, 0.0)) @ vectors.T
    symmetric: Matrix = (found + found.T) / 2
    return symmetric


@dataclass(frozen=True, slots=True)
class MatrixNoise:
    """Noise of a covariance matrix: of its products, of the mean that is taken off, and of the number of records.

    Attributes
    ----------
    products : float64 (d, d)
        S: the noise N of the products, a symmetric matrix, has cov(N_ij, N_kl) = S_ik S_jl + S_il S_jk.
    mean : float64 (d,)
        The mean, about the point from which products are taken.
    of_mean : float64 (d, d)
        The covariance matrix of its noise.
    of_size : float
        Variance of the number of records, relative to its square.

    Privacy
    -------
    Made of released numbers.

    Source
    ------
    Specification 7.5; ours.
    """

    products: Matrix
    mean: Matrix
    of_mean: Matrix
    of_size: float

    def sigma(self, matrix: Matrix) -> Matrix:
        """Return the deviation of the noise of every entry (d, d)."""
        own, of_mean, mean = np.diag(self.products), np.diag(self.of_mean), self.mean
        squares = np.outer(own, own) + self.products**2
        squares += np.outer(mean**2, of_mean) + np.outer(of_mean, mean**2) + 2 * np.outer(mean, mean) * self.of_mean
        return np.sqrt(squares + self.of_size * (matrix - np.outer(mean, mean)) ** 2)

    def of_correlations(self, found: Matrix, deviations: NDArray[np.float64]) -> Matrix:
        """Return the deviations (d, d) of correlations of features with these deviations (d,), to first order."""
        both = np.outer(deviations, deviations)
        own, mean, of_mean = self.products / both, self.mean / deviations, self.of_mean / both
        diagonal, across = np.diag(own), np.diag(of_mean)
        squares = np.outer(diagonal, diagonal) + own**2
        squares += found**2 / 2 * (diagonal[:, None] ** 2 + diagonal[None, :] ** 2 + 2 * own**2)
        squares -= 2 * found * own * (diagonal[:, None] + diagonal[None, :])
        rest = mean[None, :] - found * mean[:, None]  # what of the noise of mean i is left: mean j - r mean i
        squares += rest**2 * across[:, None] + rest.T**2 * across[None, :] + 2 * rest * rest.T * of_mean
        size = found * (mean[:, None] ** 2 + mean[None, :] ** 2) / 2 - np.outer(mean, mean)
        return np.sqrt(np.maximum(squares + self.of_size * size**2, 0.0))


def correlations(matrix: Matrix, noise: MatrixNoise) -> tuple[Matrix, Matrix]:
    """Return the correlations (d, d) and the deviations of their noise; nan where a variance is lost in its noise.

    Privacy
    -------
    Post-processing of a released matrix.

    Source
    ------
    Specification 7.5; the deviations to first order.
    """
    variances = np.diag(matrix)
    clear = (variances > CLEAR * np.diag(noise.sigma(matrix))) & (variances > 0)
    safe = np.where(clear, variances, 1.0)
    found = np.clip(matrix / np.sqrt(np.outer(safe, safe)), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    sigma = noise.of_correlations(found, np.sqrt(safe))
    np.fill_diagonal(sigma, 0.0)
    known = np.outer(clear, clear)
    return np.where(known, found, np.nan), np.where(known, sigma, np.nan)


def principal_components(matrix: Matrix, number: int) -> tuple[Matrix, NDArray[np.float64]]:
    """Return the directions (k, d) of largest variance and their shares of it (k,).

    The largest entry of each direction is positive, the first one of equals.

    Privacy
    -------
    Post-processing of a released matrix.

    Source
    ------
    Specification 7.5; eigenvectors.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
    largest = np.argmax(np.abs(vectors).round(12), axis=1)
    signs = np.where(vectors[np.arange(len(vectors)), largest] < 0, -1.0, 1.0)
    total = float(values.sum())
    shares = values / total if total > 0 else np.zeros_like(values)
    return (vectors * signs[:, None])[:number], shares[:number]


def regression(matrix: Matrix, products: Matrix, size: float, target: int) -> tuple[Matrix, Matrix] | None:
    """Regress one feature on the others, from their covariances; None if the noise hides a direction of these.

    Parameters
    ----------
    matrix, products : float64 (d, d)
        A covariance matrix, and the S of its noise (see `MatrixNoise`).
    size : float
        Noisy number of records.
    target : int

    Returns
    -------
    coefficients, sigma : float64 (d - 1,)
        Of the other features in their order. The deviations hold the noise and that of a sample of such records; what
        clipping changes is not in them.

    Privacy
    -------
    Post-processing of a released matrix.

    Source
    ------
    Specification 7.5; ours: with N the noise of the matrix and w the coefficients, with -1 for the target, the entries
    of N w have the covariance matrix S (w.S w) + (S w) (S w)^T.
    """
    others = np.delete(np.arange(len(matrix)), target)
    inner, outer = matrix[np.ix_(others, others)], matrix[others, target]
    try:
        root = np.linalg.inv(np.linalg.cholesky(products[np.ix_(others, others)]))
    except np.linalg.LinAlgError:
        return None
    least = float(np.linalg.eigvalsh(root @ inner @ root.T)[0])  # where noise is the same in all directions
    if least <= 0 or least < CLEAR * math.sqrt(2 * len(others)):
        return None
    inverse = np.linalg.inv(inner)
    found = inverse @ outer
    rest = max(0.0, float(matrix[target, target] - 2 * found @ outer + found @ inner @ found))
    weights = np.insert(found, target, -1.0)
    moved = products @ weights
    spread = (weights @ moved) * products[np.ix_(others, others)] + np.outer(moved[others], moved[others])
    variances = np.diag(inverse @ spread @ inverse) + rest / max(size, 1.0) * np.diag(inverse)
    return found, np.sqrt(variances)


def with_nulls(values: NDArray[np.float64]) -> Any:
    """Return nested lists for JSON, with None for nan.

    Privacy
    -------
    A change of form.

    Source
    ------
    Specification 7.5; ours.
    """
    found = values.astype(object)
    found[np.isnan(values)] = None
    return found.tolist()
