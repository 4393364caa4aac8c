"""Looks at a ledger that an engine holds, or that was left: they change nothing."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner
from support.reported_ledgers import CAP, LOSS, fill

from fcstream.accounting.losses import PrivacyLoss
from fcstream.cli import main
from fcstream.errors import ConfigError, FcstreamError, LedgerDamaged, LedgerError, LedgerInUse
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.sqlite import snapshot
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.ledgers.sqlite.snapshot import Snapshot
from fcstream.reporting.budget import Report
from fcstream.testing import window


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize(
    ("unit", "windows", "total"),
    [("stream", 20, None), ("event", 20, CAP), ("event", 1, None), ("user", 40, None), ("stream", 0, None)],
)
def test_pictures(look, tmp_path, unit, windows, total, suffix):
    pytest.importorskip("matplotlib")
    from fcstream.plots import plot

    report = Report.of(look(unit, windows=windows, total=total))
    path = tmp_path / f"picture{suffix}"
    plot(report, str(path))
    data = path.read_bytes()
    assert len(data) > 5000
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    if suffix == ".svg":
        plot(report, str(path))
        assert path.read_bytes() == data


def test_pictures_of_long_streams_are_thinned_and_never_flattering(tmp_path):
    from fcstream.ledgers.history import SpendingPoint
    from fcstream.plots.budget import MAX_POINTS, _stairs

    points = [SpendingPoint(i * 60_000, PrivacyLoss(i % 7 + 1)) for i in range(10 * MAX_POINTS + 3) if i % 1000]
    for gaps in (False, True):
        edges, steps = _stairs(points, gaps=gaps)
        assert len(edges) == len(steps) + 1 <= 2 * MAX_POINTS + 3
        assert edges == sorted(edges)
        shown = np.array([step.rho_nano for step in steps])
        at = np.searchsorted(np.array(edges), [p.time_ms / 86_400_000 for p in points], side="right") - 1
        assert (shown[at] >= [p.spent.rho_nano for p in points]).all()
    few = [
        SpendingPoint(0, PrivacyLoss(1)),
        SpendingPoint(60_000, PrivacyLoss(2)),
        SpendingPoint(300_000, PrivacyLoss(3)),
    ]
    assert [step.rho_nano for step in _stairs(few, gaps=True)[1]] == [0, 1, 2, 0, 3]
    assert [step.rho_nano for step in _stairs(few, gaps=False)[1]] == [0, 1, 2, 3]


def test_pictures_that_cannot_be_drawn(look, tmp_path, monkeypatch):
    from fcstream.plots import plot

    report = Report.of(look(windows=1))
    with pytest.raises(ConfigError, match=r"must end in .svg or .png, got 'x.pdf'"):
        plot(report, str(tmp_path / "x.pdf"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ConfigError, match=r"pip install .*\[plot\]'"):
            plot(report, str(tmp_path / "x.svg"))
    pytest.importorskip("matplotlib")
    with pytest.raises(FcstreamError, match="cannot be written"):
        plot(report, str(tmp_path / "absent" / "x.svg"))


def states(folder):
    return {
        name: (os.stat(folder / name).st_mtime_ns, (folder / name).read_bytes()) for name in sorted(os.listdir(folder))
    }


@pytest.fixture
def temporary(tmp_path_factory, monkeypatch):
    import tempfile

    folder = tmp_path_factory.mktemp("copies")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_look_changes_nothing_and_leaves_nothing(tmp_path, temporary):
    path = fill(tmp_path / "l.db")
    before = states(tmp_path)
    reader = Snapshot(path)
    (copy,) = temporary.iterdir()
    assert copy.stat().st_mode & 0o777 == 0o700
    assert reader.verify() == 75
    assert reader.path == path
    with pytest.raises(LedgerError, match="takes no charges"):
        reader.charge([Request(window(99), LOSS, ("stream",))])
    with pytest.raises(LedgerError, match="takes no charges"):
        reader.acknowledge([window(1)])
    reader.close()
    reader.close()
    assert states(tmp_path) == before
    assert not list(temporary.iterdir())


def test_a_look_that_is_terminated_leaves_nothing(tmp_path):
    path, copies = fill(tmp_path / "l.db"), tmp_path / "copies"
    copies.mkdir()
    code = (
        "import sys, time; from fcstream.reporting import budget; from fcstream.cli import main\n"
        "budget.Report.of = lambda *_: (print(flush=True), time.sleep(60))\n"
        f"main(['budget', 'show', {path!r}])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(copies)}
    ) as look:
        look.stdout.readline()
        assert len(list(copies.iterdir())) == 1
        look.terminate()
    assert look.returncode == 143
    assert not list(copies.iterdir())


def test_a_look_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    path = fill(tmp_path / "real" / "l.db")
    os.symlink(path, tmp_path / "link.db")
    code = (
        f"from fcstream.ledgers.sqlite.ledger import SQLiteLedger; import os; l = SQLiteLedger({path!r}); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert os.path.exists(f"{path}-wal")
    assert CliRunner().invoke(main, ["budget", "verify", str(tmp_path / "link.db")]).exit_code == 0


def test_what_is_damaged_is_refused_by_its_own_name(tmp_path, temporary):
    path = fill(tmp_path / "l.db")
    older = (tmp_path / "l.db").read_bytes()
    fill(tmp_path / "longer.db", windows=30)
    shutil.copy(tmp_path / "longer.db-witness", tmp_path / "l.db-witness")
    with pytest.raises(LedgerDamaged, match="older copy") as caught:
        Snapshot(path)
    assert str(caught.value).startswith(path)
    os.remove(f"{path}-witness")
    code = (
        f"from fcstream.ledgers.sqlite.ledger import SQLiteLedger; import os; l = SQLiteLedger({path!r}); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    os.remove(f"{path}-wal")
    with pytest.raises(LedgerDamaged, match="was not closed and its") as caught:
        Snapshot(path)
    assert str(caught.value).startswith(path)
    (tmp_path / "l.db").write_bytes(older[:9000])
    with pytest.raises(LedgerDamaged, match="is damaged") as caught:
        Snapshot(path)
    assert str(caught.value).startswith(path)
    for text in ("absent.db", str(tmp_path)):
        with pytest.raises(LedgerError) as caught:
            Snapshot(text)
        assert str(caught.value).startswith(text)
    assert not list(temporary.iterdir())


def test_no_look_at_a_ledger_of_this_process_which_keeps_its_lock(tmp_path, monkeypatch):
    path = fill(tmp_path / "l.db", windows=2)
    monkeypatch.chdir(tmp_path)
    ledger = SQLiteLedger("l.db", Terms("t", "stream", CAP, "specification"))
    monkeypatch.chdir("/")
    with pytest.raises(LedgerInUse, match="by this process"):
        Snapshot(path)
    intruder = f"from fcstream.ledgers.sqlite.ledger import SQLiteLedger; SQLiteLedger({path!r})"
    done = subprocess.run([sys.executable, "-c", intruder], capture_output=True, text=True)
    assert "LedgerInUse" in done.stderr
    # Another process may look.
    look = subprocess.run(
        [sys.executable, "-m", "fcstream", "budget", "show", path, "--json"], capture_output=True, check=True
    )
    assert json.loads(look.stdout)["windows"]["acknowledged"] == 2
    monkeypatch.chdir(tmp_path)
    ledger.charge([Request(window(7), LOSS, ("stream",))])
    ledger.close()
    reader, other = Snapshot(path), Snapshot(path)  # looks do not count as engines
    assert reader.spent() == other.spent() == LOSS * 3
    reader.close()
    other.close()


def test_a_copy_that_was_overtaken_is_made_again(tmp_path, monkeypatch):
    """Between the copies of the main file and of its log, an engine starts its log anew: what was copied is torn."""
    path = fill(tmp_path / "l.db", windows=2)
    real, calls, waits = snapshot._copy_file, [], []
    monkeypatch.setattr(snapshot.time, "sleep", waits.append)

    def overtaken(source, copy):
        real(source, copy)
        if source == path:
            calls.append(source)
            if len(calls) <= most:
                with open(f"{path}-wal", "wb") as log:
                    log.write(len(calls).to_bytes(32, "big"))

    monkeypatch.setattr(snapshot, "_copy_file", overtaken)
    most = 3
    Snapshot(path).close()
    assert len(calls) == 4
    assert len(waits) == 3
    calls.clear()
    most = 10**9
    with pytest.raises(LedgerInUse, match=f"changed {snapshot._TRIES} times"):
        Snapshot(path)
    assert len(calls) == snapshot._TRIES


def test_without_a_log_the_copy_is_compared_with_the_file(tmp_path, monkeypatch):
    """A main file that changes within the clock's tick: size, time and inode stay the same."""
    path = fill(tmp_path / "l.db", windows=2)
    timestamp, calls, real = os.stat(path), [], snapshot._copy_file

    def overtaken(source, copy):
        real(source, copy)
        if source == path:
            calls.append(source)
            if len(calls) == 1:
                with open(copy, "r+b") as file:  # as if it had been read half before, half after a change
                    file.seek(5000)
                    file.write(b"torn")

    monkeypatch.setattr(snapshot, "_copy_file", overtaken)
    reader = Snapshot(path)
    assert reader.verify() == 6
    reader.close()
    assert len(calls) == 2
    assert os.stat(path).st_mtime_ns == timestamp.st_mtime_ns


