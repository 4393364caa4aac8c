"""Hamming distances of packed bits: exclusive or, population count, 64 items per tile.

The inner block is LLVM vector code: it compares a few rows with a few vectors of lanes and keeps all sums in registers.
On machines without a vector population count LLVM replaces it by a table look-up.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64
_WIDTH = 8  # uint64 in a vector
_ROWS = 4
_VECTORS = 4 if llvm.get_host_cpu_features().get("avx512f", False) else 1


def _block(rows: int):  # type: ignore[no-untyped-def]
    """Make an intrinsic that compares `rows` consecutive rows with one tile.

    Arguments: items (m, words) uint64 C, first row, tiles (t, words, LANES) uint64 C, tile, limit,
    masks (t, m) uint64: bit j of masks[tile, row] becomes distance(row, lane j) <= limit.
    """

    @intrinsic
    def block(typing_context, items, row, tiles, tile, limit, masks):
        signature = types.void(items, row, tiles, tile, limit, masks)

        def codegen(context, builder, signature, arguments):
            i32, i64 = ir.IntType(32), ir.IntType(64)
            vector = ir.VectorType(i64, _WIDTH)
            ones = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector]), f"llvm.ctpop.v{_WIDTH}i64"
            )
            arrays = {k: context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 2, 5)}
            m, words = cgutils.unpack_tuple(builder, arrays[0].shape)
            row_at = [
                builder.gep(arrays[0].data, [builder.mul(builder.add(arguments[1], i64(r)), words)])
                for r in range(rows)
            ]
            tile_at = builder.gep(arrays[2].data, [builder.mul(arguments[3], builder.mul(words, i64(LANES)))])

            def splat(value):
                one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, i32(0))
                order = ir.Constant(ir.VectorType(i32, _WIDTH), [0] * _WIDTH)
                return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), order)

            def sums_from(start):
                before = builder.block
                loop, after = builder.append_basic_block("words"), builder.append_basic_block("counted")
                builder.branch(loop)
                builder.position_at_end(loop)
                k = builder.phi(i64)
                k.add_incoming(i64(0), before)
                sums = [[builder.phi(vector) for _ in range(_VECTORS)] for _ in range(rows)]
                lane_at = builder.gep(tile_at, [builder.add(builder.mul(k, i64(LANES)), i64(start))])
                lanes = []
                for v in range(_VECTORS):
                    at = builder.bitcast(builder.gep(lane_at, [i64(v * _WIDTH)]), vector.as_pointer())
                    lanes.append(builder.load(at))
                    lanes[-1].align = 8
                totals = []
                for r in range(rows):
                    x = splat(builder.load(builder.gep(row_at[r], [k])))
                    totals.append([])
                    for v in range(_VECTORS):
                        sums[r][v].add_incoming(ir.Constant(vector, [0] * _WIDTH), before)
                        total = builder.add(sums[r][v], builder.call(ones, [builder.xor(x, lanes[v])]))
                        sums[r][v].add_incoming(total, loop)
                        totals[-1].append(total)
                following = builder.add(k, i64(1))
                k.add_incoming(following, loop)
                builder.cbranch(builder.icmp_signed("<", following, words), loop, after)
                builder.position_at_end(after)
                return totals

            bound = splat(arguments[4])
            found = [i64(0)] * rows
            for start in range(0, LANES, _WIDTH * _VECTORS):
                totals = sums_from(start)
                for r in range(rows):
                    for v in range(_VECTORS):
                        close = builder.bitcast(builder.icmp_unsigned("<=", totals[r][v], bound), ir.IntType(_WIDTH))
                        shifted = builder.shl(builder.zext(close, i64), i64(start + v * _WIDTH))
                        found[r] = builder.or_(found[r], shifted)
            mask_at = builder.gep(arrays[5].data, [builder.add(builder.mul(arguments[3], m), arguments[1])])
            for r in range(rows):
                builder.store(found[r], builder.gep(mask_at, [i64(r)]))
            return context.get_dummy_value()

        return signature, codegen

    return block


_compare_rows = _block(_ROWS)
_compare_row = _block(1)


@njit(cache=True, nogil=True)
def compare(items, tiles, used, first, limit, masks):
    """Fill masks (tiles, m) uint64 for items (m, words) against the first `used` lanes.

    Row i is compared with the lanes below first + i only; masks of tiles beyond these are left unchanged. limit is an
    int64 >= 0.
    """
    m = len(items)
    for t in range((used + LANES - 1) // LANES):
        i = max(0, t * LANES - first + 1)
        while i + _ROWS <= m:
            _compare_rows(items, i, tiles, t, limit, masks)
            i += _ROWS
        while i < m:
            _compare_row(items, i, tiles, t, limit, masks)
            i += 1
