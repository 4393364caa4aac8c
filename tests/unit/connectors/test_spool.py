"""The spool: what is on disk counts, and segments go when they were committed."""

import contextlib
import logging
import os
import random
import shutil
import stat

import numpy as np
import pytest
from support.queues import MIB, NamedQueue, Queue, contents, drain, segments

from fcstream.connectors import spool as module
from fcstream.connectors.spool import MIN_BYTES, Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import ConfigError, SourceError
from fcstream.formats.batch import Schema
from fcstream.formats.envelopes import NOTHING, AskedFields, Envelope, EnvelopeField
from fcstream.formats.payloads import decoder_for, read_messages
from fcstream.testing import ManualClock, SourceContract

pytestmark = pytest.mark.usefixtures("much")
SECRET = b"s3cretBody"


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


def test_modes_and_files(tmp_path):
    spool = Spool(tmp_path / "a" / "spool", MIB)
    assert spool.append([SECRET]) == 1
    spool.commit(1)
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in spool.folder.iterdir()} == {
        "lock": 0o600,
        "position": 0o600,
        f"{1:020d}.rows": 0o600,
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


@pytest.mark.slow
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
            if cut + len(tail) == before:
                assert spool.torn is None
            else:
                assert f"bytes {before} to {cut + len(tail)} of {segments(folder)[0]}" in spool.torn
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
        assert f"bytes 0 to {cut} of " in spool.torn
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


@pytest.mark.slow
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


def test_envelopes_come_back_and_older_spools_stay_readable(tmp_path):
    """Frames without envelopes are as ever; with some, both kinds are read, from memory and from the disk."""
    rng = random.Random(8)
    spool, expected = Spool(tmp_path / "spool", 4 * MIB, 5000), []
    for i in range(120):
        count = rng.randrange(1, 6)
        bodies = [rng.randbytes(rng.choice([0, 9, 3000])) for _ in range(count)]
        envelopes = [rng.choice([b"", Envelope(f"rooms/{i}", b"k").packed()]) for _ in range(count)] if i % 3 else []
        ids = [rng.randbytes(16) for _ in range(count)] if i % 2 else []
        stamps = [5] * count if i % 5 else []
        assert spool.append(bodies, ids, timestamps=stamps, envelopes=envelopes) == count
        kept = envelopes if any(envelopes) else []
        expected += zip(bodies, kept or [None] * count, strict=True)
        if i == 60:
            assert segments(spool.folder)[0].read_bytes().startswith(b"fcs2")
            spool.close()
            spool = Spool(tmp_path / "spool", 4 * MIB, 5000)
    found = []
    while len(found) < spool.end:
        rows = spool.read(len(found))
        found += zip(rows.bodies, rows.envelopes or [None] * len(rows.bodies), strict=True)
    assert found == expected
    spool.close()


def test_a_frame_with_envelopes_is_cut_off_where_it_is_torn(tmp_path):
    spool = Spool(tmp_path / "spool", MIB)
    spool.append([b"one"])
    (segment,) = segments(spool.folder)
    before = segment.stat().st_size
    spool.append([b"two", b"three"], envelopes=[Envelope("t").packed(), b""])
    spool.close()
    whole = segment.read_bytes()
    for size in range(before, len(whole)):
        segment.write_bytes(whole[:size])
        with contextlib.closing(Spool(tmp_path / "spool", MIB)) as again:
            assert [body for *_, body in contents(again)] == [b"one"]


class DescribedQueue(Queue):
    """Tells the topic of every message: its body."""

    def receive(self, max_messages, timeout_s):
        found = super().receive(max_messages, timeout_s)
        return [one._replace(envelope=Envelope(one.body.decode())) for one in found]


def test_a_queue_tells_envelopes_through_the_spool(tmp_path):
    asked = AskedFields(topic=True)
    source = SpooledSource(Queue([b"before"]), Spool(tmp_path / "spool", MIB))
    assert source.poll(10, 0.0)[0].envelopes is None
    source.close()
    source = SpooledSource(DescribedQueue([b"a", b"b"]), Spool(tmp_path / "spool", MIB), asked=asked)
    (first,), (second,) = source.poll(10, 0.0), source.poll(10, 0.0)
    assert (first.bodies, first.envelopes) == ([b"before"], [NOTHING])  # nobody had asked when it came
    assert (second.bodies, second.envelopes) == ([b"a", b"b"], [Envelope("a"), Envelope("b")])
    source.close()
    source = SpooledSource(DescribedQueue(), Spool(tmp_path / "spool", MIB), asked=asked)
    (chunk,) = source.poll(10, 0.0)
    assert (chunk.bodies, chunk.envelopes) == ([b"before", b"a", b"b"], [NOTHING, Envelope("a"), Envelope("b")])
    schema = Schema(
        "@broker", "s", (), "@topic", paths={"@broker": EnvelopeField("broker"), "@topic": EnvelopeField("topic")}
    )
    batch, *_ = read_messages(
        decoder_for("json", schema), chunk.offsets, chunk.timestamps_ms, [b"{}"] * 3, chunk.envelopes
    )
    assert (list(batch.users), batch.times_ms.tolist()) == (["a", "b"], chunk.timestamps_ms[1:].tolist())
    assert [(each.reason, each.field) for each in batch.rejections] == [("missing", "@topic")]
    source.close()


def test_no_message_outlives_its_windows_because_no_other_comes(tmp_path, monkeypatch):
    """The last segment was kept until it was half full: for days, if little comes."""
    with contextlib.closing(Spool(tmp_path / "spool", MIB)) as spool:
        spool.append([b"secret one", b"secret two"])
        spool.commit(1)
        assert b"secret" in b"".join(path.read_bytes() for path in segments(spool.folder))
        spool.commit(2)
        assert b"secret" not in b"".join(path.read_bytes() for path in segments(spool.folder))
        for number in range(5):  # what never rests is divided by time
            spool.append([b"secret %d" % number])
            spool.commit(2 + number)
            monkeypatch.setattr(module, "LONGEST_S", -1 if number == 2 else 600)
        left = b"".join(path.read_bytes() for path in segments(spool.folder))
        assert (b"secret 0" in left, b"secret 4" in left) == (False, True)
    with contextlib.closing(Spool(tmp_path / "spool", MIB)) as spool:
        assert (spool.position, spool.end) == (6, 7)
