"""Kinds `synthetic` and `marginals` in streams: levels at the door, windows, tables in a folder, crashes."""

import csv
import json
import os
import signal

import msgspec
import numpy as np
import pytest
from support.crashes import in_child, run_job
from support.helpers import sample

import fcstream
from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.accounting.losses import PrivacyLoss
from fcstream.config import Config
from fcstream.connectors import open_sink
from fcstream.errors import ConfigError, UnusablePlan
from fcstream.formats.decoders import CsvRows, Objects
from fcstream.formats.payloads import decoder_for
from fcstream.ledgers import Request, Terms, WindowKey, open_ledger
from fcstream.ledgers.base import STREAM_BLOCK
from fcstream.planning.plan import plan
from fcstream.releases.tables.documents import synthetic_codes, synthetic_shares

BARE = dict.fromkeys(("method", "radius", "spread", "delta", "size_hint"))
FEATURES = [
    {"name": "on", "type": "boolean"},
    {"name": "age", "min": 0.0, "max": 120.0},
    {"name": "state", "type": "category", "levels": ["idle", "busy", "3", ""]},
    {"name": "hot", "type": "boolean"},
]
SYNTHETIC = {**BARE, "kind": "synthetic", "edges": {"age": [18.0, 65.0]}, "rho": 0.9}
MARGINALS = {**BARE, "kind": "marginals", "edges": {"age": [18.0, 65.0]}, "rho": 0.9}
LEVELS = ["idle", "busy", "3", ""]


def config_of(release=SYNTHETIC, features=FEATURES, **sections):
    return Config.from_mapping({**sample(release=release, **sections), "features": features})


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    lean = rng.random(n)
    return [
        {"on": bool(x > 0.5), "age": float(round(100 * x)), "state": LEVELS[int(3.9 * x)], "hot": int(x > 0.7)}
        for x in np.clip(lean + rng.normal(0, 0.1, n), 0, 1)
    ]


def as_row(record):
    return [record["on"], record["age"], record["state"], bool(record["hot"])]


# -- at the door ---------------------------------------------------------------------------------------------------


def test_levels_are_read_alike_from_everywhere():
    schema = config_of().job.schema
    rows = records(200)
    rows += [{**rows[0], "on": value} for value in (True, 1, "1", "true", "TRUE", 1.0)]
    rows += [{**rows[0], "state": value} for value in ("3", 3, 3.0)]
    lines = [json.dumps({"ts_ms": 5, **row}).encode() for row in rows]
    states = [float(LEVELS.index(str(row["state"]).removesuffix(".0"))) for row in rows]
    switched = [float(str(row["on"]).lower() in ("true", "1", "1.0")) for row in rows]
    expected = [
        [on, row["age"], state, float(row["hot"])] for on, state, row in zip(switched, states, rows, strict=True)
    ]
    whole = Objects(schema).decode(lines, 0)
    assert whole.rejections == []
    assert whole.values.tolist() == expected
    careful = Objects(schema).decode([*lines, b"{}"], 0)  # one odd line sends all through the careful path
    assert careful.values.tolist() == expected
    one_by_one = [Objects(schema).decode([line], 0).values[0].tolist() for line in lines]
    assert one_by_one == expected
    texts = [row for row in rows if not isinstance(row["state"], float) and not isinstance(row["on"], float)]
    cells = [f"5,{row['on']},{row['age']},{row['state']},{row['hot']}".encode() for row in texts]
    read = CsvRows(schema, b"ts_ms,on,age,state,hot").decode(cells, 0)
    assert len(read.values) == len(cells)
    assert read.values[:200].tolist() == expected[:200]


def test_levels_in_arrow_blocks():
    pyarrow = pytest.importorskip("pyarrow")
    rows = records(50)
    columns = {"ts_ms": [5] * 50, "on": [r["on"] for r in rows], "age": [r["age"] for r in rows]}
    columns |= {"state": [r["state"] for r in rows], "hot": [r["hot"] for r in rows]}
    columns["state"][7], columns["on"][9] = "away", None
    table, out = pyarrow.table(columns), pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    batch = decoder_for("arrow", config_of().job.schema).decode([out.getvalue().to_pybytes()], 0)
    kept = [k for k in range(50) if k not in (7, 9)]
    assert batch.values[:, 2].tolist() == [LEVELS.index(rows[k]["state"]) for k in kept]
    assert {(one.reason, one.field) for one in batch.rejections} == {("unknown_level", "state"), ("missing", "on")}


