"""Private quantiles against noisy trees over the same public range: by how many ranks values are off.

    python bench/quantiles.py [--reps 20]

A range of 2**16 lattice values; the exponential mechanism as `fcstream.private_quantiles` releases it, and trees of
counts with a discrete Gaussian of rho / depth on every level (branching 2, 4, 16), made consistent by least squares
and read by descent or from the monotone sums of the leaves, whichever is better for the tree. Mean over repetitions
and levels of the distance in ranks between a value and its quantile. "refused": so few records lie beyond a level that
nobody could tell whether a value comes from the data or from an empty part of the range; a tree answers there.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

import fcstream

BITS = 16
LEVELS = {"1": [0.5], "3": [0.25, 0.5, 0.75], "9": [k / 10 for k in range(1, 10)], "tails": [0.01, 0.05, 0.95, 0.99]}


def tree(values: np.ndarray, branching: int, rho: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Consistent noisy counts per level, from the children of the root to the leaves."""
    depth = round(BITS / math.log2(branching))
    variance, counts = depth / (2 * rho), [np.bincount(values, minlength=2**BITS).astype(float)]
    while len(counts[0]) > branching:
        counts.insert(0, counts[0].reshape(-1, branching).sum(1))
    found = [level + rng.normal(0, math.sqrt(variance), len(level)) for level in counts]
    below = variance
    for k in range(depth - 2, -1, -1):  # up: a node's own count and the sum of its children
        summed, own = found[k + 1].reshape(-1, branching).sum(1), below * branching / (below * branching + variance)
        found[k] = own * found[k] + (1 - own) * summed
        below = variance * below * branching / (variance + below * branching)
    for k in range(1, depth):  # down: children share what they miss
        missing = found[k - 1] - found[k].reshape(-1, branching).sum(1)
        found[k] = found[k] + np.repeat(missing / branching, branching)
    return found


def descend(levels: list[np.ndarray], branching: int, wanted: list[float]) -> list[int]:
    total, out = max(levels[0].sum(), 1.0), []
    for q in wanted:
        rank, node = q * total, 0
        for level in levels:
            sums = np.cumsum(np.maximum(level[node * branching : (node + 1) * branching], 0))
            if sums[-1] <= 0:
                node = node * branching + branching // 2
                continue
            rank = min(max(rank, 0.0), sums[-1])
            child = min(int(np.searchsorted(sums, rank)), branching - 1)
            rank -= sums[child - 1] if child else 0.0
            node = node * branching + child
        out.append(node)
    return out


def from_leaves(leaves: np.ndarray, wanted: list[float]) -> list[int]:
    sums = np.cumsum(leaves)
    rising = (np.maximum.accumulate(sums) + np.minimum.accumulate(sums[::-1])[::-1]) / 2
    return np.clip(np.searchsorted(rising, np.array(wanted) * sums[-1]), 0, 2**BITS - 1).tolist()


def error(data: np.ndarray, values: list[float], wanted: list[float]) -> float:
    total = 0.0
    for value, q in zip(values, wanted, strict=True):
        low, high = np.searchsorted(data, value, "left"), np.searchsorted(data, value, "right")
        total += max(0.0, low - q * len(data), q * len(data) - high)
    return total / len(wanted)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=20)
    reps, worse = parser.parse_args().reps, 0
    rng = np.random.default_rng(20261121)
    shapes = {
        "tight": lambda n: rng.normal(0.4, 0.004, n),
        "wide": lambda n: rng.normal(0.5, 0.1, n),
        "skewed": lambda n: np.exp(rng.normal(math.log(0.01), 1, n)),
    }
    print(f"{'data':>7} {'n':>6} {'rho':>5} {'levels':>6} {'exponential':>11} {'best tree':>9} {'ratio':>9}")
    for name, draw in shapes.items():
        for n in (600, 5000):
            for rho in (0.1, 1.0):
                for label, wanted in LEVELS.items():
                    mine, trees = 0.0, dict.fromkeys([(b, how) for b in (2, 4, 16) for how in "dl"], 0.0)
                    for _ in range(reps):
                        data = np.sort(np.clip(np.rint(draw(n) * 2**BITS), 0, 2**BITS - 1).astype(int))
                        answer = fcstream.private_quantiles(data, wanted, rho=rho, step=1, bounds=(0, 2**BITS - 1))
                        mine += error(data, answer.value, wanted) / reps if answer.value else math.nan
                        for b in (2, 4, 16):
                            levels = tree(data, b, rho, rng)
                            trees[b, "d"] += error(data, descend(levels, b, wanted), wanted) / reps
                            trees[b, "l"] += error(data, from_leaves(levels[-1], wanted), wanted) / reps
                    best = min(trees.values())
                    worse += mine > 1.25 * best
                    told = "  refused" if math.isnan(mine) else f"{best / max(mine, 0.01):9.2f}"
                    row = f"{name:>7} {n:6} {rho:5g} {label:>6} {mine:11.2f} {best:9.2f} {told}"
                    print(row, flush=True)
    print("never worse than the best tree by a quarter" if not worse else f"{worse} jobs worse than the best tree")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
