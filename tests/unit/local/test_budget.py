"""One vocabulary: what `fcstream budget` tells of devices and of the analyst who asks them; the analyst's record."""

import contextlib
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import sample

from fcstream import Engine
from fcstream.accounting.filters import BudgetSchedule
from fcstream.accounting.losses import DPLoss, PrivacyLoss, epsilon_tight
from fcstream.cli import main
from fcstream.errors import ConfigError, LedgerDamaged, LedgerError, LedgerMismatch
from fcstream.ledgers import open_reader
from fcstream.ledgers.sqlite import ledger as sqlite
from fcstream.local import (
    Ask,
    Box,
    Component,
    Euclidean,
    FileJournal,
    Fleet,
    LocalBudget,
    LocalFilter,
    Nearest,
    Point,
    RangeCount,
    Rounds,
    Series,
    Simulation,
    answer_all,
)
from fcstream.local.analyst.record import QueryLedger, record_of, used_by
from fcstream.local.device.journal_reader import DeviceJournalReader, is_journal
from fcstream.noise.samplers import Noise, SeededEntropy
from fcstream.reporting.budget import Report

LINE = Euclidean((-500.0,), (500.0,), step=1.0)
PLANE = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=1.0, unit=100.0)
CROWD = np.random.default_rng(7).normal(500, 180, (80, 2))
COUNT = RangeCount("place", PLANE, Box((1000, 1000), (300, 300)))


def ask(query="q", round=1, nano=10**8, pure=False):
    return Ask(query, round, "place", LINE.as_dict(), Point().as_dict(), nano, pure)


def devices(path, budget=None, names=("a", "b,c%", "d"), keep=3):
    held = FileJournal(path, keep=keep, sync=False)
    budget = budget or LocalBudget.concentrated(1)
    components = {"place": Component(LINE, (30.0,))}
    return held, [LocalFilter(budget, components, held, name=n, noise=Noise(SeededEntropy(1))) for n in names]


def invoke(*arguments):
    return CliRunner().invoke(main, ["budget", *map(str, arguments)])


def told(*arguments):
    found = invoke(*arguments)
    assert found.exit_code == 0, found.output
    return json.loads(found.output)


def crowd(count=80, rho=40, seed=1, journal=None):
    budget, noise = LocalBudget.concentrated(rho), Noise(SeededEntropy(seed))
    return Fleet(
        [
            LocalFilter(budget, {"place": Component(PLANE, row)}, journal, name=f"d{i}", noise=noise)
            for i, row in enumerate(CROWD[:count].tolist())
        ]
    )


# -- devices ---------------------------------------------------------------------------------------------------------


def test_a_journal_is_read_like_a_ledger(tmp_path):
    path = tmp_path / "state"
    held, (a, b, d) = devices(path)
    said = []
    for i in range(5):  # two queries are forgotten, but stay in the file
        said += answer_all([(a, ask(f"q{i}", nano=15 * 10**7)), (b, ask(f"q{i}", nano=10**7))])
    said.append(d.answer(ask("q4", nano=10**7)))
    assert json.loads(a.answer(ask("q5", nano=9 * 10**8)))["reason"] == "budget"
    for turn in range(2):
        facts = told("show", path, "--json")  # while it is held
        assert facts["stream"] == "state"
        assert facts["unit"] == "device"
        assert facts["guarantee"]["rho_nano"] == 10**9
        assert facts["guarantee"]["epsilon"] == epsilon_tight(1, 1e-6)
        assert facts["spent"]["rho_nano"] == a.spent.rho_nano == 75 * 10**7
        assert facts["remaining"]["rho_nano"] == a.remaining.rho_nano
        assert facts["saved"]["rho_nano"] == 0
        assert facts["devices"]["count"] == 3
        assert [facts["devices"][k]["rho_nano"] for k in ("min", "median", "max")] == [10**7, 5 * 10**7, 75 * 10**7]
        assert facts["windows"] == {"charged": 0, "sealed": 11, "acknowledged": 0}
        one = told("show", path, "--json", "--stream", "b,c%")
        assert one["stream"] == "b,c%"
        assert one["spent"]["rho_nano"] == b.spent.rho_nano
        assert one["devices"]["count"] == 1
        assert one["runs_out"]["state"] == "lasts"
        text = invoke("show", path).output
        for word in ("guarantee ", "spent ", "realized_loss_bound ", "remaining ", "runs out ", "questions "):
            assert word in text
        assert "and distance 1: for ever" in text
        assert "journal rows, all in order" in invoke("verify", path).output
        released = invoke("releases", path).output.encode().splitlines()
        if turn == 0:
            assert released == said
            assert facts["answers"] == {"answered": 11}
            held.compact()
        else:
            assert released == [line for line in said if json.loads(line)["query"] in ("q2", "q3", "q4")]
            assert facts["answers"] == {"answered": 7}
    document = told("export", path)
    assert document["capacity"] == {"rho_nano": 10**9, "delta_femto": 0}
    kinds = [row["kind"] for row in document["journal"]]
    assert (kinds.count("folded"), kinds.count("charge"), kinds.count("seal")) == (2, 7, 7)
    costs = [row["rho_nano"] for row in document["journal"] if row.get("blocks") == ["device:a"]]
    assert sum(costs) == 75 * 10**7
    refused = invoke("export", path, "--format", "dp-accounting")
    assert refused.exit_code == 2
    assert "distance" in refused.output
    held.close()


