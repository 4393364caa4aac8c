"""Privacy filters: pure state machines over exact integers that stop before a sum passes its cap."""

from __future__ import annotations

from .errors import BudgetExhausted
from .zcdp import PrivacyLoss


class PrivacyFilter:
    """Spends fully adaptive losses until a cap.

    Parameters
    ----------
    capacity : PrivacyLoss
        The guarantee: valid for ever, whatever is asked.
    block : str
        What it protects, for messages.
    spent : PrivacyLoss
        To go on from a stored state.

    Privacy
    -------
    Unit and relation: those of the mechanisms charged. If every mechanism is charged its (rho, delta) before it runs
    and runs only if the charge was taken, everything released is (capacity.rho, capacity.delta)-zCDP, for losses
    chosen adaptively. A refused charge costs nothing and leaves the filter usable.

    Complexity
    ----------
    O(1) a charge.

    Source
    ------
    Whitehouse, Ramdas, Rogers, Wu 2023; Feldman and Zrnic 2021; Liang and Yi, Theorem 4.4.
    """

    __slots__ = ("block", "capacity", "spent")

    def __init__(self, capacity: PrivacyLoss, block: str = "stream", spent: PrivacyLoss | None = None) -> None:
        self.capacity = capacity
        self.block = block
        self.spent = spent or PrivacyLoss()

    @property
    def remaining(self) -> PrivacyLoss:
        return self.capacity - self.spent

    def can_spend(self, loss: PrivacyLoss) -> bool:
        """Whether `spend` would take this loss."""
        return (self.spent + loss).fits(self.capacity)

    def spend(self, loss: PrivacyLoss) -> None:
        """Take a loss.

        Raises
        ------
        BudgetExhausted
            It does not fit; nothing is spent.
        """
        if not self.can_spend(loss):
            raise BudgetExhausted(loss, self.remaining, self.capacity, self.block)
        self.spent = self.spent + loss
