"""A stream behind a status server, whose windows a test releases when it wants; and the events of its page."""

import contextlib
import json
import socket

import numpy as np

from fcstream import Engine, Noise, SeededEntropy
from fcstream.config import ServiceSection
from fcstream.engine.keyed import KeyedEngine
from fcstream.formats.batch import Batch
from fcstream.service.context import SessionContext
from fcstream.service.metrics import StreamStatus
from fcstream.service.status import StatusServer
from fcstream.service.supervisor import Supervisor
from support.helpers import changed, free_port, sample

LENGTH_MS = 10_000
MIDDLES = np.array([[0.0, 10.0], [20.0, 50.0], [35.0, 90.0]])
COUNT = {"kind": "count", "rho": 0.5, **dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))}


class ShownStream:
    """An engine with a service around it, without a broker: `release` gives it records and closes windows."""

    def __init__(self, name="rooms", service=None, ledger="memory:", keys=(), start_ms=0, **sections):
        window = {"start": f"{np.datetime64(start_ms, 'ms')}Z", "end": None, "clock": "broker", "length": "10s"}
        stream = {"name": name} | ({"key": "site", "keys": list(keys)} if keys else {}) | sections.pop("stream", {})
        usual = {"stream": stream, "window": window, "budget": {"rho": 400.0, "delta": 1e-4}}
        answers = sections.pop("release", COUNT)
        mapping = sample(**{**usual, "ledger": {"url": ledger}, **sections})
        if isinstance(answers, list):
            mapping["release"] = [{key: value for key, value in each.items() if value is not None} for each in answers]
        else:
            mapping = changed(mapping, {"release": {"outliers": None} | answers})
        make = KeyedEngine if keys else Engine
        self.engine = make(mapping, noise=Noise(SeededEntropy(3)))
        self.engine.begin(start_ms)
        self._start_ms, self._random = start_ms, np.random.default_rng(1)
        self.service = Supervisor(*[lambda: None] * 3, SessionContext(decoder=None, clock=lambda: 0))
        self.status = StreamStatus(
            name, self.service, ServiceSection(**({"page": True} if service is None else service))
        )
        self.service._health.good()
        self.releases = []

    @property
    def parts(self):
        return {part.job.terms.stream: part for part in self.engine.parts}

    def release(self, page, *sizes, clusters=False):
        """Close the next windows, each with so many records; tell the page, as a service does after each step."""
        for size in sizes:
            opens = self.engine.next_open_ms
            which = self._random.integers(0, 3, size) if clusters else np.ones(size, int)
            points = MIDDLES[which] + self._random.normal(0, 0.3, (size, 2))
            times = np.full(size, opens + 1)
            keys = None if not isinstance(self.engine, KeyedEngine) else np.array([self.engine.keys[0]] * size)
            self.engine.take(Batch(times, points, np.arange(size), keys=keys), times)
            for group in self.engine.closing(opens + LENGTH_MS + 1):
                self.releases += group
                self.service.counters.add(group)
            self.service.counters.update_from(self.engine)
            self.service.counters.messages += size
        self.step(page)

    def step(self, page):
        self.status.note(self.parts)
        page.note(self.status, self.parts)
        self.service._health.good()


@contextlib.contextmanager
def serving(*streams):
    """The server of some streams; its port is `port`."""
    server = StatusServer([each.status for each in streams])
    server.port = free_port()
    server.listen(f"127.0.0.1:{server.port}")
    try:
        yield server
    finally:
        server.close()


class PageEvents:
    """A connection to the events of a page, which reads one at a time."""

    def __init__(self, port, query="", host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), 60)
        self.socket.sendall(f"GET /events{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        self._file = self.socket.makefile("rb")
        self.head = b""
        while (line := self._file.readline()) not in (b"\r\n", b""):
            self.head += line
        self._text = b""

    def next(self):
        """The next event: its name and its document; None at the end."""
        while b"\n\n" not in self._text:
            size = int(self._file.readline().strip() or b"0", 16)
            if size == 0:
                return None
            self._text += self._file.read(size)
            self._file.readline()
        text, _, self._text = self._text.partition(b"\n\n")
        fields = dict(line.split(b": ", 1) for line in text.splitlines())
        return self.next() if b"event" not in fields else (fields[b"event"].decode(), json.loads(fields[b"data"]))

    def until(self, name, wanted=lambda _: True):
        """The next document of an event for which a condition holds."""
        while (found := self.next()) is not None:
            if found[0] == name and wanted(found[1]):
                return found[1]
        raise AssertionError(f"the events ended without {name}")

    def windows(self):
        """All parts of the next windows, in one."""
        parts = [self.until("windows")]
        while not parts[-1]["last"]:
            parts.append(self.until("windows"))
        return parts[-1] | {"whole": parts[0]["whole"], "points": [point for part in parts for point in part["points"]]}

    def close(self):
        self._file.close()
        self.socket.close()


@contextlib.contextmanager
def listening(port, query=""):
    with contextlib.closing(PageEvents(port, query)) as found:
        yield found
