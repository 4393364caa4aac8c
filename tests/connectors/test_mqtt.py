"""MQTT topics as source and sink: sessions and what brokers keep for them."""

import contextlib
import dataclasses
import os
import time

import pytest
from support.mqtt import HOST, MqttClient, drain, forget, queue, sink, spooled
from support.queues import MIB
from support.sources import CONTENT

from fcstream.connectors import is_live, open_live, open_sink
from fcstream.connectors.mqtt import connection as module
from fcstream.connectors.mqtt.sink import MqttSink
from fcstream.connectors.mqtt.source import MqttTopic
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.connectors.urls import parse
from fcstream.errors import SinkError, SourceError
from fcstream.formats.envelopes import AskedFields
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, SourceContract, sample_release


class TestMqttTopic(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, mqtt_client, mqtt_topic):
        self.server, self.topic = mqtt_client, mqtt_topic

    def make(self, tmp_path):
        return SpooledSource(queue(self.topic), Spool(tmp_path / "spool", MIB))

    def send(self, tmp_path, bodies):
        self.server.publish(self.topic, bodies)


END = b"the end"


class TestMqttSink(SinkContract):
    options = ""

    @pytest.fixture(autouse=True)
    def place(self, mqtt_client, mqtt_topic):
        self.topic, self.client = mqtt_topic, mqtt_client
        self.watcher = MqttClient(HOST)
        self.watcher.watch(mqtt_topic)
        yield
        self.watcher.close()
        mqtt_client.publish(mqtt_topic, [b""], retain=True)

    def make(self, tmp_path):
        return MqttSink(parse(f"mqtt://{HOST}/{self.topic}?{self.options}", "sink.url"))

    def read(self, tmp_path):
        """All that came before a message that is sent now: the broker had acknowledged it to the sink by then."""
        self.client.publish(self.topic, [END])
        until = time.monotonic() + 60
        while self.watcher.seen[-1:] != [END] and time.monotonic() < until:
            time.sleep(0.01)
        return [Release.from_bytes(body) for body in self.watcher.seen if body != END]


class TestRetainingMqttSink(TestMqttSink):
    options = "retain=true"

    def test_the_last_release_is_kept(self, tmp_path):
        releases = [sample_release(i) for i in range(4)]
        with sink(self.topic, "retain=true") as out:
            assert out.last() is None
            assert out.missing(releases) == releases
            out.write(releases[:3])
            assert out.last() == releases[2]
        with sink(self.topic, "retain=true") as out:
            assert out.missing(releases) == releases[3:]
            assert out.missing([]) == []
            out.write(releases[3:])
            assert out.last() == releases[3]

    def test_something_else_is_not_taken_for_a_release(self, mqtt_client):
        mqtt_client.publish(self.topic, [CONTENT], retain=True)
        with sink(self.topic, "retain=true") as out, pytest.raises(SinkError, match="something else") as caught:
            out.last()
        assert CONTENT.decode() not in str(caught.value)


def test_by_url(mqtt_topic, tmp_path):
    assert is_live("mqtt://h/t")
    opened = open_live(f"mqtt://{HOST}/{mqtt_topic}", mqtt_topic)
    assert isinstance(opened, MqttTopic)
    opened.close()
    opened.close()
    out = open_sink(f"mqtt://{HOST}/{mqtt_topic}")
    assert isinstance(out, MqttSink)
    assert out.last() is None
    out.close()
    out.close()


def test_a_session_keeps_what_comes_while_the_consumer_is_away(mqtt_client, mqtt_topic, tmp_path):
    with spooled(tmp_path, mqtt_topic) as source:
        mqtt_client.publish(mqtt_topic, [b"1", b"2"])
        assert drain(source, 2) == [b"1", b"2"]
        source.commit({"spool": 2})
    mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(3, 500)])
    with spooled(tmp_path, mqtt_topic) as source:
        assert source.ends() == {"spool": 499}
        assert drain(source, 497) == [b"%d" % i for i in range(3, 500)]
        source.commit({"spool": 499})
    with spooled(tmp_path, mqtt_topic) as source:
        assert source.poll(10, 0.2) == []


def test_what_was_not_acknowledged_comes_again_and_what_was_does_not(mqtt_client, mqtt_topic):
    opened = queue(mqtt_topic)
    mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(30)])
    found = []
    while len(found) < 30:
        found += opened.receive(10, 5)
    opened.acknowledge(found[:12])
    opened.close()
    opened = queue(mqtt_topic)
    again = []
    while opened.pending():
        again += opened.receive(100, 1)
    assert [one.body for one in again] == [b"%d" % i for i in range(12, 30)]
    opened.acknowledge(found[12:])  # tokens of the old connection
    opened.close()
    opened = queue(mqtt_topic)
    assert opened.pending()
    again = []
    while opened.pending():
        again += opened.receive(100, 60)
    assert len(again) == 18
    opened.close()


