"""JetStream against real servers: the one of this machine, and private ones that are cut off, locked, restarted."""

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc

import numpy as np
import pytest
from support.helpers import service
from support.nats_server import HOST, NatsServer
from support.proxy import Proxy

from fcstream.connectors import is_live, open_live, open_sink
from fcstream.connectors.nats.connection import NatsLost
from fcstream.connectors.nats.reader import NatsReader
from fcstream.connectors.nats.sink import NatsSink
from fcstream.connectors.nats.source import NatsSource
from fcstream.connectors.urls import parse
from fcstream.errors import ConfigError, FcstreamError, SinkError, SourceError
from fcstream.releases.base import Release
from fcstream.testing import SinkContract, SourceContract, sample_release

SECRET = "s3cretWord"
CONTENT = b"sentinelContent"


def source(stream, options="", host=HOST, name="n", patience_s=5.0):
    address = parse(f"nats://{host}/{stream}?bucket={stream}{options}", "source.url")
    return contextlib.closing(NatsSource(address, name, patience_s))


def sink(stream, options="", host=HOST, patience_s=5.0):
    address = parse(f"nats://{host}/{stream}?subject={stream}{options}", "sink.url")
    return contextlib.closing(NatsSink(address, patience_s))


def drain(source, wanted):
    return SourceContract().drain(source, wanted)


def bodies(rows):
    return [body for *_, body in rows]


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


class TestNatsSink(SinkContract):
    @pytest.fixture(autouse=True)
    def place(self, nats_server, nats_stream):
        self.server, self.stream = nats_server, nats_stream

    def make(self, tmp_path):
        return NatsSink(parse(f"nats://{HOST}/{self.stream}?subject={self.stream}", "sink.url"), 5.0)

    def read(self, tmp_path):
        return [Release.from_bytes(body) for body in self.server.held(self.stream)]


class Private(NatsServer):
    """A server of a test's own, which may be killed and keeps what it has."""

    def __init__(self, folder, settings, **options):
        with socket.create_server(("127.0.0.1", 0)) as place:
            self.port = place.getsockname()[1]
        super().__init__(f"127.0.0.1:{self.port}", **options)
        self._folder = folder
        self._file = folder / f"{self.port}.conf"
        self._file.write_text(settings)
        self._process = None

    def start(self):
        place = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder / str(self.port))]
        command = [shutil.which("nats-server") or "/usr/sbin/nats-server", "-c", str(self._file), *place]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            time.sleep(0.05)
        raise TimeoutError("it does not start")

    def set(self, settings):
        """For the next start."""
        self._file.write_text(settings)

    def signal(self, which):
        self._process.send_signal(which)
        if which == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # it goes on for a moment

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def private(nats_server, tmp_path):
    """Makes private servers."""
    made = []

    def make(settings="", **options):
        made.append(Private(tmp_path, settings, **options))
        return service("a private nats-server", made[-1].start)

    yield make
    for one in made:
        one.stop()


def wait_until(condition):
    until = time.monotonic() + 60
    while not (held := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    return held


def cuttable():
    """A proxy to the server of this machine."""
    return contextlib.closing(Proxy(int(HOST.partition(":")[2])))


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


def test_a_cut_connection_is_mended(nats_server, nats_stream):
    """In the middle of batches: nothing is lost, nothing comes twice."""
    count, found, places = 30_000, [], random.Random(1)
    nats_server.add(nats_stream, [b"%d" % i for i in range(count)])
    with cuttable() as proxy, source(nats_stream, host=proxy.host, patience_s=30.0) as opened:
        until = time.monotonic() + 100
        for turn in itertools.count():
            if turn % 3 == 0:
                proxy.cut_after(places.randrange(60_000), *[places.randrange(3000) for _ in range(turn % 2)])
            for chunk in opened.poll(500, 0.1):
                found += chunk.bodies
                opened.commit({nats_stream: int(chunk.offsets[-1])})
            if len(found) >= count or time.monotonic() > until:
                break
        assert proxy.cuts > 20
    assert found == [b"%d" % i for i in range(count)]


def test_a_cut_connection_writes_once(nats_server, nats_stream):
    """Wherever it is cut: before the server has a release, or before its answer is here, or while it is looked for."""
    sent, places = [sample_release(i) for i in range(120)], random.Random(1)
    with cuttable() as proxy, sink(nats_stream, host=proxy.host, patience_s=30.0) as out:
        for i in range(0, 120, 5):
            proxy.cut_after(places.randrange(3000), *[places.randrange(10_000) for _ in range(i % 3)])
            out.write(sent[i : i + 5])
        proxy.cut_after()
        assert proxy.cuts > 30
    assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]


