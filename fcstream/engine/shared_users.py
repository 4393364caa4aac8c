"""One filter for each user across all keys of a stream, and the keys under which a user counts in a window.

A window of all keys together is one charge, to the account that bears the stream's name; the streams of the keys keep
journals of their own, without users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..config import Job
from ..ledgers import ChargeResult, Ledger, RecentLedger, Request, SealedRelease, Terms, WindowKey
from ..stream.key_choice import choose_keys


class KeyedPart(Protocol):
    """The engine of one key."""

    @property
    def job(self) -> Job: ...

    @property
    def next_index(self) -> int:
        """Index of the first window without a release."""

    def users(self, index: int) -> NDArray[np.bytes_]:
        """Return the keys of the users of a window that has no release yet, ascending."""


@dataclass(slots=True)
class _Decision:
    """What was decided about one window of all keys: the account's answer, and who counts under each key."""

    answer: ChargeResult
    counted: dict[str, NDArray[np.bytes_]]
    unused: dict[str, PrivacyLoss] = field(default_factory=dict)


class UserAccount:
    """Charges each window of all keys once, and decides which users count under which keys.

    Parameters
    ----------
    job : Job
        Of the whole stream.
    ledger : Ledger
        The account: a stream of unit ``user`` with the name of the whole stream.

    Privacy
    -------
    A user counts under at most `stream.keys_per_user` keys of a window, those whose keyed hash of (user, window, key)
    is least among the keys of that user's own records; so the choice is a function of these records alone. Every user
    with a record in the window is charged the cost of that many releases before any key is drawn, or counts under no
    key. Nothing rests on a promise. The process that was granted that charge makes the only choice and the only draws:
    a second grant, after a crash or to another process, is answered `interrupted`.

    Source
    ------
    Specification 8.7; proof 2.12; ours.
    """

    def __init__(self, job: Job, ledger: Ledger) -> None:
        self._job, self.ledger = job, ledger
        self._most = job.keys_chosen or 1
        self._decided: dict[WindowKey, _Decision] = {}
        self._open = 0
        self._parts: Sequence[KeyedPart] = ()

    def part(self, key: str, ledger: Ledger) -> PartLedger:
        """Return the ledger of one key, charged to this account."""
        self.enter()
        return PartLedger(self, key, ledger)

    def enter(self) -> None:
        """Keep the account open, also while there is no part, until `leave` is called as often."""
        self._open += 1

    def attach(self, parts: Sequence[KeyedPart]) -> None:
        """Tell the engines of all keys, in the order of the keys."""
        self._parts = parts

    def answer(self, request: Request, key: str) -> tuple[ChargeResult, NDArray[np.bool_] | None]:
        """Charge a window of all keys, unless that was done, and tell which of its users count under a key."""
        decision = self._decided.get(request.window)
        if decision is None:  # all keys have their releases of the windows before it
            decision = self._decide(request)
            self._decided = {request.window: decision}
        if request.users is None or key not in decision.counted:
            return decision.answer, None
        return decision.answer, np.isin(request.users, decision.counted[key])

    def seal(self, window: WindowKey, key: str, unused: PrivacyLoss) -> None:
        """Note that a key's release of a window is sealed; with the last one the account gets back what none used."""
        decision = self._decided.get(window)
        if decision is None:
            return
        decision.unused[key] = unused
        if decision.answer.charge is None or decision.unused.keys() < decision.counted.keys():
            return
        rho = min(loss.rho_nano for loss in decision.unused.values())
        delta = min(loss.delta_femto for loss in decision.unused.values())
        self.ledger.seal([SealedRelease(window, b"", PrivacyLoss(rho, delta) * self._most)])
        self.ledger.acknowledge([window])

    def leave(self) -> None:
        """Close the account with the last that entered it."""
        self._open -= 1
        if self._open == 0:
            self.ledger.close()

    def _decide(self, request: Request) -> _Decision:
        index = self._job.schedule.index_after(request.window.open_ms) - 1
        here = [part for part in self._parts if part.next_index <= index]
        users = [part.users(index) for part in here]
        everybody = np.unique(np.concatenate(users))
        loss = request.loss * self._most
        answer = self.ledger.charge([Request(request.window, loss, request.blocks, everybody)])[0]
        if answer.charge is None and answer.refusal is None and answer.interrupted is None:
            answer = replace(answer, interrupted=PrivacyLoss())  # all keys that there were then have their release
        elif answer.charge is not None and answer.charge.is_redraw:
            # Another process, which may have died, chose keys for everybody; a second choice could be another one.
            answer = replace(answer, charge=None, interrupted=loss)
        if answer.admitted is None or answer.charge is None:
            return _Decision(answer, {})
        names = [part.job.key or "" for part in here]
        admitted = everybody[answer.admitted]
        chosen = choose_keys(self.ledger.salt, request.window.open_ms, names, users, self._most)
        counted = {
            name: those[mask & np.isin(those, admitted)] for name, those, mask in zip(names, users, chosen, strict=True)
        }
        return _Decision(answer, counted)


class PartLedger:
    """The ledger of one key, whose users have their filters in an account; see `Ledger`.

    Source
    ------
    Specification 8.7; proof 2.12; ours.
    """

    is_joint = True

    def __init__(self, account: UserAccount, key: str, ledger: Ledger) -> None:
        self._account, self._key, self._own = account, key, ledger
        self._is_open = True
        self.terms: Terms = ledger.terms
        self.salt = account.ledger.salt
        self.forgets = getattr(account.ledger, "forgets", False)

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        return [self._charge(request) for request in requests]

    def _charge(self, request: Request) -> ChargeResult:
        answer, counted = self._account.answer(request, self._key)
        if answer.charge is None:
            sealed = self._own.last_sealed()
            if sealed is not None and sealed[0] >= request.window:  # by another process
                return ChargeResult(request.window, answer.spent)
            interrupted = None if answer.interrupted is None else min(answer.interrupted, request.loss, key=_rho)
            return replace(answer, interrupted=interrupted, admitted=None, is_joint=True)
        found = self._own.charge([Request(request.window, request.loss, ())])[0]
        return replace(found, spent=answer.spent, admitted=counted, is_joint=True)

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        self._own.seal(answers)
        for answer in answers:
            self._account.seal(answer.window, self._key, answer.refund)

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        self._own.acknowledge(windows)

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        return self._own.unacknowledged()

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        return self._own.last_sealed()

    def latest_sealed(self, count: int) -> list[tuple[WindowKey, bytes]]:
        return self._own.latest_sealed(count) if isinstance(self._own, RecentLedger) else []

    def spent(self, block: str | None = None) -> PrivacyLoss:
        return self._account.ledger.spent(block)

    def charged_blocks(self, window: WindowKey) -> tuple[str, ...]:
        return self._account.ledger.charged_blocks(window)

    def has_room(self, keys: NDArray[np.bytes_], loss: PrivacyLoss) -> NDArray[np.bool_]:
        """Tell nobody's room: who counts under this key is not known before the close, so no point may be dropped."""
        return np.zeros(len(keys), np.bool_)

    def setting(self, key: str) -> str | None:
        return self._own.setting(key)

    def keep_setting(self, key: str, value: str) -> str:
        return self._own.keep_setting(key, value)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._own.close()
            self._account.leave()


def _rho(loss: PrivacyLoss) -> int:
    return loss.rho_nano
