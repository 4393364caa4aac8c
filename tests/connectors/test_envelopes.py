"""What messages have besides their bodies, as each broker gives it, and nothing where nothing is asked for."""

import contextlib
import json
import time
from collections import Counter

import pytest
from support.helpers import sample
from support.kafka import make_topic, quiet
from support.mqtt import HOST as MQTT
from support.nats_server import HOST as NATS
from support.rabbitmq import HOST as AMQP
from support.rabbitmq import STREAMS, amqp
from support.redis_server import HOST as REDIS

from fcstream.config import Config
from fcstream.connectors import check_asked, open_live
from fcstream.connectors.base import Queue
from fcstream.connectors.nats.reader import SingleMessageReader
from fcstream.connectors.spool import MIN_BYTES, Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import ConfigError
from fcstream.formats.envelopes import AskedFields, Envelope
from fcstream.service.build import build

ALL = AskedFields(True, True, frozenset({"device", "site"}))


def read(url, asked, folder, count):
    """Bodies and envelopes of the first messages."""
    opened = open_live(url, f"envelopes-{time.time_ns()}", asked)
    if isinstance(opened, Queue):
        opened = SpooledSource(opened, Spool(folder, 4 * MIN_BYTES), asked=asked)
    found, until = [], time.monotonic() + 60
    with contextlib.closing(opened):
        while len(found) < count and time.monotonic() < until:
            for chunk in opened.poll(100, 0.2):
                found += zip(chunk.bodies, chunk.envelopes or [None] * len(chunk.bodies), strict=True)
    return found


def test_kafka(kafka_broker, tmp_path):
    from confluent_kafka import Producer

    topic = make_topic(kafka_broker)
    producer = Producer(quiet(kafka_broker))
    headers = [("device", "d1"), ("device", b"d2"), ("other", "x"), ("site", None)]
    producer.produce(topic, b"a", key=b"k", headers=headers, partition=0)
    producer.produce(topic, b"b", partition=0)
    producer.flush(60)
    url = f"kafka://{kafka_broker}/{topic}?session_s=4"
    assert read(url, ALL, tmp_path, 2) == [
        (b"a", Envelope(topic, b"k", {"device": b"d2"})),
        (b"b", Envelope(topic)),
    ]
    assert read(url, AskedFields(key=True), tmp_path, 2) == [(b"a", Envelope(None, b"k")), (b"b", Envelope())]
    assert read(url, AskedFields(broker=True), tmp_path, 2) == [(b"a", None), (b"b", None)]


def test_redis(redis_client, redis_key, tmp_path):
    redis_client.xadd(redis_key, {"device": "d1", "data": b"a", "other": "x"})
    redis_client.xadd(redis_key, {"data": b"b", "site": b"\xff"})
    redis_client.xadd(redis_key, {"data": b"c"}, id=f"{2**63}-1")  # one of those that are handed out in another way
    url = f"redis://{REDIS}/0?stream={redis_key}"
    assert read(url, ALL, tmp_path, 3) == [
        (b"a", Envelope(redis_key, None, {"device": b"d1"})),
        (b"b", Envelope(redis_key, None, {"site": b"\xff"})),
        (b"c", Envelope(redis_key)),
    ]
    assert read(url, AskedFields(), tmp_path, 3) == [(b"a", None), (b"b", None), (b"c", None)]


def test_nats(nats_server, nats_stream, tmp_path):
    subject = f"{nats_stream}.r1"
    nats_server.js("publish", subject, b"a", headers={"device": "d1", "other": "x"})
    nats_server.js("publish", subject, b"b")
    url = f"nats://{NATS}/{nats_stream}?bucket={nats_stream}"
    expected = [(b"a", Envelope(subject, None, {"device": b"d1"})), (b"b", Envelope(subject))]
    assert read(url, ALL, tmp_path, 2) == expected
    assert read(url, AskedFields(), tmp_path, 2) == [(b"a", None), (b"b", None)]
    opened = open_live(url, "single", ALL)  # the way past a message that the client cannot parse
    with contextlib.closing(opened):
        reader = SingleMessageReader(opened._wire, nats_stream, ">", 1, ALL)
        rows = [opened._wire.run(lambda: reader.take(1, 1.0)) for _ in range(2)]
    assert [(body, envelope) for ((_, _, body, envelope),) in rows] == expected


def test_rabbitmq_streams(rabbitmq_stream, tmp_path):
    import asyncio

    from rstream import AMQPMessage, Producer

    async def send():
        host, _, port = STREAMS.partition(":")
        async with Producer(host, int(port), username="guest", password="guest") as producer:
            properties = {"device": "d1", b"site": 5, "other": "x"}
            await producer.send_wait(rabbitmq_stream, AMQPMessage(body=b"a", application_properties=properties))
            await producer.send_wait(rabbitmq_stream, b"b")
            await producer.send_wait(rabbitmq_stream, b"\0Sx")  # looks like AMQP 1.0 and is not

    asyncio.run(send())
    url = f"rabbitmq-stream://{STREAMS}/?stream={rabbitmq_stream}"
    assert read(url, ALL, tmp_path, 3) == [
        (b"a", Envelope(headers={"device": b"d1", "site": b"5"})),
        (b"b", Envelope()),
        (b"\0Sx", Envelope()),
    ]
    assert read(url, AskedFields(), tmp_path, 3)[0] == (b"a", None)


