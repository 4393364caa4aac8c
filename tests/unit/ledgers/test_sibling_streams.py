"""No edit of a configuration hands out a fresh budget for the same records: the parts of a stream are found by its
name, whatever their specification, and the ledger says which setting changed from what to what."""

import copy
import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import rows, sample

from fcstream import Engine, KeyedEngine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.cli import main
from fcstream.config import Config
from fcstream.engine.opening import open_engine
from fcstream.errors import LedgerDamaged, LedgerError, LedgerMismatch
from fcstream.ledgers import each_reader, open_ledger, open_reader
from fcstream.ledgers.base import SealedRelease, Terms, WindowKey
from fcstream.ledgers.postgres.ledger import PostgresLedger
from fcstream.ledgers.retired_streams import retire
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.service.doctor import examine
from fcstream.testing import window

COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'l.db'}"
    return request.getfixturevalue("postgres").url


def keyed(url, unit="event", keys=("paris", "rome"), **changed):
    stream = {"key": "site", "keys": list(keys), "unit": unit, "user": "who" if unit == "user" else None}
    base = sample(stream=stream, release=COUNT, budget={"rho": 60.0}, ledger={"url": url})
    for name, keys_of in changed.items():
        for key, value in keys_of.items():
            base[name].pop(key, None) if value is None else base[name].update({key: value})
    return base


def run(mapping):
    """Answer the first windows."""
    with open_engine(Config.from_mapping(mapping)) as engine:
        ids = {"ids": ["ann", "bob"]} if mapping["stream"]["unit"] == "user" else {}
        if isinstance(engine, KeyedEngine):
            engine.push([5, 10_005], rows(2), list(engine.keys[:1] * 2), **ids)
        else:
            engine.push([5, 10_005], rows(2), **ids)
        return engine.close()


EDITS = [
    (
        "keys together with rho",
        {"stream": {"keys": ["bern"]}, "release": {"rho": 2.0}},
        "`release.rho` changed from 1.0",
    ),
    ("no key", {"stream": {"key": None, "keys": None}}, "`stream.key` changed from 'site' to its default"),
    ("another key field", {"stream": {"key": "city"}}, "`stream.key` changed from 'site' to 'city'"),
    ("another time field", {"stream": {"time": "at"}}, "`stream.time` changed"),
    ("another start", {"window": {"start": "1970-01-01T00:00:05Z"}}, "`window.start` changed"),
    ("another length", {"window": {"length": "5s"}}, "`window.length` changed from '10s' to '5s'"),
    (
        "another kind",
        {"release": {"kind": "mean", "radius": 3.0, "delta": 1e-9, "size_hint": 300}},
        "`release.kind` changed from 'count' to 'mean'",
    ),
    ("a larger cap", {"budget": {"rho": 61.0}}, "`budget.rho` changed from 60.0 to 61.0"),
    ("letters' case", {"stream": {"name": "T", "keys": ["bern"]}}, "is too like stream 'T"),
    ("wide letters", {"stream": {"name": "\uff54", "keys": ["bern"]}}, "is too like stream"),
    ("more budget for more keys", {"stream": {"keys": ["a", "b", "c", "d"]}, "budget": {"rho": 120.0}}, "`budget.rho`"),
    ("a total that was not there", {"budget": {"total_rho": 60.0}}, "`budget.total_rho` changed from its default"),
]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["event", "stream", "user"])
@pytest.mark.parametrize(("edit", "changed", "message"), EDITS, ids=[edit[0] for edit in EDITS])
def test_no_edit_starts_fresh_filters_for_the_same_records(tmp_path, unit, edit, changed, message):
    url = f"sqlite:{tmp_path / 'l.db'}"
    run(keyed(url, unit))
    with pytest.raises(LedgerMismatch) as refused:
        run(keyed(url, unit, **copy.deepcopy(changed)))
    assert message in str(refused.value)


def test_the_advice_to_retire_is_a_command_that_works(tmp_path):
    """It said LEDGER, and a path or a name with a blank would have been two arguments."""
    (tmp_path / "my ledgers").mkdir()
    mapping = keyed(f"sqlite:{tmp_path}/my ledgers/l.db")
    mapping["stream"]["name"] = "two bikes"
    run(mapping)
    mapping["window"]["length"] = "5s"
    with pytest.raises(LedgerMismatch) as refused:
        run(mapping)
    found = examine(lambda: Config.from_mapping({**mapping, "source": {"url": "jsonl:-"}, "sink": {"url": "jsonl:-"}}))
    doctors = [f"{each.what}; {each.remedy}" for each in found if (each.check, each.level) == ("ledger", "problem")]
    for told in (str(refused.value), *doctors):
        assert f"fcstream budget retire '{tmp_path}/my ledgers/l.db' 'two bikes'" in told
    assert len(doctors) == 1
    advice = shlex.split(str(refused.value).split("`")[-2])
    assert CliRunner().invoke(main, [*advice[1:], "--yes"]).exit_code == 0
    assert run(mapping)


