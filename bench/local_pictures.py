"""Pictures of `bench/local.py`: error above, saving below, a column for each width, bandwidth or k."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcstream.plots.base import picture

COLORS = {"BM0": "#7f7f7f", "BM1": "#111111"}
COLORS |= {"PM0 c4": "#f2a33a", "PM0 log-c10": "#c8501e", "PM1 c4": "#6fb7e9", "PM1 c64": "#3a9d5d"}
COLORS |= {"PM1 log-c10": "#1f4fa3"}


class Row(NamedTuple):
    """One point of one line."""

    figure: str
    panel: str
    axis: str
    x: float
    way: str
    errors: list[float]
    savings: list[float]
    kind: str  # of error
    is_gain: bool = False  # write how much lower the error is


def draw(rows: list[Row], folder: Path) -> None:
    """One PNG for each figure: means, and bars from quartile to quartile."""
    folder.mkdir(parents=True, exist_ok=True)
    for title in dict.fromkeys(row.figure for row in rows):
        mine = [row for row in rows if row.figure == title]
        panels = list(dict.fromkeys(row.panel for row in mine))
        path = folder / f"{re.sub('[^a-z0-9-]+', '_', title.lower())}.png"
        with picture(str(path), 3.2 * len(panels) + 1.6, 5.6, "out") as figure:
            axes = figure.subplots(2, len(panels), sharex="col", sharey="row", squeeze=False)
            for column, panel in enumerate(panels):
                _fill(axes[0, column], axes[1, column], [row for row in mine if row.panel == panel])
                axes[0, column].set_title(panel)
                axes[1, column].set_xlabel(mine[0].axis)
            axes[0, 0].set_ylabel(f"{mine[0].kind} error")
            axes[1, 0].set_ylabel("saving")
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.suptitle(title)
            figure.legend(handles, labels, loc="outside right center", frameon=False, title="mean, quartiles")


def _fill(above: Any, below: Any, rows: list[Row]) -> None:
    means = {(row.way, row.x): np.mean(row.errors) for row in rows}
    ways, ticks = list(dict.fromkeys(row.way for row in rows)), sorted({row.x for row in rows})
    gap = min((b / a for a, b in pairwise(ticks)), default=10.0) ** 0.025
    for place, way in enumerate(ways):
        line = sorted((row for row in rows if row.way == way), key=lambda row: row.x)
        x = [row.x * gap ** (place - (len(ways) - 1) / 2) for row in line]  # beside each other, not on top
        is_base = way.startswith("BM")
        for axis, values in ((above, [row.errors for row in line]), (below, [row.savings for row in line])):
            if axis is below and is_base:
                continue  # nothing is saved
            style = {"color": COLORS[way], "linestyle": "--" if is_base else "-", "linewidth": 1.6}
            axis.plot(x, [np.mean(v) for v in values], label=way, marker="o", markersize=4, **style)
            axis.vlines(
                x, *np.array([np.percentile(v, [25, 75]) for v in values]).T, COLORS[way], linewidth=1, alpha=0.6
            )
        if line[0].is_gain and not is_base:
            rank = sum(not other.startswith("BM") for other in ways[:place])
            for row in line:
                gain = means[way, row.x] / means["B" + way[1:3], row.x] - 1
                above.text(
                    row.x,
                    0.03 + 0.07 * rank,
                    f"{100 * gain:+.0f}%",
                    transform=above.get_xaxis_transform(),
                    ha="center",
                    color=COLORS[way],
                )
    if 0 < 8 * min(means.values()) < max(means.values()):
        above.set_yscale("log")
    else:
        above.set_ylim(0, 1.15 * max(np.percentile(row.errors, 75) for row in rows))
    below.set_ylim(0, 1)
    for axis in (above, below):
        axis.set_xscale("log")
        axis.margins(x=0.1)
        axis.set_xticks(ticks, labels=[f"{x:g}" for x in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
