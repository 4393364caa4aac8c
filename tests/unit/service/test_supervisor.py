"""The service's loop on a log in memory: when it reads, closes, commits, and what it does when things break.

What real brokers do is tested with real brokers; this is about the order of things, with a clock that stands still.
"""

import json
import time
import weakref
from collections import Counter

import numpy as np
import pytest
from support import memory_log
from support.helpers import sample
from support.memory_log import WINDOW, LogSource, Rig, near
from support.queues import Queue

from fcstream import Engine
from fcstream.config import Config
from fcstream.connectors.spool import Spool
from fcstream.connectors.spooled import SpooledSource
from fcstream.errors import BudgetExhausted, ConfigError, LedgerError, LedgerMismatch, SinkError, SourceError
from fcstream.formats.decoders import Objects
from fcstream.ledgers.memory import MemoryLedger
from fcstream.service.batch import check_sink_matches_ledger
from fcstream.service.metrics import StreamStatus, exposition
from fcstream.service.session import _PartitionProgress
from fcstream.service.status import answer
from fcstream.testing import ListSink


def test_windows_close_after_lateness_and_not_before(tmp_path):
    rig = Rig(tmp_path)
    rig.send(0, np.arange(0, 10_000, 200))
    rig.clock.now_ms = 12_000  # close + lateness itself is still in time
    rig.run(30)
    assert rig.counts() == []
    assert rig.log.committed == [0, 0]  # all of it lies in an open window
    rig.clock.now_ms = 12_001
    rig.run(30)
    near(rig.counts(), [(0, 50)])
    assert rig.log.committed == [50, 0]


def test_all_that_came_before_the_close_is_read_first(tmp_path):
    """A backlog after downtime: windows are over, and nothing of them is lost."""
    rig = Rig(tmp_path)
    for p in (0, 1):
        rig.send(p, np.arange(p, 60_000, 100))
    rig.clock.now_ms = 200_000
    rig.run(10)
    near(rig.counts(), [(10_000 * k, 200) for k in range(6)])
    assert not rig.service.stopping.is_set() or rig.log.committed == [600, 600]


class WatchedSource(LogSource):
    """Notes for what the stream says that it waits while each of its methods runs."""

    def __init__(self, log, about):
        super().__init__(log)
        self._about = about

    def poll(self, max_messages, timeout_s):
        self._about("poll")
        return super().poll(max_messages, timeout_s)

    def ends(self):
        self._about("ends")
        return super().ends()

    def behind(self, ends):
        self._about("behind")
        return super().behind(ends)

    def commit(self, positions):
        self._about("commit")
        super().commit(positions)

    def close(self):
        self._about("close")

    def prefetch(self, timeout_s):
        self._about("prefetch")
        time.sleep(timeout_s)
        return True

    def rewind(self):
        return True


def test_whatever_a_source_is_asked_is_shown_while_it_does_not_answer(tmp_path, monkeypatch):
    """A broker that hangs may hang in any call."""
    rig, seen = Rig(tmp_path), Counter()

    def about(method):
        waited = rig.service.external_calls.longest()
        seen[method, None if waited is None else waited[0]] += 1

    monkeypatch.setattr(memory_log, "LogSource", lambda log: WatchedSource(log, about))
    refused = iter([SinkError("not now")])

    def write(releases):
        for error in refused:
            raise error
        ListSink.write(rig.sink, releases)

    rig.sink.write = write
    rig.send(0, np.arange(0, 30_000, 100))
    rig.clock.now_ms = 200_000
    rig.run(20)
    assert set(seen) == {(method, "source") for method in ("poll", "ends", "behind", "commit", "close", "prefetch")}


def test_replay_changes_nothing(tmp_path):
    """Stopped in the middle of a window: what was read of it is read again, what was answered is not answered again."""
    rig = Rig(tmp_path)
    rig.send(0, np.arange(0, 25_000, 100))
    rig.clock.now_ms = 12_001
    rig.run(60)
    published = list(rig.sink.releases)
    near(rig.counts(), [(0, 100)])
    assert rig.log.committed[0] <= 100
    rig.clock.now_ms = 32_001
    rig.run(200)
    assert rig.sink.releases[:1] == published
    near(rig.counts(), [(0, 100), (10_000, 100), (20_000, 50)])


def test_redelivered_messages_count_once(tmp_path):
    rig = Rig(tmp_path)
    rig.log.redeliver = True
    rig.send(0, np.arange(0, 10_000, 100))
    rig.clock.now_ms = 12_001
    rig.run(60)
    near(rig.counts(), [(0, 100)])


