"""One process that reads every kind of broker at once, each a stream of its own, and is killed: all records count."""

import contextlib
import json
import math
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter

import pytest
from support import kafka_mock
from support.helpers import counting_job, free_port
from support.mqtt import HOST as MQTT
from support.mqtt import forget
from support.nats_server import HOST as NATS
from support.rabbitmq import HOST as RABBIT
from support.rabbitmq import STREAMS, amqp, declared
from support.sources import until

from fcstream import Release
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

LENGTH_MS = 5000
LONG = pytest.mark.skipif("FCSTREAM_LONG" not in os.environ, reason="FCSTREAM_LONG=1 tries every broker")


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
        stack.callback(lambda: redis_client.delete(key, *redis_client.keys(f"fcstream:{key}*")))

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


def wait_until_ready(process, port):
    until = time.monotonic() + 300
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):  # a refusal to connect, and the answer "not ready"
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).close()
            return
        time.sleep(0.05)
    raise AssertionError("not ready")


@pytest.mark.timeout(1800)
def test_six_brokers_and_two_kills(places, tmp_path):
    lateness_s = 15
    for _ in range(4):
        run = Run(places, tmp_path / str(lateness_s), lateness_s)
        if run.go():
            run.check()
            return
        lateness_s = 3 * math.ceil(run.longest_pause_s) + 5
    pytest.fail(f"a start takes {run.longest_pause_s:.0f} s here")


