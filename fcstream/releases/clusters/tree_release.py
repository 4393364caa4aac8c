"""Releases of clusters by a private tree, and centers: ``kind = "centers"`` with ``method = "tree"``."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..base import Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..options import BuildContext, Options
from ..trees.growing import PublicBox, box_of
from .centers import centers_in_user_units, place_and_reach
from .tree_centers import PublicBall, TreeClustering, TreeParts


def region_of(center: list[float] | None, ball: float | None, grid: Grid) -> tuple[PublicBox, PublicBall | None]:
    """Return the box that a tree divides, and the ball in which records count if the configuration gives one.

    Raises
    ------
    ConfigError
        The center does not lie in the ranges, or the ball has no radius.

    Privacy
    -------
    A function of the configuration alone.

    Source
    ------
    Specification 6.16; ours.
    """
    box, (middle, reach) = box_of(grid), place_and_reach(center, ball, grid)
    if ball is None:
        return box, None
    if not (math.isfinite(ball) and ball > 0):
        raise ConfigError("must be a positive number", "release.ball", got=ball)
    # Wider by half a step in every feature, so that rounding takes no record out of it.
    squared = grid.lattice.radius_squared(reach + grid.lattice.step * math.sqrt(grid.dimension) / 2, "release.ball")
    found = PublicBall(tuple(int(x) for x in grid.lattice.coordinates(middle)), squared)
    around = found.box()
    return PublicBox(tuple(map(max, box.low, around.low)), tuple(map(min, box.high, around.high))), found


@dataclass(frozen=True)
class TreeClustersRelease(Mechanism):
    """Base class of releases of clusters by a tree.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    k : int or None
        None chooses it on released points.
    box : PublicBox
    ball : PublicBall or None
        Records outside do not count.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0 by `inner`. A window whose noisy number of
    records is too small is refused (``too_few``) after the tree's first level, and the rest is refunded.

    Source
    ------
    Specification 6.16, 6.18; proof 7.10; ours.
    """

    loss: PrivacyLoss
    k: int | None
    box: PublicBox
    ball: PublicBall | None = None

    @property
    def inner(self) -> TreeParts:
        """The mechanism."""
        raise NotImplementedError

    @property
    def false_release(self) -> float:
        return self.inner.false_release

    def forecast(self, size: int) -> Forecast:
        """Forecast a window of `size` records; how wide its clusters are, and so their noise, only the data tell."""
        return Forecast(self.inner.chance(size), math.nan)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {feature.name: math.nan for feature in grid.features}


class TreeClustersOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the options of clusters by a tree share."""

    k: int | Literal["auto"]
    """Number of clusters, at most 256; ``auto``: 2 to 12, chosen on the released points."""
    method: str = "tree"
    """How clusters are found."""
    center: list[float] | None = None
    """Center of the public ball, in the features' own (transformed) units. Left out: the middle of their ranges."""
    ball: float | None = None
    """Radius of the public ball in which records count, in scaled units. Left out: all count."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""

    needs_no_delta: ClassVar[bool] = True

    def settings(self, setting: BuildContext) -> tuple[PrivacyLoss, int | None, PublicBox, PublicBall | None]:
        """Return what a release is made with."""
        return self.pure_loss(), None if self.k == "auto" else self.k, *region_of(self.center, self.ball, setting.grid)


@functools.lru_cache(maxsize=64)
def _built(rho_nano: int, k: int | None, box: PublicBox, ball: PublicBall | None) -> TreeClustering:
    return TreeClustering(rho_nano, k, box, ball)


@dataclass(frozen=True)
class TreeCentersRelease(TreeClustersRelease):
    """Release of the centers of a window's clusters by a tree.

    Privacy
    -------
    That of `TreeClustersRelease`, by `TreeClustering`.

    Source
    ------
    Specification 6.16; proof 7.10; ours.
    """

    kind: str = "centers"

    @property
    def inner(self) -> TreeClustering:
        return _built(self.loss.rho_nano, self.k, self.box, self.ball)

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        return self.inner.find(view.points(), noise, charge.start).outcome()

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        return centers_in_user_units(outcome, grid)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        step = self.inner.average
        lines = [f"k-means on the points of a tree of at most {self.box.depth} levels, and one step over all records"]
        if size is not None and self.k is not None:
            part = math.sqrt(RHO_UNIT / (2 * step.sum_nano)) / max(1.0, size / self.k)
            lines.append(f"a center's noise is about {part:.2g} of its cluster's radius, for clusters of equal size")
        return PlanNotes(tuple(lines), stopped=self.inner.tree.first)


class TreeCentersOptions(TreeClustersOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "centers"`` with ``method = "tree"``: k centers that are answered for any records but too few.

    Noisy counts divide the public ranges (or the box around a public `ball`) into boxes where records lie, each box
    gets a noisy mean, and k-means runs on those released points; one noisy Lloyd step over all records follows. It
    needs no δ, no `size_hint`, and no clusters that lie apart.

    Released
    --------
    value
        k centers, clipped to the public ranges.
    sigma
        One number for each coordinate of each center: the noise of the last step; null where a center had too few
        records for it, and stays where k-means put it.
    parts.counts
        Noisy number of records of each center.
    parts.clipped
        For each center whether it or its number was clipped.
    parts.tuples
        Always null: there are none.

    Cost
    ----
    rho; a window with too few records 1 to 3 percent of it.

    Privacy
    -------
    `TreeCentersRelease` states the guarantee.

    Source
    ------
    Specification 6.16, 12.1; proof 7.10.
    """

    kind: str = "centers"

    def build(self, setting: BuildContext) -> TreeCentersRelease:
        release = TreeCentersRelease(*self.settings(setting))
        _ = release.inner
        return release
