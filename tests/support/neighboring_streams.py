"""Two neighboring streams through the whole engine, and how well what their windows print tells them apart.

Two empirical lower bounds of joint outputs: of epsilon (`audit/test_releases.py`), and of rho by way of the
Kullback-Leibler divergence, which sees more with few runs. The tested number is the log-likelihood ratio of an
adversary who knows everything but the changed records, so that a fault shows where it can.
"""

from __future__ import annotations

import math

import numpy as np

from fcstream import Engine, Noise, SeededEntropy
from fcstream.accounting.losses import epsilon_tight
from fcstream.config import Config
from fcstream.ledgers.memory import MemoryLedger
from fcstream.releases.averages import BallAverage
from support.audits import epsilon_lower_bound, rho_lower_bound
from support.helpers import sample

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


class Tracked:
    """Tracking means of windows with known points, and one record more just within the ball that they leave."""

    def __init__(self, shape, points):
        self.shape = shape
        job = Config.from_mapping(sample(**shape)).job
        self.grid, self.mechanism = job.grid, job.answers[0].mechanism.inner
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
