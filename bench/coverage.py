"""How often released intervals hold the truth, on every numeric column of the real data, and how wide they are.

    FCSTREAM_DATA=... python bench/coverage.py [--part mean|variance|...] [--share 10 [--turn 3]] [--runs 60] [--wide]

A cell is one number (a column's mean, a coefficient, all bins of a histogram, ...) at one rho, released 60 times with
seeds of its own, and 300 times if less than 90% held: of intervals that hold with exactly 95%, one in fifty would hold
less than 54 times of 60 by chance. It tells the share of the intervals that hold the truth, of those that are not null,
how many are null, and the median width divided by the ideal one. The truth is that of all records in the declared
range. The ideal is 2 * 1.96 sigma of one Gaussian release of that number alone with the whole of rho, whose sensitivity
is the largest change that any single record of these data makes to first order: it knows the perfect range and center,
and clips nothing.

Goal: 90% or more in every cell, or null; null in less than a tenth of the cells.

Records: at most 50,000 a column, spread evenly over the file; rows with a missing number are left out. Ranges are
round numbers at or beyond the data, as a user would declare them, written down in `SETS`; `--wide` makes them ten times
as wide about their middle. Left out: identifiers, times and constants; sets below 2,000 rows (digits, votes). Of the
784 pixels of mnist five, of the 128 columns of the gas sensors five and the concentration; planetlab and Google's
machines are a column each per quantity. Pairs of columns are those that stand next to each other in `SETS`, so that
each column is in one pair. Tables of codes are counted in pairs of the columns in `TABLES`. Kinds that have no truth of
their own (centers, mixtures, synthetic rows) are not in the table, nor quantiles; covariances of shards need millions
of records, and have no intervals.

`--share 10` takes a tenth of the cells; `--turn` says which (by default the day's number). Two processes.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import gzip
import itertools
import math
import multiprocessing
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if __name__ == "coverage":  # Numba asks for the package of this name, and must not find this file
    raise ImportError("this is a measurement, not the package")

import numpy as np
from numpy.typing import NDArray

from fcstream import Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.counting.rows import RowsView, rows_inside
from fcstream.releases.base import EpochWindow, ReleaseValues
from fcstream.releases.intervals import count_half_width, with_intervals
from fcstream.releases.means.searched import SearchOptions
from fcstream.releases.options import BuildContext, Options
from fcstream.releases.statistics.clipped import ClippedCovariance, ClippedCovarianceOptions
from fcstream.releases.statistics.count import CountOptions, WindowSize
from fcstream.releases.statistics.frequent import FrequentOptions
from fcstream.releases.statistics.histogram import HistogramOptions
from fcstream.releases.statistics.learned import build_mechanism
from fcstream.releases.statistics.sum import SumOptions
from fcstream.releases.statistics.variance import VarianceOptions
from fcstream.releases.tables.marginals import MarginalsOptions
from fcstream.releases.totals.total import TotalOptions
from fcstream.stream.lattice import Feature, Grid, Lattice

RHOS = (0.02, 0.1, 1.0)
RUNS = 60
MAX = 50_000
"""Records of a column; more are thinned out evenly."""
DELTA = 1e-8
FINE = 10_000
"""A range has so many lattice steps at least, so that a mean of 0 and 1 has decimals."""
WINDOWS = 20
"""Windows into which a column is cut for running totals."""
MIN = 0.9
"""Share of intervals that should hold."""
PROCESSES = 2
FIRST = 0
"""Number of the first seed, another one for each task, so that cells do not share their noise."""
SHOWN = 25
"""How many of the worst cells are told."""


class Range(NamedTuple):
    """What a user declares of a column: its range, and the step of the lattice."""

    low: float
    high: float
    step: float = 1.0


SETS: dict[str, dict[str, Range]] = {
    "acs_household_income": {
        "hh_income": Range(-10_000, 500_000, 1), "adjinc": Range(1_000_000, 1_100_000, 1),
        "persons": Range(0, 20), "vehicles": Range(0, 10), "weight": Range(0, 200), "tenure": Range(1, 4),
    },
    "adult_coded": {
        "age": Range(0, 100), "hours-per-week": Range(0, 100), "education-num": Range(0, 20),
        "capital-gain": Range(0, 100), "capital-loss": Range(0, 100), "fnlwgt": Range(0, 100),
        "workclass": Range(0, 10), "marital-status": Range(0, 10), "occupation": Range(0, 20),
        "relationship": Range(0, 10), "race": Range(0, 10), "native-country": Range(0, 50), "sex": Range(0, 1),
        "income>50K": Range(0, 1),
    },
    "beijing_air_quality": {
        "pm25": Range(0, 1000, 0.1), "pm10": Range(0, 1000, 0.1), "so2": Range(0, 500, 0.1), "no2": Range(0, 500, 0.1),
        "co": Range(0, 10_000, 1), "o3": Range(0, 1100, 0.1), "temp_c": Range(-50, 50, 0.1),
        "pres_hpa": Range(900, 1100, 0.1), "dewp_c": Range(-50, 50, 0.1), "wind_ms": Range(0, 50, 0.1),
        "rain_mm": Range(0, 100, 0.1),
    },
    "bitbrains_vm_week": {
        "cpu_pct": Range(0, 200, 0.001), "cores": Range(0, 64), "cpu_cap_mhz": Range(0, 100_000),
        "mem_cap_kb": Range(0, 1e9, 1000), "mem_used_kb": Range(0, 1e8, 100), "disk_read_kbs": Range(0, 1e6, 1),
        "disk_write_kbs": Range(0, 1e6, 1), "net_rx_kbs": Range(0, 1e6, 1), "net_tx_kbs": Range(0, 1e6, 1),
    },
    "california_housing": {
        "longitude": Range(-125, -114, 0.01), "latitude": Range(32, 42, 0.01), "housing_median_age": Range(0, 100),
        "total_rooms": Range(0, 50_000), "total_bedrooms": Range(0, 10_000), "population": Range(0, 50_000),
        "households": Range(0, 10_000), "median_income": Range(0, 20, 0.0001), "median_house_value": Range(0, 600_000),
    },
    "flow_beads": {
        "fsc": Range(0, 1023), "ssc": Range(0, 1023), "fl1": Range(0, 1023), "fl2": Range(0, 1023),
        "fl3": Range(0, 1023), "fscw": Range(0, 1023), "fsca": Range(0, 1023), "ref_peak": Range(-1, 7),
    },
    "houston_incidents": {"lon": Range(-100, -90, 0.0001), "lat": Range(25, 40, 0.0001)},
    "nab_metrics": {"value": Range(0, 1e9, 100)},
    "nltcs_bool": {f"d{i:02}": Range(0, 1) for i in range(16)},
    "nyc_flights_2013": {
        "dep_delay": Range(-100, 1500), "arr_delay": Range(-100, 1500), "air_time": Range(0, 1000),
        "distance": Range(0, 5000),
    },
    "room_climate": {
        "temp_c": Range(0, 50, 0.01), "rh_pct": Range(0, 100, 0.001), "light1_nm": Range(0, 1000, 0.01),
        "light2_nm": Range(0, 5000, 0.01), "occupants": Range(0, 5), "activity": Range(0, 5), "door": Range(0, 1),
    },
    "scf_2019_income": {
        "income": Range(0, 1e9, 100), "wage_income": Range(0, 1e8, 100), "net_worth": Range(-1e7, 2e9, 1000),
        "assets": Range(0, 2e9, 1000), "debt": Range(0, 5e8, 100), "age": Range(18, 100), "educ": Range(-1, 15),
        "kids": Range(0, 10), "weight": Range(0, 20_000, 0.1),
    },
    "gas_sensor_drift": {
        "0": Range(-100_000, 1e6, 1), "8": Range(-100_000, 1e6, 1), "16": Range(-100_000, 1e6, 1),
        "1": Range(-10_000, 100_000, 0.01), "2": Range(-1000, 10_000, 0.01), "conc_ppm": Range(0, 1000, 0.1),
    },
    "google_cluster_vms": {"cpu": Range(0, 100, 0.01), "memory": Range(0, 250, 0.01)},
    "mnist_t10k": {pixel: Range(0, 255) for pixel in ("210", "350", "406", "500", "600")},
    "planetlab_cpu": {"cpu": Range(0, 100)},
}  # fmt: skip
TABLES = {
    "adult_coded": ("age", "workclass", "education-num", "sex", "income>50K"),
    "mushrooms": ("poisonous", "cap_shape", "odor", "habitat"),
    "nltcs_bool": tuple(f"d{i:02}" for i in range(6)),
}
TEXTS = {"nyc_flights_2013": ("tailnum", "dest", "carrier"), "houston_incidents": ("offense",)}
PARTS = ("mean", "variance", "covariance", "sum", "count", "histogram", "total", "marginals", "frequent")


class Paid:
    """A charge for everything."""

    def open(self, needed: PrivacyLoss) -> None:
        pass

    def start(self, stage: PrivacyLoss) -> None:
        pass

    use = start


class Cell(NamedTuple):
    """Some intervals of one number, released once a seed."""

    kind: str
    place: str
    column: str
    rho: float
    held: float  # share of those that are told; nan if all are null
    null: float  # share
    ratio: float  # median width divided by the ideal one
    refused: float  # share of the runs

    @property
    def is_null(self) -> bool:
        return self.null > 0.5


Task = tuple[str, str, tuple[str, ...]]


@functools.cache
def raw(name: str) -> dict[str, list[str]]:
    with gzip.open(f"{os.environ['FCSTREAM_DATA']}/{name}.csv.gz", "rt") as file:
        rows = csv.reader(file)
        header = next(rows)
        return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


@functools.cache
def column(name: str, wanted: str) -> NDArray[np.float64]:
    """Numbers of a column in file order; NaN where one is missing."""
    folder = os.environ["FCSTREAM_DATA"]
    if name == "google_cluster_vms":
        return np.load(f"{folder}/{name}.npz")["usage"][..., int(wanted == "memory")].ravel().astype(np.float64)
    if name == "planetlab_cpu":
        return np.load(f"{folder}/{name}.npz")["cpu"].ravel().astype(np.float64)
    if name in ("mnist_t10k", "gas_sensor_drift"):
        file = np.load(f"{folder}/{name}.npz")
        return (file["x"][:, int(wanted)] if wanted.isdigit() else file[wanted]).astype(np.float64)
    return np.array([float(cell) if cell else math.nan for cell in raw(name)[wanted]])


def rows_of(name: str, wanted: tuple[str, ...], wide: bool) -> tuple[NDArray[np.float64], Grid]:
    """Records in the declared ranges, and the grid; the step is the finest of the columns, whose scales differ."""
    rows = np.stack([column(name, each) for each in wanted], axis=1)
    rows = thinned(rows[np.isfinite(rows).all(axis=1)])
    features = []
    for each in wanted:
        low, high, step = SETS[name][each]
        step = min(step, 10.0 ** math.floor(math.log10((high - low) / FINE)))
        if wide:
            low, high = low - 4.5 * (high - low), high + 4.5 * (high - low)
        features.append(Feature(each, low, high, scale=step))
    grid = Grid(Lattice(1.0), tuple(features))
    inside = rows_inside(rows, grid)
    assert len(inside) > 0.9 * len(rows), f"{name}, {wanted}: records lie beyond the declared range"
    return inside, grid


def thinned(rows: Any) -> Any:
    return rows[np.linspace(0, len(rows) - 1, MAX).astype(np.int64)] if len(rows) > MAX else rows


class Asked:
    """One mechanism about some rows, asked again and again; what it reads is made once."""

    def __init__(self, options: Options, rows: NDArray[np.float64], grid: Grid) -> None:
        self.grid, self.mechanism = grid, build_mechanism(options, BuildContext(grid, unit="stream"))
        if isinstance(self.mechanism, ClippedCovariance):
            self.view: Any = RowsView(rows, grid)
        else:
            counter = self.mechanism.counter(grid.dimension, 1, Noise(SeededEntropy(1)))
            counter.add(0, grid.points(rows))
            self.view = counter.view([0])

    def release(self, seed: int) -> ReleaseValues:
        noise = Noise(SeededEntropy(seed))
        return told(self.mechanism, self.mechanism.release(self.view, Paid(), noise), self.grid)  # type: ignore[arg-type]


def told(mechanism: Any, outcome: Any, grid: Grid) -> ReleaseValues:
    """What a release or an answer about an array holds."""
    return with_intervals(mechanism.shape, mechanism.to_user_units(outcome, grid))


def cell(
    kind: str, place: str, name: str, rho: float, pairs: list[tuple[Any, Any]], ideal: Any, refused: float = 0.0
) -> Cell:
    """Compare lists of intervals (nested as they are) with truths of the same shape.

    `pairs` has an entry for each released run; `ideal` is the ideal width, one number or one for each truth.
    """
    hits, nulls, widths = [], [], []
    for found, truth in pairs:
        truths = np.ravel(np.array(truth, np.float64))
        ideals = np.broadcast_to(np.ravel(ideal), truths.shape)
        for pair, true, best in zip(flat(found, len(truths)), truths, ideals, strict=True):
            nulls.append(pair is None)
            if pair is not None:
                slack = 1e-9 * max(abs(pair[0]), abs(pair[1]))
                hits.append(pair[0] - slack <= true <= pair[1] + slack)
                widths.append((pair[1] - pair[0]) / best if best > 0 else math.inf)
    held = float(np.mean(hits)) if hits else math.nan
    ratio = float(np.median(widths)) if widths else math.nan
    return Cell(kind, place, name, rho, held, float(np.mean(nulls)) if nulls else math.nan, ratio, refused)


def flat(found: Any, size: int) -> list[Any]:
    """Intervals in a row, however they are nested; `size` nulls for none at all."""
    if found is None:
        return [None] * size
    if isinstance(found, list) and (not found or isinstance(found[0], list) or found[0] is None):
        return list(itertools.chain.from_iterable([None] if each is None else flat(each, 1) for each in found))
    return [found]


def two_sided(rho: float, influence: Any) -> Any:
    """Ideal width of a number that one record moves by so much at most."""
    return 2 * 1.96 * np.asarray(influence) / math.sqrt(2 * rho)


def answers(asked: Asked, seeds: int) -> tuple[list[ReleaseValues], float]:
    released = [asked.release(FIRST + run) for run in range(seeds)]
    kept = [each for each in released if each.value is not None]
    return kept, 1 - len(kept) / seeds


def several(
    kind: str, place: str, name: str, rho: float, kept: list[ReleaseValues], refused: float,
    parts: dict[str, tuple[Callable[[ReleaseValues], Any], Any, Any]],
) -> Iterator[Cell]:  # fmt: skip
    """A cell for each part of the same releases: what reads its intervals, the truth, and the largest influence."""
    for part, (read, truth, influence) in parts.items():
        pairs = [(read(each), truth) for each in kept]
        yield cell(part or kind, place, name, rho, pairs, two_sided(rho, influence), refused)


def mean(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    """The radius is the length of the range, the one number that a user knows who knows no more."""
    rows, grid = rows_of(place, wanted, wide)
    asked = Asked(SearchOptions(rho=rho, delta=DELTA, size_hint=len(rows), radius=radius_of(grid)), rows, grid)
    kept, refused = answers(asked, RUNS)
    truth = rows.mean(axis=0)
    parts = {"": (lambda each: each.interval, truth, np.abs(rows - truth).max(axis=0) / len(rows))}
    yield from several("mean", place, wanted[0], rho, kept, refused, parts)


def radius_of(grid: Grid) -> float:
    (feature,) = grid.features
    return (feature.maximum - feature.minimum) / feature.scale


def variance(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    rows, grid = rows_of(place, wanted, wide)
    options = VarianceOptions(rho=rho, delta=DELTA, size_hint=len(rows), radius=radius_of(grid))
    kept, refused = answers(Asked(options, rows, grid), RUNS)
    truth, center = rows.var(axis=0), rows.mean(axis=0)
    squares = (rows - center) ** 2
    parts = {
        "": (lambda each: each.interval, truth, np.abs(squares - truth).max(axis=0) / len(rows)),
        "variance: mean": (
            lambda each: each.parts.get("mean_interval"), center, np.sqrt(squares.max(axis=0)) / len(rows)
        ),
    }  # fmt: skip
    yield from several("variance", place, wanted[0], rho, kept, refused, parts)


def covariance(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    """Also correlation, regression of the second column on the first, and the means beside them."""
    rows, grid = rows_of(place, wanted, wide)
    options = ClippedCovarianceOptions(rho=rho, size_hint=len(rows), target=wanted[1])
    kept, refused = answers(Asked(options, rows, grid), RUNS)
    n, center, (sx, sy) = len(rows), rows.mean(axis=0), rows.std(axis=0)
    x, y = (rows - center).T
    matrix, r = np.cov(rows.T, bias=True), float(np.mean(x * y) / (sx * sy))
    slope = float(np.mean(x * y) / sx**2)
    influence = np.abs((rows - center)[:, :, None] * (rows - center)[:, None, :] - matrix).max(axis=0)
    of_r = np.abs(x * y / (sx * sy) - r / 2 * ((x / sx) ** 2 + (y / sy) ** 2)).max()
    upper = np.triu_indices(2)
    name = "*".join(wanted)

    def entries(each: ReleaseValues) -> Any:
        found = each.interval
        return None if found is None else [found[i][j] for i, j in zip(*upper, strict=True)]

    def correlation(each: ReleaseValues) -> Any:
        found = each.parts.get("correlation_interval")
        return None if found is None else [found[0][1]]

    def coefficient(each: ReleaseValues) -> Any:
        found = each.parts.get("coefficient_interval")
        return None if found is None else [found[wanted[0]]]

    parts = {
        "": (entries, matrix[upper], influence[upper] / n),
        "correlation": (correlation, [r], of_r / n),
        "regression": (coefficient, [slope], np.abs(x * (y - slope * x)).max() / sx**2 / n),
        "covariance: mean": (
            lambda each: each.parts.get("mean_interval"), center, np.abs(rows - center).max(axis=0) / n
        ),
    }  # fmt: skip
    yield from several("covariance", place, name, rho, kept, refused, parts)


def sum_(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    rows, grid = rows_of(place, wanted, wide)
    kept, refused = answers(Asked(SumOptions(rho=rho), rows, grid), RUNS)
    parts = {"": (lambda each: each.interval, rows.sum(axis=0), np.abs(rows).max(axis=0))}
    yield from several("sum", place, wanted[0], rho, kept, refused, parts)


def ideal_count(rho: float) -> float:
    return 2.0 * max(1, count_half_width(1 / math.sqrt(2 * rho)))


def count(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    """The number of all records, and of those above the middle of the range."""
    rows, grid = rows_of(place, wanted, wide)
    mechanism, ends = CountOptions(rho=rho).build(BuildContext(grid)), [f.minimum + f.maximum for f in grid.features]
    for what, size in (("all", len(rows)), ("above the middle", int((rows[:, 0] > ends[0] / 2).sum()))):
        pairs = []
        for seed in range(FIRST, FIRST + RUNS):
            noise = Noise(SeededEntropy(seed))
            outcome = mechanism.release(WindowSize(size), Paid(), noise)  # type: ignore[arg-type]
            pairs.append((told(mechanism, outcome, grid).interval, [size]))
        yield cell("count", place, f"{wanted[0]}, {what}", rho, pairs, ideal_count(rho))


def histogram(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    """Five bins of equal width, with edges on the lattice."""
    rows, grid = rows_of(place, wanted, wide)
    (feature,) = grid.features
    spread = feature.maximum - feature.minimum
    edges = [feature.minimum + feature.scale * math.floor(spread * k / 5 / feature.scale) for k in range(1, 5)]
    edges = sorted({edge for edge in edges if feature.minimum < edge < feature.maximum})
    options = (
        HistogramOptions(kind="histogram", rho=rho, edges=edges)
        if edges
        else HistogramOptions(kind="histogram", rho=rho, categories=[feature.minimum, feature.maximum])
    )
    kept, refused = answers(Asked(options, rows, grid), RUNS)
    points, cuts = grid.points(rows)[:, 0], grid.points(np.array([[edge] for edge in edges or [0.0]]))[:, 0]
    truth = np.bincount(np.searchsorted(cuts, points, side="right"), minlength=len(edges) + 1)
    if not edges:
        truth = np.array([(rows[:, 0] == feature.minimum).sum(), (rows[:, 0] == feature.maximum).sum(), 0])
    yield cell(
        "histogram", place, wanted[0], rho, [(each.interval, truth) for each in kept], ideal_count(rho), refused
    )  # fmt: skip


def total(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    """Running totals of twenty windows, and each window's own numbers; each run is one epoch."""
    rows, grid = rows_of(place, wanted, wide)
    windows = [part for part in np.array_split(rows, WINDOWS) if len(part)]
    for of in ("count", "sum"):
        setting = BuildContext(grid, window_ms=1000)
        mechanism: Any = TotalOptions(kind="total", rho=rho, of=of, epoch=len(windows)).build(setting)  # type: ignore[arg-type]
        views = []
        for part in windows:
            counter = mechanism.counter(grid.dimension, 1, Noise(SeededEntropy(1)))
            counter.add(0, grid.points(part))
            views.append(counter.view([0]))
        steps = [len(part) if of == "count" else part.sum(axis=0)[0] for part in windows]
        runs, alone = [], []
        for seed in range(FIRST, FIRST + RUNS):
            memory, noise = mechanism.recall([]), Noise(SeededEntropy(seed))
            for k, view in enumerate(views):
                window = EpochWindow(0, 1000 * k, 1000 * (k + 1))
                outcome = mechanism.within(memory, k, window).release(view, Paid(), noise)
                memory.add(1000 * k, outcome.state)
                each = told(mechanism.within(memory, k, window), outcome, grid)
                runs.append((each.interval, [sum(steps[: k + 1])]))
                alone.append((each.parts["window"]["interval"], [steps[k]]))
        ideal = ideal_count(rho) if of == "count" else two_sided(rho, np.abs(rows).max())
        yield cell(f"total of {of}", place, wanted[0], rho, runs, ideal)
        yield cell(f"total of {of}: window", place, wanted[0], rho, alone, ideal)


