"""Division of the recentred average's rho among its steps, from public numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...cores.filters import smallest_rho
from ...errors import ConfigError
from ..averages import BallAverage, FriendlyAverage, norm_quantile
from ..base import Spread
from .spread_histogram import FINE, supposed_deviation

CORE_MARGINS = (3.0, 3.5, 4.0, 4.5, 5.0)
"""Noise deviations by which a friend of all points may pass the core's threshold at the public size hint."""
MAX_CORE_SHARE = 0.6
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

    The histogram gets what its noise needs to be the part `aim` of the points, at most a tenth; without an aim nothing.

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
        needed = int(FINE * RHO_UNIT / (2 * (aim * size_hint) ** 2))
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


@lru_cache(maxsize=64)
def divide_for_exact_core(
    loss: PrivacyLoss,
    outliers: float,
    radius_squared: int,
    dimension: int,
    size_hint: int,
    guess: Spread,
    aim: float | None,
) -> RhoShares:
    """Divide rho where friends are counted exactly; see `divide_rho`.

    The core gets the least with which a friend of all but the share `outliers` of the points passes by one of some
    margins. A larger one costs more of rho, a smaller one leaves out more points by chance, which moves the mean of the
    core: that with the smallest predicted error is taken.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.4; ours.
    """
    delta = PrivacyLoss(0, loss.delta_femto // 2)
    least, hint = 200, max(1, round((1 - outliers) * size_hint))

    def core_rho(margin: float) -> int:
        return _core_rho(loss, size_hint, margin, least, outliers * size_hint)

    def divided(core: int) -> RhoShares:
        return divide_rho(loss, core, radius_squared, dimension, hint, guess, aim)

    first = divided(core_rho(CORE_MARGINS[0]))
    center = FriendlyAverage(PrivacyLoss(first.center, loss.delta_femto - delta.delta_femto), radius_squared, hint)
    noise, deviation = predicted_noise(first, center, guess, dimension, hint), guess.across / 3

    def error(margin: float) -> float:
        """Predict the error, as if all noise had a deviation that falls with the root of what the core leaves."""
        added = noise * math.sqrt((loss.rho_nano - first.core) / (loss.rho_nano - core_rho(margin)))
        return math.hypot(added, deviation * _left_out(margin, hint))

    return divided(core_rho(min(CORE_MARGINS, key=error)))


@lru_cache(maxsize=64)
def friendly_core_rho(loss: PrivacyLoss, radius_squared: int, dimension: int, size_hint: int) -> int:
    """Find the rho (nano) of the core of one friendly average of all that a core leaves, where friends are counted.

    As in `divide_for_exact_core` it is the least of one of some margins: that with the smallest predicted error.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 5.3; ours.
    """
    deviation = supposed_deviation(math.sqrt(radius_squared), dimension)
    found: list[tuple[float, int]] = []
    for margin in CORE_MARGINS:
        core = _core_rho(loss, size_hint, margin)
        rest = PrivacyLoss(loss.rho_nano - core, loss.delta_femto - loss.delta_femto // 2)
        average = FriendlyAverage(rest, radius_squared, size_hint)
        added = average.sigma(max(1.0, size_hint - average.offset), dimension)
        found.append((math.hypot(added, deviation * _left_out(margin, size_hint)), core))
    return min(found)[1]


def _core_rho(loss: PrivacyLoss, size_hint: int, margin: float, least: int = 0, strangers: float = 0.0) -> int:
    """Return the least rho (nano) of a core whose friends of all pass by a margin, within limits."""
    most = max(least, int(MAX_CORE_SHARE * loss.rho_nano))
    return smallest_rho(size_hint, PrivacyLoss(0, loss.delta_femto // 2), margin, most, strangers)


def _left_out(margin: float, size: int) -> float:
    """Return how far a core of `size` points moves the mean by chance, in deviations of the points."""
    share = math.erfc(margin / math.sqrt(2)) / 2
    return math.sqrt(share / ((1 - share) * size))


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
