"""Means and scatter matrices of shards, updated one point after the other; points that are scaled and clipped to a
ball, and the exact sums of their products.

A shard's numbers depend on its own points and their order alone, to the last bit: not on other shards' points, nor on
how points were batched. There is no fast math, and each operation rounds once.

Tiles (t, d, LANES) hold a point per lane, see `pairs`. What is computed of a lane is a function of that lane alone.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .blocks import LANES
from .vectors import FEATURES, load

BLOCK = 4
"""`add_products` needs codes of a multiple of so many coordinates."""
_COLUMNS = 3  # of a block of BLOCK rows: 12 sums fill the registers of AVX2


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


@kernel
def scaled_norms(tiles, middles, factors, norms):
    """Compute the squared norms (t, LANES) of points that are scaled: rint((point - middles) * factors).

    middles, factors (d,). Two roundings an entry, and a sum in one order; a free lane gets +inf.
    """
    for t in range(len(tiles)):
        own = norms[t]
        own[:] = 0.0
        for k in range(tiles.shape[1]):
            lane, middle, factor = tiles[t, k], middles[k], factors[k]
            for j in range(LANES):
                value = np.rint((lane[j] - middle) * factor)
                own[j] += value * value


@kernel
def turn_tiles(tiles, middles, matrix, out):
    """Multiply a matrix (d, d) with the offsets of points from middles (d,), into tiles out (t, d, LANES).

    Each lane is computed from itself alone, in one order; a free lane stays +inf.
    """
    d = tiles.shape[1]
    offsets = np.empty((d, LANES), np.float64)
    for t in range(len(tiles)):
        for k in range(d):
            lane, middle, own = tiles[t, k], middles[k], offsets[k]
            for j in range(LANES):
                own[j] = lane[j] - middle
        for i in range(d):
            row, own = out[t, i], matrix[i]
            row[:] = 0.0
            k = 0
            while k + 4 <= d:
                f0, f1, f2, f3 = own[k], own[k + 1], own[k + 2], own[k + 3]
                o0, o1, o2, o3 = offsets[k], offsets[k + 1], offsets[k + 2], offsets[k + 3]
                for j in range(LANES):
                    row[j] = row[j] + f0 * o0[j] + f1 * o1[j] + f2 * o2[j] + f3 * o3[j]
                k += 4
            while k < d:
                factor, one = own[k], offsets[k]
                for j in range(LANES):
                    row[j] += factor * one[j]
                k += 1
        for j in range(LANES):
            if tiles[t, 0, j] == np.inf:
                out[t, :, j] = np.inf


@kernel
def count_rungs(values, exponents, rungs, starts, counts):
    """Count for each rung, ascending, the values (n,) float64 that it is the first to reach; the last takes the rest.

    exponents (n,) int64 are the values' exponents and first three bits, 0 for 1.0: that part of the values lies in is
    reached by no rung before starts[part] (parts,).
    """
    last = len(rungs) - 1
    for i in range(len(values)):
        at = starts[min(max(exponents[i], 0), len(starts) - 1)]
        while at < last and rungs[at] < values[i]:
            at += 1
        counts[at] += 1


@kernel
def clip_tiles(tiles, middles, factors, norms, radius_squared, unit, limit, codes):
    """Scale points as `scaled_norms` does, and put them into codes (d or more, t * LANES), clipped to a ball.

    Codes are whole numbers of units (a power of two): int16, or float64 that hold integers. A point of norms (t, LANES)
    beyond the ball is scaled onto it; everything is truncated toward zero, then checked in exact integers, so that the
    squared norm of each code is at most limit = floor(radius_squared / unit**2), below 2**53. Free lanes become 0.
    Returns how many points were beyond the ball.
    """
    d, outside = tiles.shape[1], 0
    scaled = np.empty((d, LANES), np.float64)
    shrunk = np.empty(LANES, np.float64)
    checks = np.empty(LANES, np.float64)
    for t in range(len(tiles)):
        for k in range(d):
            lane, row = tiles[t, k], scaled[k]
            middle, factor = middles[k], factors[k]
            for j in range(LANES):
                row[j] = np.rint((lane[j] - middle) * factor)
        for j in range(LANES):
            shrunk[j] = 1.0 / unit
            if norms[t, j] == np.inf:
                scaled[:, j] = 0.0
            elif norms[t, j] > radius_squared:
                outside += 1
                shrunk[j] *= np.sqrt(radius_squared / norms[t, j])
        leaves = True
        while leaves:
            checks[:] = 0.0
            for k in range(d):
                row, code = scaled[k], codes[k, t * LANES : (t + 1) * LANES]
                for j in range(LANES):
                    value = np.trunc(row[j] * shrunk[j])
                    checks[j] += value * value
                    code[j] = value
            leaves = False
            for j in range(LANES):
                if checks[j] > limit:  # seldom: rounding left the ball, so that the lane shrinks once more
                    shrunk[j] *= 1.0 - 1e-13
                    leaves = True
    return outside


@kernel
def add_codes(codes, sums):
    """Add each coordinate's sum over codes (d or more, m) of integers, below 2**53 together, to sums (d,) int64."""
    for k in range(len(sums)):
        row = codes[k]
        total = np.int64(0)
        for i in range(len(row)):
            total += np.int64(row[i])
        sums[k] += total


