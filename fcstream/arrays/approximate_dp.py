"""Private covariances of one array, and answers in the (epsilon, delta) paradigm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..accounting.losses import DPLoss, PrivacyLoss, zcdp_of_dp
from ..counting.exact import FriendCounts
from ..errors import ConfigError
from ..noise.samplers import Noise
from ..releases.base import ReleaseValues
from ..releases.means.approximate_dp import BasicOptions, EstimatedAverage, Regime, paid_by
from ..releases.options import MAX_RHO
from ..releases.statistics.clipped import ClippedCovarianceOptions
from ..releases.statistics.covariance import LIMIT, CovarianceOptions
from .arguments import (
    Bounds,
    check_delta,
    naming_arguments,
    noise_of,
    number_of,
    number_or_none,
    whole_of,
    whole_or_none,
)
from .left_out import ArrayRelease, count_left_out
from .statistics import _answer, _checked, _grid, _to_release


@naming_arguments
def private_dp_mean(
    points: ArrayLike,
    *,
    radius: float,
    epsilon: float,
    delta: float,
    size_hint: int,
    step: float,
    bounds: Bounds,
    alpha: float = 0.0,
    noise: Noise | None = None,
) -> ArrayRelease:
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
    bounds : (float, float) or two sequences of d floats
        Lower and upper ends of the public ranges of all columns, or of each.
    alpha : float
        In [0, 1/2): rows with (1 - alpha) n friends are certainly kept. A larger alpha costs more.
    noise : Noise, optional

    Returns
    -------
    ArrayRelease
        Its ``rho`` is the loss of the answer in zCDP; ``parts`` holds epsilon and delta.

    Privacy
    -------
    Protects one row, added or removed, with (epsilon, delta)-DP, whatever the rows hold; `BasicMean` is the mechanism.
    If the budget may be zCDP, `private_mean` has much less noise.

    Source
    ------
    Specification 5.7; proofs 4.2, 5.2.
    """
    charged = _paying(_dp_loss(epsilon, delta))
    rows, low, high = _checked(points, bounds, rho=charged.rho, delta=delta, radius=number_of(radius, "radius"))
    options = BasicOptions(
        rho=charged.rho, delta=charged.delta, radius=float(radius),
        size_hint=whole_or_none(size_hint, "size_hint"), alpha=number_of(alpha, "alpha"),
    )  # fmt: skip
    return _answer(options, rows, _grid(low, high, step), noise)


