"""Every sample configuration that `fcstream init` writes is one that runs; those of brokers are run against them."""

import csv
import json
import os
import re
import tomllib

import pytest
from click.testing import CliRunner

from fcstream.cli import main
from fcstream.cli.templates import KINDS, SOURCES, template
from fcstream.config import Config
from fcstream.connectors.registry import FILE_SOURCES, known
from fcstream.releases import registry

ENCRYPTED = {"rediss", "rabbitmq-stream+tls", "amqps", "mqtts", "https"}


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory):
    path = tmp_path_factory.mktemp("telemetry") / "telemetry.jsonl"
    assert invoke("simulate", "--duration", "30m", "--out", path).exit_code == 0
    return path


def test_no_kind_and_no_source_lacks_one():
    assert set(KINDS) == {name.partition("/")[0] for name in registry.KINDS}
    assert set(SOURCES) == {*FILE_SOURCES, *known("source", "queue")} - ENCRYPTED


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_is_a_configuration(kind, source, monkeypatch):
    monkeypatch.setenv("RABBITMQ_PASSWORD", "guest")
    text = template(kind, source, "my.toml")
    assert max(map(len, text.splitlines())) <= 120
    assert "#:" not in text
    assert "my.toml" in text.partition("[stream]")[0]
    (release,) = Config.from_mapping(tomllib.loads(os.path.expandvars(text))).releases
    assert release.kind == kind
    assert f"{source}:" in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_runs_on_simulated_telemetry(kind, telemetry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = invoke("init", "c.toml", "--kind", kind)
    assert written.exit_code == 0
    assert "fcstream simulate --out telemetry.jsonl && fcstream run c.toml" in written.stderr
    os.symlink(telemetry, "telemetry.jsonl")
    text = (tmp_path / "c.toml").read_text().replace("2016-03-16T00:00:00Z", "2016-03-15T00:30:00Z")
    (tmp_path / "c.toml").write_text(text.replace('length = "1d"', 'length = "30m"'))
    done = invoke("run", "c.toml")
    assert done.exit_code == 0, done.stderr
    releases = [json.loads(line) for line in done.stdout.splitlines()]
    windows = 1 if kind in ("centers", "mixtures") else 3  # these are told to be long, so that they hold many records
    assert [release["status"] for release in releases] == ["released"] * windows
    assert {release["kind"] for release in releases} == {kind}


@pytest.mark.parametrize("source", [source for source in FILE_SOURCES if source != "jsonl"])
def test_each_kind_of_file(source, telemetry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = []
    for line in telemetry.read_text().splitlines():
        try:
            row = json.loads(line)
            rows.append({name: float(row[name]) for name in ("temp_c", "rh_pct")} | {"ts_ms": int(row["ts_ms"])})
        except (ValueError, TypeError, KeyError):
            continue
    if source == "csv":
        with open("telemetry.csv", "w", newline="") as file:
            table = csv.DictWriter(file, ["ts_ms", "temp_c", "rh_pct"])
            table.writeheader()
            table.writerows(rows)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pyarrow.Table.from_pylist(rows)
        if source == "parquet":
            parquet.write_table(table, "telemetry.parquet")
        else:
            with pyarrow.ipc.new_file("telemetry.arrow", table.schema) as file:
                file.write_table(table)
    assert invoke("init", "--source", source).exit_code == 0
    text = (tmp_path / "rooms.toml").read_text().replace("2016-03-16T00:00:00Z", "2016-03-15T00:30:00Z")
    (tmp_path / "rooms.toml").write_text(text)
    done = invoke("run", "rooms.toml")
    assert done.exit_code == 0, done.stderr
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["released"] * 3


@pytest.mark.parametrize("option", ["--kind", "--source"])
def test_what_there_is_none_for(option, tmp_path):
    done = invoke("init", tmp_path / "c.toml", option, "kafak" if option == "--source" else "maen")
    assert done.exit_code == 2
    assert re.search(rf"{option}.* must be one of .*; did you mean '(kafka|mean)'\?", done.stderr)
    assert not (tmp_path / "c.toml").exists()
