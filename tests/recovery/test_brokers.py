"""One process that reads every kind of broker at once, each a stream of its own, and is killed: all records count."""

import contextlib
import json
import math
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from functools import partial

import pytest
from support import kafka_mock
from support.helpers import counting_job, free_port
from support.mqtt import HOST as MQTT
from support.mqtt import forget
from support.nats_server import HOST as NATS
from support.rabbitmq import HOST as RABBIT
from support.rabbitmq import STREAMS, amqp, declared

from fcstream import Release
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

LENGTH_MS = 5000
START = """
import confluent_kafka, nats, paho.mqtt.client, pika, redis, rstream
from fcstream.planning.warmup import warm_up
warm_up("count")
"""


class Places:
    """Where records are sent, by name; `send` puts one record with an identity there."""

    def __init__(self):
        self.urls, self.sends, self.forgetful = {}, {}, set()

    def add(self, name, url, send, forgetful=False):
        self.urls[name], self.sends[name] = url, send
        if forgetful:
            self.forgetful.add(name)


@pytest.fixture
def places(redis_client, mqtt_topic, mqtt_client, rabbitmq_streams, request, tmp_path):
    import confluent_kafka
    import pika
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    with contextlib.ExitStack() as stack:
        found, key = Places(), mqtt_topic.replace("/", "-")
        found.key = key
        found.add("redis", f"redis://127.0.0.1/0?stream={key}", lambda _, body: redis_client.xadd(key, {"data": body}))
        stack.callback(redis_client.delete, key, f"fcstream:{key}:positions")

        nats = request.getfixturevalue("nats_server")
        nats.js("add_stream", name=key, subjects=[key])
        stack.callback(nats.js, "delete_stream", key)
        found.add("nats", f"nats://{NATS}/{key}", lambda _, body: nats.add(key, [body]))

        address, _ = stack.enter_context(kafka_mock.mock())
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})

        def to_kafka(_, body):
            producer.produce(key, body)
            assert producer.flush(60) == 0

        found.add("kafka", f"kafka://{address}/{key}", to_kafka)
        to_kafka("", b"no record")  # makes the topic

        link = amqp()
        stack.callback(link.close)
        channel = link.channel()
        channel.confirm_delivery()
        for name, kind in (("stream", "stream"), ("queue", "classic")):
            place = stack.enter_context(declared(kind))

            def to_rabbit(identity, body, place=place):
                channel.basic_publish("", place, body, pika.BasicProperties(delivery_mode=2, message_id=identity))

            url = f"rabbitmq-stream://{STREAMS}/?stream={place}"
            if kind == "classic":
                url = f"amqp://{RABBIT}/?queue={place}&delivery_id=message_id"
            found.add(name, url, to_rabbit, forgetful=kind == "classic")

        def to_mqtt(identity, body):
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("id", identity)]
            mqtt_client.client.publish(mqtt_topic, body, qos=1, properties=properties).wait_for_publish(60)

        found.add("mqtt", f"mqtt://{MQTT}/{mqtt_topic}?delivery_id=id&client_id={key}", to_mqtt, forgetful=True)
        stack.callback(forget, MQTT, key)
        yield found


def start_s():
    """Seconds that a start takes on this machine now; kernels are compiled before."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(2):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", START], check=True, env=environment)
    return time.monotonic() - began


def wait_until_ready(process, port):
    until = time.monotonic() + 300
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):  # a refusal to connect, and the answer "not ready"
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).close()
            return
        time.sleep(0.05)
    raise AssertionError("not ready")


def test_six_brokers_and_two_kills(places, tmp_path):
    slowness_s = start_s()  # a start must be over before the last window is, and before records are late
    windows, lateness = max(3, 1 + math.ceil(6000 * slowness_s / LENGTH_MS)), max(10, math.ceil(8 * slowness_s))
    port, start_ms = free_port(), time.time_ns() // 10**6 // 1000 * 1000
    end_ms = start_ms + windows * LENGTH_MS
    for i, (name, url) in enumerate(places.urls.items()):
        is_forgetful = name in places.forgetful
        text = counting_job(
            start_ms // 1000,
            stream={"name": name},
            window={
                "length": "5s",
                "lateness": f"{lateness}s",
                "clock": "wall" if is_forgetful else "broker",
                "end": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end_ms // 1000)),
            },
            source={"url": url, "name": places.key, "spool": f"spool-{name}" if is_forgetful else None},
            sink={"url": f"jsonl:{name}.jsonl"},
            service={"listen": f"127.0.0.1:{port}"} if i == 0 else None,
        )
        (tmp_path / f"{name}.toml").write_text(text)
    command = [sys.executable, "-m", "fcstream", "run", *(f"{name}.toml" for name in places.urls)]
    start = partial(subprocess.Popen, command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    sent, number = Counter(), 0

    def send(n):
        nonlocal number
        for _ in range(n):
            now = time.time_ns() // 10**6
            if now < end_ms:
                number += 1
                for put in places.sends.values():
                    put(f"record-{number}", json.dumps({"ts_ms": now, "a": 20.0}).encode())
                sent[start_ms + (now - start_ms) // LENGTH_MS * LENGTH_MS] += 1

    process = start()
    try:
        wait_until_ready(process, port)  # from now on brokers that forget hold what they get
        for n in (20, 30):
            send(n)
            process.kill()
            process.communicate()
            send(15)
            process = start()
        send(10)
        _, errors = process.communicate(timeout=60 + 2 * (lateness + (end_ms - start_ms) // 1000))  # the schedule ends
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert sum(sent.values()) > 20
    for name in places.urls:
        releases = [Release.from_bytes(line) for line in (tmp_path / f"{name}.jsonl").read_bytes().splitlines()]
        assert [release.window_open_ms for release in releases] == list(range(start_ms, end_ms, LENGTH_MS))
        for release in releases:
            assert release.status == "released" or sent[release.window_open_ms] == 0, (name, release.reason)
            found = 0 if release.status != "released" else release.count
            assert abs(found - sent[release.window_open_ms]) <= 1, (name, release.window_open_ms - start_ms, sent)
        ledger = SQLiteLedger(str(tmp_path / "ledger.db"), stream=name)
        assert ledger.verify() == 1 + 3 * windows  # which window was the first is a row, too
        ledger.close()
