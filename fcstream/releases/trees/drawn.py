"""Rows that are drawn from a released tree, ``kind = "points"`` with ``method = "tree"``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..base import Outcome, PlanNotes, ReleaseValues
from ..options import BuildContext, Options
from .growing import Tree, box_of
from .release import OfTree

MAX_ROWS = 10**6


class TreePointsOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "points"`` with ``method = "tree"``: made-up rows that lie where the records do.

    A tree divides the public ranges as for `tree`. Each row takes a leaf by its noisy number of records, and a place in
    the leaf's box by its noisy mean. All rows weigh the same.

    Released
    --------
    value
        Rows within the public ranges, on the lattice; they belong to nobody.
    parts.set
        Always `box`.
    parts.weights
        Weight of each row.

    Cost
    ----
    rho; a window with too few records 1 to 4 percent of it.

    Privacy
    -------
    `TreePoints` states the guarantee.

    Source
    ------
    Specification 9.9, 12.1; proof 7.10.
    """

    kind: str = "points"
    method: str = "tree"
    """How points are found."""
    rows: int = 1000
    """How many rows are drawn."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""

    needs_no_delta: ClassVar[bool] = True
    makes_rows: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> TreePoints:
        if not 1 <= self.rows <= MAX_ROWS:
            raise ConfigError(f"must be in [1, {MAX_ROWS}]", "release.rows", got=self.rows)
        release = TreePoints(self.pure_loss(), box_of(setting.grid), self.rows)
        _ = release.inner
        return release


def draw_rows(tree: Tree, rows: int, noise: Noise) -> NDArray[np.float64]:
    """Draw rows (rows, d) from a released tree, on the lattice; `noise` gives the coins.

    Leaves are taken in the order in which they lie, at equal distances along their noisy numbers of records, so that
    every region gets its share of the rows up to one for each of its borders. In a box with the noisy mean c, feature j
    is uniform on [low_j, c_j] or on [c_j, high_j], with such chances that its mean is c_j. Where deviations were
    measured, the box ends √3 of them from c, as wide as a uniform distribution with this deviation.

    Privacy
    -------
    Post-processing: it reads a released tree alone.

    Source
    ------
    Specification 9.9; ours.
    """
    order = np.argsort(_along(tree))
    passed = np.cumsum(np.maximum(tree.weights, 1e-9)[order])
    places = (np.arange(rows) + noise.uniforms(1)[0]) / rows * passed[-1]
    taken = order[np.minimum(np.searchsorted(passed, places, side="right"), len(order) - 1)]
    means, reach = tree.points[taken], math.sqrt(3.0) * tree.deviations
    low, high = np.maximum(tree.low[taken] - 0.5, means - reach), np.minimum(tree.high[taken] + 0.5, means + reach)
    which, where = noise.uniforms(2 * means.size).reshape(2, *means.shape)
    end = np.where(which * (high - low) < high - means, low, high)
    made: NDArray[np.float64] = np.rint(means + where * (end - means))
    return np.clip(made, tree.low[taken], tree.high[taken])


def _along(tree: Tree) -> NDArray[np.float64]:
    """Return where each leaf lies in [0, 1), if a node's first child has the first half of its part."""
    places = np.zeros(len(tree.parents))
    for level in range(1, int(tree.levels.max()) + 1):
        nodes = np.flatnonzero(tree.levels == level)
        above = tree.parents[nodes]
        places[nodes] = places[above] + (nodes > tree.children[above]) * 0.5**level
    return places[tree.leaves]


@dataclass(frozen=True)
class TreePoints(OfTree):
    """Release of rows that are drawn from a tree.

    Privacy
    -------
    That of `OfTree`: rows are a function of the released tree and of fresh coins.

    Source
    ------
    Specification 9.9; proof 7.10; ours.
    """

    rows: int = 1000
    kind: str = "points"

    def told(self, tree: Tree, noise: Noise) -> Outcome:
        value = draw_rows(tree, self.rows, noise)
        return Outcome(None, value, None, tree.size, tree.size, parts={"weights": [1 / self.rows] * self.rows})

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        features, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        value = None if outcome.value is None else grid.values(outcome.value)
        return ReleaseValues(value, None, features, transforms, {"set": "box"} | (outcome.parts or {}))

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        line = f"{self.rows} rows drawn from the leaves of a tree of at most {self.box.depth} levels"
        return PlanNotes((line,), stopped=self.inner.first)
