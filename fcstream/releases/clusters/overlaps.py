"""Mixtures whose clusters overlap, fitted to released numbers; all of it is post-processing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...noise.samplers import Noise
from ..trees.drawn import draw_rows
from ..trees.growing import Tree
from ..trees.points import weighted_points

ROWS = 4000
"""Rows that stand for a window's records."""
MIN, MAX = 0.005, 0.12
"""Shares of the records that lie in the parts of others: below, clusters count as apart; above, they are too mixed."""
COARSE = 0.11
"""Share of the variance within parts that lies within the tree's boxes, above which these do not show shapes."""
DOUBT = 0.0035
"""Largest product of both shares: the more clusters overlap, the finer boxes must be."""
ROUNDS = 100
_GAIN = 1e-7  # of the mean log-likelihood, with which rounds end
_MIN_VARIANCE = 1 / 12  # of a coordinate that is rounded to the lattice

Floats = NDArray[np.float64]


class Mixture(NamedTuple):
    """Weights, means and covariances of k clusters, in lattice steps.

    Attributes
    ----------
    weights : float64 (k,)
    means : float64 (k, d)
    covariances : float64 (k, d, d)

    Privacy
    -------
    All of it is released.

    Source
    ------
    Specification 6.21; ours.
    """

    weights: Floats
    means: Floats
    covariances: Floats


def overlapping(tree: Tree, centers: Floats, parts: Mixture, noise: Noise) -> Mixture | None:
    """Fit a mixture of Gaussians to clusters that overlap, or return None: they are apart, or too little tells them.

    Records that are nearest to a center (k, d) make a part, of which weight, mean and covariance are known. Rows that
    are drawn from the tree are moved and stretched in each part until they have just these; then the
    expectation-maximization algorithm starts from the parts. Where no row could belong to another part it changes
    nothing.

    Privacy
    -------
    Post-processing: it reads released numbers alone, and the choice too follows from them.

    Complexity
    ----------
    At most `ROUNDS` rounds of O(k d²) for each of `ROWS` rows.

    Source
    ------
    Specification 6.21; ours.
    """
    _, weights, spreads = weighted_points(tree, 1)
    whole = parts.weights @ np.trace(parts.covariances, axis1=1, axis2=2)
    coarse = np.average(spreads, weights=weights) / max(whole, _MIN_VARIANCE)
    away = outside(centers, parts)
    if not MIN <= away <= MAX or coarse > min(COARSE, DOUBT / away):
        return None
    rows = draw_rows(tree, ROWS, noise)
    labels = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    masses = np.empty(len(rows))
    for j in range(len(centers)):
        own = np.flatnonzero(labels == j)
        if len(own) <= rows.shape[1]:
            return None
        offsets = rows[own] - rows[own].mean(axis=0)
        back = _power(offsets.T @ offsets / len(own), -0.5)
        rows[own] = parts.means[j] + offsets @ (back @ _power(parts.covariances[j], 0.5))
        masses[own] = parts.weights[j] / len(own)
    return _maximized(rows, masses, parts)


def outside(centers: Floats, parts: Mixture) -> float:
    """Return about which share of records lies nearer to the center of another part, if each part is Gaussian.

    Privacy
    -------
    Post-processing: it reads released numbers alone.

    Source
    ------
    Specification 6.21; ours.
    """
    found = 0.0
    for center, weight, mean, covariance in zip(centers, *parts, strict=True):
        for other in centers:
            apart = other - center
            length = math.sqrt(float(apart @ apart))
            if length:
                left = length / 2 - float((mean - center) @ apart) / length
                deviation = math.sqrt(max(float(apart @ covariance @ apart), 1e-300)) / length
                found += weight * math.erfc(left / deviation / math.sqrt(2)) / 2
    return found


def _power(matrix: Floats, exponent: float) -> Floats:
    """Return a power of a covariance matrix, whose variances are at least those of rounding."""
    values, vectors = np.linalg.eigh(matrix)
    powered: Floats = (vectors * np.maximum(values, _MIN_VARIANCE) ** exponent) @ vectors.T
    return powered


def _maximized(rows: Floats, masses: Floats, start: Mixture) -> Mixture:
    """Improve a mixture by expectation and maximization on rows (m, d) with masses (m,)."""
    masses = masses / masses.sum()
    weights, means, covariances = (own.copy() for own in start)
    before = -math.inf
    for _ in range(ROUNDS):
        logs = np.log(np.maximum(weights, 1e-12)) + np.stack(
            [_log_density(rows, mean, covariance) for mean, covariance in zip(means, covariances, strict=True)], axis=1
        )
        most = logs.max(axis=1)
        shares = np.exp(logs - most[:, None])
        total = shares.sum(axis=1)
        level = float(masses @ (most + np.log(total)))
        if level - before < _GAIN:
            break
        before = level
        shares *= (masses / total)[:, None]
        weights = shares.sum(axis=0)
        for j in np.flatnonzero(weights > 1e-9):
            means[j] = shares[:, j] @ rows / weights[j]
            offsets = rows - means[j]
            covariances[j] = (offsets * shares[:, j, None]).T @ offsets / weights[j]
    return Mixture(weights, means, covariances)


def _log_density(rows: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Return the log-density of a Gaussian at some rows, but for a constant."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, _MIN_VARIANCE)
    places = (rows - mean) @ vectors
    found: Floats = -0.5 * ((places * places / values).sum(axis=1) + np.log(values).sum())
    return found
