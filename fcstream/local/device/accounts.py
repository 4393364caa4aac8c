"""The state that a journal adds up to: each device's totals, the replies that can be repeated, the dropped queries.

No input or output happens here; `journal` handles the file. A journal is a list of transactions, each a JSON object
that is applied as a whole:

===========  ==========================================================================================================
``open``     the budget of each device, once, in the first transaction
``metrics``  what distance 1 is for a component (without ``@`` and a time), from its first charge on
``drop``     queries whose replies are forgotten; asked again, they are refused
``charge``   ``[query, round, digest, pure, [[device, nano, cost], ...]], ...``: durable before noise is drawn; ``cost``
             is there only if the budget counts in other units than the question
``again``    ``[query, round, [device, ...]], ...``: a redraw under the same charge, after a crash
``seal``     ``[query, round, [[device, reply], ...]], ...``: the final bytes of each reply
===========  ==========================================================================================================

A journal that was compacted starts with a transaction that holds ``folded`` (each device's totals over what was
dropped) and ``expired`` (short hashes of the dropped queries) instead of the transactions themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class DeviceCharge(NamedTuple):
    """What a device is to be charged for one reply.

    Attributes
    ----------
    query, round : str, int
        The id of the question.
    digest : str
        Of the question, without its price.
    pure : bool
        `nano` is an epsilon, else a rho.
    device : str
    nano : int
        What the question offered.
    cost : int
        The same in the units of the device's budget.
    """

    query: str
    round: int
    digest: str
    pure: bool
    device: str
    nano: int
    cost: int


class Reply(NamedTuple):
    """The final bytes of one reply."""

    query: str
    round: int
    device: str
    body: bytes


@dataclass(slots=True)
class AnswerState:
    """What became of one question on one device: charged, perhaps redrawn once, perhaps answered."""

    digest: str
    pure: bool
    nano: int
    cost: int
    reply: bytes | None = None
    draws: int = 1


@dataclass(slots=True)
class DeviceTotals:
    """One device's totals since it began: nano units spent, charges, and how many charges led to a reply."""

    spent: int = 0
    charged: int = 0
    sealed: int = 0


@dataclass(slots=True)
class KeptQuery:
    """A query whose replies can be repeated."""

    at_ms: int
    entries: dict[tuple[str, int], AnswerState] = field(default_factory=dict)


def fingerprint(query: str) -> int:
    """64 bits by which a dropped query is recognized, so that years of queries take little space.

    If two names had the same fingerprint, the second query would be refused, at no cost.
    """
    return int.from_bytes(hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest()[:8], "big")


