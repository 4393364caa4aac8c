"""What the four kinds of queries share: methods, answers and plans."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT
from ...errors import ConfigError
from ..functions import Function
from ..spaces import Space
from .confidence import split_budget
from .elimination import Judge, Question, Respondents, Rounds, Transcript, Triple, eliminate

METHODS = {"BM0": (True, False), "BM1": (False, False), "PM0": (True, True), "PM1": (False, True)}
"""By method: whether devices reply with noisy points, else distances; and whether rounds eliminate, else all are asked
once."""
BOUND = 3
"""The probability that an error bound fails, as a multiple of `Rounds.beta`, that of the elimination."""


@dataclass(frozen=True)
class Answer:
    """One query's result.

    Attributes
    ----------
    value : float, bool or int64 array
    method : str
    saving : float
        Mean part of the budgets offered that was not used.
    bound : float or None
        Bound of the error, with the probability of `Rounds`; each kind of query says of which error.
    missing : int
        How many devices did not answer. They are not in the value.
    transcript : Transcript

    Privacy
    -------
    Computed from the devices' replies alone (post-processing).

    Source
    ------
    Specification 11.6; Liang and Yi 2025, section 7.1 (the saving).
    """

    value: Any
    method: str
    saving: float
    bound: float | None
    missing: int
    transcript: Transcript


@dataclass(frozen=True)
class Plan:
    """How precise a query can be expected to be, and what it saves; no device is asked.

    Attributes
    ----------
    sigma : float
        Standard deviation of the noise if a device's whole budget is used, in units of the space's coordinates.
    widths : list of float
        Half width of a device's confidence interval after each round.
    half_saved_at : float
        A device whose phi is this far from the thresholds is expected to save at least half of its budget.
    error : float or None
        The query's expected error or its bound, if it can be computed without data.
    notes : list of str
    """

    sigma: float
    widths: list[float]
    half_saved_at: float
    error: float | None
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        lines = [
            f"noise of a full answer  sigma {self.sigma:.4g} (all lengths in the units of the component)",
            "intervals by round      " + ", ".join(f"{w:.4g}" for w in self.widths),
            f"saves half              from {self.half_saved_at:.4g} beyond the thresholds",
        ]
        if self.error is not None:
            lines.append(f"error                   {self.error:.4g}")
        return lines + self.notes


@dataclass(frozen=True)
class Query:
    """What is asked about one component of all devices, in one space.

    Parameters
    ----------
    component : str
    space : Space
    """

    component: str
    space: Space

    @property
    def phi(self) -> Function:
        """The function by which devices are eliminated."""
        raise NotImplementedError

    @property
    def judge(self) -> Judge:
        raise NotImplementedError

    @property
    def enough(self) -> int:
        return 0

    def finish(self, found: Transcript, triple: Triple, rounds: Rounds) -> tuple[Any, float | None]:
        """Value and bound from a transcript: post-processing."""
        raise NotImplementedError

    def triple(self, method: str, width: str = "quantile", *, pure: bool = False) -> Triple:
        if method not in METHODS:
            raise ConfigError(f"must be one of {sorted(METHODS)}", "method", got=method)
        return Triple(self.space, self.phi, METHODS[method][0], width, pure)

    def run(
        self,
        respondents: Respondents,
        query: str,
        budgets: NDArray[np.int64],
        method: str = "PM1",
        rounds: Rounds | None = None,
        *,
        width: str = "quantile",
        pure: bool = False,
    ) -> Answer:
        """Ask in rounds, eliminate, and compute the answer.

        Parameters
        ----------
        respondents : Respondents
        query : str
            Its id: under the same id, devices repeat the replies they gave before.
        budgets : int64 (n,)
            The most that each device may be charged: rho in nano units, or epsilon if `pure`.
        method : str
            ``BM0``, ``BM1``, ``PM0`` or ``PM1``.
        rounds : Rounds, optional
            For PM0 and PM1; BM0 and BM1 use its `beta` only.
        width : str
            See `fcstream.local.queries.confidence.confidence_radius`.
        pure : bool
            Pure geo-privacy. Rounds then cost accuracy: together they are worth the root of the sum of their squared
            epsilons (4 even ones half, 4 doubling ones two thirds, 4 steep ones 88% of it), and save less.
        """
        triple, rounds = self.triple(method, width, pure=pure), rounds or Rounds()
        question = Question(query, 1, self.component, self.space, self.phi)
        if METHODS[method][1]:
            found = eliminate(respondents, question, triple, budgets, rounds, self.judge, enough=self.enough)
        else:
            once = Rounds(1, "even", rounds.beta)
            found = eliminate(respondents, question, triple, budgets, once, _keep_all)
        value, bound = self.finish(found, triple, rounds)
        silent = len(found.rows(Transcript.SILENT))
        return Answer(value, method, found.saving, bound, silent, found)

    def forecast(self, n: int, rho: float, method: str, rounds: Rounds, width: str = "quantile") -> Plan:
        """The parts of a plan that all kinds of queries share."""
        triple = self.triple(method, width)
        budget = np.array([int(rho * RHO_UNIT)], np.int64)
        step = _step_width(self.space)
        parts = split_budget(budget, rounds.count, rounds.split)[0]
        so_far = np.cumsum(parts)
        h = triple.half_width(so_far, rounds.level(n, n))
        sigma = float(triple.sigma(budget)[0])
        if not METHODS[method][1]:
            return Plan(sigma * step, [], float("inf"), None, ["a baseline saves nothing"])
        # At distance t the interval of round j is passed with probability at least 1/2 once t >= h_j: all later
        # rounds are saved then.
        used = so_far / max(1, int(so_far[-1]))
        half = next((float(w) for w, u in zip(h[::-1], used[::-1], strict=True) if u <= 0.5), float(h[0]))
        return Plan(sigma * step, [float(w) * step for w in h], half * step, None, [])


def _keep_all(rows: NDArray[np.int64], phi: NDArray[np.float64], h: NDArray[np.float64]) -> NDArray[np.int8]:
    return np.zeros(len(rows), np.int8)


def _step_width(space: Space) -> float:
    """A lattice step in units of the coordinates."""
    return float(getattr(space, "step", 1.0))


def error_width(found: Transcript, triple: Triple, rounds: Rounds) -> float:
    """How far any final estimate of phi is off, but for probability BOUND * beta: lattice steps, for the least budget.

    Privacy
    -------
    Computed from public numbers and replies alone (post-processing).

    Source
    ------
    Specification 11.6; proof 10.6; erratum 3.5; Liang and Yi 2025, sections 6.2 and 6.4, at level beta1 / |G_0|: who is
    left was chosen by the same noise, so |G_c| will not do.
    """
    n = max(1, len(found.who))
    full = found.parts.sum(axis=1)
    if not (full > 0).any():
        return float("inf")
    least = np.argmin(np.where(full > 0, full, np.iinfo(np.int64).max))
    beta = min(0.999, BOUND * rounds.beta)
    known = np.asarray(triple.weigh(found.parts[least])).sum(keepdims=True)
    return float(triple.half_width(known, beta / n, full[least : least + 1])[0])
