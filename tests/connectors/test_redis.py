"""Redis Streams against real servers: the one of this machine, and private ones that are cut off, locked, restarted."""

import contextlib
import itertools
import logging
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest
from support.proxy import Proxy
from support.redis_server import HOST

from fcstream.connectors import is_live, open_live, open_sink
from fcstream.connectors.redis.ids import of_offset, parse_id, to_offset, write_id
from fcstream.connectors.redis.sink import RedisSink
from fcstream.connectors.redis.source import RedisSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.testing import SinkContract, SourceContract, sample_release

NAMES = itertools.count()
SECRET = "s3cretWord"
CONTENT = b"sentinelContent"


@pytest.fixture
def key(redis_client):
    """A stream of its own, and afterwards nothing of it."""
    name = f"fcstream-test-{os.getpid()}-{next(NAMES)}"
    yield name
    redis_client.delete(name, f"fcstream:{name}:positions", *redis_client.keys(f"{name}:*"))


def source(key, options="", host=HOST, name=None, patience_s=5.0):
    address = parse(f"redis://{host}/0?stream={key}{options}", "source.url")
    return contextlib.closing(RedisSource(address, name or key, patience_s))


def sink(key, options="", host=HOST, patience_s=5.0):
    return contextlib.closing(RedisSink(parse(f"redis://{host}/0?stream={key}{options}", "sink.url"), patience_s))


def add(server, key, bodies, **options):
    pipe = server.pipeline(transaction=False)
    for body in bodies:
        pipe.xadd(key, {"data": body}, **options)
    return pipe.execute()


def drain(source, wanted):
    return SourceContract().drain(source, wanted)


def bodies(rows):
    return [body for *_, body in rows]


class TestRedisSource(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self, redis_client, key):
        self.server, self.key = redis_client, key

    def make(self, tmp_path):
        return RedisSource(parse(f"redis://{HOST}/0?stream={self.key}", "source.url"), self.key, 5.0)

    def send(self, tmp_path, bodies):
        add(self.server, self.key, bodies)


class TestTwoRedisStreams(SourceContract):
    """Two streams of one source are two partitions."""

    @pytest.fixture(autouse=True)
    def place(self, redis_client, key):
        self.server, self.key, self.turn = redis_client, key, itertools.count()

    def make(self, tmp_path):
        address = parse(f"redis://{HOST}?stream={self.key}:a,{self.key}:b&group={self.key}", "source.url")
        return RedisSource(address, "unused", 5.0)

    def send(self, tmp_path, bodies):
        for body in bodies:
            self.server.xadd(f"{self.key}:{'ab'[next(self.turn) % 2]}", {"data": body})


class TestRedisSink(SinkContract):
    @pytest.fixture(autouse=True)
    def place(self, redis_client, key):
        self.server, self.key = redis_client, key

    def make(self, tmp_path):
        return RedisSink(parse(f"redis://{HOST}/0?stream={self.key}", "sink.url"), 5.0)

    def read(self, tmp_path):
        from fcstream.releases.base import Release

        return [Release.from_bytes(fields[b"data"]) for _, fields in self.server.xrange(self.key)]


