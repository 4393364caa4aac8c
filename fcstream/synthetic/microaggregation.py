"""k-anonymous Boolean tables and real vectors by microaggregation. NOT differentially private: see `anonymize`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigError
from ..noise.samplers import Noise
from .cells import covering

_DISTANCES = 2**23  # of records from cells, held at once


@dataclass(frozen=True)
class Anonymized:
    """Result of `anonymize` and `microaggregate`.

    Attributes
    ----------
    rows : (m, p)
        Synthetic records: int64 of a Boolean table, float64 of real vectors.
    points : float64 (k, p)
        The exact mean of each group.
    sizes : int64 (k,)
        The number of records in each group.
    promise : str
        What the result guarantees, and what it does not.
    """

    rows: NDArray[Any]
    points: NDArray[np.float64]
    sizes: NDArray[np.int64]
    promise: str


def anonymize(table: ArrayLike, groups: int, *, rows: int | None = None, noise: Noise | None = None) -> Anonymized:
    """Replace Boolean records by rows drawn from the means of groups of at least floor(n / k) records.

    Parameters
    ----------
    table : array (n, p) of 0 and 1
    groups : int
        k, at least 9 and at most n.
    rows : int, optional
        m; by default n.
    noise : Noise, optional
        The source of the draws.

    Raises
    ------
    ConfigError

    Notes
    -----
    NOT differentially private, and no release of the engine: no ledger is charged, because no budget could pay for it.
    Group means are exact. Whoever knows all records of a group but one learns that one. Two such tables of nearly the
    same records may reveal where they differ. A group whose records agree in a column reveals that column. The only
    guarantee is that every mean is taken over at least floor(n / k) records. Use `fcstream.private_synthetic` for
    differential privacy.

    Source
    ------
    Specification 9.7; erratum 5.5; Boedihardjo et al. 2022, Algorithm 1 and Section 3.6. k need not divide n: the last
    group takes the rest. Below k = 100 there is one cell.
    """
    bits = np.asarray(table)
    if bits.ndim != 2 or bits.shape[1] < 1 or not np.isin(bits, (0, 1)).all():
        raise ConfigError("must be a table (n, p) of 0 and 1", "table")
    bits = bits.astype(np.int64)
    n, p = bits.shape
    made = _checked(n, groups, rows)
    noise = noise or Noise()
    members = _groups(_cells(bits / math.sqrt(p), groups), n // groups, groups)
    points = np.array([bits[group].mean(axis=0) for group in members])
    chosen = np.minimum((noise.uniforms(made) * groups).astype(np.int64), groups - 1)
    drawn = noise.uniforms(made * p).reshape(made, p) < points[chosen]
    return Anonymized(drawn.astype(np.int64), points, *_promised(members, n // groups))


def microaggregate(
    points: ArrayLike,
    groups: int,
    *,
    rows: int | None = None,
    radius: float | None = None,
    noise: Noise | None = None,
) -> Anonymized:
    """Replace real vectors by the means of groups of at least floor(n / k) of them that lie close together.

    Parameters
    ----------
    points : array (n, p)
        Finite numbers. Groups follow the directions in which the vectors are long, as seen from 0: subtract a center
        and scale the columns beforehand.
    groups : int
        k, at least 9 and at most n. Below 100 there is one cell, so the groups follow the order of the rows alone.
    rows : int, optional
        m, how many vectors are drawn from the means, with replacement; by default n.
    radius : float, optional
        Largest length of a vector; by default that of the longest one.
    noise : Noise, optional
        The source of the draws.

    Returns
    -------
    Anonymized
        ``points`` are the k means, ``rows`` the vectors drawn from them. If the vectors lie in a convex set, so do
        both, up to rounding.

    Raises
    ------
    ConfigError

    Notes
    -----
    NOT differentially private, and no release of the engine, for the reasons in `anonymize`. The means are exact real
    numbers, so whoever knows all vectors of a group but one computes that one. The only guarantee is that every mean is
    taken over at least floor(n / k) vectors, which whole numbers decide and no rounding can change.

    If k divides n, the means have exactly the vectors' mean, and their second moments differ from the vectors' by at
    most radius**2 (alpha**2 + s / k + 1 / sqrt(t)) in the Frobenius norm, with s cells of width alpha along t
    directions.

    Complexity
    ----------
    O(n p**2 + p**3 + n s t).

    Source
    ------
    Specification 9.8; proof 9.4; Boedihardjo et al. 2022, Theorems 4.1 and 4.4, Remark 4.5. Ours: k need not divide n
    (the last group takes the rest), and the bound with its constants.
    """
    try:
        vectors = np.array(points, np.float64)
    except (TypeError, ValueError):
        raise ConfigError("must be a table (n, p) of numbers", "points") from None
    if vectors.ndim != 2 or vectors.shape[1] < 1 or not np.isfinite(vectors).all():
        raise ConfigError(
            "must be a table (n, p) of finite numbers", "points", remedy="leave out rows that have others"
        )
    n = len(vectors)
    made = _checked(n, groups, rows)
    # Divided by the largest number first, so that no square overflows.
    largest = float(np.abs(vectors).max())
    scaled = vectors / largest if largest > 0 else vectors
    longest = math.sqrt(float((scaled * scaled).sum(axis=1).max()))
    if radius is not None:
        if not (math.isfinite(radius) and radius > 0):
            raise ConfigError("must be a positive number", "radius", got=radius)
        if longest * largest > radius * (1 + 1e-12):
            raise ConfigError(
                "must be at least the length of every vector", "radius", remedy="leave it out to use the longest"
            )
        longest = radius / largest if largest > 0 else 0.0
    members = _groups(_cells(scaled / longest if longest > 0 else scaled, groups), n // groups, groups)
    means = np.array([scaled[group].mean(axis=0).clip(scaled[group].min(0), scaled[group].max(0)) for group in members])
    means *= largest if largest > 0 else 1.0
    chosen = (noise or Noise()).uniform_integers(groups, made)
    return Anonymized(means[chosen], means, *_promised(members, n // groups))


def _checked(n: int, groups: int, rows: int | None) -> int:
    """Check numbers of groups and of rows, and return that of rows."""
    if not 9 <= groups <= n:
        raise ConfigError(f"must be in [9, {n}]", "groups", got=groups)
    made = n if rows is None else rows
    if made < 1:
        raise ConfigError("must be at least 1", "rows", got=made)
    return made


def _promised(members: list[NDArray[np.int64]], least: int) -> tuple[NDArray[np.int64], str]:
    """Return the sizes of the groups, and what is promised about them."""
    sizes = np.array([len(group) for group in members], np.int64)
    return sizes, f"means of at least {least} records each; NOT differentially private"


def _axes(groups: int, dimension: int) -> tuple[int, float]:
    """Return the number t of directions and the width alpha of cells along them; t is 0 below 100 groups."""
    if groups < 100:
        return 0, 1.0
    root = math.isqrt(groups)
    alpha = (math.log(math.log(root)) / math.log(root)) ** 0.25
    return min(math.floor(math.log(root) / math.log(7 / alpha)), dimension), alpha


def _cells(scaled: NDArray[np.float64], groups: int) -> NDArray[np.int64]:
    """Find the cell of each record: the nearest point of a covering of the leading directions' unit ball."""
    t, alpha = _axes(groups, scaled.shape[1])
    if t == 0:
        return np.zeros(len(scaled), np.int64)
    vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))[1]
    cover = covering(t, alpha) * (alpha / math.sqrt(t))
    places = scaled @ vectors[:, ::-1][:, :t]
    norms = (cover * cover).sum(axis=1)
    found, most = np.empty(len(scaled), np.int64), max(1, _DISTANCES // len(cover))
    for start in range(0, len(scaled), most):
        here = slice(start, start + most)
        found[here] = np.argmin(norms - 2 * (places[here] @ cover.T), axis=1)
    return found


def _groups(cells: NDArray[np.int64], size: int, groups: int) -> list[NDArray[np.int64]]:
    """Divide cells into groups of `size`, then merge and divide the records left over; the last group gets the rest."""
    found, left = [], []
    for cell in np.unique(cells):
        members = np.flatnonzero(cells == cell)
        whole = len(members) // size
        found += [members[k * size : (k + 1) * size] for k in range(whole)]
        left.append(members[whole * size :])
    rest = np.concatenate([np.empty(0, np.int64), *left, *found[groups:]])
    found = found[:groups]
    while len(found) < groups:
        found.append(rest[:size])
        rest = rest[size:]
    found[-1] = np.concatenate([found[-1], rest])
    return found
