"""POST requests to a web server, tried again until it has accepted them: what sinks over HTTP have in common.

2xx counts as accepted. 408, 425, 429, 5xx and lost connections are tried again, after ``Retry-After`` if it is given:
up to an hour, and later requests wait for it too. Any other status is an error at once, redirections too. Messages
never hold the path, the query or a response's body, because the address of many a webhook is its password.
"""

from __future__ import annotations

import base64
import email.utils
import http.client
import re
import ssl
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from ..errors import ConfigError, Shown, SinkError
from ..releases.base import Release
from ..runtime import waiting
from .retry import PendingMessages, close_quietly, deadline, pauses
from .sinks import Sink
from .urls import Address, UrlOption

TIMEOUT = UrlOption("timeout", "Seconds that connecting, and then a request, may take.", 10)
CA = UrlOption("ca", "File (PEM) of the certificates to trust.", otherwise="the system's")
_BUSY = {408, 425, 429}
_READ_BYTES = 1 << 16  # of a response's body
_INTERIM = 100  # interim responses before the final one
_PAUSE_S = 3600.0  # longest pause that a server may ask for, so that its mistake does not stop a stream for years
_LOST = (OSError, http.client.HTTPException, ValueError)  # http.client's parsers may raise ValueError


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


class WebServer(NamedTuple):
    """A web server, and how long it may take.

    Attributes
    ----------
    address : Address
        Of one host.
    is_tls : bool
    port : int
        Where none is given.
    target : str
        Path and query of every request.
    timeout_s, patience_s : float
        Seconds that connecting, and then a request, may take; that the server may be unreachable or busy.
    ca : str
        File of the certificates to trust; empty for the system's.
    ca_option : str
        The option of the address that names it.
    """

    address: Address
    is_tls: bool
    port: int
    target: str
    timeout_s: float
    patience_s: float
    ca: str = ""
    ca_option: str = "ca"


class Poster:
    """Sends requests to one server over one connection, which is made by the first request.

    Parameters
    ----------
    server : WebServer
    headers : mapping of str to str
        Of every request.
    accepted : collection of int
        Statuses that count as accepted besides 2xx.

    Attributes
    ----------
    location : str
        The server as messages show it.

    Raises
    ------
    ConfigError
    """

    def __init__(self, server: WebServer, headers: Mapping[str, str], accepted: Collection[int] = ()) -> None:
        self._server, self._headers, self._accepted = server, headers, accepted
        address = server.address
        name, port = address.host(server.port)
        shown = f"[{name}]" if ":" in name else name
        self.location = f"{address.scheme}://{shown}" + (f":{address.hosts[0][1]}" if address.hosts[0][1] else "")
        if len(address.hosts) != 1 or not name:
            raise ConfigError("must name one host", address.key, got=Shown(self.location))
        timeout_s = server.timeout_s
        self._connection = (
            http.client.HTTPSConnection(name, port, timeout=timeout_s, context=_trust(server))
            if server.is_tls
            else http.client.HTTPConnection(name, port, timeout=timeout_s)
        )
        self._connection.response_class = _FinalResponse
        self._not_before = 0.0  # until when the server asked for a pause

    def until(self) -> float:
        """Return when patience with requests that are sent from now on ends, by `time.monotonic`."""
        return time.monotonic() + self._server.patience_s

    def connect(self) -> None:
        """Make the connection; raises OSError."""
        self._connection.connect()

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        close_quietly(self._connection.close)

    def post(self, body: bytes, until: float, headers: Mapping[str, str] | None = None) -> bytes | None:
        """Post until the server has accepted the body; returns the body of its response, None if that is not plain.

        Raises
        ------
        SinkError
            Another status, a certificate that is not trusted, or patience has ended (`until`).
        """
        waits = pauses()
        pause, why = 0.0, "the pause that the server asked for is not over"
        while True:
            wait = max(pause, self._not_before - time.monotonic())
            if wait > 0 and (time.monotonic() + wait > until or waiting.is_over()):
                raise SinkError(
                    f"{self.location} did not take a release within {self._server.patience_s:g} s: {why}",
                    remedy="check the server: what was sealed is in the ledger and is written again",
                )
            waiting.pause(max(0.0, wait))
            try:
                return self._post(body, {**self._headers, **(headers or {})})
            except _LOST as error:
                self.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise SinkError(
                        f"{self.location} must have a certificate that is trusted: {error.verify_message}",
                        remedy=f"name its authority's as `{self._server.ca_option}`",
                    ) from None
                pause, why = next(waits), error_text(error)
            except _Busy as busy:
                pause, why = next(waits), str(busy)
            waiting.note_failure(why)

    def _post(self, body: bytes, headers: Mapping[str, str]) -> bytes | None:
        """Send one request and read the response's status."""
        if self._connection.sock is None:
            self._connection.connect()
        with deadline(self._connection.sock.fileno(), self._server.timeout_s) as is_over:
            self._connection.request("POST", self._server.target, body, dict(headers))
            answer = self._connection.getresponse()
            if is_over.is_set():  # http.client takes a truncated head for a whole one
                raise TimeoutError
            told = self._drain(answer)
        if is_over.is_set():
            self.close()
        status = answer.status
        if status < 200:  # a switch of protocols that nobody asked for
            raise http.client.BadStatusLine(str(status))
        if 200 <= status < 300 or status in self._accepted:
            return told
        if status in _BUSY or status >= 500:
            asked = min(_retry_after(answer.getheader("Retry-After", "")), _PAUSE_S)
            self._not_before = time.monotonic() + asked
            raise _Busy(f"status {status}" + (f", which asks for a pause of {asked:.0f} s" if asked else ""))
        moved = ": give the address it moved to" if 300 <= status < 400 else ""
        raise SinkError(
            f"{self.location} refuses a release with status {status}",
            remedy=f"correct `{self._server.address.key}` or the server{moved}",
        )

    def _drain(self, answer: http.client.HTTPResponse) -> bytes | None:
        """Read and return a response's body, so that the connection can be used again; if its length is not plain,
        close the connection.

        Chunked bodies are not read: http.client accepts negative sizes, and reads without bound after -1.
        """
        sizes = answer.headers.get_all("Content-Length") or []
        is_plain = len(sizes) == 1 and re.fullmatch(r"[0-9]{1,5}", sizes[0]) and int(sizes[0]) <= _READ_BYTES
        is_empty = answer.status in (204, 304)
        with suppress(*_LOST):  # the status, which decides, has already been read
            if (is_plain or is_empty) and "Transfer-Encoding" not in answer.headers:
                return answer.read()
        answer.close()
        self.close()
        return None


