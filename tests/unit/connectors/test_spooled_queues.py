"""Queues behind a spool: acknowledged once what they gave is on disk, and each message once."""

import contextlib
import os
from collections import deque

import pytest
from support.queues import MIB, NamedQueue, Queue, drain

from fcstream.connectors import spool as module
from fcstream.connectors import spooled
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import SourceError

pytestmark = pytest.mark.usefixtures("much")


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
            if self.received and self.bodies:
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
        queue.bodies = deque(list(queue.bodies)[-30:])  # what the broker did see
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


class SteadyQueue(Queue):
    """A publisher sends one message for each that is taken, so that there is always one more; the broker counts."""

    gives_arrivals = False

    def receive(self, max_messages, timeout_s):
        found = super().receive(max_messages, timeout_s)
        self.send(b"later" for _ in found)
        return found

    def waiting(self):
        return len(self.bodies)


def test_a_steady_trickle_does_not_hold_up_an_end(tmp_path, monkeypatch):
    """What is sent while earlier messages are put on disk is not waited for."""
    monkeypatch.setattr(spooled, "_ENDS_S", 300.0)
    queue = SteadyQueue(b"%d" % i for i in range(10_000))
    with contextlib.closing(SpooledSource(queue, Spool(tmp_path / "spool", 64 * MIB))) as source:
        for _ in range(3):
            before = source._spool.end
            end = source.ends()["spool"]
            assert before + 10_000 <= end <= before + 10_000 + 2 * 4096
