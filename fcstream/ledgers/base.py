"""What every ledger promises.

A window's life: ``charge`` (durable before any noise is drawn) -> ``seal`` (these noisy bytes are final) ->
``acknowledge`` (the sink has them). Each call takes a group of windows and is one transaction.

==================================  ===============================================================================
found when a window is charged      verdict
==================================  ===============================================================================
nothing                             granted, if every block it covers has room; else a refusal: nothing is spent
charged, never sealed               granted once more under the SAME charge (nothing left the process); the second
                                    time interrupted: the charge stays, no noise is drawn
sealed                              done: the stored bytes are the only answer there will ever be
==================================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import BudgetExhausted
from ..zcdp import PrivacyLoss

STREAM_BLOCK = "stream"


@dataclass(frozen=True, slots=True)
class Terms:
    """What one ledger is about. All of it is fixed when the ledger is made.

    Attributes
    ----------
    stream : str
    unit : str
        ``event``: a filter per pane. ``stream``: one filter for everything.
    capacity : PrivacyLoss
        Cap of each filter, for ever.
    specification : str
        Hash of everything that shapes a release.
    """

    stream: str
    unit: str
    capacity: PrivacyLoss
    specification: str


@dataclass(frozen=True, slots=True, order=True)
class WindowKey:
    """A window's name in the ledger."""

    open_ms: int
    close_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """A window that wants to be charged `loss` on each of its `blocks`."""

    window: WindowKey
    loss: PrivacyLoss
    blocks: tuple[str, ...]


class _Mint:
    """Only ledgers hold it: a `Charge` without it cannot be made."""


_MINT = _Mint()


class Charge:
    """Proof that a loss was durably charged for one window. Only a ledger makes one, and it serves one release.

    Attributes
    ----------
    window : WindowKey
    loss : PrivacyLoss
    spent : PrivacyLoss
        What the window's most charged block has spent, this charge included.
    """

    __slots__ = ("_used", "loss", "spent", "window")

    def __init__(self, mint: _Mint, window: WindowKey, loss: PrivacyLoss, spent: PrivacyLoss) -> None:
        if mint is not _MINT:
            raise TypeError("a Charge is made by a ledger only")
        self.window = window
        self.loss = loss
        self.spent = spent
        self._used = False

    def use(self, needed: PrivacyLoss) -> None:
        """Called by a release before its first draw.

        Raises
        ------
        RuntimeError
            The charge served a release before, or is smaller than what the release costs.
        """
        if self._used:
            raise RuntimeError("this charge has served a release: a second answer needs a charge of its own")
        if not needed.fits(self.loss):
            raise RuntimeError(f"the release costs {needed}, the charge holds {self.loss}")
        self._used = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a ledger says to a request.

    Attributes
    ----------
    window : WindowKey
    charge : Charge or None
        The grant.
    refusal : BudgetExhausted or None
        No room; nothing was spent.
    interrupted : PrivacyLoss or None
        Charged earlier, drawn twice, never sealed: what stays charged.
    spent : PrivacyLoss
        Of the window's most charged block, after this verdict.

    All three None: the window was sealed before.
    """

    window: WindowKey
    spent: PrivacyLoss
    charge: Charge | None = None
    refusal: BudgetExhausted | None = None
    interrupted: PrivacyLoss | None = None


def grant(window: WindowKey, loss: PrivacyLoss, spent: PrivacyLoss) -> Verdict:
    """For ledgers: a verdict with a fresh charge."""
    return Verdict(window, spent, charge=Charge(_MINT, window, loss, spent))


class Ledger(Protocol):
    """One stream's durable journal. Every call takes effect whole, or raises and changes nothing."""

    terms: Terms

    def charge(self, requests: Sequence[Request]) -> list[Verdict]:
        """Charge a group, in order, in one transaction; durable when it returns."""

    def seal(self, answers: Sequence[tuple[WindowKey, bytes]]) -> None:
        """Store the final bytes of windows (a refusal's too) in one transaction."""

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        """Note that the sink has them."""

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        """Sealed, but not known to have reached the sink, in order of sealing."""

    def last_sealed(self) -> WindowKey | None:
        """The sealed window that opened last."""

    def spent(self) -> PrivacyLoss:
        """Of the most charged block."""

    def close(self) -> None:
        """Let go of the storage. Idempotent."""
