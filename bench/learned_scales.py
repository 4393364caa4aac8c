"""Means of features whose scales nobody declared: beside true scales, and beside none.

    FCSTREAM_DATA=... python bench/learned_scales.py [--seeds 5] [--part array|stream]

`array`: the noise (`sigma`) of the worst feature in its own scale, the difference of its true quartiles; medians over
seeds. n records are drawn from real data (Beijing's weather and its pollutants; Californian housing; New York's
flights; rooms; beads in a flow), or are normal with deviations from .01 to 100. Every mean is told a range of a million
on either side and a radius of three scales for each root of a feature. `told` has every column divided by its true
scale; `learned` pays for its scales; `unscaled` is told the radius of the raw data instead. `plan` is the mechanism's
own prediction of learned over told from public numbers; `public` where it says that there are too few records.

`stream`: windows of n records with `scale = "learned"`: the first one pays for its scales, later ones take them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import os
import statistics
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import fcstream
from fcstream import Stream
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.releases.means.searched import SearchOptions
from fcstream.releases.options import BuildContext
from fcstream.releases.statistics.learned import build_mechanism
from fcstream.sections import Budget, Feature, Lattice, Mean, Records, Window
from fcstream.stream.lattice import Feature as Coordinate
from fcstream.stream.lattice import Grid
from fcstream.stream.lattice import Lattice as Steps

BOUNDS, STEP, DELTA = (-1e6, 1e6), 1e-3, 1e-8
FILES = {
    "weather (air)": ("beijing_air_quality", ("temp_c", "pres_hpa", "dewp_c", "wind_ms", "o3")),
    "pollutants (air)": ("beijing_air_quality", ("pm25", "so2", "no2", "co", "o3")),
    "housing": ("california_housing", (
        "longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population", "households",
        "median_income", "median_house_value",
    )),
    "flights": ("nyc_flights_2013", ("dep_delay", "arr_delay", "air_time", "distance")),
    "rooms": ("room_climate", ("temp_c", "rh_pct", "light1_nm", "light2_nm")),
    "beads": ("flow_beads", None),
}  # fmt: skip
SIZES = ((1000, 1.0), (5000, 0.1), (5000, 1.0))
WINDOW, WINDOWS = 2000, 20  # of the stream


def columns(name: str, wanted: tuple[str, ...] | None) -> np.ndarray:
    with gzip.open(f"{os.environ['FCSTREAM_DATA']}/{name}.csv.gz", "rt") as file:
        reader = csv.DictReader(file)
        wanted = wanted or tuple(reader.fieldnames or ())
        rows = [row for row, _ in zip(reader, range(60_000), strict=False)]
    return np.array([[row[c] for c in wanted] for row in rows if all(row[c] for c in wanted)], np.float64)


def data_sets() -> Iterator[tuple[str, np.ndarray]]:
    random = np.random.default_rng(2)
    for d in (5, 20):
        yield "normal", random.normal(size=(20_000, d)) * np.geomspace(0.01, 100, d) + random.normal(size=d) * 100
    for name, (file, wanted) in FILES.items():
        yield name, columns(file, wanted)


def prediction(d: int, n: int, rho: float) -> float | None:
    lattice = Steps(STEP)
    grid = Grid(lattice, tuple(lattice.finest(Coordinate(f"x{k}", *BOUNDS)) for k in range(d)))
    options = SearchOptions(radius=3 * math.sqrt(d), rho=rho, delta=DELTA, size_hint=n)
    made = build_mechanism(options, BuildContext(grid))
    return made.dearer(n) if made.is_on else None


def array(seeds: int) -> None:
    print("data | d | n | rho | told | learned | learned / told | plan | unscaled")
    for name, everything in data_sets():
        for n, rho in SIZES:
            d = everything.shape[1]
            found = {"told": [], "learned": [], "unscaled": []}
            for seed in range(seeds):
                random = np.random.default_rng(seed)
                rows = everything[random.choice(len(everything), n, replace=False)]
                low, high = np.quantile(rows, (0.25, 0.75), axis=0)
                scale = np.maximum(high - low, 1e-3)
                radius = 3 * math.sqrt(d)
                known = {"rho": rho, "delta": DELTA, "size_hint": n, "noise": Noise(SeededEntropy(seed))}
                known["outliers"] = "leave_out"
                told = fcstream.private_mean(rows / scale, radius=radius, step=STEP, bounds=(-1e9, 1e9), **known)
                own = fcstream.private_mean(rows, radius=radius, step=STEP, bounds=BOUNDS, scale="learned", **known)
                whole = 3 * float(np.linalg.norm(scale))
                raw = fcstream.private_mean(rows, radius=whole, step=whole / 1e4, bounds=BOUNDS, **known)
                for key, answer, unit in (("told", told, 1.0), ("learned", own, scale), ("unscaled", raw, scale)):
                    if answer.sigma is not None:
                        found[key].append(float(np.max(np.array(answer.sigma) / unit)))
            middle = {key: statistics.median(some) if some else math.nan for key, some in found.items()}
            more = prediction(d, n, rho)
            print(
                f"{name} | {d} | {n} | {rho} | {middle['told']:.4f} | {middle['learned']:.4f} | "
                f"{middle['learned'] / middle['told']:.2f} | {'public' if more is None else format(more, '.2f')} | "
                f"{middle['unscaled']:.4f}",
                flush=True,
            )


def stream(seeds: int) -> None:
    print("window | scales from | noise of the worst feature, in its deviations")
    n, d, windows = WINDOW, 5, WINDOWS
    deviations = np.geomspace(0.01, 100, d)
    rows = np.random.default_rng(seeds).normal(size=(n * windows, d)) * deviations
    frame = pd.DataFrame({"ts_ms": np.arange(len(rows)), **{f"x{k}": rows[:, k] for k in range(d)}})
    made = Stream(
        Records(name="scales"),
        features=[Feature(name=f"x{k}", min=BOUNDS[0], max=BOUNDS[1], scale="learned") for k in range(d)],
        lattice=Lattice(step=STEP),
        window=Window(
            length=f"{n}ms", start="1970-01-01T00:00:00Z", end=f"1970-01-01T00:00:{n * windows // 1000:02d}Z"
        ),
        release=Mean(radius=3 * math.sqrt(d), rho=0.5, delta=DELTA, size_hint=n),
        budget=Budget(rho=0.5, delta=1e-7),
        ledger=None,
    )
    made.run(frame)
    for number, release in enumerate(made.releases):
        noise = "refused" if release.sigma is None else f"{max(np.array(release.sigma) / deviations):.4f}"
        print(f"{number} | {(release.parts or {}).get('scale_source')} | {noise}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", choices=("array", "stream"))
    asked = parser.parse_args()
    for name, part in (("array", array), ("stream", stream)):
        if asked.part in (None, name):
            part(asked.seeds)


if __name__ == "__main__":
    main()
