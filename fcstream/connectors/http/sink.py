"""Releases as requests to a web server: one POST of JSON for each, at least once.

The address is called as it stands; only options that begin with ``fcstream.`` are removed from it, since they are meant
for this sink.

Every request has a header ``Idempotency-Key: STREAM/OPEN_MS/CLOSE_MS`` (the stream's name percent-encoded; for an array
its first opening, last closing and a hash of its bytes). The same key always comes with the same bytes, so a server
that knows the key replies 2xx, or 409, and both count as written; for others see `fcstream.connectors.posting`. A write
that is repeated after an error continues with what the server does not have.
"""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from collections.abc import Sequence
from typing import ClassVar

from ...errors import ConfigError
from ...releases.base import Release
from ..posting import Poster, PostingSink, WebServer, authorization, check_header
from ..urls import Address, UrlOption

_OURS = "fcstream."
_NOT_YOURS = {"idempotency-key", "content-length", "transfer-encoding", "connection"}
_BEARER = UrlOption("fcstream.bearer", "Token for `Authorization: Bearer`; user and password are sent as `Basic`.", "")
_HEADER = UrlOption("fcstream.header.NAME", "A further header.", "")
_BATCH = UrlOption("fcstream.batch", "`yes`: one POST of an array for all releases of a write.", "no")
_TIMEOUT = UrlOption("fcstream.timeout", "Seconds that connecting, and then a request, may take.", 10)
_PATIENCE = UrlOption("fcstream.patience", "Seconds for which the server may be away or busy.", 60)
_CA = UrlOption("fcstream.ca", "File (PEM) of the certificates to trust.", otherwise="the system's")


class WebhookSink(PostingSink[tuple[bytes, str]]):
    """Posts each release as JSON; see the module for the address and for what counts as written.

    Parameters
    ----------
    address : Address
    patience_s : float
        Seconds that the server may be unreachable or busy.

    Raises
    ------
    ConfigError
        The server is first called by `write`.
    """

    url: ClassVar = "https://[user:password@]host[:port]/path?its=own&query"
    url_options: ClassVar = (_BEARER, _HEADER, _BATCH, _TIMEOUT, _PATIENCE, _CA)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        batch = address.take(_BATCH)
        if batch not in ("yes", "no"):
            raise ConfigError("must have 'yes' or 'no' as `fcstream.batch`", address.key, got=batch)
        self._is_batch = batch == "yes"
        server = WebServer(
            address,
            address.scheme == "https",
            443 if address.scheme == "https" else 80,
            _target(address),
            address.take_number(_TIMEOUT),
            address.take_number(_PATIENCE, patience_s),
            address.take(_CA, ""),
            _CA.name,
        )
        super().__init__(Poster(server, _headers(address), accepted=(409,)))

    def messages(self, releases: Sequence[Release]) -> list[tuple[bytes, str]]:
        """Make the (body, idempotency key) of each request."""
        if self._is_batch and releases:
            body = b"[" + b",".join(release.to_bytes() for release in releases) + b"]"
            first, last = releases[0], releases[-1]
            digest = hashlib.sha256(body).hexdigest()[:16]
            return [(body, f"{_safe_text(first.stream)}/{first.window_open_ms}/{last.window_close_ms}/{digest}")]
        return [
            (release.to_bytes(), f"{_safe_text(release.series)}/{release.window_open_ms}/{release.window_close_ms}")
            for release in releases
        ]

    def post(self, message: tuple[bytes, str], until: float) -> None:
        body, key = message
        self.poster.post(body, until, {"Idempotency-Key": key})


def _safe_text(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _headers(address: Address) -> dict[str, str]:
    """Make the headers of every request from the options that begin with ``fcstream.``."""
    headers = {"Content-Type": "application/json", "User-Agent": "fcstream"}
    headers |= authorization(address, address.take(_BEARER), _BEARER.name)
    for option in [name for name in address.options if name.startswith(_OURS)]:
        name, value = option.removeprefix(f"{_OURS}header."), address.take(option)
        if name == option or name.lower() in _NOT_YOURS:
            raise ConfigError(f"has an unknown option {option!r}", address.key)
        check_header(name, value, address)
        headers[name] = value
    return headers


def _target(address: Address) -> str:
    """Return path and query as they were given, without the options that begin with ``fcstream.``."""
    path, _, query = address.target.partition("?")
    pairs = [pair for pair in query.split("&") if pair]
    others = [pair for pair in pairs if not urllib.parse.unquote_plus(pair).startswith(_OURS)]
    target = (path or "/") + ("?" + "&".join(others) if others else "")
    return re.sub(r"[^\x21-\x7e]+", lambda found: _safe_text(found[0]), target)
