"""Mixtures of k clusters by a private tree, ``kind = "mixtures"`` with ``method = "tree"``."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..averages import BallAverage, Start, check_noise, in_parts
from ..base import Outcome, PlanNotes, ReleaseValues
from ..options import BuildContext
from ..trees.growing import PublicBox
from ..trees.points import MAX_CHOSEN
from .mixtures import ClusterMixture, ComponentLearner, mixture_in_user_units, mixture_of
from .overlaps import Mixture, overlapping
from .pipeline import nearest_labels
from .tree_centers import FoundParts, PublicBall, TreeParts
from .tree_release import TreeClustersOptions, TreeClustersRelease

COUNT_SHARE, POINT_SHARE = 0.3, 0.1
"""Shares of rho of the tree's counts and of its points; the components have the rest."""
_EVERYWHERE = 2**100  # the squared radius of a ball that holds every lattice point


@dataclass(frozen=True)
class TreeMixture(TreeParts):
    """Mechanism of a mixture whose clusters are found on the points of a tree.

    Privacy
    -------
    That of `TreeParts`, with a `ComponentLearner` of each part around its released center, with its released radius.

    Source
    ------
    Specification 6.18; proof 7.10; ours.
    """

    def __post_init__(self) -> None:
        if self.left_nano < 9:
            raise ConfigError("must be larger for counts, means and second moments", "release.rho")
        check_noise(2**64, self.left_nano - self.left_nano // 3)  # of any ball
        super().__post_init__()

    @property
    def shares(self) -> tuple[float, float]:
        return COUNT_SHARE, POINT_SHARE

    @property
    def average(self) -> BallAverage:
        """The average of each component's mean."""
        return self._learner(1).average

    def _learner(self, radius_squared: int) -> ComponentLearner:
        return ComponentLearner(self.left_nano, self.box.dimension, radius_squared, self.k or MAX_CHOSEN)

    def find(self, view: WindowView, noise: Noise, start: Start) -> ClusterMixture:
        """Find the mixture of one window, or refuse; `start` precedes each stage."""
        found = self.parts(self.inside(view.points()), noise, start)
        if found is None:
            return ClusterMixture("too_few")
        ball = self.ball or PublicBall((0,) * self.box.dimension, _EVERYWHERE)
        labels = nearest_labels(view, found.centers, ball.center, ball.squared)
        begin, points = in_parts(start), view.points()
        parts = [
            self._learner(squared).release(view, labels == j, points, center, noise, begin())
            for j, (center, squared) in enumerate(zip(found.centers, found.squared, strict=True))
        ]
        if all(part.sigma is None for part in parts):
            return ClusterMixture("too_few")
        unknown = np.full(self.box.dimension, np.nan)
        told = mixture_of(parts, [unknown if part.sigma is None else part.sigma for part in parts])
        if all(part.sigma is not None for part in parts):
            told = _fitted(told, found, noise)
        return told.ascending()


def _fitted(told: ClusterMixture, found: FoundParts, noise: Noise) -> ClusterMixture:
    """Fit a mixture of Gaussians to what was told of parts, if clusters overlap; its noise is not known then."""
    assert told.weights is not None
    assert told.means is not None
    assert told.covariances is not None
    fitted = overlapping(found.tree, found.centers, Mixture(told.weights, told.means, told.covariances), noise)
    if fitted is None:
        return told
    return replace(
        told,
        shares=fitted.weights,
        means=fitted.means,
        sigma=np.full_like(told.means, np.nan),
        covariances=fitted.covariances,
        covariance_sigma=np.full_like(told.covariances, np.nan),
    )


@functools.lru_cache(maxsize=64)
def _built(rho_nano: int, k: int | None, box: PublicBox, ball: PublicBall | None) -> TreeMixture:
    return TreeMixture(rho_nano, k, box, ball)


@dataclass(frozen=True)
class TreeMixturesRelease(TreeClustersRelease):
    """Release of a mixture by a tree; ``parts`` as of `MixturesRelease`, but learned from all records.

    Privacy
    -------
    That of `TreeClustersRelease`, by `TreeMixture`.

    Source
    ------
    Specification 6.18; proof 7.10; ours.
    """

    kind: str = "mixtures"

    @property
    def inner(self) -> TreeMixture:
        return _built(self.loss.rho_nano, self.k, self.box, self.ball)

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        found = self.inner.find(view, noise, charge.start)
        outcome = found.outcome()
        if outcome.parts is None:
            return outcome
        return replace(outcome, parts={**outcome.parts, "fitted": found.shares is not None})

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        return mixture_in_user_units(outcome, grid)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        line = f"k-means on the points of a tree of at most {self.box.depth} levels; components from all records"
        return PlanNotes((line,), stopped=self.inner.tree.first)


class TreeMixturesOptions(TreeClustersOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "mixtures"`` with ``method = "tree"``: a mixture that is answered for any records but too few.

    Clusters are found as by ``method = "tree"`` of `centers`; then number, mean and covariance of the records that are
    nearest to each center are released. It needs no δ, no `size_hint`, no `spread`, and no clusters that lie apart.

    Released
    --------
    value, sigma
        The means of k clusters; `sigma` is null for one with too few records, which stays where k-means put it.
    parts.weights, parts.counts
        Share of each cluster, and the noisy number of the records nearest to its center.
    parts.covariances, parts.covariance_sigma, parts.covariance_interval
        A covariance matrix for each cluster, and the deviation of its noise.
    parts.fitted
        Whether clusters overlap, so that a mixture of Gaussians was fitted to what is known of the records nearest to
        each center. Then no `sigma` is known.
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

    def build(self, setting: BuildContext) -> TreeMixturesRelease:
        release = TreeMixturesRelease(*self.settings(setting))
        _ = release.inner
        return release
