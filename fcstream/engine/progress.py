"""Progress of a stream: up to which window of its schedule there are releases."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import Job
from ..formats.batch import Batch
from ..ledgers import Ledger, WindowKey
from ..stream.admission import Admitted, reject
from ..stream.windows import Window
from .first_window import FirstWindow

LOG = logging.getLogger("fcstream.engine")


class Progress:
    """Tracks the first window without a release, and which records may still enter a window.

    Parameters
    ----------
    job : Job
    ledger : Ledger
    last : WindowKey or None
        The newest window that the ledger has sealed.
    first : int, optional
        Index of the first window, if it was decided elsewhere.

    Attributes
    ----------
    next : int
        Index of the first window without a release.
    replayed : int
        Number of records in windows that had a release before this process started.
    """

    def __init__(self, job: Job, ledger: Ledger, last: WindowKey | None, first: int | None = None) -> None:
        self._job, self._ledger = job, ledger
        self._start = FirstWindow(job, ledger, last is not None, first)
        self._is_reported = first is not None
        answered = 0 if last is None else job.schedule.index_after(last.open_ms)
        self._first = self.next = max(answered, self._start.index or 0)
        self.replayed = 0
        self._early = Counter[int]()  # records that came before the first window was fixed, by their last window

    @property
    def answered_before(self) -> int:
        """Number of the schedule's windows that had a release before this process started."""
        return max(0, self._first - (self._start.index or 0))

    @property
    def next_open_ms(self) -> int:
        """Opening of the first window without a release."""
        return self._job.schedule.window(self.next).open_ms

    def propose(self, now_ms: int) -> tuple[str, str] | None:
        """See `FirstWindow.propose`."""
        return self._start.propose(now_ms)

    def fix(self, kept: str) -> int:
        """See `FirstWindow.fix`; returns how many records have come that lie in windows before the first one."""
        self._start.fix(kept)
        self._first = self.next = self._start.index or 0
        skipped = sum(records for last, records in self._early.items() if last < self.next)
        self._early.clear()
        return skipped

    def skip_to(self, index: int) -> None:
        """Leave out the windows before this one that have no release: they never have one."""
        self.next = max(self.next, index)

    def has_sealed(self, open_ms: int) -> bool:
        """Return whether a window has its release, which another process may have sealed since this one started."""
        if open_ms < self.next_open_ms and not self._is_reported:  # else windows before the first one may have releases
            return not self._start.skips(open_ms)
        last = self._ledger.last_sealed()
        return last is not None and last[0].open_ms >= open_ms

    def windows_due(self, now_ms: int | None, most: int) -> list[Window]:
        """List the next windows that are due at a public time (None: all of a schedule with an end), at most `most`."""
        schedule = self._job.schedule
        due = schedule.count if now_ms is None else schedule.due(now_ms)
        return [schedule.window(index) for index in range(self.next, min(self.next + most, due or 0))]

    def open_rows(self, batch: Batch, admitted: Admitted) -> NDArray[np.bool_]:
        """Mark the rows (n,) of a batch that may enter a window without a release; the others are rejected, or
        replayed.
        """
        fine, last, rejections = admitted.fine, admitted.last, admitted.rejections
        closed = fine & (last < self.next)
        if closed.any():
            skipped = closed & (last < (self._start.index or 0))
            reject(rejections, skipped, batch, "time_out_of_range")
            # A replayed record is not an error: its window had a release before this process started.
            self.replayed += int(np.count_nonzero(closed & ~skipped & (last < self._first)))
            reject(rejections, closed & (last >= self._first), batch, "window_closed")
        if self._start.index is None:
            self._early.update(last[fine].tolist())
        return fine & ~closed

    def note_counted(self, groups: Iterable[tuple[int, NDArray[np.float64], Any]]) -> None:
        """Note records that come pane by pane, found to be in time elsewhere."""
        if self._start.index is None:
            for pane, points, _ in groups:
                self._early[self._job.schedule.last_window_of_pane(pane)] += len(points)


def warn_of_loss(stream: str, replay_from: int) -> None:
    """Warn that records of open windows are lost."""
    LOG.warning(
        "stream %r: closed before all windows were over: the records of those that are open are lost, unless a "
        "new engine is given them again: push what lies at event time %d (`replay_from`) or later",
        stream,
        replay_from,
    )
