"""Blocks of pairs as LLVM vector code: a few rows against the lanes of one tile, with all sums in registers.

Loops that LLVM vectorizes by itself keep their sums in memory and are two to four times slower. For the layout of tiles
see `pairs`.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .vectors import FEATURES, HAS_AVX512, WIDTH, Squares, load, splat, store, sum_loop

LANES = 32
SCREEN_ROWS = 8
"""Number of rows of a screened block; arrays of rows have as many neutral rows behind the last one of each class."""
EARLY = 4
"""Bit of what `screen_block` returns."""
SCREENS = {"avx512f", "avx512bw", "avx512vnni"} <= FEATURES
"""Whether this processor screens pairs with 8-bit dot products."""
# Rows and vectors of lanes held at once, by the number of registers: 6 x 4 sums fill AVX-512, 4 x 1 (8 halves) AVX2.
ROWS, VECTORS = (6, 4) if HAS_AVX512 else (4, 1)


def _add_to(builder, base, offset, value):  # type: ignore[no-untyped-def]
    at = builder.gep(base, [offset])
    builder.store(builder.add(builder.load(at), value), at)


class _Products:
    """Adds four 8-bit products, of unsigned rows with signed lanes, to a sum in int32."""

    vector, align = ir.VectorType(ir.IntType(32), 16), 4

    def __call__(self, builder, total, x, lane):  # type: ignore[no-untyped-def]
        if SCREENS:
            quarters = ir.VectorType(ir.IntType(8), 64)
            kind = ir.FunctionType(self.vector, [self.vector, quarters, quarters])
            dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
            return builder.call(dot, [total, builder.bitcast(x, quarters), builder.bitcast(lane, quarters)])
        # The same numbers on any processor. It is too slow to be used, but lets tests take this path everywhere.
        for shift in range(0, 32, 8):
            unsigned = builder.and_(builder.lshr(x, self._all(shift)), self._all(255))
            signed = builder.ashr(builder.shl(lane, self._all(24 - shift)), self._all(24))
            total = builder.add(total, builder.mul(unsigned, signed))
        return total

    def _all(self, value):  # type: ignore[no-untyped-def]
        return ir.Constant(self.vector, [value] * self.vector.count)


def _arrays(context, builder, signature, arguments, *which):  # type: ignore[no-untyped-def]
    return [context.make_array(signature.args[k])(context, builder, arguments[k]) for k in which]


def _rows_at(builder, array, first, rows):  # type: ignore[no-untyped-def]
    """Return pointers to consecutive rows of a two-dimensional array, and the array's width."""
    i64 = ir.IntType(64)
    width = cgutils.unpack_tuple(builder, array.shape)[1]
    return [builder.gep(array.data, [builder.mul(builder.add(first, i64(r)), width)]) for r in range(rows)], width


def _tally(builder, masks, row_counts, first_row, lane_counts, lane):  # type: ignore[no-untyped-def]
    """Add the friends in masks[row][vector] to the counts of rows and, from `lane` on, of lanes."""
    i32, i64 = ir.IntType(32), ir.IntType(64)
    width = masks[0][0].type.count
    counts = ir.VectorType(i32, width)
    found = [i32(0)] * len(masks)
    for v in range(len(masks[0])):
        at = builder.add(lane, i64(v * width))
        counted = load(builder, lane_counts, at, counts, 4)
        for r, row in enumerate(masks):
            counted = builder.add(counted, builder.zext(row[v], counts))
            bits = builder.bitcast(row[v], ir.IntType(width))
            found[r] = builder.add(found[r], builder.zext(builder.ctpop(bits), i32))
        store(builder, counted, lane_counts, at, 4)
    for r, number in enumerate(found):
        _add_to(builder, row_counts, builder.add(first_row, i64(r)), number)


def _counting_block(rows: int, vectors: int, lanes: int):  # type: ignore[no-untyped-def]
    """Make an intrinsic that counts the friends among `rows` consecutive rows and `lanes` lanes of one tile.

    Arguments: points (m, d) float64 C, first row, tiles (t, d, LANES) float64 C, tile, first lane, squared radius,
    row_counts (m,) int32, lane_counts (n * LANES,) int32, and which LANES of lane_counts to use. Both counts are
    changed.
    """

    @intrinsic
    def block(typing_context, points, row, tiles, tile, lane, radius2, row_counts, lane_counts, target):
        signature = types.void(points, row, tiles, tile, lane, radius2, row_counts, lane_counts, target)

        def codegen(context, builder, signature, arguments):
            i64, step = ir.IntType(64), Squares()
            _, first_row, _, tile_index, first_lane, limit, _, _, target = arguments
            points, tiles, by_row, by_lane = _arrays(context, builder, signature, arguments, 0, 2, 6, 7)
            row_at, dimension = _rows_at(builder, points, first_row, rows)
            tile_at = builder.gep(tiles.data, [builder.mul(tile_index, builder.mul(dimension, i64(LANES)))])
            limit = splat(builder, limit, step.vector)
            counts = builder.gep(by_lane.data, [builder.mul(target, i64(LANES))])
            for start in range(0, lanes, WIDTH * vectors):
                at = builder.add(first_lane, i64(start))
                sums = sum_loop(builder, row_at, tile_at, dimension, at, vectors, step, LANES)
                masks = [[builder.fcmp_ordered("<=", s, limit) for s in row] for row in sums]
                _tally(builder, masks, by_row.data, first_row, counts, at)
            return context.get_dummy_value()

        return signature, codegen

    return block