def test_a_message_with_an_identity_counts_once(mqtt_client, mqtt_topic, tmp_path):
    """Killed after the spool took messages and before the broker heard of it: they come again."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    queue(mqtt_topic).close()  # the session exists

    def send(numbers, name="id"):
        for i in numbers:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("other", "x"), (name, f"m{i}")]
            mqtt_client.client.publish(mqtt_topic, b"%d" % i, qos=1, properties=properties).wait_for_publish(10)

    send(range(20))
    opened = queue(mqtt_topic, "delivery_id=id")
    with contextlib.closing(SpooledSource(opened, Spool(tmp_path / "spool", 2**21))) as source:
        opened.acknowledge = lambda received: None  # what a crash at this point looks like to the broker
        assert drain(source, 20) == [b"%d" % i for i in range(20)]
    send(range(20, 25))
    send(range(25, 30), name="nothing")
    with spooled(tmp_path, mqtt_topic, "delivery_id=id") as source:
        assert drain(source, 30) == [b"%d" % i for i in range(30)]
        assert source.duplicates == 20


def test_the_broker_sends_no_more_than_may_be_unacknowledged(mqtt_client, mqtt_topic):
    opened = queue(mqtt_topic, "inflight=5")
    mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(20)])
    first = []
    while opened.pending():
        first += opened.receive(100, 0.1)
    assert [one.body for one in first] == [b"%d" % i for i in range(5)]
    opened.acknowledge(first)
    assert opened.pending()
    time.sleep(0.2)
    assert 1 <= len(opened._link.connection._messages) <= 6  # although this broker sends all of them now
    opened.close()


def test_large_messages_wait_with_the_broker_not_in_memory(mosquitto):
    """Forty of 4 MB, sent while the consumer is there and while it is away: a few of them are held at a time."""
    limit = 2 * module._MAX_BYTES
    publisher, body = MqttClient(mosquitto.host), os.urandom(4 * MIB)
    opened = queue("large", host=mosquitto.host)
    try:
        for is_away in (False, True):
            if is_away:
                opened.close()
            publisher.publish("large", [body] * 40)
            if is_away:
                opened = queue(
                    "large", host=mosquitto.host
                )  # the answer to its subscription lies behind these messages
            found = 0
            while found < 40:
                assert opened.pending()
                received = opened.receive(4096, 60)
                assert sum(len(one.body) for one in received) <= limit
                assert all(one.body == body for one in received)
                assert opened._link.connection._bytes <= limit
                opened.acknowledge(received)
                found += len(received)
            assert not opened.pending()
            assert opened._link.connection._subscribing is None
    finally:
        opened.close()
        publisher.close()


def test_wildcards_and_shared_subscriptions(mqtt_client, mqtt_topic, tmp_path):
    with spooled(tmp_path, f"{mqtt_topic}/+/%23") as source:
        mqtt_client.publish(f"{mqtt_topic}/a/b/c", [b"1"])
        mqtt_client.publish(f"{mqtt_topic}/b", [b"2"])
        mqtt_client.publish(mqtt_topic, [b"no"])
        assert drain(source, 2) == [b"1", b"2"]
    forget(HOST, f"{mqtt_topic}/+/%23")
    shared = [queue(f"$share/group/{mqtt_topic}", name=f"{mqtt_topic}-{i}") for i in range(2)]
    mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(40)])
    found = [[], []]
    for _ in range(100):
        for one, rows in zip(shared, found, strict=True):
            if one.pending():
                rows += one.receive(100, 0.1)
    for one, rows in zip(shared, found, strict=True):
        one.acknowledge(rows)
        one.close()
    assert sorted(int(one.body) for rows in found for one in rows) == list(range(40))
    assert all(found)
    for i in range(2):
        forget(HOST, f"{mqtt_topic}-{i}")


def test_retained_messages_are_not_records(mqtt_client, mqtt_topic, tmp_path):
    mqtt_client.publish(mqtt_topic, [b"state"], retain=True)
    for i in range(2):
        with spooled(tmp_path, mqtt_topic) as source:
            assert source.poll(10, 0.2) == []
            mqtt_client.publish(mqtt_topic, [b"%d" % i])
            assert drain(source, 1) == [b"%d" % i]
            source.commit(source.ends())
    mqtt_client.publish(mqtt_topic, [b""], retain=True)


def test_messages_of_an_earlier_subscription_are_dropped(mqtt_client, mqtt_topic, tmp_path):
    with contextlib.closing(queue(f"{mqtt_topic}/old", name=mqtt_topic)):
        pass
    mqtt_client.publish(f"{mqtt_topic}/old", [b"old"])
    with contextlib.closing(queue(f"{mqtt_topic}/new", name=mqtt_topic)) as opened:
        mqtt_client.publish(f"{mqtt_topic}/new", [b"new"])
        found = opened.receive(10, 60)
        while opened.pending():
            found += opened.receive(10, 1)
        assert [one.body for one in found] == [b"new"]


def test_messages_of_qos_0_wait_in_the_network(mqtt_client, mqtt_topic, tmp_path):
    """They cannot be acknowledged, so nothing but the connection holds them back."""
    with contextlib.closing(queue(mqtt_topic, "inflight=10")) as opened:
        mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(100)], qos=0)
        time.sleep(0.3)
        assert opened.pending()
        assert 1 <= len(opened._link.connection._messages) <= 11
        found = []
        while len(found) < 100 and (some := opened.receive(100, 60)):
            assert len(some) <= 11
            opened.acknowledge(some)
            found += some
        assert [one.body for one in found] == [b"%d" % i for i in range(100)]


def test_texts_that_mqtt_forbids_end_nothing(mqtt_client, mqtt_topic):
    """For U+FEFF the client library gives the connection up, and the message comes again with the next one."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    asked = AskedFields(headers=frozenset(["at"]))
    address = dataclasses.replace(parse(f"mqtt://{HOST}/{mqtt_topic}", "source.url"), asked=asked)
    pair = "UserProperty"
    with contextlib.closing(MqttTopic(address, mqtt_topic, 5.0)) as opened:
        for name, value in ((pair, ("at", "\ufeff")), ("ContentType", "\ufeff"), (pair, ("at", "x"))):
            properties = Properties(PacketTypes.PUBLISH)
            setattr(properties, name, value)
            with contextlib.closing(MqttClient(HOST)) as sender:
                sender.publish(mqtt_topic, [CONTENT], properties=properties)
        found, until = [], time.monotonic() + 30
        while len(found) < 3 and time.monotonic() < until:
            found += opened.receive(100, 1)
        opened.acknowledge(found)
        bodies, headers = [one.body for one in found], [dict(one.envelope.headers) for one in found]
        found.clear()
    assert bodies == [CONTENT] * 3
    assert headers == [{"at": "\ufeff".encode()}, {}, {"at": b"x"}]


