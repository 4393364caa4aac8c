import logging
import threading

import numpy as np
import pytest
from support.helpers import rows, sample

from fcstream import Config, Engine, Noise, SeededEntropy
from fcstream.errors import ConfigError, EngineClosed, LedgerError, LedgerMismatch
from fcstream.ledgers import open_ledger
from fcstream.testing import ManualClock


def engine(seed=1, rejected=None, **sections):
    on_rejection = None if rejected is None else rejected.extend
    return Engine(sample(**sections), noise=Noise(SeededEntropy(seed)), on_rejection=on_rejection)


LIVE = {"clock": "broker", "end": None, "lateness": "2s"}


def fill(eng, window, n=400, seed=0, **options):
    times = window * 10_000 + np.arange(n) % 10_000
    return eng.push(times, rows(n, seed), **options)


def test_eof_closes_every_window_of_the_schedule():
    eng = engine()
    assert fill(eng, 0) == fill(eng, 2) == []
    assert eng.advance(10**12) == []  # time does not close files
    releases = eng.close()
    assert [r.window_open_ms for r in releases] == [0, 10_000, 20_000, 30_000, 40_000, 50_000]
    assert [r.status for r in releases] == ["released", "refused", "released", "refused", "refused", "refused"]
    assert {r.reason for r in releases} == {None, "too_few"}
    assert releases[0].value == pytest.approx([20.5, 49.0], abs=0.2)
    assert all(r.spent == {"rho": r.rho, "delta": r.delta} for r in releases)
    assert [(r.rho, r.delta) for r in releases[::2][:2]] == [(1.0, 1e-9)] * 2
    assert all(r.rho < 0.1 and r.delta < 1e-9 for r in releases if r.reason)  # stages never started go back
    assert all(r.guarantee == {"rho": 4.0, "delta": 1e-6} for r in releases)
    with pytest.raises(EngineClosed):
        fill(eng, 0)
    assert eng.close() == []


def test_bad_rows_are_rejected_one_by_one():
    rejected = []
    eng = engine(rejected=rejected)
    raw = rows(8)
    raw[1, 0], raw[2, 1], raw[3, 0], raw[4, 1] = np.nan, np.inf, 999, -1
    eng.push([0, 1, 2, 3, 4, -1, 60_000, 10**14], raw, positions=np.arange(8) + 100)
    assert [(r.reason, r.position, r.field) for r in rejected] == [
        ("missing", 101, "a"),
        ("not_finite", 102, "b"),
        ("out_of_range", 103, "a"),
        ("out_of_range", 104, "b"),
        ("time_out_of_range", 105, None),
        ("time_out_of_range", 106, None),
        ("time_out_of_range", 107, None),
    ]
    assert eng.rejected == {"missing": 1, "not_finite": 1, "out_of_range": 2, "time_out_of_range": 3}
    assert eng._records.counter.size(0) == 1


@pytest.mark.parametrize("clock", ["eof", "broker"])
def test_one_timestamp_a_year_ahead_changes_nothing_for_other_records(clock):
    """The same seed gives the same bytes with and without it: no watermark is made of records' stamps."""
    answers = []
    for stray in (False, True):
        window = {"clock": "broker", "end": None} if clock == "broker" else {}
        rejected = []
        eng = engine(rejected=rejected, window=window)
        for k in range(3):
            arrival = None if clock == "eof" else 10_000 * k + 9_999
            fill(eng, k, arrival_ms=arrival)
            if stray:
                eng.push([365 * 86_400_000], rows(1), arrival_ms=arrival)
        answers.append(eng.close() if clock == "eof" else eng.advance(30_001))
        assert [r.reason for r in rejected] == ["time_out_of_range"] * (3 * stray)
    assert answers[0] == answers[1]
    assert len(answers[0]) >= 3


def test_lateness_is_a_property_of_the_record_alone():
    rejected = []
    eng = engine(rejected=rejected, window=LIVE)
    fill(eng, 0, arrival_ms=12_000)  # close + lateness exactly: in time
    eng.push([5], rows(1), arrival_ms=12_001)
    assert [r.reason for r in rejected] == ["late"]
    assert eng.advance(12_000) == []  # an arrival at 12,000 may still come
    first = eng.advance(12_001)
    assert [r.window_open_ms for r in first] == [0]
    eng.push([5], rows(1), arrival_ms=11_000)  # the caller had said that none was to come
    assert [r.reason for r in rejected] == ["late", "window_closed"]


