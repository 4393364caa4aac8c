"""Ledgers: what every kind promises, and the embedded one when its file was edited, exchanged or shared."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.embedded_ledgers import LOSS, TERMS, filled

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from fcstream.ledgers import open_ledger
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.memory import MemoryLedger
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window


class TestMemory(LedgerContract):
    durable = False

    def make(self, terms, tmp_path):
        return MemoryLedger(terms)


class TestSQLite(LedgerContract):
    def make(self, terms, tmp_path):
        return SQLiteLedger(str(tmp_path / "ledger.db"), terms)


def test_modes_of_the_file(tmp_path):
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert ledger._file.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert ledger._file.db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert ledger._file.db.execute("PRAGMA locking_mode").fetchone() == ("exclusive",)
    assert os.stat(tmp_path / "l.db").st_mode & 0o777 == 0o600
    ledger.close()
    ledger.close()


def test_verify_of_a_sound_ledger(tmp_path):
    filled(tmp_path / "l.db")
    ledger = SQLiteLedger(str(tmp_path / "l.db"))
    assert ledger.verify() == 8
    assert ledger.summary() == {"charged": 1, "sealed": 2, "acknowledged": 1, "blocks": 5}
    ledger.close()


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        ("UPDATE journal SET rho = 1 WHERE seq = 2", "row 2"),
        ("UPDATE journal SET body = x'00' WHERE seq = 6", "row 6"),
        ("DELETE FROM journal WHERE seq = 3", "row 3"),
        ("UPDATE blocks SET rho = rho - 1 + 2 * (block = '2') WHERE block IN ('2', '3')", "block 2"),
        ("UPDATE blocks SET delta = 0 WHERE block = '1'", "block 1"),
        ("UPDATE windows SET sealed_seq = 1 WHERE open_ms = 60000", "window 60000"),
        ("UPDATE streams SET stream = 'mine'", "'stream' is listed as 'mine'"),
        ("UPDATE windows SET draws = 0 WHERE open_ms = 0", "window 0"),
    ],
)
def test_edited_ledgers_are_found_out(tmp_path, edit, what):
    filled(tmp_path / "l.db")
    with sqlite3.connect(tmp_path / "l.db") as db:
        db.execute(edit)
    db.close()
    for terms in (None, TERMS):
        with pytest.raises(LedgerDamaged, match=what):
            SQLiteLedger(str(tmp_path / "l.db"), terms)


@pytest.mark.parametrize("seq", [-1, 999])
def test_rows_that_the_head_does_not_know_are_found_out(tmp_path, seq):
    filled(tmp_path / "l.db")
    with sqlite3.connect(tmp_path / "l.db") as db:
        columns = "kind, open_ms, close_ms, rho, delta, blocks, body, chain"
        db.execute(f"INSERT INTO journal SELECT stream, {seq}, {columns} FROM journal WHERE seq = 1")
    db.close()
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    with pytest.raises(LedgerDamaged, match=r"the journal has \d+ rows, its head knows of"):
        ledger.verify()
    ledger.close()


@pytest.mark.parametrize(
    ("edit", "error", "what"),
    [
        ("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)", LedgerDamaged, "head"),
        ("UPDATE streams SET salt = 'x'", LedgerDamaged, "damaged"),
        ("UPDATE streams SET head = replace(head, ':0', ':x')", LedgerDamaged, "damaged"),
        ("UPDATE journal SET body = x'00' WHERE seq = 0", LedgerDamaged, "row 0"),
        ("UPDATE file SET value = '99' WHERE key = 'schema'", LedgerDamaged, "schema"),
        ("PRAGMA user_version = 99; UPDATE file SET value = '99' WHERE key = 'schema'", LedgerMismatch, "version 99"),
        ("DELETE FROM file WHERE key = 'schema'", LedgerDamaged, "schema"),
        ("DROP TABLE journal", LedgerDamaged, "journal"),
        ("UPDATE streams SET number = 2", LedgerDamaged, "list of streams"),
        ("UPDATE journal SET stream = 2", LedgerDamaged, "row 0|head|damaged"),
        ("DELETE FROM streams", LedgerDamaged, "list of streams"),
        ("DELETE FROM blocks", LedgerDamaged, "disagree"),
        ("UPDATE windows SET state = 'charged'", LedgerDamaged, "disagree"),
        ("UPDATE windows SET state = 'bogus'", LedgerDamaged, "disagree"),
        ("UPDATE blocks SET rho = 'much'", LedgerDamaged, "damaged"),
        ("UPDATE blocks SET rho = 0", LedgerDamaged, "disagree"),
        ("DELETE FROM windows", LedgerDamaged, "disagree"),
    ],
)
def test_ledgers_that_cannot_be_opened(tmp_path, edit, error, what):
    filled(tmp_path / "l.db")
    with sqlite3.connect(tmp_path / "l.db") as db:
        db.executescript(edit)
    db.close()
    with pytest.raises(error, match=what):
        SQLiteLedger(str(tmp_path / "l.db"), TERMS)


@pytest.mark.parametrize("table", ["blocks", "windows"])
def test_rows_out_of_order_are_found(tmp_path, table):
    """SQLite would not find some of them; here they are written while the table is said to descend."""
    filled(tmp_path / "l.db")

    def said(last):
        change = f"UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = '{table}'"
        with contextlib.closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as db:
            db.execute("PRAGMA writable_schema = ON")
            db.execute(change, last)

    column = "block" if table == "blocks" else "open_ms"
    plain, turned = (f"KEY ({column}{end}" for end in ("", " DESC"))
    said((plain, turned))
    with contextlib.closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as db:
        rows = db.execute(f"SELECT * FROM {table}").fetchall()
        db.execute(f"DELETE FROM {table}")
        db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
    said((turned, plain))
    with pytest.raises(LedgerDamaged, match=f"out of order in table {table}"):
        SQLiteLedger(str(tmp_path / "l.db"), TERMS)


@pytest.mark.parametrize("content", [b"this is no database at all" * 10, b"SQLite format 3\0" + b"\xff" * 5000])
def test_files_that_are_no_ledger(tmp_path, content):
    (tmp_path / "l.db").write_bytes(content)
    with pytest.raises(LedgerDamaged, match="damaged"):
        SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert (tmp_path / "l.db").read_bytes() == content


def test_overwritten_pages_are_found(tmp_path):
    filled(tmp_path / "l.db", 300)
    size = os.path.getsize(tmp_path / "l.db")
    with open(tmp_path / "l.db", "r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 8192)
    with pytest.raises(LedgerDamaged):
        SQLiteLedger(str(tmp_path / "l.db")).verify()


def test_database_of_another_program(tmp_path):
    with sqlite3.connect(tmp_path / "l.db") as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(LedgerMismatch, match="another program"):
        SQLiteLedger(str(tmp_path / "l.db"), TERMS)


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        (Terms("stream", "stream", TERMS.capacity, TERMS.specification), "unit"),
        (Terms("stream", "event", PrivacyLoss.cap(2, 1e-6), TERMS.specification), "for ever"),
        (Terms("stream", "event", TERMS.capacity, "changed"), "another specification"),
    ],
)
def test_ledger_of_other_terms(tmp_path, terms, what):
    filled(tmp_path / "l.db")
    with pytest.raises(LedgerMismatch, match=what):
        SQLiteLedger(str(tmp_path / "l.db"), terms)
    SQLiteLedger(str(tmp_path / "l.db"), TERMS).close()  # and nothing was harmed


def test_places_that_cannot_hold_a_ledger(tmp_path):
    with pytest.raises(LedgerError, match="directory"):
        SQLiteLedger(str(tmp_path), TERMS)
    with pytest.raises(LedgerError, match="cannot be opened"):
        SQLiteLedger(str(tmp_path / "no" / "such.db"), TERMS)
    with pytest.raises(LedgerError, match="does not exist"):
        SQLiteLedger(str(tmp_path / "absent.db"))
    (tmp_path / "empty.db").touch()
    with pytest.raises(LedgerMismatch, match="empty"):
        SQLiteLedger(str(tmp_path / "empty.db"))
    with pytest.raises(ConfigError, match=r"ledger\.url"):
        open_ledger("mysql:x", TERMS)


def test_threads_share_one_ledger_through_the_engine_lock(tmp_path):
    """The connection may be used from any thread, one at a time."""
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    lock, errors = threading.Lock(), []

    def work(k):
        try:
            for i in range(20):
                with lock:
                    ledger.charge([Request(window(100 * k + i), LOSS, (f"{k}-{i}",))])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert ledger.verify() == 80
    ledger.close()


def test_an_older_copy_is_found_out(tmp_path):
    """A restored backup forgets charges; the witness beside the ledger does not."""
    path = tmp_path / "l.db"
    filled(path)
    backup = path.read_bytes()
    ledger = SQLiteLedger(str(path), TERMS)
    ledger.charge([Request(window(9), LOSS, ("9",))])
    ledger.close()
    newest = path.read_bytes()
    path.write_bytes(backup)
    with pytest.raises(LedgerDamaged, match=r"has 8 journal rows, .*-witness has seen 9: an older copy"):
        SQLiteLedger(str(path), TERMS)
    path.write_bytes(newest)
    SQLiteLedger(str(path), TERMS).close()
    path.unlink()
    with pytest.raises(LedgerDamaged, match=r"is missing, .*-witness has seen 9"):
        SQLiteLedger(str(path), TERMS)
    assert not path.exists()


def test_a_ledger_with_another_history_is_found_out(tmp_path):
    """Two copies that both went on: each has rows the other has not."""
    path = tmp_path / "l.db"
    filled(path)
    backup = path.read_bytes()
    for block in ("8", "9"):
        ledger = SQLiteLedger(str(path), TERMS)
        ledger.charge([Request(window(int(block)), LOSS, (block,))])
        ledger.charge([Request(window(int(block) + 10), LOSS, (block,))])
        ledger.close()
        if block == "8":
            rollback_guard = (tmp_path / "l.db-witness").read_bytes()
            path.write_bytes(backup)
            (tmp_path / "l.db-witness").unlink()
    (tmp_path / "l.db-witness").write_bytes(rollback_guard)
    with pytest.raises(LedgerDamaged, match="another history"):
        SQLiteLedger(str(path), TERMS)


@pytest.mark.parametrize("torn", [b"", b"garbage", b"0" * 95, b"\x00" * 224])
def test_a_torn_rollback_guard_is_ignored(tmp_path, torn):
    filled(tmp_path / "l.db")
    whole = (tmp_path / "l.db-witness").read_bytes()
    (tmp_path / "l.db-witness").write_bytes(torn)
    SQLiteLedger(str(tmp_path / "l.db"), TERMS).close()
    # One line torn, the other whole: that one is believed.
    (tmp_path / "l.db-witness").write_bytes(whole[:50] + b"#" + whole[51:])
    SQLiteLedger(str(tmp_path / "l.db"), TERMS).close()


OTHER = Terms("other", "event", PrivacyLoss.cap(2, 1e-6), "another specification")


def test_several_streams_in_one_file(tmp_path):
    path = str(tmp_path / "l.db")
    first, second = SQLiteLedger(path, TERMS), SQLiteLedger(path, OTHER)
    with pytest.raises(LedgerInUse):
        SQLiteLedger(path, OTHER)
    assert first.streams == second.streams == ["stream", "other"]
    first.charge([Request(window(0), LOSS, ("0",))])
    second.charge([Request(window(0), LOSS * 2, ("0",)), Request(window(1), LOSS, ("1",))])
    second.seal([SealedRelease(window(0), b"second's")])
    first.close()
    second.seal([SealedRelease(window(1), b"also")])  # the file stays open for the other
    assert (first.terms, second.terms) == (TERMS, OTHER)
    second.close()
    assert not os.path.exists(f"{path}-wal")
    with pytest.raises(LedgerMismatch, match="2 streams: name one of other, stream"):
        SQLiteLedger(path)
    with pytest.raises(LedgerMismatch, match="no stream 'third'"):
        SQLiteLedger(path, stream="third")
    first, second = SQLiteLedger(path, stream="stream"), SQLiteLedger(path, stream="other")
    assert (first.verify(), second.verify()) == (1, 4)
    assert (first.spent(), second.spent()) == (LOSS, LOSS * 2)
    assert first.unacknowledged() == []
    assert second.unacknowledged() == [(window(0), b"second's"), (window(1), b"also")]
    assert first.salt != second.salt
    first.close()
    second.close()


def test_a_closed_ledger_does_nothing_while_others_have_the_file_open(tmp_path):
    """Not even note its own, old state of the journal over that of whoever opened the stream after it."""
    path = str(tmp_path / "l.db")
    old, other = SQLiteLedger(path, TERMS), SQLiteLedger(path, OTHER)
    old.charge([Request(window(0), LOSS, ("0",))])
    old.seal([SealedRelease(window(0), b"answer")])
    old.close()
    new = SQLiteLedger(path, TERMS)
    new.acknowledge([window(0)])
    calls = (
        lambda: old.acknowledge([window(0)]),
        lambda: old.charge([Request(window(1), LOSS, ("1",))]),
        old.unacknowledged,
        old.spent,
    )
    for call in calls:
        with pytest.raises(LedgerError, match="is closed: open it again"):
            call()
    new.charge([Request(window(1), LOSS, ("1",))])
    new.close()
    new = SQLiteLedger(path, TERMS)
    assert new.verify() == 4
    new.close()
    other.close()


def test_a_new_name_in_a_ledger_is_logged(tmp_path, caplog):
    path = str(tmp_path / "l.db")
    for name in ("rooms", "rooms/a", "rooms/b"):
        SQLiteLedger(path, Terms(name, "event", TERMS.capacity, "rooms")).close()
    assert caplog.text == ""
    SQLiteLedger(path, Terms("room", "event", TERMS.capacity, "x")).close()
    assert "holds 'rooms', 'rooms/a', 'rooms/b'; stream 'room' is new there" in caplog.text
    caplog.clear()
    SQLiteLedger(path, Terms("room", "event", TERMS.capacity, "x")).close()
    assert caplog.text == ""


def test_streams_of_one_file_from_several_threads(tmp_path):
    path = str(tmp_path / "l.db")
    ledgers = [SQLiteLedger(path, Terms(f"s{i}", "event", TERMS.capacity, "x")) for i in range(6)]

    def work(ledger):
        for i in range(30):
            assert ledger.charge([Request(window(i), LOSS, (str(i),))])[0].charge is not None
            ledger.seal([SealedRelease(window(i), ledger.terms.stream.encode())])
            ledger.acknowledge([window(i)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, ledgers))
    for ledger in ledgers:
        assert ledger.verify() == 90
        assert set(ledger.releases()) == {ledger.terms.stream.encode()}
        ledger.close()


def test_an_older_copy_without_a_stream_is_found_out(tmp_path):
    path = tmp_path / "l.db"
    filled(path)
    older, rollback_guard = path.read_bytes(), (tmp_path / "l.db-witness").read_bytes()
    assert len(rollback_guard) <= 224
    ledger = SQLiteLedger(str(path), OTHER)
    ledger.charge([Request(window(0), LOSS, ("0",))])
    ledger.close()
    assert (tmp_path / "l.db-witness").read_bytes()[: len(rollback_guard)] == rollback_guard  # each stream has its own
    path.write_bytes(older)
    SQLiteLedger(str(path), TERMS).close()  # its stream lost nothing
    with pytest.raises(LedgerDamaged, match=r"lacks a stream that .*witness has seen 1 journal rows of"):
        SQLiteLedger(str(path), OTHER)


@pytest.mark.slow
def test_a_crash_while_a_stream_is_added_leaves_it_whole_or_absent(tmp_path):
    """Killed before and after every statement that adds the second stream."""
    code = """
