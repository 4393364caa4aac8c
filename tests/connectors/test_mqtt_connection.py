"""MQTT connections: cut, restarted, refused, behind TLS."""

import contextlib
import gc
import logging
import random
import shutil
import ssl
import subprocess
import sys
import threading
import time
import traceback

import pytest
from support.helpers import open_sockets
from support.mqtt import HOST, Mosquitto, MqttClient, drain, queue, sink, spooled
from support.proxy import Proxy
from support.queues import MIB
from support.sources import CONTENT, SECRET

from fcstream.connectors import open_live, open_sink
from fcstream.connectors.mqtt import connection as module
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.testing import sample_release


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


@pytest.mark.parametrize("made", [queue, lambda topic: sink(topic).thing])
def test_a_closed_connection_leaves_no_socket_to_the_garbage_collector(mqtt_topic, made):
    before = open_sockets()
    gc.disable()
    try:
        opened = made(mqtt_topic)
        assert open_sockets() > before
        opened.close()
        del opened
        assert open_sockets() <= before
    finally:
        gc.enable()


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
        found += drain(source, source.ends()["spool"] - len(found))
        assert len(found) - 900 < 900  # this broker sends more ahead than it may, and again after each cut
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


def test_broker_restarts(mosquitto, tmp_path):
    """Sessions and messages are on its disk; the source comes back by itself, in the middle of a wait."""
    client = MqttClient(mosquitto.host)
    with spooled(tmp_path, "t", host=mosquitto.host) as source, sink("r", "retain=true", mosquitto.host) as out:
        client.publish("t", [b"1"])
        assert drain(source, 1) == [b"1"]
        out.write([sample_release(0)])
        client.close()
        mosquitto.stop()

        def restart():
            time.sleep(0.5)
            mosquitto.start()

        thread = threading.Thread(target=restart)
        thread.start()
        out.write([sample_release(1)])
        thread.join()
        client = MqttClient(mosquitto.host)
        client.publish("t", [b"2"])
        assert drain(source, 1) == [b"2"]
        assert out.last() == sample_release(1)
        client.close()


def test_a_forgotten_session_is_reported(mosquitto, tmp_path, caplog):
    with contextlib.closing(queue("t", host=mosquitto.host)) as opened:
        opened.receive(1, 0.1)
        assert opened.gaps() == []
        before = time.time_ns() // 1_000_000
        mosquitto.stop()
        for path in (tmp_path / "broker").glob("*.db"):
            path.unlink()
        starting = threading.Timer(0.5, mosquitto.start)  # the first attempts fail
        starting.start()
        with caplog.at_level(logging.WARNING):
            opened.receive(1, 0.1)
        starting.join()
        assert "has forgotten the session" in caplog.text
        [gap] = opened.gaps()
        assert "had forgotten the session" in gap.what
        assert before - 60_000 < gap.since_ms <= before
        assert opened.gaps() == []


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
        ("mqtt://h,g/a/+,b/+", "a comma makes no list"),
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
