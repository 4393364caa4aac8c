"""Mixtures: weights, means and covariances of clusters, from two halves of the records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConfigError
from ..zcdp import PrivacyLoss
from .averages import BallAverage, gaussian_variance, to_center
from .clusters import Centers, LloydStep

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..friends import WindowView
    from ..noise import Noise
    from .averages import Start

_PRODUCT_BITS = 32  # of a clipped offset's squared length, so that sums of products fit int64


@dataclass(frozen=True, slots=True)
class Mixture:
    """What is said of a window's mixture, in lattice steps. All of it counts as released.

    Attributes
    ----------
    reason : str or None
    weights : float64 (k,) or None
        Positive parts of the noisy counts, normalized.
    means : float64 (k, d) or None
    covariances : float64 (k, d, d) or None
        Noisy and positive semidefinite; of the records within the spread of their center.

    Privacy
    -------
    Released values.

    Source
    ------
    Ours.
    """

    reason: str | None
    weights: NDArray[np.float64] | None = None
    means: NDArray[np.float64] | None = None
    covariances: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class PartLearner:
    """Count, mean and second moments of one part, around a released center.

    Parameters
    ----------
    rho_nano : int
    dimension : int
    spread_squared : int
        Public squared radius that records are clipped to.

    Privacy
    -------
    Unit: one record. Relation: add or remove. rho-zCDP: a third for the count and mean (`BallAverage`), the rest for
    the second moments. Sensitivity: products of a clipped offset, each pair once, R**2 in l2.

    Source
    ------
    Gaussian mechanism; Cohen et al. 2021 take any learner of one Gaussian.
    """

    rho_nano: int
    dimension: int
    spread_squared: int

    @cached_property
    def _mean(self) -> BallAverage:
        return BallAverage.split(self.rho_nano // 3, self.dimension)

    def release(
        self, view: WindowView, part: NDArray[np.bool_], points: NDArray[np.float64], center: NDArray[np.float64],
        noise: Noise,
    ) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
        """Noisy count, mean (d,) and covariance (d, d) of the part of a view; the center and 0 where too few."""
        from .._kernels import clusters

        d = self.dimension
        found, count = self._mean.release(view.select(part), center, self.spread_squared, noise)
        shift = max(0, math.ceil((self.spread_squared.bit_length() - _PRODUCT_BITS) / 2))
        clipped = np.empty((int(np.count_nonzero(part)), d), np.int64)
        clusters.clip(np.ascontiguousarray(points[part] - center), float(self.spread_squared), shift, clipped)
        ball = -(-self.spread_squared // 4**shift)
        variance = gaussian_variance(ball * ball, self.rho_nano - self.rho_nano // 3)
        rows, columns = np.triu_indices(d)
        products = (clipped.T @ clipped)[rows, columns] + noise.discrete_gaussian(variance, len(rows))
        if found is None:
            return max(0, count), center, np.zeros((d, d))
        second = np.zeros((d, d))
        second[rows, columns] = products / count * 4.0**shift
        second = second + np.triu(second, 1).T
        offset = found.value - center
        values, vectors = np.linalg.eigh(second - np.outer(offset, offset))
        return count, found.value, (vectors * np.maximum(values, 0.0)) @ vectors.T


@dataclass(frozen=True)
class PrivateMixture:
    """PrivatekGMM: half of the records make the tuples, the other half is learned from.

    Parameters
    ----------
    centers : Centers
        What becomes of the first half, without its Lloyd step.
    learner_nano : int
        rho (nano) of one part's learner.
    spread_squared : int
        Public squared radius of a component around its center.

    Privacy
    -------
    Unit: one record. Relation: add or remove. Every record flips a coin for its half, so a record is in one: the cost
    is the larger of the tuples' (`centers.average.loss`) and of ONE part's learner, in rho and in delta each.
    Replacing a record would cost two parts' learners, or one part's own cost under replacement, which is up to 4 rho.

    Source
    ------
    Cohen et al. 2021, PrivatekGMM (section 6). Ours: halves by coins (the paper cuts by position, which breaks when a
    record is added), and the cost of one part under add or remove.
    """

    centers: Centers
    learner_nano: int
    spread_squared: int

    def __post_init__(self) -> None:
        if self.learner_nano < 9:
            raise ConfigError("must be at least 9e-9 for a count, a mean and second moments", "rho")
        if not 1 <= self.spread_squared < 2**53:
            raise ConfigError(f"must be in [1, 2**53) squared lattice steps, got {self.spread_squared}", "spread")

    @property
    def loss(self) -> PrivacyLoss:
        """What one release costs."""
        tuples = self.centers.average.loss
        return PrivacyLoss(max(tuples.rho_nano, self.learner_nano), tuples.delta_femto)

    @property
    def lloyd(self) -> LloydStep:
        return self.centers.lloyd

    def release(self, view: WindowView, noise: Noise, start: Start) -> Mixture:
        """The mixture of one window, or a refusal; `start` is told of the whole, since halves are paid as one."""
        start(self.loss)
        points = view.points()
        half = noise.uniform_integers(2, len(points)) == 1
        shards = self.centers.shards
        tuples = shards.tuples_of(points[half], noise)
        reason, rough = self.centers.average.release(tuples, noise, _paid)
        if rough is None:
            return Mixture(reason)
        labels = np.where(half, -1, self.lloyd.labels(view, rough.value))
        learner = PartLearner(self.learner_nano, points.shape[1], self.spread_squared)
        parts = [
            learner.release(view, labels == j, points, to_center(center), noise) for j, center in enumerate(rough.value)
        ]
        counts = np.array([float(max(0, part[0])) for part in parts])
        if not counts.any():
            return Mixture("too_few")
        means = np.stack([part[1] for part in parts])
        order = np.lexsort(means.T[::-1])
        return Mixture(None, (counts / counts.sum())[order], means[order], np.stack([part[2] for part in parts])[order])


def _paid(loss: PrivacyLoss) -> None:
    """The whole was started."""
