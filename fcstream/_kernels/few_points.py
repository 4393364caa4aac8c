"""Pair counting for windows of so few points that every pair is compared as it is."""

from __future__ import annotations

import numpy as np

from . import kernel
from .blocks import LANES, count_exactly


@kernel
def count(points, radius2, tiles, counts, scratch):
    """Put points (n, d) into tiles (t, d, LANES), and count each one's friends, itself included: counts (n,) int64.

    With a radius2 of 0 they are not counted. Free lanes get +inf. `scratch` (2, (t + 1) LANES) int32 holds zeros.
    """
    n, d = points.shape
    row_counts, lane_counts, last = scratch[0], scratch[1], len(tiles)
    for t in range(last):
        first = t * LANES
        used = min(LANES, n - first)
        tile = tiles[t]
        for k in range(d):
            for j in range(used):
                tile[k, j] = points[first + j, k]
            for j in range(used, LANES):
                tile[k, j] = np.inf
        if radius2 > 0.0:
            start, stop, target = 0 * t, first, t
            for _ in range(2):  # earlier points both ways, own ones one way: no points have the last tile's lanes
                count_exactly(points, start, stop, tiles, t, radius2, row_counts, lane_counts, target)
                start, stop, target = first, first + used, last
    for i in range(len(counts)):
        counts[i] = row_counts[i] + lane_counts[i]
