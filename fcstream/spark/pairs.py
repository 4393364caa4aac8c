"""Counting of one huge window: its points go to every process, tasks compare pairs of blocks, and their counts are
added.

The counts are integers, so neither the order in which tasks end nor how often one is tried matters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..config import Config, Job
from ..counting.exact import CrossCounts, FriendCounts
from ..counting.threads import one_thread
from ..counting.views import WindowView
from ..noise.samplers import Noise
from ..planning.speeds import split_from
from ..releases.record_gate import GatedCounter
from .tasks import guarded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 4
Pair = tuple[int, int]


def splits(config: Config, cores: int) -> bool:
    """Return whether every window's pairs are dealt to tasks; public numbers decide it, equally for all windows."""
    job = config.job
    if config.spark.split == "never" or job.terms.unit == "user" or _radius_squared(job) is None:
        return False
    if config.spark.split == "always":
        return True
    least = split_from(job.grid.dimension, cores)
    return least is not None and (config.releases[0].size_hint or 0) >= least


def splitter(session: SparkSession) -> Callable[[Job, NDArray[np.float64]], WindowView]:
    """Make what counts the friends of points that tasks have left alone; see `stores.TaskCounts`."""

    def view(job: Job, points: NDArray[np.float64]) -> WindowView:
        radius_squared = _radius_squared(job)
        assert radius_squared is not None
        return with_counts(points, count_pairs(session, points, radius_squared))

    return view


def count_pairs(
    session: SparkSession, points: NDArray[np.float64], radius_squared: int, blocks: int | None = None
) -> NDArray[np.int64]:
    """Count the friends of every point within a radius, itself included, in the points' order (n,).

    Parameters
    ----------
    session : SparkSession
    points : float64 (n, d)
        Lattice points.
    radius_squared : int
        Squared radius in lattice steps.
    blocks : int, optional
        Number of blocks of points; by default enough for every core to have some pairs of blocks.
    """
    context = session.sparkContext
    wanted = blocks or math.ceil(math.sqrt(2 * TASKS_PER_CORE * context.defaultParallelism))
    edges = np.linspace(0, len(points), max(1, min(wanted, len(points))) + 1).astype(np.int64).tolist()
    pairs = list(itertools.combinations_with_replacement(range(len(edges) - 1), 2))
    sent = context.broadcast(points)

    @guarded
    def count(mine: Iterator[Pair]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        for i, j in mine:
            yield from pair_counts(sent.value, edges, (i, j), radius_squared)

    totals = np.zeros(len(points), np.int64)
    try:
        for start, counts in context.parallelize(pairs, len(pairs)).mapPartitions(count).toLocalIterator(True):
            totals[start : start + len(counts)] += counts
    finally:
        sent.destroy()
    return totals


def pair_counts(
    points: NDArray[np.float64], edges: list[int], pair: Pair, radius_squared: int
) -> list[tuple[int, NDArray[np.int64]]]:
    """Compute one task's share of the counts: the point from which on to add, and how much."""
    (a, b), (c, d) = ((edges[i], edges[i + 1]) for i in pair)
    with one_thread():
        if a == c:
            alone = FriendCounts(points.shape[1], radius_squared)
            alone.add(0, points[a:b])
            return [(a, alone.view([0]).in_order())]
        both = CrossCounts(points.shape[1], radius_squared, 2)
        both.add(0, points[a:b])
        both.add(1, points[c:d])
        counts = both.view([0, 1]).in_order()
    return [(a, counts[: b - a]), (c, counts[b - a :])]


def with_counts(points: NDArray[np.float64], counts: NDArray[np.int64]) -> WindowView:
    """Make a window of points and their friend counts."""
    held = FriendCounts(points.shape[1], None)
    held.add(0, points)
    view = held.view([0])
    arrival_order = view.arrival_order()
    assert arrival_order is not None
    return replace(view, counts=counts[arrival_order])


def _radius_squared(job: Job) -> int | None:
    """Return the radius of a stream's one answer if it compares all pairs with one radius."""
    if not job.answers.is_simple:
        return None
    counter: Any = job.answers.counter(job.grid.dimension, job.schedule.reach, Noise())
    if isinstance(counter, GatedCounter):
        counter = counter.inner
    return counter.radius_squared if type(counter) is FriendCounts else None
