"""Drawing functions that all pictures of releases share: colors, curves with noise, refusals, labels and frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.words import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..releases.base import Release
    from ..reporting.series import ReleaseSeries

# Okabe and Ito's colors, which people with most kinds of color blindness can distinguish.
VALUE, TRUTH, COUNT, REFUSED = "#0072B2", "#D55E00", "#009E73", "#555555"
DASHES = (0, (4, 2))
MARKS = {
    "too_few": "v",
    "budget_exhausted": "X",
    "interrupted": "s",
    "no_radius": "D",
    "no_match": "P",
    "no_core": "o",
    "too_many": "h",
    "state_lost": "d",
}
WIDTHS = 2.0
"""Standard deviations of noise that bands and ellipses show."""
NOISE_BAND = f"{WIDTHS:g} standard deviations of the noise"
DAY_MS = 86_400_000
MAX_FEATURES = 12
MAX_ELLIPSES = 60
MAX_MARKERS = 150


def draw_curve(axes: Axes, series: ReleaseSeries, values: list[float], sigmas: list[float]) -> None:
    """Draw values over time with a band of their noise; a refused window leaves a gap."""
    x, y = middles(series), np.array(values)
    width = WIDTHS * np.array(sigmas)
    style = {"color": VALUE, "alpha": 0.25, "linewidth": 0, "label": NOISE_BAND}
    if np.isfinite(y).any():
        draw_band(axes, series, y - width, y + width, style)
        axes.plot(x, y, color=VALUE, linewidth=1.2, marker=dot(x), markersize=2.6, label="released")
    else:
        axes.set_yticks([])
        options: dict[str, Any] = {"ha": "center", "va": "center", "backgroundcolor": "white", "color": REFUSED}
        axes.text(0.5, 0.5, "no value was released", transform=axes.transAxes, **options)
        axes.set_xlim(series.first.window_open_ms / DAY_MS, series.releases[-1].window_close_ms / DAY_MS)
    shade_refusals(axes, series)


def draw_band(
    axes: Axes, series: ReleaseSeries, low: NDArray[np.float64], high: NDArray[np.float64], style: dict[str, Any]
) -> None:
    """Draw a band between two curves; a window without released neighbors gets a bar of its own width."""
    x = middles(series)
    axes.fill_between(x, low, high, **style)
    good = np.isfinite(low)
    alone = good & ~np.concatenate([[False], good[:-1]]) & ~np.concatenate([good[1:], [False]])
    for k in np.flatnonzero(alone).tolist():
        release = series.releases[k]
        left, right = release.window_open_ms / DAY_MS, release.window_close_ms / DAY_MS
        axes.fill_between([left, right], [low[k]] * 2, [high[k]] * 2, **{**style, "label": None})


def draw_counts(axes: Axes, series: ReleaseSeries) -> None:
    counts = [math.nan if release.count is None else float(release.count) for release in series.releases]
    x = middles(series)
    axes.plot(
        x, counts, color=COUNT, linewidth=1.1, marker=dot(x), markersize=2.4, label=f"noisy number of {whom(series)}"
    )
    shade_refusals(axes, series)
    axes.set_ylabel(f"{whom(series)} in a window")


def draw_truth(
    axes: Axes, series: ReleaseSeries, points: list[tuple[int, float]], label: str | None = "truth", joined: bool = True
) -> None:
    """Draw the true values of the windows that are shown."""
    middle = dict(zip((r.window_open_ms for r in series.releases), middles(series), strict=True))
    found = [(middle[at], value) for at, value in points if at in middle]
    if found:
        x, y = zip(*found, strict=True)
        axes.plot(x, y, label=label, **truth_line(len(found) if joined else 1))


def truth_line(points: int) -> dict[str, Any]:
    """Return the style of a line of true values; one value alone is a mark, since it has no line."""
    line: dict[str, Any] = {"linestyle": "none", "marker": "x"} if points == 1 else {"linestyle": DASHES}
    return {"color": TRUTH, "linewidth": 1.0, "markersize": 5, **line}


def whom(series: ReleaseSeries) -> str:
    """Return the name of the units that are counted: users if the releases count users, else records."""
    return "users" if any(release.unit == "user" for release in series.releases) else "records"


def shade_refusals(axes: Axes, series: ReleaseSeries, ground: bool = False) -> None:
    """Shade refused windows, adjacent ones together, and mark each reason at the bottom."""
    refused = [release for release in series.releases if release.reason is not None]
    spans: list[list[float]] = []
    for release in refused:
        left, right = release.window_open_ms / DAY_MS, release.window_close_ms / DAY_MS
        if spans and left <= spans[-1][1] + 1e-9:
            spans[-1][1] = max(spans[-1][1], right)
        else:
            spans.append([left, right])
    for left, right in spans:
        axes.axvspan(left, right, facecolor="#EEEEEE", edgecolor="#CCCCCC", hatch="///", linewidth=0, zorder=0)
    if ground:
        axes.set_xlim(series.releases[0].window_open_ms / DAY_MS, series.releases[-1].window_close_ms / DAY_MS)
    stride = -(-len(refused) // MAX_MARKERS) if refused else 1
    for reason in series.reasons:
        at = [(r.window_open_ms + r.window_close_ms) / 2 / DAY_MS for r in refused if r.reason == reason][::stride]
        axes.plot(
            at,
            [0.035] * len(at),
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            marker=MARKS.get(reason, "*"),
            markersize=5,
            color=REFUSED,
            markeredgecolor="white",
            markeredgewidth=0.5,
            label=f"refused: {reason} ({series.reasons[reason]})",
            clip_on=False,
            zorder=4,
        )


def time_bar(figure: Figure, axes: Axes, dots: Any, released: list[Release]) -> None:
    """Draw the color bar that explains the colors of times; nothing for one window."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if len({release.window_open_ms for release in released}) > 1:
        locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=6)
        formatter = ConciseDateFormatter(locator, tz=UTC)
        bar = figure.colorbar(dots, ax=axes, orientation="horizontal", aspect=40, pad=0.02, ticks=locator)
        bar.ax.xaxis.set_major_formatter(formatter)
        bar.set_label("time (UTC)")


