"""Files of earlier schemas: moved whole or not at all, and no less checked.

In schema 1 each stream had tables of its own, in schema 2 the rows of a stream lay side by side.
"""

import contextlib
import os
import random
import sqlite3

import pytest
from support.upgrades import JOBS, KEPT, config_of, open_engine, restore_sqlite

from fcstream.config import Config
from fcstream.errors import LedgerDamaged
from fcstream.ledgers import files, open_reader
from fcstream.ledgers.rollback_guard import RollbackGuard
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

OLD = ("0.1.0", "0.1.0-schema-2")


def restored(version, job, path):
    restore_sqlite((KEPT / version / f"{job}.sql").read_text(), path)
    return path.read_bytes()


def streams(job):
    return [f"{job}s/{key}" for key in "ab"] if job == "keys" else [f"{job}s"]


def told(path, job):
    found = []
    for stream in streams(job):
        with contextlib.closing(open_reader(f"sqlite:{path}", stream)) as reader:
            found.append((reader.verify(), reader.terms, reader.spent(), reader.rows(), reader.summary()))
    return found


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("version", OLD)
def test_who_looks_changes_nothing(version, job, tmp_path):
    whole = restored(version, job, tmp_path / "l.db")
    before = told(tmp_path / "l.db", job)
    assert (tmp_path / "l.db").read_bytes() == whole
    open_engine(job, f"sqlite:{tmp_path / 'l.db'}").abort()
    assert (tmp_path / "l.db").read_bytes() != whole
    assert told(tmp_path / "l.db", job) == before
    with contextlib.closing(sqlite3.connect(tmp_path / "l.db")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"file", "streams", "journal", "windows", "blocks", "users", "settings", "states"}


class Connection(sqlite3.Connection):
    """Ends its process, as if killed, before one of its statements."""

    left = 0

    def count(self):
        Connection.left -= 1
        if Connection.left == 0:
            os._exit(9)

    def execute(self, *values):
        self.count()
        return super().execute(*values)

    def executemany(self, *values):
        self.count()
        return super().executemany(*values)


def opened_until(path, left):
    """Open the ledger in a process of its own that ends before a statement; returns how it ended."""
    child = os.fork()
    if child == 0:
        code, connect, Connection.left = 1, sqlite3.connect, left
        files.sqlite3.connect = lambda *values, **named: connect(*values, factory=Connection, **named)
        try:
            SQLiteLedger(str(path), Config.from_mapping(config_of("keys", f"sqlite:{path}")).job.part("a").terms)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("version", OLD)
def test_a_process_that_is_killed_has_moved_all_or_nothing(version, tmp_path):
    path, left, code = tmp_path / "l.db", 0, 9
    whole = restored(version, "keys", path)
    right = told(path, "keys")
    while code == 9:
        left += 4  # statements; each takes a process
        for part in ("", "-wal", "-shm", "-witness"):
            (tmp_path / f"l.db{part}").unlink(missing_ok=True)
        path.write_bytes(whole)
        code = opened_until(path, left)
        assert told(path, "keys") == right
    assert code == 0
    assert left > 50


@pytest.mark.parametrize("version", OLD)
def test_a_changed_value_is_found(version, tmp_path):
    """Of every column of every table of both streams; and what is refused stays as it was."""
    path = tmp_path / "l.db"
    whole, draw, flips = restored(version, "keys", path), random.Random(1), 0
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        described = {table: db.execute(f"PRAGMA table_info({table})").fetchall() for table in tables}
        sizes = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    for table in tables:
        keys = [row[1] for row in described[table] if row[5]]
        for column in (row[1] for row in described[table] if sizes[table]):
            path.write_bytes(whole)
            with contextlib.closing(sqlite3.connect(path)) as db:
                query = f"SELECT {', '.join(keys)}, {column} FROM {table} LIMIT 1 OFFSET {draw.randrange(sizes[table])}"
                *place, value = db.execute(query).fetchone()
                where = " AND ".join(f"{key} = ?" for key in keys)
                db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (changed(value), *place))
                db.commit()
            edited = path.read_bytes()
            flips += 1
            with pytest.raises(LedgerDamaged):  # noqa: PT012
                for stream in streams("keys"):
                    open_reader(f"sqlite:{path}", stream).close()
            assert path.read_bytes() == edited
    assert flips > 30


def changed(value):
    if value is None or isinstance(value, int):
        return (value or 0) + 64
    return value + "#" if isinstance(value, str) else value + b"#"


@pytest.mark.parametrize("edit", ["DROP TABLE journal_2", "DELETE FROM streams WHERE number = 2", "DROP TABLE users_2"])
def test_a_lost_stream_is_found(tmp_path, edit):
    restored("0.1.0", "keys", tmp_path / "l.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "l.db")) as db:
        db.executescript(edit)
    with pytest.raises(LedgerDamaged, match="is damaged"):
        open_reader(f"sqlite:{tmp_path / 'l.db'}", "keyss/a")


def test_the_guards_of_old_and_new_files_count(tmp_path):
    """Each stream had a guard file; an older copy is noticed by them, and later by the one that all share."""
    path = tmp_path / "l.db"
    whole = restored("0.1.0", "keys", path)
    with contextlib.closing(open_reader(f"sqlite:{path}", "keyss/b")) as reader:
        last, chain = reader._tables.head.seq, reader._tables.head.chain
    old = RollbackGuard(f"{path}-witness_2")
    for seq in (last + 1, last):
        (tmp_path / "l.db-witness_2").unlink(missing_ok=True)
        old.note(seq, chain)
        old.close()
        if seq > last:
            with pytest.raises(LedgerDamaged, match="an older copy"):
                open_reader(f"sqlite:{path}", "keyss/a")
    engine = open_engine("keys", f"sqlite:{path}")
    engine.parts[1].ledger.keep_setting("more", "1")
    engine.abort()
    path.write_bytes(whole)
    with pytest.raises(LedgerDamaged, match=r"journal rows, .*witness has seen .*an older copy"):
        open_engine("keys", f"sqlite:{path}")
