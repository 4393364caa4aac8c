"""Keeps long-lived objects out of garbage collection."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _GarbageCollector:
    """Garbage collector of the process, with the number of blocks of code that asked for less collection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual = gc.get_threshold()

    def spare(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._usual = gc.get_threshold()
                gc.freeze()
                gc.set_threshold(50_000, 20, 20)

    def resume(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                gc.set_threshold(*self._usual)
                gc.unfreeze()


_COLLECTOR = _GarbageCollector()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Exempt all present objects from garbage collection inside the block, and collect garbage rarely.

    The compiler's objects are many and stay, and so do the devices behind a gateway. Messages and replies live for a
    moment, and hardly any of them are in reference cycles. The collector would take a quarter of the time that small
    messages need. Several such blocks may overlap.
    """

    _COLLECTOR.spare()
    try:
        yield
    finally:
        _COLLECTOR.resume()
