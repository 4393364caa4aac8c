"""Reports on the budget in a ledger: guarantee, spent loss and realized loss, their history and a forecast.

The ledger may belong to an engine, to devices that hold their own budgets, or to the analyst who asks devices.

``guarantee`` is what one unit can lose for ever, whatever is asked, under all keys together; ``key_share`` is the part
of it that a key may spend, where keys divide it. ``spent`` is the sum of the losses so far; converted to an epsilon it
bounds nothing while the stream goes on, because the time at which one looks may depend on what was released.
``realized_loss_bound`` comes from an odometer: it is an epsilon that the realized loss exceeds, at any time, with at
most a given probability. See `PrivacyOdometer`. All numbers are computed from public integers of the ledger. The number
of users is data, and is not reported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..accounting.filters import PrivacyOdometer
from ..accounting.losses import RHO_UNIT, DPLoss, PrivacyLoss
from ..errors import ConfigError, LedgerDamaged
from ..ledgers.base import DEVICE_BLOCK, TOTAL_BLOCK, LedgerReader, Row, Terms
from ..ledgers.groups import Standing, Together
from ..ledgers.history import BudgetForecast, History, SpendingPoint, blocks_of, integers, releases_of, units, utc
from .rows import BAR, ReportRow

SLICES = 10
"""Largest number of lines of a printed curve of spent losses."""
_WHOM = {
    "event": "every pane (slice of time) has a filter of its own; here the most charged one",
    "stream": "one filter for the whole stream",
    "user": "one filter for the whole stream: that of a user present in every window",
    "device": "every device has a filter of its own, for losses per unit of distance; here the most charged one",
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
"""A program that recomputes, with Google's accountant, the epsilon of an exported budget.