@contextlib.contextmanager
def listening(serve):
    """A place where every connection is served in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as place:

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(place.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{place.getsockname()[1]}"
        with contextlib.suppress(OSError):
            place.shutdown(socket.SHUT_RDWR)


class Relay:
    """Stands for a name behind which servers change: a connection stays with the one it was made to."""

    def __init__(self, port):
        self.port, self.made, self.cuts_added = port, 0, False

    def serve(self, near):
        far = socket.create_connection(("127.0.0.1", self.port))
        self.made += 1
        asked = []

        def pump(source, target, is_answer):
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    if not is_answer and b"XADD" in data:
                        asked.append(data)
                    target.sendall(data)
                    if is_answer and asked and self.cuts_added:
                        self.cuts_added = False
                        break
            for one in (near, far):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        with near, far:
            back = threading.Thread(target=pump, args=(near, far, False), daemon=True)
            back.start()
            pump(far, near, True)
            back.join()


def refusing(answer):
    """A server that answers everything so."""

    def serve(near):
        with near, contextlib.suppress(OSError):
            while data := near.recv(1 << 16):
                near.sendall(answer * len(re.findall(rb"(?:^|\r\n)\*\d+\r\n", data)))

    return listening(serve)


def offset(entry_id):
    return to_offset(parse_id(entry_id))


def entry_id(number):
    return write_id(of_offset(int(number)))


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
def test_an_id_that_somebody_chose_stops_nothing(redis_client, key, chosen):
    """One entry, by whoever may add some, ended the stream for good: its id fits no offset of 64 bits."""
    redis_client.xadd(key, {"data": b"1"}, id="4-0")
    redis_client.xadd(key, {"data": b"2"}, id=chosen)
    ids = [redis_client.xadd(key, {"data": b"%d" % i}) for i in range(3, 9)]
    with source(key) as opened:
        ends = opened.ends()
        assert opened.behind(ends)
        rows = drain(opened, 8)
        assert bodies(rows) == [b"%d" % i for i in range(1, 9)]
        assert not opened.behind(ends)
        numbers = [number for _, number, _, _ in rows]
        assert numbers == sorted(set(numbers))
        assert [entry_id(number).encode() for number in numbers[2:]] == ids
        opened.commit({key: numbers[5]})
    assert redis_client.hget(f"fcstream:{key}:positions", key) == ids[3]
    with source(key) as opened:
        assert bodies(drain(opened, 3)) == [b"6", b"7", b"8"]
        told = opened.clock()
        assert (told.newest_ms > told.now_ms) == (int(chosen.split("-")[0]) > told.now_ms)


def test_ids_that_fit_no_position_are_an_error_for_ranges(redis_client, key):
    redis_client.xadd(key, {"data": b"1"}, id="9999999999999-0")
    with source(key) as opened:
        opened.seek({key: 0})
        with pytest.raises(SourceError, match="let the server choose them, and make the stream anew"):
            opened.poll(10, 0.1)


def test_a_login_that_may_not_ask_for_the_time(private_redis):
    server = private_redis()
    with server.client() as client:
        add(client, "s", [b"1"])
        client.execute_command("ACL", "SETUSER", "other", "on", f">{SECRET}", "~*", "+@all", "-time")
    with contextlib.closing(open_live(f"redis://other:{SECRET}@{server.host}?stream=s", "n")) as opened:
        assert opened.clock() is None


def test_any_body_comes_whole(redis_client, key):
    sent = [b"", b"\0", b"\r\n$-1\r\n", os.urandom(3 << 20), bytes(range(256)) * 3, "é".encode()]
    add(redis_client, key, sent)
    with source(key) as opened:
        rows = drain(opened, len(sent))
    assert bodies(rows) == sent
    assert [timestamp for _, _, timestamp, _ in rows] == [offset >> 20 for _, offset, *_ in rows]


def test_entries_without_the_field_are_empty(redis_client, key):
    redis_client.xadd(key, {"other": "x", "data": "y"})
    redis_client.xadd(key, {"data": "first", "other": "data"})
    redis_client.xadd(key, {"other": "data"})
    redis_client.xadd(key, {"other": "data", "more": "z"})
    with source(key) as opened:
        assert bodies(drain(opened, 4)) == [b"y", b"first", b"", b""]
    with source(key, "&field=other") as opened:
        assert bodies(drain(opened, 4)) == [b"x", b"data", b"data", b"data"]


def test_memory_of_a_poll_is_bounded(redis_client, key, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.redis.source.POLL_BYTES", 1 << 20)
    add(redis_client, key, [bytes(20)] * 3000)
    add(redis_client, key, [bytes(1 << 16)] * 400)
    with source(key) as opened:
        sizes = [sum(len(body) for chunk in opened.poll(1000, 0.1) for body in chunk.bodies) for _ in range(16)]
        assert opened.poll(10, 0.1) == []
    assert sizes[:3] == [20_000] * 3
    assert sizes[3] == 250 << 16  # the first huge ones come as a surprise
    assert sum(sizes) == 60_000 + (400 << 16)
    assert max(sizes[4:]) <= (1 << 20) + (1 << 16)


def test_the_first_reading_is_small(redis_client, key, monkeypatch):
    """How large the entries are, it shows."""
    monkeypatch.setattr("fcstream.connectors.redis.source.POLL_BYTES", 1 << 20)
    add(redis_client, key, [bytes(1 << 16)] * 100)
    with source(key) as opened:
        assert sum(len(chunk.bodies) for chunk in opened.poll(1000, 0.1)) == 16
        assert sum(len(chunk.bodies) for chunk in opened.poll(1000, 0.1)) <= 18


def test_a_poll_returns_as_soon_as_something_is_there(redis_client, key):
    with source(key) as opened:
        threading.Timer(0.3, add, (redis_client, key, [b"1"])).start()
        started = time.monotonic()
        assert [chunk.bodies for chunk in opened.poll(10, 60.0)] == [[b"1"]]
        assert opened.poll(10, 0.0) == []
        assert opened.poll(10, 0.2) == []
        assert time.monotonic() - started < 30


def test_a_commit_never_goes_back(redis_client, key):
    add(redis_client, key, [b"%d" % i for i in range(10)])
    with source(key) as opened:
        offsets = [offset for _, offset, *_ in drain(opened, 10)]
        opened.commit({key: offsets[7]})
        opened.commit({key: offsets[3]})
    assert redis_client.hgetall(f"fcstream:{key}:positions") == {key.encode(): entry_id(offsets[7]).encode()}
    with source(key) as opened:
        opened.commit({key: offsets[4]})
        assert bodies(drain(opened, 3)) == [b"7", b"8", b"9"]
    with source(key, name=f"{key}:other") as opened:
        assert len(drain(opened, 10)) == 10


def test_deleted_entries_do_not_count_as_behind(redis_client, key):
    ids = add(redis_client, key, [b"%d" % i for i in range(5)])
    with source(key) as opened:
        ends = opened.ends()
        assert ends == {key: offset(ids[-1]) + 1}
        assert [chunk.bodies for chunk in opened.poll(3, 1.0)] == [[b"0", b"1", b"2"]]
        assert opened.behind(ends)
        redis_client.xdel(key, *ids[3:])
        assert not opened.behind(ends)
        assert opened.poll(10, 0.05) == []
        add(redis_client, key, [b"later"])
        assert not opened.behind(ends)
        assert opened.behind(opened.ends())


def test_trimmed_entries_are_reported(redis_client, key, caplog):
    add(redis_client, key, [CONTENT + b"%d" % i for i in range(10)])
    with source(key) as opened:
        opened.commit({key: drain(opened, 10)[2][1]})
    redis_client.xtrim(key, maxlen=8, approximate=False)
    with caplog.at_level(logging.WARNING), source(key) as opened:
        assert len(drain(opened, 8)) == 8
    assert caplog.messages == []  # nothing but what was committed is gone
    redis_client.xtrim(key, maxlen=2, approximate=False)
    with caplog.at_level(logging.WARNING), source(key) as opened:
        assert bodies(drain(opened, 2)) == [CONTENT + b"8", CONTENT + b"9"]
        opened.ends()
    assert len(caplog.messages) == 1
    assert "may have been trimmed unread" in caplog.text
    assert CONTENT.decode() not in caplog.text


def test_entries_trimmed_between_two_polls_are_reported(redis_client, key, caplog):
    """Although the stream begins behind the position no more when it is asked."""
    with caplog.at_level(logging.WARNING):
        add(redis_client, key, [CONTENT + b"%d" % i for i in range(20)])
        with source(key) as opened:
            assert len(opened.poll(5, 0.1)) == 1
            redis_client.xtrim(key, maxlen=6, approximate=False)
            assert len(opened.poll(2, 0.1)) == 1
            add(redis_client, key, [b"w"])
            opened.ends()
            assert len(drain(opened, 5)) == 5
            assert len(caplog.messages) == 1
            redis_client.xtrim(key, maxlen=1, approximate=False)
            add(redis_client, key, [b"x", b"y"])
            opened.ends()
            assert len(drain(opened, 2)) == 2
            redis_client.xtrim(key, maxlen=0, approximate=False)
            opened.ends()
            assert len(caplog.messages) == 1  # what was trimmed since had been read
            ids = add(redis_client, key, [b"1", b"2", b"3"])
            redis_client.xdel(key, ids[1])
            assert len(drain(opened, 2)) == 2
            opened.ends()
            opened.ends()
    assert [message.partition(": ")[2][:47] for message in caplog.messages] == [
        "9 entries were trimmed or deleted unread, befor",
        "1 entries were trimmed or deleted unread, befor",
    ]
    assert CONTENT.decode() not in caplog.text


def test_entries_trimmed_while_a_backlog_is_read_are_reported(redis_client, key, caplog):
    """How many there were up to a stored position, nobody knows."""
    add(redis_client, key, [b"%d" % i for i in range(30)])
    with source(key) as opened:
        opened.commit({key: drain(opened, 30)[10][1]})
    with caplog.at_level(logging.WARNING), source(key) as opened:
        assert bodies(drain(opened, 20))[0] == b"10"
        assert caplog.messages == []
    with caplog.at_level(logging.WARNING), source(key) as opened:
        [chunk] = opened.poll(5, 0.1)
        redis_client.xtrim(key, maxlen=3, approximate=False)
        [chunk] = opened.poll(2, 0.1)
        assert chunk.bodies == [b"27", b"28"]
        opened.poll(2, 0.1)
        opened.ends()
    assert len(caplog.messages) == 1
    assert "may have been trimmed unread" in caplog.text


def test_ids_that_go_back_are_reported_when_the_stream_has_grown_past_them(redis_client, key):
    for entry_id in ("1000-0", "2000-0", "3000-0"):
        redis_client.xadd(key, {"data": "old"}, id=entry_id)
    with source(key) as opened:
        drain(opened, 3)
        redis_client.xdel(key, "3000-0")
        opened.ends()  # deleted, but the stream is the same
        redis_client.xtrim(key, maxlen=0, approximate=False)
        redis_client.xadd(key, {"data": "old"}, id="4000-0")
        drain(opened, 1)
        opened.ends()
        redis_client.delete(key)
        for entry_id in ("500-0", "5000-0"):
            redis_client.xadd(key, {"data": "new"}, id=entry_id)
        opened.gaps()
        opened.ends()
        assert [gap.what for gap in opened.gaps()] == [f"stream {key} was made anew"]
        assert bodies(drain(opened, 2)) == [b"new"] * 2


def test_a_stored_position_that_is_no_id(redis_client, key):
    for stored in ("garbage", "5", "5-", b"\xff-\xff"):
        redis_client.hset(f"fcstream:{key}:positions", key, stored)
        with pytest.raises(SourceError, match=r"MILLISECONDS-COUNTER, got .*positions"), source(key):
            pass


def test_an_answer_that_makes_no_sense():
    with refusing(b"-MOVED 1\r\n") as host:
        for make in (source, sink):
            with pytest.raises(FcstreamError, match=r"refuses: (ValueError|MOVED)"), make("s", host=host):
                pass


def test_a_server_that_will_change_its_mind_is_waited_for():
    for code in ("UNBLOCKED", "CLUSTERDOWN", "MISCONF", "NOREPLICAS", "BUSY", "READONLY"):
        with refusing(f"-{code} {CONTENT.decode()}\r\n".encode()) as host:
            with pytest.raises(SourceError, match=rf"cannot serve now: {code}; mend") as caught, source("s", host=host):
                pass
            assert CONTENT.decode() not in everything(caught.value)
    with refusing(b"-BUSYGROUP x\r\n") as host, pytest.raises(SourceError, match="refuses: BUSYGROUP"):
        source("s", host=host)


def test_a_poll_outlives_that_its_server_is_demoted(private_redis):
    server = private_redis()
    with server.client() as client, source("s", host=server.host) as opened:
        demotion = threading.Timer(0.3, client.replicaof, ("127.0.0.1", 1))
        demotion.start()
        assert opened.poll(10, 0.6) == []
        demotion.join()


def test_reach_without_scripts(private_redis, monkeypatch):
    server = private_redis()
    with server.client() as client:
        ids = add(client, "s", [b"1", b"2", b"3"])
        client.execute_command("ACL", "SETUSER", "other", "on", f">{SECRET}", "~*", "+@all", "-eval")
    with contextlib.closing(open_live(f"redis://other:{SECRET}@{server.host}?stream=s", "n")) as opened:
        assert opened.reach("s", 0, 2) == offset(ids[1]) + 1
    monkeypatch.setattr("fcstream.connectors.redis.source._REACH", "return redis.error_reply('OOM x')")
    with source("s", host=server.host) as opened, pytest.raises(SourceError, match="refuses: "):
        opened.reach("s", 0, 2)


def test_a_stream_made_anew_with_older_ids(redis_client, key, caplog):
    add(redis_client, key, [b"old"])
    opened = RedisSource(parse(f"redis://{HOST}?stream={key}", "source.url"), key, 1.0)
    [(_, number, _, _)] = drain(opened, 1)
    opened.commit({key: number + 1})
    redis_client.delete(key)
    assert opened.ends() == {key: number + 1}
    redis_client.xadd(key, {"data": "new"}, id="1000-0")
    [anew] = opened.ends()
    assert anew != key  # ids begin anew: what was read of the old stream and of the new one are told apart
    [chunk] = opened.poll(10, 1.0)
    assert (chunk.partition, chunk.bodies) == (anew, [b"new"])
    [gap] = opened.gaps()
    assert gap == (f"stream {key} was made anew", number >> 20)
    opened.seek({key: number + 1})
    with pytest.raises(SourceError, match="made anew"):
        opened.ends()
    opened.close()
    with caplog.at_level(logging.WARNING), source(key) as opened:
        assert bodies(drain(opened, 1)) == [b"new"]
        opened.commit({key: offset(b"1000-1")})
    assert "made anew" in caplog.text
    assert redis_client.hget(f"fcstream:{key}:positions", key) == b"1000-1"


def cuttable(server):
    """A proxy to a server of a test's own."""
    return contextlib.closing(Proxy(server.port))


