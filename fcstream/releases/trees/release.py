"""Releases of a tree of boxes, ``kind = "tree"``: where records lie, as a map, and numbers of records in any range."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...accounting.losses import PrivacyLoss
from ...counting.views import WindowView
from ...errors import ConfigError
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ..base import Forecast, Mechanism, Outcome, PlanNotes, ReleaseValues
from ..core_stage import normal_above
from ..options import BuildContext, Options
from .growing import PublicBox, Tree, TreeMechanism, box_of
from .partition import partition

COUNT_SHARE = 0.7
"""Share of rho of the counts on the way down; the leaves' points have the rest."""
MAX_BOXES = 2**16


class TreeOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of releases with ``kind = "tree"``: where records lie, as boxes with noisy numbers of records.

    Boxes divide the public ranges, small where many records lie and large where hardly any do. ``fcstream plot`` draws
    them as a heat map, and `fcstream.count_in_range` tells how many records lie in any range, with the error of that.

    Released
    --------
    value, sigma
        Noisy number of records of each box, which may be negative, and the deviation of its noise.
    parts.low, parts.high
        The ends of each box, in the features' own (transformed) units.
    parts.means
        Noisy mean of each box's records; its middle where there are hardly any.
    parts.boxes, parts.parents, parts.variances
        How the boxes came about, for errors of sums of them: the node of each box in a tree, the node above each node
        (-1 above the first), and the variance of what is known of each node's number from itself and the nodes below.

    Cost
    ----
    rho; a window with too few records 1 to 4 percent of it.

    Privacy
    -------
    `TreeRelease` states the guarantee.

    Source
    ------
    Specification 6.17, 12.1; proof 7.10.
    """

    kind: str = "tree"
    max_boxes: int = 1000
    """Most boxes of a release; those with most records are divided first."""
    delta: float = 0.0
    """A δ that only pays for `window.max_records`."""

    needs_no_delta: ClassVar[bool] = True

    def build(self, setting: BuildContext) -> TreeRelease:
        if not 1 <= self.max_boxes <= MAX_BOXES:
            raise ConfigError(f"must be in [1, {MAX_BOXES}]", "release.max_boxes", got=self.max_boxes)
        release = TreeRelease(self.pure_loss(), box_of(setting.grid), self.max_boxes)
        _ = release.inner
        return release


@functools.lru_cache(maxsize=64)
def _built(rho_nano: int, box: PublicBox) -> TreeMechanism:
    count = int(rho_nano * COUNT_SHARE)
    return TreeMechanism(box, count, rho_nano - count)


@dataclass(frozen=True)
class OfTree(Mechanism):
    """Base class of releases that follow from one tree of the public ranges; a subclass says by `told` what is told.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.
    box : PublicBox

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0 by `TreeMechanism`: what is told reads the
    released tree alone. A window whose noisy number of records is too small is refused (``too_few``) after the first
    level, and the rest is refunded.

    Source
    ------
    Specification 6.17; proof 7.10; ours.
    """

    loss: PrivacyLoss
    box: PublicBox

    @property
    def inner(self) -> TreeMechanism:
        return _built(self.loss.rho_nano, self.box)

    @property
    def false_release(self) -> float:
        return self.inner.false_release

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        charge.open(self.loss)
        tree, root = self.inner.release(view.points(), noise, charge.start)
        return Outcome("too_few", count=root) if tree is None else self.told(tree, noise)

    def told(self, tree: Tree, noise: Noise) -> Outcome:
        """Return what is told of a released tree."""
        raise NotImplementedError

    def forecast(self, size: int) -> Forecast:
        """Forecast a window; sigma is that of the number of records of a node on the way down."""
        deviation = math.sqrt(self.inner.variance)
        return Forecast(normal_above((self.inner.min_count - 0.5 - size) / deviation), deviation)

    def predicted_sigmas(self, size: int, grid: Grid) -> dict[str, float]:
        return {"a node's count": self.forecast(size).sigma}


@dataclass(frozen=True)
class TreeRelease(OfTree):
    """Release of a tree's boxes, at most `most`.

    Privacy
    -------
    That of `OfTree`.

    Source
    ------
    Specification 6.17; proof 7.10; ours.
    """

    most: int = 1000
    kind: str = "tree"

    def told(self, tree: Tree, noise: Noise) -> Outcome:
        found = partition(tree, self.box, self.most)
        parts: dict[str, Any] = {"low": found.low, "high": found.high, "means": found.means}
        parts |= {"boxes": found.boxes.tolist(), "parents": found.parents.tolist()}
        parts["variances"] = found.variances.tolist()
        return Outcome(None, found.counts, found.deviations, tree.size, tree.size, parts=parts)

    def to_user_units(self, outcome: Outcome, grid: Grid) -> ReleaseValues:
        features, transforms = [f.name for f in grid.features], [f.transform for f in grid.features]
        if outcome.value is None or outcome.sigma is None:
            return ReleaseValues(None, None, features, transforms)
        parts = dict(outcome.parts or {})
        # Boxes end half a step beyond their values, where the next ones begin.
        for name, beyond in (("low", -0.5), ("high", 0.5), ("means", 0.0)):
            parts[name] = grid.values(np.asarray(parts[name], np.float64) + beyond)
        return ReleaseValues(outcome.value.tolist(), outcome.sigma.tolist(), features, transforms, parts)

    def notes(self, size: int | None, grid: Grid) -> PlanNotes:
        mechanism = self.inner
        lines = (
            f"at most {self.most} boxes in {self.box.depth} levels; a box of more than "
            f"{math.ceil(6 * math.sqrt(mechanism.variance))} noisy records is divided",
        )
        return PlanNotes(lines, stopped=mechanism.first)