def test_late_for_one_sliding_window_in_time_for_the_next():
    """The record's pane is shared by both windows: it must not be counted in the one it is late for."""
    shape = {"window": {"slide": "5s", **LIVE}, "release": {"kind": "count", "rho": 50.0}, "budget": {"rho": 200.0}}
    eng = engine(**shape)
    eng.push([6_000] * 100, rows(100), arrival_ms=7_000)  # in windows [0, 10) and [5, 15)
    eng.push([6_001] * 50, rows(50), arrival_ms=12_001)  # late for the first only
    answers = eng.advance(100_000)
    assert abs(answers[0].count - 100) < 3
    assert abs(answers[1].count - 150) < 3
    assert abs(answers[2].count) < 3


def with_held_records():
    shape = {"window": {"slide": "5s", **LIVE}, "release": {"kind": "count", "rho": 50.0}, "budget": {"rho": 200.0}}
    eng = engine(**shape)
    eng.push([6_000] * 100, rows(100), arrival_ms=7_000)
    eng.push([6_001] * 50, rows(50), arrival_ms=12_001)  # late for the first window
    return eng


def test_a_retry_after_a_failed_seal_sees_the_same_records(monkeypatch):
    eng = with_held_records()
    real, calls = type(eng._ledger).seal, []

    def failing(self, answers):
        calls.append(1)
        if len(calls) == 1:
            raise OSError("disk")
        return real(self, answers)

    monkeypatch.setattr(type(eng._ledger), "seal", failing)
    with pytest.raises(OSError):
        eng.advance(100_000)
    answers = eng.advance(100_000)
    assert abs(answers[0].count - 100) < 3
    assert abs(answers[1].count - 150) < 3


def test_a_release_whose_seal_fails_after_it_is_stored_is_returned_and_tracked(monkeypatch):
    eng = engine(window=LIVE, release={"method": "tracking"})
    fill(eng, 0, arrival_ms=1)
    real, calls = type(eng._ledger).seal, []

    def failing(self, answers):
        real(self, answers)
        calls.append(answers)
        if len(calls) == 1:
            raise OSError("the answer was lost")

    monkeypatch.setattr(type(eng._ledger), "seal", failing)
    with pytest.raises(OSError):
        eng.advance(12_001)
    (release,) = eng.advance(12_001)
    assert [release.to_bytes()] == [answer.body for answer in calls[0]]
    assert release.track is not None
    assert eng._closer._tracks == (release.track,)
    assert eng.advance(12_001) == []


