"""LLVM vector code that kernels share: loads, stores, one value in all lanes, sums over coordinates in registers.

A tile holds one item per lane: number k of lane j is at k * lanes + j. What is shared here is built into every kernel
that uses it, so a change here compiles those anew: see `kernel`.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config
from numba.core import cgutils


def _target_features() -> set[str]:
    """Return the features of the processor for which Numba compiles."""
    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        found = {name for name, present in llvm.get_host_cpu_features().items() if present}
    else:
        found = {part[1:] for part in (config.CPU_FEATURES or "").split(",") if part.startswith("+")}
    return found if config.ENABLE_AVX else {name for name in found if not name.startswith("avx")}


WIDTH = 8  # numbers of 64 bits in a vector; on narrower machines LLVM splits it
DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)
WORDS = ir.VectorType(ir.IntType(64), WIDTH)
FEATURES = _target_features()
HAS_AVX512 = "avx512f" in FEATURES


def splat(builder, value, vector=DOUBLES):  # type: ignore[no-untyped-def]
    """Make a vector whose lanes all hold `value`."""
    i32 = ir.IntType(32)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, i32(0))
    return builder.shuffle_vector(
        one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(i32, vector.count), [0] * vector.count)
    )


def load(builder, base, offset, vector=DOUBLES, align=8):  # type: ignore[no-untyped-def]
    """Load the vector that starts `offset` numbers after an address."""
    loaded = builder.load(builder.bitcast(builder.gep(base, [offset]), vector.as_pointer()))
    loaded.align = align
    return loaded


def store(builder, value, base, offset, align=8):  # type: ignore[no-untyped-def]
    """Put a vector where `load` finds it."""
    stored = builder.store(value, builder.bitcast(builder.gep(base, [offset]), value.type.as_pointer()))
    stored.align = align


def add_bits(builder, word, bits, shift):  # type: ignore[no-untyped-def]
    """Put the bits of a vector into a word from bit `shift` on."""
    i64 = ir.IntType(64)
    return builder.or_(word, builder.shl(builder.zext(builder.bitcast(bits, ir.IntType(bits.type.count)), i64), shift))


def sum_loop(builder, row_at, tile_at, length, start, vectors, step, lanes, begin=0, sums=None):  # type: ignore[no-untyped-def]
    """Apply step(sums, row value, lanes) over the numbers of some rows, for some vectors of lanes from `start` on.

    Rows have `length` numbers, a tile has `lanes` lanes. The loop goes from number `begin` to the last one, which must
    not come before it, and adds to sums[row][vector], or to 0. The sums are kept in registers; `step` also has the
    vector types, see `Squares`. Returns sums[row][vector].
    """
    i64 = ir.IntType(64)
    begin = i64(begin) if isinstance(begin, int) else begin
    given = sums or [[ir.Constant(step.vector, None)] * vectors for _ in row_at]
    before = builder.block
    loop, after = builder.append_basic_block("coordinates"), builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(i64)
    k.add_incoming(begin, before)
    sums = [[builder.phi(step.vector) for _ in range(vectors)] for _ in row_at]
    offset = builder.add(builder.mul(k, i64(lanes)), start)
    columns = [
        load(builder, tile_at, builder.add(offset, i64(v * step.vector.count)), step.vector, step.align)
        for v in range(vectors)
    ]
    results = []
    for row, phis, firsts in zip(row_at, sums, given, strict=True):
        x = splat(builder, builder.load(builder.gep(row, [k])), step.vector)
        results.append([])
        for column, phi, first in zip(columns, phis, firsts, strict=True):
            phi.add_incoming(first, before)
            total = step(builder, phi, x, column)
            phi.add_incoming(total, loop)
            results[-1].append(total)
    following = builder.add(k, i64(1))
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, length), loop, after)
    builder.position_at_end(after)
    return results


class Squares:
    """Adds (lane - x)**2 to a sum in float64."""

    vector, align = DOUBLES, 8

    def __call__(self, builder, total, x, lane):  # type: ignore[no-untyped-def]
        diff = builder.fsub(lane, x)
        return builder.fadd(total, builder.fmul(diff, diff, flags=("contract",)), flags=("contract",))


class Differences:
    """Adds the number of bits in which a lane differs from x to a sum."""

    vector, align = WORDS, 8

    def __call__(self, builder, total, x, lane):  # type: ignore[no-untyped-def]
        kind = ir.FunctionType(self.vector, [self.vector])
        ones = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{WIDTH}i64")
        return builder.add(total, builder.call(ones, [builder.xor(x, lane)]))
