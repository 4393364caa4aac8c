"""Records of windows that have no release yet, as far as releases need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..config import Job
from ..formats.batch import Batch, SeenPositions
from ..ledgers import Ledger
from ..ledgers.user_key import fresh_key
from ..noise.samplers import Noise
from ..releases.answers import AnswerCounters, Answers, groups_of
from ..releases.base import Counter
from ..stream.admission import Admitted
from ..stream.selection import Rows, with_codes
from ..stream.user_groups import GroupUsers, UserGroups, WindowUsers
from ..stream.waiting_records import LateRecords
from ..stream.windows import group_by_pane

CounterFactory = Callable[[Job, Answers, Noise], tuple[Counter, "UserGroups | None"]]
"""Makes the counters of a job's open windows, for the answers of the next one: of all records, and, with the unit
``user``, of one point for each user.
"""


def default_counters(job: Job, answers: Answers, noise: Noise) -> tuple[Counter, UserGroups | None]:
    """Make the counters of an engine whose records are pushed."""
    users = UserGroups(job.width, groups_of(answers)) if job.terms.unit == "user" else None
    return answers.counter(job.grid.dimension, job.schedule.reach, noise), users


class OpenRecords:
    """Counts records pane by pane, or keeps one point for each user, until their windows have a release.

    Parameters
    ----------
    job : Job
    ledger : Ledger
    counter : Counter
    users : UserGroups or None
        Given with the unit ``user`` only.
    noise : Noise
        Where the users of one key are not known by the key of them all, it draws what their names are hashed with.

    Attributes
    ----------
    counter : Counter
    is_broken : bool
        Counting has failed: which records were counted is unknown, and counting one twice would break the guarantee.
    """

    def __init__(self, job: Job, ledger: Ledger, counter: Counter, users: UserGroups | None, noise: Noise) -> None:
        self._job, self._secret = job, b""
        self.counter, self._users = counter, users
        if users is not None:
            self._secret = getattr(ledger, "user_secret", None) or fresh_key(noise)
            users.keep_texts(self._secret)
        self._late = LateRecords(job.width, job.answers.max_waiting)
        self._seen = SeenPositions()
        self._max_held = _max_users_held(job)
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
            self._count(batch, admitted, rows, next_window)
        self.is_broken = False

    def add_counted(self, groups: Sequence[tuple[int, NDArray[np.float64], dict[str, NDArray[np.object_]]]]) -> None:
        """Add records that may enter a window and are late for none, as pane, points (n, d) and texts (n,)."""
        self.is_broken = True
        for group in groups:
            self._count_in(*group)
        self.is_broken = False

    @property
    def has_late(self) -> bool:
        """Return whether records wait for a later window than the first that covers their pane."""
        return not self._late.is_empty

    def add_late(self, window: int) -> None:
        """Count the late records that are in time for a window."""
        self.is_broken = True
        for late in self._late.take(window):
            self._count_in(*late)
        self.is_broken = False

    def users(self, window: int) -> WindowUsers | None:
        """Return the users of a window, with the unit ``user``."""
        return None if self._users is None else self._users.read(window, self._secret)

    def view(self, panes: range, users: WindowUsers | None, mask: NDArray[np.bool_] | None) -> object:
        """Return what a mechanism reads of a window; with the unit ``user``, one point for each user whom the mask (n,)
        marks. There is no mask that is left out: it does not mean everybody.

        Raises
        ------
        RuntimeError
            The mask does not fit the users.
        """
        if (users is None) != (mask is None) or (
            users is not None and mask is not None and len(users.keys) != len(mask)
        ):
            raise RuntimeError("who of a window's users takes part was not decided")
        self.is_broken = True
        if users is not None and mask is not None:
            self.counter.drop(panes[0])  # left from an earlier try
            for group, members in enumerate(users.groups):
                points = self._points_of(group, members, mask)
                if self._job.answers.is_simple:
                    self.counter.add(panes[0], points)
                else:
                    cast("AnswerCounters", self.counter).add_to(group, panes[0], points)
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

    def read(self, batch: Batch, admitted: Admitted) -> tuple[NDArray[np.float64], dict[str, NDArray[np.object_]]]:
        """Return what answers read of a batch: lattice points (n, d) with the codes of texts, and texts (n,)."""
        points = with_codes(admitted.points, self._job.text_codes, batch.texts)
        return points, {name: batch.texts[name] for name in self._job.texts}

    def _count(self, batch: Batch, admitted: Admitted, rows: NDArray[np.bool_], next_window: int) -> None:
        # These records are late for an open window, but in time for a later one that shares its pane.
        late = rows & (admitted.first > np.maximum(admitted.covering, next_window))
        panes, (points, texts) = admitted.panes, self.read(batch, admitted)
        if late.any():
            waiting = {name: column[late] for name, column in texts.items()}
            self._late.add(admitted.first[late], panes[late], points[late], waiting)
            rows = rows & ~late
        if not rows.all():
            panes, points = panes[rows], points[rows]
            texts = {name: column[rows] for name, column in texts.items()}
        for pane, part in group_by_pane(panes):
            self._count_in(pane, points[part], {name: column[part] for name, column in texts.items()})

    def _count_in(self, pane: int, points: NDArray[np.float64], texts: dict[str, NDArray[np.object_]]) -> None:
        if texts:
            cast("AnswerCounters", self.counter).add(pane, points, texts)
        else:
            self.counter.add(pane, points)

    def _add_users(
        self, users: UserGroups, batch: Batch, admitted: Admitted, rows: NDArray[np.bool_], next_window: int
    ) -> None:
        """Add records to every window that each of them may enter, since a user has one point in each window."""
        first, last = np.maximum(admitted.first, next_window), admitted.last
        points, texts = self.read(batch, admitted)
        for offset in range(self._job.schedule.overlap):
            windows = first + offset
            here = np.flatnonzero(rows & (windows <= last))
            for window, part in group_by_pane(windows[here]):
                those = here[part]
                assert batch.users is not None
                mine = {name: column[those] for name, column in texts.items()}
                users.add(window, batch.users[those], batch.times_ms[those], points[those], mine)
                for group in range(len(users.groups)):
                    self._limit_users(users, group, window)

    def _limit_users(self, users: UserGroups, group: int, window: int) -> None:
        """Drop a group's users of a window that has too many of them, which all its answers refuse.

        Everybody takes part, so the number of users can only grow. With one filter for all keys some of a key's users
        may count under others, and who does is not known before the close: then nothing is dropped.
        """
        held = self._max_held[group]
        if held is not None and self._job.keys_chosen is None and users.groups[group].size(window) > held:
            users.groups[group].flood(window)

    def _points_of(self, group: int, members: GroupUsers, mask: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the points of a group's users who take part; of one that was dropped, as many as are too many."""
        if members.points is not None:
            return members.points[mask[members.at]]
        held = self._max_held[group]
        assert held is not None
        return np.broadcast_to(0.0, (held + 1, self._job.width))


def _max_users_held(job: Job) -> list[int | None]:
    """Return for each group of answers the number of users of which more are refused by all of them; None without a
    bound.
    """
    held: dict[Rows, list[int | None]] = {}
    for answer in job.answers:
        held.setdefault(answer.selection.rows, []).append(answer.max_held)
    return [None if None in mine else max(size for size in mine if size is not None) for mine in held.values()]
