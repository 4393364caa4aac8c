"""Means of small windows that start from the public ranges, beside a ball that knows center and spread.

    [FCSTREAM_DATA=...] python bench/zooming.py [--rooms]

Windows of Gaussian records of deviation 1 in public ranges of 125, 20, 38 and 23 deviations; a share of the records is
wild: anywhere in the ranges, or all in their corner. Errors are of the mean of the others, their root mean square over
windows, as a vector's length in deviations: of the first four windows, and of the tenth and later ones beside that of
`method = "ball"` around the true center, with the radius sqrt(d) + 2.3, on the others alone. With `--rooms` the minutes
of `examples/rooms_1m.toml` instead, the silent ones too, beside balls that know each minute's own mean and the distance
within which 90% or 98% of its records lie. Nothing printed is private.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.counting.exact import FriendCounts
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.base import Outcome, PointMechanism
from fcstream.releases.means.ball import BallMean
from fcstream.releases.means.zooming import ZoomingMean
from fcstream.releases.trees.growing import PublicBox

LOW, HIGH, UNIT = (-62_500, 0, -9_000, -11_500), (62_500, 20_000, 29_000, 11_500), 1000
WINDOWS, SEEDS = 20, 20
CASES = [(d, n, rho) for rho in (0.25, 0.1) for d in (1, 2, 4) for n in (60, 250)]
WILD = {"none": (0.0, False), "5% anywhere": (0.05, False), "5% in a corner": (0.05, True)}


class Uncharged:
    """A charge that lets every stage start."""

    unused = PrivacyLoss()

    def open(self, needed: PrivacyLoss) -> None:
        """Do nothing."""

    use = start = open


def released(mechanism: PointMechanism, points: NDArray[np.float64], noise: Noise) -> Outcome:
    counter = FriendCounts(points.shape[1], None, 1)
    counter.add(0, points)
    outcome: Outcome = mechanism.release(counter.view([0]), Uncharged(), noise)  # type: ignore[attr-defined]
    return outcome


def measure(d: int, n: int, rho: float, wild: float, corner: bool) -> tuple[NDArray[np.float64], float]:
    """Errors of all windows (seeds, windows), nan where refused, and that of the ball."""
    box, loss = PublicBox(LOW[:d], HIGH[:d]), PrivacyLoss.charge(rho)
    low, high = np.array(box.low, float), np.array(box.high, float)
    center = np.rint(low + 0.65 * (high - low))
    ball = BallMean(loss, tuple(int(x) for x in center), int(UNIT * (math.sqrt(d) + 2.3)) ** 2)
    errors, known = np.full((SEEDS, WINDOWS), np.nan), []
    for seed in range(SEEDS):
        rng, noise, mechanism = np.random.default_rng([seed, d, n]), Noise(SeededEntropy(seed)), ZoomingMean(loss, box)
        for k in range(WINDOWS):
            points = np.rint(center + rng.normal(0, UNIT, (n, d)))
            strays = rng.random(n) < wild
            points[strays] = high if corner else np.rint(rng.uniform(low, high, (int(strays.sum()), d)))
            mean = points[~strays].mean(axis=0)
            outcome = released(mechanism, points, noise)
            if outcome.value is not None:
                errors[seed, k] = np.linalg.norm(outcome.value - mean) / UNIT
            mechanism = mechanism.after(outcome.track)
            if k % 2:
                found = released(ball, points[~strays], noise)
                known.append(np.nan if found.value is None else np.linalg.norm(found.value - mean) / UNIT)
    return errors, _root(np.array(known))


def _root(errors: NDArray[np.float64]) -> float:
    told = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(told**2))) if len(told) else math.nan


def rooms(folder: str, most: int) -> None:
    """Go through the first minutes of the room data, the mechanism alone."""
    job = Config.load(Path(__file__).resolve().parent.parent / "examples" / "rooms_1m.toml").job
    names, unit, minutes = [feature.name for feature in job.grid.features], 1 / job.grid.lattice.step, {}
    with gzip.open(f"{folder}/room_climate.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            minutes.setdefault(int(row["ts_ms"]) // 60_000, []).append([float(row[name]) for name in names])
    mechanism, rows, answered = job.answers[0].mechanism, [], 0
    for minute in range(min(minutes), min(minutes) + most):
        points = job.grid.points(np.array(minutes[minute])) if minute in minutes else np.empty((0, len(names)))
        outcome = released(mechanism, points, Noise(SeededEntropy(minute)))
        mechanism = mechanism.after(outcome.track)
        if len(points) < 40:
            continue
        answered += outcome.value is not None
        mean = points.mean(axis=0)
        lengths, center = np.linalg.norm(points - mean, axis=1), tuple(int(x) for x in np.rint(mean))
        found = [outcome, *(
            released(BallMean(mechanism.loss, center, int(np.quantile(lengths, level)) ** 2), points,
                     Noise(SeededEntropy(minute + 1)))
            for level in (0.9, 0.98)
        )]  # fmt: skip
        rows.append([math.nan if own.value is None else np.linalg.norm(own.value - mean) / unit for own in found])
    table = np.array(rows)[9:]
    print(f"minutes with 40 records or more: {len(rows)}, answered: {answered}")
    for name, column in zip(("tracking", "ball of 90%", "ball of 98%"), table.T, strict=True):
        print(f"{name}: median error {np.nanmedian(column):.3f}, root mean square {_root(column):.3f}")


def main() -> None:
    if "--rooms" in sys.argv:
        rooms(os.environ["FCSTREAM_DATA"], 4000)
        return
    print("| d | records | rho | wild | first four windows | tenth on | refused | ball | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for d, n, rho in CASES:
        for name, (share, corner) in WILD.items():
            errors, ball = measure(d, n, rho, share, corner)
            first = ", ".join(f"{_root(errors[:, k]):.2g}" for k in range(4))
            later = errors[:, 9:]
            refused = f"{100 * np.isnan(later).mean():.2g}%"
            print(
                f"| {d} | {n} | {rho} | {name} | {first} | {_root(later):.2g} | {refused} | {ball:.2g} | "
                f"{_root(later) / ball:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
