"""Brings a SQLite file of an earlier schema to the one of now.

In schema 2 the rows of one stream lay side by side, in the same columns. In schema 1 each stream had tables of its own,
without the column of its number; the names of the second one's tables end in ``_2``, and so on.
"""

from __future__ import annotations

import sqlite3

from ...errors import LedgerDamaged
from ..files import LedgerFile
from .tables import TABLES

SCHEMA_VERSION = 3
_PARTS = ("journal", "windows", "blocks", "users", "settings", "states")


def convert(file: LedgerFile, path: str, version: int) -> None:
    """Move all rows of all streams into the tables of now, as they are; the caller's transaction is open.

    Rows are not looked at here: what was damaged is found by the checks that follow, of which none is left out.

    Raises
    ------
    LedgerDamaged
    """
    if version == 1:
        _share_tables(file.db, path)
    else:
        _order_by_time(file.db)


def _order_by_time(db: sqlite3.Connection) -> None:
    """Move the rows of schema 2."""
    db.execute("DROP INDEX unacknowledged")
    parts = ("streams", *_PARTS)
    for part in parts:
        db.execute(f"ALTER TABLE {part} RENAME TO old_{part}")
    _make_tables(db)
    for part in parts:
        db.execute(f"INSERT INTO {part} SELECT * FROM old_{part}")
        db.execute(f"DROP TABLE old_{part}")


def _share_tables(db: sqlite3.Connection, path: str) -> None:
    """Move the rows of schema 1."""
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    listed = db.execute("SELECT number, stream, retired FROM streams ORDER BY number").fetchall()
    endings = ["" if place == 1 else f"_{place}" for place in range(1, len(listed) + 1)]
    journals = {name for name in there if name.startswith("journal")}
    if [number for number, _, _ in listed] != [*range(1, len(listed) + 1)] or journals != {
        f"journal{ending}" for ending in endings
    }:
        raise LedgerDamaged(f"{path} is damaged: its list of streams disagrees with its tables")
    db.execute("DROP TABLE streams")
    moved: list[tuple[int, str, str]] = []
    for (number, _, _), ending in zip(listed, endings, strict=True):
        db.execute(f"DROP INDEX unacknowledged{ending}")
        for part in ("meta", *_PARTS):
            if part != "states" or f"states{ending}" in there:  # that table was made at its first use
                old = f"old_{part}_{number}"
                db.execute(f"ALTER TABLE {part}{ending} RENAME TO {old}")
                moved.append((number, part, old))
    _make_tables(db)
    for number, stream, retired in listed:
        meta = dict(db.execute(f"SELECT key, value FROM old_meta_{number}"))
        for key in ("salt", "head"):
            if key not in meta:
                raise LedgerDamaged(f"{path} is damaged: meta row {key!r} is missing")
        db.execute("INSERT INTO streams VALUES (?, ?, ?, ?, ?)", (number, stream, retired, meta["salt"], meta["head"]))
    for number, part, old in moved:
        if part != "meta":
            db.execute(f"INSERT INTO {part} SELECT {number}, * FROM {old}")
        db.execute(f"DROP TABLE {old}")


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in TABLES.split(";"):
        db.execute(statement)
