"""Bursts of messages that come while nobody takes them: all of them are kept, whatever stalls on our side."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from support.mqtt import MqttClient, drain, queue, spooled
from support.queues import MIB

from fcstream.connectors.pushed import SharedSpool
from fcstream.connectors.received import ReceivedSource
from fcstream.errors import ConfigError, SourceError

BURST = 6000
CONSUMER = """
import sys
from pathlib import Path
from fcstream.connectors.mqtt.source import MqttTopic
from fcstream.connectors.pushed import SharedSpool
from fcstream.connectors.received import ReceivedSource
from fcstream.connectors.urls import parse

queue = MqttTopic(parse(sys.argv[1], "source.url"), "consumer")
source, found = ReceivedSource(queue, SharedSpool(Path(sys.argv[2]), 1 << 26)), 0
print(found, flush=True)
while True:
    chunks = source.poll(4096, 1.0)
    if chunks:
        found += sum(len(chunk.bodies) for chunk in chunks)
        source.commit({"spool": found})
        print(found, flush=True)
"""


def until(is_so, seconds=60.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def publisher(mosquitto):
    with contextlib.closing(MqttClient(mosquitto.host)) as client:
        yield client


def test_bursts_while_the_process_stands_still(mosquitto, publisher, tmp_path):
    """Of 6,000 messages in three seconds 4,000 were dropped: a broker kept 1,000 besides 1,000 sent ahead."""
    command = [sys.executable, "-c", CONSUMER, f"mqtt://{mosquitto.host}/burst", str(tmp_path / "spool")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        counts = [-1]
        threading.Thread(target=lambda: counts.extend(map(int, process.stdout)), daemon=True).start()
        try:
            until(lambda: counts[-1] == 0)
            for burst in range(10):
                os.kill(process.pid, signal.SIGSTOP)
                stopped = time.monotonic()
                publisher.publish("burst", [b"%d" % i for i in range(BURST)])
                time.sleep(max(0.0, 3.0 - (time.monotonic() - stopped)) if burst == 0 else 0.0)
                os.kill(process.pid, signal.SIGCONT)
                until(lambda wanted=BURST * (burst + 1): counts[-1] == wanted)
        finally:
            os.kill(process.pid, signal.SIGCONT)
            process.kill()


def test_bursts_while_nobody_polls(mosquitto, publisher, tmp_path):
    """The window is closing, or the ledger is away: the thread receives and acknowledges all the same."""
    with spooled(tmp_path, "stall", "inflight=1000", host=mosquitto.host) as source:
        assert source.poll(10, 0.1) == []
        for first in range(0, BURST, 500):
            publisher.publish("stall", [b"%d" % i for i in range(first, first + 500)])
            until(lambda stored=first + 500: source._spool.end == stored)
        assert drain(source, BURST) == [b"%d" % i for i in range(BURST)]
        assert source.ends() == {"spool": BURST}
    with contextlib.closing(queue("stall", host=mosquitto.host)) as left:
        assert left.receive(10, 0.3) == []


def test_what_the_thread_raises_the_next_call_raises(mosquitto, publisher, tmp_path):
    with spooled(tmp_path, "t", "patience=0.3", host=mosquitto.host) as source:
        publisher.publish("t", [b"1"])
        assert drain(source, 1) == [b"1"]
        mosquitto.stop()
        for _ in range(2):
            with pytest.raises(SourceError, match="cannot be used"):
                until(lambda: source.poll(1, 1.0) and None)
        mosquitto.start()
        with contextlib.closing(MqttClient(mosquitto.host)) as again:
            again.publish("t", [b"2"])
            found = []
            while b"2" not in found:
                with contextlib.suppress(SourceError):
                    found += [body for chunk in source.poll(10, 1.0) for body in chunk.bodies]


def test_a_session_that_was_lost_while_away_is_a_gap(mosquitto, tmp_path):
    with spooled(tmp_path, "away", "session=1", host=mosquitto.host) as source:
        source.poll(1, 0.1)
        assert source.gaps() == []
    time.sleep(2.5)
    with spooled(tmp_path, "away", "session=60", host=mosquitto.host) as source:
        [gap] = source.gaps()
        assert "kept nothing while this process was away" in gap.what
        assert source.gaps() == []
        source.poll(1, 0.1)
    with spooled(tmp_path, "away", "session=60", host=mosquitto.host) as source:
        assert source.gaps() == []


def test_a_session_that_a_broker_forgot_while_it_was_away_is_a_gap_from_then_on(mosquitto, tmp_path):
    """What was asked for once messages came again said that none before that moment is missing."""
    with spooled(tmp_path, "lost", host=mosquitto.host) as source:
        source.poll(1, 0.5)
        stopped_ms = time.time_ns() // 1_000_000
        mosquitto.stop()
        for file in (tmp_path / "broker").glob("*.db*"):
            file.unlink()
        time.sleep(1.0)
        mosquitto.start()
        found = []
        until(lambda: source.poll(1, 0.3) or found.extend(source.gaps()) or found)
        assert "had forgotten the session" in found[0].what
        assert stopped_ms - 1_000 < found[0].since_ms <= stopped_ms + 300
        source.poll(1, 0.3)
        assert (len(found), source.gaps()) == (1, [])


def test_a_spool_that_remembers_less_than_may_come_again_is_refused(mosquitto, tmp_path):
    spool = SharedSpool(tmp_path / "spool", 16 * MIB)
    for options, is_fine in (("delivery_id=id", False), ("delivery_id=id&inflight=16384", True), ("", True)):
        with contextlib.closing(queue("t", options, host=mosquitto.host, name=f"c{is_fine}")) as opened:
            if is_fine:
                ReceivedSource(opened, spool)
            else:
                with pytest.raises(ConfigError, match="remembers the last 16384 messages, and 65535 may come again"):
                    ReceivedSource(opened, spool)
    spool.close()
