"""Division of the recentred average's rho among its steps, from public numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...errors import ConfigError
from ..averages import BallAverage, FriendlyAverage, norm_quantile
from ..base import Spread
from .spread_histogram import FINE

AIMS = (0.003, 0.02)
"""Noise of this part of the points per radius is small enough to show where the tail of a core ends: the least and the
most."""
AIM_PER_FEATURE = 0.0003
"""In between, for each feature: the more there are, the closer distances lie together, and the steeper the tail is."""


@dataclass(frozen=True)
class RhoShares:
    """Division of rho (nano) among the steps of the recentred average, chosen from public numbers; in billionths."""

    core: int
    center: int
    histogram: int
    middle: int
    final: int


def bin_noise(dimension: int) -> float:
    """Return how large the noise of a bin of the spread histogram should be, as a part of the points.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours, measured.
    """
    least, most = AIMS
    return min(most, max(least, AIM_PER_FEATURE * dimension))


@lru_cache(maxsize=64)
def divide_rho(
    loss: PrivacyLoss,
    core: int,
    radius_squared: int,
    dimension: int,
    size_hint: int,
    guess: Spread,
    aim: float | None,
) -> RhoShares:
    """Find the division of rho with the smallest predicted noise, from public numbers, for a given `core` (nano).

    The histogram gets what its noise needs to be the part `aim` of the points, at most a tenth, and a tenth with an aim
    of 0; without an aim nothing.

    Raises
    ------
    ConfigError
        There is too little to divide.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    delta = PrivacyLoss(0, loss.delta_femto // 2)
    rest, histogram = loss.rho_nano - core, 0
    if aim is not None:
        needed = int(FINE * RHO_UNIT / (2 * (aim * size_hint) ** 2)) if aim else rest
        histogram = max(1, min(rest // 10, needed))
        rest -= histogram
    best: tuple[float, RhoShares] | None = None
    for center in (rest * np.geomspace(0.01, 0.7, 30)).astype(np.int64).tolist():
        if center < 1000:
            continue
        average = FriendlyAverage(PrivacyLoss(center, loss.delta_femto - delta.delta_femto), radius_squared, size_hint)
        for middle in (rest * np.geomspace(0.01, 0.5, 16)).astype(np.int64).tolist():
            final = rest - center - middle
            if min(final, middle) < 1000:
                continue
            shares = RhoShares(core, center, histogram, middle, final)
            predicted = predicted_noise(shares, average, guess, dimension, size_hint)
            if best is None or predicted < best[0]:
                best = (predicted, shares)
    if best is None:
        raise ConfigError(f"must be at least 1e-5, got {loss.rho:g}: there is nothing to divide", "release.rho")
    return best[1]


def predicted_noise(shares: RhoShares, center: FriendlyAverage, spread: Spread, dimension: int, size: float) -> float:
    """Predict the noise deviation per coordinate of the recentred average's last step, in lattice steps.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    quantile = norm_quantile(dimension, 0.01)
    n_hat = size - center.offset
    if n_hat < 1:
        n_hat = 1 / (2 - n_hat)  # keeps falling, so that a search finds its way out
    sigma = center.sigma(n_hat, dimension)
    count = max(size, 1.0)
    for nano in (shares.middle, shares.final):
        average = BallAverage.split(nano, dimension)
        sigma = average.sigma(spread.radius(sigma * quantile) ** 2, count)
    return sigma
