"""Releases as requests to a web server: one POST of JSON for each, at least once.

The address is called as it stands; only options that begin with ``fcstream.`` are removed from it, since they are meant
for this sink.

Every request has a header ``Idempotency-Key: STREAM/OPEN_MS/CLOSE_MS`` (the stream's name percent-encoded; for an array
its first opening, last closing and a hash of its bytes). The same key always comes with the same bytes, so a server
that knows the key replies 2xx, or 409, and both count as written. 408, 425, 429, 5xx and lost connections are tried
again, after ``Retry-After`` if it is given: up to an hour, and later writes wait for it too. Any other status is an
error at once, redirections too. A write that is repeated after an error continues with what the server does not have.
Messages never hold the path, the query or a response's body, because the address of many a webhook is its password.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import http.client
import re
import ssl
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from ...errors import ConfigError, SinkError
from ...releases.base import Release
from ...runtime import waiting
from ..retry import PendingMessages, close_quietly, deadline, pauses
from ..urls import Address, UrlOption

_OURS = "fcstream."
_BUSY = {408, 425, 429}
_READ_BYTES = 1 << 16  # of a response's body
_NOT_YOURS = {"idempotency-key", "content-length", "transfer-encoding", "connection"}
_INTERIM = 100  # interim responses before the final one
_PAUSE_S = 3600.0  # longest pause that a server may ask for, so that its mistake does not stop a stream for years
_LOST = (OSError, http.client.HTTPException, ValueError)  # http.client's parsers may raise ValueError
_BEARER = UrlOption("fcstream.bearer", "Token for `Authorization: Bearer`; user and password are sent as `Basic`.", "")
_HEADER = UrlOption("fcstream.header.NAME", "A further header.", "")
_BATCH = UrlOption("fcstream.batch", "`yes`: one POST of an array for all releases of a write.", "no")
_TIMEOUT = UrlOption("fcstream.timeout", "Seconds that connecting, and then a request, may take.", 10)
_PATIENCE = UrlOption("fcstream.patience", "Seconds for which the server may be away or busy.", 60)
_CA = UrlOption("fcstream.ca", "File (PEM) of the certificates to trust.", otherwise="the system's")


class _Busy(Exception):
    """The server asks to be called again later."""


class _FinalResponse(http.client.HTTPResponse):
    """A final response. http.client skips status 100 only, so after 102 or 103 the next request would read the real
    response.
    """

    def begin(self) -> None:
        for _ in range(_INTERIM):
            super().begin()
            if not 100 <= self.status < 200 or self.status == http.client.SWITCHING_PROTOCOLS:
                return
            self.headers = None  # type: ignore[assignment]  # makes `begin` read on
        raise http.client.BadStatusLine("the server sent interim responses only")


class WebhookSink:
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
        self._address_key = address.key
        self._patience_s = address.take_number(_PATIENCE, patience_s)
        self._timeout_s = address.take_number(_TIMEOUT)
        batch = address.take(_BATCH)
        if batch not in ("yes", "no"):
            raise ConfigError(f"must have 'yes' or 'no' as `fcstream.batch`, got {batch!r}", address.key)
        self._is_batch = batch == "yes"
        ca = address.take(_CA, "")
        self._headers = _headers(address)
        self._target = _target(address)
        name, port = address.host(443 if address.scheme == "https" else 80)
        shown = f"[{name}]" if ":" in name else name
        self._location = f"{address.scheme}://{shown}" + (f":{address.hosts[0][1]}" if address.hosts[0][1] else "")
        if len(address.hosts) != 1:
            raise ConfigError(f"must name one host, got {self._location}, ...", address.key)
        self._connection = (
            http.client.HTTPSConnection(name, port, timeout=self._timeout_s, context=_trust(ca, address.key))
            if address.scheme == "https"
            else http.client.HTTPConnection(name, port, timeout=self._timeout_s)
        )
        self._connection.response_class = _FinalResponse
        self._not_before = 0.0  # until when the server asked for a pause
        self._remainder: PendingMessages[tuple[bytes, str]] = PendingMessages()

    def write(self, releases: Sequence[Release]) -> None:
        until = time.monotonic() + self._patience_s
        self._remainder.send(self._requests(releases), lambda request: self._send(*request, until))

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        return list(releases)

    def last(self) -> Release | None:
        return None

    def close(self) -> None:
        close_quietly(self._connection.close)

    def _requests(self, releases: Sequence[Release]) -> list[tuple[bytes, str]]:
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

    def _send(self, body: bytes, key: str, until: float) -> None:
        """Post until the server has accepted the body, or patience has ended."""
        waits = pauses()
        pause, why = 0.0, "the pause that the server asked for is not over"
        while True:
            wait = max(pause, self._not_before - time.monotonic())
            if wait > 0 and (time.monotonic() + wait > until or waiting.is_over()):
                raise SinkError(
                    f"{self._location} did not take a release within {self._patience_s:g} s: {why}; check the server: "
                    "what was sealed is in the ledger and is written again"
                )
            waiting.pause(max(0.0, wait))
            try:
                return self._post(body, key)
            except _LOST as error:
                self.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise SinkError(
                        f"{self._location} must have a certificate that is trusted: {error.verify_message}; name its "
                        "authority's as `fcstream.ca`"
                    ) from None
                pause, why = next(waits), error_text(error)
            except _Busy as busy:
                pause, why = next(waits), str(busy)
            waiting.note_failure(why)

    def _post(self, body: bytes, key: str) -> None:
        """Send one request and read the response's status."""
        if self._connection.sock is None:
            self._connection.connect()
        with deadline(self._connection.sock.fileno(), self._timeout_s) as is_over:
            self._connection.request("POST", self._target, body, {**self._headers, "Idempotency-Key": key})
            answer = self._connection.getresponse()
            if is_over.is_set():  # http.client takes a truncated head for a whole one
                raise TimeoutError
            self._drain(answer)
        if is_over.is_set():
            self.close()
        status = answer.status
        if status < 200:  # a switch of protocols that nobody asked for
            raise http.client.BadStatusLine(str(status))
        if 200 <= status < 300 or status == 409:
            return
        if status in _BUSY or status >= 500:
            asked = min(_retry_after(answer.getheader("Retry-After", "")), _PAUSE_S)
            self._not_before = time.monotonic() + asked
            raise _Busy(f"status {status}" + (f", which asks for a pause of {asked:.0f} s" if asked else ""))
        moved = ": give the address it moved to" if 300 <= status < 400 else ""
        raise SinkError(
            f"{self._location} refuses a release with status {status}; correct `{self._address_key}` or the server"
            f"{moved}"
        )

    def _drain(self, answer: http.client.HTTPResponse) -> None:
        """Read a response's body, so that the connection can be used again; if its length is not plain, close the
        connection.

        Chunked bodies are not read: http.client accepts negative sizes, and reads without bound after -1.
        """
        sizes = answer.headers.get_all("Content-Length") or []
        is_plain = len(sizes) == 1 and re.fullmatch(r"[0-9]{1,5}", sizes[0]) and int(sizes[0]) <= _READ_BYTES
        is_empty = answer.status in (204, 304)
        with suppress(*_LOST):  # the status, which decides, has already been read
            if (is_plain or is_empty) and "Transfer-Encoding" not in answer.headers:
                answer.read()
                return
        answer.close()
        self.close()


