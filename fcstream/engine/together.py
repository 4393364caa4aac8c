"""Closes windows of several keys together: one transaction for all charges, and one for all seals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from ..ledgers import JointLedger
from .closing import AskedWindows, DrawnWindows
from .engine import Engine

MAX_WINDOWS = 4096
"""Number of windows, of all keys together, that are charged or sealed in one transaction."""
Asked = tuple[Engine, AskedWindows]


@contextmanager
def locked(engines: Sequence[Engine]) -> Iterator[None]:
    """Hold the locks of some engines, in their order, and so before the lock of a ledger that they share."""
    held: list[RLock] = []
    try:
        for engine in engines:
            lock = engine.lock
            lock.acquire()
            held.append(lock)
        yield
    finally:
        for lock in reversed(held):
            lock.release()


class KeysInOrder:
    """Asks for the windows of all keys that are due, key by key, so that they are drawn in that order.

    Parameters
    ----------
    engines : sequence of Engine
        At least one; all have the same windows.
    now_ms : int or None
        See `Engine.close_next`.
    limit : int, optional
        Number of windows of one key after which its others are left alone.
    """

    def __init__(self, engines: Sequence[Engine], now_ms: int | None, limit: int | None = None) -> None:
        self._engines, self._now_ms, self._limit = engines, now_ms, limit
        self._at, self._closed = 0, 0
        self._last: AskedWindows | None = None
        schedule = engines[0].job.schedule
        self._end = (schedule.count if now_ms is None else schedule.due(now_ms)) or 0

    def ask(self) -> list[Asked]:
        """Return the windows for the next two transactions; none at the end."""
        asked: list[Asked] = []
        left = MAX_WINDOWS
        while self._at < len(self._engines) and left > 0:
            engine = self._engines[self._at]
            is_enough = engine.next_index >= self._end or (self._limit is not None and self._closed >= self._limit)
            other = None if self._last is None or len(self._last.windows) > left else self._last
            mine = None if is_enough else engine.ask(self._now_ms, most=left, other=other)
            if mine is not None:
                self._last = mine
                asked.append((engine, mine))
                self._closed += len(mine.windows)
                left -= len(mine.windows)
                if mine.windows[-1].index + 1 < self._end:
                    break  # its next windows come before those of the next key
            self._at, self._closed = self._at + 1, 0
        return asked


def close_together(
    ledgers: JointLedger, asked: Sequence[Asked], published: Sequence[Engine] = ()
) -> list[BaseException]:
    """Charge windows of several engines, draw them, and seal them; returns the errors of those that were not drawn.

    An engine that fails to draw keeps its windows open, and the others go on: what they were charged for is drawn once.
    If all seals fail together, all windows stay open, and another try draws them once more.

    Parameters
    ----------
    ledgers : JointLedger
        Of all engines.
    asked : sequence of (Engine, AskedWindows)
        The caller holds the locks of these engines.
    published : sequence of Engine
        Engines, locked too, all releases of which that were returned to this thread are published; this is noted with
        the charges.

    Privacy
    -------
    As of `WindowCloser`: the charges of all windows are durable before the first draw of any of them, and all seals are
    before any release is returned.

    Source
    ------
    Specification 8.4; ours.
    """
    told = [(engine.ledger, windows) for engine in published if (windows := engine.published())]
    results = ledgers.charge_together([(engine.ledger, mine.requests) for engine, mine in asked], told)
    for engine in published:
        engine.forget_published()
    errors: list[BaseException] = []
    drawn: list[tuple[Engine, AskedWindows, DrawnWindows]] = []
    calls = []
    for (engine, mine), answers in zip(asked, results, strict=True):
        try:
            found, sealed = engine.draw(mine, answers)
        except Exception as error:
            errors.append(error)
        except BaseException as error:  # an interrupt; what was drawn is sealed all the same
            errors.append(error)
            break
        else:
            drawn.append((engine, mine, found))
            calls.append((engine.ledger, sealed, found.states))
    if calls:
        try:
            ledgers.seal_together(calls)
        except BaseException as error:
            for engine, _, _ in drawn:
                engine.forget()
            return [error, *errors]
    for engine, mine, found in drawn:
        engine.follow(mine, found)
    return errors


def acknowledge_together(ledgers: JointLedger, engines: Sequence[Engine]) -> None:
    """Note that all releases of some engines that were returned to this thread are published."""
    engines = [engine for engine in engines if not engine.is_settled]
    with locked(engines):
        published = [(engine.ledger, engine.published()) for engine in engines]
        for engine in engines:
            engine.forget_published()
        calls = [(ledger, windows) for ledger, windows in published if windows]
        if calls:
            ledgers.acknowledge_together(calls)
        for engine in engines:
            engine.leave_if_settled()


def raise_first(errors: list[BaseException]) -> None:
    """Raise the first of some errors, with the others as its notes; an interrupt comes before all others.

    The list is empty then: an error that its own frames still name is only let go, with what it holds open, when
    garbage is collected.
    """
    if not errors:
        return
    first, *others = sorted(errors, key=lambda error: isinstance(error, Exception))
    errors.clear()
    for other in others:
        first.add_note(f"Another key failed too: {type(other).__name__}: {other}")
    try:
        raise first
    finally:
        del first, others
