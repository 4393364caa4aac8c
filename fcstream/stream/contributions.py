"""Reduces the records of each user and window to one contribution, so that all users weigh the same."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .lattice import MAX_COORDINATE
from .totals import rows_within

KEY_BYTES = 16
_EXACT = 2**53 - 1
_LARGE = 2**61
"""A sum of this size is continued in Python integers."""
_TOGETHER = rows_within(MAX_COORDINATE) // 2
"""Records that are added at a time: a sum below `_LARGE` then stays below 2**62, all of one user too."""
T = TypeVar("T")


def user_key(secret: bytes, name: str) -> bytes:
    """Hash a user's name to a key of 16 bytes, with a secret of at most 64 bytes."""
    data = name.encode("utf-8", "surrogatepass")  # encodes every text, and different texts differently
    return hashlib.blake2b(data, digest_size=KEY_BYTES, key=secret).digest()


class UserWindows(Generic[T]):
    """Something of the users of each open window; of a flooded window, which has too many users, nothing.

    Privacy
    -------
    NOT private.

    Source
    ------
    Specification 8.3, 10.2; proof 2.7; ours.
    """

    def __init__(self) -> None:
        self._windows: dict[int, T] = {}
        self._flooded: set[int] = set()

    def names(self, window: int) -> Collection[str]:
        """Return the names of a window's users, if it is not flooded."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Whether no window has a record."""
        return not self._windows and not self._flooded

    def size(self, window: int) -> int:
        """Return how many users of a window are kept with more than their keys."""
        return len(self.names(window))

    def flood(self, window: int) -> None:
        """Drop what is kept of a window, now and later."""
        self._windows.pop(window, None)
        self._flooded.add(window)

    def forget_before(self, window: int) -> None:
        """Drop the records of earlier windows."""
        self._windows = {index: held for index, held in self._windows.items() if index >= window}
        self._flooded = {index for index in self._flooded if index >= window}


class UserPoints(UserWindows["_Open"]):
    """Reduces records of open windows to one lattice point per user and window, on arrival.

    Parameters
    ----------
    dimension : int
    per_user : str
        ``first``: a user's earliest record of the window counts, by event time, then by lattice point. ``mean``: the
        mean of all of a user's records, rounded to the lattice. ``sum``: the sum of all of a user's records, clipped
        once, when it is read, to coordinates that a float64 holds exactly.

    Privacy
    -------
    A user's point is a function of that user's records alone. It does not depend on the order in which records are
    read, which other users' traffic may change.

    Complexity
    ----------
    O(1) a record; memory per user and open window, not per record.

    Source
    ------
    Specification 8.3, 10.3; proof 2.4; contribution bounding.
    """

    def __init__(self, dimension: int, per_user: str) -> None:
        if per_user not in ("first", "mean", "sum"):
            raise ConfigError("must be 'first', 'mean' or 'sum'", "stream.per_user", got=per_user)
        super().__init__()
        self.dimension = dimension
        self._per_user = per_user

    def names(self, window: int) -> Collection[str]:
        return self._windows[window].slots if window in self._windows else ()

    def add(
        self, window: int, names: NDArray[np.object_], times_ms: NDArray[np.int64], points: NDArray[np.float64]
    ) -> None:
        """Add records of one window: names (m,) of str, event times (m,), lattice points (m, d)."""
        if len(names) == 0 or window in self._flooded:
            return
        held = self._windows.setdefault(window, _Open(self.dimension))
        slots = held.slots
        at = np.array([slots.setdefault(name, len(slots)) for name in names.tolist()], np.int64)
        held.grow()
        if self._per_user == "first":
            held.keep_first(at, times_ms, points.astype(np.int64))
        else:
            held.add(at, points.astype(np.int64))

    def read(self, window: int, secret: bytes) -> tuple[NDArray[np.bytes_], NDArray[np.float64] | None]:
        """Return the keys (n,) of a window's users, ascending, and their points (n, d), None if it was flooded."""
        if window in self._flooded:
            return np.empty(0, f"S{KEY_BYTES}"), None
        held = self._windows.get(window)
        if held is None:
            return np.empty(0, f"S{KEY_BYTES}"), np.empty((0, self.dimension))
        keys = np.frombuffer(b"".join(user_key(secret, name) for name in held.slots), f"S{KEY_BYTES}")
        order = np.argsort(keys, kind="stable")
        points = {"first": held.firsts, "mean": held.means, "sum": held.totals}[self._per_user]()
        return keys[order], points[order].astype(np.float64)

    def give(self, window: int) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64], dict[int, list[int]]]:
        """Export a window for the `enter` of another instance: names, sums (n, d), numbers of records (n,), wide sums.

        The wide sums, by the user's index, are to be added to the sums of users with very many records.
        """
        held = self._windows.get(window, _Open(self.dimension))
        n = len(held.slots)
        return list(held.slots), held.sums[:n], held.counts[:n], held.wide

    def enter(
        self,
        window: int,
        names: list[str],
        sums: NDArray[np.int64],
        counts: NDArray[np.int64],
        wide: dict[int, list[int]],
    ) -> None:
        """Import a whole window that another instance exported, replacing any records of that window."""
        self._flooded.discard(window)
        held = self._windows[window] = _Open(self.dimension)
        held.slots = {name: i for i, name in enumerate(names)}
        held.sums, held.counts, held.times, held.wide = sums, counts, np.zeros(len(names), np.int64), wide


