"""The device: its own privacy filter, its own noise, and a journal of its replies.

Needs numpy, not Numba.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ...accounting.filters import PrivacyFilter
from ...errors import BudgetExhausted, ConfigError, LedgerError, LedgerMismatch
from ...noise.samplers import Noise
from ...runtime.undo import on_error
from ..functions import Named
from ..protocol import Ask, answered, refused
from ..spaces import MAX_LOSS, Space
from .accounts import AnswerState, DeviceCharge, Reply
from .budget import LocalBudget
from .components import Component, Components
from .drawing import PendingReply, draw
from .journal import FileJournal, Journal, MemoryJournal
from .questions import QuestionCheck, Questions

_NONE: Mapping[str, Named] = {}
_SYSTEM = Noise()  # shared by all devices, so that a batch is drawn together


class LocalFilter:
    """A device (Algorithm 1): answers a question with noise if its own budget allows, and remembers its reply.

    Parameters
    ----------
    budget : LocalBudget
    components : mapping or callable
        Components by name; a callable is asked when a name is first queried, and whenever it is queried again.
    journal : Journal, path or None
        Where charges and replies are kept; None keeps them in memory only, so nothing survives the process.
    name : str
        Several devices with equal budgets may share a journal, each under its own name.
    noise : Noise, optional
        The system's randomness by default.
    named : mapping, optional
        Functions that the owner registers and questions may name.

    Raises
    ------
    LedgerMismatch
        The journal belongs to devices with another budget. When asked: a component had another metric before.
    LedgerInUse
        Another device of this name uses the journal; its `close` frees the name.
    LedgerDamaged, LedgerError
        See `FileJournal`.

    Notes
    -----
    Several threads may ask; devices that share a journal answer one call after the other.

    Privacy
    -------
    All replies together stay within the budget, whatever is asked, in whatever order, and across crashes. A charge is
    durable before noise is drawn, and a reply before it leaves. Each id (query and round) is charged once. If the same
    question is asked again, the reply has the same bytes and costs nothing, or it is refused if the journal has dropped
    its query; a different question under the same id is refused. After a crash between charge and reply, the noise is
    redrawn once under the same charge, because nothing had left; after another crash the id is refused. Refusals cost
    nothing and depend on public facts and costs only. Not covered: how long a reply takes, and whether the device has
    the component at all (a missing value gets the reply of a public value).

    Source
    ------
    Specification 11.4; proofs 2.1, 2.9, 10.1; Liang and Yi 2025, Algorithm 1. Theirs stops for ever at the first
    refusal, which only makes the proof easier; this one goes on answering what fits.

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
        with on_error(self._close_journal):
            spent = self._journal.enter(name, budget.as_dict())
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
        """Guarantee, spent and remaining, with the keys of `fcstream budget show`."""
        found = {"device": self.name, "guarantee": self.budget.as_dict()}
        return found | {"spent": self.spent.as_dict(), "remaining": self.remaining.as_dict()}

    def answer(self, ask: Ask | bytes) -> bytes:
        """The reply to one ask; durable before it is returned.

        Raises
        ------
        LedgerError
            The journal cannot be written; no reply leaves.
        """
        if isinstance(ask, bytes):
            try:
                ask = Ask.decode(ask)
            except ConfigError as error:
                return refused("malformed", detail=str(error))
        return answer_all([(self, ask)])[0]

    def close(self) -> None:
        """Stop answering and free the name. Idempotent."""
        if not self._closed:
            self._closed = True
            self._journal.leave(self.name)
            self._close_journal()

    def _close_journal(self) -> None:
        if self._owns_journal:
            self._journal.close()

    def __enter__(self) -> LocalFilter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decide(self, ask: Ask, question: QuestionCheck) -> bytes | tuple[Component, DeviceCharge | None]:
        """A reply at once; or the component to answer from and what to charge for it, None if it was charged before a
        crash."""
        if self._closed:
            raise LedgerError(f"device {self.name!r} was closed", remedy="make it again to go on")
        before = self._journal.accounts.entry(ask.query, ask.round, self.name)
        reply = self._reply_before(ask, question, before)
        if reply is not None:
            return reply
        component = self._components(ask.component)
        if component is None:
            return refused("unknown_component", ask)
        fit = question.fit(component.space)
        if fit.reason is not None:
            return refused(fit.reason, ask, question.problem if fit.reason == "function" else "")
        self._check_metric(question.kind, fit.metric)
        if before is not None:
            return refused("interrupted", ask) if before.draws > 1 else (component, None)
        charge = self._spend(ask, question, component.space, fit.min_loss)
        return charge if isinstance(charge, bytes) else (component, charge)

    def _reply_before(self, ask: Ask, question: QuestionCheck, before: AnswerState | None) -> bytes | None:
        """The reply that follows from the journal alone: the same as before, or a refusal."""
        if before is None:
            return refused("expired", ask) if self._journal.accounts.has_expired(ask.query) else None
        if (before.digest, before.nano) != (question.digest, ask.nano):
            return refused("conflict", ask)
        return before.reply

    def _check_metric(self, kind: str, metric: Mapping[str, Any]) -> None:
        known = self._journal.accounts.metrics.get(kind, metric)
        if known != metric:
            raise LedgerMismatch(
                f"{self._journal.location} has answers about {kind!r} in the metric {known}, now it "
                f"is {metric}: what was promised per unit of distance stays promised",
                remedy="restore it, or give the component another name",
            )

    def _spend(self, ask: Ask, question: QuestionCheck, space: Space, least: int) -> bytes | DeviceCharge:
        """Charge the filter; the charge is still to be written. Or a refusal."""
        assert question.function is not None
        if type(ask.nano) is not int:
            return refused("loss", ask, "must be an integer")
        try:
            if not least <= ask.nano <= MAX_LOSS:
                space.check_loss(question.function, ask.nano, ask.pure)
            loss = self.budget.charge(ask.nano, ask.pure)
        except ConfigError as error:
            return refused("loss", ask, str(error))
        try:
            self._filter.spend(loss)
        except BudgetExhausted:
            return refused("budget", ask)
        return DeviceCharge(ask.query, ask.round, question.digest, ask.pure, self.name, ask.nano, cost=loss.parts[0])

    def _restore_filter(self) -> None:
        """The filter as the journal has it, without charges that were not written."""
        self._filter.spent = self.budget.loss(self._journal.accounts.tally(self.name).spent)


