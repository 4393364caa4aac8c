"""OTLP requests in JSON, as structures whose fields have the names of the protobuf messages.

Written by hand because the JSON reader of the protobuf package takes thirty times as long, and reads no hexadecimal
ids. Unknown keys are ignored, as the specification demands; numbers of 64 bits may come as text, and
null stands for a default.
"""

from __future__ import annotations

import msgspec


class JsonAnyValue(msgspec.Struct, rename="camel", gc=False):
    """Any value: one of these is set."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | None = None
    double_value: float | None = None
    bytes_value: bytes | None = None
    array_value: JsonValues | None = None
    kvlist_value: JsonPairs | None = None


class JsonValues(msgspec.Struct):
    """A list of values."""

    values: list[JsonAnyValue] | None = None


class JsonPair(msgspec.Struct):
    """An attribute."""

    key: str | None = ""
    value: JsonAnyValue | None = None


class JsonPairs(msgspec.Struct):
    """A map."""

    values: list[JsonPair] | None = None


class JsonAttributed(msgspec.Struct):
    """A resource, or an instrumentation scope."""

    attributes: list[JsonPair] | None = None


class JsonPoint(msgspec.Struct, rename="camel"):
    """A number at a time."""

    time_unix_nano: int | None = 0
    as_double: float | None = None
    as_int: int | None = None
    flags: int | None = 0
    attributes: list[JsonPair] | None = None


class JsonGauge(msgspec.Struct, rename="camel"):
    """The last values."""

    data_points: list[JsonPoint] | None = None


class JsonSum(msgspec.Struct, rename="camel"):
    """Sums over a time, or since a start."""

    data_points: list[JsonPoint] | None = None
    aggregation_temporality: int | None = 0


class JsonDistribution(msgspec.Struct, rename="camel"):
    """A histogram or summary, whose points are only counted."""

    data_points: list[msgspec.Raw] | None = None


class JsonMetric(msgspec.Struct, rename="camel"):
    """A metric: one kind of data is set."""

    name: str | None = ""
    gauge: JsonGauge | None = None
    sum: JsonSum | None = None
    histogram: JsonDistribution | None = None
    exponential_histogram: JsonDistribution | None = None
    summary: JsonDistribution | None = None


class JsonScopeMetrics(msgspec.Struct):
    """Metrics of one instrumentation scope."""

    scope: JsonAttributed | None = None
    metrics: list[JsonMetric] | None = None


class JsonResourceMetrics(msgspec.Struct, rename="camel"):
    """Metrics of one resource."""

    resource: JsonAttributed | None = None
    scope_metrics: list[JsonScopeMetrics] | None = None


class JsonMetricsRequest(msgspec.Struct, rename="camel"):
    """What ``/v1/metrics`` is sent."""

    resource_metrics: list[JsonResourceMetrics] | None = None


class JsonLogRecord(msgspec.Struct, rename="camel"):
    """A log record."""

    time_unix_nano: int | None = 0
    observed_time_unix_nano: int | None = 0
    severity_number: int | None = 0
    severity_text: str | None = ""
    body: JsonAnyValue | None = None
    attributes: list[JsonPair] | None = None
    event_name: str | None = ""


class JsonScopeLogs(msgspec.Struct, rename="camel"):
    """Log records of one instrumentation scope."""

    scope: JsonAttributed | None = None
    log_records: list[JsonLogRecord] | None = None


class JsonResourceLogs(msgspec.Struct, rename="camel"):
    """Log records of one resource."""

    resource: JsonAttributed | None = None
    scope_logs: list[JsonScopeLogs] | None = None


class JsonLogsRequest(msgspec.Struct, rename="camel"):
    """What ``/v1/logs`` is sent."""

    resource_logs: list[JsonResourceLogs] | None = None
