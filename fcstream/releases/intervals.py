"""Intervals that hold released numbers without their errors with a probability of 95%, and why there are none."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from .base import ReleaseValues
from .shape import Law, ResultShape

LEVEL = 0.95
TWO_SIDED = 1.96
"""Deviations of a normal number within which it lies with probability `LEVEL`."""
_REPORTED: tuple[Law, ...] = ("count", "normal")
_EXACT_UP_TO = 1000.0  # a wider discrete Gaussian differs from the normal law by less than 1e-3 of its deviation


def interval_of(law: str, value: Any, sigma: Any) -> Any:
    """Return `value` nested as it is, with ``[low, high]`` in the place of each number.

    Parameters
    ----------
    law : str
        Law of the noise (`fcstream.releases.shape.Numbers`).
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
        if len(value) == 1 == len(known) and type(value[0]) is type(known[0]) is float:
            return [_of_number(law, value[0], known[0])]
        if law != "count" and len(known) == len(value) and {*map(type, value), *map(type, known)} <= {float}:
            halves = [TWO_SIDED * own for own in known]
            if all(map(math.isfinite, value)) and all(map(math.isfinite, known)):
                return [[each - own, each + own] for each, own in zip(value, halves, strict=True)]
        return [interval_of(law, each, own) for each, own in zip(value, [*known, *[None] * len(value)], strict=False)]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isinstance(sigma, (int, float)):
        return None
    return _of_number(law, value, sigma)


def _of_number(law: str, value: float, sigma: float) -> list[float] | None:
    if not (math.isfinite(value) and math.isfinite(sigma)):
        return None
    half = count_half_width(float(sigma)) if law == "count" else TWO_SIDED * sigma
    return [value - half, value + half]


def with_intervals(shape: ResultShape, answer: ReleaseValues) -> ReleaseValues:
    """Return a release's values with the intervals that the law of the noise tells, where a mechanism gave none.

    Intervals of parts are ``mean_interval`` for ``mean`` and ``mean_sigma``, and so on for the numbers of the shape,
    and the ``interval`` of the ``window`` of a total. They have the form of `interval_of`; of numbers by name, a dict.
    What has no interval by the mechanism's own word (`no_interval`) gets null, and ``parts["no_interval"]`` the words;
    where only some of its numbers have none, the mechanism gives the others.

    Parameters
    ----------
    shape : ResultShape
    answer : ReleaseValues
        As its mechanism made them; not changed.

    Privacy
    -------
    Post-processing of a release, so it costs nothing.

    Source
    ------
    Specification 12.3; ours.
    """
    words, parts = answer.no_interval or {}, answer.parts or {}
    found, interval = dict(parts), answer.interval
    for numbers in shape.numbers[1:]:
        name, own = numbers.name, f"{numbers.stem}_interval"
        value, sigma = parts.get(name), parts.get(f"{numbers.stem}_sigma")
        if own not in parts and name in words:
            found[own] = None
        elif own not in parts and value is not None and sigma is not None and numbers.law in _REPORTED:
            found[own] = _of_part(numbers.law, value, sigma)
    window = parts.get("window")
    if isinstance(window, dict) and window.get("sigma") is not None and "interval" not in window:
        law = None if "window" in words else interval_of(shape.value.law, window.get("value"), window["sigma"])
        found["window"] = window | {"interval": law}
    if "value" not in words and interval is None and shape.value.law in _REPORTED:
        interval = interval_of(shape.value.law, answer.value, answer.sigma)
    if words:
        found["no_interval"] = dict(words)
    return replace(answer, parts=found or answer.parts, interval=interval)


def _of_part(law: str, value: Any, sigma: Any) -> Any:
    if isinstance(value, dict):
        return {name: interval_of(law, own, sigma.get(name)) for name, own in value.items()}
    return interval_of(law, value, sigma)


def lattice_half_width(sigma: Any, unit: Any = 1.0) -> Any:
    """Return half the width of an interval of a number whose noise adds up multiples of discrete Gaussians.

    The normal law is off by half a step of the coarsest of them at most.

    Parameters
    ----------
    sigma : float or float64 (d,)
        Deviation of the noise.
    unit : float or float64 (d,)
        Its largest step: what a draw of 1 moves the number by at most.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 12.3; ours.
    """
    return TWO_SIDED * sigma + unit / 2


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
