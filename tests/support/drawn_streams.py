"""Streams drawn at random, with any unit of privacy, schedule, keys and answers, and records for them, in any order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcstream import ConfigError, Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.config import Config
from support.helpers import ledger_of

KEYS = ["p", "q", "r"]
LEVELS = ["idle", "busy", "off"]
APPS = ["m", "n", "\u00e9", "e\u0301", "o"]  # the fourth is another way to write the third
ASKED_APPS = ["m", "n", "\u00e9", "zz"]
LENGTH_MS, LATENESS_MS, END_MS = 10_000, 1_000, 40_000
STEP = 0.5
ENOUGH = 1e5
"""A budget that no drawn stream uses up."""


class Silent(Noise):
    """Draws of nothing: what is left is the arithmetic."""

    def __init__(self) -> None:
        super().__init__(SeededEntropy(1))

    def discrete_gaussian(self, variance, count):
        return np.zeros(count, np.int64)

    def discrete_laplace(self, scale, count):
        return np.zeros(count, np.int64)


@dataclass(frozen=True)
class Record:
    """One record, its values by feature as a reader would write them."""

    time_ms: int
    arrival_ms: int
    user: str
    key: str
    values: dict[str, Any]


# -- configurations ----------------------------------------------------------------------------------------------------


def draw_stream(draw: random.Random, clock: str | None = None, url: str = "memory:"):
    """A stream with up to five answers that is accepted: its mapping, and its job."""
    return accepted(lambda: _any_stream(draw, clock or draw.choice(["eof", "broker"]), url))


def accepted(make):
    """What `make` makes, drawn again until the configuration is accepted: its mapping, and its job."""
    for _ in range(30):
        mapping = make()
        try:
            return mapping, Config.from_mapping(mapping).job
        except ConfigError:
            continue
    raise AssertionError("thirty configurations in a row were refused")


def _any_stream(draw: random.Random, clock: str, url: str) -> dict[str, Any]:
    stream, slide = _any_unit(draw), draw.choice([None, None, "5s", "2s"])
    features = _any_features(draw, stream)
    answers = [_any_answer(draw, f"a{i}", stream, slide, features) for i in range(draw.randint(1, 5))]
    window: dict[str, Any] = schedule(clock)
    if slide is not None:
        window["slide"] = slide
    if any(answer.get("method") == "recentered" for answer in answers):
        window["max_records"] = draw.choice([3, 10, 10**5])
    # What a mean does not use is refunded, by a rule that the twin does not know: then nobody's budget runs out.
    has_means = any(answer["kind"] == "mean" for answer in answers)
    return {
        "stream": stream,
        "lattice": {"step": STEP},
        "features": features,
        "window": window,
        "release": answers,
        "budget": {"rho": ENOUGH if has_means else draw.choice([ENOUGH, 12.0, 25.0]), "delta": 1e-2},
        "ledger": ledger_of(url),
    }


def schedule(clock: str) -> dict[str, Any]:
    """The section ``window`` of four windows on end."""
    window = {"length": "10s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:40Z", "clock": clock}
    return window if clock == "eof" else window | {"lateness": "1s", "backlog": "40000d"}


def _any_unit(draw: random.Random) -> dict[str, Any]:
    unit = draw.choice(["event", "stream", "user", "user"])
    stream: dict[str, Any] = {"name": "cars", "unit": unit}
    if unit == "user":
        stream |= {"user": "who", "per_user": draw.choice(["first", "mean"])}
    budgets = draw.choice([None, None, "divided", "shared"] if unit == "user" else [None, None, "divided"])
    if budgets is not None:
        stream |= {"key": "site", "keys": KEYS}
    if budgets == "shared":
        stream |= {"key_budgets": "shared", "keys_per_user": draw.choice([1, 2, 3])}
    elif budgets == "divided" and unit != "event":
        stream["keys_per_user"] = draw.choice([1, 3])
    return stream


def _any_features(draw: random.Random, stream: dict[str, Any]) -> list[dict[str, Any]]:
    features: list[dict[str, Any]] = [
        {"name": "speed", "min": 0.0, "max": 100.0},
        {"name": "load", "min": -50.0, "max": 50.0},
        {"name": "on", "type": "boolean"},
    ]
    if stream.get("per_user") != "mean" and draw.random() < 0.6:
        features.append({"name": "status", "type": "category", "levels": LEVELS})
    if draw.random() < 0.6:
        features.insert(draw.randrange(len(features) + 1), {"name": "app", "type": "text"})
    return features


def _any_answer(draw: random.Random, name: str, stream, slide, features) -> dict[str, Any]:
    is_users = stream["unit"] == "user"
    kinds = ["count", "sum", "histogram"] * 2 + ["ball", "recentered"]
    if stream["unit"] == "event" and slide is None:
        kinds += ["total"] * 6
    kind = draw.choice(kinds)
    options = {
        "count": _count_options,
        "sum": _sum_options,
        "histogram": _histogram_options,
        "total": lambda draw, is_users: {"epoch": draw.choice([1, 3, 4])},
        "ball": lambda draw, is_users: BALL,
        "recentered": lambda draw, is_users: RECENTERED,
    }[kind](draw, is_users)
    answer = {"name": name, "kind": kind, "rho": draw.choice([1.0, 2.5, 4.0]), **options}
    where = _any_conditions(draw, [feature["name"] for feature in features])
    return answer | {"where": where} if where else answer


BALL = {"kind": "mean", "method": "ball", "features": ["load"], "radius": 100.0, "center": [0.0], "size_hint": 20}
RECENTERED = {
    "kind": "mean",
    "method": "recentered",
    "features": ["speed"],
    "radius": 50.0,
    "rho": 8.0,
    "delta": 1e-9,
    "size_hint": 50,
}
USER_SUMS = {"per_user": "sum", "user_bounds": [-60.0, 120.0]}
EDGES = [-10.0, 0.0, 20.0]


def _count_options(draw: random.Random, is_users: bool) -> dict[str, Any]:
    if not is_users:
        return {}
    return {"features": ["speed"], **draw.choice([{}, {}, {"per_user": "first"}, {"per_user": "mean"}])}


def _sum_options(draw: random.Random, is_users: bool) -> dict[str, Any]:
    options = {"features": [draw.choice(["speed", "load"])]}
    return options | USER_SUMS if is_users and draw.random() < 0.5 else options


def _histogram_options(draw: random.Random, is_users: bool) -> dict[str, Any]:
    options = {"features": ["load"], "edges": EDGES}
    return options | USER_SUMS if is_users and draw.random() < 0.3 else options


def _any_conditions(draw: random.Random, names: list[str]) -> dict[str, Any]:
    where: dict[str, Any] = {}
    if draw.random() < 0.4:
        low, high = sorted((draw.randint(0, 100), draw.randint(0, 100)))
        where["speed"] = draw.choice([{"min": low}, {"max": high}, {"min": low, "max": high}])
    if draw.random() < 0.3:
        where["on"] = draw.choice([["true"], ["false"], ["true", "false"]])
    if "status" in names and draw.random() < 0.4:
        where["status"] = draw.sample(LEVELS, draw.randint(1, 3))
    if "app" in names and draw.random() < 0.5:
        where["app"] = draw.sample(ASKED_APPS, draw.randint(1, 3))
    return where


# -- records -----------------------------------------------------------------------------------------------------------


def draw_records(draw: random.Random, number: int, delays=(0, 100, 900, 1500, 6000, 9000)) -> list[Record]:
    """Records of twelve users under three keys, some at the same time, and some late for one window or more."""
    grain = draw.choice([1, 500])
    found = []
    for _ in range(number):
        time_ms = draw.randrange(0, END_MS, grain)
        values = {
            "speed": draw.randint(0, 200) / 2,
            "load": draw.randint(-100, 100) / 2,
            "on": draw.choice(["false", "true"]),
            "status": draw.choice(LEVELS),
            "app": draw.choice(APPS),
        }
        user, key = f"u{draw.randrange(12)}", draw.choice(KEYS)
        found.append(Record(time_ms, time_ms + draw.choice(delays), user, key, values))
    return found


def push(mapping, job, engine, records: list[Record]):
    """Push records in the form that the stream's features ask for; returns what is released."""
    names = [feature["name"] for feature in mapping["features"]]
    points: Any = [[record.values[name] for name in names] for record in records]
    if "app" not in names:
        codes = {name: code for levels in (["false", "true"], LEVELS) for code, name in enumerate(levels)}
        points = np.array([[codes.get(value, value) for value in row] for row in points], np.float64)
    return push_points(job, engine, records, points)


