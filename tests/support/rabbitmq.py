"""The RabbitMQ of this machine."""

import contextlib
import fcntl
import itertools
import logging
import os
import shutil
import socket
import subprocess
import tempfile

import pytest

from fcstream.connectors.rabbitmq.queue_source import AmqpQueue
from fcstream.connectors.rabbitmq.stream_sink import RabbitStreamSink
from fcstream.connectors.rabbitmq.stream_source import RabbitStreamSource
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.connectors.urls import parse
from support.helpers import service

MIB = 1 << 20
HOST = os.environ.get("FCSTREAM_AMQP", "127.0.0.1:5672")
STREAMS = os.environ.get("FCSTREAM_RABBITMQ_STREAM", "127.0.0.1:5552")
NAMES = itertools.count()


def amqp(host=HOST):
    import pika

    name, _, port = host.partition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(name, int(port)))


@pytest.fixture(scope="session")
def rabbitmq():
    """A broker for queues answers."""
    service("RabbitMQ (FCSTREAM_AMQP names another host:port)", lambda: amqp().close())
    logging.getLogger("pika").setLevel(logging.CRITICAL)


@pytest.fixture(scope="session")
def rabbitmq_streams(rabbitmq):
    """A broker for streams answers; its plugin is enabled here if that is possible."""

    def reach():
        name, _, port = STREAMS.partition(":")
        socket.create_connection((name, int(port)), 3).close()

    def probe():
        # Runs that begin together: one enables it, the others wait.
        with open(os.path.join(tempfile.gettempdir(), "fcstream-test-rabbitmq.lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                reach()
            except OSError:
                if "FCSTREAM_RABBITMQ_STREAM" in os.environ or shutil.which("rabbitmq-plugins") is None or os.geteuid():
                    raise
                enable = ["rabbitmq-plugins", "enable", "rabbitmq_stream"]
                subprocess.run(enable, check=True, capture_output=True, timeout=300)
                reach()

    service("RabbitMQ's plugin rabbitmq_stream (FCSTREAM_RABBITMQ_STREAM names another host:port)", probe)


@contextlib.contextmanager
def declared(kind, host=HOST, **arguments):
    """A queue of its own, deleted afterwards."""
    name = f"fcstream-test-{os.getpid()}-{next(NAMES)}"
    connection = amqp(host)
    connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": kind, **arguments})
    connection.close()
    try:
        yield name
    finally:
        connection = amqp(host)
        connection.channel().queue_delete(name)
        connection.close()


@pytest.fixture
def rabbitmq_stream(rabbitmq_streams):
    with declared("stream") as name:
        yield name


def publish(name, bodies, ids=None, host=HOST):
    """Durably, in order."""
    import pika

    connection = amqp(host)
    channel = connection.channel()
    for i, body in enumerate(bodies):
        if i == len(bodies) - 1:
            channel.confirm_delivery()  # then those before are there too
        properties = pika.BasicProperties(delivery_mode=2, message_id=ids[i] if ids else None)
        channel.basic_publish("", name, body, properties, mandatory=True)
    connection.close()


def port_of(host):
    return int(host.partition(":")[2])


@pytest.fixture
def classic(rabbitmq):
    with declared("classic") as name:
        yield name


def queue(name, options="", host=HOST, patience_s=20.0):
    return AmqpQueue(parse(f"amqp://{host}/?queue={name}{options}", "source.url"), "test", patience_s)


def spooled(folder, name, options="", host=HOST, patience_s=20.0):
    return contextlib.closing(SpooledSource(queue(name, options, host, patience_s), Spool(folder / "spool", 16 * MIB)))


def source(name, options="", host=STREAMS, patience_s=20.0):
    address = parse(f"rabbitmq-stream://{host}/?stream={name}{options}", "source.url")
    return contextlib.closing(RabbitStreamSource(address, "test", patience_s))


def sink(name, options="", host=STREAMS, patience_s=20.0):
    address = parse(f"rabbitmq-stream://{host}/?stream={name}{options}", "sink.url")
    return contextlib.closing(RabbitStreamSink(address, patience_s))
