"""The device: a filter of its own, noise of its own, and a memory of what it has answered.

Needs numpy, not Numba.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..budgets import PrivacyFilter
from ..errors import BudgetExhausted, ConfigError, LedgerDamaged, LedgerError, LedgerMismatch
from ..noise import Noise
from ..zcdp import EPSILON_UNIT, RHO_UNIT, DPLoss, Loss, Number, PrivacyLoss, geo_rho_cap, zcdp_of_geo
from .functions import Function, Named, function_from
from .journal import FileJournal, Journal, MemoryJournal
from .questions import Ask, answered, refused
from .spaces import MOST_LOSS, Space


@dataclass(frozen=True)
class LocalBudget:
    """What a device may lose, for ever, per unit of distance.

    Use one of `geo`, `concentrated` and `approximate`.

    Privacy
    -------
    Unit: the tuple of all components a device ever has. Relation: any other tuple, at the largest of the components'
    distances.

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, Theorems 4.2, 4.4 and 4.5; `geo_rho_cap` for the last.
    """

    kind: str
    capacity: Loss
    terms: Mapping[str, float]

    @classmethod
    def geo(cls, epsilon: Number) -> LocalBudget:
        """Pure geo-privacy: every answer is charged an epsilon, and epsilons add up."""
        cap = DPLoss.cap(epsilon)
        return cls("geo", cap, {"epsilon": cap.epsilon})

    @classmethod
    def concentrated(cls, rho: Number) -> LocalBudget:
        """Concentrated geo-privacy: every answer is charged a rho; an epsilon counts as epsilon**2 / 2."""
        cap = PrivacyLoss.cap(rho)
        return cls("concentrated", cap, {"rho": cap.rho})

    @classmethod
    def approximate(cls, epsilon: float, delta: float, distance: float) -> LocalBudget:
        """(epsilon, delta, distance)-geo-privacy: concentrated, with the largest cap that is enough for it."""
        cap = geo_rho_cap(epsilon, delta, distance)
        return cls("approximate", cap, {"epsilon": epsilon, "delta": delta, "distance": distance})

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.terms, "capacity_nano": self.capacity.parts[0]}


@dataclass(frozen=True)
class Component:
    """One thing a device knows: where it lives, and its value.

    A value that changes with time is a new component at every time, under a new name.
    """

    space: Space
    value: Any

    @functools.cached_property
    def point(self) -> tuple[int, ...]:
        """The lattice point; looked up once, so a value that is changed in place does not count."""
        return self.space.encode(self.value)


_NONE: Mapping[str, Named] = {}
_SYSTEM = Noise()  # one for all, so that a batch is drawn at once
Components = Callable[[str], Component | None]


class _Asked:
    """A question that was looked at once for many devices: the same space gives the same verdict."""

    def __init__(self, ask: Ask, named: Mapping[str, Named]) -> None:
        self.digest = ask.digest
        self.problem: str | None = None
        self.function: Function | None = None
        self._verdicts: dict[int, tuple[Space, str | None, int]] = {}
        self._wanted = dict(ask.space)
        self._pure = ask.pure
        try:
            self.function = function_from(ask.function, named)
        except ConfigError as error:
            self.problem = str(error)

    def verdict(self, space: Space) -> tuple[str | None, int]:
        """A reason to refuse, or None; and the smallest loss that can be served."""
        kept = self._verdicts.get(id(space))
        if kept is None:
            reason = self._judge(space)
            least = 0 if reason or self.function is None else space.least_loss(self.function, self._pure)
            kept = self._verdicts[id(space)] = (space, reason, least)
        return kept[1:]

    def _judge(self, space: Space) -> str | None:
        if space.as_dict() != self._wanted:
            return "other_space"
        if self.function is None:
            return "function"
        try:
            space.check(self.function)
            if self._pure:
                space.check_pure(self.function)
        except ConfigError as error:
            self.problem = str(error)
            return "function"
        return None


@dataclass
class _Entry:
    """What became of one id: charged, perhaps drawn again once, perhaps answered."""

    digest: str
    nano: int
    reply: bytes | None = None
    draws: int = 1


class LocalFilter:
    """Algorithm 1: answers a question with noise if its own budget allows, and remembers.

    Parameters
    ----------
    budget : LocalBudget
    components : mapping or callable
        Components by name; a callable is asked when a name is first queried, and whenever it is queried again.
    journal : Journal, path or None
        Where charges and answers are kept; None keeps them in memory only, so nothing survives the process.
    name : str
        Several devices may share a journal, each under its own name.
    noise : Noise, optional
        The system's randomness by default.
    named : mapping, optional
        Functions of the owner's that questions may name.

    Raises
    ------
    LedgerMismatch
        The journal belongs to a device with another budget.
    LedgerDamaged
        It contradicts itself.

    Notes
    -----
    Not for several threads at once; a `Gateway` takes one message after the other.

    Privacy
    -------
    Whatever is asked, in whatever order, again and again, before and after crashes: all answers together keep the
    budget. A charge is durable before noise is drawn, and an answer before it leaves. An id is answered once; asked
    again, it gets the same bytes and costs nothing; asked otherwise, it is refused. A crash between charge and answer
    leaves the charge: the noise is drawn once more under it, as nothing had left, and after another crash the id is
    refused for ever. Refusals cost nothing and depend on public facts and costs only. Not covered: time, and whether a
    component is there at all (a value that is missing is answered like a public one).

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, Algorithm 1. Theirs halts for good at the first refusal, which only eases
    the proof; this one goes on with what fits.

    Examples
    --------
    >>> from fcstream.local import Ask, Component, Euclidean, LocalBudget, LocalFilter
    >>> space = Euclidean((0.0, 0.0), (100.0, 100.0), step=0.5)
    >>> device = LocalFilter(LocalBudget.concentrated(0.25), {"place": Component(space, (20.0, 30.0))})
    >>> ask = Ask("first", 1, "place", space.as_dict(), {"kind": "point"}, nano=200_000_000)
    >>> device.answer(ask) == device.answer(ask), device.spent.rho
    (True, 0.2)
    >>> device.answer(Ask("next", 1, "place", space.as_dict(), {"kind": "point"}, nano=200_000_000))
    b'{"query":"next","reason":"budget","round":1,"status":"refused"}'
    """

    def __init__(
        self,
        budget: LocalBudget,
        components: Mapping[str, Component] | Components,
        journal: Journal | str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        noise: Noise | None = None,
        named: Mapping[str, Named] | None = None,
    ) -> None:
        self.budget = budget
        self.name = name
        self._components: Components = components if callable(components) else components.get
        self._owns_journal = isinstance(journal, (str, os.PathLike))
        if isinstance(journal, (str, os.PathLike)):
            self._journal: Journal = FileJournal(os.fspath(journal))
        else:
            self._journal = MemoryJournal() if journal is None else journal
        self._noise = noise or _SYSTEM
        self._named = _NONE if named is None else named
        self._filter: PrivacyFilter[Any] = PrivacyFilter(budget.capacity, f"device {name}".strip())
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._is_broken = False
        try:
            self._is_open = self._replay(self._journal.lines(name))
        except (KeyError, AttributeError, TypeError, BudgetExhausted, ConfigError):
            raise LedgerDamaged(f"the journal of device {name!r} contradicts itself: restore the newest copy") from None

    @property
    def spent(self) -> Any:
        """The sum of all charges, as a loss of the budget's kind."""
        return self._filter.spent

    @property
    def remaining(self) -> Any:
        return self._filter.remaining

    def report(self) -> dict[str, Any]:
        """Guarantee, spent and remaining, in the words of `fcstream budget show`."""
        found = {"device": self.name, "guarantee": self.budget.as_dict()}
        return found | {"spent": self.spent.as_dict(), "remaining": self.remaining.as_dict()}

    def answer(self, ask: Ask | bytes) -> bytes:
        """The reply to one ask; durable before it is returned.

        Raises
        ------
        LedgerError
            The journal cannot be written. Nothing leaves.
        """
        if isinstance(ask, bytes):
            try:
                ask = Ask.decode(ask)
            except ConfigError as error:
                return refused("malformed", detail=str(error))
        return answer_all([(self, ask)])[0]

    def close(self) -> None:
        if self._owns_journal:
            self._journal.close()

    def __enter__(self) -> LocalFilter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _replay(self, lines: Any) -> bool:
        is_open = False
        for line in lines:
            kind = line["line"]
            if kind == "open":
                if line["budget"] != self.budget.as_dict():
                    raise LedgerMismatch(
                        f"the journal of device {self.name!r} has another budget: what was promised stays promised"
                    )
                is_open = True
                continue
            key = line["query"], line["round"]
            if kind == "charge":
                self._filter.spend(self._loss(line["nano"], line["pure"]))
                self._entries[key] = _Entry(line["digest"], line["nano"])
            elif kind == "again":
                self._entries[key].draws += 1
            else:
                self._entries[key].reply = line["reply"].encode()
        return is_open

    def _loss(self, nano: int, pure: bool) -> Loss:
        """What an ask costs this budget; a rho has no price in epsilon."""
        if self.budget.kind == "geo":
            if not pure:
                raise ConfigError("must be an epsilon: this device promises pure geo-privacy", "loss")
            return DPLoss(nano)
        return zcdp_of_geo(Fraction(nano, EPSILON_UNIT)) if pure else PrivacyLoss(nano)

    def _decide(self, ask: Ask, asked: _Asked) -> tuple[bytes | None, Component | None, list[dict[str, Any]]]:
        """A reply at once, or the component to answer from and the lines to write before noise is drawn."""
        if self._is_broken:
            raise LedgerError(f"the journal of device {self.name!r} could not be written: open it again")
        kept = self._entries.get(ask.id)
        if kept is not None and (kept.digest, kept.nano) != (asked.digest, ask.nano):
            return refused("conflict", ask), None, []
        if kept is not None and kept.reply is not None:
            return kept.reply, None, []
        component = self._components(ask.component)
        if component is None:
            return refused("unknown_component", ask), None, []
        reason, least = asked.verdict(component.space)
        if reason is not None:
            return refused(reason, ask, asked.problem if reason == "function" and asked.problem else ""), None, []
        key = {"device": self.name, "query": ask.query, "round": ask.round}
        if kept is not None:
            if kept.draws > 1:
                return refused("interrupted", ask), None, []
            kept.draws += 1
            return None, component, [{"line": "again", **key}]
        assert asked.function is not None
        try:
            if not least <= ask.nano <= MOST_LOSS:
                component.space.check_loss(asked.function, ask.nano, ask.pure)
            loss = self._loss(ask.nano, ask.pure)
        except ConfigError as error:
            return refused("loss", ask, str(error)), None, []
        try:
            self._filter.spend(loss)
        except BudgetExhausted:
            return refused("budget", ask), None, []
        self._entries[ask.id] = _Entry(asked.digest, ask.nano)
        lines = [] if self._is_open else [{"line": "open", "device": self.name, "budget": self.budget.as_dict()}]
        self._is_open = True
        charge = {"digest": asked.digest, "nano": ask.nano, "pure": ask.pure}
        return None, component, [*lines, {"line": "charge", **key, **charge}]


