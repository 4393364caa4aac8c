"""Friend counts under predicates: pairs per second of one core, beside chunked NumPy in the same run.

    python bench/predicates.py [tuples] [matrices] [bits] [user]

Items arrive in batches of 500 in one pane; every unordered pair is decided once. CPU seconds, the best of three runs,
compiling apart. NumPy compares as many rows with all items at once as fill 2 MB, by matrix products where they help
(then it is not exact), with one thread and on fewer pairs. Both must count the same friends; where NumPy is not exact,
or for the margin of matrices, a difference is only noted.

Tuples: `friends` are k centers with noise of 1/40 of their least distance, points in any order; `mixed` has 10%
strangers; `bar` has noise of 1/12, so that many pairs are close to the limit and need all k * k distances.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from fractions import Fraction

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads it: CPU seconds of waiting threads count too

import numpy as np

from fcstream.predicates import (
    HammingBits,
    MatchTuples,
    MatrixDistance,
    OrderedTuples,
    Predicate,
    PredicateCounts,
    UserPredicate,
    pack_bits,
)

RUNS, ARRIVE, SOME = 3, 500, 120
LESS = 1  # numbers of items are divided by it
Rival = Callable[[np.ndarray, np.ndarray], np.ndarray]
SHAPES = [(2, 2), (2, 16), (5, 2), (5, 16), (8, 2), (8, 16)]


def count(predicate: Predicate, items: np.ndarray) -> np.ndarray:
    counter = PredicateCounts(predicate)
    for start in range(0, len(items), ARRIVE):
        counter.add(0, items[start : start + ARRIVE])
    return counter.counts([0])


def best(job: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        job()
        seconds.append(time.process_time() - start)
    return min(seconds)


def row(name: str, predicate: Predicate, items: np.ndarray, rival: Rival, cells: int, exact: bool = False) -> None:
    """One line: pairs per second here and in NumPy (`cells` numbers a pair), their ratio, the share of friends."""

    def chunked(others: np.ndarray) -> np.ndarray:
        rows = max(1, 2**18 // (cells * len(others)))
        blocks = [rival(items[start : start + rows], others) for start in range(0, SOME, rows)]
        return np.concatenate(blocks)[:SOME]

    count(predicate, items[:600])  # compiles
    found = count(predicate, items)
    pairs = len(items) * (len(items) - 1) / 2
    mine = pairs / best(lambda: count(predicate, items))
    some = items[: min(len(items), 3000)]
    theirs = SOME * len(some) / best(lambda: chunked(some))
    agrees = "" if (chunked(items).sum(axis=1) == found[:SOME]).all() else "  WRONG" if exact else "  (differs)"
    share = float(np.mean((found - 1) / (len(items) - 1)))
    print(
        f"{name:<34} {len(items):>6} {mine / 1e6:>9.1f} {theirs / 1e6:>8.2f} {mine / theirs:>7.0f}x {share:>7.2f}"
        f"{agrees}",
        flush=True,
    )


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(m, d), (n, d) -> (m, n), by a matrix product."""
    return (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)[None, :] - 2 * (x @ y.T)


