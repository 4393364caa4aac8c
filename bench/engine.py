"""Speed and memory of the data path on one core: ratios inside one run.

    python bench/engine.py [throughput] [windows] [close] [memory] [noise] [start]

throughput  JSON lines to releases (d = 4, windows of 1,000 records) against msgspec alone decoding the same file into
            arrays; says which ledger and file system were used.
windows     the same job in windows of 1,000, 100 and 20 records, in turns.
close       core selection and release of a window of 100,000 points (d = 16) beyond the counts.
memory      peak resident memory of a window against its points as float64 (d = 16 and 64).
noise       1,000 discrete Gaussians at sigma = 1e6 steps, beside OpenDP's Gaussian on a float vector of that length
            (needs the `bench` extra; its own process).
start       `fcstream --help`, and a cold and a warm first run of the README's job.
"""

from __future__ import annotations

import json
import operator
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np

import fcstream
from fcstream.connectors import open_sink, open_source
from fcstream.ledgers import Request, Terms, WindowKey, open_ledger
from fcstream.noise.samplers import Noise
from fcstream.service.batch import Summary, run

RUNS = 7


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        info = Path("/proc/cpuinfo").read_text()
        model = next(line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"


def file_system(path: str) -> str:
    done = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def telemetry(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, size=(n, 4)) * [0.5, 2, 0.3, 0.3] + [20, 45, 5, 6]
    with open(path, "w") as file:
        for i, (a, b, c, d) in enumerate(rows.tolist()):
            file.write(
                f'{{"ts_ms": {START_MS + i * 60}, "device": "room-{i % 100:03d}", "temp_c": {a:.2f}, '
                f'"rh_pct": {b:.1f}, "light1": {c:.3f}, "light2": {d:.3f}}}\n'
            )


NAMES = ["ts_ms", "temp_c", "rh_pct", "light1", "light2"]
START_MS = 1458000000000


def bare(path: Path) -> None:
    """Read the lines in the blocks in which a source reads them, decoded and put into arrays, nothing else."""
    record = msgspec.defstruct("R", [(name, float) for name in NAMES], gc=False)
    decode = msgspec.json.Decoder(record).decode
    columns = [operator.attrgetter(name) for name in NAMES]
    with open(path, "rb") as file:
        tail = b""
        while block := file.read(1 << 20):
            lines = (tail + block).split(b"\n")
            tail = lines.pop()
            records = list(map(decode, lines))
            for get in columns:
                np.fromiter(map(get, records), np.float64, len(records))


def whole(path: Path, ledger: str, n: int, size: int, **release: float) -> Summary:
    """Run the job of `fcstream init` over a file of `n` records, in windows of `size` records."""
    start, end = (np.datetime_as_string(np.datetime64(at, "ms")) + "Z" for at in (START_MS, START_MS + n * 60))
    config = {
        "stream": {"name": "bench"},
        "lattice": {"step": 0.001},
        "features": [
            {"name": "temp_c", "min": -40, "max": 85, "origin": 20},
            {"name": "rh_pct", "min": 0, "max": 100, "origin": 45, "scale": 4},
            {"name": "light1", "min": 0, "max": 50, "origin": 5},
            {"name": "light2", "min": 0, "max": 50, "origin": 6},
        ],
        "window": {"length": f"{60 * size}ms", "start": start, "end": end},
        "release": {"radius": 4.0, "rho": 0.25, "delta": 1e-9, "size_hint": size, **release},
        "budget": {"rho": 1.0, "delta": 1e-6},
        "ledger": {"url": f"sqlite:{ledger}.db"},
    }
    engine = fcstream.Engine(config)
    source, sink = open_source(f"jsonl:{path}", engine.job.schema), open_sink(f"jsonl:{ledger}.jsonl")
    summary = run(engine, source, sink)
    source.close()
    sink.close()
    return summary


def throughput(n: int = 400_000) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "in.jsonl"
        telemetry(path, n)
        first = whole(path, f"{folder}/ledger", n, 1000)  # compilation apart
        assert first.released == n // 1000, first.lines()
        ratios, rates, walls, bares, wholes = [], [], [], [], []
        for k in range(RUNS):
            a, b = process_time(lambda: bare(path)), wall_and_process(lambda k=k: whole(path, f"{folder}/{k}", n, 1000))
            bares.append(a)
            wholes.append(b[1])
            ratios.append(a / b[1])
            walls.append(a / b[0])
            rates.append(n / b[1])
        print(f"throughput: sqlite ledger (WAL, synchronous=FULL) and output on {file_system(folder)}")
        print(
            f"  {statistics.median(rates):,.0f} records/s of one core, {n // 1000} windows released\n"
            f"  ratio to msgspec alone {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
            f"by wall time with all disk waits {statistics.median(walls):.2f}; must 0.40\n"
            f"  ratio of the fastest repetitions {min(bares) / min(wholes):.2f}"
        )


def windows(n: int = 100_000) -> None:
    """Small windows: where the job's rho is too little for a release, with it and with one that releases."""
    jobs = [(1000, {}, 0.6), (100, {"rho": 1.0, "delta": 1e-6}, 0.45), (100, {}, 0.45), (20, {}, 0.3)]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "in.jsonl"
        telemetry(path, n)
        took: list[list[tuple[float, float]]] = [[] for _ in jobs]
        firsts = [whole(path, f"{folder}/{job}", n, size, **more) for job, (size, more, _) in enumerate(jobs)]
        for turn in range(RUNS):
            for job, (size, more, _) in enumerate(jobs):
                at = f"{folder}/{turn}-{job}"
                alone = process_time(lambda: bare(path))
                took[job].append((alone, process_time(lambda at=at, s=size, m=more: whole(path, at, n, s, **m))))
        for (size, more, aim), first, times in zip(jobs, firsts, took, strict=True):
            ratios = [alone / all_ for alone, all_ in times]
            rest = statistics.median(all_ - alone for alone, all_ in times) * size / n
            share = first.released * size / n
            print(
                f"windows of {size:,} records, rho = {more.get('rho', 0.25)}, {share:.0%} released: "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of msgspec alone, must "
                f"{aim}; {1e6 * rest:,.0f} us a window beyond it"
            )


def process_time(job) -> float:
    started = time.process_time()
    job()
    return time.process_time() - started


def wall_and_process(job) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - wall, time.process_time() - cpu


def close(n: int = 100_000, d: int = 16) -> None:
    from fcstream.accounting.losses import PrivacyLoss
    from fcstream.counting.exact import FriendCounts
    from fcstream.releases.means.mean import RecentredMean
    from fcstream.stream.lattice import Lattice

    rows = np.rint(np.random.default_rng(0).normal(size=(n, d)) * 1000)
    radius_squared = Lattice(1e-3).radius_squared(2**0.5 * (d**0.5 + np.log(100 * n) ** 0.5))
    friends = FriendCounts(d, radius_squared)
    for part in np.array_split(rows, 25):
        friends.add(0, part)
    mechanism = RecentredMean(PrivacyLoss.charge(0.25, 1e-9), radius_squared, d, n)
    times, views = [], []
    for _ in range(31):
        ledger = open_ledger("memory:", Terms("b", "stream", mechanism.loss, ""))
        charge = ledger.charge([Request(WindowKey(0, 1), mechanism.loss, ("stream",))])[0].charge
        started = time.perf_counter()
        view = friends.view([0])
        middle = time.perf_counter()
        outcome = mechanism.release(view, charge, Noise())
        times.append(time.perf_counter() - middle)
        views.append(middle - started)
        assert outcome.reason is None
    print(f"close: n = {n}, d = {d}: window view {1e3 * statistics.median(views):.2f} ms,")
    print(
        f"  core selection and release {1e3 * statistics.median(times):.1f} ms "
        f"(spread {1e3 * min(times):.1f} to {1e3 * max(times):.1f}); must 10 ms"
    )


MEMORY = """
import sys
import numpy as np
from fcstream.counting.exact import FriendCounts

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

n, d = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
warm = FriendCounts(d, 10)
for _ in range(2):
    warm.add(0, np.zeros((700, d)))
warm.view([0]).points()
part = np.rint(rng.normal(size=(1000, d)) * 1000)
open("/proc/self/clear_refs", "w").write("5")  # start a new peak
before = status("VmRSS")
friends = FriendCounts(d, 10)
for _ in range(n // 1000):
    friends.add(0, part)
view = friends.view([0])
print((status("VmHWM") - before) * 1024 / (8 * n * d))
"""


def memory(shapes: tuple[tuple[int, int], ...] = ((50_000, 16), (40_000, 64))) -> None:
    for n, d in shapes:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(n), str(d)], capture_output=True, text=True, check=True
        )
        print(f"memory: n = {n}, d = {d}: peak {float(done.stdout):.2f} x the points as float64; must 2.5")


