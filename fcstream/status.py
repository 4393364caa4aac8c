"""``/live``, ``/ready`` and ``/metrics`` over HTTP, for orchestrators and Prometheus."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from .errors import ConfigError
from .metrics import client_is_missing, exposition

if TYPE_CHECKING:
    from .metrics import Watched

LOG = logging.getLogger("fcstream.status")
SLOWEST_BEAT_S = 180.0
"""A service that went round longer ago is stuck: a connector waits for its broker for a minute by default."""
_TEXT = "text/plain; charset=utf-8"
_REQUEST_S = 10.0


def stuck(watched: Sequence[Watched]) -> str:
    """Which streams have not gone round for too long; empty if all live. One that waits out a trouble lives."""
    now = time.monotonic()
    late = {each.stream: now - each.service.beat for each in watched if each.service.trouble is None}
    return "".join(f"{stream}: stuck for {s:.0f} s\n" for stream, s in late.items() if s >= SLOWEST_BEAT_S)


def troubles(watched: Sequence[Watched]) -> str:
    """Which streams are not served now, and why; empty if all are."""
    told = [(each.stream, each.service.trouble) for each in watched]
    return "".join(f"{stream}: {trouble}\n" for stream, trouble in told if trouble is not None)


def answer(watched: Sequence[Watched], path: str, accept: str = "") -> tuple[int, str, bytes]:
    """Status, media type and body for a path."""
    path = path.partition("?")[0]
    if path == "/live":
        text = stuck(watched)
        return 503 if text else 200, _TEXT, (text or "alive\n").encode()
    if path == "/ready":
        text = troubles(watched)
        return 503 if text else 200, _TEXT, (text or "ready\n").encode()
    if path != "/metrics":
        return 404, _TEXT, b"try /live, /ready or /metrics\n"
    try:
        body, kind = exposition(watched, accept)
    except ConfigError as error:
        return 501, _TEXT, f"{error}\n".encode()
    return 200, kind, body


class Status:
    """The server of the three paths; `listen` opens it, moves it, or closes it.

    Parameters
    ----------
    watched : sequence of Watched
        Looked at for every answer.
    """

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched
        self._place: str | None = None
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def listen(self, place: str | None) -> None:
        """Answer at ``HOST:PORT`` from now on; None: nowhere. What cannot be opened leaves everything as it was.

        Raises
        ------
        ConfigError
        """
        if place == self._place:
            return
        server = None if place is None else self._open(place)
        self.close()
        self._place, self._server = place, server
        if server is not None:
            missing = client_is_missing()
            if missing:
                LOG.warning("no /metrics: %s", missing)
            self._thread = threading.Thread(target=server.serve_forever, name="fcstream-status", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Idempotent."""
        server, thread = self._server, self._thread
        self._place, self._server, self._thread = None, None, None
        if server is not None and thread is not None:
            server.shutdown()
            server.server_close()
            thread.join()

    def _open(self, place: str) -> ThreadingHTTPServer:
        watched = self._watched
        host, port = split(place)

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version = "fcstream", ""
            timeout = _REQUEST_S  # one that says nothing holds a thread no longer

            def do_GET(self) -> None:
                code, kind, body = answer(watched, self.path, self.headers.get("Accept", ""))
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a caller that went away

        try:
            return Server((host, port), Handler)
        except OSError as error:
            raise ConfigError(f"cannot be used: {error.strerror}", "service.listen") from None


def split(place: str) -> tuple[str, int]:
    """``HOST:PORT`` in two.

    Raises
    ------
    ConfigError
    """
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"must be HOST:PORT, got {place!r}", "service.listen")
    return host.strip("[]"), int(port)
