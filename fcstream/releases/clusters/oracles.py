"""Oracles: non-private clustering of one shard, which finds k centers of a few points.

An oracle may be any function of one shard. It is safe, whatever it computes, because it is called for each shard alone,
gets nothing but that shard's points and public numbers, and every shard ends up with a tuple (see `total`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, extra_missing

Oracle = Callable[["NDArray[np.float64]", int, int], object]
"""oracle(points (m, d), k, seed) -> k centers (k, d). A pure function: it must keep nothing between calls."""
RESTARTS = 10
NAMES = ("auto", "kmeans", "gaussians", "pca", "scipy", "minibatch")
CHUNK = 128
"""Records of one shard that an incremental oracle gets at a time."""


def has_sklearn() -> bool:
    """Check whether scikit-learn is installed, without importing it."""
    return importlib.util.find_spec("sklearn") is not None


def find(oracle: str | Oracle, k: int, dimension: int) -> Oracle:
    """Find an oracle by its name, or return the user's own oracle.

    Parameters
    ----------
    oracle : str or callable
        ``kmeans`` and ``gaussians`` are scikit-learn's; if scikit-learn is not installed, ``kmeans`` is scipy's.
        ``pca`` clusters the projection on the k - 1 widest directions. ``minibatch`` learns while records arrive, so
        that a window closes sooner; its centers are less exact. ``auto`` is ``pca`` from 4 k dimensions on, else
        ``kmeans``.
    k, dimension : int

    Raises
    ------
    ConfigError
        If the name is unknown, or needs scikit-learn, which is not installed.

    Privacy
    -------
    The choice depends on public facts only.

    Source
    ------
    Specification 6.2; proof 7.1; Tsfadia et al. 2022, section 5.2: any non-private algorithm serves.
    """
    if callable(oracle):
        return oracle
    if oracle not in NAMES:
        raise ConfigError(f"must be one of {', '.join(NAMES)} or a function", "oracle", got=oracle)
    if oracle == "auto":
        oracle = "pca" if dimension >= 4 * k else "kmeans"
    if oracle in ("gaussians", "minibatch"):
        if not has_sklearn():
            raise ConfigError(
                f"must not be {oracle!r} without scikit-learn", "oracle", remedy=extra_missing("clusters")
            )
        return gaussians if oracle == "gaussians" else MINIBATCH
    if oracle == "pca":
        return pca
    return kmeans if oracle == "kmeans" and has_sklearn() else scipy_kmeans


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra and scikit-learn to one thread: small shards are faster, and sums keep their order."""
    if importlib.util.find_spec("threadpoolctl") is None:
        yield
        return
    import threadpoolctl

    if has_sklearn():
        importlib.import_module("sklearn.cluster")  # only the threads of libraries that are loaded can be limited
    with threadpoolctl.threadpool_limits(1):
        yield


