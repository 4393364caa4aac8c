"""Streams that find their keys: what is released is what the slow twin says, whatever stops and starts in between."""

import logging
import random

import numpy as np
import pytest
from support.helpers import ledger_of
from support.naive_discovery import Arrival, discovered

import fcstream
from fcstream import DiscoveringEngine, Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.config import Config
from fcstream.engine.opening import open_engine
from fcstream.errors import BudgetExhausted, ConfigError, EngineClosed, LedgerMismatch
from fcstream.ledgers import each_reader, open_reader
from fcstream.testing import ManualClock

WINDOW_MS, PERIOD_MS, WINDOWS = 10_000, 40_000, 14
EXACT = 1e6  # a rho at which no noise is ever drawn, and two records are told
NAMES = [f"k{i}" for i in range(12)]


def settings(url="memory:", clock="eof", first=(), search=EXACT, **sections):
    """A stream of 14 windows, four in a period, the last period shorter."""
    keys = {"discover": "frequent", "every": "40s", "rho": search, "delta": 1e-9, "first": list(first)}
    window = {"length": "10s", "clock": clock, "start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:02:20Z"}
    if clock == "broker":
        window |= {"lateness": "15s", "ahead": "12s"}
    found = {
        "stream": {"name": "t", "key": "site", "keys": keys | sections.pop("keys", {})} | sections.pop("stream", {}),
        "window": window | sections.pop("window", {}),
        "release": {"kind": "count", "rho": EXACT},
        "budget": {"rho": EXACT + search, "delta": 1e-9},
        "ledger": ledger_of(url),
    }
    return Config.from_mapping(found | sections)


def of_users(url, most=1, **sections):
    """The same with the unit user, whose filters hold all windows and searches."""
    stream = {"unit": "user", "user": "who", "key_budgets": "shared", "keys_per_user": most}
    keys = {"values_per_user": len(NAMES)} | sections.pop("keys", {})
    budget = {"rho": 1e9, "delta": 1e-6}
    return settings(url, stream=stream, keys=keys, **({"budget": budget} | sections))


