"""Records of windows that have no release yet, as far as releases need them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..config import Job
from ..formats.batch import Batch, SeenPositions
from ..ledgers import Ledger
from ..releases.base import Counter
from ..stream.admission import Admitted
from ..stream.contributions import UserPoints
from ..stream.waiting_records import LateRecords
from ..stream.windows import group_by_pane

ChargedUsers = tuple["NDArray[np.bytes_]", "NDArray[np.float64] | None"]
"""Keys of a window's users and one point for each, if the window was not flooded."""


class OpenRecords:
    """Counts records pane by pane, or keeps one point for each user, until their windows have a release.

    Parameters
    ----------
    job : Job
    ledger : Ledger
        Knows which users are certain to have room for a window's loss.
    counter : Counter
    users : UserPoints or None
        Given with the unit ``user`` only.

    Attributes
    ----------
    counter : Counter
    is_broken : bool
        Counting has failed: which records were counted is unknown, and counting one twice would break the guarantee.
    """

    def __init__(self, job: Job, ledger: Ledger, counter: Counter, users: UserPoints | None) -> None:
        self._job, self._ledger = job, ledger
        self.counter, self._users = counter, users
        self._late = LateRecords(job.grid.dimension, None if job.gate is None else job.gate.max_held)
        self._seen = SeenPositions()
        self._next_user_check: dict[int, int] = {}  # by window, the number of users at which it is checked again
        self.is_broken = False

    @property
    def is_empty(self) -> bool:
        """Return whether no record is kept."""
        return not self.counter.panes and self._late.is_empty and (self._users is None or self._users.is_empty)

    def duplicates(self, batch: Batch) -> NDArray[np.bool_]:
        """Mark the rows (n,) of a batch whose position was added before."""
        return ~self._seen.fresh(batch.positions)

    def add(
        self, batch: Batch, admitted: Admitted, rows: NDArray[np.bool_], next_window: int, *, identified: bool
    ) -> None:
        """Add some rows (n,) of a batch.

        Parameters
        ----------
        batch : Batch
        admitted : Admitted
        rows : bool (n,)
        next_window : int
            Windows before this one have a release.
        identified : bool
            Note the positions of the whole batch as seen.
        """
        self.is_broken = True  # until all are added; not by a context manager, which takes as long as a small batch
        if identified:
            self._seen.add(batch.positions)
        if self._users is not None and batch.users is not None:
            self._add_users(self._users, batch, admitted, rows, next_window)
        else:
            self._count(admitted, rows, next_window)
        self.is_broken = False

    def add_late(self, window: int) -> None:
        """Count the late records that are in time for a window."""
        self.is_broken = True
        for pane, points in self._late.take(window):
            self.counter.add(pane, points)
        self.is_broken = False

    def users(self, window: int) -> ChargedUsers | None:
        """Return the users of a window, with the unit ``user``."""
        return None if self._users is None else self._users.read(window, self._ledger.salt)

    def view(self, panes: range, users: ChargedUsers | None, admitted: NDArray[np.bool_] | None) -> object:
        """Return what a mechanism reads of a window; with the unit ``user``, one point for each user whom the ledger
        admitted.
        """
        self.is_broken = True
        if users is not None and admitted is not None:
            self.counter.drop(panes[0])  # left from an earlier try
            self.counter.add(panes[0], self._points_of(users, admitted))
        view = self.counter.view(panes)
        self.is_broken = False
        return view

    def forget_before(self, window: int) -> None:
        """Drop the panes that neither this window nor a later one covers."""
        schedule = self._job.schedule
        for pane in self.counter.panes:
            if schedule.last_window_of_pane(pane) < window:
                self.counter.drop(pane)
        if self._users is not None:
            self._users.forget_before(window)
            self._next_user_check = {index: size for index, size in self._next_user_check.items() if index >= window}

    def _count(self, admitted: Admitted, rows: NDArray[np.bool_], next_window: int) -> None:
        # These records are late for an open window, but in time for a later one that shares its pane.
        late = rows & (admitted.first > np.maximum(admitted.covering, next_window))
        if late.any():
            self._late.add(admitted.first[late], admitted.panes[late], admitted.points[late])
            rows = rows & ~late
        panes, points = admitted.panes, admitted.points
        if not rows.all():
            panes, points = panes[rows], points[rows]
        for pane, part in group_by_pane(panes):
            self.counter.add(pane, points[part])

    def _add_users(
        self, users: UserPoints, batch: Batch, admitted: Admitted, rows: NDArray[np.bool_], next_window: int
    ) -> None:
        """Add records to every window that each of them may enter, since a user has one point in each window."""
        first, last = np.maximum(admitted.first, next_window), admitted.last
        for offset in range(self._job.schedule.overlap):
            windows = first + offset
            here = np.flatnonzero(rows & (windows <= last))
            for window, part in group_by_pane(windows[here]):
                those = here[part]
                assert batch.users is not None
                users.add(window, batch.users[those], batch.times_ms[those], admitted.points[those])
                self._limit_users(users, window, next_window)

    def _limit_users(self, users: UserPoints, window: int, next_window: int) -> None:
        """Drop the points of a window that is certain to have too many users when it closes.

        Only users count here who have room for all that the ledger can charge until then, so neither which points are
        dropped nor when changes a release. All users count when the window closes.
        """
        gate = self._job.gate
        if gate is None or users.size(window) < self._next_user_check.get(window, gate.max_held + 1):
            return
        keys, _ = users.read(window, self._ledger.salt)
        if self._job.spending.savings is None:
            most = self._job.mechanism.loss * (window - next_window + 1)
            if np.count_nonzero(self._ledger.has_room(keys, most)) > gate.max_held:
                users.flood(window, self._ledger.salt)
        self._next_user_check[window] = 2 * len(keys)

    def _points_of(self, users: ChargedUsers, admitted: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the points of the users who take part. For a window whose points were dropped, only their number
        matters.
        """
        if users[1] is not None:
            return users[1][admitted]
        assert self._job.gate is not None
        # The ledger has admitted all who were certain to have room, which is enough to refuse the window.
        size = max(int(np.count_nonzero(admitted)), self._job.gate.max_held + 1)
        return np.broadcast_to(0.0, (size, self._job.grid.dimension))
