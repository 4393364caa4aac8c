"""Packed bits, compared by Hamming distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConfigError
from .base import LANES, Family, Predicate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from .base import Arrays


class _BitsFamily(Family):
    """Words in lanes."""

    def __init__(self, bits: int, limit: int) -> None:
        self._words = -(-bits // 64)
        self._spare = np.uint64(0) if bits % 64 == 0 else ~np.uint64(2 ** (bits % 64) - 1)
        self._limit = limit

    def check(self, items: object) -> NDArray[np.uint64]:
        words = np.asarray(items)
        if words.dtype != np.uint64:
            raise ConfigError(f"must be uint64 words (see `pack_bits`), got {words.dtype}", "items")
        if words.ndim != 2 or words.shape[1] != self._words:
            raise ConfigError(f"must have shape (n, {self._words}), got {words.shape}", "items")
        if (words[:, -1] & self._spare).any():
            raise ConfigError("must not have bits set beyond `bits`", "items")
        return np.ascontiguousarray(words)

    def rows(self, items: NDArray[np.uint64]) -> Arrays:
        return (items,)

    def allocate(self, tiles: int) -> Arrays:
        return (np.zeros((tiles, self._words, LANES), np.uint64),)

    def store(self, rows: Arrays, first: int, arrays: Arrays) -> None:
        from .._kernels import lane_counts

        lane_counts.store(rows[0], first, arrays[0])

    def compare(self, rows: Arrays, arrays: Arrays, used: int, first: int, masks: NDArray[np.uint64]) -> None:
        from .._kernels import bits

        bits.compare(rows[0], arrays[0], used, first, self._limit, masks)


@dataclass(frozen=True, slots=True)
class HammingBits(Predicate):
    """Hamming distance of two bit strings <= limit.

    Parameters
    ----------
    bits : int
        Length of the strings, >= 1.
    limit : int
        In [0, bits], inclusive.

    Raises
    ------
    ConfigError
        A parameter out of range.

    Notes
    -----
    Items are uint64 (n, ceil(bits / 64)), see `pack_bits`; bits beyond the length must be 0.

    Complexity
    ----------
    O(bits / 64) a pair.

    Source
    ------
    Specification 3.5; proof 3.1; ours: Tsfadia et al. 2022, section 4, takes any reflexive predicate.
    """

    bits: int
    limit: int

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ConfigError(f"must be at least 1, got {self.bits}", "bits")
        if not 0 <= self.limit <= self.bits:
            raise ConfigError(f"must be in [0, bits={self.bits}], got {self.limit}", "limit")

    def _family(self) -> Family:
        return _BitsFamily(self.bits, self.limit)


def pack_bits(bits: ArrayLike) -> NDArray[np.uint64]:
    """Bit strings as words: bool (n, bits) -> uint64 (n, ceil(bits / 64)), bit j of a string in word j // 64.

    Raises
    ------
    ConfigError
        Not a two-dimensional array of bool.

    Examples
    --------
    >>> from fcstream.predicates import pack_bits
    >>> pack_bits([[True, False, True]]).tolist()
    [[5]]
    """
    array = np.asarray(bits)
    if array.dtype != np.bool_ or array.ndim != 2 or array.shape[1] < 1:
        raise ConfigError(f"must be bool of shape (n, bits), got {array.dtype} {array.shape}", "bits")
    packed = np.zeros((len(array), -(-array.shape[1] // 64) * 8), np.uint8)
    packed[:, : -(-array.shape[1] // 8)] = np.packbits(array, axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)
