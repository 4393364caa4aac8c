"""LLVM's vectors for kernels on tuples: 64 tuples side by side, one a lane, and one bit of a word for each."""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir

LANES = 64
WIDTH = 8  # float64 in a vector; on narrower machines LLVM splits it
IS_WIDE: bool = llvm.get_host_cpu_features().get("avx512f", False)
"""Whether there are 32 registers that hold a vector, or 16 that hold half of one."""


def splat(builder, value):  # type: ignore[no-untyped-def]
    """A vector whose lanes all hold `value`."""
    vector, i32 = ir.VectorType(ir.DoubleType(), WIDTH), ir.IntType(32)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, i32(0))
    return builder.shuffle_vector(
        one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(i32, WIDTH), [0] * WIDTH)
    )


def vector_at(builder, address, offset):  # type: ignore[no-untyped-def]
    """Pointer to the vector that starts `offset` numbers after an address."""
    return builder.bitcast(builder.gep(address, [offset]), ir.VectorType(ir.DoubleType(), WIDTH).as_pointer())


def add_bits(builder, word, bits, shift):  # type: ignore[no-untyped-def]
    """A word with the bits of a vector put in from bit `shift` on."""
    i64 = ir.IntType(64)
    return builder.or_(word, builder.shl(builder.zext(builder.bitcast(bits, ir.IntType(WIDTH)), i64), shift))


def sum_loop(builder, points_at, tile_at, dimension, vectors):  # type: ignore[no-untyped-def]
    """Squared distances of some points from some vectors of lanes: sums[point][vector], kept in registers."""
    i64, vector = ir.IntType(64), ir.VectorType(ir.DoubleType(), WIDTH)
    before = builder.block
    loop, after = builder.append_basic_block("coordinates"), builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    c = builder.phi(i64)
    c.add_incoming(i64(0), before)
    sums = [[builder.phi(vector) for _ in range(vectors)] for _ in points_at]
    base = builder.mul(c, i64(LANES))
    lanes = []
    for v in range(vectors):
        lanes.append(builder.load(vector_at(builder, tile_at, builder.add(base, i64(v * WIDTH)))))
        lanes[-1].align = 8
    totals = []
    for point_at, phis in zip(points_at, sums, strict=True):
        x = splat(builder, builder.load(builder.gep(point_at, [c])))
        totals.append([])
        for lane, phi in zip(lanes, phis, strict=True):
            diff = builder.fsub(lane, x)
            square = builder.fmul(diff, diff, flags=("contract",))
            total = builder.fadd(phi, square, flags=("contract",))
            phi.add_incoming(ir.Constant(vector, [0.0] * WIDTH), before)
            phi.add_incoming(total, loop)
            totals[-1].append(total)
    following = builder.add(c, i64(1))
    c.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, dimension), loop, after)
    builder.position_at_end(after)
    return totals