It reads events.json, as ``fcstream budget export --format dp-accounting`` writes it.
"""


@dataclass(frozen=True, slots=True)
class FilterReport:
    """Report on one privacy filter: its guarantee, its spent loss and the bound of the realized loss.

    Attributes
    ----------
    block : str
        ``event`` (the most charged pane), ``stream``, ``user``, ``device`` (the most charged one) or ``total``.
    promised, capacity, spent : PrivacyLoss or DPLoss
        What one unit can lose under all keys together; the part of it that this filter may spend, which is less where
        keys divide it; and what it has spent. The losses of devices are per unit of distance, and their epsilons are
        reported at distance 1.
    saved : PrivacyLoss or DPLoss
        The loss that windows reserved and gave back.
    delta : float
        The delta at which epsilons are reported.
    failure : float
        Probability that the realized loss ever exceeds its bound.
    odometer : str
        ``mixture`` or ``ladder``.
    curve : tuple of SpendingPoint
        The loss that had been spent at the close of each charged window; empty for panes.
    outlook : BudgetForecast
    """

    block: str
    promised: Any
    capacity: Any
    spent: Any
    saved: Any
    delta: float
    failure: float
    odometer: str
    curve: tuple[SpendingPoint, ...]
    outlook: BudgetForecast

    @property
    def guarantee(self) -> float:
        """Convert what is promised to an epsilon at `delta`."""
        return self.epsilon(self.promised)

    @property
    def is_divided(self) -> bool:
        """Whether the filter is that of one key, which may spend a part of what is promised."""
        return bool(self.promised != self.capacity)

    @property
    def cap_name(self) -> str:
        """What the cap of this filter is called in pictures."""
        return "this key's share of the guarantee" if self.is_divided else "guarantee, for ever"

    @property
    def remaining(self) -> Any:
        return self.capacity - self.spent

    def epsilon(self, loss: Any) -> float:
        """Convert a sum of losses to an epsilon at `delta`; a sum of pure losses is an epsilon already."""
        return float(loss.epsilon if isinstance(loss, DPLoss) else loss.epsilon(self.delta))

    def share(self, spent: Any) -> float:
        """Return the share of the cap, in rho or in delta, whichever is larger."""
        parts = zip(spent.parts, self.capacity.parts, strict=True)
        return max((part / most if most else math.inf) if part else 0.0 for part, most in parts)

    def realized_loss_bound(self, spent: Any = None) -> float:
        """Compute the bound by an odometer tuned for the capacity's rho, which was public before the first window.

        The capacity's whole delta is subtracted from the probability, not only the delta spent so far. So the bound
        holds at all times at once, also while more deltas will be spent. Pure losses never exceed their sum.
        """
        spent = self.spent if spent is None else spent
        if isinstance(spent, DPLoss):
            return spent.epsilon
        odometer = PrivacyOdometer(max(1, self.capacity.rho_nano) / RHO_UNIT, spent, self.capacity.delta)
        return odometer.realized_loss_bound(self.failure, self.odometer)

    def slices(self) -> list[tuple[int, SpendingPoint]]:
        """Sample the curve at equal numbers of windows, at most `SLICES` times: windows so far, and spent loss."""
        many, count = len(self.curve), min(SLICES, len(self.curve))
        ends = [many * (k + 1) // count for k in range(count)]
        return [(end, self.curve[end - 1]) for end in ends]

    def costs(self) -> list[float]:
        """List what each charged window cost in the end, oldest first; empty for panes."""
        amounts = [amount(point.spent) for point in self.curve]
        return [later - before for before, later in pairwise([0.0, *amounts])]

    def rows(self, *, is_shared: bool = False) -> list[ReportRow]:
        """Format it for people; of a cap that other streams share without what is left, which they may have spent."""
        at, is_pure = f"at delta {self.delta:g}", isinstance(self.capacity, DPLoss)
        if self.block == "device":
            at = "at distance 1" if is_pure else f"{at} and distance 1"
        cap, bound = _short(self.guarantee), _short(self.realized_loss_bound())
        had, part = _short(self.epsilon(self.spent)), _percent(self.share(self.spent))
        chance = f"with probability at most {self.failure:g} ({self.odometer} odometer)"
        if self.realized_loss_bound() > self.guarantee:
            chance += "; not a guarantee, so it may be larger than the guarantee"
        only_if = f"no guarantee: epsilon {had} {at} only if the end was fixed in advance"
        exceeds = f"the realized loss {'never' if is_pure else 'ever'} exceeds it"
        together, whose = (", under all keys together", "the share") if self.is_divided else ("", "the cap")
        rows = [
            ReportRow("guarantee", f"{self.promised}, epsilon {cap} {at}: for ever, whatever is asked{together}"),
            *([ReportRow("key_share", f"{self.capacity}: what this key may spend of it")] if self.is_divided else []),
            ReportRow("spent", f"{self.spent}, {part} of {whose}; {only_if}", share=self.share(self.spent)),
            ReportRow("realized_loss_bound", f"epsilon {bound}: {exceeds}" + ("" if is_pure else f" {chance}")),
            *([] if is_shared else [ReportRow("remaining", str(self.remaining))]),
            *([ReportRow("saved", f"{self.saved}: reserved and refunded")] if self.saved.parts != (0, 0) else []),
            *([] if is_shared else [ReportRow("runs out", str(self.outlook))]),
        ]
        if self.curve:
            spent_of = "epsilon" if is_pure else "rho"
            rows.append(ReportRow("burn-down", f"until, {spent_of} spent, share of the cap"))
        for _, (time_ms, spent) in self.slices():
            share = self.share(spent)
            rows.append(ReportRow("", f"  {utc(time_ms)}  {amount(spent):<12.6g} {BAR} {_percent(share):>6}", share))
        return rows

    def as_dict(self, *, is_shared: bool = False) -> dict[str, Any]:
        """Return it for programs; what is left of a cap that other streams share is None."""
        return {
            "guarantee": {**units(self.promised), "epsilon": _finite(self.guarantee)},
            "key_share": units(self.capacity) if self.is_divided else None,
            "spent": {**units(self.spent), "epsilon_if_fixed_in_advance": _finite(self.epsilon(self.spent))},
            "realized_loss_bound": {
                "epsilon": _finite(self.realized_loss_bound()),
                "failure": self.failure,
                "odometer": self.odometer,
            },
            "remaining": None if is_shared else units(self.remaining),
            "saved": units(self.saved),
            "share": _finite(self.share(self.spent)),
            "runs_out": None if is_shared else self.outlook.as_dict(),
            "burn_down": [
                {"until_ms": point.time_ms, "until": utc(point.time_ms), "windows": windows, **units(point.spent)}
                for windows, point in self.slices()
            ],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The report on one ledger's budget. `lines` formats it for people, `as_dict` for programs.

    Attributes
    ----------
    terms : Terms
    unit : FilterReport
        The unit's most charged privacy filter: the largest rho and the largest delta.
    total : FilterReport or None
        The privacy filter on the sum over all windows.
    panes : tuple of SpendingPoint
        Unit ``event``: every pane that was charged, by opening.
    devices : tuple of SpendingPoint
        Unit ``device``, in the journal of devices: each device that was charged, by name; the times have no meaning.
    full : int
        Number of panes or devices without room for another window like the last.
    windows : dict of str to int
        By state: ``charged``, ``sealed``, ``acknowledged``. Of devices: questions.
    answers : dict of str to int
        Sealed releases: ``released``, or by the reason of their refusal; of devices ``answered``.
    refused : int
        Windows that were never charged, because the budget had no room.
    queries : tuple of dict
        For an analyst: the record of every query that was answered; see `fcstream.local.analyst.series`.
    """

    terms: Terms[Any]
    unit: FilterReport
    total: FilterReport | None
    panes: tuple[SpendingPoint, ...]
    full: int
    windows: dict[str, int]
    answers: dict[str, int]
    refused: int
    devices: tuple[SpendingPoint, ...] = ()
    queries: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(
        cls, reader: LedgerReader, delta: float | None = None, failure: float | None = None, odometer: str = "mixture"
    ) -> Report:
        """Read a ledger.

        Parameters
        ----------
        reader : LedgerReader
        delta : float, optional
            The delta at which epsilons are reported; by default 1e-6 or twice the largest delta of a cap.
        failure : float, optional
            The failure probability of the odometer's bound; by default `delta`.
        odometer : str
            ``mixture`` or ``ladder``.

        Raises
        ------
        ConfigError
            A probability is outside (0, 1), or the odometer is unknown.
        """
        terms, rows = reader.terms, reader.rows()
        history = History(rows, terms.capacity)
        delta = _probability(delta, default_delta(terms), "delta")
        failure = _probability(failure, delta, "failure")
        if odometer not in ("mixture", "ladder"):
            raise ConfigError("must be 'mixture' or 'ladder'", "odometer", got=odometer)
        nothing = terms.capacity * 0
        spent = history.spent()
        total = spent.pop(TOTAL_BLOCK, nothing)

        def reading(kind: str, spent: Any, history: History, block: str | None, max_spent: str) -> FilterReport:
            curve = () if block is None else tuple(history.curve(block))
            capacity = terms.cap(kind)
            if not spent.fits(capacity):
                raise LedgerDamaged(
                    f"the ledger of stream {terms.stream!r} spent {spent} on {kind}, which is more than the capacity "
                    f"{capacity}: it was edited or damaged, so restore a copy or run 'fcstream budget verify'"
                )
            outlook = history.outlook(block, capacity - spent)
            if kind == "device":
                outlook = replace(outlook, what="question")
            saved, promised = history.saved(max_spent), terms.promised(kind)
            return FilterReport(kind, promised, capacity, spent, saved, delta, failure, odometer, curve, outlook)

        most = max(spent, key=lambda name: spent[name].parts, default=terms.unit)
        own, block = history, None if terms.unit == "event" else terms.unit
        has_names = terms.unit == "device" and most != DEVICE_BLOCK  # a journal of devices, not an analyst's ledger
        if has_names:
            own, block = History(_by_query(rows, most), terms.capacity), most
        last = history.last_loss()
        return cls(
            terms,
            reading(terms.unit, max_of_losses(spent.values(), nothing), own, block, most),
            reading(TOTAL_BLOCK, total, history, TOTAL_BLOCK, TOTAL_BLOCK) if terms.total is not None else None,
            tuple(_by_time(spent)) if terms.unit == "event" else (),
            sum(not (used + last).fits(terms.capacity) for used in spent.values()),
            history.states(),
            history.answers,
            sum(not window.charged for window in history.windows),
            tuple(SpendingPoint(0, spent[name]) for name in sorted(spent)) if has_names else (),
            tuple(_queries(rows)) if terms.unit == "device" and not has_names else (),
        )

    @property
    def _is_shared(self) -> bool:
        """Whether other streams spend from the same caps."""
        return self.terms.group is not None

    def lines(self) -> list[str]:
        """Format the report for people."""
        return [str(row) for row in self.rows()]

    def rows(self) -> list[ReportRow]:
        """Return the lines of the report with what a terminal shows of them besides."""
        lines = [
            ReportRow("", f"stream {self.terms.stream!r}, unit {self.terms.unit!r}: {_WHOM[self.terms.unit]}"),
            *self.unit.rows(is_shared=self._is_shared),
        ]
        is_part = self.terms.stream != self.terms.root and self.terms.group is None
        if '"key_budgets":"shared"' in self.terms.specification and is_part:
            elsewhere = f"the filter for all keys is that of stream {self.terms.root!r}; nothing is charged here"
            lines[1:] = [ReportRow("", elsewhere)]
        elif self.terms.group is not None:
            text = (
                f"one of group {self.terms.group!r}, whose streams share the cap; what follows is about this one, and "
                "what all of them have left stands below"
            )
            lines.insert(1, ReportRow("", text))
        what, is_device = "window", self.terms.unit == "device"
        if is_device:
            what = "question"
        for name, points in (("panes", self.panes), ("devices", self.devices)):
            if points:
                low, middle, high = map(amount, _spread(points))
                part = "epsilon" if isinstance(self.terms.capacity, DPLoss) else "rho"
                spread = f"{part} min {low:.6g}, median {middle:.6g}, max {high:.6g}"
                text = f"{len(points)} charged: {spread}; {self.full} without room for another {what}"
                lines.append(ReportRow(name, text))
        if self.total is not None:
            lines += [ReportRow("", _WHOM[TOTAL_BLOCK]), *self.total.rows(is_shared=self._is_shared)]
        refused = "" if is_device else f"; {self.refused} refused for lack of budget"
        lines.append(ReportRow(what + "s", f"{_counts(self.windows)}{refused}"))
        if self.answers:
            lines.append(ReportRow("replies" if is_device else "releases", _counts(self.answers)))
        if self.queries:
            lines.append(ReportRow("queries", "devices asked, missing, rounds, saved (quartiles), error bound"))
        for query in self.queries[-SLICES:]:
            saved, bound = query["saving"], query["bound"]
            quartiles = ", ".join(map(_percent, saved["quartiles"]))
            text = (
                f"  {query['query']} {query['method']} of {query['component']}: {query['asked']}, {query['missing']}, "
                f"{query['rounds']} of {query['of_rounds']}, {_percent(saved['mean'])} ({quartiles}), "
                f"{'no bound' if bound is None else f'{bound:.4g}'}"
            )
            lines.append(ReportRow("", text))
        return lines

    def as_dict(self) -> dict[str, Any]:

        def spread(points: tuple[SpendingPoint, ...]) -> dict[str, Any] | None:
            if not points:
                return None
            parts = {name: units(loss) for name, loss in zip(("min", "median", "max"), _spread(points), strict=True)}
            return {"count": len(points), "full": self.full, **parts}

        return {
            "stream": self.terms.stream,
            "unit": self.terms.unit,
            "epsilon_at_delta": self.unit.delta,
            **self.unit.as_dict(is_shared=self._is_shared),
            "total": None if self.total is None else self.total.as_dict(is_shared=self._is_shared),
            "panes": spread(self.panes),
            "devices": spread(self.devices),
            "windows": self.windows,
            "refused": self.refused,
            "answers": self.answers,
            "queries": list(self.queries),
        }


