"""Ledgers that a released version has written, kept as text, and the streams that they belong to.

`python -m support.upgrades VERSION` (in the folder of the tests) writes a folder for the version that is checked out;
it is done once for each version whose ledgers differ, and such a folder is never changed afterwards.
"""

import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy

from . import REPOSITORY
from .helpers import rows, sample

KEPT = REPOSITORY / "tests" / "support" / "ledgers"
WINDOW_MS, N = 10_000, 200
JOBS = {  # the sections that differ from a sample's; each has something in other tables of a ledger
    "event": {"window": {"slide": "5s"}, "budget": {"total_rho": 30.0, "total_delta": 1e-6}},
    "stream": {"stream": {"unit": "stream"}, "release": {"method": "tracking", "size_hint": 150}},
    "user": {
        "stream": {"unit": "user", "user": "id", "per_user": "mean"},
        "window": {"end": "1970-01-01T00:01:00Z"},
        "release": {"size_hint": 100},
        "budget": {"rho": 8.0, "savings": "even"},
    },
    "keys": {"stream": {"key": "site", "keys": ["a", "b"]}, "release": {"size_hint": 90}},
}


def config_of(job, url):
    window = {"clock": "broker", "end": None} | JOBS[job].get("window", {})
    stream = {"name": f"{job}s"} | JOBS[job].get("stream", {})
    return sample(**JOBS[job] | {"stream": stream, "window": window, "ledger": {"url": url}})


def open_engine(job, url):
    cls = KeyedEngine if job == "keys" else Engine
    return cls(config_of(job, url), noise=Noise(SeededEntropy(7)))


def push(engine, job, window):
    """The records of one window, some of them twice as far."""
    times = WINDOW_MS * window + np.arange(N) * 40
    points = rows(N, seed=window)
    names = [f"{i % 150}" for i in range(N)] if job == "user" else None
    arrivals, positions = times + 1, N * window + np.arange(N)
    if job == "keys":
        keys = ["ab"[i % 2] for i in range(N)]
        return engine.push(times, points, keys, arrival_ms=arrivals, positions=positions)
    return engine.push(times, points, names, arrival_ms=arrivals, positions=positions)


def fill(job, url):
    """Two windows answered and published, a third one answered only; returns all releases."""
    engine = open_engine(job, url)
    engine.advance(0)
    found = []
    for window in range(3):
        engine.acknowledge()
        push(engine, job, window)
        found += engine.advance(WINDOW_MS * (window + 1) + 1)
    engine.abort()
    return found


def dump_sqlite(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        facts = [(name, db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")]
        return "\n".join([*(f"PRAGMA {name} = {value};" for name, value in facts), *db.iterdump()]) + "\n"


def restore_sqlite(text, path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(text)
        db.execute("PRAGMA journal_mode = WAL")


def dump_postgres(url, schema):
    """The schema's tables and functions as statements; the schema is called {s}."""
    command = [shutil.which("pg_dump"), "--inserts", "--no-owner", f"--schema={schema}", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = [
        line for line in text.splitlines() if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog"))
    ]
    return "\n".join(kept).replace(schema, "{s}") + "\n"


def restore_postgres(text, db, schema):
    db.execute("BEGIN; SET LOCAL check_function_bodies = false; " + text.replace("{s}", schema) + "; COMMIT")


def schema_lines(text):
    """What a dump says about tables and functions, without their content."""
    kept = re.sub(r"^INSERT INTO .*?;$", "", text, flags=re.M | re.S)
    return [line for line in kept.splitlines() if line]


def write(version, postgres):
    """Fill the folder of a version that has none."""
    folder = KEPT / version
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        for job in JOBS:
            path = Path(scratch) / f"{job}.db"
            found = fill(job, f"sqlite:{path}")
            (folder / f"{job}.sql").write_text(dump_sqlite(path))
            (folder / f"{job}.jsonl").write_bytes(b"".join(release.to_bytes() + b"\n" for release in found))
    for job in JOBS:
        fill(job, postgres.url)
    (folder / "postgresql.sql").write_text(dump_postgres(postgres.server, postgres.schema))
    postgres.sql("DROP SCHEMA {s} CASCADE")


if __name__ == "__main__":
    from .postgres import URL, PostgresSchema

    write(sys.argv[1], PostgresSchema(URL))