def test_a_stream_that_begins_anew_is_not_warned_of_its_retired_ledger(tmp_path, caplog):
    """It was told that what it had spent counts under its old name, as if it had been renamed by mistake."""
    url = f"sqlite:{tmp_path / 'l.db'}"
    run(keyed(url))
    retire(url, "t")
    caplog.clear()
    run(keyed(url))
    assert "new there" not in caplog.text
    run(sample(stream={"name": "other"}, release=COUNT, ledger={"url": url}))
    assert "holds 't/paris', 't/rome'; stream 'other' is new there" in caplog.text


@pytest.mark.parametrize(("edit", "changed", "message"), EDITS[:3], ids=[edit[0] for edit in EDITS[:3]])
def test_no_edit_starts_fresh_filters_on_a_server(postgres, edit, changed, message):
    run(keyed(postgres.url))
    with pytest.raises(LedgerMismatch) as refused:
        run(keyed(postgres.url, **copy.deepcopy(changed)))
    assert message in str(refused.value)
    assert "fcstream budget retire LEDGER t" in str(refused.value)


def test_the_latest_windows_are_those_that_open_last(url):
    """Whenever they were sealed; of windows that open together the one that closes last."""
    short = WindowKey(window(5).open_ms, window(5).open_ms + 1)
    for each in (url, "memory:"):
        ledger = open_ledger(each, Terms("s", "event", PrivacyLoss(9), "{}"))
        for key in (window(4), window(5), short, window(3)):
            ledger.seal([SealedRelease(key, str(key).encode())])
            ledger.acknowledge([key])
        assert ledger.last_sealed() == (window(5), str(window(5)).encode())
        assert [key for key, _ in ledger.latest_sealed(3)] == [window(4), short, window(5)]
        ledger.close()


def test_another_unit_is_refused(url):
    run(keyed(url))
    for unit in ("stream", "user"):
        with pytest.raises(LedgerMismatch, match=f"`stream.unit` changed from its default to '{unit}'"):
            run(keyed(url, unit))


def test_what_stays_possible(url, caplog):
    assert len(run(keyed(url))) == 12
    added = run(keyed(url, keys=("paris", "rome", "bern")))
    assert {release.key for release in added} == {"bern"}
    later = keyed(url, keys=("bern",), window={"end": "1970-01-01T00:02:00Z"})  # any keys of the same field
    assert len(run(later)) == 6
    smaller = copy.deepcopy(later)
    smaller["budget"]["rho"] = 2.0
    caplog.clear()
    assert len(run(smaller)) == 0
    told = [line for line in caplog.messages if "from now on and for ever" in line]
    assert len(told) == 1
    assert "the budget of stream 't', all its keys" in told[0]
    for reader in each_reader(url):
        assert reader.terms.capacity.rho == 2.0
        assert reader.verify() >= 12
    with pytest.raises(LedgerMismatch, match="a cap that was promised cannot grow"):
        run(later)


def test_a_budget_of_users_is_lowered_down_to_what_it_has_spent(url, caplog):
    """It was told before it was refused."""

    def days(rho):
        mapping = keyed(url, "user", release={"rho": 0.3}, budget={"rho": rho})
        for name in ("key", "keys"):
            mapping["stream"].pop(name)
        with open_engine(Config.from_mapping(mapping)) as engine:
            for second in range(4):  # the fourth has no room
                engine.push([10_000 * second], rows(1), ids=["ann"])
            return engine.close()

    assert len(days(1.0)) == 6
    caplog.clear()
    with pytest.raises(LedgerMismatch, match=r"it has spent \(rho=0\.9, .* cannot be lowered below"):
        days(0.85)
    assert not [line for line in caplog.messages if "for ever" in line]  # nothing was lowered
    assert days(0.95) == []
    assert len([line for line in caplog.messages if "for ever (rho=0.95" in line]) == 1


