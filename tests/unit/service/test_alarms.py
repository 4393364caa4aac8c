"""Alarms for operators: they go off at many records, never at few, and one record more or less hardly shows."""

import math
import time

import numpy as np
import pytest
from support.memory_log import LogSource, Rig

from fcstream import Engine, Noise, SeededEntropy
from fcstream.formats.payloads import decoder_for
from fcstream.service.alarms import USUAL, Alarm, LateWatch, RefusalWatch, UnusableWatch
from fcstream.service.context import SessionContext
from fcstream.service.metrics import StreamStatus
from fcstream.service.status import answer
from fcstream.service.supervisor import Supervisor


def first_ring(noise, counts):
    """At which question the alarm goes off, -1 for never."""
    alarm = Alarm(noise)
    for i, count in enumerate(counts):
        alarm.add(count)
        if alarm.rings():
            return i
    return -1


@pytest.mark.slow
def test_many_records_ring_and_few_never_do():
    noise = Noise(SeededEntropy(1))
    assert all(first_ring(noise, [2 * USUAL]) == 0 for _ in range(200))
    assert first_ring(noise, [0] * 100_000) == -1
    assert 5 <= first_ring(noise, [USUAL // 10] * 100) <= 15  # also when they come slowly


def test_it_begins_anew_after_it_rang():
    alarm = Alarm(Noise(SeededEntropy(2)))
    alarm.add(10 * USUAL)
    assert alarm.rings()
    assert not any(alarm.rings() for _ in range(1000))


def loss_of_one_record(runs):
    """How far one record more shifts the log-probability of any answer, less four deviations."""
    counts = [[USUAL - 6, 0, 4], [USUAL - 5, 0, 4]]
    found = [
        np.bincount([first_ring(Noise(SeededEntropy(3 + i * runs + k)), c) + 1 for k in range(runs)], minlength=4)
        for i, c in enumerate(counts)
    ]
    pairs = [(one, two) for one, two in zip(*found, strict=True) if min(one, two) > 100]
    assert pairs
    return max(abs(math.log(one / two)) - 4 * math.sqrt(1 / one + 1 / two) for one, two in pairs)


@pytest.mark.slow
def test_one_record_shifts_no_probability_by_more_than_its_price():
    assert loss_of_one_record(20_000) <= 0.5


@pytest.mark.slow
def test_a_quarter_of_the_noise_would_be_noticed(monkeypatch):
    monkeypatch.setattr("fcstream.service.alarms._SCALE", 1)
    assert loss_of_one_record(20_000) > 0.5


def test_late_records_are_reported_and_the_warning_ends(monkeypatch):
    now, told = [1000.0], {}
    monkeypatch.setattr("fcstream.service.alarms.time.monotonic", lambda: now[0])
    watch = LateWatch(told.__setitem__, Noise(SeededEntropy(4)))
    for reasons in ({"late": 3}, {"out_of_range": 10_000}, {}):
        now[0] += 2
        watch.note(reasons)
        assert told.get("late") is None
    now[0] += 2
    watch.note({"late": 150, "window_closed": 150})
    assert "came too late" in told["late"]
    assert watch.alarms == 1
    now[0] += 1000
    watch.note({})
    assert told["late"] is None


def told_after(periods, seed=5):
    """What is warned of after periods of (records, rejected by reason), a minute each."""
    now, told = [1000.0], {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcstream.service.alarms.time.monotonic", lambda: now[0])
        watch, found = UnusableWatch(told.__setitem__, noise=Noise(SeededEntropy(seed))), []
        for records, rejected in periods:
            watch.note(records, rejected)
            now[0] += 60
            watch.note(0, {})
            found.append(told.get("unusable"))
    return found


def test_a_minute_without_usable_records_is_reported_until_there_are_some():
    all_bad, fine, silent = (3000, {"missing": 2990, "not_a_number": 10}), (3000, {"missing": 5}), (0, {})
    found = told_after([fine, all_bad, silent, all_bad, fine, silent])
    assert [text is not None for text in found] == [False, True, True, True, False, False]
    assert "hardly any of the records of the last 60 s could be used" in found[1]
    late = (3000, {"late": 2000, "window_closed": 1000})  # has an alarm of its own
    assert told_after([late, (20, {"missing": 20}), (3000, {"missing": 2900})]) == [None] * 3


def test_one_record_shifts_no_answer_of_the_watch_by_more_than_its_price():
    def warned(records, rejected, runs=20_000):
        watch = UnusableWatch(lambda kind, text: told.append(text is not None), noise=Noise(SeededEntropy(6 + records)))
        told: list[bool] = []
        for _ in range(runs):
            watch._used, watch._unusable = records - rejected, rejected
            watch._ask()
        return sum(told) / runs

    base = warned(USUAL, USUAL)  # right at the bar
    for neighbor in (warned(USUAL + 1, USUAL), warned(USUAL + 1, USUAL + 1), warned(USUAL - 1, USUAL - 1)):
        for one, two in ((base, neighbor), (1 - base, 1 - neighbor)):
            assert abs(math.log(one / two)) <= 0.25 + 4 * math.sqrt(2 / 20_000 / min(one, two))


def test_a_service_warns_and_ready_says_so_when_nothing_of_a_minute_could_be_used(tmp_path, monkeypatch):
    rig, passed = Rig(tmp_path), [0.0]
    real = time.monotonic
    monkeypatch.setattr("fcstream.service.alarms.time.monotonic", lambda: real() + passed[0])
    for i in range(500):
        rig.send(0, [i], body=b'{"ts_ms": "yesterday"}')
    setting = SessionContext(decoder_for("json", rig.config.job.schema), lambda: rig.clock.now_ms)
    service = Supervisor(lambda keys: Engine(rig.config), lambda: LogSource(rig.log), lambda: rig.sink, setting)
    steps = []

    def on_step(it):
        steps.append(1)
        passed[0] += 1
        if "unusable" in it.warnings or len(steps) > 200:
            it.stop()

    service.run(on_step)
    assert "could be used" in service.warnings["unusable"]
    service._health.good()
    code, _, body = answer([StreamStatus("t", service)], "/ready")
    assert code == 200  # it is served: the records are at fault
    assert b"t: warning: hardly any of the records" in body


def test_refusals_that_say_nothing_of_records_are_told_at_once_and_others_by_an_alarm(monkeypatch):
    warnings, now = {}, [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = RefusalWatch(warnings.__setitem__, Noise(SeededEntropy(5)))

    def note(seconds, **refused):
        now[0] += seconds
        watch.note(refused)
        return {kind: text for kind, text in warnings.items() if text is not None}

    assert note(1, broken=3, too_large=1, slow=1) == {}
    assert "(type, unauthorized)" in note(1, unauthorized=1, type=7, broken=1)["refused"]
    assert note(600, unauthorized=1).keys() == {"refused"}
    assert "(unauthorized)" in note(600)["refused"]
    assert note(600) == {}
    assert "about 100 bodies" in note(1, broken=3 * USUAL)["refused_bodies"]
    assert note(901) == {}


def test_a_stream_whose_records_all_come_too_late_is_not_ready(monkeypatch):
    """After a jump an hour of records was rejected, and /ready answered 200."""
    told, now = {}, [100.0]
    monkeypatch.setattr("fcstream.service.alarms.time.monotonic", lambda: now[0])
    watch = UnusableWatch(lambda *_: None, noise=Noise(SeededEntropy(3)), fault=told.__setitem__)
    for late, used, wanted in [(500, 0, True), (500, 500, False), (20, 0, False), (300, 5, True), (0, 0, True)]:
        for reason in ("late", "window_closed"):
            watch.note((late + used) // 2, {reason: late // 2})
        now[0] += 61
        watch.note(0, {})
        assert (told["too_late"] is not None) == wanted, (late, used)
    now[0] += 1000
    watch.note(0, {})
    assert told["too_late"] is None  # else a receiver that nobody is sent to for that would stay so for ever
