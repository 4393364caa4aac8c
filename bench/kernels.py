"""How fast friend counts are: against what a user could pick instead, and against what the processor can do.

    python bench/kernels.py [peaks table ingest batches hard sparse memory threads]

Times are CPU seconds of one core, medians of interleaved runs; every rival runs in a process of its own, pinned to the
same core. Needs `pip install scikit-learn psutil`. Absolute figures hold for the machine named in the first line.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

SECTIONS = ("peaks", "table", "ingest", "batches", "hard", "sparse", "memory", "threads")
STEP = 1e-4
CASES = {  # n, d, outliers: (must, aim) times the best peer
    (20_000, 2, 0.0): (5, 7),
    (20_000, 2, 0.3): (27, 35),
    (100_000, 2, 0.0): (6, 10),
    (100_000, 2, 0.3): (18, 25),
    (20_000, 16, 0.0): (38, 50),
    (20_000, 16, 0.3): (80, 100),
    (20_000, 64, 0.0): (26, 35),
    (20_000, 64, 0.3): (25, 32),
    (20_000, 256, 0.0): (9, 12),
    (20_000, 256, 0.3): (11, 14),
    (5_000, 1000, 0.0): (4.2, 6),
    (5_000, 1000, 0.3): (3.2, 5),
}
PEERS = ("balltree", "kdtree", "ckdtree", "gemm64", "gemm32", "blocks32")
PATIENCE = 3.0  # seconds after which a peer is out of the race
REPEATS = 9
Shapes = tuple[tuple[int, int], ...]  # n, d


# -- data and rivals -----------------------------------------------------------------------------------------------


def blobs(n: int, d: int, outliers: float = 0.0, seed: int = 0) -> np.ndarray:
    """One normal blob at an unknown place, and far isotropic outliers of a much larger scale."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, d))
    far = round(outliers * n)
    if far:
        points[:far] = rng.standard_normal((far, d)) * 20.0 + 50.0 * rng.standard_normal((far, 1))
    return points[rng.permutation(n)] + 100.0 * rng.standard_normal((1, d)) / math.sqrt(d)


def radius(n: int, d: int) -> float:
    return math.sqrt(2) * (math.sqrt(d) + math.sqrt(math.log(100 * n)))


def lattice(n: int, d: int, outliers: float = 0.0) -> tuple[np.ndarray, int]:
    return np.rint(blobs(n, d, outliers) / STEP), int((radius(n, d) / STEP) ** 2)


