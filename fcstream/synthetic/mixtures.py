"""From noisy counts to a mixture of products, and from a mixture to rows: all of it post-processing of releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..noise.samplers import SeededEntropy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .codes import Codes

SPREAD = 0.1
"""Of a bit's probability between cells: how far a noisy cell is drawn to the mean of all."""
_SMALL = 2**18
"""Multiplications that OpenBLAS does on one thread."""
_STEPS, _RATE = 400, 0.02
_APART, _MIN_SPREAD = 1.6, 0.01
"""How far parts of a cell are put apart, in standard deviations of a bit; and the least variance of one."""
UNIT = 10_000
"""Probabilities are published in parts of this."""


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """a @ b in parts that are too small for the threads of a linear algebra library.

    Hundreds of products, each shared out among threads that wait for each other, take seconds on a busy machine instead
    of hundredths.
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
    """The nearest point (l2), along the last axis, whose entries are not negative and sum to `total`.

    Sorting finds by how much all entries must fall; small noisy entries become 0.
    """
    falling = -np.sort(-weights, axis=-1)
    sums = np.cumsum(falling, axis=-1) - total
    ranks = np.arange(1, weights.shape[-1] + 1)
    kept = np.count_nonzero(falling * ranks > sums, axis=-1, keepdims=True)
    drop = np.take_along_axis(sums, kept - 1, axis=-1) / kept
    return np.maximum(weights - drop, 0.0)


def to_simplex_l1(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """A nearest point in l1: negative entries to 0, then normalized; the paper's choice."""
    kept = np.maximum(weights, 0.0)
    total = kept.sum()
    return np.full(len(weights), 1 / len(weights)) if total <= 0 else kept / total


def consistent(codes: Codes, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (s, p) that are ones: in [0, 1], and every one-hot block sums to 1."""
    found = np.clip(points, 0.0, 1.0)
    for block in codes.blocks[codes.booleans :]:
        found[:, block] = to_simplex(points[:, block])
    return found


@dataclass(frozen=True)
class ReleasedMoments:
    """Released means and second moments of bits, as parts of all records, and their noise deviations.

    Attributes
    ----------
    means : float64 (p,)
    pairs : float64 (p, p)
        Only pairs of bits of different attributes are looked at.
    mean_sigma, pair_sigma : float64
        Of entries: (p,) and (p, p).
    """

    means: NDArray[np.float64]
    pairs: NDArray[np.float64]
    mean_sigma: NDArray[np.float64]
    pair_sigma: NDArray[np.float64]


@dataclass(frozen=True)
class TableMixture:
    """Cells with weights, in each of which attributes are independent (specification 9.2).

    Attributes
    ----------
    weights : float64 (s,)
        Positive, sum 1.
    points : float64 (s, p)
        Probability of each bit.
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
        """From noisy records of each cell (s,) and in how many of them each bit is set (s, p), noise sigma.

        A cell is drawn to the mean of all the more, the noisier it is; cells whose weight falls to 0 vanish.
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
        """Nearer to released second moments, without leaving what the cells said by more than their noise.

        Parameters
        ----------
        codes : Codes
        moments : ReleasedMoments
        count : float
            Released number of records.
        ones : float64 (s, p)
            Noisy counts of the bits of these cells.
        sigma : float
            Their noise.
        components : int
            Heavy cells are parted until there are so many: few cells cannot tell all pairs of columns.

        Notes
        -----
        Minimizes squared residuals of cells, means and pairs, each in its own noise, by gradient steps of adaptive size
        (Adam), projected onto probabilities.
        """
        owners, parted, points = self._parted(codes, components)
        short = np.float32  # far finer than the noise, and twice as fast
        pair_weight = np.where(codes.apart, 1 / (2 * moments.pair_sigma**2), 0.0).astype(short)  # each stands twice
        # Noise of very many pairs, which nothing below 0 can answer, would pull the means along.
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
        """Whose each part is (ascending), weights and points, so many in all; parts of one cell lie apart."""
        parts = np.ones(len(self.weights), np.int64)
        while parts.sum() < components:
            parts[np.argmax(self.weights / parts)] += 1
        owners = np.repeat(np.arange(len(parts)), parts)
        points = self.points[owners]
        shift = 2 * _uniform(SeededEntropy(0), points.size).reshape(points.shape) - 1
        shift *= _APART * np.sqrt(np.maximum(points * (1 - points), _MIN_SPREAD)) * (parts[owners] > 1)[:, None]
        return owners, (self.weights / parts)[owners], consistent(codes, points + shift)

    def rounded(self) -> tuple[list[float], list[list[int]]]:
        """As published: weights, and probabilities in parts of `UNIT`."""
        return [round(w, 9) for w in self.weights.tolist()], np.rint(self.points * UNIT).astype(int).tolist()


def draw(codes: Codes, mixture: TableMixture, rows: int, seed: int) -> NDArray[np.int64]:
    """Rows (m, attributes) of levels: a function of the mixture and a seed, the same wherever it is computed.

    Cells are drawn in proportion to their weights (systematically, each as often as it should, up to one), levels
    within a cell likewise attribute by attribute, in independent orders. Every row's law is that of the mixture, and
    levels add up with less scatter than if each were drawn alone.

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
        order = np.argsort(cells + _uniform(entropy, rows), kind="stable")  # a shuffle of every cell
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
    """In [0, 1), from the first 53 bits of a word each."""
    return (entropy.words(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53
