"""A rival's synthetic rows, in a process of its own; called by `bench/synthetic.py`.

    python bench/synthetic_rival.py TABLE.npz OUT.npz RHO METHOD

`mbi` (private-pgm, McKenna et al.) does the inference. METHOD `mst`: a third of rho each for one-way marginals, for a
maximum spanning tree of pairs by the exponential mechanism, and for those pairs (McKenna, Miklau, Sheldon 2021), levels
below three noise deviations merged. METHOD `pairs`: Gaussian noise on all pairs, and mbi's mixture of products.
The work is done twice and the second time counts, so that compilation does not.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")


def table_of(rows: np.ndarray, sizes: list[int], columns: tuple[int, ...]) -> np.ndarray:
    shape = [sizes[a] for a in columns]
    flat = np.ravel_multi_index([rows[:, a] for a in columns], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).astype(float)


def estimate(sizes: list[int], measured: list, mixture: bool):
    from mbi import Domain, LinearMeasurement, estimation

    domain = Domain([str(a) for a in range(len(sizes))], sizes)
    found = [LinearMeasurement(y, tuple(map(str, columns)), stddev=sigma) for columns, y, sigma in measured]
    if mixture:
        import optax
        from mbi.extensions.mixture_of_products import MixtureOfProductsEstimator

        estimator = MixtureOfProductsEstimator(optimizer=optax.adam(0.1), num_components=100)
        return estimator.estimate(domain, found, iters=1000)
    return estimation.MirrorDescent().estimate(domain, found, iters=1000)


def mst(rows: np.ndarray, sizes: list[int], rho: float, rng: np.random.Generator) -> np.ndarray:
    import networkx

    columns = range(len(sizes))
    sigma = math.sqrt(len(sizes) / (2 * rho / 3))
    singles, kept = [], []
    for a in columns:
        noisy = table_of(rows, sizes, (a,)) + rng.normal(0, sigma, sizes[a])
        kept.append(np.flatnonzero(noisy >= 3 * sigma))
        singles.append(noisy)
    # Levels that noise hides are one level.
    small, codes, measured = [], np.empty_like(rows), []
    for a in columns:
        rest = len(kept[a]) < sizes[a]
        place = np.full(sizes[a], len(kept[a]))
        place[kept[a]] = np.arange(len(kept[a]))
        codes[:, a] = place[rows[:, a]]
        small.append(len(kept[a]) + rest)
        merged = np.bincount(place, weights=singles[a], minlength=small[a])
        widths = np.append(np.ones(len(kept[a])), [math.sqrt(max(1, sizes[a] - len(kept[a])))])[: small[a]]
        # Noise of the merged level is larger; said as one deviation by weighting it down is more than mbi takes.
        measured.append(((a,), merged, sigma * float(widths.mean())))
    model = estimate(small, measured, False)
    weights = {}
    for a, b in itertools.combinations(columns, 2):
        guess = np.asarray(model.project((str(a), str(b))).datavector())
        weights[a, b] = float(np.abs(table_of(codes, small, (a, b)) - guess).sum())
    epsilon = math.sqrt(8 * (rho / 3) / max(1, len(sizes) - 1))
    tree = networkx.utils.UnionFind(columns)
    for _ in range(len(sizes) - 1):
        open_ = [pair for pair in weights if tree[pair[0]] != tree[pair[1]]]
        scores = np.array([weights[pair] for pair in open_]) * epsilon / 2
        chances = np.exp(scores - scores.max())
        a, b = open_[rng.choice(len(open_), p=chances / chances.sum())]
        tree.union(a, b)
        spread = math.sqrt((len(sizes) - 1) / (2 * rho / 3))
        measured.append(((a, b), table_of(codes, small, (a, b)) + rng.normal(0, spread, small[a] * small[b]), spread))
    made = estimate(small, measured, False).synthetic_data(rows=len(rows)).to_dict()
    out = np.empty((len(made["0"]), len(sizes)), np.int64)
    for a in columns:
        back = np.asarray(made[str(a)])
        others = np.setdiff1d(np.arange(sizes[a]), kept[a])
        out[:, a] = np.append(kept[a], -1)[back]
        hidden = out[:, a] < 0
        out[hidden, a] = rng.choice(others if len(others) else kept[a], int(hidden.sum()))
    return out


def pairs(rows: np.ndarray, sizes: list[int], rho: float, rng: np.random.Generator) -> np.ndarray:
    sets = list(itertools.combinations(range(len(sizes)), 2))
    sigma = math.sqrt(len(sets) / (2 * rho))
    measured = [(one, y + rng.normal(0, sigma, len(y)), sigma) for one in sets for y in [table_of(rows, sizes, one)]]
    made = estimate(sizes, measured, True).synthetic_data(rows=len(rows)).to_dict()
    return np.column_stack([np.asarray(made[str(a)]) for a in range(len(sizes))])


def main() -> None:
    table, out, rho, method = sys.argv[1:]
    found = np.load(table)
    rows, sizes = found["rows"], found["sizes"].tolist()
    made, seconds = None, 0.0
    for seed in (1, 2):
        started = time.perf_counter()
        made = {"mst": mst, "pairs": pairs}[method](rows, sizes, float(rho), np.random.default_rng(seed))
        seconds = time.perf_counter() - started
    from importlib.metadata import version

    np.savez_compressed(out, rows=made, seconds=seconds, version=version("mbi"))


if __name__ == "__main__":
    main()