def test_an_interrupt_while_held_records_enter_counts_none_twice(monkeypatch):
    eng = with_held_records()
    real, calls = type(eng._records.counter).add, []

    def interrupted(self, pane, points):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(self, pane, points)

    monkeypatch.setattr(type(eng._records.counter), "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        eng.advance(100_000)
    monkeypatch.undo()
    with pytest.raises(EngineClosed):
        eng.advance(100_000)


def test_odd_arrays():
    rejected = []
    eng = engine(rejected=rejected)
    good = np.array([[20.0, 50.0]] * 3)
    masked = np.ma.array(good.copy(), mask=[[0, 0], [1, 0], [0, 0]])
    masked.data[1, 0] = 1e30
    eng.push([1, 2, 3], masked)
    eng.push(np.array([np.inf, 1, 2], np.float16), good)
    eng.push([1, 2], good[:2], positions=[2**53, 2**53 + 1])
    assert [r.reason for r in rejected] == ["missing", "bad_time"]
    assert eng._records.counter.size(0) == 6
    with pytest.raises(ConfigError, match="points"):
        eng.push([1], np.array(None, object))


def test_sliding_windows_count_each_pane_and_charge_each_pane():
    shape = {"window": {"slide": "5s"}, "release": {"kind": "count", "rho": 20.0}, "budget": {"rho": 40.0}}
    eng = engine(**shape)
    times = np.arange(0, 60_000, 10)
    eng.push(times, rows(len(times)))
    answers = eng.close()
    assert len(answers) == 11
    assert all(abs(a.count - 1000) < 3 for a in answers)
    assert [a.spent["rho"] for a in answers] == [20.0] + [40.0] * 10  # every inner pane lies in two windows


def test_order_and_batching_of_pushes_change_no_bit():
    n = 900
    times, raw = np.arange(n) * 60, rows(n, 3)
    answers = []
    for order, parts in ((np.arange(n), 1), (np.arange(n), 90), (np.random.default_rng(0).permutation(n), 7)):
        eng = engine(window={"slide": "5s"}, release={"size_hint": 150, "radius": 6.0}, budget={"rho": 2.0})
        for part in np.array_split(order, parts):
            eng.push(times[part], raw[part])
        answers.append([(r.count, r.core_count is None, r.reason) for r in eng.close()])
    assert answers[0] == answers[1] == answers[2]


def test_unit_stream_pays_for_every_window():
    eng = engine(stream={"unit": "stream"}, budget={"rho": 2.5})
    fill(eng, 0)
    answers = eng.close()
    assert [a.reason for a in answers] == [None] + ["too_few"] * 5
    spent = np.cumsum([a.rho for a in answers])
    assert np.allclose([a.spent["rho"] for a in answers], spent, rtol=0, atol=1e-9)
    assert spent[-1] < 1.3  # empty windows hardly cost anything


def test_unit_stream_refuses_what_does_not_fit():
    eng = engine(stream={"unit": "stream"}, budget={"rho": 2.5})
    for k in range(6):
        fill(eng, k)
    answers = eng.close()
    assert [a.reason for a in answers] == [None, None] + ["budget_exhausted"] * 4
    assert [a.spent["rho"] for a in answers] == [1.0] + [2.0] * 5
    assert [a.rho for a in answers] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_positions_are_identities():
    rejected = []
    eng = engine(rejected=rejected, release={"kind": "count", "rho": 50.0}, budget={"rho": 50.0})
    eng.push([1] * 100, rows(100), positions=np.arange(100))
    eng.push([1] * 100, rows(100), positions=np.arange(50, 150))
    eng.push([1, 1], rows(2), positions=[200, 200])
    assert [r.reason for r in rejected] == ["duplicate"] * 51
    assert abs(eng.close()[0].count - 151) < 3


def test_crash_and_replay(tmp_path):
    """A restarted engine answers open windows once more under nothing new, and closed ones never again."""
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    shape = {"window": LIVE, "ledger": ledger, "budget": {"rho": 1.0}}
    eng = engine(**shape)
    for k in range(3):
        fill(eng, k, arrival_ms=10_000 * k + 9_999)
    first = eng.advance(12_001)
    eng._ledger.close()  # the process dies before it says that the release went out

    rejected = []
    eng = engine(seed=2, rejected=rejected, **shape)
    assert eng.answered == 1
    assert eng.unpublished() == first  # the same bytes
    for k in range(3):  # the caller replays everything
        fill(eng, k, arrival_ms=10_000 * k + 9_999)
    assert rejected == []  # what was answered before is a replay, not a fault
    later = eng.advance(32_001)
    assert [r.window_open_ms for r in later] == [10_000, 20_000]
    assert [r.reason for r in later] == [None, None]
    eng.acknowledge()
    assert eng.unpublished() == []
    eng.abort()


def test_windows_missed_while_down_are_answered():
    clock = ManualClock()
    eng = engine(window=LIVE)
    answers = eng.advance(clock.tick(45_000))
    assert [a.window_open_ms for a in answers] == [0, 10_000, 20_000, 30_000]
    assert {a.reason for a in answers} == {"too_few"}


def test_wall_clock_closes_on_push():
    import time

    now = time.time_ns() // 1_000_000
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now // 1000 - 30))
    eng = engine(window={"clock": "wall", "end": None, "start": start, "lateness": "0s"})
    answers = eng.push([now], rows(1))
    assert len(answers) in (2, 3)
    assert eng.rejected == {}


def test_releases_count_as_published_with_the_next_call(tmp_path):
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    with engine(window=LIVE, ledger=ledger) as eng:
        eng.advance(12_001)
        assert len(eng._ledger.unacknowledged()) == 1
        eng.push([15_000], rows(1), arrival_ms=15_000)
        assert eng._ledger.unacknowledged() == []
        eng.advance(22_001)
    eng = engine(window=LIVE, ledger=ledger)
    assert eng.unpublished() == []  # the with block ended well
    eng.advance(32_001)
    eng._ledger.close()  # a crash
    eng = engine(window=LIVE, ledger=ledger)
    assert [r.window_open_ms for r in eng.unpublished()] == [20_000]
    eng.abort()


def test_an_error_in_a_with_block_acknowledges_nothing(tmp_path):
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    with pytest.raises(ZeroDivisionError), engine(window=LIVE, ledger=ledger) as eng:
        assert eng.advance(12_001)[0].window_open_ms // 0
    eng = engine(window=LIVE, ledger=ledger)
    assert len(eng.unpublished()) == 1
    eng.abort()


def test_failing_draws_are_redrawn_once_and_then_given_up(monkeypatch):
    eng = engine(window=LIVE)
    fill(eng, 0, arrival_ms=1)
    real = type(eng.job.answers[0].mechanism).release
    calls = []

    def failing(self, view, charge, noise):
        calls.append(charge)
        raise MemoryError

    monkeypatch.setattr(type(eng.job.answers[0].mechanism), "release", failing)
    for _ in range(2):
        with pytest.raises(MemoryError):
            eng.advance(12_001)
    monkeypatch.setattr(type(eng.job.answers[0].mechanism), "release", real)
    answer = eng.advance(12_001)[0]
    assert answer.reason == "interrupted"
    assert answer.rho == 1.0
    assert len(calls) == 2


def test_changed_specification_on_the_same_ledger(tmp_path):
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    engine(ledger=ledger).abort()
    with pytest.raises(LedgerMismatch, match="specification"):
        engine(ledger=ledger, release={"radius": 4.0})
    engine(ledger=ledger, window={"end": "1970-01-01T01:00:00Z"}).abort()  # a longer schedule is no other one


def test_ball_and_friendly_and_transformed_features():
    shape = {"release": {"method": "ball", "center": [20.0, 50.0], "radius": 2.0, "delta": 0.0, "size_hint": None}}
    eng = engine(**shape)
    fill(eng, 0)
    answer = eng.close()[0]
    assert answer.value == pytest.approx([20.5, 49.0], abs=0.3)
    assert answer.delta == 0
    eng = engine(release={"method": "friendly"})
    fill(eng, 0)
    assert eng.close()[0].value == pytest.approx([20.5, 49.0], abs=0.5)
    mapping = sample()
    mapping["features"] = [{"name": "a", "min": 0, "max": 1e6, "transform": "log1p"}]
    eng = Engine(mapping, noise=Noise(SeededEntropy(1)))
    eng.push(np.arange(400), np.full((400, 1), 99.0))
    answer = eng.close()[0]
    assert answer.value == pytest.approx([np.log(100)], abs=0.1)
    assert answer.transform == ["log1p"]


def test_many_threads_push_into_one_engine():
    eng = engine(release={"kind": "count", "rho": 50.0}, budget={"rho": 50.0})
    errors = []

    def work(k):
        try:
            for i in range(20):
                fill(eng, k % 6, 25, seed=100 * k + i)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(abs(a.count - 500) < 3 for a in eng.close())


def test_one_thread_does_not_acknowledge_for_another():
    eng = engine(window=LIVE)
    worker = threading.Thread(target=lambda: eng.advance(12_001))
    worker.start()
    worker.join()
    eng.push([15_000], rows(1), arrival_ms=15_000)  # this thread knows nothing of the worker's release
    assert len(eng._ledger.unacknowledged()) == 1
    ledger = eng._ledger
    with eng:
        pass
    assert ledger.unacknowledged() == []


def test_many_engines_side_by_side():
    engines = [engine(seed=k) for k in range(5)]
    for k, eng in enumerate(engines):
        fill(eng, k)
    for k, eng in enumerate(engines):
        assert [a.status == "released" for a in eng.close()] == [i == k for i in range(6)]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda e: e.push([1, 2], [[1, 2]]), "points"),
        (lambda e: e.push([1, 2], np.zeros((2, 3))), "points"),
        (lambda e: e.push([1], 5), "points"),
        (lambda e: e.push(np.array([[1]]), [[1, 2]]), "times_ms"),
        (lambda e: e.advance(float("nan")), "now_ms"),
        (lambda e: e.advance(2**60), "now_ms"),
        (lambda e: e.advance("soon"), "now_ms"),
        (lambda e: e.advance(None), "now_ms"),
        (lambda e: e.push([1], [[1, 2]], positions=[1, 2]), "positions"),
        (lambda e: e.push([1], [[1, 2]], ids=["x"]), "ids"),
    ],
)
def test_wrong_shapes(call, what):
    with pytest.raises(ConfigError, match=what):
        call(engine())


