"""Storage of lattice points in tiles (see `pairs` for the layout): rows are put in, and taken out again."""

from __future__ import annotations

import numpy as np

from . import kernel

LANES = 32
TOP = 127.0  # largest code


@kernel(fastmath={"reassoc", "contract"})
def distances_from(rows, pivot, out):
    """Compute the distance of every row (m, d) from pivot; its rounding error is far below the slack that its readers
    allow.
    """
    for i in range(len(rows)):
        row = rows[i]
        total = 0.0
        for k in range(len(pivot)):
            diff = row[k] - pivot[k]
            total += diff * diff
        out[i] = np.sqrt(total)


@kernel(fastmath={"reassoc", "contract"})
def encode(rows, pivot, scale, distances, codes, errors, wide):
    """Round each row's offset from the pivot to multiples of scale, as signed bytes codes (m, 4 * words) int8.

    distances (m,): as of `distances_from`. errors (m,): the distance between a row and the point that its code stands
    for, including a margin for rounding. Rows out of range are marked in wide (m,) bool; their codes and errors are not
    used.
    """
    inverse = 1.0 / scale
    room = scale * np.sqrt(np.float64(len(pivot))) * 1e-12
    for i in range(len(rows)):
        row, code = rows[i], codes[i]
        total = error = 0.0
        beyond = 0
        for k in range(len(pivot)):
            offset = row[k] - pivot[k]
            total += offset * offset
            scaled = offset * inverse
            beyond += abs(scaled) > TOP + 0.5
            # truncating the positive number rounds to nearest; the bound keeps the cast defined
            near = np.int32(min(max(scaled, -TOP), TOP) + 128.5) - 128
            rest = offset - scale * near
            error += rest * rest
            code[k] = np.int8(near)
        distances[i] = np.sqrt(total)
        errors[i] = np.sqrt(error) * (1.0 + 1e-9) + room
        wide[i] = beyond > 0


@kernel
def arrange(rows, distances, order, positions, out, out_distances):
    """Copy row order[i] and its distance to positions[i]."""
    for i in range(len(order)):
        out_distances[positions[i]] = distances[order[i]]
        source, target = rows[order[i]], out[positions[i]]
        for k in range(rows.shape[1]):
            target[k] = source[k]


@kernel
def note_arrivals(order, positions, slots, came, arrivals):
    """Record each lane's arrival number: row order[i] stands at positions[i] and came as number came[order[i]]."""
    for i in range(len(order)):
        arrivals[slots[positions[i]]] = came[order[i]]


@kernel
def arrange_codes(codes, order, positions, count, prefix, low, high, out, bars, starts):
    """Prepare the first `count` codes of an order for screening: unsigned bytes out (m, 4 * words).

    Points whose squared code distance is at most `low` are friends, those above `high` are not. A row's products with a
    lane are summed from the lane's starts[0] on, for the first `prefix` codes; a pair is a friend if the sum is at
    least the row's bars[2], and not a friend if the sum and the lane's starts[2] together are below the row's bars[3].
    The sum of all products and the lane's starts[1] besides is at least bars[0] for a friend, and below bars[1] for a
    pair that is none. bars (4, m) and starts (3, m) int32; columns of rows that are not written stay as they are.
    """
    for i in range(count):
        source, target, at = codes[order[i]], out[positions[i]], positions[i]
        norm, total = np.int32(0), np.int32(0)
        for k in range(prefix):
            value = np.int32(source[k])
            norm += value * value
            total += value
            target[k] = np.uint8(value + 128)
        rest, others = np.int32(0), np.int32(0)
        for k in range(prefix, codes.shape[1]):
            value = np.int32(source[k])
            rest += value * value
            others += value
            target[k] = np.uint8(value + 128)
        # With product sum p and lane start -(norm of the lane + 1) // 2, the squared distance is norm - 2 p or 1 less.
        # |x - y|**2 <= 2 |x|**2 + 2 |y|**2 bounds what the other coordinates add to the distance of the first ones.
        starts[0, at] = -128 * total - ((norm + 2 * rest + 1) >> 1)
        starts[1, at] = -128 * others - ((norm + rest + 1) >> 1) + ((norm + 2 * rest + 1) >> 1)
        starts[2, at] = rest
        bars[0, at] = (norm + rest - low + 1) >> 1
        bars[1, at] = (norm + rest - 1 - high) >> 1
        bars[2, at] = (norm + 2 * rest - low + 1) >> 1
        bars[3, at] = (norm - 1 - high) >> 1


@kernel
def restart(codes, shape, words, starts):
    """Compute the starts (t, 3, LANES) of stored lanes anew, for a prefix of 4 * words codes: see `arrange_codes`.

    codes (t, all words, LANES) int32, of four signed bytes each.
    """
    norms, totals = np.empty((2, LANES), np.int32), np.empty((2, LANES), np.int32)
    for t in range(len(shape)):
        if shape[t, 1] != 0:
            continue
        norms[:] = 0
        totals[:] = 0
        for k in range(codes.shape[1]):
            part = np.int64(k >= words)
            norm, total, line = norms[part], totals[part], codes[t, k]
            for j in range(LANES):
                word = line[j]
                for shift in range(0, 32, 8):
                    value = np.int32(np.int8(word >> shift))
                    norm[j] += value * value
                    total[j] += value
        for j in range(shape[t, 0]):
            norm, rest = norms[0, j], norms[1, j]
            starts[t, 0, j] = -128 * totals[0, j] - ((norm + 2 * rest + 1) >> 1)
            starts[t, 1, j] = -128 * totals[1, j] - ((norm + rest + 1) >> 1) + ((norm + 2 * rest + 1) >> 1)
            starts[t, 2, j] = rest


