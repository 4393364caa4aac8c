"""Real clients that send over HTTP: OpenTelemetry's exporters and InfluxDB's client."""

import gzip
import json
import threading
import time
from collections import Counter

import pytest
from support.http_in import JSON, bodies, post, serving, stored

from fcstream.formats.batch import Schema

PROTOBUF = {"Content-Type": "application/x-protobuf"}
METRIC = Schema("time_unix_nano", "ns", ("room.temperature",))


def decoded(kinds, source):
    return kinds.decode(stored(source), 0)


def metrics_request(**options):
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    gauge = scope.metrics.add(name="room.temperature").gauge
    for i in range(options.get("gauges", 2)):
        gauge.data_points.add(time_unix_nano=1_000_000 * (i + 1), as_double=20.0 + i)
    for _ in range(options.get("histograms", 0)):
        scope.metrics.add(name="room.temperature").histogram.data_points.add(count=1, time_unix_nano=1)
    return request


def test_the_sdk_exports_metrics(tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    kinds = bodies("otlp-metrics", METRIC)
    with serving(tmp_path, kinds=kinds) as source:
        for compression in (Compression.NoCompression, Compression.Gzip, Compression.Deflate):
            exporter = OTLPMetricExporter(f"http://127.0.0.1:{source.port}/v1/metrics", compression=compression)
            reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
            provider = MeterProvider([reader])
            gauge = provider.get_meter("test").create_gauge("room.temperature")
            for room, value in (("blue", 20.5), ("red", 21)):
                gauge.set(value, {"room": room})
            provider.get_meter("test").create_counter("other").add(3)
            assert provider.force_flush(60_000)
            provider.shutdown()
        assert source.queue.refused == {}
        batch = decoded(kinds, source)
        found = Counter(batch.values[:, 0].tolist())
        assert found == {20.5: found[20.5], 21.0: found[20.5]}
        assert found[20.5] >= 3
        assert abs(int(batch.times_ms[0]) - time.time() * 1000) < 600_000
        # The export at the end of older SDKs has the counter alone, since nobody set the gauge again.
        assert {each.reason for each in batch.rejections} <= {"missing"}
        assert found[20.5] + sum(each.count for each in batch.rejections) in (3, 6)


def test_the_sdk_tries_again_after_503(tmp_path, monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from fcstream.connectors.http import source as module

    kinds = bodies("otlp-metrics", METRIC)
    with serving(tmp_path, kinds=kinds) as source:
        monkeypatch.setattr(module, "_HELD_BYTES", 0)

        def make_room():
            until = time.monotonic() + 60
            while not source.queue.refused and time.monotonic() < until:
                time.sleep(0.01)
            monkeypatch.setattr(module, "_HELD_BYTES", 1 << 20)

        room = threading.Thread(target=make_room)
        room.start()
        exporter = OTLPMetricExporter(f"http://127.0.0.1:{source.port}/v1/metrics")
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)])
        provider.get_meter("test").create_gauge("room.temperature").set(1.5)
        assert provider.force_flush(60_000)
        provider.shutdown()
        room.join()
        assert source.queue.refused.keys() == {"busy"}
        assert decoded(kinds, source).values[0, 0] == 1.5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's own handler
