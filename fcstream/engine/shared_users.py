"""One filter for all keys of a stream, and the keys under which a user counts in a window.

A window of all keys together is one charge, to the account that bears the stream's name; the streams of the keys keep
journals of their own, without charges to a filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..accounting.losses import PrivacyLoss
from ..config import Config, Job
from ..ledgers import ChargeResult, Ledger, RecentLedger, Request, SealedRelease, Terms, WindowKey
from ..ledgers.user_key import UserKeyPlace, fresh_key, stream_key
from ..noise.samplers import Noise
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


def account_of(config: Config, ledger: Ledger, noise: Noise | None) -> UserAccount:
    """Open the account of a stream, whose users are known by the key that the configuration names; see `stream_key`."""
    place = None if config.ledger is None else UserKeyPlace.of(config.ledger.url, config.ledger.user_key)
    is_kept = place is not None and not getattr(ledger, "forgets", False)
    secret = stream_key(place, ledger) if place is not None and is_kept else fresh_key(noise or Noise())
    return UserAccount(config.job, ledger, secret)


class UserAccount:
    """Charges each window of all keys once, and decides which users count under which keys.

    Parameters
    ----------
    job : Job
        Of the whole stream.
    ledger : Ledger
        The account: a stream of unit ``user`` with the name of the whole stream.
    secret : bytes
        With which users' names are hashed.

    Privacy
    -------
    A user counts under at most `stream.keys_per_user` keys of a window, those whose keyed hash of (user, window, key)
    is least among the keys of that user's own records; so the choice is a function of these records alone. The public
    block is charged the cost of that many releases before any key is drawn, or nobody counts. Nothing rests on a
    promise. The process that was granted that charge makes the only choice and the only draws: a second grant, after a
    crash or to another process, is answered `interrupted`.

    Source
    ------
    Specification 8.7; proof 2.12; ours.
    """

    def __init__(self, job: Job, ledger: Ledger, secret: bytes) -> None:
        self._job, self.ledger, self.secret = job, ledger, secret
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

    def answer(self, request: Request) -> ChargeResult:
        """Charge a window of all keys, unless that was done, and choose under which of them its users count."""
        decision = self._decided.get(request.window)
        if decision is None:  # all keys have their releases of the windows before it
            decision = self._decide(request)
            self._decided = {request.window: decision}
        return decision.answer

    def mask(self, window: WindowKey, key: str, keys: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        """Mark who of some users counts under a key of a window that was charged.

        Raises
        ------
        RuntimeError
            No choice was made, so that nobody may count.
        """
        decision = self._decided.get(window)
        if decision is None or decision.answer.charge is None or key not in decision.counted:
            raise RuntimeError("no keys were chosen for this window")
        return np.isin(keys, decision.counted[key])

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
        loss = request.loss * self._most
        answer = self.ledger.charge([Request(request.window, loss, request.blocks)])[0]
        if answer.charge is None and answer.refusal is None and answer.interrupted is None:
            answer = replace(answer, interrupted=PrivacyLoss())  # all keys that there were then have their release
        elif answer.charge is not None and answer.charge.is_redraw:
            # Another process, which may have died, chose keys for everybody; a second choice could be another one.
            answer = replace(answer, charge=None, interrupted=loss)
        if answer.charge is None:
            return _Decision(answer, {})
        names = [part.job.key or "" for part in here]
        chosen = choose_keys(self.secret, request.window.open_ms, names, users, self._most)
        return _Decision(answer, {name: those[mask] for name, those, mask in zip(names, users, chosen, strict=True)})


class PartLedger:
    """The ledger of one key, which is charged to an account; see `Ledger`. Tells who counts under the key.

    Source
    ------
    Specification 8.7; proof 2.12; ours.
    """

    is_joint = True

    def __init__(self, account: UserAccount, key: str, ledger: Ledger) -> None:
        self._account, self._key, self._own = account, key, ledger
        self._is_open = True
        self.terms: Terms = ledger.terms
        self.user_secret = account.secret
        self.forgets = getattr(account.ledger, "forgets", False)

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        return [self._charge(request) for request in requests]

    def _charge(self, request: Request) -> ChargeResult:
        answer = self._account.answer(request)
        if answer.charge is None:
            sealed = self._own.last_sealed()
            if sealed is not None and sealed[0] >= request.window:  # by another process
                return ChargeResult(request.window, answer.spent)
            interrupted = None if answer.interrupted is None else min(answer.interrupted, request.loss, key=_rho)
            return replace(answer, interrupted=interrupted, is_joint=True)
        found = self._own.charge([Request(request.window, request.loss, ())])[0]
        return replace(found, spent=answer.spent, is_joint=True)

    def mask(self, window: WindowKey, keys: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        """See `Participants`."""
        return self._account.mask(window, self._key, keys)

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
