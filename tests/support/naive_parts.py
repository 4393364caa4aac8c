"""Slow, obvious twins of what follows a tree: each record is put to its nearest center, and every part is averaged or
learned from; whole numbers of Python, one record after another, the same draws in the same order.

The tree, k-means on its points and the fit of overlapping clusters are those of the package: the first has a twin of
its own (`support.naive_trees`), the others read released numbers alone.
"""

import math
from fractions import Fraction

import numpy as np

from fcstream.accounting.losses import PrivacyLoss
from fcstream.releases.clusters.overlaps import Mixture, overlapping
from fcstream.releases.trees.points import choose_k, k_means, weighted_points

from .naive_trees import variance_of
from .naive_zooming import clipped


def squared_distance(one, two):
    return sum((x - y) ** 2 for x, y in zip(one, two, strict=True))


def nearest(point, centers):
    """The number of the nearest center, the first of equals."""
    distances = [squared_distance(point, center) for center in centers]
    return distances.index(min(distances))


def found_parts(mechanism, rows, noise, started):
    """Centers within the box, whole numbers, and squares of radii, from a released tree; and that; None for too few."""
    tree, _ = mechanism.tree.release(np.array(rows, np.float64).reshape(-1, mechanism.box.dimension), noise, started)
    if tree is None:
        return None
    k = mechanism.k or choose_k(tree, noise)
    stand = weighted_points(tree, k)
    rough, _ = k_means(stand.places, stand.weights, k, noise)
    ends = list(zip(mechanism.box.low, mechanism.box.high, strict=True))
    centers = [[min(max(round(x), a), b) for x, (a, b) in zip(row, ends, strict=True)] for row in rough.tolist()]
    mine = [[] for _ in centers]
    for place, weight, spread in zip(
        stand.places.tolist(), stand.weights.tolist(), stand.spreads.tolist(), strict=True
    ):
        j = nearest(place, centers)
        mine[j].append((squared_distance(place, centers[j]) + spread, weight))
    squares = []
    for own in mine:
        own.sort(key=lambda pair: pair[0])
        whole, passed, reach = sum(weight for _, weight in own), 0.0, 0.0
        for square, weight in own:
            passed, reach = passed + weight, square
            if passed >= 0.99 * whole:
                break
        squares.append(min(max(1, math.ceil(1.3 * math.sqrt(reach))) ** 2, 2**53 - 1))
    return centers, squares, tree


def average(rows, center, square, sum_nano, count_nano, smallest, noise, start):
    """The mean of some records about a center, each clipped to its ball: value, deviations, noisy number."""
    slack = Fraction(10**9, 2 * count_nano)
    start(PrivacyLoss(count_nano))
    count = len(rows) + noise.discrete_gaussian(slack, 1).tolist()[0]
    if count < smallest:
        return None, None, count
    start(PrivacyLoss(sum_nano))
    moved = [clipped(row, center, square) for row in rows]
    variance = variance_of(square, sum_nano)
    drawn = noise.discrete_gaussian(variance, len(center)).tolist()
    offsets = [(sum(row[c] for row in moved) + z) / count for c, z in enumerate(drawn)]
    wide = [math.hypot(math.sqrt(variance), x * math.sqrt(slack)) / count for x in offsets]
    return [c + x for c, x in zip(center, offsets, strict=True)], wide, count


class EachOnce:
    """What parts start together: a stage is paid when the first of them comes to it."""

    def __init__(self, started):
        self.started, self.most, self.own = started, 0, 0

    def part(self):
        self.own = 0
        return self

    def __call__(self, loss):
        self.own += 1
        if self.own > self.most:
            self.most = self.own
            self.started(loss)


def kept(mechanism, rows):
    ball = mechanism.ball
    return [row for row in rows if ball is None or squared_distance(row, ball.center) <= ball.squared]


def clamped(mechanism, row):
    return [min(max(x, a), b) for x, a, b in zip(row, mechanism.box.low, mechanism.box.high, strict=True)]