def _spread(points: tuple[SpendingPoint, ...]) -> tuple[Any, Any, Any]:
    """Return what panes or devices have spent: smallest, lower median, largest."""
    ordered = sorted((point.spent for point in points), key=lambda loss: loss.parts)
    return ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]


def _by_query(rows: list[Row], block: str) -> list[Row]:
    """List a device's charges, with one row for all rounds of a query, which follow each other closely."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.blocks == block and row.kind in ("charge", "folded"):
            query = row.name.rpartition("/")[0]
            before = found.get(query)
            found[query] = row if before is None else before._replace(rho=before.rho + row.rho)
    return list(found.values())


def _queries(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """Describe an analyst's queries, without the fields that only the analyst's program reads."""
    for row in rows:
        for record in releases_of(row.body) if row.kind == "seal" else []:
            if record.get("kind") == "devices":
                yield {key: value for key, value in record.items() if key not in ("paid", "left")}


def default_delta(terms: Terms[Any]) -> float:
    """Return the delta at which epsilons are reported by default: 1e-6 or twice the largest delta of a cap, but at most
    0.5."""
    largest = max(terms.guarantee.delta, terms.promised(TOTAL_BLOCK).delta if terms.total is not None else 0.0)
    return float(min(0.5, max(1e-6, 2 * largest)))


def _probability(value: float | None, default: float, key: str) -> float:
    value = default if value is None else value
    if not 0 < value < 1:
        raise ConfigError("must be in (0, 1)", key, got=value)
    return value


# -- sums over streams -------------------------------------------------------------------------------------------------


def standing(reader: LedgerReader) -> Standing:
    """Read what one stream of a ledger adds to sums over streams."""
    nothing = reader.terms.capacity * 0
    spent = History(reader.rows(), reader.terms.capacity).spent()
    spent.pop(TOTAL_BLOCK, None)
    return Standing(reader.terms, max_of_losses(spent.values(), nothing), getattr(reader, "is_retired", False))


def together_rows(found: Together, delta: float | None = None) -> list[ReportRow]:
    """Format what somebody with records in all streams of a ledger can lose; nothing for one stream by itself."""
    lines = []
    for name, streams in found.groups.items():
        guarantee, spent = found.parts[name]
        listed, left = ", ".join(map(repr, streams)), guarantee - spent
        text = f"{name} ({listed}): one budget for their sum; spent {spent} of {guarantee}, {left} left"
        lines.append(ReportRow("", text))
    if len(found.parts) > 1:
        most, delta = found.guarantee, _delta_of(found.guarantee, delta)
        text = (
            f"{', '.join(found.parts)}: somebody with records in all of them can lose {most}, "
            f"epsilon {_short(most.epsilon(delta))} at delta {delta:g}; spent {found.spent}"
        )
        lines.append(ReportRow("together", text))
    return lines


def together_dict(found: Together, delta: float | None = None) -> dict[str, Any] | None:
    """Return the same for programs; None for a ledger without streams of engines."""
    if not found.parts:
        return None
    delta = _delta_of(found.guarantee, delta)
    return {
        "epsilon_at_delta": delta,
        "guarantee": {**units(found.guarantee), "epsilon": _finite(found.guarantee.epsilon(delta))},
        "spent": units(found.spent),
        "parts": {name: {"guarantee": units(cap), "spent": units(spent)} for name, (cap, spent) in found.parts.items()},
        "groups": found.groups,
    }


def _delta_of(guarantee: PrivacyLoss, delta: float | None) -> float:
    return _probability(delta, min(0.5, max(1e-6, 2 * guarantee.delta)), "delta")


# -- exports -----------------------------------------------------------------------------------------------------------


def journal_document(reader: LedgerReader, report: Report) -> dict[str, Any]:
    """Collect a ledger's terms, report and rows for programs, to be written by `to_json`."""
    terms = reader.terms
    rows = []
    for row in reader.rows():
        facts: dict[str, Any] = {"seq": row.seq, "kind": row.kind, "open_ms": row.open_ms, "close_ms": row.close_ms}
        facts |= integers(type(terms.capacity)(row.rho, row.delta))
        if row.name:
            facts["name"] = row.name
        if row.kind in ("charge", "folded"):
            facts["blocks"] = blocks_of(row)
        elif row.kind == "seal":
            releases: list[Any] = [*releases_of(row.body)] or [row.body.decode("utf-8", "replace")]
            facts["release" if len(releases) == 1 else "releases"] = releases[0] if len(releases) == 1 else releases
        rows.append(facts)
    return {
        "format": "fcstream journal 1",
        "stream": terms.stream,
        "unit": terms.unit,
        "specification": terms.specification,
        "specification_hash": terms.specification_hash,
        "guarantee": integers(terms.guarantee),
        "capacity": integers(terms.capacity),
        "total": None if terms.total is None else integers(terms.total),
        "readings": report.as_dict(),
        "journal": rows,
    }


