"""Brings a SQLite file of schema 1 to the schema of now.

There each stream had tables of its own, with the columns of now but for the stream's number. The names of the second
one's tables end in ``_2``, and so on.
"""

from __future__ import annotations

from ...errors import LedgerDamaged
from ..files import LedgerFile
from .tables import TABLES

_PARTS = ("journal", "windows", "blocks", "users", "settings", "states")


def convert(file: LedgerFile, path: str) -> None:
    """Move all rows of all streams into the tables that they share, as they are; the caller's transaction is open.

    Rows are not looked at here: what was damaged is found by the checks that follow, of which none is left out.

    Raises
    ------
    LedgerDamaged
    """
    db = file.db
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
    for statement in TABLES.split(";"):
        db.execute(statement)
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
