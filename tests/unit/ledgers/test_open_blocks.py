"""Blocks that memory holds until their windows have a release: answers are those of a file that is read each time."""

import random
import sqlite3

import pytest
from support.embedded_ledgers import LOSS, TERMS

from fcstream.accounting.losses import PrivacyLoss
from fcstream.ledgers.base import Request, SealedRelease, Terms, max_loss
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.ledgers.sqlite.tables import StreamTables
from fcstream.testing import window

SMALL = Terms("s", "event", PrivacyLoss(9, 9), "{}")


def answers_of(path, seed):
    """What a ledger says to random charges of windows that share panes, seals with refunds and reopenings."""
    rng, told, charged = random.Random(seed), [], []
    ledger = SQLiteLedger(str(path), SMALL)
    for i in range(100):
        step = rng.random()
        if step < 0.1:
            ledger.close()
            ledger = SQLiteLedger(str(path), SMALL)
        elif step < 0.15:
            ledger.verify()
        elif step < 0.3:  # what is rolled back leaves nothing in memory
            first = rng.randrange(-3, 12)
            request = Request(window(1000 + i), PrivacyLoss(1, 1), (str(first), str(first + 1)))
            with pytest.raises(KeyboardInterrupt), ledger._transaction() as tables:  # noqa: PT012
                if not ledger._charge(tables, request).refusal:
                    ledger._seal(tables, SealedRelease(request.window, b"{}", PrivacyLoss(rng.randrange(2), 0)))
                raise KeyboardInterrupt
        elif step < 0.6 and charged:
            key, result = charged.pop(rng.randrange(len(charged)))
            refund = result.charge.loss if result.charge and rng.random() < 0.5 else PrivacyLoss()
            ledger.seal([SealedRelease(key, b"{}", refund)])
        else:
            first = rng.randrange(-3, 12)
            blocks = tuple(str(pane) for pane in range(first, first + rng.choice([1, 2, 4])))
            request = Request(window(i), PrivacyLoss(rng.randrange(1, 6), rng.randrange(4)), blocks)
            [result] = ledger.charge([request])
            told.append((result.spent, result.charge is None, result.refusal and str(result.refusal)))
            charged.append((request.window, result))
        told.append((ledger.spent(), ledger.last_sealed(), None))
    told += [ledger.spent(str(pane)) for pane in range(-3, 16)] + [row[1:] for row in ledger.rows()]
    ledger.verify()
    ledger.close()
    return told


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_those_of_a_file_that_is_read_each_time(tmp_path, seed, monkeypatch):
    found = answers_of(tmp_path / "quick.db", seed)
    assert any(isinstance(each, tuple) and len(each) == 3 and each[-1] for each in found)  # some are refused
    real = StreamTables.block_if_any

    def slow(tables, block):
        tables._open_blocks.clear()
        tables._newest_pane = float("inf")
        return real(tables, block)

    def counted(tables):
        rows = [PrivacyLoss(*row[1:]) for row in tables.blocks()]
        return max_loss(rows)

    def looked_for(tables):
        rows = [row for row in tables.windows() if row.state != "charged"]
        return rows[-1] if rows else None

    monkeypatch.setattr(StreamTables, "block_if_any", slow)
    monkeypatch.setattr(StreamTables, "max_spent_of_all", counted)
    monkeypatch.setattr(StreamTables, "last_sealed", looked_for)
    assert answers_of(tmp_path / "slow.db", seed) == found


def test_an_error_forgets_what_was_not_written(tmp_path, monkeypatch):
    ledger = SQLiteLedger(str(tmp_path / "l.db"), TERMS)
    ledger.charge([Request(window(0), LOSS, ("0",))])

    def interrupted(tables):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StreamTables, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.charge([Request(window(1), LOSS, ("0", "1"))])
    assert (ledger.spent("0"), ledger.spent("1")) == (LOSS, PrivacyLoss())
    ledger.charge([Request(window(1), LOSS, ("0", "1"))])
    assert (ledger.spent("0"), ledger.spent("1")) == (LOSS + LOSS, LOSS)
    ledger.verify()
    ledger.close()


def test_new_panes_are_not_searched_for(tmp_path):
    ledger, asked = SQLiteLedger(str(tmp_path / "l.db"), TERMS), []
    ledger.charge([Request(window(0), LOSS, ("0",))])
    ledger._file.db.set_trace_callback(asked.append)
    ledger.charge([Request(window(1), LOSS, ("60000",))])
    ledger.seal([SealedRelease(window(1), b"{}", LOSS)])
    ledger._file.db.set_trace_callback(None)
    assert not [text for text in asked if text.startswith("SELECT")]
    ledger.close()
    with sqlite3.connect(tmp_path / "l.db") as db:
        held = db.execute("SELECT block, rho FROM blocks ORDER BY block").fetchall()
    assert held == [("0", LOSS.rho_nano), ("60000", 0)]
    db.close()
