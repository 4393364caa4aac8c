"""Streams in parts: every key answers as if it were alone, and what all parts tell together stays within the budget."""

import json
import secrets
import subprocess
import sys
import zlib
from collections import Counter
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import rows, sample, service
from support.postgres import URL as POSTGRES

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.connectors.files import LineSource
from fcstream.connectors.partitioners import murmur2, partition_of
from fcstream.engine import together
from fcstream.errors import ConfigError, EngineClosed, LedgerError, LedgerMismatch
from fcstream.formats.batch import Batch, Rejection, Schema
from fcstream.formats.plain_columns import as_objects
from fcstream.ledgers import open_reader
from fcstream.ledgers.memory import MemoryLedger
from fcstream.releases.base import Release

KEYS = ["paris", "rome", "oslo"]
COUNT = {"kind": "count", "method": None, "spread": None, "radius": None, "delta": None, "size_hint": None}


def keyed(unit="event", keys=KEYS, **sections):
    stream = {"key": "site", "keys": list(keys), "unit": unit} | sections.pop("stream", {})
    return Config.from_mapping(sample(stream=stream, **sections))


def memory(config, keys=KEYS):
    job = config.job
    return {key: MemoryLedger(job.part(key).terms) for key in keys}


def test_every_part_answers_as_if_it_were_alone(tmp_path):
    """The same noise words, the same records: one engine with keys, and one engine for each key's records."""
    config = keyed(ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    rng = np.random.default_rng(1)
    n = 3000
    times, points = rng.integers(0, 5 * 10_000, n), rows(n)
    points[::50] += 7.0
    labels = rng.choice([*KEYS, "nowhere"], n, p=[0.5, 0.3, 0.1, 0.1])
    rejected = []
    engine = KeyedEngine(config, on_rejection=rejected.extend)
    for key, part in zip(KEYS, engine.parts, strict=True):
        part._closer._noise = Noise(SeededEntropy(KEYS.index(key)))
    for start in range(0, n, 700):
        cut = slice(start, start + 700)
        assert engine.push(times[cut], points[cut], labels[cut].tolist(), positions=np.arange(n)[cut]) == []
    together = engine.close()
    engine.acknowledge()
    assert engine.rejected["unknown_key"] == np.count_nonzero(labels == "nowhere")
    assert {r.position for r in rejected if r.reason == "unknown_key"} == set(np.flatnonzero(labels == "nowhere"))
    assert {r.field for r in rejected if r.reason == "unknown_key"} == {"site"}
    alone = []
    for i, key in enumerate(KEYS):
        job = config.job
        ledger = MemoryLedger(job.part(key).terms)
        one = Engine(config, key=key, ledger=ledger, noise=Noise(SeededEntropy(i)))
        mine = labels == key
        one.push(times[mine], points[mine], positions=np.flatnonzero(mine))
        alone += one.close()
    assert {r.ledger for r in alone} == {"memory"}
    assert [r.to_bytes() for r in together] == [replace(r, ledger=None).to_bytes() for r in alone]
    windows = config.job.schedule.count
    assert len(together) == 3 * windows
    assert {(r.stream, r.key) for r in together} == {(f"{config.stream.name}/{key}", key) for key in KEYS}
    assert any(r.status == "released" for r in together if r.key == "paris")
    assert Release.from_bytes(together[0].to_bytes()) == together[0]
    for key in KEYS:
        reader = open_reader(f"sqlite:{tmp_path / 'l.db'}", f"{config.stream.name}/{key}")
        assert reader.summary()["acknowledged"] == windows
        reader.close()


def test_a_crash_between_two_parts_charges_and_publishes_each_window_once(tmp_path, monkeypatch):
    monkeypatch.setattr(together, "MAX_WINDOWS", 6)  # one key's
    config = keyed(release=COUNT, ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    first = KeyedEngine(config)
    first.push([1000, 2000], rows(2), ["paris", "rome"], positions=[0, 1])
    groups = first.closing()
    paris = next(groups)  # Paris is sealed, nobody else
    first.abort()
    second = KeyedEngine(config)
    assert [r.to_bytes() for r in second.unpublished()] == [r.to_bytes() for r in paris]
    second.acknowledge()
    opens = {part.job.key: part.next_open_ms for part in second.parts}
    assert second.next_open_ms == opens["rome"] < opens["paris"]
    second.push([1000, 2000], rows(2), ["paris", "rome"], positions=[0, 1])  # replayed
    assert second.replayed == 1
    rest = [release for group in second.closing() for release in group]
    assert {release.key for release in rest} == {"rome", "oslo"}
    assert next(r for r in rest if r.key == "rome").count in range(-30, 32)
    second.acknowledge()
    second.abort()


@pytest.mark.parametrize(("unit", "kind"), [("event", "event"), ("stream", "stream"), ("user", "user")])
def test_the_budget_is_divided_where_somebody_may_be_in_several_parts(unit, kind):
    release = COUNT | {"rho": 0.01}
    stream = {"user": "who"} if unit == "user" else {}
    budget = {"rho": 0.9, "total_rho": 3.0}
    job = keyed(unit, release=release, budget=budget, stream=stream).job
    share = 1 if unit == "event" else 3
    assert job.terms.capacity == PrivacyLoss(900_000_000 // share, job.terms.capacity.delta_femto)
    assert job.terms.total.rho_nano == 1_000_000_000  # of a record set that may hold one in every window of each part
    told = keyed(unit, release=release, budget=budget, stream=stream | {"keys_per_user": 2}).job
    assert told.terms.capacity.rho_nano == 900_000_000 // (1 if unit == "event" else 2)
    assert told.terms.total.rho_nano == 1_500_000_000
    odd = keyed(unit, keys=[str(i) for i in range(7)], release=release, budget=budget, stream=stream).job
    assert odd.terms.capacity.rho_nano * (1 if unit == "event" else 7) <= 900_000_000  # never rounded up


def test_users_of_several_parts_stay_within_the_budget_together(tmp_path):
    """A user with records under every key: the losses of all parts add up to no more than the cap."""
    config = keyed(
        "user", release=COUNT | {"rho": 0.01}, budget={"rho": 0.06, "delta": 0.0}, stream={"user": "who"},
        ledger={"url": f"sqlite:{tmp_path / 'l.db'}"},
    )  # fmt: skip
    engine = KeyedEngine(config)
    for w in range(4):
        times = np.full(3, w * 10_000 + 5)
        engine.push(times, rows(3), KEYS, ids=["ann"] * 3)
    releases = engine.close()
    engine.acknowledge()
    cost = 0
    for key in KEYS:
        reader = open_reader(f"sqlite:{tmp_path / 'l.db'}", f"{config.stream.name}/{key}")
        cost += reader.spent("user").rho_nano
        reader.close()
    assert cost == 60_000_000
    assert len(releases) == 3 * config.job.schedule.count


def test_adding_a_key_leaves_the_others_as_they_are(tmp_path):
    url = {"url": f"sqlite:{tmp_path / 'l.db'}"}
    small, large = keyed(release=COUNT, ledger=url), keyed(keys=[*KEYS, "bern"], release=COUNT, ledger=url)
    with KeyedEngine(small) as engine:
        engine.close()
    with KeyedEngine(large) as engine:
        assert {release.key for release in engine.close()} == {"bern"}
    # With another unit the shares get smaller, for all and for ever, as long as nobody has spent more.
    other = {"release": COUNT, "budget": {"rho": 90.0}, "ledger": {"url": f"sqlite:{tmp_path / 'm.db'}"}}
    with KeyedEngine(keyed("stream", **other)) as engine:
        engine.close()
    KeyedEngine(keyed("stream", keys=[*KEYS, "bern"], **other), keys=["bern"]).abort()
    caps = {part: open_reader(other["ledger"]["url"], f"t/{part}").terms.capacity for part in [*KEYS, "bern"]}
    assert set(caps.values()) == {PrivacyLoss.cap("22.5", 1e-6 / 4)}
    with pytest.raises(LedgerMismatch, match="a cap that was promised cannot grow"):
        KeyedEngine(keyed("stream", **other))
    with pytest.raises(LedgerMismatch, match=r"has spent \(rho=6"):
        KeyedEngine(keyed("stream", keys=[*KEYS, "bern", *"abcdefghijkl"], **other))


@pytest.mark.parametrize("server", ["sqlite", "postgresql"])
def test_a_key_that_replaces_another_gets_no_new_budget(tmp_path, server):
    """What was promised for all keys together would be spent once more."""
    url = f"sqlite:{tmp_path / 'l.db'}"
    if server == "postgresql":
        psycopg = pytest.importorskip("psycopg")
        db = service("PostgreSQL", lambda: psycopg.connect(POSTGRES, autocommit=True))
        schema = f"fcstream_test_{secrets.token_hex(6)}"
        url = f"{POSTGRES}?schema={schema}"
    sections = {"release": COUNT, "budget": {"rho": 90.0}, "ledger": {"url": url}}
    with KeyedEngine(keyed("stream", **sections)) as engine:
        engine.close()
    with pytest.raises(ConfigError, match=r"stream\.name: must not contain '/'"):
        Config.from_mapping(sample(stream={"name": f"{keyed().stream.name}/x"}, release=COUNT))
    renamed = ["paris", "rome", "bern"]
    for keys in (["paris"], None):
        with pytest.raises(LedgerMismatch, match=r"1 keys .* such as 't/oslo'"):
            KeyedEngine(keyed("stream", keys=renamed, **sections), keys=keys)
    KeyedEngine(keyed("stream", **sections)).abort()  # nothing was charged for Bern
    promised = keyed("stream", keys=renamed, stream={"keys_per_user": 3}, **sections)
    KeyedEngine(promised).abort()
    if server == "postgresql":
        db.execute(f"DROP SCHEMA {schema} CASCADE")
        db.close()


@pytest.mark.parametrize(
    ("stream", "what"),
    [
        ({"keys": None}, "stream.keys"),
        ({"keys": []}, "stream.keys"),
        ({"keys": ["a", "a"]}, "at 1 is not"),
        ({"keys": ["a", ""]}, "at 1 is not"),
        ({"keys": ["a\n"]}, "at 0 is not"),
        ({"keys": ["x" * 201]}, "at 0 is not"),
        ({"key": None}, "stream.keys: belongs to"),
        ({"key": None, "keys": None, "keys_per_user": 1}, "stream.keys_per_user: belongs to"),
        ({"keys_per_user": 0}, r"\[1, 3\]"),
        ({"keys_per_user": 4}, r"\[1, 3\]"),
        ({"key": "a"}, "must be a field of its own"),
        ({"key": "ts_ms"}, "must be a field of its own"),
        ({"key": "who", "user": "who", "unit": "user"}, "another field than the user's"),
    ],
)
def test_what_keys_may_be(stream, what):
    with pytest.raises(ConfigError, match=what):
        keyed(stream=stream)


def test_wrong_use(tmp_path):
    config = keyed(release=COUNT, ledger={"url": "memory:"})
    with pytest.raises(ConfigError, match="KeyedEngine"):
        Engine(config)
    with pytest.raises(ConfigError, match=r"stream\.keys"):
        Engine(config, key="nowhere")
    with pytest.raises(ConfigError, match=r"stream\.key"):
        KeyedEngine(sample(ledger={"url": "memory:"}))
    with pytest.raises(ConfigError, match=r"some of `stream\.keys`"):
        KeyedEngine(config, keys=["nowhere"])
    engine = KeyedEngine(config, ledgers=memory(config))
    with pytest.raises(ConfigError, match="keys"):
        engine.push([1, 2], rows(2), ["paris"])
    engine.push([1, 2, 3, 4], rows(4), ["paris", None, 7, True], positions=[0, 1, 2, 3])
    assert engine.rejected == {"missing": 1, "unknown_key": 2}
    engine.push([1], rows(1), ["rome"], positions=[0])
    assert engine.rejected["duplicate"] == 1
    assert engine.drain_rejected() == {"missing": 1, "unknown_key": 2, "duplicate": 1}
    assert engine.rejected == {}
    engine.abort()
    with pytest.raises(EngineClosed):
        engine.push([1], rows(1), ["rome"])


class Unclosable(MemoryLedger):
    def close(self):
        raise self.error


def leave(engine):
    with engine:
        pass


def leave_after_error(engine):
    with engine:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (KeyedEngine.abort, "no paris"),
        (leave, "no paris"),
        (lambda engine: engine.push([1], rows(1), ["rome"]), "division by zero"),
        (leave_after_error, ""),
    ],
)
def test_the_first_of_several_errors_is_raised_and_tells_the_others(call, first, monkeypatch):
    config = keyed(release=COUNT)
    ledgers = {key: Unclosable(config.job.part(key).terms) for key in KEYS}
    for key, ledger in ledgers.items():
        ledger.error = LedgerError(f"no {key}")
    engine = KeyedEngine(config, ledgers=ledgers)
    monkeypatch.setattr(Engine, "take_counted", lambda *_: 1 / 0)
    with pytest.raises((LedgerError, ZeroDivisionError)) as raised:
        call(engine)
    assert str(raised.value) == first
    others = [f"no {key}" for key in KEYS if first != f"no {key}"]
    assert raised.value.__notes__ == [f"Another key failed too: LedgerError: {other}" for other in others]


def test_an_interrupt_comes_before_other_errors():
    config = keyed(release=COUNT)
    ledgers = {key: Unclosable(config.job.part(key).terms) for key in KEYS}
    for ledger in ledgers.values():
        ledger.error = LedgerError("no")
    ledgers["oslo"].error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as raised:
        KeyedEngine(config, ledgers=ledgers).abort()
    assert len(raised.value.__notes__) == 2


def test_a_part_that_fails_closes_all(monkeypatch):
    config = keyed(release=COUNT)
    engine = KeyedEngine(config, ledgers=memory(config))
    broken = engine._engines[1]

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(broken._records.counter, "add", fail)
    with pytest.raises(MemoryError):
        engine.push([1, 2], rows(2), ["paris", "rome"])
    with pytest.raises(EngineClosed):
        engine.push([1], rows(1), ["paris"])


def test_what_a_part_answered_is_not_lost_when_the_next_one_fails(tmp_path, monkeypatch):
    """The next call would acknowledge releases that nobody was given."""
    window = {"clock": "broker", "lateness": None}
    config = keyed(release=COUNT, window=window, ledger={"url": f"sqlite:{tmp_path / 'l.db'}"})
    engine = KeyedEngine(config)
    engine._joint = None  # as with a ledger that takes one stream after the other
    engine.push([1], rows(1), ["paris"], arrival_ms=1)
    broken, fails = engine.parts[1]._ledger, [True]

    def charge(requests, real=broken.charge):
        if fails.pop():
            fails.append(False)
            raise LedgerError("the ledger is away")
        fails.append(False)
        return real(requests)

    monkeypatch.setattr(broken, "charge", charge)
    with pytest.raises(LedgerError, match="away"):
        engine.advance(20_000)
    first = engine.parts[0]._ledger.releases()
    assert len(first) == 1  # sealed by Paris
    found = engine.advance(20_000)
    assert [release.key for release in found] == KEYS
    assert found[0].to_bytes() == first[0]
    assert engine.parts[0]._ledger.unacknowledged() != []
    engine.acknowledge()
    assert engine.unpublished() == []
    engine.abort()


@pytest.mark.parametrize("unit", ["event", "stream"])
@pytest.mark.parametrize("names", [["rome", "oslo"], ["rome", "nowhere"]])
def test_what_a_decoder_rejected_is_told_once(unit, names):
    """Whether all other records have keys that are answered, or not."""
    rejected = []
    engine = KeyedEngine(keyed(unit, keys=["rome", "oslo"], ledger={"url": "memory:"}), on_rejection=rejected.extend)
    broken = [Rejection("broken_record", 1)]
    engine.take(Batch(np.array([1, 2]), rows(2), np.array([0, 2]), broken, keys=np.array(names, object)))
    engine.close()
    strange = {"unknown_key": 1} if "nowhere" in names else {}
    assert Counter(each.reason for each in rejected) == {"broken_record": 1, **strange}
    assert {reason: count for reason, count in engine.rejected.items() if count} == {"broken_record": 1, **strange}


def test_keys_in_every_format(tmp_path):
    schema = Schema("ts_ms", "ms", ("a", "b"), None, "site")
    lines = [
        {"ts_ms": 1, "a": 1.0, "b": 2.0, "site": "rome"},
        {"ts_ms": 2, "a": 1.0, "b": 2.0, "site": 12},
        {"ts_ms": 3, "a": 1.0, "b": 2.0},
        {"ts_ms": 4, "a": 1.0, "b": 2.0, "site": [1]},
        {"ts_ms": 5, "a": 1.0, "b": 2.0, "site": "oslo"},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with closing(LineSource.jsonl(str(path), schema)) as source:
        batch = source.poll(100)
    assert batch.keys.tolist() == ["rome", "12", "oslo"]
    assert [(r.reason, r.position, r.field) for r in batch.rejections] == [
        ("missing", 2, "site"),
        ("unknown_key", 3, "site"),
    ]
    path = tmp_path / "r.csv"
    path.write_text("site,ts_ms,b,a\nrome,1,2,1\n,2,2,1\noslo,3,2,1\n")
    with closing(LineSource.csv(str(path), schema)) as source:
        batch = source.poll(100)
    assert batch.keys.tolist() == ["rome", "oslo"]
    assert [(r.reason, r.field) for r in batch.rejections] == [("missing", "site")]
    pyarrow = pytest.importorskip("pyarrow")
    from fcstream.formats.payloads import decoder_for

    table = pyarrow.table({"ts_ms": [1, 2, 3], "a": [1.0] * 3, "b": [2.0] * 3, "site": ["rome", None, "oslo"]})
    body = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(body, table.schema) as writer:
        writer.write_table(table)
    batch = decoder_for("arrow", schema).decode([body.getvalue().to_pybytes()], 0)
    assert batch.keys.tolist() == ["rome", "oslo"]
    assert [r.reason for r in batch.rejections] == ["missing"]
    with pytest.raises(ConfigError, match="keys"):
        decoder_for("floats", schema)


@pytest.mark.slow
def test_the_command(tmp_path):
    """A file with keys, from the command line, twice: the second run finds everything answered."""
    rng = np.random.default_rng(3)
    with open(tmp_path / "r.jsonl", "w") as file:
        for i in range(4000):
            site = [*KEYS, "nowhere"][int(rng.integers(4))]
            a, b = 20.5 + 0.3 * rng.normal(), 49 + 0.6 * rng.normal()
            file.write(json.dumps({"ts_ms": i * 14, "a": a, "b": b, "site": site}) + "\n")
    mapping = sample(stream={"key": "site", "keys": KEYS})
    lines = []
    for name, section in mapping.items():
        for one in section if isinstance(section, list) else [section]:
            lines.append(f"[[{name}]]" if isinstance(section, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in one.items()]
    (tmp_path / "c.toml").write_text("\n".join(lines))
    words = [sys.executable, "-m", "fcstream", "run", "c.toml"]
    words += ["--source", "jsonl:r.jsonl", "--sink", "jsonl:out.jsonl", "--ledger", "sqlite:l.db"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "unknown_key" in done.stderr
    out = (tmp_path / "out.jsonl").read_bytes()
    found = [json.loads(line) for line in out.splitlines()]
    assert {line["key"] for line in found} == set(KEYS)
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{len(found)} windows were answered by an earlier run" in done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == out
    # A ledger that is gone while the sink is full is found out for parts too.
    for file in tmp_path.glob("l.db*"):
        file.unlink()
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode != 0
    assert "the ledger was lost" in done.stderr


def test_partitions_are_the_ones_producers_choose():
    # Java's own test vectors of org.apache.kafka.common.utils.Utils.murmur2
    vectors = {
        b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }  # fmt: skip
    for data, number in vectors.items():
        assert murmur2(data) == number % 2**32
    assert partition_of("murmur2", "foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10
    assert partition_of("crc32", "foobar", 10) == zlib.crc32(b"foobar") % 10


def test_records_by_another_partition_than_their_keys_are_left_out():
    config = keyed(release=COUNT)
    engine = KeyedEngine(config, keys=["paris", "rome"], ledgers=memory(config, ["paris", "rome"]))
    assert engine.keys == ("paris", "rome")
    keys = as_objects(["paris", "rome", "oslo", "paris"])
    engine.take(Batch(np.arange(4), rows(4), np.arange(4), keys=keys), assigned_keys=["paris"])
    assert engine.rejected == {"unknown_key": 2}


def test_every_place_tells_the_guarantee_of_a_person_and_the_share_of_a_key(tmp_path):
    """Three of five places called the share of one key the guarantee for ever."""
    from click.testing import CliRunner

    from fcstream.cli import main
    from fcstream.deployment.facts import collect
    from fcstream.planning.plan import plan
    from fcstream.plots.drawing import _guarantee
    from fcstream.reporting.budget import Report
    from fcstream.reporting.series import read_all
    from fcstream.service.batch import Summary
    from fcstream.service.metrics import _standings

    person, share = {"rho": 1.0, "delta": 0.0}, {"rho": 0.25, "delta": 0.0}
    url, budget = f"sqlite:{tmp_path / 'l.db'}", {"rho": 1.0, "delta": 0.0, "exhausted": "refuse"}
    config = keyed(
        "user",
        ("a", "b", "c", "d"),
        release=COUNT | {"rho": 0.25},
        budget=budget,
        stream={"user": "id"},
        ledger={"url": url},
    )
    with closing(KeyedEngine(config, noise=Noise(SeededEntropy(1)))) as engine:
        assert (engine.guarantee.rho, engine.job.terms.key_share.rho) == (1.0, 0.25)
        found = engine.close()
        assert [(one.guarantee, one.key_share) for one in found] == [(person, share)] * len(found)
        assert {Release.from_bytes(one.to_bytes()).key_share["rho"] for one in found} == {0.25}
        gauges = [_standings(part) for part in engine.parts]
        assert {(gauge.guarantee.rho, gauge.cap.rho) for (gauge,) in gauges} == {(1.0, 0.25)}
        summary = Summary(guarantee=engine.guarantee, key_share=engine.job.terms.key_share, spent=engine.spent)
        assert "of (rho=0.25, delta=0), one key's share of (rho=1, delta=0);" in " ".join(summary.lines())
        assert summary.as_dict() | {"guarantee": person, "key_share": share} == summary.as_dict()
    told = plan(config)
    text, facts = "\n".join(told.lines()), told.as_dict()
    assert "guarantee for ever: (rho=1, delta=0), epsilon 7.77 at delta 1e-06, under all keys together; " in text
    assert "each key may spend (rho=0.25, delta=0) of it" in text
    assert (facts["guarantee"], facts["key_share"]) == (person, share)
    assert facts["epsilon_guarantee"] == PrivacyLoss.cap(1).epsilon(1e-6)
    assert collect(config, {}, 0).guarantee.rho == 1.0
    with closing(open_reader(url, f"{config.stream.name}/a")) as reader:
        shown = Report.of(reader).as_dict()
    assert (shown["guarantee"]["rho"], shown["key_share"]["rho"]) == (1.0, 0.25)
    assert shown["guarantee"]["epsilon"] == facts["epsilon_guarantee"]
    lines = CliRunner().invoke(main, ["budget", "show", url]).output
    assert lines.count("guarantee            (rho=1, delta=0), epsilon 7.77 at delta 1e-06: for ever") == 4
    assert lines.count("key_share            (rho=0.25, delta=0): what this key may spend of it") == 4
    titles = {_guarantee([one]) for one in read_all([release.to_bytes() for release in found])}
    assert titles == {
        "guarantee for ever: rho 1, delta 0 under all keys together, rho 0.25, delta 0 of it for each key"
    }


def test_a_stream_whose_keys_do_not_divide_the_budget_has_no_share():
    """A record lies under one key, and a group has one budget."""
    for config in (keyed(), keyed("stream", budget={"group": "g"})):
        assert (config.job.terms.key_share, config.job.terms.guarantee) == (None, config.job.terms.capacity)


def test_a_total_is_told_for_all_keys_together():
    from fcstream.ledgers.base import TOTAL_BLOCK
    from fcstream.planning.plan import plan

    config = keyed(release=COUNT | {"rho": 0.1}, budget={"rho": 1.0, "total_rho": 9.0})
    assert (config.job.terms.promised(TOTAL_BLOCK).rho, config.job.terms.total.rho) == (9.0, 3.0)
    told = plan(config)
    assert (told.total.rho, told.total_key_share.rho) == (9.0, 3.0)
    assert "stays within (rho=9, delta=0), under all keys together; each key may spend (rho=3" in "".join(told.lines())


@pytest.mark.slow
def test_what_plan_says_of_keys():
    from fcstream.planning.plan import plan

    text = "\n".join(plan(keyed(release=COUNT)).lines())
    assert "3 keys, each released by itself" in text
    assert "divided" not in text
    found = plan(keyed("stream", release=COUNT, budget={"rho": 6.0}, stream={"keys_per_user": 2}))
    assert "each has `budget` divided by 2" in "\n".join(found.lines())
    assert (found.as_dict()["keys"], found.as_dict()["keys_per_user"]) == (3, 2)
    assert (found.guarantee.rho, found.key_share.rho) == (6.0, 3.0)
    assert "keys" not in plan(Config.from_mapping(sample())).as_dict()