def test_a_cut_connection_is_mended(private_redis):
    """Again and again while it reads: nothing is lost, nothing comes twice."""
    server, count, found, places = private_redis(), 40_000, [], random.Random(1)
    with server.client() as client:
        add(client, "s", [b"%d" % i for i in range(count)])
    with cuttable(server) as proxy, source("s", host=proxy.host, patience_s=30.0) as opened:
        until = time.monotonic() + 100
        for turn in itertools.count():
            if turn % 3 == 0:
                proxy.cut_after(places.randrange(60_000), *[places.randrange(1000) for _ in range(turn % 2)])
            for chunk in opened.poll(500, 0.1):
                found += chunk.bodies
                opened.commit({"s": int(chunk.offsets[-1])})
            if len(found) >= count or time.monotonic() > until:
                break
        assert proxy.cuts > 20
    assert found == [b"%d" % i for i in range(count)]


def test_a_restarted_server_that_kept_nothing(private_redis):
    """Streams and positions are gone; what is added then is read."""
    server = private_redis()
    with source("s", host=server.host, patience_s=60.0) as opened:
        with server.client() as client:
            add(client, "s", [b"before"])
        [(_, offset, _, body)] = drain(opened, 1)
        assert body == b"before"
        opened.commit({"s": offset + 1})
        found = []
        reader = threading.Thread(target=lambda: found.extend(opened.poll(10, 60.0)))
        reader.start()  # it waits in the middle of a command
        time.sleep(0.3)
        server.stop()
        time.sleep(0.5)
        server.start()
        with server.client() as client:
            add(client, "s", [b"after"])
            reader.join()
            assert [chunk.bodies for chunk in found] == [[b"after"]]
            assert found[0].offsets[0] > offset
            assert not opened.behind(opened.ends())
            opened.commit({"s": int(found[0].offsets[0]) + 1})
            assert client.hget("fcstream:s:positions", "s") == entry_id(int(found[0].offsets[0]) + 1).encode()


