"""Private centers of one array's clusters, without windows or files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..accounting.losses import PrivacyLoss
from ..counting.exact import FriendCounts
from ..counting.rows import points_inside
from ..counting.views import WindowView
from ..errors import ConfigError
from ..noise.samplers import Noise
from ..releases.clusters.automatic import compare
from ..releases.clusters.centers import CentersRelease
from ..releases.clusters.found import ClusterCenters
from ..releases.clusters.mixtures import ClusterMixture
from ..releases.clusters.mixtures import MixtureAlgorithm as Learned
from ..releases.clusters.oracles import Oracle
from ..releases.clusters.plan import ClusterJob
from ..releases.clusters.tree_centers import TreeClustering, TreeParts
from ..releases.clusters.tree_mixtures import TreeMixture
from ..releases.clusters.tree_release import TreeCentersRelease
from ..releases.trees.growing import box_of
from ..stream.lattice import Feature, Grid, Lattice
from .arguments import (
    Bounds,
    GivenRows,
    check_method,
    cluster_number,
    ends_of,
    naming_arguments,
    noise_of,
    number_of,
    number_or_none,
    numbers_of,
    rows_of,
    whole_or_none,
)
from .left_out import count_left_out
from .statistics import _charge, _loss

T = TypeVar("T", bound=TreeParts)


@dataclass(frozen=True)
class CentersAnswer:
    """Centers of an array's clusters, or a refusal; every attribute may be published.

    Attributes
    ----------
    status : str
        ``released`` or ``refused``.
    reason : str or None
        Why it was refused. ``no_match``: the shards' tuples do not agree. ``no_radius``: the shards' tuples do not even
        agree on a scale. ``too_few``: there are too few records.
    centers, sigma : float64 (k, d) or None
        The centers in the rows' units, ascending, and the standard deviation of their noise; NaN for a center that has
        too few rows for a mean of its own, and stays where released numbers put it.
    counts : int64 (k,) or None
        Noisy number of rows in each cluster.
    tuples : int or None
        Noisy number of shards that agreed; None also for a tree, and if the fallback answered.
    spent : PrivacyLoss
        The loss of the stages that were started; the rest of the budget was not spent.
    left_out : dict of str to int
        Number of rows that were left out, by reason. **Exact and private: do not publish it.** No part of the answer.
    private : bool
        False if the noise came from a seeded source; such an answer must never be published.
    """

    status: str
    reason: str | None
    centers: NDArray[np.float64] | None
    sigma: NDArray[np.float64] | None
    counts: NDArray[np.int64] | None
    tuples: int | None
    spent: PrivacyLoss
    private: bool
    left_out: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def value(self) -> NDArray[np.float64] | None:
        """The centers, under the name that every answer's value has."""
        return self.centers


