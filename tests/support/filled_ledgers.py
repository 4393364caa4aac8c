"""Ledgers with something in every table."""

from fcstream.accounting.losses import PrivacyLoss
from fcstream.ledgers.base import Request, SealedRelease, Terms
from fcstream.testing import LedgerContract, window

LOSS = PrivacyLoss.charge("0.1", "1e-9")
CAP = PrivacyLoss.cap("1.0", "1e-6")
STREAMS = (
    Terms("rooms/a", "event", CAP, '{"stream":{"key":"room"}}', CAP * 9),
    Terms("rooms/b", "event", CAP, '{"stream":{"key":"room"}}', CAP * 9),
    Terms("people", "user", CAP, '{"stream":{"unit":"user"}}'),
)


def fill_blocks(ledger, n):
    """Windows of two blocks each: all charged, all but the last sealed, the first acknowledged."""
    loss = LedgerContract.loss
    ledger.charge([Request(window(i), loss, (str(i), str(i + 1))) for i in range(n)])
    ledger.seal([SealedRelease(window(i), b"answer") for i in range(n - 1)])
    ledger.acknowledge([window(0)])


def fill(ledger, n=12):
    ledger.keep_setting("start", "2026-01-01T00:00:00Z")
    for i in range(n):
        if ledger.terms.unit == "user":
            ledger.charge([Request(window(i), LOSS, ("user",))])
        else:
            ledger.charge([Request(window(i), LOSS, (str(i), str(i + 1)))])
        refund = PrivacyLoss.charge("0.05") if i % 3 == 0 else PrivacyLoss()
        ledger.seal([SealedRelease(window(i), b"answer %d" % i, refund)])
        if i < n - 3:
            ledger.acknowledge([window(i)])
    ledger.charge(
        [Request(window(n), LOSS, ("user",)) if ledger.terms.unit == "user" else Request(window(n), LOSS, ("x",))]
    )
