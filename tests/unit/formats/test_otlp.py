"""OTLP against a slow twin that reads requests as dictionaries: records, joins, refusals, both encodings."""

import base64
import json
import random

import msgspec
import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from support.fuzz import shaken, told
from support.slow_path import batch_from_rows

from fcstream.errors import ConfigError
from fcstream.formats.batch import REASONS, Rejection, Schema
from fcstream.formats.bounds import LONGEST_MESSAGE, max_rows
from fcstream.formats.paths import FieldPath
from fcstream.formats.payloads import decoder_for

NOW = 1_760_000_000_000_000_000
CUMULATIVE, DELTA = 2, 1
SCHEMAS = {
    "one": Schema("time_unix_nano", "ns", ("temp",)),
    "user": Schema("time_unix_nano", "ns", ("temp",), "user", "host.name"),
    "join": Schema("time_unix_nano", "ns", ("temp", "room.humidity"), "user"),
    "gaps": Schema("time_unix_nano", "ns", ("temp", "room.humidity"), optional=frozenset({"room.humidity"})),
    "attribute": Schema("time_unix_nano", "ns", ("temp", "size", "on"), levels={"on": {True: 1, False: 0}}),
    "none": Schema("time_unix_nano", "ns", (), "user"),
}
LOGS = {
    "number": Schema("time_unix_nano", "ns", ("severity_number",)),
    "body": Schema(
        *("time_unix_nano", "ns", ("took",), "user", "service.name"),
        paths={"took": FieldPath(("body", "took"))},
    ),
    "texts": Schema("observed_time_unix_nano", "ns", ("size",), texts={"severity_text": 9}, order=("size",)),
    "event": Schema("time_unix_nano", "ns", (), "event_name"),
}


def attribute(owner, key, value):
    pair = owner.attributes.add()
    pair.key = key
    any_value(pair.value, value)


def any_value(target, value):
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, list):
        target.array_value.SetInParent()
        for each in value:
            any_value(target.array_value.values.add(), each)
    elif isinstance(value, dict):
        target.kvlist_value.SetInParent()
        for key, each in value.items():
            pair = target.kvlist_value.values.add()
            pair.key = key
            any_value(pair.value, each)


def point(data, value=21.5, at=NOW, **attributes):
    one = data.data_points.add(time_unix_nano=at)
    if isinstance(value, int):
        one.as_int = value
    elif value is not None:
        one.as_double = value
    for key, each in attributes.items():
        attribute(one, key, each)
    return one


def scope_of(request, **attributes):
    resource = request.resource_metrics.add()
    for key, value in attributes.items():
        attribute(resource.resource, key.replace("_", "."), value)
    return resource.scope_metrics.add()


def one_gauge(**attributes):
    request = ExportMetricsServiceRequest()
    metric = scope_of(request, host_name="h1").metrics.add(name="temp")
    point(metric.gauge, **attributes)
    return request


def bodies(request):
    return [request.SerializeToString(), MessageToJson(request, use_integers_for_enums=True).encode()]


def metrics(kind, **options):
    return decoder_for("otlp-metrics", SCHEMAS[kind], options)


def plain(value):
    """The slow twin's reading of an `AnyValue` in JSON."""
    for key, read in (
        ("stringValue", str),
        ("boolValue", bool),
        ("intValue", int),
        ("doubleValue", float),
        ("bytesValue", base64.b64decode),
    ):
        if key in value:
            return read(value[key])
    if "arrayValue" in value:
        return [plain(each) for each in value["arrayValue"].get("values", [])]
    if "kvlistValue" in value:
        return {each.get("key", ""): plain(each.get("value", {})) for each in value["kvlistValue"].get("values", [])}
    return None


def attributes_of(*owners):
    found = {}
    for owner in owners:
        found |= {each.get("key", ""): plain(each.get("value", {})) for each in owner.get("attributes", [])}
    return found


