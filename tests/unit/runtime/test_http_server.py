"""The HTTP server against peers that mean it harm: nobody can hold its connections, its memory or its descriptors."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from support.helpers import free_port
from support.status import ask, watched

from fcstream.errors import ConfigError
from fcstream.runtime.http_server import Limits, Server
from fcstream.service.status import StatusServer

SLOW = Limits(connections=20, per_peer=20, body_bytes=2**20, held_bytes=2**22, head_s=120, body_s=120, answer_s=120)
QUICK = replace(SLOW, head_s=1, body_s=1, answer_s=1)


async def echo(scope, receive, send):
    """The size of the body; as many bytes as the path says."""
    assert scope["path"] != "/crash"
    size = int(scope["path"][1:] or 0)
    body = (await receive())["body"]
    headers = [(b"content-length", str(size or len(str(len(body)))).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * size if size else str(len(body)).encode()})


@contextlib.contextmanager
def serving(limits=SLOW, app=echo):
    server = Server(app, "127.0.0.1", 0, limits, setting="service.listen", extra="service")
    server.start()
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def peers(port, count, first=b""):
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            with contextlib.suppress(OSError):
                one.sendall(first)
            found.append(one)
        yield found


@contextlib.contextmanager
def dripping(port, count):
    """Connections that send a byte a second each; gives up after five minutes."""
    crowd, stop, end = [], threading.Event(), time.monotonic() + 300

    def drip():
        while not stop.wait(1):
            for one in list(crowd):
                with contextlib.suppress(OSError):
                    one.send(b"T")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        while len(crowd) < count and time.monotonic() < end:
            with contextlib.suppress(OSError):
                crowd.append(socket.create_connection(("127.0.0.1", port), 2))
                crowd[-1].send(b"GET /live HT")
        yield crowd
    finally:
        stop.set()
        thread.join()
        for one in crowd:
            one.close()


def talk(port, data, seconds=60):
    """All that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", port), seconds) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(data)
        return heard(one)


def heard(one):
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := one.recv(2**16):
            found += part
    return found


def post(size, path="/"):
    return b"POST %s HTTP/1.1\r\nHost: [::]\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (
        path.encode(),
        size,
    )


