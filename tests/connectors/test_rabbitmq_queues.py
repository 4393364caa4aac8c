"""RabbitMQ queues as source and sink, against the broker of this machine; cut off, silent, deleted."""

import contextlib
import dataclasses
import random
import struct
import threading
import time
from functools import partial

import pytest
from support.proxy import Proxy
from support.rabbitmq import HOST, MIB, STREAMS, amqp, declared, port_of, publish, queue, spooled
from support.sources import CONTENT, bodies, drain

from fcstream import connectors
from fcstream.connectors import open_live, open_sink
from fcstream.connectors.rabbitmq import queue_connection
from fcstream.connectors.rabbitmq.queue_sink import AmqpSink
from fcstream.connectors.rabbitmq.queue_source import AmqpQueue
from fcstream.connectors.rabbitmq.stream_sink import RabbitStreamSink
from fcstream.connectors.rabbitmq.stream_source import RabbitStreamSource
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.formats.envelopes import AskedFields
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, SourceContract, sample_release


@pytest.fixture(params=["classic", "quorum"])
def either(rabbitmq, request):
    with declared(request.param) as name:
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


class TestAmqpQueue(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, either):
        self.name = either

    def make(self, tmp_path):
        return SpooledSource(queue(self.name), Spool(tmp_path / "spool", MIB))

    def send(self, tmp_path, bodies):
        publish(self.name, bodies)


class TestAmqpSink(SinkContract):
    @pytest.fixture(autouse=True)
    def place(self, either):
        self.name = either

    def make(self, tmp_path):
        return AmqpSink(parse(f"amqp://{HOST}/?queue={self.name}", "sink.url"))

    def read(self, tmp_path):
        return [Release.from_bytes(body) for _, body in takings(self.name)]


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


def test_a_message_whose_headers_cannot_be_read_has_none(classic):
    """The client library gives the connection up for it, and with each new one it comes again: it ended the stream."""
    import pika

    asked = AskedFields(headers=frozenset(["at"]))
    address = dataclasses.replace(parse(f"amqp://{HOST}/?queue={classic}", "source.url"), asked=asked)
    opened = AmqpQueue(address, "test", 20.0)
    table = b"\x02at" + struct.pack(">cQ", b"T", 1_700_000_000_000)  # milliseconds where seconds belong
    deep = b""
    for _ in range(5000):
        deep = b"\x01aF" + struct.pack(">I", len(deep)) + deep
    flags = pika.BasicProperties.FLAG_HEADERS
    for some in (table, deep, b"\x02atS\x00\x00\x00\x05times"):
        publish_raw(classic, CONTENT, flags, struct.pack(">I", len(some)) + some)
    found = []
    until = time.monotonic() + 30
    while len(found) < 3 and time.monotonic() < until:
        found += opened.receive(100, 1)
    assert [one.body for one in found] == [CONTENT] * 3
    assert [dict(one.envelope.headers) for one in found] == [{}, {}, {"at": b"times"}]
    opened.acknowledge(found)
    assert not opened.pending()
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


def test_no_more_identities_than_are_remembered():
    with pytest.raises(ConfigError, match="4096 at most"):
        open_live("amqp://h/?queue=q&delivery_id=message_id&prefetch=5000", "n")


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
