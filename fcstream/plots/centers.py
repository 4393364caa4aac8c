"""Pictures of points in space: the path of a mean of two features, centers, and weighted points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .base import picture
from .drawing import (
    DAY_MS,
    MARKS,
    MAX_ELLIPSES,
    MAX_FEATURES,
    REFUSED,
    TRUTH,
    VALUE,
    WIDTHS,
    axis_labels,
    deviation,
    draw_truth,
    finish,
    middles,
    shade_refusals,
    time_bar,
    truth_line,
)
from .planes import Plane, ground, plane_of, true_to_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..releases.base import Release
    from ..reporting.series import ReleaseSeries


def plot_places(series: ReleaseSeries, path: str) -> None:
    """Draw centers, means of components or weighted points: two features in the plane, others in a panel each."""
    labels, plane = axis_labels(series), plane_of(series)
    if len(labels) == 2 and plane is not None:
        with picture(path, 8.5, 7.4, "--out") as figure:
            draw_places(figure, figure.subplots(), series, plane)
            finish(figure, [], series, 2, 2)
        return
    shown = labels[:MAX_FEATURES]
    with picture(path, 11 if plane is None else 16, 1.1 + 2.1 * len(shown), "--out") as figure:
        if plane is None:
            panels = list(figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0])
        else:
            panels, axes = panels_beside_plane(figure, len(shown))
            draw_places(figure, axes, series, plane, title=_named(series))
        for k, (axes, label) in enumerate(zip(panels, shown, strict=True)):
            draw_places_over_time(axes, series, k)
            axes.set_ylabel(label)
        finish(figure, panels, series, len(shown), len(labels))


def _named(series: ReleaseSeries) -> str:
    """Say what lies at the places: centers, components, points."""
    return f"{series.shape.axes[0].name}s"


def panels_beside_plane(figure: Figure, rows: int) -> tuple[list[Axes], Axes]:
    """Divide a figure into panels over time, and a plane at their right."""
    grid = figure.add_gridspec(1, 2, width_ratios=[1.7, 1])
    panels = grid[0, 0].subgridspec(rows, 1).subplots(sharex=True, squeeze=False)[:, 0]
    return list(panels), figure.add_subplot(grid[0, 1])


def draw_path(figure: Figure, axes: Axes, series: ReleaseSeries, labels: list[str], plane: Plane) -> None:
    """Draw the path of a mean of two features with ellipses of its noise; later windows are brighter."""
    released = series.released
    points = np.array([_turned(release.value or [], plane) for release in released], float)
    when = [_middle(release) for release in released]
    axes.plot(points[:, 0], points[:, 1], color="#BBBBBB", linewidth=0.8, zorder=1)
    dots: Any = axes.scatter(points[:, 0], points[:, 1], c=when, cmap="cividis", s=9, zorder=3)
    stride = -(-len(released) // MAX_ELLIPSES)
    for release, x in list(zip(released, when, strict=True))[::stride]:
        if release.sigma is not None:
            center, sigma = _turned(release.value or [], plane), _turned(release.sigma, plane)
            _ellipse(axes, center, _noise(sigma), dots.to_rgba(x))
    truth = [_turned(series.truth[r.window_open_ms], plane) for r in released if r.window_open_ms in series.truth]
    if truth:
        axes.plot(*np.array(truth, float).T, zorder=2, **truth_line(len(truth)))
    ground(axes, labels, plane, f"means, with ellipses of\n{WIDTHS:g} standard deviations of the noise")
    if plane.is_map:
        true_to_scale(axes, points[:, 1].tolist())
    time_bar(figure, axes, dots, released)


def draw_places(figure: Figure, axes: Axes, series: ReleaseSeries, plane: Plane, title: str | None = None) -> None:
    """Draw points in the plane: size shows the number of records or the weight, color the time, ellipses the noise."""
    x, y, when, sizes = [], [], [], []
    for release in series.released:
        for point, size in zip(release.value or [], _sizes(release), strict=True):
            x.append(float(point[plane.across]))
            y.append(float(point[plane.upward]))
            when.append(_middle(release))
            sizes.append(size)
    dots: Any = axes.scatter(x, y, s=sizes, c=when, cmap="cividis", zorder=3, edgecolors="white", linewidths=0.5)
    stride = -(-len(series.released) // MAX_ELLIPSES)
    for release in series.released[::-1][::stride]:
        color = dots.to_rgba(_middle(release))
        for center, sigma in zip(release.value or [], release.sigma or [], strict=False):
            _ellipse(axes, _turned(center, plane), _noise(_turned(sigma, plane)), color)
        own = (release.parts or {}).get("covariances") or []
        for center, covariance in zip(release.value or [], own, strict=False):
            turned = np.array([_turned(row, plane) for row in _turned(covariance, plane)], float)
            _ellipse(axes, _turned(center, plane), turned, color, "--")
    truth = [point for release in series.released for point in series.truth.get(release.window_open_ms, [])]
    if truth:
        marks: Any = {"linestyle": "none", "marker": "x", "markersize": 6, "zorder": 4}
        axes.plot(*np.array([_turned(point, plane) for point in truth], float).T, color=TRUTH, label="truth", **marks)
    for reason, times in series.reasons.items():
        text = f"refused: {reason} ({times})"
        axes.plot([], [], linestyle="none", marker=MARKS.get(reason, "*"), color=REFUSED, label=text)
    if title is None:
        title = f"{_named(series)}, larger for more records"
        if any(release.sigma for release in series.released):
            title += f"; ellipses: {WIDTHS:g} standard deviations of their noise"
        if any("covariances" in (release.parts or {}) for release in series.released):
            title += ", dashed of the records"
    ground(axes, axis_labels(series), plane, title)
    if plane.is_map:
        true_to_scale(axes, y)
    time_bar(figure, axes, dots, series.released)


def draw_places_over_time(axes: Axes, series: ReleaseSeries, k: int) -> None:
    """Draw one feature of all points over time, and that of the true ones."""
    _over_time(axes, series, k)
    truth = [(t, float(c[k])) for t, value in sorted(series.truth.items()) for c in value]
    draw_truth(axes, series, truth, joined=False)
    shade_refusals(axes, series)


# -- pieces --------------------------------------------------------------------------------------------------------


def _over_time(axes: Axes, series: ReleaseSeries, k: int) -> None:
    """Draw one feature of all points over time."""
    at, values, errors, sizes = [], [], [], []
    for release, x in zip(series.releases, middles(series), strict=True):
        sigmas = release.sigma or [None] * len(release.value or [])
        for point, sigma, size in zip(release.value or [], sigmas, _sizes(release), strict=True):
            at.append(x)
            values.append(float(point[k]))
            errors.append(WIDTHS * deviation(sigma[k]) if sigma is not None else 0.0)
            sizes.append(size)
    if any(errors):
        what = f"{_named(series)}, with {WIDTHS:g} standard deviations of their noise"
        axes.errorbar(at, values, errors, fmt="none", color=VALUE, elinewidth=1.2, label=what)
        axes.scatter(at, values, s=sizes, color=VALUE, alpha=0.7, linewidths=0)
    else:
        axes.scatter(at, values, s=sizes, color=VALUE, alpha=0.7, linewidths=0, label=_named(series))


def _sizes(release: Release) -> list[float]:
    """Return the areas of a release's markers, by the share of the records at each."""
    if release.value is None:
        return []
    parts = release.parts or {}
    weights = parts.get("weights") or parts.get("counts") or [1.0] * len(release.value)
    most = max([1e-9, *map(float, weights)])
    return [10 + 70 * max(0.0, float(weight)) / most for weight in weights]


