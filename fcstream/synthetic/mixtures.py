"""From noisy counts to a mixture of products, and from a mixture to rows: post-processing of releases throughout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..noise.samplers import SeededEntropy
from .codes import Codes

SPREAD = 0.1
"""Assumed variance of a bit's probability between cells: the smaller, the further noisy cells move to their mean."""
_SMALL = 2**18
"""Number of multiplications up to which OpenBLAS stays on one thread."""
_STEPS, _RATE = 400, 0.02
_APART, _MIN_SPREAD = 1.6, 0.01
"""How far parts of a cell are moved apart, in standard deviations of a bit, and the smallest variance of a bit."""
UNIT = 10_000
"""Probabilities are published as multiples of 1 / UNIT."""


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Compute a @ b in parts that are too small for the threads of a linear algebra library.

    Hundreds of products, each shared among threads that wait for each other, take seconds on a busy machine instead of
    hundredths of a second.
    """
    columns = max(1, _SMALL // (8 * len(b)))
    rows = max(8, _SMALL // b.size)
    found = np.empty((len(a), b.shape[1]), a.dtype)
    for first in range(0, b.shape[1], columns):
        part = b[:, first : first + columns]
        for k in range(0, len(a), rows):
            found[k : k + rows, first : first + columns] = a[k : k + rows] @ part
    return found


def to_simplex(weights: NDArray[np.float64], total: float = 1.0) -> NDArray[np.float64]:
    """Find the nearest point (l2), along the last axis, whose entries are not negative and sum to `total`.

    All entries fall by the same amount, which sorting finds; entries that would be negative, such as small noisy ones,
    become 0.
    """
    falling = -np.sort(-weights, axis=-1)
    sums = np.cumsum(falling, axis=-1) - total
    ranks = np.arange(1, weights.shape[-1] + 1)
    kept = np.count_nonzero(falling * ranks > sums, axis=-1, keepdims=True)
    drop = np.take_along_axis(sums, kept - 1, axis=-1) / kept
    return np.maximum(weights - drop, 0.0)


def to_simplex_l1(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find a nearest probability vector in l1, as the paper does: negative entries become 0, the rest is normalized."""
    kept = np.maximum(weights, 0.0)
    total = kept.sum()
    return np.full(len(weights), 1 / len(weights)) if total <= 0 else kept / total


