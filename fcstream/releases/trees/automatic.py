"""Points with ``method = "auto"``: rows of a tree or noisy means of cells, whichever the settings predict nearer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ...accounting.losses import RHO_UNIT
from ...errors import ConfigError
from ...synthetic.convex import REACH
from ..base import percent
from ..options import BuildContext, Options
from ..tables.points import Points, PointsOptions
from .drawn import TreePoints, TreePointsOptions
from .growing import ASKED

SUPPOSED = 0.12
"""Deviation of the records that predictions suppose, in parts of each feature's public range."""
SURE = 0.99
"""Probability of a release below which a method is not taken where the other is likelier to release."""
RARE = 0.001
_FALL = 0.6  # power of the number of boxes by which a tree's distance falls,
_START, _GROWTH = 0.06, 0.25  # where nothing is divided, and the power of the number of features
_WIDE_FALL, _WIDE_START = 0.25, 0.045  # the same with many features,
_TOO_WIDE = 0.4  # of what deviations are too large
_CELLS, _CELLS_FALL = 0.22, 0.3  # distance of cells if noise were as large as the ranges, and the power of the noise
_OF_CELLS = ("set", "center", "radius", "total")
_SHARED = ("rho", "delta", "size_hint", "name", "features", "where", "per_user", "user_bounds")


