"""What a stream costs on a cluster, on paper: from one machine to 1,000 workers and 1e9 records a day.

    python bench/scale.py             # the tables of docs/benchmarks/scale.md, from the constants below
    python bench/scale.py --measure   # measure the constants on this machine (one core, some ten seconds)

The model is sums and products: what each record, pair, window and commit costs, and who pays it. It knows no queues, no
micro-batches (seconds each: `bench/spark.py overhead`), no network that is full, and no skew between keys.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

DAY_S = 86_400


@dataclass(frozen=True)
class Constants:
    """Seconds of one core, measured; d = 16, JSON records, exact pairs, SQLite on a disk (PostgreSQL is alike)."""

    record: float = 2.3e-6  # decode, admit, cut into blocks
    gather: float = 0.1e-6  # of a closing window: put in order, and hand to the counter
    pair: float = 8.0e-10  # compare two records (each pair once), where most pairs must be looked at
    easy_pair: float = 2.4e-11  # the same where nearly all are friends, which distances from a pivot tell
    view: float = 0.035e-6  # per record: pack, and unpack at the driver
    release: float = 2.0e-3  # per window at the driver: charge, draw, seal, publish, without the disk
    release_record: float = 0.45e-6  # per record of it
    commit: float = 4.0e-3  # one transaction on disk


@dataclass(frozen=True)
class Stream:
    """What comes: records a day, over some keys, in tumbling windows."""

    records: float
    keys: int
    window_s: float
    dimension: int = 16

    @property
    def per_second(self) -> float:
        return self.records / DAY_S

    @property
    def size(self) -> float:
        """Records of a window."""
        return self.per_second * self.window_s / self.keys

    @property
    def windows(self) -> float:
        """Per second."""
        return self.keys / self.window_s


@dataclass(frozen=True)
class Bill:
    """Who pays what, per second of the stream.

    Attributes
    ----------
    reading, counting : float
        Cores.
    driver : float
        Share of the driver's one core.
    shuffled, stored, fetched : float
        Bytes per second: from readers to windows, into state and its log, from tasks to the driver.
    commits : float
        Ledger transactions: charge, seal and acknowledge of each window of a key (groups of keys do not share them).
    disk : float
        Share of one disk that commits take, one after the other.
    close : float
        Seconds of one core for one window: what a task takes.
    """

    reading: float
    counting: float
    driver: float
    shuffled: float
    stored: float
    fetched: float
    commits: float
    disk: float
    close: float

    @property
    def cores(self) -> float:
        return self.reading + self.counting


def bill(stream: Stream, c: Constants) -> Bill:
    n, scale = stream.size, stream.dimension / 16
    close = n * c.gather + n * n / 2 * c.pair * scale + n * c.view * scale
    block = 8 * stream.dimension + 20  # a point, its offset, its place in the message, its pane
    commits = 3 * stream.windows
    return Bill(
        reading=stream.per_second * c.record * scale,
        counting=stream.windows * close,
        driver=stream.windows * (c.release + n * (c.release_record + c.view) * scale),
        shuffled=stream.per_second * block,
        stored=2 * stream.per_second * block,
        fetched=stream.per_second * (8 * stream.dimension + 8),
        commits=commits,
        disk=commits * c.commit,
        close=close,
    )


def workers_needed(stream: Stream, c: Constants, load: float = 0.5) -> int | None:
    """Cores so that they are busy half of the time, windows closing all together; None: the driver cannot keep up."""
    found = bill(stream, c)
    if found.driver > load or found.disk > 1:
        return None
    return max(1, int(np.ceil(found.cores / load)))


def scenarios() -> list[tuple[str, Stream]]:
    found = []
    for records in (1e6, 1e7, 1e8, 1e9):
        for keys, window in ((1, 600), (100, 600), (1000, 600), (10_000, 3600)):
            found.append((f"{records:.0e}/day, {keys} keys, {window // 60} min", Stream(records, keys, window)))
    return found


def tables(c: Constants) -> str:
    lines = [
        "| stream | records a window | cores to read | cores to count | one window, s | driver | shuffle | to driver | "
        "ledger commits/s | cores at half load |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, stream in scenarios():
        b, needed = bill(stream, c), workers_needed(stream, c)
        lines.append(
            f"| {name} | {stream.size:,.0f} | {b.reading:.3f} | {b.counting:.3g} | {b.close:.2g} "
            f"| {100 * b.driver:.1f}% | {_bytes(b.shuffled)}/s | {_bytes(b.fetched)}/s | {b.commits:.2g} "
            f"| {'too much for one driver' if needed is None else f'{needed:,}'} |"
        )
    return "\n".join(lines)


def growth(c: Constants) -> str:
    """1e9 records a day, ten-minute windows, on ever more cores: how few keys they can carry."""
    lines = ["| cores | fewest keys | records a window | one window, s | driver | commits/s |", "| --- " * 6 + "|"]
    for cores in (1, 2, 8, 64, 256, 1000):
        row = f"| {cores:,} | none | | | | |"
        for keys in range(1, 200_000):
            stream = Stream(1e9, keys, 600)
            b, needed = bill(stream, c), workers_needed(stream, c)
            shared = b.close / max(1, cores // keys)  # cores that have no window of their own take a share of one
            if needed is not None and needed <= cores and shared < stream.window_s / 2:
                row = f"| {cores:,} | {keys:,} | {stream.size:,.0f} | {b.close:.3g} | {100 * b.driver:.1f}% "
                row += f"| {b.commits:.3g} |"
                break
        lines.append(row)
    return "\n".join(lines)


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def measure() -> Constants:
    """On this machine, one core."""
    from fcstream import Engine, Noise, warm_up
    from fcstream.config import Config
    from fcstream.counting.exact import FriendCounts
    from fcstream.counting.threads import set_threads
    from fcstream.planning.speeds import measured_costs
    from fcstream.spark.blocks import gather
    from fcstream.spark.stores import WindowFeed, stores
    from fcstream.spark.tasks import Admission, MessageReader, count_window

    set_threads(1)
    warm_up()
    n, d = 50_000, 16
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, d)).round(4)
    bodies = [
        json.dumps({"ts_ms": int(at)} | {f"f{k}": float(x) for k, x in enumerate(point)}).encode()
        for at, point in zip(rng.integers(60_000, size=n), points, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = Config.from_mapping(
            {
                "stream": {"name": "scale"},
                "lattice": {"step": 0.001},
                "features": [{"name": f"f{k}", "min": -50.0, "max": 50.0} for k in range(d)],
                "window": {"length": "60s", "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:01:00Z"},
                "release": {"radius": 12.0, "rho": 1.0, "delta": 1e-9, "size_hint": n},
                "budget": {"rho": 1.0, "delta": 1e-6},
                "ledger": {"url": f"sqlite:{Path(folder) / 'ledger.db'}"},
            }
        )
        job = config.job
        reader = MessageReader("json")(job)
        admission = Admission(job, {"": 0}, MessageReader("json"))
        offsets, timestamps = np.arange(n), np.zeros(n, np.int64)

        def blocks() -> list[bytes]:
            found = []
            for start in range(0, n, 10_000):
                some = slice(start, start + 10_000)
                read = reader("p", offsets[some], timestamps[some], bodies[some])
                found += [packed for _, window, packed in admission._blocks("p", *read) if window >= 0]
            return found

        packed, record = _timed(blocks)
        rows, gathered = _timed(lambda: gather(packed, d))
        _, counted = _timed(lambda: count_window(job, packed, 0))
        body = count_window(job, packed, 0)
        feed = WindowFeed()
        feed.offer({("", 0): len(body)}, [""], lambda places: {("", 0): body})
        _, view = _timed(lambda: feed.get(("", 0)))
        engine = Engine(config, noise=Noise(), stores=stores(feed))
        start = time.thread_time()
        group = next(engine.closing())
        answered = time.thread_time() - start
        engine.acknowledge()
        engine.abort()
        assert group[0].status == "released"
        spread = np.rint(points[:30_000] * 1000)  # a quarter of all pairs are no friends, and most must be looked at
        counter = FriendCounts(d, int((1.1 * (2 * d) ** 0.5 * 1000) ** 2))
        start = time.thread_time()
        counter.add(0, spread)
        counter.view([0])
        pair = 2 * (time.thread_time() - start) / 30_000**2
        easy = measured_costs(d)["exact"]
    found = Constants(
        record=record / n,
        gather=gathered / n,
        pair=pair,
        easy_pair=easy,
        view=2 * view / n,
        release_record=answered / n,
    )
    assert len(rows.points) == n
    print(f"counting {n} friends took {counted:.3f} s, by the model {n * n / 2 * easy + gathered:.3f} s")
    return found


def _timed(action):  # type: ignore[no-untyped-def]
    best, result = float("inf"), None
    for _ in range(3):
        start = time.thread_time()
        result = action()
        best = min(best, time.thread_time() - start)
    return result, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    constants = Constants()
    if parser.parse_args().measure:
        constants = measure()
    for name, value in asdict(constants).items():
        print(f"{name:15} {value:.3g} s")
    for what, c in (("most pairs", constants), ("few pairs", replace(constants, pair=constants.easy_pair))):
        print(f"\nWhere {what} must be looked at:\n\n{tables(c)}\n\n1e9 records a day, ten minutes:\n\n{growth(c)}")


if __name__ == "__main__":
    main()
