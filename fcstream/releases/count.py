"""How many records a window holds, with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ..sampled import EXACT, Choice
from ..zcdp import RHO_UNIT, PrivacyLoss
from .base import Forecast, Outcome

if TYPE_CHECKING:
    from ..friends import WindowView
    from ..ledgers.base import Charge
    from ..noise import Noise


@dataclass(frozen=True)
class NoisyCount:
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
    radius_squared: int | None = None
    pairs: Choice = EXACT

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
