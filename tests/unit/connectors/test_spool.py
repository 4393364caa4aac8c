"""The spool: what is on disk counts, whatever happens to the process, the disk or the clock."""

import contextlib
import logging
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections import deque

import numpy as np
import pytest
from support.queues import MIB, Queue, drain

from fcstream.connectors import spool as module
from fcstream.connectors import spooled
from fcstream.connectors.spool import MIN_BYTES, Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import ConfigError, SourceError
from fcstream.formats.batch import Schema
from fcstream.formats.payloads import decoder_for, read_messages
from fcstream.testing import ManualClock, SourceContract

SECRET = b"s3cretBody"


@pytest.fixture(autouse=True, params=[spooled._MUCH, 0], ids=["alone", "ahead"])
def much(request, monkeypatch):
    """Receiving and the disk one after the other, and at the same time."""
    monkeypatch.setattr(spooled, "_MUCH", request.param)


class NamedQueue(Queue):
    """Every message is its own identity; those that begin with ``?`` have none."""

    def delivery_id(self, received):
        return None if received.body.startswith(b"?") else received.body


def contents(spool):
    number, rows = spool.position, []
    while number < spool.end:
        found = spool.read(number)
        assert found.first == number
        rows += [(found.first + i, found.receipt_ms, body) for i, body in enumerate(found.bodies)]
        number += len(found.bodies)
    return rows


def segments(folder):
    return sorted(folder.glob("*.rows"))


class TestSpooledSource(SourceContract):
    @pytest.fixture(autouse=True)
    def place(self):
        self.queue = Queue()

    def make(self, tmp_path):
        self.queue.reconnect()
        return SpooledSource(self.queue, Spool(tmp_path / "spool", MIB))

    def send(self, tmp_path, bodies):
        self.queue.send(bodies)


class TestNamedSpooledSource(TestSpooledSource):
    @pytest.fixture(autouse=True)
    def place(self):
        self.queue = NamedQueue()


def check(folder, segment_bytes=None):
    """Open a spool, read all of it, and close it."""
    with contextlib.closing(Spool(folder, MIB, segment_bytes)) as spool:
        return [body for *_, body in contents(spool)]


# ── what is on disk ──


def test_modes_and_files(tmp_path):
    spool = Spool(tmp_path / "a" / "spool", MIB)
    assert spool.append([SECRET]) == 1
    spool.commit(1)
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in spool.folder.iterdir()} == {
        "lock": 0o600,
        "position": 0o600,
        f"{0:020d}.rows": 0o600,
    }
    spool.close()
    spool.close()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    mode = tmp_path.stat().st_mode
    with pytest.raises(SourceError, match=r"for the spool alone, it holds 'notes\.txt'"):
        Spool(tmp_path, MIB)
    assert tmp_path.stat().st_mode == mode
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_too_small_a_spool_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="at least 1048576"):
        Spool(tmp_path / "spool", MIN_BYTES - 1)


def test_any_sizes_come_back(tmp_path):
    """Laws on random batches: numbers without gaps, bodies as they were, whatever is reopened or rotated."""
    rng = random.Random(7)
    clock, expected = ManualClock(1000), []
    spool = Spool(tmp_path / "spool", 4 * MIB, 20_000, clock=lambda: clock.now_ms)
    for _ in range(300):
        clock.tick(rng.randrange(-30, 60))
        bodies = [rng.randbytes(rng.choice([0, 1, 50, 3000])) for _ in range(rng.randrange(1, 8))]
        assert spool.append(bodies) == len(bodies)
        receipt = max(clock.now_ms, expected[-1][1] if expected else 0)
        expected += [(len(expected) + i, receipt, body) for i, body in enumerate(bodies)]
        if rng.random() < 0.1:
            spool.commit(spool.position + rng.randrange(12))
        if rng.random() < 0.1:
            spool.close()
            spool = Spool(tmp_path / "spool", 4 * MIB, 20_000, clock=lambda: clock.now_ms)
        if rng.random() < 0.2:
            at = rng.randrange(spool.position, spool.end) if spool.position < spool.end else None
            if at is not None:
                assert spool.read(at).bodies[0] == expected[at][2]
    assert spool.end == len(expected)
    assert contents(spool) == expected[spool.position :]
    assert len(segments(spool.folder)) > 3
    spool.close()


