"""Pictures of many numbers in each window: histograms, marginals, frequent texts, and what made-up rows hold."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..ledgers.history import utc
from ..releases.long_form import named_numbers
from ..synthetic.codes import Codes
from .base import picture
from .drawing import (
    DAY_MS,
    REFUSED,
    TRUTH,
    VALUE,
    WIDTHS,
    deviation,
    finish,
    shade_refusals,
    whom,
)
from .matrices import draw_square

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..releases.base import Release
    from ..reporting.series import ReleaseSeries

MAX_ROWS = 60
"""Cells of contingency tables, texts, or levels of made-up rows that are drawn."""
_MAX_LABELS = 40
_LONGEST, _LONGEST_CELL = 28, 52  # characters of a row's name
_MAX_COLUMNS = 24  # of made-up rows whose dependence is drawn


@dataclass(frozen=True, slots=True)
class Table:
    """A number for each row and each window that was released.

    Attributes
    ----------
    names : list of str
        Of the rows that are shown.
    rows : int
        How many there are altogether.
    values : dict
        Numbers of the rows, by opening of the window; nan where none was told.
    errors : list of float or None
        Standard deviations of the noise in the newest window.
    about : str
        What a row is.
    unit : str
        What the numbers count.
    downward : bool
        Whether the first row lies on top.
    least : float or None
        The least number that is told.
    """

    names: list[str]
    rows: int
    values: dict[int, list[float]]
    errors: list[float] | None
    about: str
    unit: str
    downward: bool = False
    least: float | None = None


def plot_tables(series: ReleaseSeries, path: str) -> None:
    """Draw a heat map, a row for each bin, cell, text or level and a column for each window; the truth below it.

    Beside it are the numbers of the newest window, with bars of their noise.
    """
    table = table_of(series)
    if not table.names:
        _plot_nothing(series, path)
        return
    drawn = {"released": table.values}
    truth = _true_values(series, table)
    if truth:
        drawn["truth"] = truth
    is_single = len(series.releases) == 1
    columns = _dependence(series)
    width = (8.5 if is_single else 13) + (5 if columns is not None else 0)
    height = min(14.0, 2.6 + 0.32 * max(8, len(table.names)) * (1 if is_single else len(drawn)))
    if columns is not None:
        height = max(height, 5.2)
    with picture(path, width, height, "--out") as figure:
        ratios = ([] if is_single else [2.2]) + [1.0] + ([1.0] if columns is not None else [])
        grid = figure.add_gridspec(1, len(ratios), width_ratios=ratios)
        heats: list[Axes] = []
        if not is_single:
            heats = list(grid[0, 0].subgridspec(len(drawn), 1).subplots(sharex=True, squeeze=False)[:, 0])
            _draw_heats(figure, heats, series, table, drawn)
        beside = figure.add_subplot(grid[0, len(ratios) - 1 - (columns is not None)])
        _draw_newest(beside, series, table, truth)
        if columns is not None:
            _draw_dependence(figure, figure.add_subplot(grid[0, len(ratios) - 1]), *columns)
        shape = series.shape
        notes = ["how far made-up rows are off is not known"] if shape.form == "rows" else []
        finish(figure, heats, series, len(table.names), table.rows, what=f"{shape.last.name}s", pad=False, notes=notes)


def draw_table(figure: Figure, axes: Axes, series: ReleaseSeries) -> None:
    """Draw the heat map alone, as one panel of several."""
    table = table_of(series)
    if not table.names:
        _say_nothing(axes, series)
        return
    edges, found = _columns(series, table.values, len(table.names))
    image = _draw_heat(axes, series, table, edges, found, _most([found]))
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=18)
    bar.set_label(table.unit, fontsize=7)
    bar.ax.tick_params(labelsize=7)


def table_of(series: ReleaseSeries) -> Table:
    """Collect the numbers of a series by row: bins, cells, texts (the most frequent first), or levels of columns."""
    shape = series.shape
    if shape.is_found and shape.form == "bars":
        return _texts(series)
    if shape.form == "rows":
        return _levels_of_rows(series)
    newest = series.released[-1]
    parts = newest.parts or {}
    names = _row_names(newest, len(_rows(newest.value)))
    shown = names if shape.last.name == "bin" else names[:MAX_ROWS]
    values = {release.window_open_ms: _rows(release.value)[: len(shown)] for release in series.released}
    sigma = _rows(newest.sigma) if newest.sigma else None
    if parts.get("cell_sigma"):
        sigma = [parts["cell_sigma"]] * len(names)
    errors = None if sigma is None else [deviation(one) for one in sigma[: len(shown)]]
    about = str(parts.get("feature", shape.last.name))
    unit = f"{whom(series)} since the epoch began" if shape.form == "steps" else f"{whom(series)} in a window"
    return Table([_short(name, _LONGEST_CELL) for name in shown], len(names), values, errors, about, unit)


# -- pieces --------------------------------------------------------------------------------------------------------


def _plot_nothing(series: ReleaseSeries, path: str) -> None:
    """Draw windows that tell no text."""
    with picture(path, 11, 3.2, "--out") as figure:
        axes = figure.subplots()
        _say_nothing(axes, series)
        finish(figure, [axes], series, 0, 0, pad=False)


def _say_nothing(axes: Axes, series: ReleaseSeries) -> None:
    axes.set_yticks([])
    options: Any = {"ha": "center", "va": "center", "color": REFUSED}
    axes.text(0.5, 0.5, "no text was told", transform=axes.transAxes, **options)
    shade_refusals(axes, series, ground=True)


def _texts(series: ReleaseSeries) -> Table:
    sums: dict[str, float] = {}
    for release in series.released:
        for text, value in zip(_levels_reported(release), release.value or [], strict=True):
            sums[text] = sums.get(text, 0.0) + float(value)
    names = sorted(sums, key=lambda text: (-sums[text], text))
    shown = names[:MAX_ROWS]
    values = {}
    for release in series.released:
        told = dict(zip(_levels_reported(release), release.value or [], strict=True))
        values[release.window_open_ms] = [float(told.get(text, math.nan)) for text in shown]
    newest = series.released[-1]
    told = dict(zip(_levels_reported(newest), newest.sigma or [], strict=False))
    parts = newest.parts or {}
    return Table(
        list(map(_short, shown)),
        len(names),
        values,
        [deviation(told.get(text)) for text in shown],
        str(parts.get("feature", "text")),
        f"{whom(series)} in a window",
        downward=True,
        least=parts.get("threshold"),
    )


def _levels_reported(release: Release) -> list[str]:
    return list((release.parts or {}).get("levels", []))


def _levels_of_rows(series: ReleaseSeries) -> Table:
    """Return the share of the made-up rows at each level of each column, as rows are drawn from the mixture."""
    names: list[str] = []
    values = {}
    for release in series.released:
        shares = _shares_by_column(release)
        names = [name for column in shares for name in column["names"]]
        values[release.window_open_ms] = [100 * share for column in shares for share in column["mean"]][:MAX_ROWS]
    shown = list(map(_short, names[:MAX_ROWS]))
    return Table(shown, len(names), values, None, "level", "% of the made-up rows", downward=True)


def _shares_by_column(release: Release) -> list[dict[str, Any]]:
    """Return for each column the names of its levels, their shares in each part of the mixture, and altogether."""
    parts = release.parts or {}
    codes = Codes.read(parts["columns"])
    weights = np.array(parts["weights"], float)
    points = np.array(release.value, float) / parts["unit"]
    found: list[dict[str, Any]] = []
    for column, block in sorted(zip(codes.attributes, codes.blocks, strict=True), key=lambda pair: pair[0].index):
        chances = points[:, block]
        chances = np.concatenate([1 - chances, chances], axis=1) if column.bits == 1 else chances
        names = _levels(parts["columns"][column.index])
        found.append({"column": column.name, "names": names, "chances": chances, "mean": weights @ chances})
    return found


def _dependence(series: ReleaseSeries) -> tuple[list[str], NDArray[np.float64]] | None:
    """Return how far each two columns of the newest made-up rows depend on each other: Cramér's V, 0 to 1."""
    if series.shape.form != "rows":
        return None
    newest = series.released[-1]
    columns = _shares_by_column(newest)
    if not 2 <= len(columns) <= _MAX_COLUMNS:
        return None
    weights = np.array((newest.parts or {})["weights"], float)[:, None]
    found = np.eye(len(columns))
    for (i, one), (j, other) in itertools.combinations(enumerate(columns), 2):
        joint = (weights * one["chances"]).T @ other["chances"]
        alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        squares = np.divide((joint - alone) ** 2, alone, out=np.zeros_like(alone), where=alone > 0).sum()
        found[i, j] = found[j, i] = math.sqrt(min(1.0, squares / (min(joint.shape) - 1)))
    return [column["column"] for column in columns], found


