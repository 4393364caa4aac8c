"""A slow twin of learned scales before a mean: loops over records in Python integers, with the same draws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fcstream.noise.samplers import Noise
from support.naive_moments import drawn_quantile


def rung(difference: int) -> int:
    """The first of round(2**10 2**(j/16)) that is not below the difference, in 2**-10."""
    j = 0
    while round(1024 * 2 ** (j / 16)) < 1024 * difference:
        j += 1
    return round(1024 * 2 ** (j / 16))


def learned(rows: list[list[int]], mechanism, shift: int, share: Fraction, noise: Noise) -> list[int]:
    """The scale of every feature, in 2**-10 of a lattice step; records are seen in steps 2**shift as wide."""
    d, found = len(rows[0]), []
    for k, column in enumerate(mechanism.columns):
        low, high = column.lowest // 2**shift, column.highest // 2**shift
        values = sorted(row[k] // 2**shift for row in rows)
        quartiles = []
        for i, level in enumerate((Fraction(1, 4), Fraction(3, 4))):
            rate = mechanism.learner.rates[k][i]
            assert (6 * rate) ** 2 / 8 <= share / (2 * d)  # costs move by up to 3
            quartiles.append(drawn_quantile(values, low, high, level, rate, noise))
        found.append(rung(max(1, max(quartiles) - min(quartiles))) * 2**shift)
    return found


def rescaled(rows: list[list[int]], sizes: list[int], step: Fraction) -> np.ndarray:
    """Coordinates in 1 / step of a scale; Python rounds a fraction to the nearest integer, half to even."""
    points = [[round(Fraction(x * 1024, s) / step) for x, s in zip(row, sizes, strict=True)] for row in rows]
    return np.array(points, np.float64).reshape(-1, len(sizes))