def test_extensions_of_messagepack_are_no_levels():
    rows = [{"ts_ms": 5, **row} for row in records(3)]
    rows[1]["state"] = msgspec.msgpack.Ext(3, b"x")
    batch = decoder_for("msgpack", config_of().job.schema).decode(list(map(msgspec.msgpack.encode, rows)), 0)
    assert [(one.reason, one.position, one.field) for one in batch.rejections] == [("unknown_level", 1, "state")]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("on", "yes", "unknown_level"),
        ("on", 2, "unknown_level"),
        ("on", None, "missing"),
        ("on", [1], "unknown_level"),
        ("state", "Idle", "unknown_level"),
        ("state", {"a": 1}, "unknown_level"),
        ("hot", "", "missing"),
        ("age", True, "not_a_number"),
        ("age", 121.0, "out_of_range"),
    ],
)
def test_unknown_levels_are_rejected_each_for_itself(field, value, reason):
    good = {"ts_ms": 5, **records(1)[0]}
    lines = [json.dumps(row).encode() for row in (good, {**good, field: value}, good)]
    engine = Engine(config_of(), on_rejection=(seen := []).extend)
    engine.take(Objects(engine.job.schema).decode(lines, 0))
    assert [(one.reason, one.position, one.field) for one in seen] == [(reason, 1, field)]


def test_pushed_rows_hold_levels():
    """Whole numbers are levels by their text, as one of the levels is a whole number's text."""
    engine = Engine(config_of(), on_rejection=(seen := []).extend)
    engine.push([1, 2, 3, 4, 5], [[True, 3.0, "busy", False], [1, 3.0, "busy", 0], [1, 3.0, "away", 0], [1, 3.0, 1, 0],
                                  [0, "3", "busy", 0]])  # fmt: skip
    assert [(one.reason, one.position) for one in seen] == [
        ("unknown_level", 2),
        ("unknown_level", 3),
        ("not_a_number", 4),
    ]
    assert engine._records.counter.view([0]).bits().tolist() == [[1, 0, 1, 0, 0, 0, 1, 0, 0]] * 2


@pytest.mark.parametrize(
    ("features", "release", "message"),
    [
        ([{"name": "a", "type": "category"}], {}, r"features\.a\.levels: must be given"),
        ([{"name": "a", "type": "category", "levels": ["x"]}], {}, r"features\.a\.levels: must be at least two"),
        ([{"name": "a", "type": "category", "levels": ["x", "x"]}], {}, r"features\.a\.levels: .*different"),
        ([{"name": "a", "type": "boolean", "levels": ["x", "y"]}], {}, r"features\.a\.levels: .*no other"),
        ([{"name": "a", "type": "boolean", "min": 0.0}], {}, r"features\.a\.min: must be left out"),
        ([{"name": "a", "max": 1.0}], {}, r"features\.a\.min: is required"),
        ([{"name": "a", "min": 0.0, "max": 1.0}], {}, r"release\.edges\.a: is required"),
        (FEATURES, {"columns": ["on", "off"]}, r"release\.columns: must be among .* got 'off'"),
        (FEATURES, {"columns": ["on", "on"]}, r"release\.columns: must not repeat"),
        (FEATURES, {"columns": []}, r"release\.columns: must name at least one"),
        (FEATURES, {"edges": {"age": [200.0]}}, r"release\.edges\.age: must hold 1 to"),
        (FEATURES, {"edges": {"age": [20.0, 10.0]}}, r"release\.edges\.age: must ascend"),
        (FEATURES, {"edges": {"age": [20.0], "on": [0.5]}}, r"release\.edges\.on: must be left out"),
        (FEATURES, {"rows": 0}, r"release\.rows: must be in"),
        (FEATURES, {"kappa": 0.3}, r"release\.kappa: belongs to variant"),
        (FEATURES, {"projection": "ones", "size_hint": 100}, r"release\.projection: .*all columns are Boolean"),
        (FEATURES, {"variant": "paper"}, r"release\.size_hint"),
        (FEATURES, {"variant": "paper", "size_hint": 9, "kappa": 1.5}, r"release\.kappa: must be in"),
        (FEATURES, {"variant": "paper", "size_hint": 9, "projection": "previous"}, r"release\.projection"),
        (FEATURES, {"rho": 1e-7}, r"release\.rho: must be at least"),
        (FEATURES, {"order": 2}, r"release\.order: belongs to kind 'marginals'"),
        (FEATURES, {**MARGINALS, "order": 4}, r"release\.order: must be in \[1, 3\]"),
        (FEATURES, {"kind": "mean", "edges": None, "radius": 3.0, "size_hint": 9, "delta": 1e-9, "features": ["state"]},
         r"features\.state\.type: must not be a category"),
    ],
)  # fmt: skip
def test_rules(features, release, message):
    with pytest.raises(ConfigError, match=message):
        config_of(
            {**SYNTHETIC, "edges": {}, **({"edges": {"age": [18.0]}} if features is FEATURES else {}), **release},
            features,
        )


