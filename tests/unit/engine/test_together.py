"""Windows of all keys in one transaction: the same journals as key by key, no draw before all charges are durable."""

import gc
import sqlite3
import weakref

import numpy as np
import pytest
from support.helpers import rows, sample

from fcstream import KeyedEngine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.engine import together
from fcstream.errors import LedgerError
from fcstream.ledgers import open_reader
from fcstream.ledgers.sqlite.ledger import SQLiteLedger

KEYS = ["paris", "rome", "oslo"]
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}
LIVE = {"clock": "broker", "lateness": None, "end": None}


def config_in(folder, unit="event", clock="broker", **sections):
    stream = {"key": "site", "keys": KEYS, "unit": unit} | ({"user": "who"} if unit == "user" else {})
    sections = {"release": COUNT | {"rho": 0.5}, "budget": {"rho": 18.0}} | sections
    window = (LIVE if clock == "broker" else {}) | sections.pop("window", {})
    return Config.from_mapping(
        sample(stream=stream, window=window, ledger={"url": f"sqlite:{folder / 'l.db'}"}, **sections)
    )


def journals(config):
    """The journal of each key, its releases, and what its blocks have spent."""
    found = {}
    for key in KEYS:
        reader = open_reader(config.ledger.url, f"t/{key}")
        found[key] = [row[1:] for row in reader.rows()], reader.spent(), reader.summary()
        reader.verify()
        reader.close()
    return found


def answer(config, is_joint, seed=1):
    """Some windows one at a time, then several at once, then none; returns what was published."""
    engine = KeyedEngine(config, noise=Noise(SeededEntropy(seed)))
    assert engine._joint is not None
    if not is_joint:
        engine._joint = None  # the slow twin: key by key
    rng, found = np.random.default_rng(seed), []
    live = config.window.clock == "broker"
    engine.begin(0)
    for first, last in ((0, 1), (1, 2), (2, 5), (5, 5)):
        n = 60 * (last - first)
        times = np.sort(rng.integers(10_000 * first, 10_000 * last, n)) if n else np.empty(0, np.int64)
        keys = rng.choice(KEYS, n).tolist()
        ids = {"ids": [f"u{i}" for i in rng.integers(0, 9, n)]} if config.stream.unit == "user" else {}
        found += engine.push(times, rows(n, first), keys, arrival_ms=times if live else None, **ids)
        found += engine.advance(10_000 * last + 1)
    found += engine.close()
    engine.acknowledge()
    return [release.to_bytes() for release in found]


def test_no_garbage_is_collected_while_keys_are_closed(tmp_path, monkeypatch):
    """What a close makes lives to its end: the collector would look at it, and at all else, again and again."""
    engine, seen = KeyedEngine(config_in(tmp_path)), []
    real = together.close_together
    monkeypatch.setattr(
        "fcstream.engine.keyed.close_together", lambda *given: (seen.append(gc.isenabled()), real(*given))[1]
    )
    engine.begin(0)
    assert len(engine.advance(10_001)) == len(KEYS)
    assert (seen, gc.isenabled()) == ([False], True)
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "clock", "sections"),
    [
        ("event", "broker", {}),
        ("event", "eof", {}),
        ("event", "broker", {"budget": {"total_rho": 6.0}}),  # which has no room for the last windows
        ("event", "broker", {"window": {"slide": "5s"}}),
        ("stream", "broker", {}),
        ("stream", "eof", {}),
        ("user", "broker", {}),
        ("event", "broker", {"release": {"rho": 0.5, "delta": 1e-9, "size_hint": 20, "method": "tracking"}}),
    ],
)
def test_journals_are_those_of_one_key_after_the_other(unit, clock, sections, tmp_path, monkeypatch):
    """Windows of several keys share transactions, also where there is only room for some; their order stays."""
    found = {}
    for name, is_joint, most in (("joint", True, 4096), ("few", True, 2), ("alone", False, 4096)):
        monkeypatch.setattr(together, "MAX_WINDOWS", most)
        (tmp_path / name).mkdir()
        config = config_in(tmp_path / name, unit, clock, **sections)
        found[name] = answer(config, is_joint), journals(config)
    assert found["joint"] == found["alone"]
    assert found["few"][0] == found["alone"][0]
    for key, (steps, *rest) in found["few"][1].items():  # charges and seals are in smaller groups
        assert (sorted(steps), *rest) == (sorted(found["alone"][1][key][0]), *found["alone"][1][key][1:])
    assert len(found["joint"][0]) >= 15


class Watched(Noise):
    """Says at each draw which keys' charges another connection could read from the disk."""

    def __init__(self, seen):
        super().__init__(SeededEntropy(1))
        self._seen = seen

    def discrete_gaussian(self, variance, size):
        self._seen()
        return super().discrete_gaussian(variance, size)


