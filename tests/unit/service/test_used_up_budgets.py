"""What everybody who watches a live stream is told when its budget is used up, by a run of the command itself."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from support.helpers import counting_job, free_port
from support.live_page import listening
from support.status import ask

from fcstream.cli import main
from fcstream.releases.base import Release

TEXT = "the budget is used up: since the window that opens at"


def until(told, seconds=60):
    """What a function returns, as soon as that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = told()
        if found:
            return found
        time.sleep(0.1)
    pytest.fail("it was not told in time")


@pytest.mark.slow
def test_an_absent_rollback_guard_is_told_to_those_who_ask(tmp_path):
    """Of a copy that was restored without it nobody was told that an older one would have been taken as well."""
    port = free_port()
    job = counting_job(
        0,
        source={"url": "stdin:", "spool": "spool"},
        window={"clock": "wall", "start": "now", "backlog": None, "lateness": "0s"},
        service={"listen": f"127.0.0.1:{port}"},
    )
    (tmp_path / "c.toml").write_text(job)
    command = [sys.executable, "-m", "fcstream", "run", "c.toml"]
    for is_restored in (False, True):
        for guard in tmp_path.glob("*-witness"):
            guard.unlink()
        with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            try:

                def ready():
                    try:
                        _, text = ask(port, "/ready")
                    except OSError:
                        return None
                    # Less than a whole window is what a process that is killed may leave without a guard.
                    is_released = (out := tmp_path / "out.jsonl").exists() and out.stat().st_size
                    return text if "starting" not in text and is_released else None

                text = until(ready)
                if is_restored:
                    text = until(lambda: (found := ready()) and "witness is missing" in found and found)
                assert ("witness is missing" in text) == is_restored
            finally:
                run.send_signal(signal.SIGTERM)
                _, log = run.communicate(timeout=60)
        assert ("witness is missing" in log) == is_restored, log


@pytest.mark.slow
def test_log_ready_metric_page_report_and_exit_code_say_it(tmp_path):
    """They said nothing: windows went on as released, and lacked everybody who had been there before."""
    port = free_port()
    (tmp_path / "c.toml").write_text(
        counting_job(
            0,
            stream={"unit": "user", "user": "id"},
            source={"url": "stdin:", "spool": "spool"},
            window={"clock": "wall", "start": "now", "backlog": None, "lateness": "0s"},
            budget={"rho": 100.0},
            release={"rho": 50.0},
            service={"listen": f"127.0.0.1:{port}", "page": True, "log": "json"},
        )
    )
    command = [sys.executable, "-m", "fcstream", "run", "c.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:

            def ready():
                try:
                    code, text = ask(port, "/ready")
                except OSError:
                    return None
                assert code in (200, 503)
                return (code, text) if TEXT in text else None

            code, text = until(ready)
            assert code == 200  # it is served; its windows are refused
            assert re.search(f"live: warning: {TEXT}", text)
            _, metrics = ask(port, "/metrics")
            assert 'fcstream_budget_exhausted{stream="live"} 1.0' in metrics
            assert 'fcstream_warning{kind="budget",stream="live"} 1.0' in metrics
            with listening(port, "?stream=live") as events:
                state = events.until("state")["streams"][0]
            assert [TEXT in warning for warning in state["warnings"]] == [True]
        finally:
            run.send_signal(signal.SIGTERM)
            _, log = run.communicate(timeout=60)
    assert run.returncode == 3, log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    told = [line for line in lines if TEXT in line["event"]]
    assert [line["level"] for line in told] == ["error"]
    found = [Release.from_bytes(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [each.status for each in found[:3]] == ["released", "released", "refused"]
    report = CliRunner().invoke(main, ["report", str(tmp_path / "c.toml"), f"sqlite:{tmp_path / 'ledger.db'}"])
    assert report.exit_code == 0, report.output
    short = report.output[report.output.index('<section id="summary"') :]
    text = "The budget is used up: another window has no room and gets no value."
    assert text in short[: short.index("A program publishes about its records")]