@intrinsic
def sums_block(typing_context, points, row, tiles, tile, sums):
    """Compute the squared distances of ROWS consecutive rows from all lanes of one tile: sums (ROWS, LANES)."""
    signature = types.void(points, row, tiles, tile, sums)

    def codegen(context, builder, signature, arguments):
        i64, step = ir.IntType(64), Squares()
        points, tiles, out = _arrays(context, builder, signature, arguments, 0, 2, 4)
        row_at, dimension = _rows_at(builder, points, arguments[1], ROWS)
        tile_at = builder.gep(tiles.data, [builder.mul(arguments[3], builder.mul(dimension, i64(LANES)))])
        for start in range(0, LANES, WIDTH * VECTORS):
            results = sum_loop(builder, row_at, tile_at, dimension, i64(start), VECTORS, step, LANES)
            for r, row in enumerate(results):
                for v, value in enumerate(row):
                    store(builder, value, out.data, i64(r * LANES + start + v * WIDTH), 8)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def screen_block(typing_context, codes, row, tile_codes, tile, starts, bars, prefix, row_counts, lane_counts, target):
    """Count the friends among SCREEN_ROWS rows and one tile that 8 bits decide; returns the vectors of lanes they do
    not.

    codes (m, words) int32, four unsigned bytes each; tile_codes (t, words, LANES) int32, four signed bytes each; for
    starts (t, 3, LANES) and bars (4, m) int32 see `tiles.arrange_codes`. Bit g of the result is set if lanes g * 8 ...
    g * 8 + 7 hold an undecided pair; none of the pairs of these lanes has been counted then. prefix: (words whose
    products are summed first, 1 to stop after them if they decide all pairs of the block); bit EARLY of the result is
    set if they did.
    """
    signature = types.int64(codes, row, tile_codes, tile, starts, bars, prefix, row_counts, lane_counts, target)

    def codegen(context, builder, signature, arguments):
        i64, vector = ir.IntType(64), _Products.vector
        first_row, tile_index, target = arguments[1], arguments[3], arguments[9]
        rows, tiles, starts, bars, by_row, by_lane = _arrays(context, builder, signature, arguments, 0, 2, 4, 5, 7, 8)
        prefix, is_tested = cgutils.unpack_tuple(builder, arguments[6], 2)
        row_at, words = _rows_at(builder, rows, first_row, SCREEN_ROWS)
        tile_at = builder.gep(tiles.data, [builder.mul(tile_index, builder.mul(words, i64(LANES)))])
        base = builder.mul(tile_index, i64(3 * LANES))
        counts = builder.gep(by_lane.data, [builder.mul(target, i64(LANES))])
        bar_rows = cgutils.unpack_tuple(builder, bars.shape)[1]
        result = cgutils.alloca_once_value(builder, i64(0))

        def lanes(number):
            at = builder.add(base, i64(number * LANES))
            return [load(builder, starts.data, builder.add(at, i64(16 * v)), vector, 4) for v in range(2)]

        def reaching(sums, number):
            """Compare the sums of each row with a bar of its own: masks[row][vector]."""
            masks = []
            for r, row in enumerate(sums):
                at = builder.add(builder.add(first_row, i64(r)), builder.mul(bar_rows, i64(number)))
                bound = splat(builder, builder.load(builder.gep(bars.data, [at])), vector)
                masks.append([builder.icmp_signed(">=", value, bound) for value in row])
            return masks

        def added(sums, addends):
            return [[builder.add(value, addend) for value, addend in zip(row, addends, strict=True)] for row in sums]

        def ask(sums, friends, addends, strangers, otherwise):
            """Branch to `friendly` if all pairs are friends, to `end` if none is, and else to `otherwise`.

            Most blocks lie far inside or far outside the radius. The first vector says which of both they may do.
            """
            near, far = builder.append_basic_block("near"), builder.append_basic_block("far")
            builder.cbranch(_reduce(builder, builder.and_, reaching([sums[0][:1]], friends), -1), near, far)
            builder.position_at_end(near)
            builder.cbranch(_reduce(builder, builder.and_, reaching(sums, friends), -1), friendly, otherwise)
            builder.position_at_end(far)
            reached = reaching(added(sums, addends) if addends else sums, strangers)
            builder.cbranch(_reduce(builder, builder.or_, reached, 0), end, otherwise)

        step = _Products()
        sums = [lanes(0)] * SCREEN_ROWS
        sums = sum_loop(builder, row_at, tile_at, prefix, i64(0), 2, step, LANES, sums=sums)
        names = "early", "open", "undecided", "rest", "summed", "final", "friendly", "mixed", "end"
        early, unclear, undecided, rest, summed, final, friendly, mixed, end = map(builder.append_basic_block, names)
        builder.cbranch(builder.icmp_signed("!=", is_tested, i64(0)), early, undecided)
        builder.position_at_end(early)
        builder.store(i64(1 << EARLY), result)
        ask(sums, 2, lanes(2), 3, unclear)
        builder.position_at_end(unclear)
        builder.store(i64(0), result)
        builder.branch(undecided)
        builder.position_at_end(undecided)
        builder.cbranch(builder.icmp_signed("<", prefix, words), rest, final)
        builder.position_at_end(rest)
        whole = sum_loop(builder, row_at, tile_at, words, i64(0), 2, step, LANES, prefix, added(sums, lanes(1)))
        builder.branch(summed)
        builder.position_at_end(summed)
        builder.branch(final)
        builder.position_at_end(final)
        for r in range(SCREEN_ROWS):
            for v in range(2):
                total = builder.phi(vector)
                total.add_incoming(sums[r][v], undecided)
                total.add_incoming(whole[r][v], summed)
                whole[r][v] = total
        ask(whole, 0, None, 1, mixed)
        builder.position_at_end(friendly)
        _add_all(builder, by_row.data, first_row, counts)
        builder.branch(end)
        builder.position_at_end(mixed)
        friends, maybes = reaching(whole, 0), reaching(whole, 1)
        doubts = [
            functools.reduce(builder.or_, [builder.xor(f[v], m[v]) for f, m in zip(friends, maybes, strict=True)])
            for v in range(2)
        ]
        unclear = [_part(builder, doubts[g // 2], g % 2) for g in range(4)]
        clean = [_spread(builder, unclear[2 * v : 2 * v + 2]) for v in range(2)]
        masks = [[builder.and_(row[v], clean[v]) for v in range(2)] for row in friends]
        _tally(builder, masks, by_row.data, first_row, counts, i64(0))
        for g, bit in enumerate(unclear):
            bit = builder.shl(builder.zext(bit, i64), i64(g))
            builder.store(builder.or_(builder.load(result), bit), result)
        builder.branch(end)
        builder.position_at_end(end)
        return builder.load(result)

    return signature, codegen


def _reduce(builder, operation, masks, value):  # type: ignore[no-untyped-def]
    """Return whether the masks [row][vector] of a screened block, put together, are all bits equal to `value`'s."""
    bits = functools.reduce(operation, [mask for row in masks for mask in row])
    return builder.icmp_unsigned("==", builder.bitcast(bits, ir.IntType(16)), ir.IntType(16)(value))


def _add_all(builder, row_counts, first_row, lane_counts):  # type: ignore[no-untyped-def]
    """Count all pairs of a screened block as friends."""
    i32, i64, vector = ir.IntType(32), ir.IntType(64), _Products.vector
    for lane in range(0, LANES, vector.count):
        counted = load(builder, lane_counts, i64(lane), vector, 4)
        store(
            builder, builder.add(counted, ir.Constant(vector, [SCREEN_ROWS] * vector.count)), lane_counts, i64(lane), 4
        )
    for r in range(SCREEN_ROWS):
        _add_to(builder, row_counts, builder.add(first_row, i64(r)), i32(LANES))


def _part(builder, mask, half):  # type: ignore[no-untyped-def]
    """Return whether one half of a 16-lane mask has a bit set."""
    pick = ir.Constant(ir.VectorType(ir.IntType(32), 8), list(range(8 * half, 8 * half + 8)))
    part = builder.shuffle_vector(mask, ir.Constant(mask.type, ir.Undefined), pick)
    return builder.icmp_unsigned("!=", builder.bitcast(part, ir.IntType(8)), ir.IntType(8)(0))


def _spread(builder, halves):  # type: ignore[no-untyped-def]
    """Make a 16-lane mask of the halves that are NOT set."""
    eight = ir.VectorType(ir.IntType(1), 8)
    ends = [splat(builder, builder.not_(half), eight) for half in halves]
    return builder.shuffle_vector(*ends, ir.Constant(ir.VectorType(ir.IntType(32), 16), list(range(16))))


count_rows = _counting_block(ROWS, VECTORS, LANES)
count_row = _counting_block(1, min(VECTORS, 4), LANES)
count_part = _counting_block(SCREEN_ROWS, 1, WIDTH)


@kernel
def count_exactly(rows, start, stop, tiles, tile, radius2, row_counts, lane_counts, target):
    """Compare rows start..stop, and no others, with one tile; adds friends to row_counts and LANES of lane_counts."""
    i = start
    while i + ROWS <= stop:
        count_rows(rows, i, tiles, tile, 0, radius2, row_counts, lane_counts, target)
        i += ROWS
    while i < stop:
        count_row(rows, i, tiles, tile, 0, radius2, row_counts, lane_counts, target)
        i += 1