def consistent(codes: Codes, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make points (s, p) valid probabilities of bits: each in [0, 1], and those of every one-hot block with sum 1."""
    found = np.clip(points, 0.0, 1.0)
    for block in codes.blocks[codes.booleans :]:
        found[:, block] = to_simplex(points[:, block])
    return found


@dataclass(frozen=True)
class ReleasedMoments:
    """Released means and second moments of bits, as shares of all records, and the standard deviations of their noise.

    Attributes
    ----------
    means : float64 (p,)
    pairs : float64 (p, p)
        Only entries for two bits of different attributes are used.
    mean_sigma, pair_sigma : float64
        Standard deviations of the entries: (p,) and (p, p).
    """

    means: NDArray[np.float64]
    pairs: NDArray[np.float64]
    mean_sigma: NDArray[np.float64]
    pair_sigma: NDArray[np.float64]


@dataclass(frozen=True)
class TableMixture:
    """Weights of cells and, for each cell, a product of independent attributes (specification 9.2).

    Attributes
    ----------
    weights : float64 (s,)
        Positive, with sum 1.
    points : float64 (s, p)
        Probability of each bit in each cell.
    """

    weights: NDArray[np.float64]
    points: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        codes: Codes,
        counts: NDArray[np.float64],
        ones: NDArray[np.float64],
        sigma: float,
        mean: NDArray[np.float64] | None,
    ) -> TableMixture:
        """Make a mixture of noisy counts: the records of each cell (s,) and how often each bit is set there (s, p).

        `sigma` is the noise of both. The noisier a cell, the further its probabilities are moved to the mean of all
        cells. Cells whose weight becomes 0 are left out.
        """
        total = max(float(counts.sum()), 1.0)
        weights = to_simplex(counts / total)
        held = np.maximum(counts, 1.0)[:, None]
        if mean is None:
            mean = ones.sum(axis=0) / total
        trust = SPREAD / (SPREAD + (sigma / held) ** 2)
        points = consistent(codes, mean + trust * (ones / held - mean))
        kept = weights > 0
        return cls(weights[kept] / weights[kept].sum(), points[kept])

    def fitted(
        self,
        codes: Codes,
        moments: ReleasedMoments,
        count: float,
        ones: NDArray[np.float64],
        sigma: float,
        components: int = 0,
    ) -> TableMixture:
        """Fit the mixture to released second moments, while it stays within the noise of the cells' own counts.

        Parameters
        ----------
        codes : Codes
        moments : ReleasedMoments
        count : float
            Released number of records.
        ones : float64 (s, p)
            Noisy counts of the bits in these cells.
        sigma : float
            Noise of `ones`.
        components : int
            Heavy cells are divided until there are so many parts, because few cells cannot reproduce all pairs of
            columns.

        Notes
        -----
        Minimizes the squared residuals of cells, means and pairs, each in units of its own noise, by gradient steps of
        adaptive size (Adam) that are projected onto probabilities.
        """
        owners, parted, points = self._parted(codes, components)
        short = np.float32  # far finer than the noise, and twice as fast
        # each pair has two entries
        pair_weight = np.where(codes.apart, 1 / (2 * moments.pair_sigma**2), 0.0).astype(short)
        # Means get more weight where there are very many pairs, whose noise would move them: probabilities cannot fall
        # below 0 to match it.
        trust = max(1.0, codes.bits / 100)
        mean_weight, means = (trust / moments.mean_sigma**2).astype(short), moments.means.astype(short)
        pairs, seen, cell_weight = (
            moments.pairs.astype(short),
            (ones / count).astype(short),
            short((count / sigma) ** 2),
        )
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        points, weights = points.astype(short), parted[:, None].astype(short)
        first: Any = np.zeros_like(points)
        second: Any = np.zeros_like(points)
        for step in range(1, _STEPS + 1):
            mass = weights * points
            misfit = pair_weight * (product(points.T, mass) - pairs)
            slope = 4 * weights * product(points, misfit)
            slope += 2 * weights * (mean_weight * (mass.sum(axis=0) - means))
            slope += 2 * weights * cell_weight * (np.add.reduceat(mass, starts) - seen)[owners]
            first = 0.9 * first + 0.1 * slope
            second = 0.99 * second + 0.01 * slope**2
            size = _RATE * (1 - step / (_STEPS + 1)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-12)
            points = consistent(codes, points - size * first / (1 - 0.9**step))
        return TableMixture(parted, points.astype(np.float64))

    def _parted(
        self, codes: Codes, components: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Divide heavy cells until there are `components` parts, and move the parts of one cell apart.

        Returns the cell of each part, ascending, and the parts' weights and points.
        """
        parts = np.ones(len(self.weights), np.int64)
        while parts.sum() < components:
            parts[np.argmax(self.weights / parts)] += 1
        owners = np.repeat(np.arange(len(parts)), parts)
        points = self.points[owners]
        shift = 2 * _uniform(SeededEntropy(0), points.size).reshape(points.shape) - 1
        shift *= _APART * np.sqrt(np.maximum(points * (1 - points), _MIN_SPREAD)) * (parts[owners] > 1)[:, None]
        return owners, (self.weights / parts)[owners], consistent(codes, points + shift)

    def rounded(self) -> tuple[list[float], list[list[int]]]:
        """Round to what is published: weights, and probabilities in units of 1 / `UNIT`."""
        return [round(w, 9) for w in self.weights.tolist()], np.rint(self.points * UNIT).astype(int).tolist()


def draw(codes: Codes, mixture: TableMixture, rows: int, seed: int) -> NDArray[np.int64]:
    """Draw rows (m, attributes) of levels; they depend on the mixture and the seed alone, on every machine.

    Cells are drawn systematically in proportion to their weights: each as often as expected, up to one. Levels are
    drawn within each cell in the same way, attribute by attribute, in independent orders. Every row has the law of the
    mixture, and sums of levels vary less than if each row were drawn alone.

    Source
    ------
    Specification 9.2; Bootstrapping and randomized rounding of Boedihardjo et al. 2022, Sections 4.2 and 4.3;
    systematic draws are ours.
    """
    entropy = SeededEntropy(seed)
    bounds = np.cumsum(mixture.weights / mixture.weights.sum()) * rows
    bounds[-1] = rows
    ends = np.floor(bounds + _uniform(entropy, 1)[0]).astype(np.int64)
    ends[-1] = rows
    sizes = np.diff(ends, prepend=0)
    cells = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.repeat(ends - sizes, sizes)
    out = np.empty((rows, len(codes.attributes)), np.int64)
    for a, (one, block) in enumerate(zip(codes.attributes, codes.blocks, strict=True)):
        order = np.argsort(cells + _uniform(entropy, rows), kind="stable")  # shuffles the rows of every cell
        ranks = np.empty(rows, np.int64)
        ranks[order] = np.arange(rows)
        places = (ranks - starts + _uniform(entropy, len(sizes))[cells]) / sizes[cells]
        chances = mixture.points[:, block]
        if one.bits == 1:
            out[:, a] = places >= 1 - chances[cells, 0]
            continue
        edges = np.cumsum(chances, axis=1)
        edges /= edges[:, -1:]
        out[:, a] = np.minimum((places[:, None] >= edges[cells]).sum(axis=1), one.size - 1)
    return out[np.argsort(_uniform(entropy, rows), kind="stable")]


def _uniform(entropy: SeededEntropy, size: int) -> NDArray[np.float64]:
    """Draw numbers in [0, 1), each from the first 53 bits of a word."""
    return (entropy.words(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53
