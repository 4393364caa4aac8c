"""Pictures of covariance matrices: variances over time, ellipses of two features, correlations of more features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .base import picture
from .drawing import (
    DASHES,
    DAY_MS,
    MAX_FEATURES,
    TRUTH,
    VALUE,
    WIDTHS,
    axis_labels,
    deviation,
    draw_curve,
    draw_truth,
    finish,
    time_bar,
)
from .planes import Plane, ground, plane_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..reporting.series import ReleaseSeries

_AROUND = np.linspace(0, 2 * math.pi, 181)
_CIRCLE = np.stack([np.cos(_AROUND), np.sin(_AROUND)])
_MAX_ELLIPSES = 8
_MAX_NUMBERS = 8  # largest number of features for which a heat map shows its numbers


def plot_matrices(series: ReleaseSeries, path: str) -> None:
    """Draw variances (and the covariance of two features) over time, and beside them ellipses or correlations."""
    labels = axis_labels(series)
    shown = range(min(len(labels), MAX_FEATURES))
    entries = [(i, i) for i in shown] if len(labels) != 2 else [(0, 0), (0, 1), (1, 1)]
    is_beside = len(labels) > 1
    height = max(1.1 + 1.9 * len(entries), 6.2 if is_beside else 0)
    with picture(path, 14 if is_beside else 11, height, "--out") as figure:
        if is_beside:
            grid = figure.add_gridspec(1, 2, width_ratios=[1.5, 1])
            panels = grid[0, 0].subgridspec(len(entries), 1).subplots(sharex=True, squeeze=False)[:, 0]
            if len(labels) == 2:
                draw_matrices(figure, figure.add_subplot(grid[0, 1]), series)
            else:
                _correlations(figure, grid[0, 1], series, labels)
        else:
            panels = figure.subplots(len(entries), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (i, j) in zip(panels, entries, strict=True):
            draw_entry(axes, series, i, j)
            axes.set_ylabel(f"variance of\n{labels[i]}" if i == j else f"covariance of\n{labels[i]}, {labels[j]}")
        finish(figure, list(panels), series, len(shown), len(labels))


def draw_entry(axes: Axes, series: ReleaseSeries, i: int, j: int) -> None:
    """Draw one number of the matrices over time."""
    values = [math.nan if r.value is None else float(r.value[i][j]) for r in series.releases]
    sigmas = [0.0 if r.sigma is None else deviation(r.sigma[i][j]) for r in series.releases]
    draw_curve(axes, series, values, sigmas)
    draw_truth(axes, series, [(at, float(value[i][j])) for at, value in sorted(series.truth.items())])


def draw_matrices(figure: Figure, axes: Axes, series: ReleaseSeries, title: str | None = None) -> None:
    """Draw the ellipses of some windows, later ones brighter; for the last window also its noise and its truth."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    released, plane = series.released, plane_of(series)
    assert plane is not None, "two features lie in a plane"
    when = [(release.window_open_ms + release.window_close_ms) / 2 / DAY_MS for release in released]
    colors: Any = ScalarMappable(Normalize(min(when), max(when)), "cividis")
    stride = -(-len(released) // _MAX_ELLIPSES)
    for release, x in list(zip(released, when, strict=True))[::-1][::stride]:
        axes.plot(*_boundary(release.value or [], plane), color=colors.to_rgba(x), linewidth=1.3, zorder=2)
    last = released[-1]
    noise = WIDTHS * 2 * deviation((last.parts or {}).get("eta"))  # of the variance in any direction, as a share of it
    if noise:
        whole = _boundary(last.value or [], plane)
        inner, outer = (math.sqrt(max(0.0, 1 + sign * noise)) * whole for sign in (-1, 1))
        around = np.concatenate([outer, inner[:, ::-1]], axis=1)
        axes.fill(*around, color=VALUE, alpha=0.25, linewidth=0, zorder=1)
    if last.window_open_ms in series.truth:
        truth = _boundary(series.truth[last.window_open_ms], plane)
        axes.plot(*truth, color=TRUTH, linewidth=1.2, linestyle=DASHES, label="truth", zorder=3)
    if title is None:
        title = "one standard deviation of the records" + ("; band: noise of the last window" if noise else "")
    ground(axes, [f"{label}, from its center" for label in axis_labels(series)], plane, title)
    time_bar(figure, axes, colors, released)


def _boundary(matrix: list[Any], plane: Plane) -> NDArray[np.float64]:
    """Return points (2, m) of the ellipse of one standard deviation; negative eigenvalues count as 0."""
    values, vectors = np.linalg.eigh(np.array(matrix, float))
    found: NDArray[np.float64] = (vectors * np.sqrt(np.maximum(values, 0.0))) @ _CIRCLE
    return found[[plane.across, plane.upward]]


def _correlations(figure: Figure, slot: Any, series: ReleaseSeries, labels: list[str]) -> None:
    """Draw the correlations of the last released window, and under them the true correlations if they are given."""
    last = series.released[-1]
    titled = [("correlations, last released window", last.value or [])]
    if last.window_open_ms in series.truth:
        titled.append(("correlations, truth", series.truth[last.window_open_ms]))
    panels = slot.subgridspec(len(titled), 1).subplots(squeeze=False)[:, 0]
    image: Any = None
    for axes, (title, matrix) in zip(panels, titled, strict=True):
        image = draw_square(axes, _correlation(np.array(matrix, float)), labels)
        axes.set_title(title, loc="left")
    figure.colorbar(image, ax=list(panels), shrink=0.7, aspect=30, label="correlation")


def draw_square(axes: Axes, table: NDArray[np.float64], labels: list[str], lowest: float = -1) -> Any:
    """Draw a table of numbers from `lowest` to 1 about pairs of features, as an image for a color bar."""
    image = axes.imshow(table, cmap="PuOr" if lowest < 0 else "Purples", vmin=lowest, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(length=0)
    if len(labels) <= _MAX_NUMBERS:
        for (i, j), value in np.ndenumerate(table):
            shade = "white" if abs(value) > 0.6 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=shade, fontsize=8)
    return image


def draw_correlations(figure: Figure, axes: Axes, series: ReleaseSeries) -> None:
    """Draw the correlations of the last released window, as one panel of several."""
    matrix = np.array(series.released[-1].value, float)
    image = draw_square(axes, _correlation(matrix), axis_labels(series))
    figure.colorbar(image, ax=axes, shrink=0.7, aspect=20, label="correlation")


def _correlation(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert a covariance matrix to correlations within [-1, 1]; nan for a feature without variance."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.float64] = np.clip(matrix / np.outer(scale, scale), -1.0, 1.0)
    return found
