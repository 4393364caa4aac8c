"""The device: a filter of its own, noise of its own, and a memory of what it has answered.

Needs numpy, not Numba.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...accounting.filters import PrivacyFilter
from ...accounting.losses import EPSILON_UNIT, RHO_UNIT, DPLoss, Loss, Number, PrivacyLoss, geo_rho_cap, zcdp_of_geo
from ...errors import BudgetExhausted, ConfigError, LedgerError, LedgerMismatch
from ...noise.samplers import Noise
from ..functions import Box, Distance, Function, Named, function_from
from ..protocol import Ask, answered, refused
from ..spaces import MAX_LOSS, Space
from .accounts import DeviceCharge, Reply
from .journal import FileJournal, Journal, MemoryJournal


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
    Specification 11.4; proofs 10.1, 10.5; erratum 3.1; Liang and Yi 2025, Theorems 4.2, 4.4 and 4.5; `geo_rho_cap` for
    the last.
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

    def loss(self, nano: int) -> Loss:
        """Nano units as a loss of this budget's kind."""
        return DPLoss(nano) if self.kind == "geo" else PrivacyLoss(nano)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.terms, "capacity_nano": self.capacity.parts[0]}


@dataclass(frozen=True)
class Component:
    """One thing a device knows: where it lives, and its value.

    A value that changes with time is a new component at every time, under a new name: after ``place@9:00`` comes
    ``place@10:00``. What stands before the ``@`` has one metric for ever.
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


class _QuestionCheck:
    """A question that was looked at once for many devices: the same space gives the same verdict."""

    def __init__(self, ask: Ask, named: Mapping[str, Named]) -> None:
        self.digest = ask.digest
        self.kind = ask.component.partition("@")[0]
        self.problem: str | None = None
        self.function: Function | None = None
        self._verdicts: dict[int, tuple[Space, str | None, int, dict[str, Any]]] = {}
        self._wanted = dict(ask.space)
        self._pure = ask.pure
        try:
            self.function = function_from(ask.function, named)
        except ConfigError as error:
            self.problem = str(error)

    def verdict(self, space: Space) -> tuple[str | None, int, dict[str, Any]]:
        """A reason to refuse, or None; the smallest loss that can be served; and the space's metric."""
        kept = self._verdicts.get(id(space))
        if kept is None:
            reason = self._judge(space)
            least = 0 if reason or self.function is None else space.least_loss(self.function, self._pure)
            kept = self._verdicts[id(space)] = (space, reason, least, space.metric)
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
        Several devices of one budget may share a journal, each under its own name.
    noise : Noise, optional
        The system's randomness by default.
    named : mapping, optional
        Functions of the owner's that questions may name.

    Raises
    ------
    LedgerMismatch
        The journal belongs to devices with another budget; when asked: or a component had another metric before.
    LedgerInUse
        A device of this name is in use there; `close` lets go of it.
    LedgerDamaged, LedgerError
        See `FileJournal`.

    Notes
    -----
    May be asked from several threads: devices that share a journal answer one call after the other.

    Privacy
    -------
    Whatever is asked, in whatever order, again and again, before and after crashes: all answers together keep the
    budget. A charge is durable before noise is drawn, and an answer before it leaves. An id is answered once; asked
    again, it gets the same bytes and costs nothing, or is refused if the journal has dropped its query; asked
    otherwise, it is refused. A crash between charge and answer leaves the charge: the noise is drawn once more under
    it, as nothing had left, and after another crash the id is refused for ever. Refusals cost nothing and depend on
    public facts and costs only. Not covered: time, and whether a component is there at all (a value that is missing is
    answered like a public one).

    Source
    ------
    Specification 11.4; proofs 2.1, 2.9, 10.1; Liang and Yi 2025, Algorithm 1. Theirs halts for good at the first
    refusal, which only eases the proof; this one goes on with what fits.

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
        self._noise = noise or _SYSTEM
        self._named = _NONE if named is None else named
        self._owns_journal = isinstance(journal, (str, os.PathLike))
        if isinstance(journal, (str, os.PathLike)):
            self._journal: Journal = FileJournal(os.fspath(journal))
        else:
            self._journal = MemoryJournal() if journal is None else journal
        try:
            spent = self._journal.enter(name, budget.as_dict())
        except BaseException:
            if self._owns_journal:
                self._journal.close()
            raise
        self._closed = False
        self._filter: PrivacyFilter[Any] = PrivacyFilter(budget.capacity, f"device {name}".strip())
        self._filter.spent = budget.loss(spent)

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
        """Answer no more; the name may be used again. Idempotent."""
        if not self._closed:
            self._closed = True
            self._journal.leave(self.name)
            if self._owns_journal:
                self._journal.close()

    def __enter__(self) -> LocalFilter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _loss(self, nano: int, pure: bool) -> Loss:
        """What an ask costs this budget; a rho has no price in epsilon."""
        return _loss_of(nano, pure, self.budget.kind == "geo")

    def _decide(self, ask: Ask, asked: _QuestionCheck) -> tuple[bytes | None, Component | None, DeviceCharge | None]:
        """A reply at once, or the component to answer from and what to charge for it: None if that was charged before a
        crash."""
        if self._closed:
            raise LedgerError(f"device {self.name!r} was closed: make it again to go on")
        kept = self._journal.accounts.entry(ask.query, ask.round, self.name)
        if kept is not None and (kept.digest, kept.nano) != (asked.digest, ask.nano):
            return refused("conflict", ask), None, None
        if kept is not None and kept.reply is not None:
            return kept.reply, None, None
        if self._journal.accounts.has_expired(ask.query):
            return refused("expired", ask), None, None
        component = self._components(ask.component)
        if component is None:
            return refused("unknown_component", ask), None, None
        reason, least, metric = asked.verdict(component.space)
        if reason is not None:
            return refused(reason, ask, asked.problem if reason == "function" and asked.problem else ""), None, None
        known = self._journal.accounts.metrics.get(asked.kind, metric)
        if known != metric:
            raise LedgerMismatch(
                f"{self._journal.location} has answers about {asked.kind!r} in the metric {known}, now it is {metric}: "
                "what was promised per unit of distance stays promised; restore it, or give the component another name"
            )
        if kept is not None:
            return (refused("interrupted", ask), None, None) if kept.draws > 1 else (None, component, None)
        assert asked.function is not None
        if type(ask.nano) is not int:
            return refused("loss", ask, "must be an integer"), None, None
        try:
            if not least <= ask.nano <= MAX_LOSS:
                component.space.check_loss(asked.function, ask.nano, ask.pure)
            loss = self._loss(ask.nano, ask.pure)
        except ConfigError as error:
            return refused("loss", ask, str(error)), None, None
        try:
            self._filter.spend(loss)
        except BudgetExhausted:
            return refused("budget", ask), None, None
        cost = loss.parts[0]
        return None, component, DeviceCharge(ask.query, ask.round, asked.digest, ask.pure, self.name, ask.nano, cost)

    def _resync(self) -> None:
        """What was going to be charged, but was not."""
        self._filter.spent = self.budget.loss(self._journal.accounts.tally(self.name).spent)