def twin_of_metrics(request, schema, delta_sums, position):
    """Records and rejections of one request, point by point."""
    rows, rejections = [], []
    for of_resource in MessageToDict(request).get("resourceMetrics", []):
        for of_scope in of_resource.get("scopeMetrics", []):
            outer = attributes_of(of_resource.get("resource", {}), of_scope.get("scope", {}))
            joined, metric_names, seen = {}, [], {}
            found = of_scope.get("metrics", [])
            names = [metric.get("name", "") for metric in found]
            for metric in sorted(found, key=lambda metric: names.index(metric.get("name", ""))):
                name = metric.get("name", "")
                if schema.features and name not in schema.features:
                    continue
                kind = next((key for key in ("gauge", "sum") if key in metric), "histogram")
                data = next((each for each in metric.values() if isinstance(each, dict)), {})
                points = data.get("dataPoints", [])
                if kind == "histogram" or kind == "sum":
                    temporality = data.get("aggregationTemporality")
                    is_delta = temporality == "AGGREGATION_TEMPORALITY_DELTA"
                    reason = "histogram" if kind == "histogram" else "delta_sum" if is_delta else "cumulative"
                    if reason != "delta_sum" or not delta_sums:
                        named = name if name in schema.features else None
                        rejections += [Rejection(reason, position, named)] * len(points)
                        continue
                if points:
                    metric_names.append(name)
                of_name = seen.setdefault(name, [])
                for one in points:
                    at = int(one.get("timeUnixNano", 0)) or None
                    marks = sorted(json.dumps(each, sort_keys=True) for each in one.get("attributes", []))
                    place = (at, tuple(marks))
                    if not schema.features:
                        place = (name, len(of_name))
                    of_name.append(place)
                    row = joined.setdefault((place, of_name.count(place)), ({}, attributes_of(one), at))
                    value = None if one.get("flags", 0) & 1 else one.get("asDouble", one.get("asInt"))
                    row[0][name] = None if value is None else float(value)
            for own, inner, at in joined.values():
                metric_values = dict.fromkeys(metric_names) | own
                rows.append(outer | inner | metric_values | {"time_unix_nano": at})
    if not rows and not rejections:
        rejections.append(Rejection("missing", position, next(iter(schema.features), None)))
    return rows, rejections


def twin_of_logs(request, schema, position):
    rows = []
    numbers = {f"SEVERITY_NUMBER_{name}{n or ''}": 1 + i * 4 + (n or 1) - 1
               for i, name in enumerate(("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"))
               for n in (None, 2, 3, 4)}  # fmt: skip
    for of_resource in MessageToDict(request).get("resourceLogs", []):
        for of_scope in of_resource.get("scopeLogs", []):
            outer = attributes_of(of_resource.get("resource", {}), of_scope.get("scope", {}))
            for record in of_scope.get("logRecords", []):
                observed = int(record.get("observedTimeUnixNano", 0)) or None
                rows.append(
                    outer
                    | attributes_of(record)
                    | {
                        "time_unix_nano": int(record.get("timeUnixNano", 0)) or observed,
                        "observed_time_unix_nano": observed,
                        "severity_number": numbers.get(record.get("severityNumber")),
                        "severity_text": record.get("severityText"),
                        "event_name": record.get("eventName"),
                        "body": plain(record.get("body", {})),
                    }
                )
    return rows, [] if rows else [Rejection("missing", position, next(iter(schema.features), None))]


def wanted(rows, rejections, schema, position):
    """What the slow path makes of records, with the decoder's own rejections."""
    names = (schema.time, *schema.features, *schema.labels)
    found = [{name: schema.place(name).find(row) for name in names} for row in rows]
    batch = batch_from_rows(found, [position] * len(found), schema)
    batch.rejections += rejections
    return told(batch, position)


def drawn_metrics(rng):
    request = ExportMetricsServiceRequest()
    for _ in range(rng.choice([0, 1, 1, 2])):
        scope = scope_of(request, host_name=f"h{rng.randrange(2)}", size=rng.randrange(3))
        for name in rng.sample(["temp", "room.humidity", "other", "temp"], rng.randrange(4)):
            metric = scope.metrics.add(name=name)
            kind = rng.choice(["gauge"] * 6 + ["sum", "sum", "histogram", "summary", "exponential_histogram", None])
            if kind == "sum":
                metric.sum.aggregation_temporality = rng.randrange(3)
            for i in range(rng.randrange(4)):
                at = rng.choice([NOW, NOW, NOW + i * 10**6, 0, 2**64 - 1])
                if kind in ("gauge", "sum"):
                    value = rng.choice([1.5, 0.0, 7, 0, -3, None, float("nan"), float("inf")])
                    extra = {"user": rng.choice(["u1", "u2", 5, 1.5, ["x"], b"u", {"a": 1}])}
                    extra |= {"on": True} if rng.random() < 0.5 else {}
                    extra |= {"size": rng.choice([4, 1.5, "x"])} if rng.random() < 0.5 else {}
                    one = point(getattr(metric, kind), value, at, **extra)
                    one.flags = rng.choice([0, 0, 0, 1])
                elif kind is not None:
                    getattr(metric, kind).data_points.add(time_unix_nano=at)
    return request


