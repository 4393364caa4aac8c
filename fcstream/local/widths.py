"""How far noise reaches: the intervals that an analyst eliminates by. Usefulness depends on them, privacy does not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMS = ("quantile", "paper", "subgaussian")


def reach(dimension: int, beta: float, form: str = "quantile") -> float:
    """lambda(d, beta): a standard normal vector of d coordinates is longer with probability at most beta.

    Parameters
    ----------
    dimension : int
    beta : float
        In (0, 1).
    form : str
        ``quantile``: exact, of the chi distribution. ``paper``: the printed bound. ``subgaussian``: a bound that also
        holds for noise on a coarse lattice, whatever the dimension.

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, Lemma 6.1 (``paper``); Hsu, Kakade, Zhang 2012 (``subgaussian``).
    """
    if not 0 < beta < 1:
        raise ConfigError(f"must be in (0, 1), got {beta}", "beta")
    if form not in FORMS:
        raise ConfigError(f"must be one of {list(FORMS)}, got {form!r}", "width")
    if form == "quantile":
        from scipy.special import chdtri

        return math.sqrt(float(chdtri(dimension, beta)))
    log = math.log(1 / beta)
    if form == "paper" and dimension <= 2:
        return math.sqrt(2 * (log if dimension == 2 else math.log(2 / beta)))
    return math.sqrt(dimension + 2 * math.sqrt(dimension * log) + 2 * log)


def split(rho_nano: NDArray[np.int64], rounds: int, how: str = "doubling") -> NDArray[np.int64]:
    """Parts (n, rounds) of each budget for the rounds of a query; they sum to it exactly.

    Parameters
    ----------
    rho_nano : int64 (n,)
    rounds : int
    how : str
        ``even``, or ``doubling``: every part about twice the one before. A budget of few units may have parts of 0:
        its device is not asked in those rounds.

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, section 7.
    """
    if not 1 <= rounds <= (30 if how == "doubling" else 10_000):
        raise ConfigError(
            f"must be in [1, 30] for doubling parts and in [1, 10000] for even ones, got {rounds}", "rounds"
        )
    budgets = np.asarray(rho_nano, np.int64)
    if len(budgets) and int(budgets.min()) < 0:
        raise ConfigError("must be at least 0", "rho_nano")
    if how == "even":
        whole, rest = np.divmod(budgets, rounds)
        # The larger parts come last, as in the doubling split.
        return whole[:, None] + (np.arange(rounds)[None, :] >= rounds - rest[:, None])
    if how != "doubling":
        raise ConfigError(f"must be 'even' or 'doubling', got {how!r}", "split")
    total = (1 << rounds) - 1
    whole, rest = np.divmod(budgets, total)
    so_far = np.zeros(len(budgets), np.int64)
    parts = np.empty((len(budgets), rounds), np.int64)
    for j in range(rounds):
        share = (1 << (j + 1)) - 1
        now = whole * share + rest * share // total
        parts[:, j] = now - so_far
        so_far = now
    return parts
