"""Values that are not there: which say so, which a record may lack, and streams that need none at all."""

import json

import msgspec
import numpy as np
import pytest
from support.helpers import sample
from support.payloads import arrow

from fcstream import Engine, KeyedEngine, Noise, SeededEntropy
from fcstream.cli import main
from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.formats.decoders import CsvRows, Objects
from fcstream.formats.payloads import decoder_for
from fcstream.planning.plan import plan
from fcstream.spark.blocks import cut, gather
from fcstream.stream.admission import admit

COUNT = {"kind": "count", "method": None, "radius": None, "spread": None, "delta": None, "rho": 1e4}
HISTOGRAM = {**COUNT, "kind": "histogram", "feature": "a", "edges": [20.0]}
A = {"name": "a", "min": 0.0, "max": 40.0}
B = {"name": "b", "min": 0.0, "max": 200.0, "missing": ["", "n/a", 102.3], "optional": True}
ON = {"name": "on", "type": "boolean", "missing": ["unknown", -1], "optional": True}
CAP = {"rho": 1e6}
ONE = {"end": "1970-01-01T00:00:10Z"}


def config_of(features, release=COUNT, **sections):
    found = sample(release=release, budget=CAP, window=ONE, **sections) | {"features": features}
    if not features:
        del found["features"], found["lattice"]
    return found


def made(config, codec, rows):
    """What a stream makes of rows (dictionaries): the release, and what was rejected."""
    schema, rejected = Config.from_mapping(config).job.schema, []
    engine = Engine(config, noise=Noise(SeededEntropy(1)), on_rejection=rejected.extend)
    if codec == "csv":
        names = ["ts", *schema.features]
        decoder = CsvRows(schema, ",".join(names).encode())
        cell = lambda value: "" if value is None else str(value)  # noqa: E731
        batch = decoder.decode([",".join(cell(row.get(name)) for name in names).encode() for row in rows], 0)
    elif codec == "lines":
        batch = Objects(schema).decode([json.dumps(row).encode() for row in rows], 0)
    else:
        encode = getattr(msgspec, codec).encode
        batch = decoder_for(codec, schema).decode([encode(row) for row in rows], 0)
    engine.take(batch)
    return engine.close()[0], [
        (each.position, each.reason, each.field) for each in sorted(rejected, key=lambda r: r.position)
    ]


ROWS = [
    {"ts": 1, "a": 10, "b": 50.0},
    {"ts": 1, "a": 10, "b": None},
    {"ts": 1, "a": 10, "b": 102.3},
    {"ts": 1, "a": 30, "b": "n/a"},
    {"ts": 1, "a": 30, "b": " "},
    {"ts": 1, "a": 30},
    {"ts": 1, "a": 30, "b": 500.0},
    {"ts": 1, "a": 30, "b": "text"},
    {"ts": 1, "a": None, "b": 50.0},
]


@pytest.mark.parametrize("codec", ["json", "lines", "msgpack", "csv"])
def test_a_record_without_an_optional_value_counts_in_answers_about_others(codec):
    config = config_of([A, B], HISTOGRAM, stream={"time": "ts"})
    release, rejected = made(config, codec, ROWS)
    assert release.value == [3, 3]
    assert rejected == [(6, "out_of_range", "b"), (7, "not_a_number", "b"), (8, "missing", "a")]
    count, rejected = made(config_of([B], stream={"time": "ts"}), codec, ROWS)
    assert count.value == [7]
    assert rejected == [(6, "out_of_range", "b"), (7, "not_a_number", "b")]


@pytest.mark.parametrize("codec", ["json", "lines", "msgpack", "csv"])
def test_a_declared_sentinel_is_no_value(codec):
    """102.3 lies within the range: it counted as a temperature."""
    config = config_of([A, {**B, "optional": False}], stream={"time": "ts"})
    release, rejected = made(config, codec, ROWS)
    assert release.value == [1]
    missing = [(at, "missing", "b") for at in (1, 2, 3, 4, 5)]
    assert rejected == [*missing, (6, "out_of_range", "b"), (7, "not_a_number", "b"), (8, "missing", "a")]


