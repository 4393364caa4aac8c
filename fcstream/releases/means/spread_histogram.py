"""The spread histogram of a mean: noisy numbers of points by their distance from a released center, and what they say.

All functions take public or released numbers only, so they cost nothing (specification 5.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...noise.samplers import Noise, SeededEntropy
from ..averages import chi_quantile

RADIUS_RATIO = 1.25
FINE = 3
"""Fine bins of a coarse bin, up to `FINE_TO` dimensions."""
FINE_TO = 270
"""Dimension above which distances lie so close together that finer bins show more: the deviation of those of normal
points is 1 / sqrt(2 d) of them."""
CLIP_TO = 30
"""The same for `clipping_radii`, where a bin is a whole coarse one."""
FARTHEST = math.isqrt(2**53 - 1)
"""Radius of the largest ball in which arithmetic is exact, in lattice steps."""
PULL = 1.4
"""How much of the pull of clipped points counts, for those among them that noise hides."""
_SUPPOSED = 64  # histograms of a prediction
_SURE = 4.0  # squared noise deviations by which points near the others must stand out,
_FAR = 4.0  # and for each factor of e farther
_BULK = 0.75  # share of the points that are near
_PARTS = 4  # of a bin, over which its points are taken to be spread evenly
_TAIL = 3.0  # noise deviations by which a tail must stand out
_RUN, _RUN_SHARE = 4.0, 0.1  # noise deviations by which some neighboring bins must stand out, and their least share


def fine_bins(dimension: int) -> int:
    """Return the number of fine bins of a coarse one.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    return max(FINE, math.ceil(FINE * math.sqrt(dimension / FINE_TO)))


def histogram_radii(radius_squared: int, fine: int = FINE) -> NDArray[np.float64]:
    """Return the squared distances that bound the bins, ascending, for a diameter in squared lattice steps.

    They form a grid from far below the diameter to twice the diameter, with `fine` bins to each coarse one.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    top = 2 * math.sqrt(radius_squared)
    radii = top / RADIUS_RATIO ** np.arange(24, -1 / fine, -1 / fine)[: 24 * fine + 1]
    squares: NDArray[np.float64] = np.floor(np.maximum(radii, 1.0) ** 2)
    return squares


def supposed_deviation(radius: float, dimension: int) -> float:
    """Return the deviation per coordinate of the normal points that plans suppose for a diameter, in its unit.

    Of 1,000 such points 999 lie within half the diameter of their center.

    Privacy
    -------
    Computed from public numbers alone; only predictions depend on it.

    Source
    ------
    Specification 5.4; ours.
    """
    return radius / (2 * chi_quantile(dimension, 0.999))


def supposed_bins(
    squares: NDArray[np.float64], deviation: float, dimension: int, size: int, variance: float
) -> Iterator[NDArray[np.int64]]:
    """Yield some noisy histograms of the distances of `size` normal points of this deviation, the same in every call.

    Privacy
    -------
    Made from public numbers alone; only predictions depend on it.

    Source
    ------
    Specification 5.4; Wilson and Hilferty 1931.
    """
    unit = 2 / (9 * dimension)
    z = (np.cbrt(squares / (dimension * deviation**2)) - (1 - unit)) / math.sqrt(unit)
    shares = np.diff([0.0, *(0.5 * math.erfc(-x / math.sqrt(2)) for x in z.tolist()), 1.0])
    deviations, noise = np.sqrt(variance + size * shares * (1 - shares)), Noise(SeededEntropy(0))
    for _ in range(_SUPPOSED):
        yield np.rint(size * shares + deviations * noise.normals(len(shares))).astype(np.int64)


def clipping_error(radius: float, dimension: int, size: int) -> float:
    """Predict how far a mean moves in a feature if normal points are clipped to a ball around their center.

    Parameters
    ----------
    radius : float
        Of the ball, in deviations of the points.
    dimension : int
    size : int
        Number of points.

    Returns
    -------
    float
        Standard deviation of the clipped mean's distance from the points' own mean, in deviations of the points. It
        does not pull the mean to one side.

    Privacy
    -------
    Computed from public numbers alone; only predictions depend on it.

    Source
    ------
    Specification 5.17; Wilson and Hilferty 1931.
    """
    unit, z = 2 / (9 * dimension), np.arange(-8.0, 8.0, 1 / 64)
    lengths = math.sqrt(dimension) * np.maximum(0.0, 1 - unit + z * math.sqrt(unit)) ** 1.5
    beyond = np.maximum(0.0, lengths - radius) ** 2 * np.exp(-(z**2) / 2)
    return math.sqrt(float(beyond.sum()) / 64 / math.sqrt(2 * math.pi) / dimension / max(1, size))


def clipping_radii(radius_squared: int, dimension: int) -> NDArray[np.float64]:
    """Return the squared distances that bound the bins, ascending, where points outside of the core count too.

    They form a grid from far below the diameter to twice the diameter, and then each is twice the one before, up to
    the largest ball in which arithmetic is exact: few wide bins tell best whether a few points lie far out.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    near = histogram_radii(radius_squared, max(1, math.ceil(math.sqrt(dimension / CLIP_TO))))
    far, radius = [], 4 * math.sqrt(radius_squared)
    while radius < FARTHEST:
        far.append(math.floor(radius**2))
        radius *= 2
    return np.minimum(np.append(near, np.array(far, np.float64)), float(2**53 - 1))