@pytest.mark.parametrize("unit", ["event", "stream", "user"])
def test_a_running_process_stops_when_another_one_lowers_the_cap(postgres, unit):
    """It would go by the larger one, and tell it as its guarantee."""
    engine = KeyedEngine(Config.from_mapping(keyed(postgres.url, unit)))
    engine.push([5], rows(1), ["paris"], **({"ids": ["ann"]} if unit == "user" else {}))
    lower = Config.from_mapping(keyed(postgres.url, unit, budget={"rho": 3.0}))
    KeyedEngine(lower, keys=["rome"]).abort()
    with pytest.raises(LedgerMismatch, match="another process has lowered the caps for ever"):
        engine.close()
    engine.abort()
    reader = open_reader(postgres.url, "t/paris")
    assert reader.terms.capacity.rho == (3.0 if unit == "event" else 1.5)
    assert reader.spent().rho == 0
    assert reader.verify() == 1


@pytest.mark.parametrize("beyond", [-1, 1], ids=["within", "flooded"])
def test_a_cap_lowered_meanwhile_refuses_windows_of_few_and_of_too_many_users_alike(postgres, beyond):
    """Who has room was asked by the former cap, and who is charged by the lower one: the number of users could tell."""
    window = {"clock": "broker", "lateness": None, "max_records": 60}
    made = {"stream": {"unit": "user", "user": "who"}, "window": window, "ledger": {"url": postgres.url}}
    engine = Engine(Config.from_mapping(sample(**made)))
    engine.begin(0)
    n = engine.job.gate.max_held + beyond
    engine.push([5] * n, rows(n), ids=[f"u{i}" for i in range(n)], arrival_ms=[5] * n)
    Engine(Config.from_mapping(sample(**made, budget={"rho": 3.0}))).abort()
    with pytest.raises(LedgerMismatch, match="another process has lowered the caps for ever"):
        engine.advance(25_000)
    engine.abort()
    reader = open_reader(postgres.url, "t")
    assert (reader.spent().rho, reader.releases(), reader.charges()) == (0, [], [])


def test_a_cap_lowered_while_a_ledger_is_opened_is_not_overlooked(postgres, monkeypatch):
    """Between joining and looking: its process would go on with the caps of one and tell those of the other."""
    looser, stricter = (
        Config.from_mapping(sample(budget={"rho": rho}, ledger={"url": postgres.url})).job.terms for rho in (4.0, 3.0)
    )
    look = PostgresLedger._check

    def lowered_first(self, db):
        monkeypatch.setattr(PostgresLedger, "_check", look)
        open_ledger(postgres.url, stricter).close()
        return look(self, db)

    monkeypatch.setattr(PostgresLedger, "_check", lowered_first)
    with pytest.raises(LedgerMismatch, match="another process has lowered the caps for ever"):
        open_ledger(postgres.url, looser)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_stream_is_retired_by_a_command_that_says_what_is_given_up(url, answer):
    run(keyed(url))
    asked = CliRunner().invoke(main, ["budget", "retire", url, "t"], input=answer)
    assert "stream 't/paris': spent (rho=1, delta=0) of (rho=60, delta=1e-06), for ever" in asked.output
    assert "can lose the sum of both guarantees" in asked.output
    if answer == "n":
        assert asked.exit_code == 1
        assert [reader.terms.stream for reader in each_reader(url)] == ["t/paris", "t/rome"]
        return
    assert asked.exit_code == 0, asked.output
    assert asked.output.splitlines()[-2:] == ["t/paris (retired 1)", "t/rome (retired 1)"]
    other = sample(release=COUNT, budget={"rho": 7.0}, ledger={"url": url})
    with Engine(Config.from_mapping(other)) as engine:
        assert len(engine.close()) == 6
    assert CliRunner().invoke(main, ["budget", "retire", "--yes", url, "t"]).exit_code == 0
    run(keyed(url))
    spent = {
        reader.terms.stream: (reader.spent().rho, reader.verify(), reader.is_retired) for reader in each_reader(url)
    }
    assert sorted(spent) == ["t (retired 1)", "t/paris", "t/paris (retired 1)", "t/rome", "t/rome (retired 1)"]
    assert spent["t/paris (retired 1)"] == (1.0, 19, True)
    assert spent["t/paris"] == (1.0, 18, False)
    with pytest.raises(LedgerMismatch, match="no stream 'u' to retire"):
        retire(url, "u")


def test_nothing_is_written_to_a_retired_stream(postgres):
    config = Config.from_mapping(sample(release=COUNT, ledger={"url": postgres.url}))
    engine = Engine(config)
    engine.push(np.array([5]), rows(1))
    retire(postgres.url, "t")
    for call in (lambda: engine.spent, engine.close):
        with pytest.raises(LedgerError, match="was retired"):
            call()
    renamed = sample(stream={"name": "t (retired 1)"}, release=COUNT, ledger={"url": postgres.url})
    with pytest.raises(LedgerMismatch, match="was retired: choose another"):
        Engine(Config.from_mapping(renamed))


