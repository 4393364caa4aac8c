"""Slow, obvious twins of the fast code, under the same names."""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction

import mpmath


def friend_counts(points, radius_squared: int) -> list[int]:
    """Exact integers, every pair of rows looked at."""
    return counts_by_radius(points, [radius_squared])[0]


def counts_by_radius(points, radii_squared) -> list[list[int]]:
    rows = [[int(x) for x in row] for row in points]
    squares = [[sum((x - y) ** 2 for x, y in zip(p, q, strict=True)) for q in rows] for p in rows]
    return [[sum(square <= radius_squared for square in row) for row in squares] for radius_squared in radii_squared]


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


def bins(values, inner, named) -> list[int]:
    """Values per bin: cut at `inner` (on a cut: above), or one for each of `named` and one for the rest."""
    counts = [0] * (len(inner or named) + 1)
    for value in values:
        if named:
            counts[named.index(value) if value in named else -1] += 1
        else:
            counts[sum(value >= cut for cut in inner)] += 1
    return counts


def quantile_costs(values, least: int, most: int, level: Fraction) -> dict[int, int]:
    """How far q n lies from the ranks that every value of the range has, times the denominator of q."""
    found = {}
    for v in range(least, most + 1):
        below, above, wanted = sum(x < v for x in values), sum(x > v for x in values), level * len(values)
        nearest = min(max(wanted, below), len(values) - above)
        found[v] = int(abs(wanted - nearest) * level.denominator)
    return found


def exponential_law(sizes, costs, rate: Fraction) -> list[Fraction]:
    """Probabilities proportional to sizes[i] exp(-rate costs[i]), to 400 digits."""
    with mpmath.workdps(420):
        weights = [size * mpmath.exp(-_real(rate) * cost) for size, cost in zip(sizes, costs, strict=True)]
        total = mpmath.fsum(weights)
        return [Fraction(int(w / total * mpmath.mpf(10) ** 400), 10**400) for w in weights]


def inside_squares(points, center, radius_squared: int, shift: int = 0) -> tuple[int, list[int]]:
    """Number of the points within a ball, and the sums of their squared offsets, each divided by 2**shift."""
    count, total = 0, [0] * len(center)
    for point in points:
        offset = [x - c for x, c in zip(point, center, strict=True)]
        if sum(v * v for v in offset) <= radius_squared:
            count += 1
            total = [a + (v * v >> shift) for a, v in zip(total, offset, strict=True)]
    return count, total


def separation(points) -> int | None:
    """Smallest squared distance between two points of a tuple; None for a single one."""
    return min((_squared_distance(x, y) for i, x in enumerate(points) for y in points[:i]), default=None)


def number(lead, points):
    """The points of a tuple in the order of the lead's points nearest to them; as they are if that is no order."""
    near = [min(range(len(lead)), key=lambda j: (_squared_distance(x, lead[j]), j)) for x in points]
    if sorted(near) != list(range(len(lead))):
        return [list(x) for x in points]
    return [list(points[near.index(j)]) for j in range(len(lead))]


def partitioned(centers, radii_squared, points) -> bool:
    """Each ball holds exactly one of the points."""
    return all(
        sum(_squared_distance(c, x) <= r2 for x in points) == 1 for c, r2 in zip(centers, radii_squared, strict=True)
    )


def label(point, origin, ball_squared: int, centers) -> int:
    """Nearest center, the first of equals; -1 outside the ball."""
    if _squared_distance(point, origin) > ball_squared:
        return -1
    return min(range(len(centers)), key=lambda j: (_squared_distance(point, centers[j]), j))


def separations_between(tuples, edges) -> list[int]:
    """How many tuples have their separation below edge 0, in [edge b - 1, edge b), or at the last edge and above."""
    out = [0] * (len(edges) + 1)
    for points in tuples:
        out[sum(separation(points) >= edge for edge in edges)] += 1
    return out


def check_diameter(points, radius_squared: int, tolerance: Fraction, bar: float, draw) -> bool:
    """Strangers per point, less those tolerated, at most `bar`, up to noise draw() in multiples of 2**-10."""
    n = len(points)
    strangers = sum(n - count for count in friend_counts(points, radius_squared))
    mean = Fraction(strangers, n) - tolerance * n if n else Fraction(0)
    return Fraction(math.floor(mean * 1024 + Fraction(1, 2)) - draw(), 1024) <= Fraction(bar)


