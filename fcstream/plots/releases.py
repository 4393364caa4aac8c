"""Pictures of releases over time, with their uncertainty, refusals and, where wanted, the truth."""

from __future__ import annotations

import math
from datetime import UTC
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError
from ..history import duration, moment
from .base import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ..releases.base import Release
    from ..series import Series

# Okabe and Ito's colors, which most kinds of color blindness leave apart.
_VALUE, _TRUTH, _COUNT, _REFUSED = "#0072B2", "#D55E00", "#009E73", "#555555"
_MARKS = {"too_few": "v", "budget_exhausted": "X", "interrupted": "s", "no_radius": "D"}
_PLACED = {"centers": "centers", "mixtures": "means of components"}
_WIDTHS = 2.0
"""Standard deviations of noise that bands and ellipses show."""
_DAY_MS = 86_400_000
MOST_FEATURES = 12
MOST_ELLIPSES = 60
MOST_MARKERS = 150


def plot_releases(series: Series, path: str) -> None:
    """Draw a series of releases; what is drawn depends on their kind.

    Means, counts and variances: a line per feature with a band of two standard deviations of its noise; for two
    features also the path of the mean with the ellipses of its noise. Quantiles: a fan. Histograms: a heat map.
    Centers and mixtures: their places, of mixtures with the components' own width. Refused windows are shaded, with a
    mark for each reason.

    Parameters
    ----------
    series : Series
    path : str
        Ends in ``.svg`` or ``.png``.

    Raises
    ------
    ConfigError
        Another suffix, matplotlib is not installed, or releases of a shape that has no picture.
    FcstreamError
        The file cannot be written.
    """
    first, released = series.first, series.released
    if any(moment(release.window_close_ms) is None for release in series.releases):
        raise ConfigError("must lie between the years 1 and 9999 to be drawn", "RELEASES")
    rank = _rank(released[0].value or []) if released else 1
    if rank == 2 and first.kind in _PLACED:
        _centers(series, path)
    elif rank != 1:
        raise ConfigError(f"of kind {first.kind!r} have no picture", "RELEASES")
    elif first.kind == "histogram":
        _heat(series, path)
    elif first.kind == "quantiles":
        _fan(series, path)
    else:
        _lines(series, path)


def _rank(value: Any) -> int:
    """How deep lists lie in each other; those of tables differ in length."""
    return 1 + _rank(value[0] if value else None) if isinstance(value, list) else 0


# -- one picture each ----------------------------------------------------------------------------------------------


def _lines(series: Series, path: str) -> None:
    """A panel per feature, one for the number of records, and the path of a mean of two features."""
    first = series.first
    labels = _labels(series)
    shown = labels[:MOST_FEATURES]
    is_path = first.kind == "mean" and len(labels) == 2 and bool(series.released)
    counts = [release.count for release in series.releases]
    has_counts = first.kind != "count" and any(count is not None for count in counts)
    rows = len(shown) + has_counts
    with picture(path, 14 if is_path else 11, 1.1 + 2.1 * rows, "--out") as figure:
        if is_path:
            grid = figure.add_gridspec(1, 2, width_ratios=[1.7, 1])
            panels = grid[0, 0].subgridspec(rows, 1).subplots(sharex=True, squeeze=False)[:, 0]
            _path(figure, figure.add_subplot(grid[0, 1]), series, labels)
        else:
            panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for k, (axes, label) in enumerate(zip(panels, shown, strict=False)):
            values = [math.nan if r.value is None else float(r.value[k]) for r in series.releases]
            sigmas = [0.0 if r.sigma is None else _deviation(r.sigma[k]) for r in series.releases]
            _curve(axes, series, values, sigmas)
            _truth(axes, series, [(at, float(value[k])) for at, value in sorted(series.truth.items())])
            axes.set_ylabel(label)
        if has_counts:
            _counts(panels[-1], series)
        _finish(figure, list(panels), series, len(shown), len(labels))