def test_what_restarts_leave_behind_is_collected(tmp_path):
    """Clients hold threads and sockets, and are held by their own callbacks; the collector is called seldom."""
    rig, alive = Rig(tmp_path), weakref.WeakSet()

    class Client(LogSource):
        def __init__(self, log):
            super().__init__(log)
            self.callback = self.poll
            alive.add(self)

    opens = rig.service._openers
    rig.service._openers = (opens[0], lambda: Client(rig.log), opens[2])
    rig.log.fails["poll"] = 6
    most = []

    def on_step(service):
        most.append(len(alive))
        if len(most) == 5:
            service.stop()

    rig.service.run(on_step)
    assert rig.service.counters.restarts == 6
    assert max(most) <= 2


def test_late_is_decided_by_the_brokers_timestamp_alone(tmp_path):
    rig = Rig(tmp_path)
    rig.send(0, [1000, 2000], timestamps=[12_000, 12_001])
    rig.send(1, [3000], timestamps=[3000])
    rig.send(1, [59_000], timestamps=[49_001])  # further ahead of its arrival than a window's length
    rig.clock.now_ms = 15_000
    rig.run(30)
    near(rig.counts(), [(0, 2)])


def test_records_that_are_lost_as_late_are_reported_though_counters_are_private(tmp_path, monkeypatch):
    """45,000 of them went without a sign: exact numbers are for `counters` only, that there are many is not."""
    monkeypatch.setattr("fcstream.service.alarms._ASK_S", 0.0)
    rig = Rig(tmp_path)
    rig.send(0, [1000] * 400, timestamps=[12_001] * 400)
    rig.clock.now_ms = 12_002
    service = rig.service
    watched = StreamStatus("s", service)
    assert b"warning" not in answer([watched], "/ready")[2]
    rig.run(100)
    code, _, text = answer([watched], "/ready")
    assert code == 200
    assert b"s: warning: about 100 records or more came too late for their windows" in text
    metrics = exposition([watched])[0]
    assert b'fcstream_warning{kind="late",stream="s"} 1.0' in metrics
    assert 1 <= service.counters.late_alarms <= 4
    assert b"fcstream_rejected" not in metrics


def test_lost_connections_and_rebalances_are_got_over(tmp_path):
    rig = Rig(tmp_path)
    rig.send(0, np.arange(0, 10_000, 100))
    rig.log.fails["poll"] = 3
    steps = []

    def on_step(service):
        steps.append(service.trouble)
        if len(steps) == 10:
            rig.log.generation += 1  # in the middle of a window
        if len(steps) == 60:
            rig.clock.now_ms = 12_001
        if len(steps) == 70:
            service.stop()

    rig.service.run(on_step)
    near(rig.counts(), [(0, 100)])
    assert rig.service.counters.restarts >= 4
    assert rig.opened >= 5


class Refusing(ListSink):
    def __init__(self, times):
        super().__init__()
        self.times = times

    def write(self, releases):
        if self.times:
            self.times -= 1
            raise SinkError("the sink is full")
        super().write(releases)

    def missing(self, releases):
        return [r for r in releases if r not in self.releases]


def test_a_sink_that_refuses_for_a_while_loses_nothing(tmp_path):
    rig = Rig(tmp_path)
    rig.sink = Refusing(3)
    rig.send(0, np.arange(0, 10_000, 100))
    rig.clock.now_ms = 12_001
    rig.run(30)
    near(rig.counts(), [(0, 100)])


def test_stopped_while_the_sink_refuses_the_release_is_published_later(tmp_path):
    rig = Rig(tmp_path)
    rig.sink = Refusing(10**6)
    rig.send(0, np.arange(0, 10_000, 100))
    rig.clock.now_ms = 12_001
    import threading

    threading.Timer(0.5, rig.service.stop).start()
    rig.service.run()
    assert rig.sink.releases == []
    rig.sink.times = 0
    rig.service = rig.make()
    rig.run(5)
    near(rig.counts(), [(0, 100)])


def test_a_ledger_that_is_away_for_a_while(tmp_path):
    rig = Rig(tmp_path)
    rig.send(0, np.arange(0, 10_000, 100))
    rig.clock.now_ms = 12_001
    real, left = Engine.closing, [3]

    def closing(self, now_ms=None):
        if left[0]:
            left[0] -= 1
            raise LedgerError("the ledger is unreachable")
        return real(self, now_ms)

    try:
        Engine.closing = closing
        rig.run(30)
    finally:
        Engine.closing = real
    near(rig.counts(), [(0, 100)])