@naming_arguments
def private_centers(
    points: ArrayLike,
    k: int | str,
    *,
    rho: float,
    step: float,
    ball: float | None = None,
    delta: float = 0.0,
    size_hint: int | None = None,
    bounds: Bounds | None = None,
    center: Sequence[float] | None = None,
    oracle: str | Oracle = "auto",
    radius: str | float = "histogram",
    radius_min: float | None = None,
    tuples: int | None = None,
    spread: float | None = None,
    method: str = "auto",
    fallback: str | None = None,
    fallback_share: float = 0.1,
    variant: str | None = None,
    noise: Noise | None = None,
) -> CentersAnswer:
    """Find differentially private centers of k clusters: of any by a tree, or of clusters well apart by tuples.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or lie outside the public ball, or outside `bounds`, are left out one by one.
    k : int or "auto"
        Number of clusters; of a tree at most 256, or ``auto``: 2 to 12, chosen on its released points.
    rho : float
        The largest loss of the answer; a refusal does not spend the loss of stages that it did not start, see
        `CentersAnswer.spent`.
    step : float
        Step of the lattice that rows are rounded to; much smaller than the clusters.
    ball : float, optional
        Radius of the public ball around `center` that rows lie in; ``tree`` and ``auto`` can do with `bounds` instead.
    delta : float
        The delta of the answer; ``tree`` has none, ``friendly`` and ``ktuples`` need one.
    size_hint : int, optional
        Public guess of the number of rows; ``tree`` needs none.
    bounds : (float, float) or two sequences of d floats, optional
        In place of `ball`, with ``tree`` and ``auto``: lower and upper ends of a public box that rows lie in, for all
        columns or for each.
    center : sequence of float, optional
        Center of the public ball; 0 by default.
    oracle : str or callable
        ``auto``, ``kmeans``, ``gaussians``, ``pca``, ``scipy``, or ``oracle(points (m, d), k, seed) -> (k, d)``, a pure
        function that is called once for every shard.
    radius : str or float
        How the distance of matched centers is bounded: ``histogram``, ``search``, or a public radius.
    radius_min : float, optional
        Smallest distance between centers that is looked for; 1/1000 of the ball by default.
    tuples : int, optional
        Number of shards; by default the number that lets clusters lie closest together.
    spread : float, optional
        Public radius of a cluster; the smaller it is, the smaller is the noise of the last step.
    method : str
        ``tree``: k-means on the noisy points of a private tree, and one noisy Lloyd step; it answers whatever the rows
        are, unless they are too few, and without a delta. ``friendly`` (Tsfadia et al. 2022) and ``ktuples`` (Cohen et
        al. 2021) need clusters that shards agree about. ``auto`` is the tree, unless `size_hint`, rho, delta, k, the
        public ball or box and `spread` predict less noise by one of those two; with `oracle`, `radius`, `radius_min`,
        `tuples`, `fallback` or `variant`, which belong to them, the one that needs less separation.
    fallback : str, optional
        With ``tree``, method ``tree`` answers with what is left of rho if the shards do not agree.
    fallback_share : float
        Share of rho that is kept for the fallback.
    variant : str, optional
        ``paper``: of ``ktuples`` the paper's own radii and Laplace noise, to compare with.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Raises
    ------
    ConfigError
        A public parameter is out of range or does not fit the others, for example a budget or a size at which no number
        of shards could release.

    Privacy
    -------
    Protects one row, added or removed, with (rho, delta)-zCDP, whatever the rows hold. The losses of several calls add
    up, and the caller must keep account of them. Not covered: run time, errors about the array's shape, and oracles
    that keep something between calls.

    Complexity
    ----------
    The oracle runs on n rows in t shards; t**2 / 2 comparisons of tuples and O(n k d) operations come on top. ``tree``:
    O(n) for each of 16 to 48 levels, and O(n k d).

    Source
    ------
    Specification 6.12, 6.16, 6.20; proofs 7.8, 7.10; erratum 1.2; Tsfadia et al. 2022, FC_Clustering.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rng = np.random.default_rng(1)
    >>> rows = rng.normal(0, 0.02, size=(30000, 2)) + rng.permutation([[0.5, 0.5], [-0.5, 0.0], [0.2, -0.6]] * 10000)
    >>> answer = fcstream.private_centers(rows, 3, ball=1, rho=1, delta=1e-8, size_hint=30000, step=1e-5)
    >>> answer.status, (answer.centers.round(1) + 0.0).tolist()
    ('released', [[-0.5, 0.0], [0.2, -0.6], [0.5, 0.5]])
    >>> answer = fcstream.private_centers(rows, 3, bounds=(-1, 1), rho=0.1, step=1e-5, method="tree")
    >>> answer.centers.round(1) + 0.0
    array([[-0.5,  0. ],
           [ 0.2, -0.6],
           [ 0.5,  0.5]])
    """
    rows, k, step = rows_of(points, "points"), cluster_number(k), number_of(step, "step")
    lattice, noise = Lattice(step), noise_of(noise)
    ball, spread = number_or_none(ball, "ball"), number_or_none(spread, "spread")
    radius_min = number_or_none(radius_min, "radius_min")
    size_hint, tuples = whole_or_none(size_hint, "size_hint"), whole_or_none(tuples, "tuples")
    radius = radius if isinstance(radius, str) else number_of(radius, "radius")
    loss, fallback_share = _loss(rho, delta), number_of(fallback_share, "fallback_share")
    check_method(method)
    alone: dict[str, tuple[object, object]] = {
        "radius": (radius, "histogram"),
        "radius_min": (radius_min, None),
        "tuples": (tuples, None),
    }
    alone |= {"oracle": (oracle, "auto"), "fallback": (fallback, None), "variant": (variant, None)}
    theirs = [name for name, (given, default) in alone.items() if given != default]
    if method == "tree" and (theirs or spread is not None):
        raise ConfigError("belongs to methods 'friendly' and 'ktuples': leave it out", (theirs or ["spread"])[0])
    by_tree = method == "tree" or (method == "auto" and not theirs and (k == "auto" or size_hint is None or not delta))
    if by_tree:
        return _tree_centers(rows, k, _bounds(bounds, ball, center, rows.width), rho, step, noise)
    if not isinstance(k, int):
        raise ConfigError(f"must be a whole number for method {method!r}, got {k!r}", "k")
    if bounds is not None and method != "auto":
        raise ConfigError("belongs to method 'tree': give `ball`", "bounds")
    if (ball is None and bounds is None) or size_hint is None:
        name = "size_hint" if size_hint is None else "ball"
        raise ConfigError(f"must be given: it is public, and method {method!r} needs it", name)
    where, reach = _center(center, rows.width), ball
    if bounds is not None:
        low, high = _bounds(bounds, ball, center, rows.width)
        where, reach = tuple(((low + high) / 2).tolist()), float(np.linalg.norm(high - low)) / 2
    job = ClusterJob(
        k, where, float(reach or 0), size_hint, oracle, radius, radius_min, tuples, spread, fallback, fallback_share,
        method=method, variant=variant,
    )  # fmt: skip
    if spread is not None:
        lattice.radius_squared(spread, "spread")
    if method == "auto" and not theirs:
        ends = _bounds(bounds, ball, center, rows.width)
        if _tree_is_nearer(job, loss, lattice, ends):
            return _tree_centers(rows, k, ends, rho, step, noise)
    mechanism = job.mechanism(loss, lattice)
    grid = _ball(lattice, job)
    within = rows.doubles(grid)
    if bounds is not None:
        box = _box(lattice, (low, high))
        within = within[box.located(rows.doubles(box))[1].all(axis=1)]
    points = points_inside(within, grid)
    left_out = count_left_out(rows, len(points), may_be_none=True)
    charge = _charge(mechanism.loss)
    charge.open(mechanism.loss)
    found = mechanism.find(_held(points), noise, charge.start)
    return _centers_answer(found, grid, mechanism.loss - charge.unused, noise, left_out)


