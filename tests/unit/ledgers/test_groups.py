"""Streams of a group share filters: the caps hold for the sum, whoever charges, and in whatever order."""

import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from support.helpers import rows, sample

from fcstream import Engine, KeyedEngine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.cli import main
from fcstream.config import Config
from fcstream.errors import ConfigError, LedgerDamaged, LedgerMismatch
from fcstream.ledgers import open_ledger, open_reader
from fcstream.ledgers.base import TOTAL_BLOCK, USER_BLOCK, Request, SealedRelease, Terms
from fcstream.ledgers.memory import MemoryLedger
from fcstream.ledgers.retired_streams import retire
from fcstream.planning.plan import plan
from fcstream.service.doctor import examine
from fcstream.testing import window

COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}
CAP = PrivacyLoss(1000, 100)


def terms(stream, unit="user", total=None, group="fleet", capacity=CAP):
    specification = json.dumps({"budget": {"group": group}, "of": stream[0]})
    return Terms(stream, unit, capacity, specification, total, "{}", group)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'l.db'}"
    return request.getfixturevalue("postgres").url


class SlowGroup:
    """One number for each block, added up over all streams of a group."""

    def __init__(self, total):
        self.total = total
        self.blocks = {}

    def charge(self, loss, block):
        names = [block] + ([TOTAL_BLOCK] if self.total else [])
        for name in names:
            cap = self.total if name == TOTAL_BLOCK else CAP
            spent = self.blocks.get(name, (0, 0))
            if not all(a + b <= c for a, b, c in zip(spent, loss.parts, cap.parts, strict=True)):
                return False
        self.add(names, loss, 1)
        return True

    def add(self, names, loss, sign):
        for name in names:
            before = self.blocks.get(name, (0, 0))
            self.blocks[name] = tuple(a + sign * b for a, b in zip(before, loss.parts, strict=True))


def ask(ledger, index, loss):
    """Whether a window is granted, and what the ledger says."""
    result = ledger.charge([Request(window(index), loss, (ledger.terms.unit,))])[0]
    return result.charge is not None, result


@pytest.mark.slow
@pytest.mark.parametrize("total", [None, PrivacyLoss(2500, 250)], ids=["no total", "total"])
@pytest.mark.parametrize("unit", ["user", "stream"])
def test_charges_and_refunds_agree_with_one_number_for_each_filter(url, unit, total):
    rng = np.random.default_rng(3)
    ledgers = [open_ledger(url, terms(name, unit, total)) for name in ("a", "b", "c/x", "c/y")]
    twin, outcomes = SlowGroup(total), set()
    assert len({ledger.salt for ledger in ledgers}) == len(ledgers)
    for index in range(60):
        k = int(rng.integers(len(ledgers)))
        ledger, loss = ledgers[k], PrivacyLoss(int(rng.integers(1, 300)), int(rng.integers(0, 30)))
        expected = twin.charge(loss, unit)
        granted, result = ask(ledger, index, loss)
        assert granted == expected
        outcomes.add(result.refusal.block if result.refusal else "granted")
        assert result.spent == ledger.spent(unit) == PrivacyLoss(*twin.blocks.get(unit, (0, 0)))
        refund = PrivacyLoss(int(rng.integers(0, loss.rho_nano + 1)), 0) if rng.random() < 0.5 else PrivacyLoss()
        ledger.seal([SealedRelease(window(index), b"{}", refund if granted else PrivacyLoss())])
        if granted:
            twin.add([unit] + ([TOTAL_BLOCK] if total else []), refund, -1)
    assert outcomes >= {"granted", unit}
    for ledger in ledgers:
        ledger.close()
    for name in ("a", "b", "c/x", "c/y"):
        reader = open_reader(url, name)
        assert reader.verify() > 0
        assert reader.terms.group == "fleet"
        reader.close()


def test_a_window_that_was_charged_before_a_crash_is_granted_once_more(url):
    a, b = (open_ledger(url, terms(name)) for name in "ab")
    assert ask(a, 0, PrivacyLoss(900))[0]
    assert ask(b, 0, PrivacyLoss(200))[1].refusal.group == "fleet"
    assert ask(a, 0, PrivacyLoss(900))[1].charge.is_redraw
    assert ask(a, 0, PrivacyLoss(900))[1].interrupted == PrivacyLoss(900)
    a.seal([SealedRelease(window(0), b"{}")])
    assert ask(a, 0, PrivacyLoss(900))[1].refusal is None
    assert ask(b, 1, PrivacyLoss(100))[0]
    for ledger in (a, b):
        ledger.close()


def test_a_call_whose_answer_was_lost_is_known_again(postgres):
    """The connection is lost while the charge commits, so the call is made once more: one charge, one draw."""
    ledger = postgres.open(terms("a"))
    request, token = Request(window(0), PrivacyLoss(400), (USER_BLOCK,)), ledger._token()
    for _ in range(2):
        (result,), ledger._seen = ledger._change(lambda db: ledger._charge_in_group(db, [request], token))
        assert result.charge is not None
        assert not result.charge.is_redraw
        assert result.spent == ledger.spent(USER_BLOCK) == PrivacyLoss(400)
    assert [row.kind for row in ledger.rows()] == ["charge"]
    ledger.verify()
    ledger.close()


