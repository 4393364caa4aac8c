"""MQTT topics against real brokers: the one of this machine, and a private one that is restarted and asks for TLS."""

import contextlib
import gc
import logging
import os
import random
import shutil
import ssl
import subprocess
import sys
import threading
import time
import traceback

import pytest
from support.mqtt import HOST, Mosquitto, MqttClient, forget
from support.proxy import Proxy

from fcstream.connectors import is_live, open_live, open_sink
from fcstream.connectors.mqtt import connection as module
from fcstream.connectors.mqtt.sink import MqttSink
from fcstream.connectors.mqtt.source import MqttTopic
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, SourceContract, sample_release

SECRET = "s3cretWord"
CONTENT = b"sentinelContent"
MIB = 1 << 20


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Paths of a certificate for localhost and of its key; it is its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder / "cert.pem", folder / "key.pem"


def tls_proxy(port, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return Proxy(port, context)


@pytest.fixture
def broker(tmp_path):
    if shutil.which("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = Mosquitto(folder)
    yield broker
    broker.stop()


def queue(topic, options="", host=HOST, name=None, patience_s=60.0):
    return MqttTopic(parse(f"mqtt://{host}/{topic}?{options}", "source.url"), name or topic, patience_s)


def spooled(folder, topic, options="", host=HOST, patience_s=60.0):
    return contextlib.closing(
        SpooledSource(queue(topic, options, host, patience_s=patience_s), Spool(folder / "spool", 16 * MIB))
    )


def sink(topic, options="", host=HOST, patience_s=60.0):
    return contextlib.closing(MqttSink(parse(f"mqtt://{host}/{topic}?{options}", "sink.url"), patience_s))


def drain(source, wanted, seconds=60.0):
    return [body for *_, body in SourceContract().drain(source, wanted, seconds)]


class TestMqttTopic(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, mqtt_client, mqtt_topic):
        self.server, self.topic = mqtt_client, mqtt_topic

    def make(self, tmp_path):
        return SpooledSource(queue(self.topic), Spool(tmp_path / "spool", MIB))

    def send(self, tmp_path, bodies):
        self.server.publish(self.topic, bodies)


class TestMqttSink(SinkContract):
    options = ""

    @pytest.fixture(autouse=True)
    def place(self, mqtt_client, mqtt_topic):
        self.topic = mqtt_topic
        self.watcher = MqttClient(HOST)
        self.watcher.watch(mqtt_topic)
        yield
        self.watcher.close()
        mqtt_client.publish(mqtt_topic, [b""], retain=True)

    def make(self, tmp_path):
        return MqttSink(parse(f"mqtt://{HOST}/{self.topic}?{self.options}", "sink.url"))

    def read(self, tmp_path):
        until = time.monotonic() + 60
        while len(self.watcher.seen) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        return [Release.from_bytes(body) for body in self.watcher.seen]


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


# ── sessions ──


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


def test_large_messages_wait_with_the_broker_not_in_memory(broker):
    """Forty of 4 MB, sent while the consumer is there and while it is away: a few of them are held at a time."""
    limit = 2 * module._MAX_BYTES
    publisher, body = MqttClient(broker.host), os.urandom(4 * MIB)
    opened = queue("large", host=broker.host)
    try:
        for is_away in (False, True):
            if is_away:
                opened.close()
            publisher.publish("large", [body] * 40)
            if is_away:
                opened = queue("large", host=broker.host)  # the answer to its subscription lies behind these messages
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


# ── cuts ──


def test_cut_in_the_middle_of_batches(mqtt_client, mqtt_topic, tmp_path):
    """Every message is there; those whose acknowledgement was lost are there twice, flagged by nothing."""
    proxy, sent = Proxy(int(HOST.partition(":")[2])), [b"%05d" % i for i in range(900)]
    with spooled(tmp_path, mqtt_topic, "inflight=50", host=proxy.host) as source:
        found = []
        for start in range(0, 900, 300):
            mqtt_client.publish(mqtt_topic, sent[start : start + 300])
            found += drain(source, 40)
            proxy.cut()
        while len(set(found)) < 900:
            some = drain(source, 1)
            assert some
            found += some
        assert sorted(set(found)) == sent
        assert len(found) - 900 < 600  # this broker sends more ahead than it may
        assert source.ends()["spool"] == len(found)
    proxy.close()


def test_lost_acknowledgements_are_redelivered(mqtt_client, mqtt_topic, tmp_path):
    """The window that is left: on disk, acknowledged, and the broker never saw it."""
    proxy = Proxy(int(HOST.partition(":")[2]))
    with spooled(tmp_path, mqtt_topic, host=proxy.host) as source:
        mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(20)])
        proxy.swallows = True
        assert drain(source, 20) == [b"%d" % i for i in range(20)]
        proxy.cut()
        proxy.swallows = False
        assert drain(source, 20) == [b"%d" % i for i in range(20)]  # as records 20 to 39
        assert source.ends() == {"spool": 40}
    proxy.close()


