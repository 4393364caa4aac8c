"""A private tree of boxes over a public box: noisy counts on the way down, one noisy point in each leaf."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..averages import Start, check_noise, gaussian_variance
from ..floors import gaussian_tail, min_gaussian
from .agreement import agree

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]

ASKED = 6.0
"""Deviations of a count's noise above which a node's children are looked at."""
KEPT = 2.5
"""Deviations above which a node whose children are not looked at becomes a leaf."""
MAX_NODES = 2**16
"""Nodes of one level that are looked at, at most."""
WIDE = 8
"""Features above which deviations are measured first, so that boxes are cut where records differ."""
ZOOM = 3.0
"""With more features than `WIDE`: deviations from the mean beyond which records are moved to the border."""
FINENESS = 1.0
"""With more features than `WIDE`: boxes are halved while a point's noise is below this part of records' deviation."""
_MAX_SIDES = 2**22  # sides of all boxes of one level that are held, at most
_OFFSET_BITS = 26  # offsets from a box's center are below 2**26 units, fewer above 1,023 features
_PLACE_BITS = 20  # places in the public box have so many bits, for deviations


@dataclass(frozen=True)
class PublicBox:
    """The public box that a tree divides, in lattice steps.

    Attributes
    ----------
    low, high : tuple of int
        Lowest and highest value of each feature, both included.

    Privacy
    -------
    Public: a function of the configuration alone.

    Source
    ------
    Specification 6.15; ours.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def depth(self) -> int:
        """Levels below the root, at most."""
        return min(48, max(16, 8 * self.dimension))


def box_of(grid: Grid) -> PublicBox:
    """Return the public ranges of all features as a box, in lattice steps.

    Privacy
    -------
    A function of the configuration alone.

    Source
    ------
    Specification 6.15; ours.
    """
    return PublicBox(tuple(map(int, grid.lowest)), tuple(map(int, grid.highest)))


@dataclass(frozen=True, slots=True)
class Tree:
    """A released tree; lengths in lattice steps. Children of node v are ``children[v]`` and the next one.

    Attributes
    ----------
    parents : int64 (nodes,)
        The node above each; -1 above the root, which is node 0. Parents stand before their children.
    levels : int64 (nodes,)
        Splits above each node.
    features, middles, children : int64 (nodes,)
        Where a node is split: values up to the middle are in the first child. Features are -1 without a split.
    asked : int64 (nodes,)
        Noisy counts as drawn on the way down.
    counts, variances : float64 (nodes,)
        Counts that agree over levels (a node's is the sum of its children's), and the variances of what each node and
        the nodes below it tell of its count.
    leaves : int64 (m,)
        Nodes that are leaves.
    low, high : int64 (m, d)
        Boxes of the leaves, both ends included.
    points : float64 (m, d)
        The noisy mean of each leaf's records, within its box.
    deviations : float64 (d,)
        How much records differ in each feature; infinite where that was not measured.

    Privacy
    -------
    All of it is released.

    Source
    ------
    Specification 6.15; proof 7.10; ours.
    """

    parents: Integers
    levels: Integers
    features: Integers
    middles: Integers
    children: Integers
    asked: Integers
    counts: Floats
    variances: Floats
    leaves: Integers
    low: Integers
    high: Integers
    points: Floats
    deviations: Floats

    @property
    def weights(self) -> Floats:
        """Noisy number of records of each leaf, 0 at least (m,)."""
        return np.maximum(self.counts[self.leaves], 0.0)

    @property
    def size(self) -> int:
        """Noisy number of all records."""
        return round(float(self.counts[0]))


@dataclass
class _Nodes:
    """The nodes of a growing tree, level by level."""

    parents: list[Integers] = field(default_factory=list)
    levels: list[Integers] = field(default_factory=list)
    features: list[Integers] = field(default_factory=list)
    middles: list[Integers] = field(default_factory=list)
    children: list[Integers] = field(default_factory=list)
    asked: list[Integers] = field(default_factory=list)
    total: int = 0

    def add(self, parents: Integers, level: int, asked: Integers) -> Integers:
        """Add a level and return its nodes."""
        size = len(parents)
        self.parents.append(parents)
        self.levels.append(np.full(size, level, np.int64))
        for column in (self.features, self.middles, self.children):
            column.append(np.full(size, -1, np.int64))
        self.asked.append(asked)
        self.total += size
        return np.arange(self.total - size, self.total)


