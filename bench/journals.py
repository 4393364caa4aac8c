"""Three durable records, each beside the same data in SQLite: docs/decisions/durable-records.md rests on this.

    FCSTREAM_BENCH_DIR=FOLDER python bench/journals.py [spool] [device] [ledger]

spool    batches of messages of 200 bytes: appends, reading back, the disk after everything was committed, opening.
device   charges and replies of one device, and of 1,000 devices at a time: transactions, bytes, opening.
ledger   windows that are charged, sealed and acknowledged: opening a ledger of many, beside one that repeats its calls.

SQLite as the ledger uses it: write-ahead log, synchronous=FULL, exclusive locking, one transaction an append. Turns are
taken alternately; medians, and the ratio of medians.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
from kernels import machine

from fcstream.accounting.losses import PrivacyLoss
from fcstream.connectors.spool import Spool
from fcstream.ledgers.base import Request, SealedRelease, Terms, WindowKey
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.local.device.accounts import DeviceCharge, Reply
from fcstream.local.device.journal import FileJournal

Shapes = tuple[tuple[int, int], ...]
TURNS = 7
MESSAGE = 200
REPLY = b'{"nano":1000,"query":"range-0001","round":1,"status":"answered","values":[123456]}'
LOSS = PrivacyLoss.charge("0.001", "1e-12")


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=os.environ.get("FCSTREAM_BENCH_DIR")))
    yield path
    shutil.rmtree(path)


def database(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    for rule in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
        db.execute(f"PRAGMA {rule}").fetchall()
    db.execute("CREATE TABLE IF NOT EXISTS rows (seq INTEGER PRIMARY KEY, at INTEGER, body BLOB)")
    return db


def insert(db: sqlite3.Connection, rows: list[tuple[int, bytes]]) -> None:
    db.execute("BEGIN")
    db.executemany("INSERT INTO rows (at, body) VALUES (?, ?)", rows)
    db.execute("COMMIT")


def bare(path: Path) -> Callable[[bytes], None]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append(data: bytes) -> None:
        os.write(file, data)
        os.fsync(file)

    return append


def seconds(action: Callable[[], object], times: int = 1) -> float:
    started = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - started) / times


def size(path: Path) -> int:
    return sum(each.stat().st_size for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())


def tell(what: str, ours: list[float], theirs: list[float], floor: list[float] | None = None) -> None:
    one, other = float(np.median(ours)), float(np.median(theirs))
    disk = "" if floor is None else f", the disk alone {1e3 * np.median(floor):.2f} ms"
    print(f"{what}: file {1e3 * one:.2f} ms, SQLite {1e3 * other:.2f} ms ({other / one:.2f} times){disk}")


def spool(appends: Shapes = ((1, 100), (100, 100), (2000, 20)), many: int = 400) -> None:
    for batch, times in appends:
        bodies = [os.urandom(MESSAGE) for _ in range(batch)]
        with folder() as place:
            ours, db, disk = Spool(place / "spool", 1 << 32), database(place / "db"), bare(place / "bare")
            found: list[list[float]] = [[], [], []]
            for _ in range(TURNS):
                found[0].append(seconds(lambda: ours.append(bodies), times))  # noqa: B023
                found[1].append(seconds(lambda: insert(db, [(0, body) for body in bodies]), times))  # noqa: B023
                found[2].append(seconds(lambda: disk(b"".join(bodies)), times))  # noqa: B023
            tell(f"append of {batch} messages", *found)
            db.close()
            ours.close()
    with folder() as place:
        bodies = [os.urandom(MESSAGE) for _ in range(1000)]
        ours, db = Spool(place / "spool", 1 << 32), database(place / "db.sqlite")
        for _ in range(many):
            ours.append(bodies)
            insert(db, [(0, body) for body in bodies])
        ours.close()
        db.close()
        held = size(place / "spool") / (many * 1000), size(place / "db.sqlite") / (many * 1000)
        print(
            f"{many * 1000:,} messages of {MESSAGE} bytes: {held[0]:.1f} bytes each in files, {held[1]:.1f} in SQLite"
        )
        opens: list[list[float]] = [[], []]
        for _ in range(TURNS):
            opens[0].append(seconds(lambda: Spool(place / "spool", 1 << 32).close()))
            opens[1].append(seconds(lambda: database(place / "db.sqlite").close()))
        tell("opening it", *opens)
        ours, db = Spool(place / "spool", 1 << 32), database(place / "db.sqlite")

        def read() -> None:
            number = 0
            while number < ours.end:
                number += len(ours.read(number).bodies)

        reads = seconds(read), seconds(lambda: sum(1 for _ in db.execute("SELECT seq, at, body FROM rows")))
        tell("reading it all", [reads[0]], [reads[1]])
        commits = seconds(lambda: ours.commit(ours.end)), seconds(lambda: db.execute("DELETE FROM rows"))
        tell("letting go of all", [commits[0]], [commits[1]])
        ours.close()
        db.close()
        print(f"left on the disk: {size(place / 'spool'):,} bytes in files, {size(place / 'db.sqlite'):,} in SQLite")


def device(shapes: Shapes = ((1, 100), (1000, 10))) -> None:
    for devices, times in shapes:
        names, numbers = [f"device-{i}" for i in range(devices)], count()
        with folder() as place:
            ours, db = FileJournal(place / "journal", keep=10**6), database(place / "db")
            for name in names:
                ours.enter(name, {"kind": "rho", "capacity_nano": 10**15})
            found: list[list[float]] = [[], []]

            def one(ours=ours, names=names, numbers=numbers) -> None:  # type: ignore[no-untyped-def]
                query = f"range-{next(numbers):06d}"
                ours.charge([DeviceCharge(query, 1, "0" * 32, False, name, 1000, 1000) for name in names], [])
                ours.seal([Reply(query, 1, name, REPLY) for name in names])

            def other(db=db, names=names) -> None:  # type: ignore[no-untyped-def]
                insert(db, [(0, name.encode()) for name in names])
                insert(db, [(0, REPLY) for _ in names])

            for _ in range(TURNS):
                found[0].append(seconds(one, times))
                found[1].append(seconds(other, times))
            tell(f"charge and reply of {devices} devices", *found)
            ours.close()
            replies = devices * times * TURNS
            path = place / "journal"
            again = seconds(lambda: FileJournal(path, keep=10**6).close())  # noqa: B023
            print(f"{replies:,} replies: {size(path) / replies:.0f} bytes each, opened in {again:.2f} s")
            db.close()


def ledger(sizes: tuple[int, ...] = (1_000, 10_000, 100_000)) -> None:
    calls = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "extending" / "calls_ledger.py"))["CallsLedger"]
    terms = Terms("rooms", "event", PrivacyLoss.cap("1", "1e-6"), "{}")
    body = bytes(400)
    for windows in sizes:
        with folder() as place:
            path = str(place / "ledger.db")
            for make in (SQLiteLedger, calls):
                kept = make(path, terms) if make is SQLiteLedger else make(f"{path}.calls", terms)
                for start in range(0, windows, 500):
                    keys = [WindowKey(i, i + 1) for i in range(start, start + 500)]
                    kept.charge([Request(key, LOSS, (str(key.open_ms),)) for key in keys])
                    kept.seal([SealedRelease(key, body) for key in keys])
                    kept.acknowledge(keys)
                kept.close()
            ours = seconds(lambda: SQLiteLedger(path, terms).close())  # noqa: B023
            theirs = seconds(lambda: calls(f"{path}.calls", terms).close())  # noqa: B023
            held = size(Path(path)) / windows, size(Path(f"{path}.calls")) / windows
            print(
                f"{windows:,} windows: SQLite opens in {ours:.2f} s, {held[0]:.0f} bytes a window; a file of calls in "
                f"{theirs:.2f} s, {held[1]:.0f} bytes, and holds all of it in memory"
            )


if __name__ == "__main__":
    print(machine())
    for name in sys.argv[1:] or ["spool", "device", "ledger"]:
        {"spool": spool, "device": device, "ledger": ledger}[name]()
