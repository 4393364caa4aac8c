"""The command as a user meets it, in real processes where it matters."""

import gzip
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fcstream.cli import main
from fcstream.cli.templates import template

SENTINEL = "31415.926535"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*args, **options):
    return CliRunner().invoke(main, [str(a) for a in args], **options)


def sample_config(**changes):
    """The packaged sample as text with some values replaced."""
    text = template()
    for old, new in changes.items():
        assert old in text or old.replace("_", " ") in text
        text = text.replace(old, new)
    return text


def write_stream(path, n=1300, seconds=1200):
    lines = [
        json.dumps({"ts_ms": 1_458_000_000_000 + i * seconds * 1000 // n, "temp_c": 20 + i % 7 / 10, "rh_pct": 45})
        for i in range(n)
    ]
    path.write_text("\n".join(lines) + "\n")


def short(text):
    return text.replace('end = "2016-03-16T00:00:00Z"', 'end = "2016-03-15T00:20:00Z"')


@pytest.mark.slow
def test_main_job(folder):
    assert call("init").exit_code == 0
    again = call("init")
    assert again.exit_code == 2  # never overwrites
    assert "rooms.toml is there already: remove it, or name another PATH" in again.stderr
    made = call("simulate", "--duration", "1h", "--out", "telemetry.jsonl")
    assert made.exit_code == 0
    (folder / "rooms.toml").write_text(
        (folder / "rooms.toml").read_text().replace('end = "2016-03-16T00:00:00Z"', 'end = "2016-03-15T01:00:00Z"')
    )
    planned = call("plan", "rooms.toml")
    assert planned.exit_code == 0
    assert "releases with probability over 99.9%" in planned.output
    done = call("run", "rooms.toml", "--dead-letter", "jsonl:dead.jsonl")
    assert done.exit_code == 0, done.output
    releases = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(releases) == 6
    assert {r["status"] for r in releases} == {"released"}
    expected = {
        "stream", "window_open_ms", "window_close_ms", "status", "reason", "kind", "value", "sigma", "count",
        "core_count", "rho", "delta", "guarantee", "spent", "private", "parts",
    }  # fmt: skip
    assert expected <= set(releases[0])
    assert releases[0]["private"] is True
    assert "6 windows: 6 released, 0 refused" in done.stderr
    dead_letters = [json.loads(line) for line in (folder / "dead.jsonl").read_text().splitlines()]
    assert {tuple(sorted(letter)) for letter in dead_letters} == {("count", "field", "position", "reason")}
    assert len(dead_letters) > 5
    shown = call("budget", "show", "ledger.db", "--json")
    facts = json.loads(shown.stdout)
    assert facts["spent"]["rho"] == 0.25
    assert facts["windows"] == {"charged": 0, "sealed": 0, "acknowledged": 6}
    assert "guarantee" in call("budget", "show", "sqlite:ledger.db").output
    assert "all in order" in call("budget", "verify", "ledger.db").output
    again = call("run", "rooms.toml")
    assert again.stdout == ""
    assert "6 windows were answered by an earlier run" in again.stderr


def test_simulation_is_seeded_and_messy(folder):
    one, two = (call("simulate", "--duration", "30m", "--seed", "7").output for _ in range(2))
    assert one == two
    assert call("simulate", "--duration", "30m", "--seed", "8").output != one
    lines = call("simulate", "--duration", "2h", "--faults", "0.05").output.splitlines()
    parsed, broken = [], 0
    for line in lines:
        try:
            parsed.append(json.loads(line, parse_constant=lambda c: "nan"))
        except ValueError:
            broken += 1
    assert broken > 10
    assert any(isinstance(r["temp_c"], str) for r in parsed)
    assert any(r["temp_c"] == 85.0 for r in parsed)
    timestamps = [r["ts_ms"] for r in parsed]
    assert sorted(timestamps) != timestamps  # late ones
    assert len(set(lines)) < len(lines)  # duplicates


@pytest.mark.slow
def test_standard_streams(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    write_stream(folder / "in.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "fcstream", "run", "c.toml", "--source", "jsonl:-"],
        input=(folder / "in.jsonl").read_bytes(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert b"\r" not in done.stderr  # plain lines when piped


def test_csv_and_gzip(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    rows = [f"{1_458_000_000_000 + i * 900},{20 + i % 7 / 10},45,room" for i in range(1300)]
    with gzip.open(folder / "in.csv.gz", "wt") as file:
        file.write("ts_ms,temp_c,rh_pct,room\n" + "\n".join(rows) + "\n")
    done = call("run", "c.toml", "--source", "csv:in.csv.gz", "--sink", "jsonl:out.jsonl")
    assert done.exit_code == 0
    assert len((folder / "out.jsonl").read_text().splitlines()) == 2


def test_budget_exhausted_is_exit_3(folder):
    text = short(sample_config()).replace('unit = "event"', 'unit = "stream"').replace("rho = 1.0", "rho = 0.25")
    (folder / "c.toml").write_text(text)
    write_stream(folder / "telemetry.jsonl")
    done = call("run", "c.toml")
    assert done.exit_code == 2  # before a window is charged
    assert "budget.rho: lasts 1 of 2 windows" in done.stderr
    (folder / "c.toml").write_text(text.replace("[budget]", '[budget]\nexhausted = "refuse"'))
    done = call("run", "c.toml")
    assert done.exit_code == 3
    assert [json.loads(line)["reason"] for line in done.stdout.splitlines()] == [None, "budget_exhausted"]


def test_a_lost_ledger_does_not_buy_second_answers(folder):
    """The sink knows windows that the ledger does not: they would be drawn and paid for twice."""
    (folder / "c.toml").write_text(short(sample_config()))
    write_stream(folder / "telemetry.jsonl")
    first = call("run", "c.toml", "--sink", "jsonl:out.jsonl")
    assert "made a new ledger" in first.stderr
    before = (folder / "out.jsonl").read_bytes()
    assert call("budget", "releases", "ledger.db").stdout.encode() == before
    (folder / "ledger.db").unlink()
    lost = call("run", "c.toml", "--sink", "jsonl:out.jsonl")
    assert lost.exit_code == 4
    assert "ledger.db-witness has seen" in lost.stderr
    assert not (folder / "ledger.db").exists()
    (folder / "ledger.db-witness").unlink()
    again = call("run", "c.toml", "--sink", "jsonl:out.jsonl")
    assert again.exit_code == 2
    assert "the ledger was lost or exchanged" in again.stderr
    assert (folder / "out.jsonl").read_bytes() == before
    assert json.loads(call("budget", "show", "ledger.db", "--json").stdout)["spent"]["rho"] == 0


def test_a_stream_after_a_retired_one_is_told_to_take_another_sink(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    write_stream(folder / "telemetry.jsonl")
    call("run", "c.toml", "--sink", "jsonl:out.jsonl")
    assert call("budget", "retire", "--yes", "ledger.db", "rooms").exit_code == 0
    refused = call("run", "c.toml", "--sink", "jsonl:out.jsonl")
    assert refused.exit_code == 2
    assert "if the stream was retired, name another sink" in refused.stderr
    assert call("run", "c.toml", "--sink", "jsonl:next.jsonl").exit_code == 0


def test_times_in_the_wrong_unit_name_the_key(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    line = json.dumps({"ts_ms": 1_458_000_000, "temp_c": 20, "rh_pct": 45}) + "\n"  # seconds
    (folder / "telemetry.jsonl").write_text("junk\n" + 2 * line)
    told = call("run", "c.toml", "--unchecked").stderr
    assert "warning: every record was rejected" in told
    assert "check `stream.time_unit`, and `start` and `end` of `[window]` (time_out_of_range)" in told
    good = json.dumps({"ts_ms": 1_458_000_000_001, "temp_c": 20, "rh_pct": 45}) + "\n"
    (folder / "telemetry.jsonl").write_text(good + 2 * line)
    told = call("run", "c.toml", "--ledger", "sqlite:b.db").stderr
    assert "warning: most records were rejected; check `stream.time_unit`" in told
    (folder / "telemetry.jsonl").write_text(2 * good + 2 * line)
    assert "were rejected" not in call("run", "c.toml", "--ledger", "sqlite:d.db").stderr.replace(
        "why records were", ""
    )


def test_useless_input_is_said_loudly(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    (folder / "telemetry.jsonl").write_text("junk\njunk\n")
    told = call("run", "c.toml", "--unchecked").stderr
    assert "every record was rejected" in told
    assert "check that `source.url` names the format" in told
    (folder / "telemetry.jsonl").write_text("")
    assert "held no records" in call("run", "c.toml", "--ledger", "sqlite:b.db").stderr
    write_stream(folder / "telemetry.jsonl")
    assert "1300 records lie in those windows" in call("run", "c.toml").stderr


def test_programs_are_warned_as_people_are(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    good = json.dumps({"ts_ms": 1_458_000_000_001, "temp_c": 20, "rh_pct": 45}) + "\n"
    for name, body, text in (
        ("none", "", "the source held no records"),
        (
            "all",
            "junk\njunk\n",
            "every record was rejected; the windows are released nevertheless, and only once; check",
        ),
        ("most", "junk\njunk\n" + good, "most records were rejected; check that `source.url` names the format"),
    ):
        (folder / "telemetry.jsonl").write_text(body)
        done = call(
            "run", "c.toml", "--unchecked", "--json", "--ledger", f"sqlite:{name}.db", "--sink", "jsonl:x.jsonl"
        )
        (folder / "x.jsonl").unlink()
        told = json.loads(done.stderr.splitlines()[-1])["warnings"]
        assert sum(warning.startswith(text) for warning in told) == 1, (name, told)


@pytest.mark.slow
def test_a_user_without_a_cache_folder_can_run(folder):
    """Numba finds no place to keep compiled code: a warning and a private folder, not a failure."""
    import shutil

    import fcstream

    copy = folder / "site" / "fcstream"
    shutil.copytree(os.path.dirname(fcstream.__file__), copy, ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import numba.core.caching as c\n"
        "c.CacheImpl._locator_classes = [c.UserProvidedCacheLocator]\n"
        "import fcstream, numpy, warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    print(fcstream.Noise().bernoulli(numpy.array([1]), 1), [str(w.message)[:8] for w in seen])\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    env["PYTHONPATH"] = str(folder / "site")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "[ True] ['compiled']", done.stderr


def test_damaged_ledger_is_exit_4(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    write_stream(folder / "telemetry.jsonl")
    assert call("run", "c.toml").exit_code == 0
    data = bytearray((folder / "ledger.db").read_bytes())
    at = data.find(b'"window_open_ms":1458000000000')
    data[at + 20] ^= 1
    (folder / "ledger.db").write_bytes(data)
    assert call("budget", "verify", "ledger.db").exit_code == 4
    (folder / "ledger.db").write_bytes(b"nothing like a database" * 100)
    done = call("run", "c.toml")
    assert done.exit_code == 4
    assert done.stdout == ""


@pytest.mark.slow
def test_budget_show_in_full(folder):
    """A stream's burn-down in words, numbers and a picture; three readings apart."""
    (folder / "c.toml").write_text(short(sample_config()).replace('unit = "event"', 'unit = "stream"'))
    write_stream(folder / "telemetry.jsonl")
    assert call("run", "c.toml").exit_code == 0
    before = (folder / "ledger.db").read_bytes()
    text = call("budget", "show", "ledger.db").output
    for word in ("guarantee ", "spent ", "realized_loss_bound ", "remaining ", "runs out ", "burn-down ", "releases "):
        assert f"\n{word}" in text
    assert "at 2016-03-15 00:40:00 UTC, after 2 more windows" in text
    assert "2016-03-15 00:20:00 UTC  0.5" in text
    facts = json.loads(call("budget", "show", "ledger.db", "--json", "--delta", "1e-5", "--failure", "1e-3").stdout)
    assert facts["realized_loss_bound"]["failure"] == 1e-3
    assert facts["epsilon_at_delta"] == 1e-5
    assert facts["runs_out"]["windows"] == 2
    ladder = json.loads(call("budget", "show", "ledger.db", "--json", "--odometer", "ladder").stdout)
    assert ladder["realized_loss_bound"]["odometer"] == "ladder"
    assert call("budget", "show", "ledger.db", "--odometer", "dice").exit_code == 2
    assert call("budget", "show", "ledger.db", "--delta", "7").exit_code == 2
    assert call("budget", "show", "ledger.db", "--plot", "p.pdf").exit_code == 2
    (folder / "link.svg").symlink_to("ledger.db")
    assert "must not be a file of the ledger" in call("budget", "show", "ledger.db", "--plot", "link.svg").stderr
    pytest.importorskip("matplotlib")
    drawn = call("budget", "show", "ledger.db", "--plot", "p.svg")
    assert drawn.exit_code == 0
    assert drawn.stdout == text
    assert drawn.stderr == "wrote p.svg\n"
    assert (folder / "p.svg").read_bytes().startswith(b"<?xml")
    assert (folder / "ledger.db").read_bytes() == before


def test_budget_export(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    write_stream(folder / "telemetry.jsonl")
    done = call("run", "c.toml")
    document = json.loads(call("budget", "export", "ledger.db").stdout)
    published = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["release"] for row in document["journal"] if row["kind"] == "seal"] == published
    shown = json.loads(call("budget", "show", "ledger.db", "--json").stdout)
    assert document["readings"] == {name: value for name, value in shown.items() if name != "together"}
    assert shown["together"]["guarantee"]["rho"] == shown["guarantee"]["rho"]
    wrote = call("budget", "export", "ledger.db", "--format", "dp-accounting", "--out", "events.json")
    assert wrote.exit_code == 0
    assert wrote.output == ""
    events = json.loads((folder / "events.json").read_text())
    assert events["block"] == "1458000000000"
    assert [event["rho_nano"] for event in events["events"]] == [250_000_000]
    before = (folder / "ledger.db").read_bytes()
    for out in ("ledger.db", "./ledger.db", "ledger.db-wal", "ledger.db-lock", "ledger.db-witness"):
        assert call("budget", "export", "sqlite:ledger.db", "--out", out).exit_code == 2
    assert call("budget", "export", "ledger.db", "--out", "absent/x").exit_code == 1
    assert call("budget", "export", "ledger.db", "--format", "dp-accounting", "--block", "total").exit_code == 2
    assert (folder / "ledger.db").read_bytes() == before


def test_looks_while_an_engine_holds_the_ledger(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    write_stream(folder / "telemetry.jsonl")
    assert call("run", "c.toml").exit_code == 0
    hold = (
        "import sys; from fcstream.ledgers.sqlite.ledger import SQLiteLedger as L; l = L('ledger.db'); print(); input()"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        for name in ("show", "verify", "releases", "export"):
            assert call("budget", name, "ledger.db").exit_code == 0, name
        assert call("run", "c.toml").exit_code == 1  # a second engine is still refused
        holder.communicate(b"\n")
    assert holder.returncode == 0


def nothing(folder):
    pass


def broken_toml(folder):
    (folder / "c.toml").write_text("[")


def misspelled(folder):
    (folder / "c.toml").write_text(sample_config().replace("radius", "raduis"))


def truncated(folder):
    (folder / "x.gz").write_bytes(gzip.compress(b"{}\n" * 9999)[:-9])


def other_columns(folder):
    (folder / "x.csv").write_text("a,b\n1,2\n")


BAD = {
    "a configuration that is absent": (nothing, "run absent.toml", 2, "cannot be read"),
    "a broken configuration": (broken_toml, "run c.toml", 2, "not TOML"),
    "an unknown key": (misspelled, "plan c.toml", 2, "did you mean"),
    "no source file": (nothing, "run ok.toml --source jsonl:absent", 1, "cannot be opened"),
    "a directory as source": (nothing, "run ok.toml --source csv:.", 1, "directory"),
    "a directory as sink": (nothing, "run ok.toml --sink jsonl:.", 1, "must be a file"),
    "a directory as ledger": (nothing, "run ok.toml --ledger sqlite:.", 1, "directory"),
    "a sink on the ledger": (nothing, "run ok.toml --sink jsonl:./ledger.db", 2, "must not be the file of"),
    "an unknown scheme": (nothing, "run ok.toml --source carrier-pigeon:x", 2, "amqp, amqps, http, https, kafka, mqtt"),
    "a truncated archive": (truncated, "run ok.toml --source jsonl:x.gz", 1, "truncated"),
    "a CSV without the column": (other_columns, "run ok.toml --source csv:x.csv", 2, "x.csv: the first line must name"),
    "no ledger to show": (nothing, "budget show absent.db", 1, "does not exist"),
    "a bad start": (nothing, "simulate --start soon", 2, "ISO 8601"),
    "usage": (nothing, "run", 2, "Missing argument"),
}


@pytest.mark.parametrize(("prepare", "args", "code", "what"), BAD.values(), ids=BAD)
def test_faults_are_one_line_and_an_exit_code(folder, prepare, args, code, what):
    (folder / "ok.toml").write_text(short(sample_config()))
    write_stream(folder / "telemetry.jsonl", 50)
    prepare(folder)
    done = call(*args.split())
    assert done.exit_code == code, done.output
    assert what in done.stderr
    assert "Traceback" not in done.stderr
    if args != "run":
        last = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
        assert len(last) == 1


def test_a_failed_read_releases_and_charges_nothing(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    (folder / "x.gz").write_bytes(gzip.compress(b'{"ts_ms": 1458000000000, "temp_c": 20, "rh_pct": 40}\n' * 99999)[:-9])
    assert call("run", "c.toml", "--source", "jsonl:x.gz").exit_code == 1
    facts = json.loads(call("budget", "show", "ledger.db", "--json").stdout)
    assert facts["spent"]["rho"] == 0


def test_hopeless_configurations(folder):
    (folder / "c.toml").write_text(short(sample_config()).replace("size_hint = 600", "size_hint = 60"))
    planned = call("plan", "c.toml")
    assert planned.exit_code == 2
    assert "use longer windows, of" in planned.stderr
    write_stream(folder / "telemetry.jsonl", 100)
    done = call("run", "c.toml")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", planned.stderr)
    assert not (folder / "ledger.db").exists()
    (folder / "c.toml").write_text(short(sample_config()))  # that windows turn out small is no fault
    done = call("run", "c.toml")
    assert [json.loads(line)["reason"] for line in done.stdout.splitlines()] == ["too_few", "too_few"]


def test_plan_json(folder):
    (folder / "c.toml").write_text(sample_config())
    facts = json.loads(call("plan", "c.toml", "--json", "--delta", "1e-5").stdout)
    assert facts["smallest_size"] < 600
    assert facts["epsilon_delta"] == 1e-5


def test_help_is_quick_and_complete():
    done = call("--help")
    assert done.exit_code == 0
    for name in ("run", "plan", "budget", "simulate", "init"):
        assert name in done.output
        assert call(name, "--help").exit_code == 0
    assert "0.1.0" in call("--version").output


@pytest.mark.slow
def test_reader_that_goes_away(folder):
    (folder / "c.toml").write_text(short(sample_config()))
    write_stream(folder / "telemetry.jsonl")
    shell = f"{sys.executable} -m fcstream run c.toml | true; {sys.executable} -m fcstream simulate | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_no_record_content_in_any_message(folder, monkeypatch):
    """A sentinel goes through every failure; nothing we print or store may hold it."""
    (folder / "c.toml").write_text(short(sample_config()))
    odd = [
        f'{{"ts_ms": 1458000000000, "temp_c": {SENTINEL}, "rh_pct": 40}}',
        f'{{"ts_ms": 1458000000000, "temp_c": "{SENTINEL}", "rh_pct": 40}}',
        f'{{"ts_ms": {SENTINEL}, "temp_c": 20, "rh_pct": 40}}',
        f'{{"ts_ms": "{SENTINEL}", "temp_c": 20, "rh_pct": 40}}',
        f"{SENTINEL}",
        f'{{"{SENTINEL}": ',
    ]
    (folder / "telemetry.jsonl").write_text("\n".join(odd) + "\n")
    done = call("run", "c.toml", "--dead-letter", "jsonl:dead.jsonl")
    assert done.exit_code == 0
    assert len((folder / "dead.jsonl").read_text().splitlines()) == 6

    from fcstream.engine.engine import Engine

    def crash(self, batch, arrivals=None):
        raise ValueError(f"bad value {SENTINEL}")

    monkeypatch.setattr(Engine, "take", crash)
    failed = call("run", "c.toml", "--ledger", "sqlite:other.db")
    assert failed.exit_code == 1
    assert "internal error (ValueError)" in failed.stderr
    assert SENTINEL in call("--traceback", "run", "c.toml", "--ledger", "sqlite:third.db").stderr
    text = done.output + failed.output + (folder / "dead.jsonl").read_text()
    for name in os.listdir(folder):
        if name.endswith(".db"):
            text += (folder / name).read_bytes().decode("latin-1")
    assert SENTINEL not in text


def test_what_is_no_ledger_is_called_so(folder):
    (folder / "t.csv").write_text("a,b\n" * 400)
    done = call("budget", "show", "t.csv")
    assert done.exit_code == 4
    assert "t.csv is damaged, or was never a ledger" in done.stderr
    assert "is a directory: name the ledger's file" in call("budget", "show", ".").stderr


def test_the_traceback_of_an_expected_error_is_shown(tmp_path):
    """It was `NoneType: None`: the error was gone when its place was printed."""
    told = CliRunner().invoke(main, ["--traceback", "budget", "show", str(tmp_path / "absent.db")])
    assert told.exit_code != 0
    assert "NoneType" not in told.stderr
    assert "Traceback (most recent call last)" in told.stderr
    assert "fcstream.errors." in told.stderr
    assert told.stderr.splitlines()[-1].startswith("fcstream: ")
