"""A broker's log in memory, and a stream that reads it by a clock that the test sets."""

import json

import numpy as np

from fcstream import Engine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.connectors.base import Chunk, Source
from fcstream.errors import SourceError
from fcstream.formats.payloads import decoder_for
from fcstream.service.context import SessionContext
from fcstream.service.supervisor import Supervisor
from fcstream.testing import ListSink, ManualClock
from support.helpers import sample

WINDOW = {"clock": "broker", "end": "1970-01-01T00:01:00Z", "lateness": "2s"}


class Log:
    """A broker with numbered messages in partitions, and the faults that are asked for."""

    def __init__(self, partitions=2):
        self.messages = [[] for _ in range(partitions)]
        self.committed = [0] * partitions
        self.generation = 0
        self.redeliver = False
        self.fails = {}

    def send(self, partition, stamp_ms, body):
        self.messages[partition].append((stamp_ms, body))


class LogSource(Source):
    generation = 0

    def __init__(self, log):
        self.log = log
        self.positions = list(log.committed)
        self.generation = log.generation
        self.polls = 0

    def poll(self, max_messages, timeout_s):
        if self.log.fails.get("poll"):
            self.log.fails["poll"] -= 1
            raise SourceError("the broker went away")
        if self.generation != self.log.generation:
            self.generation, self.positions = self.log.generation, list(self.log.committed)
            return []
        chunks = []
        for p, messages in enumerate(self.log.messages):
            start = max(0, self.positions[p] - 3) if self.log.redeliver else self.positions[p]
            taken = messages[start : self.positions[p] + 5]
            if taken and self.positions[p] < len(messages):
                offsets = np.arange(start, start + len(taken))
                self.positions[p] = start + len(taken)
                chunks.append(Chunk(str(p), offsets, np.array([s for s, _ in taken]), [b for _, b in taken]))
        return chunks

    def ends(self):
        return {str(p): len(messages) for p, messages in enumerate(self.log.messages)}

    def behind(self, ends):
        return any(self.positions[int(p)] < end for p, end in ends.items())

    def commit(self, positions):
        for p, offset in positions.items():
            assert offset >= self.log.committed[int(p)]
            self.log.committed[int(p)] = offset

    def close(self):
        pass


class Rig:
    """A service on a log, a memory of what was published, and a clock."""

    def __init__(self, tmp_path, **sections):
        self.log, self.clock, self.sink = Log(), ManualClock(), ListSink()
        self.config = Config.from_mapping(
            sample(
                window=WINDOW,
                release={"kind": "count", "method": None, "spread": None, "radius": None, "rho": 50.0, "delta": None},
                budget={"rho": 50.0},
                ledger={"url": f"sqlite:{tmp_path / 'l.db'}"},
                **sections,
            )
        )
        self.opened = 0
        self.service = self.make()

    def make(self):
        def engine(keys):
            self.opened += 1
            return Engine(self.config, noise=Noise(SeededEntropy(self.opened)))

        return Supervisor(
            engine,
            lambda: LogSource(self.log),
            lambda: self.sink,
            SessionContext(decoder_for("json", self.config.job.schema), lambda: self.clock.now_ms),
        )

    def send(self, partition, times, timestamps=None, body=None):
        for i, time_ms in enumerate(times):
            record = json.dumps({"ts_ms": int(time_ms), "a": 20.0, "b": 50.0}).encode() if body is None else body
            self.log.send(partition, int(time_ms if timestamps is None else timestamps[i]), record)

    def run(self, steps):
        left = [steps]

        def on_step(service):
            left[0] -= 1
            if left[0] <= 0:
                service.stop()

        self.service.run(on_step)
        self.service = self.make() if self.service.stopping.is_set() else self.service

    def counts(self):
        return [(r.window_open_ms, round(r.count)) for r in self.sink.releases]


def near(found, wanted):
    assert [k for k, _ in found] == [k for k, _ in wanted]
    assert all(abs(a - b) <= 1 for (_, a), (_, b) in zip(found, wanted, strict=True)), (found, wanted)
