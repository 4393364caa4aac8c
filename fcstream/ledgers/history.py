"""Reads a ledger's journal as a history: what each window cost, what that adds up to, and how long the budget lasts.

Without I/O, and from public integers only.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from ..accounting.losses import Loss, PrivacyLoss
from ..errors import ConfigError, LedgerDamaged
from ..runtime.words import duration
from .base import TOTAL_BLOCK, Row

_NOTHING: Any = PrivacyLoss()
_OF_WINDOWS = ("charge", "again", "seal", "acknowledge", "folded")
LATELY = 20
"""How many of the latest windows tell what a window costs at present and how often one opens."""


class SpendingPoint(NamedTuple):
    """What was spent until a public time."""

    time_ms: int
    spent: Any


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """How long a privacy filter will last if windows go on as they did lately.

    Attributes
    ----------
    state : str
        ``lasts``: it has room for more windows. ``exhausted``: a window like the last one does not fit. ``never``: it
        is never exhausted, since the latest windows cost nothing. ``own_filters``: it is never exhausted, since each
        pane has a privacy filter of its own. ``unknown``: no window was charged yet.
    windows : int or None
        In the state ``lasts``: how many more windows will fit.
    refused_from_ms : int or None
        Opening of the first window that will not fit.
    loss : PrivacyLoss or DPLoss
        Mean cost of a window, less refunds, rounded up.
    every_ms : int
        Time between the openings of two windows.
    reserved : PrivacyLoss or DPLoss
        What the last window was charged, before refunds.
    what : str
        What is charged: a ``window``, or a ``question`` to a device.
    """

    state: str
    windows: int | None = None
    refused_from_ms: int | None = None
    loss: Any = _NOTHING
    every_ms: int = 0
    reserved: Any = _NOTHING
    what: str = "window"

    def __str__(self) -> str:
        fixed = {
            "own_filters": "never: every pane has a filter of its own",
            "never": "never at this rate",
            "unknown": f"not known: no {self.what} was charged yet",
        }
        if self.state in fixed:
            return fixed[self.state]
        if self.state == "exhausted" or self.refused_from_ms is None:
            return f"now: no room for another {self.what} that reserves {self.reserved} as the last one did"
        rate = f"at {self.loss} a {self.what}, one every {duration(self.every_ms)}"
        return f"at {utc(self.refused_from_ms)}, after {self.windows} more {self.what}s, {rate}"

    def as_dict(self) -> dict[str, Any]:
        when = self.refused_from_ms
        return {
            "state": self.state,
            "windows": self.windows,
            "refused_from_ms": when,
            "refused_from": None if when is None else utc(when),
            "loss_per_window": units(self.loss),
            "every_ms": self.every_ms or None,
            "reserved_by_last": units(self.reserved),
        }


@dataclass(slots=True)
class WindowHistory:
    """All journal rows of one window, or of one question to a device, in one.

    In the state ``folded`` it stands for all questions whose rows a device's journal has dropped.
    """

    open_ms: int
    close_ms: int
    state: str = "charged"
    gross: Any = _NOTHING
    net: Any = _NOTHING
    blocks: list[str] = field(default_factory=list)
    charged: bool = False


class History:
    """The windows of a journal in order of opening, and the number of releases by status or reason.

    Parameters
    ----------
    rows : iterable of Row
    capacity : PrivacyLoss or DPLoss
        The journal's losses are of this type.

    Raises
    ------
    LedgerDamaged
        A loss is negative, or a refund is larger than its charge.
    """

    def __init__(self, rows: Iterable[Row], capacity: Loss = _NOTHING) -> None:
        found: dict[tuple[int, int, str, str], WindowHistory] = {}
        self._kind: Callable[..., Any] = type(capacity)
        self._dropped: dict[str, int] = Counter()
        self.answers: dict[str, int] = Counter()
        for row in rows:
            if row.kind not in _OF_WINDOWS:
                continue
            key = row.open_ms, row.close_ms, row.name, row.blocks if row.name else ""
            window = found.get(key)
            if window is None:
                nothing = self._kind(0, 0)
                window = found[key] = WindowHistory(row.open_ms, row.close_ms, gross=nothing, net=nothing)
            if min(row.rho, row.delta) < 0:
                raise LedgerDamaged(f"journal row {row.seq} is negative", remedy="run `fcstream budget verify`")
            if row.kind in ("charge", "folded"):
                window.gross = window.net = self._kind(row.rho, row.delta)
                window.blocks, window.charged = blocks_of(row), True
                if row.kind == "folded":
                    window.state = "folded"
                    self._dropped.update(*releases_of(row.body))
            elif row.kind == "seal":
                window.state = "sealed"
                if row.rho or row.delta:
                    self._refund(window, row)
                for release in releases_of(row.body):
                    if "status" in release:
                        self.answers[str(release.get("reason") or release["status"])] += 1
            elif row.kind == "acknowledge":
                window.state = "acknowledged"
        self.windows = [found[key] for key in sorted(found)]

    def states(self) -> dict[str, int]:
        counts = Counter(window.state for window in self.windows) + Counter(self._dropped)
        return {state: counts[state] for state in ("charged", "sealed", "acknowledged")}

    def spent(self) -> dict[str, Any]:
        """Return what each block has spent."""
        sums: dict[str, Any] = {}
        for window in self.windows:
            for block in window.blocks:
                sums[block] = sums.get(block, self._kind()) + window.net
        return sums

    def saved(self, block: str | None) -> Any:
        """Return what windows of a block, or with None all windows, were charged and refunded."""
        mine = (window for window in self.windows if block is None or block in window.blocks)
        return sum((window.gross - window.net for window in mine), self._kind())

    def charged_to(self, block: str | None) -> tuple[str, list[WindowHistory]]:
        """Return a block and the windows that were charged to it; with None, the unit's most charged block."""
        spent = self.spent()
        if block is not None and block not in spent:
            raise ConfigError("must be a block that was charged", "block", got=block)
        if block is None:
            spent.pop(TOTAL_BLOCK, None)
            block = max(spent, key=lambda name: spent[name].parts, default="")
        return block, [window for window in self.windows if block in window.blocks]

    def curve(self, block: str) -> Iterable[SpendingPoint]:
        spent = self._kind()
        for window in self.windows:
            if block in window.blocks:
                spent = spent + window.net
                yield SpendingPoint(window.close_ms, spent)

    def last_loss(self) -> Any:
        """Return what the last charged window was charged, before refunds."""
        return next((window.gross for window in reversed(self.windows) if window.charged), self._kind())

    def outlook(self, block: str | None, room: Any) -> BudgetForecast:
        """Forecast how long a block lasts if windows cost and open as the last `LATELY` windows of this block did.

        A `block` of None means that each window has blocks of its own. A window is charged in full and refunded later:
        with r the room, g the charge of the last window and s what k windows spent after refunds, (r - g) k // s + 1
        more windows fit.
        """
        lately = [w for w in self.windows if (block in w.blocks if block else w.charged) and w.state != "folded"]
        lately = lately[-LATELY:]
        if not lately:
            return BudgetForecast("unknown" if block else "own_filters", loss=self._kind(), reserved=self._kind())
        spent = sum((window.net for window in lately), self._kind())
        every, many = self._spacing(), len(lately)
        pace = self._kind(*(-(-part // many) for part in spent.parts)), every, lately[-1].gross
        if block is None:
            return BudgetForecast("own_filters", None, None, *pace)
        left = []
        for there, reserved, used in zip(room.parts, lately[-1].gross.parts, spent.parts, strict=True):
            if there < reserved:
                return BudgetForecast("exhausted", 0, None, *pace)
            if used:
                left.append((there - reserved) * many // used + 1)
        if not left:
            return BudgetForecast("never", None, None, *pace)
        return BudgetForecast("lasts", min(left), self.windows[-1].open_ms + (min(left) + 1) * every, *pace)

    def _spacing(self) -> int:
        """Return the lower median time between the latest openings, at least 1 ms; of one window, its length."""
        opens = [window.open_ms for window in self.windows[-LATELY - 1 :]]
        gaps = [later - earlier for earlier, later in pairwise(opens)]
        last = self.windows[-1]
        return max(1, statistics.median_low(gaps) if gaps else last.close_ms - last.open_ms)

    def _refund(self, window: WindowHistory, row: Row) -> None:
        refund = self._kind(row.rho, row.delta)
        if not refund.fits(window.net):
            raise LedgerDamaged(
                f"journal row {row.seq} refunds more than was charged", remedy="run `fcstream budget verify`"
            )
        window.net = window.net - refund


def blocks_of(row: Row) -> list[str]:
    return [block for block in row.blocks.split(",") if block]


def releases_of(body: bytes) -> list[dict[str, Any]]:
    """Parse the releases of a window, a line each; empty if the bytes are not JSON objects."""
    try:
        values = [json.loads(line) for line in body.split(b"\n")]
    except ValueError:
        return []
    return values if all(isinstance(value, dict) for value in values) else []


def integers(loss: Loss) -> dict[str, int]:
    first, delta = loss.parts
    return {"rho_nano" if isinstance(loss, PrivacyLoss) else "epsilon_nano": first, "delta_femto": delta}


def units(loss: Loss) -> dict[str, float]:
    return {**loss.as_dict(), **integers(loss)}


def moment(time_ms: int) -> datetime | None:
    """Return a time in UTC; None if it is outside of the calendar."""
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def utc(time_ms: int) -> str:
    when = moment(time_ms)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC" if when else f"{'after' if time_ms > 0 else 'before'} all calendar years"