def test_one_odd_row_never_decides_about_the_others():
    rejected = []
    eng = engine(rejected=rejected)
    good = [20.0, 50.0]
    eng.push([1, 2.5, np.nan, np.inf, 2**60], [good] * 5)
    eng.push(np.array([-(2**63), 2**62, 7], np.int64), [good] * 3)
    eng.push([1, "2", None, 4, 5, 6], [good, good, good, ["x", 50.0], [20.0], good])
    reasons = ["missing", *["bad_time"] * 5, "missing", "not_a_number", "broken_record"]
    assert [r.reason for r in rejected] == reasons
    assert eng._records.counter.size(0) == 5


ODD_TIMES = ["n/a", None, [1], 10**400, True, float("nan"), "5"]
ODD_VALUES = ["n/a", "20.5", True, b"20", None, 10**400, [20.0], object(), float("inf")]


@pytest.mark.slow
@pytest.mark.parametrize("time", [7, *ODD_TIMES], ids=str)
@pytest.mark.parametrize("value", [20.0, *ODD_VALUES], ids=lambda v: type(v).__name__ + str(v)[:8])
def test_a_row_is_read_the_same_alone_and_in_any_company(time, value):
    row = ([time], [[value, 50.0]])
    alone, beside = [], []
    one = engine(rejected=alone)
    one.push(*row)
    two = engine(rejected=beside)
    two.push([1, *row[0], 3], [[20.0, 50.0], *row[1], (20, 50)])
    assert [r.reason for r in alone] == [r.reason for r in beside]
    assert two._records.counter.size(0) == one._records.counter.size(0) + 2
    accepted = time == 7 and not isinstance(time, bool) and isinstance(value, float) and value == 20.0
    assert one._records.counter.size(0) == accepted


