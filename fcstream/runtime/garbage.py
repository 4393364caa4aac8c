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
        self._users = self._pauses = 0
        self._usual, self._is_on = gc.get_threshold(), True

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

    def pause(self) -> None:
        with self._lock:
            self._pauses += 1
            if self._pauses == 1:
                self._is_on = gc.isenabled()
                gc.disable()

    def go_on(self) -> None:
        with self._lock:
            self._pauses -= 1
            if self._pauses == 0 and self._is_on:
                gc.enable()


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


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Collect no garbage inside the block, which must be short.

    For work that makes many objects which all live to its end: the collector would look at them again and again, and
    whenever they are a quarter of all objects, at all others too. Several such blocks may overlap.
    """

    _COLLECTOR.pause()
    try:
        yield
    finally:
        _COLLECTOR.go_on()
