"""Mixtures of k clusters by a private tree, ``kind = "mixtures"`` with ``method = "tree"``."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ...accounting.losses import PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import MAX_RADIUS_SQUARED, Grid
from ..averages import BallAverage, Start, check_noise, in_parts
from ..base import Forecast, MechanismBase, Outcome, PlanNotes, ReleaseValues
from ..core_stage import normal_above
from ..options import BuildContext, Options
from ..trees.growing import PublicBox, TreeMechanism
from ..trees.points import MOST_CHOSEN, choose_k, k_means, reaches, weighted_points
from .mixtures import ClusterMixture, ComponentLearner, mixture_in_user_units
from .pipeline import nearest_labels
from .tree_centers import REACHED, SLACK, PublicBall
from .tree_release import region_of

COUNT_SHARE, POINT_SHARE = 0.3, 0.1
"""Shares of rho of the tree's counts and of its points; the components have the rest."""
_EVERYWHERE = 2**100  # the squared radius of a ball that holds every lattice point


class TreeMixturesOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "mixtures"`` with ``method = "tree"``: a mixture that is answered for any records but too few.

    Clusters are found as by ``method = "tree"`` of `centers`; then number, mean and covariance of the records that are
    nearest to each center are released. It needs no δ, no `size_hint`, no `spread`, and no clusters that lie apart.

    Released
    --------
    value, sigma
        The means of k clusters; `sigma` is null for one with too few records, which stays where k-means put it.
    parts.weights, parts.counts
        Share and noisy number of records of each cluster.
    parts.covariances, parts.covariance_sigma
        A covariance matrix for each cluster, and the deviation of its noise.
    parts.clipped
        For each cluster whether its mean or its number was clipped.
    parts.tuples
        Always null: there are none.

    Cost
    ----
    rho; a window with too few records 1 to 2 percent of it.

    Privacy
    -------
    `TreeMixturesRelease` states the guarantee.

    Source
    ------
    Specification 6.18, 12.1; proof 7.10.
    """

    kind: str = "mixtures"
    k: int | Literal["auto"]
    """Number of clusters; ``auto``: 2 to 12, chosen on the released points."""
    method: str = "tree"
    """How clusters are found."""
    center: list[float] | None = None
    """Center of the public ball, in the features' own (transformed) units. Left out: the middle of their ranges."""
    ball: float | None = None
    """Radius of the public ball in which records count, in scaled units. Left out: all count."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""

    needs_no_delta: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> TreeMixturesRelease:
        box, ball = region_of(self.center, self.ball, setting.grid)
        k = None if self.k == "auto" else self.k
        release = TreeMixturesRelease(self.pure_loss(), k, box, ball)
        _ = release.inner
        return release


@dataclass(frozen=True)
class TreeMixture:
    """Mechanism of a mixture whose clusters are found on the points of a tree.

    Parameters
    ----------
    rho_nano : int
        rho (nano) of one release.
    k : int or None
        Number of clusters; None chooses it on the released points.
    box : PublicBox
    ball : PublicBall or None
        Records outside do not count.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0: `TreeMechanism`, then a `ComponentLearner` of
    each part around released centers, with released radii; a record is in one part.

    Source
    ------
    Specification 6.18; proof 7.10; ours.
    """

    rho_nano: int
    k: int | None
    box: PublicBox
    ball: PublicBall | None = None

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise ConfigError(f"must be at least 1, got {self.k}", "release.k")
        if self.learner_nano < 9:
            raise ConfigError("must be larger for counts, means and second moments", "release.rho")
        check_noise(2**64, self.learner_nano - self.learner_nano // 3)  # of any ball
        _ = self.average

    @functools.cached_property
    def tree(self) -> TreeMechanism:
        return TreeMechanism(self.box, int(self.rho_nano * COUNT_SHARE), int(self.rho_nano * POINT_SHARE))

    @property
    def learner_nano(self) -> int:
        """rho (nano) of the components."""
        return self.rho_nano - self.tree.loss.rho_nano

    @property
    def average(self) -> BallAverage:
        """The average of each component's mean."""
        return self._learner(1).average

    def _learner(self, radius_squared: int) -> ComponentLearner:
        return ComponentLearner(self.learner_nano, self.box.dimension, radius_squared, self.k or MOST_CHOSEN)

    def find(self, view: WindowView, noise: Noise, start: Start) -> ClusterMixture:
        """Find the mixture of one window, or refuse; `start` precedes each stage."""
        ball = self.ball or PublicBall((0,) * self.box.dimension, _EVERYWHERE)
        tree, _ = self.tree.release(view.points() if self.ball is None else ball.inside(view.points()), noise, start)
        if tree is None:
            return ClusterMixture("too_few")
        k = self.k or choose_k(tree, noise)
        stand = weighted_points(tree, k)
        rough, _ = k_means(stand.places, stand.weights, k, noise)
        low, high = np.array(self.box.low, np.float64), np.array(self.box.high, np.float64)
        centers = np.ascontiguousarray(np.clip(np.rint(rough), low, high))
        radii = np.maximum(1.0, np.ceil(SLACK * reaches(stand, centers, REACHED)))
        labels = nearest_labels(view, centers, ball.center, ball.squared)
        begin, points = in_parts(start), view.points()
        parts = [
            self._learner(int(min(radii[j] ** 2, MAX_RADIUS_SQUARED))).release(
                view, labels == j, points, centers[j], noise, begin()
            )
            for j in range(k)
        ]
        if all(part.sigma is None for part in parts):
            return ClusterMixture("too_few")
        means = np.stack([part.mean for part in parts])
        order = np.lexsort(means.T[::-1])
        unknown = np.full(self.box.dimension, np.nan)
        return ClusterMixture(
            None,
            np.array([part.count for part in parts], np.int64)[order],
            means[order],
            np.stack([unknown if part.sigma is None else part.sigma for part in parts])[order],
            np.stack([part.covariance for part in parts])[order],
            np.array([part.covariance_sigma for part in parts])[order],
        )


@functools.lru_cache(maxsize=64)
def _built(rho_nano: int, k: int | None, box: PublicBox, ball: PublicBall | None) -> TreeMixture:
    return TreeMixture(rho_nano, k, box, ball)


@dataclass(frozen=True)
class TreeMixturesRelease(MechanismBase):
    """Release of a mixture by a tree; ``parts`` as of `MixturesRelease`, but learned from all records.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    k : int or None
        None chooses it on released points.
    box : PublicBox
    ball : PublicBall or None
        Records outside do not count.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0 by `TreeMixture`. A window whose noisy number of
    records is too small is refused (``too_few``) after the tree's first level, and the rest is refunded.

    Source
    ------
    Specification 6.18; proof 7.10; ours.
    """

    loss: PrivacyLoss
    k: int | None
    box: PublicBox
    ball: PublicBall | None = None
    kind: str = "mixtures"

    @property
    def inner(self) -> TreeMixture:
        return _built(self.loss.rho_nano, self.k, self.box, self.ball)

    @property
    def false_release(self) -> float:
        return self.inner.tree.false_release

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        return self.inner.find(view, noise, charge.start).outcome()

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of `size` records; how wide its clusters are, and so their noise, only the data tell."""
        tree = self.inner.tree
        return Forecast(normal_above((tree.least_count - 0.5 - size) / math.sqrt(tree.variance)), math.nan)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        return mixture_in_user_units(outcome, grid)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {feature.name: math.nan for feature in grid.features}

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        line = f"k-means on the points of a tree of at most {self.box.depth} levels; components from all records"
        return PlanNotes((line,), stopped=self.inner.tree.first)
