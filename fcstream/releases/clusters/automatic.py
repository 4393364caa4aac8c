"""Releases of clusters with ``method = "auto"``: by a tree, unless tuples that agree are predicted to be nearer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from ...errors import ConfigError
from ..averages import BallAverage
from ..options import BuildContext, Options
from ..trees.growing import ASKED, WIDE, PublicBox, TreeMechanism
from .centers import CentersOptions, CentersRelease
from .mixtures import MixturesOptions, MixturesRelease
from .plan import BallPlan, typical_quantile
from .tree_centers import REACHED, SLACK
from .tree_mixtures import TreeMixturesOptions, TreeMixturesRelease
from .tree_release import TreeCentersOptions, TreeCentersRelease

TUPLES_ALONE = ("oracle", "radius", "radius_min", "tuples", "variant", "fallback", "fallback_share")
"""Keys of methods with tuples that leave ``auto`` no tree to take."""
_SHARED = ("rho", "k", "center", "ball", "delta", "size_hint", "name", "features", "where", "per_user", "user_bounds")


class AutoCentersOptions(CentersOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "centers"``: k centers by tuples of parts that agree, or by ``method = "auto"`` also by a tree.

    ``auto`` takes the tree unless tuples are predicted to be nearer; ``fcstream plan`` says which method is taken, and
    why. The choice depends on settings alone, never on records. The tree is taken where `delta` or `size_hint` is left
    out, which tuples need, and for ``k = "auto"``. Where a key is given that belongs to tuples (`oracle`, `radius`,
    `radius_min`, `tuples`, `variant`, `fallback`, `fallback_share`), these are taken.

    Released
    --------
    value
        k centers, clipped to the public ranges.
    sigma
        One number for each coordinate of each center; null where a coordinate was not measured.
    parts.counts
        Noisy number of records of each center.
    parts.clipped
        For each center whether it or its number was clipped.
    parts.tuples
        Number of tuples that were compared; null for a tree.

    Cost
    ----
    rho, and delta where tuples are taken or records are limited. By tuples a refusal costs about 5% of rho and no
    delta, unless nearly enough of them agree; by a tree a window with too few records 1 to 3 percent of rho.

    Privacy
    -------
    `TreeCentersRelease` or `CentersRelease` states the guarantee.

    Source
    ------
    Specification 6.20, 12.1; proofs 7.8, 7.10.
    """

    k: int | Literal["auto"]  # type: ignore[assignment]
    """Number of clusters, at most 256 by a tree; ``auto``, which takes one: 2 to 12, chosen on the released points."""
    method: str = "auto"
    """How centers are found: from a core of tuples that parts of the window give (``friendly``), by the k-tuple paper
    (``ktuples``), or by a tree or one of both, whichever the settings predict nearer (``auto``)."""
    spread: float | None = None
    """Public radius of a cluster, in scaled units: tuples clip records to it in the last step, and the comparison with
    a tree supposes clusters of this width."""

    def chosen(self, setting: BuildContext) -> tuple[Options, str]:
        tree = TreeCentersOptions(**{key: getattr(self, key) for key in _SHARED})
        return _chosen(self, CentersOptions(**msgspec.structs.asdict(self)), tree, setting)

    def build(self, setting: BuildContext) -> CentersRelease | TreeCentersRelease:  # type: ignore[override]
        return self.chosen(setting)[0].build(setting)  # type: ignore[return-value]


