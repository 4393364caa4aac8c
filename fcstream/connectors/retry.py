"""Patience with lost connections: try again, with pauses that grow and are jittered, for a bounded time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from ..errors import FcstreamError

T = TypeVar("T")
_FIRST_S, _MOST_S = 0.05, 5.0


def pauses() -> Iterator[float]:
    """Seconds to wait before each further try: doubling, up to 5, each between half and the whole of it."""
    pause = _FIRST_S
    while True:
        # The clock's last digits are jitter enough: this decides nothing but a waiting time.
        yield pause * (0.5 + 0.5 * (time.perf_counter_ns() % 1009) / 1009)
        pause = min(2 * pause, _MOST_S)


def with_patience(
    action: Callable[[], T],
    reconnect: Callable[[], object],
    lost: tuple[type[BaseException], ...],
    patience_s: float,
    error: Callable[[BaseException], FcstreamError],
) -> T:
    """Do something with a connection; if it is lost, connect again and repeat, for `patience_s` seconds at most.

    Parameters
    ----------
    action : callable
        Must be safe to repeat.
    reconnect : callable
        May raise `lost` too.
    lost : tuple of exception types
        What a lost connection raises; everything else is passed on.
    patience_s : float
    error : callable
        Makes what is raised in the end from the last of them.
    """
    until = time.monotonic() + patience_s
    waits = pauses()
    try:
        return action()
    except lost as first:
        last: BaseException = first
    while True:
        wait = next(waits)
        if time.monotonic() + wait > until:
            raise error(last) from None
        time.sleep(wait)
        try:
            reconnect()
            return action()
        except lost as again:
            last = again


class Remainder(Generic[T]):
    """What of a group of messages a broker does not have yet. A group that got stuck and is tried again goes on there:
    what was confirmed before is not sent again."""

    def __init__(self) -> None:
        self._group: list[T] = []
        self._waiting: deque[T] = deque()

    def of(self, group: Sequence[T]) -> deque[T]:
        """Those to send, in order; to be taken from the front when they are confirmed."""
        if not self._waiting or self._group != list(group):
            self._group, self._waiting = list(group), deque(group)
        return self._waiting


def close_quietly(*closers: Callable[[], object]) -> None:
    """Let go of what may be broken already."""
    for closer in closers:
        with suppress(Exception):
            closer()