def test_no_key_is_drawn_before_all_are_charged_durably(tmp_path):
    config, draws = config_in(tmp_path), []

    def seen():
        db = engine.parts[0].ledger.place.db
        assert not db.in_transaction
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # each commit waits for the disk
        draws.append([part.ledger.summary().get("charged") for part in engine.parts])

    engine = KeyedEngine(config, noise=Watched(seen))
    engine.push([1, 2], rows(2), ["paris", "rome"], arrival_ms=2)
    assert len(engine.advance(10_001)) == 3
    assert draws == [[1, 1, 1]] * 3
    assert [part.ledger.summary().get("sealed") for part in engine.parts] == [1, 1, 1]
    engine.acknowledge()
    assert [part.ledger.summary().get("acknowledged") for part in engine.parts] == [1, 1, 1]
    engine.advance(20_001)  # a charge after an acknowledgment waits for the disk again
    assert len(draws) == 6
    engine.abort()


def test_a_key_that_fails_to_draw_keeps_no_other_from_its_release(tmp_path):
    config = config_in(tmp_path)
    engine = KeyedEngine(config)
    engine.push([1, 2], rows(2), ["paris", "rome"], arrival_ms=2)
    part = engine.parts[1]
    good, part._closer._noise = part._closer._noise, None
    with pytest.raises(AttributeError):
        engine.advance(10_001)
    assert [each.next_index for each in engine.parts] == [1, 0, 1]
    part._closer._noise = good
    found = engine.advance(10_001)
    assert sorted((release.key, release.reason) for release in found) == [(key, None) for key in sorted(KEYS)]
    engine.acknowledge()
    assert {each.spent for each in engine.parts} == {PrivacyLoss.charge(0.5)}
    engine.abort()


def test_a_generator_gives_what_was_sealed_before_it_raises(tmp_path):
    engine = KeyedEngine(config_in(tmp_path))
    engine.begin(0)
    engine.parts[0]._closer._noise = None
    closing = engine.closing(10_001)
    assert [release.key for release in next(closing)] == ["rome", "oslo"]
    engine.acknowledge()
    with pytest.raises(AttributeError):
        next(closing)
    engine.abort()


def test_seals_that_fail_together_leave_all_windows_open(tmp_path, monkeypatch):
    """Each is drawn once more under its charge, and given up after that, as after a crash."""
    engine = KeyedEngine(config_in(tmp_path))
    engine.begin(0)
    real = SQLiteLedger._seal

    def fail(self, where, answer):
        if self.terms.stream == "t/oslo":
            raise LedgerError("the disk is full")
        real(self, where, answer)

    monkeypatch.setattr(SQLiteLedger, "_seal", fail)
    for _ in range(2):
        with pytest.raises(LedgerError, match="full"):
            engine.advance(10_001)
        assert {part.next_index for part in engine.parts} == {0}
        assert all(part.ledger.last_sealed() is None for part in engine.parts)
    monkeypatch.setattr(SQLiteLedger, "_seal", real)
    found = engine.advance(10_001)
    assert [(release.key, release.reason) for release in found] == [(key, "interrupted") for key in KEYS]
    assert {part.spent for part in engine.parts} == {PrivacyLoss.charge(0.5)}
    engine.acknowledge()
    engine.abort()


def test_charges_that_fail_together_charge_nobody(tmp_path, monkeypatch):
    engine = KeyedEngine(config_in(tmp_path, "user", release=COUNT | {"rho": 0.5}))
    engine.begin(0)
    engine.push([1], rows(1), ["paris"], ids=["ann"], arrival_ms=2)
    real = SQLiteLedger._charge

    def fail(self, where, request):
        if self.terms.stream == "t/oslo":
            raise sqlite3.OperationalError("disk I/O error")
        return real(self, where, request)

    monkeypatch.setattr(SQLiteLedger, "_charge", fail)
    with pytest.raises(LedgerError):
        engine.advance(10_001)
    assert {part.spent for part in engine.parts} == {PrivacyLoss()}
    monkeypatch.setattr(SQLiteLedger, "_charge", real)
    assert {release.reason for release in engine.advance(10_001)} == {None}
    engine.acknowledge()
    assert engine.parts[0].ledger.verify() > 0
    engine.abort()


def test_an_error_that_was_raised_is_let_go_at_once():
    class Held(Exception):
        pass

    def fails():
        errors = [Held("one"), Held("another")]
        together.raise_first(errors)

    gc.disable()
    try:
        with pytest.raises(Held, match="one") as caught:
            fails()
        gone = weakref.ref(caught.value)
        del caught
        assert gone() is None
    finally:
        gc.enable()