def numpy_match(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """match_{1/7} of all pairs: two smallest of every row and column of the k x k distances, and mutual choices."""
    (m, k, d), n = x.shape, len(y)
    square = squared_distances(x.reshape(m * k, d), y.reshape(n * k, d)).reshape(m, k, n, k).transpose(0, 2, 1, 3)
    rows, columns = np.partition(square, 1, axis=3), np.partition(square, 1, axis=2)
    close = (49 * rows[..., 0] < rows[..., 1]).all(axis=2) & (49 * columns[:, :, 0] < columns[:, :, 1]).all(axis=2)
    back = np.take_along_axis(square.argmin(axis=2), square.argmin(axis=3), axis=2)
    return close & (back == np.arange(k)).all(axis=2)


def numpy_ordered(radii_squared: tuple[int, ...]) -> Rival:
    def friends(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        close = np.ones((len(x), len(y)), np.bool_)
        for j, r2 in enumerate(radii_squared):
            close &= squared_distances(x[:, j], y[:, j]) <= r2
        return close

    return friends


def tuples() -> None:
    for k, d in SHAPES:
        rng = np.random.default_rng(k * 100 + d)
        centers = rng.normal(size=(k, d)) * 1e6
        apart = min(np.linalg.norm(centers[i] - centers[j]) for i in range(k) for j in range(i))

        def items(n: int, noise: float, strangers: float = 0.0) -> np.ndarray:
            n = n // LESS
            made = centers + rng.normal(size=(n, k, d)) * noise / np.sqrt(d)  # noqa: B023
            odd = rng.random(n) < strangers  # noqa: B023
            made[odd] = rng.normal(size=(odd.sum(), k, d)) * 1e6  # noqa: B023
            return np.stack([tuple_[rng.permutation(k)] for tuple_ in np.rint(made)])  # noqa: B023

        label = f"k={k} d={d}"
        row(f"match {label} friends", MatchTuples(k, d), items(12000, apart / 40), numpy_match, k * k)
        row(f"match {label} mixed", MatchTuples(k, d), items(6000, apart / 40, 0.1), numpy_match, k * k)
        row(f"match {label} bar", MatchTuples(k, d), items(3000, apart / 12), numpy_match, k * k)
        made = np.rint(centers + rng.normal(size=(8000 // LESS, k, d)) * 1000)
        radii = (int(1000**2 * (2 * d + 6 * (2 * d) ** 0.5)),) * k
        row(f"ordered {label}", OrderedTuples(radii, d), made, numpy_ordered(radii), 1)


def numpy_matrices(limit: float) -> Rival:
    def friends(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        close = []
        for one in x:
            inverse = np.linalg.inv(np.linalg.cholesky(one))
            values = np.linalg.eigvalsh(inverse @ y @ inverse.T)
            close.append((values[:, 0] >= 1 / (1 + limit)) & (values[:, -1] <= 1 + limit))
        return np.array(close)

    return friends


def matrices() -> None:
    for d in (2, 5, 10):
        rng = np.random.default_rng(d)
        root = rng.normal(size=(d, d)) + 2 * np.eye(d)
        for name, width, n in (("friends", 0.012, 4000), ("mixed", 0.03, 4000)):
            change = rng.normal(size=(n // LESS, d, d)) * width
            made = root @ (np.eye(d) + (change + change.transpose(0, 2, 1)) / 2) @ root.T
            made = (made + made.transpose(0, 2, 1)) / 2
            row(f"matrices d={d} {name}", MatrixDistance(d, 0.1), made, numpy_matrices(0.1), d * d)


def bits() -> None:
    for length in (64, 1024):
        rng = np.random.default_rng(length)
        words = pack_bits(rng.random((20_000 // LESS, length)) < 0.5)
        limit = length // 2 - 2

        def rival(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.bitwise_count(x[:, None] ^ y[None]).sum(axis=2) <= limit  # noqa: B023

        row(f"hamming {length} bits", HammingBits(length, limit), words, rival, length // 64, True)


def within(x, y):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(len(x)):
        total += (x[c] - y[c]) ** 2
    return total <= 2e6 * len(x)


def user() -> None:
    for d in (2, 16):
        points = np.rint(np.random.default_rng(d).normal(size=(8000 // LESS, d)) * 1000)

        def rival(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return ((x[:, None] - y[None]) ** 2).sum(axis=2) <= 2e6 * d  # noqa: B023

        row(f"user's own, Euclidean d={d}", UserPredicate(within), points, rival, d, True)


def main() -> None:
    jobs = {"tuples": tuples, "matrices": matrices, "bits": bits, "user": user}
    chosen = sys.argv[1:] or list(jobs)
    if not set(chosen) <= set(jobs):
        sys.exit(f"must be some of {', '.join(jobs)}")
    print(f"gamma = {Fraction(1, 7)}; millions of pairs per CPU second")
    print(f"{'':<34} {'items':>6} {'here':>9} {'NumPy':>8} {'ratio':>8} {'friends':>7}")
    for name in chosen:
        jobs[name]()


if __name__ == "__main__":
    main()
