"""Private answers about one array in the (epsilon, delta) paradigm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ..accounting.losses import DPLoss, PrivacyLoss, zcdp_of_dp
from ..counting.exact import FriendCounts
from ..errors import ConfigError
from ..noise.samplers import Noise
from ..releases.base import Release, ReleaseValues
from ..releases.means.approximate_dp import BasicOptions, EstimatedAverage, Regime, paid_by
from ..releases.statistics.covariance import LIMIT, CovarianceOptions
from .statistics import _answer, _checked, _grid, _to_release


def private_dp_mean(
    points: ArrayLike,
    *,
    radius: float,
    epsilon: float,
    delta: float,
    size_hint: int,
    step: float,
    bounds: tuple[float, float],
    alpha: float = 0.0,
    noise: Noise | None = None,
) -> Release:
    """Release the (epsilon, delta)-DP mean of an array's rows by FriendlyCore's BasicFilter.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or lie outside `bounds` are left out one by one.
    radius : float
        Public diameter: most pairs of rows are at most this far apart.
    epsilon, delta : float
        The loss of the answer.
    size_hint : int
        Public guess of the number of rows.
    step : float
        Step of the lattice that rows are rounded to.
    bounds : (float, float)
        Public range of all coordinates.
    alpha : float
        In [0, 1/2): rows with (1 - alpha) n friends are certainly kept. A larger alpha costs more.
    noise : Noise, optional

    Returns
    -------
    Release
        Its ``rho`` is the loss of the answer in zCDP; ``parts`` holds epsilon and delta.

    Privacy
    -------
    Protects one row, added or removed, with (epsilon, delta)-DP, whatever the rows hold; `BasicMean` is the mechanism.
    If the budget may be zCDP, `private_mean` has much less noise.

    Source
    ------
    Specification 5.7; proofs 4.2, 5.2.
    """
    charged = _paying(DPLoss.charge(epsilon, delta))
    rows, low, high = _checked(points, bounds, rho=charged.rho, delta=delta, radius=radius)
    options = BasicOptions(
        rho=charged.rho, delta=charged.delta, radius=float(radius), size_hint=size_hint, alpha=float(alpha)
    )
    return _answer(options, rows, _grid(rows, low, high, step), noise)


def private_covariance(
    points: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    shards: int,
    step: float,
    bounds: tuple[float, float],
    centered: bool = True,
    limit: float = LIMIT,
    eta: float | None = None,
    noise: Noise | None = None,
) -> Release:
    """Release the (epsilon, delta)-DP covariance matrix of an array's rows, without any bound on their scale.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or lie outside `bounds` are left out one by one.
    epsilon, delta : float
        The loss of the answer.
    shards : int
        The number of shards that independent coins divide the rows into, some hundred or more. If it is too small, the
        error message names the smallest number that works.
    step : float
        Step of the lattice that rows are rounded to; far below the rows' spread.
    bounds : (float, float)
        Public range of all coordinates, which may be arbitrarily wide.
    centered : bool
        Whether the covariance is taken about the mean; otherwise about 0.
    limit : float
        How closely shards must agree: a larger limit needs far fewer rows and adds more noise.
    eta : float, optional
        Noise as a share of the matrix; by default the smallest share at which this number of shards releases.
    noise : Noise, optional

    Returns
    -------
    Release
        ``value`` is the matrix as a list of rows. ``parts`` holds eta, epsilon, delta, and the noisy number of shards
        that agreed.

    Privacy
    -------
    Protects one row, added or removed; `ShardCovariance` states the guarantee and what it does not cover. A release
    needs millions of rows: where a bound on the scale is known, a clipped Gaussian mechanism has far less noise.

    Source
    ------
    Specification 7.3; proof 8.2.
    """
    charged = _paying(DPLoss.charge(epsilon, delta))
    rows, low, high = _checked(points, bounds, rho=charged.rho, delta=delta)
    options = CovarianceOptions(
        rho=charged.rho, delta=charged.delta, shards=shards, centered=centered, limit=float(limit), eta=eta
    )
    return _answer(options, rows, _grid(rows, low, high, step), noise)


def estimate_average(
    points: ArrayLike,
    *,
    radius: float,
    epsilon: float,
    delta: float,
    step: float,
    bounds: tuple[float, float],
    beta: float = 0.05,
    outliers: int = 0,
    regime: Regime = "best",
    noise: Noise | None = None,
) -> Release:
    """Release the (epsilon, delta)-DP mean of a public number of rows, of which neighbors replace one.

    This is FriendlyCore's first version.

    Parameters
    ----------
    points : array (n, d)
        The rows; their number n is public. A row that is not finite or lies outside `bounds` counts as the lowest
        corner of the bounds.
    radius : float
        Public diameter: most pairs of rows are at most this far apart.
    epsilon, delta : float
        The loss of the answer.
    step : float
        Step of the lattice that rows are rounded to.
    bounds : (float, float)
        Public range of all coordinates.
    beta : float
        Probability that data with at most `outliers` outliers is refused.
    outliers : int
        Public guess of the number of outliers, below n/2.
    regime : str
        ``high`` stability, with a success bit, suits few outliers, and ``moderate`` suits many; ``best`` takes the one
        with less predicted noise.
    noise : Noise, optional

    Returns
    -------
    Release
        ``parts`` holds the success bit, the stability alpha, the regime, epsilon and delta. Without success the release
        is a refusal (``too_few``).

    Privacy
    -------
    Protects one row that is REPLACED by another, while n is public; no other function here uses this relation.
    `EstimatedAverage` states the guarantee.

    Source
    ------
    Specification 5.7; proofs 4.4, 5.2.
    """
    total = DPLoss.charge(epsilon, delta)
    charged = zcdp_of_dp(total)
    rows, low, high = _checked(points, bounds, rho=charged.rho, delta=delta, radius=radius)
    grid = _grid(rows, low, high, step)
    inside = ((rows >= low) & (rows <= high)).all(axis=1, keepdims=True)
    rows = np.where(inside, rows, low)
    radius_squared = grid.lattice.radius_squared(float(radius))
    try:
        mechanism = EstimatedAverage(total, len(rows), radius_squared, float(beta), int(outliers), regime)
    except ConfigError as error:
        raise ConfigError(error.message, error.key.removeprefix("release.")) from None
    noise = noise or Noise()
    friends = FriendCounts(grid.dimension, radius_squared)
    friends.add(0, grid.points(rows))
    _, outcome = mechanism.release(friends.view([0]), noise)
    value = None if outcome.value is None else grid.values(outcome.value)
    sigma = None if outcome.sigma is None else grid.widths(outcome.sigma)
    answer = ReleaseValues(value, sigma, parts=outcome.parts)
    return _to_release("mean", replace(outcome, count=len(rows)), answer, zcdp_of_dp(mechanism.cost), charged, noise)


def _paying(total: DPLoss) -> PrivacyLoss:
    """Return the largest zCDP loss, with rho a multiple of 1e-9, that pays for at most what was asked for."""

    charged = zcdp_of_dp(total)
    if charged.rho_nano > 0 and not paid_by(charged).fits(total):
        charged = PrivacyLoss(charged.rho_nano - 1, charged.delta_femto)
    if charged.rho_nano == 0:
        raise ConfigError(f"must be larger: rho has nine decimals, got {total.epsilon:g}", "epsilon")
    return charged
