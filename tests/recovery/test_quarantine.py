"""A service whose decoder ends the process at one message, or takes long for each: it goes on, and it ends in time."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from support.helpers import counting_job, free_port
from support.http_in import LINES, post

SCRIPT = """
import os, re, sys, time
from fcstream.cli import main
from fcstream.service import session
whole = session.read_messages
def read_messages(decoder, offsets, times, bodies, envelopes=()):
    for body in bodies:
        if b"deadly" in body:
            os.kill(os.getpid(), 9)
        until = time.monotonic() + (0.5 if b"slow" in body else 0)
        while time.monotonic() < until:
            pass
        if b"stuck" in body:
            re.match(rb"(x+x+)+y", b"x" * 60)  # holds the interpreter's lock for years
    return whole(decoder, offsets, times, bodies, envelopes)
session.read_messages = read_messages
sys.exit(main(["run", "c.toml"]))
"""


class Service:
    def __init__(self, folder):
        self.folder, self.port, self.watch = folder, free_port(), free_port()
        changes = {
            "window": {"length": "10s", "lateness": "120s", "clock": "wall"},
            "source": {"url": f"http://127.0.0.1:{self.port}", "spool": "spool", "downtime": "60s"},
            "service": {"listen": f"127.0.0.1:{self.watch}", "counters": True},
            "dead_letter": {"url": "jsonl:letters.jsonl"},
        }
        (folder / "c.toml").write_text(counting_job(time.time_ns() // 10**9, changes))

    def start(self):
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=self.folder, stderr=log)
        return self

    def await_receiver(self):
        until = time.monotonic() + 240
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if post(self.port, b"", LINES, "/")[0] == 404:
                    return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        raise AssertionError("not ready")

    def letters(self):
        with contextlib.suppress(FileNotFoundError):
            return list(map(json.loads, (self.folder / "letters.jsonl").read_text().splitlines()))
        return []


@pytest.fixture
def it(tmp_path):
    found = Service(tmp_path).start()
    yield found
    found.process.kill()
    found.process.wait(60)


def body(text):
    now = time.time_ns() // 10**6
    return b'{"ts_ms": %d, "a": 20, "note": "%s"}\n' % (now, text.encode())


@pytest.mark.slow
def test_a_message_that_ends_the_process_is_rejected_after_two_deaths(it, tmp_path):
    assert it.await_receiver()
    deaths = 0
    for text in ["good"] * 20:
        assert post(it.port, body(text), LINES)[0] == 204
    with contextlib.suppress(OSError):  # it may be dead before it answers
        post(it.port, body("deadly"), LINES)
    it.process.wait(60)
    while it.process.poll() is not None:
        deaths += 1
        assert deaths < 4
        it.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            it.process.wait(1 if it.letters() else 20)
    assert deaths == 2
    try:
        assert it.await_receiver()
        for text in ["good"] * 5:
            assert post(it.port, body(text), LINES)[0] == 204
        until = time.monotonic() + 60
        while not it.letters() and time.monotonic() < until:
            time.sleep(0.1)
        assert [(each["reason"], each["position"], each["count"]) for each in it.letters()] == [
            ("broken_record", 20, 1)
        ]
        assert "message 20 of" in (tmp_path / "log").read_text()
        while "fcstream_records_total" in (text := metrics(it)) and time.monotonic() < until:
            if 'fcstream_records_total{stream="live"} 25.0' in text:
                break
            time.sleep(0.1)
        assert 'fcstream_records_total{stream="live"} 25.0' in text
    finally:
        it.process.send_signal(signal.SIGTERM)
        assert it.process.wait(60) == 0


def until_the_end_s(process):
    """Seconds until a process is dead, without those by which a busy machine prolongs short sleeps."""
    start, late = time.monotonic(), 0.0
    while process.poll() is None:
        begun = time.monotonic()
        assert begun < start + 60
        time.sleep(0.1)
        late += time.monotonic() - begun - 0.1
    print(f"{time.monotonic() - start:.2f} s, of which {late:.2f} s are the machine's")
    return time.monotonic() - start - late


def metrics(it):
    return urllib.request.urlopen(f"http://127.0.0.1:{it.watch}/metrics", timeout=60).read().decode()


@pytest.mark.slow
def test_a_slow_decoder_holds_up_neither_live_nor_an_end(it):
    assert it.await_receiver()
    try:
        large = body("slow" + "x" * 2**20)
        for _ in range(40):
            assert post(it.port, large, LINES)[0] == 204
        for _ in range(5):
            start = time.monotonic()
            urllib.request.urlopen(f"http://127.0.0.1:{it.watch}/live", timeout=60).close()
            assert time.monotonic() < start + 2
            time.sleep(0.2)
    finally:
        start = time.monotonic()
        it.process.send_signal(signal.SIGTERM)
        assert it.process.wait(60) == 0
    assert time.monotonic() < start + 5


@pytest.mark.slow
def test_a_decoder_that_holds_the_lock_ends_with_sigterm_and_its_message_is_rejected_after_two_ends(it, tmp_path):
    assert it.await_receiver()
    for text in ["good"] * 3:
        assert post(it.port, body(text), LINES)[0] == 204
    threading.Thread(target=post, args=(it.port, body("stuck"), LINES), daemon=True).start()  # who may get no answer
    for _ in range(2):
        time.sleep(2)
        it.process.send_signal(signal.SIGTERM)
        assert until_the_end_s(it.process) < 2
        assert it.process.wait(60) == -signal.SIGKILL
        it.start()
        while not it.letters() and "decoded one by one" not in (tmp_path / "log").read_text():
            time.sleep(0.1)
    until = time.monotonic() + 120
    while not it.letters() and time.monotonic() < until:
        time.sleep(0.1)
    assert [(each["reason"], each["position"]) for each in it.letters()] == [("broken_record", 3)]
    while (text := metrics(it)) and time.monotonic() < until:
        if 'fcstream_records_total{stream="live"} 3.0' in text:
            break
        time.sleep(0.1)
    assert 'fcstream_records_total{stream="live"} 3.0' in text
    it.process.send_signal(signal.SIGTERM)
    assert it.process.wait(60) == 0