def test_codes_of_users_are_not_averaged():
    users = {"unit": "user", "user": "who", "per_user": "mean"}
    with pytest.raises(ConfigError, match=r"stream\.per_user: must be 'first'"):
        config_of(stream=users)
    config_of({**SYNTHETIC, "columns": ["on", "hot"], "edges": {}}, [FEATURES[0], FEATURES[3]], stream=users)


def test_a_boolean_is_a_number_where_one_is_wanted():
    release = {"kind": "histogram", **BARE, "feature": "on", "categories": [1.0]}
    engine = Engine(config_of(release, FEATURES[:2], lattice={"step": 0.5}))
    engine.take(Objects(engine.job.schema).decode([b'{"ts_ms":1,"on":true,"age":3}'] * 40, 0))
    assert engine.close()[0].value[0] > 30


# -- windows -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_windows_slide_and_users_count_once():
    rows = [as_row(row) for row in records(3000)]
    times = np.arange(3000) * 20
    for release in (SYNTHETIC, MARGINALS):
        engine = Engine(config_of(release, window={"slide": "5s"}), noise=Noise(SeededEntropy(1)))
        engine.push(times, rows)
        found = engine.close()
        assert len(found) == 11
        assert all(abs(one.count - 500) < 40 and one.reason is None for one in found)
        users = {"stream": {"unit": "user", "user": "who"}, "budget": {"rho": 9.0}}
        engine = Engine(config_of({**release, "rho": 1.5}, **users), noise=Noise(SeededEntropy(1)))
        engine.push(times, rows, ids=np.arange(3000) % 300)
        assert all(abs(one.count - 300) < 40 for one in engine.close())


def test_rows_come_out_as_they_were_declared():
    engine = Engine(config_of({**SYNTHETIC, "rows": 500}), noise=Noise(SeededEntropy(2)))
    rows = records(5000)
    engine.push(np.arange(5000), [as_row(row) for row in rows])
    first, *others = engine.close()
    assert [one.reason for one in others] == ["too_few"] * 5
    assert [column["name"] for column in first.parts["columns"]] == ["on", "age", "state", "hot"]
    made = fcstream.synthetic_rows(first)
    assert set(made["on"]) == {True, False}
    assert set(made["age"]) <= {9.0, 41.5, 92.5}
    assert set(made["state"]) <= set(LEVELS)
    assert len(made["hot"]) == 500
    real = np.mean([row["on"] and row["state"] == "busy" for row in rows])
    assert np.mean([a and b == "busy" for a, b in zip(made["on"], made["state"], strict=True)]) == pytest.approx(
        real, abs=0.04
    )


