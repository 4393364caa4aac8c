"""Means and scatter matrices of shards, updated one point after the other.

A shard's numbers depend on its own points and their order alone, to the last bit: not on other shards' points, nor on
how points were batched. There is no fast math, and each operation rounds once.
"""

from __future__ import annotations

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
