"""What a kind of release reads from ``[release]``: its keys, their checks, and the mechanism they make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from ..errors import ConfigError
from ..lattice import Grid
from ..zcdp import PrivacyLoss

if TYPE_CHECKING:
    from .base import Mechanism

FIRST_KEYS = ("kind", "method", "radius", "spread", "center", "rho", "delta", "size_hint")
"""What the first version hashed of ``[release]``, in its order."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rest of a configuration says to a kind of release.

    Attributes
    ----------
    grid : Grid
        Features and lattice.
    reach : int
        Panes of a window; 1 for tumbling ones.
    unit : str
        ``event``, ``user`` or ``stream``.
    """

    grid: Grid
    reach: int = 1
    unit: str = "event"

    @property
    def dimension(self) -> int:
        return self.grid.dimension


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[release]``: the keys of one kind. A kind is a subclass with keys of its own and `build`, and its name.

    Notes
    -----
    `shape` enters the hash that ties a ledger to its stream, so a key that is added later must have a default that
    changes nothing.
    """

    kind: str = "mean"
    rho: float
    size_hint: int | None = None

    always: ClassVar[tuple[str, ...]] = ("kind", "rho")
    """Keys that enter the hash also at their defaults, first and in this order."""
    without_effect: ClassVar[tuple[str, ...]] = ()
    """Keys that are taken and do nothing."""
    takes_categories: ClassVar[bool] = False
    """Whether features may be categories, whose codes have no order."""

    def build(self, setting: Setting) -> Mechanism:
        """The mechanism. Raises ConfigError, with the key's place, for what cannot work."""
        raise NotImplementedError

    def shape(self) -> dict[str, Any]:
        """What shapes a release: the keys of `always`, and others that are not at their defaults."""
        found = {name: getattr(self, name) for name in self.always}
        for own in msgspec.structs.fields(type(self)):
            value = getattr(self, own.name)
            default = own.default if own.default_factory is msgspec.NODEFAULT else own.default_factory()
            if own.required or value != default:
                found.setdefault(own.encode_name, value)
        return found

    def pure_loss(self) -> PrivacyLoss:
        """``rho``, checked, without a delta."""
        if not (math.isfinite(self.rho) and self.rho > 0):
            raise ConfigError(f"must be a positive number, got {self.rho!r}", "release.rho")
        return PrivacyLoss.charge(self.rho)

    def approximate_loss(self, delta: float) -> PrivacyLoss:
        """``rho`` and a delta, checked."""
        self.pure_loss()
        if not 1e-14 <= delta < 1:
            raise ConfigError(f"must be in [1e-14, 1) for this method, got {delta!r}", "release.delta")
        return PrivacyLoss.charge(self.rho, delta)

    def guess(self) -> int:
        """``size_hint``, checked; for kinds that cannot do without."""
        if self.size_hint is None or not 1 <= self.size_hint <= 2**40:
            raise ConfigError(
                f"must be a public guess of records per window, at least 1, got {self.size_hint}", "release.size_hint"
            )
        return self.size_hint


def keys_of(section: type[msgspec.Struct]) -> dict[str, Any]:
    """The keys of a section, and what they hold."""
    return {own.encode_name: own.type for own in msgspec.structs.fields(section)}
