"""The number of records of a window, with noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...accounting.losses import RHO_UNIT, PrivacyLoss
from ...counting.views import WindowView
from ...ledgers.base import Charge
from ...noise.samplers import Noise
from ...stream.lattice import Grid
from ...stream.panes import PaneStore
from ..base import Counter, Forecast, Mechanism, Outcome
from ..options import BuildContext, Options


class CountOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "count"``: the noisy number of records.

    The keys of means are accepted without effect, since the first version accepted them and ledgers hold them.

    Released
    --------
    value, sigma
        One number each: the number of records and 1/sqrt(2 rho). `count` and `core_count` are the same number.

    Cost
    ----
    rho.

    Privacy
    -------
    `NoisyCount` states the guarantee.

    Source
    ------
    Specification 5.9, 12.1; proof 6.1.
    """

    kind: str = "count"
    method: str = "recentered"
    radius: float | None = None
    spread: float | Literal["histogram"] = "histogram"
    center: list[float] | None = None
    delta: float = 0.0

    takes_categories: ClassVar[bool] = True
    needs_features: ClassVar[bool] = False
    takes_learned_scales: ClassVar[bool] = True
    without_effect: ClassVar[tuple[str, ...]] = ("method", "radius", "spread", "center", "delta")

    holds_records = False

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        return ()

    def build(self, setting: BuildContext) -> NoisyCount:
        return NoisyCount(self.pure_loss())


@dataclass(frozen=True, slots=True)
class WindowSize:
    """The number of records in a closing window.

    Privacy
    -------
    NOT private.

    Source
    ------
    Specification 5.9; ours.
    """

    size: int


class SizeCounter(PaneStore[int]):
    """Counts the records of each pane without keeping them.

    Privacy
    -------
    NOT private: a mechanism adds noise to these numbers.

    Source
    ------
    Specification 5.9; ours.
    """

    def add(self, pane: int, points: NDArray[np.float64]) -> None:
        """Count lattice points (m, d); d may be 0."""
        self._held[pane] = self._held.get(pane, 0) + len(points)

    def view(self, panes: Iterable[int]) -> WindowSize:
        """Return the view of the window that these panes make up."""
        return WindowSize(sum(self.held(panes)))


@dataclass(frozen=True)
class NoisyCount(Mechanism):
    """The number of valid records plus a discrete Gaussian.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.

    Privacy
    -------
    Protects one record, added or removed, with rho-zCDP and delta = 0; the sensitivity is 1. The count may be negative:
    clip it yourself, which is post-processing.

    Source
    ------
    Specification 5.9; proof 6.1; Canonne, Kamath, Steinke 2020, Theorem 14.
    """

    loss: PrivacyLoss
    kind: str = "count"

    @cached_property
    def variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self.loss.rho_nano)

    @cached_property
    def sigma(self) -> float:
        return math.sqrt(self.variance)

    def counter(self, dimension: int, reach: int, noise: Noise) -> Counter:
        return SizeCounter()

    def release(self, view: WindowSize | WindowView, charge: Charge, noise: Noise) -> Outcome:
        """Value and count are the same number."""
        charge.use(self.loss)
        count = view.size + noise.one_gaussian(self.variance)
        return Outcome(value=np.array([float(count)]), sigma=np.array([self.sigma]), count=count, core_count=count)

    def forecast(self, size: int) -> Forecast:
        return Forecast(1.0, self.sigma)

    def truth(self, points: NDArray[np.float64], grid: Grid) -> dict[str, Any] | None:
        return {"value": [float(len(points))]}
