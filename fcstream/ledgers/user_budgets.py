"""Budgets of millions of users: 40 bytes each, in buckets that are read and written whole.

A user's key is a keyed hash of the user's name (`stream.contributions`), so that a ledger holds no names. A bucket
holds the users whose keys begin with the same 14 bits, ascending. No function here does I/O: a ledger passes the
buckets and stores the buckets that are returned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..errors import LedgerDamaged
from ..stream.contributions import KEY_BYTES

_BITS = 14
BUCKETS = 1 << _BITS
_ENTRY = np.dtype([("key", f"S{KEY_BYTES}"), ("rho", "<i8"), ("delta", "<i8"), ("window", "<i8")])
ENTRY_BYTES = _ENTRY.itemsize
_MODULUS = 1 << 256
Buckets = Mapping[int, bytes]


def buckets_of(keys: NDArray[np.bytes_]) -> list[int]:
    """List the buckets that hold some keys, ascending and distinct."""
    return [int(name) for name in np.unique(_bucket(keys))]


def charge(
    buckets: Buckets,
    keys: NDArray[np.bytes_],
    loss: PrivacyLoss,
    capacity: PrivacyLoss,
    window: int,
    elsewhere: Sequence[Buckets] = (),
) -> tuple[dict[int, bytes], NDArray[np.bool_]]:
    """Charge every user whose filter has room.

    Parameters
    ----------
    buckets : mapping of int to bytes
        The buckets that `buckets_of` lists; a bucket that is missing counts as empty.
    keys : bytes array (n,)
        Ascending, distinct.
    loss, capacity : PrivacyLoss
    window : int
        Opening of the window, in ms. It is remembered, so that a second draw knows who was charged.
    elsewhere : sequence of Buckets
        What the users have spent in other streams of the group, which share their filters.

    Returns
    -------
    changed : dict of int to bytes
        The buckets to store.
    admitted : bool (n,)
        Which users were charged.
    """
    entries = _read(buckets)
    at, known = _find(entries, keys)
    admitted = has_room(buckets, keys, loss, capacity, elsewhere)
    old = at[known & admitted]
    entries["rho"][old] += loss.rho_nano
    entries["delta"][old] += loss.delta_femto
    entries["window"][old] = window
    fresh = np.zeros(int(np.count_nonzero(admitted & ~known)), _ENTRY)
    fresh["key"], fresh["window"] = keys[admitted & ~known], window
    fresh["rho"], fresh["delta"] = loss.rho_nano, loss.delta_femto
    merged = np.insert(entries, at[admitted & ~known], fresh) if len(fresh) else entries
    return _write(merged, _bucket(keys[admitted])), admitted


def charged(buckets: Buckets, keys: NDArray[np.bytes_], window: int) -> NDArray[np.bool_]:
    """Tell which of some users were charged for a window; right only for the last window that was charged."""
    entries = _read(buckets)
    at, known = _find(entries, keys)
    known[known] = entries["window"][at[known]] == window
    return known


def has_room(
    buckets: Buckets,
    keys: NDArray[np.bytes_],
    loss: PrivacyLoss,
    capacity: PrivacyLoss,
    elsewhere: Sequence[Buckets] = (),
) -> NDArray[np.bool_]:
    """Tell which of some users (keys ascending, distinct) have room for a loss, beside what they spent elsewhere."""
    # Compared by differences: sums could overflow, differences of numbers >= 0 cannot, as each stops at -1.
    rho = np.full(len(keys), max(-1, capacity.rho_nano - loss.rho_nano), np.int64)
    delta = np.full(len(keys), max(-1, capacity.delta_femto - loss.delta_femto), np.int64)
    for entries in map(_read, (buckets, *elsewhere)):
        at, known = _find(entries, keys)
        for left, part in ((rho, "rho"), (delta, "delta")):
            left[known] = np.maximum(left[known] - entries[part][at[known]], -1)
    return np.asarray((rho >= 0) & (delta >= 0))


def refund(buckets: Buckets, loss: PrivacyLoss, window: int) -> dict[int, bytes]:
    """Refund `loss` to all users charged for a window, which must be the last one; returns the changed buckets."""
    entries = _read(buckets)
    chosen = entries["window"] == window
    entries["rho"][chosen] -= loss.rho_nano
    entries["delta"][chosen] -= loss.delta_femto
    return _write(entries, _bucket(entries["key"][chosen]))


def count(body: bytes) -> int:
    """Count the users in a bucket."""
    return len(body) // ENTRY_BYTES


def totals(buckets: Buckets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what every user has spent, rho and delta."""
    entries = _read(buckets)
    return entries["rho"], entries["delta"]


