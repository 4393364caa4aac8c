"""Synthetic tables: error of their marginals on real data, against a rival; and speed.

    FCSTREAM_DATA=... python bench/synthetic.py [--reps 5] [--only nltcs_bool,adult_coded] [--skip-speed]
        [--rival PYTHON --methods pairs] [--rival PYTHON --methods mst,aim --checkout FOLDER]

For each data set and method: root-mean-square error, as a part of the records, of all one-, two- and three-way
marginals (cells of tables of different columns whose levels are not the first of a Boolean; of many columns a sample of
the triples), and the mean total variation distance of two-way tables. (1, 1e-6)-DP and pure epsilon = 1. RIVAL is a
Python with `mbi` installed; it works in a process of its own, at the same rho on the same data (`synthetic_rival.py`
says what it does), and a last line sets both beside each other. `direct` is no table of records but the noisy
marginals. Means over repetitions; seconds are the processor's, of all threads; exit code 1 if a promise fails.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time

import numpy as np

import fcstream
from fcstream import Noise
from fcstream.accounting.losses import PrivacyLoss, rho_for_epsilon
from fcstream.arrays.arguments import coded_rows
from fcstream.ledgers import Request, Terms, WindowKey, open_ledger
from fcstream.ledgers.base import STREAM_BLOCK
from fcstream.releases.options import BuildContext
from fcstream.releases.tables.documents import synthetic_codes
from fcstream.releases.tables.synthetic import SyntheticOptions

DELTA = 1e-6
MAX_TRIPLES = 60
PROMISES = {"zcdp": (0.0013, 0.0014), "pure": (0.0071, 0.0063)}


def load(name: str) -> tuple[np.ndarray, list[int]]:
    """Codes and numbers of levels. Which levels there are is taken from the file: for a bench, that is public."""
    path = os.path.join(os.environ["FCSTREAM_DATA"], f"{name}.csv.gz")
    with gzip.open(path, "rt", newline="") as file:
        header, *lines = csv.reader(file)
    if name == "adult_coded":
        with open(os.path.join(os.environ["FCSTREAM_DATA"], f"{name}_domain.json")) as file:
            domain = json.load(file)
        return np.array(lines, dtype=np.int64), [domain[column] for column in header]
    columns, sizes = [], []
    for values in zip(*lines, strict=True):
        levels = sorted(set(values))
        if len(levels) > 1:  # a constant column says nothing
            columns.append([levels.index(value) for value in values])
            sizes.append(len(levels))
    return np.array(columns).T.copy(), sizes


class Judge:
    """Marginals of the real table, and how far others are from them."""

    def __init__(self, rows: np.ndarray, sizes: list[int]) -> None:
        self.sizes = sizes
        rng = np.random.default_rng(0)
        self.sets = []
        for order in (1, 2, 3):
            sets = list(itertools.combinations(range(len(sizes)), order))
            if order == 3 and len(sets) > 10 * MAX_TRIPLES:
                sets = [sets[i] for i in rng.choice(len(sets), MAX_TRIPLES, replace=False)]
            self.sets.append(sets)
        self.real = [[self.table(rows, one) for one in sets] for sets in self.sets]

    def table(self, rows: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
        shape = [self.sizes[a] for a in columns]
        flat = np.ravel_multi_index([rows[:, a] for a in columns], shape)
        return np.bincount(flat, minlength=math.prod(shape)).reshape(shape) / len(rows)

    def errors(self, rows: np.ndarray) -> list[float]:
        return self.compare([[self.table(rows, one) for one in sets] for sets in self.sets])

    def compare(self, made: list[list[np.ndarray]]) -> list[float]:
        found = []
        for sets, real, other in zip(self.sets, self.real, made, strict=True):
            squares, cells = 0.0, 0
            for columns, a, b in zip(sets, real, other, strict=True):
                gaps = (a - b)[tuple(slice(1, None) if self.sizes[c] == 2 else slice(None) for c in columns)]
                squares, cells = squares + float((gaps**2).sum()), cells + gaps.size
            found.append(math.sqrt(squares / max(cells, 1)) if made else math.nan)
        found.append(float(np.mean([np.abs(a - b).sum() / 2 for a, b in zip(self.real[1], made[1], strict=True)])))
        return found


Found = tuple[list[float], float] | str
"""Errors and seconds, or why there are none."""


def ours(judge: Judge, rows: np.ndarray, reps: int, **options: object) -> Found:
    errors, seconds = [], 0.0
    for _ in range(reps):
        started = time.process_time()
        answer = fcstream.private_synthetic(rows, levels=judge.sizes, **options)
        if answer.reason is not None:
            return f"refused ({answer.reason})"
        made = synthetic_codes(answer)[1]
        seconds += (time.process_time() - started) / reps
        errors.append(judge.errors(made))
    return np.sqrt(np.mean(np.square(errors), axis=0)).tolist(), seconds


def product(judge: Judge, rows: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Columns on their own, without any noise: what a table must beat."""
    return judge.errors(np.column_stack([rng.permutation(column) for column in rows.T]))


