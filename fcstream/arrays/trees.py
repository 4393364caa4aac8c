"""A private tree of one array, or points that stand for its rows, without windows or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from ..errors import ConfigError
from ..noise.samplers import Noise
from ..releases.options import Options
from ..releases.trees.automatic import AutoPointsOptions
from ..releases.trees.drawn import TreePointsOptions
from ..releases.trees.release import TreeOptions
from ..stream.lattice import Feature, Grid, Lattice
from .arguments import Bounds, ends_of, naming_arguments, number_of, rows_of, texts_of, whole_of, whole_or_none
from .left_out import ArrayRelease
from .statistics import _answer, _loss

_ROWS = 1000


@naming_arguments
def private_tree(
    points: ArrayLike,
    *,
    rho: float,
    step: float,
    bounds: Bounds,
    names: Sequence[str] | None = None,
    max_boxes: int = 1000,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release where an array's rows lie, as boxes with noisy numbers of rows: small boxes where there are many.

    Parameters
    ----------
    points : array (n, d)
        Rows that are not finite or lie outside `bounds` are left out one by one.
    rho : float
        The loss of the answer.
    step : float
        Step of the lattice that rows are rounded to.
    bounds : (float, float) or two sequences of d floats
        Lower and upper ends of a public box, for all columns or for each; not computed from the rows.
    names : sequence of str, optional
        Names of the columns; ``x0``, ``x1``, ... by default.
    max_boxes : int
        Most boxes; those with most rows are divided first.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    ArrayRelease
        ``value`` and ``sigma``: the noisy number of rows of each box and the deviation of its noise; ``parts["low"]``,
        ``parts["high"]``, ``parts["means"]``: its ends, and the noisy mean of its rows. `count_in_range` reads it. Or a
        refusal: ``too_few`` rows.

    Raises
    ------
    ConfigError
        A public parameter is out of range.

    Privacy
    -------
    Unit: one row. Relation: add or remove. rho-zCDP with delta = 0, whatever the rows hold. Not covered: run time.

    Complexity
    ----------
    O(n) for each of 16 to 48 levels, O(n d) besides.

    Source
    ------
    Specification 6.17; proof 7.10.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(0).normal(0, 1, (10_000, 2))
    >>> tree = fcstream.private_tree(rows, rho=0.5, step=0.01, bounds=(-5, 5))
    >>> tree.status, round(sum(tree.value), -2), len(tree.value) == len(tree.parts["low"])
    ('released', 10000.0, True)
    """
    _loss(rho, 0.0)
    options = TreeOptions(rho=float(rho), max_boxes=whole_of(max_boxes, "max_boxes"))
    return _released(options, points, step, bounds, names, noise)


@naming_arguments
def private_points(
    points: ArrayLike,
    *,
    rho: float,
    step: float,
    bounds: Bounds,
    names: Sequence[str] | None = None,
    method: str = "auto",
    rows: int = _ROWS,
    size_hint: int | None = None,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release points that stand for an array's rows: made-up rows that lie where these do.

    Parameters
    ----------
    points, rho, step, bounds, names, noise
        As in `private_tree`.
    method : str
        ``tree``: made-up rows, drawn from a private tree. ``cells``: a few weighted means of cells. ``auto``: whichever
        is predicted to be nearer, by public numbers; without `size_hint` the tree.
    rows : int
        How many rows a tree draws; another number than the default asks for a tree.
    size_hint : int, optional
        Public guess of the number of rows, for ``auto``.

    Returns
    -------
    ArrayRelease
        ``value``: the points; ``parts["weights"]``: their weights, which are all the same for a tree. Or a refusal:
        ``too_few`` rows.

    Raises
    ------
    ConfigError
        A public parameter is out of range.

    Privacy
    -------
    Unit: one row. Relation: add or remove. rho-zCDP with delta = 0, whatever the rows hold. Not covered: run time.

    Complexity
    ----------
    That of `private_tree`, and O(rows d); ``cells``: O(n d²).

    Source
    ------
    Specification 9.6, 9.9, 9.10; proofs 7.10, 9.2.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(0).normal(0, 1, (10_000, 2))
    >>> made = np.array(fcstream.private_points(rows, rho=0.5, step=0.01, bounds=(-5, 5)).value)
    >>> made.shape, bool(abs(made.mean()) < 0.1), bool(abs(made.std() - 1) < 0.1)
    ((1000, 2), True, True)
    """
    if method not in ("auto", "tree", "cells"):
        raise ConfigError(f"must be 'auto', 'tree' or 'cells', got {method!r}", "method")
    _loss(rho, 0.0)
    rho, drawn, size_hint = float(rho), whole_of(rows, "rows"), whole_or_none(size_hint, "size_hint")
    options: Options = TreePointsOptions(rho=rho, rows=drawn)
    if method == "cells":
        if drawn != _ROWS:
            raise ConfigError("belongs to method 'tree': leave it out, or ask for a tree", "rows")
        options = AutoPointsOptions(rho=rho, method=method)
    elif method == "auto":
        options = AutoPointsOptions(rho=rho, rows=drawn, size_hint=size_hint)
    return _released(options, points, step, bounds, names, noise)


def _released(
    options: Options,
    points: ArrayLike,
    step: float,
    bounds: Bounds,
    names: Sequence[str] | None,
    noise: Noise | None,
) -> ArrayRelease:
    """Release rows of a public box, whose columns may have names."""
    rows = rows_of(points, "points")
    low, high = ends_of(bounds, rows.width)
    columns = [f"x{j}" for j in range(rows.width)] if names is None else texts_of(names, "names")
    if len(columns) != rows.width:
        raise ConfigError(f"must name {rows.width} columns, got {len(columns)}", "names")
    ends = zip(columns, low.tolist(), high.tolist(), strict=True)
    grid = Grid(Lattice(number_of(step, "step")), tuple(Feature(name, a, b) for name, a, b in ends))
    answer = _answer(options, rows, grid, noise)
    return replace(answer, features=columns, transform=["none"] * len(columns))
