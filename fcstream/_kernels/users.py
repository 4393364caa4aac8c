"""Kernels built around a user's own compiled predicate.

A kernel that takes a function as an argument is not found in the cache by the next process. So these kernels are built
around the function, and compiled anew in each process.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.core.registry import CPUDispatcher

LANES = 64


def kernels(function):  # type: ignore[no-untyped-def]
    """Build compare(rows, items, used, first, masks) and check(rows, sample) around a function of two items.

    compare fills masks (tiles, m) uint64 for rows (m, ...) against the first `used` items: bit j of masks[t, i] is
    function(rows[i], items[t * LANES + j]); row i is compared with the items below first + i only. check returns 1 for
    a sampled item that is not its own friend, 2 for a pair whose order matters, else 0.
    """
    friends = function if isinstance(function, CPUDispatcher) else njit(nogil=True)(function)

    @njit(nogil=True)
    def compare(rows, items, used, first, masks):
        for t in range((used + LANES - 1) // LANES):
            for i in range(max(0, t * LANES - first + 1), len(rows)):
                word = np.uint64(0)
                for lane in range(min(LANES, min(used, first + i) - t * LANES)):
                    if friends(rows[i], items[t * LANES + lane]):
                        word |= np.uint64(1) << np.uint64(lane)
                masks[t, i] = word

    @njit(nogil=True)
    def check(rows, sample):
        for i in sample:
            if not friends(rows[i], rows[i]):
                return 1
            for j in sample:
                if bool(friends(rows[i], rows[j])) != bool(friends(rows[j], rows[i])):
                    return 2
        return 0

    return compare, check
