"""Pair counting: rows of lattice points against tiles of them.

A tile array has shape (tiles, d, LANES): one point per lane, coordinates are integers held as float64, unused lanes
hold +inf. All coordinate differences and the squared radius are below 2**53, so a sum of squares is exact up to
2**53 and monotone above it, whatever the order and with or without fused multiply-add: ``sum <= radius2`` is the
exact integer predicate. Contraction is allowed here for this reason only.

The inner blocks are LLVM vector code: a few rows against a few vectors of lanes with all sums in registers.
Loops that LLVM vectorizes by itself keep their sums in memory and are two to four times slower.

Where the processor has 8-bit dot products (VNNI), a block is screened first: coordinates rounded to 8 bits decide all
pairs that are not close to the radius, in exact integers, and only vectors of lanes with an undecided pair are compared
again exactly. The counts are the same on every path.
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel
from .vectors import WIDTH, Squares, load, splat, store, sum_loop


def _target_features() -> set[str]:
    """Return the features of the processor for which Numba compiles."""
    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        found = {name for name, present in llvm.get_host_cpu_features().items() if present}
    else:
        found = {part[1:] for part in (config.CPU_FEATURES or "").split(",") if part.startswith("+")}
    return found if config.ENABLE_AVX else {name for name in found if not name.startswith("avx")}


LANES = 32
SCREEN_ROWS = 8
"""Number of rows of a screened block; arrays of rows have as many neutral rows behind the last one of each class."""
_FEATURES = _target_features()
SCREENS = {"avx512f", "avx512bw", "avx512vnni"} <= _FEATURES
"""Whether this processor screens pairs with 8-bit dot products."""
# Rows and vectors of lanes held at once, by the number of registers: 6 x 4 sums fill AVX-512, 4 x 1 (8 halves) AVX2.
_ROWS, _VECTORS = (6, 4) if "avx512f" in _FEATURES else (4, 1)
_CELLS_PER_OCTAVE = 128
_OCTAVES = 40  # from 1/64 of the radius up to 2**34 radii
CELLS = _CELLS_PER_OCTAVE * _OCTAVES
"""Number of cells of a table of ranks."""
_SLACK = 1e-9
_PROBE = 16  # where screening does not pay, every 16th tile is screened, to notice when it pays again


def _add_to(builder, base, offset, value):  # type: ignore[no-untyped-def]
    at = builder.gep(base, [offset])
    builder.store(builder.add(builder.load(at), value), at)


class _Products:
    """Adds four 8-bit products, of unsigned rows with signed lanes, to a sum in int32."""

    vector, align = ir.VectorType(ir.IntType(32), 16), 4

    def __init__(self, first):  # type: ignore[no-untyped-def]
        self._first = first

    def first(self, v):  # type: ignore[no-untyped-def]
        return self._first[v]

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
def _sums_block(typing_context, points, row, tiles, tile, sums):
    """Compute the squared distances of _ROWS consecutive rows from all lanes of one tile: sums (_ROWS, LANES)."""
    signature = types.void(points, row, tiles, tile, sums)

    def codegen(context, builder, signature, arguments):
        i64, step = ir.IntType(64), Squares()
        points, tiles, out = _arrays(context, builder, signature, arguments, 0, 2, 4)
        row_at, dimension = _rows_at(builder, points, arguments[1], _ROWS)
        tile_at = builder.gep(tiles.data, [builder.mul(arguments[3], builder.mul(dimension, i64(LANES)))])
        for start in range(0, LANES, WIDTH * _VECTORS):
            results = sum_loop(builder, row_at, tile_at, dimension, i64(start), _VECTORS, step, LANES)
            for r, row in enumerate(results):
                for v, value in enumerate(row):
                    store(builder, value, out.data, i64(r * LANES + start + v * WIDTH), 8)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _screen_block(typing_context, codes, row, tile_codes, tile, starts, bars, row_counts, lane_counts, target):
    """Count the friends among SCREEN_ROWS rows and one tile that 8 bits decide; returns the vectors of lanes they do
    not.

    codes (m, words) int32, four unsigned bytes each; tile_codes (t, words, LANES) int32, four signed bytes each; starts
    (t, LANES) int32. A pair is a friend if its product sum is at least bars[0, row], and not a friend if it is below
    bars[1, row] (int32). Bit g of the result is set if lanes g * 8 ... g * 8 + 7 hold an undecided pair; none of the
    pairs of these lanes has been counted then.
    """
    signature = types.int64(codes, row, tile_codes, tile, starts, bars, row_counts, lane_counts, target)

    def codegen(context, builder, signature, arguments):
        i64 = ir.IntType(64)
        first_row, tile_index, target = arguments[1], arguments[3], arguments[8]
        rows, tiles, starts, bars, by_row, by_lane = _arrays(context, builder, signature, arguments, 0, 2, 4, 5, 6, 7)
        row_at, words = _rows_at(builder, rows, first_row, SCREEN_ROWS)
        tile_at = builder.gep(tiles.data, [builder.mul(tile_index, builder.mul(words, i64(LANES)))])
        vector = _Products.vector
        base = builder.mul(tile_index, i64(LANES))
        first = [load(builder, starts.data, builder.add(base, i64(16 * v)), vector, 4) for v in range(2)]
        sums = sum_loop(builder, row_at, tile_at, words, i64(0), 2, _Products(first), LANES)
        friends, maybes, bar_rows = [], [], cgutils.unpack_tuple(builder, bars.shape)[1]
        for r, row in enumerate(sums):
            at = builder.add(first_row, i64(r))
            for masks, bar in ((friends, at), (maybes, builder.add(at, bar_rows))):
                bound = splat(builder, builder.load(builder.gep(bars.data, [bar])), vector)
                masks.append([builder.icmp_signed(">=", value, bound) for value in row])
        counts = builder.gep(by_lane.data, [builder.mul(target, i64(LANES))])
        result = cgutils.alloca_once_value(builder, i64(0))
        some = [functools.reduce(builder.or_, [row[v] for row in maybes]) for v in range(2)]
        some = builder.bitcast(builder.or_(*some), ir.IntType(16))
        # Most blocks lie far inside or far outside the radius, so that all of their pairs are friends or none is.
        with builder.if_then(builder.icmp_unsigned("!=", some, ir.IntType(16)(0))):
            every = [functools.reduce(builder.and_, [row[v] for row in friends]) for v in range(2)]
            every = builder.bitcast(builder.and_(*every), ir.IntType(16))
            with builder.if_else(builder.icmp_unsigned("==", every, ir.IntType(16)(-1))) as (then, otherwise):
                with then:
                    _add_all(builder, by_row.data, first_row, counts)
                with otherwise:
                    doubts = [
                        functools.reduce(
                            builder.or_, [builder.xor(f[v], m[v]) for f, m in zip(friends, maybes, strict=True)]
                        )
                        for v in range(2)
                    ]
                    undecided = [_part(builder, doubts[g // 2], g % 2) for g in range(4)]
                    clean = [_spread(builder, undecided[2 * v : 2 * v + 2]) for v in range(2)]
                    masks = [[builder.and_(row[v], clean[v]) for v in range(2)] for row in friends]
                    _tally(builder, masks, by_row.data, first_row, counts, i64(0))
                    for g, bit in enumerate(undecided):
                        bit = builder.shl(builder.zext(bit, i64), i64(g))
                        builder.store(builder.or_(builder.load(result), bit), result)
        return builder.load(result)

    return signature, codegen


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


@intrinsic
def _bits(typing_context, value):
    """Return the bits of a float64 as an integer, which ascends with the value from 0 on."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), codegen


