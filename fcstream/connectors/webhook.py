"""Releases as requests to a web server: one POST of JSON each, at least once.

``https://[user:password@]host[:port]/path?its=own&query`` is called as it stands; only options that begin with
``fcstream.`` are ours, and are taken out:

==========================  ===================================================================================
``fcstream.bearer``         a token for ``Authorization: Bearer``; a user and password are sent as ``Basic``
``fcstream.header.NAME``    a further header
``fcstream.batch=yes``      one POST of an array for all releases of a write
``fcstream.timeout``        seconds until a silent server counts as away (10)
``fcstream.patience``       seconds that a server may be away or busy (60)
``fcstream.ca``             file with the certificates to trust, instead of the system's
==========================  ===================================================================================

Every request has a header ``Idempotency-Key: STREAM/OPEN_MS/CLOSE_MS`` (the stream's name percent-encoded; of an array
its first opening, last closing and a hash of its bytes). The same key always comes with the same bytes, so a server
that knows the key answers 2xx, or 409, and both count as written. 408, 425, 429, 5xx and lost connections are tried
again, after ``Retry-After`` if it is given; everything else is an error at once, redirections too. Messages never hold
the path, the query or an answer's body: many a hook's address is its password.
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

from ..errors import ConfigError, SinkError
from ..releases.base import Release
from .retry import close_quietly, pauses
from .urls import Address

_OURS = "fcstream."
_BUSY = {408, 425, 429}
_READ_BYTES = 1 << 16  # of an answer's body
_NOT_YOURS = {"idempotency-key", "content-length", "transfer-encoding", "connection"}
_LOST = (OSError, http.client.HTTPException)


class _Busy(Exception):
    """The server wants to be asked later.

    Attributes
    ----------
    after_s : float
        At the earliest.
    """

    def __init__(self, what: str, after_s: float = 0.0) -> None:
        super().__init__(what)
        self.after_s = after_s


class WebhookSink:
    """Each release is POSTed as JSON; see the module for the address and for what counts as written.

    Parameters
    ----------
    address : Address
    patience_s : float
        How long the server may be away or busy.

    Raises
    ------
    ConfigError
        The server is first called by `write`.
    """

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._address_key = address.place
        self._patience_s = address.take_number("fcstream.patience", patience_s)
        self._timeout_s = address.take_number("fcstream.timeout", 10.0)
        batch = address.take("fcstream.batch", "no")
        if batch not in ("yes", "no"):
            raise ConfigError(f"must have 'yes' or 'no' as `fcstream.batch`, got {batch!r}", address.place)
        self._is_batch = batch == "yes"
        ca = address.take("fcstream.ca", "")
        self._headers = _headers(address)
        self._target = _target(address)
        name, port = address.host(443 if address.scheme == "https" else 80)
        shown = f"[{name}]" if ":" in name else name
        self._place = f"{address.scheme}://{shown}" + (f":{address.hosts[0][1]}" if address.hosts[0][1] else "")
        if len(address.hosts) != 1:
            raise ConfigError(f"must name one host, got {self._place}, ...", address.place)
        self._connection = (
            http.client.HTTPSConnection(name, port, timeout=self._timeout_s, context=_trust(ca, address.place))
            if address.scheme == "https"
            else http.client.HTTPConnection(name, port, timeout=self._timeout_s)
        )

    def write(self, releases: Sequence[Release]) -> None:
        if self._is_batch and releases:
            body = b"[" + b",".join(release.to_bytes() for release in releases) + b"]"
            first, last = releases[0], releases[-1]
            digest = hashlib.sha256(body).hexdigest()[:16]
            self._send(body, f"{_quoted(first.stream)}/{first.window_open_ms}/{last.window_close_ms}/{digest}")
            return
        for release in releases:
            key = f"{_quoted(release.stream)}/{release.window_open_ms}/{release.window_close_ms}"
            self._send(release.to_bytes(), key)

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        return list(releases)

    def last(self) -> Release | None:
        return None

    def close(self) -> None:
        close_quietly(self._connection.close)

    def _send(self, body: bytes, key: str) -> None:
        """Until the server has taken it, or patience has ended."""
        until = time.monotonic() + self._patience_s
        waits = pauses()
        while True:
            try:
                return self._post(body, key)
            except _LOST as error:
                self.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise SinkError(
                        f"{self._place} must have a certificate that is trusted: {error.verify_message}; name its "
                        "authority's as `fcstream.ca`"
                    ) from None
                why, wait = _what(error), next(waits)
            except _Busy as busy:
                why, wait = str(busy), max(next(waits), busy.after_s)
            if time.monotonic() + wait > until:
                raise SinkError(
                    f"{self._place} did not take a release within {self._patience_s:g} s: {why}; check the server: "
                    "what was sealed is in the ledger and is written again"
                ) from None
            time.sleep(wait)

    def _post(self, body: bytes, key: str) -> None:
        """Ask once."""
        self._connection.request("POST", self._target, body, {**self._headers, "Idempotency-Key": key})
        answer = self._connection.getresponse()
        self._drain(answer)
        status = answer.status
        if 200 <= status < 300 or status == 409:
            return
        if status in _BUSY or status >= 500:
            raise _Busy(f"status {status}", _retry_after(answer.getheader("Retry-After", "")))
        moved = ": give the address it moved to" if 300 <= status < 400 else ""
        raise SinkError(
            f"{self._place} refuses a release with status {status}; correct `{self._address_key}` or the server{moved}"
        )

    def _drain(self, answer: http.client.HTTPResponse) -> None:
        """Read what an answer says, unless it is long or slow, so that the connection can be used again."""
        until, left = time.monotonic() + self._timeout_s, _READ_BYTES
        with suppress(*_LOST):  # the status has come, and it is what counts
            while left > 0 and time.monotonic() < until and (part := answer.read(4096)):
                left -= len(part)
        if not answer.isclosed():
            self.close()


def _what(error: BaseException) -> str:
    """A lost connection in a few words, none of them the server's."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or type(error).__name__


