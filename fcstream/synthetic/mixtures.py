"""From noisy counts to a mixture of products, and from a mixture to rows: post-processing of releases throughout."""

from __future__ import annotations

from dataclasses import dataclass, field
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
_RAKINGS = 30
_MANY = 100
"""Number of bits from which a fit's means are trusted less than means that were released."""
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
    """Released means of u and of its products, over all records, and the standard deviations of their noise.

    Attributes
    ----------
    count : int
        Released number of records.
    means : float64 (p,)
    pairs : float64 (p, p)
        Only entries for two bits of different attributes are used.
    mean_sigma, pair_sigma : float
    triples : int64 (T, 3)
        Of which three bits there are products of three; by default none.
    products : float64 (T,)
        Means of these.
    triple_sigma : float
    """

    count: int
    means: NDArray[np.float64]
    pairs: NDArray[np.float64]
    mean_sigma: float
    pair_sigma: float
    triples: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), np.int64))
    products: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    triple_sigma: float = 1.0

    def all_say(self, codes: Codes) -> NDArray[np.float64]:
        """Estimate the means from means and pairs together: (p,), weighted by their noise.

        The bits u of a one-hot block have one sum K, the same for every record, so the pairs of a bit with all bits of
        the block sum to K times the bit's mean.
        """
        trust = np.full(codes.bits, 1 / self.mean_sigma**2)
        found = trust * self.means
        for one, block in zip(codes.attributes, codes.blocks, strict=True):
            total = 2 - one.bits * int(one.is_centered)
            if one.size == 2:
                continue
            weight = np.where(codes.apart[:, block.start], total**2 / (one.bits * self.pair_sigma**2), 0.0)
            found += weight * self.pairs[:, block].sum(axis=1) / total
            trust += weight
        return np.asarray(found / trust)


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
        ones: NDArray[np.float64],
        sigma: float,
        components: int = 0,
    ) -> TableMixture:
        """Fit the mixture to released second moments, while it stays within the noise of the cells' own counts.

        Parameters
        ----------
        codes : Codes
        moments : ReleasedMoments
        ones : float64 (s, p)
            Noisy counts of the bits in these cells.
        sigma : float
            Noise of `ones`.
        components : int
            Heavy cells are divided until there are so many parts, because few cells cannot reproduce all pairs of
            columns.

        Notes
        -----
        Minimizes the squared residuals of cells, means, pairs and triples, each in units of its own noise, by gradient
        steps of adaptive size (Adam) that are projected onto probabilities. Where bits are many, the noise of their
        pairs moves the means of such a fit; so the parts are raked at the end, to means between those of the fit and
        those that the released numbers say.
        """
        from .._kernels import synthetic as kernels

        owners, parted, points = self._parted(codes, components)
        short = np.float32  # far finer than the noise, and twice as fast
        pair_weight = np.where(codes.apart, 1 / moments.pair_sigma**2, 0.0).astype(short)
        # Means get more weight where there are very many pairs, whose noise would move them: probabilities cannot fall
        # below 0 to match it.
        mean_weight = short(max(1.0, 2 * codes.bits / _MANY) / moments.mean_sigma**2)
        means, pairs, products = (x.astype(short) for x in (moments.means, moments.pairs, moments.products))
        triple_weight = short(2 / moments.triple_sigma**2)
        seen, cell_weight = (ones / moments.count).astype(short), short((moments.count / sigma) ** 2)
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        points, weights, shifts = points.astype(short), parted.astype(short), codes.shifts.astype(short)
        numbers, mass, held, first, second = (np.zeros_like(points) for _ in range(5))
        sums, more = np.empty(codes.bits, short), np.zeros(points.shape[::-1], short)
        for step in range(1, _STEPS + 1):
            kernels.weigh(points, weights, shifts, numbers, mass, held, sums)
            slope = product(numbers, pair_weight * (product(numbers.T, mass) - pairs))
            if len(products):
                more[:] = 0
                kernels.add_triple_slopes(
                    np.ascontiguousarray(numbers.T), weights, moments.triples, products, triple_weight, more
                )
            kernels.fit_step(
                points, weights, owners, slope, mean_weight * (sums - means), np.ascontiguousarray(more.T),
                np.add.reduceat(held, starts) - seen, cell_weight, first, second,
                short(_RATE * (1 - step / (_STEPS + 1))), np.array([1 - 0.9**step, 1 - 0.99**step], short),
                codes.booleans == codes.bits,
            )  # fmt: skip
            if codes.booleans < codes.bits:
                points = consistent(codes, points)
        fitted = TableMixture(parted, points.astype(np.float64))
        told = consistent(codes, (moments.all_say(codes)[None] + codes.shifts) / 2)[0]
        share = 1 / (1 + codes.bits / _MANY)
        return fitted.raked(codes, share * (parted @ fitted.points) + (1 - share) * told)

    def raked(self, codes: Codes, shares: NDArray[np.float64]) -> TableMixture:
        """Move the points until all cells together have these shares (p,) of set bits, as nearly as they can.

        Odds are multiplied, the same for all cells and once more in each round (iterative proportional fitting); what
        is 0 in a cell stays 0.
        """
        points = self.points.copy()
        tiny = 1e-12
        for _ in range(_RAKINGS):
            means = self.weights @ points
            more = shares / np.maximum(means, tiny)
            less = (1 - shares) / np.maximum(1 - means, tiny)
            first = slice(0, codes.booleans)
            set_, not_ = points[:, first] * more[first], (1 - points[:, first]) * less[first]
            points[:, first] = set_ / np.maximum(set_ + not_, tiny)
            for block in codes.blocks[codes.booleans :]:
                own = points[:, block] * more[block]
                total = own.sum(axis=1, keepdims=True)
                points[:, block] = np.where(total > tiny, own / np.maximum(total, tiny), points[:, block])
        return TableMixture(self.weights, points)

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
