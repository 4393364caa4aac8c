"""Pair counting on tiles of lattice points.

A tile array has shape (tiles, d, LANES): one point per lane, coordinates are integers held as float64, unused lanes
hold +inf. All coordinate differences and the squared radius are below 2**53, so a sum of squares is exact up to
2**53 and monotone above it, whatever the order and with or without fused multiply-add: ``sum <= radius2`` is the
exact integer predicate. That is the only reason why contraction is allowed here.

The inner block is written as LLVM vector code: a few rows against a few vectors of lanes with all sums in registers.
Loops that LLVM vectorizes by itself keep their sums in memory and are five to ten times slower.
"""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64
_WIDTH = 8  # float64 in a vector; on narrower machines LLVM splits it
_ROWS = 4
# Vectors of lanes held at once, by the number of registers: 4 x 4 sums fill AVX-512, 4 x 1 AVX2.
_VECTORS = 4 if llvm.get_host_cpu_features().get("avx512f", False) else 1


def _block(rows: int):  # type: ignore[no-untyped-def]
    """An intrinsic that counts `rows` consecutive rows against one whole tile.

    Arguments: points (m, d) float64 C, first row, tiles (t, d, LANES) float64 C, tile, squared radius,
    row_counts (m,) int32, lane_counts (LANES,) int32. Adds hits to both counts.
    """

    @intrinsic
    def block(typing_context, points, row, tiles, tile, radius2, row_counts, lane_counts):
        signature = types.void(points, row, tiles, tile, radius2, row_counts, lane_counts)

        def codegen(context, builder, signature, arguments):
            f64, i32, i64 = ir.DoubleType(), ir.IntType(32), ir.IntType(64)
            vector, hits = ir.VectorType(f64, _WIDTH), ir.VectorType(i32, _WIDTH)
            arrays = {k: context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 2, 5, 6)}
            dimension = cgutils.unpack_tuple(builder, arrays[0].shape)[1]
            first_row, tile_index = arguments[1], arguments[3]
            row_at = [
                builder.gep(arrays[0].data, [builder.mul(builder.add(first_row, i64(r)), dimension)])
                for r in range(rows)
            ]
            tile_at = builder.gep(arrays[2].data, [builder.mul(tile_index, builder.mul(dimension, i64(LANES)))])
            limit = _splat(builder, arguments[4], vector)
            found = [i32(0)] * rows
            for start in range(0, LANES, _WIDTH * _VECTORS):
                sums = _sum_loop(builder, row_at, tile_at, dimension, start, vector)
                for v in range(_VECTORS):
                    lane_at = builder.bitcast(builder.gep(arrays[6].data, [i64(start + v * _WIDTH)]), hits.as_pointer())
                    counted = builder.load(lane_at)
                    counted.align = 4
                    for r in range(rows):
                        friends = builder.fcmp_ordered("<=", sums[r][v], limit)
                        counted = builder.add(counted, builder.zext(friends, hits))
                        bits = builder.bitcast(friends, ir.IntType(_WIDTH))
                        found[r] = builder.add(found[r], builder.zext(builder.ctpop(bits), i32))
                    store = builder.store(counted, lane_at)
                    store.align = 4
            for r in range(rows):
                count_at = builder.gep(arrays[5].data, [builder.add(first_row, i64(r))])
                builder.store(builder.add(builder.load(count_at), found[r]), count_at)
            return context.get_dummy_value()

        return signature, codegen

    return block


def _splat(builder, value, vector):  # type: ignore[no-untyped-def]
    """A vector whose lanes all hold `value`."""
    i32 = ir.IntType(32)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, i32(0))
    return builder.shuffle_vector(
        one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(i32, vector.count), [0] * vector.count)
    )


def _sum_loop(builder, row_at, tile_at, dimension, start, vector):  # type: ignore[no-untyped-def]
    """Squared distances of the rows from _VECTORS vectors of lanes: sums[row][vector], kept in registers."""
    i64 = ir.IntType(64)
    before = builder.block
    loop = builder.append_basic_block("coordinates")
    after = builder.append_basic_block("counted")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(i64)
    k.add_incoming(i64(0), before)
    sums = [[builder.phi(vector) for _ in range(_VECTORS)] for _ in row_at]
    zero = ir.Constant(vector, [0.0] * vector.count)
    lane_at = builder.gep(tile_at, [builder.add(builder.mul(k, i64(LANES)), i64(start))])
    lanes = []
    for v in range(_VECTORS):
        lane = builder.load(builder.bitcast(builder.gep(lane_at, [i64(v * _WIDTH)]), vector.as_pointer()))
        lane.align = 8
        lanes.append(lane)
    results = []
    for row, phis in zip(row_at, sums, strict=True):
        x = _splat(builder, builder.load(builder.gep(row, [k])), vector)
        results.append([])
        for lane, phi in zip(lanes, phis, strict=True):
            phi.add_incoming(zero, before)
            diff = builder.fsub(lane, x)
            square = builder.fmul(diff, diff, flags=("contract",))
            total = builder.fadd(phi, square, flags=("contract",))
            phi.add_incoming(total, loop)
            results[-1].append(total)
    following = builder.add(k, i64(1))
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, dimension), loop, after)
    builder.position_at_end(after)
    return results


_count_rows = _block(_ROWS)
_count_row = _block(1)


