"""Releases as points of InfluxDB, written over HTTP as line protocol.

The requests are plain ``POST /api/v2/write``, which InfluxDB 2 and 3, Telegraf's listener and VictoriaMetrics take
alike, and are sent as all sinks over HTTP send theirs (`fcstream.connectors.posting`). A point that is written twice is
the same series at the same time with the same fields, and replaces itself.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import ClassVar

from ...releases.base import Release
from ..line_protocol import LineProtocol
from ..posting import Poster, WebServer, check_header
from ..retry import PendingMessages
from ..urls import PATIENCE, Address, UrlOption

_PORT, _PATH = 8086, "/api/v2/write"
_TOGETHER_BYTES = 1 << 20  # of one request; a single release may have more
_BUCKET = UrlOption("bucket", "Where the points go.")
_ORG = UrlOption("org", "Name of the organization; servers without organizations ignore it.", "")
_TOKEN = UrlOption("token", "Sent as `Authorization: Token`. User and password are sent as `USER:PASSWORD`.", "")
_TIMEOUT = UrlOption("timeout", "Seconds that connecting, and then a request, may take.", 10)
_CA = UrlOption("ca", "File (PEM) of the certificates to trust.", otherwise="the system's")


class InfluxSink:
    """Writes a point for each published number, at least once; one that is written twice replaces itself.

    Parameters
    ----------
    address : Address
        See `url` and `url_options`; ``influxs`` for TLS. A path takes the place of ``/api/v2/write``.
    patience_s : float

    Raises
    ------
    ConfigError
        The server is first called by `write`.

    Notes
    -----
    Points of the measurement ``fcstream`` have the tags ``stream``, ``key``, ``answer``, ``kind`` and ``name`` and the
    fields ``value``, ``sigma``, ``count``, ``status`` and ``reason``, at the opening of their window.
    """

    url: ClassVar = "influx://[user:password@]host[:8086][/path]?bucket=NAME"
    url_options: ClassVar = (_BUCKET, _ORG, _TOKEN, _TIMEOUT, PATIENCE, _CA)

    def __init__(self, address: Address, patience_s: float = 60.0) -> None:
        self._lines = LineProtocol(address.key)
        about = {"org": address.take(_ORG), "bucket": address.take(_BUCKET), "precision": "ns"}
        query = urllib.parse.urlencode({name: value for name, value in about.items() if value})
        token = address.take(_TOKEN) or (f"{address.user}:{address.password or ''}" if address.user else "")
        headers = {"Content-Type": "text/plain; charset=utf-8", "User-Agent": "fcstream"}
        if token:
            headers["Authorization"] = f"Token {token}"
            check_header("Authorization", headers["Authorization"], address)
        server = WebServer(
            address,
            address.scheme == "influxs",
            _PORT,
            f"{urllib.parse.quote('/' + address.path) if address.path else _PATH}?{query}",
            address.take_number(_TIMEOUT),
            address.take_number(PATIENCE, patience_s),
            address.take(_CA, ""),
        )
        address.finish()
        self.poster = Poster(server, headers)
        self._remainder: PendingMessages[bytes] = PendingMessages()

    def write(self, releases: Sequence[Release]) -> None:
        until = self.poster.until()
        self._remainder.send(self._bodies(releases), lambda body: self.poster.post(body, until))

    def missing(self, releases: Sequence[Release]) -> list[Release]:
        return list(releases)

    def last(self) -> Release | None:
        return None

    def close(self) -> None:
        self.poster.close()

    def _bodies(self, releases: Sequence[Release]) -> list[bytes]:
        """Put whole releases together into requests that a server takes."""
        bodies: list[bytearray] = []
        for lines in map(self._lines.encode, releases):
            if not bodies or len(bodies[-1]) + len(lines) > _TOGETHER_BYTES:
                bodies.append(bytearray())
            bodies[-1] += lines
        return [bytes(body) for body in bodies if body]