def test_journal_reader_agrees_with_the_devices(tmp_path):
    path = tmp_path / "state"
    held, found = devices(path)
    for i in range(4):
        answer_all([(one, ask(f"q{i}", nano=10**7 * (k + 1))) for k, one in enumerate(found)])
    for compact in (False, True):
        if compact:
            held.compact()
        reader = DeviceJournalReader(str(path))
        assert reader.spent() == PrivacyLoss(12 * 10**7)
        assert reader.summary() == {"charged": 0, "sealed": 12, "blocks": 3}
        assert sum(loss.rho_nano for _, loss in reader.charges()) == 24 * 10**7
        for one in found:
            mine = DeviceJournalReader(str(path), one.name)
            assert mine.spent() == one.spent
            assert Report.of(mine).unit.spent == one.spent
        assert reader.verify() == len(reader.rows())
        reader.close()
    held.close()


def test_how_long_a_device_lasts_is_reported_in_queries(tmp_path, monkeypatch):
    """Rounds of one query come within moments; what counts is how often somebody asks."""
    path = tmp_path / "state"
    held, (a, *_) = devices(path)
    for i in range(3):
        for round in range(1, 5):
            now = 1_700_000_000 + 3600 * i + round
            monkeypatch.setattr("time.time", lambda now=now: now)
            a.answer(ask(f"q{i}", round, nano=5 * 10**7))
    found = told("show", path, "--json")["runs_out"]
    assert (found["state"], found["windows"]) == ("lasts", 2)
    assert found["every_ms"] == 3_600_000
    assert found["loss_per_window"]["rho_nano"] == 2 * 10**8
    assert [point["rho_nano"] for point in told("show", path, "--json")["burn_down"]] == [
        2 * 10**8 * k for k in (1, 2, 3)
    ]
    held.close()