def _draw_dependence(figure: Figure, axes: Axes, names: list[str], table: NDArray[np.float64]) -> None:
    image = draw_square(axes, table, list(map(_short, names)), lowest=0)
    axes.set_title("how columns of the newest rows depend", loc="left")
    figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, label="Cramér's V")


def _draw_heats(
    figure: Figure, panels: list[Axes], series: ReleaseSeries, table: Table, drawn: dict[str, dict[int, list[float]]]
) -> None:
    found = [_columns(series, values, len(table.names)) for values in drawn.values()]
    most = _most([numbers for _, numbers in found])
    image: Any = None
    for axes, title, (edges, numbers) in zip(panels, drawn, found, strict=True):
        image = _draw_heat(axes, series, table, edges, numbers, most)
        axes.set_ylabel(table.about)
        if len(drawn) > 1:
            axes.set_title(title, loc="left")
    bar = figure.colorbar(image, ax=panels, pad=0.015, aspect=30)
    errors = [error for error in table.errors or () if error]
    noise = f"\n(standard deviation of the noise: {errors[0]:.3g})" if errors else ""
    bar.set_label(f"{table.unit}{noise}")


def _draw_heat(
    axes: Axes, series: ReleaseSeries, table: Table, edges: Any, numbers: NDArray[np.float64], most: float
) -> Any:
    shade_refusals(axes, series, ground=True)
    rows = np.arange(len(table.names) + 1)
    shown = np.ma.masked_invalid(np.maximum(numbers, 0.0))
    image = axes.pcolormesh(edges, rows, shown, cmap="cividis", vmin=0, vmax=most, rasterized=True)
    _name_rows(axes, table)
    return image


