"""A broker's queue in memory."""

from collections import deque

from fcstream.connectors.base import ReceivedMessage

MIB = 1 << 20


class Queue:
    """A broker's queue in memory: what was not acknowledged when a connection ended comes again."""

    connections = 1

    def __init__(self, bodies=(), sizes=()):
        self.waiting = deque(bodies)
        self.sent = []
        self.received = 0
        self.epoch = 0
        self.closed = False

    def send(self, bodies):
        self.waiting.extend(bodies)

    def reconnect(self):
        self.epoch += 1
        self.waiting.extendleft(reversed(self.sent))
        self.sent = []

    def receive(self, max_messages, timeout_s):
        found = [self.waiting.popleft() for _ in range(min(max_messages, len(self.waiting)))]
        self.sent += found
        self.received += len(found)
        return [ReceivedMessage(body, (self.epoch, body)) for body in found]

    def acknowledge(self, received):
        for one in received:
            if one.token[0] == self.epoch:
                self.sent.remove(one.token[1])

    def pending(self):
        return bool(self.waiting)

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
