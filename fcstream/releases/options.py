"""Options of a kind of release: the keys it reads from ``[release]``, their checks, and the mechanism they make."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import msgspec

from ..accounting.losses import PrivacyLoss
from ..errors import ConfigError
from ..stream.lattice import Grid
from ..stream.selection import TextUse
from .base import Mechanism

MAX_RHO = 1e9


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The parts of a configuration outside of ``[release]`` that a kind of release needs.

    Attributes
    ----------
    grid : Grid
        Features and lattice.
    reach : int
        Number of panes in a window; 1 for tumbling windows.
    unit : str
        ``event``, ``user`` or ``stream``.
    texts : tuple of str
        Names of the features that hold texts, which have no place on the lattice.
    window_ms : int
        Length of a window; 0 where there is no schedule.
    """

    grid: Grid
    reach: int = 1
    unit: str = "event"
    texts: tuple[str, ...] = ()
    window_ms: int = 0

    @property
    def dimension(self) -> int:
        return self.grid.dimension


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[release]``: the keys of one kind (specification 12.1).

    A kind of release is a registered subclass that declares its own keys and overrides `build`.

    Notes
    -----
    A ledger is bound to all keys that are not at their defaults. So a key that is added in a later version needs a
    default that leaves everything as it was.
    """

    kind: str = "mean"
    """What is released about every window."""
    rho: float
    """What one window costs at most, as a rho of zCDP."""
    size_hint: int | None = None
    """How many records a normal window holds: a public guess, which kinds that look for a core must have."""
    name: str | None = None
    """What this answer is called in releases; required where there are several."""
    features: list[str] | None = None
    """Which features it reads, in this order. Left out: all that the kind can read; categories only where it takes
    them."""
    where: dict[str, list[str | bool | int] | dict[str, float]] | None = None
    """Which records it is about: levels of a category or Boolean (``{ status = ["busy", "idle"] }``), or an interval
    of a number, ends included and rounded to the lattice (``{ speed = { min = 0, max = 60 } }``). Left out: all."""
    per_user: Literal["first", "mean", "sum"] | None = None
    """A user's one point in a window, for ``unit = "user"``: as in ``stream.per_user``, or the sum of all of the
    user's records (``sum``), clipped to ``user_bounds``. Left out: as the stream says."""
    user_bounds: tuple[float, float] | None = None
    """With ``per_user = "sum"``, which requires it: the least and the largest sum of one user that counts in full, in
    the feature's units."""

    without_effect: ClassVar[tuple[str, ...]] = ()
    """Keys that are accepted and have no effect; they are not part of a stream's specification."""
    takes_categories: ClassVar[bool] = False
    """Whether features may be categories, whose codes have no order."""
    needs_features: ClassVar[bool] = True
    """Whether a configuration without features is refused."""
    reads_text: ClassVar[bool] = False
    """Whether the answer is about a feature with ``type = "text"``."""
    keeps_totals: ClassVar[bool] = False
    """Whether the ledger holds exact totals of the current epoch."""
    makes_rows: ClassVar[bool] = False
    """Whether made-up rows are drawn from what is released."""
    needs_no_delta: ClassVar[bool] = False
    """Whether a ``delta``, if the kind has that key, only pays for the record gate."""

    takes_learned_scales: ClassVar[bool] = False
    """Whether features may have ``scale = "learned"``."""
    rescales: ClassVar[bool] = False
    """Whether they are then divided by their scales, because it compares distances."""

    @property
    def holds_records(self) -> bool:
        """Whether memory or work of a window grows by more than a constant per record; such a kind needs a gate."""
        return True

    def needs_record_gate(self, unit: str) -> bool:
        """Return whether the record gate belongs before such a kind, with this unit of privacy."""
        return self.holds_records

    @property
    def delta_or_zero(self) -> float:
        """``delta``, unchecked; 0 for kinds without that key."""
        return getattr(self, "delta", 0.0)

    @property
    def spares_delta(self) -> bool:
        """`needs_no_delta`, of kinds where that depends on other keys."""
        return self.needs_no_delta

    def chosen(self, setting: BuildContext) -> tuple[Options, str]:
        """Return the options of the method to take, for a `method` that leaves the choice, and why.

        The choice depends on public settings alone. The reason is a sentence, empty where there was no choice.
        """
        return self, ""

    def build(self, setting: BuildContext) -> Mechanism:
        """Make the mechanism. Raises ConfigError, with the key, if these options cannot work."""
        raise NotImplementedError

    def uses(self, features: Sequence[str]) -> Sequence[str]:
        """Return the configured features that the mechanism reads, by default all.

        Values of a record in other features must not change anything.
        """
        return features

    def text_use(self, texts: Sequence[str]) -> TextUse | None:
        """Return what the mechanism reads of the features that hold texts; None if it reads the lattice."""
        return None

    def pure_loss(self) -> PrivacyLoss:
        """Check ``rho`` and return it as a loss without a delta."""
        check_rho(self.rho, "release.rho")
        return PrivacyLoss.charge(self.rho)

    def approximate_loss(self, delta: float) -> PrivacyLoss:
        """Check ``rho`` and a delta and return them as a loss."""
        self.pure_loss()
        if not 1e-14 <= delta < 1:
            raise ConfigError("must be in [1e-14, 1) for this method", "release.delta", got=delta)
        return PrivacyLoss.charge(self.rho, delta)

    def checked_size_hint(self) -> int:
        """Check and return ``size_hint``; for kinds that require it."""
        if self.size_hint is None or not 1 <= self.size_hint <= 2**40:
            raise ConfigError(
                "must be a public guess of records per window, at least 1", "release.size_hint", got=self.size_hint
            )
        return self.size_hint


def check_rho(value: float, key: str) -> None:
    """Refuse a value that is no rho. Above `MAX_RHO` nothing is protected, and sums would overflow a ledger's integers.

    Raises
    ------
    ConfigError
    """
    if not 0 < value <= MAX_RHO:
        raise ConfigError(f"must be a positive number up to {MAX_RHO:g}", key, got=value)


def keys_of(section: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the keys of a section and their types."""
    return {own.encode_name: own.type for own in msgspec.structs.fields(section)}


def meanings_of(section: type[msgspec.Struct]) -> dict[str, str]:
    """Return what the docstrings under the keys of a section say, also those of classes that it inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        if issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct:
            found |= _docstrings(cls)
    return found


@lru_cache(maxsize=128)
def _docstrings(cls: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        key.target.id: " ".join(said.value.value.split())
        for key, said in itertools.pairwise(body.body)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        if isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant) and isinstance(said.value.value, str)
    }