_count_rows = _counting_block(_ROWS, _VECTORS, LANES)
_count_row = _counting_block(1, min(_VECTORS, 4), LANES)
_count_part = _counting_block(SCREEN_ROWS, 1, WIDTH)


@kernel
def count_exactly(rows, start, stop, tiles, tile, radius2, row_counts, lane_counts, target):
    """Compare rows start..stop, and no others, with one tile; adds friends to row_counts and LANES of lane_counts."""
    i = start
    while i + _ROWS <= stop:
        _count_rows(rows, i, tiles, tile, 0, radius2, row_counts, lane_counts, target)
        i += _ROWS
    while i < stop:
        _count_row(rows, i, tiles, tile, 0, radius2, row_counts, lane_counts, target)
        i += 1


@kernel
def _screen(rows, start, stop, tiles, tile, radius2, row_counts, lane_counts, target):
    """Screen rows start..stop, and up to 7 rows behind them, against one tile; returns the number of undecided vectors.

    The rows behind must have no friend in the tile. rows: (points, codes, bars) and tiles: (points, codes, starts) as
    of `sweep`.
    """
    points, codes, bars = rows
    tile_points, tile_codes, starts = tiles
    again = 0
    i = start
    while i < stop:
        doubts = _screen_block(codes, i, tile_codes, tile, starts, bars, row_counts, lane_counts, target)
        lane = 0
        while doubts:
            if doubts & 1:
                _count_part(points, i, tile_points, tile, lane, radius2, row_counts, lane_counts, target)
                again += 1
            doubts >>= 1
            lane += WIDTH
        i += SCREEN_ROWS
    return again


