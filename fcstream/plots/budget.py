"""Pictures of a report: what was spent over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..accounting.losses import DPLoss
from ..ledgers.base import TOTAL_BLOCK
from ..ledgers.history import SpendingPoint, moment
from ..reporting.budget import FilterReport, Report, amount, max_of_losses
from .base import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 1500
"""Most points of a curve in a picture."""
_DAY_MS = 86_400_000
_MINUTE_MS = 60_000
_SPENT, _BOUND, _CAP = "#3b6ea5", "#c2703d", "#444444"
_WHOSE = {
    "event": "each pane",
    "stream": "the stream",
    "user": "a user present in every window",
    "device": "the most charged device",
    TOTAL_BLOCK: "all windows together",
}
_DASHES = (0, (5, 3))


def plot(report: Report, path: str) -> None:
    """Draw what was spent over time, the guarantee and the realized loss bound; needs the extra ``plot``.

    Parameters
    ----------
    report : Report
    path : str
        Ends in ``.svg`` or ``.png``.

    Raises
    ------
    ConfigError
        Another suffix, or matplotlib is not installed.
    FcstreamError
        The file cannot be written.
    """
    readings = [reading for reading in (report.unit, report.total) if reading is not None]
    with picture(path, 11, 0.6 + 3.3 * len(readings), "plot") as figure:
        figure.suptitle(f"stream {report.terms.stream!r}, unit {report.terms.unit!r}", fontweight="bold")
        grid = figure.subplots(len(readings), 2, squeeze=False)
        for (left, right), reading in zip(grid, readings, strict=True):
            _draw(left, right, reading, report.panes)


def _draw(left: Axes, right: Axes, reading: FilterReport, panes: Sequence[SpendingPoint]) -> None:
    """Draw one privacy filter: rho on the left, epsilon on the right."""
    is_panes = reading.block == "event"
    edges, spent = _stairs(panes, gaps=True) if is_panes else _stairs(reading.curve, gaps=False)
    whose = _WHOSE[reading.block]
    _panel(left, edges, [amount(loss) for loss in spent], amount(reading.capacity), is_panes, _SPENT)
    is_pure = isinstance(reading.capacity, DPLoss)
    name = "epsilon" if is_pure else "rho"
    left.set_title(f"{name} spent by {whose}", loc="left")
    _legend(left, _SPENT, "spent", f"{reading.cap_name}: {name} {amount(reading.capacity):.6g}")
    bounds = [reading.realized_loss_bound(loss) for loss in spent]
    cap = reading.epsilon(reading.capacity)
    _panel(right, edges, bounds, cap, is_panes, _BOUND)
    right.set_title(f"epsilon of {whose}" + (" at distance 1" if reading.block == "device" else ""), loc="left")
    text = f"{cap:.3g} at delta {reading.delta:g}" if math.isfinite(cap) else "unbounded"
    chance = "never" if is_pure else f"ever exceeded with probability at most {reading.failure:g}"
    bound = f"realized loss bound: {chance}{' exceeded' if is_pure else ''}"
    _legend(right, _BOUND, bound, f"{reading.cap_name}: epsilon {text}")


def spent_over_time(
    axes: Axes, reading: FilterReport, panes: Sequence[SpendingPoint], color: str, cap_color: str, line_color: str
) -> None:
    """Draw what one privacy filter has spent over time, and its cap, in colors of one's own."""
    is_panes = reading.block == "event"
    edges, spent = _stairs(panes, gaps=True) if is_panes else _stairs(reading.curve, gaps=False)
    values = [amount(loss) for loss in spent]
    _panel(axes, edges, values, amount(reading.capacity), is_panes, color, cap_color, line_color)


def _stairs(points: Sequence[SpendingPoint], *, gaps: bool) -> tuple[list[float], list[Any]]:
    """Compute steps and their edges in days since 1970, one edge more than steps; a value lasts until the next point.

    With `gaps` a value lasts for a pane's width only. If there are many points, a step shows the largest of its points.
    """
    points = [point for point in points if moment(point.time_ms) is not None]
    if not points:
        return [], []
    times = [point.time_ms for point in points]
    width = max(1, min((later - earlier for earlier, later in pairwise(times)), default=_MINUTE_MS))
    stride, nothing = -(-len(points) // MAX_POINTS), points[0].spent * 0
    edges, steps = [times[0] - width], [nothing]
    for k in range(0, len(points), stride):
        group = points[k : k + stride]
        edges.append(group[0].time_ms)
        steps.append(max_of_losses((point.spent for point in group), nothing))
        after = times[k + stride] if k + stride < len(times) else None
        if gaps and after is not None and after > times[min(k + stride, len(times)) - 1] + width:
            edges.append(group[-1].time_ms + width)
            steps.append(nothing)
    edges.append(times[-1] + width)
    return [edge / _DAY_MS for edge in edges], steps


def _panel(
    axes: Axes,
    edges: list[float],
    values: list[float],
    cap: float,
    filled: bool,
    color: str,
    cap_color: str = _CAP,
    line_color: str = "#e2e2e2",
) -> None:
    """Draw a curve and its cap, with room above for the legend."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    shown = [value if math.isfinite(value) else math.nan for value in values]
    if shown:
        axes.stairs(shown, edges, baseline=None, color=color, linewidth=1.6)
        if filled:
            axes.stairs(shown, edges, fill=True, color=color, alpha=0.2, linewidth=0)
        locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
        axes.set_xlabel("time (UTC)")
    else:
        axes.set_xticks([])
        axes.text(0.5, 0.4, "nothing was charged yet", transform=axes.transAxes, ha="center", color=cap_color)
    if math.isfinite(cap):
        axes.axhline(cap, color=cap_color, linewidth=1.3, linestyle=_DASHES)
    highest = max((value for value in (*shown, cap) if math.isfinite(value)), default=0.0)
    axes.set_ylim(0, 1.4 * highest or 1.0)
    axes.margins(x=0.01)
    axes.grid(axis="y", color=line_color, linewidth=0.6)
    axes.set_axisbelow(True)


def _legend(axes: Axes, color: str, curve: str, cap: str) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=_CAP, linewidth=1.3, linestyle=_DASHES),
        Line2D([], [], color=color, linewidth=1.6),
    ]
    options: dict[str, Any] = {"loc": "upper left", "borderaxespad": 0.3, "handlelength": 2.6}
    axes.legend(handles, [cap, curve], framealpha=1, edgecolor="none", fancybox=False, **options)
