"""Pictures of trees: a heat map of the noisy number of records in each place, for the latest windows."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .base import picture
from .drawing import axis_labels, draw_counts, finish, whom
from .planes import Plane, plane_of, true_to_scale

if TYPE_CHECKING:
    from ..releases.base import Release
    from ..reporting.series import ReleaseSeries

MAX_PANELS = 6
"""Windows that are drawn: the latest ones with a value."""
CELLS = 160
"""Cells of a heat map in each direction."""


def plot_boxes(series: ReleaseSeries, path: str) -> None:
    """Draw how densely records lie: on a map of longitude and latitude, in the plane of the first two features, or
    along a single one.

    The numbers of records of all windows stand below. Boxes of more features lie over each other, and their numbers
    are added up. A number below 0 is drawn as 0.
    """
    shown, plane = series.released[-MAX_PANELS:], plane_of(series) or Plane(0, 1, False)
    every = axis_labels(series)
    order = [plane.across, plane.upward][: len(every)]
    labels = [every[j] for j in order]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    with picture(path, max(8.5, 1.5 + 4.6 * columns), 2.9 + 3.9 * rows, "--out") as figure:
        grid = figure.add_gridspec(2, 1, height_ratios=[3.9 * rows, 1.6])
        panels = grid[0].subgridspec(rows, columns).subplots(squeeze=False).ravel()
        below = figure.add_subplot(grid[1])
        draw_counts(below, series)
        maps = [_density(release, order) for release in shown]
        most = max(1e-300, *(float(values.max()) for *_, values in maps))
        image: Any = None
        for axes, release, (x, y, values) in zip(panels, shown, maps, strict=False):
            axes.set_title(_when(release), loc="left")
            axes.set_xlabel(labels[0])
            if y is None:
                axes.stairs(values[0], x, fill=True)
                axes.set_ylabel(f"{whom(series)} for each 1 of {labels[0]}")
                continue
            style: Any = {"cmap": "cividis", "vmin": 0, "vmax": math.sqrt(most), "rasterized": True}
            image = axes.pcolormesh(x, y, np.sqrt(values), **style)
            axes.set_ylabel(labels[1])
            if plane.is_map:
                true_to_scale(axes, y.tolist(), adjustable="box")
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        if image is not None:
            bar = figure.colorbar(image, ax=list(panels), pad=0.015, aspect=30)
            ticks: list[float] = np.linspace(0, math.sqrt(most), 5).tolist()
            bar.set_ticks(ticks, labels=[f"{tick * tick:.3g}" for tick in ticks])
            bar.set_label(f"{whom(series)} for each 1 x 1 of {labels[0]} and {labels[1]}, noisy")
        finish(figure, [below], series, len(labels), len(every))


def _when(release: Release) -> str:
    """Return when a window opened, in UTC."""
    opened = datetime.datetime.fromtimestamp(release.window_open_ms / 1000, datetime.UTC)
    return opened.strftime("%Y-%m-%d %H:%M:%S")


def _density(
    release: Release, order: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.float64]]:
    """Return the edges of cells, of one feature or two in this order, and the number of records in each for every unit
    of area.
    """
    parts = release.parts or {}
    low, high = np.array(parts["low"], float)[:, order], np.array(parts["high"], float)[:, order]
    counts = np.maximum(np.array(release.value, float), 0.0)
    edges = [np.linspace(low[:, j].min(), high[:, j].max(), CELLS + 1) for j in range(low.shape[1])]
    shares = []
    for j, ends in enumerate(edges):
        width = np.maximum(high[:, j] - low[:, j], 1e-300)[:, None]
        inner = np.minimum(high[:, j, None], ends[1:]) - np.maximum(low[:, j, None], ends[:-1])
        shares.append(np.clip(inner, 0.0, None) / width / np.maximum(np.diff(ends), 1e-300))
    if len(edges) == 1:
        return edges[0], None, counts[None] @ shares[0]
    return edges[0], edges[1], (shares[1] * counts[:, None]).T @ shares[0]
