"""Bodies in chunks and heads: what is parsed of them, in what pieces, and what other peers notice."""

import contextlib
import re
import socket
import threading
import time

import pytest

from fcstream.runtime.http_connections import GuardedConnection
from fcstream.runtime.http_server import Limits, Screen, Server

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
ENDS = b"0\r\n\r\n"
LIMITS = Limits(connections=20, per_peer=20, body_bytes=2**20, held_bytes=2**24)


async def echo(scope, receive, send):
    body = (await receive())["body"]
    headers = [(b"content-length", str(len(str(len(body)))).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": str(len(body)).encode()})


@contextlib.contextmanager
def serving(screen=None):
    server = Server(echo, "127.0.0.1", 0, LIMITS, setting="service.listen", extra="service", screen=screen)
    server.start()
    try:
        yield server
    finally:
        server.close()


def chunks(body, size):
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + ENDS


def answer(port, *parts, wait=0):
    with socket.create_connection(("127.0.0.1", port), 60) as one:
        for part in parts:
            one.sendall(part)
            time.sleep(wait)
        return read(one)


def read(one):
    """Return one answer, or what came of it."""
    found = b""
    with contextlib.suppress(ConnectionResetError):  # the server did not read to the end
        while data := one.recv(65536):
            found += data
            head, end, body = found.partition(b"\r\n\r\n")
            size = re.search(rb"(?i)content-length: (\d+)", head)
            if end and b"connection: close" not in head.lower() and len(body) >= int(size[1]):
                break
    return found


class Refusing(Screen):
    def refuse(self, scope):
        return 401


@pytest.mark.parametrize("size", [1000, 60, 2**17])
def test_bodies_in_chunks_arrive_whole(size):
    body = b"ab\r\n" * 2**16
    with serving() as server:
        assert answer(server.port, HEAD + b"\r\n" + chunks(body, size)).endswith(b"%d" % len(body))
        parts = HEAD + b"\r\n" + chunks(b"ab" * 300, size)
        assert answer(server.port, *(parts[i : i + 7] for i in range(0, len(parts), 7))).endswith(b"600")


def test_a_few_bytes_may_come_one_by_one():
    with serving() as server:
        assert answer(server.port, HEAD + b"\r\n" + chunks(b"a" * 2000, 1)).endswith(b"2000")


def test_a_body_of_many_short_chunks_is_refused():
    with serving() as server:
        found = answer(server.port, HEAD + b"\r\n" + chunks(b"a" * 2**20, 1))
        assert found.startswith(b"HTTP/1.1 400")
        assert b"connection: close" in found.lower()


def test_a_body_that_its_head_refuses_is_not_parsed(monkeypatch):
    parsed = []
    with serving(screen=Refusing()) as server:
        monkeypatch.setattr(
            "fcstream.runtime.http_connections.GuardedConnection._parse",
            lambda self, data, whole=GuardedConnection._parse: parsed.append(len(data)) or whole(self, data),
        )
        asking = HEAD + b"Expect: 100-continue\r\n\r\n"
        for parts in (HEAD + b"\r\n" + chunks(b"a" * 2**20, 1), asking):
            assert answer(server.port, parts).startswith(b"HTTP/1.1 401")
        assert sum(parsed) < 2**12
        found = answer(server.port, HEAD + b"\r\n", *([b"1\r\na\r\n"] * 50), b"0;x=1\r\nA: b\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("screen", [Refusing(), None])
def test_others_are_served_meanwhile(screen):
    """Peers who send bodies in chunks of one byte, over and over, hold up nobody."""
    small = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd"
    stop, hostile = threading.Event(), HEAD + b"\r\n" + chunks(b"a" * 2**20, 1)

    def send():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                answer(server.port, hostile)

    with serving(screen=screen) as server:
        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            wanted = b"HTTP/1.1 200" if screen is None else b"HTTP/1.1 401"
            for _ in range(20):
                start = time.perf_counter()
                assert answer(server.port, small).startswith(wanted)
                assert time.perf_counter() < start + 2
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_no_piece_of_a_body_in_chunks_is_long(monkeypatch):
    """What is parsed in one round of the loop is a hundred lines or so, whatever comes in one packet."""
    lines = []
    with serving() as server:
        monkeypatch.setattr(
            "fcstream.runtime.http_connections.GuardedConnection._parse",
            lambda self, data, whole=GuardedConnection._parse: lines.append(data.count(b"\r\n")) or whole(self, data),
        )
        answer(server.port, HEAD + b"\r\n" + chunks(b"a" * 4000, 1))
    assert sum(lines) >= 8000
    assert max(lines) <= 128


@pytest.mark.parametrize("size", [2**14 - 100, 2**14 + 100, 2**18])
def test_a_head_is_no_longer_in_one_packet(size):
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "
    long = head + b"a" * (size - len(head) - 4) + b"\r\n\r\n"
    many = head + b"a\r\n" + b"B: c\r\n" * ((size - len(head) - 5) // 6) + b"\r\n"
    with serving() as server:
        for one in (long, many):
            found = answer(server.port, one)
            assert found.startswith(b"HTTP/1.1 200") if size < 2**14 else b"200" not in found


def test_a_length_beside_chunks_closes_the_connection():
    with serving() as server:
        smuggled = b"POST /7 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
        found = answer(server.port, HEAD + b"Content-Length: 5\r\n\r\n" + chunks(b"abc", 3) + smuggled)
        assert found.startswith(b"HTTP/1.1 400")
        assert b"connection: close" in found.lower()
        assert found.count(b"HTTP/1.1") == 1


def test_several_requests_on_a_connection():
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), 60) as one:
        for size in (1, 5000, 70_000, 3):
            one.sendall(HEAD + b"\r\n" + chunks(b"a" * size, 1000))
            assert read(one).endswith(b"\r\n\r\n%d" % size)
            one.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
            assert read(one).endswith(b"\r\n\r\n2")
        one.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab" * 20)
        found = b""
        while found.count(b"\r\n\r\n2") < 20:
            found += one.recv(65536)
