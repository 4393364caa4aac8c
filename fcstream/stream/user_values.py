"""Reduces the records of each user and window to a few different texts, so that no user counts more often."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from .contributions import KEY_BYTES, UserWindows, user_key


class UserValues(UserWindows[dict[str, dict[str, bytes]]]):
    """Keeps at most so many different texts for each user and open window, chosen by a keyed hash.

    Parameters
    ----------
    per_user : int
        Most texts of a user in a window.
    salt : bytes
        Secret key of the hash, at most 64 bytes.

    Privacy
    -------
    The texts of a user with the smallest hashes of (window, user, text) are kept: a function of that user's own records
    and of the key, whatever others send, and in whatever order records are read.

    Complexity
    ----------
    O(per_user) a record that brings a new text; memory per user and open window.

    Source
    ------
    Specification 5.12; proof 6.6; contribution bounding.
    """

    def __init__(self, per_user: int, salt: bytes) -> None:
        super().__init__()
        self._per_user, self._salt = per_user, salt

    def names(self, window: int) -> Collection[str]:
        return self._windows.get(window, {})

    def add(
        self, window: int, names: NDArray[np.object_], times_ms: NDArray[np.int64], points: NDArray[np.object_]
    ) -> None:
        """Add records of one window: names (m,) of str, event times (m,), texts (m,)."""
        if len(names) == 0 or self.is_flooded(window, names):
            return
        users = self._windows.setdefault(window, {})
        for name, text in zip(names.tolist(), points.tolist(), strict=True):
            chosen = users.setdefault(name, {})
            if text in chosen:
                continue
            chosen[text] = _rank(self._salt, window, name, text)
            if len(chosen) > self._per_user:
                del chosen[max(chosen, key=lambda each: (chosen[each], each))]

    def read(self, window: int, salt: bytes) -> tuple[NDArray[np.bytes_], NDArray[np.object_] | None]:
        """Return the keys (n,) of a window's users, ascending, and a tuple of texts (n,) of each, None if flooded."""
        if window in self._flooded:
            return self._flooded[window].all(), None
        users = self._windows.get(window, {})
        keys = np.frombuffer(b"".join(user_key(salt, name) for name in users), f"S{KEY_BYTES}")
        texts = np.empty(len(users), np.object_)
        for i, chosen in enumerate(users.values()):
            texts[i] = tuple(sorted(chosen))
        order = np.argsort(keys, kind="stable")
        return keys[order], texts[order]


def _rank(salt: bytes, window: int, name: str, text: str) -> bytes:
    """Hash a window, a user and a text, which cannot run into each other, since the first two have fixed lengths."""
    data = window.to_bytes(8, "big", signed=True) + user_key(salt, name) + text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16, key=salt).digest()
