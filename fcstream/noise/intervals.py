"""Finds which interval of exponential weights a uniform number falls into, by bounds that decide with certainty."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-8  # of sums of doubles, relative to the whole; with room to spare
_MANY = 2**20
T = TypeVar("T")


def by_cost(sizes: NDArray[np.int64], costs: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.int64]:
    """Put some indices, those of candidates, into the order of their costs."""
    used = some[sizes[some] > 0]
    return used[np.argsort(costs[used], kind="stable")]


def inverted(
    word: Callable[[], int],
    quick: Callable[[int, int], T | None],
    everything: Callable[[], tuple[NDArray[np.int64], NDArray[np.int64]]],
    of_index: Callable[[int], T],
    rate: Fraction,
) -> T:
    """Return what `Noise.exponential_answer` draws, from the bits of as many words as decide."""
    drawn = bits = 0
    for digits in itertools.count(25, 40):
        while bits < 4 * digits:
            drawn, bits = (drawn << 64) | word(), bits + 64
        answer = quick(drawn, bits)
        if answer is not None:
            return answer
        sizes, costs = everything()
        order = by_cost(sizes, costs, np.arange(len(sizes)))
        found = interval_index(drawn, bits, sizes[order], costs[order] - costs[order[0]], rate, digits)
        if found is not None:
            return of_index(int(order[found]))
    raise AssertionError("the digits never end")  # pragma: no cover


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