def _fan(series: Series, path: str) -> None:
    """Quantiles: the middle one as a line, pairs around it as bands."""
    first = series.first
    levels = list((first.parts or {}).get("quantiles", []))
    with picture(path, 11, 6.2, "--out") as figure:
        panels = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        axes, x = panels[0], _middles(series)
        table = np.array([r.value if r.value is not None else [math.nan] * len(levels) for r in series.releases], float)
        pairs = len(levels) // 2
        for k in range(pairs):
            low, high = table[:, k], table[:, len(levels) - 1 - k]
            label = f"quantiles {levels[k]:g} to {levels[-1 - k]:g}"
            style = {"color": _VALUE, "alpha": 0.14 + 0.2 * k / max(1, pairs), "linewidth": 0, "label": label}
            _band(axes, series, low, high, style)
        # Each level of its own, so that a fan of one is seen too.
        for k in range(len(levels)):
            middle = len(levels) % 2 == 1 and k == pairs
            style = {"linewidth": 1.8 if middle else 0.7, "label": f"quantile {levels[k]:g}" if middle else None}
            axes.plot(x, table[:, k], color=_VALUE, marker=_dot(x, middle), markersize=2.6, **style)
        for k in range(len(levels)):
            points = [(at, float(value[k])) for at, value in sorted(series.truth.items())]
            _truth(axes, series, points, "truth" if k == 0 else None)
        _refusals(axes, series)
        axes.set_ylabel(_labels(series)[0])
        _counts(panels[1], series)
        _finish(figure, list(panels), series, 1, 1)


