"""Two neighboring streams through the whole engine: what all their windows print must stay below the claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.audits import rho_lower_bound
from support.helpers import rows, sample
from support.neighboring_streams import (
    BALL,
    CENTER,
    COUNT,
    LIVE,
    TRACKING,
    USERS,
    Tracked,
    at_center,
    audit,
    evidence_of,
    evidence_of_users,
    holds,
    one_more,
    play,
    until,
    user_stream,
)

from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.config import Config
from fcstream.ledgers.base import TOTAL_BLOCK, USER_BLOCK
from fcstream.releases.statistics.count import NoisyCount


def is_sharp(bounds, rho, share=0.45):
    """Whether they would have seen a loss not much larger than the claim."""
    return bounds[1] > share * rho


def test_the_bound_itself_is_right():
    """Two Gaussians of known divergence: the bound is below the truth and not far."""
    rng = np.random.default_rng(0)
    for rho in (0.25, 1.0):
        one, two = (rng.normal(mean, 1.0, size=(4000, 1)) for mean in (0.0, math.sqrt(2 * rho)))
        assert 0.6 * rho < rho_lower_bound(one, two) < rho


@pytest.mark.parametrize("release", [COUNT, BALL], ids=["count", "ball"])
def test_unit_event_tumbling(release):
    bounds = audit(
        at_center(3, 12), one_more([12_000]), evidence_of([1], 12), window=until(3), release={**release, "rho": 0.5}
    )
    assert holds(bounds, 0.5)
    assert is_sharp(bounds, 0.5)


@pytest.mark.parametrize("release", [COUNT, BALL], ids=["count", "ball"])
def test_unit_event_sliding(release):
    """The record lies in three windows, and its pane pays for all of them."""
    window = {**until(3), "slide": "4s"}
    shape = {"window": window, "release": {**release, "rho": 0.25}, "budget": {"rho": 0.75}}
    base = [(np.arange(30) * 1000, np.tile(CENTER, (30, 1)), {})]
    schedule = Config.from_mapping(sample(**shape)).job.schedule
    covering = [k for k in range(schedule.count) if 0 <= 13_000 - schedule.window(k).open_ms < 10_000]
    assert len(covering) == schedule.overlap == 3
    bounds = audit(base, one_more([13_000]), evidence_of(covering, 10), 800, **shape)
    assert holds(bounds, 0.75)
    assert is_sharp(bounds, 0.75)


@pytest.mark.parametrize("per_user", ["first", "mean"])
def test_unit_user(per_user):
    """A user with records in every window, whose budget lets them take part in two."""
    base, extra, shape = user_stream(per_user, 4, 2, BALL)
    bounds = audit(base, extra, evidence_of_users(4, 2), **shape)
    assert holds(bounds, 0.5)
    assert is_sharp(bounds, 0.5)


@pytest.mark.parametrize("savings", ["even", "paper"])
def test_unit_stream_with_savings(savings):
    """Windows at the border of too few: what goes back, and so what later ones are offered, differs between runs."""
    shape = {
        "stream": {"unit": "stream"},
        "window": until(4),
        "release": {**BALL, "rho": 0.25},
        "budget": {"rho": 1.0, "savings": savings},
    }
    base, extra = at_center(4, 6), one_more(10_000 * k for k in range(4))
    costs = {tuple(round(r.rho, 6) for r in run) for run in play(base, 50, 3, **shape)}
    assert len(costs) > 8
    bounds = audit(base, extra, evidence_of(range(4), 6), **shape)
    assert holds(bounds, 1.0)
    assert is_sharp(bounds, 1.0)


def test_unit_stream_with_savings_at_the_gate_of_a_core():
    """The noisy size of the core filter decides whether most of the budget goes back."""
    shape = {
        "stream": {"unit": "stream"},
        "window": until(3),
        "release": {"rho": 0.5, "size_hint": 120},
        "budget": {"rho": 1.5, "savings": "even"},
    }
    least = Config.from_mapping(sample(**shape)).job.answers[0].mechanism.inner.min_count
    points = rows(max(1, least), 1, CENTER)
    base = [(np.full(len(points), 10_000 * k), points, {}) for k in range(3)]

    def read(answers):
        return [
            sum(r.count for r in answers),
            sum(r.rho for r in answers),
            float(sum(r.value is not None for r in answers)),
        ]

    extra = one_more((10_000 * k for k in range(3)), points[0])
    stopped = np.array([[r.rho < 0.1 for r in run] for run in play(base, 50, 3, **shape)])
    assert 0.1 < stopped.mean() < 0.9
    assert holds(audit(base, extra, read, 500, **shape), 1.5, 3e-9)


@pytest.mark.parametrize("unit", ["event", "stream"])
def test_tracking_mean(unit):
    """The record lies just within the ball that the window before has left, in one window or in each."""
    cap, windows = (0.5, [1]) if unit == "event" else (2.0, [0, 1, 2, 3])
    count = 3 if unit == "event" else 4
    shape = {"stream": {"unit": unit}, "window": until(count), "release": TRACKING, "budget": {"rho": cap}}
    stream = Tracked(shape, [rows(250, k, CENTER) for k in range(count)])
    extra = one_more((10_000 * k for k in windows), stream.far)
    bounds = audit(stream.base, extra, stream.evidence(windows), 900, **shape)
    assert holds(bounds, cap, 4e-9)
    assert is_sharp(bounds, cap, 0.35)


def test_tracking_mean_at_the_border_of_drift():
    """So many records lie outside in the second window that noise decides whether the third starts cold."""
    shape = {"stream": {"unit": "stream"}, "window": until(3), "release": TRACKING, "budget": {"rho": 1.5}}
    points = [rows(250, k, CENTER) for k in range(3)]
    points[1][:130] = [25.0, 50.0]
    stream = Tracked(shape, points)
    drifts = [run[1].track.drift for run in stream.trial]
    assert 0.1 < np.mean(drifts) < 0.9
    extra = one_more([0, 10_000, 20_000], stream.far)
    assert holds(audit(stream.base, extra, stream.evidence([0, 1, 2]), 500, **shape), 1.5, 3e-9)


@pytest.mark.parametrize("stream", [{"unit": "event"}, USERS], ids=["event", "user"])
def test_a_total_on_top(stream):
    """Eight windows at the border of too few, refunds, and a total of two windows' worth for all of them together."""
    shape = {
        "stream": stream,
        "window": until(8),
        "release": {**BALL, "rho": 0.25},
        "budget": {"rho": 2.0, "total_rho": 0.5},
    }
    ids = ({"ids": np.arange(48)}, {"ids": ["x"] * 8}) if stream is USERS else ({}, {})
    base, extra = at_center(8, 6, **ids[0]), one_more((10_000 * k for k in range(8)), **ids[1])
    answered = {sum(r.reason != "budget_exhausted" for r in run) for run in play(base, 50, 3, **shape)}
    assert len(answered) > 1
    bounds = audit(base, extra, evidence_of(range(8), 6), **shape)
    assert holds(bounds, 0.5)
    assert is_sharp(bounds, 0.5)


