"""The mean of a public number of rows, in the (epsilon, delta) paradigm, of which neighbors replace one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ..accounting.losses import zcdp_of_dp
from ..counting.exact import FriendCounts
from ..noise.samplers import Noise
from ..releases.base import ReleaseValues
from ..releases.means.approximate_dp import EstimatedAverage, Regime
from ..stream.lattice import Feature, Grid, Lattice
from .answering import dp_loss, to_release
from .arguments import Bounds, ends_of, naming_arguments, noise_of, number_of, rows_of, whole_of
from .left_out import ArrayRelease, count_left_out


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
    total, noise = dp_loss(epsilon, delta), noise_of(noise)
    charged = zcdp_of_dp(total)
    rows, near = rows_of(points, "points"), number_of(radius, "radius")
    lattice, ends = (
        Lattice(number_of(step, "step")),
        zip(*(end.tolist() for end in ends_of(bounds, rows.width)), strict=True),
    )
    grid = Grid(lattice, tuple(Feature(f"x{k}", *each) for k, each in enumerate(ends)))
    points, inside = grid.located(rows.doubles(grid))
    whole = np.asarray(np.all(inside, axis=1))
    left_out = count_left_out(rows, int(np.count_nonzero(whole)))
    points = np.where(whole[:, None], points, grid.lowest)
    radius_squared = lattice.radius_squared(near)
    share, far = number_of(beta, "beta"), whole_of(outliers, "outliers")
    mechanism = EstimatedAverage(total, len(rows.cells), radius_squared, share, far, regime)
    friends = FriendCounts(grid.dimension, radius_squared)
    friends.add(0, points)
    _, outcome = mechanism.release(friends.view([0]), noise)
    value = None if outcome.value is None else grid.values(outcome.value)
    sigma = None if outcome.sigma is None else grid.widths(outcome.sigma)
    answer = ReleaseValues(value, sigma, parts=outcome.parts, no_interval=outcome.no_interval)
    cost = zcdp_of_dp(mechanism.cost)
    return to_release("mean", replace(outcome, count=len(rows.cells)), answer, cost, charged, noise, left_out)
