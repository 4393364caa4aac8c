"""Ledgers of many windows, to be reported."""

import json

import pytest

from fcstream.accounting.losses import PrivacyLoss
from fcstream.ledgers import open_reader
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import window

CAP = PrivacyLoss.cap(1, "1e-6")
LOSS = PrivacyLoss.charge("0.03", "1e-9")
REFUND = PrivacyLoss.charge("0.02")
NOTHING = PrivacyLoss()
BLOCKS = {"stream": lambda i: ("stream",), "event": lambda i: (str(i * 60_000), str((i + 1) * 60_000)), "user": None}


def body(index, reason=None):
    return json.dumps({"status": "refused" if reason else "released", "reason": reason, "window": index}).encode()


def fill(path, unit="stream", windows=25, loss=LOSS, total=None, refunds=(), cap=CAP):
    """A closed ledger; every window asks for `loss`, those in `refunds` give `REFUND` back."""
    ledger = SQLiteLedger(str(path), Terms("t", unit, cap, "specification", total))
    for i in range(windows):
        blocks = ("user",) if unit == "user" else BLOCKS[unit](i)
        granted = ledger.charge([Request(window(i), loss, blocks)])[0].charge is not None
        back = REFUND if granted and i in refunds else NOTHING
        ledger.seal([SealedRelease(window(i), body(i, None if granted else "budget_exhausted"), back)])
        ledger.acknowledge([window(i)])
    ledger.close()
    return str(path)


@pytest.fixture
def look(tmp_path):
    opened = []

    def open_it(*args, **options):
        opened.append(open_reader(fill(tmp_path / f"l{len(opened)}.db", *args, **options)))
        return opened[-1]

    yield open_it
    for reader in opened:
        reader.close()
