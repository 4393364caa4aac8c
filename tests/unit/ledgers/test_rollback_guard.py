"""Rollback guards of many streams: written together as each alone, and intact after a torn write."""

import random

import pytest

from fcstream.ledgers.rollback_guard import GuardFile, RollbackGuard


def link(seq):
    return bytes([seq % 251]) * 32


def guards_of(path, count):
    file = GuardFile(str(path))
    return [RollbackGuard(file, number) for number in range(1, count + 1)]


@pytest.mark.parametrize("seed", range(5))
def test_notes_together_are_those_of_each_alone(tmp_path, seed):
    rng = random.Random(seed)
    pairs = [guards_of(tmp_path / name, 40) for name in ("together-witness", "alone-witness")]
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