def _turned(pair: Sequence[Any], plane: Plane) -> list[Any]:
    """Return what belongs to two features in the order in which they lie in the plane."""
    return [pair[plane.across], pair[plane.upward]]


def _middle(release: Release) -> float:
    return (release.window_open_ms + release.window_close_ms) / 2 / DAY_MS


def _noise(sigma: list[Any]) -> NDArray[np.float64]:
    """Return the covariance matrix of noise with these deviations."""
    return np.diag([deviation(one) ** 2 for one in sigma])


def _ellipse(axes: Axes, center: list[Any], covariance: NDArray[np.float64], color: Any, line: str = "-") -> None:
    """Draw the ellipse in which a Gaussian of this covariance (2, 2) mostly lies; nothing if the ellipse is flat."""
    from matplotlib.patches import Ellipse

    squares, vectors = np.linalg.eigh(covariance)
    if squares[0] > 0:
        width, height = (2 * WIDTHS * np.sqrt(squares)).tolist()
        angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
        point = (float(center[0]), float(center[1]))
        style: dict[str, Any] = {"facecolor": "none", "edgecolor": color, "linewidth": 1.1, "linestyle": line}
        axes.add_patch(Ellipse(point, width, height, angle=angle, zorder=2, **style))
        far = WIDTHS * np.sqrt(np.maximum(np.diag(covariance), 0.0))
        axes.update_datalim([np.array(point) - far, np.array(point) + far])