class Accounts:
    """The state of all devices of one journal (specification 11.4)."""

    def __init__(self) -> None:
        self.budget: dict[str, Any] | None = None
        self.metrics: dict[str, Any] = {}
        self.tallies: dict[str, DeviceTotals] = {}
        self.kept: dict[str, KeptQuery] = {}
        self.expired: set[int] = set()

    def tally(self, device: str) -> DeviceTotals:
        return self.tallies.get(device) or self.tallies.setdefault(device, DeviceTotals())

    def entry(self, query: str, round: int, device: str) -> AnswerState | None:
        kept = self.kept.get(query)
        return None if kept is None else kept.entries.get((device, round))

    def has_expired(self, query: str) -> bool:
        return bool(self.expired) and query not in self.kept and fingerprint(query) in self.expired

    def oldest_beyond(self, queries: set[str], keep: int) -> list[str]:
        """The oldest queries: those to drop so that at most `keep` remain once `queries` are charged or redrawn."""
        excess = len(self.kept.keys() | queries) - keep
        return [name for name in self.kept if name not in queries][: max(0, excess)] if excess > 0 else []

    def follow(self, change: Mapping[str, Any]) -> None:
        """Apply one transaction.

        Raises
        ------
        ValueError, TypeError, KeyError, AttributeError
            It contradicts an earlier one, or it is no transaction.
        """
        if "open" in change:
            if self.budget is not None:
                raise ValueError("opened twice")
            self.budget = dict(change["open"])
        for component, metric in change.get("metrics", {}).items():
            if self.metrics.setdefault(component, metric) != metric:
                raise ValueError("another metric")
        for device, (spent, charged, sealed) in change.get("folded", {}).items():
            self.tallies[device] = DeviceTotals(spent, charged, sealed)
        self.expired.update(int(text, 16) for text in change.get("expired", ()))
        for query in change.get("drop", ()):
            del self.kept[query]
            self.expired.add(fingerprint(query))
        for query, round, digest, pure, rows in change.get("charge", ()):
            self._charge(change["at"], (query, round), digest, pure, rows)
        for query, round, devices in change.get("again", ()):
            self._redraw(query, round, devices)
        for query, round, rows in change.get("seal", ()):
            self._seal(query, round, rows)

    def _redraw(self, query: str, round: int, devices: Any) -> None:
        entries = self.kept[query].entries
        for device in devices:
            entry = entries[device, round]
            if entry.draws != 1 or entry.reply is not None:
                raise ValueError("drawn again out of turn")
            entry.draws = 2

    def _seal(self, query: str, round: int, rows: Any) -> None:
        entries = self.kept[query].entries
        for device, reply in rows:
            entry = entries[device, round]
            if entry.reply is not None:
                raise ValueError("answered twice")
            entry.reply = reply.encode()
            self.tallies[device].sealed += 1

    def _charge(self, at_ms: int, id: tuple[str, int], digest: str, pure: bool, rows: Any) -> None:
        query, round = id
        kept = self.kept.get(query)
        if kept is None:
            if self.has_expired(query) or self.budget is None:
                raise ValueError("charged for a forgotten query, or without a budget")
            kept = self.kept[query] = KeptQuery(at_ms)
        capacity = self.budget["capacity_nano"]  # type: ignore[index]
        for device, nano, *other in rows:
            cost = other[0] if other else nano
            tally = self.tally(device)
            if (device, round) in kept.entries or cost < 0 or tally.spent + cost > capacity:
                raise ValueError("charged twice, or more than there was")
            tally.spent += cost
            tally.charged += 1
            kept.entries[device, round] = AnswerState(digest, pure, nano, cost)

    def compacted(self, at_ms: int) -> Iterator[dict[str, Any]]:
        """Transactions of a smaller journal with the same state."""
        rest = {name: DeviceTotals(tally.spent, tally.charged, tally.sealed) for name, tally in self.tallies.items()}
        for kept in self.kept.values():
            for (device, _), entry in kept.entries.items():
                tally = rest[device]
                tally.spent -= entry.cost
                tally.charged -= 1
                tally.sealed -= entry.reply is not None
        folded = {name: [t.spent, t.charged, t.sealed] for name, t in rest.items() if t.charged}
        head = {"at": at_ms, "open": self.budget, "metrics": self.metrics}
        yield head | {"folded": folded, "expired": [f"{x:016x}" for x in self.expired]}
        for query, kept in self.kept.items():
            charges = [
                DeviceCharge(query, round, entry.digest, entry.pure, device, entry.nano, entry.cost)
                for (device, round), entry in kept.entries.items()
            ]
            redraws = [(query, round, device) for (device, round), entry in kept.entries.items() if entry.draws > 1]
            replies = [
                Reply(query, round, device, entry.reply)
                for (device, round), entry in kept.entries.items()
                if entry.reply is not None
            ]
            yield {"at": kept.at_ms} | charging(charges, redraws) | sealing(replies)


def charging(charges: list[DeviceCharge], redraws: list[tuple[str, int, str]]) -> dict[str, Any]:
    """Charges and redraws as parts of a transaction."""
    groups: dict[tuple[str, int, str, bool], list[Any]] = {}
    for query, round, digest, pure, device, nano, cost in charges:
        row = [device, nano] if cost == nano else [device, nano, cost]
        groups.setdefault((query, round, digest, pure), []).append(row)
    second: dict[tuple[str, int], list[str]] = {}
    for query, round, device in redraws:
        second.setdefault((query, round), []).append(device)
    found = {
        "charge": [[*key, rows] for key, rows in groups.items()],
        "again": [[*key, rows] for key, rows in second.items()],
    }
    return {name: rows for name, rows in found.items() if rows}


def sealing(replies: list[Reply]) -> dict[str, Any]:
    """Replies as a part of a transaction."""
    groups: dict[tuple[str, int], list[Any]] = {}
    for query, round, device, body in replies:
        groups.setdefault((query, round), []).append([device, body.decode()])
    return {"seal": [[*key, rows] for key, rows in groups.items()]} if groups else {}