@functools.lru_cache(maxsize=256)
def _loss_of(nano: int, pure: bool, is_geo: bool) -> Loss:
    if is_geo:
        if not pure:
            raise ConfigError("must be an epsilon: this device promises pure geo-privacy", "loss")
        return DPLoss(nano)
    return zcdp_of_geo(Fraction(nano, EPSILON_UNIT)) if pure else PrivacyLoss(nano)


class _PendingReply(NamedTuple):
    """An answer in the making, and its position among the replies."""

    position: int
    device: LocalFilter
    ask: Ask
    asked: _QuestionCheck
    component: Component


def answer_all(asks: Sequence[tuple[LocalFilter, Ask]]) -> list[bytes]:
    """Replies to asks of many devices: charges of all durable, then noise, then answers of all durable.

    Privacy
    -------
    As `LocalFilter`: every device has its own filter and independent noise; a device's reply depends on its own value,
    its own coins and what it was asked.

    Complexity
    ----------
    Two durable writes for each journal.

    Source
    ------
    Specification 11.4; proof 10.4; Liang and Yi 2025, Algorithms 1 and 2.
    """
    journals = {id(device._journal): device._journal for device, _ in asks}
    with ExitStack() as stack:
        for name in sorted(journals):  # in one order, so that two calls cannot wait for each other
            stack.enter_context(journals[name].lock)
            journals[name].check()
        return _answer_all(asks, list(journals.values()))


