"""Sums, norms and histograms over tiles of lattice points (see `pairs` for the layout).

Coordinates are integers below 2**40 in size, so sums over one tile of 32 lanes are exact in float64 in any order, which
is why reassociation is allowed. Sums of tiles are added in int64; callers add up no more of them than
`totals.rows_within` allows.

`mix_rows` adds up rows of plain integers.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .scratch import scratch
from .vectors import WIDTH, Squares, store, sum_loop

LANES = 32
_FEW = 8  # lanes of a tile beyond a ball that are clipped one by one: more of them are faster all together
_numbers = scratch(types.float64, LANES)


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


@intrinsic
def _tile_norms(typing_context, tile, center, norms):
    """Compute the squared distance of every lane of a tile from center (d,), exact up to 2**53 and monotone above."""
    if any(array.layout != "C" or array.dtype != types.float64 for array in (tile, center, norms)):
        return None

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes, middle, out = (
            context.make_array(kind)(context, builder, array)
            for kind, array in zip(signature.args, arguments, strict=True)
        )
        number, length = ir.IntType(64), cgutils.unpack_tuple(builder, lanes.shape)[0]
        whole = sum_loop(builder, [middle.data], lanes.data, length, number(0), LANES // WIDTH, Squares(), LANES)
        for v, sums in enumerate(whole[0]):
            store(builder, sums, out.data, number(v * WIDTH))
        return context.get_dummy_value()

    return types.void(tile, center, norms), codegen


@kernel
def masked_histogram(tiles, lanes_used, mask, center, bounds, out):
    """Count the masked lanes by squared distance from center: out[b] += 1 for the first b with norm <= bounds[b].

    bounds (bins,) float64 ascending integers; out (bins + 1,) int64, the last bin holds the rest.
    """
    norms, bins = _numbers(), np.empty(LANES, np.int64)  # faster than with both on the stack
    for t in range((lanes_used + LANES - 1) // LANES):
        _tile_norms(tiles[t], center, norms)
        least, most, used = np.inf, 0.0, min(LANES, lanes_used - t * LANES)
        for j in range(used):
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
        for j in range(used):
            if mask[t * LANES + j]:
                out[bins[j]] += 1


@kernel
def _factor(norm, radius_squared):
    """Compute the factor by which an offset shrinks onto the ball, slightly less, so that rounding seldom leaves the
    ball.
    """
    return 1.0 if norm <= radius_squared else math.sqrt(radius_squared / norm) * (1.0 - 4e-15)


@kernel
def _clipped(coordinate, center, factor, weight):
    """Shrink an offset and truncate it toward the center; 0 without a weight. No fast math."""
    offset = (coordinate - center) * factor
    return np.int32(offset if weight != 0.0 else 0.0)


@kernel
def _clipped_norms(tile, center, factor, weight, norms):
    """Compute the squared norms of what `_add_clipped` adds for every lane, 0 for unwanted lanes.

    Every clipped offset is below 2**27 in size and the squared norms are exact up to 2**53 and monotone above.
    """
    for j in range(LANES):
        norms[j] = 0.0
    for k in range(tile.shape[0]):
        c, lane = center[k], tile[k]
        for j in range(LANES):
            v = np.float64(_clipped(lane[j], c, factor[j], weight[j]))
            norms[j] += v * v


@kernel
def _add_clipped(tile, center, factor, weight, out):
    """Add the clipped offsets of all lanes but unwanted ones to out (d,)."""
    for k in range(tile.shape[0]):
        c, lane, total = center[k], tile[k], np.int64(0)
        for j in range(LANES):
            total += _clipped(lane[j], c, factor[j], weight[j])
        out[k] += total


@kernel
def _add_one_clipped(tile, j, center, norm, radius_squared, out):
    """Add the clipped offset of one lane beyond the ball to out (d,)."""
    factor, check = _factor(norm, radius_squared), radius_squared + 1.0
    while check > radius_squared:  # seldom twice: rounding left the ball, so that the lane shrinks once more
        check, last = 0.0, factor
        for k in range(tile.shape[0]):
            v = np.float64(_clipped(tile[k, j], center[k], last, 1.0))
            check += v * v
        factor *= 1.0 - 1e-15
    for k in range(tile.shape[0]):
        out[k] += _clipped(tile[k, j], center[k], last, 1.0)


@kernel
def clipped_sum(tiles, lanes_used, mask, center, radius_squared, out):
    """Add the offsets from center of the masked lanes, each clipped to the ball, to out (d,) int64.

    Offsets beyond the ball are scaled onto it and truncated toward the center, then checked in integers, so every
    lane adds an integer vector of squared norm <= radius_squared that depends on that lane alone. center (d,) float64
    integers, radius_squared below 2**53, or infinite to clip nothing. Returns how many lanes were masked in.
    """
    norms, weight, factor = _numbers(), _numbers(), _numbers()
    count = 0
    for t in range((lanes_used + LANES - 1) // LANES):
        tile = tiles[t]
        wanted = _tile_weights(t, lanes_used, mask, weight)
        if wanted == 0:
            continue
        count += wanted
        outside = 0
        if radius_squared < np.inf:
            _tile_norms(tile, center, norms)
            for j in range(LANES):
                outside += weight[j] != 0.0 and norms[j] > radius_squared
        if outside <= _FEW:
            if outside:
                for j in range(LANES):
                    if weight[j] != 0.0 and norms[j] > radius_squared:
                        weight[j] = 0.0
                        _add_one_clipped(tile, j, center, norms[j], radius_squared, out)
            _add_offsets(tile, center, weight, wanted - outside, out)
            continue
        for j in range(LANES):
            factor[j] = _factor(norms[j], radius_squared)
        leaves = True
        while leaves:
            _clipped_norms(tile, center, factor, weight, norms)
            leaves = False
            for j in range(LANES):
                if norms[j] > radius_squared:  # seldom: rounding left the ball, so that lane shrinks once more
                    factor[j] *= 1.0 - 1e-15
                    leaves = True
        _add_clipped(tile, center, factor, weight, out)
    return count


@kernel
def inside_sum(tiles, lanes_used, mask, center, radius_squared, out):
    """Add the offsets from center of the masked lanes within the ball to out (d,) int64; returns the number of these
    lanes.

    center (d,) float64 integers, radius_squared below 2**53, so that a lane within the ball has an exact norm.
    """
    norms, weight = _numbers(), _numbers()
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
    norms = _numbers()
    for t in range((lanes_used + LANES - 1) // LANES):
        _tile_norms(tiles[t], center, norms)
        for j in range(min(LANES, lanes_used - t * LANES)):
            out[t * LANES + j] = mask[t * LANES + j] and norms[j] <= bound


@kernel
def inside_squares(tiles, lanes_used, mask, center, radius_squared, shift, out):
    """Add the squared offsets, each divided by 2**shift and rounded down, of the masked lanes within the ball.

    center (d,) float64 integers, radius_squared below 2**53; out (d,) int64. Returns the number of these lanes.
    """
    norms, weight = _numbers(), _numbers()
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
