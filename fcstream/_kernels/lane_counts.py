"""Items in lanes, and how the friends that masks show are counted.

Items of any kind lie in tiles (tiles, width, LANES), one item per lane; lanes are filled in order of arrival. A family
of predicates compares a tile with a new item and gives one word, in which bit j says whether lane j is a friend. Which
of these bits count, and for which items, is decided here for all families.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel

LANES = 64


@intrinsic
def _add_tile(typing_context, masks, tile, first, used, row_counts, lane_counts):
    """Add the bits of one tile to the counts of rows and of lanes.

    The loop over rows keeps the counts of all 64 lanes in registers. Arguments: masks (tiles, m) uint64, tile, first,
    used, row_counts (m,) int32, lane_counts (tiles * LANES,) int32.
    """
    signature = types.void(masks, tile, first, used, row_counts, lane_counts)

    def codegen(context, builder, signature, arguments):
        i1, i32, i64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
        lanes = ir.VectorType(i32, LANES)
        arrays = {k: context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 4, 5)}
        tile_at, first, used = arguments[1], arguments[2], arguments[3]
        m = cgutils.unpack_tuple(builder, arrays[4].shape)[0]
        start = builder.mul(tile_at, i64(LANES))
        mask_at = builder.gep(arrays[0].data, [builder.mul(tile_at, m)])
        lanes_at = builder.bitcast(builder.gep(arrays[5].data, [start]), lanes.as_pointer())
        before = builder.load(lanes_at)
        before.align = 4

        def clamped(value, low, high):
            value = builder.select(builder.icmp_signed("<", value, i64(low)), i64(low), value)
            return builder.select(builder.icmp_signed(">", value, i64(high)), i64(high), value)

        entry = builder.block
        loop, after = builder.append_basic_block("rows"), builder.append_basic_block("booked")
        builder.cbranch(builder.icmp_signed(">", m, i64(0)), loop, after)
        builder.position_at_end(loop)
        i, sums = builder.phi(i64), builder.phi(lanes)
        i.add_incoming(i64(0), entry)
        sums.add_incoming(before, entry)
        own = builder.add(first, i)
        limit = builder.select(builder.icmp_signed("<", own, used), own, used)
        count = clamped(builder.sub(limit, start), 0, LANES)
        some = builder.lshr(i64(-1), builder.and_(builder.sub(i64(LANES), count), i64(LANES - 1)))
        valid = builder.select(builder.icmp_signed("==", count, i64(0)), i64(0), some)
        bits = builder.and_(builder.load(builder.gep(mask_at, [i])), valid)
        row_at = builder.gep(arrays[4].data, [i])
        builder.store(builder.add(builder.load(row_at), builder.trunc(builder.ctpop(bits), i32)), row_at)
        total = builder.add(sums, builder.zext(builder.bitcast(bits, ir.VectorType(i1, LANES)), lanes))
        following = builder.add(i, i64(1))
        i.add_incoming(following, loop)
        sums.add_incoming(total, loop)
        builder.cbranch(builder.icmp_signed("<", following, m), loop, after)
        builder.position_at_end(after)
        result = builder.phi(lanes)
        result.add_incoming(before, entry)
        result.add_incoming(total, loop)
        store = builder.store(result, lanes_at)
        store.align = 4
        return context.get_dummy_value()

    return signature, codegen


@kernel
def add_bits(masks, tiles, first, used, row_counts, lane_counts):
    """Add the friends that masks show, of new rows and a run of lanes, to the counts of both.

    masks (tiles, m) uint64. Row i is compared with the lanes below min(used, first + i), so that rows which lie in this
    run from lane `first` on are counted once for each pair. row_counts (m,) and lane_counts (tiles * LANES,) int32 are
    changed.
    """
    for t in range(tiles):
        _add_tile(masks, t, first, used, row_counts, lane_counts)


@kernel
def store(rows, first, tiles):
    """Copy rows (m, width) into the lanes first, first + 1, ... of tiles, as far as tiles has them."""
    for i in range(max(0, -first), min(len(rows), len(tiles) * LANES - first)):
        t, lane = divmod(first + i, LANES)
        for k in range(rows.shape[1]):
            tiles[t, k, lane] = rows[i, k]


@kernel
def load(tiles, used, rows):
    """Copy the first `used` lanes of tiles into rows (used, width)."""
    for i in range(used):
        t, lane = divmod(i, LANES)
        for k in range(rows.shape[1]):
            rows[i, k] = tiles[t, k, lane]