def _draw_newest(axes: Axes, series: ReleaseSeries, table: Table, truth: dict[int, list[float]]) -> None:
    """Draw the numbers of the newest window as bars, with whiskers of their noise and marks of the true ones."""
    newest = series.released[-1]
    values = np.array(table.values[newest.window_open_ms])
    at = np.arange(len(values)) + 0.5
    axes.barh(at, np.nan_to_num(values), height=0.72, color=VALUE, alpha=0.55, linewidth=0)
    if table.errors is not None:
        whiskers: Any = {"fmt": "none", "ecolor": VALUE, "elinewidth": 1.1}
        noise = f"{WIDTHS:g} standard deviations of the noise"
        axes.errorbar(values, at, xerr=WIDTHS * np.array(table.errors), label=noise, **whiskers)
    if newest.window_open_ms in truth:
        marks: Any = {"linestyle": "none", "marker": "x", "markersize": 5}
        axes.plot(truth[newest.window_open_ms], at, color=TRUTH, label="truth", **marks)
    if table.least is not None:
        axes.axvline(table.least, color=REFUSED, linewidth=1.0, linestyle=":", label=f"told from {table.least:g} on")
    if (values < 0).any():
        axes.axvline(0, color=REFUSED, linewidth=0.8)
    _name_rows(axes, table)
    axes.set_ylim(*((len(values), 0) if table.downward else (0, len(values))))
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(table.unit)
    axes.set_title(f"window of {utc(newest.window_open_ms)}", loc="left")


def _name_rows(axes: Axes, table: Table) -> None:
    rows, stride = np.arange(len(table.names)), -(-len(table.names) // _MAX_LABELS)
    axes.set_yticks(rows[::stride] + 0.5, table.names[::stride])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(*((len(rows), 0) if table.downward else (0, len(rows))))


def _true_values(series: ReleaseSeries, table: Table) -> dict[int, list[float]]:
    if series.shape.is_found:
        return {}
    return {at: _rows(series.truth[at])[: len(table.names)] for at in table.values if at in series.truth}


def _most(tables: list[NDArray[np.float64]]) -> float:
    """Return the largest of all numbers, at least 1."""
    return max([1.0, *(float(np.nanmax(table)) for table in tables if np.isfinite(table).any())])


def _rows(value: Any) -> list[float]:
    """Return the numbers of bins, or of all cells of tables end to end."""
    return [x for table in value for x in (table if isinstance(table, list) else [table])]


def _columns(
    series: ReleaseSeries, values: dict[int, list[float]], bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the edges of columns in days, and values (bins, columns) by opening of the window; nan if refused."""
    edges, columns, nothing = [series.first.window_open_ms], [], [math.nan] * bins
    for release, after in zip(series.releases, [*series.releases[1:], None], strict=True):
        if release.window_open_ms > edges[-1]:
            edges.append(release.window_open_ms)
            columns.append(nothing)
        end = release.window_close_ms if after is None else min(release.window_close_ms, after.window_open_ms)
        edges.append(end)
        columns.append(values.get(release.window_open_ms, nothing)[:bins])
    return np.array(edges) / DAY_MS, np.array(columns, float).T


def _row_names(release: Release, rows: int) -> list[str]:
    """Return the names of bins, or of cells: the level of each column, of which the last one's varies fastest.

    Other numbers are called as in long form.
    """
    parts = release.parts or {}
    edges, categories = parts.get("edges"), parts.get("categories")
    if edges is not None and len(edges) == rows + 1:
        return [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    if categories is not None and len(categories) == rows - 1:
        return [*(f"{value:g}" for value in categories), "other"]
    levels = {column["name"]: _levels(column) for column in parts.get("columns", [])}
    cells = [
        ", ".join(cell)
        for table in parts.get("tables", [])
        for cell in itertools.product(*(levels[name] for name in table))
    ]
    return cells if len(cells) == rows else [name for name, _, _ in named_numbers(release)]


def _levels(column: dict[str, Any]) -> list[str]:
    """Return the levels of a column: parts of a range, or texts."""
    name, edges = column["name"], column.get("edges")
    if edges:
        return [f"{name} {low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    return [f"{name} = {level}" for level in column["levels"]]


def _short(name: str, longest: int = _LONGEST) -> str:
    """Return a text that has room beside a picture, without characters that end a line."""
    plain = "".join(x if x.isprintable() else " " for x in name)
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"
