"""A rival's synthetic rows, in a process of its own; called by `bench/synthetic.py`.

    python bench/synthetic_rival.py TABLE.npz OUT.npz RHO METHOD [CHECKOUT]

METHODs `mst` and `aim` are the authors' own programs: `mechanisms/mst.py` and `mechanisms/aim.py` of a checkout of
github.com/ryan112358/private-pgm, as they stand, with their defaults (AIM: all pairs). METHOD `pairs`: Gaussian noise
on all pairs, and the mixture of products of the package `mbi` (2.0, the same authors'), 100 products, 1,000 steps.

Seconds are the processor's, of all threads, without imports. It runs twice, unless that takes too long, and the second
run counts, where what JAX compiled can serve again.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
MAX_SECONDS = 60
"""Of a first run after which there is a second."""


def authors(name: str, rows: np.ndarray, sizes: list[int], rho: float) -> np.ndarray:
    """Rows by the authors' mst or aim: they take epsilon and delta, and are told the rho that these stand for."""
    import pandas
    from mbi import Dataset, Domain

    names = [f"x{a}" for a in range(len(sizes))]
    data = Dataset(pandas.DataFrame(rows, columns=names), Domain(names, sizes))
    if name == "mst":
        import mst

        mst.cdp_rho = lambda epsilon, delta: rho
        made = mst.MST(data, 1.0, 1e-6)
    else:
        import aim

        mechanism = aim.AIM(1.0, 1e-6)
        mechanism.rho = rho
        workload = [(pair, 1.0) for pair in itertools.combinations(names, 2)]
        made = mechanism.run(data, workload, num_synth_rows=len(rows))[1]
    return np.asarray(made.df[names], np.int64)


def pairs(rows: np.ndarray, sizes: list[int], rho: float, rng: np.random.Generator) -> np.ndarray:
    import optax
    from mbi import Domain, LinearMeasurement
    from mbi.extensions.mixture_of_products import MixtureOfProductsEstimator

    domain = Domain([str(a) for a in range(len(sizes))], sizes)
    sets = list(itertools.combinations(range(len(sizes)), 2))
    sigma = math.sqrt(len(sets) / (2 * rho))
    measured = []
    for a, b in sets:
        counts = np.bincount(rows[:, a] * sizes[b] + rows[:, b], minlength=sizes[a] * sizes[b])
        measured.append(LinearMeasurement(counts + rng.normal(0, sigma, len(counts)), (str(a), str(b)), stddev=sigma))
    estimator = MixtureOfProductsEstimator(optimizer=optax.adam(0.1), num_components=100)
    made = estimator.estimate(domain, measured, iters=1000).synthetic_data(rows=len(rows)).to_dict()
    return np.column_stack([np.asarray(made[str(a)]) for a in range(len(sizes))])


def main() -> None:
    table, out, rho, method, *checkout = sys.argv[1:]
    found = np.load(table)
    rows, sizes = found["rows"], found["sizes"].tolist()
    if checkout:
        sys.path[:0] = [os.path.join(checkout[0], "src"), os.path.join(checkout[0], "mechanisms")]
    for name in ("mbi", "pandas" if checkout else "optax", *((method,) if checkout else ())):
        importlib.import_module(name)
    made, seconds = None, 0.0
    for seed in (1, 2):
        if seconds > MAX_SECONDS:
            break
        np.random.seed(seed)  # the rival draws from numpy's global generator
        started = time.process_time()
        with contextlib.redirect_stdout(sys.stderr):
            if method == "pairs":
                made = pairs(rows, sizes, float(rho), np.random.default_rng(seed))
            else:
                made = authors(method, rows, sizes, float(rho))
        seconds = time.process_time() - started
    np.savez_compressed(out, rows=made, seconds=seconds)


if __name__ == "__main__":
    main()