def check_matches(tuples, matches, tolerance: Fraction, rho_nano: int, draw) -> bool:
    """At most the tolerated share of pairs of different tuples do not match, up to two deviations of the noise.

    The noise draw() is in multiples of 2**-10 pairs over t, of which a replaced tuple is in less than 2.
    """
    t = len(tuples)
    differ = sum(i != j and not matches(x, y) for i, x in enumerate(tuples) for j, y in enumerate(tuples))
    excess = math.floor((Fraction(differ, t) - tolerance * (t - 1)) * 1024 + Fraction(1, 2))
    return Fraction(excess - draw(), 1024) <= Fraction(2 * math.sqrt(2 * 10**9 / rho_nano))


def find_diameter(points, radii_squared, tolerance: Fraction, bar: float, draw) -> int:
    """Halve what is left until one radius is."""
    left = list(range(len(radii_squared)))
    while len(left) > 1:
        middle = (len(left) - 1) // 2
        passed = check_diameter(points, radii_squared[left[middle]], tolerance, bar, draw)
        left = left[: middle + 1] if passed else left[middle + 1 :]
    return left[0]


def replacement_filter_probability(count: int, n: int) -> Fraction:
    z, top = count - Fraction(n + 1, 2), Fraction(n - 1, 2)
    return Fraction(0) if z <= 0 else min(z / top, Fraction(1))


def generator(counts, epsilon, beta, m, ell, growth, draw):
    """(keep probabilities, success) of the first version's generator, as printed, in 40 digits."""
    with mpmath.workdps(40):
        n, lam = len(counts), mpmath.mpf(growth)
        c = mpmath.log(lam + 1)

        def q(z):
            if z < 0:
                return mpmath.mpf(1)
            if z > m:
                return mpmath.mpf(0)
            return (mpmath.exp(c * (1 - z / m)) - 1) / lam if growth else 1 - z / m

        discards = [q(mpmath.mpf(int(count)) - mpmath.mpf(n + 1) / 2) for count in counts]
        if not growth:
            return [1 - x for x in discards], True
        a = mpmath.exp(c / m) - 1
        k = 1 + n / lam * a
        omega = m / c * mpmath.log(1 + sum(discards) * a / k)
        omega0 = m / c * mpmath.log(1 + ell * a / k)
        bar = omega0 + mpmath.log(1 / (2 * mpmath.mpf(beta))) / epsilon
        return [1 - x for x in discards], mpmath.nint(omega * 2**16) + draw() <= bar * 2**16


def generator_stability(n, epsilon, delta, beta, m, ell, growth):
    with mpmath.workdps(40):
        if not growth:
            return mpmath.mpf(n) / m
        c = mpmath.log(mpmath.mpf(growth) + 1)
        a = mpmath.exp(c / m) - 1
        k = n / mpmath.mpf(growth) * a
        omega0 = m / c * mpmath.log(1 + ell * a / (1 + k))
        h = mpmath.log(1 / (2 * mpmath.mpf(beta) * delta)) / epsilon
        return (mpmath.exp(c / m * (omega0 + h)) - 1) * (1 + k) + k


def friendly_average(points, mask, offset: int, diameter: Fraction, grid_bits: int, draw_size, draw):
    """Value and n-hat of a friendly average in integers, or None; `draw` gives its noise on the grid."""
    kept = [[int(x) for x in row] for row, keep in zip(points, mask, strict=True) if keep]
    n_hat = len(kept) - offset + draw_size()
    if not kept or n_hat <= 0:
        return None
    means = [Fraction(sum(column) << grid_bits, len(kept)) for column in zip(*kept, strict=True)]
    noisy = [math.floor(mean + Fraction(1, 2)) + y for mean, y in zip(means, draw(n_hat, len(means)), strict=True)]
    return [y / 2**grid_bits for y in noisy], n_hat


