"""Sums, norms and histograms over tiles of lattice points (see `pairs` for the layout).

Coordinates are integers below 2**40 in size, so sums over one tile of 32 lanes are exact in float64 in any order, which
is why reassociation is allowed. Sums of tiles are added in int64; callers add up no more of them than
`totals.rows_within` allows.

`mix_rows` adds up rows of plain integers.
"""

from __future__ import annotations

import math

import numpy as np

from . import kernel

LANES = 32
_FEW = 8  # lanes of a tile beyond a ball that are clipped one by one: more of them are faster all together


@kernel
def _tile_weights(t, lanes_used, mask, weight):
    """Fill weight with 1.0 for the masked lanes of tile t, else 0.0; returns how many lanes are masked."""
    wanted = 0
    for j in range(LANES):
        g = t * LANES + j
        inside = g < lanes_used and mask[g]
        weight[j] = 1.0 if inside else 0.0
        wanted += inside
    return wanted


@kernel(fastmath={"reassoc"})
def _add_offsets(tile, center, weight, wanted, out):
    """Add the offsets of the `wanted` lanes with a weight, none of them clipped; exact: integers below 2**42."""
    if wanted == 0:
        return
    for k in range(tile.shape[0]):
        c = center[k]
        lane = tile[k]
        total = 0.0
        if wanted == LANES:
            for j in range(LANES):
                total += lane[j] - c
        else:
            for j in range(LANES):
                offset = lane[j] - c
                total += offset if weight[j] != 0.0 else 0.0
        out[k] += np.int64(total)


