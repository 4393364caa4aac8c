"""Clusters and points by a private tree: FriendlyCore's section 6.2, real data, shares and thresholds, speed.

    python bench/tree.py figure6 [--seeds 20] [--sizes 5000 20000 100000]
    python bench/tree.py figure7 [--seeds 3] [--dimensions 32 128]
    python bench/tree.py real [--seeds 20] [--rhos 0.1 1] [--only housing]
    python bench/tree.py beside [--seeds 5]
    python bench/tree.py points [--seeds 5] [--sizes 1000 100000] [--only housing]
    python bench/tree.py mixtures [--seeds 5] [--only housing]
    python bench/tree.py shares [--seeds 10]
    python bench/tree.py speed

Pure zCDP, add/remove of a record; exact integers, all costs paid, seeded noise so that runs can be repeated. Costs are
sums of squared distances over that of scikit-learn's best of ten k-means++ on all data without privacy; Figure 6 tells
1 - X/Y as the paper does. Points: the mean Wasserstein distance from the records along 40 random directions, in parts
of the public ranges, and the mean error of the share of records in 200 ranges of two features that records span.
Mixtures, with and without the fit of overlapping clusters: the worst errors of weights, of means in deviations and of
covariances as a share of them; of real data the mean log-density of records, and what the fit adds. Boxes are public:
those of the maps are the city and the state with room around.
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
import fcstream.releases.clusters.overlaps
from fcstream.noise.samplers import Noise, SeededEntropy


def released(rows: np.ndarray, k: int, rho: float, step: float, bounds, seed: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    noise = Noise(SeededEntropy(seed))
    answer = fcstream.private_centers(rows, k, rho=rho, step=step, bounds=bounds, method="tree", noise=noise)
    assert answer.value is not None, answer.reason
    return np.array(answer.value)


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


class Judge:
    """How far weighted points are from records: along directions, and in shares of ranges of two features."""

    def __init__(self, rows: np.ndarray, span: np.ndarray) -> None:
        rng, d = np.random.default_rng(0), rows.shape[1]
        self.rows, self.span = rows, span
        self.directions = rng.normal(size=(40, d))
        self.directions /= np.linalg.norm(self.directions, axis=1, keepdims=True)
        self.ranges = []
        for _ in range(200):
            low, high = np.full(d, -np.inf), np.full(d, np.inf)
            for j in rng.choice(d, min(2, d), replace=False):
                low[j], high[j] = np.sort(rows[rng.choice(len(rows), 2), j])
            self.ranges.append((low, high))

    def __call__(self, points: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        weights = weights / weights.sum()
        far = []
        for direction in self.directions:
            a, b = points / self.span @ direction, np.sort(self.rows / self.span @ direction)
            order = np.argsort(a)
            every = np.sort(np.concatenate([a, b]))[:-1]
            passed = np.append(0.0, np.cumsum(weights[order]))[np.searchsorted(a[order], every, side="right")]
            gaps = np.abs(passed - np.searchsorted(b, every, side="right") / len(b))
            far.append(float(gaps @ np.diff(np.append(every, max(a.max(), b[-1])))))
        inside = [((x >= low) & (x <= high)).all(axis=1) for low, high in self.ranges for x in (points, self.rows)]
        off = [abs(weights @ made - real.mean()) for made, real in zip(inside[::2], inside[1::2], strict=True)]
        return float(np.mean(far)), float(np.mean(off))


def medians(errors: list[tuple[float, ...]]) -> str:
    return ", ".join(f"{error:.4f}" for error in np.median(errors, axis=0))


def points(arguments: argparse.Namespace) -> None:
    """A thousand rows drawn from the tree, points by cells, a thousand of the records, and what `auto` takes."""
    told = ("tree", "cells", "a sample, not private")
    print("data | n | d | rho | " + " | ".join(f"{name}: distance, ranges" for name in told) + " | auto")
    for name, every, bounds, step, _ in real_jobs():
        if arguments.only and arguments.only not in name:
            continue
        every = within(every, bounds)
        low, high = (np.broadcast_to(np.asarray(end, float), every.shape[1]) for end in bounds)
        for n in dict.fromkeys(min(size, len(every)) for size in arguments.sizes):
            rows = every[np.random.default_rng(0).choice(len(every), n, replace=False)]
            judge = Judge(rows, high - low)
            for rho in arguments.rhos:
                found: dict[str, list[tuple[float, ...]]] = {method: [] for method in told}
                for seed in range(arguments.seeds):
                    for method in told[:2]:
                        noise = Noise(SeededEntropy(seed))
                        answer = fcstream.private_points(
                            rows, rho=rho, step=step, bounds=bounds, method=method, noise=noise
                        )
                        if answer.value is not None:
                            found[method].append(judge(np.array(answer.value), np.array(answer.parts["weights"])))
                    some = rows[np.random.default_rng(seed).choice(n, 1000)]
                    found[told[2]].append(judge(some, np.ones(1000)))
                errors = [medians(one) if one else "refused" for one in found.values()]
                # Of cells there are noisy counts.
                auto = fcstream.private_points(
                    rows, rho=rho, step=step, bounds=bounds, size_hint=n, noise=Noise(SeededEntropy(0))
                )
                errors.append("cells" if "counts" in auto.parts else "tree")
                print(f"{name} | {n} | {every.shape[1]} | {rho:g} | {' | '.join(errors)}", flush=True)


def mixture(rows: np.ndarray, k: int, rho: float, step: float, bounds, seed: int, least: float):  # type: ignore[no-untyped-def]
    """A mixture by a tree, fitted where clusters overlap by more than `least`."""
    with patch("fcstream.releases.clusters.overlaps.MIN", least):
        noise = Noise(SeededEntropy(seed))
        return fcstream.private_mixture(rows, k, rho=rho, step=step, bounds=bounds, method="tree", noise=noise)


def log_density(rows: np.ndarray, answer) -> float:  # type: ignore[no-untyped-def]
    """The mean, with covariances that are at least a fiftieth of the records' own deviation wide."""
    least = (0.02**2) * float(rows.var(axis=0).mean())
    each = []
    for weight, mean, covariance in zip(
        answer.parts["weights"], answer.value, np.array(answer.parts["covariances"]), strict=True
    ):
        values, vectors = np.linalg.eigh(covariance)
        places = (rows - mean) @ vectors
        values = np.maximum(values, least)
        each.append(np.log(max(weight, 1e-12)) - 0.5 * ((places**2 / values).sum(axis=1) + np.log(values).sum()))
    return float(np.logaddexp.reduce(each).mean()) - rows.shape[1] / 2 * float(np.log(2 * np.pi))