def test_a_restarted_server(private):
    server = private()
    server.js("add_stream", name="s", subjects=["s"])
    server.add("s", [b"%d" % i for i in range(10)])
    with source("s", host=server.host, patience_s=60.0) as opened, sink("s", host=server.host) as out:
        first = drain(opened, 10)
        opened.commit({"s": 5})
        found = []
        reader = threading.Thread(target=lambda: found.extend(opened.poll(10, 60.0)))
        reader.start()
        time.sleep(0.3)
        server.stop()
        time.sleep(0.5)
        server.start()
        server.add("s", [b"after"])
        reader.join()
        assert [chunk.bodies for chunk in found] == [[b"after"]]
        assert not opened.behind(opened.ends())
        out.write([sample_release(1)])
        assert out.last() == sample_release(1)
    with source("s", host=server.host) as opened:
        assert drain(opened, 8)[:6] == first[4:]


def test_patience_ends(private):
    server = private()
    server.js("add_stream", name="s", subjects=["s"])
    with source("s", "&patience=0.5", host=server.host) as opened, sink("s", "&patience=0.5", server.host) as out:
        server.stop()
        assert wait_until(lambda: opened._wire.client.is_closed and out._wire.client.is_closed)
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
        assert opened.poll(1, 0.1) == []
        opened.commit({"s": 5})
        out.write([sample_release(1)])
    for closed in (opened.ends, out.last):
        with pytest.raises(FcstreamError, match="was closed"):
            closed()
    opened.close()


def test_an_address_where_nobody_answers_is_reported_at_once():
    started = time.monotonic()
    for make in (source, sink):
        with pytest.raises(FcstreamError, match="cannot be reached"), make("s", host="127.0.0.1:1", patience_s=60.0):
            pass
    assert time.monotonic() - started < 30


def test_the_next_host_is_tried(nats_server, nats_stream):
    with source(nats_stream, host=f"127.0.0.1:1,{HOST}") as opened:
        assert opened.poll(1, 0.1) == []


def test_what_must_exist(nats_server, nats_stream):
    for make, match in (
        (lambda: source("fcstream_none"), "refuses: stream not found"),
        (lambda: sink("fcstream_none"), "refuses"),
        (lambda: source(nats_stream, "&subject=elsewhere"), None),
    ):
        with pytest.raises(FcstreamError, match=match), make() as opened:
            opened.poll(1, 0.1)
    with pytest.raises(SinkError, match="add it to the stream"):
        open_sink(f"nats://{HOST}/fcstream_none?subject={nats_stream}")
    with pytest.raises(ConfigError, match="without wildcards"):
        open_sink(f"nats://{HOST}/{nats_stream}?subject={nats_stream}.*")
    with pytest.raises(ConfigError, match="must be nats://host/STREAM"):
        open_live(f"nats://{HOST}/a.b", "n")


LOCKED = """
accounts: {
  A: { jetstream: enabled, users: [
    {user: all, password: "SECRET"}
    {user: reader, password: "SECRET", permissions: {publish: {deny: "$JS.API.CONSUMER.>"}}}
    {user: writer, password: "SECRET", permissions: {publish: {deny: "s"}}}
  ] }
}
""".replace("SECRET", SECRET)


def everything(error):
    return "".join(traceback.format_exception(error)) + repr(error.__cause__)