@pytest.mark.slow
def test_the_previous_projection_is_the_last_releases():
    config = config_of({**SYNTHETIC, "projection": "previous"})
    engine = Engine(config, noise=Noise(SeededEntropy(3)))
    rows = [as_row(row) for row in records(6000)]
    engine.push(np.arange(6000) * 10, rows)
    found = engine.close()
    assert all(one.reason is None for one in found)
    assert all(one.track is not None for one in found)
    again = Release.from_bytes(found[1].to_bytes())
    warm = engine.job.answers[0].mechanism.after(again.track)
    assert warm.cells is not None
    # What is counted ahead changes how fast an answer is there, never the answer.
    told = []
    for is_ahead in (False, True):
        counter = warm.counter(4, 1, Noise())
        if is_ahead:
            counter.prepare(warm.cells)
        counter.add(
            0, engine.job.grid.points(np.array([[r[0], r[1], LEVELS.index(r[2]), r[3]] for r in rows[:900]], float))
        )
        ledger = open_ledger("memory:", Terms("t", "stream", PrivacyLoss.cap(9, 0), ""))
        charge = ledger.charge([Request(WindowKey(0, 1), warm.loss, (STREAM_BLOCK,))])[0].charge
        told.append(warm.release(counter.view([0]), charge, Noise(SeededEntropy(4))))
    assert told[0].parts == told[1].parts
    assert told[0].track == told[1].track
    assert len(told[0].parts["counts"]) == warm.cells.number


def test_the_previous_projection_comes_back_after_kill_9(tmp_path):
    """From the ledger, for nothing: records are counted into the old cells as they come, each window costs as much."""
    config = config_of(
        {**SYNTHETIC, "projection": "previous"},
        window={"clock": "broker", "end": None, "lateness": "0s"},
        ledger={"url": f"sqlite:{tmp_path / 'ledger.db'}"},
    )
    parts = [(np.arange(2000) * 5 + k * 10_000, [as_row(row) for row in records(2000, k)]) for k in range(2)]
    child = os.fork()
    if not child:
        try:
            engine = Engine(config)
            engine.push(parts[0][0], parts[0][1], arrival_ms=parts[0][0] + 1)
            engine.advance(10_001)
            engine.push(parts[1][0], parts[1][1], arrival_ms=parts[1][0] + 1)  # this window stays open
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL

    with Engine(config) as engine:
        first = Release.from_bytes(engine._ledger.last_sealed()[1])
        cells = engine.job.answers[0].mechanism.after(first.track).cells
        assert cells.number > 1
        times, rows = parts[1]
        engine.push(times, rows, arrival_ms=times + 1)
        held = engine._records.counter._held[1]
        assert (held.cells, held.counted, held.counts.sum()) == (cells, held.size, 2000)
        second, *none = engine.advance(20_001)
        assert none == []
        assert (second.reason, second.rho, engine.spent.rho) == (None, 0.9, 0.9)
        assert len(second.parts["counts"]) == cells.number
        assert second.track != first.track
        few = engine.advance(30_001)[0]  # nobody was there: what was known stays known
        assert (few.reason, few.track) == ("too_few", second.track)
    with Engine(config) as engine:
        times, rows = parts[1]
        engine.push(times + 20_000, rows, arrival_ms=times + 20_001)
        third = engine.advance(40_001)[0]
        assert len(third.parts["counts"]) == engine.job.answers[0].mechanism.after(second.track).cells.number


def test_a_public_direction_keeps_no_records():
    release = {**BARE, "kind": "synthetic", "projection": "ones", "size_hint": 9000, "rho": 0.9}
    features = [{"name": f"x{k}", "type": "boolean"} for k in range(6)]
    engine = Engine(config_of(release, features), noise=Noise(SeededEntropy(5)))
    bits = np.random.default_rng(0).random((900, 6)) < 0.4
    engine.push(np.arange(900), bits.astype(float))
    assert engine._records.counter._held[0].records.size == 0
    found = engine.close()[0]
    assert len(found.parts["counts"]) == 7
    assert np.abs(np.array(found.parts["counts"]) - np.bincount(bits.sum(axis=1), minlength=7)).max() < 40
    drawn = synthetic_codes(found)[1].mean(axis=0)
    assert drawn == pytest.approx(bits.mean(axis=0), abs=0.05)
    shares = synthetic_shares(found)
    apart = 2 * np.sqrt(len(found.value)) / 900  # each part is rounded to whole rows
    assert list(shares) == [f"x{k}" for k in range(6)]
    assert [dict(levels)["true"] for levels in shares.values()] == pytest.approx(drawn.tolist(), abs=apart)


# -- plans ---------------------------------------------------------------------------------------------------------