def shard_moments(points, shards, count: int):
    """Sizes, means and lower scatter matrices: Welford's update, a point at a time, in Python floats."""
    d = len(points[0]) if len(points) else 0
    sizes = [0] * count
    means = [[0.0] * d for _ in range(count)]
    scatters = [[[0.0] * d for _ in range(d)] for _ in range(count)]
    for point, s in zip(points, shards, strict=True):
        sizes[s] += 1
        gaps = [float(x) - mean for x, mean in zip(point, means[s], strict=True)]
        for k in range(d):
            share = gaps[k] * ((sizes[s] - 1.0) / float(sizes[s]))
            for j in range(k + 1):
                scatters[s][k][j] += share * gaps[j]
        means[s] = [mean + gap / float(sizes[s]) for mean, gap in zip(means[s], gaps, strict=True)]
    return sizes, means, scatters


def matrix_gamma(eta, epsilon, delta, d):
    with mpmath.workdps(30):
        e, x = mpmath.mpf(epsilon), mpmath.mpf(eta)
        log = mpmath.log(2 / mpmath.mpf(delta))
        return min(
            mpmath.sqrt(e / (2 * d * (d + 1 / x**2))),
            e / (8 * d * mpmath.sqrt(mpmath.log(1 / mpmath.mpf(delta)))),
            e / (8 * log),
            e * x / (12 * mpmath.sqrt(d * log)),
        )


def box_distance(point, low2, high2, parts: int) -> int:
    """floor(parts * signed distance to a box), corners in half steps, from its nearest point or face."""
    with mpmath.workdps(60):
        twice = [2 * x for x in point]
        nearest = [min(max(x, a), b) for x, a, b in zip(twice, low2, high2, strict=True)]
        if nearest != twice:
            square = sum((x - y) ** 2 for x, y in zip(twice, nearest, strict=True))
            return int(mpmath.floor(parts * mpmath.sqrt(square) / 2 + mpmath.mpf(10) ** -30))
        inside = min(min(x - a, b - x) for x, a, b in zip(twice, low2, high2, strict=True))
        return math.floor(Fraction(-inside * parts, 2))


def lattice_laplace_pmf(rate: float, reach: int) -> dict[tuple[int, int], float]:
    """P(z) proportional to exp(-rate |z|) in the plane, by normalizing."""
    grid = range(-reach, reach + 1)
    weights = {(x, y): math.exp(-rate * math.hypot(x, y)) for x in grid for y in grid}
    total = math.fsum(weights.values())
    return {z: w / total for z, w in weights.items()}


def paper_share(capacity: Fraction, remaining: Fraction, step: int, queries: int) -> Fraction:
    """Algorithm 3, lines 3 and 4, in fractions; one query gets everything."""
    if queries == 1:
        return remaining
    gamma = Fraction(step - 1, queries - 1) * Fraction(1, 4) + Fraction(3, 4)
    return gamma * (remaining - Fraction(queries - (step - 1), queries) * capacity) + capacity / queries


def eliminate(answers, parts, estimate, width, judge, enough: int):
    """PIE with answers[i][j] of device i in round j: states, rounds asked, and what each was charged, one by one."""
    n, c = len(parts), len(parts[0])
    left, states, charged, asked = list(range(n)), [0] * n, [0] * n, [0] * n
    for j in range(c):
        if len(left) <= enough:
            break
        for i in left:
            charged[i] += parts[i][j]
            asked[i] += 1
        intervals = {}
        for i in left:
            paid = sum(parts[i][: j + 1])
            mean = sum(r * v for r, v in zip(parts[i][: j + 1], answers[i], strict=False)) / paid
            h = width(paid)
            intervals[i] = (estimate(mean) - h, estimate(mean) + h)
        for i, state in judge(intervals).items():
            states[i] = state
        left = [i for i in left if states[i] == 0]
    return states, charged, asked


def judge_range(low: float, high: float):
    return lambda intervals: {i: 1 if b < low else 2 if a > high else 0 for i, (a, b) in intervals.items()}


def judge_smallest(k: int):
    def judge(intervals):
        if len(intervals) <= k:
            return dict.fromkeys(intervals, 0)
        order = sorted(intervals, key=lambda i: (intervals[i][1], i))
        bar = intervals[order[k - 1]][1]
        return {i: 0 if i in order[:k] or intervals[i][0] <= bar else 2 for i in intervals}

    return judge