@pytest.mark.parametrize("codec", ["json", "msgpack", "csv"])
def test_sentinels_of_booleans_and_categories(codec):
    state = {"name": "state", "type": "category", "levels": ["idle", "busy"], "missing": ["?"], "optional": True}
    release = {**COUNT, "kind": "marginals", "order": 1, "columns": ["on"]}
    config = config_of([{**ON, "optional": False}, state], release, stream={"time": "ts"})
    rows = [
        *({"ts": 1, "on": on, "state": "busy"} for on in (True, 1, "false", -1, "unknown", None, "maybe")),
        *({"ts": 1, "on": True, "state": state} for state in ("idle", "?", "", None, "gone")),
    ]
    found, rejected = made(config, codec, rows)
    assert sum(found.value[0]) == 7
    missing = [(at, "missing", "on") for at in (3, 4, 5)]
    assert rejected == [*missing, (6, "unknown_level", "on"), (11, "unknown_level", "state")]


def test_arrays_floats_and_arrow_say_it_with_nan_or_null():
    pa = pytest.importorskip("pyarrow")
    config = config_of([A, B], HISTOGRAM, stream={"time": "ts"})
    schema = Config.from_mapping(config).job.schema
    values = np.array([[10, 50], [10, np.nan], [30, 102.3], [np.nan, 50], [30, np.inf]])
    singles = np.array([50, np.nan, 102.3, 50, np.inf], np.float32)
    block = np.zeros(5, [("t", "<i8"), ("v", "<f8", (2,))])
    block["t"], block["v"] = 1, values
    nulls = pa.array(values[:, 1].tolist(), mask=np.isnan(values[:, 1]))
    batches = [
        decoder_for("floats", schema).decode([block.tobytes()], 0),
        decoder_for("arrow", schema).decode([arrow(ts=[1] * 5, a=values[:, 0], b=nulls)], 0),
        decoder_for("arrow", schema).decode([arrow(ts=[1] * 5, a=values[:, 0], b=singles)], 0),
        decoder_for("arrow", schema).decode([arrow(ts=[1] * 3, a=[10.0, 10, 30], b=["n/a", None, ""])], 0),
        decoder_for("arrow", schema).decode([arrow(ts=[1] * 3, a=[10.0, 10, 30], b=pa.nulls(3))], 0),
    ]
    pushed = [values, values.tolist(), [[10, 50], [10, None], (30, 102.3), [None, 50], [30, "text"]]]
    for batch in [*batches, *pushed]:
        engine = Engine(config, noise=Noise(SeededEntropy(1)), on_rejection=lambda _: None)
        if isinstance(batch, (np.ndarray, list)):
            engine.push([1] * 5, batch)
        else:
            engine.take(batch)
        assert engine.close()[0].value == [2, 1]


@pytest.mark.parametrize("codec", ["json", "lines", "msgpack", "csv"])
def test_a_count_needs_no_feature(codec):
    config = config_of([], stream={"time": "ts"})
    rows = [{"ts": 1}, {"ts": 5, "other": "x"}, {"ts": None}, {"ts": 10**9}]
    release, rejected = made(config, codec, rows)
    assert release.value == [2]
    assert [reason for _, reason, _ in rejected] == (
        ["time_out_of_range"] if codec == "csv" else ["missing", "time_out_of_range"]
    )
    assert plan(Config.from_mapping(config)).probability == 1


def test_counts_without_features_of_users_keys_and_blocks():
    pa = pytest.importorskip("pyarrow")
    engine = Engine(config_of([], stream={"unit": "user", "user": "id"}), noise=Noise(SeededEntropy(1)))
    engine.push([1, 2, 3], ids=["x", "x", "y"])
    assert engine.close()[0].value == [2]
    keyed = KeyedEngine(config_of([], stream={"key": "k", "keys": ["p", "q"]}), noise=Noise(SeededEntropy(1)))
    keyed.push([1, 2, 3], None, ["p", "q", "p"])
    assert [release.value for release in keyed.close()] == [[2], [1]]
    config = config_of([], stream={"time": "ts"})
    job = Config.from_mapping(config).job
    blocks = [np.array([1, 2, 3], "<i8").tobytes(), b"12345"]
    batches = [
        decoder_for("floats", job.schema).decode(blocks, 0),
        decoder_for("arrow", job.schema).decode([arrow(ts=pa.array([1, None, 3, 4])), b"12345"], 0),
    ]
    for batch in batches:
        engine = Engine(config, noise=Noise(SeededEntropy(1)), on_rejection=lambda _: None)
        engine.take(batch)
        assert engine.close()[0].value == [3]
        found = admit(job, batch, None)
        packed = [block for _, _, block in cut("p", batch, found, np.zeros(3, np.int64), [0])]
        assert gather(packed, 0).points.shape == (3, 0)