def clipping_reach(bins: NDArray[np.int64], edges: NDArray[np.float64], variance: float, unit_noise: float) -> float:
    """Find the radius at which noise and the pull of points moved to the border of the ball are smallest together.

    `bins` (b + 1,) are noisy counts of distances up to each of the `edges` (b,) and beyond the last. The pull is judged
    as if all points outside lay on one side. Bins count up to the last one from which some bins together stand out from
    their noise, by the more the farther they are: noise there would cause the largest errors. Radii may lie within
    bins, whose points are taken to be spread evenly on a logarithmic scale.

    Privacy
    -------
    Post-processing of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    ends = np.append(edges, 2 * edges[-1])
    sums = np.append(0, np.cumsum(bins))
    size = max(1, int(sums[-1]))
    near = ends[np.append(np.flatnonzero(sums[1:] >= _BULK * size), len(edges))[0]]
    sure = np.sqrt(_SURE + _FAR * np.maximum(0.0, np.log(ends / near)))
    top = len(edges)
    while top > 0:
        runs = sums[top + 1 :] - sums[top]
        if (runs > sure[top] * np.sqrt(variance * np.arange(1, len(runs) + 1))).any():
            break
        top -= 1
    starts = np.append(edges[0] / RADIUS_RATIO, edges)[: top + 1, np.newaxis]
    ratios, parts = ends[: top + 1, np.newaxis] / starts, np.arange(_PARTS)
    radii, middles = ((starts * ratios ** ((parts + end) / _PARTS)).ravel() for end in (1, 0.5))
    counts = np.repeat(bins[: top + 1] / _PARTS, _PARTS)
    best, found = math.inf, float(edges[-1])
    for k in range(_PARTS - 1, min(len(radii), len(edges) * _PARTS)):
        radius = float(radii[k])
        pull = max(0.0, float((counts[k + 1 :] * (middles[k + 1 :] - radius)).sum())) / size
        cost = math.hypot(unit_noise * radius, PULL * pull)
        if cost < best:
            best, found = cost, radius
    return found


def tail_count(
    bins: NDArray[np.int64], edges: NDArray[np.float64], reach: float, variance: float, fine: int = FINE
) -> int:
    """Return the noisy number of points between an edge and the end of the tail, above which bins hold only noise.

    Privacy
    -------
    Post-processing of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    top = last_full(_coarse(bins, fine).tolist(), math.sqrt(fine * variance))
    return int(bins[int(edges.searchsorted(reach)) + 1 : fine * top + 1].sum())


