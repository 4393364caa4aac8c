"""Pair counting on tiles of lattice points.

A tile array has shape (tiles, d, LANES): one point per lane, coordinates are integers held as float64, unused lanes
hold +inf. All coordinate differences and the squared radius are below 2**53, so a sum of squares is exact up to
2**53 and monotone above it, whatever the order and with or without fused multiply-add: ``sum <= radius2`` is the
exact integer predicate. That is the only reason why contraction is allowed here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LANES = 64


@njit(cache=True, nogil=True, fastmath={"contract"})
def count_across(rows, tiles, lanes_used, radius2, row_counts, lane_counts):
    """Compare every row with every lane; add hits to both sides.

    rows (m, d) float64; tiles (t, d, LANES) float64; row_counts (m,) int32; lane_counts (t * LANES,) int32.
    """
    m, d = rows.shape
    n_tiles = (lanes_used + LANES - 1) // LANES
    sums = np.empty(LANES, np.float64)
    for t in range(n_tiles):
        tile = tiles[t]
        lane_hits = lane_counts[t * LANES : (t + 1) * LANES]
        for i in range(m):
            row = rows[i]
            x = row[0]
            lane = tile[0]
            for j in range(LANES):
                diff = lane[j] - x
                sums[j] = diff * diff
            for k in range(1, d):
                x = row[k]
                lane = tile[k]
                for j in range(LANES):
                    diff = lane[j] - x
                    sums[j] += diff * diff
            hits = np.int32(0)
            for j in range(LANES):
                hit = np.int32(sums[j] <= radius2)
                lane_hits[j] += hit
                hits += hit
            row_counts[i] += hits


@njit(cache=True, nogil=True, fastmath={"contract"})
def count_within(tiles, first, lanes_used, radius2, lane_counts):
    """Compare every point `first` <= g < `lanes_used` of a tile array with all points before it and with itself.

    Each unordered pair is decided once; lane_counts (t * LANES,) int32 is added to on both sides.
    """
    d = tiles.shape[1]
    sums = np.empty(LANES, np.float64)
    row = np.empty(d, np.float64)
    for g in range(first, lanes_used):
        for k in range(d):
            row[k] = tiles[g // LANES, k, g % LANES]
        own = np.int32(1)  # a point is its own friend
        for t in range(g // LANES + 1):
            tile = tiles[t]
            lane_hits = lane_counts[t * LANES : (t + 1) * LANES]
            x = row[0]
            lane = tile[0]
            for j in range(LANES):
                diff = lane[j] - x
                sums[j] = diff * diff
            for k in range(1, d):
                x = row[k]
                lane = tile[k]
                for j in range(LANES):
                    diff = lane[j] - x
                    sums[j] += diff * diff
            before = g - t * LANES
            if before >= LANES:
                hits = np.int32(0)
                for j in range(LANES):
                    hit = np.int32(sums[j] <= radius2)
                    lane_hits[j] += hit
                    hits += hit
                own += hits
            else:
                for j in range(before):
                    hit = np.int32(sums[j] <= radius2)
                    lane_hits[j] += hit
                    own += hit
        lane_counts[g] += own


@njit(cache=True, nogil=True)
def store_rows(rows, tiles, first):
    """Copy rows (m, d) into the lanes `first`, `first` + 1, ... of a tile array."""
    m, d = rows.shape
    for i in range(m):
        g = first + i
        for k in range(d):
            tiles[g // LANES, k, g % LANES] = rows[i, k]


@njit(cache=True, nogil=True)
def load_rows(tiles, lanes_used, rows):
    """Copy the first `lanes_used` lanes into rows (lanes_used, d)."""
    d = rows.shape[1]
    for g in range(lanes_used):
        for k in range(d):
            rows[g, k] = tiles[g // LANES, k, g % LANES]
