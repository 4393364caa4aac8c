"""A run over files begins only if its budget lasts to its end, which public facts tell before a record is read."""

import re
import warnings
from contextlib import closing

import numpy as np
import pandas
import pytest

from fcstream import (
    BudgetExhausted,
    BudgetTooSmall,
    BudgetWarning,
    Config,
    ConfigError,
    Engine,
    Noise,
    SeededEntropy,
    Stream,
)
from fcstream.engine.batch_budget import check_opened, check_unopened
from fcstream.ledgers import each_reader, open_reader
from fcstream.sections import Budget, Count, Feature, Frequent, KeyDiscovery, Lattice, Records, Window

HOUR = 3_600_000
FRAME = pandas.DataFrame(
    {
        "ts_ms": np.repeat(np.arange(8) * HOUR, 300),
        "id": np.tile([f"u{i}" for i in range(300)], 8),
        "room": np.tile(["a", "b", "c"], 800),
    }
)
USERS = {"unit": "user", "user": "id"}


def stream(ledger=None, hours=8, rho=0.01, release=None, records=(), features=(), budget=(), **more):
    """Three hundred users in each of eight hours, of which the budget pays for four."""
    records = {"name": "visits", **USERS, **dict(records)}
    return Stream(
        Records(**records),
        window=Window(length="1h", start="1970-01-01T00:00:00Z", end=f"1970-01-01T0{hours}:00:00Z"),
        release=release or Count(rho=rho),
        budget=Budget(**{"rho": 0.04, "delta": 0.0, **dict(budget), **more}),
        features=features,
        lattice=Lattice(step=1.0) if features else None,
        ledger=ledger,
        noise=Noise(SeededEntropy(1)),
        on_rejection=len,
    )


def unread():
    """Frames of which none may be asked for."""
    raise AssertionError("a record was read")
    yield


def windows(ledger):
    with_all = [reader.summary() for reader in each_reader(f"sqlite:{ledger}")]
    return sum(found.get(state, 0) for found in with_all for state in ("charged", "sealed", "acknowledged"))


def test_a_budget_that_does_not_last_is_told_before_a_record_is_read(tmp_path):
    """It gave 301 301 290 296 2 -1 6 3, all of them released."""
    ledger = tmp_path / "l.db"
    for made in (stream(ledger), stream()):
        with pytest.raises(BudgetTooSmall) as caught:
            made.run(FRAME)
        assert str(caught.value) == (
            "budget.rho: lasts 4 of 8 windows: lower release.rho to 0.005, or use longer windows, or let window.end be "
            'earlier; to release 4 and refuse the rest, write budget.exhausted = "refuse"'
        )
        assert (caught.value.exit_code, isinstance(caught.value, ConfigError)) == (2, True)
        assert (made.releases, made.rejected) == ([], {})
    assert not ledger.exists()  # so that what the message asks for can be done with the same ledger
    assert len(stream(ledger, rho=0.005).run(FRAME)) == 8


def test_refused_windows_are_rows_without_a_value_and_a_warning():
    made = stream(exhausted="refuse")
    with pytest.warns(
        BudgetWarning, match="since the window that opens at 1970-01-01 04:00:00 UTC windows are refused"
    ):
        frame = made.run(FRAME)
    assert list(frame.status) == ["released"] * 4 + ["refused"] * 4
    assert list(frame.reason[4:]) == ["budget_exhausted"] * 4
    assert frame.reason[:4].isna().all()
    assert frame[["value", "sigma", "low", "high"]][4:].isna().all(axis=None)
    assert (frame.value[:4] > 250).all()


def test_stop_raises_at_the_end_with_what_was_released():
    made = stream(exhausted="stop")
    with pytest.raises(BudgetExhausted, match="block user refuses the charge for window 1970-01-01 04:00:00") as caught:
        made.run(FRAME)
    assert [release.status for release in caught.value.releases] == ["released"] * 4
    assert caught.value.releases == made.releases


