"""Partitions of keys, computed as producers' clients do, so that each process knows a key's partition by itself."""

from __future__ import annotations

import zlib

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of(partitioner: str, key: str, total: int) -> int:
    """Compute the partition of a key, as UTF-8, among `total`.

    Parameters
    ----------
    partitioner : str
        ``murmur2``: the Java client's default, and librdkafka's ``murmur2`` and ``murmur2_random``. ``crc32``:
        librdkafka's ``consistent`` and ``consistent_random``, its default.
    """
    data = key.encode()
    number = murmur2(data) & 0x7FFFFFFF if partitioner == "murmur2" else zlib.crc32(data)
    return number % total


def murmur2(data: bytes) -> int:
    """Compute MurmurHash2 (Austin Appleby) of 32 bits with Kafka's seed."""
    h = (0x9747B28C ^ len(data)) & _MASK
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)
