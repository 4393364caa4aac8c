"""Means and scatter matrices of shards, updated as points arrive; a coin puts each point into a shard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...noise.samplers import Noise
from ...stream.panes import PaneStore

MAX_SHARDS = 2**20


@dataclass(frozen=True, slots=True)
class MomentsView:
    """Moments of a pane's or a window's points per shard; private.

    Attributes
    ----------
    sizes : int64 (t,)
    means : float64 (t, d)
    scatters : float64 (t, d, d)
        Sums of (x - mean) (x - mean)^T; lower triangles.
    """

    sizes: NDArray[np.int64]
    means: NDArray[np.float64]
    scatters: NDArray[np.float64]

    @classmethod
    def none(cls, shards: int, dimension: int) -> MomentsView:
        return cls(np.zeros(shards, np.int64), np.zeros((shards, dimension)), np.zeros((shards, dimension, dimension)))

    def merged(self, other: MomentsView) -> MomentsView:
        """Combine two sets of moments; each shard's result depends on that shard alone."""
        sizes = self.sizes + other.sizes
        weights = other.sizes / np.maximum(sizes, 1)
        gaps = other.means - self.means
        means = self.means + gaps * weights[:, None]
        between = gaps[:, :, None] * gaps[:, None, :]
        scatters = self.scatters + other.scatters + between * (self.sizes * weights)[:, None, None]
        return MomentsView(sizes, means, scatters)

    def __repr__(self) -> str:
        return f"<MomentsView of {len(self.sizes)} shards>"  # nothing of what it holds

    def covariances(self, *, centered: bool) -> NDArray[np.float64]:
        """Return the covariance matrix of every shard: float64 (t, d, d), symmetric bit for bit.

        Covariances are about the shard's mean, or about the origin of the lattice if not `centered`. A shard with too
        few points gets zeros.
        """
        sizes = self.sizes.astype(np.float64)[:, None, None]
        if centered:
            low = self.scatters / np.maximum(sizes - 1, 1)
        else:
            low = self.scatters / np.maximum(sizes, 1) + self.means[:, :, None] * self.means[:, None, :]
        low = np.tril(low)
        return low + np.tril(low, -1).transpose(0, 2, 1)


class ShardMoments(PaneStore[MomentsView]):
    """Counter that keeps the count, mean and scatter matrix of every shard, pane by pane (specification 7.3).

    Every point falls into one of the shards by its own random bits, drawn when the point arrives.

    Parameters
    ----------
    dimension : int
    shards : int
        Public number of shards.
    noise : Noise
        Source of the random bits.

    Notes
    -----
    A shard's moments depend on its own points and their order alone, to the last bit; so adding or removing a point
    changes one shard.

    Privacy
    -------
    Nothing is released. Random bits do not depend on data and need not be secret: the guarantee holds for all of them.

    Source
    ------
    Specification 7.3.

    Complexity
    ----------
    d**2 / 2 multiplications a point. Memory: 8 * shards * d**2 bytes a pane; points are not kept.
    """

    def __init__(self, dimension: int, shards: int, noise: Noise) -> None:
        if dimension < 1:
            raise ConfigError("must be at least 1", "dimension", got=dimension)
        if not 2 <= shards <= MAX_SHARDS:
            raise ConfigError("must be in [2, 2**20]", "shards", got=shards)
        super().__init__()
        self.dimension = dimension
        self.shards = shards
        self._noise = noise

    def size(self, pane: int) -> int:
        """Return the number of points in one pane."""
        return int(self._held[pane].sizes.sum()) if pane in self._held else 0

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Add lattice points (m, d) to a pane; they are not kept."""
        from ..._kernels import moments

        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise ConfigError(f"must have shape (m, {self.dimension})", "points", got=points.shape)
        if len(points) == 0:
            return
        if pane not in self._held:
            self._held[pane] = MomentsView.none(self.shards, self.dimension)
        held, rows = self._held[pane], np.ascontiguousarray(points, np.float64)
        coins = self._noise.uniform_integers(self.shards, len(rows))
        moments.add_points(rows, coins, held.sizes, held.means, held.scatters)

    def view(self, panes: Iterable[int]) -> MomentsView:
        """Return the view of the window that these panes make up; panes without points may be absent."""
        found = MomentsView.none(self.shards, self.dimension)
        for i, pane in enumerate(sorted(set(panes) & self._held.keys())):
            held = self._held[pane]
            found = found.merged(held) if i else MomentsView(held.sizes.copy(), held.means.copy(), held.scatters.copy())
        return found
