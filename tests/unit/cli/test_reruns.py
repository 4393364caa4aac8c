"""A second run of the same command: what it finds in the ledger, beside it and in the sink, and what it says of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
[stream]
name = "visits"
[window]
length = "1h"
start = "2026-01-01T00:00:00Z"
end = "2026-01-01T04:00:00Z"
[release]
kind = "count"
rho = 0.5
[budget]
rho = 0.5
delta = 0.0
[source]
url = "jsonl:in.jsonl"
[sink]
url = "jsonl:out.jsonl"
[ledger]
url = "sqlite:ledger.db"
"""


def fcstream(*args):
    return subprocess.run([sys.executable, "-m", "fcstream", *args], capture_output=True, text=True)


@pytest.fixture
def out(tmp_path, monkeypatch):
    """Return the sink of a first run, which is over."""
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(CONFIG)
    Path("in.jsonl").write_text("".join(f'{{"ts_ms": {1767225600000 + i * 60_000}}}\n' for i in range(240)))
    first = fcstream("run", "c.toml")
    assert first.returncode == 0, first.stderr
    return tmp_path / "out.jsonl"


def test_a_dead_rollback_guard_is_told(out):
    """`run` said nothing of it, and `doctor` that an older copy would be noticed."""
    guard = Path("ledger.db-witness")
    assert "ok: ledger: ledger.db-witness is there" in fcstream("doctor", "c.toml").stdout
    guard.write_bytes(b"")
    assert "warning: ledger: ledger.db-witness has seen no journal row" in fcstream("doctor", "c.toml").stdout
    again = fcstream("run", "c.toml")
    assert again.returncode == 0
    assert "ledger.db-witness has seen no journal row" in again.stderr
    guard.unlink()  # as of a copy that was restored without it
    assert "warning: ledger: ledger.db-witness is missing" in fcstream("doctor", "c.toml").stdout
    assert "ledger.db-witness is missing" in fcstream("run", "c.toml").stderr
    assert "ledger.db-witness is there" in fcstream("doctor", "c.toml").stdout
    guard.unlink()
    guard.mkdir()
    found = fcstream("doctor", "c.toml")
    assert found.returncode == 0, found.stdout
    assert "warning: ledger: ledger.db-witness cannot be read and written (Is a directory)" in found.stdout
    assert "ledger.db-witness cannot be read and written" in fcstream("run", "c.toml").stderr


def test_a_lost_ledger_is_noticed_though_another_stream_wrote_last(out):
    """Only the last line of the file was looked at, and all windows were released a second time."""
    Path("other.toml").write_text(CONFIG.replace('"visits"', '"other"').replace("ledger.db", "other.db"))
    assert fcstream("run", "other.toml").returncode == 0
    Path("ledger.db").unlink()
    Path("ledger.db-witness").unlink()
    before = out.read_bytes()
    again = fcstream("run", "c.toml")
    assert again.returncode == 2, again.stderr
    assert "of 'visits', the ledger does not know it: the ledger was lost or exchanged" in again.stderr
    assert out.read_bytes() == before


def test_lines_of_another_program_in_the_sink_are_told(out):
    """They ended in an internal error (DecodeError)."""
    with out.open("a") as file:
        file.write("garbage\n")
    again = fcstream("run", "c.toml")
    assert again.returncode == 1
    assert "out.jsonl must hold nothing but releases, its line 1 from the end is none: remove" in again.stderr
    assert "garbage" not in again.stderr


@pytest.mark.parametrize(("left", "what"), [(0, "holds no"), (2, "ends at window 1767229200000"), (3.5, "ends at")])
def test_releases_that_the_sink_has_lost_are_told(out, left, what):
    """The run said that they stay as they are, although nobody has them any more."""
    assert "warning" not in fcstream("run", "c.toml").stderr
    lines = out.read_bytes().splitlines(keepends=True)
    cut = lines[int(left)][:20] if left % 1 else b""
    out.write_bytes(b"".join(lines[: int(left)]) + cut) if left else out.unlink()
    again = fcstream("run", "c.toml", "--json")
    assert again.returncode == 0
    [warning] = json.loads(again.stderr.splitlines()[-1])["warnings"]
    assert f"the sink {what}" in warning
    assert "`fcstream budget releases`" in warning
    assert "4 windows were answered by an earlier run" in fcstream("run", "c.toml").stderr