OPENDP = """
import time, json, statistics
import opendp.prelude as dp
dp.enable_features("contrib")
make = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float), scale=1e6)
data = [float(i) for i in range(1000)]
times = []
for _ in range(9):
    started = time.perf_counter(); make(data); times.append(time.perf_counter() - started)
print(json.dumps({"seconds": statistics.median(times)}))
"""


def noise() -> None:
    source, variance = Noise(), Fraction(10**12)
    source.discrete_gaussian(variance, 1000)
    times = []
    for _ in range(51):
        started = time.perf_counter()
        source.discrete_gaussian(variance, 1000)
        times.append(time.perf_counter() - started)
    mine = statistics.median(times)
    print(f"noise: 1,000 exact discrete Gaussians at sigma = 1e6: {1e3 * mine:.2f} ms; must 2 ms")
    done = subprocess.run([sys.executable, "-c", OPENDP], capture_output=True, text=True)
    if done.returncode:
        print("  OpenDP is not installed (the extra 'bench'): no comparison")
        return
    theirs = json.loads(done.stdout)["seconds"]
    print(f"  OpenDP 0.16 Gaussian on a float vector of 1,000: {1e3 * theirs:.1f} ms: {theirs / mine:.0f} x; must 20 x")


def start(runs: int = RUNS, has_cold: bool = True) -> None:
    """A run that is not cold finds the kernels that were compiled before."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "fcstream", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    print(f"start: fcstream --help {statistics.median(times):.2f} s; must 0.3 s")
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | ({"NUMBA_CACHE_DIR": f"{folder}/cache"} if has_cold else {})

        def call(*args: str) -> float:
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "fcstream", *args], cwd=folder, env=env, capture_output=True, check=True
            )
            return time.perf_counter() - started

        call("init")
        call("simulate", "--out", "telemetry.jsonl")
        cold = call("run", "rooms.toml")
        for path in pathlib.Path(folder).glob("ledger.db*"):  # its witness too: without it the ledger is missing
            path.unlink()
        warm = call("run", "rooms.toml")
    print(f"  the README's job: cold (compilation included) {cold:.1f} s, must 60 s; warm {warm:.1f} s, must 3 s")


def main() -> None:
    jobs = {
        "throughput": throughput,
        "windows": windows,
        "close": close,
        "memory": memory,
        "noise": noise,
        "start": start,
    }
    print(machine())
    for name in sys.argv[1:] or jobs:
        jobs[name]()
    print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