def centers_of(mechanism, rows, noise, started):
    """What `TreeClustering` finds: centers, deviations and counts, ascending by center; None for too few records."""
    rows = kept(mechanism, rows)
    found = found_parts(mechanism, rows, noise, started)
    if found is None:
        return None
    centers, squares, _ = found
    left = mechanism.rho_nano - mechanism.tree.loss.rho_nano
    counts = int(left * 0.2)
    mine = [[] for _ in centers]
    for row in rows:  # those beyond the box are moved to its border
        moved = clamped(mechanism, row)
        mine[nearest(moved, centers)].append(moved)
    begin, told = EachOnce(started), []
    for own, center, square in zip(mine, centers, squares, strict=True):
        value, wide, count = average(
            own, center, square, left - counts, counts, mechanism.average.smallest, noise, begin.part()
        )
        told.append((center, [math.nan] * len(center), count) if value is None else (value, wide, count))
    return sorted(told, key=lambda each: each[0])


def learned(mechanism, rows, center, square, noise, start):
    """What is told of one part: number, mean, deviations (None for too few), covariance, deviations of its entries."""
    d, left = len(center), mechanism.rho_nano - mechanism.tree.loss.rho_nano
    third = left // 3
    counts = int(third / (1 + math.sqrt(d)))
    mean, wide, count = average(rows, center, square, third - counts, counts, mechanism.average.smallest, noise, start)
    if mean is None:
        return count, center, None, np.zeros((d, d)), np.zeros((d, d))
    start(PrivacyLoss(left - third))
    shift = 0
    while square.bit_length() - 2 * shift > 32:
        shift += 1
    ball = math.ceil(Fraction(square, 4**shift))
    variance = variance_of(ball * ball, left - third)
    moved = []
    for row in rows:
        exact = [x - c for x, c in zip(row, center, strict=True)]
        norm, factor = sum(x * x for x in exact), 1.0
        if norm > square:
            factor = math.sqrt(square / norm) * (1.0 - 4e-15)
        while True:
            short = [math.trunc(x * factor / 2**shift) for x in exact]
            if sum(x * x for x in short) * 4**shift <= square:
                break
            factor *= 1.0 - 1e-15
        moved.append(short)
    squares, pairs = noise.discrete_gaussian(variance, d), iter(noise.discrete_gaussian(variance / 2, d * (d - 1) // 2))
    second, deviations = np.zeros((d, d)), np.zeros((d, d))
    for i in range(d):
        for j in range(i + 1):
            drawn = int(squares[i] if i == j else next(pairs))
            told = float(sum(row[i] * row[j] for row in moved) + drawn) * (4.0**shift / count)
            second[i, j] = second[j, i] = told
            own = math.sqrt(variance if i == j else variance / 2) * 4.0**shift / count
            deviations[i, j] = deviations[j, i] = own
    offset = np.array(mean) - np.array(center)
    values, vectors = np.linalg.eigh(second - np.outer(offset, offset))
    return count, mean, wide, (vectors * np.maximum(values, 0.0)) @ vectors.T, deviations


def mixture_of(mechanism, rows, noise, started):
    """What `TreeMixture` finds: numbers, means, their deviations, covariances and theirs, ascending; the weights, if
    they were fitted; None for too few records.
    """
    found = found_parts(mechanism, kept(mechanism, rows), noise, started)
    if found is None:
        return None
    centers, squares, tree = found
    mine = [[] for _ in centers]
    for row in kept(mechanism, rows):
        mine[nearest(row, centers)].append(row)
    begin = EachOnce(started)
    told = [
        learned(mechanism, own, center, square, noise, begin.part())
        for own, center, square in zip(mine, centers, squares, strict=True)
    ]
    if all(part[2] is None for part in told):
        return None
    d = mechanism.box.dimension
    fitted = None
    if all(part[2] is not None for part in told):
        positive = np.maximum([part[0] for part in told], 0).astype(float)
        means, covariances = np.array([part[1] for part in told]), np.array([part[3] for part in told])
        parts = Mixture(positive / positive.sum(), means, covariances)
        fitted = overlapping(tree, np.array(centers, float), parts, noise)
    if fitted is not None:
        nothing = np.full(d, math.nan), np.full((d, d), math.nan)
        told = [
            (part[0], mean.tolist(), nothing[0], covariance, nothing[1])
            for part, mean, covariance in zip(told, fitted.means, fitted.covariances, strict=True)
        ]
    order = sorted(range(len(told)), key=lambda j: told[j][1])
    return [told[j] for j in order], None if fitted is None else fitted.weights[order]