@kernel
def _cell(distance, unit):
    """Find the cell of a distance. Cells ascend and have a relative width of 1/128.

    `unit` are the leading bits of the shortest distance that is told apart from 0, see `unit_of`.
    """
    if distance <= 0.0:
        return 0
    return min(max((_bits(distance) >> 45) - unit, 0), CELLS - 1)


@kernel
def unit_of(radius):
    """Compute the `unit` of `_cell` for a radius: 1/64 of the radius is the shortest distance told apart from 0."""
    return _bits(radius / 64.0) >> 45


@kernel
def sort_rows(distances, wide, radius, gap, order, positions, ranks, classes):
    """Sort rows by cell of distance, those not marked in wide (m,) bool first: row order[i] stands at positions[i].

    ranks (2, CELLS + 1) int64: for each class that has rows, and each cell, the position from which on rows lie in that
    cell or a later one; classes (2, 2): see `sweep`. Classes are `gap` positions apart.
    """
    m = len(distances)
    unit = unit_of(radius)
    cells = np.empty(m, np.int64)
    wides = 0
    for i in range(m):
        wides += wide[i]
    members = m - wides, wides
    for c in range(2):
        if members[c]:
            ranks[c] = 0
    for i in range(m):
        c = np.int64(wide[i])
        cells[i] = c * (CELLS + 1) + _cell(distances[i], unit)
        ranks[c, cells[i] - c * (CELLS + 1)] += 1
    at = 0
    for c in range(2):
        classes[c, 0] = at
        for cell in range(CELLS + 1 if members[c] else 0):
            here = ranks[c, cell]
            ranks[c, cell] = at
            at += here
        classes[c, 1] = at
        at += gap
    fill = ranks.copy().reshape(-1)
    narrow = classes[0, 1]
    for i in range(m):
        position = fill[cells[i]]
        fill[cells[i]] += 1
        place = position if position < narrow else position - gap
        order[place] = i
        positions[place] = position


@kernel
def _decide_pairs(rows, start, stop, hard, tiles, tile, screened, radius2, row_counts, lane_counts, target, state):
    """Compare rows start..stop with one tile, by 8-bit products or exactly.

    With `hard`, rows behind these may have friends in the tile, and are not read. rows, tiles: see `_screen`.
    """
    points, tile_points = rows[0], tiles[0]
    end = stop
    if screened:
        if hard:
            end = start + (stop - start) // SCREEN_ROWS * SCREEN_ROWS
        state[1] += _screen(rows, start, end, tiles, tile, radius2, row_counts, lane_counts, target)
        state[0] += (end - start + SCREEN_ROWS - 1) // SCREEN_ROWS * (LANES // WIDTH)
        if state[0] > 1 << 16:
            state[0] >>= 1
            state[1] >>= 1
    else:
        if hard:
            end = start + (stop - start) // _ROWS * _ROWS
        i = start
        while i < end:
            _count_rows(points, i, tile_points, tile, 0, radius2, row_counts, lane_counts, target)
            i += _ROWS
    if end < stop:
        count_exactly(points, end, stop, tile_points, tile, radius2, row_counts, lane_counts, target)


