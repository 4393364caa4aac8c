"""Clusters: figures of FriendlyCore's section 6.2, what a perfect oracle would reach, real data, and speed.

    python bench/clusters.py figure6 [--seeds 100] [--sizes 100000 200000]
    python bench/clusters.py figure7 [--seeds 10] [--dimensions 32 128 512]
    python bench/clusters.py mixtures [--seeds 20]
    python bench/clusters.py real
    python bench/clusters.py speed
    python bench/clusters.py paper
    python bench/clusters.py refusals [--seeds 2] [--draws 10] [--figure6 20]

rho = 1, delta = 1e-8, add/remove of a record; tuples are replaced. All public parameters are functions of n, k, d and
the ball. Seeded noise, so that runs can be repeated. "perfect" is the same release from tuples that an oracle which
knows the truth would return: the means of each shard's records by their true labels. "paper" is what plans ask for, by
the three forms, at 100,000 records of 3 clusters in the plane: no data are looked at. "refusals" deals every data set
into shards `seeds` times and draws `draws` releases of each: how many tuples' pairs do not match (exactly, so not
private), how often the check of these pairs stops a window, and what refusals cost of rho, with the check and without.
"wrongly" is how many of the windows that are released without the check it stops.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import math
import os
import statistics
import sys
import time
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from fcstream.accounting.losses import PrivacyLoss
from fcstream.counting.exact import FriendCounts
from fcstream.errors import ConfigError
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.clusters.agreement import plan_gaussian
from fcstream.releases.clusters.ktuples import BallCenters
from fcstream.releases.clusters.mixtures import MixtureAlgorithm
from fcstream.releases.clusters.plan import ClusterJob
from fcstream.releases.clusters.tuples import MatchCheck, TupleAverage, radius_grid
from fcstream.stream.lattice import Lattice

LOSS = PrivacyLoss.charge(1, 1e-8)
FIGURE7_ROWS = 250_000
PAPER_RHOS = (1, 4, 10)
MIXTURES = ((2, 20_000), (2, 100_000), (8, 100_000))  # d, n
TARGETS = {100_000: 0.0003, 200_000: 0.0001}
LSH = {20_000: 0.860, 50_000: 0.774, 100_000: 0.755, 200_000: 0.692}  # Google's LSH clustering at epsilon = 2, measured


def nothing(loss: PrivacyLoss) -> None:
    """Stages are paid as a whole."""


def cost(rows: np.ndarray, centers: np.ndarray) -> float:
    squares = np.full(len(rows), np.inf)
    for center in centers:
        squares = np.minimum(squares, ((rows - center) ** 2).sum(axis=1))
    return float(squares.sum())


def view_of(rows: np.ndarray, lattice: Lattice):
    friends = FriendCounts(rows.shape[1], None)
    friends.add(0, lattice.coordinates(rows))
    return friends.view([0])


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Figure 6: eight centers uniform in the unit disk, deviation 1/(32 sqrt 2), clipped to the disk."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(8, 2))
    centers *= np.sqrt(rng.random((8, 1))) / np.linalg.norm(centers, axis=1, keepdims=True)
    labels = np.repeat(np.arange(8), n // 8)
    rows = centers[labels] + rng.normal(0, 1 / (32 * np.sqrt(2)), size=(n, 2))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    order = rng.permutation(n)
    return rows[order], labels[order]


def perfect_tuples(rows: np.ndarray, labels: np.ndarray, coins: np.ndarray, t: int, k: int) -> np.ndarray:
    """Means of every shard's records by their true labels; 0 where a shard has none of a label."""
    cell = coins * k + labels
    counts = np.bincount(cell, minlength=t * k)
    sums = np.stack([np.bincount(cell, rows[:, c], minlength=t * k) for c in range(rows.shape[1])], axis=1)
    return np.rint(sums / np.maximum(counts, 1)[:, None]).reshape(t, k, -1)