@kernel(fastmath={"reassoc", "contract"})
def masked_sum(tiles, lanes_used, mask, out):
    """Add the coordinates of the masked lanes to out (d,) int64. mask (lanes_used,) bool."""
    zero, weight = np.zeros(tiles.shape[1], np.float64), np.empty(LANES, np.float64)
    for t in range((lanes_used + LANES - 1) // LANES):
        _add_offsets(tiles[t], zero, weight, _tile_weights(t, lanes_used, mask, weight), out)


@kernel(fastmath={"contract"})
def _tile_norms(tile, center, norms):
    """Compute the squared distance of every lane of one tile from center, exact up to 2**53 and monotone above."""
    for j in range(0, LANES, 8):  # eight sums are as many as stay in registers
        a = b = c = d = e = f = g = h = 0.0
        for k in range(tile.shape[0]):
            row, x = tile[k], center[k]
            a += (row[j] - x) * (row[j] - x)
            b += (row[j + 1] - x) * (row[j + 1] - x)
            c += (row[j + 2] - x) * (row[j + 2] - x)
            d += (row[j + 3] - x) * (row[j + 3] - x)
            e += (row[j + 4] - x) * (row[j + 4] - x)
            f += (row[j + 5] - x) * (row[j + 5] - x)
            g += (row[j + 6] - x) * (row[j + 6] - x)
            h += (row[j + 7] - x) * (row[j + 7] - x)
        norms[j], norms[j + 1], norms[j + 2], norms[j + 3] = a, b, c, d
        norms[j + 4], norms[j + 5], norms[j + 6], norms[j + 7] = e, f, g, h


@kernel
def masked_histogram(tiles, lanes_used, mask, center, bounds, out):
    """Count the masked lanes by squared distance from center: out[b] += 1 for the first b with norm <= bounds[b].

    bounds (bins,) float64 ascending integers; out (bins + 1,) int64, the last bin holds the rest.
    """
    norms = np.empty(LANES, np.float64)
    bins = np.empty(LANES, np.int64)
    for t in range((lanes_used + LANES - 1) // LANES):
        _tile_norms(tiles[t], center, norms)
        least, most = np.inf, 0.0
        for j in range(min(LANES, lanes_used - t * LANES)):
            if mask[t * LANES + j]:
                least, most = min(least, norms[j]), max(most, norms[j])
        first, last = 0, len(bounds)  # the lanes of a tile lie in few bins; `np.searchsorted` compiles for longer
        while first < last:
            middle = (first + last) // 2
            if bounds[middle] < least:
                first = middle + 1
            else:
                last = middle
        for j in range(LANES):
            bins[j] = first
        for b in range(first, len(bounds)):
            bound = bounds[b]
            if bound >= most:
                break
            for j in range(LANES):
                bins[j] += norms[j] > bound
        for j in range(min(LANES, lanes_used - t * LANES)):
            if mask[t * LANES + j]:
                out[bins[j]] += 1


@kernel
def _factor(norm, radius_squared):
    """Compute the factor by which an offset shrinks onto the ball, slightly less, so that rounding seldom leaves the
    ball.
    """
    return 1.0 if norm <= radius_squared else math.sqrt(radius_squared / norm) * (1.0 - 4e-15)


@kernel
def _clip_tile(tile, center, factor, weight, clipped, checks):
    """Clip the offsets of all lanes and truncate them toward the center (0 for unwanted lanes); computes their squared
    norms.

    No fast math. Every offset is below 2**27 in size and the squared norms are exact up to 2**53 and monotone above.
    """
    for j in range(LANES):
        checks[j] = 0.0
    for k in range(tile.shape[0]):
        c = center[k]
        lane = tile[k]
        row = clipped[k]
        for j in range(LANES):
            offset = (lane[j] - c) * factor[j]
            v = np.float64(np.int32(offset if weight[j] != 0.0 else 0.0))
            row[j] = v
            checks[j] += v * v


@kernel(fastmath={"reassoc"})
def _add_rows(clipped, out):
    """Add each coordinate's sum over the lanes to out; exact, because the terms are integers below 2**27."""
    for k in range(clipped.shape[0]):
        row = clipped[k]
        total = 0.0
        for j in range(LANES):
            total += row[j]
        out[k] += np.int64(total)


@kernel
def _add_clipped(tile, j, center, norm, radius_squared, clipped, out):
    """Add what `_clip_tile` makes of one lane beyond the ball to out (d,). No fast math."""
    factor, check = _factor(norm, radius_squared), radius_squared + 1.0
    while check > radius_squared:  # seldom twice: rounding left the ball, so that the lane shrinks once more
        check = 0.0
        for k in range(tile.shape[0]):
            v = np.float64(np.int32((tile[k, j] - center[k]) * factor))
            clipped[k, 0] = v
            check += v * v
        factor *= 1.0 - 1e-15
    for k in range(tile.shape[0]):
        out[k] += np.int64(clipped[k, 0])


@kernel
def clipped_sum(tiles, lanes_used, mask, center, radius_squared, out):
    """Add the offsets from center of the masked lanes, each clipped to the ball, to out (d,) int64.

    Offsets beyond the ball are scaled onto it and truncated toward the center, then checked in integers, so every
    lane adds an integer vector of squared norm <= radius_squared that depends on that lane alone. center (d,) float64
    integers, radius_squared below 2**53. Returns how many lanes were masked in.
    """
    norms = np.empty(LANES, np.float64)
    weight = np.empty(LANES, np.float64)
    factor = np.empty(LANES, np.float64)
    checks = np.empty(LANES, np.float64)
    clipped = np.empty((tiles.shape[1], LANES), np.float64)
    count = 0
    for t in range((lanes_used + LANES - 1) // LANES):
        tile = tiles[t]
        wanted = _tile_weights(t, lanes_used, mask, weight)
        if wanted == 0:
            continue
        count += wanted
        _tile_norms(tile, center, norms)
        outside = 0
        for j in range(LANES):
            outside += weight[j] != 0.0 and norms[j] > radius_squared
        if outside <= _FEW:
            if outside:
                for j in range(LANES):
                    if weight[j] != 0.0 and norms[j] > radius_squared:
                        weight[j] = 0.0
                        _add_clipped(tile, j, center, norms[j], radius_squared, clipped, out)
            _add_offsets(tile, center, weight, wanted - outside, out)
            continue
        for j in range(LANES):
            factor[j] = _factor(norms[j], radius_squared)
        leaves = True
        while leaves:
            _clip_tile(tile, center, factor, weight, clipped, checks)
            leaves = False
            for j in range(LANES):
                if checks[j] > radius_squared:  # seldom: rounding left the ball, so that lane shrinks once more
                    factor[j] *= 1.0 - 1e-15
                    leaves = True
        _add_rows(clipped, out)
    return count


@kernel
def inside_sum(tiles, lanes_used, mask, center, radius_squared, out):
    """Add the offsets from center of the masked lanes within the ball to out (d,) int64; returns the number of these
    lanes.

    center (d,) float64 integers, radius_squared below 2**53, so that a lane within the ball has an exact norm.
    """
    norms = np.empty(LANES, np.float64)
    weight = np.empty(LANES, np.float64)
    count = 0
    for t in range((lanes_used + LANES - 1) // LANES):
        tile = tiles[t]
        if _tile_weights(t, lanes_used, mask, weight) == 0:
            continue
        _tile_norms(tile, center, norms)
        inside = 0
        for j in range(LANES):
            if not norms[j] <= radius_squared:
                weight[j] = 0.0
            inside += weight[j] != 0.0
        count += inside
        _add_offsets(tile, center, weight, inside, out)
    return count


@kernel
def mark_within(tiles, lanes_used, mask, center, bound, out):
    """Set out (lanes_used,) bool to whether a lane is masked and its squared distance from center at most bound.

    center (d,) float64 integers, bound below 2**53, so that a lane within it has an exact norm.
    """
    norms = np.empty(LANES, np.float64)
    for t in range((lanes_used + LANES - 1) // LANES):
        _tile_norms(tiles[t], center, norms)
        for j in range(min(LANES, lanes_used - t * LANES)):
            out[t * LANES + j] = mask[t * LANES + j] and norms[j] <= bound


@kernel
def inside_squares(tiles, lanes_used, mask, center, radius_squared, shift, out):
    """Add the squared offsets, each divided by 2**shift and rounded down, of the masked lanes within the ball.

    center (d,) float64 integers, radius_squared below 2**53; out (d,) int64. Returns the number of these lanes.
    """
    norms = np.empty(LANES, np.float64)
    weight = np.empty(LANES, np.float64)
    count = 0
    for t in range((lanes_used + LANES - 1) // LANES):
        tile = tiles[t]
        if _tile_weights(t, lanes_used, mask, weight) == 0:
            continue
        _tile_norms(tile, center, norms)
        for j in range(LANES):
            if weight[j] != 0.0 and norms[j] <= radius_squared:
                count += 1
                for k in range(tile.shape[0]):
                    offset = tile[k, j] - center[k]
                    out[k] += np.int64(offset * offset) >> shift
    return count


@kernel
def radius_totals(by_radius, out):
    """Add the counts of all lanes, by_radius (t, radii, LANES) int32, to out (radii,) int64. Free lanes hold 0."""
    for t in range(by_radius.shape[0]):
        for r in range(by_radius.shape[1]):
            lane = by_radius[t, r]
            total = np.int64(0)
            for j in range(LANES):
                total += lane[j]
            out[r] += total


@kernel
def counts_within(by_radius, index, lanes, out):
    """Add to out (n,) int64, for each of some lanes (n,) int64, its counts in by_radius[:, : index + 1]."""
    for i in range(len(lanes)):
        t, j = lanes[i] // LANES, lanes[i] % LANES
        total = np.int64(0)
        for r in range(index + 1):
            total += by_radius[t, r, j]
        out[i] += total


@kernel
def mix_rows(factors, rows, out):
    """Add factors[u] * rows[u] for all u to out (d,) int64. factors (n,) int64; rows (n, d) int32 or int64."""
    for u in range(len(factors)):
        factor = factors[u]
        row = rows[u]
        for k in range(len(out)):
            out[k] += factor * np.int64(row[k])
