"""OTLP: what OpenTelemetry's exporters and collectors send, in protobuf or JSON.

Of metrics every data point is a record. Its fields are its value, under the name of its metric, ``time_unix_nano``, and
its attributes, then those of its scope and of its resource, each under its whole name. If fields ask for several
metrics, points of one scope with equal times and equal attributes are one record.

A metric is about measurements of different people, so what one data point sums up matters. Gauges are read, and sums
over the time since the last export (``delta``) if ``delta_sums = true`` says so. Rejected are cumulative sums, each of
which holds all measurements before it, and histograms and summaries, which hold no measurement.

Of logs every log record is a record. Its fields are ``time_unix_nano`` (if it is 0 the time at which the record was
observed, as the specification says), ``observed_time_unix_nano``, ``severity_number``, ``severity_text``,
``event_name``, ``body``, which may be a map, and the attributes, as above.

Source
------
https://opentelemetry.io/docs/specs/otlp/ and the package ``opentelemetry-proto``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ..errors import ConfigError
from .batch import Batch, Rejection, Schema
from .bounds import LONGEST_MESSAGE, OBJECT_BYTES, READ_AT_ONCE, BeyondBounds, max_rows
from .decoders import LineDecoder
from .envelopes import Envelope, EnvelopeField
from .fields import RecordReader, top_fields
from .otlp_json import JsonLogsRequest, JsonMetricsRequest
from .otlp_outlines import outline
from .paths import FieldPath
from .wire import check_wire, wire_type

TIME = "time_unix_nano"
_LOG_FIELDS = ("observed_time_unix_nano", "severity_number", "severity_text", "event_name", "body")
_NO_VALUE = 1  # the flag of a data point that says that there was nothing to measure
_DELTA = 1
_DISTRIBUTIONS = ("histogram", "exponential_histogram", "summary")
_SMALL, _WRAPPED = frozenset(("KeyValue", "AnyValue", "ArrayValue", "KeyValueList")), 280
"""Types of attributes, and how many bytes of memory a message of any other takes besides."""
_OBJECT = re.compile(rb"\s*\{")
_ERRORS = (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Encoding(NamedTuple):
    """How values are read from the messages of one encoding.

    Attributes
    ----------
    request : callable
        Makes a request of a body.
    numbers : callable
        Returns the value of each of some data points, None where there is none.
    plain : callable
        Returns the plain object that an ``AnyValue`` stands for.
    identity : callable
        Returns something hashable of an attribute.
    """

    request: Callable[[bytes], Any]
    numbers: Callable[[Sequence[Any]], list[Any]]
    plain: Callable[[Any], Any]
    identity: Callable[[Any], bytes]


class _FoundRecords:
    """The records of one request, as they are found.

    Attributes
    ----------
    blocks : list of (int, dict of str to list)
        Numbers of records, and their columns. A field that is absent is missing in all records of a block.
    """

    def __init__(self, encoding: Encoding, position: int, room: int) -> None:
        self.encoding, self.position, self._room = encoding, position, room
        self.blocks: list[tuple[int, dict[str, list[Any]]]] = []
        self.rejections: list[Rejection] = []
        self._is_cut = False

    def take(self, items: Sequence[Any]) -> list[Any]:
        """Return as many of these as are still read of a message."""
        taken = list(items[: self._room])
        if len(taken) < len(items) and not self._is_cut:
            self._is_cut = True
            self.rejections.append(Rejection("too_long", self.position))
        self._room -= len(taken)
        return taken

    def reject(self, reason: str, field: str | None, count: int) -> None:
        if count:
            self.rejections.append(Rejection(reason, self.position, field, count))

    def attributes(self, found: Any, wanted: Container[str]) -> dict[str, Any]:
        """Return the wanted attributes of a point, a scope or a resource as plain objects."""
        plain = self.encoding.plain
        return {each.key: plain(each.value) for each in (found and found.attributes) or () if each.key in wanted}

    def add(self, items: Sequence[Any], outer: Mapping[str, Any], wanted: frozenset[str], own: dict[str, Any]) -> None:
        """Add one record for each item, with the columns in `own`; attributes stand behind them."""
        columns = {top: [value] * len(items) for top, value in outer.items() if top in wanted}
        if wanted:
            rows = [self.attributes(item, wanted) for item in items]
            for top in set().union(*rows):
                columns[top] = [row.get(top, outer.get(top)) for row in rows]
        self.blocks.append((len(items), columns | own))


class _Requests:
    """What decoders of metrics and of logs share."""

    def __init__(self, schema: Schema, proto: Any, json: Any) -> None:
        if schema.records is not None:
            raise ConfigError("must be left out with OTLP, whose messages say where records are", "source.records")
        schema = replace(schema, paths={name: _literal(place) for name, place in schema.paths.items()})
        self._reader = RecordReader(schema)
        self._most = max_rows(len(schema.features))
        self._features = top_fields(schema, schema.features)
        self._first = next(iter(schema.features), None)
        self._tops = top_fields(schema, (schema.time, *schema.features, *schema.labels))
        self._encodings = _encodings(proto, json)
        self._wire = wire_type(proto.DESCRIPTOR, lambda kind: 0 if kind.name in _SMALL else _WRAPPED)
        self._outlines = (self._encodings[0]._replace(request=outline(proto).FromString), self._encodings[1])

    def decode(self, lines: list[bytes], first_position: int, envelopes: Sequence[Envelope] = ()) -> Batch:
        """Read requests; the encoding of each is told by its first character."""
        columns: dict[str, list[Any]] = {top: [] for top in self._tops}
        owners: list[int] = []
        rejections: list[Rejection] = []
        for i, line in enumerate(lines):
            found = self._read(line, first_position + i)
            rejections += found.rejections
            for rows, cells in found.blocks:
                owners += [i] * rows
                for top, column in columns.items():
                    column += cells.get(top) or [None] * rows
        return self._reader.read_columns(columns, owners, first_position, envelopes, rejections)

    def unread(self, body: bytes) -> Counter[tuple[str, str]] | None:
        """Count what is not read of a request because of its kind, by the reason and the metric; None if a body is no
        request in either encoding.

        No point is looked at, so it takes a small part of the time of `decode`, which may reject a request in protobuf
        all the same: for what is wrong inside of a point.
        """
        try:
            return self._unread(self._request(body, self._outlines)[0]) if len(body) <= LONGEST_MESSAGE else None
        except (*_ERRORS, ValueError):
            return None

    def _unread(self, request: Any) -> Counter[tuple[str, str]]:
        return Counter()

    def _request(self, body: bytes, encodings: tuple[Encoding, Encoding]) -> tuple[Any, Encoding]:
        proto, json = encodings
        is_long = len(body) > READ_AT_ONCE
        if _OBJECT.match(body):
            if is_long and _may_take(body) > OBJECT_BYTES:
                raise BeyondBounds
            with suppress(msgspec.DecodeError):  # bytes of protobuf may look like that
                return json.request(body), json
        if is_long:
            with suppress(IndexError):  # what breaks off is left to the library
                check_wire(body, self._wire)
        return proto.request(body), proto

    def _read(self, body: bytes, position: int) -> _FoundRecords:
        try:
            if len(body) > LONGEST_MESSAGE:
                raise DecodeError
            request, encoding = self._request(body, self._encodings)
            found = _FoundRecords(encoding, position, self._most)
            self._collect(request, found)
        except (*_ERRORS, ValueError) as error:
            found = _FoundRecords(self._encodings[0], position, 0)
            reason = "too_long" if isinstance(error, BeyondBounds) else "broken_record"
            found.rejections.append(Rejection(reason, position))
            return found
        if not found.blocks and not found.rejections:
            found.rejections.append(Rejection("missing", position, self._first))
        return found

    def _collect(self, request: Any, found: _FoundRecords) -> None:
        raise NotImplementedError


class MetricRequests(_Requests):
    """Decoder of metrics.

    Parameters
    ----------
    schema : Schema
    delta_sums : bool
        Whether sums over the time since the last export are read.

    Notes
    -----
    A request that holds none of the metrics which features ask for is rejected as ``missing``. Without features every
    data point is a record.
    """

    def __init__(self, schema: Schema, delta_sums: bool = False) -> None:
        super().__init__(schema, ExportMetricsServiceRequest, JsonMetricsRequest)
        self._delta_sums = delta_sums

    def _collect(self, request: Any, found: _FoundRecords) -> None:
        for of_resource in request.resource_metrics or ():
            resource = found.attributes(of_resource.resource, self._tops)
            for of_scope in of_resource.scope_metrics or ():
                metrics: dict[str, list[Any]] = {}
                for each in of_scope.metrics or ():
                    if (not self._features or each.name in self._features) and (points := self._points(each, found)):
                        metrics.setdefault(each.name, []).extend(points)
                if metrics:
                    self._scope(metrics, resource | found.attributes(of_scope.scope, self._tops), found)

    def _points(self, metric: Any, found: _FoundRecords) -> list[Any]:
        """Return the data points of a metric that may be read; others are rejected."""
        reason, points = self._judged(metric)
        taken = found.take(points)
        if reason is None:
            return taken
        found.reject(reason, self._named(metric), len(taken))
        return []

    def _named(self, metric: Any) -> str | None:
        """Return the name of a metric that features ask for; others are senders' text, which nobody is to be shown."""
        return metric.name if metric.name in self._features else None

    def _judged(self, metric: Any) -> tuple[str | None, Sequence[Any]]:
        """Return why a metric is not read (None: it is), and its data points."""
        for kind in _DISTRIBUTIONS:
            if _has(metric, kind):
                return "histogram", getattr(metric, kind).data_points or ()
        if _has(metric, "gauge"):
            return None, metric.gauge.data_points or ()
        if not _has(metric, "sum"):
            return None, ()
        is_delta = metric.sum.aggregation_temporality == _DELTA
        reason = "delta_sum" if is_delta else "cumulative"
        return None if is_delta and self._delta_sums else reason, metric.sum.data_points or ()

    def _unread(self, request: Any) -> Counter[tuple[str, str]]:
        unread: Counter[tuple[str, str]] = Counter()
        for of_resource in request.resource_metrics or ():
            for of_scope in of_resource.scope_metrics or ():
                for each in of_scope.metrics or ():
                    reason, points = self._judged(each)
                    if reason is not None and (not self._features or each.name in self._features):
                        unread[reason, self._named(each) or "any metric"] += len(points)
        return +unread

    def _scope(self, metrics: Mapping[str, list[Any]], outer: Mapping[str, Any], found: _FoundRecords) -> None:
        """Read the points of one scope."""
        numbers = found.encoding.numbers
        wanted = self._tops.difference((TIME,), metrics)
        if len(self._features) < 2 or len(metrics) == 1:
            for name, points in metrics.items():
                own = {name: numbers(points), TIME: [point.time_unix_nano or None for point in points]}
                found.add(points, outer, wanted, own)
            return
        points, own = _in_step(metrics, numbers) or _joined(metrics, found.encoding)
        own[TIME] = [point.time_unix_nano or None for point in points]
        found.add(points, outer, wanted, own)


