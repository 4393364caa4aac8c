"""How many coordinates decide most pairs: the length of the products that 8-bit screening sums first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_WORDS = 12
"""With fewer words of four coordinates, one more look at a block does not pay."""
MANY = 512
"""For fewer points no block is looked at before all of its products are summed."""
_ROWS, _LANES = 8, 32  # of a block
_GROUPS, _TILES = 12, 3  # that are looked at
_CUTS = 16
_TEST_WORDS = 2  # what it costs to look in vain whether a block is decided
_HARDER = 2  # so many times more blocks of a whole window stay undecided
_WORTH = 0.98
_TOGETHER = 24


def first_words(points: NDArray[np.float64], pivot: NDArray[np.float64], radius: float, scale: float) -> int:
    """Choose after how many words of four coordinates a block of pairs is looked at: all words if that is best.

    Parameters
    ----------
    points : float64 (m, d)
    pivot : float64 (d,)
    radius : float
    scale : float
        What one step of an 8-bit code stands for.

    Notes
    -----
    The first coordinates decide a pair as in `fcstream._kernels.tiles.arrange_codes`. Some blocks are tried, of points
    that follow each other in distance from the pivot, like those that are compared. Speed alone depends on the choice.
    """
    from .._kernels import tiles

    m, dimension = points.shape
    words = int(-(-dimension // 4))
    if words < MIN_WORDS or m < MANY:
        return words
    distances = np.empty(m)
    tiles.distances_from(points, pivot, distances)
    in_order = np.argsort(distances)[: np.count_nonzero(distances <= tiles.TOP * scale * dimension**0.5)]
    if len(in_order) < MANY // 2:
        return words
    rows, lanes = (in_order[_runs(len(in_order), *shape)] for shape in ((_GROUPS, _ROWS), (_TILES, _LANES)))
    asked = _asked(distances[rows], distances[lanes], radius)
    if not asked.any():
        return words
    left, right = (((points[part.ravel()] - pivot) / scale).astype(np.float32) for part in (rows, lanes))
    reach, error = radius / scale, (dimension / 3) ** 0.5
    low, high = max(0.0, reach - error) ** 2, (reach + error) ** 2
    whole = [np.einsum("ij,ij->i", side, side) for side in (left, right)]
    norms = [np.zeros(len(side), np.float32) for side in (left, right)]
    products, start = np.zeros((len(left), len(right)), np.float32), 0
    best, least = words, _WORTH * words
    for cut in range(words * 3 // 8, words, max(1, words // _CUTS)):
        parts = [side[:, 4 * start : 4 * cut] for side in (left, right)]
        start = cut
        for at in range(0, parts[0].shape[1], _TOGETHER):  # larger products wake threads that cost more than they do
            products += parts[0][:, at : at + _TOGETHER] @ parts[1][:, at : at + _TOGETHER].T
        for norm, part in zip(norms, parts, strict=True):
            norm += np.einsum("ij,ij->i", part, part)
        # |x - y|**2 lies between what the first coordinates make of it, and that with 2 |x|**2 + 2 |y|**2 of the others
        most = [2 * square - norm for square, norm in zip(whole, norms, strict=True)]
        friends = _least(2 * products - most[0][:, None] - most[1]) >= -low
        strangers = _least(norms[0][:, None] + norms[1] - 2 * products) > high
        decided = np.count_nonzero((friends | strangers) & asked) / np.count_nonzero(asked)
        cost = cut + min(1.0, _HARDER * (1 - decided)) * (words - cut + _TEST_WORDS)
        if cost < least:
            best, least = cut, cost
    return best


def _runs(size: int, count: int, length: int) -> NDArray[np.int64]:
    """Return the numbers (count, length) of runs of consecutive points that lie evenly among `size` points."""
    firsts = (size - length) * (2 * np.arange(count) + 1) // (2 * count)
    return firsts[:, None] + np.arange(length)


def _least(pairs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the least number of each block of pairs."""
    blocks: NDArray[np.float32] = pairs.reshape(_GROUPS, _ROWS, _TILES, _LANES).min(axis=(1, 3))
    return blocks


def _asked(rows: NDArray[np.float64], lanes: NDArray[np.float64], radius: float) -> NDArray[np.bool_]:
    """Mark the blocks that distances from the pivot, of runs of rows and of lanes, do not decide."""
    near = rows[:, -1:] + lanes[:, -1] <= radius
    far = np.maximum(rows[:, :1] - lanes[:, -1], lanes[:, 0] - rows[:, -1:]) > radius
    asked: NDArray[np.bool_] = ~(near | far)
    return asked
