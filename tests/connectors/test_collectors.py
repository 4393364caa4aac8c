"""The examples for other programs: their documented messages come over the real transport, and releases come out.

The programs are not on this machine. What they send stands in their own documentation, which each test names; only
times and names of devices are those of the test.
"""

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request

import line_protocol_parser
import pytest
import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from support import REPOSITORY
from support.helpers import free_port
from support.hook import Hook
from support.mqtt import HOST, MqttClient, forget
from support.sources import until

from fcstream import Release
from fcstream.releases.long_form import long_form

EXAMPLES = REPOSITORY / "examples"
NAMES = ("chirpstack", "opentelemetry-collector", "telegraf", "vector", "zigbee2mqtt")
DEVICES = 200


class Example:
    """The command with an example's configuration, its windows shortened, in a folder of its own."""

    def __init__(self, folder, name, changes):
        self.folder, text = folder, (EXAMPLES / name / "fcstream.toml").read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        (folder / "c.toml").write_text(text)

    def start(self):
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fcstream", "run", "c.toml"],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        until((self.folder / "spool" / "lock").exists)

    def lines(self):
        with contextlib.suppress(FileNotFoundError):
            return [Release.from_bytes(line) for line in (self.folder / "releases.jsonl").read_bytes().splitlines()]
        return []

    def until_after(self, moment_ms):
        """Wait for the releases of all windows up to a moment; returns the sums of their numbers, by name."""
        until(lambda: any(release.window_open_ms > moment_ms for release in self.lines()))
        return sums((row.name, row.value) for row in long_form(self.lines()))

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        with self.process.stdout as stdout:
            stdout.read()
        assert self.process.wait(120) == 0, (self.folder / "log").read_text()


@contextlib.contextmanager
def example(folder, name, **changes):
    it = Example(folder, name, changes)
    it.start()
    try:
        yield it
    finally:
        it.close()


def sums(pairs):
    found = {}
    for name, value in pairs:
        found[name] = found.get(name, 0.0) + value
    return found


def now_ms():
    return time.time_ns() // 10**6


def check(found, name):
    """A window's noise has a deviation of about 3, and the devices are in a few windows."""
    assert abs(found.pop(name) - DEVICES) < 70, (name, found)
    assert all(abs(value) < 70 for value in found.values()), found


