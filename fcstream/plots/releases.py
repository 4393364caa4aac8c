"""The picture of one series of releases, with its uncertainty, refusals and, if given, the true values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ConfigError, FcstreamError
from ..releases.shape import Form
from .base import picture
from .centers import draw_path, panels_beside_plane, plot_places
from .curves import draw_feature, plot_quantiles, plot_totals
from .drawing import MAX_FEATURES, axis_labels, draw_counts, draw_curve, finish
from .matrices import plot_matrices
from .planes import plane_of
from .tables import plot_tables
from .trees import plot_boxes

if TYPE_CHECKING:
    from ..reporting.series import ReleaseSeries


def plot_releases(series: ReleaseSeries, path: str) -> None:
    """Draw a series of releases; the picture depends on the form of their shape.

    Means, sums, counts and variances get a line per feature with a band of two standard deviations of its noise; for
    two features there is also the path of the mean with the ellipses of its noise. Totals rise through their epoch,
    above the windows that they are made of. Quantiles get a fan. Histograms, marginals, frequent texts and made-up rows
    (the share of each level, and how columns depend) get a heat map, and bars of the newest window with whiskers of its
    noise; trees get one of the latest windows. Centers, mixtures and points are drawn at their coordinates, mixtures
    with the width of their components; features named as longitude and latitude make a map. Covariances get lines of
    the variances, and ellipses of two features or correlations of more. Refused windows are shaded, with a mark for
    each reason.

    Parameters
    ----------
    series : ReleaseSeries
    path : str
        File to write, which ends in ``.svg`` or ``.png``.

    Raises
    ------
    ConfigError
        If the file has another suffix, matplotlib is not installed, or the releases are not as fcstream writes them.
    FcstreamError
        If the file cannot be written.
    """
    draw = plot_tables if series.shape.is_table else _PICTURES[series.shape.form]
    drawn_or_refused(lambda: (draw if series.released else _lines)(series, path))


def drawn_or_refused(draw: Callable[[], None]) -> None:
    """Call what draws releases; `check_drawable` accepts some that cannot be drawn, which fcstream has not written.

    Raises
    ------
    ConfigError, FcstreamError
    """
    try:
        draw()
    except FcstreamError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise ConfigError("must be releases of fcstream, unchanged: these cannot be drawn", "RELEASES") from None


def _lines(series: ReleaseSeries, path: str) -> None:
    """Draw a panel per feature, a panel for the number of records, and the path of a mean of two features."""
    labels, shape = axis_labels(series), series.shape
    shown = labels[:MAX_FEATURES]
    plane = plane_of(series) if shape.form == "lines" and shape.subject is None and series.released else None
    counts = [release.count for release in series.releases]
    has_counts = shape.subject != "records" and any(count is not None for count in counts)
    rows = len(shown) + has_counts
    with picture(path, 11 if plane is None else 14, 1.1 + 2.1 * rows, "--out") as figure:
        if plane is None:
            panels = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
        else:
            panels, axes = panels_beside_plane(figure, rows)
            draw_path(figure, axes, series, labels, plane)
        for k, (axes, label) in enumerate(zip(panels, shown, strict=False)):
            if series.released:
                draw_feature(axes, series, k)
            else:
                nothing = [math.nan] * len(series.releases)
                draw_curve(axes, series, nothing, nothing)
            axes.set_ylabel(label)
        if has_counts:
            draw_counts(panels[-1], series)
        finish(figure, panels, series, len(shown), len(labels))


_PICTURES: dict[Form, Callable[[ReleaseSeries, str], None]] = {
    "lines": _lines,
    "steps": plot_totals,
    "bars": plot_tables,
    "fan": plot_quantiles,
    "matrix": plot_matrices,
    "places": plot_places,
    "boxes": plot_boxes,
    "rows": plot_tables,
}
