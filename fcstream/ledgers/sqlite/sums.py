"""Reads what the windows and blocks of every stream of a SQLite file add up to, in one pass over all rows.

Rows of one time lie side by side, whichever stream they belong to, so that closing one window of many streams changes
few pages. A pass for each stream would read the rows of all others too.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from ...accounting.losses import PrivacyLoss
from ...errors import LedgerDamaged
from .. import hash_chain
from ..base import TOTAL_BLOCK
from ..files import LedgerFile
from ..hash_chain import mark


class WindowRow(NamedTuple):
    """Window state, as one row of the table `windows` holds it."""

    open_ms: int
    close_ms: int
    state: str
    draws: int
    rho: int
    delta: int
    blocks: str
    sealed_seq: int | None

    @property
    def loss(self) -> PrivacyLoss:
        """Return the loss charged to the window, less refunds."""
        return PrivacyLoss(self.rho, self.delta)

    def after(self, state: str, loss: PrivacyLoss, sealed_seq: int | None) -> WindowRow:
        """Return the row of the window in another state."""
        opens, closes, _, draws, _, _, blocks, _ = self
        return WindowRow(opens, closes, state, draws, loss.rho_nano, loss.delta_femto, blocks, sealed_seq)

    @property
    def state_of(self) -> hash_chain.State:
        """Return all columns except the two that identify the window."""
        return self.state, self.draws, self.rho, self.delta, self.blocks, self.sealed_seq


@dataclass(slots=True)
class StreamSums:
    """What the rows of one stream's blocks and windows add up to.

    Attributes
    ----------
    marks : int
        Sum of the rows' marks.
    max_rho, max_delta : int
        The largest loss of any block, the block of the total excluded.
    newest, newest_pane : tuple of float, float
        No window, and no pane, opens later.
    sealed : WindowRow or None
        The newest window that has a release.
    waiting : list of int
        Journal rows of the releases that are not acknowledged.
    damage : str
        The first row that disagrees with its mark; empty if none does.
    """

    marks: int = 0
    max_rho: int = 0
    max_delta: int = 0
    newest: tuple[float, float] = (-inf, -inf)
    newest_pane: float = -inf
    sealed: WindowRow | None = None
    waiting: list[int] = field(default_factory=list)
    damage: str = ""


def sums_of(file: LedgerFile, path: str) -> dict[int, StreamSums]:
    """Return the sums of all streams that have rows, by number.

    Raises
    ------
    LedgerDamaged
        Rows are out of order: SQLite searches a table by the order of its keys, so a row behind one that is out of
        order would not be found, and a block that is not found would have a fresh budget.
    """
    file.write()
    if file.sums is None:
        file.sums = _read(file.db, path, "")
    known: dict[int, StreamSums] = file.sums
    return known


def stream_sums(file: LedgerFile, path: str, number: int) -> StreamSums:
    """Return the sums of one stream; if those of all are not known, from its own rows alone.

    Raises
    ------
    LedgerDamaged
        Its rows are out of order.
    """
    file.write()
    found = _read(file.db, path, f"WHERE stream = {number}") if file.sums is None else file.sums
    return found.get(number) or StreamSums()


def max_spent_of(file: LedgerFile, number: int) -> PrivacyLoss:
    """Return the largest loss of any block of a stream, the block of the total excluded."""
    file.write()
    if file.most is None:
        query = "SELECT stream, max(rho), max(delta) FROM blocks WHERE block != ? GROUP BY stream"
        file.most = {stream: PrivacyLoss(rho, delta) for stream, rho, delta in file.db.execute(query, (TOTAL_BLOCK,))}
    found: PrivacyLoss = file.most.get(number) or PrivacyLoss()
    return found


def pane_of(block: str) -> float:
    """Return when the pane of a block opens; a block that is none of a pane counts as before all."""
    return int(block) if block.lstrip("-").isdecimal() else -inf


def _read(db: sqlite3.Connection, path: str, which: str) -> dict[int, StreamSums]:
    found = defaultdict[int, StreamSums](StreamSums)
    _add_blocks(db, path, which, found)
    _add_windows(db, path, which, found)
    return dict(found)


def _add_blocks(db: sqlite3.Connection, path: str, which: str, found: defaultdict[int, StreamSums]) -> None:
    query = f"SELECT stream, block, rho, delta, mark FROM blocks {which} ORDER BY block, stream"
    for number, block, rho, delta, marked in _in_order(db.execute(query), path, "blocks", itemgetter(1, 0)):
        sums = found[number]
        if mark("b", block, rho, delta) != marked:
            sums.damage = sums.damage or f"block {block} disagrees with the mark beside it"
            continue
        sums.marks += marked
        sums.newest_pane = max(sums.newest_pane, pane_of(block))
        if block != TOTAL_BLOCK:
            sums.max_rho, sums.max_delta = max(sums.max_rho, rho), max(sums.max_delta, delta)


def _add_windows(db: sqlite3.Connection, path: str, which: str, found: defaultdict[int, StreamSums]) -> None:
    query = (
        f"SELECT stream, open_ms, close_ms, state, draws, rho, delta, blocks, sealed_seq, mark FROM windows {which} "
        "ORDER BY open_ms, close_ms, stream"
    )
    for number, *columns, marked in _in_order(db.execute(query), path, "windows", itemgetter(1, 2, 0)):
        sums = found[number]
        if mark("w", *columns) != marked:
            sums.damage = sums.damage or f"window {columns[0]} disagrees with the mark beside it"
            continue
        row = WindowRow(*columns)
        sums.marks += marked
        sums.newest = max(sums.newest, row[:2])
        if row.state != "charged":
            sums.sealed = row
        if row.state == "sealed":
            sums.waiting.append(row.sealed_seq or 0)


def _in_order(rows: sqlite3.Cursor, path: str, table: str, key: Callable[[Any], Any]) -> Iterator[tuple[Any, ...]]:
    """Yield rows, after checking that their keys ascend."""
    before: Any = None
    for row in rows:
        place = key(row)
        if before is not None and not before < place:
            rows.close()  # the error's frames would keep it, and with it the file open
            raise LedgerDamaged(f"{path} is damaged: rows are out of order in table {table}")
        before = place
        yield row
