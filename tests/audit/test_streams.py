"""Two neighboring streams through the whole engine: what all their windows print must not tell them apart too well.

Two empirical lower bounds of joint outputs stay below the claim for the whole stream: of epsilon (`test_releases`), and
of rho by way of the Kullback-Leibler divergence, which sees more with few runs. The tested number is the log-likelihood
ratio of an adversary who knows everything but the changed records, so that a fault shows where it can. The second half
plants faults: each must be caught by a detector that is quiet without it.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from support.audits import Weak, epsilon_lower_bound, rho_lower_bound
from support.helpers import rows, sample

import fcstream.engine.closing as closing_module
from fcstream import ConfigError, Engine, Noise, PrivacyLoss, Release, SeededEntropy
from fcstream.accounting.losses import epsilon_tight
from fcstream.config import Config
from fcstream.errors import LedgerDamaged
from fcstream.formats.batch import SeenPositions
from fcstream.ledgers.base import TOTAL_BLOCK, USER_BLOCK
from fcstream.ledgers.memory import MemoryLedger
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.releases.averages import BallAverage
from fcstream.releases.statistics.count import NoisyCount

DELTA = 0.01
RUNS = 1000
CENTER, EDGE = [20.0, 50.0], [23.0, 50.0]
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}
BALL = {"method": "ball", "center": CENTER, "radius": 3.0, "size_hint": None, "delta": None}
LIVE = {"clock": "broker", "end": None, "lateness": "2s"}
USERS = {"unit": "user", "user": "id"}


def until(windows):
    return {"end": f"1970-01-01T{windows // 360:02}:{windows // 6 % 60:02}:{windows % 6 * 10:02}Z"}


def play(pushes, runs, seed, *, noise=None, **sections):
    """All answers of many runs of one stream, each with an engine and a ledger of its own."""
    config = Config.from_mapping(sample(**sections))
    job = config.job
    noise = noise or Noise(SeededEntropy(seed))
    found = []
    for _ in range(runs):
        ledger = MemoryLedger(job.terms)
        ledger.salt = b"repeatable"
        engine = Engine(config, ledger=ledger, noise=noise)
        for times, points, options in pushes:
            engine.push(times, points, **options)
        found.append(engine.close())
        assert ledger.spent().fits(job.terms.capacity)
    return found


def audit(base, extra, evidence, runs=RUNS, **sections):
    """Lower bounds on epsilon and rho between a stream and the same with more records.

    `evidence` reads numbers from one run's answers; the first one is the log-likelihood ratio.
    """
    one = np.array([evidence(run) for run in play(base, runs, 1, **sections)], float)
    two = np.array([evidence(run) for run in play([*base, *extra], runs, 2, **sections)], float)
    return epsilon_lower_bound(one, two, DELTA), rho_lower_bound(one, two)


def holds(bounds, rho, delta=0.0):
    """Whether the bounds leave a claim standing."""
    epsilon, divergence = bounds
    return epsilon < epsilon_tight(rho, DELTA - delta) and divergence < rho


def is_sharp(bounds, rho, share=0.45):
    """Whether they would have seen a loss not much larger than the claim."""
    return bounds[1] > share * rho


def at_center(windows, n, **options):
    """Records that all lie in the middle of the ball: the adversary knows their sum."""
    times = np.repeat(np.arange(windows) * 10_000, n)
    return [(times, np.tile(CENTER, (len(times), 1)), options)]


def one_more(times, point=EDGE, **options):
    times = list(times)
    return [(times, [list(point)] * len(times), options)]


def surprise(release, n):
    """Log-likelihood ratio of one window's answer: one record more at the ball's edge, against `n` in the middle."""
    if release.count is None:
        return 0.0
    if release.kind == "count" or release.value is None:  # the count alone was drawn, and paid for
        return 2 * release.rho * (release.count - n) - release.rho
    average = BallAverage.split(round(release.rho * 1e9), 2)
    total = (release.value[0] - CENTER[0]) * release.count / 3.0
    about_sum = (2 * total - 1) * average.sum_nano / 1e9
    return about_sum + (2 * (release.count - n) - 1) * average.count_nano / 1e9


def evidence_of(windows, n):
    def read(answers):
        chosen = [answers[k] for k in windows]
        values = [r.value[0] for r in chosen if r.value is not None]
        return [
            sum(surprise(r, n) for r in chosen),
            sum(r.count or 0 for r in chosen),
            sum(r.rho for r in answers),
            sum(values) / len(values) if values else np.nan,
        ]

    return read


def test_the_bound_itself_is_right():
    """Two Gaussians of known divergence: the bound is below the truth and not far."""
    rng = np.random.default_rng(0)
    for rho in (0.25, 1.0):
        one, two = (rng.normal(mean, 1.0, size=(4000, 1)) for mean in (0.0, math.sqrt(2 * rho)))
        assert 0.6 * rho < rho_lower_bound(one, two) < rho


# -- neighboring streams -----------------------------------------------------------------------------------------------


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


def user_stream(per_user, windows, paid, release):
    """Nine users in every window, and one more who is removed altogether; budgets last for some windows."""
    shape = {
        "stream": {**USERS, "per_user": per_user},
        "window": until(windows),
        "release": {**release, "rho": 0.25},
        "budget": {"rho": 0.25 * paid},
    }
    # Others come and go, so that every window has nine who can pay.
    base = at_center(windows, 9, ids=[f"{i} of {k // paid}" for k in range(windows) for i in range(9)])
    points = [EDGE, [-40.0, 0.0]] if per_user == "first" else [[24.0, 40.0], [22.0, 60.0]]
    times = np.arange(windows).repeat(2) * 10_000 + np.tile([0, 5], windows)
    extra = [(times, points * windows, {"ids": ["x"] * len(times)})]
    return base, extra, shape


def evidence_of_users(windows, paid):
    """As it should be, x takes part in the first windows only; a fault lets them into all."""
    first, every = evidence_of(range(paid), 9), evidence_of(range(windows), 9)
    return lambda answers: [*first(answers), *every(answers)]


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
    least = Config.from_mapping(sample(**shape)).job.mechanism.inner.least_count
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


class Tracked:
    """Tracking means of windows with known points, and one record more just within the ball that they leave."""

    def __init__(self, shape, points):
        self.shape = shape
        job = Config.from_mapping(sample(**shape)).job
        self.grid, self.mechanism = job.grid, job.mechanism.inner
        self.points = [self.grid.points(window) for window in points]
        self.base = [(np.full(len(window), 10_000 * k), window, {}) for k, window in enumerate(points)]
        self.trial = play(self.base[:3], 50, 3, **shape)
        reach = [math.sqrt(self.ball(run[1].track)[1]) * 0.001 for run in self.trial if run[1].track is not None]
        self.far = [CENTER[0] + 0.92 * min(reach), CENTER[1]]
        self.extra = self.grid.points(np.array([self.far]))[0]

    def ball(self, track):
        return np.array(track.center, float), self.mechanism._ball(track)

    def leftover(self, track, points, release):
        """The noise of a warm window's sum, given what it went on from; with its center, ball and points inside."""
        center, ball = self.ball(track)
        offsets = points - center
        inside = (offsets**2).sum(axis=1) <= ball
        value = self.grid.points(np.array([release.value]))[0]
        return (value - center) * release.core_count - offsets[inside].sum(axis=0)

    def scores(self, track, points, release):
        """The same in units of what it should be; none of a cold window."""
        if track is None or track.drift or release.value is None:
            return []
        _, ball = self.ball(track)
        return list(self.leftover(track, points, release) / math.sqrt(ball / (2e-9 * self.mechanism.average.sum_nano)))

    def surprise(self, track, points, release):
        """Log-likelihood ratio of a warm window's answer, given what it went on from."""
        center, ball = self.ball(track)
        inside = int((((points - center) ** 2).sum(axis=1) <= ball).sum())
        mine, average = self.extra - center, self.mechanism.average
        if mine @ mine > ball:
            outside = release.count - release.core_count
            return (2 * (outside - len(points) + inside) - 1) * average.count_nano / 1e9 if outside > 0 else 0.0
        found = (2 * (release.core_count - inside) - 1) * average.count_nano / 1e9
        if release.value is None:
            return found
        total = self.leftover(track, points, release)
        return found + (2 * total @ mine - mine @ mine) / ball * average.sum_nano / 1e9

    def evidence(self, windows):
        def read(answers):
            before = {k: answers[k - 1].track for k in windows if k}
            warm = [k for k, track in before.items() if track is not None and not track.drift]
            told = sum(self.surprise(before[k], self.points[k], answers[k]) for k in warm)
            values = [answers[k].value[0] for k in windows if answers[k].value is not None]
            return [
                told,
                sum(answers[k].core_count or 0 for k in windows),
                sum(answers[k].count - (answers[k].core_count or 0) for k in windows),
                sum(values) / len(values) if values else np.nan,
                float(len(warm)),
            ]

        return read