def test_a_queue_that_forgets_is_emptied_while_the_ledger_is_away(tmp_path, monkeypatch):
    """Its broker may hold little; what is spooled meanwhile counts once, whatever else is made anew."""
    rig, queue, sources = Rig(tmp_path), Queue(), []

    def spooled():
        sources.append(SpooledSource(queue, Spool(tmp_path / "spool", 1 << 22, clock=lambda: rig.clock.now_ms)))
        return sources[-1]

    def body(time_ms):
        return json.dumps({"ts_ms": time_ms, "a": 20.0, "b": 50.0}).encode()

    def engine(keys):
        assert not sources or not queue.bodies  # emptied while nothing else could be done
        return opens[0](keys)

    opens = rig.service._openers
    rig.service._openers = (engine, spooled, opens[2])
    queue.send([body(t) for t in range(0, 10_000, 100)])
    rig.clock.now_ms = 11_000
    real, left = Engine.closing, [4]

    def closing(self, now_ms=None):
        if left[0]:
            left[0] -= 1
            queue.send([body(10_000 + 100 * left[0] + i) for i in range(25)])
            raise LedgerError("the ledger is unreachable")
        return real(self, now_ms)

    def on_step(service):
        rig.clock.now_ms += 100  # the first window closes in between, the second one later
        if rig.clock.now_ms > 23_000:
            service.stop()

    monkeypatch.setattr(Engine, "closing", closing)
    rig.service.run(on_step)
    assert left == [0]
    assert rig.opened == 5
    assert len(sources) == 1
    assert queue.closed
    near(rig.counts(), [(0, 100), (10_000, 100)])


def test_what_a_spool_has_dropped_and_holds_is_counted(tmp_path):
    rig, queue = Rig(tmp_path), Queue()
    queue.delivery_id = lambda received: received.body
    opens = rig.service._openers

    def spooled():
        return SpooledSource(queue, Spool(tmp_path / "spool", 1 << 22, clock=lambda: rig.clock.now_ms))

    rig.service._openers = (opens[0], spooled, opens[2])
    bodies = [json.dumps({"ts_ms": t, "a": 20.0, "b": 50.0}).encode() for t in range(0, 5000, 100)]
    queue.send(bodies)
    queue.send(bodies[:20])
    counters = rig.service.counters
    rig.clock.now_ms = 6000
    rig.run(20)
    assert (counters.messages, counters.duplicates) == (50, 20)
    assert counters.spool_bytes == sum(file.stat().st_size for file in (tmp_path / "spool").glob("*.rows")) > 0


def test_a_source_that_breaks_is_opened_anew(tmp_path):
    """Nothing of it is kept, even by one that could go on while other things are away."""
    rig, queue, sources = Rig(tmp_path), Queue(), []

    class Broken(SpooledSource):
        def poll(self, max_messages, timeout_s):
            if len(sources) == 1:
                raise SourceError("the broker went away")
            return super().poll(max_messages, timeout_s)

    def spooled():
        sources.append(Broken(queue, Spool(tmp_path / "spool", 1 << 22)))
        return sources[-1]

    rig.service._openers = (rig.service._openers[0], spooled, rig.service._openers[2])
    rig.run(3)
    assert len(sources) == 2


def test_hostile_messages_leave_the_others_alone(tmp_path):
    rig = Rig(tmp_path)
    rng = np.random.default_rng(0)
    for k in range(100):
        rig.send(0, [100 * k])
        rig.send(0, [100 * k], body=rng.bytes(int(rng.integers(0, 200))))
        rig.send(0, [100 * k], body=b'{"ts_ms": 9e15, "a": 20, "b": 50}')
    rig.clock.now_ms = 12_001
    rig.run(120)
    near(rig.counts(), [(0, 100)])
    assert rig.log.committed[0] == 300


def test_a_message_that_a_decoder_fails_at_is_left_out_alone(tmp_path, monkeypatch, caplog):
    """It would come again after every restart, and fail again, for ever."""
    rig = Rig(tmp_path)
    real = Objects.decode

    def fragile(self, lines, first, envelopes=()):
        if any(b"poison" in line for line in lines):
            raise RecursionError("sentinel")
        return real(self, lines, first, envelopes)

    monkeypatch.setattr(Objects, "decode", fragile)
    for k in range(100):
        rig.send(0, [100 * k])
    rig.send(0, [9_950], body=b"poison")
    rig.send(0, [9_960])
    rig.clock.now_ms = 12_001
    counters = rig.service.counters
    rig.run(60)
    near(rig.counts(), [(0, 101)])
    assert counters.rejected == {"broken_record": 1}
    assert counters.restarts == 0
    assert "the decoder fails (RecursionError)" in caplog.text
    assert "sentinel" not in caplog.text


