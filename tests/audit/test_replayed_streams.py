"""Whole streams and their neighbors: the same releases, byte for byte, with noise that costs what was paid.

Each draw is held against the charge under which it was made, and all of them against what the releases say was paid.
"""

import copy
import os

import numpy as np
import pytest
from audit.replay import next_total
from support.helpers import rows, sample
from support.release_kinds import BARE

from fcstream import DiscoveringEngine, Engine, KeyedEngine, SeededEntropy
from fcstream.config import Config
from fcstream.engine.shared_users import UserAccount
from fcstream.ledgers.base import USER_BLOCK, Charge
from fcstream.ledgers.memory import MemoryLedger
from fcstream.noise.replay import ReplayNoise, Tape
from fcstream.releases.statistics.count import NoisyCount
from fcstream.releases.totals.memory import EpochMemory

SEEDS = int(os.environ.get("FCSTREAM_REPLAYS", "1"))
COUNT = {**BARE, "kind": "count", "rho": 0.5}
USERS = {"unit": "user", "user": "id", "per_user": "mean"}
KEYS = {"key": "site", "keys": ["a", "b", "c"], "unit": "user", "user": "who", "keys_per_user": 2}
EDGE = [23.0, 50.0]


def configured(*, answers=None, **sections):
    mapping = copy.deepcopy(sample(**{"budget": {"rho": 400.0, "delta": 1e-4}} | sections))
    if answers:
        mapping["release"] = answers
    return Config.from_mapping(mapping)


CASES = {  # the configuration, what the engine is, and the records that only the neighbor has: times, points, keywords
    "slides": ({"release": COUNT, "window": {"slide": "5s"}}, Engine, ([7000], [EDGE], {})),
    "a window without other records": ({"release": COUNT}, Engine, ([45_000], [EDGE], {})),
    "several answers": (
        {
            "answers": [
                {"name": "number", "kind": "count", "rho": 0.5},
                {"name": "inside", "kind": "mean", "method": "ball", "center": [20.0, 50.0], "radius": 3.0, "rho": 0.4},
                {"name": "again", "kind": "mean", "method": "ball", "center": [20.0, 50.0], "radius": 3.0, "rho": 0.4},
                {"name": "levels", "kind": "quantiles", "feature": "a", "quantiles": [0.2, 0.5], "rho": 0.4},
                {"name": "grown", "kind": "tree", "rho": 0.4},
            ]
        },
        Engine,
        ([7000], [EDGE], {}),
    ),
    "a track": ({"release": {"method": "tracking", "size_hint": 300}}, Engine, ([17_000], [[20.2, 49.5]], {})),
    "running totals": ({"release": {**COUNT, "kind": "total", "epoch": "1m"}}, Engine, ([17_000], [EDGE], {})),
    "a gate": (
        {
            "release": {"kind": "quantiles", **{k: v for k, v in COUNT.items() if k not in ("kind", "delta")}}
            | {"feature": "a", "quantiles": [0.5], "delta": 1e-9},
            "window": {"max_records": 300},
        },
        Engine,
        ([7000], [EDGE], {}),
    ),
    "savings": (
        {"release": COUNT, "stream": {"unit": "stream"}, "budget": {"rho": 9.0, "savings": "even"}},
        Engine,
        ([7000], [EDGE], {}),
    ),
    "users": (
        {"release": COUNT, "stream": USERS},
        Engine,
        ([1000, 2000, 13_000], [EDGE, EDGE, EDGE], {"ids": ["x"] * 3}),
    ),
    "divided keys": (
        {"release": COUNT, "stream": KEYS | {"keys_per_user": 2}},
        KeyedEngine,
        ([1000, 2000], [EDGE, EDGE], {"keys": ["a", "b"], "ids": ["x"] * 2}),
    ),
    "shared keys": (
        {"release": COUNT, "stream": KEYS | {"key_budgets": "shared"}},
        KeyedEngine,
        ([1000, 2000], [EDGE, EDGE], {"keys": ["a", "b"], "ids": ["x"] * 2}),
    ),
    "shared keys, one of which is refused": (
        {"release": {"kind": "tree", "rho": 0.5, **BARE}, "stream": KEYS | {"key_budgets": "shared"}},
        KeyedEngine,
        ([1000, 2000], [EDGE, EDGE], {"keys": ["a", "b"], "ids": ["x"] * 2}),
    ),
    "declared keys": (
        {"release": COUNT, "stream": {"key": "site", "keys": ["a", "b", "c"]}},
        KeyedEngine,
        ([1000], [EDGE], {"keys": ["a"]}),
    ),
    "found keys": (
        {
            "release": COUNT,
            "stream": {
                "key": "site",
                "keys": {"discover": "frequent", "every": "10s", "rho": 0.5, "delta": 1e-6, "first": ["a", "b"]},
            },
        },
        DiscoveringEngine,
        ([1000], [EDGE], {"keys": ["a"]}),
    ),
}