@naming_arguments
def private_covariance(
    points: ArrayLike,
    *,
    rho: float | None = None,
    delta: float = 0.0,
    size_hint: int | None = None,
    step: float,
    bounds: Bounds,
    method: str = "clipped",
    scale: str | None = "learned",
    components: int | None = None,
    target: int | None = None,
    epsilon: float | None = None,
    shards: int | None = None,
    centered: bool = True,
    limit: float = LIMIT,
    eta: float | None = None,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release the differentially private covariance matrix of an array's columns, and what follows from it.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or lie outside `bounds` are left out one by one.
    rho : float
        The loss of the answer with ``method="clipped"``, which requires it; there is no delta.
    delta : float
        For ``method="friendly"`` alone, which requires it.
    size_hint : int
        Public guess of the number of rows, which ``method="clipped"`` requires.
    step : float
        Step of the lattice that rows are rounded to; far below the rows' spread.
    bounds : (float, float) or two sequences of d floats
        Lower and upper ends of the public ranges of all columns, or of each; they may be far too wide.
    method : str
        ``clipped`` (default): second moments of rows that are clipped to a ball found privately, from thousands of
        rows. ``friendly``: FriendlyCore on the matrices of shards, in (epsilon, delta), from millions of rows.
    scale : "learned" or None
        Whether every column is divided by a scale that is found privately; None where columns have one scale.
    components : int, optional
        How many principal components are told.
    target : int, optional
        Column that is regressed on the others.
    epsilon, shards, centered, limit, eta
        For ``method="friendly"`` alone: the loss, with `delta`; the number of shards that coins divide the rows into,
        some hundred or more (the error message names the smallest number that works); whether the covariance is taken
        about the mean, otherwise about 0; how closely shards must agree; noise as a share of the matrix.
    noise : Noise, optional

    Returns
    -------
    ArrayRelease
        ``value`` is the matrix as a list of rows, and ``sigma`` the deviation of the noise of every entry. With
        ``clipped`` ``parts`` holds the correlations and their deviations, the mean, the learned scales, the share of
        rows outside of the ball (``tail_share``), and what `components` and `target` ask for; with ``friendly`` eta,
        epsilon, delta, and the noisy number of shards that agreed.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Protects one row, added or removed, whatever the rows hold. ``clipped`` is pure rho-zCDP (`ClippedCovariance`), and
    all it tells costs rho once; ``friendly`` is (epsilon, delta)-DP (`ShardCovariance` states what it does not cover).

    Source
    ------
    Specification 7.3, 7.4, 7.5; proofs 8.2, 8.3.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(1).multivariate_normal([20, 50], [[4, 3], [3, 9]], size=5000)
    >>> answer = fcstream.private_covariance(rows, rho=1, size_hint=5000, step=1e-3, bounds=(-1000, 1000))
    >>> round(answer.parts["correlations"][0][1], 1)
    0.5
    """
    if method not in ("clipped", "friendly"):
        raise ConfigError(f"must be 'clipped' or 'friendly', got {method!r}", "method")
    needed = {"rho": rho, "size_hint": size_hint} if method == "clipped" else {"epsilon": epsilon, "shards": shards}
    for name, value in needed.items():
        if value is None:
            raise ConfigError("must be given: it is public, and nothing about it is learned from the data", name)
    _check_unused(method, locals())
    options: ClippedCovarianceOptions | CovarianceOptions
    if method == "clipped":
        rows, low, high = _checked(points, bounds, rho=rho)  # type: ignore[arg-type]
        if scale not in ("learned", None):
            raise ConfigError(f"must be 'learned' or None, got {scale!r}", "scale")
        options = ClippedCovarianceOptions(
            rho=float(rho),  # type: ignore[arg-type]
            size_hint=whole_or_none(size_hint, "size_hint"),
            scale="learned" if scale == "learned" else "declared",
            components=whole_or_none(components, "components"),
            target=None if target is None else f"x{whole_of(target, 'target')}",
        )
    else:
        charged = _paying(_dp_loss(epsilon, delta))
        rows, low, high = _checked(points, bounds, rho=charged.rho, delta=delta)
        options = CovarianceOptions(
            rho=charged.rho,
            delta=charged.delta,
            shards=whole_of(shards, "shards"),
            centered=centered,
            limit=number_of(limit, "limit"),
            eta=number_or_none(eta, "eta"),
        )
    return _answer(options, rows, _grid(low, high, step), noise)


_OWN: dict[str, dict[str, object]] = {
    "clipped": {"rho": None, "size_hint": None, "scale": "learned", "components": None, "target": None},
    "friendly": {"epsilon": None, "shards": None, "centered": True, "limit": LIMIT, "eta": None, "delta": 0.0},
}


def _check_unused(method: str, given: dict[str, object]) -> None:
    """Refuse arguments of the other method, which would change nothing."""
    other = "friendly" if method == "clipped" else "clipped"
    for name, default in _OWN[other].items():
        if given[name] != default:
            raise ConfigError(f"belongs to method {other!r}, not to {method!r}: leave it out", name)


@naming_arguments
def estimate_average(
    points: ArrayLike,
    *,
    radius: float,
    epsilon: float,
    delta: float,
    step: float,
    bounds: Bounds,
    beta: float = 0.05,
    outliers: int = 0,
    regime: Regime = "best",
    noise: Noise | None = None,
) -> ArrayRelease:
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
    bounds : (float, float) or two sequences of d floats
        Lower and upper ends of the public ranges of all columns, or of each.
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
    ArrayRelease
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
    total, noise = _dp_loss(epsilon, delta), noise_of(noise)
    charged = zcdp_of_dp(total)
    rows, low, high = _checked(points, bounds, rho=charged.rho, delta=delta, radius=number_of(radius, "radius"))
    grid = _grid(low, high, step)
    points, inside = grid.located(rows.doubles(grid))
    whole = np.asarray(np.all(inside, axis=1))
    left_out = count_left_out(rows, int(np.count_nonzero(whole)))
    points = np.where(whole[:, None], points, grid.lowest)
    radius_squared = grid.lattice.radius_squared(float(radius))
    share, far = number_of(beta, "beta"), whole_of(outliers, "outliers")
    mechanism = EstimatedAverage(total, len(rows.cells), radius_squared, share, far, regime)
    friends = FriendCounts(grid.dimension, radius_squared)
    friends.add(0, points)
    _, outcome = mechanism.release(friends.view([0]), noise)
    value = None if outcome.value is None else grid.values(outcome.value)
    sigma = None if outcome.sigma is None else grid.widths(outcome.sigma)
    answer = ReleaseValues(value, sigma, parts=outcome.parts, no_interval=outcome.no_interval)
    cost = zcdp_of_dp(mechanism.cost)
    return _to_release("mean", replace(outcome, count=len(rows.cells)), answer, cost, charged, noise, left_out)


def _dp_loss(epsilon: Any, delta: Any) -> DPLoss:
    epsilon, delta = number_of(epsilon, "epsilon"), number_of(delta, "delta")
    if not 0 < epsilon < MAX_RHO:
        raise ConfigError(f"must be positive and below {MAX_RHO:g}, got {epsilon:g}", "epsilon")
    check_delta(delta)
    return DPLoss.charge(epsilon, delta)


def _paying(total: DPLoss) -> PrivacyLoss:
    """Return the largest zCDP loss, with rho a multiple of 1e-9, that pays for at most what was asked for."""

    charged = zcdp_of_dp(total)
    if charged.rho_nano > 0 and not paid_by(charged).fits(total):
        charged = PrivacyLoss(charged.rho_nano - 1, charged.delta_femto)
    if charged.rho_nano == 0:
        raise ConfigError(f"must be larger: rho has nine decimals, got {total.epsilon:g}", "epsilon")
    return charged
