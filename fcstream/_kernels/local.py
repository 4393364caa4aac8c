"""Noise and distances for millions of devices: exact noise with a deviation for each device, and lattice distances."""

from __future__ import annotations

import math

import numpy as np

from . import kernel

DONE, STARVED, UNDECIDED = 0, 1, 2
_LOW = np.uint64(0xFFFFFFFF)
_NO, _YES, _UNSURE = 0, 1, 2


@kernel
def gaussians(words, first, numerator, denominators, table, out):
    """Draw discrete Gaussians out[first:], draw i with variance numerator / denominators[i // per]; out int64 (n *
    per,).

    Draws the same numbers from the same words as `fcstream.local.noise.gaussian_bin_draw`. words uint64; denominators
    int64 (n,); table int64: the cumulative law of the bins times 2**31, rounded down. Integers below 2**56 are compared
    exactly, larger numerators with a margin. Returns (number of finished draws, first word of the unfinished draw,
    status).
    """
    used = len(words)
    per = len(out) // len(denominators)
    is_small = numerator < (1 << 56)
    real = np.float64(numerator)
    bins = len(table)
    p = 0
    last = -1
    variance, deviation, half = 0.0, 0.0, 0.0
    width, short = np.uint64(1), np.uint64(0)
    denominator = np.int64(1)
    for i in range(first, len(out)):
        start = p
        if i // per != last:
            last = i // per
            denominator = denominators[last]
            variance = real / np.float64(denominator)
            deviation = math.sqrt(variance)
            half = 0.5 / variance
            width = np.uint64(np.int64(deviation) + 4)
            short = np.uint64(1 << 32) % width
        while True:
            if p + 1 >= used:
                return i, start, STARVED
            w = words[p]
            p += 1
            prefix = np.int64((w >> np.uint64(32)) & np.uint64(0x7FFFFFFF))
            k = 0
            while k < bins and prefix > table[k]:
                k += 1
            if k == bins or prefix == table[k]:
                return i, start, UNDECIDED
            product = (w & _LOW) * width
            if (product & _LOW) < short:
                continue
            y = max(np.int64(0), np.int64(k * deviation) - 1) + np.int64(product >> np.uint64(32))
            square = y * y
            if is_small:
                # The integers of a bin: both products stay below 2**63, as a bin ends below 8 deviations. What lies
                # far outside is decided by the doubles, so that nothing overflows.
                if square * half > 50.0:
                    continue
                scaled = square * denominator
                if scaled < k * k * numerator or scaled >= (k + 1) * (k + 1) * numerator:
                    continue
            else:
                low, high = k * k * variance, (k + 1) * (k + 1) * variance
                margin = 1e-12 * high
                if (k > 0 and abs(square - low) <= margin) or abs(square - high) <= margin:
                    return i, start, UNDECIDED
                if square < low or square > high:
                    continue
            negative = w >> np.uint64(63)
            if y == 0 and negative:
                continue
            gap = max(0.0, square * half - 0.5 * (k * k))  # wrong by less than 2**-45
            real_word = np.float64(words[p])
            p += 1
            if real_word < (1.0 - gap - 1e-12) * 18446744073709551616.0:  # 1 - gap is at most exp(-gap)
                out[i] = -y if negative else y
                break
            bound = math.exp(-gap) * 18446744073709551616.0
            margin = bound * 9.094947017729282e-13 + 2.0
            if real_word < bound - margin:
                out[i] = -y if negative else y
                break
            if real_word <= bound + margin:
                return i, start, UNDECIDED
    return len(out), p, DONE


@kernel
def table_gaussians(quarters, first, which, starts, lookup, fine, out):
    """Draw discrete Gaussians out[first:] by inversion, row i // per from table which[i // per]; out int64 (n * per,).

    Draws the same numbers as `fcstream.local.noise.gaussian_table_draw` from the same quarters of words, uint16. Of
    table t, `fine` holds the cumulative probabilities to 63 binary digits, uint64, in starts[t]:starts[t + 1], and
    `lookup` 2**15 entries, one for each value of the first 15 digits. Returns (number of finished draws, first quarter
    of the unfinished draw, status). All arithmetic is on integers.
    """
    used = len(quarters)
    per = len(out) // len(which)
    p = 0
    i = first
    while i < len(out):
        row = i // per
        table = which[row]
        begin, offset, end = starts[table], table << 15, (row + 1) * per
        while i < end:
            if p >= used:
                return i, p, STARVED
            word = np.int64(quarters[p])
            found = np.int64(lookup[offset + (word & 0x7FFF)])
            y = found >> 1
            if found & 1:
                digits = np.uint64(word & 0x7FFF)
                m = begin + y
                shift = 48
                k = 1
                while digits == fine[m] >> np.uint64(shift):
                    if shift == 0:
                        return i, p, UNDECIDED
                    if p + k >= used:
                        return i, p, STARVED
                    digits = (digits << np.uint64(16)) | np.uint64(quarters[p + k])
                    k += 1
                    shift -= 16
                    while fine[m] >> np.uint64(shift) < digits:
                        m += 1
                p += k - 1
                y = m - begin
            p += 1
            out[i] = -y if word >> 15 else y
            i += 1
    return len(out), p, DONE


@kernel
def _root(square):
    """Compute the integer square root of an int64 below 2**62."""
    root = np.int64(math.sqrt(np.float64(square)))
    while root * root > square:
        root -= 1
    while (root + 1) * (root + 1) <= square:
        root += 1
    return root


@kernel
def distances(points, to, fineness, out):
    """Compute floor(fineness |x - to|) for rows of int64 points (n, d): out (n,) int64. The caller bounds squares."""
    for i in range(points.shape[0]):
        total = np.int64(0)
        for k in range(points.shape[1]):
            gap = points[i, k] - to[k]
            total += gap * gap
        out[i] = _root(fineness * fineness * total)


@kernel
def box_distances(points, center2, half2, fineness, out):
    """Compute floor(fineness phi) of the signed distance to a box in half steps: out int64 (n,). The caller bounds
    squares.
    """
    for i in range(points.shape[0]):
        total = np.int64(0)
        most = np.int64(-(1 << 62))
        for k in range(points.shape[1]):
            q = abs(2 * points[i, k] - center2[k]) - half2[k]
            most = max(most, q)
            if q > 0:
                total += q * q
        if most > 0:
            out[i] = _root(fineness * fineness * total // 4)
        else:
            out[i] = (fineness * most) // 2  # Python's floor


@kernel
def add_answers(sums, rows, weights, values):
    """Add replies to sums: sums[rows[i]] += weights[i] values[i]; sums float64 (n, k), values int64 (m, k)."""
    for i in range(len(rows)):
        weight = np.float64(weights[i])
        for k in range(values.shape[1]):
            sums[rows[i], k] += weight * np.float64(values[i, k])