def misplaced(sides, sigma: float, cut: float) -> tuple[float, float]:
    """Expected devices on the wrong side of a cut, outside and inside a rectangle with one device per unit of area."""
    length, narrow = sum(sides), min(sides) / 2
    outside = mpmath.quad(
        lambda s: (2 * length + 2 * mpmath.pi * s) * mpmath.ncdf((cut - s) / sigma), [0, sigma, 14 * sigma]
    )
    inside = mpmath.quad(
        lambda s: (2 * length - 8 * s) * mpmath.ncdf(-(cut + s) / sigma), mpmath.linspace(0, narrow, 5)
    )
    return float(outside), float(inside)


def table_bits(codes, sizes) -> list[list[int]]:
    """Records of levels as bits: one for two levels, else a one-hot block."""
    found = []
    for row in codes:
        bits = []
        for code, size in zip(row, sizes, strict=True):
            bits += [int(code)] if size == 2 else [int(k == code) for k in range(size)]
        found.append(bits)
    return found


def table_numbers(codes, sizes) -> list[list[int]]:
    """The integers u that noise is added to sums of: -1 and 1, or in one-hot blocks above 4 bits 0 and 2."""
    shifts = [shift for size in sizes for shift in ([1] if size == 2 else [int(size <= 4)] * size)]
    return [[2 * b - s for b, s in zip(bits, shifts, strict=True)] for bits in table_bits(codes, sizes)]


def table_moments(bits) -> list[list[int]]:
    p = len(bits[0])
    return [[sum(row[i] * row[j] for row in bits) for j in range(p)] for i in range(p)]


def table_triples(numbers, sizes) -> list[int]:
    """All products of three of one record's integers u that belong to three different columns."""
    owners = [k for k, size in enumerate(sizes) for _ in range(1 if size == 2 else size)]
    sets = itertools.combinations(range(len(sizes)), 3)
    bits = [[i for i, owner in enumerate(owners) if owner == k] for k in range(len(sizes))]
    return [numbers[i] * numbers[j] * numbers[k] for a, b, c in sets for i in bits[a] for j in bits[b] for k in bits[c]]


def table_place(numbers, directions, center, width: int, odd: bool) -> tuple[int, ...]:
    """Which box a record lies in, along each direction."""
    place = []
    for direction, middle in zip(directions, center, strict=True):
        along = sum(d * u for d, u in zip(direction, numbers, strict=True))
        place.append((along - middle + (width // 2 if odd else 0)) // width)
    return tuple(place)


def contingency(codes, sizes, order: int) -> list[list[int]]:
    """A table for every set of columns, the last column's levels fastest."""
    found = []
    for columns in itertools.combinations(range(len(sizes)), order):
        cells = itertools.product(*(range(sizes[a]) for a in columns))
        found.append(
            [sum(all(row[a] == k for a, k in zip(columns, cell, strict=True)) for row in codes) for cell in cells]
        )
    return found


def to_simplex(weights, total: float = 1.0) -> list[float]:
    """By bisection of the drop."""
    low, high = min(weights) - total - 1, max(weights)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(0.0, w - middle) for w in weights) > total else (low, middle)
    return [max(0.0, w - low) for w in weights]


def too_many(n: int, most: int, margin: int, draw: int) -> bool:
    """Whether a window of n records is refused when the gate draws this: by the noisy number, and always past H."""
    return n + draw > most or n > most + margin


def too_many_probability(n: int, most: int, margin: int, variance: float) -> float:
    """Of a refusal, summed over the exact law of the draw."""
    pmf = gaussian_pmf(variance, int(12 * math.sqrt(variance)) + 20)
    if n > most + margin:
        return 1.0
    return sum(p for value, p in pmf.items() if too_many(n, most, margin, value))


def chosen_keys(salt: bytes, user: bytes, open_ms: int, keys, most: int) -> set[str]:
    """Keys of a window under which a user counts: those with the least keyed hash of user, window and key."""

    def order(key):
        data = user + open_ms.to_bytes(8, "big", signed=True) + key.encode()
        return hashlib.blake2b(data, digest_size=16, key=salt, person=b"keys of a user").digest()

    return set(sorted(keys, key=order)[:most])