def _answer_all(asks: Sequence[tuple[LocalFilter, Ask]], journals: list[Journal]) -> list[bytes]:
    """`answer_all`, alone with the journals."""
    looked_at: dict[tuple[Any, ...], _QuestionCheck] = {}
    replies: list[bytes | None] = [None] * len(asks)
    todo: list[_PendingReply] = []
    charges: dict[int, tuple[list[DeviceCharge], list[tuple[str, int, str]], dict[str, Any]]]
    charges = {id(one): ([], [], {}) for one in journals}
    waiting: set[tuple[int, tuple[str, int]]] = set()
    redraws: list[int] = []
    try:
        before: tuple[Any, ...] = ()
        asked: _QuestionCheck | None = None
        for index, (device, ask) in enumerate(asks):
            key = ask.function, ask.space, ask.component, ask.pure, ask.query, ask.round, device._named
            if asked is None or any(map(operator.is_not, key, before)):  # not the question of the one before
                before, ids = key, (id(ask.function), id(ask.space), *key[2:6], id(device._named))
                asked = looked_at.get(ids)
                if asked is None:
                    asked = looked_at[ids] = _QuestionCheck(ask, device._named)
            if (id(device), ask.id) in waiting:
                redraws.append(index)
                continue
            reply, component, charge = device._decide(ask, asked)
            if component is None:
                replies[index] = reply
                continue
            new, second, metrics = charges[id(device._journal)]
            if charge is None:
                second.append((ask.query, ask.round, device.name))
            else:
                new.append(charge)
                if asked.kind not in device._journal.accounts.metrics:
                    metric = asked.verdict(component.space)[2]
                    if metrics.setdefault(asked.kind, metric) != metric:
                        raise LedgerMismatch(
                            f"{device._journal.location}: all its devices must mean one thing by distance 1 of "
                            f"{asked.kind!r}"
                        )
            waiting.add((id(device), ask.id))
            todo.append(_PendingReply(index, device, ask, asked, component))
        for journal in journals:
            new, second, metrics = charges[id(journal)]
            if new or second:
                journal.charge(new, second, metrics)
    except BaseException:
        for device, _ in asks:
            device._resync()
        raise
    done: dict[int, list[Reply]] = {}
    for one, values in zip(todo, _draw(todo), strict=True):
        body = replies[one.position] = answered(one.ask, values, one.device._noise.private)
        done.setdefault(id(one.device._journal), []).append(Reply(*one.ask.id, one.device.name, body))
    for journal in journals:
        if id(journal) in done:
            journal.seal(done[id(journal)])
    for index in redraws:
        replies[index] = _answer_all([asks[index]], [asks[index][0]._journal])[0]
    return [reply for reply in replies if reply is not None]


def _exact(function: Function, points: list[tuple[int, ...]]) -> list[list[int]]:
    """The function's integers of points of one space."""
    if isinstance(function, (Box, Distance)):
        with suppress(OverflowError):  # far more than 64 bits: one by one, in Python's integers
            return [[value] for value in function.evaluate_all(np.array(points, np.int64))[:, 0].tolist()]
    return [list(function.evaluate(point)) for point in points]


def _draw(todo: Sequence[_PendingReply]) -> list[list[int]]:
    """Noisy integers of every ask. Devices with one source of noise, space and question are served together."""
    groups: dict[tuple[int, int, int, bool], list[int]] = {}
    for i, (_, device, ask, asked, component) in enumerate(todo):
        groups.setdefault((id(device._noise), id(asked), id(component.space), ask.pure), []).append(i)
    found: list[list[int]] = [[]] * len(todo)
    for (_, _, _, pure), members in groups.items():
        first = todo[members[0]]
        function, space, noise = first.asked.function, first.component.space, first.device._noise
        assert function is not None
        exact = _exact(function, [todo[i].component.point for i in members])
        costs = np.array([todo[i].ask.nano for i in members], np.int64)
        if pure:
            drawn = space.draw_pure(noise, function, costs).tolist()
        else:
            drawn = space.draw(noise, function, RHO_UNIT, costs).tolist()
        for i, plain, extra in zip(members, exact, drawn, strict=True):
            found[i] = [a + b for a, b in zip(plain, extra, strict=True)]
    return found
