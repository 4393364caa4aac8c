"""Pairs chosen by coins: blocks of rows, and secret coins for ordered pairs."""

from __future__ import annotations

from . import kernel

LANES = 32


@kernel
def sort_by_block(row_blocks, order, row_starts):
    """Sort rows by block, stably: fill order (m,) int64 and row_starts (blocks + 1,) int64, each block's first row."""
    row_starts[:] = 0
    for i in range(len(row_blocks)):
        row_starts[row_blocks[i] + 1] += 1
    for b in range(len(row_starts) - 1):
        row_starts[b + 1] += row_starts[b]
    fill = row_starts.copy()
    for i in range(len(row_blocks)):
        order[fill[row_blocks[i]]] = i
        fill[row_blocks[i]] += 1


@kernel
def assign_slots(row_starts, open_tile, next_tile, used, tile_blocks, slots):
    """Give every row of a batch sorted by block a lane in a tile of its block: slots (m,) = tile * LANES + lane."""
    for b in range(len(row_starts) - 1):
        for i in range(row_starts[b], row_starts[b + 1]):
            t = open_tile[b]
            if t < 0 or used[t] == LANES:
                t = next_tile
                next_tile += 1
                open_tile[b] = t
                used[t] = 0
                tile_blocks[t] = b
            slots[i] = t * LANES + used[t]
            used[t] += 1
    return next_tile


@kernel
def store(rows, slots, first_tile, tiles):
    """Copy the rows whose slots lie in a tile array that starts at tile `first_tile`."""
    for i in range(len(slots)):
        t = slots[i] // LANES - first_tile
        if 0 <= t < len(tiles):
            lane = slots[i] % LANES
            for k in range(rows.shape[1]):
                tiles[t, k, lane] = rows[i, k]


@kernel
def sampled_partners(block_sizes, reach, out):
    """Count the points in the blocks at most `reach` away from each on a circle, itself included: out (blocks,)."""
    blocks = len(block_sizes)
    if 2 * reach + 1 >= blocks:
        out[:] = block_sizes.sum()
        return
    total = 0
    for offset in range(-reach, reach + 1):
        total += block_sizes[offset % blocks]
    for b in range(blocks):
        out[b] = total
        total += block_sizes[(b + reach + 1) % blocks] - block_sizes[(b - reach) % blocks]


@kernel(fastmath={"reassoc", "contract"})
def _distance(x, y):
    """Compute the squared distance of lattice points, exact up to 2**53 and monotone above."""
    total = 0.0
    for k in range(len(x)):
        diff = x[k] - y[k]
        total += diff * diff
    return total


@kernel
def use_random_bits(points, row, stop, at, gaps, radius2, scores):
    """Compare the ordered pairs that coins chose: scores[i] changes by +1 for a friend whom row i uses, by -1 for
    another row.

    points (n, d) float64. Row i has 2 i pairs with the rows before it, numbered from 0: in an even pair i uses row
    number // 2, in an odd one that row uses i. gaps (g,) int64: how many pairs are skipped before each chosen one,
    starting at pair `at` of row `row`. Returns (row, at), where the next call continues; row == stop when the gaps
    reach beyond the last row. The rest of the last gap can be dropped then, because coins have no memory.
    """
    for g in range(len(gaps)):
        at += gaps[g]
        while row < stop and at >= 2 * row:
            at -= 2 * row
            row += 1
        if row == stop:
            return row, 0
        other = at >> 1
        sign = 1 if _distance(points[row], points[other]) <= radius2 else -1
        scores[other if at & 1 else row] += sign
        at += 1
    return row, at
