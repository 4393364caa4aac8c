"""Exhaustion of budgets by public facts: how long a budget lasts, and what is said when it is used up.

With the unit ``user`` everybody with a record in a window takes part, and the window is charged to one public block, as
if everybody were in every window. So whether a window has a value depends on public losses alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..accounting.losses import PrivacyLoss
from ..config import Job
from ..ledgers.history import utc
from ..releases.base import Release
from ..runtime.words import many

LOG = logging.getLogger("fcstream.engine")
REASON = "budget_exhausted"


class Exhaustion:
    """Knows whether the newest window of a stream, of any of its keys, was refused for lack of room, and says so once.

    Parameters
    ----------
    job : Job
        Of the whole stream. With clock ``eof`` the log says nothing: who runs files is told at the end.

    Privacy
    -------
    Public: refusals depend on public losses alone.

    Source
    ------
    Specification 8.3; ours.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._is_reported = job, job.clock == "eof"
        self._refused: dict[str, int] = {}  # opening of the refused window, by the stream of a key
        self._is_older = False  # an earlier run was refused a window already, perhaps not as its first one
        self._shared = self

    @property
    def text(self) -> str | None:
        """What to tell people; None if the newest windows had room."""
        opens = min(self._refused.values(), default=None)
        if opens is None:
            return None
        group = self._job.terms.group
        whose = "the budget" if group is None or group.endswith("/") else f"the budget of group {group!r}"
        earlier = ", or earlier," if self._is_older else ""
        return (
            f"{whose} is used up: since the window that opens at {utc(opens)}{earlier} windows are refused ({REASON}) "
            "and have no value; a new stream with a budget of its own would go on, and what both cost adds up"
        )

    def note(self, releases: Sequence[Release], *, now: bool = True) -> None:
        """Take in the newest window of a stream; the log tells of the first refusal that is made `now`."""
        if not releases:
            return
        first, refused = releases[0], self._shared._refused
        if first.reason != REASON:
            refused.pop(first.stream, None)
            self._shared._is_older &= bool(refused)
            return
        self._shared._is_older |= not now
        refused.setdefault(first.stream, first.window_open_ms)
        if now:
            self._shared._tell()

    def report_to(self, shared: Exhaustion) -> None:
        """Tell, from now on, that of the whole stream, of which this is about one key."""
        shared._refused |= self._refused
        shared._is_older |= self._is_older
        self._shared = shared

    def forget(self, stream: str) -> None:
        """Leave out a stream that is answered no more."""
        self._refused.pop(stream, None)

    def _tell(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            LOG.error("stream %r: %s", self._job.terms.root, self.text)


def limited_windows(job: Job) -> tuple[int | None, bool]:
    """Count the windows for which the budget lasts at full cost: that of a user present in every window, or the total.

    None if the unit `event` caps neither. Returns also whether it is the total that ends first.
    """
    limits = [] if job.terms.unit == "event" else [(budget_windows(job, job.terms.capacity), False)]
    if job.terms.total is not None:
        limits.append((budget_windows(job, job.terms.total), True))
    return min(limits, default=(None, False))


def windows_until(job: Job) -> tuple[int, bool] | None:
    """Count the windows that a budget lasts which is too small for the schedule; None if it lasts.

    Returns also whether it is the total that ends first.
    """
    lasting, is_total = limited_windows(job)
    count = scheduled_windows(job)
    if lasting is None or job.spending.savings is not None or (count is not None and lasting >= count):
        return None
    return lasting, is_total


def scheduled_windows(job: Job, now_ms: int | None = None) -> int | None:
    """Count the windows of a stream whose first run is at a public time (now); None without an end."""
    count = job.schedule.count
    if count is None or job.clock == "eof":
        return count
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return count - job.schedule.first_open(now_ms - job.backlog_ms)


def budget_windows(job: Job, capacity: PrivacyLoss) -> int:
    """Count the windows for which a budget lasts, which also pays for a search for keys after each period."""
    window = job.window_loss
    if job.finder is None:
        return lasting_windows(window, capacity)
    length, search = job.finder.period_windows, job.finder.job.answers.loss
    period = window * length + search
    periods = lasting_windows(period, capacity)
    return periods * length + min(length, lasting_windows(window, capacity - period * periods))


def lasting_windows(loss: PrivacyLoss, capacity: PrivacyLoss) -> int:
    """Count the windows of one loss that fit a capacity."""
    windows = capacity.rho_nano // loss.rho_nano
    return min(windows, capacity.delta_femto // loss.delta_femto) if loss.delta_femto else windows


def exhaustion_warning(job: Job, planned: bool = True) -> str | None:
    """Describe in a sentence what happens if the schedule is longer than the budget lasts; None if the budget lasts.

    A live stream that is only `planned` has its first run now; else the first run may have been long ago.
    """
    until = windows_until(job)
    if until is None:
        return None
    lasting, is_total = until
    schedule, count = job.schedule, scheduled_windows(job)
    windows = many(lasting, "window")
    at = f"window {lasting + 1}"
    is_known = planned or job.clock == "eof"
    windows += "" if count is None or not is_known else f" of {count}"
    if not is_known:
        at += " since the first run"
    elif job.clock == "eof":
        at += f", which opens at {utc(schedule.window(lasting).open_ms)},"
    else:
        first = schedule.first_open(time.time_ns() // 1_000_000 - job.backlog_ms)
        at += f" (it opens at {utc(schedule.window(first + lasting).open_ms)} if the first run is now)"
    whose = "the stream's budget" if job.terms.unit == "stream" else "the budget of a user present in every window"
    whose = "the total" if is_total else whose
    what = f"{whose} lasts {windows}: {_consequence(job, at)}"
    part = _first_part(job, job.terms.total if is_total and job.terms.total is not None else job.terms.capacity)
    less = f"`release.{part}`" if len(job.answers) == 1 else f"`{part}` of its answers"
    return f"{what}; raise `budget.{'total_' if is_total else ''}{part}`, lower {less}, or use longer windows"


def _first_part(job: Job, capacity: PrivacyLoss) -> str:
    """Return which part of a budget is used up first, rho or delta."""
    alone = [PrivacyLoss(capacity.rho_nano, 10**30), PrivacyLoss(10**30, capacity.delta_femto)]
    by_rho, by_delta = (budget_windows(job, each) for each in alone)
    return "delta" if by_delta < by_rho else "rho"


def _consequence(job: Job, at: str) -> str:
    if job.spending.stops:
        return f"the run ends at {at.removesuffix(',')} (`budget.exhausted` = 'stop')"
    if job.clock == "eof" and job.spending.exhausted is None:
        return f"a run does not begin unless `budget.exhausted` says what becomes of {at} and those after it"
    return f"from {at} on every window is refused (`budget.exhausted`)"
