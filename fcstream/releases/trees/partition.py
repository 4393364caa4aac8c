"""A released tree as boxes that divide the public box, and how many records lie in a range, with the error of that."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, Shown
from ..base import Release
from .agreement import variance_of_sum
from .growing import PublicBox, Tree


@dataclass(frozen=True, slots=True)
class Partition:
    """Boxes that divide the public box, in lattice steps; released.

    Attributes
    ----------
    low, high : int64 (m, d)
        Both included.
    counts, deviations : float64 (m,)
        Noisy number of records of each box, and the deviation of its noise.
    means : float64 (m, d)
        Noisy mean of each box's records; its middle where there are hardly any.
    parents : int64 (nodes,)
        The node above each, -1 above the root. Both children of a node stand side by side.
    variances : float64 (nodes,)
        What `agree` returns.
    boxes : int64 (m,)
        The node of each box.

    Privacy
    -------
    Post-processing of a released tree.

    Source
    ------
    Specification 6.17; ours.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    counts: NDArray[np.float64]
    deviations: NDArray[np.float64]
    means: NDArray[np.float64]
    parents: NDArray[np.int64]
    variances: NDArray[np.float64]
    boxes: NDArray[np.int64]


def partition(tree: Tree, box: PublicBox, most: int) -> Partition:
    """Return at most `most` boxes of a tree that divide the public box: those with most records are divided first.

    Privacy
    -------
    Post-processing: it reads a released tree alone.

    Source
    ------
    Specification 6.17; ours.
    """
    divided = _max_first(tree, most)
    children = tree.children[divided]
    kept = np.concatenate([[0], np.stack([children, children + 1], axis=1).ravel()])
    place = np.full(len(tree.parents), -1, np.int64)
    place[kept] = np.arange(len(kept))
    lows, highs = (np.empty((len(tree.parents), box.dimension), np.int64) for _ in range(2))
    lows[0], highs[0] = box.low, box.high
    marginal = tree.variances.copy()
    for level in range(int(tree.levels[divided].max(initial=-1)) + 1):
        above = divided[tree.levels[divided] == level]
        first, second = tree.children[above], tree.children[above] + 1
        features, middles = tree.features[above], tree.middles[above]
        for child in (first, second):
            lows[child], highs[child] = lows[above], highs[above]
        highs[first, features], lows[second, features] = middles, middles + 1
        one, two = tree.variances[first], tree.variances[second]
        both = one + two
        for child, own in ((first, one), (second, two)):
            squares = np.array([share**2 for share in (own / both).tolist()])
            marginal[child] = squares * marginal[above] + one * two / both
    is_shown = np.ones(len(tree.parents), np.bool_)
    is_shown[divided] = False
    shown = kept[is_shown[kept]]
    lows, highs = lows[shown], highs[shown]
    sums, weights = (below[shown] for below in _below(tree))
    means = np.where((weights > 0)[:, None], sums / np.maximum(weights, 1e-300)[:, None], 0.0)
    return Partition(
        lows,
        highs,
        tree.counts[shown],
        np.sqrt(marginal[shown]),
        np.where((weights > 0)[:, None], np.clip(means, lows, highs), (lows + highs) / 2),
        np.concatenate([[-1], np.repeat(place[divided], 2)]),
        tree.variances[kept],
        place[shown],
    )


def _max_first(tree: Tree, most: int) -> NDArray[np.int64]:
    """Return which nodes are divided, in that order: of those that can be, always the one with most records."""
    can_be = tree.children >= 0
    can_be[tree.leaves] = False
    if not can_be[0]:
        return np.empty(0, np.int64)
    order = np.argsort(-tree.counts, kind="stable")  # most records first, then the first node
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    # Ranks of both children of a node: numbers are compared faster than pairs, and a place beyond all is never taken.
    below = np.where(can_be, ranks, len(order))
    first, nodes = below[tree.children].tolist(), order.tolist()
    second, beyond = below[np.minimum(tree.children + 1, len(order) - 1)].tolist(), len(order)
    heap, divided = [int(ranks[0])], list[int]()
    while heap and len(divided) + 1 < most:
        node = nodes[heap[0]]
        divided.append(node)
        one, two = first[node], second[node]
        if one < beyond:
            heapq.heapreplace(heap, one)
            if two < beyond:
                heapq.heappush(heap, two)
        elif two < beyond:
            heapq.heapreplace(heap, two)
        else:
            heapq.heappop(heap)
    return np.array(divided, np.int64)