def test_patience_ends(private_redis):
    server = private_redis()
    with source("s", "&patience=0.5", host=server.host) as opened, sink("r", "&patience=0.5", server.host) as out:
        server.stop()
        for call, error in (
            (lambda: opened.poll(1, 0.1), SourceError),
            (opened.ends, SourceError),
            (lambda: opened.commit({"s": 5}), SourceError),
            (lambda: out.write([sample_release(1)]), SinkError),
            (out.last, SinkError),
        ):
            started = time.monotonic()
            with pytest.raises(error, match="cannot be reached: Connection refused"):
                call()
            assert time.monotonic() - started < 30
        server.start()
        out.write([sample_release(1)])
        assert opened.poll(1, 0.1) == []
        assert not opened.behind(opened.ends())
        opened.commit({"s": 5})


def test_an_address_where_nobody_answers_is_reported_at_once():
    started = time.monotonic()
    for make in (source, sink):
        with pytest.raises(FcstreamError, match="cannot be reached"), make("s", host="127.0.0.1:1", patience_s=60.0):
            pass
    assert time.monotonic() - started < 30


def everything(error):
    return "".join(traceback.format_exception(error)) + repr(error.__cause__)


def test_no_secret_and_no_content_in_any_error(private_redis, caplog, monkeypatch):
    caplog.set_level(0)
    server = private_redis("--requirepass", SECRET)
    right, wrong = f"{SECRET}", f"{SECRET}Wrong"
    monkeypatch.setenv("FCSTREAM_TEST_PASSWORD", wrong)
    seen = []
    urls = [
        f"redis://:{wrong}@{server.host}?stream=s",
        f"redis://user:{wrong}@{server.host}?stream=s",
        f"redis://:${{FCSTREAM_TEST_PASSWORD}}@{server.host}?stream=s",
        f"redis://:{right}@{server.host}?stream=s&unknown=1",
        f"redis://:{right}@{server.host}/x?stream=s",
        f"redis://:{right}@{server.host}/9999?stream=s",
        f"redis://:{right}@{server.host}",
        f"redis://:{right}@{server.host}?stream=,",
        f"redis://:{right}@{server.host},other:1?stream=s",
        f"redis://:{right}@127.0.0.1:1?stream=s",
        f"rediss://:{right}@{server.host}?stream=s",
        f"redis://:{right}@{server.host}?stream=s&patience=x",
    ]
    for url in urls:
        for open_one in (lambda url: open_live(url, "n"), open_sink):
            if "stream=," in url and open_one is open_sink:
                continue
            if url.startswith("rediss"):  # a server without TLS never answers
                monkeypatch.setattr("fcstream.connectors.redis.connection._SOCKET_S", 1.0)
            with pytest.raises(FcstreamError) as caught:
                open_one(url)
            monkeypatch.setattr("fcstream.connectors.redis.connection._SOCKET_S", 15.0)
            seen.append(everything(caught.value))
    with pytest.raises(SourceError, match="refuses: AuthenticationError"):
        open_live(f"redis://{server.host}?stream=s", "n")
    with pytest.raises(SourceError, match=r"redis://\*\*\*@.* refuses: "):
        open_live(urls[0], "n")
    with server.client(password=SECRET) as client:
        client.set("s", CONTENT)
        with pytest.raises(FcstreamError) as caught:
            open_live(f"redis://:{right}@{server.host}?stream=s", "n")
        assert "WRONGTYPE" in str(caught.value)
        client.delete("s")
        opened = open_live(f"redis://:{right}@{server.host}?stream=s&patience=1", "n")
        client.set("s", CONTENT)
        for call in (lambda: opened.poll(1, 0.1), opened.ends, lambda: opened.behind({"s": 9})):
            with pytest.raises(SourceError) as caught:
                call()
            seen.append(everything(caught.value))
        client.config_set("requirepass", "another")
        server_side = [c for c in client.client_list() if c["cmd"] != "client|list"]
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        assert server_side
        with pytest.raises(SourceError, match="refuses") as caught:
            opened.poll(1, 0.1)
        seen.append(everything(caught.value))
        opened.close()
        assert SECRET not in repr(parse(urls[3], "x"))
    for text in [*seen, caplog.text]:
        assert SECRET not in text
        assert CONTENT.decode() not in text


