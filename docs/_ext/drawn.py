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

from fcstream import Engine, Release
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.plots import plot_releases
from fcstream.reporting.series import read_series, read_truth

logging.getLogger("fcstream").setLevel(logging.ERROR)  # a build that goes well is silent


def engine(config: dict[str, Any], seed: int = 1) -> Engine:
    """An engine whose noise is the same at each build, so that pictures are; it holds no data but simulated ones."""
    return Engine(config | {"ledger": {"url": "memory:"}}, noise=Noise(SeededEntropy(seed)), on_rejection=len)


def run(config: dict[str, Any], times: Any, points: Any, users: Any = None, seed: int = 1) -> list[Release]:
    """The releases of records with clock ``eof``."""
    with engine(config, seed) as one:
        one.push(np.asarray(times), np.asarray(points), users)
        return one.close()


def releases(found: Iterable[Release], truth: Iterable[dict[str, Any]] = (), width: float = 8.6) -> None:
    """Draws what a reader of the page gets from ``fcstream plot``, `width` inches wide."""
    shown = [replace(release, private=True) for release in found]  # the reader's noise has no seed
    series = read_series([release.to_bytes() for release in shown])
    if truth:
        series = read_truth([json.dumps(line).encode() for line in truth], series)
    as_pyplot(lambda path: plot_releases(series, path), width)


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
