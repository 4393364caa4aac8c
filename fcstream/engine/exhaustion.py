"""Exhaustion of budgets by public facts: what a user present in every window has left.

With the unit ``user``, before the first window for which that user has no room, no user has spent more, so every user
takes part until then. From then on some may be left out, and how many is private.
"""

from __future__ import annotations

import logging
import time

from ..accounting.losses import PrivacyLoss
from ..config import Job
from ..ledgers import Ledger
from ..ledgers.base import USER_BLOCK, ChargeResult
from ..ledgers.history import utc
from ..releases.base import Release
from ..runtime.words import many

LOG = logging.getLogger("fcstream.engine")

FULL, EXHAUSTED = "full", "exhausted"
"""Values of `Release.participation`."""


class Participation:
    """Decides, window by window, whether every user still has room; for the unit ``user``.

    Parameters
    ----------
    job : Job
    ledger : Ledger
    last : Release or None
        The last release that was sealed.

    Attributes
    ----------
    state : str or None
        See `Release.participation`; None with other units.

    Privacy
    -------
    The block of a user present in every window is charged by public losses alone, so what it shows is public.

    Source
    ------
    Specification 8.3; proof 2.4; ours.
    """

    def __init__(self, job: Job, ledger: Ledger, last: Release | None) -> None:
        self._stream, self._ledger = job.terms.stream, ledger
        self.state: str | None = None
        if job.terms.unit == "user":
            self.state = (last.participation if last is not None else None) or FULL

    def note(self, result: ChargeResult) -> bool:
        """Note whether a user present in every window was charged for this one."""
        if self.state is None:
            return True
        is_charged = USER_BLOCK in self._ledger.charged_blocks(result.window)
        was_answered = result.charge is not None or result.interrupted is not None
        if was_answered and not is_charged and self.state == FULL:
            self.state = EXHAUSTED
            LOG.warning(
                "stream %r: the budget of a user present in every window has no room for the window that opens "
                "at %s: from here on releases leave out whoever has used up theirs (`participation` = 'exhausted')",
                self._stream,
                utc(result.window.open_ms),
            )
        return is_charged


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
    whose, key = ("the total", "total_rho") if is_total else (whose, "rho")
    what = f"{whose} lasts {windows}: {_consequence(job, at, is_total)}"
    return f"{what}; raise `budget.{key}`, lower `release.rho`, or use longer windows"


def _consequence(job: Job, at: str, is_total: bool) -> str:
    if job.spending.stops:
        return f"the run ends at {at} (`budget.exhausted` = 'stop')"
    if is_total or not job.spending.omits:
        return f"from {at} on every window is refused (`budget.exhausted`)"
    return (
        f"{at} is the first that leaves out a user present in every window, whose budget is used up, so from it on "
        "counts are too low and values those of the others, though such windows are 'released' (`participation` = "
        "'exhausted'; with `budget.exhausted` = 'refuse' or 'stop' they are not released)"
    )
