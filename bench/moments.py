"""Covariances from thousands of records: beside the same mechanism told everything, and beside diffprivlib.

    FCSTREAM_DATA=... python bench/moments.py [--seeds 15] [--part accuracy|rivals|speed]

`accuracy`: the worst error of a correlation, and of a variance relative to it, medians over seeds, n records drawn from
real data (Beijing's weather and its pollutants, 5 columns each; Californian housing, all 9; normal data of 8). fcstream
is told a range of a million on either side and nothing else, and pays for all of rho. The ideal is told every column's
mean and deviation, pays for nothing but products, and has the best of five radii, chosen with the truth: no mechanism
can do that. `clipped away` is the same without any noise, with 98% of the records in the ball.

`rivals`: diffprivlib (see rivals.py for how it is run, and what the two columns mean) is told every column's mean and
deviation, and for covariances and components the norm that holds 98% of the rows (beyond it rows are clipped); for the
regression the least and the largest value of every column. In a second run all that is told is ten times too wide.
Errors: worst correlation; the angle between the first principal component and the true one, in degrees; the part of the
target's variance that a regression leaves unexplained, the exact regression's in brackets.

`speed`: d = 64, n = 100,000: the closing of a window that holds the records, and all of `private_covariance`; processor
time.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rivals import Rivals, epsilons

import fcstream
from fcstream.accounting.losses import PrivacyLoss
from fcstream.counting.exact import FriendCounts
from fcstream.noise.samplers import Noise
from fcstream.releases.options import BuildContext
from fcstream.releases.statistics.clipped import ClippedCovarianceOptions
from fcstream.stream.lattice import Feature, Grid, Lattice

BOUNDS = (-1e6, 1e6)
WEATHER = ("temp_c", "pres_hpa", "dewp_c", "wind_ms", "o3")
POLLUTANTS = ("pm25", "so2", "no2", "co", "o3")
HOUSING = (
    "longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population", "households",
    "median_income", "median_house_value",
)  # fmt: skip
LEVELS = (0.95, 0.98, 0.99, 0.995, 0.999)
LONGEST = 0.05  # seconds for d = 64, n = 100,000


class Paid:
    """A charge for everything."""

    def open(self, needed: PrivacyLoss) -> None:
        pass

    def start(self, stage: PrivacyLoss) -> None:
        pass


def columns(name: str, wanted: tuple[str, ...]) -> np.ndarray:
    with gzip.open(f"{os.environ['FCSTREAM_DATA']}/{name}.csv.gz", "rt") as file:
        rows = [[row[c] for c in wanted] for row in csv.DictReader(file) if all(row[c] for c in wanted)]
    return np.array(rows, np.float64)


def data_sets() -> Iterator[tuple[str, np.ndarray]]:
    yield "weather (air), d = 5", columns("beijing_air_quality", WEATHER)
    yield "pollutants (air), d = 5", columns("beijing_air_quality", POLLUTANTS)
    yield "housing, d = 9", columns("california_housing", HOUSING)
    random = np.random.default_rng(2)
    yield "normal, d = 8", random.normal(size=(30_000, 8)) @ random.normal(size=(8, 8)) * np.geomspace(0.01, 100, 8)


def worst(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(found - truth).max())


def of_covariance(matrix: np.ndarray) -> np.ndarray:
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    return matrix / np.outer(scale, scale)


def clipped(rows: np.ndarray, level: float, rho: float, random: np.random.Generator) -> np.ndarray:
    """The noisy second moments of standardized rows, told everything; no noise for an infinite rho."""
    norms = np.linalg.norm(rows, axis=1)
    radius = np.quantile(norms, level)
    kept = rows * np.minimum(1, radius / np.maximum(norms, 1e-300))[:, None]
    d = rows.shape[1]
    noise = np.tril(random.normal(size=(d, d)), -1) / math.sqrt(2)
    noise = (noise + noise.T + np.diag(random.normal(size=d))) * radius**2 / math.sqrt(2 * rho)
    values, vectors = np.linalg.eigh(np.cov(kept.T, bias=True) + noise / len(rows))
    return (vectors * np.maximum(values, 0)) @ vectors.T


def accuracy(seeds: int) -> None:
    print("data | n | rho | fcstream | its sigma | the ideal | ratio | clipped away | fcstream's variances | refused")
    for name, everything in data_sets():
        for n, rho in ((1000, 0.1), (5000, 0.1), (20_000, 0.1), (1000, 1.0), (5000, 1.0)):
            own, sigmas, ideal, bias, variances, refused = [], [], {level: [] for level in LEVELS}, [], [], 0
            for seed in range(seeds):
                random = np.random.default_rng(seed)
                rows = everything[random.choice(len(everything), n, replace=False)]
                truth = np.corrcoef(rows.T)
                answer = fcstream.private_covariance(rows, rho=rho, size_hint=n, step=1e-3, bounds=BOUNDS)
                if answer.parts is None:
                    refused += 1
                else:
                    own.append(worst(np.array(answer.parts["correlations"], float), truth))
                    variances.append(worst(np.diag(np.array(answer.value)) / rows.var(axis=0), np.ones(rows.shape[1])))
                    sigmas.append(float(np.max(np.array(answer.parts["correlation_sigma"], float))))
                told = (rows - rows.mean(axis=0)) / rows.std(axis=0)
                for level, errors in ideal.items():
                    errors.append(worst(of_covariance(clipped(told, level, rho, random)), truth))
                bias.append(worst(of_covariance(clipped(told, 0.98, math.inf, random)), truth))
            best = min(statistics.median(errors) for errors in ideal.values())
            middle, sigma, moved = (statistics.median(each) if each else math.nan for each in (own, sigmas, variances))
            print(
                f"{name} | {n} | {rho} | {middle:.4f} | {sigma:.4f} | {best:.4f} | {middle / best:.2f} | "
                f"{statistics.median(bias):.4f} | {moved:.4f} | {refused} of {seeds}",
                flush=True,
            )


def unexplained(rows: np.ndarray, slopes: np.ndarray, intercept: float) -> float:
    rest = rows[:, -1] - rows[:, :-1] @ slopes - intercept
    return float((rest**2).mean() / rows[:, -1].var())


def angle(one: np.ndarray, two: np.ndarray) -> float:
    return math.degrees(math.acos(min(1.0, abs(float(one @ two)))))


def rivals(seeds: int) -> None:
    print(
        "data | n | what | fcstream | "
        + " | ".join(f"{name}, told {off} x" for off in (1, 10) for name in epsilons(1, 1))
    )
    n, rho = 5000, 1.0
    with tempfile.TemporaryDirectory() as scratch:
        others = Rivals(scratch)
        for name, everything in data_sets():
            own: dict[str, list[float]] = {"covariance": [], "component": [], "regression": []}
            data, truths, exact = {}, [], []
            for seed in range(seeds):
                random = np.random.default_rng(seed)
                rows = everything[random.choice(len(everything), n, replace=False)]
                told = (rows - rows.mean(axis=0)) / rows.std(axis=0)
                truth = np.corrcoef(rows.T)
                first = np.linalg.eigh(truth)[1][:, -1]
                d = rows.shape[1]
                answer = fcstream.private_covariance(
                    rows, rho=rho, size_hint=n, step=1e-3, bounds=BOUNDS, components=1, target=d - 1
                )
                own["covariance"].append(worst(np.array(answer.parts["correlations"], float), truth))
                if answer.parts["components"] is not None:
                    own["component"].append(angle(np.array(answer.parts["components"][0]), first))
                if answer.parts["coefficients"] is not None:
                    slopes = np.array([answer.parts["coefficients"][f"x{k}"] for k in range(d - 1)])
                    own["regression"].append(unexplained(rows, slopes, answer.parts["intercept"]))
                best = np.linalg.lstsq(np.column_stack([told[:, :-1], np.ones(n)]), told[:, -1], rcond=None)[0]
                exact.append(unexplained(told, best[:-1], best[-1]))
                data[f"rows{seed}"] = told
                truths.append((truth, first, told))
            for what, errors in own.items():
                found = []
                for off in (1, 10):
                    for each in epsilons(rho, 1).values():
                        jobs = []
                        for seed, (_, _, told) in enumerate(truths):
                            norm = off * float(np.quantile(np.linalg.norm(told, axis=1), 0.98))
                            low, high = (off * told).min(axis=0).tolist(), (off * told).max(axis=0).tolist()
                            jobs.append(
                                {"what": what, "data": f"rows{seed}", "each": each, "norm": norm, "low": low}
                                | {"high": high, "seed": seed}
                            )
                        answers = others.ask("diffprivlib", jobs, data)
                        judged, silent = [], set()
                        for said, (truth, first, told) in zip(answers, truths, strict=True):
                            if isinstance(said, str):
                                silent.add(said)
                                continue
                            if what == "covariance":
                                judged.append(worst(of_covariance(said), truth))
                            elif what == "component":
                                judged.append(angle(said / np.linalg.norm(said), first))
                            else:
                                judged.append(unexplained(told, said[:-1], said[-1]))
                        found.append(f"{statistics.median(judged):.4g}" if judged else ", ".join(sorted(silent)))
                middle = f"{statistics.median(errors):.4g}" if errors else "null"
                least = f" ({statistics.median(exact):.4g})" if what == "regression" else ""
                nulls = f", null in {seeds - len(errors)} of {seeds}" if len(errors) < seeds else ""
                print(f"{name} | {n} | {what} | {middle}{least}{nulls} | {' | '.join(found)}", flush=True)


def speed(n: int = 100_000, d: int = 64) -> bool:
    rows = np.random.default_rng(1).normal(size=(n, d)) * np.geomspace(0.1, 10, d)
    grid = Grid(Lattice(1e-3), tuple(Feature(f"x{k}", -1000.0, 1000.0) for k in range(d)))
    counter, best = FriendCounts(d, None), {}
    counter.add(0, grid.points(rows))
    for scale in ("learned", "declared"):
        options = ClippedCovarianceOptions(rho=1.0, size_hint=n, scale=scale)
        mechanism, walls, processors = options.build(BuildContext(grid)), [], []
        for _ in range(8):
            wall, processor = time.perf_counter(), time.process_time()
            mechanism.release(counter.view([0]), Paid(), Noise())
            walls.append(time.perf_counter() - wall)
            processors.append(time.process_time() - processor)
        best[scale] = min(processors[1:])
        print(f"d = {d}, n = {n:,}, scale {scale}: {best[scale]:.3f} s of processor, {min(walls[1:]):.3f} s passed")
    whole = []
    for _ in range(8):
        processor = time.process_time()
        fcstream.private_covariance(rows, rho=1.0, size_hint=n, step=1e-3, bounds=(-1000, 1000))
        whole.append(time.process_time() - processor)
    best["array"] = min(whole[1:])
    print(f"d = {d}, n = {n:,}, private_covariance of an array: {best['array']:.3f} s of processor")
    print(f"(limit {LONGEST} s)")
    return max(best.values()) <= LONGEST


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--part", choices=("accuracy", "rivals", "speed"))
    arguments = parser.parse_args()
    fine = True
    if arguments.part in (None, "accuracy"):
        accuracy(arguments.seeds)
    if arguments.part in (None, "rivals"):
        rivals(arguments.seeds)
    if arguments.part in (None, "speed"):
        fine = speed()
    sys.exit(not fine)


if __name__ == "__main__":
    main()