def gemm(points: np.ndarray, r: float, dtype: type) -> np.ndarray:
    """Squared norms less twice a matrix product, a chunk of rows at a time."""
    x = (points - points.mean(axis=0)).astype(dtype)
    norms = (x * x).sum(axis=1)
    counts, limit = np.empty(len(x), np.int64), dtype(r * r)
    chunk = max(1, 2**23 // len(x) // 4)
    for start in range(0, len(x), chunk):
        product = x[start : start + chunk] @ x.T
        product *= -2
        product += norms
        product += norms[start : start + chunk, None]
        counts[start : start + chunk] = np.count_nonzero(product <= limit, axis=1)
    return counts


def blocks(points: np.ndarray, r: float, side: int = 1024) -> np.ndarray:
    """Squared distances as one product of float32 with the norms inside, in blocks that stay in the cache, each pair
    once; masks are added up eight lanes at a time.
    """
    n = len(points)
    x = (points - points.mean(axis=0)).astype(np.float32)
    norms, ones = np.einsum("ij,ij->i", x, x)[:, None], np.ones((n, 1), np.float32)
    padding = ((0, -n % 8), (0, 0))  # of nan, which is nobody's friend
    left = np.pad(np.hstack([x, norms, ones]), padding, constant_values=np.nan)
    right = np.pad(np.hstack([-2 * x, ones, norms]), padding, constant_values=np.nan)
    counts = np.zeros(len(left), np.int64)
    for i in range(0, len(left), side):
        for j in range(i, len(left), side):
            near = left[i : i + side] @ right[j : j + side].T <= np.float32(r * r)
            lanes = near.view(np.uint64)
            counts[i : i + side] += lanes.sum(axis=1).view(np.uint8).reshape(-1, 8).sum(axis=1, dtype=np.int64)
            for k in range(0, len(near) if j > i else 0, 255):
                counts[j : j + side] += lanes[k : k + 255].sum(axis=0).view(np.uint8)
    return counts[:n]


def rival(name: str, points: np.ndarray, r: float):  # type: ignore[no-untyped-def]
    if name in ("balltree", "kdtree"):
        from sklearn.neighbors import BallTree, KDTree

        tree = {"balltree": BallTree, "kdtree": KDTree}[name]
        return lambda: tree(points).query_radius(points, r, count_only=True)
    if name == "ckdtree":
        from scipy.spatial import cKDTree

        return lambda: cKDTree(points).query_ball_point(points, r, return_length=True)
    if name == "blocks32":
        return lambda: blocks(points, r)
    return lambda: gemm(points, r, np.float64 if name == "gemm64" else np.float32)


def ingest(points: np.ndarray, radius_squared: int, batch: int = 256, counters: dict = {}):  # type: ignore[no-untyped-def] # noqa: B006
    """A whole window of ours in a stream of windows: micro-batches, then the close."""
    from fcstream.counting.exact import FriendCounts

    counter = counters.get((points.shape[1], radius_squared))
    if counter is None:
        counters.clear()
        counter = counters[points.shape[1], radius_squared] = FriendCounts(points.shape[1], radius_squared)
    for start in range(0, len(points), batch):
        counter.add(0, points[start : start + batch])
    counts = counter.view([0]).counts
    counter.drop(0)
    return counts


def serve(name: str, n: int, d: int, outliers: float) -> None:
    """A process of the race: a turn for every line on standard input, of as many runs as take 50 ms at least."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if name == "fcstream":
        points, radius_squared = lattice(n, d, outliers)
        run = functools.partial(ingest, points, radius_squared)
        run()
    else:
        run = rival(name, blobs(n, d, outliers), radius(n, d))
    print("ready", flush=True)
    for _ in sys.stdin:
        taken: list[float] = []
        while sum(taken) < 0.05:
            start = time.process_time()
            counts = run()
            taken.append(time.process_time() - start)
        print(statistics.median(taken), int(np.sum(counts)), flush=True)


class Racer:
    def __init__(self, name: str, case: tuple[int, int, float]) -> None:
        threads = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
        if "avx512f" in flags():
            threads["OPENBLAS_CORETYPE"] = "SkylakeX"  # numpy's wheels take slower kernels on new processors
        command = [sys.executable, os.path.abspath(__file__), "--serve", name, *map(str, case)]
        self.process = subprocess.Popen(
            command, env=os.environ | threads | {"FCSTREAM_THREADS": "1"}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._line(120) == "ready"

    def run(self, patience: float = 600) -> tuple[float, int] | None:
        """CPU seconds and the sum of counts; None if it takes too long, and then the process is gone."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self._line(patience)
        return None if line is None else (float(line.split()[0]), int(line.split()[1]))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _line(self, patience: float) -> str | None:
        import select

        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], patience)
        if not ready:
            self.stop()
            return None
        return self.process.stdout.readline().strip()


def flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            return set(next(line for line in file if line.startswith("flags")).split())
    except (OSError, StopIteration):
        return set()


