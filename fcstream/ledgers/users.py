"""Budgets of millions of users: 40 bytes each, in buckets that are read and written whole.

A user's key is a keyed hash of the name (`users.user_key`), so that a ledger names nobody; a bucket holds the users
whose keys begin with the same 14 bits, ascending. Every function here is pure: a ledger brings the buckets and stores
what comes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LedgerDamaged
from ..users import KEY_BYTES
from ..zcdp import PrivacyLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS = 14
BUCKETS = 1 << _BITS
_ENTRY = np.dtype([("key", f"S{KEY_BYTES}"), ("rho", "<i8"), ("delta", "<i8"), ("window", "<i8")])
ENTRY_BYTES = _ENTRY.itemsize
_MODULUS = 1 << 256
Buckets = Mapping[int, bytes]


def buckets_of(keys: NDArray[np.bytes_]) -> list[int]:
    """Which buckets hold some keys (ascending, distinct)."""
    return [int(name) for name in np.unique(_bucket(keys))]


def charge(
    buckets: Buckets, keys: NDArray[np.bytes_], loss: PrivacyLoss, capacity: PrivacyLoss, window: int
) -> tuple[dict[int, bytes], NDArray[np.bool_]]:
    """Charge every user whose filter has room.

    Parameters
    ----------
    buckets : mapping of int to bytes
        Those of `buckets_of`; absent ones are empty.
    keys : bytes array (n,)
        Ascending, distinct.
    loss, capacity : PrivacyLoss
    window : int
        Opening of the window, ms: remembered, so that a second draw knows who was charged.

    Returns
    -------
    changed : dict of int to bytes
    admitted : bool (n,)
        Who was charged.
    """
    entries = _read(buckets)
    at, known = _find(entries, keys)
    rho, delta = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    rho[known], delta[known] = entries["rho"][at[known]], entries["delta"][at[known]]
    # Compared by differences: sums could overflow, differences of numbers >= 0 cannot.
    admitted = (rho <= capacity.rho_nano - loss.rho_nano) & (delta <= capacity.delta_femto - loss.delta_femto)
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
    """Which of some users were charged for a window, it being the last one that was charged."""
    entries = _read(buckets)
    at, known = _find(entries, keys)
    known[known] = entries["window"][at[known]] == window
    return known


def refund(buckets: Buckets, loss: PrivacyLoss, window: int) -> dict[int, bytes]:
    """Give `loss` back to all who were charged for a window, it being the last one; returns the changed buckets."""
    entries = _read(buckets)
    chosen = entries["window"] == window
    entries["rho"][chosen] -= loss.rho_nano
    entries["delta"][chosen] -= loss.delta_femto
    return _write(entries, _bucket(entries["key"][chosen]))


def count(body: bytes) -> int:
    """Users in a bucket."""
    return len(body) // ENTRY_BYTES


def totals(buckets: Buckets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """rho and delta of every user."""
    entries = _read(buckets)
    return entries["rho"], entries["delta"]


def digest(bucket: int, body: bytes) -> int:
    """A bucket's part in the digest of all users, which is the sum of the parts; 0 for an empty bucket."""
    if not body:
        return 0
    return int.from_bytes(hashlib.sha256(bucket.to_bytes(4, "big") + body).digest(), "big")


def add_digests(total: bytes, removed: Iterable[int], added: Iterable[int]) -> bytes:
    """The digest of all users after some buckets changed."""
    value = int.from_bytes(total, "big") + sum(added) - sum(removed)
    return (value % _MODULUS).to_bytes(32, "big")


def redigest(total: bytes, held: Buckets, changed: Buckets) -> bytes:
    """The digest of all users after `changed` took the place of what was held."""
    return add_digests(
        total,
        (digest(name, held.get(name, b"")) for name in changed),
        (digest(name, body) for name, body in changed.items()),
    )


def audit(place: str, buckets: Iterable[tuple[int, bytes]], capacity: PrivacyLoss) -> bytes:
    """Check every user against the cap; returns the digest of all.

    Raises
    ------
    LedgerDamaged
    """
    total = NO_USERS
    for bucket, body in buckets:
        rho, delta = totals({bucket: body})
        if (rho > capacity.rho_nano).any() or (delta > capacity.delta_femto).any():
            raise LedgerDamaged(f"{place}: bucket {bucket} holds a user who is past the capacity")
        total = add_digests(total, (), (digest(bucket, body),))
    return total


NO_USERS = bytes(32)
"""Digest of an empty ledger."""


def _bucket(keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
    first = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), KEY_BYTES)[:, :2].astype(np.int64)
    return (first[:, 0] << 8 | first[:, 1]) >> (16 - _BITS)


def _read(buckets: Buckets) -> NDArray[Any]:
    """Entries of some buckets, ascending by key; a copy."""
    return np.frombuffer(bytearray().join(buckets[name] for name in sorted(buckets)), _ENTRY)


def _write(entries: NDArray[Any], touched: NDArray[np.int64]) -> dict[int, bytes]:
    names = np.unique(touched)
    places = _bucket(np.ascontiguousarray(entries["key"])) if len(entries) else np.empty(0, np.int64)
    starts, ends = np.searchsorted(places, names), np.searchsorted(places, names, "right")
    body, width = entries.tobytes(), _ENTRY.itemsize
    return {
        name: body[a * width : b * width]
        for name, a, b in zip(names.tolist(), starts.tolist(), ends.tolist(), strict=True)
    }


def _find(entries: NDArray[Any], keys: NDArray[np.bytes_]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where keys stand or would stand, and whether they do."""
    held = np.ascontiguousarray(entries["key"])
    at = np.searchsorted(held, keys)
    known = np.zeros(len(keys), np.bool_)
    inside = at < len(held)
    known[inside] = held[at[inside]] == keys[inside]
    return at, known
