"""The worked examples of CONTRIBUTING.md are run, and extensions are found the way an installed package's are."""

import json
import os
import sqlite3
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support import REPOSITORY

import fcstream
from fcstream.connectors.urls import parse
from fcstream.testing import LedgerContract, SourceContract

FOLDER = REPOSITORY / "examples" / "extending"
TABLE = "CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, arrived_ms INTEGER, body BLOB)"
START_MS = 1767225600000


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """As `pip install examples/extending` would leave it: modules that can be imported, and their entry points."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {found}" for name, found in entries.items())]
    info = tmp_path / "site" / "fcstream_extending-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    for path in (FOLDER, info.parent):
        monkeypatch.syspath_prepend(path)
    return [str(FOLDER), str(info.parent)]


def publish(path, rows):
    table = sqlite3.connect(path, timeout=20)
    with table:
        table.execute(TABLE)
        table.executemany("INSERT INTO messages (arrived_ms, body) VALUES (?, ?)", rows)
    table.close()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path):
    lines = path.read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) < 60
    assert f"(examples/extending/{path.name})" in (REPOSITORY / "CONTRIBUTING.md").read_text()


class TestOutboxSource(SourceContract):
    def make(self, tmp_path):
        from outbox_source import OutboxSource

        publish(tmp_path / "app.db", [])
        return OutboxSource(parse(f"outbox://local{tmp_path}/app.db", "source.url"), "test")

    def send(self, tmp_path, bodies):
        publish(tmp_path / "app.db", [(time.time_ns() // 1_000_000, body) for body in bodies])


class TestCallsLedger(LedgerContract):
    def make(self, terms, tmp_path):
        from calls_ledger import CallsLedger

        return CallsLedger(tmp_path / "calls", terms)

    def test_a_line_that_was_cut_short_is_dropped(self, tmp_path):
        ledger = self.make(self.terms, tmp_path)
        ledger.charge([self.request(0)])
        ledger.close()
        with open(tmp_path / "calls", "ab") as file:
            file.write(b'["charge", [[0')
        for _ in range(2):
            ledger = self.make(self.terms, tmp_path)
            assert ledger.spent() == self.loss
            ledger.charge([self.request(1)])
            ledger.close()

    def test_other_terms_are_refused(self, tmp_path):
        self.make(self.terms, tmp_path).close()
        with pytest.raises(fcstream.LedgerMismatch, match="another stream"):
            self.make(self.users_terms, tmp_path)

    def test_nothing_is_charged_that_cannot_be_written(self, tmp_path):
        ledger = self.make(self.terms, tmp_path)
        ledger.close()
        with pytest.raises(fcstream.LedgerError, match="cannot be written"):
            ledger.charge([self.request(0)])


def test_the_predicate(capsys):
    import clock_predicate

    core, count = clock_predicate.usual_hours(
        np.array([*[1430, 10] * 500, 700]), fcstream.Noise(fcstream.SeededEntropy(1))
    )
    assert core[:-1].all()
    assert not core[-1]
    assert abs(count - 1001) < 50
    clock_predicate.main()
    assert "of 20 others" in capsys.readouterr().out


@pytest.mark.slow
def test_a_stream_of_nothing_but_extensions(installed, tmp_path):
    """Source, kind and ledger by their names in a configuration, through the command."""
    rng = np.random.default_rng(1)
    times = START_MS + np.sort(rng.integers(0, 600_000, 5000))
    hot = rng.random(5000) < 0.3
    bodies = [
        json.dumps({"ts_ms": int(t), "temp_c": 30.0 if h else 20.0}).encode() for t, h in zip(times, hot, strict=True)
    ]
    publish(tmp_path / "app.db", [(int(t), body) for t, body in zip(times, bodies, strict=True)])
    (tmp_path / "rooms.toml").write_text(f"""
        stream = {{ name = "rooms" }}
        lattice = {{ step = 0.001 }}
        features = [{{ name = "temp_c", min = -40.0, max = 85.0 }}]
        budget = {{ rho = 0.5, delta = 0.0 }}
        release = {{ kind = "hot", above = 25.0, rho = 0.5 }}
        source = {{ url = "outbox://local{tmp_path}/app.db" }}
        sink = {{ url = "jsonl:{tmp_path}/releases.jsonl" }}
        ledger = {{ url = "calls:{tmp_path}/calls" }}
        [window]
        length = "5m"
        clock = "broker"
        backlog = "100000d"
        start = "2026-01-01T00:00:00Z"
        end = "2026-01-01T00:10:00Z"
    """)
    command = [sys.executable, "-m", "fcstream", "doctor", "rooms.toml"]
    environment = os.environ | {"PYTHONPATH": ":".join([*installed, str(REPOSITORY)])}
    seen = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "ok: source: outbox://local" in seen.stdout
    command[-2] = "run"
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    releases = [json.loads(line) for line in Path(tmp_path / "releases.jsonl").read_text().splitlines()]
    halves = [hot[times < START_MS + 300_000].sum(), hot[times >= START_MS + 300_000].sum()]
    assert [release["kind"] for release in releases] == ["hot", "hot"]
    assert all(abs(release["value"][0] - half) < 10 for release, half in zip(releases, halves, strict=True))
