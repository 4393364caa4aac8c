"""The service's loop where keys are found: what it commits, what a restart reads again, and what it says of budgets."""

import json

import pytest
from support.memory_log import WINDOW, Log, LogSource, Rig
from support.naive_discovery import Arrival, discovered

from fcstream.config import Config
from fcstream.engine.opening import open_engine
from fcstream.errors import ConfigError, LedgerMismatch
from fcstream.formats.payloads import decoder_for
from fcstream.service.context import SessionContext
from fcstream.service.reload import ActiveConfig
from fcstream.service.supervisor import Supervisor
from fcstream.spark.sessions import refuse_found_keys
from fcstream.testing import ListSink, ManualClock

RECORDS = [
    Arrival(ms, key, ms) for key, start in (("a", 0), ("b", 25_000), ("a", 26_000)) for ms in (start, start + 500)
]
RECORDS += [Arrival(45_000, "b", 45_000), Arrival(46_000, "c", 46_000)]


class FoundRig(Rig):
    """Periods of two windows of ten seconds, and noise that is always 0."""

    def __init__(self, tmp_path):
        self.log, self.clock, self.sink = Log(1), ManualClock(), ListSink()
        keys = {"discover": "frequent", "every": "20s", "rho": 1e6, "delta": 1e-9}
        self.config = Config.from_mapping(
            {
                "stream": {"name": "t", "key": "site", "keys": keys},
                "window": {"length": "10s", "start": "1970-01-01T00:00:00Z", "backlog": "1d"} | WINDOW,
                "release": {"kind": "count", "rho": 1e6},
                "budget": {"rho": 2e6, "delta": 1e-9},
                "ledger": {"url": f"sqlite:{tmp_path / 'l.db'}"},
            }
        )
        self.active = ActiveConfig(self.config)
        self.service = self.make()
        for one in sorted(RECORDS, key=lambda record: record.arrival_ms):
            body = json.dumps({"ts_ms": one.time_ms, "site": one.key}).encode()
            self.send(0, [one.time_ms], body=body)

    def make(self):
        return Supervisor(
            lambda keys: self.active.engine(open_engine),
            lambda: LogSource(self.log),
            lambda: self.sink,
            SessionContext(decoder_for("json", self.config.job.schema), lambda: self.clock.now_ms),
        )

    def counts(self):
        return {(one.key, one.window_open_ms): one.value[0] for one in self.sink.releases if one.key is not None}


def test_a_session_that_restarts_anywhere_answers_as_the_twin_says(tmp_path):
    rig = FoundRig(tmp_path)
    expected = discovered(RECORDS, length_ms=10_000, every_ms=20_000, windows=6, lateness_ms=2_000, ahead_ms=10_000)
    for now, needed in ((12_001, 0), (22_001, 2), (32_001, 2), (42_001, 6), (52_001, 8), (62_001, 8)):
        rig.clock.now_ms = now
        rig.run(40)
        rig.run(40)  # another session, which reads the period again
        # What is committed lies before the period, whose search needs all of it; in the last period, before the window.
        assert rig.log.committed[0] <= needed
    assert rig.log.committed == [8]
    assert rig.counts() == expected.counts
    assert len(rig.sink.releases) == len(expected.counts) + len(expected.searches)
    assert rig.service.counters.restarts == 0


def test_budgets_are_shown_of_the_parts_that_there_are_now(tmp_path):
    rig = FoundRig(tmp_path)
    rig.clock.now_ms = 42_001
    seen = []

    def on_step(service):
        seen.append(set(rig.active.engines))
        if len(seen) == 40:
            service.stop()

    rig.service.run(on_step)
    assert seen[-1] == {"t/", "t/a", "t/b"}


def test_a_sink_whose_ledger_was_lost_is_noticed_also_by_a_key_that_is_gone(tmp_path):
    rig = FoundRig(tmp_path)
    rig.clock.now_ms = 32_001
    rig.run(40)
    engine = open_engine(rig.config)
    gone = next(one for one in rig.sink.releases if one.key == "a")
    assert engine.knows(gone)
    engine.abort()
    (tmp_path / "other").mkdir()
    rig.config = FoundRig(tmp_path / "other").config
    rig.active = ActiveConfig(rig.config)
    other = open_engine(rig.config)
    other.begin(0)
    assert not other.knows(gone)
    other.abort()
    rig.sink.releases = [gone]
    rig.service = rig.make()
    with pytest.raises(LedgerMismatch):
        rig.run(3)


def test_spark_says_that_it_does_not_find_keys(tmp_path):
    with pytest.raises(ConfigError, match=r"^stream\.keys: must be declared with --runner spark"):
        refuse_found_keys(FoundRig(tmp_path).config)