def answer_all(asks: Sequence[tuple[LocalFilter, Ask]]) -> list[bytes]:
    """Replies to asks of devices that share a journal: charges of all durable, then noise, then answers of all durable.

    Privacy
    -------
    As `LocalFilter`: every device has its own filter and independent noise; a device's reply depends on its own value,
    its own coins and what it was asked.

    Complexity
    ----------
    Two durable writes for all of them together.

    Source
    ------
    Liang and Yi, Adaptive Privacy Budgeting, Algorithms 1 and 2.
    """
    if not asks:
        return []
    looked_at: dict[tuple[Any, ...], _Asked] = {}
    replies: list[bytes | None] = [None] * len(asks)
    todo: list[tuple[int, LocalFilter, Ask, _Asked, Component]] = []
    waiting: set[tuple[int, tuple[str, int]]] = set()
    again: list[int] = []
    lines: list[dict[str, Any]] = []
    for place, (device, ask) in enumerate(asks):
        key = id(ask.function), id(ask.space), ask.component, ask.pure, ask.id, id(device._named)
        asked = looked_at.get(key)
        if asked is None:
            asked = looked_at[key] = _Asked(ask, device._named)
        if (id(device), ask.id) in waiting:
            again.append(place)
            continue
        reply, component, written = device._decide(ask, asked)
        if component is None:
            replies[place] = reply
            continue
        lines += written
        waiting.add((id(device), ask.id))
        todo.append((place, device, ask, asked, component))
    journal = asks[0][0]._journal
    if todo:
        _append(journal, lines, todo)
        values = _draw(todo)
        lines = []
        for (place, device, ask, _, _), found in zip(todo, values, strict=True):
            replies[place] = answered(ask, found, device._noise.private)
            lines.append(
                {"line": "answer", "device": device.name, "query": ask.query, "round": ask.round}
                | {"reply": replies[place].decode()}  # type: ignore[union-attr]
            )
        _append(journal, lines, todo)
        for place, device, ask, _, _ in todo:
            device._entries[ask.id].reply = replies[place]
    for place in again:
        device, ask = asks[place]
        replies[place] = answer_all([(device, ask)])[0]
    return [reply for reply in replies if reply is not None]


