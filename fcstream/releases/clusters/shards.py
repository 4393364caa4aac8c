"""Shards: independent coins put records into t shards, and an oracle turns every shard into a tuple of k centers.

With all coins given, adding, removing or replacing a record changes one shard, and so REPLACES one of t tuples, t
public. That holds for every outcome of the coins, so coins may be kept, shared between overlapping windows, or shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...counting.exact import FriendCounts
from ...counting.views import WindowView
from ...errors import ConfigError
from ...noise.samplers import Noise
from ...stream.lattice import MAX_COORDINATE, MAX_RADIUS_SQUARED
from .oracles import CHUNK, Incremental, Learner, Oracle, checked_centers, one_thread, quietly, total

MAX_TUPLES = 2**20


@dataclass(frozen=True)
class Shards:
    """Rule by which records become tuples; all of it is public.

    Parameters
    ----------
    tuples : int
        Number t of tuples, in [2, 2**20].
    k : int
        Number of centers of a tuple, >= 1.
    oracle : callable
        See `oracles`.
    origin : tuple of int
        Center of the public ball, a lattice point.
    ball_squared : int
        Squared radius of the ball in lattice steps, below 2**53: records outside are dropped, and centers are clipped
        to the ball.
    step : float
        Lattice step: oracles see coordinates times `step`, relative to the origin.

    Privacy
    -------
    Costs nothing by itself, because the tuples are as private as the records. If one record is added, removed or
    replaced, one of t tuples is REPLACED. Coins are independent of the data and of each other, one per record. Each
    shard's points are sorted, so a tuple depends on what its shard holds and on nothing else, and gets a seed of its
    own that depends on the shard's number only. Not covered: run time, and how an oracle's floating-point libraries
    depend on memory layout (alignment). A user's oracle must keep nothing between calls.

    Source
    ------
    Specification 6.2; proof 7.1; errata 1.2, 1.3, 4.4; Tsfadia et al. 2022, FC_Clustering.
    """

    tuples: int
    k: int
    oracle: Oracle
    origin: tuple[int, ...]
    ball_squared: int
    step: float

    def __post_init__(self) -> None:
        if not 2 <= self.tuples <= MAX_TUPLES:
            raise ConfigError("must be in [2, 2**20]", "tuples", got=self.tuples)
        if self.k < 1:
            raise ConfigError("must be at least 1", "k", got=self.k)
        if not 1 <= self.ball_squared <= MAX_RADIUS_SQUARED:
            raise ConfigError("must be in [1, 2**53) squared lattice steps", "ball", got=self.ball_squared)
        if any(abs(x) > MAX_COORDINATE // 2 for x in self.origin):
            raise ConfigError("must lie within 2**39 lattice steps of 0", "center")

    def tuples_of(self, points: NDArray[np.float64], noise: Noise) -> NDArray[np.float64]:
        """Draw the coins of records (n, d) and return their tuples (t, k, d), lattice points of the public ball."""
        return self.cluster(points, noise.uniform_integers(self.tuples, len(points)))

    def cluster(self, points: NDArray[np.float64], coins: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the tuples of records whose coins, int64 (n,) in [0, t), are given."""
        origin = np.array(self.origin, np.float64)
        out = np.tile(origin, (self.tuples, self.k, 1))
        order = np.argsort(coins, kind="stable")
        cuts = np.searchsorted(coins[order], np.arange(self.tuples + 1))
        with one_thread():
            for shard in range(self.tuples):
                offsets = points[order[cuts[shard] : cuts[shard + 1]]] - origin
                found = total(self.oracle, self._prepared(offsets), self.k, shard)
                if found is not None:
                    out[shard] = self._on_ball(found) + origin
        return out

    def steps_of(self, found: object) -> NDArray[np.float64] | None:
        """Check an oracle's result and convert it to a tuple; None stands for the fixed tuple."""
        checked = checked_centers(found, self.k, len(self.origin))
        return None if checked is None else self._on_ball(checked) + np.array(self.origin, np.float64)

    def inside(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the offsets of the points within the ball from its center, in their order, in lattice steps."""
        from ..._kernels import clusters

        offsets = points - np.array(self.origin, np.float64)
        inside = np.empty(len(offsets), np.bool_)
        clusters.within(offsets, float(self.ball_squared), inside)
        return offsets[inside]

    def _prepared(self, offsets: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the shard's points within the ball, sorted, in the oracle's units."""
        from ..._kernels import clusters

        inside = np.empty(len(offsets), np.bool_)
        clusters.within(offsets, float(self.ball_squared), inside)
        kept = np.ascontiguousarray(offsets[inside] + 0.0)  # no negative zeros: equal points have equal bytes
        rows = kept.view(np.dtype((np.void, 8 * kept.shape[1]))).ravel()
        return kept[np.argsort(rows, kind="stable")] * self.step

    def _on_ball(self, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Round an oracle's centers to lattice points of the ball; centers outside it are clipped, however far."""
        from ..._kernels import clusters

        inside = np.empty(self.k, np.bool_)
        limit, radius = float(MAX_COORDINATE // 2), float(self.ball_squared) ** 0.5
        steps = np.clip(np.rint(np.clip(centers / self.step, -(2.0**60), 2.0**60)), -limit, limit)
        clusters.within(steps, float(self.ball_squared), inside)
        for j in np.flatnonzero(~inside).tolist():
            steps[j] = np.trunc(steps[j] * (radius * (1 - 1e-12) / float(np.sqrt((steps[j] ** 2).sum()))))
        clusters.within(steps, float(self.ball_squared), inside)
        steps[~inside] = 0.0  # never, but a tuple outside the ball must not be
        return steps


@dataclass(frozen=True, slots=True)
class ShardView:
    """View of a closing window whose tuples are ready.

    Attributes
    ----------
    view : WindowView
        Points of the window.
    tuples : float64 (t, k, d)

    Privacy
    -------
    As private as the records.

    Source
    ------
    Specification 6.2; ours.
    """

    view: WindowView
    tuples: NDArray[np.float64]


class _ShardLearner:
    """Learner of one shard, and the shard's records that do not fill a chunk yet."""

    def __init__(self, learner: Learner | None, width: int) -> None:
        self.learner = learner
        self.waiting = np.empty((0, width))
        self.has_learned = False

    def take(self, points: NDArray[np.float64]) -> None:
        self.waiting = np.concatenate([self.waiting, points])
        while len(self.waiting) >= CHUNK:
            self.learn(CHUNK)

    def learn(self, count: int) -> None:
        """Give the learner its next records; any exception that it raises ends this shard's learning."""
        chunk, self.waiting = self.waiting[:count], self.waiting[count:]
        self.has_learned = True
        if self.learner is not None and not quietly(self.learner.partial_fit, chunk):
            self.learner = None

    def answer(self) -> object:
        """Return the learner's centers of all records; None if it failed, or if the shard has no records.

        A window without records has no learners.
        """
        if len(self.waiting):
            self.learn(len(self.waiting))
        learner, found = self.learner if self.has_learned else None, list[object]()
        if learner is not None:
            quietly(lambda: found.append(learner.cluster_centers_))
        return found[0] if found else None


class ShardCounts:
    """Counter that keeps points and the learners of their shards while records arrive; for tumbling windows.

    Parameters
    ----------
    shards : Shards
        Shards with an `Incremental` oracle.
    noise : Noise
        Source of the coins.

    Privacy
    -------
    Every record draws its shard when it comes, by an independent uniform coin. A learner sees its own shard only, in
    chunks of a fixed number of that shard's records, so neither batches nor other shards' records reach it.

    Source
    ------
    Specification 6.2; proof 7.1; erratum 1.3; ours, on FC_Clustering of Tsfadia et al. 2022.
    """

    def __init__(self, shards: Shards, noise: Noise) -> None:
        self._shards, self._noise = shards, noise
        self._points = FriendCounts(len(shards.origin), None)
        self._learners: dict[int, list[_ShardLearner]] = {}

    @property
    def panes(self) -> list[int]:
        """Return the panes that hold points, ascending."""
        return self._points.panes

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Add lattice points (m, d) to a pane."""
        self._points.add(pane, points)
        held, offsets = self._of(pane), self._shards.inside(points) * self._shards.step
        coins = self._noise.uniform_integers(self._shards.tuples, len(offsets))
        with one_thread():
            for shard in np.unique(coins).tolist():
                held[shard].take(offsets[coins == shard])

    def drop(self, pane: int) -> None:
        """Drop a pane."""
        self._points.drop(pane)
        self._learners.pop(pane, None)

    def view(self, panes: Iterable[int]) -> ShardView:
        """Return the view of the window of one pane, after its learners got the records that they still wait for."""
        asked = sorted(set(panes))
        if len(asked) > 1:
            raise ConfigError("must be tumbling: a learner cannot forget a pane", "window")
        tuples = np.tile(np.array(self._shards.origin, np.float64), (self._shards.tuples, self._shards.k, 1))
        with one_thread():
            for i, shard in enumerate(self._learners.get(asked[0], []) if asked else []):
                steps = self._shards.steps_of(shard.answer())
                if steps is not None:
                    tuples[i] = steps
        return ShardView(self._points.view(asked), tuples)

    def _of(self, pane: int) -> list[_ShardLearner]:
        if pane not in self._learners:
            made, shards = self._shards.oracle, self._shards
            assert isinstance(made, Incremental)
            learners = (made.make(shards.k, seed) for seed in range(shards.tuples))
            self._learners[pane] = [_ShardLearner(learner, len(shards.origin)) for learner in learners]
        return self._learners[pane]
