"""Where a live stream begins: at its first run, once for ever, by public clocks; and what a pause left unanswered."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import sample

from fcstream import ConfigError, Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.connectors import open_sink
from fcstream.engine.engine import MAX_WINDOWS_AT_ONCE
from fcstream.errors import LedgerMismatch
from fcstream.formats.payloads import decoder_for
from fcstream.ledgers import open_ledger
from fcstream.planning.plan import plan
from fcstream.service import publisher
from fcstream.service.batch import check_sink_matches_ledger
from fcstream.service.context import SessionContext
from fcstream.stream.windows import Schedule
from fcstream.testing import sample_release

COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None, "rho": 50.0}
DAY = 86_400_000


def live(start="2020-01-01T00:00:00Z", clock="broker", backlog="0s", **sections):
    window = {"clock": clock, "end": None, "lateness": "2s", "start": start, "backlog": backlog}
    window |= sections.pop("window", {})
    return sample(release=COUNT, budget={"rho": 100.0}, window=window, **sections)


def made(config, **options):
    return Engine(config, noise=Noise(SeededEntropy(0)), **options)


def now_ms():
    return time.time_ns() // 1_000_000


def push(engine, at, n=30):
    engine.push(np.full(n, at), np.full((n, 2), 20.0), arrival_ms=at)


def test_a_start_months_ago_does_not_flood():
    """173,312 refusals were sealed in 40 s, before the first answer of any use."""
    engine = made(live())
    at = now_ms()
    push(engine, at)
    answers = engine.advance(at + 13_000)
    assert 1 <= len(answers) <= 2
    assert answers[0].window_open_ms == at // 10_000 * 10_000  # the window that was open at the first run
    assert answers[0].count > 20


def test_a_wall_clock_begins_when_the_engine_is_made():
    """Not when the first record is pushed: a record more would move that."""
    engine = made(live(clock="wall", window={"length": "1s", "lateness": "0s"}))
    before = now_ms()
    deadline = time.monotonic() + 60
    while not (answers := engine.tick()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert answers[0].window_open_ms <= before
    assert len(answers) <= 2 + (now_ms() - before) // 1000  # a second each


def test_one_record_more_does_not_move_the_first_window():
    """A neighboring stream has one record that arrived hours earlier: the answers are about the same windows."""
    found = []
    for has_more in (False, True):
        at = 1_767_225_600_000 + 5_000
        engine = made(live(backlog="1m"))
        if has_more:
            push(engine, at - 3 * 3_600_000, 1)
        push(engine, at)
        found.append([(r.window_open_ms, r.status) for r in engine.advance(at + 20_000)])
    assert found[0] == found[1]
    assert len(found[0]) > 1


def test_a_replay_of_the_past_begins_where_begin_says():
    engine = made(live())
    at = 1_767_225_600_000
    engine.begin(at)
    engine.begin(at - DAY)  # later calls change nothing
    push(engine, at + 1)
    assert [r.window_open_ms for r in engine.advance(at + 12_001)] == [at]


def test_a_backlog_is_answered_if_it_is_asked_for():
    at = 1_767_225_600_000
    engine = made(live(backlog="1m"))
    push(engine, at - 30_000)
    answers = engine.advance(at + 2001)
    assert [(r.window_open_ms - at) // 1000 for r in answers] == [-60, -50, -40, -30, -20, -10]
    assert [r.count > 20 for r in answers] == [False, False, False, True, False, False]


@pytest.mark.parametrize("keys", [None, ["a", "b"]])
def test_what_came_before_the_first_window_was_known_is_counted(keys, caplog):
    """Records in windows before it vanished without a trace."""
    at = 1_767_225_600_000
    config = live(stream={} if keys is None else {"key": "site", "keys": keys})
    engine = made(config) if keys is None else KeyedEngine(config, noise=Noise(SeededEntropy(0)))
    of = [] if keys is None else [["a"]]
    for moment in (at - 20_000, at - 1, at, at + 1):
        engine.push([moment], [[20.0, 50.0]], *of, arrival_ms=moment)
    engine.begin(at)
    assert engine.rejected == {"time_out_of_range": 2}
    engine.push([at + 2], [[20.0, 50.0]], *of, arrival_ms=at + 2)
    assert engine.rejected == {"time_out_of_range": 2}
    assert "rejects records that were pushed: time_out_of_range" in caplog.text


def test_what_lies_before_the_first_window_is_rejected():
    found = []
    at = 1_767_225_600_000
    engine = made(live(), on_rejection=found.extend)
    push(engine, at - 20_000, 2)  # not known yet
    engine.begin(at)
    push(engine, at - 20_000, 3)
    push(engine, at, 4)
    assert [r.reason for r in found] == ["time_out_of_range"] * 3
    assert [round(r.count) in range(1, 8) for r in engine.advance(at + 12_001)] == [True]


@pytest.mark.parametrize("url", ["sqlite", "memory"])
def test_the_first_window_is_kept_for_ever(tmp_path, url):
    config = live(start="now", ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    at = 1_767_225_600_000
    if url == "memory":  # one ledger for two lives of an engine
        ledger = open_ledger("memory:", Config.from_mapping(config).job.terms)
        options = {"ledger": ledger}
    else:
        options = {}
    engine = made(config, **options)
    engine.begin(at + 1234)
    engine.abort()
    engine = made(config, **options)  # it died before the first answer
    answers = engine.advance(at + 60_000)
    assert [(r.window_open_ms - at) // 1000 for r in answers] == [0, 10, 20, 30, 40]
    engine.acknowledge()
    engine.abort()
    engine = made(config, **options)  # and was down for a while: nothing is skipped
    assert [(r.window_open_ms - at) // 1000 for r in engine.advance(at + 93_000)] == [50, 60, 70, 80]
    engine.abort()


def test_now_is_aligned():
    for length, slide in (("10m", None), ("1d", None), ("10m", "5m")):
        engine = made(live(start="now", window={"length": length, "slide": slide, "lateness": "0s"}))
        engine.begin(1_767_225_600_000 + 5 * 3_600_000 + 123_456)
        step = engine.job.schedule.slide_ms
        assert engine.next_open_ms % step == 0
        window = engine.job.schedule.window(engine._progress.next)
        assert window.open_ms <= 1_767_225_600_000 + 5 * 3_600_000 + 123_456 < window.close_ms


def test_now_is_one_specification_whenever_it_is():
    first, second = (Config.from_mapping(live(start="now")).job.terms for _ in range(2))
    assert first == second
    assert first.specification != Config.from_mapping(live()).job.terms.specification
    plain = Config.from_mapping(live()).job.terms.specification
    assert plain == Config.from_mapping(live(backlog="3d")).job.terms.specification  # which may change


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({"window": {"start": "now"}}, "window.start"),
        ({"window": {"backlog": "1h"}}, "window.backlog"),
        ({"window": {"clock": "wall", "start": "Now"}}, "window.start"),
        ({"window": {"clock": "wall", "backlog": "soon"}}, "window.backlog"),
        (
            {
                "stream": {"unit": "stream"},
                "window": {"clock": "wall", "start": "now", "end": "2030-01-01T00:00:00Z"},
                "budget": {"savings": "even", "rho": 1e6},
            },
            "window.start",
        ),
    ],
)
def test_what_does_not_go_together(sections, place):
    with pytest.raises(ConfigError, match=place):
        Config.from_mapping(sample(**sections))


def test_what_a_pause_left_unanswered_comes_in_bounded_groups():
    """All of it was sealed before any of it was returned."""
    engine = made(live(window={"length": "1s", "lateness": "0s"}))
    at = 1_767_225_600_000
    engine.begin(at)
    later = at + 2_500_001
    sizes = []
    while engine.windows_due(later):
        sizes.append(len(engine.advance(later)))
        assert len(sizes) < 10
    assert sum(sizes) == 2500
    assert max(sizes) < MAX_WINDOWS_AT_ONCE + 256
    assert engine.advance(later) == []


def test_every_key_begins_at_its_own_first_run(tmp_path):
    """A key that is added months later must not be answered for all windows since the stream began."""
    at = 1_767_225_600_000
    ledger = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    shape = {"stream": {"key": "site", "keys": ["a", "b"]}, "ledger": ledger}
    with KeyedEngine(live(**shape)) as engine:
        engine.begin(at)
        opens = [r.window_open_ms for r in engine.advance(at + 12_001)]
        assert opens == [at, at]
    shape["stream"]["keys"] = ["a", "b", "c"]
    with KeyedEngine(live(**shape)) as engine:
        answers = engine.advance(at + 40 * 10_000 + 2001)
    assert [r.key for r in answers].count("c") == 0  # it begins here
    assert [r.key for r in answers].count("a") == 39


def test_a_lost_ledger_is_noticed_although_the_new_one_begins_later(tmp_path):
    at = 1_767_225_600_000
    sink = open_sink(f"jsonl:{tmp_path / 'out.jsonl'}")
    sink.write([replace(sample_release(), stream="t", window_open_ms=at - 100_000)])
    engine = made(live())
    engine.begin(at)
    with pytest.raises(LedgerMismatch, match="lost or exchanged"):
        check_sink_matches_ledger(engine, sink)
    sink.close()


def test_two_processes_begin_with_the_same_window(tmp_path):
    """Whoever comes first decides: here two engines that share a ledger in memory, at once."""
    config = Config.from_mapping(live())
    ledger = open_ledger("memory:", config.job.terms)
    engines = [made(config, ledger=ledger) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: pair[1].begin(1_767_225_600_000 + 50_000 * pair[0]), enumerate(engines)))
    assert len({engine.next_open_ms for engine in engines}) == 1


def test_first_open_is_the_window_that_closes_next():
    for schedule in (Schedule(0, 10, 10), Schedule(7, 10, 3), Schedule(0, 10, 10, 5, 50)):
        for now in range(-20, 90):
            wanted = 0
            while (schedule.count is None or wanted < schedule.count) and schedule.window(wanted).close_ms <= now:
                wanted += 1
            assert schedule.first_open(now) == wanted


def test_the_plan_counts_from_now():
    window = {"end": "2999-01-01T00:00:00Z", "length": "1h"}
    found = plan(Config.from_mapping(live(start="now", window=window)))
    assert abs(found.windows - (32_472_144_000_000 - now_ms()) // 3_600_000) <= 2
    assert not [line for line in found.warnings if "are over" in line]


def test_a_service_tells_how_much_of_a_pause_is_still_unanswered(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(publisher, "_TELL_EVERY_S", 0.0)
    sink = open_sink(f"jsonl:{tmp_path / 'out.jsonl'}")
    engine = made(live(window={"length": "1s", "lateness": "0s"}))
    at = 1_767_225_600_000
    engine.begin(at)
    setting = SessionContext(decoder_for("json", engine.job.schema), now_ms)
    with caplog.at_level("INFO", "fcstream.service"):
        publisher.Publisher(engine, sink, setting).close_due(at + 1_000_001)
    told = [
        record.getMessage()
        for record in caplog.records
        if "releasing the windows that were missed" in record.getMessage()
    ]
    assert told[0] == "releasing the windows that were missed: 744 windows are still due"
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 1000
    sink.close()
