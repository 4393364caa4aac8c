"""Asking devices over HTTP: an ASGI application for a gateway, and the analyst's side.

``POST /ask`` takes a message and returns the reply. ``GET /live`` says whether the process works: 503 if its journal
cannot be written and it must be restarted.
"""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from ...connectors.registry import speaks
from ...connectors.urls import mask
from ...errors import ConfigError, Shown, needs_package
from ...runtime.http_hosts import NamesOnly, ServedNames
from ...runtime.http_server import Limits, Server
from .gateway import LARGEST, LARGEST_REPLY, Gateway

_AT_ONCE = 16


_LIMITS = Limits(
    connections=128, per_peer=64, body_bytes=LARGEST, held_bytes=8 * LARGEST, head_s=10, body_s=20, answer_s=60
)


def app(gateway: Gateway) -> Any:
    """A Starlette application that answers for a gateway's devices; `open_server` limits what its clients can occupy.

    Privacy
    -------
    Replies are those of `Gateway`. Status codes are functions of the message: 200 with a reply or a refusal, 413 for
    one that is too long. 500 means that the journal cannot be written; then no reply leaves any more.
    """
    with needs_package("starlette", "local", "devices.listen"):
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route
    alone = asyncio.Lock()  # a decoded message takes much memory, so one at a time

    async def ask(request: Request) -> Response:
        body = await request.body()
        async with alone:
            reply = await run_in_threadpool(gateway.answer, body)
        return Response(reply, media_type="application/json")

    async def live(_request: Request) -> Response:
        return PlainTextResponse("failed", 503) if gateway.failed else PlainTextResponse("live")

    return Starlette(routes=[Route("/ask", ask, methods=["POST"]), Route("/live", live)])


def open_server(gateway: Gateway, host: str, port: int, hosts: Sequence[str] = ()) -> Server:
    """A server that listens for the application; `Server.start` makes it answer.

    Requests for another name than an address, this machine's, `host` or one of `hosts` are answered by 421: questions
    of a page in a browser would cost the devices their budgets.

    Raises
    ------
    ConfigError
        The address cannot be used, or a package is missing.
    """
    screen = NamesOnly(ServedNames(host, hosts), "devices.hosts")
    return Server(app(gateway), host, port, _LIMITS, setting="devices.listen", extra="local", screen=screen)


def serve(gateway: Gateway, server: Server, stop: threading.Event) -> None:
    """Answer until `stop` is set.

    Raises
    ------
    LedgerError
        The journal could not be written: devices do not answer any more.
    SourceError
        The server has ended by itself.
    """
    server.start()
    try:
        while not server.wait(stop, 0.2):
            if gateway.failed is not None:
                raise gateway.failed
    finally:
        server.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a gateway must not make the client send its token to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


class HttpTransport:
    """The analyst's side over HTTP; a gateway is the URL of its application, ``http://HOST:PORT``.

    Parameters
    ----------
    token : str, optional
        Sent as a bearer token, for a proxy before the gateways that asks for one.
    """

    def __init__(self, token: str | None = None) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, "fcstream-ask")
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def exchange(self, messages: Mapping[str, tuple[str, bytes]], timeout_s: float) -> dict[str, bytes]:
        for url, _ in messages.values():
            if not speaks(url, "http"):
                raise ConfigError("must be http:// or https://", "analyst.devices", got=Shown(mask(url)))
        sent = {self._pool.submit(self._post, url, body, timeout_s): batch for batch, (url, body) in messages.items()}
        done, late = wait(sent, timeout_s * max(1, -(-len(sent) // _AT_ONCE)) + 1)
        for one in late:
            one.cancel()
        replies = {sent[one]: one.result() for one in done}
        return {batch: reply for batch, reply in replies.items() if reply is not None}

    def _post(self, url: str, body: bytes, timeout_s: float) -> bytes | None:
        request = urllib.request.Request(url.rstrip("/") + "/ask", body, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                data: bytes = response.read(LARGEST_REPLY + 1)
                return data
        except (OSError, urllib.error.URLError, ValueError):
            return None  # it counts as silent, and is asked again

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
