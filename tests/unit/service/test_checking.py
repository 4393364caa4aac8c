"""The look at a file's first lines: a slip of the configuration stops a run before it costs anything."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fcstream.cli import main
from fcstream.config import Config
from fcstream.connectors import open_source
from fcstream.service.checking import SampledSource

CONFIG = """
[stream]
name = "t"
time = "at"
time_unit = "{unit}"
{extra}
[lattice]
step = 0.001
[[features]]
name = "{feature}"
min = {low}
max = {high}
[window]
length = "1h"
start = "2026-01-01T00:00:00Z"
end = "2026-01-02T00:00:00Z"
[release]
kind = "count"
rho = 0.1
[budget]
rho = 9.0
delta = 1e-6
[source]
url = "jsonl:in.jsonl"
[sink]
url = "jsonl:out.jsonl"
[ledger]
url = "sqlite:ledger.db"
"""
NOON_MS = 1_767_268_800_000
SECRET = "s3cretWord"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, records, **changes):
    values = {"unit": "ms", "feature": "speed", "low": 0.0, "high": 100.0, "extra": ""} | changes
    (folder / "c.toml").write_text(CONFIG.format(**values))
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))


def call(*args, **options):
    return CliRunner().invoke(main, [str(each) for each in args], **options)


GOOD = {"at": NOON_MS, "speed": 12.5, "who": "a", "room": "x"}
SLIPS = {
    "a feature that is misspelled": (GOOD, {"feature": "sped"}, "missing 'sped'", "the names of `[[features]]`"),
    "a user field that is not there": (
        GOOD,
        {"extra": 'unit = "user"\nuser = "whom"'},
        "missing 'whom'",
        "check `stream.user` (field 'whom')",
    ),
    "a key field that is not there": (
        GOOD,
        {"extra": 'key = "hall"\nkeys = ["y", "z"]'},
        "missing 'hall'",
        "check `stream.key` (field 'hall')",
    ),
    "a time field that is not there": (
        {name: value for name, value in GOOD.items() if name != "at"},
        {},
        "missing 'at'",
        "check `stream.time` (field 'at')",
    ),
    "times that are no ISO 8601": (GOOD, {"unit": "iso8601"}, "bad_time 'at'", "like 2016-03-15T00:00:00Z"),
    "texts that mean no value": (GOOD | {"speed": "n/a"}, {}, "not_a_number 'speed'", "no value go in `missing`"),
    "seconds given as milliseconds": (GOOD | {"at": NOON_MS // 1000}, {}, "time_out_of_range 'at'", "'s' would bring"),
    "milliseconds given as seconds": (GOOD, {"unit": "s"}, "time_out_of_range 'at'", "'ms' would bring"),
    "text times": (GOOD | {"at": "2026-01-01T12:00:00Z"}, {}, "bad_time 'at'", "`stream.time_unit`"),
    "decimal commas": (GOOD | {"speed": "12,5"}, {}, "not_a_number 'speed'", "`[[features]]`"),
    "a wrong range": (GOOD, {"low": 20.0}, "out_of_range 'speed'", "`min` and `max` of `[[features]]`"),
    "keys that are not declared": (
        GOOD,
        {"extra": 'key = "room"\nkeys = ["y", "z"]'},
        "unknown_key 'room'",
        "`stream.key` and `stream.keys`",
    ),
    "another format": (f"12.5;{NOON_MS};{SECRET}", {}, "broken_record", "`source.url` names the format"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_stops_a_run_before_anything_is_charged_and_says_which_field(folder, slip):
    record, changes, reason, remedy = SLIPS[slip]
    write(folder, [record] * 30, **changes)
    done = call("run", "c.toml")
    assert done.exit_code == 2
    assert f"none of the first 30 lines can (30 {reason})" in done.stderr
    assert remedy in done.stderr
    assert "nothing was charged" in done.stderr
    assert SECRET not in done.output
    assert not os.path.exists("ledger.db")  # a correction starts with a ledger of its own
    assert not os.path.exists("out.jsonl")
    looked = call("check", "c.toml")
    assert looked.exit_code == 2
    assert f"30: {reason}" in looked.output
    assert call("run", "c.toml", "--unchecked").exit_code == 0


def test_one_line_that_can_be_used_is_enough(folder):
    write(folder, ["junk"] * 20 + [GOOD] + ["junk"] * 2000)
    done = call("run", "c.toml")
    assert done.exit_code == 0
    assert "24 windows" in done.stderr
    assert "2021 records read, 2020 rejected" in done.stderr  # what was looked at is read once


def test_only_the_first_thousand_lines_are_looked_at(folder):
    write(folder, ["junk"] * 1000 + [GOOD])
    assert call("run", "c.toml").exit_code == 2
    write(folder, ["junk"] * 999 + [GOOD])
    assert call("run", "c.toml").exit_code == 0


def test_valid_times_outside_the_schedule_count_as_usable_unless_another_unit_would_bring_them_inside(folder):
    year = 365 * 86_400_000
    write(folder, [GOOD | {"at": NOON_MS - year}] * 3)
    assert call("check", "c.toml").exit_code == 0
    done = call("run", "c.toml")
    assert done.exit_code == 0
    assert "3 rejected (time_out_of_range 3)" in done.stderr
    write(folder, [GOOD | {"at": (NOON_MS - year) // 1000}] * 3)  # seconds, and outside all the same
    assert call("check", "c.toml").exit_code == 0


def test_check_says_what_a_run_would_meet_and_changes_nothing(folder):
    write(folder, [GOOD] * 6 + ["junk"] * 3 + [GOOD | {"speed": 1e6}] + [GOOD | {"at": NOON_MS // 1000}] * 2)
    done = call("check", "c.toml", "--json")
    assert done.exit_code == 0
    told = json.loads(done.output)
    assert (told["lines"], told["usable"], told["time_units"]) == (12, 6, {"s": 2})
    assert told["rejected"] == [
        {"reason": "broken_record", "field": None, "lines": 3},
        {"reason": "time_out_of_range", "field": "at", "lines": 2},
        {"reason": "out_of_range", "field": "speed", "lines": 1},
    ]
    assert call("check", "c.toml", "--lines", "8").output.startswith(
        "6 of the first 8 lines can be used\n2: broken_rec"
    )
    assert sorted(os.listdir()) == ["c.toml", "in.jsonl"]


@pytest.mark.slow
def test_standard_input_is_looked_at_and_read_once(folder):
    write(folder, [])

    def run(body, *more):
        command = [sys.executable, "-m", "fcstream", "run", "c.toml", "--source", "jsonl:-", *more]
        return subprocess.run(command, input=body, capture_output=True, text=True)

    done = run("".join(json.dumps(GOOD) + "\n" for _ in range(5000)))
    assert done.returncode == 0, done.stderr
    assert "5000 records read, 0 rejected" in done.stderr
    assert run("junk\n" * 5000, "--ledger", "sqlite:b.db").returncode == 2
    assert not os.path.exists("b.db")


def test_a_source_without_lines_is_run_as_before(folder):
    write(folder, [])
    done = call("run", "c.toml")
    assert done.exit_code == 0
    assert "held no records" in done.stderr
    assert call("check", "c.toml").output == "the source holds no records\n"


@pytest.mark.parametrize("body", ["", "at,speed\n"])
def test_a_source_without_records_is_reported_before_anything_is_charged(folder, body):
    write(folder, [])
    (folder / "in.csv").write_text(body)
    source = "csv:in.csv" if body else "jsonl:in.jsonl"
    (folder / "ledger.db").mkdir()  # a run that comes to its ledger ends there
    done = call("run", "c.toml", "--source", source)
    assert done.exit_code == 1
    assert "warning: the source held no records; its windows are released nevertheless, and only once" in done.stderr
    assert call("check", "c.toml", "--source", source).output == "the source holds no records\n"


def test_a_schedule_that_misses_all_data_is_reported_before_anything_is_charged(folder):
    outside = GOOD | {"at": NOON_MS - 365 * 86_400_000}
    write(folder, [outside] * 3 + ["junk"])
    looked = call("check", "c.toml")
    assert "3 of them lie outside the schedule (`window.start`, `window.end`)" in looked.output
    assert "check " not in looked.output  # one broken line among four says nothing about `source.url`
    assert json.loads(call("check", "c.toml", "--json").output)["outside"] == 3
    (folder / "ledger.db").mkdir()  # a run that comes to its ledger ends there
    text = "all 3 usable lines of the first 4 lines lie outside the schedule (`window.start`, `window.end`)"
    done = call("run", "c.toml")
    assert done.exit_code == 1
    assert f"warning: {text}" in done.stderr
    (folder / "ledger.db").rmdir()
    told = json.loads(call("run", "c.toml", "--json").stderr)
    assert text in told["warnings"]
    write(folder, [outside] * 3 + [GOOD])  # a sorted file may begin before the schedule
    assert "lines lie outside" not in call("run", "c.toml", "--ledger", "sqlite:b.db").stderr
    assert "3 of them lie outside" in call("check", "c.toml").output


def test_a_live_source_is_no_matter_of_check(folder):
    write(folder, [])
    done = call("check", "c.toml", "--source", "redis://127.0.0.1/0?stream=s")
    assert done.exit_code == 2
    assert "must be a file's" in done.stderr


def test_the_sample_is_the_same_however_the_source_gives_its_lines(folder):
    write(folder, ["junk", GOOD] * 300)
    config = Config.load("c.toml")
    job = config.job
    for lines in (1, 7, 600, 601):
        source = SampledSource(open_source(config.source.url, job.schema))
        found = source.sample(job, lines)
        assert (found.lines, found.usable) == (min(lines, 600), min(lines, 600) // 2)
        total = 0
        while (batch := source.poll(50)) is not None:
            total += batch.seen
        assert total == 600
        source.close()
