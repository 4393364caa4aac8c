"""An embedded ledger with some windows in it."""

import contextlib

from fcstream.ledgers.sqlite.ledger import SQLiteLedger
from fcstream.testing import LedgerContract
from support.filled_ledgers import fill_blocks

TERMS = LedgerContract.terms
LOSS = LedgerContract.loss


def filled(path, n=4):
    with contextlib.closing(SQLiteLedger(str(path), TERMS)) as ledger:
        fill_blocks(ledger, n)