class AutoMixturesOptions(MixturesOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "mixtures"``: k clusters by tuples of parts that agree, or by ``method = "auto"`` also by a tree.

    ``auto`` chooses as for `centers`; the tree is also taken where `spread` is left out, which tuples need.

    Released
    --------
    value, sigma
        The means of k clusters; `sigma` is null where a mean was not measured.
    parts.weights, parts.counts
        Share and noisy number of records of each cluster.
    parts.covariances, parts.covariance_sigma, parts.covariance_interval
        A covariance matrix for each cluster, and the deviation of its noise.
    parts.clipped, parts.tuples
        As of `centers`.

    Cost
    ----
    rho, and delta where tuples are taken or records are limited.

    Privacy
    -------
    `TreeMixturesRelease` or `MixturesRelease` states the guarantee.

    Source
    ------
    Specification 6.20, 12.1; proofs 7.9, 7.10.
    """

    k: int | Literal["auto"]  # type: ignore[assignment]
    """Number of clusters, at most 256 by a tree; ``auto``, which takes one: 2 to 12, chosen on the released points."""
    method: str = "auto"
    """How centers are found: from a core of tuples that parts of the window give (``friendly``), by the k-tuple paper
    (``ktuples``), or by a tree or one of both, whichever the settings predict nearer (``auto``)."""
    spread: float | None = None  # type: ignore[assignment]
    """Public radius of a cluster, in scaled units, which records are clipped to where tuples are taken."""

    def chosen(self, setting: BuildContext) -> tuple[Options, str]:
        tree = TreeMixturesOptions(**{key: getattr(self, key) for key in _SHARED})
        return _chosen(self, MixturesOptions(**msgspec.structs.asdict(self)), tree, setting)

    def build(self, setting: BuildContext) -> MixturesRelease | TreeMixturesRelease:  # type: ignore[override]
        return self.chosen(setting)[0].build(setting)  # type: ignore[return-value]


def _chosen(
    options: AutoCentersOptions | AutoMixturesOptions,
    tuples: CentersOptions | MixturesOptions,
    tree: TreeCentersOptions | TreeMixturesOptions,
    setting: BuildContext,
) -> tuple[Options, str]:
    """Take a method by settings alone; checks what would be checked whichever is taken."""
    if options.method != "auto":
        return tuples, ""
    defaults = {own.name: own.default for own in msgspec.structs.fields(type(options))}
    theirs = [key for key in TUPLES_ALONE if key in defaults and getattr(options, key) != defaults[key]]
    if theirs:
        return tuples, f"`auto` leaves the tree out: `release.{theirs[0]}` belongs to tuples"
    lacking = [f"`release.{key}`" for key in ("delta", "size_hint") if not getattr(options, key)]
    if isinstance(options, MixturesOptions) and options.spread is None:
        lacking.append("`release.spread`")
    if options.k == "auto":
        lacking.append("a number `release.k`")
    if lacking:
        return tree, f"`auto` takes the tree: tuples need {' and '.join(lacking)}"
    tuples.approximate_loss(options.delta)
    size = tuples.checked_size_hint()
    tuples.job(setting, size, spread=options.spread)
    try:
        planned = tuples.build(setting)
    except ConfigError:
        return tree, f"`auto` takes the tree: no plan for tuples works with {size} records at this `release.rho`"
    compared = compare(tree.build(setting), planned, size, setting.grid.lattice.step)
    return (tuples if compared.tuples < compared.tree else tree), compared.why


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """How far noise is predicted to move a center, by a tree and by tuples, in scaled units.

    Attributes
    ----------
    tree, tuples : float
        Standard deviation in each coordinate.
    why : str
        What is taken, in one sentence.

    Privacy
    -------
    Holds public numbers only, so it costs nothing.

    Source
    ------
    Specification 6.20; ours.
    """

    tree: float
    tuples: float
    why: str


def compare(
    tree: TreeCentersRelease | TreeMixturesRelease, tuples: CentersRelease | MixturesRelease, size: int, step: float
) -> MethodComparison:
    """Predict the noise of centers by both methods, for k clusters of equal size that tuples can tell apart.

    Parameters
    ----------
    tree, tuples
        The same release by both.
    size : int
        Public guess of the number of records.
    step : float
        Step of the lattice.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.20; ours.
    """
    job, plan = tuples.job, tuples.choice.plan
    width = job.spread
    if width is None:
        # As wide as clusters can be that lie the ball's diameter apart, and of k parts of the ball at most.
        apart = typical_quantile(len(job.center), 1 - REACHED) * 2 * job.ball / plan.separation
        width = min(apart, job.ball / job.k ** (1 / len(job.center)))
    mechanism = tree.inner
    by_tree = tree_noise(mechanism.average, mechanism.tree, tree.box, job.k, size, width / step) * step
    by_tuples = tuples.forecast(size).sigma * step
    form = "balls of tuples (`ktuples`)" if isinstance(plan, BallPlan) else "a core of tuples (`friendly`)"
    taken, other = ("the tree", form) if by_tree <= by_tuples else (form, "the tree")
    least, more = sorted((by_tree, by_tuples))
    return MethodComparison(
        by_tree,
        by_tuples,
        f"`auto` takes {taken}: noise is predicted to move each coordinate of a center by {least:.2g} in scaled units, "
        f"with {other} by {more:.2g}, for {job.k} clusters of equal size with a radius of {width:.2g}",
    )


def tree_noise(average: BallAverage, tree: TreeMechanism, box: PublicBox, k: int, size: int, width: float) -> float:
    """Predict the noise of a center by a tree, in lattice steps, for k equal clusters with a radius of `width` steps.

    Records are clipped to a ball as wide as the cluster and as the tree's last boxes. Boxes are halved to the end where
    a cluster has enough records to be looked at, else as long as all records together are enough; in many features half
    as often, as they are not halved where that gains little.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 6.20; ours.
    """
    share, asked = max(1.0, size / k), ASKED * math.sqrt(tree.variance)
    depth = box.depth if box.dimension <= WIDE else box.depth // 2
    cuts = depth if share > asked else min(depth, int(math.log2(max(1.0, size / asked))))
    each, more = divmod(cuts, box.dimension)
    halvings = each + (np.arange(box.dimension) < more)
    sides = (np.array(box.high, float) - np.array(box.low, float)) / 2.0**halvings
    radius = SLACK * math.sqrt(width**2 + float((sides**2).sum()) / 12)
    return average.sigma(radius**2, share)
