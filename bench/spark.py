"""The same engine on Spark: equal bytes, what two worker processes gain, what a micro-batch costs, from where it pays.

    python bench/spark.py bytes      # seeded noise: the local runner's bytes and Spark's
    python bench/spark.py speed      # counting-dominated windows: one process, Spark with one and with two workers
    python bench/spark.py overhead   # seconds of a micro-batch that holds next to nothing (Redis)
    python bench/spark.py split      # one huge window: its pairs in one task, and dealt to two

Wall times; every way in one process of its own, in turns. What else runs on the machine is in all of them: compare
ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SETTINGS = {
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.driver.maxResultSize": "2g",
}
LENGTH_MS = 60_000


def mapping(folder: Path, name: str, shape: tuple[int, int, int], master: str, split: str) -> dict:
    windows, size, dimension = shape
    return {
        "stream": {"name": "bench"},
        "lattice": {"step": 0.001},
        "features": [{"name": f"f{k}", "min": -50.0, "max": 50.0} for k in range(dimension)],
        "window": {
            "length": "60s",
            "start": "1970-01-01T00:00:00Z",
            "end": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(windows * LENGTH_MS // 1000)),
        },
        # A quarter of all pairs are no friends, and most must be looked at: what counting costs at its worst.
        "release": {"radius": 1.1 * (2 * dimension) ** 0.5, "rho": 1.0, "delta": 1e-9, "size_hint": size},
        "budget": {"rho": 1.0, "delta": 1e-6},
        "source": {"url": f"jsonl:{folder / 'in.jsonl'}"},
        "sink": {"url": f"jsonl:{folder / name}.jsonl"},
        "ledger": {"url": f"sqlite:{folder / name}.db"},
        "spark": {"master": master, "settings": SETTINGS, "split": split},
    }


def write(path: Path, windows: int, size: int, dimension: int) -> None:
    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        for window in range(windows):
            points = rng.normal(size=(size, dimension)).round(3).tolist()
            times = (window * LENGTH_MS + rng.integers(LENGTH_MS, size=size)).tolist()
            for at, point in zip(times, points, strict=True):
                record = {"ts_ms": at} | {f"f{k}": value for k, value in enumerate(point)}
                file.write(json.dumps(record) + "\n")


def one(way: str, config_path: str) -> None:
    """One run in this process; prints its seconds, the session's start apart."""
    from fcstream import Noise, SeededEntropy, warm_up
    from fcstream.config import Config

    config = Config.from_mapping(json.loads(Path(config_path).read_text()))
    noise = Noise(SeededEntropy(1))
    if way.startswith("local"):
        from fcstream.connectors import open_sink, open_source
        from fcstream.counting.threads import set_threads
        from fcstream.engine.opening import open_engine
        from fcstream.service.batch import run

        set_threads(int(way.removeprefix("local")))
        warm_up()
        start = time.perf_counter()
        sink = open_sink(config.sink.url)
        run(open_engine(config, noise=noise), open_source(config.source.url, config.job.schema), sink)
    else:
        from fcstream.spark.files import run_files
        from fcstream.spark.sessions import spark_session

        with spark_session(config.spark, "bench") as session:
            session.range(8).repartition(4).rdd.map(lambda row: row[0]).count()  # workers are up
            start = time.perf_counter()
            run_files(config, noise=noise)
            print(json.dumps(time.perf_counter() - start), flush=True)
            return
    print(json.dumps(time.perf_counter() - start), flush=True)


def measure(folder: Path, name: str, way: tuple[str, str, str], shape: tuple[int, int, int]) -> float:
    kind, master, split = way
    for old in folder.glob(f"{name}.*"):
        old.unlink()
    (folder / f"{name}.json").write_text(json.dumps(mapping(folder, name, shape, master, split)))
    done = subprocess.run(
        [sys.executable, __file__, "one", kind, str(folder / f"{name}.json")], stdout=subprocess.PIPE, check=True
    )
    return float(json.loads(done.stdout.decode().splitlines()[-1]))


