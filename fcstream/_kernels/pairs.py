"""Pair counting: rows of lattice points against tiles of them.

A tile array has shape (tiles, d, LANES): one point per lane, coordinates are integers held as float64, unused lanes
hold +inf. All coordinate differences and the squared radius are below 2**53, so a sum of squares is exact up to
2**53 and monotone above it, whatever the order and with or without fused multiply-add: ``sum <= radius2`` is the
exact integer predicate. Contraction is allowed here for this reason only.

Where the processor has 8-bit dot products (VNNI), a block is screened first: coordinates rounded to 8 bits decide all
pairs that are not close to the radius, in exact integers, and only vectors of lanes with an undecided pair are compared
again exactly. The first coordinates alone decide most blocks, because the others can add only as much to a distance as
their norms allow. The counts are the same on every path.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from . import kernel
from .blocks import EARLY, LANES, ROWS, SCREEN_ROWS, count_exactly, count_part, count_rows, screen_block, sums_block
from .vectors import WIDTH

_CELLS_PER_OCTAVE = 128
_OCTAVES = 40  # from 1/64 of the radius up to 2**34 radii
CELLS = _CELLS_PER_OCTAVE * _OCTAVES
"""Number of cells of a table of ranks."""
_SLACK = 1e-9
_TEST = 2  # words whose products cost as much as to see in vain whether a block is decided
_PROBE = 16  # where screening does not pay, every 16th tile is screened, to notice when it pays again


@intrinsic
def _bits(typing_context, value):
    """Return the bits of a float64 as an integer, which ascends with the value from 0 on."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@kernel
def _screen(rows, start, stop, tiles, tile, prefix, radius2, row_counts, lane_counts, target):
    """Screen rows start..stop, and up to 7 rows behind them, against one tile.

    The rows behind must have no friend in the tile. rows: (points, codes, bars) and tiles: (points, codes, starts) as
    of `sweep`; prefix: see `screen_block`. Returns the number of undecided vectors, and that of blocks that the first
    words decided.
    """
    points, codes, bars = rows
    tile_points, tile_codes, starts = tiles
    again = early = 0
    i = start
    while i < stop:
        doubts = screen_block(codes, i, tile_codes, tile, starts, bars, prefix, row_counts, lane_counts, target)
        lane = 0
        if doubts >> EARLY:
            early += 1
            doubts = 0
        while doubts:
            if doubts & 1:
                count_part(points, i, tile_points, tile, lane, radius2, row_counts, lane_counts, target)
                again += 1
            doubts >>= 1
            lane += WIDTH
        i += SCREEN_ROWS
    return again, early


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
    low, high = CELLS, 0
    for i in range(m):
        cell = _cell(distances[i], unit)
        cells[i] = cell
        low, high = min(low, cell), max(high, cell)
    width = max(0, high + 1 - low)
    fill = np.zeros(2 * width, np.int64)  # for both classes and the cells that hold rows: how many, then the next place
    for i in range(m):
        cells[i] += np.int64(wide[i]) * width - low
        fill[cells[i]] += 1
    at = 0
    for c in range(2):
        classes[c, 0] = at
        if members[c]:
            ranks[c, : low + 1] = at
        for cell in range(width if members[c] else 0):
            here = fill[c * width + cell]
            ranks[c, low + cell] = at
            fill[c * width + cell] = at
            at += here
        if members[c]:
            ranks[c, low + width :] = at
        classes[c, 1] = at
        at += gap
    narrow = classes[0, 1]
    for i in range(m):
        position = fill[cells[i]]
        fill[cells[i]] += 1
        place = position if position < narrow else position - gap
        order[place] = i
        positions[place] = position


@kernel
def _note(state, tried, found):
    """Add to a number of trials and of those that found something, and forget half of both now and then."""
    state[0] += tried
    state[1] += found
    if state[0] > 1 << 16:
        state[0] >>= 1
        state[1] >>= 1


