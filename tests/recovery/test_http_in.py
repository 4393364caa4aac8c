"""A receiver over HTTP that is killed: what was answered is stored, and what is sent again is stored once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from support.helpers import counting_job, free_port
from support.http_in import JSON, LINES, connect, post, request, status, stored
from support.http_in import serving as serving_here

from fcstream import Release

RECEIVER = """
import os, signal, sys, time
from pathlib import Path
from support.http_in import pushed
from fcstream.connectors.http.source import HttpReceiver

folder, url = Path(sys.argv[1]), sys.argv[2]
acknowledge = HttpReceiver.acknowledge

def last(self, received):
    if received and (folder / "die").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    acknowledge(self, received)

HttpReceiver.acknowledge = last
pushed(folder, url)
print("ready", flush=True)
time.sleep(3600)
"""


@contextlib.contextmanager
def child(folder, port):
    """A process of its own with a receiver."""
    process = subprocess.Popen(
        [sys.executable, "-c", RECEIVER, str(folder), f"http://127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_kill_between_fsync_and_answer_loses_and_repeats_nothing(tmp_path):
    port = free_port()
    keyed = {"Idempotency_Key": "one"}
    with child(tmp_path, port) as process:
        (tmp_path / "die").touch()
        with connect(port) as connection:
            connection.sendall(request(b'{"t": 1}', **keyed))
            assert status(connection) == 0
        assert process.wait(60) == -signal.SIGKILL
    (tmp_path / "die").unlink()
    with child(tmp_path, port), connect(port) as connection:
        connection.sendall(request(b'{"t": 1}', **keyed))
        assert status(connection) == 204
    with serving_here(tmp_path) as source:
        assert stored(source) == [b'J{"t": 1}']


@pytest.mark.slow
def test_senders_who_repeat_are_stored_once_through_kills_at_any_moment(tmp_path):
    port, done, sent = free_port(), threading.Event(), Counter()

    def send(name):
        number = 0
        while not done.is_set():
            number += 1
            body = json.dumps({"sender": name, "number": number}).encode()
            while True:
                try:
                    if post(port, body, JSON | {"Idempotency-Key": f"{name}-{number}"})[0] == 204:
                        break
                except (OSError, ValueError, EOFError):
                    time.sleep(0.02)
                except Exception:  # of http.client: an answer that ends
                    time.sleep(0.02)
            sent[name] = number

    senders = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    draw = random.Random(1)
    for turn in range(6):
        with child(tmp_path, port):
            if turn == 0:
                for each in senders:
                    each.start()
            before = sent.total()
            until = time.monotonic() + 60
            while sent.total() < before + 20 and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(draw.random() / 5)
            if turn == 5:
                done.set()
                for each in senders:
                    each.join(60)
                    assert not each.is_alive()
    with serving_here(tmp_path) as source:
        found = Counter(body[1:] for body in stored(source))
    assert set(found.values()) == {1}
    assert len(found) == sent.total() >= 100


@pytest.mark.slow
def test_a_stream_counts_what_is_posted_though_its_process_is_killed(tmp_path):
    port, watch = free_port(), free_port()
    start_s = time.time_ns() // 10**9
    lateness_s = 20  # a start of the process on a busy machine
    changes = {
        "window": {"length": "1s", "lateness": f"{lateness_s}s", "clock": "wall"},
        "source": {"url": f"http://127.0.0.1:{port}", "spool": "spool", "downtime": "60s"},
        "service": {"listen": f"127.0.0.1:{watch}", "counters": True},
    }
    (tmp_path / "c.toml").write_text(counting_job(start_s, changes))
    sent = Counter()

    def start():
        process = subprocess.Popen([sys.executable, "-m", "fcstream", "run", "c.toml"], cwd=tmp_path)
        until = time.monotonic() + 240
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError):
                if post(port, b"", JSON, "/")[0] == 404:
                    return process
            time.sleep(0.05)
        raise AssertionError("not ready")

    def send(count):
        for number in range(count):
            now = time.time_ns() // 10**6
            lines = b"".join(b'{"ts_ms": %d, "a": %d}\n' % (now, k) for k in range(3)) + b"broken\n"
            assert post(port, lines, LINES | {"Idempotency-Key": f"{now}-{number}"})[0] == 204
            sent[now // 1000 * 1000] += 3

    process = start()
    try:
        send(30)
        process.kill()
        process.wait(60)
        process = start()
        send(30)
        assert post(port, b"{")[0] == 400
        until = time.monotonic() + 240
        released = {}
        while not set(sent) <= set(released) and time.monotonic() < until:
            time.sleep(0.2)
            with contextlib.suppress(FileNotFoundError):
                lines = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
                found = [Release.from_bytes(line) for line in lines if line.endswith(b"\n")]
                released = {each.window_open_ms: each.count for each in found}
        for opened, count in sent.items():
            assert abs(released[opened] - count) <= 2, (opened, released, sent)
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{watch}/metrics", timeout=60).read().decode()
        assert 'fcstream_bodies_refused_total{reason="broken",stream="live"} 1.0' in metrics
        assert 'fcstream_bodies_refused_total{reason="not_found",stream="live"}' in metrics
        ready = urllib.request.urlopen(f"http://127.0.0.1:{watch}/ready", timeout=60).read().decode()
        assert "senders are refused (not_found)" in ready
        assert "broken" not in ready
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
