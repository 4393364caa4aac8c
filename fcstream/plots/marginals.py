"""A picture of a score: synthetic marginals against real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import picture

if TYPE_CHECKING:
    from ..scoring import Score

MOST_CELLS = 20_000
"""Of all contingency tables that are drawn."""
_SHOWN, _EVEN = "#3b6ea5", "#444444"


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
        axes.plot([0, most], [0, most], color=_EVEN, linewidth=1, linestyle=(0, (5, 3)))
        shown = score.pairs[:, :: -(-max(1, score.pairs.shape[1]) // MOST_CELLS)]
        axes.plot(*shown, linestyle="none", marker=".", markersize=4, color=_SHOWN, alpha=0.6)
        axes.set_xlim(0, most)
        axes.set_ylim(0, most)
        axes.set_aspect("equal")
        axes.set_xlabel("part of the real rows")
        axes.set_ylabel("part of the synthetic rows")
        axes.set_title(f"two-way marginals, off by {score.marginal_errors[1]:.4f}", loc="left")
