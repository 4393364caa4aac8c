"""Rows of an array: which lie within public ranges, and their lattice points in tiles (see `pairs` for the layout)."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .blocks import LANES
from .vectors import load, store


@kernel
def mark_inside(points, low, high, inside):
    """Mark the points (n, d) all of whose numbers are in [low, high] (d,), in inside (n,) bool; returns how many."""
    count = 0
    for i in range(len(points)):
        point = points[i]
        beyond = 0
        for k in range(len(point)):
            beyond += not ((point[k] >= low[k]) & (point[k] <= high[k]))  # a NaN is in no range
        inside[i] = beyond == 0
        count += beyond == 0
    return count


@kernel
def mark_rows_inside(rows, origins, scales, step, low, high, inside):
    """Mark the rows (n, d) all of whose lattice numbers are in [low, high] (d,), in inside (n,) bool; returns how many.

    origins, scales (d,); lattice numbers as in `encode`.
    """
    count = 0
    plain = _is_plain(origins, scales)
    for i in range(len(rows)):
        row = rows[i]
        beyond = 0
        if plain:
            for k in range(len(row)):
                at = np.rint(row[k] / step)
                beyond += not ((at >= low[k]) & (at <= high[k]))  # a NaN is in no range
        else:
            for k in range(len(row)):
                at = np.rint((row[k] - origins[k]) / scales[k] / step)
                beyond += not ((at >= low[k]) & (at <= high[k]))
        inside[i] = beyond == 0
        count += beyond == 0
    return count


@kernel
def _is_plain(origins, scales):
    """Tell whether x - 0 and x / 1 are x, so that one division is left."""
    plain = True
    for k in range(len(origins)):
        plain = plain and origins[k] == 0.0 and scales[k] == 1.0
    return plain


@intrinsic
def _turn(typing_context, rows, row, column, tile, lane):
    """Copy 4 numbers of 4 rows (m, d) float64 C, from a row and a column on, to lanes of a tile (d, LANES)."""

    def codegen(context, builder, signature, arguments):
        i64, four, i32 = ir.IntType(64), ir.VectorType(ir.DoubleType(), 4), ir.IntType(32)
        source, target = (context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 3))
        width = cgutils.unpack_tuple(builder, source.shape)[1]

        def mixed(one, other, order):
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(i32, 4), order))

        given = [
            load(
                builder,
                source.data,
                builder.add(builder.mul(builder.add(arguments[1], i64(r)), width), arguments[2]),
                four,
            )
            for r in range(4)
        ]
        even = [mixed(given[r], given[r + 1], [0, 4, 2, 6]) for r in (0, 2)]
        odd = [mixed(given[r], given[r + 1], [1, 5, 3, 7]) for r in (0, 2)]
        turned = [mixed(*each, [0, 1, 4, 5]) for each in (even, odd)] + [
            mixed(*each, [2, 3, 6, 7]) for each in (even, odd)
        ]
        for c, vector in enumerate(turned):
            place = builder.add(builder.mul(builder.add(arguments[2], i64(c)), i64(LANES)), arguments[4])
            store(builder, vector, target.data, place)
        return context.get_dummy_value()

    return types.void(rows, row, column, tile, lane), codegen


@kernel
def encode(rows, origins, scales, step, tiles):
    """Put rows (m, d) into tiles, as the lattice points rint(((row - origins) / scales) / step): free lanes get +inf.

    origins, scales (d,); tiles has room for m lanes, and no tile more than it needs. Three operations and a rounding an
    entry, as in `Grid.points`.
    """
    d = rows.shape[1]
    plain = _is_plain(origins, scales)
    points = np.empty((LANES, d), np.float64)
    for t in range(len(tiles)):
        tile, first = tiles[t], t * LANES
        used = min(LANES, len(rows) - first)
        for j in range(used):
            row, point = rows[first + j], points[j]
            if plain:
                for k in range(d):
                    point[k] = np.rint(row[k] / step)
            else:
                for k in range(d):
                    point[k] = np.rint((row[k] - origins[k]) / scales[k] / step)
        points[used:] = np.inf
        whole = d - d % 4
        for j in range(0, LANES, 4):
            for k in range(0, whole, 4):
                _turn(points, j, k, tile, j)
        for k in range(whole, d):
            for j in range(LANES):
                tile[k, j] = points[j, k]
