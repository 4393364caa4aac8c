"""Means of skewed data: outliers left out, moved to the border, and the best that a known center allows.

    FCSTREAM_DATA=... python bench/skewed_means.py [--seeds 12] [--sets machines flights ...]

Distances are Euclidean, root mean squares over seeds, from the mean of ALL records, in scales: the difference of a
column's quartiles. `ideal` is told the true mean and has the best of 60 radii, chosen with the truth, for a ball around
it with 60% of rho: noise and what clipping takes, together. `clip` is the default, `left out` has outliers =
"leave_out"; in brackets the ratio to the ideal. `sigma` is the length of the release's own, `share` the median of its
tail_share. Releases are told a range of 10,000 scales on either side and a radius of four scales for each root of a
column.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import fcstream
from fcstream.noise.samplers import Noise, SeededEntropy

NAMES = (
    "machines", "flights", "few flights", "few machines", "cluster", "air", "housing", "rooms", "Pareto", "lognormal",
    "two sides", "normal", "few normal", "wide",
)  # fmt: skip


def columns(file: str, wanted: tuple[str, ...]) -> np.ndarray:
    with gzip.open(f"{os.environ['FCSTREAM_DATA']}/{file}.csv.gz", "rt") as text:
        rows = [[row[c] for c in wanted] for row, _ in zip(csv.DictReader(text), range(200_000), strict=False)]
    return np.array([row for row in rows if all(row)], np.float64)


def records(name: str, random: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Return records (n, d) in scales, the radius and rho of a data set."""
    few = name.startswith("few ")
    name = name.removeprefix("few ")
    rho, size = 1.0, 900 if few else 5000
    known = True
    match name:
        case "machines":
            rows = columns("bitbrains_vm_week", ("cpu_pct", "mem_used_kb", "net_rx_kbs", "net_tx_kbs"))
            rows[:, 1:] = np.log1p(rows[:, 1:])
            rho, size = (1.0, size) if few else (0.25, 5700)
        case "flights":
            rows = columns("nyc_flights_2013", ("dep_delay", "arr_delay", "air_time", "distance"))
        case "air":
            rows = columns("beijing_air_quality", ("pm25", "so2", "no2", "co", "o3"))
        case "housing":
            rows = columns("california_housing", ("total_rooms", "population", "median_income", "median_house_value"))
        case "rooms":
            rows = columns("room_climate", ("temp_c", "rh_pct", "light1_nm", "light2_nm"))
        case "cluster":
            with np.load(f"{os.environ['FCSTREAM_DATA']}/google_cluster_vms.npz") as file:
                rows = file["usage"][:, 100].astype(np.float64)
            rho, size = 0.5, len(rows)
        case _:
            known = False
    if known:
        scales = np.subtract(*np.percentile(rows, (75, 25), axis=0))
        rows = (rows - np.median(rows, axis=0)) / np.where(scales > 0, scales, 1.0)
        rows = rows[random.permutation(len(rows))[:size]]
        return rows, 4 * math.sqrt(rows.shape[1]), rho
    if name == "Pareto":
        return random.pareto(2.5, (size, 2)) * 2, 6 * math.sqrt(2), rho
    if name == "lognormal":
        return random.lognormal(0, 1, (size, 3)) / 1.45, 4 * math.sqrt(3), rho
    if name == "two sides":
        return random.standard_t(3, (size, 3)) / 1.53, 4 * math.sqrt(3), rho
    if name == "wide":
        return random.normal(size=(800, 1000)), 1.2 * math.sqrt(2000), rho
    return random.normal(size=(size, 5)) / 1.35, 3 * math.sqrt(5), rho


def ideal(rows: np.ndarray, rho: float) -> float:
    """Return the least error of a ball around the true mean."""
    n, d = rows.shape
    offsets = rows - rows.mean(axis=0)
    lengths = np.linalg.norm(offsets, axis=1)
    found = []
    for radius in np.geomspace(np.quantile(lengths, 0.2), lengths.max(), 60):
        pull = (offsets * np.minimum(1, radius / np.maximum(lengths, 1e-12))[:, None]).mean(axis=0)
        found.append(math.hypot(np.linalg.norm(pull), math.sqrt(d / (2 * 0.6 * rho)) * radius / n))
    return min(found)


def measure(name: str, seeds: int, clips: bool) -> None:
    rows, radius, rho = records(name, np.random.default_rng(3))
    truth, best = rows.mean(axis=0), ideal(rows, rho)
    line = f"{name:12} n={len(rows)} d={rows.shape[1]} rho={rho:g} ideal {best:.4f}"
    step = 1e-4 if rows.shape[1] < 100 else 1e-3
    for way, outliers in (("left out", "leave_out"), ("clip", "clip"))[: 2 if clips else 1]:
        answers = [
            fcstream.private_mean(
                rows, radius=radius, rho=rho, delta=1e-9, size_hint=len(rows), step=step, bounds=(-1e4, 1e4),
                outliers=outliers, noise=Noise(SeededEntropy(seed)),
            )
            for seed in range(seeds)
        ]  # fmt: skip
        told = [answer for answer in answers if answer.value is not None]
        errors = np.array([answer.value for answer in told]) - truth
        error = math.sqrt((errors**2).sum(axis=1).mean())
        sigma = np.mean([np.linalg.norm(answer.sigma) for answer in told])
        share = np.median([(answer.parts or {}).get("tail_share", math.nan) for answer in told])
        line += f" | {way} {error:.4f} ({error / best:.2f}) sigma {sigma:.4f} share {share:.4f}"
        line += "" if len(told) == seeds else f" refused {seeds - len(told)}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--sets", nargs="*", default=NAMES)
    parser.add_argument("--no-clip", action="store_true")
    chosen = parser.parse_args()
    for name in chosen.sets:
        measure(name, chosen.seeds, not chosen.no_clip)


if __name__ == "__main__":
    main()
