"""Clusters from a private tree: k-means on its points; then, for centers, one noisy Lloyd step over all records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import PrivacyLoss
from ...errors import ConfigError
from ...noise.samplers import Noise
from ...stream.lattice import MAX_RADIUS_SQUARED
from ..averages import MIN_NANO, BallAverage, Start, in_parts
from ..core_stage import normal_above
from ..trees.growing import PublicBox, Tree, TreeMechanism
from ..trees.points import MAX_CHOSEN, choose_k, k_means, reaches, weighted_points
from .found import ClusterCenters

COUNT_SHARE, POINT_SHARE = 0.42, 0.18
"""Shares of rho of the tree's counts and of its points; the Lloyd step has the rest."""
LLOYD_COUNTS = 0.2
"""Share of the Lloyd step's rho that its counts have; its sums have the rest."""
MAX_CLUSTERS = 256
"""So many clusters are found within seconds on a tree of any size."""
REACHED, SLACK = 0.99, 1.3
"""In the Lloyd step a cluster's ball holds this share of its points' weight, and is so many times as wide."""


@dataclass(frozen=True)
class PublicBall:
    """A public ball; records outside do not count.

    Attributes
    ----------
    center : tuple of int
        A lattice point.
    squared : int
        Squared radius in lattice steps.

    Privacy
    -------
    Public: a function of the configuration alone. Whether a record is inside depends on that record only.

    Source
    ------
    Specification 6.11; ours.
    """

    center: tuple[int, ...]
    squared: int

    def inside(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the points (n, d) inside, in their order."""
        from ..._kernels import clusters

        mask = np.empty(len(points), np.bool_)
        clusters.within(points - np.array(self.center, np.float64), float(self.squared), mask)
        return points[mask]

    def box(self) -> PublicBox:
        """Return the box around the ball."""
        reach = math.isqrt(self.squared) + 1
        return PublicBox(tuple(x - reach for x in self.center), tuple(x + reach for x in self.center))


class FoundParts(NamedTuple):
    """Clusters that were found on the points of a tree.

    Attributes
    ----------
    centers : float64 (k, d)
        Lattice points within the box.
    squared : list of int
        For each center the squared radius of the ball to which its records are clipped.
    tree : Tree

    Privacy
    -------
    All of it is released.

    Source
    ------
    Specification 6.16; ours.
    """

    centers: NDArray[np.float64]
    squared: list[int]
    tree: Tree


@dataclass(frozen=True)
class TreeParts:
    """Base class of mechanisms that find k clusters on the points of a tree, and then look at the records of each.

    Parameters
    ----------
    rho_nano : int
        rho (nano) of one release.
    k : int or None
        Number of clusters; None chooses it on the released points.
    box : PublicBox
        Public box that holds the records; others are moved to its border.
    ball : PublicBall or None
        Records outside do not count.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0: `TreeMechanism`, then a subclass spends what is
    left of rho on parts around released centers, of which a record is in one. A noisy number of records below
    `min_count` is refused (``too_few``) after the first level, the rest is refunded.

    Source
    ------
    Specification 6.16, 6.18; proof 7.10; ours.
    """

    rho_nano: int
    k: int | None
    box: PublicBox
    ball: PublicBall | None = None

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise ConfigError("must be at least 1", "release.k", got=self.k)
        if self.k is not None and self.k > MAX_CLUSTERS:
            raise ConfigError(
                f"must be at most {MAX_CLUSTERS} for a tree",
                "release.k",
                got=self.k,
                remedy="ask for fewer, or by another `method`",
            )
        _ = self.tree, self.average

    @property
    def shares(self) -> tuple[float, float]:
        """Shares of rho of the tree's counts and of its points."""
        return COUNT_SHARE, POINT_SHARE

    @property
    def average(self) -> BallAverage:
        """The average of the records of each part."""
        raise NotImplementedError

    @property
    def loss(self) -> PrivacyLoss:
        return PrivacyLoss(self.rho_nano)

    @cached_property
    def tree(self) -> TreeMechanism:
        counts, points = self.shares
        return TreeMechanism(self.box, int(self.rho_nano * counts), int(self.rho_nano * points))

    @property
    def left_nano(self) -> int:
        """rho (nano) that the tree leaves."""
        return self.rho_nano - self.tree.loss.rho_nano

    @property
    def min_count(self) -> int:
        """Least noisy number of records for which clusters are released."""
        return self.tree.min_count

    @property
    def false_release(self) -> float:
        return self.tree.false_release

    def chance(self, size: int) -> float:
        """Return the probability that a window of `size` records is answered."""
        return normal_above((self.min_count - 0.5 - size) / math.sqrt(self.tree.variance))

    def inside(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return those of some lattice points (n, d) that count."""
        return points if self.ball is None else self.ball.inside(points)

    def parts(self, points: NDArray[np.float64], noise: Noise, start: Start) -> FoundParts | None:
        """Find clusters of lattice points that count, which are clamped to the box in place; None for too few."""
        tree, _ = self.tree.release(points, noise, start)
        if tree is None:
            return None
        k = self.k or choose_k(tree, noise)
        stand = weighted_points(tree, k)
        rough, _ = k_means(stand.places, stand.weights, k, noise)
        low, high = np.array(self.box.low, np.float64), np.array(self.box.high, np.float64)
        centers = np.ascontiguousarray(np.clip(np.rint(rough), low, high))
        radii = np.maximum(1.0, np.ceil(SLACK * reaches(stand, centers, REACHED)))
        squared = [int(min(radius * radius, MAX_RADIUS_SQUARED)) for radius in radii.tolist()]
        return FoundParts(centers, squared, tree)


@dataclass(frozen=True)
class TreeClustering(TreeParts):
    """Mechanism of k centers that are found on the points of a tree and improved by one noisy Lloyd step.

    Privacy
    -------
    That of `TreeParts`: in the step a record is in one part, whose count it moves by 1 and whose sum by R_j at most
    (`BallAverage`).

    Complexity
    ----------
    O(n) for each level of the tree, O(n k d) for the step.

    Source
    ------
    Specification 6.16; proof 7.10; ours, with the noisy Lloyd step of Blum, Dwork, McSherry, Nissim 2005.
    """

    @cached_property
    def average(self) -> BallAverage:
        """The average of each part in the Lloyd step."""
        count = max(1, int(self.left_nano * LLOYD_COUNTS))
        return BallAverage(max(MIN_NANO, self.left_nano - count), count, self.k or MAX_CHOSEN)

    def find(self, points: NDArray[np.float64], noise: Noise, start: Start) -> ClusterCenters:
        """Find centers of lattice points (n, d), which are clamped to the box in place; `start` precedes each stage."""
        from ..._kernels import trees

        points = self.inside(points)
        found = self.parts(points, noise, start)
        if found is None:
            return ClusterCenters("too_few")
        centers, squared, _ = found
        k = len(centers)
        sums, sizes = np.zeros(centers.shape, np.int64), np.zeros(k, np.int64)
        trees.part_sums(points, centers, np.array(squared, np.float64), sums, sizes)
        begin = in_parts(start)
        sigma, counts = np.full_like(centers, np.nan), np.zeros(k, np.int64)
        for j in range(k):
            mean, counts[j] = self.average.divide(
                sums[j].tolist(), int(sizes[j]), centers[j], squared[j], noise, begin()
            )
            if mean is not None:
                centers[j], sigma[j] = mean.value, mean.sigma
        order = np.lexsort(centers.T[::-1])
        return ClusterCenters(None, centers[order], sigma[order], counts[order])
