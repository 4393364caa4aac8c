"""Speed at which this machine compares pairs: measured once on made-up points, never on data, so that a plan may use
it.
"""

from __future__ import annotations

import math
import time
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..cores.sampled_filters import PairSampling, choose
from ..counting.exact import FriendCounts
from ..counting.sampled import BlockCounts, HiddenCounts, SampledCounts
from ..counting.threads import one_thread
from ..noise.samplers import Noise, SeededEntropy

SPLIT_SECONDS = 2.0
"""Seconds that one more job costs for a window whose pairs are dealt to tasks, whatever its size."""
SPLIT_SECONDS_PER_VALUE = 1e-7
"""Seconds per coordinate, because points travel to every process."""
_POINTS = 2**14
_VALUES = 2**22  # largest number of coordinates


@cache
def measured_costs(dimension: int) -> dict[str, float]:
    """Measure the seconds per pair of each way to compare pairs of points with so many coordinates, in one thread.

    The points are normal and nearly all friends, as in windows that release. Takes some tenths of a second, and some
    seconds more where nothing is compiled yet.
    """
    with one_thread():
        return _measure(dimension)


def split_from(dimension: int, cores: int) -> int | None:
    """Find the number of points from which many tasks count a window's pairs in at most half of one task's time.

    Parameters
    ----------
    dimension : int
    cores : int
        Number of cores that count in parallel.

    Returns
    -------
    int or None
        None if it never pays with so few cores.
    """
    if cores < 3:
        return None
    pair, spent = measured_costs(dimension)["exact"], SPLIT_SECONDS
    n = 1024
    while n < 2**31:
        alone = pair * n * n / 2
        shared = spent + SPLIT_SECONDS_PER_VALUE * n * dimension + 1.25 * alone / cores
        if 2 * shared < alone:
            return n
        n += n // 8
    return None


def _measure(dimension: int) -> dict[str, float]:
    n = max(1024, min(_POINTS, _VALUES // dimension))
    points = np.rint(np.random.default_rng(0).normal(size=(n, dimension)) * 1000)
    radius_squared = int(2 * 1000**2 * (math.sqrt(dimension) + math.sqrt(math.log(100 * n))) ** 2)
    noise = Noise(SeededEntropy(0))
    costs = {"exact": _seconds(FriendCounts(dimension, radius_squared), points) / (n * n / 2)}
    blocks = BlockCounts(dimension, radius_squared, n // 32, 17, noise)
    costs["blocks"] = _seconds(blocks, points) / (n * n * float(blocks.rate) / 2)
    hidden = HiddenCounts(dimension, radius_squared, Fraction(200, n), noise)
    costs["hidden"] = _seconds(hidden, points) / (n * n * float(hidden.rate))
    return costs


def _seconds(counter: FriendCounts | SampledCounts, points: NDArray[np.float64]) -> float:
    """Time the second of two windows, because the first one compiles."""
    taken = 0.0
    for pane in range(2):
        start = time.thread_time()
        counter.add(pane, points)
        counter.view([pane])
        taken = time.thread_time() - start
        counter.drop(pane)
    return taken


def cheapest_pairs(size_hint: int, dimension: int, loss: PrivacyLoss, *, tumbling: bool = True) -> PairSampling:
    """Choose pairs as `fcstream.cores.sampled_filters.choose` does, for the speed of this machine.

    Parameters
    ----------
    size_hint, dimension : int
        Public numbers.
    loss : PrivacyLoss
        Loss of the core filter.
    tumbling : bool
        Whether windows do not overlap.
    """
    return choose(size_hint, dimension, loss, measured_costs(dimension), tumbling)
