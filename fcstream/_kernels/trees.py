"""Trees of boxes: points move down a level, are summed up within their boxes, and serve weighted k-means.

Sums are of integers, so they do not depend on the order of the points. Each point's way depends on that point and on
released numbers alone.
"""

from __future__ import annotations

import numpy as np

from . import kernel
from .clusters import nearest


@kernel
def clamp(points, low, high):
    """Move points (n, d) into the box from low to high (d,), both included, in place."""
    for i in range(len(points)):
        for c in range(points.shape[1]):
            points[i, c] = min(max(points[i, c], low[c]), high[c])


@kernel
def moments(points, low, high, bits, sums, squares):
    """Add up places in the box, from -2**bits to 2**bits, truncated toward 0, and their squares over 2**bits: (d,)."""
    for c in range(points.shape[1]):
        width = max(1, high[c] - low[c])
        for i in range(len(points)):
            twice = 2 * np.int64(points[i, c]) - low[c] - high[c]
            place = (abs(twice) << bits) // width
            sums[c] += place if twice >= 0 else -place
            squares[c] += (place * place) >> bits


@kernel
def descend(points, nodes, features, middles, children, first, counts):
    """Move each point of a split node to the child that holds it, in nodes (n,), and count the points of the children.

    A node v is split where features[v] >= 0, into children[v] up to middles[v] and the next one above it. counts begin
    with the child `first`.
    """
    for i in range(len(points)):
        node = np.uint64(nodes[i])  # an index without a sign is not looked at for being one from the end
        feature = features[node]
        if feature >= 0:
            child = children[node] + (points[i, np.uint64(feature)] > middles[node])
            nodes[i] = child
            counts[np.uint64(child - first)] += 1


@kernel
def box_sums(points, nodes, leaves, centers, shifts, sums, sizes):
    """Add up, for each leaf, offsets from its center in units of 2**shift, truncated toward 0, and count its points.

    leaves holds the leaf of each node, or -1.
    """
    for i in range(len(points)):
        found = leaves[np.uint64(nodes[i])]
        if found >= 0:
            leaf = np.uint64(found)
            sizes[leaf] += 1
            for c in range(points.shape[1]):
                offset = np.int64(points[i, c]) - centers[leaf, c]
                below = offset >> np.int64(63)  # -1 for a negative offset, whose size is shifted as the others' are
                sums[leaf, c] += (((offset ^ below) - below) >> shifts[leaf] ^ below) - below


@kernel
def part_sums(points, centers, radii2, sums, sizes):
    """Add up, for each center (k, d), the offsets of the points nearest to it, and count them: (k, d), (k,).

    Offsets are clipped to the center's ball, truncated toward it and checked: the squared length is at most radii2[j],
    below 2**53.
    """
    clipped = np.empty(points.shape[1], np.float64)
    for i in range(len(points)):
        j = nearest(points[i], centers)
        norm = 0.0
        for c in range(points.shape[1]):
            offset = points[i, c] - centers[j, c]
            norm += offset * offset
        factor = 1.0 if norm <= radii2[j] else np.sqrt(radii2[j] / norm) * (1.0 - 4e-15)
        while True:
            check = 0.0
            for c in range(points.shape[1]):
                clipped[c] = np.trunc((points[i, c] - centers[j, c]) * factor)
                check += clipped[c] * clipped[c]
            if check <= radii2[j]:
                break
            factor *= 1.0 - 1e-15
        sizes[j] += 1
        for c in range(points.shape[1]):
            sums[j, c] += np.int64(clipped[c])


@kernel
def seed(points, weights, uniforms, tries, centers):
    """Choose centers (k, d) among points (m, d), each the best of some tries with odds weight times squared distance.

    uniforms (k, tries) are in [0, 1).
    """
    m, d = points.shape
    near, trial, best = np.full(m, np.inf), np.empty(m), np.empty(m)
    for j in range(len(centers)):
        total = 0.0
        for i in range(m):
            total += weights[i] * (1.0 if j == 0 else near[i])
        lowest = np.inf
        for t in range(1 if j == 0 else tries):
            passed, chosen = uniforms[j, t] * total, m - 1
            for i in range(m):
                passed -= weights[i] * (1.0 if j == 0 else near[i])
                if passed < 0:
                    chosen = i
                    break
            cost = 0.0
            for i in range(m):
                distance = 0.0
                for c in range(d):
                    distance += (points[i, c] - points[chosen, c]) ** 2
                trial[i] = min(near[i], distance)
                cost += weights[i] * trial[i]
            if cost < lowest:
                lowest = cost
                best[:] = trial
                centers[j] = points[chosen]
        near[:] = best


@kernel
def rounds(points, weights, centers, most):
    """Improve centers (k, d) in place by weighted Lloyd rounds, `most` of them at most; returns the cost before the
    last.
    """
    m, d = points.shape
    k = len(centers)
    sums, mass, cost = np.empty((k, d)), np.empty(k), np.inf
    for _ in range(most):
        sums[:] = 0.0
        mass[:] = 0.0
        total = 0.0
        for i in range(m):
            lowest, j = np.inf, 0
            for b in range(k):
                distance = 0.0
                for c in range(d):
                    distance += (points[i, c] - centers[b, c]) ** 2
                if distance < lowest:
                    lowest, j = distance, b
            total += weights[i] * lowest
            mass[j] += weights[i]
            for c in range(d):
                sums[j, c] += weights[i] * points[i, c]
        for b in range(k):
            if mass[b] > 0:
                centers[b] = sums[b] / mass[b]
        done = total >= cost * (1.0 - 1e-9)
        cost = total
        if done:
            break
    return cost


@kernel
def distances(points, centers, labels, out):
    """Fill labels (m,) with the nearest center of each point, and out (m,) with its squared distance."""
    for i in range(len(points)):
        labels[i] = nearest(points[i], centers)
        out[i] = 0.0
        for c in range(points.shape[1]):
            out[i] += (points[i, c] - centers[labels[i], c]) ** 2
