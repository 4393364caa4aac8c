"""Clusters by a private tree: figures of FriendlyCore's section 6.2, real data, what shares and thresholds do, speed.

    python bench/tree.py figure6 [--seeds 20] [--sizes 5000 20000 100000]
    python bench/tree.py figure7 [--seeds 3] [--dimensions 32 128]
    python bench/tree.py real [--seeds 20] [--rhos 0.1 1] [--only housing]
    python bench/tree.py beside [--seeds 5]
    python bench/tree.py shares [--seeds 10]
    python bench/tree.py speed

Pure zCDP, add/remove of a record; exact integers, all costs paid, seeded noise so that runs can be repeated. Costs are
sums of squared distances over that of scikit-learn's best of ten k-means++ on all data without privacy; Figure 6 tells
1 - X/Y as the paper does. Boxes are public: those of the maps are the city and the state with room around.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import os
import statistics
import sys
import time
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from clusters import blobs, cost
from clusters import real_jobs as balls
from sklearn.cluster import KMeans

import fcstream
from fcstream.noise.samplers import Noise, SeededEntropy


def released(rows: np.ndarray, k: int, rho: float, step: float, bounds, seed: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    noise = Noise(SeededEntropy(seed))
    answer = fcstream.private_centers(rows, k, rho=rho, step=step, bounds=bounds, method="tree", noise=noise)
    assert answer.centers is not None, answer.reason
    return answer.centers


def figure6(arguments: argparse.Namespace) -> None:
    print("n | " + " | ".join(f"median 1-X/Y, rho = {rho:g} | worst" for rho in arguments.rhos))
    for n in arguments.sizes:
        found: dict[float, list[float]] = {rho: [] for rho in arguments.rhos}
        for seed in range(arguments.seeds):
            rows, _ = blobs(n, seed)
            best = KMeans(8, n_init=10, random_state=seed).fit(rows).inertia_
            for rho, losses in found.items():
                losses.append(1 - best / cost(rows, released(rows, 8, rho, 1e-5, (-1.0, 1.0), seed)))
        print(f"{n} | " + " | ".join(f"{statistics.median(x):.5f} | {max(x):.5f}" for x in found.values()), flush=True)


def figure7(arguments: argparse.Namespace) -> None:
    """n = 100,000 of five Gaussians N(c, I), c uniform in {1, 2}**d; box [-10, 10]**d."""
    print("d | " + " | ".join(f"cost, rho = {rho:g}: median, worst" for rho in arguments.rhos))
    for d in arguments.dimensions:
        found: dict[float, list[float]] = {rho: [] for rho in arguments.rhos}
        for seed in range(arguments.seeds):
            rng = np.random.default_rng(seed)
            centers = rng.integers(1, 3, size=(5, d)).astype(float)
            rows = centers[rng.integers(0, 5, 100_000)]
            rows += rng.standard_normal(rows.shape)
            best = KMeans(5, n_init=1, init=centers).fit(rows).inertia_
            for rho, losses in found.items():
                losses.append(cost(rows, released(rows, 5, rho, 1e-3, (-10.0, 10.0), seed)) / best)
        print(f"{d} | " + " | ".join(f"{statistics.median(x):.5f}, {max(x):.5f}" for x in found.values()), flush=True)


def columns(name: str, *wanted: str) -> np.ndarray:
    with gzip.open(f"{os.environ['FCSTREAM_DATA']}/{name}.csv.gz", "rt") as file:
        rows = [[row[c] for c in wanted] for row in csv.DictReader(file) if all(row[c] for c in wanted)]
    return np.array(rows, np.float64)


def real_jobs():  # type: ignore[no-untyped-def]
    """(name, rows, box, step, numbers of clusters)."""
    places = columns("california_housing", "longitude", "latitude")
    yield "housing", places, ([-125, 32], [-114, 42]), 1e-4, (2, 3, 4, 5)
    yield "houston", columns("houston_incidents", "lon", "lat"), ([-95.9, 29.25], [-94.9, 30.25]), 1e-5, (2, 3, 4, 6, 8)
    beads = columns("flow_beads", "fsc", "ssc", "fl1", "fl2", "fl3") * (np.log2(10) / 256)
    yield "beads", beads, (0.0, 14.0), 1e-3, (4, 6, 8)
    folder = os.environ["FCSTREAM_DATA"]
    yield "digits", np.load(f"{folder}/digits_8x8.npz")["x"].astype(np.float64), (0.0, 16.0), 0.01, (10,)
    gas = np.load(f"{folder}/gas_sensor_drift.npz")["x"][:, ::8].astype(np.float64)
    yield "gas", gas, (-20_000.0, 350_000.0), 5.0, (2, 3, 4, 5, 6)
    yield "gas, asinh", np.arcsinh(gas / 1000), (-4.0, 7.0), 1e-3, (2, 3, 4, 5, 6)


def within(rows: np.ndarray, bounds) -> np.ndarray:  # type: ignore[no-untyped-def]
    low, high = (np.broadcast_to(np.asarray(end, float), rows.shape[1]) for end in bounds)
    return rows[((rows >= low) & (rows <= high)).all(axis=1)]


def real(arguments: argparse.Namespace) -> None:
    print("data | n | k | " + " | ".join(f"cost, rho = {rho:g}: median, worst" for rho in arguments.rhos))
    for name, every, bounds, step, numbers in real_jobs():
        if arguments.only and arguments.only not in name:
            continue
        rows = within(every, bounds)
        for k in numbers:
            best = KMeans(k, n_init=10, random_state=0).fit(rows).inertia_
            told = []
            for rho in arguments.rhos:
                costs = [cost(rows, released(rows, k, rho, step, bounds, s)) / best for s in range(arguments.seeds)]
                told.append(f"{statistics.median(costs):.4f}, {max(costs):.4f}")
            print(f"{name} | {len(rows)} | {k} | {' | '.join(told)}", flush=True)


def beside(arguments: argparse.Namespace) -> None:
    """The jobs of ``bench/rivals.py centers`` and ``real``, told a ball as there: medians."""
    print("data | k | " + " | ".join(f"cost, rho = {rho:g}" for rho in arguments.rhos))
    jobs = [(f"Figure 6, n = {n}", blobs(n, 0)[0], (0.0, 0.0), 1.0, 1e-5, (8,)) for n in (20_000, 50_000, 200_000)]
    for name, every, center, ball, step, numbers in [*jobs, *(job for job in balls() if len(job[2]) == 2)]:
        rows = every[((every - center) ** 2).sum(axis=1) <= ball**2]
        bounds = ([c - ball for c in center], [c + ball for c in center])
        for k in numbers:
            best = KMeans(k, n_init=10, random_state=0).fit(rows).inertia_
            told = []
            for rho in arguments.rhos:
                costs = [cost(rows, released(rows, k, rho, step, bounds, s)) / best for s in range(arguments.seeds)]
                told.append(f"{statistics.median(costs):.4f}")
            print(f"{name} | {k} | {' | '.join(told)}", flush=True)


def shares(arguments: argparse.Namespace) -> None:
    """What other shares, thresholds and slacks do to geometric means of costs; the first line is what is built in."""
    here, there = "fcstream.releases.clusters.tree_centers", "fcstream.releases.trees.growing"
    trials = [{}]
    trials += [{f"{here}.COUNT_SHARE": a, f"{here}.POINT_SHARE": b} for a, b in ((0.3, 0.3), (0.5, 0.25), (0.3, 0.1))]
    trials += [{f"{there}.ASKED": asked} for asked in (4.0, 8.0)] + [{f"{there}.KEPT": kept} for kept in (2.0, 3.5)]
    trials += [{f"{here}.REACHED": 0.95}, {f"{here}.SLACK": 1.0}, {f"{here}.LLOYD_COUNTS": 0.1}]
    jobs = []
    for name, every, bounds, step, numbers in real_jobs():
        if not (arguments.only and arguments.only not in name):
            rows = within(every, bounds)
            k = numbers[-1]
            jobs.append((name, rows, bounds, step, k, KMeans(k, n_init=10, random_state=0).fit(rows).inertia_))
    print("changed | " + " | ".join(f"{job[0]}, k = {job[4]}" for job in jobs))
    for trial in trials:
        told = []
        with contextlib.ExitStack() as changes:
            for name, value in trial.items():
                changes.enter_context(patch(name, value))
            for _, rows, bounds, step, k, best in jobs:
                for rho in arguments.rhos:
                    costs = [cost(rows, released(rows, k, rho, step, bounds, s)) for s in range(arguments.seeds)]
                    told.append(f"{np.exp(np.mean(np.log(np.array(costs) / best))):.4f}")
        changed = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in trial.items()) or "nothing"
        print(f"{changed} | {' | '.join(told)}", flush=True)


SPEEDS = ((1_000_000, 2, 8), (100_000, 8, 8), (100_000, 64, 10))  # n, d, k


def speed(arguments: argparse.Namespace) -> None:
    """Processor seconds of one answer, the second of two."""
    rng = np.random.default_rng(0)
    print("n | d | k | processor seconds")
    for n, d, k in SPEEDS:
        rows = np.clip(rng.uniform(-0.7, 0.7, size=(k, d))[rng.integers(0, k, n)] + rng.normal(0, 0.05, (n, d)), -1, 1)
        for turn in range(2):
            start = time.process_time()
            released(rows, k, 1.0, 1e-5, (-1.0, 1.0), turn)
            took = time.process_time() - start
        print(f"{n} | {d} | {k} | {took:.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {own.__name__: own for own in (figure6, figure7, real, beside, shares, speed)}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 20_000, 100_000])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rhos", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--only")
    arguments = parser.parse_args()
    parts[arguments.part](arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