MessageT = TypeVar("MessageT")


class PostingSink(Sink, Generic[MessageT]):
    """A sink whose releases are sent by a `Poster`, at least once; a write that failed goes on with the rest.

    Parameters
    ----------
    poster : Poster
    """

    def __init__(self, poster: Poster) -> None:
        self.poster = poster
        self._remainder: PendingMessages[MessageT] = PendingMessages()

    def write(self, releases: Sequence[Release]) -> None:
        until = self.poster.until()
        self._remainder.send(self.messages(releases), lambda message: self.post(message, until))

    def close(self) -> None:
        self.poster.close()

    def messages(self, releases: Sequence[Release]) -> list[MessageT]:
        """Return what is posted, in order: the same for the same releases."""
        raise NotImplementedError

    def post(self, message: MessageT, until: float) -> None:
        """Post one message, until a time of `time.monotonic`; raises SinkError."""
        raise NotImplementedError


def authorization(address: Address, token: str, option: str) -> dict[str, str]:
    """Return the header for a bearer token, or else for the address's login, or none.

    Raises
    ------
    ConfigError
        The token is not visible ASCII; `option` is how the address names it.
    """
    if token:
        value = f"Bearer {token}"
    elif address.user is not None:
        value = "Basic " + base64.b64encode(f"{address.user}:{address.password or ''}".encode()).decode()
    else:
        return {}
    if not re.fullmatch(r"[\x20-\x7e]*", value):
        raise ConfigError(f"must have visible ASCII as `{option}`", address.key)
    return {"Authorization": value}


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


def _trust(server: WebServer) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=server.ca or None)
    except OSError as error:  # also raised for an unreadable certificate
        why = error.strerror or type(error).__name__
        raise ConfigError(
            f"must have a file of certificates as `{server.ca_option}`, got {server.ca}: {why}", server.address.key
        ) from None


def check_header(name: str, value: str, address: Address) -> None:
    """Refuse what is no header that a request may carry; raises ConfigError."""
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not re.fullmatch(r"[\x20-\x7e]*", value):
        raise ConfigError(f"must have visible ASCII as a header's name and value: {name!r}", address.key)
