"""Privacy filters, which refuse a loss before a sum passes its capacity, and odometers, which only report sums.

All sums are exact integers, and nothing here does input or output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Generic

from ..errors import BudgetExhausted, ConfigError, Shown
from .arguments import chance, nonnegative, whole
from .losses import (
    DELTA_UNIT,
    EPSILON_UNIT,
    RHO_UNIT,
    DPLoss,
    LossT,
    Number,
    PrivacyLoss,
    epsilon_simple,
    largest,
    to_units,
)

_ETA_PER_RHO = 0.2


class PrivacyFilter(Generic[LossT]):
    """Privacy filter: takes fully adaptive losses as long as their plain sum fits its capacity.

    Parameters
    ----------
    capacity : PrivacyLoss or DPLoss
        The guarantee, which holds for ever, whatever is asked. Losses must be of the same kind. To add up losses
        without a cap use `PrivacyOdometer`, which guarantees nothing.
    block : str
        Name of what the privacy filter protects, for messages.
    spent : PrivacyLoss or DPLoss
        Sum of the losses so far, to continue from a stored state.

    Privacy
    -------
    Unit and relation: those of the mechanisms charged. If every mechanism is charged its (rho, delta) before it runs
    and runs only if the charge was taken, everything released is (capacity.rho, capacity.delta)-zCDP, for losses
    chosen adaptively; with `DPLoss` (capacity.epsilon, capacity.delta)-DP. A refused charge costs nothing and leaves
    the filter usable, since the refusal depends on public numbers only. Every charge must be the worst case over all
    neighbors, never the loss on the actual data.

    For geo-privacy the same holds, with losses per unit of distance (epsilon) or per squared unit (rho) and no delta.
    Charge worst cases over all pairs within the largest distance: charge epsilon to a filter on `DPLoss`, or charge rho
    and `zcdp_of_geo` of an epsilon to a filter on `PrivacyLoss` with the capacity from `geo_rho_cap`.

    Complexity
    ----------
    O(1) per charge.

    Source
    ------
    Specification 8.1; proof 2.1; Whitehouse et al. 2023, Theorem 1; Rogers, Roth, Ullman, Vadhan 2016 (epsilon, delta);
    Feldman and Zrnic 2021; Liang and Yi 2025, eq. 7 and Theorem 4.4 (geo-privacy). Theirs stop for good at the first
    refusal, which only eases the proofs.
    """

    __slots__ = ("block", "capacity", "spent")

    def __init__(self, capacity: LossT, block: str = "stream", spent: LossT | None = None) -> None:
        self.capacity = capacity
        self.block = block
        self.spent: LossT = capacity * 0 if spent is None else spent

    @property
    def remaining(self) -> LossT:
        """Capacity less the losses spent, separately for each part of the loss."""
        return self.capacity.missing(self.spent)

    def can_spend(self, loss: LossT) -> bool:
        """Return whether `spend` would take this loss."""
        return (self.spent + loss).fits(self.capacity)

    def spend(self, loss: LossT) -> None:
        """Add a loss to the sum, or refuse it.

        Raises
        ------
        BudgetExhausted
            The loss does not fit; nothing is spent.
        ConfigError
            The loss is of another kind than the capacity; nothing is spent.
        """
        spent = self.spent + loss
        if not spent.fits(self.capacity):
            raise BudgetExhausted(loss, self.remaining, self.capacity, self.block)
        self.spent = spent


class AdvancedDPFilter:
    """Privacy filter for fully adaptive (epsilon, delta)-DP losses that adds the squares of epsilon.

    Many small losses fit, more than into a plain sum of epsilons.

    Parameters
    ----------
    capacity : DPLoss
        The guarantee, which includes `slack` and holds for ever, whatever is asked.
    slack : float, int, str, Decimal or Fraction
        The part of the capacity's delta that pays for adding squares; at least 1e-15. The mechanisms share the rest of
        that delta, so if all of them are epsilon-DP it is best to give the whole delta to the slack.
    block : str
        Name of what the privacy filter protects, for messages.
    squares, delta_femto : int
        Sums so far, to continue from a stored state.

    Attributes
    ----------
    squares : int
        Sum of epsilon**2 spent, in units of 1e-18. It is not an epsilon, and no epsilon can be shown while the stream
        goes on.
    delta_femto : int
        Sum of delta spent, in units of 1e-15, without the slack.

    Privacy
    -------
    Unit and relation: those of the mechanisms charged. If every mechanism is charged its (epsilon, delta) before it
    runs and runs only if the charge was taken, everything released is (capacity.epsilon, capacity.delta)-DP, for
    losses chosen adaptively. A charge is taken if sqrt(2 ln(1/slack) S) + S/2 <= capacity.epsilon for the sum S of all
    squares, and all deltas and the slack are within capacity.delta. This rule becomes one integer cap on S. The cap is
    computed with an upper bound of the logarithm and rounded down, so that rounding never lets too much through. A
    `PrivacyFilter` with the capacity that `rho_for_epsilon` gives, charged `zcdp_of_dp` losses, takes still more
    losses, and those of other kinds of mechanisms too.

    Complexity
    ----------
    O(1) per charge.

    Source
    ------
    Specification 8.1; proof 2.5; Whitehouse et al. 2023, Theorem 2. Theirs stops for good at the first refusal.
    """

    __slots__ = ("_max_delta", "_max_squares", "block", "capacity", "delta_femto", "squares")

    def __init__(
        self, capacity: DPLoss, slack: Number, block: str = "stream", squares: int = 0, delta_femto: int = 0
    ) -> None:
        paid = to_units(slack, DELTA_UNIT, up=False, name="slack")
        if not 1 <= paid <= capacity.delta_femto or paid >= DELTA_UNIT:
            raise ConfigError(
                f"must be in [1e-15, {capacity.delta:g}] and below 1, got {slack}: the capacity's delta pays for it",
                "slack",
            )
        self.capacity = capacity
        self.block = block
        self.squares = squares
        self.delta_femto = delta_femto
        self._max_squares = _max_squares(capacity.epsilon_nano, paid)
        self._max_delta = capacity.delta_femto - paid

    @property
    def remaining(self) -> DPLoss:
        """Largest single loss that would be taken now; several smaller losses may add up to more."""
        squares, delta = self._max_squares - self.squares, self._max_delta - self.delta_femto
        return DPLoss(math.isqrt(max(0, squares)), max(0, delta))

    def can_spend(self, loss: DPLoss) -> bool:
        """Return whether `spend` would take this loss."""
        return (
            self.squares + loss.epsilon_nano**2 <= self._max_squares
            and self.delta_femto + loss.delta_femto <= self._max_delta
        )

    def spend(self, loss: DPLoss) -> None:
        """Add a loss to the sums, or refuse it.

        Raises
        ------
        BudgetExhausted
            The loss does not fit; nothing is spent.
        """
        if not self.can_spend(loss):
            raise BudgetExhausted(loss, self.remaining, self.capacity, self.block)
        self.squares += loss.epsilon_nano**2
        self.delta_femto += loss.delta_femto


def _max_squares(epsilon_nano: int, slack_femto: int) -> int:
    """Find the largest S, in squared nano units, with sqrt(2 L S) + S/2 <= epsilon for an L of at least ln(1/slack)."""
    exact = Context(prec=60)
    gap = exact.subtract(exact.ln(Decimal(DELTA_UNIT)), exact.ln(Decimal(slack_femto)))
    bound = Fraction(exact.multiply(gap, 1 + Decimal("1e-40")))
    # The rule times 2e18, squared: (2 L S 4e36 / 1e18)**(1/2) <= 2e9 epsilon_nano - S.
    whole, scale = 2 * epsilon_nano * EPSILON_UNIT, 8 * EPSILON_UNIT**2 * bound.numerator
    return largest(lambda squares: squares <= whole and scale * squares <= bound.denominator * (whole - squares) ** 2)


class PrivacyOdometer:
    """Privacy odometer: adds up fully adaptive losses without a cap, and bounds the realized loss at all times at once.

    Parameters
    ----------
    tuned_for : float
        The sum of rho near which `realized_loss_bound` is tightest; public, and fixed before the first loss.
    spent : PrivacyLoss
        Sum of the losses so far, to continue from a stored state.
    deltas : float
        The largest sum that the deltas will ever reach; public, and fixed before the first loss. It is subtracted from
        every failure probability: subtracting only the deltas spent so far would not hold at all times at once.

    Privacy
    -------
    Unit and relation: those of the mechanisms. An odometer guarantees nothing: only a `PrivacyFilter`'s capacity is a
    guarantee. `spent` holds plain sums. An epsilon computed from them while the stream goes on bounds nothing, because
    the time at which one looks may depend on what was released. `realized_loss_bound` is a bound: with probability at
    least 1 - failure the log-likelihood ratio between two neighbors never exceeds it, whenever one looks. Where losses
    have a delta, the bound is about the parts of both distributions that remain without that delta, and the delta is
    subtracted from the failure probability.

    Complexity
    ----------
    O(1) per loss.

    Source
    ------
    Specification 8.2; proof 2.6; Whitehouse et al. 2023, Theorem 3; the mixture is Robbins', in the form of Howard et
    al. 2021.
    """

    __slots__ = ("_deltas", "_tuned_for", "spent")

    def __init__(self, tuned_for: float = 1.0, spent: PrivacyLoss | None = None, deltas: float = 0.0) -> None:
        self._tuned_for, self._deltas = nonnegative(tuned_for, "tuned_for"), nonnegative(deltas, "deltas")
        if self._tuned_for == 0:
            raise ConfigError("must be positive", "tuned_for", got=Shown("0"))
        if self._deltas > 1:
            raise ConfigError("must be in [0, 1]", "deltas", got=deltas)
        self.spent = spent or PrivacyLoss()

    def spend(self, loss: PrivacyLoss) -> None:
        """Add a loss to the sum, before its mechanism runs."""
        self.spent = self.spent + loss

    def realized_loss_bound(self, failure: float, form: str = "mixture") -> float:
        """Compute an epsilon that the realized loss exceeds, now or at any other time, with at most this probability.

        Parameters
        ----------
        failure : float
            The probability, in (0, 1); `deltas` is subtracted from it.
        form : str
            ``mixture``, which is tightest near `tuned_for`, or ``ladder``, a union bound over doubling sums of rho.

        Returns
        -------
        float
            Infinite if `deltas` alone reaches `failure`, or if the deltas spent have passed `deltas`.
        """
        failure = chance(failure, "failure")
        if form not in ("mixture", "ladder"):
            raise ConfigError("must be 'mixture' or 'ladder'", "form", got=form)
        rho, left = self.spent.rho, failure - self._deltas
        if left <= 0 or self.spent.delta > self._deltas:
            return math.inf
        if self.spent.rho_nano == 0:
            return 0.0
        if form == "ladder":
            return self._ladder_bound(left)
        eta = _ETA_PER_RHO * self._tuned_for
        variance = 2 * rho + eta
        return rho + math.sqrt(2 * variance * math.log1p(math.sqrt(variance / eta) / (2 * left)))

    def _ladder_bound(self, failure: float) -> float:
        """Return the textbook bound for the smallest of doubling sums of rho that holds all losses spent so far.

        Each of these sums is twice the one before, and all of them share the failure probability.
        """
        first = max(1, int(self._tuned_for * RHO_UNIT) >> 4)
        doublings = max(0, (-(-self.spent.rho_nano // first) - 1).bit_length())
        return epsilon_simple((first << doublings) / RHO_UNIT, 6 * failure / (math.pi * (doublings + 1)) ** 2)


@dataclass(frozen=True)
class BudgetSchedule:
    """Schedule of the largest share of a budget that each query may use, with savings passed on to later queries.

    Every query is offered its base, which is its weight times the capacity, and a part of what earlier queries saved.

    Parameters
    ----------
    capacity_nano : int
        The whole budget: rho, or epsilon, in nano units.
    queries : int or None
        The number of queries; None if it is not known.
    savings : str
        The part of all savings that the query at a step is offered. ``paper``: from 3/4 at the first query up to 1 at
        the last (always 3/4 if `queries` is None). ``even``: the savings divided by the number of queries left.
        ``none``: no part.
    weights : tuple of Fraction, or None
        Each query's part of the capacity, summing to at most 1. None means 1/queries each, or 1/(l (l+1)) at step l if
        `queries` is None.

    Privacy
    -------
    Shares are functions of public numbers and cost nothing. A `PrivacyFilter` guards the capacity, one per user if
    users save different amounts. A query must be charged at most its share, and what it is charged may depend on
    releases only. If every query used at most its share, then at every step l

        floor(weight * capacity) <= share <= remaining,

    so every query gets at least its base, whatever earlier queries saved, and no share is larger than what remains.

    Complexity
    ----------
    O(1) per share.

    Source
    ------
    Specification 8.5; proof 2.8; erratum 3.3; Liang and Yi 2025, Algorithm 3 (weights 1/m, ``paper``) and the text
    before it (``even``). Ours: other weights, an unknown number of queries, exact arithmetic rounded down; one query,
    where Algorithm 3 divides by 0, gets everything.

    Examples
    --------
    >>> schedule = BudgetSchedule(1_000_000_000, queries=4)
    >>> schedule.share(1, 1_000_000_000)
    250000000
    >>> schedule.share(2, 900_000_000)  # the first used 0.1 only: 5/6 of the savings on top
    375000000
    """

    capacity_nano: int
    queries: int | None = None
    savings: str = "paper"
    weights: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        whole(self.capacity_nano, "capacity_nano")
        if self.queries is not None:
            whole(self.queries, "queries", least=1)
        if self.savings not in ("paper", "even", "none"):
            raise ConfigError("must be 'paper', 'even' or 'none'", "savings", got=self.savings)
        if self.savings == "even" and self.queries is None:
            raise ConfigError("must not be 'even' if `queries` is None", "savings", remedy="say how many there will be")
        if self.weights is None:
            return
        if len(self.weights) != self.queries:
            raise ConfigError(f"must be one for each of `queries`={self.queries}", "weights", got=len(self.weights))
        if min(self.weights) < 0 or sum(self.weights) > 1:
            raise ConfigError(
                "must be at least 0 and sum to at most 1", "weights", got=Shown(f"a sum of {sum(self.weights)}")
            )

    def weight(self, step: int) -> Fraction:
        """Return the part of the capacity that is the base of the query at this step, counted from 1."""
        self._check_step(step)
        if self.weights is not None:
            return self.weights[step - 1]
        return Fraction(1, step * (step + 1) if self.queries is None else self.queries)

    def unclaimed(self, step: int) -> Fraction:
        """Return the part of the capacity for the query at this step and all later ones: 1 less the earlier weights."""
        self._check_step(step)
        if self.weights is not None:
            return 1 - self._earlier[step - 1]
        return Fraction(1, step) if self.queries is None else Fraction(self.queries - step + 1, self.queries)

    def part(self, step: int) -> Fraction:
        """Return the part of all savings that the query at this step is offered."""
        self._check_step(step)
        if self.savings == "none":
            return Fraction(0)
        if self.savings == "even":
            return Fraction(1, (self.queries or 0) - step + 1)
        if self.queries is None:
            return Fraction(3, 4)
        return Fraction(3, 4) + Fraction(step - 1, 4 * (self.queries - 1)) if self.queries > 1 else Fraction(1)

    def share(self, step: int, remaining_nano: int) -> int:
        """Return the largest amount that the query at this step may use, in nano units.

        Parameters
        ----------
        step : int
            Counted from 1; skipped queries count too.
        remaining_nano : int
            The capacity less everything used before this step.

        Raises
        ------
        ConfigError
            There is no such step, or so little remains that an earlier query must have used more than its share.

        """
        remaining_nano = whole(remaining_nano, "remaining_nano")
        saved = remaining_nano - self.unclaimed(step) * self.capacity_nano
        if saved < 0 or remaining_nano > self.capacity_nano:
            raise ConfigError(
                f"must be in [{math.ceil(remaining_nano - saved)}, {self.capacity_nano}] at step {step}, "
                f"got {remaining_nano}: an earlier query used more than its share",
                "remaining_nano",
            )
        return math.floor(self.part(step) * saved + self.weight(step) * self.capacity_nano)

    def _check_step(self, step: int) -> None:
        whole(step, "step", least=1)
        if self.queries is not None and step > self.queries:
            raise ConfigError(f"must be at most `queries`={self.queries}", "step", got=step)

    @cached_property
    def _earlier(self) -> list[Fraction]:
        return list(accumulate(self.weights or (), initial=Fraction(0)))
