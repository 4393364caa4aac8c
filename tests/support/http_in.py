"""A receiver over HTTP with its spool, and senders: plain sockets, so that each byte of a request is the test's own."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
from dataclasses import replace

from fcstream.connectors.http.bodies import Bodies
from fcstream.connectors.http.source import HttpReceiver
from fcstream.connectors.pushed import PushedSource, SharedSpool
from fcstream.connectors.urls import parse
from fcstream.formats.batch import Schema
from fcstream.formats.envelopes import NO_FIELDS

MIB = 1 << 20
SCHEMA = Schema("t", "ms", ("a",))
JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
RECORD = b'{"t": 1, "a": 2.5}'


def bodies(format="json", schema=SCHEMA, **options):
    return Bodies(format, schema, options)


def receiver(url, kinds=None, asked=NO_FIELDS):
    """A receiver that listens and does not answer yet."""
    made = HttpReceiver(replace(parse(url, "source.url"), asked=asked), "test")
    made.expect(kinds or bodies())
    return made


def pushed(folder, url="http://127.0.0.1:0", kinds=None, spool_bytes=64 * MIB, asked=NO_FIELDS):
    """A source that is served; its port is `source.port`."""
    queue = receiver(url, kinds, asked)
    source = PushedSource(queue, SharedSpool(folder / "spool", spool_bytes), asked=asked)
    source.port, source.queue = queue.port, queue
    return source


@contextlib.contextmanager
def serving(folder, url="http://127.0.0.1:0", **options):
    with contextlib.closing(pushed(folder, url, **options)) as source:
        yield source


def post(port, body, headers=JSON, path="/ingest", method="POST", context=None, host="127.0.0.1"):
    """One request on a connection of its own: status, headers and body of the answer."""
    make = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
    options = {} if context is None else {"context": context}
    connection = make(host, port, timeout=60, **options)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def request(body, path="/ingest", **headers):
    """The bytes of a request."""
    lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body)} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 60)


def status(connection):
    """Read the head of an answer and return its status; 0 if the connection ended."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in data and (part := connection.recv(4096)):
            data += part
    found = re.match(rb"HTTP/1.1 (\d+)", data)
    return int(found[1]) if found else 0


def stored(source, most=10_000):
    """Everything that is in the spool and was not polled yet, with the byte that says what it is."""
    found = []
    while chunks := source.poll(most, 0.0):
        found += [body for chunk in chunks for body in chunk.bodies]
    return found
