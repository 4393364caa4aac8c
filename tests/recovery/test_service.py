"""``fcstream run`` beside a real Redis, as a service: it is stopped, killed and watched."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import replace

import pytest
from support.helpers import service

from fcstream import ConfigError, LedgerMismatch, Release
from fcstream.config import Config, Job
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.service.app import build

LENGTH_MS = 1000
CONFIG = """
[stream]
name = "live"
[lattice]
step = 0.001
[[features]]
name = "a"
min = 0.0
max = 40.0
[window]
length = "1s"
lateness = "2s"
clock = "broker"
start = "{start}"
backlog = "1d"
[release]
kind = "count"
rho = 50.0
[budget]
rho = 50.0
delta = 0.0
[source]
url = "redis://127.0.0.1:6379/0?stream={key}&patience=2"
name = "{key}"
[sink]
url = "jsonl:out.jsonl"
[ledger]
url = "sqlite:ledger.db"
[dead_letter]
url = "jsonl:dead.jsonl"
[service]
listen = "127.0.0.1:{port}"
counters = true
log = "json"
"""


@pytest.fixture
def redis():
    module = pytest.importorskip("redis")
    client = module.Redis(port=int(os.environ.get("FCSTREAM_REDIS_PORT", "6379")))
    service("Redis", client.ping)
    yield client
    client.close()


class Running:
    """The command in a folder of its own, on a stream of its own."""

    def __init__(self, folder, redis):
        self.folder, self.redis, self.key = folder, redis, f"test-{secrets.token_hex(6)}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start_ms = time.time_ns() // 10**6 // LENGTH_MS * LENGTH_MS
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.start_ms // 1000))
        (folder / "c.toml").write_text(CONFIG.format(start=start, key=self.key, port=self.port))
        self.sent = Counter()
        self.process = None

    def start(self, *configs):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fcstream", "run", *(configs or ["c.toml"])],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, number):
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors

    def send(self, n):
        """Records stamped now; which window each is in is what the broker and this clock agree on."""
        for _ in range(n):
            now = time.time_ns() // 10**6
            self.redis.xadd(self.key, {"data": json.dumps({"ts_ms": now, "a": 20.0})})
            self.sent[now // LENGTH_MS * LENGTH_MS] += 1

    def released(self):
        path = self.folder / "out.jsonl"
        return [Release.from_bytes(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def wait_for(self, window_ms):
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if any(r.window_open_ms >= window_ms for r in self.released()):
                return
            time.sleep(0.05)
        raise AssertionError(f"no release of {window_ms}")

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def check(self, stream=None):
        """Every window answered once and in order, with every record in it that was sent, none twice."""
        releases = self.released()
        opens = [r.window_open_ms for r in releases]
        assert opens == list(range(self.start_ms, opens[-1] + 1, LENGTH_MS))
        for r in releases:
            if r.reason == "interrupted":  # killed twice between charge and seal: given up, and paid for
                continue
            assert abs(r.count - self.sent[r.window_open_ms]) <= 1, (r.window_open_ms, r.count, self.sent)
        ledger = SQLiteLedger(str(self.folder / "ledger.db"), stream=stream)
        ledger.verify()
        assert len(ledger.charges()) >= len(releases)
        assert ledger.spent().rho == 50.0
        ledger.close()


@pytest.fixture
def running(tmp_path, redis):
    it = Running(tmp_path, redis)
    yield it
    if it.process is not None and it.process.poll() is None:
        it.process.kill()
        it.process.communicate()
    redis.delete(it.key, f"fcstream:{it.key}:positions")


def test_a_day_in_the_life_of_a_service(running):
    """Started, fed, watched, stopped by SIGTERM, started again after a pause: nothing lost, nothing twice."""
    running.start()
    running.send(100)
    running.redis.xadd(running.key, {"data": b"\xff no record"})
    running.redis.xadd(running.key, {"other": b"no body"})
    last = max(running.sent)
    running.wait_for(last)
    assert running.get("/live")[0] == 200
    assert running.get("/ready") == (200, "ready\n")
    status, text = running.get("/metrics")
    assert status == 200
    assert 'fcstream_ready{stream="live"} 1.0' in text
    assert 'fcstream_messages_total{stream="live"} 102.0' in text
    assert 'fcstream_rejected_total{reason="broken_record",stream="live"} 2.0' in text
    assert 'fcstream_budget_spent_rho{block="event",stream="live"} 50.0' in text
    assert running.get("/nothing")[0] == 404
    code, errors = running.end(signal.SIGTERM)
    assert code == 0, errors
    assert "stopped; " in errors
    assert "no record" not in errors
    running.send(150)  # while it is down
    time.sleep(1.5)
    running.start()
    running.send(50)
    running.wait_for(max(running.sent))
    code, errors = running.end(signal.SIGINT)
    assert code == 0, errors
    running.check()
    assert len((running.folder / "dead.jsonl").read_text().splitlines()) >= 2


def test_killed_again_and_again(running):
    for _ in range(4):
        running.start()
        running.send(60)
        time.sleep(0.9)
        assert running.end(signal.SIGKILL)[0] == -9
        running.send(20)
    running.start()
    running.send(20)
    running.wait_for(max(running.sent))
    assert running.end(signal.SIGTERM)[0] == 0
    running.check()


def test_a_connection_that_is_cut_is_made_again(running):
    running.start()
    for _ in range(5):
        running.send(30)
        time.sleep(0.3)
        for client in running.redis.client_list():
            if client.get("cmd", "").startswith("xread"):
                running.redis.client_kill(client["addr"])
    running.wait_for(max(running.sent))
    assert running.end(signal.SIGTERM)[0] == 0
    running.check()


def test_a_source_that_nobody_knows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = CONFIG.format(start="2026-01-01T00:00:00Z", key="k", port=1)
    (tmp_path / "c.toml").write_text(text.replace("redis://127.0.0.1:6379/0?stream=k&patience=2", "file:x"))
    with pytest.raises(ConfigError, match="must begin with one of"):
        build(Config.load(tmp_path / "c.toml")).run()


def test_several_streams_in_one_process_and_one_ledger(running):
    """Two streams of one process; a third whose ledger is about something else ends alone."""
    text = (running.folder / "c.toml").read_text()
    other = f"{running.key}-other"
    second = text.replace('name = "live"', 'name = "second"').replace(running.key, other)
    second = second.replace("out.jsonl", "second.jsonl").replace("dead.jsonl", "dead2.jsonl")
    (running.folder / "d.toml").write_text(second.partition("[service]")[0])
    third = second.replace('name = "second"', 'name = "third"').replace("second.jsonl", "third.jsonl")
    third = third.replace("dead2.jsonl", "dead3.jsonl").partition("[service]")[0]
    (running.folder / "e.toml").write_text(third)
    terms = Job.of(Config.load(running.folder / "e.toml")).terms
    SQLiteLedger(str(running.folder / "ledger.db"), replace(terms, specification="another")).close()
    running.start("c.toml", "d.toml", "e.toml")
    for _ in range(6):
        running.send(20)
        for _ in range(20):
            running.redis.xadd(other, {"data": json.dumps({"ts_ms": time.time_ns() // 10**6, "a": 20.0})})
        time.sleep(0.3)
    running.wait_for(max(running.sent))
    code, ready = running.get("/ready")
    assert code == 503
    assert ready.startswith("third: ended: ")
    metrics = running.get("/metrics")[1]
    assert 'fcstream_ready{stream="live"} 1' in metrics
    assert 'fcstream_ready{stream="second"} 1' in metrics
    code, errors = running.end(signal.SIGTERM)
    assert code == LedgerMismatch.exit_code, errors
    running.check(stream="live")
    found = [Release.from_bytes(line) for line in (running.folder / "second.jsonl").read_bytes().splitlines()]
    assert {release.stream for release in found} == {"second"}
    assert abs(sum(release.count for release in found) - 120) <= 3
    ledger = SQLiteLedger(str(running.folder / "ledger.db"), stream="second")
    assert ledger.verify() == 1 + 3 * len(found)  # which window was the first is a row, too
    ledger.close()
    running.redis.delete(other)


def test_streams_of_one_process_have_names_of_their_own(running):
    running.start("c.toml", "c.toml")
    _, errors = running.process.communicate(timeout=120)
    assert running.process.returncode == 2
    assert "stream.name: must be another one for each configuration, 'live' comes twice" in errors


def test_a_stream_that_would_never_release_is_refused(running):
    path = running.folder / "c.toml"
    mean = "radius = 1.0\nrho = 0.1\ndelta = 1e-9\nsize_hint = 20"
    path.write_text(path.read_text().replace('kind = "count"\nrho = 50.0', mean).replace("delta = 0.0", "delta = 1e-6"))
    running.start("c.toml")
    _, errors = running.process.communicate(timeout=120)
    assert running.process.returncode == 2
    assert "would release with probability 0%" in errors
    assert not (running.folder / "ledger.db").exists()


@pytest.mark.parametrize("start", ["now", "2020-01-01T00:00:00Z"])
def test_a_service_begins_with_its_first_run_and_misses_nothing_after_it(running, start):
    """A start years ago was 200 million refusals before the first answer; records from before are nobody's."""
    config = running.folder / "c.toml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith(("start =", "backlog ="))]
    at = lines.index("[window]") + 1
    config.write_text("\n".join([*lines[:at], f'start = "{start}"', *lines[at:]]))
    running.send(5)
    time.sleep(2.2)
    began_ms = time.time_ns() // 10**6
    running.start()
    running.wait_for(began_ms // LENGTH_MS * LENGTH_MS)
    first = running.released()[0].window_open_ms
    assert began_ms // LENGTH_MS * LENGTH_MS - LENGTH_MS <= first
    running.send(30)
    running.wait_for(max(running.sent))
    assert running.end(signal.SIGTERM)[0] == 0
    time.sleep(2.5)  # what is missed from now on is answered
    running.start()
    running.send(30)
    running.wait_for(max(running.sent))
    assert running.end(signal.SIGTERM)[0] == 0
    running.start_ms = first
    running.check()
