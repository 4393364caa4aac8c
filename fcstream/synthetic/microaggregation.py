"""k-anonymous Boolean tables by microaggregation. NOT differentially private: see `anonymize`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigError
from ..noise.samplers import Noise
from .cells import covering


@dataclass(frozen=True)
class Anonymized:
    """Result of `anonymize`.

    Attributes
    ----------
    rows : int64 (m, p)
        Synthetic records.
    points : float64 (k, p)
        The exact mean of each group.
    sizes : int64 (k,)
        The number of records in each group.
    promise : str
        What the result guarantees, and what it does not.
    """

    rows: NDArray[np.int64]
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
    if not 9 <= groups <= n:
        raise ConfigError(f"must be in [9, {n}], got {groups}", "groups")
    made = n if rows is None else rows
    if made < 1:
        raise ConfigError(f"must be at least 1, got {made}", "rows")
    noise = noise or Noise()
    members = _groups(_cells(bits / math.sqrt(p), groups), n // groups, groups)
    points = np.array([bits[group].mean(axis=0) for group in members])
    sizes = np.array([len(group) for group in members], np.int64)
    chosen = np.minimum((noise.uniforms(made) * groups).astype(np.int64), groups - 1)
    drawn = noise.uniforms(made * p).reshape(made, p) < points[chosen]
    promise = f"means of at least {n // groups} records each; NOT differentially private"
    return Anonymized(drawn.astype(np.int64), points, sizes, promise)


def _cells(scaled: NDArray[np.float64], groups: int) -> NDArray[np.int64]:
    """Find the cell of each record: the nearest point of a covering of the leading directions' unit ball."""
    root = math.isqrt(groups)
    if groups < 100:
        return np.zeros(len(scaled), np.int64)
    alpha = (math.log(math.log(root)) / math.log(root)) ** 0.25
    t = min(math.floor(math.log(root) / math.log(7 / alpha)), scaled.shape[1])
    vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))[1]
    cover = covering(t, alpha) * (alpha / math.sqrt(t))
    places = scaled @ vectors[:, ::-1][:, :t]
    norms = (cover * cover).sum(axis=1)
    found: NDArray[np.int64] = np.argmin(norms - 2 * (places @ cover.T), axis=1)
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
