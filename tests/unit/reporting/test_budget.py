"""What a ledger is told to say: three readings, exports, pictures; and looks at a ledger that an engine holds."""

import json
import math
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from fcstream.accounting.losses import PrivacyLoss, epsilon_simple, epsilon_tight
from fcstream.cli import main
from fcstream.errors import ConfigError, FcstreamError, LedgerDamaged, LedgerError, LedgerInUse
from fcstream.ledgers import open_reader
from fcstream.ledgers.base import Request, Row, SealedRelease, Terms
from fcstream.ledgers.history import History
from fcstream.ledgers.sqlite import snapshot
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.ledgers.sqlite.snapshot import Snapshot
from fcstream.reporting.budget import DP_ACCOUNTING, Report, events_document, journal_document, to_json
from fcstream.stream.contributions import user_key
from fcstream.testing import window

CAP = PrivacyLoss.cap(1, "1e-6")
LOSS = PrivacyLoss.charge("0.03", "1e-9")
REFUND = PrivacyLoss.charge("0.02")
NOTHING = PrivacyLoss()
BLOCKS = {"stream": lambda i: ("stream",), "event": lambda i: (str(i * 60_000), str((i + 1) * 60_000)), "user": None}


def body(index, reason=None):
    return json.dumps({"status": "refused" if reason else "released", "reason": reason, "window": index}).encode()


def fill(path, unit="stream", windows=25, loss=LOSS, total=None, refunds=(), users=3, cap=CAP):
    """A closed ledger; every window asks for `loss`, those in `refunds` give `REFUND` back."""
    ledger = SQLiteLedger(str(path), Terms("t", unit, cap, "specification", total))
    names = np.sort(np.array([user_key(ledger.salt, str(k)) for k in range(users)], "S16"))
    for i in range(windows):
        blocks, keys = ((), names) if unit == "user" else (BLOCKS[unit](i), None)
        granted = ledger.charge([Request(window(i), loss, blocks, keys)])[0].charge is not None
        back = REFUND if granted and i in refunds else NOTHING
        ledger.seal([SealedRelease(window(i), body(i, None if granted else "budget_exhausted"), back)])
        ledger.acknowledge([window(i)])
    ledger.close()
    return str(path)


@pytest.fixture
def look(tmp_path):
    opened = []

    def open_it(*args, **options):
        opened.append(open_reader(fill(tmp_path / f"l{len(opened)}.db", *args, **options)))
        return opened[-1]

    yield open_it
    for reader in opened:
        reader.close()


# -- the readings ------------------------------------------------------------------------------------------------------


def test_three_readings_of_a_stream(look):
    reader = look(windows=10, refunds={2, 7})
    report = Report.of(reader)
    spent = PrivacyLoss.charge("0.26", "1e-8")
    assert report.unit.spent == reader.spent() == spent
    facts = report.as_dict()
    assert facts["epsilon_at_delta"] == 2e-6
    assert facts["guarantee"]["epsilon"] == epsilon_tight(1, 1e-6)
    assert facts["spent"]["rho_nano"] == 260_000_000
    assert "epsilon" not in facts["spent"]
    assert facts["spent"]["epsilon_if_fixed_in_advance"] == epsilon_tight(0.26, 2e-6 - 1e-8)
    assert facts["remaining"]["rho_nano"] + facts["spent"]["rho_nano"] == CAP.rho_nano
    # The mixture by hand: tuned for the cap, whose delta is taken out of the probability of failure.
    variance = 2 * 0.26 + 0.2
    expected = 0.26 + math.sqrt(2 * variance * math.log1p(math.sqrt(variance / 0.2) / (2 * 1e-6)))
    assert facts["realized_loss_bound"]["epsilon"] == pytest.approx(expected, rel=1e-9)
    assert facts["windows"] == {"charged": 0, "sealed": 0, "acknowledged": 10}
    assert facts["answers"] == {"released": 10}
    assert facts["total"] is None
    text = "\n".join(report.lines())
    for word in (
        "guarantee ",
        "spent ",
        "realized_loss_bound ",
        "for ever",
        "no guarantee",
        "with probability at most",
    ):
        assert word in text
    json.dumps(facts, allow_nan=False)