class _Open:
    """The sums of each user of one open window."""

    def __init__(self, dimension: int) -> None:
        self.slots: dict[str, int] = {}
        self.sums = np.zeros((0, dimension), np.int64)
        self.counts = np.zeros(0, np.int64)
        self.times = np.zeros(0, np.int64)
        self.wide: dict[int, list[int]] = {}  # sums of earlier records, for users with very many records

    def grow(self) -> None:
        """Make room for all known users."""
        if len(self.slots) > len(self.counts):
            more = max(len(self.slots), 2 * len(self.counts)) - len(self.counts)
            self.sums = np.concatenate([self.sums, np.zeros((more, self.sums.shape[1]), np.int64)])
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
            self.times = np.concatenate([self.times, np.zeros(more, np.int64)])

    def keep_first(self, at: NDArray[np.int64], times: NDArray[np.int64], points: NDArray[np.int64]) -> None:
        """Keep each user's earliest record; among equally early ones the least point."""
        known = np.unique(at[self.counts[at] > 0])
        at = np.concatenate([at, known])
        times = np.concatenate([times, self.times[known]])
        points = np.concatenate([points, self.sums[known]])
        order = np.lexsort((*points.T[::-1], times, at))
        chosen = order[np.unique(at[order], return_index=True)[1]]
        self.times[at[chosen]], self.sums[at[chosen]] = times[chosen], points[chosen]
        self.counts[at[chosen]] = 1

    def add(self, at: NDArray[np.int64], points: NDArray[np.int64]) -> None:
        """Add points to the sums of their users, exactly for any number of points."""
        np.add.at(self.counts, at, 1)
        for first in range(0, len(at), _TOGETHER):
            here = at[first : first + _TOGETHER]
            np.add.at(self.sums, here, points[first : first + _TOGETHER])
            large = here[(np.abs(self.sums[here]) >= _LARGE).any(axis=1)]
            for index in np.unique(large).tolist():
                before = self.wide.get(index, [0] * points.shape[1])
                self.wide[index] = [a + b for a, b in zip(before, self.sums[index].tolist(), strict=True)]
                self.sums[index] = 0

    def firsts(self) -> NDArray[np.int64]:
        """Return each user's earliest point."""
        return self.sums[: len(self.slots)]

    def totals(self) -> NDArray[np.int64]:
        """Return each user's sum, clipped to [-`_EXACT`, `_EXACT`]."""
        found = np.clip(self.sums[: len(self.slots)], -_EXACT, _EXACT)
        for index, before in self.wide.items():
            sums = self.sums[index].tolist()
            found[index] = [min(max(a + b, -_EXACT), _EXACT) for a, b in zip(before, sums, strict=True)]
        return found

    def means(self) -> NDArray[np.int64]:
        """Return each user's mean, rounded to the nearest integers (halves up)."""
        n = len(self.slots)
        found = _nearest(self.sums[:n], self.counts[:n, None])
        for index, before in self.wide.items():
            records, sums = int(self.counts[index]), self.sums[index].tolist()
            found[index] = [(2 * (a + b) + records) // (2 * records) for a, b in zip(before, sums, strict=True)]
        return found


def _nearest(numerators: NDArray[np.int64], denominators: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the integers nearest to quotients (halves up), for positive denominators, without integer overflow."""
    whole = numerators // denominators
    rest = numerators - whole * denominators
    return np.asarray(whole + (rest >= denominators - rest), np.int64)