def _retry_after(text: str) -> float:
    """Seconds, of a number or a date; 0 for anything else."""
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _headers(address: Address) -> dict[str, str]:
    """What every request says, of the options that are ours."""
    headers = {"Content-Type": "application/json", "User-Agent": "fcstream"}
    bearer = address.take("fcstream.bearer", "")
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    elif address.user is not None:
        login = f"{address.user}:{address.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    for option in [name for name in address.options if name.startswith(_OURS)]:
        name, value = option.removeprefix(f"{_OURS}header."), address.take(option)
        if name == option or name.lower() in _NOT_YOURS:
            raise ConfigError(f"has an unknown option {option!r}", address.place)
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not re.fullmatch(r"[\x20-\x7e]*", value):
            raise ConfigError(f"must have visible ASCII as a header's name and value: {name!r}", address.place)
        headers[name] = value
    if not re.fullmatch(r"[\x20-\x7e]*", headers.get("Authorization", "")):
        raise ConfigError("must have visible ASCII as `fcstream.bearer`", address.place)
    return headers


def _trust(ca: str, place: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except OSError as error:  # an unreadable certificate is one too
        why = error.strerror or type(error).__name__
        raise ConfigError(f"must have a file of certificates as `fcstream.ca`, got {ca}: {why}", place) from None


def _target(address: Address) -> str:
    """Path and query as they were given, without what is ours, and with placeholders filled in.

    An `Address` holds both decoded; the masked URL holds them as they were, but for secrets.
    """
    given = urllib.parse.urlsplit(address.masked)
    pairs = [pair for pair in given.query.split("&") if pair]
    names = [urllib.parse.unquote_plus(pair.partition("=")[0]) for pair in pairs]
    query = []
    for name, pair in zip(names, pairs, strict=True):
        if name.startswith(_OURS):
            continue
        if "***" in pair or "${" in pair:
            if names.count(name) > 1:
                raise ConfigError(f"must not have a secret in {name!r}, which stands there twice", address.place)
            pair = f"{pair.partition('=')[0]}={_quoted(address.options[name])}"
        query.append(pair)
    path = given.path or "/"
    if urllib.parse.unquote(path) != f"/{address.path}":  # a placeholder was filled in, or '@' was taken for a login's
        path = urllib.parse.quote(f"/{address.path}", safe="/:@!$&'()*+,;=~")
    target = path + ("?" + "&".join(query) if query else "")
    return re.sub(r"[^\x21-\x7e]+", lambda found: _quoted(found[0]), target)