class Run:
    """One process for all brokers, killed twice while records come."""

    def __init__(self, places, folder, lateness_s):
        self.places, self.folder, self.port = places, folder, free_port()
        self.start_ms = time.time_ns() // 10**6 // LENGTH_MS * LENGTH_MS
        self.sent, self.lateness_s, self.longest_pause_s = Counter(), lateness_s, 0.0
        folder.mkdir()
        for i, (name, url) in enumerate(places.urls.items()):
            is_forgetful = name in places.forgetful
            text = counting_job(
                self.start_ms // 1000,
                stream={"name": name},
                window={
                    "length": "5s",
                    "lateness": f"{lateness_s}s",
                    "clock": "wall" if is_forgetful else "broker",
                    "backlog": "1d",
                },
                source={
                    "url": url,
                    "name": f"{places.key}-{lateness_s}",
                    "spool": f"spool-{name}" if is_forgetful else None,
                },
                sink={"url": f"jsonl:{name}.jsonl"},
                service={"listen": f"127.0.0.1:{self.port}"} if i == 0 else None,
            )
            (folder / f"{name}.toml").write_text(text)

    def go(self):
        """Whether all starts were quick enough: else what waited for one is late, and rightly left out."""
        process = self._start()
        try:
            wait_until_ready(process, self.port)  # from now on brokers that forget hold what they get
            for n in (20, 30):
                self._send(n)
                process.kill()
                process.communicate()
                killed = time.monotonic()
                self._send(15)
                process = self._start()
                wait_until_ready(process, self.port)
                self.longest_pause_s = max(self.longest_pause_s, time.monotonic() - killed)
                if self.longest_pause_s > self.lateness_s - 5:
                    return False
            self._send(10)
            until(lambda: all(max(self.sent) in self.releases(name) for name in self.places.urls), 900)
            process.terminate()
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
            return True
        finally:
            process.kill()
            process.communicate()

    def _start(self):
        command = [sys.executable, "-m", "fcstream", "run", *(f"{name}.toml" for name in self.places.urls)]
        return subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True)

    def _send(self, n):
        for _ in range(n):
            now = time.time_ns() // 10**6
            for put in self.places.sends.values():
                put(secrets.token_hex(8), json.dumps({"ts_ms": now, "a": 20.0}).encode())
            self.sent[now // LENGTH_MS * LENGTH_MS] += 1

    def releases(self, name):
        """By the opening of their windows."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found = [Release.from_bytes(line) for line in lines if line.endswith(b"\n")]
        return {release.window_open_ms: release for release in found}

    def check(self):
        for name in self.places.urls:
            releases = self.releases(name)
            assert len(releases) == len((self.folder / f"{name}.jsonl").read_bytes().splitlines())
            assert list(releases) == list(range(self.start_ms, max(releases) + 1, LENGTH_MS))
            for opening, release in releases.items():
                found = 0 if release.status != "released" else release.count
                assert abs(found - self.sent[opening]) <= 1, (name, opening - self.start_ms, self.sent)
            ledger = SQLiteLedger(str(self.folder / "ledger.db"), stream=name)
            assert ledger.verify() == 1 + 3 * len(releases)  # which window was the first is a row, too
            ledger.close()


DEADLY = """
import os, sys
from fcstream.cli import main
from fcstream.service import session
whole = session.read_messages
def read_messages(decoder, offsets, times, bodies, envelopes=()):
    if any(b"deadly" in body for body in bodies):
        os.abort()
    return whole(decoder, offsets, times, bodies, envelopes)
session.read_messages = read_messages
sys.exit(main(["run", *sys.argv[1:]]))
"""


class Deaths(Run):
    """One process for all brokers, which dies of one message of each."""

    def __init__(self, places, folder):
        super().__init__(places, folder, 3600)
        self.count = 0
        for name in places.urls:
            path = self.folder / f"{name}.toml"
            text, _, listen = path.read_text().partition("[service]\n")
            letters = f'[dead_letter]\nurl = "jsonl:{name}.letters"\n'
            path.write_text(f"{text}{letters}[service]\ncounters = true\n{listen}")

    def _start(self):
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-c", DEADLY, *(f"{name}.toml" for name in self.places.urls)]
            return subprocess.Popen(command, cwd=self.folder, stderr=log)

    def _send_to_all(self, note, n):
        for _ in range(n):
            body = json.dumps({"ts_ms": time.time_ns() // 10**6, "a": 20.0, "note": note}).encode()
            for put in self.places.sends.values():
                put(secrets.token_hex(8), body)

    def _get(self, path):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=20).read().decode()
        return ""

    def _wanted(self):
        for name in self.places.urls:
            # what made the topic is in no window: a restart reads it again only if its position was not committed yet
            where, wrong = f'stream="{name}"', "[12]" if name == "kafka" else "1"
            yield rf"fcstream_records_total\{{{where}\}} 25\.0"
            yield rf"fcstream_quarantined\{{{where}\}} 1\.0"
            yield rf'fcstream_rejected_total\{{reason="broken_record",{where}\}} {wrong}\.0'

    def go(self):
        process = self._start()
        try:
            wait_until_ready(process, self.port)
            self._send_to_all("good", 20)
            self._send_to_all("deadly", 1)
            self._send_to_all("good", 5)
            deadline, missing = time.monotonic() + 900, ["all"]
            while missing and time.monotonic() < deadline:
                if process.poll() is not None:
                    self.count += 1
                    process = self._start()
                text = self._get("metrics")
                missing = [each for each in self._wanted() if not re.search(each, text)]
                time.sleep(0.2)
            assert not missing, (missing, text, (self.folder / "log").read_text())
            assert self._get("ready").count("a message at which the process died twice") == len(self.places.urls)
            process.terminate()
            assert process.wait(120) == 0
        finally:
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "names",
    [
        ("redis", "nats"),
        pytest.param(("kafka", "stream"), marks=LONG),
        pytest.param(("queue", "mqtt"), marks=LONG),
    ],
)
def test_messages_that_end_the_process_end_it_twice_at_most(places, tmp_path, names):
    places.urls = {name: places.urls[name] for name in names}
    places.sends = {name: places.sends[name] for name in names}
    run = Deaths(places, tmp_path / "run")
    run.go()
    assert 2 <= run.count <= 2 * len(places.urls)
    assert (run.folder / "log").read_text().count("when the process died twice") == len(places.urls)
    for name in places.urls:
        letters = [json.loads(line) for line in (run.folder / f"{name}.letters").read_text().splitlines()]
        assert "broken_record" in [each["reason"] for each in letters], name
