"""Users of sliding windows: one point for each user and window, of that window's records, counted at its close."""

import numpy as np
import pytest
from support import naive
from support.helpers import rows, sample

from fcstream import Engine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.ledgers.base import USER_BLOCK
from fcstream.stream.contributions import user_key

USERS = {"unit": "user", "user": "id"}
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}
COUNT |= {"rho": 500.0}
SLIDES = [("10s", "5s"), ("10s", "4s"), ("12s", "3s"), ("10s", "10s")]


def read(engine, index):
    """Keys and points of a window that is about to close."""
    keys, ((_, points),) = engine._records._users.read(index, engine._records._secret)
    return {bytes(key).ljust(16, b"\0"): point.tolist() for key, point in zip(keys, points, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("per_user", ["first", "mean"])
@pytest.mark.parametrize(("length", "slide"), SLIDES)
def test_a_window_holds_the_points_of_its_own_records(length, slide, per_user):
    """Records come late, in any order, in batches of any size; each window that a record is in time for has it."""
    rng = np.random.default_rng(5)
    window = {"length": length, "slide": slide, "clock": "broker", "lateness": "3s", "end": None, "ahead": "10s"}
    config = Config.from_mapping(
        sample(stream={**USERS, "per_user": per_user}, window=window, release=COUNT, budget={"rho": 1e6})
    )
    engine, job = Engine(config, noise=Noise(SeededEntropy(1))), config.job
    schedule = job.schedule
    engine.advance(0)
    n = 600
    arrivals = np.sort(rng.integers(0, 60_000, n))
    times = np.maximum(arrivals - rng.integers(0, 9000, n), 0)
    names = [f"u{k}" for k in rng.integers(0, 25, n)]
    values = rows(n)
    points = job.grid.points(values)
    wanted = {}
    for at, time, name, point in zip(arrivals.tolist(), times.tolist(), names, points.tolist(), strict=True):
        for index in naive.windows_of(time, 0, schedule.length_ms, schedule.slide_ms, None):
            if at <= schedule.window(index).close_ms + schedule.lateness_ms:
                wanted.setdefault(index, []).append((name, time, point))
    answers, done = [], 0
    for cut in np.array_split(np.arange(n), 37):
        now = int(arrivals[cut[0]])
        while schedule.due(now) > done:
            expected = naive.user_points(*zip(*wanted.get(done, []), strict=True), per_user) if done in wanted else {}
            assert read(engine, done) == {
                user_key(engine._records._secret, name): [float(x) for x in point] for name, point in expected.items()
            }
            answers += engine.advance(schedule.window(done).close_ms + schedule.lateness_ms + 1)
            assert abs(answers[-1].count - len(expected)) <= 1
            done += 1
        engine.push(times[cut], values[cut], ids=[names[i] for i in cut.tolist()], arrival_ms=arrivals[cut])
    assert done > 4
    assert engine._ledger.spent(USER_BLOCK).rho == 500.0 * done
    assert max(len(found) for found in map(wanted.get, range(done)) if found) > 60
    assert engine._records.counter.panes == []


def test_a_user_of_two_windows_pays_for_both_and_never_more_than_the_cap():
    window = {"length": "10s", "slide": "5s"}
    engine = Engine(
        sample(stream=USERS, window=window, release=COUNT, budget={"rho": 1500.0}), noise=Noise(SeededEntropy(0))
    )
    engine.push([6000, 11_000, 21_000, 21_000], rows(4), ids=["ann", "ann", "ann", "bob"])
    found = engine.close()
    # Ann is in the windows that open at 0, 5 and 10 seconds, and has nothing left for those at 15 and 20.
    counts = {r.window_open_ms: r.count for r in found[:6]}
    assert counts == {0: 1, 5000: 1, 10_000: 1, 15_000: None, 20_000: None, 25_000: None}
    assert [r.reason for r in found[:4]] == [None] * 3 + ["budget_exhausted"]


@pytest.mark.parametrize("kind", ["mean", "quantiles", "histogram", "variance"])
def test_kinds_that_hold_records_read_one_point_of_each_user(kind):
    """The same users in windows that overlap: each window gives what it gives when it is the only one."""
    release = {
        "mean": {"rho": 5.0},
        "quantiles": {**COUNT, "kind": "quantiles", "feature": "a", "quantiles": [0.5], "rho": 5.0},
        "histogram": {**COUNT, "kind": "histogram", "feature": "a", "edges": [0.0, 20.0], "rho": 5.0},
        "variance": {"kind": "variance", "method": None, "spread": None, "rho": 5.0},
    }[kind]
    n = 600
    times, values, names = np.arange(n) * 10 + 6000, rows(n), [f"u{k % 300}" for k in range(n)]
    budget = {"rho": 1000.0, "delta": 1e-3}
    window = {"length": "10s", "slide": "5s"}

    def answered(start, slide):
        section = dict(window, slide=slide, start=f"1970-01-01T00:00:{start:02}Z")
        engine = Engine(
            sample(stream=USERS, release=release, budget=budget, window=section), noise=Noise(SeededEntropy(3))
        )
        engine.push(times, values, ids=names)
        return engine.close()[0]

    sliding, alone = answered(5, "5s"), answered(5, "10s")
    assert sliding.status == alone.status == "released"
    assert sliding.to_bytes() == alone.to_bytes()


def test_several_answers_of_windows_that_overlap_count_each_user_once_in_each():
    """Of each answer's own rows: users of another answer's rows are not there, and all pay for both."""
    answers = [{"name": "all", **COUNT}, {"name": "cold", **COUNT, "where": {"a": {"max": 20.0}}}]
    mapping = sample(stream=USERS, window={"length": "10s", "slide": "4s"}, budget={"rho": 1e6})
    engine = Engine(mapping | {"release": [clean(each) for each in answers]}, noise=Noise(SeededEntropy(2)))
    rng = np.random.default_rng(6)
    times, names, values = rng.integers(0, 60_000, 400), rng.integers(0, 90, 400), rows(400)
    engine.push(times, values, ids=[f"u{k}" for k in names])
    schedule = engine.job.schedule
    found = {(r.name, r.window_open_ms): r for r in engine.close()}
    assert len(found) == 2 * schedule.count
    for index in range(schedule.count):
        opens = schedule.window(index).open_ms
        here = [i for i in range(400) if index in naive.windows_of(times[i], 0, 10_000, 4000, schedule.count)]
        for name, those in (("all", here), ("cold", [i for i in here if values[i, 0] <= 20.0])):
            assert abs(found[name, opens].count - len({names[i] for i in those})) <= 1
    assert engine._ledger.spent(USER_BLOCK).rho == 1000.0 * schedule.count


def clean(section):
    return {name: value for name, value in section.items() if value is not None}