def test_options_of_the_readings(look):
    reader = look(windows=3)
    ladder = Report.of(reader, 1e-5, 1e-3, "ladder").unit
    assert ladder.realized_loss_bound() > ladder.spent.rho
    assert ladder.realized_loss_bound() != Report.of(reader, 1e-5, 1e-3).unit.realized_loss_bound()
    assert ladder.guarantee == epsilon_tight(1, 9e-6)
    used_up = Report.of(reader, 1e-7)
    assert used_up.as_dict()["guarantee"]["epsilon"] is None
    assert used_up.as_dict()["realized_loss_bound"]["epsilon"] is None
    assert "unbounded" in "\n".join(used_up.lines())
    json.dumps(used_up.as_dict(), allow_nan=False)
    for wrong in ({"delta": 0.0}, {"delta": 1.0}, {"failure": 2.0}, {"odometer": "dice"}):
        with pytest.raises(ConfigError):
            Report.of(reader, **wrong)


def test_the_bound_holds_at_all_times_also_when_delta_comes_last():
    """Half of the failures could come before any delta is spent: the cap's delta must be set aside from the start."""
    early = History([Row(1, "charge", 0, 1, 10**8, 0, "stream", b"")])
    assert early.spent() == {"stream": PrivacyLoss(10**8, 0)}

    class LedgerReader:
        terms = Terms("t", "stream", PrivacyLoss(10**9, 10**9), "s")

        def rows(self):
            return [Row(1, "charge", 0, 1, 10**8, 0, "stream", b"")]

    bound = Report.of(LedgerReader(), failure=1.5e-6).unit.realized_loss_bound()
    alone = PrivacyLoss(10**8)
    assert bound > epsilon_simple(alone.rho, 1.5e-6 - 1e-6) > epsilon_simple(alone.rho, 1.5e-6)


def test_an_empty_ledger(look):
    for unit in ("stream", "event", "user"):
        report = Report.of(look(unit, windows=0))
        assert report.unit.spent == NOTHING
        assert report.unit.realized_loss_bound() == 0
        assert report.as_dict()["burn_down"] == []
        state = "own_filters" if unit == "event" else "unknown"
        assert report.as_dict()["runs_out"]["state"] == state
        assert len(report.lines()) == 7


def test_panes_and_a_total(look):
    total = PrivacyLoss.cap("0.5", "1e-6")
    report = Report.of(look("event", windows=25, total=total))
    assert report.refused == 9  # 16 windows of 0.03 fit into the total
    assert report.answers == {"released": 16, "budget_exhausted": 9}
    assert report.unit.spent == LOSS * 2
    assert report.total.spent == LOSS * 16
    assert report.total.outlook.state == "exhausted"
    facts = report.as_dict()
    assert facts["panes"]["count"] == 17
    assert [facts["panes"][name]["rho_nano"] for name in ("min", "median", "max")] == [3 * 10**7, 6 * 10**7, 6 * 10**7]
    assert facts["panes"]["full"] == 0
    assert facts["runs_out"]["state"] == "own_filters"
    assert facts["burn_down"] == []
    assert facts["total"]["spent"]["rho_nano"] == 480_000_000
    text = "\n".join(report.lines())
    assert "never: every pane has a filter of its own" in text
    assert "the total, on top" in text
    assert text.count("guarantee  ") == 2


def test_full_panes(look):
    report = Report.of(look("event", windows=5, cap=PrivacyLoss.cap("0.06", "1e-6")))
    assert report.full == 4  # the first and the last pane lie in one window only
    assert report.refused == 0
    assert "4 without room" in "\n".join(report.lines())


def test_users_are_not_reported(look):
    """One user or a thousand: the same words, numbers and files."""
    few, many = (look("user", windows=40, users=n, refunds={3}) for n in (1, 1000))
    assert few.summary()["users"] != many.summary()["users"]
    for tell in (
        lambda reader: Report.of(reader).lines(),
        lambda reader: Report.of(reader).as_dict(),
        lambda reader: to_json(journal_document(reader, Report.of(reader))),
        lambda reader: to_json(events_document(reader)),
    ):
        assert tell(few) == tell(many)
    report = Report.of(many)
    assert report.unit.spent == LOSS * 34 - REFUND
    assert "a user present in every window" in report.lines()[0]


