"""A second run of the same command: what it finds in the ledger, beside it and in the sink, and what it says of it."""

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
    guard.unlink()
    guard.mkdir()
    found = fcstream("doctor", "c.toml")
    assert found.returncode == 0, found.stdout
    assert "warning: ledger: ledger.db-witness cannot be read and written (Is a directory)" in found.stdout
    assert "ledger.db-witness cannot be read and written" in fcstream("run", "c.toml").stderr
