"""What is left of a stream's budget and how long it lasts, as ``fcstream budget show`` says, from the last windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import ref

from ...accounting.losses import PrivacyLoss
from ...engine.engine import Engine
from ...ledgers.base import TOTAL_BLOCK, Row
from ...ledgers.history import BudgetForecast, History
from ...reporting.budget import default_delta
from ..metrics import BudgetGauge
from .history import WindowCost

_WHOSE = {
    "event": "each slice of time, with a budget of its own (the most charged one)",
    "stream": "the stream",
    "user": "a user present in every window",
    TOTAL_BLOCK: "all windows together",
}


class StreamTerms:
    """The public terms of one stream, from its engine, which it does not keep alive.

    Attributes
    ----------
    reserved : PrivacyLoss
        What a window is charged before anything is refunded.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = ref(engine)
        self._answers, self._terms = engine.job.answers, engine.job.terms
        self.reserved: PrivacyLoss = self._answers.loss
        self._delta = default_delta(self._terms)
        self._epsilons: dict[str, float] = {}

    def are_of(self, engine: Engine) -> bool:
        """Return whether they are those of this engine."""
        return self._engine() is engine

    def hint(self, reason: str) -> str:
        """Tell what to do about windows that are refused for this reason."""
        return self._answers.hint(reason)

    def budget(self, gauges: Sequence[BudgetGauge], costs: Sequence[WindowCost]) -> dict[str, Any]:
        """Return the stream's privacy filters, each with what is left and how long that lasts."""
        return {
            "unit": self._terms.unit,
            "group": self._terms.group,
            "gauges": [self._gauge(gauge, costs) for gauge in gauges],
        }

    def _gauge(self, gauge: BudgetGauge, costs: Sequence[WindowCost]) -> dict[str, Any]:
        left = gauge.cap - gauge.spent
        parts = zip(gauge.spent.parts, gauge.cap.parts, strict=True)
        own_filters = gauge.block == "event"
        windows = ((cost, self._together(cost)) for cost in costs)
        outlook = forecast(None if own_filters else gauge.block, windows, self.reserved, left)
        return {
            "block": gauge.block,
            "whose": _WHOSE.get(gauge.block, gauge.block),
            "guarantee": gauge.guarantee.as_dict() | {"epsilon": self._epsilon(gauge), "at_delta": self._delta},
            "cap": gauge.cap.as_dict(),
            "spent": gauge.spent.as_dict(),
            "remaining": left.as_dict(),
            "share": max(part / most for part, most in parts if most) if any(gauge.cap.parts) else 1.0,
            "outlook": "as the other streams of the group spend" if self._terms.group else str(outlook),
            "state": outlook.state,
        }

    def _together(self, cost: WindowCost) -> PrivacyLoss:
        """Return what all answers of a window cost together: the most of those that share no record."""
        return self._answers.joint([cost.losses.get(answer.name, PrivacyLoss()) for answer in self._answers])

    def _epsilon(self, gauge: BudgetGauge) -> float:
        if gauge.block not in self._epsilons:  # a search, so that it is done once
            self._epsilons[gauge.block] = gauge.guarantee.epsilon(self._delta)
        return self._epsilons[gauge.block]


def forecast(
    block: str | None, windows: Iterable[tuple[WindowCost, PrivacyLoss]], reserved: PrivacyLoss, room: PrivacyLoss
) -> BudgetForecast:
    """Forecast how long a privacy filter lasts, with `room` left, if windows go on as these did.

    Parameters
    ----------
    block : str or None
        None if each pane has a filter of its own.
    windows : iterable of (WindowCost, PrivacyLoss)
        In order of opening, each with what all its answers cost together.
    reserved : PrivacyLoss
        What a window is charged before anything is refunded.
    room : PrivacyLoss
    """
    return History(_rows(block, windows, reserved)).outlook(block, room)


def _rows(block: str | None, windows: Iterable[tuple[WindowCost, PrivacyLoss]], reserved: PrivacyLoss) -> Iterator[Row]:
    """Write the journal that a ledger would have of these windows."""
    for cost, loss in windows:
        window = cost.open_ms, cost.close_ms
        if cost.is_charged:
            most = PrivacyLoss(*map(max, loss.parts, reserved.parts))
            yield Row(0, "charge", *window, *most.parts, block or str(cost.open_ms), b"")
            yield Row(0, "seal", *window, *(most - loss).parts, "", b"")
        else:
            yield Row(0, "seal", *window, 0, 0, "", b"")
