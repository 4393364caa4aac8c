"""What a released covariance matrix tells: correlations, principal components, a regression. All of it is free."""

from __future__ import annotations

import math
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


def correlations(matrix: Matrix, sigma: Matrix) -> tuple[Matrix, Matrix]:
    """Return the correlations (d, d) and the deviations of their noise; nan where a variance is lost in its noise.

    Parameters
    ----------
    matrix, sigma : float64 (d, d)
        A covariance matrix, and the deviation of the noise of every entry.

    Privacy
    -------
    Post-processing of a released matrix.

    Source
    ------
    Specification 7.5; the deviations to first order.
    """
    variances, noise = np.diag(matrix), np.diag(sigma)
    clear = (variances > CLEAR * noise) & (variances > 0)
    safe = np.where(clear, variances, 1.0)
    scale = np.sqrt(np.outer(safe, safe))
    found = np.clip(matrix / scale, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    relative = (noise / safe) ** 2
    squares = (sigma / scale) ** 2 + found**2 / 4 * (relative[:, None] + relative[None, :])
    np.fill_diagonal(squares, 0.0)
    known = np.outer(clear, clear)
    return np.where(known, found, np.nan), np.where(known, np.sqrt(squares), np.nan)


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


def regression(matrix: Matrix, noise: float, size: float, target: int) -> tuple[Matrix, Matrix] | None:
    """Regress one feature on the others, from their covariances; None if the noise hides a direction of these.

    Parameters
    ----------
    matrix : float64 (d, d)
    noise : float
        Deviation of the noise of an entry off the diagonal, where all have the same; that of the diagonal is larger by
        the square root of 2.
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
    Specification 7.5; ours: with N the noise of the other features' matrix and M that of their covariances with the
    target, M - N b has the covariance matrix noise**2 ((1 + b.b) I + b b^T).
    """
    others = np.delete(np.arange(len(matrix)), target)
    inner, outer = matrix[np.ix_(others, others)], matrix[others, target]
    least = float(np.linalg.eigvalsh(inner)[0])
    if least <= 0 or least < CLEAR * noise * math.sqrt(2 * len(others)):
        return None
    inverse = np.linalg.inv(inner)
    found = inverse @ outer
    rest = max(0.0, float(matrix[target, target] - 2 * found @ outer + found @ inner @ found))
    spread = noise**2 * ((1 + found @ found) * np.eye(len(others)) + np.outer(found, found))
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
