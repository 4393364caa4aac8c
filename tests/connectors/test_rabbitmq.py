"""RabbitMQ, queues and streams, against the broker of this machine; cut off, restarted, behind TLS."""

import asyncio
import contextlib
import dataclasses
import gc
import gzip
import logging
import random
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import tracemalloc
import warnings
from functools import partial

import pytest
from support.certificates import certificates
from support.helpers import service
from support.proxy import Proxy
from support.rabbitmq import HOST, STREAMS, amqp, declared, publish
from support.rabbitmq_node import Node

from fcstream import connectors
from fcstream.connectors import open_live, open_sink, retry
from fcstream.connectors.rabbitmq import queue_connection, stream_connection, stream_sink, stream_source
from fcstream.connectors.rabbitmq.chunks import body_of
from fcstream.connectors.rabbitmq.queue_sink import AmqpSink
from fcstream.connectors.rabbitmq.queue_source import AmqpQueue
from fcstream.connectors.rabbitmq.stream_sink import RabbitStreamSink
from fcstream.connectors.rabbitmq.stream_source import RabbitStreamSource
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, SourceContract, sample_release

SECRET = "s3cretWord"
CONTENT = b"sentinelContent"
MIB = 1 << 20


def port_of(host):
    return int(host.partition(":")[2])


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def starting(tmp_path_factory, files):
    """A broker of our own, that takes some seconds to start: meanwhile other tests run."""
    node = Node(tmp_path_factory.mktemp("rabbitmq"), files)
    yield node
    node.stop(signal.SIGKILL)


@pytest.fixture(scope="module", autouse=True)
def early(starting):
    """It starts with the first test."""


@pytest.fixture
def node(starting):
    return service("a RabbitMQ of our own", starting.wait)


@pytest.fixture(params=["classic", "quorum"])
def either(rabbitmq, request):
    with declared(request.param) as name:
        yield name


@pytest.fixture
def classic(rabbitmq):
    with declared("classic") as name:
        yield name


def size_of(name):
    connection = amqp()
    count = connection.channel().queue_declare(name, passive=True).method.message_count
    connection.close()
    return count


def takings(name, whole=False):
    """All messages of a queue, with how they came if wanted."""
    connection = amqp()
    channel, found = connection.channel(), []
    while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
        found.append(got if whole else got[1:])
    connection.close()
    return found


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


def drain(source, wanted, seconds=20.0):
    return SourceContract().drain(source, wanted, seconds)


def bodies(rows):
    return [body for *_, body in rows]


class TestAmqpQueue(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, either):
        self.name = either

    def make(self, tmp_path):
        return SpooledSource(queue(self.name), Spool(tmp_path / "spool", MIB))

    def send(self, tmp_path, bodies):
        publish(self.name, bodies)


class TestRabbitStreamSource(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, rabbitmq_stream):
        self.name = rabbitmq_stream

    def make(self, tmp_path):
        return RabbitStreamSource(parse(f"rabbitmq-stream://{STREAMS}/?stream={self.name}", "source.url"), "test")

    def send(self, tmp_path, bodies):
        publish(self.name, bodies)


class TestRabbitStreamSink(SinkContract):
    @pytest.fixture(autouse=True)
    def place(self, rabbitmq_stream):
        self.name = rabbitmq_stream

    def make(self, tmp_path):
        return RabbitStreamSink(parse(f"rabbitmq-stream://{STREAMS}/?stream={self.name}", "sink.url"))

    def read(self, tmp_path):
        with source(self.name) as opened:
            return [Release.from_bytes(body) for body in bodies(drain(opened, 5))]


class TestAmqpSink(SinkContract):
    @pytest.fixture(autouse=True)
    def place(self, either):
        self.name = either

    def make(self, tmp_path):
        return AmqpSink(parse(f"amqp://{HOST}/?queue={self.name}", "sink.url"))

    def read(self, tmp_path):
        return [Release.from_bytes(body) for _, body in takings(self.name)]


# ── queues ──


def test_by_url(classic, rabbitmq_stream):
    for url, kinds in {
        f"amqp://{HOST}/?queue={classic}": (AmqpQueue, AmqpSink),
        f"rabbitmq-stream://{STREAMS}/?stream={rabbitmq_stream}": (RabbitStreamSource, RabbitStreamSink),
    }.items():
        assert connectors.is_live(url)
        for opened, kind in zip((connectors.open_live(url, "test"), connectors.open_sink(url)), kinds, strict=True):
            assert isinstance(opened, kind)
            opened.close()
            opened.close()


def test_what_was_not_acknowledged_comes_again_and_what_was_does_not(either):
    """The connection is closed right after the acknowledgement, which must not be lost."""
    for _ in range(5):
        publish(either, [b"%d" % i for i in range(30)])
        opened = queue(either)
        found = opened.receive(30, 5)
        while len(found) < 30:
            found += opened.receive(30, 5)
        opened.acknowledge(found[:12])
        opened.close()
        opened = queue(either)
        again = []
        while opened.pending():
            again += opened.receive(100, 1)
        assert [one.body for one in again] == [b"%d" % i for i in range(12, 30)]
        opened.acknowledge(found[12:])  # tokens of the old connection
        opened.acknowledge(again[5:])  # not the first ones: those stay
        opened.acknowledge(again[2:3])
        opened.close()
        opened = queue(either)
        rest = opened.receive(100, 5)
        while len(rest) < 4:
            rest += opened.receive(100, 5)
        assert [one.body for one in rest] == [b"12", b"13", b"15", b"16"]
        opened.acknowledge(rest)
        opened.close()
        assert size_of(either) == 0


def test_prefetch_bounds_what_is_here(classic):
    publish(classic, [b"x" * 1000] * 50)
    opened = queue(classic, "&prefetch=7")
    found = opened.receive(100, 5)
    assert opened.pending()
    while len(found) < 7:
        found += opened.receive(100, 5)
    assert opened.receive(100, 0.1) == []
    assert opened.pending()
    opened.acknowledge(found)
    few = opened.receive(3, 5)
    while len(few) < 3:  # as they come
        few += opened.receive(3 - len(few), 5)
    assert len(few) == 3
    opened.close()


