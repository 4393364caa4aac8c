"""Devices that hold their own budget: error, savings and speed, after the experiments of Liang and Yi.

    FCSTREAM_DATA=... python bench/local.py [count] [density] [chance] [nearest] [series] [threshold]
                                            [speed] [mqtt] [--repeats N] [--out FOLDER]

count      Figure 3: range counts, incidents in Houston and simulated taxis (a random walk between hot spots; the
           paper's taxis are not among our data), for several widths and budgets.
density    Figure 4: a Gaussian kernel density at 85,779 incidents, with the printed kernel and with the better one.
chance     Errors that are noise alone, many times: one square, the unbiased kernel, the nearest by noisy distances.
nearest    Figure 5: the k nearest of 10,000 digits (less those asked about), 784 dimensions.
series     Figure 6: m counts of simulated taxis in a row on one budget; with elimination, savings pay for later counts.
threshold  Figure 9: the share of households at or below an income, central model (Oregon, 4,213 households).
speed      A million simulated users, and the digits, per query: seconds of processor time and of the clock.
mqtt       20,000 real devices behind one gateway in a process of its own, asked over the machine's broker in batches:
           answers a second, each written to disk before it leaves (FCSTREAM_MQTT, by default 127.0.0.1:1883).

PM0 and PM1 eliminate, BM0 and BM1 do not; 0 asks for points, 1 for distances; c4 four even rounds, log-c10 ten doubling
ones. With --out, pictures are drawn there as PNG (needs the `plot` extra). Noise is seeded: the points are public here.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
from kernels import machine
from local_pictures import Row, draw

from fcstream.accounting.filters import BudgetSchedule
from fcstream.accounting.losses import PrivacyLoss
from fcstream.local import (
    Euclidean,
    KernelDensity,
    Nearest,
    RangeCount,
    Records,
    Rounds,
    Series,
    ShareBelow,
    Simulation,
)
from fcstream.local.analyst.series import shares
from fcstream.noise.samplers import Noise, SeededEntropy

RHO = "rho per m2"
EVEN4, DOUBLING10, EVEN64 = Rounds(4, "even"), Rounds(10, "doubling"), Rounds(64, "even")
PLENTY = PrivacyLoss.cap(10**6)
KM = 1000.0
TAXIS, USERS = 9740, 10**6
SERIES = ((7, 1e-4), (28, 1e-4), (56, 1e-4), (56, 2.5e-5), (56, 4e-4))  # moments, rho per m2 in all
SEEDS = itertools.count()  # no noise is used twice: what comes of chance must not come again
WAYS = {
    "BM0": ("BM0", DOUBLING10),
    "BM1": ("BM1", DOUBLING10),
    "PM0 c4": ("PM0", EVEN4),
    "PM1 c4": ("PM1", EVEN4),
    "PM0 log-c10": ("PM0", DOUBLING10),
    "PM1 log-c10": ("PM1", DOUBLING10),
}


def data(name: str) -> Path:
    return Path(os.environ["FCSTREAM_DATA"]) / name


def houston() -> tuple[Euclidean, np.ndarray]:
    """Meters east and north of the city's middle, on a grid of 10 m; far outliers move to the box's edge."""
    with gzip.open(data("houston_incidents.csv.gz"), "rt") as file:
        rows = [(row["lon"], row["lat"]) for row in csv.DictReader(file)]
    degrees = np.array([[float(x or "nan") for x in row] for row in rows])
    radius = 6_378_137.0
    east = radius * np.radians(degrees[:, 0] + 95.37) * math.cos(math.radians(29.76))
    north = radius * np.radians(degrees[:, 1] - 29.76) * 1.0
    space = Euclidean((-50 * KM, -50 * KM), (50 * KM, 50 * KM), step=10.0, unit=KM)
    return space, space.encode_all(np.stack([east, north], axis=1))


def taxis(steps: int, seed: int = 5) -> tuple[Euclidean, np.ndarray]:
    """Places of n taxis at each step, (steps, n, 2): around hot spots of a city of 100 km, half of them on the move."""
    n = TAXIS
    rng = np.random.default_rng(seed)
    spots = rng.normal(0, 9 * KM, (25, 2))
    home = rng.choice(25, n, p=rng.dirichlet(np.ones(25) * 2))
    place = spots[home] + rng.normal(0, 4 * KM, (n, 2))
    found = []
    for _ in range(steps):
        moves = rng.random(n) < 0.5
        goal = spots[rng.integers(0, 25, n)] + rng.normal(0, 4 * KM, (n, 2))
        place = np.where(moves[:, None], 0.4 * place + 0.6 * goal, place + rng.normal(0, 0.3 * KM, (n, 2)))
        found.append(place)
    space = Euclidean((-50 * KM, -50 * KM), (50 * KM, 50 * KM), step=10.0, unit=KM)
    return space, np.stack([space.encode_all(p) for p in found])


def digits() -> np.ndarray:
    """Gray levels of images, (n, 784)."""
    return np.load(data("mnist_t10k.npz"))["x"].astype(np.int64)


def households() -> np.ndarray:
    """Incomes, a household each."""
    with gzip.open(data("acs_household_income.csv.gz"), "rt") as file:
        return np.array([float(row["hh_income"]) for row in csv.DictReader(file)])


def quartiles(values: list[float]) -> str:
    low, high = np.percentile(values, [25, 75])
    return f"{np.mean(values):9.3g} [{low:.3g}, {high:.3g}]"


def ratio_of(errors: list[float], base: list[float]) -> str:
    """Mean error over that of the baseline, and the middle 90% of what it is for resampled queries."""
    own, other = np.array(errors), np.array(base)
    if not other.mean():
        return ""
    picks = np.random.default_rng(0).integers(0, len(own), (2000, len(own)))  # the same queries for both
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.nanpercentile(own[picks].mean(axis=1) / other[picks].mean(axis=1), [5, 95])
    return f"  error x {own.mean() / other.mean():.3f} [{low:.2f}, {high:.2f}]"


def report(title: str, found: dict[str, tuple[list[float], list[float]]]) -> None:
    print(f"\n{title}")
    for way, (errors, savings) in found.items():
        base = "" if way.startswith("BM") else ratio_of(errors, found["B" + way[1:3]][0])
        print(f"  {way:12} error {quartiles(errors)}  saving {quartiles(savings)}{base}", flush=True)


def summary(rows: list[Row]) -> None:
    """Elimination against its baseline over all of a figure's queries, each weighed by its panel's mean error."""
    for figure in dict.fromkeys(row.figure for row in rows):
        mine = [row for row in rows if row.figure == figure]
        print(f"\n{figure}, all together (errors as parts of the baseline's mean in each panel)")
        for way in dict.fromkeys(row.way for row in mine if row.way.startswith("PM")):
            own, other = [], []
            for row in mine:
                base = next(r for r in mine if (r.panel, r.x, r.way) == (row.panel, row.x, "B" + way[1:3]))
                if row.way == way and np.mean(base.errors):
                    own += list(np.array(row.errors) / np.mean(base.errors))
                    other += list(np.array(base.errors) / np.mean(base.errors))
            print(f"  {way:12}{ratio_of(own, other)}")


def measure(queries: list, crowds: list, rho: float, ways: dict, errors_of) -> dict:
    found = {}
    for way, (method, rounds) in ways.items():
        errors, savings = [], []
        for query, (space, points) in zip(queries, crowds, strict=True):
            crowd = Simulation({"place": (space, points)}, PLENTY, Noise(SeededEntropy(next(SEEDS))))
            budgets = np.full(len(points), round(rho * 10**9), np.int64)
            answer = query.run(crowd, "q", budgets, method, rounds)
            errors.append(errors_of(query, answer.value, points))
            savings.append(answer.saving)
        found[way] = errors, savings
    return found


def count(repeats: int) -> Iterator[Row]:
    rng = np.random.default_rng(1)
    space, incidents = houston()
    city, places = taxis(24)
    for name, grid, crowds in (("incidents", space, [incidents]), ("taxis", city, list(places))):
        for width in (5 * KM, 10 * KM, 20 * KM):
            queries, points = [], []
            while len(queries) < repeats:
                crowd = crowds[len(queries) % len(crowds)]
                center = crowd[rng.integers(len(crowd))] * grid.step
                query = RangeCount.around("place", grid, center, (width, width))
                if query.exact(crowd) >= 100:
                    queries.append(query)
                    points.append((grid, crowd))
            for per_m2 in (1e-7, 1e-6, 1e-5):
                found = measure(queries, points, per_m2 * 1e6, WAYS, lambda q, v, p: q.error(v, q.exact(p)))
                report(
                    f"count, {name}, {width / KM:g} km, rho {per_m2:g}/m2 (sigma {math.sqrt(0.5 / per_m2):.0f} m)",
                    found,
                )
                for way, (errors, savings) in found.items():
                    yield Row(
                        f"Range counts of {name}", f"{width / KM:g} km", RHO, per_m2, way, errors, savings, "relative"
                    )


def density(repeats: int) -> Iterator[Row]:
    rng = np.random.default_rng(2)
    space, incidents = houston()
    for bandwidth in (500.0, 1000.0, 2000.0):
        places = [incidents[rng.integers(len(incidents))] * space.step for _ in range(repeats)]
        for kernel in ("plain", "auto"):
            queries = [KernelDensity.at("place", space, p, bandwidth, kernel) for p in places]
            for per_m2 in (1e-7, 1e-6, 1e-5):
                found = measure(
                    queries, [(space, incidents)] * repeats, per_m2 * 1e6, WAYS, lambda q, v, p: q.error(v, q.exact(p))
                )
                report(f"density, b {bandwidth:g} m, {kernel}, rho {per_m2:g}/m2", found)
                for way, (errors, savings) in found.items():
                    yield Row(
                        f"Densities of incidents, {kernel} kernel",
                        f"bandwidth {bandwidth:g} m",
                        RHO,
                        per_m2,
                        way,
                        errors,
                        savings,
                        "absolute",
                    )


def chance(repeats: int) -> Iterator[Row]:
    """Small errors that are noise alone need many draws: whether elimination adds to them."""
    rng = np.random.default_rng(6)
    space, incidents = houston()
    some = incidents[rng.permutation(len(incidents))[:3000]]
    for bandwidth, per_m2 in ((2000.0, 1e-6), (1000.0, 1e-6), (1000.0, 1e-5)):
        place = incidents[rng.integers(len(incidents))] * space.step
        queries = [KernelDensity.at("place", space, place, bandwidth, "unbiased")] * (5 * repeats)
        found = measure(
            queries, [(space, some)] * len(queries), per_m2 * 1e6, WAYS, lambda q, v, p: q.error(v, q.exact(p))
        )
        report(f"3,000 incidents, one place, b {bandwidth:g} m, unbiased, rho {per_m2:g}/m2", found)
        for way, (errors, savings) in found.items():
            title = "Densities of 3000 incidents, unbiased kernel, one place"
            yield Row(title, f"bandwidth {bandwidth:g} m", RHO, per_m2, way, errors, savings, "absolute")
    for per_m2 in (1e-6, 1e-5):
        queries = [RangeCount.around("place", space, place, (10 * KM, 10 * KM))] * (5 * repeats)
        found = measure(
            queries, [(space, some)] * len(queries), per_m2 * 1e6, WAYS, lambda q, v, p: q.error(v, q.exact(p))
        )
        report(f"3,000 incidents, one square of 10 km, rho {per_m2:g}/m2", found)
        for way, (errors, savings) in found.items():
            yield Row("Counts of 3000 incidents, one square", "10 km", RHO, per_m2, way, errors, savings, "relative")
    # Noisy distances are the same on a line, where digits stand as far from 0 as from the one asked about.
    images = digits()
    line, ways = Euclidean((0.0,), (8000.0,), 1.0, unit=100.0), ("BM1", "PM1 c4", "PM1 log-c10")
    picks = rng.permutation(len(images))[:10]
    away = [np.rint(np.sqrt(((images - images[pick]) ** 2).sum(axis=1))).astype(np.int64) for pick in picks]
    crowds = [(line, np.delete(a, pick)[:, None]) for a, pick in zip(away, picks, strict=True)]
    for k in (10, 50):
        queries = [Nearest.at("place", line, [0.0], k)] * (10 * max(1, repeats // 2))
        for rho in (1.0, 10.0):
            found = measure(
                queries, crowds * max(1, repeats // 2), rho, {w: WAYS[w] for w in ways}, lambda q, v, p: q.error(v, p)
            )
            report(f"nearest by distance, 10 digits, k {k}, rho {rho / 1e4:g} per squared gray level", found)
            for way, (errors, savings) in found.items():
                axis = "rho per squared gray level"
                yield Row("Nearest digits by distance", f"k = {k}", axis, rho / 1e4, way, errors, savings, "relative")


def nearest(repeats: int) -> Iterator[Row]:
    images = digits()
    picks = np.random.default_rng(3).permutation(len(images))[: min(repeats, 40)]
    crowd, space = np.delete(images, picks, axis=0), Euclidean.cube(784, 0.0, 255.0, 1.0, unit=100.0)
    ways = {
        "BM0": WAYS["BM0"],
        "BM1": WAYS["BM1"],
        "PM0 c4": WAYS["PM0 c4"],
        "PM1 c4": WAYS["PM1 c4"],
        "PM1 c64": ("PM1", EVEN64),
        "PM1 log-c10": WAYS["PM1 log-c10"],
    }
    for k in (10, 50):
        queries = [Nearest.at("place", space, images[pick], k) for pick in picks]
        for rho in (0.1, 1.0, 10.0):
            found = measure(queries, [(space, crowd)] * len(picks), rho, ways, lambda q, v, p: q.error(v, p))
            report(
                f"nearest, k {k}, rho {rho / 1e4:g} per squared gray level (sigma {100 / math.sqrt(2 * rho):.0f})",
                found,
            )
            for way, (errors, savings) in found.items():
                yield Row(
                    "Nearest digits",
                    f"k = {k}",
                    "rho per squared gray level",
                    rho / 1e4,
                    way,
                    errors,
                    savings,
                    "relative",
                )


def series(repeats: int) -> Iterator[Row]:
    """Counts at m moments: a component each. BM: B/m each, all of it; PM: Algorithm 3."""
    runs = max(3, repeats // 3)
    ways = {way: WAYS[way] for way in ("BM0", "PM0 log-c10", "BM1", "PM1 log-c10")} | {"PM1 c64": ("PM1", EVEN64)}
    for width in (5 * KM, 10 * KM):
        for m, per_m2 in SERIES:
            space, places = taxis(m)
            found = {way: _in_a_row(space, places, width, per_m2, runs, *how) for way, how in ways.items()}
            report(f"series, m {m}, {width / KM:g} km, B {per_m2:g}/m2 in all", found)
            for way, (errors, savings) in found.items():
                panel = f"{width / KM:g} km"
                if per_m2 == 1e-4:
                    yield Row("Counts in a row, B = 1e-4 per m2", panel, "m", m, way, errors, savings, "relative", True)
                if m == 56:
                    yield Row("56 counts in a row", panel, "B per m2", per_m2, way, errors, savings, "relative", True)


def _in_a_row(space, places, width, per_m2, runs, method, rounds) -> tuple[list[float], list[float]]:
    errors, savings = [], []
    for seed in range(runs):
        rng, noise = np.random.default_rng(seed), Noise(SeededEntropy(next(SEEDS)))  # the same questions for all ways
        crowd = Simulation({f"place@{t}": (space, p) for t, p in enumerate(places)}, PLENTY, noise)
        run = Series(crowd, BudgetSchedule(round(per_m2 * 1e15), len(places)), "s")
        told, saved = [], []
        for t, points in enumerate(places):
            truth = 0
            while truth < 100:
                center = points[rng.integers(len(points))] * space.step
                query = RangeCount.around(f"place@{t}", space, center, (width, width))
                truth = query.exact(points)
            answer = run.run(query, method, rounds)
            told.append(query.error(answer.value, truth))
            saved.append(answer.saving)
        errors.append(float(np.mean(told)))
        savings.append(float(np.mean(saved)))
    return errors, savings


def threshold(repeats: int) -> Iterator[Row]:
    incomes, space = households(), Records(-1000.0, 500_000.0)
    from fcstream.local import Component, Fleet, LocalBudget, LocalFilter

    for share in (Fraction(1, 20), Fraction(1, 2), Fraction(3, 5)):
        query = ShareBelow("incomes", space, 50_000.0, share)
        truth = query.exact(incomes)
        for rho in (1e-4, 1e-2):
            rows: dict[str, tuple[list[float], list[float]]] = {}
            for way in ("BM1", "PM1 c4", "PM1 log-c10"):
                method, rounds = WAYS[way]
                errors, savings = [], []
                for seed in range(repeats):
                    holder = LocalFilter(
                        LocalBudget.concentrated(1),
                        {"incomes": Component(space, incomes)},
                        noise=Noise(SeededEntropy(seed)),
                    )
                    answer = query.run(Fleet([holder]), "q", np.array([round(rho * 10**9)]), method, rounds)
                    errors.append(query.error(answer.value, truth))
                    savings.append(answer.saving)
                rows[way] = errors, savings
            report(f"threshold, q {float(share):g} (truth {(incomes <= 50_000).mean():.3f}), rho {rho:g}", rows)
            for way, (errors, savings) in rows.items():
                yield Row("Share of incomes below", f"q = {float(share):g}", "rho", rho, way, errors, savings, "wrong")


def speed() -> None:
    rng = np.random.default_rng(4)
    space = Euclidean((0.0, 0.0), (100 * KM, 100 * KM), step=10.0, unit=KM)
    points = space.encode_all(rng.normal(50 * KM, 15 * KM, (USERS, 2)))
    counting = RangeCount.around("place", space, (50 * KM, 50 * KM), (20 * KM, 20 * KM))
    images = digits()
    gray = Euclidean.cube(784, 0.0, 255.0, 1.0, unit=100.0)
    near = Nearest.at("place", gray, images[5], 10)
    print("\nseconds a query: processor (clock); medians of 3, the first run apart")
    for title, grid, crowd, query, ways in (
        ("a million users, PIE-NI, c = 10 doubling, rho 1e-5/m2", space, points, counting, ("PM1", "PM0")),
        ("10,000 digits, 784 dimensions, PIE-k, c = 10 doubling", gray, images, near, ("PM1", "PM0")),
        ("10,000 digits, 784 dimensions, PIE-k, c = 4 even", gray, images, near, ("PM1", "PM0")),
    ):
        rounds = EVEN4 if "even" in title else DOUBLING10
        for seeded in (True, False):
            for method in ways:
                budgets = np.full(len(crowd), 10**10, np.int64)
                times = []
                for seed in range(4):
                    noise = Noise(SeededEntropy(seed)) if seeded else Noise()
                    simulated = Simulation({"place": (grid, crowd)}, PLENTY, noise)
                    clock, used = time.perf_counter(), time.process_time()
                    answer = query.run(simulated, "q", budgets, method, rounds)
                    times.append((time.process_time() - used, time.perf_counter() - clock))
                cpu, wall = np.median(times[1:], axis=0)
                words = "seeded words" if seeded else "the system's words"
                print(f"  {title}, {method}, {words}: {cpu:.2f} ({wall:.2f}); saving {answer.saving:.2f}", flush=True)
    left = np.random.default_rng(1).integers(5 * 10**9, 10**10, USERS)
    started = time.perf_counter()
    shares(BudgetSchedule(10**10, 2), 2, left)
    print(f"  shares of a million users (Algorithm 3): {time.perf_counter() - started:.3f}")


PLACE = Euclidean((0.0, 0.0), (1000.0, 1000.0), 1.0, unit=100.0)
BEHIND = 20_000


def _gateway(url: str, ready: Event, stop: Event, used: Queue) -> None:
    """The devices, in a process of their own, as they would be."""
    from fcstream.local import Component, FileJournal, LocalBudget, LocalFilter
    from fcstream.local.transport.gateway import Gateway
    from fcstream.local.transport.mqtt import MqttGateway
    from fcstream.runtime.garbage import without_garbage_collection

    places = np.random.default_rng(1).normal(500, 150, (BEHIND, 2)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        journal, budget = FileJournal(os.path.join(folder, "journal"), keep=4), LocalBudget.concentrated(100)
        devices = [
            LocalFilter(budget, {"place": Component(PLACE, place)}, journal, name=str(i))
            for i, place in enumerate(places)
        ]
        with without_garbage_collection():  # as `fcstream local device` does
            gateway = MqttGateway(url, "g", Gateway(devices))
            started = time.process_time()
            ready.set()
            gateway.wait(stop)
            gateway.close()
        used.put(time.process_time() - started)
        journal.close()


def mqtt() -> None:
    from fcstream.local.transport.gateway import Remote
    from fcstream.local.transport.mqtt import MqttTransport

    url = f"mqtt://{os.environ.get('FCSTREAM_MQTT', '127.0.0.1:1883')}/fcstream-bench-{os.getpid()}"
    query = RangeCount.around("place", PLACE, (500, 500), (300, 300))
    context = multiprocessing.get_context("spawn")
    ready, stop, used = context.Event(), context.Event(), context.Queue()
    behind = context.Process(target=_gateway, args=(url, ready, stop, used))
    behind.start()
    ready.wait(120)
    transport = MqttTransport(url)
    remote = Remote(transport, [("g", str(i)) for i in range(BEHIND)], batch=1000, timeout_s=60)
    rates, again, started = [], [], time.process_time()
    for turn in range(11):
        for found in (rates, again):
            clock = time.perf_counter()
            answer = query.run(remote, f"q{turn}", np.full(BEHIND, 10**9, np.int64), "BM1")
            found.append(BEHIND / (time.perf_counter() - clock))
            assert answer.missing == 0
    own = time.process_time() - started
    transport.close()
    stop.set()
    theirs = used.get()
    behind.join()
    print(f"\nMQTT, {BEHIND:,} devices in batches of 1000, {len(rates)} rounds: answers a second by the clock")
    print(f"  on disk before they leave: median {np.median(rates):,.0f}, from {min(rates):,.0f} to {max(rates):,.0f}")
    print(f"  asked again, said again: median {np.median(again):,.0f}")
    both = 1e6 / (2 * len(rates) * BEHIND)
    print(f"  processor: {both * own:.1f} us an answer at the analyst's, {both * theirs:.1f} at the gateway's")


def main() -> None:
    experiments = {one.__name__: one for one in (count, density, chance, nearest, series, threshold)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*experiments, "speed", "mqtt", []])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    print(machine())
    names = chosen.names or [*experiments, "speed", "mqtt"]
    rows = [row for name in names if name in experiments for row in experiments[name](chosen.repeats)]
    summary(rows)
    if "speed" in names:
        speed()
    if "mqtt" in names:
        mqtt()
    if chosen.out:
        draw(rows, chosen.out)


if __name__ == "__main__":
    main()
