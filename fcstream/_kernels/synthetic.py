"""Packed records of public levels: exact co-occurrence counts, cells, and sums per cell.

A record holds Booleans, packed in words, and levels of categories. Its bits are the Booleans, then a one-hot block for
each category. All counts are int64.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel

WORD = 64
PLANES = 6
"""Number of binary digits in which the counts of a cell are kept, one word for 64 counts, before they are added up."""


@intrinsic
def _ones(typing_context, word):
    """Count the bits of a word that are set."""

    def codegen(context, builder, signature, arguments):
        i64 = ir.IntType(64)
        count = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i64, [i64]), "llvm.ctpop.i64")
        return builder.call(count, arguments)

    return types.int64(types.uint64), codegen


@kernel
def _code(value, cuts, first, last):
    """Count how many of cuts[first:last], ascending, are at most a value."""
    if last - first == 1:
        return np.int64(value >= cuts[first])
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if value >= cuts[middle]:
            low = middle + 1
        else:
            high = middle
    return low - first


@kernel
def pack(points, columns, cuts, starts, booleans, words, levels):
    """Pack lattice points (m, d) into words (m, W) uint64, all zero before, and levels (m, C) uint16.

    Attribute a reads column columns[a] and is cut at cuts[starts[a]:starts[a + 1]]; the first `booleans` attributes
    have one cut each.
    """
    edges, adjoin = np.empty(booleans, np.float64), True
    for a in range(booleans):
        edges[a] = cuts[starts[a]]
        adjoin &= columns[a] == columns[0] + a
    for r in range(len(points)):
        row = points[r]
        for w in range(words.shape[1]):
            word, count = np.uint64(0), min(WORD, booleans - w * WORD)
            edge = edges[w * WORD : w * WORD + count]
            if adjoin:  # columns that adjoin in memory are faster
                part = row[columns[w * WORD] : columns[w * WORD] + count]
                for j in range(count):
                    word |= np.uint64(part[j] >= edge[j]) << np.uint64(j)
            else:
                for j in range(count):
                    word |= np.uint64(row[columns[w * WORD + j]] >= edge[j]) << np.uint64(j)
            words[r, w] = word
        for a in range(booleans, len(columns)):
            code = _code(row[columns[a]], cuts, starts[a], starts[a + 1])
            levels[r, a - booleans] = code


@kernel
def _transpose(block):
    """Transpose 64 words of 64 bits in place: exchange halves, then halves of halves, and so on."""
    size, mask = 32, np.uint64(0xFFFFFFFF)
    while size:
        shift = np.uint64(size)
        k = 0
        while k < WORD:
            swap = ((block[k] >> shift) ^ block[k + size]) & mask
            block[k] ^= swap << shift
            block[k + size] ^= swap
            k = (k + size + 1) & ~size
        size //= 2
        mask ^= mask << np.uint64(size)


@kernel
def _columns_of(words, first, count, booleans, columns):
    """Collect the bits of `count` <= 64 rows from `first` on by column: columns (booleans,) uint64."""
    block = np.empty(WORD, np.uint64)
    for w in range(words.shape[1]):
        for r in range(WORD):
            block[r] = words[first + r, w] if r < count else np.uint64(0)
        _transpose(block)
        for j in range(min(WORD, booleans - w * WORD)):
            columns[w * WORD + j] = block[j]


@kernel
def add_pairs(words, levels, offsets, booleans, moments):
    """Add to moments (p, p), above and on the diagonal, the number of records in which both of two bits are set.

    offsets (C,) is the first bit of each category.
    """
    n = len(words)
    columns = np.empty(booleans, np.uint64)
    for first in range(0, n, WORD):
        _columns_of(words, first, min(WORD, n - first), booleans, columns)
        for i in range(booleans):
            column = columns[i]
            if column != 0:
                row = moments[i]
                for j in range(i, booleans):
                    row[j] += _ones(column & columns[j])
    categories = levels.shape[1]
    if categories == 0:
        return
    bits = np.empty(categories, np.int64)
    for r in range(n):
        for c in range(categories):
            bits[c] = offsets[c] + levels[r, c]
        for c in range(categories):
            row = moments[bits[c]]
            for e in range(c, categories):
                row[bits[e]] += 1
        for j in range(booleans):
            if (words[r, j // WORD] >> np.uint64(j % WORD)) & np.uint64(1):
                row = moments[j]
                for c in range(categories):
                    row[bits[c]] += 1


@kernel
def _pour(planes, row):
    """Add bit-sliced counts, planes (W, PLANES) uint64, to how often each bit is set, row (p,), and set the planes to
    0.
    """
    for w in range(len(planes)):
        for k in range(PLANES):
            plane = planes[w, k]
            if plane != 0:
                planes[w, k] = 0
                for j in range(min(WORD, len(row) - w * WORD)):
                    row[w * WORD + j] += np.int64(((plane >> np.uint64(j)) & np.uint64(1)) << np.uint64(k))


@kernel
def add_triples(words, levels, offsets, booleans, bits, triples, counts):
    """Add to counts (T,) the number of records in which all three bits of triples (T, 3) are set.

    A record has `bits` bits; offsets (C,) is the first bit of each category.
    """
    n, categories = len(words), levels.shape[1]
    columns = np.empty(bits, np.uint64)
    for first in range(0, n, WORD):
        count = min(WORD, n - first)
        _columns_of(words, first, count, booleans, columns)
        columns[booleans:] = 0
        for r in range(count):
            for c in range(categories):
                columns[offsets[c] + levels[first + r, c]] |= np.uint64(1) << np.uint64(r)
        for t in range(len(triples)):
            both = columns[triples[t, 0]] & columns[triples[t, 1]] & columns[triples[t, 2]]
            counts[t] += _ones(both)


@kernel(fastmath={"reassoc", "contract"})
def add_triple_slopes(numbers, weights, triples, means, factor, slopes):
    """Add to slopes (p, s) what triples (T, 3) add to the slope of a mixture's misfit.

    The misfit is factor / 2 times the sum of squares of (sum over parts of weight * u_i u_j u_k) - means (T,); numbers
    (p, s) holds u of each part, weights (s,) the parts' weights. All float32.
    """
    parts = len(weights)
    pair = np.empty(parts, np.float32)
    for t in range(len(triples)):
        a, b, c = numbers[triples[t, 0]], numbers[triples[t, 1]], numbers[triples[t, 2]]
        to_a, to_b, to_c = slopes[triples[t, 0]], slopes[triples[t, 1]], slopes[triples[t, 2]]
        total = np.float32(0)
        for s in range(parts):
            pair[s] = weights[s] * a[s] * b[s]
            total += pair[s] * c[s]
        misfit = factor * (total - means[t])
        for s in range(parts):
            of_c = misfit * weights[s] * c[s]
            to_a[s] += of_c * b[s]
            to_b[s] += of_c * a[s]
            to_c[s] += misfit * pair[s]


@kernel
def weigh(points, weights, shifts, numbers, mass, held, sums):
    """Fill numbers (s, p) with u of each part, mass with weight * u, held with weight * point, and sums (p,) with the
    sums of mass. All float32.
    """
    sums[:] = 0
    for i in range(len(points)):
        point, u, own, weight = points[i], numbers[i], mass[i], weights[i]
        for k in range(len(sums)):
            u[k] = np.float32(2) * point[k] - shifts[k]
            held[i, k] = weight * point[k]
        for k in range(len(sums)):
            own[k] = weight * u[k]
            sums[k] += own[k]


@kernel(error_model="numpy")
def fit_step(points, weights, owners, slope, pull, more, excess, cell_weight, first, second, rate, decays, is_bounded):
    """Move points (s, p) a step of Adam down the slope of a mixture's misfit; all float32, with no fast math.

    slope (s, p), which is overwritten, is what pairs add to it, before weights, pull (p,) what means do, more (s, p)
    what triples do, excess (cells, p) how far cells are off. first and second (s, p) are Adam's moments, decays (2,)
    what they have grown to. Points stay in [0, 1] if `is_bounded`.
    """
    grown, grown_squares = decays[0], decays[1]
    for i in range(len(points)):
        twice, of_cell, off = np.float32(2) * weights[i], weights[i] * cell_weight, excess[owners[i]]
        point, down, other, one, two = points[i], slope[i], more[i], first[i], second[i]
        # Loops of few arrays: LLVM makes vector code where few pairs of them might overlap.
        for k in range(len(down)):
            down[k] = (down[k] + pull[k]) * twice + other[k] + of_cell * off[k]
        for k in range(len(down)):
            one[k] = np.float32(0.9) * one[k] + np.float32(0.1) * down[k]
            two[k] = np.float32(0.99) * two[k] + np.float32(0.01) * (down[k] * down[k])
        for k in range(len(down)):
            size = rate / (np.sqrt(two[k] / grown_squares) + np.float32(1e-12))
            point[k] -= size * one[k] / grown
        if is_bounded:
            for k in range(len(down)):
                found = point[k] if point[k] > np.float32(0) else np.float32(0)
                point[k] = found if found < np.float32(1) else np.float32(1)


@kernel
def add_cells(
    words, levels, offsets, booleans, bytewise, levelwise, base, width, lowest, lookup, strides, counts, ones
):
    """Find the cell of every record, and add to counts (s,) and to how often each bit is set, ones (s, p).

    A record's position along axis t is base[t] plus its entries of bytewise (bytes, 256, t) and levelwise (p, t).
    Divided by width, rounded down and less lowest[t], it gives an index; lookup holds the cell for each index. Integers
    only, and each record by itself.

    Booleans are counted by whole words: plane k of a cell holds digit k of 64 counts, and a word is added to all of
    them at once with its carries.
    """
    axes, categories, parts = len(base), levels.shape[1], words.shape[1]
    place = np.empty(axes, np.int64)
    planes = np.zeros((len(counts), parts, PLANES), np.uint64)
    held = np.zeros(len(counts), np.int64)
    for r in range(len(words)):
        for t in range(axes):
            place[t] = base[t]
        for b in range((booleans + 7) // 8):
            byte = (words[r, b // 8] >> np.uint64(8 * (b % 8))) & np.uint64(255)
            for t in range(axes):
                place[t] += bytewise[b, byte, t]
        for c in range(categories):
            bit = offsets[c] + levels[r, c]
            for t in range(axes):
                place[t] += levelwise[bit, t]
        at = 0
        for t in range(axes):
            at += (place[t] // width - lowest[t]) * strides[t]
        cell = lookup[at]
        counts[cell] += 1
        for w in range(parts):
            carry, digits = words[r, w], planes[cell, w]
            for k in range(PLANES):
                digit = digits[k]
                digits[k] = digit ^ carry
                carry &= digit
        held[cell] += 1
        if held[cell] == (1 << PLANES) - 1:
            held[cell] = 0
            _pour(planes[cell], ones[cell, :booleans])
        for c in range(categories):
            ones[cell, offsets[c] + levels[r, c]] += 1
    for cell in range(len(counts)):
        if held[cell]:
            _pour(planes[cell], ones[cell, :booleans])


@kernel
def unpack(words, levels, booleans, codes):
    """Unpack records to codes (m, attributes) int64, Booleans first."""
    for r in range(len(words)):
        for j in range(booleans):
            codes[r, j] = np.int64((words[r, j // WORD] >> np.uint64(j % WORD)) & np.uint64(1))
        for c in range(levels.shape[1]):
            codes[r, booleans + c] = levels[r, c]


@kernel
def add_tables(codes, members, strides, starts, tables):
    """Add records to contingency tables laid end to end in tables (cells,) int64.

    Table k counts attributes members[k] (order,) with strides[k] (order,), from entry starts[k] on. codes (m, A) int64.
    """
    order = members.shape[1]
    for r in range(len(codes)):
        row = codes[r]
        for k in range(len(members)):
            at = starts[k]
            for o in range(order):
                at += row[members[k, o]] * strides[k, o]
            tables[at] += 1
