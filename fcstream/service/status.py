"""``/live``, ``/ready`` and ``/metrics`` over HTTP, for orchestrators and Prometheus; the live page, for people."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError, missing_package, needs_package
from ..runtime.http_hosts import NamesOnly, ServedNames
from ..runtime.http_server import EVENTS, Limits, Server
from .metrics import StreamStatus, client_is_missing, exposition
from .page.live import LivePage
from .page.site import EVENTS_PATH, HEADERS, asset, events, wanted

LOG = logging.getLogger("fcstream.service")
SLOWEST_BEAT_S = 180.0
"""Age in seconds of the last step from which a service counts as stuck; a connector waits a minute for its broker."""
_TEXT = "text/plain; charset=utf-8"
_LIMITS = Limits(connections=64, per_peer=32, body_bytes=0, head_s=5, body_s=5, answer_s=10)


def stuck(watched: Sequence[StreamStatus]) -> str:
    """List the streams whose last step is too long ago; empty if all are live. A stream that waits out an error is
    live.
    """
    now = time.monotonic()
    late = {each.stream: now - each.service.beat for each in watched if each.service.must_beat}
    return "".join(f"{stream}: stuck for {s:.0f} s\n" for stream, s in late.items() if s >= SLOWEST_BEAT_S)


def troubles(watched: Sequence[StreamStatus]) -> str:
    """List the streams that do not work now, and why; empty if all do."""
    states = [(each.stream, each.service.trouble) for each in watched]
    return "".join(f"{stream}: {trouble}\n" for stream, trouble in states if trouble is not None)


def standing_by(watched: Sequence[StreamStatus]) -> str:
    """List the streams that another process serves, which is not an error."""
    states = [(each.stream, each.service.standby) for each in watched]
    return "".join(f"{stream}: standing by: {why}\n" for stream, why in states if why is not None)


def warnings(watched: Sequence[StreamStatus]) -> str:
    """List what is wrong with streams that work nevertheless, one line each."""
    return "".join(
        f"{each.stream}: warning: {text}\n" for each in watched for _, text in sorted(each.service.warnings.items())
    )


def answer(watched: Sequence[StreamStatus], path: str, accept: str = "") -> tuple[int, str, bytes]:
    """Return status, media type and body for a path."""
    path = path.partition("?")[0]
    if path == "/live":
        text = stuck(watched)
        return 503 if text else 200, _TEXT, (text or "alive\n").encode()
    if path == "/ready":
        text = troubles(watched)
        reply = (text or "ready\n") + standing_by(watched) + warnings(watched)
        return 503 if text else 200, _TEXT, reply.encode()
    if path != "/metrics":
        return 404, _TEXT, b"try /live, /ready or /metrics; / is a page where service.page = true\n"
    try:
        body, kind = exposition(watched, accept)
    except ConfigError as error:
        return 501, _TEXT, f"{error}\n".encode()
    return 200, kind, body


class StatusServer:
    """Server of the three paths and the page; `listen` opens it, moves it, or closes it.

    Parameters
    ----------
    watched : sequence of StreamStatus
        Read for every response.

    Attributes
    ----------
    page : LivePage
    """

    def __init__(self, watched: Sequence[StreamStatus]) -> None:
        self._watched = watched
        self.page = LivePage(watched)
        self._address: tuple[str, tuple[str, ...]] | None = None
        self._server: Server | None = None

    def listen(self, address: str | None, hosts: Sequence[str] = ()) -> None:
        """Serve at ``HOST:PORT`` from now on, or (None) nowhere. If that fails, nothing changes.

        Requests for another name than an address, this machine's, HOST or one of `hosts` are answered by 421.

        Raises
        ------
        ConfigError
        """
        asked = None if address is None else (address, tuple(hosts))
        if asked == self._address:
            return
        server = None
        if address is not None:
            server = self._open(address, hosts)
        self.close()
        self._address, self._server = asked, server
        if server is not None:
            missing = client_is_missing()
            if missing:
                LOG.warning("no /metrics: %s", missing)
            server.start()

    def close(self) -> None:
        """Close the server; may be called again."""
        server, self._address, self._server = self._server, None, None
        if server is not None:
            server.close()

    def _open(self, address: str, hosts: Sequence[str]) -> Server:
        host, port = split_address(address)
        app, screen = _app(self._watched, self.page), NamesOnly(ServedNames(host, hosts), "service.hosts")
        return Server(app, host, port, _LIMITS, setting="service.listen", extra="service", screen=screen)


def server_is_missing() -> ConfigError | None:
    """Return the error for a server that cannot be opened because a package is missing; None if it can."""
    for module in ("starlette", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            return missing_package(module, "service", "service.listen")
    return None


def _app(watched: Sequence[StreamStatus], page: LivePage) -> Any:
    with needs_package("starlette", "service", "service.listen"):
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response, StreamingResponse
        from starlette.routing import Route

    async def tell(request: Request) -> Response:  # on the loop: however many ask, the service waits for one of them
        if page.is_on:
            found = asset(request.url.path)
            if found is not None:
                return Response(found.body, 200, {**HEADERS, "Content-Type": found.media_type})
            if request.url.path == EVENTS_PATH:
                told = events(page, *wanted(request.query_params)) if request.method == "GET" else iter(())
                return StreamingResponse(
                    told, 200, {**HEADERS, "Content-Type": EVENTS.decode(), "X-Accel-Buffering": "no"}
                )
        code, kind, body = answer(watched, request.url.path, request.headers.get("Accept", ""))
        return Response(body, code, {"Content-Type": kind})

    return Starlette(routes=[Route("/{path:path}", tell)])


def split_address(address: str) -> tuple[str, int]:
    """Split ``HOST:PORT`` in two.

    Raises
    ------
    ConfigError
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError("must be HOST:PORT", "service.listen", got=address)
    return host.strip("[]"), int(port)
