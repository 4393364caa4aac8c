"""Elimination (PIE-NI and PIE-k): ask in rounds, and no longer ask devices whose part of the answer is already clear.

The rounds are the same for devices over a network and for simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import EPSILON_UNIT, RHO_UNIT
from ...errors import ConfigError
from ..functions import Function, Point
from ..noise import _kernels
from ..spaces import Space
from .confidence import confidence_radius, pure_confidence_radius, split_budget

Judge = Callable[[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]], NDArray[np.int8]]
"""(rows, estimates, half widths) -> new states of these rows."""
CONFIDENCE = ("all", "paper")
_BLOCK = 2**15  # how many numbers are averaged together


@dataclass(frozen=True)
class Question:
    """What all devices still undecided are asked in one round."""

    query: str
    round: int
    component: str
    space: Space
    function: Function
    pure: bool = False


class Respondents(Protocol):
    """All devices that can be asked, numbered from 0."""

    @property
    def count(self) -> int:
        """How many there are; public."""
        ...

    def ask(
        self, question: Question, who: NDArray[np.int64], costs: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Ask the devices numbered `who`, each at its price: rho in nano units, or epsilon if the question is pure.

        Returns which of them answered, bool (m,), and their noisy integers, int64 (answered, outputs).
        """
        ...