def _pair_sums(builder, one, other):  # type: ignore[no-untyped-def]
    """Multiply vectors of 16 codes of 16 bits, and add the products of each two neighbors: 8 integers of 32 bits."""
    words = ir.VectorType(ir.IntType(32), 8)
    if "avx2" in FEATURES:
        kind = ir.FunctionType(words, [one.type, one.type])
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pmadd.wd"), [one, other]
        )
    # The same numbers on any processor.
    half, found = ir.Constant(words, [16] * 8), []
    one, other = builder.bitcast(one, words), builder.bitcast(other, words)
    for shifted in (False, True):
        pair = [each if shifted else builder.shl(each, half) for each in (one, other)]
        found.append(builder.mul(*[builder.ashr(each, half) for each in pair]))
    return builder.add(*found)


def _products_block(rows: int, columns: int):  # type: ignore[no-untyped-def]
    """Make an intrinsic that adds the sums of products of some coordinates with some others to out (d, d) int64.

    Arguments: codes (d, m) int16 C with m a positive multiple of 16, the first of each of these coordinates, and out.
    Each of eight sums of 32 bits gets m / 8 products, and they are added in 64 bits.
    """

    @intrinsic
    def block(typing_context, codes, row, column, out):
        def codegen(context, builder, signature, arguments):
            i64 = ir.IntType(64)
            codes, out = (context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 3))
            width, wide = (cgutils.unpack_tuple(builder, each.shape)[1] for each in (codes, out))
            halves, words = ir.VectorType(ir.IntType(16), 16), ir.VectorType(ir.IntType(32), 8)
            first = [builder.add(arguments[1], i64(r)) for r in range(rows)]
            second = [builder.add(arguments[2], i64(c)) for c in range(columns)]
            row_at, column_at = (
                [builder.gep(codes.data, [builder.mul(k, width)]) for k in each] for each in (first, second)
            )
            before = builder.block
            loop, after = builder.append_basic_block("codes"), builder.append_basic_block("added")
            builder.branch(loop)
            builder.position_at_end(loop)
            at = builder.phi(i64)
            at.add_incoming(i64(0), before)
            sums = [[builder.phi(words) for _ in range(columns)] for _ in range(rows)]
            others = [load(builder, base, at, halves, 2) for base in column_at]
            for base, phis in zip(row_at, sums, strict=True):
                one = load(builder, base, at, halves, 2)
                for phi, other in zip(phis, others, strict=True):
                    phi.add_incoming(ir.Constant(words, None), before)
                    phi.add_incoming(builder.add(phi, _pair_sums(builder, one, other)), loop)
            following = builder.add(at, i64(16))
            at.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed("<", following, width), loop, after)
            builder.position_at_end(after)
            longs = ir.VectorType(i64, 8)
            kind = ir.FunctionType(i64, [longs])
            reduce = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.add.v8i64")
            for r, phis in zip(first, sums, strict=True):
                for c, phi in zip(second, phis, strict=True):
                    total = builder.call(reduce, [builder.sext(phi.incomings[1][0], longs)])
                    place = builder.gep(out.data, [builder.add(builder.mul(r, wide), c)])
                    builder.store(builder.add(builder.load(place), total), place)
            return context.get_dummy_value()

        return types.void(codes, row, column, out), codegen

    return block


_block = _products_block(BLOCK, _COLUMNS)
_column = _products_block(BLOCK, 1)


@kernel
def add_products(codes, out):
    """Add the sums of products of any two rows of codes (d, m) int16 to out (d, d) int64: its lower triangle, at least.

    d is a multiple of `BLOCK`, m a positive multiple of 16. With L an upper bound of the squared norm of each column of
    codes, no product of two of its entries is above L in absolute value, so that exactness needs m / 8 * L < 2**31.
    """
    for i in range(0, len(codes), BLOCK):
        j = 0
        while j + _COLUMNS <= i + BLOCK:
            _block(codes, i, j, out)
            j += _COLUMNS
        while j < i + BLOCK:
            _column(codes, i, j, out)
            j += 1
