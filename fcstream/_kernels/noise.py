"""Exact samplers fed by words of entropy: the compiled counterparts of the samplers in `fcstream.noise`.

Every comparison of real numbers is decided by a double with a rigorous margin. Where 64 bits of the uniform number
cannot decide (probability below 2**-38) the kernel stops, and the caller decides that draw with exact arithmetic from
the same words, so the law of the output is exact. A kernel also stops when it runs out of words; the caller then
continues from the first word of the unfinished draw, so no word is used for two draws.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from . import kernel
from .scratch import scratch

DONE, STARVED, UNDECIDED = 0, 1, 2
_NO, _YES, _UNSURE = 0, 1, 2
_CELLS = 2048  # of the table in `threshold_bits`
_limits, _keeps = scratch(types.int32, _CELLS), scratch(types.uint8, _CELLS)
_LARGEST = 128  # larger draws are left to exact arithmetic; up to here integers stay below 2**63


@kernel(inline="always")
def _below_exp(word, gamma):
    """Decide whether the uniform number that starts with `word` is below exp(-gamma): _YES, _NO or _UNSURE.

    gamma may have a relative error below 2**-44.
    """
    bound = math.exp(-gamma) * 18446744073709551616.0
    margin = bound * (1.0 + gamma) * 9.094947017729282e-13 + 2.0  # 2**-40 (1 + gamma) of the bound, and two units
    w = np.float64(word)
    if w < bound - margin:
        return _YES
    if w > bound + margin:
        return _NO
    return _UNSURE


@kernel
def _mask_for(bound):
    """Find the smallest 2**b - 1 that is at least bound - 1."""
    mask = np.uint64(bound - 1)
    mask |= mask >> np.uint64(1)
    mask |= mask >> np.uint64(2)
    mask |= mask >> np.uint64(4)
    mask |= mask >> np.uint64(8)
    mask |= mask >> np.uint64(16)
    mask |= mask >> np.uint64(32)
    return mask


@kernel
def _geometric(words, p, scale, mask):
    """Draw x >= 0 with P(x) proportional to exp(-x / scale) from words[p:]; returns (status, x, next p)."""
    used = len(words)
    while True:
        while True:
            if p >= used:
                return STARVED, np.int64(0), p
            u = np.int64(words[p] & mask)
            p += 1
            if u < scale:
                break
        if p >= used:
            return STARVED, np.int64(0), p
        result = _below_exp(words[p], u / scale)
        p += 1
        if result == _UNSURE:
            return UNDECIDED, np.int64(0), p
        if result == _NO:
            continue
        v = np.int64(0)
        while True:
            if p >= used:
                return STARVED, np.int64(0), p
            result = _below_exp(words[p], 1.0)
            p += 1
            if result == _NO:
                return DONE, u + scale * v, p
            v += 1
            if result == _UNSURE or v == _LARGEST:
                return UNDECIDED, np.int64(0), p


@kernel
def discrete_laplace(words, first, numerator, denominator, out):
    """Draw out[first:] with P(y) proportional to exp(-|y| * denominator / numerator).

    Returns (number of finished draws, first word of the unfinished draw, status). words uint64, out int64.
    """
    mask = _mask_for(numerator)
    p = np.int64(0)  # no literal, for which it would be compiled once more
    for i in range(first, len(out)):
        start = p
        while True:
            status, x, p = _geometric(words, p, numerator, mask)
            if status == DONE and p >= len(words):
                status = STARVED
            if status != DONE:
                return i, start, status
            y = x // denominator
            negative = words[p] & np.uint64(1)
            p += 1
            if not negative or y != 0:  # minus zero is drawn again
                break
        out[i] = -y if negative else y
    return len(out), p, DONE


@kernel
def lattice_laplace(words, first, numerator, denominator, rate, out):
    """Draw rows out[first:] with P(z) proportional to exp(-rate |z|); out int64 (n, d), d >= 2.

    Draws the same numbers from the same words as `fcstream.local.noise.lattice_laplace_draw`, with proposals of scale
    numerator / denominator. Returns (number of finished draws, first word of the unfinished draw, status).
    """
    mask = _mask_for(numerator)
    per_step = np.float64(denominator) / np.float64(numerator)
    p = np.int64(0)
    for i in range(first, len(out)):
        start = p
        while True:
            square, plain = np.int64(0), np.int64(0)
            k = 0
            while k < out.shape[1]:
                status, x, p = _geometric(words, p, numerator, mask)
                if status == DONE and p >= len(words):
                    status = STARVED
                if status != DONE:
                    return i, start, status
                y = x // denominator
                negative = words[p] & np.uint64(1)
                p += 1
                if negative and y == 0:  # minus zero is drawn again
                    continue
                if y >= 1 << 28:
                    return i, start, UNDECIDED
                out[i, k] = -y if negative else y
                square += y * y
                plain += y
                k += 1
            if p >= len(words):
                return i, start, STARVED
            away = rate * math.sqrt(np.float64(square))
            if away > 500.0:  # the difference would not be accurate to 2**-42
                return i, start, UNDECIDED
            result = _below_exp(words[p], max(0.0, away - plain * per_step))
            p += 1
            if result == _UNSURE:
                return i, start, UNDECIDED
            if result == _YES:
                break
    return len(out), p, DONE


@kernel
def discrete_gaussian(words, first, scale, variance, out):
    """Draw out[first:] with P(y) proportional to exp(-y**2 / (2 variance)); scale = floor(sqrt(variance)) + 1.

    Returns (number of finished draws, first word of the unfinished draw, status). words uint64, out int64.
    """
    mask = _mask_for(scale)
    shift = variance / scale
    p = np.int64(0)
    for i in range(first, len(out)):
        start = p
        while True:
            status, y, p = _geometric(words, p, scale, mask)
            if status == DONE and p >= len(words):
                status = STARVED
            if status != DONE:
                return i, start, status
            negative = words[p] & np.uint64(1)
            p += 1
            if negative and y == 0:  # minus zero is drawn again
                continue
            if p >= len(words):
                return i, start, STARVED
            gap = y - shift
            result = _below_exp(words[p], gap * gap / (2.0 * variance))
            p += 1
            if result == _UNSURE:
                return i, start, UNDECIDED
            if result == _YES:
                break
        out[i] = -y if negative else y
    return len(out), p, DONE


@kernel
def bernoulli(words, first, numerators, denominator, out):
    """Draw out[first:], True with probability numerators[i] / denominator exactly.

    Returns (number of finished draws, first word of the unfinished draw, status). numerators int64, out bool.
    """
    used = len(words)
    mask = _mask_for(denominator)
    p = np.int64(0)
    for i in range(first, len(out)):
        a = numerators[i]
        if a <= 0 or a >= denominator:
            out[i] = a > 0
            continue
        start = p
        while True:
            if p >= used:
                return i, start, STARVED
            u = np.int64(words[p] & mask)
            p += 1
            if u < denominator:
                break
        out[i] = u < a
    return len(out), p, DONE


@kernel
def _tail_limits(count, size, threshold, inverse, cutoff):
    """Find what 16 random bits decide about one count, in the smaller normal tail beside the threshold.

    Returns two limits and a keep bit. Below the first limit the uniform number lies in that tail, from the second on it
    does not, and between them 16 bits do not decide. The keep bit says whether lying in the tail means to keep the
    point.
    """
    x = (threshold - (count - 0.5 * size)) * inverse
    if abs(x) > cutoff:
        return np.int32(0), np.int32(0), np.uint8(x >= 0)
    bound = 32768.0 * math.erfc(abs(x) * math.sqrt(0.5))
    # The margin covers the errors of x (2**-46 after growth by x**2 < 171) and of erfc many times over.
    margin = bound * 1e-9 + 1e-9
    return np.int32(math.floor(bound - margin)), np.int32(math.ceil(bound + margin)), np.uint8(x >= 0)


@kernel
def threshold_bits(words, counts, size, threshold, sigma, cutoff, out):
    """Draw the keep bits of counts[i] - size / 2 + N(0, sigma**2) >= threshold, from 16 random bits for each point.

    words uint16 (n,), counts int64 (n,), out uint8 (n,): 0 drop, 1 keep, 2 undecided by 16 bits and left to the caller.
    Beyond `cutoff` standard deviations from the threshold the random bits are not used. Returns the number of undecided
    points.
    """
    n = len(counts)
    inverse = 1.0 / sigma
    middle = threshold + 0.5 * size
    # Conditions in the place of `min` and `max`, each of which is one more function to compile.
    low, high = np.int64(math.floor(middle - cutoff * sigma)) - 1, np.int64(math.ceil(middle + cutoff * sigma)) + 1
    low = low if low > 0 else np.int64(0)
    high = high if high < size else np.int64(size)
    high = high if high > low else low
    # A coarse table of the counts near the threshold decides most points without computing their tails. Cells are
    # 2**shift counts wide; the outermost ones also cover all counts beyond. In a cell the smaller tail is monotone, so
    # the limits at its two ends bound those between, unless the threshold lies in it.
    wanted = 16 if n < 64 else (n // 4 if n < 4 * _CELLS else _CELLS)
    shift = 0
    while ((high - low) >> shift) >= wanted:
        shift += 1
    cells = ((high - low) >> shift) + 1
    below, above, keeps = _limits(), _limits(), _keeps()
    for c in range(cells):
        start = low + (c << shift)
        end = start + (np.int64(1) << shift) - 1
        first, second, keeps[c] = _tail_limits(start, size, threshold, inverse, cutoff)
        first_end, second_end, keep_end = _tail_limits(end, size, threshold, inverse, cutoff)
        mixed = keep_end != keeps[c]
        below[c] = 0 if mixed else (first if first < first_end else first_end)
        above[c] = 65536 if mixed else (second if second > second_end else second_end)
    undecided = 0
    for i in range(n):
        count = counts[i]
        c = ((high if count > high else count if count > low else low) - low) >> shift
        w = np.int32(words[i])
        if below[c] <= w < above[c]:
            first, second, keep = _tail_limits(count, size, threshold, inverse, cutoff)
            unsure = first <= w < second
            out[i] = np.uint8(2) if unsure else np.uint8(w >= second) ^ keep
            undecided += unsure
        else:
            out[i] = np.uint8(w >= above[c]) ^ keeps[c]
    return undecided


@kernel
def skips(words, log_stay, out):
    """Count the failures before a success of a coin with ln(1 - rate) = log_stay, one number for each word.

    A word w stands for a uniform number in (w, w + 1) / 2**64; the number of failures is the integer part of its
    logarithm divided by log_stay. out (n,) int64 is -1 where 64 bits do not decide.
    """
    unit = 2.0**-64
    for i in range(len(words)):
        word = np.float64(words[i])  # the error is below 2048 of 2**64, relatively below 2**-52
        if words[i] < np.uint64(1 << 20):
            out[i] = -1
            continue
        value = math.log(word * unit) / log_stay
        # covers the rounding of word, logarithm, log_stay and quotient, and the bits after the first 64
        slack = (1e-15 * (1.0 + value * abs(log_stay)) + 2.0 / word) / abs(log_stay) + 1e-15 * value
        low, high = math.floor(value - slack), math.floor(value + slack)
        out[i] = np.int64(high) if low == high and high < 2.0**62 else -1
