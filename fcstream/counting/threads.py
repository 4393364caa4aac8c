"""Threads that share long sweeps over tiles.

Numba's own threads are not used: they abort the process if two threads use them at once, or after a fork.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ..errors import ConfigError

_lock = threading.Lock()
_local = threading.local()
_wanted: int | None = None
_executor: tuple[int, ThreadPoolExecutor] | None = None  # with the number of the process that made it


def threads() -> int:
    """Return how many threads a long sweep may use.

    That is the number given to `set_threads`, else FCSTREAM_THREADS, else the processors that this process may use.
    """
    if _wanted is not None:
        return _wanted
    given = os.environ.get("FCSTREAM_THREADS", "")
    if given:
        if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= 1024:
            raise ConfigError("must be an integer in [1, 1024]", "FCSTREAM_THREADS", got=given)
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(count: int | None) -> None:
    """Let long sweeps of this process use `count` threads, in [1, 1024]; None restores the default."""
    global _wanted, _executor
    if count is not None and not 1 <= count <= 1024:
        raise ConfigError("must be in [1, 1024]", "count", got=count)
    with _lock:
        _wanted = count
        if _executor is not None and _executor[0] == os.getpid():
            _executor[1].shutdown(wait=False)
        _executor = None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep the sweeps that this thread starts inside the block to this one thread."""
    before = getattr(_local, "alone", False)
    _local.alone = True
    try:
        yield
    finally:
        _local.alone = before


def helpers(shares: float) -> int:
    """Return how many threads beside the caller's own should share work that pays for `shares` threads in all."""
    if shares < 2 or getattr(_local, "alone", False):
        return 0
    return max(0, min(threads(), int(shares)) - 1)


def run(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, the first one in this thread, and wait until all have ended, even if one raises."""
    futures: list[Future[None]] = []
    try:
        try:
            for task in tasks[1:]:
                futures.append(_pool().submit(task))
        except RuntimeError:
            pass  # the interpreter is shutting down, or the pool was replaced: the other tasks run in this thread
        for task in (tasks[0], *tasks[1 + len(futures) :]):
            task()
    finally:
        for future in futures:
            future.exception()
    for future in futures:
        future.result()


def share(pieces: Iterable[Callable[[int], None]], hands: int) -> None:
    """Run all pieces of work in `hands` threads, each of which takes the next piece whenever it is free, and wait.

    A piece is called with the number of its thread, in [0, hands); this thread's is 0.
    """
    waiting = deque(pieces)

    def work(hand: int) -> None:
        while True:
            try:
                piece = waiting.popleft()
            except IndexError:
                return
            piece(hand)

    run([functools.partial(work, hand) for hand in range(hands)])


def _pool() -> ThreadPoolExecutor:
    """Return this process's executor; after a fork the child makes its own."""
    global _executor
    with _lock:
        if _executor is None or _executor[0] != os.getpid():
            _executor = os.getpid(), ThreadPoolExecutor(max(1, threads() - 1), "fcstream-sweep")
        return _executor[1]


def _forget() -> None:
    """Make a new lock and executor in a forked child, since the parent's threads do not exist there."""

    global _lock, _executor
    _lock = threading.Lock()
    _executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
