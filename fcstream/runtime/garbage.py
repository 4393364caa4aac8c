"""Keeps long-lived objects out of garbage collection."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _GarbageCollector:
    """The process's, with those who want it to leave them alone."""

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
    """What exists now is not searched for garbage until the end, and garbage is looked for seldom.

    A compiler's graph of objects is large and stays, and so do devices behind a gateway; messages and answers are
    objects for a moment, and next to none of them lie in cycles. The search would take a quarter of the time that small
    messages need. May overlap.
    """
    _COLLECTOR.spare()
    try:
        yield
    finally:
        _COLLECTOR.resume()