def mixtures(arguments: argparse.Namespace) -> None:
    built_in = fcstream.releases.clusters.overlaps.MIN
    print("made | parts alone: weights, means, covariances | fitted where clusters overlap | fitted")
    for d, k, n, rho in MADE:
        for apart in (2.0, 3.0, 4.0, 6.0, 10.0):
            found: dict[float, list[tuple[float, ...]]] = {np.inf: [], built_in: []}
            fitted = 0
            for seed in range(arguments.seeds):
                rng, turn = np.random.default_rng(seed), 2 * np.pi * np.arange(k) / k + 0.3
                middles, wide = np.zeros((k, d)), np.array([1.0, 0.7, 1.3, 0.8])[:k]
                middles[:, :2] = apart / 2 / np.sin(np.pi / k) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
                shares = np.array([0.4, 0.3, 0.2, 0.1]) if k == 4 else np.array([0.5, 0.3, 0.2])
                labels, axes = rng.choice(k, n, p=shares), np.linspace(0.6, 1.4, d)
                rows = middles[labels] + rng.normal(size=(n, d)) * np.sqrt(axes) * wide[labels, None]
                for least, errors in found.items():
                    answer = mixture(rows, k, rho, 1e-3, (-20.0, 20.0), seed, least)
                    means, covariances = np.array(answer.value), np.array(answer.parts["covariances"])
                    near = [int(((means - middle) ** 2).sum(axis=1).argmin()) for middle in middles]
                    gaps = covariances[near] - wide[:, None, None] ** 2 * np.diag(axes)
                    truth = np.linalg.norm(axes) * wide**2
                    errors.append(
                        (
                            np.abs(np.array(answer.parts["weights"])[near] - shares).max(),
                            (np.linalg.norm(means[near] - middles, axis=1) / wide).max(),
                            (np.linalg.norm(gaps, axis=(1, 2)) / truth).max(),
                        )
                    )
                fitted += answer.parts["fitted"]
            told = [medians(one) for one in found.values()]
            print(
                f"d = {d}, k = {k}, n = {n}, rho = {rho:g}, {apart:g} apart | {' | '.join(told)} | {fitted}", flush=True
            )
    print("data | k | rho | log-density of parts alone | what the fit adds: median, least | fitted")
    for name, every, bounds, step, numbers in real_jobs():
        rows = within(every, bounds)
        if rows.shape[1] > 5 or (arguments.only and arguments.only not in name):
            continue
        for k in numbers[::2]:
            for rho in arguments.rhos:
                before, gains, fitted = [], [], 0
                for seed in range(arguments.seeds):
                    parts, answer = (mixture(rows, k, rho, step, bounds, seed, least) for least in (np.inf, built_in))
                    before.append(log_density(rows, parts))
                    gains.append(log_density(rows, answer) - before[-1])
                    fitted += answer.parts["fitted"]
                told = f"{np.median(before):.3f} | {np.median(gains):.3f}, {min(gains):.3f} | {fitted}"
                print(f"{name} | {k} | {rho:g} | {told}", flush=True)


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


MADE = ((2, 3, 20_000, 0.1), (2, 3, 4_000, 0.3), (2, 4, 20_000, 1.0), (3, 3, 20_000, 1.0), (5, 3, 20_000, 1.0))
"""d, k, n, rho."""
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
    parts = {own.__name__: own for own in (figure6, figure7, real, beside, points, mixtures, shares, speed)}
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