def drawn_logs(rng):
    request = ExportLogsServiceRequest()
    for _ in range(rng.choice([0, 1, 1, 2])):
        resource = request.resource_logs.add()
        attribute(resource.resource, "service.name", "s")
        scope = resource.scope_logs.add()
        attribute(scope.scope, "size", 3)
        for _ in range(rng.randrange(4)):
            record = scope.log_records.add(
                time_unix_nano=rng.choice([NOW, 0]),
                observed_time_unix_nano=rng.choice([NOW + 10**9, 0]),
                severity_number=rng.randrange(25),
                severity_text=rng.choice(["", "WARN", "far too long"]),
                event_name=rng.choice(["", "login"]),
            )
            any_value(record.body, rng.choice([None, "text", {"took": 1.5}, {"took": {"x": 1}}, {"took": 7}, [1]]))
            attribute(record, "user", rng.choice(["u1", 5, ""]))
            attribute(record, "size", rng.choice([4, 1.5, "x"]))
    return request


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("encoding", [0, 1], ids=["protobuf", "json"])
def test_metrics_are_read_as_the_slow_twin_reads_them(kind, encoding):
    rng = random.Random(f"{kind} {encoding}")
    for delta_sums in (False, True):
        decoder = metrics(kind, **({"delta_sums": True} if delta_sums else {}))
        requests = [drawn_metrics(rng) for _ in range(120)]
        batch = decoder.decode([bodies(request)[encoding] for request in requests], 7)
        for i, request in enumerate(requests):
            rows, rejections = twin_of_metrics(request, SCHEMAS[kind], delta_sums, 7 + i)
            assert told(batch, 7 + i) == wanted(rows, rejections, SCHEMAS[kind], 7 + i), request


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("encoding", [0, 1], ids=["protobuf", "json"])
def test_logs_are_read_as_the_slow_twin_reads_them(kind, encoding):
    rng = random.Random(f"{kind} {encoding}")
    decoder = decoder_for("otlp-logs", LOGS[kind])
    requests = [drawn_logs(rng) for _ in range(120)]
    batch = decoder.decode([bodies(request)[encoding] for request in requests], 7)
    for i, request in enumerate(requests):
        assert told(batch, 7 + i) == wanted(*twin_of_logs(request, LOGS[kind], 7 + i), LOGS[kind], 7 + i), request


