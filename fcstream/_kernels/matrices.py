"""Distance of positive definite matrices, decided by factoring two differences, 64 matrices at once.

With h = 1 + limit: all generalized eigenvalues of (X, Y) lie in [1 / h, h] if and only if h X - Y and h Y - X are
positive semidefinite. Both are factored as L D L^T and every pivot must be positive. Both differences go through the
same operations in the same order, each rounded in one way (multiply, subtract, fused multiply-add, divide; no fast
math), so the result for a pair does not depend on which comes first, on its lane, its batch or the machine.

Matrices are packed, entry (i, k), k <= i, at i * (i + 1) / 2 + k; tiles have shape (tiles, d * (d + 1) / 2, LANES).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .vectors import DOUBLES, HAS_AVX512, WIDTH, add_bits, load, splat, store

LANES = 64
_VECTORS = 4 if HAS_AVX512 else 1
_GROUP = WIDTH * _VECTORS
_LARGEST = 2.0**400  # entries beyond could overflow or vanish in a product


def _definite(swapped: bool):  # type: ignore[no-untyped-def]
    """Make an intrinsic that factors h * row - lane (or h * lane - row if swapped) for one group of lanes.

    Arguments: rows (m, size), scaled = h * rows, row, tiles (t, size, LANES), tile, first lane, d, h, a (size, _GROUP),
    inverse (d, _GROUP), all float64 C; a and inverse are overwritten. Returns one bit per lane of the group: all pivots
    are positive.
    """

    @intrinsic
    def definite(typing_context, rows, scaled, row, tiles, tile, start, d, h, a, inverse):
        signature = types.uint64(rows, scaled, row, tiles, tile, start, d, h, a, inverse)

        def codegen(context, builder, signature, arguments):
            i64, vector = ir.IntType(64), DOUBLES
            data = {
                n: context.make_array(signature.args[n])(context, builder, arguments[n]).data for n in (0, 1, 3, 8, 9)
            }
            row, tile, start, d = (arguments[n] for n in (2, 4, 5, 6))
            fused = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{WIDTH}f64"
            )
            every = range(_VECTORS)

            def triangle(i):
                return builder.lshr(builder.mul(i, builder.add(i, i64(1))), i64(1))

            size = triangle(d)

            def place(number, v, width=_GROUP):
                return builder.add(builder.mul(number, i64(width)), i64(v * WIDTH))

            def difference(entry):
                number = builder.add(builder.mul(tile, size), entry)
                lanes = [load(builder, data[3], builder.add(place(number, v, LANES), start)) for v in every]
                at = builder.add(builder.mul(row, size), entry)
                x = splat(builder, builder.load(builder.gep(data[0 if swapped else 1], [at])))
                if swapped:
                    return [builder.fsub(builder.fmul(splat(builder, arguments[7]), y), x) for y in lanes]
                return [builder.fsub(x, y) for y in lanes]

            def minus_product(total, x, y):
                return builder.call(fused, [builder.fneg(x), y, total])

            sums = [cgutils.alloca_once(builder, vector) for _ in every]
            alive = cgutils.alloca_once_value(builder, i64(0))
            with cgutils.for_range(builder, d) as pivots:
                i = pivots.index
                first = triangle(i)
                with cgutils.for_range(builder, i) as columns:
                    k = columns.index
                    for v, value in zip(every, difference(builder.add(first, k)), strict=True):
                        builder.store(value, sums[v])
                    above = triangle(k)
                    with cgutils.for_range(builder, k) as terms:
                        left, right = builder.add(first, terms.index), builder.add(above, terms.index)
                        for v in every:
                            x, y = (load(builder, data[8], place(number, v)) for number in (left, right))
                            total = minus_product(builder.load(sums[v]), x, y)
                            builder.store(total, sums[v])
                    for v in every:
                        store(builder, builder.load(sums[v]), data[8], place(builder.add(first, k), v))
                for v, value in zip(every, difference(builder.add(first, i)), strict=True):
                    builder.store(value, sums[v])
                with cgutils.for_range(builder, i) as columns:
                    here = builder.add(first, columns.index)
                    for v in every:
                        x = load(builder, data[8], place(here, v))
                        quotient = builder.fmul(x, load(builder, data[9], place(columns.index, v)))
                        builder.store(minus_product(builder.load(sums[v]), x, quotient), sums[v])
                        store(builder, quotient, data[8], place(here, v))
                word = i64(0)
                for v in every:
                    pivot = builder.load(sums[v])
                    bits = builder.fcmp_ordered(">", pivot, ir.Constant(vector, [0.0] * WIDTH))
                    word = add_bits(builder, word, bits, i64(v * WIDTH))
                    one = ir.Constant(vector, [1.0] * WIDTH)
                    store(builder, builder.fdiv(one, pivot), data[9], place(i, v))
                so_far = builder.select(builder.icmp_signed("==", i, i64(0)), i64(-1), builder.load(alive))
                builder.store(builder.and_(so_far, word), alive)
                with builder.if_then(builder.icmp_signed("==", builder.load(alive), i64(0))):
                    pivots.do_break()
            return builder.load(alive)

        return signature, codegen

    return definite


_row_above = _definite(False)
_lane_above = _definite(True)


@kernel
def compare(rows, scaled, tiles, used, first, d, h, masks):
    """Fill masks (tiles, m) uint64 for packed matrices (m, d (d + 1) / 2) against the first `used` lanes.

    Row i is compared with the lanes below first + i only; masks of tiles beyond these are left unchanged. scaled = h *
    rows.
    """
    a, inverse = np.empty((rows.shape[1], _GROUP), np.float64), np.empty((d, _GROUP), np.float64)
    for t in range((used + LANES - 1) // LANES):
        for i in range(max(0, t * LANES - first + 1), len(rows)):
            found = np.uint64(0)
            for start in range(0, min(LANES, min(used, first + i) - t * LANES), _GROUP):
                group = _row_above(rows, scaled, i, tiles, t, start, d, h, a, inverse)
                if group != 0:
                    group &= _lane_above(rows, scaled, i, tiles, t, start, d, h, a, inverse)
                found |= group << np.uint64(start)
            masks[t, i] = found


@kernel(error_model="numpy")
def mark_unsound(rows, d, least):
    """Overwrite packed matrices that are not safely positive definite with NaN, so that they have no friends.

    A matrix is safe if its diagonal is in [2**-400, 2**400] and its correlation matrix minus `least` times the identity
    factors with positive pivots. Each matrix is judged by itself.
    """
    a = np.empty((d, d), np.float64)
    for n in range(len(rows)):
        row = rows[n]
        sound = True
        for i in range(d):
            diagonal = row[i * (i + 3) // 2]
            sound = sound and diagonal >= 1.0 / _LARGEST and diagonal <= _LARGEST
        for i in range(d):
            for k in range(i + 1):
                scale = np.sqrt(row[i * (i + 3) // 2]) * np.sqrt(row[k * (k + 3) // 2])
                a[i, k] = row[i * (i + 1) // 2 + k] / scale if i != k else 1.0 - least
                for j in range(k):
                    a[i, k] -= a[i, j] * a[k, j] * a[j, j]
                if k < i:
                    a[i, k] /= a[k, k]
            sound = sound and a[i, i] > 0.0
        if not sound:
            row[:] = np.nan
