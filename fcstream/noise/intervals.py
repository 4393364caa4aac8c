"""Finds which interval of exponential weights a uniform number falls into, by bounds that decide with certainty."""

from __future__ import annotations

import bisect
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-8  # of sums of doubles, relative to the whole; with room to spare
_MANY = 2**20


def interval_index(
    drawn: int, bits: int, sizes: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction, digits: int
) -> int | None:
    """Find which of the intervals of lengths sizes[i] exp(-rate costs[i]) / total holds drawn / 2**bits.

    Returns None if so many digits do not decide. Costs ascend from 0. Each weight is bounded from both sides to about
    `digits` digits; the weights of very high costs are bounded all together.
    """
    total = int(sizes.sum())
    places = digits + len(str(total))
    most = math.ceil(places * 2.3026 / float(rate)) + 1  # exp(-rate most) < 10**-places
    near = int(np.searchsorted(costs, most, side="right"))
    low, high, before = [0], [0], None
    with localcontext() as context:
        context.prec = places + 12  # so that rounding the exponent, below 10**9, and the result moves less than one
        for size, cost in zip(sizes[:near].tolist(), costs[:near].tolist(), strict=True):
            if cost != before:
                exponent = Decimal(cost * rate.numerator) / Decimal(rate.denominator)
                unit, before = int((-exponent).exp().scaleb(places)), cost
            low.append(low[-1] + size * max(unit - 2, 0))
            high.append(high[-1] + size * (unit + 2))
    is_all = near == len(costs)
    rest = 0 if is_all else int(sizes[near:].sum())
    ends = bisect.bisect_left(low, -(-(drawn + 1) * (high[-1] + rest) >> bits), 1)
    last = min(ends, near)
    if (ends <= near or is_all) and drawn * low[-1] >= high[last - 1] << bits:
        return last - 1
    return None


def quick_index(
    drawn: int, bits: int, sizes: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction, beyond: float
) -> int | None:
    """Find what `interval_index` finds, with doubles and room for all their rounding; None if they do not decide.

    The intervals may be the first ones only: those that follow weigh at most `beyond` together.

    A double of the rate, of a cost and of their product are each off by 2**-53 relatively at most. So where the product
    is below 700, its exponential is off by 700 * 2**-50 and a few units in the last place; a sum of n such terms adds
    n * 2**-52. With 2**20 terms that is below 1e-9 together. Terms beyond 700 are below 1e-303 of the largest each.
    """
    if len(sizes) > _MANY:
        return None
    exponents = float(rate) * costs.astype(np.float64)
    sums = np.cumsum(sizes * np.exp(-np.minimum(exponents, 700.0)))
    slack = _ROUNDING * float(sums[-1]) + beyond
    at = drawn / (1 << bits) * float(sums[-1])
    index = int(np.searchsorted(sums, at))
    is_above = index == 0 or float(sums[index - 1]) + slack <= at
    return index if index < len(sums) and is_above and at + slack <= float(sums[index]) else None