def test_no_secret_and_no_content_in_any_error(private, caplog, monkeypatch, tmp_path):
    caplog.set_level(0)
    server = private(LOCKED, user="all", password=SECRET)
    server.js("add_stream", name="s", subjects=["s"])
    server.add("s", [CONTENT])
    wrong, login = f"{SECRET}Wrong", f"all:{SECRET}"
    monkeypatch.setenv("FCSTREAM_TEST_PASSWORD", wrong)
    (tmp_path / "creds").write_text(f"nothing {SECRET}")
    seen = []
    for url in (
        f"nats://all:{wrong}@{server.host}/s?subject=s",
        f"nats://all:${{FCSTREAM_TEST_PASSWORD}}@{server.host}/s?subject=s",
        f"nats://{server.host}/s?subject=s&token={SECRET}",
        f"nats://{SECRET}@{server.host}/s?subject=s",
        f"nats://{login}@{server.host}/s?subject=s&unknown=1",
        f"nats://{login}@{server.host}/?subject=s",
        f"nats://{login}@{server.host}/none?subject=none",
        f"nats://{login}@127.0.0.1:1/s?subject=s",
        f"nats://{login}@{server.host}/s?subject=s&tls=yes",
        f"nats://{login}@{server.host}/s?subject=s&ca=/none/{SECRET}".replace(f"/{SECRET}", ""),
        f"nats://{login}@{server.host}/s?subject=s&patience=x",
        f"nats://{SECRET}@{server.host}/",
        f"nats://{login}@{server.host}/s?subject=s&creds=/none",
        f"nats://{server.host}/s?subject=s&creds={tmp_path}/creds",
    ):
        for open_one in (lambda url: open_live(url, "n"), open_sink):
            with pytest.raises(FcstreamError) as caught:
                open_one(url)
            seen.append(everything(caught.value))
    assert "refuses: authorization" in seen[0]
    assert "***@" in seen[0]
    with contextlib.closing(open_sink(f"nats://{login}@{server.host}/s?subject=s")) as out:
        with pytest.raises(SinkError, match="holds something else") as caught:
            out.last()
        seen.append(everything(caught.value))
    monkeypatch.setattr("fcstream.connectors.nats.connection.REQUEST_S", 3.0)  # what is forbidden is never answered
    reader = open_live(f"nats://reader:{SECRET}@{server.host}/s?patience=1", "n")
    writer = open_sink(f"nats://writer:{SECRET}@{server.host}/s?subject=s&patience=1")
    with contextlib.closing(reader), contextlib.closing(writer):
        for call in (lambda: reader.poll(1, 0.1), lambda: writer.write([sample_release(1)])):
            with pytest.raises(FcstreamError, match="refuses: permissions") as caught:
                call()
            seen.append(everything(caught.value))
    for text in [*seen, caplog.text]:
        assert SECRET not in text
        assert CONTENT.decode() not in text


def token(signer, subject, **claims):
    """A signed JSON Web Token, as `nsc` makes them."""

    def part(content):
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    claim = {"jti": "x", "iat": 1, "iss": signer.public_key.decode(), "sub": subject.public_key.decode()}
    head, body = {"typ": "JWT", "alg": "ed25519-nkey"}, {**claim, "name": "x", "nats": {**claims, "version": 2}}
    text = b".".join(part(json.dumps(each).encode()) for each in (head, body))
    return (text + b"." + part(signer.sign(text))).decode()


def test_a_file_of_credentials(private, tmp_path):
    import nkeys

    kinds = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    operator, system, account, user = (
        nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), kind))) for kind in kinds
    )
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    tokens = {
        system: token(operator, system, type="account", limits=limits),
        account: token(operator, account, type="account", limits=limits | storage),
    }
    preload = ", ".join(f"{key.public_key.decode()}: {text}" for key, text in tokens.items())
    creds = tmp_path / "user.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token(account, user, type='user', subs=-1, data=-1, payload=-1)}\n"
        f"------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n"
        "------END USER NKEY SEED------\n"
    )
    server = private(
        f"operator: {token(operator, operator, type='operator')}\nresolver: MEMORY\n"
        f"system_account: {system.public_key.decode()}\nresolver_preload: {{ {preload} }}\n",
        user_credentials=str(creds),
    )
    server.js("add_stream", name="s", subjects=["s"])
    server.add("s", [b"1"])
    with source("s", f"&creds={creds}", host=server.host) as opened:
        assert bodies(drain(opened, 1)) == [b"1"]
    with pytest.raises(SourceError, match="refuses: authorization"), source("s", host=server.host):
        pass
    for torn in (creds.read_text().replace("BEGIN USER", ""), creds.read_text().replace("\nSU", f"\n{SECRET}"), ""):
        creds.write_text(torn)
        with pytest.raises(SourceError) as caught, source("s", f"&creds={creds}", host=server.host):
            pass
        assert SECRET not in everything(caught.value)
        assert user.seed.decode() not in everything(caught.value)