def test_a_count_without_features_runs_from_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("ts\n1\n2\nsoon\n")
    (tmp_path / "c.toml").write_text(
        '[stream]\nname = "t"\ntime = "ts"\n'
        '[window]\nlength = "10s"\nstart = "1970-01-01"\nend = "1970-01-01T00:00:10Z"\n'
        '[release]\nkind = "count"\nrho = 100.0\n[budget]\nrho = 100.0\ndelta = 0.0\n'
        '[source]\nurl = "csv:in.csv"\n[sink]\nurl = "jsonl:-"\n[ledger]\nurl = "sqlite:l.db"\n'
    )
    assert main(["run", "c.toml"], standalone_mode=False) in (0, None)
    assert abs(json.loads(capsys.readouterr().out)["count"] - 2) < 1


@pytest.mark.parametrize(
    ("features", "release", "place", "what"),
    [
        ([], {}, "features", "at least one feature for a release of kind 'mean'"),
        ([], HISTOGRAM, "features", "at least one feature"),
        ([{**A, "optional": True}, {**B, "optional": False}], {}, "features.a.optional", "about this feature"),
        ([{**A, "optional": True}, B], HISTOGRAM, "features.a.optional", "about this feature"),
        ([{**A, "missing": ["102.3"]}], COUNT, "features.a.missing", "without quotes"),
        ([{**A, "missing": [float("nan")]}], COUNT, "features.a.missing", "finite"),
        ([{**ON, "missing": ["true"]}], COUNT, "features.on.missing", "levels"),
        ([{**ON, "missing": [1]}], COUNT, "features.on.missing", "levels"),
        ([{**ON, "missing": [0.5]}], COUNT, "features.on.missing", "whole numbers"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(features, release, place, what):
    with pytest.raises(ConfigError, match=what) as refused:
        Config.from_mapping(config_of(features, release))
    assert refused.value.key == place


def test_features_need_a_lattice():
    config = config_of([A])
    del config["lattice"]
    with pytest.raises(ConfigError, match=r"lattice\.step: is required"):
        Config.from_mapping(config)


@pytest.mark.parametrize("kind", ["histogram", "quantiles", "marginals", "synthetic", "count"])
def test_an_optional_field_changes_no_release(kind):
    """Not even in the order of a user's records of one moment."""
    keys = {
        "histogram": {"feature": "a", "edges": [20.0]},
        "quantiles": {"feature": "a", "quantiles": [0.5]},
        "marginals": {"columns": ["on", "a"], "edges": {"a": [20.0]}},
        "synthetic": {"columns": ["on", "a"], "edges": {"a": [20.0]}, "rows": 50},
        "count": {},
    }[kind]
    config = config_of(
        [A, B, {**ON, "optional": False}], {**COUNT, "kind": kind, **keys}, stream={"unit": "user", "user": "id"}
    )
    rng = np.random.default_rng(1)
    values = np.column_stack([rng.uniform(0, 40, 600), rng.uniform(0, 200, 600), rng.integers(0, 2, 600)])
    ids = [str(i) for i in range(300) for _ in "ab"]
    answers = set()
    for seed in (1, 2):
        values[:, 1] = np.random.default_rng(seed).choice([np.nan, 102.3, 7.0, 150.0], 600)
        values[1::2, [0, 2]] = values[::2, [0, 2]]
        engine = Engine(config, noise=Noise(SeededEntropy(1)))
        engine.push([1] * 600, values, ids=ids)
        answers.add(engine.close()[0].to_bytes())
    assert len(answers) == 1
