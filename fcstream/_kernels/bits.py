"""Hamming distances of packed bits: exclusive or, population count, 64 items per tile.

The inner block is LLVM vector code: it compares a few rows with a few vectors of lanes and keeps all sums in registers.
On machines without a vector population count LLVM replaces it by a table look-up.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .vectors import HAS_AVX512, WIDTH, WORDS, Differences, add_bits, splat, sum_loop

LANES = 64
_ROWS = 4
_VECTORS = 4 if HAS_AVX512 else 1


def _block(rows: int):  # type: ignore[no-untyped-def]
    """Make an intrinsic that compares `rows` consecutive rows with one tile.

    Arguments: items (m, words) uint64 C, first row, tiles (t, words, LANES) uint64 C, tile, limit,
    masks (t, m) uint64: bit j of masks[tile, row] becomes distance(row, lane j) <= limit.
    """

    @intrinsic
    def block(typing_context, items, row, tiles, tile, limit, masks):
        signature = types.void(items, row, tiles, tile, limit, masks)

        def codegen(context, builder, signature, arguments):
            i64 = ir.IntType(64)
            arrays = {k: context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 2, 5)}
            m, words = cgutils.unpack_tuple(builder, arrays[0].shape)
            row_at = [
                builder.gep(arrays[0].data, [builder.mul(builder.add(arguments[1], i64(r)), words)])
                for r in range(rows)
            ]
            tile_at = builder.gep(arrays[2].data, [builder.mul(arguments[3], builder.mul(words, i64(LANES)))])

            bound = splat(builder, arguments[4], WORDS)
            found = [i64(0)] * rows
            for start in range(0, LANES, WIDTH * _VECTORS):
                totals = sum_loop(builder, row_at, tile_at, words, i64(start), _VECTORS, Differences(), LANES)
                for r in range(rows):
                    for v in range(_VECTORS):
                        close = builder.icmp_unsigned("<=", totals[r][v], bound)
                        found[r] = add_bits(builder, found[r], close, i64(start + v * WIDTH))
            mask_at = builder.gep(arrays[5].data, [builder.add(builder.mul(arguments[3], m), arguments[1])])
            for r in range(rows):
                builder.store(found[r], builder.gep(mask_at, [i64(r)]))
            return context.get_dummy_value()

        return signature, codegen

    return block


_compare_rows = _block(_ROWS)
_compare_row = _block(1)


@kernel
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