def test_tls(private, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    cert, key = f"{tmp_path}/cert.pem", f"{tmp_path}/key.pem"
    import ssl

    context = ssl.create_default_context(cafile=cert)
    context.load_cert_chain(cert, key)
    server = private(
        f'tls: {{cert_file: "{cert}", key_file: "{key}", ca_file: "{cert}", verify: true}}',
        tls=context,
        tls_hostname="localhost",
    )
    server.js("add_stream", name="s", subjects=["s"])
    whole = f"nats://localhost:{server.port}/s?subject=s&ca={cert}&cert={cert}&key={key}&patience=1"
    with contextlib.closing(open_sink(whole)) as out:
        out.write([sample_release(1)])
    with contextlib.closing(open_live(whole, "n")) as opened:
        assert bodies(drain(opened, 1)) == [sample_release(1).to_bytes()]
    for url in (
        whole.replace(f"ca={cert}&", ""),  # nobody vouches for it
        whole.replace("localhost", "127.0.0.1"),  # another's certificate
        whole.replace(f"cert={cert}&key={key}", ""),  # the server wants one of ours
        whole.replace("cert.pem", "none.pem"),
    ):
        with pytest.raises(FcstreamError):
            open_live(url, "n")


def test_a_server_that_does_not_ask_for_tls_gets_no_password():
    heard = b""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]

        def listen():
            nonlocal heard
            door.settimeout(60)
            with door.accept()[0] as peer:
                peer.settimeout(60)
                info = {"server_id": "x", "version": "2.9.10", "headers": True, "max_payload": 1 << 20}
                info["auth_required"] = True
                peer.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
                with contextlib.suppress(OSError):
                    while data := peer.recv(4096):
                        heard += data

        listener = threading.Thread(target=listen)
        listener.start()
        with pytest.raises(SourceError, match="SecureConnRequiredError"):
            open_live(f"nats://all:{SECRET}@127.0.0.1:{port}/s?tls=yes", "n")
        listener.join()
    assert SECRET.encode() not in heard


def test_a_missing_client_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "nats"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ConfigError, match=r"source.url: needs the package nats-py: .*pip install .*\[nats\]'"):
        open_live("nats://localhost/s", "n")


def test_addresses():
    assert is_live("nats://x/y")
    with pytest.raises(ConfigError, match="unknown option 'group'"):
        open_sink("nats://localhost/s?subject=s&group=x")
    with pytest.raises(ConfigError, match="must name `subject`"):
        open_sink("nats://localhost/s")


def test_a_release_written_again_is_there_once(nats_server, nats_stream):
    sent = [sample_release(i) for i in range(6)]
    with sink(nats_stream) as out:
        assert out.last() is None
        assert out.missing(sent) == sent
        out.write(sent[:3])
        out.write(sent[1:5])  # as after a crash between the write and its acknowledgment
    with sink(nats_stream) as out:
        assert out.missing(sent) == sent[5:]
        assert out.missing([]) == []
        out.write(sent)
        assert out.last() == sent[-1]
    assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]
    assert nats_server.js("get_msg", nats_stream, 2).headers["Nats-Msg-Id"] == f"sample:60000@{nats_stream}"


def test_what_is_there_is_recognized_when_ids_are_forgotten(nats_server, nats_stream):
    nats_server.js("update_stream", name=nats_stream, subjects=[nats_stream, f"{nats_stream}.*"], duplicate_window=0.1)
    sent = [sample_release(i) for i in range(6)]
    with sink(nats_stream) as out:
        out.write(sent[:4])
        nats_server.add(f"{nats_stream}.other", [b"other"] * 10)
        time.sleep(0.3)
        assert out.missing(sent) == sent[4:]
        out.write(out.missing(sent))
        assert out.missing(sent) == []