class AutoPointsOptions(PointsOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "points"`` with ``method = "auto"``: points by a tree or by cells, whichever settings predict nearer.

    ``fcstream plan`` says which method is taken, and why. The choice depends on settings alone, never on records. Where
    a key is given that belongs to one method (`set`, `center`, `radius` and `total` to cells, `rows` to a tree), that
    one is taken; without `size_hint` the tree.

    Released
    --------
    value, parts.weights
        Points within the public ranges or the public set, and the weight of each.
    parts.set
        `box`, `ball` or `simplex`.
    parts.counts
        Of cells: noisy numbers of records in them.

    Cost
    ----
    rho; a window with too few records 1 to 10 percent of it.

    Privacy
    -------
    `TreePoints` or `Points` states the guarantee.

    Source
    ------
    Specification 9.10, 12.1; proofs 7.10, 9.2.
    """

    method: str = "auto"
    """How points are found: as rows drawn from a tree (``tree``), as noisy means of cells along the leading directions
    (``cells``), or by the one of both that settings predict to be nearer (``auto``)."""
    rows: int = 1000
    """How many rows a tree draws."""

    def chosen(self, setting: BuildContext) -> tuple[Options, str]:
        shared: dict[str, Any] = {key: getattr(self, key) for key in _SHARED}
        alone: dict[str, Any] = {key: getattr(self, key) for key in _OF_CELLS}
        cells = PointsOptions(**shared, **alone)
        tree = TreePointsOptions(**shared, rows=self.rows)
        defaults = {own.name: own.default for own in msgspec.structs.fields(type(self))}
        theirs = [key for key in _OF_CELLS if getattr(self, key) != defaults[key]]
        if self.rows != defaults["rows"] and (theirs or self.method != "auto"):
            also = f"`release.{theirs[0]}` to" if theirs else "what is asked for is"
            raise ConfigError(f"belongs to method 'tree', and {also} 'cells'", "release.rows", remedy="leave one out")
        if self.method != "auto":
            return cells, ""
        if theirs:
            return cells, f"`auto` takes `cells`: `release.{theirs[0]}` belongs to them"
        if self.rows != defaults["rows"]:
            return tree, "`auto` takes `tree`: `release.rows` belongs to it"
        if self.size_hint is None:
            return tree, (
                "`auto` takes `tree`: without `release.size_hint` nothing is predicted, and of large windows its rows "
                "were nearer in most data"
            )
        return self._compared(cells, tree, setting)

    def build(self, setting: BuildContext) -> Points | TreePoints:  # type: ignore[override]
        return self.chosen(setting)[0].build(setting)  # type: ignore[return-value]

    def _compared(self, cells: PointsOptions, tree: TreePointsOptions, setting: BuildContext) -> tuple[Options, str]:
        """Take the method whose points are predicted to be nearer, of those that can be built and release."""
        size = self.checked_size_hint()
        by_cells = cells.build(setting)
        try:
            by_tree = tree.build(setting)
        except ConfigError as error:
            return cells, f"`auto` takes `cells`: for `tree` {error.key} {error.message}"
        chance = {"tree": by_tree.forecast(size).probability, "cells": by_cells.forecast(size).probability}
        likelier, other = ("tree", "cells") if chance["tree"] >= chance["cells"] else ("cells", "tree")
        if chance[other] < min(SURE, chance[likelier]):
            rarely = "hardly ever" if chance[other] < RARE else percent(chance[other])
            return (tree if likelier == "tree" else cells), (
                f"`auto` takes `{likelier}`: {size} records release with probability {percent(chance[likelier])} by "
                f"it, by `{other}` {rarely}"
            )
        compared = compare(by_tree, by_cells, size)
        return (tree if compared.tree <= compared.cells else cells), compared.why


@dataclass(frozen=True, slots=True)
class PointsComparison:
    """How far points are predicted to lie from the records in a direction, in parts of the public ranges.

    Attributes
    ----------
    tree, cells : float
        Wasserstein distance along a random direction.
    why : str
        What is taken, in one sentence.

    Privacy
    -------
    Holds public numbers only, so it costs nothing.

    Source
    ------
    Specification 9.10; ours.
    """

    tree: float
    cells: float
    why: str


def compare(tree: TreePoints, cells: Points, size: int) -> PointsComparison:
    """Predict how near the points of both methods are, for a window of `size` records.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 9.10; ours.
    """
    by_tree, by_cells = tree_distance(tree, size), cells_distance(cells, size)
    taken, other = ("tree", "cells") if by_tree <= by_cells else ("cells", "tree")
    least, more = sorted((by_tree, by_cells))
    return PointsComparison(
        by_tree,
        by_cells,
        f"`auto` takes `{taken}`: its points are predicted to lie {least:.2g} of the public ranges from the records, "
        f"with `{other}` {more:.2g}, where their deviation is about an eighth of the ranges as in the data measured",
    )


def tree_distance(tree: TreePoints, size: int) -> float:
    """Predict how far rows drawn from a tree lie from `size` records, in parts of the public ranges.

    It falls with a power of how many boxes may be divided. With many features each deviation is at least that of its
    own noise, which makes narrow records too wide. The point of a leaf has a noise that goes with all ranges together,
    which is more for a feature whose range is narrower than the others'.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 9.10; ours, fitted to measured distances.
    """
    inner = tree.inner
    widths = np.array([high - low for low, high in zip(inner.box.low, inner.box.high, strict=True)], np.float64)
    widths = widths[widths > 0]
    if not len(widths):
        return 0.0
    divided = ASKED * math.sqrt(inner.variance)
    noise = math.sqrt(RHO_UNIT / inner.point_nano)
    if inner.moment_nano:
        floor = inner.min_deviation(size)
        divided = max(divided, 6 * float(widths.sum()) * noise / math.sqrt(float((widths**2).sum())))
        distance = _TOO_WIDE * max(0.0, floor - SUPPOSED) + _WIDE_START * math.pow(
            max(1.0, size / divided), -_WIDE_FALL
        )
    else:
        distance = _START * len(widths) ** _GROWTH * math.pow(max(1.0, size / divided), -_FALL)
    moved = np.minimum(1.0, np.sqrt(widths.sum() / widths) * noise / max(1.0, min(divided, size)))
    squares: float = np.mean(1 + moved**2).item()
    return distance * math.sqrt(squares)


def cells_distance(cells: Points, size: int) -> float:
    """Predict how far noisy means of cells lie from `size` records, in parts of the public ranges.

    It grows with a power of the noise of a cell's sum, which goes with the radius of the ball around all ranges.

    Privacy
    -------
    Computed from public numbers alone, so it costs nothing.

    Source
    ------
    Specification 9.10; ours, fitted to measured distances.
    """
    region = cells.region
    widths = np.array(region.high, np.float64) - np.array(region.low, np.float64)
    widths = widths[widths > 0]
    d = len(widths)
    if not d:
        return 0.0
    noise = math.sqrt(cells.variances[3]) / REACH / max(1, size)
    across = 2 * noise * region.radius / math.sqrt(d) / widths
    squares: float = np.mean(across ** (2 * _CELLS_FALL)).item()
    return _CELLS * math.sqrt(squares)