@pytest.mark.parametrize("refunds", [(), range(0, 400, 2), range(400)], ids=["none", "half", "all"])
def test_the_outlook_comes_true(look, refunds):
    report = Report.of(look(windows=20, refunds=refunds))
    outlook = report.unit.outlook
    assert outlook.state == "lasts"
    after = look(windows=20 + outlook.windows, refunds=refunds)
    assert Report.of(after).refused == 0
    further = look(windows=22 + outlook.windows, refunds=refunds)
    later = Report.of(further)
    assert later.refused > 0
    refused = min(w.open_ms for w in History(further.rows()).windows if not w.charged)
    assert abs(refused - outlook.refused_from_ms) <= 60_000  # refunds that alternate: one window off at most
    if not isinstance(refunds, range) or refunds.step == 1:
        assert refused == outlook.refused_from_ms
        assert later.unit.outlook.state == "exhausted"
        assert "now: no room" in str(later.unit.outlook)


def test_when_it_runs_out_is_said_in_utc(look):
    report = Report.of(look(windows=10))
    # 33 windows of 0.03 fit; the 34th opens 33 minutes after the first.
    assert report.unit.outlook.windows == 23
    assert "at 1970-01-01 00:33:00 UTC, after 23 more windows" in str(report.unit.outlook)
    assert "one every 1m" in str(report.unit.outlook)


def test_dates_that_no_calendar_holds(tmp_path):
    ledger = SQLiteLedger(str(tmp_path / "l.db"), Terms("t", "stream", CAP, "s"))
    tiny = PrivacyLoss(1, 0)
    ledger.charge([Request(window(k, 10**15), tiny, ("stream",)) for k in range(2)])
    ledger.close()
    reader = open_reader(str(tmp_path / "l.db"))
    assert "after all calendar years" in "\n".join(Report.of(reader).lines())
    reader.close()


@pytest.mark.parametrize("windows", [1, 7, 10, 33])
def test_burn_down(look, windows):
    unit = Report.of(look(windows=windows)).unit
    slices = unit.slices()
    assert len(slices) == min(10, windows)
    assert [count for count, _ in slices] == sorted({count for count, _ in slices})
    assert slices[-1] == (windows, (windows * 60_000, LOSS * windows))
    assert all(point.spent == LOSS * count for count, point in slices)
    assert len(unit.lines()) == 6 + len(slices)


def test_a_filter_that_was_passed_or_refunds_too_much_is_damage():
    class LedgerReader:
        terms = Terms("t", "stream", CAP, "s")

        def __init__(self, *rows):
            self.rows = lambda: list(rows)

    charge = Row(1, "charge", 0, 1, 10**9, 0, "stream", b"")
    for bad in (
        charge._replace(seq=2, open_ms=1),
        Row(2, "seal", 0, 1, 10**9 + 1, 0, "", b""),
        charge._replace(seq=2, open_ms=1, rho=-1),
    ):
        with pytest.raises(LedgerDamaged):
            Report.of(LedgerReader(charge, bad))


def test_spent_agrees_with_the_ledger(look):
    """Two ways to the same sums: the journal, and the ledger's own tables."""
    for unit in ("stream", "event", "user"):
        for total in (None, PrivacyLoss.cap("0.6", "1e-6")):
            reader = look(unit, windows=40, total=total, refunds={0, 5, 39})
            report = Report.of(reader)
            assert report.unit.spent == reader.spent()
            if total:
                assert report.total.spent == reader.spent("total")
            assert sum(report.windows.values()) == 40
            assert 40 - report.refused == len(reader.charges())


# -- exports -----------------------------------------------------------------------------------------------------------


