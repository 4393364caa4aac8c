"""Ctrl-C at every line of a ledger's transaction: the ledger goes on, and another process opens it."""

import contextlib
import itertools
import sys
from pathlib import Path

import pytest

from fcstream.accounting.losses import PrivacyLoss
from fcstream.ledgers import files
from fcstream.ledgers.base import Request, Terms
from fcstream.ledgers.sqlite import ledger as sqlite
from fcstream.runtime import undo
from fcstream.testing import window

TERMS = Terms("s", "event", PrivacyLoss.cap(2, 1e-6), "specification")
LOSS = PrivacyLoss.charge(0.5, 1e-8)
FILES = {str(Path(module.__file__)) for module in (contextlib, files, sqlite, undo)}


@contextlib.contextmanager
def interrupt_at(line):
    """Raise KeyboardInterrupt once, at the given line of those that are run in FILES."""
    lines = itertools.count(1)

    def trace(frame, event, argument):
        if frame.f_code.co_filename not in FILES or frame.f_code is interrupt_at.__wrapped__.__code__:
            return None
        if event == "line" and next(lines) == line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "is closed"])
def test_an_interrupt_at_any_line_leaves_a_ledger_that_opens(tmp_path, goes_on):
    for line in itertools.count(1):
        path = str(tmp_path / f"{line}.db")
        ledger = sqlite.SQLiteLedger(path, TERMS)
        interrupted = False
        try:
            with interrupt_at(line):
                ledger.charge([Request(window(0), LOSS, ("0",))])
        except KeyboardInterrupt:
            interrupted = True
        if goes_on:
            for i in (0, 1):
                (result,) = ledger.charge([Request(window(i), LOSS, (str(i),))])
                assert result.charge is not None, line
        ledger.close()
        other = sqlite.SQLiteLedger(path, TERMS)
        assert not goes_on or other.spent() == LOSS, line
        other.verify()
        other.close()
        if not interrupted:
            break
    assert line > 20  # else nothing was interrupted