def marginals(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    """All tables of two columns; a cell for each table."""
    coded, levels = zip(*(np.unique(thinned(np.array(raw(place)[each])), return_inverse=True)[::-1] for each in wanted),
                        strict=True)  # fmt: skip
    sizes = [max(2, len(each)) for each in levels]
    grid = Grid(
        Lattice(1.0),
        tuple(
            Feature(name, 0.0, size - 1.0, levels=tuple(map(str, range(size))))
            for name, size in zip(wanted, sizes, strict=True)
        ),
    )
    rows = np.stack(coded, axis=1).astype(np.float64)
    kept, refused = answers(Asked(MarginalsOptions(rho=rho), rows, grid), RUNS)
    for at, names in enumerate(kept[0].parts["tables"] if kept else ()):
        i, j = map(wanted.index, names)
        truth = np.zeros((sizes[i], sizes[j]))
        np.add.at(truth, (coded[i], coded[j]), 1)
        pairs = [(None if each.interval is None else each.interval[at], truth) for each in kept]
        yield cell("marginals", place, f"{wanted[i]}*{wanted[j]}", rho, pairs, ideal_count(rho), refused)


def frequent(place: str, wanted: tuple[str, ...], rho: float, wide: bool) -> Iterator[Cell]:
    """Texts that are told, of a column of texts; the truth has as many numbers as a run tells texts."""
    texts = thinned(np.array([text for text in raw(place)[wanted[0]] if text], object))
    grid = Grid(Lattice(1.0), ())
    mechanism: Any = FrequentOptions(kind="frequent", rho=rho, delta=DELTA).build(BuildContext(grid, texts=("value",)))
    counter = mechanism.counter(0, 1, Noise(SeededEntropy(1)))
    counter.add(0, texts)
    view = counter.view([0])
    pairs = []
    for seed in range(FIRST, FIRST + RUNS):
        noise = Noise(SeededEntropy(seed))
        outcome = mechanism.release(view, Paid(), noise)
        if outcome.value is not None and len(outcome.value):
            each = told(mechanism, outcome, grid)
            pairs.append((each.interval, [view.counts[text] for text in each.parts["levels"]]))
    if pairs:
        yield cell("frequent", place, wanted[0], rho, pairs, ideal_count(rho), 1 - len(pairs) / RUNS)


ASKS: dict[str, Callable[[str, tuple[str, ...], float, bool], Iterator[Cell]]] = {
    "mean": mean, "variance": variance, "covariance": covariance, "sum": sum_, "count": count, "histogram": histogram,
    "total": total, "marginals": marginals, "frequent": frequent,
}  # fmt: skip


def tasks(parts: Iterable[str]) -> list[tuple[str, str, tuple[str, ...], float]]:
    """Everything that is asked: kind, set, columns and rho."""
    found: list[tuple[str, str, tuple[str, ...], float]] = []
    for kind in parts:
        where: list[tuple[str, tuple[str, ...]]] = [(name, (one,)) for name, columns in SETS.items() for one in columns]
        if kind == "covariance":
            where = []
            for name, columns in SETS.items():
                names = list(columns)
                where += [(name, (a, b)) for a, b in itertools.pairwise([*names, *names[:1]])][: max(1, len(names) - 1)]
                where = [each for each in where if len(set(each[1])) == 2]
        elif kind == "marginals":
            where = list(TABLES.items())
        elif kind == "frequent":
            where = [(name, (one,)) for name, columns in TEXTS.items() for one in columns]
        found += [(kind, name, columns, rho) for name, columns in where for rho in RHOS]
    return found


def run(task: tuple[str, str, tuple[str, ...], float, bool]) -> list[Cell]:
    """Measure the cells of a task; again with five times as many runs if one of them holds less than it should."""
    global FIRST, RUNS
    kind, name, columns, rho, wide = task
    FIRST, runs = zlib.crc32(repr(task[:4]).encode()), RUNS
    cells = list(ASKS[kind](name, columns, rho, wide))
    if any(each.held < MIN for each in cells):
        RUNS = 5 * runs
        cells = list(ASKS[kind](name, columns, rho, wide))
        RUNS = runs
    return cells


def all_cells(chosen: list[tuple[Any, ...]], processes: int) -> list[Cell]:
    """Measure, and print each cell as it comes."""
    print("kind | set | column | rho | share that holds | null | width / ideal")
    cells: list[Cell] = []
    with contextlib.ExitStack() as stack:
        found: Iterator[list[Cell]] = map(run, chosen)
        if processes > 1:
            found = stack.enter_context(multiprocessing.get_context("spawn").Pool(processes)).imap(run, chosen)
        for each in itertools.chain.from_iterable(found):
            print(line(each), flush=True)
            cells.append(each)
    return cells


def line(each: Cell) -> str:
    held = "null" if math.isnan(each.held) else f"{each.held:.2f}"
    refused = f", refused {each.refused:.0%}" if each.refused else ""
    about = f"{each.kind} | {each.place} | {each.column} | {each.rho:g}"
    return f"{about} | {held} | {each.null:.0%} | {each.ratio:.3g}{refused}"


def summary(cells: list[Cell]) -> bool:
    """Print the table by kind, then the worst cells; whether the goal is reached."""
    print("\nkind | cells | below 90% | null | width / ideal, median and largest")
    good = True
    for kind in dict.fromkeys(each.kind for each in cells):
        own = [each for each in cells if each.kind == kind and not math.isnan(each.null)]
        told_ = [each for each in own if not each.is_null]
        low = [each for each in told_ if each.held < MIN]
        ratios = [each.ratio for each in told_ if math.isfinite(each.ratio)] or [math.nan]
        print(
            f"{kind} | {len(own)} | {len(low)} | {len(own) - len(told_)} | "
            f"{np.median(ratios):.3g}, {max(ratios):.3g}"
        )  # fmt: skip
    own = [each for each in cells if not math.isnan(each.null)]
    told_ = [each for each in own if not each.is_null]
    low = sorted((each for each in told_ if each.held < MIN), key=lambda each: each.held)
    nulls = len(own) - len(told_)
    good = not low and nulls < 0.1 * max(1, len(own))
    refused = len(cells) - len(own)
    print(f"\n{len(own)} cells, {len(low)} below 90%, {nulls} null; {refused} refused always")
    for title, some in (
        ("hold least", low[:SHOWN]),
        ("widest", sorted((e for e in told_ if math.isfinite(e.ratio)), key=lambda each: -each.ratio)[:SHOWN]),
    ):
        print(f"\n{title}: kind | set | column | rho | share that holds | null | width / ideal")
        for each in some:
            print(line(each))
    print(f"\ngoal (90% in every cell or null, null in less than a tenth): {'reached' if good else 'MISSED'}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--turn", type=int, default=date.today().toordinal())
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    chosen = parser.parse_args()
    global RUNS
    RUNS = chosen.runs or RUNS
    began = time.perf_counter()
    every = tasks(chosen.part or PARTS)
    places = np.random.default_rng(1).permutation(len(every))  # so that each share has something of everything
    mine = [
        (*task, chosen.wide) for at, task in zip(places, every, strict=True) if (at - chosen.turn) % chosen.share == 0
    ]
    cells = all_cells(mine, chosen.processes)
    good = summary(cells)
    print(f"{time.perf_counter() - began:.0f} s")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
