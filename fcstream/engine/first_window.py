"""First window of a live stream, fixed once by a public clock and kept in the ledger.

Windows before it are skipped, not refused one by one. The arrival of the first record does not decide it, because then
one record could move the window with which releases begin.
"""

from __future__ import annotations

import time

from ..config import Job
from ..errors import LedgerDamaged
from ..ledgers import Ledger


class FirstWindow:
    """First window of one stream, or of the stream of one key.

    Parameters
    ----------
    job : Job
    ledger : Ledger
    is_answered : bool
        Whether some window has its release already.
    index : int, optional
        The first window, if it was decided elsewhere.

    Attributes
    ----------
    index : int or None
        The first window that is released; None until the stream's clock is known. For files always the first one of
        the schedule.

    Privacy
    -------
    Depends on the configuration and on two public times: when this object was made, by this machine's clock, and the
    first time that is given to `begin`.

    Source
    ------
    Specification 13.3; proof 11.3; ours.
    """

    def __init__(self, job: Job, ledger: Ledger, is_answered: bool, index: int | None = None) -> None:
        self._job, self._ledger = job, ledger
        # Keys that are added later begin later, so each key has a name of its own for what the sibling streams share.
        self._made_ms = time.time_ns() // 1_000_000
        self._name = "first window" if job.key is None else f"first window of key {job.key}"
        self.index = 0 if index is None and job.clock == "eof" else index
        if self.index is None:
            kept = ledger.setting(self._name)
            self.index = self._index(kept) if kept is not None else 0 if is_answered else None

    def begin(self, now_ms: int) -> bool:
        """Fix the first window; returns False if it was known already.

        It is the window that was open when this object was made, or at the public time `now_ms` if that is earlier;
        with clock ``wall`` the one at `now_ms`, since this machine's clock may have jumped (`WallClock`).
        """
        proposed = self.propose(now_ms)
        if proposed is not None:
            self.fix(self._ledger.keep_setting(*proposed))
        return proposed is not None

    def propose(self, now_ms: int) -> tuple[str, str] | None:
        """Return the setting of the ledger, name and value, that fixes the first window; None if it is known."""
        if self.index is not None:
            return None
        schedule = self._job.schedule
        begin_ms = now_ms if self._job.clock == "wall" else min(self._made_ms, now_ms)
        first = schedule.window(schedule.first_open(begin_ms - self._job.backlog_ms))
        return self._name, str(first.open_ms)

    def fix(self, kept: str) -> None:
        """Take over what the ledger keeps."""
        self.index = self._index(kept)

    def skips(self, open_ms: int) -> bool:
        """Return whether a window lies before the first one."""
        return open_ms < self._job.schedule.window(self.index or 0).open_ms

    def _index(self, kept: str) -> int:
        try:
            return self._job.schedule.index_after(int(kept)) - 1
        except ValueError:
            raise LedgerDamaged(
                f"the ledger's setting {self._name!r} is no time", remedy="`fcstream budget verify`"
            ) from None
