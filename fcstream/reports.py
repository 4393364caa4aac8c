"""What a ledger says about its budget: three readings that are never mixed, how they came about, where they lead.

``guarantee`` is the filter's cap: valid for ever, whatever is asked. ``spent`` are the sums so far; as an epsilon they
bound nothing while the stream goes on, because when one looks may depend on what was released.
``realized_loss_bound`` is an odometer's: an epsilon that the loss really suffered exceeds, at any time, with at most a
given probability. See `PrivacyOdometer`. All of it is computed from public integers of the journal; how many users
there are is data, and is not told.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from .budgets import PrivacyOdometer
from .errors import ConfigError, LedgerDamaged
from .history import History, Outlook, Point, blocks_of, integers, release_of, units, utc
from .ledgers.base import TOTAL_BLOCK, Books, Terms, worst
from .zcdp import RHO_UNIT, PrivacyLoss

SLICES = 10
"""Lines of a burn-down."""
_BAR = 30
_WHOM = {
    "event": "every pane (slice of time) has a filter of its own; here the most charged one",
    "stream": "one filter for the whole stream",
    "user": "every user has a filter; here that of somebody with a record in every window",
    TOTAL_BLOCK: "the total, on top: one filter on the plain sum over all windows",
}
DP_ACCOUNTING = """\
import json
import dp_accounting
from dp_accounting.rdp import RdpAccountant
with open("events.json") as file:
    document = json.load(file)
