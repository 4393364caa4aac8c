"""The k devices nearest to a point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ..functions import FINENESS, Distance, Function
from ..spaces import Euclidean
from .base import BOUND, Plan, Query, _step_width, error_width
from .confidence import confidence_radius
from .elimination import Judge, Rounds, Transcript, Triple, smallest


@dataclass(frozen=True)
class Nearest(Query):
    """The numbers of the k devices nearest to a point, nearest first.

    Parameters
    ----------
    component : str
    space : Space
    to : tuple of int
        In lattice steps; `at` takes coordinates.
    k : int
    parts : int
        See `Distance`.

    Privacy
    -------
    Costs what the devices are charged; everything else is post-processing.

    Source
    ------
    Specification 11.6; proofs 10.3, 10.6; errata 3.5, 3.6; Liang and Yi 2025, Algorithm 8, Lemmas 6.4 to 6.7.
    """

    to: tuple[int, ...]
    k: int
    parts: int = FINENESS

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError("must be at least 1", "k", got=self.k)
        self.space.check(self.phi)

    @classmethod
    def at(cls, component: str, space: Euclidean, place: Any, k: int) -> Nearest:
        """The nearest to a point in the space's coordinates."""
        return cls(component, space, space.steps(place), k)

    @property
    def phi(self) -> Function:
        return Distance(self.to, self.parts)

    @property
    def judge(self) -> Judge:
        return smallest(self.k)

    @property
    def enough(self) -> int:
        return self.k

    def exact(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """The true k nearest lattice points (not private); ties by number."""
        return np.argsort(self.phi.estimate(points.astype(np.float64)), kind="stable")[: self.k]

    def error(self, value: NDArray[np.int64], points: NDArray[np.int64]) -> float:
        """Relative error of the summed distances: how much farther the found devices are than the true nearest."""
        away = self.phi.estimate(points.astype(np.float64))
        best = float(np.sort(away)[: self.k].sum())
        return (float(away[value].sum()) - best) / best if best else float(away[value].sum() > 0)

    def finish(self, found: Transcript, triple: Triple, rounds: Rounds) -> tuple[Any, float | None]:
        """The devices' numbers. The bound: the s-th found is at most that much farther than the true s-th nearest."""
        left = found.heard()
        phi = found.estimates(triple, left)
        order = np.argsort(phi, kind="stable")[: self.k]
        return found.who[left[order]], 2 * error_width(found, triple, rounds) * _step_width(self.space)

    def plan(self, n: int, rho: float, method: str = "PM1", rounds: Rounds | None = None) -> Plan:
        """What to expect from n devices with a budget of rho each; `error` is the bound."""
        rounds = rounds or Rounds()
        found, triple = self.forecast(n, rho, method, rounds), self.triple(method)
        bound = 2 * found.sigma * confidence_radius(triple.dimension, min(0.999, BOUND * rounds.beta) / max(1, n))
        return Plan(found.sigma, found.widths, found.half_saved_at, bound, found.notes)
