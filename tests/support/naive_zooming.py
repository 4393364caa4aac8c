"""The slow twin of a mean that starts from the public ranges: Python's integers, one point after another."""

import math
from fractions import Fraction

from fcstream.accounting.losses import RHO_UNIT

NEAR = 5


def split(rho_nano, d):
    count = int(rho_nano / (1 + math.sqrt(d)))
    return rho_nano - count, count


def variance_for(square, nano):
    return Fraction(-(-square * RHO_UNIT * 1024 // (2 * nano)), 1024)


def square_to(point, center):
    return sum((int(x) - c) ** 2 for x, c in zip(point, center, strict=True))


def bins_of(points, center, bounds, nano, noise):
    bins = [0] * (len(bounds) + 1)
    for point in points:
        square = square_to(point, center)
        bins[next((b for b, bound in enumerate(bounds) if square <= bound), len(bounds))] += 1
    return [
        exact + drawn
        for exact, drawn in zip(
            bins, noise.discrete_gaussian(Fraction(RHO_UNIT, 2 * nano), len(bins)).tolist(), strict=True
        )
    ]


def clipped(point, center, square):
    """The offset moved to the ball's border and truncated toward its center."""
    offset = [int(x) - c for x, c in zip(point, center, strict=True)]
    norm = sum(x * x for x in offset)
    if norm <= square:
        return offset
    factor = math.sqrt(square / norm) * (1 - 4e-15)
    while True:
        found = [math.trunc(x * factor) for x in offset]
        if sum(x * x for x in found) <= square:
            return found
        factor *= 1 - 1e-15


def fitting(bins, edges, unit):
    counts = [max(0, number) for number in bins]
    everybody, left = sum(counts), 0.1 * sum(counts)
    kept = [float(number) for number in counts]
    for k in reversed(range(len(kept))):
        taken = min(left, kept[k])
        kept[k] -= taken
        left -= taken
    everybody = max(1.0, sum(kept))
    costs = []
    for k, edge in enumerate(edges):
        pull = 0.7 * sum(kept[j] * max(0.0, edges[j] * 2**-0.25 - edge) for j in range(k + 1, len(edges))) / everybody
        costs.append(math.hypot(unit * edge, pull))
    return edges[costs.index(min(costs))]


def whole(radius):
    return min(max(1, math.ceil(radius)), math.isqrt((2**53 - 1) // 4))


def least_of(nano, terms):
    return math.ceil(math.sqrt(2 * terms * RHO_UNIT / (2 * nano) * math.log(10010)) * (1 + 1e-9))


def look(points, center, radius, rho_nano, box, noise):
    """Count, and average if there are enough: (bins, inside, everybody), then value, deviation and next start."""
    d, square = len(center), radius * radius
    sum_nano, count_nano = split(rho_nano, d)
    bounds = [square // 64, square // 4, square // 2, square, 4 * square]
    bins = bins_of(points, center, bounds, count_nano, noise)
    inside = sum(bins[:NEAR])
    counts = (bins, inside, inside + max(0, bins[NEAR]))
    return counts, lambda: average(points, center, radius, sum_nano, count_nano, counts, box, noise)


def average(points, center, radius, sum_nano, count_nano, counts, box, noise):
    d, square, (bins, inside, everybody) = len(center), radius * radius, counts
    if inside < least_of(count_nano, NEAR):
        return None
    total = [0] * d
    for point in points:
        if square_to(point, center) <= 4 * square:
            total = [a + b for a, b in zip(total, clipped(point, center, square), strict=True)]
    variance = variance_for(square, sum_nano)
    drawn = noise.discrete_gaussian(variance, d).tolist()
    offset = [(exact + more) / inside for exact, more in zip(total, drawn, strict=True)]
    spread = math.sqrt(NEAR * Fraction(RHO_UNIT, 2 * count_nano))
    sigma = [math.hypot(math.sqrt(variance), each * spread) / inside for each in offset]
    edges = [radius / 8, radius / 2, radius / math.sqrt(2), radius, 2 * radius]
    unit = math.sqrt(d) * math.sqrt(RHO_UNIT / (2 * sum_nano)) / max(1, inside)
    following = whole(max(fitting(bins[:NEAR], edges, unit), max(sigma) * math.sqrt(d)))
    value = [c + each for c, each in zip(center, offset, strict=True)]
    place = [min(max(round(x), low), high) for x, low, high in zip(value, box.low, box.high, strict=True)]
    return value, sigma, place, following, inside / max(1, everybody)


def start(points, rho_nano, box, noise):
    """The cold start: everything that it tells, and the value or None."""
    d = len(box.low)
    sum_nano, count_nano = split(rho_nano * 7 // 20, d)
    count = len(points) + int(noise.discrete_gaussian(Fraction(RHO_UNIT, 2 * count_nano), 1)[0])
    middle = [(low + high) // 2 for low, high in zip(box.low, box.high, strict=True)]
    reach = [high - m for high, m in zip(box.high, middle, strict=True)]
    shift = 0
    while max(reach) >> shift >= 2**26:
        shift += 1
    units = [side >> shift for side in reach]
    center, squares = [], 0.0
    for j, side in enumerate(units):
        total = 0
        for point in points:
            offset = min(max(int(point[j]), box.low[j]), box.high[j]) - middle[j]
            total += (1 if offset > 0 else -1) * (abs(offset) >> shift)
        drawn = 0
        if side:
            variance = variance_for(side * sum(units), sum_nano)
            drawn, squares = int(noise.discrete_gaussian(variance, 1)[0]), squares + float(variance)
        center.append(min(max(round(middle[j] + (total + drawn) / count * 2.0**shift), box.low[j]), box.high[j]))
    error = math.sqrt(squares) * 2.0**shift / count
    edges = [float(max(1, math.ceil(math.sqrt(sum((b - a) ** 2 for a, b in zip(box.low, box.high, strict=True))))))]
    while edges[0] > max(1.0, error / 2):
        edges.insert(0, edges[0] / 2)
    bins_nano = rho_nano * 3 // 20
    bins = bins_of(points, center, [math.floor(edge * edge) for edge in edges], bins_nano, noise)
    left = rho_nano - sum_nano - count_nano - bins_nano
    unit = math.sqrt(d) * math.sqrt(RHO_UNIT / (2 * split(left, d)[0])) / max(1, count)
    _, rest = look(points, center, whole(fitting(bins[:-1], edges, unit)), left, box, noise)
    return rest()
