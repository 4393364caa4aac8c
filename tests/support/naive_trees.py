"""Slow, obvious twin of trees: whole numbers and fractions of Python, every box looked at, draws in the same order."""

import math
from fractions import Fraction

import numpy as np


def inside(point, low, high):
    return all(a <= x <= b for x, a, b in zip(point, low, high, strict=True))


def toward_zero(x, y):
    return abs(x) // y * (1 if x >= 0 else -1)


def variance_of(squared, rho_nano):
    """squared / (2 rho), rounded up to 1/1024."""
    return Fraction(math.ceil(Fraction(squared * 10**9 * 1024, 2 * rho_nano)), 1024)


def grow(points, low, high, count_nano, point_nano, noise, asked=6.0, kept=2.5):
    """The nodes of a tree as (low, high, noisy count, parent), and of its leaves the boxes, counts and sums of offsets
    with noise, in units of 2**shift.
    """
    d = len(low)
    depth = min(48, max(16, 8 * d))
    moments = count_nano // 8 if d > 8 else 0
    level_nano = (count_nano - moments) // (depth + 1)
    variance = Fraction(10**9, 2 * level_nano)
    draw = lambda size: noise.discrete_gaussian(variance, size).tolist()  # noqa: E731
    rows = [[min(max(int(x), a), b) for x, a, b in zip(p, low, high, strict=True)] for p in points]
    root = len(rows) + draw(1)[0]
    deviations, least = [1.0] * d, 0.0
    if moments:
        places = [
            [toward_zero((2 * x - a - b) * 2**20, b - a) for x, a, b in zip(p, low, high, strict=True)] for p in rows
        ]
        wide = variance_of(d * 4**20, moments // 2)
        sums = [sum(p[j] for p in places) + z for j, z in enumerate(noise.discrete_gaussian(wide, d).tolist())]
        squares = [
            sum(p[j] ** 2 >> 20 for p in places) + z for j, z in enumerate(noise.discrete_gaussian(wide, d).tolist())
        ]
        unit = root * 2.0**20
        means = [min(max(s / unit, -1.0), 1.0) for s in sums]
        halves = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
        deviations = [
            half * math.sqrt(min(1.0, max(q / unit - mean**2, min(1.0, math.sqrt(wide) / unit))))
            for mean, q, half in zip(means, squares, halves, strict=True)
        ]
        middles = [(a + b) / 2 + half * mean for a, b, half, mean in zip(low, high, halves, means, strict=True)]
        low = [max(a, math.floor(m - 3 * e)) for a, m, e in zip(low, middles, deviations, strict=True)]
        high = [min(b, math.ceil(m + 3 * e)) for b, m, e in zip(high, middles, deviations, strict=True)]
        rows = [[min(max(x, a), b) for x, a, b in zip(p, low, high, strict=True)] for p in rows]
        apart = sum(b - a for a, b in zip(low, high, strict=True)) / 2 / math.sqrt(point_nano / 10**9)
        least = 2 * apart / math.sqrt(sum(e * e for e in deviations))
    scales = [e / (b - a + 1) for e, a, b in zip(deviations, low, high, strict=True)]
    enough = max(asked * math.sqrt(variance), least)
    nodes, level, leaves = [(low, high, root, -1)], [0], []
    for deep in range(depth + 1):
        split = []
        for v in level:
            a, b, count, _ = nodes[v]
            if deep < depth and a != b and (v == 0 or count > enough):
                split.append(v)
            elif count > kept * math.sqrt(variance):
                leaves.append((v, deep + 1))
        level = []
        for v in split:
            a, b, _, _ = nodes[v]
            sides = [(y - x + 1) * s if y > x else -1.0 for x, y, s in zip(a, b, scales, strict=True)]
            j = sides.index(max(sides))
            middle = (a[j] + b[j]) // 2
            for x, y in ((a, [*b[:j], middle, *b[j + 1 :]]), ([*a[:j], middle + 1, *a[j + 1 :]], b)):
                level.append(len(nodes))
                nodes.append((x, y, sum(inside(p, x, y) for p in rows), v))
        if not level:
            break
        for v, z in zip(level, draw(len(level)), strict=True):
            nodes[v] = (*nodes[v][:2], nodes[v][2] + z, nodes[v][3])
        for first in level[::2]:
            if all(nodes[v][2] <= kept * math.sqrt(variance) for v in (first, first + 1)):
                leaves.append((nodes[first][3], deep + 2))
    return nodes, [(v, told(rows, *nodes[v][:2], point_nano + (depth + 1 - spent) * level_nano)) for v, spent in leaves]


def told(rows, low, high, rho_nano):
    """What a leaf's point is made of, without noise: rho of the count and of the sums, squares, sums, the count."""
    mine = [p for p in rows if inside(p, low, high)]
    center = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
    reach, shift = [b - c for b, c in zip(high, center, strict=True)], 0
    while max(reach) >> shift >= 2**26:
        shift += 1
    sums = [sum(toward_zero(p[j] - c, 2**shift) for p in mine) for j, c in enumerate(center)]
    reach = [h >> shift for h in reach]
    return rho_nano // 2, rho_nano - rho_nano // 2, [h * sum(reach) for h in reach], sums, len(mine), center, shift


def points_of(leaves, noise):
    """Noisy sums of offsets and counts of each leaf: draws go by sensitivity and share, the smallest first."""

    def drawn(squares, shares):
        found = [0] * len(squares)
        for square, share in sorted(set(zip(squares, shares, strict=True))):
            if square:
                at = [i for i in range(len(squares)) if (squares[i], shares[i]) == (square, share)]
                for i, z in zip(at, noise.discrete_gaussian(variance_of(square, share), len(at)).tolist(), strict=True):
                    found[i] = z
        return found

    squares = [s for _, own in leaves for s in own[2]]
    exact = [s for _, own in leaves for s in own[3]]
    sums = np.add(exact, drawn(squares, [own[1] for _, own in leaves for _ in own[2]]))
    counts = np.add([own[4] for _, own in leaves], drawn([1] * len(leaves), [own[0] for _, own in leaves]))
    return sums.reshape(len(leaves), -1), counts


def agreed(nodes, variances, counts):
    """Least squares over all nodes at once: what each is, if a node is the sum of the nodes without children in it."""
    ends = [v for v in range(len(nodes)) if all(other[3] != v for other in nodes)]
    design = np.zeros((len(nodes), len(ends)))
    for column, v in enumerate(ends):
        while v >= 0:
            design[v, column] = 1.0
            v = nodes[v][3]
    weights = 1 / np.sqrt(np.array(variances, float))
    solved = np.linalg.lstsq(design * weights[:, None], np.array(counts, float) * weights, rcond=None)[0]
    covariance = np.linalg.inv((design * weights[:, None]).T @ (design * weights[:, None]))
    return design @ solved, ends, covariance


def noise_of_a_center(rho_nano, low, high, k, size, width):
    """The deviation that `tree_noise` predicts: boxes are halved one after the other, the longest side first."""
    d = len(low)
    depth = min(48, max(16, 8 * d))
    count_nano = int(rho_nano * 0.42)
    moments = count_nano // 8 if d > 8 else 0
    sigma = math.sqrt(variance_of(1, (count_nano - moments) // (depth + 1)))
    share, cuts = max(1.0, size / k), depth if d <= 8 else depth // 2
    if share <= 6 * sigma:
        records, possible = float(size), 0
        while records / 2 >= 6 * sigma:
            records, possible = records / 2, possible + 1
        cuts = min(cuts, possible)
    parts = [Fraction(1)] * d  # of the public ranges
    for _ in range(cuts):
        parts[parts.index(max(parts))] /= 2
    squared = sum(((b - a) * part) ** 2 for a, b, part in zip(low, high, parts, strict=True))
    radius = 1.3 * math.sqrt(width**2 + float(squared) / 12)
    left = rho_nano - count_nano - int(rho_nano * 0.18)
    return radius * math.sqrt(10**9 / (2 * (left - int(0.2 * left)))) / share


def rows_of(tree, rows, noise):
    """Rows drawn from a released tree: leaves one after the other as they lie, then feature by feature."""

    def below(v):
        if v in leaves:
            yield leaves.index(v)
            return
        for child in (u for u in range(len(tree.parents)) if tree.parents[u] == v):
            yield from below(child)

    leaves = tree.leaves.tolist()
    order = list(below(0))
    passed, total = [], 0.0
    for i in order:
        total += max(tree.weights[i], 1e-9)
        passed.append(total)
    start = noise.uniforms(1)[0]
    d = tree.points.shape[1]
    coins = noise.uniforms(2 * rows * d)
    made = []
    for r in range(rows):
        place = (r + start) / rows * total
        i = next((i for i, end in zip(order, passed, strict=True) if place < end), order[-1])
        row = []
        for j in range(d):
            mean, reach = tree.points[i, j], math.sqrt(3) * tree.deviations[j]
            low, high = max(tree.low[i, j] - 0.5, mean - reach), min(tree.high[i, j] + 0.5, mean + reach)
            end = low if coins[r * d + j] * (high - low) < high - mean else high
            x = round(mean + coins[rows * d + r * d + j] * (end - mean))
            row.append(min(max(x, tree.low[i, j]), tree.high[i, j]))
        made.append(row)
    return made
