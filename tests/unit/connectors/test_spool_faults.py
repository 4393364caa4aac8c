"""The spool where clocks, disks and processes fail."""

import os
import random
import resource
import signal
import subprocess
import sys

import pytest
from support.queues import MIB, Queue, contents, drain, segments

from fcstream.connectors import spool as module
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import SourceError
from fcstream.testing import ManualClock

pytestmark = pytest.mark.usefixtures("much")


def test_receipt_times_never_decrease(tmp_path):
    clock = ManualClock(5000)
    spool = Spool(tmp_path / "spool", MIB, 100, clock=lambda: clock.now_ms)
    spool.append([b"a"])
    clock.tick(-3000)
    spool.append([b"b"])
    spool.commit(2)
    spool.append([b"c"])  # in a segment of its own
    spool.commit(3)
    spool.close()
    assert len(segments(tmp_path / "spool")) == 1
    spool = Spool(tmp_path / "spool", MIB, 100, clock=lambda: clock.now_ms)
    spool.append([b"d"])
    clock.tick(9000)
    spool.append([b"e"])
    assert [receipt for _, receipt, _ in contents(spool)] == [5000, 11000]
    spool.close()


@pytest.mark.slow
def test_two_processes(tmp_path):
    spool = Spool(tmp_path / "spool", MIB)
    with pytest.raises(SourceError, match="is in use"):
        Spool(tmp_path / "spool", MIB)
    code = "import sys; from fcstream.connectors.spool import Spool; Spool(sys.argv[1], 1 << 20)"
    done = subprocess.run([sys.executable, "-c", code, spool.folder], capture_output=True, text=True)
    assert "SourceError" in done.stderr
    assert "is in use" in done.stderr
    spool.close()
    Spool(tmp_path / "spool", MIB).close()


def test_disk_full(tmp_path):
    """RLIMIT_FSIZE stands for it: the batch is taken back, the next one that fits goes on, nothing is acknowledged."""
    queue = Queue([b"%03d" % i * 100 for i in range(20)])
    source = SpooledSource(queue, Spool(tmp_path / "spool", MIB))
    assert len(source.poll(5, 0)[0].bodies) == 5
    size = segments(tmp_path / "spool")[0].stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, before[1]))
    try:
        for _ in range(3):
            with pytest.raises(SourceError, match="cannot be written: File too large"):
                source.poll(10, 0)
        assert segments(tmp_path / "spool")[0].stat().st_size == size
        assert len(queue.sent) == queue.received - 5 >= 10
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    found = drain(source)
    assert [row[0] for row in found] == list(range(5, 20))
    assert [row[2] for row in found] == [b"%03d" % i * 100 for i in range(5, 20)]
    assert not queue.sent
    source.close()


def test_disk_full_when_a_segment_begins_or_a_position_is_noted(tmp_path, monkeypatch):
    spool = Spool(tmp_path / "spool", MIB, 500)
    spool.append([b"a" * 400])

    def refuse(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write_all", refuse)
        with pytest.raises(SourceError, match="No space left"):
            spool.append([b"b" * 400])
        with pytest.raises(SourceError, match="No space left"):
            spool.commit(1)
    assert len(segments(spool.folder)) == 1
    assert spool.position == 0
    spool.append([b"b" * 400])
    spool.close()
    spool = Spool(tmp_path / "spool", MIB, 500)
    assert [body[:1] for *_, body in contents(spool)] == [b"a", b"b"]
    spool.close()


def test_nothing_is_written_after_what_could_not_be_taken_back(tmp_path, monkeypatch):
    spool = Spool(tmp_path / "spool", MIB)
    spool.append([b"a"])

    def refuse(*args):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(SourceError, match="Input/output error"):
            spool.append([b"b"])
    with pytest.raises(SourceError, match="cannot be written"):
        spool.append([b"c"])
    spool.close()
    spool = Spool(tmp_path / "spool", MIB)
    assert [body for *_, body in contents(spool)] in ([b"a"], [b"a", b"b"])
    spool.close()


CHILD = """
import os, signal, sys
from support.queues import Queue, drain
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
queue = Queue(b"%03d" % i for i in range(40))
source = SpooledSource(queue, Spool(sys.argv[1], 1 << 20))
acknowledge, count = queue.acknowledge, 0
def die(received):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    acknowledge(received)
    print(*(int(one.body) for one in received), flush=True)
queue.acknowledge = die
drain(source, 7)
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 6])
def test_kill_between_disk_and_acknowledgement(tmp_path, count):
    """What was acknowledged is there; what was being acknowledged is there too, and comes again from the broker."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, tmp_path / "spool", str(count)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == -signal.SIGKILL
    acknowledged = {int(word) for word in done.stdout.split()}
    assert len(acknowledged) == 7 * (count - 1)
    spool = Spool(tmp_path / "spool", MIB)
    assert [int(body) for *_, body in contents(spool)] == list(range(min(7 * count, 40)))
    again = [i for i in range(40) if i not in acknowledged]  # what the broker sends next
    source = SpooledSource(Queue(b"%03d" % i for i in again), spool)
    found = [int(row[2]) for row in drain(source)]
    assert sorted(set(found)) == list(range(40))
    assert len(found) - 40 == min(7, 40 - len(acknowledged))  # the records that are there twice, and no others
    source.close()


@pytest.mark.slow
def test_kill_at_any_moment(tmp_path):
    """Whatever was told as taken is there after it, in order, and the spool goes on."""
    code = """
import sys
from fcstream.connectors.spool import Spool
spool = Spool(sys.argv[1], 1 << 26, 5000)
while True:
    first = spool.end
    spool.append([b"%08d" % i * 20 for i in range(first, first + 9)])
    if spool.end % 5 == 0:
        spool.commit(spool.end - 40)
    print(spool.end, flush=True)
"""
    rng, end = random.Random(3), 0
    for _ in range(6):
        child = subprocess.Popen([sys.executable, "-c", code, tmp_path / "spool"], stdout=subprocess.PIPE, text=True)
        told = [child.stdout.readline() for _ in range(rng.randrange(1, 60))]
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
        told += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        spool = Spool(tmp_path / "spool", 1 << 26, 5000)
        assert spool.end >= int(told[-1]) > end
        rows = contents(spool)
        assert [row[0] for row in rows] == list(range(spool.position, spool.end))
        assert all(body == b"%08d" % number * 20 for number, _, body in rows)
        end = spool.end
        spool.close()


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, 5000])
def test_many_pieces_of_one_write(tmp_path, monkeypatch, most):
    """The system takes less than it is given; and more pieces are given than it takes at once."""
    real, calls = os.pwritev, []

    def pwritev(file, parts, at):
        calls.append(len(parts))
        joined = b"".join(parts)
        return os.pwrite(file, joined[:most], at)

    bodies = [b"0123456789", b"", *[bytes([i % 251]) * 3000 for i in range(5 if most == 3 else 2500)]]
    monkeypatch.setattr(os, "pwritev", pwritev)
    spool = Spool(tmp_path / "spool", 1 << 26)
    spool.append(bodies)
    spool.close()
    monkeypatch.setattr(os, "pwritev", real)
    assert max(calls) <= 1024
    spool = Spool(tmp_path / "spool", 1 << 26)
    assert [row[2] for row in contents(spool)] == bodies
    spool.append(bodies)
    assert [row[2] for row in contents(spool)] == bodies * 2
    spool.close()