def test_amqp_queues(classic, tmp_path):
    import pika

    with contextlib.closing(amqp()) as connection:
        channel = connection.channel()
        headers = {"device": "d1", "site": 5, "other": "x"}
        channel.basic_publish("", classic, b"a", pika.BasicProperties(headers=headers))
        channel.basic_publish("", classic, b"b")
    url = f"amqp://{AMQP}/?queue={classic}"
    assert read(url, ALL, tmp_path / "spool", 2) == [
        (b"a", Envelope(classic, None, {"device": b"d1", "site": b"5"})),
        (b"b", Envelope(classic)),
    ]
    assert read(url, ALL, tmp_path / "spool", 2)[0][1].headers == {"device": b"d1", "site": b"5"}  # from the disk


def test_mqtt(mqtt_client, mqtt_topic, tmp_path):
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    url = f"mqtt://{MQTT}/{mqtt_topic}/%2B/temp?session=60"
    source = SpooledSource(open_live(url, mqtt_topic, ALL), Spool(tmp_path / "spool", 4 * MIN_BYTES), asked=ALL)
    with contextlib.closing(source):
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [("device", "d1"), ("device", "d2"), ("other", "x")]
        for body, given in ((b"a", properties), (b"b", None)):
            mqtt_client.client.publish(f"{mqtt_topic}/r1/temp", body, qos=1, properties=given).wait_for_publish(60)
        found, until = [], time.monotonic() + 60
        while len(found) < 2 and time.monotonic() < until:
            for chunk in source.poll(100, 0.2):
                found += zip(chunk.bodies, chunk.envelopes, strict=True)
    topic = f"{mqtt_topic}/r1/temp"
    assert found == [(b"a", Envelope(topic, None, {"device": b"d2"})), (b"b", Envelope(topic))]


@pytest.mark.parametrize(
    ("url", "has", "lacks"),
    [
        ("kafka://h/t", ["@topic:1", "@key", "@header:x", "@broker"], []),
        ("redis://h/0?stream=s", ["@topic:1", "@header:x", "@broker"], ["@key"]),
        ("nats://h/s", ["@topic:1", "@header:x", "@broker"], ["@key"]),
        ("rabbitmq-stream://h/?stream=s", ["@header:x", "@broker"], ["@topic:1", "@key"]),
        ("amqp://h/?queue=q", ["@topic:1", "@header:x", "@broker"], ["@key"]),
        ("mqtts://h/t", ["@topic:1", "@header:x", "@broker"], ["@key"]),
    ],
)
def test_what_a_broker_does_not_have_is_refused_with_what_it_has(url, has, lacks):
    def checked(field):
        return check_asked(url, Config.from_mapping(sample(stream={"unit": "user", "user": field})).job.schema)

    for field in has:
        assert checked(field).asked
    if "@topic:1" in has:
        separators = {"mqtts": "/", "redis": ":"}
        assert checked("@topic:1").topic_separator == separators.get(url.partition(":")[0], ".")
    for field in lacks:
        with pytest.raises(ConfigError) as caught:
            checked(field)
        assert str(caught.value).startswith("stream.user: must be a field of the message, or one of '@")
        assert f"got '{field}', which its messages do not have" in str(caught.value)


def test_a_stream_whose_time_and_key_come_with_its_messages(redis_client, redis_key, tmp_path):
    """Messages that hold nothing but a list of readings; what they lack is in their envelopes."""
    start = time.time_ns() // 10**9 - 1
    for i in range(25):
        site = {} if i == 24 else {"site": "ns"[i % 2]}
        redis_client.xadd(
            redis_key, {"data": b'{"r": [{"v": {"t": "205"}}, {"v": {"t": 210}}, {"v": {"t": "x"}}]}', **site}
        )
    stamps = [int(entry.partition(b"-")[0]) for entry, _ in redis_client.xrange(redis_key)]
    end = stamps[-1] // 1000 + 1
    config = Config.from_mapping(
        {
            "stream": {"name": "e", "time": "@broker", "key": "@header:site", "keys": ["n", "s"], "keys_per_user": 1},
            "features": [{"name": "t", "path": "v.t", "text": True, "factor": 0.1, "min": 20.0, "max": 22.0}],
            "lattice": {"step": 0.01},
            "window": {
                "length": f"{end - start}s",
                "clock": "broker",
                "lateness": "1s",
                "backlog": "1d",
                "start": moment(start),
                "end": moment(end),
            },
            "release": {"kind": "mean", "method": "ball", "center": [20.0], "radius": 2.5, "rho": 1e4, "delta": 1e-9},
            "budget": {"rho": 2e4, "delta": 1e-6},
            "source": {"url": f"redis://{REDIS}/0?stream={redis_key}", "records": "r"},
            "sink": {"url": f"jsonl:{tmp_path}/out.jsonl"},
            "ledger": {"url": f"sqlite:{tmp_path}/l.db"},
            "dead_letter": {"url": f"jsonl:{tmp_path}/odd.jsonl"},
        }
    )
    build(config).run()
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {one["stream"]: round(one["count"]) for one in found} == {"e/n": 24, "e/s": 24}
    assert [one["value"] for one in found] == [[pytest.approx(20.75, abs=0.05)]] * 2
    odd = [json.loads(line) for line in (tmp_path / "odd.jsonl").read_text().splitlines()]
    assert Counter((one["reason"], one["field"]) for one in odd for _ in range(one.get("count", 1))) == {
        ("not_a_number", "t"): 25,
        ("missing", "@header:site"): 2,
    }


def moment(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
