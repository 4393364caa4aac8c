"""Rollback guards: of many streams written together as each alone, intact after a torn write, never dead in silence."""

import random

import pytest
from support.embedded_ledgers import LOSS, TERMS, filled

from fcstream.ledgers.base import Request, SealedRelease
from fcstream.ledgers.rollback_guard import GuardFile, RollbackGuard
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import window


def link(seq):
    return bytes([seq % 251]) * 32


def guards_of(path, count):
    file = GuardFile(str(path))
    return [RollbackGuard(file, number) for number in range(1, count + 1)]


@pytest.mark.parametrize("seed", range(5))
def test_notes_together_are_those_of_each_alone(tmp_path, seed):
    rng = random.Random(seed)
    pairs = [guards_of(tmp_path / name, 40) for name in ("together-witness", "alone-witness")]
    pairs[1][0]._file.mark = pairs[0][0]._file.mark
    for seq in range(1, 20):
        some = rng.sample(range(40), rng.choice([1, 2, 3, 30, 40]))
        RollbackGuard.note_together([(pairs[0][i], seq, link(seq)) for i in some])
        for i in some:
            pairs[1][i].note(seq, link(seq))
        assert (tmp_path / "together-witness").read_bytes() == (tmp_path / "alone-witness").read_bytes()
    assert [guard.seen() for guard in pairs[0]] == [guard.seen() for guard in pairs[1]]


def test_a_torn_write_leaves_the_older_line_of_each_stream(tmp_path, monkeypatch):
    path = tmp_path / "l.db-witness"
    guards = guards_of(path, 5)
    for seq in (1, 2):
        RollbackGuard.note_together([(guard, seq, link(seq)) for guard in guards])
    before, written = path.read_bytes(), []
    monkeypatch.setattr(GuardFile, "write", lambda file, data, start: written.append((bytes(data), start)))
    RollbackGuard.note_together([(guard, 3, link(3)) for guard in guards])
    [(data, start)] = written
    assert start == 0
    for end in range(0, len(data), 19):
        path.write_bytes(data[:end] + before[end:])
        assert all(guard.seen() in ((2, link(2)), (3, link(3))) for guard in guards_of(path, 5))


def test_a_file_that_cannot_be_written_stays_behind(tmp_path):
    guards = guards_of(tmp_path / "absent" / "l.db-witness", 5)
    RollbackGuard.note_together([(guard, 1, link(1)) for guard in guards])
    assert [guard.seen() for guard in guards] == [(0, b"")] * 5
    (tmp_path / "absent").mkdir()
    RollbackGuard.note_together([(guard, 2, link(2)) for guard in guards])
    assert [guard.seen() for guard in guards] == [(2, link(2))] * 5


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def reopened(path, caplog):
    """Open a ledger once more, and return the warnings that this gives."""
    caplog.clear()
    SQLiteLedger(str(path), TERMS).close()
    return told(caplog)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x00" * 224])
def test_a_guard_that_knows_nothing_is_told_and_renewed(tmp_path, caplog, content):
    """It was taken for a sound one, though an older copy of the ledger would not have been noticed."""
    path, guard = tmp_path / "l.db", tmp_path / "l.db-witness"
    filled(path)
    assert reopened(path, caplog) == []
    guard.write_bytes(content)
    [warning] = reopened(path, caplog)
    assert str(guard) in warning
    assert "an older copy" in warning
    assert "budget releases" in warning
    assert reopened(path, caplog) == []
    assert RollbackGuard(str(guard)).seen()[0] == 8


def test_a_guard_that_stayed_behind_is_told_and_renewed(tmp_path, caplog):
    """It lacked what several runs had written, and nobody said so."""
    path, guard = tmp_path / "l.db", tmp_path / "l.db-witness"
    filled(path, 1)
    older = guard.read_bytes()
    ledger = SQLiteLedger(str(path), TERMS)
    ledger.charge([Request(window(20), LOSS, ("20",))])
    one_charge_later = guard.read_bytes()
    ledger.seal([SealedRelease(window(20), b"answer")])
    ledger.close()
    guard.write_bytes(one_charge_later)  # as after the end of a process between the ledger and the guard
    assert reopened(path, caplog) == []
    guard.write_bytes(older)
    [warning] = reopened(path, caplog)
    assert "has missed 2 journal rows" in warning
    assert reopened(path, caplog) == []


def test_a_guard_that_cannot_be_written_is_told_once(tmp_path, caplog):
    """Its failures were passed over in silence: the ledger was unguarded for as long as they lasted."""
    path, guard = tmp_path / "l.db", tmp_path / "l.db-witness"
    filled(path)
    guard.unlink()
    guard.mkdir()
    caplog.clear()
    ledger = SQLiteLedger(str(path), TERMS)
    for i in range(20, 23):
        ledger.charge([Request(window(i), LOSS, (str(i),))])
    [warning] = told(caplog)
    assert f"{guard} cannot be read and written (Is a directory)" in warning
    assert "delete it: then a new one is begun" in warning
    guard.rmdir()
    ledger.charge([Request(window(23), LOSS, ("23",))])
    ledger.close()
    assert RollbackGuard(str(guard)).seen()[0] == 12
    assert reopened(path, caplog) == []
