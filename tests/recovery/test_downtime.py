"""Queues after a pause: what the broker held meanwhile is in time, if it says when it came or a pause is declared."""

import contextlib
import json
import shutil
import time
from collections import Counter

import pytest
from support.helpers import sample, service
from support.live import Live
from support.mqtt import Mosquitto
from support.queues import MIB, Queue, drain
from support.rabbitmq import HOST, amqp, declared

from fcstream.config import Config
from fcstream.connectors import open_live
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import ConfigError
from fcstream.service.build import build
from fcstream.testing import ManualClock

PAUSE_S, LATE_S, PER_SECOND = 6.0, 3, 100


def opened(tmp_path, queue, clock, downtime_ms=0):
    return SpooledSource(queue, Spool(tmp_path / "spool", MIB, clock=lambda: clock.now_ms), downtime_ms)


def test_a_declared_pause_makes_what_waited_as_old_as_the_pause(tmp_path):
    clock, queue = ManualClock(1_000_000), Queue()
    with contextlib.closing(opened(tmp_path, queue, clock)) as source:
        queue.send([b"before"])
        assert [(timestamp, body) for _, timestamp, body in drain(source)] == [(1_000_000, b"before")]
    queue.send([b"waited"])
    clock.tick(70_000)
    with contextlib.closing(opened(tmp_path, queue, clock, 600_000)) as source:
        assert source.is_catching_up
        source.rewind()
        rows = drain(source)
        clock.tick(69_999)  # as long as the pause was
        queue.send([b"still"])
        assert source.is_catching_up
        rows += drain(source)
        clock.tick(1)
        assert not source.is_catching_up
        queue.send([b"now"])
        rows += drain(source)
    timestamps = {body: timestamp for _, timestamp, body in rows}
    assert timestamps[b"waited"] == timestamps[b"still"] == 1_000_000
    assert timestamps[b"now"] == 1_140_000
    with contextlib.closing(opened(tmp_path, queue, clock, 600_000)) as source:
        source.rewind()
        assert {body: timestamp for _, timestamp, body in drain(source)} == timestamps  # the same after a restart


def test_windows_wait_no_longer_than_is_declared(tmp_path):
    clock = ManualClock(1_000_000)
    with contextlib.closing(opened(tmp_path, Queue([b"1"]), clock)) as source:
        drain(source)
    clock.tick(3_600_000)
    with contextlib.closing(opened(tmp_path, Queue(), clock, 60_000)) as source:
        clock.tick(59_999)
        assert source.is_catching_up
        clock.tick(1)
        assert not source.is_catching_up
    with contextlib.closing(opened(tmp_path, Queue(), clock)) as source:
        assert not source.is_catching_up


class Reconnecting(Queue):
    def reconnect(self):
        super().reconnect()
        self.connections += 1


def test_a_connection_that_was_lost_for_a_while_is_a_pause_too(tmp_path):
    clock, queue = ManualClock(1_000_000), Reconnecting()
    with contextlib.closing(opened(tmp_path, queue, clock, 600_000)) as source:
        clock.tick(700_000)
        queue.send([b"1"])
        drain(source)
        clock.tick(30_000)
        queue.reconnect()
        queue.send([b"2"])
        rows = drain(source)
        assert source.is_catching_up
    assert [(timestamp, body) for _, timestamp, body in rows] == [(1_700_000, b"2")]


# -- real brokers ------------------------------------------------------------------------------------------------------


class Publisher:
    """To one queue or topic, with the time of sending in what the broker keeps beside a body."""

    def __init__(self, kind, name, host, stamped):
        self.kind, self.name, self.stamped = kind, name, stamped
        if kind == "amqp":
            self.connection = amqp()
            self.channel = self.connection.channel()
        else:
            from paho.mqtt import client, enums

            self.client = client.Client(enums.CallbackAPIVersion.VERSION2, protocol=client.MQTTv5)
            self.client.connect("127.0.0.1", int(host.partition(":")[2]))
            self.client.loop_start()

    def put(self, body, now_ms):
        if self.kind == "amqp":
            import pika

            given = {"headers": {"timestamp_in_ms": now_ms}} if self.stamped else {}
            self.channel.basic_publish("", self.name, body, pika.BasicProperties(**given))
            return
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)
        if self.stamped:
            properties.UserProperty = [("sent", str(now_ms))]
        self.client.publish(self.name, body, qos=1, properties=properties)

    def close(self):
        if self.kind == "amqp":
            self.connection.close()
        else:
            self.client.loop_stop()
            self.client.disconnect()


