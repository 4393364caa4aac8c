"""Draws a rehearsal: what errors consist of, and how they change with rho, the windows' length and the radius."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..reporting.rehearsal import NOTICE, SYNTHETIC, AnswerErrors, Curve, Rehearsal
from .base import picture
from .drawing import COUNT, REFUSED, TRUTH, VALUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ANSWERS = 6
"""Largest number of answers that are drawn, a row each; the title says if there are more."""
MAX_BARS = 8
"""Largest number of numbers of an answer that are drawn: those with the largest errors."""
MIN = 0.1
"""Smaller parts of the error are drawn there."""
_TICKS = (MIN, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
_AXIS_NAMES = {"rho": "rho", "length": "length of a window, in seconds", "radius": "radius"}
_NOISE, _BIAS, _MORE = "noise", "bias", "more noise planned"


def plot_rehearsal(found: Rehearsal, path: str) -> None:
    """Draw a rehearsal; not private, and the picture says so.

    Parameters
    ----------
    found : Rehearsal
    path : str
        Ends in ``.svg`` or ``.png``.

    Raises
    ------
    ConfigError, FcstreamError
        See `picture`.
    """
    answers, columns = found.answers[:MAX_ANSWERS], 1 + len(found.curves)
    with picture(path, max(7.0, 3.7 * columns), 1.7 + 2.6 * len(answers), "--output") as figure:
        grid = figure.subplots(len(answers), columns, squeeze=False)
        for place, answer in enumerate(answers):
            _draw_shares(grid[place][0], answer)
            for axes, curve in zip(grid[place][1:], found.curves, strict=True):
                _draw_curve(axes, curve, place)
                if place == len(answers) - 1:
                    axes.set_xlabel(_AXIS_NAMES[curve.axis])
        grid[-1][0].set_xlabel("part of the mean squared error")
        notes = [f"{found.windows} windows, {len(found.seeds)} seeds each, on {found.data}"]
        if len(answers) < len(found.answers):
            notes.append(f"{len(answers)} of {len(found.answers)} answers")
        if found.made_up:
            notes.append(SYNTHETIC.partition(":")[0])
        title = f"rehearsal of stream {found.stream!r}\n{'; '.join(notes)}\n{NOTICE.partition(':')[0].upper()}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        named: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                named.setdefault(label, handle)
        figure.legend(named.values(), named.keys(), loc="outside lower left", ncols=5, frameon=False, fontsize=8.5)
        across: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 20, "fontsize": 30}
        figure.text(0.5, 0.5, "NOT FOR PUBLICATION", color=REFUSED, alpha=0.13, **across)


def _draw_shares(axes: Axes, answer: AnswerErrors) -> None:
    """Draw how much of the squared error of each number is noise, how much bias, and what was predicted."""
    axes.set_title(f"{answer.name}: {answer.share:.0%} released", loc="left")
    shown = sorted(answer.numbers, key=lambda each: -each.error)[:MAX_BARS]
    shown = [each for each in answer.numbers if each in shown]
    if not shown:
        axes.set_axis_off()
        text = answer.note.partition(",")[0] or "nothing was released"
        axes.text(0.0, 0.5, text, transform=axes.transAxes, va="center", color=REFUSED)
        return
    for row, each in enumerate(shown):
        whole = each.noise**2 + each.bias**2 or 1.0
        noise = each.noise**2 / whole
        axes.barh(row, noise, 0.7, color=VALUE, label=_NOISE)
        axes.barh(row, each.bias**2 / whole, 0.7, left=noise, color=TRUTH, label=_BIAS)
        if each.planned is not None:
            at = each.planned**2 / whole
            style: dict[str, Any] = {"color": "black", "markersize": 5, "linestyle": "none", "markeredgecolor": "white"}
            style |= {"marker": "D", "label": "noise as planned"} if at <= 1.04 else {"marker": ">", "label": _MORE}
            axes.plot([min(at, 1.04)], [row], clip_on=False, **style)
    axes.set_yticks(range(len(shown)), [f"{each.name}\nerror {each.error:.3g}" for each in shown], fontsize=8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, 1.05)


def _draw_curve(axes: Axes, curve: Curve, place: int) -> None:
    """Draw error, noise, bias and refusals along a setting."""
    found = curve.relative(place)
    ran = [point for point in curve.points if point.answers]
    at = {id(point): point.setting[min(place, len(point.setting) - 1)] for point in curve.points}
    if not ran:
        axes.set_axis_off()
        return
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title("parts of the error as configured" if found else "nothing was released", loc="left", fontsize=8.5)
    x = [at[id(point)] for point, *_ in found]
    for values, color, label in (
        ([noise for _, _, noise, _ in found], VALUE, _NOISE),
        ([bias for _, _, _, bias in found], TRUTH, _BIAS),
        ([error for _, error, _, _ in found], "black", "error"),
    ):
        shown = [max(value, MIN) for value in values]
        axes.plot(x, shown, color=color, marker="o", markersize=3.5, linewidth=1.3, label=label, clip_on=False)
    highest = max([1.0, *(error for _, error, _, _ in found)])
    axes.set_ylim(MIN, 1.3 * highest)
    ticks = [tick for tick in _TICKS if tick <= 1.3 * highest]
    axes.set_yticks(ticks, [f"{tick:g} or less" if tick == MIN else f"{tick:g}" for tick in ticks], fontsize=7.5)
    here = [at[id(point)] for point in curve.points]
    if all(value > 0 for value in here):
        axes.set_xlim(min(here) / 1.2, max(here) * 1.2)
        axes.set_xticks(here, [f"{value:g}" for value in here], fontsize=7.5)
        axes.minorticks_off()
    second = axes.twinx()
    second.set_ylim(0, 1)
    second.set_yticks([0, 1], ["0%", "100%"], fontsize=7, color=COUNT)
    second.plot(
        [at[id(point)] for point in ran], [point.answers[place].share for point in ran],
        color=COUNT, linestyle=(0, (4, 2)), linewidth=1.1, marker="s", markersize=3, label="released", clip_on=False,
    )  # fmt: skip
    second.spines["top"].set_visible(False)