def test_another_release_of_the_same_window_is_no_repetition(nats_server, nats_stream):
    one, other = sample_release(1), sample_release(1)
    object.__setattr__(other, "count", 7)
    with sink(nats_stream) as out:
        out.write([one])
        with pytest.raises(SinkError, match="holds another release of window 60000"):
            out.write([other])
    assert nats_server.held(nats_stream) == [one.to_bytes()]


def test_a_stream_that_is_full_refuses(nats_server, nats_stream):
    nats_server.js("update_stream", name=nats_stream, subjects=[nats_stream], max_msgs=1, discard="new")
    with sink(nats_stream) as out:
        out.write([sample_release(1)])
        with pytest.raises(SinkError, match="refuses: maximum messages exceeded"):
            out.write([sample_release(2)])


def test_a_surprise_of_the_library_is_a_loss(nats_server, nats_stream):
    async def surprise():
        raise RecursionError(SECRET)

    with sink(nats_stream, patience_s=0.2) as out:
        with pytest.raises(SinkError, match="cannot be reached: RecursionError") as caught:
            out._wire.run(surprise)
        assert SECRET not in everything(caught.value)
        assert out.last() is None


@contextlib.contextmanager
def answering(subject, answer):
    """A subscriber that answers whatever is published, before the server does."""
    import nats

    ready, stop = threading.Event(), threading.Event()

    async def serve():
        client = await nats.connect(f"nats://{HOST}")

        async def reply(message):
            await message.respond(answer)

        await client.subscribe(subject, cb=reply)
        await client.flush()
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.02)
        await client.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("answer", [b"+ACK", b"", b'{"ok":1}', b"[]", b'{"stream":"other","seq":1}', b"[" * 99_999])
def test_a_subscriber_that_answers(nats_server, nats_stream, answer):
    """The stream is gone: nobody else answers."""
    sent = [sample_release(i) for i in range(5)]
    with sink(nats_stream, patience_s=30.0) as out, answering(nats_stream, answer):
        out.write(sent)
        assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]
        nats_server.js("delete_stream", nats_stream)
        with contextlib.closing(out), pytest.raises(SinkError, match="a subscriber of the subject answers"):
            out._wire.run(lambda: out._post(b"x"), 0.1)


def forget_at_once(server, stream, **options):
    """From now on the server forgets ids after a tenth of a second."""
    server.js("update_stream", name=stream, subjects=[stream, f"{stream}.*"], duplicate_window=0.1, **options)


def test_a_group_that_got_stuck_goes_on_where_it_was(nats_server, nats_stream):
    small, big = sample_release(1), sample_release(2)
    object.__setattr__(big, "value", [0.125] * 400)
    forget_at_once(nats_server, nats_stream, max_msg_size=1500)
    with sink(nats_stream) as out:
        for _ in range(3):
            with pytest.raises(SinkError, match="refuses: message size exceeds"):
                out.write([small, big])
            with pytest.raises(SinkError, match="refuses: message size exceeds"):
                out.send([b"letter", bytes(2000)])
            time.sleep(0.3)
        assert nats_server.held(nats_stream) == [small.to_bytes(), b"letter"]
        forget_at_once(nats_server, nats_stream, max_msg_size=-1)
        out.write([small, big])
        out.send([b"letter", bytes(2000)])
    assert nats_server.held(nats_stream) == [small.to_bytes(), b"letter", big.to_bytes(), bytes(2000)]


def test_an_answer_that_came_too_late(nats_server, nats_stream, monkeypatch):
    forget_at_once(nats_server, nats_stream)
    sent = [sample_release(i) for i in range(3)]
    post, lost = NatsSink._post, []

    async def lose(self, body, *arguments):
        ack = await post(self, body, *arguments)
        if body == sent[1].to_bytes() and not lost:
            lost.append(body)
            await asyncio.sleep(0.3)
            raise NatsLost("no answer")
        return ack

    monkeypatch.setattr(NatsSink, "_post", lose)
    with sink(nats_stream) as out:
        out.write(sent)
    assert lost
    assert nats_server.held(nats_stream) == [release.to_bytes() for release in sent]


