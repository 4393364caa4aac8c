"""Many streams of one file: opened in one transaction, changed in one, and none without the others."""

import os
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import LedgerDamaged, LedgerError, LedgerInUse, LedgerMismatch
from fcstream.ledgers import joint_ledger, open_ledger, open_ledgers, open_reader
from fcstream.ledgers.base import EpochState, Request, SealedRelease, Terms
from fcstream.ledgers.memory import MemoryLedger
from fcstream.ledgers.retired_streams import retire
from fcstream.ledgers.sqlite import sums
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import window

LOSS = PrivacyLoss.charge(0.5, 1e-8)
TERMS = [Terms(f"s/{i}", "event", PrivacyLoss.cap(2, 1e-6), '{"rho":1}') for i in range(4)]


def close_all(ledgers):
    for ledger in ledgers:
        ledger.close()


def tables(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid").fetchall()


def test_streams_opened_together_are_those_opened_one_by_one(tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    close_all(open_ledgers(url, TERMS))
    for terms in TERMS:
        open_ledger(f"sqlite:{tmp_path / 'other.db'}", terms).close()
    assert tables(tmp_path / "l.db") == tables(tmp_path / "other.db")
    again = open_ledgers(url, [TERMS[2], replace(TERMS[0], stream="s/9"), TERMS[0]])
    assert [ledger.terms.stream for ledger in again] == ["s/2", "s/9", "s/0"]
    assert again[0].streams == ["s/0", "s/1", "s/2", "s/3", "s/9"]
    close_all(again)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (replace(TERMS[3], specification='{"rho":2}'), LedgerMismatch),
        (replace(TERMS[3], stream="s/0"), LedgerInUse),
        (replace(TERMS[3], stream="S/3"), LedgerMismatch),
        (replace(TERMS[3], capacity=PrivacyLoss.cap(3, 1e-6)), LedgerMismatch),
    ],
)
def test_all_are_opened_or_none(tmp_path, wrong, error):
    url = f"sqlite:{tmp_path / 'l.db'}"
    open_ledger(url, TERMS[0]).close()
    with pytest.raises(error):
        open_ledgers(url, [*TERMS[:3], wrong])
    ledgers = open_ledgers(url, TERMS)
    assert ledgers[0].streams == [terms.stream for terms in TERMS]
    close_all(ledgers)