def test_a_connection_stays_while_messages_wait(mqtt_client, mqtt_topic, monkeypatch):
    """A spool that is full takes nothing for hours: who asks must keep the connection, or all would come again."""
    monkeypatch.setattr(module.MqttConnection, "keepalive_s", 3)  # the broker waits for half as long again
    with contextlib.closing(queue(mqtt_topic)) as opened:
        mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(5)])
        found = opened.receive(1, 60)
        connection, until = opened._link.connection, time.monotonic() + 7
        while time.monotonic() < until:
            assert opened.pending()
            time.sleep(0.3)
        while len(found) < 5:
            found += opened.receive(1, 60)
        opened.acknowledge(found)
        assert opened._link.connection is connection
        assert connection.lost is None
    with contextlib.closing(queue(mqtt_topic)) as opened:
        assert opened.receive(10, 0.3) == []


def test_what_waits_is_taken_at_once(mqtt_client, mqtt_topic):
    with contextlib.closing(queue(mqtt_topic)) as opened:
        mqtt_client.publish(mqtt_topic, [b"%d" % i for i in range(200)])
        time.sleep(0.3)
        assert opened.pending()
        found = opened.receive(1000, 60)
        assert len(found) == 200
        opened.acknowledge(found)


def test_an_old_answer_is_not_taken_for_a_new_one(mqtt_client, mqtt_topic):
    """Packets are numbered to 65535 and then from the beginning."""
    with contextlib.closing(queue(mqtt_topic)) as opened:
        connection, asked = opened._link.connection, []
        connection._answers.update((mid, []) for mid in range(1, 65536))
        serve = connection._serve_until
        connection._serve_until = lambda is_so, *rest: (asked.append(is_so()), serve(is_so, *rest))
        assert not opened.pending()
        assert asked == [False]


def test_cut_while_acknowledgements_wait_to_be_written(mqtt_client, mqtt_topic):
    proxy = Proxy(int(HOST.partition(":")[2]))
    with contextlib.closing(queue(mqtt_topic, host=proxy.host)) as opened:
        mqtt_client.publish(mqtt_topic, [b"again"])
        for _ in range(3):
            [one] = opened.receive(10, 60)
            opened._link.connection.client.ack(*one.token[1:3])
            proxy.cut()
            time.sleep(0.1)
        [one] = opened.receive(10, 60)
        opened.acknowledge([one])
    proxy.close()


def test_no_broker_for_longer_than_patience(mqtt_client, mqtt_topic):
    proxy = Proxy(int(HOST.partition(":")[2]))
    opened = queue(mqtt_topic, "patience=0.5", host=proxy.host)
    proxy.close()
    start = time.monotonic()
    with pytest.raises(SourceError, match=r"cannot be used: .*; start the broker"):
        opened.receive(10, 120)
    assert time.monotonic() - start < 60
    opened.close()


def test_broker_restarts(broker, tmp_path):
    """Sessions and messages are on its disk; the source comes back by itself, in the middle of a wait."""
    client = MqttClient(broker.host)
    with spooled(tmp_path, "t", host=broker.host) as source, sink("r", "retain=true", broker.host) as out:
        client.publish("t", [b"1"])
        assert drain(source, 1) == [b"1"]
        out.write([sample_release(0)])
        client.close()
        broker.stop()

        def restart():
            time.sleep(0.5)
            broker.start()

        thread = threading.Thread(target=restart)
        thread.start()
        out.write([sample_release(1)])
        thread.join()
        client = MqttClient(broker.host)
        client.publish("t", [b"2"])
        assert drain(source, 1) == [b"2"]
        assert out.last() == sample_release(1)
        client.close()


def test_a_forgotten_session_is_reported(broker, tmp_path, caplog):
    with contextlib.closing(queue("t", host=broker.host)) as opened:
        broker.stop()
        for path in (tmp_path / "broker").glob("*.db"):
            path.unlink()
        starting = threading.Timer(0.5, broker.start)  # the first attempts fail
        starting.start()
        with caplog.at_level(logging.WARNING):
            opened.receive(1, 0.1)
        starting.join()
        assert "has forgotten the session" in caplog.text