@kernel
def _mask_lanes(tiles, starts, tile, kept, hidden, hidden_starts):
    """Copy a tile into hidden with +inf in its lanes from `kept` on."""
    for k in range(tiles.shape[1]):
        for j in range(kept):
            hidden[0, k, j] = tiles[tile, k, j]
        for j in range(kept, LANES):
            hidden[0, k, j] = np.inf
    if len(starts):
        for j in range(LANES):
            hidden_starts[0, j] = starts[tile, j] if j < kept else -1000000000


@kernel
def sweep(rows, tiles, limits, counts):
    """Compare a batch of rows with tiles; each pair is decided by distances from a pivot, by 8 bits, or exactly.

    rows: (points, codes, bars, classes, ranks). points (m, d) float64, sorted by cell of distance from the pivot within
    each class. Rows of class 0 have codes (m, words) int32 and bars (2, m) int32 (see `_screen_block`), those of class
    1 need none. classes (2, 2) int64: first and last row; behind the last follow SCREEN_ROWS neutral ones. ranks (2,
    CELLS + 1): see `sort_rows`. tiles: (points, codes, starts, spans, shape, self_rows), the first three as of
    `_screen_block`. spans (t, 2) float64: least and largest distance of a tile's points from the pivot; shape (t, 2)
    int32: used lanes and class; self_rows (t, 2) int32: first and last of the batch's rows that are themselves stored
    in the tile's last lanes (first = -1 for none). Two rows of the batch are compared once, the later with the lane of
    the earlier, except within one tile, where both count as rows. limits float64: (radius, its square, more than 0 to
    screen). counts: (row_counts, row_sure, lane_counts, certain_counts, state). Friends are added to row_counts (m,)
    int32 and lane_counts (t * LANES,) int32. Friends that the distances from the pivot make certain are counted for
    whole runs: for rows from a first to a last, the used lanes are added at row_sure[first] and subtracted at
    row_sure[last] (m + 1,), and the number of rows is added to certain_counts (t,) int32 for all lanes. state (4,)
    int64: vectors screened, vectors left undecided, pairs compared, pairs.
    """
    points, codes, bars, classes, ranks = rows
    tile_points, tile_codes, starts, spans, shape, self_rows = tiles
    row_counts, row_sure, lane_counts, certain_counts, state = counts
    near, far, radius2 = limits[0] * (1.0 - _SLACK), limits[0] * (1.0 + _SLACK), limits[1]
    unit = unit_of(limits[0])
    # Share of undecided vectors above which screening costs more than it saves. By measurement a screened pair costs
    # 0.11 of an exact comparison, and as much as ten of its coordinates.
    hopeless = max(0.02, 0.85 - 10.0 / points.shape[1])
    scratch = np.zeros(LANES, np.int32)
    hidden, hidden_starts = np.empty((1, points.shape[1], LANES)), np.empty((1, LANES), np.int32)
    # Of one type wherever they are passed: what is compiled for a literal is compiled once more for a variable.
    zero, one = np.int64(0), np.int64(1)
    for t in range(len(shape)):
        low, high = spans[t, 0] * (1.0 - _SLACK), spans[t, 1] * (1.0 + _SLACK)
        # Rows in cells before cells[0] are friends of all lanes. Those before cells[1], and those from `beyond` on,
        # have no friend among them.
        cells = _cell((near - high) * (1.0 - _SLACK), unit), _cell((low - far) * (1.0 - _SLACK), unit)
        beyond = _cell((high + far) * (1.0 + _SLACK), unit) + 1
        used = shape[t, 0]
        may_screen = limits[2] > 0.0 and shape[t, 1] == 0
        if may_screen and state[1] > hopeless * state[0]:
            may_screen = t % _PROBE == 0
        for c in range(2):
            start, stop = classes[c, 0], classes[c, 1]
            if start == stop:
                continue
            screened = may_screen and c == 0
            surely, first, last = ranks[c, cells[0]], ranks[c, cells[1]], ranks[c, beyond]
            if self_rows[t, 0] >= 0:
                mine, later = np.int64(self_rows[t, 0]), np.int64(self_rows[t, 1])
                kept = used - (later - mine)
                end = min(stop, mine)
                # earlier rows are compared with the tile's older lanes; its new lanes are compared with them as rows
                if kept > 0 and start < end:
                    state[3] += (end - start) * kept
                    friends = min(surely, end)
                    if friends > start:
                        row_sure[start] += kept
                        row_sure[friends] -= kept
                        for j in range(kept):
                            lane_counts[t * LANES + j] += friends - start
                    if max(friends, first) < min(last, end):
                        state[2] += (min(last, end) - max(friends, first)) * kept
                        _mask_lanes(tile_points, starts, t, kept, hidden, hidden_starts)
                        _decide_pairs(
                            (points, codes, bars), max(friends, first), min(last, end), one,
                            (hidden, tile_codes[t : t + 1], hidden_starts), zero, screened, radius2, row_counts,
                            lane_counts[t * LANES :], zero, state,
                        )  # fmt: skip
                if start <= mine < stop:
                    count_exactly(points, mine, later, tile_points, t, radius2, row_counts, scratch, zero)
                    for j in range(LANES):
                        lane_counts[t * LANES + j] += scratch[j] if j < kept else 0
                        scratch[j] = 0
                start = max(start, min(later, stop)) if mine < stop else stop
                if start == stop:
                    continue
            state[3] += (stop - start) * used
            friends = max(start, surely)
            if friends > start:
                row_sure[start] += used
                row_sure[friends] -= used
                certain_counts[t] += friends - start
            first = max(friends, first)
            if first < last:
                state[2] += (last - first) * used
                _decide_pairs(
                    (points, codes, bars), first, last, zero, (tile_points, tile_codes, starts), t, screened, radius2,
                    row_counts, lane_counts, t, state,
                )  # fmt: skip


