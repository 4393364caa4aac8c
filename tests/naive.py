"""Slow, obvious twins of the fast code, under the same names."""

from __future__ import annotations

import math
from fractions import Fraction


def friend_counts(points, radius_squared: int) -> list[int]:
    """Exact integers, every pair of rows looked at."""
    rows = [[int(x) for x in row] for row in points]
    return [sum(sum((x - y) ** 2 for x, y in zip(p, q, strict=True)) <= radius_squared for q in rows) for p in rows]


def radius_squared(radius: str, step: str) -> int:
    """floor((radius / step)**2) of decimals."""
    return math.floor((Fraction(radius) / Fraction(step)) ** 2)


def windows_of(time_ms: int, start_ms: int, length_ms: int, slide_ms: int, count: int | None) -> list[int]:
    """Indices of the windows of a schedule that hold a time, by trying."""
    first = (time_ms - start_ms) // slide_ms - length_ms // slide_ms - 2
    found = []
    for k in range(max(0, first), max(0, first) + length_ms // slide_ms + 6):
        opens = start_ms + k * slide_ms
        if opens <= time_ms < opens + length_ms and (count is None or k < count):
            found.append(k)
    return found


def basic_filter_probability(count: int, n: int, alpha: Fraction) -> Fraction:
    """BasicFilter's keep probability, as printed."""
    z = count - Fraction(n, 2)
    top = (Fraction(1, 2) - alpha) * n
    return Fraction(0) if z <= 0 else Fraction(1) if z >= top else z / top


def masked_sum(points, mask) -> list[int]:
    return [sum(int(row[k]) for row, keep in zip(points, mask, strict=True) if keep) for k in range(len(points[0]))]


def histogram(points, mask, center, bounds) -> list[int]:
    out = [0] * (len(bounds) + 1)
    for row, keep in zip(points, mask, strict=True):
        if keep:
            norm = sum((int(x) - int(c)) ** 2 for x, c in zip(row, center, strict=True))
            out[next((b for b, bound in enumerate(bounds) if norm <= int(bound)), len(bounds))] += 1
    return out


def clip(offset: list[int], radius_squared: int) -> list[int]:
    """The offset itself if it is in the ball, else some vector of the ball: callers check the ball and the ray."""
    return offset if sum(x * x for x in offset) <= radius_squared else [0] * len(offset)


def gaussian_pmf(variance: float, reach: int) -> dict[int, float]:
    """Discrete Gaussian by normalizing the weights."""
    weights = {y: math.exp(-y * y / (2 * variance)) for y in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {y: w / total for y, w in weights.items()}


def laplace_pmf(scale: float, reach: int) -> dict[int, float]:
    weights = {y: math.exp(-abs(y) / scale) for y in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {y: w / total for y, w in weights.items()}
