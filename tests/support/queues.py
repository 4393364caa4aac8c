"""A broker's queue in memory."""

from collections import deque

import pytest

from fcstream.connectors import base, spooled
from fcstream.connectors.base import ReceivedMessage

MIB = 1 << 20


@pytest.fixture(params=[spooled._MUCH, 0], ids=["alone", "ahead"])
def much(request, monkeypatch):
    """Receiving and the disk one after the other, and at the same time."""
    monkeypatch.setattr(spooled, "_MUCH", request.param)


class Queue(base.Queue):
    """A broker's queue in memory: what was not acknowledged when a connection ended comes again."""

    connections = 1

    def __init__(self, bodies=(), sizes=()):
        self.bodies = deque(bodies)
        self.sent = []
        self.received = 0
        self.epoch = 0
        self.closed = False

    def send(self, bodies):
        self.bodies.extend(bodies)

    def reconnect(self):
        self.epoch += 1
        self.bodies.extendleft(reversed(self.sent))
        self.sent = []

    def receive(self, max_messages, timeout_s):
        found = [self.bodies.popleft() for _ in range(min(max_messages, len(self.bodies)))]
        self.sent += found
        self.received += len(found)
        return [ReceivedMessage(body, (self.epoch, body)) for body in found]

    def acknowledge(self, received):
        for one in received:
            if one.token[0] == self.epoch:
                self.sent.remove(one.token[1])

    def pending(self):
        return bool(self.bodies)

    def is_current(self, received):
        return received.token[0] == self.epoch

    def close(self):
        self.closed = True


def drain(source, most=100):
    rows = []
    while chunks := source.poll(most, 0.0):
        for chunk in chunks:
            rows += zip(chunk.offsets.tolist(), chunk.timestamps_ms.tolist(), chunk.bodies, strict=True)
    return rows


class NamedQueue(Queue):
    """Every message is its own identity; those that begin with ``?`` have none."""

    def delivery_id(self, received):
        return None if received.body.startswith(b"?") else received.body


def contents(spool):
    number, rows = spool.position, []
    while number < spool.end:
        found = spool.read(number)
        assert found.first == number
        rows += [(found.first + i, found.receipt_ms, body) for i, body in enumerate(found.bodies)]
        number += len(found.bodies)
    return rows


def segments(folder):
    return sorted(folder.glob("*.rows"))
