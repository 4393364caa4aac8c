"""A service whose windows close by this machine's clock, and a clock that jumps."""

import json
from contextlib import closing

import numpy as np
import pytest
from prometheus_client import parser
from support.helpers import sample
from support.memory_log import near
from support.queues import Queue

from fcstream import Noise, SeededEntropy
from fcstream.config import Config
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.engine.opening import open_engine
from fcstream.formats.payloads import decoder_for
from fcstream.runtime.wall_clock import ACCEPTANCE, ClockNote, ClockNotes, WallClock
from fcstream.service.context import SessionContext
from fcstream.service.metrics import StreamStatus, exposition
from fcstream.service.status import answer
from fcstream.service.supervisor import Supervisor
from fcstream.testing import ListSink

NOW = 1_767_225_600_000
HOUR, YEARS = 3_600_000, 10 * 365 * 86_400_000
WINDOW = {"clock": "wall", "length": "2s", "lateness": "1s", "start": "now", "end": None, "backlog": "0s"}
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "rho": 50.0, "delta": None}


class Machine:
    """A machine with a service, its broker's queue, and a clock that is set; time passes only where a test says so."""

    def __init__(self, folder, **sections):
        self.folder, self.wall, self.elapsed, self.boot = folder, NOW, 10_000, "first"
        window = WINDOW | sections.pop("window", {})
        self.config = Config.from_mapping(
            sample(
                window=window,
                release=COUNT,
                budget={"rho": 50_000.0},
                ledger={"url": f"sqlite:{folder / 'l.db'}"},
                **sections,
            )
        )
        self.queue, self.sink, self.started = Queue(), ListSink(), 0
        self.start()

    def start(self):
        self.started += 1
        wall = WallClock(
            "t", 1000, "say so", ClockNotes(self.folder / "spool"), lambda: self.wall, lambda: self.elapsed, self.boot
        )
        noise = Noise(SeededEntropy(self.started))
        self.service = Supervisor(
            lambda keys: open_engine(self.config, noise=noise, clock=wall),
            lambda: SpooledSource(
                self.queue, Spool(self.folder / "spool", 1 << 22, clock=wall.now_ms, bounds=wall.bounds_ms)
            ),
            lambda: self.sink,
            SessionContext(decoder_for("json", self.config.job.schema), wall.now_ms, wall=wall),
        )

    def passes(self, ms, jump=0):
        self.elapsed += ms
        self.wall += ms + jump

    def send(self, times, **fields):
        self.queue.send(json.dumps({"ts_ms": int(at), "a": 20.0, "b": 50.0, **fields}).encode() for at in times)

    def run(self, seconds=0, each_s=1, per_s=0, offset_ms=0, fields=()):
        """Some steps at each second; records come meanwhile, timed by time that passes, and `offset_ms` besides."""
        plan, left = [], list(range(0, seconds, each_s)) or [0]

        def on_step(service):
            plan.append(answer([StreamStatus("t", service)], "/ready"))
            if len(plan) % 4:
                return
            if not left:
                service.stop()
                return
            left.pop()
            if seconds:
                self.passes(1000 * each_s)
                true = NOW + self.elapsed - 10_000
                for more in fields or ({},):
                    self.send(true + offset_ms - np.arange(per_s), **more)

        self.service.run(on_step)
        self.code, _, text = plan[-1]
        self.text = text.decode()
        self.rejected = self.service.counters.rejected
        self.metrics = {}
        for family in parser.text_string_to_metric_families(exposition([StreamStatus("t", self.service)])[0].decode()):
            for one in family.samples:
                self.metrics[one.name, one.labels.get("reason")] = one.value
        self.start()

    def counts(self):
        return [(r.window_open_ms - NOW, round(r.count)) for r in self.sink.releases]


def test_an_hour_ahead_releases_nothing_and_loses_nothing(tmp_path):
    """1,802 windows were released within 5 s, nearly empty, and an hour of records rejected with /ready 200."""
    machine = Machine(tmp_path)
    machine.run(10, per_s=5)
    before = machine.counts()
    assert machine.code == 200
    assert machine.metrics["fcstream_clock_jump_seconds", None] == 0
    machine.passes(0, HOUR)
    machine.run(30, per_s=5)  # by senders that know the time
    assert machine.counts() == before
    assert machine.code == 503
    assert "this machine's clock is 3,600.0 s ahead of the time that has passed: no window is closed" in machine.text
    assert machine.metrics["fcstream_clock_jump_seconds", None] == 3600
    assert machine.metrics["fcstream_unready", "clock"] == 1
    assert machine.metrics["fcstream_ready", None] == 0
    machine.passes(0, -HOUR)
    machine.run(10, per_s=5)
    assert machine.code == 200
    near(machine.counts()[1:-1], [(2000 * k, 10) for k in range(1, len(machine.counts()) - 1)])
    assert len(machine.counts()) >= 22
    assert machine.rejected == {}


def test_an_accepted_hour_is_released_at_once_with_the_records_of_both_times(tmp_path):
    """The clock was wrong before and is right now: senders that know the time were an hour ahead of this machine."""
    machine = Machine(tmp_path)
    machine.run(6)
    machine.passes(0, HOUR)
    machine.run(10, per_s=5, offset_ms=HOUR)
    assert machine.code == 503
    notes = ClockNotes(tmp_path / "spool")
    notes.save(ClockNote("first", machine.wall - machine.elapsed, machine.elapsed), ACCEPTANCE)
    machine.passes(2000)
    machine.run(10, per_s=5, offset_ms=HOUR)
    assert machine.code == 200
    counts = dict(machine.counts())
    assert 1803 <= len(counts) <= 1816
    assert sum(counts.values()) >= 70
    assert sum(n for at, n in counts.items() if at < HOUR) <= 5  # noise
    assert machine.rejected == {}


