"""Counts of all levels of a tree, made to agree by weighted least squares, and the errors of sums of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def agree(
    counts: NDArray[np.float64],
    variances: NDArray[np.float64],
    children: NDArray[np.int64],
    levels: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the counts of least weighted squares among those where a node's is the sum of its children's.

    Parameters
    ----------
    counts, variances : float64 (nodes,)
        Independent noisy counts and their variances.
    children : int64 (nodes,)
        First child of a split node, which the second follows; -1 for the others.
    levels : int64 (nodes,)

    Returns
    -------
    (float64 (nodes,), float64 (nodes,))
        The counts, and for each node the variance of what it and the nodes below it tell together.

    Privacy
    -------
    Post-processing: it reads released counts alone.

    Source
    ------
    Specification 6.15; Hay, Rastogi, Miklau, Suciu 2010, with a variance for each node.
    """
    told, spread = counts.copy(), variances.copy()
    split = [np.flatnonzero((levels == level) & (children >= 0)) for level in range(int(levels.max(initial=0)) + 1)]
    for nodes in reversed(split):  # upward: what a node and all below it tell
        first, second = children[nodes], children[nodes] + 1
        below = spread[first] + spread[second]
        weight = spread[nodes] / (spread[nodes] + below)
        told[nodes] += weight * (told[first] + told[second] - told[nodes])
        spread[nodes] = weight * below
    for nodes in split:  # downward: the difference goes to the children in proportion to their variances
        first, second = children[nodes], children[nodes] + 1
        share = spread[first] / (spread[first] + spread[second])
        missing = told[nodes] - told[first] - told[second]
        told[first] += share * missing
        told[second] += (1 - share) * missing
    return told, spread


def variance_of_sum(
    weights: NDArray[np.float64],
    spread: NDArray[np.float64],
    children: NDArray[np.int64],
    levels: NDArray[np.int64],
) -> float:
    """Return the variance of a weighted sum of agreed counts.

    Parameters
    ----------
    weights : float64 (nodes,)
        Weight of each node without children; those of the others do not count.
    spread : float64 (nodes,)
        The variances that `agree` returns.
    children, levels : int64 (nodes,)

    Privacy
    -------
    Post-processing: it reads public and released numbers alone.

    Source
    ------
    Specification 6.15; ours: a node's agreed count is independent of how it is divided among its children.
    """
    gains, total = weights.copy(), 0.0
    for level in range(int(levels.max(initial=0)), -1, -1):
        nodes = np.flatnonzero((levels == level) & (children >= 0))
        first, second = children[nodes], children[nodes] + 1
        both = spread[first] + spread[second]
        total += float(((gains[first] - gains[second]) ** 2 * spread[first] * spread[second] / both).sum())
        gains[nodes] = (gains[first] * spread[first] + gains[second] * spread[second]) / both
    return total + float(gains[0] ** 2 * spread[0])