def test_no_messages_means_waiting_and_no_more(classic):
    opened = queue(classic)
    start = time.monotonic()
    assert opened.receive(10, 0.5) == []
    assert 0.4 < time.monotonic() - start < 30
    assert not opened.pending()
    threading.Timer(0.3, publish, (classic, [b"late"])).start()
    assert [one.body for one in opened.receive(10, 120)] == [b"late"]
    assert time.monotonic() - start < 60
    opened.close()


def test_a_stream_is_refused(rabbitmq_stream):
    """It would be read from its end, so that all before that were lost."""
    publish(rabbitmq_stream, [b"early"])
    for _ in range(2):
        with pytest.raises(ConfigError, match="use rabbitmq-stream://"):
            queue(rabbitmq_stream)


def test_identities_that_are_no_text(either, tmp_path):
    """Whoever publishes could end the service with one."""
    publish(either, [b"1", b"2", b"3"], ids=["a", "b", "c"])
    with spooled(tmp_path, either, "&delivery_id=message_id") as opened:
        assert len(drain(opened, 3)) == 3
        for _ in range(2):
            publish_raw_id(either, b"\xff\xfe", b"odd")
        assert bodies(drain(opened, 1)) == [b"odd"]
        publish(either, [b"4"], ids=["d"])
        assert bodies(drain(opened, 1)) == [b"4"]
        assert opened.duplicates == 1


def publish_raw_id(name, identity, body):
    import pika

    publish_raw(name, body, pika.BasicProperties.FLAG_MESSAGE_ID, struct.pack("B", len(identity)) + identity)


def test_headers_that_cannot_be_read_are_named(classic):
    """The client library gives the connection up."""
    import pika

    opened = queue(classic, "&patience=0.5")
    table = b"\x02at" + struct.pack(">cQ", b"T", 1_700_000_000_000)  # milliseconds where seconds belong
    publish_raw(classic, CONTENT, pika.BasicProperties.FLAG_HEADERS, struct.pack(">I", len(table)) + table)
    with pytest.raises(SourceError, match=r"headers cannot be read \((Value|Overflow)Error\): remove it") as told:
        take_all(opened, [])
    assert "1700000" not in str(told.value)
    opened.close()


def publish_raw(name, body, flags, properties):
    """With properties that the client library would not write."""
    import pika

    class Raw(pika.BasicProperties):
        def encode(self):
            return [struct.pack(">H", flags), properties]

    connection = amqp()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", name, body, Raw())
    connection.close()


def take_all(opened, found):
    """Until it breaks."""
    while True:
        found += opened.receive(100, 1)


def test_a_channel_that_the_broker_closes_is_opened_again(classic):
    opened = queue(classic)
    opened._link.channel.client.basic_ack(12345)  # which is wrong
    assert opened.receive(10, 0.5) == []
    publish(classic, [b"1"])
    found, until = [], time.monotonic() + 60
    while not found and time.monotonic() < until:
        found = opened.receive(10, 0.2)
    assert [one.body for one in found] == [b"1"]
    opened.acknowledge(found)
    opened.close()
    assert size_of(classic) == 0


def test_what_a_deleted_queue_had_given_is_not_thrown_away(rabbitmq):
    with declared("classic") as name:
        opened = queue(name, "&patience=0.3")
        publish(name, [b"%d" % i for i in range(10)])
        until = time.monotonic() + 60
        while size_of(name) and time.monotonic() < until:
            time.sleep(0.05)
        connection = amqp()
        connection.channel().queue_delete(name)
        connection.close()
        found = []
        with pytest.raises(SourceError, match="cannot be used"):
            take_all(opened, found)
        assert [one.body for one in found] == [b"%d" % i for i in range(10)]
        opened.close()


@pytest.mark.parametrize("what", ["queue", "sink"])
def test_a_broker_that_does_not_answer_is_given_up(classic, what, monkeypatch):
    """Neither a message without a confirmation nor the end of a connection is waited for without a bound."""
    monkeypatch.setattr(queue_connection, "_ANSWER_S", 0.5)
    with contextlib.closing(Proxy(port_of(HOST))) as proxy:
        if what == "sink":
            opened = AmqpSink(parse(f"amqp://{proxy.host}/?queue={classic}&patience=0.5", "sink.url"))
            ask = partial(opened.send, [b"1"])
        else:
            opened = queue(classic, "&patience=0.5", proxy.host)
            ask = opened.pending
        proxy.swallows = True
        start = time.monotonic()
        with pytest.raises(FcstreamError, match=r"no answer within (0\.5|1) seconds|cannot be used"):
            ask()
        opened.close()
        assert time.monotonic() - start < 60  # of which a new connection may take ten
        proxy.swallows = False


def test_a_silent_broker_does_not_hold_the_end_up(classic, monkeypatch):
    monkeypatch.setattr(queue_connection, "_ANSWER_S", 0.5)
    with contextlib.closing(Proxy(port_of(HOST))) as proxy:
        opened = queue(classic, "", proxy.host)
        proxy.swallows = True
        start = time.monotonic()
        opened.close()
        assert time.monotonic() - start < 30


def test_what_a_full_queue_took_is_not_sent_again(rabbitmq):
    """Releases that are refused are tried again, those before them are not."""
    releases = [sample_release(i) for i in range(5)]
    with declared("classic", **{"x-max-length": 3, "x-overflow": "reject-publish"}) as name:
        out, taken = AmqpSink(parse(f"amqp://{HOST}/?queue={name}", "sink.url")), []
        for _ in range(10):
            try:
                out.write(releases)
                break
            except SinkError:
                taken.append(take_one(name))
        out.close()
        while size_of(name):
            taken.append(take_one(name))
    assert [Release.from_bytes(body) for body in taken] == releases


def take_one(name):
    connection = amqp()
    _, _, body = connection.channel().basic_get(name, auto_ack=True)
    connection.close()
    return body