class LogRequests(_Requests):
    """Decoder of log records.

    Parameters
    ----------
    schema : Schema
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, ExportLogsServiceRequest, JsonLogsRequest)

    def _collect(self, request: Any, found: _FoundRecords) -> None:
        for of_resource in request.resource_logs or ():
            resource = found.attributes(of_resource.resource, self._tops)
            for of_scope in of_resource.scope_logs or ():
                outer = resource | found.attributes(of_scope.scope, self._tops)
                records = found.take(of_scope.log_records or ())
                own = {name: self._field(name, records, found) for name in self._tops.intersection(_LOG_FIELDS)}
                own[TIME] = [each.time_unix_nano or each.observed_time_unix_nano or None for each in records]
                if records:
                    found.add(records, outer, self._tops.difference(own), own)

    @staticmethod
    def _field(name: str, records: Sequence[Any], found: _FoundRecords) -> list[Any]:
        if name == "body":
            return [found.encoding.plain(record.body) for record in records]
        return [getattr(record, name) or None for record in records]


def _may_take(body: bytes) -> int:
    """Return how many bytes of memory a request in JSON takes at most."""
    return 128 * body.count(b"{") + 64 * body.count(b",") + (0 if body.isascii() else 4 * len(body))


def _literal(place: FieldPath | EnvelopeField) -> FieldPath | EnvelopeField:
    """Return the place of an attribute, whose name holds dots by convention; only bodies of logs have fields inside."""
    if isinstance(place, EnvelopeField) or len(place.steps) < 2 or place.steps[0] == "body":
        return place
    names = [step for step in place.steps if isinstance(step, str)]
    return FieldPath((".".join(names), *place.steps[len(names) :]))


def _in_step(
    metrics: Mapping[str, list[Any]], numbers: Callable[[Sequence[Any]], list[Any]]
) -> tuple[list[Any], dict[str, list[Any]]] | None:
    """Join the points of metrics that come in the same order, as exporters write them; None for others."""
    firsts, *others = metrics.values()
    for points in others:
        if len(points) != len(firsts):
            return None
        for point, first in zip(points, firsts, strict=True):
            if point.time_unix_nano != first.time_unix_nano or point.attributes != first.attributes:
                return None
    return firsts, {name: numbers(points) for name, points in metrics.items()}


def _joined(metrics: Mapping[str, list[Any]], encoding: Encoding) -> tuple[list[Any], dict[str, list[Any]]]:
    """Join the points of metrics with equal times and attributes, the first of each metric, the second, and so on.

    Returns
    -------
    list, dict
        One point of each record, and the numbers of each metric.
    """
    rows: dict[tuple[int, frozenset[bytes], int], int] = {}
    firsts: list[Any] = []
    cells: dict[str, dict[int, Any]] = {name: {} for name in metrics}
    for name, points in metrics.items():
        column = cells[name]
        times: Counter[tuple[int, frozenset[bytes]]] = Counter()
        for point, number in zip(points, encoding.numbers(points), strict=True):
            place = (point.time_unix_nano, frozenset(map(encoding.identity, point.attributes or ())))
            row = rows.setdefault((*place, times[place]), len(firsts))
            if row == len(firsts):
                firsts.append(point)
            times[place] += 1
            column[row] = number
    return firsts, {name: list(map(column.get, range(len(firsts)))) for name, column in cells.items()}


def metrics(schema: Schema, *, delta_sums: bool = False) -> LineDecoder:
    """Make the decoder of ``format = "otlp-metrics"``."""
    return MetricRequests(schema, delta_sums)


def logs(schema: Schema) -> LineDecoder:
    """Make the decoder of ``format = "otlp-logs"``."""
    return LogRequests(schema)


def _encodings(proto: Any, json: Any) -> tuple[Encoding, Encoding]:
    read = msgspec.json.Decoder(json, strict=False).decode
    return (
        Encoding(proto.FromString, _proto_numbers, _proto_plain, lambda pair: pair.SerializeToString()),
        Encoding(read, _json_numbers, _json_plain, msgspec.json.encode),
    )


def _has(metric: Any, kind: str) -> bool:
    """Return whether a metric holds data of this kind, in either encoding."""
    return metric.HasField(kind) if isinstance(metric, Message) else getattr(metric, kind) is not None


def _proto_numbers(points: Sequence[Any]) -> list[Any]:
    # The field of the other type reads as 0.0, so only a zero needs a second look.
    return [point.as_double or _proto_number(point) if not point.flags & _NO_VALUE else None for point in points]


def _proto_number(point: Any) -> Any:
    kind = point.WhichOneof("value")
    return getattr(point, kind) if kind else None


def _json_numbers(points: Sequence[Any]) -> list[Any]:
    return [
        None if (point.flags or 0) & _NO_VALUE else point.as_int if point.as_double is None else point.as_double
        for point in points
    ]


def _proto_plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_proto_plain(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return {each.key: _proto_plain(each.value) for each in value.kvlist_value.values}
    return getattr(value, kind) if kind else None


def _json_plain(value: Any) -> Any:
    if value is None:
        return None
    if value.array_value is not None:
        return [_json_plain(each) for each in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return {each.key: _json_plain(each.value) for each in value.kvlist_value.values or ()}
    plain = (value.string_value, value.int_value, value.double_value, value.bool_value, value.bytes_value)
    return next((each for each in plain if each is not None), None)
