"""What a run says while it works, at its end to programs, and when it is told to stop."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from fcstream.cli import main
from fcstream.config import Config
from fcstream.connectors import open_source
from fcstream.runtime.compile_cache import watching_compilation
from fcstream.service.batch import Pace

CONFIG = """
stream.name = "t"
lattice.step = 0.001
features = [{name = "a", min = 0.0, max = 40.0}]
window = {length = "10s", start = "1970-01-01T00:00:00Z", end = "1970-01-01T00:01:00Z"}
release = {RELEASE}
budget = {rho = 1.0, delta = 1e-6}
source.url = "jsonl:in.jsonl"
sink.url = "jsonl:out.jsonl"
ledger.url = "sqlite:l.db"
"""
COUNT = '{kind = "count", rho = 1.0}'
BALL = '{kind = "mean", method = "ball", radius = 40.0, center = [20.0], rho = 1.0, size_hint = 300}'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, COUNT, 600)
    return tmp_path


def write(folder, release, records):
    (folder / "c.toml").write_text(CONFIG.replace("{RELEASE}", release))
    lines = "".join(f'{{"ts_ms": {i % 60_000}, "a": 20.5}}\n' for i in range(records))
    (folder / "in.jsonl").write_text(lines)


def on_terminal(*command, program=("-m", "fcstream"), **more):
    """What a command writes to a terminal as its standard error, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *program, *command], stderr=theirs, stdout=subprocess.PIPE, env={**os.environ, **more}
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        text += part
    process.communicate()
    os.close(ours)
    return text.decode(), process.returncode


@pytest.mark.slow
def test_a_terminal_says_that_functions_are_compiled(folder):
    """Nothing was said for 14 s."""
    write(folder, BALL, 600)
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    text, code = on_terminal("run", "c.toml", NUMBA_CACHE_DIR=str(cache))
    assert code == 0, text
    assert "compiling for the first time, which later runs do without (1 function so far)" in text
    assert "6 windows: " in text
    for _ in range(4):  # which functions a run needs depends on its noise too
        for name in ("l.db", "l.db-witness", "out.jsonl"):
            (folder / name).unlink()
        text, code = on_terminal("run", "c.toml", NUMBA_CACHE_DIR=str(cache))
        assert code == 0, text
        if "compiling" not in text:
            break
    assert "compiling" not in text


def test_who_watches_hears_of_every_compilation():
    from fcstream._kernels import njit

    heard = []
    with watching_compilation(lambda: heard.append(1)):
        njit(lambda x: x + 1)(1)
        assert heard
    before = len(heard)
    njit(lambda x: x + 2)(1)
    assert len(heard) == before


@pytest.mark.slow
def test_a_terminal_shows_percent_and_time_left(folder):
    write(folder, COUNT, 200_000)
    # Every line that could be told is told: how many fit into half a second is the machine's affair.
    code = "from fcstream.service import batch; from fcstream.cli import main; batch.PAUSE_S = 0; main()"
    text, code = on_terminal("run", "c.toml", program=["-c", code])
    assert code == 0
    found = re.findall(r"([\d,]+) records read, (\d+)%(?:, about (\d+) s left)?", text)
    assert found, text
    shares = [int(share) for _, share, _ in found]
    assert shares == sorted(shares)
    assert any(left for _, _, left in found)


def test_how_far_a_file_is_read(folder):
    import gzip

    job = Config.load("c.toml").job
    write(folder, COUNT, 100_000)
    (folder / "in.jsonl.gz").write_bytes(gzip.compress((folder / "in.jsonl").read_bytes()))
    for name in ("in.jsonl", "in.jsonl.gz"):
        source = open_source(f"jsonl:{name}", job.schema)
        parts = []
        while source.poll(8192) is not None:
            parts.append(source.part_read())
        assert parts == sorted(parts)
        assert parts[0] < 0.9
        assert parts[-1] == 1
        source.close()
        assert source.part_read() is None
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"cat in.jsonl > {pipe}"])
    source = open_source(f"jsonl:{pipe}", job.schema)
    assert source.poll(10) is not None
    assert source.part_read() is None
    source.close()
    writer.wait()


