"""Ten answers about each window of a stream with four features, beside the dearest of them alone.

    python bench/answers.py [RECORDS] [ROUNDS]

Prints processor seconds a window, from pushed arrays to releases, over ten windows of so many records: of reading the
arrays, of all ten answers, of each alone, and the ratio of all to the dearest, both without the reading, which they
share. The first release of an engine is part of it, since it computes what later ones use again. Rounds alternate, and
the median of their ratios is told.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from fcstream import Engine
from fcstream.engine.intake import read_pushed

WINDOWS = 10
CORE = {"kind": "mean", "radius": 2.0, "rho": 0.2, "delta": 1e-9, "size_hint": 5000}
MEAN = {**CORE, "outliers": "leave_out"}
ANSWERS = [
    {"name": "mean", **MEAN},
    {"name": "variance", **CORE, "kind": "variance"},
    {"name": "another mean", **MEAN, "rho": 0.1},
    {"name": "count", "kind": "count", "rho": 0.1},
    {"name": "sum", "kind": "sum", "rho": 0.1},
    {"name": "low", "kind": "count", "rho": 0.1, "where": {"a": {"max": 0.0}}},
    {"name": "high", "kind": "count", "rho": 0.1, "where": {"a": {"min": 0.01}}},
    {"name": "histogram", "kind": "histogram", "feature": "b", "edges": np.linspace(-20, 20, 41).tolist(), "rho": 0.1},
    {"name": "quantiles", "kind": "quantiles", "feature": "c", "quantiles": [0.1, 0.5, 0.9], "rho": 0.1, "delta": 1e-9},
    {"name": "sum of highs", "kind": "sum", "features": ["d"], "rho": 0.1, "where": {"a": {"min": 0.01}}},
]


def configuration(answers, size=5000):
    """A stream of ten windows; in windows of fewer records than 5,000 means take a hint of that size."""
    answers = [answer | {"size_hint": min(size, 5000)} if "size_hint" in answer else answer for answer in answers]
    return {
        "stream": {"name": "bench"},
        "lattice": {"step": 0.01},
        "features": [{"name": name, "min": -20.0, "max": 20.0} for name in "abcd"],
        "window": {
            "length": "10s",
            "start": "1970-01-01T00:00:00Z",
            "end": "1970-01-01T00:01:40Z",
            "max_records": 1_000_000,
        },
        "release": answers,
        "budget": {"rho": 100.0, "delta": 1e-3},
        "ledger": {"url": "memory:"},
    }


def seconds(answers, times, points):
    """Processor seconds a window."""
    config = configuration(answers, len(times) // WINDOWS)
    if all(answer["kind"] in ("count", "sum", "histogram") for answer in answers):
        del config["window"]["max_records"]  # they take any number
    engine = Engine(config)
    began = time.process_time()
    for start in range(0, len(times), 5000):
        engine.push(times[start : start + 5000], points[start : start + 5000])
    releases = engine.close()
    assert {release.status for release in releases} == {"released"}, [(r.reason, r.count, r.rho) for r in releases]
    return (time.process_time() - began) / WINDOWS


def reading(times, points):
    """Processor seconds a window of reading what is pushed, which many answers share."""
    job = Engine(configuration(ANSWERS)).job
    began = time.process_time()
    for start in range(0, len(times), 5000):
        read_pushed(job, times[start : start + 5000], points[start : start + 5000], None, None, None)
    return (time.process_time() - began) / WINDOWS


def main(records=20_000, rounds=7):
    draw = np.random.default_rng(1)
    points = np.clip(draw.normal(0, 0.4, (WINDOWS * records, 4)), -19.9, 19.9)
    times = np.sort(draw.integers(0, 10_000 * WINDOWS, WINDOWS * records))
    seconds(ANSWERS, times, points)  # compiles
    alone = {answer["name"]: [] for answer in ANSWERS}
    read, together = [], []
    for _ in range(rounds):
        read.append(reading(times, points))
        for answer in ANSWERS:
            alone[answer["name"]].append(seconds([answer], times, points))
        together.append(seconds(ANSWERS, times, points))
    print(f"{'reading':16} {1000 * statistics.median(read):8.1f} ms")
    for name, spent in alone.items():
        print(f"{name:16} {1000 * statistics.median(spent):8.1f} ms")
    dearest = max(alone, key=lambda name: statistics.median(alone[name]))
    rounds_of = zip(together, alone[dearest], read, strict=True)
    ratio = statistics.median((every - shared) / (one - shared) for every, one, shared in rounds_of)
    print(f"{'all ten':16} {1000 * statistics.median(together):8.1f} ms, {ratio:.2f} times the dearest ({dearest})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