TRACKING = {"method": "tracking", "rho": 0.5, "size_hint": 250, "spread": 0.42}


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


# -- planted fault 1: noise of another scale ---------------------------------------------------------------------------


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


# -- planted fault 2: the charge comes after the noise -----------------------------------------------------------------


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


# -- planted fault 3: a pane that is not charged -----------------------------------------------------------------------


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

    def forgetful(job, window, loss, users):
        request = real(job, window, loss, users)
        return dataclasses.replace(request, blocks=request.blocks[:-1] if window.index == 2 else request.blocks)

    if fault:
        monkeypatch.setattr(closing_module, "request", forgetful)
    engine = Engine(sample(window={"slide": "4s"}, release=release), noise=Noise(SeededEntropy(1)))
    engine.push(np.arange(900) * 20, rows(900))  # later windows are empty: part of their charges goes back
    answers = engine.close()
    assert panes_in_the_red(engine, answers) == ([16_000] if fault else [])


# -- planted fault 4: a record that counts twice -----------------------------------------------------------------------


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


# -- planted fault 5: a clock made of stamps ---------------------------------------------------------------------------


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
        self._close_due(int(batch.times_ms.max()))

    if fault:
        monkeypatch.setattr(Engine, "take", watermark)
    same = with_a_stray(True, clock) == with_a_stray(False, clock)
    assert same == (not fault)
    if not fault:
        assert with_a_stray(True, clock)[1] == []


