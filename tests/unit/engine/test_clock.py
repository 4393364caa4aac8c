"""Engines with clock ``wall`` inside another process, and a clock that jumps."""

import numpy as np
import pytest
from support.helpers import sample

from fcstream import ConfigError, Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.engine.discovering import DiscoveringEngine
from fcstream.runtime.wall_clock import WallClock

NOW = 1_767_225_600_000
HOUR, DAY = 3_600_000, 86_400_000
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "rho": 50.0, "delta": None}


class Times:
    def __init__(self):
        self.wall, self.elapsed = NOW, 0

    def passes(self, ms, jump=0):
        self.elapsed += ms
        self.wall += ms + jump


def made(times, folder=None, clock="wall", make=Engine, **sections):
    window = {"clock": clock, "length": "2s", "lateness": "1s", "start": "now", "end": None, "backlog": "0s"}
    if folder is not None:
        sections["ledger"] = {"url": f"sqlite:{folder / 'l.db'}"}
    config = sample(window=window | sections.pop("window", {}), release=COUNT, budget={"rho": 1000.0}, **sections)
    wall = WallClock("t", 1000, wall=lambda: times.wall, elapsed=lambda: times.elapsed)
    return make(config, noise=Noise(SeededEntropy(0)), clock=wall)


def push(engine, at, n=10, *more):
    return engine.push(np.full(n, at), np.full((n, 2), 20.0), *more)


def counts(releases):
    return [(r.window_open_ms - NOW, round(r.count)) for r in releases]


def test_advance_takes_the_clock_of_the_machine():
    times = Times()
    engine = made(times)
    assert push(engine, NOW + 1) == []
    times.passes(3_001)
    assert counts(engine.advance()) == [(0, 10)]


@pytest.mark.parametrize("clock", ["broker", "eof"])
def test_other_clocks_must_be_told_the_time(clock):
    end = "2026-01-02T00:00:00Z"
    window = {"start": "2026-01-01T00:00:00Z", "end": end} | ({"backlog": None} if clock == "eof" else {})
    engine = made(Times(), clock=clock, window=window)
    with pytest.raises(ConfigError, match=f"now_ms.* must be given with clock = '{clock}'"):
        engine.advance()


@pytest.mark.parametrize("explicit", [False, True])
def test_a_jump_closes_nothing_and_loses_nothing(explicit, caplog):
    times = Times()
    engine = made(times)
    assert push(engine, NOW + 1) == []
    times.passes(1_000, HOUR)
    assert push(engine, NOW + 1_001, 5) == []  # by a sender that knows the time
    assert push(engine, NOW + HOUR + 1_001, 5) == []  # by one whose clock jumped too
    times.passes(10_000)
    assert engine.advance(*([times.wall] if explicit else [])) == engine.tick() == []
    assert "3,600.0 s ahead of the time that has passed" in engine.clock.hold
    assert "call `clock.accept()` of the engine" in caplog.text
    assert engine.rejected == {}
    times.passes(0, -HOUR)
    assert counts(engine.advance())[:2] == [(0, 15), (2000, 0)]
    engine.clock.accept()
    assert engine.clock.hold is None


def test_a_jump_that_is_accepted_closes_what_is_over():
    times = Times()
    engine = made(times)
    push(engine, NOW + 1)
    times.passes(1_000, HOUR)
    assert push(engine, times.wall) == []
    engine.clock.accept()
    found, times.elapsed, times.wall = [], times.elapsed + 5000, times.wall + 5000
    while group := engine.advance():
        found += group
    assert len(found) == 1802
    assert [each for each in counts(found) if each[1] > 3] == [(0, 10), (HOUR, 10)]


@pytest.mark.parametrize("off", [2 * DAY, 3650 * DAY, -HOUR])
def test_a_restart_is_compared_with_the_ledger(tmp_path, off):
    times = Times()
    engine = made(times, tmp_path)
    push(engine, NOW + 1)
    times.passes(3_001)
    assert len(engine.advance()) == 1
    engine.close()
    again = Times()
    again.passes(10_000, off)
    engine = made(again, tmp_path)
    engine.unpublished()
    assert engine.advance() == []
    assert "the newest time known" in engine.clock.hold
    engine.clock.accept()
    assert engine.clock.hold is None


KEYS = {"stream": {"key": "site", "keys": ["x", "y"]}}
FOUND = {
    "stream": {
        "key": "site",
        "keys": {"discover": "frequent", "every": "4s", "rho": 50.0, "delta": 1e-9, "first": ["x"]},
    }
}


def test_engines_of_all_keys_are_held_together():
    times = Times()
    engine = made(times, make=KeyedEngine, **KEYS)
    push(engine, NOW + 1, 10, ["x"] * 5 + ["y"] * 5)
    times.passes(3_001)
    assert len(engine.advance()) == 2
    times.passes(1_000, HOUR)
    assert push(engine, NOW + 4_000, 10, ["x"] * 5 + ["y"] * 5) == engine.advance() == []
    times.passes(4_000, -HOUR)
    assert [(r.window_open_ms - NOW, round(r.count)) for r in engine.advance()] == [(2000, 0), (4000, 5)] * 2
    assert engine.rejected == {}


def test_an_engine_that_finds_its_keys_is_held():
    times = Times()
    engine = made(times, make=DiscoveringEngine, **FOUND)
    push(engine, NOW + 1, 10, ["x"] * 10)
    times.passes(5_001)
    assert len(engine.advance()) == 3  # two windows of the key, and the search
    times.passes(1_000, HOUR)
    assert push(engine, NOW + 6_000, 10, ["x"] * 10) == engine.advance() == []
    assert engine.clock.hold is not None
    times.passes(6_000, -HOUR)
    assert len(engine.advance()) >= 3
