"""Whole streams that are replayed, and the records that only their neighbors have."""

import copy

import numpy as np
from support.helpers import rows, sample
from support.release_kinds import BARE

from fcstream import DiscoveringEngine, Engine, KeyedEngine
from fcstream.config import Config
from fcstream.ledgers.memory import MemoryLedger

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
