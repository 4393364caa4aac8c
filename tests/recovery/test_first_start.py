"""The first start of a service, on a machine on which nothing is compiled yet."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter

import pytest
from support.helpers import counting_job, free_port
from support.http_in import LINES, post

from fcstream import Release

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def service(folder):
    port, status = free_port(), free_port()
    sections = {
        "source": {"url": f"http://127.0.0.1:{port}", "spool": "spool"},
        "window": {"clock": "wall", "lateness": "1s", "backlog": None, "start": "now"},
        "service": {"listen": f"127.0.0.1:{status}", "log": "json"},
    }
    (folder / "c.toml").write_text(counting_job(time.time(), **sections))
    process = subprocess.Popen(
        [sys.executable, "-m", "fcstream", "run", "c.toml"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")},
    )
    try:
        yield process, port, status
    finally:
        process.kill()
        process.communicate()


def ready(status):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{status}/ready", timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
    except OSError:
        return ""


def test_it_says_that_it_compiles_and_begins_with_the_window_of_its_start(tmp_path):
    """For up to 50 s the log was empty, nothing listened, and the first window was the one after that."""
    sent, told, first = Counter(), [], None
    with service(tmp_path) as (process, port, status):
        until = time.monotonic() + 300
        while time.monotonic() < until:
            time.sleep(0.1)
            now = time.time_ns() // 10**6
            record = json.dumps({"ts_ms": now, "a": 20.0}).encode() + b"\n"
            with contextlib.suppress(OSError):
                assert post(port, record, LINES)[0] in (200, 202, 204)
                sent[now // 1000 * 1000] += 1
                first = first or now
            if first is not None:
                told.append(ready(status))
            path = tmp_path / "out.jsonl"
            if path.exists() and len(path.read_bytes().splitlines()) > 12:
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    found = [Release.from_bytes(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert any("what windows need is compiled" in each for each in events), events
    seconds = next(int(hit[1]) for each in events if (hit := re.search(r"compiled in (\d+) s; the next start", each)))
    assert str(tmp_path / "cache") in errors
    assert any("what windows need is compiled" in each for each in told)
    assert first is not None
    assert found[0].window_open_ms <= first // 1000 * 1000  # the window of the start
    for each in found:
        assert abs(round(each.count) - sent[each.window_open_ms]) <= 2, (each, sent)
    compiling = sum(sent[each.window_open_ms] for each in found if each.window_open_ms < first + 1000 * (seconds - 2))
    assert compiling > 0 or seconds <= 3  # what came while it compiled is among it


def test_it_ends_when_it_is_told_to_while_it_compiles(tmp_path):
    with service(tmp_path) as (process, _, status):
        until = time.monotonic() + 120
        while "compiled" not in ready(status) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert time.monotonic() - asked < 10
    assert "stopped; 0 windows released" in errors
