"""Privacy filters, which stop before a sum passes its cap, and odometers, which report. Exact integers, no I/O."""

from __future__ import annotations

import math

from .errors import BudgetExhausted, ConfigError
from .zcdp import RHO_UNIT, PrivacyLoss, epsilon_simple

_ETA_PER_RHO = 0.2


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


class PrivacyOdometer:
    """Adds up fully adaptive losses, without a cap, and bounds the loss that was really suffered, at all times at once.

    Parameters
    ----------
    tuned_for : float
        The sum of rho near which `realized_loss_bound` is tightest; public, and fixed before the first loss.
    spent : PrivacyLoss
        To go on from a stored state.

    Privacy
    -------
    Unit and relation: those of the mechanisms. An odometer promises nothing: only a `PrivacyFilter`'s capacity is a
    guarantee. `spent` are plain sums; turning them into an epsilon while the stream goes on is not a bound of anything,
    because when one looks may depend on what was released. `realized_loss_bound` is: with probability at least
    1 - failure the log-likelihood ratio between two neighbors never exceeds it, whenever one looks.

    Complexity
    ----------
    O(1) a loss.

    Source
    ------
    Whitehouse, Ramdas, Rogers, Wu 2023, Theorem 3; the mixture is Robbins', in the form of Howard et al. 2021. For the
    loss L of rho-zCDP steps with sum R, exp(x (L - R) - x**2 R) is a supermartingale for every x > 0; averaging over a
    half-normal x of variance 1/eta and Ville's inequality give the bound, as an upper normal tail is at most
    exp(-z**2 / 2) / 2.
    """

    __slots__ = ("_tuned_for", "spent")

    def __init__(self, tuned_for: float = 1.0, spent: PrivacyLoss | None = None) -> None:
        if not 0 < tuned_for < math.inf:
            raise ConfigError(f"must be positive, got {tuned_for}", "tuned_for")
        self._tuned_for = tuned_for
        self.spent = spent or PrivacyLoss()

    def spend(self, loss: PrivacyLoss) -> None:
        """Take note of a loss, before its mechanism runs."""
        self.spent = self.spent + loss

    def realized_loss_bound(self, failure: float, form: str = "mixture") -> float:
        """An epsilon that the realized loss exceeds, now or at any other time, with at most this probability.

        Parameters
        ----------
        failure : float
            Below 1; the sum of deltas is taken out of it.
        form : str
            ``mixture``, tightest near `tuned_for`, or ``ladder``: a union over doubling sums of rho.

        Returns
        -------
        float
            Infinite if the deltas alone reach `failure`.
        """
        if not 0 < failure < 1:
            raise ConfigError(f"must be in (0, 1), got {failure}", "failure")
        if form not in ("mixture", "ladder"):
            raise ConfigError(f"must be 'mixture' or 'ladder', got {form!r}", "form")
        rho, left = self.spent.rho, failure - self.spent.delta
        if left <= 0:
            return math.inf
        if self.spent.rho_nano == 0:
            return 0.0
        if form == "ladder":
            return self._ladder_bound(left)
        eta = _ETA_PER_RHO * self._tuned_for
        variance = 2 * rho + eta
        return rho + math.sqrt(2 * variance * math.log1p(math.sqrt(variance / eta) / (2 * left)))

    def _ladder_bound(self, failure: float) -> float:
        """The textbook bound of the smallest rung that holds all spent so far; rungs double and share the failure."""
        first = max(1, int(self._tuned_for * RHO_UNIT) >> 4)
        rung = max(0, (-(-self.spent.rho_nano // first) - 1).bit_length())
        return epsilon_simple((first << rung) / RHO_UNIT, 6 * failure / (math.pi * (rung + 1)) ** 2)