def direct(judge: Judge, rows: np.ndarray, rho: float, order: int) -> list[float] | None:
    """Root-mean-square error of noisy tables of one order."""
    try:
        answer = fcstream.private_marginals(rows, rho=rho, order=order, levels=judge.sizes)
    except fcstream.ConfigError:
        return None
    places = {one: k for k, one in enumerate(itertools.combinations(range(len(judge.sizes)), order))}
    squares, cells = 0.0, 0
    # Tables stand in the mechanism's order of columns, Booleans first.
    names = [tuple(int(name[1:]) for name in table) for table in answer.parts["tables"]]
    for columns, value in zip(names, answer.value, strict=True):
        made = np.array(value).reshape([judge.sizes[a] for a in columns]) / len(rows)
        ordered = tuple(sorted(columns))
        made = np.transpose(made, [columns.index(a) for a in ordered])
        if ordered not in places:
            continue
        gaps = (made - judge.table(rows, ordered))[
            tuple(slice(1, None) if judge.sizes[c] == 2 else slice(None) for c in ordered)
        ]
        squares, cells = squares + float((gaps**2).sum()), cells + gaps.size
    return [math.sqrt(squares / cells)]


def rival(options: argparse.Namespace, judge: Judge, rows: np.ndarray, rho: float, method: str) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        table, out = os.path.join(folder, "in.npz"), os.path.join(folder, "out.npz")
        np.savez(table, rows=rows, sizes=np.array(judge.sizes))
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "synthetic_rival.py")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        own = [options.checkout] if method != "pairs" else []
        try:
            done = subprocess.run(
                [options.rival, script, table, out, str(rho), method, *own],
                env=environment, capture_output=True, text=True, timeout=options.timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"gave no answer within {options.timeout:,} s"
        if done.returncode:
            return f"failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:90]}"
        found = np.load(out)
        return judge.errors(found["rows"]), float(found["seconds"])


def beside(ours: Found, other: Found) -> str:
    """Ours over the rival's."""
    if isinstance(ours, str) or isinstance(other, str):
        return "nothing to compare"
    ratios = [a / b for a, b in zip(ours[0], other[0], strict=True)]
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(("1-way", "2-way", "3-way"), ratios, strict=False))
    return f"errors {told}; seconds {ours[1] / other[1]:.3f}"


def speed(n: int = 2**17, widths: tuple[int, int] = (64, 256)) -> None:
    """Updates and closing of windows of a million records: batches of 8,192, the same table eight times."""
    few, many = widths
    for p, options in ((few, {}), (few, {"projection": "previous"}), (few, {"projection": "ones"}), (many, {})):
        rng = np.random.default_rng(0)
        hidden, weights = rng.normal(size=(n, 3)).astype(np.float32), rng.normal(size=(3, p)).astype(np.float32)
        rows = (hidden @ weights + rng.normal(size=(n, p)).astype(np.float32) > 0.3).astype(np.float64)
        grid = coded_rows(np.zeros((1, p)), None)[1]
        mechanism = SyntheticOptions(kind="synthetic", rho=0.1, size_hint=8 * n, **options).build(BuildContext(grid))
        counter, updates, closes = mechanism.counter(p, 1, Noise()), [], []
        for window in range(5):  # the first one compiles, and starts cold
            seconds = 0.0
            for first in range(0, 8 * n, 8192):
                batch = rows[first % n : first % n + 8192]
                started = time.perf_counter()
                counter.add(window, batch)
                seconds += time.perf_counter() - started
            updates.append(8 * n / seconds)
            ledger = open_ledger("memory:", Terms("bench", "stream", PrivacyLoss.cap(1, 0), ""))
            charge = ledger.charge([Request(WindowKey(0, 0), mechanism.loss, (STREAM_BLOCK,))])[0].charge
            started = time.perf_counter()
            outcome = mechanism.release(counter.view([window]), charge, Noise())
            closes.append(time.perf_counter() - started)
            counter.drop(window)
            mechanism = mechanism.after(outcome.track)
        name = options.get("projection", "learned")
        print(
            f"n = {8 * n:,}, p = {p}, {name}: update {np.median(updates[1:]):,.0f} rows/s (worst "
            f"{min(updates[1:]):,.0f}), close {np.median(closes[1:]):.3f} s (worst {max(closes[1:]):.3f}), "
            f"{len(outcome.parts['counts'])} cells",
            flush=True,
        )