def test_many_properties_are_not_read(mqtt_client, mqtt_topic):
    """The client library copies what is left of a packet, and all pairs so far, for each of its properties."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties, VariableByteIntegers

    asked = AskedFields(headers=frozenset(["at"]))
    address = dataclasses.replace(parse(f"mqtt://{HOST}/{mqtt_topic}", "source.url"), asked=asked)
    with contextlib.closing(MqttTopic(address, mqtt_topic, 20.0)) as opened:
        for size in (60_000, 70_000):
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("at", "x"), ("y", "z" * (size // 2)), ("y", "z" * (size // 2))]
            with contextlib.closing(MqttClient(HOST)) as sender:
                sender.publish(mqtt_topic, [CONTENT], properties=properties)
        found, until = [], time.monotonic() + 30
        while len(found) < 2 and time.monotonic() < until:
            found += opened.receive(100, 1)
        opened.acknowledge(found)
        headers = [dict(one.envelope.headers) for one in found]
        found.clear()
    assert headers == [{"at": b"x"}, {}]
    pairs = b"\x26\0\0\0\0" * 200_000
    packet = VariableByteIntegers.encode(len(pairs)) + pairs
    start = time.thread_time()
    assert Properties(PacketTypes.PUBLISH).unpack(packet)[1] == len(packet)
    assert time.thread_time() - start < 1


def test_closing_with_messages_waiting(mqtt_client, mqtt_topic):
    opened = queue(mqtt_topic, "inflight=3")
    mqtt_client.publish(mqtt_topic, [b"x"] * 50, qos=0)
    time.sleep(0.2)
    start = time.monotonic()
    opened.close()
    assert time.monotonic() - start < 60


def test_two_processes_with_one_name_do_not_fight(mqtt_client, mqtt_topic, monkeypatch):
    """Mosquitto 2.0.11 says nothing when it closes the older connection; others give the reason."""
    monkeypatch.setattr(module, "_FIGHT_S", 600.0)
    first, second = queue(mqtt_topic), queue(mqtt_topic)

    def fight():
        for _ in range(50):
            first.receive(1, 0.1)
            second.receive(1, 0.1)

    with pytest.raises(SourceError, match="another process"):
        fight()
    first.close()
    second.close()