def test_long_names_of_releases(classic):
    """AMQP has 255 bytes for them."""
    releases = [dataclasses.replace(sample_release(), stream="é" * n) for n in (100, 200)]
    out = AmqpSink(parse(f"amqp://{HOST}/?queue={classic}", "sink.url"))
    out.write(releases)
    out.close()
    found = takings(classic)
    assert [Release.from_bytes(body) for _, body in found] == releases
    assert found[0][0].message_id == f"{'é' * 100}:0:60000"
    assert len(found[1][0].message_id) == 64


@pytest.mark.parametrize(
    "url", ["amqp://h/?queue=q&delivery_id=message_id&prefetch=5000", "mqtt://h/t?delivery_id=id&inflight=5000"]
)
def test_no_more_identities_than_are_remembered(url):
    with pytest.raises(ConfigError, match="4096 at most"):
        open_live(url, "n")


def test_a_spool_that_cannot_be_opened_keeps_no_messages(classic, tmp_path):
    from fcstream.config import SourceSection
    from fcstream.service.build import _spooled

    publish(classic, [b"1"] * 10)
    (tmp_path / "notes").write_text("")
    section = SourceSection(url=f"amqp://{HOST}/?queue={classic}", spool=str(tmp_path), spool_bytes=MIB)
    for _ in range(3):
        with pytest.raises(SourceError, match="for the spool alone"):
            _spooled(queue(classic), section)
    assert size_of(classic) == 10


def test_cut_in_the_middle_of_batches(either, tmp_path):
    """Every message is there; those whose acknowledgement was lost are there twice."""
    proxy, sent = Proxy(port_of(HOST)), [b"%05d" % i for i in range(1000)]
    publish(either, sent)
    with spooled(tmp_path, either, "&prefetch=100", proxy.host) as opened:
        found = []
        for _ in range(4):
            found += bodies(drain(opened, 150))
            proxy.cut()
        while len(set(found)) < 1000:
            some = bodies(drain(opened, 1, 5))
            assert some
            found += some
        assert sorted(set(found)) == sent
        assert len(found) - 1000 <= 4 * 100
        assert opened.ends()["spool"] == len(found)
    proxy.close()
    assert size_of(either) == 0


@pytest.mark.parametrize("identified", [False, True])
def test_lost_acknowledgements(classic, tmp_path, identified):
    """On disk, acknowledged, and the broker never saw it: without identities the messages are there twice."""
    proxy = Proxy(port_of(HOST))
    sent = [b"%d" % i for i in range(20)]
    options = "&delivery_id=message_id" if identified else ""
    with spooled(tmp_path, classic, options, proxy.host) as opened:
        assert opened.poll(1, 0.1) == []
        publish(classic, sent, [f"id-{i}" for i in range(20)])
        proxy.swallows = True
        assert bodies(drain(opened, 20)) == sent
        proxy.cut()
        proxy.swallows = False
        again, until = [], time.monotonic() + 60
        while len(again) + opened.duplicates < 20 and time.monotonic() < until:
            again += drain(opened, 1, 0.2)
        assert bodies(again) == ([] if identified else sent)
        assert opened.duplicates == (20 if identified else 0)
        publish(classic, [b"next"], ["id-20"])
        assert bodies(drain(opened, 1)) == [b"next"]
    proxy.close()
    assert size_of(classic) == 0


def test_identities_without_message_ids_drop_nothing(classic, tmp_path):
    publish(classic, [b"same"] * 5)
    with spooled(tmp_path, classic, "&delivery_id=message_id") as opened:
        assert bodies(drain(opened, 5)) == [b"same"] * 5
        assert opened.duplicates == 0


def test_a_deleted_queue(classic):
    opened = queue(classic, patience_s=0.5)
    connection = amqp()
    connection.channel().queue_delete(classic)
    connection.close()
    with pytest.raises(SourceError, match="no queue"):
        opened.receive(1, 5)
    opened.close()


def test_sink_to_an_exchange_names_stream_and_window(classic):
    connection = amqp()
    channel = connection.channel()
    channel.exchange_declare(f"{classic}-x", "direct")
    address = f"amqp://{HOST}/?exchange={classic}-x&routing_key=r"
    out = open_sink(address)
    with pytest.raises(SinkError, match="must reach a queue"):
        out.write([sample_release()])
    channel.queue_bind(classic, f"{classic}-x", "r")
    out.write([sample_release(3)])
    out.close()
    ((properties, body),) = takings(classic)
    assert Release.from_bytes(body) == sample_release(3)
    assert properties.message_id == "sample:180000:240000"
    assert properties.delivery_mode == 2
    channel.exchange_delete(f"{classic}-x")
    connection.close()