def error_text(error: BaseException) -> str:
    """Describe a lost connection in a few words, without quoting the server."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or type(error).__name__


def _retry_after(text: str) -> float:
    """Read the seconds of ``Retry-After``, a number or a date; 0 for anything else."""
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _safe_text(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _headers(address: Address) -> dict[str, str]:
    """Make the headers of every request from the options that begin with ``fcstream.``."""
    headers = {"Content-Type": "application/json", "User-Agent": "fcstream"}
    bearer = address.take(_BEARER)
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    elif address.user is not None:
        login = f"{address.user}:{address.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    for option in [name for name in address.options if name.startswith(_OURS)]:
        name, value = option.removeprefix(f"{_OURS}header."), address.take(option)
        if name == option or name.lower() in _NOT_YOURS:
            raise ConfigError(f"has an unknown option {option!r}", address.key)
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not re.fullmatch(r"[\x20-\x7e]*", value):
            raise ConfigError(f"must have visible ASCII as a header's name and value: {name!r}", address.key)
        headers[name] = value
    if not re.fullmatch(r"[\x20-\x7e]*", headers.get("Authorization", "")):
        raise ConfigError("must have visible ASCII as `fcstream.bearer`", address.key)
    return headers


def _trust(ca: str, key: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except OSError as error:  # also raised for an unreadable certificate
        why = error.strerror or type(error).__name__
        raise ConfigError(f"must have a file of certificates as `fcstream.ca`, got {ca}: {why}", key) from None


def _target(address: Address) -> str:
    """Return path and query as they were given, without the options that begin with ``fcstream.``."""
    path, _, query = address.target.partition("?")
    pairs = [pair for pair in query.split("&") if pair]
    others = [pair for pair in pairs if not urllib.parse.unquote_plus(pair).startswith(_OURS)]
    target = (path or "/") + ("?" + "&".join(others) if others else "")
    return re.sub(r"[^\x21-\x7e]+", lambda found: _safe_text(found[0]), target)