class Followed:
    """Takes down on a tape which charge is open, and what was started on it."""

    def __init__(self, monkeypatch):
        self.charge, self.number, self.nano, self.published = None, 0, 0, {}
        plain_use, plain_start = Charge.use, Charge.start

        def begin(charge):
            if charge is not self.charge:
                self.charge, self.number, self.nano = charge, self.number + 1, 0
                self.tape.window = self.number

        def use(charge, needed):
            begin(charge)
            self.nano = charge.loss.rho_nano
            plain_use(charge, needed)

        def start(charge, stage):
            begin(charge)
            self.nano += stage.rho_nano
            plain_start(charge, stage)

        monkeypatch.setattr(Charge, "use", use)
        monkeypatch.setattr(Charge, "start", start)

    def follow(self, tape):
        self.tape, self.charge, self.number, self.nano = tape, None, 0, 0
        tape.started = lambda: self.nano


def base(engine, seed):
    """Records of the first three of six windows, most of them in the first, and of keys and users if there are any."""
    random, n = np.random.default_rng(seed), 300
    times = np.sort(random.choice([1000, 6000, 12_000, 23_000], n, p=[0.7, 0.1, 0.1, 0.1]))
    options = {}
    if engine.job.terms.unit == "user":
        options["ids"] = [f"u{i % 150}" for i in range(n)]
    if not isinstance(engine, Engine):
        options["keys"] = np.where(random.random(n) < 0.9, "a", "b").tolist()
    return times, rows(n, seed), options


def ledgers_of(config, engine):
    if engine is Engine:
        ledger = MemoryLedger(config.job.terms)
        ledger.salt = b"repeatable"
        return {"ledger": ledger}
    return {}


def replayed(name, seed, monkeypatch, advance=None):
    """Both runs of a stream: their releases, and the tape."""
    sections, make, (times, points, options) = CASES[name]
    config, followed, runs = configured(**sections), Followed(monkeypatch), []
    tape = Tape(grows=make is DiscoveringEngine)
    for more in (False, True):
        followed.follow(tape)
        noise = ReplayNoise(tape, SeededEntropy(2 * seed + more))
        engine = make(config, noise=noise, **ledgers_of(config, make))
        engine.push(*(base(engine, seed)[:2]), **base(engine, seed)[2])
        if more:
            with noise.apart():
                engine.push(np.array(times), np.array(points), **options)
        if advance is not None:
            advance(engine, noise)
        runs.append(engine.close())
        if not more:
            tape.again()
    return runs, tape


@pytest.mark.parametrize("name", CASES)
def test_a_stream_and_its_neighbor_release_the_same(name, monkeypatch):
    monkeypatch.setattr(EpochMemory, "next", next_total)
    monkeypatch.setattr(UserAccount, "seal", _followed_seal(spent := []))
    for seed in range(SEEDS):
        runs, tape = replayed(name, seed, monkeypatch)
        assert [r.to_bytes() for r in runs[0]] == [r.to_bytes() for r in runs[1]]
        assert runs[0]
        loss = tape.check()
        paid = spent[-1].rho if spent else sum(release.rho for release in runs[0])
        assert 0 < loss <= paid * (1 + 1e-9)


def _followed_seal(spent, plain=UserAccount.seal):
    """Seal, and take down what the account has spent."""

    def seal(account, *args):
        plain(account, *args)
        spent.append(account.ledger.spent(USER_BLOCK))

    return seal


def test_a_second_draw_is_one_of_its_own(monkeypatch):
    """The first one fails after its draws, which nobody learns; the second has other noise, and is as private."""
    failing, plain, noises = [], NoisyCount.release, []

    def release(mechanism, view, charge, noise):
        if not failing:
            failing.append(True)
            with noise.apart():
                plain(mechanism, view, charge, noise)
            raise ZeroDivisionError
        noises.append(noise)
        return plain(mechanism, view, charge, noise)

    def advance(engine, noise):
        failing.clear()
        with pytest.raises(ZeroDivisionError):
            engine.close()

    monkeypatch.setattr(NoisyCount, "release", release)
    runs, tape = replayed("users", 0, monkeypatch, advance)
    assert [r.to_bytes() for r in runs[0]] == [r.to_bytes() for r in runs[1]]
    assert 0 < tape.check() <= sum(release.rho for release in runs[0])
