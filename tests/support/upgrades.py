"""Ledgers that earlier versions have written, kept as text."""

import contextlib
import sqlite3

from . import REPOSITORY

KEPT = REPOSITORY / "tests" / "support" / "ledgers"
VERSIONS = sorted(path.name for path in KEPT.iterdir())
JOBS = ("event", "keys", "stream", "user")


def restore_sqlite(text, path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(text)
        db.execute("PRAGMA journal_mode = WAL")


def restore_postgres(text, db, schema):
    db.execute("BEGIN; SET LOCAL check_function_bodies = false; " + text.replace("{s}", schema) + "; COMMIT")