def test_a_record_held_back_does_not_show_in_what_was_spent():
    """It is late for one window and in time for the next: no more than that next window's noisy answer may tell."""
    answers = []
    for stray in (False, True):
        engine = Engine(sample(window={"slide": "5s", **LIVE}), noise=Noise(SeededEntropy(1)))
        if stray:
            engine.push([6_001], rows(1), arrival_ms=12_001)
        answers.append(engine.advance(60_000))
    without, with_it = ([(r.window_open_ms, r.reason, r.rho, r.spent) for r in run] for run in answers)
    assert without == with_it
    assert without[1][-1]["rho"] == pytest.approx(without[0][2] + without[1][2])


def test_no_id_stops_a_window_or_shares_a_budget():
    """Text that UTF-8 cannot write, whole numbers of any length: one odd id is nobody else's matter."""
    rejected = []
    shape = {"stream": USERS, "release": {**COUNT, "rho": 500.0}, "budget": {"rho": 1000.0}}
    engine = Engine(sample(**shape), noise=Noise(SeededEntropy(1)), on_rejection=rejected.extend)
    odd = ["\ud800", "ü", "\udcc3\udcbc", "ü".encode(), b"\xff", "\udcff", 10**5000]
    for k in range(3):
        engine.push([10_000 * k] * 7, rows(7), ids=odd)
    engine.push([20_000], rows(1), ids=["\udcc3\udcbc late"])
    places = [(r.reason, r.position) for r in rejected]
    assert places == [("bad_user", i) for i in (0, 2, 5, 6)] * 3 + [("bad_user", 0)]
    assert [r.count for r in engine.close()] == [2, 2, None, None, None, None]  # "ü" and its bytes are one user