def test_journal_document(look):
    reader = look(windows=4, refunds={1})
    document = json.loads(to_json(journal_document(reader, Report.of(reader))))
    assert document["capacity"] == {"rho_nano": 10**9, "delta_femto": 10**9}
    assert document["readings"]["spent"]["rho_nano"] == 10**8
    rows = document["journal"]
    assert [row["seq"] for row in rows] == list(range(1, 13))
    assert rows[0]["blocks"] == ["stream"]
    assert rows[4]["kind"] == "seal"
    assert rows[4]["rho_nano"] == 20_000_000
    assert rows[4]["release"] == {"status": "released", "reason": None, "window": 1}
    charged = sum(row["rho_nano"] for row in rows if row["kind"] == "charge")
    assert charged - rows[4]["rho_nano"] == document["readings"]["spent"]["rho_nano"]


def test_google_reprices_the_events(look, tmp_path, monkeypatch, capsys):
    """Their grid of orders can only lie above our optimum; a fine one comes within a tenth of a percent."""
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    monkeypatch.chdir(tmp_path)
    orders = [1 + 1.02**k for k in range(-200, 800)]
    for reader, block, delta in (
        (look(windows=33, refunds={2, 3, 20}), None, None),
        (look("event", windows=20), None, 1e-5),
        (look("event", windows=20, total=CAP), "total", None),
        (look("user", windows=40), None, 1e-7),
        (look("user", windows=40), None, 1e-8),
    ):
        document, spent = events_document(reader, delta, block), reader.spent(block)
        assert (document["rho_nano"], document["delta_femto"]) == spent.parts
        assert sum(event["rho_nano"] for event in document["events"]) == spent.rho_nano
        accountant = RdpAccountant(orders=orders)
        accountant.compose(
            dp_accounting.ComposedDpEvent(
                [dp_accounting.ZCDpEvent(rho=event["rho_nano"] / 1e9) for event in document["events"]]
            )
        )
        theirs = accountant.get_epsilon(max(0, document["delta"] - spent.delta))
        ours = document["epsilon"]
        if ours is None:
            assert document["delta"] <= spent.delta
            assert theirs == math.inf
        else:
            assert ours == spent.epsilon(document["delta"])
            assert ours * (1 - 1e-6) <= theirs <= ours * 1.001
            (tmp_path / "events.json").write_text(to_json(document))
            assert "\n".join(document["how"]) + "\n" == DP_ACCOUNTING
            exec(DP_ACCOUNTING, {})
            assert capsys.readouterr().out.startswith(str(theirs))


def test_events_of_a_refunded_window_are_net(look):
    document = events_document(look(windows=2, refunds={1}))
    assert [event["rho_nano"] for event in document["events"]] == [30_000_000, 10_000_000]
    assert [event["delta_femto"] for event in document["events"]] == [10**6, 10**6]
    with pytest.raises(ConfigError, match="must be a block that was charged"):
        events_document(look(windows=1), block="nothing")
    with pytest.raises(ConfigError, match="delta"):
        events_document(look(windows=1), delta=1.5)
    empty = events_document(look(windows=0))
    assert empty["events"] == []
    assert empty["epsilon"] == 0


# -- pictures ----------------------------------------------------------------------------------------------------------


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


# -- looks that change nothing -----------------------------------------------------------------------------------------


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

path, stop = sys.argv[1:]
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
    time.sleep(0.002)  # as long as a disk takes to write a window: where tests run it may be memory
assert ledger.verify() == 3 * done
ledger.close()
print(done)
"""


@pytest.mark.slow
def test_thirty_looks_while_an_engine_charges(tmp_path, temporary):
    """Every look succeeds and sees one state of the ledger, at least as new as the moment it began."""
    path, stop = str(tmp_path / "l.db"), tmp_path / "stop"
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, path, str(stop)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
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
            done = CliRunner().invoke(main, ["budget", "show", path, "--json"])
            assert done.exit_code == 0, done.output
            facts = json.loads(done.stdout)
            charged = sum(facts["windows"].values())
            assert facts["spent"]["rho_nano"] == charged * 10**6
            assert facts["spent"]["delta_femto"] == charged * 10
            assert charged - facts["windows"]["acknowledged"] <= 1
            assert charged >= known
            seen.append(charged)
            if turn % 5 == 0:
                assert CliRunner().invoke(main, ["budget", "verify", path]).exit_code == 0
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