def test_tls(private_redis, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    cert, key = f"{tmp_path}/cert.pem", f"{tmp_path}/key.pem"
    server = private_redis(
        *["--port", "0", "--tls-port", "PORT", "--tls-cert-file", cert, "--tls-key-file", key],
        *["--tls-ca-cert-file", cert],
    )
    whole = f"rediss://localhost:{server.port}?stream=s&ca={cert}&cert={cert}&key={key}"
    with contextlib.closing(open_sink(whole.replace("stream=s", "stream=r"))) as out:
        out.write([sample_release(1)])
    with contextlib.closing(open_live(whole.replace("stream=s", "stream=r"), "n")) as opened:
        assert bodies(drain(opened, 1)) == [sample_release(1).to_bytes()]
    for url in (
        whole.replace(f"ca={cert}&", ""),  # nobody vouches for it
        whole.replace("localhost", "127.0.0.1"),  # another's certificate
        whole.replace(f"cert={cert}&key={key}", ""),  # the server wants one of ours
        whole.replace("cert.pem", "none.pem"),
        whole.replace("rediss", "redis"),
    ):
        with pytest.raises(FcstreamError):
            open_live(url, "n")


def test_tls_trusts_the_named_authority_alone(private_redis, tmp_path, monkeypatch):
    """Not the system's besides."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    for name in ("server", "other"):
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        files = ["-keyout", f"{tmp_path}/{name}.key", "-out", f"{tmp_path}/{name}.pem"]
        subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost", *files], check=True, capture_output=True)
    cert, other = f"{tmp_path}/server.pem", f"{tmp_path}/other.pem"
    server = private_redis(
        *["--port", "0", "--tls-port", "PORT", "--tls-cert-file", cert, "--tls-key-file", f"{tmp_path}/server.key"],
        *["--tls-ca-cert-file", cert, "--tls-auth-clients", "no"],
    )
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    open_live(f"rediss://localhost:{server.port}?stream=s", "n").close()
    open_live(f"rediss://localhost:{server.port}?stream=s&ca={cert}", "n").close()
    with pytest.raises(SourceError, match="its certificate is refused"):
        open_live(f"rediss://localhost:{server.port}?stream=s&ca={other}", "n")


def test_a_missing_client_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"source.url: needs the package redis: .*pip install .*\[redis\]'"):
        open_live("redis://localhost?stream=s", "n")


def test_addresses():
    assert is_live("redis://x?stream=y")
    assert is_live("rediss://x?stream=y")
    with pytest.raises(ConfigError, match="unknown option 'ca'"):
        open_live("redis://localhost?stream=s&ca=x", "n")
    with pytest.raises(ConfigError, match="must name `stream`"):
        open_sink("redis://localhost")


def test_a_release_written_again_is_there_once(redis_client, key):
    sent = [sample_release(i) for i in range(6)]
    with sink(key) as out:
        assert out.last() is None
        assert out.missing(sent) == sent
        out.write(sent[:3])
        out.write(sent[1:5])  # as after a crash between the write and its acknowledgment
    with sink(key) as out:
        assert out.missing(sent) == sent[5:]
        assert out.missing([]) == []
        out.write(sent)
        out.write([])
        assert out.last() == sent[-1]
    entries = redis_client.xrange(key)
    assert [entry_id for entry_id, _ in entries] == [b"%d-0" % release.window_close_ms for release in sent]
    assert [fields[b"data"] for _, fields in entries] == [release.to_bytes() for release in sent]
    assert entries[1][1] | {b"data": b""} == {b"data": b"", b"stream": b"sample", b"window": b"60000"}


def test_a_trimmed_stream_of_releases_goes_on(redis_client, key):
    sent = [sample_release(i) for i in range(6)]
    with sink(key) as out:
        out.write(sent[:4])
        redis_client.xtrim(key, maxlen=1, approximate=False)
        out.write(sent[1:5])
        assert len(redis_client.xrange(key)) == 2
        redis_client.xtrim(key, maxlen=0, approximate=False)
        with pytest.raises(SinkError, match="a key of its own"):  # whose it was cannot be told any more
            out.write(sent[3:4])
        out.write(sent[4:5])  # the last that ever was
        out.write(sent[3:5])  # so those before it were too
        assert redis_client.xlen(key) == 0
        out.write(sent[5:])
        out.write(sent)
        assert out.missing(sent) == sent[:5]


def test_a_sink_refuses_a_stream_of_others(redis_client, key):
    redis_client.xadd(key, {"data": CONTENT})
    with sink(key) as out:
        with pytest.raises(SinkError, match="a key of its own"):
            out.write([sample_release(1)])
        with pytest.raises(SinkError, match="holds something else than releases"):
            out.last()
        redis_client.delete(key)
        out.write([sample_release(1)])
        other = sample_release(1)
        object.__setattr__(other, "stream", "other")
        with pytest.raises(SinkError, match="a key of its own") as caught:
            out.write([sample_release(2), other])
        assert CONTENT.decode() not in str(caught.value)
        assert redis_client.xlen(key) == 2


def test_replicas_that_are_not_there(redis_client, key, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.redis.sink._WAIT_S", 0.1)
    with sink(key, "&replicas=1") as out, pytest.raises(SinkError, match="must reach 1 replicas"):
        out.write([sample_release(1)])


def test_dead_letters_are_written_once_although_replicas_are_missing(redis_client, key, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.redis.sink._WAIT_S", 0.05)
    with sink(key, "&replicas=1") as out:
        for dead_letters in ([b"a", b"b"], [b"a", b"b"], [b"a", b"b"], [b"c"]):
            with pytest.raises(SinkError, match="must reach 1 replicas"):
                out.send(dead_letters)
        out.send([])
    assert [fields[b"data"] for _, fields in redis_client.xrange(key)] == [b"a", b"b", b"c"]
    assert redis_client.xinfo_groups(key) == []


def test_replicas_have_what_counts_as_written(private_redis, monkeypatch):
    """Also if the connection is lost between the answer and the wait for them."""
    master, replica = private_redis("--repl-diskless-sync-delay", "0"), private_redis()
    relay = Relay(master.port)
    with master.client() as client, replica.client() as other, listening(relay.serve) as host:
        other.replicaof("127.0.0.1", master.port)
        until = time.monotonic() + 100
        while (client.info("replication").get("slave0") or {}).get("state") != "online" and time.monotonic() < until:
            time.sleep(0.05)
        with sink("r", "&replicas=1", host) as out:
            out.write([sample_release(0)])
            assert other.xlen("r") == 1
            with replica.frozen(), monkeypatch.context() as patch:
                patch.setattr("fcstream.connectors.redis.sink._WAIT_S", 0.3)
                for call in (lambda: out.write([sample_release(1)]), lambda: out.write([sample_release(1)])):
                    relay.cuts_added = True
                    with pytest.raises(SinkError, match="must reach 1 replicas"):
                        call()
            out.write([sample_release(1)])
        with sink("l", "&replicas=1", host) as out:
            with replica.frozen(), monkeypatch.context() as patch:
                patch.setattr("fcstream.connectors.redis.sink._WAIT_S", 0.3)
                relay.cuts_added = True
                with pytest.raises(SinkError, match="must reach 1 replicas"):
                    out.send([b"a", b"b"])
                client.client_kill_filter(_type="normal", skipme=True)
                with pytest.raises(SinkError, match="must reach 1 replicas"):
                    out.send([b"a", b"b"])
            out.send([b"a", b"b"])
        assert other.xrevrange("r")[0][0] == b"%d-0" % sample_release(1).window_close_ms
        assert other.xlen("l") == client.xlen("l")


def test_a_demoted_master_is_left(private_redis):
    """Its name leads to the new one, its connections do not."""
    old, new = private_redis(), private_redis()
    relay = Relay(old.port)
    with old.client() as client, new.client() as other, listening(relay.serve) as host:
        with sink("r", host=host) as out, source("s", host=host) as opened:
            out.write([sample_release(0)])
            opened.poll(1, 0.1)
            relay.port = new.port
            client.replicaof("127.0.0.1", 1)
            out.write([sample_release(1), sample_release(2)])
            out.send([b"letter"])
            opened.commit({"s": offset(b"5-0")})
        assert other.xlen("r") == 3
        assert other.hgetall("fcstream:s:positions") == {b"s": b"5-0"}


class Sized:
    """A release of any size."""

    stream = "s"

    def __init__(self, number, size):
        self.window_open_ms, self.window_close_ms, self._size = number * 1000, number * 1000 + 1000, size

    def to_bytes(self):
        return b"x" * self._size


def test_releases_are_added_together_or_not_at_all(private_redis):
    """A server that is nearly full has no room for a large one, but for the small one after it."""
    server, large, small, refused = private_redis(), Sized(1, 1_000_000), Sized(2, 10), 0
    with server.client() as client, sink("r", host=server.host, patience_s=1.0) as out:
        out.last()
        client.config_set("maxmemory-policy", "noeviction")
        for room in range(300_000, 4_000_000, 100_000):
            client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + room)
            with contextlib.suppress(SinkError):
                out.write([large, small])
            client.config_set("maxmemory", 0)
            refused += not client.xlen("r")
            assert client.xlen("r") in (0, 2)
            out.write([large, small])
            assert client.xlen("r") == 2
            client.delete("r")
    assert refused


def test_a_removed_release_is_taken_as_written(redis_client, key):
    """After a crash before it was noted, and a consumer that has removed it."""
    sent = [sample_release(i) for i in range(4)]
    with sink(key) as out:
        out.write(sent[:3])
        redis_client.xdel(key, redis_client.xrange(key)[-1][0])
        out.write(sent[2:3])
        assert redis_client.xlen(key) == 2
        redis_client.xtrim(key, maxlen=0, approximate=False)
        out.write(out.missing(sent[:3]))
        assert redis_client.xlen(key) == 0
        out.write(sent[3:])
        redis_client.xdel(key, redis_client.xrange(key)[-1][0])
        out.write(sent[1:2])  # something later was deleted
        assert redis_client.xlen(key) == 0


def test_a_stream_of_others_that_was_deleted_from_is_refused(redis_client, key):
    redis_client.xadd(key, {"data": CONTENT})
    redis_client.xdel(key, redis_client.xadd(key, {"data": CONTENT}))
    with sink(key) as out, pytest.raises(SinkError, match="a key of its own"):
        out.write([sample_release(1)])


def test_a_full_server_refuses(private_redis):
    server = private_redis("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    with sink("r", host=server.host) as out, pytest.raises(SinkError, match="refuses: O"):
        out.write([sample_release(1)])


def test_a_cut_connection_writes_once(private_redis):
    """Wherever it is cut: before the server has the releases, or before its answer is here."""
    server = private_redis()
    sent, places = [sample_release(i) for i in range(120)], random.Random(1)
    with cuttable(server) as proxy, sink("r", host=proxy.host, patience_s=30.0) as out:
        for i in range(0, 120, 3):
            proxy.cut_after(*[places.randrange(2000) for _ in range(1 + i % 2)])
            out.write(sent[i : i + 3])
        proxy.cut_after()
        assert proxy.cuts > 30
    with server.client() as client:
        assert [fields[b"data"] for _, fields in client.xrange("r")] == [release.to_bytes() for release in sent]


def test_throughput(redis_client, key, capsys):
    """Tells, and asserts nothing."""
    block = np.zeros(256, [("time", "<i8"), ("values", "<f8", 16)]).tobytes()
    for what, body, count in (("JSON d=4", b'{"ts_ms":1790000000000,"a":20.5,"b":49.1,"c":1,"d":2}', 200_000), (
        "blocks of 256, d=16", block, 2_000
    )):  # fmt: skip
        redis_client.delete(key)
        for _ in range(0, count, 1000):
            add(redis_client, key, [body] * 1000)
        with source(key) as opened:
            started, got = time.perf_counter(), 0
            while got < count:
                got += sum(len(chunk.bodies) for chunk in opened.poll(4096, 1.0))
            rate = count / (time.perf_counter() - started)
        with capsys.disabled():
            print(f"\n  Redis Streams, {what}: {rate:,.0f} messages/s")