def test_a_second_run_compares_what_is_left(tmp_path):
    ledger = tmp_path / "l.db"
    first = stream(ledger, hours=4).run(FRAME)
    assert len(first) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(stream(ledger, hours=4).run(FRAME)) == 4  # nothing is left to answer
    before = windows(ledger)
    with pytest.raises(BudgetTooSmall) as caught:
        stream(ledger, hours=6).run(FRAME)
    assert str(caught.value) == (
        "budget.rho: lasts 0 of 2 windows, since (rho=0.04, delta=0) of (rho=0.04, delta=0) is spent: take a new "
        "stream with a budget of its own, which adds up with this one; to have all of them refused, write "
        'budget.exhausted = "refuse"'
    )
    assert windows(ledger) == before
    assert "lower" not in str(caught.value)  # the ledger is bound to `release.rho`
    with pytest.warns(BudgetWarning):
        assert list(stream(ledger, hours=6, exhausted="refuse").run(FRAME).status)[4:] == ["refused"] * 2


def test_questions_of_a_group_are_compared_with_what_the_group_has_left(tmp_path):
    """The third question about the same people gave `-1 [-15, 13] released`."""
    ledger = tmp_path / "l.db"

    def ask(number, **budget):
        name = {"name": f"q{number}"}
        return stream(ledger, hours=1, rho=0.02, records=name, group="study", **budget).run(FRAME[:300])

    assert [ask(number).status.tolist() for number in (1, 2)] == [["released"]] * 2
    with pytest.raises(BudgetTooSmall, match=r"lasts 0 of 1 window, since .* is spent by group 'study'"):
        ask(3)
    assert [reader.terms.stream for reader in each_reader(f"sqlite:{ledger}")] == ["q1", "q2"]
    with pytest.warns(BudgetWarning, match="the budget of group 'study' is used up"):
        assert ask(3, exhausted="refuse").reason.tolist() == ["budget_exhausted"]
    with pytest.raises(BudgetExhausted, match="block user of group 'study' refuses"):
        ask(4, exhausted="stop")


