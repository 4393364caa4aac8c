"""A ledger that forgets at exit: the rules without the disk."""

from __future__ import annotations

from collections.abc import Sequence

from ..budgets import PrivacyFilter
from ..errors import BudgetExhausted, LedgerError
from ..zcdp import PrivacyLoss
from .base import Request, Terms, Verdict, WindowKey, grant


class MemoryLedger:
    """Filters and answers in dictionaries; see `Ledger` for the contract. Nothing survives the process."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._filters: dict[str, PrivacyFilter] = {}
        self._charged: dict[WindowKey, tuple[PrivacyLoss, tuple[str, ...], int]] = {}
        self._sealed: dict[WindowKey, bytes] = {}
        self._waiting: dict[WindowKey, None] = {}

    def charge(self, requests: Sequence[Request]) -> list[Verdict]:
        return [self._charge(request) for request in requests]

    def _charge(self, request: Request) -> Verdict:
        window = request.window
        if window in self._sealed:
            return Verdict(window, self._worst(request.blocks))
        if window in self._charged:
            loss, blocks, draws = self._charged[window]
            self._charged[window] = (loss, blocks, draws + 1)
            spent = self._worst(blocks)
            return grant(window, loss, spent) if draws < 2 else Verdict(window, spent, interrupted=loss)
        filters = [self._filter(block) for block in request.blocks]
        for each in filters:
            if not each.can_spend(request.loss):
                refusal = BudgetExhausted(request.loss, each.remaining, each.capacity, each.block)
                return Verdict(window, self._worst(request.blocks), refusal=refusal)
        for each in filters:
            each.spend(request.loss)
        self._charged[window] = (request.loss, request.blocks, 1)
        return grant(window, request.loss, self._worst(request.blocks))

    def seal(self, answers: Sequence[tuple[WindowKey, bytes]]) -> None:
        for window, body in answers:
            if window in self._sealed:
                raise LedgerError(f"window {window.open_ms} is sealed: its answer is final")
            self._sealed[window] = body
            self._waiting[window] = None

    def acknowledge(self, windows: Sequence[WindowKey]) -> None:
        for window in windows:
            self._waiting.pop(window, None)

    def unacknowledged(self) -> list[tuple[WindowKey, bytes]]:
        return [(window, self._sealed[window]) for window in self._waiting]

    def last_sealed(self) -> WindowKey | None:
        return max(self._sealed, default=None)

    def spent(self) -> PrivacyLoss:
        return self._worst(self._filters)

    def close(self) -> None:
        pass

    def _filter(self, block: str) -> PrivacyFilter:
        return self._filters.setdefault(block, PrivacyFilter(self.terms.capacity, block))

    def _worst(self, blocks: object) -> PrivacyLoss:
        spent = [self._filters[block].spent for block in blocks if block in self._filters]  # type: ignore[attr-defined]
        return PrivacyLoss(
            max((loss.rho_nano for loss in spent), default=0), max((loss.delta_femto for loss in spent), default=0)
        )