def test_time_left_is_in_proportion(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = Pace()
    assert pace.text(0.0) == ", 0%"
    assert pace.text(None) == ""
    now[0] += 30
    assert pace.text(0.25) == ", 25%, about 90 s left"
    assert pace.text(0.01) == ", 1%, about 50 min left"
    assert pace.text(1.0) == ", 100%, about 0 s left"


def test_a_summary_for_programs(folder):
    done = CliRunner().invoke(main, ["run", "c.toml", "--json"])
    assert done.exit_code == 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()  # nothing else is on standard error
    told = json.loads(line)
    assert (told["stream"], told["records"], told["released"], told["refused"]) == ("t", 600, 6, {})
    assert told["spent"] == {"rho": 1.0, "delta": 0.0}
    assert told["guarantee"] == {"rho": 1.0, "delta": 1e-6}
    assert told["new_ledger"] is True
    again = json.loads(CliRunner().invoke(main, ["run", "c.toml", "--json"]).stderr)
    assert (again["already_answered"], again["replayed"], again["new_ledger"]) == (6, 600, False)


def test_a_summary_for_programs_holds_warnings_hints_and_the_exit_code(folder):
    config = (folder / "c.toml").read_text()
    config = config.replace("budget = {", 'budget = {exhausted = "refuse", total_rho = 2.0, ').replace(
        COUNT, '{kind = "quantiles", rho = 1.0, feature = "a", quantiles = [0.5]}'
    )
    (folder / "c.toml").write_text(config)
    (folder / "in.jsonl").write_text('{"ts_ms": 1, "a": 20.5}\n')
    done = CliRunner().invoke(main, ["run", "c.toml", "--json"])
    told = json.loads(done.stderr)
    assert set(told["refused"]) == set(told["hints"])
    assert all(told["hints"].values())
    assert (done.exit_code == 3) == ("budget_exhausted" in told["refused"])


def end(process, number):
    """What a process says when it is ended; asked again if a signal came where Python drops what its handler raises."""
    for _ in range(20):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=10)[1], process.returncode
    raise AssertionError("the process goes on")


@pytest.mark.slow
def test_sigterm_ends_a_run_over_files_as_an_interrupt_does(folder):
    """It killed the process in mid-step, with exit code -15 and without a word."""
    told = []
    for number in (signal.SIGINT, signal.SIGTERM):
        os.mkfifo("pipe")
        process = subprocess.Popen(
            [sys.executable, "-m", "fcstream", "run", "c.toml", "--source", "jsonl:pipe"],
            stderr=subprocess.PIPE,
            text=True,
        )
        with open("pipe", "w") as pipe:  # it reads now, and waits for more
            pipe.write('{"ts_ms": 1, "a": 20.5}\n' * 50_000)
            pipe.flush()
            time.sleep(1.0)
            told.append(end(process, number))
        os.unlink("pipe")
    assert told[0] == told[1]
    assert told[0][1] == 130
    assert "interrupted; what was sealed is in the ledger" in told[0][0]
    done = CliRunner().invoke(main, ["run", "c.toml"])
    assert done.exit_code == 0
    assert "6 windows: 6 released" in done.stderr


def test_a_plan_for_programs_is_not_disturbed(folder):
    done = CliRunner().invoke(main, ["plan", "c.toml", "--json"])
    assert done.exit_code == 0
    assert np.isfinite(json.loads(done.stdout)["probability"])
    assert done.stderr == ""


@pytest.mark.slow
def test_releases_on_the_same_terminal_stand_on_lines_of_their_own(folder):
    """The line that moves was left before them."""
    write(folder, COUNT, 1_000_000)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fcstream", "run", "c.toml", "--sink", "jsonl:-"]
    process = subprocess.Popen(command, stderr=theirs, stdout=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            text += os.read(ours, 4096)
        except OSError:
            break
    assert process.wait() == 0
    os.close(ours)
    lines = [line for line in text.decode().splitlines() if '{"stream"' in line]
    assert len(lines) == 6
    assert all(line.rpartition("\x1b[K")[2].startswith('{"stream"') for line in lines)
    assert "records read" in text.decode()
