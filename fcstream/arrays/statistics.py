"""Private answers about one array, without windows or files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..accounting.losses import PrivacyLoss
from ..counting.rows import RowsView, points_inside, rows_inside
from ..errors import ConfigError
from ..ledgers import Request, Terms, WindowKey, open_ledger
from ..ledgers.base import STREAM_BLOCK, Charge
from ..noise.samplers import Noise
from ..releases.base import Outcome, ReleaseValues
from ..releases.intervals import with_intervals
from ..releases.means.searched import SearchOptions
from ..releases.options import MAX_RHO, BuildContext, Options
from ..releases.statistics.clipped import ClippedCovariance
from ..releases.statistics.histogram import HistogramOptions
from ..releases.statistics.learned import build_mechanism
from ..releases.statistics.quantiles import QuantilesOptions
from ..releases.statistics.sum import SumOptions
from ..releases.statistics.variance import VarianceOptions
from ..stream.lattice import Feature, Grid, Lattice
from .arguments import (
    Bounds,
    GivenRows,
    check_delta,
    ends_of,
    naming_arguments,
    noise_of,
    number_of,
    number_or_none,
    numbers_of,
    rows_of,
    whole_or_none,
)
from .left_out import ArrayRelease, count_left_out


@naming_arguments
def private_mean(
    points: ArrayLike,
    *,
    radius: float | str,
    rho: float,
    delta: float = 0.0,
    size_hint: int,
    step: float,
    bounds: Bounds,
    method: str = "recentered",
    spread: float | str = "histogram",
    center: Sequence[float] | None = None,
    radius_min: float | None = None,
    radius_max: float | None = None,
    outliers: float | str | None = None,
    scale: str | None = None,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release the differentially private mean of an array's rows: of all, or without outliers.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or lie outside `bounds` are left out one by one.
    radius : float or "search"
        Public diameter: most pairs of rows are at most this far apart. With ``method="ball"`` it is the radius of the
        public ball. ``"search"`` finds the diameter privately, between `radius_min` and `radius_max`.
    rho, delta : float
        The loss of the answer. Only where rows are left out is there a delta; without, it is ignored.
    size_hint : int
        Public guess of the number of rows.
    step : float
        Step of the lattice that rows are rounded to, in the rows' units; much smaller than `radius`.
    bounds : (float, float) or two sequences of d floats
        Lower and upper ends of the public ranges of all columns, or of each; not computed from the data.
    method : str
        ``recentered`` (default), ``friendly`` (FC_Avg) or ``ball``.
    spread : float or "histogram"
        Public typical distance of a row from the center, for ``recentered``; by default it is found privately.
    center : sequence of float, optional
        Public center, for ``ball``.
    radius_min, radius_max : float, optional
        Public range in which ``radius="search"`` looks for the diameter; it may span many powers of ten.
    outliers : "clip", "leave_out" or float, optional
        What becomes of rows that lie far out. ``"clip"``, the default of ``recentered``: the value is the mean of all
        rows in `bounds`; those out of a ball, which is chosen so that this and the noise together do the least harm,
        are moved to its border. ``"leave_out"``: it is the mean of the others, as always with ``friendly``. A number
        leaves out too: a public guess, in [0, 1/2), of the share of rows that are outliers. It only serves planning.
    scale : "learned", optional
        Divides each column by a scale that is found privately, the difference of its quartiles, for a tenth of rho. All
        other distances (`radius`, `step`, `spread`, `radius_min`, `radius_max`) are then in these scales. By default
        all columns count as they are.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    ArrayRelease
        ``value`` and ``sigma`` in the rows' units, or a refusal: ``too_few`` rows, or, where rows are left out,
        ``no_core`` if there are enough rows but they lie too far apart. ``sigma`` is the deviation of the added noise;
        ``interval`` holds the mean of all rows in `bounds` with a probability of 95%, whatever they are, so it is in
        proportion to `bounds`. Where rows are left out it is null, and ``parts["no_interval"]`` says so.
        ``parts["tail_share"]`` is the noisy share of rows that were left out, or moved, where the spread is found
        privately.

    Raises
    ------
    ConfigError
        A public parameter is out of range, or does not fit the others.

    Privacy
    -------
    Protects one row, added or removed, with (rho, delta)-zCDP, whatever the rows hold; delta is 0 unless rows are left
    out. The losses of several calls add up, and the caller must keep account of them (see `PrivacyFilter`). Not
    covered: run time, and errors about the array's shape.

    Complexity
    ----------
    O(n d); where rows are left out n**2 d / 2 for the friend counts.

    Source
    ------
    Specification 5.2, 5.3, 5.4, 5.6, 5.15, 5.18; proofs 5.3, 5.4, 5.6, 5.9, 5.11.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(1).normal(20.0, 0.5, size=(2000, 3))
    >>> answer = fcstream.private_mean(rows, radius=4, rho=0.5, size_hint=2000, step=1e-3, bounds=(-50, 50))
    >>> answer.status, [round(v) for v in answer.value]
    ('released', [20, 20, 20])
    """
    if method not in ("recentered", "friendly", "ball"):
        raise ConfigError(f"must be 'recentered', 'friendly' or 'ball', got {method!r}", "method")
    if isinstance(outliers, str) and outliers not in ("clip", "leave_out"):
        raise ConfigError(f"must be 'clip', 'leave_out' or a share of rows, got {outliers!r}", "outliers")
    rows, low, high = _checked(points, bounds, radius=radius, rho=rho, delta=delta)
    options = SearchOptions(
        method=method,
        radius="search" if radius == "search" else float(radius),
        rho=float(rho),
        delta=float(delta),
        size_hint=whole_or_none(size_hint, "size_hint"),
        spread=spread if spread == "histogram" else number_of(spread, "spread"),  # type: ignore[arg-type]
        center=None if center is None else numbers_of(center, "center"),
        radius_min=number_or_none(radius_min, "radius_min"),
        radius_max=number_or_none(radius_max, "radius_max"),
        outliers=outliers if outliers is None or isinstance(outliers, str) else number_of(outliers, "outliers"),  # type: ignore[arg-type]
    )
    if scale not in (None, "learned"):
        raise ConfigError(f"must be 'learned' or left out, got {scale!r}", "scale")
    return _answer(options, rows, _grid(low, high, step, learned=scale == "learned"), noise)


