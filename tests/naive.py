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


def inside_sum(points, mask, center, radius_squared: int) -> tuple[int, list[int]]:
    """Number of the masked points within a ball, and the sum of their offsets from its center."""
    total, count = [0] * len(center), 0
    for point, wanted in zip(points, mask, strict=True):
        offset = [int(x) - int(c) for x, c in zip(point, center, strict=True)]
        if wanted and sum(v * v for v in offset) <= radius_squared:
            count += 1
            total = [a + b for a, b in zip(total, offset, strict=True)]
    return count, total


def user_points(names, times, points, per_user: str) -> dict[str, list[int]]:
    """One point per user: the earliest (then the least), or the mean rounded to integers (halves up)."""
    found: dict[str, list[tuple[int, list[int]]]] = {}
    for name, time, point in zip(names, times, points, strict=True):
        found.setdefault(name, []).append((int(time), [int(x) for x in point]))
    if per_user == "first":
        return {name: min(of_one)[1] for name, of_one in found.items()}
    means = {}
    for name, of_one in found.items():
        n = len(of_one)
        means[name] = [(2 * sum(column) + n) // (2 * n) for column in zip(*(p for _, p in of_one), strict=True)]
    return means


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


def predicate_counts(items, friends) -> list[int]:
    """Friends of each item under friends(x, y); itself counts, an equal other item is asked like any other."""
    numbered = list(enumerate(items))
    return [sum(i == j or bool(friends(x, y)) for j, y in numbered) for i, x in numbered]


def _squared_distance(x, y) -> int:
    return sum((int(a) - int(b)) ** 2 for a, b in zip(x, y, strict=True))


def match_within(x, y, gamma: Fraction, radius_squared: int | None = None) -> bool:
    """By definition: look for a permutation."""
    k = len(x)
    square = [[_squared_distance(a, b) for b in y] for a in x]

    def may_pair(i, p):
        others = [square[i][j] for j in range(k) if j != p] + [square[j][p] for j in range(k) if j != i]
        close = all(square[i][p] * gamma.denominator**2 < other * gamma.numerator**2 for other in others)
        return close and (radius_squared is None or square[i][p] <= radius_squared)

    def assign(i, taken):
        return i == k or any(may_pair(i, p) and assign(i + 1, taken | {p}) for p in range(k) if p not in taken)

    return assign(0, frozenset())


def match_tuples(x, y, gamma: Fraction) -> bool:
    return match_within(x, y, gamma)


def ordered_tuples(x, y, radii_squared) -> bool:
    return all(_squared_distance(a, b) <= r2 for a, b, r2 in zip(x, y, radii_squared, strict=True))


def hamming_bits(x, y, limit: int) -> bool:
    return sum(bool(a) != bool(b) for a, b in zip(x, y, strict=True)) <= limit


def positive_definite(matrix) -> bool:
    """Gauss elimination in fractions."""
    rows = [[Fraction(a) for a in row] for row in matrix]
    for i, pivot in enumerate(rows):
        if pivot[i] <= 0:
            return False
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return True


def matrix_distance(x, y, limit: Fraction) -> bool:
    """max(|l - 1|, |1/l - 1|) < limit for all generalized eigenvalues l, in fractions of the given floats."""

    def below(a, b):
        return positive_definite(
            [[(1 + limit) * Fraction(q) - Fraction(p) for p, q in zip(*r, strict=True)] for r in zip(a, b, strict=True)]
        )

    return positive_definite(x) and positive_definite(y) and below(x, y) and below(y, x)


def blocks_meet(a: int, b: int, blocks: int, partners: int) -> bool:
    """Whether two blocks lie at most (partners - 1) / 2 apart on a circle; all do if all are partners."""
    return partners == blocks or any(
        (a + offset) % blocks == b for offset in range(-(partners // 2), partners // 2 + 1)
    )


def sampled_scores(points, radius_squared: int, used) -> list[int]:
    """1 + friends - strangers among the partners j with used[i][j], itself none."""
    rows = [[int(x) for x in row] for row in points]
    n = len(rows)
    friend = [[sum((x - y) ** 2 for x, y in zip(p, q, strict=True)) <= radius_squared for q in rows] for p in rows]
    return [1 + sum((1 if friend[i][j] else -1) for j in range(n) if j != i and used[i][j]) for i in range(n)]


def ladder_counts(points, radii_squared) -> list[list[int]]:
    return [friend_counts(points, radius_squared) for radius_squared in radii_squared]