@njit(cache=True, nogil=True)
def _count_tile(rows, start, stop, tiles, tile, radius2, row_counts, lane_counts):
    """Rows start..stop against one tile; adds hits to row_counts and to the tile's lane_counts (LANES,) int32."""
    i = start
    while i + _ROWS <= stop:
        _count_rows(rows, i, tiles, tile, radius2, row_counts, lane_counts)
        i += _ROWS
    while i < stop:
        _count_row(rows, i, tiles, tile, radius2, row_counts, lane_counts)
        i += 1


@njit(cache=True, nogil=True)
def sweep(rows, row_starts, ask_first, ask_last, tiles, buckets, radius2, row_counts, lane_counts):
    """Compare rows with the tiles whose buckets do not decide about them; add hits to both sides.

    rows (m, d) float64 sorted by bucket, those of bucket a in row_starts[a] : row_starts[a + 1]; tile t belongs to
    bucket b = buckets[t] and is compared with the rows of the buckets ask_first[b] ... ask_last[b].
    row_counts (m,) int32; lane_counts (tiles * LANES,) int32.
    """
    for t in range(len(buckets)):
        b = buckets[t]
        start, stop = row_starts[ask_first[b]], row_starts[ask_last[b] + 1]
        if start < stop:
            _count_tile(rows, start, stop, tiles, t, radius2, row_counts, lane_counts[t * LANES : (t + 1) * LANES])


@njit(cache=True, nogil=True)
def sweep_within(rows, first, tiles, count, radius2, row_counts, lane_counts):
    """Compare each row, stored in the lanes `first`, `first` + 1, ... of a pane, with all lanes before it and itself.

    tiles is any run of the pane's tiles, `count` of them in use, and `first` counts lanes from its start (it may be
    negative or beyond). Hits are added to both sides: row_counts (m,) and lane_counts (count * LANES,) int32. Two new
    points of one tile are decided from either side: a whole tile costs less than half a tile with a mask.
    """
    m = len(rows)
    own_lanes = np.empty(LANES, np.int32)
    for t in range(count):
        base = t * LANES
        lane_counts_here = lane_counts[base : base + LANES]
        own = min(m, max(0, base - first))  # rows own..later lie in this tile, rows from later on in tiles after it
        later = min(m, max(0, base + LANES - first))
        _count_tile(rows, later, m, tiles, t, radius2, row_counts, lane_counts_here)
        if own < later:
            own_lanes[:] = 0
            _count_tile(rows, own, later, tiles, t, radius2, row_counts, own_lanes)
            for j in range(min(LANES, first - base)):  # lanes that were there before; new ones count as rows
                lane_counts_here[j] += own_lanes[j]


@njit(cache=True, nogil=True)
def bucket_rows(rows, pivot, edges, order, row_starts):
    """Sort rows by bucket: the first b with squared distance from pivot <= edges[b], else the last.

    Fills order (m,) int64 and row_starts (buckets + 1,) int64.
    """
    m, d = rows.shape
    found = np.empty(m, np.int64)
    row_starts[:] = 0
    for i in range(m):
        norm = 0.0
        for k in range(d):
            diff = rows[i, k] - pivot[k]
            norm += diff * diff
        low, high = 0, len(edges)
        while low < high:
            middle = (low + high) // 2
            if norm <= edges[middle]:
                high = middle
            else:
                low = middle + 1
        found[i] = low
        row_starts[low + 1] += 1
    for b in range(len(row_starts) - 1):
        row_starts[b + 1] += row_starts[b]
    fill = row_starts.copy()
    for i in range(m):
        order[fill[found[i]]] = i
        fill[found[i]] += 1


@njit(cache=True, nogil=True)
def place_rows(row_starts, open_tile, used, buckets, next_tile, slots):
    """Give every row of a sorted batch a lane: slots (m,) int64 = tile * LANES + lane.

    open_tile (buckets,) int64 is the tile each bucket fills, -1 for none; used and buckets are per tile. Returns the
    next free tile. The arrays must have room (see `tiles_needed`).
    """
    for b in range(len(open_tile)):
        for i in range(row_starts[b], row_starts[b + 1]):
            t = open_tile[b]
            if t < 0 or used[t] == LANES:
                t = next_tile
                next_tile += 1
                open_tile[b] = t
                used[t] = 0
                buckets[t] = b
            slots[i] = t * LANES + used[t]
            used[t] += 1
    return next_tile


@njit(cache=True, nogil=True)
def tiles_needed(row_starts, open_tile, used):
    """How many new tiles a sorted batch opens."""
    needed = 0
    for b in range(len(open_tile)):
        free = LANES - used[open_tile[b]] if open_tile[b] >= 0 else 0
        needed += max(0, row_starts[b + 1] - row_starts[b] - free + LANES - 1) // LANES
    return needed


@njit(cache=True, nogil=True)
def store_rows(rows, slots, first_tile, tiles):
    """Copy the rows whose slots lie in a tile array, which starts at tile `first_tile`."""
    for i in range(len(rows)):
        t = slots[i] // LANES - first_tile
        if 0 <= t < len(tiles):
            lane = slots[i] % LANES
            for k in range(rows.shape[1]):
                tiles[t, k, lane] = rows[i, k]


@njit(cache=True, nogil=True)
def load_rows(tiles, lanes, rows):
    """Copy the points in the lanes (n,) int64 of a tile array into rows (n, d)."""
    for i in range(len(lanes)):
        t, lane = lanes[i] // LANES, lanes[i] % LANES
        for k in range(rows.shape[1]):
            rows[i, k] = tiles[t, k, lane]