@naming_arguments
def private_sum(
    points: ArrayLike,
    *,
    rho: float,
    step: float,
    bounds: Bounds,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release the differentially private sum of each column of an array.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or lie outside `bounds` are left out one by one.
    rho : float
        The loss of the answer; there is no delta.
    step : float
        Step of the lattice that rows are rounded to, in the rows' units.
    bounds : (float, float) or two sequences of d floats
        Lower and upper ends of the public ranges of all columns, or of each; the noise is in proportion to
        them.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    ArrayRelease
        ``value`` and ``sigma`` in the rows' units.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Unit: one row. Relation: add or remove. Pure rho-zCDP whatever the rows hold.

    Source
    ------
    Specification 5.11; proof 6.4.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> trips = np.random.default_rng(1).uniform(0.0, 30.0, size=(5000, 1))
    >>> answer = fcstream.private_sum(trips, rho=1, step=0.01, bounds=(0, 30))
    >>> round(answer.value[0], -3), round(answer.sigma[0])
    (75000.0, 21)
    """
    rows, low, high = _checked(points, bounds, rho=rho)
    return _answer(SumOptions(rho=float(rho)), rows, _grid(low, high, step), noise)


@naming_arguments
def private_histogram(
    values: ArrayLike,
    *,
    rho: float,
    step: float,
    bounds: Bounds,
    edges: Sequence[float] | None = None,
    categories: Sequence[float] | None = None,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release differentially private counts of an array's values in public bins, empty bins included.

    Parameters
    ----------
    values : array (n,)
        Values that are not finite or lie outside `bounds` are left out one by one.
    rho : float
        The loss of the answer; there is no delta.
    step : float
        Step of the lattice that values are rounded to.
    bounds : (float, float)
        Public range.
    edges : sequence of float
        Where the range is divided into bins; a value on an edge lies in the upper bin.
    categories : sequence of float
        Values that have a bin each, instead of `edges`; a last bin counts all other values.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    ArrayRelease
        ``value`` holds the noisy counts, ``sigma`` the standard deviation of their noise, and ``parts`` the edges of
        the bins or the categories.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Protects one value, added or removed, with rho-zCDP and delta = 0, whatever the values are.

    Source
    ------
    Specification 5.9; proof 6.1.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> ages = np.random.default_rng(1).integers(0, 100, 5000)
    >>> answer = fcstream.private_histogram(ages, rho=1, step=1, bounds=(0, 120), edges=[18, 65])
    >>> answer.parts["edges"], [round(count, -2) for count in answer.value]
    ([0.0, 18.0, 65.0, 120.0], [900.0, 2400.0, 1700.0])
    """
    column, low, high = _checked(rows_of(values, "values", "a list of numbers", is_column=True), bounds, rho=rho)
    options = HistogramOptions(
        kind="histogram",
        rho=float(rho),
        edges=None if edges is None else numbers_of(edges, "edges"),
        categories=None if categories is None else numbers_of(categories, "categories"),
    )
    return _answer(options, column, _grid(low, high, step), noise, name="values")


@naming_arguments
def private_quantiles(
    values: ArrayLike,
    quantiles: Sequence[float],
    *,
    rho: float,
    step: float,
    bounds: Bounds,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release differentially private quantiles of an array's values, of which only a public range must be known.

    Parameters
    ----------
    values : array (n,)
        Values that are not finite or lie outside `bounds` are left out one by one.
    quantiles : sequence of float
        Levels in (0, 1), ascending.
    rho : float
        The loss of the answer for all quantiles together; there is no delta.
    step : float
        Step of the lattice that values are rounded to and that quantiles lie on.
    bounds : (float, float)
        Public range; a range that is a hundred times too wide adds a few ranks of error.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    ArrayRelease
        ``value`` holds the quantiles, ascending, unless the release is a refusal (``too_few``). ``parts["rank_sigma"]``
        says by how many values their ranks are typically wrong.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Protects one value, added or removed, with rho-zCDP and delta = 0, whatever the values are.

    Source
    ------
    Specification 5.10; proof 6.3.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> waits = np.random.default_rng(1).exponential(10.0, 20000)
    >>> answer = fcstream.private_quantiles(waits, [0.5, 0.9], rho=1, step=0.01, bounds=(0, 10000))
    >>> [round(v) for v in answer.value]
    [7, 23]
    """
    column, low, high = _checked(rows_of(values, "values", "a list of numbers", is_column=True), bounds, rho=rho)
    options = QuantilesOptions(rho=float(rho), quantiles=numbers_of(quantiles, "quantiles"))
    return _answer(options, column, _grid(low, high, step), noise, name="values")


@naming_arguments
def private_variance(
    points: ArrayLike,
    *,
    radius: float | str,
    rho: float,
    delta: float,
    size_hint: int,
    step: float,
    bounds: Bounds,
    reach: float | str = "histogram",
    radius_min: float | None = None,
    radius_max: float | None = None,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release the differentially private variance of each column of an array around a private mean, without outliers.

    Parameters
    ----------
    points, radius, rho, delta, size_hint, step, bounds, radius_min, radius_max, noise
        As in `private_mean`.
    reach : float or "histogram"
        Public distance from the mean beyond which rows are left out; by default it is found privately.

    Returns
    -------
    ArrayRelease
        ``value`` and ``sigma`` in squared units of the rows, and the mean and its noise in ``parts``; or a refusal.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Protects one row, added or removed, with (rho, delta)-zCDP, whatever the rows hold.

    Source
    ------
    Specification 5.6, 5.8; proofs 5.6, 5.7.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(1).normal(20.0, [1.0, 2.0], size=(20000, 2))
    >>> answer = fcstream.private_variance(
    ...     rows, radius=15, rho=1, delta=1e-8, size_hint=20000, step=1e-2, bounds=(-50, 90)
    ... )
    >>> [round(v) for v in answer.value]
    [1, 4]
    """
    rows, low, high = _checked(points, bounds, radius=radius, rho=rho, delta=delta)
    if isinstance(reach, str) and reach != "histogram":
        raise ConfigError(f"must be 'histogram' or a number, got {reach!r}", "reach")
    options = VarianceOptions(
        kind="variance",
        radius="search" if radius == "search" else float(radius),
        rho=float(rho),
        delta=float(delta),
        size_hint=whole_or_none(size_hint, "size_hint"),
        radius_min=number_or_none(radius_min, "radius_min"),
        radius_max=number_or_none(radius_max, "radius_max"),
        reach=reach if isinstance(reach, str) else number_of(reach, "reach"),  # type: ignore[arg-type]
    )
    return _answer(options, rows, _grid(low, high, step), noise)


def _checked(
    points: ArrayLike | GivenRows, bounds: Bounds, **numbers: float | str
) -> tuple[GivenRows, NDArray[np.float64], NDArray[np.float64]]:
    """Return rows and the ends of their bounds (d,), after checking them, and rho and delta among `numbers`."""
    rows = rows_of(points, "points")
    low, high = ends_of(bounds, rows.width)
    for name, number in numbers.items():
        if (name, number) != ("radius", "search"):
            number_of(number, name)
    _loss(numbers["rho"], numbers.get("delta", 0.0))
    return rows, low, high


def _loss(rho: Any, delta: Any) -> PrivacyLoss:
    rho, delta = number_of(rho, "rho"), number_of(delta, "delta")
    if not 0 < rho < MAX_RHO:
        raise ConfigError(f"must be positive and below {MAX_RHO:g}, got {rho:g}", "rho")
    check_delta(delta)
    return PrivacyLoss.charge(rho, delta)


def _charge(loss: PrivacyLoss) -> Charge:
    """Charge the loss to a ledger in memory, which exists only for this one answer."""
    ledger = open_ledger("memory:", Terms("array", "stream", loss, ""))
    charge = ledger.charge([Request(WindowKey(0, 0), loss, (STREAM_BLOCK,))])[0].charge
    assert charge is not None
    return charge


def _grid(low: NDArray[np.float64], high: NDArray[np.float64], step: float, *, learned: bool = False) -> Grid:
    lattice, ends = Lattice(number_of(step, "step")), zip(low.tolist(), high.tolist(), strict=True)
    features = [Feature(f"x{k}", *pair) for k, pair in enumerate(ends)]
    return Grid(lattice, tuple(map(lattice.finest, features) if learned else features))


def _answer(
    options: Options,
    rows: GivenRows,
    grid: Grid,
    noise: Noise | None,
    *,
    name: str = "points",
    beyond: str = "out_of_range",
) -> ArrayRelease:
    """Release rows as if they were one window of a stream; rows out of range are left out, for the reason `beyond`.

    Raises
    ------
    UnusableRecords
        None of them is in range.
    """
    noise = noise_of(noise)
    mechanism = build_mechanism(options, BuildContext(grid, unit="stream"))
    by_rows = isinstance(mechanism, ClippedCovariance)
    inside = (rows_inside if by_rows else points_inside)(rows.doubles(grid), grid)
    left_out = count_left_out(rows, len(inside), beyond=beyond, name=name)
    if by_rows:
        view: Any = RowsView(inside, grid)
    else:
        counter = mechanism.counter(grid.dimension, 1, noise)
        counter.add(0, inside)
        view = counter.view([0])
    charge = _charge(mechanism.loss)
    outcome = mechanism.release(view, charge, noise)
    answer, spent = mechanism.to_user_units(outcome, grid), mechanism.loss - charge.unused
    return _to_release(mechanism.kind, outcome, answer, spent, mechanism.loss, noise, left_out)


def _to_release(
    kind: str,
    outcome: Outcome,
    answer: ReleaseValues,
    spent: PrivacyLoss,
    capacity: PrivacyLoss,
    noise: Noise,
    left_out: dict[str, int],
) -> ArrayRelease:
    """Make the release for an array, with the loss it spent and the capacity, the largest loss it could have spent."""
    answer = with_intervals(kind, answer)
    return ArrayRelease(
        stream="array",
        window_open_ms=0,
        window_close_ms=0,
        status="refused" if outcome.reason else "released",
        reason=outcome.reason,
        kind=kind,
        value=answer.value,
        sigma=answer.sigma,
        count=outcome.count,
        core_count=outcome.core_count,
        rho=spent.rho,
        delta=spent.delta,
        guarantee=capacity.as_dict(),
        spent=spent.as_dict(),
        private=noise.private,
        parts=answer.parts,
        interval=answer.interval,
        left_out=left_out,
    )
