"""Reads the journal of devices as `fcstream budget show` reads a ledger, also while devices use it.

Reading takes no lock and changes nothing: an incomplete line does not count, and compaction replaces the file in one
step.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ...accounting.losses import DPLoss, Loss, PrivacyLoss
from ...errors import LedgerError, LedgerMismatch
from ...ledgers.base import Row, Terms, WindowKey
from ...ledgers.rollback_guard import RollbackGuard
from ..protocol import canonical
from .accounts import Accounts
from .journal import read

_START = b'{"at":'


def is_journal(path: str) -> bool:
    """Whether a file is the journal of devices."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        head = file.read(65 + len(_START))
        return len(head) == 65 + len(_START) and head[64:65] == b" " and head[65:] == _START
    return False


class DeviceJournalReader:
    """The `LedgerReader` of a journal, for all its devices or for one. Each question to a device counts as a window.

    Parameters
    ----------
    path : str
    device : str, optional
        By default all of them together.

    Raises
    ------
    LedgerDamaged
        As for `FileJournal`.
    LedgerMismatch
        No device of this name was ever charged.
    LedgerError
        The file cannot be read, or holds nothing yet.
    """

    is_retired = False

    def __init__(self, path: str, device: str | None = None) -> None:
        self.path, self._device = path, device
        rollback_guard = RollbackGuard(f"{path}-witness")
        seen = rollback_guard.seen()  # before the file is read, which then must reach as far
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise LedgerError(f"{path} cannot be read: {error.strerror}") from None
        found = read(data, Path(path), rollback_guard, seen, all_changes=True)
        if found.accounts.budget is None:
            raise LedgerError(f"{path} holds nothing yet")
        self._accounts: Accounts = found.accounts
        self._changes = found.changes
        budget = found.accounts.budget
        self._kind: type[Any] = DPLoss if budget["kind"] == "geo" else PrivacyLoss
        if device is not None and device not in found.accounts.tallies:
            raise LedgerMismatch(f"{path} has no device {device!r} that was charged")
        name = os.path.basename(path) if device is None else device
        specification = canonical(budget).decode()
        self.terms: Terms[Any] = Terms(name, "device", self._kind(budget["capacity_nano"]), specification)

    def spent(self, block: str | None = None) -> Loss:
        """Of one block; None: of the most charged device."""
        sums = {block_of(name): tally.spent for name, tally in self._accounts.tallies.items() if self._is_mine(name)}
        found: Loss = self._kind(sums.get(block, 0) if block else max(sums.values(), default=0))
        return found

    def summary(self) -> dict[str, int]:
        """See `LedgerReader`; dropped replies count too."""
        tallies = [tally for name, tally in self._accounts.tallies.items() if self._is_mine(name)]
        sealed = sum(tally.sealed for tally in tallies)
        charged = sum(tally.charged for tally in tallies) - sealed
        return {"charged": charged, "sealed": sealed, "blocks": len(tallies)}

    def charges(self) -> list[tuple[WindowKey, Loss]]:
        """See `LedgerReader`; the dropped charges of a device count as one."""
        rows = (row for row in self.rows() if row.kind in ("charge", "folded"))
        return [(WindowKey(row.open_ms, row.close_ms), self._kind(row.rho)) for row in rows]

    def releases(self) -> list[bytes]:
        """The replies that are in the file, in order."""
        return [row.body for row in self.rows() if row.kind == "seal"]

    def rows(self) -> list[Row]:
        """One row for every device that a transaction is about; what was dropped appears in totals only."""
        rows: list[Row] = []
        times: dict[tuple[str, int, str], int] = {}
        for seq, change in self._changes:
            at = change["at"]
            for device, (spent, charged, sealed) in change.get("folded", {}).items():
                counts = json.dumps({"charged": charged - sealed, "sealed": sealed}).encode()
                rows.append(Row(seq, "folded", at, at, spent, 0, block_of(device), counts, "dropped"))
            for query, round, _, _, charges in change.get("charge", ()):
                for device, nano, *cost in charges:
                    times[query, round, device] = at
                    rows.append(_row(seq, "charge", at, (query, round, device), cost[0] if cost else nano))
            for query, round, devices in change.get("again", ()):
                for device in devices:
                    id = query, round, device
                    rows.append(_row(seq, "again", times[id], id))
            for query, round, replies in change.get("seal", ()):
                for device, reply in replies:
                    id = query, round, device
                    rows.append(_row(seq, "seal", times[id], id, body=reply.encode()))
        if self._device is not None:
            mine = block_of(self._device)
            rows = [row for row in rows if row.blocks == mine]
        return rows

    def verify(self) -> int:
        """How many rows the journal has; its hash chain was checked when it was opened."""
        return len(self.rows())

    def close(self) -> None:
        """Nothing is held."""

    def _is_mine(self, name: str) -> bool:
        return self._device is None or name == self._device


def block_of(device: str) -> str:
    """The name of a device's privacy filter in rows, which separate blocks by commas."""
    return "device:" + device.replace("%", "%25").replace(",", "%2C")


def _row(seq: int, kind: str, at_ms: int, id: tuple[str, int, str], cost: int = 0, body: bytes = b"") -> Row:
    query, round, device = id
    return Row(seq, kind, at_ms, at_ms, cost, 0, block_of(device), body, f"{query}/{round}")