def push_points(job, engine, records: list[Record], points):
    """Push points (n, d) of records with whatever else the stream asks for; returns what is released."""
    more: dict[str, Any] = {}
    if job.keys:
        more["keys"] = [record.key for record in records]
    if job.terms.unit == "user":
        more["ids"] = [record.user for record in records]
    if job.clock == "broker":
        more["arrival_ms"] = [record.arrival_ms for record in records]
    return engine.push([record.time_ms for record in records], points, **more)


def open_silent(mapping, job):
    """An engine without noise."""
    return (KeyedEngine if job.keys else Engine)(mapping, noise=Silent())


def run(engine, job, records: list[Record], draw: random.Random, *, in_order: bool, push_some):
    """Release all windows: records come in batches, by arrival with the clock beside them, or in no order before it."""
    order = sorted(records, key=lambda record: record.arrival_ms) if in_order else draw.sample(records, len(records))
    is_live, done = job.clock == "broker", 0
    releases = list(engine.advance(0)) if is_live else []
    while done < len(order):
        batch = order[done : done + draw.choice([1, 3, 20, 200])]
        releases += push_some(engine, batch)
        done += len(batch)
        if is_live and in_order and done < len(order):
            releases += engine.advance(order[done].arrival_ms)
    if is_live:
        releases += engine.advance(10 * END_MS)
    return releases + engine.close()


def salts_of(engine) -> dict[str | None, bytes]:
    """The secret of each key's ledger."""
    return {part.job.key: part._records._secret for part in engine.parts}