def until(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


OWNER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from support.status import watched
from fcstream.service.status import StatusServer
status = StatusServer([watched("s")])
status.listen(sys.argv[1])
print("up", flush=True)
for line in sys.stdin:
    try:
        files = [open("/dev/null") for _ in range(20)]
        print("opened", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
status.close()
"""


@pytest.mark.slow
def test_dripping_connections_take_no_descriptor_from_the_service_and_health_is_answered():
    """Issue: 1,018 connections that sent a byte now and then held every descriptor of the process."""
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OWNER, f"127.0.0.1:{port}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=environment, **pipes) as owner, contextlib.ExitStack() as stack:
        stack.callback(owner.kill)
        assert owner.stdout.readline() == "up\n"
        crowd = stack.enter_context(dripping(port, 1018))
        for _ in range(3):
            owner.stdin.write("open\n")
            assert owner.stdout.readline() == "opened\n"
            assert ask(port, "/live") == (200, "alive\n")
        assert len(crowd) > 500
        owner.stdin.close()
        assert owner.wait(60) == 0


def test_beyond_the_limit_the_one_that_waited_longest_goes():
    with serving() as server, peers(server.port, 30) as crowd:
        until(lambda: server.connections == 20)
        assert heard(crowd[0]) == b""  # closed, before any deadline
        crowd[-1].sendall(b"GET / HTTP/1.1\r\nHost: [::]\r\nConnection: close\r\n\r\n")
        assert heard(crowd[-1]).startswith(b"HTTP/1.1 200")


def test_one_peer_has_only_its_share():
    limits = Limits(connections=20, per_peer=5, head_s=120)
    with serving(limits) as server, peers(server.port, 12) as crowd:
        until(lambda: server.connections == 5)
        with socket.create_connection(("127.0.0.1", server.port), 60, source_address=("127.0.0.2", 0)) as other:
            until(lambda: server.connections == 6)
            crowd[0].close()
            other.sendall(b"GET / HTTP/1.1\r\nHost: [::]\r\nConnection: close\r\n\r\n")
            assert heard(other).startswith(b"HTTP/1.1 200")


def test_a_peer_of_ipv6_is_a_network_of_64_bits():
    from fcstream.runtime.http_connections import _network

    assert _network("2001:db8::1") == _network("2001:db8::ffff:2") != _network("2001:db8:0:1::1")
    assert _network("::ffff:10.0.0.1") == _network("10.0.0.1") != _network("10.0.0.2")
    assert _network("fe80::1%eth0") == _network("fe80::2%eth0")


def test_who_finds_everybody_at_work_is_turned_away_at_once():
    release, at_work = threading.Event(), []

    async def slow(scope, receive, send):
        import asyncio

        at_work.append(scope)
        while not release.is_set():
            await asyncio.sleep(0.01)
        await echo(scope, receive, send)

    limits = Limits(connections=3, per_peer=3)
    with serving(limits, slow) as server, peers(server.port, 3, b"GET / HTTP/1.1\r\nHost: [::]\r\n\r\n"):
        until(lambda: len(at_work) == 3)
        assert talk(server.port, b"").startswith(b"HTTP/1.1 503")
        release.set()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nHost: [::]\r\n",
        post(100) + b"x",
        b"GET / HTTP/1.1\r\nHost: [::]\r\n\r\n",
    ],
    ids=["nothing", "a letter", "half a head", "half a body", "nothing after an answer"],
)
def test_no_byte_extends_a_deadline(first):
    drip = b"x" if b"POST" in first else b"X: y\r\n"
    with serving(QUICK) as server, peers(server.port, 1, first) as (one,):
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while server.connections or time.monotonic() - began < 0.5:
                assert time.monotonic() - began < 60
                if first[:2] != b"G":
                    one.send(drip if first else b"")
                time.sleep(0.1)
        until(lambda: server.connections == 0)


def test_a_slow_reader_is_left():
    limits = Limits(connections=20, per_peer=20, held_bytes=2**26, answer_s=1)
    with serving(limits) as server, peers(server.port, 3, b"GET /16000000 HTTP/1.1\r\nHost: [::]\r\n\r\n"):
        until(lambda: server.connections == 3)
        until(lambda: server.connections == 0)


def test_answers_that_nobody_reads_are_held_to_the_limit_only():
    limits = Limits(connections=20, per_peer=20, held_bytes=2**25, answer_s=120)
    with serving(limits) as server, peers(server.port, 10, b"GET /16000000 HTTP/1.1\r\nHost: [::]\r\n\r\n"):
        until(lambda: 0 < server.connections <= 3)
        assert ask(server.port, "/")[0] == 200


@pytest.mark.slow
def test_a_body_without_an_end_is_thrown_away_until_its_deadline():
    chunk = b"ffff\r\n" + b"x" * 65535 + b"\r\n"
    began = time.monotonic()
    with (
        serving(QUICK) as server,
        peers(server.port, 1, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: [::]\r\n\r\n") as (one,),
    ):
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 120:
                one.sendall(chunk)
        assert time.monotonic() - began < 60


def test_half_sent_bodies_are_held_to_the_limit_only():
    with serving() as server, peers(server.port, 15, post(2**20) + b"x" * (2**20 - 1)):
        until(lambda: 0 < server.connections <= 4)
        assert talk(server.port, post(2**20) + b"x" * 2**20).endswith(str(2**20).encode())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(2**20 + 1) + b"x" * (2**20 + 1), b"413"),
        (post(10**14), b""),
        (b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b""),
        (b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: [::]\r\nX: " + b"x" * 300_000, b"400"),
        (b"GET / HTTP/1.1\r\nHost: [::]\r\n" + b"X: y\r\n" * 50_000, b"400"),
        (b"GET /\xff HTTP/1.1\r\nHost: [::]\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00" + bytes(500), b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"200"),
        (
            b"POST / HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"ffff\r\n" + b"x" * 65535 + b"\r\n") * 20
            + b"0\r\n\r\n",
            b"413",
        ),
        (b"POST / HTTP/1.1\r\nHost: [::]\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n", b""),
        (b"GET / HTTP/1.1\r\nHost: [::]\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n", b"200"),
        (b"GET /crash HTTP/1.1\r\nHost: [::]\r\nConnection: close\r\n\r\n", b"500"),
    ],
)
def test_odd_requests_are_refused_in_silence(request_, status, caplog):
    with serving(replace(SLOW, head_s=3, body_s=3)) as server:  # some are open until then
        found = talk(server.port, request_)
        assert found.startswith(b"HTTP/1.1 " + status if status else b"")
        assert ask(server.port, "/")[0] == 200
    assert "Traceback" not in caplog.text
    assert all(record.name == "fcstream.runtime" for record in caplog.records)
    assert len(caplog.records) == (status == b"500")


def test_a_connection_has_a_number_of_requests_pipelined_ones_too():
    with serving() as server:
        found = talk(server.port, b"GET / HTTP/1.1\r\nHost: [::]\r\n\r\n" * 500)
    assert found.count(b"HTTP/1.1 200") == SLOW.requests


def test_an_expected_body_is_asked_for_and_a_connection_serves_again():
    import http.client

    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for size in (5, 2**20, 0, 2**20 + 1, 7):
            connection.request("POST", "/", b"x" * size)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (
                (200, str(size).encode()) if size <= 2**20 else (413, b"too long\n")
            )
        connection.close()
        head = (
            b"POST / HTTP/1.1\r\nHost: [::]\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 3\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), 60) as one:
            one.sendall(head)
            assert one.recv(100).startswith(b"HTTP/1.1 100")
            one.sendall(b"abc")
            assert heard(one).endswith(b"\r\n\r\n3")


@pytest.mark.slow
def test_a_server_ends_at_once_while_clients_hold_on():
    asked = b"GET /16000000 HTTP/1.1\r\nHost: [::]\r\n\r\n"
    with (
        serving(Limits(held_bytes=2**27, head_s=300, body_s=300, answer_s=300)) as server,
        peers(server.port, 10, b"GET / HT"),
        peers(server.port, 5, asked),
    ):
        until(lambda: server.connections == 15)
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 60
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), 1)
    server.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "fcstream-http"]


def test_a_taken_port_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        status = StatusServer([watched("s")])
        with pytest.raises(ConfigError, match=f"service.listen: {place} cannot be used: another process listens there"):
            status.listen(place)
        status.close()


@pytest.mark.parametrize("module", ["uvicorn", "starlette"])
def test_a_server_that_is_not_installed_names_the_extra(module, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"service\.listen: needs the package {module}: .*pip install .*\[service\]"):
        StatusServer([watched("s")]).listen(f"127.0.0.1:{free_port()}")
