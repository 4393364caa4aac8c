"""Least counts: noisy numbers of records below which a mechanism refuses a window.

They are chosen so that a window without records hardly ever gets a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ..cores.filters import ROUND_UP

FALSE_RELEASE = Fraction(1, 10_000)
"""The largest allowed chance that a window without records gets a value."""
_UP = 1 + 1e-9
_TINY = 1e-300  # an upper bound of the terms that a sum leaves out, and of what underflows
_SUMMED = 2**12  # deviations up to which a tail is added up term by term


@lru_cache(maxsize=4096)
def gaussian_tail(variance: Fraction, least: int) -> float:
    """Probability that a discrete Gaussian is at least `least`, >= 1, rounded up.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 1.5; proof 1.5; the sum of its terms; above a deviation of 4096 the bound of Canonne, Kamath, Steinke
    2020, Proposition 25.
    """
    deviation = math.sqrt(variance)
    if deviation > _SUMMED:
        return max(0.5 * math.erfc((least - 1) / deviation / math.sqrt(2)) * _UP, _TINY)
    far = math.ceil(40 * deviation) + 1
    weights = np.exp(-(np.arange(far, dtype=np.float64) ** 2) / (2 * float(variance)))
    return max(float(weights[least:].sum() / (2 * weights.sum() - 1)) * _UP, _TINY)


@lru_cache(maxsize=1024)
def min_gaussian(variance: Fraction, chance: Fraction = FALSE_RELEASE) -> int:
    """Smallest number >= 1 that a discrete Gaussian reaches with at most this probability.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 1.5; proof 1.5; bisection of `gaussian_tail`.
    """
    return _least(lambda number: gaussian_tail(variance, number), chance)


def laplace_tail(scale: Fraction, least: int) -> float:
    """Probability that a discrete Laplace number is at least `least`, rounded up.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 1.5; proof 1.5; a geometric series.
    """
    decay = 1 / float(scale)
    if least <= 0:
        return 1.0
    return max(math.exp(-least * decay) / (1 + math.exp(-decay)) * ROUND_UP, _TINY)


def min_laplace(scale: Fraction) -> int:
    """Smallest number >= 1 that a discrete Laplace number reaches with a probability of at most `FALSE_RELEASE`.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 1.5; proof 1.5; bisection of `laplace_tail`.
    """
    return _least(lambda number: laplace_tail(scale, number), FALSE_RELEASE)


def _least(tail: Callable[[int], float], chance: Fraction) -> int:
    """Find the smallest number >= 1 whose tail is at most a chance."""
    low, high = 0, 1
    while tail(high) > chance:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(middle) > chance else (low, middle)
    return high