def test_what_was_appended_is_read_while_more_comes(tmp_path):
    spool = Spool(tmp_path / "spool", 4 * MIB, 2000)
    seen = []
    for i in range(200):
        spool.append([b"%d" % i * 20, b"x"])
        if i % 3 == 0:  # reading falls behind, so it reads files
            while len(seen) < spool.end - 3:
                seen += spool.read(len(seen)).bodies
    while len(seen) < spool.end:
        seen += spool.read(len(seen)).bodies
    assert seen == [body for i in range(200) for body in (b"%d" % i * 20, b"x")]
    spool.close()


def filled(folder, batches, **options):
    """A closed spool."""
    spool = Spool(folder, MIB, **options)
    for bodies in batches:
        spool.append(bodies)
    spool.close()


def test_torn_at_every_byte_of_the_last_batch(tmp_path):
    """What was on disk before stays; the numbers go on."""
    filled(tmp_path / "whole", [[b"one", b"two"]])
    before = segments(tmp_path / "whole")[0].stat().st_size
    spool = Spool(tmp_path / "whole", MIB)
    spool.append([SECRET, b"\0" * 9])
    spool.close()
    data = segments(tmp_path / "whole")[0].read_bytes()
    for cut in range(before, len(data)):
        for tail in (b"", b"\0" * (len(data) - cut), b"\0" * 5000):
            if tail and not data[cut:-1].strip(b"\0"):
                continue  # that is the whole batch, or all but its end
            folder = tmp_path / "torn"
            shutil.copytree(tmp_path / "whole", folder)
            segments(folder)[0].write_bytes(data[:cut] + tail)
            spool = Spool(folder, MIB)
            assert [body for *_, body in contents(spool)] == [b"one", b"two"]
            assert segments(folder)[0].stat().st_size == before
            spool.append([b"three"])
            assert contents(spool)[-1][::2] == (2, b"three")
            spool.close()
            shutil.rmtree(folder)


def test_torn_while_a_segment_is_begun(tmp_path):
    filled(tmp_path / "whole", [[b"a" * 500] for _ in range(3)], segment_bytes=600)
    *_, last = segments(tmp_path / "whole")
    assert len(segments(tmp_path / "whole")) == 3
    data = last.read_bytes()
    size = data.index(module._MAGIC, 4)  # of the first frame
    for cut in range(size):
        folder = tmp_path / "torn"
        shutil.copytree(tmp_path / "whole", folder)
        segments(folder)[-1].write_bytes(data[:cut])
        spool = Spool(folder, MIB, 600)
        assert spool.end == 2
        spool.append([b"again"])
        assert contents(spool)[-1][::2] == (2, b"again")
        spool.close()
        shutil.rmtree(folder)


def test_torn_at_the_very_beginning(tmp_path):
    filled(tmp_path / "spool", [])
    path = segments(tmp_path / "spool")[0]
    for data in (b"", path.read_bytes()[:-1]):
        path.write_bytes(data)
        spool = Spool(tmp_path / "spool", MIB)
        assert (spool.position, spool.end) == (0, 0)
        spool.close()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_flipped_byte_is_found(tmp_path, which):
    """In any segment, the last batch included: it was acknowledged, so it is not cut off."""
    batches = [[b"first", SECRET * 40], [b"second" * 70], [SECRET, b"", b"last\0"]]
    filled(tmp_path / "spool", batches, segment_bytes=500)
    paths = segments(tmp_path / "spool")
    assert len(paths) == 3
    data = paths[which].read_bytes()
    rng = random.Random(which)
    for place in range(len(data)):
        for flipped in {data[place] ^ 1 << rng.randrange(8), 0} - {data[place]}:
            if (flipped, data[place : place + 5]) in ((0, b"\n" + module._MAGIC), (0, b"\n")):
                continue  # the end of a frame: everything in it is right
            paths[which].write_bytes(data[:place] + bytes([flipped]) + data[place + 1 :])
            with pytest.raises(SourceError, match=f"{paths[which].name} is damaged: restore it") as caught:
                check(tmp_path / "spool", 500)
            assert SECRET.decode() not in str(caught.value)
            assert paths[which].stat().st_size == len(data)
    paths[which].write_bytes(data)
    spool = Spool(tmp_path / "spool", MIB, 500)
    assert [body for *_, body in contents(spool)] == [body for bodies in batches for body in bodies]
    spool.close()


