"""RabbitMQ streams as source and sink, against the broker of this machine; cut off, made anew, trimmed."""

import contextlib
import dataclasses
import logging
import random
import threading
import time

import pytest
from support.proxy import Proxy
from support.rabbitmq import STREAMS, amqp, declared, port_of, publish, sink, source
from support.sources import CONTENT, bodies, drain

from fcstream.connectors import open_live
from fcstream.connectors.rabbitmq import stream_connection, stream_sink, stream_source
from fcstream.connectors.rabbitmq.stream_sink import RabbitStreamSink
from fcstream.connectors.rabbitmq.stream_source import RabbitStreamSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, SinkError, SourceError
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, SourceContract, sample_release


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
            ends, rows = opened.ends(), []
            while opened.behind(ends):
                rows += drain(opened, 1)
            return [Release.from_bytes(body) for body in bodies(rows)]


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
