"""Private answers about one array, without windows or files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .config import mean_mechanism
from .errors import ConfigError
from .lattice import Feature, Grid, Lattice
from .ledgers import Request, Terms, WindowKey, open_ledger
from .ledgers.base import STREAM_BLOCK
from .noise import Noise, SeededEntropy
from .releases.base import Mechanism, Release, counter_for
from .releases.mean import BallMean
from .zcdp import PrivacyLoss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


def private_mean(
    points: ArrayLike,
    *,
    radius: float,
    rho: float,
    delta: float,
    size_hint: int,
    step: float,
    bounds: tuple[float, float],
    method: str = "recentered",
    spread: float | str = "histogram",
    center: Sequence[float] | None = None,
    noise: Noise | None = None,
) -> Release:
    """Differentially private mean of an array's rows, with outliers left out.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or leave `bounds` are left out, each for itself.
    radius : float
        Public diameter: most pairs of rows lie within it. With ``method="ball"``: radius of the public ball.
    rho, delta : float
        What the answer costs (``ball`` has no delta: it is ignored).
    size_hint : int
        Public guess of n.
    step : float
        Width of the lattice that rows are rounded to, in their units; small against `radius`.
    bounds : (float, float)
        Public range of all coordinates. Nothing public is ever inferred from data.
    method : str
        ``recentered`` (default), ``friendly`` (FC_Avg) or ``ball``.
    spread : float or "histogram"
        Public typical distance of a row from the center; by default found privately. For ``recentered``.
    center : sequence of float, optional
        Public center, for ``ball``.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    Release
        ``value`` and ``sigma`` in the rows' units, or a refusal (``too_few``).

    Raises
    ------
    ConfigError
        A public parameter that cannot work.

    Privacy
    -------
    Unit: one row. Relation: add or remove. (rho, delta)-zCDP for every content. You do the bookkeeping: several calls
    add up (see `PrivacyFilter`). Not covered: run time, and errors about the array's shape.

    Complexity
    ----------
    n**2 d / 2 for the friend counts, O(n d) for the rest.

    Source
    ------
    See `RecentredMean`, `FriendlyMean`, `BallMean`.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(1).normal(20.0, 0.5, size=(2000, 3))
    >>> answer = fcstream.private_mean(rows, radius=4, rho=0.5, delta=1e-8, size_hint=2000, step=1e-3, bounds=(-50, 50))
    >>> answer.status, [round(v) for v in answer.value]
    ('released', [20, 20, 20])
    """
    try:
        rows = np.asarray(points, np.float64)
    except (TypeError, ValueError):
        raise ConfigError("must be a rectangular array of numbers", "points") from None
    if rows.ndim != 2 or rows.shape[1] < 1:
        raise ConfigError(f"must have shape (n, d) with d >= 1, got {rows.shape}", "points")
    try:
        low, high = map(float, bounds)
        radius, rho, delta = float(radius), float(rho), float(delta)
    except (TypeError, ValueError):
        raise ConfigError("bounds must be two numbers, and radius, rho and delta one each") from None
    if not (0 < rho < 1e9 and 0 <= delta < 1):
        raise ConfigError(
            f"must be positive and below 1e9 (rho) and in [0, 1) (delta), got {rho:g}, {delta:g}", "rho, delta"
        )
    grid = Grid(Lattice(step), tuple(Feature(f"x{k}", low, high) for k in range(rows.shape[1])))
    mechanism = _mechanism(method, rho, delta, grid, radius, size_hint, spread, center)
    inside = ((rows >= low) & (rows <= high)).all(axis=1)
    noise = noise or Noise()
    friends = counter_for(mechanism, grid.dimension, 1, noise)
    friends.add(0, grid.points(rows[inside]))
    ledger = open_ledger("memory:", Terms("array", "stream", mechanism.loss, ""))
    verdict = ledger.charge([Request(WindowKey(0, 0), mechanism.loss, (STREAM_BLOCK,))])[0]
    assert verdict.charge is not None
    outcome = mechanism.release(friends.view([0]), verdict.charge, noise)
    return Release(
        stream="array",
        window_open_ms=0,
        window_close_ms=0,
        status="refused" if outcome.reason else "released",
        reason=outcome.reason,
        kind="mean",
        value=None if outcome.value is None else grid.values(outcome.value),
        sigma=None if outcome.sigma is None else grid.widths(outcome.sigma),
        count=outcome.count,
        core_count=outcome.core_count,
        rho=mechanism.loss.rho,
        delta=mechanism.loss.delta,
        guarantee=mechanism.loss.as_dict(),
        spent=verdict.spent.as_dict(),
        private=noise.private,
    )


def warm_up() -> None:
    """Compile what windows need, or read it from the cache: some seconds once, then a fraction of one.

    Without it the first window pays. Kernels of `predicates` and a user's own functions are left to their first use.
    """
    from .ladders import LadderCounts
    from .speeds import measured_costs

    seeded = Noise(SeededEntropy(0))
    points = np.zeros((300, 12))
    for method, center in (("recentered", None), ("friendly", None), ("ball", [0.0] * 12)):
        private_mean(
            points, radius=1, rho=10, delta=0.0 if center else 1e-6, size_hint=300, step=1e-3, bounds=(-1, 1),
            method=method, center=center, noise=seeded,
        )  # fmt: skip
    ladder = LadderCounts(2, [1, 4])
    ladder.add(0, np.zeros((2, 2)))
    ladder.view([0])
    measured_costs(2)


def _mechanism(
    method: str,
    rho: float,
    delta: float,
    grid: Grid,
    radius: float,
    size_hint: int,
    spread: float | str,
    center: Sequence[float] | None,
) -> Mechanism:
    if method not in ("recentered", "friendly", "ball"):
        raise ConfigError(f"must be 'recentered', 'friendly' or 'ball', got {method!r}", "method")
    if method != "ball":
        if center is not None:
            raise ConfigError("belongs to method 'ball' only", "center")
        loss = PrivacyLoss.charge(rho, delta)
        return mean_mechanism(method, loss, grid.lattice, grid.dimension, radius, size_hint, spread)
    if center is None or len(center) != grid.dimension or not all(map(math.isfinite, center)):
        raise ConfigError(f"must list {grid.dimension} finite numbers for method 'ball'", "center")
    low, high = grid.features[0].minimum, grid.features[0].maximum
    if not all(low <= value <= high for value in center):
        raise ConfigError(f"must lie in bounds = ({low:g}, {high:g}), got {list(center)}", "center")
    point = tuple(int(x) for x in grid.lattice.coordinates(np.asarray(center, np.float64)))
    return BallMean(PrivacyLoss.charge(rho), point, grid.lattice.radius_squared(radius))
