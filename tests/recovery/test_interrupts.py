"""Ctrl-C at every line of a ledger's transaction, and of an engine that takes records or closes windows."""

import contextlib
import itertools
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.helpers import rows, sample

from fcstream import Engine, KeyedEngine
from fcstream.accounting.losses import PrivacyLoss
from fcstream.engine import closing, engine, keyed, outbox, progress, records, together
from fcstream.errors import EngineClosed
from fcstream.ledgers import fence, files, open_reader, rollback_guard
from fcstream.ledgers.base import Request, Terms
from fcstream.ledgers.sqlite import ledger as sqlite
from fcstream.ledgers.sqlite import listing, opening, tables
from fcstream.runtime import undo
from fcstream.testing import window

EACH = 1 if os.environ.get("FCSTREAM_LONG") else 3
"""Of the many lines of opening and closing every third is tried; FCSTREAM_LONG=1 tries all."""
TERMS = Terms("s", "event", PrivacyLoss.cap(2, 1e-6), "specification")
LOSS = PrivacyLoss.charge(0.5, 1e-8)
LEDGER = {str(Path(module.__file__)) for module in (contextlib, fence, files, sqlite, undo)}
ENGINE = {str(Path(module.__file__)) for module in (closing, engine, outbox, progress, records)}
KEYED = {str(Path(module.__file__)) for module in (keyed, together, engine, outbox)}


@pytest.fixture(autouse=True)
def fresh_lock(monkeypatch):
    """A line may be interrupted between a block and the release of its lock, where the interpreter interrupts nothing.

    This thread would hold it for ever.
    """
    monkeypatch.setattr(files, "_FILES_LOCK", threading.RLock())


@contextlib.contextmanager
def interrupt_at(line, paths=LEDGER, without=()):
    """Raise KeyboardInterrupt once, at the given line of those that are run in some files, but for some functions."""
    lines = itertools.count(1)
    without = {interrupt_at.__wrapped__.__code__, *(function.__code__ for function in without)}

    def trace(frame, event, argument):
        if frame.f_code.co_filename not in paths or frame.f_code in without:
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file between `open` and `with`
@pytest.mark.parametrize("act", ["makes", "opens", "closes"])
def test_an_interrupt_at_any_line_of_opening_or_closing_leaves_a_ledger_that_opens(tmp_path, act):
    paths = LEDGER | {str(Path(module.__file__)) for module in (opening, tables, listing, rollback_guard)}
    for line in itertools.count(1, EACH):
        path, ledger, interrupt = str(tmp_path / f"{line}.db"), None, None
        if act != "makes":
            ledger = sqlite.SQLiteLedger(path, TERMS)
            ledger.charge([Request(window(0), LOSS, ("0",))])
        if act == "opens":
            ledger = ledger.close()
        try:
            with interrupt_at(line, paths):
                if act == "closes":
                    ledger.close()
                else:
                    ledger = sqlite.SQLiteLedger(path, TERMS)
        except KeyboardInterrupt as error:
            interrupt = error  # whose traceback refers to all that was interrupted
        if ledger is not None:
            ledger.close()
        other = sqlite.SQLiteLedger(path, TERMS)
        assert (other.spent() == LOSS) == (act != "makes"), line
        other.close()
        if interrupt is None:
            break
    assert line > 20


COUNTS = {"release": {"kind": "count", "rho": 50.0}, "budget": {"rho": 50.0}}


def test_records_whose_push_is_interrupted_at_any_line_are_counted_once_or_not_at_all():
    for line in itertools.count(1):
        eng = Engine(sample(**COUNTS))
        points = {"times_ms": np.arange(100), "points": rows(100), "positions": np.arange(100)}
        interrupted = False
        try:
            with interrupt_at(line, ENGINE):
                eng.push(**points)
        except KeyboardInterrupt:
            interrupted = True
        with contextlib.suppress(EngineClosed):
            eng.push(**points)
            assert abs(eng.close()[0].count - 100) < 3, line
        eng.abort()
        if not interrupted:
            break
    assert line > 20


def test_a_release_whose_sealing_is_interrupted_at_any_line_is_returned_once(tmp_path):
    returning = (engine.Engine.advance, engine.Engine.begin, outbox.Outbox.take)
    url = f"sqlite:{tmp_path}/ledger.db"
    config = sample(ledger={"url": url}, window={"clock": "broker", "end": None}, **COUNTS)
    eng, returned, interrupted = Engine(config), [], True
    while interrupted:
        opens, line = 10_000 * len(returned), 1 + len(returned)
        eng.push(opens + np.arange(100), rows(100), arrival_ms=opens + 100)
        found = []
        with contextlib.suppress(KeyboardInterrupt), interrupt_at(line, LEDGER | ENGINE, returning):
            found = eng.advance(opens + 10_001)
        interrupted = not found
        if eng._closed:  # it was counting
            eng = Engine(config)
            assert eng.unpublished() == []
        found += eng.advance(opens + 10_001)
        assert [release.window_open_ms for release in found] == [opens], line
        returned += found
    eng.close()
    eng.acknowledge()
    reader = open_reader(url)
    assert [release.to_bytes() for release in returned] == reader.releases()
    assert reader.summary()["acknowledged"] == len(returned) > 50
    reader.close()


def test_releases_of_several_keys_whose_gathering_is_interrupted_at_any_line_are_returned_once(tmp_path):
    """A part that has returned its releases, which nobody got, took the next call for their acknowledgment."""
    keys = ["oslo", "rome"]
    config = sample(
        stream={"key": "site", "keys": keys},
        ledger={"url": f"sqlite:{tmp_path}/ledger.db"},
        window={"clock": "broker", "end": None},
        **COUNTS,
    )
    returning = (keyed.KeyedEngine.advance,)
    eng, returned, interrupted = KeyedEngine(config), [], True
    while interrupted:
        windows = len(returned) // len(keys)
        opens, line = 10_000 * windows, 1 + windows
        eng.push(opens + np.arange(100), rows(100), keys=keys * 50, arrival_ms=opens + 100)
        found = []
        with contextlib.suppress(KeyboardInterrupt), interrupt_at(line, KEYED, returning):
            found = eng.advance(opens + 10_001)
        interrupted = not found
        found += eng.advance(opens + 10_001)
        assert [(release.window_open_ms, release.key) for release in found] == [(opens, key) for key in keys], line
        returned += found
    eng.close()
    eng.acknowledge()
    assert len(returned) > 10 * len(keys)
    for key in keys:
        reader = open_reader(config["ledger"]["url"], f"{config['stream']['name']}/{key}")
        assert reader.summary()["acknowledged"] * len(keys) == len(returned)
        reader.close()