def test_odd_arrivals_and_positions_are_rejected_by_row():
    rejected = []
    eng = engine(rejected=rejected, window=LIVE)
    good = [20.0, 50.0]
    eng.push([1, 2, 3], [good] * 3, arrival_ms=[5, None, float("nan")])
    eng.push([1, 2, 3], [good] * 3, arrival_ms=5, positions=[1, "x", 2])
    eng.push([1, 2], [good] * 2, arrival_ms=[5, [5]])
    assert [r.reason for r in rejected] == ["bad_time", "bad_time", "broken_record", "bad_time"]
    assert eng._records.counter.size(0) == 4
    with pytest.raises(ConfigError, match="arrival_ms"):
        eng.push([1], [good], arrival_ms="now")


def test_a_wall_clock_does_not_run_a_day_ahead():
    eng = engine(window={"clock": "wall", "end": None})
    with pytest.raises(ConfigError, match="day ahead"):
        eng.advance(2**52)
    assert eng._ledger.last_sealed() is None


def test_a_raising_callback_takes_nothing():
    class Stop(Exception):
        pass

    stops = True

    def stop(rejections):
        if stops:
            raise Stop

    shape = {"release": {"kind": "count", "rho": 50.0}, "budget": {"rho": 50.0}}
    eng = Engine(sample(**shape), noise=Noise(SeededEntropy(1)), on_rejection=stop)
    for positions in (None, np.arange(101)):
        with pytest.raises(Stop):
            eng.push([1] * 100 + [-5], rows(101), positions=positions)
    stops = False
    eng.push([1] * 100 + [-5], rows(101), positions=np.arange(101))
    assert abs(eng.close()[0].count - 100) < 3


