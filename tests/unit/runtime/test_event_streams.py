"""Answers of events without an end: they outlast every deadline, and still nobody can hold the server by them."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from support.helpers import free_port
from support.status import ask

from fcstream.runtime.http_server import EVENTS, Limits, Server

ASKED = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"


async def tell(scope, receive, send):
    """Parts of as many bytes as the path says, for as long as the peer is there; a short answer at `/`."""
    assert (await receive())["type"] == "http.request"
    size = int(scope["path"][1:] or 0)
    kind = EVENTS if size else b"text/plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    gone = asyncio.ensure_future(receive())
    while size and not gone.done():
        await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
        await asyncio.sleep(0.01)
    gone.cancel()
    await send({"type": "http.response.body", "body": b"told"})


@contextlib.contextmanager
def listeners(count, size, **limits):
    """A server, and peers that have asked for events of that size."""
    with contextlib.ExitStack() as stack:
        server = Server(tell, "127.0.0.1", free_port(), Limits(**limits), setting="s", extra="service")
        server.start()
        stack.callback(server.close)
        found = []
        for _ in range(count):
            found.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60)))
            found[-1].sendall(ASKED % size)
        yield server, found


def until(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def is_ended(connection):
    with contextlib.suppress(ConnectionError):
        while connection.recv(2**20):
            pass
    return True


def test_events_outlast_the_deadlines_of_a_request():
    with listeners(1, 30, head_s=0.3, body_s=0.3, answer_s=0.3) as (_, (one,)):
        began = time.monotonic()
        while time.monotonic() < began + 1:
            assert one.recv(2**16)


@pytest.mark.parametrize("reads", [False, True])
def test_who_does_not_read_a_part_in_time_is_left(reads):
    """Reading a byte now and then does not help: a part has the deadline, and no byte extends it."""
    with listeners(1, 2**24, answer_s=1, held_bytes=2**26) as (server, (one,)):
        until(lambda: server.connections == 1)
        while server.connections:
            if reads:
                with contextlib.suppress(ConnectionError):
                    one.recv(1)
            time.sleep(0.02)


def test_parts_that_nobody_reads_are_held_to_the_limit_only():
    with listeners(8, 2**20, answer_s=120, held_bytes=2**22) as (server, _):
        until(lambda: 0 < server.connections <= 4)
        assert ask(server.port, "/") == (200, "told")
        assert server._crowd._held <= 2**22


def test_a_request_is_answered_however_many_listen():
    with listeners(5, 30, connections=5, per_peer=5) as (server, (first, *others)):
        until(lambda: server.connections == 5)
        for one in (first, *others):
            one.recv(1)  # its events have begun
        assert ask(server.port, "/") == (200, "told")
        assert is_ended(first)
        assert all(one.recv(1) for one in others)


def test_the_end_of_a_server_ends_its_events_at_once():
    with listeners(4, 30) as (server, found):
        for one in found:
            one.recv(1)
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 30
        assert all(map(is_ended, found))
    assert not [thread for thread in threading.enumerate() if thread.name == "fcstream-http"]
