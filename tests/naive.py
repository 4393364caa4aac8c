"""Slow, obvious twins of the fast code, under the same names."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath


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


def sparse_bar(n_hat: int, rate: Fraction, rho2: Fraction, delta: Fraction, parameter_sets: int | None = None):
    """(threshold, sigma) of SparseZCDPFilter, as specified, in 40 digits."""
    with mpmath.workdps(40):
        n, q, d = mpmath.mpf(n_hat), _real(rate), _real(delta)
        sigma = _plain_sigma(n, q, _real(rho2), d)
        if parameter_sets is None:
            return _tight_threshold(n, q, d, sigma), sigma
        v, log = n * q * (1 - q), mpmath.log(4 * n * parameter_sets / d)
        s = log / 6 + mpmath.sqrt(log**2 / 36 + v * log / 2)
        return mpmath.mpf(1) / 2 + s + sigma * mpmath.sqrt(2 * log), sigma


def hidden_bar(n_hat: int, rate: Fraction, rho2: Fraction, delta: Fraction):
    """(threshold, sigma) of HiddenCoinFilter, as specified, in 40 digits."""
    with mpmath.workdps(40):
        n, q, r, d = mpmath.mpf(n_hat), _real(rate), _real(rho2), _real(delta)

        def costs(sigma):
            a = 1 / (2 * sigma)
            x = a + mpmath.sqrt(2 * mpmath.log(2 * n / d))
            return n * q**2 * mpmath.exp(2 * a * (x + a)) / (8 * sigma**2)

        low = high = mpmath.mpf(1)
        while costs(high) > r:
            low, high = high, 2 * high
        for _ in range(110):
            middle = (low + high) / 2
            low, high = (low, middle) if costs(middle) <= r else (middle, high)
        sigma = min(high, _plain_sigma(n, q, r, d))
        return _tight_threshold(n, q, d, sigma), sigma


def _real(x: Fraction):
    return mpmath.mpf(x.numerator) / x.denominator


def _plain_sigma(n, q, rho2, delta):
    v, log = n * q * (1 - q), mpmath.log(4 / delta)
    most = min(n, n * q + log / 3 + mpmath.sqrt(log**2 / 9 + 2 * log * v))
    return max(mpmath.sqrt(most / (8 * rho2)), mpmath.mpf(1))


def _tight_threshold(n, q, delta, sigma):
    """Ternary search over ln(lambda); the function has one valley."""
    v, log = n * q * (1 - q), mpmath.log(2 * n / delta)

    def height(t):
        x = mpmath.exp(t)
        return (sigma**2 * x**2 / 2 + v * (mpmath.cosh(x / 2) - 1) + log) / x

    low, high = mpmath.mpf(-25), mpmath.mpf(4)
    for _ in range(80):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if height(a) < height(b) else (a, high)
    return mpmath.mpf(1) / 2 + height((low + high) / 2)