@kernel
def _extremes(sums, rows, used):
    """Return the least and the largest of the sums of some rows with the used lanes."""
    low, high = np.inf, 0.0
    for r in range(rows):
        line = sums[r]
        for j in range(used):
            low = min(low, line[j])
            high = max(high, line[j])
    return low, high


@kernel
def _first_radius(radii2, value):
    """The first radius that reaches a squared distance; len(radii2) if none does."""
    low, high = 0, len(radii2)
    while low < high:
        middle = (low + high) // 2
        if radii2[middle] >= value:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _add_by_radius(sums, start, stop, used, radii2, row_radii, lane_radii, found, lanes):
    """Add pairs of the rows start..stop with one tile to the first radius that reaches them, on both sides.

    sums (_ROWS, LANES); row_radii (m, radii) int32; lane_radii (radii, LANES) int32; found (_ROWS,) and lanes (LANES,)
    int32 are scratch. Only radii between the least and the largest distance are compared.
    """
    low, high = _extremes(sums, stop - start, used)
    first, last = _first_radius(radii2, low), _first_radius(radii2, high)
    found[:] = 0
    lanes[:] = 0
    for index in range(first, min(last + 1, len(radii2))):
        radius2 = radii2[index]
        radius_lanes = lane_radii[index]
        for j in range(LANES):
            radius_lanes[j] -= lanes[j]
            lanes[j] = 0
        for r in range(stop - start):
            line = sums[r]
            total = np.int32(0)
            for j in range(LANES):
                is_friend = np.int32(line[j] <= radius2)
                total += is_friend
                lanes[j] += is_friend
            row_radii[start + r, index] += total - found[r]
            found[r] = total
        for j in range(LANES):
            radius_lanes[j] += lanes[j]


