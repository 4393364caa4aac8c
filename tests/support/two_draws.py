"""One of two processes that draw under one charge; a module of its own, which a spawned process can import."""

import random
import time

from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import LedgerError
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.ledgers.postgres.ledger import PostgresLedger
from fcstream.testing import window

WINDOWS = 400
REFUSAL = 0.478
FIRST, REST = PrivacyLoss.charge("1e-4", "1e-12"), PrivacyLoss.charge("3e-4", "1e-12")
TERMS = Terms("stream", "stream", PrivacyLoss.cap("9", "1e-6"), "{}")


def answer_all(url, seed, barrier):
    """Charge every window, draw, and seal what was drawn, while the other process does the same."""
    draw = random.Random(seed)
    ledger = PostgresLedger(url, TERMS)
    for i in range(WINDOWS):
        barrier.wait(300)
        if seed == 1:
            time.sleep(0.002)  # the second one, which learns of no draw but its own
        charge = ledger.charge([Request(window(i), FIRST + REST, ("stream",))])[0].charge
        barrier.wait(300)
        charge.open(FIRST + REST)
        charge.start(FIRST)
        is_refused = draw.random() < REFUSAL
        if not is_refused:
            charge.start(REST)
        time.sleep(draw.random() * 0.002)  # whoever comes first
        try:
            ledger.seal([SealedRelease(window(i), b"too few" if is_refused else b"released", charge.unused)])
        except LedgerError as error:
            assert "its release is final" in str(error), error  # noqa: PT017
    ledger.close()