def test_amqp_sink_writes_through_cuts(classic):
    sent, places = [sample_release(i) for i in range(100)], random.Random(1)
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(contextlib.closing(Proxy(port_of(HOST))))
        out = stack.enter_context(contextlib.closing(open_sink(f"amqp://{proxy.host}/?queue={classic}")))
        for start in range(0, 100, 10):
            proxy.cut_after(*[places.randrange(4000) for _ in range(1 + start // 10 % 2)])
            out.write(sent[start : start + 10])
        proxy.cut_after()
        assert proxy.cuts > 8
    found = [body for _, body in takings(classic)]
    assert list(dict.fromkeys(found)) == [release.to_bytes() for release in sent]


# ── streams ──


def test_bodies():
    """The data of AMQP 1.0 messages; everything else as it is."""
    from rstream import AMQPMessage, Properties

    for body in (b"", b"x", b"x" * 255, b"x" * 256, bytes(range(256)) * 300):
        assert body_of(body) == body
        assert body_of(stream_sink._wrapped(body)) == body
        for message in (
            AMQPMessage(body=body),
            AMQPMessage(
                body=body, properties=Properties(message_id="m" * 300), application_properties={"a": 1, "b": "c"}
            ),
        ):
            assert body_of(bytes(message)) == body
    whole = stream_sink._wrapped(b"abc" * 200)
    for cut in range(len(whole)):
        assert body_of(whole[:cut]) == whole[:cut]
    assert body_of(whole + b"\0") == whole + b"\0"
    for other in (b"\0S", b"\0Su", b"\0Su\x40", b"\0S\x10\xc0\x01\x00", b"\0S\x00\xa0\x00"):
        assert body_of(other) == other


async def produce_sub_entry(stream, bodies):
    """Many messages in one chunk, as one entry."""
    from rstream import CompressionType, Producer

    name, _, port = STREAMS.partition(":")
    async with Producer(name, int(port), username="guest", password="guest") as producer:
        await producer.send_sub_entry(stream, bodies, CompressionType.Gzip)


def test_other_clients(rabbitmq_stream):
    """What AMQP 0-9-1 publishers and rstream's own producer send, wrapped or not; sub-batches too."""
    from rstream import AMQPMessage, CompressionType, Producer

    async def produce():
        name, _, port = STREAMS.partition(":")
        async with Producer(name, int(port), username="guest", password="guest") as producer:
            await producer.send_wait(rabbitmq_stream, b"raw")
            await producer.send_wait(rabbitmq_stream, AMQPMessage(body=b"wrapped"))
            await producer.send_sub_entry(rabbitmq_stream, [b"one", b"two", b"three"], CompressionType.Gzip)

    publish(rabbitmq_stream, [b"queued"])
    asyncio.run(produce())
    publish(rabbitmq_stream, [b"last"])
    with source(rabbitmq_stream) as opened:
        ends = opened.ends()
        rows = drain(opened, 7)
        assert bodies(rows) == [b"queued", b"raw", b"wrapped", b"one", b"two", b"three", b"last"]
        assert not opened.behind(ends)
        opened.commit({rabbitmq_stream: rows[4][1]})
    with source(rabbitmq_stream) as opened:
        assert drain(opened, 3) == rows[4:]


def test_timestamps_are_the_brokers_and_stay(rabbitmq_stream):
    rows = []
    for i in range(5):
        publish(rabbitmq_stream, [b"%d" % i])
        time.sleep(0.05)
    for _ in range(2):
        with source(rabbitmq_stream) as opened:
            rows.append(drain(opened, 5))
    assert rows[0] == rows[1]
    timestamps = [timestamp for _, _, timestamp, _ in rows[0]]
    assert timestamps == sorted(set(timestamps))
    assert abs(timestamps[-1] - time.time() * 1000) < 10_000


def test_positions_belong_to_a_name_and_never_go_back(rabbitmq_stream):
    publish(rabbitmq_stream, [b"%d" % i for i in range(10)])
    with source(rabbitmq_stream, "&group=a") as opened:
        rows = drain(opened, 10)
        for position in (rows[4][1], rows[2][1], rows[7][1]):
            opened.commit({rabbitmq_stream: position})
        opened.commit({})
        opened.commit({"another": 3})
    publish(rabbitmq_stream, [b"10"])  # positions take offsets of their own in a stream: numbers are not consecutive
    with source(rabbitmq_stream, "&group=a") as opened:
        ends = opened.ends()
        assert bodies(drain(opened, 4)) == [b"7", b"8", b"9", b"10"]
        assert not opened.behind(ends)
    with source(rabbitmq_stream, "&group=b") as opened:
        assert bodies(drain(opened, 11)) == [b"%d" % i for i in range(11)]


def test_few_messages_at_a_time(rabbitmq_stream, monkeypatch):
    publish(rabbitmq_stream, [b"%d" % i for i in range(100)])
    with source(rabbitmq_stream, "&credit=1") as opened:
        found = []
        while len(found) < 100:
            for chunk in opened.poll(7, 5):
                assert len(chunk.bodies) <= 7
                found += chunk.bodies
        assert found == [b"%d" % i for i in range(100)]
    monkeypatch.setattr(stream_source, "POLL_BYTES", 10)
    with source(rabbitmq_stream) as opened:
        assert len(drain(opened, 100)) == 100


def test_memory_is_bounded_by_credit(rabbitmq_stream):
    for _ in range(10):
        publish(rabbitmq_stream, [b"x" * 1000] * 10)
    with source(rabbitmq_stream, "&credit=3") as opened:
        until = time.monotonic() + 60
        while len(opened._frames) < 3 and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.3)
        assert len(opened._frames) == 3
        assert len(drain(opened, 100)) == 100


def test_stream_through_cuts(rabbitmq_stream):
    sent, places = [b"%05d" % i for i in range(1500)], random.Random(1)
    with contextlib.closing(Proxy(port_of(STREAMS))) as proxy:
        with source(rabbitmq_stream, host=proxy.host) as opened:
            rows = []
            for start in range(0, 1500, 150):
                proxy.cut_after(*[places.randrange(4000) for _ in range(1 + start // 150 % 2)])
                for first in range(start, start + 150, 50):
                    publish(rabbitmq_stream, sent[first : first + 50])
                rows += drain(opened, 25)
                if rows:
                    opened.commit({rabbitmq_stream: rows[-1][1]})
                opened.ends()
            proxy.cut_after()
            while len(rows) < 1500:
                rows += drain(opened, 1500 - len(rows), 5)
            assert bodies(rows) == sent
            ends = opened.ends()
            assert not opened.behind(ends)
            assert proxy.cuts > 8
        with source(rabbitmq_stream) as opened:
            assert drain(opened, 1)[0][1] <= rows[-1][1]


def test_sink_through_cuts_publishes_once(rabbitmq_stream):
    sent, places = [sample_release(i) for i in range(50)], random.Random(1)
    with contextlib.closing(Proxy(port_of(STREAMS))) as proxy, sink(rabbitmq_stream, host=proxy.host) as out:
        for start in range(0, 50, 5):
            proxy.cut_after(*[places.randrange(2000) for _ in range(1 + start // 5 % 2)])
            out.write(sent[start : start + 5])
        proxy.cut_after()
        assert proxy.cuts > 8
    with source(rabbitmq_stream) as opened:
        assert bodies(drain(opened, 50)) == [release.to_bytes() for release in sent]
        assert opened.poll(1, 0.2) == []


def test_a_release_that_would_be_dropped_silently_is_refused(rabbitmq_stream):
    sent = [sample_release(i) for i in range(5)]
    with sink(rabbitmq_stream) as out:
        assert out.last() is None
        assert out.missing(sent) == sent
        out.write(sent[1:3])
        out.write(sent[1:3])  # again: there once
        assert out.last() == sent[2]
        assert out.missing(sent) == [sent[0], *sent[3:]]
        with pytest.raises(SinkError, match="give every run with a new ledger another stream"):
            out.write(sent[:1])
    with sink(rabbitmq_stream) as out:
        out.write(sent[2:])
    with source(rabbitmq_stream) as opened:
        assert bodies(drain(opened, 4)) == [release.to_bytes() for release in sent[1:]]
        assert opened.poll(1, 0.2) == []


def test_a_sink_takes_releases_only_for_releases(rabbitmq_stream):
    publish(rabbitmq_stream, [CONTENT])
    with sink(rabbitmq_stream) as out:
        assert out.missing([sample_release()]) == [sample_release()]
        with pytest.raises(SinkError, match="something else") as caught:
            out.last()
    assert CONTENT.decode() not in str(caught.value)


@pytest.mark.parametrize("fresh", [1, 80], ids=["shorter", "longer"])
def test_a_stream_made_anew_is_reported(rabbitmq_stream, rabbitmq_streams, fresh):
    publish(rabbitmq_stream, [b"%d" % i for i in range(50)])
    with source(rabbitmq_stream) as opened:
        [(partition, *_), *_] = drain(opened, 50)
        connection = amqp()
        channel = connection.channel()
        channel.queue_delete(rabbitmq_stream)
        time.sleep(0.5)
        channel.queue_declare(rabbitmq_stream, durable=True, arguments={"x-queue-type": "stream"})
        connection.close()
        publish(rabbitmq_stream, [b"new"] * fresh)
        rows = drain(opened, fresh)
        assert bodies(rows) == [b"new"] * fresh
        [gap] = opened.gaps()
        assert gap.what == f"stream {rabbitmq_stream} was made anew"
        assert abs(gap.since_ms - time.time_ns() // 10**6) < 60_000
        assert opened.gaps() == []
        [(anew, offset, _, _)] = rows[:1]
        assert (partition, offset) == (rabbitmq_stream, 0)
        assert anew != partition  # offsets begin anew: those of the old stream and of the new one are told apart
        assert opened.ends() == {anew: fresh}
    with source(rabbitmq_stream) as opened:
        assert bodies(drain(opened, 1))[0] == b"new"


def test_a_stream_that_is_gone_is_waited_for(rabbitmq_stream, rabbitmq_streams):
    publish(rabbitmq_stream, [b"1"])
    with source(rabbitmq_stream, patience_s=1.0) as opened:
        drain(opened, 1)
        connection = amqp()
        connection.channel().queue_delete(rabbitmq_stream)
        connection.close()
        with pytest.raises(SourceError, match="StreamDoesNotExist"):
            opened.poll(1, 60.0)


def test_messages_dropped_by_retention(rabbitmq_streams, caplog):
    """Reading goes on from the oldest message that is there."""

    def flood(name):
        """Until the first message is gone: dropping is done in the background."""
        until = time.monotonic() + 60
        while True:
            publish(name, [b"x" * 5000] * 5)
            with source(name, "&group=look") as look:
                seen = drain(look, 1, 5)
                if seen and seen[0][1] > 0:
                    return
            assert time.monotonic() < until

    bounds = {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 10_000}
    with declared("stream", **bounds) as name, contextlib.closing(Proxy(port_of(STREAMS))) as proxy:
        publish(name, [b"first"])
        with source(name, host=proxy.host) as opened:
            assert len(drain(opened, 1)) == 1
            proxy.cut()
            flood(name)
            with caplog.at_level(logging.WARNING):
                ends, count = opened.ends(), 0
            assert "messages were dropped unread" in caplog.text
            while opened.behind(ends):
                count += len(drain(opened, 1, 5))
            assert count > 0
            opened.commit(ends)
        flood(name)
        with source(name) as opened:  # the position may have been dropped with what it pointed to
            ends = opened.ends()
            assert drain(opened, 1)
            while opened.behind(ends):
                drain(opened, 1, 5)


# ── batches and names of streams ──


def batch(kind, messages, data, size=None):
    """An entry of several messages; kinds: 0 plain, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    head = struct.pack(">HII", messages, len(data) if size is None else size, len(data))
    return bytes([0x80 | kind << 4]) + head + data


def joined(*messages):
    return b"".join(struct.pack(">I", len(message)) + message for message in messages)


def publish_batches(stream, entries):
    async def publish():
        from rstream import schema
        from rstream.client import Client

        name, _, port = STREAMS.partition(":")
        client = Client(name, int(port), frame_max=MIB, heartbeat=60, connection_closed_handler=lambda _: None)
        await client.start()
        await client.authenticate("/", "guest", "guest")
        await client.declare_publisher(stream, "", 0)
        confirmed = []
        client.add_handler(schema.PublishConfirm, lambda frame: confirmed.extend(frame.publishing_ids), name="confirm")
        for number, entry in enumerate(entries, 1):
            frame = b"\0\x02\0\x01\0" + struct.pack(">IQ", 1, number) + entry
            client._conn._writer.write(struct.pack(">I", len(frame)) + frame)
            await client._conn._writer.drain()
            while len(confirmed) < number:  # so that each is a chunk of its own
                await asyncio.sleep(0.005)
        await client.close()

    asyncio.run(asyncio.wait_for(publish(), 60))


TWO = joined(b"one", b"two")
PACKED = gzip.compress(TWO, mtime=0)


@pytest.mark.parametrize(
    ("entry", "readable", "offset_after"),
    [
        (batch(0, 2, TWO), [b"one", b"two"], 3),
        (batch(1, 2, PACKED, len(TWO)), [b"one", b"two"], 3),
        (batch(2, 2, b"zzz", len(TWO)), [b""], 3),
        (batch(4, 2, b"\x28\xb5\x2f\xfdxxxx", len(TWO)), [b""], 3),
        (batch(7, 2, b"zzz", len(TWO)), [b""], 3),
        (batch(1, 2, b"not gzip", len(TWO)), [b""], 3),
        (batch(1, 2, PACKED[:-6], len(TWO)), [b"one", b"two"], 3),  # all of it is there but the checksum
        (batch(1, 2, PACKED, 999), [b""], 3),
        (batch(1, 2, PACKED[:10] + b"\xff" * 16, len(TWO)), [b""], 3),
        (batch(0, 5, TWO), [b"one", b"two"], 6),  # more are counted than there are
        (batch(0, 1, TWO), [b"one"], 2),
    ],
)
def test_batches(rabbitmq_stream, entry, readable, offset_after, caplog):
    """What cannot be read is one record without content; those around it are read, and the service goes on."""
    publish(rabbitmq_stream, [b"before"])
    publish_batches(rabbitmq_stream, [entry])
    publish(rabbitmq_stream, [b"after"])
    with source(rabbitmq_stream) as opened, caplog.at_level(logging.WARNING):
        ends = opened.ends()
        found = drain(opened, len(readable) + 2)
        assert bodies(found) == [b"before", *readable, b"after"]
        assert [found[0][1], found[1][1], found[-1][1]] == [0, 1, offset_after]
        assert not opened.behind(ends)
        assert opened.poll(10, 0.1) == []
    assert ("cannot be read" in caplog.text) == (readable == [b""] or offset_after == 6)
    assert "zzz" not in caplog.text
    with source(rabbitmq_stream, "&group=middle") as opened:  # from within a batch on
        opened.seek({rabbitmq_stream: 2})
        assert bodies(drain(opened, 1))[-1] in (b"two", b"after", b"")


def test_batches_that_would_fill_memory_are_not_unpacked(rabbitmq_stream):
    large = 80 << 20
    bomb = gzip.compress(bytes(large), mtime=0)
    publish_batches(rabbitmq_stream, [batch(1, 9, bomb, large), batch(1, 9, bomb, 100), batch(0, 65535, b"")])
    publish(rabbitmq_stream, [b"after"])
    tracemalloc.start()
    try:
        with source(rabbitmq_stream) as opened:
            assert bodies(drain(opened, 4)) == [b"", b"", b"", b"after"]
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_a_batch_in_a_stream_of_releases(rabbitmq_stream):
    with sink(rabbitmq_stream) as out:
        publish_batches(rabbitmq_stream, [batch(4, 2, b"xxxx", 100)])
        assert out.missing([sample_release()]) == [sample_release()]
        with pytest.raises(SinkError, match="something else than releases"):
            out.last()


def test_more_keys_than_a_connection_has_publishers(rabbitmq_stream):
    releases = [dataclasses.replace(sample_release(), stream=f"s/{i}") for i in range(260)]
    with sink(rabbitmq_stream) as out:
        out.write(releases)
    with source(rabbitmq_stream) as opened:
        assert bodies(drain(opened, 260)) == [release.to_bytes() for release in releases]


def test_publishers_take_turns(rabbitmq_stream, monkeypatch):
    monkeypatch.setattr(stream_sink, "_MAX_PUBLISHERS", 5)
    releases = [[dataclasses.replace(sample_release(n), stream=f"s/{i}") for i in range(8)] for n in range(2)]
    with sink(rabbitmq_stream) as out:
        for group in (releases[0], releases[0], releases[1]):
            out.write(group)
    with source(rabbitmq_stream) as opened:
        found = bodies(drain(opened, 16))
        assert opened.poll(10, 0.2) == []
    assert found == [release.to_bytes() for group in releases for release in group]


def test_long_names_in_streams(rabbitmq_stream):
    """The protocol has 255 bytes for them."""
    releases = [dataclasses.replace(sample_release(i), stream="é" * 200) for i in range(2)]
    with sink(rabbitmq_stream) as out:
        out.write(releases)
        out.write(releases)
        assert out.last() == releases[-1]
    with source(rabbitmq_stream) as opened:
        assert bodies(drain(opened, 2)) == [release.to_bytes() for release in releases]
    for url in (
        f"rabbitmq-stream://{STREAMS}/?stream={'s' * 300}",
        f"rabbitmq-stream://{STREAMS}/?stream=s&group={'g' * 300}",
    ):
        with pytest.raises(ConfigError, match="255 bytes at most"):
            open_live(url, "n")


def test_a_repeated_write_looks_for_what_is_there(rabbitmq_stream):
    """Brokers forget what a publisher sent last if there are very many publishers."""
    releases = [sample_release(i) for i in range(3)]
    with sink(rabbitmq_stream) as out:
        out.write(releases)
        out._tried |= {release.to_bytes() for release in releases}  # as if the answer had been lost
        publisher = stream_sink.RabbitStreamSink._declare

        async def forgotten(self, client, reference):
            return await publisher(self, client, f"{reference}-forgotten")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream_sink.RabbitStreamSink, "_declare", forgotten)
            out.write(releases)
    with source(rabbitmq_stream) as opened:
        assert len(drain(opened, 3)) == 3
        assert opened.poll(10, 0.2) == []


def test_a_damaged_chunk_is_reported(rabbitmq_stream):
    """Reading it again and again would look as if nothing came."""
    publish(rabbitmq_stream, [b"good"])
    with contextlib.closing(Spoiler(port_of(STREAMS))) as spoiler, source(rabbitmq_stream, host=spoiler.host) as opened:
        assert bodies(drain(opened, 1)) == [b"good"]
        publish(rabbitmq_stream, [b"POISON"])
        with pytest.raises(SourceError, match="damaged chunk"):
            poll_for(opened, 60)
    with source(rabbitmq_stream) as opened:
        assert bodies(drain(opened, 2)) == [b"good", b"POISON"]


class Spoiler(Proxy):
    """A broker whose disk has changed a message."""

    def changed(self, data):
        return data.replace(b"POISON", b"POISOM")


def poll_for(opened, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert opened.poll(10, 0.2) == []


def test_bodies_that_are_no_bytes_stay_whole():
    for message in (b"\0Sv\xc0\x03\x01\xa1a", b"\0Sw\xc0\x01\0", b"\0Sw\xc1\x01\0", b"\0Sw\xa0\x01x\0Sv\xc0\x01\0"):
        assert body_of(message) == message


def test_a_silent_connection_is_found_out(rabbitmq_stream, monkeypatch):
    """Nothing comes, nothing is closed: after a while the broker is asked."""
    monkeypatch.setattr(stream_source, "_QUIET_S", 0.2)
    with contextlib.closing(Proxy(port_of(STREAMS))) as proxy, source(rabbitmq_stream, host=proxy.host) as opened:
        monkeypatch.setattr(stream_connection, "_REQUEST_S", 0.5)
        lost = opened._link._client
        proxy.swallows = True
        publish(rabbitmq_stream, [b"1"])
        assert bodies(drain(opened, 1)) == [b"1"]  # still comes: only what we send is lost
        threading.Timer(0.7, lambda: setattr(proxy, "swallows", False)).start()
        until = time.monotonic() + 100
        while opened._link._client is lost and time.monotonic() < until:
            assert opened.poll(1, 0.1) == []
        assert opened._link._client is not lost
        monkeypatch.undo()
        publish(rabbitmq_stream, [b"2"])
        assert bodies(drain(opened, 1)) == [b"2"]


def test_nothing_is_taken_from_a_connection_that_was_given_up(rabbitmq_stream):
    """It may still bring chunks, under the same number: they lie ahead of what the next connection brings first."""
    publish(rabbitmq_stream, [b"%d" % i for i in range(20)])
    with source(rabbitmq_stream) as opened:
        rows = drain(opened, 20)
        old = opened._link._client
        late = []
        opened._link._readers = dict.fromkeys(opened._link._readers, late.append)
        publish(rabbitmq_stream, [b"%d" % i for i in range(20, 25)])
        publish(rabbitmq_stream, [b"later"])
        until = time.monotonic() + 60
        while not late or late[-1].get_messages()[-1][-5:] != b"later":
            assert time.monotonic() < until
            time.sleep(0.01)
        opened._link._lose()
        ends = opened.ends()  # by the next connection
        assert opened._link._client is not old
        while not opened._frames or opened._frames[-1].chunk_first_offset < late[-1].chunk_first_offset:
            assert time.monotonic() < until
            time.sleep(0.01)
        frames = list(opened._frames)
        opened._frames.clear()
        opened._link._deliver(old, late[-1])
        opened._frames.extend(frames)
        while opened.behind(ends):
            rows += drain(opened, 1)
        assert bodies(rows) == [*(b"%d" % i for i in range(25)), b"later"]


def test_leftovers_of_a_chunk_come_at_once(rabbitmq_stream):
    asyncio.run(produce_sub_entry(rabbitmq_stream, [b"%d" % i for i in range(100)]))
    with source(rabbitmq_stream) as opened:
        found = [*opened.poll(1, 60)[0].bodies]
        start = time.monotonic()
        while len(found) < 100:
            found += opened.poll(10, 60)[0].bodies
        assert time.monotonic() - start < 30
        assert found == [b"%d" % i for i in range(100)]


def test_the_end_is_never_reported_too_early(rabbitmq_stream, monkeypatch):
    """The last chunk comes late (replicas wait for it): the end is not taken for that of an empty stream."""
    publish(rabbitmq_stream, [b"%d" % i for i in range(10)])
    with source(rabbitmq_stream) as opened:
        from rstream import OffsetType

        edge, calls = opened._link.end_chunk, []

        async def late(client, kind):
            calls.append(kind)
            return None if kind is OffsetType.LAST and len(calls) < 6 else await edge(client, kind)

        monkeypatch.setattr(opened._link, "end_chunk", late)
        assert opened.ends() == {rabbitmq_stream: 10}
        assert len(calls) >= 6


# ── all of it ──


def test_the_broker_restarts(node, tmp_path, monkeypatch):
    """All four come back by themselves."""
    monkeypatch.setattr(retry, "_MAX_S", 0.5)
    host, logs = f"127.0.0.1:{node.queues}", f"127.0.0.1:{node.streams}"
    with contextlib.ExitStack() as stack:
        classic, stream = (stack.enter_context(declared(kind, host)) for kind in ("classic", "stream"))
        out = stack.enter_context(contextlib.closing(open_sink(f"amqp://{host}/?queue={classic}&patience=300")))
        other = stack.enter_context(sink(stream, host=logs, patience_s=300))
        queued = stack.enter_context(spooled(tmp_path, classic, "", host, 300))
        opened = stack.enter_context(source(stream, "", logs, 300))
        out.write([sample_release(0)])
        other.write([sample_release(0)])
        assert len(drain(queued, 1)) == len(drain(opened, 1)) == 1
        node.stop()
        node.start()
        out.write([sample_release(1)])
        other.write([sample_release(1)])
        assert bodies(drain(queued, 1, 300)) == [sample_release(1).to_bytes()]
        assert bodies(drain(opened, 1, 300)) == [sample_release(1).to_bytes()]
        node.wait()


def test_no_broker_for_longer_than_patience(classic, rabbitmq_stream):
    proxies = [Proxy(port_of(HOST)), Proxy(port_of(STREAMS))]
    opened = [queue(classic, host=proxies[0].host, patience_s=0.2)]
    reading = RabbitStreamSource(parse(f"rabbitmq-stream://{proxies[1].host}/?stream={rabbitmq_stream}", ""), "n", 0.2)
    for proxy in proxies:
        proxy.close()
    start = time.monotonic()
    with pytest.raises(SourceError, match="start the broker"):
        opened[0].receive(1, 120)
    with pytest.raises(SourceError, match="start the broker"):
        reading.poll(1, 120)
    with pytest.raises(SourceError, match="start the broker"):
        reading.ends()
    assert time.monotonic() - start < 60
    opened[0].close()
    reading.close()


def test_secrets_and_content_are_in_no_message(classic, rabbitmq_stream, tmp_path, caplog, capfd):
    """Wrong passwords, places that do not exist, lost brokers: what is told, logged, printed."""
    told = []

    def tell(action):
        try:
            action()
        except FcstreamError as error:
            told.append("".join(traceback.format_exception(error)))
        else:
            raise AssertionError("no error")

    with caplog.at_level(logging.DEBUG):
        for url in (
            f"amqp://ann:{SECRET}@{HOST}/?queue={classic}",
            f"amqp://guest:guest@{HOST}/nowhere?queue={classic}",
            f"amqp://ann:{SECRET}@127.0.0.1:1/?queue={classic}",
            f"amqp://ann:{SECRET}@no.such.host.invalid/?queue={classic}",
            f"amqp://{HOST}/?queue=nothing-of-the-sort",
            f"rabbitmq-stream://ann:{SECRET}@{STREAMS}/?stream={rabbitmq_stream}",
            f"rabbitmq-stream://ann:{SECRET}@127.0.0.1:1/?stream={rabbitmq_stream}",
            f"rabbitmq-stream://ann:{SECRET}@no.such.host.invalid/?stream={rabbitmq_stream}",
            f"rabbitmq-stream://guest:guest@{STREAMS}/nowhere?stream={rabbitmq_stream}",
            f"rabbitmq-stream://guest:guest@{STREAMS}/?stream=nothing-of-the-sort",
        ):
            tell(lambda url=url: open_live(url, "n"))
            tell(lambda url=url: open_sink(url))
        proxies = [Proxy(port_of(HOST)), Proxy(port_of(STREAMS))]
        publish(classic, [CONTENT] * 3)
        publish(rabbitmq_stream, [CONTENT] * 3)
        with spooled(tmp_path, classic, host=proxies[0].host, patience_s=0.2) as queued:
            assert len(drain(queued, 3)) == 3
            with source(rabbitmq_stream, host=proxies[1].host, patience_s=0.2) as opened:
                assert len(drain(opened, 3)) == 3
                for proxy in proxies:
                    proxy.close()
                tell(lambda: queued.poll(1, 60.0))
                tell(lambda: opened.poll(1, 60.0))
        publish(rabbitmq_stream, [sample_release().to_bytes()])
        with sink(rabbitmq_stream) as out:
            out.write([sample_release()])
    everything = "".join(told) + caplog.text + "".join(capfd.readouterr())
    assert len(told) == 22
    assert "***" in everything
    assert "ACCESS_REFUSED" in told[0]
    assert "AuthenticationFailure" in told[10]
    for secret in (SECRET, CONTENT.decode()):
        assert secret not in everything


def test_tls(node, files, tmp_path):
    """The broker asks for a certificate of ours, and we for one of its authority, for its host."""
    with declared("classic", f"127.0.0.1:{node.queues}") as name, declared("stream", f"127.0.0.1:{node.queues}") as log:
        queues = f"amqps://localhost:{node.queues_tls}/?queue={name}"
        logs = f"rabbitmq-stream+tls://localhost:{node.streams_tls}/?stream={log}"
        for url in (queues, logs):
            with contextlib.closing(open_sink(f"{url}&{files.login}")) as out:
                out.write([sample_release()])
            opened = open_live(f"{url}&{files.login}", "n")
            if url is queues:
                opened = SpooledSource(opened, Spool(tmp_path / "spool", MIB))
            with contextlib.closing(opened):
                assert bodies(drain(opened, 1)) == [sample_release().to_bytes()]
            for wrong, what in {
                url: "name the file of its authority as `ca`",
                f"{url}&ca={files.stranger}": "name the file of its authority as `ca`",
                f"{url}&ca={files.ca}".replace("localhost", "127.1"): "(?i)mismatch",
                f"{url}&ca={files.ca}": "cannot be used",  # it wants to know who we are
            }.items():
                with pytest.raises(SourceError, match=what):
                    open_live(wrong, "n")
            with pytest.raises(ConfigError, match="cannot be used"):
                open_live(f"{url}&ca={tmp_path}/nothing", "n")
    with warnings.catch_warnings():  # clients leave the sockets of refused connections to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(queue_connection, "_SOCKET_S", 0.3)
    monkeypatch.setattr(stream_connection, "_REQUEST_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as door:
        host = f"127.0.0.1:{door.getsockname()[1]}"
        for url in (f"amqp://{host}/?queue=q", f"rabbitmq-stream://{host}/?stream=s"):
            with pytest.raises(SourceError, match="start the broker"):
                open_live(url, "n")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("amqp://h/", "must name `queue`"),
        ("amqp://h/?queue=q&prefetch=70000", "prefetch"),
        ("amqp://h/?queue=q&delivery_id=body", "delivery_id"),
        ("amqp://127.0.0.1:1/?queue=q&nonsense=1", "unknown option 'nonsense'"),
        ("amqp://127.0.0.1:1/?queue=q&ca=file", "unknown option 'ca'"),
        ("rabbitmq-stream://h/", "must name `stream`"),
        ("rabbitmq-stream://h/?stream=s&ca=file", "unknown option 'ca'"),
        ("rabbitmq-stream+tls://h/?stream=s&ca=/no/file", "files `ca`, `cert` or `key`"),
        ("rabbitmq-stream://h/?stream=s&nonsense=1", "unknown option 'nonsense'"),
    ],
)
def test_wrong_addresses(url, what):
    with pytest.raises(ConfigError, match=what):
        open_live(url, "n")


@pytest.mark.parametrize(
    ("module", "url"), [("pika", "amqp://h/?queue=q"), ("rstream", "rabbitmq-stream://h/?stream=s")]
)
def test_missing_libraries(monkeypatch, module, url):
    monkeypatch.setitem(sys.modules, module, None)
    for opening in (lambda: open_live(url, "n"), lambda: open_sink(url)):
        with pytest.raises(ConfigError, match=r"pip install .*\[rabbitmq\]'"):
            opening()
