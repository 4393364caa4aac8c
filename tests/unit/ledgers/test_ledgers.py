import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import ConfigError, LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from fcstream.ledgers import open_ledger
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.files import LedgerFile
from fcstream.ledgers.memory import MemoryLedger
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window

TERMS = LedgerContract.terms
LOSS = LedgerContract.loss


class TestMemory(LedgerContract):
    durable = False

    def make(self, terms, tmp_path):
        return MemoryLedger(terms)


class TestSQLite(LedgerContract):
    def make(self, terms, tmp_path):
        return SQLiteLedger(str(tmp_path / "ledger.db"), terms)


def filled(path, n=4):
    ledger = SQLiteLedger(str(path), TERMS)
    ledger.charge([Request(window(i), LOSS, (str(i), str(i + 1))) for i in range(n)])
    ledger.seal([SealedRelease(window(i), b"answer") for i in range(n - 1)])
    ledger.acknowledge([window(0)])
    ledger.close()


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
    assert ledger.summary() == {"charged": 1, "sealed": 2, "acknowledged": 1, "blocks": 5, "users": 0}
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


@pytest.mark.parametrize(
    ("edit", "error", "what"),
    [
        ("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)", LedgerDamaged, "head"),
        ("DELETE FROM meta WHERE key = 'salt'", LedgerDamaged, "salt"),
        ("UPDATE meta SET value = replace(value, ':0', ':x') WHERE key = 'head'", LedgerDamaged, "damaged"),
        ("UPDATE journal SET body = x'00' WHERE seq = 0", LedgerDamaged, "row 0"),
        ("UPDATE file SET value = '99' WHERE key = 'schema'", LedgerDamaged, "schema"),
        ("PRAGMA user_version = 99; UPDATE file SET value = '99' WHERE key = 'schema'", LedgerMismatch, "version 99"),
        ("DELETE FROM file WHERE key = 'schema'", LedgerDamaged, "schema"),
        ("DROP TABLE journal", LedgerDamaged, "list of streams"),
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


def test_one_engine_at_a_time(tmp_path):
    path = str(tmp_path / "l.db")
    ledger = SQLiteLedger(path, TERMS)
    with pytest.raises(LedgerInUse, match="in use"):
        SQLiteLedger(path, TERMS)
    code = (
        "import sys\nfrom fcstream.errors import LedgerInUse\nfrom fcstream.ledgers.sqlite.ledger import SQLiteLedger\n"
        "try:\n    SQLiteLedger(sys.argv[1])\nexcept LedgerInUse:\n    print('in use')"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "in use"
    ledger.close()
    SQLiteLedger(path, TERMS).close()


def test_a_fork_may_not_use_its_parents_ledger(tmp_path):
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    pid = os.fork()
    if pid == 0:
        try:
            ledger.charge([Request(window(0), LOSS, ("b",))])
        except LedgerError as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert ledger.charge([Request(window(0), LOSS, ("b",))])[0].charge is not None
    ledger.close()


CHILD = """
import os, signal, sys
from fcstream.ledgers.base import Request
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window
ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)
ledger.charge([Request(window(0), LedgerContract.loss, ("0",))])
if sys.argv[2] == "fork":
    pid = os.fork()
    if pid == 0:
        del ledger  # an ordinary end: finalizers run
        sys.exit(0)
    os.waitpid(pid, 0)
ledger.charge([Request(window(1), LedgerContract.loss, ("1",))])
os.kill(os.getpid(), signal.SIGKILL)
"""


def crashed(path, how):
    done = subprocess.run([sys.executable, "-c", CHILD, str(path), how], capture_output=True)
    assert done.returncode == -9, done.stderr


def test_a_child_that_drops_the_ledger_takes_nothing_from_its_parent(tmp_path):
    """A child's finalizer used to delete the write-ahead log; what the parent charged after that was gone."""
    crashed(tmp_path / "l.db", "fork")
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert ledger.summary()["charged"] == 2
    assert ledger.verify() == 2
    ledger.close()


def test_a_ledger_without_its_log_is_refused(tmp_path):
    """After a crash the charges are in the log: the main file alone must not open as if nothing had been spent."""
    crashed(tmp_path / "l.db", "")
    data = (tmp_path / "l.db").read_bytes()
    (tmp_path / "alone.db").write_bytes(data)
    with pytest.raises(LedgerDamaged, match="-wal is missing"):
        SQLiteLedger(str(tmp_path / "alone.db"), TERMS)
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)  # with the log all is there
    assert ledger.summary()["charged"] == 2
    ledger.close()
    assert not (tmp_path / "l.db-wal").exists()
    SQLiteLedger(str(tmp_path / "l.db"), TERMS).close()


def test_a_refused_opening_after_a_crash_harms_nothing(tmp_path):
    """Wrong terms, then the right ones: the first opening merged the log and must have said so."""
    crashed(tmp_path / "l.db", "")
    with pytest.raises(LedgerMismatch):
        SQLiteLedger(str(tmp_path / "l.db"), Terms("stream", "event", TERMS.capacity, "changed"))
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert ledger.verify() == 2
    ledger.close()


def test_a_ledger_that_is_dropped_or_left_open_can_be_opened_again(tmp_path):
    path = str(tmp_path / "l.db")
    SQLiteLedger(path, TERMS).charge([Request(window(0), LOSS, ("0",))])  # dropped, never closed
    code = (
        "import sys\nfrom fcstream.ledgers.base import Request\n"
        "from fcstream.ledgers.sqlite.ledger import SQLiteLedger\n"
        "from fcstream.testing import LedgerContract, window\n"
        "ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)\n"
        "ledger.charge([Request(window(1), LedgerContract.loss, ('1',))])\nkeep = [ledger]\nkeep.append(keep)\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)  # left open at the interpreter's end
    ledger = SQLiteLedger(path, TERMS)
    assert ledger.verify() == 2
    ledger.close()


def test_an_interrupted_opening_harms_nothing(tmp_path, monkeypatch):
    path = str(tmp_path / "l.db")
    filled(path)

    def interrupt(self, log, real=LedgerFile.mark):
        real(self, log)
        if log == "open":
            raise KeyboardInterrupt

    monkeypatch.setattr(LedgerFile, "mark", interrupt)
    with pytest.raises(KeyboardInterrupt):
        SQLiteLedger(path, TERMS)
    monkeypatch.undo()
    ledger = SQLiteLedger(path, TERMS)
    assert ledger.verify() == 8
    ledger.close()


def test_a_full_disk_while_closing_keeps_the_log(tmp_path):
    code = """
import os, resource, signal, sys
from fcstream.ledgers.base import Request
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)
ledger.charge([Request(window(i), LedgerContract.loss, (str(i),)) for i in range(40)])
size = os.path.getsize(sys.argv[1] + "-wal")
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
ledger.close()
"""
    path = str(tmp_path / "l.db")
    subprocess.run([sys.executable, "-c", code, path], check=True)
    ledger = SQLiteLedger(path, TERMS)
    assert ledger.summary()["charged"] == 40
    ledger.close()


def test_a_full_disk_while_closing_does_not_lock_the_process_out(tmp_path):
    """What runs for months opens its ledger again when there is room."""
    code = """
import os, resource, signal, sys
from fcstream.errors import LedgerError, LedgerInUse
from fcstream.ledgers.base import Request
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)
ledger.charge([Request(window(i), LedgerContract.loss, (str(i),)) for i in range(40)])
size = os.path.getsize(sys.argv[1] + "-wal")
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
ledger.close()
for _ in range(3):
    try:
        SQLiteLedger(sys.argv[1], LedgerContract.terms)
    except LedgerError as error:
        assert not isinstance(error, LedgerInUse), error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)
assert ledger.verify() == 40
ledger.charge([Request(window(40), LedgerContract.loss, ("40",))])
ledger.close()
assert not os.path.exists(sys.argv[1] + "-wal")
"""
    path = str(tmp_path / "l.db")
    subprocess.run([sys.executable, "-c", code, path], check=True)
    ledger = SQLiteLedger(path, TERMS)
    assert ledger.verify() == 41
    ledger.close()


HOLDER = """
import sys, time
from fcstream.ledgers.base import Request
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window
ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)
ledger.charge([Request(window(0), LedgerContract.loss, ("0",))])
print("up", flush=True)
time.sleep(60)
"""


def test_being_refused_leaks_nothing_and_merges_nobodys_log(tmp_path, monkeypatch):
    path = str(tmp_path / "l.db")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE)
    holder.stdout.readline()
    before = os.listdir("/proc/self/fd")
    for _ in range(2):
        with pytest.raises(LedgerInUse):
            SQLiteLedger(path, TERMS)
    assert len(os.listdir("/proc/self/fd")) == len(before)

    def prepare(self, path, real=LedgerFile._prepare):
        try:
            real(self, path)
        finally:
            holder.kill()  # between the refusal and the closing of what was refused
            holder.communicate()

    monkeypatch.setattr(LedgerFile, "_prepare", prepare)
    with pytest.raises(LedgerInUse):
        SQLiteLedger(path, TERMS)
    monkeypatch.undo()
    assert os.path.getsize(f"{path}-wal") > 0
    ledger = SQLiteLedger(path, TERMS)
    assert ledger.verify() == 1
    ledger.close()


def test_a_daemon_thread_in_mid_charge_at_the_end(tmp_path):
    code = """
import itertools, sys, threading, time
from fcstream.ledgers.base import Request
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window
ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)
begun = threading.Event()
def work():
    for i in itertools.count():
        ledger.charge([Request(window(i), LedgerContract.loss, (str(i),))])
        begun.set()
threading.Thread(target=work, daemon=True).start()
begun.wait(60)
time.sleep(0.1)
"""
    path = str(tmp_path / "l.db")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")  # a connection that was closed under a statement crashed
    ledger = SQLiteLedger(path, TERMS)
    assert ledger.verify() > 0
    ledger.close()


def test_a_killed_refusal_does_not_hide_the_loss(tmp_path):
    """The look at the mark comes before SQLite can make a new, empty log."""
    crashed(tmp_path / "l.db", "")
    (tmp_path / "l.db-wal").unlink()
    for _ in range(2):
        with pytest.raises(LedgerDamaged, match="-wal is missing"):
            SQLiteLedger(str(tmp_path / "l.db"), TERMS)
        assert not (tmp_path / "l.db-wal").exists()


def test_a_log_without_its_ledger_is_refused(tmp_path):
    crashed(tmp_path / "l.db", "")
    (tmp_path / "l.db").unlink()
    with pytest.raises(LedgerDamaged, match="is missing, its log"):
        SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert (tmp_path / "l.db-wal").exists()


def test_full_disk_charges_nothing(tmp_path):
    """A real limit on file size: SQLite's write fails, the group is rolled back, the ledger stays usable and sound."""
    code = """
import resource, signal, sys
from fcstream.errors import LedgerError
from fcstream.ledgers.base import Request
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = SQLiteLedger(sys.argv[1], LedgerContract.terms)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
granted = 0
try:
    for start in range(0, 100_000, 50):
        group = [Request(window(i), LedgerContract.loss, (str(i),)) for i in range(start, start + 50)]
        granted += sum(v.charge is not None for v in ledger.charge(group))
except LedgerError as error:
    print(granted, type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
ledger.close()
"""
    path = str(tmp_path / "l.db")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    granted, kind = done.stdout.split()
    assert int(granted) > 0, done.stderr
    assert kind == "LedgerError"
    ledger = SQLiteLedger(path, TERMS)
    ledger.verify()
    assert ledger.summary()["charged"] == int(granted)
    ledger.close()


def test_copy_taken_at_any_moment_opens_and_verifies(tmp_path):
    """What power loss leaves, as far as copies between calls show it."""
    path = tmp_path / "l.db"
    ledger = SQLiteLedger(str(path), TERMS)
    for call in range(12):
        key = window(call // 3)
        if call % 3 == 0:
            ledger.charge([Request(key, LOSS, (str(call // 3),))])
        elif call % 3 == 1:
            ledger.seal([SealedRelease(key, b"answer")])
        else:
            ledger.acknowledge([key])
        copy = tmp_path / "copy.db"
        for suffix in ("", "-wal"):
            if os.path.exists(f"{path}{suffix}"):
                shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
        other = SQLiteLedger(str(copy), TERMS)
        other.verify()
        assert other.spent() == ledger.spent()
        other.close()
        for suffix in ("", "-wal"):
            if os.path.exists(f"{copy}{suffix}"):
                os.remove(f"{copy}{suffix}")
    ledger.close()


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


@pytest.mark.parametrize("torn", [b"", b"garbage", b"0" * 95, b"\x00" * 190])
def test_a_torn_rollback_guard_is_ignored(tmp_path, torn):
    filled(tmp_path / "l.db")
    whole = (tmp_path / "l.db-witness").read_bytes()
    (tmp_path / "l.db-witness").write_bytes(torn)
    SQLiteLedger(str(tmp_path / "l.db"), TERMS).close()
    # One line torn, the other whole: that one is believed.
    (tmp_path / "l.db-witness").write_bytes(whole[:50] + b"#" + whole[51:])
    SQLiteLedger(str(tmp_path / "l.db"), TERMS).close()


def test_edited_users_are_found_out(tmp_path):
    from fcstream.stream.contributions import user_key

    terms = Terms("stream", "user", TERMS.capacity, "specification")
    path = str(tmp_path / "l.db")
    ledger = SQLiteLedger(path, terms)
    keys = np.array(sorted(user_key(ledger.salt, f"user {i}") for i in range(50)), "S16")
    for i, refund in enumerate([PrivacyLoss(), PrivacyLoss.charge("0.1"), PrivacyLoss()]):
        ledger.charge([Request(window(i), LOSS, (), keys[i:])])
        ledger.seal([SealedRelease(window(i), b"answer", refund)])
    assert ledger.verify() == 6
    assert ledger.summary()["users"] == 50
    ledger.close()
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM users WHERE bucket = (SELECT max(bucket) FROM users)")
    db.close()
    with pytest.raises(LedgerDamaged, match="users' budgets"):
        SQLiteLedger(path)


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
    ledger = SQLiteLedger(str(path), OTHER)
    ledger.charge([Request(window(0), LOSS, ("0",))])
    ledger.close()
    assert (tmp_path / "l.db-witness").read_bytes() == rollback_guard  # each stream has its own
    path.write_bytes(older)
    SQLiteLedger(str(path), TERMS).close()  # its stream lost nothing
    with pytest.raises(LedgerDamaged, match=r"lacks a stream that .*witness_2 has seen 1 journal rows of"):
        SQLiteLedger(str(path), OTHER)


@pytest.mark.slow
def test_a_crash_while_a_stream_is_added_leaves_it_whole_or_absent(tmp_path):
    """Killed before and after every statement that adds the second stream."""
    code = """
import os, sys
from fcstream.ledgers.sqlite import ledger, tables
from fcstream.testing import LedgerContract
from fcstream.accounting.losses import PrivacyLoss
left = int(sys.argv[2])
def counted(self, query, values=(), real=tables.StreamTables.do):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return real(self, query, values)
tables.StreamTables.do = counted
ledger.SQLiteLedger(sys.argv[1], ledger.Terms("other", "event", PrivacyLoss.cap(2, 1e-6), "another specification"))
os._exit(7)
"""
    for left in (2, 5, 9, 14, 40):
        path = tmp_path / f"l{left}.db"
        filled(path)
        done = subprocess.run([sys.executable, "-c", code, str(path), str(left)])
        assert done.returncode == (7 if left == 40 else 9)
        ledger = SQLiteLedger(str(path), TERMS)
        assert ledger.verify() == 8
        other = SQLiteLedger(str(path), OTHER)
        assert other.charge([Request(window(0), LOSS, ("0",))])[0].charge is not None
        assert (ledger.verify(), other.verify()) == (8, 1)
        ledger.close()
        other.close()