def test_damage_before_the_tail_is_no_tail(tmp_path):
    filled(tmp_path / "spool", [[b"one"], [b"two"], [b"three"]])
    path = segments(tmp_path / "spool")[0]
    data = path.read_bytes()
    for damaged in (data.replace(b"two", b"\0\0\0"), data[: data.index(b"two")] + data[data.index(b"two") + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(SourceError, match="damaged"):
            Spool(tmp_path / "spool", MIB)


def test_truncated_earlier_segment_is_found(tmp_path):
    filled(tmp_path / "spool", [[b"x" * 400] for _ in range(4)], segment_bytes=900)
    path = segments(tmp_path / "spool")[0]
    path.write_bytes(path.read_bytes()[:-100])
    spool = Spool(tmp_path / "spool", MIB, 900)
    with pytest.raises(SourceError, match=f"{path.name} is damaged"):
        contents(spool)
    spool.close()


def test_missing_segments_are_found(tmp_path):
    filled(tmp_path / "spool", [[b"x" * 400] for _ in range(6)], segment_bytes=500)
    paths = segments(tmp_path / "spool")
    spool = Spool(tmp_path / "spool", MIB, 500)
    spool.commit(2)
    spool.close()
    assert not paths[0].exists()
    paths[3].unlink()
    spool = Spool(tmp_path / "spool", MIB, 500)
    assert spool.read(2).bodies
    with pytest.raises(SourceError, match="damaged"):
        contents(spool)
    spool.commit(5)
    spool.close()
    for path in segments(tmp_path / "spool"):
        path.unlink()
    with pytest.raises(SourceError, match="must hold record 5"):
        Spool(tmp_path / "spool", MIB, 500)


def test_damaged_position_says_what_to_do(tmp_path):
    filled(tmp_path / "spool", [[b"one"], [b"two"]])
    spool = Spool(tmp_path / "spool", MIB)
    spool.commit(1)
    spool.commit(0)  # never goes back
    assert spool.position == 1
    spool.close()
    path = tmp_path / "spool" / "position"
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(SourceError, match="position is damaged: remove it"):
        Spool(tmp_path / "spool", MIB)
    path.unlink()
    spool = Spool(tmp_path / "spool", MIB)
    assert [body for *_, body in contents(spool)] == [b"one", b"two"]
    spool.close()


# ── when segments go ──


def test_segments_go_only_when_all_their_records_are_committed(tmp_path):
    spool = Spool(tmp_path / "spool", MIB, 1000)
    for i in range(40):
        spool.append([b"%03d" % i * 100])
    firsts = [int(path.stem) for path in segments(spool.folder)]
    assert len(firsts) > 10
    for position in range(1, 41):
        spool.commit(position)
        kept = [int(path.stem) for path in segments(spool.folder)]
        assert kept[0] <= position  # the record that a restart needs is there
        assert len(kept) == 1 or kept[1] > position  # and no file before its own
        assert contents(spool)[:1] == [(position, *contents(spool)[0][1:])] if position < 40 else not contents(spool)
    spool.discard_before(40)
    assert spool.end == 40
    spool.close()
    spool = Spool(tmp_path / "spool", MIB, 1000)
    spool.append([b"next"])
    assert contents(spool)[0][::2] == (40, b"next")
    spool.close()


def test_discarding_never_takes_what_is_not_committed(tmp_path):
    spool = Spool(tmp_path / "spool", MIB, 1000)
    for _ in range(10):
        spool.append([b"x" * 600])
    spool.discard_before(10)
    assert len(contents(spool)) == 10
    spool.close()


def test_full_refuses_and_drops_nothing(tmp_path, caplog):
    spool = Spool(tmp_path / "spool", MIB)
    taken = 0
    with caplog.at_level(logging.WARNING):
        while not spool.is_full:
            taken += spool.append([SECRET * 1000, SECRET * 500])
        assert spool.append([SECRET]) == 1  # a small one still fits
        while not spool.is_full:
            taken += spool.append([SECRET] * 100)
        taken += 1
    assert spool.append([SECRET * 1000]) == 0
    assert [record.getMessage().count("is full") for record in caplog.records] == [1, 1]
    assert SECRET.decode() not in caplog.text
    assert sum(path.stat().st_size for path in spool.folder.iterdir()) <= MIB
    assert len(contents(spool)) == spool.end == taken
    spool.commit(spool.end)
    assert spool.append([SECRET * 1000]) == 1
    assert not spool.is_full
    assert contents(spool)[0][0] == taken
    spool.close()


def test_a_full_spool_stops_receiving_and_goes_on(tmp_path):
    queue = Queue(b"%05d" % i * 2000 for i in range(300))
    source = SpooledSource(queue, Spool(tmp_path / "spool", MIB))
    first = drain(source)
    assert 50 < len(first) < 300
    received = queue.received
    assert source.poll(100, 0.01) == []
    assert source.ends() == {"spool": len(first)}
    assert queue.received == received
    found = first
    while len(found) < 300:
        source.commit({"spool": found[-1][0] + 1})
        more = drain(source)
        assert more
        found += more
    assert [row[0] for row in found] == list(range(300))
    assert [row[2] for row in found] == [b"%05d" % i * 2000 for i in range(300)]
    assert not queue.sent
    source.close()


def test_what_came_by_a_lost_connection_is_not_kept_for_later(tmp_path):
    """It is received again; kept, it would be there twice."""
    queue = Queue(b"%05d" % i * 2000 for i in range(300))
    source = SpooledSource(queue, Spool(tmp_path / "spool", MIB))
    found = drain(source)
    assert queue.sent  # received, but there was no room
    queue.reconnect()
    while len(found) < 300:
        source.commit({"spool": found[-1][0] + 1})
        found += drain(source)
    assert [row[2] for row in found] == [b"%05d" % i * 2000 for i in range(300)]
    source.close()


@pytest.mark.parametrize("format", ["json", "msgpack", "floats", "arrow"])
def test_a_message_larger_than_half_the_spool_is_rejected_alone_and_holds_nothing_up(tmp_path, format):
    queue = Queue([b"small", SECRET * 100_000, b"after"])
    with contextlib.closing(SpooledSource(queue, Spool(tmp_path / "spool", MIB))) as source:
        found = drain(source)
    assert [row[2] for row in found] == [b"small", b"\xc1", b"after"]
    schema = Schema("ts_ms", "ms", ("a",))
    batch, _, _ = read_messages(decoder_for(format, schema), np.array([7]), np.array([1]), [b"\xc1"])
    assert len(batch.times_ms) == 0
    assert [(each.reason, each.position) for each in batch.rejections] == [("broken_record", 7)]


# ── the order of things: receive, disk, acknowledge ──


def test_nothing_is_acknowledged_before_it_is_on_disk(tmp_path, monkeypatch):
    log = []
    queue = Queue([b"1", b"2"])
    source = SpooledSource(queue, Spool(tmp_path / "spool", MIB))
    fsync, acknowledge = os.fsync, queue.acknowledge
    monkeypatch.setattr(os, "fsync", lambda file: (log.append("fsync"), fsync(file)))
    monkeypatch.setattr(queue, "acknowledge", lambda received: (log.append(len(received)), acknowledge(received)))
    source.poll(100, 0.0)
    assert log == ["fsync", 2]
    source.close()


def test_a_queue_that_fails_while_the_disk_writes(tmp_path):
    """What was written counts once; the failure is told when it is in the way."""

    class Failing(Queue):
        def receive(self, max_messages, timeout_s):
            if self.received and self.waiting:
                raise SourceError("away")
            return super().receive(max_messages, timeout_s)

    queue = Failing([b"1", b"2", b"3"])
    with contextlib.closing(SpooledSource(queue, Spool(tmp_path / "spool", MIB))) as source:
        assert [bytes(body) for chunk in source.poll(2, 0.0) for body in chunk.bodies] == [b"1", b"2"]
        assert queue.sent == []
        with pytest.raises(SourceError, match="away"):
            source.poll(2, 0.0)
        assert source._spool.end == 2


def test_a_queue_is_served_while_a_long_spool_is_read(tmp_path, monkeypatch):
    spool = Spool(tmp_path / "spool", MIB)
    for i in range(10):
        spool.append([b"%d" % i])
    monkeypatch.setattr(spooled, "POLL_BYTES", 1)
    monkeypatch.setattr(spooled, "_SERVE_S", 0.0)
    queue = Queue([b"new"])
    with contextlib.closing(SpooledSource(queue, spool)) as source:
        source.poll(1, 0.0)
        assert queue.received == 1
        assert [body for _, _, body in drain(source)] == [b"%d" % i for i in range(1, 10)] + [b"new"]


def test_the_end_pulls_what_the_queue_holds_but_not_for_ever(tmp_path, monkeypatch):
    queue = Queue(b"%d" % i for i in range(10_000))
    source = SpooledSource(queue, Spool(tmp_path / "spool", 16 * MIB))
    assert source.ends() == {"spool": 10_000}
    assert source.behind({"spool": 10_000})
    assert not source.behind({})
    assert len(drain(source, 3000)) == 10_000
    monkeypatch.setattr(spooled, "_ENDS_S", 0.2)
    monkeypatch.setattr(queue, "pending", lambda: queue.send([b"x"]) is None)  # a publisher that never stops
    source.ends()
    source.close()


def test_polls_stay_small(tmp_path, monkeypatch):
    monkeypatch.setattr(spooled, "POLL_BYTES", 1000)
    queue = Queue(b"x" * 400 for _ in range(20))
    spool = Spool(tmp_path / "spool", MIB)
    for _ in range(20):
        spool.append([b"x" * 400])
    source = SpooledSource(queue, spool)
    assert [len(chunk.bodies) for chunk in source.poll(100, 0)] == [3]
    source.close()


def test_identities_survive_lost_acknowledgements_rotation_and_restarts(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MEMORY", 50)
    queue = NamedQueue()
    sent = [b"%04d" % i * 20 for i in range(300)]
    monkeypatch.setattr(queue, "acknowledge", lambda received: None)  # every one is lost
    found, duplicates = [], 0
    for start in range(0, 300, 25):
        queue.send(sent[start : start + 25])
        source = SpooledSource(queue, Spool(tmp_path / "spool", 4 * MIB, 1500))
        source._next = len(found)
        while source.behind(source.ends()):
            found += drain(source, 10)
        source.commit({"spool": len(found)})
        queue.reconnect()
        queue.waiting = deque(list(queue.waiting)[-30:])  # what the broker did see
        duplicates += source.duplicates
        source.close()
    assert [row[2] for row in found] == sent
    assert duplicates > 200


def test_identities_within_one_batch_and_messages_without(tmp_path):
    queue = NamedQueue([b"a", b"?", b"a", b"b", b"?", b"b", b"c"])
    source = SpooledSource(queue, Spool(tmp_path / "spool", MIB))
    assert [row[2] for row in drain(source)] == [b"a", b"?", b"b", b"?", b"c"]
    assert source.duplicates == 2
    assert not queue.sent
    source.close()


def test_identities_and_a_full_spool(tmp_path):
    """What did not fit is neither acknowledged nor remembered."""
    queue = NamedQueue([b"%05d" % (i // 2) * 2000 for i in range(400)])  # each twice
    source = SpooledSource(queue, Spool(tmp_path / "spool", MIB))
    found = drain(source)
    while len(found) < 200:
        source.commit({"spool": found[-1][0] + 1})
        found += drain(source)
    assert [row[2] for row in found] == [b"%05d" % i * 2000 for i in range(200)]
    assert drain(source) == []
    assert source.duplicates == 200
    assert not queue.sent
    source.close()


# ── clocks ──


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


# ── disks, processes ──


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