def test_what_a_retired_stream_has_spent_still_counts(url):
    a = open_ledger(url, terms("a"))
    assert ask(a, 0, PrivacyLoss(900))[0]
    a.close()
    retire(url, "a")
    for name in ("b", "a"):  # the old name may begin anew, without a new budget
        ledger = open_ledger(url, terms(name))
        assert ask(ledger, 0, PrivacyLoss(200))[1].refusal.remaining == PrivacyLoss(100, 100)
        ledger.close()


def test_streams_of_a_group_state_the_same_unit_and_caps(url):
    open_ledger(url, terms("a")).close()
    for wrong in (terms("b", "stream"), terms("b", capacity=PrivacyLoss(2000, 100)), terms("b", total=CAP)):
        with pytest.raises(LedgerMismatch, match=r"streams of a group share filters, so state the same `stream.unit`"):
            open_ledger(url, wrong)
    with pytest.raises(LedgerMismatch, match="is too like 'fleet' of stream 'a'"):
        open_ledger(url, terms("b", group="Fleet"))
    with pytest.raises(LedgerMismatch, match="another specification"):
        open_ledger(url, terms("a", group=None))
    open_ledger(url, terms("c", "stream", group="others", capacity=PrivacyLoss(5))).close()
    # Stricter caps are those of all from then on.
    ledger = open_ledger(url, terms("b", capacity=PrivacyLoss(500, 100)))
    assert ask(ledger, 0, PrivacyLoss(300))[0]
    ledger.close()
    reader = open_reader(url, "a")
    assert reader.terms.capacity == PrivacyLoss(500, 100)
    reader.verify()
    reader.close()
    with pytest.raises(LedgerMismatch, match="share filters"):
        open_ledger(url, terms("d"))
    with pytest.raises(LedgerMismatch, match="cannot be lowered below what is spent"):
        open_ledger(url, terms("d", capacity=PrivacyLoss(299, 100)))


def test_a_cap_of_a_group_of_keys_is_not_lowered_below_what_all_have_spent(url):
    """Each key was looked at alone; a ledger that had spent more than its cap was damaged from then on."""
    for name in ("a/x", "a/y"):
        ledger = open_ledger(url, terms(name, "stream", capacity=PrivacyLoss(100)))
        assert ledger.charge([Request(window(0), PrivacyLoss(40), ("stream",))])[0].refusal is None
        ledger.close()
    with pytest.raises(LedgerMismatch, match="cannot be lowered below what is spent"):
        open_ledger(url, terms("a/x", "stream", capacity=PrivacyLoss(60)))
    open_ledger(url, terms("a/x", "stream", capacity=PrivacyLoss(80))).close()
    reader = open_reader(url, "a/y")
    assert reader.terms.capacity == PrivacyLoss(80)
    reader.verify()
    reader.close()


def test_two_processes_at_once_never_pass_the_cap(postgres):
    """Each charges another stream as fast as it can; what is granted together fits the cap exactly once."""
    ledgers = [postgres.open(terms(f"s{i}", "stream", capacity=PrivacyLoss(100))) for i in range(4)]

    def charge(ledger):
        granted = 0
        for index in range(40):
            result = ledger.charge([Request(window(index), PrivacyLoss(1), ("stream",))])[0]
            granted += result.charge is not None
        return granted

    with ThreadPoolExecutor(len(ledgers)) as pool:
        granted = list(pool.map(charge, ledgers))
    assert sum(granted) == 100
    assert {ledger.spent() for ledger in ledgers} == {PrivacyLoss(100)}
    for ledger in ledgers:
        ledger.verify()
        ledger.close()


def test_the_audit_finds_a_cap_that_was_passed(url, monkeypatch):
    """Streams that do not see each other: each keeps its own cap, and together they pass it."""
    ledgers = [open_ledger(url, terms(name)) for name in "ab"]
    for kind in ("sqlite.ledger", "postgres.ledger", "sqlite", "postgres"):
        module = sys.modules.get(f"fcstream.ledgers.{kind}")
        if module is not None and hasattr(module, "blocks_to_charge"):
            monkeypatch.setattr(module, "blocks_to_charge", lambda terms, request, own, elsewhere: (("user",), None))
    for ledger in ledgers:
        ask(ledger, 0, PrivacyLoss(600))
        ledger.close()
    monkeypatch.undo()
    reader = open_reader(url, "b")
    with pytest.raises(LedgerDamaged, match="the streams of group 'fleet' have spent"):
        reader.verify()
    reader.close()


def test_a_new_stream_is_told_the_sum(url, caplog):
    caplog.set_level(logging.WARNING)
    open_ledger(url, replace(terms("a", group=None), specification="a")).close()
    assert caplog.text == ""
    open_ledger(url, terms("b")).close()
    assert "somebody with records in all of them can lose (rho=2e-06, delta=2e-13) together" in caplog.text
    assert "with a budget of its own" in caplog.text
    caplog.clear()
    open_ledger(url, terms("c")).close()
    assert "shares the filters of group 'fleet'" in caplog.text
    assert "can lose (rho=2e-06, delta=2e-13) together" in caplog.text


