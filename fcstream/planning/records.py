"""Records of a rehearsal: read from a public file, or made up from declared ranges and public numbers alone."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import Config, Job
from ..connectors import open_source
from ..connectors.registry import FILE_SOURCES
from ..errors import ConfigError
from ..formats.batch import Batch
from ..releases.means.spread_histogram import supposed_deviation
from ..stream.lattice import Feature
from .stream_plan import USUAL_SIZE

_INVERSES: dict[str, Any] = {"none": np.asarray, "log1p": np.expm1, "asinh": np.sinh}
_ROOM = 4.0
"""So many deviations lie between the middle of a range and its ends, where no radius says how far records spread."""

_SUFFIXES = {
    "csv": ("csv",),
    "jsonl": ("jsonl", "ndjson", "json"),
    "parquet": ("parquet",),
    "arrow": ("arrow", "arrows", "ipc"),
}
_POLL = 8192


def file_url(path: str, key: str) -> str:
    """Return the URL of a file of records, whose format its name tells (``.csv``, ``.jsonl``, ...), or a scheme before
    it.

    Raises
    ------
    ConfigError
        The format is not told.
    """
    if path.partition(":")[0] in FILE_SOURCES:
        return path
    suffix = path.lower().removesuffix(".gz").rpartition(".")[2]
    for scheme, suffixes in _SUFFIXES.items():
        if suffix in suffixes:
            return f"{scheme}:{path}"
    known = ", ".join(f".{suffix}" for suffixes in _SUFFIXES.values() for suffix in suffixes)
    raise ConfigError(f"must end in one of {known} (also .gz), or begin with one of {', '.join(FILE_SOURCES)}", key)


def read_records(config: Config, path: str) -> list[Batch]:
    """Read the records of a file as the configuration's schema does, whatever source it names.

    A CSV file is written as ``[source]`` says, if that is one of CSV too.

    Raises
    ------
    ConfigError, SourceError
        The file cannot be read, or its format is not told.
    """
    url, source = file_url(path, "--public"), config.source
    dialect = source.csv_dialect() if source is not None and source.url.startswith("csv:") else None
    found = []
    with closing(open_source(url, config.job.schema, dialect)) as opened:
        while (batch := opened.poll(_POLL)) is not None:
            found.append(batch)
    return found


def synthetic_records(config: Config, start_ms: int, windows: int, seed: int) -> Batch:
    """Make up the records of some windows: `size_hint` of them in each window, or `USUAL_SIZE`, under every key.

    Numbers are normal around the middle of their range. Where an answer has a radius, they spread as `fcstream plan`
    supposes: their typical distance from their center is `spread`, or else 999 of 1,000 lie within half the radius of
    it. Categories and Booleans are
    evenly distributed. Every record is another user's.

    Parameters
    ----------
    config : Config
    start_ms : int
        Opening of the first window.
    windows : int
    seed : int

    Raises
    ------
    ConfigError
        A feature is a text, of which no range tells what it holds.
    """
    job = config.job
    if job.schema.texts:
        raise ConfigError(
            f"is required: nothing tells what {next(iter(job.schema.texts))!r}, which is a text, may hold", "--public"
        )
    rng, schedule = np.random.Generator(np.random.PCG64(seed)), job.schedule
    size = max((options.size_hint or 0 for options in config.releases), default=0) or USUAL_SIZE
    span = (windows - 1) * schedule.slide_ms + schedule.length_ms
    each = max(1, size * span // schedule.length_ms)
    total = each * max(1, len(job.keys))
    times = start_ms + np.arange(each, dtype=np.int64) * span // each
    deviation = _deviation(config, job)
    columns = [_column(feature, deviation, total, rng) for feature in job.grid.features]
    values = np.stack(columns, axis=1) if columns else np.empty((total, 0))
    order = np.repeat(np.arange(each), max(1, len(job.keys)))
    return Batch(
        times[order],
        values,
        np.arange(total),
        users=_labels("user", total) if job.terms.unit == "user" else None,
        keys=np.array(list(job.keys) * each, object) if job.keys else None,
    )


def _labels(name: str, number: int) -> NDArray[np.object_]:
    return np.array([f"{name} {i}" for i in range(number)], object)


def _deviation(config: Config, job: Job) -> float | None:
    """Return the deviation of every number in scaled units, by the first answer with a radius; None if there is none.

    A spread is the typical distance, which is s sqrt(d) for N(0, s**2 I).
    """
    for options, answer in zip(config.releases, job.answers, strict=True):
        spread, radius = getattr(options, "spread", None), getattr(options, "radius", None)
        d = max(1, answer.grid.dimension)
        if isinstance(spread, (int, float)) and spread > 0:
            return float(spread) / math.sqrt(d)
        if isinstance(radius, (int, float)) and radius > 0:
            return supposed_deviation(float(radius), d)
    return None


def _column(feature: Feature, deviation: float | None, total: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Make up the values of one feature as its field holds them."""
    if feature.levels:
        return rng.integers(0, len(feature.levels), total).astype(np.float64)
    low, high = feature.scaled_range
    width = (high - low) / (2 * _ROOM) if deviation is None or feature.learned else deviation
    scaled = rng.normal((low + high) / 2, width, total)
    inside = np.clip(feature.origin + feature.scale * scaled, *feature.range)
    found: NDArray[np.float64] = _INVERSES[feature.transform](inside) / feature.factor
    return found