def events_document(reader: LedgerReader, delta: float | None = None, block: str | None = None) -> dict[str, Any]:
    """List the charges of the most charged block, or of a named one, for Google's accountant: see `DP_ACCOUNTING`.

    There is one event per window, less refunds. `epsilon` is computed here, at `delta`, from the sum of these events.

    Raises
    ------
    ConfigError
        The block was never charged, or the ledger is of devices, whose losses per unit of distance that accountant does
        not know.
    """
    terms = reader.terms
    _check_plain(terms)
    delta = _probability(delta, default_delta(terms), "delta")
    name, windows = History(reader.rows()).charged_to(block)
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


def to_json(document: dict[str, Any]) -> str:
    """Format a document with one line for each key and for each item of a list."""
    parts = []
    for key, value in document.items():
        body = json.dumps(value)
        if isinstance(value, list) and value:
            body = "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}"


def _check_plain(terms: Terms[Any]) -> None:
    if terms.unit == "device":
        raise ConfigError(
            "must be 'json' for devices: Google's accountant knows no losses per unit of distance", "format"
        )


# -- numbers as text ---------------------------------------------------------------------------------------------------


def max_of_losses(losses: Iterable[Any], nothing: Any) -> Any:
    """Return the largest of each part of some losses of one type."""
    found = list(losses)
    return type(nothing)(*(max((loss.parts[k] for loss in found), default=0) for k in (0, 1)))


def amount(loss: Any) -> float:
    """Return a loss's rho, or its epsilon if it is a pure loss."""

    return float(loss.epsilon if isinstance(loss, DPLoss) else loss.rho)


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(value: float) -> str:
    return "unbounded (delta is used up)" if math.isinf(value) else f"{value:.3g}"


def _percent(share: float) -> str:
    """Format a share in percent; "100%" appears only for the whole."""
    return "over 100%" if share > 1 else f"{min(100 * share, 99.9) if share < 1 else 100:.3g}%"


def _by_time(spent: dict[str, PrivacyLoss]) -> list[SpendingPoint]:
    """Select the blocks that are panes, which are named by their openings."""
    return sorted((SpendingPoint(int(name), loss) for name, loss in spent.items() if name.lstrip("-").isdecimal()))
