"""Libraries from the package index on the same data and for the same privacy: OpenDP, diffprivlib, scikit-learn.

    python bench/rivals.py means | columns | centers | real [--seeds 20]

Each library answers in a process of its own (rival_libraries.py), with the interpreter that DIFFPRIVLIB_PYTHON,
OPENDP_PYTHON or SKLEARN_PYTHON names; without it a virtual environment is made in a temporary folder. The same rows for
all; medians over seeds. `real` needs FCSTREAM_DATA.

Privacy. fcstream: (rho, delta = 1e-8)-zCDP, a row added or removed. OpenDP: rho-zCDP, the same rho, and no delta.
diffprivlib is pure epsilon-DP. `as much zCDP`: each of its m answers (coordinates, levels) gets the largest epsilon for
which all together are rho-zCDP: sqrt(2 rho / m) with Laplace noise, sqrt(8 rho / m) for exponential mechanisms (Cesar
and Rogers 2021). `as much (epsilon, delta)`: the epsilon that (rho, delta) is worth at a further delta of 1e-6, divided
by m as the library does; for k-means, whose rounds compose, that is more than any composition in zCDP would give.
diffprivlib's means and variances and OpenDP's variance take the number of rows as public, one of them replaced.

Knowledge. All are told a public range. Behind "told" stands how many times wider than the data that range is; rows lie
around 0, in its middle. fcstream's means are told how far apart rows lie instead, its centers a ball.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from clusters import blobs, cost, real_jobs

import fcstream
from fcstream.accounting.losses import epsilon_tight

DELTA, MORE_DELTA = 1e-8, 1e-6
NEEDS = {
    "diffprivlib": ["diffprivlib==0.6.6", "scikit-learn==1.6.1"],
    "opendp": ["opendp==0.16.0", "numpy"],
    "sklearn": ["scikit-learn"],
}
Job = dict[str, Any]


class Rivals:
    """Interpreters of the libraries, made when first asked for."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._pythons: dict[str, str] = {}

    def python(self, library: str) -> str:
        if library not in self._pythons:
            named = os.environ.get(f"{library.upper()}_PYTHON")
            self._pythons[library] = named or self._made(library)
        return self._pythons[library]

    def _made(self, library: str) -> str:
        folder = os.path.join(self._scratch, library)
        venv.create(folder, with_pip=True)
        python = os.path.join(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "-q", *NEEDS[library]], check=True)
        return python

    def ask(self, library: str, jobs: list[Job], data: dict[str, np.ndarray]) -> list[np.ndarray | str]:
        """Answers in order; what a library said where it has none."""
        source, out = (os.path.join(self._scratch, f"{library}-{name}.npz") for name in ("in", "out"))
        np.savez(source, jobs=json.dumps(jobs), **data)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rival_libraries.py")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run([self.python(library), script, library, source, out], env=environment, check=True)
        found = np.load(out)
        return [str(error) or found[f"answer{k}"] for k, error in enumerate(found["errors"])]


def epsilons(rho: float, parts: int, cost: int = 2) -> dict[str, float]:
    """What each of diffprivlib's answers gets, by name; an epsilon costs epsilon**2 / `cost` in zCDP."""
    zcdp, pure = math.sqrt(cost * rho / parts), epsilon_tight(rho, MORE_DELTA)
    return {"diffprivlib, as much zCDP": zcdp, "diffprivlib, as much (epsilon, delta)": pure / parts}


def show(title: str, found: dict[str, list[float | str]], unit: str, ours: str = "fcstream") -> None:
    """One line for each method: the median error, its ratio to ours, refusals."""
    print(f"{title}; {unit}")
    own = [x for x in found[ours] if not isinstance(x, str)]
    base = statistics.median(own) if own else math.nan
    for name, errors in found.items():
        if not errors:
            continue
        numbers = [x for x in errors if not isinstance(x, str)]
        said = sorted({x for x in errors if isinstance(x, str)})
        middle = statistics.median(numbers) if numbers else math.nan
        ratio = f"{middle / base:8.2f} x" if base > 0 else " " * 10
        told = f"{middle:12.5g} {ratio}" if numbers else " " * 23
        more = f"  {len(numbers)} of {len(errors)} answered: {'; '.join(said)}" if said else ""
        print(f"  {name:<56} {told}{more}", flush=True)


def judged(answers: list[np.ndarray | str], error: Callable[[int, np.ndarray], float]) -> list[float | str]:
    return [x if isinstance(x, str) else error(k, x) for k, x in enumerate(answers)]


# -- means ---------------------------------------------------------------------------------------------------------


