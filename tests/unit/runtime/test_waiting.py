"""Calls that take long are told after a fixed time, by a clock that the test moves: no machine is too slow for it."""

import threading
import time
from types import SimpleNamespace

import pytest

from fcstream.runtime import waiting
from fcstream.runtime.waiting import SLOW_S, ExternalCalls, note_failure


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.parametrize("part", ["source", "sink", "ledger"])
def test_a_call_that_is_not_answered_shows_within_five_seconds(clock, part):
    assert SLOW_S <= 5.0
    calls = ExternalCalls(threading.Event())
    began = time.monotonic()
    with calls.calling(part):
        clock.now = began + SLOW_S - 0.001
        assert calls.trouble is None
        clock.now = time.monotonic() + SLOW_S
        assert f"the {part} has not answered for 3 s" == calls.trouble
    assert calls.trouble is None


def test_the_reason_of_the_last_try_is_told(clock):
    calls = ExternalCalls(threading.Event())
    with calls.watched(), waiting.calling("sink"):
        note_failure("refused")
        clock.now = time.monotonic() + 60
        assert calls.trouble.endswith("s: refused")
    assert calls.errors == {"sink": 1}
