"""Redis Streams as a source, against the server of this machine and private ones."""

import itertools
import logging
import os
import threading
import time

import pytest
from support.redis_server import HOST, add, entry_id, offset, source
from support.sources import CONTENT, bodies, drain

from fcstream.connectors.redis.source import RedisSource
from fcstream.connectors.urls import parse
from fcstream.errors import SourceError
from fcstream.testing import SourceContract


class TestRedisSource(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, redis_client, redis_key):
        self.server, self.key = redis_client, redis_key

    def make(self, tmp_path):
        return RedisSource(parse(f"redis://{HOST}/0?stream={self.key}", "source.url"), self.key, 5.0)

    def send(self, tmp_path, bodies):
        add(self.server, self.key, bodies)


class TestTwoRedisStreams(SourceContract):
    """Two streams of one source are two partitions."""

    @pytest.fixture(autouse=True)
    def place(self, redis_client, redis_key):
        self.server, self.key, self.turn = redis_client, redis_key, itertools.count()

    def make(self, tmp_path):
        address = parse(f"redis://{HOST}?stream={self.key}:a,{self.key}:b&group={self.key}", "source.url")
        return RedisSource(address, "unused", 5.0)

    def send(self, tmp_path, bodies):
        for body in bodies:
            self.server.xadd(f"{self.key}:{'ab'[next(self.turn) % 2]}", {"data": body})


def test_ids_and_offsets():
    ordinary = [b"0-0", b"0-1", b"1790000000000-0", b"1790000000000-1048575", b"8796093022207-1048575"]
    chosen = [b"1-1048576", b"8796093022208-0", b"9999999999999-0", b"%d-%d" % (2**64 - 1, 2**64 - 1)]
    for each in ordinary + chosen:
        assert entry_id(offset(each)).encode() == each
    assert [offset(each) for each in ordinary] == sorted(offset(each) for each in ordinary)
    assert [offset(each) < 2**63 for each in ordinary + chosen] == [True] * 5 + [False] * 4
    assert offset(b"5-0") - offset(b"4-1048575") == 1
    for each in (b"%d-0" % 2**64, b"0-%d" % 2**64, b"-1-0", b"1"):
        with pytest.raises(SourceError, match="MILLISECONDS-COUNTER"):
            offset(each)


@pytest.mark.parametrize("chosen", ["5-1048576", "8796093022208-0", "9999999999999-0", f"{2**63}-{2**63}"])
def test_an_id_that_somebody_chose_stops_nothing(redis_client, redis_key, chosen):
    """One entry, by whoever may add some, ended the stream for good: its id fits no offset of 64 bits."""
    redis_client.xadd(redis_key, {"data": b"1"}, id="4-0")
    redis_client.xadd(redis_key, {"data": b"2"}, id=chosen)
    ids = [redis_client.xadd(redis_key, {"data": b"%d" % i}) for i in range(3, 9)]
    with source(redis_key) as opened:
        ends = opened.ends()
        assert opened.behind(ends)
        rows = drain(opened, 8)
        assert bodies(rows) == [b"%d" % i for i in range(1, 9)]
        assert not opened.behind(ends)
        numbers = [number for _, number, _, _ in rows]
        assert numbers == sorted(set(numbers))
        assert [entry_id(number).encode() for number in numbers[2:]] == ids
        opened.commit({redis_key: numbers[5]})
    assert redis_client.hget(f"fcstream:{redis_key}:positions", redis_key) == ids[3]
    with source(redis_key) as opened:
        assert bodies(drain(opened, 3)) == [b"6", b"7", b"8"]
        told = opened.clock()
        assert (told.newest_ms > told.now_ms) == (int(chosen.split("-")[0]) > told.now_ms)


def test_ids_that_fit_no_position_are_an_error_for_ranges(redis_client, redis_key):
    redis_client.xadd(redis_key, {"data": b"1"}, id="9999999999999-0")
    with source(redis_key) as opened:
        opened.seek({redis_key: 0})
        with pytest.raises(SourceError, match="let the server choose them, and make the stream anew"):
            opened.poll(10, 0.1)


def test_any_body_comes_whole(redis_client, redis_key):
    sent = [b"", b"\0", b"\r\n$-1\r\n", os.urandom(3 << 20), bytes(range(256)) * 3, "é".encode()]
    add(redis_client, redis_key, sent)
    with source(redis_key) as opened:
        rows = drain(opened, len(sent))
    assert bodies(rows) == sent
    assert [timestamp for _, _, timestamp, _ in rows] == [offset >> 20 for _, offset, *_ in rows]


def test_entries_without_the_field_are_empty(redis_client, redis_key):
    redis_client.xadd(redis_key, {"other": "x", "data": "y"})
    redis_client.xadd(redis_key, {"data": "first", "other": "data"})
    redis_client.xadd(redis_key, {"other": "data"})
    redis_client.xadd(redis_key, {"other": "data", "more": "z"})
    with source(redis_key) as opened:
        assert bodies(drain(opened, 4)) == [b"y", b"first", b"", b""]
    with source(redis_key, "&field=other") as opened:
        assert bodies(drain(opened, 4)) == [b"x", b"data", b"data", b"data"]