def race(case: tuple[int, int, float]) -> None:
    racers = {name: Racer(name, case) for name in ("fcstream", *PEERS)}
    times: dict[str, list[float]] = {name: [] for name in racers}
    sums: dict[str, int] = {}
    for name in PEERS:
        first = racers[name].run(PATIENCE * 3)
        if first is None or first[0] > PATIENCE:
            racers.pop(name).stop()
    for _ in range(REPEATS):
        for name, racer in racers.items():
            found = racer.run()
            assert found is not None
            times[name].append(found[0])
            sums[name] = found[1]
    for racer in racers.values():
        racer.stop()
    ours = statistics.median(times["fcstream"])
    left = [name for name in PEERS if name in racers]
    if left:
        best = min(left, key=lambda name: statistics.median(times[name]))
        ratio = statistics.median(p / o for p, o in zip(times[best], times["fcstream"], strict=True))
    else:  # at least so much
        best, ratio = f"> {PATIENCE:g} s", PATIENCE / ours
    must, aim = CASES[case]
    others = " ".join(
        f"{name} {statistics.median(times[name]):.4g}" if name in racers else f"{name} >{PATIENCE:g}" for name in PEERS
    )
    differ = {name: sums[name] - sums["fcstream"] for name in racers if sums[name] != sums["fcstream"]}
    print(
        f"{case[0]:7d} x {case[1]:<5d}{case[2]:4.0%}  ours {ours:8.5f} s  best peer {best:9s} {ratio:6.1f} x "
        f"(must {must}, aim {aim}) {'ok' if ratio >= must else 'BELOW'}   [{others}]"
        + (f" sums of counts differ: {differ}" if differ else ""),
        flush=True,
    )


# -- what the processor can do -------------------------------------------------------------------------------------


@functools.cache
def peak_loops():  # type: ignore[no-untyped-def]
    """Loops without memory: (sub and FMA on float64, 8-bit dot products or None): functions of a number of rounds."""
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    from fcstream._kernels.blocks import SCREENS

    i32, i64 = ir.IntType(32), ir.IntType(64)

    def loop(step, vector, start):  # type: ignore[no-untyped-def]
        """16 independent sums; what goes in is hidden from the optimizer by an empty piece of assembly."""

        @intrinsic
        def peak(typing_context, rounds):
            def codegen(context, builder, signature, arguments):
                before = builder.block
                body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
                builder.branch(body)
                builder.position_at_end(body)
                k, x = builder.phi(i64), builder.phi(vector)
                k.add_incoming(i64(0), before)
                x.add_incoming(ir.Constant(vector, [start] * vector.count), before)
                phis = [builder.phi(vector) for _ in range(16)]
                hidden = builder.asm(ir.FunctionType(vector, [vector]), "", "=v,0", [x], False)
                x.add_incoming(hidden, body)
                totals = []
                for a, phi in enumerate(phis):
                    phi.add_incoming(ir.Constant(vector, [type(start)(a)] * vector.count), before)
                    totals.append(step(builder, phi, hidden, type(start)(a)))
                    phi.add_incoming(totals[-1], body)
                following = builder.add(k, i64(1))
                k.add_incoming(following, body)
                builder.cbranch(builder.icmp_signed("<", following, arguments[0]), body, after)
                builder.position_at_end(after)
                parts = [builder.extract_element(total, i32(0)) for total in totals]
                if isinstance(vector.element, ir.DoubleType):
                    return functools.reduce(builder.fadd, parts)
                return builder.sitofp(functools.reduce(builder.add, parts), ir.DoubleType())

            return types.float64(types.int64), codegen

        return njit(lambda rounds: peak(rounds))

    wide = ir.VectorType(ir.DoubleType(), 8 if "avx512f" in flags() else 4)

    def squares(builder, total, x, a):  # type: ignore[no-untyped-def]
        diff = builder.fsub(x, ir.Constant(wide, [a] * wide.count))
        return builder.fadd(total, builder.fmul(diff, diff, flags=("contract",)), flags=("contract",))

    def dots(builder, total, x, a):  # type: ignore[no-untyped-def]
        quarters = ir.VectorType(ir.IntType(8), 64)
        kind = ir.FunctionType(whole, [whole, quarters, quarters])
        dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return builder.call(dot, [total, builder.bitcast(x, quarters), builder.bitcast(x, quarters)])

    whole = ir.VectorType(i32, 16)
    floats = loop(squares, wide, 1.5)
    bytes_ = loop(dots, whole, 3) if SCREENS else None
    return floats, wide.count, bytes_


