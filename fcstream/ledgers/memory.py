"""A ledger in memory, with the rules of all ledgers; nothing is kept when the process ends."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..accounting.filters import PrivacyFilter
from ..accounting.losses import PrivacyLoss
from ..errors import BudgetExhausted, ConfigError, LedgerError
from .base import TOTAL_BLOCK, ChargeResult, EpochState, Request, SealedRelease, Terms, WindowKey, grant, max_loss


class MemoryLedger:
    """Holds privacy filters and releases in dictionaries; see `Ledger`. Nothing survives the process.

    A forked process has a copy, which may not be used: both would spend the same budget.
    """

    forgets = True

    def __init__(self, terms: Terms) -> None:
        if terms.group is not None:
            raise ConfigError("must be left out with a ledger in memory, which holds one stream", "budget.group")
        self.terms = terms
        self._pid = os.getpid()
        self._filters: dict[str, PrivacyFilter] = {}
        self._charged: dict[WindowKey, tuple[PrivacyLoss, tuple[str, ...], int]] = {}
        self._sealed: dict[WindowKey, bytes] = {}
        self._waiting: dict[WindowKey, None] = {}
        self._settings: dict[str, str] = {}
        self._states: dict[tuple[str, int], dict[int, bytes]] = {}

    def charge(self, requests: Sequence[Request]) -> list[ChargeResult]:
        self._check_process()
        return [self._charge(request) for request in requests]

    def _charge(self, request: Request) -> ChargeResult:
        window = request.window
        if window in self._sealed:
            return ChargeResult(window, self._max_spent(request.blocks))
        if window in self._charged:
            return self._charge_redraw(request)
        blocks = request.blocks
        if self.terms.total is not None:
            blocks = (*blocks, TOTAL_BLOCK)
        for each in map(self._filter, blocks):
            if not each.can_spend(request.loss):
                refusal = BudgetExhausted(request.loss, each.remaining, each.capacity, each.block, window)
                return ChargeResult(window, self._max_spent(request.blocks), refusal=refusal)
        for each in map(self._filter, blocks):
            each.spend(request.loss)
        self._charged[window] = (request.loss, blocks, 1)
        return grant(window, request.loss, self._max_spent(request.blocks))

    def _charge_redraw(self, request: Request) -> ChargeResult:
        loss, blocks, draws = self._charged[request.window]
        self._charged[request.window] = (loss, blocks, draws + 1)
        spent = self._max_spent(request.blocks)
        if draws >= 2:
            return ChargeResult(request.window, spent, interrupted=loss)
        return grant(request.window, loss, spent, is_redraw=True)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise LedgerError(
                "the ledger in memory was opened before a fork, and a copy of it would spend the same budget again",
                remedy="open the engine in the process that uses it, or name a ledger that "
                "processes share (`ledger.url`)",
            )

    def seal(self, answers: Sequence[SealedRelease]) -> None:
        self._check_process()
        for window, _, refund in answers:
            if window in self._sealed:
                raise LedgerError(f"window {window.open_ms} is sealed: its release is final")
            loss, _, draws = self._charged.get(window, (PrivacyLoss(), (), 0))
            if not refund.fits(loss if draws else PrivacyLoss()):
                raise LedgerError(f"window {window.open_ms} was charged {loss}: {refund} cannot be refunded")
        for window, body, refund in answers:
            if refund != PrivacyLoss() and self._is_refundable(window):
                for each in map(self._filter, self._charged[window][1]):
                    each.spent = each.spent - refund
            self._sealed[window] = body
            self._waiting[window] = None

    def seal_with_states(self, answers: Sequence[SealedRelease], states: Sequence[EpochState]) -> None:
        self.seal(answers)
        for state in states:
            self.forget_states(state.answer, state.forgets_before_ms)
            if state.body:
                self._states.setdefault((state.answer, state.epoch_ms), {})[state.open_ms] = state.body

    def epoch_states(self, answer: str, epoch_ms: int) -> list[tuple[int, bytes]]:
        return sorted(self._states.get((answer, epoch_ms), {}).items())

    def forget_states(self, answer: str, before_ms: int) -> None:
        self._states = {key: kept for key, kept in self._states.items() if key[0] != answer or key[1] >= before_ms}

    def _is_refundable(self, window: WindowKey) -> bool:
        """Tell whether a charge can be refunded: after one draw only, since nobody knows what an earlier draw used."""
        return self._charged[window][2] == 1

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        for window in windows:
            self._waiting.pop(window, None)

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        return [(window, self._sealed[window]) for window in self._waiting]

    def last_sealed(self) -> tuple[WindowKey, bytes] | None:
        return max(self._sealed.items(), default=None)

    def latest_sealed(self, count: int) -> list[tuple[WindowKey, bytes]]:
        return sorted(self._sealed.items())[-count:]

    def spent(self, block: str | None = None) -> PrivacyLoss:
        return self._filter(block).spent if block is not None else self._max_spent(self._filters)

    def charged_blocks(self, window: WindowKey) -> tuple[str, ...]:
        return self._charged[window][1] if window in self._charged else ()

    def setting(self, key: str) -> str | None:
        return self._settings.get(key)

    def keep_setting(self, key: str, value: str) -> str:
        return self._settings.setdefault(key, value)

    def close(self) -> None:
        pass

    def _filter(self, block: str) -> PrivacyFilter:
        return self._filters.setdefault(block, PrivacyFilter(self.terms.cap(block), block))

    def _max_spent(self, blocks: Iterable[str]) -> PrivacyLoss:
        """Return what the most charged one of some blocks has spent, the total left out."""
        known = [block for block in blocks if block in self._filters and block != TOTAL_BLOCK]
        return max_loss([self._filters[block].spent for block in known])