def test_who_is_always_there_may_have_no_room():
    """Then a window is refused for everybody, newcomers too, and costs nothing."""
    shape = {"stream": USERS, "budget": {"rho": 1.01}}
    engine = Engine(sample(**shape), noise=Noise(SeededEntropy(1)))
    engine.push([20_000] * 300, rows(300), ids=np.arange(300))
    answers = engine.close()
    assert [r.reason for r in answers] == ["too_few"] + ["budget_exhausted"] * 5
    first = answers[0].rho
    assert [r.spent["rho"] for r in answers] == [first] * 6  # 1 more than that is past 1.01
    assert engine._ledger.spent(USER_BLOCK).rho == pytest.approx(first)


def test_a_second_try_for_users_counts_nobody_twice(monkeypatch):
    """The first draw fails; until the second, somebody else comes, whom the public charge covers too."""
    shape = {"stream": USERS, "release": {**COUNT, "rho": 500.0}, "budget": {"rho": 500.0}, "window": LIVE}
    engine = Engine(sample(**shape), noise=Noise(SeededEntropy(1)))
    engine.push([0] * 9, rows(9), ids=np.arange(9), arrival_ms=0)
    real = NoisyCount.release
    monkeypatch.setattr(NoisyCount, "release", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.advance(12_001)
    monkeypatch.setattr(NoisyCount, "release", real)
    engine.push([0] * 3, rows(3), ids=[7, 8, 9], arrival_ms=1)
    assert [r.count for r in engine.advance(12_001)] == [10]
    engine.push([10_000] * 10, rows(10), ids=np.arange(10), arrival_ms=10_000)
    assert [r.reason for r in engine.advance(22_001)] == ["budget_exhausted"]


def test_refunds_reach_the_total_and_the_unit_alike():
    shape = {"stream": USERS, "budget": {"rho": 6.0, "total_rho": 3.0, "total_delta": 1e-6}}
    engine = Engine(sample(**shape), noise=Noise(SeededEntropy(1)))
    engine.push(np.full(300, 20_000), rows(300), ids=np.arange(300))
    answers = engine.close()
    assert [r.reason for r in answers] == ["too_few", "too_few", None, "too_few", "too_few", "too_few"]
    assert engine._ledger.spent(TOTAL_BLOCK) == engine._ledger.spent(USER_BLOCK)
    assert engine._ledger.spent(TOTAL_BLOCK).rho == pytest.approx(sum(r.rho for r in answers), abs=1e-8)


def test_a_track_read_back_is_the_track_that_was():
    """A restarted engine goes on from exactly what the first one would have gone on from."""
    [answers] = play(
        [(np.full(250, 10_000 * k), rows(250, k, CENTER), {}) for k in range(4)],
        1,
        4,
        window=until(4),
        release=TRACKING,
    )
    assert all(Release.from_bytes(r.to_bytes()) == r for r in answers)
