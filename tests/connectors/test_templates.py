"""The sample configurations that `fcstream init` writes for brokers answer a live stream of each."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from support import rabbitmq, redis_server
from support.helpers import free_port
from support.kafka_mock import mock

from fcstream.cli.templates import template


@contextlib.contextmanager
def kafka(request):
    from confluent_kafka import Producer

    with mock() as (address, _):
        producer = Producer({"bootstrap.servers": address})

        def send(body):
            producer.produce("rooms", body)
            assert producer.flush(60) == 0

        send(b"{}")
        yield {"127.0.0.1:9092": address}, send


@contextlib.contextmanager
def redis(request):
    client, key, _ = request.getfixturevalue("redis_stream")
    yield (
        {"127.0.0.1:6379": redis_server.HOST, "stream=rooms": f"stream={key}"},
        lambda body: redis_server.add(client, key, [body]),
    )


@contextlib.contextmanager
def nats(request):
    from support.nats_server import HOST

    server, name = request.getfixturevalue("nats_server"), request.getfixturevalue("nats_stream")
    yield {"127.0.0.1:4222": HOST, "/rooms": f"/{name}"}, lambda body: server.add(name, [body])


@contextlib.contextmanager
def rabbitmq_stream(request):
    name = request.getfixturevalue("rabbitmq_stream")
    changes = {"127.0.0.1:5552": rabbitmq.STREAMS, "stream=rooms": f"stream={name}"}
    yield changes, lambda body: rabbitmq.publish(name, [body])


@contextlib.contextmanager
def amqp(request):
    name = request.getfixturevalue("classic")
    changes = {"127.0.0.1:5672": rabbitmq.HOST, "queue=rooms": f"queue={name}"}
    yield changes, lambda body: rabbitmq.publish(name, [body])


@contextlib.contextmanager
def mqtt(request):
    from support.mqtt import HOST

    client, topic = request.getfixturevalue("mqtt_client"), request.getfixturevalue("mqtt_topic")
    yield (
        {"127.0.0.1:1883": HOST, "/rooms/": f"/{topic}/"},
        lambda body: client.publish(f"{topic}/one/telemetry", [body]),
    )


@contextlib.contextmanager
def http(request):
    port = free_port()

    def send(body):
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/ingest", body, {"Content-Type": "application/json"})
        with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=60):  # it may not listen yet
            pass

    yield {"127.0.0.1:4318": f"127.0.0.1:{port}"}, send


@contextlib.contextmanager
def stdin(request):
    yield {}, None


SENDERS = {
    "kafka": kafka,
    "redis": redis,
    "nats": nats,
    "rabbitmq-stream": rabbitmq_stream,
    "amqp": amqp,
    "mqtt": mqtt,
    "http": http,
    "stdin": stdin,
}


@pytest.mark.slow
@pytest.mark.parametrize("source", SENDERS)
def test_it_answers_a_live_stream(source, request, tmp_path):
    with SENDERS[source](request) as (changes, send):
        text = template("count", source)
        for old, new in {"10m": "2s", "30s": "1s", **changes}.items():
            assert old in text
            text = text.replace(old, new)
        name = f"fcstream-test-{os.getpid()}-{source}"
        (tmp_path / "rooms.toml").write_text(text.replace('name = "rooms"', f'name = "{name}"'))
        with open(tmp_path / "out", "wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "fcstream", "run", "rooms.toml"],
                cwd=tmp_path,
                env=os.environ | {"RABBITMQ_PASSWORD": "guest"},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.PIPE,
            )
        try:
            until = time.monotonic() + 240
            while time.monotonic() < until and process.poll() is None and not answered(tmp_path / "out"):
                (send or process.stdin.write)(b'{"ts_ms": %d, "temp_c": 20.0}\n' % (time.time_ns() // 10**6))
                process.stdin.flush()
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            errors = process.communicate(timeout=120)[1]
        finally:
            process.kill()
        assert process.returncode == 0, errors
        assert answered(tmp_path / "out"), errors


def answered(path):
    """Whether a window was released that holds what was sent."""
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    found = [json.loads(line) for line in lines]
    return any(release["status"] == "released" and release["value"][0] > 8 for release in found)