@dataclass(frozen=True)
class TreeMechanism:
    """Mechanism of a tree of boxes and their points.

    Parameters
    ----------
    box : PublicBox
    count_nano, point_nano : int
        rho (nano) of the counts of all levels together, and of a leaf's point besides what its path left.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0; rho is the sum of both shares, and of the share
    for deviations that `count_nano` contains above `WIDE` features. Level by level, the nodes that are asked follow
    from released counts, and their boxes are disjoint: one record moves one count of a level by 1. A leaf whose path
    ended early spends what its levels left on its point (a filter for each path), and leaves are disjoint too. In a
    leaf one record moves the count by 1 and feature j's sum of offsets by h_j at most, with the variance h_j sum(h) /
    (2 rho). Records are first clamped to the box. No cap is set on true counts. Integers throughout; `Noise` is exact.

    Complexity
    ----------
    O(n) for each of 16 to 48 levels, and O(n d) for the points.

    Source
    ------
    Specification 6.15; proof 7.10; after Cormode, Procopiuc, Srivastava, Shen, Yu 2012 and Zhang, Xiao, Xie 2016.
    """

    box: PublicBox
    count_nano: int
    point_nano: int

    def __post_init__(self) -> None:
        d = self.box.dimension
        if d < 1 or any(a > b for a, b in zip(self.box.low, self.box.high, strict=True)):
            raise ConfigError("must have a feature, and each a range", "features")
        if self.level_nano < 1 or self.point_nano < 8:
            raise ConfigError(f"must be larger for {self.box.depth + 1} levels of a tree", "release.rho")
        check_noise(d * 4**self._offset_bits, self.point_nano // 2)
        check_noise(1, self.level_nano)
        if self.moment_nano:
            check_noise(d * 2 ** (2 * _PLACE_BITS), self.moment_nano // 2)

    @property
    def loss(self) -> PrivacyLoss:
        """Loss of the tree and its points."""
        return PrivacyLoss(self.count_nano + self.point_nano)

    @property
    def _offset_bits(self) -> int:
        """Bits of an offset, so that its square times the number of features is below 2**62."""
        return min(_OFFSET_BITS, (62 - self.box.dimension.bit_length()) // 2)

    @cached_property
    def moment_nano(self) -> int:
        """rho (nano) of the features' deviations, which only wide data have."""
        return self.count_nano // 8 if self.box.dimension > WIDE else 0

    @cached_property
    def level_nano(self) -> int:
        """rho (nano) of the counts of one level."""
        return (self.count_nano - self.moment_nano) // (self.box.depth + 1)

    @cached_property
    def variance(self) -> Fraction:
        """Variance of a count's noise on the way down."""
        return Fraction(RHO_UNIT, 2 * self.level_nano)

    @property
    def first(self) -> PrivacyLoss:
        """Loss of the number of records, after which a window may be refused."""
        return PrivacyLoss(self.level_nano)

    @cached_property
    def min_count(self) -> int:
        """Least noisy number of records for which a tree is grown."""
        return min_gaussian(self.variance)

    @property
    def false_release(self) -> float:
        """Bound of the chance that a window without records gets a tree."""
        return gaussian_tail(self.variance, self.min_count)

    def release(self, points: Floats, noise: Noise, start: Start) -> tuple[Tree | None, int]:
        """Grow the tree of some points (n, d), which are clamped in place; None, and a noisy number, if too few.

        `start` is called before the draw of the number of records, and before everything else.
        """
        from ..._kernels import trees

        low, high = np.array(self.box.low, np.int64), np.array(self.box.high, np.int64)
        trees.clamp(points, low, high)
        start(self.first)
        root = len(points) + self._drawn(noise, 1)
        if root[0] < self.min_count:
            return None, int(root[0])
        start(self.loss - self.first)
        nodes, threshold, deviations = _Nodes(), ASKED * math.sqrt(self.variance), np.full(len(low), np.inf)
        scales = 1 / (high - low + 1)
        if self.moment_nano:
            mean, deviations = self._moments(points, noise, int(root[0]))
            low = np.maximum(low, np.floor(mean - ZOOM * deviations).astype(np.int64))
            high = np.minimum(high, np.ceil(mean + ZOOM * deviations).astype(np.int64))
            points = points.copy()
            trees.clamp(points, low, high)
            scales = deviations / (high - low + 1)
            threshold = max(threshold, 2 * self.min_leaf(low, high, deviations))
        boxes = (low[None], high[None])
        place, leaves, leaf_boxes = np.zeros(len(points), np.int64), [], []
        level = nodes.add(np.array([-1]), 0, root)
        for depth in range(1, self.box.depth + 1):
            split = self._to_split(nodes.asked[-1], boxes, threshold, is_root=depth == 1)
            ends = ~split & (nodes.asked[-1] > KEPT * math.sqrt(self.variance))
            leaves.append(level[ends])
            leaf_boxes.append((boxes[0][ends], boxes[1][ends]))
            if not split.any():
                break
            feature, middle, below = _halves(boxes[0][split], boxes[1][split], scales)
            first, splits = nodes.total, np.flatnonzero(split)
            nodes.features[-1][splits], nodes.middles[-1][splits] = feature, middle
            nodes.children[-1][splits] = first + 2 * np.arange(len(splits))
            sizes = np.zeros(2 * len(splits), np.int64)
            columns = (np.concatenate(own) for own in (nodes.features, nodes.middles, nodes.children))
            trees.descend(points, place, *columns, first, sizes)
            asked = sizes + self._drawn(noise, len(sizes))
            parents, level = level[splits], nodes.add(np.repeat(level[splits], 2), depth, asked)
            empty = (asked <= KEPT * math.sqrt(self.variance)).reshape(-1, 2).all(axis=1)
            leaves.append(parents[empty])
            leaf_boxes.append((boxes[0][split][empty], boxes[1][split][empty]))
            boxes = below
        else:
            ends = nodes.asked[-1] > KEPT * math.sqrt(self.variance)
            leaves.append(level[ends])
            leaf_boxes.append((boxes[0][ends], boxes[1][ends]))
        lows, highs = (np.concatenate([own[i] for own in leaf_boxes]) for i in (0, 1))
        tree = self._with_points(points, place, nodes, np.concatenate(leaves), lows, highs, noise)
        return replace(tree, deviations=deviations), int(root[0])

    def _drawn(self, noise: Noise, size: int) -> Integers:
        return noise.discrete_gaussian(self.variance, size)

    def _to_split(self, asked: Integers, boxes: tuple[Integers, Integers], threshold: float, is_root: bool) -> Bits:
        """Return which nodes of a level have their children asked, a function of released counts (nodes,)."""
        split: Bits = (boxes[1] > boxes[0]).any(axis=1) & ((asked > threshold) | is_root)
        most = max(1, min(MAX_NODES, _MAX_SIDES // self.box.dimension) // 2)
        if np.count_nonzero(split) > most:
            order = np.argsort(np.where(split, -asked, np.iinfo(np.int64).max), kind="stable")
            split[order[most:]] = False
        return split

    def _moments(self, points: Floats, noise: Noise, size: int) -> tuple[Floats, Floats]:
        """Return the noisy mean of each feature, within its range, and its deviation, in lattice steps; released."""
        from ..._kernels import trees

        d = self.box.dimension
        sums, squares = np.zeros(d, np.int64), np.zeros(d, np.int64)
        low, high = np.array(self.box.low, np.int64), np.array(self.box.high, np.int64)
        trees.moments(points, low, high, _PLACE_BITS, sums, squares)
        variance = gaussian_variance(d * 4**_PLACE_BITS, self.moment_nano // 2)
        unit = size * 2.0**_PLACE_BITS
        mean = np.clip((sums + noise.discrete_gaussian(variance, d)) / unit, -1.0, 1.0)
        square = (squares + noise.discrete_gaussian(variance, d)) / unit
        deviation = np.sqrt(np.clip(square - mean * mean, min(1.0, math.sqrt(variance) / unit), 1.0))
        half = (high - low) / 2
        return (low + high) / 2 + half * mean, half * deviation

    def min_deviation(self, size: int) -> float:
        """Return the least deviation that is found with more features than `WIDE`, in parts of a feature's range."""
        variance = gaussian_variance(self.box.dimension * 4**_PLACE_BITS, self.moment_nano // 2)
        return math.sqrt(min(1.0, math.sqrt(variance) / (max(1, size) * 2.0**_PLACE_BITS))) / 2

    def min_leaf(self, low: Integers, high: Integers, deviations: Floats) -> float:
        """Return the records of a leaf from which on its point's noise is `FINENESS` of how far records lie apart."""
        noise = float((high - low).sum()) / 2 / math.sqrt(self.point_nano / RHO_UNIT)
        return noise / (FINENESS * max(1.0, math.sqrt(float((deviations**2).sum()))))

    def _with_points(
        self,
        points: Floats,
        place: Integers,
        nodes: _Nodes,
        leaves: Integers,
        low: Integers,
        high: Integers,
        noise: Noise,
    ) -> Tree:
        """Draw a count and a mean in each leaf, and make all counts agree."""
        from ..._kernels import trees

        parents, levels, features, middles, children, asked = (
            np.concatenate(own)
            for own in (nodes.parents, nodes.levels, nodes.features, nodes.middles, nodes.children, nodes.asked)
        )
        own = np.full(nodes.total, -1, np.int64)
        own[leaves] = np.arange(len(leaves))
        # A leaf may have been split in vain: its points lie in children that were dropped.
        vain = features[leaves] >= 0
        for side in (0, 1):
            own[children[leaves[vain]] + side] = np.flatnonzero(vain)
        centers = (low + high) // 2
        reach = high - centers
        shifts = np.zeros(len(leaves), np.int64)
        while (large := (reach.max(axis=1, initial=0) >> shifts) >= 2**self._offset_bits).any():
            shifts += large
        sums, sizes = np.zeros(low.shape, np.int64), np.zeros(len(leaves), np.int64)
        trees.box_sums(points, place, own, centers, shifts, sums, sizes)
        rho = self.point_nano + (self.box.depth - levels[leaves] - vain) * self.level_nano
        count_nano = rho // 2
        reach >>= shifts[:, None]
        sides = reach * reach.sum(axis=1, keepdims=True)
        offsets = _noisy(sums, sides, (rho - count_nano)[:, None], noise)
        told = _noisy(sizes, np.ones_like(sizes), count_nano, noise)
        counts, variances = np.array(asked, np.float64), np.full(nodes.total, float(self.variance))
        told_variance = RHO_UNIT / (2 * count_nano)
        weight = float(self.variance) / (float(self.variance) + told_variance)
        counts[leaves] += weight * (told - counts[leaves])
        variances[leaves] = weight * told_variance
        counts, variances = agree(counts, variances, children, levels)
        known = counts[leaves]
        with np.errstate(over="ignore"):
            means = centers + offsets * 2.0 ** shifts[:, None] / np.maximum(known, 1.0)[:, None]
        means = np.where((known >= 1.0)[:, None], np.clip(means, low, high), centers)
        return Tree(
            parents, levels, features, middles, children, asked, counts, variances, leaves, low, high, means,
            np.full(low.shape[1], np.inf),
        )  # fmt: skip


def _halves(low: Integers, high: Integers, scales: Floats) -> tuple[Integers, Integers, tuple[Integers, Integers]]:
    """Cut boxes across their longest side, relative to `scales`: the feature, the last value below, the halves."""
    width = high - low
    feature = np.where(width > 0, (width + 1) * scales, -1.0).argmax(axis=1)
    rows = np.arange(len(low))
    middle = (low[rows, feature] + high[rows, feature]) // 2
    lows, highs = np.repeat(low, 2, axis=0), np.repeat(high, 2, axis=0)
    highs[2 * rows, feature] = middle
    lows[2 * rows + 1, feature] = middle + 1
    return feature, middle, (lows, highs)


def _noisy(exact: Integers, squares: Integers, rho_nano: Integers, noise: Noise) -> Integers:
    """Add noise to numbers with these squared sensitivities and shares of rho, drawn in the order of both; none where
    one is 0.
    """
    shares, sides = np.broadcast_to(rho_nano, squares.shape).ravel(), squares.ravel()
    order = np.lexsort((shares, sides))
    changes = (np.diff(sides[order]) != 0) | (np.diff(shares[order]) != 0)
    noisy = exact.flatten()
    for mine in np.split(order, np.flatnonzero(changes) + 1):
        square, share = (int(own[mine[0]]) if len(mine) else 0 for own in (sides, shares))
        if square:
            noisy[mine] += noise.discrete_gaussian(gaussian_variance(square, share), len(mine))
    return noisy.reshape(exact.shape)
