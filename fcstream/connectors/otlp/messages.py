"""Releases as OTLP metrics: gauges with the attributes by which the long form names a number.

The messages are those of ``opentelemetry-proto``, which is generated from OpenTelemetry's definition. OpenTelemetry's
SDK is not used: its gauges are stamped when it collects them, not when a window closed, its exporter drops what it
could not send after some tries, and neither tells which of the measurements have arrived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ... import __version__
from ...errors import needs_package
from ...releases.base import Release
from ...releases.long_form import LongRow, long_form

_GAUGES = {
    "fcstream.value": "A released number",
    "fcstream.sigma": "Standard deviation of the noise in a released number",
    "fcstream.count": "Noisy number of points behind a release",
    "fcstream.released": "1 for a release with a value, 0 for a refusal",
}


class GaugeMessages:
    """Makes requests of ``opentelemetry.proto.collector.metrics.v1``, and reads responses.

    Parameters
    ----------
    key : str
        The configuration key that asks for OTLP, for messages.

    Raises
    ------
    ConfigError
        The generated messages are missing; the message names the extra.
    """

    def __init__(self, key: str) -> None:
        with needs_package("opentelemetry.proto", "otlp", key):
            from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
        self._service: Any = metrics_service_pb2
        self._broken: Any = import_module("google.protobuf.message").DecodeError

    def encode(self, releases: Sequence[Release]) -> bytes:
        """Return the request for some releases: a data point spans the window, from its opening to its close."""
        request = self._service.ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        _attribute(resource.resource.attributes, "service.name", "fcstream")
        scope = resource.scope_metrics.add()
        scope.scope.name, scope.scope.version = "fcstream", __version__
        gauges = {}
        for name, description in _GAUGES.items():
            metric = scope.metrics.add(name=name, description=description)
            metric.gauge.SetInParent()
            gauges[name] = metric.gauge.data_points
        for release in releases:
            rows = list(long_form([release]))
            for row in rows:
                if row.name is not None:
                    for name, number in (("fcstream.value", row.value), ("fcstream.sigma", row.sigma)):
                        if number is not None and math.isfinite(number):
                            _point(gauges[name], release, row, {"name": row.name}).as_double = number
            more = {} if release.reason is None else {"reason": release.reason}
            if rows:
                _point(gauges["fcstream.released"], release, rows[0], more).as_int = int(release.reason is None)
                if release.count is not None:
                    _point(gauges["fcstream.count"], release, rows[0], {}).as_int = release.count
        message: bytes = request.SerializeToString(deterministic=True)
        return message

    def rejected(self, response: bytes) -> int:
        """Return how many data points a response says were not taken; 0 if it is no such response."""
        try:
            found = self._service.ExportMetricsServiceResponse.FromString(response)
        except self._broken:
            return 0
        return int(found.partial_success.rejected_data_points)


def _point(points: Any, release: Release, row: LongRow, more: dict[str, str]) -> Any:
    point = points.add(
        start_time_unix_nano=1_000_000 * max(0, release.window_open_ms),
        time_unix_nano=1_000_000 * max(0, release.window_close_ms),
    )
    for name in ("stream", "key", "answer", "kind"):
        if getattr(row, name) is not None:
            _attribute(point.attributes, name, getattr(row, name))
    for name, text in more.items():
        _attribute(point.attributes, name, text)
    return point


def _attribute(attributes: Any, name: str, text: str) -> None:
    attributes.add(key=name).value.string_value = text