def figure6(arguments: argparse.Namespace) -> bool:
    """d = 2, k = 8; see `blobs`. X is the loss of k-means++ (best of ten) on all data, Y that of the release."""
    lattice, well = Lattice(1e-5), True
    print("n | t | predicted separation | released | by a perfect oracle | median 1-X/Y | of the perfect | LSH")
    for n in arguments.sizes:
        job = ClusterJob(8, (0.0, 0.0), 1.0, n, oracle=arguments.oracle)
        mechanism, plan = job.mechanism(LOSS, lattice), job.choose(LOSS, lattice).plan
        losses, perfect = [], []
        for seed in range(arguments.seeds):
            rows, labels = blobs(n, seed)
            best = KMeans(8, n_init=10, random_state=seed).fit(rows).inertia_
            view, noise = view_of(rows, lattice), Noise(SeededEntropy(seed))
            points = view.points()
            coins = noise.uniform_integers(plan.tuples, n)
            for kind, tuples in (
                (losses, mechanism.shards.cluster(points, coins)),
                (perfect, perfect_tuples(points, labels, coins, plan.tuples, 8)),
            ):
                found = mechanism.from_tuples(tuples, view, Noise(SeededEntropy(10**6 + seed)), nothing)
                if found.centers is not None:
                    kind.append(1 - best / cost(rows, found.centers * lattice.step))
        share, ideal = len(losses) / arguments.seeds, len(perfect) / arguments.seeds
        middle = statistics.median(losses) if losses else float("nan")
        reference = statistics.median(perfect) if perfect else float("nan")
        well &= n not in TARGETS or (share >= 0.9 * ideal and middle <= TARGETS[n])
        print(
            f"{n} | {plan.tuples} | {plan.separation:.2f} | {share:.2f} | {ideal:.2f} | {middle:.5f} | {reference:.5f} "
            f"| {LSH.get(n, float('nan'))}",
            flush=True,
        )
    return well


def figure7(arguments: argparse.Namespace) -> bool:
    """n = 250,000 of five Gaussians N(c, I), c uniform in {1, 2}**d; ball 10 sqrt(d)."""
    well, k, n = True, 5, FIGURE7_ROWS
    print("d | t | predicted separation | released | labeling failure: median, worst | with the true centers")
    for d in arguments.dimensions:
        lattice = Lattice(1e-3)
        job = ClusterJob(k, (0.0,) * d, 10.0 * d**0.5, n, radius_min=0.1)
        mechanism, plan = job.mechanism(LOSS, lattice), job.choose(LOSS, lattice).plan
        failures, known = [], []
        for seed in range(arguments.seeds):
            rng = np.random.default_rng(seed)
            centers = rng.integers(1, 3, size=(k, d)).astype(float)
            labels = rng.integers(0, k, n)
            rows = rng.standard_normal((n, d))
            rows += centers[labels]
            view = view_of(rows, lattice)
            found = mechanism.find(view, Noise(SeededEntropy(seed)), nothing)
            known.append(failure(rows, labels, centers))
            if found.centers is not None:
                failures.append(failure(rows, labels, found.centers * lattice.step))
        share = f"{len(failures)} of {arguments.seeds}"
        told = f"{statistics.median(failures):.4f}, {max(failures):.4f}" if failures else "-"
        well &= d != 512 or sum(f < 0.0005 for f in failures) >= 0.9 * arguments.seeds
        print(
            f"{d} | {plan.tuples} | {plan.separation:.1f} | {share} | {told} | {statistics.median(known):.4f}",
            flush=True,
        )
    return well


