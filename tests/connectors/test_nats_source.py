"""JetStream as a source, against the server of this machine and private ones."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import threading
import time

import pytest
from support.nats_server import HOST, sink, source
from support.sources import CONTENT, bodies, drain, until

from fcstream.connectors.nats.source import NatsSource
from fcstream.connectors.retry import BrokerLost
from fcstream.connectors.urls import parse
from fcstream.errors import SourceError
from fcstream.testing import SourceContract, sample_release


class TestNatsSource(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, nats_server, nats_stream):
        self.server, self.stream = nats_server, nats_stream

    def make(self, tmp_path):
        address = parse(f"nats://{HOST}/{self.stream}?bucket={self.stream}", "source.url")
        return NatsSource(address, tmp_path.name, 5.0)

    def send(self, tmp_path, bodies):
        self.server.add(self.stream, bodies)


class TestNatsSubject(SourceContract):
    """One subject of a stream: what others send to it is neither read nor waited for."""

    @pytest.fixture(autouse=True)
    def place(self, nats_server, nats_stream):
        self.server, self.stream = nats_server, nats_stream

    def make(self, tmp_path):
        address = parse(f"nats://{HOST}/{self.stream}?bucket={self.stream}&subject={self.stream}.a", "source.url")
        return NatsSource(address, tmp_path.name, 5.0)

    def send(self, tmp_path, bodies):
        for i in range(0, len(bodies), 50):
            self.server.add(f"{self.stream}.b", [b"not ours"] * 3)
            self.server.add(f"{self.stream}.a", bodies[i : i + 50])
            self.server.add(f"{self.stream}.b", [b"not ours"] * 2)


def test_any_body_comes_whole(nats_server, nats_stream):
    sent = [b"", b"\0", b"\r\nMSG x 1 3\r\n", os.urandom(1_000_000), bytes(range(256)) * 3, "é".encode(), b""]
    nats_server.add(nats_stream, sent)
    with source(nats_stream) as opened:
        rows = drain(opened, len(sent))
    assert bodies(rows) == sent
    assert [offset for _, offset, *_ in rows] == list(range(1, 8))


def test_headers_and_subjects_that_cannot_be_parsed(nats_server, nats_stream):
    """Any publisher may send them; the client library would fall silent for good."""
    heads = [
        b"NATS/1.0 \xff\xfe\xfd\r\n\r\n",
        b"garbage\r\n\r\n",
        b"x\r\n",
        b"NATS/1.0 404 No\r\n\r\n",
        b"NATS/1.0\r\n\xff:\r\n",
    ]
    host, _, port = HOST.partition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n')
        for head in heads:
            raw.sendall(b"HPUB %s %d %d\r\n%sabc\r\n" % (nats_stream.encode(), len(head), len(head) + 3, head))
        for odd in (b"\xff\xfe", b"a\x0bb", b"\x0c", b"a\x0b\x0c"):
            raw.sendall(b"PUB %s.%s 3\r\nabc\r\n" % (nats_stream.encode(), odd))
            raw.sendall(b"HPUB %s.%s 12 15\r\nNATS/1.0\r\n\r\nabc\r\n" % (nats_stream.encode(), odd))
        raw.sendall(b"PING\r\n")
        while b"PONG" not in raw.recv(1 << 16):
            pass
    nats_server.add(nats_stream, [b"last"])
    with source(nats_stream) as opened:
        assert bodies(drain(opened, 14)) == [b"abc"] * 13 + [b"last"]
        assert not opened.behind(opened.ends())


def test_memory_of_a_poll_is_bounded(nats_server, nats_stream, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.nats.reader.POLL_BYTES", 1 << 20)
    nats_server.add(nats_stream, [bytes(20)] * 3000)
    nats_server.add(nats_stream, [bytes(1 << 16)] * 200)
    with source(nats_stream) as opened:
        sizes = []
        while sum(sizes) < 60_000 + (200 << 16):
            sizes.append(sum(len(body) for chunk in opened.poll(1000, 1.0) for body in chunk.bodies))
    assert max(sizes) <= 2 << 20  # twice the longest message that the server takes


@pytest.fixture
def lingers(monkeypatch):
    """A poll waits for the messages that are on their way behind the first, however long they take."""
    monkeypatch.setattr("fcstream.connectors.nats.reader._LINGER_S", 60.0)


def test_a_poll_returns_as_soon_as_something_is_there(nats_server, nats_stream, lingers):
    with source(nats_stream) as opened:
        assert opened.poll(10, 0.1) == []
        threading.Timer(0.3, nats_server.add, (nats_stream, [b"1"])).start()
        started = time.monotonic()
        assert [chunk.bodies for chunk in opened.poll(1000, 60.0)] == [[b"1"]]
        assert time.monotonic() - started < 30
        assert opened.poll(10, 0.0) == []
        nats_server.add(nats_stream, [b"%d" % i for i in range(10)])
        assert [chunk.bodies for chunk in opened.poll(3, 60.0)] == [[b"0", b"1", b"2"]]
        assert bodies(drain(opened, 7)) == [b"%d" % i for i in range(3, 10)]


def test_a_commit_never_goes_back(nats_server, nats_stream):
    nats_server.add(nats_stream, [b"%d" % i for i in range(10)])
    odd = "n.o d*é"
    with source(nats_stream, name=odd) as opened:
        drain(opened, 10)
        opened.commit({nats_stream: 8})
        opened.commit({nats_stream: 4})
    [kept] = nats_server.held(f"KV_{nats_stream}")
    assert json.loads(kept)["position"] == 8
    for options in ({"name": odd}, {"options": "&group=n.o%20d*%C3%A9"}):
        with source(nats_stream, **options) as opened:
            opened.commit({nats_stream: 5})
            assert bodies(drain(opened, 3)) == [b"7", b"8", b"9"]
    with source(nats_stream, name="n.o d") as opened:
        assert len(drain(opened, 10)) == 10
    with source(nats_stream, name=odd) as opened:
        nats_server.ask(lambda _, js: js.publish(f"$KV.{nats_stream}.{nats_stream}.n", CONTENT))
    with pytest.raises(SourceError, match="must hold a position") as caught, source(nats_stream):
        pass
    assert CONTENT.decode() not in str(caught.value)


@pytest.mark.parametrize(
    "value", ['{"position": 1e999, "created": "x"}', '{"position": -4, "created": "CREATED"}', "[" * 99_999]
)
def test_a_position_that_is_none(nats_server, nats_stream, value):
    with source(nats_stream) as opened:
        value = value.replace("CREATED", opened._created).encode()
        nats_server.ask(lambda _, js: js.publish(f"$KV.{nats_stream}.{opened._key}", value))
    with pytest.raises(SourceError, match="must hold a position"), source(nats_stream):
        pass


def test_deleted_messages_do_not_count_as_behind(nats_server, nats_stream):
    nats_server.add(nats_stream, [b"%d" % i for i in range(5)])
    with source(nats_stream) as opened:
        ends = opened.ends()
        assert ends == {nats_stream: 6}
        assert [chunk.bodies for chunk in opened.poll(3, 60.0)] == [[b"0", b"1", b"2"]]
    with source(nats_stream) as opened:
        assert opened.behind(ends)
        for sequence in range(1, 6):
            nats_server.js("delete_msg", nats_stream, sequence)
        assert not opened.behind(ends)
        assert opened.poll(10, 0.05) == []
        nats_server.add(nats_stream, [b"later"])
        assert not opened.behind(ends)
        assert opened.behind(opened.ends())
        assert not opened.behind({})


def test_dropped_messages_are_reported(nats_server, nats_stream, caplog):
    nats_server.add(nats_stream, [CONTENT + b"%d" % i for i in range(10)])
    nats_server.js("purge_stream", nats_stream, seq=3)
    with caplog.at_level(logging.WARNING), source(nats_stream) as opened:
        assert len(drain(opened, 8)) == 8
        opened.commit({nats_stream: 5})
        nats_server.js("purge_stream", nats_stream, seq=5)
    with caplog.at_level(logging.WARNING), source(nats_stream) as opened:
        assert len(drain(opened, 6)) == 6
        opened.ends()
    assert caplog.messages == []  # nothing but what was committed is gone, and what was before its time
    nats_server.js("purge_stream", nats_stream, seq=9)
    with caplog.at_level(logging.WARNING), source(nats_stream) as opened:
        opened.ends()
        assert bodies(drain(opened, 2)) == [CONTENT + b"8", CONTENT + b"9"]
    assert caplog.messages == [f"stream {nats_stream} begins at 9: messages from 5 on were dropped unread"]
    with caplog.at_level(logging.WARNING), source(nats_stream, name="other") as opened:
        nats_server.js("purge_stream", nats_stream)
        nats_server.add(nats_stream, [b"more"])
        for _ in range(3):
            opened.ends()
        assert bodies(drain(opened, 1)) == [b"more"]
    assert len(caplog.messages) == 2


def test_a_stream_made_anew(nats_server, nats_stream, caplog):
    nats_server.add(nats_stream, [b"old"] * 3)
    with source(nats_stream, patience_s=1.0) as opened:
        assert len(drain(opened, 3)) == 3
        opened.commit({nats_stream: 3})
        nats_server.js("delete_stream", nats_stream)
        with pytest.raises(SourceError, match="does not exist"):
            opened.ends()
        nats_server.js("add_stream", name=nats_stream, subjects=[nats_stream])
        nats_server.add(nats_stream, [b"new"] * 5)
        [anew] = opened.ends()
        assert anew != nats_stream  # sequences begin anew: those of the old stream and of the new one are told apart
        assert bodies(drain(opened, 5)) == [b"new"] * 5
        [gap] = opened.gaps()
        assert gap.what == f"stream {nats_stream} was made anew"
        assert abs(gap.since_ms - time.time_ns() // 10**6) < 60_000
        opened.seek({nats_stream: 2})
        nats_server.js("delete_stream", nats_stream)
        nats_server.js("add_stream", name=nats_stream, subjects=[nats_stream])
        for call in (opened.ends, lambda: opened.poll(10, 0.1)):
            with pytest.raises(SourceError, match="made anew"):
                call()
        nats_server.add(nats_stream, [b"new"] * 5)
    with caplog.at_level(logging.WARNING), source(nats_stream) as opened:
        assert bodies(drain(opened, 5)) == [b"new"] * 5
        assert opened.gaps() == [(f"stream {nats_stream} was made anew", None)]
        opened.commit({nats_stream: 2})
    assert "made anew" in caplog.text
    with source(nats_stream) as opened:
        assert len(drain(opened, 4)) == 4


def test_what_nobody_got_comes_again(nats_server, nats_stream, lingers):
    """An interruption after the messages were handed out; a message that went missing on the way."""
    nats_server.add(nats_stream, [b"%d" % i for i in range(10)])
    with source(nats_stream) as opened:
        assert len(opened._wire.run(lambda: opened._take(3, 60.0))) == 3
        assert [chunk.bodies for chunk in opened.poll(4, 60.0)] == [[b"0", b"1", b"2", b"3"]]
        assert bodies(drain(opened, 6)) == [b"%d" % i for i in range(4, 10)]
        client, missed = opened._wire.client, []
        process = client._process_msg

        async def lose(sid, subject, reply, data, headers):
            if data == b"3" and not missed:
                missed.append(data)
            else:
                await process(sid, subject, reply, data, headers)

        client._process_msg = lose
        nats_server.add(nats_stream, [b"%d" % i for i in range(6)])
        assert bodies(drain(opened, 6)) == [b"%d" % i for i in range(6)]
        assert missed


def test_a_consumer_that_vanished_is_made_again(nats_server, nats_stream):
    nats_server.add(nats_stream, [b"%d" % i for i in range(10)])

    async def forget(_, js):
        for info in await js.consumers_info(nats_stream):
            await js.delete_consumer(nats_stream, info.name)

    with source(nats_stream) as opened:
        assert len(drain(opened, 10)) == 10
        nats_server.ask(forget)
        nats_server.add(nats_stream, [b"more"])
        assert bodies(drain(opened, 1)) == [b"more"]
    assert nats_server.js("consumers_info", nats_stream) == []


@pytest.mark.parametrize("policy", ["workqueue", "interest"])
def test_a_stream_that_drops_what_was_read_is_no_source(nats_server, nats_stream, policy):
    nats_server.js("delete_stream", nats_stream)
    nats_server.js("add_stream", name=nats_stream, subjects=[nats_stream], retention=policy)
    with (
        pytest.raises(SourceError, match=f"must have the retention policy 'limits', not '{policy}'"),
        source(nats_stream),
    ):
        pass


def test_a_message_longer_than_a_poll(private_nats, monkeypatch):
    """As it may be where a server took longer ones once."""
    server = private_nats()
    server.js("add_stream", name="s", subjects=["s"])
    server.add("s", [b"1", bytes(1_000_000), b"2"])
    server.stop()
    server.set("max_payload: 65536\n")
    server.start()
    monkeypatch.setattr("fcstream.connectors.nats.reader.POLL_BYTES", 1 << 16)
    with source("s", host=server.host) as opened:
        assert bodies(drain(opened, 3)) == [b"1", bytes(1_000_000), b"2"]


@pytest.mark.parametrize("odd", ["größe", "a+b", "or:ders", "a=b"])
def test_odd_names_of_streams(nats_server, nats_stream, odd):
    name = f"{nats_stream}{odd}"
    nats_server.js("add_stream", name=name, subjects=[f"{nats_stream}_odd"])
    try:
        nats_server.add(f"{nats_stream}_odd", [b"1", b"2"])
        for wanted in (2, 1):
            with contextlib.closing(
                NatsSource(parse(f"nats://{HOST}/{name}?bucket={nats_stream}", "source.url"), "n")
            ) as opened:
                assert len(drain(opened, wanted)) == wanted
                opened.commit({name: 2})
        assert opened._key == {"a=b": f"{name}.n"}.get(odd, opened._key)
    finally:
        nats_server.js("delete_stream", name)


def test_a_key_that_the_library_refuses_is_reported_at_once(nats_server, nats_stream):
    with source(nats_stream, patience_s=60.0) as opened:
        opened._key = "a b"
        started = time.monotonic()
        with pytest.raises(SourceError, match="refuses: invalidkey"):
            opened.commit({nats_stream: 2})
        assert time.monotonic() - started < 30


def test_readers_that_were_replaced_are_gone(nats_server, nats_stream):
    nats_server.add(nats_stream, [b"%d" % i for i in range(20)])
    with source(nats_stream) as opened:
        assert len(opened.poll(1, 60.0)) == 1
        before = len(opened._wire.client._subs)
        for _ in range(5):
            opened.seek({nats_stream: 1})
            assert [chunk.bodies for chunk in opened.poll(1, 60.0)] == [[b"0"]]
        assert len(opened._wire.client._subs) == before
        assert len(nats_server.js("consumers_info", nats_stream)) == 1
    with sink(nats_stream) as out:
        for _ in range(5):
            out.missing([sample_release(1)])
        assert len(out._wire.client._subs) == 1  # of the answers


def test_a_reader_that_is_broken_stays_so(nats_server, nats_stream):
    with source(nats_stream) as opened:
        opened.poll(1, 0.1)

        async def take():
            asyncio.get_running_loop().call_later(0.05, breaks)
            return await opened._reader.take(1, 0.1)

        def breaks():
            opened._reader.is_broken = True  # no news with it: the wait runs out

        with pytest.raises(BrokerLost):
            opened._wire.once(take)


def test_the_servers_clock(nats_server, nats_stream):
    """Windows close by it; the newest stamp is never ahead of it here."""
    with source(nats_stream) as it:
        before = time.time_ns() // 10**6
        empty = it.clock()
        assert before - 50 <= empty.now_ms <= time.time_ns() // 10**6 + 50
        assert empty.newest_ms <= 0
        nats_server.add(nats_stream, [b"1"])
        told = it.clock()
        assert before - 50 <= told.newest_ms <= told.now_ms


def test_a_purge_between_two_polls_is_reported(nats_server, nats_stream):
    """Messages that came after it were read, and nothing told that some before it might not have been."""
    options = f"&subject={nats_stream}"  # sequences of other subjects are skipped: holes tell nothing
    nats_server.add(nats_stream, [b"read"] * 3)
    with source(nats_stream, options) as opened:
        assert len(drain(opened, 3)) == 3
        opened.ends()
        assert opened.gaps() == []
        nats_server.add(nats_stream, [b"unread"] * 3)
        nats_server.js("purge_stream", nats_stream)
        nats_server.add(nats_stream, [b"new"] * 2)
        assert bodies(drain(opened, 5))[-2:] == [b"new"] * 2
        opened.ends()
        [gap, *_] = opened.gaps()
        assert "dropped unread" in gap.what
        assert abs(gap.since_ms - time.time_ns() // 10**6) < 60_000
        opened.ends()
        assert opened.gaps() == []


def test_a_purge_is_one_gap_also_if_messages_of_before_it_are_still_handed_out(nats_server, nats_stream):
    """Whoever asked for the end before the last of them was handed out was told of two gaps."""
    nats_server.add(nats_stream, [b"read"] * 10 + [b"unread"] * 5)
    with source(nats_stream) as opened:
        (rows,) = opened.poll(5, 5.0)
        assert len(rows.bodies) == 5
        until(lambda: len(opened._reader.rows) == 5)
        nats_server.js("purge_stream", nats_stream)
        nats_server.add(nats_stream, [b"new"] * 2)
        opened.ends()
        assert len(opened.gaps()) == 1
        assert bodies(drain(opened, 7)) == [b"read"] * 5 + [b"new"] * 2
        opened.ends()
        assert opened.gaps() == []
        nats_server.add(nats_stream, [b"unread"] * 2)
        nats_server.js("purge_stream", nats_stream)
        opened.ends()
        assert len(opened.gaps()) == 1  # another purge is another gap
