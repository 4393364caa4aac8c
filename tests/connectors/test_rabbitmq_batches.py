"""Batches in RabbitMQ streams, by any client, and damaged chunks."""

import asyncio
import contextlib
import gzip
import logging
import struct
import time
import tracemalloc

import pytest
from support.proxy import Proxy
from support.rabbitmq import MIB, STREAMS, port_of, publish, sink, source
from support.sources import bodies, drain

from fcstream.connectors.rabbitmq import stream_sink, stream_source
from fcstream.connectors.rabbitmq.chunks import body_of, properties_of
from fcstream.errors import SinkError, SourceError
from fcstream.testing import sample_release


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


def test_leftovers_of_a_chunk_come_at_once(rabbitmq_stream):
    asyncio.run(produce_sub_entry(rabbitmq_stream, [b"%d" % i for i in range(100)]))
    with source(rabbitmq_stream) as opened:
        found = [*opened.poll(1, 60)[0].bodies]
        start = time.monotonic()
        while len(found) < 100:
            found += opened.poll(10, 60)[0].bodies
        assert time.monotonic() - start < 30
        assert found == [b"%d" % i for i in range(100)]


def test_application_properties_are_what_the_client_library_reads():
    from rstream import AMQPMessage, amqp_decoder

    written = {"s": "é", "i": 1, "n": -5, "big": 2**40, "f": 1.5, "yes": True, "no": False, "raw": b"x", "x": None}
    message = bytes(AMQPMessage(body=b"abc", application_properties=written))
    read = amqp_decoder(message).application_properties
    assert dict(properties_of(message)) == {name.decode(): value for name, value in read.items()}
    for end in range(len(message)):
        assert len(properties_of(message[:end])) in (0, len(written))


def test_an_array_of_values_of_no_bytes_is_not_made():
    """The client library makes 2**28 of them out of 33 bytes."""
    array = b"\xf0" + struct.pack(">II", 5, 2**28) + b"\x41"
    for value in (array, b"\xd0" + struct.pack(">II", len(array) + 4, 1) + array):
        pairs = b"\xa1\x01a" + value + b"\xa1\x01b\xa1\x01c"
        message = b"\0St\xd1" + struct.pack(">II", len(pairs) + 4, 4) + pairs + b"\0Su\xa0\x03abc"
        assert properties_of(message) == [("a", None), ("b", b"c")]
        assert body_of(message) == b"abc"
