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
_CORE_BAR = 16.0, 8.0  # squared noise deviations by which points near the others must stand out, and for each factor of
# e farther: noise is taken for points there with a chance that falls as fast as the noise of a variance grows
_CLIP_BAR = 4.0, 4.0
_BULK = 0.75  # share of the points that are near
_PARTS = 4  # of a bin, over which its points are taken to be spread evenly
_ROWS = 32  # bins that are looked at together


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
    weights, lengths = _normal_lengths(dimension)
    beyond = np.maximum(0.0, lengths - radius) ** 2
    return math.sqrt(float((weights * beyond).sum()) / dimension / max(1, size))


def clipping_noise(radii: NDArray[np.float64], dimension: int, size: float) -> float:
    """Predict how far the mean of the same normal points moves in a feature from one ball to another.

    Parameters
    ----------
    radii : float64 (m,)
        Of balls that may be found, in deviations of the points.
    dimension : int
    size : float
        Number of points.

    Returns
    -------
    float
        Standard deviation, in deviations of the points: of a point's move to a border, by the choice of the ball.

    Privacy
    -------
    Computed from public numbers alone; only predictions depend on it.

    Source
    ------
    Specification 5.4; ours.
    """
    weights, lengths = _normal_lengths(dimension)
    moves = np.maximum(0.0, lengths[:, np.newaxis] - radii).var(axis=1)
    return math.sqrt(float((weights * moves).sum()) / dimension / max(1, size))


def _normal_lengths(dimension: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights, which add up to 1, and lengths of normal points of deviation 1 (Wilson and Hilferty 1931)."""
    unit, z = 2 / (9 * dimension), np.arange(-8.0, 8.0, 1 / 64)
    lengths = math.sqrt(dimension) * np.maximum(0.0, 1 - unit + z * math.sqrt(unit)) ** 1.5
    return np.exp(-(z**2) / 2) / 64 / math.sqrt(2 * math.pi), lengths


def clipping_radii(radius_squared: int, dimension: int) -> NDArray[np.float64]:
    """Return the squared distances that bound the bins, ascending, where points outside of the core count too.

    They form a grid from far below the diameter to twice the diameter, and then each is twice the one before, up to
    the largest ball in which arithmetic is exact: few wide bins tell best whether a few points lie far out.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4, 5.18; ours.
    """
    near = histogram_radii(radius_squared, max(1, math.ceil(math.sqrt(dimension / CLIP_TO))))
    far, radius = [], 4 * math.sqrt(radius_squared)
    while radius < FARTHEST:
        far.append(math.floor(radius**2))
        radius *= 2
    return np.minimum(np.append(near, np.array(far, np.float64)), float(2**53 - 1))


def best_reach(
    bins: NDArray[np.int64], edges: NDArray[np.float64], variance: float, unit_noise: float, *, clips: bool
) -> tuple[float, int]:
    """Find the radius at which noise and the pull of points moved to the border of the ball are smallest together.

    `bins` (b + 1,) are noisy counts of distances up to each of the `edges` (b,) and beyond the last. The pull is judged
    as if all points outside lay on one side. Bins count up to the last one from which some bins together stand out from
    their noise, by the more the farther they are: noise there would cause the largest errors. Of points that are all
    averaged (`clips`) less is enough to stand out, for they may lie anywhere. Radii may lie within bins, whose points
    are taken to be spread evenly on a logarithmic scale.

    Returns
    -------
    tuple of float and int
        The radius, and the number of the last bin that counts.

    Privacy
    -------
    Post-processing of released numbers, so it costs nothing.

    Source
    ------
    Specification 5.4, 5.18; ours.
    """
    sums = np.append(0, np.cumsum(bins))
    size = max(1, int(sums[-1]))
    top = _last_bin(sums, np.append(edges, 2 * edges[-1]), variance, _CLIP_BAR if clips else _CORE_BAR)
    # An end and a middle of every part of a bin, and what lies beyond each end: how many points, and their distances.
    ends, middles = _parts(edges.tobytes())
    ends, middles = ends[: _PARTS * (top + 1)], middles[: _PARTS * (top + 1)]
    counts = np.repeat(bins[: top + 1] / _PARTS, _PARTS)
    number = np.append(np.cumsum(counts[:0:-1])[::-1], 0.0)
    moment = np.append(np.cumsum((counts * middles)[:0:-1])[::-1], 0.0)
    costs = np.hypot(unit_noise * ends, PULL * np.maximum(0.0, moment - number * ends) / size)
    first, last = _PARTS - 1, _PARTS * len(edges)  # from the first edge to the last one
    return float(ends[first + int(np.argmin(costs[first:last]))]), top


def _last_bin(sums: NDArray[np.int64], ends: NDArray[np.float64], variance: float, bar: tuple[float, float]) -> int:
    """Return the last bin with which a run of bins begins that stands out from its noise; 0 if there is none.

    `sums` (b + 1,) are the noisy numbers of points before each of the bins, whose upper ends are `ends` (b,), and of
    all of them.
    """
    near = ends[np.append(np.flatnonzero(sums[1:] >= _BULK * max(1, sums[-1])), len(ends) - 1)[0]]
    sure, far = bar
    bars = np.sqrt(variance * (sure + far * np.maximum(0.0, np.log(ends / near))))
    for end in range(len(ends), 1, -_ROWS):
        first = max(1, end - _ROWS)
        runs = sums[first + 1 :] - sums[first:end, np.newaxis]
        found = np.flatnonzero((runs > bars[first:end, np.newaxis] * _roots(len(ends))[first:end, first:]).any(axis=1))
        if len(found):
            return first + int(found[-1])
    return 0


@lru_cache(maxsize=16)
def _roots(size: int) -> NDArray[np.float64]:
    """Return the roots of the numbers of bins from each bin to each bin; infinite where that is before it."""
    lengths = np.arange(size) - np.arange(size)[:, np.newaxis] + 1.0
    roots = np.sqrt(np.where(lengths < 1, np.inf, lengths))
    roots.flags.writeable = False
    return roots


@lru_cache(maxsize=64)
def _parts(edges: bytes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends and the geometric middles of the parts of all bins, whose upper ends are these doubles."""
    bounds = np.frombuffer(edges)
    starts = np.append(bounds[0] / RADIUS_RATIO, bounds)[:, np.newaxis]
    ratios, parts = np.append(bounds, 2 * bounds[-1])[:, np.newaxis] / starts, np.arange(_PARTS)
    ends, middles = ((starts * ratios ** ((parts + end) / _PARTS)).ravel() for end in (1, 0.5))
    ends.flags.writeable = middles.flags.writeable = False
    return ends, middles


def min_distance(offset: NDArray[np.float64], sigma: float) -> float:
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
