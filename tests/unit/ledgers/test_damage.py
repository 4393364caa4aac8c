"""Ledgers that a disk, a bug or a hand has changed: whatever is opened is what was written, or it is damaged, exit 4.

The files are seeded; 10,000 of them, or as many as FCSTREAM_FUZZ_SECONDS allow."""

import contextlib
import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from support.filled_ledgers import LOSS, STREAMS, fill

from fcstream.cli import main
from fcstream.errors import LedgerDamaged
from fcstream.ledgers.base import Request, SealedRelease
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.ledgers.sqlite.snapshot import Snapshot
from fcstream.testing import window

SECONDS = float(os.environ.get("FCSTREAM_FUZZ_SECONDS", "6"))
CASES = 10_000
CHILD = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # a program of its own finds what it imports


def told(ledger):
    """All that a run goes by."""
    blocks = ["x", "total", "user", *map(str, range(14))]
    return (
        ledger.terms,
        ledger.salt,
        [ledger.spent(block) for block in blocks],
        ledger.spent(),
        ledger.unacknowledged(),
        ledger.last_sealed(),
        ledger.setting("start"),
        ledger.charges(),
        ledger.releases(),
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Files of a ledger that was closed, those of one whose process was killed, and what both tell."""
    closed, killed = tmp_path_factory.mktemp("closed"), tmp_path_factory.mktemp("killed")
    for terms in STREAMS:
        ledger = SQLiteLedger(str(closed / "l.db"), terms)
        fill(ledger)
        ledger.close()
    code = """
import os, sys
from support.filled_ledgers import STREAMS, fill
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
ledgers = [SQLiteLedger(sys.argv[1], terms) for terms in STREAMS]
for ledger in ledgers:
    fill(ledger)
os._exit(9)
"""
    done = subprocess.run([sys.executable, "-c", code, str(killed / "l.db")], env=CHILD)
    assert done.returncode == 9
    copy = tmp_path_factory.mktemp("copy")
    cases = []
    for folder in (closed, killed):
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        cases.append((folder, {terms.stream: look(str(copy / "l.db"), terms) for terms in STREAMS}))
        shutil.rmtree(copy)
    return cases


def look(path, terms):
    ledger = SQLiteLedger(path, terms)
    try:
        return told(ledger)
    finally:
        ledger.close()


def mutate(draw, data):
    """A file that was changed."""
    data = bytearray(data)
    pages = max(1, len(data) // 4096)
    kind = draw.choice(["bit", "bit", "bit", "bytes", "cut", "page", "swap", "zero", "insert", "noise", "tail"])
    at = draw.randrange(len(data) or 1)
    if kind == "bit":
        for _ in range(draw.choice([1, 1, 1, 3, 20])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "bytes":
        data[at : at + draw.choice([1, 4, 40])] = draw.randbytes(draw.choice([1, 4, 40]))
    elif kind == "cut":
        del data[draw.choice([at, at // 4096 * 4096, at // 512 * 512]) :]
    elif kind == "page":
        a, b = draw.randrange(pages), draw.randrange(pages)
        data[4096 * a : 4096 * a + 4096] = data[4096 * b : 4096 * b + 4096]
    elif kind == "swap":
        a, b = sorted((draw.randrange(pages), draw.randrange(pages)))
        one, two = data[4096 * a : 4096 * a + 4096], data[4096 * b : 4096 * b + 4096]
        if len(one) == len(two):
            data[4096 * a : 4096 * a + 4096], data[4096 * b : 4096 * b + 4096] = two, one
    elif kind == "zero":
        size = draw.choice([16, 512, 4096])
        data[at // size * size : at // size * size + size] = bytes(size)
    elif kind == "insert":
        data[at:at] = draw.randbytes(draw.choice([1, 16, 4096]))
    elif kind == "noise":
        data = bytearray(draw.randbytes(draw.choice([0, 1, 20, 100, 5000])))
    else:
        data += draw.randbytes(draw.choice([1, 100, 4096]))
    return bytes(data)


@pytest.mark.slow
def test_a_changed_file_is_what_it_was_or_damaged(tmp_path, sound):
    end, damaged, same = time.monotonic() + SECONDS, 0, 0
    for case in range(CASES):
        if time.monotonic() > end:
            break
        draw = random.Random(case)
        source, right = sound[draw.random() < 0.3]
        folder = tmp_path / "l"
        shutil.copytree(source, folder)
        part = draw.choice(
            sorted(path.name for path in folder.iterdir() if draw.random() < 0.9 or path.suffix == ".db")
        )
        target = folder / part if "witness" not in part else folder / "l.db"
        target.write_bytes(mutate(draw, target.read_bytes()))
        terms = draw.choice(STREAMS)
        if draw.random() < 0.1:
            asked = CliRunner().invoke(main, ["budget", "verify", str(folder / "l.db")])
            assert asked.exit_code in (0, 4), (case, asked.output)
        try:
            if draw.random() < 0.2:
                Snapshot(str(folder / "l.db"), terms.stream).verify()
            found = look(str(folder / "l.db"), terms)
        except LedgerDamaged:
            damaged += 1
        else:
            assert found == right[terms.stream], case
            same += 1
        shutil.rmtree(folder)
    print(f"{damaged} damaged, {same} unharmed of {case + 1}")
    assert damaged > 0


@pytest.mark.slow
def test_every_flipped_value_in_a_file_is_found(tmp_path):
    """Of every column of a row of every table: a bit of a number, a character of a text, a byte of a body."""
    path = str(tmp_path / "l.db")
    for terms in STREAMS:
        ledger = SQLiteLedger(path, terms)
        fill(ledger, 4)
        ledger.close()
    whole, flips = (tmp_path / "l.db").read_bytes(), 0
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        described = {table: db.execute(f"PRAGMA table_info({table})").fetchall() for table in tables}
        columns = {table: [row[1] for row in described[table]] for table in tables}
        sizes = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    db.close()
    draw = random.Random(1)
    for table in tables:
        for column, _ in itertools.product(columns[table], range(6)):
            (tmp_path / "l.db").write_bytes(whole)
            at = draw.randrange(max(1, sizes[table]))
            keys = [row[1] for row in described[table] if row[5]]  # of which the primary key consists
            with contextlib.closing(sqlite3.connect(path)) as db:
                query = f"SELECT {', '.join(keys)}, {column} FROM {table} LIMIT 1 OFFSET {at}"
                found = db.execute(query).fetchone()
                if found is None:
                    continue
                where = " AND ".join(f"{key} = ?" for key in keys)
                values = flipped(draw, found[-1]), *found[:-1]
                if db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {where}", values).rowcount == 0:
                    continue  # such a row is there
                db.commit()
                flips += 1
            with pytest.raises(LedgerDamaged) as refused:  # noqa: PT012
                for terms in STREAMS:
                    look(path, terms)
            assert refused.value.exit_code == 4
            (tmp_path / "l.db-wal").unlink(missing_ok=True)
    assert flips > 150


def flipped(draw, value):
    if value is None:
        return 1
    if isinstance(value, int):
        return value ^ 1 << draw.randrange(1, 40)
    at = draw.randrange(len(value) or 1)
    if isinstance(value, str):
        return value[:at] + ("#" if value[at : at + 1] != "#" else "+") + value[at + 1 :]
    return value[:at] + bytes([(value[at] if value else 0) ^ 1 << draw.randrange(8)]) + value[at + 1 :]


def test_every_flipped_value_on_a_server_is_found(postgres):
    ledgers = [postgres.open(terms) for terms in STREAMS]
    for ledger in ledgers:
        fill(ledger, 4)
        ledger.close()
    listed = postgres.sql(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name NOT IN ('leases', 'meta') AND column_name <> 'attempt'",
        postgres.schema,
    )
    assert len(listed) > 40
    flips = {
        "bigint": "coalesce({c} # 64, 7)",
        "integer": "{c} # 16384",
        "text": "overlay({c} PLACING '#' FROM greatest(length({c}) / 2, 1))",
        "bytea": "set_byte({c} || '\\x00', 0, get_byte({c} || '\\x00', 0) # 8)",
        "boolean": "NOT {c}",
    }
    for table, column, kind in listed:
        change = flips[kind].format(c=column)
        postgres.sql(f"CREATE TABLE {{s}}.kept AS TABLE {{s}}.{table}")
        which = "WHERE ctid = (SELECT min(ctid) FROM {s}.%s WHERE stream <> 'rooms/b')" % table  # noqa: UP031
        postgres.sql(f"UPDATE {{s}}.{table} SET {column} = {change} {which}")
        with pytest.raises(LedgerDamaged):  # noqa: PT012
            for terms in STREAMS:
                ledger = postgres.open(terms)
                try:
                    told(ledger)
                finally:
                    ledger.close()
        postgres.sql(f"DELETE FROM {{s}}.{table}")
        postgres.sql(f"INSERT INTO {{s}}.{table} TABLE {{s}}.kept")
        postgres.sql("DROP TABLE {s}.kept")
    for terms in STREAMS:
        ledger = postgres.open(terms)
        ledger.verify()
        ledger.close()


@pytest.mark.parametrize("edit", ["rho = rho - 1", "draws = draws - 1", "blocks = ''"])
def test_a_row_that_changes_while_a_server_is_used_is_found_when_it_is_read(postgres, edit):
    terms = STREAMS[0]
    ledger = postgres.open(terms)
    fill(ledger, 4)
    postgres.sql(f"UPDATE {{s}}.windows SET {edit} WHERE state = 'charged'")
    with pytest.raises(LedgerDamaged, match="window 240000 disagrees with the mark"):
        ledger.charge([Request(window(4), LOSS, ("x",))])
    postgres.sql("UPDATE {s}.blocks SET rho = 0 WHERE block = 'x'")
    with pytest.raises(LedgerDamaged, match="block x disagrees"):
        ledger.charge([Request(window(9), LOSS, ("x",))])
    postgres.sql("UPDATE {s}.streams SET capacity_rho = capacity_rho * 2")
    with pytest.raises(LedgerDamaged, match="head disagrees"):
        ledger.seal([SealedRelease(window(4), b"answer")])
    ledger.close()


@pytest.mark.slow
def test_a_linked_file_whose_process_was_killed_is_opened(tmp_path):
    """SQLite keeps the log beside the file, not beside the link."""
    (tmp_path / "disk").mkdir()
    link = tmp_path / "l.db"
    link.symlink_to(tmp_path / "disk" / "real.db")
    code = """
import os, sys
from support.filled_ledgers import STREAMS, fill
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
ledger = SQLiteLedger(sys.argv[1], STREAMS[0])
fill(ledger)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, str(link)], env=CHILD)
    assert done.returncode == -9
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == [
        *("real.db", "real.db-lock", "real.db-wal", "real.db-witness")
    ]
    reader = Snapshot(str(link), "rooms/a")
    assert reader.verify() == 35
    reader.close()
    ledger = SQLiteLedger(str(link), STREAMS[0])
    assert ledger.spent("x") == LOSS
    ledger.close()
    (tmp_path / "disk" / "real.db").unlink()
    with pytest.raises(LedgerDamaged, match=r"real\.db is missing|l\.db is missing"):
        SQLiteLedger(str(link), STREAMS[0])