events = [dp_accounting.ZCDpEvent(rho=event["rho_nano"] / 1e9) for event in document["events"]]
accountant = RdpAccountant(orders=[1 + 1.02**k for k in range(-200, 800)])
accountant.compose(dp_accounting.ComposedDpEvent(events))
left = max(0, document["delta"] - document["delta_femto"] / 1e15)  # ZCDpEvent has no delta: the deltas add up
print(accountant.get_epsilon(left), "by Google's accountant,", document["epsilon"], "by fcstream")
"""
"""How Google's accountant reprices what ``fcstream budget export --format dp-accounting`` wrote to events.json."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The three readings of one filter.

    Attributes
    ----------
    block : str
        ``event`` (the most charged pane), ``stream``, ``user`` or ``total``.
    capacity, spent : PrivacyLoss
    delta : float
        At which epsilons are told.
    failure : float
        Probability that the realized loss ever exceeds its bound.
    odometer : str
        ``mixture`` or ``ladder``.
    curve : tuple of Point
        What had been spent at the close of each charged window; empty for panes.
    outlook : Outlook
    """

    block: str
    capacity: PrivacyLoss
    spent: PrivacyLoss
    delta: float
    failure: float
    odometer: str
    curve: tuple[Point, ...]
    outlook: Outlook

    @property
    def guarantee(self) -> float:
        """The cap as an epsilon at `delta`."""
        return self.capacity.epsilon(self.delta)

    @property
    def remaining(self) -> PrivacyLoss:
        return self.capacity - self.spent

    def share(self, spent: PrivacyLoss) -> float:
        """Part of the cap, of its rho or its delta, whichever is more."""
        parts = zip(spent.parts, self.capacity.parts, strict=True)
        return max((part / most if most else math.inf) if part else 0.0 for part, most in parts)

    def realized_loss_bound(self, spent: PrivacyLoss | None = None) -> float:
        """By an odometer tuned for the cap's rho, which is public and was fixed before the first window.

        The cap's delta is taken out of the probability, not what is spent of it: so the bound holds at all times at
        once, also while deltas are still to come.
        """
        spent = self.spent if spent is None else spent
        odometer = PrivacyOdometer(max(1, self.capacity.rho_nano) / RHO_UNIT, spent, self.capacity.delta)
        return odometer.realized_loss_bound(self.failure, self.odometer)

    def slices(self) -> list[tuple[int, Point]]:
        """The curve after equal numbers of windows, at most `SLICES` times: windows so far, and what they spent."""
        many, count = len(self.curve), min(SLICES, len(self.curve))
        ends = [many * (k + 1) // count for k in range(count)]
        return [(end, self.curve[end - 1]) for end in ends]

    def lines(self) -> list[str]:
        at = f"at delta {self.delta:g}"
        cap, bound = _short(self.guarantee), _short(self.realized_loss_bound())
        had, part = _short(self.spent.epsilon(self.delta)), _percent(self.share(self.spent))
        above = "" if self.realized_loss_bound() <= self.guarantee else "; no guarantee, so it may lie above it"
        lines = [
            f"guarantee            {self.capacity}, epsilon {cap} {at}: for ever, whatever is asked",
            f"spent                {self.spent}, {part} of the cap; no guarantee: epsilon {had} {at} only had the end "
            "been fixed in advance",
            f"realized_loss_bound  epsilon {bound}: the realized loss ever exceeds it with probability at most "
            f"{self.failure:g} ({self.odometer} odometer){above}",
            f"remaining            {self.remaining}",
            f"runs out             {self.outlook}",
        ]
        if self.curve:
            lines.append("burn-down            until, rho spent, share of the cap")
        for _, (time_ms, spent) in self.slices():
            share = self.share(spent)
            bar = "#" * min(_BAR, round(_BAR * share))
            lines.append(f"  {utc(time_ms)}  {spent.rho:<12.6g} {bar:<{_BAR}} {_percent(share):>6}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        return {
            "guarantee": {**units(self.capacity), "epsilon": _finite(self.guarantee)},
            "spent": {**units(self.spent), "epsilon_if_fixed_in_advance": _finite(self.spent.epsilon(self.delta))},
            "realized_loss_bound": {
                "epsilon": _finite(self.realized_loss_bound()),
                "failure": self.failure,
                "odometer": self.odometer,
            },
            "remaining": units(self.remaining),
            "share": _finite(self.share(self.spent)),
            "runs_out": self.outlook.as_dict(),
            "burn_down": [
                {"until_ms": point.time_ms, "until": utc(point.time_ms), "windows": windows, **units(point.spent)}
                for windows, point in self.slices()
            ],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What one ledger says. `lines` prints it, `as_dict` is for programs.

    Attributes
    ----------
    terms : Terms
    unit : Reading
        Of the unit's most charged filter: the larger of each part.
    total : Reading or None
        Of the filter on the plain sum.
    panes : tuple of Point
        Unit ``event``: every pane that was charged, by opening.
    full : int
        Panes without room for another window like the last.
    windows : dict of str to int
        By state: ``charged``, ``sealed``, ``acknowledged``.
    answers : dict of str to int
        Sealed releases: ``released``, or by the reason of their refusal.
    refused : int
        Windows that were never charged, because the budget had no room.
    """

    terms: Terms
    unit: Reading
    total: Reading | None
    panes: tuple[Point, ...]
    full: int
    windows: dict[str, int]
    answers: dict[str, int]
    refused: int

    @classmethod
    def of(
        cls, books: Books, delta: float | None = None, failure: float | None = None, odometer: str = "mixture"
    ) -> Report:
        """Read a ledger.

        Parameters
        ----------
        books : Books
        delta : float, optional
            At which epsilons are told; by default 1e-6 or twice the largest delta of a cap.
        failure : float, optional
            Of the odometer; by default `delta`.
        odometer : str
            ``mixture`` or ``ladder``.

        Raises
        ------
        ConfigError
            A probability outside (0, 1), or an unknown odometer.
        """
        terms, history = books.terms, History(books.rows())
        delta = _probability(delta, default_delta(terms), "delta")
        failure = _probability(failure, delta, "failure")
        if odometer not in ("mixture", "ladder"):
            raise ConfigError(f"must be 'mixture' or 'ladder', got {odometer!r}", "odometer")
        spent = history.spent()
        total = spent.pop(TOTAL_BLOCK, PrivacyLoss())

        def reading(block: str, spent: PrivacyLoss) -> Reading:
            is_pane = block == "event"
            curve = () if is_pane else tuple(history.curve(block))
            capacity = terms.cap(block)
            if not spent.fits(capacity):
                raise LedgerDamaged(
                    f"the ledger of stream {terms.stream!r} spent {spent} of {capacity} on {block}: a filter was passed"
                )
            outlook = history.outlook(None if is_pane else block, capacity - spent)
            return Reading(block, capacity, spent, delta, failure, odometer, curve, outlook)

        last = history.last_loss()
        return cls(
            terms,
            reading(terms.unit, worst(list(spent.values()))),
            reading(TOTAL_BLOCK, total) if terms.total is not None else None,
            tuple(_by_time(spent)) if terms.unit == "event" else (),
            sum(not (used + last).fits(terms.capacity) for used in spent.values()),
            history.states(),
            history.answers,
            sum(not window.charged for window in history.windows),
        )

    def lines(self) -> list[str]:
        """For a human."""
        lines = [
            f"stream {self.terms.stream!r}, unit {self.terms.unit!r}: {_WHOM[self.terms.unit]}",
            *self.unit.lines(),
        ]
        if self.panes:
            low, middle, high = self._spread()
            lines.append(
                f"panes                {len(self.panes)} charged: rho min {low.rho:.6g}, median {middle.rho:.6g}, max "
                f"{high.rho:.6g}; {self.full} without room for another window"
            )
        if self.total is not None:
            lines += [_WHOM[TOTAL_BLOCK], *self.total.lines()]
        lines.append(f"windows              {_counts(self.windows)}; {self.refused} refused for lack of budget")
        if self.answers:
            lines.append(f"answers              {_counts(self.answers)}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        panes = None
        if self.panes:
            names = ("min", "median", "max")
            spread = {name: units(loss) for name, loss in zip(names, self._spread(), strict=True)}
            panes = {"count": len(self.panes), "full": self.full, **spread}
        return {
            "stream": self.terms.stream,
            "unit": self.terms.unit,
            "epsilon_at_delta": self.unit.delta,
            **self.unit.as_dict(),
            "total": None if self.total is None else self.total.as_dict(),
            "panes": panes,
            "windows": self.windows,
            "refused": self.refused,
            "answers": self.answers,
        }

    def _spread(self) -> tuple[PrivacyLoss, PrivacyLoss, PrivacyLoss]:
        """Of the panes, by rho: smallest, lower median, largest."""
        by_rho = sorted((pane.spent for pane in self.panes), key=lambda loss: loss.parts)
        return by_rho[0], by_rho[(len(by_rho) - 1) // 2], by_rho[-1]


def default_delta(terms: Terms) -> float:
    """At which epsilons are told if nobody says: 1e-6, or twice the largest delta of a cap, or 0.5 if that is large."""
    return min(0.5, max(1e-6, 2 * worst([terms.capacity, terms.total or PrivacyLoss()]).delta))


def _probability(value: float | None, default: float, place: str) -> float:
    value = default if value is None else value
    if not 0 < value < 1:
        raise ConfigError(f"must be in (0, 1), got {value}", place)
    return value


# -- exports -----------------------------------------------------------------------------------------------------------


def journal_document(books: Books, report: Report) -> dict[str, Any]:
    """Terms, readings and journal of a ledger, for programs; to be written by `to_json`.

    The bodies of charges, and the blocks of refunds, are left out: for the unit ``user`` they are digests of the users'
    budgets, and whether one changes says whether somebody was there.
    """
    terms = books.terms
    rows = []
    for row in books.rows():
        facts: dict[str, Any] = {"seq": row.seq, "kind": row.kind, "open_ms": row.open_ms, "close_ms": row.close_ms}
        facts |= {"rho_nano": row.rho, "delta_femto": row.delta}
        if row.kind == "charge":
            facts["blocks"] = blocks_of(row)
        elif row.kind == "seal":
            facts["release"] = release_of(row.body) or row.body.decode("utf-8", "replace")
        rows.append(facts)
    return {
        "format": "fcstream journal 1",
        "stream": terms.stream,
        "unit": terms.unit,
        "specification": terms.specification,
        "capacity": integers(terms.capacity),
        "total": None if terms.total is None else integers(terms.total),
        "readings": report.as_dict(),
        "journal": rows,
    }


def events_document(books: Books, delta: float | None = None, block: str | None = None) -> dict[str, Any]:
    """What the most charged block, or a named one, was charged, for Google's accountant: see `DP_ACCOUNTING`.

    One event per window, refunds taken off. `epsilon` is ours at `delta`, from the sums of these events.
    """
    terms = books.terms
    delta = _probability(delta, default_delta(terms), "delta")
    name, windows = History(books.rows()).charged_to(block)
    spent = sum((window.net for window in windows), PrivacyLoss())
    return {
        "format": "fcstream dp_accounting events 1",
        "stream": terms.stream,
        "unit": terms.unit,
        "block": name,
        "neighboring_relation": "ADD_OR_REMOVE_ONE",
        "delta": delta,
        "epsilon": _finite(spent.epsilon(delta)),
        **integers(spent),
        "how": DP_ACCOUNTING.splitlines(),
        "events": [{"open_ms": w.open_ms, "close_ms": w.close_ms, **integers(w.net)} for w in windows],
    }


def dp_events(books: Books, block: str | None = None) -> tuple[Any, PrivacyLoss]:
    """The same events as objects of Google's ``dp_accounting`` (``pip install 'fcstream[audit]'``).

    Parameters
    ----------
    books : Books
    block : str, optional
        A pane (its opening in ms), ``stream``, ``user`` or ``total``; by default the unit's most charged one.

    Returns
    -------
    event : dp_accounting.ComposedDpEvent
        Of a ``ZCDpEvent`` for each window, in order; its rho is the float next to the integer that was charged.
    spent : PrivacyLoss
        Their sum. ``ZCDpEvent`` holds rho and an additive xi, but no delta, and release 0.6 has no event for delta:
        deltas add up, so ask the accountant for its epsilon at the delta wanted less `spent.delta`.

    Raises
    ------
    ConfigError
        dp_accounting is not installed, or the block was never charged.
    """
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError("dp_accounting is not installed: pip install 'fcstream[audit]'") from None
    _, windows = History(books.rows()).charged_to(block)
    events = [dp_accounting.ZCDpEvent(rho=window.net.rho) for window in windows]
    return dp_accounting.ComposedDpEvent(events), sum((window.net for window in windows), PrivacyLoss())


def to_json(document: dict[str, Any]) -> str:
    """A document with one line for each key and for each item of a list."""
    parts = []
    for key, value in document.items():
        body = json.dumps(value)
        if isinstance(value, list) and value:
            body = "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}"


# -- numbers as text ---------------------------------------------------------------------------------------------------


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(value: float) -> str:
    return "unbounded (delta is used up)" if math.isinf(value) else f"{value:.3g}"


def _percent(share: float) -> str:
    """Never "100%" before it is."""
    return "over 100%" if share > 1 else f"{min(100 * share, 99.9) if share < 1 else 100:.3g}%"


def _by_time(spent: dict[str, PrivacyLoss]) -> list[Point]:
    """Panes, whose blocks are named by their openings."""
    return sorted((Point(int(name), loss) for name, loss in spent.items() if name.lstrip("-").isdecimal()))