def test_a_restart_changes_nothing_about_a_jump(tmp_path):
    """The first thing that people try."""
    machine = Machine(tmp_path)
    machine.run(10, per_s=5)
    before = machine.counts()
    machine.passes(0, HOUR)
    for _ in range(3):  # each run is a process of its own
        machine.run(4, per_s=5)
        assert machine.code == 503
    assert machine.counts() == before
    machine.passes(0, -HOUR)
    machine.run(8, per_s=5)
    near(machine.counts()[1:-1], [(2000 * k, 10) for k in range(1, len(machine.counts()) - 1)])
    assert machine.rejected == {}


def test_a_start_ten_years_ahead_releases_nothing(tmp_path):
    """The machine was started anew, so nothing tells how long it was off; the ledger's newest window is left."""
    machine = Machine(tmp_path)
    machine.run(10, per_s=5)
    before = machine.counts()
    machine.boot, machine.wall = "second", machine.wall + YEARS
    machine.start()
    machine.run(10, per_s=5)
    assert machine.counts() == before
    assert machine.code == 503
    assert "ahead of 2026-01-01T00:00:" in machine.text
    machine.wall -= YEARS
    machine.start()
    machine.run(10, per_s=5)
    assert machine.code == 200
    near(machine.counts()[1:-1], [(2000 * k, 10) for k in range(1, len(machine.counts()) - 1)])
    assert machine.rejected == {}


@pytest.mark.parametrize("back", [HOUR, YEARS])
@pytest.mark.parametrize("anew", [False, True])
def test_a_clock_that_is_set_back_reopens_no_window_and_loses_no_record(tmp_path, back, anew):
    machine = Machine(tmp_path)
    machine.run(10, per_s=5)
    before = machine.counts()
    machine.wall -= back
    if anew:
        machine.boot = "second"
        machine.start()
    machine.run(10, per_s=5)
    assert machine.counts() == before
    assert machine.code == 503
    assert "s behind " in machine.text
    machine.wall += back
    machine.run(10, per_s=5)
    assert machine.code == 200
    near(machine.counts()[1:-1], [(2000 * k, 10) for k in range(1, len(machine.counts()) - 1)])
    assert machine.rejected == {}


def test_memory_does_not_grow_while_windows_are_held(tmp_path):
    """What comes stays on disk, and is counted once windows may close."""
    machine = Machine(tmp_path)
    machine.run(4)
    machine.passes(0, HOUR)
    machine.run(20, per_s=50)
    assert machine.service.counters.records == 0
    with closing(Spool(tmp_path / "spool", 1 << 22)) as spool:
        assert spool.end == 1000
    machine.passes(0, -HOUR)
    machine.run(8)
    assert sum(n for _, n in machine.counts()) == pytest.approx(1000, abs=5)


KEYED = {"stream": {"key": "site", "keys": ["x", "y"]}}
JOINT = {"stream": {"key": "site", "keys": ["x", "y"], "unit": "user", "user": "who", "key_budgets": "shared"}}


@pytest.mark.parametrize(
    ("sections", "fields"),
    [
        ({"window": {"length": "4s", "slide": "2s"}}, ()),
        (KEYED, ({"site": "x"}, {"site": "y"})),
        ({"window": {"clock": "broker"}}, ()),
    ],
    ids=["sliding", "keyed", "broker"],
)
def test_windows_of_all_sorts_are_held(tmp_path, sections, fields):
    machine = Machine(tmp_path, **sections)
    machine.run(12, per_s=5, fields=fields)
    before = machine.counts()
    assert before
    machine.passes(0, HOUR)
    machine.run(10, per_s=5, fields=fields)
    assert (machine.code, machine.counts()) == (503, before)
    machine.passes(0, -HOUR)
    machine.run(12, per_s=5, fields=fields)
    assert machine.code == 200
    opens = sorted({at for at, _ in machine.counts()})
    assert opens == list(range(opens[0], opens[-1] + 1, 2000))
    assert len(opens) >= 14
    size = 20 if "window" in sections and "slide" in sections["window"] else 10
    assert all(abs(n - size) <= 2 for at, n in machine.counts() if opens[1] < at < opens[-1] - 2000)
    assert machine.rejected == {}


def test_users_of_all_keys_are_held_together(tmp_path):
    machine = Machine(tmp_path, **JOINT)
    fields = [{"site": site, "who": f"{site}{k}"} for site in "xy" for k in range(4)]
    machine.run(8, per_s=1, fields=fields)
    before = machine.counts()
    assert before
    machine.passes(0, HOUR)
    machine.run(6, per_s=1, fields=fields)
    assert (machine.code, machine.counts()) == (503, before)
    machine.passes(0, -HOUR)
    machine.run(8, per_s=1, fields=fields)
    assert machine.code == 200
    assert len(machine.counts()) > len(before) + 6
    assert machine.rejected == {}


def test_windows_that_are_due_for_a_minute_are_told(tmp_path):
    machine = Machine(tmp_path)
    machine.run(10, per_s=5)
    from fcstream.service.session import Session

    close, Session._close = Session._close, lambda self: None
    try:
        machine.run(50, per_s=1)
        assert machine.code == 200
        machine.run(70, per_s=1)
    finally:
        Session._close = close
    assert machine.code == 503
    assert "windows are overdue: one should have been released at 2026-01-01 00:00:1" in machine.text
    assert machine.metrics["fcstream_unready", "overdue"] == 1
    assert machine.metrics["fcstream_lag_seconds", None] > 60
    machine.run(10)
    assert machine.code == 200
