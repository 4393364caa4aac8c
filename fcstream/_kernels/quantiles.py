"""Quantiles of sorted values: the candidates near a rank, and which of them a uniform number draws."""

from __future__ import annotations

import numpy as np

from . import kernel

ROUNDING = 1e-8  # of sums of doubles, relative to the whole; see `fcstream.noise.intervals.quick_index`


@kernel
def columns_within(rows, lowest, highest, out, start):
    """Put the columns of rows (m, d), moved into lowest (d,) to highest (d,), into out (d, n) integers, less lowest.

    They go to the entries from `start` on.
    """
    for first in range(0, len(rows), 64):
        for k in range(rows.shape[1]):
            column, low, high = out[k], lowest[k], highest[k]
            for i in range(first, min(first + 64, len(rows))):
                column[start + i] = min(max(rows[i, k], low), high) - low


@kernel
def near_quantile(values, span, a, b, rate, most, beyond, uniform):
    """Find the candidates that a uniform number in [0, 1) draws: the first one, and how many; (0, -1) if unsure.

    Candidates are 0 to span - 1. Those with the same numbers of values (n,) of them below and above are equal: one of
    them weighs exp(-rate cost), where cost is by how much the rank a n / b lies outside of its ranks, times b. In the
    order of their cost, and of themselves where it is the same, only those with cost <= most are looked at. All others
    weigh at most `beyond` together.

    values ascend. Each sum of weights is off by less than 1e-8 of the whole, as in `quick_index`, because rate cost <=
    700 is required of most, and there are no more than 2**20 steps; (0, -1) otherwise.
    """
    n = len(values)
    if n == 0 or n > 1 << 19 or not rate * most <= 700.0:
        return np.int64(0), np.int64(-1)
    starts = np.empty(2 * n + 1, np.int64)
    sizes = np.empty(2 * n + 1, np.int64)
    sums = np.empty(2 * n + 1, np.float64)
    target = a * n
    left = right = min(n - 1, target // b)
    middle = np.int64(values[left])
    while left > 0 and values[left - 1] == middle:
        left -= 1
    right += 1
    while right < n and values[right] == middle:
        right += 1
    # Values left..right - 1 have been passed, but for those of the middle, which follow the ones below of equal cost.
    count, total, waits = 0, 0.0, True
    low, high = middle, middle
    while True:
        before, after = target - b * left, b * right - target  # what the next ones cost; high: no more
        if low < 0:
            before = most + 1
        if high >= span:
            after = most + 1
        if waits and before > 0:
            starts[count], sizes[count] = middle, 1
            total += 1.0
            sums[count] = total
            count += 1
            waits = False
        cost = min(before, after)
        if cost > most:
            break
        weight = np.exp(-rate * cost)
        if before <= after:
            top = low - 1  # of the gap below
            if left > 0:
                low = np.int64(values[left - 1])
                starts[count], sizes[count] = low, 1
                total += weight
                sums[count] = total
                count += 1
                while left > 0 and values[left - 1] == low:
                    left -= 1
            else:
                low = np.int64(-1)
            gap = low + 1
        else:
            gap = high + 1
            if right < n:
                high = np.int64(values[right])
                while right < n and values[right] == high:
                    right += 1
                top = high - 1
            else:
                top, high = span - 1, span
        if gap <= top:
            starts[count], sizes[count] = gap, top - gap + 1
            total += weight * (top - gap + 1)
            sums[count] = total
            count += 1
        if before > after and high < span:
            starts[count], sizes[count] = high, 1
            total += weight
            sums[count] = total
            count += 1
    at, slack = uniform * total, ROUNDING * total + beyond
    index = np.searchsorted(sums[:count], at)
    if index < count and (index == 0 or sums[index - 1] + slack <= at) and at + slack <= sums[index]:
        return starts[index], sizes[index]
    return np.int64(0), np.int64(-1)
