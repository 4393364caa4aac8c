"""Users of open windows, for answers that choose records or combine a user's records in different ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .contributions import UserPoints
from .selection import Rows
from .user_values import UserValues


class GroupUsers(NamedTuple):
    """The users of a window who belong to one group.

    Attributes
    ----------
    at : int64 (k,)
        Their places among all users of the window, ascending.
    points : float64 (k, d), or object (k,), or None
        One point, or a tuple of texts, for each; None if the group was flooded.
    """

    at: NDArray[np.int64]
    points: NDArray[Any] | None


class WindowUsers(NamedTuple):
    """The users of a window: keys (n,), ascending, and the users of each group."""

    keys: NDArray[np.bytes_]
    groups: tuple[GroupUsers, ...]


class UserGroups:
    """Reduces records to one point for each user, window and group of answers.

    Parameters
    ----------
    dimension : int
    rows : sequence of Rows
        For each group, which records belong to it, and what a user's point is made of.

    Attributes
    ----------
    groups : list of UserPoints or UserValues

    Privacy
    -------
    A user's points are functions of that user's records alone. A user is charged for a window in which any group has a
    record of theirs.

    Source
    ------
    Specification 8.3, 8.8; proofs 2.4, 2.13.
    """

    def __init__(self, dimension: int, rows: Sequence[Rows]) -> None:
        self._rows = tuple(rows)
        self.groups: list[Any] = [UserPoints(dimension, each.per_user) for each in rows]

    @property
    def is_empty(self) -> bool:
        """Whether no window has a record."""
        return all(group.is_empty for group in self.groups)

    def keep_texts(self, secret: bytes | None) -> None:
        """Keep texts for the groups that read them, chosen by hashes with a secret; without one, all."""
        for i, rows in enumerate(self._rows):
            if rows.text is not None:
                self.groups[i] = UserValues(None if secret is None else rows.text.per_user, secret or b"")

    def add(
        self,
        window: int,
        names: NDArray[np.object_],
        times_ms: NDArray[np.int64],
        points: NDArray[np.float64],
        texts: Mapping[str, NDArray[np.object_]],
    ) -> None:
        """Add records of one window: names (m,) of str, event times (m,), points (m, d), texts (m,) by feature."""
        for rows, group in zip(self._rows, self.groups, strict=True):
            marks = rows.mark(points)
            mine = points if rows.text is None else texts[rows.text.feature]
            if marks is None:
                group.add(window, names, times_ms, mine)
            elif marks.any():
                group.add(window, names[marks], times_ms[marks], mine[marks])

    def read(self, window: int, secret: bytes) -> WindowUsers:
        """Return the users of a window."""
        found = [group.read(window, secret) for group in self.groups]
        if len(found) == 1:
            keys, points = found[0]
            return WindowUsers(keys, (GroupUsers(np.arange(len(keys)), points),))
        keys = np.unique(np.concatenate([own for own, _ in found]))
        return WindowUsers(
            keys, tuple(GroupUsers(np.searchsorted(keys, own).astype(np.int64), points) for own, points in found)
        )

    def give(self, window: int) -> list[tuple[Any, ...]]:
        """Export a window for the `enter` of another instance, group by group."""
        return [group.give(window) for group in self.groups]

    def enter(self, window: int, given: Sequence[tuple[Any, ...]]) -> None:
        """Import a whole window that another instance exported, replacing any records of that window."""
        for group, part in zip(self.groups, given, strict=True):
            group.enter(window, *part)

    def forget_before(self, window: int) -> None:
        """Drop the records of earlier windows."""
        for group in self.groups:
            group.forget_before(window)