def test_memory_of_a_poll_is_bounded(redis_client, redis_key, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.redis.source.POLL_BYTES", 1 << 20)
    add(redis_client, redis_key, [bytes(20)] * 3000)
    add(redis_client, redis_key, [bytes(1 << 16)] * 400)
    with source(redis_key) as opened:
        sizes = [sum(len(body) for chunk in opened.poll(1000, 0.1) for body in chunk.bodies) for _ in range(16)]
        assert opened.poll(10, 0.1) == []
    assert sizes[:3] == [20_000] * 3
    assert sizes[3] == 250 << 16  # the first huge ones come as a surprise
    assert sum(sizes) == 60_000 + (400 << 16)
    assert max(sizes[4:]) <= (1 << 20) + (1 << 16)


def test_the_first_reading_is_small(redis_client, redis_key, monkeypatch):
    """How large the entries are, it shows."""
    monkeypatch.setattr("fcstream.connectors.redis.source.POLL_BYTES", 1 << 20)
    add(redis_client, redis_key, [bytes(1 << 16)] * 100)
    with source(redis_key) as opened:
        assert sum(len(chunk.bodies) for chunk in opened.poll(1000, 0.1)) == 16
        assert sum(len(chunk.bodies) for chunk in opened.poll(1000, 0.1)) <= 18


def test_a_poll_returns_as_soon_as_something_is_there(redis_client, redis_key):
    with source(redis_key) as opened:
        threading.Timer(0.3, add, (redis_client, redis_key, [b"1"])).start()
        started = time.monotonic()
        assert [chunk.bodies for chunk in opened.poll(10, 60.0)] == [[b"1"]]
        assert opened.poll(10, 0.0) == []
        assert opened.poll(10, 0.2) == []
        assert time.monotonic() - started < 30


def test_a_commit_never_goes_back(redis_client, redis_key):
    add(redis_client, redis_key, [b"%d" % i for i in range(10)])
    with source(redis_key) as opened:
        offsets = [offset for _, offset, *_ in drain(opened, 10)]
        opened.commit({redis_key: offsets[7]})
        opened.commit({redis_key: offsets[3]})
    assert redis_client.hgetall(f"fcstream:{redis_key}:positions") == {
        redis_key.encode(): entry_id(offsets[7]).encode()
    }
    with source(redis_key) as opened:
        opened.commit({redis_key: offsets[4]})
        assert bodies(drain(opened, 3)) == [b"7", b"8", b"9"]
    with source(redis_key, name=f"{redis_key}:other") as opened:
        assert len(drain(opened, 10)) == 10


def test_deleted_entries_do_not_count_as_behind(redis_client, redis_key):
    ids = add(redis_client, redis_key, [b"%d" % i for i in range(5)])
    with source(redis_key) as opened:
        ends = opened.ends()
        assert ends == {redis_key: offset(ids[-1]) + 1}
        assert [chunk.bodies for chunk in opened.poll(3, 1.0)] == [[b"0", b"1", b"2"]]
        assert opened.behind(ends)
        redis_client.xdel(redis_key, *ids[3:])
        assert not opened.behind(ends)
        assert opened.poll(10, 0.05) == []
        add(redis_client, redis_key, [b"later"])
        assert not opened.behind(ends)
        assert opened.behind(opened.ends())


def test_trimmed_entries_are_reported(redis_client, redis_key, caplog):
    add(redis_client, redis_key, [CONTENT + b"%d" % i for i in range(10)])
    with source(redis_key) as opened:
        opened.commit({redis_key: drain(opened, 10)[2][1]})
    redis_client.xtrim(redis_key, maxlen=8, approximate=False)
    with caplog.at_level(logging.WARNING), source(redis_key) as opened:
        assert len(drain(opened, 8)) == 8
    assert caplog.messages == []  # nothing but what was committed is gone
    redis_client.xtrim(redis_key, maxlen=2, approximate=False)
    with caplog.at_level(logging.WARNING), source(redis_key) as opened:
        assert bodies(drain(opened, 2)) == [CONTENT + b"8", CONTENT + b"9"]
        opened.ends()
    assert len(caplog.messages) == 1
    assert "may have been trimmed unread" in caplog.text
    assert CONTENT.decode() not in caplog.text


def test_entries_trimmed_between_two_polls_are_reported(redis_client, redis_key, caplog):
    """Although the stream begins behind the position no more when it is asked."""
    with caplog.at_level(logging.WARNING):
        add(redis_client, redis_key, [CONTENT + b"%d" % i for i in range(20)])
        with source(redis_key) as opened:
            assert len(opened.poll(5, 0.1)) == 1
            redis_client.xtrim(redis_key, maxlen=6, approximate=False)
            assert len(opened.poll(2, 0.1)) == 1
            add(redis_client, redis_key, [b"w"])
            opened.ends()
            assert len(drain(opened, 5)) == 5
            assert len(caplog.messages) == 1
            redis_client.xtrim(redis_key, maxlen=1, approximate=False)
            add(redis_client, redis_key, [b"x", b"y"])
            opened.ends()
            assert len(drain(opened, 2)) == 2
            redis_client.xtrim(redis_key, maxlen=0, approximate=False)
            opened.ends()
            assert len(caplog.messages) == 1  # what was trimmed since had been read
            ids = add(redis_client, redis_key, [b"1", b"2", b"3"])
            redis_client.xdel(redis_key, ids[1])
            assert len(drain(opened, 2)) == 2
            opened.ends()
            opened.ends()
    assert [message.partition(": ")[2][:47] for message in caplog.messages] == [
        "9 entries were trimmed or deleted unread, befor",
        "1 entries were trimmed or deleted unread, befor",
    ]
    assert CONTENT.decode() not in caplog.text


def test_entries_trimmed_while_a_backlog_is_read_are_reported(redis_client, redis_key, caplog):
    """How many there were up to a stored position, nobody knows."""
    add(redis_client, redis_key, [b"%d" % i for i in range(30)])
    with source(redis_key) as opened:
        opened.commit({redis_key: drain(opened, 30)[10][1]})
    with caplog.at_level(logging.WARNING), source(redis_key) as opened:
        assert bodies(drain(opened, 20))[0] == b"10"
        assert caplog.messages == []
    with caplog.at_level(logging.WARNING), source(redis_key) as opened:
        [chunk] = opened.poll(5, 0.1)
        redis_client.xtrim(redis_key, maxlen=3, approximate=False)
        [chunk] = opened.poll(2, 0.1)
        assert chunk.bodies == [b"27", b"28"]
        opened.poll(2, 0.1)
        opened.ends()
    assert len(caplog.messages) == 1
    assert "may have been trimmed unread" in caplog.text


def test_ids_that_go_back_are_reported_when_the_stream_has_grown_past_them(redis_client, redis_key):
    for chosen in ("1000-0", "2000-0", "3000-0"):
        redis_client.xadd(redis_key, {"data": "old"}, id=chosen)
    with source(redis_key) as opened:
        drain(opened, 3)
        redis_client.xdel(redis_key, "3000-0")
        opened.ends()  # deleted, but the stream is the same
        redis_client.xtrim(redis_key, maxlen=0, approximate=False)
        redis_client.xadd(redis_key, {"data": "old"}, id="4000-0")
        drain(opened, 1)
        opened.ends()
        redis_client.delete(redis_key)
        for entry_id in ("500-0", "5000-0"):
            redis_client.xadd(redis_key, {"data": "new"}, id=entry_id)
        opened.gaps()
        opened.ends()
        assert [gap.what for gap in opened.gaps()] == [f"stream {redis_key} was made anew"]
        assert bodies(drain(opened, 2)) == [b"new"] * 2


def test_a_stored_position_that_is_no_id(redis_client, redis_key):
    for stored in ("garbage", "5", "5-", b"\xff-\xff"):
        redis_client.hset(f"fcstream:{redis_key}:positions", redis_key, stored)
        with pytest.raises(SourceError, match=r"MILLISECONDS-COUNTER, got .*positions"), source(redis_key):
            pass


def test_a_stream_made_anew_with_older_ids(redis_client, redis_key, caplog):
    add(redis_client, redis_key, [b"old"])
    opened = RedisSource(parse(f"redis://{HOST}?stream={redis_key}", "source.url"), redis_key, 1.0)
    [(_, number, _, _)] = drain(opened, 1)
    opened.commit({redis_key: number + 1})
    redis_client.delete(redis_key)
    assert opened.ends() == {redis_key: number + 1}
    redis_client.xadd(redis_key, {"data": "new"}, id="1000-0")
    [anew] = opened.ends()
    assert anew != redis_key  # ids begin anew: what was read of the old stream and of the new one are told apart
    [chunk] = opened.poll(10, 1.0)
    assert (chunk.partition, chunk.bodies) == (anew, [b"new"])
    [gap] = opened.gaps()
    assert gap == (f"stream {redis_key} was made anew", number >> 20)
    opened.seek({redis_key: number + 1})
    with pytest.raises(SourceError, match="made anew"):
        opened.ends()
    opened.close()
    with caplog.at_level(logging.WARNING), source(redis_key) as opened:
        assert bodies(drain(opened, 1)) == [b"new"]
        opened.commit({redis_key: offset(b"1000-1")})
    assert "made anew" in caplog.text
    assert redis_client.hget(f"fcstream:{redis_key}:positions", redis_key) == b"1000-1"
