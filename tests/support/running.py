"""The command as a service, in a process of its own, on a Redis stream of its own."""

import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter

import pytest

from fcstream import Release
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

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

    def released(self, name="out.jsonl"):
        path = self.folder / name
        return [Release.from_bytes(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def wait_for(self, window_ms, name="out.jsonl"):
        until = time.monotonic() + 300
        while time.monotonic() < until:
            if any(r.window_open_ms >= window_ms for r in self.released(name)):
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
def running_service(tmp_path, redis_client):
    it = Running(tmp_path, redis_client)
    yield it
    if it.process is not None and it.process.poll() is None:
        it.process.kill()
        it.process.communicate()
    redis_client.delete(it.key, f"fcstream:{it.key}:positions")