# -- planted fault 6: users who have nothing left ----------------------------------------------------------------------


@pytest.mark.parametrize("fault", [False, True])
def test_fault_exhausted_users_are_kept(fault, monkeypatch):
    import fcstream.ledgers.user_budgets as module

    real = module.charge

    def generous(*arguments):
        changed, admitted = real(*arguments)
        return changed, np.ones_like(admitted)

    if fault:
        monkeypatch.setattr(module, "charge", generous)
    base, extra, shape = user_stream("first", 10, 1, COUNT)
    assert holds(audit(base, extra, evidence_of_users(10, 1), 300, **shape), 0.25) == (not fault)
    shape = {**shape, "release": {**COUNT, "rho": 500.0}, "budget": {"rho": 500.0}}
    [answers] = play([*base, *extra], 1, 0, **shape)
    assert [r.count for r in answers] == ([10] * 10 if fault else [10] + [9] * 9)


# -- planted fault 7: fresh noise after a crash ------------------------------------------------------------------------


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


# -- what one record must not change -----------------------------------------------------------------------------------


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
    assert [(r.reason, r.position) for r in rejected] == [("bad_user", 6)] * 3
    # "ü" and its bytes are one user, the byte ff and its escape are one, the escaped bytes of "ü" are another.
    assert [r.count for r in engine.close()] == [4, 4, 1, 0, 0, 0]


def test_who_is_always_there_may_have_no_room():
    """What a window gives back then is not taken off what that somebody has spent, who was not charged for it."""
    shape = {"stream": USERS, "budget": {"rho": 1.01}}
    engine = Engine(sample(**shape), noise=Noise(SeededEntropy(1)))
    engine.push([20_000] * 300, rows(300), ids=np.arange(300))
    answers = engine.close()
    assert [r.reason for r in answers] == ["too_few", "too_few", None, "too_few", "too_few", "too_few"]
    first = answers[0].rho
    assert [r.spent["rho"] for r in answers] == [first] * 6  # 1 more than that is past 1.01
    assert engine._ledger.spent(USER_BLOCK).rho == pytest.approx(first)


def test_a_second_try_for_users_counts_nobody_twice(monkeypatch):
    """The first draw fails; until the second, somebody else comes, who was not charged."""
    shape = {"stream": USERS, "release": {**COUNT, "rho": 500.0}, "budget": {"rho": 500.0}, "window": LIVE}
    engine = Engine(sample(**shape), noise=Noise(SeededEntropy(1)))
    engine.push([0] * 9, rows(9), ids=np.arange(9), arrival_ms=0)
    real = NoisyCount.release
    monkeypatch.setattr(NoisyCount, "release", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.advance(12_001)
    monkeypatch.setattr(NoisyCount, "release", real)
    engine.push([0] * 3, rows(3), ids=[7, 8, 9], arrival_ms=1)
    assert [r.count for r in engine.advance(12_001)] == [9]
    engine.push([10_000] * 10, rows(10), ids=np.arange(10), arrival_ms=10_000)
    assert [r.count for r in engine.advance(22_001)] == [1]  # all but 9 have nothing left


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
    with pytest.raises(ConfigError):
        Config.from_mapping(sample(stream=USERS, window={"slide": "5s"}))
