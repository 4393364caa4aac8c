"""Decides what a stream's next window may cost, from public facts and earlier releases alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ..accounting.filters import BudgetSchedule
from ..accounting.losses import PrivacyLoss
from .answers import Answers, Tracks

GROUP = 256
"""How many windows are charged, sealed or acknowledged in one transaction, if none depends on the window before."""
_GRAINS = 64  # offers are rounded down to this part of the first share, so that few mechanisms have to be prepared


@dataclass(frozen=True)
class Spending:
    """Chooses the answers of each window, and with them the loss that the window may cost.

    Attributes
    ----------
    answers : Answers
        The answers of a window that is offered exactly ``release.rho``.
    unit : str
    savings : BudgetSchedule or None
        Offers later windows what earlier ones did not use. None: every window is offered the same.
    has_total : bool
        Whether there is a privacy filter on the sum of all windows.
    exhausted : str or None
        What becomes of windows that the budget has no room for: ``refuse``, ``stop``, or None: they are refused, and a
        run over files does not begin. With the unit ``user`` such a window is the first one for which a user with a
        record in every window has no room.

    Privacy
    -------
    An offer is a function of public facts and of what earlier windows used, which is a function of their releases. It
    is charged in full before data are read, and what was not used is refunded when the window is sealed.

    Source
    ------
    Specification 8.5; proof 2.8; Liang and Yi 2025, Algorithm 3.
    """

    answers: Answers
    unit: str
    savings: BudgetSchedule | None = None
    has_total: bool = False
    exhausted: str | None = None

    @property
    def stops(self) -> bool:
        """Whether a window that the budget has no room for ends the stream, instead of getting a refusal."""
        return self.exhausted == "stop"

    @property
    def group(self) -> int:
        """How many windows may be charged together: only one if the next window can use this one's refund."""
        return GROUP if self.unit == "event" and not self._is_one_by_one else 1

    @property
    def _is_one_by_one(self) -> bool:
        return self.has_total or self.stops or self.tracks or self.answers.has_epochs

    @property
    def tracks(self) -> bool:
        return self.answers.tracks

    def offer(self, index: int, spent: PrivacyLoss, tracks: Tracks) -> Answers:
        """Return the answers of the window with this index (from 0); their loss is the one to charge."""
        rho = self.answers.loss.rho_nano
        if self.savings is not None:
            step, capacity = index + 1, self.savings.capacity_nano
            # Less is left only if this window was charged before a crash: then the ledger holds its offer.
            least = math.ceil(self.savings.unclaimed(step) * capacity)
            grain = max(1, rho // _GRAINS)
            share = self.savings.share(step, max(least, capacity - spent.rho_nano))
            rho += max(0, share - rho) // grain * grain
        return self.answers_at(rho, tracks)

    def answers_at(self, rho_nano: int, tracks: Tracks = ()) -> Answers:
        """Return the answers at a rho that was offered, or was charged before a crash."""
        answers = self.answers
        if rho_nano != answers.loss.rho_nano:
            answers = _with_rho(answers, rho_nano)
        return answers.after(tracks)


@lru_cache(maxsize=256)
def _with_rho(answers: Answers, rho_nano: int) -> Answers:
    return answers.with_rho(rho_nano)
