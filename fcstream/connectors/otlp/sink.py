"""Releases as OTLP gauges over HTTP: requests of binary Protobuf to ``/v1/metrics``.

They are sent as all sinks over HTTP send theirs (`fcstream.connectors.posting`). A receiver that says that it did not
take some data points (``partial_success``) is reported as a sink that refuses, and gets them again: nothing is lost in
silence.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import ClassVar

from ...errors import ConfigError, SinkError
from ...releases.base import Release
from ..posting import CA, TIMEOUT, Poster, PostingSink, WebServer, check_header
from ..urls import PATIENCE, Address, UrlOption
from .messages import GaugeMessages

_PORT, _PATH = 4318, "/v1/metrics"
_TOGETHER = 100  # releases of one request
_HEADER, _RESERVED = "header.", {"content-length", "content-type", "transfer-encoding", "connection", "authorization"}
_TOKEN = UrlOption("token", "Sent as `Authorization: Bearer`.", "")
_HEADERS = UrlOption("header.NAME", "A further header, such as a tenant's or an API key's.", "")


class OtlpSink(PostingSink[bytes]):
    """Sends gauges `fcstream.value`, `fcstream.sigma`, `fcstream.count` and `fcstream.released`, at least once.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``otlps`` for TLS. A path takes the place of ``/v1/metrics``.
    patience_s : float

    Raises
    ------
    ConfigError
        The receiver is first called by `write`.

    Notes
    -----
    Data points span their window. Their attributes are ``stream``, ``key``, ``answer`` and ``kind``, of values and
    sigmas also ``name``; a refusal is a 0 of ``fcstream.released`` with the attribute ``reason``. A receiver that takes
    a request in part only gets all of it again, and the sink is reported as refusing meanwhile.
    """

    url: ClassVar = "otlp://host[:4318][/path]"
    url_options: ClassVar = (_TOKEN, _HEADERS, TIMEOUT, PATIENCE, CA)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._messages = GaugeMessages(address.key)
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": "fcstream"}
        token = address.take(_TOKEN)
        if token:
            headers["Authorization"] = f"Bearer {token}"
            check_header("Authorization", headers["Authorization"], address)
        if address.user is not None:
            raise ConfigError("must have a `token`, or a `header.NAME`, in place of a login", address.key)
        for option in [name for name in address.options if name.startswith(_HEADER)]:
            name, value = option.removeprefix(_HEADER), address.take(option)
            if name.lower() in _RESERVED:
                raise ConfigError(f"must not set the header {name!r}", address.key)
            check_header(name, value, address)
            headers[name] = value
        server = WebServer(
            address,
            address.scheme == "otlps",
            _PORT,
            urllib.parse.quote("/" + address.path) if address.path else _PATH,
            address.take_number(TIMEOUT),
            address.take_number(PATIENCE, patience_s),
            address.take(CA, ""),
        )
        address.finish()
        super().__init__(Poster(server, headers))

    def messages(self, releases: Sequence[Release]) -> list[bytes]:
        groups = [releases[first : first + _TOGETHER] for first in range(0, len(releases), _TOGETHER)]
        return [self._messages.encode(group) for group in groups]

    def post(self, message: bytes, until: float) -> None:
        response = self.poster.post(message, until)
        rejected = self._messages.rejected(response or b"")
        if rejected:
            raise SinkError(
                f"{self.poster.location} did not take {rejected} data points of a request",
                remedy="look into its log: what was sealed is in the ledger and is written again",
            )
