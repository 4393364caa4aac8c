"""Retries after lost connections: with pauses that grow and are jittered, for a bounded time."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from ..errors import FcstreamError
from ..runtime.waiting import is_over, note_failure, pause

T = TypeVar("T")
_FIRST_S, _MAX_S = 0.05, 5.0


class BrokerLost(Exception):
    """The connection, or what is needed of the broker: trying again may help."""


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further try: doubling, up to 5, each between half of that and all of it."""
    pause = _FIRST_S
    while True:
        # The clock's last digits are random enough, because they decide nothing but a waiting time.
        yield pause * (0.5 + 0.5 * (time.perf_counter_ns() % 1009) / 1009)
        pause = min(2 * pause, _MAX_S)


def with_patience(
    action: Callable[[], T],
    reconnect: Callable[[], object],
    patience_s: float,
    error: Callable[[BaseException], FcstreamError],
) -> T:
    """Do something with a connection; if it is lost, connect again and repeat, for at most `patience_s` seconds.

    It does not repeat once the stream is to stop.

    Parameters
    ----------
    action : callable
        Something that is safe to repeat. Raises `BrokerLost` when the connection is; everything else is passed on.
    reconnect : callable
        May raise `BrokerLost` too.
    patience_s : float
    error : callable
        Makes the error that is raised in the end, from the last one of `lost`.
    """
    until = time.monotonic() + patience_s
    waits = pauses()
    try:
        return action()
    except BrokerLost as first:
        last: BaseException = first
    while True:
        note_failure(str(last))
        wait = next(waits)
        if time.monotonic() + wait > until or is_over():
            raise error(last) from None
        pause(wait)
        try:
            reconnect()
            return action()
        except BrokerLost as again:
            last = again


@contextmanager
def deadline(descriptor: int, seconds: float) -> Iterator[threading.Event]:
    """Shut a connection down if the block takes longer, whatever its client waits for.

    A client's own limit starts again with every byte that comes, and a server's limit does not help if its responses
    are lost. Yields an event that is set when time is over; whatever the block raises is a `TimeoutError` then.
    """
    is_over = threading.Event()
    # A descriptor of its own, because the connection's could be closed, and be another file's, when time is over.
    with socket.socket(fileno=os.dup(descriptor)) as twin:

        def cut() -> None:
            is_over.set()
            with suppress(OSError):
                twin.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield is_over
        except Exception:
            if is_over.is_set():
                raise TimeoutError(f"no answer within {seconds:g} s") from None
            raise
        finally:
            timer.cancel()
            timer.join()


class PendingMessages(Generic[T]):
    """The messages of a group that a broker does not have yet.

    A group that failed and is tried again continues there: what was confirmed before is not sent again.
    """

    def __init__(self) -> None:
        self._group: list[T] = []
        self._waiting: deque[T] = deque()

    def of(self, group: Sequence[T]) -> deque[T]:
        """Return the messages to send, in order; the caller removes them from the front when they are confirmed."""
        if not self._waiting or self._group != list(group):
            self._group, self._waiting = list(group), deque(group)
        return self._waiting

    def send(self, group: Sequence[T], action: Callable[[T], object]) -> None:
        """Hand those to send to `action`, one by one; what it returns from is confirmed."""
        waiting = self.of(group)
        while waiting:
            action(waiting[0])
            waiting.popleft()


def close_quietly(*closers: Callable[[], object]) -> None:
    """Close something that may be broken already, and ignore its errors."""
    for closer in closers:
        with suppress(Exception):
            closer()
