"""A SQLite ledger that charges and seals many windows in one transaction keeps what it keeps one by one."""

import numpy as np
import pytest

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import LedgerError
from fcstream.ledgers import Request, SealedRelease, Terms, WindowKey
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

LOSS = PrivacyLoss.charge(0.4, 1e-7)
REFUND = PrivacyLoss.charge(0.1)


def terms(group):
    return Terms("stream", "event", PrivacyLoss.cap(1.0, 1e-6), "specification", group=group)


def window(i):
    return WindowKey(1000 * i, 1000 * i + 3000)


def request(i):
    """A window of three panes, each of which has room for two and a half windows."""
    return Request(window(i), LOSS, tuple(str(1000 * pane) for pane in range(i, i + 3)))


def facts(result):
    charge = result.charge and (result.charge.loss, result.charge.is_redraw)
    return result.window, result.spent, charge, result.interrupted, str(result.refusal)


def tables(ledger):
    rows = [tuple(row) for row in ledger.rows()]
    held = [ledger._file.db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in ("windows", "blocks")]
    return rows, held


@pytest.mark.parametrize("group", [None, "campus"])
def test_charges_in_one_transaction_are_those_of_one_by_one(tmp_path, group):
    """New windows, windows charged or sealed before, refusals, and panes that windows share."""
    rng = np.random.default_rng(3)
    for trial in range(20):
        ledgers = [SQLiteLedger(str(tmp_path / f"{trial}-{name}.db"), terms(group)) for name in ("once", "each")]
        for _ in range(4):
            asked = [request(int(i)) for i in rng.permutation(12)[: rng.integers(1, 9)]]
            once = ledgers[0].charge(asked)
            each = [ledgers[1].charge([one])[0] for one in asked]
            assert list(map(facts, once)) == list(map(facts, each))
            sealed = [SealedRelease(a.window, b"a line", REFUND) for a in once if a.charge and rng.random() < 0.5]
            ledgers[0].seal(sealed)
            for one in sealed:
                ledgers[1].seal([one])
            done = [one.window for one in sealed[::2]]
            ledgers[0].acknowledge(done)
            for one in done:
                ledgers[1].acknowledge([one])
            assert tables(ledgers[0]) == tables(ledgers[1])
        for ledger in ledgers:
            ledger.verify()
            before = tables(ledger)
            ledger.close()
            reopened = SQLiteLedger(ledger.path, terms(group))
            assert tables(reopened) == before
            reopened.verify()
            reopened.close()


def test_a_failed_transaction_leaves_nothing_in_memory(tmp_path):
    ledger = SQLiteLedger(str(tmp_path / "l.db"), terms(None))
    ledger.charge([request(0), request(9)])
    before = tables(ledger), ledger.spent()
    with pytest.raises(LedgerError):  # the second window was never charged so much
        ledger.seal([SealedRelease(window(0), b"a", REFUND), SealedRelease(window(5), b"b", LOSS)])
    assert (tables(ledger), ledger.spent()) == before

    def fail(*values):
        raise KeyboardInterrupt

    ledger._file.write, real = fail, ledger._file.write
    with pytest.raises(KeyboardInterrupt):
        ledger.charge([request(1), request(4)])
    ledger._file.write = real
    assert (tables(ledger), ledger.spent()) == before
    again = ledger.charge([request(1), request(4)])
    assert [found.charge.is_redraw for found in again] == [False, False]
    ledger.seal([SealedRelease(window(0), b"a", REFUND)])
    assert ledger.verify() == 5
    assert ledger.spent("1000") == LOSS + LOSS - REFUND
    ledger.close()