@dataclass(frozen=True)
class Triple:
    """A valid triple (M, g, h): what a device is asked, how phi is estimated from it, and how far off that may be.

    Parameters
    ----------
    space : Space
    phi : Function
        The 1-Lipschitz function by which devices are eliminated, in lattice steps.
    points : bool
        True: devices reply with noisy points, and phi is computed from their average. False: with noisy values of phi.
    width : str
        See `fcstream.local.queries.confidence.confidence_radius`.
    pure : bool
        Pure geo-privacy: losses are epsilons, and replies are averaged with weights in proportion to their squares.

    Source
    ------
    Specification 11.5; proof 10.3; Liang and Yi 2025, Definition 5, Corollaries 6.1 and 6.2. Ours: pure geo-privacy.
    """

    space: Space
    phi: Function
    points: bool
    width: str = "quantile"
    pure: bool = False

    @property
    def function_asked(self) -> Function:
        return Point() if self.points else self.phi

    @property
    def dimension(self) -> int:
        """The number of noisy integers in a reply."""
        return self.function_asked.outputs(self.space.dimension)

    def weigh(self, costs: NDArray[np.int64]) -> NDArray[Any]:
        """Weights of replies in an average: their rho, or their epsilon**2."""
        return np.square(costs / EPSILON_UNIT) if self.pure else costs

    def sigma(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Standard deviation of averaged replies of these total weights, in lattice steps; infinite at 0."""
        if self.pure:
            scale = self._scale * math.sqrt(self.dimension + 1 if self.points else 2)
        else:
            scale = math.sqrt(self.space.variance(self.function_asked) * RHO_UNIT) / self.function_asked.fineness
        with np.errstate(divide="ignore"):
            return scale / np.sqrt(np.asarray(weights, np.float64))

    @property
    def _scale(self) -> float:
        """Scale of pure noise at an epsilon of 1, in lattice steps."""
        asked = self.function_asked
        return float(self.space.steps_per_unit) * (1.0 if self.points else asked.sensitivity / asked.fineness)

    def estimate(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        """phi in lattice steps from averaged replies (n, outputs)."""
        if self.points:
            return self.phi.estimate(means)
        # Values were rounded down: half a part of a step is added back.
        shift = 0.0 if self.function_asked.fineness == 1 else 0.5
        return (means[:, 0] + shift) / self.function_asked.fineness

    def half_width(
        self, weights: NDArray[Any], beta: float, paid: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """h: the estimate is off by more with probability at most beta, in lattice steps.

        `paid` is what the answers cost together, in nano units; noisy points of pure geo-privacy need it.
        """
        rounding = 0.0 if self.points or self.function_asked.fineness == 1 else 0.5 / self.function_asked.fineness
        if not self.pure:
            return self.sigma(weights) * confidence_radius(self.dimension, beta, self.width) + rounding
        mean, spread = pure_confidence_radius(self.dimension if self.points else 0, beta)
        known = np.asarray(weights, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = spread / np.sqrt(known)
            if mean:
                assert paid is not None
                found += mean * (paid / EPSILON_UNIT) / known
        return self._scale * found + rounding


@dataclass(frozen=True)
class Rounds:
    """How a query is asked.

    Parameters
    ----------
    count : int
        The number c of rounds. With one round all devices are asked once, and none is eliminated.
    split : str
        ``doubling``, ``steep`` or ``even``: see `fcstream.local.queries.confidence.split_budget`.
    beta : float
        Probability that any device is decided wrongly.
    confidence : str
        ``all``: intervals at level beta / (c |G_0|), which hold. ``paper``: beta / (c |G_(j-1)|) as printed, for
        comparison only: its proof fails, as the same noise chose which devices are left (erratum 3.4).

    Source
    ------
    Specification 11.5; proof 10.6; erratum 3.4; Liang and Yi 2025, section 5.2.
    """

    count: int = 10
    split: str = "doubling"
    beta: float = 0.05
    confidence: str = "all"

    def __post_init__(self) -> None:
        split_budget(np.empty(0, np.int64), self.count, self.split)
        if not 0 < self.beta < 1:
            raise ConfigError("must be in (0, 1)", "beta", got=self.beta)
        if self.confidence not in CONFIDENCE:
            raise ConfigError(f"must be one of {list(CONFIDENCE)}", "confidence", got=self.confidence)

    def level(self, n: int, left: int) -> float:
        """The failure probability of one interval."""
        return self.beta / (self.count * max(1, n if self.confidence == "all" else left))


@dataclass
class Transcript:
    """What a query asked and received. Everything in it counts as released.

    Parameters
    ----------
    who : int64 (n,)
        The numbers of all devices (G_0).
    parts : int64 (n, c)
        The price of each round for each device, fixed before the first round.
    consumed : int64 (n,)
        What each device was charged, rho or epsilon in nano units, whether it answered or not.
    known : int64 or float64 (n,)
        Total weight of each device's replies: their rho, or for pure ones epsilon**2.
    sums : float64 (n, outputs)
        Sums of replies times their weights.
    state : int8 (n,)
        1: phi below the lower threshold (S1); 2: above the upper one (S0); 0: still in G; 3: did not answer.
    rounds : int
        How many rounds were asked.
    """

    who: NDArray[np.int64]
    parts: NDArray[np.int64]
    consumed: NDArray[np.int64]
    known: NDArray[Any]
    sums: NDArray[np.float64]
    state: NDArray[np.int8]
    rounds: int = 0

    LEFT, INSIDE, OUTSIDE, SILENT = 0, 1, 2, 3

    def rows(self, state: int) -> NDArray[np.int64]:
        """The rows in one state (not the devices' numbers)."""
        return np.flatnonzero(self.state == state)

    def heard(self) -> NDArray[np.int64]:
        """Respondents that are left and have answered."""
        left = self.rows(self.LEFT)
        return left[self.known[left] > 0]

    def means(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Averaged replies of some rows; 0 for rows without replies."""
        found = self.sums[rows]
        weights = self.known[rows]
        found /= np.where(weights > 0, weights, 1)[:, None]
        return np.asarray(found)

    def estimates(self, triple: Triple, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """phi of some rows in lattice steps; a few rows at a time, so that wide replies stay in the cache."""
        out, block = np.empty(len(rows)), max(1, _BLOCK // self.sums.shape[1])
        for start in range(0, len(rows), block):
            part = slice(start, start + block)
            out[part] = triple.estimate(self.means(rows[part]))
        return out

    @property
    def saving(self) -> float:
        """The mean part of the devices' budgets that was not used (PrivSav)."""
        budgets = self.parts.sum(axis=1)
        used = budgets > 0
        return float((1 - self.consumed[used] / budgets[used]).mean()) if used.any() else 0.0


def non_interactive(low: float, high: float) -> Judge:
    """PIE-NI: S1 if phi is certainly below `low`, S0 if certainly above `high` (lattice steps).

    Source
    ------
    Specification 11.5; proof 10.6; Liang and Yi 2025, Algorithm 4 and Lemma 5.2.
    """
    if not low <= high:
        raise ConfigError(f"must be at most `high`={high}", "low", got=low)

    def judge(rows: NDArray[np.int64], phi: NDArray[np.float64], h: NDArray[np.float64]) -> NDArray[np.int8]:
        return np.where(phi < low - h, 1, np.where(phi > high + h, 2, 0)).astype(np.int8)

    return judge


def smallest(k: int) -> Judge:
    """PIE-k: devices that may be among the k smallest phi stay.

    Those are the k with the smallest right ends of their intervals (ties by number), and all whose left end is at most
    the k-th right end.

    Source
    ------
    Specification 11.5; proof 10.6; Liang and Yi 2025, Algorithm 5 and Lemma 5.3.
    """

    def judge(rows: NDArray[np.int64], phi: NDArray[np.float64], h: NDArray[np.float64]) -> NDArray[np.int8]:
        if len(rows) <= k:
            return np.zeros(len(rows), np.int8)
        right = phi + h
        order = np.argsort(right, kind="stable")
        state = np.where(phi - h <= right[order[k - 1]], 0, 2).astype(np.int8)
        state[order[:k]] = 0
        return state

    return judge


def _add(
    sums: NDArray[np.float64],
    rows: NDArray[np.int64],
    weights: NDArray[Any],
    values: NDArray[np.int64],
) -> None:
    kernels = _kernels()
    if kernels is None:
        sums[rows] += weights[:, None] * values.astype(np.float64)
    else:
        kernels.add_answers(sums, rows, weights, values)


def _check(triple: Triple) -> None:
    """Refuse functions that do not fit the space, or have no pure noise there."""
    triple.space.check(triple.function_asked)
    triple.space.check(triple.phi)
    if triple.pure:
        if triple.points and not triple.space.is_euclidean:
            raise ConfigError(
                "must be 'BM1' or 'PM1' for pure geo-privacy: points of this space have no pure noise", "method"
            )
        triple.space.check_pure(triple.function_asked)


def eliminate(
    respondents: Respondents,
    question: Question,
    triple: Triple,
    budgets: NDArray[np.int64],
    rounds: Rounds,
    judge: Judge,
    *,
    enough: int = 0,
) -> Transcript:
    """Ask in rounds until all devices are decided, `enough` are left, or the budgets are used.

    Parameters
    ----------
    respondents : Respondents
    question : Question
        Its round and function are set here.
    triple : Triple
    budgets : int64 (n,)
        What each device may be charged for the whole query: rho in nano units, or epsilon for a pure triple.
    rounds : Rounds
    judge : callable
        `non_interactive` or `smallest`.
    enough : int
        Stop when no more than this many are left (k of PIE-k).

    Returns
    -------
    Transcript
        A device that does not answer counts as charged, and is not asked again in this query.

    Source
    ------
    Specification 11.5; proof 10.6; Liang and Yi 2025, Algorithms 4 and 5.
    """
    n = respondents.count
    if len(budgets) != n:
        raise ConfigError(f"must be one for each of {n} respondents", "budgets", got=len(budgets))
    _check(triple)
    parts = split_budget(budgets, rounds.count, rounds.split)
    sums, state = np.zeros((n, triple.dimension)), np.zeros(n, np.int8)
    known: NDArray[Any] = np.zeros(n, np.float64 if triple.pure else np.int64)
    found = Transcript(np.arange(n, dtype=np.int64), parts, np.zeros(n, np.int64), known, sums, state)
    asked = replace(question, space=triple.space, function=triple.function_asked, pure=triple.pure)
    for j in range(rounds.count):
        left = found.rows(Transcript.LEFT)
        if len(left) <= enough:
            break
        found.rounds = j + 1
        rows = left[parts[left, j] > 0]
        if len(rows) == 0:
            continue
        costs = parts[rows, j]
        found.consumed[rows] += costs  # charged, whether a reply comes or not
        answered, values = respondents.ask(replace(asked, round=j + 1), rows, costs)
        found.state[rows[~answered]] = Transcript.SILENT
        heard, weights = rows[answered], triple.weigh(costs[answered])
        found.known[heard] += weights
        _add(found.sums, heard, weights, values)
        left = found.heard()
        phi = found.estimates(triple, left)
        h = triple.half_width(found.known[left], rounds.level(n, len(left)), found.consumed[left])
        found.state[left] = judge(left, phi, h)
    return found
