"""Means and scatter matrices of shards, updated one point after the other; rows that are scaled and clipped to a ball.

A shard's numbers depend on its own points and their order alone, to the last bit: not on other shards' points, nor on
how points were batched. There is no fast math, and each operation rounds once.
"""

from __future__ import annotations

import numpy as np

from . import kernel


@kernel
def add_points(points, shards, sizes, means, scatters):
    """Add points (m, d) to shards (m,): sizes (t,) int64, means (t, d), scatters (t, d, d), lower triangles only.

    Welford's update: scatter += (x - mean before) (x - mean after)^T.
    """
    d = points.shape[1]
    for i in range(len(points)):
        s = shards[i]
        sizes[s] += 1
        n = float(sizes[s])
        mean, scatter = means[s], scatters[s]
        for k in range(d):
            # Both factors of row k and of column k come from the same two numbers, so the matrix is symmetric.
            before = points[i, k] - mean[k]
            share = before * ((n - 1.0) / n)
            for j in range(k):
                scatter[k, j] += share * (points[i, j] - mean[j])
            scatter[k, k] += share * before
        for k in range(d):
            mean[k] += (points[i, k] - mean[k]) / n


@kernel
def scale_rows(rows, middles, factors, norms):
    """Replace rows (n, d) by their offsets from middles (d,), times factors (d,), rounded.

    norms (n,) gets their squared norms. Each number is a function of its own row: two roundings an entry, and a sum in
    one order.
    """
    for i in range(len(rows)):
        norm = 0.0
        for j in range(rows.shape[1]):
            value = np.rint((rows[i, j] - middles[j]) * factors[j])
            rows[i, j] = value
            norm += value * value
        norms[i] = norm


@kernel
def count_rungs(values, exponents, rungs, starts, counts):
    """Count for each rung, ascending, the values (n,) float64 that it is the first to reach; the last takes the rest.

    exponents (n,) int64 are the values' exponents and first three bits, 0 for 1.0: that part of the values lies in is
    reached by no rung before starts[part] (parts,).
    """
    last = len(rungs) - 1
    for i in range(len(values)):
        at = starts[min(max(exponents[i], 0), len(starts) - 1)]
        while at < last and rungs[at] < values[i]:
            at += 1
        counts[at] += 1


@kernel
def add_rows(rows, sums):
    """Add rows (n, d) to sums (d,)."""
    for i in range(len(rows)):
        for k in range(rows.shape[1]):
            sums[k] += rows[i, k]


@kernel
def clip_rows(rows, norms, radius_squared, unit, limit):
    """Replace integer rows (n, d) by numbers of units (a power of two) in the ball: integers of squared norm <= limit.

    Rows beyond the ball are scaled onto it; everything is truncated toward zero, then checked in exact integers, so
    each row becomes a function of itself. limit = floor(radius_squared / unit**2), below 2**53. Returns how many rows
    were beyond the ball.
    """
    outside = 0
    for i in range(len(rows)):
        factor = 1.0 / unit
        if norms[i] > radius_squared:
            outside += 1
            factor *= np.sqrt(radius_squared / norms[i])
        check = limit + 1.0
        while check > limit:  # seldom twice: rounding left the ball, so that the row shrinks once more
            check = 0.0
            for j in range(rows.shape[1]):
                value = np.trunc(rows[i, j] * factor)
                check += value * value
            if check > limit:
                factor *= 1.0 - 1e-13
        for j in range(rows.shape[1]):
            rows[i, j] = np.trunc(rows[i, j] * factor)
    return outside
