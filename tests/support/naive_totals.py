"""Slow, obvious twins of running totals, in rationals."""

from __future__ import annotations

import math
from fractions import Fraction


def coefficients(windows: int, theta: Fraction) -> list[int]:
    found = [2**16]
    for j in range(1, windows):
        found.append(math.floor(theta * 2**16 * Fraction(math.comb(2 * j, j), 4**j) + Fraction(1, 2)))
    return found


def weights(windows: int, theta: Fraction) -> list[int]:
    squares = [c * c for c in coefficients(windows, theta)]
    quotients = (Fraction(64**2 * sum(squares), sum(squares[: windows - s])) for s in range(windows))
    return [math.isqrt(math.floor(quotient)) for quotient in quotients]


def variance(windows: int, theta: Fraction, sensitivity_squared: int, rho: Fraction) -> int:
    """The least integer at which what a record adds to all numbers of an epoch costs at most rho."""
    c, w = coefficients(windows, theta), weights(windows, theta)
    most = max(sum((c[t - s] * w[s]) ** 2 for t in range(s, windows)) for s in range(windows))
    return math.ceil(most * sensitivity_squared / (2 * rho))


def noisy(windows: int, theta: Fraction, xs: list[list[int]], zs: list[list[int]]) -> list[list[int]]:
    """y: the mixed and weighted sums of the windows so far, with noise. What is released is a function of these."""
    c, w = coefficients(windows, theta), weights(windows, theta)
    return [
        [sum(c[t - s] * w[s] * xs[s][k] for s in range(t + 1)) + zs[t][k] for k in range(len(zs[t]))]
        for t in range(len(xs))
    ]


def estimates(windows: int, theta: Fraction, ys: list[list[int]], bits: int | None) -> list[list[Fraction]]:
    """The windows' sums, from y alone: each solves its equation, rounded to a multiple of 2**-bits, halves up."""
    c, w = coefficients(windows, theta), weights(windows, theta)
    found: list[list[Fraction]] = []
    for t, y in enumerate(ys):
        row = []
        for k, number in enumerate(y):
            value = Fraction(number - sum(c[t - u] * w[u] * found[u][k] for u in range(t))) / (c[0] * w[t])
            if bits is not None:
                value = Fraction(math.floor(value * 2**bits + Fraction(1, 2)), 2**bits)
            row.append(value)
        found.append(row)
    return found


def noise_of(windows: int, theta: Fraction, first: int, last: int) -> float:
    """Deviation of the sum of windows first to last - 1, for z of deviation 1: every z is followed on its way."""
    total = Fraction(0)
    for v in range(last):
        ys = [[int(t == v)] for t in range(last)]
        total += sum(row[0] for row in estimates(windows, theta, ys, None)[first:last]) ** 2
    return math.sqrt(total)
