"""Kafka: librdkafka's mock cluster, and the brokers that FCSTREAM_KAFKA names; topics of a test's own."""

import itertools
import os
import time

import pytest

from fcstream.connectors.urls import parse
from support.helpers import service

NAMES = itertools.count()


@pytest.fixture(scope="module", params=["mock", "real"] if "FCSTREAM_KAFKA" in os.environ else ["mock"])
def kafka_broker(request):
    from confluent_kafka import Consumer

    from support import kafka_mock

    if request.param == "mock":
        with kafka_mock.mock() as (address, _):
            yield address
    else:
        address = os.environ["FCSTREAM_KAFKA"]
        yield service("Kafka", lambda: Consumer({**quiet(address), "group.id": "x"}).list_topics(timeout=5) and address)


def quiet(address):
    return {"bootstrap.servers": address, "log_level": 0}


def make_topic(address, partitions=4):
    """A new topic."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"fcstream-{os.getpid()}-{time.time_ns()}-{next(NAMES)}"
    if address == os.environ.get("FCSTREAM_KAFKA"):
        AdminClient(quiet(address)).create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    else:
        Producer(quiet(address)).list_topics(name, timeout=60)  # the mock makes it, with 4 partitions
    return name


def send(address, topic, bodies, partition=None):
    from confluent_kafka import Producer

    producer = Producer(quiet(address))
    for i, body in enumerate(bodies):
        producer.produce(topic, body, partition=i % 4 if partition is None else partition)
    assert producer.flush(60) == 0


def sink_of(address, topic, patience_s=60.0):
    from fcstream.connectors.kafka.sink import KafkaSink

    return KafkaSink(parse(f"kafka://{address}/{topic}", "sink.url"), patience_s)