@pytest.mark.slow
@pytest.mark.parametrize(("format", "schemas", "draw"), [
    ("otlp-metrics", SCHEMAS, drawn_metrics), ("otlp-logs", LOGS, drawn_logs),
])  # fmt: skip
@pytest.mark.parametrize("encoding", [0, 1], ids=["protobuf", "json"])
def test_whatever_comes_nothing_is_raised(format, schemas, draw, encoding):
    rng = random.Random(f"{format} {encoding}")
    for schema in schemas.values():
        decoder = decoder_for(format, schema)
        for _ in range(10_000 // 40 // len(schemas)):
            group = [shaken(rng, bodies(draw(rng))[encoding]) for _ in range(40)]
            batch = decoder.decode(group, 100)
            assert {each.reason for each in batch.rejections} <= set(REASONS)
            for i in rng.sample(range(40), 3):  # each message is read for itself
                assert told(decoder.decode([group[i]], 5), 5) == told(batch, 100 + i)
                assert unread_of_the_whole(decoder, group[i]) in (None, decoder.unread(group[i]))


def unread_of_the_whole(decoder, body):
    """What `unread` says, of a request that is read to its last byte; None if it cannot be."""
    try:
        return decoder._unread(decoder._request(body, decoder._encodings)[0])
    except (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def test_what_is_not_read_is_counted_without_looking_at_points():
    rng, decoder = random.Random(3), metrics("one")
    for _ in range(100):
        for body in bodies(drawn_metrics(rng)):
            assert decoder.unread(body) == unread_of_the_whole(decoder, body)
    request = one_gauge()
    request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].attributes.add(key="broken")
    body = request.SerializeToString().replace(b"broken", b"\xff" * 6)
    assert decoder.unread(body) == {}
    assert [each.reason for each in decoder.decode([body], 0).rejections] == ["broken_record"]
    assert decoder.unread(b"\n") is None


def test_a_gauge_is_a_record_with_its_attributes():
    for body in bodies(one_gauge(user="anna")):
        batch = metrics("user").decode([body], 3)
        assert batch.times_ms.tolist() == [NOW // 10**6]
        assert batch.values.tolist() == [[21.5]]
        assert (batch.users.tolist(), batch.keys.tolist(), batch.positions.tolist()) == (["anna"], ["h1"], [3])
        assert batch.rejections == []


@pytest.mark.parametrize(("temporality", "declared", "reason"), [
    (CUMULATIVE, False, "cumulative"), (CUMULATIVE, True, "cumulative"), (0, True, "cumulative"),
    (DELTA, False, "delta_sum"), (DELTA, True, None),
])  # fmt: skip
def test_sums_are_read_if_they_are_of_one_interval_and_that_is_declared(temporality, declared, reason):
    request = ExportMetricsServiceRequest()
    metric = scope_of(request).metrics.add(name="temp")
    metric.sum.aggregation_temporality = temporality
    point(metric.sum, 5)
    point(metric.sum, 6)
    decoder = metrics("one", **({"delta_sums": True} if declared else {}))
    for body in bodies(request):
        batch = decoder.decode([body], 0)
        assert batch.values.tolist() == ([] if reason else [[5.0], [6.0]])
        assert batch.rejections == ([Rejection(reason, 0, "temp", 2)] if reason else [])


@pytest.mark.parametrize("kind", ["histogram", "exponential_histogram", "summary"])
def test_distributions_are_rejected_with_the_reason(kind):
    request = ExportMetricsServiceRequest()
    getattr(scope_of(request).metrics.add(name="temp"), kind).data_points.add(time_unix_nano=NOW)
    for body in bodies(request):
        assert metrics("one").decode([body], 0).rejections == [Rejection("histogram", 0, "temp")]


def test_a_request_without_any_metric_that_is_asked_for_is_told():
    request = ExportMetricsServiceRequest()
    point(scope_of(request).metrics.add(name="cpu").gauge)
    foreign = [*bodies(request), b"", b"{}", b'{"resourceLogs": []}']
    batch = metrics("one").decode(foreign, 0)
    assert batch.rejections == [Rejection("missing", i, "temp") for i in range(len(foreign))]


def test_both_encodings_may_come_mixed_and_json_may_begin_with_blanks():
    proto, text = bodies(one_gauge(user="u"))
    batch = metrics("one").decode([proto, text, b" \n" + text, b"\n" + text, proto + text, text[:-1], b"\xff"], 0)
    assert batch.positions.tolist() == [0, 1, 2, 3]
    assert batch.rejections == [Rejection("broken_record", i) for i in (4, 5, 6)]


def test_points_join_in_any_order_of_theirs():
    request = ExportMetricsServiceRequest()
    scope = scope_of(request)
    temp, humidity = scope.metrics.add(name="temp"), scope.metrics.add(name="room.humidity")
    for i in range(3):
        point(temp.gauge, float(i), NOW, user=f"u{i}")
    for i in (2, 0, 1):
        point(humidity.gauge, 10.0 * i, NOW, user=f"u{i}")
    batch = metrics("join").decode(bodies(request), 0)
    assert batch.values.tolist() == [[0.0, 0.0], [1.0, 10.0], [2.0, 20.0]] * 2
    assert batch.users.tolist() == ["u0", "u1", "u2"] * 2


def test_of_a_long_request_so_many_rows_are_read_and_the_rest_is_told(monkeypatch):
    monkeypatch.setattr("fcstream.formats.otlp.max_rows", lambda dimension: 3)
    request = ExportMetricsServiceRequest()
    scope = scope_of(request)
    for _ in range(2):
        metric = scope.metrics.add(name="temp")
        for i in range(2):
            point(metric.gauge, float(i), NOW + i)
    for body in bodies(request):
        batch = metrics("one").decode([body], 0)
        assert batch.values.tolist() == [[0.0], [1.0], [0.0]]
        assert batch.rejections == [Rejection("too_long", 0)]
    assert max_rows(1) == LONGEST_MESSAGE // 16


def test_hostile_requests():
    deep = b'{"resourceMetrics":[{"resource":{"attributes":[{"key":"user","value":' + (
        b'{"arrayValue":{"values":[' * 30_000
    )
    nested = ExportMetricsServiceRequest()
    value = nested.resource_metrics.add().resource.attributes.add().value
    for _ in range(90):
        value = value.array_value.values.add()
    long = b"\x0a" * (LONGEST_MESSAGE + 1)
    batch = metrics("user").decode([deep, b"\x0a" * 10**5, long, nested.SerializeToString(), b"\x0a\xff" * 1000], 0)
    assert {each.reason for each in batch.rejections} <= {"broken_record", "missing"}
    assert len(batch.rejections) == 5
    assert np.isfinite(batch.values).all()


def test_lists_of_records_are_the_format_s_own():
    schema = Schema("time_unix_nano", "ns", ("temp",), records=FieldPath(("x",)))
    with pytest.raises(ConfigError, match=r"^source\.records: must be left out with OTLP"):
        decoder_for("otlp-metrics", schema)
    with pytest.raises(ConfigError, match=r"^source\.delta_sums: belongs to format = 'otlp-metrics'"):
        decoder_for("otlp-logs", SCHEMAS["one"], {"delta_sums": True})