def _coarse(bins: NDArray[np.int64], fine: int) -> NDArray[np.int64]:
    """Add up the fine bins of each coarse one; the first and the last stand for themselves."""
    found: NDArray[np.int64] = np.add.reduceat(bins, _starts(len(bins), fine))
    return found


@lru_cache(maxsize=64)
def _starts(size: int, fine: int) -> NDArray[np.int64]:
    """Return where the coarse bins of so many fine ones begin."""
    starts = np.append([0], np.arange(0, size - 1, fine) + 1)
    starts.flags.writeable = False
    return starts


def best_reach(
    bins: NDArray[np.int64], edges: NDArray[np.float64], variance: float, unit_noise: float, fine: int = FINE
) -> float:
    """Find the distance at which the tail of a noisy histogram of distances ends, to a fraction of a coarse bin.

    `bins` (f b + 2,) are noisy counts with f = `fine` bins to each coarse bin, and `edges` (f b + 1,) are the upper
    ends of the bins. The upper bins of the last coarse bin are left out if they hold no more than their noise.

    Privacy
    -------
    Post-processing of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    end = at = fine * best_bin(_coarse(bins, fine), edges[::fine], fine * variance, unit_noise)
    noise = 2 * math.sqrt(variance)
    while at > max(0, end - fine + 1) and bins[at] <= noise:
        at -= 1
    return float(edges[at])


def best_bin(bins: NDArray[np.int64], radii: NDArray[np.float64], variance: float, unit_noise: float) -> int:
    """Find the bin at whose end noise and clipping together cause the smallest error.

    Noise grows with the radius of the ball, and clipping falls. `bins` (b + 1,) are noisy counts of distances, and
    `radii` (b,) are the upper ends of the bins. Clipping is judged as if all clipped points lay on one side, so a
    one-sided tail is kept if keeping it adds little noise.

    Privacy
    -------
    Post-processing of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    edges: list[float] = [*radii.tolist(), 2 * float(radii[-1])]
    counts = bins.tolist()
    # A tail of bins that holds no more than its noise is treated as empty.
    top = last_full(counts, math.sqrt(variance))
    counts = [max(0, count) for count in counts[: top + 1]]
    total = max(1, sum(counts))
    best, reach = math.inf, 0
    beyond = moment = 0.0  # number, and sum of distances, of what lies beyond the bin
    for b in range(top, -1, -1):
        if b < len(radii):
            cost = math.hypot(unit_noise * edges[b], (moment - beyond * edges[b]) / total)
            if cost < best:
                best, reach = cost, b
        beyond += counts[b]
        moment += counts[b] * edges[b]
    return reach


def last_full(counts: list[int], deviation: float) -> int:
    """Find the last bin that surely holds points: it and all above it, or it and the next few, hold more than noise.

    Privacy
    -------
    Post-processing of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    least, above = _RUN_SHARE * max(1, sum(counts)), 0
    tails, doubts = _doubts(deviation, len(counts))
    for b in range(len(counts) - 1, 0, -1):
        above += counts[b]
        if above > tails[len(counts) - 1 - b]:
            return b
        run = 0
        for count, doubt in zip(counts[b:], doubts, strict=False):
            run += count
            if run > doubt and run > least:
                return b
    return 0


@lru_cache(maxsize=64)
def _doubts(deviation: float, size: int) -> tuple[list[float], list[float]]:
    """Return what 1, 2, ... `size` bins together must hold to stand out from their noise: up to the last bin, or not.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    doubts = [deviation * math.sqrt(run) for run in range(1, size + 1)]
    return [_TAIL * doubt for doubt in doubts], [_RUN * doubt for doubt in doubts]


def least_distance(offset: NDArray[np.float64], sigma: float) -> float:
    """Return how far a center is off at least, less one deviation, by its `offset` from one with noise `sigma`.

    Privacy
    -------
    Post-processing of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    d, found = len(offset), math.hypot(*offset.tolist())
    doubt = math.hypot(2 * found * sigma, math.sqrt(2 * d) * sigma**2)
    return math.sqrt(max(0.0, found**2 - d * sigma**2 - doubt))
