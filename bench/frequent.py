"""Frequent texts: how many records a second are counted, and how many texts are told beside other libraries' ways.

    python bench/frequent.py [OPENDP_PYTHON]

Made-up texts first; then real columns, if FCSTREAM_DATA names the folder of data sets: tail numbers and destinations of
flights, and kinds of incidents.

The Laplace rival adds noise of scale 1 / epsilon to every text that occurs and tells those above the threshold
1 + ln(1 / (2 delta)) / epsilon: at epsilon**2 / 2 = rho, which costs as much where answers add up, and at the epsilon
to which one (rho, 0) converts. OpenDP's rival is `make_gaussian_threshold` at the same rho and delta, in an environment
of its own.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow

import fcstream
from fcstream.accounting.losses import epsilon_tight

RECORDS, VALUES, DELTA = 1_000_000, 100_000, 1e-9
RHOS = (0.01, 0.1, 1.0)
COLUMNS = (
    ("nyc_flights_2013.csv.gz", "tailnum"),
    ("nyc_flights_2013.csv.gz", "dest"),
    ("houston_incidents.csv.gz", "offense"),
)
OPENDP = """
import collections, json, math, sys
import opendp.prelude as dp
dp.enable_features("contrib", "floating-point")
rho, delta, texts = json.load(sys.stdin)
counted = dict(collections.Counter(texts))
domain = dp.map_domain(dp.atom_domain(T="String"), dp.atom_domain(T="i64"))
metric = dp.l02inf_distance(dp.absolute_distance(T="i64"))
scale = math.sqrt(1 / (2 * rho))
def at(threshold):
    return dp.m.make_gaussian_threshold(domain, metric, scale=scale, threshold=threshold)
def cost(threshold):
    spent = at(threshold).map((1, 1, 1))
    return spent[1] if isinstance(spent, tuple) else spent
low, high = 1, 1
while cost(high) > delta:
    high *= 2
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if cost(middle) > delta else (low, middle)
told = at(high)(counted)
print(json.dumps([len(told), high]))
"""


def column(file: str, name: str) -> list[str]:
    """One column of a data set, without empty cells."""
    with gzip.open(Path(os.environ["FCSTREAM_DATA"]) / file, "rt", encoding="utf-8") as lines:
        return [text for row in csv.DictReader(lines) if (text := row[name])]


def compare(texts: list[str], opendp: str | None) -> None:
    """Print how many texts each way tells."""
    random = np.random.default_rng(1)
    start = time.perf_counter()
    distinct, counts = np.unique(texts, return_counts=True)
    sorting = time.perf_counter() - start
    for rho in RHOS:
        start = time.perf_counter()
        ours = fcstream.private_frequent(texts, rho=rho, delta=DELTA)
        seconds = time.perf_counter() - start
        print(
            f"  rho {rho:g}: {len(ours.value or [])} of {len(distinct)} texts told; {len(texts) / seconds:.3g} "
            f"records/s, sorting them takes {sorting / seconds:.2g} times as long"
        )
        for what, epsilon in (("zCDP", math.sqrt(2 * rho)), ("epsilon", epsilon_tight(rho, DELTA))):
            least = 1 + math.log(1 / (2 * DELTA)) / epsilon
            told = counts + random.laplace(0, 1 / epsilon, len(counts)) >= least
            print(f"    Laplace at the same {what} ({epsilon:.2f}): {int(told.sum())}, from {least:.1f} on")
        if opendp is not None:
            start = time.perf_counter()
            given = json.dumps([rho, DELTA, texts])
            done = subprocess.run([opendp, "-c", OPENDP], input=given, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"    OpenDP: {done.stderr.strip().splitlines()[-1]}")
            else:
                many, least = json.loads(done.stdout)
                print(f"    OpenDP: {many}, from {least} on; {time.perf_counter() - start:.1f} s with its start")


def stream(unit: str) -> dict:
    """A stream of one window."""
    release = {"kind": "frequent", "rho": 1.0, "delta": DELTA}
    more = {"user": "who"} if unit == "user" else {}
    release |= {"values_per_user": 3} if more else {"max_values": 2 * VALUES}
    return {
        "stream": {"name": "bench", "unit": unit} | more,
        "features": [{"name": "text", "type": "text"}],
        "window": {"length": "10s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:10Z"},
        "release": release,
        "budget": {"rho": 1.0, "delta": 1e-6},
        "ledger": {"url": "memory:"},
    }


def streams(texts: list[str]) -> None:
    """Print how many records a second of processor time streams take, from pushed columns to the release."""
    random = np.random.default_rng(2)
    column, n = pyarrow.array(texts), len(texts)
    times = pyarrow.array(np.sort(random.integers(0, 10_000, n)))
    for users in (None, 100, 10):
        columns = {"ts_ms": times, "text": column}
        if users is not None:
            columns["who"] = pyarrow.array([f"user {i}" for i in random.integers(0, n // users, n)])
        table, config = pyarrow.table(columns), stream("event" if users is None else "user")
        rates = []
        for _ in range(3):
            engine = fcstream.Engine(config)
            began = time.process_time()
            for start in range(0, n, 50_000):
                engine.push(table.slice(start, 50_000))
            (release,) = engine.close()
            rates.append(n / (time.process_time() - began))
            assert release.status == "released"
        whose = "" if users is None else f", {users} records of each user"
        print(f"a stream{whose}: {max(rates):.3g} records/s")


def main(opendp: str | None = None) -> None:
    random = np.random.default_rng(1)
    print(f"{RECORDS:,} records of {VALUES:,} texts, all as common")
    streams([f"value {i}" for i in random.integers(0, VALUES, RECORDS)])
    random = np.random.default_rng(1)
    print(f"{RECORDS:,} records, Zipf 1.2")
    compare([f"value {i}" for i in np.minimum(random.zipf(1.2, RECORDS), VALUES)], opendp)
    for file, name in COLUMNS if "FCSTREAM_DATA" in os.environ else ():
        texts = column(file, name)
        print(f"{file}, {name}: {len(texts):,} records")
        compare(texts, opendp)


if __name__ == "__main__":
    main(*sys.argv[1:])