def _append(journal: Journal, lines: list[dict[str, Any]], todo: Sequence[tuple[Any, ...]]) -> None:
    try:
        journal.append(lines)
    except BaseException:
        for _, device, *_ in todo:  # what is on disk is not known: only opening it again tells
            device._is_broken = True
        raise


def _draw(todo: Sequence[tuple[int, LocalFilter, Ask, _Asked, Component]]) -> list[list[int]]:
    """Noisy integers of every ask. Devices with one source of noise, space and question are served together."""
    groups: dict[tuple[int, int, int, bool], list[int]] = {}
    for i, (_, device, ask, asked, component) in enumerate(todo):
        groups.setdefault((id(device._noise), id(asked), id(component.space), ask.pure), []).append(i)
    found: list[list[int]] = [[]] * len(todo)
    for (_, _, _, pure), members in groups.items():
        _, device, ask, asked, component = todo[members[0]]
        function, space, noise = asked.function, component.space, device._noise
        assert function is not None
        exact = [function.evaluate(todo[i][4].point) for i in members]
        costs = np.array([todo[i][2].nano for i in members], np.int64)
        if pure:
            drawn = space.draw_pure(noise, function, costs).tolist()
        else:
            drawn = space.draw(noise, function, RHO_UNIT, costs).tolist()
        for i, plain, extra in zip(members, exact, drawn, strict=True):
            found[i] = [a + b for a, b in zip(plain, extra, strict=True)]
    return found
