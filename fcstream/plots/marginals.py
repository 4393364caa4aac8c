"""Draws a score of a synthetic table: its marginals against the real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..reporting.scoring import Score
from .base import picture

MAX_CELLS = 20_000
"""Of all contingency tables that are drawn."""
_TICKS = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
_SHOWN, _EVEN = "#3b6ea5", "#444444"


def _root(x: Any) -> Any:
    return np.sign(x) * np.sqrt(np.abs(x))


def _square(x: Any) -> Any:
    return np.sign(x) * np.square(x)


def plot_marginals(score: Score, path: str) -> None:
    """Draw synthetic two-way marginals against real ones; not private.

    Parameters
    ----------
    score : Score
    path : str
        Ends in ``.svg`` or ``.png``.

    Raises
    ------
    ConfigError, FcstreamError
        See `picture`.
    """
    with picture(path, 5, 5, "--plot") as figure:
        axes = figure.subplots()
        most = 1.05 * float(score.pairs.max(initial=0.01))
        spread: Any = {"functions": (_root, _square)}  # most cells are small: a square root separates them
        axes.set_xscale("function", **spread)
        axes.set_yscale("function", **spread)
        ticks = [tick for tick in _TICKS if tick <= most]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.plot([0, most], [0, most], color=_EVEN, linewidth=1, linestyle=(0, (5, 3)))
        shown = score.pairs[:, :: -(-max(1, score.pairs.shape[1]) // MAX_CELLS)]
        axes.plot(*shown, linestyle="none", marker=".", markersize=6, markeredgewidth=0, color=_SHOWN, alpha=0.6)
        least = _square(-0.03 * _root(most))  # so that empty cells are not hidden by the axes
        axes.set_xlim(least, most)
        axes.set_ylim(least, most)
        axes.set_aspect("equal")
        axes.set_xlabel("part of the real rows (square-root scale)")
        axes.set_ylabel("part of the synthetic rows")
        axes.set_title(
            f"two-way marginals, root-mean-square error {score.marginal_errors[1]:.4f}\n"
            "not private: for the owner of the data",
            loc="left",
        )