def test_a_window_that_was_charged_before_a_crash_is_paid_for(tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    config = stream(tmp_path / "l.db", hours=4).config
    engine = Engine(config)
    engine.ledger.charge(engine.ask(None).requests)
    engine.abort()
    engine = Engine(config)
    check_opened(engine)  # three windows are left to pay, and there is room for three
    assert [release.status for release in engine.close()] == ["released"] * 4
    engine.acknowledge()
    engine.abort()
    with closing(open_reader(url)) as reader:
        assert reader.spent("user").rho == 0.04


@pytest.mark.parametrize(
    ("records", "budget", "text"),
    [
        ({"key": "room", "keys": ("a", "b", "c")}, {"rho": 0.12}, "lasts 4 of 8 windows"),
        ({"key": "room", "keys": ("a", "b", "c")}, {"rho": 0.12, "group": "g"}, "lasts 4 of 8 windows"),
        (
            {"key": "room", "keys": ("a", "b", "c"), "key_budgets": "shared", "keys_per_user": 2},
            {"rho": 0.08},
            "lasts 4 of 8 windows",
        ),
        ({}, {"rho": 0.08, "total_rho": 0.05, "total_delta": 0.0}, r"budget.total_rho: lasts 5 of 8 windows"),
        ({"unit": "event", "user": None}, {"total_rho": 0.05}, r"budget.total_rho: lasts 5 of 8 windows"),
        ({"unit": "stream", "user": None}, {"rho": 0.07}, "lasts 7 of 8 windows: lower release.rho to 0.00875"),
    ],
    ids=["keys", "keys of a group", "shared keys", "total", "total of events", "stream"],
)
def test_every_filter_is_compared(tmp_path, records, budget, text):
    made = stream(tmp_path / "l.db", records=records, budget=budget)
    with pytest.raises(BudgetTooSmall, match=text):
        made.run(unread())
    assert not (tmp_path / "l.db").exists()
    refusing = stream(tmp_path / "l.db", records=records, budget=budget, exhausted="refuse")
    with pytest.warns(BudgetWarning):
        refusing.run(FRAME)
    twice = {name: 2 * value if name != "group" else value for name, value in budget.items()}
    enough = stream(tmp_path / "enough.db", records=records, budget=twice)
    assert set(enough.run(FRAME).status) == {"released"}


def test_searches_for_keys_count_too(tmp_path):
    """Eight windows cost 0.08, and the search of the one period that is searched 0.01."""
    keys = KeyDiscovery(discover="frequent", every="4h", rho=0.01, delta=1e-9, first=["a"], max_users=2000)
    records = {"key": "room", "keys": keys, "key_budgets": "shared", "keys_per_user": 1}
    with pytest.raises(BudgetTooSmall, match="lasts 7 of 8 windows"):
        stream(tmp_path / "l.db", records=records, rho=0.01, budget={"rho": 0.08, "delta": 1e-8}).run(unread())
    made = stream(tmp_path / "l.db", records=records, rho=0.01, budget={"rho": 0.09, "delta": 1e-8})
    for _ in range(2):
        assert set(made.run(FRAME).status) == {"released"}


def found(every, rho):
    """Keys that are searched for."""
    keys = KeyDiscovery(discover="frequent", every=every, rho=rho, delta=1e-9, first=["a"], max_users=2000)
    return {"key": "room", "keys": keys, "key_budgets": "shared", "keys_per_user": 1}


@pytest.mark.parametrize(
    ("records", "budget", "text"),
    [
        (
            {},
            {"rho": 0.07, "total_rho": 0.05, "total_delta": 0.0},
            r"^budget.total_rho: lasts 5 of 8 windows: lower release.rho to 0.00625,",
        ),
        (found("4h", 0.01), {"rho": 0.05, "delta": 1e-8}, r"lasts 4 of 8 windows: lower release.rho to 0.005,"),
        (found("2h", 0.02), {"rho": 0.05, "delta": 1e-8}, r"lasts 2 of 8 windows: lower stream.keys.rho, or"),
    ],
    ids=["two caps", "a search", "a search alone"],
)
def test_what_the_error_advises_fits_all_caps(tmp_path, records, budget, text):
    """It named the first cap alone, and lowered what searches cost too: who followed it met the next error."""
    with pytest.raises(ConfigError, match=text) as caught:
        stream(tmp_path / "l.db", records=records, budget=budget).run(unread())
    if value := re.search(r"lower release\.rho to ([\d.]+)", str(caught.value)):
        lower = stream(tmp_path / "l.db", records=records, budget=budget, rho=float(value[1]))
        assert "refused" not in set(lower.run(FRAME).status)


def test_keys_that_share_a_budget_need_a_ledger_on_disk():
    """It said `key_budgets` must be divided here, which is not so with a ledger."""
    made = stream(records={"key": "room", "keys": ("a", "b"), "key_budgets": "shared", "keys_per_user": 1}, hours=2)
    with pytest.raises(ConfigError, match=r"^ledger\.url: must be SQLite or PostgreSQL with `stream.key_budgets`"):
        made.run(FRAME)


def test_keys_of_a_group_are_not_promised_equal_numbers_of_windows(tmp_path):
    """Keys are answered one after the other: what is left goes to the first ones."""
    records, budget = {"key": "room", "keys": ("a", "b", "c")}, {"rho": 0.12, "group": "g"}
    with pytest.raises(BudgetTooSmall, match="to release what there is room for and refuse the rest, write"):
        stream(tmp_path / "l.db", records=records, budget=budget).run(unread())


def test_a_delta_that_does_not_last_is_named(tmp_path):
    release = Frequent(rho=0.001, delta=1e-9, feature="app")
    features = [Feature(name="app", type="text")]
    made = stream(tmp_path / "l.db", release=release, features=features, budget={"delta": 4e-9})
    with pytest.raises(BudgetTooSmall, match=r"^budget\.delta: lasts 4 of 8 windows: lower release\.delta, or use"):
        made.run(unread())


def test_nothing_is_checked_where_a_refusal_is_asked_for_or_time_decides(tmp_path):
    for config in (
        stream(exhausted="refuse").config,
        stream(exhausted="stop").config,
        stream(savings="even", rho=0.005).config,
    ):
        check_unopened(config)
    live = Config.from_mapping(
        {
            "stream": {"name": "v", **USERS},
            "window": {"length": "1h", "start": "1970-01-01T00:00:00Z", "clock": "broker"},
            "release": {"kind": "count", "rho": 0.01},
            "budget": {"rho": 0.04, "delta": 0.0},
            "ledger": {"url": f"sqlite:{tmp_path / 'l.db'}"},
        }
    )
    check_unopened(live)
    engine = Engine(live)
    check_opened(engine)
    engine.abort()
