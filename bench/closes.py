"""How long the close of one large window takes, for every kind of release, beside reading its points once.

    python bench/closes.py [RECORDS] [ROUNDS]

A window of so many records (100,000) is pushed; then its close is timed: processor time from the last record to the
release, with a ledger in memory. What is computed while records come (friend counts, shards, sums) is the column
`pushing`, but for the last records, which means and variances compare at the close. The last column is the share of the
close that summing the window's values once takes (`numpy.sum` over the same number of float64): near 1, the close is as
fast as memory. Medians over rounds; each round closes a window of every kind.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from fcstream import Engine

RECORDS, ROUNDS = 100_000, 5
LIMIT_MS = 10.0
WAITS = ("clusters", "centers", "mixtures")
CORE = {"rho": 1.0, "delta": 1e-9}


def cases(n):
    """Name, number of columns, the [release] section; columns are normal, or Booleans for synthetic tables."""
    edges = np.linspace(-3, 3, 41).tolist()
    nine = [i / 10 for i in range(1, 10)]
    return [
        ("count", 1, {"kind": "count", "rho": 1.0}),
        ("sum", 4, {"kind": "sum", "rho": 1.0}),
        ("total of counts", 1, {"kind": "total", "of": "count", "epoch": "10s", "rho": 1.0}),
        ("histogram, 42 bins", 1, {"kind": "histogram", "feature": "x0", "edges": edges, "rho": 1.0}),
        ("quantiles, 9", 1, {"kind": "quantiles", "feature": "x0", "quantiles": nine, **CORE}),
        ("mean", 4, {"kind": "mean", "radius": 8.0, "size_hint": n, "outliers": "leave_out", **CORE}),
        ("mean", 16, {"kind": "mean", "radius": 12.0, "size_hint": n, "outliers": "leave_out", **CORE}),
        ("mean, ball", 16, {"kind": "mean", "method": "ball", "center": [0.0] * 16, "radius": 8.0, **CORE}),
        ("variance", 4, {"kind": "variance", "radius": 8.0, "size_hint": n, **CORE}),
        ("covariance", 4, {"kind": "covariance", "size_hint": n, **CORE}),
        ("covariance", 16, {"kind": "covariance", "size_hint": n, **CORE}),
        ("tree", 2, {"kind": "tree", "size_hint": n, **CORE}),
        ("centers, tree, k = 8", 2, {"kind": "centers", "method": "tree", "k": 8, "size_hint": n, **CORE}),
        ("marginals of pairs, 16 columns", 16, {"kind": "marginals", "order": 2, "rho": 1.0}),
        ("synthetic, 64 columns", 64, {"kind": "synthetic", **CORE}),
    ]


def configuration(width, release):
    features = [{"name": f"x{i}", "min": -20.0, "max": 20.0} for i in range(width)]
    if release["kind"] in ("synthetic", "marginals"):
        features = [{"name": f"x{i}", "type": "boolean"} for i in range(width)]
    return {
        "stream": {"name": "bench"},
        "lattice": {"step": 0.001},
        "features": features,
        "window": {
            "length": "10s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:10Z", "max_records": 10_000_000,
        },
        "release": release,
        "budget": {"rho": 100.0, "delta": 1e-3},
        "ledger": {"url": "memory:"},
    }  # fmt: skip


def seconds(width, release, times, points):
    """Processor seconds of pushing all records, and of closing their window."""
    config = configuration(width, release)
    try:
        engine = Engine(config)
    except ValueError:  # kinds that take any number of records
        del config["window"]["max_records"]
        engine = Engine(config)
    began = time.process_time()
    for start in range(0, len(times), 5000):
        engine.push(times[start : start + 5000], points[start : start + 5000])
    pushed = time.process_time()
    releases = engine.close()
    assert [release.status for release in releases] == ["released"], releases[0].reason
    return pushed - began, time.process_time() - pushed


def main(records=RECORDS, rounds=ROUNDS):
    draw = np.random.default_rng(1)
    times = np.sort(draw.integers(0, 10_000, records))
    slow = 0
    print("| kind | columns | pushing | close | share of reading once |\n| --- | --- | --- | --- | --- |")
    for name, width, release in cases(records):
        if release["kind"] in ("synthetic", "marginals"):
            points = (draw.random((records, width)) < 0.3).astype(float)
        else:
            points = np.clip(draw.normal(0, 1, (records, width)), -19, 19)
        seconds(width, release, times, points)  # compiles
        pushing, closing, reading = [], [], []
        for _ in range(rounds):
            pushed, closed = seconds(width, release, times, points)
            began = time.process_time()
            points.sum()
            reading.append(time.process_time() - began)
            pushing.append(pushed)
            closing.append(closed)
        close_ms = 1000 * statistics.median(closing)
        slow += close_ms > LIMIT_MS and not name.startswith(WAITS)
        share = statistics.median(reading) / max(statistics.median(closing), 1e-9)
        print(f"| {name} | {width} | {1000 * statistics.median(pushing):.0f} ms | {close_ms:.1f} ms | {share:.3f} |")
    print(f"{slow} kinds beside clusters take more than {LIMIT_MS:g} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
