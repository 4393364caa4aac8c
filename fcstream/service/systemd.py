"""What is reported to systemd (``Type=notify``): ready, reloading, stopping, and that the service is still alive.

The protocol is a datagram of ``NAME=value`` lines to the socket that NOTIFY_SOCKET names. Without it nothing is sent.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

_UP_S, _SLOWEST_S, _SEND_S = 0.1, 10.0, 1.0


class SystemdNotifier:
    """Sends notifications to the service manager.

    Parameters
    ----------
    environment : mapping, optional
        Holds NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; the process's environment by default.

    Attributes
    ----------
    watchdog_s : float or None
        The manager expects a notification within so many seconds; None if it expects none.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        values = os.environ if environment is None else environment
        name = values.get("NOTIFY_SOCKET", "")
        # '@' stands for the zero byte of Linux's abstract names.
        self._address = "\0" + name[1:] if name.startswith("@") else name if name.startswith("/") else ""
        wait, ours = values.get("WATCHDOG_USEC", ""), values.get("WATCHDOG_PID", str(os.getpid()))
        is_asked = self._address and wait.isdigit() and int(wait) and ours == str(os.getpid())
        self.watchdog_s = int(wait) / 1e6 if is_asked else None

    def ready(self) -> None:
        """Report that the service has started, or reloaded."""
        self.send("READY=1")

    def reloading(self) -> None:
        self.send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self.send("STOPPING=1")

    def send(self, text: str) -> None:
        """Send a datagram; errors are ignored, because a manager that does not listen must not stop the service."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.settimeout(_SEND_S)
            line.sendto(text.encode(), self._address)

    @contextmanager
    def watching(self, is_up: Callable[[], bool], is_alive: Callable[[], bool]) -> Iterator[None]:
        """Report, while the block runs, that the service is ready once `is_up`, and that it is alive as long as
        `is_alive`.

        A service whose broker is unreachable at its start is up: it waits, and restarting it would not help.
        """
        if not self._address:
            yield
            return
        over = threading.Event()

        def watch() -> None:
            while not is_up():
                if over.wait(_UP_S):
                    return
            self.ready()
            while self.watchdog_s is not None:
                if is_alive():
                    self.send("WATCHDOG=1")
                if over.wait(min(self.watchdog_s / 3, _SLOWEST_S)):
                    return

        thread = threading.Thread(target=watch, name="fcstream-notify", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
