"""The analyst's books: what everybody has left, and how much of it the next query may use."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..budgets import BudgetSchedule
from ..errors import ConfigError, LedgerError, LedgerMismatch
from .elimination import Question, Respondents, Rounds
from .queries import Answer, Query

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Account:
    """Algorithm 2: respondents whose worst-case budgets the analyst keeps; no device is asked for more than it has.

    Parameters
    ----------
    respondents : Respondents
    capacity_nano : int
        Everybody's budget, rho in nano units.
    remaining : int64 (n,), optional
        To go on from a stored state.

    Privacy
    -------
    Protects nothing by itself: every device has its own filter. It tells who could still answer, from public costs.

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, Algorithm 2.
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
    """`BudgetSchedule.share` of everybody at once: int64 (n,), the same integers.

    Privacy
    -------
    Public arithmetic on public costs.

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, Algorithm 3, lines 3 and 4.

    Raises
    ------
    ConfigError
        There is no such step, or somebody has less left than queries that keep to their shares can leave.
    """
    if len(remaining) == 0:
        return np.empty(0, np.int64)
    least, most = int(remaining.min()), int(remaining.max())
    schedule.share(step, least)  # refuses what any of them would be refused for
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
    """Algorithm 3: queries one after the other; what one saves, those after it may use.

    Parameters
    ----------
    respondents : Respondents
    schedule : BudgetSchedule
        Everybody's budget, how many queries there will be (or that this is not known), and their weights.
    name : str
        Query l has the id ``name-l``: a series that is started again under its name asks what it asked before.
    path : path, optional
        Where the books are kept between queries; written atomically.

    Raises
    ------
    LedgerMismatch
        The books at `path` are those of another series.
    ConfigError
        An invariant would be broken: weight * capacity <= share <= remaining, used <= share.

    Privacy
    -------
    Shares are functions of public costs. An analyst that dies in the middle of a query runs it again under the same
    id: devices that answered say the same bytes again and charge nothing, so the query comes out the same.

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, Algorithm 3. Ours: other weights, unknown m, one query.
    """

    def __init__(
        self, respondents: Respondents, schedule: BudgetSchedule, name: str, path: str | os.PathLike[str] | None = None
    ) -> None:
        self.schedule = schedule
        self.name = name
        self.step = 1
        self._path = None if path is None else Path(path)
        remaining = self._load(respondents.count)
        self.account = Account(respondents, schedule.capacity_nano, remaining)

    def shares(self) -> NDArray[np.int64]:
        """What everybody may be charged by the next query."""
        return shares(self.schedule, self.step, self.account.remaining)

    def run(self, query: Query, method: str, rounds: Rounds | None = None, *, pure: bool = False) -> Answer:
        """The next query. All are pure, with a schedule of epsilon, or none."""
        before, offered = self.account.remaining.copy(), self.shares()
        own = int(self.schedule.weight(self.step) * self.schedule.capacity_nano)
        if len(offered) and not (own <= int(offered.min()) and bool((offered <= before).all())):
            raise ConfigError("shares must lie between each query's own part and what is left", "schedule")
        answer = query.run(self.account, f"{self.name}-{self.step}", offered, method, rounds, pure=pure)
        used = before - self.account.remaining
        if len(used) and not (int(used.min()) >= 0 and bool((used <= offered).all())):
            raise ConfigError("a query used more than its share", "query")
        self.step += 1
        self._save()
        return answer

    def _terms(self) -> dict[str, Any]:
        schedule = self.schedule
        weights = None if schedule.weights is None else [str(w) for w in schedule.weights]
        terms = {"capacity_nano": schedule.capacity_nano, "queries": schedule.queries, "savings": schedule.savings}
        return terms | {"weights": weights, "name": self.name}

    def _load(self, count: int) -> NDArray[np.int64] | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as found:
                terms, remaining = json.loads(str(found["terms"])), np.asarray(found["remaining"], np.int64)
                self.step = int(found["step"])
        except (OSError, ValueError, KeyError) as error:
            raise LedgerError(f"{self._path} cannot be read: {type(error).__name__}") from None
        if terms != self._terms() or len(remaining) != count:
            raise LedgerMismatch(f"{self._path} belongs to another series: give this one a path of its own")
        return remaining

    def _save(self) -> None:
        if self._path is None:
            return
        scratch = self._path.with_name(self._path.name + ".new")
        try:
            with open(scratch, "wb") as file:
                np.savez(file, terms=json.dumps(self._terms()), remaining=self.account.remaining, step=self.step)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except OSError as error:
            raise LedgerError(f"{self._path} cannot be written: {error.strerror}") from None
