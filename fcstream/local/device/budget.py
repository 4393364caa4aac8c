"""The budget of a device, in one of three kinds of geo-privacy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ...accounting.losses import EPSILON_UNIT, DPLoss, Loss, Number, PrivacyLoss, geo_rho_cap, zcdp_of_geo
from ...errors import ConfigError


@dataclass(frozen=True)
class LocalBudget:
    """The capacity of a device's privacy filter, per unit of distance.

    Made by `geo`, `concentrated` or `approximate`.

    Privacy
    -------
    Protects the tuple of all components that a device ever has, against any other tuple, at the largest of the
    components' distances.

    Source
    ------
    Specification 11.4; proofs 10.1, 10.5; erratum 3.1; Liang and Yi 2025, Theorems 4.2, 4.4 and 4.5; `geo_rho_cap` for
    the last.
    """

    kind: str
    capacity: Loss
    terms: Mapping[str, float]

    @classmethod
    def geo(cls, epsilon: Number) -> LocalBudget:
        """Pure geo-privacy: every reply is charged an epsilon, and epsilons add up."""
        cap = DPLoss.cap(epsilon)
        return cls("geo", cap, {"epsilon": cap.epsilon})

    @classmethod
    def concentrated(cls, rho: Number) -> LocalBudget:
        """Concentrated geo-privacy: every reply is charged a rho; an epsilon counts as epsilon**2 / 2."""
        cap = PrivacyLoss.cap(rho)
        return cls("concentrated", cap, {"rho": cap.rho})

    @classmethod
    def approximate(cls, epsilon: float, delta: float, distance: float) -> LocalBudget:
        """(epsilon, delta, distance)-geo-privacy: concentrated, with the largest capacity that implies it."""
        cap = geo_rho_cap(epsilon, delta, distance)
        return cls("approximate", cap, {"epsilon": epsilon, "delta": delta, "distance": distance})

    def loss(self, nano: int) -> Loss:
        """Nano units as a loss of this budget's kind."""
        return DPLoss(nano) if self.kind == "geo" else PrivacyLoss(nano)

    def charge(self, nano: int, pure: bool) -> Loss:
        """What a question of this loss is charged: an epsilon (`pure`) or a rho, in nano units.

        Raises
        ------
        ConfigError
            A rho where epsilons are counted: no epsilon bounds it.
        """
        return _charge(nano, pure, self.kind == "geo")

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.terms, "capacity_nano": self.capacity.parts[0]}


@functools.lru_cache(maxsize=256)
def _charge(nano: int, pure: bool, is_geo: bool) -> Loss:
    if is_geo:
        if not pure:
            raise ConfigError("must be an epsilon: this device promises pure geo-privacy", "loss")
        return DPLoss(nano)
    return zcdp_of_geo(Fraction(nano, EPSILON_UNIT)) if pure else PrivacyLoss(nano)
