"""The chain of hashes that binds a ledger's rows together, and the state that they lead to. Pure; no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..errors import LedgerDamaged
from ..zcdp import PrivacyLoss
from .base import TOTAL_BLOCK, Row, Terms

State = tuple[str, int, int, int, str, int | None]
"""Of a window: state, draws, rho and delta (refunds taken off), blocks, row of its seal."""


def start(terms: Terms) -> bytes:
    """The chain's first link: it binds the journal to what the ledger is about."""
    parts = [terms.stream, terms.unit, *_units(terms.capacity), terms.specification]
    if terms.total is not None:
        parts += [TOTAL_BLOCK, *_units(terms.total)]
    return hashlib.sha256("|".join(parts).encode()).digest()


def link(chain: bytes, row: Row) -> bytes:
    """The link after `chain`."""
    head = "|".join(map(str, row[:7])).encode()
    return hashlib.sha256(chain + hashlib.sha256(head).digest() + hashlib.sha256(row.body).digest()).digest()


class Replay:
    """Follows a journal row by row, and then compares the tables made from it.

    Parameters
    ----------
    place : str
        Of the ledger, for messages.
    terms : Terms
    """

    def __init__(self, place: str, terms: Terms) -> None:
        self.place = place
        self.count = 0
        self._terms = terms
        self._chain = start(terms)
        self._windows: dict[tuple[int, int], State] = {}
        self._blocks: dict[str, PrivacyLoss] = {}
        self._users: bytes | None = None

    def follow(self, row: Row, chain: bytes) -> None:
        """Take the next row, with the link that was stored beside it.

        Raises
        ------
        LedgerDamaged
            It does not follow.
        """
        self.count += 1
        self._chain = link(self._chain, row)
        if row.seq != self.count or self._chain != chain:
            raise LedgerDamaged(f"{self.place}: journal row {row.seq} does not follow from the rows before it")
        key = (row.open_ms, row.close_ms)
        after = _step(self._windows.get(key), row)
        if after is None:
            raise LedgerDamaged(
                f"{self.place}: journal row {row.seq} ({row.kind}) is out of order for window {row.open_ms}"
            )
        self._windows[key] = after
        if row.kind == "charge":
            self._charge(row)
        elif row.kind == "seal" and (row.rho or row.delta):
            self._refund(row, after[4])

    def _charge(self, row: Row) -> None:
        loss = PrivacyLoss(row.rho, row.delta)
        for block in filter(None, row.blocks.split(",")):
            total = self._blocks.get(block, PrivacyLoss()) + loss
            if not total.fits(self._terms.cap(block)):
                raise LedgerDamaged(f"{self.place}: journal row {row.seq} takes block {block} past its capacity")
            self._blocks[block] = total
        if row.body:
            self._users = row.body

    def _refund(self, row: Row, blocks: str) -> None:
        refund = PrivacyLoss(row.rho, row.delta)
        for block in filter(None, blocks.split(",")):
            if not refund.fits(self._blocks[block]):
                raise LedgerDamaged(f"{self.place}: journal row {row.seq} refunds more than block {block} has spent")
            self._blocks[block] = self._blocks[block] - refund
        if row.blocks:
            self._users = bytes.fromhex(row.blocks)

    def compare(
        self,
        windows: Iterable[tuple[int, int, State]],
        blocks: Iterable[tuple[str, int, int]],
        users: bytes | None,
    ) -> None:
        """Check the tables: windows (opening, close, state), blocks (name, rho, delta), digest of the users.

        Raises
        ------
        LedgerDamaged
            Naming what disagrees.
        """
        for block, rho, delta in blocks:
            if PrivacyLoss(rho, delta) != self._blocks.pop(block, None):
                raise LedgerDamaged(f"{self.place}: block {block} disagrees with the journal")
        for opens, closes, state in windows:
            if state != self._windows.pop((opens, closes), None):
                raise LedgerDamaged(f"{self.place}: window {opens} disagrees with the journal")
        if self._blocks or self._windows:
            raise LedgerDamaged(f"{self.place}: blocks or windows of the journal are missing from their tables")
        if self._users is not None and users != self._users:
            raise LedgerDamaged(f"{self.place}: the users' budgets disagree with the journal")


def _step(state: State | None, row: Row) -> State | None:
    """One row applied to a window's state; None if it may not come here."""
    if row.kind == "charge" and state is None:
        return "charged", 1, row.rho, row.delta, row.blocks, None
    if row.kind == "seal" and state is None and row.rho == row.delta == 0:
        return "sealed", 0, 0, 0, "", row.seq
    if state is None:
        return None
    name, draws, rho, delta, blocks, sealed = state
    if row.kind == "again" and name == "charged":
        return name, draws + 1, rho, delta, blocks, sealed
    refundable = (row.rho <= rho and row.delta <= delta) if draws == 1 else row.rho == row.delta == 0
    if row.kind == "seal" and name == "charged" and refundable:
        return "sealed", draws, rho - row.rho, delta - row.delta, blocks, row.seq
    if row.kind == "acknowledge" and name == "sealed":
        return "acknowledged", draws, rho, delta, blocks, sealed
    return None


def _units(loss: PrivacyLoss) -> tuple[str, str]:
    return str(loss.rho_nano), str(loss.delta_femto)