def means(rivals: Rivals, seeds: int) -> None:
    n, rho = 800, 1.0
    for d in (1, 10, 100):
        data = {f"rows{s}": np.random.default_rng(s).normal(size=(n, d)) for s in range(seeds)}
        rows = list(data.values())
        error = partial(_off, [one.mean(axis=0) for one in rows])
        apart = math.sqrt(2) * (math.sqrt(d) + math.sqrt(math.log(100 * n)))
        known: dict[str, Any] = {"rho": rho, "delta": DELTA, "size_hint": n, "step": 1e-3, "bounds": (-1e5, 1e5)}
        found: dict[str, list[float | str]] = {"fcstream": _means(rows, error, radius=apart, **known)}
        for off in (1, 10, 100):
            ball, side = off * (math.sqrt(d) + math.sqrt(2 * math.log(n))), off * 4.0
            found[f"fcstream, method ball, told {off} x"] = _means(
                rows, error, radius=ball, method="ball", center=[0.0] * d, **known
            )
            jobs = [{"what": "mean", "data": name, "ball": ball, "rho": rho} for name in data]
            found[f"OpenDP, ball, told {off} x"] = judged(rivals.ask("opendp", jobs, data), error)
            for name, each in epsilons(rho, d).items():
                jobs = [
                    {"what": "mean", "data": key, "low": -side, "high": side, "each": each, "seed": s}
                    for s, key in enumerate(data)
                ]
                found[f"{name}, box, told {off} x"] = judged(rivals.ask("diffprivlib", jobs, data), error)
        show(f"mean of {n} rows N(0, I), d = {d}, rho = {rho:g}", found, "distance from the rows' own mean")


def _off(truth: list[np.ndarray], k: int, value: np.ndarray) -> float:
    return float(np.linalg.norm(value - truth[k]))


def _means(rows: list[np.ndarray], error: Callable[[int, np.ndarray], float], **options: Any) -> list[float | str]:
    answers = [fcstream.private_mean(one, **{"outliers": "leave_out", **options}) for one in rows]
    return [str(x.reason) if x.value is None else error(k, np.array(x.value)) for k, x in enumerate(answers)]


# -- one column ----------------------------------------------------------------------------------------------------

LOW, HIGH, STEP = -40.0, 85.0, 0.01
LEVELS = [0.1, 0.5, 0.9]
EDGES = [LOW + 5 * k for k in range(26)]


def columns(rivals: Rivals, seeds: int) -> None:
    n = 5000
    data = {f"column{s}": np.round(np.random.default_rng(s).normal(20, 2, n), 2) for s in range(seeds)}
    for rho in (0.1, 1.0):
        _histograms(rivals, data, rho)
        _quantiles(rivals, data, rho)
        _variances(rivals, data, rho)


def _asked(
    rivals: Rivals, data: dict[str, np.ndarray], rho: float, job: Job, error: Any, parts: int = 1, cost: int = 2
) -> dict[str, list]:
    """What both libraries say of every column."""
    jobs = [{**job, "data": name, "rho": rho} for name in data]
    found = {"OpenDP": judged(rivals.ask("opendp", jobs, data), error)}
    for name, each in epsilons(rho, parts, cost).items():
        jobs = [{**job, "data": key, "each": each, "seed": s} for s, key in enumerate(data)]
        found[name] = judged(rivals.ask("diffprivlib", jobs, data), error)
    return found


def _histograms(rivals: Rivals, data: dict[str, np.ndarray], rho: float) -> None:
    rows = list(data.values())
    truth = [np.histogram(one, EDGES)[0] for one in rows]

    def error(k: int, value: np.ndarray) -> float:
        return float(np.sqrt(np.mean((value - truth[k]) ** 2)))

    options: Any = {"edges": EDGES[1:-1], "rho": rho, "step": STEP, "bounds": (LOW, HIGH)}
    found = {
        "fcstream": [error(k, np.array(fcstream.private_histogram(x, **options).value)) for k, x in enumerate(rows)]
    }
    found |= _asked(rivals, data, rho, {"what": "histogram", "edges": EDGES}, error)
    show(f"histogram of {len(EDGES) - 1} bins, n = {len(rows[0])}, rho = {rho:g}", found, "error of a bin, records")


def _quantiles(rivals: Rivals, data: dict[str, np.ndarray], rho: float) -> None:
    rows = [np.sort(one) for one in data.values()]

    def error(k: int, value: np.ndarray) -> float:
        """Ranks between a value and its quantile, on average."""
        total, n = 0.0, len(rows[k])
        for x, level in zip(value, LEVELS, strict=True):
            low, high = np.searchsorted(rows[k], round(x, 2), "left"), np.searchsorted(rows[k], round(x, 2), "right")
            total += max(0.0, low - level * n, level * n - high)
        return total / len(LEVELS)

    options: Any = {"rho": rho, "step": STEP, "bounds": (LOW, HIGH)}
    answers = [fcstream.private_quantiles(one, LEVELS, **options) for one in rows]
    found = {
        "fcstream": [
            error(k, np.array(x.value)) if x.value is not None else str(x.reason) for k, x in enumerate(answers)
        ]
    }
    job = {"what": "quantiles", "levels": LEVELS, "low": LOW, "high": HIGH, "step": STEP}
    found |= _asked(rivals, data, rho, job, error, len(LEVELS), 8)
    show(f"quantiles {LEVELS}, n = {len(rows[0])}, rho = {rho:g}", found, "ranks off, of the records")


