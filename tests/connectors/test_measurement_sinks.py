"""Releases as points of InfluxDB and as gauges of OpenTelemetry: what a receiver finds that parses with their
libraries."""

import itertools
import signal
import ssl
import threading
import urllib.parse
from dataclasses import replace

import line_protocol_parser
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from support.certificates import certificates
from support.hook import Hook
from support.piped import piped
from support.sources import SECRET, until

from fcstream.connectors import check_sink, open_sink
from fcstream.connectors.influx.sink import InfluxSink
from fcstream.connectors.otlp.sink import OtlpSink
from fcstream.connectors.probes import Checkup, probe_sink
from fcstream.connectors.urls import mask
from fcstream.errors import ConfigError, SinkError
from fcstream.releases.long_form import long_form
from fcstream.testing import SinkContract, sample_release

NAMES = (None, "all", "busy hours", "idle")
KNOWN = {
    (one.window_open_ms, one.name or one.kind): one
    for one in (replace(sample_release(i), name=name) for i in range(5) for name in NAMES)
}


@pytest.fixture
def hook():
    with Hook() as hook:
        yield hook
        hook.shutdown()


def points(hook):
    """What InfluxDB would store of every request."""
    return [line_protocol_parser.parse_line(line) for _, _, body in hook.asked for line in body.splitlines()]


def gauges(body):
    """The data points of one request: (gauge, attributes, start, time, number)."""
    found = []
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for metric in itertools.chain.from_iterable(scope.metrics for scope in resource.scope_metrics):
            for point in metric.gauge.data_points:
                attributes = {one.key: one.value.string_value for one in point.attributes}
                number = getattr(point, point.WhichOneof("value"))
                found.append((metric.name, attributes, point.start_time_unix_nano, point.time_unix_nano, number))
    return found


def known(found, place):
    """The releases that (opening, answer, name, value) tell of, each once for its last number."""
    releases = []
    for open_ms, answer, name, value in found:
        release = KNOWN[open_ms, answer]
        rows = list(long_form([release]))
        assert (name, value) in {(row.name, row.value) for row in rows}
        if name == rows[-1].name:
            releases.append(replace(release, place=place.get(release.name)))
    return releases


PLACES = {"all": 0, "busy hours": 1, "idle": 2}


class TestInfluxSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, hook):
        self.hook = hook

    def make(self, tmp_path):
        return open_sink(self.hook.url.replace("http", "influx") + "?bucket=releases&org=ours&token=abc")

    def read(self, tmp_path):
        found = []
        for point in points(self.hook):
            about = point["tags"]
            found.append((point["time"] // 10**6, about["answer"], about["name"], point["fields"]["value"]))
        return known(found, PLACES)


class TestOtlpSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self, hook):
        self.hook = hook

    def make(self, tmp_path):
        return open_sink(self.hook.url.replace("http", "otlp"))

    def read(self, tmp_path):
        found = []
        for _, _, body in self.hook.asked:
            for gauge, about, start, _, number in gauges(body):
                if gauge == "fcstream.value":
                    found.append((start // 10**6, about["answer"], about["name"], number))
        return known(found, PLACES)


def test_a_request_to_influxdb(hook):
    sink = open_sink(hook.url.replace("//", "//me:pass%20word@").replace("http", "influx") + "?bucket=b%26c&org=our+s")
    release = replace(sample_release(1), stream="a b/k", key="k")
    refused = replace(sample_release(2), status="refused", reason="too_few", value=None, sigma=None, count=None)
    sink.write([release, refused])
    ((path, headers, _),) = hook.asked
    target = urllib.parse.urlsplit(path)
    assert target.path == "/api/v2/write"
    assert urllib.parse.parse_qs(target.query) == {"bucket": ["b&c"], "org": ["our s"], "precision": ["ns"]}
    assert headers["Authorization"] == "Token me:pass word"
    assert headers["Content-Type"].startswith("text/plain")
    found = points(hook)
    assert {p["tags"]["stream"] for p in found} == {"a b", "sample"}
    assert found[0]["tags"]["key"] == "k"
    assert found[-1]["fields"] == {"status": "refused", "reason": "too_few"}
    assert [p["time"] for p in found] == [60_000 * 10**6] * (len(found) - 1) + [120_000 * 10**6]
    assert sink.last() is None
    assert sink.missing([release]) == [release]
    sink.close()


def test_a_request_to_a_collector(hook):
    sink = open_sink(hook.url.replace("http", "otlp") + f"?token={SECRET}&header.X-Tenant=t%201")
    release = replace(sample_release(1), stream="a b/k", key="k", features=["x", "y"], value=[1.5, 2], sigma=[0.5, 3])
    refused = replace(sample_release(2), status="refused", reason="too_few", value=None, sigma=None, count=None)
    sink.write([release, refused])
    ((path, headers, body),) = hook.asked
    assert path == "/v1/metrics"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["X-Tenant"] == "t 1"
    one = {"stream": "a b", "key": "k", "answer": release.kind, "kind": release.kind}
    two = {"stream": "sample", "answer": release.kind, "kind": release.kind}
    span, later = (60_000 * 10**6, 120_000 * 10**6), (120_000 * 10**6, 180_000 * 10**6)
    assert gauges(body) == [
        ("fcstream.value", one | {"name": "x"}, *span, 1.5),
        ("fcstream.value", one | {"name": "y"}, *span, 2.0),
        ("fcstream.sigma", one | {"name": "x"}, *span, 0.5),
        ("fcstream.sigma", one | {"name": "y"}, *span, 3.0),
        ("fcstream.count", one, *span, release.count),
        ("fcstream.released", one, *span, 1),
        ("fcstream.released", two | {"reason": "too_few"}, *later, 0),
    ]
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert resource.resource.attributes[0].value.string_value == "fcstream"
    sink.close()


@pytest.mark.parametrize(("scheme", "more"), [("influx", "?bucket=b"), ("otlp", "")])
@pytest.mark.parametrize("step", [429, 503, (503, {"Retry-After": "0"})], ids=str)
def test_what_is_tried_again(hook, scheme, more, step):
    hook.script = [step, step]
    sink = open_sink(hook.url.replace("http", scheme) + more)
    sink.write([sample_release(0)])
    assert len({body for _, _, body in hook.asked}) == 1
    assert len(hook.asked) == 3
    hook.script = [400]
    with pytest.raises(SinkError, match=r"refuses a release with status 400: correct `sink.url`") as caught:
        sink.write([sample_release(1)])
    assert SECRET not in str(caught.value)
    sink.close()


def partly(handler):
    """A collector that takes a request, but not all of its data points."""
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 2
    response.partial_success.error_message = SECRET
    body = response.SerializeToString()
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def test_a_collector_that_takes_a_part_refuses(hook):
    hook.script = [partly]
    sink = open_sink(hook.url.replace("http", "otlp"))
    with pytest.raises(SinkError, match="did not take 2 data points") as caught:
        sink.write([sample_release(0)])
    assert SECRET not in str(caught.value)
    sink.write([sample_release(0)])
    assert hook.asked[0] == hook.asked[1]
    sink.close()


def test_a_write_goes_on_where_it_was(hook, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.otlp.sink._TOGETHER", 2)
    monkeypatch.setattr("fcstream.connectors.influx.sink._TOGETHER_BYTES", 1)
    for scheme, more in (("influx", "?bucket=b"), ("otlp", "")):
        hook.asked, hook.script = [], [200, 400]
        sink = open_sink(hook.url.replace("http", scheme) + more)
        sent = [sample_release(i) for i in range(4)]
        with pytest.raises(SinkError):
            sink.write(sent)
        sink.write(sent)
        bodies = [body for _, _, body in hook.asked]
        assert len(bodies) - 1 == len(set(bodies)), "the first was not sent again, the refused one was"
        sink.close()


def test_tls(hook, tmp_path):
    made = certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.server_key)
    hook.socket = context.wrap_socket(hook.socket, server_side=True)
    for scheme, more in (("influxs", "?bucket=b&"), ("otlps", "?")):
        url = f"{scheme}://localhost:{hook.server_port}{more}"
        sink = open_sink(f"{url}ca={made.ca}")
        sink.write([sample_release(0)])
        sink.close()
        with pytest.raises(SinkError, match=r"must have a certificate that is trusted.*as `ca`"):
            open_sink(f"{url}patience=1").write([sample_release(0)])
    assert len(hook.asked) == 2


@pytest.mark.parametrize(
    "url",
    [
        "influx:file",
        "influx://",
        "influx://localhost",
        "influx://localhost?bucket=b&buckets=c",
        "influx://a,b?bucket=b",
        "influx://localhost?bucket=b&token=%0a",
        "otlp://",
        "otlp://a,b",
        "otlp://me:pw@localhost",
        "otlp://localhost?header.Content-Type=x",
        "otlp://localhost?header.X=%0a",
        "otlp://localhost?other=1",
    ],
)
def test_addresses_that_are_none(url):
    with pytest.raises(ConfigError, match=r"^sink\.url: "):
        open_sink(url)


def test_secrets_are_hidden():
    assert check_sink("influx://host?bucket=b") is InfluxSink
    assert check_sink("otlps://host") is OtlpSink
    shown = mask("influx://host/?bucket=b&org=o&token=SECRET")
    assert shown == "influx://host/?bucket=b&org=o&token=***"
    assert "SECRET" not in mask("otlp://host?header.X-Key=SECRET")


def test_doctor_looks_and_sends_nothing(hook):
    checkup = Checkup(1000)
    for scheme, more in (("influx", "?bucket=b"), ("otlp", "")):
        probe_sink(checkup, hook.url.replace("http", scheme) + more)
        probe_sink(checkup, f"{scheme}://127.0.0.1:1{more}")
    assert [finding.level for finding in checkup.findings] == ["ok", "problem"] * 2
    assert hook.asked == []


@pytest.mark.beside
@pytest.mark.parametrize("scheme", ["influx", "otlp"])
def test_every_window_arrives_though_the_stream_is_killed(folder, scheme):
    with Hook() as hook:
        gate = threading.Event()
        hook.script = [200, lambda handler: gate.wait(60)]  # the second is taken, and its sender does not hear of it
        url = hook.url.replace("http", scheme) + ("?bucket=b" if scheme == "influx" else "")
        with piped(folder, url) as it:
            process = it.start()
            until(lambda: len(hook.asked) >= 2)
            process.send_signal(signal.SIGKILL)
            process.wait()
            gate.set()
            it.kill()
            it.start()
            until(lambda: len(hook.asked) >= 6)
            assert it.end()[0] == 0
        opens = []
        for _, _, body in hook.asked:
            if scheme == "influx":
                opens += [line_protocol_parser.parse_line(line)["time"] // 10**6 for line in body.splitlines()]
            else:
                opens += [start // 10**6 for name, _, start, _, _ in gauges(body) if name == "fcstream.value"]
        assert sorted(set(opens)) == list(range(min(opens), max(opens) + 1, 1000)), "none is missing"
        hook.shutdown()
