"""Pictures of several series: a panel for each key, for each answer, or for each number of each answer of each key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ledgers.base import root_of
from .base import picture
from .drawing import DAY_MS, entitle, lined, per_window, time_axis
from .panels import Panel, panels_of
from .releases import drawn_or_refused, plot_releases

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..reporting.series import ReleaseSeries

MAX_PANELS = 24
"""Largest number of panels of a picture; of more keys the first are drawn, by name."""
MAX_COLUMNS = 4
"""Largest number of panels beside each other: of more numbers or answers of each key the first are drawn."""
_FACTOR = 20.0
"""Panels share a scale unless one of them would be flat on it: its values spread over less than a part in so many."""


def plot_all(found: Sequence[ReleaseSeries], path: str) -> None:
    """Draw one or several series; see `plot_releases` for one.

    Of several keys each is a panel, at the same times and, where values are alike, on the same scale. Of several
    answers each has panels of its own: a row of them for each key. At most `MAX_PANELS` panels are drawn, and the title
    says so.

    Parameters
    ----------
    found : sequence of ReleaseSeries
        Of one stream, as `fcstream.reporting.series.read_all` returns them.
    path : str
        File to write, which ends in ``.svg`` or ``.png``.

    Raises
    ------
    ConfigError, FcstreamError
        See `plot_releases`.
    """
    if len(found) == 1:
        plot_releases(found[0], path)
    else:
        drawn_or_refused(lambda: _plot_grid(found, path))


def _plot_grid(found: Sequence[ReleaseSeries], path: str) -> None:
    keys = list(dict.fromkeys(series.key for series in found))
    has_keys = len(keys) > 1
    panels = _panels_by_answer(found)
    across, has_answers = len(panels), len({answer for answer, _ in panels}) > 1
    if has_keys and across > 1:  # a row for each key
        columns = min(across, MAX_COLUMNS)
        shown_keys, shown = keys[: MAX_PANELS // columns], panels[:columns]
    else:
        shown_keys, shown = keys[:MAX_PANELS], panels[:MAX_PANELS]
        columns = _columns(len(shown_keys) * len(shown), has_keys)
    by_name = {(series.key, series.first.name or ""): series for series in found}
    cells = [(by_name.get((key, answer)), panel) for key in shown_keys for answer, panel in shown]
    rows = -(-len(cells) // columns)
    is_plane = not all(panel.over_time for _, panel in cells)
    width, height = 11.0 if columns == 1 else 4.2 * columns, 3.6 if is_plane else 2.1
    with picture(path, max(8.0, width), 1.2 + height * rows, "--out") as figure:
        grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        drawn: list[tuple[Axes, ReleaseSeries, Panel]] = []
        for place, (axes, (series, panel)) in enumerate(zip(grid, cells, strict=False)):
            if series is None:
                axes.set_visible(False)
                continue
            panel.draw(figure, axes, series)
            _dress(axes, series, panel, has_answers, has_times=is_plane or place + columns >= len(cells))
            drawn.append((axes, series, panel))
        for axes in grid[len(cells) :]:
            axes.set_visible(False)
        _share_times(drawn)
        if has_keys:
            _share_scales(drawn)
        notes = [f"the first {len(shown_keys)} of {len(keys)} keys"] if len(shown_keys) < len(keys) else []
        if len(shown) < across:
            notes.append(f"{len(shown)} of {across} numbers" + (" of each key" if has_keys else ""))
        entitle(figure, f"stream {root_of(found[0].first.stream)!r}: {_what(found, keys)}", list(found), notes)


def _panels_by_answer(found: Sequence[ReleaseSeries]) -> list[tuple[str, Panel]]:
    """Return the panels of one key, each with the name of its answer."""
    best = sorted(found, key=lambda series: not series.released)  # those without a value show least what they are
    first: dict[str, ReleaseSeries] = {}
    for series in best:
        first.setdefault(series.first.name or "", series)
    answers = dict.fromkeys(series.first.name or "" for series in found)
    return [(answer, panel) for answer in answers for panel in panels_of(first[answer])]


def _what(found: Sequence[ReleaseSeries], keys: Sequence[str]) -> str:
    answers = {series.first.name for series in found}
    several = [f"{len(keys)} keys"] if len(keys) > 1 else [f"key {keys[0]!r}"] if keys[0] else []
    one = next(iter(answers))
    named = [f"answer {one!r}"] if len(answers) == 1 and one is not None else []
    return ", ".join([*several, *named, per_window(found)])


def _columns(panels: int, is_keys: bool) -> int:
    """Return how many panels stand beside each other."""
    if not is_keys:
        return 1 if panels <= 4 else 2
    return min(MAX_COLUMNS, math.ceil(math.sqrt(panels)))


def _dress(axes: Axes, series: ReleaseSeries, panel: Panel, has_answers: bool, *, has_times: bool) -> None:
    """Write what a panel is about, and the times of those that have no panel below."""
    title = [*([series.key] if series.key else []), *([series.first.name or ""] if has_answers else [])]
    if has_answers:
        title[-1] += f" ({series.first.kind})"
    axes.set_title(": ".join(title), loc="left")
    if panel.over_time:
        time_axis(axes, 5)
        if not has_times:
            axes.tick_params(labelbottom=False)
            axes.xaxis.get_offset_text().set_visible(False)
        if panel.is_curve:
            lined(axes)
    if panel.label:
        axes.set_ylabel(panel.label)
    axes.tick_params(labelsize=8)


def _share_times(drawn: Sequence[tuple[Axes, ReleaseSeries, Panel]]) -> None:
    """Give all panels over time one span of time."""
    left = min(series.first.window_open_ms for _, series, _ in drawn) / DAY_MS
    right = max(series.releases[-1].window_close_ms for _, series, _ in drawn) / DAY_MS
    for axes, _, panel in drawn:
        if panel.over_time:
            axes.set_xlim(left, right)


def _share_scales(drawn: Sequence[tuple[Axes, ReleaseSeries, Panel]]) -> None:
    """Give panels about the same number of several keys one scale, unless one would be flat on it."""
    alike: dict[tuple[str, str], list[Axes]] = {}
    for axes, series, panel in drawn:
        if panel.is_curve and series.released:
            alike.setdefault((series.first.name or "", panel.label), []).append(axes)
    for found in alike.values():
        limits = [axes.get_ylim() for axes in found]
        low, high = min(bottom for bottom, _ in limits), max(top for _, top in limits)
        if all(_FACTOR * (top - bottom) >= high - low for bottom, top in limits):
            for axes in found:
                axes.set_ylim(low, high)
