"""Confidence intervals, by which devices are eliminated. Accuracy depends on them, privacy does not."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError

FORMS = ("quantile", "paper", "subgaussian")
SPLITS = {"even": (1, 10_000), "doubling": (2, 30), "steep": (8, 10)}
"""By which factor the parts of a budget grow, and how many rounds are allowed."""


def confidence_radius(dimension: int, beta: float, form: str = "quantile") -> float:
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
    Specification 11.5; proof 10.6; erratum 3.7; Liang and Yi 2025, Lemma 6.1 (``paper``); Hsu, Kakade, Zhang 2012
    (``subgaussian``).
    """
    if not 0 < beta < 1:
        raise ConfigError("must be in (0, 1)", "beta", got=beta)
    if form not in FORMS:
        raise ConfigError(f"must be one of {list(FORMS)}", "width", got=form)
    if form == "quantile":
        from scipy.special import chdtri

        return math.sqrt(float(chdtri(dimension, beta)))
    log = math.log(1 / beta)
    if form == "paper" and dimension <= 2:
        return math.sqrt(2 * (log if dimension == 2 else math.log(2 / beta)))
    return math.sqrt(dimension + 2 * math.sqrt(dimension * log) + 2 * log)


@functools.cache
def pure_confidence_radius(dimension: int, beta: float) -> tuple[float, float]:
    """Factors (a, s) so that averaged noise of pure geo-privacy is longer than a A + s S with probability at most beta.

    Replies of epsilon_1, epsilon_2, ... are averaged with weights w_j in proportion to epsilon_j**2; the noise of each
    has E exp(t |Z_j|) <= (1 - t / epsilon_j)**-dimension, or for dimension 0, a number with noise of both signs,
    E exp(t Z_j) <= 1 / (1 - (t / epsilon_j)**2). A is the sum of w_j / epsilon_j, S the root of the sum of its squares.

    Source
    ------
    Specification 11.5; ours: Chernoff's bound. With x_j = w_j / epsilon_j, -ln(1 - t**2 x**2) and -ln(1 - t x) - t x
    are convex in x**2 and 0 at 0, so for a given S a single reply is the worst case. Both hold on the lattice as they
    do on the reals: the law of the Euclidean length by Poisson's sum, sum_z exp(-e |z|) e**d increasing in e;
    discrete Laplace as (cosh a - 1) / (cosh a - cosh t) <= a**2 / (a**2 - t**2).
    """
    if not 0 < beta < 1:
        raise ConfigError("must be in (0, 1)", "beta", got=beta)
    t = (np.arange(4096) + 0.5) / 4096
    if dimension == 0:
        return 0.0, float(((math.log(2 / beta) - np.log1p(-t * t)) / t).min())
    return float(dimension), float(((math.log(1 / beta) - dimension * (np.log1p(-t) + t)) / t).min())


def split_budget(rho_nano: NDArray[np.int64], rounds: int, how: str = "doubling") -> NDArray[np.int64]:
    """Parts (n, rounds) of each budget for the rounds of a query; they sum to it exactly.

    Parameters
    ----------
    rho_nano : int64 (n,)
    rounds : int
    how : str
        ``even``; ``doubling``: every part about twice the one before; ``steep``: about eight times. A budget of few
        units may have parts of 0: its device is not asked in those rounds.

    Source
    ------
    Specification 11.5; proof 10.6; Liang and Yi 2025, section 7; ``steep`` is ours, for pure geo-privacy, where rounds
    together are worth only the root of the sum of their squares.
    """
    if how not in SPLITS:
        raise ConfigError(f"must be one of {list(SPLITS)}", "split", got=how)
    if not 1 <= rounds <= SPLITS[how][1]:
        raise ConfigError(f"must be in [1, {SPLITS[how][1]}] for {how} parts", "rounds", got=rounds)
    budgets = np.asarray(rho_nano, np.int64)
    if len(budgets) and int(budgets.min()) < 0:
        raise ConfigError("must be at least 0", "rho_nano")
    if how == "even":
        whole, rest = np.divmod(budgets, rounds)
        # The larger parts come last, as in the doubling split.
        return whole[:, None] + (np.arange(rounds)[None, :] >= rounds - rest[:, None])
    base = SPLITS[how][0]
    total = (base**rounds - 1) // (base - 1)
    whole, rest = np.divmod(budgets, total)
    so_far = np.zeros(len(budgets), np.int64)
    parts = np.empty((len(budgets), rounds), np.int64)
    for j in range(rounds):
        share = (base ** (j + 1) - 1) // (base - 1)
        now = whole * share + rest * share // total
        parts[:, j] = now - so_far
        so_far = now
    return parts
