"""Files of the embedded ledger: full disks, forks, and openings that are refused, interrupted or repeated."""

import contextlib
import errno
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from support.embedded_ledgers import LOSS, TERMS, filled

from fcstream.errors import LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from fcstream.ledgers import fence
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.files import LedgerFile, translated_errors
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.ledgers.sqlite.snapshot import Snapshot
from fcstream.testing import window


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


@pytest.mark.slow
def test_a_child_that_drops_the_ledger_takes_nothing_from_its_parent(tmp_path):
    """A child's finalizer used to delete the write-ahead log; what the parent charged after that was gone."""
    crashed(tmp_path / "l.db", "fork")
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert ledger.summary()["charged"] == 2
    assert ledger.verify() == 2
    ledger.close()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_refused_opening_after_a_crash_harms_nothing(tmp_path):
    """Wrong terms, then the right ones: the first opening merged the log and must have said so."""
    crashed(tmp_path / "l.db", "")
    with pytest.raises(LedgerMismatch):
        SQLiteLedger(str(tmp_path / "l.db"), Terms("stream", "event", TERMS.capacity, "changed"))
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert ledger.verify() == 2
    ledger.close()


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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

    monkeypatch.setattr(fence, "lock_file", lambda file: None)  # granted to everybody: SQLite's own lock is left
    monkeypatch.setattr(LedgerFile, "_prepare", prepare)
    with pytest.raises(LedgerInUse):
        SQLiteLedger(path, TERMS)
    monkeypatch.undo()
    assert os.path.getsize(f"{path}-wal") > 0
    ledger = SQLiteLedger(path, TERMS)
    assert ledger.verify() == 1
    ledger.close()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_killed_refusal_does_not_hide_the_loss(tmp_path):
    """The look at the mark comes before SQLite can make a new, empty log."""
    crashed(tmp_path / "l.db", "")
    (tmp_path / "l.db-wal").unlink()
    for _ in range(2):
        with pytest.raises(LedgerDamaged, match="-wal is missing"):
            SQLiteLedger(str(tmp_path / "l.db"), TERMS)
        assert not (tmp_path / "l.db-wal").exists()


@pytest.mark.slow
def test_a_log_without_its_ledger_is_refused(tmp_path):
    crashed(tmp_path / "l.db", "")
    (tmp_path / "l.db").unlink()
    with pytest.raises(LedgerDamaged, match="is missing, its log"):
        SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    assert (tmp_path / "l.db-wal").exists()


@pytest.mark.slow
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


def test_an_interrupt_while_the_process_ends_loses_nothing(tmp_path):
    """The interpreter closes what is left open, and SQLite would then merge a log that the file still needs."""
    path = tmp_path / "l.db"
    code = (
        "import sys\nfrom support.embedded_ledgers import LOSS, TERMS\nfrom fcstream.ledgers.base import Request\n"
        "from fcstream.ledgers import files\nfrom fcstream.ledgers.sqlite.ledger import SQLiteLedger\n"
        "from fcstream.testing import window\n"
        "ledgers = [SQLiteLedger(path, TERMS) for path in sys.argv[1:]]\n"
        "for ledger in ledgers:\n    ledger.charge([Request(window(0), LOSS, ('b',))])\n"
        "def interrupted(self):\n    raise KeyboardInterrupt\n"
        "files.LedgerFile._roll_back = interrupted"
    )
    paths = [str(path), str(tmp_path / "second.db")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, env=env, check=False)
    assert "KeyboardInterrupt" in done.stderr
    for each in paths:
        ledger = SQLiteLedger(each, TERMS)
        assert len(ledger.charges()) == 1
        assert ledger.verify() == 1
        ledger.close()


def test_errors_of_the_disk_say_what_to_do(tmp_path, monkeypatch):
    """A read-only file, or a limit on the size of files, ended in SQLite's words alone."""
    path = str(tmp_path / "l.db")
    filled(path)
    with (
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
        pytest.raises(LedgerError, match=r"cannot be used: .*; this user must be able to read and write it"),
        translated_errors(path),
    ):
        db.execute("UPDATE file SET value = 'open'")
    with monkeypatch.context() as here:
        here.setattr("os.access", lambda *_: False)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        with pytest.raises(LedgerError, match=r"disk I/O error; this user must be able to"), translated_errors(path):
            raise error
    code = (
        "import resource, sys; from fcstream.ledgers.sqlite.ledger import SQLiteLedger; "
        "from fcstream.testing import LedgerContract; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
        "SQLiteLedger(sys.argv[1], LedgerContract.terms)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.db")], capture_output=True, text=True)
    assert "`ulimit -f`" in done.stderr.splitlines()[-1], done.stderr

    def refused(source, target):
        raise PermissionError(errno.EACCES, "Permission denied", source)

    monkeypatch.setattr("fcstream.ledgers.sqlite.snapshot.shutil.copyfile", refused)
    with pytest.raises(LedgerError, match="cannot be read: Permission denied; run as the user who owns it"):
        Snapshot(path)
