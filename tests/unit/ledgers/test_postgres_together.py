"""Streams of one schema in one statement: the journals of one stream after the other, and few round trips."""

import contextlib
import threading
from dataclasses import replace

import pytest
from support.helpers import sample
from support.postgres import LOSS, TERMS

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.errors import LedgerDamaged, LedgerError
from fcstream.ledgers import joint_ledger, open_ledgers
from fcstream.ledgers.base import EpochState, Request, SealedRelease
from fcstream.ledgers.postgres import connection
from fcstream.testing import window

KEYS = ["a", "b", "c"]
STREAMS = [replace(TERMS, stream=f"s/{key}") for key in KEYS]
COUNT = {"kind": "count", "rho": 0.5, "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}
LIVE = {"clock": "broker", "lateness": None, "end": None}


@contextlib.contextmanager
def opened(postgres, streams=STREAMS):
    with contextlib.ExitStack() as stack:
        ledgers = open_ledgers(postgres.url, streams)
        for ledger in ledgers:
            stack.callback(ledger.close)
        yield ledgers


@pytest.fixture
def trips(monkeypatch):
    """How often anything was waited for that a server has to say."""
    waits, real = [], connection._BoundedConnection.wait

    def wait(self, *values, **options):
        waits.append(1)
        return real(self, *values, **options)

    monkeypatch.setattr(connection._BoundedConnection, "wait", wait)
    return waits


def ask(index, blocks=("b",), loss=LOSS):
    return Request(window(index), loss, blocks)


def test_calls_for_several_streams_take_effect_together_or_not_at_all(postgres, trips):
    with opened(postgres) as ledgers:
        joint = joint_ledger(ledgers)
        trips.clear()
        found = joint.charge_together([(ledger, [ask(0), ask(1)][: 1 + i % 2]) for i, ledger in enumerate(ledgers)])
        assert len(trips) == 1
        assert [[result.charge is not None for result in results] for results in found] == [[True], [True] * 2, [True]]
        joint.seal_together([(ledger, [SealedRelease(window(0), b"answer")], []) for ledger in ledgers[:2]])
        assert len(trips) == 2
        other = [SealedRelease(window(0), b"other")]
        with pytest.raises(LedgerError, match=r"window 0 is sealed in .*stream=s/b.*: its release is final"):
            joint.seal_together([(ledgers[2], other, []), (ledgers[1], other, [])])
        assert [ledger.unacknowledged() for ledger in ledgers] == [[(window(0), b"answer")]] * 2 + [[]]
        state = EpochState("", 0, 0, b"left")
        joint.seal_together([(ledgers[2], other, [state]), (ledgers[1], [SealedRelease(window(1), b"one")], [])])
        assert ledgers[2].epoch_states("", 0) == [(0, b"left")]
        trips.clear()
        found = joint.charge_together([(ledgers[1], [ask(2)])], [(ledger, [window(0)]) for ledger in ledgers])
        assert len(trips) == 1
        assert [result.charge is not None for results in found for result in results] == [False]  # two fill the block
        joint.acknowledge_together([(ledgers[1], [window(1), window(7)]), (ledgers[0], [])])
        assert [ledger.summary().get("acknowledged") for ledger in ledgers] == [1, 2, 1]
        trips.clear()
        facts = [(ledgers[0], "x", "1"), (ledgers[1], "x", "2"), (ledgers[1], "y", "3")]
        assert joint.keep_together(facts) == ["1", "1", "3"]
        assert len(trips) == 1
        assert [ledger.verify() for ledger in ledgers] == [4, 8, 3]
        ledgers[1].close()
        with pytest.raises(LedgerError, match="is closed"):
            joint.charge_together([(ledger, [ask(2)]) for ledger in ledgers[:2]])
        assert joint.charge_together([(ledgers[0], [])]) == [[]]


def answer(url, is_joint):
    config = sample(
        stream={"key": "site", "keys": KEYS}, window=LIVE, release=COUNT, budget={"rho": 1.0}, ledger={"url": url}
    )
    engine = KeyedEngine(config, noise=Noise(SeededEntropy(1)))
    assert engine._joint is not None
    if not is_joint:
        engine._joint = None  # the slow twin: key by key
    engine.begin(0)
    found = []
    for index, until in enumerate((1, 2, 4)):
        times = [10_000 * index + i for i in range(30)]
        engine.push(times, [[0.5, 0.5]] * 30, [KEYS[i % 3] for i in range(30)], arrival_ms=times)
        found += engine.advance(10_000 * until + 1)
    engine.acknowledge()
    journals = [[row[1:] for row in part.ledger.rows()] for part in engine.parts]
    for part in engine.parts:
        part.ledger.verify()
    engine.abort()
    return [release.to_bytes() for release in found], journals


def test_journals_of_keys_are_those_of_one_after_the_other(postgres):
    joint = answer(postgres.url, is_joint=True)
    postgres.sql("DROP SCHEMA {s} CASCADE")
    alone = answer(postgres.url, is_joint=False)
    assert joint == alone
    assert len(joint[0]) == 12


def test_opening_costs_as_much_for_each_key_however_many_there_are(postgres, trips):
    """Each key looked at all others: 1,000 took five minutes."""
    for _ in ("new", "again"):
        counts = []
        for number in (5, 10, 15):
            streams = [replace(TERMS, stream=f"of{number}/{i}") for i in range(number)]
            trips.clear()
            with opened(postgres, streams) as ledgers:
                counts.append(len(trips))
                assert [ledger.terms.stream for ledger in ledgers] == [each.stream for each in streams]
        assert 0 < counts[1] - counts[0] <= 5 * 13
        assert abs(counts[2] - 2 * counts[1] + counts[0]) < 10  # statements that are prepared at their second use


def test_a_window_costs_two_round_trips(postgres, trips):
    """One charges it and acknowledges the window before, one seals it; of all keys together just as many."""
    engine = Engine(sample(window=LIVE, release=COUNT, ledger={"url": postgres.url}))
    keyed = KeyedEngine(
        sample(
            stream={"name": "k", "key": "site", "keys": KEYS}, window=LIVE, release=COUNT, ledger={"url": postgres.url}
        )
    )
    for each, releases in ((engine, 1), (keyed, 3)):
        each.advance(1)
        for index in range(1, 4):
            trips.clear()
            assert len(each.advance(10_000 * index + 1)) == releases
            assert len(trips) == 2
        trips.clear()
        assert each.advance(35_000) == []  # nothing is due: the last window is acknowledged
        assert len(trips) == 1
        each.abort()
    states = postgres.sql("SELECT DISTINCT state, count(*) FROM {s}.windows GROUP BY stream, state")
    assert states == [("acknowledged", 3)]


def test_what_could_not_be_charged_is_acknowledged_by_the_next_call(postgres):
    engine = Engine(sample(window=LIVE, release=COUNT, ledger={"url": postgres.url}))
    engine.advance(1)
    engine.advance(10_001)
    postgres.sql("ALTER TABLE {s}.journal RENAME TO away")
    with pytest.raises(LedgerError):
        engine.advance(20_001)
    postgres.sql("ALTER TABLE {s}.away RENAME TO journal")
    assert len(engine.advance(20_001)) == 1
    assert [row.kind for row in engine.ledger.rows()][1:] == ["charge", "seal", "acknowledge", "charge", "seal"]
    engine.abort()


def test_no_row_is_missed_that_a_crash_of_the_server_may_take_back(postgres):
    """Acknowledgments wait for no disk, so they are not among what must be there at the next call."""
    with opened(postgres, STREAMS[:1]) as (ledger,):
        ledger.charge([ask(0)])
        ledger.seal([SealedRelease(window(0), b"answer")])
        kept = postgres.sql("SELECT * FROM {s}.streams"), postgres.sql("SELECT * FROM {s}.windows")
        ledger.acknowledge([window(0)])
        with opened(postgres, STREAMS[:1]) as (later,):
            for table, rows in zip(("streams", "windows"), kept, strict=True):  # as the disk may have it
                postgres.sql(f"DELETE FROM {{s}}.{table}")
                places = ", ".join(["%s"] * len(rows[0]))
                postgres.sql(f"INSERT INTO {{s}}.{table} VALUES ({places})", *rows[0])
            postgres.sql("DELETE FROM {s}.journal WHERE kind = 'acknowledge'")
            for each in (ledger, later):
                assert each.unacknowledged() == [(window(0), b"answer")]
                assert each.verify() == 2
            later.acknowledge([window(0)])
            ledger.charge([ask(1, ("c",))])
            postgres.sql("DELETE FROM {s}.journal WHERE kind = 'charge' AND open_ms > 0")
            with pytest.raises(LedgerDamaged, match="has lost journal row 4"):
                ledger.spent()


def test_processes_that_ask_for_the_same_streams_in_another_order(postgres):
    """They wait for each other, and no two of them for ever: every window is charged once and sealed once."""
    errors, sealed = [], []
    terms = [replace(each, capacity=PrivacyLoss.cap(100, 1e-3)) for each in STREAMS]

    def race(order):
        try:
            with opened(postgres, terms) as ledgers:
                ledgers = ledgers[::order]
                joint = joint_ledger(ledgers)
                for index in range(15):
                    found = joint.charge_together([(ledger, [ask(index)]) for ledger in ledgers])
                    drawn = [ledger for ledger, (result,) in zip(ledgers, found, strict=True) if result.charge]
                    with contextlib.suppress(LedgerError):
                        joint.seal_together([(each, [SealedRelease(window(index), b"x")], []) for each in drawn])
                        sealed.extend(each.terms.stream for each in drawn)
        except BaseException as error:
            errors.append(error)

    with opened(postgres, terms):
        threads = [threading.Thread(target=race, args=(order,)) for order in (1, -1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert sorted(sealed) == sorted([each.stream for each in terms] * 15)
    with opened(postgres, terms) as ledgers:
        for ledger in ledgers:
            ledger.verify()
            assert ledger.spent("b") == LOSS * 15