def test_counting_that_fails_closes_the_engine(monkeypatch):
    eng = engine()
    monkeypatch.setattr(type(eng._records.counter), "add", lambda self, pane, points: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fill(eng, 0)
    monkeypatch.undo()
    with pytest.raises(EngineClosed):
        fill(eng, 0)


def test_what_was_sealed_before_an_error_is_handed_out_by_the_next_call(monkeypatch):
    import fcstream.releases.spending as module

    monkeypatch.setattr(module, "GROUP", 2)
    eng = engine(window=LIVE)
    real, calls = type(eng._ledger).charge, []

    def failing(self, requests):
        calls.append(len(requests))
        if len(calls) == 3:
            raise OSError("disk")
        return real(self, requests)

    monkeypatch.setattr(type(eng._ledger), "charge", failing)
    with pytest.raises(OSError):
        eng.advance(72_001)
    assert [r.window_open_ms for r in eng.advance(72_001)] == [0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]
    assert len(eng._ledger.unacknowledged()) == 7
    eng.acknowledge()
    assert eng._ledger.unacknowledged() == []


def test_a_with_block_closes_no_window_by_itself(tmp_path):
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    with engine(ledger=ledger) as eng:
        fill(eng, 0)
    with engine(ledger=ledger) as eng:
        assert eng.answered == 0
        fill(eng, 0)
        assert eng.close()[0].status == "released"
    with engine(ledger=ledger) as eng:
        assert eng.answered == 6
        assert eng.unpublished() == []


def test_a_ledger_is_required():
    mapping = sample()
    del mapping["ledger"]
    with pytest.raises(ConfigError, match=r"ledger\.url"):
        Engine(mapping)


def test_broker_clock_needs_arrivals():
    eng = engine(window=LIVE)
    with pytest.raises(ConfigError, match="arrival_ms"):
        eng.push([1], rows(1))
    with pytest.raises(ConfigError, match="arrival_ms"):
        eng.push([1], rows(1), arrival_ms=[1, 2])


def test_single_record_and_empty_pushes():
    eng = engine()
    assert eng.push(5, [20.0, 50.0]) == []
    assert eng.push([], np.empty((0, 2))) == eng.push([], []) == []
    assert eng._records.counter.size(0) == 1


def test_panes_are_forgotten():
    eng = engine(window={"slide": "5s", **LIVE})
    for k in range(30):
        fill(eng, k, 20, arrival_ms=10_000 * k)
        eng.advance(10_000 * k)
    assert len(eng._records.counter.panes) < 8


@pytest.mark.parametrize("unit", ["event", "user"])
@pytest.mark.parametrize("held", [True, False])
def test_a_close_that_loses_records_of_open_windows_says_so(caplog, unit, held):
    user = {"unit": "user", "user": "id"} if unit == "user" else {}
    eng = engine(stream=user, window=LIVE)
    ids = {"ids": ["somebody"]} if user else {}
    eng.advance(0)
    eng.push([1000], rows(1), arrival_ms=[1000], **ids)
    eng.advance(12_001)  # answers the window of that record
    if held:
        eng.push([12_500], rows(1), arrival_ms=[12_500], **ids)
    with caplog.at_level(logging.WARNING, "fcstream.engine"):
        eng.close()
        eng.close()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == held
    assert not held or "push what lies at event time 10000 (`replay_from`) or later" in told[0]


def test_a_close_says_so_of_records_that_wait_for_a_later_window(caplog):
    """Late for the only open window of their pane, in time for the next one."""
    eng = engine(window=LIVE | {"slide": "5s", "lateness": "0s"})
    eng.advance(0)
    eng.push([6000], rows(1), arrival_ms=[11_000])
    assert not eng._records.counter.panes
    with caplog.at_level(logging.WARNING, "fcstream.engine"):
        eng.close()
    assert "records of those that are open are lost" in caplog.text


def test_what_another_process_sealed_under_the_same_charge_is_all_that_is_published():
    """It draws and seals between this engine's draw and its seal: two draws would be two answers for one charge."""
    config = Config.from_mapping(sample(window={"clock": "broker", "end": None}))
    ledger = open_ledger("memory:", config.job.terms)
    slow, fast = (Engine(config, ledger=ledger, noise=Noise(SeededEntropy(seed))) for seed in (1, 2))
    for engine in (slow, fast):
        engine.begin(0)
        engine.push(np.arange(100), rows(100), arrival_ms=np.arange(100))
    seal, published = ledger.seal, []

    def seal_after_the_other(releases):
        ledger.seal = seal
        published.extend(fast.advance(20_000))
        seal(releases)

    ledger.seal = seal_after_the_other
    with pytest.raises(LedgerError, match="its release is final"):
        slow.advance(20_000)
    assert len(published) == 1
    assert slow.advance(20_000) == []
    assert [body for _, body in ledger.unacknowledged()] == [release.to_bytes() for release in published]
