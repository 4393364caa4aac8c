"""Two processes and one ledger: whatever is done to its files and locks, no window is published with two noises."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
from support.embedded_ledgers import LOSS, TERMS

from fcstream.errors import LedgerDamaged, LedgerInUse
from fcstream.ledgers import fence
from fcstream.ledgers.base import Request
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.service.supervisor import FATAL
from fcstream.testing import window

PUBLISHER = """
import fcntl, hashlib, os, shutil, sys
path = sys.argv[1]
if sys.argv[2] == "none":  # as on some file systems of a network
    fcntl.flock = lambda *_: None
from fcstream.errors import FcstreamError, LedgerTaken
from fcstream.ledgers.base import Request, SealedRelease
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract, window
def charge(name):
    return ledger.charge([Request(window(int(name)), LedgerContract.loss, (name,))])[0]
def publish(name):
    if charge(name).charge is not None:
        ledger.seal([SealedRelease(window(int(name)), os.urandom(8).hex().encode())])
        print("published", name, ledger.last_sealed()[1].decode(), flush=True)
try:
    ledger = SQLiteLedger(path, LedgerContract.terms)
    print("open", flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
    ledger.close()
except FcstreamError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


STARTED = []


class Publisher:
    """A process that has a ledger open and publishes windows; `published` holds window and noise."""

    def __init__(self, path, locks="sound"):
        command = [sys.executable, "-c", PUBLISHER, str(path), locks]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.published, self.error, self.code = [], "", None
        STARTED.append(self)
        self.is_open = self.read("open")

    def do(self, line):
        """Have it run a line of Python; returns whether it lives on."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.read("done")

    def publish(self, name):
        return self.do(f"publish({str(name)!r})")

    def stopped(self):
        """Have it close the ledger and end."""
        assert not self.do("ledger.close(); sys.exit(0)")
        assert self.code == 0, self.error
        return self

    def read(self, end):
        for line in self.process.stdout:
            if line.strip() == end:
                return True
            if line.startswith("published"):
                self.published.append(tuple(line.split()[1:]))
        self.finish()
        return False

    def finish(self):
        if self.code is None:
            _, self.error = self.process.communicate()
            self.code = self.process.returncode


@pytest.fixture
def ledger(tmp_path):
    folder = tmp_path / "place"
    folder.mkdir()
    yield folder / "l.db"
    for each in STARTED:
        each.process.kill()
        each.finish()
    STARTED.clear()


def check_published(*publishers):
    """Each window was published at most once, and the ledger is whole."""
    for each in publishers:
        each.finish()
    names = [name for each in publishers for name, _ in each.published]
    assert len(names) == len(set(names)), names
    return sorted(names)


def check_ended(publisher, words):
    assert publisher.code == 4, (publisher.code, publisher.error)
    assert words in publisher.error


ALL = "for end in ('', '-wal', '-lock', '-witness')"
HARMLESS = {
    "the ledger is opened and closed": "os.close(os.open(path, os.O_RDWR))",
    "the lock is opened and closed": "os.close(os.open(path + '-lock', os.O_RDWR))",
    "the guard is opened and closed": "os.close(os.open(path + '-witness', os.O_RDWR))",
    "all files are copied": f"[shutil.copy(path + end, path + '-copy' + end) {ALL}]",
    "all files are hashed": f"[hashlib.sha256(open(path + end, 'rb').read()) {ALL}]",
    "a child ends": "pid = os.fork() or os._exit(0); os.waitpid(pid, 0)",
    "a child lets go of all": "pid = os.fork() or (os.closerange(3, 100), os._exit(0)); os.waitpid(pid, 0)",
}


@pytest.mark.parametrize("what", HARMLESS.values(), ids=HARMLESS)
def test_nobody_gets_in_while_a_process_has_the_ledger(ledger, what):
    """A copy or a checksum of the file by its own process dropped the one lock there was."""
    first = Publisher(ledger)
    assert first.publish(0)
    assert first.do(what)
    second = Publisher(ledger)
    assert (second.is_open, second.code) == (False, 1)
    assert "is in use: one engine at a time" in second.error
    assert first.publish(1)
    assert check_published(first, second) == ["0", "1"]
    assert SQLiteLedger(str(ledger), TERMS).verify() == 4


@pytest.mark.parametrize("other", ["symbolic link", "hard link"])
def test_nobody_gets_in_by_another_name(ledger, tmp_path, other):
    first = Publisher(ledger)
    assert first.publish(0)
    assert first.do("os.close(os.open(path, os.O_RDWR))")
    name = tmp_path / "other.db"
    (os.symlink if other == "symbolic link" else os.link)(ledger, name)
    second = Publisher(name)
    assert (second.is_open, second.code) == (False, 1)
    assert ("is in use" if other == "symbolic link" else "names (hard links)") in second.error
    assert first.publish(1)
    assert check_published(first, second) == ["0", "1"]


def moved(ledger):
    shutil.move(ledger.parent, ledger.parent.parent / "moved")
    return ledger.parent.parent / "moved" / ledger.name


def renamed(ledger):
    for end in ("", "-wal"):
        os.rename(f"{ledger}{end}", f"{ledger.parent}/other.db{end}")
    return ledger.parent / "other.db"


def replaced(ledger):
    shutil.copy(ledger, f"{ledger}-new")
    os.rename(f"{ledger}-new", ledger)
    return ledger


def without_lock(ledger):
    os.remove(f"{ledger}-lock")
    return ledger


def with_another_lock(ledger):
    shutil.copy(f"{ledger}-lock", f"{ledger}-new")
    os.rename(f"{ledger}-new", f"{ledger}-lock")
    return ledger


@pytest.mark.parametrize("change", [moved, renamed, replaced, without_lock, with_another_lock])
def test_a_process_whose_files_are_changed_ends(ledger, change):
    first = Publisher(ledger)
    assert first.publish(0)
    assert first.do("charge('1')")
    assert first.do("os.close(os.open(path, os.O_RDWR))")
    second = Publisher(change(ledger))
    assert not first.publish(1)
    check_ended(first, "was removed or replaced while this process had it open")
    if second.is_open:
        assert second.publish(0)
        assert second.publish(1)
    names = check_published(first, second)
    assert names in (["0"], ["0", "1"])


@pytest.mark.parametrize(
    "step", ["publish('1')", "ledger.seal([SealedRelease(window(1), b'1')])", "ledger.acknowledge([window(0)])"]
)
def test_where_every_lock_is_granted_the_older_process_ends(ledger, step):
    first = Publisher(ledger, "none")
    assert first.publish(0)
    assert first.do("charge('1')")
    assert first.do("os.close(os.open(path, os.O_RDWR))")
    second = Publisher(ledger, "none")
    assert second.is_open
    assert not first.do(step)
    check_ended(first, "was opened by another process")
    for name in range(3):
        assert second.publish(name)
    assert check_published(first, second) == ["0", "1", "2"]
    assert SQLiteLedger(str(ledger), TERMS).verify() == 7


def test_who_is_let_in_during_a_commit_is_seen_after_it(ledger):
    """What is committed after another process began to read is not published: that one may draw again."""
    first = Publisher(ledger, "none")
    assert first.do("charge('1')")
    assert first.do("os.close(os.open(path, os.O_RDWR))")
    first.do("commit = ledger._file.write")
    first.do(
        "ledger._file.fence.check = lambda real=ledger._file.fence.check: (real(), print('x'), sys.stdin.readline())"
    )
    first.process.stdin.write("publish('1')\n")
    first.process.stdin.flush()
    second = Publisher(ledger, "none")
    assert second.is_open
    assert not first.do("")
    check_ended(first, "was opened by another process")
    assert second.publish(1)
    assert check_published(first, second) == ["1"]


def test_who_came_and_went_meanwhile_is_seen_by_the_guard(ledger):
    """Its lock was put aside, so that nothing shows it but what it has written."""
    first = Publisher(ledger, "none")
    assert first.publish(0)
    assert first.do("os.close(os.open(path, os.O_RDWR))")
    os.rename(f"{ledger}-lock", f"{ledger}-aside")
    second = Publisher(ledger, "none")
    assert second.publish(1)
    second.stopped()
    os.rename(f"{ledger}-aside", f"{ledger}-lock")
    assert not first.publish(1)
    check_ended(first, "l.db-witness shows")
    assert check_published(first, second) == ["0", "1"]


def test_whatever_the_lock_holds_a_process_may_take_it(ledger):
    ledger.with_name("l.db-lock").write_bytes(b"#" * 1000)
    first = Publisher(ledger)
    assert first.publish(0)
    assert check_published(first.stopped()) == ["0"]


def test_the_newer_process_publishes_where_the_older_one_was_stopped(ledger):
    """Wherever it stands still and for however long, it goes on to its end, and not to a second noise."""
    for turn in range(3):
        path = ledger.with_name(f"{turn}.db")
        first = Publisher(path, "none")
        assert first.publish(0)
        assert first.do("os.close(os.open(path, os.O_RDWR))")
        first.process.stdin.write("".join(f"publish('{name}')\n" for name in range(1, 40)) + "sys.exit(0)\n")
        first.process.stdin.flush()
        time.sleep(0.004 * turn)
        first.process.send_signal(signal.SIGSTOP)
        second = Publisher(path, "none")
        for name in range(40):
            assert second.publish(name)
        first.process.send_signal(signal.SIGCONT)
        while first.read("done"):
            pass
        missing = {*map(str, range(40))} - {*check_published(first, second.stopped())}
        with closing(SQLiteLedger(str(path), TERMS)) as reopened:  # what it had sealed and could not publish is there
            assert {str(each.open_ms // 60_000) for each, _ in reopened.unacknowledged()} >= missing
        assert len(missing) <= 1


def test_a_removed_guard_is_told_and_begun_anew(ledger, caplog):
    first = SQLiteLedger(str(ledger), TERMS)
    first.charge([Request(window(0), LOSS, ("0",))])
    os.remove(f"{ledger}-witness")
    caplog.clear()
    first.charge([Request(window(1), LOSS, ("1",))])
    assert [record.getMessage() for record in caplog.records] == [
        f"{ledger}-witness was removed while its ledger was open: a new one is begun"
    ]
    assert os.path.exists(f"{ledger}-witness")
    first.close()


def test_a_taken_ledger_ends_the_service():
    assert issubclass(fence.LedgerTaken, FATAL)
    assert issubclass(fence.LedgerTaken, LedgerDamaged)
    assert not issubclass(fence.LedgerTaken, LedgerInUse)


def test_a_child_that_outlives_its_parent_holds_no_lock(ledger):
    first = Publisher(ledger)
    assert first.publish(0)
    assert first.do(
        "child = os.fork() or (sys.stdin.close(), os.close(1), os.close(2), __import__('time').sleep(60), os._exit(0))"
    )
    first.process.kill()
    first.finish()
    second = Publisher(ledger)
    assert second.publish(1)
    assert check_published(first, second) == ["0", "1"]


def test_the_lock_of_a_process_is_held_until_it_ends(ledger):
    first = Publisher(ledger)
    with open(f"{ledger}-lock", "rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    first.process.kill()
    first.finish()
    with open(f"{ledger}-lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
