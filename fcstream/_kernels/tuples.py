"""Tuples of lattice points in lanes: which pairs are certain friends by distances between points of the same number.

A tile array has shape (tiles, k * d, LANES): one tuple per lane, coordinate c of its point j in row j * d + c,
integers held as float64. Coordinates are at most 2**40 in size, so differences are exact; a sum of squares is exact up
to 2**53 and monotone above it, in any order and with or without fused multiply-add.

Pairs are decided in two steps, the second for those that the first leaves open:

1. by distances from a pivot tuple and the triangle inequality, without reading a coordinate: friends and others;
2. by distances between points of the same number. Points are numbered by their nearest pivot point, so that close
   tuples are numbered alike. For ordered tuples that is the predicate. For a match it finds certain friends, and
   `tuple_matching` decides the pairs that are still open.

Pivot and numbering change only the speed: both steps keep a slack far above rounding, so no result depends on them.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .vectors import HAS_AVX512, WIDTH, Squares, add_bits, load, splat, sum_loop

LANES = 64
_ROWS = 4
# Number of vectors of lanes held at once, by the number of registers: 4 x 4 sums fill AVX-512, 4 x 1 AVX2.
_VECTORS = 4 if HAS_AVX512 else 1
_SLACK = 1e-9  # relative; rounding stays below 1e-11 for d < 2**16
UPPER, LOWER, OUTER, ROOM = 0, 1, 2, 3  # columns of bounds, see `number`


def _within(rows: int):  # type: ignore[no-untyped-def]
    """Make an intrinsic that compares point j of some tuples with point j of a tile's tuples.

    Arguments: tuples (m, k * d) float64, chosen (n,) int64 and a position in it: the rows are chosen[at], ...; j, d,
    tiles, tile, limits (m, k) float64, close (m,) uint64. Lanes beyond limits[row, j] are taken out of close[row].
    """

    @intrinsic
    def within(typing_context, tuples, chosen, at, j, d, tiles, tile, limits, close):
        signature = types.void(tuples, chosen, at, j, d, tiles, tile, limits, close)

        def codegen(context, builder, signature, arguments):
            i64 = ir.IntType(64)
            data, shape = {}, {}
            for k in (0, 1, 5, 7, 8):
                array = context.make_array(signature.args[k])(context, builder, arguments[k])
                data[k], shape[k] = array.data, cgutils.unpack_tuple(builder, array.shape)
            at, j, d, tile = arguments[2], arguments[3], arguments[4], arguments[6]
            width, offset = shape[0][1], builder.mul(j, d)
            chosen = [builder.load(builder.gep(data[1], [builder.add(at, i64(r))])) for r in range(rows)]
            points_at = [builder.gep(data[0], [builder.add(builder.mul(row, width), offset)]) for row in chosen]
            tile_at = builder.gep(data[5], [builder.mul(builder.add(builder.mul(tile, width), offset), i64(LANES))])
            limits = [
                builder.load(builder.gep(data[7], [builder.add(builder.mul(row, shape[7][1]), j)])) for row in chosen
            ]
            found = [i64(0)] * rows
            for start in range(0, LANES, WIDTH * _VECTORS):
                totals = sum_loop(builder, points_at, tile_at, d, i64(start), _VECTORS, Squares(), LANES)
                for r in range(rows):
                    limit = splat(builder, limits[r])
                    for v in range(_VECTORS):
                        bits = builder.fcmp_ordered("<=", totals[r][v], limit)
                        found[r] = add_bits(builder, found[r], bits, i64(start + v * WIDTH))
            for r in range(rows):
                close_at = builder.gep(data[8], [chosen[r]])
                builder.store(builder.and_(builder.load(close_at), found[r]), close_at)
            return context.get_dummy_value()

        return signature, codegen

    return within


def _lanes_that_are(comparison: str):  # type: ignore[no-untyped-def]
    """Make an intrinsic that gives one bit per lane: table[which, lane] < (or >) value, for table (rows, LANES)
    float64.
    """

    @intrinsic
    def lanes_that_are(typing_context, table, which, value):
        signature = types.uint64(table, which, value)

        def codegen(context, builder, signature, arguments):
            i64 = ir.IntType(64)
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            row_at = builder.gep(array.data, [builder.mul(arguments[1], i64(LANES))])
            limit, found = splat(builder, arguments[2]), i64(0)
            for start in range(0, LANES, WIDTH):
                lanes = load(builder, row_at, i64(start))
                found = add_bits(builder, found, builder.fcmp_ordered(comparison, lanes, limit), i64(start))
            return found

        return signature, codegen

    return lanes_that_are


_within_rows = _within(_ROWS)
_within_row = _within(1)
_lanes_below = _lanes_that_are("<")
_lanes_above = _lanes_that_are(">")


@kernel
def _squared_distance(x, i, y, j, d):
    """Compute the squared distance of the points i and j of two flat tuples."""
    a, b = x[i * d : (i + 1) * d], y[j * d : (j + 1) * d]
    total = 0.0
    for c in range(d):
        diff = a[c] - b[c]
        total += diff * diff
    return total


@kernel
def _reaches(x, gamma, radius2, near, far):
    """Bound how far point i of a flat tuple may be from its partner in another.

    Nearer than near[i], for all i, the tuples certainly match; with one farther than far[i] they certainly do not. Let
    s be the distance of x_i from the tuple's nearest other point, and a_i that of its partner. If a_i < s * gamma / (1
    + gamma) for all i, there is a match, because every other point is at least s - a away. In a match a_i < s * gamma /
    (1 - gamma), because every other point is at most s + a away.
    """
    k = len(near)
    radius = math.sqrt(radius2)
    near[:] = math.inf
    for i in range(k):
        for j in range(i):
            distance = _squared_distance(x, i, x, j, len(x) // k)
            near[i], near[j] = min(near[i], distance), min(near[j], distance)
    for i in range(k):
        closest = math.sqrt(near[i])
        near[i] = min(closest * (gamma / (1.0 + gamma)), radius) * (1.0 - _SLACK)
        far[i] = (min(closest * (gamma / (1.0 - gamma)), radius) if gamma < 1.0 else radius) * (1.0 + _SLACK)


@kernel
def _numbers(x, pivot, scale, ordered, numbers, away):
    """Find the number of the pivot point nearest to each point, and its distance in that pivot point's unit: away (k,).

    scale (k,) is 1 / unit**2. Returns whether all numbers differ; those of equal points do not.
    """
    k, distinct = len(scale), True
    for i in range(k):
        away[i] = math.inf
        for j in range(i if ordered else 0, i + 1 if ordered else k):
            distance = _squared_distance(x, i, pivot, j, len(x) // k) * scale[j]
            if distance < away[i]:
                away[i], numbers[i] = distance, j
        away[i] = math.sqrt(away[i])
        for j in range(i):
            distinct = distinct and numbers[j] != numbers[i]
    return distinct


@kernel
def number(tuples, pivot, radii2, gamma, radius2, bounds, limits):
    """Prepare new tuples (m, k * d): number their points like the pivot's (k * d,) and bound their distance from it.

    gamma > 0 for a match (then every matched pair must be within radius2, may be inf, and points are moved), 0 for
    ordered tuples (point j within radii2[j], nothing is moved). Fills bounds (m, 4) and limits (m, k): two tuples are
    friends if UPPER of one < ROOM of the other, not friends if LOWER of one > OUTER of the other, and friends if all
    points of the same number are within the limits of one (ordered: exactly then).
    """
    k, width = len(radii2), tuples.shape[1]
    near, far, units, away = np.sqrt(radii2), np.sqrt(radii2), np.sqrt(radii2), np.empty(k, np.float64)
    numbers, copy = np.empty(k, np.int64), np.empty(width, np.float64)
    if gamma > 0.0:
        _reaches(pivot, gamma, radius2, units, far)
        units = np.maximum(units, 1.0)
    scale = 1.0 / (units * units)
    for t in range(len(tuples)):
        x = tuples[t]
        if gamma > 0.0:
            _reaches(x, gamma, radius2, near, far)
        like = _numbers(x, pivot, scale, gamma == 0.0, numbers, away)
        bounds[t, UPPER] = bounds[t, LOWER] = bounds[t, OUTER] = 0.0
        bounds[t, ROOM] = math.inf
        copy[:] = x
        for i in range(k):
            j = numbers[i]
            bounds[t, UPPER] = max(bounds[t, UPPER], away[i] * (1.0 + _SLACK))
            bounds[t, LOWER] = max(bounds[t, LOWER], away[i] * (1.0 - _SLACK))
            bounds[t, OUTER] = max(bounds[t, OUTER], (away[i] + far[i] / units[j]) * (1.0 + _SLACK))
            bounds[t, ROOM] = min(bounds[t, ROOM], near[i] / units[j] * (1.0 - _SLACK))
            limits[t, j] = near[i] * near[i] if gamma > 0.0 else radii2[j]
            if like:
                x[j * (width // k) : (j + 1) * (width // k)] = copy[i * (width // k) : (i + 1) * (width // k)]
        bounds[t, ROOM] -= bounds[t, UPPER]
        if not like:
            bounds[t, UPPER], bounds[t, ROOM], limits[t, 0] = math.inf, -math.inf, -1.0


@kernel
def _by_pivot(bounds, row, tile_bounds, tile, lanes):
    """Find certain friends among the first `lanes` of a tile, and its undecided lanes: two words of bits."""
    table = tile_bounds[tile]
    friends = _lanes_below(table, UPPER, bounds[row, ROOM])
    strangers = _lanes_above(table, LOWER, bounds[row, OUTER]) | _lanes_below(table, OUTER, bounds[row, LOWER])
    valid = ~np.uint64(0) if lanes >= LANES else (np.uint64(1) << np.uint64(lanes)) - np.uint64(1)
    return friends, valid & ~(friends | strangers)


@kernel
def _by_number(tuples, limits, tiles, tile, asked, count, close):
    """Remove from close (m,) the lanes with a point beyond the limit of the same point of the rows in `asked`."""
    k = limits.shape[1]
    d = tuples.shape[1] // k
    at = 0
    while at + _ROWS <= count:
        for j in range(k):
            _within_rows(tuples, asked, at, j, d, tiles, tile, limits, close)
            if close[asked[at]] | close[asked[at + 1]] | close[asked[at + 2]] | close[asked[at + 3]] == 0:
                break
        at += _ROWS
    while at < count:
        for j in range(k):
            _within_row(tuples, asked, at, j, d, tiles, tile, limits, close)
            if close[asked[at]] == 0:
                break
        at += 1


@kernel
def compare(tuples, bounds, limits, tiles, tile_bounds, used, first, masks, undecided):
    """Fill masks and undecided, both (tiles, m) uint64, for numbered tuples (m, k * d) against the first `used` lanes.

    Row i is compared with the lanes below first + i only; entries of tiles beyond these are left unchanged. bounds (m,
    4) and limits (m, k): see `number`; tile_bounds (tiles, 4, LANES) are those of the lanes. A bit of masks is a
    certain friend, one of undecided an open pair; for ordered tuples an open pair is not a friend.
    """
    m = len(tuples)
    close, asked = np.empty(m, np.uint64), np.empty(m, np.int64)
    for t in range((used + LANES - 1) // LANES):
        count = 0
        for i in range(max(0, t * LANES - first + 1), m):
            masks[t, i], rest = _by_pivot(bounds, i, tile_bounds, t, min(used, first + i) - t * LANES)
            undecided[t, i] = rest
            if rest != 0 and limits[i, 0] >= 0.0:
                close[i], asked[count] = rest, i
                count += 1
        _by_number(tuples, limits, tiles, t, asked, count, close)
        for n in range(count):
            i = asked[n]
            masks[t, i] |= close[i]
            undecided[t, i] &= ~close[i]