def _variances(rivals: Rivals, data: dict[str, np.ndarray], rho: float) -> None:
    rows = list(data.values())

    def error(k: int, value: np.ndarray) -> float:
        return abs(float(value[0]) / float(rows[k].var()) - 1)

    options: Any = {
        "radius": 16, "rho": rho, "delta": DELTA, "size_hint": len(rows[0]), "step": STEP, "bounds": (LOW, HIGH),
    }  # fmt: skip
    answers = [fcstream.private_variance(one[:, None], **options) for one in rows]
    found = {
        "fcstream": [
            error(k, np.array(x.value)) if x.value is not None else str(x.reason) for k, x in enumerate(answers)
        ]
    }
    for told, (low, high) in {"12 to 28": (12.0, 28.0), "-40 to 85": (LOW, HIGH)}.items():
        job = {"what": "variance", "low": low, "high": high}
        asked = _asked(rivals, data, rho, job, error)
        found |= {f"{name}, told {told}": errors for name, errors in asked.items()}
    show(f"variance of N(20, 4), n = {len(rows[0])}, rho = {rho:g}", found, "relative error")


# -- centers -------------------------------------------------------------------------------------------------------


def centers(rivals: Rivals, seeds: int) -> None:
    for n in (20_000, 50_000, 200_000):
        data = {f"blobs{s}": blobs(n, s)[0] for s in range(seeds)}
        _centers(rivals, f"blobs of FriendlyCore's Figure 6, n = {n:,}, k = 8", data, 8, (0.0, 0.0), 1.0, 1e-5, seeds)


def real(rivals: Rivals, seeds: int) -> None:
    for name, rows, center, ball, step, numbers in real_jobs():
        if len(center) > 2:
            continue
        rows = rows[((rows - center) ** 2).sum(axis=1) <= ball**2]
        for k in numbers:
            _centers(rivals, f"{name}, {len(rows):,} rows, k = {k}", {"rows": rows}, k, center, ball, step, seeds)


def _centers(
    rivals: Rivals, title: str, data: dict[str, np.ndarray], k: int, center: tuple[float, ...], ball: float,
    step: float, seeds: int,
) -> None:  # fmt: skip
    rho, names = 1.0, list(data)
    jobs = [{"what": "centers", "data": names[s % len(names)], "k": k, "seed": s} for s in range(seeds)]
    best = judged(rivals.ask("sklearn", jobs, data), lambda s, x: cost(data[names[s % len(names)]], x))
    least = [min(b for b, job in zip(best, jobs, strict=True) if job["data"] == own["data"]) for own in jobs]

    def error(s: int, value: np.ndarray) -> float:
        return cost(data[jobs[s]["data"]], value) / least[s]

    options: Any = {"ball": ball, "center": center, "rho": rho, "delta": DELTA, "step": step}
    found: dict[str, list[float | str]] = {"scikit-learn, not private": judged_costs(best, least)}
    ours, rescued = "fcstream", "fcstream, by a tree"
    found[ours], found[rescued] = [], []
    for s, job in enumerate(jobs):
        rows = data[job["data"]]
        known = {"size_hint": len(rows), **options}
        try:
            answer = fcstream.private_centers(rows, k, **known)
            found[ours].append(str(answer.reason) if answer.value is None else error(s, np.array(answer.value)))
        except fcstream.ConfigError:
            found[ours].append("too few records, told at the start")
        answer = fcstream.private_centers(rows, k, ball=ball, center=center, rho=rho, step=step, method="tree")
        found[rescued].append(str(answer.reason) if answer.value is None else error(s, np.array(answer.value)))
    low, high = [c - ball for c in center], [c + ball for c in center]
    for name, each in epsilons(rho, 1).items():
        asked = [{**job, "each": each, "low": low, "high": high} for job in jobs]
        found[name] = judged(rivals.ask("diffprivlib", asked, data), error)
    show(f"{title}, rho = {rho:g}", found, "loss over the least non-private loss")


def judged_costs(costs: list[float | str], least: list[float | str]) -> list[float | str]:
    return [float(a) / float(b) for a, b in zip(costs, least, strict=True)]


PARTS = {"means": means, "columns": columns, "centers": centers, "real": real}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        PARTS[arguments.part](Rivals(scratch), arguments.seeds)


if __name__ == "__main__":
    sys.exit(main())