def job(name, unit="user", group="fleet", **sections):
    stream = {"name": name, "unit": unit} | ({"user": "who"} if unit == "user" else {}) | sections.pop("stream", {})
    budget = {"rho": 0.06, "delta": 0.0, "group": group} | sections.pop("budget", {})
    return Config.from_mapping(sample(stream=stream, release=COUNT | {"rho": 0.01}, budget=budget, **sections))


def run(config, names=("ann",)):
    engine = (KeyedEngine if config.stream.key else Engine)(config)
    for w in range(6):
        n = len(names)
        keys = {"keys": ["rome"] * n} if config.stream.key else {}
        engine.push(np.full(n, w * 10_000 + 5), rows(n), ids=list(names), **keys)
    found = engine.close()
    engine.acknowledge()
    return found


def test_engines_of_a_group_spend_one_budget(url, caplog):
    ledger = {"ledger": {"url": url}}
    first = run(job("a", **ledger))
    assert {release.status for release in first} == {"released"}
    assert first[-1].spent["rho"] == 0.06
    second = run(job("b", **ledger), ["ann", "bob"])
    assert {release.reason for release in second} == {"budget_exhausted"}
    assert {release.reason for release in run(job("c", **ledger), ["newcomer"])} == {"budget_exhausted"}
    shown = CliRunner().invoke(main, ["budget", "show", url])
    assert shown.exit_code == 0, shown.output
    assert "group 'fleet' ('a', 'b', 'c'): one budget" in shown.output
    assert "of (rho=0.06, delta=0), (rho=0, delta=0) left" in shown.output
    assert not {"remaining", "runs"} & {line.split(" ")[0] for line in shown.output.splitlines()}
    found = json.loads(CliRunner().invoke(main, ["budget", "show", url, "--stream", "b", "--json"]).stdout)
    assert found["together"]["guarantee"]["rho"] == 0.06
    assert (found["remaining"], found["runs_out"]) == (None, None)  # what b did not spend, a has spent
    retired = CliRunner().invoke(main, ["budget", "retire", "--yes", url, "b"])
    assert "What they spent stays spent in group 'fleet'" in retired.stderr
    assert "whole budget on top: whoever" not in retired.stderr
    assert CliRunner().invoke(main, ["budget", "verify", url]).exit_code == 0


def test_the_doctor_tells_what_a_group_has_left_and_whose_caps_differ(url):
    ledger = {"ledger": {"url": url}, "source": {"url": "jsonl:-"}, "sink": {"url": "jsonl:-"}}

    def found(level, **sections):
        each = examine(lambda: job("b", **ledger, **sections))
        return [f"{one.what}; {one.remedy}" for one in each if one.level == level]

    run(job("a", ledger={"url": url}, budget={"rho": 0.07}))
    assert any("group 'fleet': its 1 stream spent (rho=0.06" in text for text in found("ok", budget={"rho": 0.07}))
    assert any("streams of a group share filters" in text for text in found("problem", budget={"rho": 0.08}))
    run(job("b", ledger={"url": url}, budget={"rho": 0.07}), ["bob"])
    told = found("warning", budget={"rho": 0.07})
    assert any("group 'fleet': its 2 streams spent (rho=0.07, delta=0) of (rho=0.07" in text for text in told)


def test_all_keys_of_a_group_share_one_filter(url):
    keys = {"key": "site", "keys": ["paris", "rome"]}
    config = job("a", stream=keys, ledger={"url": url})
    assert config.job.terms.capacity.rho == 0.06
    assert config.job.terms.shared_keys is None
    run(config)
    assert open_ledger(url, config.job.part("paris").terms).spent(USER_BLOCK).rho == 0.06


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"unit": "event"}, r"budget.group: must be left out with unit = 'event', .* `\[\[release\]\]`"),
        ({"group": ""}, "budget.group: must be a text of 1 to 200"),
        ({"stream": {"key": "site", "keys": ["a", "b"], "keys_per_user": 1}}, "stream.keys_per_user: must be left out"),
        ({"budget": {"savings": "even"}}, "budget.savings: must be 'none' with `budget.group`"),
    ],
)
def test_what_a_group_cannot_have_is_refused_in_one_sentence(changed, message):
    with pytest.raises(ConfigError, match=message):
        job("a", **changed).job  # noqa: B018


def test_a_plan_tells_that_the_budget_is_shared():
    found = plan(job("a", stream={"key": "site", "keys": ["paris", "rome"]}))
    assert "that is one budget for all streams of group 'fleet' in the ledger" in "\n".join(found.lines())
    assert "all of them share `budget`" in "\n".join(found.lines())
    assert found.as_dict()["group"] == "fleet"
    assert "group" not in plan(job("a", group=None)).as_dict()


def test_a_ledger_in_memory_has_no_groups():
    with pytest.raises(ConfigError, match=r"budget\.group"):
        MemoryLedger(terms("a"))
