"""A slow twin of covariances by clipped moments: loops over records in Python integers, with the same draws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from fcstream.noise.samplers import Noise


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


def next_size(difference: int) -> int:
    rung = 0
    while round(1024 * 2 ** (rung / 4)) < 1024 * difference:
        rung += 1
    return round(1024 * 2 ** (rung / 4))


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
    """The noisy integers of a release: number, middles, sizes, squared radius, shift, outside, sums, products."""

    def gaussian(variance, size):
        return noise.discrete_gaussian(variance, size).tolist()

    nano = {name: loss.rho_nano for name, loss in mechanism.shares.items()}

    def variance(squared: int, name: str) -> Fraction:  # rounded up to 1/1024
        return Fraction(math.ceil(Fraction(squared * 10**9 * 1024, 2 * nano[name])), 1024)

    size = len(rows) + gaussian(Fraction(10**9, 2 * nano["count"]), 1)[0]
    middles, sizes = [], []
    levels = mechanism.learner.levels
    for k, column in enumerate(mechanism.columns):
        values = sorted(min(max(row[k], column.lowest), column.highest) for row in rows)
        ends = (column.lowest, column.highest)
        found = sorted(
            drawn_quantile(values, *ends, level, rate, noise)
            for level, rate in zip(levels, mechanism.learner.rates[k], strict=True)
        )
        middles.append((found[0] + found[-1]) // 2)
        least = max(1, math.ceil(Fraction(column.highest - column.lowest, 2**30)))
        sizes.append(next_size(max(found[-1] - found[0], least)))
    if len(levels) == 2:
        scaled = [[round((x - m) * (2.0**20 / s)) for x, m, s in zip(row, middles, sizes, strict=True)] for row in rows]
    else:
        scaled = [[x - m for x, m in zip(row, middles, strict=True)] for row in rows]
    import numpy as np

    norms = [sum(x * x for x in row) for row in scaled]
    at = [next(k for k, rung in enumerate(mechanism.ladder) if norm <= rung) for norm in norms]
    level = mechanism.radius_level
    costs = [
        missing(sum(x < k for x in at), sum(x > k for x in at), len(at), level) for k in range(len(mechanism.ladder))
    ]
    chosen = noise.exponential_choice(np.ones(len(costs), np.int64), np.array(costs), mechanism.radius_rate)
    radius_squared, shift = mechanism.ladder[chosen], 0
    while True:
        limit = radius_squared >> (2 * shift)
        if limit < 2**38 and variance(limit**2, "moments") <= 2**80:
            break
        shift += 1
    sums, products = moments([clipped(row, radius_squared, shift) for row in scaled])
    d = len(sums)
    noisy_sums = [x + z for x, z in zip(sums, gaussian(variance(limit, "sums"), d), strict=True)]
    full = variance(limit**2, "moments")
    diagonal = gaussian(full, d)
    below = iter(gaussian(full / 2, d * (d - 1) // 2))
    for i in range(d):
        products[i][i] += diagonal[i]
        for j in range(i):
            products[i][j] += next(below)
            products[j][i] = products[i][j]
    outside = sum(norm > radius_squared for norm in norms) + gaussian(Fraction(10**9, 2 * nano["outside"]), 1)[0]
    return size, middles, sizes, radius_squared, shift, outside, noisy_sums, products
