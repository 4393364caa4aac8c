"""What one series looks like as panels of a picture of several: one for each number, or one for a whole answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .centers import draw_places, draw_places_over_time
from .curves import draw_feature, draw_quantiles, draw_total
from .drawing import axis_labels, draw_counts, draw_curve
from .matrices import draw_correlations, draw_entry, draw_matrices
from .planes import plane_of
from .tables import draw_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..reporting.series import ReleaseSeries


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: what it is about, how it is drawn, and its axes.

    Attributes
    ----------
    label : str
        Of its value axis; empty if the drawing names its axes itself.
    draw : callable
    over_time : bool
        Whether time lies across.
    is_curve : bool
        Whether values lie upward, so that panels about the same number can share a scale.
    """

    label: str
    draw: Callable[[Figure, Axes, ReleaseSeries], None]
    over_time: bool = True
    is_curve: bool = True


def panels_of(series: ReleaseSeries) -> list[Panel]:
    """Return the panels of one series, which are those of every other series of the same answer."""
    form, labels = series.shape.form, axis_labels(series)
    if series.shape.is_table:
        return [Panel("", _unless_empty(_table), is_curve=False)]
    if form == "fan":
        return [Panel(labels[0], lambda _, axes, one: draw_quantiles(axes, one))]
    if form == "places" and (plane := plane_of(series)) is not None:
        draw_plane = partial(draw_places, plane=plane, title="")
        return [Panel("", _unless_empty(draw_plane), over_time=False, is_curve=False)]
    if form == "places":
        return [Panel(label, partial(_places, k=k)) for k, label in enumerate(labels)]
    if form == "matrix" and len(labels) == 1:
        return [Panel(f"variance of {labels[0]}", lambda _, axes, one: draw_entry(axes, one, 0, 0))]
    if form == "matrix":
        draw = partial(draw_matrices, title="") if len(labels) == 2 else draw_correlations
        return [Panel("", _unless_empty(draw), over_time=False, is_curve=False)]
    if form == "boxes":  # its boxes differ from window to window
        return [Panel("", lambda _, axes, one: draw_counts(axes, one))]
    draw_number = _total if form == "steps" else _number
    return [Panel(label, partial(draw_number, k=k)) for k, label in enumerate(labels)]


def _unless_empty(draw: Callable[[Figure, Axes, ReleaseSeries], None]) -> Callable[[Figure, Axes, ReleaseSeries], None]:
    def draw_or_say(figure: Figure, axes: Axes, series: ReleaseSeries) -> None:
        if series.released:
            draw(figure, axes, series)
        else:
            nothing = [float("nan")] * len(series.releases)
            draw_curve(axes, series, nothing, nothing)

    return draw_or_say


def _table(figure: Figure, axes: Axes, series: ReleaseSeries) -> None:
    draw_table(figure, axes, series)


def _places(_figure: Figure, axes: Axes, series: ReleaseSeries, k: int) -> None:
    draw_places_over_time(axes, series, k)


def _total(_figure: Figure, axes: Axes, series: ReleaseSeries, k: int) -> None:
    draw_total(axes, series, k)


def _number(_figure: Figure, axes: Axes, series: ReleaseSeries, k: int) -> None:
    draw_feature(axes, series, k)
