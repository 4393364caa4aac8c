"""The command as a service, in a process of its own, on a Redis stream of its own."""

import contextlib
import json
import secrets
import subprocess
import sys
import time
import urllib.request
from collections import Counter

import pytest

from fcstream import Release
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from support import redis_server
from support.helpers import counting_job, free_port

LENGTH_MS = 1000


class Running:
    """The command in a folder of its own, on a stream of its own."""

    def __init__(self, folder, redis):
        self.folder, self.redis, self.key = folder, redis, f"test-{secrets.token_hex(6)}"
        self.port = free_port()
        self.start_ms = time.time_ns() // 10**6 // LENGTH_MS * LENGTH_MS
        self.configure()
        self.sent = Counter()
        self.process = None

    def configure(self, name="c.toml", **sections):
        """Write a configuration, with some keys of some sections changed."""
        usual = {
            "source": {"url": f"redis://127.0.0.1:6379/0?stream={self.key}&patience=2", "name": self.key},
            "dead_letter": {"url": "jsonl:dead.jsonl"},
            "service": {"listen": f"127.0.0.1:{self.port}", "counters": True, "log": "json"},
        }
        (self.folder / name).write_text(counting_job(self.start_ms // 1000, usual, **sections))

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
            with error:
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


@contextlib.contextmanager
def running(folder):
    with contextlib.closing(redis_server.connect()) as redis:
        it = Running(folder, redis)
        try:
            yield it
        finally:
            if it.process is not None and it.process.poll() is None:
                it.process.kill()
                it.process.communicate()
            redis.delete(it.key, f"fcstream:{it.key}:positions")


@pytest.fixture
def running_service(tmp_path):
    with running(tmp_path) as it:
        yield it
