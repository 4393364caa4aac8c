"""Pictures of releases over time, with their uncertainty, refusals and, if given, the true values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, FcstreamError
from .base import picture
from .centers import draw_path, plot_places
from .drawing import (
    DAY_MS,
    MAX_FEATURES,
    VALUE,
    axis_labels,
    deviation,
    dot,
    draw_band,
    draw_counts,
    draw_curve,
    draw_truth,
    finish,
    middles,
    shade_refusals,
    whom,
)
from .matrices import plot_matrices
from .trees import plot_boxes

if TYPE_CHECKING:
    from ..reporting.series import ReleaseSeries

MAX_ROWS = 60
"""Cells of contingency tables that are drawn."""


def plot_releases(series: ReleaseSeries, path: str) -> None:
    """Draw a series of releases; the picture depends on their kind.

    Means, counts and variances get a line per feature with a band of two standard deviations of its noise; for two
    features there is also the path of the mean with the ellipses of its noise. Quantiles get a fan, histograms and
    marginals a heat map, trees one of the latest windows. Centers, mixtures and points are drawn at their coordinates,
    mixtures with the width of their components. Covariances get lines of the variances, and ellipses of two features or
    correlations of more. Refused windows are shaded, with a mark for each reason.

    Parameters
    ----------
    series : ReleaseSeries
    path : str
        File to write, which ends in ``.svg`` or ``.png``.

    Raises
    ------
    ConfigError
        If the file has another suffix, matplotlib is not installed, or the releases have a shape without a picture.
    FcstreamError
        If the file cannot be written.
    """
    first, released = series.first, series.released
    draw, rank = _PICTURES.get(first.kind, (_lines, 1))
    if any(_rank(release.value) != rank for release in released):
        raise ConfigError(f"releases of kind {first.kind!r} have no picture", "RELEASES")
    try:
        (draw if released else _lines)(series, path)
    except FcstreamError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # `check_drawable` accepts some documents that cannot be drawn; fcstream has not written them.
        raise ConfigError("must be releases of fcstream, unchanged: these cannot be drawn", "RELEASES") from None


# -- one picture each ----------------------------------------------------------------------------------------------


def _lines(series: ReleaseSeries, path: str) -> None:
    """Draw a panel per feature, a panel for the number of records, and the path of a mean of two features."""
    first = series.first
    labels = axis_labels(series)
    shown = labels[:MAX_FEATURES]
    is_path = first.kind == "mean" and len(labels) == 2 and bool(series.released)
    counts = [release.count for release in series.releases]
    has_counts = first.kind != "count" and any(count is not None for count in counts)
    rows = len(shown) + has_counts
    with picture(path, 14 if is_path else 11, 1.1 + 2.1 * rows, "--out") as figure:
        if is_path:
            grid = figure.add_gridspec(1, 2, width_ratios=[1.7, 1])
            panels = grid[0, 0].subgridspec(rows, 1).subplots(sharex=True, squeeze=False)[:, 0]
            draw_path(figure, figure.add_subplot(grid[0, 1]), series, labels)
        else:
            panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for k, (axes, label) in enumerate(zip(panels, shown, strict=False)):
            values = [math.nan if r.value is None else float(r.value[k]) for r in series.releases]
            sigmas = [0.0 if r.sigma is None else deviation(r.sigma[k]) for r in series.releases]
            draw_curve(axes, series, values, sigmas)
            draw_truth(axes, series, [(at, float(value[k])) for at, value in sorted(series.truth.items())])
            axes.set_ylabel(label)
        if has_counts:
            draw_counts(panels[-1], series)
        finish(figure, list(panels), series, len(shown), len(labels))


def _fan(series: ReleaseSeries, path: str) -> None:
    """Draw quantiles: the middle one as a line, and the pairs around it as bands."""
    first = series.first
    levels = list((first.parts or {}).get("quantiles", []))
    with picture(path, 11, 6.2, "--out") as figure:
        panels = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        axes, x = panels[0], middles(series)
        table = np.array([r.value if r.value is not None else [math.nan] * len(levels) for r in series.releases], float)
        pairs = len(levels) // 2
        for k in range(pairs):
            low, high = table[:, k], table[:, len(levels) - 1 - k]
            label = f"quantiles {levels[k]:g} to {levels[-1 - k]:g}"
            style = {"color": VALUE, "alpha": 0.14 + 0.2 * k / max(1, pairs), "linewidth": 0, "label": label}
            draw_band(axes, series, low, high, style)
        # Draw a line for each level, so that a fan of one level is visible too.
        for k in range(len(levels)):
            middle = len(levels) % 2 == 1 and k == pairs
            style = {"linewidth": 1.8 if middle else 0.7, "label": f"quantile {levels[k]:g}" if middle else None}
            axes.plot(x, table[:, k], color=VALUE, marker=dot(x, middle), markersize=2.6, **style)
        for k in range(len(levels)):
            points = [(at, float(value[k])) for at, value in sorted(series.truth.items())]
            draw_truth(axes, series, points, "truth" if k == 0 else None)
        shade_refusals(axes, series)
        axes.set_ylabel(axis_labels(series)[0])
        draw_counts(panels[1], series)
        finish(figure, list(panels), series, 1, 1)


def _heat(series: ReleaseSeries, path: str) -> None:
    """Draw a heat map of noisy numbers of records: a row per bin or cell, a column per window; the truth below."""
    released = series.released
    parts = released[0].parts or {}
    names = _row_names(parts, len(_rows(released[0].value)))
    shown = names[:MAX_ROWS] if "tables" in parts else names
    tables = {"released": {release.window_open_ms: _rows(release.value) for release in released}}
    truth = {at: _rows(series.truth[at]) for at in tables["released"] if at in series.truth}
    if truth:
        tables["truth"] = truth
    drawn = {title: _columns(series, table, len(shown)) for title, table in tables.items()}
    most = max(1.0, *(float(np.nanmax(table)) for _, table in drawn.values()))
    rows, stride = np.arange(len(shown) + 1), -(-len(shown) // 40)
    with picture(path, 11, min(14.0, 2.6 + 0.32 * max(6, len(shown)) * len(drawn)), "--out") as figure:
        panels = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
        image: Any = None
        for axes, (title, (edges, table)) in zip(panels, drawn.items(), strict=True):
            shade_refusals(axes, series, ground=True)
            columns = np.ma.masked_invalid(np.maximum(table, 0.0))
            image = axes.pcolormesh(edges, rows, columns, cmap="cividis", vmin=0, vmax=most, rasterized=True)
            axes.set_yticks(rows[:-1][::stride] + 0.5, shown[::stride])
            axes.tick_params(axis="y", length=0)
            axes.set_ylabel(str(parts.get("feature", "cell" if "tables" in parts else "bin")))
            if truth:
                axes.set_title(title, loc="left")
        noise = parts.get("cell_sigma") or (released[0].sigma or [0.0])[0]
        bar = figure.colorbar(image, ax=list(panels), pad=0.015, aspect=30)
        bar.set_label(f"{whom(series)} in a window\n(standard deviation of the noise: {noise:.3g})")
        finish(figure, list(panels), series, len(shown), len(names), what="cells", pad=False)


_PICTURES: dict[str, tuple[Callable[[ReleaseSeries, str], None], int]] = {
    "centers": (plot_places, 2),
    "covariance": (plot_matrices, 2),
    "histogram": (_heat, 1),
    "marginals": (_heat, 2),
    "mixtures": (plot_places, 2),
    "points": (plot_places, 2),
    "quantiles": (_fan, 1),
    "tree": (plot_boxes, 1),
}
"""Kind -> picture, and how deeply its values are nested."""


# -- pieces --------------------------------------------------------------------------------------------------------


def _rank(value: Any) -> int:
    return 1 + _rank(value[0]) if isinstance(value, list) and value else int(isinstance(value, list))


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


def _row_names(parts: dict[str, Any], rows: int) -> list[str]:
    """Return the names of bins, or of cells: the level of each column, of which the last one's varies fastest."""
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
    return cells if len(cells) == rows else [str(k) for k in range(rows)]


def _levels(column: dict[str, Any]) -> list[str]:
    """Return the levels of a column: parts of a range, or texts."""
    name, edges = column["name"], column.get("edges")
    if edges:
        return [f"{name} {low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    return [f"{name} = {level}" for level in column["levels"]]