def kmeans(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """Cluster with scikit-learn's k-means, and return the best of ten starts.

    Privacy
    -------
    NOT private by itself; the module states how it may be used.

    Source
    ------
    Specification 6.2; proof 7.1; scikit-learn's ``KMeans``.
    """
    from sklearn.cluster import KMeans

    found = KMeans(k, n_init=RESTARTS, random_state=seed).fit(points).cluster_centers_
    return np.asarray(found, np.float64)


def gaussians(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """Cluster with scikit-learn's mixture of spherical Gaussians, and return its means; for clusters that overlap.

    Privacy
    -------
    NOT private by itself; the module states how it may be used.

    Source
    ------
    Specification 6.2; proof 7.1; scikit-learn's ``GaussianMixture``.
    """
    from sklearn.mixture import GaussianMixture

    scale = max(float(points.std()), 1e-300)
    model = GaussianMixture(k, covariance_type="spherical", n_init=2, random_state=seed, max_iter=200)
    return np.asarray(model.fit(points / scale).means_, np.float64) * scale


def scipy_kmeans(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """Cluster with scipy's k-means, and return the best of ten starts; for machines without scikit-learn.

    Privacy
    -------
    NOT private by itself; the module states how it may be used.

    Source
    ------
    Specification 6.2; proof 7.1; ``scipy.cluster.vq.kmeans2``.
    """
    from scipy.cluster.vq import kmeans2

    best, answer = math.inf, None
    for start in range(RESTARTS):
        centers, labels = kmeans2(points, k, iter=30, minit="++", missing="warn", seed=seed * RESTARTS + start)
        cost = float(((points - centers[labels]) ** 2).sum())
        if cost < best:
            best, answer = cost, centers
    assert answer is not None
    return np.asarray(answer, np.float64)


def pca(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """Cluster the points' projection on their k - 1 widest directions (2 at least) with k-means.

    The centers are the means of the unprojected points.

    Privacy
    -------
    NOT private by itself; the module states how it may be used.

    Source
    ------
    Specification 6.2; proof 7.1; Tsfadia et al. 2022, section 6.2: the oracle of its mixtures in high dimension.
    """
    offset = points - points.mean(axis=0)
    width = min(max(k - 1, 2), *points.shape)
    if points.shape[0] < points.shape[1]:  # the smaller Gram matrix
        values, vectors = np.linalg.eigh(offset @ offset.T)
        flat = vectors[:, -width:] * np.sqrt(np.maximum(values[-width:], 0.0))
    else:
        flat = offset @ np.linalg.eigh(offset.T @ offset)[1][:, -width:]
    flat = np.ascontiguousarray(flat)
    centers = (kmeans if has_sklearn() else scipy_kmeans)(flat, k, seed)
    labels = ((flat[:, None, :] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
    return np.stack([points[labels == j].mean(axis=0) for j in range(k)])


class Learner(Protocol):
    """Learner of one shard, kept by an incremental oracle, such as a scikit-learn estimator with ``partial_fit``."""

    cluster_centers_: NDArray[np.float64]

    def partial_fit(self, points: NDArray[np.float64]) -> object: ...


@dataclass(frozen=True)
class Incremental:
    """Oracle that learns each shard while its records arrive.

    Parameters
    ----------
    make : callable
        ``make(k, seed)`` returns a fresh `Learner` of one shard, which must share nothing with other learners.

    Privacy
    -------
    A learner gets only its own shard's records, in chunks of a fixed number of them and in the order in which they
    came. So records of other shards that came between them change nothing.

    Source
    ------
    Specification 6.2; proof 7.1; ours.
    """

    make: Callable[[int, int], Learner]

    def __call__(self, points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
        """Learn a whole shard at once, with its points mixed by a fixed rule.

        The points of a shard are sorted, so without mixing the first chunk would hold one corner of them only.
        """
        mixed = points[np.argsort(np.arange(1, len(points) + 1) * 0.6180339887498949 % 1.0)]
        learner = self.make(k, seed)
        for start in range(0, len(mixed), CHUNK):
            learner.partial_fit(mixed[start : start + CHUNK])
        return learner.cluster_centers_


def _minibatch(k: int, seed: int) -> Learner:
    from sklearn.cluster import MiniBatchKMeans

    learner: Learner = MiniBatchKMeans(k, random_state=seed)
    return learner


MINIBATCH = Incremental(_minibatch)


def total(oracle: Oracle, points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64] | None:
    """Return the oracle's k centers of one shard of sorted points, or None if it failed or returned something else.

    Fewer than k distinct points, an exception, a wrong shape and numbers that are not finite all give None, and
    warnings are suppressed: only the tuple may depend on a shard's content.

    Privacy
    -------
    Whatever follows must be the same for every None.

    Source
    ------
    Specification 6.2; proof 7.1; ours: the papers take oracles that always answer.
    """
    if len(points) < k or np.count_nonzero((points[1:] != points[:-1]).any(axis=1)) + 1 < k:
        return None
    found: list[object] = []
    quietly(lambda: found.append(oracle(points, k, seed)))
    return checked_centers(found[0], k, points.shape[1]) if found else None


def quietly(call: Callable[..., object], *arguments: object) -> bool:
    """Call a function and return whether it came back without an exception.

    Its exceptions and warnings are suppressed, because they could reveal the data.

    Privacy
    -------
    See `total`, whose rule holds here too.

    Source
    ------
    Specification 6.2; proof 7.1; ours.
    """
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call(*arguments)
    except Exception:
        return False
    return True


def checked_centers(answer: object, k: int, dimension: int) -> NDArray[np.float64] | None:
    """Return k centers (k, d) as finite numbers, or None if the oracle returned something else.

    Privacy
    -------
    See `total`, whose rule holds here too.

    Source
    ------
    Specification 6.2; proof 7.1; ours.
    """
    found: list[NDArray[np.float64]] = []
    if not quietly(lambda: found.append(np.array(answer, np.float64))):
        return None
    centers = found[0]
    return centers if centers.shape == (k, dimension) and bool(np.isfinite(centers).all()) else None