def answer_all(asks: Sequence[tuple[LocalFilter, Ask]]) -> list[bytes]:
    """Replies to asks of many devices: charges of all durable, then noise, then replies of all durable.

    Privacy
    -------
    The guarantee is that of `LocalFilter` for every device: each has its own filter and independent noise, and its
    reply depends on its own value, its own coins and what it was asked.

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
        return _Batch(asks).replies()


@dataclass
class _JournalBatch:
    """What a batch writes to one journal."""

    journal: Journal
    charges: list[DeviceCharge] = field(default_factory=list)
    redraws: list[tuple[str, int, str]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)

    def charge(self) -> None:
        if self.charges or self.redraws:
            self.journal.charge(self.charges, self.redraws, self.metrics)

    def seal(self) -> None:
        if self.replies:
            self.journal.seal(self.replies)

    def note_metric(self, kind: str, metric: dict[str, Any]) -> None:
        """Remember what distance 1 is, if the journal does not have it yet."""
        if kind not in self.journal.accounts.metrics and self.metrics.setdefault(kind, metric) != metric:
            raise LedgerMismatch(
                f"all its devices must mean one thing by distance 1 of {kind!r}", where=self.journal.location
            )


class _Batch:
    """Asks that are answered together by a caller who holds the locks of their journals."""

    def __init__(self, asks: Sequence[tuple[LocalFilter, Ask]]) -> None:
        self._asks = asks
        self._replies: dict[int, bytes] = {}
        self._pending: list[PendingReply] = []
        self._repeated: list[int] = []
        self._journals = {id(device._journal): _JournalBatch(device._journal) for device, _ in asks}

    def replies(self) -> list[bytes]:
        """One reply for each ask, in order."""
        with on_error(self._restore_filters):
            self._decide()
            for journal in self._journals.values():
                journal.charge()
        self._draw()
        for journal in self._journals.values():
            journal.seal()
        for position in self._repeated:  # now the journal has the reply
            self._replies[position] = _Batch([self._asks[position]]).replies()[0]
        return [self._replies[position] for position in range(len(self._asks))]

    def _decide(self) -> None:
        """Reply at once where nothing is to be drawn; charge the filters for all else."""
        questions = Questions()
        seen: set[tuple[int, tuple[str, int]]] = set()
        for position, (device, ask) in enumerate(self._asks):
            question = questions.check(ask, device._named)
            if (id(device), ask.id) in seen:
                self._repeated.append(position)
                continue
            decision = device._decide(ask, question)
            if isinstance(decision, bytes):
                self._replies[position] = decision
                continue
            component, charge = decision
            journal = self._journals[id(device._journal)]
            if charge is None:
                journal.redraws.append((ask.query, ask.round, device.name))
            else:
                journal.charges.append(charge)
                journal.note_metric(question.kind, question.fit(component.space).metric)
            seen.add((id(device), ask.id))
            self._pending.append(PendingReply(position, ask, question, component, device._noise))

    def _restore_filters(self) -> None:
        for device, _ in self._asks:
            device._restore_filter()

    def _draw(self) -> None:
        for one, values in zip(self._pending, draw(self._pending), strict=True):
            device, ask = self._asks[one.position]
            body = self._replies[one.position] = answered(ask, values, one.noise.private)
            self._journals[id(device._journal)].replies.append(Reply(*ask.id, device.name, body))
