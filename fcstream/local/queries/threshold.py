"""Whether less than a share of a holder's records is at most a value. The central model, with early stopping."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...accounting.losses import RHO_UNIT
from ...errors import ConfigError
from ...stream.lattice import exact as as_fraction
from ..functions import Function, Share
from ..spaces import Records
from .base import METHODS, Plan, Query
from .elimination import Judge, Rounds, Transcript, Triple, non_interactive


@dataclass(frozen=True)
class ShareBelow(Query):
    """Whether fewer than a share q of each holder's records are at most a value: one answer per holder.

    Parameters
    ----------
    component : str
    space : Records
    at : float
        The value, in the records' unit.
    share : str or Fraction
        q in (0, 1), exact: "0.25" or Fraction(1, 3).

    Privacy
    -------
    Protects one record of the holder, added or removed, and costs what the holder is charged. The number of records
    stays private. Only BM1 and PM1 are possible, because a table has no noisy points.

    Source
    ------
    Specification 11.6; proof 10.3; erratum 3.9; Liang and Yi 2025, Algorithm 9. Yes iff phi is below 0.
    """

    at: float
    share: Fraction | str | float

    def __post_init__(self) -> None:
        if not isinstance(self.space, Records):
            raise ConfigError("must hold records", "space")
        self.space.check(self.phi)

    @property
    def phi(self) -> Function:
        q = as_fraction(self.share)
        assert isinstance(self.space, Records)
        return Share(round(self.at / self.space.step), q.numerator, q.denominator)

    @property
    def judge(self) -> Judge:
        return non_interactive(0.0, 0.0)

    def triple(self, method: str, width: str = "quantile", *, pure: bool = False) -> Triple:
        found = super().triple(method, width, pure=pure)
        if METHODS[method][0]:
            raise ConfigError("must be 'BM1' or 'PM1': a table has no noisy points", "method", got=method)
        return found

    def exact(self, values: Any) -> bool:
        """The truth about one table (not private)."""
        return self.phi.evaluate(self.space.encode(values))[0] < 0

    @staticmethod
    def error(value: bool, truth: bool) -> float:
        """1 if wrong."""
        return float(value != truth)

    def finish(self, found: Transcript, triple: Triple, rounds: Rounds) -> tuple[Any, float | None]:
        """True, False, or None without a reply: a list for several holders, one value for a single one."""
        results: list[bool | None] = [None] * len(found.who)
        for row in np.flatnonzero(found.state != Transcript.SILENT).tolist():
            if found.state[row] != Transcript.LEFT:
                results[row] = bool(found.state[row] == Transcript.INSIDE)
            elif found.known[row] > 0:
                results[row] = bool(found.estimates(triple, np.array([row]))[0] < 0)
        return (results[0] if len(results) == 1 else results), None

    def plan(self, rho: float, method: str = "PM1", rounds: Rounds | None = None) -> Plan:
        """What to expect from one holder with a budget of rho, in records."""
        found = self.forecast(1, rho, method, rounds or Rounds())
        sigma = float(self.triple(method).sigma(np.array([int(rho * RHO_UNIT)]))[0])
        found.notes.append(f"a share off by {2 * sigma:.3g} records is decided correctly with 98%")
        return found