def test_a_retired_stream_is_bound_by_the_chain(tmp_path):
    import sqlite3

    path = tmp_path / "l.db"
    run(sample(release=COUNT, ledger={"url": f"sqlite:{path}"}))
    retire(str(path), "t")
    with sqlite3.connect(path) as db:
        (body,) = db.execute("SELECT body FROM journal WHERE kind = 'retire'").fetchone()
        assert json.loads(body) == {"capacity": [4 * 10**9, 10**9], "name": "t (retired 1)", "spent": [10**9, 0]}
        db.execute("UPDATE streams SET stream = 't', retired = 0")
    db.close()
    with pytest.raises(LedgerDamaged, match="is listed as 't'"):
        SQLiteLedger(str(path), Engine(Config.from_mapping(sample(release=COUNT))).job.terms)


def test_a_stream_that_starts_anew_has_settings_of_its_own(url):
    terms = [Config.from_mapping(keyed(url)).job.part(key).terms for key in ("paris", "rome")]
    for value in ("2026-01-01", "2026-02-01"):
        ledgers = [open_ledger(url, each) for each in terms]
        kept = [ledger.keep_setting("start", each) for ledger, each in zip(ledgers, (value, "x"), strict=True)]
        assert kept == [value, value]
        for ledger in ledgers:
            ledger.close()
        retire(url, "t")


SHARED = [("stream", {}), ("user", {}), ("event", {"budget": {"total_rho": 60.0}})]


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "budget"), SHARED, ids=["stream", "user", "total"])
def test_an_engine_of_one_key_cannot_reuse_the_budget_of_former_keys(url, unit, budget):
    """An engine of one key asked nobody what keys there had been."""
    for key in ("paris", "rome"):
        with Engine(Config.from_mapping(keyed(url, unit, **budget)), key=key) as engine:
            assert engine.close()
    config = Config.from_mapping(keyed(url, unit, keys=("bern", "oslo"), **budget))
    for key in ("bern", "oslo"):
        with pytest.raises(LedgerMismatch, match=r"holds 2 keys that `stream.keys` does not name any more.*name them"):
            Engine(config, key=key)
    assert [reader.terms.stream for reader in each_reader(url)] == ["t/paris", "t/rome"]


@pytest.mark.parametrize(("unit", "budget"), SHARED, ids=["stream", "user", "total"])
def test_engines_with_other_keys_cannot_both_be_opened_before_either_is_charged(url, unit, budget):
    """Each would have had the whole budget: parts that nothing was charged to were overlooked."""
    first = KeyedEngine(Config.from_mapping(keyed(url, unit, keys=("paris",), **budget)))
    with pytest.raises(LedgerMismatch, match="such as 't/paris'"):
        KeyedEngine(Config.from_mapping(keyed(url, unit, keys=("bern",), **budget)))
    assert len(first.close()) == 6
    first.abort()


def test_keys_that_replace_others_are_refused_before_a_cap_is_lowered(url, caplog):
    run(keyed(url, "stream"))
    with pytest.raises(LedgerMismatch, match="such as 't/rome'"):
        run(keyed(url, "stream", keys=("paris", "bern", "oslo")))
    assert {reader.terms.stream: reader.terms.capacity.rho for reader in each_reader(url)} == {
        "t/paris": 30,
        "t/rome": 30,
    }
    assert "for ever" not in caplog.text


def test_keys_are_added_with_a_smaller_share_or_replaced_by_promise(url):
    run(keyed(url, "stream"))
    assert len(run(keyed(url, "stream", keys=("bern", "paris", "rome")))) == 6
    with Engine(
        Config.from_mapping(keyed(url, "stream", keys=("bern", "oslo", "paris", "rome"))), key="oslo"
    ) as engine:
        assert len(engine.close()) == 6
    assert {reader.terms.capacity.rho for reader in each_reader(url)} == {15.0}
    promised = keyed(url, "stream", keys=("a", "b", "c", "d"))
    promised["stream"]["keys_per_user"] = 4
    assert len(run(promised)) == 24


def test_a_retired_stream_with_keys_can_begin_anew_with_others(url):
    """The parts that were retired counted as keys that are not named, so nothing could be opened ever again."""
    run(keyed(url, "stream"))
    retire(url, "t")
    assert len(run(keyed(url, "stream", keys=("paris", "bern"), release={"rho": 2.0}))) == 12
    with Engine(Config.from_mapping(keyed(url, "stream", keys=("paris", "bern"), release={"rho": 2.0})), key="bern"):
        pass
