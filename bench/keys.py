"""What a stream with many keys costs: processor time, and the ratio to another commit in one run.

    python bench/keys.py [--smoke] [--against FOLDER] [--keys N] [--windows N] [--postgres URL]
                         [opening] [routing] [closing] [live]

opening     making the ledger of all keys in a new file, and opening it again.
routing     one record in batches of 10,000 that are spread over all keys.
closing     one window of all keys, a count each: charged, drawn, sealed and acknowledged, for each key.
live        one window of a stream without keys, by the clock on the wall, beside two flushes of the same disk; on
            PostgreSQL also how often the server is asked.
--windows   how many windows of each key are closed (3); with 8 or more, the last quarter is told by itself too.
--against   a folder with another checkout (`git worktree add FOLDER COMMIT`): both are measured in turns.
--smoke     tiny sizes, to see that it runs.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Figures = dict[str, float]
LENGTH_MS = 60_000


def config(url: str, keys: list[str] | None) -> dict[str, Any]:
    divided = {} if keys is None else {"key": "site", "keys": keys}
    return {
        "stream": {"name": "bench", **divided},
        "window": {"length": "1m", "start": "1970-01-01T00:00:00Z", "clock": "broker", "lateness": "0s"},
        "release": {"kind": "count", "rho": 0.1},
        "budget": {"rho": 1.0, "delta": 0.0},
        "ledger": {"url": url},
    }


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return processor time, wall time, and what the work returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return time.process_time() - cpu, time.perf_counter() - wall, found


def of_keys(folder: str, parts: set[str], n: int, windows: int) -> Figures:
    from fcstream import KeyedEngine

    def opened(mapping: dict[str, Any]) -> KeyedEngine:
        engine = KeyedEngine(mapping)
        engine.begin(1)
        return engine

    keys = [f"key-{i}" for i in range(n)]
    found: Figures = {}
    mapping = config(f"sqlite:{folder}/keys.db", keys)
    cpu, wall, engine = timed(lambda: opened(mapping))
    if "opening" in parts:
        found |= {"opening, s": cpu, "opening by the wall, s": wall}
        engine.abort()
        cpu, wall, engine = timed(lambda: opened(mapping))
        found |= {"reopening, s": cpu, "reopening by the wall, s": wall}
    rng, records, batches = np.random.default_rng(0), 10_000, 10
    for window in range(windows):
        for batch in range(batches):
            times = window * LENGTH_MS + rng.integers(0, LENGTH_MS, records)
            names = np.array(keys, object)[rng.integers(0, n, records)]
            cpu, _, _ = timed(lambda times=times, names=names: engine.push(times, None, names, arrival_ms=times))
            if "routing" in parts:
                found[f"routing, us a record, {batches * window + batch}"] = 1e6 * cpu / records
        due = (window + 1) * LENGTH_MS + 1

        def close(due: int = due) -> int:
            closed = 0
            for group in engine.closing(due):
                closed += len(group)
                engine.acknowledge()
            return closed

        cpu, wall, closed = timed(close)
        assert closed == n
        if "closing" in parts:
            found[f"closing, us a key, {window}"] = 1e6 * cpu / n
            found[f"closing by the wall, us a key, {window}"] = 1e6 * wall / n
            if windows >= 8 and window >= 3 * windows // 4:
                found[f"closing of the last quarter, us a key, {window}"] = 1e6 * cpu / n
    engine.abort()
    return _medians(found)


def _medians(found: Figures) -> Figures:
    """Join the figures of several windows."""
    several: dict[str, list[float]] = {}
    for name, value in found.items():
        head, _, tail = name.rpartition(", ")
        several.setdefault(head if tail.isdigit() else name, []).append(value)
    return {name: statistics.median(values) for name, values in several.items()}


def two_flushes(folder: str) -> float:
    """Return how long it takes to write a page twice, and flush it each time."""
    took = []
    with open(f"{folder}/flushed", "wb") as file:
        for _ in range(30):
            started = time.perf_counter()
            for _ in range(2):
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
            took.append(time.perf_counter() - started)
    return statistics.median(took)


def live(folder: str, url: str, windows: int, name: str) -> Figures:
    from fcstream import Engine

    engine = Engine(config(url, None))
    engine.begin(1)
    cpus, walls, waits = [], [], list[int]()
    if name == "PostgreSQL":
        from fcstream.ledgers.postgres import connection

        real = connection._BoundedConnection.wait
        connection._BoundedConnection.wait = lambda *values, **more: (waits.append(1), real(*values, **more))[1]
    for window in range(windows):
        times = window * LENGTH_MS + np.arange(100)
        engine.push(times, arrival_ms=times)
        waits.clear()
        cpu, wall, found = timed(lambda due=(window + 1) * LENGTH_MS + 1: engine.advance(due))
        assert len(found) == 1
        cpus.append(cpu)
        walls.append(wall)
    asked = {f"live, {name}: times the server is waited for": float(len(waits))} if waits else {}
    engine.acknowledge()
    engine.abort()
    flushes = two_flushes(folder)
    return {
        f"live, {name}: ms a window by the wall": 1e3 * statistics.median(walls),
        f"live, {name}: ms a window of this process": 1e3 * statistics.median(cpus),
        f"live, {name}: two flushes": statistics.median(walls) / flushes,
    } | asked


def measure(options: Namespace) -> Figures:
    parts, found = set(options.parts), Figures()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        if parts - {"live"}:
            found |= of_keys(folder, parts, options.keys, options.windows)
        if "live" in parts:
            windows = 5 if options.smoke else 100
            found |= live(folder, f"sqlite:{folder}/live.db", windows, "SQLite")
            if options.postgres:
                url = f"{options.postgres}?schema=bench_keys_{os.getpid()}"
                found |= live(folder, url, windows, "PostgreSQL")
    return found


def child(options: Namespace, checkout: str) -> Figures:
    """Measure a checkout in a process of its own."""
    given = [
        "--keys",
        str(options.keys),
        "--windows",
        str(options.windows),
        "--json",
        *options.parts,
        *(["--smoke"] if options.smoke else []),
    ]
    given += ["--postgres", options.postgres] if options.postgres else []
    done = subprocess.run(
        [sys.executable, __file__, *given],
        env={**os.environ, "PYTHONPATH": checkout},
        stdout=subprocess.PIPE,
        check=True,
    )
    figures: Figures = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--against")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--postgres")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    options.keys = options.keys or (5 if options.smoke else 1000)
    options.parts = options.parts or ["opening", "routing", "closing", "live"]
    if options.json:
        print(json.dumps(measure(options)))
        return
    checkouts = [str(Path(__file__).resolve().parent.parent), *([options.against] if options.against else [])]
    runs = 1 if options.smoke else options.runs
    found = [[child(options, checkout) for checkout in checkouts] for _ in range(runs)]
    print(f"{options.keys} keys, medians of {runs} runs; processor time, where it does not say wall")
    for name in found[0][0]:
        line = f"{name}: {statistics.median(turn[0][name] for turn in found):.4g}"
        if options.against:
            ratio = statistics.median(turn[1][name] / turn[0][name] for turn in found)
            line += f"; the other {statistics.median(turn[1][name] for turn in found):.4g}, {ratio:.2f} times this"
        print(line)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