@kernel
def assign_slots(distances, classes, edges, open_tile, next_tile, shape, spans, self_rows, slots):
    """Give every row a lane: slots (m,) int64 = tile * LANES + lane. Rows are nearly sorted by distance within a class.

    Row i of class c goes to the open tile of the first bucket b with distances[i] <= edges[b], or of a later one;
    open_tile (2, buckets) int64 is -1 for none. Updates shape, spans and self_rows (see `pairs.sweep`); self_rows must
    be -1 for tiles without rows of this batch. Returns the next free tile; `tiles_needed` computes how many there must
    be.
    """
    for c in range(2):
        b = 0
        i, stop = classes[c, 0], classes[c, 1]
        while i < stop:
            while b < len(edges) and distances[i] > edges[b]:
                b += 1
            edge = edges[b] if b < len(edges) else np.inf
            t = open_tile[c, b]
            if t < 0 or shape[t, 0] == LANES:
                t = next_tile
                next_tile += 1
                open_tile[c, b] = t
                shape[t, 0] = 0
                shape[t, 1] = c
                spans[t, 0] = distances[i]
                spans[t, 1] = distances[i]
            first, lane = i, t * LANES + shape[t, 0] - i
            end = min(stop, i + LANES - shape[t, 0])
            low, high = spans[t, 0], spans[t, 1]
            while i < end and distances[i] <= edge:
                slots[i] = lane + i
                low = min(low, distances[i])
                high = max(high, distances[i])
                i += 1
            spans[t, 0], spans[t, 1] = low, high
            shape[t, 0] += i - first
            if self_rows[t, 0] < 0:
                self_rows[t, 0] = first
            self_rows[t, 1] = i
    return next_tile


@kernel
def store(rows, slots, shape, self_rows, first_tile, tiles):
    """Copy rows to their lanes in a tile array that starts at tile first_tile; self_rows holds the rows of each tile.

    A new tile gets +inf in its free lanes.
    """
    d = rows.shape[1]
    for t in range(len(self_rows)):
        first, last = self_rows[t, 0], self_rows[t, 1]
        if first < 0:
            continue
        tile = tiles[t]
        lane = slots[first] - (first_tile + t) * LANES
        if d < 8:
            for k in range(d):
                target = tile[k]
                for i in range(last - first):
                    target[lane + i] = rows[first + i, k]
        for k in range(0, d if d >= 8 else 0, 8):  # a cache line of every row at a time
            for i in range(last - first):
                for kk in range(k, min(k + 8, d)):
                    tile[kk, lane + i] = rows[first + i, kk]
        if lane == 0 and last - first < LANES:
            for k in range(d):
                for j in range(last - first, LANES):
                    tile[k, j] = np.inf


@kernel
def store_codes(words, row_starts, slots, shape, self_rows, first_tile, tile_codes, starts):
    """Copy rows of unsigned bytes, int32 words (m, w), to their lanes as signed bytes; starts: see `arrange_codes`."""
    width = words.shape[1]
    flip = np.int32(-2139062144)  # 0x80808080: unsigned to signed
    for t in range(len(self_rows)):
        first, last = self_rows[t, 0], self_rows[t, 1]
        if first < 0 or shape[t, 1] != 0:
            continue
        lane = slots[first] - (first_tile + t) * LANES
        if lane == 0:
            starts[t, 0, :] = -1000000000  # so low that a free lane is no row's friend
            starts[t, 1:, :] = 0
            tile_codes[t, :, :] = 0
        for k in range(0, width, 16):
            for i in range(last - first):
                for kk in range(k, min(k + 16, width)):
                    tile_codes[t, kk, lane + i] = words[first + i, kk] ^ flip
        for i in range(last - first):
            for k in range(3):
                starts[t, k, lane + i] = row_starts[k, first + i]


@kernel
def open_lanes(slots, certain_counts, counts):
    """Subtract from the counts of new lanes the certain counts that their tiles were given before."""
    for i in range(len(slots)):
        if slots[i] >= 0:
            counts[slots[i]] = -certain_counts[slots[i] // LANES]


@kernel
def settle(slots, row_counts, row_certain, counts):
    """Add the counts of a batch's rows to the counts of their lanes."""
    surely = 0
    for i in range(len(slots)):
        surely += row_certain[i]
        if slots[i] >= 0:
            counts[slots[i]] += row_counts[i] + surely


@kernel
def used_lanes(shape, lanes):
    """List the lanes (n,) int64 that hold points, ascending; returns how many."""
    at = 0
    for t in range(len(shape)):
        for j in range(shape[t, 0]):
            lanes[at] = t * LANES + j
            at += 1
    return at


@kernel
def load(tiles, lanes, rows):
    """Copy the points in the lanes (n,) int64 of a tile array into rows (n, d)."""
    for i in range(len(lanes)):
        t, lane = lanes[i] // LANES, lanes[i] % LANES
        for k in range(rows.shape[1]):
            rows[i, k] = tiles[t, k, lane]


@kernel
def totals(shape, counts, certain_counts, sign, out):
    """Add sign times counts (t * LANES,) and certain_counts (t,) of the used lanes to out (n,) int64, in the lanes'
    order.
    """
    at = 0
    for t in range(len(shape)):
        for j in range(shape[t, 0]):
            out[at] += sign * (counts[t * LANES + j] + certain_counts[t])
            at += 1
