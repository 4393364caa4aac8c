"""The slow twin of a mean of everybody: Python's numbers, one point after another."""

import math
from fractions import Fraction

from fcstream.accounting.losses import RHO_UNIT
from fcstream.releases.averages import norm_quantile

from .naive_zooming import bins_of, clipped, variance_for

MAX = 2**53 - 1


def bounds_of(radius_squared, d):
    fine, top = max(1, math.ceil(math.sqrt(d / 30))), 2 * math.sqrt(radius_squared)
    found = [math.floor(max(1.0, top / 1.25 ** (24 - k / fine)) ** 2) for k in range(24 * fine + 1)]
    k = 1
    while (top * 2**k) < math.isqrt(MAX):
        found.append(math.floor((top * 2**k) ** 2))
        k += 1
    return [min(bound, MAX) for bound in found]


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


def whole_offsets(mechanism, points, nano, noise, count):
    """Noisy mean offsets from the middle of the public ranges, and the deviations of their noise."""
    middles = [(low + high) // 2 for low, high in zip(mechanism.box.low, mechanism.box.high, strict=True)]
    sides = [high - middle for high, middle in zip(mechanism.box.high, middles, strict=True)]
    bits = [max(0, side.bit_length() - 26) for side in sides]
    units = [side // 2**cut for side, cut in zip(sides, bits, strict=True)]
    totals, found, deviations = [], [], []
    for j, (middle, cut) in enumerate(zip(middles, bits, strict=True)):
        total = 0
        for point in points:
            offset = min(mechanism.box.high[j], max(mechanism.box.low[j], int(point[j]))) - middle
            total += math.trunc(Fraction(offset, 2**cut))
        totals.append(total)
    for total, unit, cut in zip(totals, units, bits, strict=True):
        variance = variance_for(unit**2 * sum(each > 0 for each in units), nano) if unit else 0
        drawn = int(noise.discrete_gaussian(variance, 1)[0]) if unit else 0
        found.append((total + drawn) * 2.0**cut / count)
        deviations.append(math.sqrt(variance) * 2.0**cut / count)
    return middles, found, deviations


def in_ball(mechanism, points, center, square, nano, count, noise):
    total = [sum(column) for column in zip(*(clipped(point, center, square) for point in points), strict=True)]
    variance, slack = variance_for(square, nano), math.sqrt(mechanism.count_variance)
    drawn = noise.discrete_gaussian(variance, len(center)).tolist()
    offset = [(exact + one) / count for exact, one in zip(total, drawn, strict=True)]
    value = [c + x for c, x in zip(center, offset, strict=True)]
    return value, [math.hypot(math.sqrt(variance), x * slack) / count for x in offset]


def mean_of_all(mechanism, points, noise):
    """What a `ClippedMean` releases: value, deviations, interval (None: by its law), count, and the share beyond."""
    rho, d, box = mechanism.loss.rho_nano, mechanism.dimension, mechanism.box
    parts = {name: rho * share // 100 for name, share in (("count", 20), ("whole", 30), ("bins", 10), ("near", 8))}
    steps = mechanism.steps
    last = rho - parts["count"] - parts["whole"] - parts["bins"] - len(steps) * parts["near"]
    count = len(points) + int(noise.discrete_gaussian(Fraction(RHO_UNIT, 2 * parts["count"]), 1)[0])
    slack = math.sqrt(mechanism.count_variance)
    middles, first, own = whole_offsets(mechanism, points, parts["whole"], noise, count)
    whole = [middle + x for middle, x in zip(middles, first, strict=True)]
    doubt = [math.hypot(one, x * slack / count) for one, x in zip(own, first, strict=True)]

    def inside(value):
        return [min(high, max(low, round(x))) for x, low, high in zip(value, box.low, box.high, strict=True)]

    center, error = inside(whole), math.sqrt(sum(x * x for x in own) / d) * norm_quantile(d, 0.05)
    for square in steps:
        value, _ = in_ball(mechanism, points, center, square, parts["near"], count, noise)
        center = inside(value)
        error = math.sqrt(square * RHO_UNIT / (2 * parts["near"])) / count * norm_quantile(d, 0.05)
    bounds = bounds_of(mechanism.radius_squared, d)
    edges = [math.sqrt(bound) for bound in bounds]
    bins = bins_of(points, center, bounds, parts["bins"], noise)
    unit = math.sqrt(d) * math.sqrt(RHO_UNIT / (2 * last)) / count
    reach = max(reach_of(bins, edges, RHO_UNIT / (2 * parts["bins"]), unit)[0], error)
    place, radius = center, reach
    if d == 1:
        low, high = max(box.low[0], center[0] - reach), min(box.high[0], center[0] + reach)
        place = [math.floor((low + high) / 2)]
        radius = high - place[0]
    square = min(max(math.ceil(radius), 1) ** 2, MAX)
    both = parts["whole"] + last
    together = [one * math.sqrt(parts["whole"] / both) for one in own]
    if math.sqrt(sum(x * x for x in together) / d) <= 2 * math.sqrt(square * RHO_UNIT / (2 * last)) / count:
        _, again, _ = whole_offsets(mechanism, points, last, noise, count)
        offsets = [(parts["whole"] * x + last * y) / both for x, y in zip(first, again, strict=True)]
        value = [middle + x for middle, x in zip(middles, offsets, strict=True)]
        return value, [math.hypot(s, x * slack / count) for s, x in zip(together, offsets, strict=True)], None, count, 0
    value, sigma = in_ball(mechanism, points, place, square, last, count, noise)
    if any(abs(x - y) > 5 * s for x, y, s in zip(value, whole, doubt, strict=True)):
        return whole, doubt, None, count, 0
    for j, (x, one) in enumerate(zip(whole, doubt, strict=True)):
        if sigma[j] >= one:
            value[j], sigma[j] = x, one
    interval = [[min(y - 1.96 * one, x), max(y + 1.96 * one, x)] for x, y, one in zip(value, whole, doubt, strict=True)]
    tail = sum(one for k, one in enumerate(bins) if k and edges[k - 1] >= reach * (1 - 1e-9))
    return value, sigma, interval, count, min(1.0, max(0.0, tail / count))