def summed(held: Sequence[Buckets]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what every user has spent in several streams together, rho and delta."""
    entries = np.concatenate([_read(buckets) for buckets in held])
    names, index = np.unique(entries["key"], return_inverse=True)
    rho, delta = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    np.add.at(rho, index, entries["rho"])
    np.add.at(delta, index, entries["delta"])
    return rho, delta


def mark(bucket: int, body: bytes) -> bytes:
    """Return the hash of a bucket, which is stored with it."""
    return hashlib.sha256(bucket.to_bytes(4, "big", signed=True) + body).digest()


class CheckedBuckets(dict[int, bytes]):
    """Buckets of a ledger by name, and their marks, with which they were found to agree."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[int, bytes] = {}


def checked(location: str, rows: Iterable[tuple[int, bytes, bytes]]) -> CheckedBuckets:
    """Read buckets from rows of name, body and mark.

    Raises
    ------
    LedgerDamaged
        A bucket disagrees with its mark.
    """
    held = CheckedBuckets()
    for name, body, marked in rows:
        if mark(name, body) != marked or len(body) % ENTRY_BYTES:
            raise LedgerDamaged(f"{location} is damaged: bucket {name} of users disagrees with the mark beside it")
        held[name], held.marks[name] = body, marked
    return held


def total_of(location: str, rows: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the digest of all users, the sum of the marks of all buckets; checks each bucket."""
    return sum_of(marked for row in rows for marked in checked(location, [row]).marks.values())


def sum_of(marks: Iterable[bytes]) -> bytes:
    """Return the digest of all users from the marks of their buckets."""
    return (sum(int.from_bytes(marked, "big") for marked in marks) % _MODULUS).to_bytes(32, "big")


def redigest(total: bytes, held: CheckedBuckets, marks: Mapping[int, bytes]) -> bytes:
    """Return the digest of all users after buckets with these marks have replaced those in `held`."""
    value = int.from_bytes(total, "big")
    for name, marked in marks.items():
        value += int.from_bytes(marked, "big") - int.from_bytes(held.marks.get(name, b""), "big")
    return (value % _MODULUS).to_bytes(32, "big")


def audit(location: str, rows: Iterable[tuple[int, bytes, bytes]], capacity: PrivacyLoss) -> bytes:
    """Check every user against the cap, from rows of name, body and mark; returns the digest of all users.

    Raises
    ------
    LedgerDamaged
        A bucket disagrees with its mark, or a user has spent more than `capacity`.
    """
    total = 0
    for bucket, body, marked in rows:
        rho, delta = totals(checked(location, [(bucket, body, marked)]))
        if (rho > capacity.rho_nano).any() or (delta > capacity.delta_femto).any():
            raise LedgerDamaged(f"{location}: bucket {bucket} holds a user who is past the capacity")
        total += int.from_bytes(marked, "big")
    return (total % _MODULUS).to_bytes(32, "big")


NO_USERS = bytes(32)
"""Digest of a ledger without users."""


def _bucket(keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
    first = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), KEY_BYTES)[:, :2].astype(np.int64)
    return (first[:, 0] << 8 | first[:, 1]) >> (16 - _BITS)


def _read(buckets: Buckets) -> NDArray[Any]:
    """Copy the entries of some buckets, ascending by key."""
    return np.frombuffer(bytearray().join(buckets[name] for name in sorted(buckets)), _ENTRY)


def _write(entries: NDArray[Any], touched: NDArray[np.int64]) -> dict[int, bytes]:
    names = np.unique(touched)
    buckets_of_entries = _bucket(np.ascontiguousarray(entries["key"])) if len(entries) else np.empty(0, np.int64)
    starts, ends = np.searchsorted(buckets_of_entries, names), np.searchsorted(buckets_of_entries, names, "right")
    body, width = entries.tobytes(), _ENTRY.itemsize
    return {
        name: body[a * width : b * width]
        for name, a, b in zip(names.tolist(), starts.tolist(), ends.tolist(), strict=True)
    }


def _find(entries: NDArray[Any], keys: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where keys are among the entries or would be inserted, and which keys are there."""
    held = np.ascontiguousarray(entries["key"])
    at = np.searchsorted(held, keys)
    known = np.zeros(len(keys), np.bool_)
    inside = at < len(held)
    known[inside] = held[at[inside]] == keys[inside]
    return at, known