def _below(tree: Tree) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weighted sums of the points of all leaves in each node, and their weights: (nodes, d), (nodes,)."""
    sums, weights = np.zeros((len(tree.parents), tree.points.shape[1])), np.zeros(len(tree.parents))
    weights[tree.leaves] = tree.weights
    sums[tree.leaves] = tree.points * tree.weights[:, None]
    for level in range(int(tree.levels.max()) - 1, -1, -1):
        nodes = np.flatnonzero((tree.levels == level) & (tree.children >= 0))
        for child in (tree.children[nodes], tree.children[nodes] + 1):
            weights[nodes] += weights[child]
            sums[nodes] += sums[child]
    return sums, weights


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """How many records lie in a range.

    Attributes
    ----------
    value, sigma : float
        The number, and the deviation of its noise.
    cut : float
        Part of `value` from boxes that the range cuts, in which records were taken to be spread evenly: how far off
        that can be, no released number tells.
    """

    value: float
    sigma: float
    cut: float


def count_in_range(release: Release, ranges: Mapping[str, tuple[float, float]]) -> RangeAnswer:
    """Tell how many records of a release of kind ``tree`` lie in a range.

    Parameters
    ----------
    release : Release
        Of kind ``tree``, with a value.
    ranges : mapping of str to (float, float)
        Both ends for some features, in the units of the release; others are not bounded.

    Raises
    ------
    ConfigError
        The release is of another kind, or was refused; a feature is not known; a range does not ascend.

    Privacy
    -------
    Post-processing: it costs nothing, however often it is asked.

    Source
    ------
    Specification 6.17; ours.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(0).normal(0, 1, (10_000, 2))
    >>> tree = fcstream.private_tree(rows, rho=0.5, step=0.01, bounds=(-5, 5))
    >>> found = fcstream.count_in_range(tree, {"x0": (0, 5), "x1": (0, 5)})
    >>> round(found.value, -3), found.sigma < 100
    (2000.0, True)
    """
    parts, features = release.parts or {}, release.features or []
    if release.kind != "tree" or release.value is None:
        raise ConfigError("must be a released value of kind 'tree'", "release")
    inside = np.ones(len(release.value))
    for name, (low, high) in ranges.items():
        if name not in features:
            raise ConfigError(f"must be one of {', '.join(map(repr, features))}", "ranges", got=name)
        if not low <= high:
            raise ConfigError("must ascend", "ranges", got=Shown(f"{low!r} to {high!r} for {name!r}"))
        j = features.index(name)
        ends = np.array(parts["low"], float)[:, j], np.array(parts["high"], float)[:, j]
        width = np.maximum(ends[1] - ends[0], 1e-300)
        inside *= np.clip((np.minimum(ends[1], high) - np.maximum(ends[0], low)) / width, 0.0, 1.0)
    counts = np.array(release.value, float)
    children, levels = _children(parts["parents"])
    weights = np.zeros(len(children))
    weights[parts["boxes"]] = inside
    variance = variance_of_sum(weights, np.array(parts["variances"], float), children, levels)
    cut = (inside > 0) & (inside < 1)
    return RangeAnswer(float(inside @ counts), variance**0.5, float(inside[cut] @ counts[cut]))


def _children(parents: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first child of each node, -1 for none, and how deep it lies."""
    children, levels = np.full(len(parents), -1, np.int64), np.zeros(len(parents), np.int64)
    for node, parent in enumerate(parents):
        if parent >= 0:
            levels[node] = levels[parent] + 1
            if children[parent] < 0:
                children[parent] = node
    return children, levels