def time_axis(axes: Axes, ticks: int = 9) -> None:
    """Label a time axis, in UTC."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=UTC, minticks=min(4, ticks - 1), maxticks=ticks)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))


def lined(axes: Axes) -> None:
    """Draw a light grid of values, and leave room around curves."""
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.01, y=0.12)


def finish(
    figure: Figure,
    panels: list[Axes],
    series: ReleaseSeries,
    shown: int,
    all_: int,
    what: str = "features",
    pad: bool = True,
    notes: Sequence[str] = (),
) -> None:
    """Draw the time axes, one legend for all panels, and the title of the picture."""
    for axes in panels if pad else []:
        lined(axes)
    if panels:
        time_axis(panels[-1])
        panels[-1].set_xlabel("time (UTC)")
        figure.align_ylabels(panels)
    first = series.first
    answer = "" if first.name is None else f", answer {first.name!r}"
    title = f"stream {first.stream!r}{answer}: {per_window([series])}"
    entitle(figure, title, [series], [*([f"{shown} of {all_} {what}"] if shown < all_ else []), *notes])


def per_window(found: Sequence[ReleaseSeries]) -> str:
    """Say what is released for each window of a key, and what all its answers that are drawn cost together at most."""
    releases = [release for series in found for release in series.releases]
    lengths = {release.window_close_ms - release.window_open_ms for release in releases}
    every = f" of {duration(lengths.pop())}" if len(lengths) == 1 else ""
    costs: dict[tuple[str, int], list[Release]] = {}
    for release in releases:
        costs.setdefault((release.stream, release.window_open_ms), []).append(release)
    rho = max(math.fsum(release.rho for release in window) for window in costs.values())
    delta = max(math.fsum(release.delta for release in window) for window in costs.values())
    text = f"rho {rho:g}" + (f", delta {delta:g}" if delta else "")
    kinds = list(dict.fromkeys(series.first.kind for series in found))
    answers = len({series.first.name for series in found})
    what = kinds[0] if len(kinds) == 1 else f"{answers} answers"
    return f"{what} per window{every}, at most {text} {'each' if answers == 1 else 'a window'}"


def _guarantee(found: Sequence[ReleaseSeries]) -> str:
    """Say what bounds all that is ever released, and what part of that each key has."""
    first = found[0].first

    def text(loss: dict[str, float]) -> str:
        return f"rho {loss['rho']:g}, delta {loss['delta']:g}"

    share = "" if first.key_share is None else f" under all keys together, {text(first.key_share)} of it for each key"
    lasts = "of one process" if first.ledger == "memory" else "for ever"
    return f"guarantee {lasts}: {text(first.guarantee)}{share}"


def entitle(figure: Figure, title: str, found: Sequence[ReleaseSeries], notes: Sequence[str]) -> None:
    """Write the title of a picture, what must be known beside it, and one legend for all of its panels."""
    lines = [_guarantee(found), *notes]
    if not all(release.private for series in found for release in series.releases):
        lines.append("seeded noise: NOT PRIVATE")
    if any(series.truth for series in found):
        lines.append("with true values: NOT PRIVATE")
    figure.suptitle(f"{title}\n{'; '.join(lines)}", x=0.01, ha="left", fontsize=10)
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            is_one = len(found) == 1 or not label.startswith("refused: ")  # the panels' numbers differ
            named.setdefault(label if is_one else label.partition(" (")[0], handle)
    if named:
        figure.legend(
            named.values(),
            named.keys(),
            loc="outside lower left",
            ncols=min(4, len(named)),
            frameon=False,
            fontsize=8.5,
        )


def middles(series: ReleaseSeries) -> NDArray[np.float64]:
    """Return the middle of each window, in days since 1970."""
    return np.array([(r.window_open_ms + r.window_close_ms) / 2 / DAY_MS for r in series.releases])


def axis_labels(series: ReleaseSeries) -> list[str]:
    """Return the labels of value axes: each feature, in the units in which it is published."""
    first = series.first
    subject = series.shape.subject
    if first.features is None:
        width = max((len(r.value or []) for r in series.releases), default=1) or 1
        return [whom(series)] if subject == "records" else [first.kind] * width
    transforms = first.transform or ["none"] * len(first.features)
    plain = [f if t == "none" else f"{t}({f})" for f, t in zip(first.features, transforms, strict=True)]
    return plain if subject is None else [f"{subject} of {name}" for name in plain]


def deviation(sigma: Any) -> float:
    """Return a standard deviation, or 0 if the release has none (JSON holds null for nan)."""
    return float(sigma) if sigma is not None and math.isfinite(sigma) else 0.0


def dot(x: NDArray[np.float64], wanted: bool = True) -> str | None:
    return "o" if wanted and len(x) <= MAX_MARKERS else None
