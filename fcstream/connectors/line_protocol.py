"""Releases as InfluxDB line protocol: a line for each published number.

The lines are made by `influxdb_client.Point`, the client library's own encoder, which knows what has to be escaped. No
tag can end in a backslash: behind a key that does, there is a blank.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import needs_package
from ..releases.base import Release
from ..releases.long_form import long_form

MEASUREMENT = "fcstream"


class LineProtocol:
    """Encodes releases; the tags are those by which `fcstream.releases.long_form` names a number.

    ``fcstream,answer=mean,kind=mean,name=temp_c,stream=a count=118i,sigma=0.05,status="released",value=21.3 NANOS``:
    the time is the opening of the window, in nanoseconds; `count` is the release's noisy number of points, if it has
    one. A refusal is one line without a name and value, with its ``reason``. A stream's keys are in the tag ``key``.

    Parameters
    ----------
    key : str
        The configuration key that asks for line protocol, for messages.

    Raises
    ------
    ConfigError
        The client library is missing; the message names the extra.
    """

    def __init__(self, key: str = "sink.url") -> None:
        with needs_package("influxdb_client", "influx", key):
            from influxdb_client.client.write.point import Point
        self._point: Any = Point

    def encode(self, release: Release) -> bytes:
        """Return the lines of a release, each with its end. Numbers that are not finite have no line."""
        lines = []
        for row in long_form([release]):
            if row.value is not None and not math.isfinite(row.value):
                continue  # line protocol has no spelling for them
            point = self._point(MEASUREMENT).tag("stream", row.stream).tag("key", row.key).tag("answer", row.answer)
            point = point.tag("kind", row.kind).tag("name", row.name)
            # One type for ever: a database refuses a field that was a float once and is an integer now.
            point.field("value", _float(row.value)).field("sigma", _float(row.sigma)).field("count", release.count)
            point.field("status", row.status).field("reason", row.reason)
            lines.append(point.time(1_000_000 * row.window_open).to_line_protocol() + "\n")
        return "".join(lines).encode()


def _float(number: float | None) -> float | None:
    return None if number is None else float(number)
