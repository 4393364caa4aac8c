"""One point per user and window: who sends a thousand records weighs as much as who sends one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from .errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY_BYTES = 16
_MOST_RECORDS = 2**22
"""Of one user and window, for a mean: sums of coordinates below 2**40 then stay below 2**62."""


def user_key(salt: bytes, name: str) -> bytes:
    """16 bytes that stand for a user wherever this salt (secret, at most 64 bytes) is used."""
    data = name.encode("utf-8", "surrogatepass")  # takes every text, and no two alike
    return hashlib.blake2b(data, digest_size=KEY_BYTES, key=salt).digest()


class UserPoints:
    """Records of open windows, reduced to one lattice point per user as they come.

    Parameters
    ----------
    dimension : int
    per_user : str
        ``first``: a user's earliest record of the window counts, by event time, then by lattice point. ``mean``: the
        mean of a user's records, rounded to the lattice, of at most 2**22 of them.

    Privacy
    -------
    What becomes of a user's records is a function of that user's records alone, and not of the order in which they are
    read, which other users' traffic may change. Nothing here depends on budgets: who has none left is taken out when
    the window closes, all at one moment.

    Complexity
    ----------
    O(1) a record; memory per user and open window, not per record.

    Source
    ------
    Contribution bounding; design note 5.3.
    """

    def __init__(self, dimension: int, per_user: str) -> None:
        if per_user not in ("first", "mean"):
            raise ConfigError(f"must be 'first' or 'mean', got {per_user!r}", "stream.per_user")
        self.dimension = dimension
        self._takes_mean = per_user == "mean"
        self._windows: dict[int, _Open] = {}

    def add(
        self, window: int, names: NDArray[np.object_], times_ms: NDArray[np.int64], points: NDArray[np.float64]
    ) -> None:
        """Take records of one window: names (m,) of str, event times (m,), lattice points (m, d)."""
        if len(names) == 0:
            return
        held = self._windows.setdefault(window, _Open(self.dimension))
        places = held.places
        at = np.array([places.setdefault(name, len(places)) for name in names.tolist()], np.int64)
        held.grow()
        if self._takes_mean:
            held.add(at, points.astype(np.int64))
        else:
            held.keep_first(at, times_ms, points.astype(np.int64))

    def read(self, window: int, salt: bytes) -> tuple[NDArray[np.bytes_], NDArray[np.float64]]:
        """Keys (n,) of a window's users, ascending, and their points (n, d) in that order."""
        held = self._windows.get(window)
        if held is None:
            return np.empty(0, f"S{KEY_BYTES}"), np.empty((0, self.dimension))
        n = len(held.places)
        keys = np.frombuffer(b"".join(user_key(salt, name) for name in held.places), f"S{KEY_BYTES}")
        order = np.argsort(keys, kind="stable")
        sums, counts = held.sums[:n][order], held.counts[:n][order]
        points = _nearest(sums, counts[:, None]) if self._takes_mean else sums
        return keys[order], points.astype(np.float64)

    def give(self, window: int) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
        """A window's users for somebody else's `enter`: names, sums (n, d) and numbers of records (n,)."""
        held = self._windows.get(window, _Open(self.dimension))
        n = len(held.places)
        return list(held.places), held.sums[:n], held.counts[:n]

    def enter(self, window: int, names: list[str], sums: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Take a whole window of somebody else's in place of what is held of it."""
        held = self._windows[window] = _Open(self.dimension)
        held.places = {name: i for i, name in enumerate(names)}
        held.sums, held.counts, held.times = sums, counts, np.zeros(len(names), np.int64)

    def forget_before(self, window: int) -> None:
        """Drop the records of earlier windows."""
        for old in [index for index in self._windows if index < window]:
            del self._windows[old]


class _Open:
    """Of one open window: where each user's sums stand."""

    def __init__(self, dimension: int) -> None:
        self.places: dict[str, int] = {}
        self.sums = np.zeros((0, dimension), np.int64)
        self.counts = np.zeros(0, np.int64)
        self.times = np.zeros(0, np.int64)

    def grow(self) -> None:
        """Room for all users known."""
        if len(self.places) > len(self.counts):
            more = max(len(self.places), 2 * len(self.counts)) - len(self.counts)
            self.sums = np.concatenate([self.sums, np.zeros((more, self.sums.shape[1]), np.int64)])
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
            self.times = np.concatenate([self.times, np.zeros(more, np.int64)])

    def keep_first(self, at: NDArray[np.int64], times: NDArray[np.int64], points: NDArray[np.int64]) -> None:
        """Keep each user's earliest record; of equally early ones the least point."""
        known = np.unique(at[self.counts[at] > 0])
        at = np.concatenate([at, known])
        times = np.concatenate([times, self.times[known]])
        points = np.concatenate([points, self.sums[known]])
        order = np.lexsort((*points.T[::-1], times, at))
        chosen = order[np.unique(at[order], return_index=True)[1]]
        self.times[at[chosen]], self.sums[at[chosen]] = times[chosen], points[chosen]
        self.counts[at[chosen]] = 1

    def add(self, at: NDArray[np.int64], points: NDArray[np.int64]) -> None:
        """Add points to the sums of their users, in order, until a user has as many as fit."""
        if int(self.counts[at].max()) + len(at) <= _MOST_RECORDS:
            np.add.at(self.counts, at, 1)
            np.add.at(self.sums, at, points)
            return
        for place, point in zip(at.tolist(), points, strict=True):
            if self.counts[place] < _MOST_RECORDS:
                self.counts[place] += 1
                self.sums[place] += point


def _nearest(numerators: NDArray[np.int64], denominators: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nearest integers of quotients (halves up)."""
    return np.asarray((2 * numerators + denominators) // (2 * denominators), np.int64)
