"""Where friend counts fall off: data and windows that are hard, against an easy case of the same size.

    python bench/cliffs.py [--smoke] [NAME ...]

Each row is a ratio of processor times of the hard case and the easy one, which take turns in one process: the median
over the turns. A row that says so compares wall times, or microseconds. `--smoke` takes tiny sizes, to see that it
runs. A ratio above the row's limit is marked, and the exit code is 1.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fcstream.counting import threads
from fcstream.counting.exact import FriendCounts

STEP = 1e-4
Points = NDArray[np.float64]
Run = Callable[[], object]
Row = tuple[str, float, Run, Run]  # what, the largest ratio that is no cliff, the easy case, the hard case
REPEATS, SMOKE_REPEATS = 9, 1


# -- points --------------------------------------------------------------------------------------------------------


def radius(n: int, d: int) -> float:
    """Radius within which nearly all points of a normal blob are friends."""
    return math.sqrt(2) * (math.sqrt(d) + math.sqrt(math.log(100 * n)))


def blob(n: int, d: int, seed: int = 0) -> Points:
    return np.random.default_rng(seed).standard_normal((n, d))


def outliers_first(n: int, d: int, share: float = 0.3) -> Points:
    rng, points = np.random.default_rng(1), blob(n, d)
    far = round(share * n)
    points[:far] = 20 * rng.standard_normal((far, d)) + 50 * rng.standard_normal((far, 1))
    return points


def equal_first(n: int, d: int, equal: int) -> Points:
    points = blob(n, d)
    points[:equal] = points[0]
    return points


def ascending(points: Points) -> Points:
    return points[np.argsort((points**2).sum(axis=1))]


def shuffled(points: Points) -> Points:
    return points[np.random.default_rng(2).permutation(len(points))]


def far_outliers(n: int, d: int, distance: float) -> Points:
    rng, points = np.random.default_rng(3), blob(n, d)
    points[: 3 * n // 10] = distance * rng.standard_normal((3 * n // 10, d))
    return shuffled(points)


def clusters(n: int, d: int, centers: int, spread: float) -> Points:
    rng = np.random.default_rng(4)
    return blob(n, d) / 3 + spread * rng.uniform(-1, 1, (centers, d))[rng.integers(0, centers, n)]


def sphere(n: int, d: int, r: float) -> Points:
    """Points whose pairs lie about the radius apart: neither distances from a pivot nor 8 bits decide them."""
    points = blob(n, d)
    return points / np.linalg.norm(points, axis=1, keepdims=True) * r / math.sqrt(2)


# -- runs ----------------------------------------------------------------------------------------------------------


def window(points: Points, r: float, batch: int | None = None, look: int = 0) -> Run:
    """A tumbling window: all points in batches, its view, and its end. Counters keep their memory, as in a stream.

    With `look`, the first points are viewed before the others come.
    """
    lattice = np.rint(points / STEP)
    counter = FriendCounts(points.shape[1], int((r / STEP) ** 2))
    size = batch or len(lattice)

    def run() -> NDArray[np.int64]:
        if look:
            counter.add(0, lattice[:look])
            counter._flush(0)
        for start in range(look, len(lattice), size):
            counter.add(0, lattice[start : start + size])
        counts = counter.view([0]).in_order()
        counter.drop(0)
        return counts

    return run


def windows(points: Points, r: float, repeat: int) -> Run:
    once = window(points, r)

    def run() -> None:
        for _ in range(repeat):
            once()

    return run


def slides(n: int, d: int, panes: int, slides_at_once: int) -> tuple[Run, Run]:
    """Sliding windows of `panes` panes of n points: counted anew from their points, and by a counter that slides."""
    r = radius(n * panes, d)
    lattice = np.rint(blob(n * (panes + 40), d) / STEP)
    parts = [lattice[i : i + n] for i in range(0, len(lattice), n)]
    sliding = FriendCounts(d, int((r / STEP) ** 2), panes)
    fresh = FriendCounts(d, int((r / STEP) ** 2))
    state = {"next": panes}
    for pane in range(panes):
        sliding.add(pane, parts[pane])
    sliding.view(range(panes))

    def slide() -> None:
        for _ in range(slides_at_once):
            k = state["next"]
            state["next"] += 1
            sliding.drop(k - panes)
            sliding.add(k, parts[k % len(parts)])
            sliding.view(range(k - panes + 1, k + 1))

    def anew() -> None:
        for _ in range(slides_at_once):
            k = state["next"]
            for j in range(k - panes + 1, k + 1):
                fresh.add(0, parts[j % len(parts)])
            fresh.view([0])
            fresh.drop(0)

    return anew, slide


def all_pairs(points: Points, r: float) -> Run:
    """The kernel that decides pairs exactly, over all pairs and nothing else: what a window costs at most."""
    from fcstream._kernels import pairs
    from fcstream.counting.tiles import LANES, aligned

    n, d = points.shape
    count = -(-n // LANES)
    rows = np.full((count * LANES, d), np.inf)
    rows[:n] = np.rint(points / STEP)
    tiles = aligned((count, d, LANES), np.float64)
    tiles[:] = rows.reshape(count, LANES, d).transpose(0, 2, 1)
    limit, found = float(int((r / STEP) ** 2)), (np.zeros(count * LANES, np.int32), np.zeros(count * LANES, np.int32))

    def run() -> None:
        for t in range(count):
            pairs.count_exactly(rows, t * LANES, n, tiles, t, limit, *found, t)

    return run


def ball_tree(points: Points, r: float) -> Run:
    from sklearn.neighbors import BallTree

    return lambda: BallTree(points).query_radius(points, r, count_only=True)


# -- rows ----------------------------------------------------------------------------------------------------------


def order_rows(scale: int) -> Iterator[Row]:
    n = 20_000 // scale
    for d in (16, 64):
        points, r = outliers_first(n, d), radius(n, d)
        yield f"30% outliers first, d={d}: shuffled", 1.1, window(shuffled(points), r), window(points, r)
        last = points[::-1].copy()
        yield f"30% outliers last, d={d}: shuffled", 1.15, window(shuffled(points), r), window(last, r)
        points = equal_first(n, d, 3000 // scale)
        yield f"3,000 equal first, d={d}: shuffled", 1.2, window(shuffled(points), r), window(points, r)
        points = blob(n, d)
        yield f"ascending distances, d={d}: shuffled", 1.1, window(points, r), window(ascending(points), r)
        yield f"batches of 256, d={d}: all at once", 1.2, window(points, r), window(points, r, 256)
        yield f"a look after 16 points, d={d}: none", 1.5, window(points, r), window(points, r, look=16)
        drifting = points + np.linspace(0, 20, n)[:, None] * np.eye(d)[0]
        yield f"drifting, d={d}: shuffled", 1.5, window(shuffled(drifting), r), window(drifting, r)
        turns = points + 100.0 * (np.arange(n) // 1000 % 2)[:, None]
        yield f"two blobs in turn, d={d}: shuffled", 1.2, window(shuffled(turns), r), window(turns, r)
        uneven = points * np.random.default_rng(6).pareto(1.5, n)[:, None]
        yield f"heavy tails, ascending, d={d}: shuffled", 1.5, window(uneven, r), window(ascending(uneven), r)
        yield f"heavy tails, descending, d={d}: shuffled", 1.5, window(uneven, r), window(ascending(uneven)[::-1], r)


def small_rows(scale: int) -> Iterator[Row]:
    repeat = 50 // scale + 1
    for d in (2, 16):
        easy = windows(blob(1000, d), radius(1000, d), repeat)
        for n in (1, 10, 100):
            yield f"window of {n}, d={d}: of 1,000", 0.2, easy, windows(blob(n, d), radius(1000, d), repeat)


def sliding_rows(scale: int) -> Iterator[Row]:
    for n, d, panes in ((100, 2, 60), (100, 16, 60), (100, 64, 60), (1000, 2, 60), (1000, 16, 60), (5000, 16, 4)):
        n, panes = max(2, n // scale), max(3, panes // scale)
        yield f"{panes} panes of {n}, d={d}: counted anew", 1.15, *slides(n, d, panes, 4)


def spread_rows(scale: int) -> Iterator[Row]:
    n = 100_000 // scale
    square = np.random.default_rng(5).uniform(-1, 1, (n, 2))
    yield "uniform over 1e5 r, d=2: over 1e3 r", 1.2, window(1e3 * square, 1.0), window(1e5 * square, 1.0)
    pair = [window(clusters(n, 4, 200, spread), 1.0) for spread in (1e2, 1e5)]
    yield "200 clusters over 1e5 r, d=4: over 1e2 r", 1.2, *pair
    for d in (2, 16):
        r = radius(n, d)
        pair = [window(far_outliers(n, d, distance * r), r) for distance in (1e2, 1e6)]
        yield f"30% outliers at 1e6 r, d={d}: at 1e2 r", 1.2, *pair
    try:
        trees = ball_tree(1e5 * square, 1.0), ball_tree(clusters(n, 4, 200, 1e5), 1.0)
        trees[0]()
    except ImportError:
        return
    yield "uniform over 1e5 r, d=2: BallTree", 1 / 3, trees[0], window(1e5 * square, 1.0)
    yield "200 clusters over 1e5 r, d=4: BallTree", 1 / 3, trees[1], window(clusters(n, 4, 200, 1e5), 1.0)


def sphere_rows(scale: int) -> Iterator[Row]:
    for n, d in ((50_000 // scale, 16), (20_000 // scale, 64)):
        r = radius(n, d)
        points = sphere(n, d, r)
        yield f"sphere at the radius, n={n}, d={d}: all pairs", 1.3, all_pairs(points, r), window(points, r)
        yield f"sphere at the radius, n={n}, d={d}: a blob", 5.0, window(blob(n, d), r), window(sphere(n, d, r), r)


ROWS = {
    "order": order_rows, "small": small_rows, "sliding": sliding_rows, "spread": spread_rows, "sphere": sphere_rows,
}  # fmt: skip


def measure(easy: Run, hard: Run, repeats: int) -> tuple[float, float, float]:
    """Return medians: seconds of the easy and of the hard case, and their ratio."""
    easy(), hard()
    times: list[tuple[float, float]] = []
    for _ in range(repeats):
        start = time.process_time()
        easy()
        middle = time.process_time()
        hard()
        times.append((middle - start, time.process_time() - middle))
    ratio = statistics.median(b / max(a, 1e-9) for a, b in times)
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times), ratio


def show(what: str, easy: float, hard: float, ratio: float, limit: float) -> bool:
    """Print a row, and return whether it is a cliff."""
    verdict = "ok" if ratio <= limit else "CLIFF"
    figures = f"{1e3 * easy:9.2f} {1e3 * hard:9.2f} ms {ratio:7.2f} x (at most {limit:.2f})"
    print(f"{what:52s} {figures} {verdict}", flush=True)
    return ratio > limit


def two_threads(smoke: bool) -> None:
    """Wall time with one thread and with two, which says little on a machine that is busy."""
    for n in (1000,) if smoke else (100_000, 300_000):
        run = window(blob(n, 16), radius(n, 16))
        times: dict[int, list[float]] = {1: [], 2: []}
        run()
        for _ in range(SMOKE_REPEATS if smoke else 5):
            for count, found in times.items():
                threads.set_threads(count)
                start = time.perf_counter()
                run()
                found.append(time.perf_counter() - start)
        threads.set_threads(1)
        one, two = statistics.median(times[1]), statistics.median(times[2])
        show(f"two threads, n={n}, d=16: one (wall time)", one, two, two / one, 0.55)


def main(arguments: list[str]) -> int:
    smoke = "--smoke" in arguments
    wanted = [name for name in arguments if name != "--smoke"] or [*ROWS, "threads"]
    if unknown := set(wanted) - {*ROWS, "threads"}:
        sys.exit(f"unknown rows {sorted(unknown)}: choose from {', '.join(ROWS)}, threads")
    os.environ["FCSTREAM_THREADS"] = "1"
    cliffs = 0
    print(f"{'hard case: easy case':52s} {'easy':>9s} {'hard':>9s}      ratio")
    for name, rows in ROWS.items():
        if name not in wanted:
            continue
        for what, limit, easy, hard in rows(100 if smoke else 1):
            a, b, ratio = measure(easy, hard, SMOKE_REPEATS if smoke else REPEATS)
            cliffs += show(what, a, b, ratio, limit)
    if "threads" in wanted:
        two_threads(smoke)
    return 0 if smoke else int(cliffs > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