def compare(folder: Path, ways: dict[str, tuple[str, str, str]], shape: tuple[int, int, int], repeats: int) -> None:
    windows, size, dimension = shape
    write(folder / "in.jsonl", windows, size, dimension)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            seconds[name].append(measure(folder, name, way, shape))
            print(f"  {name:14} {seconds[name][-1]:8.2f} s", flush=True)
    print(f"{windows} windows of {size} records, d = {dimension}, median of {repeats}:")
    for name, values in seconds.items():
        print(f"  {name:14} {statistics.median(values):8.2f} s  ({min(values):.2f} to {max(values):.2f})")
    bytes_of = {name: (folder / f"{name}.jsonl").read_bytes() for name in ways}
    print("  same bytes:", len(set(bytes_of.values())) == 1)


def overhead(batches: int) -> None:
    """A stream with a window a second and a few records: what its micro-batches cost."""
    import secrets
    import threading

    import redis

    from fcstream.config import Config
    from fcstream.spark import service
    from fcstream.spark.sessions import spark_session

    client, name = redis.Redis(), f"bench-{secrets.token_hex(4)}"
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    values = mapping(folder, "live", (1, 100, 4), "local[2]", "never")
    start = time.time_ns() // 10**9 * 1000
    values["window"] = {"length": "1s", "lateness": "0s", "clock": "broker", "backlog": "1h"}
    values["window"]["start"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start // 1000))
    values["release"] = {"kind": "count", "rho": 1.0}
    values["source"] = {"url": f"redis://127.0.0.1/0?stream={name}"}
    settings = SETTINGS | {"spark.sql.shuffle.partitions": "2"}
    values["spark"] |= {"checkpoint": str(folder / "checkpoint"), "settings": settings}
    config = Config.from_mapping(values)
    try:
        with spark_session(config.spark, "bench") as session:
            served = service.build(session, config)
            threading.Thread(target=lambda: served.run(lambda _: None), daemon=True).start()
            ended: list[dict] = []
            seen: set[int] = set()
            until = time.monotonic() + 600
            while len(ended) < batches and time.monotonic() < until:
                now = time.time_ns() // 10**6
                client.xadd(name, {"data": json.dumps({"ts_ms": now} | {f"f{k}": 0.5 for k in range(4)})})
                for query in session.streams.active:
                    for progress in query.recentProgress:
                        if progress["batchId"] not in seen:
                            seen.add(progress["batchId"])
                            ended.append(progress)
                time.sleep(0.2)
            served.stop()
            time.sleep(5)
        took = [p["durationMs"]["triggerExecution"] / 1000 for p in ended if "addBatch" in p["durationMs"]]
        work = [p["durationMs"]["addBatch"] / 1000 for p in ended if "addBatch" in p["durationMs"]]
        rest = took[2:]
        print(
            f"{len(rest)} micro-batches: median {statistics.median(rest):.2f} s ({min(rest):.2f} to {max(rest):.2f}),"
        )
        print(f"of which tasks and answers {statistics.median(work[2:]):.2f} s; the first {took[0]:.1f} s")
        print(f"windows answered: {served.counters.released + sum(served.counters.refused.values())}")
    finally:
        client.delete(name, "fcstream:fcstream-bench:positions")
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["bytes", "speed", "overhead", "split", "one"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if given.what == "one":
        one(*given.rest)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.python_version()}")
    if given.what == "overhead":
        overhead(12)
        return
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    spark1, spark2 = ("spark", "local[1]", "never"), ("spark", "local[2]", "never")
    try:
        if given.what == "bytes":
            ways = {"local": ("local1", "", "never"), "spark2": spark2, "spark2-split": ("spark", "local[2]", "always")}
            compare(folder, ways, (given.windows, min(given.size, 3000), given.dimension), 1)
        elif given.what == "speed":
            ways = {"one process": ("local1", "", "never"), "two threads": ("local2", "", "never")}
            ways |= {"spark 1 worker": spark1, "spark 2 workers": spark2}
            ways = {name.replace(" ", "-"): way for name, way in ways.items()}
            compare(folder, ways, (given.windows, given.size, given.dimension), given.repeats)
        else:
            ways = {"spark1-whole": spark1, "spark2-whole": spark2, "spark2-split": ("spark", "local[2]", "always")}
            compare(folder, ways, (1, given.size, given.dimension), given.repeats)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
