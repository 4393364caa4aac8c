"""A slow twin of learned scales before a mean: loops over records in Python integers, with the same draws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fcstream.noise.samplers import Noise
from support.naive_moments import drawn_quantile, spread


def learned(rows: list[list[int]], mechanism, shift: int, share: Fraction, noise: Noise) -> list[int]:
    """The scale of every feature, in 2**-10 of a lattice step: 2**shift steps at least; values are seen in eighths."""
    least, shift = 2**shift, max(0, shift - 3)
    d, middles, found = len(rows[0]), [], []
    ends = [(column.lowest // 2**shift, column.highest // 2**shift) for column in mechanism.columns]
    values = [sorted(row[k] // 2**shift for row in rows) for k in range(d)]
    parts = share * 15 / 100, share * 85 / 100
    for k in range(d):
        rate = mechanism.medians.rates[k]
        assert (2 * rate) ** 2 / 8 <= parts[0] / d  # costs move by up to 1
        middles.append(drawn_quantile(values[k], *ends[k], Fraction(1, 2), rate, noise))
    for own, (low, high), middle, rate in zip(values, ends, middles, mechanism.spreads.rates, strict=True):
        # A record moves costs of its own side by up to 3, and of the other one by up to 1.
        assert ((6 * rate) ** 2 + (2 * rate) ** 2) / 8 <= parts[1] / d + Fraction(1, 10**9)
        whole = 0
        for sign in (-1, 1):  # of the other side no value is farther than the middle
            side = [max(sign * (min(max(value, low), high) - middle), 0) for value in own]
            whole += spread(side, 0, high - low, 0, Fraction(3, 4), 64, rate, noise)
        found.append(1024 * max(whole * 2**shift, least))
    return found


def rescaled(rows: list[list[int]], sizes: list[int], step: Fraction) -> np.ndarray:
    """Coordinates in 1 / step of a scale; Python rounds a fraction to the nearest integer, half to even."""
    points = [[round(Fraction(x * 1024, s) / step) for x, s in zip(row, sizes, strict=True)] for row in rows]
    return np.array(points, np.float64).reshape(-1, len(sizes))