import os, sys
import sqlite3
from fcstream.ledgers import files
from fcstream.ledgers.sqlite import ledger
from fcstream.testing import LedgerContract
from fcstream.accounting.losses import PrivacyLoss
left = int(sys.argv[2])
class Connection(sqlite3.Connection):
    def execute(self, *values):
        count()
        return super().execute(*values)
    def executemany(self, *values):
        count()
        return super().executemany(*values)
def count():
    global left
    left -= 1
    if left == 0:
        os._exit(9)
connect = sqlite3.connect
files.sqlite3.connect = lambda *values, **named: connect(*values, factory=Connection, **named)
ledger.SQLiteLedger(sys.argv[1], ledger.Terms("other", "event", PrivacyLoss.cap(2, 1e-6), "another specification"))
os._exit(7)
"""
    for left in (2, 20, 23, 25, 27, 29, 31, 99):
        path = tmp_path / f"l{left}.db"
        filled(path)
        done = subprocess.run([sys.executable, "-c", code, str(path), str(left)])
        assert done.returncode == (7 if left == 99 else 9)
        ledger = SQLiteLedger(str(path), TERMS)
        assert ledger.verify() == 8
        other = SQLiteLedger(str(path), OTHER)
        assert other.charge([Request(window(0), LOSS, ("0",))])[0].charge is not None
        assert (ledger.verify(), other.verify()) == (8, 1)
        ledger.close()
        other.close()