def show(name: str, found: tuple[list[float], float] | list[float] | str) -> None:
    if isinstance(found, str):
        print(f"  {name:<34} {found}", flush=True)
        return
    errors, seconds = found if isinstance(found, tuple) else (found, math.nan)
    told = " ".join(f"{error:8.5f}" for error in errors)
    print(f"  {name:<34} {told} {seconds:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--rival", help="a Python with mbi installed")
    parser.add_argument("--methods", default="pairs", help="of the rival: pairs, mst, aim")
    parser.add_argument("--checkout", help="of private-pgm, for mst and aim")
    parser.add_argument("--timeout", type=int, default=1500, help="seconds for one answer of the rival")
    parser.add_argument("--only", help="data sets, separated by commas")
    parser.add_argument("--skip-speed", action="store_true")
    options = parser.parse_args()
    rho, failed = rho_for_epsilon(1, DELTA), False
    fcstream.warm_up()
    print(f"Python {platform.python_version()}, numpy {np.__version__}, rho = {rho:.5f} for (1, {DELTA:g})-DP")
    for name in ("nltcs_bool", "adult_coded", "mushrooms", "house_votes_84"):
        if options.only and name not in options.only.split(","):
            continue
        rows, sizes = load(name)
        judge = Judge(rows, sizes)
        print(f"{name}: n = {len(rows):,}, {len(sizes)} columns, {sum(s if s > 2 else 1 for s in sizes)} bits")
        print(f"  {'':<34} {'1-way':>8} {'2-way':>8} {'3-way':>8} {'TV 2-way':>8} {'seconds':>8}")
        show("columns on their own, no noise", product(judge, rows, np.random.default_rng(0)))
        found = {
            "zcdp": ours(judge, rows, options.reps, rho=rho),
            "pure": ours(judge, rows, options.reps, epsilon=1, size_hint=len(rows)),
        }
        show("fcstream, (1, 1e-6)-DP", found["zcdp"])
        show("fcstream, rho = 0.5", ours(judge, rows, options.reps, rho=0.5))
        show("fcstream, pure epsilon = 1", found["pure"])
        if max(sizes) == 2:
            hints = {"size_hint": len(rows)}
            show("fcstream, projection = ones", ours(judge, rows, options.reps, rho=rho, projection="ones", **hints))
            for kappa in (0.2, 0.5, 0.7, 0.9):
                told = ours(judge, rows, options.reps, epsilon=1, variant="paper", kappa=kappa, **hints)
                show(f"paper's Algorithm 4, kappa = {kappa}", told)
        for order in (2, 3):
            one = direct(judge, rows, rho, order)
            if one is not None:
                show(f"direct, all {order}-way, (1, 1e-6)-DP", [math.nan] * (order - 1) + one)
        if options.rival:
            for method in options.methods.split(","):
                other = rival(options, judge, rows, rho, method)
                show(f"private-pgm, {method}, same rho", other)
                show(f"fcstream / {method}", beside(found["zcdp"], other))
        if name == "nltcs_bool":
            for variant, most in PROMISES.items():
                told = found[variant]
                failed |= isinstance(told, str) or any(a > b for a, b in zip(told[0][1:3], most, strict=True))
    if not options.skip_speed:
        speed()
    sys.exit(failed)


if __name__ == "__main__":
    main()
