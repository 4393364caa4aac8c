"""When budgets run out: what is said of it before, at the window, and in every release, by public facts alone."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import rows, sample

from fcstream import BudgetExhausted, ConfigError, Engine, KeyedEngine, Noise, PrivacyLoss, SeededEntropy
from fcstream.cli import main
from fcstream.config import Config
from fcstream.engine.exhaustion import Exhaustion, exhaustion_warning
from fcstream.planning.plan import plan, quick_warnings
from fcstream.releases.base import Release
from fcstream.service.batch import Summary
from fcstream.stream.windows import Window

COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None, "rho": 50.0}
USERS = {"unit": "user", "user": "id"}
ALWAYS = [f"always {i}" for i in range(100)]


def users_engine(seed=0, **changes):
    """Six windows of counts with hardly any noise; the budget of whoever is always there lasts three."""
    budget = {"rho": 150.0, **changes.pop("budget", {})}
    return Engine(sample(stream=USERS, release=COUNT, budget=budget, **changes), noise=Noise(SeededEntropy(seed)))


def fill(engine):
    for k in range(6):
        engine.push(np.full(100, 10_000 * k), rows(100), ids=ALWAYS)


def test_no_window_leaves_anybody_out(caplog):
    """Counts went on with those who had budget left, as released, and lacked everybody who was always there."""
    engine = users_engine()
    fill(engine)
    with caplog.at_level(logging.WARNING, "fcstream.engine"):
        answers = engine.close()
    assert [r.reason for r in answers] == [None] * 3 + ["budget_exhausted"] * 3
    assert [r.value for r in answers[3:]] == [None] * 3
    assert all(r.count > 95 for r in answers[:3])
    assert {r.unit for r in answers} == {"user"}
    assert b'"unit":"user"' in answers[0].to_bytes()
    assert Release.from_bytes(answers[3].to_bytes()) == answers[3]
    assert caplog.records == []  # a run over files says it at its end


def live(**changes):
    window = {"clock": "broker", "start": "1970-01-01T00:00:00Z", "end": None, "lateness": "0s", "backlog": "1h"}
    return sample(stream=USERS, release=COUNT, budget={"rho": 150.0}, window=window, **changes)


def test_a_live_stream_logs_the_first_refusal_and_no_other(caplog):
    engine = Engine(live())
    assert engine.exhaustion.text is None
    with caplog.at_level(logging.ERROR, "fcstream.engine"):
        engine.advance(35_000)
        assert (engine.exhaustion.text, caplog.records) == (None, [])
        answers = engine.advance(65_000)
    assert [r.reason for r in answers] == ["budget_exhausted"] * 3
    (told,) = caplog.records
    assert told.levelno == logging.ERROR
    assert "since the window that opens at 1970-01-01 00:00:30 UTC windows are refused" in told.getMessage()
    assert engine.exhaustion.text in told.getMessage()


def test_a_key_that_has_room_does_not_end_the_refusals_of_another():
    engine = users_engine()
    fill(engine)
    good, *_, bad = engine.close()
    told = Exhaustion(engine.job)
    for release, key, is_told in ((bad, "a", True), (good, "b", True), (bad, "b", True), (good, "a", True)):
        told.note([replace(release, stream=f"t/{key}")])
        assert (told.text is not None) == is_told
    told.note([replace(good, stream="t/b")])
    assert told.text is None


def test_many_keys_log_one_line(caplog):
    shape = live()
    shape["stream"] |= {"key": "room", "keys": ["a", "b", "c"]}
    shape["budget"] = {"rho": 450.0, "delta": 1e-6}
    engine = KeyedEngine(shape)
    with caplog.at_level(logging.ERROR, "fcstream.engine"):
        engine.advance(65_000)
    assert len(caplog.records) == 1
    assert engine.exhaustion.text is not None


def test_a_restart_knows_that_the_budget_is_used_up(tmp_path):
    shape = live(ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    with Engine(shape) as engine:
        engine.advance(55_000)
    with Engine(shape) as engine:
        assert "since the window that opens at 1970-01-01 00:00:40 UTC, or earlier, windows" in engine.exhaustion.text


def test_a_refused_charge_is_reported_in_calendar_times_with_a_remedy_that_helps():
    """A pane's budget is followed by the next one's; that of a user or a stream is followed by none."""
    loss, window = PrivacyLoss.charge(2), Window(0, 1_748_768_400_000, 1_748_768_460_250)
    told = {
        block: str(BudgetExhausted(loss, PrivacyLoss(), PrivacyLoss.charge(1), block, window))
        for block in ("1748768460250", "user", "stream", "total")
    }
    assert all("for window 2025-06-01 09:00:00 UTC" in text for text in told.values())
    assert told["1748768460250"].startswith("block 2025-06-01 09:01:00.250 UTC refuses the charge")
    assert [block for block, text in told.items() if "wait for a new block" in text] == ["1748768460250"]


def test_refuse_holds_for_users_by_the_public_worst_case():
    engine = users_engine(budget={"exhausted": "refuse"})
    for k in range(6):
        engine.push(np.full(100, 10_000 * k), rows(100), ids=[f"only in {k}: {i}" for i in range(100)])
    answers = engine.close()
    assert [r.reason for r in answers] == [None] * 3 + ["budget_exhausted"] * 3  # newcomers' budgets change nothing
    assert engine.spent.rho == 150.0


def test_stop_holds_for_users_by_the_public_worst_case():
    engine = users_engine(budget={"exhausted": "stop"})
    fill(engine)
    with pytest.raises(
        BudgetExhausted, match="block user refuses the charge for window 1970-01-01 00:00:30 UTC"
    ) as caught:
        engine.close()
    assert caught.value.window.open_ms == 30_000
    assert [r.count > 95 for r in engine.unpublished()] == [True] * 3


@pytest.mark.parametrize("unit", ["event", "user", "stream"])
def test_omit_is_gone(unit):
    told = (
        "^budget.exhausted: must be 'refuse' or 'stop': 'omit' was removed, because numbers lacked most users and did"
    )
    with pytest.raises(ConfigError, match=told):
        Config.from_mapping(sample(stream={"unit": unit}, budget={"exhausted": "omit"}))
    with pytest.raises(ConfigError, match="must be 'refuse' or 'stop', got 'other'"):
        Config.from_mapping(sample(stream={"unit": unit}, budget={"exhausted": "other"}))


@pytest.mark.parametrize(
    ("exhausted", "text"),
    [
        (
            None,
            "a run does not begin unless `budget.exhausted` says what becomes of window 4, which opens at 1970-01-01",
        ),
        ("refuse", "from window 4, which opens at 1970-01-01 00:00:30 UTC, on every window is refused"),
        ("stop", "the run ends at window 4, which opens at 1970-01-01 00:00:30 UTC (`budget.exhausted` = 'stop')"),
    ],
)
def test_the_plan_compares_the_schedule_with_the_budget(exhausted, text):
    budget = {"rho": 150.0, **({} if exhausted is None else {"exhausted": exhausted})}
    config = Config.from_mapping(sample(stream=USERS, release=COUNT, budget=budget))
    lines = plan(config).lines()
    assert any(line.startswith("warning: ") and text in line for line in lines), "\n".join(lines)


@pytest.mark.parametrize(("unit", "rho"), [("event", 900.0), ("user", 900.0), ("user", 150.0), ("stream", 900.0)])
def test_the_plan_compares_the_schedule_with_the_total(unit, rho):
    """It said nothing of a total, and of the unit `event` that nothing caps who is in every window."""
    stream = {"unit": unit, "user": "id" if unit == "user" else None}
    budget = {"rho": rho, "total_rho": 200.0, "total_delta": 0.0}
    found = plan(Config.from_mapping(sample(stream=stream, release=COUNT, budget=budget)))
    text = "\n".join(found.lines())
    assert "does not cap that" not in text
    if rho > 200:
        assert found.lasting_windows == 4
        assert "warning: the total lasts 4 windows of 6: a run does not begin unless" in text
        assert "what becomes of window 5, which opens at" in text
        assert "and those after it; raise `budget.total_rho`" in text
    else:
        assert found.lasting_windows == 3
        assert "warning: the budget of a user present in every window lasts 3 windows of 6" in text
    enough = Config.from_mapping(
        sample(stream=stream, release=COUNT, budget=budget | {"rho": 900.0, "total_rho": 300.0})
    )
    assert exhaustion_warning(enough.job) is None


def test_a_budget_that_lasts_is_no_warning():
    for budget in ({"rho": 300.0}, {"rho": 300.0, "savings": "even"}):
        job = Config.from_mapping(sample(stream=USERS, release=COUNT, budget=budget)).job
        assert exhaustion_warning(job) is None
    assert exhaustion_warning(Config.from_mapping(sample()).job) is None


def test_a_live_stream_always_ends_somewhere():
    window = {"clock": "broker", "end": None}
    job = Config.from_mapping(sample(stream=USERS, release=COUNT, budget={"rho": 150.0}, window=window)).job
    assert (
        "lasts 3 windows: from window 4 (it opens at 1970-01-01 00:00:30 UTC if the first run is now) on every window"
        in str(exhaustion_warning(job))
    )
    # When a run starts, the first one may have been long ago.
    assert "lasts 3 windows: from window 4 since the first run on every window" in str(
        exhaustion_warning(job, planned=False)
    )


def test_a_run_does_not_say_that_it_is_the_first():
    window = {"clock": "broker"}
    config = Config.from_mapping(sample(stream=USERS, release=COUNT, budget={"rho": 150.0}, window=window))
    (text,) = (text for text in quick_warnings(config) if "lasts" in text)
    assert "lasts 3 windows: from window 4 since the first run on every window is refused" in text


def test_one_thing_is_told_as_one():
    """What a later run says of the only window, the only release and the only record."""
    lines = Summary(republished=1, already_answered=1, replayed=1).lines()
    assert "1 release sealed by an earlier run was published again, unchanged" in lines
    assert "1 window was answered by an earlier run and stays as it is" in lines
    assert "1 record lies in that window and changed nothing" in lines
    lines = Summary(republished=2, already_answered=2, replayed=2).lines()
    assert "2 releases sealed by an earlier run were published again, unchanged" in lines
    assert "2 windows were answered by an earlier run and stay as they are" in lines
    assert "2 records lie in those windows and changed nothing" in lines


@pytest.mark.parametrize(("exhausted", "code"), [(None, 2), ("refuse", 3), ("stop", 3)])
def test_the_command_warns_at_the_start_and_at_the_window(tmp_path, monkeypatch, exhausted, code):
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"ts_ms": 1, "a": 20, "id": "x"}\n')
    Path("c.toml").write_text(
        f"""
stream = {{name = "t", unit = "user", user = "id"}}
lattice.step = 0.001
features = [{{name = "a", min = 0.0, max = 40.0}}]
window = {{length = "10s", start = "1970-01-01T00:00:00Z", end = "1970-01-01T00:01:00Z"}}
release = {{kind = "count", rho = 1.0}}
budget = {{rho = 2.0, delta = 0.0{"" if exhausted is None else f', exhausted = "{exhausted}"'}}}
source.url = "jsonl:in.jsonl"
sink.url = "jsonl:out.jsonl"
ledger.url = "sqlite:l.db"
"""
    )
    done = CliRunner().invoke(main, ["run", "c.toml"])
    assert done.exit_code == code, done.stderr
    if exhausted is None:  # at once, so that no ledger is bound to such a configuration
        assert "fcstream: budget.rho: lasts 2 of 6 windows: lower release.rho to 0.3333, or use longer" in done.stderr
        assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "c.toml"}
    else:
        assert "warning: the budget of a user present in every window lasts 2 windows of 6" in done.stderr
