"""The MQTT broker of this machine, and brokers of a test's own."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest

from fcstream.connectors.mqtt.sink import MqttSink
from fcstream.connectors.mqtt.source import MqttTopic
from fcstream.connectors.pushed import SharedSpool
from fcstream.connectors.received import ReceivedSource
from fcstream.connectors.urls import parse
from fcstream.testing import SourceContract
from support.helpers import free_port, service
from support.queues import MIB

HOST = os.environ.get("FCSTREAM_MQTT", "127.0.0.1:1883")
NAMES = itertools.count()


class MqttClient:
    """A plain client, to publish and to look."""

    def __init__(self, host):
        from paho.mqtt import client, enums

        name, _, port = host.partition(":")
        self.seen = []
        self.client = client.Client(enums.CallbackAPIVersion.VERSION2, protocol=client.MQTTv5)
        self.client.on_message = lambda _c, _u, message: self.seen.append(message.payload)
        self.client.connect(name, int(port))
        self.client.loop_start()

    def publish(self, topic, bodies, qos=1, retain=False, properties=None):
        for sent in [self.client.publish(topic, body, qos, retain, properties) for body in bodies]:
            sent.wait_for_publish(60)
            assert sent.is_published()

    def watch(self, topic):
        done = threading.Event()
        self.client.on_subscribe = lambda *_: done.set()
        self.client.subscribe(topic, qos=1)
        assert done.wait(60)

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()
        self.client.on_message = self.client.on_subscribe = None  # or it is freed late, with open sockets


@pytest.fixture(scope="session")
def mqtt_client():
    """A client of the broker that is there."""
    client = service("An MQTT broker (FCSTREAM_MQTT names another host:port)", lambda: MqttClient(HOST))
    yield client
    client.close()


@pytest.fixture
def mqtt_topic(mqtt_client):
    """A topic of its own, and afterwards no session of its consumer."""
    name = f"fcstream-test/{os.getpid()}-{next(NAMES)}"
    yield name
    forget(HOST, name)


def forget(host, name):
    from paho.mqtt import client, enums

    clean = client.Client(enums.CallbackAPIVersion.VERSION2, client_id=name, protocol=client.MQTTv5)
    place, _, port = host.partition(":")
    clean.connect(place, int(port), clean_start=True)
    clean.loop_start()
    clean.disconnect()
    clean.loop_stop()


class Mosquitto:
    """A Mosquitto of our own."""

    def __init__(self, folder, options=""):
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._folder = folder
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\npersistence true\npersistence_location {folder}/\n"
            f"autosave_interval 1\nuser root\nlog_dest none\n{options or 'allow_anonymous true'}\n"
        )
        self._process = None
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            ["mosquitto", "-c", self._folder / "mosquitto.conf"], stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.02)
        raise AssertionError("mosquitto does not start")

    def stop(self):
        self._process.terminate()
        self._process.wait(60)

    close = stop


@pytest.fixture
def mosquitto(tmp_path):
    if shutil.which("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    folder = tmp_path / "broker"
    folder.mkdir()
    with contextlib.closing(Mosquitto(folder)) as it:
        yield it


def queue(topic, options="", host=HOST, name=None, patience_s=60.0):
    return MqttTopic(parse(f"mqtt://{host}/{topic}?{options}", "source.url"), name or topic, patience_s)


def spooled(folder, topic, options="", host=HOST, patience_s=60.0):
    return contextlib.closing(
        ReceivedSource(queue(topic, options, host, patience_s=patience_s), SharedSpool(folder / "spool", 64 * MIB))
    )


def sink(topic, options="", host=HOST, patience_s=60.0):
    return contextlib.closing(MqttSink(parse(f"mqtt://{host}/{topic}?{options}", "sink.url"), patience_s))


def drain(source, wanted, seconds=60.0):
    return [body for *_, body in SourceContract().drain(source, wanted, seconds)]