def test_silence_is_not_the_end(private, monkeypatch):
    """The server sleeps while it is asked what it holds, until it is asked whether that was all."""
    server, sent = private(), [sample_release(i) for i in range(3)]
    server.js("add_stream", name="s", subjects=["s"])
    first, last, opened = NatsReader.open, NatsSink._last, []

    async def sleep(*arguments):
        reader = await first(*arguments)
        if not opened:
            server.signal(signal.SIGSTOP)
        monkeypatch.setattr("fcstream.connectors.nats.sink.REQUEST_S", 60.0 if opened else 0.3)
        opened.append(reader)
        return reader

    async def wake(self):
        server.signal(signal.SIGCONT)
        return await last(self)

    monkeypatch.setattr(NatsSink, "_last", wake)
    with sink("s", host=server.host, patience_s=60.0) as out:
        out.write(sent)
        monkeypatch.setattr(NatsReader, "open", sleep)
        assert out.missing(sent) == []
    assert len(opened) == 1  # afterwards message by message was asked for


def take_one(server, stream):
    """As a worker that takes a message off a queue."""

    async def take(_, js):
        worker = await js.pull_subscribe(stream, "w", stream=stream)
        [message] = await worker.fetch(1)
        await message.ack_sync()
        await js.delete_consumer(stream, "w")

    server.ask(take)


@pytest.fixture
def queue(nats_server, nats_stream):
    nats_server.js("delete_stream", nats_stream)
    nats_server.js("add_stream", name=nats_stream, subjects=[nats_stream, f"{nats_stream}.*"], retention="workqueue")
    return nats_stream


def test_a_repetition_of_what_a_worker_took(nats_server, queue):
    with sink(queue) as out:
        out.write([sample_release(1)])
        take_one(nats_server, queue)
        out.write([sample_release(1)])
        assert out.last() is None
    assert nats_server.js("stream_info", queue).state.messages == 0


def test_a_work_queue_with_a_backlog(nats_server, queue):
    sent = [sample_release(i) for i in range(4)]
    with sink(queue) as out:
        out.write(sent[:3])
        take_one(nats_server, queue)
        nats_server.add(f"{queue}.other", [b"other"] * 3)
        assert out.missing(sent) == [sent[0], sent[3]]
        take_one(nats_server, queue)
    assert nats_server.js("stream_info", queue).state.messages == 4
    assert nats_server.js("consumers_info", queue) == []


@pytest.mark.parametrize("policy", ["workqueue", "interest"])
def test_a_stream_that_drops_what_was_read_is_no_source(nats_server, nats_stream, policy):
    nats_server.js("delete_stream", nats_stream)
    nats_server.js("add_stream", name=nats_stream, subjects=[nats_stream], retention=policy)
    with (
        pytest.raises(SourceError, match=f"must have the retention policy 'limits', not '{policy}'"),
        source(nats_stream),
    ):
        pass


