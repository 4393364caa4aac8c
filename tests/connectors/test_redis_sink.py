"""Releases that are written to Redis Streams: once, all of a group or none, and to replicas."""

import contextlib
import random
import time

import pytest
from support.redis_server import HOST, Relay, cuttable, listening, sink
from support.sources import CONTENT

from fcstream.connectors.redis.sink import RedisSink
from fcstream.connectors.urls import parse
from fcstream.errors import SinkError
from fcstream.testing import SinkContract, sample_release


class TestRedisSink(SinkContract):
    @pytest.fixture(autouse=True)
    def place(self, redis_client, redis_key):
        self.server, self.key = redis_client, redis_key

    def make(self, tmp_path):
        return RedisSink(parse(f"redis://{HOST}/0?stream={self.key}", "sink.url"), 5.0)

    def read(self, tmp_path):
        from fcstream.releases.base import Release

        return [Release.from_bytes(fields[b"data"]) for _, fields in self.server.xrange(self.key)]


def test_a_release_written_again_is_there_once(redis_client, redis_key):
    sent = [sample_release(i) for i in range(6)]
    with sink(redis_key) as out:
        assert out.last() is None
        assert out.missing(sent) == sent
        out.write(sent[:3])
        out.write(sent[1:5])  # as after a crash between the write and its acknowledgment
    with sink(redis_key) as out:
        assert out.missing(sent) == sent[5:]
        assert out.missing([]) == []
        out.write(sent)
        out.write([])
        assert out.last() == sent[-1]
    entries = redis_client.xrange(redis_key)
    assert [entry_id for entry_id, _ in entries] == [b"%d-0" % release.window_close_ms for release in sent]
    assert [fields[b"data"] for _, fields in entries] == [release.to_bytes() for release in sent]
    assert entries[1][1] | {b"data": b""} == {b"data": b"", b"stream": b"sample", b"window": b"60000"}


def test_a_trimmed_stream_of_releases_goes_on(redis_client, redis_key):
    sent = [sample_release(i) for i in range(6)]
    with sink(redis_key) as out:
        out.write(sent[:4])
        redis_client.xtrim(redis_key, maxlen=1, approximate=False)
        out.write(sent[1:5])
        assert len(redis_client.xrange(redis_key)) == 2
        redis_client.xtrim(redis_key, maxlen=0, approximate=False)
        with pytest.raises(SinkError, match="a key of its own"):  # whose it was cannot be told any more
            out.write(sent[3:4])
        out.write(sent[4:5])  # the last that ever was
        out.write(sent[3:5])  # so those before it were too
        assert redis_client.xlen(redis_key) == 0
        out.write(sent[5:])
        out.write(sent)
        assert out.missing(sent) == sent[:5]


def test_a_sink_refuses_a_stream_of_others(redis_client, redis_key):
    redis_client.xadd(redis_key, {"data": CONTENT})
    with sink(redis_key) as out:
        with pytest.raises(SinkError, match="a key of its own"):
            out.write([sample_release(1)])
        with pytest.raises(SinkError, match="holds something else than releases"):
            out.last()
        redis_client.delete(redis_key)
        out.write([sample_release(1)])
        other = sample_release(1)
        object.__setattr__(other, "stream", "other")
        with pytest.raises(SinkError, match="a key of its own") as caught:
            out.write([sample_release(2), other])
        assert CONTENT.decode() not in str(caught.value)
        assert redis_client.xlen(redis_key) == 2


def test_replicas_that_are_not_there(redis_client, redis_key, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.redis.sink._WAIT_S", 0.1)
    with sink(redis_key, "&replicas=1") as out, pytest.raises(SinkError, match="must reach 1 replicas"):
        out.write([sample_release(1)])


def test_dead_letters_are_written_once_although_replicas_are_missing(redis_client, redis_key, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.redis.sink._WAIT_S", 0.05)
    with sink(redis_key, "&replicas=1") as out:
        for dead_letters in ([b"a", b"b"], [b"a", b"b"], [b"a", b"b"], [b"c"]):
            with pytest.raises(SinkError, match="must reach 1 replicas"):
                out.send(dead_letters)
        out.send([])
    assert [fields[b"data"] for _, fields in redis_client.xrange(redis_key)] == [b"a", b"b", b"c"]
    assert redis_client.xinfo_groups(redis_key) == []


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


class Sized:
    """A release of any size."""

    stream, place = "s", None

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


def test_a_removed_release_is_taken_as_written(redis_client, redis_key):
    """After a crash before it was noted, and a consumer that has removed it."""
    sent = [sample_release(i) for i in range(4)]
    with sink(redis_key) as out:
        out.write(sent[:3])
        redis_client.xdel(redis_key, redis_client.xrange(redis_key)[-1][0])
        out.write(sent[2:3])
        assert redis_client.xlen(redis_key) == 2
        redis_client.xtrim(redis_key, maxlen=0, approximate=False)
        out.write(out.missing(sent[:3]))
        assert redis_client.xlen(redis_key) == 0
        out.write(sent[3:])
        redis_client.xdel(redis_key, redis_client.xrange(redis_key)[-1][0])
        out.write(sent[1:2])  # something later was deleted
        assert redis_client.xlen(redis_key) == 0


def test_a_stream_of_others_that_was_deleted_from_is_refused(redis_client, redis_key):
    redis_client.xadd(redis_key, {"data": CONTENT})
    redis_client.xdel(redis_key, redis_client.xadd(redis_key, {"data": CONTENT}))
    with sink(redis_key) as out, pytest.raises(SinkError, match="a key of its own"):
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