def _heat(series: Series, path: str) -> None:
    """A histogram: one row per bin, one column per window, color for the noisy number of records."""
    parts = series.first.parts or {}
    names = _bin_names(parts, len(series.released[0].value or []) if series.released else 0)
    with picture(path, 11, min(14.0, 2.6 + 0.32 * max(6, len(names))), "--out") as figure:
        axes = figure.subplots()
        _refusals(axes, series, ground=True)
        if series.released:
            rows = np.arange(len(names) + 1)
            edges, table = _columns(series, len(names))
            most = max(1.0, float(np.nanmax(table)))
            columns = np.ma.masked_invalid(np.maximum(table, 0.0))
            image = axes.pcolormesh(edges, rows, columns, cmap="cividis", vmin=0, vmax=most, rasterized=True)
            noise = (series.released[0].sigma or [0.0])[0]
            bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=30)
            bar.set_label(f"records in a window\n(standard deviation of the noise: {noise:.3g})")
            stride = -(-len(names) // 40)
            axes.set_yticks(rows[:-1][::stride] + 0.5, names[::stride])
            axes.tick_params(axis="y", length=0)
        axes.set_ylabel(str(parts.get("feature", "bin")))
        _finish(figure, [axes], series, 1, 1, pad=False)


def _centers(series: Series, path: str) -> None:
    """Centers: in the plane for two features, else one panel per feature."""
    labels = _labels(series)
    if len(labels) == 2:
        with picture(path, 8.5, 7.4, "--out") as figure:
            axes = figure.subplots()
            _places(figure, axes, series, labels)
            _finish(figure, [], series, 2, 2)
        return
    shown = labels[:MOST_FEATURES]
    with picture(path, 11, 1.1 + 2.1 * len(shown), "--out") as figure:
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for k, (axes, label) in enumerate(zip(panels, shown, strict=True)):
            at, values, errors = [], [], []
            for release, x in zip(series.releases, _middles(series), strict=True):
                for center, sigma in zip(release.value or [], release.sigma or release.value or [], strict=True):
                    at.append(x)
                    values.append(float(center[k]))
                    errors.append(_WIDTHS * _deviation(sigma[k]) if release.sigma else 0.0)
            what = f"{_PLACED[series.first.kind]}, with {_WIDTHS:g} standard deviations of their noise"
            axes.errorbar(at, values, errors, fmt="o", markersize=4, color=_VALUE, elinewidth=1.2, label=what)
            truth = [(t, float(c[k])) for t, value in sorted(series.truth.items()) for c in value]
            _truth(axes, series, truth, joined=False)
            _refusals(axes, series)
            axes.set_ylabel(label)
        _finish(figure, list(panels), series, len(shown), len(labels))


# -- pieces --------------------------------------------------------------------------------------------------------


def _curve(axes: Axes, series: Series, values: list[float], sigmas: list[float]) -> None:
    """Values over time with a band of their noise; a refused window leaves a gap."""
    x, y = _middles(series), np.array(values)
    width = _WIDTHS * np.array(sigmas)
    style = {"color": _VALUE, "alpha": 0.25, "linewidth": 0, "label": f"{_WIDTHS:g} standard deviations of the noise"}
    if np.isfinite(y).any():
        _band(axes, series, y - width, y + width, style)
        axes.plot(x, y, color=_VALUE, linewidth=1.2, marker=_dot(x), markersize=2.6, label="released")
    else:
        axes.set_yticks([])
        place: dict[str, Any] = {"ha": "center", "va": "center", "backgroundcolor": "white", "color": _REFUSED}
        axes.text(0.5, 0.5, "no value was released", transform=axes.transAxes, **place)
        axes.set_xlim(series.first.window_open_ms / _DAY_MS, series.releases[-1].window_close_ms / _DAY_MS)
    _refusals(axes, series)


def _band(
    axes: Axes, series: Series, low: NDArray[np.float64], high: NDArray[np.float64], style: dict[str, Any]
) -> None:
    """Between two curves; a window that stands alone gets a bar of its own width."""
    x = _middles(series)
    axes.fill_between(x, low, high, **style)
    good = np.isfinite(low)
    alone = good & ~np.concatenate([[False], good[:-1]]) & ~np.concatenate([good[1:], [False]])
    for k in np.flatnonzero(alone).tolist():
        release = series.releases[k]
        left, right = release.window_open_ms / _DAY_MS, release.window_close_ms / _DAY_MS
        axes.fill_between([left, right], [low[k]] * 2, [high[k]] * 2, **{**style, "label": None})


def _counts(axes: Axes, series: Series) -> None:
    counts = [math.nan if release.count is None else float(release.count) for release in series.releases]
    x = _middles(series)
    axes.plot(x, counts, color=_COUNT, linewidth=1.1, marker=_dot(x), markersize=2.4, label="noisy number of records")
    _refusals(axes, series)
    axes.set_ylabel("records in a window")


def _truth(
    axes: Axes, series: Series, points: list[tuple[int, float]], label: str | None = "truth", joined: bool = True
) -> None:
    """True values of the windows that are shown."""
    middle = dict(zip((r.window_open_ms for r in series.releases), _middles(series), strict=True))
    found = [(middle[at], value) for at, value in points if at in middle]
    if found:
        x, y = zip(*found, strict=True)
        line: dict[str, Any] = (
            {"linewidth": 1.0, "linestyle": (0, (4, 2))} if joined else {"linewidth": 0, "marker": "x"}
        )
        axes.plot(x, y, color=_TRUTH, markersize=5, label=label, **line)


def _refusals(axes: Axes, series: Series, ground: bool = False) -> None:
    """Shade refused windows, neighbors in one, and mark the reason of each at the bottom."""
    refused = [release for release in series.releases if release.reason is not None]
    spans: list[list[float]] = []
    for release in refused:
        left, right = release.window_open_ms / _DAY_MS, release.window_close_ms / _DAY_MS
        if spans and left <= spans[-1][1] + 1e-9:
            spans[-1][1] = max(spans[-1][1], right)
        else:
            spans.append([left, right])
    for left, right in spans:
        axes.axvspan(left, right, facecolor="#EEEEEE", edgecolor="#CCCCCC", hatch="///", linewidth=0, zorder=0)
    if ground:
        axes.set_xlim(series.releases[0].window_open_ms / _DAY_MS, series.releases[-1].window_close_ms / _DAY_MS)
    stride = -(-len(refused) // MOST_MARKERS) if refused else 1
    for reason in series.reasons:
        at = [(r.window_open_ms + r.window_close_ms) / 2 / _DAY_MS for r in refused if r.reason == reason][::stride]
        axes.plot(
            at,
            [0.035] * len(at),
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            marker=_MARKS.get(reason, "P"),
            markersize=5,
            color=_REFUSED,
            markeredgecolor="white",
            markeredgewidth=0.5,
            label=f"refused: {reason} ({series.reasons[reason]})",
            clip_on=False,
            zorder=4,
        )


def _path(figure: Figure, axes: Axes, series: Series, labels: list[str]) -> None:
    """Where a mean of two features went, with ellipses of its noise; later windows are brighter."""
    released = series.released
    points = np.array([release.value for release in released], float)
    when = [(release.window_open_ms + release.window_close_ms) / 2 / _DAY_MS for release in released]
    axes.plot(points[:, 0], points[:, 1], color="#BBBBBB", linewidth=0.8, zorder=1)
    dots: Any = axes.scatter(points[:, 0], points[:, 1], c=when, cmap="cividis", s=9, zorder=3)
    stride = -(-len(released) // MOST_ELLIPSES)
    for release, x in list(zip(released, when, strict=True))[::stride]:
        if release.sigma is not None:
            noise = np.diag([_deviation(s) ** 2 for s in release.sigma])
            _ellipse(axes, release.value or [], noise, dots.to_rgba(x))
    truth = [series.truth[r.window_open_ms] for r in released if r.window_open_ms in series.truth]
    if truth:
        axes.plot(*np.array(truth, float).T, color=_TRUTH, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_title(f"means, with ellipses of {_WIDTHS:g} standard deviations of the noise", loc="left")
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(0.08)
    _time_bar(figure, axes, dots, released)


def _places(figure: Figure, axes: Axes, series: Series, labels: list[str]) -> None:
    """Centers in the plane: size for the noisy number of records, color for the time, ellipses for the noise."""
    x, y, when, sizes = [], [], [], []
    for release in series.released:
        counts = (release.parts or {}).get("counts") or [1.0] * len(release.value or [])
        most = max(1.0, *map(float, counts))
        for center, count in zip(release.value or [], counts, strict=True):
            x.append(float(center[0]))
            y.append(float(center[1]))
            when.append((release.window_open_ms + release.window_close_ms) / 2 / _DAY_MS)
            sizes.append(20 + 60 * max(0.0, float(count)) / most)
    dots: Any = axes.scatter(x, y, s=sizes, c=when, cmap="cividis", zorder=3, edgecolors="white", linewidths=0.5)
    stride = -(-len(series.released) // MOST_ELLIPSES)
    for release in series.released[::-1][::stride]:
        at = (release.window_open_ms + release.window_close_ms) / 2 / _DAY_MS
        for center, sigma in zip(release.value or [], release.sigma or [], strict=False):
            _ellipse(axes, center, np.diag([_deviation(s) ** 2 for s in sigma]), dots.to_rgba(at))
        own = (release.parts or {}).get("covariances") or []
        for center, covariance in zip(release.value or [], own, strict=False):
            _ellipse(axes, center, np.array(covariance, float), dots.to_rgba(at), "--")
    truth = [center for value in series.truth.values() for center in value]
    if truth:
        axes.plot(*np.array(truth, float).T, linestyle="none", marker="x", color=_TRUTH, markersize=6, label="truth")
    for reason, times in series.reasons.items():
        axes.plot(
            [],
            [],
            linestyle="none",
            marker=_MARKS.get(reason, "P"),
            color=_REFUSED,
            label=f"refused: {reason} ({times})",
        )
    axes.set(xlabel=labels[0], ylabel=labels[1])
    dashed = "" if series.first.kind == "centers" else f"; dashed: {_WIDTHS:g} of their own"
    what = f"{_PLACED[series.first.kind]}, with ellipses of {_WIDTHS:g} standard deviations of their noise"
    axes.set_title(what + dashed, loc="left")
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(0.08)
    _time_bar(figure, axes, dots, series.released)


def _ellipse(axes: Axes, center: list[Any], covariance: NDArray[np.float64], color: Any, line: str = "-") -> None:
    """Where a Gaussian of this covariance (2, 2) mostly lies; nothing for a flat one."""
    from matplotlib.patches import Ellipse

    squares, vectors = np.linalg.eigh(covariance)
    if squares[0] > 0:
        width, height = (2 * _WIDTHS * np.sqrt(squares)).tolist()
        angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
        place = (float(center[0]), float(center[1]))
        style: dict[str, Any] = {"facecolor": "none", "edgecolor": color, "linewidth": 1.1, "linestyle": line}
        axes.add_patch(Ellipse(place, width, height, angle=angle, zorder=2, **style))
        far = _WIDTHS * np.sqrt(np.maximum(np.diag(covariance), 0.0))
        axes.update_datalim([np.array(place) - far, np.array(place) + far])


def _time_bar(figure: Figure, axes: Axes, dots: Any, released: list[Release]) -> None:
    """What the colors of times mean; nothing for one window."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if len({release.window_open_ms for release in released}) > 1:
        locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=6)
        formatter = ConciseDateFormatter(locator, tz=UTC)
        bar = figure.colorbar(dots, ax=axes, orientation="horizontal", aspect=40, pad=0.02, ticks=locator)
        bar.ax.xaxis.set_major_formatter(formatter)
        bar.set_label("time (UTC)")


def _finish(figure: Figure, panels: list[Axes], series: Series, shown: int, features: int, pad: bool = True) -> None:
    """Axes of time, one legend for all panels, and what the picture is about."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    for axes in panels:
        if pad:
            axes.grid(axis="y", color="#E6E6E6", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.margins(x=0.01, y=0.12)
    if panels:
        locator = AutoDateLocator(tz=UTC, minticks=4, maxticks=9)
        panels[-1].xaxis.set_major_locator(locator)
        panels[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
        panels[-1].set_xlabel("time (UTC)")
        figure.align_ylabels(panels)
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    first = series.first
    lengths = {release.window_close_ms - release.window_open_ms for release in series.releases}
    every = f" of {duration(lengths.pop())}" if len(lengths) == 1 else ""
    cost = max((release.rho, release.delta) for release in series.releases)
    told = f"rho {cost[0]:g}" + (f", delta {cost[1]:g}" if cost[1] else "")
    lines = [f"stream {first.stream!r}: {first.kind} per window{every}, at most {told} each"]
    cap = first.guarantee
    notes = [f"guarantee for ever: rho {cap['rho']:g}, delta {cap['delta']:g}"]
    if shown < features:
        notes.append(f"{shown} of {features} features")
    if not all(release.private for release in series.releases):
        notes.append("seeded noise: NOT PRIVATE")
    if series.truth:
        notes.append("with true values: NOT PRIVATE")
    figure.suptitle("\n".join([*lines, "; ".join(notes)]), x=0.01, ha="left", fontsize=10)
    if named:
        figure.legend(
            named.values(),
            named.keys(),
            loc="outside lower left",
            ncols=min(4, len(named)),
            frameon=False,
            fontsize=8.5,
        )


def _middles(series: Series) -> NDArray[np.float64]:
    """Middle of each window, in days since 1970."""
    return np.array([(r.window_open_ms + r.window_close_ms) / 2 / _DAY_MS for r in series.releases])


def _labels(series: Series) -> list[str]:
    """What axes of values are called: the feature, in the units it is published in."""
    first = series.first
    if first.features is None:
        width = max((len(r.value or []) for r in series.releases), default=1) or 1
        return ["records"] if first.kind == "count" else [first.kind] * width
    transforms = first.transform or ["none"] * len(first.features)
    plain = [f if t == "none" else f"{t}({f})" for f, t in zip(first.features, transforms, strict=True)]
    return [f"variance of {name}" for name in plain] if first.kind == "variance" else plain


def _columns(series: Series, bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Edges of columns in days, and values (bins, columns); nan where nothing was released."""
    edges, columns, nothing = [series.first.window_open_ms], [], [math.nan] * bins
    for release, after in zip(series.releases, [*series.releases[1:], None], strict=True):
        if release.window_open_ms > edges[-1]:
            edges.append(release.window_open_ms)
            columns.append(nothing)
        end = release.window_close_ms if after is None else min(release.window_close_ms, after.window_open_ms)
        edges.append(end)
        columns.append(nothing if release.value is None else release.value)
    return np.array(edges) / _DAY_MS, np.array(columns, float).T


def _bin_names(parts: dict[str, Any], bins: int) -> list[str]:
    edges, categories = parts.get("edges"), parts.get("categories")
    if edges is not None and len(edges) == bins + 1:
        return [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    if categories is not None and len(categories) == bins - 1:
        return [*(f"{value:g}" for value in categories), "other"]
    return [str(k) for k in range(bins)]


def _deviation(sigma: Any) -> float:
    """A standard deviation; 0 where none is told (JSON has null for what is not a number)."""
    return float(sigma) if sigma is not None and math.isfinite(sigma) else 0.0


def _dot(x: NDArray[np.float64], wanted: bool = True) -> str | None:
    return "o" if wanted and len(x) <= MOST_MARKERS else None