@pytest.mark.parametrize("clock", ["eof", "wall"])
def test_clocks_that_a_broker_cannot_have(tmp_path, clock):
    rig = Rig(tmp_path)
    rig.config = Config.from_mapping(sample(window={**WINDOW, "clock": clock}))
    with pytest.raises(ConfigError, match="must be 'broker'"):
        rig.service.run()


def test_a_schedule_with_an_end_ends(tmp_path):
    rig = Rig(tmp_path)
    rig.clock.now_ms = 10**7
    rig.service.run()  # returns by itself
    assert len(rig.sink.releases) == 6


class Meddling(LogSource):
    """The group gives the partitions anew while a commit waits for its answer."""

    def commit(self, positions):
        super().commit(positions)
        if self.log.fails.pop("commit", 0):
            self.log.generation += 1
            self.generation, self.positions = self.log.generation, list(self.log.committed)


def test_a_rebalance_within_a_commit_loses_nothing(tmp_path):
    rig = Rig(tmp_path)
    opens = rig.service._openers
    rig.service._openers = (opens[0], lambda: Meddling(rig.log), opens[2])
    rig.send(0, np.arange(0, 20_000, 100))
    rig.clock.now_ms = 12_001
    rig.log.fails["commit"] = 1  # the first one: when window 0 is answered, and half of what was read lies in window 1
    steps = []

    def on_step(service):
        steps.append(service)
        if len(steps) == 40:
            rig.clock.now_ms = 22_001
        if len(steps) == 45:
            service.stop()

    rig.service.run(on_step)
    assert not rig.log.fails
    near(rig.counts(), [(0, 100), (10_000, 100)])


def test_progress_is_as_small_as_the_windows_that_are_open():
    rng = np.random.default_rng(0)
    progress, chunks = _PartitionProgress(), []
    for i in range(3000):
        offsets = np.arange(10 * i, 10 * i + 10)
        chunks.append((10 * i, max(-1, i // 100 + int(rng.integers(-3, 3)))))
        progress.counted(offsets, chunks[-1][1])
        opened = max(0, i // 100 - 2)
        waiting = [first for first, last in chunks if last >= opened]  # the slow twin
        assert progress.safe_offset(opened) == min(waiting, default=10 * i + 10)
        assert len(progress._waiting) <= 6


def test_a_backlog_is_read_alive_and_can_be_stopped(tmp_path):
    """However long the reading before a close takes, those who watch see it go on, and SIGTERM need not wait for it."""
    rig = Rig(tmp_path)
    rig.send(0, np.arange(0, 10_000, 10))
    rig.clock.now_ms = 12_001
    beats, real = [], LogSource.poll

    def poll(self, max_messages, timeout_s):
        beats.append(rig.service.beat)
        if len(beats) == 50:
            rig.service.stop()
        return real(self, max_messages, timeout_s)

    try:
        LogSource.poll = poll
        rig.service.run()
    finally:
        LogSource.poll = real
    assert 50 <= len(beats) <= 51
    assert len(set(beats)) >= 49
    assert rig.sink.releases == []
    rig.service = rig.make()
    rig.run(30)
    near(rig.counts(), [(0, 1000)])


def test_a_window_that_another_process_answered_meanwhile_is_no_lost_ledger(tmp_path):
    """One process has opened the ledger; another, that gives the stream away, publishes its last window after that."""
    config = Config.from_mapping(sample(window=WINDOW))
    ledger, sink = MemoryLedger(config.job.terms), ListSink()
    old, new = Engine(config, ledger=ledger), Engine(config, ledger=ledger)
    sink.write(old.advance(13_000))
    check_sink_matches_ledger(new, sink)
    ledger._sealed.clear()
    with pytest.raises(LedgerMismatch, match="the ledger was lost"):
        check_sink_matches_ledger(new, sink)


def test_a_budget_that_is_used_up_ends_the_service_where_it_shall(tmp_path):
    """`exhausted = "stop"` is no fault that goes away: starting over would read the same records for ever."""
    rig = Rig(tmp_path)
    count = {"kind": "count", "method": None, "spread": None, "radius": None, "rho": 50.0, "delta": None}
    budget = {"rho": 50.0, "total_rho": 60.0, "exhausted": "stop"}
    rig.config = Config.from_mapping(
        sample(window=WINDOW, release=count, budget=budget, ledger={"url": f"sqlite:{tmp_path / 'm.db'}"})
    )
    rig.send(0, np.arange(0, 10_000, 100))
    rig.clock.now_ms = 22_001
    with pytest.raises(BudgetExhausted):
        rig.run(20)
    near(rig.counts(), [(0, 100)])
