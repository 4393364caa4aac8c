"""K-means on the released points of a tree; all of it is post-processing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...noise.samplers import Noise
from .growing import Tree

STARTS = 20
_TRIES = 4  # candidates for each further center of a start
_WORK = 200_000_000  # distances to compute for all starts, about
_MAX_ROUNDS = 100
MAX_CHOSEN = 12
"""Largest number of clusters that is chosen; more can be asked for."""


class WeightedPoints(NamedTuple):
    """Released points that stand for records.

    Attributes
    ----------
    places : float64 (m, d)
    weights, spreads : float64 (m,)
        How many records each stands for, positive, and about the mean squared distance of these from their mean.

    Privacy
    -------
    All of it is released.

    Source
    ------
    Specification 6.16; ours.
    """

    places: NDArray[np.float64]
    weights: NDArray[np.float64]
    spreads: NDArray[np.float64]


def weighted_points(tree: Tree, least: int) -> WeightedPoints:
    """Return the points of a tree's leaves, at least `least` of them.

    Where there are fewer leaves, the heaviest box is replaced by its halves until there are enough.

    Privacy
    -------
    Post-processing: it reads a released tree alone.

    Source
    ------
    Specification 6.15; ours.
    """
    points, weights = tree.points, np.maximum(tree.weights, 1e-9)
    low, high = tree.low.astype(np.float64), tree.high.astype(np.float64)
    while len(points) < least:
        i = int(weights.argmax())
        j = int((high[i] - low[i]).argmax())
        cut = (low[i, j] + high[i, j]) / 2
        low, high = np.vstack([low, low[i]]), np.vstack([high, high[i]])
        low[-1, j], high[i, j] = cut, cut
        halves = np.stack([(low[i] + high[i]) / 2, (low[-1] + high[-1]) / 2])
        points, weights = np.vstack([points, halves[1]]), np.append(weights, weights[i] / 2)
        points[i], weights[i] = halves[0], weights[i] / 2
    spreads = np.minimum((high - low) ** 2 / 12, tree.deviations**2).sum(axis=1)
    return WeightedPoints(points, weights, spreads)


def k_means(
    points: NDArray[np.float64], weights: NDArray[np.float64], k: int, noise: Noise
) -> tuple[NDArray[np.float64], float]:
    """Cluster released points: centers (k, d), the best of many starts, and their cost, the weighted squared distances.

    Parameters
    ----------
    points : float64 (m, d)
        At least k.
    weights : float64 (m,)
        Positive.
    k : int
    noise : Noise
        Source of the starts.

    Privacy
    -------
    Post-processing: it reads released points alone.

    Complexity
    ----------
    O(m k d) for each round; with many points each start gets fewer rounds, and the best is improved to the end.

    Source
    ------
    Specification 6.15; k-means++ (Arthur, Vassilvitskii 2007) with several candidates for each center, weighted.
    """
    from ..._kernels import trees

    points, weights = np.ascontiguousarray(points), np.ascontiguousarray(weights)
    each = max(1, len(points) * k * points.shape[1])
    starts = max(4, min(STARTS, _WORK // (10 * each)))
    most = max(4, min(50, _WORK // (starts * each)))
    uniforms = noise.uniforms(starts * k * _TRIES).reshape(starts, k, _TRIES)
    best, least = np.empty((k, points.shape[1])), math.inf
    for i in range(starts):
        centers = np.empty_like(best)
        trees.seed(points, weights, uniforms[i], _TRIES, centers)
        cost = float(trees.rounds(points, weights, centers, most))
        if cost < least:
            best, least = centers, cost
    return best, float(trees.rounds(points, weights, best, _MAX_ROUNDS))


def choose_k(tree: Tree, noise: Noise) -> int:
    """Return how many clusters, from 2 to `MAX_CHOSEN`, divide a tree's points best.

    Privacy
    -------
    Post-processing: it reads a released tree alone.

    Source
    ------
    Specification 6.16; the variance ratio of Calinski and Harabasz 1974, records being spread evenly in their boxes.
    """
    points, weights, spreads = weighted_points(tree, 3)
    total = max(float(weights.sum()), 3.0)
    middle = np.average(points, axis=0, weights=weights)
    within = float(weights @ spreads)
    whole = float((weights * ((points - middle) ** 2).sum(axis=1)).sum()) + within
    best, chosen = -math.inf, 2
    for k in range(2, min(MAX_CHOSEN, len(points) - 1) + 1):
        left = max(k_means(points, weights, k, noise)[1] + within, 1e-9)
        ratio = (whole - left) / (k - 1) / left * max(total - k, 1.0)
        if ratio > best:
            best, chosen = ratio, k
    return chosen


def reaches(found: WeightedPoints, centers: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Return for each center (k, d) the distance that holds this share of the weight of the points nearest to it.

    To each point's squared distance that of its records from it is added.

    Privacy
    -------
    Post-processing: it reads released points and centers alone.

    Source
    ------
    Specification 6.15; ours.
    """
    from ..._kernels import trees

    points, weights, spreads = found
    labels, squared = np.empty(len(points), np.int64), np.empty(len(points))
    trees.distances(np.ascontiguousarray(points), np.ascontiguousarray(centers), labels, squared)
    squared += spreads
    radii = np.zeros(len(centers))
    for j in range(len(centers)):
        mine = np.flatnonzero(labels == j)
        if len(mine):
            mine = mine[np.argsort(squared[mine], kind="stable")]
            passed = np.cumsum(weights[mine])
            place = int(np.searchsorted(passed, level * passed[-1]))
            radii[j] = math.sqrt(squared[mine[min(place, len(mine) - 1)]])
    return radii
