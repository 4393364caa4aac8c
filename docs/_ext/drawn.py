"""For docs/pictures: what `fcstream plot` draws, as the figure of a picture."""

import json
import logging
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba, to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fcstream import Engine, KeyedEngine, Release
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.plots import plot_all
from fcstream.plots.drawing import REFUSED, VALUE
from fcstream.reporting.series import read_all, read_truth

logging.getLogger("fcstream").setLevel(logging.ERROR)  # a build that goes well is silent


def engine(config: dict[str, Any], seed: int = 1) -> Engine:
    """An engine whose noise is the same at each build, so that pictures are; it holds no data but simulated ones."""
    return Engine(config | {"ledger": {"url": "memory:"}}, noise=Noise(SeededEntropy(seed)), on_rejection=len)


def run(config: dict[str, Any], times: Any, points: Any, users: Any = None, seed: int = 1) -> list[Release]:
    """The releases of records with clock ``eof``."""
    with engine(config, seed) as one:
        one.push(np.asarray(times), np.asarray(points), users)
        return one.close()


def run_keys(config: dict[str, Any], times: Any, points: Any, keys: Any, seed: int = 1) -> list[Release]:
    """The releases of records of several keys, likewise."""
    whole = config | {"ledger": {"url": "memory:"}}
    with KeyedEngine(whole, noise=Noise(SeededEntropy(seed)), on_rejection=len) as one:
        one.push(np.asarray(times), np.asarray(points), keys=keys)
        return one.close()


def releases(found: Iterable[Release], truth: Iterable[dict[str, Any]] = (), width: float = 8.6) -> None:
    """Draws what a reader of the page gets from ``fcstream plot``, `width` inches wide."""
    shown = [replace(release, private=True) for release in found]  # the reader's noise has no seed
    series = read_all([release.to_bytes() for release in shown])
    if truth:
        series = [read_truth([json.dumps(line).encode() for line in truth], series[0])]
    as_pyplot(lambda path: plot_all(series, path), width)


def as_pyplot(draw: Callable[[str], None], width: float) -> None:
    """Draws on a figure of pyplot what makes a figure of its own and saves it."""
    own, folders = mock.patch("matplotlib.figure.Figure", plt.figure), tempfile.TemporaryDirectory
    with plt.rc_context({"axes.grid": False}), own, folders() as folder:
        draw(str(Path(folder) / "picture.svg"))
    figure = plt.gcf()
    height = figure.get_figheight() * max(width / figure.get_figwidth(), 0.75)
    figure.set_size_inches(width, height)
    for axes in figure.axes:
        for patch in axes.patches:  # what shades refused windows is too bright for dark pages
            patch.set_alpha(patch.get_alpha() or 0.25)
        for line in (*axes.get_xgridlines(), *axes.get_ygridlines()):
            line.set_color(plt.rcParams["grid.color"])
    page = plt.rcParams["axes.prop_cycle"].by_key()["color"][0]
    _repaint(figure, {VALUE: page, REFUSED: "#808080"})


def _repaint(figure: Any, changes: dict[str, str]) -> None:
    """Exchanges colors that are too dark on dark pages."""
    wanted = {key.lower(): color for key, color in changes.items()}
    for artist in figure.findobj():
        for part in ("color",) if isinstance(artist, Line2D) else ("facecolor", "edgecolor"):
            get, set_ = getattr(artist, f"get_{part}", None), getattr(artist, f"set_{part}", None)
            if not isinstance(artist, (Line2D, Collection, Patch)) or get is None or set_ is None:
                continue
            found = to_rgba_array(get())
            if len(found) == 1 and to_hex(found[0]) in wanted:
                set_(to_rgba(wanted[to_hex(found[0])], found[0, 3]))
