"""A series of queries: what every device has left, and how much of it the next query may use."""

from __future__ import annotations

import math
import os
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounting.filters import BudgetSchedule
from ...accounting.losses import PrivacyLoss
from ...errors import ConfigError, LedgerDamaged
from ...runtime.undo import on_error
from ..queries.base import Answer, Query
from ..queries.elimination import Question, Respondents, Rounds
from .record import QueryLedger, digest, record_of, used_by


class Account:
    """Respondents whose remaining budgets the analyst keeps (Algorithm 2): no device is asked for more than it has.

    Parameters
    ----------
    respondents : Respondents
    capacity_nano : int
        Every device's budget, rho in nano units.
    remaining : int64 (n,), optional
        What each has left, to continue a series.

    Privacy
    -------
    Protects nothing by itself, because every device has its own privacy filter. It computes from public costs which
    devices can still reply.

    Source
    ------
    Specification 8.5, 11.4; proof 10.4; Liang and Yi 2025, Algorithm 2.
    """

    def __init__(
        self, respondents: Respondents, capacity_nano: int, remaining: NDArray[np.int64] | None = None
    ) -> None:
        self._respondents = respondents
        self.capacity_nano = capacity_nano
        count = respondents.count
        self.remaining = np.full(count, capacity_nano, np.int64) if remaining is None else remaining

    @property
    def count(self) -> int:
        return self._respondents.count

    def ask(
        self, question: Question, who: NDArray[np.int64], costs: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        if len(who) and int((self.remaining[who] - costs).min()) < 0:
            raise ConfigError("must be at most what is left of each budget", "costs")
        self.remaining[who] -= costs
        return self._respondents.ask(question, who, costs)


def shares(schedule: BudgetSchedule, step: int, remaining: NDArray[np.int64]) -> NDArray[np.int64]:
    """`BudgetSchedule.share` of all devices at once: int64 (n,), the same integers.

    Privacy
    -------
    Computed from public costs alone.

    Source
    ------
    Specification 8.5; proof 2.8; Liang and Yi 2025, Algorithm 3, lines 3 and 4.

    Raises
    ------
    ConfigError
        There is no such step, or a device has less left than queries within their shares can leave.
    """
    if len(remaining) == 0:
        return np.empty(0, np.int64)
    least, most = int(remaining.min()), int(remaining.max())
    schedule.share(step, least)  # raises whatever `share` would raise for any device
    schedule.share(step, most)
    part, weight, unclaimed = schedule.part(step), schedule.weight(step), schedule.unclaimed(step)
    fixed = (weight - part * unclaimed) * schedule.capacity_nano
    bottom = math.lcm(part.denominator, fixed.denominator)
    slope, offset = int(part * bottom), int(fixed * bottom)
    if abs(offset) + slope * most < 2**62:
        return (slope * remaining + offset) // bottom
    values, back = np.unique(remaining, return_inverse=True)
    return np.array([schedule.share(step, int(value)) for value in values], np.int64)[back]


class Series:
    """Queries one after the other; what one saves, later ones may use (Algorithm 3).

    Parameters
    ----------
    respondents : Respondents
    schedule : BudgetSchedule
        Every device's budget, how many queries there will be (or that this is not known), and their weights.
    name : str
        Query l has the id ``name-l``, so that a restarted series asks the same questions again.
    ledger : str, optional
        ``sqlite:PATH`` or a path: the ledger of queries; `QueryLedger` says what is refused.

    Raises
    ------
    LedgerMismatch, LedgerDamaged, LedgerInUse, LedgerError
    ConfigError
        An invariant would be broken: weight * capacity <= share <= remaining, used <= share.

    Privacy
    -------
    Shares are functions of public costs. After a crash in the middle of a query, it is asked again under the same id:
    devices that replied repeat the same bytes and charge nothing, so the answer is the same.

    Source
    ------
    Specification 8.5, 11.6; proof 2.8; erratum 3.3; Liang and Yi 2025, Algorithm 3. Ours: other weights, unknown m, one
    query.
    """

    def __init__(
        self,
        respondents: Respondents,
        schedule: BudgetSchedule,
        name: str,
        ledger: str | os.PathLike[str] | None = None,
    ) -> None:
        self.schedule = schedule
        self.name = name
        self.step = 1
        self.account = Account(respondents, schedule.capacity_nano)
        self._ledger: QueryLedger | None = None
        if ledger is not None:
            about = {**self._terms(), "devices": respondents.count}
            self._ledger = QueryLedger(os.fspath(ledger), name, schedule.capacity_nano, about)
            with on_error(self._ledger.close):
                self._follow(self._ledger)

    def shares(self) -> NDArray[np.int64]:
        """What the next query may charge each device."""
        return shares(self.schedule, self.step, self.account.remaining)

    def run(self, query: Query, method: str, rounds: Rounds | None = None, *, pure: bool = False) -> Answer:
        """Ask the next query. All answers before it count as acknowledged.

        Either all queries of a series are `pure`, with a schedule of epsilon and no ledger, or none is.
        """
        if pure and self._ledger is not None:
            raise ConfigError("must be False: ledgers count rho", "pure")
        rounds = rounds or Rounds()
        before, offered = self.account.remaining.copy(), self.shares()
        own = int(self.schedule.weight(self.step) * self.schedule.capacity_nano)
        if len(offered) and not (own <= int(offered.min()) and bool((offered <= before).all())):
            raise ConfigError("shares must lie between each query's own part and what is left", "schedule")
        reserved = PrivacyLoss(self._most(before - offered) - self._most(before))
        if self._ledger is not None:
            self._ledger.acknowledge()
            self._ledger.charge(reserved)
        with on_error(self._restore, before):  # so that the query can be asked again
            answer = query.run(self.account, f"{self.name}-{self.step}", offered, method, rounds, pure=pure)
            used = before - self.account.remaining
            if len(used) and not (int(used.min()) >= 0 and bool((used <= offered).all())):
                raise ConfigError("a query used more than its share", "query")
            if self._ledger is not None:
                record = record_of(f"{self.name}-{self.step}", query, answer, rounds)
                grown = self._most(self.account.remaining) - self._most(before)
                self._ledger.seal(record, self.account.remaining, reserved - PrivacyLoss(grown))
        self.step += 1
        return answer

    def _restore(self, remaining: NDArray[np.int64]) -> None:
        self.account.remaining = remaining

    def unpublished(self) -> list[dict[str, Any]]:
        """Records of answers that were not acknowledged: the process died before they were printed."""
        return [] if self._ledger is None else self._ledger.unpublished()

    def acknowledge(self) -> None:
        """Note that all answers were printed."""
        if self._ledger is not None:
            self._ledger.acknowledge()

    def close(self) -> None:
        """Close the ledger. Idempotent."""
        if self._ledger is not None:
            self._ledger.close()

    def __enter__(self) -> Series:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _most(self, remaining: NDArray[np.int64]) -> int:
        """What the most charged device has spent if the devices have `remaining` left."""
        return self.schedule.capacity_nano - int(remaining.min()) if len(remaining) else 0

    def _terms(self) -> dict[str, Any]:
        schedule = self.schedule
        weights = None if schedule.weights is None else [str(w) for w in schedule.weights]
        return {"queries": schedule.queries, "savings": schedule.savings, "weights": weights}

    def _follow(self, ledger: QueryLedger) -> None:
        """Bring remaining budgets and step to where the recorded queries left them."""
        for record in ledger.records:
            try:
                used = used_by(record, self.shares())
                left = self.account.remaining - used
                if record["query"] != f"{self.name}-{self.step}" or digest(left) != record["left"]:
                    raise ValueError
            except (ValueError, KeyError, TypeError, zlib.error):
                raise LedgerDamaged(
                    f"{ledger.path} is damaged: query {self.step} of {self.name!r} does not add up"
                ) from None
            self.account.remaining = left
            self.step += 1
