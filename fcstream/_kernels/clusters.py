"""Tuples and clusters of lattice points: separations, numbering, balls, and nearest centers.

Each result depends on the one tuple, pair or point that it is about, and on nothing beside it in an array, to the last
bit: loops are plain, in a fixed order, without fast math. Coordinates are integers held as float64; squared distances
are exact below 2**53 and monotone above.
"""

from __future__ import annotations

import numpy as np

from . import kernel

LANES = 32


@kernel
def _squared(a, b):
    total = 0.0
    for c in range(len(a)):
        diff = a[c] - b[c]
        total += diff * diff
    return total


@kernel
def within(offsets, ball2, out):
    """Fill out (n,) bool: which offsets (n, d) have a squared length of at most ball2."""
    for i in range(len(offsets)):
        total = 0.0
        for c in range(offsets.shape[1]):
            total += offsets[i, c] * offsets[i, c]
        out[i] = total <= ball2


@kernel
def separations(tuples, out):
    """Fill out (t,) with the smallest squared distance between points of each tuple (t, k, d), infinite for k = 1."""
    for i in range(len(tuples)):
        out[i] = np.inf
        for a in range(tuples.shape[1]):
            for b in range(a):
                out[i] = min(out[i], _squared(tuples[i, a], tuples[i, b]))


@kernel
def isolations(tuples, out):
    """Fill out (t, k) with the squared distance of every point of a tuple (t, k, d) from the nearest other one."""
    for i in range(len(tuples)):
        for a in range(tuples.shape[1]):
            out[i, a] = np.inf
        for a in range(tuples.shape[1]):
            for b in range(a):
                found = _squared(tuples[i, a], tuples[i, b])
                out[i, a], out[i, b] = min(out[i, a], found), min(out[i, b], found)


@kernel
def nearest(point, centers):
    """Return the index of the nearest center (k, d); of several equally near ones, the first."""
    best, index = np.inf, 0
    for j in range(len(centers)):
        found = _squared(point, centers[j])
        if found < best:
            best, index = found, j
    return index


@kernel
def number(pivot, tuples, out):
    """Order the points of tuples (t, k, d) as those of pivot (k, d), each by its nearest pivot point: out (t, k, d).

    A tuple in which two points are nearest to the same pivot point is copied unchanged.
    """
    k = len(pivot)
    place = np.empty(k, np.int64)
    for i in range(len(tuples)):
        taken, clear = np.zeros(k, np.bool_), True
        for j in range(k):
            place[j] = nearest(tuples[i, j], pivot)
            clear = clear and not taken[place[j]]
            taken[place[j]] = True
        for j in range(k):
            out[i, place[j] if clear else j] = tuples[i, j]


@kernel
def partitioned(centers, radii2, tuples, out):
    """Fill out (t,) bool: which tuples (t, k, d) have exactly one point in each ball around centers (k, d)."""
    k = len(centers)
    for i in range(len(tuples)):
        out[i] = True
        for a in range(k):
            inside = 0
            for b in range(k):
                inside += _squared(centers[a], tuples[i, b]) <= radii2[a]
            if inside != 1:
                out[i] = False
                break


@kernel
def label(tiles, lanes_used, mask, origin, ball2, centers, labels):
    """Fill labels with the nearest center (k, d) of each masked lane within a ball around origin (d,), -1 for all
    others.

    tiles (tiles, d, LANES), mask and labels (lanes_used,).
    """
    d, k = tiles.shape[1], len(centers)
    norms, best = np.empty(LANES, np.float64), np.empty(LANES, np.float64)
    for t in range((lanes_used + LANES - 1) // LANES):
        first, tile = t * LANES, tiles[t]
        used = min(LANES, lanes_used - first)
        found = labels[first : first + used]
        for lane in range(LANES):
            best[lane] = np.inf
        for j in range(-1, k):
            around = origin if j < 0 else centers[j]
            for lane in range(LANES):
                norms[lane] = 0.0
            for c in range(d):
                x = around[c]
                for lane in range(LANES):
                    diff = tile[c, lane] - x
                    norms[lane] += diff * diff
            for lane in range(used):
                if j < 0:
                    found[lane] = 0 if mask[first + lane] and norms[lane] <= ball2 else -1
                elif found[lane] >= 0 and norms[lane] < best[lane]:
                    best[lane] = norms[lane]
                    found[lane] = j


@kernel
def cut(tuples, centers, out):
    """Fill out (t, k) with the nearest center (k, d) of every point of tuples (t, k, d), as `nearest` chooses it."""
    for i in range(len(tuples)):
        for j in range(tuples.shape[1]):
            out[i, j] = nearest(tuples[i, j], centers)


@kernel
def clip(offsets, ball2, shift, out):
    """Clip offsets (n, d) to a ball, divide them by 2**shift and truncate toward 0: out (n, d) int64.

    Checked in integers: the squared length of a row times 4**shift is at most ball2, below 2**53.
    """
    unit = 2.0**-shift
    for i in range(len(offsets)):
        norm = 0.0
        for c in range(offsets.shape[1]):
            norm += offsets[i, c] * offsets[i, c]
        factor = 1.0 if norm <= ball2 else np.sqrt(ball2 / norm) * (1.0 - 4e-15)
        while True:
            check = 0.0
            for c in range(offsets.shape[1]):
                value = np.trunc(offsets[i, c] * factor * unit)
                out[i, c] = np.int64(value)
                check += value * value
            if check <= ball2 * unit * unit:
                break
            factor *= 1.0 - 1e-15