def test_the_sdk_exports_logs(tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http._log_exporter")
    import logging

    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    kinds = bodies("otlp-logs", Schema("time_unix_nano", "ns", ("duration",)))
    with serving(tmp_path, kinds=kinds) as source:
        provider = LoggerProvider()
        provider.add_log_record_processor(
            SimpleLogRecordProcessor(OTLPLogExporter(f"http://127.0.0.1:{source.port}/v1/logs"))
        )
        logger = logging.Logger("requests")
        logger.addHandler(LoggingHandler(logger_provider=provider))
        logger.warning("done", extra={"duration": 0.25})
        provider.shutdown()
        assert decoded(kinds, source).values.tolist() == [[0.25]]


def test_answers_to_exporters_have_the_encoding_of_the_request(tmp_path):
    from google.protobuf.json_format import MessageToJson
    from google.rpc.status_pb2 import Status
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

    whole, part = metrics_request(), metrics_request(histograms=3)
    with serving(tmp_path, kinds=bodies("otlp-metrics", METRIC)) as source:
        code, headers, text = post(source.port, whole.SerializeToString(), PROTOBUF, "/v1/metrics")
        assert (code, headers["Content-Type"], text) == (200, "application/x-protobuf", b"")
        code, headers, text = post(source.port, MessageToJson(whole).encode(), JSON, "/v1/metrics")
        assert (code, headers["Content-Type"], text) == (200, "application/json", b"{}")

        code, _, text = post(source.port, part.SerializeToString(), PROTOBUF, "/v1/metrics")
        assert code == 200
        partial = ExportMetricsServiceResponse.FromString(text).partial_success
        assert partial.rejected_data_points == 3
        assert "histogram (room.temperature)" in partial.error_message
        code, _, text = post(source.port, MessageToJson(part).encode(), JSON, "/v1/metrics")
        assert code == 200
        assert json.loads(text)["partialSuccess"]["rejectedDataPoints"] == "3"

        code, headers, text = post(source.port, b"\xff\xff", PROTOBUF, "/v1/metrics")
        assert (code, headers["Content-Type"]) == (400, "application/x-protobuf")
        assert Status.FromString(text).code == 3
        assert "no request" in Status.FromString(text).message
        code, headers, text = post(source.port, b"{", JSON, "/v1/metrics")
        assert (code, headers["Content-Type"]) == (400, "application/json")
        assert json.loads(text)["code"] == 3
        long = gzip.compress(bytes(20 << 20))
        code, _, text = post(source.port, long, PROTOBUF | {"Content-Encoding": "gzip"}, "/v1/metrics")
        assert code == 413
        assert "4194304 bytes" in Status.FromString(text).message
        assert post(source.port, b"", PROTOBUF, "/v1/logs")[0] == 404
        assert post(source.port, b"", {"Content-Type": "text/plain"}, "/v1/metrics")[0] == 415
        assert len(stored(source)) == 4
        assert source.queue.refused == {"broken": 2, "too_large": 1, "not_found": 1, "type": 1}


def test_a_request_without_any_metric_that_is_read_is_no_fault(tmp_path):
    with serving(tmp_path, kinds=bodies("otlp-metrics", Schema("time_unix_nano", "ns", ("another",)))) as source:
        assert post(source.port, metrics_request().SerializeToString(), PROTOBUF, "/v1/metrics")[2] == b""


POINT = Schema("time", "ns", ("temp",))


def test_influxdbs_client_writes(tmp_path):
    influxdb = pytest.importorskip("influxdb_client")
    from influxdb_client.client.write_api import SYNCHRONOUS, WriteOptions

    token = "a-token-of-many-characters"
    kinds = bodies("influx", POINT)
    with serving(tmp_path, f"http://127.0.0.1:0?token={token}", kinds=kinds) as source:
        url = f"http://127.0.0.1:{source.port}"
        with influxdb.InfluxDBClient(url, token, org="o", enable_gzip=True) as client:
            writer = client.write_api(SYNCHRONOUS)
            for i, precision in enumerate(("ns", "us", "ms", "s")):
                ticks = 10 ** (9 - 3 * i)
                point = influxdb.Point("room").tag("name", "blue").field("temp", 20.5 + i).time(7 * ticks, precision)
                writer.write("b", record=point, write_precision=precision)
            with client.write_api(WriteOptions(batch_size=50)) as batching:
                for i in range(100):
                    batching.write("b", record=f"room temp={i} {i}000000", write_precision="ns")
        with influxdb.InfluxDBClient(url, "another-token-of-many", org="o") as client:
            with pytest.raises(influxdb.rest.ApiException) as caught:
                client.write_api(SYNCHRONOUS).write("b", record="room temp=1 1")
            assert caught.value.status == 401
            assert "no valid token" in caught.value.message
        batch = decoded(kinds, source)
    assert batch.rejections == []
    assert batch.times_ms.tolist() == [7000] * 4 + list(range(100))
    assert batch.values[:4, 0].tolist() == [20.5, 21.5, 22.5, 23.5]


def test_a_broken_line_takes_no_other_with_it(tmp_path):
    kinds = bodies("influx", POINT)
    with serving(tmp_path, kinds=kinds) as source:
        lines = b"room temp=1 1000000\nbroken\n# comment\n\nroom temp=2 2000000\n"
        assert post(source.port, lines, {}, "/api/v2/write?bucket=b&org=o")[0] == 204
        assert post(source.port, b"room temp=3 3", {}, "/api/v2/write?precision=ms")[0] == 204
        assert post(source.port, b"room temp=3 3", {}, "/api/v2/write?precision=h")[0] == 400
        assert post(source.port, b" ", {}, "/api/v2/write")[0] == 400
        assert post(source.port, b"{}", JSON, "/ingest")[0] == 404
        batch = decoded(kinds, source)
    assert batch.times_ms.tolist() == [1, 2, 3]
    assert [(each.reason, each.position) for each in batch.rejections] == [("broken_record", 0)]
