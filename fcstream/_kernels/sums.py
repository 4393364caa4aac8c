"""Sums, norms and histograms over tiles of lattice points (see `pairs` for the layout).

Coordinates are integers below 2**40 in size, so sums over one tile of 64 lanes are exact in float64 in any order; that
is why reassociation is allowed. Tile sums go on in int64.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

LANES = 64


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def masked_sum(tiles, lanes_used, mask, out):
    """Add the coordinates of the masked lanes to out (d,) int64. mask (lanes_used,) bool."""
    d = tiles.shape[1]
    weight = np.zeros(LANES, np.bool_)
    for t in range((lanes_used + LANES - 1) // LANES):
        tile = tiles[t]
        for j in range(LANES):
            g = t * LANES + j
            weight[j] = g < lanes_used and mask[g]
        for k in range(d):
            lane = tile[k]
            total = 0.0
            for j in range(LANES):
                total += lane[j] if weight[j] else 0.0
            out[k] += np.int64(total)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _tile_norms(tile, center, norms):
    """Squared distance of every lane of one tile from center, exact up to 2**53 and monotone above."""
    for j in range(LANES):
        norms[j] = 0.0
    for k in range(tile.shape[0]):
        c = center[k]
        lane = tile[k]
        for j in range(LANES):
            diff = lane[j] - c
            norms[j] += diff * diff


@njit(cache=True, nogil=True)
def masked_histogram(tiles, lanes_used, mask, center, bounds, out):
    """Count the masked lanes by squared distance from center: out[b] += 1 for the first b with norm <= bounds[b].

    bounds (bins,) float64 ascending integers; out (bins + 1,) int64, the last bin holds the rest.
    """
    norms = np.empty(LANES, np.float64)
    bins = len(bounds)
    for t in range((lanes_used + LANES - 1) // LANES):
        _tile_norms(tiles[t], center, norms)
        for j in range(min(LANES, lanes_used - t * LANES)):
            if mask[t * LANES + j]:
                low, high = 0, bins
                while low < high:
                    middle = (low + high) // 2
                    if norms[j] <= bounds[middle]:
                        high = middle
                    else:
                        low = middle + 1
                out[low] += 1


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_tile(tile, center, weight, out):
    for k in range(tile.shape[0]):
        c = center[k]
        lane = tile[k]
        total = 0.0
        for j in range(LANES):
            total += lane[j] - c if weight[j] else 0.0
        out[k] += np.int64(total)


@njit(cache=True, nogil=True)
def _clip(offsets, norm, radius_squared, clipped):
    """Integer vector with squared norm <= radius_squared on the ray of offsets: a pure function of its arguments."""
    factor = math.sqrt(radius_squared / norm)
    while True:
        check = 0.0
        for k in range(len(offsets)):
            v = float(math.trunc(offsets[k] * factor))
            clipped[k] = v
            check += v * v
        if check <= radius_squared:
            return
        factor *= 1.0 - 1e-15


@njit(cache=True, nogil=True)
def clipped_sum(tiles, lanes_used, mask, center, radius_squared, out):
    """Add the offsets from center of the masked lanes, each clipped to the ball, to out (d,) int64.

    Offsets beyond the ball are scaled onto it and truncated toward the center, then checked in integers, so every
    lane adds an integer vector of squared norm <= radius_squared. center (d,) float64 integers. Returns how many lanes
    were masked in.
    """
    d = tiles.shape[1]
    norms = np.empty(LANES, np.float64)
    inside = np.zeros(LANES, np.bool_)
    offsets = np.empty(d, np.float64)
    clipped = np.empty(d, np.float64)
    count = 0
    for t in range((lanes_used + LANES - 1) // LANES):
        tile = tiles[t]
        _tile_norms(tile, center, norms)
        for j in range(LANES):
            g = t * LANES + j
            wanted = g < lanes_used and mask[g]
            inside[j] = wanted and norms[j] <= radius_squared
            if wanted:
                count += 1
                if not inside[j]:
                    for k in range(d):
                        offsets[k] = tile[k, j] - center[k]
                    _clip(offsets, norms[j], radius_squared, clipped)
                    for k in range(d):
                        out[k] += np.int64(clipped[k])
        _add_tile(tile, center, inside, out)
    return count
