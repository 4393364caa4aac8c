"""Intervals that hold the noise of released numbers with a probability of 95%."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

LEVEL = 0.95
TWO_SIDED = 1.96
"""Deviations of a normal number within which it lies with probability `LEVEL`."""
COUNTED = frozenset(("count", "histogram", "frequent"))
"""Kinds whose numbers are counts with the noise of one discrete Gaussian each."""
_EXACT_UP_TO = 1000.0  # a wider discrete Gaussian differs from the normal law by less than 1e-3 of its deviation


def interval_of(kind: str, value: Any, sigma: Any) -> Any:
    """Return `value` nested as it is, with ``[low, high]`` in the place of each number.

    Parameters
    ----------
    kind : str
        Kind of the release, which tells whether its numbers are counts.
    value, sigma : list or None
        As a release holds them.

    Returns
    -------
    list or None
        In the units of `value`; None in the place of a number whose sigma is unknown, and for no sigmas at all.

    Privacy
    -------
    Post-processing of a release, so it costs nothing.

    Source
    ------
    Specification 12.3; the discrete Gaussian: Canonne, Kamath, Steinke 2020.
    """
    if value is None or sigma is None:
        return None
    if isinstance(value, list):
        known = sigma if isinstance(sigma, list) else []
        if kind not in COUNTED and len(known) == len(value) and all(type(each) is float for each in [*value, *known]):
            return [
                [each - TWO_SIDED * own, each + TWO_SIDED * own] if math.isfinite(each) and math.isfinite(own) else None
                for each, own in zip(value, known, strict=True)
            ]
        return [interval_of(kind, each, own) for each, own in zip(value, [*known, *[None] * len(value)], strict=False)]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isinstance(sigma, (int, float)):
        return None
    if not (math.isfinite(value) and math.isfinite(sigma)):
        return None
    half = count_half_width(float(sigma)) if kind in COUNTED else TWO_SIDED * sigma
    return [value - half, value + half]


@lru_cache(maxsize=256)
def count_half_width(sigma: float) -> int:
    """Return the least whole number that a discrete Gaussian of the variance ``sigma**2`` exceeds with at most 5%.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 12.3; Canonne, Kamath, Steinke 2020, Definition 1.
    """
    if sigma > _EXACT_UP_TO:
        return math.ceil(TWO_SIDED * sigma)
    if sigma <= 0:
        return 0
    distances = np.arange(math.ceil(10 * sigma) + 2, dtype=np.float64)
    weights = np.exp(-((distances / sigma) ** 2) / 2)
    weights[1:] *= 2
    within = np.cumsum(weights) / math.fsum(weights.tolist())
    return int(np.searchsorted(within, LEVEL))