def _tree_centers(
    rows: GivenRows,
    k: int | str,
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
    rho: float,
    step: float,
    noise: Noise,
) -> CentersAnswer:
    mechanism, grid = _by_tree(TreeClustering, k, bounds, rho, Lattice(step))
    points = points_inside(rows.doubles(grid), grid)
    left_out = count_left_out(rows, len(points))
    charge = _charge(mechanism.loss)
    charge.open(mechanism.loss)
    found = mechanism.find(points, noise, charge.start)
    return _centers_answer(found, grid, mechanism.loss - charge.unused, noise, left_out)


def _by_tree(
    made: type[T],
    k: int | str,
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
    rho: float,
    lattice: Lattice,
) -> tuple[T, Grid]:
    """Make a mechanism by a tree, and the grid of the public box."""
    grid = _box(lattice, bounds)
    return made(_loss(rho, 0.0).rho_nano, None if isinstance(k, str) else k, box_of(grid)), grid


def _box(lattice: Lattice, bounds: tuple[Iterable[float], Iterable[float]], name: str = "bounds") -> Grid:
    """Return the grid of a public box, whose ends (d,) each are those of an argument of this name."""
    ends = enumerate(zip(*(map(float, end) for end in bounds), strict=True))
    try:
        return Grid(lattice, tuple(Feature(f"x{k}", low, high) for k, (low, high) in ends))
    except ConfigError as error:
        raise ConfigError(error.message, name if error.key.startswith("features.") else error.key) from None


def _ball(lattice: Lattice, job: ClusterJob) -> Grid:
    """Return the grid of the box around a job's public ball."""
    middle = np.array(job.center)
    return _box(lattice, (middle - job.ball, middle + job.ball), "ball")


