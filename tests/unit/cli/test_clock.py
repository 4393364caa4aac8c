"""``fcstream clock accept``: a person has looked."""

import json
import time

import pytest
from click.testing import CliRunner
from support.helpers import counting_job

from fcstream import Engine
from fcstream.cli import main
from fcstream.config import Config
from fcstream.runtime.wall_clock import ACCEPTANCE, NOTES, ClockNote, ClockNotes, boot, elapsed_ms, wall_ms
from fcstream.service.doctor import examine


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = {"url": "http://127.0.0.1:0", "spool": "spool"}
    (tmp_path / "c.toml").write_text(counting_job(time.time() - 10, source=source, window={"clock": "wall"}))
    with Engine(Config.load("c.toml")) as engine:
        assert engine.advance()
    return tmp_path


def run(*arguments, answer="y\n"):
    return CliRunner().invoke(main, ["clock", "accept", "c.toml", *arguments], input=answer)


def clock_findings():
    return [
        each for each in examine(lambda: Config.load("c.toml")) if each.level == "problem" and each.check == "clock"
    ]


def test_it_says_what_will_happen_and_asks(folder):
    (folder / "spool").mkdir()
    notes = ClockNotes(folder / "spool")
    notes.save(ClockNote(boot(), wall_ms() - elapsed_ms() - 3_600_000, elapsed_ms()))
    assert "3,600" in clock_findings()[0].what
    found = run(answer="n\n")
    assert found.exit_code == 1
    assert "s ahead of the time that has passed" in found.output
    assert "If the clock is accepted, " in found.output
    assert not (folder / "spool" / ACCEPTANCE).exists()
    assert run().exit_code == 0
    kept = json.loads((folder / "spool" / ACCEPTANCE).read_text())
    assert abs(kept["offset_ms"] - (wall_ms() - elapsed_ms())) < 5000
    assert (folder / "spool" / ACCEPTANCE).stat().st_mode & 0o777 == 0o600


def test_a_clock_behind_the_ledger_is_told(folder):
    (folder / "spool").mkdir()
    notes = ClockNotes(folder / "spool")
    notes.save(ClockNote(boot(), wall_ms() - elapsed_ms() + 3_600_000, elapsed_ms()))
    found = run("--yes")
    assert found.exit_code == 0
    assert "s behind the time that has passed" in found.output
    assert not (folder / "spool" / NOTES).with_suffix(".new").exists()


def test_without_a_spool_there_is_nothing_to_accept(folder):
    found = run("--yes")
    assert found.exit_code == 2
    assert "no process has served this stream yet" in found.output
    (folder / "c.toml").write_text(counting_job(time.time(), source={"url": "redis://127.0.0.1:6379/0?stream=x"}))
    found = run("--yes")
    assert found.exit_code == 2
    assert "must be of a source with a spool" in found.output
