"""Up to which window of its schedule a stream is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..stream.admission import reject
from .first_window import FirstWindow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..config import Job
    from ..formats.batch import Batch
    from ..ledgers import Ledger, WindowKey
    from ..stream.admission import Admitted
    from ..stream.windows import Window


class Progress:
    """The first window without a release, and which records still have one to enter.

    Parameters
    ----------
    job : Job
    ledger : Ledger
    last : WindowKey or None
        The newest window that the ledger has sealed.

    Attributes
    ----------
    next : int
        Index of the first window that is not answered.
    replayed : int
        How many records lay in windows that were answered before this process started.
    """

    def __init__(self, job: Job, ledger: Ledger, last: WindowKey | None) -> None:
        self._job, self._ledger = job, ledger
        self._start = FirstWindow(job, ledger, last is not None)
        answered = 0 if last is None else job.schedule.index_after(last.open_ms)
        self._first = self.next = max(answered, self._start.index or 0)
        self.replayed = 0

    @property
    def answered_before(self) -> int:
        """How many windows of the schedule were answered before this process started."""
        return self._first - (self._start.index or 0)

    @property
    def next_open_ms(self) -> int:
        """Opening of the first window that is not answered."""
        return self._job.schedule.window(self.next).open_ms

    def begin(self, now_ms: int) -> bool:
        """See `FirstWindow.begin`."""
        if not self._start.begin(now_ms):
            return False
        self._first = self.next = self._start.index or 0
        return True

    def has_sealed(self, open_ms: int) -> bool:
        """Whether a window has its release, which another process may have sealed since this one started."""
        if open_ms < self.next_open_ms:
            return not self._start.skips(open_ms)
        last = self._ledger.last_sealed()
        return last is not None and last[0].open_ms >= open_ms

    def windows_due(self, now_ms: int | None, most: int) -> list[Window]:
        """The next windows that are over at a public time (None: all of a schedule with an end), `most` at most."""
        schedule = self._job.schedule
        due = schedule.count if now_ms is None else schedule.due(now_ms)
        return [schedule.window(index) for index in range(self.next, min(self.next + most, due or 0))]

    def open_rows(self, batch: Batch, admitted: Admitted) -> NDArray[np.bool_]:
        """Which rows of a batch may enter a window that is not answered (n,); the others are rejected, or replayed."""
        fine, last, rejections = admitted.fine, admitted.last, admitted.rejections
        closed = fine & (last < self.next)
        if closed.any():
            skipped = closed & (last < (self._start.index or 0))
            reject(rejections, skipped, batch, "time_out_of_range")
            # A replayed record is no fault: its window was answered before this process started.
            self.replayed += int(np.count_nonzero(closed & ~skipped & (last < self._first)))
            reject(rejections, closed & (last >= self._first), batch, "window_closed")
        return fine & ~closed
