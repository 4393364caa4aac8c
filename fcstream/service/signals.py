"""Signals of the operating system: SIGTERM and SIGINT end the service, SIGHUP makes it read its configuration again."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

from .supervisor import Supervisor

LOG = logging.getLogger("fcstream.service")
_LAST_WAIT_S = {"source": 5.0, "sink": 5.0, "ledger": 5.0}
"""Seconds that a process which is to end waits for a response, by what it waits for."""


@contextmanager
def signals(
    services: Sequence[Supervisor],
    reload: Callable[[], object] | None = None,
    on_stop: Callable[[], object] = lambda: None,
    is_compiling: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Handle signals: SIGTERM and SIGINT finish the present step, a second SIGINT interrupts it; SIGHUP calls `reload`.

    A step that waits for an external system gets some seconds more (`_end_in_time`).

    The handlers only note the signal. What it asks for is done on a thread, because a lock that the main thread holds
    when it is interrupted would never be released.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: SimpleQueue[int] = SimpleQueue()
    over = threading.Event()

    def note(number: int, _frame: object) -> None:
        if number == signal.SIGINT and all(service.stopping.is_set() for service in services):
            raise KeyboardInterrupt
        came.put(number)

    def act() -> None:
        while number := came.get():
            if number != signal.SIGHUP:
                on_stop()
                for service in services:
                    service.stop()
                threading.Thread(target=_end_in_time, args=(services, over, is_compiling), daemon=True).start()
            elif reload is not None:
                try:
                    reload()
                except Exception as error:  # without this thread, nothing would stop the service
                    LOG.error("the configuration could not be read again (%s)", type(error).__name__)

    numbers = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if reload is not None else [])]
    worker = threading.Thread(target=act, name="fcstream-signals", daemon=True)
    worker.start()
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(0)
        worker.join()


def _end_in_time(services: Sequence[Supervisor], over: threading.Event, is_compiling: Callable[[], bool]) -> None:
    """End the process once everything left of it waits for external systems that do not respond, or compiles.

    What must not be lost is in the broker, the ledger or the spool. Windows that are being released are not
    interrupted.
    """
    stopped = time.monotonic()
    while not over.wait(0.1):
        has_ended = all(service.has_ended for service in services)
        if has_ended and not is_compiling():
            continue  # the main thread ends by itself, with the exit code of the error that ended the services
        waits = [(service.has_ended, service.external_calls.longest(stopped)) for service in services]
        if not all(has_ended or (wait is not None and wait[1] > _LAST_WAIT_S[wait[0]]) for has_ended, wait in waits):
            continue
        for _, wait in waits:
            if wait is not None:
                LOG.warning("ended without waiting any longer for: %s", wait[0])
        sys.stderr.flush()
        os._exit(0)