def mixtures(arguments: argparse.Namespace) -> bool:
    """Three Gaussians of unequal weights and widths, centers 1 apart; errors beside those of the labeled rows' own."""
    weights, well = np.array([0.5, 0.3, 0.2]), True
    print(
        "d | n | t | released | weights | means, deviations | covariances, share | the rows' own: weights, means, cov."
    )
    for d, n in MIXTURES:
        lattice, found, own = Lattice(1e-5), [], []
        job = ClusterJob(3, (0.0,) * d, 1.2, n // 2, spread=0.04 * 1.5 * d**0.5 + 0.06, lloyd=False)
        made = MixtureAlgorithm.of(job, LOSS, lattice)
        for seed in range(arguments.seeds):
            rng = np.random.default_rng(seed)
            centers = np.linalg.qr(rng.normal(size=(max(3, d), 3)))[0].T[:, :d] if d > 2 else turned(rng)
            widths = rng.uniform(0.01, 0.03, size=(3, d))
            labels = rng.choice(3, n, p=weights)
            rows = centers[labels] + rng.normal(size=(n, d)) * widths[labels]
            parts = [rows[labels == j] for j in range(3)]
            own.append(
                errors(
                    np.array([len(part) / n for part in parts]),
                    np.stack([part.mean(axis=0) for part in parts]),
                    np.stack([np.cov(part.T) for part in parts]),
                    (weights, centers, widths),
                )
            )
            answer = made.release(view_of(rows, lattice), Noise(SeededEntropy(seed)), nothing)
            if answer.reason is None:
                told = answer.means * lattice.step, answer.covariances * lattice.step**2
                found.append(errors(answer.weights, *told, (weights, centers, widths)))
        well &= len(found) >= 0.9 * arguments.seeds
        middles = [" | ".join(f"{x:.4f}" for x in np.median(table, axis=0)) for table in (found, own) if table]
        print(
            f"{d} | {n} | {made.shards.tuples} | {len(found)} of {arguments.seeds} | {' | '.join(middles)}", flush=True
        )
    return well


def turned(rng: np.random.Generator) -> np.ndarray:
    """An equilateral triangle."""
    angles = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(3) / 3
    return np.column_stack([np.cos(angles), np.sin(angles)]) / 3**0.5


def errors(weights, means, covariances, truth):  # type: ignore[no-untyped-def]
    """Worst error of a weight, of a mean in deviations, and of a covariance as a share of its norm."""
    true_weights, centers, widths = truth
    order = linear_sum_assignment(((centers[:, None] - means[None]) ** 2).sum(axis=2))[1]
    true = np.stack([np.diag(w**2) for w in widths])
    gaps = np.linalg.norm((means[order] - centers) / widths, axis=1) / centers.shape[1] ** 0.5
    shares = np.linalg.norm(covariances[order] - true, axis=(1, 2)) / np.linalg.norm(true, axis=(1, 2))
    return np.abs(weights[order] - true_weights).max(), gaps.max(), shares.max()


def failure(rows: np.ndarray, labels: np.ndarray, centers: np.ndarray) -> float:
    """Share of rows labeled wrongly under the best naming of the centers."""
    k = len(centers)
    nearest = (-2 * rows @ centers.T + (centers**2).sum(axis=1)).argmin(axis=1)
    table = np.zeros((k, k))
    np.add.at(table, (labels, nearest), 1)
    return 1 - table[linear_sum_assignment(-table)].sum() / len(rows)


def real_jobs():  # type: ignore[no-untyped-def]
    """(name, rows, public center, ball, step, numbers of clusters)."""
    folder = os.environ["FCSTREAM_DATA"]

    def columns(name: str, *wanted: str) -> np.ndarray:
        with gzip.open(f"{folder}/{name}.csv.gz", "rt") as file:
            reader = csv.DictReader(file)
            rows = [[row[c] for c in wanted] for row in reader if all(row[c] for c in wanted)]
        return np.array(rows, np.float64)

    beads = columns("flow_beads", "fl1", "fl2", "ref_peak")
    yield "flow_beads", beads[:, :2], (512.0, 512.0), 725.0, 0.05, (2, 4, 6, 8)
    yield (
        "flow_beads, peaks 0 to 5",
        beads[(beads[:, 2] >= 0) & (beads[:, 2] <= 5), :2],
        (512.0, 512.0),
        725.0,
        0.05,
        (6,),
    )
    gas = np.load(f"{folder}/gas_sensor_drift.npz")["x"][:, ::8].astype(np.float64)
    yield "gas_sensor_drift, 16 sensors", gas, (50_000.0,) * 16, 3e5, 5.0, (2, 3, 4, 5, 6)
    yield (
        "california_housing",
        columns("california_housing", "longitude", "latitude"),
        (-119.5, 37.0),
        7.0,
        1e-4,
        (2, 3, 4, 5),
    )
    yield "houston_incidents", columns("houston_incidents", "lon", "lat"), (-95.4, 29.75), 0.5, 1e-5, (2, 3, 4, 6, 8)
    digits = np.load(f"{folder}/mnist_t10k.npz")["x"].astype(np.float64)
    yield "mnist_t10k", digits, (0.0,) * 784, 5000.0, 1.0, (2, 3, 5, 10)


def real(arguments: argparse.Namespace) -> bool:
    print(
        "data | n | k | rho | t | released | loss over the non-private loss: median of the released | refused because"
    )
    for name, rows, center, ball, step, numbers in real_jobs():
        lattice = Lattice(step)
        rows = rows[((rows - center) ** 2).sum(axis=1) <= ball**2]
        view = view_of(rows, lattice)
        for k in numbers:
            best = KMeans(k, n_init=10, random_state=0).fit(rows).inertia_
            for rho in (1, 4):
                loss = PrivacyLoss.charge(rho, 1e-8)
                try:
                    made = ClusterJob(k, center, ball, len(rows)).mechanism(loss, lattice)
                except ConfigError:
                    print(
                        f"{name} | {len(rows)} | {k} | {rho} | - | - | - | too few records, told at the start",
                        flush=True,
                    )
                    continue
                found = [made.find(view, Noise(SeededEntropy(s)), nothing) for s in range(arguments.seeds)]
                ratios = [cost(rows, x.centers * step) / best for x in found if x.centers is not None]
                reasons = ", ".join(sorted({x.reason for x in found if x.reason}))
                middle = f"{statistics.median(ratios):.4f}" if ratios else "-"
                form = "" if made.average.__class__.__name__ == "TupleAverage" else " (G form)"
                print(
                    f"{name} | {len(rows)} | {k} | {rho} | {made.shards.tuples}{form} | {len(ratios)} of "
                    f"{arguments.seeds} | {middle} | {reasons}",
                    flush=True,
                )
    return True


def speed(arguments: argparse.Namespace) -> bool:
    """From tuples to centers, without the oracles: radius, core, order, average."""
    well, most = True, {200: 10.0, 600: 60.0}
    print("t | k | d | k-tuple stage, median of 30, ms | G form, ms")
    for t in (200, 600):
        for k, d in ((8, 2), (5, 32), (5, 512)):
            rng = np.random.default_rng(0)
            base = rng.uniform(-1, 1, size=(k, d)) * 2**18
            tuples = np.rint(base + rng.normal(size=(t, k, d)) * 2**9)
            for i in range(t):
                tuples[i] = tuples[i][rng.permutation(k)]
            radii_squared = radius_grid(2**10, 2**20, 1.25)
            made = TupleAverage(LOSS, t, k, d, 10**7, 85 * 10**7, radii_squared)
            test = plan_gaussian(PrivacyLoss.charge(0.5, 1e-8), t)
            balls = BallCenters(LOSS, test, k, d, 10**7, radii_squared)
            told = []
            for mechanism in (made, balls):
                times = []
                for s in range(31):
                    began = time.perf_counter()
                    reason, _ = mechanism.release(tuples, Noise(SeededEntropy(s)), nothing)
                    times.append(1000 * (time.perf_counter() - began))
                    assert reason is None or mechanism is balls
                told.append(statistics.median(times[1:]))
            well &= told[0] <= most[t] or d > 32
            print(f"{t} | {k} | {d} | {told[0]:.2f} | {told[1]:.2f}", flush=True)
    return well


def paper(arguments: argparse.Namespace) -> bool:
    """What the k-tuple paper's own radii and Laplace noise ask for, beside the two other forms."""
    k, well = 3, True
    print("rho | tuples, separation: friendly | ktuples | variant = paper")
    for rho in PAPER_RHOS:
        told = []
        for more in ({"method": "friendly"}, {"method": "ktuples"}, {"method": "ktuples", "variant": "paper"}):
            job = ClusterJob(k, (0.0, 0.0), 1.0, 100_000, **more)
            told.append(job.choose(PrivacyLoss.charge(rho, 1e-8), Lattice(1e-6)).plan)
        print(rho, *(f"{plan.tuples}, {plan.separation:.3g}" for plan in told), sep=" | ", flush=True)
        well &= told[0].separation < told[2].separation and told[1].separation < told[2].separation
    return well


def refusal_jobs(figure6_runs: int):  # type: ignore[no-untyped-def]
    """Figure 6 with 20,000 records, and the real data of few columns."""
    for seed in range(figure6_runs):
        yield "Figure 6", blobs(20_000, seed)[0], (0.0, 0.0), 1.0, 1e-5, (8,)
    if os.environ.get("FCSTREAM_DATA"):
        yield from (job for job in real_jobs() if job[1].shape[1] < 100)


def refusals(arguments: argparse.Namespace) -> bool:
    """What the check of the pairs of tuples saves, and whom it stops."""
    told: dict[tuple[object, ...], list[tuple[float, float, float, bool, bool]]] = {}
    for name, rows, center, ball, step, numbers in refusal_jobs(arguments.figure6):
        lattice = Lattice(step)
        rows = rows[((rows - center) ** 2).sum(axis=1) <= ball**2]
        view = view_of(rows, lattice)
        for k, rho, method in itertools.product(numbers, (1, 4), ("friendly", "ktuples")):
            try:
                made = ClusterJob(k, center, ball, len(rows), method=method).mechanism(
                    PrivacyLoss.charge(rho, 1e-8), lattice
                )
            except ConfigError:
                continue
            seen = told.setdefault((name, k, rho, method, made.shards.tuples), [])
            for seed in range(1 if name == "Figure 6" else arguments.seeds):
                tuples = made.shards.tuples_of(view.points(), Noise(SeededEntropy(seed)))
                seen += [drawn(made.average, tuples, rho, 1000 * seed + draw) for draw in range(arguments.draws)]
    print("data | k | rho | method | t | pairs that differ | stopped | refusal without, with | wrongly stopped, of")
    worst, wrong, all_answered = 0.0, 0, 0
    for key, seen in told.items():
        shares, without, cost, answered, stopped = (np.array(x) for x in zip(*seen, strict=True))
        refused = f"{np.nanmean(without):.3f}" if not answered.all() else "-"
        dear = f"{np.nanmean(cost):.3f}" if not np.isnan(cost).all() else "-"
        print(
            *key, f"{np.nanmin(shares):.3f} to {np.nanmax(shares):.3f}", f"{stopped.sum()} of {len(seen)}",
            f"{refused}, {dear}", f"{(stopped & answered).sum()} of {answered.sum()}", sep=" | ", flush=True,
        )  # fmt: skip
        wrong, all_answered = wrong + int((stopped & answered).sum()), all_answered + int(answered.sum())
        worst = max(worst, float(np.nanmax(cost, initial=0.0, where=stopped)))
    print(f"stopped wrongly: {wrong} of {all_answered}; a stop costs at most {worst:.4f} of rho")
    return worst <= 0.06 and wrong <= 0.03 * all_answered


def drawn(average, tuples: np.ndarray, rho: int, seed: int):  # type: ignore[no-untyped-def]
    """One draw without the check and one with it: share of pairs, costs of refusals, answered without, stopped."""
    bare, costs, reasons, pairs = replace(average, check_nano=0, loss=average.loss - average.check.loss), [], [], []

    class Seen(MatchCheck):
        def passes(self, pairs_found: int, noise: Noise, start) -> bool:  # type: ignore[no-untyped-def]
            pairs.append(int(pairs_found))
            return super().passes(pairs_found, noise, start)

    watched = replace(average)
    watched.__dict__["check"] = Seen(average.check.rho_nano, average.check.tuples, average.check.tolerance)
    for one, its_seed in ((bare, seed), (watched, 10**6 + seed)):
        paid: list[PrivacyLoss] = []
        reasons.append(one.release(tuples, Noise(SeededEntropy(its_seed)), paid.append)[0])
        cost = sum(loss.rho_nano for loss in paid) / 1e9 / rho
        costs.append(cost if reasons[-1] else math.nan)
    t = len(tuples)
    share = (t * t - pairs[0]) / (t * (t - 1)) if pairs else math.nan
    stopped = bool(pairs) and reasons[1] is not None and costs[1] <= average.refusal.rho_nano / 1e9 / rho + 1e-9
    return share, costs[0], costs[1], reasons[0] is None, stopped


COMMANDS = {"figure6": figure6, "figure7": figure7, "mixtures": mixtures, "real": real, "speed": speed, "paper": paper}
COMMANDS["refusals"] = refusals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    six = commands.add_parser("figure6")
    six.add_argument("--seeds", type=int, default=100)
    six.add_argument("--sizes", type=int, nargs="*", default=[20_000, 50_000, 100_000, 200_000])
    six.add_argument("--oracle", default="kmeans")
    seven = commands.add_parser("figure7")
    seven.add_argument("--seeds", type=int, default=10)
    seven.add_argument("--dimensions", type=int, nargs="*", default=[32, 128, 512])
    commands.add_parser("mixtures").add_argument("--seeds", type=int, default=20)
    commands.add_parser("real").add_argument("--seeds", type=int, default=10)
    commands.add_parser("speed")
    commands.add_parser("paper")
    cheap = commands.add_parser("refusals")
    cheap.add_argument("--seeds", type=int, default=2)
    cheap.add_argument("--draws", type=int, default=10)
    cheap.add_argument("--figure6", type=int, default=20)
    arguments = parser.parse_args()
    well = COMMANDS[arguments.command](arguments)
    print("reached" if well else "MISSED")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
