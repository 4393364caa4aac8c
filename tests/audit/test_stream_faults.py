"""Faults planted into the engine: each must be caught by a detector that is quiet without it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats
from support.audits import Weak
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

import fcstream.engine.closing as closing_module
from fcstream import Engine, Noise, PrivacyLoss, SeededEntropy
from fcstream.config import Config
from fcstream.errors import LedgerDamaged
from fcstream.formats.batch import SeenPositions
from fcstream.ledgers.memory import MemoryLedger
from fcstream.ledgers.sqlite.ledger import SQLiteLedger


def has_the_claimed_scale(scores):
    """Whether a chi-square test believes that the scores are standard normal in size."""
    return 1e-4 < stats.chi2.cdf(float(np.sum(np.square(scores))), len(scores)) < 1 - 1e-4


def scores_of(kind, factor):
    """Noise of many windows in units of what it should be."""
    noise, windows, n = Weak(SeededEntropy(5), factor), 400, 100
    shape = {"release": {**BALL, "rho": 0.05}, "window": until(windows)}
    if kind == "count":
        [answers] = play([], 1, 0, noise=noise, window=shape["window"], release={**COUNT, "rho": 0.01})
        return [r.count / r.sigma[0] for r in answers]
    if kind == "user":
        shape |= {"stream": USERS, "budget": {"rho": 40.0}}
    options = {"ids": np.tile(np.arange(n), windows)} if kind == "user" else {}
    [answers] = play(at_center(windows, n, **options), 1, 0, noise=noise, **shape)
    return np.concatenate([(np.array(r.value) - CENTER) / r.sigma for r in answers])


@pytest.mark.parametrize("factor", [1.0, 0.7, 1.3])
@pytest.mark.parametrize("kind", ["count", "ball", "user"])
def test_fault_noise_of_another_scale(kind, factor):
    """Noise x 0.7 is caught, x 1.3 as well, and the right one is not."""
    scores = scores_of(kind, factor)
    assert len(scores) >= 400
    assert has_the_claimed_scale(scores) == (factor == 1.0)


@pytest.mark.parametrize("factor", [1.0, 0.7, 1.3])
def test_fault_noise_of_another_scale_when_tracking(factor):
    shape = {"release": TRACKING, "window": until(120)}
    stream = Tracked(shape, [rows(250, k, CENTER) for k in range(120)])
    [answers] = play(stream.base, 1, 0, noise=Weak(SeededEntropy(6), factor), **shape)
    scores = np.concatenate([stream.scores(answers[k - 1].track, stream.points[k], answers[k]) for k in range(1, 120)])
    assert len(scores) > 100
    assert has_the_claimed_scale(scores) == (factor == 1.0)


class Listening(SeededEntropy):
    def __init__(self, seed, log):
        super().__init__(seed)
        self._log = log

    def words(self, count):
        self._log.append(("draw", None))
        return super().words(count)


class Diary:
    """A ledger whose calls are noted when they have returned."""

    def __init__(self, ledger, log):
        self._ledger, self._log = ledger, log

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def charge(self, requests):
        results = self._ledger.charge(requests)
        self._log += [("charged", result.window.open_ms) for result in results if result.charge]
        return results

    def seal(self, answers):
        self._ledger.seal(answers)
        self._log += [("sealed", answer.window.open_ms) for answer in answers]


class Lazy:
    """The fault: verdicts come from a copy in memory, and the charge is written when the answers are there."""

    def __init__(self, ledger):
        self._ledger, self._copy, self._later = ledger, MemoryLedger(ledger.terms), []

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def charge(self, requests):
        self._later = requests
        return self._copy.charge(requests)

    def seal(self, answers):
        self._ledger.charge(self._later)
        self._ledger.seal(answers)


def draws_before_their_charge(log):
    """How many draws were made for a window that was not charged yet, or was sealed already, or for none."""
    charged, window, bad = set(), None, 0
    for what, which in log:
        if what == "charged":
            charged.add(which)
        elif what == "sealed":
            charged.discard(which)
        elif what == "draw":
            bad += window not in charged
        else:
            window = which
    return bad


@pytest.mark.parametrize("fault", [False, True])
@pytest.mark.parametrize("kind", ["event", "sliding", "user", "stream", "tracking"])
def test_fault_charge_after_noise(kind, fault, tmp_path, monkeypatch):
    shapes = {
        "event": {"release": {**COUNT, "rho": 0.5}},
        "sliding": {"window": {"slide": "5s"}, "release": {**BALL, "rho": 0.5}},
        "user": {"stream": USERS, "release": {**BALL, "rho": 0.5}},
        "stream": {"stream": {"unit": "stream"}, "budget": {"rho": 6.0, "savings": "even"}},
        "tracking": {"release": {"method": "tracking"}},
    }
    log = []
    config = Config.from_mapping(sample(**shapes[kind]))
    ledger = SQLiteLedger(str(tmp_path / "l.db"), config.job.terms)
    noted = Diary(Lazy(ledger), []) if fault else Diary(ledger, log)
    if fault:  # what reaches the real ledger is what counts
        noted._ledger._ledger = Diary(ledger, log)
    engine = Engine(config, ledger=noted, noise=Noise(Listening(1, log)))
    assert log == [("draw", None)] * (kind == "user")  # the key by which texts and users are put in order
    log.clear()
    real = closing_module.WindowCloser._release

    def release(self, window, *rest):
        log.append(("window", window.open_ms))
        return real(self, window, *rest)

    monkeypatch.setattr(closing_module.WindowCloser, "_release", release)
    times, points = np.repeat(np.arange(6) * 10_000, 300), rows(1800)
    engine.push(times, points, **({"ids": np.arange(1800)} if kind == "user" else {}))
    assert {r.reason for r in engine.close()} == {None}
    engine.abort()
    assert sum(what == "draw" for what, _ in log) >= 6
    assert (draws_before_their_charge(log) > 0) == fault


def panes_in_the_red(engine, answers):
    """Panes whose filter does not hold exactly what the releases that cover them cost."""
    schedule, owed = engine.job.schedule, {}
    for r in answers:
        for pane in range((r.window_close_ms - r.window_open_ms) // schedule.pane_ms):
            opens = r.window_open_ms + pane * schedule.pane_ms
            cost = PrivacyLoss(round(r.rho * 1e9), round(r.delta * 1e15))
            owed[opens] = owed.get(opens, PrivacyLoss()) + cost
    return [opens for opens, loss in owed.items() if engine._ledger.spent(str(opens)) != loss]


@pytest.mark.parametrize("fault", [False, True])
@pytest.mark.parametrize("release", [{**COUNT, "rho": 0.5}, {"rho": 0.5}], ids=["count", "recentered"])
def test_fault_a_pane_that_is_not_charged(release, fault, monkeypatch):
    real = closing_module.request

    def forgetful(job, window, loss):
        request = real(job, window, loss)
        return dataclasses.replace(request, blocks=request.blocks[:-1] if window.index == 2 else request.blocks)

    if fault:
        monkeypatch.setattr(closing_module, "request", forgetful)
    engine = Engine(sample(window={"slide": "4s"}, release=release), noise=Noise(SeededEntropy(1)))
    engine.push(np.arange(900) * 20, rows(900))  # later windows are empty: part of their charges goes back
    answers = engine.close()
    assert panes_in_the_red(engine, answers) == ([16_000] if fault else [])


@pytest.mark.parametrize("fault", [False, True])
def test_fault_a_duplicate_that_counts(fault, monkeypatch):
    """The changed record is delivered five times, at one position."""
    if fault:
        monkeypatch.setattr(SeenPositions, "fresh", lambda self, positions: np.ones(len(positions), bool))
        monkeypatch.setattr(SeenPositions, "add", lambda self, positions: None)
    base = at_center(2, 12, positions=np.arange(24))
    again = [more for _ in range(5) for more in one_more([12_000], positions=[99])]
    shape = {"window": until(2), "release": {**COUNT, "rho": 0.5}}
    bounds = audit(base, again, evidence_of([1], 12), 600, **shape)
    assert holds(bounds, 0.5) == (not fault)
    [answers] = play([*base, *again], 1, 0, window=until(2), release={**COUNT, "rho": 500.0}, budget={"rho": 500.0})
    assert [r.count for r in answers] == [12, 17 if fault else 13]


def with_a_stray(stray, clock):
    """Answers of the first six windows, and what was rejected, with a record stamped in the future or without."""
    rejected = []
    window = {**LIVE, "ahead": "1h"} if clock == "broker" else {"end": "1970-01-01T02:00:00Z"}
    shape = sample(window=window, release={**COUNT, "rho": 0.5})
    engine = Engine(shape, noise=Noise(SeededEntropy(7)), on_rejection=rejected.extend)
    for k in range(6):
        arrival = {"arrival_ms": 10_000 * k + 11_000} if clock == "broker" else {}
        engine.push(np.full(50, 10_000 * k), rows(50), **arrival)
        if stray and k == 0:
            engine.push([60 * 50_000], rows(1), **arrival)
    answers = engine.close() if clock == "eof" else engine.advance(72_000)
    return [r.to_bytes() for r in answers[:6]], [r.reason for r in rejected]


@pytest.mark.parametrize("fault", [False, True])
@pytest.mark.parametrize("clock", ["eof", "broker"])
def test_fault_a_clock_made_of_timestamps(clock, fault, monkeypatch):
    """A record stamped 50 minutes ahead, which is allowed, changes no byte of the windows before."""
    real = Engine.take

    def watermark(self, batch, arrivals=None, *, identified=False):
        real(self, batch, arrivals, identified=identified)
        self._acknowledge_and_close(int(batch.times_ms.max()))

    if fault:
        monkeypatch.setattr(Engine, "take", watermark)
    same = with_a_stray(True, clock) == with_a_stray(False, clock)
    assert same == (not fault)
    if not fault:
        assert with_a_stray(True, clock)[1] == []


@pytest.mark.parametrize("fault", [False, True])
def test_fault_a_window_of_users_that_charges_no_public_block(fault, monkeypatch):
    ask = closing_module.request

    def forgetful(*arguments):
        return dataclasses.replace(ask(*arguments), blocks=())

    if fault:
        monkeypatch.setattr(closing_module, "request", forgetful)
    base, extra, shape = user_stream("first", 10, 1, COUNT)
    assert holds(audit(base, extra, evidence_of_users(10, 1), 300, **shape), 0.25) == (not fault)
    shape = {**shape, "release": {**COUNT, "rho": 500.0}, "budget": {"rho": 500.0}}
    [answers] = play([*base, *extra], 1, 0, **shape)
    assert [r.count for r in answers] == [10] + [10 if fault else None] * 9


def published_around_a_crash(tmp_path, between=lambda: None):
    """All bytes that left two engines on one ledger, by window; the first dies when it has published two windows."""
    shape = {"window": LIVE, "release": {**COUNT, "rho": 0.5}, "ledger": {"url": f"sqlite:{tmp_path / 'l.db'}"}}
    left = {}

    def publish(answers):
        for r in answers:
            left.setdefault(r.window_open_ms, set()).add(r.to_bytes())

    for seed, until_ms in ((1, 23_000), (2, 60_000)):
        engine = Engine(sample(**shape), noise=Noise(SeededEntropy(seed)))
        publish(engine.unpublished())
        for k in range(5):  # pushed again after the crash
            engine.push(np.full(50, 10_000 * k), rows(50), arrival_ms=10_000 * k)
        publish(engine.advance(until_ms))
        engine._ledger.close()  # dies, nothing acknowledged
        between()
    return left


def test_fault_fresh_noise_after_a_crash(tmp_path, monkeypatch):
    left = published_around_a_crash(tmp_path)
    assert sorted(left) == [0, 10_000, 20_000, 30_000, 40_000]
    assert {len(answers) for answers in left.values()} == {1}
    # The fault: sealing stores nothing, so the restarted engine finds charged windows and draws again.
    (tmp_path / "b").mkdir()
    monkeypatch.setattr(SQLiteLedger, "seal", lambda self, answers: None)
    left = published_around_a_crash(tmp_path / "b", monkeypatch.undo)
    assert [len(left[opens]) for opens in sorted(left)] == [2, 2, 1, 1, 1]


def test_fault_an_older_copy_of_the_ledger(tmp_path):
    """Put in place after a crash it would have windows answered again. The witness knows; without it, it shows."""
    path, copies = tmp_path / "l.db", []

    def keep_and_put_back():
        if not copies:
            copies.append(True)
            path.write_bytes(before)

    Engine(sample(window=LIVE, release={**COUNT, "rho": 0.5}, ledger={"url": f"sqlite:{path}"})).abort()
    before = path.read_bytes()
    with pytest.raises(LedgerDamaged, match="older copy"):
        published_around_a_crash(tmp_path, keep_and_put_back)
    for name in ("l.db", "l.db-witness"):
        (tmp_path / name).unlink()
    copies.clear()
    path.write_bytes(before)

    def without_witness():
        keep_and_put_back()
        (tmp_path / "l.db-witness").unlink(missing_ok=True)

    left = published_around_a_crash(tmp_path, without_witness)
    assert [len(left[opens]) for opens in sorted(left)] == [2, 2, 1, 1, 1]