def listening(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_its_other_half_can_be_read(name):
    assert len((EXAMPLES / name / "fcstream.toml").read_text().splitlines()) < 30
    (other,) = (path for path in (EXAMPLES / name).iterdir() if path.name != "fcstream.toml")
    text = other.read_text()
    assert yaml.safe_load(text) if other.suffix == ".yaml" else tomllib.loads(text)
    done = subprocess.run(
        [sys.executable, "-m", "fcstream", "plan", str(EXAMPLES / name / "fcstream.toml")], capture_output=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.beside
def test_zigbee2mqtt(folder):
    """Zigbee2MQTT, "MQTT Topics and Messages", with all that the page of the sensor WSDCGQ01LM lists under "Exposes":
    by default a message holds what did not change too."""
    base = f"zigbee-{os.getpid()}"
    changes = {"localhost:1883/zigbee2mqtt": f"{HOST}/{base}", '"15m"': '"4s"', '"rooms"': f'"{base}"'}
    with contextlib.closing(MqttClient(HOST)) as client, example(folder, "zigbee2mqtt", **changes) as it:
        for device in range(DEVICES):
            reading = {"battery": 91, "humidity": 44.72, "linkquality": 97, "temperature": 27.34, "voltage": 2985}
            client.publish(f"{base}/sensor {device}", [json.dumps(reading).encode()])
        client.publish(f"{base}/a switch", [b'{"action": "single"}'])
        client.publish(f"{base}/sensor 1/availability", [b'{"state":"online"}'])
        client.publish(f"{base}/bridge/state", [b'{"state":"online"}'])
        check(it.until_after(now_ms()), "temperature/26..28")
    forget(HOST, f"fcstream-{base}")


@pytest.mark.beside
def test_chirpstack(folder):
    """ChirpStack, "Event types", the event `up`; `object` is what a codec makes of `data`."""
    base = f"application-{os.getpid()}"
    changes = {
        "localhost:1883/application": f"{HOST}/{base}",
        '"1h"': '"4s"',
        '"1m"': '"10s"',
        '"devices"': f'"{base}"',
    }
    with contextlib.closing(MqttClient(HOST)) as client, example(folder, "chirpstack", **changes) as it:
        for device in range(DEVICES):
            seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
            event = {
                "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
                "time": f"{seconds}.775023242+00:00",
                "deviceInfo": {
                    "tenantId": "52f14cd4-c6f1-4fbd-8f87-4025e1d49242",
                    "tenantName": "ChirpStack",
                    "applicationId": "17c82e96-be03-4f38-aef3-f83d48582d97",
                    "applicationName": "Test application",
                    "deviceProfileId": "14855bf7-d10d-4aee-b618-ebfcb64dc7ad",
                    "deviceProfileName": "Test device-profile",
                    "deviceName": "Test device",
                    "devEui": f"{device:016x}",
                    "tags": {"key": "value"},
                },
                "devAddr": "00189440",
                "dr": 1,
                "fPort": 1,
                "data": "qg==",
                "object": {"temperature": 21.5},
                "rxInfo": [
                    {
                        "gatewayId": "0016c001f153a14c",
                        "uplinkId": 4217106255,
                        "rssi": -36,
                        "snr": 10.5,
                        "context": "E3OWOQ==",
                        "metadata": {"region_name": "eu868", "region_common_name": "EU868"},
                    }
                ],
                "txInfo": {
                    "frequency": 867100000,
                    "modulation": {"lora": {"bandwidth": 125000, "spreadingFactor": 11, "codeRate": "CR_4_5"}},
                },
            }
            topic = f"{base}/17c82e96-be03-4f38-aef3-f83d48582d97/device/{device:016x}/event/up"
            client.publish(topic, [json.dumps(event).encode()])
        check(it.until_after(now_ms()), "temperature/20..30")
    forget(HOST, f"fcstream-{base}")


@pytest.mark.beside
def test_vector(folder):
    """Vector, "VRL function reference", what `parse_nginx_log` makes of a line in the format `combined`, sent as the
    page "HTTP" (sinks) says of lines of JSON."""
    port = free_port()
    with example(folder, "vector", **{"127.0.0.1:4318": f"127.0.0.1:{port}", '"1m"': '"4s"'}) as it:
        until(lambda: listening(port))
        event = {"agent": "Mozilla/5.0 (Windows NT 6.1)", "compression": "2.75", "size": 153, "status": 404}
        event |= {"referer": "http://localhost/somewhere", "request": "POST /not-found HTTP/1.1", "user": "alice"}
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        lines = [json.dumps(event | {"client": f"10.0.0.{i}", "timestamp": stamp}) for i in range(DEVICES)]
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/ingest",
            gzip.compress("".join(f"{line}\n" for line in lines).encode()),
            {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip", "User-Agent": "Vector/0.50.0"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 204
        check(it.until_after(now_ms()), "size/100..1000")


@pytest.mark.beside
def test_telegraf(folder):
    """Telegraf, "CPU Input Plugin", the point of `cpu-total`, written to the pipe as "Execd Processor Plugin" says."""
    changes = {"/var/lib/fcstream/": "", '"1m"': '"4s"'}
    with example(folder, "telegraf", **changes) as it:
        for device in range(DEVICES):
            fields = "usage_guest=1.036269430422946,usage_guest_nice=0,usage_idle=82.3834196941197,usage_iowait=0"
            fields += ",usage_irq=0,usage_nice=0,usage_softirq=1.0362694300459534,usage_steal=0"
            more = "usage_system=4.145077721691784,usage_user=11.398963731636465"
            line = f"cpu,cpu=cpu-total,host=host{device} {fields},{more} {time.time_ns()}\n"
            it.process.stdin.write(line.encode())
        it.process.stdin.flush()
        sent, found = time.time_ns(), []
        while not found or found[-1]["time"] <= sent:
            found.append(line_protocol_parser.parse_line(it.process.stdout.readline()))
        check(sums((p["tags"]["name"], p["fields"]["value"]) for p in found), "usage_idle/80..100")


@pytest.mark.beside
def test_opentelemetry_collector(folder):
    """OpenTelemetry Collector, "Host Metrics Receiver", scraper `memory`, with `host.name` from "Resource Detection
    Processor", sent as "OTLP/HTTP Exporter" does."""
    port = free_port()
    with Hook() as hook:
        changes = {"127.0.0.1:4318": f"127.0.0.1:{port}", "otlp://127.0.0.1:4320": hook.url.replace("http", "otlp")}
        with example(folder, "opentelemetry-collector", **changes, **{'"1m"': '"4s"'}):
            until(lambda: listening(port))
            message = ExportMetricsServiceRequest()
            for device in range(DEVICES):
                resource = message.resource_metrics.add()
                resource.resource.attributes.add(key="host.name").value.string_value = f"host{device}"
                scope = resource.scope_metrics.add()
                metric = scope.metrics.add(name="system.memory.utilization", unit="1")
                for state, part in (("free", 0.6), ("used", 0.31), ("buffered", 0.09)):
                    point = metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_double=part)
                    point.attributes.add(key="state").value.string_value = state
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/metrics",
                gzip.compress(message.SerializeToString()),
                {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 200
            sent = time.time_ns()
            until(lambda: any(start > sent for start, _, _ in released(hook)))
            check(sums((name, value) for _, name, value in released(hook)), "used/0.2..0.4")
        hook.shutdown()


def released(hook):
    """What the collector gets back: (opening, name, value)."""
    found = []
    for _, _, body in hook.asked:
        for metric in ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == "fcstream.value":
                for point in metric.gauge.data_points:
                    names = {one.key: one.value.string_value for one in point.attributes}
                    found.append((point.start_time_unix_nano, names["name"], point.as_double))
    return found
