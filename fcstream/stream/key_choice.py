"""Chooses under which keys of a window a user counts, by hashes that depend on that user's own records alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .contributions import KEY_BYTES

_CHOICE = b"keys of a user"  # no hash of a name is one of a choice


def choose_keys(
    secret: bytes, open_ms: int, keys: Sequence[str], users: Sequence[NDArray[np.bytes_]], most: int
) -> list[NDArray[np.bool_]]:
    """Choose under which keys each user of a window counts: at most `most`, those with the least keyed hash.

    Parameters
    ----------
    secret : bytes
        The user key, which is the same in all processes of the stream.
    open_ms : int
        Opening of the window.
    keys : sequence of str
        Keys of the stream, distinct.
    users : sequence of bytes arrays
        For each key, the hashed names of its users, distinct.
    most : int

    Returns
    -------
    list of bool arrays
        For each key, which of its users count there.

    Privacy
    -------
    Whether a user counts under a key is a function of the secret, the window and the keys of that user's own records.

    Source
    ------
    Specification 8.7; proof 2.12; contribution bounding by keyed choice.
    """
    names, index = np.unique(np.concatenate(users), return_inverse=True)
    codes = np.repeat(np.arange(len(keys)), [len(each) for each in users])
    counts = np.ones(len(codes), np.bool_)
    many = np.flatnonzero(np.bincount(index, minlength=len(names))[index] > most)
    held: dict[int, list[tuple[bytes, int]]] = {}
    for row in many.tolist():
        user = int(index[row])
        name = bytes(names[user]).ljust(KEY_BYTES, b"\0")
        data = name + open_ms.to_bytes(8, "big", signed=True) + keys[codes[row]].encode("utf-8", "surrogatepass")
        order = hashlib.blake2b(data, digest_size=KEY_BYTES, key=secret, person=_CHOICE).digest()
        held.setdefault(user, []).append((order, row))
    for rows in held.values():
        counts[[row for _, row in sorted(rows)[most:]]] = False
    return np.split(counts, np.cumsum([len(each) for each in users])[:-1])