def test_a_cap_is_lowered_for_all_or_none(tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    close_all(open_ledgers(url, TERMS))
    lower = [replace(terms, capacity=PrivacyLoss.cap(1, 1e-6)) for terms in TERMS]
    with pytest.raises(LedgerMismatch):
        open_ledgers(url, [*lower, replace(lower[0], stream="s/x", specification='{"rho":2}')])
    assert open_reader(url, "s/1").terms.capacity == PrivacyLoss.cap(2, 1e-6)
    close_all(open_ledgers(url, lower))
    readers = [open_reader(url, terms.stream) for terms in TERMS]
    assert {reader.terms.capacity for reader in readers} == {PrivacyLoss.cap(1, 1e-6)}
    assert [reader.verify() for reader in readers] == [1] * 4  # one row says the new terms
    close_all(readers)


def test_the_rows_of_many_streams_are_read_in_few_passes(tmp_path, monkeypatch):
    """Each stream's rows lie among those of all others: a pass for each would cost the square of their number."""
    url, passes, real = f"sqlite:{tmp_path / 'l.db'}", [], sums._read
    monkeypatch.setattr(sums, "_read", lambda *values: passes.append(1) or real(*values))
    many = [replace(TERMS[0], stream=f"s/{i}") for i in range(30)]
    ledgers = open_ledgers(url, many)
    joint = joint_ledger(ledgers)
    for i in range(3):
        joint.charge_together([(ledger, [Request(window(i), LOSS, (f"{i}", f"{i + 1}"))]) for ledger in ledgers])
        joint.seal_together([(ledger, [SealedRelease(window(i), b"answer", LOSS)], []) for ledger in ledgers])
    close_all(ledgers)
    for capacity in (many[0].capacity, PrivacyLoss.cap(1, 1e-6)):  # the second time the cap of each is lowered
        passes.clear()
        ledgers = open_ledgers(url, [replace(terms, capacity=capacity) for terms in many])
        asked = []
        ledgers[0]._file.db.set_trace_callback(asked.append)
        assert {ledger.spent() for ledger in ledgers} == {PrivacyLoss()}
        assert {ledger.last_sealed()[0] for ledger in ledgers} == {window(2)}
        ledgers[0]._file.db.set_trace_callback(None)
        assert not [text for text in asked if "FROM windows" in text or "FROM blocks" in text]
        joint_ledger(ledgers).charge_together([(ledgers[0], [Request(window(3), LOSS, ("0",))])])
        assert ledgers[0].spent() == LOSS
        ledgers[0].seal([SealedRelease(window(3), b"answer", LOSS)])
        ledgers[0]._file.db.set_trace_callback(asked.append)
        assert {ledger.spent() for ledger in ledgers} == {PrivacyLoss()}
        ledgers[0]._file.db.set_trace_callback(None)
        assert len([text for text in asked if "FROM blocks" in text]) <= 1
        close_all(ledgers)
        assert len(passes) <= 2
        many = many[1:]
    passes.clear()
    assert len(retire(url, "s")) == 30
    assert len(passes) <= 2


def test_calls_for_several_streams_take_effect_together_or_not_at_all(tmp_path):
    ledgers = open_ledgers(f"sqlite:{tmp_path / 'l.db'}", TERMS)
    joint = joint_ledger(ledgers)
    found = joint.charge_together([(ledger, [Request(window(0), LOSS, ("0",))]) for ledger in ledgers])
    assert all(result.charge is not None for (result,) in found)
    state = EpochState("", 0, 0, b"left")
    joint.seal_together([(ledger, [SealedRelease(window(0), b"answer")], [state]) for ledger in ledgers[:2]])
    with pytest.raises(LedgerError, match="final"):  # the second stream's window is sealed
        joint.seal_together([(ledger, [SealedRelease(window(0), b"other")], []) for ledger in (ledgers[2], ledgers[1])])
    assert [ledger.unacknowledged() for ledger in ledgers] == [[(window(0), b"answer")]] * 2 + [[]] * 2
    assert ledgers[0].epoch_states("", 0) == [(0, b"left")]
    joint.acknowledge_together([(ledger, [window(0)]) for ledger in ledgers])
    assert [ledger.summary().get("acknowledged") for ledger in ledgers] == [1, 1, None, None]
    assert joint.keep_together([(ledgers[0], "a", "1"), (ledgers[1], "a", "2"), (ledgers[1], "b", "3")]) == [
        "1",
        "1",
        "3",
    ]
    assert [ledger.setting("a") for ledger in ledgers] == ["1", "1", None, None]
    assert [ledger.verify() for ledger in ledgers] == [4, 5, 1, 1]
    ledgers[1].close()
    with pytest.raises(LedgerError, match="is closed"):
        joint.charge_together([(ledger, [Request(window(1), LOSS, ("1",))]) for ledger in ledgers[:2]])
    assert ledgers[0].spent("1") == PrivacyLoss()
    close_all(ledgers)


def test_what_cannot_be_one_transaction(tmp_path):
    here = open_ledgers(f"sqlite:{tmp_path / 'l.db'}", TERMS)
    there = open_ledger(f"sqlite:{tmp_path / 'm.db'}", TERMS[0])
    assert joint_ledger(here) is here[0]
    assert joint_ledger([*here, there]) is None
    assert joint_ledger([MemoryLedger(TERMS[0])]) is None
    assert joint_ledger([]) is None
    close_all([*here, there])


def test_acknowledgments_are_flushed_by_the_next_charge(tmp_path):
    """Written at once, so that the end of a process loses none, and no guard is ahead of what the disk holds."""
    path = tmp_path / "l.db"
    ledger = SQLiteLedger(str(path), TERMS[0])
    ledger.charge([Request(window(0), LOSS, ("0",))])
    ledger.seal([SealedRelease(window(0), b"answer")])
    guarded = (tmp_path / "l.db-witness").read_bytes()
    ledger.acknowledge([window(0)])
    assert (tmp_path / "l.db-witness").read_bytes() == guarded
    assert ledger.place.db.execute("PRAGMA synchronous").fetchone() == (1,)
    ledger.charge([Request(window(1), LOSS, ("1",))])
    assert ledger.place.db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert (tmp_path / "l.db-witness").read_bytes() != guarded
    older = path.read_bytes()
    ledger.close()
    path.write_bytes(older)
    with pytest.raises(LedgerDamaged):
        SQLiteLedger(str(path), TERMS[0])


def test_many_streams_need_few_open_files(tmp_path):
    many = [replace(TERMS[0], stream=f"s/{i}") for i in range(80)]
    before = len(os.listdir("/proc/self/fd"))
    ledgers = open_ledgers(f"sqlite:{tmp_path / 'l.db'}", many)
    joint = joint_ledger(ledgers)
    for index in range(2):
        joint.charge_together([(ledger, [Request(window(index), LOSS, (str(index),))]) for ledger in ledgers])
    assert len(os.listdir("/proc/self/fd")) < before + 72
    close_all(ledgers)
    assert len(os.listdir("/proc/self/fd")) <= before
    close_all(open_ledgers(f"sqlite:{tmp_path / 'l.db'}", many))  # all of their guards agree
