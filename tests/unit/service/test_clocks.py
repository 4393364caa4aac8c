"""Windows close by the broker's clock where it tells one, and not at all while this machine's is too far from it."""

import numpy as np
import pytest
from support.live import Live
from support.memory_log import LogSource, Rig, near

from fcstream.connectors.base import BrokerTime, Chunk
from fcstream.service.alarms import USUAL
from fcstream.service.clocks import TimestampWatch
from fcstream.service.health import Health
from fcstream.service.metrics import StreamStatus, exposition
from fcstream.service.status import answer


class Clocked(LogSource):
    """The log's broker tells its own time."""

    def clock(self):
        return BrokerTime(self.log.now_ms, self.log.newest_ms)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    monkeypatch.setattr("fcstream.service.clocks._ASK_S", 0.0)
    it = Rig(tmp_path)
    it.log.now_ms = it.log.newest_ms = 0
    opens = it.service._openers
    it.service._openers = (opens[0], lambda: Clocked(it.log), opens[2])
    return it


def step(rig, log_ms, own_ms, steps=30):
    """Some steps of the service while two clocks stand."""
    rig.log.now_ms, rig.clock.now_ms = log_ms, own_ms
    done = []

    def on_step(service):
        done.append(answer([StreamStatus("s", service)], "/ready"))
        if len(done) == steps:
            service.stop()

    opens = rig.service._openers
    rig.service.run(on_step)
    health, rig.service = rig.service._health, rig.make()
    rig.service._openers = opens
    return done[-1], health


def test_windows_close_by_the_brokers_clock(rig):
    """A reader 1.5 s ahead with 2 s of lateness closed windows before their last records came."""
    rig.send(0, np.arange(0, 10_000, 200))
    step(rig, 12_000, 13_500)
    assert rig.counts() == []
    rig.send(0, [9_999], timestamps=[12_000])
    (code, _, text), health = step(rig, 12_001, 13_501)
    near(rig.counts(), [(0, 51)])
    assert code == 200
    assert b"warning: this machine's clock is 1.5 s (\xc2\xb1 0.000) ahead of the broker's" in text
    assert health.clock_gap_ms == 1500


@pytest.mark.slow
@pytest.mark.parametrize("own_ms", [22_000, 2_000])
def test_beyond_the_lateness_nothing_is_closed_until_it_is_mended(rig, own_ms):
    rig.send(0, np.arange(0, 10_000, 200))
    (code, _, text), health = step(rig, 12_001, own_ms)
    assert rig.counts() == []
    assert code == 503
    assert b"more than window.lateness allows: set both by NTP" in text
    gap = (own_ms - 12_001) / 1000
    service = rig.make()
    service._health.clock_gap_ms = health.clock_gap_ms
    assert f'fcstream_clock_gap_seconds{{stream="s"}} {gap}'.encode() in exposition([StreamStatus("s", service)])[0]
    (code, _, text), _ = step(rig, 12_001, 12_001)
    near(rig.counts(), [(0, 50)])
    assert (code, text) == (200, b"ready\n")


def test_a_timestamp_in_the_future_makes_no_other_record_late(rig):
    """One Redis id in the future, and all later ones are after it: windows were empty from then on."""
    rig.send(0, np.arange(0, 5_000, 100))
    rig.send(0, np.arange(5_000, 10_000, 100), timestamps=[10**13 + i for i in range(50)])
    rig.send(0, [40_000], timestamps=[10**13 + 50])  # further ahead than `ahead` allows, whatever its stamp says
    rig.log.newest_ms = 10**13 + 50
    (code, _, text), _ = step(rig, 12_001, 12_001)
    near(rig.counts(), [(0, 100)])
    assert code == 200
    assert b"the broker's timestamps run" in text
    (_, _, text), _ = step(rig, 52_001, 52_001)
    near(rig.counts()[4:], [(40_000, 1)])  # read again from the stream: now it is in time


# -- brokers that do not tell their clock ------------------------------------------------------------------------------


def chunk(first, timestamps):
    return Chunk("p", np.arange(first, first + len(timestamps)), np.array(timestamps), [b""] * len(timestamps))


def test_a_clock_gap_shows_in_timestamps_after_the_end_that_was_read():
    health = Health()
    watch = TimestampWatch(2_000, health)
    watch.observe([chunk(0, [0] * 1000)], 50_000)  # a backlog says nothing
    watch.asked({"p": 1000}, 50_000)
    watch.observe([chunk(990, [100] * 10), chunk(1000, [48_500] * 50)], 51_000)
    watch.asked({"p": 1050}, 51_000)
    assert health.hold is None
    watch.observe([chunk(1050, [46_000] * 3 * USUAL)], 51_500)  # 5 s before the end was asked for, and came after it
    watch.asked({"p": 1050 + 3 * USUAL}, 52_000)
    assert health.hold is not None
    watch.observe([chunk(1050 + 3 * USUAL, [52_100] * 3 * USUAL)], 52_200)
    watch.asked({"p": 1050 + 6 * USUAL}, 52_300)
    assert health.hold is None


def test_few_odd_timestamps_hold_nothing_back():
    health = Health()
    watch = TimestampWatch(2_000, health)
    for k in range(1000):
        watch.asked({"p": 0}, 50_000)
        if k < USUAL // 4:
            watch.observe([chunk(0, [0])], 50_000)
    assert health.hold is None


# -- real brokers ------------------------------------------------------------------------------------------------------


def test_redis_a_reader_ahead_closes_by_the_servers_clock(tmp_path, redis_stream):
    client, key, url = redis_stream
    live = Live(tmp_path, url, 1_800)
    live.feed(lambda body: client.xadd(key, {"data": body}), 6)
    live.end()
    live.check()
    assert "1.8 s" in live.service.warnings["clock"]


def test_redis_a_reader_five_seconds_ahead_releases_nothing(tmp_path, redis_stream):
    """98% of the records were dropped as `window_closed`, and nearly empty windows released and charged."""
    client, key, url = redis_stream
    live = Live(tmp_path, url, 5_000)
    live.feed(lambda body: client.xadd(key, {"data": body}), 4)
    code, _, text = answer([StreamStatus("s", live.service)], "/ready")
    live.end()
    assert code == 503
    assert b"5.0 s" in text
    assert live.sink.releases == []
    assert live.service.counters.rejected == {}


def test_redis_one_id_in_the_future_empties_no_window(tmp_path, redis_stream):
    """`XADD k 9999999999999-0`, by anybody who may add: ids that the server chooses follow it from then on."""
    client, key, url = redis_stream
    live = Live(tmp_path, url, 0)
    sent = []

    def put(body):
        if len(sent) == 300:
            client.xadd(key, {"data": b"{}"}, id="9999999999999-0")
        sent.append(client.xadd(key, {"data": body}))

    live.feed(put, 7)
    code, _, text = answer([StreamStatus("s", live.service)], "/ready")
    live.end()
    assert sent[-1].startswith(b"9999999999999-")
    assert code == 200
    assert b"warning: the broker's timestamps run" in text
    assert sum(round(r.count) for r in live.sink.releases) > 450
    live.check()