def test_sink_writes_through_cuts(mqtt_client, mqtt_topic):
    sent, places = [sample_release(i) for i in range(60)], random.Random(1)
    watcher = MqttClient(HOST)
    watcher.watch(mqtt_topic)
    with contextlib.closing(Proxy(int(HOST.partition(":")[2]))) as proxy, sink(mqtt_topic, host=proxy.host) as out:
        for start in range(0, 60, 5):
            proxy.cut_after(*[places.randrange(1500) for _ in range(1 + start // 5 % 2)])
            out.write(sent[start : start + 5])
        proxy.cut_after()
        assert proxy.cuts > 10
    until = time.monotonic() + 60
    while len(set(watcher.seen)) < 60 and time.monotonic() < until:
        time.sleep(0.01)
    assert list(dict.fromkeys(watcher.seen)) == [release.to_bytes() for release in sent]
    watcher.close()


# ── secrets, refusals, TLS ──


@pytest.fixture
def guarded(tmp_path):
    """A broker that asks for a password, and refuses one topic."""
    if shutil.which("mosquitto_passwd") is None:
        pytest.skip("mosquitto is not installed")
    folder = tmp_path / "guarded"
    folder.mkdir()
    subprocess.run(["mosquitto_passwd", "-c", "-b", folder / "users", "ann", "right"], check=True, capture_output=True)
    (folder / "acl").write_text("user ann\ntopic readwrite open/#\n")
    broker = Mosquitto(folder, f"allow_anonymous false\npassword_file {folder}/users\nacl_file {folder}/acl")
    yield broker
    broker.stop()


def test_secrets_and_content_are_in_no_message(guarded, tmp_path, caplog, capfd):
    """Wrong passwords, refused topics, lost brokers, full disks: what is told, logged, printed."""
    told = []

    def tell(action):
        try:
            action()
        except FcstreamError as error:
            told.append("".join(traceback.format_exception(error)))
        else:
            raise AssertionError("no error")

    url = f"mqtt://ann:{{}}@{guarded.host}/open/t?client_id=c&patience=0.3"
    with caplog.at_level(logging.DEBUG):
        for host in (guarded.host, "127.0.0.1:1", "no.such.host.invalid:1883"):
            tell(lambda host=host: open_live(f"mqtt://ann:{SECRET}@{host}/open/t", "n"))
            tell(lambda host=host: open_sink(f"mqtt://ann:{SECRET}@{host}/open/t"))
        tell(lambda: open_live(f"mqtts://ann:{SECRET}@{guarded.host}/open/t?ca=/no/such/file", "n"))
        source = SpooledSource(open_live(url.format("right"), "n"), Spool(tmp_path / "spool", MIB))
        out = open_sink(url.format("right").replace("client_id=c&", ""))
        out.write([sample_release()])
        proxy = open_sink(url.format("right").replace("client_id=c&", ""))
        proxy._link.run(lambda connection: connection.answer(connection.publish("open/t", CONTENT, False)))
        assert CONTENT in drain(source, 2)
        guarded.stop()
        tell(lambda: source.poll(1, 60.0))
        tell(lambda: out.write([sample_release(1)]))
        for one in (source, out, proxy):
            one.close()
        guarded.start()
    everything = "".join(told) + caplog.text + "".join(capfd.readouterr())
    assert len(told) == 9
    assert "***" in everything
    assert "Bad user name or password" in told[0] or "Not authorized" in told[0]
    for secret in (SECRET, "right", CONTENT.decode()):
        assert secret not in everything


def test_refused_topics(guarded):
    address = f"mqtt://ann:right@{guarded.host}/shut/t"
    out = open_sink(address)
    with pytest.raises(SinkError, match="Not authorized"):
        out.write([sample_release()])
    out.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves a refused socket to the GC
def test_tls(mqtt_client, mqtt_topic, tmp_path, certificate):
    proxy = tls_proxy(int(HOST.partition(":")[2]), certificate)
    options = f"ca={certificate[0]}&cert={certificate[0]}&key={certificate[1]}"
    opened = open_live(f"mqtts://{proxy.host}/{mqtt_topic}?{options}", mqtt_topic)
    with contextlib.closing(SpooledSource(opened, Spool(tmp_path / "spool", MIB))) as source:
        out = open_sink(f"mqtts://localhost:{proxy.port}/{mqtt_topic}?{options}")
        out.write([sample_release()])
        out.close()
        assert drain(source, 1) == [sample_release().to_bytes()]
    with pytest.raises(SourceError, match="self-signed certificate"):
        open_live(f"mqtts://{proxy.host}/{mqtt_topic}", mqtt_topic)
    with pytest.raises(ConfigError, match="cannot be used"):
        open_live(f"mqtts://{proxy.host}/{mqtt_topic}?ca={tmp_path}/nothing", mqtt_topic)
    proxy.close()
    gc.collect()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("mqtt://h/a/#", "%23 for #"),
        ("mqtt://h/?inflight=1", "%23 for #"),
        ("mqtt://h/t?inflight=70000", "inflight"),
        ("mqtt://h/t?inflight=x", "inflight"),
        ("mqtt://127.0.0.1:1/t?nonsense=1", "unknown option 'nonsense'"),
        ("mqtt://127.0.0.1:1/t?ca=file", "unknown option 'ca'"),
    ],
)
def test_wrong_sources(url, what):
    with pytest.raises(ConfigError, match=what):
        open_live(url, "n")


@pytest.mark.parametrize("url", ["mqtt://h/a/+/b", "mqtt://h/a/%23", "mqtt://h/t?retain=maybe"])
def test_wrong_sinks(url):
    with pytest.raises(ConfigError, match="without wildcards"):
        open_sink(url)


def test_missing_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[mqtt\]'"):
        open_live("mqtt://h/t", "n")