@kernel
def sweep_radii(rows, stop, tiles, shape, self_rows, radii2, row_radii, lane_radii):
    """Compare the first `stop` rows of a batch with tiles, for many radii at once.

    rows, tiles: points; shape, self_rows: see `sweep`. Rows that are stored in a tile are its last, and none of the
    batch's rows comes before the first of them, except where the tile is new. radii2 (radii,) float64 ascending. A
    pair is added to the first radius that reaches it, in row_radii (m, radii) and lane_radii (t, radii, LANES) int32;
    sums over radii up to one are its friend counts.
    """
    sums = np.empty((_ROWS, LANES))
    found, lanes = np.empty(_ROWS, np.int32), np.empty(LANES, np.int32)
    unused = np.empty((len(radii2), LANES), np.int32)
    for t in range(len(shape)):
        used = shape[t, 0]
        i = max(0, self_rows[t, 0])
        later = self_rows[t, 1] if self_rows[t, 0] >= 0 else i
        kept = used - (later - i)
        while i < stop:
            end = min(i + _ROWS, later if i < later else stop)
            _sums_block(rows, i, tiles, t, sums)
            # the tile's own rows count as rows among themselves, and as any other row for its older lanes
            if i < later:
                unused[:] = 0
                _add_by_radius(sums, i, end, used, radii2, row_radii, unused, found, lanes)
                for index in range(len(radii2)):
                    for j in range(kept):
                        lane_radii[t, index, j] += unused[index, j]
            else:
                _add_by_radius(sums, i, end, used, radii2, row_radii, lane_radii[t], found, lanes)
            i = end


@kernel
def sweep_blocks(rows, row_starts, reach, tiles, tile_blocks, radius2, row_counts, lane_counts):
    """Compare rows with the tiles at most `reach` blocks away on a circle of blocks; adds friends to both counts.

    rows (m, d) float64 sorted by block, those of block b in row_starts[b] : row_starts[b + 1]; tile_blocks (t,) int32;
    row_counts (m,) int32; lane_counts (t * LANES,) int32.
    """
    blocks = len(row_starts) - 1
    for t in range(len(tile_blocks)):
        low, high = tile_blocks[t] - reach, tile_blocks[t] + reach + 1
        if high - low >= blocks:
            low, high = 0, blocks
        first, last = row_starts[max(low, 0)], row_starts[min(high, blocks)]
        count_exactly(rows, first, last, tiles, t, radius2, row_counts, lane_counts, t)
        if low < 0:
            count_exactly(
                rows, row_starts[low + blocks], row_starts[blocks], tiles, t, radius2, row_counts, lane_counts, t
            )
        elif high > blocks:
            count_exactly(rows, 0, row_starts[high - blocks], tiles, t, radius2, row_counts, lane_counts, t)


@kernel
def sweep_fresh(rows, m, row_blocks, row_starts, reach, radius2, row_counts):
    """Compare m rows sorted by block with each other, by the rule of `sweep_blocks`; adds friends, each row itself
    included.

    Behind the last row follow _ROWS neutral ones.
    """
    blocks = len(row_starts) - 1
    tile = np.empty((1, rows.shape[1], LANES))
    sums = np.empty((_ROWS, LANES))
    for base in range(0, m, LANES):
        used = min(LANES, m - base)
        for k in range(rows.shape[1]):
            for j in range(LANES):
                tile[0, k, j] = rows[base + j, k] if j < used else np.inf
        low, high = row_blocks[base] - reach, row_blocks[base + used - 1] + reach + 1
        for part in range(3):  # the blocks in reach, and those across the circle's start on either side
            first, last = max(low, 0), min(high, blocks)
            if part == 1:
                first, last = max(low + blocks, high), blocks
            elif part == 2:
                first, last = 0, min(high - blocks, low)
            if high - low >= blocks:
                first, last = 0, blocks if part == 0 else 0
            if first >= last:
                continue
            stop = row_starts[last]
            for i in range(row_starts[first], stop, _ROWS):
                _sums_block(rows, i, tile, 0, sums)
                for r in range(min(_ROWS, stop - i)):
                    mine = row_blocks[i + r]
                    line = sums[r]
                    friends = 0
                    for j in range(used):
                        away = abs(mine - row_blocks[base + j])
                        near = away <= reach or blocks - away <= reach
                        friends += near and line[j] <= radius2
                    row_counts[i + r] += friends