@kernel
def _decide_pairs(
    rows, start, stop, hard, tiles, tile, screened, prefix, radius2, row_counts, lane_counts, target, state
):
    """Compare rows start..stop with one tile, by 8-bit products or exactly.

    With `hard`, rows behind these may have friends in the tile, and are not read. rows, tiles, prefix: see `_screen`.
    """
    points, tile_points = rows[0], tiles[0]
    end = stop
    if screened:
        if hard:
            end = start + (stop - start) // SCREEN_ROWS * SCREEN_ROWS
        again, early = _screen(rows, start, end, tiles, tile, prefix, radius2, row_counts, lane_counts, target)
        blocks = (end - start + SCREEN_ROWS - 1) // SCREEN_ROWS
        _note(state[0:2], blocks * (LANES // WIDTH), again)
        _note(state[4:6], blocks * prefix[1], early)
    else:
        if hard:
            end = start + (stop - start) // ROWS * ROWS
        i = start
        while i < end:
            count_rows(points, i, tile_points, tile, 0, radius2, row_counts, lane_counts, target)
            i += ROWS
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
            hidden_starts[0, 0, j] = starts[tile, 0, j] if j < kept else -1000000000
            for i in range(1, 3):
                hidden_starts[0, i, j] = starts[tile, i, j] if j < kept else 0


@kernel
def _cells(spans, tile, near, far, unit):
    """Find the cells that divide the rows by what distances from the pivot decide of their pairs with one tile.

    Rows in cells before the first one are friends of all lanes. Those before the second, and those from the third on,
    have no friend among them.
    """
    low, high = spans[tile, 0] * (1.0 - _SLACK), spans[tile, 1] * (1.0 + _SLACK)
    surely, first = _cell((near - high) * (1.0 - _SLACK), unit), _cell((low - far) * (1.0 - _SLACK), unit)
    return surely, first, _cell((high + far) * (1.0 + _SLACK), unit) + 1


@kernel
def undecided(points, every, pivot, spans, shape, tile_every, radius):
    """Estimate with how many lanes of coded tiles distances from the pivot leave a point's pair undecided, on average.

    Looks at every so many points (m, d), m >= 1, and tiles; spans, shape: see `sweep`.
    """
    found = seen = 0
    for i in range(0, len(points), every):
        row, total = points[i], 0.0
        for k in range(len(pivot)):
            total += (row[k] - pivot[k]) ** 2
        distance = np.sqrt(total)
        for t in range(0, len(shape), tile_every):
            low, high = spans[t, 0], spans[t, 1]
            is_decided = distance + high <= radius or max(distance - high, low - distance) > radius
            found += 0 if is_decided or shape[t, 1] != 0 else shape[t, 0]
        seen += 1
    return found * tile_every / seen


@kernel
def apart(distances, spans, radius):
    """Return whether distances (m,) from a pivot show that no point is a friend of one in tiles with these spans."""
    nearest, farthest = np.inf, 0.0
    for distance in distances:
        nearest, farthest = min(nearest, distance), max(farthest, distance)
    far, slack = radius * (1.0 + _SLACK), 1.0 + 3.0 * _SLACK
    for t in range(len(spans)):
        if nearest <= (spans[t, 1] + far) * slack and spans[t, 0] <= (farthest + far) * slack:
            return False
    return True


@kernel
def sweep(rows, tiles, limits, counts):
    """Compare a batch of rows with tiles; each pair is decided by distances from a pivot, by 8 bits, or exactly.

    rows: (points, codes, bars, classes, ranks). points (m, d) float64, sorted by cell of distance from the pivot within
    each class. Rows of class 0 have codes (m, words) int32 and bars (4, m) int32 (see `screen_block`), those of class
    1 need none. classes (2, 2) int64: first and last row; behind the last follow SCREEN_ROWS neutral ones. ranks (2,
    CELLS + 1): see `sort_rows`. tiles: (points, codes, starts, spans, shape, self_rows), the first three as of
    `screen_block`. spans (t, 2) float64: least and largest distance of a tile's points from the pivot; shape (t, 2)
    int32: used lanes and class; self_rows (t, 2) int32: first and last of the batch's rows that are themselves stored
    in the tile's last lanes (first = -1 for none). Two rows of the batch are compared once, the later with the lane of
    the earlier, except within one tile, where both count as rows. limits float64: (radius, its square, more than 0 to
    screen). counts: (row_counts, row_sure, lane_counts, certain_counts, state). Friends are added to row_counts (m,)
    int32 and lane_counts (t * LANES,) int32. Friends that the distances from the pivot make certain are counted for
    whole runs: for rows from a first to a last, the used lanes are added at row_sure[first] and subtracted at
    row_sure[last] (m + 1,), and the number of rows is added to certain_counts (t,) int32 for all lanes. state (6,)
    int64: vectors screened, vectors left undecided, pairs compared, pairs, blocks that the first words were to decide,
    blocks that they decided.
    """
    points, codes, bars, classes, ranks = rows
    tile_points, tile_codes, starts, spans, shape, self_rows = tiles
    row_counts, row_sure, lane_counts, certain_counts, state = counts
    near, far, radius2 = limits[0] * (1.0 - _SLACK), limits[0] * (1.0 + _SLACK), limits[1]
    unit, words, first_words = unit_of(limits[0]), codes.shape[1], np.int64(limits[3])
    # Share of undecided vectors above which screening costs more than it saves. By measurement a screened pair costs
    # 0.11 of an exact comparison, and as much as ten of its coordinates.
    hopeless = max(0.02, 0.85 - 10.0 / points.shape[1])
    scratch = np.zeros(LANES, np.int32)
    hidden, hidden_starts = np.empty((1, points.shape[1], LANES)), np.empty((1, 3, LANES), np.int32)
    # Of one type wherever they are passed: what is compiled for a literal is compiled once more for a variable.
    zero, one = np.int64(0), np.int64(1)
    for t in range(len(shape)):
        cells = _cells(spans, t, near, far, unit)
        used = shape[t, 0]
        may_screen = limits[2] > 0.0 and shape[t, 1] == 0
        if may_screen and state[1] > hopeless * state[0]:
            may_screen = t % _PROBE == 0
        is_early = words > first_words and (
            t % _PROBE == 0 or state[5] * (words - first_words + _TEST) >= _TEST * state[4]
        )
        prefix = first_words, np.int64(is_early)
        for c in range(2):
            start, stop = classes[c, 0], classes[c, 1]
            if start == stop:
                continue
            screened = may_screen and c == 0
            surely, first, last = ranks[c, cells[0]], ranks[c, cells[1]], ranks[c, cells[2]]
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
                            (hidden, tile_codes[t : t + 1], hidden_starts), zero, screened, prefix, radius2, row_counts,
                            lane_counts[t * LANES :], zero, state,
                        )  # fmt: skip
                if start <= mine < stop:
                    _decide_pairs(
                        (points, codes, bars), mine, later, one, (tile_points, tile_codes, starts), t, screened, prefix,
                        radius2, row_counts, scratch, zero, state,
                    )  # fmt: skip
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
                    (points, codes, bars), first, last, zero, (tile_points, tile_codes, starts), t, screened, prefix,
                    radius2, row_counts, lane_counts, t, state,
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

    sums (ROWS, LANES); row_radii (m, radii) int32; lane_radii (radii, LANES) int32; found (ROWS,) and lanes (LANES,)
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
    sums = np.empty((ROWS, LANES))
    found, lanes = np.empty(ROWS, np.int32), np.empty(LANES, np.int32)
    unused = np.empty((len(radii2), LANES), np.int32)
    for t in range(len(shape)):
        used = shape[t, 0]
        i = max(0, self_rows[t, 0])
        later = self_rows[t, 1] if self_rows[t, 0] >= 0 else i
        kept = used - (later - i)
        while i < stop:
            end = min(i + ROWS, later if i < later else stop)
            sums_block(rows, i, tiles, t, sums)
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

    Behind the last row follow ROWS neutral ones.
    """
    blocks = len(row_starts) - 1
    tile = np.empty((1, rows.shape[1], LANES))
    sums = np.empty((ROWS, LANES))
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
            for i in range(row_starts[first], stop, ROWS):
                sums_block(rows, i, tile, 0, sums)
                for r in range(min(ROWS, stop - i)):
                    mine = row_blocks[i + r]
                    line = sums[r]
                    friends = 0
                    for j in range(used):
                        away = abs(mine - row_blocks[base + j])
                        near = away <= reach or blocks - away <= reach
                        friends += near and line[j] <= radius2
                    row_counts[i + r] += friends
