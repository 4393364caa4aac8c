"""A slow twin of covariances by clipped moments: loops over records in Python integers, with the same draws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from fcstream.noise.samplers import Noise
from fcstream.releases.statistics.shapes import Coordinates


def missing(below: int, above: int, size: int, level: Fraction) -> int:
    """By how much the wanted rank lies outside of those that a value has, times the level's denominator."""
    lowest, highest, wanted = below, size - above, level * size
    return int(max(0, lowest - wanted, wanted - highest) * level.denominator)


def drawn_quantile(values: list[int], low: int, high: int, level: Fraction, rate: Fraction, noise: Noise) -> int:
    """One quantile: every lattice value of the range is a candidate; equal neighbors in cost are drawn together."""
    import numpy as np

    groups: list[tuple[int, int, int]] = []  # first value, number of values, cost
    edges = sorted({low, high + 1, *values, *(value + 1 for value in values)})
    for first, end in itertools.pairwise(edges):
        below, above = sum(v < first for v in values), sum(v > end - 1 for v in values)
        groups.append((first, end - first, missing(below, above, len(values), level)))
    sizes, costs = (np.array([group[k] for group in groups], np.int64) for k in (1, 2))
    chosen = noise.exponential_choice(sizes, costs, rate)
    return groups[chosen][0] + noise.uniform_below(int(sizes[chosen]))


def spread(
    values: list[int], low: int, high: int, middle: int, level: Fraction, rungs: int, rate: Fraction, noise: Noise
) -> int:
    """A drawn distance within which a part of the values lies of their middle; so many rungs for a factor of two."""
    import numpy as np

    least = max(1, math.ceil(Fraction(high - low, 2**30)))
    ladder, k = [least], 1
    while ladder[-1] < high - low:
        ladder.append(min(high - low, math.ceil(least * 2 ** (k / rungs))))
        k += 1
    ladder = sorted(set(ladder))
    at = [next(k for k, rung in enumerate(ladder) if abs(min(max(v, low), high) - middle) <= rung) for v in values]
    costs = [missing(sum(x < k for x in at), sum(x > k for x in at), len(at), level) for k in range(len(ladder))]
    return ladder[noise.exponential_choice(np.ones(len(ladder), np.int64), np.array(costs), rate)]


def turned(row: list[int], coordinates: Coordinates) -> list[int]:
    """The integers of a row: its offset from the middles, in units, times the matrix of the turn if there is one."""
    offsets = [x - m for x, m in zip(row, coordinates.middles.tolist(), strict=True)]
    factors = coordinates.factors.tolist()
    if coordinates.turn is None:
        return [round(x * f) for x, f in zip(offsets, factors, strict=True)]
    found = []
    for line in coordinates.turn.tolist():
        total = 0.0
        for entry, factor, x in zip(line, factors, offsets, strict=True):
            total += entry * factor * x
        found.append(round(total))
    return found


def clipped(row: list[int], radius_squared: int, shift: int) -> list[int]:
    """The integers of a row in units of 2**shift, moved to the ball's border if it lies outside."""
    norm, limit = sum(x * x for x in row), radius_squared >> (2 * shift)
    factor = 1.0 / 2**shift
    if norm > radius_squared:
        factor *= math.sqrt(float(radius_squared) / float(norm))
    while True:
        found = [math.trunc(x * factor) for x in row]
        if sum(x * x for x in found) <= limit:
            return found
        factor *= 1.0 - 1e-13