def test_plans_tell_the_error_and_refuse_what_cannot_work():
    found = plan(config_of({**SYNTHETIC, "size_hint": 20_000}))
    assert 0 < found.sigma["two-way marginals"] < 0.01
    assert found.smallest_size < 1000
    assert found.stopped.rho == pytest.approx(0.045)
    assert any("kind = 'marginals'" in line for line in found.lines())
    with pytest.raises(UnusablePlan, match=r"a window of 100 records .*: use longer windows, of \d+ records"):
        plan(config_of({**SYNTHETIC, "rho": 0.01, "size_hint": 100}))
    found = plan(config_of({**SYNTHETIC, "variant": "pure", "size_hint": 5000}))
    assert any("pure epsilon" in line for line in found.lines())
    assert found.stopped is None
    found = plan(config_of({**SYNTHETIC, "variant": "paper", "size_hint": 5000}))
    assert any("times the cube" in line for line in found.lines())
    found = plan(config_of({**MARGINALS, "rho": 0.001, "size_hint": 100}))
    assert any("fewer in a cell than the noise" in line for line in found.lines())
    bits = [{"name": f"x{k}", "type": "boolean"} for k in range(200)]
    found = plan(config_of({**BARE, "kind": "marginals", "rho": 0.9}, bits))
    assert any("79,600 numbers, about 2.5 MB" in line for line in found.lines())


# -- tables in a folder --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_folder_of_tables(form, tmp_path):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    engine = Engine(config_of(), noise=Noise(SeededEntropy(6)))
    engine.push(np.arange(2000), [as_row(row) for row in records(2000)])
    found = engine.close()[:2]
    sink = open_sink(f"{form}-tables:{tmp_path / 'made'}")
    assert sink.last() is None
    assert sink.missing(found) == found
    sink.write(found)
    assert sink.missing(found) == []
    assert sink.last() == found[1]
    names = sorted(path.name for path in (tmp_path / "made").iterdir())
    assert names == sorted([f"t.0.{form}", "t.0.json", "t.10000.json"])  # the second window was refused
    made, path = fcstream.synthetic_rows(found[0]), tmp_path / "made" / f"t.0.{form}"
    if form == "csv":
        with open(path, newline="") as file:
            read = list(csv.DictReader(file))
        assert [row["state"] for row in read] == made["state"]
        assert [row["on"] == "true" for row in read] == made["on"]
    elif form == "jsonl":
        assert [json.loads(line) for line in path.read_text().splitlines()][3] == {k: v[3] for k, v in made.items()}
    else:
        import pyarrow.parquet

        assert pyarrow.parquet.read_table(path).to_pydict() == made
    with pytest.raises(ConfigError, match="sink"):
        open_sink("xls-tables:somewhere")


@pytest.mark.slow
def test_kill_9_leaves_nothing_or_the_same_table(tmp_path):
    lines = [json.dumps({"ts_ms": 3 * k, **row}) for k, row in enumerate(records(400))]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")

    def at(folder):
        folder.mkdir(exist_ok=True)
        place = {"source": {"url": f"jsonl:{tmp_path / 'in.jsonl'}"}, "sink": {"url": f"csv-tables:{folder / 'made'}"}}
        place["ledger"] = {"url": f"sqlite:{folder / 'ledger.db'}"}
        return config_of(**place, window={"end": "1970-01-01T00:00:10Z"})

    run_job(at(tmp_path / "warm"))
    status, calls = in_child(at(tmp_path / "whole"), None)
    assert status == 0
    for burn_at in range(1, int(calls) + 1, 3):
        folder = tmp_path / f"burnt{burn_at}"
        config = at(folder)
        status, _ = in_child(config, burn_at)
        assert status == 9
        made = folder / "made"
        before = {path.name: path.read_bytes() for path in made.iterdir()} if made.exists() else {}
        run_job(config)
        run_job(config)
        after = {path.name: path.read_bytes() for path in made.iterdir() if not path.name.startswith(".")}
        assert set(after) == {"t.0.csv", "t.0.json"}
        release = Release.from_bytes(after["t.0.json"])
        assert release.spent["rho"] == release.rho == 0.9
        for name, data in before.items():  # what anybody could have seen stays as it was
            assert name.startswith(".") or after[name] == data
        rows = after["t.0.csv"].decode().splitlines()
        assert len(rows) == release.parts["rows"] + 1
