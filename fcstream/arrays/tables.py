"""Private answers about one table of codes: its contingency tables, and synthetic rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..accounting.losses import DPLoss, zcdp_of_dp
from ..errors import ConfigError
from ..formats.cells import BOOLEAN, Role
from ..noise.samplers import Noise
from ..releases.tables.documents import MAX_ROWS
from ..releases.tables.marginals import MarginalsOptions
from ..releases.tables.synthetic import SyntheticOptions
from ..stream.lattice import Feature, Grid, Lattice
from .arguments import GivenRows, naming_arguments, number_of, rows_of, whole_of, whole_or_none
from .left_out import ArrayRelease
from .statistics import _answer, _loss


@naming_arguments
def private_synthetic(
    rows: ArrayLike,
    *,
    rho: float | None = None,
    epsilon: float | None = None,
    levels: Sequence[int] | None = None,
    size_hint: int | None = None,
    variant: str | None = None,
    size: int | None = None,
    projection: str = "learned",
    kappa: float = 0.5,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release a differentially private mixture that draws synthetic rows of a table of Booleans and categories.

    Parameters
    ----------
    rows : int array (n, columns)
        The table as codes 0, 1, ... of levels. Rows with a code beyond the column's levels are left out one by one.
    rho : float
        The loss of the answer; there is no delta. Give either `rho` or `epsilon`.
    epsilon : float
        The loss of the answer in pure DP, for ``variant="pure"`` (then the default) or ``"paper"``.
    levels : sequence of int
        The number of levels of each column; by default all columns are Boolean. Public, like every argument but `rows`.
    size_hint : int
        Public guess of n: needed for ``variant="pure"``, ``variant="paper"`` and ``projection="ones"``.
    variant : str
        ``zcdp`` (default with `rho`), ``pure``, or ``paper``, which is Algorithm 4 as printed, for comparison.
    size : int
        Public number of rows to draw; by default the noisy number of rows.
    projection : str
        ``learned``: cells lie along directions that are found privately. ``ones``: a row's cell depends on how many of
        its Booleans are true.
    kappa : float
        The parameter kappa of ``variant="paper"``.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    ArrayRelease
        A mixture, or a refusal (``too_few``); `synthetic_rows` draws its rows.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Protects one row, added or removed, with rho-zCDP and delta = 0, or with epsilon-DP, whatever the rows hold. The
    losses of several calls add up, and the caller must keep account of them.

    Source
    ------
    Specification 9.2, 9.3; proofs 9.1, 9.3.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> coins = np.random.default_rng(1).random((20000, 6)) < 0.3
    >>> answer = fcstream.private_synthetic(coins | coins[:, :1], rho=0.5)
    >>> made = fcstream.synthetic_rows(answer)
    >>> [round(float(np.mean(made[name])), 1) for name in ("x0", "x1")]
    [0.3, 0.5]
    """
    if (rho is None) == (epsilon is None):
        raise ConfigError("must be given, or `epsilon`, not both", "rho")
    if variant not in (None, "zcdp", "pure", "paper"):
        raise ConfigError(f"must be 'zcdp', 'pure' or 'paper', got {variant!r}", "variant")
    if projection not in ("learned", "previous", "ones"):
        raise ConfigError(f"must be 'learned' or 'ones', got {projection!r}", "projection")
    if size is not None and not 1 <= whole_of(size, "size") <= MAX_ROWS:
        raise ConfigError(f"must be in [1, {MAX_ROWS}], got {size}", "size")
    if epsilon is not None:
        if variant == "zcdp" or not (isinstance(epsilon, (int, float)) and 0 < epsilon < 1e3):
            raise ConfigError(f"must be in (0, 1000), for variants 'pure' and 'paper', got {epsilon!r}", "epsilon")
        rho = zcdp_of_dp(DPLoss.charge(epsilon)).rho
    else:
        _loss(rho, 0.0)
    options = SyntheticOptions(
        kind="synthetic",
        rho=float(rho or 0.0),
        size_hint=whole_or_none(size_hint, "size_hint"),
        variant=variant or ("zcdp" if epsilon is None else "pure"),  # type: ignore[arg-type]
        rows=whole_or_none(size, "size"),
        projection=projection,  # type: ignore[arg-type]
        kappa=number_of(kappa, "kappa"),
    )
    table, grid = _coded(rows, levels)
    return _answer(options, table, grid, noise, name="rows", beyond="unknown_level")


@naming_arguments
def private_marginals(
    rows: ArrayLike,
    *,
    rho: float,
    order: int = 2,
    levels: Sequence[int] | None = None,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release differentially private contingency tables of all pairs (or triples) of columns of a table of codes.

    Parameters
    ----------
    rows, levels, noise
        As in `private_synthetic`.
    rho : float
        The loss of the answer; there is no delta.
    order : int
        The number of columns of each contingency table: 1, 2 or 3.

    Returns
    -------
    ArrayRelease
        ``value`` holds one list of counts for each table, in which the last column's levels vary fastest;
        ``parts["tables"]`` names the tables' columns.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Protects one row, added or removed, with rho-zCDP and delta = 0, whatever the rows hold.

    Source
    ------
    Specification 9.5; proof 6.2.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> coins = np.random.default_rng(1).random((20000, 3)) < 0.5
    >>> answer = fcstream.private_marginals(coins, rho=0.5)
    >>> answer.parts["tables"][0], [round(cell, -3) for cell in answer.value[0]]
    (['x0', 'x1'], [5000.0, 5000.0, 5000.0, 5000.0])
    """
    table, grid = _coded(rows, levels)
    _loss(rho, 0.0)
    options = MarginalsOptions(rho=float(rho), order=whole_of(order, "order"))
    return _answer(options, table, grid, noise, name="rows", beyond="unknown_level")


def _coded(rows: ArrayLike, levels: Sequence[int] | None) -> tuple[GivenRows, Grid]:
    """Check a table of codes and make its grid; a code that is not a whole number becomes -1, which is no level."""
    table = rows_of(
        rows, "rows", "a rectangular array of codes", role_of=lambda width: _role(max(_sizes(levels, width)))
    )
    sizes = _sizes(levels, table.width)
    with np.errstate(invalid="ignore"):
        cells = np.where((table.cells == np.floor(table.cells)) | ~np.isfinite(table.cells), table.cells, -1.0)
    features = [
        Feature(f"x{k}", 0.0, size - 1.0, levels=("false", "true") if size == 2 else tuple(map(str, range(size))))
        for k, size in enumerate(sizes)
    ]
    return table._replace(cells=cells), Grid(Lattice(1.0), tuple(features))


def _sizes(levels: Sequence[int] | None, width: int) -> list[int]:
    """Return the numbers of levels of all columns."""
    if not (levels is None or isinstance(levels, (Sequence, np.ndarray))) or isinstance(levels, str):
        raise ConfigError(f"must hold {width} numbers of at least 2", "levels")
    sizes = [2] * width if levels is None else [whole_of(size, "levels") for size in levels]
    if len(sizes) != width or min(sizes) < 2:
        raise ConfigError(f"must hold {width} numbers of at least 2", "levels")
    return sizes


def _role(size: int) -> Role:
    """Return what cells stand for that are no numbers: Booleans, and texts of codes."""
    return Role("code", codes=BOOLEAN | {str(code): code for code in range(size)})