ENGINE = """
import json, os, sys, time
from fcstream.ledgers.base import SealedRelease, Request, Terms
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import window
from fcstream.accounting.losses import PrivacyLoss

path, stop, overtaken = sys.argv[1:]
loss = PrivacyLoss(10**6, 10)
ledger = SQLiteLedger(path, Terms("t", "stream", PrivacyLoss(10**15, 10**15), "s"))
body = json.dumps({"status": "released", "reason": None, "filling": "x" * 8000}).encode()
done = 0
while not os.path.exists(stop):
    verdict = ledger.charge([Request(window(done), loss, ("stream",))])[0]
    assert verdict.charge is not None
    with open(path + ".charged", "w") as file:
        file.write(f"{done + 1:09d}")
    ledger.seal([SealedRelease(window(done), body)])
    ledger.acknowledge([window(done)])
    done += 1
    # As long as a disk takes to write a window: where tests run it may be memory. A look that was overtaken must
    # succeed in the end, however slowly the machine copies.
    time.sleep(0.2 if os.path.exists(overtaken) else 0.002)
assert ledger.verify() == 3 * done
ledger.close()
print(done)
"""


@pytest.mark.slow
def test_thirty_looks_while_an_engine_charges(tmp_path, temporary, monkeypatch):
    """Every look succeeds and sees one state of the ledger, at least as new as the moment it began."""
    path, stop, overtaken, sleep = str(tmp_path / "l.db"), tmp_path / "stop", tmp_path / "overtaken", time.sleep
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, path, str(stop), str(overtaken)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def wait(seconds):
        overtaken.touch()
        sleep(seconds)

    def look(*words):
        with monkeypatch.context() as patch:
            patch.setattr(snapshot.time, "sleep", wait)
            done = CliRunner().invoke(main, ["budget", *words])
        overtaken.unlink(missing_ok=True)
        assert done.exit_code == 0, done.output
        return done.stdout

    try:
        deadline = time.monotonic() + 300
        while not os.path.exists(f"{path}.charged") and time.monotonic() < deadline and engine.poll() is None:
            time.sleep(0.02)
        seen, resets, header, turn = [], 0, b"", 0
        while turn < 30 or (resets <= 2 and time.monotonic() < deadline):
            turn += 1
            with open(f"{path}.charged") as file:
                known = int(file.read() or 0)
            with open(f"{path}-wal", "rb") as file:
                salts = file.read(32)
            resets, header = resets + (salts != header), salts
            facts = json.loads(look("show", path, "--json"))
            charged = sum(facts["windows"].values())
            assert facts["spent"]["rho_nano"] == charged * 10**6
            assert facts["spent"]["delta_femto"] == charged * 10
            assert charged - facts["windows"]["acknowledged"] <= 1
            assert charged >= known
            seen.append(charged)
            if turn % 5 == 0:
                look("verify", path)
        assert seen == sorted(seen)
        assert seen[-1] > seen[0]
        assert engine.poll() is None
    finally:
        stop.touch()
        out, err = engine.communicate(timeout=120)
    assert engine.returncode == 0, err
    assert int(out) >= seen[-1]
    assert resets > 2, "the log was never started anew: the test saw nothing difficult"
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_a_ledger_of_several_streams(tmp_path):
    path = fill(tmp_path / "l.db", windows=2)
    other = SQLiteLedger(path, Terms("other", "stream", CAP, "another"))
    other.charge([Request(window(7), LOSS, ("stream",))])
    other.seal([SealedRelease(window(7), b"{}")])
    other.close()

    def told(*words):
        done = subprocess.run([sys.executable, "-m", "fcstream", "budget", *words], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    code, out, _ = told("show", path)
    assert (code, out.count("stream 't'"), out.count("stream 'other'")) == (0, 1, 1)
    code, out, _ = told("show", path, "--json", "--stream", "other")
    assert (code, json.loads(out)["stream"]) == (0, "other")
    assert len(json.loads(told("show", path, "--json")[1])) == 2
    assert told("verify", path) == (0, f"{path}: 8 journal rows of 2 streams, all in order\n", "")
    assert told("verify", path, "--stream", "other") == (0, f"{path}: 2 journal rows, all in order\n", "")
    assert told("releases", path, "--stream", "other") == (0, "{}\n", "")
    assert len(told("releases", path)[1].splitlines()) == 3
    code, _, problem = told("export", path)
    assert code == 2
    assert "--stream: is required: the ledger holds '" in problem
    assert "'other'" in problem
    code, _, problem = told("show", path, "--stream", "third")
    assert code != 0
    assert "no stream 'third', only other, t" in problem
