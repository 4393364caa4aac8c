"""Pair counting for windows of so few points that every pair is compared as it is."""

from __future__ import annotations

import numpy as np

from . import kernel
from .blocks import LANES, count_exactly


@kernel
def count(points, radius2, tiles, counts):
    """Put points (n, d) into tiles (t, d, LANES), and count each one's friends, itself included: counts (n,) int64.

    With a radius2 of 0 they are not counted. Free lanes get +inf.
    """
    n, d = points.shape
    row_counts = np.zeros(n, np.int32)
    lane_counts, unused = np.zeros(len(tiles) * LANES, np.int32), np.zeros(LANES, np.int32)
    for t in range(len(tiles)):
        first = t * LANES
        used = min(LANES, n - first)
        tile = tiles[t]
        for k in range(d):
            for j in range(used):
                tile[k, j] = points[first + j, k]
            for j in range(used, LANES):
                tile[k, j] = np.inf
        if radius2 > 0.0:
            count_exactly(points, 0, first, tiles, t, radius2, row_counts, lane_counts, t)
            count_exactly(points, first, first + used, tiles, t, radius2, row_counts, unused, 0)
    for i in range(len(counts)):
        counts[i] = row_counts[i] + lane_counts[i]