@contextlib.contextmanager
def place(kind, folder):
    """Name, host and URL of a queue."""
    if kind == "amqp":
        service("RabbitMQ", lambda: amqp().close())
        with declared("classic") as name:
            yield name, HOST, f"amqp://{HOST}/?queue={name}"
        return
    if shutil.which("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    (folder / "broker").mkdir()
    options = "allow_anonymous true\nmax_queued_messages 0"  # 1000 by default, the rest is dropped
    with contextlib.closing(Mosquitto(folder / "broker", options)) as mosquitto:
        yield "records", mosquitto.host, f"mqtt://{mosquitto.host}/records?client_id=fcstream"


@pytest.mark.beside
@pytest.mark.parametrize("how", ["arrival", "downtime"])
@pytest.mark.parametrize("kind", ["amqp", "mqtt"])
def test_a_restart_loses_nothing_that_the_broker_held(folder, kind, how):
    """A restart of 70 s with 2 s of lateness threw away 45,000 and 80,000 records, in silence."""
    with place(kind, folder) as (name, host, url):
        restart(folder, kind, name, host, url, how)


def restart(folder, kind, name, host, url, how):
    option = {"amqp": "&arrival=timestamp", "mqtt": "&arrival=sent"}[kind] if how == "arrival" else ""
    sent = Counter()
    publisher = Publisher(kind, name, host, how == "arrival")

    def source():
        spool = Spool(folder / "spool", 64 * MIB)
        return SpooledSource(open_live(url + option, name), spool, 0 if option else 60_000)

    def feed(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            now = time.time_ns() // 10**6
            publisher.put(json.dumps({"ts_ms": now, "a": 20.0, "b": 50.0}).encode(), now)
            sent[now // 1000 * 1000] += 1
            time.sleep(1 / PER_SECOND)

    def life(start_ms):
        live = Live(folder, source, 0, f"{LATE_S}s", start_ms)
        live.begin()
        until = time.monotonic() + 60
        while start_ms is None and live.service.trouble is not None and time.monotonic() < until:
            time.sleep(0.02)  # from then on the broker holds messages for it
        return live

    live = life(None)
    feed(2.0)
    live.end()
    feed(PAUSE_S)  # nobody reads
    again = life(live.start_ms)
    feed(2.0)
    until = time.monotonic() + 120
    while time.monotonic() < until and max(sent) not in {r.window_open_ms for r in again.sink.releases}:
        time.sleep(0.2)
    again.end()
    publisher.close()
    found = {r.window_open_ms: round(r.count) for r in [*live.sink.releases, *again.sink.releases]}
    full = [opened for opened in sorted(sent) if opened in found][:-1]
    assert len(full) >= PAUSE_S + 3
    for each in full:
        assert abs(found[each] - sent[each]) <= 2, (each, found, sent)
    assert again.service.counters.rejected == {}


@pytest.mark.parametrize(
    ("url", "downtime"), [("amqp://127.0.0.1:5672/?queue=none", "tomorrow"), ("redis://127.0.0.1/0?stream=none", "1m")]
)
def test_a_pause_that_cannot_be_is_refused_before_anything_is_opened(tmp_path, url, downtime):
    config = sample(
        window={"clock": "broker", "end": None},
        source={"url": url, "spool": str(tmp_path / "s"), "downtime": downtime},
        sink={"url": "jsonl:-"},
        ledger={"url": f"sqlite:{tmp_path / 'l.db'}"},
    )
    with pytest.raises(ConfigError, match=r"source\.downtime"):
        build(Config.from_mapping(config))