def moments(rows: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    d = len(rows[0])
    sums = [sum(row[i] for row in rows) for i in range(d)]
    return sums, [[sum(row[i] * row[j] for row in rows) for j in range(d)] for i in range(d)]


def release(rows: list[list[int]], mechanism, noise: Noise):
    """The noisy integers of a release: number, coordinates, squared radius, shift, outside, sums, products."""
    import numpy as np

    def gaussian(variance, size):
        return noise.discrete_gaussian(variance, size).tolist()

    nano = {name: loss.rho_nano for name, loss in mechanism.shares.items()}

    def variance(squared: int, name: str) -> Fraction:  # rounded up to 1/1024
        return Fraction(math.ceil(Fraction(squared * 10**9 * 1024, 2 * nano[name])), 1024)

    def noisy(products: list[list[int]], full: Fraction) -> list[list[int]]:
        diagonal = gaussian(full, d)
        below = iter(gaussian(full / 2, d * (d - 1) // 2))
        for i in range(d):
            products[i][i] += diagonal[i]
            for j in range(i):
                products[i][j] += next(below)
                products[j][i] = products[i][j]
        return products

    d = len(rows[0])
    size = len(rows) + gaussian(Fraction(10**9, 2 * nano["count"]), 1)[0]
    middles, spreads = [], []
    for k, column in enumerate(mechanism.columns):
        values = sorted(min(max(row[k], column.lowest), column.highest) for row in rows)
        ends, rate = (column.lowest, column.highest), mechanism.medians.rates[k]
        middles.append(drawn_quantile(values, *ends, Fraction(1, 2), rate, noise))
    if mechanism.learns:
        for k, column in enumerate(mechanism.columns):
            ends = (column.lowest, column.highest)
            values, rate = [row[k] for row in rows], mechanism.spreads.rates[k]
            spreads.append(spread(values, *ends, middles[k], Fraction(4, 5), 2, rate, noise))
    coordinates = Coordinates.plain(middles, spreads or None)
    assert not spreads or coordinates.factors.tolist() == [2**20 / round(x * 2048 / 2 ** (1 / 4)) for x in spreads]
    if "first" in nano:
        ball = 4 * d * 400**2
        nano["first sums"] = nano["first"] * 15 // 100
        nano["first moments"] = nano["first"] - nano["first sums"]
        sums, products = moments([clipped(turned(row, coordinates), ball, 0) for row in rows])
        mean = [(x + z) / size for x, z in zip(sums, gaussian(variance(ball, "first sums"), d), strict=True)]
        products = noisy(products, variance(ball**2, "first moments"))
        matrix = [
            [p / size - a * b for p, b in zip(row, mean, strict=True)] for row, a in zip(products, mean, strict=True)
        ]
        for i in range(d):
            matrix[i][i] += float(variance(ball, "first sums")) / size**2
        entry = ball / (2 * math.sqrt(nano["first moments"] / 1e9)) / size
        coordinates = coordinates.moved(np.array(mean), np.array(matrix), entry, turns=mechanism.turns)
    scaled = [turned(row, coordinates) for row in rows]
    norms = [sum(x * x for x in row) for row in scaled]
    last = len(mechanism.ladder) - 1
    at = [next((k for k, rung in enumerate(mechanism.ladder) if norm <= rung), last) for norm in norms]
    level = mechanism.radius_level
    costs = [
        missing(sum(x < k for x in at), sum(x > k for x in at), len(at), level) for k in range(len(mechanism.ladder))
    ]
    weights = [2 ** ((last - k) // math.ceil((last + 1) / 40)) for k in range(last + 1)]
    chosen = noise.exponential_choice(np.array(weights), np.array(costs), mechanism.radius_rate)
    radius_squared, shift = min(mechanism.ladder[chosen] * (d + 1) // d, mechanism.ladder[-1]), 0
    while True:
        limit = radius_squared >> (2 * shift)
        if limit < 2**38 and variance(limit**2, "moments") <= 2**80:
            break
        shift += 1
    sums, products = moments([clipped(row, radius_squared, shift) for row in scaled])
    noisy_sums = [x + z for x, z in zip(sums, gaussian(variance(limit, "sums"), d), strict=True)]
    products = noisy(products, variance(limit**2, "moments"))
    outside = sum(norm > radius_squared for norm in norms) + gaussian(Fraction(10**9, 2 * nano["outside"]), 1)[0]
    return size, coordinates, radius_squared, shift, outside, noisy_sums, products
