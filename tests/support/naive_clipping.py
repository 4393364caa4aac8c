"""The slow twin of a mean of everybody: after the rough center, Python's numbers, one point after another."""

import math
from fractions import Fraction

import numpy as np

from fcstream.accounting.losses import RHO_UNIT

from .naive_zooming import bins_of, clipped, variance_for

MOST = 2**53 - 1


def bounds_of(radius_squared, d):
    fine, top = max(1, math.ceil(math.sqrt(d / 30))), 2 * math.sqrt(radius_squared)
    found = [math.floor(max(1.0, top / 1.25 ** (24 - k / fine)) ** 2) for k in range(24 * fine + 1)]
    k = 1
    while (top * 2**k) < math.isqrt(MOST):
        found.append(math.floor((top * 2**k) ** 2))
        k += 1
    return [min(bound, MOST) for bound in found]


def reach_of(bins, edges, variance, unit, sure=4, far=4):
    """The radius of least predicted noise and pull; the number of points in bins beyond it; and the last bin."""
    ends = [*edges, 2 * edges[-1]]
    starts = [edges[0] / 1.25, *edges]
    total, near, held = max(1, sum(bins)), ends[-1], 0
    for count, end in zip(bins, ends, strict=True):
        held += count
        if held >= 0.75 * total:
            near = end
            break
    top = 0
    for b in range(1, len(bins)):
        bar = math.sqrt(sure + far * max(0.0, math.log(ends[b] / near)))
        if any(sum(bins[b:c]) > bar * math.sqrt(variance * (c - b)) for c in range(b + 1, len(bins) + 1)):
            top = b
    parts = []  # (bin, count, start, end) of the quarters of bins
    for b in range(top + 1):
        for k in range(4):
            at = [starts[b] * (ends[b] / starts[b]) ** ((k + step) / 4) for step in (0.5, 1)]
            parts.append((b, bins[b] / 4, *at))
    best = None
    for k in range(3, min(len(parts), 4 * len(edges))):
        b, _, _, radius = parts[k]
        pull = sum(count * (middle - radius) for _, count, middle, _ in parts[k + 1 :]) / total
        cost = math.hypot(unit * radius, 1.4 * max(0.0, pull))
        if best is None or cost < best[0] * (1 - 1e-12):
            best = (cost, radius, sum(bins[b + 1 :]))
    return (*best[1:], top)


def average(points, center, square, shares, noise):
    """The mean of points clipped to a ball, the deviation of its noise, and the noisy count; no value of too few."""
    count = len(points) + int(noise.discrete_gaussian(Fraction(RHO_UNIT, 2 * shares.count_nano), 1)[0])
    if count < shares.smallest:
        return None
    total = [sum(column) for column in zip(*(clipped(point, center, square) for point in points), strict=True)]
    variance = variance_for(square, shares.sum_nano)
    drawn = noise.discrete_gaussian(variance, len(center)).tolist()
    offset = [(exact + one) / count for exact, one in zip(total, drawn, strict=True)]
    value = [c + x for c, x in zip(center, offset, strict=True)]
    slack = math.sqrt(shares.count_variance)
    return value, [math.hypot(math.sqrt(variance), x * slack) / count for x in offset], count


def mean_of_all(mechanism, points, rough, noise):
    """What a mean with `clips` releases after its rough center: value, deviations, count, and the share beyond."""
    shares, d = mechanism._shares, mechanism.dimension
    center = [round(x) for x in rough.value.tolist()]
    bounds = bounds_of(mechanism.radius_squared, d)
    bins = bins_of(points, center, bounds, shares.histogram, noise)
    unit = math.sqrt(d) * mechanism.final.sigma(1, rough.count + mechanism.center.offset)
    reach, tail, _ = reach_of(bins, [math.sqrt(bound) for bound in bounds], RHO_UNIT / (2 * shares.histogram), unit)
    spread, ball = mechanism._first_ball(reach, float(rough.sigma[0]))
    better = average(points, center, ball, mechanism.middle, noise)
    if better is not None and max(better[1]) < rough.sigma[0]:
        from fcstream.releases.means.spread_histogram import least_distance

        spread = mechanism._seen(reach, least_distance(rough.value - np.array(better[0]), max(better[1])))
        center, ball = [round(x) for x in better[0]], mechanism._ball(spread, max(better[1]))
    found = average(points, center, ball, mechanism.final, noise)
    return None if found is None else (*found, min(1.0, max(0.0, tail / max(1, found[2]))))
