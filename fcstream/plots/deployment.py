"""Pictures of a report on a deployment, as SVG that is part of an HTML page: its colors are those of the page.

A page in a dark room is dark, and so are its pictures: each color is written as a variable of the page's style sheet
(``--ink``, ``--soft``, ``--line``, ``--panel``, ``--paper``, ``--accent``, ``--warm``). Letters stay letters.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..accounting.losses import DPLoss
from ..accounting.strength import STRONG
from ..reporting.budget import Report, amount
from .base import blank_figure
from .budget import spent_over_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _SOFT, _LINE, _PANEL, _PAPER = "#1b1f24", "#57606a", "#d0d7de", "#f6f8fa", "#fdfdfe"
_ACCENT, _WARM = "#2b5d94", "#a4501e"
_VARIABLES = {
    _INK: "--ink",
    _SOFT: "--soft",
    _LINE: "--line",
    _PANEL: "--panel",
    _PAPER: "--paper",
    _ACCENT: "--accent",
    _WARM: "--warm",
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "text.color": _INK,
    "axes.edgecolor": _SOFT,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
}
_WIDTH = 6.0  # inches: letters stay readable where the page is as narrow as a phone
_STRONG = STRONG.most
_MAX = 1e6  # of an epsilon in a picture


class _Canvas:
    """A figure that is turned into text."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.svg = ""


def loss_picture(values: Sequence[tuple[str, float]], name: str, alt: str) -> str:
    """Draw epsilons as bars on a scale of powers of ten.

    Parameters
    ----------
    values : sequence of (str, float)
        What is lost, and its epsilon; infinity is drawn to the border.
    name : str
        Prefix of the ids in the picture, unique in its page.
    alt : str

    Returns
    -------
    str
        An ``svg`` element.
    """
    with _svg(0.9 + 0.42 * len(values), name, alt) as canvas:
        axes = canvas.figure.subplots()
        finite = [value for _, value in values if 0 < value < _MAX]
        low = 10 ** math.floor(math.log10(min([*finite, 1.0]) / 2))
        high = 10 ** math.ceil(math.log10(max([*finite, 10.0]) * 2.5))
        axes.axvspan(low, _STRONG, color=_PANEL, linewidth=0)
        axes.axvline(_STRONG, color=_LINE, linewidth=1, zorder=0.5)
        for row, (label, value) in enumerate(values):
            is_cap = label.startswith("the ")
            shown = min(max(value, low), high)
            axes.barh(row, shown - low, left=low, height=0.55, color=_WARM if is_cap else _ACCENT)
            text = "no bound" if math.isinf(value) else f"{value:.3g}"
            is_long = math.log10(shown / low) > 0.75 * math.log10(high / low)
            place, side = (shown / 1.08, "right") if is_long else (shown * 1.08, "left")
            back = None if is_long else {"facecolor": _PAPER, "edgecolor": "none", "pad": 1}
            axes.text(place, row, text, va="center", ha=side, color=_PAPER if is_long else _INK, bbox=back)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_yticks(range(len(values)), [label for label, _ in values])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(_plain_powers())
        axes.minorticks_off()
        axes.set_xlabel("epsilon: smaller is more private")
    return canvas.svg


def belief_picture(values: tuple[float, float], name: str, alt: str) -> str:
    """Draw how sure somebody can become, at most, against how sure they were; see `loss_picture`.

    Parameters
    ----------
    values : (float, float)
        Epsilon and delta.
    """
    epsilon, _ = values
    with _svg(3.1, name, alt) as canvas:
        axes = canvas.figure.subplots()
        before = [step / 200 for step in range(1, 200)]
        factor = math.exp(-min(epsilon, 700.0))
        most = [1 / (1 + (1 - p) / p * factor) for p in before]
        least = [1 - 1 / (1 + p / (1 - p) * factor) for p in before]
        percents = [100 * p for p in before]
        axes.fill_between(percents, [100 * p for p in least], [100 * p for p in most], color=_PANEL, linewidth=0)
        axes.plot(percents, [100 * p for p in most], color=_WARM, linewidth=2, label="at most")
        axes.plot(percents, [100 * p for p in least], color=_ACCENT, linewidth=2, label="at least")
        axes.plot([0, 100], [0, 100], color=_SOFT, linewidth=1, linestyle=(0, (4, 3)), label="nothing learned")
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
        axes.set_xlabel("sure before, in %")
        axes.set_ylabel("sure afterwards, in %")
        axes.grid(color=_LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        canvas.figure.legend(loc="outside upper left", ncols=3, frameon=False)
    return canvas.svg


def spending_picture(report: Report, name: str, alt: str) -> str:
    """Draw what was spent over time, and the guarantee; see `loss_picture`."""
    with _svg(2.9, name, alt) as canvas:
        axes = canvas.figure.subplots()
        spent_over_time(axes, report.unit, report.panes, _ACCENT, _SOFT, _LINE)
        axes.set_ylabel("epsilon" if isinstance(report.terms.capacity, DPLoss) else "rho")
        _mark_cap(axes, f"{report.unit.cap_name}: {amount(report.unit.capacity):g}", amount(report.unit.capacity))
    return canvas.svg


def _mark_cap(axes: Axes, text: str, cap: float) -> None:
    axes.annotate(
        text,
        (0.01, cap),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color=_INK,
    )


def _plain_powers() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


@contextmanager
def _svg(height: float, name: str, alt: str) -> Iterator[_Canvas]:
    """A canvas whose figure becomes an ``svg`` element at the end of the block."""
    with blank_figure(_WIDTH, height, "--format", _STYLE) as figure:
        canvas = _Canvas(figure)
        yield canvas
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        canvas.svg = _element(file.getvalue(), name, alt)


def _element(text: str, name: str, alt: str) -> str:
    """Turn an SVG file into an element of a page: named, with ids of its own, in the colors of the page."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    opening, _, rest = body.partition(">")
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    rest = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', rest)
    rest = re.sub(r'href="#([^"]*)"', rf'href="#{name}-\1"', rest)
    rest = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", rest)
    for color, variable in _VARIABLES.items():
        rest = rest.replace(color, f"var({variable})")
    rest = rest.replace("'DejaVu Sans'", "system-ui").replace("xlink:href", "href")
    rest = re.sub(r"<style type=\"text/css\">.*?</style>", "", rest, flags=re.DOTALL)
    rest = re.sub(r"<defs>\s*</defs>\s*", "", rest)
    title = f'<title id="{name}-title">{html.escape(alt)}</title>'
    return f'<svg {box[0]} role="img" aria-labelledby="{name}-title">{title}{rest.rstrip()}'
