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
from ..posting import CA, TIMEOUT, Poster, PostingSink, WebServer, check_header
from ..urls import PATIENCE, Address, UrlOption

_PORT, _PATH = 8086, "/api/v2/write"
_TOGETHER_BYTES = 1 << 20  # of one request; a single release may have more
_BUCKET = UrlOption("bucket", "Where the points go.")
_ORG = UrlOption("org", "Name of the organization; servers without organizations ignore it.", "")
_TOKEN = UrlOption("token", "Sent as `Authorization: Token`. User and password are sent as `USER:PASSWORD`.", "")


class InfluxSink(PostingSink[bytes]):
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
    url_options: ClassVar = (_BUCKET, _ORG, _TOKEN, TIMEOUT, PATIENCE, CA)

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
            address.take_number(TIMEOUT),
            address.take_number(PATIENCE, patience_s),
            address.take(CA, ""),
        )
        address.finish()
        super().__init__(Poster(server, headers))

    def messages(self, releases: Sequence[Release]) -> list[bytes]:
        """Put whole releases together into requests that a server takes."""
        bodies: list[bytearray] = []
        for lines in map(self._lines.encode, releases):
            if not bodies or len(bodies[-1]) + len(lines) > _TOGETHER_BYTES:
                bodies.append(bytearray())
            bodies[-1] += lines
        return [bytes(body) for body in bodies if body]

    def post(self, message: bytes, until: float) -> None:
        self.poster.post(message, until)