def test_other_subjects_do_not_hide_what_is_there(nats_server, nats_stream, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.nats.sink._LOOK_BACK", 10)
    forget_at_once(nats_server, nats_stream)
    sent, looks = [sample_release(i) for i in range(3)], []
    among = NatsSink._find_between

    async def look(self, wanted, start, end):
        looks.append((start, end))
        return await among(self, wanted, start, end)

    monkeypatch.setattr(NatsSink, "_find_between", look)
    with sink(nats_stream) as out:
        out.write(sent[:1])
        nats_server.add(f"{nats_stream}.other", [b"other"] * 100)
        out.write(sent[1:2])
        assert out.missing(sent[:2]) == []
        assert looks == [(93, 103), (73, 93), (33, 73), (1, 33)]
        assert out.missing(sent) == sent[2:]
        looks.clear()
        late = sample_release(int(time.time() / 60) + 1)
        monkeypatch.setattr("fcstream.connectors.nats.sink._EARLY_MS", 0)
        assert out.missing([late]) == [late]
        assert looks == [(93, 103)]  # it cannot have been there before its window closed


def test_memory_of_missing_is_bounded(nats_server, nats_stream, monkeypatch):
    monkeypatch.setattr("fcstream.connectors.nats.reader.POLL_BYTES", 1 << 20)
    nats_server.add(nats_stream, [bytes([i]) * 900_000 for i in range(60)])
    with sink(nats_stream) as out:
        out.write([sample_release(1)])
        tracemalloc.start()
        try:
            assert out.missing([sample_release(1), sample_release(2)]) == [sample_release(2)]
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()


def test_two_subjects_of_a_stream_take_the_same_release(nats_server, nats_stream):
    for subject in ("a", "b", "a"):
        address = parse(f"nats://{HOST}/{nats_stream}?subject={nats_stream}.{subject}", "sink.url")
        with contextlib.closing(NatsSink(address, 5.0)) as out:
            out.write([sample_release(1)])
            assert out.last() == sample_release(1)
    assert len(nats_server.held(nats_stream)) == 2


def test_a_message_longer_than_a_poll(private, monkeypatch):
    """As it may be where a server took longer ones once."""
    server = private()
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


def test_names_that_cannot_work():
    for url, match in (
        (f"nats://{HOST}/s?bucket=a.b", "letters, digits"),
        (f"nats://{HOST}/s?bucket={'b' * 253}", "at most 252 bytes as a `bucket`, got 253"),
        (f"nats://{HOST}/s?group={'g' * 2001}", "at most 2000 bytes as the key of stream and `group`, got 2003"),
        (f"nats://{HOST}/s?subject={'g' * 2001}", "at most 2000 bytes as a `subject`, got 2001"),
        (f"nats://{HOST}/{'s' * 256}", "at most 255 bytes as a stream's name, got 256"),
    ):
        with pytest.raises(ConfigError, match=match):
            open_live(url, "n")
    with pytest.raises(ConfigError, match="at most 2000 bytes as a `subject`"):
        open_sink(f"nats://{HOST}/s?subject={'g' * 2001}")


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


def test_close_is_quick_when_the_server_is_silent(private, monkeypatch):
    for name in ("sink", "reader", "connection"):
        monkeypatch.setattr(f"fcstream.connectors.nats.{name}.REQUEST_S", 60.0)
    server = private()
    server.js("add_stream", name="s", subjects=["s"])
    with source("s", host=server.host) as opened:
        opened.poll(1, 0.1)
        server.signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            opened.close()
            assert time.monotonic() - started < 30
        finally:
            server.signal(signal.SIGCONT)


def test_close_does_not_connect_again(nats_server, nats_stream):
    proxy = Proxy(int(HOST.partition(":")[2]))
    with contextlib.closing(proxy), source(nats_stream, host=proxy.host) as opened:
        opened.poll(1, 0.1)
        proxy.cut()
        assert wait_until(lambda: opened._wire.client.is_closed)
        opened.close()
        time.sleep(0.1)
        assert proxy._pairs == []


def test_a_reader_that_is_broken_stays_so(nats_server, nats_stream):
    with source(nats_stream) as opened:
        opened.poll(1, 0.1)

        async def take():
            asyncio.get_running_loop().call_later(0.05, breaks)
            return await opened._reader.take(1, 0.1)

        def breaks():
            opened._reader.is_broken = True  # no news with it: the wait runs out

        with pytest.raises(NatsLost):
            opened._wire.once(take)


def test_throughput(nats_server, nats_stream, capsys):
    """Tells, and asserts nothing."""
    block = np.zeros(256, [("time", "<i8"), ("values", "<f8", 16)]).tobytes()
    for what, body, count in (
        ("JSON d=4", b'{"ts_ms":1790000000000,"a":20.5,"b":49.1,"c":1,"d":2}', 200_000),
        ("blocks of 256, d=16", block, 2_000),
    ):
        nats_server.js("purge_stream", nats_stream)
        nats_server.add(nats_stream, [body] * count)
        with source(nats_stream) as opened:
            started, got = time.perf_counter(), 0
            while got < count:
                got += sum(len(chunk.bodies) for chunk in opened.poll(4096, 1.0))
            rate = count / (time.perf_counter() - started)
        with capsys.disabled():
            print(f"\n  JetStream, {what}: {rate:,.0f} messages/s")


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
