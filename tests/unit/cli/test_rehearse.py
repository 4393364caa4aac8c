"""``fcstream rehearse`` as a user meets it."""

import json

import pytest
from click.testing import CliRunner

from fcstream.cli import main
from fcstream.reporting.rehearsal import NOTICE

CONFIG = """
[stream]
name = "rooms"
[lattice]
step = 0.1
[[features]]
name = "temp_c"
min = -40.0
max = 80.0
[window]
length = "1h"
clock = "{clock}"
start = "{start}"
{end}
[release]
kind = "histogram"
feature = "temp_c"
edges = [0.0, 20.0]
rho = 0.5
[budget]
rho = 1.0
delta = 0.0
[source]
url = "{source}"
delimiter = ";"
[sink]
url = "jsonl:{sink}"
[ledger]
url = "sqlite:{ledger}"
"""
FILES = {"clock": "eof", "start": "2016-03-15T00:00:00Z", "end": 'end = "2016-03-15T02:00:00Z"'}
FILES |= {"source": "csv:real.csv", "sink": "out.jsonl", "ledger": "ledger.db"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(CONFIG.format(**FILES))
    rows = "".join(f"{1_458_000_000_000 + i * 72_000};{i % 50 - 10}\n" for i in range(100))
    (tmp_path / "public.csv").write_text("ts_ms;temp_c\n" + rows)
    return tmp_path


def call(*args):
    return CliRunner().invoke(main, ["rehearse", "c.toml", *map(str, args)])


def test_nothing_that_the_configuration_names_is_touched(folder):
    (folder / "ledger.db").write_bytes(b"a ledger that nobody may open")
    before = sorted(path.name for path in folder.iterdir())
    done = call("--public", "public.csv", "--runs", 2, "--json")
    assert done.exit_code == 0, done.output
    assert (folder / "ledger.db").read_bytes() == b"a ledger that nobody may open"
    assert sorted(path.name for path in folder.iterdir()) == before
    table = json.loads(done.stdout)
    assert (table["publishable"], table["notice"], table["data"]) == (False, NOTICE, "public.csv")
    assert table["sizes"] == {"smallest": 50, "median": 50, "largest": 50}
    (answer,) = table["answers"]
    assert [each["name"] for each in answer["numbers"]] == ["temp_c/-40..0", "temp_c/0..20", "temp_c/20..80"]
    assert all(each["planned"] == each["sigma"] == 1 for each in answer["numbers"])
    assert list(table["curves"]) == ["rho", "length"]  # a histogram has no radius
    assert call("--public", "public.csv", "--runs", 2, "--json").stdout == done.stdout


@pytest.mark.slow
def test_the_folder_holds_tables_and_pictures_that_say_what_they_are(folder):
    pytest.importorskip("matplotlib")
    done = call("--public", "public.csv", "--runs", 2, "--windows", 1, "--output", "kept")
    assert done.exit_code == 0, done.output
    kept = folder / "kept"
    names = ["picture.png", "picture.svg", "table.json", "table.txt"]
    assert sorted(path.name for path in kept.iterdir()) == names
    assert json.loads((kept / "table.json").read_text())["publishable"] is False
    text = (kept / "table.txt").read_text()
    assert text.startswith(NOTICE.upper())
    assert text == done.stdout
    assert (kept / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "1 further window of the data was left out" in text


def test_a_live_stream_is_rehearsed_on_files(folder):
    live = {"clock": "wall", "start": "now", "end": "", "source": "redis://localhost/0?stream=x"}
    text = CONFIG.format(**(FILES | live)).replace('delimiter = ";"\n', "")
    (folder / "c.toml").write_text(text)
    (folder / "public.csv").write_text((folder / "public.csv").read_text().replace(";", ","))
    done = call("--public", "public.csv", "--runs", 2, "--no-curves")
    assert done.exit_code == 0, done.output
    assert "released 4 of 4" in done.stdout


def test_without_records_they_are_made_up(folder):
    done = call("--runs", 2, "--windows", 1, "--no-curves")
    assert done.exit_code == 0, done.output
    assert "made up from the declared ranges" in done.stdout
    assert "2 windows" not in done.stdout


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--public", "public.txt"], "--public: must end in one of .csv"),
        (["--public", "missing.csv"], "missing.csv cannot be opened: No such file"),
        (["--public", "public.csv", "--runs", 1], "--runs: must be at least 2, got 1"),
        (["--public", "wrong.csv"], "must hold records that this configuration can use, none can (not_a_number"),
    ],
)
def test_bad_input_is_one_line(folder, args, text):
    (folder / "wrong.csv").write_text("ts_ms;temp_c\n1458000000000;warm\n")
    done = call(*args)
    assert done.exit_code in (1, 2)
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_no_file_of_the_configuration_is_overwritten(folder):
    (folder / "kept").mkdir()
    text = CONFIG.format(**(FILES | {"ledger": "kept/table.json"}))
    (folder / "c.toml").write_text(text)
    done = call("--public", "public.csv", "--runs", 2, "--output", "kept")
    assert done.exit_code == 2
    assert "--output: must not be a folder with a file that the configuration names: table.json" in done.stderr
