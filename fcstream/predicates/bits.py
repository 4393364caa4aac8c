"""Predicate on bit strings, which are packed into words and compared by Hamming distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigError, Shown
from .base import LANES, Arrays, Family, Predicate


class _BitsFamily(Family):
    """Storage of 64-bit words in lanes, and their comparison."""

    def __init__(self, bits: int, limit: int) -> None:
        self._words = -(-bits // 64)
        self._spare = np.uint64(0) if bits % 64 == 0 else ~np.uint64(2 ** (bits % 64) - 1)
        self._limit = limit

    def check(self, items: object) -> NDArray[np.uint64]:
        words = np.asarray(items)
        if words.dtype != np.uint64:
            raise ConfigError("must be uint64 words (see `pack_bits`)", "items", got=words.dtype)
        if words.ndim != 2 or words.shape[1] != self._words:
            raise ConfigError(f"must have shape (n, {self._words})", "items", got=words.shape)
        if (words[:, -1] & self._spare).any():
            raise ConfigError("must not have bits set beyond `bits`", "items")
        return np.ascontiguousarray(words)

    def allocate(self, tiles: int) -> Arrays:
        return (np.zeros((tiles, self._words, LANES), np.uint64),)

    def compare(self, rows: Arrays, arrays: Arrays, used: int, first: int, masks: NDArray[np.uint64]) -> None:
        from .._kernels import bits

        bits.compare(rows[0], arrays[0], used, first, self._limit, masks)


@dataclass(frozen=True, slots=True)
class HammingBits(Predicate):
    """Predicate that holds if the Hamming distance of two bit strings is at most `limit`.

    Parameters
    ----------
    bits : int
        Length of the strings, >= 1.
    limit : int
        Largest distance of friends, in [0, bits].

    Raises
    ------
    ConfigError
        A parameter is out of range.

    Notes
    -----
    Items are uint64 (n, ceil(bits / 64)), as `pack_bits` makes them; bits beyond the length must be 0.

    Complexity
    ----------
    O(bits / 64) per pair.

    Source
    ------
    Specification 3.5; proof 3.1; ours: Tsfadia et al. 2022, section 4, takes any reflexive predicate.
    """

    bits: int
    limit: int

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ConfigError("must be at least 1", "bits", got=self.bits)
        if not 0 <= self.limit <= self.bits:
            raise ConfigError(f"must be in [0, bits={self.bits}]", "limit", got=self.limit)

    def _family(self) -> Family:
        return _BitsFamily(self.bits, self.limit)


def pack_bits(bits: ArrayLike) -> NDArray[np.uint64]:
    """Pack bit strings into words: bool (n, bits) -> uint64 (n, ceil(bits / 64)), bit j of a string in word j // 64.

    Raises
    ------
    ConfigError
        The argument is not a two-dimensional array of bool.


    Examples
    --------
    >>> from fcstream.predicates import pack_bits
    >>> pack_bits([[True, False, True]]).tolist()
    [[5]]
    """
    array = np.asarray(bits)
    if array.dtype != np.bool_ or array.ndim != 2 or array.shape[1] < 1:
        raise ConfigError("must be bool of shape (n, bits)", "bits", got=Shown(f"{array.dtype} {array.shape}"))
    packed = np.zeros((len(array), -(-array.shape[1] // 64) * 8), np.uint8)
    packed[:, : -(-array.shape[1] // 8)] = np.packbits(array, axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)