def draw_records(seed, number=300, live=False):
    """Records whose keys come and go from period to period."""
    draw, found = random.Random(seed), []
    for _ in range(number):
        time_ms = draw.randrange(-5_000, (WINDOWS + 1) * WINDOW_MS)
        names = NAMES[time_ms // PERIOD_MS :: 5] if draw.random() < 0.7 else NAMES
        arrival = time_ms + draw.choice([-14_000, -9_000, 0, 0, 0, 3_000, 15_000, 30_000]) if live else None
        found.append(Arrival(time_ms, draw.choice(names), arrival))
    return sorted(found, key=lambda record: record.arrival_ms) if live else found


def push(engine, records, first=0, **further):
    times, keys, arrivals = zip(*records, strict=True)
    positions = np.arange(first, first + len(records))
    if arrivals[0] is not None:
        further["arrival_ms"] = np.array(arrivals)
    return engine.push(np.array(times), None, list(keys), positions=positions, **further)


def counts_of(releases):
    return {(one.key, one.window_open_ms): round(one.value[0]) for one in releases if one.key is not None}


def searches_of(releases):
    found = [one for one in releases if one.key is None]
    assert all(one.stream == "t/" and one.kind == "frequent" for one in found)
    return {
        one.window_open_ms: dict(zip(one.parts["levels"], map(round, one.value), strict=True))
        for one in found
        if one.status == "released"
    }


def twin(records, **further):
    return discovered(records, length_ms=WINDOW_MS, every_ms=PERIOD_MS, windows=WINDOWS, **further)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgres").url
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'l.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def kept_url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgres").url
    return f"sqlite:{tmp_path / 'l.db'}"


def test_a_file_is_answered_as_the_twin_says(url):
    records, first = draw_records(1), ["k1", "never"]
    expected = twin(records, first=first)
    engine = DiscoveringEngine(settings(url, first=first))
    assert engine.keys == ("k1", "never")
    push(engine, records)
    releases = engine.close()
    engine.acknowledge()
    assert counts_of(releases) == expected.counts
    assert searches_of(releases) == expected.searches
    assert engine.rejected["undiscovered_key"] == expected.undiscovered > 0
    outside = sum(not 0 <= record.time_ms < WINDOWS * WINDOW_MS for record in records)
    assert engine.rejected == {"undiscovered_key": expected.undiscovered, "time_out_of_range": outside}
    assert len(set(map(frozenset, expected.searches.values()))) > 1  # keys did come and go


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_live_stream_that_is_stopped_anywhere_is_answered_as_the_twin_says(seed, tmp_path):
    draw, config = random.Random(seed), settings(f"sqlite:{tmp_path / 'l.db'}", "broker", first=["k2"])
    records = draw_records(10 + seed, live=True)
    expected = twin(records, first=["k2"], lateness_ms=15_000, ahead_ms=12_000)
    published, engine, pushed = {}, DiscoveringEngine(config), 0

    def publish(releases):
        for one in releases:
            assert published.setdefault((one.stream, one.window_open_ms), one) == one

    engine.begin(0)
    now = 0
    while pushed < len(records) or now < (WINDOWS + 2) * WINDOW_MS + 20_000:
        now += draw.randrange(500, 9_000)
        more = next((i for i in range(pushed, len(records)) if records[i].arrival_ms >= now), len(records))
        if more > pushed:
            publish(push(engine, records[pushed:more], pushed))
        pushed = more
        publish(engine.advance(now))
        if draw.random() < 0.3:
            assert engine.replay_from <= engine.next_open_ms
            engine.abort()
            engine = DiscoveringEngine(config)
            publish(engine.unpublished())
            if draw.random() < 0.5:
                engine.acknowledge()
            if pushed:
                publish(push(engine, records[:pushed]))
    while engine.windows_due(now):
        publish(engine.advance(now))
    assert counts_of(published.values()) == expected.counts
    assert searches_of(published.values()) == expected.searches
    engine.acknowledge()
    engine.abort()
    assert all(not reader.unacknowledged() for reader in each_reader(config.ledger.url))


@pytest.mark.slow
def test_users_count_under_all_of_their_keys_and_pay_for_every_window_and_search(kept_url):
    records = draw_records(3)
    config = of_users(kept_url, most=len(NAMES))
    users = [f"u{i}" for i in range(len(records))]
    expected = twin(records)
    with DiscoveringEngine(config) as engine:
        push(engine, records, ids=users)
        releases = engine.close()
        assert counts_of(releases) == expected.counts
        assert searches_of(releases) == expected.searches
        windows = len({one.window_open_ms for one in releases if one.key is not None})
        search = config.job.finder.job.answers.loss
        assert engine.spent == config.job.window_loss * windows + search * 3
    assert releases[-1].stream == "t/"


@pytest.mark.slow
def test_a_user_counts_under_so_many_found_keys_and_no_more(kept_url):
    records = [Arrival(period * PERIOD_MS + i, name) for period in range(3) for i, name in enumerate(NAMES * 20)]
    users = [f"u{i // len(NAMES) % 20}" for i in range(len(records))]
    with DiscoveringEngine(of_users(kept_url, most=2)) as engine:
        push(engine, records, ids=users)
        releases = engine.close()
    for period in (1, 2):
        mine = {one.key: one.value[0] for one in releases if one.key and one.window_open_ms == period * PERIOD_MS}
        assert len(mine) == len(NAMES)
        assert sum(mine.values()) == 20 * 2


def test_a_user_is_told_of_at_most_so_many_keys(kept_url):
    """With one key for each user, 20 users with the same 12 keys cannot make all of them known."""
    records = [Arrival(i, name) for i, name in enumerate(NAMES * 20)]
    users = [f"u{i // len(NAMES)}" for i in range(len(records))]
    with DiscoveringEngine(of_users(kept_url, keys={"values_per_user": 1})) as engine:
        push(engine, records, ids=users)
        told = searches_of(engine.close())[0]
    assert sum(told.values()) <= 20


def test_searches_and_windows_of_a_user_share_one_filter(tmp_path):
    """Three periods are searched: with room for two searches and four windows, all else is refused."""
    url = f"sqlite:{tmp_path / 'l.db'}"
    records = [Arrival(ms, "k0") for ms in range(0, WINDOWS * WINDOW_MS, 1000)]
    config = of_users(url, budget={"rho": 6 * EXACT, "delta": 2e-9})
    with DiscoveringEngine(config) as engine:
        push(engine, records, ids=["one", "two"] * (len(records) // 2))
        releases = engine.close()
        assert engine.spent.fits(config.job.terms.capacity)
    reasons = {one.window_open_ms: one.reason for one in releases if one.key == "k0"}
    opens = [PERIOD_MS + i * WINDOW_MS for i in range(10)]  # a search that is refused leaves the keys as they were
    assert reasons == dict.fromkeys(opens[:4]) | dict.fromkeys(opens[4:], "budget_exhausted")
    assert [one.reason for one in releases if one.key is None] == [None, None, "budget_exhausted"]


def test_a_period_that_is_refused_keeps_the_keys_of_the_one_before():
    config = settings(first=["k1"], keys={"max_values": 3})
    engine = DiscoveringEngine(config)
    push(engine, [Arrival(i, f"text{i}") for i in range(200)])
    releases = engine.close()
    search = next(one for one in releases if one.key is None)
    assert (search.status, search.reason) == ("refused", "too_many_values")
    assert {one.key for one in releases if one.window_open_ms == PERIOD_MS} == {"k1", None}
    assert {one.key for one in releases if one.window_open_ms == 2 * PERIOD_MS} == {None}  # the next search finds none


def test_keys_that_come_and_go_are_told(caplog):
    records = [Arrival(ms, "k0") for ms in (1, 2)] + [Arrival(PERIOD_MS + ms, "k1") for ms in (1, 2)]
    engine = DiscoveringEngine(settings())
    push(engine, records)
    with caplog.at_level(logging.INFO, "fcstream.engine"):
        engine.close()
    told = [record.getMessage() for record in caplog.records if "came" in record.getMessage()]
    assert told == [
        "stream 't': 1 key from 1970-01-01 00:00:40 UTC on: 1 came, 0 went",
        "stream 't': 1 key from 1970-01-01 00:01:20 UTC on: 1 came, 1 went",
        "stream 't': 0 keys from 1970-01-01 00:02:00 UTC on: 0 came, 1 went",
    ]


def test_a_live_stream_begins_in_the_middle_of_a_period(tmp_path):
    config = settings(f"sqlite:{tmp_path / 'l.db'}", "broker", first=["k0"])
    records = [Arrival(PERIOD_MS + ms, "k0", PERIOD_MS + ms) for ms in range(0, 2 * PERIOD_MS, 1000)]
    records += [Arrival(5_000, "k0", PERIOD_MS), Arrival(WINDOW_MS, "k0", PERIOD_MS)]
    begin = PERIOD_MS // WINDOW_MS + 2
    expected = twin(records, first=["k0"], lateness_ms=15_000, ahead_ms=12_000, begin=begin)
    clock, engine = ManualClock(begin * WINDOW_MS), DiscoveringEngine(config)
    push(engine, records)  # before anything is known of where the stream begins
    releases = engine.advance(clock.now_ms)
    assert engine.keys == ("k0",)
    while clock.now_ms < 200_000:
        releases += engine.advance(clock.tick(5_000))
    assert counts_of(releases) == expected.counts
    assert searches_of(releases) == expected.searches
    assert engine.next_open_ms == WINDOWS * WINDOW_MS
    engine.abort()
    again = DiscoveringEngine(config)
    assert again.begin(0) is None
    assert again.next_open_ms == WINDOWS * WINDOW_MS


def test_a_key_that_comes_back_has_no_releases_in_between(tmp_path):
    config = settings(f"sqlite:{tmp_path / 'l.db'}")
    records = [Arrival(ms, "k0") for ms in (1, 2)] + [Arrival(2 * PERIOD_MS + ms, "k0") for ms in (1, 2)]
    with DiscoveringEngine(config) as engine:
        push(engine, records)
        found = counts_of(engine.close())
    assert sorted(open_ms // PERIOD_MS for _, open_ms in found) == [1, 1, 1, 1, 3, 3]
    with DiscoveringEngine(config) as engine:
        push(engine, records)
        assert engine.known_keys == ("k0",)
        assert engine.close() == []
        assert engine.replayed == len(records)


def test_releases_of_a_key_that_is_gone_are_published_after_a_crash(kept_url):
    config = settings(kept_url)
    records = [Arrival(ms, "k0") for ms in (1, 2)] + [Arrival(PERIOD_MS + ms, "k1") for ms in (1, 2)]
    engine = DiscoveringEngine(config)
    push(engine, records)
    releases = engine.close()
    engine.abort()  # nobody has acknowledged anything
    engine = DiscoveringEngine(config)
    push(engine, records)  # whoever publishes later than this loses nothing either
    engine.acknowledge()
    found = engine.unpublished()
    assert sorted(map(str, found)) == sorted(map(str, releases))
    engine.acknowledge()
    engine.abort()
    assert DiscoveringEngine(config).unpublished() == []


def test_the_keys_of_a_period_are_those_of_the_ledger(tmp_path):
    """What `first` says later changes nothing in a period that has begun."""
    url = f"sqlite:{tmp_path / 'l.db'}"
    DiscoveringEngine(settings(url, first=["k1"])).abort()
    engine = DiscoveringEngine(settings(url, first=["k2"]))
    assert engine.keys == ("k1",)
    engine.abort()
    with pytest.raises(LedgerMismatch, match=r"`stream\.keys\.rho` changed from 1000000\.0 to 2000000\.0"):
        DiscoveringEngine(settings(url, search=2 * EXACT))


def test_what_a_record_pays_is_on_every_line():
    config = settings(search=0.5, release={"kind": "count", "rho": 0.25}, budget={"rho": 1.0, "delta": 1e-9})
    engine = DiscoveringEngine(config, noise=Noise(SeededEntropy(1)))
    push(engine, [Arrival(ms, "k0") for ms in range(0, 140_000, 100)])
    releases = engine.close()
    assert {one.spent["rho"] for one in releases} == {0.75}
    assert {one.guarantee["rho"] for one in releases} == {1.0}
    assert engine.spent.rho == 0.75
    assert engine.guarantee.rho == 1.0


def test_impossible_keys_are_rejected_record_by_record():
    engine = DiscoveringEngine(settings(first=["é"]))
    keys = ["é", "e\u0301", "x" * 201, "a\nb", "", None, 7]
    engine.push(np.arange(len(keys)), None, keys)
    assert engine.rejected == {"unknown_key": 2, "missing": 2, "undiscovered_key": 1}
    found = counts_of(engine.close())
    assert found["é", 0] == 2  # both spellings are one text


def test_positions_are_taken_once_also_while_they_wait():
    engine = DiscoveringEngine(settings())
    records = [Arrival(PERIOD_MS + 1, "k0"), Arrival(PERIOD_MS + 2, "k0")]
    for _ in range(3):
        push(engine, records)
    assert engine.rejected == {"duplicate": 4}
    assert searches_of(engine.close())[PERIOD_MS] == {"k0": 2}


def test_an_engine_that_is_over_takes_nothing():
    engine = DiscoveringEngine(settings())
    engine.abort()
    for action in (lambda: push(engine, [Arrival(1, "k0")]), lambda: engine.begin(0)):
        with pytest.raises(EngineClosed):
            action()


def test_records_of_open_windows_are_not_lost_silently(tmp_path, caplog):
    engine = DiscoveringEngine(settings(f"sqlite:{tmp_path / 'l.db'}", "broker"))
    engine.begin(0)
    push(engine, [Arrival(1, "k0", 1)])
    assert engine.close() == []
    assert "the records of those that are open are lost" in caplog.text


def test_a_run_that_stops_at_its_budget_says_so(tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    config = of_users(url, budget={"rho": 6 * EXACT, "delta": 2e-9, "exhausted": "stop"})
    engine = DiscoveringEngine(config)
    push(engine, [Arrival(ms, "k0") for ms in range(0, 140_000, 1000)], ids=["one"] * 140)
    with pytest.raises(BudgetExhausted):
        engine.close()


def test_other_engines_say_which_one_it_takes():
    config = settings()
    for maker in (KeyedEngine, Engine):
        with pytest.raises(ConfigError):
            maker(config)
    assert isinstance(open_engine(config), DiscoveringEngine)
    assert isinstance(fcstream.DiscoveringEngine.from_config, object)
    declared = settings().stream
    assert declared.keys.discover == "frequent"
    with pytest.raises(ConfigError, match="must be declared here"):
        open_engine(config, keys=["k0"])


def test_a_journal_of_all_parts_verifies(tmp_path):
    url = f"sqlite:{tmp_path / 'l.db'}"
    with DiscoveringEngine(settings(url)) as engine:
        push(engine, draw_records(5))
        engine.close()
    names = [reader.terms.stream for reader in each_reader(url)]
    assert "t/" in names
    assert len(names) > 3
    assert [row.kind for row in open_reader(url, "t/").rows()].count("setting") == 4  # the keys of each period


def test_keys_of_the_first_period_are_compared_in_the_normal_form_of_records():
    composed, decomposed = "Caf\u00e9", "Cafe\u0301"
    with DiscoveringEngine(settings(first=[decomposed])) as engine:
        push(engine, [Arrival(5_000, name, None) for name in (composed, decomposed)])
        assert engine.keys == (composed,)
        assert counts_of(engine.close())[composed, 0] == 2
    with pytest.raises(ConfigError, match="the one at 1 is not"):
        DiscoveringEngine(settings(first=[decomposed, composed]))