def _tree_is_nearer(
    job: ClusterJob, loss: PrivacyLoss, lattice: Lattice, bounds: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> bool:
    """Compare both methods by public numbers; what is wrong with the job itself is raised by either."""
    tuples, tree = CentersRelease(loss, job, lattice), TreeCentersRelease(loss, job.k, box_of(_box(lattice, bounds)))
    try:
        _ = tuples.average
    except ConfigError:
        return True
    compared = compare(tree, tuples, job.size_hint, lattice.step)
    return compared.tree <= compared.tuples


def _centers_answer(
    found: ClusterCenters, grid: Grid, spent: PrivacyLoss, noise: Noise, left_out: dict[str, int]
) -> CentersAnswer:
    return CentersAnswer(
        status="refused" if found.centers is None else "released",
        reason=found.reason,
        centers=None if found.centers is None else np.array(grid.values(found.centers)),
        sigma=None if found.sigma is None else np.array(grid.widths(found.sigma)),
        counts=found.counts,
        tuples=found.tuples,
        spent=spent,
        private=noise.private,
        left_out=left_out,
    )


def _bounds(
    bounds: Bounds | None,
    ball: float | None,
    center: Sequence[float] | None,
    dimension: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the public box (d,) each: those given, or those of the box around the public ball."""
    if (bounds is None) == (ball is None):
        raise ConfigError("must be given, or else `ball` with `center`, for method 'tree'", "bounds")
    if ball is None:
        return ends_of(bounds, dimension)
    middle = np.array(_center(center, dimension))
    return ends_of((middle - ball, middle + ball), dimension)


@dataclass(frozen=True)
class MixtureAnswer:
    """Weights, means and covariances of an array's clusters, or a refusal; every attribute may be published.

    Attributes
    ----------
    status, reason, spent, private
        As in `CentersAnswer`.
    weights : float64 (k,) or None
    means, sigma : float64 (k, d) or None
        The means in the rows' units, ascending, and the standard deviation of their noise; of a tree NaN for a mean
        that has too few rows, and for all if a mixture was fitted because clusters overlap.
    covariances : float64 (k, d, d) or None
        In the rows' units, positive semidefinite.
    counts : int64 (k,) or None
        Noisy number of rows that each cluster's mean and covariance were learned from, among half of all rows; by a
        tree among all of them.
    tuples : int or None
        Noisy number of shards that agreed; None for a tree.
    """

    status: str
    reason: str | None
    weights: NDArray[np.float64] | None
    means: NDArray[np.float64] | None
    sigma: NDArray[np.float64] | None
    covariances: NDArray[np.float64] | None
    counts: NDArray[np.int64] | None
    tuples: int | None
    spent: PrivacyLoss
    private: bool
    left_out: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def value(self) -> NDArray[np.float64] | None:
        """The means, under the name that every answer's value has."""
        return self.means


@naming_arguments
def private_mixture(
    points: ArrayLike,
    k: int | str,
    *,
    rho: float,
    step: float,
    ball: float | None = None,
    spread: float | None = None,
    delta: float = 0.0,
    size_hint: int | None = None,
    bounds: Bounds | None = None,
    center: Sequence[float] | None = None,
    oracle: str | Oracle = "auto",
    method: str = "auto",
    variant: str | None = None,
    noise: Noise | None = None,
) -> MixtureAnswer:
    """Learn differentially private weights, means and covariances of k clusters: of any by a tree, or of clusters well
    apart by tuples.

    Parameters
    ----------
    points, k, rho, step, ball, delta, size_hint, bounds, center, oracle, variant, noise
        As in `private_centers`. With tuples one half of the rows finds the clusters, the mixture is learned from the
        other half.
    spread : float, optional
        Public radius of a cluster around its center; rows farther from the center are clipped to this radius. Tuples
        need it, a tree has none.
    method : str
        ``tree``, ``friendly`` or ``ktuples`` as in `private_centers`. ``auto`` is the tree where `k` is ``auto``, or
        `delta`, `size_hint` or `spread` is left out, and else the one of the other two that needs less separation.

    Raises
    ------
    ConfigError
        A public parameter is out of range, or does not fit the others.

    Privacy
    -------
    Protects one row, added or removed, with (rho, delta)-zCDP, because a row is in one half, and in one part of that
    half; by a tree with rho-zCDP. A refusal costs the loss of the stages that were started.

    Source
    ------
    Specification 6.14, 6.18, 6.21; proofs 7.9, 7.10; erratum 4.5; Cohen et al. 2021, PrivatekGMM.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rng = np.random.default_rng(1)
    >>> rows = rng.normal(0, 1, size=(30000, 2)) + rng.permutation([[2, 0], [-2, 0], [0, 3]] * 10000)
    >>> answer = fcstream.private_mixture(rows, 3, bounds=(-10, 10), rho=1, step=1e-3)
    >>> answer.means.round() + 0.0, bool(np.abs(answer.covariances - np.eye(2)).max() < 0.3)
    (array([[-2.,  0.],
           [ 0.,  3.],
           [ 2.,  0.]]), True)
    """
    rows, k, step = rows_of(points, "points"), cluster_number(k), number_of(step, "step")
    lattice, noise, loss = Lattice(step), noise_of(noise), _loss(rho, delta)
    ball, spread = number_or_none(ball, "ball"), number_or_none(spread, "spread")
    size_hint = whole_or_none(size_hint, "size_hint")
    check_method(method)
    if method == "tree" or (method == "auto" and (k == "auto" or size_hint is None or spread is None or not delta)):
        alone = {"spread": spread, "variant": variant, "oracle": None if oracle == "auto" else oracle}
        if given := [name for name, value in alone.items() if value is not None]:
            raise ConfigError("belongs to methods 'friendly' and 'ktuples', which need all of `delta`, `size_hint` and "
                              "`spread`: leave it out", given[0])  # fmt: skip
        tree, grid = _by_tree(TreeMixture, k, _bounds(bounds, ball, center, rows.width), rho, lattice)
        points = points_inside(rows.doubles(grid), grid)
        left_out = count_left_out(rows, len(points))
        charge = _charge(tree.loss)
        charge.open(tree.loss)
        found = tree.find(_held(points), noise, charge.start)
        return _mixture_answer(found, grid, tree.loss - charge.unused, noise, left_out)
    if not isinstance(k, int):
        raise ConfigError(f"must be a whole number for method {method!r}, got {k!r}", "k")
    if ball is None or size_hint is None or spread is None:
        name = "ball" if ball is None else "size_hint" if size_hint is None else "spread"
        raise ConfigError(f"must be given: it is public, and method {method!r} needs it", name)
    where = _center(center, rows.width)
    half, forms = max(1, size_hint // 2), {"method": method, "variant": variant}
    job = ClusterJob(k, where, float(ball), half, oracle, spread=spread, **forms)  # type: ignore[arg-type]
    made, grid = Learned.of(job, loss, lattice), _ball(lattice, job)
    points = points_inside(rows.doubles(grid), grid)
    left_out = count_left_out(rows, len(points), may_be_none=True)
    charge = _charge(made.loss)
    charge.open(made.loss)
    found = made.release(_held(points), noise, charge.start)
    return _mixture_answer(found, grid, made.loss - charge.unused, noise, left_out)


def _mixture_answer(
    found: ClusterMixture, grid: Grid, spent: PrivacyLoss, noise: Noise, left_out: dict[str, int]
) -> MixtureAnswer:
    return MixtureAnswer(
        status="refused" if found.reason else "released",
        reason=found.reason,
        weights=found.weights,
        means=None if found.means is None else np.array(grid.values(found.means)),
        sigma=None if found.sigma is None else np.array(grid.widths(found.sigma)),
        covariances=None if found.covariances is None else found.covariances * grid.lattice.step**2,
        counts=found.counts,
        tuples=found.tuples,
        spent=spent,
        private=noise.private,
        left_out=left_out,
    )


def _center(center: Sequence[float] | None, dimension: int) -> tuple[float, ...]:
    where = tuple(numbers_of(center, "center")) if center is not None else (0.0,) * dimension
    if len(where) != dimension:
        raise ConfigError(f"must list {dimension} numbers, got {len(where)}", "center")
    return where


def _held(points: NDArray[np.float64]) -> WindowView:
    """Return the view of some lattice points."""
    friends = FriendCounts(points.shape[1], None)
    friends.add(0, points)
    return friends.view([0])
