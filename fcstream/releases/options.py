"""What a kind of release reads from ``[release]``: its keys, their checks, and the mechanism they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from ..accounting.losses import PrivacyLoss
from ..errors import ConfigError
from ..stream.lattice import Grid

if TYPE_CHECKING:
    from .base import Mechanism

MAX_RHO = 1e9


@dataclass(frozen=True, slots=True)
class BuildContext:
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
    """``[release]``: the keys of one kind (specification 12.1).

    A kind is a subclass with keys of its own and `build`, and its name.

    Notes
    -----
    Every key that is not at its default is part of the specification that a ledger is bound to, so a key that is added
    later must have a default that changes nothing.
    """

    kind: str = "mean"
    rho: float
    size_hint: int | None = None

    without_effect: ClassVar[tuple[str, ...]] = ()
    """Keys that are taken and do nothing; they are not part of a stream's specification."""
    takes_categories: ClassVar[bool] = False
    """Whether features may be categories, whose codes have no order."""
    needs_features: ClassVar[bool] = True
    """Whether there is nothing to answer without a feature."""
    needs_no_delta: ClassVar[bool] = False
    """Whether a ``delta``, if the kind has that key, pays for the bound on records alone."""

    @property
    def holds_records(self) -> bool:
        """Whether a window's memory or work grows with its records by more than a constant each; see `gate`."""
        return True

    @property
    def delta_or_zero(self) -> float:
        """``delta``, unchecked; 0 for kinds without that key."""
        return getattr(self, "delta", 0.0)

    def build(self, setting: BuildContext) -> Mechanism:
        """The mechanism. Raises ConfigError, with the key, for what cannot work."""
        raise NotImplementedError

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        """Those of the configured features that the answer is about: by default all. What a record holds in others must
        change nothing."""
        return features

    def pure_loss(self) -> PrivacyLoss:
        """``rho``, checked, without a delta."""
        check_rho(self.rho, "release.rho")
        return PrivacyLoss.charge(self.rho)

    def approximate_loss(self, delta: float) -> PrivacyLoss:
        """``rho`` and a delta, checked."""
        self.pure_loss()
        if not 1e-14 <= delta < 1:
            raise ConfigError(f"must be in [1e-14, 1) for this method, got {delta!r}", "release.delta")
        return PrivacyLoss.charge(self.rho, delta)

    def checked_size_hint(self) -> int:
        """``size_hint``, checked; for kinds that cannot do without."""
        if self.size_hint is None or not 1 <= self.size_hint <= 2**40:
            raise ConfigError(
                f"must be a public guess of records per window, at least 1, got {self.size_hint}", "release.size_hint"
            )
        return self.size_hint


def check_rho(value: float, key: str) -> None:
    """Refuse what is no rho. Above the largest nothing is protected, and sums would leave a ledger's integers.

    Raises
    ------
    ConfigError
    """
    if not 0 < value <= MAX_RHO:
        raise ConfigError(f"must be a positive number up to {MAX_RHO:g}, got {value!r}", key)


def keys_of(section: type[msgspec.Struct]) -> dict[str, Any]:
    """The keys of a section, and what they hold."""
    return {own.encode_name: own.type for own in msgspec.structs.fields(section)}
