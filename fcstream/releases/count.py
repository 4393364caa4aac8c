"""How many records a window holds, with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ..zcdp import RHO_UNIT, PrivacyLoss
from .base import Forecast, MechanismBase, Outcome
from .options import FIRST_KEYS, Options, Setting

if TYPE_CHECKING:
    from ..friends import WindowView
    from ..ledgers.base import Charge
    from ..noise import Noise


class CountOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``kind = "count"``: the noisy number of records.

    The first version let the keys of means stand beside it, without effect; ledgers hold them, so they may stay.

    Privacy
    -------
    See `NoisyCount`.

    Source
    ------
    See `NoisyCount`.
    """

    method: str = "recentered"
    radius: float | None = None
    spread: float | Literal["histogram"] = "histogram"
    center: list[float] | None = None
    delta: float = 0.0

    takes_categories: ClassVar[bool] = True
    always: ClassVar[tuple[str, ...]] = FIRST_KEYS
    without_effect: ClassVar[tuple[str, ...]] = ("method", "radius", "spread", "center", "delta")

    def build(self, setting: Setting) -> NoisyCount:
        return NoisyCount(self.pure_loss())


@dataclass(frozen=True)
class NoisyCount(MechanismBase):
    """The number of valid records plus a discrete Gaussian.

    Parameters
    ----------
    loss : PrivacyLoss
        Only its rho is used; the charge has no delta.

    Privacy
    -------
    Unit: one record. Relation: add or remove. Pure rho-zCDP. Sensitivity 1. May be negative: clip it yourself, that is
    free.

    Source
    ------
    Canonne, Kamath, Steinke 2020, Theorem 14.
    """

    loss: PrivacyLoss
    kind: str = "count"

    @property
    def variance(self) -> Fraction:
        return Fraction(RHO_UNIT, 2 * self.loss.rho_nano)

    def release(self, view: WindowView, charge: Charge, noise: Noise) -> Outcome:
        """Value and count are the same number."""
        charge.use(self.loss)
        count = view.size + int(noise.discrete_gaussian(self.variance, 1)[0])
        return Outcome(
            value=np.array([float(count)]), sigma=np.array([math.sqrt(self.variance)]), count=count, core_count=count
        )

    def forecast(self, size: int) -> Forecast:
        return Forecast(1.0, math.sqrt(self.variance))