def speed(run, work: float, repeats: int = 5) -> float:  # type: ignore[no-untyped-def]
    """Median of work per CPU second, in units of 1e9."""
    run()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        found.append(work / (time.process_time() - start) / 1e9)
    return statistics.median(found)


def peaks(
    shapes: tuple[tuple[int, int, int], ...] = (
        (2, 8192, 512), (16, 8192, 512), (64, 8192, 512), (256, 4096, 512), (1000, 2048, 256),
    ),
    rounds: int = 5_000_000,
) -> None:  # fmt: skip
    """The float64 kernel and the 8-bit sweep against loops that only compute."""
    from numba import njit

    from fcstream._kernels import pairs
    from fcstream._kernels.blocks import SCREENS
    from fcstream.counting.tiles import LANES, Frame, TileSegment

    @njit
    def all_exactly(rows, m, tiles, radius2, row_counts, lane_counts):  # type: ignore[no-untyped-def]
        for t in range(len(tiles)):
            pairs.count_exactly(rows, 0, m, tiles, t, radius2, row_counts, lane_counts, t)

    @njit
    def all_screened(rows, row_codes, bars, m, tiles, codes, starts, prefix, radius2, row_counts, lane_counts):  # type: ignore[no-untyped-def]
        for t in range(len(tiles)):
            pairs._screen(
                (rows, row_codes, bars), 0, m, (tiles, codes, starts), t, prefix, radius2, row_counts, lane_counts, t
            )

    floats, width, dots = peak_loops()
    for d, n, m in shapes:
        points, radius_squared = lattice(n + m, d)
        frame = Frame(points, float(radius_squared), SCREENS and d >= 12)
        pane, batch = TileSegment(d, frame, 1, []), frame.encode(points[n:])
        held = frame.encode(points[:n])
        pane.insert(held, np.arange(n, dtype=np.int32))
        pane.store(held)
        pane.forget_batch()
        chunk = pane.chunks[0]
        chunk.tiles, chunk.codes, chunk.starts = chunk.tiles[: n // LANES], chunk.codes[: n // LANES], chunk.starts
        found = np.zeros(batch.room, np.int32), np.zeros(n, np.int32)
        exact = functools.partial(all_exactly, batch.rows, m, chunk.tiles, float(radius_squared), *found)
        best = speed(lambda: floats(rounds), rounds * 16 * width)
        reached = speed(exact, n * m * d)
        line = (
            f"d = {d:4d}: float64 {reached:5.1f} of {best:5.1f} Gdim/s = {reached / best:4.0%} (d >= 16: at least 85%)"
        )
        if dots is not None and d >= 12:
            whole = frame.first_words, 0  # all products, even where the first ones decide
            rows = batch.rows, batch.codes, batch.bars, int(batch.classes[0, 1])
            held_codes = chunk.tiles, chunk.codes, chunk.starts, whole
            best = speed(lambda: dots(rounds), rounds * 16 * 64)
            reached = speed(
                functools.partial(all_screened, *rows, *held_codes, float(radius_squared), *found), n * rows[3] * d
            )
            line += f"; 8-bit {reached:4.0f} of {best:4.0f} = {reached / best:4.0%} (d >= 256: at least 80%)"
        print(line, flush=True)


# -- the stream ----------------------------------------------------------------------------------------------------


def marginal(scale: int = 1) -> None:
    """Points per second into a window of 1e5, and how long its close takes at worst."""
    from fcstream.counting.exact import FriendCounts

    for d, must in ((2, 1e7), (16, 4e6), (64, 1e5), (256, None), (1000, None)):
        n, more = (100_000 if d <= 64 else 30_000) // scale, 20_000 if scale == 1 else 9_000
        points, radius_squared = lattice(n + more, d)
        counter = FriendCounts(d, radius_squared)
        counter.add(0, points[:n])
        counter.view([0])
        rates, closes = [], []
        for start in range(n, n + more - 8192, 2048 if d > 64 else 4096):
            fresh = points[start : start + 8192 if d <= 16 else start + 2048]
            begin = time.process_time()
            for at in range(0, len(fresh), 256):
                counter.add(0, fresh[at : at + 256])
            counter._flush(0)
            rates.append(len(fresh) / (time.process_time() - begin))
            counter.add(0, points[start : start + counter._staged[0].limit - 1])  # as much as ever waits
            begin = time.process_time()
            counter.view([0])
            closes.append(time.process_time() - begin)
        limit = 1e-3 if d <= 16 else 5e-3
        rate, close = statistics.median(rates), statistics.median(closes)
        goal = f"(at least {must:.0e}) {'ok' if rate >= must else 'BELOW'}" if must else ""
        print(
            f"n = {n}, d = {d:4d}: {rate:9.3g} points/s in batches of 256 {goal}; close with all that ever waits "
            f"{1e3 * close:.2f} ms (at most {1e3 * limit:g}) {'ok' if close <= limit else 'ABOVE'}",
            flush=True,
        )


def batches(shapes: Shapes = ((100_000, 2), (100_000, 16), (20_000, 64), (20_000, 256))) -> None:
    """What a whole window costs in small batches."""
    for n, d in shapes:
        points, radius_squared = lattice(n, d)
        sizes = (1, 16, 256, 1024, 4096)
        ingest(points, radius_squared)
        times: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(5):
            for size in sizes:
                start = time.process_time()
                ingest(points, radius_squared, size)
                times[size].append(time.process_time() - start)
        ratio = statistics.median(a / b for a, b in zip(times[16], times[1024], strict=True))
        shown = ", ".join(f"{size}: {1e3 * statistics.median(times[size]):.1f} ms" for size in sizes)
        print(
            f"n = {n}, d = {d:3d}: {shown}; 16 costs {ratio:.2f} x 1024 (at most 3) {'ok' if ratio <= 3 else 'ABOVE'}"
        )


def hard(n: int = 12_000, dimensions: tuple[int, ...] = (2, 16, 64, 256)) -> None:
    """Data that defeat pruning and screening, against the plain kernel over all pairs."""
    rng = np.random.default_rng(0)
    for d in dimensions:
        shapes = {
            "median": rng.standard_normal((n, d)),
            "clusters": rng.standard_normal((n, d)) + 6 * rng.standard_normal((10, d))[rng.integers(0, 10, n)],
            "tails": rng.standard_t(2.5, (n, d)),
            "uneven": rng.standard_normal((n, d)) * 0.98 ** np.arange(d),
            "ties": rng.integers(0, 4, (n, d)) / STEP * STEP,
        }
        found = []
        for name, raw in shapes.items():
            points = np.rint(raw / STEP)
            pick = rng.integers(0, n, (2, 4000))
            radius_squared = int(np.median(((points[pick[0]] - points[pick[1]]) ** 2).sum(axis=1)))
            ingest(points, radius_squared)
            ratios = []
            for _ in range(5):
                start = time.process_time()
                ingest(points, radius_squared)
                middle = time.process_time()
                plain(points, radius_squared)
                ratios.append((middle - start) / (time.process_time() - middle))
            found.append((statistics.median(ratios), name))
        worst = max(found)
        shown = ", ".join(f"{name} {ratio:.2f}" for ratio, name in found)
        print(f"n = {n}, d = {d:3d}: {shown} x plain (at most 1.3) {'ok' if worst[0] <= 1.3 else 'ABOVE'}", flush=True)


def plain(points: np.ndarray, radius_squared: int) -> np.ndarray:
    """Tiles and the exact kernel over each pair of tiles once: nothing else."""
    from fcstream._kernels import pairs
    from fcstream.counting.tiles import LANES, aligned

    n, d = points.shape
    count = -(-n // LANES)
    tiles = aligned((count, d, LANES), np.float64)
    padded = np.full((count * LANES, d), np.inf)
    padded[:n] = points
    tiles[:] = padded.reshape(count, LANES, d).transpose(0, 2, 1)
    row_counts, lane_counts = np.zeros(count * LANES, np.int32), np.zeros(count * LANES, np.int32)
    for t in range(count):
        pairs.count_exactly(padded, t * LANES, n, tiles, t, float(radius_squared), row_counts, lane_counts, t)
    return row_counts + lane_counts


def sparse(scale: int = 1) -> None:
    """Sampled pairs: against exact counts where those are slow, and how the cost of a window grows."""
    from fcstream.counting.exact import FriendCounts
    from fcstream.counting.sampled import BlockCounts
    from fcstream.noise.samplers import Noise, SeededEntropy

    class Filling(FriendCounts):
        """Stores points without comparing them at first: to measure a full window in reasonable time."""

        filling = True

        def _compare(self, *arguments) -> None:  # type: ignore[no-untyped-def]
            if not self.filling:
                super()._compare(*arguments)

    def blocks_of(n: int, degree: int) -> tuple[int, int]:
        blocks = 1 << (n // 32).bit_length() - 1
        return blocks, max(1, round(degree * blocks / n)) | 1

    n, d, degree = 1_000_000 // scale, 64, 1000
    points, radius_squared = lattice(100_000 // scale, d)
    rates = []
    for kind in ("blocks", "exact"):
        counter = (
            BlockCounts(d, radius_squared, *blocks_of(n, degree), Noise(SeededEntropy(0)))
            if kind == "blocks"
            else Filling(d, radius_squared)
        )
        if isinstance(counter, Filling):  # it learns how much of the work distances decide
            counter.filling = False
            counter.add(0, points[: 20_000 // scale])
            counter.view([0])
            counter.filling = True
        for _ in range(0, n, len(points)):
            counter.add(0, points)
        held = counter._panes[0] if kind == "blocks" else 0
        counter._flush(held)
        if isinstance(counter, Filling):
            counter.filling = False
        fresh = points[: (50_000 if kind == "blocks" else 2000) // scale]
        begin = time.process_time()
        counter.add(0, fresh)
        counter._flush(held)
        rates.append(len(fresh) / (time.process_time() - begin))
        del counter
    print(
        f"n = {n}, d = {d}, degree {degree}: blocks {rates[0]:.3g} points/s, exact {rates[1]:.3g}: "
        f"{rates[0] / rates[1]:.1f} x (at least 10) {'ok' if rates[0] >= 10 * rates[1] else 'BELOW'}",
        flush=True,
    )
    d, degree, costs = 16, 500, {}
    points, radius_squared = lattice(100_000, d)
    for n in (size // scale for size in (100_000, 100_000, 400_000, 1_600_000, 4_000_000)):
        counter = BlockCounts(d, radius_squared, *blocks_of(n, degree), Noise(SeededEntropy(0)))
        begin = time.process_time()
        for start in range(0, n, 4096):
            at = start % 90_000
            counter.add(0, points[at : at + min(4096, n - start)])
        counter.view([0])
        costs[n] = time.process_time() - begin
        del counter
    sizes = sorted(costs)
    power = math.log(costs[sizes[-1]] / costs[sizes[0]]) / math.log(sizes[-1] / sizes[0])
    shown = ", ".join(f"{n:.1e}: {costs[n]:.2f} s" for n in sizes)
    print(
        f"d = {d}, degree {degree}: {shown}; grows as n^{power:.2f} (at most 1.2) {'ok' if power <= 1.2 else 'ABOVE'}"
    )


def memory(shapes: Shapes = ((1_000_000, 2), (400_000, 16), (200_000, 64), (50_000, 256))) -> None:
    """Resident memory of a window, in a process of its own."""
    for n, d in shapes:
        out = subprocess.run(
            [sys.executable, __file__, "--memory", str(n), str(d)], capture_output=True, text=True, check=True,
            env=os.environ | {"FCSTREAM_THREADS": "1"},
        )  # fmt: skip
        used = int(out.stdout)
        floor = n * d * 8
        limit = 1.6 * floor + (0 if d >= 16 else 28 * n)
        print(
            f"n = {n}, d = {d:3d}: {used / floor:.2f} x the points ({used / n:.0f} bytes each, at most "
            f"{limit / n:.0f}) "
            f"{'ok' if used <= limit else 'ABOVE'}",
            flush=True,
        )


def hold(n: int, d: int) -> None:
    """How much a full window adds to this process."""
    from fcstream.counting.exact import FriendCounts

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    rng = np.random.default_rng(0)
    radius_squared = int((radius(n, d) / STEP) ** 2)
    warm = FriendCounts(d, radius_squared)
    warm.add(0, np.rint(rng.standard_normal((9000, d)) / STEP))
    warm.view([0])
    before = resident()
    counter = FriendCounts(d, radius_squared)
    for _ in range(0, n, 10_000):
        counter.add(0, np.rint(rng.standard_normal((10_000, d)) / STEP))
    counter._flush(0)
    print(resident() - before)


def threads(shapes: Shapes = ((20_000, 256), (5_000, 1000), (20_000, 64))) -> None:
    """Wall time with one thread and with two."""
    from fcstream.counting import threads as pool

    for n, d in shapes:
        points, radius_squared = lattice(n, d)
        times: dict[int, list[float]] = {1: [], 2: []}
        ingest(points, radius_squared)
        for _ in range(7):
            for count in times:
                pool.set_threads(count)
                start = time.perf_counter()
                ingest(points, radius_squared)
                times[count].append(time.perf_counter() - start)
        pool.set_threads(None)
        ratio = statistics.median(a / b for a, b in zip(times[1], times[2], strict=True))
        print(
            f"n = {n}, d = {d}: {1e3 * statistics.median(times[1]):.1f} ms, two threads "
            f"{1e3 * statistics.median(times[2]):.1f} ms: {ratio:.2f} x"
        )


def machine() -> str:
    import numba
    import scipy

    model = platform.processor() or "unknown processor"
    try:
        with open("/proc/cpuinfo") as file:
            pairs = (line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines())
            said = {key.strip(): value.strip() for key, value in pairs}
        model = f"{said['model name']} (family {said['cpu family']}, model {said['model']})"
    except (OSError, KeyError, ValueError):
        pass
    best = [name for name in ("avx2", "avx512f", "avx512_vnni") if name in flags()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{model}, {cores} cores, {' '.join(best)}; Python {platform.python_version()}, "
        f"numba {numba.__version__}, numpy {np.__version__}, scipy {scipy.__version__}"
    )


def main() -> None:
    wanted = sys.argv[1:] or SECTIONS
    if unknown := set(wanted) - set(SECTIONS):
        sys.exit(f"unknown sections {sorted(unknown)}: choose from {', '.join(SECTIONS)}")
    os.environ["FCSTREAM_THREADS"] = "1"
    print(machine())
    runs = {
        "peaks": peaks, "table": lambda: [race(case) for case in CASES], "ingest": marginal, "batches": batches,
        "hard": hard, "sparse": sparse, "memory": memory, "threads": threads,
    }  # fmt: skip
    for name in wanted:
        print(f"-- {name}")
        runs[name]()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    elif sys.argv[1:2] == ["--memory"]:
        hold(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
