"""Noise of means with a core, predicted from public numbers: what is added, and what coins and balls move."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..averages import BallAverage, FriendlyAverage
from ..core_stage import coin_noise, mean_size
from .spread_histogram import clipping_noise, supposed_deviation

Law = list[tuple[float, float, float]]
"""What `core_law` returns."""


def friendly_noise(average: FriendlyAverage, law: Law, radius: float, dimension: int) -> float:
    """Predict the noise deviation per coordinate of a friendly average of a core, in lattice steps.

    Points are the normal ones that plans suppose for the diameter. It is the root mean square over the noise of n-hat,
    by which the noise of the mean is divided.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.3, 5.4; ours.
    """
    added = average.sigma(1, dimension) * average.inverse_size(mean_size(law))
    return math.hypot(added, supposed_deviation(radius, dimension) * coin_noise(law))


def recentred_noise(sigmas: Sequence[float], deviation: float, final: BallAverage, law: Law, dimension: int) -> float:
    """Predict the noise deviation per coordinate of a recentered average of normal points, in lattice steps.

    It is what is added, and that of the coins which decide what the core holds, and of the choice of the ball, where
    several `sigmas` say how it may be found.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    added, kept = np.array(sigmas), max(2.0, mean_size(law))
    balls = clipping_noise(added / final.sigma(1, kept) / deviation, dimension, kept) if len(added) > 1 else 0.0
    return math.hypot(float(np.sqrt(np.mean(added**2))), deviation * coin_noise(law), deviation * balls)
