"""Reduces the records of each user and window to a few different texts, so that no user counts more often."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from ..formats.plain_columns import as_objects
from .contributions import KEY_BYTES, UserWindows, user_key


class _Chosen:
    """The texts of one user in one window that have the least hashes.

    Attributes
    ----------
    prefix : bytes
        What the hash takes before the text: window and user, which cannot run into each other or into the text, since
        they have fixed lengths.
    ranks : dict
        Hash of each text.
    last : (bytes, str) or None
        The one that the next better text displaces; None while there is room.
    """

    __slots__ = ("last", "prefix", "ranks")

    def __init__(self, prefix: bytes) -> None:
        self.prefix, self.ranks = prefix, dict[str, bytes]()
        self.last: tuple[bytes, str] | None = None

    def take(self, text: str, rank: bytes, most: int) -> None:
        """Keep a text that is not kept yet, unless there are `most` better ones."""
        if self.last is not None:
            if (rank, text) > self.last:
                return
            del self.ranks[self.last[1]]
        self.ranks[text] = rank
        if len(self.ranks) == most:
            self.last = max(zip(self.ranks.values(), self.ranks, strict=True))


class UserValues(UserWindows[dict[str, _Chosen]]):
    """Keeps at most so many different texts for each user and open window, chosen by a keyed hash.

    Parameters
    ----------
    per_user : int or None
        Most texts of a user in a window; None keeps all, for another instance to choose among.
    secret : bytes
        Secret key of the hash, at most 64 bytes.

    Privacy
    -------
    The texts of a user with the smallest hashes of (window, user, text) are kept: a function of that user's own records
    and of the key, whatever others send, and in whatever order records are read.

    Complexity
    ----------
    A hash for each text of a user that is not kept already and does not come twice in a batch, and O(per_user) if it
    displaces another; memory per user and open window.

    Source
    ------
    Specification 5.12; proof 6.6; contribution bounding.
    """

    def __init__(self, per_user: int | None, secret: bytes) -> None:
        super().__init__()
        self._per_user, self._secret = per_user, secret

    def names(self, window: int) -> Collection[str]:
        return self._windows.get(window, {})

    def add(
        self, window: int, names: NDArray[np.object_], times_ms: NDArray[np.int64], points: NDArray[np.object_]
    ) -> None:
        """Add records of one window: names (m,) of str, event times (m,), texts (m,)."""
        if len(names) == 0 or window in self._flooded:
            return
        users = self._windows.setdefault(window, {})
        begin, at = hashlib.blake2b(digest_size=16, key=self._secret).copy, _window_bytes(window)
        for name, text in dict.fromkeys(zip(names.tolist(), points.tolist(), strict=True)):
            chosen = users.get(name)
            if chosen is None:
                chosen = users[name] = _Chosen(at + user_key(self._secret, name))
            if self._per_user is None:
                chosen.ranks[text] = b""
            elif text not in chosen.ranks:
                hashed = begin()  # a copy of a hash that has its key costs less than a new one
                hashed.update(chosen.prefix + text.encode("utf-8", "surrogatepass"))
                chosen.take(text, hashed.digest(), self._per_user)

    def read(self, window: int, secret: bytes) -> tuple[NDArray[np.bytes_], NDArray[np.object_] | None]:
        """Return the keys (n,) of a window's users, ascending, and a tuple of texts (n,) of each, None if flooded."""
        if window in self._flooded:
            return np.empty(0, f"S{KEY_BYTES}"), None
        users, skip = self._windows.get(window, {}), len(_window_bytes(window))
        if secret == self._secret:
            found = b"".join(chosen.prefix[skip:] for chosen in users.values())
        else:
            found = b"".join(user_key(secret, name) for name in users)
        keys = np.frombuffer(found, f"S{KEY_BYTES}")
        texts = np.empty(len(users), np.object_)
        for i, chosen in enumerate(users.values()):
            texts[i] = tuple(sorted(chosen.ranks))
        order = np.argsort(keys, kind="stable")
        return keys[order], texts[order]

    def give(self, window: int) -> tuple[list[str], list[tuple[str, ...]]]:
        """Export a window for the `enter` of another instance: names, and the texts of each."""
        users = self._windows.get(window, {})
        return list(users), [tuple(chosen.ranks) for chosen in users.values()]

    def enter(self, window: int, names: list[str], texts: list[tuple[str, ...]]) -> None:
        """Import a whole window that another instance exported, replacing any records of that window."""
        self._flooded.discard(window)
        self._windows.pop(window, None)
        each = [name for name, own in zip(names, texts, strict=True) for _ in own]
        self.add(window, as_objects(each), np.zeros(len(each), np.int64), as_objects([t for own in texts for t in own]))


def _window_bytes(window: int) -> bytes:
    return window.to_bytes(8, "big", signed=True)