def test_pure_budgets_are_reported_as_epsilon(tmp_path):
    path = tmp_path / "state"
    held, (a, *_) = devices(path, LocalBudget.geo(1))
    for i in range(3):
        a.answer(ask(str(i), nano=10**8, pure=True))
    facts = told("show", path, "--json")
    assert facts["guarantee"] == {"epsilon": 1.0, "delta": 0.0, "epsilon_nano": 10**9, "delta_femto": 0}
    assert facts["spent"]["epsilon_nano"] == 3 * 10**8
    assert facts["realized_loss_bound"]["epsilon"] == 0.3
    text = invoke("show", path).output
    assert "never exceeds it" in text
    assert "epsilon spent" in text
    assert told("export", path)["journal"][0]["epsilon_nano"] == 10**8
    assert isinstance(DeviceJournalReader(str(path)).terms.capacity, DPLoss)
    held.close()
    path = tmp_path / "other"
    held, (a, *_) = devices(path, LocalBudget.approximate(1.0, 1e-6, 1.0))
    a.answer(ask(nano=10**6))
    assert told("show", path, "--json")["guarantee"]["epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert json.loads(told("export", path)["specification"])["kind"] == "approximate"
    held.close()


def test_what_is_wrong_with_a_journal_is_reported(tmp_path):
    path = tmp_path / "state"
    held, (a, *_) = devices(path)
    assert is_journal(str(path)) is False
    assert not is_journal(str(tmp_path / "absent"))
    for i in range(3):
        a.answer(ask(str(i)))
    held.close()
    assert invoke("show", path, "--stream", "nobody").exit_code == 2
    whole = path.read_bytes()
    path.write_bytes(whole + b"torn")
    assert invoke("verify", path).exit_code == 0
    lines = whole.splitlines(keepends=True)
    for wrong in (lines[:-1], lines[:1] + lines[2:], [whole.replace(b"100000000", b"100000001")]):
        path.write_bytes(b"".join(wrong))
        for command in ("verify", "show", "releases", "export"):
            found = invoke(command, path)
            assert found.exit_code == 4, command
            assert "Traceback" not in found.output
    path.write_bytes(whole)
    assert invoke("export", path, "--out", path).exit_code == 2
    assert path.read_bytes() == whole
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(LedgerError):
        DeviceJournalReader(str(tmp_path / "empty"))
    with pytest.raises(LedgerError):
        DeviceJournalReader(str(tmp_path / "absent"))


@pytest.mark.slow
def test_pictures_of_devices(tmp_path):
    pytest.importorskip("matplotlib")
    for kind, budget in (("rho", LocalBudget.concentrated(1)), ("epsilon", LocalBudget.geo(1))):
        held, (a, *_) = devices(tmp_path / kind, budget)
        for i in range(3):
            a.answer(ask(str(i), pure=kind == "epsilon"))
        found = invoke("show", tmp_path / kind, "--plot", tmp_path / f"{kind}.svg")
        assert found.exit_code == 0, found.output
        assert f"{kind} spent by the most charged device" in (tmp_path / f"{kind}.svg").read_text()
        held.close()


def test_all_reports_have_one_shape(tmp_path):
    """An engine's, a device's, an analyst's: the same keys, and in text the same lines."""
    with Engine(sample(ledger={"url": f"sqlite:{tmp_path / 'engine.db'}"})) as engine:
        engine.close()
    held, (a, *_) = devices(tmp_path / "devices")
    a.answer(ask())
    held.close()
    with Series(crowd(), BudgetSchedule(10**10, 2), "s", tmp_path / "analyst.db") as series:
        series.run(COUNT, "PM1", Rounds(4))
    facts, texts = [], []
    for name in ("engine.db", "devices", "analyst.db"):
        facts.append(told("show", tmp_path / name, "--json"))
        texts.append({line.split()[0] for line in invoke("show", tmp_path / name).output.splitlines()})
    assert facts[0].keys() == facts[1].keys() == facts[2].keys()
    for key in ("guarantee", "spent", "remaining", "saved", "realized_loss_bound", "runs_out"):
        assert facts[0][key].keys() == facts[1][key].keys() == facts[2][key].keys()
    words = {"stream", "guarantee", "spent", "realized_loss_bound", "remaining", "runs"}
    assert all(words <= text for text in texts)
    assert "releases" in texts[0]
    assert "replies" in texts[1] & texts[2]


@pytest.mark.slow
def test_devices_journals_are_read_with_numpy_alone(tmp_path):
    """Numba, SciPy, msgspec, click and SQLite are away; a device keeps, shrinks and reads its journal all the same."""
    code = f"""
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('numba', 'llvmlite', 'scipy', 'msgspec', 'click', 'sqlite3'):
            raise ImportError(name)
sys.meta_path.insert(0, Wall())
from fcstream.local import *
from fcstream.local.device.journal_reader import DeviceJournalReader
space = Euclidean((0.0, 0.0), (100.0, 100.0), step=0.5)
journal = FileJournal({str(tmp_path / "state")!r}, keep=2)
device = LocalFilter(LocalBudget.concentrated(1), {{'p': Component(space, (3.0, 4.0))}}, journal, name='small')
for i in range(5):
    device.answer(Ask(str(i), 1, 'p', space.as_dict(), {{'kind': 'point'}}, 10**8))
journal.compact()
print(DeviceJournalReader(journal.location).spent().rho_nano, DeviceJournalReader(journal.location).verify())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "500000000 5\n", done.stderr


# -- analysts --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["BM0", "BM1", "PM0", "PM1"])
@pytest.mark.parametrize("rounds", [Rounds(1), Rounds(4), Rounds(7, "even"), Rounds(10)])
def test_what_a_query_used_follows_from_its_record(method, rounds):
    """Also where budgets are so small that some rounds cost nothing, or nobody is offered anything."""
    rng = np.random.default_rng(3)
    for low, high in ((10**9, 4 * 10**9), (1000, 9000)):
        offered = rng.integers(low, high, 300)
        offered[:5] = 0
        space = Euclidean((0.0, 0.0), (1000.0, 1000.0), step=1.0, unit=1.0 if high < 10**4 else 100.0)
        points = space.encode_all(np.random.default_rng(7).normal(500, 180, (300, 2)))
        for query in (
            RangeCount("place", space, Box((1000, 1000), (300, 300))),
            Nearest.at("place", space, (500, 500), 9),
        ):
            simulated = Simulation({"place": (space, points)}, PrivacyLoss(10**12), Noise(SeededEntropy(2)))
            found = query.run(simulated, "q", offered, method, rounds)
            record = json.loads(json.dumps(record_of("q", query, found, rounds)))
            assert (used_by(record, offered) == found.transcript.consumed).all()
            assert (used_by(record, offered) == simulated.spent).all()
            saved = 1 - found.transcript.consumed[5:] / offered[5:]
            assert record["saving"]["mean"] == pytest.approx(saved.mean())
            assert record["saving"]["quartiles"] == pytest.approx(np.percentile(saved, (25, 50, 75)))
            assert sum(record["eliminated"]) == int(np.isin(found.transcript.state, (1, 2)).sum())
            assert len(record["eliminated"]) == record["rounds"] <= record["of_rounds"]


def test_an_analysts_ledger(tmp_path):
    path, asked, answers = tmp_path / "analyst.db", crowd(), []
    schedule = BudgetSchedule(10**10, 4)
    for _ in range(3):  # a process of its own for each, as it were
        with Series(asked, schedule, "town", f"sqlite:{path}") as series:
            answers.append(series.run(COUNT, "PM1", Rounds(4)))
            if len(answers) == 2:
                left = 10**10 - series.account.remaining
    spent = np.array([one.spent.rho_nano for one in asked.devices])
    facts = told("show", path, "--json")
    assert facts["spent"]["rho_nano"] == int(spent.max())
    assert facts["remaining"]["rho_nano"] == 10**10 - int(spent.max())
    reserved = [row["rho_nano"] for row in told("export", path)["journal"] if row["kind"] == "charge"]
    assert facts["saved"]["rho_nano"] == sum(reserved) - int(spent.max())
    assert facts["windows"] == {"charged": 0, "sealed": 1, "acknowledged": 2}
    assert [query["query"] for query in facts["queries"]] == ["town-1", "town-2", "town-3"]
    assert facts["burn_down"][1]["rho_nano"] == int(left.max())
    for query, answer in zip(facts["queries"], answers, strict=True):
        assert query["value"] == answer.value
        assert query["saving"]["mean"] == answer.saving
        assert query["bound"] == (None if answer.bound is None else pytest.approx(answer.bound))
        assert query["component"] == "place"
        assert "paid" not in query
    assert facts["queries"][-1]["remaining_rho"] == pytest.approx(10 - spent.mean() / 10**9)
    text = invoke("show", path).output
    assert "town-2 PM1 of place: 80, 0, " in text
    assert invoke("verify", path).exit_code == 0
    lines = [json.loads(line) for line in invoke("releases", path).output.splitlines()]
    assert [line["query"] for line in lines] == ["town-1", "town-2", "town-3"]
    assert {line["stream"] for line in lines} == {"town"}
    assert told("export", path)["journal"][1]["release"]["kind"] == "devices"
    with Series(asked, schedule, "village", path) as other:  # another series beside it
        other.run(COUNT, "BM1")
    with closing(open_reader(str(path), "village")) as reader:
        assert reader.terms.unit == "device"


def test_an_answer_that_was_not_shown_is_shown_later(tmp_path):
    asked, schedule, path = crowd(), BudgetSchedule(10**10, 4), tmp_path / "analyst.db"
    with Series(asked, schedule, "town", path) as series:
        answer = series.run(COUNT, "PM1", Rounds(4))
    spent = [one.spent for one in asked.devices]
    for _ in range(2):
        with Series(asked, schedule, "town", path) as series:
            (record,) = series.unpublished()
            assert record["value"] == answer.value
    with Series(asked, schedule, "town", path) as series:
        series.acknowledge()
        assert series.unpublished() == []
    assert [one.spent for one in asked.devices] == spent


def killed(folder, at, steps=2):
    """A process that asks a series and is killed at one of the moments that matter; else how many there were."""
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        moments, code = itertools.count(1), 3

        def moment():
            if next(moments) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        def between(owner, name):
            call = getattr(owner, name)

            def wrapped(*args):
                moment()
                found = call(*args)
                moment()
                return found

            setattr(owner, name, wrapped)

        with contextlib.suppress(BaseException):
            for name in ("charge", "seal", "acknowledge"):
                between(QueryLedger, name)
            between(Fleet, "ask")
            asked = crowd(20, journal=FileJournal(folder / "state", sync=False))
            while True:
                with Series(asked, BudgetSchedule(10**10, 4), "town", folder / "analyst.db") as series:
                    if not series.unpublished():
                        if series.step > steps:
                            break
                        series.run(COUNT, "PM1", Rounds(3))
                    with open(folder / "told", "a") as file:
                        file.writelines(json.dumps(record) + "\n" for record in series.unpublished())
                    moment()
                    series.acknowledge()
            os.write(sink, str(next(moments) - 1).encode())
            code = 0
        os._exit(code)
    os.close(sink)
    said = os.read(source, 20)
    os.close(source)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return int(said) if said else None


@pytest.mark.slow
def test_an_analyst_killed_at_any_moment_goes_on(tmp_path):
    """Every query is answered once, devices pay once, and the ledger says what the devices say."""
    COUNT.run(crowd(20), "warm", np.full(20, 10**9), "PM1", Rounds(3))  # kernels are loaded before processes are forked
    (tmp_path / "whole").mkdir()
    moments = killed(tmp_path / "whole", None)
    assert moments > 25
    for at in range(1, moments + 1, 2):
        folder = tmp_path / str(at)
        folder.mkdir()
        assert killed(folder, at) is None
        assert killed(folder, None) is not None
        kind_description = {}
        for line in (folder / "told").read_text().splitlines():
            record = json.loads(line)
            assert kind_description.setdefault(record["query"], record) == record
        assert list(kind_description) == ["town-1", "town-2"]
        assert kind_description["town-2"]["missing"] == 0
        shown = [told("show", folder / name, "--json") for name in ("state", "analyst.db")]
        assert shown[0]["spent"] == shown[1]["spent"]
        assert shown[1]["windows"] == {"charged": 0, "sealed": 0, "acknowledged": 2}
        assert all(invoke("verify", folder / name).exit_code == 0 for name in ("state", "analyst.db"))


CHANGED = ({"paid": "eJw="}, {"left": "0"}, {"query": "town-2"}, {"of_rounds": 1}, {"split": "even"}, {"paid": 5})


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGED)
def test_a_record_that_does_not_add_up_is_damage_even_if_its_hashes_do(change, tmp_path, monkeypatch):
    path = tmp_path / "analyst.db"
    honest = sqlite.SQLiteLedger.seal

    def seal(ledger, answers):
        (answer,) = answers
        return honest(ledger, [answer._replace(body=json.dumps(json.loads(answer.body) | change).encode())])

    monkeypatch.setattr(sqlite.SQLiteLedger, "seal", seal)
    with Series(crowd(), BudgetSchedule(10**10, 4), "town", path) as series:
        series.run(COUNT, "PM1", Rounds(4))
    with pytest.raises(LedgerDamaged, match="does not add up"):
        Series(crowd(), BudgetSchedule(10**10, 4), "town", path)


def test_a_record_that_was_changed_is_damage(tmp_path):
    path = tmp_path / "analyst.db"
    with Series(crowd(), BudgetSchedule(10**10, 4), "town", path) as series:
        series.run(COUNT, "PM1", Rounds(4))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE journal SET body = CAST('{}' AS BLOB) WHERE kind = 'seal'")
    db.close()
    with pytest.raises(LedgerDamaged, match="does not follow"):
        Series(crowd(), BudgetSchedule(10**10, 4), "town", path)
    assert invoke("verify", path).exit_code == 4


def test_ledgers_of_others_are_refused(tmp_path):
    with Engine(sample(ledger={"url": f"sqlite:{tmp_path / 'engine.db'}"})) as engine:
        engine.close()
    with pytest.raises(LedgerMismatch, match="another series"):
        Series(crowd(), BudgetSchedule(10**10, 4), "t", tmp_path / "engine.db")
    for url in ("memory:", "postgresql://h/d", "sqlite:"):
        with pytest.raises(ConfigError, match="sqlite:PATH"):
            Series(crowd(), BudgetSchedule(10**10, 4), "t", url)
