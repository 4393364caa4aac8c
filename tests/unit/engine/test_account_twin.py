"""Budgets of users against slow twins, over processes that die and calls that fail: who counts, what is paid, what goes
back.
"""

import contextlib
import random

import numpy as np
import pytest
from support.helpers import ledger_of, rows, sample
from support.naive_account import Account, Answer, Users

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.accounting.losses import RHO_UNIT
from fcstream.config import Config
from fcstream.ledgers.base import USER_BLOCK
from fcstream.releases.answers import Answers

KEYS = ["paris", "rome", "oslo"]
BARE = dict.fromkeys(("method", "spread", "radius", "delta", "size_hint"))
RHO = 500.0  # of an answer: its noise is 0
WINDOWS = {"plain": {}, "sliding": {"slide": "5s"}}


def seeds(first):
    """Of so many scenarios, the last few in PostgreSQL."""
    return [pytest.param(first + k, ("sqlite", "postgresql")[k >= 24], id=f"{first + k}") for k in range(28)]


@pytest.fixture
def url(request, ledger, tmp_path):
    return f"sqlite:{tmp_path / 'l.db'}" if ledger == "sqlite" else request.getfixturevalue("postgres").url


class Fails(Exception):
    pass


class Scenario:
    """A configuration, records, and which calls fail where, all drawn."""

    def __init__(self, seed, url, *, keyed):
        draw = self.draw = random.Random(seed)
        kinds = draw.choice([["count"], ["quantiles"], ["count", "quantiles"]])
        releases = [
            {"name": f"of {kind}", "kind": kind, "rho": RHO}
            | ({"feature": "a", "quantiles": [0.5]} if kind == "quantiles" else {})
            for kind in kinds
        ]
        self.most = draw.randint(1, 3) if keyed else 1
        cap = RHO * len(kinds) * self.most * draw.choice([2.5, 4.3, 100])
        stream = {"unit": "user", "user": "who"}
        if keyed:
            stream |= {"key": "site", "keys": KEYS, "keys_per_user": self.most, "key_budgets": "shared"}
        mapping = sample(
            stream=stream,
            ledger=ledger_of(url),
            window=draw.choice(list(WINDOWS.values())) | {"end": "1970-01-01T00:00:50Z"},
            budget={"rho": cap, "exhausted": "refuse"},
        )
        mapping["release"] = releases if len(releases) > 1 else {**releases[0]}
        self.config = Config.from_mapping(mapping)
        schedule = self.config.job.schedule
        windows = [schedule.window(i) for i in range(schedule.count)]
        self.windows = [(window.open_ms, window.close_ms) for window in windows]
        self.answers = []
        for kind, answer in zip(kinds, self.config.job.answers, strict=True):
            made = answer.mechanism
            inner = getattr(made, "inner", made)
            least, first = (0, 0) if kind == "count" else (inner.min_count, inner.shares[0].rho_nano)
            self.answers.append(Answer(kind, least, first, inner.loss.rho_nano))
        self.cap = self.config.job.terms.cap(USER_BLOCK).rho_nano
        size = draw.choice([8, 60, 250])
        users = draw.choice([3, 12, 40])
        self.records = sorted(
            (draw.randrange(52_000), draw.choice(KEYS), f"u{draw.randrange(users)}") for _ in range(size)
        )

    def known(self, everything):
        """What a process reads: all, or half of it."""
        half = not everything and self.draw.random() < 0.5
        return sorted(self.draw.sample(self.records, len(self.records) // 2)) if half else self.records

    def push(self, engine, records, *, keyed):
        """Read from the beginning, as a source does after a restart."""
        times, keys, ids = (list(column) for column in zip(*records, strict=True)) if records else ([], [], [])
        given = (keys,) if keyed else ()
        engine.push(np.array(times, np.int64), rows(len(times)), *given, ids=ids, positions=np.arange(len(times)))


def failing(monkeypatch, fault):
    """Let the draws of a window fail: the first `skip` of them are good, `times` are not, then all are."""
    release = Answers.release

    def broken(self, view, charge, noise):
        if fault and charge.window.open_ms == fault["open"]:
            fault["skip"] -= 1
            if fault["skip"] < 0 <= fault["skip"] + fault["times"]:
                raise Fails
        return release(self, view, charge, noise)

    monkeypatch.setattr(Answers, "release", broken)


def told(releases):
    """What the twins tell of each window and key, exact numbers."""
    found = {}
    for each in releases:
        mine = found.setdefault(((each.window_open_ms, each.window_close_ms), each.key or ""), [])
        spent = round(each.spent["rho"] * RHO_UNIT)
        mine.append((each.reason, each.count, round(each.rho * RHO_UNIT), spent))
    return found


def close(engine, calls):
    """Close all windows, so many times: a call that failed may be tried again."""
    for _ in range(calls):
        with contextlib.suppress(Fails):
            engine.close()
            break
    engine.abort()


@pytest.mark.parametrize(("seed", "ledger"), seeds(0))
def test_an_account_of_all_keys_is_that_of_its_slow_twin(seed, ledger, url, monkeypatch):
    case = Scenario(seed, url, keyed=True)
    draw, twin = case.draw, None
    for turn in range(3):
        engine = KeyedEngine(case.config, noise=Noise(SeededEntropy(seed)))
        twin = twin or Account(case.cap, case.answers, KEYS, case.most, engine.parts[0].ledger.user_secret)
        known, fault = case.known(turn == 2), None
        untouched = [window for window in case.windows if window not in twin.public.draws]
        if untouched and turn < 2:
            window, place = draw.choice(untouched[:3]), draw.randrange(3)
            fault = (window, KEYS[place], times := draw.randint(1, 2), dies := draw.random() < 0.5)
            failing(monkeypatch, {"open": window[0], "skip": place, "times": times})
        case.push(engine, known, keyed=True)
        close(engine, 1 if fault and dies else 3)
        monkeypatch.undo()
        twin.run(case.windows, known, fault)
    last = KeyedEngine(case.config)
    assert told(last.unpublished()) == twin.found
    assert last.parts[0].ledger.spent(USER_BLOCK).rho_nano == twin.public.spent
    last.abort()


@pytest.mark.parametrize(("seed", "ledger"), seeds(100))
def test_second_draws_about_users_are_those_of_the_slow_twin(seed, ledger, url, monkeypatch):
    """A process or a call that failed drew nothing that was told; the next one may know more users."""
    case = Scenario(seed, url, keyed=False)
    draw, twin = case.draw, Users(case.cap, case.answers)
    for turn in range(4):
        engine = Engine(case.config, noise=Noise(SeededEntropy(seed)))
        known, calls = case.known(turn == 3), 1 if turn == 3 else draw.choice([1, 1, 2])
        place = len(twin.found) + draw.randrange(3)
        fails_in = case.windows[place] if turn < 3 and place < len(case.windows) else None
        if fails_in is not None:
            failing(monkeypatch, {"open": fails_in[0], "skip": 0, "times": 9})
        case.push(engine, known, keyed=False)
        close(engine, calls)
        monkeypatch.undo()
        for _ in range(calls):
            twin.run(case.windows, known, fails_in)
    last = Engine(case.config)
    assert told(last.unpublished()) == twin.found
    assert last.ledger.spent(USER_BLOCK).rho_nano == twin.public.spent
    last.abort()
