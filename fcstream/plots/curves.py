"""Curves of one number over time: features, quantiles, and totals that begin anew with each epoch."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import picture
from .drawing import (
    DAY_MS,
    MAX_FEATURES,
    MAX_MARKERS,
    NOISE_BAND,
    VALUE,
    WIDTHS,
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
    truth_line,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..releases.base import Release
    from ..reporting.series import ReleaseSeries

_EPOCH = "#BBBBBB"


def draw_feature(axes: Axes, series: ReleaseSeries, k: int) -> None:
    """Draw one number of the values, with a band of its noise and with the true one."""
    values = [math.nan if r.value is None else float(r.value[k]) for r in series.releases]
    sigmas = [0.0 if r.sigma is None else deviation(r.sigma[k]) for r in series.releases]
    draw_curve(axes, series, values, sigmas)
    draw_truth(axes, series, [(at, float(value[k])) for at, value in sorted(series.truth.items())])


# -- quantiles -----------------------------------------------------------------------------------------------------


def plot_quantiles(series: ReleaseSeries, path: str) -> None:
    """Draw quantiles as a fan, and the number of records below it."""
    with picture(path, 11, 6.2, "--out") as figure:
        panels = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        draw_quantiles(panels[0], series)
        panels[0].set_ylabel(axis_labels(series)[0])
        draw_counts(panels[1], series)
        finish(figure, list(panels), series, 1, 1, notes=rank_notes(series))


def draw_quantiles(axes: Axes, series: ReleaseSeries) -> None:
    """Draw quantiles: the middle one as a line, and the pairs around it as bands."""
    levels = list((series.first.parts or {}).get("quantiles", []))
    x = middles(series)
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
        line: Any = {"linewidth": 1.8 if middle else 0.7, "label": f"quantile {levels[k]:g}" if middle else None}
        axes.plot(x, table[:, k], color=VALUE, marker=dot(x, middle), markersize=2.6, **line)
    for k in range(len(levels)):
        points = [(at, float(value[k])) for at, value in sorted(series.truth.items())]
        draw_truth(axes, series, points, "truth" if k == 0 else None)
    shade_refusals(axes, series)


def rank_notes(series: ReleaseSeries) -> list[str]:
    """Say how far the ranks of quantiles are off, since nothing is known of how far the values are."""
    ranks = [deviation(sigma) for sigma in (series.first.parts or {}).get("rank_sigma") or ()]
    if not ranks:
        return []
    return [
        f"each value is off by up to {WIDTHS * max(ranks):.2g} records ({WIDTHS:g} standard deviations of its rank)"
    ]


# -- totals --------------------------------------------------------------------------------------------------------


def plot_totals(series: ReleaseSeries, path: str) -> None:
    """Draw for each feature the total of its epoch so far, and below it single windows with bars of their noise."""
    labels = axis_labels(series)
    shown = labels[:MAX_FEATURES]
    rows = 2 * len(shown)
    with picture(path, 11, 1.1 + 2.0 * rows, "--out") as figure:
        heights = [3, 2] * len(shown)
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for k, label in enumerate(shown):
            draw_total(panels[2 * k], series, k)
            panels[2 * k].set_ylabel(f"{label}\nsince the epoch began")
            _draw_windows(panels[2 * k + 1], series, k)
            panels[2 * k + 1].set_ylabel(f"{label}\nin a window")
        finish(figure, list(panels), series, len(shown), len(labels))


def draw_total(axes: Axes, series: ReleaseSeries, k: int) -> None:
    """Draw totals at the ends of their windows, from 0 at the beginning of each epoch, with a band of their noise."""
    label, band, truth = "released", NOISE_BAND, "truth"
    for epoch, found in groupby(series.released, _epoch_of):
        releases = list(found)
        x = [release.window_close_ms / DAY_MS for release in releases]
        y = [float((release.value or [])[k]) for release in releases]
        width = [WIDTHS * deviation(release.sigma[k]) if release.sigma else 0.0 for release in releases]
        if epoch is not None and (releases[0].parts or {}).get("windows") == 1:
            x, y, width = [epoch / DAY_MS, *x], [0.0, *y], [0.0, *width]
        low, high = np.array(y) - width, np.array(y) + width
        axes.fill_between(x, low, high, color=VALUE, alpha=0.25, linewidth=0, label=band)
        axes.plot(x, y, color=VALUE, linewidth=1.2, marker=dot(middles(series)), markersize=2.6, label=label)
        true = [
            (r.window_close_ms / DAY_MS, float(series.truth[r.window_open_ms][k]))
            for r in releases
            if r.window_open_ms in series.truth
        ]
        if true:
            axes.plot(*zip(*true, strict=True), label=truth, **truth_line(len(true)))
        label = band = truth = "_"
        if epoch is not None and epoch > series.first.window_open_ms:
            axes.axvline(epoch / DAY_MS, color=_EPOCH, linewidth=0.8, zorder=0)
    if not series.released:
        draw_curve(axes, series, [math.nan] * len(series.releases), [0.0] * len(series.releases))
        return
    shade_refusals(axes, series)


def _draw_windows(axes: Axes, series: ReleaseSeries, k: int) -> None:
    """Draw the windows that totals are made of, with bars of their noise, or with a band where there are many."""
    values, sigmas = [], []
    for release in series.releases:
        window = (release.parts or {}).get("window") or {}
        value, sigma = window.get("value"), window.get("sigma")
        values.append(math.nan if release.value is None or value is None else float(value[k]))
        sigmas.append(0.0 if sigma is None else deviation(sigma[k]))
    if len(values) > MAX_MARKERS or not np.isfinite(values).any():
        draw_curve(axes, series, values, sigmas)
        return
    bars: Any = {"fmt": "o", "markersize": 2.6, "color": VALUE, "elinewidth": 1.0}
    axes.errorbar(middles(series), values, WIDTHS * np.array(sigmas), label=f"a window, with {NOISE_BAND}", **bars)
    shade_refusals(axes, series)


def _epoch_of(release: Release) -> int | None:
    return (release.parts or {}).get("epoch_open_ms")
